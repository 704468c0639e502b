//! Targets: finds the absolute bound that meets a requirement on the whole array (PSNR, L2 norm of the error, ratio).
//!
//! The search happens before anything is written, so the stream is an ordinary one with an absolute bound. A bracketed
//! secant method runs first on sampled boxes, then in passes over the whole array. Its curve is the level, log2 of the
//! measured value over the requested one, which rises with the bound except for small deviations. A candidate counts
//! only if the real encoder and, for errors, the real decoder have run on all values with exactly the plan that is then
//! written.
//!
//! The bound decides the bytes, so everything here must give the same bits everywhere: sums have a fixed order, and
//! logarithms are our own.

use std::io;

use super::curve::{Bracket, MIN_LEVEL, MIN_WIDTH, exp2, log2};
use super::frames;
use crate::codec::{CodecId, Element, StreamParams, pipeline};
use crate::compress;
use crate::container::header::Header;
use crate::error::{Error, Result};
use crate::exec::{self, DefaultFloats, Workers, filled, parallel, reserve};
use crate::grid::{self, Block};
use crate::io::Source;
use crate::plan::check_target;
use crate::plan::passes::Blocks;
use crate::plan::{self, Config, ErrorBound, Plan, Quantizer, Stable, Stats};

/// How well a target was met.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Achieved {
    /// What was asked for.
    pub asked: ErrorBound,
    /// PSNR in dB (infinite without error), L2 norm of the error, or ratio, as measured on the whole array.
    pub value: f64,
    /// Whether that is as close as promised: better than requested by less than 0.5 dB or 3 %. Otherwise no bound was
    /// found that comes closer: sizes or errors jump (constants, integers), or the array is stored lossless.
    pub is_close: bool,
    /// How many times the whole array was compressed to find the bound, before it was written.
    pub n_passes: u32,
}

/// Most passes of the secant method over the whole array, and the offsets from its result, in log2 of the bound, at
/// which further passes look for a better bound.
const MAX_SECANT_PASSES: u32 = 8;
const NEARBY_OFFSETS: [f64; 12] = [0.02, -0.02, 0.045, -0.045, 0.07, -0.07, 0.1, -0.1, 0.13, -0.13, 0.17, -0.17];
/// Most evaluations on the sample.
const MAX_SAMPLE_PASSES: u32 = 10;
/// As levels: 0.5 dB and the 0.15 dB that the search aims at; 3 % of the size and the 1.3 % that it aims at.
const HALF_DECIBEL: f64 = 0.166_096;
const AIMED_DECIBELS: f64 = 0.049_829;
const THREE_PERCENT: f64 = 0.042_644;
const AIMED_PERCENT: f64 = 0.018_635;
/// Measured errors are enlarged by this share, which is far above the rounding error of any sum. So whoever adds the
/// same squares in another order, or takes the platform's logarithm, also finds the target met.
const MARGIN: f64 = 1.0 / (1 << 20) as f64;
/// 10 log10(2).
const DECIBELS_PER_LEVEL: f64 = 3.010_299_956_639_812;

/// The target of a configuration, if it has one.
pub(crate) fn of(config: &Config) -> Result<Option<ErrorBound>> {
    let Some(target) = config.bounds.iter().copied().find(|bound| bound.kind().is_target()) else { return Ok(None) };
    check_target(target)?;
    plan::check_combination(&config.bounds)?;
    if !config.regions.is_empty() || !config.bin.is_empty() {
        return Err(Error::invalid(format!(
            "{target} is a target for the whole array and cannot be combined with regions or bins; give bounds instead"
        )));
    }
    if config.stable == Some(Stable::On) {
        return Err(Error::invalid(format!(
            "the stable mode is not possible with {target}, whose absolute bound is searched for anew each time; give an \
             absolute or a relative bound"
        )));
    }
    Ok(Some(target))
}

/// The plan for an array that is available as a whole. If a target is asked for, searches for the absolute bound that
/// meets it; this is never above the other bounds that are asked for, which must hold as well. `progress` is called
/// with the part of the search that is done, as a number of input bytes.
pub(crate) fn plan<T: Element>(
    config: &Config,
    source: &dyn Source<T>,
    stats: &Stats<T>,
    workers: &Workers,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Plan<T>, Option<Achieved>)> {
    let Some(target) = of(config)? else {
        let mut plan = Plan::new(config, source.shape(), Some(stats))?;
        plan.keep_lattice(source, stats, |holds| Blocks::new(source).all(workers, holds))?;
        return Ok((plan, None));
    };
    let _floats = DefaultFloats::set();
    let with = |bounds| Plan::new(&Config { bounds, ..config.clone() }, source.shape(), Some(stats));
    let lossless = with(vec![ErrorBound::Lossless])?;
    let others: Vec<ErrorBound> = config.bounds.iter().copied().filter(|bound| *bound != target).collect();
    let (mut also, mut cap) = (Vec::new(), None);
    if !others.is_empty() {
        let plan = with(others)?;
        // With a bound of 0 there is nothing to search: there are no errors, and a ratio is reached losslessly or not
        // at all.
        cap = Some(plan.abs_bound);
        also = [vec![plan.bound], plan.also].concat();
    }
    let n_values = grid::n_values(source.shape());
    let range = stats.range.map_or((0.0, 0.0), |(lo, hi)| (lo.to_f64(), hi.to_f64()));
    let scale = scale_of(range);
    // The range may overflow where its scaled value does not; bounds are limited to the largest f64.
    let scaled_range = range.1 * scale - range.0 * scale;
    let range_abs = (scaled_range / scale).min(f64::MAX);
    let goal = match target {
        ErrorBound::Psnr(db) => Goal::MeanSquare(scaled_range * scaled_range * exp2(-db / DECIBELS_PER_LEVEL)),
        ErrorBound::L2(norm) => Goal::SquareSum((norm * scale) * (norm * scale)),
        ErrorBound::Ratio(ratio) => Goal::Ratio(ratio),
        _ => unreachable!("not a target"),
    };
    let search = Search {
        source,
        workers,
        progress,
        asked: target,
        also,
        goal,
        lossless,
        max_abs: range.0.abs().max(range.1.abs()),
        scale,
        limit: cap.map_or(range_abs, |cap| cap.min(range_abs)),
        is_capped: cap.is_some_and(|cap| cap < range_abs),
        raw_bytes: (n_values * size_of::<T>()) as f64,
        n_passes: 0,
    };
    search.run()
}

/// A power of two that brings errors near 1, where squares neither overflow nor underflow.
fn scale_of((lo, hi): (f64, f64)) -> f64 {
    let range = hi - lo;
    match range {
        0.0 => 1.0,
        _ if range.is_finite() => exp2(-log2(range).floor().max(-1000.0)),
        _ => exp2(-1022.0),
    }
}

/// The condition to meet; errors are scaled.
#[derive(Clone, Copy, Debug)]
enum Goal {
    /// At most this mean of squared errors over finite values that are not fill values.
    MeanSquare(f64),
    /// At most this sum of squared errors.
    SquareSum(f64),
    /// At least this ratio.
    Ratio(f64),
}

impl Goal {
    fn is_ratio(self) -> bool {
        matches!(self, Goal::Ratio(_))
    }

    /// Whether this level meets the target.
    fn is_met(self, level: f64) -> bool {
        if self.is_ratio() { level >= 0.0 } else { level <= 0.0 }
    }

    /// Whether it is met and close.
    fn is_close(self, level: f64) -> bool {
        self.is_met(level) && level.abs() <= self.width()
    }

    fn width(self) -> f64 {
        if self.is_ratio() { THREE_PERCENT } else { HALF_DECIBEL }
    }

    /// The level to aim at: inside the interval that counts as close.
    fn aim(self) -> f64 {
        if self.is_ratio() { AIMED_PERCENT } else { -AIMED_DECIBELS }
    }
}

/// The sum of squared errors of some values, and how many of them count.
#[derive(Clone, Copy, Debug, Default)]
struct Squares {
    sum: f64,
    n_counted: u64,
}

/// The results of the passes over the whole array.
struct Seen {
    /// Position and level of the closest candidate that meets the target.
    best: Option<(f64, f64)>,
    /// The greatest level.
    greatest: f64,
}

impl Seen {
    fn note(&mut self, x: f64, level: f64, goal: Goal) {
        self.greatest = self.greatest.max(level);
        if goal.is_met(level) && self.best.is_none_or(|(_, before)| level.abs() < before.abs()) {
            self.best = Some((x, level));
        }
    }
}

struct Search<'a, T> {
    source: &'a dyn Source<T>,
    workers: &'a Workers,
    progress: &'a (dyn Fn(u64) + Sync),
    asked: ErrorBound,
    /// Other bounds, which hold up to `limit`.
    also: Vec<ErrorBound>,
    goal: Goal,
    /// All decisions but the bound.
    lossless: Plan<T>,
    max_abs: f64,
    scale: f64,
    /// The largest bound to try: the range of values, beyond which a bound means nothing, or the cap.
    limit: f64,
    is_capped: bool,
    raw_bytes: f64,
    n_passes: u32,
}

impl<T: Element> Search<'_, T> {
    fn run(mut self) -> Result<(Plan<T>, Option<Achieved>)> {
        let n_values = self.raw_bytes / size_of::<T>() as f64;
        // A bound that is sure to meet an error target: no error is larger than the root of the allowed mean square.
        let safe = match self.goal {
            Goal::MeanSquare(square) => square.sqrt() / self.scale,
            Goal::SquareSum(sum) => (sum / n_values).sqrt() / self.scale,
            Goal::Ratio(_) => self.limit * exp2(-8.0 * size_of::<T>() as f64),
        };
        let safe = (safe * (1.0 - 1.0 / 1024.0)).min(self.limit);
        // Constant arrays, empty arrays, and targets beyond the precision of the type.
        if !(safe >= f64::MIN_POSITIVE && n_values > 0.0) {
            return self.store_lossless();
        }
        let (low, high) = (log2(safe), log2(self.limit));
        let sample = Sample::read(self.source)?;
        if self.goal.is_ratio() {
            let lossless = self.lossless.clone();
            // The sample is a hint only: its boxes compress a little worse than the whole.
            if self.sample_level(&sample, &lossless)?.is_none_or(|level| level > -0.2) {
                let level = self.level(&lossless)?;
                if self.goal.is_met(level) {
                    return Ok(self.result(lossless, level));
                }
            }
        }
        let (start, slope) = self.search_sample(&sample, low, high)?;
        drop(sample);
        let seen = self.search_all(start, Bracket::new(low, high, slope))?;
        match seen.best {
            // If the smallest bound exceeds the ratio by far, lossless compression may reach it as well.
            Some((x, level)) if self.goal.is_ratio() && !self.goal.is_close(level) && x <= low + MIN_WIDTH => {
                let lossless = self.lossless.clone();
                let exact = self.level(&lossless)?;
                Ok(if self.goal.is_met(exact) { self.result(lossless, exact) } else { self.result(self.at(x), level) })
            }
            Some((x, level)) => Ok(self.result(self.at(x), level)),
            None if self.goal.is_ratio() => {
                let plan = self.at(high);
                let level = self.level(&plan)?;
                if self.goal.is_met(level) {
                    return Ok(self.result(plan, level));
                }
                Err(self.unreachable(level.max(seen.greatest)))
            }
            None => {
                let plan = self.at(low);
                let level = self.level(&plan)?;
                if self.goal.is_met(level) { Ok(self.result(plan, level)) } else { self.store_lossless() }
            }
        }
    }

    /// Passes over the whole array until one is close, or none can be expected to be.
    fn search_all(&mut self, start: f64, mut bracket: Bracket) -> Result<Seen> {
        let mut seen = Seen { best: None, greatest: f64::NEG_INFINITY };
        let mut x = start;
        for _ in 0..MAX_SECANT_PASSES {
            let level = self.level(&self.at(x))?;
            seen.note(x, level, self.goal);
            match bracket.next(x, level, self.goal.aim(), self.model_step(level)) {
                Some(next) if !self.goal.is_close(level) => x = next,
                _ => break,
            }
        }
        let is_done = seen.best.is_some_and(|(_, level)| self.goal.is_close(level));
        let (Some((below, _)), Some((above, _))) = (bracket.below, bracket.above) else { return Ok(seen) };
        if is_done {
            return Ok(seen);
        }
        // Either there is a jump, or the curve is rough, since the encoder's choices change from bound to bound; then a
        // bound nearby may be close.
        let centre = (below + above) / 2.0;
        for x in NEARBY_OFFSETS.map(|offset| centre + offset) {
            if x < bracket.low || x > bracket.high {
                continue;
            }
            let level = self.level(&self.at(x))?;
            seen.note(x, level, self.goal);
            if self.goal.is_close(level) {
                break;
            }
        }
        Ok(seen)
    }

    /// The plan with the bound 2^x.
    fn at(&self, x: f64) -> Plan<T> {
        let abs_bound = exp2(x).min(self.limit);
        let step = Quantizer::<T>::new(abs_bound, Some(self.max_abs)).map(|q| q.step);
        Plan { bound: self.asked, also: self.also.clone(), abs_bound, step, ..self.lossless.clone() }
    }

    fn store_lossless(mut self) -> Result<(Plan<T>, Option<Achieved>)> {
        let plan = self.lossless.clone();
        if !self.goal.is_ratio() {
            return Ok(self.result(plan, f64::NEG_INFINITY));
        }
        let level = self.level(&plan)?;
        // An array without values cannot become smaller, which is not an error.
        if self.goal.is_met(level) || self.raw_bytes == 0.0 {
            return Ok(self.result(plan, level));
        }
        Err(self.unreachable(level))
    }

    fn result(&self, plan: Plan<T>, level: f64) -> (Plan<T>, Option<Achieved>) {
        let value = match self.asked {
            ErrorBound::Psnr(db) => db - DECIBELS_PER_LEVEL * level,
            ErrorBound::L2(norm) => norm * exp2(level / 2.0),
            ErrorBound::Ratio(ratio) => ratio * exp2(level),
            _ => unreachable!("not a target"),
        };
        let is_close = self.goal.is_close(level);
        (plan, Some(Achieved { asked: self.asked, value, is_close, n_passes: self.n_passes }))
    }

    /// The error for a ratio that no bound reaches; `level` is the greatest that was measured.
    fn unreachable(&self, level: f64) -> Error {
        let Goal::Ratio(ratio) = self.goal else { unreachable!("errors can always be made smaller") };
        let most = ratio * exp2(level);
        let limit = self.limit;
        Error::invalid(if self.is_capped {
            format!(
                "a ratio of {ratio} needs a larger error than the bound of {limit:e} allows, at which it is {most:.4}; \
                 ask for a lower ratio, or loosen the bound"
            )
        } else if limit > 0.0 {
            format!(
                "a ratio of {ratio} cannot be reached: with a bound as large as the range of values, {limit:e}, it is \
                 {most:.4}; ask for less, or use another preset"
            )
        } else {
            format!("a ratio of {ratio} cannot be reached: all values are equal or special, and it is {most:.4}")
        })
    }

    /// The step in log2 of the bound that theory predicts: errors are proportional to the bound, and doubling it saves
    /// one bit per value (CEAZ, equation 2: `eb' = 2^(B - B_target) eb`).
    fn model_step(&self, level: f64) -> f64 {
        let level = level.max(MIN_LEVEL);
        match self.goal {
            Goal::Ratio(ratio) => {
                let bits = 8.0 * size_of::<T>() as f64 / ratio;
                bits * (exp2(-level) - exp2(-self.goal.aim()))
            }
            _ => (self.goal.aim() - level) / 2.0,
        }
    }

    /// The position to start at, from the sample, and the slope of the curve there if it is known.
    fn search_sample(&self, sample: &Sample<T>, low: f64, high: f64) -> Result<(f64, Option<f64>)> {
        let mut bracket = Bracket::new(low, high, None);
        // Errors distributed uniformly up to the bound have a mean square of a third of its square; for a ratio, a
        // thousandth of the range is as good a start as any.
        let mut x = if self.goal.is_ratio() { high - 10.0 } else { low + 0.79 }.clamp(low, high);
        for _ in 0..MAX_SAMPLE_PASSES {
            let Some(level) = self.sample_level(sample, &self.at(x))? else { break };
            let is_near = (level - self.goal.aim()).abs() < 0.25 * self.goal.width();
            match bracket.next(x, level, self.goal.aim(), self.model_step(level)) {
                Some(next) if !is_near => x = next,
                _ => break,
            }
        }
        Ok((x, bracket.slope))
    }

    /// log2 of the measured value over the requested one, on the whole array.
    fn level(&mut self, plan: &Plan<T>) -> Result<f64> {
        // The number of passes is not known in advance: each counts as half of what is left.
        let before = 1.0 - exp2(-f64::from(self.n_passes));
        self.n_passes += 1;
        let share = exp2(-f64::from(self.n_passes));
        let raw_bytes = self.raw_bytes;
        let progress = self.progress;
        let progress = move |done: u64| progress((raw_bytes * before + done as f64 * share) as u64);
        if let Goal::Ratio(ratio) = self.goal {
            let summary = compress::write_planned(self.source, plan, self.workers, &mut io::sink(), &progress)?;
            return Ok(log2(self.raw_bytes / summary.compressed_bytes as f64 / ratio));
        }
        Ok(self.level_of(self.square_errors(plan, &progress)?, 1.0))
    }

    /// The same for the sample; `None` if there is no sample, or it has no errors.
    fn sample_level(&self, sample: &Sample<T>, plan: &Plan<T>) -> Result<Option<f64>> {
        if sample.boxes.is_empty() {
            return Ok(None);
        }
        let (n_bytes, squares) = self.measure_sample(sample, plan)?;
        let sample_bytes = sample.n_values() as f64 * size_of::<T>() as f64;
        Ok(match self.goal {
            Goal::Ratio(ratio) => Some(log2(sample_bytes / n_bytes.max(1) as f64 / ratio)),
            _ if squares.sum == 0.0 => None,
            _ => Some(self.level_of(squares, self.raw_bytes / sample_bytes)),
        })
    }

    /// The level of errors that were measured on a part of the array; the array is `times` as large as that part.
    fn level_of(&self, squares: Squares, times: f64) -> f64 {
        let sum = squares.sum * (1.0 + MARGIN);
        let share = match self.goal {
            Goal::MeanSquare(square) => sum / squares.n_counted.max(1) as f64 / square,
            Goal::SquareSum(asked) => sum * times / asked,
            Goal::Ratio(_) => unreachable!("ratios are not measured by errors"),
        };
        if share == 0.0 { f64::NEG_INFINITY } else { log2(share) }
    }

    /// Encodes, decodes and compares every chunk, with memory for one chunk per worker.
    fn square_errors(&self, plan: &Plan<T>, progress: &(dyn Fn(u64) + Sync)) -> Result<Squares> {
        let grid = compress::grid_of(plan)?;
        let params = Header::new(plan, grid.n_chunks() == 1).stream_params();
        let coder = Coder { plan, params, fills: plan.all_fills(), scale: self.scale };
        let inner = self.workers.for_items(grid.n_chunks());
        let mut total = Squares::default();
        let mut done = 0;
        let work = |i: usize, slot: &mut Slot<T>| {
            let block = grid.block(i as u64);
            if let Some(run) = self.source.contiguous(&block.start, &block.extents) {
                return coder.round_trip(run, &block.extents, inner, &mut slot.result);
            }
            fit(&mut slot.values, block.n_values())?;
            self.source.read_box(&block.start, &block.extents, &mut slot.values)?;
            coder.round_trip(&slot.values, &block.extents, inner, &mut slot.result)
        };
        let of_chunk = frames::read_bytes(self.source, &grid) + coder.bytes(frames::largest(&grid));
        let at_once = exec::at_once(self.workers, grid.n_chunks(), of_chunk)?;
        parallel::ordered(self.workers, grid.n_chunks() as usize, at_once, work, |_, slot| {
            total.add(slot.result.squares);
            done += size_of_val(&slot.result.restored[..]) as u64;
            progress(done);
            Ok(())
        })?;
        Ok(total)
    }

    /// Bytes and squared errors of all boxes of the sample; only the bytes where the goal is a ratio.
    fn measure_sample(&self, sample: &Sample<T>, plan: &Plan<T>) -> Result<(u64, Squares)> {
        let params = Header::new(plan, true).stream_params();
        let coder = Coder { plan, params, fills: plan.all_fills(), scale: self.scale };
        let (mut n_bytes, mut total) = (0, Squares::default());
        let n = sample.boxes.len();
        let work = |i: usize, result: &mut RoundTrip<T>| {
            let SampleBox { extents, values } = &sample.boxes[i];
            let inner = self.workers.for_items(n as u64);
            if self.goal.is_ratio() {
                coder.encode(values, extents, inner, result);
                return Ok(());
            }
            coder.round_trip(values, extents, inner, result)
        };
        let at_once = exec::at_once(self.workers, n as u64, coder.bytes(sample.boxes[0].values.len()))?;
        parallel::ordered(self.workers, n, at_once, work, |_, result| {
            n_bytes += result.payload.len() as u64;
            total.add(result.squares);
            Ok(())
        })?;
        Ok((n_bytes, total))
    }
}

/// Buffers of a worker: the values of a chunk that is not contiguous in memory, and its round trip.
#[derive(Default)]
struct Slot<T> {
    values: Vec<T>,
    result: RoundTrip<T>,
}

#[derive(Default)]
struct RoundTrip<T> {
    payload: Vec<u8>,
    restored: Vec<T>,
    squares: Squares,
}

/// The real encoder and decoder under one plan.
struct Coder<'a, T> {
    plan: &'a Plan<T>,
    params: StreamParams<T>,
    /// All fill values.
    fills: Vec<T>,
    scale: f64,
}

impl<T: Element> Coder<'_, T> {
    /// The most memory that a round trip of so many values takes: decoding takes no more than encoding.
    fn bytes(&self, n_values: usize) -> u64 {
        pipeline::encode_bytes(self.plan, n_values) + (n_values * size_of::<T>()) as u64
    }

    fn encode(&self, values: &[T], extents: &[usize], workers: &Workers, result: &mut RoundTrip<T>) -> CodecId {
        result.payload.clear();
        T::encode_chunk(values, &Block::whole(extents), self.plan, workers, &mut result.payload)
    }

    fn round_trip(&self, values: &[T], extents: &[usize], workers: &Workers, result: &mut RoundTrip<T>) -> Result<()> {
        let codec = self.encode(values, extents, workers, result);
        fit(&mut result.restored, values.len())?;
        let restored = &mut result.restored;
        T::decode_chunk(codec, &result.payload, &self.params.chunk(extents, None, workers, u64::MAX), restored)?;
        result.squares = Squares::of(values, restored, &self.fills, self.scale);
        Ok(())
    }
}

/// Makes room for exactly so many values, whose content is arbitrary.
fn fit<T: Element>(values: &mut Vec<T>, n: usize) -> Result<()> {
    reserve(values, n.saturating_sub(values.len()))?;
    values.resize(n, T::default());
    Ok(())
}

impl Squares {
    /// The squared errors of finite values that are not fill values.
    fn of<T: Element>(original: &[T], restored: &[T], fills: &[T], scale: f64) -> Self {
        const LANES: usize = 8;
        let mut total = Self::default();
        let is_counted = |x: T| x.is_finite() && fills.iter().all(|fill| fill.to_bits_u64() != x.to_bits_u64());
        // Short runs keep rounding errors small; lanes make additions independent of each other.
        for (original, restored) in original.chunks(4096).zip(restored.chunks(4096)) {
            let mut lanes = [0.0; LANES];
            for (x, y) in original.chunks(LANES).zip(restored.chunks(LANES)) {
                for (lane, (&x, &y)) in lanes.iter_mut().zip(x.iter().zip(y)) {
                    let is_counted = is_counted(x);
                    let error = if is_counted { x.to_f64() * scale - y.to_f64() * scale } else { 0.0 };
                    *lane += error * error;
                    total.n_counted += u64::from(is_counted);
                }
            }
            total.sum += lanes.iter().fold(0.0, |sum, lane| sum + lane);
        }
        total
    }

    fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.n_counted += other.n_counted;
    }
}

/// A few boxes of a large array, spread over it.
struct Sample<T> {
    boxes: Vec<SampleBox<T>>,
}

struct SampleBox<T> {
    extents: Vec<usize>,
    values: Vec<T>,
}

/// Smaller arrays are not sampled.
const MIN_SAMPLED_VALUES: usize = 1 << 17;
/// A sample has one in this many values, but not more than `MAX_SAMPLE_VALUES`.
const SAMPLED_SHARE: usize = 12;
const MAX_SAMPLE_VALUES: usize = 1 << 19;
const MAX_BOX_VALUES: usize = 1 << 15;
const MIN_BOXES: usize = 8;

/// Boxes start at multiples of these along each axis, as fractions of 2^32: such multiples are spread evenly, and
/// differently along each axis.
const SPREAD: [u64; crate::plan::MAX_RANK] =
    [0x9E37_79B9, 0x6A09_E667, 0xB504_F333, 0x3C6E_F372, 0xA54F_F53A, 0x510E_527F, 0x9B05_688C, 0x1F83_D9AB];

impl<T: Element> Sample<T> {
    fn read(source: &dyn Source<T>) -> Result<Self> {
        let shape = source.shape();
        let n_values = grid::n_values(shape);
        if n_values < MIN_SAMPLED_VALUES {
            return Ok(Self { boxes: Vec::new() });
        }
        let wanted = (n_values / SAMPLED_SHARE).min(MAX_SAMPLE_VALUES);
        let box_values = (wanted / MIN_BOXES).min(MAX_BOX_VALUES);
        let mut extents = shape.to_vec();
        while grid::n_values(&extents) > box_values {
            let longest = (0..extents.len()).max_by_key(|&axis| extents[axis]).unwrap_or(0);
            extents[longest] = extents[longest].div_ceil(2);
        }
        let boxes = (0..wanted / box_values).map(|i| {
            let position = |axis: usize| {
                let room = (shape[axis] - extents[axis] + 1) as u128;
                let fraction = u128::from((i as u64 + 1).wrapping_mul(SPREAD[axis]) & 0xFFFF_FFFF);
                ((room * fraction) >> 32) as usize
            };
            let start: Vec<usize> = (0..shape.len()).map(position).collect();
            let mut values = filled(T::default(), grid::n_values(&extents))?;
            source.read_box(&start, &extents, &mut values)?;
            Ok(SampleBox { extents: extents.clone(), values })
        });
        Ok(Self { boxes: boxes.collect::<Result<_>>()? })
    }

    fn n_values(&self) -> usize {
        self.boxes.iter().map(|sample| sample.values.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SliceSource;
    use crate::plan::stats;

    fn planned(config: &Config) -> Result<(Plan<f32>, Option<Achieved>)> {
        // Noise, whose ratio grows steadily with the bound.
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let values: Vec<f32> = (0..9000).map(|_| noise()).collect();
        let source = SliceSource::new(&values, &[values.len()])?;
        let stats = stats::scan(&source, &[], &Workers::Serial, &|_| ())?;
        plan(config, &source, &stats, &Workers::Serial, &|_| ())
    }

    #[test]
    fn other_bounds_are_kept() {
        for target in [ErrorBound::Psnr(30.0), ErrorBound::L2(3.0), ErrorBound::Ratio(3.0)] {
            let (free, achieved) = planned(&Config::new(target)).unwrap();
            assert!(achieved.unwrap().is_close && free.bound == target);
            // This bound changes nothing but the header, since the search ends below it.
            let (loose, achieved) = planned(&Config::new(ErrorBound::Abs(1e9)).and(target)).unwrap();
            assert!(achieved.unwrap().is_close && (loose.abs_bound / free.abs_bound - 1.0).abs() < 0.1);
            assert_eq!((loose.bound, &loose.also[..]), (target, &[ErrorBound::Abs(1e9)][..]));
        }
        for target in [ErrorBound::Psnr(30.0), ErrorBound::L2(3.0)] {
            let (capped, achieved) = planned(&Config::new(target).and(ErrorBound::Abs(1e-3))).unwrap();
            assert!(capped.abs_bound <= 1e-3 && capped.abs_bound > 0.99e-3);
            assert!(!achieved.unwrap().is_close);
        }
        for (ratio, cap) in [(50.0, ErrorBound::Abs(1e-3)), (2.0, ErrorBound::Lossless), (2.0, ErrorBound::Abs(0.0))] {
            let error = planned(&Config::new(ErrorBound::Ratio(ratio)).and(cap)).unwrap_err();
            assert!(error.to_string().contains("loosen the bound"), "{error}");
        }
        assert_eq!(
            planned(&Config::new(ErrorBound::Psnr(30.0)).and(ErrorBound::Lossless)).unwrap().0.bound,
            ErrorBound::Lossless
        );
    }

    #[test]
    fn wrong_combinations_are_refused() {
        let psnr = || Config::new(ErrorBound::Psnr(30.0));
        for config in [
            psnr().and(ErrorBound::L2(1.0)),
            psnr().and(ErrorBound::PwRel(1e-3)),
            psnr().region(std::slice::from_ref(&(0..100)), ErrorBound::Lossless),
            psnr().bin(&[4]),
            Config::new(ErrorBound::Abs(1.0)).region(std::slice::from_ref(&(0..100)), ErrorBound::Ratio(5.0)),
        ] {
            let error = planned(&config).unwrap_err();
            assert!(["target", "cannot have"].iter().any(|text| error.to_string().contains(text)), "{error}");
        }
    }

    #[test]
    fn squares_leave_special_values_out() {
        let original = [1.0f32, f32::NAN, 1e20, f32::INFINITY, 2.0];
        let restored = [1.5, f32::NAN, 1e20, f32::INFINITY, 2.25];
        let found = Squares::of(&original, &restored, &[1e20], 2.0);
        assert_eq!((found.sum, found.n_counted), (1.25, 2));
    }
}
