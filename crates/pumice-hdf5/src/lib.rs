//! Pumice as a filter of HDF5, and so of NetCDF-4: a plugin that works with every libhdf5 that loads it, and links none.
//!
//! ```text
//! filter.rs    what libhdf5 calls: can_apply, set_local, filter; nothing unwinds out of it
//! library.rs   the libhdf5 that called, its functions and its error stack
//! words.rs     cd_values: what the user asks for, and what set_local adds
//! chunk.rs     the bytes of a chunk <-> a Pumice stream
//! files.rs     for programs: files, through a libhdf5 that is loaded at run time (feature `files`)
//! ```
//!
//! docs/hdf5.md specifies the words. Programs that have loaded a libhdf5 themselves register [`filter_class`] with its
//! `H5Zregister`.
#![allow(unsafe_code, reason = "is called by C, and calls C")]

mod chunk;
#[cfg(feature = "files")]
pub mod files;
mod filter;
mod library;
mod words;

pub use chunk::{decode, encode};
pub use filter::{FilterClass, H5PLget_plugin_info, H5PLget_plugin_type, filter_class};
pub use words::{ByteOrder, ChunkType, Wish, Words};

/// The filter's number, from the range that is free for testing: change it here, and in `pumice/hdf5/__init__.py` of the Python package, once one is
/// registered with the HDF Group.
pub const FILTER_ID: i32 = 480;
