//! What can still be read of a damaged stream. With an intact index, the frames are where it says; without, the stream
//! is scanned for frame markers, and every frame whose checksum holds counts (docs/format.md, section 5). A chunk is
//! called intact only after it was decoded. The header must be intact: nothing can be decoded without it.

use std::ops::Range;

use crate::array::{Array, Real};
use crate::chunk::{self, Block, Grid};
use crate::container::frame::{self, FrameHeader, MAX_HEADER_BYTES};
use crate::container::header::Header;
use crate::container::index::Index;
use crate::container::{self, Bytes, Layout, Place};
use crate::error::{Error, Result};
use crate::pipeline::{self, Codec};
use crate::read_at::ReadAt;
use crate::reader::{DecodeOptions, Info, Reader};
use crate::with_dtype;

/// Bytes scanned for markers at a time.
const SCAN_BYTES: u64 = 1 << 20;
/// The scan checks at most this many times the stream's size: a forged stream could nest frames without end.
const SCAN_EFFORT: u64 = 16;
/// Most row counts tried for a last chunk whose extent is not known.
const MAX_TRIALS: usize = 1 << 16;

/// Finds what can still be read of a damaged stream.
///
/// ```
/// use pumice::{Bound, Config, DecodeOptions};
/// let data: Vec<f32> = (0..40_000).map(|i| i as f32).collect();
/// let mut bytes = pumice::compress(&data, &[40_000], &Config::new(Bound::Lossless).chunk_shape(&[10_000]))?;
/// let middle = bytes.len() / 2;
/// bytes[middle - 5..middle + 5].fill(0xff);
/// assert!(pumice::decompress::<f32>(&bytes).is_err());
///
/// let salvage = pumice::salvage(&bytes[..], DecodeOptions::new())?;
/// let array = salvage.read(f32::NAN)?;
/// assert!(salvage.intact().len() >= 2);
/// assert_eq!(array.data[39_999], 39_999.0);
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn salvage<R: ReadAt>(source: R, options: DecodeOptions) -> Result<Salvage<R>> {
    let layout = match Layout::read_from(&source, options.limit()) {
        Ok(layout) => layout,
        Err(_) => Scan::new(&source, options.limit())?.layout()?,
    };
    let reader = Reader::with_layout(source, layout, &options)?;
    #[allow(unreachable_patterns)]
    let intact = with_dtype!(reader.info().dtype, T => reader.decodable::<T>())?;
    Ok(Salvage { reader, intact })
}

/// A damaged stream and what is left of it.
#[derive(Debug)]
pub struct Salvage<R> {
    reader: Reader<R>,
    intact: Vec<u64>,
}

impl<R: ReadAt> Salvage<R> {
    /// What the stream says about itself. Where the index is lost, `shape[0]` ends with the last chunk found, all rows
    /// count as one segment, and `shape[0]` may be a few rows too large where the last chunk fits several counts.
    pub fn info(&self) -> &Info {
        self.reader.info()
    }

    /// Ids of the chunks that can be decoded, ascending.
    pub fn intact(&self) -> &[u64] {
        &self.intact
    }

    /// Ids and regions of all other chunks, ascending.
    pub fn lost(&self) -> Vec<(u64, Vec<Range<usize>>)> {
        self.lost_ids().map(|id| (id, self.reader.layout.grid.block(id).ranges())).collect()
    }

    /// The array, with `missing` in place of what is lost.
    pub fn read<T: Real>(&self, missing: T) -> Result<Array<T>> {
        self.reader.check_dtype::<T>()?;
        let whole = Block::whole(self.reader.layout.grid.shape());
        self.reader.check_memory::<T>(whole.n_values())?;
        let mut data = Vec::new();
        container::reserve(&mut data, whole.n_values())?;
        data.resize(whole.n_values(), missing);
        self.reader.decode_into(&self.intact, &whole, &mut data)?;
        Ok(Array { shape: whole.extents, data })
    }

    /// Hands over each intact chunk with its region, in order of id and on this thread.
    pub fn for_each_chunk<T: Real>(&self, f: impl FnMut(&[Range<usize>], &[T]) -> Result<()>) -> Result<()> {
        self.reader.for_each_id(&self.intact, f)
    }

    fn lost_ids(&self) -> impl Iterator<Item = u64> {
        (0..self.reader.n_chunks()).filter(|id| self.intact.binary_search(id).is_err())
    }
}

/// A search for frames through the whole stream.
struct Scan<'a, R> {
    source: &'a R,
    stream_bytes: u64,
    header: Header,
    header_bytes: usize,
    max_bytes: u64,
    /// Largest payload that a chunk can have, generously.
    max_payload: u64,
    /// Bytes that may still be checked.
    effort: u64,
    buffer: Vec<u8>,
    found: Vec<(FrameHeader, Place)>,
    index: Option<Index>,
}

impl<'a, R: ReadAt> Scan<'a, R> {
    fn new(source: &'a R, max_bytes: u64) -> Result<Self> {
        let stream_bytes = source.len()?;
        let mut buffer = Vec::new();
        let (header, header_bytes) = container::read_header(source, stream_bytes, &mut buffer)?;
        let chunk_shape = if header.single_chunk { &header.shape } else { &header.chunk_shape };
        let chunk_bytes = chunk::checked_bytes(chunk_shape, header.dtype.size()).unwrap_or(u64::MAX);
        Ok(Self {
            source,
            stream_bytes,
            max_bytes,
            max_payload: chunk_bytes.saturating_mul(2).saturating_add(4096),
            effort: stream_bytes.saturating_mul(SCAN_EFFORT).saturating_add(1 << 20),
            header,
            header_bytes,
            buffer,
            found: Vec::new(),
            index: None,
        })
    }

    fn layout(mut self) -> Result<Layout> {
        let mut at = self.header_bytes as u64;
        while let Some(marker) = self.next_marker(at)? {
            at = match self.frame_at(marker)? {
                Some(end) => end,
                None => self.index_at(marker)?.unwrap_or(marker + 1),
            };
        }
        let grid = self.grid()?;
        let mut places = vec![Place::default(); grid.n_chunks() as usize];
        for (header, place) in &self.found {
            if let Some(slot) = places.get_mut(header.chunk_id as usize)
                && slot.frame_bytes == 0
            {
                *slot = *place;
            }
        }
        Ok(Layout { header: self.header, header_bytes: self.header_bytes, grid, places })
    }

    /// Offset of the next frame or index marker.
    fn next_marker(&mut self, from: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at + 4 <= self.stream_bytes {
            let n = SCAN_BYTES.min(self.stream_bytes - at);
            let block = container::read(self.source, at, n, &mut self.buffer)?;
            let is_marker = |w: &[u8]| w == frame::MARKER || w == Index::MARKER;
            if let Some(i) = block.windows(4).position(is_marker) {
                return Ok(Some(at + i as u64));
            }
            at += n - 3;
        }
        Ok(None)
    }

    /// Accepts the frame at `offset` if its checksum holds, and returns where it ends.
    fn frame_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.stream_bytes - offset;
        let head = container::read(self.source, offset, room.min(MAX_HEADER_BYTES as u64), &mut self.buffer)?;
        let mut bytes = Bytes::new(head);
        let Ok(header) = FrameHeader::read_from(&mut bytes) else { return Ok(None) };
        let frame_header_bytes = (head.len() - bytes.len()) as u64;
        // A frame takes 15 bytes or more, so ids beyond the size of the stream are forged.
        let plausible = header.payload_bytes <= self.max_payload
            && header.payload_bytes <= room - frame_header_bytes
            && header.chunk_id < self.stream_bytes;
        if !plausible {
            return Ok(None);
        }
        let frame_bytes = frame_header_bytes + header.payload_bytes;
        self.spend(frame_bytes)?;
        container::check_limit(frame_bytes, self.max_bytes)?;
        let payload_at = offset + frame_header_bytes;
        let payload = container::read(self.source, payload_at, header.payload_bytes, &mut self.buffer)?;
        if !header.matches(payload) {
            return Ok(None);
        }
        self.found.push((header, Place { offset, frame_bytes }));
        Ok(Some(offset + frame_bytes))
    }

    /// Accepts the index at `offset` if its checksum holds, and returns where it ends.
    fn index_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.stream_bytes - offset;
        let mut n = room.min(SCAN_BYTES);
        if self.header.single_chunk {
            return Ok(None);
        }
        loop {
            self.spend(n)?;
            container::check_limit(n, self.max_bytes)?;
            let mut bytes = Bytes::new(container::read(self.source, offset, n, &mut self.buffer)?);
            match Index::read_from(&mut bytes, &self.header) {
                Ok(index) => {
                    self.index = Some(index);
                    return Ok(Some(offset + n - bytes.len() as u64));
                }
                // Its size is not known before it is read; counts that find no room may yet find it.
                Err(_) if n < room => {}
                Err(_) => return Ok(None),
            }
            n = room.min(n.saturating_mul(16));
        }
    }

    fn spend(&mut self, bytes: u64) -> Result<()> {
        self.effort = self.effort.checked_sub(bytes).ok_or_else(|| {
            Error::corrupt("too much of the stream looks like frames but is none: it was forged, not damaged")
        })?;
        Ok(())
    }

    /// The grid by the index, or else by the highest id found.
    fn grid(&mut self) -> Result<Grid> {
        if self.header.single_chunk {
            return Ok(Grid::whole(&self.header.shape));
        }
        if let Some(index) = &self.index {
            return Grid::new(&self.header.full_shape(&index.segments)?, &self.header.chunk_shape, &index.segments);
        }
        let Some(per_row) = chunk::count_chunks(&self.header.shape, &self.header.chunk_shape, &[1]) else {
            return Err(Error::corrupt("the header implies more than 2^64 chunks per row"));
        };
        let Some(&(last, place)) = self.found.iter().max_by_key(|(header, _)| header.chunk_id) else {
            return Err(Error::corrupt("neither an index nor an intact chunk was found: nothing can be saved"));
        };
        let full_rows = last.chunk_id / per_row;
        let chunk_rows = self.header.chunk_shape[0];
        let rows = usize::try_from(full_rows).ok().and_then(|n| n.checked_mul(chunk_rows));
        let rows = rows.ok_or_else(|| Error::corrupt("a chunk id implies more rows than fit"))?;
        let full =
            Grid::new(&self.header.full_shape(&[rows, chunk_rows])?, &self.header.chunk_shape, &[rows + chunk_rows])?;
        #[allow(unreachable_patterns)]
        let last_rows = with_dtype!(self.header.dtype, T => self.last_rows::<T>(&full, last, place))?;
        let segments = [rows + last_rows];
        let grid = Grid::new(&self.header.full_shape(&segments)?, &self.header.chunk_shape, &segments)?;
        // Without an index nothing else keeps a forged header from implying a list of chunks that fills the memory.
        if grid.n_chunks() > self.stream_bytes.max(1 << 20) {
            return Err(Error::corrupt("the header implies far more chunks than the stream has bytes"));
        }
        Ok(grid)
    }

    /// How many rows the last chunk holds, which only the index says: as many as it can be decoded to.
    fn last_rows<T: Real>(&mut self, full: &Grid, last: FrameHeader, place: Place) -> Result<usize> {
        let mut extents = full.block(last.chunk_id).extents;
        let chunk_rows = extents[0];
        let row_values = chunk::n_values(&extents[1..]);
        let row_bytes = (row_values * size_of::<T>()) as u64;
        if last.codec == Codec::Raw {
            let rows = last.payload_bytes / row_bytes;
            return Ok(usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, chunk_rows));
        }
        // Tiles hold 4096 values at most and take two bytes at least.
        let most_values = (last.payload_bytes / 2).saturating_mul(4096).min(self.max_bytes / size_of::<T>() as u64);
        let most_rows = usize::try_from(most_values / row_values as u64).unwrap_or(usize::MAX).min(chunk_rows);
        let params = self.header.decode_params::<T>();
        let frame = container::read(self.source, place.offset, place.frame_bytes, &mut self.buffer)?;
        let (_, payload) = frame::open(frame, last.chunk_id)?;
        let mut values: Vec<T> = crate::reader::zeroed(most_rows * row_values)?;
        for rows in (1..=most_rows).rev().take(MAX_TRIALS) {
            extents[0] = rows;
            let values = &mut values[..rows * row_values];
            if pipeline::decode_chunk(last.codec, payload, &extents, &params, values).is_ok() {
                return Ok(rows);
            }
        }
        Ok(chunk_rows)
    }
}
