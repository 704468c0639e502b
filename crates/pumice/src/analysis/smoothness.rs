//! Madograms: how much values differ with their distance (Tian et al., cuSZ+, section III).

use crate::codec::Element;

/// Distances that are measured, as far as the sample reaches.
const LAGS: [usize; 15] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 96, 128, 192];

/// How much values differ along one axis.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AxisMadogram {
    /// The axis, 0 being the slowest.
    pub axis: usize,
    /// Distances and differences, ascending.
    pub points: Vec<MadogramPoint>,
}

/// How much values differ at one distance.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MadogramPoint {
    /// The distance.
    pub lag: usize,
    /// Mean absolute difference over the range of values; uniform white noise has 1/3.
    pub difference: f64,
}

/// Sums of differences.
pub(super) struct Madograms {
    /// For each axis and lag, the sum of differences and their number.
    sums: Vec<[(f64, u64); LAGS.len()]>,
}

impl Madograms {
    pub(super) fn new(rank: usize) -> Self {
        Self { sums: vec![[(0.0, 0); LAGS.len()]; rank] }
    }

    /// Adds a box of values, without fill values and those that are not finite.
    pub(super) fn add<T: Element>(&mut self, values: &[T], extents: &[usize], fills: &[T]) {
        let as_counted = |value: &T| {
            let is_fill = fills.iter().any(|fill| fill.to_bits_u64() == value.to_bits_u64());
            if is_fill || !value.is_finite() { f64::NAN } else { value.to_f64() }
        };
        let values: Vec<f64> = values.iter().map(as_counted).collect();
        for (axis, sums) in self.sums.iter_mut().enumerate() {
            let stride: usize = extents[axis + 1..].iter().product();
            for (lag, (sum, n)) in LAGS.iter().zip(sums).take_while(|(lag, _)| **lag < extents[axis]) {
                for line in values.chunks(stride * extents[axis]) {
                    for (a, b) in line.iter().zip(&line[lag * stride..]) {
                        let difference = (a - b).abs();
                        if difference.is_finite() {
                            *sum += difference;
                            *n += 1;
                        }
                    }
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let pairs = self.sums.iter_mut().flatten().zip(other.sums.iter().flatten());
        pairs.for_each(|(ours, theirs)| {
            ours.0 += theirs.0;
            ours.1 += theirs.1;
        });
    }

    /// The mean differences, in units of `range`.
    pub(super) fn finish(&self, range: f64) -> Vec<AxisMadogram> {
        let range = if range > 0.0 { range } else { 1.0 };
        let point = |(lag, (sum, n)): (&usize, &(f64, u64))| {
            (*n > 0).then(|| MadogramPoint { lag: *lag, difference: sum / *n as f64 / range })
        };
        let of_axis = |(axis, sums): (usize, &[(f64, u64); LAGS.len()])| AxisMadogram {
            axis,
            points: LAGS.iter().zip(sums).filter_map(point).collect(),
        };
        self.sums.iter().enumerate().map(of_axis).filter(|madogram| !madogram.points.is_empty()).collect()
    }
}
