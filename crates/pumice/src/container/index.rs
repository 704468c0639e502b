//! Index and footer of a chunked stream (docs/format.md, section 4): the size of each frame, the number of rows that
//! each writing session added, and a copy of the header, by which a stream whose beginning is lost can still be read.
//! Every count is checked against the bytes present before memory is allocated for it.

use super::frame;
use super::header::{self, Header};
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::grid;
use crate::io::to_usize;
use crate::io::{Bytes, check_limit, checksum, varint};

const MARKER: [u8; 4] = *b"INDH";
/// Marker of an index without a copy of the header.
const MARKER_WITHOUT_HEADER: [u8; 4] = *b"INDX";

/// The contents of the index.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Index {
    /// `rows` of each segment.
    pub(crate) segments: Vec<usize>,
    /// Size of each frame, by chunk id.
    pub(crate) frame_bytes: Vec<u64>,
    /// The bytes of the header; empty if the index has no copy of it.
    pub(crate) header_copy: Vec<u8>,
}

impl Index {
    /// First bytes of an index: with a copy of the header, and without.
    pub(crate) const MARKERS: [[u8; 4]; 2] = [MARKER, MARKER_WITHOUT_HEADER];
    /// Maximum size of an index of one segment, without the sizes of frames and the copy of the header.
    pub(crate) const MAX_FIXED_BYTES: usize = 4 + 3 * varint::MAX_BYTES + 8;

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(if self.header_copy.is_empty() { &MARKER_WITHOUT_HEADER } else { &MARKER });
        varint::write_to(self.segments.len() as u64, out);
        self.segments.iter().for_each(|&rows| varint::write_to(rows as u64, out));
        varint::write_to(self.frame_bytes.len() as u64, out);
        self.frame_bytes.iter().for_each(|&n| varint::write_to(n, out));
        out.extend_from_slice(&self.header_copy);
        let index_checksum = checksum::xxh3(&out[start..]);
        out.extend_from_slice(&index_checksum.to_le_bytes());
    }

    /// Reads an index from the front of `bytes`, which may hold more: `salvage` does not know where it ends. It is to be
    /// compared with the header by [`Self::check`]. The lists that a reader makes of it may take `max_bytes`.
    pub(crate) fn read_from(bytes: &mut Bytes<'_>, max_bytes: u64) -> Result<Self> {
        let all = bytes.rest();
        let marker = bytes.array()?;
        if !Self::MARKERS.contains(&marker) {
            return Err(Error::corrupt("no marker where the index should start"));
        }
        let n_segments = count(bytes, "segments")?;
        check_lists(n_segments, 0, max_bytes)?;
        let mut segments = Vec::new();
        reserve(&mut segments, n_segments)?;
        for _ in 0..n_segments {
            segments.push(to_usize(varint::read_from(bytes)?)?);
        }
        let n_chunks = count(bytes, "chunks")?;
        check_lists(n_segments, n_chunks, max_bytes)?;
        let mut frame_bytes = Vec::new();
        reserve(&mut frame_bytes, n_chunks)?;
        for _ in 0..n_chunks {
            frame_bytes.push(varint::read_from(bytes)?);
        }
        let header_bytes = match marker {
            MARKER => header::peek_header_bytes(bytes.rest())?,
            _ => 0,
        };
        let header_copy = bytes.take(header_bytes)?.to_vec();
        let covered = &all[..all.len() - bytes.len()];
        if bytes.u64()? != checksum::xxh3(covered) {
            return Err(wrong_checksum());
        }
        Ok(Self { segments, frame_bytes, header_copy })
    }

    /// Size of the intact index at the front of `bytes`, and of the lists that [`Self::read_from`] makes of it. Takes no
    /// memory, and refuses early what cannot be an index. [`ErrorKind::Truncated`] if more bytes are needed to tell.
    ///
    /// [`ErrorKind::Truncated`]: crate::ErrorKind::Truncated
    pub(crate) fn measure(bytes: &[u8]) -> Result<(usize, u64)> {
        let mut rest = Bytes::new(bytes);
        let marker = rest.array()?;
        if !Self::MARKERS.contains(&marker) {
            return Err(Error::corrupt("no marker where the index should start"));
        }
        let mut n_numbers = 0;
        for least in [1, frame::MIN_HEADER_BYTES as u64] {
            let n = varint::read_from(&mut rest)?;
            for _ in 0..n {
                if varint::read_from(&mut rest)? < least {
                    return Err(Error::corrupt("the index has a segment without rows or a frame without a header"));
                }
            }
            n_numbers += n;
        }
        if marker == MARKER {
            let header_bytes = header::peek_header_bytes(rest.rest())?;
            rest.take(header_bytes)?;
        }
        let covered = &bytes[..bytes.len() - rest.len()];
        if rest.u64()? != checksum::xxh3(covered) {
            return Err(wrong_checksum());
        }
        Ok((bytes.len() - rest.len(), n_numbers * size_of::<u64>() as u64))
    }

    /// The header of the stream, if the index has an intact copy of it.
    pub(crate) fn header(&self) -> Option<Header> {
        let (header, _) = Header::read_from(&self.header_copy).ok()?;
        (!header.single_chunk).then_some(header)
    }

    /// Refuses an index that does not fit the header of the stream.
    pub(crate) fn check(&self, header: &Header) -> Result<()> {
        if !self.header_copy.is_empty() && self.header().as_ref() != Some(header) {
            return Err(Error::corrupt("the copy of the header in the index is not the header of the stream"));
        }
        if self.segments.is_empty() || self.segments.contains(&0) {
            return Err(Error::corrupt("the index has no segment or one without rows"));
        }
        let implied = grid::count_chunks(&header.shape, &header.chunk_shape, &self.segments);
        if implied != Some(self.frame_bytes.len() as u64) {
            return Err(Error::corrupt("the number of chunks in the index does not match the shape"));
        }
        if self.frame_bytes.iter().any(|&n| n < frame::MIN_HEADER_BYTES as u64) {
            return Err(Error::corrupt("the index has a frame that is smaller than a frame header"));
        }
        header.full_shape(&self.segments).map(drop)
    }
}

/// Bytes of the lists that a reader makes of an index and the bytes of it: for each segment and each chunk.
const SEGMENT_BYTES: u64 = 50;
const CHUNK_BYTES: u64 = 34;
/// Lists of this size do not count towards the caller's limit.
const FREE_LIST_BYTES: u64 = 1 << 20;

fn check_lists(n_segments: usize, n_chunks: usize, max_bytes: u64) -> Result<()> {
    let bytes = SEGMENT_BYTES * n_segments as u64 + CHUNK_BYTES * n_chunks as u64;
    check_limit(bytes.saturating_sub(FREE_LIST_BYTES), max_bytes)
}

fn wrong_checksum() -> Error {
    Error::corrupt("wrong checksum of the index; `pumice recover` finds the chunks without it")
}

/// A count of items that take at least one byte each.
fn count(bytes: &mut Bytes<'_>, what: &str) -> Result<usize> {
    let n = varint::read_from(bytes)?;
    match usize::try_from(n) {
        Ok(n) if n <= bytes.len() => Ok(n),
        _ => Err(Error::corrupt(format!("the index claims {n} {what} but has no room for them"))),
    }
}

/// The last bytes of a chunked stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) index_offset: u64,
    pub(crate) index_bytes: u64,
}

impl Footer {
    /// Size of the footer.
    pub(crate) const BYTES: usize = 20;
    /// Its last bytes.
    pub(crate) const MAGIC: [u8; 4] = *b"PUMF";

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.index_offset.to_le_bytes());
        out.extend_from_slice(&self.index_bytes.to_le_bytes());
        out.extend_from_slice(&Self::MAGIC);
    }

    /// Reads the last bytes of a stream of `stream_bytes`; the index must end where the footer starts.
    pub(crate) fn read_from(bytes: &mut Bytes<'_>, stream_bytes: u64) -> Result<Self> {
        let footer = Self::read_any(bytes)?;
        if footer.stream_bytes() != Some(stream_bytes) {
            return Err(Error::corrupt(
                "the footer does not fit the size of the stream: bytes were lost or added before it; \
                 `pumice recover` saves intact chunks",
            ));
        }
        Ok(footer)
    }

    /// Reads a footer without the check of its fields.
    pub(crate) fn read_any(bytes: &mut Bytes<'_>) -> Result<Self> {
        let footer = Self { index_offset: bytes.u64()?, index_bytes: bytes.u64()? };
        if bytes.array()? != Self::MAGIC {
            return Err(Error::truncated(
                "no footer at the end: the stream was cut short, never finished, or has bytes after its end, such as \
                 another stream; `pumice recover` saves the chunks that are there",
            ));
        }
        Ok(footer)
    }

    /// The size of the stream.
    pub(crate) fn stream_bytes(&self) -> Option<u64> {
        self.index_offset.checked_add(self.index_bytes)?.checked_add(Self::BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::header::tests::{chunked_header, single_header};

    #[test]
    fn round_trip_and_damage() {
        let header = chunked_header(); // shape [_, 10, 7], chunks of [4, 5, 7]
        let mut header_copy = Vec::new();
        header.write_to(&mut header_copy).unwrap();
        let index = Index { segments: vec![4, 5], frame_bytes: vec![20, 300, 20, 20, 20, 70_000], header_copy };
        let read = |bytes: &mut Bytes<'_>| {
            let index = Index::read_from(bytes, u64::MAX)?;
            index.check(&header)?;
            Ok::<_, Error>(index)
        };
        for index in [Index { header_copy: Vec::new(), ..index.clone() }, index.clone()] {
            let mut out = Vec::new();
            index.write_to(&mut out);
            let mut bytes = Bytes::new(&out);
            assert_eq!(read(&mut bytes).unwrap(), index);
            assert_eq!(bytes.len(), 0);
            for i in 0..out.len() {
                assert!(read(&mut Bytes::new(&out[..i])).is_err());
                let mut damaged = out.clone();
                damaged[i] ^= 0x10;
                assert!(read(&mut Bytes::new(&damaged)).is_err(), "byte {i}");
            }
        }
        let copy_of = |header: Header| {
            let mut bytes = Vec::new();
            header.write_to(&mut bytes).unwrap();
            bytes
        };
        let fewer_rows = Header { chunk_shape: vec![3, 5, 7], ..header.clone() };
        for bad in [
            Index { segments: vec![4], ..index.clone() },
            Index { segments: vec![4, 0, 5], ..index.clone() },
            Index { segments: vec![], frame_bytes: vec![], ..index.clone() },
            Index { segments: vec![usize::MAX; 3], frame_bytes: vec![20; 9], ..index.clone() },
            Index { frame_bytes: vec![20, 300, 20, 16, 20, 20], ..index.clone() },
            Index { header_copy: copy_of(fewer_rows), ..index.clone() },
            Index { header_copy: copy_of(single_header()), ..index.clone() },
        ] {
            let mut out = Vec::new();
            bad.write_to(&mut out);
            assert!(read(&mut Bytes::new(&out)).is_err());
        }
    }

    #[test]
    fn footer_must_fit() {
        let footer = Footer { index_offset: 100, index_bytes: 30 };
        let mut out = Vec::new();
        footer.write_to(&mut out);
        assert_eq!(out.len(), Footer::BYTES);
        assert_eq!(Footer::read_from(&mut Bytes::new(&out), 150).unwrap(), footer);
        assert!(Footer::read_from(&mut Bytes::new(&out), 151).is_err());
        let mut out = Vec::new();
        Footer { index_offset: u64::MAX, index_bytes: 2 }.write_to(&mut out);
        assert!(Footer::read_from(&mut Bytes::new(&out), 21).is_err());
    }
}
