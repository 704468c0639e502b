//! One variable: finds the range for a relative bound, estimates the compressed size, and codes the chunks. Each chunk
//! is compressed, decompressed and compared before it is written.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pumice::backend::{Corner, for_each_run};
use pumice::metrics::Guarantee;
use pumice::{
    AnalysisOptions, Config, DecodeOptions, Element, Error, ErrorBound, ErrorKind, Recent, Source, with_dtype,
};
use pumice_hdf5::{ByteOrder, ChunkType};

use super::catalog::{Plan, chunk_of};
use super::record::Checksum;
use super::source::Variable;
use crate::failure::{Failure, Result};
use crate::target::is_target;

/// The approximate number of values that an estimate compresses, and its number of chunks.
const SAMPLE_VALUES: usize = 1 << 22;
const MIN_SAMPLE: usize = 2;
const MAX_SAMPLE: usize = 16;
/// Chunks are much larger if they have this many times as many values.
const MUCH_LARGER: usize = 4;

/// The outcome of compressing a variable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) stored_bytes: u64,
    /// Of unpacked values, if they are packed.
    pub(crate) max_abs_error: f64,
    /// Of the values that the input stores, and of those that readers of the result get.
    pub(crate) input_checksum: Checksum,
    pub(crate) checksum: Checksum,
    /// What was taken for a fill value in some chunk, each once.
    pub(crate) fills: Vec<f64>,
}

/// The values of a variable.
struct Values<'a> {
    variable: &'a Variable<'a>,
}

impl<T: Element> Source<T> for Values<'_> {
    fn shape(&self) -> &[usize] {
        self.variable.shape()
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> pumice::Result<()> {
        self.variable.read_box(start, extents, out)
    }
}

/// Turns the bounds that were asked for into those of the stored values. For a relative bound this takes a pass over the
/// whole variable, so that all chunks have one bound.
pub(crate) fn resolve(variable: &Variable<'_>, plan: &mut Plan, threads: usize) -> Result<()> {
    let needs_range = plan.range.is_none() && plan.bounds.iter().any(|bound| matches!(bound, ErrorBound::Rel(_)));
    let found = if needs_range {
        let (values, fills) = (Values { variable }, fills(plan));
        with_dtype!(plan.chunk_type.dtype, T => pumice::value_range::<T>(&values, &fills, threads))?
    } else {
        None
    };
    plan.shown_range = plan.range.or(found.map(|range| plan.packing.map_or(range, |packing| packing.unpack(range))));
    match (plan.bounds.as_slice(), plan.range) {
        // A share of the range is the same for packed values.
        ([bound @ ErrorBound::Rel(_)], None) => {
            plan.options.range = found;
            plan.options.bound = found.map_or(ErrorBound::Lossless, |_| *bound);
            return Ok(());
        }
        ([bound @ ErrorBound::Rel(_)], Some(_)) if plan.packing.is_none() => {
            plan.options.range = plan.range;
            plan.options.bound = *bound;
            return Ok(());
        }
        _ => {}
    }
    let stored = |bound: f64| plan.packing.map_or(bound, |packing| packing.stored_bound(bound));
    let (mut absolute, mut others) = (Vec::new(), Vec::new());
    for bound in &plan.bounds {
        match *bound {
            ErrorBound::Abs(abs) => absolute.push(stored(abs)),
            ErrorBound::Rel(rel) => match (plan.range, found) {
                (Some(range), _) => absolute.push(stored(share(rel, range))),
                (None, Some(range)) => absolute.push(share(rel, range)),
                // No finite values, to which no bound applies.
                (None, None) => {}
            },
            ErrorBound::L2(norm) => others.push(ErrorBound::L2(stored(norm))),
            other => others.push(other),
        }
    }
    let least = absolute.into_iter().reduce(f64::min).map(ErrorBound::Abs);
    let mut all = least.into_iter().chain(others);
    plan.options.bound = all.next().unwrap_or(ErrorBound::Lossless);
    plan.pointwise = all.next();
    Ok(())
}

/// A share of the width of a range, rounded down.
fn share(rel: f64, (lo, hi): (f64, f64)) -> f64 {
    // hi - lo may overflow where the products do not.
    let share = if (hi - lo).is_finite() { rel * (hi - lo) } else { rel * hi - rel * lo };
    share.min(f64::MAX).next_down().next_down().max(0.0)
}

/// The fill values that are known: of the options and of the dataset.
fn fills(plan: &Plan) -> Vec<f64> {
    plan.options.fills.iter().copied().chain(plan.chunk_type.fill).collect()
}

/// Estimates the compressed size from some chunks, spread evenly. For larger chunks `pumice::analyze` samples their
/// values.
pub(crate) fn estimate(variable: &Variable<'_>, plan: &Plan, threads: usize) -> Result<u64> {
    let chunk_values: usize = plan.chunk_type.extents.iter().product();
    if chunk_values > SAMPLE_VALUES && !plan.bounds.iter().copied().any(is_target) {
        return analyze(variable, plan, threads);
    }
    let starts: Vec<Vec<usize>> = chunk_starts(variable.shape(), &plan.chunk_type.extents).collect();
    let n_sampled = (SAMPLE_VALUES / chunk_values).clamp(MIN_SAMPLE, MAX_SAMPLE).min(starts.len());
    let sample: Vec<_> = (0..n_sampled).map(|i| starts[i * starts.len() / n_sampled].clone()).collect();
    let outcome = compress_chunks(variable, plan, &sample, threads, &|_| (), |_, _| Ok(()))?;
    Ok(outcome.stored_bytes * starts.len() as u64 / n_sampled.max(1) as u64)
}

/// How much better the ratio gets with the chunks of `"auto"`, if these are much larger: 0.1 is 10 %. Compresses one of
/// these chunks, and the values in it in the chunks of the plan.
pub(crate) fn gain_of_larger_chunks(variable: &Variable<'_>, plan: &Plan, threads: usize) -> Result<Option<f64>> {
    let (shape, extents) = (variable.shape(), &plan.chunk_type.extents);
    let larger = chunk_of(shape);
    let n_values = |extents: &[usize]| extents.iter().product::<usize>();
    if n_values(&larger) < MUCH_LARGER * n_values(extents) || plan.bounds.iter().copied().any(is_target) {
        return Ok(None);
    }
    let bytes_per_value = |plan: &Plan, starts: &[Vec<usize>]| -> Result<f64> {
        let outcome = compress_chunks(variable, plan, starts, threads, &|_| (), |_, _| Ok(()))?;
        let covered = starts.iter().map(|start| n_values(&extents_within(shape, &plan.chunk_type.extents, start)));
        Ok(outcome.stored_bytes as f64 / covered.sum::<usize>().max(1) as f64)
    };
    let starts: Vec<Vec<usize>> = chunk_starts(shape, &larger).collect();
    let middle = &starts[starts.len() / 2];
    let is_inside = |start: &Vec<usize>| {
        start.iter().zip(middle).zip(&larger).all(|((at, first), n)| (*first..first + n).contains(at))
    };
    let small: Vec<Vec<usize>> = chunk_starts(shape, extents).filter(is_inside).collect();
    let with_larger =
        Plan { chunk_type: ChunkType { extents: larger.clone(), ..plan.chunk_type.clone() }, ..plan.clone() };
    let (now, then) = (bytes_per_value(plan, &small)?, bytes_per_value(&with_larger, std::slice::from_ref(middle))?);
    Ok((then > 0.0).then_some(now / then - 1.0))
}

fn analyze(variable: &Variable<'_>, plan: &Plan, threads: usize) -> Result<u64> {
    let values = Values { variable };
    let fills = fills(plan);
    let bound = match (plan.options.bound, plan.options.range) {
        (ErrorBound::Rel(e), Some(range)) => ErrorBound::Abs(share(e, range)),
        (bound, _) => bound,
    };
    let options =
        AnalysisOptions::new().bounds(&[bound]).presets(&[plan.options.preset]).fills(&fills).threads(threads);
    let found = with_dtype!(plan.chunk_type.dtype, T => pumice::analyze_from::<T>(&values, &options, &|_| ()))?;
    Ok(found.estimates.first().map_or(found.raw_bytes, |estimate| estimate.compressed_bytes))
}

/// Compresses all chunks, several at a time, and passes them on in order, each with the position of its first value.
pub(crate) fn compress(
    variable: &Variable<'_>,
    plan: &Plan,
    threads: usize,
    progress: &dyn Fn(u64),
    write: impl FnMut(&[usize], &[u8]) -> Result<()>,
) -> Result<Outcome> {
    let starts: Vec<Vec<usize>> = chunk_starts(variable.shape(), &plan.chunk_type.extents).collect();
    compress_chunks(variable, plan, &starts, threads, progress, write)
}

fn compress_chunks(
    variable: &Variable<'_>,
    plan: &Plan,
    starts: &[Vec<usize>],
    threads: usize,
    progress: &dyn Fn(u64),
    mut write: impl FnMut(&[usize], &[u8]) -> Result<()>,
) -> Result<Outcome> {
    let chunk = Chunk { shape: variable.shape(), stored: variable.dataset.shape(), plan };
    let mut outcome = Outcome::default();
    for starts in starts.chunks(threads.max(1)) {
        let coded = with_dtype!(plan.chunk_type.dtype, T => {
            let read = |start: &Vec<usize>| chunk.read::<T>(variable, start);
            let values = starts.iter().map(read).collect::<Result<Vec<_>>>()?;
            let parts: Vec<_> = starts.iter().zip(values).collect();
            on_threads(&parts, |(start, values)| chunk.code(start, values)).into_iter().collect::<Result<Vec<_>>>()?
        });
        for (start, coded) in starts.iter().zip(coded) {
            write(start, &coded.stream)?;
            outcome.stored_bytes += coded.stream.len() as u64;
            outcome.max_abs_error = outcome.max_abs_error.max(coded.max_abs_error);
            outcome.input_checksum.add(coded.input_checksum);
            outcome.checksum.add(coded.checksum);
            for fill in coded.fills {
                if outcome.fills.iter().all(|known| known.to_bits() != fill.to_bits()) {
                    outcome.fills.push(fill);
                }
            }
            progress(coded.raw_bytes);
        }
    }
    if let Some(packing) = plan.packing {
        outcome.max_abs_error = packing.unpacked_error(outcome.max_abs_error);
    }
    Ok(outcome)
}

/// Applies `f` to all items, on one thread for each, or on as few as the system allows.
fn on_threads<T: Sync, R: Send + Sync>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), items.iter().map(|_| OnceLock::new()).collect::<Vec<_>>());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let _ = results[at].set(f(item));
        }
    };
    std::thread::scope(|scope| {
        // This thread works too.
        for _ in 1..items.len() {
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    results.into_iter().map(|result| result.into_inner().expect("each item was taken once")).collect()
}

/// `n` times this value, or an error where the system has no memory for it: files can claim any size.
pub(crate) fn filled<T: Clone>(value: T, n: usize) -> pumice::Result<Vec<T>> {
    let mut values = Vec::new();
    let message = || format!("the system has no memory for {n} values of {} bytes", size_of::<T>());
    values.try_reserve_exact(n).map_err(|_| Error::new(ErrorKind::LimitExceeded, message()))?;
    values.resize(n, value);
    Ok(values)
}

/// Positions of the first values of all chunks, in C order.
pub(crate) fn chunk_starts(shape: &[usize], extents: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let counts: Vec<usize> = shape.iter().zip(extents).map(|(n, chunk)| n.div_ceil(*chunk)).collect();
    let extents = extents.to_vec();
    (0..counts.iter().product()).map(move |mut id| {
        let mut start = vec![0; counts.len()];
        for axis in (0..counts.len()).rev() {
            start[axis] = id % counts[axis] * extents[axis];
            id /= counts[axis];
        }
        start
    })
}

/// The part of a chunk that lies within an array.
pub(crate) fn extents_within(shape: &[usize], chunk: &[usize], start: &[usize]) -> Vec<usize> {
    start.iter().zip(chunk).zip(shape).map(|((start, n), extent)| *n.min(&(extent - start))).collect()
}

/// Copies a box of `extents` between the corners of two arrays of values of `size` bytes each.
pub(crate) fn copy_corner(
    from: &[u8],
    from_shape: &[usize],
    to: &mut [u8],
    to_shape: &[usize],
    extents: &[usize],
    size: usize,
) {
    let start = vec![0; extents.len()];
    let (source, target) = (Corner { shape: from_shape, start: &start }, Corner { shape: to_shape, start: &start });
    let copied = for_each_run(source, target, extents, |from_at, to_at, n| {
        to[to_at * size..(to_at + n) * size].copy_from_slice(&from[from_at * size..(from_at + n) * size]);
        Ok(())
    });
    debug_assert!(copied.is_ok(), "a copy in memory does not fail");
}

struct Coded {
    stream: Vec<u8>,
    raw_bytes: u64,
    max_abs_error: f64,
    input_checksum: Checksum,
    checksum: Checksum,
    fills: Vec<f64>,
}

/// What all chunks of a variable have in common.
struct Chunk<'a> {
    shape: &'a [usize],
    /// The shape of what the input stores, which may be smaller.
    stored: &'a [usize],
    plan: &'a Plan,
}

impl Chunk<'_> {
    fn read<T: Element>(&self, variable: &Variable<'_>, start: &[usize]) -> Result<Vec<T>> {
        let extents = extents_within(self.shape, &self.plan.chunk_type.extents, start);
        let mut values = filled(T::default(), extents.iter().product())?;
        variable.read_box(start, &extents, &mut values)?;
        Ok(values)
    }

    /// Pads, compresses, decompresses and compares.
    fn code<T: Element>(&self, start: &[usize], values: &[T]) -> Result<Coded> {
        let chunk_type = &self.plan.chunk_type;
        let (size, full) = (size_of::<T>(), &chunk_type.extents);
        let extents = extents_within(self.shape, full, start);
        let little = ChunkType { order: ByteOrder::Little, ..chunk_type.clone() };
        let mut bytes = Vec::new();
        T::extend_le_bytes(values, &mut bytes);
        let mut padded = Vec::new();
        let padding = T::from_f64(chunk_type.fill.unwrap_or(0.0));
        T::extend_le_bytes(&filled(padding, full.iter().product())?, &mut padded);
        copy_corner(&bytes, &extents, &mut padded, full, &extents, size);
        // The stream is the same for both byte orders.
        let stream = match self.plan.pointwise {
            None => pumice_hdf5::encode(&padded, &little, &self.plan.options, 1, &Recent::new(0))?,
            Some(pointwise) => self.with_both_bounds::<T>(&padded, pointwise)?,
        };
        pumice_hdf5::decode(&stream, &little, &mut padded, DecodeOptions::new().threads(1))?;
        copy_corner(&padded, full, &mut bytes, &extents, &extents, size);
        let mut restored = filled(T::default(), values.len())?;
        T::copy_from_le_bytes(&bytes, &mut restored);
        let ranges: Vec<_> = extents.iter().map(|&n| 0..n).collect();
        let info = pumice::inspect(&stream)?;
        let found = Guarantee::of(&info).compare(&ranges, values, &restored)?;
        if !found.bound_kept() {
            let message = format!("an error of {:e} breaks the bound; nothing was written", found.max_abs_error);
            return Err(Failure::new(ErrorKind::BoundBroken, message)
                .hint("this is a bug in pumice or a fault of the machine: please report it with the input"));
        }
        let (mut input_checksum, mut checksum) = (Checksum::default(), Checksum::default());
        input_checksum.add_box(self.stored, start, &extents, values);
        checksum.add_box(self.shape, start, &extents, &restored);
        let (raw_bytes, max_abs_error) = (bytes.len() as u64, found.max_abs_error);
        Ok(Coded { stream, raw_bytes, max_abs_error, input_checksum, checksum, fills: info.fills })
    }

    /// Compresses with an absolute bound and one relative to each value, which the filter's options cannot express.
    fn with_both_bounds<T: Element>(&self, padded: &[u8], pointwise: ErrorBound) -> Result<Vec<u8>> {
        let Plan { options, chunk_type, .. } = self.plan;
        let mut values = vec![T::default(); padded.len() / size_of::<T>()];
        T::copy_from_le_bytes(padded, &mut values);
        let mut fills = fills(self.plan);
        fills.sort_by(f64::total_cmp);
        fills.dedup_by_key(|fill| fill.to_bits());
        let config = Config::new(options.bound).and(pointwise).preset(options.preset).fills(&fills).threads(1);
        Ok(pumice::compress(&values, &chunk_type.extents, &config)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_array() {
        let starts: Vec<_> = chunk_starts(&[5, 4], &[2, 4]).collect();
        assert_eq!(starts, [[0, 0], [2, 0], [4, 0]]);
        assert_eq!(extents_within(&[5, 4], &[2, 4], &[4, 0]), [1, 4]);
    }

    #[test]
    fn items_are_worked_on_in_order_whatever_the_threads() {
        let items: Vec<usize> = (0..100).collect();
        assert_eq!(on_threads(&items, |n| n * n), items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert!(on_threads(&[0; 0], |n| *n).is_empty());
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        assert_eq!(filled(0_u64, 1 << 60).unwrap_err().kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn corners_are_copied() {
        let from: Vec<u8> = (0..24).collect();
        let mut to = vec![99; 60];
        copy_corner(&from, &[2, 3, 4], &mut to, &[3, 4, 5], &[2, 3, 4], 1);
        assert_eq!((to[0..5].to_vec(), to[5], to[20], to[26]), (vec![0, 1, 2, 3, 99], 4, 12, 17));
        let mut back = vec![0; 24];
        copy_corner(&to, &[3, 4, 5], &mut back, &[2, 3, 4], &[2, 3, 4], 1);
        assert_eq!(back, from);
    }
}
