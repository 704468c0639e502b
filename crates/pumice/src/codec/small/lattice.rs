//! Prediction on the lattice: all values are quantised first, then each integer is predicted from integers before it
//! (docs/format.md, 7.5). Lorenzo differences over any set of axes and second differences are special cases of this
//! predictor; coefficients fitted to the chunk are often better.
//!
//! There is no feedback: the encoder works on whole rows at once, and only the decoder's last step runs value by value.

use std::ops::Range;

use super::bands::{Band, BandLayout, largest_slab};
use super::fit::{COEFFICIENT_ONE, MAX_COEFFICIENT, MAX_PASSES, Sample, sample_position};
use super::pieces;
use crate::codec::shared::dims::{AXES, Dims, X, volume};
use crate::codec::shared::integers::{self, Integers};
use crate::entropy::binary::{AdaptiveBit, BitCoder, NumberModel};
use crate::error::{Error, Result};
use crate::exec::{Workers, reserve, scratch};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::quantize::{Quantizer, restore};

/// Offsets of the neighbours that predict, in the order of their coefficients: steps back along each axis. Negative
/// steps go forward.
const OFFSETS: [[isize; AXES]; 18] = [
    [0, 0, 0, 1],
    [0, 0, 0, 2],
    [0, 0, 0, 3],
    [0, 0, 1, 0],
    [0, 0, 1, 1],
    [0, 0, 1, -1],
    [0, 0, 2, 0],
    [0, 1, 0, 0],
    [0, 1, 0, 1],
    [0, 1, 0, -1],
    [0, 1, 1, 0],
    [0, 1, -1, 0],
    [0, 1, 1, 1],
    [0, 2, 0, 0],
    [1, 0, 0, 0],
    [1, 0, 0, 1],
    [1, 0, 1, 0],
    [1, 1, 0, 0],
];
/// The number of neighbours in the row itself, which come first.
const N_LEFT: usize = 3;
/// The base is the first of these neighbours that exists.
const BASES: [usize; AXES] = [0, 3, 7, 14];
const SHIFT: u32 = COEFFICIENT_ONE.trailing_zeros();
/// Values with an index below `MARGIN` lack neighbours. Along axes shorter than `MIN_INNER`, all count as inner values.
const MARGIN: usize = 2;
const MIN_INNER: usize = 8;
/// The most observations for a fit, and for one that only compares the lattice with other predictors.
pub(crate) const FIT_VALUES: usize = 4096;
pub(crate) const TRIAL_VALUES: usize = 1024;

/// Coefficients of all offsets; the first makes their sum one.
pub(crate) type Coefficients = [i32; OFFSETS.len()];

/// Everything the decoder needs besides the codes.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    /// Subtracted from all integers.
    pub(crate) origin: i64,
    pub(crate) coefficients: Coefficients,
}

/// A chunk as codes.
pub(crate) struct Encoded {
    pub(crate) layout: BandLayout,
    pub(crate) parameters: Parameters,
    pub(crate) codes: Vec<i32>,
    /// Positions of values that must be stored exactly.
    pub(crate) escapes: Vec<usize>,
}

impl Parameters {
    /// Writes or reads the parameters.
    pub(crate) fn code<C: BitCoder>(coder: &mut C, given: Option<&Self>) -> Result<Self> {
        let mut numbers = NumberModel::default();
        let origin = numbers.code_signed(coder, given.map_or(0, |p| p.origin));
        let mut coefficients = [0; OFFSETS.len()];
        let mut is_used = AdaptiveBit::default();
        let mut numbers = NumberModel::default();
        for (i, k) in coefficients.iter_mut().enumerate().skip(1) {
            let given = given.map_or(0, |p| i64::from(p.coefficients[i]));
            // Lorenzo coefficients are whole numbers, which are coded as such.
            if !coder.bit(&mut is_used, given != 0) {
                continue;
            }
            let one = i64::from(COEFFICIENT_ONE);
            let is_whole = coder.code(given % one == 0, 1 << 15);
            let coded = numbers.code_signed(coder, if is_whole { given / one } else { given });
            let value = if is_whole { coded.saturating_mul(one) } else { coded };
            if value.unsigned_abs() > MAX_COEFFICIENT as u64 {
                return Err(Error::corrupt("chunk has a coefficient out of range"));
            }
            *k = value as i32;
        }
        coefficients[0] = COEFFICIENT_ONE - coefficients[1..].iter().sum::<i32>();
        Ok(Self { origin, coefficients })
    }
}

/// Coefficients of Lorenzo differences over each set of axes, and of second differences along X.
fn presets(dims: &Dims) -> Vec<Vec<i32>> {
    let mut all = Vec::new();
    let mut second = vec![0; OFFSETS.len() - 1];
    second[0] = -COEFFICIENT_ONE;
    for set in (1_usize..1 << AXES).rev() {
        if (0..AXES).any(|a| set >> a & 1 != 0 && dims[a] == 1) {
            continue;
        }
        let mut coefficients = vec![0; OFFSETS.len()];
        let mut fits = true;
        for subset in (1..=set).filter(|s| s & !set == 0) {
            let offset: [isize; AXES] = std::array::from_fn(|a| (subset >> a & 1) as isize);
            let sign = if subset.count_ones() % 2 == 1 { 1 } else { -1 };
            match OFFSETS.iter().position(|o| *o == offset) {
                Some(i) => coefficients[i] = sign * COEFFICIENT_ONE,
                None => fits = false,
            }
        }
        if fits {
            all.push(coefficients[1..].to_vec());
        }
    }
    all.push(second);
    all
}

/// The best coefficients for a chunk, fitted to a sample of its integers.
pub(crate) fn fit(integers: &[i32], dims: &Dims) -> Coefficients {
    let rows = 0..integers.len() / dims[X].max(1);
    simd::run(FitJob { integers, dims, rows: std::slice::from_ref(&rows), n_most: FIT_VALUES })
}

struct FitJob<'a> {
    integers: &'a [i32],
    dims: &'a Dims,
    /// The rows to sample, in ascending order. These and their neighbours are quantised.
    rows: &'a [Range<usize>],
    /// The most observations.
    n_most: usize,
}

impl Kernel for FitJob<'_> {
    type Output = Coefficients;

    #[inline(always)]
    fn run(self) -> Coefficients {
        // Runs of a few values, spread over the rows.
        const RUN: usize = 8;
        let n_before: Vec<usize> =
            self.rows.iter().scan(0, |sum, rows| Some(std::mem::replace(sum, *sum + rows.len()))).collect();
        let row_of = |i: usize| {
            let range = n_before.partition_point(|n| *n <= i) - 1;
            self.rows[range].start + i - n_before[range]
        };
        let n = self.rows.iter().map(ExactSizeIterator::len).sum::<usize>() * self.dims[X];
        let wanted = (self.integers.len() / 24).clamp(192, self.n_most).min(n);
        let n_runs = wanted.div_ceil(RUN);
        // Where most of the chunk is constant, further passes look for values that are not.
        let n_passes = (n / (n_runs * RUN)).clamp(1, MAX_PASSES);
        let mut sample = Sample::new(OFFSETS.len() - 1, 3 * n_runs * RUN / 2);
        for run in 0..n_passes * n_runs {
            if run > 0 && run.is_multiple_of(n_runs) && !sample.wants_more(n_runs * RUN) {
                break;
            }
            let mut start = sample_position(run, n_runs, n);
            let end = (start + RUN).min(n);
            while start < end {
                let x = start % self.dims[X];
                let first = row_of(start / self.dims[X]) * self.dims[X] + x;
                let len = (end - start).min(self.dims[X] - x);
                // The first value of a row has no base in the row.
                let skipped = usize::from(x == 0);
                self.observe(first + skipped..first + len, &position_of(self.dims, first), &mut sample);
                start += len;
            }
        }
        let presets = presets(self.dims);
        let presets: Vec<&[i32]> = presets.iter().map(|preset| &preset[..]).collect();
        let (best, _) = sample.best(&presets, self.integers.len());
        let mut coefficients = [0; OFFSETS.len()];
        coefficients[1..].copy_from_slice(&best.coefficients);
        coefficients[0] = COEFFICIENT_ONE - coefficients[1..].iter().sum::<i32>();
        coefficients
    }
}

impl FitJob<'_> {
    /// Appends values of one row, none of them its first, to the sample; `position` is that of any value of the row.
    #[inline(always)]
    fn observe(&self, range: Range<usize>, position: &Dims, sample: &mut Sample) {
        let values = &self.integers[range.clone()];
        let bases = &self.integers[range.start - 1..][..values.len()];
        let strides = strides(self.dims);
        let row = range.start - range.start % self.dims[X];
        for ((z, v), base) in sample.next(0).iter_mut().zip(values).zip(bases) {
            *z = f64::from(*v) - f64::from(*base);
        }
        for (i, offset) in OFFSETS.iter().enumerate().skip(1) {
            let column = &mut sample.next(i)[..values.len()];
            // The base replaces neighbours that do not exist.
            column.fill(0.0);
            let mut across = *offset;
            across[X] = 0;
            if !neighbour(self.dims, position, &across) {
                continue;
            }
            let first = range.start.max(row + offset[X].max(0) as usize);
            let end = range.end.min(row + self.dims[X] - (-offset[X]).max(0) as usize);
            if first < end {
                let others = &self.integers[shifted(first, offset, &strides)..][..end - first];
                let column = &mut column[first - range.start..];
                for ((z, v), base) in column.iter_mut().zip(others).zip(&bases[first - range.start..]) {
                    *z = f64::from(*v) - f64::from(*base);
                }
            }
        }
        let is_edge = |a: usize| self.dims[a] >= MIN_INNER && position[a] < MARGIN;
        let first_inner = if (0..X).any(is_edge) { values.len() } else { (row + N_LEFT).saturating_sub(range.start) };
        sample.append(values.len(), first_inner..values.len(), |_| true);
    }
}

fn strides(dims: &Dims) -> Dims {
    [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1]
}

fn position_of(dims: &Dims, at: usize) -> Dims {
    [at / (dims[1] * dims[2] * dims[3]), at / (dims[2] * dims[3]) % dims[1], at / dims[3] % dims[2], at % dims[3]]
}

/// Whether the neighbour of `position` at `offset` exists.
#[inline(always)]
fn neighbour(dims: &Dims, position: &Dims, offset: &[isize; AXES]) -> bool {
    (0..AXES).all(|a| {
        let p = position[a] as isize - offset[a];
        p >= 0 && p < dims[a] as isize
    })
}

#[inline(always)]
fn shifted(at: usize, offset: &[isize; AXES], strides: &Dims) -> usize {
    (at as isize - (0..AXES).map(|a| offset[a] * strides[a] as isize).sum::<isize>()) as usize
}

/// The predictor of one slab.
struct Slab<'a> {
    dims: Dims,
    strides: Dims,
    coefficients: &'a Coefficients,
}

/// A coefficient, and the distance back to the value that it multiplies.
type Term = (i32, usize);

/// The terms that predict one row. Their coefficients sum to one, so the base needs no special treatment.
#[derive(Default)]
struct RowTerms {
    /// The terms in other rows, which exist for all inner values.
    across: Vec<Term>,
    /// Coefficients of the values before in the row.
    left: [i32; N_LEFT],
    /// Start and end of the inner values, for which all of these exist.
    inner: [usize; 2],
    /// The terms of each value before and after the inner ones.
    edges: Vec<Vec<Term>>,
}

/// The terms of all rows. Only rows next to edges differ in them, so few are computed.
struct AllTerms<'a> {
    slab: &'a Slab<'a>,
    found: [Option<Box<RowTerms>>; 2 * 3 * 3 * 2],
}

impl<'a> AllTerms<'a> {
    fn new(slab: &'a Slab<'a>) -> Self {
        Self { slab, found: [const { None }; 36] }
    }

    /// The terms of the row at `position`; they depend on which of its neighbours exist.
    #[inline(always)]
    fn of_row(&mut self, position: &Dims) -> &RowTerms {
        let is_last = usize::from(position[2] + 1 == self.slab.dims[2]);
        let class = ((position[0].min(1) * 3 + position[1].min(2)) * 3 + position[2].min(2)) * 2 + is_last;
        self.found[class].get_or_insert_with(|| Box::new(self.slab.row_terms(position)))
    }
}

impl<'a> Slab<'a> {
    fn new(dims: Dims, coefficients: &'a Coefficients) -> Self {
        Self { dims, strides: strides(&dims), coefficients }
    }

    fn row_terms(&self, position: &Dims) -> RowTerms {
        let n = self.dims[X];
        let mut terms = RowTerms { inner: [N_LEFT.min(n), n], ..RowTerms::default() };
        let mut sum = 0;
        for (i, offset) in OFFSETS.iter().enumerate() {
            let k = self.coefficients[i];
            let mut inside = *offset;
            inside[X] = 0;
            if i == 0 || k == 0 || !neighbour(&self.dims, position, &inside) {
                continue;
            }
            sum += k;
            if i < N_LEFT {
                terms.left[i] = k;
            } else {
                terms.across.push((k, self.back(offset)));
                if offset[X] < 0 {
                    terms.inner[1] = n - 1;
                }
            }
        }
        terms.left[0] = COEFFICIENT_ONE - sum;
        terms.inner[1] = terms.inner[1].max(terms.inner[0]);
        let [first, end] = terms.inner;
        for x in (0..first).chain(end..n) {
            terms.edges.push(self.edge_terms(&[position[0], position[1], position[2], x]));
        }
        terms
    }

    /// The terms of one value, from the neighbours that exist.
    fn edge_terms(&self, position: &Dims) -> Vec<Term> {
        let exists = |i: usize| neighbour(&self.dims, position, &OFFSETS[i]);
        let Some(base) = BASES.into_iter().find(|i| exists(*i)) else { return Vec::new() };
        let used = (1..OFFSETS.len()).filter(|i| self.coefficients[*i] != 0 && exists(*i));
        let mut terms: Vec<Term> = used.map(|i| (self.coefficients[i], self.back(&OFFSETS[i]))).collect();
        let sum: i32 = terms.iter().map(|(k, _)| k).sum();
        terms.push((COEFFICIENT_ONE - sum, self.back(&OFFSETS[base])));
        terms
    }

    /// The distance back to a neighbour.
    fn back(&self, offset: &[isize; AXES]) -> usize {
        (0..AXES).map(|a| offset[a] * self.strides[a] as isize).sum::<isize>() as usize
    }
}

impl RowTerms {
    /// The prediction of the value at index `x` of a row, which is not an inner value.
    #[inline(always)]
    fn predict_edge(&self, values: &[i32], row: usize, x: usize) -> i32 {
        let [first, end] = self.inner;
        let terms = &self.edges[if x < first { x } else { first + x - end }];
        let mut sum = i64::from(COEFFICIENT_ONE / 2);
        for (k, back) in terms {
            sum += i64::from(*k) * i64::from(values[row + x - back]);
        }
        (sum >> SHIFT) as i32
    }

    /// Sums of the terms in other rows, for the inner values of the row at `start`.
    #[inline(always)]
    fn across<'b>(&self, values: &[i32], start: usize, sums: &'b mut Vec<i64>) -> &'b mut [i64] {
        let [first, end] = self.inner;
        let n = end - first;
        if sums.len() < n {
            sums.resize(n, 0);
        }
        let sums = &mut sums[..n];
        match n {
            32.. => sum_blocks::<32>(&self.across, values, start + first, sums),
            8.. => sum_blocks::<8>(&self.across, values, start + first, sums),
            _ => sum_blocks::<1>(&self.across, values, start + first, sums),
        }
        sums
    }
}

/// Sums of terms for the values from `start` on. There are none, or at least a block.
#[inline(always)]
fn sum_blocks<const BLOCK: usize>(terms: &[Term], values: &[i32], start: usize, sums: &mut [i64]) {
    let n = sums.len();
    let mut x = 0;
    while x < n {
        // The last block may overlap the previous one; both compute the same.
        x = x.min(n - BLOCK);
        let mut block = [i64::from(COEFFICIENT_ONE / 2); BLOCK];
        for (k, back) in terms {
            let others: &[i32; BLOCK] = values[start + x - back..].first_chunk().expect("all of these exist");
            for i in 0..BLOCK {
                block[i] += i64::from(*k) * i64::from(others[i]);
            }
        }
        sums[x..x + BLOCK].copy_from_slice(&block);
        x += BLOCK;
    }
}

/// A slab to encode: integers become codes; holes take their prediction.
struct EncodeSlab<'a> {
    slab: Slab<'a>,
    values: &'a mut [i32],
    codes: &'a mut [i32],
    /// Positions in the slab of values that have no code.
    holes: Vec<usize>,
    /// The rows to code.
    rows: &'a [Range<usize>],
}

impl Kernel for &mut EncodeSlab<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        loop {
            self.code_rows();
            // The code -2^31 is invalid: values that have it, which are very rare, become holes.
            let n = self.slab.dims[X];
            let coded = self.rows.iter().map(|rows| &self.codes[rows.start * n..rows.end * n]);
            if coded.flatten().fold(0, |least, code| least.min(*code)) > i32::MIN {
                return;
            }
            let coded = self.rows.iter().flat_map(|rows| rows.start * n..rows.end * n);
            self.holes.extend(coded.filter(|at| self.codes[*at] == i32::MIN));
            self.holes.sort_unstable();
        }
    }
}

impl EncodeSlab<'_> {
    #[inline(always)]
    fn code_rows(&mut self) {
        let n = self.slab.dims[X];
        let mut sums = Vec::new();
        let mut all_terms = AllTerms::new(&self.slab);
        let mut holes = self.holes.iter().copied().peekable();
        for row in self.rows.iter().cloned().flatten() {
            let start = row * n;
            while holes.next_if(|hole| *hole < start).is_some() {}
            let terms = all_terms.of_row(&position_of(&self.slab.dims, start));
            let [first, end] = terms.inner;
            let [k1, k2, k3] = terms.left.map(i64::from);
            let sums = terms.across(self.values, start, &mut sums);
            if holes.peek().is_some_and(|hole| *hole < start + n) {
                // A hole takes its prediction, from which later values are predicted in turn.
                for x in 0..n {
                    let at = start + x;
                    let prediction = if (first..end).contains(&x) {
                        let back = |d: usize| i64::from(self.values[at - d]);
                        ((sums[x - first] + k1 * back(1) + k2 * back(2) + k3 * back(3)) >> SHIFT) as i32
                    } else {
                        terms.predict_edge(self.values, start, x)
                    };
                    if holes.next_if_eq(&at).is_some() {
                        self.values[at] = prediction;
                    }
                    self.codes[at] = self.values[at].wrapping_sub(prediction);
                }
                continue;
            }
            for x in (0..first).chain(end..n) {
                let prediction = terms.predict_edge(self.values, start, x);
                self.codes[start + x] = self.values[start + x].wrapping_sub(prediction);
            }
            if end > first {
                let left = |back: usize| &self.values[start + first - back..][..end - first];
                let codes = &mut self.codes[start + first..start + end];
                for (((((code, sum), v), v1), v2), v3) in
                    codes.iter_mut().zip(&*sums).zip(left(0)).zip(left(1)).zip(left(2)).zip(left(3))
                {
                    let sum = sum + k1 * i64::from(*v1) + k2 * i64::from(*v2) + k3 * i64::from(*v3);
                    *code = v.wrapping_sub((sum >> SHIFT) as i32);
                }
            }
        }
    }
}

/// Codes the integers of a chunk.
pub(crate) fn encode(
    mut integers: Integers,
    masked: Option<&[bool]>,
    dims: Dims,
    coefficients: Coefficients,
    workers: &Workers,
) -> Encoded {
    let layout = BandLayout::lattice(dims);
    let mut codes = scratch::take(layout.n_values);
    let all_rows = |band: &Band| std::iter::once(0..volume(&band.dims) / band.dims[X].max(1)).collect();
    let rows: Vec<Vec<Range<usize>>> = layout.bands.iter().map(all_rows).collect();
    let holes = code_rows(&mut integers, &layout, &coefficients, &rows, &mut codes, workers);
    let escapes = holes.into_iter().filter(|position| masked.is_none_or(|m| !m[*position])).collect();
    scratch::give(integers.values);
    Encoded { layout, parameters: Parameters { origin: integers.origin, coefficients }, codes, escapes }
}

/// Codes some rows of each slab; returns the positions of all values that have no code.
fn code_rows(
    integers: &mut Integers,
    layout: &BandLayout,
    coefficients: &Coefficients,
    rows: &[Vec<Range<usize>>],
    codes: &mut [i32],
    workers: &Workers,
) -> Vec<usize> {
    let mut tasks = Vec::with_capacity(layout.bands.len());
    let (mut values_left, mut codes_left) = (&mut integers.values[..], codes);
    for (Band { dims, offset, .. }, rows) in layout.bands.iter().zip(rows) {
        let n = volume(dims);
        let (values, codes);
        (values, values_left) = values_left.split_at_mut(n);
        (codes, codes_left) = codes_left.split_at_mut(n);
        let range = integers.holes.partition_point(|h| h < offset)..integers.holes.partition_point(|h| *h < offset + n);
        let holes = integers.holes[range].iter().map(|h| h - offset).collect();
        tasks.push(EncodeSlab { slab: Slab::new(*dims, coefficients), values, codes, holes, rows });
    }
    let run = |_: usize, task: &mut EncodeSlab<'_>| {
        simd::run(task);
        Ok(())
    };
    workers.for_each(&mut tasks, run).expect("encoding does not fail");
    let holes = tasks.iter().zip(&layout.bands);
    holes.flat_map(|(task, band)| task.holes.iter().map(|h| band.offset + h)).collect()
}

/// Codes of bricks of a chunk.
pub(crate) struct Sampled<'a> {
    pub(crate) layout: &'a BandLayout,
    pub(crate) codes: &'a [i32],
    /// The bricks.
    pub(crate) pieces: &'a [pieces::Piece],
    /// Estimated number of values of the whole chunk that must be stored exactly.
    pub(crate) n_escapes: usize,
    /// Coefficients that are not 0.
    pub(crate) n_coefficients: usize,
}

/// Quantises and codes bricks of a chunk, and calls `f` with the codes.
pub(crate) fn sample<T: Real, R>(
    values: &[T],
    masked: Option<&[bool]>,
    dims: Dims,
    quantizer: &Quantizer<T>,
    bricks: &[pieces::Brick],
    f: impl FnOnce(&Sampled<'_>) -> R,
) -> R {
    let layout = BandLayout::lattice(dims);
    let n = dims[X];
    let pieces: Vec<pieces::Piece> = bricks.iter().flat_map(|brick| brick.in_slabs(&layout, &dims)).collect();
    let mut rows = Vec::with_capacity(layout.bands.len());
    let mut all_rows: Vec<Range<usize>> = Vec::new();
    for (i, band) in layout.bands.iter().enumerate() {
        let of_band = pieces.iter().filter(|piece| piece.band == i);
        let mut of_band: Vec<Range<usize>> = of_band.flat_map(|piece| piece.row_ranges(&band.dims)).collect();
        of_band.sort_unstable_by_key(|rows| rows.start);
        let first = band.offset / n;
        all_rows.extend(of_band.iter().map(|rows| first + rows.start..first + rows.end));
        rows.push(of_band);
    }
    let parts = with_neighbours(&all_rows, &dims);
    let mut integers = integers::quantize_parts(values, masked, quantizer, &parts);
    let coefficients =
        simd::run(FitJob { integers: &integers.values, dims: &dims, rows: &all_rows, n_most: TRIAL_VALUES });
    let n_quantized: usize = parts.iter().map(ExactSizeIterator::len).sum();
    let n_escapes = integers.holes.iter().filter(|hole| masked.is_none_or(|m| !m[**hole])).count();
    let mut codes = scratch::take(layout.n_values);
    code_rows(&mut integers, &layout, &coefficients, &rows, &mut codes, &Workers::Serial);
    let result = f(&Sampled {
        layout: &layout,
        codes: &codes,
        pieces: &pieces,
        n_escapes: n_escapes * values.len() / n_quantized.max(1),
        n_coefficients: coefficients.iter().skip(1).filter(|k| **k != 0).count(),
    });
    scratch::give(codes);
    scratch::give(integers.values);
    result
}

/// The values of some rows and of all rows that predict them, in ascending order.
fn with_neighbours(rows: &[Range<usize>], dims: &Dims) -> Vec<Range<usize>> {
    let n = dims[X];
    let mut is_needed = vec![false; volume(dims) / n];
    for row in rows.iter().cloned().flatten() {
        is_needed[row] = true;
        let position = position_of(dims, row * n);
        for offset in OFFSETS.iter().filter(|offset| offset[X] == 0 && neighbour(dims, &position, offset)) {
            is_needed[shifted(row * n, offset, &strides(dims)) / n] = true;
        }
    }
    let mut parts: Vec<Range<usize>> = Vec::new();
    for row in (0..is_needed.len()).filter(|row| is_needed[*row]) {
        match parts.last_mut() {
            Some(last) if last.end == row * n => last.end += n,
            _ => parts.push(row * n..(row + 1) * n),
        }
    }
    parts
}

/// A slab to decode.
struct DecodeSlab<'a, T> {
    slab: Slab<'a>,
    origin: i64,
    step: T,
    codes: &'a [i32],
    out: &'a mut [T],
}

impl<T: Real> Kernel for &mut DecodeSlab<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        let n = self.slab.dims[X];
        let mut values: Vec<i32> = scratch::try_take(self.codes.len())?;
        let mut sums = Vec::new();
        reserve(&mut sums, n)?;
        let mut all_terms = AllTerms::new(&self.slab);
        for row in 0..values.len() / n {
            let start = row * n;
            let terms = all_terms.of_row(&position_of(&self.slab.dims, start));
            let [first, end] = terms.inner;
            for x in 0..first {
                values[start + x] = self.codes[start + x].wrapping_add(terms.predict_edge(&values, start, x));
            }
            if end > first {
                let inner = start + first..start + end;
                let sums = terms.across(&values, start, &mut sums);
                // The code is added here, so that the loops below wait for nothing but the previous values.
                for (sum, code) in sums.iter_mut().zip(&self.codes[inner.clone()]) {
                    *sum += i64::from(*code) << SHIFT;
                }
                let [k1, k2, k3] = terms.left.map(i64::from);
                let back = |d: usize| i64::from(values[start + first - d]);
                let (mut v1, mut v2, mut v3) = (back(1), back(2), back(3));
                if terms.left == [COEFFICIENT_ONE, 0, 0] {
                    for (v, sum) in values[inner].iter_mut().zip(&*sums) {
                        *v = (v1 as i32).wrapping_add((sum >> SHIFT) as i32);
                        v1 = i64::from(*v);
                    }
                } else {
                    for (v, sum) in values[inner].iter_mut().zip(&*sums) {
                        let sum = sum + (k2 * v2 + k3 * v3) + k1 * v1;
                        *v = (sum >> SHIFT) as i32;
                        (v1, v2, v3) = (i64::from(*v), v1, v2);
                    }
                }
            }
            for x in end..n {
                values[start + x] = self.codes[start + x].wrapping_add(terms.predict_edge(&values, start, x));
            }
            for (x, v) in self.out[start..start + n].iter_mut().zip(&values[start..]) {
                *x = restore(T::Int::from_i64(i64::from(*v).wrapping_add(self.origin)), self.step);
            }
        }
        scratch::give(values);
        Ok(())
    }
}

/// The most memory that [`decode`] takes: integers of a slab and sums of a row for each worker.
pub(crate) fn decode_bytes(dims: &Dims, workers: &Workers) -> u64 {
    let (n_slabs, largest) = largest_slab(dims);
    let of_slab = size_of::<i32>() * volume(&largest) + size_of::<i64>() * largest[X];
    of_slab as u64 * workers.count().min(n_slabs) as u64
}

/// Restores values from codes; the inverse of [`encode`] except for escapes.
pub(crate) fn decode<T: Real>(
    layout: &BandLayout,
    parameters: &Parameters,
    step: T,
    codes: &[i32],
    out: &mut [T],
    workers: &Workers,
) -> Result<()> {
    let mut tasks = Vec::with_capacity(layout.bands.len());
    let mut out_left = out;
    for Band { dims, offset, .. } in &layout.bands {
        let n = volume(dims);
        let out;
        (out, out_left) = out_left.split_at_mut(n);
        let slab = Slab::new(*dims, &parameters.coefficients);
        tasks.push(DecodeSlab { slab, origin: parameters.origin, step, codes: &codes[*offset..][..n], out });
    }
    workers.for_each(&mut tasks, |_, task| simd::run(task))
}
