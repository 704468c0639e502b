//! `libpumice_mpi_shim.so` for `LD_PRELOAD`: compresses the files and gathers of MPI programs that are not changed.
//!
//! The library has functions of MPI under their own names, so that a program calls these instead of those of its MPI
//! library; what is not to be compressed is handed on. `PUMICE_MPI_SHIM` names a TOML file that says which files hold
//! arrays, and what may be lost. docs/mpi-shim.md of the repository describes it.
//!
//! ```text
//! exports      the functions of MPI; what they hand on, and how errors and panics stay within
//! config       the rules
//! open_files   handles of the program, and what stands behind them
//! files        output: what is written is kept until the file is closed; input: Pumice files that are read
//! datatype     what MPI's types lay out;  view: which bytes of a file a rank sees
//! boxes        runs of values as boxes of an array
//! gather       gathers, compressed on their way
//! report       what was saved, and what was not compressed and why
//! ```
//!
//! Needs the feature `mpi`; without it, the library is empty.
#![cfg(feature = "mpi")]

mod agreement;
mod boxes;
mod config;
mod datatype;
mod exports;
mod files;
mod gather;
mod memory;
mod report;
mod session;
mod view;
