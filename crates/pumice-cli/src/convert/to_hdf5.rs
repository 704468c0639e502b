//! Writes the tree as an HDF5 or NetCDF-4 file. First creates and fills everything in the order of the input, then adds
//! the attributes, since they refer to datasets.

use std::path::Path;

use pumice::DType;
use pumice_hdf5::CdValues;
use pumice_hdf5::files::{Dataset, ElementType, Group};

use super::catalog::{Catalog, Kind, chunk_of};
use super::record::{self, HISTORY, Record};
use super::source::{Input, Variable};
use super::variable::{self, Outcome, chunk_starts, extents_within};
use crate::commands::convert::Work;
use crate::failure::{Failure, Result};

/// Writes the file. The outcomes are those of the compressed variables, in order.
pub(crate) fn write(input: &Input, catalog: &mut Catalog, path: &Path, work: &Work<'_>) -> Result<Vec<Outcome>> {
    let source = &input.root;
    let target = source.create_file_like(path)?;
    let member = |root: &Group, group: &str| root.group(if group.is_empty() { "." } else { group });
    // Named datatypes come before the datasets that may use them.
    for item in &catalog.items {
        let (from, to) = (member(source, &item.group), member(&target, &item.group));
        match item.kind {
            Kind::Group => drop(to?.create_group_like(&item.name, &from?.group(&item.name)?)?),
            Kind::Datatype => to?.copy_from(&from?, &item.name)?,
            _ => {}
        }
    }
    let mut outcomes = Vec::new();
    for item in &catalog.items {
        let (from, to) = (member(source, &item.group)?, member(&target, &item.group)?);
        match &item.kind {
            Kind::SoftLink(target) => to.create_soft_link(&item.name, target)?,
            Kind::Kept | Kind::Dimension => {
                let variable = input.variable(&item.path())?;
                if !variable.is_stored() {
                    copy_values(&variable, &to.create_like(&item.name, &variable.dataset)?)?;
                } else if variable.dataset.has_pointers()? {
                    // Values with pointers are copied once their targets exist.
                    drop(to.create_like(&item.name, &variable.dataset)?);
                } else {
                    to.copy_from(&from, &item.name)?;
                }
                work.progress(variable.stored_bytes()?);
            }
            Kind::Compressed(plan) => {
                let within = |e: Failure| e.within(&item.shown());
                let variable = input.variable(&item.path())?;
                let cd_values = CdValues { options: plan.options.clone(), chunk_type: None };
                let copy = to.create_filtered(&item.name, &variable.dataset, &plan.chunk_type.extents, &cd_values)?;
                let write = |start: &[usize], stream: &[u8]| Ok(copy.write_chunk(start, stream)?);
                let progress = |n| work.progress(n);
                outcomes.push(variable::compress(&variable, plan, work.threads, &progress, write).map_err(within)?);
            }
            _ => {}
        }
    }
    let left_out = target.copy_attributes_from(source)?;
    catalog.left_out.extend(left_out.into_iter().map(|name| format!("attribute {name}")));
    if input.is_netcdf()? {
        target.set_text(HISTORY, &record::history(&work.history, input.history()?.as_deref()))?;
    }
    let mut compressed = outcomes.iter();
    for item in &catalog.items {
        if matches!(item.kind, Kind::SoftLink(_)) {
            continue;
        }
        let path = item.path();
        if matches!(item.kind, Kind::Kept) && source.dataset(&path)?.has_pointers()? {
            target.copy_pointers_from(source, &path)?;
        }
        let copy = target.at(&path)?;
        let left_out = copy.copy_attributes_from(&source.at(&path)?)?;
        catalog.left_out.extend(left_out.into_iter().map(|name| format!("attribute {name} of {}", item.shown())));
        if let Kind::Compressed(plan) = &item.kind
            && let Some(outcome) = compressed.next()
            && let Some(record) = Record::after(plan, outcome, Record::of(&source.at(&path)?)?.as_ref(), work.date)
        {
            record.texts().try_for_each(|(name, text)| copy.set_text(name, &text))?;
            let number = ElementType::Float(DType::F64);
            copy.set_number(Record::MAX_ERROR, number, &record.max_abs_error.to_le_bytes())?;
            for (name, list) in record.lists() {
                match list {
                    Some(list) => {
                        copy.set_values(name, number, &list.into_iter().flat_map(f64::to_le_bytes).collect::<Vec<_>>())?
                    }
                    None => copy.remove_attribute(name)?,
                }
            }
        }
    }
    target.finish()?;
    Ok(outcomes)
}

/// Copies values of the input that are not in an HDF5 dataset; bare dimensions have none.
fn copy_values(variable: &Variable<'_>, to: &Dataset) -> Result<()> {
    let Some(element) = variable.element()? else { return Ok(()) };
    let shape = variable.shape();
    let part = chunk_of(shape);
    for start in chunk_starts(shape, &part) {
        let extents = extents_within(shape, &part, &start);
        to.write_bytes(element, &start, &extents, &variable.read_bytes(element, &start, &extents)?)?;
    }
    Ok(())
}
