//! Multi-level interpolation with feedback (docs/format.md, 7.4).
//!
//! Each point that is not on the coarser grid is predicted from restored values around it: along each of its odd axes
//! from the six nearest points, and from the corners of the squares that two odd axes span. The coefficients are those
//! of a named kernel or fitted to the chunk, band by band. Rows of a band are independent of each other, so they can be
//! worked on in parallel and in vectors.

use super::bands::{AXES, AxisSet, Band, Dims, Layout, Level, Merge, X, axes_of, volume};
use super::binary::{BitCoder, NumberModel};
use super::fit::{COEFFICIENT_ONE, MAX_COEFFICIENT, Sample};
use super::scratch;
use super::simd::{self, Job};
use super::value::{Int, Value};
use crate::array::Real;
use crate::error::{Error, Result};
use crate::parallel::Workers;

/// Sums of points along an axis: the nearest two, the next two, and the two behind those.
const TAPS: usize = 3;
/// Pairs of axes.
const N_CORNERS: usize = AXES * (AXES - 1) / 2;
/// Most quantities a point is predicted from.
const MAX_TERMS: usize = TAPS * AXES + N_CORNERS;
/// Observations for a fit, at least and at most.
const SAMPLE_VALUES: std::ops::Range<usize> = 128..2560;
/// Observations taken from one row, at least.
const POINTS_PER_ROW: usize = 16;
/// Values that are predicted at a time, at most: few enough for the first cache.
const PIECE_VALUES: usize = 1 << 11;
/// Values that are quantised at a time.
const QUANTIZED_VALUES: usize = 64;
/// Values that a worker takes at a time.
const VALUES_PER_TASK: usize = 1 << 15;

/// How the step shrinks from level to level: by `ratio` for each, down to 1 / `most`.
pub(crate) const STEP_SCALES: [(f64, f64); 4] = [(1.0, 1.0), (1.25, 2.0), (1.5, 3.0), (1.75, 4.0)];

/// Named kernels, in multiples of 1 / COEFFICIENT_ONE of half the sums of [`TAPS`]: linear, cubic, natural cubic.
const KERNELS: [[i32; TAPS]; 3] = [[1024, 0, 0], [1152, -128, 0], [1178, -154, 0]];

/// What a band is predicted with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stencil {
    /// A named kernel along one of the odd axes, or the mean over all of them.
    Named { kernel: usize, along: Option<usize> },
    /// Coefficients of all terms but the first.
    Fitted(Vec<i32>),
}

/// Everything the decoder needs besides the codes.
#[derive(Clone, Debug)]
pub(crate) struct Parameters<T> {
    /// Axes that are halved.
    pub(crate) active: AxisSet,
    /// Place in [`STEP_SCALES`].
    pub(crate) scale: usize,
    /// Step of the finest level.
    pub(crate) step: T,
    /// One for each band but the anchors.
    pub(crate) stencils: Vec<Stencil>,
}

/// A chunk as codes.
pub(crate) struct Encoded<T> {
    pub(crate) layout: Layout,
    pub(crate) parameters: Parameters<T>,
    pub(crate) codes: Vec<i32>,
    /// Places among the codes of values that must be stored exactly.
    pub(crate) escapes: Vec<usize>,
}

impl<T: Real> Parameters<T> {
    /// Writes or reads the parameters; `dims` are those of the chunk.
    pub(crate) fn code<C: BitCoder>(coder: &mut C, given: Option<&Self>, dims: &Dims) -> Result<(Self, Layout)> {
        let active = coder.raw(given.map_or(0, |p| u64::from(p.active)), AXES as u32) as AxisSet;
        let scale = coder.raw(given.map_or(0, |p| p.scale as u64), 2) as usize;
        let step = T::from_bits_u64(coder.raw(given.map_or(0, |p| p.step.to_bits_u64()), 8 * size_of::<T>() as u32));
        if !step.to_f64().is_finite() {
            return Err(Error::corrupt("chunk has a step that is not finite"));
        }
        let layout = Layout::interpolation(*dims, active);
        let mut stencils = Vec::with_capacity(layout.bands.len());
        let mut numbers = NumberModel::default();
        let mut is_fitted = super::binary::AdaptiveBit::default();
        for (i, band) in layout.bands.iter().skip(1).enumerate() {
            let given = given.map(|p| &p.stencils[i]);
            stencils.push(Stencil::code(coder, given, band.odd, &mut is_fitted, &mut numbers)?);
        }
        Ok((Self { active, scale, step, stencils }, layout))
    }
}

impl Stencil {
    fn code<C: BitCoder>(
        coder: &mut C,
        given: Option<&Self>,
        odd: AxisSet,
        is_fitted: &mut super::binary::AdaptiveBit,
        numbers: &mut NumberModel,
    ) -> Result<Self> {
        let n_odd = odd.count_ones() as usize;
        let fitted = match given {
            Some(Stencil::Fitted(coefficients)) => Some(coefficients),
            _ => None,
        };
        if coder.bit(is_fitted, fitted.is_some()) {
            let mut coefficients = Vec::with_capacity(MAX_TERMS);
            for j in 1..n_terms(n_odd) {
                let k = numbers.code_signed(coder, fitted.map_or(0, |f| i64::from(f[j - 1])));
                if k.abs() > i64::from(MAX_COEFFICIENT) {
                    return Err(Error::corrupt("chunk has a coefficient out of range"));
                }
                coefficients.push(k as i32);
            }
            return Ok(Stencil::Fitted(coefficients));
        }
        let (kernel, along) = match given {
            Some(Stencil::Named { kernel, along }) => (*kernel, along.map_or(0, |i| i + 1)),
            _ => (0, 0),
        };
        let kernel = coder.raw(kernel as u64, 2) as usize;
        let along = if n_odd > 1 { coder.raw(along as u64, 3) as usize } else { 0 };
        if kernel >= KERNELS.len() || along > n_odd {
            return Err(Error::corrupt("chunk has an unknown kernel"));
        }
        Ok(Stencil::Named { kernel, along: along.checked_sub(1) })
    }

    /// Coefficients of all terms, in multiples of 1 / COEFFICIENT_ONE.
    fn coefficients(&self, n_odd: usize) -> [i32; MAX_TERMS] {
        let mut all = [0; MAX_TERMS];
        match self {
            Stencil::Named { kernel, along } => {
                let share = if along.is_some() { 1 } else { n_odd as i32 };
                for i in (0..n_odd).filter(|i| along.is_none_or(|a| a == *i)) {
                    for (k, of_kernel) in all[TAPS * i..].iter_mut().zip(KERNELS[*kernel]) {
                        *k = of_kernel / share;
                    }
                }
            }
            Stencil::Fitted(coefficients) => all[1..=coefficients.len()].copy_from_slice(coefficients),
        }
        // The first takes what is missing to one.
        all[0] = COEFFICIENT_ONE - all[1..].iter().sum::<i32>();
        all
    }

    /// The named ones, with the coefficients of all terms.
    fn named(n_odd: usize) -> Vec<(Self, [i32; MAX_TERMS])> {
        let mut all = Vec::with_capacity(KERNELS.len() * (AXES + 1));
        for kernel in 0..KERNELS.len() {
            let single = (0..n_odd).map(Some).take(if n_odd > 1 { n_odd } else { 0 });
            for along in std::iter::once(None).chain(single) {
                let stencil = Stencil::Named { kernel, along };
                let coefficients = stencil.coefficients(n_odd);
                all.push((stencil, coefficients));
            }
        }
        all
    }
}

fn n_terms(n_odd: usize) -> usize {
    TAPS * n_odd + n_odd * n_odd.saturating_sub(1) / 2
}

/// The step of a level.
fn level_step<T: Real>(step: T, scale: usize, level: usize) -> T {
    let (ratio, most) = STEP_SCALES[scale];
    let mut divisor = 1.0;
    for _ in 0..level {
        divisor = f64::min(divisor * ratio, most);
    }
    T::from_f64(step.to_f64() / divisor)
}

/// Step of one level, its reciprocal, and the tolerance of the check.
#[derive(Clone, Copy)]
struct Scalars<T> {
    step: T,
    inv_step: T,
    tolerance: T,
}

/// A dense array of restored values.
#[derive(Clone, Copy)]
struct Part<'a, T> {
    values: &'a [T],
    dims: Dims,
}

/// A box of a band, whose values are contiguous there.
#[derive(Clone, Copy)]
struct Piece {
    from: Dims,
    dims: Dims,
}

impl Piece {
    /// One that starts at value `start` of a band of extents `dims` and ends before `end`.
    #[inline(always)]
    fn new(dims: &Dims, start: usize, end: usize) -> Self {
        let [row, x] = [start / dims[X], start % dims[X]];
        let [i0, i1, i2] = place(dims, row);
        let mut piece = Self { from: [i0, i1, i2, x], dims: [1; AXES] };
        let mut n_values = 1;
        for axis in (0..AXES).rev() {
            let left = (dims[axis] - piece.from[axis]).min((end - start) / n_values);
            // As even as possible: what is shorter than a vector costs as much as one.
            piece.dims[axis] = left.div_ceil(left.div_ceil(PIECE_VALUES / n_values));
            n_values *= piece.dims[axis];
            if piece.dims[axis] < dims[axis] {
                break;
            }
        }
        piece
    }
}

/// What a part has beyond its edges.
#[derive(Clone, Copy)]
enum Beyond {
    /// What follows from the values along this axis, the only one along which it is left.
    Extrapolated(usize),
    /// The last value again.
    Last,
}

/// A box that a part has, or that was made from it.
#[derive(Clone, Copy)]
struct Window<'a, T> {
    /// Values of the part, or `None` if they were made.
    part: Option<&'a [T]>,
    start: usize,
    strides: Dims,
}

impl<'a, T: Real> Window<'a, T> {
    #[inline(always)]
    fn values<'b>(&self, made: &'b [T]) -> &'b [T]
    where
        'a: 'b,
    {
        &self.part.unwrap_or(made)[self.start..]
    }
}

#[inline(always)]
fn strides(dims: &Dims) -> Dims {
    [dims[1] * dims[2] * dims[X], dims[2] * dims[X], dims[X], 1]
}

impl<'a, T: Real> Part<'a, T> {
    /// The values of a box that may reach beyond the edges; in that case they are appended to `made`.
    #[inline(always)]
    fn window(&self, from: [isize; AXES], dims: Dims, beyond: Beyond, made: &mut Made<T>) -> Window<'a, T> {
        let of_part = strides(&self.dims);
        if (0..AXES).all(|a| from[a] >= 0 && from[a] as usize + dims[a] <= self.dims[a]) {
            let start = (0..AXES).map(|a| from[a] as usize * of_part[a]).sum();
            return Window { part: Some(self.values), start, strides: of_part };
        }
        let start = made.n;
        let out = made.extend(volume(&dims));
        let is_inside = from[2] >= 0 && from[2] as usize + dims[2] <= self.dims[2];
        if is_inside && dims[X] == self.dims[X] {
            // Rows that follow each other are one.
            let [n0, n1, n2, n] = self.dims;
            let part = Part { values: self.values, dims: [n0, n1, 1, n2 * n] };
            part.copy_box([from[0], from[1], 0, from[2] * n as isize], [dims[0], dims[1], 1, dims[2] * n], beyond, out);
        } else {
            self.copy_box(from, dims, beyond, out);
        }
        Window { part: None, start, strides: strides(&dims) }
    }

    #[inline(always)]
    fn copy_box(&self, from: [isize; AXES], dims: Dims, beyond: Beyond, out: &mut [T]) {
        let strides = strides(&self.dims);
        let mut rows = out.chunks_exact_mut(dims[X]);
        for i0 in from[0]..from[0] + dims[0] as isize {
            for i1 in from[1]..from[1] + dims[1] as isize {
                for i2 in from[2]..from[2] + dims[2] as isize {
                    let out = rows.next().expect("there is a row for each");
                    self.copy_row([i0, i1, i2, from[X]], beyond, &strides, out);
                }
            }
        }
    }

    /// The whole row at a place along the slower axes, or at the last one before it.
    #[inline(always)]
    fn row(&self, at: [isize; AXES], strides: &Dims) -> &'a [T] {
        let mut start = 0;
        for a in 0..X {
            start += (at[a] as usize).min(self.dims[a] - 1) * strides[a];
        }
        &self.values[start..][..self.dims[X]]
    }

    /// Copies a row of a box.
    #[inline(always)]
    fn copy_row(&self, at: [isize; AXES], beyond: Beyond, strides: &Dims, out: &mut [T]) {
        if let Beyond::Extrapolated(axis) = beyond
            && axis != X
            && !(0..self.dims[axis] as isize).contains(&at[axis])
        {
            let near = extrapolation(self.dims[axis], at[axis]);
            let mut rows = [&[][..]; 3];
            for (row, p) in rows.iter_mut().zip(near.at) {
                let mut at = at;
                at[axis] = p as isize;
                *row = &self.row(at, strides)[at[X] as usize..][..out.len()];
            }
            let [a, b, c] = rows;
            near.fill(a, b, c, out);
            return;
        }
        let row = self.row(at, strides);
        let n_before = (-at[X]).max(0) as usize;
        let inside = &row[at[X].max(0) as usize..];
        let n_inside = inside.len().min(out.len() - n_before);
        copy_short(&inside[..n_inside], &mut out[n_before..][..n_inside]);
        for i in (0..n_before).chain(n_before + n_inside..out.len()) {
            out[i] = match beyond {
                Beyond::Last => row[row.len() - 1],
                Beyond::Extrapolated(_) => extrapolate(row, at[X] + i as isize),
            };
        }
    }
}

/// Copies what is mostly too short for a call to pay.
#[inline(always)]
fn copy_short<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        16..=64 => copy_blocks::<T, 16>(from, to),
        8..16 => copy_blocks::<T, 8>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// The same for a block or more.
#[inline(always)]
fn copy_blocks<T: Copy, const BLOCK: usize>(from: &[T], to: &mut [T]) {
    let n = from.len();
    let mut x = 0;
    while x < n {
        // The last block may overlap the one before.
        x = x.min(n - BLOCK);
        let block: &[T; BLOCK] = from[x..].first_chunk().expect("there is a block before the end");
        to[x..x + BLOCK].copy_from_slice(block);
        x += BLOCK;
    }
}

/// Values beyond the edges of parts, box after box.
struct Made<T> {
    values: Vec<T>,
    n: usize,
}

/// A buffer of at least `n` values, whatever is in it.
#[inline(always)]
fn room<V: Copy + Default>(buffer: &mut Vec<V>, n: usize) -> &mut [V] {
    if buffer.len() < n {
        buffer.resize(n, V::default());
    }
    &mut buffer[..n]
}

impl<T: Real> Made<T> {
    fn new() -> Self {
        Self { values: Vec::new(), n: 0 }
    }

    /// Room for `n` more, whatever is in it.
    #[inline(always)]
    fn extend(&mut self, n: usize) -> &mut [T] {
        let start = self.n;
        self.n += n;
        &mut room(&mut self.values, self.n)[start..]
    }
}

/// Pairs of boxes that a piece is predicted from: a term is the sum of two values, that of corners of two pairs.
const MAX_PAIRS: usize = TAPS * AXES + AXES * (AXES - 1);

/// Two boxes of one window, and the coefficient of their sum.
#[derive(Clone, Copy)]
struct Pair<'a, T> {
    a: &'a [T],
    b: &'a [T],
    strides: Dims,
    coefficient: T,
}

/// All pairs that predict a piece.
struct Pairs<'a, T> {
    all: [Pair<'a, T>; MAX_PAIRS],
    n: usize,
}

impl<'a, T: Real> Pairs<'a, T> {
    #[inline(always)]
    fn push(&mut self, window: &'a [T], [a, b]: [usize; 2], strides: Dims, coefficient: T) {
        self.all[self.n] = Pair { a: &window[a..], b: &window[b..], strides, coefficient };
        self.n += 1;
    }
}

/// What predicts the values of one band.
#[derive(Clone, Copy)]
struct Neighbourhood<'a, T> {
    /// The band's own extents.
    dims: Dims,
    odd: AxisSet,
    /// Neighbours along each odd axis, in order.
    beside: [Option<Part<'a, T>>; AXES],
    /// Corners for each pair of odd axes, in order.
    corners: [Option<Part<'a, T>>; N_CORNERS],
}

impl<'a, T: Real> Neighbourhood<'a, T> {
    /// `before` holds all bands before `band`.
    fn new(layout: &Layout, level: &Level, band: &Band, coarse: &'a [T], before: &'a [T]) -> Self {
        let part = |without: AxisSet| match level.parent(band.odd, without) {
            None => Part { values: coarse, dims: level.coarse },
            Some(i) => {
                let parent = &layout.bands[i];
                Part { values: &before[parent.offset..][..volume(&parent.dims)], dims: parent.dims }
            }
        };
        let mut all = Self { dims: band.dims, odd: band.odd, beside: [None; AXES], corners: [None; N_CORNERS] };
        for (i, a) in axes_of(band.odd).enumerate() {
            all.beside[i] = Some(part(1 << a));
        }
        for (i, (a, b)) in axis_pairs(band.odd).enumerate() {
            all.corners[i] = Some(part(1 << a | 1 << b));
        }
        all
    }

    /// The pairs of a piece whose coefficient is not 0.
    #[inline(always)]
    fn pairs<'b>(&'b self, piece: &Piece, coefficients: &[T; MAX_TERMS], made: &'b mut Made<T>) -> Pairs<'b, T> {
        let from = piece.from.map(|p| p as isize);
        // All boxes are made before any is borrowed.
        let mut windows = [None; AXES + N_CORNERS];
        made.n = 0;
        for (i, axis) in axes_of(self.odd).enumerate() {
            let reach = reach(&coefficients[TAPS * i..][..TAPS]);
            if reach > 0 {
                let (mut from, mut dims) = (from, piece.dims);
                from[axis] -= reach as isize - 1;
                dims[axis] += 2 * reach - 1;
                let part = self.beside[i].as_ref().expect("there is a part for each axis");
                windows[i] = Some((part.window(from, dims, Beyond::Extrapolated(axis), made), reach));
            }
        }
        let n_along = TAPS * self.odd.count_ones() as usize;
        for (i, (a, b)) in axis_pairs(self.odd).enumerate() {
            if coefficients[n_along + i] != T::default() {
                let mut dims = piece.dims;
                dims[a] += 1;
                dims[b] += 1;
                let part = self.corners[i].as_ref().expect("there is a part for each pair");
                windows[AXES + i] = Some((part.window(from, dims, Beyond::Last, made), 0));
            }
        }

        let made = &made.values[..];
        let none = Pair { a: &[], b: &[], strides: [0; AXES], coefficient: T::default() };
        let mut pairs = Pairs { all: [none; MAX_PAIRS], n: 0 };
        for (i, axis) in axes_of(self.odd).enumerate() {
            let Some((window, reach)) = &windows[i] else { continue };
            let (values, step) = (window.values(made), window.strides[axis]);
            for tap in 0..*reach {
                let c = coefficients[TAPS * i + tap];
                if c != T::default() {
                    pairs.push(values, [(reach - 1 - tap) * step, (reach + tap) * step], window.strides, c);
                }
            }
        }
        for (i, (a, b)) in axis_pairs(self.odd).enumerate() {
            let Some((window, _)) = &windows[AXES + i] else { continue };
            let values = window.values(made);
            for start in [0, window.strides[a]] {
                let c = coefficients[n_along + i];
                pairs.push(values, [start, start + window.strides[b]], window.strides, c);
            }
        }
        pairs
    }

    /// Predicts a piece.
    #[inline(always)]
    fn predict<'b>(
        &self,
        piece: &Piece,
        coefficients: &[T; MAX_TERMS],
        made: &mut Made<T>,
        prediction: &'b mut Vec<T>,
    ) -> &'b [T] {
        let pairs = self.pairs(piece, coefficients, made);
        let pairs = &pairs.all[..pairs.n];
        let [n0, n1, mut n2, mut n] = piece.dims;
        let prediction = room(prediction, n0 * n1 * n2 * n);
        // Rows that follow each other in all boxes are one.
        if pairs.iter().all(|pair| pair.strides[2] == n) {
            (n2, n) = (1, n2 * n);
        }
        for (i, plane) in prediction.chunks_exact_mut(n2 * n).enumerate() {
            let mut lines = [(&[][..], &[][..], 0, T::default()); MAX_PAIRS];
            for (line, pair) in lines.iter_mut().zip(pairs) {
                let start = i / n1 * pair.strides[0] + i % n1 * pair.strides[1];
                *line = (&pair.a[start..], &pair.b[start..], pair.strides[2], pair.coefficient);
            }
            for (i, row) in plane.chunks_exact_mut(n).enumerate() {
                predict_row(&lines[..pairs.len()], i, row);
            }
        }
        prediction
    }
}

impl<T: Real> Pairs<'_, T> {
    /// Appends the terms of some values of a row to the sample: of every `stride`-th from `first` on. `row` is the
    /// row's place in the piece, and there is a pair for every tap and every corner of `n_odd` axes.
    #[inline(always)]
    fn observe(
        &self,
        row: [usize; X],
        (first, stride): (usize, usize),
        (source, n_odd, scalars): (&[T], usize, &Scalars<T>),
        [base, sums]: &mut [Vec<f64>; 2],
        sample: &mut Sample,
    ) {
        let scale = 1.0 / scalars.step.to_f64();
        let n = (source.len() - first).div_ceil(stride);
        let (base, sums) = (room(base, n), room(sums, n));
        let places = (row, first, stride, source.len());
        sum_pair(&self.all[0], places, base);
        for ((target, base), x) in
            sample.next(0).iter_mut().zip(base.iter_mut()).zip(source[first..].iter().step_by(stride))
        {
            *base *= 0.5;
            *target = (x.to_f64() - *base) * scale;
        }
        let n_along = TAPS * n_odd;
        for j in 1..n_terms(n_odd) {
            let column = &mut sample.next(j)[..n];
            if j < n_along {
                sum_pair(&self.all[j], places, column);
                for (z, base) in column.iter_mut().zip(&*base) {
                    *z = (0.5 * *z - base) * scale;
                }
            } else {
                sum_pair(&self.all[2 * j - n_along], places, sums);
                sum_pair(&self.all[2 * j - n_along + 1], places, column);
                for ((z, sum), base) in column.iter_mut().zip(&*sums).zip(&*base) {
                    *z = (0.25 * (sum + *z) - base) * scale;
                }
            }
        }
        // Values that are not finite, or as good as that, say nothing.
        sample.append(n, |target| target.abs() < 1e9);
    }
}

/// Sums of a pair at every `stride`-th place from `first` on of a row of `n` values.
#[inline(always)]
fn sum_pair<T: Real>(pair: &Pair<'_, T>, (row, first, stride, n): ([usize; X], usize, usize, usize), sums: &mut [f64]) {
    let start = row[0] * pair.strides[0] + row[1] * pair.strides[1] + row[2] * pair.strides[2];
    let (a, b) = (&pair.a[start..][first..n], &pair.b[start..][first..n]);
    if stride == 1 {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum = a.to_f64() + b.to_f64();
        }
    } else {
        for ((sum, a), b) in sums.iter_mut().zip(a.iter().step_by(stride)).zip(b.iter().step_by(stride)) {
            *sum = a.to_f64() + b.to_f64();
        }
    }
}

/// Rows of pairs, the distance to the rows after them, and the coefficient.
type Lines<'a, T> = [(&'a [T], &'a [T], usize, T)];

/// Predicts a row, the `i`-th of those of the lines.
#[inline(always)]
fn predict_row<T: Real>(lines: &Lines<'_, T>, i: usize, out: &mut [T]) {
    match out.len() {
        32.. => predict_blocks::<T, 32>(lines, i, out),
        16.. => predict_blocks::<T, 16>(lines, i, out),
        8.. => predict_blocks::<T, 8>(lines, i, out),
        4.. => predict_blocks::<T, 4>(lines, i, out),
        _ => predict_blocks::<T, 1>(lines, i, out),
    }
}

/// The same for rows of a block or more.
#[inline(always)]
fn predict_blocks<T: Real, const BLOCK: usize>(lines: &Lines<'_, T>, i: usize, out: &mut [T]) {
    let n = out.len();
    let mut x = 0;
    loop {
        let mut sums = [T::default(); BLOCK];
        for (a, b, step, c) in lines {
            let a: &[T; BLOCK] = a[i * step + x..].first_chunk().expect("boxes have the extents of the piece");
            let b: &[T; BLOCK] = b[i * step + x..].first_chunk().expect("boxes have the extents of the piece");
            for i in 0..BLOCK {
                sums[i] = sums[i].fadd(c.fmul(a[i].fadd(b[i])));
            }
        }
        out[x..x + BLOCK].copy_from_slice(&sums);
        if x + BLOCK == n {
            return;
        }
        // The last block may overlap the one before: it says the same.
        x = (x + BLOCK).min(n - BLOCK);
    }
}

/// Taps that are needed, from the nearest on.
#[inline(always)]
fn reach<T: Real>(coefficients: &[T]) -> usize {
    coefficients.iter().rposition(|c| *c != T::default()).map_or(0, |tap| tap + 1)
}

/// Pairs of axes of a set.
#[inline(always)]
fn axis_pairs(set: AxisSet) -> impl Iterator<Item = (usize, usize)> {
    axes_of(set).flat_map(move |a| axes_of(set).filter(move |b| *b > a).map(move |b| (a, b)))
}

/// Turns a sum of values into their mean.
#[inline(always)]
fn norm<T: Real>(j: usize, n_odd: usize) -> T {
    T::from_f64(if j < TAPS * n_odd { 0.5 } else { 0.25 })
}

/// How a value beyond an edge follows from the three nearest.
struct Extrapolation {
    at: [usize; 3],
    quadratic: bool,
    distance: i32,
}

impl Extrapolation {
    #[inline(always)]
    fn value<T: Value>(&self, a: T, b: T, c: T) -> T {
        if self.quadratic {
            // 3 (a - b) + c
            return T::of_i32(3).fmul(a.fsub(b)).fadd(c);
        }
        a.fadd(T::of_i32(self.distance).fmul(a.fsub(b)))
    }

    /// The values that follow from rows.
    #[inline(always)]
    fn fill<T: Value>(&self, a: &[T], b: &[T], c: &[T], out: &mut [T]) {
        for (((x, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *x = self.value(*a, *b, *c);
        }
    }
}

/// Place `p` lies outside 0..n: quadratic for the first place before the start, linear elsewhere.
#[inline(always)]
fn extrapolation(n: usize, p: isize) -> Extrapolation {
    let last = n - 1;
    if p < 0 {
        let distance = -p as i32;
        return Extrapolation { at: [0, 1.min(last), 2.min(last)], quadratic: p == -1 && n >= 3, distance };
    }
    let distance = (p - last as isize) as i32;
    Extrapolation { at: [last, last.saturating_sub(1), 0], quadratic: false, distance }
}

#[inline(always)]
fn extrapolate<T: Value>(row: &[T], p: isize) -> T {
    let near = extrapolation(row.len(), p);
    let [a, b, c] = near.at;
    near.value(row[a], row[b], row[c])
}

/// Index of a row -> its place along the slower axes.
#[inline(always)]
fn place(dims: &Dims, row: usize) -> [usize; X] {
    [row / (dims[1] * dims[2]), row / dims[2] % dims[1], row % dims[2]]
}

fn scaled<T: Real>(stencil: &Stencil, n_odd: usize) -> [T; MAX_TERMS] {
    let coefficients = stencil.coefficients(n_odd);
    std::array::from_fn(|j| T::from_f64(f64::from(coefficients[j]) / f64::from(COEFFICIENT_ONE)).fmul(norm(j, n_odd)))
}

/// Codes `values` (working order), restoring as it goes. `masked` points are predicted but never coded.
pub(crate) fn encode<T: Real>(
    values: &[T],
    masked: Option<&[bool]>,
    dims: Dims,
    active: AxisSet,
    scale: usize,
    (step, tolerance): (T, T),
    workers: &Workers,
) -> Encoded<T> {
    let layout = Layout::interpolation(dims, active);
    let mut codes = scratch::take(layout.n_values);
    let mut all = scratch::take(layout.n_values);
    let masked = masked.map(|masked| to_bands(&layout, masked, false));
    let mut anchors = simd::run(Split { layout: &layout, values, all: &mut all });
    let mut escapes = Vec::new();
    let mut stencils = Vec::with_capacity(layout.bands.len());

    let step_of = |level: usize| {
        let step = level_step(step, scale, level);
        Scalars { step, inv_step: T::from_f64(1.0 / step.to_f64()), tolerance }
    };
    encode_anchors(&layout, &mut anchors, masked.as_deref(), &step_of(layout.levels.len()), &mut codes, &mut escapes);
    let mut coarse = anchors;
    for (l, level) in layout.levels.iter().enumerate().rev() {
        let scalars = step_of(l);
        for band in &layout.bands[level.bands.clone()] {
            let (before, current) = all.split_at_mut(band.offset);
            let n = volume(&band.dims);
            let current = &mut current[..n];
            let near = Neighbourhood::new(&layout, level, band, &coarse, before);
            let masked = masked.as_ref().map(|m| &m[band.offset..][..n]);
            let stencil = simd::run(Fit { near, current, masked, scalars });
            let coefficients = scaled(&stencil, band.odd.count_ones() as usize);
            stencils.push(stencil);
            let rows = (VALUES_PER_TASK / band.dims[X]).max(1);
            let codes = &mut codes[band.offset..][..n];
            let mut tasks: Vec<EncodeRows<'_, T>> = current
                .chunks_mut(rows * band.dims[X])
                .zip(codes.chunks_mut(rows * band.dims[X]))
                .enumerate()
                .map(|(i, (values, codes))| {
                    let masked = masked.map(|m| &m[i * rows * band.dims[X]..][..values.len()]);
                    EncodeRows {
                        near,
                        first_row: i * rows,
                        coefficients,
                        scalars,
                        values,
                        codes,
                        masked,
                        escapes: Vec::new(),
                    }
                })
                .collect();
            let run = |_: usize, task: &mut EncodeRows<'_, T>| {
                simd::run(task);
                Ok(())
            };
            workers.for_each(&mut tasks, run).expect("encoding does not fail");
            for (i, task) in tasks.iter().enumerate() {
                escapes.extend(task.escapes.iter().map(|at| band.offset + i * rows * band.dims[X] + at));
            }
        }
        if l > 0 {
            let mut grid = scratch::take(volume(&level.grid));
            simd::run(Merge { layout: &layout, level, coarse: &coarse, all: &all, grid: &mut grid });
            scratch::give(std::mem::replace(&mut coarse, grid));
        }
    }
    scratch::give(coarse);
    scratch::give(all);
    escapes.sort_unstable();
    Encoded { layout, parameters: Parameters { active, scale, step, stencils }, codes, escapes }
}

/// Restores values from codes; the inverse of [`encode`] but for escapes.
pub(crate) fn decode<T: Real>(
    layout: &Layout,
    parameters: &Parameters<T>,
    codes: &[i32],
    out: &mut [T],
    workers: &Workers,
) {
    let mut all = scratch::take(layout.n_values);
    let step_of = |level: usize| level_step(parameters.step, parameters.scale, level);
    let mut coarse = vec![T::default(); volume(&layout.bands[0].dims)];
    decode_anchors(layout, step_of(layout.levels.len()), codes, &mut coarse);
    if layout.levels.is_empty() {
        out.copy_from_slice(&coarse);
    }
    for (l, level) in layout.levels.iter().enumerate().rev() {
        let step = step_of(l);
        for i in level.bands.clone() {
            let band = &layout.bands[i];
            let (before, current) = all.split_at_mut(band.offset);
            let n = volume(&band.dims);
            let near = Neighbourhood::new(layout, level, band, &coarse, before);
            let coefficients = scaled(&parameters.stencils[i - 1], band.odd.count_ones() as usize);
            let rows = (VALUES_PER_TASK / band.dims[X]).max(1);
            let per_task = rows * band.dims[X];
            let mut tasks: Vec<DecodeRows<'_, T>> = current[..n]
                .chunks_mut(per_task)
                .zip(codes[band.offset..][..n].chunks(per_task))
                .enumerate()
                .map(|(i, (values, codes))| DecodeRows { near, first_row: i * rows, coefficients, step, values, codes })
                .collect();
            let run = |_: usize, task: &mut DecodeRows<'_, T>| {
                simd::run(task);
                Ok(())
            };
            workers.for_each(&mut tasks, run).expect("restoring does not fail");
        }
        if l == 0 {
            simd::run(Merge { layout, level, coarse: &coarse, all: &all, grid: out });
        } else {
            let mut grid = scratch::take(volume(&level.grid));
            simd::run(Merge { layout, level, coarse: &coarse, all: &all, grid: &mut grid });
            scratch::give(std::mem::replace(&mut coarse, grid));
        }
    }
    scratch::give(coarse);
    scratch::give(all);
}

/// Puts a value for each point into the order of codes.
pub(crate) fn to_bands<V: Copy>(layout: &Layout, values: &[V], zero: V) -> Vec<V> {
    let mut all = vec![zero; layout.n_values];
    let mut grid = values;
    let mut owned;
    for level in &layout.levels {
        let mut coarse = vec![zero; volume(&level.coarse)];
        layout.split(level, grid, &mut coarse, &mut all);
        owned = coarse;
        grid = &owned;
    }
    let grid = grid.to_vec();
    all[..grid.len()].copy_from_slice(&grid);
    all
}

/// Anchors are predicted by the one before, or by the start of the row before.
fn anchor_prediction<T: Real>(dims: &Dims, restored: &[T], at: usize) -> T {
    let n = dims[X];
    match at {
        0 => T::default(),
        at if at.is_multiple_of(n) => restored[at - n],
        at => restored[at - 1],
    }
}

fn encode_anchors<T: Real>(
    layout: &Layout,
    anchors: &mut [T],
    masked: Option<&[bool]>,
    scalars: &Scalars<T>,
    codes: &mut [i32],
    escapes: &mut Vec<usize>,
) {
    for at in 0..anchors.len() {
        let prediction = anchor_prediction(&layout.bands[0].dims, anchors, at);
        let is_masked = masked.is_some_and(|m| m[at]);
        let coded = if is_masked { None } else { code_one(anchors[at], prediction, scalars) };
        if coded.is_none() && !is_masked {
            escapes.push(at);
        }
        (codes[at], anchors[at]) = coded.unwrap_or((0, prediction));
    }
}

fn decode_anchors<T: Real>(layout: &Layout, step: T, codes: &[i32], anchors: &mut [T]) {
    for at in 0..anchors.len() {
        let prediction = anchor_prediction(&layout.bands[0].dims, anchors, at);
        anchors[at] = prediction.fadd(T::of_i32(codes[at]).fmul(step));
    }
}

/// The code of a value and what it restores, if that is within the tolerance; tries the neighbouring code too.
#[inline(always)]
fn code_one<T: Real>(x: T, prediction: T, scalars: &Scalars<T>) -> Option<(i32, T)> {
    let t = x.fsub(prediction).fmul(scalars.inv_step);
    if !(t.fabs() < T::MAX_CODE) {
        return None;
    }
    let s = t.fadd(T::MAGIC);
    let code = s.bits().sub(T::MAGIC.bits()).to_i64() as i32;
    let restore = |code: i32| prediction.fadd(T::of_i32(code).fmul(scalars.step));
    let restored = restore(code);
    let residue = x.fsub(restored);
    if residue.fabs() <= scalars.tolerance {
        return Some((code, restored));
    }
    let code = if residue > T::default() { code + 1 } else { code - 1 };
    let restored = restore(code);
    (x.fsub(restored).fabs() <= scalars.tolerance).then_some((code, restored))
}

struct Split<'a, T> {
    layout: &'a Layout,
    values: &'a [T],
    all: &'a mut [T],
}

impl<T: Real> Job for Split<'_, T> {
    type Output = Vec<T>;

    #[inline(always)]
    fn run(self) -> Vec<T> {
        let mut grid: Option<Vec<T>> = None;
        for level in &self.layout.levels {
            let mut coarse = scratch::take(volume(&level.coarse));
            self.layout.split(level, grid.as_deref().unwrap_or(self.values), &mut coarse, self.all);
            if let Some(finer) = grid.replace(coarse) {
                scratch::give(finer);
            }
        }
        grid.unwrap_or_else(|| self.values.to_vec())
    }
}

/// Finds the stencil of a band.
struct Fit<'a, T> {
    near: Neighbourhood<'a, T>,
    current: &'a [T],
    masked: Option<&'a [bool]>,
    scalars: Scalars<T>,
}

impl<T: Real> Job for Fit<'_, T> {
    type Output = Stencil;

    #[inline(always)]
    fn run(self) -> Stencil {
        let dims = self.near.dims;
        let n_values = self.current.len();
        let n_odd = self.near.odd.count_ones() as usize;
        let named = Stencil::named(n_odd);
        // A few points of each of many rows, spread over the band.
        let wanted = (n_values / 24).clamp(SAMPLE_VALUES.start, SAMPLE_VALUES.end);
        let n = dims[X];
        let n_rows = n_values / n;
        let stride = (n / (wanted / n_rows).max(POINTS_PER_ROW)).max(1);
        let n_sampled = (wanted * stride).div_ceil(n).clamp(1, n_rows);
        let mut sample = Sample::new(n_terms(n_odd) - 1, n_sampled * n.div_ceil(stride));
        let norms: [T; MAX_TERMS] = std::array::from_fn(|j| norm(j, n_odd));
        let (mut made, mut buffers) = (Made::new(), [Vec::new(), Vec::new()]);
        // Where most rows of a small band are wanted, all are prepared at once.
        let mut made_for_all = Made::new();
        let all = if n_values <= PIECE_VALUES && n_rows <= 2 * n_sampled {
            Some(self.near.pairs(&Piece::new(&dims, 0, n_values), &norms, &mut made_for_all))
        } else {
            None
        };
        for i in 0..n_sampled {
            let row = (2 * i + 1) * n_rows / (2 * n_sampled);
            if self.masked.is_some_and(|m| m[row * n..][..n].contains(&true)) {
                continue;
            }
            let at = place(&dims, row);
            let (mut start, end) = (row * n, (row + 1) * n);
            while start < end {
                let piece = Piece::new(&dims, start, end);
                let source = &self.current[start..][..piece.dims[X]];
                start += piece.dims[X];
                // The first place of the piece that is a multiple of the stride from that of the row.
                let (of_row, x) = (at[2] % stride, piece.from[X]);
                let first = if x <= of_row { of_row - x } else { (x - of_row).next_multiple_of(stride) - (x - of_row) };
                if first >= source.len() {
                    continue;
                }
                let (places, observed) = ((first, stride), (source, n_odd, &self.scalars));
                match &all {
                    Some(all) => all.observe(at, places, observed, &mut buffers, &mut sample),
                    None => {
                        let pairs = self.near.pairs(&piece, &norms, &mut made);
                        pairs.observe([0; X], places, observed, &mut buffers, &mut sample);
                    }
                }
            }
        }
        let presets: Vec<&[i32]> = named.iter().map(|(_, all)| &all[1..n_terms(n_odd)]).collect();
        let (best, preset) = sample.best(&presets, n_values);
        match preset {
            Some(i) => named[i].0.clone(),
            None => Stencil::Fitted(best.coefficients),
        }
    }
}

/// Some rows of a band to code.
struct EncodeRows<'a, T> {
    near: Neighbourhood<'a, T>,
    first_row: usize,
    coefficients: [T; MAX_TERMS],
    scalars: Scalars<T>,
    /// Source values, which become restored ones.
    values: &'a mut [T],
    codes: &'a mut [i32],
    masked: Option<&'a [bool]>,
    /// Places among `values` of those that must be stored exactly.
    escapes: Vec<usize>,
}

impl<T: Real> Job for &mut EncodeRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let first = self.first_row * self.near.dims[X];
        let n_values = self.values.len();
        let mut made = Made::new();
        let mut prediction = Vec::new();
        let mut start = 0;
        while start < n_values {
            let piece = Piece::new(&self.near.dims, first + start, first + n_values);
            let prediction = self.near.predict(&piece, &self.coefficients, &mut made, &mut prediction);
            for block in prediction.chunks(QUANTIZED_VALUES) {
                self.code_block(start, block);
                start += block.len();
            }
        }
    }
}

impl<T: Real> EncodeRows<'_, T> {
    /// Codes the values from `start` on that have these predictions, at most [`QUANTIZED_VALUES`].
    #[inline(always)]
    fn code_block(&mut self, start: usize, prediction: &[T]) {
        let n = prediction.len();
        let (values, codes) = (&mut self.values[start..][..n], &mut self.codes[start..][..n]);
        let masked = self.masked.map(|m| &m[start..][..n]).filter(|m| m.contains(&true));
        let mut source = [T::default(); QUANTIZED_VALUES];
        source[..n].copy_from_slice(values);
        if masked.is_none() && quantize_row(values, prediction, codes, &self.scalars) {
            return;
        }
        for x in 0..n {
            let is_masked = masked.is_some_and(|m| m[x]);
            let coded = if is_masked { None } else { code_one(source[x], prediction[x], &self.scalars) };
            if coded.is_none() && !is_masked {
                self.escapes.push(start + x);
            }
            (codes[x], values[x]) = coded.unwrap_or((0, prediction[x]));
        }
    }
}

/// Codes a row and restores it in place; false if some value is not within the tolerance.
#[inline(always)]
fn quantize_row<T: Real>(values: &mut [T], prediction: &[T], codes: &mut [i32], scalars: &Scalars<T>) -> bool {
    let Scalars { step, inv_step, tolerance } = *scalars;
    let mut n_over = 0_u32;
    for ((x, p), code) in values.iter_mut().zip(prediction).zip(codes) {
        let t = x.fsub(*p).fmul(inv_step);
        let s = t.fadd(T::MAGIC);
        *code = s.bits().sub(T::MAGIC.bits()).to_i64() as i32;
        let restored = p.fadd(s.fsub(T::MAGIC).fmul(step));
        let within = x.fsub(restored).fabs() <= tolerance;
        let small = t.fabs() < T::MAX_CODE;
        n_over += u32::from(!within) | u32::from(!small);
        *x = restored;
    }
    n_over == 0
}

/// Some rows of a band to restore.
struct DecodeRows<'a, T> {
    near: Neighbourhood<'a, T>,
    first_row: usize,
    coefficients: [T; MAX_TERMS],
    step: T,
    values: &'a mut [T],
    codes: &'a [i32],
}

impl<T: Real> Job for &mut DecodeRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let first = self.first_row * self.near.dims[X];
        let n_values = self.values.len();
        let mut made = Made::new();
        let mut prediction = Vec::new();
        let mut start = 0;
        while start < n_values {
            let piece = Piece::new(&self.near.dims, first + start, first + n_values);
            let prediction = self.near.predict(&piece, &self.coefficients, &mut made, &mut prediction);
            let range = start..start + prediction.len();
            start = range.end;
            for ((x, p), code) in self.values[range.clone()].iter_mut().zip(prediction).zip(&self.codes[range]) {
                *x = p.fadd(T::of_i32(*code).fmul(self.step));
            }
        }
    }
}
