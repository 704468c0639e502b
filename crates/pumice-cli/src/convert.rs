//! Compresses the variables of an HDF5 or NetCDF file.
//!
//! ```text
//! rules.rs     fields.toml: bounds, presets and chunks by the names of variables
//! source.rs    the input: a tree, and values box by box
//! classic.rs   classic NetCDF files
//! netcdf4.rs   the structure of a classic file as a tree of HDF5
//! catalog.rs   lists the input and decides what to do with each member
//! variable.rs  one variable: its range, its chunks, the largest error found
//! to_hdf5.rs   the same tree as an HDF5 or NetCDF-4 file
//! to_zarr.rs   the same tree as a Zarr store of format 3
//! ```
//!
//! HDF5 is read and written through libhdf5, which is loaded at run time.

pub(crate) mod catalog;
mod classic;
mod netcdf4;
pub(crate) mod rules;
pub(crate) mod source;
pub(crate) mod to_hdf5;
pub(crate) mod to_zarr;
pub(crate) mod variable;
