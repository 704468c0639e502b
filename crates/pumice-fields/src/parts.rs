//! A field that several servers have written, each its part to a file of its own. An index, a small TOML file, lists them:
//!
//! ```toml
//! format = 1
//! write = "00000189a3b2c4d5e6f70123"  # the parts have the same note, so that those of another time are noticed
//! shape = [91, 180, 360]
//! axis = 0                            # along which the field is cut
//!
//! [[part]]
//! file = "t_000003.part0000.pum"      # in the folder of the index
//! extent = 46
//! ```
//!
//! Parts are in order along the axis, without gaps, so a list that is valid makes up the whole field.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pumice::{Array, AtomicFile, DecodeOptions, Element, Error, ErrorKind, Reader, Result};
use serde::{Deserialize, Serialize};

use crate::invalid;

/// Larger indices are refused.
const MAX_BYTES: u64 = 16 << 20;
/// The only format so far.
const FORMAT: u32 = 1;

/// A part of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its file, in the folder of the index.
    pub file: String,
    /// Its extent along the axis.
    pub extent: usize,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    format: u32,
    write: String,
    shape: Vec<usize>,
    axis: usize,
    #[serde(default)]
    part: Vec<Part>,
}

/// The parts of a field, which are read as one array.
#[derive(Debug)]
pub struct Parts {
    index: Index,
    folder: PathBuf,
}

impl Parts {
    /// The note (an attribute) that ties a part to its index.
    pub const NOTE: &'static str = "pumice.parts";

    /// Opens an index.
    ///
    /// ```no_run
    /// let field = pumice_fields::Parts::open("t_000003.parts.toml".as_ref())?;
    /// let first = field.read_region::<f32>(&[0..1, 0..180, 0..360])?;
    /// # Ok::<(), pumice::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is no index, or its parts do not make up an array.
    pub fn open(path: &Path) -> Result<Self> {
        let at = |e: Error| e.context(path.display());
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        read.map_err(|e| at(e.into()))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(at(corrupt(format!("an index has at most {} MiB", MAX_BYTES >> 20))));
        }
        let index: Index = ::toml::from_str(&text).map_err(|e| at(corrupt(e.to_string().trim_end())))?;
        let parts = Self { index, folder: path.parent().unwrap_or(Path::new("")).into() };
        parts.check().map_err(at)?;
        Ok(parts)
    }

    /// Writes an index; it gets its name when it is complete. `write` is what the parts have as a note.
    ///
    /// # Errors
    /// If the parts do not make up an array of this shape, or writing fails.
    pub fn save(path: &Path, write: &str, shape: &[usize], axis: usize, part: Vec<Part>) -> Result<()> {
        let index = Index { format: FORMAT, write: write.into(), shape: shape.to_vec(), axis, part };
        let parts = Self { index, folder: PathBuf::new() };
        parts.check()?;
        let text = ::toml::to_string(&parts.index).map_err(|e| invalid(e.to_string()))?;
        let mut file = AtomicFile::create(path)?;
        file.write_all(text.as_bytes()).map_err(|e| Error::from(e).context(path.display()))?;
        file.commit()
    }

    fn check(&self) -> Result<()> {
        let Index { format, shape, axis, part, .. } = &self.index;
        if *format != FORMAT {
            return Err(Error::unsupported(format!("an index of format {format} needs a newer release")));
        }
        let is_name = |file: &str| !file.is_empty() && !file.contains(['/', '\\', '\0']) && file != ".." && file != ".";
        if let Some(part) = part.iter().find(|part| !is_name(&part.file)) {
            return Err(corrupt(format!("'{}' is no name of a file in the folder of the index", part.file)));
        }
        let whole = shape.get(*axis).copied().unwrap_or(1);
        let sum = part.iter().try_fold(0, |sum: usize, part| sum.checked_add(part.extent));
        let is_known = *axis < shape.len().max(1);
        let has_values = part.len() <= 1 || part.iter().all(|part| part.extent > 0);
        if !is_known || sum != Some(whole) || part.is_empty() || !has_values {
            return Err(corrupt(format!("the parts do not make up an array of shape {shape:?} along axis {axis}")));
        }
        Ok(())
    }

    /// Extents of the whole field, slowest axis first.
    pub fn shape(&self) -> &[usize] {
        &self.index.shape
    }

    /// The axis along which it is cut.
    pub fn axis(&self) -> usize {
        self.index.axis
    }

    /// Its parts, in their order along the axis.
    pub fn parts(&self) -> &[Part] {
        &self.index.part
    }

    /// Reads the whole field.
    ///
    /// # Errors
    /// As [`Self::read_region`].
    pub fn read<T: Element>(&self) -> Result<Array<T>> {
        let whole: Vec<Range<usize>> = self.shape().iter().map(|n| 0..*n).collect();
        self.read_region(&whole)
    }

    /// Reads a region, given as one range of positions per axis, from the parts that it touches.
    ///
    /// # Errors
    /// If a part is missing, damaged, or of another time than the index.
    pub fn read_region<T: Element>(&self, region: &[Range<usize>]) -> Result<Array<T>> {
        let shape = self.shape();
        let is_inside = region.len() == shape.len()
            && region.iter().zip(shape).all(|(range, n)| range.start <= range.end && range.end <= *n);
        if !is_inside {
            return Err(invalid(format!("the region {region:?} is not within the shape {shape:?}")));
        }
        let axis = self.axis();
        let wanted = region.get(axis).cloned().unwrap_or(0..1);
        let is_empty = region.iter().any(|range| range.is_empty());
        let (mut start, mut pieces) = (0, Vec::new());
        for part in self.parts() {
            let of_part = wanted.start.max(start)..wanted.end.min(start + part.extent);
            // Of an empty region, the first part tells the type of values.
            if of_part.start < of_part.end && !is_empty || is_empty && pieces.is_empty() {
                let mut local = region.to_vec();
                if let Some(range) = local.get_mut(axis) {
                    *range = if is_empty { 0..0 } else { of_part.start - start..of_part.end - start };
                }
                pieces.push((self.open_part(part)?, local));
            }
            start += part.extent;
        }
        // Each file is long enough for its values before memory is taken for all.
        pieces.iter().try_for_each(|(reader, local)| reader.check_region(local))?;
        let extents: Vec<usize> = region.iter().map(|range| range.len()).collect();
        let n: usize = extents.iter().product();
        let mut data: Vec<T> = Vec::new();
        data.try_reserve_exact(n)
            .map_err(|_| Error::new(ErrorKind::LimitExceeded, format!("there is no memory for {n} values")))?;
        data.resize(n, T::default());
        let inner: usize = extents.iter().skip(axis + 1).product();
        let row = wanted.len() * inner;
        let mut done = 0;
        for (reader, local) in pieces {
            let values = reader.read_region::<T>(&local)?.data;
            let width = local.get(axis).map_or(1, |range| range.len()) * inner;
            if width > 0 {
                for (from, to) in values.chunks_exact(width).zip(data.chunks_exact_mut(row)) {
                    to[done..done + width].copy_from_slice(from);
                }
            }
            done += width;
        }
        Ok(Array { data, shape: extents })
    }

    /// The file of a part, which must be that of this index.
    fn open_part(&self, part: &Part) -> Result<Reader<File>> {
        let path = self.folder.join(&part.file);
        let reader = Reader::open(&path, DecodeOptions::new())?;
        let info = reader.info();
        let mut shape = self.shape().to_vec();
        if let Some(extent) = shape.get_mut(self.axis()) {
            *extent = part.extent;
        }
        let is_of_index = info.attributes.iter().any(|(key, value)| key == Self::NOTE && *value == self.index.write);
        if info.shape != shape || !is_of_index {
            let message = "the part is of another time or field than the index; write the field again";
            return Err(corrupt(message).context(path.display()));
        }
        Ok(reader)
    }
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

#[cfg(test)]
mod tests {
    use pumice::{Config, ErrorBound};

    use super::*;

    /// Writes parts of these extents along an axis of an array that counts its values.
    fn written(folder: &Path, shape: &[usize], axis: usize, extents: &[usize]) -> Vec<f64> {
        let n: usize = shape.iter().product();
        let whole: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let inner: usize = shape.iter().skip(axis + 1).product();
        let row = inner * shape.get(axis).copied().unwrap_or(1);
        let mut start = 0;
        let mut parts = Vec::new();
        for (i, extent) in extents.iter().enumerate() {
            let (mut part, mut values) = (shape.to_vec(), Vec::<f64>::new());
            if let Some(n) = part.get_mut(axis) {
                *n = *extent;
            }
            whole.chunks(row.max(1)).for_each(|row| values.extend(&row[start * inner..(start + extent) * inner]));
            let config = Config::new(ErrorBound::Lossless).attribute(Parts::NOTE, "w");
            let file = format!("part{i}.pum");
            std::fs::write(folder.join(&file), pumice::compress(&values, &part, &config).unwrap()).unwrap();
            parts.push(Part { file, extent: *extent });
            start += extent;
        }
        Parts::save(&folder.join("x.parts.toml"), "w", shape, axis, parts).unwrap();
        whole
    }

    #[test]
    fn parts_are_read_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("x.parts.toml");
        for (shape, axis, extents) in [
            (&[7, 5, 4][..], 0, &[3, 4][..]),
            (&[7, 5, 4], 1, &[1, 1, 3]),
            (&[2, 9], 1, &[4, 5]),
            (&[6], 0, &[6]),
            (&[], 0, &[1]),
            (&[0, 3], 0, &[0]),
        ] {
            let whole = written(folder.path(), shape, axis, extents);
            let parts = Parts::open(&index).unwrap();
            assert_eq!((parts.shape(), parts.axis(), parts.parts().len()), (shape, axis, extents.len()));
            let read = parts.read::<f64>().unwrap();
            assert_eq!((read.data, &read.shape[..]), (whole, shape));
        }
        written(folder.path(), &[7, 5, 4], 1, &[1, 1, 3]);
        let parts = Parts::open(&index).unwrap();
        let region = parts.read_region::<f64>(&[2..4, 1..3, 3..4]).unwrap();
        assert_eq!((region.shape, region.data), (vec![2, 2, 1], vec![47.0, 51.0, 67.0, 71.0]));
        assert!(parts.read_region::<f64>(&[2..2, 1..3, 3..4]).unwrap().data.is_empty());
        assert!(parts.read_region::<f64>(&[0..8, 0..5, 0..4]).is_err());
        assert!(parts.read::<f32>().is_err());
        // A part of another time.
        let config = Config::new(ErrorBound::Lossless).attribute(Parts::NOTE, "later");
        let later = pumice::compress(&[0.0; 28], &[7, 1, 4], &config).unwrap();
        std::fs::write(folder.path().join("part1.pum"), later).unwrap();
        assert!(parts.read::<f64>().unwrap_err().to_string().contains("another time"));
        std::fs::remove_file(folder.path().join("part1.pum")).unwrap();
        assert_eq!(parts.read::<f64>().unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn damaged_indices_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        written(folder.path(), &[7, 5], 0, &[3, 4]);
        let index = folder.path().join("x.parts.toml");
        let text = std::fs::read_to_string(&index).unwrap();
        let opened = |text: &str| {
            std::fs::write(&index, text).unwrap();
            Parts::open(&index).map(|_| ())
        };
        opened(&text).unwrap();
        for (from, to) in [
            ("extent = 3", "extent = 2"),
            ("extent = 3", "extent = 18446744073709551615"),
            ("extent = 3", "extent = 9223372036854775807"),
            ("axis = 0", "axis = 2"),
            ("axis = 0", "axis = 1"),
            ("format = 1", "format = 2"),
            ("part0.pum", "../part0.pum"),
            ("part0.pum", ".."),
            ("[[part]]", "[[parts]]"),
        ] {
            assert!(text.contains(from));
            assert!(opened(&text.replacen(from, to, 1)).is_err(), "{from} -> {to}");
        }
        for end in 0..text.trim_end().len() - 1 {
            assert!(opened(&text[..end]).is_err(), "{end} bytes");
        }
        // More values than the parts have.
        opened(&text.replace("[7, 5]", "[7, 5000000000000]")).unwrap();
        assert!(Parts::open(&index).unwrap().read::<f64>().is_err());
    }
}
