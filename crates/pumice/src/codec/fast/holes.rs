//! Values of a quantised tile that have no integer: masks of fill values, and escapes (docs/format.md, 6.2).

use super::geometry::{TILE_VALUES, Tile};
use super::planes::{read_mask, too_short};
use crate::error::{Error, Result};
use crate::num::simd::SUPER;
use crate::num::{Real, Value};

/// A bit per linear index of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Mask([u64; TILE_VALUES / SUPER]);

impl Default for Mask {
    fn default() -> Self {
        Self([0; TILE_VALUES / SUPER])
    }
}

/// The indices of the bits that are set, ascending.
#[inline(always)]
pub(crate) fn bits_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    })
}

impl Mask {
    /// Sets bits from index `at` on.
    #[inline(always)]
    pub(crate) fn set(&mut self, at: usize, bits: u64) {
        let (word, shift) = (at / 64, at % 64);
        self.0[word] |= bits << shift;
        if shift > 0 && bits >> (64 - shift) != 0 {
            self.0[word + 1] |= bits >> (64 - shift);
        }
    }

    /// Appends the mask; returns false, writing nothing, if it is empty.
    pub(crate) fn write_to(&self, tile: &Tile, out: &mut Vec<u8>) -> bool {
        let words = &self.0[..tile.n_super()];
        let (mut any, mut mixed) = (0_u64, 0_u64);
        for (s, word) in words.iter().enumerate() {
            any |= u64::from(*word != 0) << s;
            mixed |= u64::from(*word != 0 && *word != u64::MAX) << s;
        }
        if any == 0 {
            return false;
        }
        let n_bytes = words.len().div_ceil(8);
        out.extend_from_slice(&any.to_le_bytes()[..n_bytes]);
        out.extend_from_slice(&mixed.to_le_bytes()[..n_bytes]);
        for word in words.iter().filter(|w| **w != 0 && **w != u64::MAX) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        true
    }

    pub(crate) fn read_from<'a>(body: &'a [u8], tile: &Tile) -> Result<(Self, &'a [u8])> {
        let n_super = tile.n_super();
        let (any, body) = read_mask(body, n_super)?;
        let (mixed, mut body) = read_mask(body, n_super)?;
        let beyond = if n_super == 64 { 0 } else { u64::MAX << n_super };
        if mixed & !any != 0 || any & beyond != 0 {
            return Err(Error::corrupt("tile has a mask that contradicts itself"));
        }
        let mut mask = Self::default();
        for (s, word) in mask.0[..n_super].iter_mut().enumerate() {
            *word = if any >> s & 1 != 0 { u64::MAX } else { 0 };
            if mixed >> s & 1 != 0 {
                let (bits, rest) = body.split_first_chunk().ok_or_else(too_short)?;
                *word = u64::from_le_bytes(*bits);
                body = rest;
            }
        }
        Ok((mask, body))
    }

    /// Writes `fill` wherever the mask is set.
    pub(crate) fn apply<T: Copy>(&self, tile: &Tile, fill: T, out: &mut [T]) {
        for (to, at) in tile.rows() {
            for x in (0..tile.ex).step_by(SUPER) {
                let values = &mut out[to + x..][..SUPER.min(tile.ex - x)];
                match self.get(at + x) {
                    0 => {}
                    u64::MAX => values.fill(fill),
                    bits => {
                        for i in bits_of(bits).take_while(|i| x + i < tile.ex) {
                            values[i] = fill;
                        }
                    }
                }
            }
        }
    }

    /// The 64 bits from index `at` on.
    fn get(&self, at: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        let high = if shift > 0 { self.0.get(word + 1).map_or(0, |next| next << (64 - shift)) } else { 0 };
        self.0[word] >> shift | high
    }
}

/// Values that are stored exactly, with their linear indices.
pub(crate) struct Escapes<'a> {
    indices: &'a [u8],
    values: &'a [u8],
    /// What follows in the body.
    pub(crate) rest: &'a [u8],
}

impl<'a> Escapes<'a> {
    pub(crate) fn read_from(body: &'a [u8], value_bytes: usize) -> Result<Self> {
        let (n, body) = body.split_first_chunk().ok_or_else(too_short)?;
        let n = usize::from(u16::from_le_bytes(*n));
        let (indices, body) = body.split_at_checked(2 * n).ok_or_else(too_short)?;
        let (values, rest) = body.split_at_checked(n * value_bytes).ok_or_else(too_short)?;
        Ok(Self { indices, values, rest })
    }

    fn indices(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.indices.as_chunks().0.iter().map(|b| usize::from(u16::from_le_bytes(*b)))
    }

    /// Writes the values to their positions.
    pub(crate) fn apply<T: Real>(&self, tile: &Tile, out: &mut [T]) {
        for (at, value) in self.indices().zip(self.values.chunks_exact(size_of::<T>())) {
            let to = chunk_index(tile, at);
            T::copy_from_le_bytes(value, &mut out[to..=to]);
        }
    }

    pub(crate) fn check(&self, tile: &Tile) -> Result<()> {
        let mut next = 0;
        for at in self.indices() {
            if at < next || at >= tile.n_codes() || at % tile.row() >= tile.ex {
                return Err(Error::corrupt("tile has an escape outside of its values, or out of order"));
            }
            next = at + 1;
        }
        if next == 0 {
            return Err(Error::corrupt("tile has an empty list of escapes"));
        }
        Ok(())
    }
}

/// Index in the chunk of a linear index in the tile.
pub(crate) fn chunk_index(tile: &Tile, at: usize) -> usize {
    let row = tile.row();
    let (line, x) = (at / row, at % row);
    tile.offset + line / tile.ey * tile.stride_z + line % tile.ey * tile.stride_y + x
}

/// Gives each hole the integer before it: of its row, or of the row before.
#[inline(always)]
pub(crate) fn bridge<T: Value>(holes: u64, before: T::Int, integers: &mut [T::Int]) {
    if holes.count_ones() as usize == integers.len() {
        integers.fill(before);
        return;
    }
    for i in bits_of(holes) {
        integers[i] = if i == 0 { before } else { integers[i - 1] };
    }
}
