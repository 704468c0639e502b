//! Values -> codes and back: quantisation fused with Lorenzo differences over one tile.
//!
//! The N-dimensional Lorenzo residual is the first difference taken along each axis in turn, with zeros outside the
//! tile; restoring is the partial sum along each axis. The kernels keep one row and one plane of intermediate
//! differences, so that each value is loaded and stored once. There is one kernel for each direction. Its parameters
//! are the axes, and whether it reads or writes values or, for tiles with holes, integers. Lags, and predictors that
//! the encoder never chooses, take one pass per axis (`difference_passes`, `sum_passes`); tests compare the kernels
//! with these passes.
#![allow(unsafe_code)]

use super::geometry::{Predictor, TILE_VALUES, Tile, X, XX, Y, Z};
use crate::num::simd::{MAX_LANES, Simd, prefetch, prefetch_write};
use crate::num::{Int, Value};
use crate::plan::Quantizer;

/// Intermediate differences: one row, and one plane whose rows are padded to whole vectors. Kernels may write one
/// vector beyond the end of a row.
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

/// Codes or integers of one tile by linear index, with room for a vector beyond the end.
pub(crate) type Codes<T> = [<T as Value>::Int; TILE_VALUES + 64];

/// Runs `$kernel` for the axes of a predictor, or `$otherwise` if there is no kernel for it.
macro_rules! with_axes {
    ($predictor:expr, $axes:ident => $kernel:expr, $otherwise:expr) => {
        match $predictor {
            Predictor { lag: 2.., .. } => $otherwise,
            Predictor { axes: 0, .. } => {
                const $axes: u8 = 0;
                $kernel
            }
            Predictor { axes: X, .. } => {
                const $axes: u8 = X;
                $kernel
            }
            Predictor { axes: 9, .. } => {
                const $axes: u8 = X | XX;
                $kernel
            }
            Predictor { axes: Y, .. } => {
                const $axes: u8 = Y;
                $kernel
            }
            Predictor { axes: 3, .. } => {
                const $axes: u8 = X | Y;
                $kernel
            }
            Predictor { axes: 6, .. } => {
                const $axes: u8 = Y | Z;
                $kernel
            }
            Predictor { axes: 7, .. } => {
                const $axes: u8 = X | Y | Z;
                $kernel
            }
            _ => $otherwise,
        }
    };
}

/// Quantiser and base of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Quantization<'a, T: Value> {
    pub(crate) quantizer: &'a Quantizer<T>,
    pub(crate) base: T::Int,
}

/// Quantises a tile and writes the codes of its residuals; prefetches the tile that starts at `next`, because it has
/// more rows than the hardware prefetcher tracks. Returns false, with `codes` undefined, if some value cannot be
/// quantised or there is no kernel for the predictor. The caller then codes the tile with holes.
///
/// # Safety
/// The machine has instruction set S; `tile` lies within `values`.
#[inline(always)]
pub(crate) unsafe fn quantize_differences<S: Simd<T>, T: Value>(
    values: &[T],
    tile: &Tile,
    next: usize,
    predictor: Predictor,
    with: Quantization<'_, T>,
    carry: &mut Carry<T>,
    codes: &mut Codes<T>,
) -> bool {
    // SAFETY: the caller has S and its tile lies within the values.
    unsafe {
        let input = Values::<S, T>::new(values, tile, next, with);
        with_axes!(predictor, AXES => difference_kernel::<S, T, _, AXES>(input, tile, carry, codes), false)
    }
}

/// Writes the codes of the residuals of `integers`, which are stored by linear index, with the base already subtracted.
///
/// # Safety
/// The machine has instruction set S.
#[inline(always)]
pub(crate) unsafe fn difference_integers<S: Simd<T>, T: Value>(
    integers: &Codes<T>,
    tile: &Tile,
    predictor: Predictor,
    carry: &mut Carry<T>,
    codes: &mut Codes<T>,
) {
    // SAFETY: the caller has S.
    unsafe {
        let input = Integers { first: integers.as_ptr(), row: integers.as_ptr() };
        with_axes!(
            predictor,
            AXES => { difference_kernel::<S, T, _, AXES>(input, tile, carry, codes); },
            difference_passes::<T>(integers, tile, predictor, codes)
        );
    }
}

/// Inverse of [`quantize_differences`]: turns codes into the values of the tile in `out`. `EXACT` tiles have integers
/// in the order of the values' bits instead of quantised ones. Returns false if there is no kernel for the predictor.
///
/// # Safety
/// The machine has instruction set S; `tile` lies within `out`.
#[inline(always)]
pub(crate) unsafe fn sum_restore<S: Simd<T>, T: Value, const EXACT: bool>(
    codes: &Codes<T>,
    tile: &Tile,
    next: usize,
    predictor: Predictor,
    (step, base): (T, T::Int),
    carry: &mut Carry<T>,
    out: &mut [T],
) -> bool {
    // SAFETY: passed on to the kernel.
    unsafe {
        with_axes!(predictor, AXES => {
            sum_kernel::<S, T, EXACT, AXES>(codes, tile, next, (step, base), carry, out);
            true
        }, false)
    }
}

/// Where [`difference_kernel`] takes its integers from.
///
/// # Safety
/// As [`Simd`]; `at + lanes` stays within the row.
trait Input<S: Simd<T>, T: Value> {
    /// Starts a row: `line` is its distance from the tile's first value in the chunk, `linear` its linear index.
    unsafe fn turn_to(&mut self, line: usize, linear: usize);
    /// The next whole vector of the row; `None` if some value cannot be quantised.
    unsafe fn whole(&self, at: usize) -> Option<S::I>;
    /// The last `rest` values of the row.
    unsafe fn rest(&self, at: usize, rest: usize) -> Option<S::I>;
}

/// Values, quantised as they are loaded.
struct Values<S: Simd<T>, T: Value> {
    values: *const T,
    row: *const T,
    next: *const T,
    ahead: *const T,
    inv_step: S::F,
    step: S::F,
    tolerance: S::F,
    magic: S::F,
    magic_and_base: S::I,
}

impl<S: Simd<T>, T: Value> Values<S, T> {
    #[inline(always)]
    unsafe fn new(values: &[T], tile: &Tile, next: usize, with: Quantization<'_, T>) -> Self {
        let first = values[tile.offset..].as_ptr();
        let next = values.as_ptr().wrapping_add(next);
        // SAFETY: the caller has S.
        unsafe {
            Self {
                values: first,
                row: first,
                next,
                ahead: next,
                inv_step: S::splat(with.quantizer.inv_step),
                step: S::splat(with.quantizer.step),
                tolerance: S::splat(with.quantizer.tolerance),
                magic: S::splat(T::MAGIC),
                magic_and_base: S::splat_int(T::MAGIC.bits().add(with.base)),
            }
        }
    }

    /// Rounds and checks one vector. See `quantize.rs` for the proof. `Quantizer::quantize` does the same for one
    /// value.
    #[inline(always)]
    unsafe fn quantize(&self, x: S::F) -> Option<S::I> {
        // SAFETY: the caller has S.
        unsafe {
            let mut s = S::add(S::mul(x, self.inv_step), self.magic);
            let d = S::sub(x, S::mul(S::sub(s, self.magic), self.step));
            if S::over_lanes(d, self.tolerance) != 0 {
                s = S::nudge(s, d, self.tolerance);
                let d = S::sub(x, S::mul(S::sub(s, self.magic), self.step));
                if S::over_lanes(d, self.tolerance) != 0 {
                    return None;
                }
            }
            Some(S::sub_int(S::bits(s), self.magic_and_base))
        }
    }
}

// SAFETY of the blocks below: the caller has S, and stays within rows that lie within the values.
impl<S: Simd<T>, T: Value> Input<S, T> for Values<S, T> {
    #[inline(always)]
    unsafe fn turn_to(&mut self, line: usize, _linear: usize) {
        self.row = self.values.wrapping_add(line);
        self.ahead = self.next.wrapping_add(line);
    }

    #[inline(always)]
    unsafe fn whole(&self, at: usize) -> Option<S::I> {
        prefetch(self.ahead.wrapping_add(at));
        // SAFETY: see above.
        unsafe { self.quantize(S::load(self.row.add(at))) }
    }

    #[inline(always)]
    unsafe fn rest(&self, at: usize, rest: usize) -> Option<S::I> {
        prefetch(self.ahead.wrapping_add(at));
        // SAFETY: see above. Lanes past the row are 0, which can always be quantised.
        unsafe { self.quantize(S::load_first(self.row.add(at), rest)) }
    }
}

/// Integers by linear index.
struct Integers<T: Value> {
    first: *const T::Int,
    row: *const T::Int,
}

impl<S: Simd<T>, T: Value> Input<S, T> for Integers<T> {
    #[inline(always)]
    unsafe fn turn_to(&mut self, _line: usize, linear: usize) {
        self.row = self.first.wrapping_add(linear);
    }

    #[inline(always)]
    unsafe fn whole(&self, at: usize) -> Option<S::I> {
        // SAFETY: within the integers, or the room behind them.
        Some(unsafe { S::load_int(self.row.add(at)) })
    }

    #[inline(always)]
    unsafe fn rest(&self, at: usize, _rest: usize) -> Option<S::I> {
        // SAFETY: as above; the kernel drops what is not of this row.
        Some(unsafe { S::load_int(self.row.add(at)) })
    }
}

/// Takes differences vector by vector. The state is what the next vectors of the row, the next row and the next plane
/// need.
struct Differences<S: Simd<T>, T: Value> {
    /// The previous vector, and its first difference.
    before: S::I,
    before_first: S::I,
    row: *mut T::Int,
    plane: *mut T::Int,
}

impl<S: Simd<T>, T: Value> Differences<S, T> {
    /// # Safety
    /// The machine has instruction set S; `row` and `plane` are valid for a vector at `at`.
    #[inline(always)]
    unsafe fn code<const AXES: u8>(&mut self, v: S::I, at: usize) -> S::I {
        // SAFETY: this function's own contract.
        unsafe {
            let mut d = v;
            if AXES & X != 0 {
                d = S::sub_int(v, S::shift_in(self.before, v));
                self.before = v;
            }
            if AXES & XX != 0 {
                let first = d;
                d = S::sub_int(first, S::shift_in(self.before_first, first));
                self.before_first = first;
            }
            if AXES & Y != 0 {
                let above = S::load_int(self.row.add(at));
                S::store_int(self.row.add(at), d);
                d = S::sub_int(d, above);
            }
            if AXES & Z != 0 {
                let behind = S::load_int(self.plane.add(at));
                S::store_int(self.plane.add(at), d);
                d = S::sub_int(d, behind);
            }
            S::zigzag(d)
        }
    }
}

/// Row by row: integers in, codes out. Returns false as soon as the input has no integer.
///
/// # Safety
/// The machine has instruction set S; the input covers the tile.
#[inline(always)]
unsafe fn difference_kernel<S: Simd<T>, T: Value, In: Input<S, T>, const AXES: u8>(
    mut input: In,
    tile: &Tile,
    carry: &mut Carry<T>,
    codes: &mut Codes<T>,
) -> bool {
    let lanes = S::LANES;
    let row = tile.row();
    let padded_row = tile.ex.next_multiple_of(lanes);
    let n_whole = tile.ex / lanes * lanes;
    let rest = tile.ex - n_whole;
    if AXES & Z != 0 {
        carry.plane[..tile.ey * padded_row].fill(T::Int::default());
    }
    // SAFETY: the caller's contract. Codes are written at most MAX_LANES beyond the tile's last code, where the array
    // has room. The next row overwrites what a row writes beyond its end.
    unsafe {
        let zero = S::splat_int(T::Int::default());
        for z in 0..tile.ez {
            if AXES & Y != 0 {
                carry.row[..padded_row].fill(T::Int::default());
            }
            for y in 0..tile.ey {
                let linear = (z * tile.ey + y) * row;
                input.turn_to(z * tile.stride_z + y * tile.stride_y, linear);
                let to = codes.as_mut_ptr().add(linear);
                let mut differences = Differences::<S, T> {
                    before: zero,
                    before_first: zero,
                    row: carry.row.as_mut_ptr(),
                    plane: carry.plane.as_mut_ptr().add(y * padded_row),
                };
                let mut at = 0;
                while at < n_whole {
                    let Some(v) = input.whole(at) else { return false };
                    S::store_int(to.add(at), differences.code::<AXES>(v, at));
                    at += lanes;
                }
                if rest > 0 {
                    let Some(v) = input.rest(at, rest) else { return false };
                    let code = differences.code::<AXES>(v, at);
                    S::store_int(to.add(at), S::keep_first(code, rest));
                }
                // Vectors may be shorter than a group.
                for padding in (padded_row..row).step_by(lanes) {
                    S::store_int(to.add(padding), zero);
                }
            }
        }
    }
    true
}

/// Row by row: codes in, values out.
///
/// # Safety
/// The machine has instruction set S; the tile lies within `out`.
#[inline(always)]
unsafe fn sum_kernel<S: Simd<T>, T: Value, const EXACT: bool, const AXES: u8>(
    codes: &Codes<T>,
    tile: &Tile,
    next: usize,
    (step, base): (T, T::Int),
    carry: &mut Carry<T>,
    out: &mut [T],
) {
    let lanes = S::LANES;
    let row = tile.row();
    let padded_row = tile.ex.next_multiple_of(lanes);
    let n_whole = tile.ex / lanes * lanes;
    let rest = tile.ex - n_whole;
    if AXES & Z != 0 {
        carry.plane[..tile.ey * padded_row].fill(T::Int::default());
    }
    // Quantised integers become floats by MAGIC, which is added together with the base.
    let base = if EXACT { base } else { base.add(T::MAGIC.bits()) };
    // SAFETY: the caller's contract. Codes are read at most MAX_LANES beyond the tile's last, where the array has room.
    unsafe {
        let (step, magic) = (S::splat(step), S::splat(T::MAGIC));
        let (base, zero) = (S::splat_int(base), S::splat_int(T::Int::default()));
        let value = |q: S::I| if EXACT { S::of_ordered(q) } else { S::mul(S::sub(S::of_bits(q), magic), step) };
        for z in 0..tile.ez {
            if AXES & Y != 0 {
                carry.row[..padded_row].fill(T::Int::default());
            }
            for y in 0..tile.ey {
                let line = z * tile.stride_z + y * tile.stride_y;
                let from = codes.as_ptr().add((z * tile.ey + y) * row);
                let to = out.as_mut_ptr().add(tile.offset + line);
                let ahead = out.as_ptr().wrapping_add(next + line);
                let mut sums = Sums::<S, T> {
                    sum: base,
                    sum_first: zero,
                    row: carry.row.as_mut_ptr(),
                    plane: carry.plane.as_mut_ptr().add(y * padded_row),
                };
                let mut at = 0;
                while at < n_whole {
                    prefetch_write(ahead.wrapping_add(at));
                    let q = sums.integer::<AXES>(S::load_int(from.add(at)), at);
                    S::store(to.add(at), value(q));
                    at += lanes;
                }
                if rest > 0 {
                    prefetch_write(ahead.wrapping_add(at));
                    let q = sums.integer::<AXES>(S::load_int(from.add(at)), at);
                    S::store_first(to.add(at), rest, value(q));
                }
            }
        }
    }
}

/// Sums of one vector: the inverse of [`Differences`].
struct Sums<S: Simd<T>, T: Value> {
    /// The sum along x so far, base included, in all lanes; and for second differences, the sum of first sums.
    sum: S::I,
    sum_first: S::I,
    row: *mut T::Int,
    plane: *mut T::Int,
}

impl<S: Simd<T>, T: Value> Sums<S, T> {
    /// # Safety
    /// As [`Differences::code`].
    #[inline(always)]
    unsafe fn integer<const AXES: u8>(&mut self, code: S::I, at: usize) -> S::I {
        // SAFETY: this function's own contract.
        unsafe {
            let mut d = S::unzigzag(code);
            if AXES & Z != 0 {
                d = S::add_int(d, S::load_int(self.plane.add(at)));
                S::store_int(self.plane.add(at), d);
            }
            if AXES & Y != 0 {
                d = S::add_int(d, S::load_int(self.row.add(at)));
                S::store_int(self.row.add(at), d);
            }
            if AXES & XX != 0 {
                d = S::add_int(S::prefix_sum(d), self.sum_first);
                self.sum_first = S::broadcast_last(d);
            }
            if AXES & X == 0 {
                return S::add_int(d, self.sum);
            }
            let local = S::prefix_sum(d);
            let q = S::add_int(local, self.sum);
            // Adds the sum of this vector only, so that vectors depend on each other by a single addition.
            self.sum = S::add_int(self.sum, S::broadcast_last(local));
            q
        }
    }
}

/// Codes of the residuals of `integers`, one pass per axis; padding becomes 0.
fn difference_passes<T: Value>(integers: &Codes<T>, tile: &Tile, predictor: Predictor, codes: &mut Codes<T>) {
    let (row, ex) = (tile.row(), tile.ex);
    let codes = &mut codes[..tile.n_codes()];
    for (to, from) in codes.chunks_exact_mut(row).zip(integers.chunks_exact(row)) {
        to.copy_from_slice(from);
        if predictor.axes & X != 0 {
            let lag = predictor.lag.min(ex);
            for (d, before) in to[lag..ex].iter_mut().zip(&from[..ex - lag]) {
                *d = d.sub(*before);
            }
        }
        if predictor.axes & XX != 0 {
            for x in (1..ex).rev() {
                to[x] = to[x].sub(to[x - 1]);
            }
        }
    }
    let mut along = |block: usize, distance: usize| {
        for block in codes.chunks_exact_mut(block) {
            for i in (distance..block.len()).rev() {
                block[i] = block[i].sub(block[i - distance]);
            }
        }
    };
    if predictor.axes & Y != 0 {
        along(tile.ey * row, row);
    }
    if predictor.axes & Z != 0 {
        along(tile.n_codes(), tile.ey * row);
    }
    for codes in codes.chunks_exact_mut(row) {
        codes[..ex].iter_mut().for_each(|code| *code = code.zigzag());
        codes[ex..].fill(T::Int::default());
    }
}

/// Inverse of [`difference_passes`], in place: codes to integers.
#[inline(always)]
pub(crate) fn sum_passes<T: Value>(codes: &mut Codes<T>, tile: &Tile, predictor: Predictor) {
    let row = tile.row();
    let codes = &mut codes[..tile.n_codes()];
    codes.iter_mut().for_each(|code| *code = code.unzigzag());
    let mut along = |block: usize, distance: usize| {
        for block in codes.chunks_exact_mut(block) {
            for i in distance..block.len() {
                block[i] = block[i].add(block[i - distance]);
            }
        }
    };
    if predictor.axes & Z != 0 {
        along(tile.n_codes(), tile.ey * row);
    }
    if predictor.axes & Y != 0 {
        along(tile.ey * row, row);
    }
    if predictor.axes & XX != 0 {
        along(row, 1);
    }
    if predictor.axes & X != 0 {
        along(row, predictor.lag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::simd::portable::Portable;

    /// Compares the kernels with the passes, for every predictor, on tiles of odd extents.
    #[test]
    fn kernels_equal_passes() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as i32 - (1 << 23)
        };
        for (ez, ey, ex) in [(8, 16, 32), (3, 5, 19), (1, 1, 4096), (1, 7, 33), (1, 512, 3), (2, 256, 7)] {
            let tile = Tile { start: [0; 4], offset: 0, ez, ey, ex, stride_z: ey * ex, stride_y: ex };
            for axes in [0, X, X | XX, Y, X | Y, Y | Z, X | Y | Z] {
                let predictor = Predictor::new(axes);
                let mut integers = [0; TILE_VALUES + 64];
                integers.iter_mut().for_each(|q| *q = random());
                let (mut by_kernel, mut by_passes) = (integers, integers);
                let mut carry = Carry::<f32>::new();
                // SAFETY: the portable instruction set is always there.
                unsafe {
                    difference_integers::<Portable, f32>(&integers, &tile, predictor, &mut carry, &mut by_kernel);
                }
                difference_passes::<f32>(&integers, &tile, predictor, &mut by_passes);
                assert_eq!(by_kernel[..tile.n_codes()], by_passes[..tile.n_codes()]);

                let mut values = vec![0.0_f32; tile.n_values()];
                // SAFETY: as above; the tile covers the values.
                let done = unsafe {
                    let (from, to) = (&by_kernel, &mut values);
                    sum_restore::<Portable, f32, true>(from, &tile, 0, predictor, (0.0, 5), &mut carry, to)
                };
                assert!(done);
                sum_passes::<f32>(&mut by_passes, &tile, predictor);
                for (to, from) in tile.rows() {
                    for x in 0..tile.ex {
                        assert_eq!(by_passes[from + x], integers[from + x]);
                        let expected = f32::of_ordered(integers[from + x].wrapping_add(5));
                        assert_eq!(values[to + x].to_bits(), expected.to_bits());
                    }
                }
            }
        }
    }
}
