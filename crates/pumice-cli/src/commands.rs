//! One module per command: its arguments (`Args`) and its implementation (`run`).

pub(crate) mod analyze;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod codebook;
pub(crate) mod completions;
pub(crate) mod compress;
#[cfg(feature = "hdf5")]
pub(crate) mod convert;
pub(crate) mod decompress;
pub(crate) mod demo;
pub(crate) mod info;
pub(crate) mod man;
#[cfg(feature = "hdf5")]
mod records;
pub(crate) mod recover;
