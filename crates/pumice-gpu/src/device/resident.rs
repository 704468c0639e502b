//! Complete streams in device memory. Payloads stay there, in encoding and in decoding. The host writes and checks
//! everything between them; of the payloads it reads only hashes and a few bytes.

use std::sync::{Arc, OnceLock};

use pumice::backend::{self, CodecId, Frames, Payload};
use pumice::{DecodeOptions, Error, ErrorKind, ReadAt, Result};

use super::{ChunkPayload, Device, DeviceSlice, DeviceSliceMut, Encoder, check_len};
use crate::hash::{Hashed, Hasher};
use crate::kernels::DeviceElement;
use crate::payloads::{self, Delivered, DevicePayload, FRONT_BYTES};
use crate::runtime::{DevicePtr, Runtime, Stream};

/// How many bytes at the start of each frame are read together: all that can precede a payload, and its first bytes.
const HEAD_BYTES: usize = 64;
/// Kernels read words of this many bytes, and the payloads of `fast` must start at a multiple of it.
const WORD_BYTES: u64 = 4;

impl<T: DeviceElement> Encoder<'_, T> {
    /// Waits, and writes the complete stream to device memory; returns its size. [`pumice::max_compressed_bytes`] bytes
    /// are always enough; if there are too few, the error says how many are needed. Otherwise as [`Encoder::finish`].
    ///
    /// ```no_run
    /// use pumice::{ErrorBound, Config, DecodeOptions, Preset};
    /// use pumice_gpu::{Device, Encoder, Stream};
    /// let (device, stream) = (Device::cuda(0)?, Stream::DEFAULT);
    /// let (shape, config) = ([1024, 1024], Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast));
    /// let mut values = device.upload(&vec![0.5f32; 1024 * 1024])?;
    /// let blueprint = device.blueprint(values.as_slice(), &shape, &config, stream)?;
    /// let mut encoder = Encoder::new(&device, &blueprint)?;
    /// let mut out = device.allocate::<u8>(pumice::max_compressed_bytes::<f32>(&shape, &config)? as usize)?;
    /// encoder.encode(values.as_slice(), stream)?;
    /// let n_bytes = encoder.finish_on_device(values.as_slice(), out.as_mut_slice(), stream)?;
    ///
    /// let frames = device.open_on_device(out.as_slice().slice(0..n_bytes), &DecodeOptions::new(), stream)?;
    /// device.decode(&frames, values.as_mut_slice(), stream)?;
    /// # Ok::<(), pumice::Error>(())
    /// ```
    pub fn finish_on_device(
        &self,
        values: DeviceSlice<'_, T>,
        out: DeviceSliceMut<'_, u8>,
        stream: Stream,
    ) -> Result<usize> {
        check_len(values.len, self.blueprint.shape())?;
        let encoded = self.chunk_payloads(values.at, stream)?.collect::<Result<Vec<(CodecId, ChunkPayload)>>>()?;
        let spans = encoded.iter().map(|(_, payload)| match payload {
            ChunkPayload::OnDevice(at, n_bytes) => (*at, *n_bytes),
            ChunkPayload::OnHost(_) => (0, 0),
        });
        // SAFETY: payloads are in device memory or in a valid slice.
        let hashed = unsafe { self.hasher.hash(&spans.collect::<Vec<_>>(), stream)? };
        let known = encoded.iter().enumerate().map(|(id, (codec, payload))| {
            let hash = match payload {
                ChunkPayload::OnDevice(..) => hashed.payload_hash(id),
                ChunkPayload::OnHost(bytes) => backend::payload_hash(&[], bytes),
            };
            Payload { codec: *codec, n_bytes: payload.n_bytes(), hash }
        });
        let outline = self.blueprint.outline(&known.collect::<Vec<_>>())?;
        if out.len < outline.n_bytes {
            let message = format!("the stream has {} bytes, but there is room for {}", outline.n_bytes, out.len);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // SAFETY: the outline fits into `out`; data on the host outlives the wait, data on the device is valid.
        unsafe {
            let put =
                |at: usize, bytes: &[u8]| self.runtime.copy_in(out.at + at as u64, bytes.as_ptr(), bytes.len(), stream);
            for (range, (_, payload)) in outline.payloads.iter().zip(&encoded) {
                match payload {
                    ChunkPayload::OnHost(bytes) => put(range.start, bytes)?,
                    ChunkPayload::OnDevice(_, 0) => {}
                    ChunkPayload::OnDevice(from, n_bytes) => {
                        self.runtime.copy_within(out.at + range.start as u64, *from, *n_bytes, stream)?;
                    }
                }
            }
            outline.others.iter().filter(|(_, bytes)| !bytes.is_empty()).try_for_each(|(at, bytes)| put(*at, bytes))?;
        }
        self.runtime.synchronize(stream)?;
        Ok(outline.n_bytes)
    }
}

/// A complete stream in device memory, whose header, index and frame heads have been read and checked.
#[derive(Debug)]
pub struct FramesOnDevice<'a> {
    pub(super) frames: Frames<'a>,
    bytes: DeviceSlice<'a, u8>,
    hasher: Hasher,
}

impl<'a> FramesOnDevice<'a> {
    /// Header, index and frame heads. Methods of `Frames` that verify and decode copy frames to the host.
    #[must_use]
    pub fn frames(&self) -> &Frames<'a> {
        &self.frames
    }

    /// Verifies payloads, and copies those that are not aligned as kernels require within device memory.
    pub(super) fn deliver(&self, runtime: &Arc<dyn Runtime>, ids: &[usize], stream: Stream) -> Result<Delivered> {
        let frames = ids.iter().map(|id| self.frames.frame(*id)).collect::<Result<Vec<_>>>()?;
        let at = |offset: usize| self.bytes.at + offset as u64;
        let spans: Vec<_> = frames.iter().map(|frame| (at(frame.payload.start), frame.payload.len())).collect();
        // SAFETY: frames are within the stream, and the slice is valid.
        let hashed = unsafe { self.hasher.hash(&spans, stream)? };
        (0..).zip(ids).try_for_each(|(number, id)| self.frames.verify_hash(*id, hashed.payload_hash(number)))?;
        let end = at(self.bytes.len);
        // Kernels may read the whole word in which a payload ends, so that word must lie within the stream.
        let stays = |(from, n_bytes): (DevicePtr, usize), codec: CodecId| {
            let is_aligned = codec != CodecId::Fast || from.is_multiple_of(WORD_BYTES);
            codec == CodecId::Raw || is_aligned && (from + n_bytes as u64).next_multiple_of(WORD_BYTES) <= end
        };
        let stays: Vec<bool> = spans.iter().zip(&frames).map(|(span, frame)| stays(*span, frame.codec)).collect();
        let copied = spans.iter().zip(&stays).map(|((_, n_bytes), stays)| if *stays { 0 } else { *n_bytes });
        let (memory, starts) = payloads::allocate(runtime, &copied.collect::<Vec<_>>())?;
        let mut payloads = Vec::with_capacity(ids.len());
        for (number, &(from, n_bytes)) in spans.iter().enumerate() {
            let start = frames[number].payload.start;
            let front = self.frames.read(start..start + n_bytes.min(FRONT_BYTES))?.into_owned();
            let at = if stays[number] { from } else { starts[number] };
            if at != from {
                // SAFETY: as above, and memory was allocated for the copy.
                unsafe { runtime.copy_within(at, from, n_bytes, stream)? };
            }
            payloads.push(DevicePayload { at, n_bytes, front });
        }
        Ok(Delivered { payloads, memory })
    }
}

impl Device {
    /// Reads header, index and heads of frames of a complete stream in device memory, which [`Device::decode`] and
    /// [`Decoder`](super::Decoder) then take. Waits.
    pub fn open_on_device<'a>(
        &self,
        bytes: DeviceSlice<'a, u8>,
        options: &DecodeOptions,
        stream: Stream,
    ) -> Result<FramesOnDevice<'a>> {
        let (runtime, heads) = (Arc::clone(&self.runtime), Arc::new(OnceLock::new()));
        let source = Source { runtime, at: bytes.at, len: bytes.len, stream, heads: Arc::clone(&heads) };
        let frames = Frames::open_from(source, options)?;
        let hasher = Hasher::new(&self.runtime, frames.n_chunks(), bytes.len)?;
        let ranges = (0..frames.n_chunks()).map(|id| frames.span(id));
        let (starts, spans): (Vec<u64>, Vec<_>) = ranges
            .map(|range| (range.start as u64, (bytes.at + range.start as u64, range.len().min(HEAD_BYTES))))
            .unzip();
        // SAFETY: frames are within the stream, and the slice is valid.
        let hashed = unsafe { hasher.hash(&spans, stream)? };
        heads.get_or_init(|| Heads { starts, hashed });
        Ok(FramesOnDevice { frames, bytes, hasher })
    }
}

/// A stream in device memory, of which the host reads only small parts.
struct Source {
    runtime: Arc<dyn Runtime>,
    at: DevicePtr,
    len: usize,
    stream: Stream,
    /// The first bytes of all frames, read together once their offsets are known.
    heads: Arc<OnceLock<Heads>>,
}

struct Heads {
    /// Their offsets in the stream, ascending.
    starts: Vec<u64>,
    /// The heads are shorter than a block, so all their bytes are the rest after the last whole block.
    hashed: Hashed,
}

impl ReadAt for Source {
    fn len(&self) -> Result<u64> {
        Ok(self.len as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len as u64) {
            return Err(Error::new(ErrorKind::Truncated, "the stream ends too early"));
        }
        // SAFETY: within the stream, whose slice is valid; `buf` outlives the wait.
        unsafe { crate::staging::download(&*self.runtime, buf.as_mut_ptr(), self.at + offset, buf.len(), self.stream) }
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let heads = self.heads.get()?;
        let number = heads.starts.partition_point(|start| *start <= offset).checked_sub(1)?;
        heads.hashed.rest(number).get((offset - heads.starts[number]) as usize..)?.get(..len)
    }
}
