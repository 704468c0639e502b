//! Frames that the ranks have encoded: where in the file they lie, and which rank writes them.
//!
//! Collective writes of MPI would bring the frames of many ranks together, too. But those of Open MPI report success when
//! the disk is full, so each run is written by a call of its own, whose result is checked.

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::Result;

use crate::agreement::agree;
use crate::collective::{exchange, gather_to_first, no_memory, reduce, sum_before};
use crate::local::invalid;

/// Fewer bytes are not worth one more rank that writes: file systems like long runs.
const LEAST_RUN: u64 = 1 << 20;

/// The frames of one rank.
pub(super) struct Frames {
    /// Ascending.
    pub(super) ids: Vec<u64>,
    pub(super) sizes: Vec<u64>,
    /// One frame after the other.
    pub(super) bytes: Vec<u8>,
}

/// Where the frames of one rank lie, and the sizes of all frames on the rank that writes the index.
pub(super) struct Offsets {
    pub(super) mine: Vec<u64>,
    pub(super) all_sizes: Vec<u64>,
    /// Where the last frame ends.
    pub(super) end: u64,
}

impl Frames {
    /// Those that `encode` passes on.
    pub(super) fn collect(
        ids: Vec<u64>,
        encode: impl FnOnce(&[u64], &mut (dyn FnMut(&[u8]) -> Result<()> + Send)) -> Result<Vec<u64>>,
    ) -> Result<Self> {
        let mut bytes = Vec::new();
        let sizes = encode(&ids, &mut |frame| {
            bytes.try_reserve(frame.len()).map_err(|_| no_memory(frame.len()))?;
            bytes.extend_from_slice(frame);
            Ok(())
        })?;
        Ok(Self { ids, sizes, bytes })
    }

    /// Finds the offsets of the frames of this rank, the first of all being at `start`. Each rank is in charge of a range of ids, whose sizes it gets and adds
    /// up, so that none but rank 0 has a list of all chunks.
    pub(super) fn offsets(&self, comm: &impl Communicator, n_chunks: u64, start: u64) -> Result<Offsets> {
        let n_ranks = comm.size() as u64;
        let per_rank = n_chunks.div_ceil(n_ranks);
        // Ascending ids are for ascending ranks.
        let mut outgoing: Vec<(i32, Vec<u64>)> = Vec::new();
        for (id, size) in self.ids.iter().zip(&self.sizes) {
            let rank = (id / per_rank) as i32;
            match outgoing.last_mut() {
                Some((last, list)) if *last == rank => list.extend([*id, *size]),
                _ => outgoing.push((rank, vec![*id, *size])),
            }
        }
        let incoming = exchange(comm, &outgoing)?;
        let first = (comm.rank() as u64 * per_rank).min(n_chunks);
        let n_mine = per_rank.min(n_chunks - first) as usize;
        let mut sizes = vec![0_u64; n_mine];
        let mut n_twice = 0;
        for (_, list) in &incoming {
            for entry in list.chunks_exact(2) {
                let size = &mut sizes[(entry[0] - first) as usize];
                n_twice += u64::from(*size != 0);
                *size = entry[1];
            }
        }
        let complete = match sizes.iter().position(|size| *size == 0) {
            None if n_twice == 0 => Ok(()),
            _ => Err(invalid("the boxes of all ranks do not make up the array: some overlap, others are missing")),
        };
        agree(comm, complete)?;
        let total: u64 = sizes.iter().sum();
        let mut next = start + sum_before(comm, total);
        let [end] = reduce(comm, [next + total], SystemOperation::max());
        let starts: Vec<u64> = sizes
            .iter()
            .map(|size| {
                next += size;
                next - size
            })
            .collect();
        let start_of = |entry: &[u64]| starts[(entry[0] - first) as usize];
        let answers: Vec<(i32, Vec<u64>)> =
            incoming.iter().map(|(rank, list)| (*rank, list.chunks_exact(2).map(start_of).collect())).collect();
        // In the order of ranks, which is that of ids.
        let mine = exchange(comm, &answers)?.into_iter().flat_map(|(_, starts)| starts).collect();
        Ok(Offsets { mine, all_sizes: gather_to_first(comm, &sizes, n_chunks)?, end })
    }

    /// Sends all frames, the first of which is at `start`, to the ranks that write: as many as there is work for, spread
    /// over all. Returns the run of bytes that this rank is to write, with its offset, if it is one of them.
    pub(super) fn to_writers(
        &self,
        comm: &impl Communicator,
        offsets: &Offsets,
        start: u64,
    ) -> Result<Option<(u64, Vec<u8>)>> {
        let total = offsets.end - start;
        let n_ranks = comm.size() as u64;
        let n_writers = (total / LEAST_RUN).clamp(1, n_ranks);
        let per_writer = total.div_ceil(n_writers).max(1);
        let mut headers: Vec<(i32, Vec<u64>)> = Vec::new();
        let mut payloads: Vec<(i32, Vec<u8>)> = Vec::new();
        let mut rest = &self.bytes[..];
        // Ascending offsets are for ascending ranks.
        for (offset, size) in offsets.mine.iter().zip(&self.sizes) {
            let (frame, others) = rest.split_at(*size as usize);
            rest = others;
            let writer = (offset - start) / per_writer;
            let rank = (writer * n_ranks / n_writers) as i32;
            if headers.last().is_none_or(|(last, _)| *last != rank) {
                headers.push((rank, Vec::new()));
                payloads.push((rank, Vec::new()));
            }
            let (Some((_, header)), Some((_, payload))) = (headers.last_mut(), payloads.last_mut()) else { continue };
            header.extend([*offset, *size]);
            payload.extend_from_slice(frame);
        }
        let headers = exchange(comm, &headers)?;
        let payloads = exchange(comm, &payloads)?;
        let mut frames: Vec<(u64, &[u8])> = Vec::new();
        for ((_, header), (_, payload)) in headers.iter().zip(&payloads) {
            let mut rest = &payload[..];
            for entry in header.chunks_exact(2) {
                let (frame, others) = rest.split_at(entry[1] as usize);
                rest = others;
                frames.push((entry[0], frame));
            }
        }
        frames.sort_unstable_by_key(|(offset, _)| *offset);
        let start = frames.first().map(|(offset, _)| *offset);
        Ok(start.map(|start| (start, frames.iter().flat_map(|(_, frame)| frame.iter().copied()).collect())))
    }
}
