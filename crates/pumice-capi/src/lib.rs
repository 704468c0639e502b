//! Pumice for C, C++ and Fortran: opaque handles, plain functions, one header (`include/pumice.h`, made from this source
//! by `cargo xtask header`).
//!
//! What keeps the interface stable: opaque handles, setters instead of structs that would have to grow, presets by
//! name, and the numbers of the file format and of the exit codes. Functions return enumerations, but take plain
//! integers, since C may pass any number.
//!
//! Invariants: no panic leaves an entry point (`status::guard`); no pointer is used before `arguments.rs` has checked what
//! can be checked; outputs are written only on success.
//!
//! # Safety
//! All functions ask the same of their caller, and the header says it once: a pointer that is not NULL points to as
//! much as the call says, text ends with a NUL, and a handle was returned by this library and is not freed yet.
#![allow(unsafe_code, reason = "is called by C")]
#![allow(clippy::missing_safety_doc, reason = "the same for all functions: see above")]

pub mod status;

mod arguments;
pub mod config;

pub mod buffer;
pub mod hdf5;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod oneshot;
pub mod reader;
pub mod writer;

#[cfg(test)]
mod tests;
