//! Lists every member of the input, in order, and decides what to do with it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use pumice::{DType, ErrorBound, ErrorKind};
use pumice_fields::{ChunkWord, Chunks, Rules, Treatment};
use pumice_hdf5::files::{Dataset, Group, Link, Object, Value};
use pumice_hdf5::{ByteOrder, ChunkType, FilterOptions, MAX_FILLS};

use super::netcdf4::{NOT_A_COORDINATE, is_bare_dimension, is_scale};
use super::packing::Packing;
use super::source::Input;
use crate::failure::{Failure, Result};
use crate::text::shape;

/// Float variables of at least this size that no entry matches are compressed losslessly; smaller ones gain nothing.
const LEAST_BYTES: u64 = 1 << 16;
/// Chunks of the input with fewer values are replaced by larger ones, unless `keep` is given: each stream has a header.
const LEAST_CHUNK_VALUES: usize = 1 << 12;
/// The default number of values in a chunk.
const CHUNK_VALUES: usize = 1 << 20;
const MAX_DEPTH: usize = 256;
// The filter takes what the rules may have.
const _: () = assert!(pumice_fields::MAX_FILLS <= MAX_FILLS);

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
    /// The fill values that attributes declare, where the user has named others instead.
    pub(crate) replaced_fills: Option<Vec<f64>>,
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

    /// The path without the prefix that NetCDF-4 adds to the names of some variables.
    pub(crate) fn shown(&self) -> String {
        let is_variable = matches!(self.kind, Kind::Dimension | Kind::Kept | Kind::Compressed(_));
        let name = if is_variable { unprefixed(&self.name) } else { &self.name };
        format!("{}{name}", self.group)
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

/// What a walk through the file finds.
#[derive(Default)]
struct Listing {
    datasets: Vec<Found>,
    coordinates: Coordinates,
    /// The paths of objects by their references, since a group may be its own member.
    seen: HashMap<u64, String>,
}

/// A dataset before its treatment is decided.
struct Found {
    at: usize,
    dataset: Dataset,
    is_scale: bool,
}

impl Catalog {
    pub(crate) fn of(input: &Input, rules: &Rules) -> Result<Self> {
        let mut catalog = Self { items: Vec::new(), left_out: input.left_out.clone(), notes: rules.notes.clone() };
        let mut listing =
            Listing { seen: HashMap::from([(input.root.reference(".")?, String::new())]), ..Listing::default() };
        catalog.list(&input.root, "", &mut listing)?;
        let Listing { datasets, coordinates, .. } = listing;
        let mut ranks = Ranks::default();
        let (mut floats, mut others) = (Vec::new(), Vec::new());
        for Found { at, dataset, is_scale } in datasets {
            let path = catalog.items[at].shown();
            let is_coordinate = is_scale || coordinates.contains(&path);
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
                None if !rules.others.bounds.is_empty() => ranks.fit(rules.others.clone(), &dataset, &path),
                None if raw_bytes(&dataset, dtype) >= LEAST_BYTES => ranks.fit(lossless(), &dataset, &path),
                None => continue,
            };
            if !treatment.bounds.is_empty() {
                let plan = plan(&dataset, dtype, order, treatment).map_err(|e| e.within(&path))?;
                catalog.items[at].kind = Kind::Compressed(Box::new(plan));
            }
        }
        if let Some(Chunks::Extents(extents)) = &rules.others.chunks {
            catalog.notes.extend(ranks.note(extents)?);
        }
        for exact in rules.exact_names() {
            let is_in = |paths: &[String]| paths.iter().any(|path| exact.matches(path));
            let (name, bounds) = (exact.name(), exact.bounds);
            let message = match (is_in(&floats), is_in(&others)) {
                (true, _) => continue,
                // A copy is lossless.
                (false, true) if !is_lossy(bounds) => continue,
                (false, true) => {
                    format!("{name} is not a float variable: bounds apply to floats only, other variables are copied")
                }
                (false, false) => format!("there is no float variable {name}"),
            };
            if exact.is_optional {
                catalog.notes.push(message);
                continue;
            }
            return Err(Failure::invalid(message).hint(format!("float variables: {}", floats.join(", "))));
        }
        Ok(catalog)
    }

    /// Lists a group and everything in it.
    fn list(&mut self, group: &Group, path: &str, listing: &mut Listing) -> Result<()> {
        check_depth(path)?;
        listing.coordinates.add(group, path)?;
        for (name, link) in group.links()? {
            let item_path = format!("{path}{name}");
            let first = match link {
                Link::Group | Link::Dataset | Link::Datatype => match listing.seen.entry(group.reference(&name)?) {
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
                        listing.coordinates.add(&dataset, path)?;
                        listing.datasets.push(Found { at: self.items.len(), dataset, is_scale });
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
                self.list(&group.group(&name)?, &format!("{item_path}/"), listing)?;
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

/// What attributes name as coordinates.
#[derive(Default)]
struct Coordinates {
    /// Names without a path, which stand for variables of any group.
    names: HashSet<String>,
    paths: HashSet<String>,
}

impl Coordinates {
    /// Adds what the attributes of a variable or group name. Paths start at `group`, or at the root after a slash.
    fn add(&mut self, object: &Object, group: &str) -> Result<()> {
        for attribute in NAMING {
            let Some(Value::Texts(texts)) = object.value(attribute)? else { continue };
            for word in texts.iter().flat_map(|text| text.split_whitespace()) {
                match word.contains('/') {
                    true => self.paths.insert(resolved(group, word)),
                    false => self.names.insert(word.into()),
                };
            }
        }
        Ok(())
    }

    fn contains(&self, path: &str) -> bool {
        self.paths.contains(path) || self.names.contains(path.rsplit('/').next().unwrap_or(path))
    }
}

/// The path from the root, without its first slash, of what `path` names in a group.
fn resolved(group: &str, path: &str) -> String {
    let start = if path.starts_with('/') { "" } else { group };
    let mut parts = Vec::new();
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The variables that the extents of `--chunks` are for, and those of another rank.
#[derive(Default)]
struct Ranks {
    n_fitting: usize,
    others: Vec<String>,
}

impl Ranks {
    /// The treatment of the command line for this dataset: without extents that are for another rank.
    fn fit(&mut self, mut treatment: Treatment, dataset: &Dataset, path: &str) -> Treatment {
        if let Some(Chunks::Extents(extents)) = &treatment.chunks {
            if extents.len() == dataset.shape().len() {
                self.n_fitting += 1;
            } else {
                self.others.push(path.into());
                treatment.chunks = None;
            }
        }
        treatment
    }

    /// Says which variables these extents were not for.
    fn note(&self, extents: &[usize]) -> Result<Option<String>> {
        let others = self.others.join(", ");
        let message =
            |rest| format!("chunks of {} are for variables of {} axes, {rest}", shape(extents), extents.len());
        match (self.n_fitting, self.others.is_empty()) {
            (0, false) => Err(Failure::invalid(message("which none has")).hint(format!("other ranks: {others}"))),
            (_, false) => Ok(Some(message("not for ") + &others)),
            _ => Ok(None),
        }
    }
}

/// Fails for groups below so many others that no file needs it: paths of all their members would be long.
pub(crate) fn check_depth(path: &str) -> Result<()> {
    if path.matches('/').count() <= MAX_DEPTH {
        return Ok(());
    }
    Err(Failure::new(ErrorKind::Unsupported, format!("groups are nested deeper than {MAX_DEPTH}")))
}

/// The name of a variable without the prefix that NetCDF-4 adds to some.
pub(crate) fn unprefixed(name: &str) -> &str {
    name.strip_prefix(NOT_A_COORDINATE).unwrap_or(name)
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
    let declared = declared_fills(dataset)?;
    let (fills, replaced_fills) = match treatment.fills.is_empty() {
        true => (declared, None),
        false => (treatment.fills.clone(), Some(declared)),
    };
    let Treatment { preset, stable, .. } = treatment;
    let options = FilterOptions { bound: ErrorBound::Lossless, preset, stable, range: None, fills };
    let chunk_type = ChunkType { dtype, order, extents, fill: dataset.fill()?, shuffled: false };
    chunk_type.n_bytes().ok_or_else(|| Failure::invalid("the chunks are too large"))?;
    let Treatment { bounds, range, .. } = treatment;
    Ok(Plan { bounds, range, shown_range: None, options, pointwise: None, chunk_type, packing, replaced_fills })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_coordinates_start_at_the_group_or_at_the_root() {
        for (path, expected) in [
            ("/g/depth", "g/depth"),
            ("depth/x", "a/b/depth/x"),
            ("../x", "a/x"),
            ("../../../x", "x"),
            ("./x", "a/b/x"),
        ] {
            assert_eq!(resolved("a/b/", path), expected);
        }
        assert_eq!(resolved("", "g/x"), "g/x");
    }
}
