//! The layer for chunks of which a part was written again (docs/format.md, 14.6): the payload from before, and on top of
//! it the values that have changed.
//!
//! Values that were not changed keep their bits, so they stay within the bound of their own write however often their
//! neighbours are written again. A part is a box with a mask of the values that it replaces; where the mask is empty,
//! the box holds cheap values. Parts of which nothing is left are dropped, and many parts are merged into one.

use std::ops::Range;

use super::regions::{append_nested, bridge, overlaps, read_block};
use super::{Nested, within_payload, write_nested};
use crate::codec::shared::{masks, padding};
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::error::{Error, Result};
use crate::exec::{filled, scratch};
use crate::grid::{self, Block, Corner};
use crate::io::{Bytes, varint};
use crate::num::Real;
use crate::plan::{Coding, Limit, MAX_BOXES};

const HAS_BACKGROUND: u8 = 1;

/// Parts are merged if there are more than `MANY_PARTS`, or if their boxes together have more than `MANY_CHUNKS` times
/// the values of the chunk.
const MANY_PARTS: usize = 256;
const MANY_CHUNKS: usize = 16;

/// A payload of a chunk, with what its stream said to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coded<'a, T> {
    pub(crate) codec: CodecId,
    pub(crate) payload: &'a [u8],
    pub(crate) step: Option<T>,
    /// It may refer to that many of the fill values, from the first on.
    pub(crate) n_fills: usize,
}

/// What the encoder is told of a chunk.
pub(crate) struct Rewrite<'a, T> {
    /// A payload that restores all values but the marked ones.
    pub(crate) before: Coded<'a, T>,
    /// The values for the new part; no part is added if there are none.
    pub(crate) is_marked: &'a [bool],
    /// Values that every coding restores exactly, such as fill values: nothing is kept for their sake.
    pub(crate) is_special: &'a [bool],
    /// How these are coded.
    pub(crate) limit: Limit,
    pub(crate) coding: Coding<T>,
}

/// The layer. Its payload is used only if it is not larger than the values.
pub(crate) struct Changes;

impl<T: Real> ChunkCodec<T> for Changes {
    const ID: CodecId = CodecId::Changes;
    type Settings<'a>
        = &'a Rewrite<'a, T>
    where
        T: 'a;

    fn encode(values: &[T], rewrite: &Rewrite<'_, T>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut is_marked = rewrite.is_marked.to_vec();
        let Split { background, mut parts } = Split::of(rewrite, &mut is_marked, chunk);
        if is_too_much(&parts, chunk) {
            parts = merge(values, rewrite, chunk, &parts);
        }
        parts.extend(encode_part(values, &is_marked, &rewrite.limit, &rewrite.coding, chunk));
        out.push(if background.is_some() { HAS_BACKGROUND } else { 0 });
        out.extend(background.into_iter().flatten());
        varint::write_to(parts.len() as u64, out);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        padding::pad(out, start, values.len());
        out.len() - start <= size_of_val(values)
    }

    /// The values of a part, and its mask.
    fn decode_bytes(_: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        (size_of::<T>() as u64 + 1) * chunk.n_values()
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        decode(payload, chunk, out).map_err(within_payload)
    }
}

/// Background and parts of a payload, as they are stored.
struct Split {
    background: Option<Vec<u8>>,
    parts: Vec<Vec<u8>>,
}

impl Split {
    /// What is left of the payload from before, which is known to be valid, once the marked values are replaced. Also marks
    /// special values that nothing is left of.
    fn of<T: Real>(rewrite: &Rewrite<'_, T>, is_marked: &mut [bool], chunk: &ChunkContext<'_, T>) -> Self {
        let before = &rewrite.before;
        let all = match before.codec {
            CodecId::Changes => Self::read_from(before.payload, chunk).expect("what was decoded can be decoded"),
            _ => {
                let mut nested = vec![before.n_fills as u8];
                write_nested(before.codec, before.step, before.payload, &mut nested);
                Self { background: Some(nested), parts: Vec::new() }
            }
        };
        // The last part that replaces a value, counted from 1; 0 is the background.
        let mut sources = vec![0_u16; is_marked.len()];
        for (i, part) in all.parts.iter().enumerate() {
            for_each_value(part, chunk, |at| sources[at] = i as u16 + 1);
        }
        let mut is_used = vec![false; all.parts.len() + 1];
        for ((source, marked), special) in sources.iter().zip(&*is_marked).zip(rewrite.is_special) {
            is_used[usize::from(*source)] |= !marked && !special;
        }
        is_marked.iter_mut().zip(&sources).for_each(|(marked, source)| *marked |= !is_used[usize::from(*source)]);
        let parts = all.parts.into_iter().zip(&is_used[1..]).filter(|(_, used)| **used).map(|(part, _)| part).collect();
        Self { background: all.background.filter(|_| is_used[0]), parts }
    }

    fn read_from<T: Real>(payload: &[u8], chunk: &ChunkContext<'_, T>) -> Result<Self> {
        let mut bytes = Bytes::new(payload);
        let background = match read_flags(&mut bytes)? {
            true => {
                let rest = bytes.rest();
                read_nested(&mut bytes, chunk)?;
                Some(rest[..rest.len() - bytes.len()].to_vec())
            }
            false => None,
        };
        let mut parts = Vec::new();
        for _ in 0..read_count(&mut bytes)? {
            let rest = bytes.rest();
            Part::read_from(&mut bytes, chunk)?;
            parts.push(rest[..rest.len() - bytes.len()].to_vec());
        }
        Ok(Self { background, parts })
    }
}

/// A part as it is stored, which is known to be valid.
fn read_part<'a, T: Real>(part: &'a [u8], chunk: &ChunkContext<'_, T>) -> Part<'a, T> {
    Part::read_from(&mut Bytes::new(part), chunk).expect("what was encoded can be decoded")
}

/// Calls `f` with the position in the chunk of each value that a part replaces.
fn for_each_value<T: Real>(part: &[u8], chunk: &ChunkContext<'_, T>, mut f: impl FnMut(usize)) {
    read_part(part, chunk).for_each_run(chunk.extents, |at, mask| match mask {
        Some(mask) => at.zip(mask).filter(|(_, kind)| **kind != 0).for_each(|(at, _)| f(at)),
        None => at.for_each(&mut f),
    });
}

/// Whether so many parts, or such large ones, take too long to decode.
fn is_too_much<T: Real>(parts: &[Vec<u8>], chunk: &ChunkContext<'_, T>) -> bool {
    let n_values: usize = parts.iter().map(|part| read_part(part, chunk).block.n_values()).sum();
    parts.len() >= MANY_PARTS || n_values > MANY_CHUNKS * grid::n_values(chunk.extents)
}

/// A part that holds these values of the chunk: their bounding box, the mask within it, and the values. `None` if there
/// are none.
fn encode_part<T: Real>(
    values: &[T],
    is_changed: &[bool],
    limit: &Limit,
    coding: &Coding<T>,
    chunk: &ChunkContext<'_, T>,
) -> Option<Vec<u8>> {
    let extents = chunk.extents;
    let block = bounding_box(is_changed, extents)?;
    let zeros = vec![0; extents.len()];
    let from = Corner { shape: extents, start: &block.start };
    let to = Corner { shape: &block.extents, start: &zeros };
    let mut is_free = vec![false; block.n_values()];
    grid::copy_block(is_changed, from, &mut is_free, to, &block.extents);
    is_free.iter_mut().for_each(|changed| *changed = !*changed);
    let mut inside = scratch::take(block.n_values());
    grid::copy_block(values, from, &mut inside, to, &block.extents);

    let mut out = Vec::new();
    block.start.iter().chain(&block.extents).for_each(|n| varint::write_to(*n as u64, &mut out));
    let mut mask = Vec::new();
    if is_free.contains(&true) {
        let mut kinds: Vec<u8> = is_free.iter().map(|free| u8::from(!free)).collect();
        let mut coder = BinaryEncoder::new(&mut mask);
        let dims = masks::chunk_dims(&block.extents);
        masks::code_kinds(&mut coder, &mut kinds, &dims, 1, |_| false).expect("writing does not fail");
        coder.finish();
        bridge(&mut inside, &is_free, &block.extents);
    }
    varint::write_to(mask.len() as u64, &mut out);
    out.extend_from_slice(&mask);
    let part = ChunkContext { extents: &block.extents, step: coding.step, ..*chunk };
    out.push(chunk.fills.len() as u8);
    append_nested(&inside, limit, coding, &part, &mut out);
    scratch::give(inside);
    Some(out)
}

/// One part in place of many. What is kept has the same bits afterwards: under the coding of the new values if that
/// restores them, which it does where they are on its lattice, and without loss otherwise.
fn merge<T: Real>(
    values: &[T],
    rewrite: &Rewrite<'_, T>,
    chunk: &ChunkContext<'_, T>,
    parts: &[Vec<u8>],
) -> Vec<Vec<u8>> {
    let mut is_covered = vec![false; values.len()];
    // What has changed now gets a part of its own.
    parts.iter().for_each(|part| for_each_value(part, chunk, |at| is_covered[at] = !rewrite.is_marked[at]));
    let coded = encode_part(values, &is_covered, &rewrite.limit, &rewrite.coding, chunk);
    let restores = |part: &Vec<u8>| {
        let mut restored = values.to_vec();
        read_part(part, chunk).decode(chunk, &mut restored).expect("what was encoded can be decoded");
        restored.iter().zip(values).all(|(a, b)| a.bits() == b.bits())
    };
    let exact = || {
        let coding = Coding { step: None, abs_bound: 0.0, ..rewrite.coding };
        encode_part(values, &is_covered, &Limit::LOSSLESS, &coding, chunk)
    };
    coded.filter(restores).or_else(exact).into_iter().collect()
}

/// The least box that holds all marked values of an array; `None` if there are none.
fn bounding_box(is_marked: &[bool], extents: &[usize]) -> Option<Block> {
    let rank = extents.len();
    let (mut low, mut high) = (vec![usize::MAX; rank], vec![0; rank]);
    let width = extents.last().copied().unwrap_or(1);
    let mut is_any = false;
    for (row, marks) in is_marked.chunks(width).enumerate() {
        let Some(first) = marks.iter().position(|marked| *marked) else { continue };
        let last = marks.iter().rposition(|marked| *marked).unwrap_or(first);
        is_any = true;
        let mut rest = row;
        for axis in (0..rank).rev() {
            let (from, to) =
                if axis == rank - 1 { (first, last) } else { (rest % extents[axis], rest % extents[axis]) };
            rest = if axis == rank - 1 { rest } else { rest / extents[axis] };
            low[axis] = low[axis].min(from);
            high[axis] = high[axis].max(to + 1);
        }
    }
    let extents = low.iter().zip(&high).map(|(low, high)| high.saturating_sub(*low)).collect();
    is_any.then_some(Block { start: low, extents })
}

/// Values that replace those of the chunk.
struct Part<'a, T> {
    block: Block,
    /// Which values of the box count; `None` for all.
    mask: Option<Vec<u8>>,
    n_fills: usize,
    nested: Nested<'a, T>,
}

impl<'a, T: Real> Part<'a, T> {
    fn read_from(bytes: &mut Bytes<'a>, chunk: &ChunkContext<'_, T>) -> Result<Self> {
        let block = read_block(bytes, chunk.extents)?;
        let n_mask_bytes = varint::read_from(bytes)?;
        let too_long = |_| Error::corrupt("mask is longer than its chunk");
        let coded = bytes.take(n_mask_bytes.try_into().map_err(too_long)?)?;
        // The size of the nested payload is checked before anything is allocated for the values of the box.
        let part = ChunkContext { extents: &block.extents, wanted: None, ..*chunk };
        let (n_fills, nested) = read_nested(bytes, &part)?;
        let mask = match coded.is_empty() {
            true => None,
            false => {
                let mut coder = BinaryDecoder::new(coded);
                let mut kinds = filled(0, block.n_values())?;
                let dims = masks::chunk_dims(&block.extents);
                masks::code_kinds(&mut coder, &mut kinds, &dims, 1, BinaryDecoder::is_past_end)?;
                coder.finish()?;
                Some(kinds)
            }
        };
        Ok(Self { block, mask, n_fills, nested })
    }

    /// Calls `f` with each run of memory of the box in the chunk, and the mask of its values.
    fn for_each_run(&self, extents: &[usize], mut f: impl FnMut(Range<usize>, Option<&[u8]>)) {
        let zeros = vec![0; extents.len()];
        let from = Corner { shape: &self.block.extents, start: &zeros };
        let to = Corner { shape: extents, start: &self.block.start };
        let visited = grid::for_each_run(from, to, &self.block.extents, |from, to, n| {
            f(to..to + n, self.mask.as_ref().map(|mask| &mask[from..from + n]));
            Ok(())
        });
        debug_assert!(visited.is_ok());
    }

    /// Writes the values of this part into those of the chunk.
    fn decode(&self, chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        let fills = &chunk.fills[..self.n_fills];
        let part = ChunkContext { extents: &self.block.extents, wanted: None, fills, ..*chunk };
        let mut inside = scratch::try_take(self.block.n_values())?;
        self.nested.decode(&part, &mut inside)?;
        let mut rest = &inside[..];
        self.for_each_run(chunk.extents, |at, mask| {
            let (run, after) = rest.split_at(at.len());
            rest = after;
            match mask {
                Some(mask) => {
                    let counted = out[at].iter_mut().zip(run).zip(mask).filter(|(_, kind)| **kind != 0);
                    counted.for_each(|((x, new), _)| *x = *new);
                }
                None => out[at].copy_from_slice(run),
            }
        });
        scratch::give(inside);
        Ok(())
    }
}

/// A nested payload behind the number of fill values that it may refer to.
fn read_nested<'a, T: Real>(bytes: &mut Bytes<'a>, chunk: &ChunkContext<'_, T>) -> Result<(usize, Nested<'a, T>)> {
    let n_fills = usize::from(bytes.u8()?);
    if n_fills > chunk.fills.len() {
        return Err(Error::corrupt("part has more fill values than its stream"));
    }
    Ok((n_fills, Nested::read_from(bytes, CodecId::Changes, chunk)?))
}

/// Whether there is a background.
fn read_flags(bytes: &mut Bytes<'_>) -> Result<bool> {
    match bytes.u8()? {
        0 => Ok(false),
        HAS_BACKGROUND => Ok(true),
        _ => Err(Error::corrupt("chunk has unknown flags")),
    }
}

fn read_count(bytes: &mut Bytes<'_>) -> Result<u64> {
    match varint::read_from(bytes)? {
        n if n > MAX_BOXES as u64 => Err(Error::corrupt("chunk has too many parts")),
        n => Ok(n),
    }
}

fn decode<T: Real>(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
    let mut bytes = Bytes::new(payload);
    match read_flags(&mut bytes)? {
        true => {
            let (n_fills, nested) = read_nested(&mut bytes, chunk)?;
            nested.decode(&ChunkContext { fills: &chunk.fills[..n_fills], ..*chunk }, out)?;
        }
        false => out.fill(T::default()),
    }
    for _ in 0..read_count(&mut bytes)? {
        let part = Part::read_from(&mut bytes, chunk)?;
        if chunk.wanted.is_none_or(|wanted| overlaps(&part.block, wanted)) {
            part.decode(chunk, out)?;
        }
    }
    padding::check_end(&bytes, payload.len(), out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_the_least_that_hold_all_marks() {
        let extents = [3, 4, 5];
        let mut marks = vec![false; 60];
        assert_eq!(bounding_box(&marks, &extents), None);
        for (z, y, x) in [(1, 1, 2), (2, 3, 2), (1, 2, 4)] {
            marks[(z * 4 + y) * 5 + x] = true;
        }
        let found = bounding_box(&marks, &extents).unwrap();
        assert_eq!((found.start, found.extents), (vec![1, 1, 2], vec![2, 3, 3]));
        let found = bounding_box(&[true], &[]).unwrap();
        assert_eq!((found.start, found.extents), (vec![], vec![]));
    }
}
