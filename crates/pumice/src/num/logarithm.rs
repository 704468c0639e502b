//! Logarithms and powers of two by a fixed sequence of IEEE operations, since library functions differ between
//! machines. [`exp2`] is specified in docs/format.md, 14.1; only the encoder uses [`log2`].

/// 1.5 · 2^52: adding it rounds to an integer, which is then in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// 1/k!, k from 0: the series of the exponential function.
const EXPONENTIAL: [f64; 14] = [
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5040.0,
    1.0 / 40320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
    1.0 / 6_227_020_800.0,
];

/// Largest magnitude of the exponent that `centre` adds.
pub(crate) const MAX_CENTRE: i64 = 1100;
/// Results are at least 2^-1200 and at most 2^1100 before they are rounded.
const EXPONENTS: (f64, f64) = (-1200.0, 1100.0);

/// An approximation of 2^(y + centre). If y is NaN or the result is far beyond the range of binary64, y counts as 0.
/// `N_TERMS` is the number of terms of the series: 9 give a relative error of 1e-10, 14 all bits but the last few.
#[inline(always)]
pub(crate) fn exp2<const N_TERMS: usize>(y: f64, centre: i64) -> f64 {
    let shift = centre as f64;
    let y = if (y >= EXPONENTS.0 - shift) & (y <= EXPONENTS.1 - shift) { y } else { 0.0 };
    let rounded = y + MAGIC;
    let t = (y - (rounded - MAGIC)) * std::f64::consts::LN_2;
    let mut power = EXPONENTIAL[N_TERMS - 1];
    for term in (0..N_TERMS - 1).rev() {
        power = power * t + EXPONENTIAL[term];
    }
    // Two factors, since a single one could overflow although the result does not.
    let exponent = rounded.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add_signed(centre + 2048);
    let half = exponent >> 1;
    power * power_of_two(half) * power_of_two(exponent - half)
}

/// 2^(k - 1024).
#[inline(always)]
fn power_of_two(k: u64) -> f64 {
    f64::from_bits(k.wrapping_sub(1) << FRACTION_BITS)
}

/// log2(x) of a positive, finite number, correct except for the last few bits.
#[inline(always)]
pub(crate) fn log2(x: f64) -> f64 {
    /// Bits of the square root of 1/2: fractions are taken from there to twice that.
    const ROOT: u64 = 0x3fe6_a09e_667f_3bcd;
    let is_subnormal = x < f64::MIN_POSITIVE;
    let x = if is_subnormal { x * (1_u64 << 54) as f64 } else { x };
    let bits = x.to_bits().wrapping_sub(ROOT).wrapping_add(1 << 63);
    let exponent = f64::from_bits(MAGIC.to_bits() + (bits >> FRACTION_BITS)) - MAGIC - 2048.0;
    let fraction = f64::from_bits((bits & ((1 << FRACTION_BITS) - 1)) + ROOT);
    let s = (fraction - 1.0) / (fraction + 1.0);
    let square = s * s;
    let mut sum = 1.0 / 25.0;
    for k in (0..12).rev() {
        sum = sum * square + 1.0 / (2 * k + 1) as f64;
    }
    let exponent = if is_subnormal { exponent - 54.0 } else { exponent };
    exponent + 2.0 * s * sum * std::f64::consts::LOG2_E
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_accurate() {
        for i in -10_730..10_230 {
            let y = f64::from(i) / 10.0;
            let x = y.exp2();
            if x < f64::MIN_POSITIVE {
                continue;
            }
            assert!((log2(x) - y).abs() <= 1e-15 * y.abs().max(1.0), "{y}");
            for centre in [-900, 0, 77] {
                let found = exp2::<14>(y - centre as f64, centre);
                assert!((found / x - 1.0).abs() < 1e-12, "{y} {found:e} {x:e}");
                assert!((exp2::<9>(y - centre as f64, centre) / x - 1.0).abs() < 1e-9);
            }
        }
        assert_eq!(log2(f64::from_bits(1)), -1074.0);
        assert_eq!(exp2::<14>(-1074.0, 0), f64::from_bits(1));
        assert_eq!((log2(1.0), log2(1024.0), exp2::<14>(3.0, -5)), (0.0, 10.0, 0.25));
    }

    #[test]
    fn anything_has_a_result() {
        for y in [f64::NAN, f64::INFINITY, -1e300, 5000.0] {
            assert_eq!(exp2::<9>(y, 3), 8.0);
        }
        assert_eq!(exp2::<9>(1100.0, 0), f64::INFINITY);
        assert_eq!(exp2::<9>(-1200.0, 0), 0.0);
        assert!(exp2::<9>(1.0, MAX_CENTRE).is_infinite() && exp2::<9>(1.0, -MAX_CENTRE) == 0.0);
    }
}
