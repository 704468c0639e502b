//! Checks whether a restored array keeps the bound. The arithmetic is in `pumice::metrics`; this module reads the files
//! and shows progress.

use indicatif::ProgressBar;
use pumice::metrics::{Findings, Guarantee, position};
use pumice::{Element, FileSource, ReadAt, Reader, Source};

use crate::failure::Result;

/// Values compared at a time in files without chunks.
const BLOCK: usize = 1 << 20;

/// Compares a source with the values restored from a compressed file.
pub(crate) fn with_reader<T: Element, R: ReadAt>(
    original: &dyn Source<T>,
    reader: &Reader<R>,
    guarantee: &Guarantee,
    bar: &ProgressBar,
) -> Result<Findings> {
    Ok(guarantee.check(original, reader, |n_bytes| bar.set_position(n_bytes))?)
}

/// Compares two files of the same shape; both sources see the values as a plain list.
pub(crate) fn with_file<T: Element, R: ReadAt>(
    original: &FileSource<R>,
    restored: &FileSource<R>,
    shape: &[usize],
    guarantee: &Guarantee,
    bar: &ProgressBar,
) -> Result<Findings> {
    let mut findings = Findings::default();
    let n_values = shape.iter().fold(1, |n: usize, extent| n.saturating_mul(*extent));
    let (mut a, mut b) = (vec![T::default(); BLOCK.min(n_values)], vec![T::default(); BLOCK.min(n_values)]);
    for start in (0..n_values).step_by(BLOCK) {
        let n = BLOCK.min(n_values - start);
        original.read_box(&[start], &[n], &mut a[..n])?;
        restored.read_box(&[start], &[n], &mut b[..n])?;
        let range = start..start + n;
        let region = std::slice::from_ref(&range);
        findings.add(region, &guarantee.compare(region, &a[..n], &b[..n])?);
        bar.inc(size_of_val(&a[..n]) as u64);
    }
    findings.worst = findings.worst.map(|list| position(list[0], shape));
    Ok(findings)
}
