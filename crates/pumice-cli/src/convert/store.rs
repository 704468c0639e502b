//! Reads the float arrays of a Zarr store of format 3 in a folder, with the codecs that `pumice convert` writes: `pumice`,
//! or `bytes` and `gzip`. Documents and chunks are not trusted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use pumice::{DType, DecodeOptions, Element, ErrorKind};
use pumice_hdf5::files::Value;
use serde_json::{Map, Value as Json};

use super::packing::Packing;
use super::record::Record;
use super::variable::{chunk_starts, copy_corner, extents_within, filled};
use crate::failure::{Failure, Result, io_context};

pub(crate) const DOCUMENT: &str = "zarr.json";
/// Limit on the decoded size of a chunk.
const MAX_CHUNK_BYTES: u64 = 16 << 30;
const MAX_DEPTH: usize = 32;
const MAX_DOCUMENT_BYTES: u64 = 64 << 20;
/// What the bytes of a chunk may take beyond its values: a header, and blocks that do not compress.
const MAX_OVERHEAD: u64 = 1 << 16;
/// How many bytes of missing chunks are read as fill values, and how many more for each byte that is stored: a small document
/// can claim any number of chunks. Looking for a chunk costs as much as `MISSING_BYTES` of it.
const MAX_MISSING_BYTES: u64 = 16 << 30;
const MISSING_PER_STORED: u64 = 1000;
const MISSING_BYTES: u64 = 1 << 12;

/// An array of a store.
#[derive(Debug)]
pub(crate) struct Array {
    /// Its folder, and that name within the store.
    folder: PathBuf,
    pub(crate) path: String,
    document: Map<String, Json>,
}

/// What is needed to read the chunks of an array.
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    chunk: Vec<usize>,
    fill: f64,
    is_pumice: bool,
    is_gzipped: bool,
    separator: &'static str,
}

/// The arrays of a store, in the order of their names.
pub(crate) fn arrays(store: &Path) -> Result<Vec<Array>> {
    let mut found = Vec::new();
    list(store, String::new(), 0, &mut found)?;
    Ok(found)
}

fn list(folder: &Path, path: String, depth: usize, found: &mut Vec<Array>) -> Result<()> {
    let name = folder.join(DOCUMENT);
    let Some(text) = read(&name, MAX_DOCUMENT_BYTES)? else { return Ok(()) };
    let document: Map<String, Json> = serde_json::from_slice(&text)
        .map_err(|e| Failure::new(ErrorKind::Corrupt, format!("{}: {e}", name.display())))?;
    if document.get("node_type").and_then(Json::as_str) == Some("array") {
        found.push(Array { folder: folder.into(), path, document });
        return Ok(());
    }
    let entries = fs::read_dir(folder).map_err(io_context("list", folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_context("list", folder))?;
        if depth < MAX_DEPTH && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort();
    let prefix = if path.is_empty() { path } else { path + "/" };
    names.into_iter().try_for_each(|name| list(&folder.join(&name), format!("{prefix}{name}"), depth + 1, found))
}

impl Array {
    /// An attribute of text or numbers, if there is one of this name.
    fn value(&self, name: &str) -> Option<Value> {
        let value = self.document.get("attributes")?.get(name)?;
        match value {
            Json::String(text) => Some(Value::Texts(vec![text.clone()])),
            Json::Array(list) => list.iter().map(Json::as_f64).collect::<Option<_>>().map(Value::Floats),
            value => value.as_f64().map(|number| Value::Floats(vec![number])),
        }
    }

    /// What a conversion recorded, if one did.
    pub(crate) fn record(&self) -> Result<Option<Record>> {
        Record::of_values(|name| Ok(self.value(name)))
    }

    pub(crate) fn packing(&self) -> Result<Option<Packing>> {
        Packing::of_values(|name| Ok(self.value(name)))
    }

    /// How its values are stored; an error says what is unknown.
    pub(crate) fn layout(&self) -> Result<Layout> {
        let unknown = |what: &str| {
            let message = format!("{what} that this command does not read");
            Failure::new(ErrorKind::Unsupported, message)
        };
        let member = |name: &str| self.document.get(name).unwrap_or(&Json::Null);
        let dtype = match member("data_type").as_str() {
            Some("float32") => DType::F32,
            Some("float64") => DType::F64,
            _ => return Err(unknown("a type of values")),
        };
        let (grid, keys) = (member("chunk_grid"), member("chunk_key_encoding"));
        let (shape, chunk) = (extents(member("shape")), extents(&grid["configuration"]["chunk_shape"]));
        let (Some(shape), Some(chunk), "regular") = (shape, chunk, grid["name"].as_str().unwrap_or_default()) else {
            return Err(unknown("a shape or chunks"));
        };
        let n_bytes = |extents: &[usize]| extents.iter().try_fold(dtype.size(), |n, extent| n.checked_mul(*extent));
        let is_possible = n_bytes(&chunk).is_some_and(|n| n as u64 <= MAX_CHUNK_BYTES) && n_bytes(&shape).is_some();
        if shape.len() != chunk.len() || chunk.contains(&0) || !is_possible {
            return Err(unknown("a shape or chunks"));
        }
        let separator = match (keys["name"].as_str(), keys["configuration"]["separator"].as_str()) {
            (Some("default"), Some("/") | None) => "/",
            (Some("default"), Some(".")) => ".",
            _ => return Err(unknown("names of chunks")),
        };
        let codecs = member("codecs").as_array().map_or(&[][..], Vec::as_slice);
        // A codec without a configuration may be its name only.
        let names = codecs.iter().map(|codec| codec.as_str().or(codec["name"].as_str()).unwrap_or("?"));
        let names: Vec<&str> = names.collect();
        let is_little = || codecs[0]["configuration"]["endian"].as_str() != Some("big");
        let (is_pumice, is_gzipped) = match names.as_slice() {
            ["pumice"] => (true, false),
            ["bytes"] if is_little() => (false, false),
            ["bytes", "gzip"] if is_little() => (false, true),
            _ => return Err(unknown(&format!("codecs ({})", names.join(", ")))),
        };
        let fill = match member("fill_value") {
            Json::Number(number) => number.as_f64(),
            Json::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        let fill = fill.ok_or_else(|| unknown("a fill value"))?;
        Ok(Layout { dtype, shape, chunk, fill, is_pumice, is_gzipped, separator })
    }

    /// Calls `use_box(start, extents, values)` for each chunk.
    pub(crate) fn for_each_box<T: Element>(
        &self,
        layout: &Layout,
        mut use_box: impl FnMut(&[usize], &[usize], &[T]) -> Result<()>,
    ) -> Result<()> {
        let chunk_bytes = layout.n_values() as u64 * size_of::<T>() as u64;
        let mut missing_left = MAX_MISSING_BYTES;
        for start in chunk_starts(&layout.shape, &layout.chunk) {
            let extents = extents_within(&layout.shape, &layout.chunk, &start);
            let n_values: usize = extents.iter().product();
            let name = self.chunk_file(layout, &start);
            let values = match read(&name, chunk_bytes + chunk_bytes / 8 + MAX_OVERHEAD)? {
                Some(stored) => {
                    missing_left = missing_left.saturating_add(MISSING_PER_STORED.saturating_mul(stored.len() as u64));
                    layout.decode::<T>(&stored, &extents).map_err(|e| e.at(&name))?
                }
                // Chunks of nothing but the fill value need not be stored.
                None => {
                    let cost = (n_values as u64 * size_of::<T>() as u64).max(MISSING_BYTES);
                    missing_left = missing_left.checked_sub(cost).ok_or_else(|| too_many_missing(layout))?;
                    filled(T::from_f64(layout.fill), n_values)?
                }
            };
            use_box(&start, &extents, &values)?;
        }
        Ok(())
    }

    fn chunk_file(&self, layout: &Layout, start: &[usize]) -> PathBuf {
        let ids = start.iter().zip(&layout.chunk).map(|(start, n)| format!("{}{}", layout.separator, start / n));
        self.folder.join(format!("c{}", ids.collect::<String>()))
    }
}

impl Layout {
    /// Number of values in a chunk.
    fn n_values(&self) -> usize {
        self.chunk.iter().product()
    }

    /// The values of a stored chunk that lie within the array.
    fn decode<T: Element>(&self, stored: &[u8], extents: &[usize]) -> Result<Vec<T>> {
        let n_bytes = self.n_values() * size_of::<T>();
        let corrupt = |what: &str| Failure::new(ErrorKind::Corrupt, what);
        let mut bytes = Vec::new();
        let bytes = if self.is_pumice {
            let info = pumice::inspect(stored)?;
            if (info.dtype, info.shape.as_slice()) != (T::DTYPE, self.chunk.as_slice()) {
                return Err(corrupt("a stream of another type or shape"));
            }
            let values = pumice::Reader::new(stored, DecodeOptions::new())?.read::<T>()?.data;
            if extents == self.chunk {
                return Ok(values);
            }
            T::extend_le_bytes(&values, &mut bytes);
            &bytes
        } else if self.is_gzipped {
            MultiGzDecoder::new(stored).take(n_bytes as u64 + 1).read_to_end(&mut bytes)?;
            &bytes
        } else {
            stored
        };
        if bytes.len() != n_bytes {
            return Err(corrupt("a chunk of another size"));
        }
        let mut values = filled(T::default(), extents.iter().product())?;
        let mut inside = filled(0, values.len() * size_of::<T>())?;
        copy_corner(bytes, &self.chunk, &mut inside, extents, extents, size_of::<T>());
        T::copy_from_le_bytes(&inside, &mut values);
        Ok(values)
    }
}

fn too_many_missing(layout: &Layout) -> Failure {
    let message = format!("so many chunks are missing that an array of {:?} is mostly not stored", layout.shape);
    Failure::new(ErrorKind::LimitExceeded, message)
}

/// The bytes of a file; `None` if there is none. A pipe would be read without end, and a file of more than `limit` bytes is
/// not what it seems.
fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    let context = io_context("read", path);
    let size = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(context(e)),
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => return Err(Failure::new(ErrorKind::Corrupt, format!("{} is not a file", path.display()))),
    };
    if size > limit {
        let message = format!("{} has {size} bytes, more than it can need", path.display());
        return Err(Failure::new(ErrorKind::Corrupt, message));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(context)?;
    Ok(Some(bytes))
}

fn extents(list: &Json) -> Option<Vec<usize>> {
    list.as_array()?.iter().map(|n| n.as_u64().and_then(|n| usize::try_from(n).ok())).collect()
}
