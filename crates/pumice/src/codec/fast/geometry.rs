//! How a chunk is reshaped to at most three axes and a batch, and cut into tiles (docs/format.md, 6.1 and 6.2).
//!
//! A [`TileGrid`] merges the chunk's axes. Its tiles hold at most [`TILE_VALUES`] values and are coded independently.

use std::ops::Range;

use crate::error::{Error, Result};

/// Most values in a tile.
pub(crate) const TILE_VALUES: usize = 4096;
const TILE_VALUES_LOG2: u8 = 12;
const MAX_TILE_YZ_LOG2: u8 = 9;
const MIN_TILE_X_LOG2: u8 = 3;

/// Along which axes differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predictor {
    /// Bits 0, 1, 2: x, y, z; bit 3: x a second time.
    pub(crate) axes: u8,
    /// Distance of the difference along x, 1 to 16.
    pub(crate) lag: usize,
}

pub(crate) const X: u8 = 1;
pub(crate) const Y: u8 = 2;
pub(crate) const Z: u8 = 4;
pub(crate) const XX: u8 = 8;

impl Predictor {
    pub(crate) const fn new(axes: u8) -> Self {
        Self { axes, lag: 1 }
    }

    pub(crate) fn to_byte(self) -> u8 {
        self.axes | ((self.lag - 1) as u8) << 4
    }

    pub(crate) fn from_byte(byte: u8) -> Result<Self> {
        let predictor = Self { axes: byte & 15, lag: usize::from(byte >> 4) + 1 };
        let x = predictor.axes & X != 0;
        let second = predictor.axes & XX != 0;
        if (second && !x) || (predictor.lag > 1 && (!x || second)) {
            return Err(Error::corrupt("chunk names a predictor that does not exist"));
        }
        Ok(predictor)
    }
}

/// The chunk as `[nb][nz][ny][nx]`, and its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TileGrid {
    pub(crate) x_axes: u8,
    pub(crate) y_axes: u8,
    pub(crate) z_axes: u8,
    pub(crate) tile_x_log2: u8,
    pub(crate) tile_y_log2: u8,
    pub(crate) tile_z_log2: u8,
    nb: usize,
    nz: usize,
    ny: usize,
    nx: usize,
}

impl TileGrid {
    /// Merges axes, and picks the tile shape that the encoder uses for the resulting extents.
    pub(crate) fn new(extents: &[usize], x_axes: usize, y_axes: usize, z_axes: usize) -> Self {
        let mut grid = Self::merged(extents, x_axes as u8, y_axes as u8, z_axes as u8);
        let log2 = |n: usize| n.next_power_of_two().trailing_zeros() as u8;
        // Rows have at least 32 values. If there are few planes or rows, the tile is longer along the other axes.
        let z = log2(grid.nz);
        let y = log2(grid.ny);
        (grid.tile_z_log2, grid.tile_y_log2) = match (grid.nz, grid.ny) {
            (1, 1) => (0, 0),
            (1, _) => (0, y.min(7)),
            _ => {
                let tile_y = y.min(4);
                (z.min(if tile_y == 4 { 3 } else { 7 - tile_y }), tile_y)
            }
        };
        grid.tile_x_log2 = TILE_VALUES_LOG2 - grid.tile_z_log2 - grid.tile_y_log2;
        grid
    }

    fn merged(extents: &[usize], x_axes: u8, y_axes: u8, z_axes: u8) -> Self {
        let mut rest = extents;
        let mut take = |n: u8| {
            let (before, taken) = rest.split_at(rest.len() - usize::from(n));
            rest = before;
            taken.iter().product::<usize>()
        };
        let (nx, ny, nz) = (take(x_axes), take(y_axes), take(z_axes));
        let nb = rest.iter().product();
        Self { x_axes, y_axes, z_axes, tile_x_log2: 0, tile_y_log2: 0, tile_z_log2: 0, nb, nz, ny, nx }
    }

    pub(crate) fn to_bytes(self) -> [u8; 6] {
        [self.x_axes, self.y_axes, self.z_axes, self.tile_x_log2, self.tile_y_log2, self.tile_z_log2]
    }

    pub(crate) fn from_bytes(bytes: [u8; 6], extents: &[usize]) -> Result<Self> {
        let [x_axes, y_axes, z_axes, tile_x_log2, tile_y_log2, tile_z_log2] = bytes;
        let n_axes = u32::from(x_axes) + u32::from(y_axes) + u32::from(z_axes);
        let tile_log2 = u32::from(tile_x_log2) + u32::from(tile_y_log2) + u32::from(tile_z_log2);
        let valid = n_axes as usize <= extents.len()
            && tile_log2 <= u32::from(TILE_VALUES_LOG2)
            && tile_x_log2 >= MIN_TILE_X_LOG2
            && tile_y_log2 <= MAX_TILE_YZ_LOG2
            && tile_z_log2 <= MAX_TILE_YZ_LOG2;
        if !valid {
            return Err(Error::corrupt("chunk names tiles that do not fit its shape"));
        }
        let grid = Self::merged(extents, x_axes, y_axes, z_axes);
        Ok(Self { tile_x_log2, tile_y_log2, tile_z_log2, ..grid })
    }

    /// Extents of the box: batch, z, y, x.
    #[cfg(feature = "unstable-backend")]
    pub(crate) fn dims(&self) -> [usize; 4] {
        [self.nb, self.nz, self.ny, self.nx]
    }

    pub(crate) fn n_tiles(&self) -> usize {
        let along = |n: usize, log2: u8| n.div_ceil(1 << log2);
        self.nb * along(self.nz, self.tile_z_log2) * along(self.ny, self.tile_y_log2) * along(self.nx, self.tile_x_log2)
    }

    /// The part of the grid, as ranges of (batch, z, y, x), that contains a box of the chunk. Where axes are merged, it
    /// spans from the first to the last value of the box, so it may contain more.
    pub(crate) fn part(&self, extents: &[usize], wanted: &[Range<usize>]) -> [Range<usize>; 4] {
        let n_batch = extents.len() - usize::from(self.x_axes + self.y_axes + self.z_axes);
        let mut axes = extents.iter().zip(wanted);
        [n_batch, usize::from(self.z_axes), usize::from(self.y_axes), usize::from(self.x_axes)].map(|n| {
            let span = |(first, last): (usize, usize), (n, range): (&usize, &Range<usize>)| {
                (first * n + range.start, last * n + range.end.saturating_sub(1))
            };
            let (first, last) = axes.by_ref().take(n).fold((0, 0), span);
            first..last + 1
        })
    }

    /// All tiles in the order of the stream.
    pub(crate) fn tiles(self) -> impl Iterator<Item = Tile> {
        let starts = |n: usize, log2: u8| (0..n).step_by(1 << log2);
        let clip = |n: usize, at: usize, log2: u8| (n - at).min(1 << log2);
        (0..self.nb).flat_map(move |b| {
            starts(self.nz, self.tile_z_log2).flat_map(move |z| {
                starts(self.ny, self.tile_y_log2).flat_map(move |y| {
                    starts(self.nx, self.tile_x_log2).map(move |x| Tile {
                        start: [b, z, y, x],
                        offset: ((b * self.nz + z) * self.ny + y) * self.nx + x,
                        ez: clip(self.nz, z, self.tile_z_log2),
                        ey: clip(self.ny, y, self.tile_y_log2),
                        ex: clip(self.nx, x, self.tile_x_log2),
                        stride_z: self.ny * self.nx,
                        stride_y: self.nx,
                    })
                })
            })
        })
    }
}

/// Where a tile lies in its chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    /// Position of its first value: batch, z, y, x.
    pub(crate) start: [usize; 4],
    /// Index in the chunk of its first value.
    pub(crate) offset: usize,
    pub(crate) ez: usize,
    pub(crate) ey: usize,
    pub(crate) ex: usize,
    pub(crate) stride_z: usize,
    pub(crate) stride_y: usize,
}

impl Tile {
    /// Whether the tile has values in this part of the grid.
    #[inline(always)]
    pub(crate) fn touches(&self, part: &[Range<usize>; 4]) -> bool {
        let extents = [1, self.ez, self.ey, self.ex];
        (0..4).all(|i| self.start[i] < part[i].end && part[i].start < self.start[i] + extents[i])
    }

    /// Length of a row with its padding.
    #[inline(always)]
    pub(crate) fn row(&self) -> usize {
        self.ex.next_multiple_of(8)
    }

    pub(crate) fn n_values(&self) -> usize {
        self.ez * self.ey * self.ex
    }

    /// Number of linear indices: values and padding.
    #[inline(always)]
    pub(crate) fn n_codes(&self) -> usize {
        self.ez * self.ey * self.row()
    }

    #[inline(always)]
    pub(crate) fn n_super(&self) -> usize {
        self.n_codes().div_ceil(64)
    }

    /// Rows in order: (index in the chunk of the row's first value, linear index of it in the tile).
    #[inline(always)]
    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let tile = *self;
        (0..tile.ez).flat_map(move |z| {
            (0..tile.ey)
                .map(move |y| (tile.offset + z * tile.stride_z + y * tile.stride_y, (z * tile.ey + y) * tile.row()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tile_shapes() {
        let shape = |extents: &[usize], x, y, z| {
            let grid = TileGrid::new(extents, x, y, z);
            (1 << grid.tile_z_log2, 1 << grid.tile_y_log2, 1 << grid.tile_x_log2)
        };
        assert_eq!(shape(&[100_000], 1, 0, 0), (1, 1, 4096));
        assert_eq!(shape(&[721, 1440], 1, 1, 0), (1, 128, 32));
        assert_eq!(shape(&[12, 48602], 1, 1, 0), (1, 16, 256));
        assert_eq!(shape(&[128, 128, 128], 1, 1, 1), (8, 16, 32));
        assert_eq!(shape(&[181, 2, 640], 1, 1, 1), (64, 2, 32));
        assert_eq!(shape(&[4, 300, 300], 1, 1, 1), (4, 16, 64));
    }

    #[test]
    fn tiles_cover_every_value_once() {
        for (extents, axes) in [(vec![3, 17, 33], [1, 1, 1]), (vec![2, 3, 5, 70], [1, 2, 0]), (vec![5000], [1, 0, 0])] {
            let grid = TileGrid::new(&extents, axes[0], axes[1], axes[2]);
            let mut seen = vec![0; extents.iter().product()];
            for tile in grid.tiles() {
                for (at, _) in tile.rows() {
                    seen[at..at + tile.ex].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(seen.iter().all(|n| *n == 1));
            let wanted: Vec<Range<usize>> = extents.iter().map(|n| n / 2..n / 2 + 1).collect();
            let part = grid.part(&extents, &wanted);
            let middle = extents.iter().fold(0, |at, n| at * n + n / 2);
            let holding = grid.tiles().filter(|t| t.touches(&part)).collect::<Vec<_>>();
            assert_eq!(holding.len(), 1);
            assert!(holding[0].rows().any(|(at, _)| (at..at + holding[0].ex).contains(&middle)));
            assert_eq!(grid.tiles().count(), grid.n_tiles());
        }
    }
}
