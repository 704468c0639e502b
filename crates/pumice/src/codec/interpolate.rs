//! Multi-level interpolation with feedback (docs/format.md, 7.4).
//!
//! Each point that is not on the coarser grid is predicted from restored values around it: along each of its odd axes
//! from the six nearest points, and from the corners of the squares that two odd axes span. The coefficients are those
//! of a named kernel or fitted to the chunk, band by band. Rows of a band are independent of each other, so they can be
//! worked on in parallel and in vectors.

use super::bands::{AXES, AxisSet, Band, Dims, Layout, Level, X, axes_of, volume};
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
/// Most quantities a point is predicted from.
const MAX_TERMS: usize = TAPS * AXES + AXES * (AXES - 1) / 2;
/// Observations for a fit, at least and at most.
const SAMPLE_VALUES: std::ops::Range<usize> = 128..2560;
/// Observations taken from one row, at least.
const POINTS_PER_ROW: usize = 16;
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

    /// The named ones, with their coefficients but the first.
    fn named(n_odd: usize) -> Vec<(Self, Vec<i32>)> {
        let mut all = Vec::new();
        for kernel in 0..KERNELS.len() {
            let single = (0..n_odd).map(Some).take(if n_odd > 1 { n_odd } else { 0 });
            for along in std::iter::once(None).chain(single) {
                let stencil = Stencil::Named { kernel, along };
                let coefficients = stencil.coefficients(n_odd)[1..n_terms(n_odd)].to_vec();
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

impl<'a, T: Real> Part<'a, T> {
    #[inline(always)]
    fn row(&self, at: [usize; X]) -> &'a [T] {
        let row = (at[0] * self.dims[1] + at[1]) * self.dims[2] + at[2];
        &self.values[row * self.dims[X]..][..self.dims[X]]
    }

    /// The place one further along `axis`, or the last one again.
    #[inline(always)]
    fn next(&self, mut at: [usize; X], axis: usize) -> [usize; X] {
        at[axis] = (at[axis] + 1).min(self.dims[axis] - 1);
        at
    }

    /// The first `n` values of the row at place `p` along `axis`; beyond an edge, the next of those made.
    #[inline(always)]
    fn row_or_made<'b>(&self, mut at: [usize; X], axis: usize, p: isize, n: usize, made: &mut &'b [T]) -> &'b [T]
    where
        'a: 'b,
    {
        if (0..self.dims[axis] as isize).contains(&p) {
            at[axis] = p as usize;
            return &self.row(at)[..n];
        }
        let (row, rest) = made.split_at(n);
        *made = rest;
        row
    }
}

/// Rows that one row is predicted from, as pairs: a term is the sum of two values, that of corners of two pairs.
const MAX_PAIRS: usize = TAPS * AXES + AXES * (AXES - 1);

/// Buffers for one row after the other.
struct Rows<T> {
    /// Rows with a margin, and rows beyond an edge, one after the other.
    made: Vec<T>,
    prediction: Vec<T>,
    source: Vec<T>,
}

impl<T: Real> Rows<T> {
    fn new() -> Self {
        Self { made: Vec::new(), prediction: Vec::new(), source: Vec::new() }
    }
}

/// The pairs of rows that predict a row, and the coefficient of each.
struct Pairs<'a, T> {
    all: [(&'a [T], &'a [T], T); MAX_PAIRS],
    n: usize,
}

impl<'a, T: Real> Pairs<'a, T> {
    #[inline(always)]
    fn push(&mut self, a: &'a [T], b: &'a [T], coefficient: T) {
        self.all[self.n] = (a, b, coefficient);
        self.n += 1;
    }
}

/// What predicts the rows of one band.
#[derive(Clone, Copy)]
struct Neighbourhood<'a, T> {
    /// The band's own extents.
    dims: Dims,
    odd: AxisSet,
    /// Neighbours along each odd axis, in order.
    beside: [Option<Part<'a, T>>; AXES],
    /// Corners for each pair of odd axes, in order.
    corners: [Option<Part<'a, T>>; AXES * (AXES - 1) / 2],
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
        let axes: Vec<usize> = axes_of(band.odd).collect();
        let mut all = Self { dims: band.dims, odd: band.odd, beside: [None; AXES], corners: [None; 6] };
        let mut n_pairs = 0;
        for (i, a) in axes.iter().enumerate() {
            all.beside[i] = Some(part(1 << a));
            for b in &axes[i + 1..] {
                all.corners[n_pairs] = Some(part(1 << a | 1 << b));
                n_pairs += 1;
            }
        }
        all
    }

    /// Makes the rows that the row at `at` needs and no part has: one with a margin, for neighbours along the row, rows
    /// beyond an edge, and rows of corners whose last value has none beside it. In the order in which
    /// [`Self::pairs`] takes them.
    #[inline(always)]
    fn make_rows(&self, at: [usize; X], coefficients: &[T; MAX_TERMS], made: &mut Vec<T>) {
        let n = self.dims[X];
        made.clear();
        let mut j = 0;
        for (i, axis) in axes_of(self.odd).enumerate() {
            let part = self.beside[i].as_ref().expect("there is a part for each axis");
            if axis == X {
                extend_row(part.row(at), n, made);
            } else if at[axis] + 1 < TAPS || at[axis] + TAPS >= part.dims[axis] {
                for tap in (0..TAPS).filter(|tap| coefficients[j + tap] != T::default()) {
                    for p in [at[axis] as isize - tap as isize, (at[axis] + 1 + tap) as isize] {
                        make_row_beyond(part, at, axis, p, n, made);
                    }
                }
            }
            j += TAPS;
        }
        if self.odd >> X & 1 == 0 {
            return;
        }
        let axes = axes_of(self.odd);
        let mut p = 0;
        for a in axes.clone() {
            for b in axes.clone().filter(|b| *b > a) {
                let part = self.corners[p].as_ref().expect("there is a part for each pair");
                if b == X && part.dims[X] == n && coefficients[j + p] != T::default() {
                    for place in [at, part.next(at, a)] {
                        let row = part.row(place);
                        made.extend_from_slice(&row[1..]);
                        made.push(row[n - 1]);
                    }
                }
                p += 1;
            }
        }
    }

    /// The pairs of the row at `at` whose coefficient is not 0, with rows from `made` where needed.
    #[inline(always)]
    fn pairs<'b>(&'b self, at: [usize; X], coefficients: &[T; MAX_TERMS], made: &'b [T]) -> Pairs<'b, T> {
        let n = self.dims[X];
        let mut made = made;
        let mut pairs = Pairs { all: [(&[][..], &[][..], T::default()); MAX_PAIRS], n: 0 };
        let mut j = 0;
        for (i, axis) in axes_of(self.odd).enumerate() {
            let part = self.beside[i].as_ref().expect("there is a part for each axis");
            let line = made;
            if axis == X {
                made = &made[line_len(part.dims[X], n)..];
            }
            for tap in 0..TAPS {
                let c = coefficients[j];
                j += 1;
                if c == T::default() {
                    continue;
                }
                if axis == X {
                    pairs.push(&line[TAPS - 1 - tap..][..n], &line[TAPS + tap..][..n], c);
                } else {
                    let before = part.row_or_made(at, axis, at[axis] as isize - tap as isize, n, &mut made);
                    let after = part.row_or_made(at, axis, (at[axis] + 1 + tap) as isize, n, &mut made);
                    pairs.push(before, after, c);
                }
            }
        }
        let axes = axes_of(self.odd);
        let mut p = 0;
        for a in axes.clone() {
            for b in axes.clone().filter(|b| *b > a) {
                let part = self.corners[p].as_ref().expect("there is a part for each pair");
                let c = coefficients[j];
                j += 1;
                p += 1;
                if c == T::default() {
                    continue;
                }
                for place in [at, part.next(at, a)] {
                    let row = part.row(place);
                    let beside = if b != X {
                        &part.row(part.next(place, b))[..n]
                    } else if part.dims[X] > n {
                        &row[1..=n]
                    } else {
                        let (row, rest) = made.split_at(n);
                        made = rest;
                        row
                    };
                    pairs.push(&row[..n], beside, c);
                }
            }
        }
        pairs
    }

    /// Predicts the row at `at`.
    #[inline(always)]
    fn predict(&self, at: [usize; X], coefficients: &[T; MAX_TERMS], rows: &mut Rows<T>) {
        const BLOCK: usize = 32;
        let n = self.dims[X];
        let Rows { made, prediction, .. } = rows;
        prediction.resize(n, T::default());
        self.make_rows(at, coefficients, made);
        let pairs = self.pairs(at, coefficients, made);
        let terms = &pairs.all[..pairs.n];
        if n < BLOCK {
            prediction.fill(T::default());
            for (a, b, c) in terms {
                for ((sum, a), b) in prediction.iter_mut().zip(*a).zip(*b) {
                    *sum = sum.fadd(c.fmul(a.fadd(*b)));
                }
            }
            return;
        }
        let mut x = 0;
        loop {
            let mut sums = [T::default(); BLOCK];
            for (a, b, c) in terms {
                let a: &[T; BLOCK] = a[x..].first_chunk().expect("rows have the length of the prediction");
                let b: &[T; BLOCK] = b[x..].first_chunk().expect("rows have the length of the prediction");
                for i in 0..BLOCK {
                    sums[i] = sums[i].fadd(c.fmul(a[i].fadd(b[i])));
                }
            }
            prediction[x..x + BLOCK].copy_from_slice(&sums);
            if x + BLOCK == n {
                return;
            }
            // The last block may overlap the one before: it says the same.
            x = (x + BLOCK).min(n - BLOCK);
        }
    }

    /// Appends the terms of the row at `at` to the sample, every `stride`-th point.
    #[inline(always)]
    fn observe(
        &self,
        at: [usize; X],
        stride: usize,
        source: &[T],
        scalars: &Scalars<T>,
        made: &mut Vec<T>,
        sample: &mut Sample,
    ) {
        let n = self.dims[X];
        let n_odd = self.odd.count_ones() as usize;
        let norms: [T; MAX_TERMS] = std::array::from_fn(|j| norm(j, n_odd));
        self.make_rows(at, &norms, made);
        let pairs = self.pairs(at, &norms, made);
        let scale = 1.0 / scalars.step.to_f64();
        let n_along = TAPS * n_odd;
        for x in (at[2] % stride..n).step_by(stride) {
            let term = |j: usize| {
                let pair = |p: usize| pairs.all[p].0[x].to_f64() + pairs.all[p].1[x].to_f64();
                if j < n_along { 0.5 * pair(j) } else { 0.25 * (pair(2 * j - n_along) + pair(2 * j - n_along + 1)) }
            };
            let base = term(0);
            let target = (source[x].to_f64() - base) * scale;
            // Values that are not finite, or as good as that, say nothing.
            if target.abs() < 1e9 {
                sample.target.push(target);
                for (j, column) in sample.columns.iter_mut().enumerate() {
                    column.push((term(j + 1) - base) * scale);
                }
            }
        }
    }
}

/// Turns a sum of values into their mean.
#[inline(always)]
fn norm<T: Real>(j: usize, n_odd: usize) -> T {
    T::from_f64(if j < TAPS * n_odd { 0.5 } else { 0.25 })
}

/// Length of a row of `len` values with a margin for `n` points between them.
#[inline(always)]
fn line_len(len: usize, n: usize) -> usize {
    TAPS - 1 + len.max(n + TAPS)
}

/// Appends a row with a margin on both sides for the taps of `n` points between its own.
#[inline(always)]
fn extend_row<T: Real>(row: &[T], n: usize, made: &mut Vec<T>) {
    let margin = TAPS as isize - 1;
    for p in -margin..0 {
        made.push(extrapolate(row, p));
    }
    made.extend_from_slice(row);
    for p in row.len() as isize..n as isize + margin + 1 {
        made.push(extrapolate(row, p));
    }
}

/// Appends the row at place `p` along `axis`, which is not the fastest, if it lies beyond an edge: extrapolated.
#[inline(always)]
fn make_row_beyond<T: Real>(
    part: &Part<'_, T>,
    mut at: [usize; X],
    axis: usize,
    p: isize,
    n: usize,
    made: &mut Vec<T>,
) {
    if (0..part.dims[axis] as isize).contains(&p) {
        return;
    }
    let near = extrapolation(part.dims[axis], p);
    let [a, b, c] = near.at.map(|p| {
        at[axis] = p;
        &part.row(at)[..n]
    });
    let start = made.len();
    made.extend_from_slice(a);
    for ((a, b), c) in made[start..].iter_mut().zip(b).zip(c) {
        *a = near.value(*a, *b, *c);
    }
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

/// Moves on to the next row.
#[inline(always)]
fn advance(dims: &Dims, at: &mut [usize; X]) {
    at[2] += 1;
    if at[2] == dims[2] {
        at[2] = 0;
        at[1] += 1;
        if at[1] == dims[1] {
            at[1] = 0;
            at[0] += 1;
        }
    }
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

struct Merge<'a, T> {
    layout: &'a Layout,
    level: &'a Level,
    coarse: &'a [T],
    all: &'a [T],
    grid: &'a mut [T],
}

impl<T: Real> Job for Merge<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.layout.merge(self.level, self.coarse, self.all, self.grid);
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
        let mut sample = Sample::with_columns(n_terms(n_odd) - 1);
        // A few points of each of many rows, spread over the band.
        let wanted = (n_values / 24).clamp(SAMPLE_VALUES.start, SAMPLE_VALUES.end);
        let n = dims[X];
        let n_rows = n_values / n;
        let stride = (n / (wanted / n_rows).max(POINTS_PER_ROW)).max(1);
        let n_sampled = (wanted * stride).div_ceil(n).clamp(1, n_rows);
        let mut made = Vec::new();
        for i in 0..n_sampled {
            let row = (2 * i + 1) * n_rows / (2 * n_sampled);
            if self.masked.is_some_and(|m| m[row * n..][..n].contains(&true)) {
                continue;
            }
            let source = &self.current[row * n..][..n];
            self.near.observe(place(&dims, row), stride, source, &self.scalars, &mut made, &mut sample);
        }
        let presets: Vec<Vec<i32>> = named.iter().map(|(_, coefficients)| coefficients.clone()).collect();
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
        let n = self.near.dims[X];
        let mut rows = Rows::new();
        let mut at = place(&self.near.dims, self.first_row);
        let chunks = self.values.chunks_exact_mut(n).zip(self.codes.chunks_exact_mut(n));
        for (i, (values, codes)) in chunks.enumerate() {
            self.near.predict(at, &self.coefficients, &mut rows);
            advance(&self.near.dims, &mut at);
            let masked = self.masked.map(|m| &m[i * n..][..n]);
            rows.source.clear();
            rows.source.extend_from_slice(values);
            if masked.is_none() && quantize_row(values, &rows.prediction, codes, &self.scalars) {
                continue;
            }
            for x in 0..n {
                let (value, prediction) = (rows.source[x], rows.prediction[x]);
                let is_masked = masked.is_some_and(|m| m[x]);
                let coded = if is_masked { None } else { code_one(value, prediction, &self.scalars) };
                if coded.is_none() && !is_masked {
                    self.escapes.push(i * n + x);
                }
                (codes[x], values[x]) = coded.unwrap_or((0, prediction));
            }
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
        let n = self.near.dims[X];
        let mut rows = Rows::new();
        let mut at = place(&self.near.dims, self.first_row);
        for (values, codes) in self.values.chunks_exact_mut(n).zip(self.codes.chunks_exact(n)) {
            self.near.predict(at, &self.coefficients, &mut rows);
            advance(&self.near.dims, &mut at);
            for ((x, p), code) in values.iter_mut().zip(&rows.prediction).zip(codes) {
                *x = p.fadd(T::of_i32(*code).fmul(self.step));
            }
        }
    }
}
