//! Decompression: [`Reader`] opens a stream by its header and index, then decodes any region from just the chunks that
//! it touches. A chunk that is contiguous in the result is decoded in place, others through reused buffers.
//!
//! No byte is trusted, and memory is allocated only within what the stream's own size and the caller's limit allow.

mod lists;
mod salvage;
mod stream;

pub use salvage::{Salvage, salvage, salvage_stream};
pub use stream::StreamReader;

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::codec::Element;
use crate::codec::{Layers, StreamParams};
use crate::container::{self, FrameSpan, Layout, frame, header};
use crate::entropy::codebook::Codebook;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::pages;
use crate::exec::parallel::{self, SERIAL_VALUES, Workers};
use crate::exec::scratch;
use crate::exec::{self, reserve};
use crate::grid::{self, Block, Corner};
use crate::io::{Bytes, ReadAt, check_limit, read};
use crate::num::DType;
use crate::plan::{BoxLimit, ErrorBound, Preset, Region};

/// An array in C order: the result of decompression. It will never have other fields, so that programs can destructure
/// it.
#[derive(Clone, Debug, PartialEq)]
pub struct Array<T> {
    /// Extents, slowest axis first.
    pub shape: Vec<usize>,
    /// The values, the last axis varying fastest.
    pub data: Vec<T>,
}

/// Chunks per worker that are decoded before their values are passed on.
const WINDOW_PER_WORKER: usize = 4;
/// Memory beside the values that does not count, so that a limit of just their size serves for arrays of small chunks.
const FREE_BYTES: u64 = 16 << 20;
/// Memory for a chunk's place in lists.
const CHUNK_BYTES: u64 = 256;
/// Less memory is taken without asking the system first.
const LITTLE_MEMORY: u64 = 1 << 20;

/// What a call may take: a limit, and the part of it that is taken already.
#[derive(Clone, Copy)]
struct Allowance {
    max_bytes: u64,
    taken: u64,
}

/// How chunks share what a call may take.
pub(crate) struct Shares {
    /// How many chunks may be decoded at a time.
    at_once: usize,
    /// How many decoded chunks may wait, with these.
    window: usize,
    /// The most that decoding one of them may take.
    max_bytes: u64,
}

/// How to decode.
///
/// ```
/// let options = pumice::DecodeOptions::new().threads(1).max_bytes(1 << 30);
/// ```
#[derive(Clone, Debug)]
pub struct DecodeOptions {
    pub(crate) threads: usize,
    max_bytes: u64,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { threads: 0, max_bytes: 16 << 30 }
    }
}

impl DecodeOptions {
    /// The defaults: one thread per core, 16 GiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// Worker threads; 0 means one per core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The most memory that one call may take, for decoded values and to decode them; beyond it, the call fails with
    /// [`ErrorKind::LimitExceeded`] before it takes any. Values that are written to the caller's memory do not count, nor do
    /// the first 16 MiB of what decoding takes. If need be, fewer chunks are decoded at a time. docs/memory.md says what
    /// each preset takes.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    pub(crate) fn limit(&self) -> u64 {
        self.max_bytes
    }
}

/// The metadata of a stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Info {
    /// Format version of the stream.
    pub version: u8,
    /// Element type.
    pub dtype: DType,
    /// Extents, slowest axis first.
    pub shape: Vec<usize>,
    /// Chunk extents; those of the array itself if it is a single chunk.
    pub chunk_shape: Vec<usize>,
    /// Number of chunks.
    pub n_chunks: u64,
    /// Pipeline that was asked for.
    pub preset: Preset,
    /// Whether all values lie on a lattice that the absolute bound sets, or are exact, so that compressing them again under
    /// this bound changes none: [`Stable::On`](crate::Stable::On).
    pub stable: bool,
    /// Error bound that was asked for; the first of them, if there are several.
    pub bound: ErrorBound,
    /// All error bounds that were asked for.
    pub bounds: Vec<ErrorBound>,
    /// Boxes in which another bound holds as well.
    pub regions: Vec<Region>,
    /// Extents of the bins whose means replace the values outside of the boxes; empty if there are no bins.
    pub bin: Vec<usize>,
    /// The absolute error bound in effect; 0 if lossless, infinite if none was asked for.
    pub abs_bound: f64,
    /// Fill values that have masks, at most two. Others that a writer found are stored as exact values, and not listed.
    pub fills: Vec<f64>,
    /// Notes that are stored with the array.
    pub attributes: Vec<(String, String)>,
    /// The codebook that chunks share; `None` if each has its own codes.
    pub codebook: Option<Codebook>,
    /// Size of the values.
    pub raw_bytes: u64,
    /// Size of the stream.
    pub compressed_bytes: u64,
    /// Rows along the slowest axis that each writing session added; empty for an array without axes, and for a stream
    /// that was salvaged without its index.
    pub segments: Vec<usize>,
    pub(crate) boxes: Vec<BoxLimit>,
}

impl Info {
    pub(crate) fn new(layout: &Layout, compressed_bytes: u64) -> Result<Self> {
        let (header, grid) = (&layout.header, &layout.grid);
        Ok(Self {
            version: header.version,
            dtype: header.dtype,
            shape: grid.shape().to_vec(),
            chunk_shape: if header.single_chunk { grid.shape() } else { grid.chunk_shape() }.to_vec(),
            n_chunks: grid.n_chunks(),
            preset: header.preset,
            stable: header.stable,
            bound: header.bound,
            bounds: [header.bound].iter().chain(&header.also).copied().collect(),
            regions: header.boxes.iter().map(BoxLimit::region).collect(),
            bin: header.bin.clone(),
            abs_bound: header.abs_bound,
            fills: header.fills.iter().map(|&bits| header::value_as_f64(header.dtype, bits)).collect(),
            attributes: header.attributes.clone(),
            codebook: header.codebook.clone(),
            raw_bytes: grid::n_values(grid.shape()) as u64 * header.dtype.size() as u64,
            compressed_bytes,
            segments: grid.segment_rows()?,
            boxes: header.boxes.clone(),
        })
    }
}

/// Decompresses a whole stream with the default [`DecodeOptions`].
///
/// ```
/// use pumice::{ErrorBound, Config};
/// let bytes = pumice::compress(&[1.0f32, 2.0, 3.0], &[3], &Config::new(ErrorBound::Lossless))?;
/// assert_eq!(pumice::decompress::<f32>(&bytes)?.data, [1.0, 2.0, 3.0]);
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn decompress<T: Element>(bytes: &[u8]) -> Result<Array<T>> {
    Reader::new(bytes, DecodeOptions::default())?.read()
}

/// Decompresses a whole stream into `out`, which must have the same number of values.
pub fn decompress_into<T: Element>(bytes: &[u8], out: &mut [T], options: &DecodeOptions) -> Result<()> {
    let reader = Reader::new(bytes, options.clone())?;
    let region = Block::whole(reader.layout.grid.shape());
    reader.read_block_into(&region, out, options.max_bytes)
}

/// The metadata of a stream, from its header and index.
pub fn inspect(bytes: &[u8]) -> Result<Info> {
    Ok(Reader::new(bytes, DecodeOptions::new().threads(1))?.info)
}

/// An open stream, from which any region can be read.
///
/// ```
/// use pumice::{ErrorBound, Config, DecodeOptions, Reader};
/// let data: Vec<f64> = (0..60_000).map(f64::from).collect();
/// let bytes = pumice::compress(&data, &[200, 300], &Config::new(ErrorBound::Lossless).chunk_shape(&[64, 64]))?;
/// let reader = Reader::new(&bytes[..], DecodeOptions::new())?;
/// assert_eq!(reader.info().shape, [200, 300]);
/// assert_eq!(reader.read_region::<f64>(&[3..5, 299..300])?.data, [1199.0, 1499.0]);
/// # Ok::<(), pumice::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    pub(crate) source: R,
    pub(crate) layout: Layout,
    info: Info,
    workers: Workers,
    max_bytes: u64,
    chunks_decoded: AtomicU64,
}

/// Buffers that a worker reuses from chunk to chunk.
struct Slot<T> {
    bytes: Vec<u8>,
    values: Vec<T>,
}

// Not derived, since that would require `T: Default`.
impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), values: Vec::new() }
    }
}

impl Reader<File> {
    /// Opens a file.
    pub fn open(path: impl AsRef<Path>, options: DecodeOptions) -> Result<Self> {
        let path = path.as_ref();
        let with_path = |e: Error| e.context(path.display());
        let file = File::open(path).map_err(|e| with_path(e.into()))?;
        Self::new(file, options).map_err(with_path)
    }
}

impl<R: ReadAt> Reader<R> {
    /// Reads header and index of a stream: two small reads for most streams.
    pub fn new(source: R, options: DecodeOptions) -> Result<Self> {
        let layout = Layout::read_from(&source, options.max_bytes)?;
        Self::with_layout(source, layout, &options)
    }

    pub(crate) fn with_layout(source: R, layout: Layout, options: &DecodeOptions) -> Result<Self> {
        let info = Info::new(&layout, source.len()?)?;
        // A thread pool is not worth starting for a single chunk, unless its codec uses several workers; `fast` does
        // not.
        let is_shared = match layout.frames.len() {
            0 => false,
            1 => layout.header.preset != Preset::Fast && grid::n_values(layout.grid.shape()) > SERIAL_VALUES,
            _ => true,
        };
        let threads = if is_shared { options.threads } else { 1 };
        let workers = Workers::new(threads)?;
        Ok(Self { source, layout, info, workers, max_bytes: options.max_bytes, chunks_decoded: AtomicU64::new(0) })
    }

    /// The metadata of the stream.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Decodes the whole array.
    pub fn read<T: Element>(&self) -> Result<Array<T>> {
        self.read_block(&Block::whole(self.layout.grid.shape()))
    }

    /// Decodes a region, given as one range of positions per axis, from the chunks that it touches.
    pub fn read_region<T: Element>(&self, region: &[Range<usize>]) -> Result<Array<T>> {
        self.read_block(&self.region_block(region)?)
    }

    /// Decodes a region into `out`, which must have the same number of values, in C order.
    pub fn read_region_into<T: Element>(&self, region: &[Range<usize>], out: &mut [T]) -> Result<()> {
        self.read_block_into(&self.region_block(region)?, out, self.max_bytes)
    }

    /// As [`Self::read_region_into`], but under another limit than that of the options: for callers who got `out` for this
    /// and count it towards the limit.
    pub fn read_region_within<T: Element>(&self, region: &[Range<usize>], out: &mut [T], max_bytes: u64) -> Result<()> {
        self.read_block_into(&self.region_block(region)?, out, max_bytes)
    }

    /// Checks that the stream is long enough for the values of a region, as the other methods do: for callers who allocate
    /// memory for these.
    pub fn check_region(&self, region: &[Range<usize>]) -> Result<()> {
        container::check_frames(&self.layout, &self.layout.grid.chunks_in(&self.region_block(region)?)?)
    }

    /// Number of chunks.
    pub fn n_chunks(&self) -> u64 {
        self.layout.grid.n_chunks()
    }

    /// How many times a chunk was decoded since the stream was opened: the cost of reading a region.
    ///
    /// ```
    /// use pumice::{ErrorBound, Config, DecodeOptions, Reader};
    /// let config = Config::new(ErrorBound::Lossless).chunk_shape(&[64, 64]);
    /// let bytes = pumice::compress(&vec![1f64; 200 * 300], &[200, 300], &config)?;
    /// let reader = Reader::new(&bytes[..], DecodeOptions::new())?;
    /// reader.read_region::<f64>(&[0..100, 7..8])?;
    /// assert_eq!((reader.chunks_decoded(), reader.n_chunks()), (2, 20));
    /// # Ok::<(), pumice::Error>(())
    /// ```
    pub fn chunks_decoded(&self) -> u64 {
        self.chunks_decoded.load(Ordering::Relaxed)
    }

    /// The region that chunk `id` covers.
    pub fn chunk_region(&self, id: u64) -> Result<Vec<Range<usize>>> {
        self.check_ids(&(id..id.saturating_add(1)))?;
        Ok(self.layout.grid.block(id).ranges())
    }

    /// Decodes one chunk.
    pub fn read_chunk<T: Element>(&self, id: u64) -> Result<Array<T>> {
        self.check_ids(&(id..id.saturating_add(1)))?;
        self.read_block(&self.layout.grid.block(id))
    }

    /// Decodes the chunks of these ids, some of them in parallel, and calls `f` with the region and the values of each,
    /// in order of id. Needs memory for one chunk per thread.
    pub fn for_each_chunk<T: Element>(
        &self,
        ids: Range<u64>,
        f: impl FnMut(&[Range<usize>], &[T]) -> Result<()> + Send,
    ) -> Result<()> {
        self.check_ids(&ids)?;
        let mut all = Vec::new();
        reserve(&mut all, (ids.end.saturating_sub(ids.start)) as usize)?;
        all.extend(ids);
        self.for_each_id(&all, f)
    }

    /// [`Self::for_each_chunk`] for ids that exist, ascending.
    pub(crate) fn for_each_id<T: Element>(
        &self,
        ids: &[u64],
        mut f: impl FnMut(&[Range<usize>], &[T]) -> Result<()> + Send,
    ) -> Result<()> {
        self.check_dtype::<T>()?;
        container::check_frames(&self.layout, ids)?;
        let params = self.layout.header.stream_params::<T>();
        let inner = self.workers.for_items(ids.len() as u64);
        // The values of a chunk are what the caller gets.
        let taken = ids.iter().map(|&id| self.layout.grid.chunk_values(id)).max().unwrap_or(0);
        let taken = taken as u64 * size_of::<T>() as u64;
        check_limit(taken, self.max_bytes)?;
        let shares = self.shares::<T>(ids, inner, true, Allowance { max_bytes: self.max_bytes, taken: 0 })?;
        let work =
            |i: usize, slot: &mut Slot<T>| self.decode_to_slot(ids[i], None, &params, inner, shares.max_bytes, slot);
        parallel::ordered(&self.workers, ids.len(), shares.at_once, work, |i, slot| {
            f(&self.layout.grid.block(ids[i]).ranges(), &slot.values)
        })
    }

    /// Ids of all chunks that can be decoded.
    pub(crate) fn decodable<T: Element>(&self) -> Result<Vec<u64>> {
        let params = self.layout.header.stream_params::<T>();
        // Ids without a frame may be those of chunks that nobody knows.
        let has_frame = |id: &u64| self.layout.frames[*id as usize].frame_bytes > 0;
        let n_frames = (0..self.n_chunks()).filter(has_frame).count();
        check_limit((n_frames as u64 * CHUNK_BYTES).saturating_sub(FREE_BYTES), self.max_bytes)?;
        let (mut found, mut ids) = (Vec::new(), Vec::new());
        reserve(&mut found, n_frames)?;
        reserve(&mut ids, n_frames)?;
        let is_large_enough = |id: &u64| container::check_frames(&self.layout, &[*id]).is_ok();
        found.extend((0..self.n_chunks()).filter(|id| has_frame(id) && is_large_enough(id)));
        let shares =
            self.shares::<T>(&found, &Workers::Serial, true, Allowance { max_bytes: self.max_bytes, taken: 0 })?;
        let work = |i: usize, (slot, ok): &mut (Slot<T>, bool)| {
            let decoded = self.decode_to_slot(found[i], None, &params, &Workers::Serial, shares.max_bytes, slot);
            *ok = decoded.is_ok();
            match decoded {
                Err(e) if e.kind() == ErrorKind::LimitExceeded => Err(e),
                _ => Ok(()),
            }
        };
        parallel::ordered(&self.workers, found.len(), shares.at_once, work, |i, (_, ok)| {
            ids.extend(ok.then_some(found[i]));
            Ok(())
        })?;
        Ok(ids)
    }

    /// How the chunks `ids`, whose frames were checked, share what is left of the limit beside the array of `region`; an
    /// error if all of that is above the limit.
    pub(crate) fn shares_beside<T: Element>(&self, ids: &[u64], region: &Block) -> Result<Shares> {
        let taken = region.n_values() as u64 * size_of::<T>() as u64;
        self.shares_of::<T>(ids, region, Allowance { max_bytes: self.max_bytes, taken })
    }

    fn read_block<T: Element>(&self, region: &Block) -> Result<Array<T>> {
        self.check_dtype::<T>()?;
        check_limit(region.n_values() as u64 * size_of::<T>() as u64, self.max_bytes)?;
        let ids = self.layout.grid.chunks_in(region)?;
        container::check_frames(&self.layout, &ids)?;
        let shares = self.shares_beside::<T>(&ids, region)?;
        let mut data = pages::zeroed(region.n_values())?;
        self.decode_into(&ids, region, &mut data, &shares)?;
        Ok(Array { shape: region.extents.clone(), data })
    }

    /// Decodes a region into the caller's memory; takes at most `max_bytes` beside it.
    fn read_block_into<T: Element>(&self, region: &Block, out: &mut [T], max_bytes: u64) -> Result<()> {
        self.check_dtype::<T>()?;
        if out.len() != region.n_values() {
            let n = region.n_values();
            return Err(Error::invalid(format!("the region has {n} values, but the output {}", out.len())));
        }
        let ids = self.layout.grid.chunks_in(region)?;
        container::check_frames(&self.layout, &ids)?;
        let shares = self.shares_of::<T>(&ids, region, Allowance { max_bytes, taken: 0 })?;
        self.decode_into(&ids, region, out, &shares)
    }

    /// Decodes the intersection of the chunks `ids` with `region` into `out`, the array of that region.
    pub(crate) fn decode_into<T: Element>(
        &self,
        ids: &[u64],
        region: &Block,
        out: &mut [T],
        shares: &Shares,
    ) -> Result<()> {
        let params = self.layout.header.stream_params::<T>();
        if shares.at_once == 1 || ids.len() <= 1 {
            return self.decode_serial(ids, region, &params, shares, out);
        }
        let mut rest = ids;
        while !rest.is_empty() {
            let n = rest.iter().take_while(|&&id| self.run_in(id, region).is_some()).count();
            // If not all workers may decode at a time, no more chunks are given to them.
            let at_once = if shares.at_once < self.workers.count() { shares.at_once } else { n.max(1) };
            for ids in rest[..n].chunks(at_once) {
                self.decode_in_place(ids, region, &params, shares, out)?;
            }
            rest = &rest[n..];
            let n = rest.iter().take_while(|&&id| self.run_in(id, region).is_none()).count();
            self.decode_scattered(&rest[..n], region, &params, shares, out)?;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// [`Self::shares`] of the chunks of a region, whose values need no memory of their own where they are contiguous in
    /// its array.
    fn shares_of<T: Element>(&self, ids: &[u64], region: &Block, allowance: Allowance) -> Result<Shares> {
        let has_values = ids.iter().any(|&id| self.run_in(id, region).is_none());
        self.shares::<T>(ids, self.workers.for_items(ids.len() as u64), has_values, allowance)
    }

    /// How chunks share what a call may take; an error if it does not suffice for one at a time. Their frames were checked
    /// to be large enough for their values. `has_values` tells whether their values need memory of their own.
    fn shares<T: Element>(
        &self,
        ids: &[u64],
        inner: &Workers,
        has_values: bool,
        Allowance { max_bytes, taken }: Allowance,
    ) -> Result<Shares> {
        check_limit(taken, max_bytes)?;
        let params = self.layout.header.stream_params::<T>();
        let Some(largest) = ids.iter().copied().max_by_key(|&id| self.layout.grid.chunk_values(id)) else {
            return Ok(Shares { at_once: 1, window: 1, max_bytes });
        };
        let extents = self.layout.grid.block(largest).extents;
        let spans = || ids.iter().map(|&id| self.layout.frames[id as usize]);
        let frame_bytes = spans().map(|span| span.frame_bytes).max().unwrap_or(0);
        let is_in_memory = spans().next().is_none_or(|span| self.source.slice(span.offset, 1).is_some());
        let of_values = if has_values { grid::n_values(&extents) as u64 * size_of::<T>() as u64 } else { 0 };
        let buffers = of_values + if is_in_memory { 0 } else { frame_bytes };
        let work = |layers| params.decode_bytes(frame_bytes, &extents, layers, inner);
        let fixed = taken.saturating_add(ids.len() as u64 * CHUNK_BYTES).saturating_add(buffers);
        let available = max_bytes.saturating_add(FREE_BYTES);
        let n_workers = self.workers.count().min(ids.len());
        // Which layers chunks have is looked up only where it matters.
        let each = |layers| buffers.saturating_add(work(layers).saturating_mul(2));
        let is_ample = each(Layers::ALL).saturating_mul(n_workers as u64) <= available.saturating_sub(fixed);
        let (least, most) = if is_ample { (Layers::NONE, Layers::ALL) } else { self.layers(ids) };
        check_limit(fixed.saturating_add(work(least)).saturating_sub(FREE_BYTES), max_bytes)?;
        // One at a time can take all that is left. Several take what they may need, and keep some of it for their next chunk.
        let left = available.saturating_sub(fixed);
        let (at_least, work) = (work(least), work(most));
        let kept = work.min(scratch::MAX_KEPT_BYTES as u64);
        let each = buffers.saturating_add(work).saturating_add(kept);
        let more = left.checked_sub(work).map_or(0, |left| left / each.max(1));
        let mut at_once = n_workers.min(usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1));
        // The system may have less than the limit.
        let all = |n: usize| (n as u64).saturating_mul(buffers.saturating_add(at_least));
        while all(at_once) > LITTLE_MEMORY
            && let Err(error) = exec::check_memory(all(at_once))
        {
            if at_once == 1 {
                return Err(error);
            }
            at_once /= 2;
        }
        if at_once == 1 {
            return Ok(Shares { at_once, window: 1, max_bytes: left });
        }
        let left = left - work - (at_once - 1) as u64 * each;
        let mut window = at_once;
        if at_once == n_workers {
            let fitting = usize::try_from(left / 2 / buffers.max(1)).unwrap_or(usize::MAX);
            window += ((WINDOW_PER_WORKER - 1) * n_workers).min(fitting);
        }
        let left = left - (window - at_once) as u64 * buffers;
        Ok(Shares { at_once, window, max_bytes: work + left / at_once as u64 })
    }

    /// The layers that chunks have for certain, and those that they can have, by the headers of their frames. Those of
    /// damaged frames do not count: they are not decoded.
    fn layers(&self, ids: &[u64]) -> (Layers, Layers) {
        let mut buffer = Vec::new();
        let (mut least, mut most) = (Layers::NONE, Layers::NONE);
        for &id in ids {
            let FrameSpan { offset, frame_bytes } = self.layout.frames[id as usize];
            let n = frame_bytes.min(frame::MAX_HEADER_BYTES as u64);
            let header = read(&self.source, offset, n, &mut buffer)
                .and_then(|head| frame::FrameHeader::read_from(&mut Bytes::new(head), &self.layout.header));
            if let Ok(header) = header {
                (least, most) = (least.or(Layers::least(header.codec)), most.or(Layers::most(header.codec)));
            }
        }
        (least, most)
    }

    /// The index range of chunk `id` in the region's array, if it lies inside and is contiguous.
    fn run_in(&self, id: u64, region: &Block) -> Option<Range<usize>> {
        let block = self.layout.grid.block(id);
        if block.intersection(region) != block {
            return None;
        }
        grid::contiguous_run(&region.extents, &block.start_in(region), &block.extents)
    }

    fn decode_serial<T: Element>(
        &self,
        ids: &[u64],
        region: &Block,
        params: &StreamParams<T>,
        shares: &Shares,
        out: &mut [T],
    ) -> Result<()> {
        let mut slot = Slot::default();
        let inner = self.workers.for_items(ids.len() as u64);
        for &id in ids {
            match self.run_in(id, region) {
                Some(run) => {
                    self.decode_frame(id, None, params, inner, shares.max_bytes, &mut slot.bytes, &mut out[run])?;
                }
                None => {
                    self.decode_to_slot(id, Some(region), params, inner, shares.max_bytes, &mut slot)?;
                    scatter(&self.layout.grid.block(id), &slot.values, region, out);
                }
            }
        }
        Ok(())
    }

    /// Decodes chunks that are contiguous in `out` directly into it, in parallel.
    fn decode_in_place<T: Element>(
        &self,
        ids: &[u64],
        region: &Block,
        params: &StreamParams<T>,
        shares: &Shares,
        out: &mut [T],
    ) -> Result<()> {
        let mut slots = Vec::new();
        reserve(&mut slots, ids.len())?;
        let (mut rest, mut at) = (out, 0);
        for &id in ids {
            // In order of id, runs are in order of address too.
            let Some(run) = self.run_in(id, region) else { continue };
            let (head, tail) = rest.split_at_mut(run.end - at);
            slots.push((id, &mut head[run.start - at..]));
            (rest, at) = (tail, run.end);
        }
        self.workers.for_each(&mut slots, |_, (id, values)| {
            self.decode_frame(*id, None, params, &Workers::Serial, shares.max_bytes, &mut Vec::new(), values)
        })
    }

    /// Decodes chunks through buffers: a window of them in parallel, then their parts of `out`, again in parallel.
    fn decode_scattered<T: Element>(
        &self,
        ids: &[u64],
        region: &Block,
        params: &StreamParams<T>,
        shares: &Shares,
        out: &mut [T],
    ) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let window = shares.window.min(ids.len());
        let mut slots: Vec<Slot<T>> = (0..window).map(|_| Slot::default()).collect();
        for ids in ids.chunks(window) {
            let slots = &mut slots[..ids.len()];
            self.workers.for_each(slots, |i, slot| {
                self.decode_to_slot(ids[i], Some(region), params, &Workers::Serial, shares.max_bytes, slot)
            })?;
            let parts: Vec<(Block, &[T])> =
                ids.iter().map(|&id| self.layout.grid.block(id)).zip(slots.iter().map(|s| &s.values[..])).collect();
            self.scatter_all(&parts, region, out)?;
        }
        Ok(())
    }

    /// Copies decoded chunks to `out`, in parallel over bands along its first axis of more than one point.
    fn scatter_all<T: Element>(&self, parts: &[(Block, &[T])], region: &Block, out: &mut [T]) -> Result<()> {
        let Some(axis) = region.extents.iter().position(|&n| n > 1) else {
            parts.iter().for_each(|(block, values)| scatter(block, values, region, out));
            return Ok(());
        };
        let first = parts.iter().map(|(b, _)| b.start[axis].max(region.start[axis])).min().unwrap_or(0);
        let region_end = region.start[axis] + region.extents[axis];
        let end = parts.iter().map(|(b, _)| (b.start[axis] + b.extents[axis]).min(region_end)).max().unwrap_or(first);
        let stride: usize = region.extents[axis + 1..].iter().product();
        let band_rows = (end - first).div_ceil(4 * self.workers.count()).max(1);
        let touched = &mut out[(first - region.start[axis]) * stride..(end - region.start[axis]) * stride];
        let mut bands: Vec<&mut [T]> = touched.chunks_mut(band_rows * stride).collect();
        self.workers.for_each(&mut bands, |i, band| {
            let mut band_region = region.clone();
            band_region.start[axis] = first + i * band_rows;
            band_region.extents[axis] = band.len() / stride;
            parts.iter().for_each(|(block, values)| scatter(block, values, &band_region, band));
            Ok(())
        })
    }

    /// Decodes a chunk, or at least its intersection with `region`, into the slot's own values.
    fn decode_to_slot<T: Element>(
        &self,
        id: u64,
        region: Option<&Block>,
        params: &StreamParams<T>,
        inner: &Workers,
        max_bytes: u64,
        slot: &mut Slot<T>,
    ) -> Result<()> {
        let n = self.layout.grid.chunk_values(id);
        if slot.values.len() < n {
            let more = n - slot.values.len();
            reserve(&mut slot.values, more)?;
        }
        slot.values.resize(n, T::default());
        let block = self.layout.grid.block(id);
        let wanted = region.map(|region| block.intersection(region).ranges_in(&block));
        self.decode_frame(id, wanted.as_deref(), params, inner, max_bytes, &mut slot.bytes, &mut slot.values)
    }

    /// Decodes chunk `id`, or at least the box `wanted` of it, into `out`, which has the size of the chunk. Takes at most
    /// `max_bytes` beside that and the frame's bytes.
    #[expect(clippy::too_many_arguments, reason = "what the chunk is, how to decode it, and to where")]
    pub(crate) fn decode_frame<T: Element>(
        &self,
        id: u64,
        wanted: Option<&[Range<usize>]>,
        params: &StreamParams<T>,
        inner: &Workers,
        max_bytes: u64,
        buffer: &mut Vec<u8>,
        out: &mut [T],
    ) -> Result<()> {
        let span = self.layout.frames[id as usize];
        let extents = self.layout.grid.block(id).extents;
        let mut decode = || {
            let bytes = read(&self.source, span.offset, span.frame_bytes, buffer)?;
            let (frame_header, payload) = frame::open(bytes, &self.layout.header, &self.layout.identity(id))?;
            frame_header.check_plausible(out.len(), T::DTYPE)?;
            self.chunks_decoded.fetch_add(1, Ordering::Relaxed);
            T::decode_chunk(frame_header.codec, payload, &params.chunk(&extents, wanted, inner, max_bytes), out)
        };
        decode().map_err(|e: Error| e.context(format_args!("chunk {id}")))
    }

    pub(crate) fn region_block(&self, region: &[Range<usize>]) -> Result<Block> {
        let shape = self.layout.grid.shape();
        let inside =
            region.len() == shape.len() && region.iter().zip(shape).all(|(r, &n)| r.start <= r.end && r.end <= n);
        if !inside {
            return Err(Error::invalid(format!("region {region:?} is not within the array of shape {shape:?}")));
        }
        Ok(Block {
            start: region.iter().map(|r| r.start).collect(),
            extents: region.iter().map(|r| r.end - r.start).collect(),
        })
    }

    fn check_ids(&self, ids: &Range<u64>) -> Result<()> {
        let n = self.n_chunks();
        if ids.end <= n {
            return Ok(());
        }
        Err(Error::invalid(format!("chunks {ids:?} were asked for, but there are {n}")))
    }

    pub(crate) fn check_dtype<T: Element>(&self) -> Result<()> {
        let dtype = self.layout.header.dtype;
        if T::DTYPE == dtype {
            return Ok(());
        }
        Err(Error::invalid(format!("the stream holds {dtype} values, not {}; read it as {dtype}", T::DTYPE)))
    }
}

/// Copies the intersection of `block` and `region` from the array of one to that of the other.
pub(crate) fn scatter<T: Copy>(block: &Block, values: &[T], region: &Block, out: &mut [T]) {
    let common = block.intersection(region);
    if common.n_values() == 0 {
        return;
    }
    let from = Corner { shape: &block.extents, start: &common.start_in(block) };
    let to = Corner { shape: &region.extents, start: &common.start_in(region) };
    grid::copy_block(values, from, out, to, &common.extents);
}
