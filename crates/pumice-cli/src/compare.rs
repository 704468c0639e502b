//! Whether a restored array keeps the bound, block by block so that arrays larger than memory can be compared. The
//! arithmetic is `pumice::metrics`; this module walks the arrays and remembers where the worst value is.

use std::ops::Range;

use indicatif::ProgressBar;
use pumice::metrics::{Comparison, Guarantee};
use pumice::{Element, FileSource, ReadAt, Reader, Source};

use crate::failure::Result;

/// Values compared at a time if there are no chunks.
const BLOCK: usize = 1 << 20;

/// The value with the largest error.
#[derive(Clone, Debug)]
pub(crate) struct Worst {
    pub(crate) index: Vec<usize>,
    pub(crate) original: f64,
    pub(crate) restored: f64,
}

/// The outcome of a comparison.
pub(crate) struct Findings {
    pub(crate) total: Comparison,
    pub(crate) worst: Option<Worst>,
    promise: Guarantee,
}

impl Findings {
    fn new(promise: &Guarantee) -> Self {
        Self { total: Comparison::default(), worst: None, promise: promise.clone() }
    }

    /// Adds one block, a box of the array; `locate` turns an offset in it into coordinates of the array.
    fn add<T: Element>(
        &mut self,
        region: &[Range<usize>],
        original: &[T],
        restored: &[T],
        locate: impl Fn(usize) -> Vec<usize>,
    ) {
        let block = self.promise.compare(region, original, restored);
        if let Some(at) = block.worst_index
            && (self.worst.is_none() || block.max_abs_error > self.total.max_abs_error)
        {
            self.worst =
                Some(Worst { index: locate(at), original: block.worst_original, restored: block.worst_restored });
        }
        self.total.merge(&block);
    }
}

/// Compares a source with what a compressed file gives back.
pub(crate) fn with_reader<T: Element, R: ReadAt>(
    original: &dyn Source<T>,
    reader: &Reader<R>,
    promise: &Guarantee,
    bar: &ProgressBar,
) -> Result<Findings> {
    let mut findings = Findings::new(promise);
    let mut expected = Vec::new();
    reader.for_each_chunk::<T>(0..reader.n_chunks(), |region, restored| {
        let start: Vec<usize> = region.iter().map(|r| r.start).collect();
        let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
        expected.resize(restored.len(), T::default());
        original.read_box(&start, &extents, &mut expected)?;
        findings.add(region, &expected, restored, |at| coordinates_in(at, region));
        bar.inc(size_of_val(restored) as u64);
        Ok(())
    })?;
    Ok(findings)
}

/// Compares two files of the same shape; both sources see the values as a plain list.
pub(crate) fn with_file<T: Element, R: ReadAt>(
    original: &FileSource<R>,
    restored: &FileSource<R>,
    shape: &[usize],
    promise: &Guarantee,
    bar: &ProgressBar,
) -> Result<Findings> {
    let mut findings = Findings::new(promise);
    let n_values = shape.iter().fold(1, |n: usize, extent| n.saturating_mul(*extent));
    let (mut a, mut b) = (vec![T::default(); BLOCK.min(n_values)], vec![T::default(); BLOCK.min(n_values)]);
    for start in (0..n_values).step_by(BLOCK) {
        let n = BLOCK.min(n_values - start);
        original.read_box(&[start], &[n], &mut a[..n])?;
        restored.read_box(&[start], &[n], &mut b[..n])?;
        findings.add(std::slice::from_ref(&(start..start + n)), &a[..n], &b[..n], |at| coordinates(start + at, shape));
        bar.inc(size_of_val(&a[..n]) as u64);
    }
    Ok(findings)
}

/// Coordinates of an offset in C order.
fn coordinates(mut offset: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, &extent) in index.iter_mut().zip(shape).rev() {
        *i = offset % extent;
        offset /= extent;
    }
    index
}

/// Coordinates in the whole array of an offset in a box of it.
fn coordinates_in(offset: usize, region: &[Range<usize>]) -> Vec<usize> {
    let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
    coordinates(offset, &extents).iter().zip(region).map(|(i, range)| i + range.start).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_count_the_last_axis_fastest() {
        assert_eq!(coordinates(0, &[2, 3, 4]), [0, 0, 0]);
        assert_eq!(coordinates(23, &[2, 3, 4]), [1, 2, 3]);
        assert_eq!(coordinates(17, &[2, 3, 4]), [1, 1, 1]);
        assert_eq!(coordinates_in(3, &[5..7, 8..10]), [6, 9]);
    }
}
