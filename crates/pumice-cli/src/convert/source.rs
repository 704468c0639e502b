//! The input, HDF5 or classic NetCDF: an HDF5 tree, and values that are read box by box. For a classic NetCDF file the
//! tree holds the structure only; values are read from the file itself.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use pumice::Element;
use pumice::backend::{Corner, for_each_run};
use pumice_hdf5::files::{Dataset, ElementType, Group, Value};

use super::catalog::{Catalog, Kind};
use super::classic::{self, Classic, is_classic};
use super::netcdf4::{AXES, ID, PROPERTIES, Structure, dimension_ids, is_scale, structure_of};
use super::record::HISTORY;
use super::variable::{copy_corner, filled};
use crate::failure::{Failure, Result, io_context};
use crate::foreign;

pub(crate) struct Input {
    /// Groups, datasets and attributes.
    pub(crate) root: Group,
    classic: Option<(Classic, HashMap<String, usize>)>,
    /// Attributes that the tree cannot represent.
    pub(crate) left_out: Vec<String>,
    /// Shapes of the variables that are shorter than their dimensions, by path, once [`Self::extend`] was called.
    extended: HashMap<String, Vec<usize>>,
}

impl Input {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut head = Vec::new();
        if path.is_dir() {
            return Err(foreign::refuse_folder_conversion(path));
        }
        let file = File::open(path).map_err(io_context("read", path))?;
        (&file).take(foreign::HEAD_BYTES as u64).read_to_end(&mut head).map_err(io_context("read", path))?;
        if !is_classic(&head) {
            let root = Group::open_file(path).map_err(|e| foreign::refuse_conversion(path, &head, e.into()))?;
            return Ok(Self { root, classic: None, left_out: Vec::new(), extended: HashMap::new() });
        }
        let classic = Classic::open(file).map_err(|e| Failure::from(e).at(path))?;
        let Structure { root, variables, left_out } = structure_of(&classic).map_err(|e| e.at(path))?;
        Ok(Self { root, classic: Some((classic, variables)), left_out, extended: HashMap::new() })
    }

    /// Gives variables that end before their unlimited dimensions do the extents of these dimensions, as NetCDF does: what
    /// is missing is read as the fill value.
    pub(crate) fn extend(&mut self, catalog: &Catalog) -> Result<()> {
        let is_dataset = |kind: &Kind| matches!(kind, Kind::Dimension | Kind::Kept | Kind::Compressed(_));
        let paths: Vec<String> =
            catalog.items.iter().filter(|item| is_dataset(&item.kind)).map(|item| item.path()).collect();
        let mut by_id: HashMap<i64, String> = HashMap::new();
        for path in &paths {
            by_id.extend(dimension_ids(&self.root.dataset(path)?, ID)?.into_iter().map(|id| (id, format!("/{path}"))));
        }
        // The unlimited dimension of each axis, if it is known.
        let mut axes: HashMap<&String, Vec<Option<String>>> = HashMap::new();
        let mut lengths: HashMap<String, usize> = HashMap::new();
        for path in &paths {
            let dataset = self.root.dataset(path)?;
            let (scales, ids) = (dataset.dimension_paths()?, dimension_ids(&dataset, AXES)?);
            let own = (is_scale(&dataset)? && scales.len() == 1).then(|| format!("/{path}"));
            let names =
                scales.into_iter().enumerate().zip(dataset.is_unlimited()?).map(|((axis, scale), is_unlimited)| {
                    let by_number = || ids.get(axis).and_then(|id| by_id.get(id)).cloned();
                    scale.or_else(by_number).or_else(|| own.clone()).filter(|_| is_unlimited)
                });
            let names: Vec<Option<String>> = names.collect();
            for (name, extent) in names.iter().zip(dataset.shape()) {
                if let Some(name) = name {
                    let longest = lengths.entry(name.clone()).or_default();
                    *longest = (*longest).max(*extent);
                }
            }
            axes.insert(path, names);
        }
        for (path, names) in axes {
            let dataset = self.root.dataset(path)?;
            let extents = names.iter().zip(dataset.shape());
            let shape: Vec<usize> =
                extents.map(|(name, extent)| name.as_ref().map_or(*extent, |name| lengths[name])).collect();
            if shape != dataset.shape() {
                self.extended.insert(path.clone(), shape);
            }
        }
        Ok(())
    }

    /// Whether the conventions of NetCDF apply to its attributes.
    pub(crate) fn is_netcdf(&self) -> Result<bool> {
        let has = |name: &str| -> Result<bool> { Ok(self.root.value(name)?.is_some()) };
        Ok(self.classic.is_some() || has(PROPERTIES)? || has("Conventions")? || has(HISTORY)?)
    }

    /// The history of the file.
    pub(crate) fn history(&self) -> Result<Option<String>> {
        Ok(match self.root.value(HISTORY)? {
            Some(Value::Texts(lines)) => Some(lines.join("\n")),
            _ => None,
        })
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
        let shape = self.extended.get(path).cloned().unwrap_or_else(|| dataset.shape().to_vec());
        Ok(Variable { dataset, shape, values })
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
    /// Type, attributes, and the shape of what is stored.
    pub(crate) dataset: Dataset,
    shape: Vec<usize>,
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

    /// Extents, slowest axis first; they may exceed those of the dataset, see [`Input::extend`].
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The part of a box that is stored.
    fn stored_extents(&self, start: &[usize], extents: &[usize]) -> Vec<usize> {
        let stored = self.dataset.shape().iter();
        stored.zip(start).zip(extents).map(|((stored, start), n)| stored.saturating_sub(*start).min(*n)).collect()
    }

    /// The values of a box as little-endian bytes of type `element`, which is that of [`Self::element`].
    pub(crate) fn read_bytes(
        &self,
        element: ElementType,
        start: &[usize],
        extents: &[usize],
    ) -> pumice::Result<Vec<u8>> {
        if let Values::Classic(file, variable) = self.values {
            return file.read(variable, start, extents);
        }
        let stored = self.stored_extents(start, extents);
        if stored == extents {
            return self.dataset.read_bytes(element, start, extents);
        }
        let mut bytes = filled(0, extents.iter().product::<usize>() * element.size())?;
        let fill = self.dataset.fill_bytes(element)?;
        bytes.chunks_exact_mut(fill.len()).for_each(|value| value.copy_from_slice(&fill));
        if !stored.contains(&0) {
            let found = self.dataset.read_bytes(element, start, &stored)?;
            copy_corner(&found, &stored, &mut bytes, extents, &stored, element.size());
        }
        Ok(bytes)
    }

    /// Fills `out` with the values of a box of floats.
    pub(crate) fn read_box<T: Element>(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> pumice::Result<()> {
        if matches!(self.values, Values::Stored) && self.stored_extents(start, extents) == extents {
            return self.dataset.read_box(start, extents, out);
        }
        T::copy_from_le_bytes(&self.read_bytes(ElementType::Float(T::DTYPE), start, extents)?, out);
        Ok(())
    }

    /// All values, if they are strings; those that are not stored are empty.
    pub(crate) fn texts(&self) -> Result<Option<Vec<String>>> {
        let Some(mut found) = self.dataset.texts()? else { return Ok(None) };
        let stored = self.dataset.shape();
        if stored == self.shape {
            return Ok(Some(found));
        }
        let mut texts = vec![String::new(); self.shape.iter().product()];
        let origin = vec![0; stored.len()];
        let corner = |shape| Corner { shape, start: &origin };
        for_each_run(corner(stored), corner(&self.shape), stored, |from, to, n| {
            texts[to..to + n].swap_with_slice(&mut found[from..from + n]);
            Ok(())
        })?;
        Ok(Some(texts))
    }
}
