//! Integers in floating-point type, coded without loss: what sums of quantised values are carried in.

use crate::codec::{CodecId, Element, StreamParams, check_plausible};
use crate::entropy::Books;
use crate::error::{Error, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::grid::Block;
use crate::num::Value;
use crate::num::simd::{self, Kernel};
use crate::plan::{Config, ErrorBound, Plan, Preset};

/// A code for lists of integers of type T, which are as large as [`Integers::limit`] says at most.
#[derive(Debug)]
pub struct Integers<T> {
    plan: Plan<T>,
    params: StreamParams<T>,
}

impl<T: Element> Integers<T> {
    /// Integers below this are coded well, and sums of integers up to this are exact in T.
    pub fn limit() -> f64 {
        <T as Value>::MAX_QUANTUM.to_f64()
    }

    /// The code of `fast` or `balanced`.
    pub fn new(preset: Preset) -> Result<Self> {
        // Multiples of 1, which are their own restored values.
        let config = Config::new(ErrorBound::Abs(0.5)).preset(preset);
        let mut plan = Plan::new(&config, &[], None)?;
        plan.step = Some(T::from_f64(1.0));
        plan.is_streamed = false;
        let params = StreamParams {
            step: plan.step,
            fills: Vec::new(),
            books: Books::Own,
            preset,
            is_pointwise: false,
            has_regions: false,
        };
        plan.fills.clear();
        plan.more_fills.clear();
        Ok(Self { plan, params })
    }

    /// Appends the code of a list: a byte for the codec, and its payload.
    pub fn encode(&self, values: &[T], out: &mut Vec<u8>) {
        let _floats = DefaultFloats::set();
        let at = out.len();
        out.push(0);
        let block = Block::whole(&[values.len()]);
        out[at] = match values {
            [] => CodecId::Raw as u8,
            _ => T::encode_chunk(values, &block, &self.plan, &Workers::Serial, out) as u8,
        };
    }

    /// Decodes a list, whose length is known.
    pub fn decode(&self, bytes: &[u8], out: &mut [T]) -> Result<()> {
        let _floats = DefaultFloats::set();
        let (codec, payload) = bytes.split_first().ok_or_else(|| Error::truncated("a list of integers is missing"))?;
        let codec = CodecId::from_byte(*codec)?;
        check_plausible::<T>(codec, payload.len() as u64, out.len())?;
        let extents = [out.len()];
        T::decode_chunk(codec, payload, &self.params.chunk(&extents, None, &Workers::Serial, u64::MAX), out)
    }
}

/// A lattice whose multiples are summed: values become the nearest multiple of the step, with an error of at most the
/// tolerance.
#[derive(Clone, Copy, Debug)]
pub struct SumLattice {
    /// The step.
    pub step: f64,
    /// The largest error of a value.
    pub tolerance: f64,
}

/// 1.5 · 2^52: adding it rounds to an integer.
const MAGIC: f64 = (3_u64 << 51) as f64;

impl SumLattice {
    /// The multiple of the step that is nearest to a finite value, and whether it is near enough.
    #[inline(always)]
    fn nearest(&self, x: f64, inverse: f64) -> (f64, bool) {
        let integer = (x * inverse + MAGIC) - MAGIC;
        (integer, (x - integer * self.step).abs() <= self.tolerance)
    }

    /// Adds the integers of values to sums. Returns how many values have none, as they are not finite; they add nothing.
    /// The others are below 2^51 steps.
    pub fn add<T: Element, C: Element>(&self, values: &[T], sums: &mut [C]) -> usize {
        let _floats = DefaultFloats::set();
        simd::run(Add { lattice: *self, values, sums })
    }

    /// The values that sums of integers stand for.
    pub fn restore<T: Element, C: Element>(&self, sums: &[C], out: &mut [T]) {
        let _floats = DefaultFloats::set();
        simd::run(Restore { lattice: *self, sums, out });
    }
}

/// Least and greatest finite value, and how many values are not finite.
pub fn finite_range<T: Element>(values: &[T]) -> (Option<(f64, f64)>, usize) {
    let _floats = DefaultFloats::set();
    simd::run(FiniteRange { values })
}

struct FiniteRange<'a, T> {
    values: &'a [T],
}

/// Lanes of the kernel: a few vectors of any instruction set.
const LANES: usize = 32;

impl<T: Element> Kernel for FiniteRange<'_, T> {
    type Output = (Option<(f64, f64)>, usize);

    #[inline(always)]
    fn run(self) -> Self::Output {
        let greatest = T::from_f64(f64::INFINITY);
        let (mut lo, mut hi, mut n) = ([greatest; LANES], [T::default().fsub(greatest); LANES], [0_usize; LANES]);
        let mut take = |lane: usize, x: T| {
            let is_finite = x.fabs() < greatest;
            lo[lane] = if is_finite & (x < lo[lane]) { x } else { lo[lane] };
            hi[lane] = if is_finite & (x > hi[lane]) { x } else { hi[lane] };
            n[lane] += usize::from(!is_finite);
        };
        let (blocks, rest) = self.values.as_chunks::<LANES>();
        for block in blocks {
            (0..LANES).for_each(|lane| take(lane, block[lane]));
        }
        rest.iter().enumerate().for_each(|(lane, x)| take(lane, *x));
        let lo = lo.iter().map(|x| x.to_f64()).fold(f64::INFINITY, f64::min);
        let hi = hi.iter().map(|x| x.to_f64()).fold(f64::NEG_INFINITY, f64::max);
        ((lo <= hi).then_some((lo, hi)), n.iter().sum())
    }
}

struct Add<'a, T, C> {
    lattice: SumLattice,
    values: &'a [T],
    sums: &'a mut [C],
}

impl<T: Element, C: Element> Kernel for Add<'_, T, C> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let inverse = 1.0 / self.lattice.step;
        let mut n_without = 0;
        for (sum, x) in self.sums.iter_mut().zip(self.values) {
            let (integer, is_near) = self.lattice.nearest(x.to_f64(), inverse);
            *sum = C::from_f64(sum.to_f64() + if is_near { integer } else { 0.0 });
            n_without += usize::from(!is_near);
        }
        n_without
    }
}

struct Restore<'a, T, C> {
    lattice: SumLattice,
    sums: &'a [C],
    out: &'a mut [T],
}

impl<T: Element, C: Element> Kernel for Restore<'_, T, C> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (out, sum) in self.out.iter_mut().zip(self.sums) {
            *out = T::from_f64(sum.to_f64() * self.lattice.step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers_come_back<T: Element>() {
        for preset in [Preset::Fast, Preset::Balanced] {
            let code = Integers::<T>::new(preset).unwrap();
            for n in [0, 1, 31, 1000, 70_000] {
                let mut values: Vec<T> =
                    (0..n).map(|i| T::from_f64(((f64::from(i) * 0.01).sin() * 500.0).round())).collect();
                for (i, x) in [-Integers::<T>::limit(), Integers::<T>::limit(), 0.0, -1.0].into_iter().enumerate() {
                    if let Some(value) = values.get_mut(i * 17) {
                        *value = T::from_f64(x);
                    }
                }
                let mut bytes = vec![7];
                code.encode(&values, &mut bytes);
                assert!(n < 70_000 || bytes.len() * 3 < n as usize * size_of::<T>());
                let mut restored = vec![T::from_f64(9.0); values.len()];
                code.decode(&bytes[1..], &mut restored).unwrap();
                assert!(restored == values, "{} {n}", T::DTYPE);
                assert!(code.decode(&bytes[1..bytes.len() - 1], &mut restored).is_err());
            }
        }
    }

    #[test]
    fn values_are_near_their_integers() {
        let lattice = SumLattice { step: 0.25, tolerance: 0.126 };
        let values = [1.0f32, -0.3, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.13, -7.125];
        let mut sums = [10.0f64; 7];
        assert_eq!(lattice.add(&values, &mut sums), 3);
        assert_eq!(sums, [14.0, 9.0, 10.0, 10.0, 10.0, 11.0, -18.0]);
        let mut restored = [0.0f32; 7];
        lattice.restore(&sums, &mut restored);
        assert_eq!(restored, [3.5, 2.25, 2.5, 2.5, 2.5, 2.75, -4.5]);
        assert_eq!(finite_range(&values), (Some((f64::from(-7.125f32), 1.0)), 3));
        assert_eq!(finite_range(&values.repeat(50)), (Some((f64::from(-7.125f32), 1.0)), 150));
        assert_eq!(finite_range(&[f64::NAN]), (None, 1));
        assert_eq!(finite_range::<f32>(&[]), (None, 0));
    }

    #[test]
    fn integers_come_back_as_they_were() {
        integers_come_back::<f32>();
        integers_come_back::<f64>();
    }
}
