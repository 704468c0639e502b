//! Values -> codes and back: quantisation fused with Lorenzo differences over one tile.
//!
//! The N-dimensional Lorenzo residual is the first difference taken along each axis in turn, with zeros outside the
//! tile; restoring is the partial sum along each axis. The kernels here keep one row and one plane of intermediate
//! differences, so that each value is loaded and stored once. `difference_codes` and `sum_codes` are the same mathematics
//! pass by pass on integers, for tiles that need more than the kernels offer, and as the reference for them.
#![allow(unsafe_code)]

use super::geometry::{Predictor, TILE_VALUES, Tile, X, XX, Y, Z};
use super::simd::{Simd, prefetch, prefetch_write};
use super::value::{Int, Value};
use crate::quantize::Quantizer;

/// Widest vector, and thus the most lanes a row may be overrun by.
const MAX_LANES: usize = 16;

/// Intermediate differences: one row, and one plane whose rows are padded to whole vectors.
#[repr(align(64))]
pub(crate) struct Carry<T: Value> {
    row: [T::Int; TILE_VALUES + MAX_LANES],
    // The most rows are 512 of 8 values each, padded to 16.
    plane: [T::Int; 2 * TILE_VALUES + MAX_LANES],
}

impl<T: Value> Carry<T> {
    pub(crate) fn new() -> Self {
        Self {
            row: [T::Int::default(); TILE_VALUES + MAX_LANES],
            plane: [T::Int::default(); 2 * TILE_VALUES + MAX_LANES],
        }
    }
}

/// Codes of one tile, with room to overrun.
pub(crate) type Codes<T> = [<T as Value>::Int; TILE_VALUES + 64];

/// Runs `$kernel::<S, T, AXES>` for the axes of a predictor.
macro_rules! with_axes {
    ($axes:expr, $kernel:ident::<$S:ident, $T:ident>($($arg:expr),*)) => {
        match $axes {
            0 => $kernel::<$S, $T, 0>($($arg),*),
            1 => $kernel::<$S, $T, 1>($($arg),*),
            2 => $kernel::<$S, $T, 2>($($arg),*),
            3 => $kernel::<$S, $T, 3>($($arg),*),
            4 => $kernel::<$S, $T, 4>($($arg),*),
            5 => $kernel::<$S, $T, 5>($($arg),*),
            6 => $kernel::<$S, $T, 6>($($arg),*),
            7 => $kernel::<$S, $T, 7>($($arg),*),
            9 => $kernel::<$S, $T, 9>($($arg),*),
            11 => $kernel::<$S, $T, 11>($($arg),*),
            13 => $kernel::<$S, $T, 13>($($arg),*),
            _ => $kernel::<$S, $T, 15>($($arg),*),
        }
    };
}

/// Quantises a tile and writes the codes of its residuals; asks for the memory of the tile that starts at `next`, since
/// its many short rows are more streams than the hardware follows. Returns false, with `codes` undefined, if some value cannot
/// be quantised or the predictor has a lag: then the tile must be coded the careful way.
///
/// # Safety
/// The machine has instruction set S; `tile` lies within `values`.
#[inline(always)]
pub(crate) unsafe fn quantize_differences<S: Simd<T>, T: Value>(
    values: &[T],
    tile: &Tile,
    next: usize,
    predictor: Predictor,
    quantizer: &Quantizer<T>,
    base: T::Int,
    carry: &mut Carry<T>,
    codes: &mut Codes<T>,
) -> bool {
    if predictor.lag > 1 {
        return false;
    }
    // SAFETY: passed on to the kernel.
    unsafe { with_axes!(predictor.axes, quantize_kernel::<S, T>(values, tile, next, quantizer, base, carry, codes)) }
}

/// Inverse of [`quantize_differences`]: codes to values in place of the tile in `out`.
///
/// # Safety
/// The machine has instruction set S; `tile` lies within `out`; the predictor has lag 1.
#[inline(always)]
pub(crate) unsafe fn sum_restore<S: Simd<T>, T: Value>(
    codes: &Codes<T>,
    tile: &Tile,
    next: usize,
    predictor: Predictor,
    step: T,
    base: T::Int,
    carry: &mut Carry<T>,
    out: &mut [T],
) {
    debug_assert_eq!(predictor.lag, 1);
    // SAFETY: passed on to the kernel.
    unsafe { with_axes!(predictor.axes, restore_kernel::<S, T>(codes, tile, next, step, base, carry, out)) }
}

/// Rounds and checks one vector. See `quantize.rs` for the proof; `Quantizer::quantize` is the same for one value.
#[inline(always)]
unsafe fn quantize_vector<S: Simd<T>, T: Value>(x: S::F, c: &Constants<S, T>) -> Option<S::I> {
    // SAFETY: the caller has instruction set S.
    unsafe {
        let mut s = S::add(S::mul(x, c.inv_step), c.magic);
        let d = S::sub(x, S::mul(S::sub(s, c.magic), c.step));
        if S::any_over(d, c.tolerance) {
            s = S::nudge(s, d, c.tolerance);
            let d = S::sub(x, S::mul(S::sub(s, c.magic), c.step));
            if S::any_over(d, c.tolerance) {
                return None;
            }
        }
        Some(S::sub_int(S::bits(s), c.magic_and_base))
    }
}

struct Constants<S: Simd<T>, T: Value> {
    inv_step: S::F,
    step: S::F,
    tolerance: S::F,
    magic: S::F,
    magic_and_base: S::I,
    zero: S::I,
}

#[inline(always)]
unsafe fn quantize_kernel<S: Simd<T>, T: Value, const AXES: u8>(
    values: &[T],
    tile: &Tile,
    next: usize,
    quantizer: &Quantizer<T>,
    base: T::Int,
    carry: &mut Carry<T>,
    codes: &mut Codes<T>,
) -> bool {
    // SAFETY: the caller has S. Vectors are read only within the tile's rows. Codes are written at most MAX_LANES beyond the tile's last, where the array has room.
    unsafe {
        let c = Constants::<S, T> {
            inv_step: S::splat(quantizer.inv_step),
            step: S::splat(quantizer.step),
            tolerance: S::splat(quantizer.tolerance),
            magic: S::splat(T::MAGIC),
            magic_and_base: S::splat_int(T::MAGIC.bits().add(base)),
            zero: S::splat_int(T::Int::default()),
        };
        let lanes = S::LANES;
        let row = tile.row();
        let padded_row = tile.ex.next_multiple_of(lanes);
        let n_whole = tile.ex / lanes * lanes;
        let rest = tile.ex - n_whole;
        let carry_row = carry.row.as_mut_ptr();
        let carry_plane = carry.plane.as_mut_ptr();
        if AXES & Z != 0 {
            carry.plane[..tile.ey * padded_row].fill(T::Int::default());
        }
        for z in 0..tile.ez {
            if AXES & Y != 0 {
                carry.row[..padded_row].fill(T::Int::default());
            }
            for y in 0..tile.ey {
                let line = z * tile.stride_z + y * tile.stride_y;
                let from = values.as_ptr().add(tile.offset + line);
                let ahead = values.as_ptr().wrapping_add(next + line);
                let to = codes.as_mut_ptr().add((z * tile.ey + y) * row);
                let plane = carry_plane.add(y * padded_row);
                let mut before = c.zero;
                let mut before_first = c.zero;
                macro_rules! code {
                    ($v:expr, $at:expr, $code:ident => $stored:expr) => {{
                        let Some(v) = quantize_vector::<S, T>($v, &c) else { return false };
                        let mut d = v;
                        if AXES & X != 0 {
                            d = S::sub_int(v, S::shift_in(before, v));
                            before = v;
                        }
                        if AXES & XX != 0 {
                            let first = d;
                            d = S::sub_int(first, S::shift_in(before_first, first));
                            before_first = first;
                        }
                        if AXES & Y != 0 {
                            let above = S::load_int(carry_row.add($at));
                            S::store_int(carry_row.add($at), d);
                            d = S::sub_int(d, above);
                        }
                        if AXES & Z != 0 {
                            let behind = S::load_int(plane.add($at));
                            S::store_int(plane.add($at), d);
                            d = S::sub_int(d, behind);
                        }
                        let $code = S::zigzag(d);
                        S::store_int(to.add($at), $stored);
                    }};
                }
                let mut at = 0;
                while at < n_whole {
                    prefetch(ahead.wrapping_add(at));
                    code!(S::load(from.add(at)), at, code => code);
                    at += lanes;
                }
                if rest > 0 {
                    // Lanes past the row are 0, which can always be quantised; their codes become the padding.
                    prefetch(ahead.wrapping_add(at));
                    code!(S::load_first(from.add(at), rest), at, code => S::keep_first(code, rest));
                }
            }
        }
        true
    }
}

#[inline(always)]
unsafe fn restore_kernel<S: Simd<T>, T: Value, const AXES: u8>(
    codes: &Codes<T>,
    tile: &Tile,
    next: usize,
    step: T,
    base: T::Int,
    carry: &mut Carry<T>,
    out: &mut [T],
) {
    // SAFETY: as in `quantize_kernel`, with reading and writing exchanged.
    unsafe {
        let step = S::splat(step);
        let magic = S::splat(T::MAGIC);
        let magic_and_base = S::splat_int(T::MAGIC.bits().add(base));
        let zero = S::splat_int(T::Int::default());
        let lanes = S::LANES;
        let row = tile.row();
        let padded_row = tile.ex.next_multiple_of(lanes);
        let n_whole = tile.ex / lanes * lanes;
        let rest = tile.ex - n_whole;
        let carry_row = carry.row.as_mut_ptr();
        let carry_plane = carry.plane.as_mut_ptr();
        if AXES & Z != 0 {
            carry.plane[..tile.ey * padded_row].fill(T::Int::default());
        }
        for z in 0..tile.ez {
            if AXES & Y != 0 {
                carry.row[..padded_row].fill(T::Int::default());
            }
            for y in 0..tile.ey {
                let from = codes.as_ptr().add((z * tile.ey + y) * row);
                let line = z * tile.stride_z + y * tile.stride_y;
                let to = out.as_mut_ptr().add(tile.offset + line);
                let ahead = out.as_ptr().wrapping_add(next + line);
                let plane = carry_plane.add(y * padded_row);
                // Sums along x so far, the last of them in all lanes; the base rides along with the outermost.
                let mut sum = if AXES & X != 0 { magic_and_base } else { zero };
                let mut sum_first = zero;
                macro_rules! value {
                    ($at:expr) => {{
                        let mut d = S::unzigzag(S::load_int(from.add($at)));
                        if AXES & Z != 0 {
                            d = S::add_int(d, S::load_int(plane.add($at)));
                            S::store_int(plane.add($at), d);
                        }
                        if AXES & Y != 0 {
                            d = S::add_int(d, S::load_int(carry_row.add($at)));
                            S::store_int(carry_row.add($at), d);
                        }
                        if AXES & XX != 0 {
                            d = S::add_int(S::prefix_sum(d), sum_first);
                            sum_first = S::broadcast_last(d);
                        }
                        if AXES & X != 0 {
                            let local = S::prefix_sum(d);
                            d = S::add_int(local, sum);
                            // From the local sum: keeps the chain between vectors to a single addition.
                            sum = S::add_int(sum, S::broadcast_last(local));
                        } else {
                            d = S::add_int(d, magic_and_base);
                        }
                        S::mul(S::sub(S::of_bits(d), magic), step)
                    }};
                }
                let mut at = 0;
                while at < n_whole {
                    prefetch_write(ahead.wrapping_add(at));
                    S::store(to.add(at), value!(at));
                    at += lanes;
                }
                if rest > 0 {
                    prefetch_write(ahead.wrapping_add(at));
                    S::store_first(to.add(at), rest, value!(at));
                }
                let _ = (sum, sum_first);
            }
        }
    }
}

/// Residuals of integers, in place, then their codes; padding becomes 0. `codes` holds q - base.
pub(crate) fn difference_codes<T: Value>(codes: &mut Codes<T>, tile: &Tile, predictor: Predictor) {
    let (row, ex) = (tile.row(), tile.ex);
    let codes = &mut codes[..tile.n_codes()];
    let along_x = |codes: &mut [T::Int], lag: usize| {
        for values in codes.chunks_exact_mut(row) {
            for x in (lag..ex).rev() {
                values[x] = values[x].sub(values[x - lag]);
            }
        }
    };
    if predictor.axes & X != 0 {
        along_x(codes, predictor.lag);
    }
    if predictor.axes & XX != 0 {
        along_x(codes, 1);
    }
    if predictor.axes & Y != 0 {
        for plane in codes.chunks_exact_mut(tile.ey * row) {
            for i in (row..plane.len()).rev() {
                plane[i] = plane[i].sub(plane[i - row]);
            }
        }
    }
    if predictor.axes & Z != 0 {
        let plane = tile.ey * row;
        for i in (plane..codes.len()).rev() {
            codes[i] = codes[i].sub(codes[i - plane]);
        }
    }
    for values in codes.chunks_exact_mut(row) {
        values[..ex].iter_mut().for_each(|v| *v = v.zigzag());
        values[ex..].fill(T::Int::default());
    }
}

/// Inverse of [`difference_codes`]: codes to q - base, in place.
pub(crate) fn sum_codes<T: Value>(codes: &mut Codes<T>, tile: &Tile, predictor: Predictor) {
    let row = tile.row();
    let codes = &mut codes[..tile.n_codes()];
    codes.iter_mut().for_each(|v| *v = v.unzigzag());
    let plane = tile.ey * row;
    if predictor.axes & Z != 0 {
        for i in plane..codes.len() {
            codes[i] = codes[i].add(codes[i - plane]);
        }
    }
    if predictor.axes & Y != 0 {
        for plane in codes.chunks_exact_mut(plane) {
            for i in row..plane.len() {
                plane[i] = plane[i].add(plane[i - row]);
            }
        }
    }
    for _ in 0..u8::from(predictor.axes & X != 0) + u8::from(predictor.axes & XX != 0) {
        for values in codes.chunks_exact_mut(row) {
            for x in predictor.lag..row {
                values[x] = values[x].add(values[x - predictor.lag]);
            }
        }
    }
}
