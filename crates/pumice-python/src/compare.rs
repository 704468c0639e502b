//! Whether restored values keep a bound, chunk by chunk; the arithmetic is `pumice::metrics`.

use std::ops::Range;

use numpy::PyUntypedArrayMethods;
use pumice::metrics::{Findings, Guarantee};
use pumice::{Element, Error, ErrorKind, ReadAt, SliceSource};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::config::Values;
use crate::error::OrRaise;
use crate::reader::check_like;
use crate::report;

/// Compares an array with the values of a stream, with memory for a few chunks.
pub(crate) fn with_reader<T: Element, R: ReadAt>(
    original: &[T],
    shape: &[usize],
    reader: &pumice::Reader<R>,
    guarantee: &Guarantee,
) -> pumice::Result<Findings> {
    check_like::<T, R>(shape, reader)?;
    guarantee.check(&SliceSource::new(original, shape)?, reader, |_| ())
}

/// Compares two arrays; `limits` are an absolute bound and a bound relative to each value.
#[pyfunction]
pub(crate) fn compare_arrays<'py>(
    py: Python<'py>,
    original: Values<'py>,
    restored: Values<'py>,
    limits: (f64, f64),
    fills: Vec<f64>,
) -> PyResult<Bound<'py, PyDict>> {
    let guarantee = Guarantee::new(limits.0, limits.1, &fills);
    let found = match (&original, &restored) {
        (Values::F32(a), Values::F32(b)) if a.shape() == b.shape() => {
            let (shape, a, b) = (a.shape(), a.as_slice()?, b.as_slice()?);
            py.detach(|| whole(shape, a, b, &guarantee)).or_raise(py)?
        }
        (Values::F64(a), Values::F64(b)) if a.shape() == b.shape() => {
            let (shape, a, b) = (a.shape(), a.as_slice()?, b.as_slice()?);
            py.detach(|| whole(shape, a, b, &guarantee)).or_raise(py)?
        }
        _ => {
            let text = |values: &Values<'_>| format!("shape {:?} and type {}", values.shape(), values.dtype());
            let message = format!(
                "only arrays of one shape and type can be compared, not of {} with {}",
                text(&original),
                text(&restored)
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message)).or_raise(py);
        }
    };
    report::comparison(py, &found)
}

fn whole<T: Element>(
    shape: &[usize],
    original: &[T],
    restored: &[T],
    guarantee: &Guarantee,
) -> pumice::Result<Findings> {
    let region: Vec<Range<usize>> = shape.iter().map(|extent| 0..*extent).collect();
    let mut found = Findings::default();
    found.add(&region, &guarantee.compare(&region, original, restored)?);
    Ok(found)
}
