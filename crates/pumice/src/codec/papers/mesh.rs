//! Offsets of consecutive pieces of different sizes, by the spatial-aware offset computation of CereSZ-II, where the
//! pieces lie on a mesh of processing elements without shared memory.
//!
//! ```text
//! 1  reduce   each lane, all at the same time: the sum of its sizes goes to its first cell
//! 2  scan     the first cells: where each lane begins
//! 3  scan     each lane, all at the same time: where each cell begins
//! ```
//!
//! Lanes are the columns of a mesh that is at least as wide as high, otherwise its rows, so that the serial work within
//! a lane is along the shorter side. The result is the serial prefix sum, whatever the mesh.

/// Cells in rows and columns. Consecutive pieces lie in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mesh {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Mesh {
    /// The mesh for this many pieces: nearly square, and never higher than wide.
    pub(crate) fn for_pieces(n: usize) -> Self {
        let width = n.isqrt() + usize::from(n.isqrt().pow(2) < n);
        Self { width, height: n.div_ceil(width.max(1)) }
    }

    /// Cells of a lane.
    fn lane(&self) -> usize {
        self.width.min(self.height).max(1)
    }

    /// The offset of each piece, and at last the end of the last one. There are at most as many pieces as cells.
    pub(crate) fn offsets(&self, sizes: &[u32]) -> Vec<usize> {
        debug_assert!(sizes.len() <= self.width * self.height);
        let lanes = || sizes.chunks(self.lane());
        let mut firsts: Vec<usize> = lanes().map(|lane| lane.iter().map(|size| *size as usize).sum()).collect();
        let end = scan(&mut firsts, 0);
        let mut offsets: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
        for (lane, first) in offsets.chunks_mut(self.lane()).zip(firsts) {
            scan(lane, first);
        }
        offsets.push(end);
        offsets
    }
}

/// Exclusive prefix sum from `start`, in place; returns the total.
fn scan(numbers: &mut [usize], start: usize) -> usize {
    numbers.iter_mut().fold(start, |sum, number| sum + std::mem::replace(number, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serial(sizes: &[u32]) -> Vec<usize> {
        let mut offsets = vec![0];
        for size in sizes {
            offsets.push(offsets[offsets.len() - 1] + *size as usize);
        }
        offsets
    }

    #[test]
    fn any_mesh_gives_the_serial_prefix_sum() {
        let sizes: Vec<u32> = (0..1000_u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
        for n in (0..70).chain([99, 100, 101, 999, 1000]) {
            let expected = serial(&sizes[..n]);
            let square = Mesh::for_pieces(n);
            assert!(
                square.width * square.height >= n && square.height <= square.width && square.width <= n.isqrt() + 1
            );
            assert_eq!(square.offsets(&sizes[..n]), expected);
            for width in 1..=n.max(1) {
                let mesh = Mesh { width, height: n.div_ceil(width) };
                assert_eq!(mesh.offsets(&sizes[..n]), expected, "{mesh:?}");
            }
        }
    }

    /// The figure of the paper: columns of four whose sums are 22, 18 and 12, so the fourth begins at 52.
    #[test]
    fn lanes_are_columns_of_a_wide_mesh() {
        let mesh = Mesh { width: 5, height: 4 };
        let sizes = [1, 10, 9, 2, 5, 5, 5, 3, 3, 3, 3, 3, 7, 1, 1, 1, 2, 2, 2, 2];
        let offsets = mesh.offsets(&sizes);
        assert_eq!((mesh.lane(), &offsets[..5], offsets[12]), (4, &[0, 1, 11, 20, 22][..], 52));
        assert_eq!(Mesh { width: 4, height: 50 }.lane(), 4);
    }
}
