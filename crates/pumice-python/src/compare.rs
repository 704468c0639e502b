//! Whether restored values keep a bound, chunk by chunk; the arithmetic is `pumice::metrics`.

use std::ops::Range;

use numpy::PyUntypedArrayMethods;
use pumice::metrics::{Comparison, Guarantee};
use pumice::{Element, Error, ErrorKind, ReadAt, SliceSource, Source};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::config::Values;
use crate::error::OrRaise;
use crate::reader::check_like;
use crate::report;

/// The outcome of a comparison.
pub(crate) struct Findings {
    pub(crate) total: Comparison,
    /// Coordinates of the value with the largest error.
    pub(crate) worst: Option<Vec<usize>>,
}

/// Compares an array with what a stream gives back, in the memory of a few chunks.
pub(crate) fn with_reader<T: Element, R: ReadAt>(
    original: &[T],
    shape: &[usize],
    reader: &pumice::Reader<R>,
    guarantee: &Guarantee,
) -> pumice::Result<Findings> {
    check_like::<T, R>(shape, reader)?;
    let source = SliceSource::new(original, shape)?;
    let mut found = Findings { total: Comparison::default(), worst: None };
    let mut expected = Vec::new();
    reader.for_each_chunk::<T>(0..reader.n_chunks(), |region, restored| {
        let start: Vec<usize> = region.iter().map(|range| range.start).collect();
        let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
        expected.resize(restored.len(), T::default());
        source.read_box(&start, &extents, &mut expected)?;
        let chunk = guarantee.compare(region, &expected, restored);
        if let Some(at) = chunk.worst_index
            && (found.worst.is_none() || chunk.max_abs_error > found.total.max_abs_error)
        {
            found.worst = Some(coordinates(at, region));
        }
        found.total.merge(&chunk);
        Ok(())
    })?;
    Ok(found)
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
            py.detach(|| whole(shape, a, b, &guarantee))
        }
        (Values::F64(a), Values::F64(b)) if a.shape() == b.shape() => {
            let (shape, a, b) = (a.shape(), a.as_slice()?, b.as_slice()?);
            py.detach(|| whole(shape, a, b, &guarantee))
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

fn whole<T: Element>(shape: &[usize], original: &[T], restored: &[T], guarantee: &Guarantee) -> Findings {
    let region: Vec<Range<usize>> = shape.iter().map(|extent| 0..*extent).collect();
    let total = guarantee.compare(&region, original, restored);
    Findings { total, worst: total.worst_index.map(|at| coordinates(at, &region)) }
}

/// Coordinates in the whole array of an offset in a box of it, in C order.
fn coordinates(mut offset: usize, region: &[Range<usize>]) -> Vec<usize> {
    let mut index = vec![0; region.len()];
    for (i, range) in index.iter_mut().zip(region).rev() {
        *i = range.start + offset % range.len();
        offset /= range.len();
    }
    index
}
