//! Writes the tree as a Zarr store of format 3 in a folder: compressed variables with the codec `pumice` of the Python
//! package, others with gzip. Dimension names and attributes are those that xarray expects.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use pumice::{DType, ErrorBound, ErrorKind, Real, Stable, with_dtype};
use pumice_hdf5::files::{Dataset, ElementType, Integer, Object, Value};
use serde_json::{Map, Value as Json, json};

use super::catalog::{Catalog, Kind, Plan, chunk_of};
use super::netcdf4::{AXES, ID, RESERVED, dimension_ids, is_scale};
use super::record::{self, Checksum, HISTORY, Record};
use super::source::{Input, Variable};
use super::variable::{self, Outcome, chunk_starts, copy_corner, extents_within, filled};
use crate::bounds::parts;
use crate::commands::convert::Work;
use crate::failure::{Failure, Result, io_context};

/// The largest rank of the codec.
const MAX_RANK: usize = 8;
const GZIP_LEVEL: u32 = 5;

/// Writes the store into an empty folder. The outcomes are those of the compressed variables, in order. Removes from
/// the catalog what Zarr cannot represent.
pub(crate) fn write(input: &Input, catalog: &mut Catalog, folder: &Path, work: &Work<'_>) -> Result<Vec<Outcome>> {
    let dimensions = names_by_id(input, catalog)?;
    let mut store = Store { folder, metadata: BTreeMap::new(), dimensions, left_out: Vec::new() };
    let mut outcomes = Vec::new();
    let mut items = Vec::new();
    for item in catalog.items.drain(..) {
        let path = item.shown();
        // The name that is written: without a prefix it may lead out of the store, or be that of its document.
        if matches!(path.rsplit('/').next(), Some("" | "." | ".." | "zarr.json")) {
            return Err(Failure::new(ErrorKind::Unsupported, format!("{} is not a valid name in Zarr", item.path())));
        }
        let is_written = match &item.kind {
            Kind::Group => {
                let attributes = store.attributes(&input.root.at(&item.path())?, &path)?;
                store.group(&path, attributes)?;
                true
            }
            // Arrays name their dimensions.
            Kind::Dimension => true,
            Kind::SoftLink(_) | Kind::Datatype => false,
            Kind::Kept => {
                let variable = input.variable(&item.path())?;
                work.progress(variable.stored_bytes()?);
                store.kept(&path, &variable)?
            }
            Kind::Compressed(plan) => {
                let variable = input.variable(&item.path())?;
                outcomes.push(store.compressed(&path, &variable, plan, work).map_err(|e| e.within(&path))?);
                true
            }
        };
        if is_written {
            items.push(item);
        } else {
            store.left_out.push(format!("{path}: Zarr has no equivalent"));
        }
    }
    catalog.items = items;
    let mut attributes = store.attributes(&input.root, "")?;
    if input.is_netcdf()? {
        attributes.insert(HISTORY.into(), json!(record::history(&work.history, input.history()?.as_deref())));
    }
    catalog.left_out.append(&mut store.left_out);
    store.root(attributes)?;
    Ok(outcomes)
}

/// A store that is being written, and the metadata of its arrays and groups.
struct Store<'a> {
    folder: &'a Path,
    metadata: BTreeMap<String, Json>,
    /// Names of dimensions by their numbers.
    dimensions: HashMap<i64, String>,
    left_out: Vec<String>,
}

/// The metadata of an array, whose rank is that of its chunks.
struct Array<'a> {
    variable: &'a Variable<'a>,
    dtype: &'static str,
    chunk: &'a [usize],
    fill: Json,
    codecs: Json,
    attributes: Map<String, Json>,
}

impl Store<'_> {
    fn document(&mut self, path: &str, document: Json) -> Result<()> {
        if self.metadata.contains_key(path) {
            return Err(Failure::new(ErrorKind::Unsupported, format!("{path} would be the name of two members")));
        }
        self.write(&format!("{path}/zarr.json"), document.to_string().as_bytes())?;
        self.metadata.insert(path.into(), document);
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        let parent = path.parent().unwrap_or(self.folder);
        fs::create_dir_all(parent).map_err(io_context("create", parent))?;
        fs::write(&path, bytes).map_err(io_context("write", &path))
    }

    fn group(&mut self, path: &str, attributes: Map<String, Json>) -> Result<()> {
        self.document(path, json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes }))
    }

    /// Writes the root with consolidated metadata, so that a reader needs only one document.
    fn root(self, attributes: Map<String, Json>) -> Result<()> {
        let consolidated = json!({ "kind": "inline", "must_understand": false, "metadata": self.metadata });
        let root = json!({
            "zarr_format": 3, "node_type": "group", "attributes": attributes, "consolidated_metadata": consolidated
        });
        self.write("zarr.json", root.to_string().as_bytes())
    }

    fn array(&mut self, path: &str, array: &Array<'_>) -> Result<()> {
        let (rank, dataset) = (array.chunk.len(), &array.variable.dataset);
        let mut names = dimension_names(dataset, path, &self.dimensions)?;
        names.truncate(rank);
        let mut attributes = array.attributes.clone();
        // As xarray writes it: a float in base64, since JSON has no NaN.
        match dataset.value("_FillValue")? {
            Some(Value::Floats(fill)) if fill.len() == 1 => {
                attributes.insert("_FillValue".into(), json!(BASE64_STANDARD.encode(fill[0].to_le_bytes())));
            }
            Some(Value::Integers(fill)) if fill.len() == 1 => {
                attributes.insert("_FillValue".into(), json!(fill[0]));
            }
            _ => {}
        }
        self.document(
            path,
            json!({
                "zarr_format": 3,
                "node_type": "array",
                "shape": array.variable.shape()[..rank],
                "data_type": array.dtype,
                "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": array.chunk } },
                "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
                "fill_value": array.fill,
                "codecs": array.codecs,
                "dimension_names": names,
                "attributes": attributes,
            }),
        )
    }

    /// The attributes of the object at `path`, as JSON.
    fn attributes(&mut self, object: &Object, path: &str) -> Result<Map<String, Json>> {
        let mut found = Map::new();
        for (name, value, is_single) in object.values()? {
            let values: Vec<Json> = match value {
                // Zarr stores dimensions and fill values elsewhere.
                _ if name == "_FillValue" || RESERVED.contains(&name.as_str()) => continue,
                // NetCDF stores an empty string as an attribute without values.
                Value::Texts(texts) if texts.is_empty() => vec!["".into()],
                Value::Texts(texts) => texts.into_iter().map(Json::from).collect(),
                Value::Integers(numbers) => numbers.into_iter().map(Json::from).collect(),
                Value::Floats(numbers) => numbers.into_iter().map(number).collect(),
                _ => {
                    let owner = if path.is_empty() { String::new() } else { format!(" of {path}") };
                    self.left_out.push(format!("attribute {name}{owner}"));
                    continue;
                }
            };
            let is_one = is_single || values == [""];
            let first = values.first().filter(|_| is_one).cloned();
            found.insert(name, first.unwrap_or(Json::Array(values)));
        }
        Ok(found)
    }

    fn chunk(&self, path: &str, chunk: &[usize], start: &[usize], bytes: &[u8]) -> Result<()> {
        let ids = start.iter().zip(chunk).map(|(start, n)| format!("/{}", start / n)).collect::<String>();
        self.write(&format!("{path}/c{ids}"), bytes)
    }

    fn compressed(&mut self, path: &str, variable: &Variable<'_>, plan: &Plan, work: &Work<'_>) -> Result<Outcome> {
        let (dataset, chunk) = (&variable.dataset, &plan.chunk_type.extents);
        if chunk.len() > MAX_RANK {
            return Err(Failure::invalid(format!("more than {MAX_RANK} axes")).hint("keep = true"));
        }
        let write = |start: &[usize], stream: &[u8]| self.chunk(path, chunk, start, stream);
        let outcome = variable::compress(variable, plan, work.threads, &|n| work.progress(n), write)?;
        let mut attributes = self.attributes(dataset, path)?;
        if let Some(record) = Record::after(plan, &outcome, Record::of(dataset)?.as_ref(), work.date) {
            set_record(&mut attributes, &record);
        }
        let codecs = json!([{ "name": "pumice", "configuration": configuration(plan) }]);
        let fill = number(plan.chunk_type.fill.unwrap_or(0.0));
        self.array(
            path,
            &Array { variable, dtype: zarr_float(plan.chunk_type.dtype), chunk, fill, codecs, attributes },
        )?;
        Ok(outcome)
    }

    /// Writes strings in one chunk; `false` if the values are not strings. Joins NetCDF characters along the last axis.
    fn texts(&mut self, path: &str, variable: &Variable<'_>) -> Result<bool> {
        let shape = variable.shape();
        let (texts, shape) = match (variable.element()?, shape.split_last()) {
            (Some(ElementType::Character), Some((length, outer))) => {
                let bytes = variable.read_bytes(ElementType::Character, &vec![0; shape.len()], shape)?;
                let texts = bytes.chunks_exact((*length).max(1)).map(|text| {
                    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    String::from_utf8_lossy(&text[..end]).into_owned()
                });
                (texts.collect(), outer)
            }
            _ => match variable.texts()? {
                Some(texts) => (texts, shape),
                None => return Ok(false),
            },
        };
        // The layout of `vlen-utf8`: the number of strings, then the length and the bytes of each.
        let mut bytes = (texts.len() as u32).to_le_bytes().to_vec();
        for text in &texts {
            bytes.extend((text.len() as u32).to_le_bytes().iter().chain(text.as_bytes()));
        }
        let chunk: Vec<usize> = shape.iter().map(|&n| n.max(1)).collect();
        if !texts.is_empty() {
            self.chunk(path, &chunk, &vec![0; chunk.len()], &gzipped(&bytes)?)?;
        }
        let codecs = json!([{ "name": "vlen-utf8" }, gzip()]);
        let attributes = self.attributes(&variable.dataset, path)?;
        self.array(path, &Array { variable, dtype: "string", chunk: &chunk, fill: json!(""), codecs, attributes })?;
        Ok(true)
    }

    /// Writes an array without Pumice; `false` if Zarr has no such type.
    fn kept(&mut self, path: &str, variable: &Variable<'_>) -> Result<bool> {
        let Some(element) = variable.element()? else { return self.texts(path, variable) };
        let (dataset, size) = (&variable.dataset, element.size());
        let dtype = match element {
            ElementType::Character => return self.texts(path, variable),
            ElementType::Float(dtype) => zarr_float(dtype),
            ElementType::Integer(Integer { size: 1, is_signed: true }) => "int8",
            ElementType::Integer(Integer { size: 1, is_signed: false }) => "uint8",
            ElementType::Integer(Integer { size: 2, is_signed: true }) => "int16",
            ElementType::Integer(Integer { size: 2, is_signed: false }) => "uint16",
            ElementType::Integer(Integer { size: 4, is_signed: true }) => "int32",
            ElementType::Integer(Integer { size: 4, is_signed: false }) => "uint32",
            ElementType::Integer(Integer { is_signed: true, .. }) => "int64",
            ElementType::Integer(Integer { is_signed: false, .. }) => "uint64",
        };
        let shape = variable.shape();
        let chunk = dataset.chunk_shape()?.unwrap_or_else(|| chunk_of(shape));
        let (mut stored, mut whole) = (Checksum::default(), Checksum::default());
        for start in chunk_starts(shape, &chunk) {
            let extents = extents_within(shape, &chunk, &start);
            let bytes = variable.read_bytes(element, &start, &extents)?;
            if let ElementType::Float(dtype) = element {
                with_dtype!(dtype, T => {
                    let mut values = filled(T::default(), extents.iter().product())?;
                    T::copy_from_le_bytes(&bytes, &mut values);
                    stored.add_box(dataset.shape(), &start, &extents, &values);
                    whole.add_box(shape, &start, &extents, &values);
                });
            }
            let mut padded = filled(0, chunk.iter().product::<usize>() * size)?;
            copy_corner(&bytes, &extents, &mut padded, &chunk, &extents, size);
            self.chunk(path, &chunk, &start, &gzipped(&padded)?)?;
        }
        let codecs = json!([{ "name": "bytes", "configuration": { "endian": "little" } }, gzip()]);
        let fill = if dtype.starts_with("float") { number(dataset.fill()?.unwrap_or(0.0)) } else { json!(0) };
        let mut attributes = self.attributes(dataset, path)?;
        if let Some(record) = Record::of(dataset)?.and_then(|record| record.extended(stored, whole)) {
            set_record(&mut attributes, &record);
        }
        self.array(path, &Array { variable, dtype, chunk: &chunk, fill, codecs, attributes })?;
        Ok(true)
    }
}

fn set_record(attributes: &mut Map<String, Json>, record: &Record) {
    attributes.extend(record.texts().map(|(name, text)| (name.into(), json!(text))));
    attributes.insert(Record::MAX_ERROR.into(), number(record.max_abs_error));
    for (name, list) in record.lists() {
        match list {
            Some(list) => _ = attributes.insert(name.into(), list.into_iter().map(number).collect()),
            None => _ = attributes.remove(name),
        }
    }
}

fn gzip() -> Json {
    json!({ "name": "gzip", "configuration": { "level": GZIP_LEVEL } })
}

fn gzipped(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

fn zarr_float(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        _ => "float64",
    }
}

/// The configuration of the codec, as the Python package writes it.
fn configuration(plan: &Plan) -> Json {
    let (mut members, options) = (Map::new(), &plan.options);
    for (kind, value) in [options.bound].into_iter().chain(plan.pointwise).map(parts) {
        members.insert(kind.into(), value.map_or(json!(true), |value| json!(value)));
    }
    members.insert("preset".into(), json!(options.preset.name()));
    if options.stable != Stable::Auto {
        members.insert("stable".into(), json!(options.stable == Stable::On));
    }
    if let (Some((lo, hi)), ErrorBound::Rel(_)) = (options.range, options.bound) {
        members.insert("value_range".into(), json!([lo, hi]));
    }
    let fills: Vec<f64> = options.fills.iter().copied().filter(|fill| fill.is_finite()).collect();
    match fills[..] {
        [] => {}
        [fill] => _ = members.insert("fill_value".into(), json!(fill)),
        _ => _ = members.insert("fill_value".into(), json!(fills)),
    }
    Json::Object(members)
}

/// A number as Zarr writes it.
fn number(value: f64) -> Json {
    match value {
        v if v.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        v => json!(v),
    }
}

fn names_by_id(input: &Input, catalog: &Catalog) -> Result<HashMap<i64, String>> {
    let mut names = HashMap::new();
    for item in &catalog.items {
        if matches!(item.kind, Kind::Dimension | Kind::Kept | Kind::Compressed(_)) {
            let ids = dimension_ids(&input.root.dataset(&item.path())?, ID)?;
            names.extend(ids.into_iter().map(|id| (id, item.name.clone())));
        }
    }
    Ok(names)
}

/// Names of the axes: those of their dimension scales. A scale itself names its axes by number, or is its own axis.
fn dimension_names(dataset: &Dataset, path: &str, by_id: &HashMap<i64, String>) -> Result<Vec<String>> {
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
    let (paths, ids, is_scale) = (dataset.dimension_paths()?, dimension_ids(dataset, AXES)?, is_scale(dataset)?);
    let name = |(axis, scale): (usize, Option<String>)| match (scale, ids.get(axis).and_then(|id| by_id.get(id))) {
        (Some(scale), _) => last(&scale),
        (None, Some(name)) => name.clone(),
        (None, None) if is_scale && dataset.shape().len() == 1 => last(path),
        (None, None) => format!("{}_dim_{axis}", last(path)),
    };
    Ok(paths.into_iter().enumerate().map(name).collect())
}
