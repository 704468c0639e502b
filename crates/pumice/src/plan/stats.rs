//! Value range and fill values, found in one pass over the data before the plan is made.
//!
//! A fill value is NaN, or a value that occurs at least twice, is the least or greatest of all, and lies far outside of
//! the others' range (or beyond 1e15 when the others do not). It is kept exactly and left out of the range, so
//! mistaking a value for one can only tighten the bound. A second pass is needed only where the first suggests such a
//! value.

use std::sync::atomic::{AtomicU64, Ordering};

use super::MAX_FILLS;
use crate::error::{Error, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::grid;
use crate::io::Source;
use crate::num::{Int, Real};

/// Statistics of the data that the plan needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats<T> {
    /// Least and greatest finite value that is not a fill value; `None` if there is none.
    pub range: Option<(T, T)>,
    /// Fill values, at most two, by their bits.
    pub fills: Vec<T>,
}

/// The results of the first pass over an array.
#[derive(Clone, Debug)]
pub struct FirstPass<T> {
    /// Least and greatest of the finite values whose bits are not those to skip. The sign of a zero does not matter.
    pub range: Option<(T, T)>,
    /// The NaN with the lowest index: its bits stand for all NaN that share them.
    pub first_nan: Option<T>,
    /// The finite ones of the values whose index is a multiple of the stride, in any order.
    pub samples: Vec<T>,
}

// Not derived: that would require `T: Default`.
impl<T> Default for FirstPass<T> {
    fn default() -> Self {
        Self { range: None, first_nan: None, samples: Vec::new() }
    }
}

/// The results of the second pass over an array, given the ends of the range.
#[derive(Clone, Copy, Debug)]
pub struct SecondPass<T> {
    /// How often the bits of each end occur.
    pub counts: [u64; 2],
    /// Least and greatest of the finite values whose bits are neither. The sign of a zero does not matter.
    pub range: Option<(T, T)>,
}

/// Passes over all values of an array, wherever they are. The results must not depend on the order in which the values
/// are visited.
pub trait Passes<T> {
    /// Number of values.
    fn n_values(&self) -> usize;

    /// Range, NaN and samples, skipping at most two values; the default of [`FirstPass`] for an array without values.
    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>>;

    /// Counts of the ends and the range between them; only some arrays need this pass, and none without finite values.
    fn second(&self, ends: [T; 2]) -> Result<SecondPass<T>>;
}

/// A fill value lies this many times the range of the others away from them.
const FAR: f64 = 1000.0;
/// Values of at least this magnitude can be fill values at any distance.
const HUGE: f64 = 1e15;
/// Number of samples that decide whether a second pass is needed.
const N_SAMPLES: usize = 4096;

/// The range that [`ErrorBound::Rel`](crate::ErrorBound::Rel) refers to: least and greatest finite value that is not a
/// fill value; `None` if there is none. With [`Config::range`](crate::Config::range), the parts of a larger array can
/// share one bound. `fills` are those of [`Config::fills`](crate::Config::fills): if there are none, they are detected.
///
/// ```
/// use pumice::SliceSource;
/// let source = SliceSource::new(&[3.0f32, 1e20, 5.0, 1e20, f32::NAN], &[5])?;
/// assert_eq!(pumice::value_range(&source, &[], 1)?, Some((3.0, 5.0)));
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn value_range<T: Real>(source: &dyn Source<T>, fills: &[f64], threads: usize) -> Result<Option<(f64, f64)>> {
    let workers = Workers::new(threads)?;
    let range = scan(source, fills, &workers, &|_| ())?.range;
    Ok(range.map(|(lo, hi)| (lo.to_f64(), hi.to_f64())))
}

/// Scans all of `source`; `progress` is called with the number of bytes done so far.
pub(crate) fn scan<T: Real>(
    source: &dyn Source<T>,
    fills: &[f64],
    workers: &Workers,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Stats<T>> {
    decide(&SourcePasses { blocks: Blocks::new(source), workers, progress }, fills)
}

/// The fill values that the user gave, each once and without NaN, which is kept anyway.
pub(crate) fn given_fills<T: Real>(given: &[f64]) -> Result<Vec<T>> {
    let mut fills: Vec<T> = Vec::new();
    for &value in given.iter().filter(|value| !value.is_nan()) {
        let fill = T::from_f64(value);
        if value.is_finite() && !fill.is_finite() {
            return Err(Error::invalid(format!("the fill value {value} is beyond the range of {}", T::DTYPE)));
        }
        if fills.iter().all(|known| known.bits() != fill.bits()) {
            fills.push(fill);
        }
    }
    let n_given = fills.len() + usize::from(given.iter().any(|value| value.is_nan()));
    if n_given > MAX_FILLS {
        return Err(Error::invalid(format!(
            "{n_given} fill values are too many: give at most {MAX_FILLS}; NaN is kept without being given"
        )));
    }
    Ok(fills)
}

/// Range and fill values, from one pass or two.
pub(crate) fn decide<T: Real>(passes: &impl Passes<T>, given: &[f64]) -> Result<Stats<T>> {
    let _floats = DefaultFloats::set();
    let stride = passes.n_values().div_ceil(N_SAMPLES).max(1);
    let mut fills: Vec<T> = given_fills(given)?;
    let first = passes.first(&fills, stride)?;
    let mut range = first.range.map(without_sign_of_zero);
    if fills.is_empty()
        && let Some((lo, hi)) = range
        && is_suspicious(&first.samples, lo, hi)
    {
        let SecondPass { counts, range: inner } = passes.second([lo, hi])?;
        (range, fills) = without_fills((lo, hi), counts, inner.map(without_sign_of_zero));
    }
    if let Some(nan) = first.first_nan
        && fills.len() < MAX_FILLS
    {
        fills.push(nan);
    }
    Ok(Stats { range, fills })
}

/// Which of two zeros is found first depends on the order of the search; the decisions must not.
fn without_sign_of_zero<T: Real>((lo, hi): (T, T)) -> (T, T) {
    (lo.fadd(T::default()), hi.fadd(T::default()))
}

/// Whether the ends of the range may be fill values.
fn is_suspicious<T: Real>(samples: &[T], lo: T, hi: T) -> bool {
    let (lo, hi) = (lo.to_f64(), hi.to_f64());
    if lo.abs() >= HUGE || hi.abs() >= HUGE {
        return true;
    }
    let inside = samples.iter().map(|v| v.to_f64()).filter(|v| *v > lo && *v < hi);
    let (least, greatest) = inside.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    least <= greatest && hi - lo > FAR * (greatest - least)
}

/// The range without fill values, and the fill values, given how often the ends of the range occur and what lies
/// between them.
fn without_fills<T: Real>((lo, hi): (T, T), [n_lo, n_hi]: [u64; 2], inner: Option<(T, T)>) -> (Option<(T, T)>, Vec<T>) {
    // Whether `end`, seen n times, stands apart from a range.
    let apart = |end: T, n: u64, (a, b): (T, T)| {
        let (end, a, b) = (end.to_f64(), a.to_f64(), b.to_f64());
        let gap = if end > b { end - b } else { a - end };
        let others_are_huge = a.abs() >= HUGE || b.abs() >= HUGE;
        n >= 2 && gap > 0.0 && ((b > a && gap >= FAR * (b - a)) || (end.abs() >= HUGE && !others_are_huge))
    };
    let without_hi = (lo, inner.map_or(lo, |r| r.1));
    let without_lo = (inner.map_or(hi, |r| r.0), hi);
    match inner {
        Some(inner) if apart(hi, n_hi, inner) && apart(lo, n_lo, inner) => (Some(inner), vec![lo, hi]),
        _ if lo < hi && apart(hi, n_hi, without_hi) => (Some(without_hi), vec![hi]),
        _ if lo < hi && apart(lo, n_lo, without_lo) => (Some(without_lo), vec![lo]),
        _ => (Some((lo, hi)), Vec::new()),
    }
}

/// The passes over a source on the CPU. `progress` is called with the bytes that the first one has done.
struct SourcePasses<'a, T> {
    blocks: Blocks<'a, T>,
    workers: &'a Workers,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<T: Real> Passes<T> for SourcePasses<'_, T> {
    fn n_values(&self) -> usize {
        self.blocks.n_values
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        let scan = |start: usize, values: &[T]| Scan::new(start, values, skip, stride);
        let all = self.blocks.fold(self.workers, self.progress, scan, Scan::merge)?;
        Ok(all.map_or_else(FirstPass::default, |Scan { range, first_nan, samples }| {
            let first_nan = first_nan.map(|(_, nan)| nan);
            FirstPass { range, first_nan, samples }
        }))
    }

    fn second(&self, ends: [T; 2]) -> Result<SecondPass<T>> {
        let count = |_: usize, values: &[T]| range_and_counts(values, ends);
        let all = self.blocks.fold(self.workers, &|_| {}, count, RangeAndCounts::merge)?;
        let RangeAndCounts { range, n_skipped } = all.unwrap_or(RangeAndCounts { range: None, n_skipped: [0; 2] });
        Ok(SecondPass { counts: n_skipped, range })
    }
}

/// Result of the first pass over some block.
struct Scan<T> {
    range: Option<(T, T)>,
    /// With its index.
    first_nan: Option<(usize, T)>,
    samples: Vec<T>,
}

impl<T: Real> Scan<T> {
    fn new(start: usize, values: &[T], skip: &[T], stride: usize) -> Self {
        let samples = (start.next_multiple_of(stride)..start + values.len()).step_by(stride);
        let samples = samples.map(|i| values[i - start]).filter(|v| v.is_finite()).collect();
        let quick = if skip.is_empty() { find_range(values) } else { None };
        if quick.is_some() {
            return Self { range: quick, first_nan: None, samples };
        }
        // If there is nothing to skip, a bit pattern that is never counted.
        let skip = [0, 1].map(|i| skip.get(i).or(skip.first()).copied().unwrap_or(T::from_f64(f64::NAN)));
        let range = range_and_counts(values, skip).range;
        let first_nan = values.iter().position(|v| v.is_nan()).map(|i| (start + i, values[i]));
        Self { range, first_nan, samples }
    }

    fn merge(mut self, mut other: Self) -> Self {
        self.samples.append(&mut other.samples);
        let first_nan = match (self.first_nan, other.first_nan) {
            (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
            (a, b) => a.or(b),
        };
        Self { range: joined(self.range, other.range), first_nan, samples: self.samples }
    }
}

/// The array as runs of consecutive values, each a box that a source can read.
pub(crate) struct Blocks<'a, T> {
    source: &'a dyn Source<T>,
    /// Axis along which boxes are cut; the axes after it are whole, those before have extent 1.
    axis: usize,
    rows_per_block: usize,
    inner: usize,
    n_values: usize,
}

/// Values per block: few enough to stay in cache when they come from a file.
const BLOCK_VALUES: usize = 1 << 16;
const TASKS_PER_WORKER: usize = 4;

impl<'a, T: Real> Blocks<'a, T> {
    pub(crate) fn new(source: &'a dyn Source<T>) -> Self {
        let shape = source.shape();
        let mut inner = 1;
        let mut axis = shape.len().saturating_sub(1);
        while axis > 0 && shape[axis] <= BLOCK_VALUES / inner.max(1) {
            inner *= shape[axis];
            axis -= 1;
        }
        let rows_per_block = (BLOCK_VALUES / inner.max(1)).max(1);
        Self { source, axis, rows_per_block, inner, n_values: grid::n_values(shape) }
    }

    pub(crate) fn n_blocks(&self) -> usize {
        let Some(rows) = self.source.shape().get(self.axis) else { return self.n_values };
        match self.n_values {
            0 => 0,
            n => n / (rows * self.inner) * rows.div_ceil(self.rows_per_block),
        }
    }

    /// Start and extents of block `i`, and the index in the array of its first value.
    fn block(&self, i: usize) -> (Vec<usize>, Vec<usize>, usize) {
        let shape = self.source.shape();
        let Some(&rows) = shape.get(self.axis) else { return (Vec::new(), Vec::new(), 0) };
        let per_outer = rows.div_ceil(self.rows_per_block);
        let (mut outer, row) = (i / per_outer, i % per_outer * self.rows_per_block);
        let first = (outer * rows + row) * self.inner;
        let mut start = vec![0; shape.len()];
        let mut extents = shape.to_vec();
        start[self.axis] = row;
        extents[self.axis] = self.rows_per_block.min(rows - row);
        for axis in (0..self.axis).rev() {
            start[axis] = outer % shape[axis];
            outer /= shape[axis];
            extents[axis] = 1;
        }
        (start, extents, first)
    }

    /// Maps block `i`; also returns its size in bytes.
    pub(crate) fn map<R>(&self, i: usize, f: &impl Fn(usize, &[T]) -> R) -> Result<(R, u64)> {
        let (start, extents, first) = self.block(i);
        let mapped = match self.source.contiguous(&start, &extents) {
            Some(values) => f(first, values),
            None => {
                let mut values = vec![T::default(); extents.iter().product()];
                self.source.read_box(&start, &extents, &mut values)?;
                f(first, &values)
            }
        };
        Ok((mapped, (extents.iter().product::<usize>() * size_of::<T>()) as u64))
    }

    /// Maps every block and merges the results; `None` for an array without values.
    fn fold<R: Send>(
        &self,
        workers: &Workers,
        progress: &(dyn Fn(u64) + Sync),
        f: impl Fn(usize, &[T]) -> R + Sync,
        merge: impl Fn(R, R) -> R + Sync,
    ) -> Result<Option<R>> {
        let n_blocks = self.n_blocks();
        let done = AtomicU64::new(0);
        // A few runs of blocks per worker, so that all finish at nearly the same time.
        let n_runs = (TASKS_PER_WORKER * workers.count()).min(n_blocks);
        let mut results: Vec<Option<R>> = (0..n_runs).map(|_| None).collect();
        // From the end to the start: what was read last, and may still be in the cache, is what is encoded first.
        workers.for_each(&mut results, |run, result| {
            let run = n_runs - 1 - run;
            for i in (n_blocks * run / n_runs..n_blocks * (run + 1) / n_runs).rev() {
                let (mapped, n_bytes) = self.map(i, &f)?;
                *result = Some(match result.take() {
                    Some(before) => merge(before, mapped),
                    None => mapped,
                });
                progress(done.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes);
            }
            Ok(())
        })?;
        Ok(results.into_iter().flatten().reduce(merge))
    }
}

fn joined<T: Real>(a: Option<(T, T)>, b: Option<(T, T)>) -> Option<(T, T)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((if b.0 < a.0 { b.0 } else { a.0 }, if b.1 > a.1 { b.1 } else { a.1 })),
        (a, b) => a.or(b),
    }
}

/// Range of a block without some values, and how often these occur.
struct RangeAndCounts<T> {
    /// Range of the finite values whose bits are not among those to skip.
    range: Option<(T, T)>,
    /// How often each of the bits to skip occurs.
    n_skipped: [u64; 2],
}

impl<T: Real> RangeAndCounts<T> {
    fn merge(self, other: Self) -> Self {
        let n_skipped = std::array::from_fn(|i| self.n_skipped[i] + other.n_skipped[i]);
        Self { range: joined(self.range, other.range), n_skipped }
    }
}

/// Lanes that the kernels below work on at once: a few vectors of any instruction set.
const LANES: usize = 32;

/// The range, at memory speed; `None` if there are no values or some are not finite.
#[inline(always)]
fn quick_range<T: Real>(values: &[T]) -> Option<(T, T)> {
    let first = *values.first()?;
    let (mut lo, mut hi) = ([first; LANES], [first; LANES]);
    // x - x is 0 for finite x and NaN otherwise, and NaN stays.
    let mut poison = [first.fsub(first); LANES];
    let mut take = |block: &[T; LANES]| {
        for lane in 0..LANES {
            lo[lane] = if block[lane] < lo[lane] { block[lane] } else { lo[lane] };
            hi[lane] = if block[lane] > hi[lane] { block[lane] } else { hi[lane] };
            poison[lane] = poison[lane].fadd(block[lane].fsub(block[lane]));
        }
    };
    let (blocks, rest) = values.as_chunks();
    blocks.iter().for_each(&mut take);
    take(&padded(rest, first));
    let least = lo.iter().fold(first, |a, b| if *b < a { *b } else { a });
    let greatest = hi.iter().fold(first, |a, b| if *b > a { *b } else { a });
    poison.iter().all(|v| v.is_finite()).then_some((least, greatest))
}

/// Range and counts where values may be special, or are to be skipped.
#[inline(always)]
fn careful_range<T: Real>(values: &[T], skip: [T; 2]) -> RangeAndCounts<T> {
    let nan = T::from_f64(f64::NAN);
    let (mut lo, mut hi) = ([nan; LANES], [nan; LANES]);
    let mut counts = [[T::Int::default(); LANES]; 2];
    let skip = skip.map(T::bits);
    let mut take = |block: &[T; LANES]| {
        let mut counted = *block;
        for i in 0..2 {
            for lane in 0..LANES {
                let is_skipped = block[lane].bits() == skip[i];
                counts[i][lane] = counts[i][lane].add(T::Int::from_i64(i64::from(is_skipped)));
                counted[lane] = if is_skipped { nan } else { counted[lane] };
            }
        }
        for lane in 0..LANES {
            let x = counted[lane];
            let is_finite = x.fsub(x) == T::default();
            // Written so that NaN in `lo` and `hi`, the start, gives way to any value.
            lo[lane] = if is_finite & !(x >= lo[lane]) { x } else { lo[lane] };
            hi[lane] = if is_finite & !(x <= hi[lane]) { x } else { hi[lane] };
        }
    };
    let (blocks, rest) = values.as_chunks();
    blocks.iter().for_each(&mut take);
    take(&padded(rest, nan));
    let found = lo.iter().zip(&hi).filter(|(a, _)| !a.is_nan());
    RangeAndCounts {
        range: found.fold(None, |range, (a, b)| joined(range, Some((*a, *b)))),
        n_skipped: counts.map(|lanes| lanes.iter().map(|n| n.to_u64()).sum()),
    }
}

fn padded<T: Real>(rest: &[T], with: T) -> [T; LANES] {
    let mut block = [with; LANES];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// Compiles a kernel for AVX2 as well, and runs that where the machine has it.
macro_rules! with_avx2 {
    ($name:ident = $kernel:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        fn $name<T: Real>($($arg: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2<T: Real>($($arg: $type),*) -> $result {
                    $kernel($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    #[allow(unsafe_code)]
                    // SAFETY: the machine has AVX2.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $kernel($($arg),*)
        }
    };
}

with_avx2!(find_range = quick_range(values: &[T]) -> Option<(T, T)>);
with_avx2!(range_and_counts = careful_range(values: &[T], skip: [T; 2]) -> RangeAndCounts<T>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SliceSource;

    fn scanned(values: &[f32], fills: &[f64]) -> Stats<f32> {
        let shape = [values.len()];
        scan(&SliceSource::new(values, &shape).unwrap(), fills, &Workers::Serial, &|_| {}).unwrap()
    }

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| i as f32 / n as f32).collect()
    }

    #[test]
    fn finds_fill_values() {
        let mut values = ramp(10_000);
        assert_eq!(scanned(&values, &[]).fills, []);
        values[17] = 1e20;
        assert_eq!(scanned(&values, &[]).fills, [], "a single spike is data");
        values[9000] = 1e20;
        let stats = scanned(&values, &[]);
        assert_eq!(stats.fills, [1e20]);
        assert_eq!(stats.range, Some((0.0, 0.9999)));
        for v in &mut values[5000..5100] {
            *v = -9999.0;
        }
        let stats = scanned(&values, &[]);
        assert_eq!(stats.fills, [-9999.0, 1e20]);
        let without = scanned(&values[100..8000], &[]);
        assert_eq!(without.fills, [-9999.0]);
    }

    #[test]
    fn keeps_real_values() {
        let binary: Vec<f32> = (0..1000).map(|i| (i % 2) as f32).collect();
        assert_eq!(scanned(&binary, &[]).fills, []);
        assert_eq!(scanned(&vec![1e30; 1000], &[]).fills, []);
        let masses: Vec<f32> = (0..1000).map(|i| 1e30 * (1.0 + (i % 10) as f32)).collect();
        assert_eq!(scanned(&masses, &[]).fills, []);
    }

    #[test]
    fn nan_and_given_fill() {
        let mut values = ramp(5000);
        values[3] = f32::from_bits(0x7FC0_1234);
        values[40] = f32::NAN;
        values[50] = 0.25;
        values[51] = f32::INFINITY;
        let stats = scanned(&values, &[]);
        assert_eq!(stats.fills.len(), 1);
        assert_eq!(stats.fills[0].to_bits(), 0x7FC0_1234);
        assert_eq!(stats.range, Some((0.0, 0.9998)));
        let stats = scanned(&values, &[0.0]);
        assert_eq!(stats.fills[0], 0.0);
        assert_eq!(stats.range.unwrap().0, 1.0 / 5000.0);
        let stats = scanned(&values, &[0.0, f64::from(4999_f32 / 5000.0)]);
        assert_eq!(stats.fills, [0.0, 4999.0 / 5000.0]);
        assert_eq!(stats.range, Some((1.0 / 5000.0, 4998.0 / 5000.0)));
        assert!(scanned(&[f32::NAN; 8], &[]).range.is_none());
        assert!(scanned(&[], &[]).range.is_none());
    }

    #[test]
    fn at_most_two_values_are_given() {
        // Each counts once in the type of the array, and NaN is one of them.
        assert_eq!(given_fills::<f32>(&[1e20, f64::from(1e20_f32), f64::NAN]).unwrap(), [1e20]);
        assert_eq!(given_fills::<f64>(&[-1.0, 2.0]).unwrap(), [-1.0, 2.0]);
        for given in [&[1.0, 2.0, 3.0][..], &[1.0, 2.0, f64::NAN]] {
            let message = given_fills::<f32>(given).unwrap_err().to_string();
            assert!(message.contains("at most 2"), "{message}");
        }
        assert!(given_fills::<f32>(&[1.0, 1e300]).is_err());
    }

    #[test]
    fn the_sign_of_a_zero_does_not_matter() {
        for zeros in [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]] {
            let mut values = vec![1e20; 10];
            values[3..5].copy_from_slice(&zeros);
            let stats = scanned(&values, &[]);
            assert_eq!(stats.range.map(|(lo, hi)| (lo.to_bits(), hi.to_bits())), Some((0, 0)));
            assert_eq!(stats.fills, [1e20]);
        }
    }
}
