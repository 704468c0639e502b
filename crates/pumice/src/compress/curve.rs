//! A bracketed secant method, which finds where a rising curve meets a level with few evaluations; and logarithms for
//! it that give the same bits on every platform.

use crate::num::logarithm;

/// Positions that differ by less than this count as equal; in log2 of a bound, this is 0.3 %.
pub(crate) const MIN_WIDTH: f64 = 1.0 / 256.0;
/// Lower levels count as this one.
pub(crate) const MIN_LEVEL: f64 = -64.0;

/// Points of a rising curve on both sides of the aim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bracket {
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Position and level of the nearest points.
    pub(crate) below: Option<(f64, f64)>,
    pub(crate) above: Option<(f64, f64)>,
    /// Slope of the curve, if it is known.
    pub(crate) slope: Option<f64>,
    /// How often the last point fell on the same side as the one before.
    n_same_side: u32,
    was_below: bool,
}

impl Bracket {
    pub(crate) fn new(low: f64, high: f64, slope: Option<f64>) -> Self {
        Self { low, high, below: None, above: None, slope, n_same_side: 0, was_below: false }
    }

    /// Records the value `y` of the curve at `x` and returns the next position to evaluate; `None` if none is left.
    /// `model_step` is the step to take while the slope is unknown.
    pub(crate) fn next(&mut self, x: f64, y: f64, aim: f64, model_step: f64) -> Option<f64> {
        let y = y.max(MIN_LEVEL);
        let is_below = y < aim;
        self.n_same_side = if is_below == self.was_below { self.n_same_side + 1 } else { 0 };
        self.was_below = is_below;
        let (same, other) =
            if is_below { (&mut self.below, &mut self.above) } else { (&mut self.above, &mut self.below) };
        let previous = (*same).or(*other);
        *same = Some((x, y));
        // The curve need not rise everywhere; the latest point takes precedence.
        if other.is_some_and(|(far, _)| (far > x) != is_below) {
            *other = None;
        }
        if let Some((x0, y0)) = previous
            && (x - x0).abs() > MIN_WIDTH / 2.0
            && (y - y0) / (x - x0) > 0.02
        {
            self.slope = Some((y - y0) / (x - x0));
        }
        if let (Some((x0, y0)), Some((x1, y1))) = (self.below, self.above) {
            let width = x1 - x0;
            if width < MIN_WIDTH {
                return None;
            }
            let share = if self.n_same_side >= 2 { 0.5 } else { ((aim - y0) / (y1 - y0)).clamp(0.05, 0.95) };
            return Some(x0 + share * width);
        }
        let step = match self.slope {
            // Limited, since two points far from the aim may happen to have nearly the same level.
            Some(slope) => ((aim - y) / slope).clamp(-8.0, 8.0),
            None => model_step.clamp(-16.0, 16.0),
        };
        // Rather past the aim than just short of it, so that the aim is soon between two points.
        let step = if self.n_same_side >= 2 { 2.0 * step } else { step };
        let next = if is_below { x + step.max(MIN_WIDTH) } else { x + step.min(-MIN_WIDTH) };
        let next = next.clamp(self.low, self.high);
        ((next - x).abs() > 1e-9).then_some(next)
    }
}

/// The logarithm of a number that is finite and not negative; that of 0 is negative infinity.
pub(crate) fn log2(x: f64) -> f64 {
    if x == 0.0 { f64::NEG_INFINITY } else { logarithm::log2(x) }
}

/// The power of two. What is out of range becomes 0 or infinity.
pub(crate) fn exp2(x: f64) -> f64 {
    logarithm::exp2::<14>(x.clamp(-1100.0, 1030.0), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_and_powers() {
        for i in -2000..2000 {
            let x = f64::from(i) * 0.37;
            assert!((exp2(x) / x.exp2() - 1.0).abs() < 1e-14, "{x}");
            assert!((log2(x.exp2()) - x).abs() <= 1e-14 * x.abs().max(1.0), "{x}");
        }
        for n in -1022..=1023 {
            assert_eq!(exp2(f64::from(n)), 2f64.powi(n));
            assert_eq!(log2(2f64.powi(n)), f64::from(n));
        }
        assert_eq!((log2(5e-324), log2(0.0)), (-1074.0, f64::NEG_INFINITY));
        assert_eq!((exp2(-1074.0), exp2(f64::NEG_INFINITY), exp2(1e9)), (5e-324, 0.0, f64::INFINITY));
    }

    #[test]
    fn brackets_close_in_on_the_aim() {
        for (aim, curve) in [
            (0.0, (|x: f64| 2.0 * x - 7.3) as fn(f64) -> f64),
            (0.3, |x| if x < 5.0 { 0.01 * x } else { x - 4.9 }),
            (-1.0, |x| (x - 3.0) * (x - 3.0) * (x - 3.0)),
        ] {
            let mut bracket = Bracket::new(-20.0, 20.0, None);
            let mut x = 10.0;
            let mut n = 0;
            while (curve(x) - aim).abs() > 0.02 {
                x = bracket.next(x, curve(x), aim, (aim - curve(x)) / 2.0).unwrap();
                n += 1;
                assert!(n < 20, "{bracket:?}");
            }
        }
    }

    #[test]
    fn a_jump_ends_the_search() {
        let mut bracket = Bracket::new(-20.0, 20.0, None);
        let mut x = 10.0;
        let mut n = 0;
        let curve = |x: f64| if x < 1.234 { -3.0 } else { 2.0 };
        while let Some(next) = bracket.next(x, curve(x), 0.0, -curve(x)) {
            x = next;
            n += 1;
        }
        assert!(n < 30, "{n}");
        assert!(bracket.below.unwrap().0 < 1.234 && bracket.above.unwrap().0 >= 1.234);
    }
}
