//! The chunk grid: which box of the array each chunk id stands for; and copies of boxes between arrays in C order.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::exec::{self, no_memory, reserve};

/// The product of `shape` in bytes; `None` from 2^63 on. Any extent of zero makes it zero, whatever the others are.
pub(crate) fn checked_bytes(shape: &[usize], value_bytes: usize) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let bytes = shape.iter().try_fold(value_bytes as u64, |product, &n| product.checked_mul(n as u64))?;
    (bytes < 1 << 63).then_some(bytes)
}

/// The number of values of a shape whose [`checked_bytes`] is known to fit.
pub(crate) fn n_values(shape: &[usize]) -> usize {
    if shape.contains(&0) { 0 } else { shape.iter().product() }
}

/// Number of chunks of an array with these trailing extents whose segments have these rows; `None` on overflow.
pub(crate) fn count_chunks(row_shape: &[usize], chunk_shape: &[usize], segments: &[usize]) -> Option<u64> {
    let per_row = row_shape
        .iter()
        .zip(&chunk_shape[1..])
        .try_fold(1u64, |product, (&n, &c)| product.checked_mul(n.div_ceil(c) as u64))?;
    segments
        .iter()
        .try_fold(0u64, |sum, &rows| sum.checked_add((rows.div_ceil(chunk_shape[0]) as u64).checked_mul(per_row)?))
}

/// A box within an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: Vec<usize>,
    pub(crate) extents: Vec<usize>,
}

impl Block {
    pub(crate) fn whole(shape: &[usize]) -> Self {
        Self { start: vec![0; shape.len()], extents: shape.to_vec() }
    }

    pub(crate) fn n_values(&self) -> usize {
        n_values(&self.extents)
    }

    pub(crate) fn ranges(&self) -> Vec<Range<usize>> {
        self.start.iter().zip(&self.extents).map(|(&s, &n)| s..s + n).collect()
    }

    /// The ranges of this box in the array of `outer`, which contains it.
    pub(crate) fn ranges_in(&self, outer: &Block) -> Vec<Range<usize>> {
        self.start_in(outer).iter().zip(&self.extents).map(|(&s, &n)| s..s + n).collect()
    }

    /// The intersection of both; if it is empty, some extents are zero.
    pub(crate) fn intersection(&self, other: &Block) -> Block {
        let mut common = self.clone();
        for axis in 0..self.start.len() {
            let start = self.start[axis].max(other.start[axis]);
            let end = (self.start[axis] + self.extents[axis]).min(other.start[axis] + other.extents[axis]);
            common.start[axis] = start;
            common.extents[axis] = end.saturating_sub(start);
        }
        common
    }

    /// Where this box starts as seen from the start of `other`.
    pub(crate) fn start_in(&self, other: &Block) -> Vec<usize> {
        self.start.iter().zip(&other.start).map(|(&a, &b)| a - b).collect()
    }
}

/// The index range of a box within an array, if the box is contiguous there.
pub(crate) fn contiguous_run(shape: &[usize], start: &[usize], extents: &[usize]) -> Option<Range<usize>> {
    // After leading extents of 1, one axis may be cut; all later axes must be whole.
    let cut = extents.iter().position(|&n| n != 1).unwrap_or(extents.len());
    if extents.iter().zip(shape).skip(cut + 1).any(|(n, all)| n != all) {
        return None;
    }
    let offset = start.iter().zip(shape).fold(0, |offset, (&s, &n)| offset * n + s);
    Some(offset..offset + n_values(extents))
}

/// One side of a copy: an array in C order and the corner of the box in it.
#[derive(Clone, Copy, Debug)]
pub struct Corner<'a> {
    /// Extents of the array.
    pub shape: &'a [usize],
    /// Where the box starts in it.
    pub start: &'a [usize],
}

/// Calls `copy(source offset, destination offset, length)` for each run of memory that a box has on both sides.
pub fn for_each_run(
    from: Corner<'_>,
    to: Corner<'_>,
    extents: &[usize],
    mut copy: impl FnMut(usize, usize, usize) -> Result<()>,
) -> Result<()> {
    if extents.contains(&0) {
        return Ok(());
    }
    let rank = extents.len();
    // Trailing axes that are whole on both sides merge with the one before them into one run.
    let whole = (0..rank).rev().take_while(|&a| extents[a] == from.shape[a] && extents[a] == to.shape[a]).count();
    let outer = (rank - whole).saturating_sub(1);
    let run = extents[outer..].iter().product::<usize>();
    let strides = |shape: &[usize]| {
        let mut strides = vec![1usize; rank];
        (0..rank.saturating_sub(1)).rev().for_each(|a| strides[a] = strides[a + 1] * shape[a + 1]);
        strides
    };
    let (from_strides, to_strides) = (strides(from.shape), strides(to.shape));
    let offset = |start: &[usize], strides: &[usize]| start.iter().zip(strides).map(|(s, n)| s * n).sum::<usize>();
    let (mut from_at, mut to_at) = (offset(from.start, &from_strides), offset(to.start, &to_strides));
    let mut position = vec![0usize; outer];
    loop {
        copy(from_at, to_at, run)?;
        let mut axis = outer;
        loop {
            if axis == 0 {
                return Ok(());
            }
            axis -= 1;
            position[axis] += 1;
            from_at += from_strides[axis];
            to_at += to_strides[axis];
            if position[axis] < extents[axis] {
                break;
            }
            position[axis] = 0;
            from_at -= from_strides[axis] * extents[axis];
            to_at -= to_strides[axis] * extents[axis];
        }
    }
}

/// Copies a box from one array to another.
pub(crate) fn copy_block<T: Copy>(src: &[T], from: Corner<'_>, dst: &mut [T], to: Corner<'_>, extents: &[usize]) {
    let copied = for_each_run(from, to, extents, |from_at, to_at, n| {
        dst[to_at..to_at + n].copy_from_slice(&src[from_at..from_at + n]);
        Ok(())
    });
    debug_assert!(copied.is_ok());
}

/// Rows that the chunk shape cuts regularly: those of one writing session, or a band that salvage found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    first_row: usize,
    rows: usize,
    first_id: u64,
}

/// The boxes that the chunk ids of an array stand for (docs/format.md, section 3).
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    shape: Vec<usize>,
    chunk_shape: Vec<usize>,
    segments: Vec<Segment>,
    /// Chunks along each axis but the slowest.
    counts: Vec<usize>,
    chunks_per_row: u64,
    n_chunks: u64,
    origin: Origin,
}

/// How the rows are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A single chunk, also if the array has no axes or no elements.
    Whole,
    /// The rows of each segment are known.
    Segments,
    /// Some bands are known; how the rows between them are cut may not be.
    Bands,
}

/// The chunks that share their rows, of which salvage found at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkBand {
    /// Position among all bands, found or not.
    pub(crate) number: u64,
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
}

impl ChunkBand {
    /// The row after the last one.
    pub(crate) fn end(&self) -> usize {
        self.first_row + self.rows
    }

    /// Whether this can be the next band found after `previous`, or the first one, in an array cut to `chunk_rows`:
    /// each band between them has at least one row and at most that many.
    pub(crate) fn can_follow(&self, previous: Option<&ChunkBand>, chunk_rows: usize) -> bool {
        let (next_row, next_number) = previous.map_or((0, 0), |p| (p.end(), p.number + 1));
        let missing = self.first_row.checked_sub(next_row).zip(self.number.checked_sub(next_number));
        missing.is_some_and(|(rows, n)| (n..=n.saturating_mul(chunk_rows as u64)).contains(&(rows as u64)))
    }
}

impl Grid {
    /// The grid of an array that is one chunk.
    pub(crate) fn whole(shape: &[usize]) -> Self {
        let rows = shape.first().copied().unwrap_or(1);
        Self {
            shape: shape.to_vec(),
            chunk_shape: shape.iter().map(|&n| n.max(1)).collect(),
            segments: vec![Segment { first_row: 0, rows, first_id: 0 }],
            counts: vec![1; shape.len().saturating_sub(1)],
            chunks_per_row: 1,
            n_chunks: 1,
            origin: Origin::Whole,
        }
    }

    /// Memory that a grid of so many segments takes, with lists of them that are made from it.
    pub(crate) fn list_bytes(n_segments: usize) -> u64 {
        n_segments as u64 * 4 * size_of::<Segment>() as u64
    }

    /// The grid of an array of rank 1 or more, all extents at least 1, whose segments have these rows.
    pub(crate) fn new(shape: &[usize], chunk_shape: &[usize], segment_rows: &[usize]) -> Result<Self> {
        let n_chunks = count_chunks(&shape[1..], chunk_shape, segment_rows)
            .ok_or_else(|| Error::invalid("the array has more than 2^64 chunks; use larger ones"))?;
        let counts: Vec<usize> = shape.iter().zip(chunk_shape).skip(1).map(|(&n, &c)| n.div_ceil(c)).collect();
        let chunks_per_row = counts.iter().map(|&n| n as u64).product();
        let (mut first_row, mut first_id) = (0, 0);
        exec::check_memory(Self::list_bytes(segment_rows.len()))?;
        let mut segments = Vec::new();
        reserve(&mut segments, segment_rows.len())?;
        for &rows in segment_rows {
            segments.push(Segment { first_row, rows, first_id });
            first_row += rows;
            first_id += rows.div_ceil(chunk_shape[0]) as u64 * chunks_per_row;
        }
        Ok(Self {
            shape: shape.to_vec(),
            chunk_shape: chunk_shape.to_vec(),
            segments,
            counts,
            chunks_per_row,
            n_chunks,
            origin: Origin::Segments,
        })
    }

    /// The grid of an array of which these bands are known, ascending, each able to follow the one before. Bands
    /// between them are part of the grid where only one cut of the rows is possible; see [`Self::gaps`] for the rest.
    pub(crate) fn of_bands(row_shape: &[usize], chunk_shape: &[usize], bands: &[ChunkBand]) -> Result<Self> {
        let rows = bands.last().map_or(0, ChunkBand::end);
        let shape: Vec<usize> = std::iter::once(rows).chain(row_shape.iter().copied()).collect();
        let mut grid = Self::new(&shape, chunk_shape, &[])?;
        let (mut next_row, mut next_number) = (0, 0);
        for band in bands {
            let (missing, n_missing) = (band.first_row - next_row, band.number - next_number);
            let all_full = Some(missing as u64) == n_missing.checked_mul(chunk_shape[0] as u64);
            if n_missing > 0 && (n_missing == 1 || all_full) {
                let first_id = next_number * grid.chunks_per_row;
                grid.segments.push(Segment { first_row: next_row, rows: missing, first_id });
            }
            let first_id = band.number * grid.chunks_per_row;
            grid.segments.push(Segment { first_row: band.first_row, rows: band.rows, first_id });
            (next_row, next_number) = (band.end(), band.number + 1);
        }
        grid.n_chunks = next_number * grid.chunks_per_row;
        grid.origin = Origin::Bands;
        Ok(grid)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(crate) fn chunk_shape(&self) -> &[usize] {
        &self.chunk_shape
    }

    /// Whether the whole array is one chunk by definition, not by the size of its chunks.
    pub(crate) fn is_whole(&self) -> bool {
        self.origin == Origin::Whole
    }

    /// Extent of the slowest axis; 1 for an array without axes.
    pub(crate) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    pub(crate) fn n_chunks(&self) -> u64 {
        self.n_chunks
    }

    /// Rows of each segment; none for an array without axes, or where they are not known.
    pub(crate) fn segment_rows(&self) -> Result<Vec<usize>> {
        let unknown = self.shape.is_empty() || self.origin == Origin::Bands;
        let n = if unknown { 0 } else { self.segments.len() };
        let mut rows = Vec::new();
        reserve(&mut rows, n)?;
        rows.extend(self.segments[..n].iter().map(|s| s.rows));
        Ok(rows)
    }

    /// Whether the box of chunk `id`, which must exist, is known: whether it is not in a gap.
    pub(crate) fn is_known(&self, id: u64) -> bool {
        let n = self.segments.partition_point(|s| s.first_id <= id);
        n.checked_sub(1).is_some_and(|i| id < self.segment_end(i))
    }

    /// Rows whose cut into chunks is not known, each run of them with the id of its first chunk, ascending.
    pub(crate) fn gaps(&self) -> Vec<(u64, Range<usize>)> {
        let (mut next_row, mut next_id) = (0, 0);
        let mut gaps = Vec::new();
        for (i, segment) in self.segments.iter().enumerate() {
            if segment.first_row > next_row {
                gaps.push((next_id, next_row..segment.first_row));
            }
            (next_row, next_id) = (segment.first_row + segment.rows, self.segment_end(i));
        }
        gaps
    }

    /// The id after the last one of a segment.
    fn segment_end(&self, i: usize) -> u64 {
        let Segment { rows, first_id, .. } = self.segments[i];
        let bands = if self.origin == Origin::Whole { 1 } else { rows.div_ceil(self.chunk_shape[0]) };
        first_id + bands as u64 * self.chunks_per_row
    }

    /// The box of chunk `id`, which must exist and be known.
    pub(crate) fn block(&self, id: u64) -> Block {
        if self.origin == Origin::Whole {
            return Block::whole(&self.shape);
        }
        let segment = &self.segments[self.segments.partition_point(|s| s.first_id <= id) - 1];
        let mut local = id - segment.first_id;
        let mut block = Block::whole(&self.shape);
        for axis in (0..self.shape.len()).rev() {
            let (first, all, count) = match axis {
                0 => (segment.first_row, segment.rows, u64::MAX),
                _ => (0, self.shape[axis], self.counts[axis - 1] as u64),
            };
            let start = (local % count) as usize * self.chunk_shape[axis];
            local /= count;
            block.start[axis] = first + start;
            block.extents[axis] = self.chunk_shape[axis].min(all - start);
        }
        block
    }

    /// The number of values in chunk `id`.
    pub(crate) fn chunk_values(&self, id: u64) -> usize {
        self.block(id).n_values()
    }

    /// The ids of all chunks that share values with `region`, ascending.
    pub(crate) fn chunks_in(&self, region: &Block) -> Result<Vec<u64>> {
        if region.n_values() == 0 {
            return Ok(Vec::new());
        }
        if self.origin == Origin::Whole {
            return Ok(vec![0]);
        }
        let grid_range = |axis: usize, start: usize, end: usize| {
            (start / self.chunk_shape[axis]) as u64..(end - 1) as u64 / self.chunk_shape[axis] as u64 + 1
        };
        // The chunks of one row of chunks.
        let mut row_ids = vec![0];
        for axis in 1..self.shape.len() {
            let range = grid_range(axis, region.start[axis], region.start[axis] + region.extents[axis]);
            let count = self.counts[axis - 1] as u64;
            let mut next = Vec::new();
            reserve(&mut next, row_ids.len().saturating_mul((range.end - range.start) as usize))?;
            next.extend(row_ids.iter().flat_map(|&id| range.clone().map(move |i| id * count + i)));
            row_ids = next;
        }
        let mut ids = Vec::new();
        for segment in &self.segments {
            let start = region.start[0].max(segment.first_row);
            let end = (region.start[0] + region.extents[0]).min(segment.first_row + segment.rows);
            if start >= end {
                continue;
            }
            let rows = grid_range(0, start - segment.first_row, end - segment.first_row);
            // Several segments grow the list by doubling, as many may share it.
            let more = row_ids.len().saturating_mul((rows.end - rows.start) as usize);
            ids.try_reserve(more).map_err(|_| no_memory(more.saturating_mul(size_of::<u64>()) as u64))?;
            for row in rows {
                let first_id = segment.first_id + row * self.chunks_per_row;
                ids.extend(row_ids.iter().map(|id| first_id + id));
            }
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products() {
        assert_eq!(checked_bytes(&[], 4), Some(4));
        assert_eq!(checked_bytes(&[0, usize::MAX, usize::MAX], 8), Some(0));
        assert_eq!(checked_bytes(&[1 << 61], 4), None);
        assert_eq!(checked_bytes(&[1 << 30, 1 << 30], 4), Some(1 << 62));
        assert_eq!(count_chunks(&[usize::MAX, usize::MAX], &[1, 1, 1], &[1]), None);
    }

    #[test]
    fn runs() {
        assert_eq!(contiguous_run(&[4, 5, 6], &[2, 0, 0], &[2, 5, 6]), Some(60..120));
        assert_eq!(contiguous_run(&[4, 5, 6], &[2, 1, 0], &[1, 2, 6]), Some(66..78));
        assert_eq!(contiguous_run(&[4, 5, 6], &[2, 1, 3], &[1, 1, 2]), Some(69..71));
        assert_eq!(contiguous_run(&[4, 5, 6], &[2, 1, 0], &[2, 2, 6]), None);
        assert_eq!(contiguous_run(&[4, 5, 6], &[2, 1, 3], &[1, 2, 3]), None);
        assert_eq!(contiguous_run(&[], &[], &[]), Some(0..1));
    }

    #[test]
    fn blocks_cover_the_array_once_in_order() {
        let shape = [11, 7, 5];
        let grid = Grid::new(&shape, &[3, 4, 5], &[4, 1, 6]).unwrap();
        assert_eq!(grid.n_chunks(), 2 * (2 + 1 + 2));
        let mut seen = vec![0u8; 11 * 7 * 5];
        let mut last = None;
        for id in 0..grid.n_chunks() {
            let block = grid.block(id);
            assert!(last < Some(block.start.clone()));
            last = Some(block.start.clone());
            let ones = vec![1u8; block.n_values()];
            let zeros = [0; 3];
            let from = Corner { shape: &block.extents, start: &zeros };
            let to = Corner { shape: &shape, start: &block.start };
            for_each_run(from, to, &block.extents, |a, b, n| {
                (0..n).for_each(|i| seen[b + i] += ones[a + i]);
                Ok(())
            })
            .unwrap();
        }
        assert!(seen.iter().all(|&n| n == 1));
    }

    #[test]
    fn chunks_in_region_are_those_that_overlap() {
        let grid = Grid::new(&[11, 7, 5], &[3, 4, 2], &[4, 1, 6]).unwrap();
        for region in [
            Block { start: vec![0, 0, 0], extents: vec![11, 7, 5] },
            Block { start: vec![3, 3, 1], extents: vec![2, 2, 1] },
            Block { start: vec![5, 4, 4], extents: vec![6, 3, 1] },
            Block { start: vec![5, 4, 4], extents: vec![6, 0, 1] },
        ] {
            let overlap = |id: &u64| grid.block(*id).intersection(&region).n_values() > 0;
            let expected: Vec<u64> = (0..grid.n_chunks()).filter(overlap).collect();
            assert_eq!(grid.chunks_in(&region).unwrap(), expected);
        }
    }

    #[test]
    fn bands_with_and_without_gaps() {
        let band = |number, first_row, rows| ChunkBand { number, first_row, rows };
        // Two full bands of 3 rows missing in front, one of 2 rows and then two of 4 together missing later.
        let bands = [band(2, 6, 3), band(4, 11, 1), band(7, 16, 3)];
        assert!(bands[0].can_follow(None, 3) && bands.is_sorted_by(|a, b| b.can_follow(Some(a), 3)));
        let grid = Grid::of_bands(&[7, 5], &[3, 4, 5], &bands).unwrap();
        assert_eq!((grid.shape(), grid.n_chunks()), (&[19, 7, 5][..], 16));
        let known: Vec<u64> = (0..16).filter(|&id| grid.is_known(id)).collect();
        assert_eq!(known, (0..10).chain(14..16).collect::<Vec<_>>());
        assert_eq!(grid.gaps(), [(10, 12..16)]);
        assert!(grid.segment_rows().unwrap().is_empty());
        let reference = Grid::new(&[19, 7, 5], &[3, 4, 5], &[11, 1, 1, 6]).unwrap();
        assert!(known.iter().all(|&id| grid.block(id) == reference.block(id)));

        for (a, b) in [
            (band(0, 0, 3), band(1, 4, 3)),
            (band(0, 0, 3), band(1, 2, 3)),
            (band(0, 0, 3), band(2, 3, 3)),
            (band(0, 0, 3), band(2, 7, 3)),
            (band(1, 3, 3), band(0, 0, 3)),
        ] {
            assert!(!b.can_follow(Some(&a), 3), "{a:?} {b:?}");
        }
        assert!(!band(0, 1, 3).can_follow(None, 3) && !band(2, 1, 3).can_follow(None, 3));
        assert!(band(2, 2, 3).can_follow(None, 3) && !band(2, 7, 3).can_follow(None, 3));
        let whole = Grid::whole(&[0, 3]);
        assert!(whole.is_known(0) && whole.gaps().is_empty());
    }
}
