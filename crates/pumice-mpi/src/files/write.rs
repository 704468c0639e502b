//! Writing a distributed array to one file.
//!
//! ```text
//! decisions     range, fill values: each rank over its values, then a reduction
//! owners        a chunk belongs to the rank that has its first value; others send it their pieces
//! frames        each rank encodes its chunks
//! offsets       sizes to the rank in charge of a range of ids, sums, an exclusive scan, and back
//! file          frames to the ranks that write, each of which has one run of bytes; header, index and footer by rank 0
//! ```
//!
//! Collective writes of MPI would bring the frames of many ranks together, too. But those of Open MPI report success when
//! the disk is full, so each run is written by a call of its own, whose result is checked.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::backend::{self, Chunks, SharedStream};
use pumice::{Config, Result, Summary};

use super::partial::Partial;
use super::threads;
use crate::agreement::{agree, check_same};
use crate::collective::{broadcast, exchange, gather_to_first, no_memory, reduce, sum_before};
use crate::exchange::Owned;
use crate::local::{Block, LocalBox, Value, check_boxes, invalid};
use crate::mpi_file::{Access, MpiFile};
use crate::passes::Everywhere;

/// Writes an array of this shape to a file, together with all other ranks. The boxes of all ranks make up the array; a
/// rank may have several, or none. The file has the bytes that [`pumice::compress`] makes of the whole array, and appears
/// under its name when it is complete. All ranks get the same summary, or the same error.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::LocalBox;
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// // Each rank has 100 of the rows.
/// let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
/// let values = vec![rank as f32; 100 * 500];
/// let mine = LocalBox { start: &[100 * rank, 0], extents: &[100, 500], values: &values };
/// let config = Config::new(ErrorBound::Rel(1e-3));
/// let summary = pumice_mpi::write(&world, "field.pum", &[100 * n_ranks, 500], &[mine], &config)?;
/// assert!(summary.ratio() > 1.0);
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn write<T: Value>(
    comm: &impl Communicator,
    path: impl AsRef<Path>,
    shape: &[usize],
    boxes: &[LocalBox<'_, T>],
    config: &Config,
) -> Result<Summary> {
    let path = path.as_ref();
    // Messages of the program cannot be taken for ours.
    let comm = &comm.duplicate();
    check_same(
        comm,
        &[
            ("type of values", T::DTYPE.to_string()),
            ("shape of the array", format!("{shape:?}")),
            ("bound or other options", format!("{:?}", config.clone().threads(0))),
            ("name of the file", path.display().to_string()),
        ],
    )?;
    let blocks: Vec<Block> = boxes.iter().map(|part| Block::new(part.start, part.extents)).collect();
    agree(comm, check_boxes(shape, &blocks, false))?;
    let threads = threads(comm, backend::threads_of(config));
    let everywhere = agree(comm, Everywhere::new(comm, shape, boxes, threads))?;
    let chunks = agree(comm, Chunks::new::<T>(config, shape))?;
    let stream = agree(comm, SharedStream::new(config, &everywhere))?;
    let owned = Owned::gather(comm, &chunks, boxes)?;
    let mut bytes = Vec::new();
    let encoded = stream.encode(&owned, &owned.ids, threads, |frame| {
        bytes.try_reserve(frame.len()).map_err(|_| no_memory(frame.len()))?;
        bytes.extend_from_slice(frame);
        Ok(())
    });
    let sizes = agree(comm, encoded)?;
    let frames = Frames { ids: owned.ids, sizes, bytes };
    let offsets = frames.offsets(comm, chunks.count(), stream.head().len() as u64)?;
    frames.write(comm, path, stream, offsets)
}

/// Fewer bytes are not worth one more rank that writes: file systems like long runs.
const LEAST_RUN: u64 = 1 << 20;

/// The frames of one rank.
struct Frames {
    /// Ascending.
    ids: Vec<u64>,
    sizes: Vec<u64>,
    /// One frame after the other.
    bytes: Vec<u8>,
}

/// Where the frames of one rank lie, and the sizes of all frames on the rank that writes the index.
struct Offsets {
    mine: Vec<u64>,
    all_sizes: Vec<u64>,
}

impl Frames {
    /// Finds the offsets of the frames of this rank. Each rank is in charge of a range of ids, whose sizes it gets and adds
    /// up, so that none but rank 0 has a list of all chunks.
    fn offsets(&self, comm: &impl Communicator, n_chunks: u64, head_bytes: u64) -> Result<Offsets> {
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
        let mut next = head_bytes + sum_before(comm, total);
        let starts: Vec<u64> = sizes
            .iter()
            .map(|size| {
                next += size;
                next - size
            })
            .collect();
        let start = |entry: &[u64]| starts[(entry[0] - first) as usize];
        let answers: Vec<(i32, Vec<u64>)> =
            incoming.iter().map(|(rank, list)| (*rank, list.chunks_exact(2).map(start).collect())).collect();
        // In the order of ranks, which is that of ids.
        let mine = exchange(comm, &answers)?.into_iter().flat_map(|(_, starts)| starts).collect();
        Ok(Offsets { mine, all_sizes: gather_to_first(comm, &sizes, n_chunks)? })
    }

    /// Sends all frames to the ranks that write: as many as there is work for, spread over all. Returns the run of bytes
    /// that this rank is to write, with its offset, if it is one of them.
    fn to_writers(&self, comm: &impl Communicator, offsets: &[u64], head_bytes: u64) -> Result<Option<(u64, Vec<u8>)>> {
        let [total] = reduce(comm, [self.bytes.len() as u64], SystemOperation::sum());
        let n_ranks = comm.size() as u64;
        let n_writers = (total / LEAST_RUN).clamp(1, n_ranks);
        let per_writer = total.div_ceil(n_writers).max(1);
        let mut headers: Vec<(i32, Vec<u64>)> = Vec::new();
        let mut payloads: Vec<(i32, Vec<u8>)> = Vec::new();
        let mut rest = &self.bytes[..];
        // Ascending offsets are for ascending ranks.
        for (offset, size) in offsets.iter().zip(&self.sizes) {
            let (frame, others) = rest.split_at(*size as usize);
            rest = others;
            let writer = (offset - head_bytes) / per_writer;
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

    /// Writes the file, and puts it in its place.
    fn write<T: Value>(
        self,
        comm: &impl Communicator,
        path: &Path,
        stream: SharedStream<T>,
        offsets: Offsets,
    ) -> Result<Summary> {
        let head = stream.head().to_vec();
        let mut summary = stream.summary(0);
        let frames_end = head.len() as u64 + offsets.all_sizes.iter().sum::<u64>();
        let is_first = comm.rank() == 0;
        let ended = if is_first { stream.finish(offsets.all_sizes) } else { Ok((Vec::new(), 0)) };
        let (tail, n_bytes) = agree(comm, ended)?;
        // The others have 0.
        [summary.compressed_bytes] = reduce(comm, [n_bytes], SystemOperation::max());
        let partial = agree(comm, if is_first { Partial::create(path).map(Some) } else { Ok(None) })?;
        // All ranks open what the first has made.
        let name = partial.as_ref().map_or(&[][..], |partial| partial.name().as_os_str().as_bytes());
        let mut name = name.to_vec();
        broadcast(comm, 0, &mut name);
        let name = PathBuf::from(OsString::from_vec(name));
        let run = self.to_writers(comm, &offsets.mine, head.len() as u64)?;
        let written = MpiFile::open(comm, &name, Access::Write).and_then(|file| {
            // The header comes first: what a killed job leaves can be read from it.
            let headed = agree(comm, if is_first { file.write_at(0, &head) } else { Ok(()) });
            let written = headed
                .and_then(|()| agree(comm, run.iter().try_for_each(|(offset, bytes)| file.write_at(*offset, bytes))));
            let written =
                written.and_then(|()| agree(comm, if is_first { file.write_at(frames_end, &tail) } else { Ok(()) }));
            let closed = file.close(written.is_ok());
            written.and(closed)
        });
        let ended = match (written, partial) {
            (Ok(()), Some(partial)) => partial.commit(),
            (Ok(()), None) => Ok(()),
            (Err(error), partial) => {
                if let Some(partial) = partial {
                    partial.discard();
                }
                return Err(error.context(path.display()));
            }
        };
        agree(comm, ended)?;
        Ok(summary)
    }
}
