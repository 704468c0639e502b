//! The neighbours that predict a point of an interpolated band (docs/format.md, 7.4): boxes of restored values. They
//! are read in place if they lie within an array; where they cross an edge, they are copied and extrapolated.

use std::ops::Range;

use super::bands::{Band, BandLayout, Level};
use super::fit::Sample;
use crate::codec::shared::dims::{AXES, AxisSet, Dims, X, axes_of, volume};
use crate::num::{Real, Value};

/// Terms along an axis: the sums of the nearest two points, of the next two, and of the two after those.
pub(crate) const TAPS: usize = 3;
/// The most pairs of odd axes.
pub(crate) const N_CORNERS: usize = AXES * (AXES - 1) / 2;
/// The most terms of a prediction.
pub(crate) const MAX_TERMS: usize = TAPS * AXES + N_CORNERS;
/// The most values that are predicted at a time: few enough for the L1 cache.
pub(crate) const PIECE_VALUES: usize = 1 << 11;

pub(crate) fn n_terms(n_odd: usize) -> usize {
    TAPS * n_odd + n_odd * n_odd.saturating_sub(1) / 2
}

/// A dense array of restored values.
#[derive(Clone, Copy)]
struct Part<'a, T> {
    values: &'a [T],
    dims: Dims,
}

/// A box of a band, whose values are contiguous there.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) from: Dims,
    pub(crate) dims: Dims,
}

impl Piece {
    /// A piece that starts at value `start` of a band of extents `dims`, and ends at `end` at the latest.
    #[inline(always)]
    pub(crate) fn new(dims: &Dims, start: usize, end: usize) -> Self {
        let [row, x] = [start / dims[X], start % dims[X]];
        let [i0, i1, i2] = row_position(dims, row);
        let mut piece = Self { from: [i0, i1, i2, x], dims: [1; AXES] };
        let mut n_values = 1;
        for axis in (0..AXES).rev() {
            let left = (dims[axis] - piece.from[axis]).min((end - start) / n_values);
            // Pieces are as even as possible, since a partial vector costs as much as a whole one.
            piece.dims[axis] = left.div_ceil(left.div_ceil(PIECE_VALUES / n_values));
            n_values *= piece.dims[axis];
            if piece.dims[axis] < dims[axis] {
                break;
            }
        }
        piece
    }
}

/// How an array is extended beyond its edges.
#[derive(Clone, Copy)]
enum Beyond {
    /// Extrapolated along this axis, the only one along which boxes cross an edge.
    Extrapolated(usize),
    /// Repeats the last value.
    Last,
}

/// A box of values: within a part, or a copy that extends beyond its edges.
#[derive(Clone, Copy)]
struct Window<'a, T> {
    /// Values of the part, or `None` for a copy in [`Made`].
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
            // Contiguous rows are merged into one.
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

    /// The whole row at a position along the slower axes; indices beyond the end are those of the last row.
    #[inline(always)]
    fn row(&self, at: [isize; AXES], strides: &Dims) -> &'a [T] {
        let mut start = 0;
        for a in 0..X {
            start += (at[a] as usize).min(self.dims[a] - 1) * strides[a];
        }
        &self.values[start..][..self.dims[X]]
    }

    /// Copies a row of a box, extended beyond the edges.
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

/// Copies a row; most rows are too short for a call of memcpy to pay.
#[inline(always)]
fn copy_short<T: Copy>(from: &[T], to: &mut [T]) {
    match from.len() {
        16..=64 => copy_blocks::<T, 16>(from, to),
        8..16 => copy_blocks::<T, 8>(from, to),
        _ => to.copy_from_slice(from),
    }
}

/// [`copy_short`] for rows of at least a block.
#[inline(always)]
fn copy_blocks<T: Copy, const BLOCK: usize>(from: &[T], to: &mut [T]) {
    let n = from.len();
    let mut x = 0;
    while x < n {
        // The last block may overlap the previous one.
        x = x.min(n - BLOCK);
        let block: &[T; BLOCK] = from[x..].first_chunk().expect("there is a block before the end");
        to[x..x + BLOCK].copy_from_slice(block);
        x += BLOCK;
    }
}

/// A buffer for the boxes that cross an edge, one after the other.
pub(crate) struct Made<T> {
    values: Vec<T>,
    n: usize,
}

/// The first `n` values of a buffer, of arbitrary content.
#[inline(always)]
fn room<V: Copy + Default>(buffer: &mut Vec<V>, n: usize) -> &mut [V] {
    if buffer.len() < n {
        buffer.resize(n, V::default());
    }
    &mut buffer[..n]
}

impl<T: Real> Made<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), n: 0 }
    }

    /// Space for `n` more values, of arbitrary content.
    #[inline(always)]
    fn extend(&mut self, n: usize) -> &mut [T] {
        let start = self.n;
        self.n += n;
        &mut room(&mut self.values, self.n)[start..]
    }
}

/// The most pairs of boxes that predict a piece: one for each tap, two for the corners of each pair of odd axes.
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
pub(crate) struct Pairs<'a, T> {
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

/// Predicts the values of one band.
#[derive(Clone, Copy)]
pub(crate) struct Neighbourhood<'a, T> {
    /// The band's own extents.
    pub(crate) dims: Dims,
    pub(crate) odd: AxisSet,
    /// The parent along each odd axis, in order.
    beside: [Option<Part<'a, T>>; AXES],
    /// The band, or coarse grid, of the corners for each pair of odd axes, in order.
    corners: [Option<Part<'a, T>>; N_CORNERS],
}

impl<'a, T: Real> Neighbourhood<'a, T> {
    /// `before` holds the values of all bands before `band`, `coarse` those of the coarse grid.
    pub(crate) fn new(layout: &BandLayout, level: &Level, band: &Band, coarse: &'a [T], before: &'a [T]) -> Self {
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
    pub(crate) fn pairs<'b>(
        &'b self,
        piece: &Piece,
        coefficients: &[T; MAX_TERMS],
        made: &'b mut Made<T>,
    ) -> Pairs<'b, T> {
        let from = piece.from.map(|p| p as isize);
        // All copies are made before any is borrowed.
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
    pub(crate) fn predict<'b>(
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
        // Rows that are contiguous in all boxes are merged into one.
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
    /// row's position in the piece, and `inner` are the values of the row that lack no term. There is a pair for every
    /// tap and every corner of `n_odd` axes.
    #[inline(always)]
    pub(crate) fn observe(
        &self,
        row: [usize; X],
        (first, stride): (usize, usize),
        (source, n_odd, step): (&[T], usize, T),
        inner: &Range<usize>,
        [base, sums]: &mut [Vec<f64>; 2],
        sample: &mut Sample,
    ) {
        let scale = 1.0 / step.to_f64();
        let n = (source.len() - first).div_ceil(stride);
        let (base, sums) = (room(base, n), room(sums, n));
        let points = (row, first, stride, source.len());
        sum_pair(&self.all[0], points, base);
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
                sum_pair(&self.all[j], points, column);
                for (z, base) in column.iter_mut().zip(&*base) {
                    *z = (0.5 * *z - base) * scale;
                }
            } else {
                sum_pair(&self.all[2 * j - n_along], points, sums);
                sum_pair(&self.all[2 * j - n_along + 1], points, column);
                for ((z, sum), base) in column.iter_mut().zip(&*sums).zip(&*base) {
                    *z = (0.25 * (sum + *z) - base) * scale;
                }
            }
        }
        // Skips targets that are huge or not finite.
        let nth = |x: usize| x.saturating_sub(first).div_ceil(stride).min(n);
        sample.append(n, nth(inner.start)..nth(inner.end), |target| target.abs() < 1e9);
    }
}

/// Sums of a pair at every `stride`-th value from `first` on, of a row of `n` values.
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

/// For each pair: its two first rows, the stride to the next rows, and the coefficient.
type Lines<'a, T> = [(&'a [T], &'a [T], usize, T)];

/// Predicts row `i` of the lines.
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

/// [`predict_row`] for rows of at least a block.
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
        // The last block may overlap the previous one; both compute the same.
        x = (x + BLOCK).min(n - BLOCK);
    }
}

/// The number of taps up to the last one whose coefficient is not 0.
#[inline(always)]
fn reach<T: Real>(coefficients: &[T]) -> usize {
    coefficients.iter().rposition(|c| *c != T::default()).map_or(0, |tap| tap + 1)
}

/// Pairs of axes of a set.
#[inline(always)]
fn axis_pairs(set: AxisSet) -> impl Iterator<Item = (usize, usize)> {
    axes_of(set).flat_map(move |a| axes_of(set).filter(move |b| *b > a).map(move |b| (a, b)))
}

/// The factor that turns the sum of term `j` into a mean.
#[inline(always)]
pub(crate) fn norm<T: Real>(j: usize, n_odd: usize) -> T {
    T::from_f64(if j < TAPS * n_odd { 0.5 } else { 0.25 })
}

/// Extrapolates a value beyond an edge from the two or three nearest.
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

    /// Extrapolates a row from the nearest rows.
    #[inline(always)]
    fn fill<T: Value>(&self, a: &[T], b: &[T], c: &[T], out: &mut [T]) {
        for (((x, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *x = self.value(*a, *b, *c);
        }
    }
}

/// The extrapolation to index `p` outside of 0..n: quadratic for -1 if there are three values, otherwise linear.
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

/// The position along the slower axes of the row with this index.
#[inline(always)]
pub(crate) fn row_position(dims: &Dims, row: usize) -> [usize; X] {
    [row / (dims[1] * dims[2]), row / dims[2] % dims[1], row % dims[2]]
}
