//! Codes as tokens and raw bits (docs/format.md, 7.7).

use crate::error::{Error, Result};

/// The number of tokens: one for each code of up to [`MAX_DIRECT`], then four per octave of magnitude.
pub(crate) const ALPHABET: usize = N_DIRECT + 4 * 28;
/// Codes of this magnitude and less have a token of their own.
const MAX_DIRECT: u32 = 8;
pub(crate) const N_DIRECT: usize = 2 * MAX_DIRECT as usize + 1;

/// The token of a code, which is not `i32::MIN`.
#[inline(always)]
pub(crate) fn token_of(code: i32) -> u8 {
    let magnitude = code.unsigned_abs();
    let direct = (code << 1 ^ code >> 31) as u32;
    // In a float, the exponent and the two bits below the leading one are adjacent. With at most 24 leading bits kept,
    // the conversion is exact, and unlike counting leading zeros, it is a vector instruction on all machines.
    let cut = if magnitude >> 24 != 0 { 0xff } else { 0 };
    let float = ((magnitude & !cut) as i32 as f32).to_bits();
    let octaves = (float >> 21).wrapping_sub(4 * (127 + 3) - N_DIRECT as u32);
    (if magnitude <= MAX_DIRECT { direct } else { octaves }) as u8
}

/// How many raw bits follow a token.
#[inline(always)]
pub(crate) fn n_raw(token: u8) -> u32 {
    N_RAW[usize::from(token)]
}

/// The raw bits of a code: the bits of the magnitude that the token does not determine, then the sign.
#[inline(always)]
pub(crate) fn raw_of(code: i32, token: u8) -> u32 {
    (code.unsigned_abs() << 1 | u32::from(code < 0)) & ((1 << n_raw(token)) - 1)
}

/// The code of a token and of its raw bits.
#[inline(always)]
pub(crate) fn code_of(token: u8, raw: u32) -> i32 {
    let magnitude = FIRST_CODE[usize::from(token)].wrapping_add((raw >> 1) as i32);
    let sign = (raw & 1) as i32;
    (magnitude ^ -sign).wrapping_add(sign)
}

/// The code of a direct token, or the least magnitude of another.
pub(crate) const fn code_of_token(token: usize) -> i32 {
    FIRST_CODE[token]
}

// 256 entries, so that no token is out of bounds.
pub(crate) static N_RAW: [u32; 256] = {
    let mut all = [0; 256];
    let mut token = N_DIRECT;
    while token < ALPHABET {
        all[token] = (token - N_DIRECT) as u32 / 4 + 2;
        token += 1;
    }
    all
};

/// The code of each direct token, and the least magnitude of the others.
static FIRST_CODE: [i32; 256] = {
    let mut all = [0; 256];
    let mut token = 0;
    while token < ALPHABET {
        all[token] = if token < N_DIRECT {
            (token >> 1) as i32 ^ -((token & 1) as i32)
        } else {
            (4 + (token - N_DIRECT) as i32 % 4) << ((token - N_DIRECT) / 4 + 1)
        };
        token += 1;
    }
    all
};

/// Positions of tokens that have raw bits, among at most [`Large::MOST`]. The search has no branches, since these would
/// be mispredicted.
struct Large {
    positions: [u8; Self::MOST],
    n: usize,
}

impl Large {
    const MOST: usize = 64;

    #[inline(always)]
    fn find(tokens: impl Iterator<Item = u32>) -> Self {
        let mut all = Self { positions: [0; Self::MOST], n: 0 };
        for (i, token) in (0..Self::MOST as u8).zip(tokens) {
            all.positions[all.n % Self::MOST] = i;
            all.n += usize::from(token >= N_DIRECT as u32);
        }
        all
    }

    #[inline(always)]
    fn positions(&self) -> &[u8] {
        &self.positions[..self.n]
    }
}

/// Appends bits to a buffer, the least significant first; [`RawWriter::finish`] must be called.
#[derive(Debug)]
pub(crate) struct RawWriter<'a> {
    out: &'a mut Vec<u8>,
    bits: u64,
    n_bits: u32,
}

impl<'a> RawWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, bits: 0, n_bits: 0 }
    }

    /// Appends a number of `n` bits, of which there are at most 32.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: u32, n: u32) {
        self.bits |= u64::from(value) << self.n_bits;
        self.n_bits += n;
        if self.n_bits >= 32 {
            self.out.extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= 32;
            self.n_bits -= 32;
        }
    }

    /// Appends the raw bits of codes, whose tokens are the high bytes of `symbols`.
    #[inline(always)]
    pub(crate) fn put_all(&mut self, codes: &[i32], symbols: &[u16]) {
        for (codes, symbols) in codes.chunks(Large::MOST).zip(symbols.chunks(Large::MOST)) {
            for &i in Large::find(symbols.iter().map(|symbol| u32::from(symbol >> 8))).positions() {
                let token = (symbols[i as usize] >> 8) as u8;
                self.put(raw_of(codes[i as usize], token), n_raw(token));
            }
        }
    }

    /// Writes what is left, filled up to a byte.
    pub(crate) fn finish(self) {
        self.out.extend_from_slice(&self.bits.to_le_bytes()[..self.n_bits.div_ceil(8) as usize]);
    }
}

/// Reads bits; beyond the end there are zeros.
#[derive(Debug)]
pub(crate) struct RawReader<'a> {
    bytes: &'a [u8],
    at: usize,
    bits: u64,
    n_bits: u32,
}

impl<'a> RawReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, bits: 0, n_bits: 0 }
    }

    /// The next `n` bits, of which there are at most 32.
    #[inline(always)]
    pub(crate) fn get(&mut self, n: u32) -> u32 {
        self.refill();
        let value = self.bits & ((1 << n) - 1);
        self.bits >>= n;
        self.n_bits -= n;
        value as u32
    }

    /// Makes the codes of all tokens that have raw bits.
    #[inline(always)]
    pub(crate) fn get_all(&mut self, tokens: &[u32], codes: &mut [i32]) {
        for (codes, tokens) in codes.chunks_mut(Large::MOST).zip(tokens.chunks(Large::MOST)) {
            for &i in Large::find(tokens.iter().copied()).positions() {
                let token = tokens[i as usize] as u8;
                codes[i as usize] = code_of(token, self.get(n_raw(token)));
            }
        }
    }

    #[inline(always)]
    fn refill(&mut self) {
        let next = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).copied();
        let next = next.unwrap_or_else(|| {
            let mut last = [0; 8];
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        // Advances by whole bytes only; the next refill reads the remaining bits again.
        self.bits |= u64::from_le_bytes(next) << self.n_bits;
        let n_bytes = (63 - self.n_bits) / 8;
        self.at += n_bytes as usize;
        self.n_bits += 8 * n_bytes;
    }

    /// Checks that all bits were read, up to the last byte, whose rest is 0, and no more.
    pub(crate) fn finish(self) -> Result<()> {
        let n_read = 8 * self.at - self.n_bits as usize;
        if n_read.div_ceil(8) == self.bytes.len() && self.bits == 0 {
            Ok(())
        } else {
            Err(Error::corrupt("raw bits have the wrong length"))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Random numbers below 2^32.
    pub(crate) struct Random(pub(crate) u64);

    impl Random {
        pub(crate) fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 32) as u32
        }

        /// Of a two-sided geometric distribution of about this mean magnitude.
        pub(crate) fn code(&mut self, mean: f64) -> i32 {
            let magnitude = -(f64::from(self.next()) + 0.5).ln() + 32.0 * std::f64::consts::LN_2;
            let magnitude = (magnitude * mean + 0.5) as i32;
            if self.next() & 1 == 0 { magnitude } else { -magnitude }
        }
    }

    #[test]
    fn codes_come_back() {
        let check = |code: i32| {
            let token = token_of(code);
            let raw = raw_of(code, token);
            assert!(usize::from(token) < ALPHABET && u64::from(raw) < 1 << n_raw(token), "{code}");
            assert_eq!(code_of(token, raw), code);
        };
        (-(1 << 20)..=1 << 20).for_each(check);
        for e in 20..31 {
            for near in [1_i64 << e, 5 << (e - 2), 6 << (e - 2), 7 << (e - 2), 2 << e] {
                let codes = (near - 300..near + 300).filter_map(|code| i32::try_from(code).ok());
                codes.for_each(|code| [code, -code].into_iter().for_each(check));
            }
        }
        assert_eq!([0, -1, 1, -8, 8, 9, -9, 10, 16].map(token_of), [0, 1, 2, 15, 16, 17, 17, 18, 21]);
        assert_eq!(usize::from(token_of(i32::MAX)), ALPHABET - 1);
        assert_eq!((n_raw(16), n_raw(17), n_raw(128)), (0, 2, 29));
        assert_eq!(raw_of(-9, 17), 0b11);
    }

    #[test]
    fn raw_bits_come_back_and_zeros_follow() {
        let mut random = Random(6);
        for n in [0, 1, 2, 3, 50, 1000] {
            let numbers = (0..n).map(|_| {
                let n_bits = random.next() % 33;
                ((u64::from(random.next()) & ((1 << n_bits) - 1)) as u32, n_bits)
            });
            let numbers: Vec<(u32, u32)> = numbers.collect();
            let mut bytes = Vec::new();
            let mut writer = RawWriter::new(&mut bytes);
            numbers.iter().for_each(|&(number, n_bits)| writer.put(number, n_bits));
            writer.finish();
            let read = |bytes: &[u8]| {
                let mut reader = RawReader::new(bytes);
                let all: Vec<u32> = numbers.iter().map(|&(_, n_bits)| reader.get(n_bits)).collect();
                reader.finish().map(|()| all)
            };
            let wanted: Vec<u32> = numbers.iter().map(|&(number, _)| number).collect();
            assert_eq!(read(&bytes).unwrap(), wanted);
            if let Some((_, shorter)) = bytes.split_last() {
                read(shorter).unwrap_err();
            }
            bytes.push(0);
            read(&bytes).unwrap_err();
        }
        let mut reader = RawReader::new(&[0xff]);
        assert_eq!([32, 32, 32].map(|n| reader.get(n)), [0xff, 0, 0]);
    }
}
