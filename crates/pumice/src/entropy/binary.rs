//! Adaptive binary arithmetic coding of masks, parameters and histograms, and of the decisions of `mix.rs`
//! (docs/format.md, 7.3).
//!
//! Each kind of data has one function, generic over [`BitCoder`], that both encodes and decodes it.

use crate::error::{Error, Result};

/// Probabilities have this many bits.
pub(crate) const PROBABILITY_BITS: u32 = 16;

/// Codes bits: an encoder takes them, a decoder returns them.
pub(crate) trait BitCoder {
    /// Codes one bit that is 1 with probability `p_one` / 2^16, which lies in 1..2^16. A decoder ignores `bit`.
    fn code(&mut self, bit: bool, p_one: u32) -> bool;

    /// Codes one bit and lets the model learn from it.
    #[inline(always)]
    fn bit(&mut self, model: &mut AdaptiveBit, bit: bool) -> bool {
        let bit = self.code(bit, model.p_one());
        model.learn(bit);
        bit
    }

    /// Codes the low `n` bits of a number, most significant first, all equally likely.
    fn raw(&mut self, value: u64, n: u32) -> u64 {
        (0..n).rev().fold(0, |all, i| all << 1 | u64::from(self.code(value >> i & 1 != 0, 1 << 15)))
    }
}

/// The interval [low, high] of a binary arithmetic coder; leading bytes are written once they are equal in both ends.
#[derive(Debug)]
struct Interval {
    low: u32,
    high: u32,
}

impl Interval {
    const ALL: Self = Self { low: 0, high: u32::MAX };

    /// The last number of the subinterval of bit 1.
    #[inline(always)]
    fn split(&self, p_one: u32) -> u32 {
        let range = u64::from(self.high - self.low);
        self.low + ((range * u64::from(p_one)) >> PROBABILITY_BITS) as u32
    }

    #[inline(always)]
    fn narrow(&mut self, bit: bool, split: u32) {
        if bit {
            self.high = split;
        } else {
            self.low = split + 1;
        }
    }

    #[inline(always)]
    fn is_settled(&self) -> bool {
        (self.low ^ self.high) >> 24 == 0
    }

    #[inline(always)]
    fn shift(&mut self) {
        self.low <<= 8;
        self.high = self.high << 8 | 0xff;
    }
}

/// Appends to a buffer; [`BinaryEncoder::finish`] must be called.
#[derive(Debug)]
pub(crate) struct BinaryEncoder<'a> {
    interval: Interval,
    out: &'a mut Vec<u8>,
}

impl<'a> BinaryEncoder<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { interval: Interval::ALL, out }
    }

    /// Writes the fewest bytes that identify the last interval; a decoder reads zeros beyond the end.
    pub(crate) fn finish(self) {
        let Interval { low, high } = self.interval;
        if low > 0 {
            let mut n = 1;
            // The least number not below `low` whose bytes after the first n are zero.
            let cut = |n: u32| (u64::from(low) + (1 << (32 - 8 * n)) - 1) >> (32 - 8 * n) << (32 - 8 * n);
            while n < 4 && cut(n) > u64::from(high) {
                n += 1;
            }
            self.out.extend_from_slice(&(cut(n) as u32).to_be_bytes()[..n as usize]);
        }
    }
}

impl BitCoder for BinaryEncoder<'_> {
    #[inline(always)]
    fn code(&mut self, bit: bool, p_one: u32) -> bool {
        let split = self.interval.split(p_one);
        self.interval.narrow(bit, split);
        while self.interval.is_settled() {
            self.out.push((self.interval.high >> 24) as u8);
            self.interval.shift();
        }
        bit
    }
}

/// Reads from a slice; beyond its end there are zeros.
#[derive(Debug)]
pub(crate) struct BinaryDecoder<'a> {
    interval: Interval,
    window: u32,
    bytes: &'a [u8],
    n_missing: usize,
}

impl<'a> BinaryDecoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { interval: Interval::ALL, window: 0, bytes, n_missing: 0 };
        (0..4).for_each(|_| decoder.next_byte());
        decoder
    }

    fn next_byte(&mut self) {
        let byte = match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                *byte
            }
            None => {
                self.n_missing += 1;
                0
            }
        };
        self.window = self.window << 8 | u32::from(byte);
    }

    /// Whether more bytes were read beyond the end than an encoder omits. Then the bytes are damaged, and the decoded
    /// bits are noise.
    pub(crate) fn is_past_end(&self) -> bool {
        self.n_missing > 4
    }

    /// Checks that exactly all bytes were read.
    pub(crate) fn finish(self) -> Result<()> {
        if self.bytes.is_empty() && !self.is_past_end() {
            Ok(())
        } else {
            Err(Error::corrupt("arithmetic-coded part has the wrong length"))
        }
    }
}

impl BitCoder for BinaryDecoder<'_> {
    #[inline(always)]
    fn code(&mut self, _bit: bool, p_one: u32) -> bool {
        let split = self.interval.split(p_one);
        let bit = self.window <= split;
        self.interval.narrow(bit, split);
        while self.interval.is_settled() {
            self.interval.shift();
            self.next_byte();
        }
        bit
    }
}

/// The estimated probability of a 1, which adapts fast at first and slower later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdaptiveBit {
    p_one: u16,
    n_seen: u8,
}

impl Default for AdaptiveBit {
    fn default() -> Self {
        Self { p_one: 1 << 15, n_seen: 0 }
    }
}

impl AdaptiveBit {
    /// After this many bits the rate of adaptation is constant.
    const MAX_SEEN: u8 = 60;

    #[inline(always)]
    pub(crate) fn p_one(self) -> u32 {
        u32::from(self.p_one).clamp(32, (1 << PROBABILITY_BITS) - 32)
    }

    #[inline(always)]
    pub(crate) fn learn(&mut self, bit: bool) {
        let target = if bit { (1_i32 << PROBABILITY_BITS) - 1 } else { 0 };
        let p = i32::from(self.p_one);
        // 1 / (n + 1.5), so that the first bits count most.
        let step = (target - p) * 2 / (2 * i32::from(self.n_seen) + 3);
        self.p_one = (p + step) as u16;
        self.n_seen = (self.n_seen + 1).min(Self::MAX_SEEN);
    }
}

/// Adaptive code of whole numbers of any size: the number of bits in unary, then the bits below the leading one, of
/// which the first two are modelled.
#[derive(Clone, Debug)]
pub(crate) struct NumberModel {
    length: [AdaptiveBit; 64],
    mantissa: [[AdaptiveBit; 3]; 64],
    sign: AdaptiveBit,
}

impl Default for NumberModel {
    fn default() -> Self {
        Self {
            length: [AdaptiveBit::default(); 64],
            mantissa: [[AdaptiveBit::default(); 3]; 64],
            sign: AdaptiveBit::default(),
        }
    }
}

impl NumberModel {
    /// Codes a number below 2^62.
    pub(crate) fn code(&mut self, coder: &mut impl BitCoder, value: u64) -> u64 {
        let plus_one = value + 1;
        let n_bits = 63 - plus_one.leading_zeros() as usize;
        let mut n = 0;
        while n < 62 && coder.bit(&mut self.length[n], n < n_bits) {
            n += 1;
        }
        let mut all = 1_u64;
        let mut node = 0;
        for i in (0..n).rev() {
            let bit = plus_one >> i & 1 != 0;
            let bit = if n - i <= 2 {
                let coded = coder.bit(&mut self.mantissa[n][node], bit);
                node = 1 + usize::from(coded);
                coded
            } else {
                coder.code(bit, 1 << 15)
            };
            all = all << 1 | u64::from(bit);
        }
        all - 1
    }

    /// Codes a number between -2^62 and 2^62.
    pub(crate) fn code_signed(&mut self, coder: &mut impl BitCoder, value: i64) -> i64 {
        let magnitude = self.code(coder, value.unsigned_abs()) as i64;
        if magnitude != 0 && coder.bit(&mut self.sign, value < 0) { -magnitude } else { magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Vec<i64> {
        let mut state = 1_u64;
        let mut all = vec![0, 1, -1, (1 << 62) - 1, -(1 << 62) + 1];
        for i in 0..5000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.push((state as i64) >> (2 + i % 61));
        }
        all
    }

    #[test]
    fn numbers_come_back() {
        let mut bytes = Vec::new();
        let mut encoder = BinaryEncoder::new(&mut bytes);
        let mut model = NumberModel::default();
        for n in numbers() {
            model.code_signed(&mut encoder, n);
        }
        encoder.finish();
        let mut decoder = BinaryDecoder::new(&bytes);
        let mut model = NumberModel::default();
        for n in numbers() {
            assert_eq!(model.code_signed(&mut decoder, 0), n);
        }
        decoder.finish().unwrap();
    }

    #[test]
    fn likely_bits_cost_little_and_all_ends_decode() {
        for n in 0..300 {
            let mut bytes = Vec::new();
            let mut encoder = BinaryEncoder::new(&mut bytes);
            let mut model = AdaptiveBit::default();
            for i in 0..n {
                encoder.bit(&mut model, i % 97 == 5);
            }
            encoder.finish();
            assert!(bytes.len() <= 6, "{n}: {}", bytes.len());
            let mut decoder = BinaryDecoder::new(&bytes);
            let mut model = AdaptiveBit::default();
            for i in 0..n {
                assert_eq!(decoder.bit(&mut model, false), i % 97 == 5);
            }
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn damage_ends_in_an_error_or_in_numbers() {
        let bytes = [0x5a; 40];
        let mut decoder = BinaryDecoder::new(&bytes);
        let mut model = NumberModel::default();
        for _ in 0..10_000 {
            model.code_signed(&mut decoder, 0);
        }
        assert!(decoder.is_past_end());
        decoder.finish().unwrap_err();
    }
}
