//! The layout of NetCDF-4 in HDF5: every dimension is a dimension scale, which is also the coordinate variable of that
//! name if there is one. This module builds the same structure for a classic file, without copying its values.

use std::collections::HashMap;

use pumice::DType;
use pumice_hdf5::files::{Dataset, ElementType, Group, Integer, Layout, Object, Value};

use super::catalog::chunk_of;
use super::classic::{Attribute, Classic, Variable};
use crate::failure::Result;

/// The name of a dimension that has no variable; its extent follows.
const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable.";
/// Prefix of a variable with the name of a dimension that is not its first.
pub(crate) const NOT_A_COORDINATE: &str = "_nc4_non_coord_";
/// The attribute CLASS of a dimension scale, with its NUL.
const SCALE: &[u8] = b"DIMENSION_SCALE\0";

/// The type of dimension numbers.
const NUMBER: ElementType = ElementType::Integer(Integer { size: 4, is_signed: true });
/// The attribute of a dimension with its number, and that of a variable with those of its axes.
pub(crate) const ID: &str = "_Netcdf4Dimid";
pub(crate) const AXES: &str = "_Netcdf4Coordinates";
/// The attribute of a file that says which libraries wrote it.
pub(crate) const PROPERTIES: &str = "_NCProperties";
/// Attribute names that NetCDF-4 reserves.
pub(crate) const RESERVED: [&str; 9] =
    ["CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS", ID, AXES, PROPERTIES, "_nc3_strict"];

pub(crate) fn is_scale(dataset: &Dataset) -> Result<bool> {
    Ok(matches!(dataset.value("CLASS")?, Some(Value::Texts(texts)) if texts == ["DIMENSION_SCALE"]))
}

/// Whether a dataset only represents a dimension.
pub(crate) fn is_bare_dimension(dataset: &Dataset) -> Result<bool> {
    let name = dataset.value("NAME")?;
    Ok(matches!(name, Some(Value::Texts(texts)) if texts.first().is_some_and(|text| text.starts_with(NO_VARIABLE))))
}

/// The dimension numbers in an attribute: that of a scale, or those of the axes of a variable.
pub(crate) fn dimension_ids(dataset: &Dataset, attribute: &str) -> Result<Vec<i64>> {
    Ok(match dataset.value(attribute)? {
        Some(Value::Integers(ids)) => ids,
        _ => Vec::new(),
    })
}

/// A tree without values.
#[derive(Debug)]
pub(crate) struct Structure {
    pub(crate) root: Group,
    /// The index of each dataset's variable in the file; dimensions without a variable are absent.
    pub(crate) variables: HashMap<String, usize>,
    /// Attributes that NetCDF-4 cannot represent.
    pub(crate) left_out: Vec<String>,
}

pub(crate) fn structure_of(classic: &Classic) -> Result<Structure> {
    let mut structure = Structure { root: Group::create_in_memory()?, variables: HashMap::new(), left_out: Vec::new() };
    structure.left_out.extend(set_all(&structure.root, &classic.attributes)?);
    for (id, dimension) in classic.dimensions.iter().enumerate() {
        if !classic.variables.iter().any(|v| v.name == dimension.name && is_coordinate(v, classic)) {
            let (shape, element) = ([dimension.extent], ElementType::Float(DType::F32));
            let scale = create(&structure.root, &dimension.name, element, &shape, dimension.is_unlimited, None)?;
            make_scale(&scale, &format!("{NO_VARIABLE}{:10}", dimension.extent), id)?;
        }
    }
    let mut axes = Vec::new();
    for (at, variable) in classic.variables.iter().enumerate() {
        let is_coordinate = is_coordinate(variable, classic);
        let is_taken = !is_coordinate && classic.dimensions.iter().any(|dimension| dimension.name == variable.name);
        let name = if is_taken { format!("{NOT_A_COORDINATE}{}", variable.name) } else { variable.name.clone() };
        let (element, fill) = (variable.element, fill_of(variable));
        let dataset = create(&structure.root, &name, element, &variable.shape, variable.is_record, Some(&fill))?;
        let left_out = set_all(&dataset, &variable.attributes)?.into_iter();
        structure.left_out.extend(left_out.map(|attribute| format!("{attribute} of {}", variable.name)));
        match variable.dimensions.as_slice() {
            [] => {}
            [id, rest @ ..] if is_coordinate => {
                make_scale(&dataset, &name, *id)?;
                // A scale cannot have scales itself, so an attribute lists the numbers of its axes.
                if !rest.is_empty() {
                    let ids = variable.dimensions.iter().flat_map(|id| (*id as i32).to_le_bytes());
                    dataset.set_values(AXES, NUMBER, &ids.collect::<Vec<_>>())?;
                }
            }
            ids => axes.push((name.clone(), ids.iter().map(|id| classic.dimensions[*id].name.clone()).collect())),
        }
        structure.variables.insert(name, at);
    }
    structure.root.attach_scales(&axes)?;
    Ok(structure)
}

fn create(
    root: &Group,
    name: &str,
    element: ElementType,
    shape: &[usize],
    is_extendible: bool,
    fill: Option<&[u8]>,
) -> Result<Dataset> {
    // HDF5 requires chunks for extendible datasets.
    let chunk = is_extendible.then(|| chunk_of(shape));
    Ok(root.create_dataset(name, &Layout { element, shape, is_extendible, chunk: chunk.as_deref(), fill })?)
}

/// Sets attributes; returns the names of those that cannot be set.
fn set_all(object: &Object, attributes: &[Attribute]) -> Result<Vec<String>> {
    let (reserved, free): (Vec<_>, Vec<_>) =
        attributes.iter().partition(|attribute| RESERVED.contains(&attribute.name.as_str()));
    free.iter().try_for_each(|attribute| object.set_values(&attribute.name, attribute.element, &attribute.bytes))?;
    Ok(reserved.iter().map(|attribute| format!("attribute {}", attribute.name)).collect())
}

fn make_scale(dataset: &Dataset, name: &str, id: usize) -> Result<()> {
    dataset.set_values("CLASS", ElementType::Character, SCALE)?;
    dataset.set_values("NAME", ElementType::Character, format!("{name}\0").as_bytes())?;
    Ok(dataset.set_number(ID, NUMBER, &(id as i32).to_le_bytes())?)
}

/// Whether a variable is the one that its first dimension is named after.
fn is_coordinate(variable: &Variable, classic: &Classic) -> bool {
    variable.dimensions.first().is_some_and(|id| classic.dimensions[*id].name == variable.name)
}

/// The bytes of the fill value that a variable declares, or else of the one that NetCDF uses for its type.
fn fill_of(variable: &Variable) -> Vec<u8> {
    let element = variable.element;
    let is_fill = |attribute: &&Attribute| {
        attribute.name == "_FillValue" && attribute.element == element && attribute.bytes.len() == element.size()
    };
    if let Some(attribute) = variable.attributes.iter().find(is_fill) {
        return attribute.bytes.clone();
    }
    let number: u64 = match element {
        ElementType::Character => 0,
        ElementType::Integer(Integer { size: 8, is_signed: false }) => u64::MAX - 1,
        ElementType::Integer(Integer { is_signed: false, .. }) => u64::MAX,
        ElementType::Integer(Integer { size: 8, is_signed: true }) => (i64::MIN + 2) as u64,
        ElementType::Integer(Integer { size, is_signed: true }) => (1 << (8 * size - 1)) + 1,
        // 15 * 2^119, about 9.97e36.
        ElementType::Float(DType::F32) => 0x7cf0_0000,
        ElementType::Float(_) => 0x479e_0000_0000_0000,
    };
    number.to_le_bytes()[..element.size()].to_vec()
}
