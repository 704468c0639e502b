//! Contexts: how large a code is likely to be, from the codes around it (docs/format.md, 7.6).
//!
//! A weighted sum of the magnitudes of codes before it in its band, and of its parents', gives each code the number of
//! its context; the weights are fitted to the chunk. Codes are dealt to four lanes whose states are decoded in turn, so
//! that a decoder has four independent chains of work at any time. No context looks across lanes but to rows that all
//! lanes have finished.

use std::ops::Range;

use super::bands::{AXES, Band, Dims, GROUPS, Layout, Level, X, axes_of, volume};
use super::binary::BitCoder;
use super::fit::solve;

/// Codes decoded in turn.
pub(crate) const LANES: usize = 4;
/// Contexts of a group.
pub(crate) const CONTEXTS: usize = 60;
/// The first of the two contexts of masked codes, which are always 0.
pub(crate) const MASKED_CONTEXT: usize = 58;
/// Magnitudes that a context is made of.
const TERMS: usize = 8;
/// Weights are multiples of 1 / 64.
const WEIGHT_ONE: f64 = 64.0;
/// Magnitudes count up to here.
const MAX_MAGNITUDE: u32 = (1 << 19) - 1;
/// The leading bits of [`MAX_MAGNITUDE`], as a token tells them: [`leading_magnitude`] is at most this.
pub(crate) const MAX_LEADING: u32 = 7 << 16;
/// Added to every sum: contexts differ from here on.
pub(crate) const BIAS: u32 = 4;
const MASKED: u32 = 1 << 31;
/// Bands from this size on have streams of their own, each of about this many codes.
const STREAM_VALUES: usize = 1 << 16;

/// Of: the code before, the one before that, the one in the row before, the two beside that, the one in the plane before,
/// the one in the volume before, parents (or the row before the last, where there are none), and 1.
pub(crate) type Weights = [u8; TERMS];

/// What serves most data, where there is too little of it to fit anything.
pub(crate) const DEFAULT_WEIGHTS: Weights = [19, 6, 16, 5, 10, 5, 4, 2];

#[inline(always)]
fn magnitude(code: i32) -> u32 {
    code.unsigned_abs().min(MAX_MAGNITUDE)
}

/// The magnitude of a code as far as its token tells it: what a decoder knows before it reads raw bits.
#[inline(always)]
pub(crate) fn leading_magnitude(code: i32) -> u32 {
    let magnitude = code.unsigned_abs().min(MAX_MAGNITUDE);
    // Exponent and two more bits of a float are those of the token; the sum with 2^23 has the integer in its low bits.
    let leading = f32::from_bits((magnitude as i32 as f32).to_bits() & 0xffe0_0000) + (1 << 23) as f32;
    let leading = leading.to_bits() & ((1 << 23) - 1);
    if magnitude <= 8 { magnitude } else { leading }
}

/// Number of the context of a sum, which is at least [`BIAS`]: two for each power of two.
#[inline(always)]
pub(crate) fn context_of(sum: u32) -> usize {
    // The two leading bits are 2 or 3.
    let zeros = sum.leading_zeros();
    (2 * (29 - zeros) + ((sum << zeros) >> 30) - 2) as usize
}

/// A part of a band that is coded on its own: a box of rows. Neighbours outside of it do not exist.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) band: usize,
    planes: Range<usize>,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Pieces that share the states of one coder.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) pieces: Vec<Piece>,
    /// Streams of the same wave can be decoded at the same time, after those of all waves before.
    pub(crate) wave: usize,
}

/// The streams of a layout: small bands share one, large ones are cut.
pub(crate) fn streams(layout: &Layout) -> Vec<Stream> {
    let mut all: Vec<Stream> = Vec::new();
    let mut wave = 0;
    let mut last: Option<(usize, u32, bool)> = None;
    for (i, band) in layout.bands.iter().enumerate() {
        let n = volume(&band.dims);
        let is_large = n >= STREAM_VALUES;
        let [planes, rows, columns] = [band.dims[0] * band.dims[1], band.dims[2], band.dims[X]];
        // Parents have fewer odd axes, so bands with the same number do not depend on each other.
        let kind = (band.level, band.odd.count_ones(), is_large);
        let joins = match last {
            Some(last) if is_large => last == kind,
            Some((_, _, was_large)) => !was_large,
            None => true,
        };
        wave += usize::from(!joins);
        last = Some(kind);
        let whole = Piece { band: i, planes: 0..planes, rows: 0..rows, columns: 0..columns };
        if !is_large {
            match all.last_mut() {
                Some(stream) if joins => stream.pieces.push(whole),
                _ => all.push(Stream { pieces: vec![whole], wave }),
            }
            continue;
        }
        let n_pieces = n / STREAM_VALUES;
        let part = |extent: usize, i: usize| extent * i / n_pieces..extent * (i + 1) / n_pieces;
        for i in 0..n_pieces {
            let mut piece = whole.clone();
            if planes >= 2 * n_pieces {
                piece.planes = part(planes, i);
            } else if rows >= 2 * n_pieces {
                piece.rows = part(rows, i);
            } else {
                piece.columns = part(columns, i);
            }
            all.push(Stream { pieces: vec![piece], wave });
        }
    }
    all
}

/// The run of codes that a lane takes in one step, and what exists around it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Plane, row and first column, in the band.
    plane: usize,
    row: usize,
    column: usize,
    pub(crate) len: usize,
    has_row: bool,
    has_second_row: bool,
    has_plane: bool,
    has_volume: bool,
    /// Whether the row before reaches further than the run, to either side.
    has_before: bool,
    has_behind: bool,
}

/// How the rows of a piece are dealt to lanes.
#[derive(Clone, Copy, Debug)]
enum Deal {
    /// Each lane has a quarter of the rows of every plane.
    Rows,
    /// Each lane has a quarter of the planes.
    Planes,
    /// Each lane has a quarter of every row.
    Columns,
}

impl Piece {
    /// The runs of each step.
    pub(crate) fn steps(&self, dims: &Dims) -> Vec<[Run; LANES]> {
        let [n_planes, n_rows] = [self.planes.len(), self.rows.len()];
        let deal = if n_rows >= 2 * LANES {
            Deal::Rows
        } else if n_planes >= 2 * LANES {
            Deal::Planes
        } else {
            Deal::Columns
        };
        let quarter = |n: usize, lane: usize| n * lane / LANES..n * (lane + 1) / LANES;
        let run = |plane: usize, row: usize, first_plane: usize, first_row: usize| Run {
            plane: self.planes.start + plane,
            row: self.rows.start + row,
            column: self.columns.start,
            len: self.columns.len(),
            has_row: row > first_row,
            has_second_row: row > first_row + 1,
            has_plane: plane > first_plane && !(self.planes.start + plane).is_multiple_of(dims[1]),
            has_volume: plane >= first_plane + dims[1],
            has_before: false,
            has_behind: false,
        };
        let (outer, inner) = match deal {
            Deal::Rows => (n_planes, n_rows.div_ceil(LANES)),
            Deal::Planes => (n_planes.div_ceil(LANES), n_rows),
            Deal::Columns => (n_planes, n_rows),
        };
        let mut steps = Vec::with_capacity(outer * inner);
        for i in 0..outer {
            for j in 0..inner {
                steps.push(std::array::from_fn(|lane| match deal {
                    Deal::Rows => {
                        let rows = quarter(n_rows, lane);
                        if j < rows.len() { run(i, rows.start + j, 0, rows.start) } else { Run::default() }
                    }
                    Deal::Planes => {
                        let planes = quarter(n_planes, lane);
                        if i < planes.len() { run(planes.start + i, j, planes.start, 0) } else { Run::default() }
                    }
                    Deal::Columns => {
                        let columns = quarter(self.columns.len(), lane);
                        let mut run = run(i, j, 0, 0);
                        run.column += columns.start;
                        run.len = columns.len();
                        run.has_before = columns.start > 0;
                        run.has_behind = columns.end < self.columns.len();
                        run
                    }
                }));
            }
        }
        steps
    }

    pub(crate) fn n_codes(&self) -> usize {
        self.planes.len() * self.rows.len() * self.columns.len()
    }

    /// Copies the codes of the piece, dense in `from`, to their places in those of the band.
    pub(crate) fn store(&self, from: &[i32], dims: &Dims, band: &mut [i32]) {
        let n = self.columns.len();
        if n == 0 {
            // There may be more pieces than columns.
            return;
        }
        let mut rows = from.chunks_exact(n);
        for plane in self.planes.clone() {
            for row in self.rows.clone() {
                let at = (plane * dims[2] + row) * dims[X] + self.columns.start;
                band[at..at + n].copy_from_slice(rows.next().expect("a row for each"));
            }
        }
    }
}

/// A dense array of codes that are all known.
#[derive(Clone, Copy)]
struct Known<'a> {
    codes: &'a [i32],
    dims: Dims,
}

/// Where the codes of a piece lie in a buffer: in that of the whole band, or in one of their own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Plane, row and column of the first code of the buffer.
    origin: [usize; 3],
    row: usize,
    plane: usize,
    volume: usize,
}

impl Frame {
    /// The buffer of the whole band.
    pub(crate) fn band(dims: &Dims) -> Self {
        let plane = dims[2] * dims[X];
        Self { origin: [0; 3], row: dims[X], plane, volume: plane * dims[1] }
    }

    /// A buffer for the piece alone.
    pub(crate) fn piece(piece: &Piece, dims: &Dims) -> Self {
        let (row, plane) = (piece.columns.len(), piece.columns.len() * piece.rows.len());
        let origin = [piece.planes.start, piece.rows.start, piece.columns.start];
        Self { origin, row, plane, volume: plane * dims[1] }
    }

    /// Place of a run's first code.
    #[inline(always)]
    pub(crate) fn start(&self, run: &Run) -> usize {
        let [plane, row, column] = self.origin;
        (run.plane - plane) * self.plane + (run.row - row) * self.row + (run.column - column)
    }
}

/// What surrounds the codes of one band.
pub(crate) struct Surroundings<'a> {
    dims: Dims,
    masked: Option<&'a [bool]>,
    /// For each odd axis.
    parents: Vec<(usize, Known<'a>)>,
}

impl<'a> Surroundings<'a> {
    /// `before` holds all bands before this one; `coarse` are the codes of all coarser levels, merged.
    pub(crate) fn new(
        layout: &Layout,
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

    /// The sums of a run's codes but for the codes before each in its own row. `codes` lie as `frame` says.
    #[inline(always)]
    pub(crate) fn sums(
        &self,
        run: &Run,
        frame: &Frame,
        codes: &[i32],
        weights: &Weights,
        padded: &mut Padded,
        sums: &mut Vec<u32>,
    ) {
        let n = run.len;
        sums.resize(n, 0);
        if n == 0 {
            return;
        }
        let start = frame.start(run);
        let place = [run.plane / self.dims[1], run.plane % self.dims[1], run.row];
        if run.has_row {
            let row = start - frame.row;
            let before = if run.has_before { codes[row - 1] } else { 0 };
            let behind = if run.has_behind { codes[row + n] } else { 0 };
            padded.row.clear();
            padded.row.push(before);
            padded.row.extend_from_slice(&codes[row..row + n]);
            padded.row.push(behind);
        }
        let parent_x = self.parents.last().filter(|(axis, _)| *axis == X);
        if let Some((_, parent)) = parent_x {
            // The last of all has no neighbour to the right where parents are no more than the points.
            let near = &parent.row(place)[run.column..];
            padded.parents.clear();
            padded.parents.extend_from_slice(&near[..near.len().min(n + 1)]);
            padded.parents.resize(n + 1, near[near.len().min(n) - 1]);
        }

        let w = weights.map(u32::from);
        let mut terms = Terms { all: [(&[][..], 0); MAX_TERMS], n: 0 };
        if run.has_row {
            terms.push(&padded.row[1..], n, w[2]);
            terms.push(&padded.row, n, w[3]);
            terms.push(&padded.row[2..], n, w[3]);
        }
        if run.has_plane {
            terms.push(&codes[start - frame.plane..], n, w[4]);
        }
        if run.has_volume {
            terms.push(&codes[start - frame.volume..], n, w[5]);
        }
        if self.parents.is_empty() && run.has_second_row {
            terms.push(&codes[start - 2 * frame.row..], n, w[6]);
        }
        for (axis, parent) in &self.parents {
            if *axis == X {
                terms.push(&padded.parents, n, w[6]);
                terms.push(&padded.parents[1..], n, w[6]);
            } else {
                let mut next = place;
                next[*axis] = (next[*axis] + 1).min(parent.dims[*axis] - 1);
                terms.push(&parent.row(place)[run.column..], n, w[6]);
                terms.push(&parent.row(next)[run.column..], n, w[6]);
            }
        }
        terms.add_up(sums, w[7] + BIAS);
        if let Some(masked) = self.masked {
            let in_band = Frame::band(&self.dims).start(run);
            for (sum, is_masked) in sums.iter_mut().zip(&masked[in_band..]) {
                *sum = if *is_masked { MASKED } else { *sum };
            }
        }
    }

    /// Context numbers of a run whose codes are all known.
    #[inline(always)]
    pub(crate) fn contexts(
        &self,
        run: &Run,
        frame: &Frame,
        codes: &[i32],
        weights: &Weights,
        padded: &mut Padded,
        sums: &mut Vec<u32>,
    ) {
        self.sums(run, frame, codes, weights, padded, sums);
        let start = frame.start(run);
        let (w0, w1) = (u32::from(weights[0]), u32::from(weights[1]));
        let row = &codes[start..start + run.len];
        if let [_, second, ..] = &mut sums[..] {
            *second += w0 * leading_magnitude(row[0]);
        }
        for ((sum, last), before) in sums.iter_mut().skip(2).zip(row.iter().skip(1)).zip(row) {
            *sum += w0 * leading_magnitude(*last) + w1 * leading_magnitude(*before);
        }
        for sum in sums.iter_mut() {
            *sum = context_of(*sum) as u32;
        }
    }

    /// The terms of one code, for fitting; every neighbour in the band exists.
    fn terms(&self, codes: &[i32], place: &Dims, at: usize) -> [f64; TERMS] {
        let width = self.dims[X];
        let get = |exists: bool, back: usize| if exists { f64::from(magnitude(codes[at - back])) } else { 0.0 };
        let [t, z, y, x] = *place;
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
            let mut next = *place;
            next[*axis] = (next[*axis] + 1).min(d[*axis] - 1);
            terms[6] += value(*place) + value(next);
        }
        terms
    }
}

/// Copies of rows with what lies beside them, so that every term of a run is a row as long as the run.
#[derive(Default)]
pub(crate) struct Padded {
    row: Vec<i32>,
    parents: Vec<i32>,
}

/// Terms of a run, at most: three of the row before, plane, volume, and two parents for each axis.
const MAX_TERMS: usize = 5 + 2 * AXES;

/// Rows of codes beside a run, and their weights.
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
            // The last block may overlap the one before: it says the same.
            at = (at + N).min(n - N);
        }
    }
}

impl<'a> Known<'a> {
    #[inline(always)]
    fn row(&self, place: [usize; X]) -> &'a [i32] {
        let dims = self.dims;
        &self.codes[((place[0] * dims[1] + place[1]) * dims[2] + place[2]) * dims[X]..][..dims[X]]
    }
}

/// Merges the codes of the levels coarser than each into one grid, level by level.
pub(crate) struct CoarseCodes<'a> {
    layout: &'a Layout,
    /// Level whose coarse grid is in `codes`.
    level: Option<usize>,
    pub(crate) codes: Vec<i32>,
}

impl<'a> CoarseCodes<'a> {
    pub(crate) fn new(layout: &'a Layout) -> Self {
        Self { layout, level: None, codes: Vec::new() }
    }

    /// Moves on to the coarse grid of `level`; `all` has all codes of coarser levels. Levels come coarsest first.
    pub(crate) fn advance(&mut self, level: usize, all: &[i32]) {
        let n_levels = self.layout.levels.len();
        if level >= n_levels {
            return;
        }
        if self.level.is_none() {
            self.codes = all[..volume(&self.layout.bands[0].dims)].to_vec();
            self.level = Some(n_levels - 1);
        }
        while let Some(at) = self.level
            && at > level
        {
            let finished = &self.layout.levels[at];
            let mut grid = vec![0; volume(&finished.grid)];
            self.layout.merge(finished, &self.codes, all, &mut grid);
            self.codes = grid;
            self.level = Some(at - 1);
        }
    }
}

/// Terms and magnitudes of sampled codes of one group.
#[derive(Default)]
pub(crate) struct WeightSample {
    terms: Vec<[f64; TERMS]>,
    magnitudes: Vec<f64>,
}

impl WeightSample {
    /// Takes about `wanted` codes of a band.
    pub(crate) fn take(&mut self, around: &Surroundings<'_>, codes: &[i32], wanted: usize) {
        let n = codes.len();
        let dims = around.dims;
        let wanted = wanted.min(n);
        for i in 0..wanted {
            let at = (n as u128 * (2 * i as u128 + 1) / (2 * wanted as u128)) as usize;
            if around.masked.is_some_and(|m| m[at]) {
                continue;
            }
            let place = [
                at / (dims[1] * dims[2] * dims[X]),
                at / (dims[2] * dims[X]) % dims[1],
                at / dims[X] % dims[2],
                at % dims[X],
            ];
            self.terms.push(around.terms(codes, &place, at));
            self.magnitudes.push(f64::from(magnitude(codes[at])));
        }
    }

    /// Weights that make the sum of terms follow the magnitude: least squares, weighted by the inverse square of the sum,
    /// without negative weights.
    pub(crate) fn fit(&self) -> Weights {
        let n = self.terms.len();
        if n < 64 {
            return DEFAULT_WEIGHTS;
        }
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
                        for (c, &j) in active.iter().enumerate() {
                            matrix[r][c] += t * terms[j];
                        }
                        matrix[r][m] += t * y;
                    }
                }
            }
            for (r, row) in matrix.iter_mut().enumerate() {
                row[r] = row[r] * 1.0001 + 1e-3;
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
