//! Differences in groups of 32: each group has a class by its mean magnitude, raw low bits, and a byte per difference
//! for the rest (docs/format.md, 9.3 to 9.5).
//!
//! Neighbouring differences have similar magnitudes. Since each class has its own Huffman code, coding adapts to the
//! data at the cost of one symbol per 32 values. Low bits of large differences are noise, so they are stored raw.

/// Number of differences in a group.
pub(crate) const GROUP: usize = 32;
/// Groups have no low bits if the sum of magnitudes is below 2 to this.
const PLAIN_EXPONENT: u32 = 8;
/// The byte of a wide difference.
pub(crate) const WIDE: u8 = 0;
/// The byte of 0.
pub(crate) const ZERO: u8 = 128;
/// Larger magnitudes count as this in the sum.
const MAX_MAGNITUDE: u32 = 1 << 26;

/// Number of low bits of a difference of this class.
#[inline(always)]
pub(crate) fn n_low_bits(class: u8) -> u32 {
    (u32::from(class.saturating_sub(1)) / 2).saturating_sub(PLAIN_EXPONENT - 1)
}

/// Size in bytes of the low bits of a group.
#[inline(always)]
pub(crate) fn low_bytes(class: u8) -> usize {
    n_low_bits(class) as usize * GROUP / 8
}

/// Splits a group: returns its class, and writes the byte of each difference, low bits to `low` and wide differences to
/// `wide`.
///
/// `low` has room for 4 bytes per difference and 8 more.
#[inline(always)]
pub(crate) fn split(group: &[i32; GROUP], bytes: &mut [u8; GROUP], low: &mut [u8], wide: &mut Vec<i32>) -> u8 {
    let mut sum = 0_u32;
    for d in group {
        sum += d.unsigned_abs().min(MAX_MAGNITUDE);
    }
    if sum == 0 {
        *bytes = [ZERO; GROUP];
        return 0;
    }
    let exponent = sum.ilog2();
    let half = (u64::from(sum) << 1 >> exponent) as u32 & 1;
    let class = (1 + 2 * exponent + half) as u8;
    let n_low = n_low_bits(class);
    let mut n_wide = 0_u32;
    for (byte, d) in bytes.iter_mut().zip(group) {
        let shifted = (d >> n_low).wrapping_add(i32::from(ZERO));
        let is_wide = (shifted as u32).wrapping_sub(1) >= 255;
        n_wide += u32::from(is_wide);
        *byte = if is_wide { WIDE } else { shifted as u8 };
    }
    if n_wide > 0 {
        wide.extend(group.iter().zip(bytes.iter()).filter(|(_, byte)| **byte == WIDE).map(|(d, _)| d));
    }
    if n_low > 0 {
        put_low_bits(group, n_low, low);
    }
    class
}

/// Writes the low bits of a group: first whole bytes of all differences, then the remaining bits, eight differences at
/// a time.
#[inline(always)]
fn put_low_bits(group: &[i32; GROUP], n_low: u32, low: &mut [u8]) {
    let mut at = 0;
    let mut shift = 0;
    while n_low - shift >= 8 {
        for (byte, d) in low[at..at + GROUP].iter_mut().zip(group) {
            *byte = (d >> shift) as u8;
        }
        at += GROUP;
        shift += 8;
    }
    let n_left = n_low - shift;
    if n_left > 0 {
        let mut bytes = [0; GROUP];
        for (byte, d) in bytes.iter_mut().zip(group) {
            *byte = (d >> shift) as u8 & ((1 << n_left) - 1);
        }
        for eight in bytes.as_chunks::<8>().0 {
            let packed = close_up(u64::from_le_bytes(*eight), n_left);
            low[at..at + 8].copy_from_slice(&packed.to_le_bytes());
            at += n_left as usize;
        }
    }
}

/// Packs eight fields of `n` bits, one per byte, without gaps.
#[inline(always)]
fn close_up(x: u64, n: u32) -> u64 {
    let x = x & 0x00ff_00ff_00ff_00ff | (x >> 8 & 0x00ff_00ff_00ff_00ff) << n;
    let x = x & 0x0000_ffff_0000_ffff | (x >> 16 & 0x0000_ffff_0000_ffff) << (2 * n);
    x & 0xffff_ffff | x >> 32 << (4 * n)
}

/// Inverse of [`close_up`]; ignores bits above the fields.
#[inline(always)]
fn spread(x: u64, n: u32) -> u64 {
    let four = (1_u64 << (4 * n)) - 1;
    let x = x & four | (x >> (4 * n) & four) << 32;
    let two = ((1_u64 << (2 * n)) - 1) * 0x0000_0001_0000_0001;
    let x = x & two | (x >> (2 * n) & two) << 16;
    let one = ((1_u64 << n) - 1) * 0x0001_0001_0001_0001;
    x & one | (x >> n & one) << 8
}

/// Inverse of [`split`], except for wide differences. `low` has the bytes of the low bits and 8 more.
#[inline(always)]
pub(crate) fn join(class: u8, bytes: &[u8; GROUP], low: &[u8], group: &mut [i32; GROUP]) {
    let n_low = n_low_bits(class);
    for (d, byte) in group.iter_mut().zip(bytes) {
        *d = (i32::from(*byte) - i32::from(ZERO)) << n_low;
    }
    if n_low == 0 {
        return;
    }
    let mut at = 0;
    let mut shift = 0;
    while n_low - shift >= 8 {
        for (d, byte) in group.iter_mut().zip(&low[at..at + GROUP]) {
            *d |= i32::from(*byte) << shift;
        }
        at += GROUP;
        shift += 8;
    }
    let n_left = n_low - shift;
    if n_left > 0 {
        let mut bytes = [0; GROUP];
        for eight in bytes.as_chunks_mut::<8>().0 {
            *eight = spread(u64::from_le_bytes(*low[at..].first_chunk().expect("8 more")), n_left).to_le_bytes();
            at += n_left as usize;
        }
        for (d, byte) in group.iter_mut().zip(&bytes) {
            *d |= i32::from(*byte) << shift;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::codebook::N_CLASSES;

    #[test]
    fn groups_of_every_magnitude_come_back() {
        for n_bits in 0..32 {
            let group: [i32; GROUP] = std::array::from_fn(|i| {
                let noise = (i as u32).wrapping_mul(0x9e37_79b1).rotate_left(i as u32);
                (noise as i32) >> (31 - n_bits)
            });
            let (mut bytes, mut low, mut wide) = ([0; GROUP], [0; GROUP * 4 + 8], Vec::new());
            let class = split(&group, &mut bytes, &mut low, &mut wide);
            assert!(usize::from(class) < N_CLASSES);
            let mut restored = [0; GROUP];
            join(class, &bytes, &low[..low_bytes(class) + 8], &mut restored);
            let mut wide = wide.into_iter();
            for ((restored, byte), d) in restored.into_iter().zip(bytes).zip(group) {
                assert_eq!(if byte == WIDE { wide.next().unwrap() } else { restored }, d, "{n_bits} bits");
            }
            assert_eq!(wide.next(), None);
        }
    }

    #[test]
    fn one_far_difference_is_wide() {
        let mut group = [1; GROUP];
        group[7] = i32::MIN;
        let (mut bytes, mut low, mut wide) = ([0; GROUP], [0; GROUP * 4 + 8], Vec::new());
        let class = split(&group, &mut bytes, &mut low, &mut wide);
        assert_eq!((wide, bytes[7]), (vec![i32::MIN], WIDE));
        assert_eq!(n_low_bits(class), 19);
    }

    #[test]
    fn fields_close_up_and_spread() {
        for n in 1..8 {
            let fields = 0x0102_0304_0507_fffe_u64 & (0x0101_0101_0101_0101 * ((1 << n) - 1));
            let closed = close_up(fields, n);
            assert!(n == 8 || closed >> (8 * n) == 0);
            assert_eq!(spread(closed | u64::MAX << (8 * n), n), fields);
        }
    }
}
