//! The bands of a chunk: dense arrays of codes that are coded one after the other (docs/format.md, 7.2).
//!
//! The bands of the lattice are slabs along the slowest axis. Interpolation halves its grid level by level: the points
//! of a level that are not on the next coarser grid form one band for each set of axes along which their index is odd.
//! Every band is a dense array, so prediction, quantisation and modelling work along contiguous rows.

use std::ops::Range;

use crate::codec::shared::dims::{AXES, AxisSet, Dims, X, axes_of, volume};
use crate::num::simd::Kernel;

/// Groups of context statistics: the finest level, the second, and all others.
pub(crate) const GROUPS: usize = 3;
/// Axes shorter than this are not halved.
const MIN_EXTENT: usize = 4;
/// Grids of at most this many points are not halved.
const MAX_ANCHORS: usize = 64;
/// If the lattice is cut into several slabs, each has about this many values or more.
const SLAB_VALUES: usize = 1 << 20;

/// A dense array of codes.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) dims: Dims,
    /// Offset of its first code among all codes of the chunk.
    pub(crate) offset: usize,
    /// Index of its level; 0 is the finest.
    pub(crate) level: usize,
    /// Axes along which its points lie between points of earlier bands. Empty for anchors and slabs.
    pub(crate) odd: AxisSet,
    /// The group of statistics that its contexts use.
    pub(crate) group: usize,
}

/// One refinement: from the points whose indices along active axes are even to the whole grid.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) grid: Dims,
    /// The even points: the grid of the next coarser level.
    pub(crate) coarse: Dims,
    /// Axes that are halved.
    pub(crate) active: AxisSet,
    /// Indices of its bands.
    pub(crate) bands: Range<usize>,
    /// Index of the band of each set of odd axes.
    band_of: [usize; 1 << AXES],
}

/// All bands of a chunk, in the order in which they are coded, and the levels, finest first.
#[derive(Clone, Debug)]
pub(crate) struct BandLayout {
    pub(crate) bands: Vec<Band>,
    pub(crate) levels: Vec<Level>,
    pub(crate) n_values: usize,
}

/// The axis along which a lattice is cut into slabs, and their number.
fn slabs(dims: &Dims) -> (usize, usize) {
    let axis = (0..X).find(|a| dims[*a] > 1).unwrap_or(X);
    (axis, (volume(dims) / SLAB_VALUES).clamp(1, dims[axis].max(1)))
}

/// The number of slabs of a lattice, and the extents of the largest.
pub(crate) fn largest_slab(dims: &Dims) -> (usize, Dims) {
    let (axis, n_slabs) = slabs(dims);
    let mut largest = *dims;
    largest[axis] = dims[axis].div_ceil(n_slabs);
    (n_slabs, largest)
}

impl BandLayout {
    /// Slabs along the slowest axis of an extent above 1, each of about [`SLAB_VALUES`] or more.
    pub(crate) fn lattice(dims: Dims) -> Self {
        let n_values = volume(&dims);
        let (axis, n_slabs) = slabs(&dims);
        let mut bands = Vec::with_capacity(n_slabs);
        let mut offset = 0;
        for slab in 0..n_slabs {
            let mut slab_dims = dims;
            slab_dims[axis] = dims[axis] * (slab + 1) / n_slabs - dims[axis] * slab / n_slabs;
            bands.push(Band { dims: slab_dims, offset, level: 0, odd: 0, group: 0 });
            offset += volume(&slab_dims);
        }
        Self { bands, levels: Vec::new(), n_values }
    }

    /// Anchors and levels of the interpolation along the axes of `active`.
    pub(crate) fn interpolation(dims: Dims, active: AxisSet) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        let mut grid = dims;
        loop {
            let active = axes_of(active).filter(|a| grid[*a] >= MIN_EXTENT).fold(0, |set, a| set | 1 << a);
            if active == 0 || volume(&grid) <= MAX_ANCHORS {
                break;
            }
            let coarse = class_dims(&grid, active, 0);
            levels.push(Level { grid, coarse, active, bands: 0..0, band_of: [0; 1 << AXES] });
            grid = coarse;
        }
        let mut bands = vec![Band { dims: grid, offset: 0, level: levels.len(), odd: 0, group: GROUPS - 1 }];
        let mut offset = volume(&grid);
        for (l, level) in levels.iter_mut().enumerate().rev() {
            let first = bands.len();
            for odd in classes(level.active) {
                level.band_of[usize::from(odd)] = bands.len();
                let dims = class_dims(&level.grid, level.active, odd);
                bands.push(Band { dims, offset, level: l, odd, group: l.min(GROUPS - 1) });
                offset += volume(&dims);
            }
            level.bands = first..bands.len();
        }
        Self { bands, levels, n_values: offset }
    }

    /// The position in working order of the code with index `at`.
    pub(crate) fn working_position(&self, at: usize) -> usize {
        let band = &self.bands[self.bands.partition_point(|band| band.offset <= at) - 1];
        let Some(finest) = self.levels.first() else { return at };
        let [_, n1, n2, n3] = band.dims;
        let at = at - band.offset;
        let mut position = [at / (n1 * n2 * n3), at / (n2 * n3) % n1, at / n3 % n2, at % n3];
        for (l, level) in self.levels.iter().enumerate().take(band.level + 1).rev() {
            for a in axes_of(level.active) {
                position[a] = 2 * position[a] + usize::from(l == band.level && band.odd >> a & 1 != 0);
            }
        }
        position.iter().zip(finest.grid).fold(0, |all, (i, extent)| all * extent + i)
    }

    /// Copies the coarse grid and the bands of a level to their positions on its grid. `all` holds every band.
    #[inline(always)]
    pub(crate) fn merge<V: Copy>(&self, level: &Level, coarse: &[V], all: &[V], grid: &mut [V]) {
        for row in LevelRows::new(level) {
            let part = |odd: AxisSet, at: usize| match odd {
                0 => &coarse[at..],
                odd => &all[self.bands[level.band_of[usize::from(odd)]].offset + at..],
            };
            let out = &mut grid[row.start..][..level.grid[X]];
            let even = part(row.class, row.even);
            if level.active >> X & 1 == 0 {
                out.copy_from_slice(&even[..out.len()]);
                continue;
            }
            let odd = part(row.class | 1 << X, row.odd);
            let (pairs, last) = out.as_chunks_mut::<2>();
            for ((pair, e), o) in pairs.iter_mut().zip(even).zip(odd) {
                *pair = [*e, *o];
            }
            if let [last] = last {
                *last = even[pairs.len()];
            }
        }
    }

    /// The inverse of [`BandLayout::merge`].
    #[inline(always)]
    pub(crate) fn split<V: Copy>(&self, level: &Level, grid: &[V], coarse: &mut [V], all: &mut [V]) {
        for row in LevelRows::new(level) {
            let offset = |odd: AxisSet| self.bands[level.band_of[usize::from(odd)]].offset;
            let values = &grid[row.start..][..level.grid[X]];
            let even = if row.class == 0 { &mut coarse[row.even..] } else { &mut all[offset(row.class) + row.even..] };
            if level.active >> X & 1 == 0 {
                even[..values.len()].copy_from_slice(values);
                continue;
            }
            let (pairs, last) = values.as_chunks::<2>();
            for (e, pair) in even.iter_mut().zip(pairs) {
                *e = pair[0];
            }
            if let [last] = last {
                even[pairs.len()] = *last;
            }
            let odd = &mut all[offset(row.class | 1 << X) + row.odd..];
            for (o, pair) in odd.iter_mut().zip(pairs) {
                *o = pair[1];
            }
        }
    }
}

/// A row of a level's grid.
struct LevelRow {
    /// The odd axes of its points with an even index along X.
    class: AxisSet,
    /// Offset of these points in their band or the coarse grid, and of the other points in theirs.
    even: usize,
    odd: usize,
    /// Its offset in the grid.
    start: usize,
}

/// The rows of a level's grid, one after the other. An iterator instead of a function with a closure, so that the
/// caller's loops are compiled for its instruction set.
struct LevelRows<'a> {
    level: &'a Level,
    dims: [Dims; 1 << AXES],
    at: [usize; X],
    start: usize,
}

impl<'a> LevelRows<'a> {
    #[inline(always)]
    fn new(level: &'a Level) -> Self {
        let mut dims = [level.grid; 1 << AXES];
        for (class, dims) in dims.iter_mut().enumerate() {
            *dims = class_dims(&level.grid, level.active, class as AxisSet);
        }
        Self { level, dims, at: [0; X], start: 0 }
    }
}

impl Iterator for LevelRows<'_> {
    type Item = LevelRow;

    #[inline(always)]
    fn next(&mut self) -> Option<LevelRow> {
        let grid = &self.level.grid;
        if self.at[0] == grid[0] {
            return None;
        }
        let mut class = 0;
        let mut half = self.at;
        for a in 0..X {
            let is_active = self.level.active >> a & 1;
            class |= (is_active & self.at[a] as AxisSet) << a;
            half[a] >>= is_active;
        }
        let position = |class: AxisSet| {
            let dims = &self.dims[usize::from(class)];
            ((half[0] * dims[1] + half[1]) * dims[2] + half[2]) * dims[X]
        };
        let row = LevelRow {
            class,
            even: position(class),
            odd: position(class | self.level.active & 1 << X),
            start: self.start,
        };
        self.start += grid[X];
        self.at[2] += 1;
        for a in [2, 1] {
            if self.at[a] == grid[a] {
                self.at[a] = 0;
                self.at[a - 1] += 1;
            }
        }
        Some(row)
    }
}

/// [`BandLayout::merge`] as a kernel.
pub(crate) struct Merge<'a, V> {
    pub(crate) layout: &'a BandLayout,
    pub(crate) level: &'a Level,
    pub(crate) coarse: &'a [V],
    pub(crate) all: &'a [V],
    pub(crate) grid: &'a mut [V],
}

impl<V: Copy> Kernel for Merge<'_, V> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.layout.merge(self.level, self.coarse, self.all, self.grid);
    }
}

impl Level {
    /// The band whose odd axes are those of `odd` less those of `without`; `None` for the coarse grid.
    pub(crate) fn parent(&self, odd: AxisSet, without: AxisSet) -> Option<usize> {
        match odd & !without {
            0 => None,
            class => Some(self.band_of[usize::from(class)]),
        }
    }
}

/// The sets of odd axes of a level, in the order in which their bands are coded: fewest axes first, so that parents
/// come before the bands that they predict.
fn classes(active: AxisSet) -> Vec<AxisSet> {
    let mut all: Vec<AxisSet> = (1..1 << AXES).filter(|odd| odd & !active == 0).collect();
    all.sort_by_key(|odd| (odd.count_ones(), *odd));
    all
}

/// Extents of the points of a grid whose indices are odd along the axes of `odd`, and even along other active axes.
pub(crate) fn class_dims(grid: &Dims, active: AxisSet, odd: AxisSet) -> Dims {
    std::array::from_fn(|a| match (active >> a & 1, odd >> a & 1) {
        (0, _) => grid[a],
        (_, 0) => grid[a].div_ceil(2),
        _ => grid[a] / 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_and_merge_are_inverse() {
        for (dims, active) in [
            ([1, 1, 1, 1000], 8),
            ([1, 1, 37, 50], 12),
            ([1, 9, 11, 13], 14),
            ([5, 8, 9, 10], 15),
            ([7, 3, 20, 31], 10),
            ([3, 4, 50, 2], 4),
        ] {
            let layout = BandLayout::interpolation(dims, active);
            assert_eq!(layout.n_values, volume(&dims));
            let values: Vec<u32> = (0..layout.n_values as u32).collect();
            let mut all = vec![u32::MAX; layout.n_values];
            let mut grid = values.clone();
            for level in &layout.levels {
                let mut coarse = vec![u32::MAX; volume(&level.coarse)];
                layout.split(level, &grid, &mut coarse, &mut all);
                grid = coarse;
            }
            all[..grid.len()].copy_from_slice(&grid);
            assert!(all.iter().enumerate().all(|(at, value)| layout.working_position(at) == *value as usize));
            let mut seen = all.clone();
            seen.sort_unstable();
            assert_eq!(seen, values, "every value is in one band");
            for level in layout.levels.iter().rev() {
                let mut finer = vec![0; volume(&level.grid)];
                layout.merge(level, &grid, &all, &mut finer);
                grid = finer;
            }
            assert_eq!(grid, values);
        }
    }

    #[test]
    fn slabs_cover_the_lattice() {
        for dims in [[1, 1, 1, 5_000_000], [1, 300, 100, 100], [7, 100, 100, 100], [1, 1, 3, 2_000_000], [1, 1, 1, 1]] {
            let layout = BandLayout::lattice(dims);
            let mut at = 0;
            for band in &layout.bands {
                assert_eq!(band.offset, at);
                at += volume(&band.dims);
            }
            assert_eq!(at, volume(&dims));
            let (n_slabs, largest) = largest_slab(&dims);
            assert_eq!(n_slabs, layout.bands.len());
            assert_eq!(Some(volume(&largest)), layout.bands.iter().map(|band| volume(&band.dims)).max());
        }
    }
}
