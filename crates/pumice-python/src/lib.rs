//! The native half of the Python package `pumice`: arrays in and out without copies, and all work without the
//! interpreter's lock. What users see (arguments, documentation, slicing) is Python, in `python/pumice`, which passes only
//! arrays that are C-contiguous, aligned and in native byte order.
#![allow(unsafe_code, reason = "memory of other libraries is taken in as slices")]

mod compare;
mod config;
mod cuda;
mod error;
mod hdf5;
mod reader;
mod report;

use pyo3::prelude::*;

/// The native half of `pumice`; not for direct use.
#[pymodule]
mod _pumice {
    use super::*;

    #[pymodule_export]
    use super::compare::compare_arrays;
    #[pymodule_export]
    use super::config::{Config, analyze, compress, compress_again, compress_to_file, remember};
    #[pymodule_export]
    use super::cuda::{CudaArray, compress_cuda, decompress_cuda};
    #[pymodule_export]
    use super::hdf5::hdf5_compress_chunk;
    #[pymodule_export]
    use super::reader::Reader;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let presets: Vec<&str> = pumice::Preset::ALL.iter().map(|preset| preset.name()).collect();
        module.add("PRESETS", presets)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
