//! A file or store that may be the result of a conversion: its variables with records, and their values, which are compared
//! with the records and with the original.

use std::collections::HashSet;
use std::path::Path;

use pumice::metrics::{Findings, Guarantee};
use pumice::{DType, Element, with_dtype};
use pumice_fields::{Rules, Treatment};
use pumice_hdf5::files::{Group, Link};

use super::catalog::{Catalog, check_depth, chunk_of, declared_fills, unprefixed};
use super::netcdf4::NOT_A_COORDINATE;
use super::packing::Packing;
use super::record::{Checksum, Record};
use super::source::{Input, Variable};
use super::store;
use super::variable::{chunk_starts, extents_within, filled};
use crate::failure::{Failure, Result};
use crate::input;

const HDF5_MAGIC: &[u8] = b"\x89HDF\r\n\x1a\n";
const CLASSIC_MAGIC: &[u8] = b"CDF";
/// Chunks with fewer values are read several at a time.
const LEAST_BOX_VALUES: usize = 1 << 12;

/// Whether `pumice info` and `pumice check` read this path as a file or store with variables.
pub(crate) fn has_variables(path: &Path) -> Result<bool> {
    // What is read from a pipe is gone.
    if input::is_stream(path) {
        return Ok(false);
    }
    if path.is_dir() {
        return Ok(path.join(store::DOCUMENT).exists());
    }
    Ok(input::has_magic(path, HDF5_MAGIC)? || input::has_magic(path, CLASSIC_MAGIC)?)
}

enum Values {
    Hdf5(Box<Input>),
    Zarr(Vec<store::Array>),
}

/// An open file or store.
pub(crate) struct Converted {
    values: Values,
    recorded: Vec<Recorded>,
}

/// A variable with a record.
pub(crate) struct Recorded {
    /// The path in the file, and as users know it.
    path: String,
    pub(crate) name: String,
    pub(crate) record: Record,
    /// How its values are packed now.
    packing: Option<Packing>,
    /// Index of the array in the store.
    at: usize,
}

/// What a look at the values of a variable found.
pub(crate) struct Found {
    /// Whether the values are those that the record speaks of; `None` if it has no checksum.
    pub(crate) is_as_recorded: Option<bool>,
    pub(crate) compared: Option<Compared>,
}

/// What a comparison with the original found.
pub(crate) struct Compared {
    pub(crate) max_abs_error: f64,
    /// How many NaN, infinite and fill values changed.
    pub(crate) n_mismatched_special: u64,
    /// Whether readers unpack both in the same way.
    pub(crate) is_packed_alike: bool,
}

impl Converted {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut recorded = Vec::new();
        let values = if path.is_dir() {
            let arrays = store::arrays(path)?;
            for (at, array) in arrays.iter().enumerate() {
                if let Some(record) = array.record()? {
                    let (path, packing) = (array.path.clone(), array.packing()?);
                    recorded.push(Recorded { name: path.clone(), path, record, packing, at });
                }
            }
            Values::Zarr(arrays)
        } else {
            let input = Input::open(path)?;
            let mut seen = HashSet::from([input.root.reference(".")?]);
            list(&input.root, "", &mut seen, &mut recorded).map_err(|e| e.at(path))?;
            Values::Hdf5(Box::new(input))
        };
        Ok(Self { values, recorded })
    }

    /// The variables with records, in order.
    pub(crate) fn recorded(&self) -> &[Recorded] {
        &self.recorded
    }

    /// Opens the input of the conversion. Variables of a store have the extents of their dimensions.
    pub(crate) fn original(&self, path: &Path) -> Result<Input> {
        let mut input = Input::open(path)?;
        if matches!(self.values, Values::Zarr(_)) {
            let others = Treatment::new(Vec::new());
            let catalog = Catalog::of(&input, &Rules::new(others)?).map_err(|e| e.at(path))?;
            input.extend(&catalog)?;
        }
        Ok(input)
    }

    /// Size of the values of a variable, for progress; 0 if that is not known, which is an error when they are read.
    pub(crate) fn n_bytes(&self, recorded: &Recorded) -> u64 {
        let layout = match &self.values {
            Values::Hdf5(input) => input.variable(&recorded.path).map(|variable| {
                let size = variable.dataset.float_type().map_or(0, |(dtype, _)| dtype.size());
                (variable.shape().to_vec(), size)
            }),
            Values::Zarr(arrays) => arrays[recorded.at].layout().map(|layout| (layout.shape, layout.dtype.size())),
        };
        layout.map_or(0, |(shape, size)| shape.iter().fold(size as u64, |n, extent| n.saturating_mul(*extent as u64)))
    }

    /// Reads all values of a variable, and compares them with the record, and with the original if there is one.
    pub(crate) fn verify(
        &self,
        recorded: &Recorded,
        original: Option<&Input>,
        progress: &dyn Fn(u64),
    ) -> Result<Found> {
        let (dtype, shape) = match &self.values {
            Values::Hdf5(input) => {
                let variable = input.variable(&recorded.path)?;
                variable.dataset.require_filters()?;
                // Other types are those of programs that have packed the values since.
                let Some((dtype, _)) = variable.dataset.float_type() else {
                    return Ok(Found { is_as_recorded: Some(false), compared: None });
                };
                (dtype, variable.shape().to_vec())
            }
            Values::Zarr(arrays) => {
                let layout = arrays[recorded.at].layout()?;
                (layout.dtype, layout.shape)
            }
        };
        let original = match original {
            Some(original) => Some(original_of(original, recorded, dtype, &shape)?),
            None => None,
        };
        with_dtype!(dtype, T => self.compare::<T>(recorded, &shape, original.as_ref(), progress))
    }

    fn compare<T: Element>(
        &self,
        recorded: &Recorded,
        shape: &[usize],
        original: Option<&Original<'_>>,
        progress: &dyn Fn(u64),
    ) -> Result<Found> {
        let (mut checksum, mut findings) = (Checksum::default(), Findings::default());
        let guarantee = Guarantee::new(f64::INFINITY, f64::INFINITY, original.map_or(&[], |original| &original.fills));
        let mut use_box = |start: &[usize], extents: &[usize], values: &[T]| {
            checksum.add_box(shape, start, extents, values);
            if let Some(original) = original {
                let mut values_before = filled(T::default(), values.len())?;
                original.variable.read_box(start, extents, &mut values_before)?;
                let region: Vec<_> = start.iter().zip(extents).map(|(start, n)| *start..start + n).collect();
                findings.add(&region, &guarantee.compare(&region, &values_before, values)?);
            }
            progress(size_of_val(values) as u64);
            Ok(())
        };
        match &self.values {
            Values::Zarr(arrays) => {
                let array = &arrays[recorded.at];
                array.for_each_box(&array.layout()?, &mut use_box)?;
            }
            Values::Hdf5(input) => for_each_box(&input.variable(&recorded.path)?, &mut use_box)?,
        }
        let compared = original.map(|original| {
            let error = findings.total.max_abs_error;
            Compared {
                max_abs_error: original.packing.map_or(error, |packing| packing.unpacked_error(error)),
                n_mismatched_special: findings.total.n_mismatched_special,
                is_packed_alike: original.packing == recorded.packing,
            }
        });
        Ok(Found { is_as_recorded: recorded.record.speaks_of(checksum, recorded.packing), compared })
    }
}

/// A variable of the original.
struct Original<'a> {
    variable: Variable<'a>,
    packing: Option<Packing>,
    fills: Vec<f64>,
}

fn original_of<'a>(input: &'a Input, recorded: &Recorded, dtype: DType, shape: &[usize]) -> Result<Original<'a>> {
    let (group, name) =
        recorded.path.rsplit_once('/').map_or(("", recorded.path.as_str()), |(group, name)| (group, name));
    let separator = if group.is_empty() { "" } else { "/" };
    let variable = input
        .variable(&recorded.path)
        .or_else(|e| input.variable(&format!("{group}{separator}{NOT_A_COORDINATE}{name}")).map_err(|_| e))?;
    let found = variable.dataset.float_type().map(|(dtype, _)| dtype);
    if found != Some(dtype) || variable.shape() != shape {
        return Err(Failure::invalid(format!(
            "the original has another type or shape: {:?}, not {shape:?}",
            variable.shape()
        )));
    }
    variable.dataset.require_filters()?;
    let packing = Packing::of(&variable.dataset)?;
    let mut fills = match &recorded.record.fills {
        Some(fills) => fills.clone(),
        None => declared_fills(&variable.dataset)?,
    };
    fills.extend(variable.dataset.fill()?);
    Ok(Original { variable, packing, fills })
}

/// Calls `use_box(start, extents, values)` for boxes that cover a variable, each of whole chunks where possible.
fn for_each_box<T: Element>(
    variable: &Variable<'_>,
    mut use_box: impl FnMut(&[usize], &[usize], &[T]) -> Result<()>,
) -> Result<()> {
    let shape = variable.shape();
    let is_enough = |chunk: &Vec<usize>| chunk.iter().product::<usize>() >= LEAST_BOX_VALUES;
    let part = variable.dataset.chunk_shape()?.filter(is_enough).unwrap_or_else(|| chunk_of(shape));
    for start in chunk_starts(shape, &part) {
        let extents = extents_within(shape, &part, &start);
        let mut values = filled(T::default(), extents.iter().product())?;
        variable.read_box(&start, &extents, &mut values)?;
        use_box(&start, &extents, &values)?;
    }
    Ok(())
}

/// Lists the datasets with records in a group and below, each once.
fn list(group: &Group, path: &str, seen: &mut HashSet<u64>, found: &mut Vec<Recorded>) -> Result<()> {
    check_depth(path)?;
    for (name, link) in group.links()? {
        if !matches!(link, Link::Group | Link::Dataset) || !seen.insert(group.reference(&name)?) {
            continue;
        }
        if link == Link::Group {
            list(&group.group(&name)?, &format!("{path}{name}/"), seen, found)?;
            continue;
        }
        let object = group.at(&name)?;
        if let Some(record) = Record::of(&object)? {
            let (shown, packing) = (format!("{path}{}", unprefixed(&name)), Packing::of(&object)?);
            found.push(Recorded { path: format!("{path}{name}"), name: shown, record, packing, at: 0 });
        }
    }
    Ok(())
}
