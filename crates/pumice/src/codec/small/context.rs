//! Contexts: an estimate of the magnitude of a code from the codes around it (docs/format.md, 7.6).
//!
//! The context of a code is a quantised weighted sum of the magnitudes of earlier codes in its band and of its parents;
//! the weights are fitted to the chunk. Codes are distributed over lanes that are decoded in turn, so that a decoder
//! always has several independent chains of operations. Contexts do not use codes of other lanes, except in rows that
//! all lanes have finished.

use super::bands::{Band, BandLayout, GROUPS, Level, Merge};
use super::fit::{sample_position, solve};
use super::pieces::{Frame, Piece, Run};
use crate::codec::shared::dims::{AXES, Dims, X, axes_of, volume};
use crate::entropy::binary::BitCoder;
use crate::error::Result;
use crate::exec::scratch;
use crate::num::simd;

/// Contexts of a group.
pub(crate) const CONTEXTS: usize = 60;
/// The first of the two contexts of masked codes, which are always 0.
pub(crate) const MASKED_CONTEXT: usize = 58;
/// Number of terms of the sum.
const TERMS: usize = 8;
/// Weights are multiples of 1 / 64.
const WEIGHT_ONE: f64 = 64.0;
/// Larger magnitudes count as this.
const MAX_MAGNITUDE: u32 = (1 << 19) - 1;
/// The largest [`leading_magnitude`]: the bits of [`MAX_MAGNITUDE`] that its token holds.
pub(crate) const MAX_LEADING: u32 = 7 << 16;
/// Added to every sum, so that the smallest sums share a context.
pub(crate) const BIAS: u32 = 4;
/// The sum of a masked code: its context is [`MASKED_CONTEXT`].
pub(crate) const MASKED: u32 = 1 << 31;
/// Weights of: the previous code, the code before that, the code in the previous row, its two neighbours, the codes in
/// the previous plane and volume, the parents (without parents, the code two rows before), and a constant.
pub(crate) type Weights = [u8; TERMS];

/// Weights that suit most data, for estimates and for samples that are too small for a fit.
pub(crate) const DEFAULT_WEIGHTS: Weights = [19, 6, 16, 5, 10, 5, 4, 2];

#[inline(always)]
fn magnitude(code: i32) -> u32 {
    code.unsigned_abs().min(MAX_MAGNITUDE)
}

/// The magnitude of a code as far as its token determines it: a decoder knows this before it reads raw bits.
#[inline(always)]
pub(crate) fn leading_magnitude(code: i32) -> u32 {
    let magnitude = code.unsigned_abs().min(MAX_MAGNITUDE);
    // The exponent and the two leading mantissa bits of a float determine the token. Adding 2^23 moves the integer to
    // the low bits.
    let leading = f32::from_bits((magnitude as i32 as f32).to_bits() & 0xffe0_0000) + (1 << 23) as f32;
    let leading = leading.to_bits() & ((1 << 23) - 1);
    if magnitude <= 8 { magnitude } else { leading }
}

/// Number of the context of a sum, which is at least [`BIAS`]: two contexts for each power of two.
#[inline(always)]
pub(crate) fn context_of(sum: u32) -> u32 {
    // The two leading bits are 2 or 3.
    let zeros = sum.leading_zeros();
    2 * (29 - zeros) + ((sum << zeros) >> 30) - 2
}

/// Sets codes of parent bands to 0, in the rows that contexts of these pieces refer to.
pub(crate) fn clear_parents(layout: &BandLayout, pieces: &[Piece], codes: &mut [i32]) {
    let n_rows = |band: &Band| volume(&band.dims) / band.dims[X];
    let mut is_parent: Vec<Vec<bool>> = layout.bands.iter().map(|_| Vec::new()).collect();
    for piece in pieces {
        let band = &layout.bands[piece.band];
        let level = &layout.levels[band.level];
        for (axis, i) in axes_of(band.odd).filter_map(|a| Some((a, level.parent(band.odd, 1 << a)?))) {
            let parent = &layout.bands[i];
            is_parent[i].resize(n_rows(parent), false);
            for row in piece.row_ranges(&band.dims).flatten() {
                let position =
                    [row / (band.dims[1] * band.dims[2]), row / band.dims[2] % band.dims[1], row % band.dims[2]];
                for next in 0..2 {
                    let [t, z, y]: [usize; X] = std::array::from_fn(|a| {
                        (position[a] + if a == axis { next } else { 0 }).min(parent.dims[a] - 1)
                    });
                    is_parent[i][(t * parent.dims[1] + z) * parent.dims[2] + y] = true;
                }
            }
        }
    }
    for (band, is_parent) in layout.bands.iter().zip(&is_parent) {
        for (row, _) in is_parent.iter().enumerate().filter(|(_, is_parent)| **is_parent) {
            codes[band.offset + row * band.dims[X]..][..band.dims[X]].fill(0);
        }
    }
}

/// A dense array of codes that are all known.
#[derive(Clone, Copy)]
struct Known<'a> {
    codes: &'a [i32],
    dims: Dims,
}

/// The neighbours of the codes of one band.
pub(crate) struct Surroundings<'a> {
    dims: Dims,
    masked: Option<&'a [bool]>,
    /// Each odd axis, and the parent along it.
    parents: Vec<(usize, Known<'a>)>,
}

impl<'a> Surroundings<'a> {
    /// `before` holds the codes of all bands before this one, `coarse` those of the coarse grid of its level.
    pub(crate) fn new(
        layout: &BandLayout,
        band: &Band,
        before: &'a [i32],
        coarse: &'a [i32],
        masked: Option<&'a [bool]>,
    ) -> Self {
        let parent = |level: &Level, axis: usize| match level.parent(band.odd, 1 << axis) {
            None => Known { codes: coarse, dims: level.coarse },
            Some(i) => Known { codes: &before[layout.bands[i].offset..], dims: layout.bands[i].dims },
        };
        let parents = match layout.levels.get(band.level) {
            Some(level) => axes_of(band.odd).map(|a| (a, parent(level, a))).collect(),
            None => Vec::new(),
        };
        let masked = masked.map(|m| &m[band.offset..][..volume(&band.dims)]);
        Self { dims: band.dims, masked, parents }
    }

    /// The sums of a run's codes, without the terms of previous codes of the same run. `frame` describes the layout of
    /// `codes`.
    #[inline(always)]
    pub(crate) fn sums(&self, run: &Run, frame: &Frame, codes: &[i32], weights: &Weights, sums: &mut [u32]) {
        let n = sums.len();
        if n == 0 {
            return;
        }
        let start = frame.start(run);
        let position = [run.plane / self.dims[1], run.plane % self.dims[1], run.row];
        let w = weights.map(u32::from);
        let mut terms = Terms { all: [(&[][..], 0); MAX_TERMS], n: 0 };
        // Rows are read beyond their ends where memory allows. `first` and `last` correct the sums at both ends.
        let mut first = 0_u32;
        let mut last = 0_u32;
        let mut spare = Vec::new();
        // The first existing neighbour gets the weight of those that do not exist.
        let mut left = 0;
        for (exists, weight) in [
            (run.has_row, w[2] + 2 * w[3]),
            (run.has_plane, w[4]),
            (run.has_volume, w[5]),
            (run.has_second_row || !self.parents.is_empty(), w[6]),
        ] {
            left += if exists { 0 } else { weight };
        }
        let mut with_left = |weight: u32| weight + std::mem::take(&mut left);
        if run.has_row {
            let row = start - frame.row;
            terms.push(&codes[row..], n, with_left(w[2]));
            if w[3] != 0 {
                let get = |at: usize| codes.get(at).map_or(0, |code| w[3] * magnitude(*code));
                if row > 0 && row + n < codes.len() {
                    terms.push(&codes[row - 1..], n, w[3]);
                    terms.push(&codes[row + 1..], n, w[3]);
                    first = first.wrapping_sub(if run.has_before { 0 } else { get(row - 1) });
                    last = last.wrapping_sub(if run.has_behind { 0 } else { get(row + n) });
                } else {
                    spare.push((&codes[row..row + n - 1], 1, w[3]));
                    spare.push((&codes[row + 1..row + n], 0, w[3]));
                    first += if run.has_before { get(row - 1) } else { 0 };
                    last += if run.has_behind { get(row + n) } else { 0 };
                }
            }
        }
        if run.has_plane {
            terms.push(&codes[start - frame.plane..], n, with_left(w[4]));
        }
        if run.has_volume {
            terms.push(&codes[start - frame.volume..], n, with_left(w[5]));
        }
        if self.parents.is_empty() && run.has_second_row {
            terms.push(&codes[start - 2 * frame.row..], n, w[6]);
        }
        for (axis, parent) in &self.parents {
            let at = parent.row_start(position) + run.column;
            terms.push(&parent.codes[at..], n, with_left(w[6]));
            if *axis != X {
                let mut next = position;
                next[*axis] = (next[*axis] + 1).min(parent.dims[*axis] - 1);
                terms.push(&parent.codes[parent.row_start(next) + run.column..], n, w[6]);
                continue;
            }
            // If the parent's row ends with the run, the last code has no right parent: the left one counts twice.
            let is_whole = run.column + n < parent.dims[X];
            if at + n < parent.codes.len() {
                terms.push(&parent.codes[at + 1..], n, w[6]);
            } else {
                spare.push((&parent.codes[at + 1..at + n], 0, w[6]));
            }
            if !is_whole {
                let beyond = parent.codes.get(at + n).map_or(0, |code| magnitude(*code));
                last = last.wrapping_add(w[6].wrapping_mul(magnitude(parent.codes[at + n - 1]).wrapping_sub(beyond)));
            }
        }
        terms.add_up(sums, w[7] + BIAS);
        for (codes, at, weight) in spare {
            for (sum, code) in sums[at..].iter_mut().zip(codes) {
                *sum = sum.wrapping_add(weight * magnitude(*code));
            }
        }
        sums[0] = sums[0].wrapping_add(first);
        sums[n - 1] = sums[n - 1].wrapping_add(last);
        if let Some(masked) = self.masked {
            let in_band = Frame::band(&self.dims).start(run);
            for (sum, is_masked) in sums.iter_mut().zip(&masked[in_band..]) {
                *sum = if *is_masked { MASKED } else { *sum };
            }
        }
    }

    /// The terms of one code, for a fit. They ignore edges of pieces and lanes within the band.
    fn terms(&self, codes: &[i32], position: &Dims, at: usize) -> [f64; TERMS] {
        let width = self.dims[X];
        let get = |exists: bool, back: usize| if exists { f64::from(magnitude(codes[at - back])) } else { 0.0 };
        let [t, z, y, x] = *position;
        let plane = width * self.dims[2];
        let mut terms = [
            get(x > 0, 1),
            get(x > 1, 2),
            get(y > 0, width),
            get(y > 0 && x > 0, width + 1) + get(y > 0 && x + 1 < width, width.wrapping_sub(1)),
            get(z > 0, plane),
            get(t > 0, plane * self.dims[1]),
            0.0,
            1.0,
        ];
        if self.parents.is_empty() {
            terms[6] = get(y > 1, 2 * width);
        }
        for (axis, parent) in &self.parents {
            let d = parent.dims;
            let value =
                |p: [usize; 4]| f64::from(magnitude(parent.codes[((p[0] * d[1] + p[1]) * d[2] + p[2]) * d[X] + p[X]]));
            let mut next = *position;
            next[*axis] = (next[*axis] + 1).min(d[*axis] - 1);
            terms[6] += value(*position) + value(next);
        }
        terms
    }
}

/// Terms of a run, at most: three of the row before, plane, volume, and two parents for each axis.
const MAX_TERMS: usize = 5 + 2 * AXES;

/// Rows of neighbours of a run, and their weights.
struct Terms<'a> {
    all: [(&'a [i32], u32); MAX_TERMS],
    n: usize,
}

impl<'a> Terms<'a> {
    #[inline(always)]
    fn push(&mut self, codes: &'a [i32], n: usize, weight: u32) {
        if weight != 0 {
            self.all[self.n] = (&codes[..n], weight);
            self.n += 1;
        }
    }

    /// Sums of all terms and the constant.
    #[inline(always)]
    fn add_up(&self, sums: &mut [u32], constant: u32) {
        if sums.len() >= 16 {
            self.add_up_blocks::<16>(sums, constant);
        } else if sums.len() >= 4 {
            self.add_up_blocks::<4>(sums, constant);
        } else {
            self.add_up_blocks::<1>(sums, constant);
        }
    }

    #[inline(always)]
    fn add_up_blocks<const N: usize>(&self, sums: &mut [u32], constant: u32) {
        let n = sums.len();
        let terms = &self.all[..self.n];
        let mut at = 0;
        loop {
            let mut block = [constant; N];
            for (codes, weight) in terms {
                let codes: &[i32; N] = codes[at..].first_chunk().expect("terms are as long as the run");
                for i in 0..N {
                    block[i] += weight * magnitude(codes[i]);
                }
            }
            sums[at..at + N].copy_from_slice(&block);
            if at + N == n {
                return;
            }
            // The last block may overlap the previous one; both compute the same.
            at = (at + N).min(n - N);
        }
    }
}

impl Known<'_> {
    #[inline(always)]
    fn row_start(&self, position: [usize; X]) -> usize {
        let dims = self.dims;
        ((position[0] * dims[1] + position[1]) * dims[2] + position[2]) * dims[X]
    }
}

/// The codes of the coarse grid of a level, merged level by level.
pub(crate) struct CoarseCodes<'a> {
    layout: &'a BandLayout,
    /// Level whose coarse grid is in `codes`.
    level: Option<usize>,
    pub(crate) codes: Vec<i32>,
}

impl<'a> CoarseCodes<'a> {
    pub(crate) fn new(layout: &'a BandLayout) -> Self {
        Self { layout, level: None, codes: Vec::new() }
    }

    /// Advances to the coarse grid of `level`; `all` has all codes of coarser levels. Levels must come coarsest first.
    pub(crate) fn advance(&mut self, level: usize, all: &[i32]) -> Result<()> {
        let n_levels = self.layout.levels.len();
        if level >= n_levels {
            return Ok(());
        }
        if self.level.is_none() {
            let anchors = &all[..volume(&self.layout.bands[0].dims)];
            self.codes = scratch::try_take(anchors.len())?;
            self.codes.copy_from_slice(anchors);
            self.level = Some(n_levels - 1);
        }
        while let Some(at) = self.level
            && at > level
        {
            let finished = &self.layout.levels[at];
            let mut grid = scratch::try_take(volume(&finished.grid))?;
            simd::run(Merge { layout: self.layout, level: finished, coarse: &self.codes, all, grid: &mut grid });
            scratch::give(std::mem::replace(&mut self.codes, grid));
            self.level = Some(at - 1);
        }
        Ok(())
    }
}

impl Drop for CoarseCodes<'_> {
    fn drop(&mut self) {
        scratch::give(std::mem::take(&mut self.codes));
    }
}

/// Terms and magnitudes of sampled codes of one group.
#[derive(Default)]
pub(crate) struct WeightSample {
    terms: Vec<[f64; TERMS]>,
    magnitudes: Vec<f64>,
    /// Number of codes whose terms are all 0 except the constant, and the sum of their magnitudes.
    n_alone: f64,
    alone: f64,
}

/// The most passes over a band in search of codes with neighbours other than 0.
const MAX_PASSES: usize = 8;
/// Fewer codes with such neighbours are not worth a fit.
const MIN_SAMPLE: usize = 64;

impl WeightSample {
    /// Samples about `wanted` codes of a band.
    pub(crate) fn take(&mut self, around: &Surroundings<'_>, codes: &[i32], wanted: usize) {
        let n = codes.len();
        let dims = around.dims;
        let wanted = wanted.min(n);
        let n_before = self.terms.len();
        for i in 0..(n / wanted.max(1)).min(MAX_PASSES) * wanted {
            if i.is_multiple_of(wanted) && self.terms.len() - n_before > wanted / 2 {
                break;
            }
            let at = sample_position(i, wanted, n);
            if around.masked.is_some_and(|m| m[at]) {
                continue;
            }
            let position = [
                at / (dims[1] * dims[2] * dims[X]),
                at / (dims[2] * dims[X]) % dims[1],
                at / dims[X] % dims[2],
                at % dims[X],
            ];
            let terms = around.terms(codes, &position, at);
            let magnitude = f64::from(magnitude(codes[at]));
            if terms[..TERMS - 1].iter().all(|term| *term == 0.0) {
                self.n_alone += 1.0;
                self.alone += magnitude;
            } else {
                self.terms.push(terms);
                self.magnitudes.push(magnitude);
            }
        }
    }

    /// Fits weights such that the sum of terms approximates the magnitude: least squares, weighted by the inverse
    /// square of the sum, without negative weights.
    pub(crate) fn fit(&self) -> Weights {
        if self.terms.len() < MIN_SAMPLE {
            return DEFAULT_WEIGHTS;
        }
        const CONSTANT: usize = TERMS - 1;
        let mut weights: [f64; TERMS] = DEFAULT_WEIGHTS.map(|w| f64::from(w) / WEIGHT_ONE);
        let mut is_active = [true; TERMS];
        for _ in 0..3 {
            let active: Vec<usize> = (0..TERMS).filter(|i| is_active[*i]).collect();
            let m = active.len();
            let mut matrix = vec![vec![0.0; m + 1]; m];
            for (terms, y) in self.terms.iter().zip(&self.magnitudes) {
                let expected = (0..TERMS).fold(0.1, |sum, i| sum + weights[i] * terms[i]);
                let weight = 1.0 / (expected * expected);
                for (r, &i) in active.iter().enumerate() {
                    let t = weight * terms[i];
                    if t != 0.0 {
                        for (c, &j) in active.iter().enumerate().skip(r) {
                            matrix[r][c] += t * terms[j];
                        }
                        matrix[r][m] += t * y;
                    }
                }
            }
            if is_active[CONSTANT] {
                let expected = 0.1 + weights[CONSTANT];
                let weight = 1.0 / (expected * expected);
                matrix[m - 1][m - 1] += weight * self.n_alone;
                matrix[m - 1][m] += weight * self.alone;
            }
            for r in 0..m {
                for c in 0..r {
                    matrix[r][c] = matrix[c][r];
                }
                matrix[r][r] = matrix[r][r] * 1.0001 + 1e-3;
            }
            weights = [0.0; TERMS];
            for (&i, w) in active.iter().zip(solve(matrix)) {
                is_active[i] = w > 0.005;
                weights[i] = if is_active[i] { w } else { 0.0 };
            }
        }
        weights.map(|w| (w * WEIGHT_ONE).round_ties_even().min(255.0) as u8)
    }
}

/// Writes or reads the weights of all groups.
pub(crate) fn code_weights(coder: &mut impl BitCoder, weights: &mut [Weights; GROUPS], n_groups: usize) {
    for group in weights.iter_mut().take(n_groups) {
        for w in group {
            *w = coder.raw(u64::from(*w), 8) as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::codec::small::pieces::Lane;
    use crate::codec::small::pieces::tests::{below, deals, position_of, some_piece};
    use crate::entropy::tokens::tests::Random;

    /// The array that bands are parts of.
    struct Array {
        dims: Dims,
        codes: Vec<i32>,
    }

    impl Array {
        fn magnitude(&self, position: [usize; AXES]) -> u32 {
            let index = position.iter().zip(&self.dims).fold(0, |index, (i, extent)| index * extent + i);
            self.codes[index].unsigned_abs().min((1 << 19) - 1)
        }
    }

    /// Positions of a band's points in the array: the first along each axis, and the strides.
    fn grid_of(layout: &BandLayout, band: &Band) -> ([usize; AXES], [usize; AXES]) {
        let finer = &layout.levels[..band.level];
        let stride = |a: usize| 1 << finer.iter().filter(|level| level.active >> a & 1 != 0).count();
        let strides: [usize; AXES] = std::array::from_fn(stride);
        let active = layout.levels.get(band.level).map_or(0, |level| level.active);
        let first = std::array::from_fn(|a| if band.odd >> a & 1 != 0 { strides[a] } else { 0 });
        (first, std::array::from_fn(|a| strides[a] << (active >> a & 1)))
    }

    /// The sum of a code without the codes before it in its run, computed from the whole array.
    fn sum_of(
        array: &Array,
        layout: &BandLayout,
        band: &Band,
        piece: &Piece,
        lane: &Lane,
        at: [usize; 3],
        w: &Weights,
    ) -> u32 {
        let w = w.map(u32::from);
        let (first, steps) = grid_of(layout, band);
        let [plane, row, column] = at;
        let position = |plane: usize, row: usize, column: usize| {
            let local = [plane / band.dims[1], plane % band.dims[1], row, column];
            std::array::from_fn(|a| first[a] + local[a] * steps[a])
        };
        let own = |plane: usize, row: usize, column: usize| array.magnitude(position(plane, row, column));
        let back = |i: usize, by: usize, from: &Range<usize>| i.checked_sub(by).filter(|i| from.contains(i));
        let row_before = back(row, 1, &lane.rows);
        let plane_before = back(plane, 1, &lane.planes).filter(|_| plane % band.dims[1] != 0);
        let volume_before = back(plane, band.dims[1], &lane.planes);
        let second_row = back(row, 2, &lane.rows);

        let mut sum = w[7];
        let mut left = 0;
        let mut heirs = Vec::new();
        match row_before {
            Some(before) => {
                sum += w[2] * own(plane, before, column);
                for beside in [column.checked_sub(1), Some(column + 1)].into_iter().flatten() {
                    sum += if piece.columns.contains(&beside) { w[3] * own(plane, before, beside) } else { 0 };
                }
                heirs.push(own(plane, before, column));
            }
            None => left += w[2] + 2 * w[3],
        }
        for (before, weight) in [(plane_before, w[4]), (volume_before, w[5])] {
            match before {
                Some(before) => {
                    sum += weight * own(before, row, column);
                    heirs.push(own(before, row, column));
                }
                None => left += weight,
            }
        }
        if band.odd == 0 {
            match second_row {
                Some(before) => sum += w[6] * own(plane, before, column),
                None => left += w[6],
            }
        }
        for a in axes_of(band.odd) {
            // Points before and behind in the array are i and i + 1 of the parent.
            let stride = first[a];
            let here: [usize; AXES] = position(plane, row, column);
            let (mut before, mut behind) = (here, here);
            before[a] -= stride;
            behind[a] = if here[a] + stride < array.dims[a] { here[a] + stride } else { here[a] - stride };
            sum += w[6] * (array.magnitude(before) + array.magnitude(behind));
            heirs.push(array.magnitude(before));
        }
        sum + left * heirs.first().unwrap_or(&0)
    }

    fn check_sums(dims: Dims, layout: &BandLayout, random: &mut Random) {
        let n = volume(&dims);
        let any = |random: &mut Random| (random.next() as i32 >> (random.next() % 32)).max(-i32::MAX);
        let codes: Vec<i32> = (0..n).map(|_| any(random)).collect();
        let masked: Option<Vec<bool>> =
            random.next().is_multiple_of(3).then(|| (0..n).map(|_| random.next().is_multiple_of(4)).collect());
        let mut array = Array { dims, codes: vec![0; n] };
        for band in &layout.bands {
            let (first, steps) = grid_of(layout, band);
            for (i, code) in codes[band.offset..][..volume(&band.dims)].iter().enumerate() {
                let d = band.dims;
                let local = [i / (d[1] * d[2] * d[3]), i / (d[2] * d[3]) % d[1], i / d[3] % d[2], i % d[3]];
                let index = (0..AXES).fold(0, |index, a| index * dims[a] + first[a] + local[a] * steps[a]);
                array.codes[index] = *code;
            }
        }
        let mut coarse = CoarseCodes::new(layout);
        for band in &layout.bands {
            coarse.advance(band.level, &codes).unwrap();
            let around = Surroundings::new(layout, band, &codes[..band.offset], &coarse.codes, masked.as_deref());
            let own = &codes[band.offset..][..volume(&band.dims)];
            let deals: Vec<[usize; 3]> = deals([4, 16][below(2, random)]).collect();
            let piece = Piece { deal: deals[below(deals.len(), random)], ..some_piece(&band.dims, random) };
            let weights: Weights =
                std::array::from_fn(|_| [0, random.next() as u8, 255, random.next() as u8 % 20][below(4, random)]);
            let (in_band, in_piece) = (Frame::band(&band.dims), Frame::piece(&piece, &band.dims));
            // Codes that are not decoded yet may have any value.
            let mut decoded: Vec<i32> = (0..piece.n_codes()).map(|_| any(random)).collect();
            let [n_planes, n_rows] = piece.steps();
            let lanes = piece.lanes();
            for step in (0..n_planes).flat_map(|i| (0..n_rows).map(move |j| [i, j])) {
                let runs: Vec<Run> = lanes.iter().map(|lane| lane.run(step, &band.dims)).collect();
                for (lane, run) in lanes.iter().zip(&runs) {
                    let sum = |i: usize| {
                        let at = [run.plane, run.row, run.column + i];
                        let position = band.offset + position_of(&band.dims, at[0], at[1], at[2]);
                        let is_masked = masked.as_ref().is_some_and(|m| m[position]);
                        let sum = || sum_of(&array, layout, band, &piece, lane, at, &weights) + BIAS;
                        if is_masked { MASKED } else { sum() }
                    };
                    let wanted: Vec<u32> = (0..run.len).map(sum).collect();
                    for (frame, codes) in [(&in_band, own), (&in_piece, &decoded)] {
                        let mut sums = vec![random.next(); run.len];
                        around.sums(run, frame, codes, &weights, &mut sums);
                        assert_eq!(sums, wanted, "{band:?} {piece:?} {run:?} {weights:?}");
                    }
                }
                for run in runs.iter().filter(|run| run.len > 0) {
                    let from = in_band.start(run);
                    decoded[in_piece.start(run)..][..run.len].copy_from_slice(&own[from..from + run.len]);
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_specification() {
        let mut random = Random(4);
        for case in 0..1500 {
            let dims: Dims = match case % 6 {
                0 => [1, 1, 1, 1 + below(300, &mut random)],
                1 => [1, 1, 1 + below(20, &mut random), 1 + below(70, &mut random)],
                2 => [1, 1 + below(8, &mut random), 1 + below(9, &mut random), 1 + below(9, &mut random)],
                _ => std::array::from_fn(|_| 1 + below(7, &mut random)),
            };
            check_sums(dims, &BandLayout::lattice(dims), &mut random);
            check_sums(dims, &BandLayout::interpolation(dims, random.next() as u8 & 15), &mut random);
        }
    }
}
