//! Writing a distributed array to one file.
//!
//! ```text
//! decisions     range, fill values: each rank over its values, then a reduction
//! owners        a chunk belongs to the rank that has its first value; others send it their pieces
//! frames        each rank encodes its chunks
//! offsets       sizes to the rank in charge of a range of ids, sums, an exclusive scan, and back
//! file          frames to the ranks that write, each of which has one run of bytes; header, index and footer by rank 0
//! ```

use std::path::Path;

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::backend::{self, Chunks, SharedStream};
use pumice::{Config, Result, Summary};

use super::frames::{Frames, Offsets};
use super::partial::{PartialFile, Sync};
use super::{measure, threads};
use crate::agreement::{agree, check_same};
use crate::collective::reduce;
use crate::exchange::Owned;
use crate::local::{Block, LocalBox, Value, check_boxes, invalid};
use crate::messages::Wire;
use crate::mpi_file::MpiFile;
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
    write_with(comm, path, shape, boxes, config, Wire::Compressed)
}

/// As [`write()`], but values may go to the file as they are: [`Wire::Auto`] measures on small parts how quickly the storage
/// takes bytes and how quickly values are encoded, and chooses what is quicker.
///
/// A file of values as they are is a Pumice file, too: its bound is [`Lossless`](pumice::ErrorBound::Lossless), and its
/// chunks are not compressed. Which of the two kinds `Auto` writes depends on the machine; the bytes of each do not.
pub fn write_with<T: Value>(
    comm: &impl Communicator,
    path: impl AsRef<Path>,
    shape: &[usize],
    boxes: &[LocalBox<'_, T>],
    config: &Config,
    wire: Wire,
) -> Result<Summary> {
    // Messages of the program cannot be taken for ours.
    let comm = &comm.duplicate();
    let array = Distributed::new(comm, path.as_ref(), shape, boxes, config, wire)?;
    let output = PartialFile::create(comm, path.as_ref())?;
    let written = array.is_compressed(comm, &output, boxes, config, wire).and_then(|is_compressed| {
        if !is_compressed {
            return array.write_plain(comm, &output, agree(comm, SharedStream::stored(config, shape))?);
        }
        let everywhere = agree(comm, Everywhere::new(comm, shape, boxes, array.threads))?;
        let stream = agree(comm, SharedStream::new(config, &everywhere))?;
        let frames = array.encode(&stream);
        write_frames(comm, &output, stream, array.chunks.count(), agree(comm, frames)?)
    });
    output.end(comm, written)
}

/// An array that the ranks hold together, with the chunks of this one.
pub(super) struct Distributed<'a, T> {
    pub(super) chunks: Chunks,
    pub(super) owned: Owned<'a, T>,
    pub(super) threads: usize,
}

impl<'a, T: Value> Distributed<'a, T> {
    /// Checks the arguments, and exchanges the pieces of chunks that boxes cut.
    pub(super) fn new(
        comm: &impl Communicator,
        path: &Path,
        shape: &[usize],
        boxes: &[LocalBox<'a, T>],
        config: &Config,
        wire: Wire,
    ) -> Result<Self> {
        check_same(
            comm,
            &[
                ("type of values", T::DTYPE.to_string()),
                ("shape of the array", format!("{shape:?}")),
                ("bound or other options", format!("{:?}", config.clone().threads(0))),
                ("way of writing", format!("{wire:?}")),
                ("name of the file", path.display().to_string()),
            ],
        )?;
        agree(comm, check_filled(shape, boxes))?;
        let chunks = agree(comm, Chunks::new::<T>(config, shape))?;
        agree(comm, backend::check_shareable(config))?;
        let threads = threads(comm, backend::threads_of(config));
        Ok(Self { owned: Owned::gather(comm, &chunks, boxes)?, chunks, threads })
    }

    /// The frames of the chunks of this rank.
    pub(super) fn encode(&self, stream: &SharedStream<T>) -> Result<Frames> {
        Frames::collect(self.owned.ids.clone(), |ids, put| stream.encode(&self.owned, ids, self.threads, put))
    }

    /// The same with a copy of the values of its chunks.
    pub(super) fn captured(self) -> Result<Distributed<'static, T>> {
        let Self { chunks, owned, threads } = self;
        Ok(Distributed { owned: owned.captured(&chunks)?, chunks, threads })
    }

    /// Decides whether to compress. For that, parts of the values are written to the file.
    fn is_compressed(
        &self,
        comm: &impl Communicator,
        output: &PartialFile,
        boxes: &[LocalBox<'_, T>],
        config: &Config,
        wire: Wire,
    ) -> Result<bool> {
        match wire {
            Wire::Compressed => Ok(true),
            Wire::Plain => Ok(false),
            Wire::Auto => {
                let largest = boxes.iter().map(|part| part.values).max_by_key(|values| values.len());
                measure::pays(comm, output, largest.unwrap_or_default(), config, self.threads)
            }
        }
    }

    /// Writes all values as they are, chunk by chunk: no rank holds a copy of more than one.
    fn write_plain(&self, comm: &impl Communicator, output: &PartialFile, stream: SharedStream<T>) -> Result<Summary> {
        let ids = &self.owned.ids;
        let frames = Frames { sizes: stream.stored_sizes(ids), ids: ids.clone(), bytes: Vec::new() };
        let offsets = frames.offsets(comm, self.chunks.count(), stream.head().len() as u64)?;
        let mine = offsets.mine.clone();
        write_stream(comm, output, stream, offsets, |file, stream| {
            let mut next = mine.iter();
            stream.store(&self.owned, ids, |frame| next.next().map_or(Ok(()), |offset| file.write_at(*offset, frame)))
        })
    }
}

/// Refuses boxes that are not within the array, overlap, or have too few or too many values.
pub(super) fn check_filled<T>(shape: &[usize], boxes: &[LocalBox<'_, T>]) -> Result<()> {
    let blocks: Vec<Block> = boxes.iter().map(|part| Block::new(part.start, part.extents)).collect();
    check_boxes(shape, &blocks, false)?;
    for part in boxes {
        let n = match part.extents.contains(&0) {
            true => Some(0),
            false => part.extents.iter().try_fold(1_usize, |n, extent| n.checked_mul(*extent)),
        };
        if n != Some(part.values.len()) {
            let n = n.map_or("too many".into(), |n| n.to_string());
            return Err(invalid(format!("the box of {:?} has {n} values, not {}", part.extents, part.values.len())));
        }
    }
    Ok(())
}

/// Writes the frames of all ranks, and what belongs around them.
pub(super) fn write_frames<T: Value>(
    comm: &impl Communicator,
    output: &PartialFile,
    stream: SharedStream<T>,
    n_chunks: u64,
    frames: Frames,
) -> Result<Summary> {
    let start = stream.head().len() as u64;
    let offsets = frames.offsets(comm, n_chunks, start)?;
    let run = frames.to_writers(comm, &offsets, start)?;
    write_stream(comm, output, stream, offsets, |file, _| {
        run.iter().try_for_each(|(offset, bytes)| file.write_at(*offset, bytes))
    })
}

/// Writes a stream, whose frames `write` writes, to the disk.
fn write_stream<T: Value, C: Communicator>(
    comm: &C,
    output: &PartialFile,
    stream: SharedStream<T>,
    offsets: Offsets,
    write: impl FnOnce(&MpiFile<'_, C>, &SharedStream<T>) -> Result<()>,
) -> Result<Summary> {
    let is_first = comm.rank() == 0;
    let mut summary = stream.summary(0);
    let n_bytes = output.write(comm, Sync::Yes, |file| {
        // The header comes first: what a killed job leaves can be read from it.
        agree(comm, if is_first { file.write_at(0, stream.head()) } else { Ok(()) })?;
        agree(comm, write(file, &stream))?;
        let ended = if is_first { stream.finish(offsets.all_sizes) } else { Ok((Vec::new(), 0)) };
        let written = ended.and_then(|(tail, n_bytes)| {
            // The others have nothing to write.
            file.write_at(offsets.end, &tail)?;
            Ok(n_bytes)
        });
        agree(comm, written)
    })?;
    // The others have 0.
    [summary.compressed_bytes] = reduce(comm, [n_bytes], SystemOperation::max());
    Ok(summary)
}
