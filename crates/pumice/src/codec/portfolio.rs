//! Which predictor serves a chunk of the presets `small` and `max` best: tried out on patches of it, or on all of it
//! (docs/predictors.md).

use super::bands::{AXES, AxisSet, Dims, Layout, axes_of, volume};
use super::simd::{self, Job};
use super::view::{Patch, patches};
use super::{interpolate, lattice, scratch, streams};
use crate::array::Real;
use crate::parallel::Workers;
use crate::quantize::Quantizer;

/// An axis is rough if codes along it are longer by this many bits, in units of 1 / 64, and a quarter.
const ROUGH: u64 = 12;

/// How a chunk is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Choice {
    Lattice,
    Interpolation { active: AxisSet, scale: usize },
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

/// A step with room for the rounding of prediction + code · step at the chunk's largest value. None if that takes most
/// of the tolerance.
pub(crate) fn interpolation_step<T: Real>(
    values: &[T],
    masked: Option<&[bool]>,
    quantizer: &Quantizer<T>,
) -> Option<(T, T)> {
    let infinity = T::from_f64(f64::INFINITY).to_bits_u64();
    let largest = simd::run(LargestMagnitude { values, masked });
    let max_abs = largest.to_f64();
    let unit = T::from_bits_u64(largest.to_bits_u64() + 1).to_f64() - max_abs;
    let tolerance = quantizer.tolerance.to_f64();
    let step = 2.0 * (tolerance - unit) * (1.0 - 1.0 / 4096.0);
    // Sums of a few values must stay finite.
    let is_safe = max_abs < T::from_bits_u64(infinity - 1).to_f64() / 1024.0;
    let rounded = T::from_f64(step);
    let is_normal =
        T::from_f64(8.0 / step).to_f64().is_finite() && rounded.to_f64() > 0.0 && rounded.to_f64().is_finite();
    (is_safe && step > tolerance && is_normal).then_some((rounded, quantizer.tolerance))
}

/// The largest magnitude of all finite values that are not masked.
struct LargestMagnitude<'a, T> {
    values: &'a [T],
    masked: Option<&'a [bool]>,
}

impl<T: Real> Job for LargestMagnitude<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        // Sixteen at a time, since each waits for the one before.
        let mut largest = [T::default(); 16];
        let infinity = T::from_f64(f64::INFINITY);
        let better = |x: T, than: T| if x.fabs() > than && x.fabs() < infinity { x.fabs() } else { than };
        let (blocks, rest) = self.values.as_chunks::<16>();
        if let Some(masked) = self.masked {
            let (masked, masked_rest) = masked.as_chunks::<16>();
            let unmasked = |x: T, masked: bool| if masked { T::default() } else { x };
            for (block, masked) in blocks.iter().zip(masked) {
                for i in 0..16 {
                    largest[i] = better(unmasked(block[i], masked[i]), largest[i]);
                }
            }
            for (x, masked) in rest.iter().zip(masked_rest) {
                largest[0] = better(unmasked(*x, *masked), largest[0]);
            }
        } else {
            for block in blocks {
                for i in 0..16 {
                    largest[i] = better(block[i], largest[i]);
                }
            }
            for x in rest {
                largest[0] = better(*x, largest[0]);
            }
        }
        largest.into_iter().fold(T::default(), |all, x| better(x, all))
    }
}

impl<T: Real> Chunk<'_, T> {
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

    fn patch<'a>(&'a self, patch: &'a Patch<T>) -> Chunk<'a, T> {
        Chunk { values: &patch.values, masked: patch.masked.as_deref(), dims: patch.dims, ..*self }
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

/// Tries what may serve best; trials may stop early once they are longer than the best so far.
fn best(can_interpolate: bool, dims: &Dims, try_out: impl Fn(Choice, u64) -> Trial) -> (Choice, Trial) {
    let all = (0..AXES).filter(|a| dims[*a] >= 4).fold(0, |set: AxisSet, a| set | 1 << a);
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
    pub(crate) fn layout_and_codes(&self) -> (&Layout, &[i32]) {
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
