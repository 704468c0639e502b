//! Multi-level interpolation with feedback (docs/format.md, 7.4).
//!
//! Each point that is not on the coarser grid is predicted from restored values around it: along each of its odd axes
//! from the six nearest points, and from the corners of the squares that two odd axes span. The coefficients are those
//! of a named kernel or fitted to the chunk, band by band. Rows of a band are independent of each other, so threads
//! and vectors can process them in parallel.
//!
//! The points are values, restored with feedback, or the integers of values on a lattice. An integer is predicted in the
//! same way, its code is the difference from the integer nearest to the prediction, and there is no feedback: what is
//! restored is the integer itself.

use std::ops::Range;

use super::bands::{BandLayout, Merge};
use super::fit::{COEFFICIENT_ONE, MAX_COEFFICIENT, MAX_PASSES, Sample, sample_position};
use super::neighbourhood::{MAX_TERMS, Made, Neighbourhood, PIECE_VALUES, Piece, TAPS, n_terms, norm, row_position};
use super::{context, pieces};
use crate::codec::shared::dims::{AXES, AxisSet, Dims, X, volume};
use crate::entropy::binary::{BitCoder, NumberModel};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, Workers, filled, scratch};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};

/// The fewest and the most observations for a fit.
const SAMPLE_VALUES: Range<usize> = 128..2560;
/// The fewest observations per row, where it has as many.
const POINTS_PER_ROW: usize = 16;
/// Along axes of fewer points, edges are not distinguished: all points count as inner ones.
const MIN_INNER: usize = 8;
/// Values that are quantised at a time.
const QUANTIZED_VALUES: usize = 64;
/// Values per task of a worker.
const VALUES_PER_TASK: usize = 1 << 15;

/// How the step shrinks from level to level: by `ratio` for each, down to 1 / `most`.
pub(crate) const STEP_SCALES: [(f64, f64); 4] = [(1.0, 1.0), (1.25, 2.0), (1.5, 3.0), (1.75, 4.0)];

/// Named kernels: linear, cubic, natural cubic. Coefficients of half the sums of [`TAPS`], times COEFFICIENT_ONE.
const KERNELS: [[i32; TAPS]; 3] = [[1024, 0, 0], [1152, -128, 0], [1178, -154, 0]];

/// The coefficients that predict a band.
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
    /// Index into [`STEP_SCALES`].
    pub(crate) scale: usize,
    /// Step of the finest level; 1 for integers.
    pub(crate) step: T,
    /// Whether the points are integers.
    pub(crate) on_lattice: bool,
    /// One for each band but the anchors.
    pub(crate) stencils: Vec<Stencil>,
}

/// A chunk as codes.
pub(crate) struct Encoded<T> {
    pub(crate) layout: BandLayout,
    pub(crate) parameters: Parameters<T>,
    pub(crate) codes: Vec<i32>,
    /// Indices, in the order of codes, of values that must be stored exactly.
    pub(crate) escapes: Vec<usize>,
}

impl<T: Real> Parameters<T> {
    /// Writes or reads the parameters; `dims` are those of the chunk.
    pub(crate) fn code<C: BitCoder>(
        coder: &mut C,
        given: Option<&Self>,
        on_lattice: bool,
        dims: &Dims,
    ) -> Result<(Self, BandLayout)> {
        let active = coder.raw(given.map_or(0, |p| u64::from(p.active)), AXES as u32) as AxisSet;
        let (mut scale, mut step) = (0, T::from_f64(1.0));
        if !on_lattice {
            scale = coder.raw(given.map_or(0, |p| p.scale as u64), 2) as usize;
            let bits = coder.raw(given.map_or(0, |p| p.step.to_bits_u64()), 8 * size_of::<T>() as u32);
            step = T::from_bits_u64(bits);
            if !step.to_f64().is_finite() {
                return Err(Error::corrupt("chunk has a step that is not finite"));
            }
        }
        let layout = BandLayout::interpolation(*dims, active);
        let mut stencils = Vec::with_capacity(layout.bands.len());
        let mut numbers = NumberModel::default();
        let mut is_fitted = crate::entropy::binary::AdaptiveBit::default();
        for (i, band) in layout.bands.iter().skip(1).enumerate() {
            let given = given.map(|p| &p.stencils[i]);
            stencils.push(Stencil::code(coder, given, band.odd, &mut is_fitted, &mut numbers)?);
        }
        Ok((Self { active, scale, step, on_lattice, stencils }, layout))
    }
}

impl Stencil {
    fn code<C: BitCoder>(
        coder: &mut C,
        given: Option<&Self>,
        odd: AxisSet,
        is_fitted: &mut crate::entropy::binary::AdaptiveBit,
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

    /// Number of fitted coefficients.
    fn n_fitted(&self) -> usize {
        match self {
            Stencil::Named { .. } => 0,
            Stencil::Fitted(coefficients) => coefficients.len(),
        }
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
        // The first coefficient makes their sum one.
        all[0] = COEFFICIENT_ONE - all[1..].iter().sum::<i32>();
        all
    }

    /// All named stencils, each with the coefficients of all terms.
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

/// The step of a level.
fn level_step<T: Real>(step: T, scale: usize, level: usize) -> T {
    let (ratio, most) = STEP_SCALES[scale];
    let mut divisor = 1.0;
    for _ in 0..level {
        divisor = f64::min(divisor * ratio, most);
    }
    T::from_f64(step.to_f64() / divisor)
}

/// Step of one level, its reciprocal, and the tolerance of the check; or that points are integers, which need none.
#[derive(Clone, Copy)]
struct Scalars<T> {
    step: T,
    inv_step: T,
    tolerance: T,
    on_lattice: bool,
}

fn scaled<T: Real>(stencil: &Stencil, n_odd: usize) -> [T; MAX_TERMS] {
    let coefficients = stencil.coefficients(n_odd);
    std::array::from_fn(|j| T::from_f64(f64::from(coefficients[j]) / f64::from(COEFFICIENT_ONE)).fmul(norm(j, n_odd)))
}

/// A chunk that is being coded, coarsest level first.
pub(crate) struct Encoder<T> {
    layout: BandLayout,
    active: AxisSet,
    scale: usize,
    step: T,
    tolerance: T,
    /// Whether the points are integers.
    on_lattice: bool,
    /// Whether points are masked, in the order of codes.
    masked: Option<Vec<bool>>,
    /// All points in the order of codes: restored values of levels that are coded, source values of the others.
    all: Vec<T>,
    /// Restored values on the coarse grid of the next level to code.
    coarse: Vec<T>,
    /// Levels that are not coded yet.
    n_left: usize,
    codes: Vec<i32>,
    escapes: Vec<usize>,
    stencils: Vec<Stencil>,
    /// Stencils that were fitted for a sample of the finest level, if all of it is to use them.
    finest: Vec<Stencil>,
}

/// Codes of all levels but the finest, and of bricks of the finest.
pub(crate) struct Sampled<'a> {
    pub(crate) layout: &'a BandLayout,
    pub(crate) codes: &'a [i32],
    pub(crate) masked: Option<&'a [bool]>,
    /// The bricks.
    pub(crate) pieces: &'a [pieces::Piece],
    /// Values of the bricks that must be stored exactly.
    pub(crate) n_escapes: usize,
    /// Fitted coefficients of all stencils.
    pub(crate) n_coefficients: usize,
}

impl<T: Real> Encoder<T> {
    /// Codes the anchors of `values` (working order). `masked` points take their prediction; their code is 0. Without
    /// `steps`, which are step and tolerance, the values are integers; NaN among them has none and is stored exactly.
    pub(crate) fn new(
        values: &[T],
        masked: Option<&[bool]>,
        dims: Dims,
        active: AxisSet,
        scale: usize,
        steps: Option<(T, T)>,
    ) -> Self {
        let (step, tolerance) = steps.unwrap_or((T::from_f64(1.0), T::default()));
        let layout = BandLayout::interpolation(dims, active);
        let codes = scratch::take(layout.n_values);
        let mut all = scratch::take(layout.n_values);
        let masked = masked.map(|masked| to_bands(&layout, masked, false).expect(MEMORY_WAS_CHECKED));
        let coarse = simd::run(Split { layout: &layout, values, all: &mut all });
        let n_left = layout.levels.len();
        let stencils = Vec::with_capacity(layout.bands.len());
        let mut encoder = Self {
            layout,
            active,
            scale,
            step,
            tolerance,
            on_lattice: steps.is_none(),
            masked,
            all,
            coarse,
            n_left,
            codes,
            escapes: Vec::new(),
            stencils,
            finest: Vec::new(),
        };
        let scalars = encoder.scalars(n_left);
        let Self { layout, masked, coarse, codes, escapes, .. } = &mut encoder;
        encode_anchors(layout, coarse, masked.as_deref(), &scalars, codes, escapes);
        encoder
    }

    fn scalars(&self, level: usize) -> Scalars<T> {
        let step = level_step(self.step, self.scale, level);
        let inv_step = T::from_f64(1.0 / step.to_f64());
        Scalars { step, inv_step, tolerance: self.tolerance, on_lattice: self.on_lattice }
    }

    /// Codes all but the `n_left` finest levels.
    pub(crate) fn advance(&mut self, n_left: usize, workers: &Workers) {
        while self.n_left > n_left {
            let l = self.n_left - 1;
            for i in self.layout.levels[l].bands.clone() {
                let dims = &self.layout.bands[i].dims;
                let n_rows = volume(dims) / dims[X];
                let per_task = (VALUES_PER_TASK / dims[X]).max(1);
                let tasks = (0..n_rows).step_by(per_task).map(|first| first..(first + per_task).min(n_rows));
                let stencil = self.code_band(i, tasks.collect(), workers);
                self.stencils.push(stencil);
            }
            if l > 0 {
                let Self { layout, coarse, all, .. } = &mut *self;
                let level = &layout.levels[l];
                let mut grid = scratch::take(volume(&level.grid));
                simd::run(Merge { layout, level, coarse, all, grid: &mut grid });
                scratch::give(std::mem::replace(coarse, grid));
            }
            self.n_left = l;
        }
    }

    /// Codes rows, in ascending order, of a band of the next level, and returns its stencil.
    fn code_band(&mut self, i: usize, rows: Vec<Range<usize>>, workers: &Workers) -> Stencil {
        let band = &self.layout.bands[i];
        let level = &self.layout.levels[band.level];
        let scalars = self.scalars(band.level);
        let (before, current) = self.all.split_at_mut(band.offset);
        let n = volume(&band.dims);
        let current = &mut current[..n];
        let near = Neighbourhood::new(&self.layout, level, band, &self.coarse, before);
        let masked = self.masked.as_ref().map(|m| &m[band.offset..][..n]);
        let known = self.finest.get(i - level.bands.start).filter(|_| band.level == 0);
        let stencil = known.cloned().unwrap_or_else(|| simd::run(Fit { near, current, masked, scalars }));
        let coefficients = scaled(&stencil, band.odd.count_ones() as usize);
        let mut tasks: Vec<EncodeRows<'_, T>> = Vec::with_capacity(rows.len());
        let (mut values_left, mut codes_left) = (current, &mut self.codes[band.offset..][..n]);
        let mut end = 0;
        for rows in rows {
            let (values, codes);
            (_, values_left) = values_left.split_at_mut(rows.start * band.dims[X] - end);
            (_, codes_left) = codes_left.split_at_mut(rows.start * band.dims[X] - end);
            (values, values_left) = values_left.split_at_mut(rows.len() * band.dims[X]);
            (codes, codes_left) = codes_left.split_at_mut(rows.len() * band.dims[X]);
            end = rows.end * band.dims[X];
            let masked = masked.map(|m| &m[rows.start * band.dims[X]..end]);
            let escapes = Vec::new();
            tasks.push(EncodeRows {
                near,
                first_row: rows.start,
                coefficients,
                scalars,
                values,
                codes,
                masked,
                escapes,
            });
        }
        let run = |_: usize, task: &mut EncodeRows<'_, T>| {
            simd::run(task);
            Ok(())
        };
        workers.for_each(&mut tasks, run).expect("encoding does not fail");
        for task in &tasks {
            let first = band.offset + task.first_row * band.dims[X];
            self.escapes.extend(task.escapes.iter().map(|at| first + at));
        }
        stencil
    }

    /// Codes bricks of the finest level, when all others are coded, and calls `f` with them; keeps only the stencils.
    pub(crate) fn sample<R>(&mut self, bricks: &[pieces::Brick], f: impl FnOnce(&Sampled<'_>) -> R) -> R {
        assert_eq!(self.n_left, 1, "all levels but one are coded");
        let bands = self.layout.levels[0].bands.clone();
        let n_escapes = self.escapes.len();
        let mut saved: Vec<(usize, Vec<T>)> = Vec::new();
        let mut finest = Vec::new();
        let mut n_coefficients: usize = self.stencils.iter().map(Stencil::n_fitted).sum();
        if let Some(masked) = &self.masked {
            // Masked points take their prediction when they are coded; until then, the value before.
            let first = self.layout.bands[bands.start].offset;
            let mut last = T::default();
            for (x, is_masked) in self.all[first..].iter_mut().zip(&masked[first..]) {
                if *is_masked {
                    *x = last;
                }
                last = *x;
            }
        }
        let in_band = |i: usize| bricks.iter().map(move |brick| (i, brick));
        let pieces = bands.clone().flat_map(in_band).map(|(i, brick)| brick.in_band(i, &self.layout.bands[i].dims));
        let pieces: Vec<pieces::Piece> = pieces.collect();
        context::clear_parents(&self.layout, &pieces, &mut self.codes);
        for i in bands {
            let band = &self.layout.bands[i];
            let of_band = pieces.iter().filter(|piece| piece.band == i);
            let mut rows: Vec<Range<usize>> = of_band.flat_map(|piece| piece.row_ranges(&band.dims)).collect();
            rows.sort_unstable_by_key(|rows| rows.start);
            for rows in &rows {
                let first = band.offset + rows.start * band.dims[X];
                saved.push((first, self.all[first..][..rows.len() * band.dims[X]].to_vec()));
            }
            let stencil = self.code_band(i, rows, &Workers::Serial);
            n_coefficients += stencil.n_fitted();
            finest.push(stencil);
        }
        let result = f(&Sampled {
            layout: &self.layout,
            codes: &self.codes,
            masked: self.masked.as_deref(),
            pieces: &pieces,
            n_escapes: self.escapes.len() - n_escapes,
            n_coefficients,
        });
        for (first, values) in saved {
            self.all[first..][..values.len()].copy_from_slice(&values);
        }
        self.escapes.truncate(n_escapes);
        self.finest = finest;
        result
    }

    /// Discards the stencils of the finest level: they are fitted again when all of it is coded.
    pub(crate) fn forget_finest(&mut self) {
        self.finest.clear();
    }

    /// Codes the remaining levels.
    pub(crate) fn finish(mut self, workers: &Workers) -> Encoded<T> {
        self.advance(0, workers);
        scratch::give(self.coarse);
        scratch::give(self.all);
        self.escapes.sort_unstable();
        let Self { active, scale, step, on_lattice, stencils, .. } = self;
        let parameters = Parameters { active, scale, step, on_lattice, stencils };
        Encoded { layout: self.layout, parameters, codes: self.codes, escapes: self.escapes }
    }
}

/// The most memory that [`decode`] takes for so many values: those of bands, and those of coarse grids, which have half
/// of the values or less.
pub(crate) fn decode_bytes<T: Real>(n_values: u64) -> u64 {
    size_of::<T>() as u64 * (n_values + n_values / 2 + n_values / 4) + n_values / 16
}

/// Restores values from codes; the inverse of [`Encoder`] except for escapes.
pub(crate) fn decode<T: Real>(
    layout: &BandLayout,
    parameters: &Parameters<T>,
    codes: &[i32],
    out: &mut [T],
    workers: &Workers,
) -> Result<()> {
    let mut all = scratch::try_take(layout.n_values)?;
    let step_of = |level: usize| level_step(parameters.step, parameters.scale, level);
    let on_lattice = parameters.on_lattice;
    let mut coarse = scratch::try_take(volume(&layout.bands[0].dims))?;
    decode_anchors(layout, step_of(layout.levels.len()), on_lattice, codes, &mut coarse);
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
                .map(|(i, (values, codes))| DecodeRows {
                    near,
                    first_row: i * rows,
                    coefficients,
                    step,
                    on_lattice,
                    values,
                    codes,
                })
                .collect();
            let run = |_: usize, task: &mut DecodeRows<'_, T>| {
                simd::run(task);
                Ok(())
            };
            workers.for_each(&mut tasks, run)?;
        }
        if l == 0 {
            simd::run(Merge { layout, level, coarse: &coarse, all: &all, grid: out });
        } else {
            let mut grid = scratch::try_take(volume(&level.grid))?;
            simd::run(Merge { layout, level, coarse: &coarse, all: &all, grid: &mut grid });
            scratch::give(std::mem::replace(&mut coarse, grid));
        }
    }
    scratch::give(coarse);
    scratch::give(all);
    Ok(())
}

/// Reorders one value per point from working order to the order of codes.
pub(crate) fn to_bands<V: Copy>(layout: &BandLayout, values: &[V], zero: V) -> Result<Vec<V>> {
    let mut all = filled(zero, layout.n_values)?;
    let mut grid = values;
    let mut owned;
    for level in &layout.levels {
        let mut coarse = filled(zero, volume(&level.coarse))?;
        layout.split(level, grid, &mut coarse, &mut all);
        owned = coarse;
        grid = &owned;
    }
    all[..grid.len()].copy_from_slice(grid);
    Ok(all)
}

/// Predicts an anchor by the one before it in the row; the first of a row by the first of the row before.
fn anchor_prediction<T: Real>(dims: &Dims, restored: &[T], at: usize) -> T {
    let n = dims[X];
    match at {
        0 => T::default(),
        at if at.is_multiple_of(n) => restored[at - n],
        at => restored[at - 1],
    }
}

fn encode_anchors<T: Real>(
    layout: &BandLayout,
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
        (codes[at], anchors[at]) = coded.unwrap_or((0, without_code(prediction, scalars)));
    }
}

fn decode_anchors<T: Real>(layout: &BandLayout, step: T, on_lattice: bool, codes: &[i32], anchors: &mut [T]) {
    for at in 0..anchors.len() {
        let prediction = anchor_prediction(&layout.bands[0].dims, anchors, at);
        let code = codes[at];
        anchors[at] = if on_lattice { integer(prediction, code) } else { prediction.fadd(T::of_i32(code).fmul(step)) };
    }
}

/// The integer nearest to a prediction, and whether the prediction is below it. Then positive codes count downwards, so
/// that code 1 is the integer next nearest.
#[inline(always)]
fn nearest<T: Real>(prediction: T) -> (T, bool) {
    let integer = prediction.fadd(T::MAGIC).fsub(T::MAGIC);
    (integer, prediction < integer)
}

/// The integer that a code restores.
#[inline(always)]
fn integer<T: Real>(prediction: T, code: i32) -> T {
    let (nearest, is_below) = nearest(prediction);
    nearest.fadd(T::of_i32(if is_below { code.wrapping_neg() } else { code }))
}

/// The code of an integer, and whether it restores the integer.
#[inline(always)]
fn code_integer<T: Real>(x: T, prediction: T) -> (i32, bool) {
    let (nearest, is_below) = nearest(prediction);
    let difference = x.fsub(nearest);
    let rounded = difference.fadd(T::MAGIC);
    let code = rounded.bits().sub(T::MAGIC.bits()).to_i64() as i32;
    // What is nearest to a prediction beyond the range of integers need not be one.
    let is_restored = (difference.fabs() < T::MAX_CODE) & (nearest.fadd(rounded.fsub(T::MAGIC)) == x);
    (if is_below { code.wrapping_neg() } else { code }, is_restored)
}

/// What a point without a code is restored to.
#[inline(always)]
fn without_code<T: Real>(prediction: T, scalars: &Scalars<T>) -> T {
    if scalars.on_lattice { nearest(prediction).0 } else { prediction }
}

/// The code of a value and the restored value, if the error is within the tolerance; also tries the adjacent code.
#[inline(always)]
fn code_one<T: Real>(x: T, prediction: T, scalars: &Scalars<T>) -> Option<(i32, T)> {
    if scalars.on_lattice {
        let (code, is_restored) = code_integer(x, prediction);
        return is_restored.then_some((code, x));
    }
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
    layout: &'a BandLayout,
    values: &'a [T],
    all: &'a mut [T],
}

impl<T: Real> Kernel for Split<'_, T> {
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
        grid.unwrap_or_else(|| {
            let mut anchors = scratch::take(self.values.len());
            anchors.copy_from_slice(self.values);
            anchors
        })
    }
}

/// Finds the stencil of a band.
struct Fit<'a, T> {
    near: Neighbourhood<'a, T>,
    current: &'a [T],
    masked: Option<&'a [bool]>,
    scalars: Scalars<T>,
}

impl<T: Real> Kernel for Fit<'_, T> {
    type Output = Stencil;

    #[inline(always)]
    fn run(self) -> Stencil {
        let dims = self.near.dims;
        let n_values = self.current.len();
        let n_odd = self.near.odd.count_ones() as usize;
        let named = Stencil::named(n_odd);
        // The sample has a few points in each of many rows, spread over the band.
        let wanted = (n_values / 24).clamp(SAMPLE_VALUES.start, SAMPLE_VALUES.end);
        let n = dims[X];
        let n_rows = n_values / n;
        let stride = (n / (wanted / n_rows).max(POINTS_PER_ROW)).max(1);
        let n_sampled = (wanted * stride).div_ceil(n).clamp(1, n_rows);
        let per_pass = n_sampled * n.div_ceil(stride);
        let mut sample = Sample::new(n_terms(n_odd) - 1, 3 * per_pass / 2);
        let norms: [T; MAX_TERMS] = std::array::from_fn(|j| norm(j, n_odd));
        let (mut made, mut buffers) = (Made::new(), [Vec::new(), Vec::new()]);
        // If most rows of a small band are sampled, the pairs of all rows are prepared at once.
        let mut made_for_all = Made::new();
        let all = if n_values <= PIECE_VALUES && n_rows <= 2 * n_sampled {
            Some(self.near.pairs(&Piece::new(&dims, 0, n_values), &norms, &mut made_for_all))
        } else {
            None
        };
        // Where most observations are uninformative, further passes look for others.
        let n_passes = (n_rows / n_sampled).clamp(1, MAX_PASSES);
        for i in 0..n_passes * n_sampled {
            if i > 0 && i.is_multiple_of(n_sampled) && !sample.wants_more(per_pass) {
                break;
            }
            let row = sample_position(i, n_sampled, n_rows);
            if self.masked.is_some_and(|m| m[row * n..][..n].contains(&true)) {
                continue;
            }
            let at = row_position(&dims, row);
            let inner = self.inner(&at);
            let (mut start, end) = (row * n, (row + 1) * n);
            let mut n_pieces = 0;
            while start < end {
                let piece = Piece::new(&dims, start, end);
                let source = &self.current[start..][..piece.dims[X]];
                start += piece.dims[X];
                // The first point differs between rows and pieces.
                let first = sample_position(i + n_pieces, 1, stride);
                n_pieces += 1;
                if first >= source.len() {
                    continue;
                }
                let inner = inner.start.saturating_sub(piece.from[X])..inner.end.saturating_sub(piece.from[X]);
                let (points, observed) = ((first, stride), (source, n_odd, self.scalars.step));
                match &all {
                    Some(all) => all.observe(at, points, observed, &inner, &mut buffers, &mut sample),
                    None => {
                        let pairs = self.near.pairs(&piece, &norms, &mut made);
                        pairs.observe([0; X], points, observed, &inner, &mut buffers, &mut sample);
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

impl<T: Real> Fit<'_, T> {
    /// The points of a row that have all taps along their odd axes.
    fn inner(&self, row: &[usize; X]) -> Range<usize> {
        let of_axis = |a: usize| {
            let n = self.near.dims[a];
            let has_inner = self.near.odd >> a & 1 != 0 && n >= MIN_INNER;
            if has_inner { TAPS - 1..n + 1 - TAPS } else { 0..n }
        };
        if (0..X).all(|a| of_axis(a).contains(&row[a])) { of_axis(X) } else { 0..0 }
    }
}

/// Rows of a band to encode.
struct EncodeRows<'a, T> {
    near: Neighbourhood<'a, T>,
    first_row: usize,
    coefficients: [T; MAX_TERMS],
    scalars: Scalars<T>,
    /// Source values; restored ones replace them.
    values: &'a mut [T],
    codes: &'a mut [i32],
    masked: Option<&'a [bool]>,
    /// Indices into `values` of those that must be stored exactly.
    escapes: Vec<usize>,
}

impl<T: Real> Kernel for &mut EncodeRows<'_, T> {
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
    /// Codes the values from `start` on, given their predictions: at most [`QUANTIZED_VALUES`].
    #[inline(always)]
    fn code_block(&mut self, start: usize, prediction: &[T]) {
        let n = prediction.len();
        let (values, codes) = (&mut self.values[start..][..n], &mut self.codes[start..][..n]);
        let masked = self.masked.map(|m| &m[start..][..n]).filter(|m| m.contains(&true));
        let mut source = [T::default(); QUANTIZED_VALUES];
        source[..n].copy_from_slice(values);
        let is_done = match self.scalars.on_lattice {
            _ if masked.is_some() => false,
            true => code_integers(values, prediction, codes),
            false => quantize_row(values, prediction, codes, &self.scalars),
        };
        if is_done {
            return;
        }
        for x in 0..n {
            let is_masked = masked.is_some_and(|m| m[x]);
            let coded = if is_masked { None } else { code_one(source[x], prediction[x], &self.scalars) };
            if coded.is_none() && !is_masked {
                self.escapes.push(start + x);
            }
            (codes[x], values[x]) = coded.unwrap_or((0, without_code(prediction[x], &self.scalars)));
        }
    }
}

/// Codes a row of integers; false if one of them has no code.
#[inline(always)]
fn code_integers<T: Real>(values: &[T], prediction: &[T], codes: &mut [i32]) -> bool {
    let mut n_over = 0_u32;
    for ((x, p), code) in values.iter().zip(prediction).zip(codes) {
        let is_restored;
        (*code, is_restored) = code_integer(*x, *p);
        n_over += u32::from(!is_restored);
    }
    n_over == 0
}

/// Codes a row and restores it in place; false if an error exceeds the tolerance or a code is too large.
#[inline(always)]
fn quantize_row<T: Real>(values: &mut [T], prediction: &[T], codes: &mut [i32], scalars: &Scalars<T>) -> bool {
    let Scalars { step, inv_step, tolerance, .. } = *scalars;
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

/// Rows of a band to restore.
struct DecodeRows<'a, T> {
    near: Neighbourhood<'a, T>,
    first_row: usize,
    coefficients: [T; MAX_TERMS],
    step: T,
    on_lattice: bool,
    values: &'a mut [T],
    codes: &'a [i32],
}

impl<T: Real> Kernel for &mut DecodeRows<'_, T> {
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
            let all = self.values[range.clone()].iter_mut().zip(prediction).zip(&self.codes[range]);
            if self.on_lattice {
                all.for_each(|((x, p), code)| *x = integer(*p, *code));
            } else {
                all.for_each(|((x, p), code)| *x = p.fadd(T::of_i32(*code).fmul(self.step)));
            }
        }
    }
}
