//! The one writer of streams: header, frames in order of chunk ids, index and footer (docs/format.md, section 1).
//!
//! It counts what was written and produces all bytes around the frames. The frames themselves go straight from the
//! encoder to the output: a buffer, a file, or device memory.

use super::header::Header;
use super::index::{Footer, Index};
use crate::error::Result;

/// A stream that is being written.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    /// Complete segments, and the sizes of all frames so far.
    index: Index,
    /// Rows of the segment that is being written.
    segment_rows: usize,
    /// Size of the stream so far.
    n_bytes: u64,
    single_chunk: bool,
}

impl StreamWriter {
    /// Starts a stream by appending its header to `out`.
    pub(crate) fn start(header: &Header, out: &mut Vec<u8>) -> Result<Self> {
        let start = out.len();
        header.write_to(out)?;
        let n_bytes = (out.len() - start) as u64;
        let header_copy = if header.single_chunk { Vec::new() } else { out[start..].to_vec() };
        let index = Index { header_copy, ..Index::default() };
        Ok(Self { index, segment_rows: 0, n_bytes, single_chunk: header.single_chunk })
    }

    /// As [`Self::start`], for a chunked stream whose first segments and frames the caller copies from another stream.
    pub(crate) fn start_with(
        header: &Header,
        segments: Vec<usize>,
        frame_bytes: Vec<u64>,
        out: &mut Vec<u8>,
    ) -> Result<Self> {
        let mut stream = Self::start(header, out)?;
        stream.n_bytes += frame_bytes.iter().sum::<u64>();
        stream.index = Index { segments, frame_bytes, ..stream.index };
        Ok(stream)
    }

    /// Counts frames of these sizes, which together hold `rows` more rows of the array.
    pub(crate) fn add_frames(&mut self, frame_bytes: impl IntoIterator<Item = u64>, rows: usize) {
        let first = self.index.frame_bytes.len();
        self.index.frame_bytes.extend(frame_bytes);
        self.n_bytes += self.index.frame_bytes[first..].iter().sum::<u64>();
        self.segment_rows += rows;
    }

    /// Number of frames so far.
    pub(crate) fn n_chunks(&self) -> u64 {
        self.index.frame_bytes.len() as u64
    }

    /// Number of rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.index.segments.iter().sum::<usize>() + self.segment_rows
    }

    /// Number of rows that were added since the start.
    pub(crate) fn new_rows(&self) -> usize {
        self.segment_rows
    }

    /// Size of the stream so far: the offset of the next frame.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Ends the stream by appending index and footer; a single-chunk stream has neither. Returns the size of the
    /// stream.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>) -> u64 {
        if self.single_chunk {
            return self.n_bytes;
        }
        if self.segment_rows > 0 {
            self.index.segments.push(self.segment_rows);
        }
        let start = out.len();
        self.index.write_to(out);
        Footer { index_offset: self.n_bytes, index_bytes: (out.len() - start) as u64 }.write_to(out);
        self.n_bytes + (out.len() - start) as u64
    }
}
