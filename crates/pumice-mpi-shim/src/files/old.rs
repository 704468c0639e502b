//! What a file had before the program opened it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pumice::{DType, DecodeOptions, Info, Reader};
use pumice_mpi::Value;

use super::{Failure, Result};
use crate::boxes::Run;
use crate::memory::{bytes_of, zeros};

/// The attribute that holds the bytes in front of the array, as hexadecimal digits.
pub(super) const HEADER: &str = "mpi_shim_header";

/// A file that has bytes.
#[derive(Debug)]
pub(super) struct Old {
    pub(super) path: PathBuf,
    pub(super) is_pumice: bool,
    /// Bytes of the file, or those that it stands for.
    pub(super) n_bytes: u64,
}

impl Old {
    /// `None`: there is no file, or an empty one. An error: not a file, or not whole.
    pub(super) fn look(path: &Path) -> Result<Option<Self>> {
        let is_pumice = match is_pumice(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let metadata = std::fs::metadata(path)?;
        let mut n_bytes = metadata.len();
        if is_pumice {
            let reader = Reader::open(path, DecodeOptions::new().threads(1))?;
            n_bytes = header(reader.info())?.len() as u64 + reader.info().raw_bytes;
        }
        Ok((metadata.len() > 0).then(|| Self { path: path.into(), is_pumice, n_bytes }))
    }

    /// Copies these runs of bytes to another file: those of values, if it holds a compressed array.
    pub(super) fn copy(&self, runs: &[Run], to: &File) -> Result<()> {
        if !self.is_pumice {
            let from = File::open(&self.path)?;
            let mut buffer = zeros(SLAB.min(self.n_bytes as usize))?;
            for run in runs {
                for start in (run.start..run.end()).step_by(SLAB) {
                    let part = &mut buffer[..(run.end() - start).min(SLAB as u64) as usize];
                    from.read_exact_at(part, start)?;
                    to.write_all_at(part, start)?;
                }
            }
            return Ok(());
        }
        let reader = Reader::open(&self.path, DecodeOptions::new())?;
        let header = header(reader.info())?;
        put(&header, 0, runs, to)?;
        match reader.info().dtype {
            DType::F32 => copy_values::<f32>(&reader, header.len() as u64, runs, to),
            DType::F64 => copy_values::<f64>(&reader, header.len() as u64, runs, to),
            other => Err(Failure::unsupported(format!("it has values of the type {other}"))),
        }
    }
}

/// Bytes that are in memory at a time.
const SLAB: usize = 16 << 20;

fn copy_values<T: Value>(reader: &Reader<File>, start: u64, runs: &[Run], to: &File) -> Result<()> {
    let shape = &reader.info().shape;
    let Some((n_rows, rest)) = shape.split_first() else {
        return Err(Failure::unsupported("it has no axes"));
    };
    let row: usize = rest.iter().product();
    let step = (SLAB / (row * size_of::<T>()).max(1)).max(1);
    for first in (0..*n_rows).step_by(step) {
        let rows = first..(first + step).min(*n_rows);
        let at = start + (first * row * size_of::<T>()) as u64;
        let region: Vec<Range<usize>> = std::iter::once(rows.clone()).chain(rest.iter().map(|n| 0..*n)).collect();
        let mut values = zeros::<T>(rows.len() * row)?;
        reader.read_region_into(&region, &mut values)?;
        put(bytes_of(&values), at, runs, to)?;
    }
    Ok(())
}

/// Writes those of the bytes from `start` that are within runs.
fn put(bytes: &[u8], start: u64, runs: &[Run], to: &File) -> Result<()> {
    for run in runs {
        let (from, end) = (run.start.max(start), run.end().min(start + bytes.len() as u64));
        if from < end {
            to.write_all_at(&bytes[(from - start) as usize..(end - start) as usize], from)?;
        }
    }
    Ok(())
}

/// The bytes in front of an array, which an attribute holds.
pub(super) fn header(info: &Info) -> Result<Vec<u8>> {
    let Some((_, text)) = info.attributes.iter().find(|(key, _)| key == HEADER) else { return Ok(Vec::new()) };
    let digit = |i: usize| text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    bytes.ok_or_else(|| Failure::new(mpi_sys::MPI_ERR_IO, format!("the attribute {HEADER} is not hexadecimal")))
}

/// Whether a file starts as Pumice files do (docs/format.md, section 2).
fn is_pumice(path: &Path) -> std::io::Result<bool> {
    let mut magic = Vec::new();
    File::open(path)?.take(4).read_to_end(&mut magic)?;
    Ok(magic == *b"PUM\x1a")
}
