//! One pass over all values: counts of each kind, moments, and how many bits of the significand are in use.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::codec::Element;
use crate::error::Result;
use crate::exec::{Workers, parallel};
use crate::io::Source;
use crate::num::DType;
use crate::plan::passes::Blocks;
use crate::plan::stats::Stats;

/// Properties of the values. "Values" alone means finite values that are not fill values.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Least value; NaN if there is none.
    pub min: f64,
    /// Greatest value; NaN if there is none.
    pub max: f64,
    /// Mean; NaN if there are no values.
    pub mean: f64,
    /// Standard deviation (of the population); NaN if there are no values.
    pub std_dev: f64,
    /// Number of values: finite, and no fill values.
    pub n_counted: u64,
    /// NaN of any bits, fill value or not.
    pub n_nan: u64,
    /// Positive infinities.
    pub n_pos_inf: u64,
    /// Negative infinities.
    pub n_neg_inf: u64,
    /// Zeros of either sign.
    pub n_zero: u64,
    /// Negative zeros.
    pub n_neg_zero: u64,
    /// Values closer to zero than the least normal number.
    pub n_subnormal: u64,
    /// Values that are integers.
    pub n_integer: u64,
    /// Fill values that were found or given, with the number of times each occurs.
    pub fills: Vec<(f64, u64)>,
    /// Most significant bits that any value has: the length of its significand without trailing zeros.
    pub significant_bits: u32,
    /// All values are multiples of two to this power; `None` if all are zero or there are none.
    pub quantum_log2: Option<i32>,
}

impl Profile {
    /// Whether there are values, and all of them are the same.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }

    /// Whether there are values, and all of them are integers.
    pub fn is_integer(&self) -> bool {
        self.n_counted > 0 && self.n_integer == self.n_counted
    }

    /// Bits to number all multiples of the quantum within the range: the most that a value takes losslessly without
    /// prediction. `None` if there is no quantum.
    pub fn lattice_bits(&self) -> Option<f64> {
        let steps = (self.max - self.min) / 2_f64.powi(self.quantum_log2?);
        Some((steps + 1.0).log2())
    }
}

/// The profile of a block, or of several.
#[derive(Clone)]
struct Tally {
    profile: Profile,
    /// Sum of squared distances from the mean.
    squares: f64,
}

/// Scans all values; `progress` is called with the number of bytes done so far.
pub(super) fn scan<T: Element>(
    source: &dyn Source<T>,
    stats: &Stats<T>,
    workers: &Workers,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Profile> {
    let blocks = Blocks::new(source);
    let done = AtomicU64::new(0);
    let mut total = Tally::new(stats);
    let work = |i: usize, tally: &mut Option<Tally>| {
        let (found, n_bytes) = blocks.map(i, &|_, values: &[T]| Tally::of(values, stats))?;
        *tally = Some(found);
        progress(done.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes);
        Ok(())
    };
    // In order of blocks, so that the rounding of sums does not depend on the number of threads.
    parallel::ordered(workers, blocks.n_blocks(), usize::MAX, work, |_, tally| {
        total.merge(tally.as_ref().expect("work was done"));
        Ok(())
    })?;
    let Tally { mut profile, squares } = total;
    match profile.n_counted {
        0 => (profile.mean, profile.std_dev) = (f64::NAN, f64::NAN),
        n => profile.std_dev = (squares / n as f64).sqrt(),
    }
    Ok(profile)
}

impl Tally {
    fn new<T: Element>(stats: &Stats<T>) -> Self {
        let (min, max) = stats.range.map_or((f64::NAN, f64::NAN), |(lo, hi)| (lo.to_f64(), hi.to_f64()));
        let profile = Profile {
            min,
            max,
            mean: 0.0,
            std_dev: 0.0,
            n_counted: 0,
            n_nan: 0,
            n_pos_inf: 0,
            n_neg_inf: 0,
            n_zero: 0,
            n_neg_zero: 0,
            n_subnormal: 0,
            n_integer: 0,
            fills: stats.fills.iter().map(|fill| (fill.to_f64(), 0)).collect(),
            significant_bits: 0,
            quantum_log2: None,
        };
        Self { profile, squares: 0.0 }
    }

    fn of<T: Element>(values: &[T], stats: &Stats<T>) -> Self {
        let mut tally = Self::new(stats);
        let profile = &mut tally.profile;
        let (mantissa_bits, bias) = match T::DTYPE {
            DType::F32 => (23, 127),
            DType::F64 => (52, 1023),
        };
        let exponent_mask = 2 * bias + 1;
        let fills: Vec<u64> = stats.fills.iter().map(|fill| fill.to_bits_u64()).collect();
        let mut sum = 0.0;
        let is_counted = |value: &T| value.is_finite() && !fills.contains(&value.to_bits_u64());
        for value in values {
            let bits = value.to_bits_u64();
            let x = value.to_f64();
            profile.n_nan += u64::from(x.is_nan());
            profile.n_pos_inf += u64::from(x == f64::INFINITY);
            profile.n_neg_inf += u64::from(x == f64::NEG_INFINITY);
            if let Some(fill) = fills.iter().position(|fill| *fill == bits) {
                profile.fills[fill].1 += 1;
            }
            if !is_counted(value) {
                continue;
            }
            profile.n_counted += 1;
            sum += x;
            profile.n_integer += u64::from(x == x.trunc());
            if x == 0.0 {
                profile.n_zero += 1;
                profile.n_neg_zero += u64::from(x.is_sign_negative());
                continue;
            }
            let exponent = (bits >> mantissa_bits & exponent_mask) as i32;
            let mantissa = bits & ((1 << mantissa_bits) - 1);
            profile.n_subnormal += u64::from(exponent == 0);
            let significand = if exponent == 0 { mantissa } else { mantissa | 1 << mantissa_bits };
            let n_bits = u64::BITS - significand.leading_zeros() - significand.trailing_zeros();
            profile.significant_bits = profile.significant_bits.max(n_bits);
            let lowest = exponent.max(1) - bias as i32 - mantissa_bits + significand.trailing_zeros() as i32;
            profile.quantum_log2 = Some(profile.quantum_log2.map_or(lowest, |all| all.min(lowest)));
        }
        if profile.n_counted > 0 {
            profile.mean = sum / profile.n_counted as f64;
            let mean = profile.mean;
            let square = |value: &T| (value.to_f64() - mean) * (value.to_f64() - mean);
            tally.squares = values.iter().filter(|value| is_counted(value)).map(square).sum();
        }
        tally
    }

    fn merge(&mut self, other: &Self) {
        let (ours, theirs) = (&mut self.profile, &other.profile);
        let n = (ours.n_counted + theirs.n_counted).max(1) as f64;
        let share = theirs.n_counted as f64 / n;
        let distance = theirs.mean - ours.mean;
        self.squares += other.squares + distance * distance * share * ours.n_counted as f64;
        ours.mean += distance * share;
        ours.n_counted += theirs.n_counted;
        ours.n_nan += theirs.n_nan;
        ours.n_pos_inf += theirs.n_pos_inf;
        ours.n_neg_inf += theirs.n_neg_inf;
        ours.n_zero += theirs.n_zero;
        ours.n_neg_zero += theirs.n_neg_zero;
        ours.n_subnormal += theirs.n_subnormal;
        ours.n_integer += theirs.n_integer;
        ours.significant_bits = ours.significant_bits.max(theirs.significant_bits);
        ours.quantum_log2 = match (ours.quantum_log2, theirs.quantum_log2) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        ours.fills.iter_mut().zip(&theirs.fills).for_each(|(a, b)| a.1 += b.1);
    }
}
