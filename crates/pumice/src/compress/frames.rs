//! Chunks to frames: values from a [`Source`] through the pipeline to the output, in order of chunk id. The bytes are
//! the same for any number of workers; a single one appends straight to the output in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

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
        // The output grows only while nothing is encoded, so that it does not take the memory that encoders count on.
        let encoding = RwLock::new(());
        let encode = || encoding.read().unwrap_or_else(PoisonError::into_inner);
        let at_once = exec::at_once(workers, self.grid.n_chunks(), self.chunk_bytes())?;
        self.hand_over_from(
            workers,
            at_once,
            encode,
            self.grid.n_chunks(),
            |i| i,
            |frame| {
                if out.capacity() - out.len() < frame.len() {
                    let _nothing = encoding.write().unwrap_or_else(PoisonError::into_inner);
                    out.try_reserve(frame.len()).map_err(|_| no_memory((out.len() + frame.len()) as u64))?;
                    exec::check_memory(at_once as u64 * self.chunk_bytes())?;
                }
                out.extend_from_slice(frame);
                Ok(())
            },
        )
    }

    /// Passes all frames to `put`, in order, and returns their sizes.
    pub(crate) fn hand_over(&self, workers: &Workers, put: impl FnMut(&[u8]) -> Result<()> + Send) -> Result<Vec<u64>> {
        let n = self.grid.n_chunks();
        self.hand_over_from(workers, exec::at_once(workers, n, self.chunk_bytes())?, || (), n, |i| i, put)
    }

    /// As [`Self::hand_over`], of these chunks of the grid.
    #[cfg(feature = "unstable-backend")]
    pub(crate) fn hand_over_some(
        &self,
        workers: &Workers,
        ids: &[u64],
        put: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<Vec<u64>> {
        let n = ids.len() as u64;
        let id = |i: u64| ids[i as usize];
        self.hand_over_from(workers, exec::at_once(workers, n, self.chunk_bytes())?, || (), n, id, put)
    }

    /// Passes the frames of `n` chunks, whose ids in the grid are given, to `put`, from `at_once` workers; each holds what
    /// `encode` returns while it encodes.
    fn hand_over_from<G>(
        &self,
        workers: &Workers,
        at_once: usize,
        encode: impl Fn() -> G + Sync,
        n: u64,
        id: impl Fn(u64) -> u64 + Sync,
        mut put: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<Vec<u64>> {
        let done = AtomicU64::new(0);
        let mut frame_bytes = Vec::new();
        let inner = workers.for_items(n);
        let work = |i: usize, slot: &mut Slot<T>| {
            let _encoding = encode();
            let id = id(i as u64);
            let block = self.grid.block(id);
            let Slot { values, bytes, frame_start } = slot;
            bytes.clear();
            // Reserves the worst case: untouched pages cost nothing, whereas growing step by step costs copies.
            reserve(bytes, MAX_HEADER_BYTES + self.likely_bytes(&block))?;
            bytes.resize(MAX_HEADER_BYTES, 0);
            let codec = self.encode(&block, values, inner, bytes)?;
            *frame_start = put_header(codec, self.identity(id, &block), bytes, MAX_HEADER_BYTES);
            self.report(&done, &block);
            Ok(())
        };
        parallel::ordered(workers, n as usize, at_once, work, |_, slot| {
            let frame = &slot.bytes[slot.frame_start..];
            frame_bytes.push(frame.len() as u64);
            put(frame)
        })?;
        Ok(frame_bytes)
    }

    fn append_serially(&self, workers: &Workers, out: &mut Vec<u8>) -> Result<Vec<u64>> {
        let done = AtomicU64::new(0);
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
            exec::check_memory(self.chunk_bytes())?;
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

    /// The most memory that it takes to read and encode a chunk, its payload included.
    fn chunk_bytes(&self) -> u64 {
        read_bytes(self.source, self.grid) + pipeline::encode_bytes(self.plan, largest(self.grid))
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

/// Values of the largest chunk, which is the first.
pub(crate) fn largest(grid: &Grid) -> usize {
    if grid.n_chunks() == 0 { 0 } else { grid.chunk_values(0) }
}

/// The most memory that the values of a chunk take while they are read: those from a file are bytes first.
pub(crate) fn read_bytes<T: Element>(source: &dyn Source<T>, grid: &Grid) -> u64 {
    let first = if grid.n_chunks() == 0 { None } else { Some(grid.block(0)) };
    match first.filter(|block| source.contiguous(&block.start, &block.extents).is_none()) {
        Some(block) => 2 * (block.n_values() * size_of::<T>()) as u64,
        None => 0,
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
