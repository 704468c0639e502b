//! Compression: of a whole array in memory ([`compress`]), of one that is read box by box ([`compress_from`]), and of
//! one whose rows arrive over time ([`Writer`]). All of them make the same plan from the same input and write the same
//! frames; they differ in the source of the values and in the output.

mod curve;
pub(crate) mod file;
pub(crate) mod frames;
pub(crate) mod target;
mod training;

use std::io::Write;

pub use file::FileWriter;
pub use target::Achieved;
pub use training::CodebookTrainer;

use crate::codec::Element;
use crate::container::StreamWriter;
use crate::container::frame::MAX_HEADER_BYTES;
use crate::container::header::Header;
use crate::container::index::{Footer, Index};
use crate::error::{Error, Result};
use crate::exec::no_memory;
use crate::exec::parallel::{SERIAL_VALUES, Workers};
use crate::grid::{self, Grid};
use crate::io::{SliceSource, Source, varint};
use crate::plan::passes::{Blocks, SourcePasses};
use crate::plan::{Config, ErrorBound, MAX_FILLS, Plan, stats};
use frames::Job;

/// Sizes and bound of a finished compression.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Size of the values.
    pub raw_bytes: u64,
    /// Size of the stream.
    pub compressed_bytes: u64,
    /// The absolute error bound that holds; 0 if lossless, infinite if no absolute one was asked for.
    pub abs_bound: f64,
    /// Number of chunks.
    pub n_chunks: u64,
    /// The values that were taken for fill values; of a stream whose rows arrived over time, those that have masks.
    pub fills: Vec<f64>,
    /// How well [`ErrorBound::Psnr`], [`ErrorBound::L2`] or [`ErrorBound::Ratio`] was met; `None` for other bounds.
    ///
    /// [`ErrorBound::Psnr`]: crate::ErrorBound::Psnr
    /// [`ErrorBound::L2`]: crate::ErrorBound::L2
    /// [`ErrorBound::Ratio`]: crate::ErrorBound::Ratio
    pub target: Option<Achieved>,
}

impl Summary {
    /// How many times smaller the stream is than the values.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.compressed_bytes as f64
    }
}

/// Compresses `data`, an array of this shape in C order.
///
/// ```
/// use pumice::{ErrorBound, Config};
/// let data = vec![0.5f32; 1000];
/// let bytes = pumice::compress(&data, &[10, 100], &Config::new(ErrorBound::Abs(1e-3)))?;
/// assert_eq!(pumice::decompress::<f32>(&bytes)?.shape, [10, 100]);
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn compress<T: Element>(data: &[T], shape: &[usize], config: &Config) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    compress_into(data, shape, config, &mut out)?;
    Ok(out)
}

/// Compresses `data` into `out`, whose content is replaced and whose capacity is reused: the page faults of new memory
/// cost more time than the compression.
pub fn compress_into<T: Element>(data: &[T], shape: &[usize], config: &Config, out: &mut Vec<u8>) -> Result<Summary> {
    out.clear();
    let source = SliceSource::new(data, shape)?;
    let workers = workers_for(data.len(), config.threads)?;
    let stats = stats::scan(&source, &config.fills, &workers, &|_| ())?;
    let (plan, target) = target::plan(config, &source, &stats, &workers, &|_| ())?;
    Ok(Summary { target, ..append_planned(&source, &plan, &workers, out)? })
}

/// An upper bound on the size of the stream that [`compress`] makes from an array of this shape, whatever its values:
/// the capacity that a caller needs who provides the memory. It is a little more than the size of the values, since
/// chunks that do not get smaller are stored raw.
///
/// ```
/// use pumice::{ErrorBound, Config};
/// let config = Config::new(ErrorBound::Rel(1e-3));
/// let most = pumice::max_compressed_bytes::<f32>(&[10, 100], &config)?;
/// assert!((4000..4400).contains(&most));
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn max_compressed_bytes<T: Element>(shape: &[usize], config: &Config) -> Result<u64> {
    // Resolving a bound may need the values; the chunks do not depend on the bound.
    let lossless = Config { bounds: vec![ErrorBound::Lossless], regions: Vec::new(), ..config.clone() };
    let plan = Plan::<T>::new(&lossless, shape, Some(&stats::Stats { range: None, fills: Vec::new() }))?;
    let n_chunks = grid_of(&plan)?.n_chunks();
    let mut header = Vec::new();
    Header::new(&plan, n_chunks == 1).write_to(&mut header)?;
    let number = varint::MAX_BYTES;
    // What the headers of other bounds have in addition: kinds and numbers of bounds, step, fill values and boxes.
    let (bound, fixed) = (1 + size_of::<f64>(), 3 * number + size_of::<f64>() + (1 + MAX_FILLS) * size_of::<T>());
    let region = 2 * shape.len() * number + bound + size_of::<f64>();
    let also = fixed + config.bounds.len() * bound + config.regions.len() * region;
    // The index of a chunked stream has a copy of the header.
    let headers = (header.len() + also) * if n_chunks == 1 { 1 } else { 2 };
    let frames = n_chunks * (MAX_HEADER_BYTES + number) as u64;
    let raw_bytes = grid::n_values(shape) as u64 * size_of::<T>() as u64;
    Ok(raw_bytes + (headers + Index::MAX_FIXED_BYTES + Footer::BYTES) as u64 + frames)
}

/// Appends the stream of an array to `out`, which is empty; the plan is complete.
pub(crate) fn append_planned<T: Element>(
    source: &SliceSource<'_, T>,
    plan: &Plan<T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> Result<Summary> {
    let grid = grid_of(plan)?;
    let mut stream = StreamWriter::start(&Header::new(plan, grid.is_whole()), out)?;
    let job = Job { source, grid: &grid, plan, first_id: 0, first_row: 0, progress: &|_| () };
    stream.add_frames(job.append_to(workers, out)?, grid.rows());
    Ok(summary(plan, &plan.shape, stream.finish(out), grid.n_chunks()))
}

/// Compresses an array that is read box by box, such as a file larger than memory, to a stream of bytes. Needs memory
/// for a few chunks per thread.
///
/// The values are read twice, to find their range and to encode them; `progress` is called with the number of input
/// bytes done, each pass counting half, from any thread. The search for a target ([`ErrorBound::Psnr`] and the like)
/// happens in between, in several passes that together count half; the other two passes then count a quarter each.
///
/// [`ErrorBound::Psnr`]: crate::ErrorBound::Psnr
pub fn compress_from<T: Element, W: Write + Send>(
    source: &dyn Source<T>,
    config: &Config,
    out: &mut W,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Summary> {
    let shape = source.shape();
    let raw_bytes = grid::checked_bytes(shape, size_of::<T>());
    let raw_bytes = raw_bytes.ok_or_else(|| Error::invalid(format!("shape {shape:?} is too large")))?;
    let workers = workers_for(grid::n_values(shape), config.threads)?;
    let parts = if target::of(config)?.is_some() { 4 } else { 2 };
    let stats = stats::scan(source, &config.fills, &workers, &|done| progress(done / parts))?;
    let searched = |done: u64| progress(raw_bytes / parts + done / 2);
    let (plan, target) = target::plan(config, source, &stats, &workers, &searched)?;
    let encoded = |done: u64| progress(raw_bytes - raw_bytes / parts + done / parts);
    Ok(Summary { target, ..write_planned(source, &plan, &workers, out, &encoded)? })
}

/// Writes the stream of an array; the plan is complete. `progress` is called with the number of bytes encoded.
pub(crate) fn write_planned<T: Element, W: Write + Send>(
    source: &dyn Source<T>,
    plan: &Plan<T>,
    workers: &Workers,
    out: &mut W,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Summary> {
    let grid = grid_of(plan)?;
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    let mut stream = StreamWriter::start(&Header::new(plan, grid.is_whole()), &mut head)?;
    out.write_all(&head)?;
    let job = Job { source, grid: &grid, plan, first_id: 0, first_row: 0, progress };
    stream.add_frames(job.hand_over(workers, |frame| Ok(out.write_all(frame)?))?, grid.rows());
    let n_bytes = stream.finish(&mut tail);
    out.write_all(&tail)?;
    out.flush()?;
    Ok(summary(plan, &plan.shape, n_bytes, grid.n_chunks()))
}

/// Compresses rows along the slowest axis as they arrive. The bound must be known up front: [`ErrorBound::Abs`],
/// [`ErrorBound::PwRel`], [`ErrorBound::Lossless`], or [`ErrorBound::Rel`] with [`Config::range`]. Regions are boxes of
/// the whole array, including rows that are still to be written.
///
/// Fill values get masks if they are named ([`Config::fills`]) or found in the first chunks along axis 0; conventional ones
/// in later chunks are stored as exact values.
///
/// Nothing is readable before [`finish`](Writer::finish) has written the index, but `salvage` finds what was written.
///
/// ```
/// use pumice::{ErrorBound, Config, Writer};
/// let mut writer = Writer::<f32, _>::new(Vec::new(), &[3], &Config::new(ErrorBound::Lossless))?;
/// writer.write_rows(&[1.0, 2.0, 3.0])?;
/// writer.write_rows(&[4.0, 5.0, 6.0, 7.0, 8.0, 9.0])?;
/// let (bytes, _) = writer.finish()?;
/// assert_eq!(pumice::decompress::<f32>(&bytes)?.shape, [3, 3]);
/// # Ok::<(), pumice::Error>(())
/// ```
///
/// [`ErrorBound::Abs`]: crate::ErrorBound::Abs
/// [`ErrorBound::PwRel`]: crate::ErrorBound::PwRel
/// [`ErrorBound::Lossless`]: crate::ErrorBound::Lossless
/// [`ErrorBound::Rel`]: crate::ErrorBound::Rel
#[derive(Debug)]
pub struct Writer<T, W: Write + Send> {
    out: W,
    plan: Plan<T>,
    workers: Workers,
    /// Values per row.
    row_values: usize,
    /// Rows that are encoded together: whole chunks, and enough of them for all workers.
    batch_rows: usize,
    /// Rows that wait for their batch to be full.
    pending: Vec<T>,
    /// What was written so far; `None` until the header is written.
    stream: Option<StreamWriter>,
    /// A write failed half-way, so that the stream cannot be completed.
    is_broken: bool,
}

impl<T: Element, W: Write + Send> Writer<T, W> {
    /// A writer of an array whose trailing extents, `shape[1..]`, are `row_shape`.
    pub fn new(out: W, row_shape: &[usize], config: &Config) -> Result<Self> {
        let shape: Vec<usize> = std::iter::once(0).chain(row_shape.iter().copied()).collect();
        let plan = Plan::new(config, &shape, None)?;
        Self::resume(out, plan, config.threads, None)
    }

    /// A writer that continues a stream, or starts one.
    pub(crate) fn resume(out: W, plan: Plan<T>, threads: usize, stream: Option<StreamWriter>) -> Result<Self> {
        let workers = Workers::new(threads)?;
        let row_shape = &plan.shape[1..];
        let row_bytes = grid::checked_bytes(row_shape, size_of::<T>());
        row_bytes.ok_or_else(|| Error::invalid(format!("rows of shape {row_shape:?} are too large")))?;
        let row_values = grid::n_values(row_shape);
        let chunks_per_row = match row_values {
            0 => 1,
            _ => grid::count_chunks(row_shape, &plan.chunk_shape, &[1]).unwrap_or(u64::MAX),
        };
        let wanted = workers.count();
        let chunk_rows = (wanted as u64).div_ceil(chunks_per_row) as usize;
        let batch_rows = plan.chunk_shape[0].saturating_mul(chunk_rows);
        Ok(Self { out, plan, workers, row_values, batch_rows, pending: Vec::new(), stream, is_broken: false })
    }

    /// Adds rows: any whole number of them. They are encoded, and written, as soon as there are enough to keep all
    /// workers busy.
    pub fn write_rows(&mut self, values: &[T]) -> Result<()> {
        self.check_usable()?;
        if values.is_empty() {
            return Ok(());
        }
        if self.row_values == 0 || !values.len().is_multiple_of(self.row_values) {
            let n = self.row_values;
            return Err(Error::invalid(format!("{} values are not a whole number of rows of {n}", values.len())));
        }
        let batch_values = self.batch_rows.saturating_mul(self.row_values);
        let mut values = values;
        if !self.pending.is_empty() {
            let (head, tail) = values.split_at(values.len().min(batch_values - self.pending.len()));
            self.reserve_pending(head.len())?;
            self.pending.extend_from_slice(head);
            values = tail;
            if self.pending.len() == batch_values {
                self.flush_pending()?;
            }
        }
        // Here nothing is pending or nothing is left; whole batches are encoded without a copy.
        let n = values.len() / batch_values * batch_values;
        if n > 0 {
            self.encode_rows(&values[..n])?;
        }
        self.reserve_pending(values.len() - n)?;
        self.pending.extend_from_slice(&values[n..]);
        Ok(())
    }

    fn reserve_pending(&mut self, n: usize) -> Result<()> {
        self.pending.try_reserve(n).map_err(|_| no_memory((n * size_of::<T>()) as u64))
    }

    /// The output, for example to pass on what was written to a `Vec` so far and to clear it.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes the pending rows, the index and the footer, and returns the output.
    pub fn finish(mut self) -> Result<(W, Summary)> {
        self.check_usable()?;
        if !self.pending.is_empty() {
            self.flush_pending()?;
        }
        let mut bytes = Vec::new();
        let summary = match self.stream {
            Some(stream) if stream.n_chunks() > 0 => {
                let mut shape = self.plan.shape.clone();
                shape[0] = stream.rows();
                let n_chunks = stream.n_chunks();
                summary(&self.plan, &shape, stream.finish(&mut bytes), n_chunks)
            }
            // No rows at all: an array without elements is always a single chunk.
            _ => append_planned(&SliceSource::new(&[], &self.plan.shape)?, &self.plan, &Workers::Serial, &mut bytes)?,
        };
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        Ok((self.out, summary))
    }

    fn flush_pending(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let encoded = self.encode_rows(&pending);
        pending.clear();
        self.pending = pending;
        encoded
    }

    /// Encodes rows that start a chunk; only the last call of a session may end within one.
    fn encode_rows(&mut self, values: &[T]) -> Result<()> {
        self.is_broken = true; // until all is written
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let rows = (values.len() / self.row_values).min(self.plan.chunk_shape[0]);
                let first: Vec<usize> = std::iter::once(rows).chain(self.plan.shape[1..].iter().copied()).collect();
                let first_rows = SliceSource::new(&values[..rows * self.row_values], &first)?;
                if self.plan.is_streamed && !self.plan.limit().is_lossless() {
                    self.plan.choose_masks(&SourcePasses {
                        blocks: Blocks::new(&first_rows),
                        workers: &self.workers,
                        progress: &|_| (),
                    })?;
                }
                let mut bytes = Vec::new();
                let stream = StreamWriter::start(&Header::new(&self.plan, false), &mut bytes)?;
                self.out.write_all(&bytes)?;
                none.insert(stream)
            }
        };
        let mut shape = self.plan.shape.clone();
        shape[0] = values.len() / self.row_values;
        let source = SliceSource::new(values, &shape)?;
        let grid = Grid::new(&shape, &self.plan.chunk_shape, &shape[..1])?;
        let (first_id, first_row) = (stream.n_chunks(), stream.rows());
        let job = Job { source: &source, grid: &grid, plan: &self.plan, first_id, first_row, progress: &|_| () };
        let frame_bytes = job.hand_over(&self.workers, |frame| Ok(self.out.write_all(frame)?))?;
        stream.add_frames(frame_bytes, shape[0]);
        self.is_broken = false;
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        if self.is_broken {
            return Err(Error::invalid("an earlier write failed: the stream cannot be completed"));
        }
        Ok(())
    }
}

/// The grid of an array written in one session: a single chunk where that covers all of it.
pub(crate) fn grid_of<T: Element>(plan: &Plan<T>) -> Result<Grid> {
    grid_with(&plan.shape, &plan.chunk_shape)
}

/// The grid of an array of this shape, cut into chunks of that shape.
pub(crate) fn grid_with(shape: &[usize], chunk_shape: &[usize]) -> Result<Grid> {
    let one = shape.contains(&0) || shape.iter().zip(chunk_shape).all(|(n, c)| n <= c);
    if one { Ok(Grid::whole(shape)) } else { Grid::new(shape, chunk_shape, &shape[..1]) }
}

/// The workers for an array of this many values: only one if the array is so small that starting a pool does not pay.
pub(crate) fn workers_for(n_values: usize, threads: usize) -> Result<Workers> {
    Workers::new(if n_values <= SERIAL_VALUES { 1 } else { threads })
}

pub(crate) fn summary<T: Element>(plan: &Plan<T>, shape: &[usize], compressed_bytes: u64, n_chunks: u64) -> Summary {
    let raw_bytes = grid::n_values(shape) as u64 * size_of::<T>() as u64;
    let fills = plan.all_fills().into_iter().map(T::to_f64).collect();
    Summary { raw_bytes, compressed_bytes, abs_bound: plan.abs_bound, n_chunks, fills, target: None }
}
