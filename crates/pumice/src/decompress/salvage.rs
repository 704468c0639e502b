//! Salvage: reads what is intact in a damaged stream. An intact index locates the frames. Without it, the stream is
//! scanned for frame markers, and every frame whose checksum is right counts; each frame says which box of the array it
//! holds (docs/format.md, section 5). A chunk is called intact only after it was decoded. The header must be intact:
//! nothing can be decoded without it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Array;
use super::{DecodeOptions, Info, Reader};
use crate::codec::Element;
use crate::container::frame::{self, FrameHeader, Identity, MAX_HEADER_BYTES};
use crate::container::header::Header;
use crate::container::index::Index;
use crate::container::{self, FrameSpan, Layout};
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::grid::{self, Block, ChunkBand, Grid};
use crate::io::{Bytes, ReadAt};
use crate::io::{check_limit, read};
use crate::with_dtype;

/// Bytes scanned for markers at a time.
const SCAN_BYTES: u64 = 1 << 20;
/// The scan checks at most this many times the stream's size. Damage needs far less; a forged stream could nest frames
/// without end, and those beyond the limit are not looked for.
const SCAN_EFFORT: u64 = 16;

/// Finds what can still be read of a damaged stream.
///
/// ```
/// use pumice::{ErrorBound, Config, DecodeOptions};
/// let data: Vec<f32> = (0..40_000).map(|i| i as f32).collect();
/// let mut bytes = pumice::compress(&data, &[40_000], &Config::new(ErrorBound::Lossless).chunk_shape(&[10_000]))?;
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
    let (layout, end_is_known) = match Layout::read_from(&source, options.limit()) {
        Ok(layout) => (layout, true),
        Err(_) => {
            let layout = Scan::new(&source, options.limit())?.layout()?;
            let end_is_known = layout.header.single_chunk;
            (layout, end_is_known)
        }
    };
    let reader = Reader::with_layout(source, layout, &options)?;
    let intact = with_dtype!(reader.info().dtype, T => reader.decodable::<T>())?;
    Ok(Salvage { reader, intact, end_is_known })
}

/// A damaged stream and what is left of it.
#[derive(Debug)]
pub struct Salvage<R> {
    reader: Reader<R>,
    intact: Vec<u64>,
    end_is_known: bool,
}

impl<R: ReadAt> Salvage<R> {
    /// The metadata of the stream. If the index is lost, too, `shape[0]` ends with the last chunk found, and `segments`
    /// is empty.
    pub fn info(&self) -> &Info {
        self.reader.info()
    }

    /// Whether the extent along the slowest axis is that of the whole array. Without an index, rows after the last
    /// chunk that was found may be lost, and it is unknown how many.
    pub fn end_is_known(&self) -> bool {
        self.end_is_known
    }

    /// Ids of the chunks that can be decoded, ascending.
    pub fn intact(&self) -> &[u64] {
        &self.intact
    }

    /// Ids and regions of all that is lost, ascending: with [`Self::intact`], they cover the array once. Most regions
    /// are one chunk. If the index is lost, too, it may be unknown how a run of rows was cut into chunks; it is then
    /// one region, under the id of its first chunk.
    pub fn lost(&self) -> Vec<(u64, Vec<Range<usize>>)> {
        let grid = &self.reader.layout.grid;
        let is_lost = |id: &u64| grid.is_known(*id) && self.intact.binary_search(id).is_err();
        let chunks = (0..grid.n_chunks()).filter(is_lost).map(|id| (id, grid.block(id).ranges()));
        let gaps = grid.gaps().into_iter().map(|(id, rows)| {
            let trailing = grid.shape()[1..].iter().map(|&n| 0..n);
            (id, std::iter::once(rows).chain(trailing).collect())
        });
        let mut lost: Vec<_> = chunks.chain(gaps).collect();
        lost.sort_by_key(|(id, _)| *id);
        lost
    }

    /// The array, with `missing` for all values that are lost.
    pub fn read<T: Element>(&self, missing: T) -> Result<Array<T>> {
        self.reader.check_dtype::<T>()?;
        let whole = Block::whole(self.reader.layout.grid.shape());
        self.reader.check_memory::<T>(whole.n_values())?;
        let mut data = Vec::new();
        reserve(&mut data, whole.n_values())?;
        data.resize(whole.n_values(), missing);
        self.reader.decode_into(&self.intact, &whole, &mut data)?;
        Ok(Array { shape: whole.extents, data })
    }

    /// Calls `f` with the region and the values of each intact chunk, in order of id.
    pub fn for_each_chunk<T: Element>(&self, f: impl FnMut(&[Range<usize>], &[T]) -> Result<()> + Send) -> Result<()> {
        self.reader.for_each_id(&self.intact, f)
    }
}

/// A search for frames through the whole stream.
struct Scan<'a, R> {
    source: &'a R,
    stream_bytes: u64,
    header: Header,
    header_bytes: usize,
    max_bytes: u64,
    /// An upper limit on the payload size of a chunk.
    max_payload: u64,
    /// Bytes that may still be checked.
    effort: u64,
    buffer: Vec<u8>,
    /// The bytes that are scanned for markers, and their offset.
    window: Vec<u8>,
    window_offset: u64,
    found: Vec<(Identity, FrameSpan)>,
    index: Option<Index>,
}

impl<'a, R: ReadAt> Scan<'a, R> {
    fn new(source: &'a R, max_bytes: u64) -> Result<Self> {
        let stream_bytes = source.len()?;
        let mut buffer = Vec::new();
        let (header, header_bytes) = container::read_header(source, stream_bytes, &mut buffer)?;
        let chunk_shape = if header.single_chunk { &header.shape } else { &header.chunk_shape };
        let chunk_bytes = grid::checked_bytes(chunk_shape, header.dtype.size()).unwrap_or(u64::MAX);
        Ok(Self {
            source,
            stream_bytes,
            max_bytes,
            max_payload: chunk_bytes.saturating_mul(2).saturating_add(4096),
            effort: stream_bytes.saturating_mul(SCAN_EFFORT).saturating_add(1 << 20),
            header,
            header_bytes,
            buffer,
            window: Vec::new(),
            window_offset: 0,
            found: Vec::new(),
            index: None,
        })
    }

    fn layout(mut self) -> Result<Layout> {
        let mut at = self.header_bytes as u64;
        while let Some((offset, marker)) = self.next_marker(at)? {
            let end = if marker == frame::MARKER { self.frame_at(offset)? } else { self.index_at(offset)? };
            at = end.unwrap_or(offset + 1);
        }
        let grid = self.grid()?;
        let frames = vec![FrameSpan::default(); grid.n_chunks() as usize];
        let mut layout = Layout { header: self.header, header_bytes: self.header_bytes, grid, frames };
        for (identity, span) in &self.found {
            let id = identity.chunk_id;
            let fits = id < layout.grid.n_chunks() && layout.grid.is_known(id) && layout.identity(id) == *identity;
            if fits && layout.frames[id as usize].frame_bytes == 0 {
                layout.frames[id as usize] = *span;
            }
        }
        Ok(layout)
    }

    /// Offset and bytes of the next frame or index marker.
    fn next_marker(&mut self, from: u64) -> Result<Option<(u64, [u8; 4])>> {
        let mut at = from;
        while at + 4 <= self.stream_bytes {
            let is_in_window = at >= self.window_offset && at + 4 <= self.window_offset + self.window.len() as u64;
            if !is_in_window {
                let n = SCAN_BYTES.min(self.stream_bytes - at);
                self.window.clear();
                self.window.extend_from_slice(read(self.source, at, n, &mut self.buffer)?);
                self.window_offset = at;
            }
            let rest = &self.window[(at - self.window_offset) as usize..];
            if let Some(i) = rest.windows(4).position(|w| w == frame::MARKER || w == Index::MARKER) {
                let marker = *rest[i..].first_chunk().expect("there is a marker");
                return Ok(Some((at + i as u64, marker)));
            }
            at += rest.len() as u64 - 3;
        }
        Ok(None)
    }

    /// Accepts the frame at `offset` if its checksum holds, and returns where it ends.
    fn frame_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.stream_bytes - offset;
        let head = read(self.source, offset, room.min(MAX_HEADER_BYTES as u64), &mut self.buffer)?;
        let mut bytes = Bytes::new(head);
        let Ok(header) = FrameHeader::read_from(&mut bytes, &self.header) else { return Ok(None) };
        let frame_header_bytes = (head.len() - bytes.len()) as u64;
        // A frame takes 15 bytes or more, so ids beyond the size of the stream are forged.
        let plausible = header.payload_bytes <= self.max_payload
            && header.payload_bytes <= room - frame_header_bytes
            && header.identity.chunk_id < self.stream_bytes;
        if !plausible {
            return Ok(None);
        }
        let frame_bytes = frame_header_bytes + header.payload_bytes;
        if check_limit(frame_bytes, self.max_bytes).is_err() || !self.spend(frame_bytes) {
            return Ok(None);
        }
        let payload_at = offset + frame_header_bytes;
        let payload = read(self.source, payload_at, header.payload_bytes, &mut self.buffer)?;
        if !header.matches(payload) {
            return Ok(None);
        }
        self.found.push((header.identity, FrameSpan { offset, frame_bytes }));
        Ok(Some(offset + frame_bytes))
    }

    /// Accepts the index at `offset` if its checksum holds, and returns where it ends.
    fn index_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.stream_bytes - offset;
        if self.header.single_chunk {
            return Ok(None);
        }
        // The size of the index is unknown before it is read: first some bytes, then all that are left.
        for n in [room.min(SCAN_BYTES), room] {
            if check_limit(n, self.max_bytes).is_err() || !self.spend(n) {
                return Ok(None);
            }
            let mut bytes = Bytes::new(read(self.source, offset, n, &mut self.buffer)?);
            if let Ok(index) = Index::read_from(&mut bytes, &self.header) {
                self.index = Some(index);
                return Ok(Some(offset + n - bytes.len() as u64));
            }
        }
        Ok(None)
    }

    /// Whether so many bytes may be checked.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.effort.checked_sub(bytes);
        self.effort = left.unwrap_or(self.effort);
        left.is_some()
    }

    /// The grid from the index, or else from the identities of the frames.
    fn grid(&self) -> Result<Grid> {
        let Header { shape, chunk_shape, .. } = &self.header;
        if self.header.single_chunk {
            return Ok(Grid::whole(shape));
        }
        if let Some(index) = &self.index {
            return Grid::new(&self.header.full_shape(&index.segments)?, chunk_shape, &index.segments);
        }
        let Some(chunks_per_band) = grid::count_chunks(shape, chunk_shape, &[1]) else {
            return Err(Error::corrupt("the header implies more than 2^64 chunks per row"));
        };
        let bands = self.bands(chunks_per_band);
        let Some(last) = bands.last() else {
            return Err(Error::corrupt("neither an index nor an intact chunk was found: nothing can be saved"));
        };
        self.header.full_shape(&[last.end()])?;
        // Without an index, nothing else stops a forged header from implying a list of chunks that fills the memory.
        let n_chunks = (last.number + 1).checked_mul(chunks_per_band);
        if n_chunks.is_none_or(|n| n > self.stream_bytes.max(1 << 20)) {
            return Err(Error::corrupt("the header implies far more chunks than the stream has bytes"));
        }
        Grid::of_bands(shape, chunk_shape, &bands)
    }

    /// The bands of the frames found. Only forged frames contradict each other; then the first one found counts.
    fn bands(&self, chunks_per_band: u64) -> Vec<ChunkBand> {
        let chunk_rows = self.header.chunk_shape[0];
        let mut bands: BTreeMap<u64, ChunkBand> = BTreeMap::new();
        for (identity, _) in &self.found {
            let number = identity.chunk_id / chunks_per_band;
            let (Ok(first_row), Ok(rows)) = (usize::try_from(identity.first_row), usize::try_from(identity.rows))
            else {
                continue;
            };
            if !(1..=chunk_rows).contains(&rows) || first_row.checked_add(rows).is_none() {
                continue;
            }
            let band = ChunkBand { number, first_row, rows };
            let before = bands.range(..number).next_back().map(|(_, b)| b);
            let after = bands.range(number..).next().map(|(_, b)| b);
            if band.can_follow(before, chunk_rows) && after.is_none_or(|b| b.can_follow(Some(&band), chunk_rows)) {
                bands.insert(number, band);
            }
        }
        bands.into_values().collect()
    }
}
