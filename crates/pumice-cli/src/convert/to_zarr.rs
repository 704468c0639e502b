//! The same tree as a Zarr store of format 3, in a folder: each variable under the codec `pumice` of the Python package, or
//! under gzip where it stays as it is. Dimension names and attributes are those that xarray expects.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use pumice::{Bound, DType, ErrorKind};
use pumice_hdf5::Wish;
use pumice_hdf5::files::{Dataset, Element, Integer, Object, Value};
use serde_json::{Map, Value as Json, json};

use super::catalog::{Catalog, Kind, chunk_of};
use super::netcdf4::{AXES, ID, RESERVED, dimension_ids, is_scale};
use super::source::{Input, Variable};
use super::variable::{self, Outcome, chunk_starts, copy_corner, extents_within};
use crate::bounds::parts;
use crate::commands::convert::{Record, Work};
use crate::failure::{Failure, Result, io_context};

/// Most axes that the codec takes.
const MAX_RANK: usize = 8;
const GZIP_LEVEL: u32 = 5;

/// Writes the store into an empty folder. The outcomes are those of the compressed variables, in order.
pub(crate) fn write(input: &Input, catalog: &mut Catalog, folder: &Path, work: &Work<'_>) -> Result<Vec<Outcome>> {
    let mut store = Store { folder, metadata: BTreeMap::new(), dimensions: names_by_id(input, catalog)? };
    let mut outcomes = Vec::new();
    let mut left_out = Vec::new();
    for item in &catalog.items {
        let path = item.shown();
        if matches!(item.name.as_str(), ".." | "zarr.json") {
            return Err(Failure::new(ErrorKind::Unsupported, format!("{path} is not a name that Zarr can have")));
        }
        let within = |e: Failure| e.within(&path);
        match &item.kind {
            Kind::Group => store.group(&path, attributes(&input.root.at(&path)?)?)?,
            Kind::SoftLink(_) | Kind::Datatype => left_out.push(format!("{path}: Zarr has nothing of the kind")),
            // Arrays name their dimensions.
            Kind::Dimension => {}
            Kind::Kept => {
                let variable = input.variable(&item.path())?;
                if !store.kept(&path, &variable)? {
                    left_out.push(format!("{path}: neither integers nor floats"));
                }
                work.progress(variable.stored_bytes()?);
            }
            Kind::Compressed(plan) => {
                if plan.chunk_type.extents.len() > MAX_RANK {
                    return Err(Failure::invalid(format!("{path} has more than {MAX_RANK} axes")).hint("keep = true"));
                }
                let variable = input.variable(&item.path())?;
                let write =
                    |start: &[usize], stream: &[u8]| store.chunk(&path, &plan.chunk_type.extents, start, stream);
                let progress = |n| work.progress(n);
                let outcome = variable::compress(&variable, plan, work.threads, &progress, write).map_err(within)?;
                let mut attributes = attributes(&variable.dataset)?;
                let record = Record::new(plan, &outcome);
                attributes.extend(record.texts().into_iter().map(|(name, text)| (name.into(), json!(text))));
                attributes.insert(Record::MAX_ERROR.into(), number(record.max_abs_error));
                let codec = json!([{ "name": "pumice", "configuration": configuration(&plan.wish) }]);
                let fill = number(plan.chunk_type.fill.unwrap_or(0.0));
                let dtype = zarr_float(plan.chunk_type.dtype);
                let chunk = &plan.chunk_type.extents;
                store.array(
                    &path,
                    &Array { dataset: &variable.dataset, dtype, chunk, fill, codecs: codec, attributes },
                )?;
                outcomes.push(outcome);
            }
        }
    }
    store.root(attributes(&input.root)?)?;
    catalog.left_out.extend(left_out);
    Ok(outcomes)
}

/// A store that is being written, and what its arrays and groups say of themselves.
struct Store<'a> {
    folder: &'a Path,
    metadata: BTreeMap<String, Json>,
    /// Names of dimensions by their numbers.
    dimensions: HashMap<i64, String>,
}

/// What the metadata of an array say.
struct Array<'a> {
    dataset: &'a Dataset,
    dtype: &'static str,
    chunk: &'a [usize],
    fill: Json,
    codecs: Json,
    attributes: Map<String, Json>,
}

impl Store<'_> {
    fn document(&mut self, path: &str, document: Json) -> Result<()> {
        self.write(&format!("{path}/zarr.json"), document.to_string().as_bytes())?;
        self.metadata.insert(path.into(), document);
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        let parent = path.parent().unwrap_or(self.folder);
        fs::create_dir_all(parent).map_err(io_context("make", parent))?;
        fs::write(&path, bytes).map_err(io_context("write", &path))
    }

    fn group(&mut self, path: &str, attributes: Map<String, Json>) -> Result<()> {
        self.document(path, json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes }))
    }

    /// The root, which repeats what all others say, so that a reader needs only one document.
    fn root(self, attributes: Map<String, Json>) -> Result<()> {
        let consolidated = json!({ "kind": "inline", "must_understand": false, "metadata": self.metadata });
        let root = json!({
            "zarr_format": 3, "node_type": "group", "attributes": attributes, "consolidated_metadata": consolidated
        });
        self.write("zarr.json", root.to_string().as_bytes())
    }

    fn array(&mut self, path: &str, array: &Array<'_>) -> Result<()> {
        let names = dimension_names(array.dataset, path, &self.dimensions)?;
        let mut attributes = array.attributes.clone();
        // As xarray writes it: a float in base64, since JSON has no NaN.
        match array.dataset.value("_FillValue")? {
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
                "shape": array.dataset.shape(),
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

    fn chunk(&self, path: &str, chunk: &[usize], start: &[usize], bytes: &[u8]) -> Result<()> {
        let ids = start.iter().zip(chunk).map(|(start, n)| format!("/{}", start / n)).collect::<String>();
        self.write(&format!("{path}/c{ids}"), bytes)
    }

    /// Writes an array without Pumice; `false` if Zarr has no such type.
    fn kept(&mut self, path: &str, variable: &Variable<'_>) -> Result<bool> {
        let Some(element) = variable.element()? else { return Ok(false) };
        let (dataset, size) = (&variable.dataset, element.size());
        let dtype = match element {
            Element::Character => return Ok(false),
            Element::Float(dtype) => zarr_float(dtype),
            Element::Integer(Integer { size: 1, is_signed: true }) => "int8",
            Element::Integer(Integer { size: 1, is_signed: false }) => "uint8",
            Element::Integer(Integer { size: 2, is_signed: true }) => "int16",
            Element::Integer(Integer { size: 2, is_signed: false }) => "uint16",
            Element::Integer(Integer { size: 4, is_signed: true }) => "int32",
            Element::Integer(Integer { size: 4, is_signed: false }) => "uint32",
            Element::Integer(Integer { is_signed: true, .. }) => "int64",
            Element::Integer(Integer { is_signed: false, .. }) => "uint64",
        };
        let shape = dataset.shape();
        let chunk = dataset.chunk_shape()?.unwrap_or_else(|| chunk_of(shape));
        for start in chunk_starts(shape, &chunk) {
            let extents = extents_within(shape, &chunk, &start);
            let bytes = variable.read_bytes(element, &start, &extents)?;
            let mut padded = vec![0; chunk.iter().product::<usize>() * size];
            copy_corner(&bytes, &extents, &mut padded, &chunk, &extents, size);
            let mut gzip = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
            gzip.write_all(&padded)?;
            self.chunk(path, &chunk, &start, &gzip.finish()?)?;
        }
        let codecs = json!([
            { "name": "bytes", "configuration": { "endian": "little" } },
            { "name": "gzip", "configuration": { "level": GZIP_LEVEL } },
        ]);
        let fill = if dtype.starts_with("float") { number(dataset.fill()?.unwrap_or(0.0)) } else { json!(0) };
        let attributes = attributes(dataset)?;
        self.array(path, &Array { dataset, dtype, chunk: &chunk, fill, codecs, attributes })?;
        Ok(true)
    }
}

fn zarr_float(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        _ => "float64",
    }
}

/// The configuration of the codec, as the Python package writes it.
fn configuration(wish: &Wish) -> Json {
    let mut options = Map::new();
    let (kind, value) = parts(wish.bound);
    options.insert(kind.into(), value.map_or(json!(true), |value| json!(value)));
    options.insert("preset".into(), json!(wish.preset.name()));
    if let (Some((lo, hi)), Bound::Rel(_)) = (wish.range, wish.bound) {
        options.insert("value_range".into(), json!([lo, hi]));
    }
    if let Some(fill) = wish.fill.filter(|fill| fill.is_finite()) {
        options.insert("fill_value".into(), json!(fill));
    }
    Json::Object(options)
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

fn attributes(object: &Object) -> Result<Map<String, Json>> {
    let mut found = Map::new();
    for (name, value, is_single) in object.values()? {
        let values: Vec<Json> = match value {
            // Zarr has dimensions and fill values otherwise.
            _ if name == "_FillValue" || RESERVED.contains(&name.as_str()) => continue,
            Value::Texts(texts) => texts.into_iter().map(Json::from).collect(),
            Value::Integers(numbers) => numbers.into_iter().map(Json::from).collect(),
            Value::Floats(numbers) => numbers.into_iter().map(number).collect(),
            _ => continue,
        };
        found.insert(
            name,
            if is_single { values.into_iter().next().unwrap_or(Json::Null) } else { Json::Array(values) },
        );
    }
    Ok(found)
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

/// Names of the axes: those of their dimension scales. Scales have none; theirs are said by number, or their own.
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
