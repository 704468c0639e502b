//! Index and footer of a chunked stream (docs/format.md, section 4): the size of each frame, and the number of rows
//! that each writing session added. Every count is checked against the bytes present before memory is allocated for it.

use super::frame;
use super::header::Header;
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::grid;
use crate::io::to_usize;
use crate::io::{Bytes, checksum, varint};

const INDEX_MARKER: [u8; 4] = *b"INDX";
const FOOTER_MAGIC: [u8; 4] = *b"PUMF";

/// The contents of the index.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Index {
    /// `rows` of each segment.
    pub(crate) segments: Vec<usize>,
    /// Size of each frame, by chunk id.
    pub(crate) frame_bytes: Vec<u64>,
}

impl Index {
    pub(crate) const MARKER: [u8; 4] = INDEX_MARKER;
    /// Maximum size of an index of one segment, without the sizes of frames.
    pub(crate) const MAX_FIXED_BYTES: usize = 4 + 3 * varint::MAX_BYTES + 8;

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&INDEX_MARKER);
        varint::write_to(self.segments.len() as u64, out);
        self.segments.iter().for_each(|&rows| varint::write_to(rows as u64, out));
        varint::write_to(self.frame_bytes.len() as u64, out);
        self.frame_bytes.iter().for_each(|&n| varint::write_to(n, out));
        let index_checksum = checksum::xxh3(&out[start..]);
        out.extend_from_slice(&index_checksum.to_le_bytes());
    }

    /// Reads an index from the front of `bytes`, which may hold more: `salvage` does not know where it ends.
    pub(crate) fn read_from(bytes: &mut Bytes<'_>, header: &Header) -> Result<Self> {
        let all = bytes.rest();
        if bytes.array()? != INDEX_MARKER {
            return Err(Error::corrupt("no marker where the index should start"));
        }
        let n_segments = count(bytes, "segments")?;
        let mut segments = Vec::new();
        reserve(&mut segments, n_segments)?;
        for _ in 0..n_segments {
            segments.push(to_usize(varint::read_from(bytes)?)?);
        }
        let n_chunks = count(bytes, "chunks")?;
        let mut frame_bytes = Vec::new();
        reserve(&mut frame_bytes, n_chunks)?;
        for _ in 0..n_chunks {
            frame_bytes.push(varint::read_from(bytes)?);
        }
        let covered = &all[..all.len() - bytes.len()];
        if bytes.u64()? != checksum::xxh3(covered) {
            return Err(Error::corrupt("wrong checksum of the index; `pumice recover` finds the chunks without it"));
        }
        let index = Self { segments, frame_bytes };
        index.check(header)?;
        Ok(index)
    }

    fn check(&self, header: &Header) -> Result<()> {
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

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.index_offset.to_le_bytes());
        out.extend_from_slice(&self.index_bytes.to_le_bytes());
        out.extend_from_slice(&FOOTER_MAGIC);
    }

    /// Reads the last bytes of a stream of `stream_bytes`; the index must end where the footer starts.
    pub(crate) fn read_from(bytes: &mut Bytes<'_>, stream_bytes: u64) -> Result<Self> {
        let footer = Self { index_offset: bytes.u64()?, index_bytes: bytes.u64()? };
        if bytes.array()? != FOOTER_MAGIC {
            return Err(Error::truncated(
                "no footer at the end: the stream was cut short, never finished, or has bytes after its end; \
                 `pumice recover` saves the chunks that are there",
            ));
        }
        let end = footer.index_offset.checked_add(footer.index_bytes).and_then(|n| n.checked_add(Self::BYTES as u64));
        if end != Some(stream_bytes) {
            return Err(Error::corrupt(
                "the footer does not fit the size of the stream: bytes were lost or added before it; \
                 `pumice recover` saves intact chunks",
            ));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::header::tests::chunked_header;

    #[test]
    fn round_trip_and_damage() {
        let header = chunked_header(); // shape [_, 10, 7], chunks of [4, 5, 7]
        let index = Index { segments: vec![4, 5], frame_bytes: vec![20, 300, 20, 20, 20, 70_000] };
        let mut out = Vec::new();
        index.write_to(&mut out);
        let mut bytes = Bytes::new(&out);
        assert_eq!(Index::read_from(&mut bytes, &header).unwrap(), index);
        assert_eq!(bytes.len(), 0);
        for i in 0..out.len() {
            assert!(Index::read_from(&mut Bytes::new(&out[..i]), &header).is_err());
            let mut damaged = out.clone();
            damaged[i] ^= 0x10;
            assert!(Index::read_from(&mut Bytes::new(&damaged), &header).is_err(), "byte {i}");
        }
        for bad in [
            Index { segments: vec![4], ..index.clone() },
            Index { segments: vec![4, 0, 5], ..index.clone() },
            Index { segments: vec![], frame_bytes: vec![] },
            Index { segments: vec![usize::MAX; 3], frame_bytes: vec![20; 9] },
            Index { segments: vec![4, 5], frame_bytes: vec![20, 300, 20, 16, 20, 20] },
        ] {
            let mut out = Vec::new();
            bad.write_to(&mut out);
            assert!(Index::read_from(&mut Bytes::new(&out), &header).is_err());
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
