//! Everything in the input, in order, and what is to be done with it.

use std::collections::HashSet;

use pumice::{Bound, DType};
use pumice_hdf5::files::{Dataset, Group, Link, Value};
use pumice_hdf5::{ByteOrder, ChunkType, Wish};

use super::netcdf4::{NOT_A_COORDINATE, is_bare_dimension, is_scale};
use super::rules::{ChunkWord, Chunks, Rules, Treatment};
use super::source::Input;
use crate::failure::{Failure, Result};

/// Floats of no entry are compressed without loss from this size on: a filter is of no use to less.
const LEAST_BYTES: u64 = 1 << 16;
/// Chunks where nobody has said how to cut.
const CHUNK_VALUES: usize = 1 << 20;

/// A variable that is compressed.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) bound: Bound,
    /// The range of a relative bound is found later where it is not given.
    pub(crate) wish: Wish,
    pub(crate) chunk_type: ChunkType,
}

/// One member of a group.
#[derive(Debug)]
pub(crate) enum Kind {
    Group,
    Datatype,
    SoftLink(String),
    /// A dataset that stays as it is.
    Kept,
    Compressed(Plan),
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

    /// The path that its users know.
    pub(crate) fn shown(&self) -> String {
        format!("{}{}", self.group, self.name.strip_prefix(NOT_A_COORDINATE).unwrap_or(&self.name))
    }
}

/// All members of a file, groups before what is in them.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub(crate) items: Vec<Item>,
    /// What cannot be copied, and why.
    pub(crate) left_out: Vec<String>,
}

/// A dataset, while it is not known what becomes of it.
struct Found {
    at: usize,
    dataset: Dataset,
    is_scale: bool,
}

impl Catalog {
    pub(crate) fn of(input: &Input, rules: &Rules) -> Result<Self> {
        let mut catalog = Self { items: Vec::new(), left_out: input.left_out.clone() };
        let mut datasets = Vec::new();
        catalog.list(&input.root, "", &mut datasets)?;
        let coordinates = coordinates(&datasets)?;
        let mut compressible = Vec::new();
        for Found { at, dataset, is_scale } in datasets {
            let path = catalog.items[at].shown();
            let is_coordinate = is_scale || coordinates.contains(&catalog.items[at].name);
            let treatment = rules.treatment(&path, is_coordinate);
            let Some((dtype, order)) =
                dataset.float_type().filter(|_| dataset.n_values() > 0 && !dataset.shape().is_empty())
            else {
                continue;
            };
            compressible.push(path.clone());
            let unnamed = Treatment::new(
                (!is_coordinate && raw_bytes(&dataset, dtype) >= LEAST_BYTES).then_some(Bound::Lossless),
            );
            let treatment = treatment.unwrap_or(&unnamed);
            if let Some(bound) = treatment.bound {
                let plan = plan(&dataset, dtype, order, bound, treatment).map_err(|e| e.within(&path))?;
                catalog.items[at].kind = Kind::Compressed(plan);
            }
        }
        let unknown = rules.names_of_nothing(|takes| compressible.iter().any(|path| takes(path)));
        if let Some(name) = unknown.first() {
            return Err(Failure::invalid(format!("there is no variable of floats that is called {name}"))
                .hint(format!("those are: {}", compressible.join(", "))));
        }
        Ok(catalog)
    }

    fn list(&mut self, group: &Group, path: &str, datasets: &mut Vec<Found>) -> Result<()> {
        for (name, link) in group.links()? {
            let kind = match link {
                Link::Group => Kind::Group,
                Link::Datatype => Kind::Datatype,
                Link::Soft(target) => Kind::SoftLink(target),
                Link::Dataset => {
                    let dataset = group.dataset(&name)?;
                    if !is_bare_dimension(&dataset)? {
                        let is_scale = is_scale(&dataset)?;
                        datasets.push(Found { at: self.items.len(), dataset, is_scale });
                    }
                    Kind::Kept
                }
                _ => {
                    self.left_out.push(format!("{path}{name}: a link to another file"));
                    continue;
                }
            };
            let is_group = matches!(kind, Kind::Group);
            self.items.push(Item { group: path.into(), name: name.clone(), kind });
            if is_group {
                self.list(&group.group(&name)?, &format!("{path}{name}/"), datasets)?;
            }
        }
        Ok(())
    }
}

/// Names that variables give as their coordinates, bounds and the like (CF conventions).
fn coordinates(datasets: &[Found]) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for Found { dataset, .. } in datasets {
        for attribute in ["coordinates", "bounds", "climatology", "formula_terms"] {
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

fn plan(dataset: &Dataset, dtype: DType, order: ByteOrder, bound: Bound, treatment: &Treatment) -> Result<Plan> {
    let shape = dataset.shape();
    let extents = match &treatment.chunks {
        Chunks::Extents(extents) if extents.len() != shape.len() || extents.contains(&0) => {
            return Err(Failure::invalid(format!("chunks of {extents:?} do not fit the shape {shape:?}")));
        }
        Chunks::Extents(extents) => extents.iter().zip(shape).map(|(n, extent)| *n.min(extent)).collect(),
        Chunks::Word(word) => match dataset.chunk_shape()? {
            Some(extents) if *word == ChunkWord::Keep => extents,
            _ => chunk_of(shape),
        },
    };
    let fill = match treatment.fill {
        Some(fill) => Some(fill),
        None => declared_fill(dataset)?,
    };
    let wish = Wish { bound, preset: treatment.preset, range: treatment.range, fill };
    let chunk_type = ChunkType { dtype, order, extents, fill: dataset.fill()? };
    chunk_type.n_bytes().ok_or_else(|| Failure::invalid("the chunks are too large"))?;
    Ok(Plan { bound, wish, chunk_type })
}

/// About a million values, in whole rows and planes as far as they go.
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

/// What CF attributes say that missing values are: the one that the dataset's own fill value may not be.
fn declared_fill(dataset: &Dataset) -> Result<Option<f64>> {
    for name in ["missing_value", "_FillValue"] {
        match dataset.value(name)? {
            Some(Value::Floats(values)) if values.len() == 1 => return Ok(Some(values[0])),
            Some(Value::Integers(values)) if values.len() == 1 => return Ok(Some(values[0] as f64)),
            _ => {}
        }
    }
    Ok(None)
}
