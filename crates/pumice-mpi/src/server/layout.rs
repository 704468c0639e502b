//! Which part of a field each server gets: slabs of whole chunks along one axis, so that no server needs values of another
//! to encode its own. All ranks know them without asking.

use pumice::Result;
use pumice::backend::Chunks;

use super::options::Coding;
use crate::local::{Block, Value, invalid};

/// The slabs of all servers, which make up the field.
#[derive(Debug)]
pub(super) struct Slabs {
    shape: Vec<usize>,
    /// The axis that is cut.
    pub(super) axis: usize,
    /// Where each slab begins, and the end of the last one.
    cuts: Vec<usize>,
}

impl Slabs {
    pub(super) fn new<T: Value>(coding: &Coding, shape: &[usize], n_servers: usize) -> Result<Self> {
        let unit = match coding {
            Coding::Compressed(treatment) => {
                let chunks = Chunks::new::<T>(&treatment.config(shape)?, shape)?;
                chunks.get(0).extents.clone()
            }
            // Rows: slabs are runs of bytes.
            Coding::Raw | Coding::Gzip(_) => shape.iter().map(|n| if *n > 1 { 1 } else { *n }).collect(),
        };
        let n_bytes = shape.iter().try_fold(size_of::<T>(), |product, n| product.checked_mul(*n));
        n_bytes.ok_or_else(|| invalid(format!("an array of shape {shape:?} is too large")))?;
        let counts: Vec<usize> = shape.iter().zip(&unit).map(|(n, unit)| n.div_ceil((*unit).max(1))).collect();
        let axis = match coding {
            Coding::Compressed(_) => {
                let most = counts.iter().copied().max().unwrap_or(0);
                counts.iter().position(|n| *n >= n_servers.min(most))
            }
            Coding::Raw | Coding::Gzip(_) => shape.iter().position(|n| *n > 1),
        };
        let axis = axis.unwrap_or(0);
        let whole = shape.get(axis).copied().unwrap_or(1);
        let (unit, n_units) = match counts.get(axis) {
            Some(n) if !shape.contains(&0) => (unit[axis], *n),
            // All of a single value, or of no values, goes to one server.
            _ => (whole, 1),
        };
        // The first servers have more, so that a field of few chunks has its first part on the first one.
        let cuts = (0..=n_servers).map(|s| ((s * n_units).div_ceil(n_servers) * unit).min(whole)).collect();
        Ok(Self { shape: shape.to_vec(), axis, cuts })
    }

    /// The slab of a server; `None` if it has nothing of this field.
    pub(super) fn of(&self, server: usize) -> Option<Block> {
        let (start, end) = (self.cuts[server], self.cuts[server + 1]);
        let is_only = self.shape.contains(&0) && server == 0;
        if start == end && !is_only {
            return None;
        }
        let mut block = Block::new(&vec![0; self.shape.len()], &self.shape);
        if let Some(n) = block.extents.get_mut(self.axis) {
            *n = end - start;
            block.start[self.axis] = start;
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use pumice::ErrorBound;
    use pumice_fields::{Chunks, Treatment};

    use super::*;

    #[test]
    fn slabs_make_up_the_field() {
        let chunked = |extents: &[usize]| {
            let chunks = Some(Chunks::Extents(extents.to_vec()));
            Coding::Compressed(Treatment { chunks, ..Treatment::new(vec![ErrorBound::Lossless]) })
        };
        for (shape, coding, axis) in [
            (&[10, 200, 300][..], chunked(&[3, 200, 300]), 0),
            (&[10, 200, 300], chunked(&[10, 30, 100]), 1),
            (&[2, 200, 300], chunked(&[1, 200, 300]), 0),
            (&[10, 20, 30], Coding::Raw, 0),
            (&[1, 20, 30], Coding::Gzip(5), 1),
            (&[], Coding::Raw, 0),
            (&[], chunked(&[]), 0),
            (&[4, 0, 3], Coding::Raw, 0),
            (&[0, 3], chunked(&[1, 3]), 0),
        ] {
            for n_servers in 1..6 {
                let slabs = Slabs::new::<f32>(&coding, shape, n_servers).unwrap();
                let blocks: Vec<Block> = (0..n_servers).filter_map(|server| slabs.of(server)).collect();
                assert!(
                    n_servers == 1 || shape.contains(&0) || slabs.axis == axis,
                    "{shape:?} on {n_servers}: {slabs:?}"
                );
                let n: usize = blocks.iter().map(Block::n_values).sum();
                assert_eq!(n, shape.iter().product(), "{shape:?} on {n_servers}: {blocks:?}");
                assert!(!blocks.is_empty() && blocks.iter().all(|block| block.n_values() > 0 || blocks.len() == 1));
                assert!(slabs.of(0).is_some());
                for pair in blocks.windows(2) {
                    assert_eq!(pair[0].start[slabs.axis] + pair[0].extents[slabs.axis], pair[1].start[slabs.axis]);
                }
                if let Coding::Compressed(Treatment { chunks: Some(Chunks::Extents(extents)), .. }) = &coding {
                    let is_cut = |block: &Block| block.start.iter().zip(extents).all(|(at, n)| at % n == 0);
                    assert!(blocks.iter().all(is_cut));
                }
            }
        }
    }
}
