//! One variable: finds the range for a relative bound, estimates the compressed size, and codes the chunks. Each chunk
//! is compressed, decompressed and compared before it is written.

use pumice::backend::{Corner, for_each_run};
use pumice::metrics::Guarantee;
use pumice::{AnalysisOptions, DecodeOptions, Element, ErrorBound, ErrorKind, Source, with_dtype};
use pumice_hdf5::{ByteOrder, ChunkType, FilterOptions};

use super::catalog::Plan;
use super::source::Variable;
use crate::failure::{Failure, Result};
use crate::target::is_target;

/// The approximate number of values that an estimate compresses, and its number of chunks.
const SAMPLE_VALUES: usize = 1 << 22;
const MIN_SAMPLE: usize = 2;
const MAX_SAMPLE: usize = 16;

/// The outcome of compressing a variable.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) stored_bytes: u64,
    pub(crate) max_abs_error: f64,
}

/// The values of a variable. The fill value is read as NaN, so that it does not count for the range.
struct Values<'a> {
    variable: &'a Variable<'a>,
    fill: Option<f64>,
}

impl<T: Element> Source<T> for Values<'_> {
    fn shape(&self) -> &[usize] {
        self.variable.dataset.shape()
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> pumice::Result<()> {
        self.variable.read_box(start, extents, out)?;
        if let Some(fill) = self.fill.map(T::from_f64) {
            let values = out.iter_mut().filter(|value| value.to_bits_u64() == fill.to_bits_u64());
            values.for_each(|value| *value = T::from_f64(f64::NAN));
        }
        Ok(())
    }
}

/// Finds the range that a relative bound refers to: that of the whole variable, so that all chunks have one bound.
pub(crate) fn find_range(variable: &Variable<'_>, plan: &mut Plan, threads: usize) -> Result<()> {
    if !matches!(plan.bound, ErrorBound::Rel(_)) || plan.options.range.is_some() {
        return Ok(());
    }
    let values = Values { variable, fill: plan.chunk_type.fill };
    let fills = plan.options.fill.as_slice();
    let range = with_dtype!(plan.chunk_type.dtype, T => pumice::value_range::<T>(&values, fills, threads))?;
    match range {
        Some(range) => plan.options.range = Some(range),
        None => plan.options.bound = ErrorBound::Lossless,
    }
    Ok(())
}

/// Estimates the compressed size from some chunks, spread evenly. For larger chunks `pumice::analyze` samples their
/// values.
pub(crate) fn estimate(variable: &Variable<'_>, plan: &Plan, threads: usize) -> Result<u64> {
    let chunk_values: usize = plan.chunk_type.extents.iter().product();
    if chunk_values > SAMPLE_VALUES && !is_target(plan.bound) {
        return analyze(variable, plan, threads);
    }
    let starts: Vec<Vec<usize>> = chunk_starts(variable.dataset.shape(), &plan.chunk_type.extents).collect();
    let n_sampled = (SAMPLE_VALUES / chunk_values).clamp(MIN_SAMPLE, MAX_SAMPLE).min(starts.len());
    let sample: Vec<_> = (0..n_sampled).map(|i| starts[i * starts.len() / n_sampled].clone()).collect();
    let outcome = compress_chunks(variable, plan, &sample, threads, &|_| (), |_, _| Ok(()))?;
    Ok(outcome.stored_bytes * starts.len() as u64 / n_sampled.max(1) as u64)
}

fn analyze(variable: &Variable<'_>, plan: &Plan, threads: usize) -> Result<u64> {
    let values = Values { variable, fill: None };
    let fills = plan.options.fill.as_slice();
    let bound = match (plan.options.bound, plan.options.range) {
        (ErrorBound::Rel(e), Some((lo, hi))) => ErrorBound::Abs(e * (hi - lo)),
        (bound, _) => bound,
    };
    let options = AnalysisOptions::new().bounds(&[bound]).presets(&[plan.options.preset]).fills(fills).threads(threads);
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
    let starts: Vec<Vec<usize>> = chunk_starts(variable.dataset.shape(), &plan.chunk_type.extents).collect();
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
    let chunk = Chunk { shape: variable.dataset.shape(), chunk_type: &plan.chunk_type, options: &plan.options };
    let mut outcome = Outcome::default();
    for starts in starts.chunks(threads.max(1)) {
        let coded = with_dtype!(plan.chunk_type.dtype, T => {
            let read = |start: &Vec<usize>| chunk.read::<T>(variable, start);
            let values = starts.iter().map(read).collect::<Result<Vec<_>>>()?;
            std::thread::scope(|scope| {
                let parts = starts.iter().zip(values);
                let workers: Vec<_> = parts.map(|(start, values)| scope.spawn(|| chunk.code(start, values))).collect();
                workers.into_iter().map(join).collect::<Result<Vec<_>>>()
            })?
        });
        for (start, coded) in starts.iter().zip(coded) {
            write(start, &coded.stream)?;
            outcome.stored_bytes += coded.stream.len() as u64;
            outcome.max_abs_error = outcome.max_abs_error.max(coded.max_abs_error);
            progress(coded.raw_bytes);
        }
    }
    Ok(outcome)
}

fn join<T>(worker: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
}

/// What all chunks of a variable have in common.
struct Chunk<'a> {
    shape: &'a [usize],
    chunk_type: &'a ChunkType,
    options: &'a FilterOptions,
}

impl Chunk<'_> {
    fn read<T: Element>(&self, variable: &Variable<'_>, start: &[usize]) -> Result<Vec<T>> {
        let extents = extents_within(self.shape, &self.chunk_type.extents, start);
        let mut values = vec![T::default(); extents.iter().product()];
        variable.read_box(start, &extents, &mut values)?;
        Ok(values)
    }

    /// Pads, compresses, decompresses and compares.
    fn code<T: Element>(&self, start: &[usize], values: Vec<T>) -> Result<Coded> {
        let (size, full) = (size_of::<T>(), &self.chunk_type.extents);
        let extents = extents_within(self.shape, full, start);
        let little = ChunkType { order: ByteOrder::Little, ..self.chunk_type.clone() };
        let mut bytes = Vec::new();
        T::extend_le_bytes(&values, &mut bytes);
        let mut padded = Vec::new();
        let padding = T::from_f64(self.chunk_type.fill.unwrap_or(0.0));
        T::extend_le_bytes(&vec![padding; full.iter().product()], &mut padded);
        copy_corner(&bytes, &extents, &mut padded, full, &extents, size);
        // The stream is the same for both byte orders.
        let stream = pumice_hdf5::encode(&padded, &little, self.options, 1)?;
        pumice_hdf5::decode(&stream, &little, &mut padded, DecodeOptions::new().threads(1))?;
        copy_corner(&padded, full, &mut bytes, &extents, &extents, size);
        let mut restored = vec![T::default(); values.len()];
        T::copy_from_le_bytes(&bytes, &mut restored);
        let ranges: Vec<_> = extents.iter().map(|&n| 0..n).collect();
        let found = Guarantee::of(&pumice::inspect(&stream)?).compare(&ranges, &values, &restored);
        if !found.bound_kept() {
            let message = format!("an error of {:e} breaks the bound; nothing was written", found.max_abs_error);
            return Err(Failure::new(ErrorKind::BoundBroken, message)
                .hint("this is a bug in pumice or a fault of the machine: please report it with the input"));
        }
        Ok(Coded { stream, raw_bytes: bytes.len() as u64, max_abs_error: found.max_abs_error })
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
