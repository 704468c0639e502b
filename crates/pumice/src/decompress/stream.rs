//! [`StreamReader`]: decodes a stream that can be read only once, from its start to its end, such as a pipe. The frames
//! are in order of chunk ids and name their rows, so values come out while bytes still arrive. The index at the end is
//! checked against what was read.

use std::io::Read;
use std::ops::Range;

use super::lists::Lists;
use super::{DecodeOptions, FREE_BYTES, Info, Slot, scatter};
use crate::codec::{CodecId, Element, Layers};
use crate::container::Layout;
use crate::container::frame::{self, FrameHeader, Identity, MAX_HEADER_BYTES};
use crate::container::header::{self, Header};
use crate::container::index::{Footer, Index};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::parallel::Workers;
use crate::exec::{reserve, scratch};
use crate::grid::{self, Block, Grid};
use crate::io::{Bytes, check_limit, to_usize, varint};
use crate::num::DType;

/// Frames per worker that are read before they are decoded together.
const FRAMES_PER_WORKER: usize = 2;
/// The least that a buffer for bytes grows by, if so many are wanted.
const MIN_READ_BYTES: usize = 1 << 16;

/// A stream that is decoded while it arrives.
///
/// Each chunk's checksum is verified before its values are passed on, but what comes after them cannot be known yet: if
/// the stream turns out to be cut short or damaged, the caller has received its first chunks when the error comes.
///
/// ```
/// use pumice::{ErrorBound, Config, DecodeOptions, StreamReader};
/// let data: Vec<f64> = (0..60_000).map(f64::from).collect();
/// let bytes = pumice::compress(&data, &[200, 300], &Config::new(ErrorBound::Lossless).chunk_shape(&[64, 64]))?;
/// let stream = StreamReader::new(&bytes[..], DecodeOptions::new())?; // or std::io::stdin()
/// let mut restored = Vec::new();
/// let info = stream.for_each_rows::<f64>(|rows| {
///     restored.extend_from_slice(rows);
///     Ok(())
/// })?;
/// assert_eq!(info.shape, [200, 300]);
/// assert_eq!(restored, data);
/// # Ok::<(), pumice::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamReader<R> {
    input: Input<R>,
    header: Header,
    header_bytes: usize,
    workers: Workers,
    max_bytes: u64,
    next: Position,
    /// Rows of each band of chunks that share them, and sizes of frames: what the index must say.
    bands: Vec<usize>,
    frame_bytes: Vec<u64>,
    /// The most bytes that these can take in the index.
    listed_bytes: usize,
    lists: Lists,
}

/// What the next frame must hold.
#[derive(Debug)]
struct Position {
    chunk_id: u64,
    /// First row of the band.
    row: usize,
    /// The chunks of the band; `None` before its first frame, which says how many rows it has.
    band: Option<Grid>,
    /// Position of the chunk in its band.
    column: u64,
}

/// A frame that was announced by its header.
struct Announced {
    identity: Identity,
    block: Block,
    layers: Layers,
    frame_bytes: u64,
}

impl<R: Read> StreamReader<R> {
    /// Reads the header. Reads are large, so `input` needs no buffer.
    pub fn new(input: R, options: DecodeOptions) -> Result<Self> {
        let mut input = Input { inner: input, ahead: Vec::new(), offset: 0 };
        let header_bytes = header::peek_header_bytes(input.peek(header::PREFIX_BYTES)?)?;
        let (header, header_bytes) = Header::read_from(input.peek(header_bytes)?)?;
        input.consume(header_bytes);
        let workers = Workers::new(options.threads)?;
        let next = Position { chunk_id: 0, row: 0, band: None, column: 0 };
        let max_bytes = options.max_bytes;
        Ok(Self {
            input,
            header,
            header_bytes,
            workers,
            max_bytes,
            next,
            bands: Vec::new(),
            frame_bytes: Vec::new(),
            listed_bytes: 0,
            lists: Lists::new(max_bytes),
        })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.header.dtype
    }

    /// The extents, if the header has all of them. The number of rows of a chunked stream comes after them, in the
    /// index.
    pub fn shape(&self) -> Option<&[usize]> {
        self.header.single_chunk.then_some(&self.header.shape)
    }

    /// The extents of all axes but the slowest; `None` for an array without axes.
    pub fn row_shape(&self) -> Option<&[usize]> {
        if self.header.single_chunk { self.header.shape.get(1..) } else { Some(&self.header.shape) }
    }

    /// Decodes all chunks, some of them in parallel, and calls `f` with the region and the values of each, in order.
    /// Needs memory for two chunks per thread.
    pub fn for_each_chunk<T: Element>(self, f: impl FnMut(&[Range<usize>], &[T]) -> Result<()>) -> Result<Info> {
        self.decode(false, f)
    }

    /// [`Self::for_each_chunk`]; `joins_rows` says whether `f` keeps a band of chunks that do not span the rows.
    fn decode<T: Element>(
        mut self,
        joins_rows: bool,
        mut f: impl FnMut(&[Range<usize>], &[T]) -> Result<()>,
    ) -> Result<Info> {
        if T::DTYPE != self.header.dtype {
            let dtype = self.header.dtype;
            return Err(Error::invalid(format!(
                "the stream holds {dtype} values, not {}; read it as {dtype}",
                T::DTYPE
            )));
        }
        let params = self.header.stream_params::<T>();
        let most = self.workers.count() * FRAMES_PER_WORKER;
        let available = self.max_bytes.saturating_add(FREE_BYTES);
        let mut slots: Vec<(Announced, Slot<T>)> = Vec::new();
        let mut spare: Vec<Slot<T>> = Vec::new();
        // The largest band so far, and what threads keep of chunks that they decoded at the same time.
        let (mut band_bytes, mut kept_bytes) = (0u64, 0u64);
        loop {
            let (mut of_slots, mut needed) = (0u64, 0u64);
            while slots.len() < most
                && let Some(frame) = self.announced()?
            {
                let value_bytes = frame.block.n_values() as u64 * size_of::<T>() as u64;
                band_bytes = band_bytes.max(if joins_rows { self.band_bytes::<T>() } else { 0 });
                // What the caller gets counts in full.
                let of_caller = value_bytes.max(band_bytes);
                check_limit(frame.frame_bytes.saturating_sub(FREE_BYTES).max(of_caller), self.max_bytes)?;
                let work = params.decode_bytes(frame.frame_bytes, &frame.block.extents, frame.layers, &self.workers);
                let kept = self.workers.count() as u64 * work.min(scratch::MAX_KEPT_BYTES as u64);
                let kept = if slots.is_empty() { kept_bytes } else { kept_bytes.max(kept) };
                let fixed = sum([self.lists.bytes(), band_bytes, kept, of_slots]);
                let mut slot = spare.pop().unwrap_or_default();
                let mut of_slot = sum([slot.n_bytes(value_bytes, frame.frame_bytes), work]);
                let mut all = sum(spare.iter().map(|slot| slot.n_bytes(0, 0)).chain([fixed, of_slot]));
                if all > available {
                    // Buffers that were made for larger chunks.
                    spare.clear();
                    slot = Slot::default();
                    of_slot = sum([slot.n_bytes(value_bytes, frame.frame_bytes), work]);
                    all = sum([fixed, of_slot]);
                }
                if all > available && !slots.is_empty() {
                    break;
                }
                check_limit(all.saturating_sub(FREE_BYTES), self.max_bytes)?;
                (of_slots, needed, kept_bytes) = (sum([of_slots, of_slot]), all, kept);
                self.read_frame(&frame, &mut slot.bytes)?;
                slots.push((frame, slot));
            }
            if slots.is_empty() {
                return self.finish();
            }
            let inner = self.workers.for_items(slots.len() as u64);
            // A single one is decoded on this thread, so that other threads keep nothing of it.
            let outer = if slots.len() == 1 { &Workers::Serial } else { &self.workers };
            let left = available.saturating_sub(needed) / slots.len() as u64;
            outer.for_each(&mut slots, |_, (frame, slot)| {
                let mut decode = || {
                    let (frame_header, payload) = frame::open(&slot.bytes, &self.header, &frame.identity)?;
                    let n = frame.block.n_values();
                    if n > slot.values.capacity() {
                        slot.values = Vec::new();
                        reserve(&mut slot.values, n)?;
                    }
                    slot.values.resize(n, T::default());
                    if n == 0 {
                        return Ok(());
                    }
                    let extents = &frame.block.extents;
                    let work = params.decode_bytes(frame.frame_bytes, extents, frame.layers, &self.workers);
                    let chunk = params.chunk(extents, None, inner, work.saturating_add(left));
                    T::decode_chunk(frame_header.codec, payload, &chunk, &mut slot.values)
                };
                decode().map_err(|e: Error| in_chunk(e, frame.identity.chunk_id))
            })?;
            for (frame, slot) in slots.drain(..) {
                f(&frame.block.ranges(), &slot.values)?;
                spare.push(slot);
            }
        }
    }

    /// Size of the values of the band that the next chunk is in; 0 where this chunk is all of it.
    fn band_bytes<T>(&self) -> u64 {
        let band = self.next.band.as_ref().filter(|band| band.n_chunks() > 1);
        band.map_or(0, |band| grid::n_values(band.shape()) as u64 * size_of::<T>() as u64)
    }

    /// As [`Self::for_each_chunk`], but calls `f` with whole rows: all values of the array, in order. Where chunks do
    /// not span the rows, needs memory for a band of them.
    pub fn for_each_rows<T: Element>(self, mut f: impl FnMut(&[T]) -> Result<()>) -> Result<Info> {
        let row_shape = self.row_shape().unwrap_or(&[]).to_vec();
        let mut rows = Vec::new();
        self.decode::<T>(true, |region, values| {
            let Some((band, within)) = region.split_first() else { return f(values) };
            if within.iter().zip(&row_shape).all(|(range, &n)| *range == (0..n)) {
                return f(values);
            }
            let extents: Vec<usize> = std::iter::once(band.len()).chain(row_shape.iter().copied()).collect();
            let start = std::iter::once(band.start).chain(row_shape.iter().map(|_| 0)).collect();
            let whole = Block { start, extents };
            let n = whole.n_values();
            if rows.len() != n {
                if n > rows.capacity() {
                    rows = Vec::new();
                    reserve(&mut rows, n)?;
                }
                rows.resize(n, T::default());
            }
            let block = Block {
                start: region.iter().map(|range| range.start).collect(),
                extents: region.iter().map(ExactSizeIterator::len).collect(),
            };
            scatter(&block, values, &whole, &mut rows);
            let is_last = within.iter().zip(&row_shape).all(|(range, &n)| range.end == n);
            if is_last { f(&rows) } else { Ok(()) }
        })
    }

    /// Reads to the end and verifies all checksums, but decodes no values.
    pub fn skip(mut self) -> Result<Info> {
        let mut bytes = Vec::new();
        while let Some(frame) = self.announced()? {
            check_limit(frame.frame_bytes, self.max_bytes)?;
            self.read_frame(&frame, &mut bytes)?;
            frame::open(&bytes, &self.header, &frame.identity).map_err(|e| in_chunk(e, frame.identity.chunk_id))?;
        }
        self.finish()
    }

    /// The next frame, by its header, which stays to be read; `None` where the frames end.
    fn announced(&mut self) -> Result<Option<Announced>> {
        let id = self.next.chunk_id;
        if self.header.single_chunk && id > 0 {
            return Ok(None);
        }
        let head = self.input.peek(MAX_HEADER_BYTES)?;
        if !self.header.single_chunk
            && self.next.band.is_none()
            && Index::MARKERS.iter().any(|marker| head.starts_with(marker))
        {
            return Ok(None);
        }
        if head.is_empty() && id > 0 {
            return Err(Error::truncated(format!(
                "the stream ends before its index: it was cut short, or never finished; {id} chunks were complete"
            )));
        }
        let mut rest = Bytes::new(head);
        let found = FrameHeader::read_from(&mut rest, &self.header).map_err(|e| in_chunk(e, id))?;
        let header_bytes = (head.len() - rest.len()) as u64;
        let frame_bytes = found.payload_bytes.checked_add(header_bytes).ok_or_else(|| in_chunk(too_large(), id))?;
        let block = self.block_of(&found.identity).map_err(|e| in_chunk(e, id))?;
        let identity = Identity::of_block(id, &block, self.header.single_chunk);
        let n_values = block.n_values();
        let is_empty = found.codec == CodecId::Raw && found.payload_bytes == 0;
        if found.identity != identity || (n_values == 0 && !is_empty) {
            return Err(in_chunk(Error::corrupt("its frame does not follow the one before it"), id));
        }
        found.check_plausible(n_values, self.header.dtype).map_err(|e| in_chunk(e, id))?;
        Ok(Some(Announced { identity, block, layers: Layers::most(found.codec), frame_bytes }))
    }

    /// The box of the next chunk. Its frame says how many rows a band has that starts with it.
    fn block_of(&mut self, claimed: &Identity) -> Result<Block> {
        if self.header.single_chunk {
            let shape = self.header.full_shape(&[])?;
            return Ok(Block::whole(&shape));
        }
        if self.next.band.is_none() {
            let rows = to_usize(claimed.rows)?;
            if rows == 0 || rows > self.header.chunk_shape[0] {
                return Err(Error::corrupt(format!("its frame claims {rows} rows")));
            }
            let end = self.next.row.checked_add(rows).ok_or_else(too_large)?;
            self.header.full_shape(&[end])?;
            let shape = self.header.full_shape(&[rows])?;
            self.next.band = Some(Grid::new(&shape, &self.header.chunk_shape, &[rows])?);
        }
        let Some(band) = &self.next.band else { return Err(too_large()) };
        let mut block = band.block(self.next.column);
        block.start[0] = self.next.row;
        Ok(block)
    }

    /// Reads the frame that was announced, and moves on to the next one.
    fn read_frame(&mut self, frame: &Announced, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        self.input.read(frame.frame_bytes, bytes).map_err(|e| in_chunk(e, frame.identity.chunk_id))?;
        self.lists.push(&mut self.frame_bytes, frame.frame_bytes)?;
        self.listed_bytes += varint::size(frame.frame_bytes);
        self.next.chunk_id += 1;
        self.next.column += 1;
        if self.next.band.as_ref().is_some_and(|band| band.n_chunks() == self.next.column) {
            let rows = frame.block.extents[0];
            self.lists.push(&mut self.bands, rows)?;
            self.listed_bytes += varint::size(rows as u64);
            self.next = Position { chunk_id: self.next.chunk_id, row: self.next.row + rows, band: None, column: 0 };
        }
        Ok(())
    }

    /// Checks what follows the frames, and returns the metadata.
    fn finish(mut self) -> Result<Info> {
        let index_offset = self.input.offset;
        // Nothing valid is longer: the index has the size of each frame, segments of one band or more, and a copy of the
        // header.
        let most = self.listed_bytes + Index::MAX_FIXED_BYTES + self.header_bytes + Footer::BYTES;
        self.lists.take(most as u64 + 1)?;
        let tail = self.input.peek(most + 1)?;
        let grid = if self.header.single_chunk {
            if !tail.is_empty() {
                return Err(Error::corrupt("bytes after the end of the stream"));
            }
            Grid::whole(&self.header.full_shape(&[])?)
        } else {
            let (_, index_list_bytes) = Index::measure(tail).map_err(|e| match e.kind() {
                ErrorKind::Truncated if tail.len() > most => Error::corrupt("the index lists more than the stream has"),
                _ => e,
            })?;
            self.lists.take(index_list_bytes)?;
            let mut rest = Bytes::new(tail);
            let index = Index::read_from(&mut rest, u64::MAX)?; // its lists were counted
            index.check(&self.header)?;
            let index_bytes = (tail.len() - rest.len()) as u64;
            let footer = Footer::read_from(&mut rest, index_offset + tail.len() as u64)?;
            if rest.len() != 0 || footer != (Footer { index_offset, index_bytes }) {
                return Err(Error::corrupt("the footer does not fit the stream, or bytes come after it"));
            }
            let chunk_rows = self.header.chunk_shape[0];
            let cut = |&rows: &usize| (0..rows).step_by(chunk_rows).map(move |start| chunk_rows.min(rows - start));
            if index.frame_bytes != self.frame_bytes || !index.segments.iter().flat_map(cut).eq(self.bands) {
                return Err(Error::corrupt("the index does not list the chunks that are in the stream"));
            }
            let shape = self.header.full_shape(&index.segments)?;
            self.lists.take(Grid::list_bytes(index.segments.len()))?;
            Grid::new(&shape, &self.header.chunk_shape, &index.segments)?
        };
        let compressed_bytes = index_offset + tail.len() as u64;
        // Where the frames are is of no use any more.
        let layout = Layout { header: self.header, header_bytes: self.header_bytes, grid, frames: Vec::new() };
        Info::new(&layout, compressed_bytes)
    }
}

impl<T> Slot<T> {
    /// Memory for a chunk of this size, with what is there already.
    fn n_bytes(&self, value_bytes: u64, frame_bytes: u64) -> u64 {
        let of_values = (self.values.capacity() * size_of::<T>()) as u64;
        sum([of_values.max(value_bytes), (self.bytes.capacity() as u64).max(frame_bytes)])
    }
}

/// Sizes that a stream claims may add up to more than any memory.
fn sum(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().fold(0, u64::saturating_add)
}

/// Bytes that come once, with those that were looked at but not used yet.
#[derive(Debug)]
struct Input<R> {
    inner: R,
    ahead: Vec<u8>,
    /// Number of bytes that were used.
    offset: u64,
}

impl<R: Read> Input<R> {
    /// The next `n` bytes, or all that are left.
    fn peek(&mut self, n: usize) -> Result<&[u8]> {
        let more = n.saturating_sub(self.ahead.len());
        append(&mut self.inner, more, &mut self.ahead)?;
        Ok(&self.ahead[..n.min(self.ahead.len())])
    }

    fn consume(&mut self, n: usize) {
        self.ahead.drain(..n);
        self.offset += n as u64;
    }

    /// Appends the next `n` bytes.
    fn read(&mut self, n: u64, out: &mut Vec<u8>) -> Result<()> {
        let n = to_usize(n)?;
        let n_ahead = n.min(self.ahead.len());
        reserve(out, n_ahead)?;
        out.extend_from_slice(&self.ahead[..n_ahead]);
        self.consume(n_ahead);
        let n_read = append(&mut self.inner, n - n_ahead, out)?;
        self.offset += n_read as u64;
        if n_ahead + n_read < n { Err(Error::truncated("the stream ends within it")) } else { Ok(()) }
    }
}

/// Appends the next `n` bytes, or all that are left, and returns how many. Memory grows as they arrive, whatever `n` is.
fn append(input: &mut impl Read, n: usize, out: &mut Vec<u8>) -> Result<usize> {
    let mut n_read = 0;
    while n_read < n {
        let room = (out.capacity() - out.len()).max(out.len()).max(MIN_READ_BYTES).min(n - n_read);
        reserve(out, room)?;
        let found = input.take(room as u64).read_to_end(out)?;
        n_read += found;
        if found < room {
            break;
        }
    }
    Ok(n_read)
}

fn in_chunk(error: Error, id: u64) -> Error {
    error.context(format_args!("chunk {id}"))
}

fn too_large() -> Error {
    Error::new(ErrorKind::Corrupt, "its frame claims a size that is too large")
}
