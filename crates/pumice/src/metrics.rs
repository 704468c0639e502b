//! How well a restored array matches the original: error statistics, and the check of the bound. The check is exact:
//! `|x - x'| <= bound` is decided on the true difference, not on its rounded value, so that a value that breaks the
//! bound by less than one rounding error is still reported.

use std::ops::Range;

use crate::codec::Element;
use crate::codec::layers::bins;
use crate::decompress::{Info, Reader};
use crate::error::Result;
use crate::exec::{self, DefaultFloats, filled, reserve};
use crate::grid::{self, Block, Corner};
use crate::io::{ReadAt, Source};
use crate::plan::{self, BoxLimit, Limit, is_within_share};

/// The outcome of comparing two arrays, or several parts of them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// Number of values compared.
    pub n_values: u64,
    /// Greatest error of a finite value that is not a fill value; infinite if one became NaN or infinite.
    pub max_abs_error: f64,
    /// Where that error is; `None` if there are no such values.
    pub worst_index: Option<usize>,
    /// The original value there; NaN if there is none.
    pub worst_original: f64,
    /// The restored value there; NaN if there is none.
    pub worst_restored: f64,
    /// Peak signal to noise ratio in dB: `20 log10((max - min) / rmse)`; infinite without error.
    pub psnr: f64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// `rmse` over the range of values; 0 without error.
    pub nrmse: f64,
    /// Root of the sum of squared errors.
    pub l2_norm: f64,
    /// Least finite original value that is not a fill value; NaN if there is none.
    pub min: f64,
    /// Greatest finite original value that is not a fill value; NaN if there is none.
    pub max: f64,
    /// NaN, infinite and fill values that did not come back bit for bit.
    pub n_mismatched_special: u64,
    /// Finite values whose error is above the bound.
    pub n_over: u64,
    /// Greatest error of a finite value relative to what is allowed for that value: at most 1 if the bound is kept.
    pub max_error_over_bound: f64,
    n_finite: u64,
    sum_of_squares: f64,
}

impl Default for Comparison {
    /// The comparison of nothing, to merge others into.
    fn default() -> Self {
        Self {
            n_values: 0,
            max_abs_error: 0.0,
            worst_index: None,
            worst_original: f64::NAN,
            worst_restored: f64::NAN,
            psnr: f64::INFINITY,
            rmse: 0.0,
            nrmse: 0.0,
            l2_norm: 0.0,
            min: f64::NAN,
            max: f64::NAN,
            n_mismatched_special: 0,
            n_over: 0,
            max_error_over_bound: 0.0,
            n_finite: 0,
            sum_of_squares: 0.0,
        }
    }
}

impl Comparison {
    /// Whether every value is within the bound, or equal where it must be.
    pub fn bound_kept(&self) -> bool {
        self.n_over == 0 && self.n_mismatched_special == 0
    }

    /// Adds the comparison of the part that follows this one: its indices count from the end of this one.
    pub fn merge(&mut self, next: &Comparison) {
        if next.worst_index.is_some() && (self.worst_index.is_none() || next.max_abs_error > self.max_abs_error) {
            self.max_abs_error = next.max_abs_error;
            self.worst_index = next.worst_index.map(|i| i + self.n_values as usize);
            self.worst_original = next.worst_original;
            self.worst_restored = next.worst_restored;
        }
        self.min = self.min.min(next.min); // the number, if one of them is NaN
        self.max = self.max.max(next.max);
        self.n_values += next.n_values;
        self.n_finite += next.n_finite;
        self.n_over += next.n_over;
        self.max_error_over_bound = self.max_error_over_bound.max(next.max_error_over_bound);
        self.n_mismatched_special += next.n_mismatched_special;
        self.sum_of_squares += next.sum_of_squares;
        self.derive();
    }

    /// Recomputes what follows from the sums.
    fn derive(&mut self) {
        let range = self.max - self.min;
        self.rmse = if self.n_finite == 0 { 0.0 } else { (self.sum_of_squares / self.n_finite as f64).sqrt() };
        self.l2_norm = self.sum_of_squares.sqrt();
        let no_error = self.rmse == 0.0;
        self.nrmse = if no_error { 0.0 } else { self.rmse / range };
        self.psnr = if no_error { f64::INFINITY } else { 20.0 * (range / self.rmse).log10() };
    }
}

/// What a comparison found, and where the largest error is in the array.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Findings {
    /// All values together.
    pub total: Comparison,
    /// Position of the value with the largest error; `None` if no value can have one.
    pub worst: Option<Vec<usize>>,
}

impl Findings {
    /// Adds the comparison of a box of the array.
    pub fn add(&mut self, region: &[Range<usize>], part: &Comparison) {
        if let Some(index) = part.worst_index
            && (self.worst.is_none() || part.max_abs_error > self.total.max_abs_error)
        {
            let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
            let inside = position(index, &extents);
            self.worst = Some(inside.iter().zip(region).map(|(i, range)| i + range.start).collect());
        }
        self.total.merge(part);
    }
}

/// The position along each axis of a value of an array of this shape, given its index in C order.
///
/// ```
/// assert_eq!(pumice::metrics::position(17, &[2, 3, 4]), [1, 1, 1]);
/// ```
pub fn position(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut position = vec![0; shape.len()];
    for (i, &extent) in position.iter_mut().zip(shape).rev() {
        *i = index % extent;
        index /= extent;
    }
    position
}

/// Values that are compared at a time where limits differ, if rows along the slowest axis are not larger.
const SLAB_VALUES: usize = 1 << 16;
/// Memory that a value takes, beside copies of it, where means of bins are compared: sum, count, and two means.
const BYTES_WITH_MEAN: usize = 48;

/// Compares two arrays of one size value by value. `fills` are values that must come back bit for bit, like NaN and
/// infinities; so must all values if `bound` is 0.
///
/// ```
/// let found = pumice::metrics::compare(&[1.0f32, 2.0, f32::NAN], &[1.5, 2.0, f32::NAN], 0.5, &[]);
/// assert_eq!((found.max_abs_error, found.worst_index), (0.5, Some(0)));
/// assert!(found.bound_kept());
/// ```
///
/// # Panics
/// If the sizes differ.
pub fn compare<T: Element>(original: &[T], restored: &[T], bound: f64, fills: &[f64]) -> Comparison {
    let limit = Limit { abs: bound, pointwise: f64::INFINITY };
    compare_under(original, restored, |_| limit, fills)
}

/// Compares two arrays under a limit for each value, which is a function of its index.
fn compare_under<T: Element>(
    original: &[T],
    restored: &[T],
    limit_at: impl Fn(usize) -> Limit,
    fills: &[f64],
) -> Comparison {
    assert_eq!(original.len(), restored.len(), "arrays of different size cannot be compared");
    let _floats = DefaultFloats::set();
    let fills: Vec<u64> = fills.iter().map(|&fill| T::from_f64(fill).to_bits_u64()).collect();
    let mut found = Comparison { n_values: original.len() as u64, ..Comparison::default() };
    for (i, (&x, &y)) in original.iter().zip(restored).enumerate() {
        let same = x.to_bits_u64() == y.to_bits_u64();
        if !x.is_finite() || fills.contains(&x.to_bits_u64()) {
            found.n_mismatched_special += u64::from(!same);
            continue;
        }
        let (x, y) = (x.to_f64(), y.to_f64());
        found.n_finite += 1;
        found.min = found.min.min(x);
        found.max = found.max.max(x);
        let limit = limit_at(i);
        let kept = match limit.is_lossless() {
            true => same,
            false => {
                within(x, y, limit.abs) && (limit.pointwise.is_infinite() || is_within_share(x, y, limit.pointwise))
            }
        };
        found.n_over += u64::from(!kept);
        let error = if y.is_finite() { (x - y).abs() } else { f64::INFINITY };
        if error > 0.0 {
            let allowed = limit.abs.min(limit.pointwise * x.abs());
            found.max_error_over_bound = found.max_error_over_bound.max(error / allowed);
        }
        found.sum_of_squares += error * error;
        if error > found.max_abs_error || found.worst_index.is_none() {
            found.max_abs_error = error;
            found.worst_index = Some(i);
            (found.worst_original, found.worst_restored) = (x, y);
        }
    }
    found.derive();
    found
}

/// All that a stream guarantees: its bounds, those of its regions, and which values are only means of bins.
///
/// ```
/// use pumice::{ErrorBound, Config, metrics::Guarantee};
/// let data: Vec<f32> = (1..1000).map(|i| i as f32).collect();
/// let bytes = pumice::compress(&data, &[999], &Config::new(ErrorBound::PwRel(1e-3)))?;
/// let restored = pumice::decompress::<f32>(&bytes)?.data;
/// let guarantee = Guarantee::of(&pumice::inspect(&bytes)?);
/// let found = guarantee.compare(&[0..999], &data, &restored)?;
/// assert!(found.bound_kept() && found.max_error_over_bound <= 1.0);
/// # Ok::<(), pumice::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Guarantee {
    limit: Limit,
    boxes: Vec<BoxLimit>,
    bin: Vec<usize>,
    fills: Vec<f64>,
}

impl Guarantee {
    /// The guarantee of a stream.
    pub fn of(info: &Info) -> Self {
        let limit = plan::limit_of(info.abs_bound, info.bound, &info.bounds);
        Self { limit, boxes: info.boxes.clone(), bin: info.bin.clone(), fills: info.fills.clone() }
    }

    /// `|x - x'| <= min(abs, pointwise * |x|)` for every value; a limit is infinite if it was not asked for; if one of
    /// them is 0, values are kept bit for bit. `fills` are kept bit for bit.
    pub fn new(abs: f64, pointwise: f64, fills: &[f64]) -> Self {
        Self { limit: Limit { abs, pointwise }, boxes: Vec::new(), bin: Vec::new(), fills: fills.to_vec() }
    }

    /// Whether only means of bins are guaranteed outside of the regions.
    pub fn is_binned(&self) -> bool {
        !self.bin.is_empty()
    }

    /// Compares an array with what its stream restores, in memory for a few chunks. `progress` is called with the number of
    /// bytes compared so far.
    pub fn check<T: Element, R: ReadAt>(
        &self,
        original: &dyn Source<T>,
        reader: &Reader<R>,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<Findings> {
        let mut findings = Findings::default();
        let mut expected = Vec::new();
        reader.for_each_chunk::<T>(0..reader.n_chunks(), |region, restored| {
            let start: Vec<usize> = region.iter().map(|range| range.start).collect();
            let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
            let n_more = restored.len().saturating_sub(expected.len());
            reserve(&mut expected, n_more)?;
            expected.resize(restored.len(), T::default());
            original.read_box(&start, &extents, &mut expected)?;
            findings.add(region, &self.compare(region, &expected, restored)?);
            progress(findings.total.n_values * size_of::<T>() as u64);
            Ok(())
        })?;
        Ok(findings)
    }

    /// Compares a chunk of the array (see [`Reader::chunk_region`](crate::Reader::chunk_region)) with what it became.
    /// Where only means of bins are kept, the means are compared. Fails only if the system has no memory.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn compare<T: Element>(&self, chunk: &[Range<usize>], original: &[T], restored: &[T]) -> Result<Comparison> {
        assert_eq!(original.len(), restored.len(), "arrays of different size cannot be compared");
        let block = Block {
            start: chunk.iter().map(|range| range.start).collect(),
            extents: chunk.iter().map(ExactSizeIterator::len).collect(),
        };
        let is_plain = self.bin.is_empty() && self.boxes.iter().all(|b| b.block.intersection(&block).n_values() == 0);
        let row_values: usize = block.extents.iter().skip(1).product();
        if is_plain || row_values == 0 {
            return Ok(compare_under(original, restored, |_| self.limit, &self.fills));
        }
        // Slabs of whole bins, so that limits and means take little memory.
        let bin_rows = self.bin.first().copied().unwrap_or(1);
        let n_rows = (SLAB_VALUES / row_values).max(1).next_multiple_of(bin_rows);
        let mut found = Comparison::default();
        let parts = original.chunks(n_rows * row_values).zip(restored.chunks(n_rows * row_values));
        for (i, (original, restored)) in parts.enumerate() {
            let mut slab = block.clone();
            if let (Some(start), Some(extent)) = (slab.start.first_mut(), slab.extents.first_mut()) {
                *start += i * n_rows;
                *extent = original.len() / row_values;
            }
            found.merge(&self.compare_slab(&slab, original, restored)?);
        }
        Ok(found)
    }

    fn compare_slab<T: Element>(&self, slab: &Block, original: &[T], restored: &[T]) -> Result<Comparison> {
        let nothing = Limit { abs: f64::INFINITY, pointwise: f64::INFINITY };
        let within_boxes = if self.bin.is_empty() { self.limit } else { nothing };
        let mut limits = filled(self.limit, original.len())?;
        let mut is_boxed = filled(false, original.len())?;
        for BoxLimit { block, limit, .. } in &self.boxes {
            let common = block.intersection(slab);
            if common.n_values() == 0 {
                continue;
            }
            let start = common.start_in(slab);
            let corner = Corner { shape: &slab.extents, start: &start };
            let marked = grid::for_each_run(corner, corner, &common.extents, |at, _, n| {
                for i in at..at + n {
                    limits[i] = if is_boxed[i] { limits[i] } else { within_boxes }.meet(*limit);
                    is_boxed[i] = true;
                }
                Ok(())
            });
            debug_assert!(marked.is_ok());
        }
        if self.bin.is_empty() {
            return Ok(compare_under(original, restored, |i| limits[i], &self.fills));
        }
        exec::check_memory((BYTES_WITH_MEAN + 3 * size_of::<T>()) as u64 * original.len() as u64)?;
        let fills: Vec<u64> = self.fills.iter().map(|&fill| T::from_f64(fill).to_bits_u64()).collect();
        let is_valid: Vec<bool> = original.iter().map(|x| x.is_finite() && !fills.contains(&x.to_bits_u64())).collect();
        let means = bins::means(original, &is_valid, &slab.extents, &self.bin);
        let mut spread = vec![None; original.len()];
        bins::spread(&means, &slab.extents, &self.bin, &mut spread);
        let mut expected = original.to_vec();
        for i in (0..original.len()).filter(|i| is_valid[*i] && !is_boxed[*i]) {
            expected[i] = spread[i].unwrap_or(expected[i]);
        }
        Ok(compare_under(&expected, restored, |i| limits[i], &self.fills))
    }
}

/// Whether `|x - y| <= bound`, exactly; `x` is finite.
fn within(x: f64, y: f64, bound: f64) -> bool {
    let rounded = (x - y).abs();
    // Rounding is monotonic: a rounded difference on one side of the bound has the true one on the same side.
    if rounded < bound {
        return true;
    }
    // Also for NaN.
    if rounded != bound || rounded.is_infinite() {
        return false;
    }
    // On a tie, the rounding error decides, which TwoSum gives exactly. `excess` is |x - y| - rounded.
    let (a, b) = if x >= y { (x, -y) } else { (y, -x) };
    let sum = a + b;
    let b_part = sum - a;
    let excess = (a - (sum - b_part)) + (b - b_part);
    excess <= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ties_are_decided_exactly() {
        let ulp = f64::EPSILON;
        // 1 - -2^-60 rounds to 1 but is above it; 1 - 2^-60 is below.
        assert!(!within(1.0, -(2f64.powi(-60)), 1.0));
        assert!(within(1.0, 2f64.powi(-60), 1.0));
        assert!(within(-1.0, -(2f64.powi(-60)), 1.0));
        assert!(!within(-1.0, 2f64.powi(-60), 1.0));
        assert!(within(1.0, 0.0, 1.0));
        assert!(!within(1.0 + ulp, 0.0, 1.0));
        assert!(!within(1.0, f64::NAN, 1.0));
        assert!(!within(1.0, f64::INFINITY, 1e308));
        assert!(!within(f64::MAX, -f64::MAX, f64::MAX));
        assert!(within(f64::MAX, 0.0, f64::MAX));
        // Ties at the greatest magnitude, where TwoSum must not overflow.
        assert!(!within(f64::MAX, -1.0, f64::MAX));
        assert!(within(f64::MAX, 1.0, f64::MAX));
        assert!(within(5e-324, 0.0, 5e-324));
    }

    #[test]
    fn f32_differences_beyond_f64() {
        // Exponents 60 apart: the difference of two f32 that f64 does not hold.
        let tiny = 2f32.powi(-60);
        assert_eq!(compare(&[1.0f32], &[-tiny], 1.0, &[]).n_over, 1);
        assert_eq!(compare(&[1.0f32], &[tiny], 1.0, &[]).n_over, 0);
        // A bound between two f64: 0.1 as f64 is above 0.1f32 - 0.
        assert_eq!(compare(&[0.1f32], &[0.0], 0.1, &[]).n_over, 1);
        assert_eq!(compare(&[0.1f32], &[0.0], f64::from(0.1f32), &[]).n_over, 0);
    }

    #[test]
    fn special_values_must_be_equal() {
        let original = [f32::NAN, f32::INFINITY, 1e20, 1.0, 3.0, 0.0];
        let restored = [f32::NAN, f32::MAX, 1e20, 1.5, 3.0, -0.0];
        let found = compare(&original, &restored, 0.5, &[f64::from(1e20f32)]);
        assert_eq!((found.n_mismatched_special, found.n_over), (1, 0));
        assert_eq!((found.min, found.max, found.worst_index), (0.0, 3.0, Some(3)));
        assert!(!found.bound_kept());
        assert_eq!(compare(&original[5..], &restored[5..], 0.0, &[]).n_over, 1);
        let lost = compare(&[1.0f64], &[f64::NAN], 1e300, &[]);
        assert_eq!((lost.n_over, lost.max_abs_error), (1, f64::INFINITY));
    }

    #[test]
    fn merged_parts_equal_the_whole() {
        let original: Vec<f64> = (0..100).map(|i| f64::from(i * i)).collect();
        let restored: Vec<f64> = original.iter().enumerate().map(|(i, x)| x + ((i * 37) % 11) as f64).collect();
        let whole = compare(&original, &restored, 5.0, &[]);
        let mut merged = Comparison::default();
        for (a, b) in original.chunks(7).zip(restored.chunks(7)) {
            merged.merge(&compare(a, b, 5.0, &[]));
        }
        assert_eq!(merged, whole); // sums of small integers are exact
        assert!(whole.n_over > 0 && whole.rmse > 0.0 && whole.psnr > 0.0);
    }
}
