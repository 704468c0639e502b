//! The byte format of docs/format.md: the only module that knows file bytes. Each structure has `read_from` and
//! `write_to`; [`Layout`] reads all of them but the frames and finds where each frame stands.
//!
//! Every byte read is taken for hostile: arithmetic is checked and nothing is allocated before its size has been
//! compared with the bytes that are there.

pub(crate) mod checksum;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod varint;

use crate::chunk::Grid;
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::Codec;
use crate::read_at::ReadAt;
use frame::{FrameHeader, Identity};
use header::Header;
use index::{Footer, Index};

/// First bytes of a stream.
pub(crate) const MAGIC: [u8; 4] = *b"PUM\x1a";
/// Newest format version that this release reads, and the one it writes.
pub(crate) const FORMAT_VERSION: u8 = 1;

/// How much is read at first from either end of a stream: enough for most headers and indices.
const HEAD_BYTES: u64 = 4096;
const TAIL_BYTES: u64 = 1 << 16;

/// Bytes yet to be parsed. Running out of them is [`ErrorKind::Truncated`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(n).ok_or_else(|| Error::truncated("the stream ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Where a frame stands; `frame_bytes` is 0 for a chunk that salvage did not find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) frame_bytes: u64,
}

/// A stream but for its payloads.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) header: Header,
    pub(crate) header_bytes: usize,
    pub(crate) grid: Grid,
    /// By chunk id.
    pub(crate) places: Vec<Place>,
}

impl Layout {
    /// Reads and checks header, index and footer; of a single-chunk stream, header and frame header.
    pub(crate) fn read_from<R: ReadAt + ?Sized>(source: &R, max_bytes: u64) -> Result<Self> {
        let stream_bytes = source.len()?;
        let mut buffer = Vec::new();
        let (header, header_bytes) = read_header(source, stream_bytes, &mut buffer)?;
        if header.single_chunk {
            let shape = header.full_shape(&[])?;
            let grid = Grid::whole(&shape);
            let place = single_place(source, &header, header_bytes, stream_bytes, &mut buffer)?;
            return Ok(Self { header, header_bytes, grid, places: vec![place] });
        }
        let (index, index_offset) = read_index(source, &header, header_bytes, stream_bytes, max_bytes, &mut buffer)?;
        let shape = header.full_shape(&index.segments)?;
        let grid = Grid::new(&shape, &header.chunk_shape, &index.segments)?;
        let mut places = Vec::new();
        reserve(&mut places, index.frame_bytes.len())?;
        let mut offset = header_bytes as u64;
        for &frame_bytes in &index.frame_bytes {
            places.push(Place { offset, frame_bytes });
            offset = offset.checked_add(frame_bytes).ok_or_else(frames_do_not_fit)?;
        }
        if offset != index_offset {
            return Err(frames_do_not_fit());
        }
        Ok(Self { header, header_bytes, grid, places })
    }

    /// What the frame of chunk `id` must say that it holds.
    pub(crate) fn identity(&self, id: u64) -> Identity {
        Identity::of_block(id, &self.grid.block(id), self.header.single_chunk)
    }

    /// Where the frames end: where an appending writer goes on.
    pub(crate) fn frames_end(&self) -> u64 {
        self.places.last().map_or(self.header_bytes as u64, |p| p.offset + p.frame_bytes)
    }
}

/// The header of a stream, and its size.
pub(crate) fn read_header<R: ReadAt + ?Sized>(
    source: &R,
    stream_bytes: u64,
    buffer: &mut Vec<u8>,
) -> Result<(Header, usize)> {
    let head = read(source, 0, stream_bytes.min(HEAD_BYTES), buffer)?;
    let header_bytes = header::peek_header_bytes(head)?;
    if header_bytes <= head.len() {
        return Header::read_from(head);
    }
    Header::read_from(read(source, 0, stream_bytes.min(header_bytes as u64), buffer)?)
}

fn read_index<R: ReadAt + ?Sized>(
    source: &R,
    header: &Header,
    header_bytes: usize,
    stream_bytes: u64,
    max_bytes: u64,
    buffer: &mut Vec<u8>,
) -> Result<(Index, u64)> {
    let room = stream_bytes - header_bytes as u64; // the header was read from it
    if room < Footer::BYTES as u64 {
        return Err(Error::truncated("the stream ends after its header; `pumice recover` has nothing to save"));
    }
    let tail = read(source, stream_bytes - room.min(TAIL_BYTES), room.min(TAIL_BYTES), buffer)?;
    let (before, footer) = tail.split_at(tail.len() - Footer::BYTES);
    let footer = Footer::read_from(&mut Bytes::new(footer), stream_bytes)?;
    if footer.index_offset < header_bytes as u64 {
        return Err(Error::corrupt("the index starts within the header"));
    }
    let bytes = if footer.index_bytes <= before.len() as u64 {
        &before[before.len() - footer.index_bytes as usize..]
    } else {
        check_limit(footer.index_bytes, max_bytes)?;
        read(source, footer.index_offset, footer.index_bytes, buffer)?
    };
    let mut bytes = Bytes::new(bytes);
    let index = Index::read_from(&mut bytes, header).map_err(|e| Error::new(corrupt_kind(&e), e.to_string()))?;
    if bytes.len() != 0 {
        return Err(Error::corrupt("bytes between index and footer"));
    }
    Ok((index, footer.index_offset))
}

/// Checks that the one frame ends where the stream ends.
fn single_place<R: ReadAt + ?Sized>(
    source: &R,
    header: &Header,
    header_bytes: usize,
    stream_bytes: u64,
    buffer: &mut Vec<u8>,
) -> Result<Place> {
    let offset = header_bytes as u64;
    let room = stream_bytes - offset;
    let head = read(source, offset, room.min(frame::MAX_HEADER_BYTES as u64), buffer)?;
    let mut bytes = Bytes::new(head);
    let frame_header = FrameHeader::read_from(&mut bytes, header)?;
    let frame_header_bytes = (head.len() - bytes.len()) as u64;
    match frame_header.payload_bytes.checked_add(frame_header_bytes) {
        Some(frame_bytes) if frame_bytes == room => {}
        Some(frame_bytes) if frame_bytes < room => return Err(Error::corrupt("bytes after the end of the stream")),
        _ => return Err(Error::truncated("the stream ends within its only chunk")),
    }
    if frame_header.identity.chunk_id != 0 {
        return Err(Error::corrupt("the only chunk is not chunk 0"));
    }
    // No read of an array without elements ever decodes its frame, so it is checked here.
    let is_empty = frame_header.codec == Codec::Raw && frame_header.payload_bytes == 0 && frame_header.matches(&[]);
    if header.shape.contains(&0) && !is_empty {
        return Err(Error::corrupt("the chunk of an array without elements is not empty or has a wrong checksum"));
    }
    Ok(Place { offset, frame_bytes: room })
}

/// `len` bytes at `offset`, which must lie within the source: borrowed from memory, or read into `buffer`.
pub(crate) fn read<'a, R: ReadAt + ?Sized>(
    source: &'a R,
    offset: u64,
    len: u64,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let len = to_usize(len)?;
    if let Some(slice) = source.slice(offset, len) {
        return Ok(slice);
    }
    if buffer.len() < len {
        // Grows only, so that a buffer in use over and over is not filled with zeros each time.
        let more = len - buffer.len();
        reserve(buffer, more)?;
        buffer.resize(len, 0);
    }
    source.read_exact_at(&mut buffer[..len], offset)?;
    Ok(&buffer[..len])
}

/// Reserves, reporting failure instead of aborting.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    vec.try_reserve_exact(additional).map_err(|_| {
        let bytes = additional.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::LimitExceeded, format!("no memory for {bytes} bytes"))
    })
}

/// Refuses to take more memory than the caller allows.
pub(crate) fn check_limit(bytes: u64, max_bytes: u64) -> Result<()> {
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::LimitExceeded,
        format!("{bytes} bytes are needed but only {max_bytes} allowed; raise `max_bytes` or read a smaller region"),
    ))
}

/// A size or extent as `usize`.
pub(crate) fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::new(ErrorKind::LimitExceeded, format!("{n} is too large for this machine")))
}

/// Least size that the frames of `ids` can have, checked before memory is taken for their values.
pub(crate) fn check_places(layout: &Layout, ids: &[u64]) -> Result<()> {
    let value_bytes = layout.header.dtype.size();
    for &id in ids {
        let n_values = layout.grid.chunk_values(id);
        if layout.places[id as usize].frame_bytes < frame::min_frame_bytes(n_values, value_bytes) {
            return Err(Error::corrupt(format!("chunk {id}: its frame is too small for {n_values} values")));
        }
    }
    Ok(())
}

/// Within an index whose place the footer gives, missing bytes are wrong bytes.
fn corrupt_kind(error: &Error) -> ErrorKind {
    match error.kind() {
        ErrorKind::Truncated => ErrorKind::Corrupt,
        kind => kind,
    }
}

fn frames_do_not_fit() -> Error {
    Error::corrupt("the frame sizes in the index do not add up to where the index starts")
}
