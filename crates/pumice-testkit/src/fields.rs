//! Deterministic arrays of every kind that a compressor meets.
//!
//! Only addition, multiplication and bit operations are used, no library function whose last bit depends on the system:
//! golden files and encoder hashes are made of these values.

use crate::{Float, Rng};

/// A kind of array; its seed gives one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// A few long waves.
    Smooth,
    /// Waves of all lengths, the shorter the weaker.
    Turbulence,
    /// Sum of random steps in C order.
    Walk,
    /// White noise in [-1, 1).
    Noise,
    /// Zero but for a few bumps.
    Sparse,
    /// One value.
    Constant,
    /// Zero everywhere.
    Zero,
    /// A slow ramp on an offset of 1e7.
    OffsetRamp,
    /// Parabolas: second differences vanish.
    Parabola,
    /// Three components in turn, each smooth at an offset of its own.
    Interleaved,
    /// A wave of a little over two points, whose strength swells and fades.
    Oscillating,
    /// Constant pieces of any length, with a trace of noise.
    Steps,
    /// Smooth, with spikes of 1e30.
    Spikes,
    /// Magnitudes from 2^-60 to 2^60, of both signs.
    MixedMagnitudes,
    /// Subnormal values only.
    Subnormal,
    /// Smooth, with NaN of several payloads, infinities and -0.
    Specials,
    /// Smooth, with single infinities.
    Infinities,
    /// NaN of one payload everywhere.
    AllNan,
    /// Smooth, with patches of the fill value 1e20.
    Patches,
    /// Smooth, with patches of 1e36, -1e36 and single NaN.
    TwoFills,
    /// Smooth, with patches of 1e20 and of NaN.
    FillAndNan,
    /// Sum of random steps, with patches of 1e20 and of NaN.
    MaskedWalk,
    /// Sum of random steps, with patches of infinity and of NaN.
    InfiniteWalk,
    /// The first half smooth, the second random bits.
    HalfRandom,
    /// Random bits.
    AnyBits,
}

impl Field {
    /// Every kind.
    pub const ALL: [Field; 25] = [
        Field::Smooth,
        Field::Turbulence,
        Field::Walk,
        Field::Noise,
        Field::Sparse,
        Field::Constant,
        Field::Zero,
        Field::OffsetRamp,
        Field::Parabola,
        Field::Interleaved,
        Field::Oscillating,
        Field::Steps,
        Field::Spikes,
        Field::MixedMagnitudes,
        Field::Subnormal,
        Field::Specials,
        Field::Infinities,
        Field::AllNan,
        Field::Patches,
        Field::TwoFills,
        Field::FillAndNan,
        Field::MaskedWalk,
        Field::InfiniteWalk,
        Field::HalfRandom,
        Field::AnyBits,
    ];

    /// The array of this kind, shape and seed, in C order.
    pub fn generate<T: Float>(self, shape: &[usize], seed: u64) -> Vec<T> {
        let n = n_values(shape);
        let mut rng = Rng::new(seed);
        let mut each =
            |f: &mut dyn FnMut(usize, &mut Rng) -> f64| (0..n).map(|i| T::from_f64(f(i, &mut rng))).collect();
        match self {
            Field::Smooth => waves(shape, seed, 4, 2.0),
            Field::Turbulence => waves(shape, seed, 24, 40.0),
            Field::Walk => {
                let mut sum = 0.0;
                each(&mut |_, rng| {
                    sum += rng.signed();
                    sum
                })
            }
            Field::Noise => each(&mut |_, rng| rng.signed()),
            Field::Sparse => {
                let mut left = 0;
                each(&mut |_, rng| {
                    left = if rng.below(400) == 0 { 12 } else { usize::saturating_sub(left, 1) };
                    (left * left) as f64 * 0.01
                })
            }
            Field::Constant => each(&mut |_, _| 273.15),
            Field::Zero => each(&mut |_, _| 0.0),
            Field::OffsetRamp => each(&mut |i, rng| 1e7 + 0.25 * i as f64 + 0.1 * rng.unit()),
            Field::Parabola => each(&mut |i, _| 1e-4 * ((i % 2000) as f64 - 1000.0) * (i % 2000) as f64),
            Field::Interleaved => {
                each(&mut |i, rng| [0.0, 50.0, -20.0][i % 3] + wave(i as f64 / 900.0) + 1e-3 * rng.signed())
            }
            Field::Oscillating => {
                each(&mut |i, rng| wave(i as f64 * 0.47) * wave(i as f64 / 700.0) + 1e-3 * rng.signed())
            }
            Field::Steps => {
                let mut level = 0.0;
                each(&mut |_, rng| {
                    level = if rng.below(60) == 0 { 10.0 * rng.signed() } else { level };
                    level + 1e-4 * rng.signed()
                })
            }
            Field::Spikes => with_some(waves(shape, seed, 4, 2.0), &mut rng, 300, &[1e30, -1e30].map(T::from_f64)),
            Field::MixedMagnitudes => each(&mut |_, rng| rng.signed() * power_of_two(rng.below(121) as i32 - 60)),
            Field::Subnormal => (0..n).map(|_| subnormal(&mut rng)).collect(),
            Field::Specials => specials(waves(shape, seed, 4, 2.0), &mut rng),
            Field::Infinities => {
                let infinities = [f64::INFINITY, f64::NEG_INFINITY].map(T::from_f64);
                with_some(waves(shape, seed, 4, 2.0), &mut rng, 300, &infinities)
            }
            Field::AllNan => vec![nan(1); n],
            Field::Patches => patches(waves(shape, seed, 4, 2.0), &mut rng, &[1e20]),
            Field::TwoFills => {
                let values = patches(waves(shape, seed, 4, 2.0), &mut rng, &[1e36, -1e36]);
                with_some(values, &mut rng, 500, &[quiet_nan()])
            }
            Field::FillAndNan => patches(waves(shape, seed, 4, 2.0), &mut rng, &[1e20, f64::NAN]),
            Field::MaskedWalk => patches(Field::Walk.generate(shape, seed), &mut rng, &[1e20, f64::NAN]),
            Field::InfiniteWalk => patches(Field::Walk.generate(shape, seed), &mut rng, &[f64::INFINITY, f64::NAN]),
            Field::HalfRandom => {
                let mut values = waves(shape, seed, 4, 2.0);
                values[n / 2..].fill_with(|| T::from_bits_u64(rng.bits()));
                values
            }
            Field::AnyBits => (0..n).map(|_| T::from_bits_u64(rng.bits())).collect(),
        }
    }
}

/// The product of the extents, which may be beyond all bounds where one of them is 0.
fn n_values(shape: &[usize]) -> usize {
    if shape.contains(&0) { 0 } else { shape.iter().product() }
}

/// A wave of period 1 and range [-1, 1], smooth to the first derivative.
fn wave(t: f64) -> f64 {
    let u = t - t.floor();
    let bump = u * (1.0 - u);
    32.0 * bump * bump - 1.0
}

/// Plane waves with up to `max_periods` periods across each axis, weaker as they get shorter.
fn waves<T: Float>(shape: &[usize], seed: u64, n_waves: usize, max_periods: f64) -> Vec<T> {
    let mut rng = Rng::new(seed ^ 0x5EED);
    let all: Vec<(f64, f64, Vec<f64>)> = (1..=n_waves)
        .map(|k| {
            let periods = max_periods * k as f64 / n_waves as f64;
            let phase = rng.unit();
            let direction = shape.iter().map(|n| periods * rng.signed() / (*n).max(1) as f64).collect();
            (1.0 / k as f64, phase, direction)
        })
        .collect();
    let n = n_values(shape);
    let mut at = vec![0_usize; shape.len()];
    let mut values = Vec::with_capacity(n);
    while values.len() < n {
        let sum = all.iter().fold(0.0, |sum, (weight, phase, direction)| {
            let t = at.iter().zip(direction).fold(*phase, |t, (i, d)| t + *i as f64 * d);
            sum + weight * wave(t)
        });
        values.push(T::from_f64(sum));
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            if at[axis] < shape[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    values
}

/// Replaces about one value in `every` by one of `others`, and at least one.
fn with_some<T: Float>(mut values: Vec<T>, rng: &mut Rng, every: usize, others: &[T]) -> Vec<T> {
    let n = values.len();
    if n > 0 {
        (0..1 + n / every).for_each(|i| values[rng.below(n)] = others[i % others.len()]);
    }
    values
}

/// Replaces runs of about 40 values in 200 by the fill values in turn.
fn patches<T: Float>(mut values: Vec<T>, rng: &mut Rng, fills: &[f64]) -> Vec<T> {
    let n = values.len();
    for i in 0..n.div_ceil(200) {
        let start = rng.below(n);
        let end = n.min(start + 20 + rng.below(40));
        values[start..end].fill(T::from_f64(fills[i % fills.len()]));
    }
    values
}

fn specials<T: Float>(mut values: Vec<T>, rng: &mut Rng) -> Vec<T> {
    let n = values.len();
    let others = [
        quiet_nan(),
        nan(1),
        nan(0x1234),
        T::from_bits_u64(nan::<T>(7).to_bits_u64() | 1 << (T::BITS - 1)),
        T::from_f64(f64::INFINITY),
        T::from_f64(f64::NEG_INFINITY),
        T::from_f64(-0.0),
    ];
    (0..n.div_ceil(60)).for_each(|i| values[rng.below(n)] = others[i % others.len()]);
    values
}

/// The NaN that most programs write.
fn quiet_nan<T: Float>() -> T {
    nan(1 << (T::MANTISSA_BITS - 1))
}

/// The NaN with this payload.
fn nan<T: Float>(payload: u64) -> T {
    T::from_bits_u64(T::from_f64(f64::INFINITY).to_bits_u64() | payload)
}

fn subnormal<T: Float>(rng: &mut Rng) -> T {
    let sign = (rng.bits() & 1) << (T::BITS - 1);
    T::from_bits_u64(rng.bits() >> (64 - T::MANTISSA_BITS) | sign)
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_shape_and_is_repeatable() {
        for field in Field::ALL {
            for shape in [&[][..], &[0], &[1], &[3, 0, 2], &[7, 13, 5], &[2, 1, 2, 1, 3, 4]] {
                let values = field.generate::<f32>(shape, 3);
                assert_eq!(values.len(), shape.iter().product::<usize>(), "{field:?}");
                assert_eq!(crate::check::bits(&values), crate::check::bits(&field.generate::<f32>(shape, 3)));
                field.generate::<f64>(shape, 3);
            }
        }
    }

    #[test]
    fn fields_are_what_they_say() {
        let subnormal = Field::Subnormal.generate::<f32>(&[1000], 1);
        assert!(subnormal.iter().all(|v| !v.is_normal() && v.is_finite()));
        let specials = Field::Specials.generate::<f64>(&[2000], 1);
        assert!(specials.iter().filter(|v| v.is_nan()).count() > 10);
        assert!(specials.iter().any(|v| v.is_infinite()));
        let patches = Field::Patches.generate::<f32>(&[2000], 1);
        assert!((100..1000).contains(&patches.iter().filter(|v| **v == 1e20).count()));
        let smooth = Field::Smooth.generate::<f64>(&[50, 50], 1);
        assert!(smooth.windows(2).filter(|w| (w[1] - w[0]).abs() < 0.3).count() > 2400);
    }
}
