//! The body of one tile: base, masks, escapes and planes (docs/format.md, 6.2).
//!
//! Encoding tries the fused kernel first. A tile with values that cannot be quantised (fill values, NaN, spikes, or a
//! bound finer than the type) is coded again with holes: masks mark fill values, escapes store single values. If there
//! are too many escapes, the tile stores all values exactly, as integers in the order of their bits. A tile that would
//! not shrink is stored raw.
#![allow(unsafe_code)]

use super::geometry::{Predictor, TILE_VALUES, Tile};
use super::holes::{Escapes, Mask, bits_of, bridge, chunk_index};
use super::lorenzo::{self, Carry, Codes, Quantization};
use super::planes::{Content, Planes, check_end, too_short};
use crate::error::{Error, Result};
use crate::num::simd::{SUPER, Simd, prefetch};
use crate::num::{Int, Real, Value};
use crate::plan::quantize::{Quantizer, restore};

const KIND: u8 = 3;
const QUANTISED: u8 = 0;
const EXACT: u8 = 1;
const RAW: u8 = 2;
const WIDE_BASE: u8 = 4;
const SPARSE: u8 = 8;
const NO_PLANES: u8 = 16;
const MASK_0: u8 = 32;
const ESCAPES: u8 = 128;

/// The most fill values that a stream may have.
pub(crate) const MAX_FILLS: usize = 2;

/// A tile with more than one escape per this many values is stored exactly instead.
const VALUES_PER_ESCAPE: usize = 16;

/// Working space of the tile coder, reused from tile to tile. Each array starts at a cache line.
#[repr(C, align(64))]
pub(crate) struct Workspace<T: Value> {
    codes: Codes<T>,
    /// Integers of a tile that is not coded by the fused kernel.
    integers: Codes<T>,
    carry: Carry<T>,
    planes: Planes,
    holes: Vec<u16>,
}

impl<T: Value> Workspace<T> {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self {
            codes: [T::Int::default(); TILE_VALUES + 64],
            integers: [T::Int::default(); TILE_VALUES + 64],
            carry: Carry::new(),
            planes: Planes::new(),
            holes: Vec::new(),
        })
    }
}

/// Encodes tiles; the fields are the same for all tiles of a chunk.
pub(crate) struct TileEncoder<'a, T> {
    pub(crate) predictor: Predictor,
    /// `None`: every value is stored exactly.
    pub(crate) quantizer: Option<Quantizer<T>>,
    pub(crate) fills: &'a [T],
}

impl<T: Real> TileEncoder<'_, T> {
    /// Appends the body of one tile, a multiple of 4 bytes; nothing for a tile of zeros. `next` is the offset of the
    /// next tile, which is prefetched.
    ///
    /// # Safety
    /// The machine has instruction set S; `tile` lies within `values`.
    #[inline(always)]
    pub(crate) unsafe fn encode<S: Simd<T>>(
        &self,
        values: &[T],
        tile: &Tile,
        next: usize,
        work: &mut Workspace<T>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if let Some(quantizer) = &self.quantizer
            && let Some(first) = quantizer.quantize(values[tile.offset])
            // SAFETY: this function's own contract.
            && !unsafe { self.has_fill::<S>(values, tile) }
        {
            let base = self.base(first);
            // SAFETY: this function's own contract.
            unsafe {
                let Workspace { codes, carry, planes, .. } = &mut *work;
                let with = Quantization { quantizer, base };
                if lorenzo::quantize_differences::<S, T>(values, tile, next, self.predictor, with, carry, codes) {
                    write_base::<T>(QUANTISED, base, out);
                    // A residual sums up to eight integers (3 bits); zigzag adds the sign bit.
                    let max_width = T::MANTISSA_BITS - 1 + 3 + 1;
                    if finish_planes::<S, T>(planes, codes, tile, max_width, start, out) {
                        store_raw_if_smaller(values, tile, start, out);
                        return;
                    }
                }
            }
        }
        prefetch_tile(values, tile, next);
        // SAFETY: as above.
        unsafe { self.encode_carefully::<S>(values, tile, work, out) }
        store_raw_if_smaller(values, tile, start, out);
    }

    /// Whether some value of the tile is a fill value that the quantiser might take for an ordinary one.
    ///
    /// # Safety
    /// As [`TileEncoder::encode`].
    #[inline(always)]
    unsafe fn has_fill<S: Simd<T>>(&self, values: &[T], tile: &Tile) -> bool {
        self.fills.iter().filter(|fill| !fill.is_nan()).any(|fill| {
            tile.rows().any(|(from, _)| {
                let row = &values[from..from + tile.ex];
                // SAFETY: the caller has S.
                row.chunks(SUPER).any(|values| unsafe { equal_bits::<S, T>(values, *fill) } != 0)
            })
        })
    }

    /// The base of a tile. Without differences it is 0, since such data is mostly centred there.
    #[inline(always)]
    fn base(&self, first: T::Int) -> T::Int {
        if self.predictor.axes == 0 { T::Int::default() } else { first }
    }

    /// # Safety
    /// As [`TileEncoder::encode`].
    #[inline(always)]
    unsafe fn encode_carefully<S: Simd<T>>(
        &self,
        values: &[T],
        tile: &Tile,
        work: &mut Workspace<T>,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let base = match &self.quantizer {
            // SAFETY: the caller's contract.
            Some(quantizer) => match unsafe { self.quantize_with_holes::<S>(quantizer, values, tile, work) } {
                Some((first, masks)) => {
                    let base = self.base(first);
                    write_base::<T>(QUANTISED, base, out);
                    self.write_holes(values, tile, &masks, &work.holes, start, out);
                    base
                }
                None => self.exact_integers(values, tile, work, out),
            },
            None => self.exact_integers(values, tile, work, out),
        };
        work.integers[..tile.n_codes()].iter_mut().for_each(|q| *q = q.sub(base));
        // SAFETY: the caller has S.
        unsafe {
            let Workspace { codes, integers, carry, planes, .. } = work;
            lorenzo::difference_integers::<S, T>(integers, tile, self.predictor, carry, codes);
            let complete = finish_planes::<S, T>(planes, codes, tile, T::Int::BITS, start, out);
            debug_assert!(complete, "no code is wider than its type");
        }
    }

    /// Replaces values by integers in the order of their bits, which lose nothing; returns the base.
    fn exact_integers(&self, values: &[T], tile: &Tile, work: &mut Workspace<T>, out: &mut Vec<u8>) -> T::Int {
        for (from, to) in tile.rows() {
            for (q, value) in work.integers[to..].iter_mut().zip(&values[from..from + tile.ex]) {
                *q = value.to_ordered();
            }
        }
        let base = self.base(work.integers[0]);
        write_base::<T>(EXACT, base, out);
        base
    }

    /// Quantises a tile with holes: fill values and escapes get the integer of a neighbour. Returns the first integer
    /// and a mask for each fill value, or `None` if there are too many escapes.
    ///
    /// # Safety
    /// As [`TileEncoder::encode`].
    #[inline(always)]
    unsafe fn quantize_with_holes<S: Simd<T>>(
        &self,
        quantizer: &Quantizer<T>,
        values: &[T],
        tile: &Tile,
        work: &mut Workspace<T>,
    ) -> Option<(T::Int, [Mask; MAX_FILLS])> {
        let mut masks = [Mask::default(); MAX_FILLS];
        let max_escapes = tile.n_values() / VALUES_PER_ESCAPE;
        work.holes.clear();
        let mut first = None;
        for (from, to) in tile.rows() {
            for x in (0..tile.ex).step_by(SUPER) {
                let values = &values[from + x..][..SUPER.min(tile.ex - x)];
                let at = to + x;
                let mut holes = 0;
                for (fill, mask) in self.fills.iter().zip(&mut masks) {
                    // SAFETY: the caller has S.
                    let equal = unsafe { equal_bits::<S, T>(values, *fill) };
                    mask.set(at, equal);
                    holes |= equal;
                }
                let integers = &mut work.integers[at..];
                // SAFETY: the caller has S. The next row overwrites what this one writes beyond its end; the array has
                // room beyond the last row.
                let undecided = unsafe { quantizer.quantize_run::<S>(values, integers.as_mut_ptr()) } & !holes;
                for i in bits_of(undecided) {
                    match quantizer.quantize(values[i]) {
                        Some(q) => integers[i] = q,
                        None => {
                            holes |= 1 << i;
                            work.holes.push((at + i) as u16);
                        }
                    }
                }
                if work.holes.len() > max_escapes {
                    return None;
                }
                if first.is_none() && holes.count_ones() < values.len() as u32 {
                    let q = integers[holes.trailing_ones() as usize];
                    first = Some(q);
                    // Holes before the first integer take its value, so that they cost nothing.
                    work.integers[..at].fill(q);
                }
                if holes != 0 {
                    let before = match (x, to) {
                        (0, 0) => first.unwrap_or_default(),
                        (0, _) => work.integers[at - tile.row()],
                        _ => work.integers[at - 1],
                    };
                    bridge::<T>(holes, before, &mut work.integers[at..][..values.len()]);
                }
            }
        }
        // In a tile of holes only, any constant will do.
        Some((first.unwrap_or_default(), masks))
    }

    fn write_holes(
        &self,
        values: &[T],
        tile: &Tile,
        masks: &[Mask; MAX_FILLS],
        holes: &[u16],
        start: usize,
        out: &mut Vec<u8>,
    ) {
        for (fill, mask) in masks.iter().enumerate() {
            if mask.write_to(tile, out) {
                out[start] |= MASK_0 << fill;
            }
        }
        if !holes.is_empty() {
            out[start] |= ESCAPES;
            out.extend_from_slice(&(holes.len() as u16).to_le_bytes());
            holes.iter().for_each(|at| out.extend_from_slice(&at.to_le_bytes()));
            for at in holes {
                T::extend_le_bytes(&[values[chunk_index(tile, usize::from(*at))]], out);
            }
        }
    }
}

/// A bit for each of at most 64 values, set where the value equals `fill` bit for bit.
///
/// # Safety
/// The machine has instruction set S.
#[inline(always)]
unsafe fn equal_bits<S: Simd<T>, T: Value>(values: &[T], fill: T) -> u64 {
    // SAFETY: the caller has S; values are read only within the slice.
    unsafe {
        let fill = S::splat_int(fill.bits());
        let mut equal = 0;
        for at in (0..values.len()).step_by(S::LANES) {
            let n = S::LANES.min(values.len() - at);
            let lanes = S::equal_lanes(S::bits(S::load_first(values.as_ptr().add(at), n)), fill);
            // Lanes past the values are 0, which may be the fill value.
            equal |= u64::from(lanes & ((1 << n) - 1)) << at;
        }
        equal
    }
}

/// Prefetches the tile that starts at `next`, as if it had the extents of this one.
#[inline(always)]
fn prefetch_tile<T>(values: &[T], tile: &Tile, next: usize) {
    for (at, _) in tile.rows() {
        let row = values.as_ptr().wrapping_add(next + at - tile.offset);
        for x in (0..tile.ex).step_by(64 / size_of::<T>()) {
            prefetch(row.wrapping_add(x));
        }
    }
}

/// Writes flags and base. Other flags are added when their fields are written.
#[inline(always)]
fn write_base<T: Real>(kind: u8, base: T::Int, out: &mut Vec<u8>) {
    let base = base.to_i64();
    if (-(1 << 23)..1 << 23).contains(&base) {
        out.extend_from_slice(&((base as u32) << 8 | u32::from(kind)).to_le_bytes());
    } else {
        out.extend_from_slice(&u32::from(kind | WIDE_BASE).to_le_bytes());
        out.extend_from_slice(&base.to_le_bytes()[..size_of::<T>()]);
    }
}

/// Writes planes, padding and their flags. Removes the body again if all codes are zero. If a code is wider than
/// `max_width`, removes it and returns false.
///
/// # Safety
/// The machine has instruction set S.
#[inline(always)]
unsafe fn finish_planes<S: Simd<T>, T: Real>(
    planes: &mut Planes,
    codes: &mut Codes<T>,
    tile: &Tile,
    max_width: u32,
    start: usize,
    out: &mut Vec<u8>,
) -> bool {
    // SAFETY: the caller has S.
    match unsafe { planes.encode::<S, T>(codes, tile.n_codes(), max_width, out) } {
        Content::TooWide => {
            out.truncate(start);
            return false;
        }
        Content::Nothing => out[start] |= NO_PLANES,
        Content::Sparse => out[start] |= SPARSE,
        Content::Dense => {}
    }
    if out[start..] == [NO_PLANES, 0, 0, 0] || out[start..] == [NO_PLANES | EXACT, 0, 0, 0] {
        out.truncate(start);
    }
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    true
}

/// Replaces the body by the values themselves if those are not larger.
#[inline(always)]
fn store_raw_if_smaller<T: Real>(values: &[T], tile: &Tile, start: usize, out: &mut Vec<u8>) {
    let raw_bytes = 4 + tile.n_values() * size_of::<T>();
    if out.len() - start > raw_bytes {
        out.truncate(start);
        out.extend_from_slice(&u32::from(RAW).to_le_bytes());
        for (from, _) in tile.rows() {
            T::extend_le_bytes(&values[from..from + tile.ex], out);
        }
    }
}

/// Decodes tiles; the fields are the same for all tiles of a chunk.
pub(crate) struct TileDecoder<'a, T> {
    pub(crate) predictor: Predictor,
    pub(crate) step: Option<T>,
    pub(crate) fills: &'a [T],
}

impl<T: Real> TileDecoder<'_, T> {
    /// Decodes the body of one tile to its position in `out`.
    ///
    /// # Safety
    /// The machine has instruction set S; `tile` lies within `out`; `SLACK` bytes behind `body` are readable.
    #[inline(always)]
    pub(crate) unsafe fn decode<S: Simd<T>>(
        &self,
        body: &[u8],
        tile: &Tile,
        next: usize,
        work: &mut Workspace<T>,
        out: &mut [T],
    ) -> Result<()> {
        let Some((head, mut rest)) = body.split_first_chunk::<4>() else {
            return fill_tile(T::default(), tile, out);
        };
        let flags = head[0];
        let mut base = T::Int::from_i64(i64::from(i32::from_le_bytes(*head) >> 8));
        if flags & KIND == RAW {
            return decode_raw(flags, base, rest, tile, out);
        }
        if flags & WIDE_BASE != 0 {
            let (bytes, after) = rest.split_at_checked(size_of::<T>()).ok_or_else(too_short)?;
            if base != T::Int::default() {
                return Err(Error::corrupt("tile has two bases"));
            }
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            base = T::Int::from_i64(i64::from_le_bytes(wide));
            rest = after;
        }
        let holes = rest;
        if flags & (MASK_0 | MASK_0 << 1 | ESCAPES) != 0 {
            rest = self.holes_end(flags, rest, tile)?;
        }
        if flags & NO_PLANES != 0 {
            check_end(rest, 0)?;
            if flags & SPARSE != 0 {
                return Err(Error::corrupt("tile both has and lacks planes"));
            }
            fill_tile(self.value(flags & KIND, base)?, tile, out)?;
        } else {
            // SAFETY: this function's own contract.
            unsafe {
                work.planes.decode::<S, T>(rest, flags & SPARSE != 0, tile.n_codes(), &mut work.codes)?;
                self.restore::<S>(flags & KIND, base, tile, next, work, out)?;
            }
        }
        if flags & (MASK_0 | MASK_0 << 1 | ESCAPES) != 0 {
            self.apply_holes(flags, holes, tile, out)?;
        }
        Ok(())
    }

    /// The value that integer `q` stands for.
    #[inline(always)]
    fn value(&self, kind: u8, q: T::Int) -> Result<T> {
        match (kind, self.step) {
            (QUANTISED, Some(step)) => Ok(restore(q, step)),
            (EXACT, _) => Ok(T::of_ordered(q)),
            _ => Err(wrong_kind()),
        }
    }

    /// # Safety
    /// As [`TileDecoder::decode`].
    #[inline(always)]
    unsafe fn restore<S: Simd<T>>(
        &self,
        kind: u8,
        base: T::Int,
        tile: &Tile,
        next: usize,
        work: &mut Workspace<T>,
        out: &mut [T],
    ) -> Result<()> {
        let step = match (kind, self.step) {
            (EXACT, _) => T::default(),
            (QUANTISED, Some(step)) => step,
            _ => return Err(wrong_kind()),
        };
        let Workspace { codes, carry, .. } = work;
        // SAFETY: the caller's contract.
        let done = unsafe {
            let (predictor, with) = (self.predictor, (step, base));
            if kind == EXACT {
                lorenzo::sum_restore::<S, T, true>(codes, tile, next, predictor, with, carry, out)
            } else {
                lorenzo::sum_restore::<S, T, false>(codes, tile, next, predictor, with, carry, out)
            }
        };
        if !done {
            lorenzo::sum_passes::<T>(codes, tile, self.predictor);
            for (to, from) in tile.rows() {
                let row = out[to..to + tile.ex].iter_mut().zip(&codes[from..]);
                match kind {
                    EXACT => row.for_each(|(value, q)| *value = T::of_ordered(q.add(base))),
                    _ => row.for_each(|(value, q)| *value = restore(q.add(base), step)),
                }
            }
        }
        Ok(())
    }

    /// Checks masks and escapes; returns the rest of the body.
    #[cold]
    fn holes_end<'a>(&self, flags: u8, mut rest: &'a [u8], tile: &Tile) -> Result<&'a [u8]> {
        if flags & KIND != QUANTISED {
            return Err(Error::corrupt("an exact tile has masks or escapes"));
        }
        for fill in 0..MAX_FILLS {
            if flags & MASK_0 << fill != 0 {
                if fill >= self.fills.len() {
                    return Err(Error::corrupt("tile masks a fill value that the header lacks"));
                }
                rest = Mask::read_from(rest, tile)?.1;
            }
        }
        if flags & ESCAPES != 0 {
            let escapes = Escapes::read_from(rest, size_of::<T>())?;
            escapes.check(tile)?;
            rest = escapes.rest;
        }
        Ok(rest)
    }

    #[cold]
    fn apply_holes(&self, flags: u8, mut rest: &[u8], tile: &Tile, out: &mut [T]) -> Result<()> {
        for (fill, value) in self.fills.iter().enumerate() {
            if flags & MASK_0 << fill != 0 {
                let (mask, after) = Mask::read_from(rest, tile)?;
                mask.apply(tile, *value, out);
                rest = after;
            }
        }
        if flags & ESCAPES != 0 {
            Escapes::read_from(rest, size_of::<T>())?.apply(tile, out);
        }
        Ok(())
    }
}

#[cold]
fn wrong_kind() -> Error {
    Error::corrupt("tile has a kind that this stream cannot have")
}

#[inline(always)]
fn fill_tile<T: Copy>(value: T, tile: &Tile, out: &mut [T]) -> Result<()> {
    for (to, _) in tile.rows() {
        out[to..to + tile.ex].fill(value);
    }
    Ok(())
}

fn decode_raw<T: Real>(flags: u8, base: T::Int, rest: &[u8], tile: &Tile, out: &mut [T]) -> Result<()> {
    let row_bytes = tile.ex * size_of::<T>();
    if flags != RAW || base != T::Int::default() || rest.len() != tile.n_values() * size_of::<T>() {
        return Err(Error::corrupt("raw tile has the wrong size or flags"));
    }
    for ((to, _), bytes) in tile.rows().zip(rest.chunks_exact(row_bytes)) {
        T::copy_from_le_bytes(bytes, &mut out[to..to + tile.ex]);
    }
    Ok(())
}
