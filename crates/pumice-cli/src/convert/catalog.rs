//! Lists every member of the input, in order, and decides what to do with it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use pumice::{DType, ErrorBound};
use pumice_hdf5::files::{Dataset, Group, Link, Value};
use pumice_hdf5::{ByteOrder, ChunkType, FilterOptions, MAX_FILLS};

use super::netcdf4::{NOT_A_COORDINATE, is_bare_dimension, is_scale};
use super::packing::Packing;
use super::rules::{ChunkWord, Chunks, Rules, Treatment, matches};
use super::source::Input;
use crate::failure::{Failure, Result};

/// Float variables of at least this size that no entry matches are compressed losslessly; smaller ones gain nothing.
const LEAST_BYTES: u64 = 1 << 16;
/// Chunks of the input with fewer values are replaced by larger ones, unless `keep` is given: each stream has a header.
const LEAST_CHUNK_VALUES: usize = 1 << 12;
/// The default number of values in a chunk.
const CHUNK_VALUES: usize = 1 << 20;

/// A variable that is compressed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What was asked for; all of them hold. Of unpacked values, if they are packed.
    pub(crate) bounds: Vec<ErrorBound>,
    /// The range that the user gave for a relative bound, and the one that the record shows.
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) shown_range: Option<(f64, f64)>,
    /// Bound and range are those of stored values; `variable::resolve` fills them in.
    pub(crate) options: FilterOptions,
    /// A bound relative to each value, beside that of `options`.
    pub(crate) pointwise: Option<ErrorBound>,
    pub(crate) chunk_type: ChunkType,
    pub(crate) packing: Option<Packing>,
}

/// One member of a group.
#[derive(Debug)]
pub(crate) enum Kind {
    Group,
    Datatype,
    /// Also a second hard link to an object, which HDF5 does not distinguish from the first.
    SoftLink(String),
    /// A dataset that only represents a dimension.
    Dimension,
    /// A dataset that is copied unchanged.
    Kept,
    Compressed(Box<Plan>),
}

#[derive(Debug)]
pub(crate) struct Item {
    /// Path of the group it is in: empty, or ending with a slash.
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

impl Item {
    pub(crate) fn path(&self) -> String {
        format!("{}{}", self.group, self.name)
    }

    /// The path without the prefix that NetCDF-4 adds to some names.
    pub(crate) fn shown(&self) -> String {
        format!("{}{}", self.group, self.name.strip_prefix(NOT_A_COORDINATE).unwrap_or(&self.name))
    }
}

/// All members of a file, groups before their own members.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) items: Vec<Item>,
    /// What cannot be copied, and why.
    pub(crate) left_out: Vec<String>,
    /// What the user should know of single variables.
    pub(crate) notes: Vec<String>,
}

/// A dataset before its treatment is decided.
struct Found {
    at: usize,
    dataset: Dataset,
    is_scale: bool,
}

impl Catalog {
    pub(crate) fn of(input: &Input, rules: &Rules) -> Result<Self> {
        let mut catalog = Self { items: Vec::new(), left_out: input.left_out.clone(), notes: Vec::new() };
        let mut datasets = Vec::new();
        let mut seen = HashMap::from([(input.root.reference(".")?, String::new())]);
        catalog.list(&input.root, "", &mut datasets, &mut seen)?;
        let coordinates = coordinates(&datasets)?;
        let (mut floats, mut others) = (Vec::new(), Vec::new());
        for Found { at, dataset, is_scale } in datasets {
            let path = catalog.items[at].shown();
            let is_coordinate = is_scale || coordinates.contains(&catalog.items[at].name);
            let treatment = rules.treatment(&path, is_coordinate);
            let Some((dtype, order)) = dataset.float_type() else {
                let asked = treatment.or(Some(&rules.others).filter(|_| !is_coordinate));
                if asked.is_some_and(|asked| is_lossy(&asked.bounds)) && Packing::of(&dataset)?.is_some() {
                    let why = "copied unchanged: its values are packed as integers, and bounds apply to floats only";
                    catalog.notes.push(format!("{path}: {why}"));
                }
                others.push(path);
                continue;
            };
            floats.push(path.clone());
            if dataset.n_values() == 0 || dataset.shape().is_empty() {
                continue;
            }
            let lossless = || Treatment { bounds: vec![ErrorBound::Lossless], ..rules.others.clone() };
            let treatment = match treatment {
                Some(treatment) => treatment.clone(),
                None if is_coordinate => continue,
                None if !rules.others.bounds.is_empty() => rules.others.clone(),
                None if raw_bytes(&dataset, dtype) >= LEAST_BYTES => lossless(),
                None => continue,
            };
            if !treatment.bounds.is_empty() {
                let plan = plan(&dataset, dtype, order, treatment).map_err(|e| e.within(&path))?;
                catalog.items[at].kind = Kind::Compressed(Box::new(plan));
            }
        }
        for (name, bounds) in rules.exact_names() {
            let is_in = |paths: &[String]| paths.iter().any(|path| matches(name, path));
            let message = match (is_in(&floats), is_in(&others)) {
                (true, _) => continue,
                // A copy is lossless.
                (false, true) if !is_lossy(bounds) => continue,
                (false, true) => {
                    format!("{name} is not a float variable: bounds apply to floats only, other variables are copied")
                }
                (false, false) => format!("there is no float variable {name}"),
            };
            return Err(Failure::invalid(message).hint(format!("float variables: {}", floats.join(", "))));
        }
        Ok(catalog)
    }

    /// Lists a group and everything in it. `seen` maps object references to the paths that were listed before, since a
    /// group may be its own member.
    fn list(
        &mut self,
        group: &Group,
        path: &str,
        datasets: &mut Vec<Found>,
        seen: &mut HashMap<u64, String>,
    ) -> Result<()> {
        for (name, link) in group.links()? {
            let item_path = format!("{path}{name}");
            let first = match link {
                Link::Group | Link::Dataset | Link::Datatype => match seen.entry(group.reference(&name)?) {
                    Entry::Occupied(first) => Some(format!("/{}", first.get())),
                    Entry::Vacant(entry) => {
                        entry.insert(item_path.clone());
                        None
                    }
                },
                _ => None,
            };
            let kind = match (first, link) {
                (Some(first), _) => Kind::SoftLink(first),
                (None, Link::Group) => Kind::Group,
                (None, Link::Datatype) => Kind::Datatype,
                (None, Link::Soft(target)) => Kind::SoftLink(target),
                (None, Link::Dataset) => {
                    let dataset = group.dataset(&name)?;
                    if is_bare_dimension(&dataset)? {
                        Kind::Dimension
                    } else {
                        let is_scale = is_scale(&dataset)?;
                        datasets.push(Found { at: self.items.len(), dataset, is_scale });
                        Kind::Kept
                    }
                }
                _ => {
                    self.left_out.push(format!("{item_path}: a link to another file"));
                    continue;
                }
            };
            let is_group = matches!(kind, Kind::Group);
            self.items.push(Item { group: path.into(), name: name.clone(), kind });
            if is_group {
                self.list(&group.group(&name)?, &format!("{item_path}/"), datasets, seen)?;
            }
        }
        Ok(())
    }
}

/// Attributes that name coordinates, bounds and the like: those of CF, and of UGRID for meshes.
const NAMING: [&str; 8] = [
    "coordinates",
    "bounds",
    "climatology",
    "formula_terms",
    "cell_measures",
    "node_coordinates",
    "edge_coordinates",
    "face_coordinates",
];

/// Names that the attributes of variables list as coordinates.
fn coordinates(datasets: &[Found]) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for Found { dataset, .. } in datasets {
        for attribute in NAMING {
            if let Some(Value::Texts(texts)) = dataset.value(attribute)? {
                names.extend(texts.iter().flat_map(|text| text.split_whitespace()).map(String::from));
            }
        }
    }
    Ok(names)
}

pub(crate) fn raw_bytes(dataset: &Dataset, dtype: DType) -> u64 {
    dataset.n_values().saturating_mul(dtype.size() as u64)
}

fn is_lossy(bounds: &[ErrorBound]) -> bool {
    bounds.iter().any(|bound| *bound != ErrorBound::Lossless)
}

fn plan(dataset: &Dataset, dtype: DType, order: ByteOrder, treatment: Treatment) -> Result<Plan> {
    let packing = Packing::of(dataset)?;
    if let Some(packing) = packing
        && !treatment.bounds.iter().all(|bound| packing.allows(*bound))
    {
        let message = "pwrel cannot be given for unpacked values, since the values have an add_offset";
        return Err(Failure::invalid(message).hint("give abs, which refers to unpacked values"));
    }
    let shape = dataset.shape();
    let extents = match &treatment.chunks {
        Some(Chunks::Extents(extents)) if extents.len() != shape.len() || extents.contains(&0) => {
            return Err(Failure::invalid(format!("chunks of {extents:?} do not fit the shape {shape:?}")));
        }
        Some(Chunks::Extents(extents)) => extents.iter().zip(shape).map(|(n, extent)| *n.min(extent)).collect(),
        Some(Chunks::Word(ChunkWord::Auto)) => chunk_of(shape),
        Some(Chunks::Word(ChunkWord::Keep)) => dataset.chunk_shape()?.unwrap_or_else(|| chunk_of(shape)),
        None => {
            let is_enough = |chunk: &Vec<usize>| chunk.iter().product::<usize>() >= LEAST_CHUNK_VALUES;
            dataset.chunk_shape()?.filter(is_enough).unwrap_or_else(|| chunk_of(shape))
        }
    };
    let fills = if treatment.fills.is_empty() { declared_fills(dataset)? } else { treatment.fills.clone() };
    let Treatment { preset, stable, .. } = treatment;
    let options = FilterOptions { bound: ErrorBound::Lossless, preset, stable, range: None, fills };
    let chunk_type = ChunkType { dtype, order, extents, fill: dataset.fill()?, shuffled: false };
    chunk_type.n_bytes().ok_or_else(|| Failure::invalid("the chunks are too large"))?;
    let Treatment { bounds, range, .. } = treatment;
    Ok(Plan { bounds, range, shown_range: None, options, pointwise: None, chunk_type, packing })
}

/// A chunk of about a million values, of whole rows and planes where possible.
pub(crate) fn chunk_of(shape: &[usize]) -> Vec<usize> {
    let mut left = CHUNK_VALUES;
    let mut chunk: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let n = extent.min(left).max(1);
            left /= n;
            n
        })
        .collect();
    chunk.reverse();
    chunk
}

/// The missing values that CF attributes declare; they may differ from the dataset's fill value.
pub(crate) fn declared_fills(dataset: &Dataset) -> Result<Vec<f64>> {
    let mut fills: Vec<f64> = Vec::new();
    for name in ["missing_value", "_FillValue"] {
        let values = match dataset.value(name)? {
            Some(Value::Floats(values)) => values,
            Some(Value::Integers(values)) => values.into_iter().map(|value| value as f64).collect(),
            _ => Vec::new(),
        };
        for value in values {
            if !value.is_nan() && !fills.contains(&value) {
                fills.push(value);
            }
        }
    }
    fills.truncate(MAX_FILLS);
    Ok(fills)
}
