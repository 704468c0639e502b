//! How smooth data is, by the measures of cuSZ+: how much values a given distance apart differ (a madogram), and how often
//! they differ at all (the same with binary differences), which is what ends a run.
//!
//! Pairs are along one axis. For the order in which values are coded, which is what matters for runs, take the array as
//! one axis: `&[n], 0`.

use crate::array::Real;
use crate::codec::quant_codes;
use crate::config::{Bound, Config, Fill};
use crate::error::Result;
use crate::fpenv::DefaultFloats;
use crate::parallel::Workers;
use crate::plan::Plan;
use crate::quantize::Quantizer;
use crate::source::SliceSource;
use crate::stats;

/// The largest distance that the paper measures.
pub const MAX_LAG: usize = 200;

/// Pairs at each distance, at most; where there are more, they are drawn at random, by a generator that starts the same
/// each time.
const PAIRS: usize = 1 << 12;

/// The mean absolute difference of values at each distance 1, 2, … `max_lag` along an axis. Pairs with a value that is not
/// finite are left out; distances without any pair have NaN.
///
/// # Panics
/// If `shape` is not that of `values`, or has no such axis.
pub fn madogram<T: Real>(values: &[T], shape: &[usize], axis: usize, max_lag: usize) -> Vec<f64> {
    mean_over_pairs(values, shape, axis, max_lag, |a, b| {
        let difference = (a.to_f64() - b.to_f64()).abs();
        (a.is_finite() && b.is_finite()).then_some(difference)
    })
}

/// The share of pairs that differ at each distance 1, 2, … `max_lag` along an axis: 1 less this is the smoothness of
/// cuSZ+. At distance 1 it is how many runs there are for each symbol. Distances without any pair have NaN.
///
/// # Panics
/// If `shape` is not that of `symbols`, or has no such axis.
pub fn binary_variance<S: Copy + PartialEq>(symbols: &[S], shape: &[usize], axis: usize, max_lag: usize) -> Vec<f64> {
    mean_over_pairs(symbols, shape, axis, max_lag, |a, b| Some(f64::from(u8::from(a != b))))
}

/// The quantisation codes of an array at a bound, as cuSZ+ has them: 512 plus the difference from the prediction, and 512
/// where that is out of range. `None` where the bound is lossless or too fine to quantise.
///
/// # Errors
/// As for compressing with this bound.
pub fn quantisation_codes<T: Real>(values: &[T], shape: &[usize], bound: Bound) -> Result<Option<Vec<u16>>> {
    let source = SliceSource::new(values, shape)?;
    let stats = stats::scan(&source, Fill::Auto, &Workers::new(1)?, &|_| ())?;
    let plan = Plan::new(&Config::new(bound), shape, Some(&stats))?;
    let _floats = DefaultFloats::set();
    let quantizer = plan.step.and_then(|step| Quantizer::for_stream(step, plan.abs_bound));
    let of = |quantizer| quant_codes::QuantCodes::new(values, shape, &quantizer, &plan.fills).codes;
    Ok(if values.is_empty() { Some(Vec::new()) } else { quantizer.map(of) })
}

fn mean_over_pairs<S: Copy>(
    all: &[S],
    shape: &[usize],
    axis: usize,
    max_lag: usize,
    difference: impl Fn(S, S) -> Option<f64>,
) -> Vec<f64> {
    assert_eq!(all.len(), shape.iter().product::<usize>(), "the shape is that of the values");
    let (extent, stride) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let mut random = 1_u64;
    let mean = |lag: usize| {
        // Pairs by number: along the axis slowest but for what is in front of it.
        let n_pairs = extent.saturating_sub(lag) * stride * if extent == 0 { 0 } else { all.len() / (extent * stride) };
        let (mut sum, mut n) = (0.0, 0_u32);
        for i in 0..n_pairs.min(PAIRS) {
            let pair = if n_pairs <= PAIRS { i } else { below(&mut random, n_pairs) };
            let per_line = (extent - lag) * stride;
            let first = pair / per_line * extent * stride + pair % per_line;
            if let Some(difference) = difference(all[first], all[first + lag * stride]) {
                sum += difference;
                n += 1;
            }
        }
        if n == 0 { f64::NAN } else { sum / f64::from(n) }
    };
    (1..=max_lag).map(mean).collect()
}

/// A random number below `n` (SplitMix64).
fn below(state: &mut u64, n: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(z ^ (z >> 31)) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_ramp() {
        let ramp: Vec<f32> = (0..1000).map(|i| i as f32 * 0.5).collect();
        assert_eq!(madogram(&ramp, &[1000], 0, 3), [0.5, 1.0, 1.5]);
        assert_eq!(binary_variance(&ramp, &[1000], 0, 2), [1.0, 1.0]);
        // Ten rows of a hundred: along axis 0 a step is 50.
        assert_eq!(madogram(&ramp, &[10, 100], 0, 2), [50.0, 100.0]);
        assert_eq!(madogram(&ramp, &[10, 100], 1, 1), [0.5]);
        assert_eq!(madogram(&ramp, &[2, 5, 100], 1, 2), [50.0, 100.0]);
        assert!(madogram(&ramp, &[10, 100], 0, 10)[9].is_nan());
        assert!(madogram::<f32>(&[], &[0], 0, 1)[0].is_nan());
    }

    #[test]
    fn of_runs() {
        let runs: Vec<u16> = (0..4000).map(|i| i / 10 % 2).collect();
        let variance = binary_variance(&runs, &[4000], 0, 20);
        assert!((variance[0] - 0.1).abs() < 1e-3 && variance[9] == 1.0 && variance[19] == 0.0);
    }

    #[test]
    fn samples_are_near_the_truth_and_repeat() {
        let wave: Vec<f64> = (0..200_000).map(|i| f64::from(i % 1000)).collect();
        let found = madogram(&wave, &[200_000], 0, 1);
        // One pair in a thousand differs by 999, all others by 1.
        assert!((found[0] - 1.998).abs() < 1.5);
        assert_eq!(found, madogram(&wave, &[200_000], 0, 1));
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        assert_eq!(madogram(&[1.0_f32, f32::NAN, 2.0, 4.0], &[4], 0, 2), [2.0, 1.0]);
    }

    #[test]
    fn codes_are_smoother_than_values() {
        let values: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
        let codes = quantisation_codes(&values, &[10_000], Bound::Rel(1e-2)).unwrap().unwrap();
        assert!(binary_variance(&codes, &[10_000], 0, 1)[0] < binary_variance(&values, &[10_000], 0, 1)[0]);
        assert!(quantisation_codes(&values, &[10_000], Bound::Lossless).unwrap().is_none());
        assert!(quantisation_codes(&values, &[3], Bound::Rel(1e-2)).is_err());
    }
}
