//! Limits on the errors of single values, which result from the bounds of an array and of boxes of it, and their check.
//!
//! **Proof that the check suffices.** For e of at least 2^-60 let e' = fl(e (1 - 2^-20)) and let d be |x - x'| and p
//! be e'|x|, both rounded to binary64. Values below 2^-500 are first multiplied by 2^540, which is exact, so that p is
//! a normal number. Then d <= p implies |x - x'| <= d (1 + 2^-52) <= p (1 + 2^-52) <= e|x| (1 - 2^-20) (1 + 2^-50), and
//! that is below e|x|. For the absolute part, d <= fl(a (1 - 2^-20)) implies |x - x'| <= a in the same way where these are
//! normal numbers; where they are not, the subtraction is exact. NaN fails every comparison, and a d that is infinite is
//! refused, since p may be.

use std::ops::Range;

use super::config::ErrorBound;
use crate::grid::Block;
use crate::num::Real;

/// A box of the array and the bound that holds in it, in addition to that of the whole array.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Region {
    /// Positions along each axis.
    pub ranges: Vec<Range<usize>>,
    /// The bound. A relative one refers to the range of the whole array.
    pub bound: ErrorBound,
}

/// A region whose bound is resolved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BoxLimit {
    pub(crate) block: Block,
    pub(crate) bound: ErrorBound,
    pub(crate) limit: Limit,
}

impl BoxLimit {
    pub(crate) fn region(&self) -> Region {
        Region { ranges: self.block.ranges(), bound: self.bound }
    }
}

/// What must hold for a value x: |x - x'| <= min(abs, pointwise · |x|). Where there is no such bound, the part is
/// infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// 0 if every bit must be kept.
    pub(crate) abs: f64,
    pub(crate) pointwise: f64,
}

/// Smaller factors ask for the value itself.
const LEAST_POINTWISE: f64 = 1.0 / (1_u64 << 60) as f64;
/// Share of a limit that is not used.
const MARGIN: f64 = 1.0 / (1 << 20) as f64;
/// 2^-500 and 2^540.
const TINY: f64 = f64::from_bits((1023 - 500) << 52);
const ENLARGE: f64 = f64::from_bits((1023 + 540) << 52);

impl Limit {
    pub(crate) const LOSSLESS: Self = Self { abs: 0.0, pointwise: f64::INFINITY };

    /// The limit of a bound whose absolute value is `abs`.
    pub(crate) fn new(bound: ErrorBound, abs: f64) -> Self {
        match bound {
            ErrorBound::PwRel(e) => Self { abs: f64::INFINITY, pointwise: e },
            _ => Self { abs, pointwise: f64::INFINITY },
        }
    }

    /// The limit that holds where both hold.
    pub(crate) fn meet(self, other: Self) -> Self {
        let both = Self { abs: self.abs.min(other.abs), pointwise: self.pointwise.min(other.pointwise) };
        if both.is_lossless() { Self::LOSSLESS } else { both }
    }

    pub(crate) fn is_lossless(&self) -> bool {
        self.abs == 0.0 || self.pointwise < LEAST_POINTWISE
    }

    pub(crate) fn is_pointwise(&self) -> bool {
        self.pointwise.is_finite() && !self.is_lossless()
    }

    /// The test that restored values have to pass.
    pub(crate) fn check(&self) -> Check {
        Check { abs: self.abs * (1.0 - MARGIN), pointwise: self.pointwise * (1.0 - MARGIN) }
    }
}

/// A [`Limit`] less its margin; see the proof above.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    abs: f64,
    pointwise: f64,
}

impl Check {
    /// Whether there is no bound relative to each value.
    pub(crate) fn is_absolute(&self) -> bool {
        self.pointwise == f64::INFINITY
    }

    /// Whether the finite value `x`, which is no fill value, may become `y`. It is not 0 unless the check is absolute.
    #[inline(always)]
    pub(crate) fn accepts<T: Real>(&self, x: T, y: T) -> bool {
        let (x, y) = (x.to_f64(), y.to_f64());
        let (d, size) = ((x - y).abs(), x.abs());
        let scale = if size < TINY { ENLARGE } else { 1.0 };
        let is_in_share = self.is_absolute() | (d * scale <= self.pointwise * (size * scale));
        (d < f64::INFINITY) & (d <= self.abs) & is_in_share
    }
}

/// Whether `|x - y| <= e |x|`, exactly; `x` is finite.
pub(crate) fn is_within_share(x: f64, y: f64, e: f64) -> bool {
    if e < LEAST_POINTWISE || x == 0.0 {
        // All values other than x are farther away.
        return x == y;
    }
    let scale = if x.abs() < TINY { ENLARGE } else { 1.0 };
    let (x, y) = (x.abs() * scale, if x < 0.0 { -y } else { y } * scale);
    if !y.is_finite() {
        return false;
    }
    let (a, b) = if x >= y { (x, -y) } else { (y, -x) };
    let distance = a + b;
    let allowed = e * x;
    // Rounding is monotonic: rounded numbers that differ are in the order of the true ones.
    if distance != allowed || distance.is_infinite() {
        return distance < allowed;
    }
    let b_part = distance - a;
    let excess = (a - (distance - b_part)) + (b - b_part);
    excess <= e.mul_add(x, -allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact() {
        assert!(is_within_share(1.0, 0.5, 0.5) && is_within_share(-1.0, -1.5, 0.5));
        assert!(!is_within_share(1.0, 0.5_f64.next_down(), 0.5) && !is_within_share(1.0, 1.5_f64.next_up(), 0.5));
        assert!(is_within_share(0.0, -0.0, 0.5) && !is_within_share(0.0, 5e-324, 0.5));
        assert!(is_within_share(1e-310, 1.0001e-310, 1e-3) && !is_within_share(1e-310, 1.01e-310, 1e-3));
        assert!(!is_within_share(5e-324, 1e-323, 0.5) && is_within_share(5e-324, 1e-323, 1.0));
        assert!(!is_within_share(1.0, f64::NAN, 1.0) && !is_within_share(f64::MAX, f64::INFINITY, 1.0));
        assert!(!is_within_share(f64::MAX, -f64::MAX, 1.0) && !is_within_share(1.0, 1.0_f64.next_up(), 1e-30));
        // The rounded product 0.1 · 3 is above 0.3, and 0.1 itself is above 1/10.
        assert!(is_within_share(3.0, 3.3, 0.1_f64.next_up()) && is_within_share(3.0, 2.7, 0.1));
    }

    #[test]
    fn the_quick_check_never_accepts_more() {
        let mut state = 3_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 16
        };
        for i in 0..200_000 {
            let e = [1e-2, 1e-6, 1e-12, 0.9, 3.0][i % 5];
            let x = f64::from_bits(random() << 17 ^ random());
            let y = x * (1.0 + e * (1.0 + (random() % 64) as f64 * 1e-8 - 3e-7));
            let limit = Limit { abs: f64::INFINITY, pointwise: e };
            if x.is_finite() && x != 0.0 {
                assert!(!limit.check().accepts(x, y) || is_within_share(x, y, e), "{x:e} {y:e} {e:e}");
            }
            let (x, y) = (x as f32, y as f32);
            if x.is_finite() && x != 0.0 {
                let is_within = is_within_share(x.into(), y.into(), e);
                assert!(!limit.check().accepts(x, y) || is_within, "{x:e} {y:e} {e:e}");
            }
        }
    }
}
