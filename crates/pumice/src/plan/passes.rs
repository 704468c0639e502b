//! Passes over all values of a source on the CPU: range, counts of single values, and samples, at memory speed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::stats::{FirstPass, MAX_NAMED, Passes, SecondPass};
use crate::error::Result;
use crate::exec::{Workers, filled};
use crate::grid;
use crate::io::Source;
use crate::num::{Int, Real};

/// The passes over a source on the CPU. `progress` is called with the bytes that the first one has done.
pub(crate) struct SourcePasses<'a, T> {
    pub(crate) blocks: Blocks<'a, T>,
    pub(crate) workers: &'a Workers,
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

impl<T: Real> Passes<T> for SourcePasses<'_, T> {
    fn n_values(&self) -> usize {
        self.blocks.n_values
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        let scan = |start: usize, values: &[T]| Scan::new(start, values, skip, stride);
        let all = self.blocks.fold(self.workers, self.progress, scan, Scan::merge)?;
        Ok(all.map_or_else(FirstPass::default, |Scan { all: RangeAndCounts { range, counts }, first_nan, samples }| {
            let first_nan = first_nan.map(|(_, nan)| nan);
            FirstPass { range, counts, first_nan, samples }
        }))
    }

    fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        let count = |_: usize, values: &[T]| range_and_counts(values, skip);
        let all = self.blocks.fold(self.workers, &|_| {}, count, RangeAndCounts::merge)?;
        let RangeAndCounts { range, counts } = all.unwrap_or(RangeAndCounts { range: None, counts: [0; MAX_NAMED] });
        Ok(SecondPass { counts, range })
    }

    fn counts(&self, wanted: &[T]) -> Result<Vec<u64>> {
        let count = |_: usize, values: &[T]| {
            let mut counts = vec![0; wanted.len()];
            add_counts(values, wanted, &mut counts);
            counts
        };
        let merge = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let all = self.blocks.fold(self.workers, &|_| {}, count, merge)?;
        Ok(all.unwrap_or_else(|| vec![0; wanted.len()]))
    }
}

/// Values that are looked at together when some of them are counted, so that they stay in the fastest cache.
const PART_VALUES: usize = 1 << 10;

/// Adds how often the bits of each of the values `wanted` occur. Hardly ever any is there, so each part is first searched
/// for their magnitudes, and for none if it has no value as large as the least of them.
fn add_counts<T: Real>(values: &[T], wanted: &[T], counts: &mut [u64]) {
    let mut magnitudes: Vec<T> = Vec::with_capacity(wanted.len());
    for magnitude in wanted.iter().map(|value| value.fabs()) {
        if !magnitudes.contains(&magnitude) {
            magnitudes.push(magnitude);
        }
    }
    let least = magnitudes.iter().copied().reduce(|a, b| if b < a { b } else { a });
    for part in values.chunks(PART_VALUES) {
        // Two are as quickly searched for.
        let may_have = magnitudes.len() <= 2 || least.is_some_and(|least| is_any_at_least(part, least));
        if may_have && magnitudes.chunks(MAX_NAMED).any(|magnitudes| is_any_among(part, magnitudes)) {
            for (count, wanted) in counts.iter_mut().zip(wanted) {
                *count += part.iter().filter(|x| x.bits() == wanted.bits()).count() as u64;
            }
        }
    }
}

/// Result of the first pass over some block.
struct Scan<T> {
    all: RangeAndCounts<T>,
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
            return Self { all: RangeAndCounts { range: quick, counts: [0; MAX_NAMED] }, first_nan: None, samples };
        }
        let all = range_and_counts(values, skip);
        let first_nan = values.iter().position(|v| v.is_nan()).map(|i| (start + i, values[i]));
        Self { all, first_nan, samples }
    }

    fn merge(mut self, mut other: Self) -> Self {
        self.samples.append(&mut other.samples);
        let first_nan = match (self.first_nan, other.first_nan) {
            (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
            (a, b) => a.or(b),
        };
        Self { all: self.all.merge(other.all), first_nan, samples: self.samples }
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
    pub(crate) fn block(&self, i: usize) -> (Vec<usize>, Vec<usize>, usize) {
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
                let mut values = filled(T::default(), extents.iter().product())?;
                self.source.read_box(&start, &extents, &mut values)?;
                f(first, &values)
            }
        };
        Ok((mapped, (extents.iter().product::<usize>() * size_of::<T>()) as u64))
    }

    /// Whether something holds for all blocks.
    pub(crate) fn all(&self, workers: &Workers, holds: &(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool> {
        let all = self.fold(workers, &|_| (), |_, values| holds(values), |a, b| a && b)?;
        Ok(all.unwrap_or(true))
    }

    /// Maps every block and merges the results; `None` for an array without values.
    pub(crate) fn fold<R: Send>(
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

/// The range of both.
pub(crate) fn joined<T: Real>(a: Option<(T, T)>, b: Option<(T, T)>) -> Option<(T, T)> {
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
    counts: [u64; MAX_NAMED],
}

impl<T: Real> RangeAndCounts<T> {
    fn merge(self, other: Self) -> Self {
        let counts = std::array::from_fn(|i| self.counts[i] + other.counts[i]);
        Self { range: joined(self.range, other.range), counts }
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
fn careful_range<T: Real>(values: &[T], skip: &[T]) -> RangeAndCounts<T> {
    let nan = T::from_f64(f64::NAN);
    let (mut lo, mut hi) = ([nan; LANES], [nan; LANES]);
    let mut counts = [[T::Int::default(); LANES]; MAX_NAMED];
    let mut take = |block: &[T; LANES]| {
        let mut counted = *block;
        for (count, skip) in counts.iter_mut().zip(skip) {
            let skip = skip.bits();
            for lane in 0..LANES {
                let is_skipped = block[lane].bits() == skip;
                count[lane] = count[lane].add(T::Int::from_i64(i64::from(is_skipped)));
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
        counts: counts.map(|lanes| lanes.iter().map(|n| n.to_u64()).sum()),
    }
}

/// Whether some value of a part is at least as large as a magnitude.
#[inline(always)]
fn reaches<T: Real>(values: &[T], least: T) -> bool {
    let mut found = [T::Int::default(); LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            found[lane] = found[lane].add(T::Int::from_i64(i64::from(block[lane].fabs() >= least)));
        }
    }
    found.iter().any(|n| *n != T::Int::default()) || rest.iter().any(|x| x.fabs() >= least)
}

/// Whether some value of a part has one of at most [`MAX_NAMED`] magnitudes.
#[inline(always)]
fn has_magnitude<T: Real>(values: &[T], magnitudes: &[T]) -> bool {
    match magnitudes {
        [] => false,
        [a] => has_one_of(values, [*a]),
        [a, b] => has_one_of(values, [*a, *b]),
        [a, b, c] => has_one_of(values, [*a, *b, *c]),
        _ => has_one_of(values, std::array::from_fn::<T, MAX_NAMED, _>(|i| magnitudes[i.min(magnitudes.len() - 1)])),
    }
}

/// As [`has_magnitude`], with as many comparisons as there are magnitudes.
#[inline(always)]
fn has_one_of<T: Real, const N: usize>(values: &[T], magnitudes: [T; N]) -> bool {
    // Sums instead of flags: each comparison subtracts a mask of ones.
    let mut found = [T::Int::default(); LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            let magnitude = block[lane].fabs();
            for wanted in magnitudes {
                found[lane] = found[lane].add(T::Int::from_i64(i64::from(magnitude == wanted)));
            }
        }
    }
    found.iter().any(|n| *n != T::Int::default())
        || rest.iter().any(|x| magnitudes.iter().any(|wanted| x.fabs() == *wanted))
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
with_avx2!(is_any_at_least = reaches(values: &[T], least: T) -> bool);
with_avx2!(is_any_among = has_magnitude(values: &[T], magnitudes: &[T]) -> bool);
with_avx2!(range_and_counts = careful_range(values: &[T], skip: &[T]) -> RangeAndCounts<T>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SliceSource;

    #[test]
    fn values_are_counted_wherever_they_are() {
        let mut values: Vec<f32> = (0..30_011).map(|i| (i as f32 * 1e-3).sin() * 1e5).collect();
        values[29_000] = f32::NAN;
        let wanted: Vec<f32> = (0..19).map(|i| i as f32 * 1111.0 - 9999.0).collect();
        for (i, wanted) in wanted.iter().enumerate() {
            (0..i).for_each(|k| values[(k * 1571 + i * 97) % 30_011] = *wanted);
        }
        let shape = [values.len()];
        let source = SliceSource::new(&values, &shape).unwrap();
        let passes = SourcePasses { blocks: Blocks::new(&source), workers: &Workers::Serial, progress: &|_| () };
        let count = |wanted: &f32| values.iter().filter(|x| x.to_bits() == wanted.to_bits()).count() as u64;
        let expected: Vec<u64> = wanted.iter().map(count).collect();
        assert_eq!(passes.counts(&wanted).unwrap(), expected);
        assert!(expected.iter().sum::<u64>() > 150);
    }
}
