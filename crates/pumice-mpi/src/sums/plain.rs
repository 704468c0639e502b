//! Sums of integers that MPI adds, without compression: in pieces that stay in the cache between the steps.

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::Result;
use pumice::backend::finite_range;

use super::Wanted;
use super::job::Job;
use crate::agreement::agree;
use crate::collective::zeros;
use crate::local::Value;
use crate::pieces::PIECE;

impl<M: Communicator> Job<'_, M> {
    /// The whole sum, for all ranks.
    pub(super) fn sum_plainly<T: Value, C: Value>(&self, vectors: &[&[T]], sum: &mut [T]) -> Result<u64> {
        let comm = &self.comm;
        let buffers = zeros::<C>(PIECE.min(sum.len())).map(|mine| (mine.clone(), mine));
        let (mut mine, mut all) = agree(comm, buffers)?;
        let mut n_without = 0;
        for (i, out) in sum.chunks_mut(PIECE).enumerate() {
            let (mine, all) = (&mut mine[..out.len()], &mut all[..out.len()]);
            mine.fill(C::default());
            let range = i * PIECE..i * PIECE + out.len();
            n_without += self.add(vectors.iter().map(|vector| &vector[range.clone()]), mine);
            if comm.size() == 1 {
                all.copy_from_slice(mine);
            } else {
                comm.all_reduce_into(&*mine, all, SystemOperation::sum());
            }
            self.lattice.restore(all, out);
        }
        self.check(n_without)?;
        Ok((sum.len() * size_of::<C>()) as u64)
    }

    /// To each rank the part that it wants: a piece of each part at a time, as if all parts were as long as the longest.
    pub(super) fn scatter_plainly<T: Value, C: Value>(
        &self,
        vectors: &[&[T]],
        wanted: &Wanted,
        sum: &mut [T],
    ) -> Result<u64> {
        let comm = &self.comm;
        let longest = wanted.ranges.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let n = (PIECE / wanted.ranges.len()).max(1 << 10).min(longest);
        let buffers = zeros::<C>(n * wanted.ranges.len()).and_then(|all| Ok((all, zeros::<C>(n)?)));
        let (mut all, mut mine) = agree(comm, buffers)?;
        let (mut n_without, mut n_special, mut n_sent) = (0, 0, 0);
        for start in (0..longest).step_by(n.max(1)) {
            all.fill(C::default());
            for (part, sums) in wanted.ranges.iter().zip(all.chunks_mut(n)) {
                let first = (part.start + start).min(part.end);
                let piece = first..(first + n).min(part.end);
                let values = || vectors.iter().map(|vector| &vector[piece.clone()]);
                n_without += self.add(values(), sums);
                n_special += values().map(|values| finite_range(values).1).sum::<usize>();
            }
            comm.reduce_scatter_block_into(&all[..], &mut mine[..], SystemOperation::sum());
            n_sent += all.len() - n;
            let rest = sum.get_mut(start..).unwrap_or_default();
            let n = n.min(rest.len());
            self.lattice.restore(&mine[..n], &mut rest[..n]);
        }
        self.check_part(n_without, n_special)?;
        Ok((n_sent * size_of::<C>()) as u64)
    }
}
