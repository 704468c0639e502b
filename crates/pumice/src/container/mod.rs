//! The byte format of docs/format.md: the only module that knows file bytes. Each structure has `read_from` and
//! `write_to`; [`Layout`] reads all of them but the frames and locates each frame.
//!
//! No byte is trusted: arithmetic is checked, and memory is allocated only after its size has been compared with the
//! number of bytes present.

pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod index;
mod stream;

pub(crate) use stream::StreamWriter;

use crate::codec::CodecId;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::reserve;
use crate::grid::Grid;
use crate::io::ReadAt;
use crate::io::{Bytes, check_limit, read};
use frame::{FrameHeader, Identity};
use header::Header;
use index::{Footer, Index};

/// First bytes of a stream.
pub(crate) const MAGIC: [u8; 4] = *b"PUM\x1a";
/// Newest format version that this release reads, and the one it writes.
pub(crate) const FORMAT_VERSION: u8 = 1;

/// Number of bytes read first from the start and from the end of a stream: enough for most headers and indices.
const HEAD_BYTES: u64 = 4096;
const TAIL_BYTES: u64 = 1 << 16;

/// Offset and size of a frame; `frame_bytes` is 0 for a chunk that salvage did not find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameSpan {
    pub(crate) offset: u64,
    pub(crate) frame_bytes: u64,
}

/// A stream without its payloads.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) header: Header,
    pub(crate) header_bytes: usize,
    pub(crate) grid: Grid,
    /// By chunk id.
    pub(crate) frames: Vec<FrameSpan>,
}

impl Layout {
    /// Reads and checks header, index and footer; of a single-chunk stream, header and frame header.
    pub(crate) fn read_from<R: ReadAt + ?Sized>(source: &R, max_bytes: u64) -> Result<Self> {
        let stream_bytes = source.len()?;
        let mut buffer = Vec::new();
        let header = read_header(source, stream_bytes, &mut buffer);
        let (header, header_bytes) = header.map_err(|e| lost_header(source, stream_bytes, e))?;
        if header.single_chunk {
            let shape = header.full_shape(&[])?;
            let grid = Grid::whole(&shape);
            let span = locate_single_frame(source, &header, header_bytes, stream_bytes, &mut buffer)?;
            return Ok(Self { header, header_bytes, grid, frames: vec![span] });
        }
        let (index, index_offset) = read_index(source, &header, header_bytes, stream_bytes, max_bytes, &mut buffer)?;
        let shape = header.full_shape(&index.segments)?;
        let grid = Grid::new(&shape, &header.chunk_shape, &index.segments)?;
        let mut frames = Vec::new();
        reserve(&mut frames, index.frame_bytes.len())?;
        let mut offset = header_bytes as u64;
        for &frame_bytes in &index.frame_bytes {
            frames.push(FrameSpan { offset, frame_bytes });
            offset = offset.checked_add(frame_bytes).ok_or_else(frames_do_not_fit)?;
        }
        if offset != index_offset {
            return Err(frames_do_not_fit());
        }
        Ok(Self { header, header_bytes, grid, frames })
    }

    /// The identity that the frame of chunk `id` must have.
    pub(crate) fn identity(&self, id: u64) -> Identity {
        Identity::of_block(id, &self.grid.block(id), self.header.single_chunk)
    }

    /// Offset of the end of the frames, where an appending writer continues.
    pub(crate) fn frames_end(&self) -> u64 {
        self.frames.last().map_or(self.header_bytes as u64, |frame| frame.offset + frame.frame_bytes)
    }
}

/// The header of a stream, and its size.
fn read_header<R: ReadAt + ?Sized>(source: &R, stream_bytes: u64, buffer: &mut Vec<u8>) -> Result<(Header, usize)> {
    let head = read(source, 0, stream_bytes.min(HEAD_BYTES), buffer)?;
    let header_bytes = header::peek_header_bytes(head)?;
    if header_bytes <= head.len() {
        return Header::read_from(head);
    }
    Header::read_from(read(source, 0, stream_bytes.min(header_bytes as u64), buffer)?)
}

/// The error for a stream whose header cannot be read: says so if it ends like a chunked stream, whose index has a copy.
fn lost_header<R: ReadAt + ?Sized>(source: &R, stream_bytes: u64, error: Error) -> Error {
    let mut footer = [0; Footer::BYTES];
    let offset = stream_bytes.saturating_sub(Footer::BYTES as u64);
    let has_footer = source.read_exact_at(&mut footer, offset).is_ok() && footer.ends_with(&Footer::MAGIC);
    if error.kind() != ErrorKind::Corrupt || !has_footer {
        return error;
    }
    Error::corrupt(format!("{error}; but it ends like one: `pumice recover` may find a copy of the header there"))
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
    let footer = match Footer::read_from(&mut Bytes::new(footer), stream_bytes) {
        Ok(footer) => footer,
        Err(e) => return Err(if has_other_stream(source, tail, stream_bytes) { several_streams() } else { e }),
    };
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
    let index = Index::read_from(&mut bytes, max_bytes).map_err(|e| Error::new(corrupt_kind(&e), e.to_string()))?;
    index.check(header)?;
    if bytes.len() != 0 {
        return Err(Error::corrupt("bytes between index and footer"));
    }
    Ok((index, footer.index_offset))
}

/// Whether another stream begins where a first one ends, as far as the last bytes of the file show it.
fn has_other_stream<R: ReadAt + ?Sized>(source: &R, tail: &[u8], stream_bytes: u64) -> bool {
    // The last stream is chunked: its footer says where it begins.
    let footer = Footer::read_any(&mut Bytes::new(&tail[tail.len() - Footer::BYTES..]));
    let last_bytes = footer.ok().and_then(|footer| footer.stream_bytes());
    let start = last_bytes.and_then(|n| stream_bytes.checked_sub(n));
    let mut magic = [0; MAGIC.len()];
    let starts_there = start.is_some_and(|start| source.read_exact_at(&mut magic, start).is_ok() && magic == MAGIC);
    // It is a single chunk, and a chunked one comes before it.
    let seam = [Footer::MAGIC, MAGIC].concat();
    starts_there || tail.windows(seam.len()).any(|bytes| bytes == seam)
}

/// Locates the only frame and checks that it ends where the stream ends.
fn locate_single_frame<R: ReadAt + ?Sized>(
    source: &R,
    header: &Header,
    header_bytes: usize,
    stream_bytes: u64,
    buffer: &mut Vec<u8>,
) -> Result<FrameSpan> {
    let offset = header_bytes as u64;
    let room = stream_bytes - offset;
    let head = read(source, offset, room.min(frame::MAX_HEADER_BYTES as u64), buffer)?;
    let mut bytes = Bytes::new(head);
    let frame_header = FrameHeader::read_from(&mut bytes, header)?;
    let frame_header_bytes = (head.len() - bytes.len()) as u64;
    match frame_header.payload_bytes.checked_add(frame_header_bytes) {
        Some(frame_bytes) if frame_bytes == room => {}
        Some(frame_bytes) if frame_bytes < room => {
            let next = read(source, offset + frame_bytes, (room - frame_bytes).min(MAGIC.len() as u64), buffer)?;
            return Err(if next == MAGIC {
                several_streams()
            } else {
                Error::corrupt("bytes after the end of the stream; `pumice recover` reads it without them")
            });
        }
        _ => return Err(Error::truncated("the stream ends within its only chunk")),
    }
    if frame_header.identity.chunk_id != 0 {
        return Err(Error::corrupt("the only chunk is not chunk 0"));
    }
    // Reading an array without elements never decodes its frame, so it is checked here.
    let is_empty = frame_header.codec == CodecId::Raw && frame_header.payload_bytes == 0 && frame_header.matches(&[]);
    if header.shape.contains(&0) && !is_empty {
        return Err(Error::corrupt("the chunk of an array without elements is not empty or has a wrong checksum"));
    }
    Ok(FrameSpan { offset, frame_bytes: room })
}

/// Checks that the frames of `ids` are large enough for their values, before memory is allocated for these.
pub(crate) fn check_frames(layout: &Layout, ids: &[u64]) -> Result<()> {
    let value_bytes = layout.header.dtype.size();
    for &id in ids {
        let n_values = layout.grid.chunk_values(id);
        if layout.frames[id as usize].frame_bytes < frame::min_frame_bytes(n_values, value_bytes) {
            return Err(Error::corrupt(format!("chunk {id}: its frame is too small for {n_values} values")));
        }
    }
    Ok(())
}

/// The footer gives the offset and size of the index, so an index that ends too early is corrupt, not truncated.
fn corrupt_kind(error: &Error) -> ErrorKind {
    match error.kind() {
        ErrorKind::Truncated => ErrorKind::Corrupt,
        kind => kind,
    }
}

fn several_streams() -> Error {
    Error::corrupt(
        "several streams, one after the other, where one is expected: files were concatenated; \
         `pumice recover --stream N` saves the N-th of them",
    )
}

fn frames_do_not_fit() -> Error {
    Error::corrupt("the frame sizes in the index do not add up to where the index starts")
}
