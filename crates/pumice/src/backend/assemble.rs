//! Writing: the plan for a backend, and a stream from payloads.

use std::ops::Range;

use super::{ChunkBox, CodecId, Quantizer, Stats};
use crate::codec::Element;
use crate::codec::check_plausible;
use crate::compress;
use crate::compress::frames::put_header;
use crate::container::StreamWriter;
use crate::container::frame::{FrameHeader, Identity};
use crate::container::header::Header;
use crate::error::{Error, Result};
use crate::exec::Workers;
use crate::grid::{self, Grid};
use crate::plan::{Config, ErrorBound, Plan, Preset, Stable};

/// All decisions about the stream of an array, made before any chunk is coded.
#[derive(Clone, Debug)]
pub struct Blueprint<T> {
    plan: Plan<T>,
    grid: Grid,
    threads: usize,
}

impl<T: Element> Blueprint<T> {
    /// Makes the decisions. What only [`compress`](crate::compress) can do is
    /// [`Unsupported`](crate::ErrorKind::Unsupported): presets other than `fast` and `balanced`, bounds relative to
    /// each value, targets, regions and bins. [`check_supported`] checks for that alone.
    pub fn new(config: &Config, shape: &[usize], stats: &Stats<T>) -> Result<Self> {
        check_supported(config)?;
        let plan = Plan::new(config, shape, Some(stats))?;
        let grid = compress::grid_of(&plan)?;
        Ok(Self { plan, grid, threads: config.threads })
    }

    /// Extents of the array, slowest axis first.
    pub fn shape(&self) -> &[usize] {
        &self.plan.shape
    }

    /// The pipeline: [`Preset::Fast`] or [`Preset::Balanced`].
    pub fn preset(&self) -> Preset {
        self.plan.preset
    }

    /// How values are quantised; `None` if every value is stored exactly, for which `fast` is used.
    pub fn quantizer(&self) -> Option<Quantizer<T>> {
        self.plan.step.and_then(|step| Quantizer::for_stream(step, self.plan.abs_bound))
    }

    /// Fill values that have masks, which are kept bit for bit.
    pub fn fills(&self) -> &[T] {
        &self.plan.fills
    }

    /// Whether there are more fill values than masks. Then only [`Self::encode_on_cpu`] makes the payloads.
    pub fn needs_cpu(&self) -> bool {
        !self.plan.more_fills.is_empty()
    }

    /// The absolute bound that holds; 0 if lossless.
    pub fn abs_bound(&self) -> f64 {
        self.plan.abs_bound
    }

    /// Number of chunks: at least 1, also for an array without values.
    pub fn n_chunks(&self) -> usize {
        self.grid.n_chunks() as usize
    }

    /// The box of chunk `id`.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn chunk(&self, id: usize) -> ChunkBox {
        ChunkBox::new(&self.grid, id)
    }

    /// Appends the payload of chunk `id`, whose values are given in C order; encodes it on the CPU.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn encode_on_cpu(&self, id: usize, values: &[T], out: &mut Vec<u8>) -> Result<CodecId> {
        let n = self.chunk(id).n_values();
        if values.len() != n {
            return Err(Error::invalid(format!("chunk {id} has {n} values, not {}", values.len())));
        }
        Ok(T::encode_chunk(values, &self.grid.block(id as u64), &self.plan, &Workers::Serial, out))
    }

    /// Lays out the stream of these payloads, given in order of chunk ids. Their bytes may stay on a device.
    pub fn outline(&self, payloads: &[Payload]) -> Result<Outline> {
        self.check_complete(payloads.len())?;
        let sizes: Vec<(CodecId, usize)> = payloads.iter().map(|payload| (payload.codec, payload.n_bytes)).collect();
        let (mut ranges, mut others) = (Vec::new(), Vec::new());
        let mut part = Vec::new();
        let mut stream = StreamWriter::start(&self.header(), &mut part)?;
        let mut at = 0;
        for ((identity, head_bytes), payload) in self.heads(0, &sizes)?.into_iter().zip(payloads) {
            let Payload { codec, n_bytes, hash } = *payload;
            FrameHeader::of_hash(codec, identity, n_bytes as u64, hash).write_to(&mut part);
            let start = at + part.len();
            others.push((at, std::mem::take(&mut part)));
            at = start + n_bytes;
            ranges.push(start..at);
            stream.add_frames([(head_bytes + n_bytes) as u64], 0);
        }
        stream.add_frames([], self.grid.rows());
        let n_bytes = stream.finish(&mut part) as usize;
        others.push((at, part));
        Ok(Outline { n_bytes, payloads: ranges, others })
    }

    fn header(&self) -> Header {
        Header::new(&self.plan, self.grid.is_whole())
    }

    /// Identities of the frames from `first` on, and the sizes of their headers.
    fn heads(&self, first: usize, sizes: &[(CodecId, usize)]) -> Result<Vec<(Identity, usize)>> {
        let (grid, first) = (&self.grid, first as u64);
        if sizes.len() as u64 > grid.n_chunks() - first {
            return Err(Error::invalid(format!("the stream has only {} chunks", grid.n_chunks())));
        }
        let head = |(id, &(codec, payload_bytes)): (u64, &(CodecId, usize))| {
            let block = grid.block(id);
            check_plausible::<T>(codec, payload_bytes as u64, block.n_values())
                .map_err(|e| Error::invalid(format!("chunk {id}: {e}")))?;
            let identity = Identity::of_block(id, &block, grid.is_whole());
            Ok((identity, identity.header_bytes(payload_bytes as u64)))
        };
        (first..).zip(sizes).map(head).collect()
    }

    /// Refuses to end a stream of fewer chunks than there are.
    fn check_complete(&self, n: usize) -> Result<()> {
        if n < self.n_chunks() {
            return Err(Error::invalid(format!("the stream has {n} of its {} chunks", self.n_chunks())));
        }
        Ok(())
    }
}

/// What a stream stores about a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// How it is coded.
    pub codec: CodecId,
    /// Its size.
    pub n_bytes: usize,
    /// [`payload_hash`](super::payload_hash) of its bytes.
    pub hash: u64,
}

/// A stream without its payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outline {
    /// Size of the stream.
    pub n_bytes: usize,
    /// Byte range of the payload of each chunk.
    pub payloads: Vec<Range<usize>>,
    /// The bytes between them, with their offsets.
    pub others: Vec<(usize, Vec<u8>)>,
}

/// Checks that a backend can encode with these options. An error of kind [`Unsupported`](crate::ErrorKind::Unsupported)
/// says what only [`compress`](crate::compress) can do, since it needs other stages of `pipeline.rs` than those of the
/// two presets. Needs no array, and so finds no arguments that are invalid for an array.
pub fn check_supported(config: &Config) -> Result<()> {
    let is_plain = |bound: &ErrorBound| matches!(bound, ErrorBound::Abs(_) | ErrorBound::Rel(_) | ErrorBound::Lossless);
    if !matches!(config.preset, Preset::Fast | Preset::Balanced) {
        let name = config.preset.name();
        return Err(Error::unsupported(format!("only the CPU has the preset {name}: use it, or fast or balanced")));
    }
    if let Some(bound) = config.bounds.iter().find(|bound| !is_plain(bound)) {
        return Err(Error::unsupported(format!(
            "only the CPU meets {bound}: use it, or an absolute or a relative bound"
        )));
    }
    if config.stable.unwrap_or_default() != Stable::Off {
        return Err(Error::unsupported("only the CPU has the stable mode: use it, or leave the mode off"));
    }
    if config.codebook.is_some() {
        return Err(Error::unsupported("only the CPU codes with a codebook: use it, or leave the codebook out"));
    }
    if !config.regions.is_empty() || !config.bin.is_empty() {
        return Err(Error::unsupported("only the CPU has regions and bins: use it, or one bound for all values"));
    }
    Ok(())
}

/// Makes a stream from the payloads of all chunks, which are given in order of their ids and written straight to their
/// offsets.
#[derive(Debug)]
pub struct Assembler<'a, T> {
    blueprint: &'a Blueprint<T>,
    workers: Workers,
    stream: StreamWriter,
    out: Vec<u8>,
}

/// The memory of a frame to be written.
struct Slot<'a> {
    codec: CodecId,
    identity: Identity,
    payload_at: usize,
    bytes: &'a mut [u8],
}

impl Slot<'_> {
    fn write(&mut self, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        fill(&mut self.bytes[self.payload_at..])?;
        put_header(self.codec, self.identity, self.bytes, self.payload_at);
        Ok(())
    }
}

impl<'a, T: Element> Assembler<'a, T> {
    /// Starts the stream in `out`, whose content is replaced and whose capacity is reused.
    pub fn new(blueprint: &'a Blueprint<T>, mut out: Vec<u8>) -> Result<Self> {
        out.clear();
        let stream = StreamWriter::start(&blueprint.header(), &mut out)?;
        let workers = compress::workers_for(grid::n_values(blueprint.shape()), blueprint.threads)?;
        Ok(Self { blueprint, workers, stream, out })
    }

    /// Adds the next chunk: `fill` gets the memory of its payload and writes every byte of it.
    pub fn chunk(
        &mut self,
        codec: CodecId,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        self.add(&[(codec, payload_bytes)], |_, mut slots| slots[0].write(fill))
    }

    /// Adds the next chunks, given their codecs and payload sizes: `fill` gets the index of each among them and the
    /// memory of its payload. This and the checksums run on as many threads as [`Config::threads`] says.
    pub fn chunks(
        &mut self,
        sizes: &[(CodecId, usize)],
        fill: impl Fn(usize, &mut [u8]) -> Result<()> + Sync + Send,
    ) -> Result<()> {
        self.add(sizes, |workers, mut slots| {
            workers.for_each(&mut slots, |i, slot| slot.write(|payload| fill(i, payload)))
        })
    }

    /// Ends the stream; all chunks must have been added.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.blueprint.check_complete(self.stream.n_chunks() as usize)?;
        self.stream.add_frames([], self.blueprint.grid.rows());
        self.stream.finish(&mut self.out);
        Ok(self.out)
    }

    /// Allocates memory for the next frames and lets `write` fill it. Nothing is added on error.
    fn add(
        &mut self,
        sizes: &[(CodecId, usize)],
        write: impl FnOnce(&Workers, Vec<Slot<'_>>) -> Result<()>,
    ) -> Result<()> {
        let heads = self.blueprint.heads(self.stream.n_chunks() as usize, sizes)?;
        let start = self.out.len();
        let n_bytes: usize = heads.iter().zip(sizes).map(|((_, head), (_, payload))| head + payload).sum();
        self.out.resize(start + n_bytes, 0);
        let mut rest = &mut self.out[start..];
        let mut slots = Vec::with_capacity(sizes.len());
        for (&(identity, payload_at), &(codec, payload_bytes)) in heads.iter().zip(sizes) {
            let (bytes, tail) = rest.split_at_mut(payload_at + payload_bytes);
            slots.push(Slot { codec, identity, payload_at, bytes });
            rest = tail;
        }
        let written = write(&self.workers, slots);
        match written {
            Ok(()) => self.stream.add_frames(heads.iter().zip(sizes).map(|((_, head), (_, n))| (head + n) as u64), 0),
            Err(_) => self.out.truncate(start),
        }
        written
    }
}
