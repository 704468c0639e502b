//! Reading: payloads from a stream. No byte is trusted, as in [`Reader`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::{ChunkBox, CodecId};
use crate::codec::Element;
use crate::container::frame::{self, FrameHeader};
use crate::container::{self, FrameSpan};
use crate::decompress::{DecodeOptions, Info, Reader};
use crate::error::{Error, Result};
use crate::exec::Workers;
use crate::exec::reserve;
use crate::grid::Block;
use crate::io::ReadAt;
use crate::io::check_limit;

/// A complete stream, whose chunks are decoded elsewhere.
#[derive(Debug)]
pub struct Frames<'a> {
    reader: Reader<Stream<'a>>,
    max_bytes: u64,
}

/// Where the bytes of a stream are.
enum Stream<'a> {
    Memory(&'a [u8]),
    Elsewhere(Box<dyn ReadAt + Send + 'a>),
}

impl<'a> Stream<'a> {
    fn source(&self) -> &(dyn ReadAt + 'a) {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Elsewhere(source) => &**source,
        }
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} bytes", self.len())
    }
}

impl ReadAt for Stream<'_> {
    fn len(&self) -> Result<u64> {
        self.source().len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.source().read_exact_at(buf, offset)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.source().slice(offset, len)
    }
}

/// What the frame of a chunk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// How the payload is coded.
    pub codec: CodecId,
    /// Byte range of the payload in the stream.
    pub payload: Range<usize>,
}

impl<'a> Frames<'a> {
    /// Reads header and index. Once this has succeeded, memory for all values may be allocated: they are within the
    /// limit of the options, and no frame is too small for its values.
    pub fn open(bytes: &'a [u8], options: &DecodeOptions) -> Result<Self> {
        Self::over(Stream::Memory(bytes), None, options)
    }

    /// As [`Self::open`], if only a region is wanted: memory may be allocated for its values and for the chunks that
    /// hold them.
    pub fn open_region(bytes: &'a [u8], region: &[Range<usize>], options: &DecodeOptions) -> Result<Self> {
        Self::over(Stream::Memory(bytes), Some(region), options)
    }

    /// As [`Self::open`], for a stream whose bytes are not in memory. Only the headers of frames are read, unless
    /// frames are verified or decoded here.
    pub fn open_from(source: impl ReadAt + Send + 'a, options: &DecodeOptions) -> Result<Self> {
        Self::over(Stream::Elsewhere(Box::new(source)), None, options)
    }

    fn over(stream: Stream<'a>, region: Option<&[Range<usize>]>, options: &DecodeOptions) -> Result<Self> {
        let reader = Reader::new(stream, options.clone().threads(1))?;
        let block = match region {
            Some(region) => reader.region_block(region)?,
            None => Block::whole(reader.layout.grid.shape()),
        };
        let grid = &reader.layout.grid;
        let ids = grid.chunks_in(&block)?;
        let largest = ids.iter().map(|id| grid.chunk_values(*id)).max().unwrap_or(0).max(block.n_values());
        check_limit(largest as u64 * reader.layout.header.dtype.size() as u64, options.limit())?;
        container::check_frames(&reader.layout, &ids)?;
        Ok(Self { reader, max_bytes: options.limit() })
    }

    /// The metadata of the stream.
    pub fn info(&self) -> &Info {
        self.reader.info()
    }

    /// Number of chunks.
    pub fn n_chunks(&self) -> usize {
        self.reader.layout.frames.len()
    }

    /// The chunks that hold values of a region, which must lie within the array.
    pub fn chunks_in(&self, region: &[Range<usize>]) -> Result<Vec<usize>> {
        let block = self.reader.region_block(region)?;
        Ok(self.reader.layout.grid.chunks_in(&block)?.into_iter().map(|id| id as usize).collect())
    }

    /// The quantisation step; `None` if the stream has none.
    pub fn step<T: Element>(&self) -> Result<Option<T>> {
        self.reader.check_dtype::<T>()?;
        Ok(self.reader.layout.header.stream_params().step)
    }

    /// Fill values, which payloads refer to by number.
    pub fn fills<T: Element>(&self) -> Result<Vec<T>> {
        self.reader.check_dtype::<T>()?;
        Ok(self.reader.layout.header.stream_params().fills)
    }

    /// The box of chunk `id`.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, id: usize) -> ChunkBox {
        ChunkBox::new(&self.reader.layout.grid, id)
    }

    /// Codec and payload of chunk `id`. The size of the payload is plausible for the chunk; its bytes are yet to be
    /// checked, by [`Self::verify`].
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn frame(&self, id: usize) -> Result<Frame> {
        let layout = &self.reader.layout;
        let checked = self.locate(id).and_then(|header| {
            header.check_plausible(layout.grid.chunk_values(id as u64), layout.header.dtype)?;
            let end = self.span(id).end;
            Ok(Frame { codec: header.codec, payload: end - header.payload_bytes as usize..end })
        });
        checked.map_err(|e| e.context(format_args!("chunk {id}")))
    }

    /// The frame header of chunk `id`.
    fn locate(&self, id: usize) -> Result<FrameHeader> {
        let (layout, span) = (&self.reader.layout, self.span(id));
        let head = self.read(span.start..span.end.min(span.start + frame::MAX_HEADER_BYTES))?;
        frame::locate(&head, span.len() as u64, &layout.header, &layout.identity(id as u64))
    }

    /// Bytes of the stream.
    pub fn read(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>> {
        let source = self.reader.source.source();
        if let Some(bytes) = source.slice(range.start as u64, range.len()) {
            return Ok(Cow::Borrowed(bytes));
        }
        let mut bytes = Vec::new();
        reserve(&mut bytes, range.len())?;
        bytes.resize(range.len(), 0);
        source.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(Cow::Owned(bytes))
    }

    /// The payload of chunk `id`, with the checks of [`Self::frame`].
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn payload(&self, id: usize) -> Result<Cow<'_, [u8]>> {
        self.read(self.frame(id)?.payload)
    }

    /// Checks the frame of chunk `id` and its checksum; several threads may do so at once.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn verify(&self, id: usize) -> Result<()> {
        let layout = &self.reader.layout;
        let frame = self.read(self.span(id));
        let opened = frame.and_then(|frame| frame::open(&frame, &layout.header, &layout.identity(id as u64)).map(drop));
        opened.map_err(|e| e.context(format_args!("chunk {id}")))
    }

    /// As [`Self::verify`], from the [`payload_hash`](super::payload_hash) of the payload.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn verify_hash(&self, id: usize, payload_hash: u64) -> Result<()> {
        let checked = self.locate(id).and_then(|header| header.check_hash(payload_hash));
        checked.map_err(|e| e.context(format_args!("chunk {id}")))
    }

    /// Checks chunk `id` and decodes it on the CPU to `out`, which must have the same number of values, in C order.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn decode_on_cpu<T: Element>(&self, id: usize, out: &mut [T]) -> Result<()> {
        self.reader.check_dtype::<T>()?;
        let n = self.chunk(id).n_values();
        if out.len() != n {
            return Err(Error::invalid(format!("chunk {id} has {n} values, but the output {}", out.len())));
        }
        let params = self.reader.layout.header.stream_params();
        self.reader.decode_frame(id as u64, None, &params, &Workers::Serial, self.max_bytes, &mut Vec::new(), out)
    }

    /// Byte range of the frame of chunk `id`, which lies within the stream.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn span(&self, id: usize) -> Range<usize> {
        let FrameSpan { offset, frame_bytes } = self.reader.layout.frames[id];
        offset as usize..(offset + frame_bytes) as usize
    }
}
