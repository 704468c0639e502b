//! The input, HDF5 or classic NetCDF: an HDF5 tree, and values that are read box by box. For a classic NetCDF file the
//! tree holds the structure only; values are read from the file itself.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use pumice::Element;
use pumice_hdf5::files::{Dataset, ElementType, Group};

use super::classic::{self, Classic, is_classic};
use super::netcdf4::{Structure, structure_of};
use crate::failure::{Failure, Result, io_context};

pub(crate) struct Input {
    /// Groups, datasets and attributes.
    pub(crate) root: Group,
    classic: Option<(Classic, HashMap<String, usize>)>,
    /// Attributes that the tree cannot represent.
    pub(crate) left_out: Vec<String>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut magic = Vec::new();
        let file = File::open(path).map_err(io_context("read", path))?;
        (&file).take(4).read_to_end(&mut magic).map_err(io_context("read", path))?;
        if !is_classic(&magic) {
            return Ok(Self { root: Group::open_file(path)?, classic: None, left_out: Vec::new() });
        }
        let classic = Classic::open(file).map_err(|e| Failure::from(e).at(path))?;
        let Structure { root, variables, left_out } = structure_of(&classic).map_err(|e| e.at(path))?;
        Ok(Self { root, classic: Some((classic, variables)), left_out })
    }

    /// A variable by its path, for reading many boxes.
    pub(crate) fn variable(&self, path: &str) -> Result<Variable<'_>> {
        let dataset = self.root.dataset_with_cache(path)?;
        let values = match &self.classic {
            None => Values::Stored,
            Some((file, variables)) => match variables.get(path) {
                Some(&at) => Values::Classic(file, &file.variables[at]),
                None => Values::Nowhere,
            },
        };
        Ok(Variable { dataset, values })
    }
}

/// Where values are.
enum Values<'a> {
    /// In the dataset.
    Stored,
    Classic(&'a Classic, &'a classic::Variable),
    /// The dataset only represents a dimension.
    Nowhere,
}

pub(crate) struct Variable<'a> {
    /// Shape, type and attributes.
    pub(crate) dataset: Dataset,
    values: Values<'a>,
}

impl Variable<'_> {
    /// Whether the dataset itself has the values, so that it can be copied.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.values, Values::Stored)
    }

    /// The type of its values; `None` for strings, compound types and the like, and for dimensions without values.
    pub(crate) fn element(&self) -> Result<Option<ElementType>> {
        Ok(match self.values {
            Values::Nowhere => None,
            Values::Classic(_, variable) => Some(variable.element),
            Values::Stored => match self.dataset.float_type() {
                Some((dtype, _)) => Some(ElementType::Float(dtype)),
                None if self.dataset.has_characters()? => Some(ElementType::Character),
                None => self.dataset.integer_type()?.map(ElementType::Integer),
            },
        })
    }

    /// Size of its values in the input, in bytes.
    pub(crate) fn stored_bytes(&self) -> Result<u64> {
        Ok(match self.values {
            Values::Stored => self.dataset.storage_bytes()?,
            Values::Classic(_, variable) => self.dataset.n_values() * variable.element.size() as u64,
            Values::Nowhere => 0,
        })
    }

    /// The values of a box as little-endian bytes of type `element`, which is that of [`Self::element`].
    pub(crate) fn read_bytes(
        &self,
        element: ElementType,
        start: &[usize],
        extents: &[usize],
    ) -> pumice::Result<Vec<u8>> {
        match self.values {
            Values::Classic(file, variable) => file.read(variable, start, extents),
            _ => self.dataset.read_bytes(element, start, extents),
        }
    }

    /// Fills `out` with the values of a box of floats.
    pub(crate) fn read_box<T: Element>(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> pumice::Result<()> {
        match self.values {
            Values::Classic(file, variable) => {
                T::copy_from_le_bytes(&file.read(variable, start, extents)?, out);
                Ok(())
            }
            _ => self.dataset.read_box(start, extents, out),
        }
    }
}
