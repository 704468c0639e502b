//! What becomes of the variables of an HDF5 or NetCDF-4 file.
//!
//! ```text
//! rules.rs     fields.toml: bounds, presets and chunks by the names of variables
//! catalog.rs   everything in the input, and what is to be done with it
//! variable.rs  one variable: its range, its chunks, the largest error found
//! to_hdf5.rs   the same tree as an HDF5 or NetCDF-4 file
//! to_zarr.rs   the same tree as a Zarr store of format 3
//! ```
//!
//! Files are read through a libhdf5 that is loaded when it is needed.

pub(crate) mod catalog;
pub(crate) mod rules;
pub(crate) mod to_hdf5;
pub(crate) mod to_zarr;
pub(crate) mod variable;
