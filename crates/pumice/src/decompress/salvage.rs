//! Salvage: reads what is intact in a damaged stream. Intact header and index locate the frames. Otherwise the file is
//! scanned for headers, frames and indices, and every one whose checksum is right counts; each frame says which box of
//! the array it holds (docs/format.md, section 5), and an index has a copy of the header. A chunk is called intact only
//! after it was decoded.
//!
//! A file may hold several streams, one after the other. The values of a frame depend on its header, so frames are given
//! to a header only where nothing speaks against it: what follows an index, or repeats the id of another frame, belongs
//! to the next stream.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Array;
use super::{DecodeOptions, Info, Reader};
use crate::codec::Element;
use crate::container::frame::{self, FrameHeader, Identity, MAX_HEADER_BYTES};
use crate::container::header::{Header, peek_header_bytes};
use crate::container::index::{Footer, Index};
use crate::container::{FrameSpan, Layout, MAGIC};
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::grid::{self, Block, ChunkBand, Grid};
use crate::io::{Bytes, ReadAt};
use crate::io::{check_limit, read};
use crate::with_dtype;

/// What the scan looks for: headers, frames and indices.
const MARKERS: [[u8; 4]; 4] = [MAGIC, frame::MARKER, Index::MARKERS[0], Index::MARKERS[1]];
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
    salvage_stream(source, 0, options)
}

/// As [`salvage`], for one of several streams that follow each other in a file, by its number from 0 on. A stream counts
/// if a chunk or the index of it is left.
///
/// ```
/// use pumice::{ErrorBound, Config, DecodeOptions};
/// let config = Config::new(ErrorBound::Lossless);
/// let streams = [pumice::compress(&[1f32, 2.0], &[2], &config)?, pumice::compress(&[3f64], &[1], &config)?];
/// let concatenated = streams.concat();
/// let salvage = pumice::salvage_stream(&concatenated[..], 1, DecodeOptions::new())?;
/// assert_eq!((salvage.n_streams(), salvage.read(0f64)?.data), (2, vec![3.0]));
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn salvage_stream<R: ReadAt>(source: R, stream: usize, options: DecodeOptions) -> Result<Salvage<R>> {
    let (layout, end_is_known, n_streams) = match Layout::read_from(&source, options.limit()) {
        Ok(layout) => (layout, true, 1),
        Err(_) => {
            let mut parts = Scan::new(&source, options.limit())?.parts()?;
            let n_streams = parts.len();
            if stream >= n_streams {
                return Err(no_such_stream(stream, n_streams));
            }
            let part = parts.swap_remove(stream);
            let end_is_known = part.index.is_some() || part.is_single();
            (part.layout(source.len()?)?, end_is_known, n_streams)
        }
    };
    if stream >= n_streams {
        return Err(no_such_stream(stream, n_streams));
    }
    let mut reader = Reader::with_layout(source, layout, &options)?;
    let mut intact = with_dtype!(reader.info().dtype, T => reader.decodable::<T>())?;
    if (intact.len() as u64) < reader.n_chunks() && n_streams == 1 && relocate(&mut reader, &intact, &options)? {
        intact = with_dtype!(reader.info().dtype, T => reader.decodable::<T>())?;
    }
    Ok(Salvage { reader, intact, end_is_known, n_streams })
}

fn no_such_stream(stream: usize, n_streams: usize) -> Error {
    Error::invalid(format!("stream {} was asked for, but there are {n_streams}", stream + 1))
}

/// Looks for lost chunks elsewhere than where the index says: bytes may have been lost, and others added. Returns whether
/// any was found.
fn relocate<R: ReadAt>(reader: &mut Reader<R>, intact: &[u64], options: &DecodeOptions) -> Result<bool> {
    let mut found = false;
    for part in Scan::new(&reader.source, options.limit())?.parts()? {
        for Found { identity, span, .. } in part.frames {
            let (id, layout) = (identity.chunk_id, &mut reader.layout);
            let is_lost = id < layout.grid.n_chunks() && layout.grid.is_known(id) && intact.binary_search(&id).is_err();
            if is_lost && layout.identity(id) == identity {
                let indexed = &mut layout.frames[id as usize];
                let is_elsewhere = indexed.frame_bytes == span.frame_bytes && indexed.offset != span.offset;
                if is_elsewhere {
                    *indexed = span;
                    found = true;
                }
            }
        }
    }
    Ok(found)
}

/// A damaged stream and what is left of it.
#[derive(Debug)]
pub struct Salvage<R> {
    reader: Reader<R>,
    intact: Vec<u64>,
    end_is_known: bool,
    n_streams: usize,
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

    /// Number of streams in the file, one after the other: more than 1 if files were concatenated.
    pub fn n_streams(&self) -> usize {
        self.n_streams
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
        let shares = self.reader.shares_beside::<T>(&self.intact, &whole)?;
        let mut data = Vec::new();
        reserve(&mut data, whole.n_values())?;
        data.resize(whole.n_values(), missing);
        self.reader.decode_into(&self.intact, &whole, &mut data, &shares)?;
        Ok(Array { shape: whole.extents, data })
    }

    /// Calls `f` with the region and the values of each intact chunk, in order of id.
    pub fn for_each_chunk<T: Element>(&self, f: impl FnMut(&[Range<usize>], &[T]) -> Result<()> + Send) -> Result<()> {
        self.reader.for_each_id(&self.intact, f)
    }
}

/// A frame whose checksum is right.
struct Found {
    identity: Identity,
    frame_checksum: u64,
    span: FrameSpan,
}

/// What was found of one stream.
#[derive(Default)]
struct Part {
    /// The header and its size, 0 for a copy; `None` if it was not found.
    header: Option<(Header, usize)>,
    /// In order of their offsets, by ascending chunk ids.
    frames: Vec<Found>,
    index: Option<Index>,
    /// Whether what comes next must belong to another stream.
    is_complete: bool,
}

impl Part {
    fn is_single(&self) -> bool {
        self.header.as_ref().is_some_and(|(header, _)| header.single_chunk)
    }

    /// Whether only a header was found, or nothing.
    fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.index.is_none()
    }

    /// An upper limit on the payload size of a chunk.
    fn max_payload(&self) -> u64 {
        let Some((header, _)) = &self.header else { return u64::MAX };
        let chunk_shape = if header.single_chunk { &header.shape } else { &header.chunk_shape };
        let chunk_bytes = grid::checked_bytes(chunk_shape, header.dtype.size()).unwrap_or(u64::MAX);
        chunk_bytes.saturating_mul(2).saturating_add(4096)
    }

    /// Where the frames are, and the grid from the index or else from the identities of the frames.
    fn layout(self, file_bytes: u64) -> Result<Layout> {
        let Some((header, header_bytes)) = self.header else {
            let n = self.frames.len();
            return Err(Error::corrupt(match n {
                0 => "no header, no chunk and no index of a Pumice stream was found".to_owned(),
                _ => format!(
                    "{n} intact chunks were found, but neither the header nor its copy in the index, without which \
                     they cannot be decoded"
                ),
            }));
        };
        let grid = grid_of(&header, self.index.as_ref(), &self.frames, file_bytes)?;
        let frames = vec![FrameSpan::default(); grid.n_chunks() as usize];
        let mut layout = Layout { header, header_bytes, grid, frames };
        for Found { identity, span, .. } in &self.frames {
            let id = identity.chunk_id;
            if id < layout.grid.n_chunks() && layout.grid.is_known(id) && layout.identity(id) == *identity {
                layout.frames[id as usize] = *span;
            }
        }
        Ok(layout)
    }
}

/// A search for streams through the whole file.
struct Scan<'a, R> {
    source: &'a R,
    file_bytes: u64,
    max_bytes: u64,
    /// Bytes that may still be checked.
    effort: u64,
    buffer: Vec<u8>,
    /// The bytes that are scanned for markers, and their offset.
    window: Vec<u8>,
    window_offset: u64,
    /// Streams before the current one.
    parts: Vec<Part>,
    current: Part,
}

impl<'a, R: ReadAt> Scan<'a, R> {
    fn new(source: &'a R, max_bytes: u64) -> Result<Self> {
        let file_bytes = source.len()?;
        Ok(Self {
            source,
            file_bytes,
            max_bytes,
            effort: file_bytes.saturating_mul(SCAN_EFFORT).saturating_add(1 << 20),
            buffer: Vec::new(),
            window: Vec::new(),
            window_offset: 0,
            parts: Vec::new(),
            current: Part::default(),
        })
    }

    /// All streams of which a chunk or an index was found; if there are none, what is known of the first.
    fn parts(mut self) -> Result<Vec<Part>> {
        let mut at = 0;
        while let Some((offset, marker)) = self.next_marker(at)? {
            let end = match marker {
                MAGIC => self.header_at(offset)?,
                frame::MARKER => self.frame_at(offset)?,
                _ => self.index_at(offset)?,
            };
            at = end.unwrap_or(offset + 1);
        }
        self.start(Part::default());
        if self.parts.iter().any(|part| !part.is_empty()) {
            self.parts.retain(|part| !part.is_empty());
        }
        if self.parts.is_empty() {
            self.parts.push(Part::default());
        }
        Ok(self.parts)
    }

    /// Ends the current stream and starts the next. Of streams without a chunk or an index only the first is kept.
    fn start(&mut self, next: Part) {
        let part = std::mem::replace(&mut self.current, next);
        let is_first = self.parts.is_empty() && part.header.is_some();
        if is_first || !part.is_empty() {
            self.parts.push(part);
        }
    }

    /// Offset and bytes of the next marker.
    fn next_marker(&mut self, from: u64) -> Result<Option<(u64, [u8; 4])>> {
        let mut at = from;
        while at + 4 <= self.file_bytes {
            let is_in_window = at >= self.window_offset && at + 4 <= self.window_offset + self.window.len() as u64;
            if !is_in_window {
                let n = SCAN_BYTES.min(self.file_bytes - at);
                self.window.clear();
                self.window.extend_from_slice(read(self.source, at, n, &mut self.buffer)?);
                self.window_offset = at;
            }
            let rest = &self.window[(at - self.window_offset) as usize..];
            if let Some(i) = rest.windows(4).position(|bytes| MARKERS.iter().any(|marker| bytes == marker)) {
                let marker = *rest[i..].first_chunk().expect("there is a marker");
                return Ok(Some((at + i as u64, marker)));
            }
            at += rest.len() as u64 - 3;
        }
        Ok(None)
    }

    /// Accepts the header at `offset` if its checksum holds, and returns where it ends.
    fn header_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.file_bytes - offset;
        let head = read(self.source, offset, room.min(8), &mut self.buffer)?;
        let header_bytes = peek_header_bytes(head).unwrap_or(0) as u64;
        if header_bytes > room || !self.spend(header_bytes) {
            return Ok(None);
        }
        let bytes = read(self.source, offset, header_bytes, &mut self.buffer)?;
        let Ok((header, n)) = Header::read_from(bytes) else { return Ok(None) };
        let end = offset + n as u64;
        if !header.single_chunk && self.ends_index(end)? {
            // A copy, in an index that is damaged.
            if self.current.header.is_none() && !self.current.is_complete {
                self.current.header = Some((header, 0));
            }
            self.current.is_complete = true;
        } else {
            self.start(Part { header: Some((header, n)), ..Part::default() });
        }
        Ok(Some(end))
    }

    /// Whether a checksum and the footer are at `offset`, as at the end of the header's copy in an index.
    fn ends_index(&mut self, offset: u64) -> Result<bool> {
        const CHECKSUM_BYTES: u64 = 8;
        let n = CHECKSUM_BYTES + Footer::BYTES as u64;
        if n > self.file_bytes - offset {
            return Ok(false);
        }
        Ok(read(self.source, offset, n, &mut self.buffer)?.ends_with(&Footer::MAGIC))
    }

    /// Accepts the frame at `offset` if its checksum holds, and returns where it ends.
    fn frame_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.file_bytes - offset;
        let head = read(self.source, offset, room.min(MAX_HEADER_BYTES as u64), &mut self.buffer)?;
        let mut bytes = Bytes::new(head);
        // What follows a complete stream is the next one, whose header is lost: only chunked ones have a copy of it.
        let unknown = Part::default();
        let part = if self.current.is_complete { &unknown } else { &self.current };
        let header = match &part.header {
            Some((header, _)) => FrameHeader::read_from(&mut bytes, header),
            None => FrameHeader::read_with(&mut bytes, None),
        };
        let Ok(header) = header else { return Ok(None) };
        let frame_header_bytes = (head.len() - bytes.len()) as u64;
        // A frame takes 15 bytes or more, so ids beyond the size of the file are forged.
        let plausible = header.payload_bytes <= part.max_payload()
            && header.payload_bytes <= room - frame_header_bytes
            && header.identity.chunk_id < self.file_bytes;
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
        self.add_frame(header, FrameSpan { offset, frame_bytes });
        Ok(Some(offset + frame_bytes))
    }

    fn add_frame(&mut self, header: FrameHeader, span: FrameSpan) {
        let found = Found { identity: header.identity, frame_checksum: header.frame_checksum, span };
        let part = &self.current;
        let id_of = |found: &Found| found.identity.chunk_id;
        let goes_back = part.frames.last().is_some_and(|last| id_of(&found) <= id_of(last));
        if goes_back && !part.is_complete {
            let same = part.frames.binary_search_by_key(&id_of(&found), id_of);
            if same.is_ok_and(|i| part.frames[i].frame_checksum == found.frame_checksum) {
                return; // the same frame again
            }
        }
        if part.is_complete || goes_back {
            self.start(Part::default());
        }
        self.current.frames.push(found);
        self.current.is_complete = self.current.is_single();
    }

    /// Accepts the index at `offset` if its checksum holds, and returns where it ends.
    fn index_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.file_bytes - offset;
        // The size of the index is unknown before it is read: first some bytes, then all that are left.
        for n in [room.min(SCAN_BYTES), room] {
            if check_limit(n, self.max_bytes).is_err() || !self.spend(n) {
                return Ok(None);
            }
            let mut bytes = Bytes::new(read(self.source, offset, n, &mut self.buffer)?);
            if let Ok(index) = Index::read_from(&mut bytes, self.max_bytes) {
                let end = offset + n - bytes.len() as u64;
                self.add_index(offset, index);
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// Ends the current stream, or the end of another one whose beginning is lost, by its index.
    fn add_index(&mut self, offset: u64, index: Index) {
        let copy = index.header();
        if self.current.is_complete {
            self.start(Part::default());
        }
        // Sizes of frames tell whose they are and, where they were found after another header, offsets as well.
        let is_other = copy.is_some() && self.current.header.as_ref().is_some_and(|(h, _)| Some(h) != copy.as_ref());
        let mut offsets = index.frame_bytes.clone();
        offsets.iter_mut().rev().fold(offset, |end, n| {
            *n = end.wrapping_sub(*n);
            *n
        });
        let fits = |found: &Found| {
            let Ok(id) = usize::try_from(found.identity.chunk_id) else { return false };
            index.frame_bytes.get(id) == Some(&found.span.frame_bytes)
                && (!is_other || offsets[id] == found.span.offset)
        };
        let header = match (&self.current.header, copy) {
            (Some((header, n)), Some(copy)) if *header == copy => Some((copy, *n)),
            (_, Some(copy)) => Some((copy, 0)),
            (header, None) => header.clone(),
        };
        // An index that does not fit its header is forged, or one without a copy whose header is lost.
        if header.as_ref().is_none_or(|(header, _)| header.single_chunk || index.check(header).is_err()) {
            self.current.is_complete = true;
            return;
        }
        let (frames, others) = std::mem::take(&mut self.current.frames).into_iter().partition(fits);
        self.current.frames = others;
        let part = Part { header, frames, index: Some(index), is_complete: true };
        if self.current.is_empty() {
            self.current = part;
        } else {
            self.start(part);
        }
    }

    /// Whether so many bytes may be checked.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.effort.checked_sub(bytes);
        self.effort = left.unwrap_or(self.effort);
        left.is_some()
    }
}

/// The grid from the index, or else from the identities of the frames.
fn grid_of(header: &Header, index: Option<&Index>, frames: &[Found], file_bytes: u64) -> Result<Grid> {
    let Header { shape, chunk_shape, .. } = header;
    if header.single_chunk {
        return Ok(Grid::whole(shape));
    }
    if let Some(index) = index {
        return Grid::new(&header.full_shape(&index.segments)?, chunk_shape, &index.segments);
    }
    let Some(chunks_per_band) = grid::count_chunks(shape, chunk_shape, &[1]) else {
        return Err(Error::corrupt("the header implies more than 2^64 chunks per row"));
    };
    let bands = bands(chunk_shape[0], chunks_per_band, frames);
    let Some(last) = bands.last() else {
        return Err(Error::corrupt("neither an index nor an intact chunk was found: nothing can be saved"));
    };
    header.full_shape(&[last.end()])?;
    // Without an index, nothing else stops a forged header from implying a list of chunks that fills the memory.
    let n_chunks = (last.number + 1).checked_mul(chunks_per_band);
    if n_chunks.is_none_or(|n| n > file_bytes.max(1 << 20)) {
        return Err(Error::corrupt("the header implies far more chunks than the stream has bytes"));
    }
    Grid::of_bands(shape, chunk_shape, &bands)
}

/// The bands of the frames found. Only forged frames contradict each other; then the first one found counts.
fn bands(chunk_rows: usize, chunks_per_band: u64, frames: &[Found]) -> Vec<ChunkBand> {
    let mut bands: BTreeMap<u64, ChunkBand> = BTreeMap::new();
    for Found { identity, .. } in frames {
        let number = identity.chunk_id / chunks_per_band;
        let (Ok(first_row), Ok(rows)) = (usize::try_from(identity.first_row), usize::try_from(identity.rows)) else {
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
