//! Chunks of the HDF5 filter, for programs that write them themselves.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::config::to_bytes;
use crate::error::OrRaise;
use crate::reader::Bytes;

/// Compresses the part of a chunk that lies within a dataset, given as the bytes of its values, to what the filter would store.
#[pyfunction]
pub(crate) fn hdf5_compress_chunk<'py>(
    py: Python<'py>,
    cd_values: Vec<u32>,
    values: &Bound<'py, PyAny>,
    count: Vec<usize>,
    threads: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let values = Bytes::of(values)?;
    let stream = py.detach(|| pumice_hdf5::encode_part(&cd_values, values.as_slice(), &count, threads));
    to_bytes(py, &stream.or_raise(py)?)
}
