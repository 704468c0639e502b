//! Which values of a chunk have no code: fill values, and values stored exactly (docs/format.md, 7.3).

use super::dims::{Dims, X};
use crate::codec::ChunkContext;
use crate::entropy::binary::{AdaptiveBit, BinaryDecoder, BitCoder, NumberModel};
use crate::error::{Error, Result};
use crate::exec::{filled, reserve};
use crate::num::Real;
use crate::num::simd::{self, Kernel};

/// For each value 0, or 1 + the index of the fill value that it equals bit for bit. `None` if no value is a fill value.
pub(crate) fn find_fills<T: Real>(values: &[T], fills: &[T]) -> Option<Vec<u8>> {
    simd::run(FindFills { values, fills })
}

/// Which values are masked, that is, are fill values; `None` if none is.
pub(crate) fn masked(kinds: Option<&[u8]>) -> Option<Vec<bool>> {
    kinds.map(|kinds| kinds.iter().map(|kind| *kind != 0).collect())
}

/// The most memory that [`read_kinds`] and [`code_positions`] take for a payload of so many bytes. Each position comes
/// with a value.
pub(crate) fn decode_bytes<T: Real>(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
    let of_kinds = if chunk.fills.is_empty() { 0 } else { 2 * chunk.n_values() };
    of_kinds + payload_bytes / size_of::<T>() as u64 * size_of::<usize>() as u64
}

/// Reads the kind of each value; see [`code_kinds`]. There are fill values.
pub(crate) fn read_kinds(
    coder: &mut BinaryDecoder<'_>,
    n_values: usize,
    dims: &Dims,
    n_fills: usize,
) -> Result<Vec<u8>> {
    if n_fills == 0 {
        return Err(Error::corrupt("chunk has fill values, but the stream has none"));
    }
    let mut kinds = filled(0, n_values)?;
    code_kinds(coder, &mut kinds, dims, n_fills, BinaryDecoder::is_past_end)?;
    Ok(kinds)
}

struct FindFills<'a, T> {
    values: &'a [T],
    fills: &'a [T],
}

impl<T: Real> Kernel for FindFills<'_, T> {
    type Output = Option<Vec<u8>>;

    #[inline(always)]
    fn run(self) -> Option<Vec<u8>> {
        let mut is_any = false;
        for fill in self.fills {
            for run in self.values.chunks(1 << 12) {
                let mut n = 0_u32;
                for x in run {
                    n += u32::from(x.bits() == fill.bits());
                }
                if n > 0 {
                    is_any = true;
                    break;
                }
            }
        }
        if !is_any {
            return None;
        }
        let mut kinds = vec![0; self.values.len()];
        // Of equal fill values, the first one counts.
        for (i, fill) in self.fills.iter().enumerate().rev() {
            for (kind, x) in kinds.iter_mut().zip(self.values) {
                *kind = if x.bits() == fill.bits() { i as u8 + 1 } else { *kind };
            }
        }
        Some(kinds)
    }
}

/// The extents along which masks are coded: the last two of the chunk, with all others merged.
pub(crate) fn chunk_dims(extents: &[usize]) -> Dims {
    let rank = extents.len();
    let from_end = |i: usize| if rank >= i { extents[rank - i] } else { 1 };
    let others = extents[..rank.saturating_sub(2)].iter().product();
    [1, others, from_end(2), from_end(1)]
}

/// Writes or reads the kind of each value: whether it is a fill value, with its neighbours as context, and which of the
/// two. Calls `is_damaged` after each row.
pub(crate) fn code_kinds<C: BitCoder>(
    coder: &mut C,
    kinds: &mut [u8],
    dims: &Dims,
    n_fills: usize,
    is_damaged: impl Fn(&C) -> bool,
) -> Result<()> {
    let mut is_fill = [AdaptiveBit::default(); 1 << 6];
    let mut is_second = [AdaptiveBit::default(); 3];
    let (width, plane) = (dims[X], dims[X] * dims[2]);
    let nothing = filled(0, width)?;
    for start in (0..kinds.len()).step_by(width) {
        let (before, row) = kinds.split_at_mut(start);
        let above = |exists: bool, back: usize| if exists { &before[start - back..][..width] } else { &nothing[..] };
        let up = above(!(start / width).is_multiple_of(dims[2]), width);
        let behind = above(!(start / plane).is_multiple_of(dims[1]), plane);
        // Left, twice left, up and left, up.
        let (mut left, mut second, mut corner, mut over) = (0, 0, 0, up[0]);
        for (x, (value, behind)) in row.iter_mut().zip(behind).enumerate() {
            let next = up.get(x + 1).map_or(0, |kind| *kind);
            let near = [left, over, *behind, corner, next, second];
            // Written out, since a loop would go through memory.
            let is = near.map(|kind| usize::from(kind != 0));
            let context = is[0] << 5 | is[1] << 4 | is[2] << 3 | is[3] << 2 | is[4] << 1 | is[5];
            // Works on a copy that is stored once, since two stores would delay the next load.
            let mut model = is_fill[context];
            let mut kind = u8::from(coder.bit(&mut model, *value != 0));
            is_fill[context] = model;
            if kind != 0 && n_fills > 1 {
                let before = near.iter().copied().find(|kind| *kind != 0).unwrap_or(0);
                kind += u8::from(coder.bit(&mut is_second[usize::from(before)], *value > 1));
            }
            *value = kind;
            (left, second, corner, over) = (kind, left, over, next);
        }
        if is_damaged(coder) {
            return Err(Error::corrupt("mask is damaged"));
        }
    }
    Ok(())
}

/// Writes or reads ascending positions below `n_values`; the rest of the payload has room for at most `n_most`.
pub(crate) fn code_positions(
    coder: &mut impl BitCoder,
    given: &[usize],
    n_values: usize,
    n_most: usize,
) -> Result<Vec<usize>> {
    let (mut count, mut gap) = (NumberModel::default(), NumberModel::default());
    let n = count.code(coder, given.len() as u64);
    if n > n_most as u64 {
        return Err(Error::corrupt("chunk has more exact values than it can hold"));
    }
    let mut positions = Vec::new();
    reserve(&mut positions, n as usize)?;
    let mut next = 0_u64;
    for i in 0..n as usize {
        let position = next + gap.code(coder, given.get(i).map_or(0, |position| *position as u64 - next));
        if position >= n_values as u64 {
            return Err(Error::corrupt("chunk has an exact value outside of it"));
        }
        positions.push(position as usize);
        next = position + 1;
    }
    Ok(positions)
}
