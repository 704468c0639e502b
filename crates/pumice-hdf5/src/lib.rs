//! Pumice as a filter for HDF5, and so for NetCDF-4: a plugin that works with every libhdf5 and is linked to none.
//!
//! ```text
//! filter.rs     the callbacks of libhdf5: can_apply, set_local, filter; no panic leaves them
//! library.rs    the libhdf5 that called, its functions and its error stack
//! cd_values.rs  the filter's parameters: the user's options, and what set_local adds
//! chunk.rs      the bytes of a chunk <-> a Pumice stream
//! direct.rs     chunks that programs write themselves, by H5Dwrite_chunk
//! files.rs      reads and writes files through a libhdf5 that is loaded at run time (feature `files`)
//! ```
//!
//! docs/hdf5.md specifies the `cd_values`. A program that has loaded a libhdf5 itself registers `filter_class` with its
//! `H5Zregister`. Without the feature `filter`, which is on by default, only `cd_values.rs`, `chunk.rs` and
//! `direct.rs` are left.
#![allow(unsafe_code, reason = "calls C and is called by it")]

mod cd_values;
mod chunk;
mod direct;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "filter")]
mod filter;
#[cfg(feature = "filter")]
mod library;

pub use cd_values::{ByteOrder, CdValues, ChunkType, FilterOptions, MAX_FILLS};
pub use chunk::{decode, encode};
pub use direct::encode_part;
#[cfg(feature = "filter")]
pub use filter::{FilterClass, H5PLget_plugin_info, H5PLget_plugin_type, filter_class};

/// The filter's number, from the range that HDF5 leaves free for testing. Once the HDF Group has registered one, change it
/// here and in `pumice/hdf5/__init__.py` of the Python package.
pub const FILTER_ID: i32 = 480;
