//! The codec `fast` (docs/format.md, section 6) as far as it is common to all chunks of one shape: which predictors are
//! compared, on which values, and how large a payload may be.

use std::ops::Range;

use crate::codec::fast;
use crate::codec::fast::choose::{self, Choice, Sampling};
use crate::codec::fast::geometry::{self, Predictor, TileGrid, Y, Z};
use crate::error::Result;

/// Values in a sampled run.
pub const FAST_RUN: usize = choose::RUN;
/// Values before a run that differences along x may reach.
pub const FAST_MAX_LAG: usize = choose::MAX_LAG;
/// Runs sampled from a chunk, at most.
pub const FAST_MAX_RUNS: usize = choose::MAX_RUNS;
/// Most values of a tile; a tile that is not clipped has this many.
pub const FAST_TILE_VALUES: usize = geometry::TILE_VALUES;

/// A predictor and the view of the chunk that it works in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastCandidate {
    /// Distances in the chunk of the row and the plane that are subtracted first; 0 for none.
    pub across: [usize; 2],
    /// Axes along which differences are taken. Bits 0, 1, 2: x, y, z; bit 3: x a second time.
    pub axes: u8,
    /// Distance of the difference along x, 1 to [`FAST_MAX_LAG`].
    pub lag: usize,
    /// Axes of the chunk that x, y and z stand for, and the extents of tiles along these as powers of two.
    pub view: [u8; 6],
    /// Extent of the batch, the slowest axis of the view.
    pub nb: usize,
    /// Extent along z.
    pub nz: usize,
    /// Extent along y.
    pub ny: usize,
    /// Extent along x.
    pub nx: usize,
    /// Number of tiles.
    pub n_tiles: usize,
}

impl FastCandidate {
    fn new((predictor, view): Choice) -> Self {
        let [nb, nz, ny, nx] = view.dims();
        let Predictor { axes, lag } = predictor;
        let row = if axes & Y != 0 { nx } else { 0 };
        let plane = if axes & Z != 0 { ny * nx } else { 0 };
        Self { across: [row, plane], axes, lag, view: view.to_bytes(), nb, nz, ny, nx, n_tiles: view.n_tiles() }
    }

    /// The predictor and view that the payload of a chunk of these extents is coded with; checked.
    pub fn read_from(payload: &[u8], extents: &[usize]) -> Result<Self> {
        let (predictor, view, _) = fast::read_parameters(payload, extents)?;
        Ok(Self::new((predictor, view)))
    }

    /// The tiles that hold values of a box of the chunk, in ascending order; where the view merges axes, a few more.
    pub fn tiles_in(&self, extents: &[usize], wanted: &[Range<usize>]) -> Result<Vec<u32>> {
        let view = TileGrid::from_bytes(self.view, extents)?;
        let part = view.part(extents, wanted);
        Ok((0..).zip(view.tiles()).filter(|(_, tile)| tile.touches(&part)).map(|(number, _)| number).collect())
    }

    /// Refuses a payload that is too small for the directory of this many tiles.
    pub fn check_payload_bytes(&self, payload_bytes: usize) -> Result<()> {
        if payload_bytes < fast::directory_bytes(self.n_tiles) { Err(fast::short()) } else { Ok(()) }
    }

    /// The first bytes of a payload that is coded with this candidate.
    pub fn parameters(&self) -> [u8; 8] {
        fast::parameters(Predictor { axes: self.axes, lag: self.lag }, self.view)
    }

    /// The figure by which candidates are compared: the cost, plus a sixteenth if the lag is above 1.
    pub fn price(&self, cost: u64) -> u64 {
        choose::price(self.lag, cost)
    }
}

/// How `fast` chooses a predictor for a chunk.
///
/// The cost of a candidate is summed over all runs. Runs are read with the [`FAST_MAX_LAG`] values before them, as
/// quantised integers or, if values are stored exactly, as order-preserving integers; a value without an integer
/// repeats the previous one among these values, or is 0. Differences are taken across, by subtracting the runs at the
/// distances of [`FastCandidate::across`], and then along x. Each group of eight costs as many bits as the largest of
/// them has after zigzag coding. The candidate with the least [`FastCandidate::price`] wins, and among equals the
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastSampling {
    /// In order of preference; only one if the chunk is too small to compare any.
    pub candidates: Vec<FastCandidate>,
    /// Index in the chunk of the first value of each run of [`FAST_RUN`]. There are [`FAST_MAX_LAG`] values before it,
    /// also at the distances `across`.
    pub starts: Vec<u64>,
}

/// How `fast` chooses for chunks of these extents.
pub fn fast_sampling(extents: &[usize]) -> FastSampling {
    let sampling = Sampling::new(extents);
    FastSampling {
        starts: sampling.starts().map(|start| start as u64).collect(),
        candidates: sampling.candidates.iter().map(|candidate| FastCandidate::new(candidate.choice)).collect(),
    }
}

/// Largest size of a payload of `fast` while it is being encoded; a result that is larger than the values is stored
/// raw.
pub fn fast_payload_bound(n_values: usize, n_tiles: usize, value_bytes: usize) -> usize {
    fast::directory_bytes(n_tiles) + 4 * n_tiles + n_values * value_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_in_a_box_are_those_that_hold_its_values() {
        let extents = [40, 50, 60];
        let wanted = [7..9, 0..50, 33..34];
        for candidate in fast_sampling(&extents).candidates {
            let tiles = candidate.tiles_in(&extents, &wanted).unwrap();
            let mut of_value = vec![0; 40 * 50 * 60];
            let view = TileGrid::from_bytes(candidate.view, &extents).unwrap();
            for (number, tile) in (0..).zip(view.tiles()) {
                for (z, y) in (0..tile.ez).flat_map(|z| (0..tile.ey).map(move |y| (z, y))) {
                    let row = tile.offset + z * tile.stride_z + y * tile.stride_y;
                    of_value[row..row + tile.ex].fill(number);
                }
            }
            let values = (7..9).flat_map(|z| (0..50).map(move |y| (z * 50 + y) * 60 + 33));
            assert!(values.clone().all(|at| tiles.contains(&of_value[at])), "{candidate:?}");
            let is_merged = candidate.view[..3] != [1, 1, 1];
            assert!(is_merged || tiles.iter().all(|tile| values.clone().any(|at| of_value[at] == *tile)));
            assert!(tiles.len() < candidate.n_tiles || is_merged, "{candidate:?}");
        }
    }

    #[test]
    fn candidates_are_those_of_the_encoder() {
        for extents in [&[100_000][..], &[3000, 3], &[40, 50, 60], &[2, 3, 40, 50, 60], &[1, 70, 1, 80], &[9, 5], &[]] {
            let sampling = Sampling::new(extents);
            let shown = fast_sampling(extents);
            assert_eq!(shown.candidates.len(), sampling.candidates.len());
            for (candidate, shown) in sampling.candidates.iter().zip(&shown.candidates) {
                assert_eq!(candidate.across, shown.across, "{extents:?}");
                let parameters = shown.parameters();
                assert_eq!(FastCandidate::read_from(&parameters, extents).unwrap(), *shown);
            }
            let n_values: usize = extents.iter().product();
            let reach = shown.candidates.iter().map(|c| c.across[0] + c.across[1]).max().unwrap() + FAST_MAX_LAG;
            let inside = |start: &u64| (reach..=n_values - FAST_RUN).contains(&(*start as usize));
            assert!(shown.starts.iter().all(inside) && shown.starts.len() <= FAST_MAX_RUNS);
            assert_eq!(shown.starts.is_empty(), shown.candidates.len() == 1);
        }
        assert!(FastCandidate::read_from(&[0; 7], &[5]).is_err());
        // 100 tiles of 8 values: 8 bytes, 4 anchors, 100 sizes.
        let many = FastCandidate::read_from(&[1, 1, 0, 0, 3, 0, 0, 0], &[800]).unwrap();
        assert!(many.check_payload_bytes(224).is_ok() && many.check_payload_bytes(223).is_err());
        assert!(FastCandidate::read_from(&[0x10, 1, 0, 0, 12, 0, 0, 0], &[5]).is_err());
    }
}
