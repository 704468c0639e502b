//! Lengths of codes as bits without models (docs/format.md, 9.2): each codebook for itself, so that a GPU packs and
//! unpacks all of a chunk at once.

use super::Lengths;
use crate::error::{Error, Result};

const NO_CODE: u8 = Lengths::NO_CODE;
/// Bits of a symbol, and of the length of the first one.
const SYMBOL_BITS: u32 = 8;
const LENGTH_BITS: u32 = 4;
/// The longest code that can be packed: then all bits of a codebook are fewer than 2^13.
pub(crate) const MAX_BITS: u32 = 12;

/// Appends lengths of up to 256 symbols, of which one at least has a code, in whole bytes. Returns how many bits count.
pub(crate) fn pack(lengths: &Lengths, out: &mut Vec<u8>) -> u32 {
    let bits = lengths.bits();
    let first = bits.iter().position(|n_bits| *n_bits != NO_CODE).expect("some symbol has a code");
    let mut to = BitWriter { out, held: 0, n_held: 0, n_bits: 0 };
    to.put(first as u64, SYMBOL_BITS);
    to.put(u64::from(bits[first]), LENGTH_BITS);
    let mut last = bits[first];
    let mut rest = &bits[first..];
    let end = rest.iter().rposition(|n_bits| *n_bits != NO_CODE).map_or(0, |at| at + 1);
    rest = &rest[..if last == 0 { 0 } else { end }];
    let mut skipped = 1;
    while let Some(start) = rest.first() {
        let run = rest.iter().take_while(|n_bits| (**n_bits == NO_CODE) == (*start == NO_CODE)).count();
        to.put_run(run as u32);
        if *start != NO_CODE {
            for &n_bits in &rest[skipped..run] {
                to.put_rise(i32::from(n_bits) - i32::from(last));
                last = n_bits;
            }
            skipped = 0;
        }
        rest = &rest[run..];
    }
    to.finish()
}

/// Reads lengths of so many symbols from all of these bytes, of which `n_bits` bits count.
pub(crate) fn unpack(bytes: &[u8], n_bits: u32, n_symbols: usize) -> Result<Lengths> {
    let wrong = || Error::corrupt("lengths of codes are damaged");
    let mut from = BitReader { bytes, at: 0, end: n_bits as usize };
    let mut bits = vec![NO_CODE; n_symbols];
    let mut at = from.take(SYMBOL_BITS).ok_or_else(wrong)? as usize;
    let mut last = from.take(LENGTH_BITS).ok_or_else(wrong)? as i32;
    *bits.get_mut(at).ok_or_else(wrong)? = last as u8;
    let mut is_first = true;
    while from.at < from.end {
        let run = from.take_run().ok_or_else(wrong)?;
        for i in 0..run {
            if is_first && i == 0 {
                continue;
            }
            last += from.take_rise().ok_or_else(wrong)?;
            if !(1..=MAX_BITS as i32).contains(&last) {
                return Err(wrong());
            }
            *bits.get_mut(at + i).ok_or_else(wrong)? = last as u8;
        }
        at += run;
        is_first = false;
        if from.at < from.end {
            // What ends the bits has codes.
            at += from.take_run().ok_or_else(wrong)?;
            if from.at >= from.end {
                return Err(wrong());
            }
        }
    }
    if from.has_rest() {
        return Err(wrong());
    }
    Lengths::new(bits)
}

/// Bits fill each byte from the least significant on.
struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    held: u64,
    n_held: u32,
    n_bits: u32,
}

impl BitWriter<'_> {
    fn put(&mut self, bits: u64, n: u32) {
        self.held |= bits << self.n_held;
        self.n_held += n;
        self.n_bits += n;
        while self.n_held >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.n_held -= 8;
        }
    }

    /// Ones, as many as bits follow the highest one of the number; a zero; these bits.
    fn put_run(&mut self, run: u32) {
        let n = run.ilog2();
        self.put((1 << n) - 1, n + 1);
        self.put(u64::from(run) - (1 << n), n);
    }

    /// Ones, as many as the magnitude; a zero; the sign of what is not 0.
    fn put_rise(&mut self, rise: i32) {
        let size = rise.unsigned_abs();
        self.put((1 << size) - 1, size + 1);
        self.put(u64::from(rise < 0), u32::from(size > 0));
    }

    fn finish(self) -> u32 {
        if self.n_held > 0 {
            self.out.push(self.held as u8);
        }
        self.n_bits
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl BitReader<'_> {
    /// The bits from here on, zeros behind the last; at least 25 of them.
    fn window(&self) -> u32 {
        let byte = |i: usize| u32::from(self.bytes.get(self.at / 8 + i).copied().unwrap_or(0));
        (byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24) >> (self.at % 8)
    }

    fn take(&mut self, n: u32) -> Option<u32> {
        let bits = self.window() & ((1 << n) - 1);
        self.at += n as usize;
        (self.at <= self.end).then_some(bits)
    }

    /// Up to so many ones, and the zero behind them.
    fn take_ones(&mut self, most: u32) -> Option<u32> {
        let n = self.window().trailing_ones();
        self.take(n.min(most) + 1).filter(|_| n <= most).map(|_| n)
    }

    fn take_run(&mut self) -> Option<usize> {
        let n = self.take_ones(SYMBOL_BITS)?;
        Some((1 << n) + self.take(n)? as usize)
    }

    fn take_rise(&mut self) -> Option<i32> {
        let size = self.take_ones(MAX_BITS)? as i32;
        let is_negative = size > 0 && self.take(1)? == 1;
        Some(if is_negative { -size } else { size })
    }

    /// Whether there are bytes too many or too few, or bits that are not 0 behind the last.
    fn has_rest(&self) -> bool {
        self.bytes.len() != self.end.div_ceil(8)
            || (!self.end.is_multiple_of(8) && self.bytes[self.bytes.len() - 1] >> (self.end % 8) != 0)
    }
}
