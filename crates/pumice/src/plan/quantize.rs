//! The bound-checked quantiser.
//!
//! A value x becomes the integer q = round(x / step) and is restored as x' = fl(q · step). The bound is not a property
//! of that arithmetic: it is *checked*, on the decoder's own result, and what fails the check is stored exactly.
//!
//! **Proof that the check suffices.** Let e be the user's bound, or less, and E the largest value of type T with E <= e. The
//! tolerance is t = the predecessor of E in T. A value is accepted only if d = fl(|x - x'|) <= t. Rounding to nearest is
//! monotone, so if the exact difference |x - x'| were greater than E, its rounded value would be at least E > t: a
//! contradiction. Hence |x - x'| <= E <= e in exact arithmetic. NaN fails every comparison and infinities give a
//! difference that is infinite or NaN, so neither is ever accepted.
//!
//! **The decoder's own result.** x' is computed from s = fl(x · inv_step) + MAGIC as (s - MAGIC) · step. The integer
//! stored is q = bits(s) - bits(MAGIC), and the decoder forms from_bits(bits(MAGIC) + q) = s again, bit for bit,
//! whatever s is; so the value checked is the value restored, even for overflows and NaN.
//!
//! **Range.** Far beyond 2^22 steps (2^51 for f64) rounding may restore x by luck. That is within the bound, but such integers
//! are as wide as the type, so [`Quantizer::quantize`] refuses them; the kernels leave it to `tile.rs` to notice the width.
//!
//! **Few failures.** The step has so few significant bits that q · step is exact for the largest |x| of the data where
//! that is possible, so x' carries no rounding error; where it is not, the step is smaller by that error. What remains
//! is x · inv_step rounded to the wrong side near a tie at large |q|; then the neighbour of q towards x is tried before the
//! value is escaped.
#![allow(unsafe_code)]

use crate::num::simd::Simd;
use crate::num::{Int, Real, Value};

/// Step, its reciprocal and the tolerance of the check (docs/format.md, section 6.3).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Quantizer<T> {
    /// Distance between neighbouring restored values.
    pub step: T,
    /// The rounded reciprocal of the step, by which values are multiplied.
    pub inv_step: T,
    /// Largest rounded difference between a value and its restored value that is accepted.
    pub tolerance: T,
}

/// Fewest significant bits that the step is rounded down to: this costs at most 1/64 of the bound.
const MIN_STEP_BITS: u32 = 6;

/// Share of the bound that the step leaves unused; the tolerance leaves half of it. So rounding errors in the bound
/// itself, computed here or by a program that checks it in single precision, do not matter.
const MARGIN: f64 = 1.0 / (1 << 20) as f64;

/// Significant bits of the step where the data's magnitude is not known.
const DEFAULT_STEP_BITS: u32 = 12;

/// Significant bits of the steps of lattices: f32 values are exact multiples up to 2^16 steps, and a range that changes a
/// little leads to one of few steps.
const LATTICE_STEP_BITS: u32 = 8;

impl<T: Real> Quantizer<T> {
    /// The quantiser for a bound, given the largest magnitude of the data where known. `None` where the bound is too
    /// small or too large for T's normal range: then values must be stored exactly.
    pub(crate) fn new(abs_bound: f64, max_abs: Option<f64>) -> Option<Self> {
        let tolerance = tolerance::<T>(abs_bound);
        let widest = widest_step::<T>(abs_bound);
        let (widest, step_bits) = match max_abs {
            Some(max_abs) if widest > 0.0 => {
                let q_bits = ceil_log2((max_abs / widest).max(1.0)) + 1;
                match T::MANTISSA_BITS.saturating_sub(q_bits) {
                    // Products are rounded: the step leaves room for that, up to half of it.
                    n if n < MIN_STEP_BITS => {
                        (widest - half_ulp::<T>(max_abs).min(widest / 4.0) * 2.0, DEFAULT_STEP_BITS)
                    }
                    n => (widest, n),
                }
            }
            _ => (widest, DEFAULT_STEP_BITS),
        };
        let step = T::from_f64(keep_leading_bits(widest, step_bits));
        Self::with_step(step, tolerance)
    }

    fn with_step(step: T, tolerance: T) -> Option<Self> {
        let inv_step = T::from_f64(1.0 / step.to_f64());
        let usable = is_normal(step) && is_normal(inv_step);
        usable.then_some(Self { step, inv_step, tolerance })
    }

    /// The quantiser of a stream that is already described by its step and bound.
    pub(crate) fn for_stream(step: T, abs_bound: f64) -> Option<Self> {
        Self::with_step(step, tolerance::<T>(abs_bound))
    }

    /// The step of the lattice of a bound, which depends on nothing else; `None` as for [`Quantizer::new`].
    pub(crate) fn lattice_step(abs_bound: f64) -> Option<T> {
        let step = T::from_f64(keep_leading_bits(widest_step::<T>(abs_bound), LATTICE_STEP_BITS));
        Self::on_lattice(step, abs_bound).map(|quantizer| quantizer.step)
    }

    /// The quantiser of a lattice. With the step of [`Quantizer::lattice_step`] the tolerance is half of it, so that
    /// what becomes of a value depends on the step alone.
    pub(crate) fn on_lattice(step: T, abs_bound: f64) -> Option<Self> {
        let half = T::from_f64(step.to_f64() / 2.0);
        let tolerance = tolerance::<T>(abs_bound);
        Self::with_step(step, if half < tolerance { half } else { tolerance })
    }

    /// The step of the widest lattice that has all points of the lattice of `step`, and is fine enough for a bound.
    pub(crate) fn finer_lattice(step: T, abs_bound: f64) -> Option<T> {
        let tolerance = tolerance::<T>(abs_bound).to_f64();
        let mut finer = step.to_f64();
        // Powers of two do not round.
        while finer / 2.0 > tolerance {
            finer /= 2.0;
        }
        Self::on_lattice(T::from_f64(finer), abs_bound).map(|quantizer| quantizer.step)
    }

    /// The quantiser that accepts only values that it restores exactly.
    pub(crate) fn exact(self) -> Self {
        Self { tolerance: T::default(), ..self }
    }

    /// The steps of lattices nearest to that of a bound, which is the first: those of bounds that differ by a share of
    /// up to `reach`.
    pub(crate) fn lattice_steps(abs_bound: f64, reach: f64) -> Vec<T> {
        let Some(first) = Self::lattice_step(abs_bound).map(T::to_f64) else { return Vec::new() };
        let unit = 1_u64 << (f64::MANTISSA_DIGITS - LATTICE_STEP_BITS);
        let mut steps = vec![T::from_f64(first)];
        let (mut above, mut below) = (first, first);
        loop {
            above = f64::from_bits(above.to_bits() + unit);
            below = f64::from_bits(below.to_bits() - unit);
            let near = [above, below].into_iter().filter(|step| (step - first).abs() <= reach * first);
            let n = steps.len();
            steps.extend(
                near.filter(|step| Self::with_step(T::from_f64(*step), T::default()).is_some()).map(T::from_f64),
            );
            if steps.len() == n {
                return steps;
            }
        }
    }

    /// The restored value of `x`, or `x` where it has none.
    #[inline(always)]
    pub(crate) fn snap(&self, x: T) -> T {
        self.quantize(x).map_or(x, |q| restore(q, self.step))
    }

    /// The integer for `x`, or `None` if no integer restores it within the bound.
    #[inline(always)]
    pub(crate) fn quantize(&self, x: T) -> Option<T::Int> {
        let t = x.fmul(self.inv_step);
        if !(t.fabs() < T::MAX_QUANTUM) {
            return None;
        }
        let mut s = t.fadd(T::MAGIC);
        let residue = x.fsub(self.restore_rounded(s));
        if !(residue.fabs() <= self.tolerance) {
            let one = T::from_f64(if residue > T::default() { 1.0 } else { -1.0 });
            s = s.fadd(one);
            if !(x.fsub(self.restore_rounded(s)).fabs() <= self.tolerance) {
                return None;
            }
        }
        Some(s.bits().sub(T::MAGIC.bits()))
    }

    /// Integers of at most 64 values; the bits of the result mark those that [`Quantizer::quantize`] must decide.
    ///
    /// # Safety
    /// The machine has instruction set S; `integers` has room for whole vectors.
    #[inline(always)]
    pub(crate) unsafe fn quantize_run<S: Simd<T>>(&self, values: &[T], integers: *mut T::Int) -> u64 {
        // SAFETY: this function's own contract; values are read only within the slice.
        unsafe {
            let (inv_step, step, tolerance) = (S::splat(self.inv_step), S::splat(self.step), S::splat(self.tolerance));
            let (magic, magic_bits) = (S::splat(T::MAGIC), S::splat_int(T::MAGIC.bits()));
            // |t| <= the predecessor is |t| < MAX_QUANTUM.
            let max_quantum = S::splat(T::of_bits(T::MAX_QUANTUM.bits().sub(T::Int::from_i64(1))));
            let mut undecided = 0;
            for at in (0..values.len()).step_by(S::LANES) {
                let n = S::LANES.min(values.len() - at);
                let x = S::load_first(values.as_ptr().add(at), n);
                let t = S::mul(x, inv_step);
                let s = S::add(t, magic);
                let d = S::sub(x, S::mul(S::sub(s, magic), step));
                S::store_int(integers.add(at), S::sub_int(S::bits(s), magic_bits));
                // Lanes past the values are 0, which is never over.
                let over = S::over_lanes(d, tolerance) | S::over_lanes(t, max_quantum);
                undecided |= u64::from(over) << at;
            }
            undecided
        }
    }

    #[inline(always)]
    fn restore_rounded(&self, s: T) -> T {
        s.fsub(T::MAGIC).fmul(self.step)
    }
}

/// The decoder's value for `q`.
#[inline(always)]
pub(crate) fn restore<T: Value>(q: T::Int, step: T) -> T {
    T::of_bits(q.add(T::MAGIC.bits())).fsub(T::MAGIC).fmul(step)
}

/// The largest step of a bound: not more than twice the tolerance, nor than a quarter of the range, above which the product
/// q · step overflows.
fn widest_step<T: Real>(abs_bound: f64) -> f64 {
    (2.0 * tolerance::<T>(abs_bound).to_f64() * (1.0 - MARGIN / 2.0)).min(largest::<T>() / 4.0)
}

/// Predecessor of the largest T not above the bound (less half the margin), and not below 0.
fn tolerance<T: Real>(abs_bound: f64) -> T {
    let abs_bound = abs_bound * (1.0 - MARGIN / 2.0);
    let nearest = T::from_f64(abs_bound.min(largest::<T>()));
    let bits = nearest.to_bits_u64();
    let down = if nearest.to_f64() > abs_bound { 2 } else { 1 };
    T::from_bits_u64(bits.saturating_sub(down))
}

fn largest<T: Real>() -> f64 {
    match T::DTYPE {
        crate::DType::F32 => f64::from(f32::MAX),
        crate::DType::F64 => f64::MAX,
    }
}

fn is_normal<T: Real>(value: T) -> bool {
    match T::DTYPE {
        crate::DType::F32 => (value.to_f64() as f32).is_normal(),
        crate::DType::F64 => value.to_f64().is_normal(),
    }
}

/// The least n with 2^n >= x, for x of at least 1; computed from its bits, since library functions differ from machine
/// to machine.
fn ceil_log2(x: f64) -> u32 {
    let fraction_bits = f64::MANTISSA_DIGITS - 1;
    let exponent = (x.to_bits() >> fraction_bits) as u32 - (f64::MAX_EXP as u32 - 1);
    exponent + u32::from(x.to_bits() << (64 - fraction_bits) != 0)
}

/// Half the distance of `value`, which is not negative, from its successor in T: the most that rounding changes it.
fn half_ulp<T: Real>(value: f64) -> f64 {
    let value = T::from_f64(value.min(largest::<T>()));
    let next = T::from_bits_u64(value.to_bits_u64() + 1).to_f64();
    if next.is_finite() { (next - value.to_f64()) / 2.0 } else { 0.0 }
}

/// `value` rounded towards zero to `n_bits` significant bits.
fn keep_leading_bits(value: f64, n_bits: u32) -> f64 {
    let n_cut = f64::MANTISSA_DIGITS - n_bits.clamp(1, f64::MANTISSA_DIGITS);
    f64::from_bits(value.to_bits() & !((1_u64 << n_cut) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_lies_strictly_below_the_bound() {
        for bound in [1e-3, 0.1, 1.0, 1e30, 1e-30, 1e-42, 1e-45, 1e300] {
            let t = tolerance::<f32>(bound);
            assert!(t >= 0.0 && f64::from(t) < bound, "{bound}: {t}");
            assert!(tolerance::<f64>(bound) < bound);
        }
        assert!(tolerance::<f32>(0.5) > 0.499_999 && tolerance::<f64>(0.1) > 0.099_999_9);
    }

    #[test]
    fn logarithms_are_rounded_up() {
        for n in 0..1023 {
            let power = 2_f64.powi(n);
            assert_eq!(ceil_log2(power), n as u32);
            assert_eq!(ceil_log2(power.next_up()), n as u32 + 1);
            assert_eq!(ceil_log2((2.0 * power).next_down()), n as u32 + 1);
        }
        assert_eq!(ceil_log2(f64::INFINITY), 1024);
    }

    #[test]
    fn accepted_values_restore_within_the_bound() {
        let quantizer = Quantizer::<f32>::new(1e-3, Some(1000.0)).unwrap();
        let mut x = -1000.0_f32;
        while x < 1000.0 {
            let q = quantizer.quantize(x).expect("within range");
            let restored = restore(q, quantizer.step);
            assert!((f64::from(x) - f64::from(restored)).abs() <= 1e-3);
            x += 0.0371;
        }
    }

    #[test]
    fn special_and_far_values_are_refused() {
        let quantizer = Quantizer::<f32>::new(1e-3, Some(1.0)).unwrap();
        for x in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -3e38] {
            assert_eq!(quantizer.quantize(x), None, "{x}");
        }
        assert_eq!(quantizer.quantize(-0.0), Some(0));
        assert_eq!(quantizer.quantize(1e-40), Some(0));
    }

    #[test]
    fn bounds_outside_the_normal_range_have_no_quantizer() {
        assert!(Quantizer::<f32>::new(1e-42, None).is_none());
        assert!(Quantizer::<f32>::new(1e-45, None).is_none());
        assert!(Quantizer::<f64>::new(1e-320, None).is_none());
        assert!(Quantizer::<f32>::new(1e38, None).is_none_or(|q| q.step.is_finite()));
        assert!(Quantizer::<f64>::new(1e300, Some(1e308)).is_some());
    }
}
