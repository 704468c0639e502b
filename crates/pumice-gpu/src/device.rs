//! The public interface: encodes and decodes arrays and streams on the host or on the device.

mod resident;

pub use resident::FramesOnDevice;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use pumice::backend::{self, Assembler, Blueprint, ChunkBox, CodecId, FastCandidate, Frames};
use pumice::{Array, Config, DecodeOptions, Error, Preset, Result};

use crate::balanced::{self, BalancedDecoder, BalancedEncoder};
use crate::boxes::{self, Corner};
use crate::cuda::Cuda;
use crate::fast::{Encoded, FastDecoder, FastEncoder, Outcome, chunk_offsets};
use crate::hash::Hasher;
use crate::kernels::{DeviceElement, Item};
use crate::payloads::{self, Delivered, DevicePayload};
use crate::runtime::{Buffer, DevicePtr, Runtime, Stream};
use crate::scan::Scan;
use crate::staging;

/// Chunks that lie only partly in a region are decoded to temporary memory, in batches of up to this many bytes.
const GATHERED_BYTES: usize = 256 << 20;

/// A device that runs Pumice's kernels. Cheap to clone.
///
/// ```no_run
/// use pumice::{ErrorBound, Config, DecodeOptions, Preset};
/// let device = pumice_gpu::Device::cuda(0)?;
/// let data = vec![0.5f32; 1 << 20];
/// let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast);
/// let bytes = device.compress(&data, &[1024, 1024], &config)?;
/// assert_eq!(bytes, pumice::compress(&data, &[1024, 1024], &config)?);
/// let back = device.decompress::<f32>(&bytes, &DecodeOptions::new())?;
/// # Ok::<(), pumice::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    runtime: Arc<dyn Runtime>,
}

impl Device {
    /// The CUDA device of this number. Fails with an error of kind `Device` if there is no driver or no such device.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Ok(Self { runtime: Arc::new(Cuda::new(ordinal)?) })
    }

    /// The emulator, which runs the kernels on the CPU, for tests: blocks run in a random order, drawn from `seed`.
    #[cfg(feature = "emulator")]
    #[must_use]
    pub fn emulated(seed: u64) -> Self {
        Self { runtime: Arc::new(crate::emulated::Emulated::new(seed)) }
    }

    /// The name of the device.
    #[must_use]
    pub fn name(&self) -> String {
        self.runtime.name()
    }

    /// Bytes of device memory: free, and total.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.runtime.memory()
    }

    /// Whether the device can encode with this configuration, and decode streams encoded with it; an error of kind
    /// `Unsupported` says what it has no kernels for. The arguments are checked later, against an array.
    ///
    /// ```no_run
    /// use pumice::{Config, ErrorBound, Preset};
    /// let device = pumice_gpu::Device::cuda(0)?;
    /// assert!(device.supports(&Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast)).is_ok());
    /// assert!(device.supports(&Config::new(ErrorBound::Psnr(60.0)).preset(Preset::Fast)).is_err());
    /// # Ok::<(), pumice::Error>(())
    /// ```
    pub fn supports(&self, config: &Config) -> Result<()> {
        backend::check_supported(config)
    }

    /// Waits until all work enqueued in a stream is done.
    pub fn synchronize(&self, stream: Stream) -> Result<()> {
        self.runtime.synchronize(stream)
    }

    /// The time in seconds, measured by the device, of the work that `work` enqueues in a stream.
    pub fn time(&self, stream: Stream, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        self.runtime.time(stream, &mut work)
    }

    /// Device memory for `len` values, not initialised.
    pub fn allocate<T: Item>(&self, len: usize) -> Result<DeviceArray<T>> {
        Ok(DeviceArray { buffer: Buffer::new(&self.runtime, len)? })
    }

    /// A copy of `values` in device memory.
    pub fn upload<T: Item>(&self, values: &[T]) -> Result<DeviceArray<T>> {
        Ok(DeviceArray { buffer: Buffer::with(&self.runtime, values, Stream::DEFAULT)? })
    }

    /// Copies values within device memory, in a stream.
    pub fn copy<T: Item>(&self, from: &DeviceArray<T>, to: &mut DeviceArray<T>, stream: Stream) -> Result<()> {
        assert_eq!(from.buffer.len(), to.buffer.len(), "the arrays have the same length");
        let n_bytes = from.buffer.len() * size_of::<T>();
        // SAFETY: both buffers have that many bytes.
        unsafe { self.runtime.copy_within(to.buffer.at(), from.buffer.at(), n_bytes, stream) }
    }

    /// Plans the stream of an array in device memory: finds its value range and fill values there. Waits.
    pub fn blueprint<T: DeviceElement>(
        &self,
        values: DeviceSlice<'_, T>,
        shape: &[usize],
        config: &Config,
        stream: Stream,
    ) -> Result<Blueprint<T>> {
        check_len(values.len, shape)?;
        self.supports(config)?;
        let DeviceSlice { at, len, .. } = values;
        let passes = Scan::<T> { runtime: &self.runtime, values: at, n_values: len, stream, element: PhantomData };
        Blueprint::new(config, shape, &backend::scan(&passes, config)?)
    }

    /// Compresses an array on the host with the device; returns the same bytes as `pumice::compress`.
    pub fn compress<T: DeviceElement>(&self, values: &[T], shape: &[usize], config: &Config) -> Result<Vec<u8>> {
        check_len(values.len(), shape)?;
        let stream = Stream::DEFAULT;
        let on_device = self.upload(values)?;
        let blueprint = self.blueprint(on_device.as_slice(), shape, config, stream)?;
        let mut encoder = Encoder::new(self, &blueprint)?;
        encoder.encode(on_device.as_slice(), stream)?;
        encoder.finish(on_device.as_slice(), stream)
    }

    /// Decompresses a whole stream on the host with the device.
    pub fn decompress<T: DeviceElement>(&self, bytes: &[u8], options: &DecodeOptions) -> Result<Array<T>> {
        let frames = Frames::open(bytes, options)?;
        let shape = frames.info().shape.clone();
        let mut data = backend::zeroed(shape.iter().product())?;
        let mut on_device = self.allocate::<T>(data.len())?;
        self.decode(&frames, on_device.as_mut_slice(), Stream::DEFAULT)?;
        on_device.buffer.read(0, &mut data, Stream::DEFAULT)?;
        Ok(Array { shape, data })
    }

    /// The same for a region: decodes only the chunks that overlap it, and with `fast` only the tiles.
    pub fn decompress_region<T: DeviceElement>(
        &self,
        bytes: &[u8],
        region: &[Range<usize>],
        options: &DecodeOptions,
    ) -> Result<Array<T>> {
        let frames = Frames::open_region(bytes, region, options)?;
        let shape: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
        let mut data = backend::zeroed(shape.iter().product())?;
        let mut on_device = self.allocate::<T>(data.len())?;
        self.decode_region(&frames, region, on_device.as_mut_slice(), Stream::DEFAULT)?;
        on_device.buffer.read(0, &mut data, Stream::DEFAULT)?;
        Ok(Array { shape, data })
    }

    /// Decodes a stream to an array in device memory. The host decodes chunks that the device has no kernels for;
    /// returns their number. Waits until all is done.
    pub fn decode<'a, T: DeviceElement>(
        &self,
        frames: impl Into<Stored<'a>>,
        values: DeviceSliceMut<'a, T>,
        stream: Stream,
    ) -> Result<usize> {
        let decoder = Decoder::<T>::new(self, frames, values, stream)?;
        decoder.decode(stream)?;
        decoder.finish(stream)
    }

    /// Decodes a region of a stream's array to device memory, as [`Self::decompress_region`] does. In addition to the
    /// payloads, takes 256 MiB of device memory or a chunk, whichever is more. Returns the number of chunks that the
    /// host decoded. Waits until all is done.
    pub fn decode_region<'a, T: DeviceElement>(
        &self,
        frames: impl Into<Stored<'a>>,
        region: &[Range<usize>],
        values: DeviceSliceMut<'a, T>,
        stream: Stream,
    ) -> Result<usize> {
        let stored = frames.into();
        let frames = stored.frames();
        let mut ids = frames.chunks_in(region)?;
        let mut n_on_host = 0;
        while !ids.is_empty() {
            let mut n_bytes = 0;
            let n = ids.iter().take_while(|id| {
                n_bytes += frames.chunk(**id).n_values() * size_of::<T>();
                n_bytes <= GATHERED_BYTES
            });
            let rest = ids.split_off(n.count().max(1));
            let DeviceSliceMut { at, len, .. } = values;
            let values = DeviceSliceMut { at, len, values: PhantomData };
            let decoder = Decoder::<T>::of_chunks(self, stored, ids, region.to_vec(), values, stream)?;
            decoder.decode(stream)?;
            n_on_host += decoder.finish(stream)?;
            ids = rest;
        }
        Ok(n_on_host)
    }
}

fn check_len(len: usize, shape: &[usize]) -> Result<()> {
    if shape.iter().try_fold(1_usize, |n, extent| n.checked_mul(*extent)) == Some(len) {
        return Ok(());
    }
    let message = format!("an array of shape {shape:?} does not have {len} values");
    Err(Error::new(pumice::ErrorKind::InvalidArgument, message))
}

/// Values in device memory, freed when dropped.
#[derive(Debug)]
pub struct DeviceArray<T: Item> {
    buffer: Buffer<T>,
}

impl<T: Item> DeviceArray<T> {
    /// All values, for reading.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { at: self.buffer.at(), len: self.buffer.len(), values: PhantomData }
    }

    /// All values, for writing.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut { at: self.buffer.at(), len: self.buffer.len(), values: PhantomData }
    }

    /// Copies all values to the host.
    pub fn to_vec(&self, stream: Stream) -> Result<Vec<T>> {
        let mut values = vec![T::default(); self.buffer.len()];
        self.buffer.read(0, &mut values, stream)?;
        Ok(values)
    }
}

/// Values in device memory, for reading.
///
/// Kernels may use them after a call has returned. Memory of a [`DeviceArray`] is freed only when they are done; for
/// other memory see [`DeviceSlice::from_raw`].
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a, T> {
    at: DevicePtr,
    len: usize,
    values: PhantomData<&'a [T]>,
}

impl<T: Item> DeviceSlice<'_, T> {
    /// Values at an address that the caller owns.
    ///
    /// # Safety
    /// `at` is aligned and valid for `len` values until all work that uses them is done.
    #[must_use]
    pub unsafe fn from_raw(at: DevicePtr, len: usize) -> Self {
        Self { at, len, values: PhantomData }
    }

    /// A part of these values: for example the stream that was written to a larger buffer.
    ///
    /// # Panics
    /// If the range is not within these values.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is not within {} values", self.len);
        Self { at: self.at + (range.start * size_of::<T>()) as u64, len: range.len(), ..self }
    }

    /// The address of the first value.
    #[must_use]
    pub fn at(&self) -> DevicePtr {
        self.at
    }
}

/// Values in device memory, for writing; otherwise as [`DeviceSlice`].
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    at: DevicePtr,
    len: usize,
    values: PhantomData<&'a mut [T]>,
}

impl<T: Item> DeviceSliceMut<'_, T> {
    /// Memory for values at an address that the caller owns.
    ///
    /// # Safety
    /// `at` is aligned and valid for `len` values until all work that uses them is done, and nothing else uses them.
    #[must_use]
    pub unsafe fn from_raw(at: DevicePtr, len: usize) -> Self {
        Self { at, len, values: PhantomData }
    }
}

/// Encodes arrays that share a blueprint, with working space that is allocated once.
#[derive(Debug)]
pub struct Encoder<'a, T: DeviceElement> {
    runtime: Arc<dyn Runtime>,
    blueprint: &'a Blueprint<T>,
    boxes: Vec<ChunkBox>,
    /// Index of the first value of each chunk, in the array or in the memory of gathered chunks.
    offsets: Vec<usize>,
    gathered: Option<Buffer<T>>,
    coder: ChunkEncoder<T>,
    hasher: Hasher,
}

/// The payload of a chunk, on the device or on the host.
enum ChunkPayload {
    OnDevice(DevicePtr, usize),
    OnHost(Vec<u8>),
}

impl ChunkPayload {
    fn n_bytes(&self) -> usize {
        match self {
            Self::OnDevice(_, n_bytes) => *n_bytes,
            Self::OnHost(bytes) => bytes.len(),
        }
    }
}

/// Address and size of each payload, if it is on the device.
type Payloads = Vec<Option<(DevicePtr, usize)>>;

/// The encoder of a codec.
#[derive(Debug)]
enum ChunkEncoder<T: DeviceElement> {
    Fast(Box<FastEncoder<T>>),
    Balanced(Box<BalancedEncoder<T>>),
}

impl<'a, T: DeviceElement> Encoder<'a, T> {
    /// Allocates working space: for all payloads, for their directories, and for chunks that are not contiguous. Fails
    /// with an error of kind `Unsupported` if there are no kernels for the configuration.
    pub fn new(device: &Device, blueprint: &'a Blueprint<T>) -> Result<Self> {
        let boxes: Vec<ChunkBox> = (0..blueprint.n_chunks()).map(|id| blueprint.chunk(id)).collect();
        let (offsets, n_gathered) = chunk_offsets(&boxes);
        let runtime = Arc::clone(&device.runtime);
        let gathered = match n_gathered {
            0 => None,
            n => Some(Buffer::new(&runtime, n)?),
        };
        // Without a step, chunks are coded by `fast`, whatever the preset.
        let coder = if blueprint.preset() == Preset::Fast || blueprint.quantizer().is_none() {
            ChunkEncoder::Fast(Box::new(FastEncoder::new(&runtime, blueprint, Stream::DEFAULT)?))
        } else {
            ChunkEncoder::Balanced(Box::new(BalancedEncoder::new(&runtime, blueprint, Stream::DEFAULT)?))
        };
        let n_bytes = boxes.iter().map(|chunk| chunk.n_values() * size_of::<T>()).sum();
        let hasher = Hasher::new(&runtime, boxes.len(), n_bytes)?;
        Ok(Self { runtime, blueprint, boxes, offsets, gathered, coder, hasher })
    }

    /// Size of the working space in device memory, in bytes.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        let coder = match &self.coder {
            ChunkEncoder::Fast(fast) => fast.device_bytes(),
            ChunkEncoder::Balanced(balanced) => balanced.device_bytes(),
        };
        coder + self.hasher.device_bytes() + self.gathered.as_ref().map_or(0, |b| (b.len() * size_of::<T>()) as u64)
    }

    fn address(&self, id: usize, values: DevicePtr) -> DevicePtr {
        let first = match (&self.gathered, self.boxes[id].offset) {
            (Some(gathered), None) => gathered.at(),
            _ => values,
        };
        first + (self.offsets[id] * size_of::<T>()) as u64
    }

    /// Enqueues the encoding of an array. Does not allocate, and does not wait, unless the address differs from the
    /// last one and has to be copied to the device.
    pub fn encode(&mut self, values: DeviceSlice<'_, T>, stream: Stream) -> Result<()> {
        check_len(values.len, self.blueprint.shape())?;
        let values = values.at;
        for (id, chunk) in self.boxes.iter().enumerate().filter(|(_, chunk)| chunk.offset.is_none()) {
            let array = Corner { array: values, shape: self.blueprint.shape(), start: &chunk.start };
            let run =
                Corner { array: self.address(id, values), shape: &chunk.extents, start: &vec![0; chunk.start.len()] };
            // SAFETY: a slice is valid; the memory was allocated for the chunk.
            unsafe { boxes::copy(&self.runtime, array, run, &chunk.extents, size_of::<T>(), stream)? };
        }
        let at: Vec<DevicePtr> = (0..self.boxes.len()).map(|id| self.address(id, values)).collect();
        // SAFETY: a slice is valid, and the chunks lie within it or within the memory allocated for them.
        unsafe {
            match &mut self.coder {
                ChunkEncoder::Fast(fast) => fast.encode(&at, stream),
                ChunkEncoder::Balanced(balanced) => balanced.encode(&at, stream),
            }
        }
    }

    /// Waits, and returns the codec, and address and size of each payload; `None` if the host has to encode the chunk.
    fn payloads(&self, stream: Stream) -> Result<(CodecId, Payloads)> {
        Ok(match &self.coder {
            ChunkEncoder::Fast(fast) => (CodecId::Fast, fast.payloads(stream)?),
            ChunkEncoder::Balanced(balanced) => (CodecId::Balanced, balanced.payloads(stream)?),
        })
    }

    /// Waits, and returns the number of chunks that the host will encode, since the device has no kernels for them.
    pub fn n_left_to_host(&self, stream: Stream) -> Result<usize> {
        let (codec, payloads) = self.payloads(stream)?;
        let needs_host = self.blueprint.needs_cpu();
        let is_left = |payload: &&Option<_>| needs_host || (codec == CodecId::Balanced && payload.is_none());
        Ok(payloads.iter().filter(is_left).count())
    }

    /// Waits, and copies the complete stream to the host. `values` must still be the encoded ones: chunks that do not
    /// shrink are stored raw.
    pub fn finish(&self, values: DeviceSlice<'_, T>, stream: Stream) -> Result<Vec<u8>> {
        check_len(values.len, self.blueprint.shape())?;
        let mut assembler = Assembler::new(self.blueprint, Vec::new())?;
        for payload in self.chunk_payloads(values.at, stream)? {
            let (codec, payload) = payload?;
            assembler.chunk(codec, payload.n_bytes(), |to| match &payload {
                ChunkPayload::OnHost(bytes) => {
                    to.copy_from_slice(bytes);
                    Ok(())
                }
                // SAFETY: the payload is in device memory or in a valid slice; `to` outlives the wait.
                ChunkPayload::OnDevice(from, n_bytes) => unsafe {
                    staging::download(&*self.runtime, to.as_mut_ptr(), *from, *n_bytes, stream)
                },
            })?;
        }
        assembler.finish()
    }

    /// Waits, and returns codec and payload of each chunk; the host encodes those that the device left to it.
    fn chunk_payloads(
        &self,
        values: DevicePtr,
        stream: Stream,
    ) -> Result<impl Iterator<Item = Result<(CodecId, ChunkPayload)>>> {
        let (codec, payloads) = self.payloads(stream)?;
        Ok(payloads.into_iter().enumerate().map(move |(id, payload)| {
            let n_values = self.boxes[id].n_values();
            let needs_host = self.blueprint.needs_cpu();
            match payload {
                Some((at, n_bytes)) if !needs_host => Ok((codec, ChunkPayload::OnDevice(at, n_bytes))),
                payload if needs_host || (codec == CodecId::Balanced && payload.is_none()) => {
                    let mut chunk = vec![T::default(); n_values];
                    let (to, n_bytes) = (chunk.as_mut_ptr().cast(), size_of_val(&chunk[..]));
                    // SAFETY: a slice is valid; `chunk` outlives the wait.
                    unsafe { self.runtime.copy_out(to, self.address(id, values), n_bytes, stream)? };
                    self.runtime.synchronize(stream)?;
                    let mut bytes = Vec::new();
                    let codec = self.blueprint.encode_on_cpu(id, &chunk, &mut bytes)?;
                    Ok((codec, ChunkPayload::OnHost(bytes)))
                }
                _ => Ok((CodecId::Raw, ChunkPayload::OnDevice(self.address(id, values), n_values * size_of::<T>()))),
            }
        }))
    }
}

/// A stream to be decoded, on the host or on the device.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Stored<'a> {
    /// In host memory.
    OnHost(&'a Frames<'a>),
    /// In device memory.
    OnDevice(&'a FramesOnDevice<'a>),
}

impl<'a> Stored<'a> {
    fn frames(self) -> &'a Frames<'a> {
        match self {
            Self::OnHost(frames) => frames,
            Self::OnDevice(stored) => &stored.frames,
        }
    }
}

impl<'a, 'b: 'a> From<&'a Frames<'b>> for Stored<'a> {
    fn from(frames: &'a Frames<'b>) -> Self {
        Self::OnHost(frames)
    }
}

impl<'a, 'b: 'a> From<&'a FramesOnDevice<'b>> for Stored<'a> {
    fn from(frames: &'a FramesOnDevice<'b>) -> Self {
        Self::OnDevice(frames)
    }
}

/// Decodes one stream, or a region of it, any number of times. Holds the payloads in device memory.
#[derive(Debug)]
pub struct Decoder<'a, T: DeviceElement> {
    runtime: Arc<dyn Runtime>,
    frames: &'a Frames<'a>,
    /// The part of the array that `values` receives.
    region: Vec<Range<usize>>,
    values: DeviceSliceMut<'a, T>,
    parts: Vec<Part>,
    /// The parts that the device decodes, by codec.
    fast_parts: Vec<usize>,
    fast: FastDecoder<T>,
    balanced_parts: Vec<usize>,
    balanced: BalancedDecoder<T>,
    /// Raw chunks, whose payloads are their values, and their addresses.
    raw_parts: Vec<usize>,
    raw: Vec<DevicePayload>,
    /// Kept alive because the device reads and writes them.
    _payloads: Buffer<u8>,
    _gathered: Option<Buffer<T>>,
}

/// A chunk that contains values of the region.
#[derive(Debug)]
struct Part {
    id: usize,
    chunk: ChunkBox,
    /// The box of its values that lies in the region, relative to the chunk's start.
    wanted: Vec<Range<usize>>,
    /// The position of that box in the region.
    start: Vec<usize>,
    /// The address that the chunk is decoded to, and whether that is its final one in the region.
    at: DevicePtr,
    is_in_place: bool,
}

impl Part {
    fn new(id: usize, chunk: ChunkBox, region: &[Range<usize>]) -> Self {
        let axes = || chunk.start.iter().zip(&chunk.extents).zip(region);
        let wanted = axes().map(|((&start, &n), region)| {
            region.start.saturating_sub(start)..n.min(region.end - start.min(region.end))
        });
        let start = axes().map(|((&start, _), region)| start.saturating_sub(region.start));
        let (wanted, start) = (wanted.collect(), start.collect());
        Self { id, wanted, start, chunk, at: 0, is_in_place: false }
    }

    fn is_whole(&self) -> bool {
        self.wanted.iter().zip(&self.chunk.extents).all(|(wanted, n)| wanted.len() == *n)
    }
}

impl<'a, T: DeviceElement> Decoder<'a, T> {
    /// Verifies the stream's checksums and copies its payloads to the device, unless they are there. [`Self::decode`]
    /// will write to `values`.
    pub fn new(
        device: &Device,
        frames: impl Into<Stored<'a>>,
        values: DeviceSliceMut<'a, T>,
        stream: Stream,
    ) -> Result<Self> {
        let stored = frames.into();
        let region = stored.frames().info().shape.iter().map(|n| 0..*n).collect();
        Self::of_chunks(device, stored, (0..stored.frames().n_chunks()).collect(), region, values, stream)
    }

    /// The same for chunks that hold values of a region.
    fn of_chunks(
        device: &Device,
        stored: Stored<'a>,
        ids: Vec<usize>,
        region: Vec<Range<usize>>,
        values: DeviceSliceMut<'a, T>,
        stream: Stream,
    ) -> Result<Self> {
        check_len(values.len, &region.iter().map(ExactSizeIterator::len).collect::<Vec<_>>())?;
        let (runtime, frames) = (Arc::clone(&device.runtime), stored.frames());
        let mut parts: Vec<Part> = ids.into_iter().map(|id| Part::new(id, frames.chunk(id), &region)).collect();
        let gathered = place_parts(&runtime, &mut parts, &region, values.at)?;
        let (mut fast_parts, mut balanced_parts, mut raw_parts) = (Vec::new(), Vec::new(), Vec::new());
        for (number, part) in parts.iter().enumerate() {
            let parts = match (frames.frame(part.id)?.codec, stored) {
                (CodecId::Fast, _) => &mut fast_parts,
                (CodecId::Balanced, _) => &mut balanced_parts,
                (CodecId::Raw, Stored::OnDevice(_)) => &mut raw_parts,
                _ => continue,
            };
            if part.chunk.n_values() > 0 {
                parts.push(number);
            }
        }
        let on_device = fast_parts.iter().chain(&balanced_parts).chain(&raw_parts);
        let ids: Vec<usize> = on_device.map(|number| parts[*number].id).collect();
        let Delivered { payloads, memory } = match stored {
            Stored::OnHost(frames) => payloads::upload(&runtime, frames, &ids, stream)?,
            Stored::OnDevice(frames) => frames.deliver(&runtime, &ids, stream)?,
        };
        let mut payloads = payloads.into_iter();
        let mut encoded = Vec::with_capacity(fast_parts.len());
        for (number, payload) in fast_parts.iter().zip(&mut payloads) {
            let part = &parts[*number];
            let candidate = FastCandidate::read_from(&payload.front, &part.chunk.extents)?;
            candidate.check_payload_bytes(payload.n_bytes)?;
            let tiles = match part.is_whole() {
                true => None,
                false => Some(candidate.tiles_in(&part.chunk.extents, &part.wanted)?),
            };
            let DevicePayload { at: payload, n_bytes: payload_bytes, .. } = payload;
            encoded.push(Encoded { candidate, tiles, payload, payload_bytes, values: part.at });
        }
        let mut encoded_balanced = Vec::with_capacity(balanced_parts.len());
        for (number, payload) in balanced_parts.iter().zip(&mut payloads) {
            let DevicePayload { at: payload, n_bytes: payload_bytes, front } = payload;
            let part = &parts[*number];
            let (extents, order) = (&part.chunk.extents, balanced::order_of(&front));
            encoded_balanced.push(balanced::Encoded { extents, payload, payload_bytes, values: part.at, order });
        }
        let raw = payloads.collect();
        let (step, fills) = (frames.step::<T>()?, frames.fills::<T>()?);
        let fast = FastDecoder::new(&runtime, (step, &fills), &encoded, stream)?;
        let balanced = BalancedDecoder::new(&runtime, (step, &fills), &encoded_balanced, stream)?;
        Ok(Self {
            runtime,
            frames,
            region,
            values,
            parts,
            fast_parts,
            fast,
            balanced_parts,
            balanced,
            raw_parts,
            raw,
            _payloads: memory,
            _gathered: gathered,
        })
    }

    /// Enqueues the decoding of all chunks of codecs `fast` and `balanced`, which [`Decoder::finish`] completes.
    pub fn decode(&self, stream: Stream) -> Result<()> {
        // SAFETY: the slice is valid, and this holds it and the payloads.
        unsafe {
            self.fast.decode(stream)?;
            self.balanced.decode(stream)?;
        }
        for (number, payload) in self.raw_parts.iter().zip(&self.raw) {
            // SAFETY: the payload is in device memory, and has the size of the chunk.
            unsafe { self.runtime.copy_within(self.parts[*number].at, payload.at, payload.n_bytes, stream)? };
        }
        for number in self.fast_parts.iter().chain(&self.balanced_parts).chain(&self.raw_parts) {
            self.put(&self.parts[*number], stream)?;
        }
        Ok(())
    }

    /// Copies the wanted part of a chunk that was decoded to temporary memory.
    fn put(&self, part: &Part, stream: Stream) -> Result<()> {
        if part.is_in_place {
            return Ok(());
        }
        let first: Vec<usize> = part.wanted.iter().map(|range| range.start).collect();
        let extents: Vec<usize> = part.wanted.iter().map(ExactSizeIterator::len).collect();
        let shape: Vec<usize> = self.region.iter().map(ExactSizeIterator::len).collect();
        let from = Corner { array: part.at, shape: &part.chunk.extents, start: &first };
        let to = Corner { array: self.values.at, shape: &shape, start: &part.start };
        // SAFETY: the slice is valid; the chunk was decoded to `part.at`.
        unsafe { boxes::copy(&self.runtime, from, to, &extents, size_of::<T>(), stream) }
    }

    /// Waits, checks for errors, and decodes the chunks that the device has no kernels for on the host; returns their
    /// number. If integers have more bits than expected, decodes once more with another kernel, which
    /// [`Decoder::decode`] uses from then on.
    pub fn finish(&self, stream: Stream) -> Result<usize> {
        let mut outcome = self.fast.outcome(stream)?;
        if outcome == Outcome::Again {
            self.decode(stream)?;
            outcome = self.fast.outcome(stream)?;
        }
        let left = self.balanced.left_to_host(stream)?;
        let done = self.balanced_parts.iter().zip(left).filter(|(_, left)| !left).map(|(number, _)| number);
        let mut is_done = vec![false; self.parts.len()];
        self.fast_parts.iter().chain(&self.raw_parts).chain(done).for_each(|number| is_done[*number] = true);
        if outcome != Outcome::Done {
            // The host reports the error, or decodes the chunk if only the device does not support it.
            is_done.fill(false);
        }
        let (mut n_on_host, mut values) = (0, Vec::new());
        for (part, _) in self.parts.iter().zip(is_done).filter(|(_, is_done)| !is_done) {
            n_on_host += 1;
            values.clear();
            values.resize(part.chunk.n_values(), T::default());
            self.frames.decode_on_cpu(part.id, &mut values)?;
            let n_bytes = size_of_val(&values[..]);
            // SAFETY: the slice is valid; the host's side outlives the wait.
            unsafe { self.runtime.copy_in(part.at, values.as_ptr().cast(), n_bytes, stream)? };
            self.put(part, stream)?;
            self.runtime.synchronize(stream)?;
        }
        Ok(n_on_host)
    }
}

/// Sets the address that each chunk is decoded to: the final one if the chunk is contiguous in the region, otherwise
/// temporary memory.
fn place_parts<T: DeviceElement>(
    runtime: &Arc<dyn Runtime>,
    parts: &mut [Part],
    region: &[Range<usize>],
    values: DevicePtr,
) -> Result<Option<Buffer<T>>> {
    let mut n_gathered = 0;
    for part in &mut *parts {
        let offset = part.chunk.offset_in(region);
        part.is_in_place = offset.is_some();
        part.at = (offset.unwrap_or(n_gathered) * size_of::<T>()) as u64;
        n_gathered += if part.is_in_place { 0 } else { part.chunk.n_values() };
    }
    let gathered = match n_gathered {
        0 => None,
        n => Some(Buffer::new(runtime, n)?),
    };
    for part in parts {
        part.at += match &gathered {
            Some(gathered) if !part.is_in_place => gathered.at(),
            _ => values,
        };
    }
    Ok(gathered)
}
