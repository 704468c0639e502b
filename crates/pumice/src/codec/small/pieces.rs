//! How codes are cut into pieces, streams and lanes (docs/format.md, 7.6), and the bricks that encoders sample.

use std::ops::Range;

use super::bands::BandLayout;
use super::fit::sample_position;
use crate::codec::shared::dims::{AxisSet, Dims, X, volume};

/// Number of lanes of a narrow and of a wide piece.
pub(crate) const NARROW: usize = 4;
pub(crate) const WIDE: usize = 16;
/// Pieces of fewer codes are always narrow.
const WIDE_CODES: usize = 1 << 12;
/// Bands of at least this size have streams of their own, of about [`STREAM_VALUES`] or fewer codes each.
const LARGE_BAND: usize = 1 << 16;
pub(super) const STREAM_VALUES: usize = 1 << 18;

/// A box of a band that is coded on its own: contexts use no codes of the band outside of it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) band: usize,
    pub(super) planes: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// Number of parts that planes, rows and columns are cut into; each lane has one part of each.
    pub(super) deal: [usize; 3],
}

/// Pieces that share the states of one coder.
#[derive(Clone, Debug)]
pub(crate) struct CodeStream {
    pub(crate) pieces: Vec<Piece>,
    /// Streams of the same wave can be decoded in parallel, after those of all earlier waves.
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
/// The fewest bricks of a sample, where an array has as many.
const MIN_BRICKS: usize = 12;

/// A box of whole rows to sample. Its coordinates along paired axes count pairs of rows or planes, so that it is a box
/// of the whole array as well as of each band of the finest level.
pub(crate) struct Brick {
    paired: AxisSet,
    volume: usize,
    planes: Range<usize>,
    rows: Range<usize>,
}

impl Brick {
    /// About one in `share` bricks of an array, spread over it.
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

    /// The brick as a piece of a band, whose extents along paired axes are half of the array's.
    pub(crate) fn in_band(&self, band: usize, dims: &Dims) -> Piece {
        let first = self.volume * dims[1];
        let planes = first + self.planes.start..first + self.planes.end;
        Piece { band, planes, rows: self.rows.clone(), columns: 0..dims[X], deal: [1; 3] }
    }

    /// The parts of the brick in the slabs of the whole array.
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

impl Piece {
    /// A whole band as a piece.
    pub(crate) fn whole(band: usize, dims: &Dims) -> Self {
        Self { band, planes: 0..dims[0] * dims[1], rows: 0..dims[2], columns: 0..dims[X], deal: [1; 3] }
    }

    /// The indices of its rows in the band.
    pub(crate) fn row_ranges(&self, dims: &Dims) -> impl Iterator<Item = Range<usize>> {
        let (rows, n) = (self.rows.clone(), dims[2]);
        self.planes.clone().map(move |plane| plane * n + rows.start..plane * n + rows.end)
    }
}

/// The run of codes that a lane processes in one step, and which neighbours exist.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    /// Plane, row and first column, in the band.
    pub(super) plane: usize,
    pub(super) row: usize,
    pub(super) column: usize,
    pub(crate) len: usize,
    pub(super) has_row: bool,
    pub(super) has_second_row: bool,
    pub(super) has_plane: bool,
    pub(super) has_volume: bool,
    /// Whether the previous row has codes of the piece before and behind the run.
    pub(super) has_before: bool,
    pub(super) has_behind: bool,
}

/// The planes, rows and columns of a lane.
pub(crate) struct Lane {
    pub(super) planes: Range<usize>,
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    pub(super) has_before: bool,
    pub(super) has_behind: bool,
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
        let deal = deals.min_by_key(cost).expect("there is at least one");
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

    /// The lanes of the piece.
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

/// The layout of the codes of a piece in a buffer: that of the whole band, or one for the piece alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Plane, row and column of the first code of the buffer.
    origin: [usize; 3],
    /// Strides to the next row, plane and volume.
    pub(super) row: usize,
    pub(super) plane: usize,
    pub(super) volume: usize,
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

    /// Offset of a run's first code.
    #[inline(always)]
    pub(crate) fn start(&self, run: &Run) -> usize {
        let [plane, row, column] = self.origin;
        (run.plane - plane) * self.plane + (run.row - row) * self.row + (run.column - column)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::entropy::tokens::tests::Random;

    /// A number below `n`.
    pub(crate) fn below(n: usize, random: &mut Random) -> usize {
        random.next() as usize % n
    }

    /// Some of `0..extent`, or all, or none.
    fn part(extent: usize, random: &mut Random) -> Range<usize> {
        let ends = [below(extent + 1, random), below(extent + 1, random)];
        if random.next().is_multiple_of(2) { 0..extent } else { ends[0].min(ends[1])..ends[0].max(ends[1]) }
    }

    pub(crate) fn some_piece(dims: &Dims, random: &mut Random) -> Piece {
        let [planes, rows, columns] = [dims[0] * dims[1], dims[2], dims[X]].map(|extent| part(extent, random));
        Piece { band: 0, planes, rows, columns, deal: [1; 3] }
    }

    /// Every way to cut a piece into `n_lanes` lanes, in the order of docs/format.md.
    pub(crate) fn deals(n_lanes: usize) -> impl Iterator<Item = [usize; 3]> {
        let all = (0..n_lanes.pow(2)).map(move |i| [1 + i / n_lanes, 1 + i % n_lanes]);
        let all = all.filter(move |[p, r]| p.is_power_of_two() && r.is_power_of_two() && p * r <= n_lanes);
        all.map(move |[p, r]| [p, r, n_lanes / (p * r)])
    }

    pub(crate) fn position_of(dims: &Dims, plane: usize, row: usize, column: usize) -> usize {
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
            // All other ways to cut the piece must be complete, too.
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
        // Here the bands of the finest level are large; all others share one stream.
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

    /// A brick covers the same rows of the array in slabs as in the bands of the finest level.
    #[test]
    fn bricks_are_the_same_rows_in_bands_and_slabs() {
        for dims in [[1, 40, 50, 60], [1, 1, 333, 200], [7, 9, 30, 40], [5, 3, 61, 80]] {
            let active = (0..X + 1).filter(|a| dims[*a] >= 4).fold(0, |set, a| set | 1 << a);
            let (lattice, levels) = (BandLayout::lattice(dims), BandLayout::interpolation(dims, active));
            let finest = levels.bands.iter().enumerate().filter(|(_, band)| band.level == 0);
            for brick in Brick::spread(&dims, active, 8) {
                let mut rows = Vec::new();
                for piece in brick.in_slabs(&lattice, &dims) {
                    let band = &lattice.bands[piece.band];
                    rows.extend(piece.row_ranges(&band.dims).flatten().map(|row| band.offset / dims[X] + row));
                }
                rows.sort_unstable();
                let mut of_bands = Vec::new();
                for (i, band) in finest.clone().filter(|(_, band)| band.odd >> X & 1 != 0) {
                    for row in brick.in_band(i, &band.dims).row_ranges(&band.dims).flatten() {
                        let d = &band.dims;
                        let at = [row / (d[1] * d[2]), row / d[2] % d[1], row % d[2]];
                        let fine = |a: usize| match active >> a & 1 {
                            0 => at[a],
                            _ => 2 * at[a] + usize::from(band.odd >> a & 1),
                        };
                        of_bands.push((fine(0) * dims[1] + fine(1)) * dims[2] + fine(2));
                    }
                }
                of_bands.sort_unstable();
                assert_eq!(rows, of_bands, "{dims:?}");
            }
        }
    }
}
