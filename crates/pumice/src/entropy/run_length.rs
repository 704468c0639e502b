//! Run-length coding: runs of equal symbols become two sequences, values and lengths, each with a Huffman code of its
//! own (docs/format.md, 8.4).
//!
//! There is one value for each run. The length of a run less 1 is a number in base 128, least significant digit first;
//! all digits but the last have 128 added. So lengths have an alphabet of 256 symbols, and most runs need one of them.
//! The last digit of a run is below 128, so a GPU can find the starts of runs by prefix sums.

use crate::error::{Error, Result};
use crate::num::simd::{self, Kernel};

/// The base of the digits of lengths; all digits but the last have it added.
const BASE: u64 = 128;

/// A symbol.
pub(crate) trait Symbol: Copy + PartialEq + Default {}
impl Symbol for u8 {}
impl Symbol for u16 {}

/// The number of runs.
#[cfg(any(test, feature = "unstable-research"))]
pub(crate) fn n_runs<T: Symbol>(symbols: &[T]) -> usize {
    struct Count<'a, T>(&'a [T]);
    impl<T: Symbol> Kernel for Count<'_, T> {
        type Output = usize;

        #[inline(always)]
        fn run(self) -> usize {
            let Some(after_first) = self.0.get(1..) else { return 0 };
            // Sums that fit into the type of a symbol are computed in vectors of it.
            let pairs = self.0.chunks(BLOCK).zip(after_first.chunks(BLOCK));
            1 + pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| u8::from(a != b)).sum::<u8>() as usize).sum::<usize>()
        }
    }
    simd::run(Count(symbols))
}

/// Symbols that are compared at once.
const BLOCK: usize = 64;

/// Appends the runs of `symbols` to `values` and `lengths`.
pub(crate) fn encode<T: Symbol>(symbols: &[T], values: &mut Vec<T>, lengths: &mut Vec<u8>) {
    simd::run(Encode { symbols, values, lengths });
}

struct Encode<'a, T> {
    symbols: &'a [T],
    values: &'a mut Vec<T>,
    lengths: &'a mut Vec<u8>,
}

impl<T: Symbol> Kernel for Encode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { symbols, values, lengths } = self;
        let Some((_, after_first)) = symbols.split_first() else { return };
        let mut start = 0;
        let mut put = |end: usize| {
            values.push(symbols[start]);
            let mut rest = (end - start - 1) as u64;
            while rest >= BASE {
                lengths.push((rest % BASE + BASE) as u8);
                rest /= BASE;
            }
            lengths.push(rest as u8);
            start = end;
        };
        for (i, (before, after)) in symbols.chunks(BLOCK).zip(after_first.chunks(BLOCK)).enumerate() {
            let mut ends = ends_of_runs(before, after);
            while ends != 0 {
                put(i * BLOCK + ends.trailing_zeros() as usize + 1);
                ends &= ends - 1;
            }
        }
        put(symbols.len());
    }
}

/// A bit for each symbol of `before` that differs from the one in `after`.
#[inline(always)]
fn ends_of_runs<T: Symbol>(before: &[T], after: &[T]) -> u64 {
    let mut differs = [0; BLOCK];
    match (before.first_chunk::<BLOCK>(), after.first_chunk::<BLOCK>()) {
        (Some(before), Some(after)) => (0..BLOCK).for_each(|i| differs[i] = u8::from(before[i] != after[i])),
        _ => differs.iter_mut().zip(before.iter().zip(after)).for_each(|(d, (a, b))| *d = u8::from(a != b)),
    }
    // If runs are long, most blocks contain no end of a run.
    if differs.iter().fold(0, |any, d| any | d) == 0 {
        return 0;
    }
    // The multiplication gathers the lowest bits of eight bytes in the highest byte.
    let bits =
        differs.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56);
    bits.enumerate().fold(0, |all, (i, byte)| all | byte << (8 * i))
}

/// Decodes runs, whose lengths must add up to that of `out`. Every number may be hostile; `out` may be partly written on
/// error.
pub(crate) fn decode<T: Symbol>(values: &[T], lengths: &[u8], out: &mut [T]) -> Result<()> {
    simd::run(Decode { values, lengths, out })
}

struct Decode<'a, T> {
    values: &'a [T],
    lengths: &'a [u8],
    out: &'a mut [T],
}

impl<T: Symbol> Kernel for Decode<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        /// Shorter runs are written with this length; later runs overwrite the excess.
        const SHORT: usize = 32;
        let wrong = || Error::corrupt("runs have the wrong lengths");
        let mut digits = self.lengths.iter().map(|&digit| u64::from(digit));
        let mut rest = self.out;
        for &value in self.values {
            let mut digit = digits.next().ok_or_else(wrong)?;
            let mut length = digit % BASE + 1;
            let mut unit = 1_u64;
            while digit >= BASE {
                digit = digits.next().ok_or_else(wrong)?;
                unit = unit.checked_mul(BASE).ok_or_else(wrong)?;
                let more = (digit % BASE).checked_mul(unit).ok_or_else(wrong)?;
                // A number has only one representation, without leading zeros.
                length = length.checked_add(more).filter(|_| digit != 0).ok_or_else(wrong)?;
            }
            let n = usize::try_from(length).ok().filter(|n| *n <= rest.len()).ok_or_else(wrong)?;
            match rest.first_chunk_mut::<SHORT>() {
                Some(short) if n <= SHORT => short.fill(value),
                _ => rest[..n].fill(value),
            }
            rest = &mut rest[n..];
        }
        if rest.is_empty() && digits.next().is_none() { Ok(()) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tokens::tests::Random;

    /// Checks that symbols come back, and returns their runs.
    fn check<T: Symbol + std::fmt::Debug>(symbols: &[T]) -> (Vec<T>, Vec<u8>) {
        let (mut values, mut lengths) = (Vec::new(), Vec::new());
        encode(symbols, &mut values, &mut lengths);
        assert_eq!(values.len(), n_runs(symbols));
        assert!(values.windows(2).all(|pair| pair[0] != pair[1]));
        let mut back = vec![T::default(); symbols.len()];
        decode(&values, &lengths, &mut back).unwrap();
        assert_eq!(back, symbols);

        // The portable form of all this does the same.
        let (mut same_values, mut same_lengths) = (Vec::new(), Vec::new());
        Encode { symbols, values: &mut same_values, lengths: &mut same_lengths }.run();
        assert_eq!((&same_values, &same_lengths), (&values, &lengths));
        back.fill(T::default());
        Decode { values: &values, lengths: &lengths, out: &mut back }.run().unwrap();
        assert_eq!(back, symbols);

        if !symbols.is_empty() {
            decode(&values, &lengths, &mut vec![T::default(); symbols.len() - 1]).unwrap_err();
        }
        decode(&values, &lengths, &mut vec![T::default(); symbols.len() + 1]).unwrap_err();
        (values, lengths)
    }

    #[test]
    fn runs_come_back() {
        let mut random = Random(4);
        for n in [0, 1, 2, 31, 63, 64, 65, 127, 128, 129, 130, 1000, 16_384, 16_385, 16_386, 100_000] {
            check(&vec![7_u16; n]);
            check(&(0..n).map(|i| i as u16).collect::<Vec<u16>>());
            check(&(0..n).map(|i| (i / 3) as u8).collect::<Vec<u8>>());
            for rarity in [2, 5, 50, 700] {
                let mut symbol = 0_u16;
                let symbols = (0..n).map(|_| {
                    if random.next().is_multiple_of(rarity) {
                        symbol = random.next() as u16;
                    }
                    symbol
                });
                check(&symbols.collect::<Vec<u16>>());
            }
        }
    }

    #[test]
    fn runs_are_what_the_format_says() {
        let mut symbols = vec![5_u16; 1];
        symbols.extend([6; 128]);
        symbols.extend([7; 129]);
        symbols.extend([8; 1 + 3 + 2 * 128 + 128 * 128]);
        assert_eq!(check(&symbols), (vec![5, 6, 7, 8], vec![0, 127, 128, 1, 131, 130, 1]));
    }

    #[test]
    fn hostile_runs_are_refused() {
        let refuse = |values: &[u8], lengths: &[u8]| decode(values, lengths, &mut [0; 200]).unwrap_err();
        refuse(&[], &[]);
        refuse(&[1], &[]);
        refuse(&[1], &[198]);
        refuse(&[1], &[127, 71]);
        refuse(&[1, 2], &[127]);
        refuse(&[1, 2], &[127, 72]);
        refuse(&[1], &[128 + 71, 1, 0]);
        // A zero in front, and numbers that do not fit.
        refuse(&[1, 2], &[127, 128 + 71, 0]);
        refuse(&[1], &[255; 9]);
        refuse(&[1], &[255; 12]);
        refuse(&[1], &[255, 255, 255, 255, 255, 255, 255, 255, 255, 127]);
        decode(&[1_u8, 2], &[127, 71], &mut [0; 200]).unwrap();
        decode(&[1_u8], &[128 + 71, 1], &mut [0; 200]).unwrap();

        let mut random = Random(8);
        for _ in 0..20_000 {
            let values: Vec<u8> = (0..random.next() % 6).map(|_| random.next() as u8).collect();
            let lengths: Vec<u8> = (0..random.next() % 8).map(|_| random.next() as u8).collect();
            let mut out = [0; 300];
            let n = random.next() as usize % 300;
            let _ = decode(&values, &lengths, &mut out[..n]);
            assert!(out[n..].iter().all(|&symbol| symbol == 0));
        }
    }
}
