//! The lattice of the stable mode (docs/guarantees.md, "Writing again"): the multiples of a step that depends on the
//! absolute bound alone.
//!
//! Before a chunk is coded, each value x is replaced by C(x), the multiple of the step that the quantiser restores for
//! it, or x itself where the quantiser refuses. The result is coded without further loss. So what a value becomes does
//! not depend on its neighbours, the chunk or the codec, and values that are compressed again keep their bits if C(C(x))
//! = C(x).
//!
//! **Proof.** Refused values stay as they are. Otherwise let y = fl(q · step), with |q| < 2^(p - 2) for p mantissa bits.
//! y · inv_step is off by three roundings, and so within 3/4 of q, and rounds to q or to a neighbour q' of q. Each of
//! the products for q and q' is off by less than a quarter of the step, so they are more than half a step, the largest
//! tolerance, apart: q' is refused, and its neighbour towards y, q, is tried, which restores y. If the quantiser refuses y
//! because y · inv_step is too large, y stays as it is as well.

use crate::error::Result;
#[cfg(feature = "unstable-backend")]
use crate::grid::Block;
use crate::io::Source;
use crate::num::Real;
use crate::num::simd::{self, Kernel};

use super::passes::Blocks;
use super::quantize::Quantizer;
use super::stats::Stats;
use super::{ErrorBound, Plan, Stable};

/// Values that are snapped at a time.
const RUN: usize = 64;

/// The values of a chunk on a lattice. Fill values keep their bits.
pub(crate) fn snap<T: Real>(values: &[T], fills: &[T], quantizer: &Quantizer<T>, out: &mut [T]) {
    // NaN, which is never snapped, stands for a fill value that there is not.
    let fill = |i: usize| fills.get(i).copied().unwrap_or(T::from_f64(f64::NAN)).bits();
    simd::run(Snap { values, fills: [fill(0), fill(1)], quantizer, out });
}

/// The integers of values that are on a lattice, in type T; NaN for those that are not.
pub(crate) fn integers<T: Real>(values: &[T], quantizer: &Quantizer<T>, out: &mut [T]) {
    simd::run(Integers { values, quantizer, out });
}

/// Replaces integers, in type T, by the values of a lattice.
pub(crate) fn restore<T: Real>(step: T, values: &mut [T]) {
    values.iter_mut().for_each(|x| *x = x.fmul(step));
}

struct Integers<'a, T> {
    values: &'a [T],
    quantizer: &'a Quantizer<T>,
    out: &'a mut [T],
}

impl<T: Real> Kernel for Integers<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quantizer { step, inv_step, .. } = *self.quantizer;
        let none = T::from_f64(f64::NAN);
        for (out, x) in self.out.iter_mut().zip(self.values) {
            let t = x.fmul(inv_step);
            let integer = t.fadd(T::MAGIC).fsub(T::MAGIC);
            let is_restored = (integer.fmul(step) == *x) & (t.fabs() < T::MAX_QUANTUM);
            *out = if is_restored { integer } else { none };
        }
    }
}

struct Snap<'a, T: Real> {
    values: &'a [T],
    fills: [T::Int; 2],
    quantizer: &'a Quantizer<T>,
    out: &'a mut [T],
}

impl<T: Real> Kernel for Snap<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Quantizer { step, inv_step, tolerance } = *self.quantizer;
        let is_fill = |x: T| (x.bits() == self.fills[0]) | (x.bits() == self.fills[1]);
        for (out, xs) in self.out.chunks_mut(RUN).zip(self.values.chunks(RUN)) {
            let mut n_over = 0_u32;
            for (y, x) in out.iter_mut().zip(xs) {
                let t = x.fmul(inv_step);
                *y = t.fadd(T::MAGIC).fsub(T::MAGIC).fmul(step);
                let within = x.fsub(*y).fabs() <= tolerance;
                let small = t.fabs() < T::MAX_QUANTUM;
                n_over += u32::from(!within) | u32::from(!small) | u32::from(is_fill(*x));
            }
            if n_over > 0 {
                for (y, x) in out.iter_mut().zip(xs) {
                    *y = if is_fill(*x) { *x } else { self.quantizer.snap(*x) };
                }
            }
        }
    }
}

/// Samples of a block that decide whether a lattice is worth a closer look.
const BLOCK_SAMPLES: usize = 64;
/// Most lattices that are compared with all values.
const MAX_COMPARED: usize = 4;
/// Share by which a range, and so the step, differs at least where another lattice is looked for.
const LEAST_REACH: f64 = 1.0 / 64.0;

/// The blocks that samples are taken of.
fn sampled(n_blocks: usize) -> [usize; 3] {
    [0, n_blocks / 2, n_blocks.saturating_sub(1)]
}

/// The boxes of an array that [`Plan::keep_lattice`] reads.
#[cfg(feature = "unstable-backend")]
pub(crate) fn sampled_boxes<T: Real>(source: &dyn Source<T>) -> Vec<Block> {
    let blocks = Blocks::new(source);
    let boxes = sampled(blocks.n_blocks()).into_iter().filter(|&i| i < blocks.n_blocks()).map(|i| blocks.block(i));
    boxes.map(|(start, extents, _)| Block { start, extents }).collect()
}

/// Whether a value can have been written with this lattice: a multiple of the step, though not 0, which is one of any step;
/// or too large for it, as such values stay as they are. Others may just be out of its tolerance.
fn is_of_lattice<T: Real>(x: T, quantizer: &Quantizer<T>) -> bool {
    let mut integer = [T::default()];
    integers(&[x], quantizer, &mut integer);
    integer[0].fabs() >= T::from_f64(1.0) || x.fmul(quantizer.inv_step).fabs() >= T::MAX_QUANTUM
}

impl<T: Real> Plan<T> {
    /// The loosest of the relative bounds, or 0.
    fn relative(&self) -> f64 {
        let rel = |bound: &ErrorBound| if let ErrorBound::Rel(rel) = bound { *rel } else { 0.0 };
        self.also.iter().map(rel).fold(rel(&self.bound), f64::max)
    }

    /// Whether [`Self::keep_lattice`] looks at any value.
    pub(crate) fn searches_lattice(&self) -> bool {
        self.stable != Stable::Off && self.relative() > 0.0
    }

    /// Replaces the step of a relative bound by one near it if all values lie on that lattice already. So values keep
    /// their bits although the range of restored values differs from that of the original ones. `all` says whether
    /// something holds for any run of values.
    pub(crate) fn keep_lattice(
        &mut self,
        source: &dyn Source<T>,
        stats: &Stats<T>,
        all: impl Fn(&(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool>,
    ) -> Result<()> {
        let (Some((lo, hi)), Some(step)) = (stats.range, self.step) else { return Ok(()) };
        if !self.searches_lattice() {
            return Ok(());
        }
        let rel = self.relative();
        // Both ends of the range are off by the bound at most.
        let reach = (4.0 * rel).clamp(LEAST_REACH, 0.5);
        let mut candidates: Vec<Quantizer<T>> = Quantizer::lattice_steps(self.abs_bound, reach)
            .into_iter()
            .filter_map(|step| Quantizer::on_lattice(step, self.abs_bound))
            .filter(|candidate| [lo, hi].into_iter().all(|x| candidate.snap(x) == x))
            .collect();
        // Candidates on which none of these values lies, but that refuse them all.
        let mut unproved = candidates.clone();
        let prove = |unproved: &mut Vec<Quantizer<T>>, values: &[T]| {
            unproved.retain(|candidate| !values.iter().any(|x| is_of_lattice(*x, candidate)));
        };
        prove(&mut unproved, &[lo, hi]);
        let blocks = Blocks::new(source);
        for i in sampled(blocks.n_blocks()) {
            if candidates.is_empty() {
                return Ok(());
            }
            let counts = |x: &&T| x.fabs() > step && self.fills.iter().all(|fill| fill.bits() != x.bits());
            let first = |_: usize, values: &[T]| -> Vec<T> {
                values.iter().filter(counts).take(BLOCK_SAMPLES).copied().collect()
            };
            let (samples, _) = blocks.map(i, &first)?;
            candidates.retain(|candidate| samples.iter().all(|x| candidate.snap(*x) == *x));
            prove(&mut unproved, &samples);
        }
        // A few values may be refused by a lattice that they have never been on.
        candidates.retain(|candidate| unproved.iter().all(|other| other.step != candidate.step));
        for candidate in candidates.iter().take(MAX_COMPARED) {
            let lie = |values: &[T]| {
                let mut snapped = [T::default(); RUN];
                values.chunks(RUN).all(|xs| {
                    let snapped = &mut snapped[..xs.len()];
                    snap(xs, &self.fills, candidate, snapped);
                    xs.iter().zip(snapped).all(|(x, y)| *x == *y || x.is_nan())
                })
            };
            if all(&lie)? {
                self.step = Some(candidate.step);
                return Ok(());
            }
        }
        Ok(())
    }
}
