//! An independent check of round trips: exact arithmetic, none of Pumice's own code.
//!
//! Whether |x - y| <= e is decided without rounding. Every value is exact as f64; the difference of two of them is, by
//! Knuth's two-sum, exactly s + t with s the rounded difference. Rounding is monotone, so s < e implies |x - y| <= e and
//! s > e the contrary; only for s = e does the sign of t decide.

use crate::Float;
use std::ops::Range;

/// Checks every value of a round trip: non-finite values and `fills` bit for bit, all others within `bound`, or bit for
/// bit as well if it is 0. The error names the first value that fails.
pub fn verify<T: Float>(original: &[T], restored: &[T], bound: f64, fills: &[f64]) -> Result<(), String> {
    if original.len() != restored.len() {
        return Err(format!("{} values became {}", original.len(), restored.len()));
    }
    let fills: Vec<u64> = fills.iter().map(|fill| T::from_f64(*fill).to_bits_u64()).collect();
    let fails = |(_, (x, y)): &(usize, (&T, &T))| {
        let same = x.to_bits_u64() == y.to_bits_u64();
        let must_be_same = bound == 0.0 || !x.to_f64().is_finite() || fills.contains(&x.to_bits_u64());
        !same && (must_be_same || !is_within(x.to_f64(), y.to_f64(), bound))
    };
    match original.iter().zip(restored).enumerate().find(fails) {
        None => Ok(()),
        Some((i, (x, y))) => {
            let (a, b) = (x.to_bits_u64(), y.to_bits_u64());
            Err(format!("value {i}: {x:?} ({a:#x}) became {y:?} ({b:#x}), bound {bound:e}"))
        }
    }
}

/// Whether |x - y| <= bound in exact arithmetic; false if one of them is not finite.
pub fn is_within(x: f64, y: f64, bound: f64) -> bool {
    let s = x - y;
    let x_part = s + y;
    let y_part = x_part - s;
    let t = (x - x_part) + (y_part - y);
    let (s, t) = if s < 0.0 { (-s, -t) } else { (s, t) };
    s < bound || (s == bound && t <= 0.0)
}

/// Whether |x - y| <= e |x| in exact arithmetic, for e below 1; false if one of them is not finite.
pub fn is_within_share(x: f64, y: f64, e: f64) -> bool {
    if !x.is_finite() || !y.is_finite() || x == 0.0 || y == 0.0 || (x < 0.0) != (y < 0.0) {
        return x == y;
    }
    let ((mx, ex), (my, ey), (me, ee)) = (parts(x), parts(y), parts(e));
    if (ex - ey).abs() > 70 {
        return false;
    }
    let least = ex.min(ey);
    let difference = ((mx << (ex - least)).abs_diff(my << (ey - least)), least);
    is_at_most(difference, (mx * me, ex + ee))
}

/// A number that is not 0 as mantissa and exponent of two: |x| = m 2^k.
fn parts(x: f64) -> (u128, i32) {
    let fraction = x.to_bits() & ((1 << 52) - 1);
    match (x.to_bits() >> 52 & 0x7ff) as i32 {
        0 => (fraction.into(), -1074),
        exponent => ((fraction | 1 << 52).into(), exponent - 1075),
    }
}

/// Whether a 2^k <= b 2^l.
fn is_at_most((a, k): (u128, i32), (b, l): (u128, i32)) -> bool {
    if a == 0 || b == 0 {
        return a == 0;
    }
    // Both with their leading bit at the top.
    let (a, k) = (a << a.leading_zeros(), k - a.leading_zeros() as i32);
    let (b, l) = (b << b.leading_zeros(), l - b.leading_zeros() as i32);
    (k, a) <= (l, b)
}

/// As [`verify`], with the bound |x - y| <= e |x|, and besides |x - y| <= `abs`.
pub fn verify_share<T: Float>(original: &[T], restored: &[T], e: f64, abs: f64, fills: &[f64]) -> Result<(), String> {
    verify(original, restored, abs, fills)?;
    let is_broken = |(x, y): &(&T, &T)| {
        let (x, y) = (x.to_f64(), y.to_f64());
        x.is_finite() && !is_within_share(x, y, e)
    };
    match original.iter().zip(restored).position(|pair| is_broken(&pair)) {
        None => Ok(()),
        Some(i) => Err(format!("value {i}: {:?} became {:?}, bound {e:e} of it", original[i], restored[i])),
    }
}

/// The bits of all values, as bytes to hash or compare.
pub fn bits<T: Float>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| value.put_le_bytes(&mut bytes));
    bytes
}

/// The values that little-endian bytes hold: the inverse of [`bits`].
pub fn values<T: Float>(bytes: &[u8]) -> Vec<T> {
    let value = |b: &[u8]| T::from_bits_u64(b.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
    bytes.chunks_exact(size_of::<T>()).map(value).collect()
}

/// The values of a region of an array in C order, one by one.
pub fn cut<T: Copy>(data: &[T], shape: &[usize], region: &[Range<usize>]) -> Vec<T> {
    offsets(shape, region).into_iter().map(|at| data[at]).collect()
}

/// Writes the values of a box, in C order, into the array.
pub fn paste<T: Copy>(part: &[T], data: &mut [T], shape: &[usize], region: &[Range<usize>]) {
    offsets(shape, region).into_iter().zip(part).for_each(|(at, value)| data[at] = *value);
}

/// Where the values of a box are in the array.
fn offsets(shape: &[usize], region: &[Range<usize>]) -> Vec<usize> {
    // Other ranges may be beyond all bounds then.
    if region.iter().any(Range::is_empty) {
        return Vec::new();
    }
    let mut offsets = vec![0];
    for (range, extent) in region.iter().zip(shape) {
        offsets = offsets.iter().flat_map(|at| range.clone().map(move |i| at * extent + i)).collect();
    }
    offsets
}

/// The most bytes that a stream of `raw_bytes` of values may take.
pub fn max_stream_bytes(raw_bytes: usize) -> usize {
    raw_bytes + raw_bytes / 1000 + 128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_exact() {
        assert!(is_within(1.0, 0.5, 0.5));
        assert!(!is_within(1.0, 0.5_f64.next_down(), 0.5));
        // The difference rounds to the bound but exceeds it, then falls short of it.
        assert!(!is_within(1.0, -1e-20, 1.0));
        assert!(is_within(1.0, 1e-20, 1.0));
        assert!(!is_within(-1.0, 1e-20, 1.0));
        assert!(is_within(5e-324, 0.0, 5e-324));
        assert!(!is_within(f64::MAX, -f64::MAX, f64::MAX));
        assert!(!is_within(f64::NAN, 0.0, 1.0));
        assert!(!is_within(0.0, f64::INFINITY, 1.0));
    }

    #[test]
    fn shares_are_exact() {
        assert!(is_within_share(1.0, 0.5, 0.5) && is_within_share(-1.0, -1.5, 0.5) && is_within_share(0.0, -0.0, 0.5));
        assert!(!is_within_share(1.0, 0.5_f64.next_down(), 0.5) && !is_within_share(0.0, 5e-324, 0.5));
        assert!(
            !is_within_share(1.0, -1.0, 0.5)
                && !is_within_share(1.0, 1e300, 0.5)
                && !is_within_share(5e-324, 1e-323, 0.5)
        );
        assert!(is_within_share(1e-310, 1.0001e-310, 1e-3) && !is_within_share(1e-310, 1.01e-310, 1e-3));
    }

    #[test]
    fn bytes_are_little_endian() {
        assert_eq!(values::<f32>(&[0, 0, 128, 63, 0, 0, 0, 64, 9]), [1.0, 2.0]);
        assert_eq!(values::<f64>(&bits(&[-0.1, f64::MAX])), [-0.1, f64::MAX]);
    }

    #[test]
    fn bits_count_where_they_must() {
        let nan = f32::from_bits(0x7fc0_0001);
        assert!(verify(&[nan, 1.0], &[nan, 1.25], 0.25, &[]).is_ok());
        assert!(verify(&[nan], &[f32::NAN], 0.25, &[]).is_err());
        assert!(verify(&[f32::INFINITY], &[f32::MAX], 1e300, &[]).is_err());
        assert!(verify(&[1.0_f32], &[f32::NAN], 1e300, &[]).is_err());
        assert!(verify(&[-0.0_f64], &[0.0], 0.0, &[]).is_err());
        assert!(verify(&[-0.0_f64], &[0.0], 1e-300, &[]).is_ok());
        assert!(verify(&[1.0_f64, 2.0], &[1.0, 2.1], 0.5, &[2.0]).is_err());
        assert!(verify(&[1.0_f64], &[1.0, 2.0], 0.5, &[]).is_err());
    }

    #[test]
    fn cut_takes_a_box() {
        let data: Vec<u32> = (0..24).collect();
        assert_eq!(cut(&data, &[2, 3, 4], &[1..2, 0..2, 1..3]), [13, 14, 17, 18]);
        assert_eq!(cut(&data[..1], &[], &[]), [0]);
        assert!(cut(&data, &[2, 3, 4], &[0..2, 1..1, 0..4]).is_empty());
    }
}
