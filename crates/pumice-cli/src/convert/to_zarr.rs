//! The same tree as a Zarr store of format 3, in a folder: each variable under the codec `pumice` of the Python package, or
//! under gzip where it stays as it is. Dimension names and attributes are those that xarray expects.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use pumice::{Bound, DType, Real, with_dtype};
use pumice_hdf5::Wish;
use pumice_hdf5::files::{Dataset, Group, Object, Value};
use serde_json::{Map, Value as Json, json};

use super::catalog::{Catalog, Kind, chunk_of};
use super::variable::{self, Outcome, chunk_starts, copy_corner, extents_within};
use crate::bounds::parts;
use crate::commands::convert::{Record, Work};
use crate::failure::{Failure, Result, io_context};

/// Most axes that the codec takes.
const MAX_RANK: usize = 8;
const GZIP_LEVEL: u32 = 5;
/// Attributes by which NetCDF-4 keeps dimensions, which Zarr has otherwise.
const HIDDEN: [&str; 10] = [
    "CLASS",
    "NAME",
    "REFERENCE_LIST",
    "DIMENSION_LIST",
    "DIMENSION_LABELS",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
    "_nc3_strict",
    "_FillValue",
];
/// How NetCDF-4 names a dimension that has no variable.
const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable";

/// Writes the store into an empty folder. The outcomes are those of the compressed variables, in order.
pub(crate) fn write(source: &Group, catalog: &mut Catalog, folder: &Path, work: &Work<'_>) -> Result<Vec<Outcome>> {
    let mut store = Store { folder, metadata: BTreeMap::new() };
    let mut outcomes = Vec::new();
    let mut left_out = Vec::new();
    for item in &catalog.items {
        let path = item.path();
        let within = |e: Failure| e.within(&path);
        match &item.kind {
            Kind::Group => store.group(&path, attributes(&source.at(&path)?)?)?,
            Kind::SoftLink(_) | Kind::Datatype => left_out.push(format!("{path}: Zarr has nothing of the kind")),
            Kind::Kept => {
                let dataset = source.dataset_with_cache(&path)?;
                if is_bare_dimension(&dataset)? {
                    continue;
                }
                if !store.kept(&path, &dataset)? {
                    left_out.push(format!("{path}: neither integers nor floats"));
                }
                work.progress(dataset.storage_bytes()?);
            }
            Kind::Compressed(plan) => {
                if plan.chunk_type.extents.len() > MAX_RANK {
                    return Err(Failure::invalid(format!("{path} has more than {MAX_RANK} axes")).hint("keep = true"));
                }
                let dataset = source.dataset_with_cache(&path)?;
                let write =
                    |start: &[usize], stream: &[u8]| store.chunk(&path, &plan.chunk_type.extents, start, stream);
                let progress = |n| work.progress(n);
                let outcome = variable::compress(&dataset, plan, work.threads, &progress, write).map_err(within)?;
                let mut attributes = attributes(&dataset)?;
                let record = Record::new(plan, &outcome);
                attributes.extend(record.texts().into_iter().map(|(name, text)| (name.into(), json!(text))));
                attributes.insert(Record::MAX_ERROR.into(), number(record.max_abs_error));
                let codec = json!([{ "name": "pumice", "configuration": configuration(&plan.wish) }]);
                let fill = number(plan.chunk_type.fill.unwrap_or(0.0));
                let dtype = zarr_float(plan.chunk_type.dtype);
                let chunk = &plan.chunk_type.extents;
                store.array(&path, &Array { dataset: &dataset, dtype, chunk, fill, codecs: codec, attributes })?;
                outcomes.push(outcome);
            }
        }
    }
    store.root(attributes(source)?)?;
    catalog.left_out.extend(left_out);
    Ok(outcomes)
}

/// A store that is being written, and what its arrays and groups say of themselves.
struct Store<'a> {
    folder: &'a Path,
    metadata: BTreeMap<String, Json>,
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
        let names = dimension_names(array.dataset, path)?;
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
    fn kept(&mut self, path: &str, dataset: &Dataset) -> Result<bool> {
        let (dtype, size) = match (dataset.float_type(), dataset.integer_type()?) {
            (Some((dtype, _)), _) => (zarr_float(dtype), dtype.size()),
            (None, Some(kind)) => {
                let name = match (kind.size, kind.is_signed) {
                    (1, true) => "int8",
                    (1, false) => "uint8",
                    (2, true) => "int16",
                    (2, false) => "uint16",
                    (4, true) => "int32",
                    (4, false) => "uint32",
                    (_, true) => "int64",
                    (_, false) => "uint64",
                };
                (name, kind.size)
            }
            (None, None) => return Ok(false),
        };
        let shape = dataset.shape();
        let chunk = dataset.chunk_shape()?.unwrap_or_else(|| chunk_of(shape));
        for start in chunk_starts(shape, &chunk) {
            let extents = extents_within(shape, &chunk, &start);
            let bytes = read(dataset, &start, &extents)?;
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

/// The values of a box as little-endian bytes.
fn read(dataset: &Dataset, start: &[usize], extents: &[usize]) -> Result<Vec<u8>> {
    if let Some(kind) = dataset.integer_type()? {
        return Ok(dataset.read_integers(kind, start, extents)?);
    }
    let dtype = dataset.float_type().map_or(DType::F64, |(dtype, _)| dtype);
    with_dtype!(dtype, T => {
        let mut values = vec![T::default(); extents.iter().product()];
        dataset.read_box(start, extents, &mut values)?;
        let mut bytes = Vec::new();
        T::extend_le_bytes(&values, &mut bytes);
        Ok(bytes)
    })
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
            _ if HIDDEN.contains(&name.as_str()) => continue,
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

fn is_bare_dimension(dataset: &Dataset) -> Result<bool> {
    let name = dataset.value("NAME")?;
    Ok(matches!(name, Some(Value::Texts(texts)) if texts.first().is_some_and(|text| text.starts_with(NO_VARIABLE))))
}

/// Names of the axes: those of their dimension scales, its own for a scale.
fn dimension_names(dataset: &Dataset, path: &str) -> Result<Vec<String>> {
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_string();
    let paths = dataset.dimension_paths()?;
    let is_scale = dataset.value("CLASS")? == Some(Value::Texts(vec!["DIMENSION_SCALE".into()]));
    let name = |(axis, scale): (usize, Option<String>)| match scale {
        Some(scale) => last(&scale),
        None if is_scale && dataset.shape().len() == 1 => last(path),
        None => format!("{}_dim_{axis}", last(path)),
    };
    Ok(paths.into_iter().enumerate().map(name).collect())
}
