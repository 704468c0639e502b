//! Chunks to frames: values from a [`Source`] through the pipeline to the output, in order of chunk id. The bytes are
//! the same for any number of workers; a single one appends straight to the output in memory.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::codec::{CodecId, Element, pipeline};
use crate::container::frame::{FrameHeader, Identity, MAX_HEADER_BYTES};
use crate::error::Result;
use crate::exec::{self, Workers, no_memory, parallel, reserve};
use crate::grid::{Block, Grid};
use crate::io::Source;
use crate::plan::{Plan, Preset};

/// All chunks of an array, or of one batch of rows, to be encoded.
pub(crate) struct Job<'a, T> {
    pub(crate) source: &'a dyn Source<T>,
    pub(crate) grid: &'a Grid,
    pub(crate) plan: &'a Plan<T>,
    /// Id of the grid's first chunk, and its first row, within the stream.
    pub(crate) first_id: u64,
    pub(crate) first_row: usize,
    /// Called with the bytes of input encoded so far.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// Buffers that a worker reuses from chunk to chunk.
struct Slot<T> {
    values: Vec<T>,
    /// A gap for the header, which may fill only the end of it, then the payload.
    bytes: Vec<u8>,
    frame_start: usize,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { values: Vec::new(), bytes: Vec::new(), frame_start: 0 }
    }
}

impl<T: Element> Job<'_, T> {
    /// Appends all frames to `out` and returns their sizes.
    pub(crate) fn append_to(&self, workers: &Workers, out: &mut Vec<u8>) -> Result<Vec<u64>> {
        if workers.count() == 1 || self.grid.n_chunks() == 1 {
            return self.append_serially(workers, out);
        }
        self.hand_over(workers, |frame| {
            out.extend_from_slice(frame);
            Ok(())
        })
    }

    /// Passes all frames to `put`, in order, and returns their sizes.
    pub(crate) fn hand_over(
        &self,
        workers: &Workers,
        mut put: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<Vec<u64>> {
        let done = AtomicU64::new(0);
        let mut frame_bytes = Vec::new();
        self.check_memory(workers)?;
        let inner = workers.for_items(self.grid.n_chunks());
        let work = |i: usize, slot: &mut Slot<T>| {
            let block = self.grid.block(i as u64);
            let Slot { values, bytes, frame_start } = slot;
            bytes.clear();
            // Reserves the worst case: untouched pages cost nothing, whereas growing step by step costs copies.
            reserve(bytes, MAX_HEADER_BYTES + self.likely_bytes(&block))?;
            bytes.resize(MAX_HEADER_BYTES, 0);
            let codec = self.encode(&block, values, inner, bytes)?;
            *frame_start = put_header(codec, self.identity(i as u64, &block), bytes, MAX_HEADER_BYTES);
            self.report(&done, &block);
            Ok(())
        };
        parallel::ordered(workers, self.grid.n_chunks() as usize, usize::MAX, work, |_, slot| {
            let frame = &slot.bytes[slot.frame_start..];
            frame_bytes.push(frame.len() as u64);
            put(frame)
        })?;
        Ok(frame_bytes)
    }

    fn append_serially(&self, workers: &Workers, out: &mut Vec<u8>) -> Result<Vec<u64>> {
        let done = AtomicU64::new(0);
        self.check_memory(&Workers::Serial)?;
        let mut values = Vec::new();
        let mut frame_bytes = Vec::new();
        // The payload is expected to be as large as that of the previous chunk; if its size takes another number of
        // bytes, it is moved.
        let mut payload_bytes = size_of::<T>() as u64 * self.grid.chunk_values(0) as u64 / 4;
        for i in 0..self.grid.n_chunks() {
            let block = self.grid.block(i);
            let identity = self.identity(i, &block);
            let start = out.len();
            let gap = identity.header_bytes(payload_bytes);
            // Unlike `reserve`, this leaves room for more frames. A long stream must not grow within the encoder, which
            // cannot fail.
            let n_bytes = if out.len() < MAX_HEADER_BYTES + size_of::<T>() * block.n_values() {
                self.likely_bytes(&block)
            } else {
                size_of::<T>() * block.n_values()
            };
            out.try_reserve(gap + n_bytes).map_err(|_| no_memory((out.len() + n_bytes) as u64))?;
            out.resize(start + gap, 0);
            let codec = self.encode(&block, &mut values, workers.for_items(self.grid.n_chunks()), out)?;
            payload_bytes = (out.len() - start - gap) as u64;
            let size = identity.header_bytes(payload_bytes);
            if size != gap {
                move_tail(out, start + gap, start + size);
            }
            put_header(codec, identity, &mut out[start..], size);
            frame_bytes.push((out.len() - start) as u64);
            self.report(&done, &block);
        }
        Ok(frame_bytes)
    }

    /// Checks that there is memory to encode a chunk on each worker, since encoders cannot fail.
    fn check_memory(&self, workers: &Workers) -> Result<()> {
        let n_chunks = self.grid.n_chunks();
        if n_chunks == 0 {
            return Ok(());
        }
        // The first chunk is the largest.
        let of_chunk = pipeline::encode_bytes(self.plan, self.grid.chunk_values(0));
        exec::check_memory(of_chunk * n_chunks.min(workers.count() as u64))
    }

    /// Bytes to reserve for the payload of a chunk: the worst case for `fast`, which is so quick that growing matters.
    fn likely_bytes(&self, block: &Block) -> usize {
        let raw_bytes = block.n_values() * size_of::<T>();
        if self.plan.preset == Preset::Fast { raw_bytes } else { raw_bytes / 8 }
    }

    /// The identity of the frame of the grid's chunk `i`, which covers this box.
    fn identity(&self, i: u64, block: &Block) -> Identity {
        let local = Identity::of_block(self.first_id + i, block, self.grid.is_whole());
        Identity { first_row: local.first_row + self.first_row as u64, ..local }
    }

    /// Appends the payload of one chunk; `values` is a buffer for chunks that are not contiguous in memory.
    fn encode(&self, block: &Block, values: &mut Vec<T>, inner: &Workers, out: &mut Vec<u8>) -> Result<CodecId> {
        let n = block.n_values();
        if n == 0 {
            return Ok(CodecId::Raw);
        }
        let mut in_array = block.clone();
        if let Some(row) = in_array.start.first_mut() {
            *row += self.first_row;
        }
        if let Some(run) = self.source.contiguous(&block.start, &block.extents) {
            return Ok(T::encode_chunk(run, &in_array, self.plan, inner, out));
        }
        values.clear();
        reserve(values, n)?;
        values.resize(n, T::default());
        self.source.read_box(&block.start, &block.extents, values)?;
        Ok(T::encode_chunk(values, &in_array, self.plan, inner, out))
    }

    fn report(&self, done: &AtomicU64, block: &Block) {
        let bytes = (block.n_values() * size_of::<T>()) as u64;
        (self.progress)(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
    }
}

/// Writes the frame's header right in front of its payload, which is `bytes` from `payload_at` on, and returns where it
/// starts.
pub(crate) fn put_header(codec: CodecId, identity: Identity, bytes: &mut [u8], payload_at: usize) -> usize {
    let header = FrameHeader::new(codec, identity, &bytes[payload_at..]);
    let mut head = Vec::with_capacity(MAX_HEADER_BYTES);
    header.write_to(&mut head);
    let start = payload_at - head.len();
    bytes[start..payload_at].copy_from_slice(&head);
    start
}

/// Moves everything from `from` on to `to`.
fn move_tail(out: &mut Vec<u8>, from: usize, to: usize) {
    let end = out.len();
    if to > from {
        out.resize(end + (to - from), 0);
    }
    out.copy_within(from..end, to);
    out.truncate(end - from + to);
}
