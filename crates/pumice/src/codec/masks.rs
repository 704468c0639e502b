//! Which values of a chunk have no code: fill values, and values stored exactly (docs/format.md, 7.3).

use super::bands::{Dims, X};
use super::binary::{AdaptiveBit, BitCoder, NumberModel};
use crate::array::Real;
use crate::error::{Error, Result};

/// For each value 0, or 1 + the place of the fill value that it equals bit for bit. `None` if there are no such values.
pub(crate) fn find_fills<T: Real>(values: &[T], fills: &[T]) -> Option<Vec<u8>> {
    let bits: Vec<u64> = fills.iter().map(|fill| fill.to_bits_u64()).collect();
    let kind = |x: &T| bits.iter().position(|fill| *fill == x.to_bits_u64()).map_or(0, |i| i as u8 + 1);
    let first = values.iter().position(|x| kind(x) != 0)?;
    let mut kinds = vec![0; values.len()];
    for (k, x) in kinds.iter_mut().zip(values).skip(first) {
        *k = kind(x);
    }
    Some(kinds)
}

/// Writes or reads the kind of each value: whether it is a fill value, by those around it, and which of the two.
/// `is_damaged` is asked after each row.
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
    for start in (0..kinds.len()).step_by(width) {
        let has_row = !(start / width).is_multiple_of(dims[2]);
        let has_plane = !(start / plane).is_multiple_of(dims[1]);
        for x in 0..width {
            let at = start + x;
            let get = |exists: bool, back: usize| if exists { kinds[at - back] } else { 0 };
            let near = [
                get(x > 0, 1),
                get(has_row, width),
                get(has_plane, plane),
                get(has_row && x > 0, width + 1),
                get(has_row && x + 1 < width, width.wrapping_sub(1)),
                get(x > 1, 2),
            ];
            let context = near.iter().fold(0, |all, kind| all << 1 | usize::from(*kind != 0));
            let mut kind = u8::from(coder.bit(&mut is_fill[context], kinds[at] != 0));
            if kind != 0 && n_fills > 1 {
                let before = near.iter().copied().find(|kind| *kind != 0).unwrap_or(0);
                kind += u8::from(coder.bit(&mut is_second[usize::from(before)], kinds[at] > 1));
            }
            kinds[at] = kind;
        }
        if is_damaged(coder) {
            return Err(Error::corrupt("mask is damaged"));
        }
    }
    Ok(())
}

/// Writes or reads ascending places below `n_values`; `n_most` is what the rest of the payload has room for.
pub(crate) fn code_places(
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
    let mut places = Vec::with_capacity(n as usize);
    let mut next = 0_u64;
    for i in 0..n as usize {
        let place = next + gap.code(coder, given.get(i).map_or(0, |place| *place as u64 - next));
        if place >= n_values as u64 {
            return Err(Error::corrupt("chunk has an exact value outside of it"));
        }
        places.push(place as usize);
        next = place + 1;
    }
    Ok(places)
}
