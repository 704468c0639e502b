//! Contexts: an estimate of the magnitude of a code from the codes around it (docs/format.md, 7.6).
//!
//! The context of a code is a quantised weighted sum of the magnitudes of earlier codes in its band and of its parents;
//! the weights are fitted to the chunk. Codes are distributed over lanes whose states are decoded in turn, so that a
//! decoder always has several independent chains of work. Contexts do not use codes of other lanes, except in rows that
//! all lanes have finished.

use std::ops::Range;

use super::bands::{Band, BandLayout, GROUPS, Level, Merge};
use super::fit::{sample_position, solve};
use crate::codec::entropy::binary::BitCoder;
use crate::codec::shared::dims::{AXES, AxisSet, Dims, X, axes_of, volume};
use crate::exec::scratch;
use crate::num::simd;

/// Number of lanes of a narrow piece, and of a wide one.
pub(crate) const NARROW: usize = 4;
pub(crate) const WIDE: usize = 16;
/// Pieces of fewer codes are always narrow.
const WIDE_CODES: usize = 1 << 12;
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
/// The leading bits of [`MAX_MAGNITUDE`] that a token has: [`leading_magnitude`] is at most this.
pub(crate) const MAX_LEADING: u32 = 7 << 16;
/// Added to every sum; smaller differences do not change the context.
pub(crate) const BIAS: u32 = 4;
/// The sum of a code that is always 0.
pub(crate) const MASKED: u32 = 1 << 31;
/// Bands from this size on have streams of their own, of about [`STREAM_VALUES`] or fewer codes each.
const LARGE_BAND: usize = 1 << 16;
const STREAM_VALUES: usize = 1 << 18;

/// Weights of: the previous code, the one before that, the code in the previous row, its two neighbours, the codes in
/// the previous plane and volume, the parents (without parents, the row before the previous one), and a constant.
pub(crate) type Weights = [u8; TERMS];

/// Weights that suit most data, for chunks that are too small to fit their own.
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

/// Number of the context of a sum, which is at least [`BIAS`]: two for each power of two.
#[inline(always)]
pub(crate) fn context_of(sum: u32) -> u32 {
    // The two leading bits are 2 or 3.
    let zeros = sum.leading_zeros();
    2 * (29 - zeros) + ((sum << zeros) >> 30) - 2
}

/// A part of a band that is coded on its own: a box of rows. Neighbours outside of it do not exist.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) band: usize,
    planes: Range<usize>,
    rows: Range<usize>,
    columns: Range<usize>,
    /// How many parts planes, rows and columns are cut into; each lane has one.
    deal: [usize; 3],
}

/// Pieces that share the states of one coder.
#[derive(Clone, Debug)]
pub(crate) struct CodeStream {
    pub(crate) pieces: Vec<Piece>,
    /// Streams of the same wave can be decoded at the same time, after those of all waves before.
    pub(crate) wave: usize,
}

/// The streams of a layout: small bands share one, large ones are cut. `is_wide` allows wide pieces.
pub(crate) fn streams(layout: &BandLayout, is_wide: bool) -> Vec<CodeStream> {
    let mut all: Vec<CodeStream> = Vec::new();
    let mut wave = 0;
    let mut last: Option<(usize, u32, bool)> = None;
    for (i, band) in layout.bands.iter().enumerate() {
        let n = volume(&band.dims);
        let is_large = n >= LARGE_BAND;
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
        let whole = Piece { band: i, planes: 0..planes, rows: 0..rows, columns: 0..columns, deal: [1; 3] };
        if !is_large {
            match all.last_mut() {
                Some(stream) if joins => stream.pieces.push(whole.dealt(is_wide)),
                _ => all.push(CodeStream { pieces: vec![whole.dealt(is_wide)], wave }),
            }
            continue;
        }
        let n_pieces = (n / STREAM_VALUES).max(1);
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
            all.push(CodeStream { pieces: vec![piece.dealt(is_wide)], wave });
        }
    }
    all
}

/// Extents of a brick: planes and rows.
const BRICK: [usize; 2] = [2, 4];
/// The least number of bricks that is taken, where there are as many.
const MIN_BRICKS: usize = 12;

/// A box of whole rows, to be sampled. Its coordinates along some axes count pairs of rows or planes, so that it is a
/// box of the whole array as well as of each band of the finest level.
pub(crate) struct Brick {
    paired: AxisSet,
    volume: usize,
    planes: Range<usize>,
    rows: Range<usize>,
}

impl Brick {
    /// One of `share` bricks of an array, spread over it.
    pub(crate) fn spread(dims: &Dims, paired: AxisSet, share: usize) -> Vec<Self> {
        let extents: [usize; X] = std::array::from_fn(|a| if paired >> a & 1 != 0 { dims[a] / 2 } else { dims[a] });
        let counts: [usize; 2] = std::array::from_fn(|i| extents[i + 1].div_ceil(BRICK[i]));
        let n_all = extents[0] * counts[0] * counts[1];
        let n = n_all.div_ceil(share).max(MIN_BRICKS).min(n_all);
        let mut all: Vec<usize> = (0..n).map(|i| sample_position(i, n, n_all)).collect();
        all.dedup();
        let range = |i: usize, at: usize| at * BRICK[i]..((at + 1) * BRICK[i]).min(extents[i + 1]);
        let brick = |at: usize| Self {
            paired,
            volume: at / (counts[0] * counts[1]),
            planes: range(0, at / counts[1] % counts[0]),
            rows: range(1, at % counts[1]),
        };
        all.into_iter().map(brick).collect()
    }

    /// The brick in a band that has half of the extents along paired axes.
    pub(crate) fn in_band(&self, band: usize, dims: &Dims) -> Piece {
        let first = self.volume * dims[1];
        let planes = first + self.planes.start..first + self.planes.end;
        Piece { band, planes, rows: self.rows.clone(), columns: 0..dims[X], deal: [1; 3] }
    }

    /// The parts of the brick in slabs of the whole array.
    pub(crate) fn in_slabs(&self, layout: &BandLayout, dims: &Dims) -> Vec<Piece> {
        let ranges = [self.volume..self.volume + 1, self.planes.clone(), self.rows.clone()];
        let factor = |a: usize| 1 + usize::from(self.paired >> a & 1);
        let mut all = Vec::new();
        for (band, slab) in layout.bands.iter().enumerate() {
            let row = slab.offset / dims[X];
            let first = [row / (dims[1] * dims[2]), row / dims[2] % dims[1], row % dims[2]];
            let [volumes, planes, rows]: [Range<usize>; X] = std::array::from_fn(|a| {
                let within = |at: usize| (at * factor(a)).clamp(first[a], first[a] + slab.dims[a]) - first[a];
                within(ranges[a].start)..within(ranges[a].end)
            });
            for volume in volumes.filter(|_| !planes.is_empty() && !rows.is_empty()) {
                let first = volume * slab.dims[1];
                let planes = first + planes.start..first + planes.end;
                all.push(Piece { band, planes, rows: rows.clone(), columns: 0..dims[X], deal: [1; 3] });
            }
        }
        all
    }
}

/// Sets codes to 0 to which contexts of these pieces refer, in other bands of their levels.
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

impl Piece {
    /// All of a band.
    pub(crate) fn whole(band: usize, dims: &Dims) -> Self {
        Self { band, planes: 0..dims[0] * dims[1], rows: 0..dims[2], columns: 0..dims[X], deal: [1; 3] }
    }

    /// Its rows, counted through the band.
    pub(crate) fn row_ranges(&self, dims: &Dims) -> impl Iterator<Item = Range<usize>> {
        let (rows, n) = (self.rows.clone(), dims[2]);
        self.planes.clone().map(move |plane| plane * n + rows.start..plane * n + rows.end)
    }
}

/// The run of codes that a lane processes in one step, and which neighbours exist.
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
    /// Whether the previous row extends beyond the run, on either side.
    has_before: bool,
    has_behind: bool,
}

/// The rows of a lane, and its codes in each row.
pub(crate) struct Lane {
    planes: Range<usize>,
    rows: Range<usize>,
    columns: Range<usize>,
    has_before: bool,
    has_behind: bool,
}

impl Lane {
    /// The lane's run in the step of its i-th plane and j-th row; empty if there is no such row.
    #[inline(always)]
    pub(crate) fn run(&self, [i, j]: [usize; 2], dims: &Dims) -> Run {
        let exists = i < self.planes.len() && j < self.rows.len();
        let plane = self.planes.start + i;
        Run {
            plane,
            row: self.rows.start + j,
            column: self.columns.start,
            len: if exists { self.columns.len() } else { 0 },
            has_row: j > 0,
            has_second_row: j > 1,
            has_plane: i > 0 && !plane.is_multiple_of(dims[1]),
            has_volume: i >= dims[1],
            has_before: self.has_before,
            has_behind: self.has_behind,
        }
    }
}

impl Piece {
    /// The piece with its codes distributed over lanes, along axes where few codes lose neighbours.
    fn dealt(self, may_be_wide: bool) -> Self {
        let n_lanes = if may_be_wide && self.n_codes() >= WIDE_CODES { WIDE } else { NARROW };
        let extents = [self.planes.len(), self.rows.len(), self.columns.len()];
        // Costs: the first row or plane of a lane lacks the previous one, each run lacks the previous code and has a
        // fixed overhead, and lanes of fewer codes wait for others.
        let cost = |deal: &[usize; 3]| {
            let share = |part: usize, axis: usize| ((part as u64) << 16) / extents[axis].max(1) as u64;
            let edges = |axis: usize| share(deal[axis] - 1, axis);
            let idle = |axis: usize| share(extents[axis].next_multiple_of(deal[axis]) - extents[axis], axis);
            3 * edges(0) + 4 * edges(1) + 28 * edges(2) + (idle(0) + idle(1) + idle(2)) / 4
        };
        let powers = |most: usize| std::iter::successors(Some(1), |n| Some(2 * n)).take_while(move |n| *n <= most);
        let deals = powers(n_lanes).flat_map(|p| powers(n_lanes / p).map(move |r| [p, r, n_lanes / (p * r)]));
        let deal = deals.min_by_key(cost).expect("there are some");
        Self { deal, ..self }
    }

    pub(crate) fn n_lanes(&self) -> usize {
        self.deal.iter().product()
    }

    /// The most codes of a lane in a step.
    pub(crate) fn n_turns(&self) -> usize {
        self.columns.len().div_ceil(self.deal[2])
    }

    /// The most planes and rows of a lane; each row is a step.
    pub(crate) fn steps(&self) -> [usize; 2] {
        [self.planes.len().div_ceil(self.deal[0]), self.rows.len().div_ceil(self.deal[1])]
    }

    /// The codes of each lane.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let part = |whole: &Range<usize>, n: usize, i: usize| {
            let start = |i: usize| whole.start + whole.len() * i / n;
            start(i)..start(i + 1)
        };
        let [by_plane, by_row, by_column] = self.deal;
        let lane = |i: usize| {
            let columns = part(&self.columns, by_column, i % by_column);
            Lane {
                planes: part(&self.planes, by_plane, i / (by_row * by_column)),
                rows: part(&self.rows, by_row, i / by_column % by_row),
                has_before: columns.start > self.columns.start,
                has_behind: columns.end < self.columns.end,
                columns,
            }
        };
        (0..self.n_lanes()).map(lane).collect()
    }

    pub(crate) fn n_codes(&self) -> usize {
        self.planes.len() * self.rows.len() * self.columns.len()
    }

    /// Offset of the first code in the band, if the piece is contiguous there.
    pub(crate) fn start_if_contiguous(&self, dims: &Dims) -> Option<usize> {
        let has_all_rows = self.rows.len() == dims[2];
        let has_all_columns = self.columns.len() == dims[X];
        let is_one_plane = self.planes.len() == 1;
        let is_contiguous = match (has_all_rows, has_all_columns) {
            (true, true) => true,
            (_, true) => is_one_plane,
            _ => is_one_plane && self.rows.len() == 1,
        };
        is_contiguous.then_some((self.planes.start * dims[2] + self.rows.start) * dims[X] + self.columns.start)
    }

    /// Copies the codes of the piece, dense in `from`, to their positions in the band.
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

    /// Position of a run's first code.
    #[inline(always)]
    pub(crate) fn start(&self, run: &Run) -> usize {
        let [plane, row, column] = self.origin;
        (run.plane - plane) * self.plane + (run.row - row) * self.row + (run.column - column)
    }
}

/// The neighbours of the codes of one band.
pub(crate) struct Surroundings<'a> {
    dims: Dims,
    masked: Option<&'a [bool]>,
    /// For each odd axis.
    parents: Vec<(usize, Known<'a>)>,
}

impl<'a> Surroundings<'a> {
    /// `before` holds all bands before this one; `coarse` are the codes of all coarser levels, merged.
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

    /// The sums of a run's codes, without the terms of previous codes of the same row. `frame` describes the layout of
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
        // Rows are read from memory even beyond their ends. Afterwards, the first and the last code are corrected.
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
            // The last code has no right parent if there are not more parents than points.
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

    /// The terms of one code, for fitting; every neighbour in the band exists.
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

/// Merges the codes of the levels coarser than each into one grid, level by level.
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
    pub(crate) fn advance(&mut self, level: usize, all: &[i32]) {
        let n_levels = self.layout.levels.len();
        if level >= n_levels {
            return;
        }
        if self.level.is_none() {
            let anchors = &all[..volume(&self.layout.bands[0].dims)];
            self.codes = scratch::take(anchors.len());
            self.codes.copy_from_slice(anchors);
            self.level = Some(n_levels - 1);
        }
        while let Some(at) = self.level
            && at > level
        {
            let finished = &self.layout.levels[at];
            let mut grid = scratch::take(volume(&finished.grid));
            simd::run(Merge { layout: self.layout, level: finished, coarse: &self.codes, all, grid: &mut grid });
            scratch::give(std::mem::replace(&mut self.codes, grid));
            self.level = Some(at - 1);
        }
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
    /// Codes whose terms are all 0 but for the constant, and the sum of their magnitudes.
    n_alone: f64,
    alone: f64,
}

/// Passes over a band, at most, in search of codes with neighbours that are not 0.
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
    use super::*;
    use crate::codec::entropy::tokens::tests::Random;

    /// A number below `n`.
    fn below(n: usize, random: &mut Random) -> usize {
        random.next() as usize % n
    }

    /// Some of `0..extent`, or all, or none.
    fn part(extent: usize, random: &mut Random) -> Range<usize> {
        let ends = [below(extent + 1, random), below(extent + 1, random)];
        if random.next().is_multiple_of(2) { 0..extent } else { ends[0].min(ends[1])..ends[0].max(ends[1]) }
    }

    fn some_piece(dims: &Dims, random: &mut Random) -> Piece {
        let [planes, rows, columns] = [dims[0] * dims[1], dims[2], dims[X]].map(|extent| part(extent, random));
        Piece { band: 0, planes, rows, columns, deal: [1; 3] }
    }

    /// Every way to make `n_lanes` lanes, in the order of docs/format.md.
    fn deals(n_lanes: usize) -> impl Iterator<Item = [usize; 3]> {
        let all = (0..n_lanes.pow(2)).map(move |i| [1 + i / n_lanes, 1 + i % n_lanes]);
        let all = all.filter(move |[p, r]| p.is_power_of_two() && r.is_power_of_two() && p * r <= n_lanes);
        all.map(move |[p, r]| [p, r, n_lanes / (p * r)])
    }

    fn position_of(dims: &Dims, plane: usize, row: usize, column: usize) -> usize {
        (plane * dims[2] + row) * dims[X] + column
    }

    /// Each code has one lane and one step, within the lane's part of each axis.
    fn check_lanes(piece: &Piece, dims: &Dims) {
        let lanes = piece.lanes();
        assert_eq!(lanes.len(), piece.n_lanes());
        let mut n_seen = vec![0; volume(dims)];
        let [n_planes, n_rows] = piece.steps();
        let [p, r, c] = piece.deal;
        for (number, lane) in lanes.iter().enumerate() {
            let part = |whole: &Range<usize>, i: usize, n: usize| {
                whole.start + whole.len() * i / n..whole.start + whole.len() * (i + 1) / n
            };
            let planes = part(&piece.planes, number / (r * c), p);
            let rows = part(&piece.rows, number / c % r, r);
            let columns = part(&piece.columns, number % c, c);
            for (i, j) in (0..n_planes).flat_map(|i| (0..n_rows).map(move |j| (i, j))) {
                let run = lane.run([i, j], dims);
                let exists = i < planes.len() && j < rows.len();
                assert_eq!(run.len, if exists { columns.len() } else { 0 });
                assert!(run.len <= piece.n_turns());
                if run.len > 0 {
                    assert_eq!((run.plane, run.row, run.column), (planes.start + i, rows.start + j, columns.start));
                    assert_eq!((run.has_row, run.has_second_row), (j > 0, j > 1));
                    let start = Frame::band(dims).start(&run);
                    n_seen[start..start + run.len].iter_mut().for_each(|n| *n += 1);
                }
            }
        }
        for (plane, row) in (0..dims[0] * dims[1]).flat_map(|p| (0..dims[2]).map(move |r| (p, r))) {
            for column in 0..dims[X] {
                let is_inside =
                    piece.planes.contains(&plane) && piece.rows.contains(&row) && piece.columns.contains(&column);
                assert_eq!(n_seen[position_of(dims, plane, row, column)], usize::from(is_inside), "{piece:?}");
            }
        }
    }

    #[test]
    fn every_code_has_one_lane_and_step() {
        let mut random = Random(1);
        for case in 0..600 {
            let extent = |random: &mut Random| below([2, 4, 9, 20][random.next() as usize % 4], random);
            let dims: Dims = match case % 6 {
                0 => [1, 1, 1, below(9000, &mut random)],
                1 => [1, 1, below(90, &mut random), below(90, &mut random)],
                2 => [1, below(300, &mut random), 1 + below(4, &mut random), 1 + below(8, &mut random)],
                _ => std::array::from_fn(|_| 1 + extent(&mut random)),
            };
            let piece = some_piece(&dims, &mut random);
            for is_wide in [false, true] {
                let dealt = piece.clone().dealt(is_wide);
                let is_wide = is_wide && piece.n_codes() >= 1 << 12;
                assert_eq!(dealt.n_lanes(), if is_wide { 16 } else { 4 });
                check_lanes(&dealt, &dims);
            }
            // Also where that is useless.
            for deal in deals([4, 16][case % 2]) {
                check_lanes(&Piece { deal, ..piece.clone() }, &dims);
            }
        }
    }

    #[test]
    fn lanes_are_those_of_least_cost() {
        let mut random = Random(2);
        let small: Vec<[usize; 3]> =
            (0..9 * 9 * 9).map(|i| [i / 81, i / 9 % 9, i % 9]).chain([[0, 7, 9], [4096, 0, 1], [1, 1, 4096]]).collect();
        let random: Vec<[usize; 3]> = (0..500).map(|_| std::array::from_fn(|_| 1 + below(200, &mut random))).collect();
        for extents in small.into_iter().chain(random) {
            let [planes, rows, columns] = extents.map(|extent| 5..5 + extent);
            let piece = Piece { band: 0, planes, rows, columns, deal: [1; 3] };
            for is_wide in [false, true] {
                let n_lanes = if is_wide && extents.iter().product::<usize>() >= 4096 { 16 } else { 4 };
                let mut best = (u64::MAX, [0; 3]);
                for deal in deals(n_lanes) {
                    let [k, e] = [deal, extents].map(|all| all.map(|n| n as u64));
                    let edges = |a: usize| ((k[a] - 1) << 16) / e[a].max(1);
                    let idle = |a: usize| ((k[a] * e[a].div_ceil(k[a]) - e[a]) << 16) / e[a].max(1);
                    let cost = 3 * edges(0) + 4 * edges(1) + 28 * edges(2) + (idle(0) + idle(1) + idle(2)) / 4;
                    best = if cost < best.0 { (cost, deal) } else { best };
                }
                assert_eq!(piece.clone().dealt(is_wide).deal, best.1, "{extents:?}");
            }
        }
    }

    #[test]
    fn bands_are_cut_where_they_are_large() {
        let cut = |dims: Dims| -> Vec<[Range<usize>; 3]> {
            let streams = streams(&BandLayout::interpolation(dims, 0), false);
            assert!(streams.iter().all(|stream| stream.pieces.len() == 1));
            streams.into_iter().flat_map(|s| s.pieces).map(|p| [p.planes, p.rows, p.columns]).collect()
        };
        assert_eq!(cut([1, 2, 1 << 9, (1 << 9) - 1]), [[0..2, 0..512, 0..511]]);
        assert_eq!(cut([2, 3, 300, 300]), [[0..3, 0..300, 0..300], [3..6, 0..300, 0..300]]);
        assert_eq!(cut([1, 3, 421, 420]), [[0..3, 0..210, 0..420], [0..3, 210..421, 0..420]]);
        assert_eq!(cut([1, 1, 3, 200_001]), [[0..1, 0..3, 0..100_000], [0..1, 0..3, 100_000..200_001]]);
        // The finest bands of this are large, all others share one stream.
        let streams = streams(&BandLayout::interpolation([1, 1, 520, 512], 0b1100), true);
        let n_pieces: Vec<usize> = streams.iter().map(|stream| stream.pieces.len()).collect();
        assert!(n_pieces[0] > 1 && n_pieces[1..] == [1, 1, 1]);
        assert_eq!(streams.iter().map(|stream| stream.wave).collect::<Vec<_>>(), [0, 1, 1, 2]);
    }

    #[test]
    fn contiguous_pieces_are_known_and_stored() {
        let mut random = Random(3);
        for _ in 0..5000 {
            let dims: Dims = std::array::from_fn(|_| 1 + below(4, &mut random));
            let piece = some_piece(&dims, &mut random);
            let mut positions = Vec::new();
            for (plane, row) in piece.planes.clone().flat_map(|p| piece.rows.clone().map(move |r| (p, r))) {
                positions.extend(piece.columns.clone().map(|column| position_of(&dims, plane, row, column)));
            }
            assert_eq!(positions.len(), piece.n_codes());
            if !positions.is_empty() {
                let is_contiguous = positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
                assert_eq!(
                    piece.start_if_contiguous(&dims),
                    is_contiguous.then_some(positions[0]),
                    "{piece:?} {dims:?}"
                );
            } else if let Some(start) = piece.start_if_contiguous(&dims) {
                assert!(start <= volume(&dims), "{piece:?} {dims:?}");
            }
            let numbers: Vec<i32> = (1..).take(positions.len()).collect();
            let (mut stored, mut wanted) = (vec![0; volume(&dims)], vec![0; volume(&dims)]);
            piece.store(&numbers, &dims, &mut stored);
            positions.iter().zip(&numbers).for_each(|(position, number)| wanted[*position] = *number);
            assert_eq!(stored, wanted);
        }
    }

    /// The array that bands are taken from.
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

    /// Where the points of a band lie in the array: the first along each axis, and the steps.
    fn grid_of(layout: &BandLayout, band: &Band) -> ([usize; AXES], [usize; AXES]) {
        let finer = &layout.levels[..band.level];
        let stride = |a: usize| 1 << finer.iter().filter(|level| level.active >> a & 1 != 0).count();
        let strides: [usize; AXES] = std::array::from_fn(stride);
        let active = layout.levels.get(band.level).map_or(0, |level| level.active);
        let first = std::array::from_fn(|a| if band.odd >> a & 1 != 0 { strides[a] } else { 0 });
        (first, std::array::from_fn(|a| strides[a] << (active >> a & 1)))
    }

    /// The sum of a code without those before in its run, position by position from the whole array.
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
            coarse.advance(band.level, &codes);
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
