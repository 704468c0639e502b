//! [`FileWriter`]: rows into a file, new or appended to, which changes only when all is written.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use super::{Summary, Writer};
use crate::codec::Element;
use crate::container::frame::{FrameHeader, MAX_HEADER_BYTES};
use crate::container::header::Header;
use crate::container::{Layout, StreamWriter};
use crate::decompress::{DecodeOptions, Info, Reader};
use crate::error::{Error, Result};
use crate::grid;
use crate::io::Bytes;
use crate::io::{AtomicFile, ReadAt, read};
use crate::plan::{Config, ErrorBound, Plan};

/// A [`Writer`] to a file that appears under its name, or changes, only when it is finished.
///
/// ```
/// use pumice::{Config, DecodeOptions, ErrorBound, FileWriter, Reader};
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("run.pum");
/// let mut writer = FileWriter::<f32>::create(&path, &[2], &Config::new(ErrorBound::Lossless))?;
/// writer.write_rows(&[1.0, 2.0])?;
/// writer.finish()?;
///
/// let mut writer = FileWriter::<f32>::append(&path, 0)?;
/// writer.write_rows(&[3.0, 4.0])?;
/// writer.finish()?;
/// assert_eq!(Reader::open(&path, DecodeOptions::new())?.read::<f32>()?.data, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileWriter<T> {
    writer: Writer<T, AtomicFile>,
    /// The summary to return if no rows are appended; the file then stays unchanged.
    unchanged: Option<Summary>,
}

impl<T: Element> FileWriter<T> {
    /// Creates a file, or replaces an existing one.
    pub fn create(path: impl AsRef<Path>, row_shape: &[usize], config: &Config) -> Result<Self> {
        let writer = Writer::new(AtomicFile::create(path)?, row_shape, config)?;
        Ok(Self { writer, unchanged: None })
    }

    /// Adds rows to an existing file, with its bound, fill values and chunk shape, on this many threads (0 = one per
    /// core). The file is copied first: until [`finish`](Self::finish) it stays as it is.
    pub fn append(path: impl AsRef<Path>, threads: usize) -> Result<Self> {
        let path = path.as_ref();
        let with_path = |e: Error| e.context(path.display());
        let file = File::open(path).map_err(|e| with_path(e.into()))?;
        let reader = Reader::new(file, DecodeOptions::new().threads(1)).map_err(with_path)?;
        let unchanged = unchanged(reader.info());
        let Continued { header, head, copied, stream } = Continued::new::<T, _>(&reader).map_err(with_path)?;
        let mut out = AtomicFile::create(path)?;
        out.write_all(&head)?;
        let n_copied = copied.end - copied.start;
        let mut source = &reader.source;
        source.seek(SeekFrom::Start(copied.start))?;
        if io::copy(&mut io::Read::take(source, n_copied), &mut out)? != n_copied {
            return Err(with_path(Error::truncated("the file became shorter while it was copied")));
        }
        debug_assert_eq!(stream.n_bytes(), head.len() as u64 + n_copied);
        let writer = Writer::resume(out, header.plan(), threads, Some(stream))?;
        Ok(Self { writer, unchanged: Some(unchanged) })
    }

    /// Adds rows: any whole number of them.
    pub fn write_rows(&mut self, values: &[T]) -> Result<()> {
        self.writer.write_rows(values)
    }

    /// Completes the file and puts it under its name.
    pub fn finish(self) -> Result<Summary> {
        if let Some(unchanged) = self.unchanged
            && self.writer.stream.as_ref().is_none_or(|stream| stream.new_rows() == 0)
            && self.writer.pending.is_empty()
        {
            return Ok(unchanged);
        }
        let (file, summary) = self.writer.finish()?;
        file.commit()?;
        Ok(summary)
    }
}

/// What a stream becomes to which rows are appended.
pub(crate) struct Continued {
    pub(crate) header: Header,
    /// The bytes that take the place of those before `copied`.
    pub(crate) head: Vec<u8>,
    /// The bytes of the old stream that stay as they are.
    pub(crate) copied: Range<u64>,
    /// Counts the chunks that are there.
    pub(crate) stream: StreamWriter,
}

impl Continued {
    pub(crate) fn new<T: Element, R: ReadAt>(reader: &Reader<R>) -> Result<Self> {
        reader.check_dtype::<T>()?;
        let layout = &reader.layout;
        let header = appendable_header::<T>(layout)?;
        let (mut segments, mut frame_bytes) = (Vec::new(), Vec::new());
        let mut frame_header = Vec::new();
        let mut copied = 0..0;
        if !reader.info().shape.contains(&0) {
            copied = layout.header_bytes as u64..layout.frames_end();
            segments = layout.grid.segment_rows()?;
            frame_bytes = layout.frames.iter().map(|p| p.frame_bytes).collect();
        }
        if layout.header.single_chunk && !copied.is_empty() {
            let old_bytes;
            (old_bytes, frame_header) = chunked_frame_header(&reader.source, layout)?;
            copied.start += old_bytes;
            frame_bytes = vec![frame_header.len() as u64 + (copied.end - copied.start)];
        }
        let mut head = Vec::new();
        let stream = StreamWriter::start_with(&header, segments, frame_bytes, &mut head)?;
        head.extend_from_slice(&frame_header);
        Ok(Self { header, head, copied, stream })
    }
}

/// The summary of a stream to which nothing is appended.
pub(crate) fn unchanged(info: &Info) -> Summary {
    Summary {
        raw_bytes: info.raw_bytes,
        compressed_bytes: info.compressed_bytes,
        abs_bound: info.abs_bound,
        n_chunks: info.n_chunks,
        fills: info.fills.clone(),
        target: None,
    }
}

/// The size of the frame header of the only chunk, and the header to replace it in a chunked stream. It stores two more
/// fields, which the checksum already covers, so that the payload need not be read.
fn chunked_frame_header<R: ReadAt>(source: &R, layout: &Layout) -> Result<(u64, Vec<u8>)> {
    let mut buffer = Vec::new();
    let span = layout.frames[0];
    let head = read(source, span.offset, span.frame_bytes.min(MAX_HEADER_BYTES as u64), &mut buffer)?;
    let mut frame_header = FrameHeader::read_from(&mut Bytes::new(head), &layout.header)?;
    let old_bytes = frame_header.identity.header_bytes(frame_header.payload_bytes) as u64;
    frame_header.identity.single_chunk = false;
    let mut out = Vec::new();
    frame_header.write_to(&mut out);
    Ok((old_bytes, out))
}

/// The header for appending rows. A single-chunk stream becomes a chunked one whose first segment is the old chunk:
/// with any chunk shape at least as large as the old array, it is chunk 0.
fn appendable_header<T: Element>(layout: &Layout) -> Result<Header> {
    let mut header = layout.header.clone();
    // The target was met for the existing rows; for more rows only the absolute bound that was found holds.
    if header.bound.kind().is_target() {
        header.bound = ErrorBound::Abs(header.abs_bound);
        header.also.clear();
    }
    if !header.single_chunk {
        return Ok(header);
    }
    let Some((&rows, row_shape)) = header.shape.split_first() else {
        return Err(Error::invalid("an array without axes cannot be appended to"));
    };
    if row_shape.contains(&0) {
        return Err(Error::invalid("rows without values cannot be appended"));
    }
    // Chunks are as large as those of a new array with rows of this shape.
    let shape: Vec<usize> = std::iter::once(0).chain(row_shape.iter().copied()).collect();
    let config = Config::new(ErrorBound::Lossless).preset(header.preset);
    let mut chunk_shape = Plan::<T>::new(&config, &shape, None)?.chunk_shape;
    if rows > 0 {
        let wanted_rows = grid::n_values(&chunk_shape) / grid::n_values(row_shape);
        chunk_shape[0] = rows.max(wanted_rows);
        chunk_shape[1..].copy_from_slice(row_shape);
    }
    grid::checked_bytes(&chunk_shape, size_of::<T>())
        .ok_or_else(|| Error::invalid("the file is one chunk that is too large to append to; compress it anew"))?;
    Ok(Header { single_chunk: false, shape: row_shape.to_vec(), chunk_shape, ..header })
}
