//! Estimates the compressed size of an array by running the real encoders on a sample.
//!
//! Chunks are cut into *cells*: boxes that keep the chunk's proportions and hold enough values to be coded in the same
//! way as a chunk. A cheap measure, the bits that local Lorenzo differences take, is computed for all cells; the
//! encoders run on cells spread evenly over the order of that measure, and a regression on it extrapolates their sizes
//! to all cells. A cell also has a higher overhead per value than a chunk: tables, learning, and values at its faces.
//! The sampled cells are therefore also coded in halves and in quarters, which separates fixed costs from those of
//! faces and predicts both for a chunk.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::residuals::{self, Differences, Histogram, Quantised};
use super::smoothness::Madograms;
use crate::codec::{Element, pipeline};
use crate::compress::{self, frames};
use crate::container::StreamWriter;
use crate::container::frame::Identity;
use crate::container::header::Header;
use crate::error::Result;
use crate::exec::{self, Workers, filled, parallel};
use crate::grid::{self, Block, Corner, Grid};
use crate::io::Source;
use crate::plan::{self, ErrorBound, Plan, Preset, Quantizer};

/// Arrays of up to this many values are encoded as a whole.
const WHOLE_VALUES: usize = 1 << 19;
/// Most values of a cell. A quarter of half of it is still coded with tables, as chunks are.
const CELL_VALUES: usize = 1 << 17;
/// One of this many values is in a sampled cell.
const SAMPLE_SHARE: usize = 4;
/// No more values than this are sampled.
const SAMPLE_VALUES: usize = 1 << 20;
/// Number of cells on which the differences of the cheap measure are chosen.
const TRIAL_CELLS: usize = 4;
/// Most chunks that are measured; in larger arrays they are spread evenly.
const MEASURED_CHUNKS: u64 = 64;
/// Estimated bits to begin or end a run of fill values.
const OUTLINE_BITS: usize = 4;
/// At most this share of a cell's size counts as overhead that a chunk does not have.
const MAX_SAVED: f64 = 0.95;

/// The ratio to expect of one preset at one bound.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The preset.
    pub preset: Preset,
    /// The bound.
    pub bound: ErrorBound,
    /// The absolute bound that holds; 0 if lossless.
    pub abs_bound: f64,
    /// Size of the stream to expect.
    pub compressed_bytes: u64,
    /// Size of the values over that.
    pub ratio: f64,
    /// Bits of the stream per value.
    pub bits_per_value: f64,
    /// Whether the whole array was encoded, so that the figures are those of a compression.
    pub is_exact: bool,
}

/// The residuals of predictors on the sample at one bound.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Residuals {
    /// The bound.
    pub bound: ErrorBound,
    /// The absolute bound that holds.
    pub abs_bound: f64,
    /// Lorenzo differences of the quantised values.
    pub lorenzo: Vec<DifferenceEntropy>,
    /// Interpolation along all axes, finest level first; empty where it cannot keep the bound.
    pub interpolation: Vec<LevelEntropy>,
    /// Share of the most frequent code of the Lorenzo differences of least entropy.
    pub most_likely: f64,
    /// Binary variance of those codes, averaged over distances: the share of pairs of codes that differ. 0 is best for
    /// run-length coding.
    pub roughness: f64,
}

/// Entropy of Lorenzo differences.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DifferenceEntropy {
    /// 1 for differences, 2 for differences of differences.
    pub order: u32,
    /// The axes along which they are taken, 0 being the slowest.
    pub axes: Vec<usize>,
    /// Bits per value under an ideal static code.
    pub bits: f64,
}

/// Entropy of one level of an interpolation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LevelEntropy {
    /// Distance of the points that predict and those that are predicted; of the anchors, which are predicted from each
    /// other, that of the coarsest grid.
    pub stride: usize,
    /// Share of all values that are on this level.
    pub share: f64,
    /// Bits per value under an ideal static code.
    pub bits: f64,
}

/// The input of an estimate.
pub(super) struct Survey<'a, T> {
    pub(super) source: &'a dyn Source<T>,
    /// One for each bound.
    pub(super) plans: &'a [Plan<T>],
    pub(super) presets: &'a [Preset],
    pub(super) workers: &'a Workers,
}

/// The results of a survey.
pub(super) struct Found {
    pub(super) n_chunks: u64,
    pub(super) madograms: Madograms,
    pub(super) residuals: Vec<Residuals>,
    pub(super) estimates: Vec<Estimate>,
    pub(super) sampled_values: u64,
}

/// A box that may be sampled.
struct Cell {
    block: Block,
    /// Bits per value by the cheap measure, for each plan.
    measure: Vec<f64>,
}

/// Bytes of a cell as a whole, in halves and in quarters.
type Sizes = [u64; 3];

/// The sizes of one sampled cell.
struct CellSizes {
    n_values: usize,
    /// For each plan, for each preset.
    sizes: Vec<Vec<Sizes>>,
}

/// The results of all sampled cells.
struct SampleResults {
    cells: Vec<CellSizes>,
    madograms: Madograms,
    /// For each plan that is not lossless.
    residuals: Vec<ResidualCounts>,
}

/// Histograms of all residuals of a cell at one bound.
const RESIDUAL_BYTES: u64 = 5 << 19;

impl<T: Element> Survey<'_, T> {
    /// `default` is the plan of any bound: all have the same chunks and fill values.
    pub(super) fn run(&self, default: &Plan<T>, progress: &(dyn Fn(f64) + Sync)) -> Result<Found> {
        let grid = compress::grid_of(default)?;
        let is_whole = grid.n_chunks() == 1 && grid.chunk_values(0) <= WHOLE_VALUES;
        let measured = if is_whole {
            vec![Cell { block: grid.block(0), measure: vec![1.0; self.plans.len()] }]
        } else {
            self.measure(&grid, &default.fills, &|share| progress(0.2 * share))?
        };
        let sampled = select(&measured);
        let found = self.encode_sample(&sampled, is_whole, default, &|share| progress(0.2 + 0.8 * share))?;
        let SampleResults { cells: results, madograms, residuals: counts } = found;
        let lossy: Vec<&Plan<T>> = self.plans.iter().filter(|plan| quantizer(plan).is_some()).collect();
        let mut estimates = Vec::new();
        for (b, plan) in self.plans.iter().enumerate() {
            for (p, &preset) in self.presets.iter().enumerate() {
                let sizes: Vec<(&Cell, &CellSizes, Sizes)> =
                    sampled.iter().zip(&results).map(|(cell, result)| (*cell, result, result.sizes[b][p])).collect();
                let payload_bits = if is_whole {
                    8.0 * sizes[0].2[0] as f64 / (sizes[0].1.n_values as f64).max(1.0)
                } else {
                    bits_per_value(&sizes, b, &measured, grid.chunk_values(0))
                };
                estimates.push(estimate(&Plan { preset, ..plan.clone() }, &grid, payload_bits, is_whole)?);
            }
        }
        Ok(Found {
            n_chunks: grid.n_chunks(),
            madograms,
            residuals: lossy.iter().zip(&counts).map(|(plan, counts)| counts.finish(plan)).collect(),
            estimates,
            sampled_values: results.iter().map(|result| result.n_values as u64).sum(),
        })
    }

    /// All cells of the array, or of many chunks of it, with the cheap measure of each.
    fn measure(&self, grid: &Grid, fills: &[T], progress: &(dyn Fn(f64) + Sync)) -> Result<Vec<Cell>> {
        let n_measured = grid.n_chunks().min(MEASURED_CHUNKS);
        let ids: Vec<u64> = (0..n_measured).map(|i| i * grid.n_chunks() / n_measured).collect();
        let cells: Vec<Vec<Block>> = ids.iter().map(|id| cells_of(&grid.block(*id))).collect();
        let all: Vec<&Block> = cells.iter().flatten().collect();
        let trial: Vec<&Block> =
            (0..TRIAL_CELLS.min(all.len())).map(|i| all[i * all.len() / TRIAL_CELLS.min(all.len())]).collect();
        let cell_values = all.iter().map(|cell| cell.n_values()).max().unwrap_or(0);
        let cell_bytes = self.cell_bytes(cell_values);
        // Values and integers of all trial cells.
        exec::check_memory(cell_bytes + (trial.len() * (size_of::<T>() + 4) * cell_values) as u64)?;
        let differences = self.choose_differences(&trial, fills)?;
        let mut measured = Vec::with_capacity(all.len());
        let done = AtomicUsize::new(0);
        let work = |i: usize, slot: &mut Vec<Cell>| {
            let block = grid.block(ids[i]);
            let values = self.read(&block)?;
            let measure = |cell: &Block| {
                let (start, zeros) = (cell.start_in(&block), vec![0; cell.start.len()]);
                let mut part = vec![T::default(); cell.n_values()];
                let from = Corner { shape: &block.extents, start: &start };
                let to = Corner { shape: &cell.extents, start: &zeros };
                grid::copy_block(&values, from, &mut part, to, &cell.extents);
                let bits = |(plan, differences): (&Plan<T>, &Option<Differences>)| {
                    let quantizer = quantizer(plan)?;
                    let found = residuals::quantize(&part, &quantizer, fills);
                    let left = differences.as_ref()?.of(&found.values, &cell.extents);
                    Some(residuals::local_bits(&left) + exception_bits::<T>(&found))
                };
                let measure = self.plans.iter().zip(&differences).map(bits);
                // Without a step nothing is known before coding.
                let n = part.len() as f64;
                Cell { block: cell.clone(), measure: measure.map(|bits| bits.map_or(1.0, |b| b / n)).collect() }
            };
            *slot = cells[i].iter().map(measure).collect();
            progress((done.fetch_add(1, Ordering::Relaxed) + 1) as f64 / ids.len() as f64);
            Ok(())
        };
        let chunk_bytes = (frames::largest(grid) * size_of::<T>()) as u64 + frames::read_bytes(self.source, grid);
        let at_once = exec::at_once(self.workers, n_measured, chunk_bytes + cell_bytes)?;
        parallel::ordered(self.workers, ids.len(), at_once, work, |_, slot| {
            measured.append(slot);
            Ok(())
        })?;
        Ok(measured)
    }

    /// The differences that take the fewest bits in the trial cells, for each plan.
    fn choose_differences(&self, trial: &[&Block], fills: &[T]) -> Result<Vec<Option<Differences>>> {
        let parts: Vec<Vec<T>> = trial.iter().map(|block| self.read(block)).collect::<Result<_>>()?;
        let best = |plan: &Plan<T>| {
            let quantizer = quantizer(plan)?;
            let integers: Vec<_> = parts.iter().map(|part| residuals::quantize(part, &quantizer, fills)).collect();
            let bits = |differences: &Differences| -> f64 {
                let all = integers.iter().zip(trial);
                all.map(|(found, block)| residuals::local_bits(&differences.of(&found.values, &block.extents))).sum()
            };
            Differences::candidates(&trial[0].extents).into_iter().min_by(|a, b| bits(a).total_cmp(&bits(b)))
        };
        Ok(self.plans.iter().map(best).collect())
    }

    /// Encodes the sample.
    fn encode_sample(
        &self,
        sampled: &[&Cell],
        is_whole: bool,
        default: &Plan<T>,
        progress: &(dyn Fn(f64) + Sync),
    ) -> Result<SampleResults> {
        let mut results =
            SampleResults { cells: Vec::new(), madograms: Madograms::new(default.shape.len()), residuals: Vec::new() };
        let n_steps = (sampled.len() * (self.plans.len() * self.presets.len() + 1)) as f64;
        let done = AtomicUsize::new(0);
        let step = || progress((done.fetch_add(1, Ordering::Relaxed) + 1) as f64 / n_steps);
        let inner = self.workers.for_items(sampled.len() as u64);
        let work = |i: usize, slot: &mut Option<(CellSizes, Madograms, Vec<ResidualCounts>)>| {
            let block = &sampled[i].block;
            let values = self.read(block)?;
            let n_scales = if is_whole { 1 } else { 3 };
            let sizes = |plan: &Plan<T>, preset: Preset| {
                let plan = Plan { preset, ..plan.clone() };
                let sizes: Sizes = std::array::from_fn(|scale| {
                    if scale < n_scales { encoded_bytes(&values, &block.extents, &plan, scale, inner) } else { 0 }
                });
                step();
                sizes
            };
            let mut madograms = Madograms::new(block.extents.len());
            let mut counts = Vec::new();
            if !values.is_empty() {
                madograms.add(&values, &block.extents, &default.fills);
                let lossy = self.plans.iter().filter_map(quantizer);
                counts.extend(lossy.map(|q| ResidualCounts::of(&values, &block.extents, &q, &default.fills)));
            }
            step();
            let sizes = self.plans.iter().map(|plan| self.presets.iter().map(|p| sizes(plan, *p)).collect()).collect();
            *slot = Some((CellSizes { n_values: values.len(), sizes }, madograms, counts));
            Ok(())
        };
        let bytes = self.cell_bytes(sampled.iter().map(|cell| cell.block.n_values()).max().unwrap_or(0));
        let at_once = exec::at_once(self.workers, sampled.len() as u64, bytes)?;
        parallel::ordered(self.workers, sampled.len(), at_once, work, |_, slot| {
            let Some((sizes, madograms, counts)) = slot.take() else { return Ok(()) };
            results.cells.push(sizes);
            results.madograms.merge(&madograms);
            merge_all(&mut results.residuals, &counts);
            Ok(())
        })?;
        Ok(results)
    }

    /// The most memory that measuring or encoding a cell of so many values takes, these included.
    fn cell_bytes(&self, n_values: usize) -> u64 {
        let presets = || self.presets.iter().flat_map(|preset| self.plans.iter().map(|plan| (*preset, plan)));
        let to_encode =
            |(preset, plan): (Preset, &Plan<T>)| pipeline::encode_bytes(&Plan { preset, ..plan.clone() }, n_values);
        // The cell, a part of it and their payloads; or integers, differences, and positions of exact values.
        let of_values = (4 * size_of::<T>() + 48) * n_values;
        let of_plans = 2 * RESIDUAL_BYTES * self.plans.len() as u64;
        presets().map(to_encode).max().unwrap_or(0) + of_values as u64 + of_plans
    }

    fn read(&self, block: &Block) -> Result<Vec<T>> {
        let mut values = filled(T::default(), block.n_values())?;
        self.source.read_box(&block.start, &block.extents, &mut values)?;
        Ok(values)
    }
}

fn quantizer<T: Element>(plan: &Plan<T>) -> Option<Quantizer<T>> {
    Quantizer::for_stream(plan.step?, plan.abs_bound)
}

/// Estimated bits of values without an integer: those stored exactly, and the masks of fill values.
fn exception_bits<T>(found: &Quantised) -> f64 {
    (found.n_exact * (8 * size_of::<T>() + 16) + found.n_outlines * OUTLINE_BITS) as f64
}

/// Cuts a chunk into boxes of roughly its own proportions and at most [`CELL_VALUES`] values.
fn cells_of(chunk: &Block) -> Vec<Block> {
    let mut cuts = vec![1; chunk.extents.len()];
    let size = |cuts: &[usize]| -> usize { chunk.extents.iter().zip(cuts).map(|(n, c)| n.div_ceil(*c)).product() };
    while size(&cuts) > CELL_VALUES {
        let longest = (0..cuts.len()).max_by_key(|a| chunk.extents[*a] / cuts[*a]);
        cuts[longest.expect("a chunk of many values has axes")] *= 2;
    }
    let mut cells = vec![chunk.clone()];
    for (axis, &n_cuts) in cuts.iter().enumerate() {
        cells = cells.iter().flat_map(|cell| cut(cell, axis, n_cuts)).collect();
    }
    cells
}

/// Pieces of nearly equal size along an axis, cut where `fast` cuts its tiles, so that cells do not have more clipped
/// tiles than chunks.
fn cut(block: &Block, axis: usize, n: usize) -> impl Iterator<Item = Block> {
    let (start, extent) = (block.start[axis], block.extents[axis]);
    let tile = plan::tile_extent(block.extents.len(), axis);
    let unit = if extent >= n * tile { tile } else { 1 };
    let edge = move |i: usize| if i == n { extent } else { (extent * i / n + unit / 2) / unit * unit };
    (0..n).map(move |i| {
        let mut piece = block.clone();
        piece.start[axis] = start + edge(i);
        piece.extents[axis] = edge(i + 1) - edge(i);
        piece
    })
}

/// Encoded size of a box that is cut in two along its longest axis `scale` times.
fn encoded_bytes<T: Element>(values: &[T], extents: &[usize], plan: &Plan<T>, scale: usize, inner: &Workers) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let whole = Block::whole(extents);
    let mut pieces = vec![whole.clone()];
    for _ in 0..scale {
        let longest = (0..extents.len()).max_by_key(|a| pieces[0].extents[*a]).expect("a cell has axes");
        pieces = pieces.iter().flat_map(|piece| cut(piece, longest, 2)).collect();
    }
    let mut out = Vec::new();
    let mut part = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.n_values() > 0) {
        let zeros = vec![0; extents.len()];
        part.resize(piece.n_values(), T::default());
        let to = Corner { shape: &piece.extents, start: &zeros };
        grid::copy_block(values, Corner { shape: extents, start: &piece.start }, &mut part, to, &piece.extents);
        T::encode_chunk(&part, &Block::whole(&piece.extents), plan, inner, &mut out);
    }
    out.len() as u64
}

/// Cells spread evenly over the order of their measure.
fn select(cells: &[Cell]) -> Vec<&Cell> {
    let n_values: usize = cells.iter().map(|cell| cell.block.n_values()).sum();
    let share = (n_values / SAMPLE_SHARE).min(SAMPLE_VALUES) as f64 / n_values.max(1) as f64;
    let n = ((cells.len() as f64 * share).round() as usize).clamp(1, cells.len());
    let n_plans = cells[0].measure.len();
    let totals: Vec<f64> = (0..n_plans).map(|b| cells.iter().map(|cell| cell.measure[b]).sum()).collect();
    let weight = |cell: &Cell| -> f64 {
        cell.measure.iter().zip(&totals).map(|(m, total)| if *total > 0.0 { m / total } else { 0.0 }).sum()
    };
    let mut order: Vec<(f64, &Cell)> = cells.iter().map(|cell| (weight(cell), cell)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    (0..n).map(|i| order[(2 * i + 1) * cells.len() / (2 * n)].1).collect()
}

/// Bits of payload per value to expect for plan number `b` from the sizes of the sampled cells.
fn bits_per_value(sampled: &[(&Cell, &CellSizes, Sizes)], b: usize, measured: &[Cell], chunk_values: usize) -> f64 {
    let n_sampled: f64 = sampled.iter().map(|(_, result, _)| result.n_values as f64).sum();
    let mean = |of: &dyn Fn(&Cell, &Sizes, f64) -> f64| {
        sampled.iter().map(|(cell, result, sizes)| of(cell, sizes, result.n_values as f64)).sum::<f64>() / n_sampled
    };
    let bits: [f64; 3] = std::array::from_fn(|scale| mean(&|_, sizes, _| 8.0 * sizes[scale] as f64));
    let measure = mean(&|cell, _, n| cell.measure[b] * n);
    // Regression on the measure: adds the bits by which all measured cells differ from the sampled ones.
    let n_measured: f64 = measured.iter().map(|cell| cell.block.n_values() as f64).sum();
    let measure_of_all =
        measured.iter().map(|cell| cell.measure[b] * cell.block.n_values() as f64).sum::<f64>() / n_measured;
    let proportional = if measure > 0.0 { bits[0] / measure } else { 0.0 };
    let variance = mean(&|cell, _, n| (cell.measure[b] - measure).powi(2) * n);
    let covariance = mean(&|cell, sizes, n| (cell.measure[b] - measure) * (8.0 * sizes[0] as f64 - bits[0] * n));
    // With few cells the regression is poor, so it is averaged with sizes in proportion to the measure.
    let slope = if sampled.len() > 2 && variance > 0.0 {
        ((covariance / variance).clamp(0.0, 2.0 * proportional) + proportional) / 2.0
    } else {
        proportional
    };
    let of_cells = (bits[0] + slope * (measure_of_all - measure)).clamp(bits[0] / 4.0, bits[0] * 4.0);
    let cell_values = n_sampled / sampled.len() as f64;
    let n_axes = sampled[0].0.block.extents.iter().filter(|n| **n > 2).count();
    let saved = saved_share(bits, chunk_values as f64 / cell_values, n_axes);
    // A chunk is not smaller than a cell of it.
    (of_cells * (1.0 - saved)).max(bits[0] * cell_values / chunk_values as f64)
}

/// The share of a cell's size that a chunk `n_cells` times as large saves; `bits` are those of cells, halves and quarters.
///
/// Halves cost one more table and one more pair of faces, quarters two more tables and, being cut across, as many faces as
/// before. Merging goes the other way: tables halve with each doubling, faces with each doubling of all axes.
fn saved_share(bits: [f64; 3], n_cells: f64, n_axes: usize) -> f64 {
    let first = (bits[1] - bits[0]).max(0.0);
    let tables = (bits[2] - bits[1] - first).clamp(0.0, first);
    let faces = first - tables;
    let n_doublings = n_cells.max(1.0).log2();
    let mut saved = tables * (1.0 - 1.0 / n_cells.max(1.0));
    for i in 0..n_doublings.ceil() as usize {
        let part = (n_doublings - i as f64).min(1.0);
        saved += part * faces * 0.5_f64.powi(1 + (i / n_axes.max(1)) as i32);
    }
    if bits[0] > 0.0 { (saved / bits[0]).min(MAX_SAVED) } else { 0.0 }
}

/// Adds header, frame headers and index to the payloads.
fn estimate<T: Element>(plan: &Plan<T>, grid: &Grid, payload_bits: f64, is_exact: bool) -> Result<Estimate> {
    let mut around = Vec::new();
    let mut stream = StreamWriter::start(&Header::new(plan, grid.is_whole()), &mut around)?;
    let frame_bytes = |id: u64| {
        let block = grid.block(id);
        let raw_bytes = (block.n_values() * size_of::<T>()) as u64;
        let payload_bytes = ((payload_bits * block.n_values() as f64 / 8.0).round() as u64).min(raw_bytes);
        Identity::of_block(id, &block, grid.is_whole()).header_bytes(payload_bytes) as u64 + payload_bytes
    };
    stream.add_frames((0..grid.n_chunks()).map(frame_bytes), grid.rows());
    let compressed_bytes = stream.finish(&mut around);
    let n_values = grid::n_values(&plan.shape) as f64;
    Ok(Estimate {
        preset: plan.preset,
        bound: plan.bound,
        abs_bound: plan.abs_bound,
        compressed_bytes,
        ratio: n_values * size_of::<T>() as f64 / compressed_bytes as f64,
        bits_per_value: 8.0 * compressed_bytes as f64 / n_values.max(1.0),
        is_exact,
    })
}

/// Distances at which codes are compared.
const CODE_LAGS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Histograms of the residuals of predictors at one bound.
#[derive(Clone)]
struct ResidualCounts {
    lorenzo: Vec<(Differences, Histogram, Pairs)>,
    levels: Vec<Histogram>,
}

/// Pairs of codes that were compared, and those that differ.
#[derive(Clone, Copy, Default)]
struct Pairs {
    n: u64,
    n_different: u64,
}

impl ResidualCounts {
    fn of<T: Element>(values: &[T], extents: &[usize], quantizer: &Quantizer<T>, fills: &[T]) -> Self {
        let integers = residuals::quantize(values, quantizer, fills).values;
        let count = |differences: Differences| {
            let codes = differences.of(&integers, extents);
            let mut histogram = Histogram::default();
            histogram.add(&codes);
            let mut pairs = Pairs::default();
            for lag in CODE_LAGS.into_iter().filter(|lag| *lag < codes.len()) {
                pairs.n += (codes.len() - lag) as u64;
                pairs.n_different += codes.iter().zip(&codes[lag..]).filter(|(a, b)| a != b).count() as u64;
            }
            (differences, histogram, pairs)
        };
        let mut levels = Vec::new();
        residuals::count_interpolated(values, extents, quantizer, fills, &mut levels);
        Self { lorenzo: Differences::candidates(extents).into_iter().map(count).collect(), levels }
    }

    fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.lorenzo.iter_mut().zip(&other.lorenzo) {
            ours.1.merge(&theirs.1);
            ours.2.n += theirs.2.n;
            ours.2.n_different += theirs.2.n_different;
        }
        if self.levels.len() < other.levels.len() {
            self.levels.resize_with(other.levels.len(), Histogram::default);
        }
        self.levels.iter_mut().zip(&other.levels).for_each(|(ours, theirs)| ours.merge(theirs));
    }

    fn finish<T: Element>(&self, plan: &Plan<T>) -> Residuals {
        let best = self.lorenzo.iter().min_by(|a, b| a.1.entropy().total_cmp(&b.1.entropy()));
        let (most_likely, pairs) =
            best.map_or((1.0, Pairs::default()), |(_, codes, pairs)| (codes.most_likely(), *pairs));
        let n_all: u64 = self.levels.iter().map(Histogram::n).sum();
        let level = |(l, codes): (usize, &Histogram)| LevelEntropy {
            stride: 1 << l,
            share: codes.n() as f64 / n_all as f64,
            bits: codes.entropy(),
        };
        let difference = |(set, codes, _): &(Differences, Histogram, Pairs)| DifferenceEntropy {
            order: set.order,
            axes: set.axes.clone(),
            bits: codes.entropy(),
        };
        Residuals {
            bound: plan.bound,
            abs_bound: plan.abs_bound,
            lorenzo: self.lorenzo.iter().map(difference).collect(),
            interpolation: self.levels.iter().enumerate().map(level).collect(),
            most_likely,
            roughness: pairs.n_different as f64 / pairs.n.max(1) as f64,
        }
    }
}

/// Adds the counts of one cell to those of others.
fn merge_all(all: &mut Vec<ResidualCounts>, counts: &[ResidualCounts]) {
    if all.is_empty() {
        all.extend_from_slice(counts);
        return;
    }
    all.iter_mut().zip(counts).for_each(|(ours, theirs)| ours.merge(theirs));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cover_the_chunk_once() {
        for extents in [vec![30, 192, 288], vec![1 << 21], vec![13704, 3, 14], vec![2, 115, 69, 69], vec![3, 300_240]] {
            let cells = cells_of(&Block::whole(&extents));
            assert_eq!(cells.iter().map(Block::n_values).sum::<usize>(), grid::n_values(&extents), "{extents:?}");
            assert!(cells.len() >= 4, "{extents:?}");
            for (i, a) in cells.iter().enumerate() {
                assert!(a.n_values() > 0 && a.n_values() <= 2 * CELL_VALUES, "{extents:?}: {a:?}");
                assert!(cells[..i].iter().all(|b| a.intersection(b).n_values() == 0), "{extents:?}");
            }
        }
    }

    #[test]
    fn fixed_costs_and_faces_are_separated() {
        // 1 bit per value and a table of 0.1 bits per value of a cell.
        let tables = saved_share([1.1, 1.2, 1.4], 16.0, 3);
        assert!((1.1 * (1.0 - tables) - (1.0 + 0.1 / 16.0)).abs() < 1e-9, "{tables}");
        // Nothing but a table.
        let table_only = saved_share([1.0, 2.0, 4.0], 8.0, 3);
        assert!((table_only - 7.0 / 8.0).abs() < 1e-9, "{table_only}");
        // Faces of a cube: eight cells to a cube of twice the side have half of them left.
        let faces = saved_share([1.3, 1.4, 1.5], 8.0, 3);
        assert!((1.3 * faces - 0.15).abs() < 1e-9, "{faces}");
        assert_eq!(saved_share([1.0, 1.0, 1.0], 8.0, 3), 0.0);
        assert_eq!(saved_share([0.0; 3], 8.0, 3), 0.0);
    }
}
