//! Compresses the variables of an HDF5 or NetCDF file.
//!
//! ```text
//! source.rs    the input: a tree, and values box by box
//! classic.rs   classic NetCDF files
//! netcdf4.rs   the structure of a classic file as a tree of HDF5
//! catalog.rs   lists the input and decides what to do with each member
//! packing.rs   scale_factor and add_offset: bounds refer to unpacked values
//! variable.rs  one variable: its range, its chunks, the largest error found
//! record.rs    the attributes that say what was done, and a checksum of the values they speak of
//! to_hdf5.rs   the same tree as an HDF5 or NetCDF-4 file
//! to_zarr.rs   the same tree as a Zarr store of format 3
//! store.rs     reads such a store
//! converted.rs a result of a conversion: its records, and its values
//! ```
//!
//! Which bound, preset and chunks each variable gets is said by the rules of `pumice-fields`.
//!
//! HDF5 is read and written through libhdf5, which is loaded at run time.

pub(crate) mod catalog;
mod classic;
pub(crate) mod converted;
mod netcdf4;
mod packing;
pub(crate) mod record;
pub(crate) mod source;
mod store;
pub(crate) mod to_hdf5;
pub(crate) mod to_zarr;
pub(crate) mod variable;
