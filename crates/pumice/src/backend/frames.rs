//! Reading: a stream to payloads. Every byte is taken for hostile, as by [`Reader`].

use std::ops::Range;

use super::{ChunkBox, Codec};
use crate::array::Real;
use crate::chunk::Block;
use crate::container::{self, Place, frame};
use crate::error::{Error, Result};
use crate::parallel::Workers;
use crate::reader::{DecodeOptions, Info, Reader};

/// A complete stream in memory, whose chunks are decoded elsewhere.
#[derive(Debug)]
pub struct Frames<'a> {
    reader: Reader<&'a [u8]>,
}

/// What the frame of a chunk holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// How the payload is coded.
    pub codec: Codec,
    /// Where it stands in the stream.
    pub payload: Range<usize>,
}

impl<'a> Frames<'a> {
    /// Reads header and index. Memory for all values may be taken once this has succeeded: they are within the limit of
    /// the options, and no frame is too small for its share of them.
    pub fn open(bytes: &'a [u8], options: &DecodeOptions) -> Result<Self> {
        let reader = Reader::new(bytes, options.clone().threads(1))?;
        let whole = Block::whole(reader.layout.grid.shape());
        Self::checked(reader, &whole, options)
    }

    /// The same where only a region is wanted: it is its values, and the chunks that hold them, that memory may be taken for.
    pub fn open_region(bytes: &'a [u8], region: &[Range<usize>], options: &DecodeOptions) -> Result<Self> {
        let reader = Reader::new(bytes, options.clone().threads(1))?;
        let block = reader.region_block(region)?;
        Self::checked(reader, &block, options)
    }

    fn checked(reader: Reader<&'a [u8]>, block: &Block, options: &DecodeOptions) -> Result<Self> {
        let grid = &reader.layout.grid;
        let ids = grid.chunks_in(block);
        let largest = ids.iter().map(|id| grid.chunk_values(*id)).max().unwrap_or(0).max(block.n_values());
        container::check_limit(largest as u64 * reader.layout.header.dtype.size() as u64, options.limit())?;
        container::check_places(&reader.layout, &ids)?;
        Ok(Self { reader })
    }

    /// What the stream says about itself.
    pub fn info(&self) -> &Info {
        self.reader.info()
    }

    /// Number of chunks.
    pub fn n_chunks(&self) -> usize {
        self.reader.layout.places.len()
    }

    /// The chunks that hold values of a region, which must lie within the array.
    pub fn chunks_in(&self, region: &[Range<usize>]) -> Result<Vec<usize>> {
        let block = self.reader.region_block(region)?;
        Ok(self.reader.layout.grid.chunks_in(&block).into_iter().map(|id| id as usize).collect())
    }

    /// The quantisation step; `None` if the stream names none.
    pub fn step<T: Real>(&self) -> Result<Option<T>> {
        self.reader.check_dtype::<T>()?;
        Ok(self.reader.layout.header.decode_params().step)
    }

    /// Values that payloads refer to by number.
    pub fn fills<T: Real>(&self) -> Result<Vec<T>> {
        self.reader.check_dtype::<T>()?;
        Ok(self.reader.layout.header.decode_params().fills)
    }

    /// The box that chunk `id` is.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, id: usize) -> ChunkBox {
        ChunkBox::new(&self.reader.layout.grid, id)
    }

    /// Codec and payload of chunk `id`, whose size has been found able to hold the chunk. The payload itself is yet to
    /// be checked, by [`Self::verify`].
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn frame(&self, id: usize) -> Result<Frame> {
        let (range, layout) = (self.range(id), &self.reader.layout);
        let located = frame::locate(&self.reader.source[range.clone()], &layout.header, &layout.identity(id as u64));
        let checked = located.and_then(|(header, payload)| {
            header.check_plausible(layout.grid.chunk_values(id as u64), layout.header.dtype.size())?;
            Ok(Frame { codec: header.codec, payload: range.end - payload.len()..range.end })
        });
        checked.map_err(|e| e.context(format_args!("chunk {id}")))
    }

    /// The payload of chunk `id`, with the checks of [`Self::frame`].
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn payload(&self, id: usize) -> Result<&'a [u8]> {
        Ok(&self.reader.source[self.frame(id)?.payload])
    }

    /// Checks the frame of chunk `id` and its checksum; several threads may do so at once.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn verify(&self, id: usize) -> Result<()> {
        let (range, layout) = (self.range(id), &self.reader.layout);
        let opened = frame::open(&self.reader.source[range], &layout.header, &layout.identity(id as u64));
        opened.map(drop).map_err(|e| e.context(format_args!("chunk {id}")))
    }

    /// Checks and decodes chunk `id` to `out`, which has as many values, in C order, by the cores of this machine.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn decode_on_cpu<T: Real>(&self, id: usize, out: &mut [T]) -> Result<()> {
        self.reader.check_dtype::<T>()?;
        let n = self.chunk(id).n_values();
        if out.len() != n {
            return Err(Error::invalid(format!("chunk {id} has {n} values, but the output {}", out.len())));
        }
        let params = self.reader.layout.header.decode_params();
        self.reader.decode_frame(id as u64, None, &params, &Workers::Serial, &mut Vec::new(), out)
    }

    /// Where the frame of a chunk stands; the layout has been found to lie within the stream.
    fn range(&self, id: usize) -> Range<usize> {
        let Place { offset, frame_bytes } = self.reader.layout.places[id];
        offset as usize..(offset + frame_bytes) as usize
    }
}
