//! Chooses the predictor of a chunk for the presets `small` and `max`, by trials on bricks or patches of the chunk or
//! on all of it (docs/predictors.md).

use super::bands::{Band, BandLayout, GROUPS};
use super::fit::{COEFFICIENT_BITS, sample_position};
use super::pieces::{Brick, Piece};
use super::streams::Estimate;
use super::{interpolate, lattice, streams};
use crate::codec::shared::dims::{AXES, AxisSet, Dims, X, axes_of, volume};
use crate::codec::shared::integers;
use crate::codec::shared::view::{Patch, patches};
use crate::exec::{MEMORY_WAS_CHECKED, Workers, scratch};
use crate::num::Real;
use crate::num::simd::{self, Kernel};
use crate::plan::{Quantizer, lattice as plan_lattice};

/// An axis is rough if its codes are longer than those of the smoothest axis by a quarter and this many 1/64 bits.
const ROUGH: f64 = 12.0;

/// Arrays of fewer values, or of longer rows, are sampled by patches.
const MIN_PARTS: usize = 1 << 14;
const MAX_ROW: usize = 1 << 13;
/// One in this many bricks of the finest level is tried.
const PART_SHARE: usize = 32;
/// Where interpolation is the better predictor, the lattice often takes this many times as many bits.
const LATTICE_EXCESS: f64 = 1.5;
/// Finer steps on coarse levels pay below `SPARSE_BITS` bits per value, if codes of the second level are more than
/// `STEEPNESS` times as long as those of the finest. Indexed by the number of axes.
const SPARSE_BITS: f64 = 1.5;
const STEEPNESS: [f64; AXES + 1] = [f64::INFINITY, 8.0, 3.5, 0.0, 0.0];
/// One in `SLICE_SHARE` slices along an axis is tried, but at least `MIN_SLICE_VALUES` values and `MIN_SLICES` slices.
const SLICE_SHARE: usize = 16;
const MIN_SLICE_VALUES: usize = 1 << 15;
const MIN_SLICES: usize = 3;
/// Pairs of values that measure activity: at least this many per slice, and about this many in all.
const ACTIVITY_PAIRS: std::ops::Range<usize> = 1 << 6..1 << 15;

/// Approximate bits of a value that is stored exactly.
const fn exact_bits<T>() -> usize {
    8 * size_of::<T>() + 16
}

/// How a chunk is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Lattice,
    Interpolation { active: AxisSet, scale: usize },
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Choice::Lattice => write!(f, "lattice"),
            Choice::Interpolation { active, scale } => {
                let axes: String = axes_of(*active).map(|axis| axis.to_string()).collect();
                write!(f, "interpolation {axes}/{scale}")
            }
        }
    }
}

/// A chunk to encode.
#[derive(Clone, Copy)]
pub(crate) struct Chunk<'a, T> {
    pub(crate) values: &'a [T],
    pub(crate) masked: Option<&'a [bool]>,
    pub(crate) dims: Dims,
    pub(crate) quantizer: &'a Quantizer<T>,
    /// Step and tolerance of the interpolation; `None` if it cannot keep the bound.
    pub(crate) interpolation: Option<(T, T)>,
    /// Whether the values are on the lattice of the stable mode: then the quantiser accepts no others, and integers are
    /// interpolated.
    pub(crate) on_lattice: bool,
}

/// The predictor that was chosen.
pub(crate) struct Found<T> {
    pub(crate) choice: Choice,
    /// Approximate bits of its codes.
    pub(crate) n_bits: u64,
    /// The interpolation, if that has begun.
    pub(crate) begun: Option<Begun<T>>,
}

/// An interpolation that has coded a part of the chunk.
pub(crate) type Begun<T> = Box<interpolate::Encoder<T>>;

/// Codes of either predictor.
pub(crate) enum Coded<T> {
    Lattice(lattice::Encoded),
    Interpolated(interpolate::Encoded<T>),
}

/// Step and tolerance of the interpolation. The step leaves room for the rounding of prediction + code · step up to the
/// chunk's largest value, except a few outliers, which may be stored exactly. `None` if there is no such step.
pub(crate) fn interpolation_step<T: Real>(
    values: &[T],
    masked: Option<&[bool]>,
    quantizer: &Quantizer<T>,
) -> Option<(T, T)> {
    let tolerance = quantizer.tolerance.to_f64();
    // Numbers up to this have an ulp of at most 1/64 of the tolerance: room for it costs less than exact values.
    let leading = f64::from_bits(tolerance.to_bits() & f64::INFINITY.to_bits());
    let modest = T::from_f64(leading / 128.0 * (1_u64 << T::MANTISSA_BITS) as f64);
    let Magnitudes { mut largest, n_above } = simd::run(FindMagnitudes { values, masked, limit: modest });
    if n_above < values.len() / OUTLIERS {
        largest = T::from_f64(largest.to_f64().min(modest.to_f64()));
    }
    let unit = T::from_bits_u64(largest.to_bits_u64() + 1).to_f64() - largest.to_f64();
    let step = 2.0 * (tolerance - unit) * (1.0 - 1.0 / 4096.0);
    // Sums of a few values must stay finite.
    let infinity = T::from_f64(f64::INFINITY).to_bits_u64();
    let is_safe = largest.to_f64() < T::from_bits_u64(infinity - 1).to_f64() / 1024.0;
    let rounded = T::from_f64(step);
    let is_normal =
        T::from_f64(8.0 / step).to_f64().is_finite() && rounded.to_f64() > 0.0 && rounded.to_f64().is_finite();
    (is_safe && step > tolerance && is_normal).then_some((rounded, quantizer.tolerance))
}

/// Fewer than one in this many values may be outliers.
const OUTLIERS: usize = 512;

/// The magnitudes of all finite values that are not masked.
struct Magnitudes<T> {
    largest: T,
    /// How many are above the limit.
    n_above: usize,
}

struct FindMagnitudes<'a, T> {
    values: &'a [T],
    masked: Option<&'a [bool]>,
    limit: T,
}

impl<T: Real> Kernel for FindMagnitudes<'_, T> {
    type Output = Magnitudes<T>;

    #[inline(always)]
    fn run(self) -> Magnitudes<T> {
        // Sixteen at a time, since each comparison waits for the previous one.
        const BLOCK: usize = 16;
        let mut largest = [T::default(); BLOCK];
        let mut n_above = [0_u32; BLOCK];
        let infinity = T::from_f64(f64::INFINITY);
        let mut take = |i: usize, x: T, is_masked: bool| {
            let magnitude = if is_masked || !(x.fabs() < infinity) { T::default() } else { x.fabs() };
            largest[i] = if magnitude > largest[i] { magnitude } else { largest[i] };
            n_above[i] += u32::from(magnitude > self.limit);
        };
        let (blocks, rest) = self.values.as_chunks::<BLOCK>();
        if let Some(masked) = self.masked {
            let (masked, masked_rest) = masked.as_chunks::<BLOCK>();
            for (block, masked) in blocks.iter().zip(masked) {
                for i in 0..BLOCK {
                    take(i, block[i], masked[i]);
                }
            }
            rest.iter().zip(masked_rest).for_each(|(x, is_masked)| take(0, *x, *is_masked));
        } else {
            for block in blocks {
                for i in 0..BLOCK {
                    take(i, block[i], false);
                }
            }
            rest.iter().for_each(|x| take(0, *x, false));
        }
        let largest = largest.into_iter().fold(T::default(), |all, x| if x > all { x } else { all });
        Magnitudes { largest, n_above: n_above.into_iter().map(|n| n as usize).sum() }
    }
}

impl<'a, T: Real> Chunk<'a, T> {
    /// A chunk of these extents in working order.
    pub(crate) fn new(values: &'a [T], masked: Option<&'a [bool]>, dims: Dims, quantizer: &'a Quantizer<T>) -> Self {
        let interpolation = interpolation_step(values, masked, quantizer);
        Self { values, masked, dims, quantizer, interpolation, on_lattice: false }
    }

    fn can_interpolate(&self) -> bool {
        self.interpolation.is_some() || self.on_lattice
    }

    /// The encoder of an interpolation along these axes.
    fn interpolate(&self, active: AxisSet, scale: usize) -> interpolate::Encoder<T> {
        if !self.on_lattice {
            let steps = self.interpolation.expect("only chosen where there is a step");
            return interpolate::Encoder::new(self.values, self.masked, self.dims, active, scale, Some(steps));
        }
        let mut integers = scratch::take(self.values.len());
        plan_lattice::integers(self.values, self.quantizer, &mut integers);
        let encoder = interpolate::Encoder::new(&integers, self.masked, self.dims, active, 0, None);
        scratch::give(integers);
        encoder
    }

    pub(crate) fn code(&self, choice: Choice, workers: &Workers) -> Coded<T> {
        match choice {
            Choice::Lattice => {
                let integers = integers::quantize(self.values, self.masked, self.quantizer);
                let coefficients = lattice::fit(&integers.values, &self.dims);
                Coded::Lattice(lattice::encode(integers, self.masked, self.dims, coefficients, workers))
            }
            Choice::Interpolation { active, scale } => {
                Coded::Interpolated(self.interpolate(active, scale).finish(workers))
            }
        }
    }

    /// Codes the chunk, or a part of it, and estimates the bits. Anchors of a part do not count, since the chunk has
    /// far fewer for its size.
    fn try_out(&self, choice: Choice, is_part: bool) -> Trial {
        let coded = self.code(choice, &Workers::Serial);
        let (layout, codes) = coded.layout_and_codes();
        let masked = self.masked.map(|masked| interpolate::to_bands(layout, masked, false).expect(MEMORY_WAS_CHECKED));
        let has_others = layout.bands.iter().skip(1).any(|band| band.group == layout.bands[0].group);
        let counted = (is_part && has_others && choice != Choice::Lattice).then(|| {
            let bands = layout.bands.iter().enumerate().skip(1);
            bands.map(|(i, band)| Piece::whole(i, &band.dims)).collect()
        });
        let estimate = streams::estimate(layout, codes, masked.as_deref(), counted);
        let whole: Vec<Piece> = layout.bands.iter().enumerate().map(|(i, band)| Piece::whole(i, &band.dims)).collect();
        let trial = Trial::new::<T>(&estimate, coded.n_escapes(), (layout, codes, &whole));
        scratch::give(coded.into_codes());
        trial
    }

    /// Estimates the lattice from bricks of the chunk.
    fn try_lattice(&self, bricks: &[Brick]) -> Trial {
        lattice::sample(self.values, self.masked, self.dims, self.quantizer, bricks, |sampled| {
            let &lattice::Sampled { layout, codes, pieces, n_escapes, n_coefficients } = sampled;
            let masked =
                self.masked.map(|masked| interpolate::to_bands(layout, masked, false).expect(MEMORY_WAS_CHECKED));
            let estimate = streams::estimate(layout, codes, masked.as_deref(), Some(pieces.to_vec()));
            let mut trial = Trial::new::<T>(&estimate, 0, (layout, codes, pieces));
            trial.bits =
                trial.total(layout) + (n_escapes * exact_bits::<T>()) as f64 + n_coefficients as f64 * COEFFICIENT_BITS;
            trial
        })
    }

    /// Codes all levels of an interpolation but the finest, and tries bricks of the finest.
    fn try_interpolation(
        &self,
        active: AxisSet,
        scale: usize,
        bricks: &[Brick],
        workers: &Workers,
    ) -> (Trial, Begun<T>) {
        let mut encoder = self.interpolate(active, scale);
        encoder.advance(1, workers);
        let trial = encoder.sample(bricks, |sampled| {
            let &interpolate::Sampled { layout, codes, masked, n_escapes, n_coefficients, .. } = sampled;
            let is_coarse = |(_, band): &(usize, &Band)| band.level > 0;
            let coarse = layout.bands.iter().enumerate().filter(is_coarse);
            let parts = |(i, band): (usize, &Band)| match band.level {
                1 => {
                    let bricks = Brick::spread(&band.dims, 0, PART_SHARE / 8);
                    bricks.iter().map(|brick| brick.in_band(i, &band.dims)).collect()
                }
                _ => vec![Piece::whole(i, &band.dims)],
            };
            let mut pieces: Vec<Piece> = coarse.flat_map(parts).collect();
            pieces.extend_from_slice(sampled.pieces);
            let estimate = streams::estimate(layout, codes, masked, Some(pieces));
            let mut trial = Trial::new::<T>(&estimate, n_escapes, (layout, codes, sampled.pieces));
            trial.bits = trial.total(layout) + n_coefficients as f64 * COEFFICIENT_BITS;
            trial
        });
        // The stencils of the sample are fitted to source values, which differ from restored ones: that matters where
        // codes are short or values masked.
        if self.masked.is_some() || trial.bits < self.values.len() as f64 / 2.0 {
            encoder.forget_finest();
        }
        (trial, Box::new(encoder))
    }

    /// Estimates the interpolation along some axes from slices along another axis, which do not depend on each other.
    fn try_slices(&self, active: AxisSet, scale: usize) -> Trial {
        let frozen = (0..AXES).filter(|a| active >> a & 1 == 0);
        let axis = frozen.max_by_key(|a| (self.dims[*a], *a != X)).expect("there is such an axis");
        let n = self.dims[axis];
        // Neighbouring rows and columns are contexts of each other, so blocks of them stay together.
        let block = [1, 1, 2, 16][axis].min(n);
        let n_blocks = n.div_ceil(block);
        let wanted = (self.values.len() / SLICE_SHARE).max(MIN_SLICE_VALUES);
        let n_taken = (n_blocks * wanted).div_ceil(self.values.len()).max(MIN_SLICES).min(n_blocks);
        let (inner, mut dims) = (volume_after(&self.dims, axis), self.dims);
        // Slices may differ much, so the sample takes quantiles of their activity, and is weighted by it.
        let n_pairs = (ACTIVITY_PAIRS.end / n_blocks).max(ACTIVITY_PAIRS.start).min(self.values.len() / n);
        let mut blocks: Vec<(u64, usize)> =
            (0..n_blocks).map(|i| (self.activity(axis, i * block, n_pairs), i)).collect();
        blocks.sort_unstable();
        let mut taken: Vec<(u64, usize)> =
            (0..n_taken).map(|i| blocks[(2 * i + 1) * n_blocks / (2 * n_taken)]).collect();
        taken.sort_unstable_by_key(|(_, i)| *i);
        let mean = |blocks: &[(u64, usize)]| {
            1.0 + blocks.iter().map(|(activity, _)| *activity as f64).sum::<f64>() / blocks.len() as f64
        };
        let weight = mean(&blocks) / mean(&taken);
        let slices: Vec<usize> = taken.iter().flat_map(|(_, i)| (i * block..n).take(block)).collect();
        dims[axis] = slices.len();
        let values = gather(self.values, n, inner, &slices);
        let masked = self.masked.map(|masked| gather(masked, n, inner, &slices));
        let chunk = Chunk { values: &values, masked: masked.as_deref(), dims, ..*self };
        let mut trial = chunk.try_out(Choice::Interpolation { active, scale }, false);
        trial.bits = trial.total(&BandLayout::interpolation(self.dims, active)) * weight;
        trial
    }

    /// How much neighbouring values of a slice differ: the sum of the logarithms of `n_pairs` differences, in
    /// tolerances.
    fn activity(&self, axis: usize, slice: usize, n_pairs: usize) -> u64 {
        let (n, inner) = (self.dims[axis], volume_after(&self.dims, axis));
        let Quantizer { step, tolerance, .. } = *self.quantizer;
        let scale = 1.0 / if self.on_lattice { step.to_f64() / 2.0 } else { tolerance.to_f64() };
        let length = |i: usize| {
            let in_slice = sample_position(i, n_pairs, self.values.len() / n);
            let at = (in_slice / inner * n + slice) * inner + in_slice % inner;
            let pair = at..(at + 2).min(self.values.len());
            if self.masked.is_some_and(|masked| masked[pair.clone()].contains(&true)) {
                return 0;
            }
            let values = &self.values[pair];
            let difference = values[values.len() - 1].to_f64() - values[0].to_f64();
            // The bit pattern of a float, read as an integer, approximates its logarithm.
            ((1.0 + (difference * scale).abs()).min(1e30).to_bits() - 1_f64.to_bits()) >> 32
        };
        (0..n_pairs).map(length).sum()
    }

    /// Chooses the predictor by bricks of the chunk.
    fn choose_by_parts(&self, workers: &Workers) -> Found<T> {
        let all = usable_axes(&self.dims);
        let bricks = Brick::spread(&self.dims, all, PART_SHARE);
        let lattice = self.try_lattice(&bricks);
        if !self.can_interpolate() {
            return Found { choice: Choice::Lattice, n_bits: lattice.bits as u64, begun: None };
        }
        let n_values = self.values.len() as f64;
        // The bits of the lattice decide with which steps the interpolation begins.
        let is_sparse = !self.on_lattice && lattice.bits < LATTICE_EXCESS * SPARSE_BITS * n_values;
        let scale_of = |active: AxisSet| usize::from(is_sparse && active.count_ones() > 2);
        let mut scale = scale_of(all);
        let (mut trial, encoder) = self.try_interpolation(all, scale, &bricks, workers);
        let (mut active, mut encoder) = (all, Some(encoder));
        while let Some(axis) = rough_axis(active, &trial.by_axis) {
            let without = active & !(1 << axis);
            let slices = self.try_slices(without, scale_of(without));
            if slices.bits >= trial.bits {
                break;
            }
            (trial, active, scale, encoder) = (slices, without, scale_of(without), None);
        }
        if lattice.bits < trial.bits {
            return Found { choice: Choice::Lattice, n_bits: lattice.bits as u64, begun: None };
        }
        let wanted = usize::from(!self.on_lattice && trial.wants_finer_steps(active, scale, n_values));
        if wanted != scale {
            (scale, encoder) = (wanted, None);
        }
        Found { choice: Choice::Interpolation { active, scale }, n_bits: trial.bits as u64, begun: encoder }
    }

    /// Chooses the predictor by a sample.
    pub(crate) fn choose(&self, workers: &Workers) -> Found<T> {
        let is_cut = self.values.len() >= MIN_PARTS && self.dims[X] <= MAX_ROW;
        if is_cut && usable_axes(&self.dims).count_ones() > 1 {
            return self.choose_by_parts(workers);
        }
        let patches = patches(self.values, self.masked, &self.dims);
        let try_out = |choice: Choice| {
            let mut sum = Trial::default();
            let layout = match choice {
                Choice::Lattice => BandLayout::lattice(self.dims),
                Choice::Interpolation { active, .. } => BandLayout::interpolation(self.dims, active),
            };
            for patch in &patches {
                sum.add(&self.patch(patch).try_out(choice, patches.len() > 1));
            }
            sum.by_axis.iter_mut().for_each(|length| *length /= patches.len() as f64);
            sum.bits = sum.total(&layout);
            sum
        };
        let (choice, trial) = self.best(try_out);
        Found { choice, n_bits: trial.bits as u64, begun: None }
    }

    /// Codes the chunk, or the rest of it if a trial has begun.
    pub(crate) fn go_on(&self, choice: Choice, begun: Option<Begun<T>>, workers: &Workers) -> Coded<T> {
        match begun {
            Some(encoder) => Coded::Interpolated(encoder.finish(workers)),
            None => self.code(choice, workers),
        }
    }

    /// Predictors that may be better than the chosen one where few codes are other than 0.
    pub(crate) fn alternatives(&self, choice: Choice) -> Vec<Choice> {
        let mut all = vec![Choice::Lattice];
        if self.can_interpolate() {
            let scales = if self.on_lattice { 0..1 } else { 0..2 };
            let usable = usable_axes(&self.dims);
            // With one axis less there are about half as many coefficients.
            let sets = [usable, usable & usable.wrapping_sub(1)].into_iter().filter(|active| *active != 0);
            let with = |active| scales.clone().map(move |scale| Choice::Interpolation { active, scale });
            all.extend(sets.flat_map(with));
        }
        all.retain(|other| *other != choice);
        all
    }

    fn patch<'b>(&'b self, patch: &'b Patch<T>) -> Chunk<'b, T> {
        Chunk { values: &patch.values, masked: patch.masked.as_deref(), dims: patch.dims, ..*self }
    }

    /// All predictors that may be chosen.
    #[cfg(feature = "unstable-research")]
    pub(crate) fn candidates(&self) -> Vec<Choice> {
        let mut all = vec![Choice::Lattice];
        if self.interpolation.is_some() {
            let usable = usable_axes(&self.dims);
            let sets = (1..1 << AXES).filter(|active| active & !usable == 0);
            all.extend(sets.flat_map(|active| [0, 1].map(|scale| Choice::Interpolation { active, scale })));
        }
        all
    }

    /// Approximate bits of the codes of this predictor.
    #[cfg(feature = "unstable-research")]
    pub(crate) fn estimate(&self, choice: Choice) -> u64 {
        self.try_all(choice).bits as u64
    }

    fn try_all(&self, choice: Choice) -> Trial {
        let mut trial = self.try_out(choice, false);
        trial.bits = trial.exact.0 + trial.groups.iter().map(|(bits, _)| bits).sum::<f64>();
        trial
    }

    /// Chooses the predictor with the shortest codes of the whole chunk.
    pub(crate) fn choose_from_all(&self) -> Found<T> {
        let (choice, trial) = self.best(|choice| self.try_all(choice));
        Found { choice, n_bits: trial.bits as u64, begun: None }
    }

    /// Tries the lattice and some interpolations; returns the best.
    fn best(&self, try_out: impl Fn(Choice) -> Trial) -> (Choice, Trial) {
        let lattice = try_out(Choice::Lattice);
        let mut active = usable_axes(&self.dims);
        if !self.can_interpolate() || active == 0 {
            return (Choice::Lattice, lattice);
        }
        let scale_of = |active: AxisSet| usize::from(!self.on_lattice && active.count_ones() > 2);
        let with = |active: AxisSet| try_out(Choice::Interpolation { active, scale: scale_of(active) });
        let mut best = with(active);
        // Axes along which the data is not smooth are left out, one after the other.
        while let Some(axis) = rough_axis(active, &best.by_axis) {
            let without = with(active & !(1 << axis));
            if without.bits >= best.bits {
                break;
            }
            (best, active) = (without, active & !(1 << axis));
        }
        if lattice.bits < best.bits {
            return (Choice::Lattice, lattice);
        }
        let scale = usize::from(
            !self.on_lattice && best.wants_finer_steps(active, scale_of(active), volume(&self.dims) as f64),
        );
        (Choice::Interpolation { active, scale }, best)
    }
}

/// The result of a predictor on a sample.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    /// Estimated length of the codes of the whole chunk.
    bits: f64,
    /// Bits of the codes of each group, and number of codes.
    groups: [(f64, f64); GROUPS],
    /// Bits of values that are stored exactly, and number of values.
    exact: (f64, f64),
    /// For each axis, the mean length, in 1/64 bit, of the codes of the finest band whose only odd axis it is.
    by_axis: [f64; AXES],
}

impl Trial {
    /// The trial with this estimate of `codes`. The lengths by axis are those of `pieces` of the finest level.
    fn new<T>(estimate: &Estimate, n_escapes: usize, (layout, codes, pieces): (&BandLayout, &[i32], &[Piece])) -> Self {
        let mut trial = Self::default();
        for (group, (bits, n_codes)) in estimate.iter().enumerate() {
            trial.groups[group] = (*bits as f64, *n_codes as f64);
        }
        let n_codes: usize = estimate.iter().map(|(_, n)| n).sum();
        trial.exact = ((n_escapes * exact_bits::<T>()) as f64, n_codes as f64);
        let mut sums = [(0, 0); AXES];
        for piece in pieces {
            let band = &layout.bands[piece.band];
            if band.level > 0 || band.odd.count_ones() != 1 {
                continue;
            }
            let (length, n) = &mut sums[band.odd.trailing_zeros() as usize];
            for rows in piece.row_ranges(&band.dims) {
                let codes = &codes[band.offset..][rows.start * band.dims[X]..rows.end * band.dims[X]];
                *length +=
                    codes.iter().map(|code| u64::from(u32::BITS - code.unsigned_abs().leading_zeros())).sum::<u64>();
                *n += codes.len();
            }
        }
        trial.by_axis = sums.map(|(length, n)| length as f64 * 64.0 / n.max(1) as f64);
        trial
    }

    fn add(&mut self, other: &Self) {
        let add = |all: &mut (f64, f64), other: &(f64, f64)| *all = (all.0 + other.0, all.1 + other.1);
        add(&mut self.exact, &other.exact);
        self.groups.iter_mut().zip(&other.groups).for_each(|(all, other)| add(all, other));
        self.by_axis.iter_mut().zip(other.by_axis).for_each(|(all, other)| *all += other);
    }

    /// Whether finer steps on coarse levels pay, judged by a trial with or without them. They reduce the quantisation
    /// error of predictions, which matters if codes are short, and get shorter from level to level, as in smooth data.
    /// With few axes, coarse levels have a large part of all values.
    fn wants_finer_steps(&self, active: AxisSet, scale: usize, n_values: f64) -> bool {
        // Continuing the trial is worth more than slightly better steps.
        let limit = SPARSE_BITS * n_values * if scale > 0 { 1.1 } else { 0.9 };
        let [finest, second] = [0, 1].map(|level| self.groups[level].0 / self.groups[level].1.max(1.0));
        self.bits < limit && second > STEEPNESS[active.count_ones() as usize] * finest
    }

    /// Bits of a chunk with this layout, extrapolated from the sample.
    fn total(&self, layout: &BandLayout) -> f64 {
        let mut sizes = [0; GROUPS];
        for band in &layout.bands {
            sizes[band.group] += volume(&band.dims);
        }
        let scaled = |(bits, n): &(f64, f64), size: usize| if *n > 0.0 { bits / n * size as f64 } else { 0.0 };
        let exact = scaled(&self.exact, layout.n_values);
        exact + self.groups.iter().zip(sizes).map(|(group, size)| scaled(group, size)).sum::<f64>()
    }
}

/// The axes that are long enough to interpolate along.
fn usable_axes(dims: &Dims) -> AxisSet {
    (0..AXES).filter(|a| dims[*a] >= 4).fold(0, |set, a| set | 1 << a)
}

/// The roughest of some axes, if the data is far less smooth along it than along another.
fn rough_axis(active: AxisSet, by_axis: &[f64; AXES]) -> Option<usize> {
    let least = axes_of(active).map(|a| by_axis[a]).fold(f64::INFINITY, f64::min);
    let roughest = axes_of(active).max_by(|a, b| by_axis[*a].total_cmp(&by_axis[*b]));
    roughest.filter(|a| active.count_ones() > 1 && by_axis[*a] > least + least / 4.0 + ROUGH)
}

/// Product of the extents of the axes after `axis`.
fn volume_after(dims: &Dims, axis: usize) -> usize {
    dims[axis + 1..].iter().product()
}

/// Some slices of an array along an axis of extent `n`; `inner` values of each are contiguous.
fn gather<V: Copy>(values: &[V], n: usize, inner: usize, slices: &[usize]) -> Vec<V> {
    let mut all = Vec::with_capacity(values.len() / n * slices.len());
    for outer in values.chunks_exact(n * inner) {
        for slice in slices {
            all.extend_from_slice(&outer[slice * inner..][..inner]);
        }
    }
    all
}

impl<T> Coded<T> {
    pub(crate) fn layout_and_codes(&self) -> (&BandLayout, &[i32]) {
        match self {
            Coded::Lattice(coded) => (&coded.layout, &coded.codes),
            Coded::Interpolated(coded) => (&coded.layout, &coded.codes),
        }
    }

    pub(crate) fn into_codes(self) -> Vec<i32> {
        match self {
            Coded::Lattice(coded) => coded.codes,
            Coded::Interpolated(coded) => coded.codes,
        }
    }

    /// Positions in working order of values that must be stored exactly.
    pub(crate) fn exact_positions(&self) -> Vec<usize> {
        match self {
            Coded::Lattice(coded) => coded.escapes.clone(),
            Coded::Interpolated(coded) => {
                let mut exact: Vec<usize> = coded.escapes.iter().map(|at| coded.layout.working_position(*at)).collect();
                exact.sort_unstable();
                exact
            }
        }
    }

    fn n_escapes(&self) -> usize {
        match self {
            Coded::Lattice(coded) => coded.escapes.len(),
            Coded::Interpolated(coded) => coded.escapes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_outliers_do_not_narrow_the_step() {
        let quantizer = Quantizer::<f32>::new(1e-3, Some(1.0)).unwrap();
        let step = |values: &[f32], masked: Option<&[bool]>| {
            interpolation_step(values, masked, &quantizer).map(|(step, _)| f64::from(step) / 2e-3)
        };
        let mut values = vec![1.0_f32; 2000];
        assert!(step(&values, None).unwrap() > 0.99);
        values[7] = 3e38;
        values[1000] = -1e20;
        values[1999] = f32::NAN;
        assert!(step(&values, None).unwrap() > 0.95);
        assert_eq!(step(&values[..400], None), None, "one of 400 is no longer rare");
        let masked: Vec<bool> = values.iter().map(|x| x.abs() > 1.0).collect();
        assert!(step(&values[..400], Some(&masked[..400])).unwrap() > 0.99);
        values.fill(1e5);
        assert_eq!(step(&values, None), None, "units of 1 / 128");
    }
}
