//! Which predictor serves a chunk of the presets `small` and `max` best: tried out on patches of it, or on all of it
//! (docs/predictors.md).

use super::bands::BandLayout;
use super::{interpolate, lattice, streams};
use crate::codec::shared::dims::{AXES, AxisSet, Dims, axes_of, volume};
use crate::codec::shared::view::{Patch, patches};
use crate::exec::{Workers, scratch};
use crate::num::Real;
use crate::num::simd::{self, Kernel};
use crate::plan::Quantizer;

/// An axis is rough if codes along it are longer by this many bits, in units of 1 / 64, and a quarter.
const ROUGH: u64 = 12;

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
pub(crate) struct Chunk<'a, T> {
    pub(crate) values: &'a [T],
    pub(crate) masked: Option<&'a [bool]>,
    pub(crate) dims: Dims,
    pub(crate) quantizer: &'a Quantizer<T>,
    /// Step and tolerance of the interpolation, where it can keep the bound.
    pub(crate) interpolation: Option<(T, T)>,
}

/// Codes of either predictor.
pub(crate) enum Coded<T> {
    Lattice(lattice::Encoded),
    Interpolated(interpolate::Encoded<T>),
}

/// A step with room for the rounding of prediction + code · step at the chunk's largest value, but for a few outliers,
/// which will be stored exactly where that is not enough. None if the rounding takes most of the tolerance.
pub(crate) fn interpolation_step<T: Real>(
    values: &[T],
    masked: Option<&[bool]>,
    quantizer: &Quantizer<T>,
) -> Option<(T, T)> {
    let tolerance = quantizer.tolerance.to_f64();
    // The units of numbers up to this are at most 1 / 64 of the tolerance: hardly worth an exact value.
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

/// Less than one of so many values may be an outlier.
const OUTLIERS: usize = 512;

/// Of all finite values that are not masked.
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
        // Sixteen at a time, since each waits for the one before.
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
        Self { values, masked, dims, quantizer, interpolation: interpolation_step(values, masked, quantizer) }
    }

    pub(crate) fn code(&self, choice: Choice, workers: &Workers) -> Coded<T> {
        match choice {
            Choice::Lattice => {
                let integers = lattice::quantize(self.values, self.masked, self.quantizer);
                let coefficients = lattice::fit(&integers.values, &self.dims);
                Coded::Lattice(lattice::encode(integers, self.masked, self.dims, coefficients, workers))
            }
            Choice::Interpolation { active, scale } => {
                let steps = self.interpolation.expect("only chosen where there is a step");
                Coded::Interpolated(interpolate::encode(
                    self.values,
                    self.masked,
                    self.dims,
                    active,
                    scale,
                    steps,
                    workers,
                ))
            }
        }
    }

    /// What this predictor makes of the chunk.
    fn try_out(&self, choice: Choice) -> Trial {
        let coded = self.code(choice, &Workers::Serial);
        let (layout, codes) = coded.layout_and_codes();
        let masked = self.masked.map(|masked| interpolate::to_bands(layout, masked, false));
        let exact_bits = coded.n_escapes() as u64 * (8 * size_of::<T>() as u64 + 16);
        let bits = streams::estimate(layout, codes, masked.as_deref()) + exact_bits;
        let mut trial = Trial { bits, n_values: codes.len(), by_axis: [0; AXES] };
        for band in layout.bands.iter().filter(|band| band.level == 0 && band.odd.count_ones() == 1) {
            let codes = &codes[band.offset..][..volume(&band.dims)];
            let length = |code: &i32| u64::from(u32::BITS - code.unsigned_abs().leading_zeros());
            trial.by_axis[band.odd.trailing_zeros() as usize] =
                codes.iter().map(length).sum::<u64>() * 64 / codes.len() as u64;
        }
        scratch::give(coded.into_codes());
        trial
    }

    /// The predictor that serves a sample best, and how many bits the codes will take, about.
    pub(crate) fn choose(&self) -> (Choice, u64) {
        let patches = patches(self.values, self.masked, &self.dims);
        let chunks: Vec<Chunk<'_, T>> = patches.iter().map(|patch| self.patch(patch)).collect();
        let try_out = |choice: Choice, best: u64| {
            let mut sum = Trial::default();
            for (i, chunk) in chunks.iter().enumerate() {
                let trial = chunk.try_out(choice);
                sum.bits += trial.bits;
                sum.n_values += trial.n_values;
                sum.by_axis.iter_mut().zip(trial.by_axis).for_each(|(sum, n)| *sum += n / chunks.len() as u64);
                // What is far behind after half of the patches will not win.
                if i >= chunks.len() / 2 && sum.bits > best {
                    break;
                }
            }
            sum
        };
        let (choice, trial) = best(self.interpolation.is_some(), &self.dims, try_out);
        (choice, trial.bits * self.values.len() as u64 / trial.n_values as u64)
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

    /// How many bits the codes of this predictor take, about.
    #[cfg(feature = "unstable-research")]
    pub(crate) fn estimate(&self, choice: Choice) -> u64 {
        self.try_out(choice).bits
    }

    /// The predictor whose codes are shortest, and how many bits they take, about.
    pub(crate) fn choose_from_all(&self) -> (Choice, u64) {
        let (choice, trial) = best(self.interpolation.is_some(), &self.dims, |choice, _| self.try_out(choice));
        (choice, trial.bits)
    }
}

/// What a predictor made of a sample.
#[derive(Clone, Copy, Default)]
struct Trial {
    /// Estimated length of the codes.
    bits: u64,
    n_values: usize,
    /// Mean length, in units of 1 / 64 bit, of the codes of the finest level between neighbours along each axis.
    by_axis: [u64; AXES],
}

/// The axes that are long enough to interpolate along.
fn usable_axes(dims: &Dims) -> AxisSet {
    (0..AXES).filter(|a| dims[*a] >= 4).fold(0, |set, a| set | 1 << a)
}

/// Tries what may serve best; trials may stop early once they are longer than the best so far.
fn best(can_interpolate: bool, dims: &Dims, try_out: impl Fn(Choice, u64) -> Trial) -> (Choice, Trial) {
    let all = usable_axes(dims);
    if !can_interpolate || all == 0 {
        return (Choice::Lattice, try_out(Choice::Lattice, u64::MAX));
    }
    let with = |active: AxisSet, best: u64| (try_out(Choice::Interpolation { active, scale: 1 }, best), active);
    let mut best = with(all, u64::MAX);
    // Axes along which the data is not smooth are left out, one after the other.
    loop {
        let (Trial { bits, by_axis, .. }, active) = best;
        let least = axes_of(active).map(|a| by_axis[a]).min().unwrap_or(0);
        let roughest = axes_of(active).max_by_key(|a| by_axis[*a]).filter(|_| active.count_ones() > 1);
        let Some(axis) = roughest.filter(|a| by_axis[*a] > least + least / 4 + ROUGH) else { break };
        let without = with(active & !(1 << axis), bits);
        if without.0.bits >= bits {
            break;
        }
        best = without;
    }
    let (trial, active) = best;
    // Patches have few levels and many edges, which interpolation suffers from more than the whole chunk will.
    let lattice = try_out(Choice::Lattice, trial.bits);
    let handicap = if trial.n_values < volume(dims) { lattice.bits / 32 } else { 0 };
    if lattice.bits + handicap < trial.bits {
        return (Choice::Lattice, lattice);
    }
    // Finer steps on coarse levels pay where most codes are 0.
    let is_dense = trial.bits > trial.n_values as u64;
    (Choice::Interpolation { active, scale: if is_dense { 0 } else { 1 } }, trial)
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

    /// Places in working order of values that must be stored exactly.
    pub(crate) fn exact_places(&self) -> Vec<usize> {
        match self {
            Coded::Lattice(coded) => coded.escapes.clone(),
            Coded::Interpolated(coded) => {
                let mut exact: Vec<usize> = coded.escapes.iter().map(|at| coded.layout.place_of(*at)).collect();
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
