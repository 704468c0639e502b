//! The layer for boxes with bounds of their own (docs/format.md, 14.3), and for the means of bins around them (14.4).
//!
//! A payload holds the background, in which values covered by boxes are replaced by cheap ones, and then the boxes,
//! each as an array of its own. Boxes are ordered such that the last one that covers a value keeps all bounds that hold
//! there. The payload says where the boxes lie within the chunk, so a decoder needs nothing else.

use std::ops::Range;

use super::bins;
use super::{Exact, Nested, within_payload, write_nested};
use crate::codec::shared::{masks, padding};
use crate::codec::{ChunkCodec, ChunkContext, CodecId, pipeline};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::error::{Error, Result};
use crate::exec::scratch;
use crate::grid::{self, Block, Corner};
use crate::io::{Bytes, varint};
use crate::num::Real;
use crate::plan::{Coding, Limit, MAX_BIN, MAX_BIN_VALUES, MAX_BOXES, Plan};

const HAS_BACKGROUND: u8 = 1;
const IS_BINNED: u8 = 1 << 1;
const HAS_FILLS: u8 = 1 << 2;
const HAS_EXACT: u8 = 1 << 3;
const KNOWN_FLAGS: u8 = (1 << 4) - 1;

/// A box within a chunk, and its limit.
struct Part {
    block: Block,
    limit: Limit,
}

/// The boxes within a chunk, ordered such that each keeps the limits of all earlier boxes that it overlaps.
fn parts_of<T: Real>(chunk: &Block, plan: &Plan<T>) -> Vec<Part> {
    // With bins, the bound of the background limits the error of means, not of values.
    let nothing = Limit { abs: f64::INFINITY, pointwise: f64::INFINITY };
    let background = if plan.bin.is_empty() { plan.limit() } else { nothing };
    let mut parts = Vec::new();
    for given in &plan.boxes {
        let common = given.block.intersection(chunk);
        let limit = given.limit.meet(background);
        if common.n_values() > 0 && limit != background {
            let block = Block { start: common.start_in(chunk), extents: common.extents };
            parts.push(Part { block, limit });
        }
    }
    parts.sort_by(|a, b| b.limit.abs.total_cmp(&a.limit.abs).then(b.limit.pointwise.total_cmp(&a.limit.pointwise)));
    for i in 0..parts.len() {
        let block = &parts[i].block;
        let overlapped = parts[..i].iter().filter(|other| other.block.intersection(block).n_values() > 0);
        parts[i].limit = overlapped.fold(parts[i].limit, |limit, other| limit.meet(other.limit));
    }
    let is_hidden = |i: usize| {
        let block = &parts[i].block;
        parts[i + 1..].iter().any(|later| later.block.intersection(block) == *block)
    };
    let hidden: Vec<bool> = (0..parts.len()).map(is_hidden).collect();
    let mut hidden = hidden.iter();
    parts.retain(|_| !hidden.next().copied().unwrap_or(false));
    parts
}

/// Whether a chunk, given as a box of the array, needs this layer.
pub(crate) fn apply<T: Real>(chunk: &Block, plan: &Plan<T>) -> bool {
    chunk.n_values() > 0 && (!plan.bin.is_empty() || !parts_of(chunk, plan).is_empty())
}

/// The layer. Its payload is used only if it is not larger than the values.
pub(crate) struct Regions;

impl<T: Real> ChunkCodec<T> for Regions {
    const ID: CodecId = CodecId::Regions;
    /// The chunk as a box of the array.
    type Settings<'a>
        = (&'a Block, &'a Plan<T>)
    where
        T: 'a;

    fn encode(values: &[T], (block, plan): Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        encode(values, block, plan, chunk, out);
        out.len() - start <= size_of_val(values)
    }

    /// The values of a box or the means of bins, and what is not among these.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        size_of::<T>() as u64 * chunk.n_values() + masks::decode_bytes(payload_bytes, chunk)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        decode(payload, chunk, out).map_err(within_payload)
    }
}

fn encode<T: Real>(values: &[T], block: &Block, plan: &Plan<T>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) {
    let start = out.len();
    let extents = &block.extents;
    let parts = parts_of(block, plan);
    let mut is_covered = vec![false; values.len()];
    let zeros = vec![0; extents.len()];
    for part in &parts {
        let from = Corner { shape: extents, start: &part.block.start };
        let to = Corner { shape: &part.block.extents, start: &zeros };
        let marked = grid::for_each_run(from, to, &part.block.extents, |at, _, n| {
            is_covered[at..at + n].fill(true);
            Ok(())
        });
        debug_assert!(marked.is_ok());
    }
    let background = Background { values, is_covered: &is_covered, plan, chunk };
    let has_background = is_covered.contains(&false);
    out.push(if has_background { HAS_BACKGROUND } else { 0 });
    if has_background && plan.bin.is_empty() {
        background.encode_values(out);
    } else if has_background {
        let (flags, payload) = background.encode_means();
        out[start] |= flags;
        out.extend_from_slice(&payload);
    }
    varint::write_to(parts.len() as u64, out);
    for Part { block, limit } in &parts {
        block.start.iter().chain(&block.extents).for_each(|n| varint::write_to(*n as u64, out));
        let mut inside = scratch::take(block.n_values());
        let from = Corner { shape: extents, start: &block.start };
        grid::copy_block(values, from, &mut inside, Corner { shape: &block.extents, start: &zeros }, &block.extents);
        let coding = Coding::new(plan.preset, plan.stable, limit, largest(&inside, chunk));
        let part = ChunkContext { extents: &block.extents, step: coding.step, ..*chunk };
        append_nested(&inside, limit, &coding, &part, out);
        scratch::give(inside);
    }
    // As in the codecs: a reader relies on this size before it allocates.
    padding::pad(out, start, values.len());
}

pub(super) fn append_nested<T: Real>(
    values: &[T],
    limit: &Limit,
    coding: &Coding<T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) {
    let mut payload = Vec::new();
    let codec = pipeline::encode_limited(values, limit, coding, chunk, &mut payload);
    write_nested(codec, coding.step, &payload, out);
}

/// The largest magnitude of finite values that are not fill values.
fn largest<T: Real>(values: &[T], chunk: &ChunkContext<'_, T>) -> f64 {
    let fills = || chunk.fills.iter().chain(chunk.more_fills);
    let counts = |x: &&T| x.is_finite() && fills().all(|fill| fill.bits() != x.bits());
    values.iter().filter(counts).fold(0.0, |most, x| x.to_f64().abs().max(most))
}

/// The background: the chunk around its boxes.
struct Background<'a, T> {
    values: &'a [T],
    is_covered: &'a [bool],
    plan: &'a Plan<T>,
    chunk: &'a ChunkContext<'a, T>,
}

impl<T: Real> Background<'_, T> {
    fn encode_values(&self, out: &mut Vec<u8>) {
        let mut bridged = self.values.to_vec();
        bridge(&mut bridged, self.is_covered, self.chunk.extents);
        append_nested(&bridged, &self.plan.limit(), &self.plan.coding(), self.chunk, out);
    }

    /// Flags and bytes.
    fn encode_means(&self) -> (u8, Vec<u8>) {
        let (plan, mut flags, mut out) = (self.plan, IS_BINNED, Vec::new());
        plan.bin.iter().for_each(|factor| varint::write_to(*factor as u64, &mut out));
        let mut kinds = masks::find_fills(self.values, &plan.fills);
        let is_fill = |i: usize| kinds.as_ref().is_some_and(|kinds| kinds[i] != 0);
        let is_exact = |x: &T| self.chunk.more_fills.iter().any(|fill| fill.bits() == x.bits());
        let is_valid = |(i, x): (usize, &T)| x.is_finite() && !is_fill(i) && !is_exact(x);
        let is_valid: Vec<bool> = self.values.iter().enumerate().map(is_valid).collect();
        let exact: Vec<usize> =
            (0..self.values.len()).filter(|i| !is_valid[*i] && !is_fill(*i) && !self.is_covered[*i]).collect();
        flags |= if kinds.is_some() { HAS_FILLS } else { 0 };
        flags |= if exact.is_empty() { 0 } else { HAS_EXACT };
        if flags & (HAS_FILLS | HAS_EXACT) != 0 {
            let dims = masks::chunk_dims(self.chunk.extents);
            let write_kinds = |coder: &mut BinaryEncoder<'_>| {
                let mut kinds = kinds.iter_mut();
                kinds.try_for_each(|kinds| masks::code_kinds(coder, kinds, &dims, plan.fills.len(), |_| false))
            };
            Exact::write_to(self.values, &exact, write_kinds, &mut out);
        }
        let extents = bins::extents_of(self.chunk.extents, &plan.bin);
        let means = bins::means(self.values, &is_valid, self.chunk.extents, &plan.bin);
        let is_covered = bins::all_marked(self.is_covered, self.chunk.extents, &plan.bin);
        let is_free: Vec<bool> =
            means.iter().zip(&is_covered).map(|(mean, covered)| mean.is_none() || *covered).collect();
        let mut means: Vec<T> = means.into_iter().map(Option::unwrap_or_default).collect();
        bridge(&mut means, &is_free, &extents);
        let chunk = ChunkContext { extents: &extents, ..*self.chunk };
        append_nested(&means, &plan.limit(), &plan.coding(), &chunk, &mut out);
        (flags, out)
    }
}

/// Replaces values that may be anything: by the previous value of the row, or by the first one after them, or, if the
/// whole row is free, by the previous row.
pub(super) fn bridge<T: Copy + Default>(values: &mut [T], is_free: &[bool], extents: &[usize]) {
    let width = extents.last().copied().unwrap_or(1);
    let first = is_free.iter().position(|free| !free).map_or(T::default(), |i| values[i]);
    for start in (0..values.len()).step_by(width) {
        let (before, row) = values.split_at_mut(start);
        let row = &mut row[..width];
        let free = &is_free[start..start + width];
        match free.iter().position(|free| !free) {
            Some(i) => {
                let mut last = row[i];
                for (x, free) in row.iter_mut().zip(free) {
                    last = if *free { last } else { *x };
                    *x = last;
                }
            }
            None if start > 0 => row.copy_from_slice(&before[start - width..]),
            None => row.fill(first),
        }
    }
}

fn decode<T: Real>(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
    let &ChunkContext { extents, wanted, .. } = chunk;
    let mut bytes = Bytes::new(payload);
    let flags = bytes.u8()?;
    let needs_bins = flags & (HAS_FILLS | HAS_EXACT) != 0;
    let needs_background = flags & IS_BINNED != 0;
    if flags & !KNOWN_FLAGS != 0
        || (needs_bins && flags & IS_BINNED == 0)
        || (needs_background && flags & HAS_BACKGROUND == 0)
    {
        return Err(Error::corrupt("chunk has unknown flags"));
    }
    match flags & (HAS_BACKGROUND | IS_BINNED) {
        0 => out.fill(T::default()),
        HAS_BACKGROUND => {
            Nested::read_from(&mut bytes, CodecId::Regions, chunk)?.decode(chunk, out)?;
        }
        _ => decode_means(&mut bytes, flags, chunk, out)?,
    }
    let n_parts = varint::read_from(&mut bytes)?;
    if n_parts > MAX_BOXES as u64 {
        return Err(Error::corrupt("chunk has too many boxes"));
    }
    let zeros = vec![0; extents.len()];
    for _ in 0..n_parts {
        let block = read_block(&mut bytes, extents)?;
        let part = ChunkContext { extents: &block.extents, wanted: None, ..*chunk };
        let nested = Nested::read_from(&mut bytes, CodecId::Regions, &part)?;
        if !wanted.is_none_or(|wanted| overlaps(&block, wanted)) {
            continue;
        }
        let mut inside = scratch::try_take(block.n_values())?;
        nested.decode(&part, &mut inside)?;
        let from = Corner { shape: &block.extents, start: &zeros };
        grid::copy_block(&inside, from, out, Corner { shape: extents, start: &block.start }, &block.extents);
        scratch::give(inside);
    }
    padding::check_end(&bytes, payload.len(), out.len())
}

fn decode_means<T: Real>(bytes: &mut Bytes<'_>, flags: u8, chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
    let mut bin = Vec::with_capacity(chunk.extents.len());
    for _ in chunk.extents {
        bin.push(usize::try_from(varint::read_from(bytes)?).unwrap_or(usize::MAX));
    }
    let fits = bin.iter().all(|n| (1..=MAX_BIN).contains(n));
    if bin.is_empty() || !fits || bin.iter().fold(1, |n: usize, b| n.saturating_mul(*b)) > MAX_BIN_VALUES {
        return Err(Error::corrupt("chunk has impossible bins"));
    }
    let (mut kinds, mut exact) = (None, Exact::default());
    if flags & (HAS_FILLS | HAS_EXACT) != 0 {
        let read_kinds = |coder: &mut BinaryDecoder<'_>| {
            if flags & HAS_FILLS == 0 {
                return Ok(None);
            }
            masks::read_kinds(coder, out.len(), &masks::chunk_dims(chunk.extents), chunk.fills.len()).map(Some)
        };
        (kinds, exact) = Exact::read_from::<T, _>(bytes, out.len(), flags & HAS_EXACT != 0, read_kinds)?;
    }
    let extents = bins::extents_of(chunk.extents, &bin);
    let of_means = ChunkContext { extents: &extents, wanted: None, ..*chunk };
    let nested = Nested::read_from(bytes, CodecId::Regions, &of_means)?;
    let mut means = scratch::try_take(grid::n_values(&extents))?;
    nested.decode(&of_means, &mut means)?;
    bins::spread(&means, chunk.extents, &bin, out);
    scratch::give(means);
    if let Some(kinds) = kinds {
        for (x, kind) in out.iter_mut().zip(kinds).filter(|(_, kind)| *kind != 0) {
            *x = chunk.fills[usize::from(kind) - 1];
        }
    }
    exact.restore(out);
    Ok(())
}

/// Whether a box has a value in common with these ranges.
pub(super) fn overlaps(block: &Block, ranges: &[Range<usize>]) -> bool {
    let along = |(axis, range): (usize, &Range<usize>)| {
        range.start < block.start[axis] + block.extents[axis] && block.start[axis] < range.end
    };
    ranges.iter().enumerate().all(along)
}

/// A box, checked to lie within the chunk and not to be empty.
pub(super) fn read_block(bytes: &mut Bytes<'_>, extents: &[usize]) -> Result<Block> {
    let mut read = || -> Result<Vec<usize>> {
        let number = |_: &usize| Ok(usize::try_from(varint::read_from(bytes)?).unwrap_or(usize::MAX));
        extents.iter().map(number).collect()
    };
    let block = Block { start: read()?, extents: read()? };
    let fits = |axis: usize| {
        let end = block.start[axis].checked_add(block.extents[axis]);
        block.extents[axis] > 0 && end.is_some_and(|end| end <= extents[axis])
    };
    if (0..extents.len()).all(fits) { Ok(block) } else { Err(Error::corrupt("chunk has a box that is not within it")) }
}
