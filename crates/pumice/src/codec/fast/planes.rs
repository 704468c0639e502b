//! Bit planes of the codes of a tile, with a two-level directory of their widths (docs/format.md, 6.2).
//!
//! Each group of 8 codes has a width. The widths of 8 groups are stored as their minimum and, again as bit planes, the
//! differences from it. Smooth data then costs two bits per group, and an empty supergroup one bit per 64 values.
#![allow(unsafe_code)]

use super::geometry::TILE_VALUES;
use super::lorenzo::Codes;
use crate::error::{Error, Result};
use crate::num::simd::{SLACK, SUPER, Simd};
use crate::num::{Int, Value};

const MAX_SUPER: usize = TILE_VALUES / SUPER;
/// Largest `least` that a header byte can hold.
const MAX_LEAST: u8 = 31;
const LEAST_BITS: u32 = 5;

/// Working space for one tile.
#[repr(align(64))]
pub(crate) struct Planes {
    planes: [u8; TILE_VALUES * 8 + SLACK],
    widths: [[u8; 8]; MAX_SUPER],
    deltas: [[u8; SUPER]; MAX_SUPER / 8],
    least: [u8; MAX_SUPER],
}

/// What the encoder wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// Some code is wider than the limit; nothing was written.
    TooWide,
    /// All codes are 0; nothing was written.
    Nothing,
    /// Every supergroup has planes: no mask was written.
    Dense,
    /// Some supergroups are empty: a mask was written.
    Sparse,
}

impl Planes {
    pub(crate) fn new() -> Self {
        Self {
            planes: [0; TILE_VALUES * 8 + SLACK],
            widths: [[0; 8]; MAX_SUPER],
            deltas: [[0; SUPER]; MAX_SUPER / 8],
            least: [0; MAX_SUPER],
        }
    }

    /// Appends mask, headers, width differences and planes of `n_codes` codes. Overwrites the codes after them by 0.
    /// Returns [`Content::TooWide`] if a code has more than `max_width` bits.
    ///
    /// # Safety
    /// The machine has instruction set S.
    #[inline(always)]
    pub(crate) unsafe fn encode<S: Simd<T>, T: Value>(
        &mut self,
        codes: &mut Codes<T>,
        n_codes: usize,
        max_width: u32,
        out: &mut Vec<u8>,
    ) -> Content {
        let n_super = n_codes.div_ceil(SUPER);
        codes[n_codes..n_super * SUPER].fill(T::Int::default());
        let mut n_planes = 0;
        for s in 0..n_super {
            // SAFETY: the caller has S; `planes` has room for all supergroups before, this one, and the slack.
            n_planes += unsafe {
                S::pack(codes.as_ptr().add(s * SUPER), self.planes.as_mut_ptr().add(n_planes), &mut self.widths[s])
            };
        }
        if n_planes == 0 {
            return Content::Nothing;
        }
        let n_groups_in_last = (n_codes - (n_super - 1) * SUPER) / 8;
        // SAFETY: the caller has S.
        let mask = unsafe { self.split_widths::<S, T>(n_super, n_groups_in_last, max_width) };
        let Some(mask) = mask else { return Content::TooWide };
        let n_present = mask.count_ones() as usize;
        let content = if n_present == n_super { Content::Dense } else { Content::Sparse };
        if content == Content::Sparse {
            out.extend_from_slice(&mask.to_le_bytes()[..n_super.div_ceil(8)]);
        }
        let header_at = out.len();
        out.extend_from_slice(&self.least[..n_present]);
        for block in 0..n_present.div_ceil(8) {
            let mut packed = [0; SUPER + SLACK];
            let mut n_deltas = [0; 8];
            // SAFETY: the caller has S; `packed` has room for 64 bytes and the slack.
            let n = unsafe { S::pack_bytes(&self.deltas[block], packed.as_mut_ptr(), &mut n_deltas) };
            for (header, n_delta) in out[header_at + 8 * block..header_at + n_present].iter_mut().zip(n_deltas) {
                *header |= n_delta << LEAST_BITS;
            }
            out.extend_from_slice(&packed[..n]);
        }
        out.extend_from_slice(&self.planes[..n_planes]);
        content
    }

    /// Fills `least` and `deltas` for the supergroups that have planes; returns the mask of these, or
    /// `None` if a group is too wide.
    ///
    /// # Safety
    /// The machine has instruction set S.
    #[inline(always)]
    unsafe fn split_widths<S: Simd<T>, T: Value>(
        &mut self,
        n_super: usize,
        n_groups_in_last: usize,
        max_width: u32,
    ) -> Option<u64> {
        let mut mask = 0;
        // A width above the limit sets the high bit of its byte.
        let mut over = 0;
        let headroom = EACH * (0x7F - u64::from(max_width));
        let mut n_present = 0;
        for s in 0..n_super {
            let widths = u64::from_le_bytes(self.widths[s]);
            if widths == 0 {
                continue;
            }
            mask |= 1 << s;
            over |= widths + headroom;
            // Groups beyond the last must neither lower the minimum nor differ from it.
            let exists =
                if s + 1 == n_super && n_groups_in_last < 8 { (1 << (8 * n_groups_in_last)) - 1 } else { u64::MAX };
            // SAFETY: the caller has S.
            let least = unsafe { S::least_byte(widths | (!exists & (EACH * 0x7F))) }.min(MAX_LEAST);
            let deltas = (widths - ((EACH * u64::from(least)) & exists)) & exists;
            self.least[n_present] = least;
            self.deltas[n_present / 8][n_present % 8 * 8..][..8].copy_from_slice(&deltas.to_le_bytes());
            n_present += 1;
        }
        if n_present % 8 != 0 {
            self.deltas[n_present / 8][n_present % 8 * 8..].fill(0);
        }
        (over & (EACH * 0x80) == 0).then_some(mask)
    }

    /// Reads what [`Planes::encode`] wrote, into `n_codes` codes; `body` must end with the tile's padding. `slack` more
    /// bytes are readable behind `body`.
    ///
    /// # Safety
    /// The machine has instruction set S; `SLACK` bytes behind `body` are readable.
    #[inline(always)]
    pub(crate) unsafe fn decode<S: Simd<T>, T: Value>(
        &mut self,
        body: &[u8],
        sparse: bool,
        n_codes: usize,
        codes: &mut Codes<T>,
    ) -> Result<()> {
        let n_super = n_codes.div_ceil(SUPER);
        let all = if n_super == 64 { u64::MAX } else { (1 << n_super) - 1 };
        let (mask, body) = if sparse { read_mask(body, n_super)? } else { (all, body) };
        if mask & !all != 0 {
            return Err(Error::corrupt("tile has planes for supergroups that do not exist"));
        }
        let n_present = mask.count_ones() as usize;
        // SAFETY: as this function's own contract.
        let (mut n_planes, planes) = unsafe { self.decode_widths::<S, T>(body, n_present)? };
        let n_groups_in_last = (n_codes - (n_super - 1) * SUPER) / 8;
        if n_groups_in_last < 8 && mask >> (n_super - 1) != 0 {
            // Groups beyond the last have the minimum as their width, and no planes.
            let least = body[n_present - 1] & MAX_LEAST;
            let widths = &mut self.widths[n_present - 1][n_groups_in_last..];
            if widths.iter().any(|w| *w != least) {
                return Err(Error::corrupt("tile has widths for groups that do not exist"));
            }
            n_planes -= usize::from(least) * widths.len();
            widths.fill(0);
        }
        check_end(planes, n_planes)?;
        let mut at = planes.as_ptr();
        let mut present = 0;
        for s in 0..n_super {
            let to = &mut codes[s * SUPER..][..SUPER];
            if mask >> s & 1 == 0 {
                to.fill(T::Int::default());
                continue;
            }
            let widths = &self.widths[present];
            present += 1;
            // SAFETY: the widths add up to what `check_end` found inside `planes`, and the slack is behind it.
            unsafe {
                S::unpack(at, widths, to.as_mut_ptr());
                at = at.add(sum_of_bytes(u64::from_le_bytes(*widths)));
            }
        }
        Ok(())
    }

    /// Reads the widths of the `n_present` supergroups with planes; returns their sum and the rest of the body.
    ///
    /// # Safety
    /// As [`Planes::decode`].
    #[inline(always)]
    unsafe fn decode_widths<'a, S: Simd<T>, T: Value>(
        &mut self,
        body: &'a [u8],
        n_present: usize,
    ) -> Result<(usize, &'a [u8])> {
        let (headers, mut rest) = body.split_at_checked(n_present).ok_or_else(too_short)?;
        let mut n_planes = 0;
        let mut widest = 0;
        for (block, headers) in headers.chunks(8).enumerate() {
            let mut header = [0; 8];
            header[..headers.len()].copy_from_slice(headers);
            let n_deltas = header.map(|h| h >> LEAST_BITS);
            let n_bytes = sum_of_bytes(u64::from_le_bytes(n_deltas));
            let (packed, after) = rest.split_at_checked(n_bytes).ok_or_else(too_short)?;
            // SAFETY: the caller has S; the slack is behind `body`.
            unsafe { S::unpack_bytes(packed.as_ptr(), &n_deltas, &mut self.deltas[block]) };
            for (i, h) in headers.iter().enumerate() {
                let deltas = u64::from_le_bytes(self.deltas[block].as_chunks().0[i]);
                // At most 31 + 127 per byte: no carry between bytes.
                let widths = deltas + EACH * u64::from(h & MAX_LEAST);
                self.widths[8 * block + i] = widths.to_le_bytes();
                n_planes += sum_of_bytes(widths);
                widest |= widths;
                // A byte above the limit sets its high bit.
                widest |= (widths & (EACH * 0x7F)) + EACH * (0x7F - T::Int::BITS as u64);
                if widest & (EACH * 0x80) != 0 {
                    return Err(Error::corrupt("tile has a group wider than its type"));
                }
            }
            rest = after;
        }
        Ok((n_planes, rest))
    }
}

/// 1 in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;

#[inline(always)]
fn sum_of_bytes(bytes: u64) -> usize {
    const PAIRS: u64 = 0x00FF_00FF_00FF_00FF;
    let pairs = (bytes & PAIRS) + ((bytes >> 8) & PAIRS);
    (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize
}

/// A bit per supergroup, as used by `super_mask`, `any` and `mixed`.
#[inline(always)]
pub(crate) fn read_mask(body: &[u8], n_super: usize) -> Result<(u64, &[u8])> {
    let (bytes, rest) = body.split_at_checked(n_super.div_ceil(8)).ok_or_else(too_short)?;
    let mut mask = [0; 8];
    mask[..bytes.len()].copy_from_slice(bytes);
    Ok((u64::from_le_bytes(mask), rest))
}

/// Whether `rest` is `n` bytes and then at most three bytes of zero.
#[inline(always)]
pub(crate) fn check_end(rest: &[u8], n: usize) -> Result<()> {
    match rest.split_at_checked(n) {
        None => Err(too_short()),
        Some((_, padding)) if padding.len() > 3 || padding.iter().any(|b| *b != 0) => {
            Err(Error::corrupt("tile has bytes that mean nothing"))
        }
        Some(_) => Ok(()),
    }
}

#[cold]
pub(crate) fn too_short() -> Error {
    Error::corrupt("tile is shorter than its header says")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tricks() {
        assert_eq!(sum_of_bytes(u64::from_le_bytes([64; 8])), 512);
    }
}
