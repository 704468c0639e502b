//! Codec `fast`: the tables that its kernels need, and their launches.

use std::array;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice::backend::{self, Blueprint, ChunkBox, FastCandidate, FastSampling};
use pumice::{Error, Result};

use crate::kernels::{
    CHOOSE_THREADS, Choice, ChooseJob, Chunk, Coding, DECODE_THREADS, DECODE_THREADS_WIDE, DecodeJob, EncodeJob,
    Kernels, MAX_CANDIDATES, N_NEAR, Payload, Sampling,
};
use crate::runtime::{Buffer, DevicePtr, Runtime, Shape, Stream};

/// Payloads start at multiples of this.
const ALIGNMENT: u64 = 16;

/// Tiles per run; the look-back reads the sum of sizes of each run.
const TILES_PER_RUN: u32 = 32;

/// The number of slots of a chunk, if all but the last have the same number; otherwise 0.
fn regular_slots(chunks: &[Chunk], n_slots: u32) -> u32 {
    let Some(second) = chunks.get(1) else { return n_slots.max(1) };
    let at = |i: usize| i as u64 * u64::from(second.first_slot);
    let regular = chunks.iter().enumerate().all(|(i, chunk)| u64::from(chunk.first_slot) == at(i));
    if regular && second.first_slot > 0 { second.first_slot } else { 0 }
}

/// Encodes the chunks of an array any number of times; holds all device memory for it.
#[derive(Debug)]
pub(crate) struct FastEncoder<T: Kernels> {
    runtime: Arc<dyn Runtime>,
    coding: Coding<T>,
    chunks: Vec<Chunk>,
    /// The bytes of each chunk's values.
    raw_bytes: Vec<u64>,
    n_slots: u32,
    slots_per_chunk: u32,
    table: Buffer<Chunk>,
    choices: Buffer<Choice>,
    samplings: Buffer<Sampling>,
    /// Sizes of tiles, and the sums and offsets of runs of them, by which tiles find their offsets (look-back).
    sizes: Buffer<u64>,
    sums: Buffer<u64>,
    run_offsets: Buffer<u64>,
    tickets: Buffer<u32>,
    payloads: Buffer<u8>,
    /// Address of the values when the table was last written.
    values: Option<Vec<DevicePtr>>,
    blocks: u32,
    launch: u32,
}

impl<T: Kernels> FastEncoder<T> {
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, blueprint: &Blueprint<T>, stream: Stream) -> Result<Self> {
        let mut known: HashMap<Vec<usize>, (u32, u32)> = HashMap::new();
        let (mut choices, mut samplings) = (Vec::new(), Vec::new());
        let (mut chunks, mut raw_bytes) = (Vec::new(), Vec::new());
        let (mut n_slots, mut n_runs, mut n_payload) = (0_u64, 0_u32, 0_u64);
        for id in 0..blueprint.n_chunks() {
            let extents = blueprint.chunk(id).extents;
            let n_values: usize = extents.iter().product();
            let (sampling, slots) = *known.entry(extents).or_insert_with_key(|extents| {
                let sampling = backend::fast_sampling(extents);
                let slots = sampling.candidates.iter().map(|c| c.n_tiles).max().unwrap_or(0);
                samplings.push(to_device(&sampling, choices.len()));
                choices.extend(sampling.candidates.iter().map(Choice::new));
                (samplings.len() as u32 - 1, slots as u32)
            });
            let choice = samplings[sampling as usize].first_choice;
            // Offset of the payload from the start of all payloads.
            let (payload, first_slot, first_run) = (n_payload, n_slots as u32, n_runs);
            chunks.push(Chunk { payload, first_slot, sampling, choice, first_run, ..Chunk::default() });
            n_runs += slots.div_ceil(TILES_PER_RUN);
            let bound = backend::fast_payload_bound(n_values, slots as usize, size_of::<T>()) as u64;
            n_payload += bound.next_multiple_of(ALIGNMENT);
            n_slots += u64::from(slots);
            raw_bytes.push((n_values * size_of::<T>()) as u64);
        }
        let n_slots = u32::try_from(n_slots).map_err(|_| Error::device("the array has more than 2^32 tiles"))?;
        let payloads = Buffer::new(runtime, n_payload as usize)?;
        chunks.iter_mut().for_each(|chunk| chunk.payload += payloads.at());
        Ok(Self {
            runtime: Arc::clone(runtime),
            coding: Coding::new(blueprint.quantizer(), blueprint.fills()),
            n_slots,
            slots_per_chunk: regular_slots(&chunks, n_slots),
            table: Buffer::new(runtime, chunks.len())?,
            choices: Buffer::with(runtime, &choices, stream)?,
            samplings: Buffer::with(runtime, &samplings, stream)?,
            sizes: Buffer::with(runtime, &vec![0; n_slots as usize], stream)?,
            sums: Buffer::new(runtime, n_runs as usize)?,
            run_offsets: Buffer::with(runtime, &vec![0; n_runs as usize], stream)?,
            tickets: Buffer::new(runtime, 1)?,
            payloads,
            values: None,
            blocks: runtime.resident_blocks(T::FAST_ENCODE, T::ENCODE_THREADS)?.min(n_slots.max(1)),
            launch: 0,
            chunks,
            raw_bytes,
        })
    }

    /// Size of the device memory it holds, in bytes.
    pub(crate) fn device_bytes(&self) -> u64 {
        let looks = self.sizes.len() + self.sums.len() + self.run_offsets.len();
        (self.payloads.len() + 8 * looks + size_of::<Chunk>() * self.table.len()) as u64
    }

    /// Enqueues the encoding of all chunks, whose values are at these addresses.
    ///
    /// # Safety
    /// Each address is valid for the values of its chunk, in C order, until the work is done.
    pub(crate) unsafe fn encode(&mut self, values: &[DevicePtr], stream: Stream) -> Result<()> {
        if self.n_slots == 0 {
            return Ok(());
        }
        if self.values.as_deref() != Some(values) {
            self.chunks.iter_mut().zip(values).for_each(|(chunk, values)| chunk.values = *values);
            self.table.write(0, &self.chunks, stream)?;
            self.values = Some(values.to_vec());
        }
        // The number of a launch distinguishes its states from those of earlier launches; no launch has number 0.
        self.launch = self.launch.checked_add(1).unwrap_or(1);
        let mut choose = ChooseJob {
            coding: self.coding,
            chunks: self.table.at(),
            choices: self.choices.at(),
            samplings: self.samplings.at(),
            sums: self.sums.at(),
            tickets: self.tickets.at(),
        };
        let mut encode = EncodeJob {
            coding: self.coding,
            chunks: self.table.at(),
            choices: self.choices.at(),
            sizes: self.sizes.at(),
            sums: self.sums.at(),
            run_offsets: self.run_offsets.at(),
            tickets: self.tickets.at(),
            n_chunks: self.chunks.len() as u32,
            n_slots: self.n_slots,
            slots_per_chunk: self.slots_per_chunk,
            launch: self.launch,
        };
        // SAFETY: the kernels take one such job each; tables and slots were allocated for these chunks.
        unsafe {
            let shape = Shape { blocks: self.chunks.len() as u32, threads: CHOOSE_THREADS };
            self.runtime.launch(T::FAST_CHOOSE, shape, &mut [(&raw mut choose).cast()], stream)?;
            let shape = Shape { blocks: self.blocks, threads: T::ENCODE_THREADS };
            self.runtime.launch(T::FAST_ENCODE, shape, &mut [(&raw mut encode).cast()], stream)
        }
    }

    /// Waits, and returns address and size of each payload; `None` if it would not be smaller than the values.
    pub(crate) fn payloads(&self, stream: Stream) -> Result<Vec<Option<(DevicePtr, usize)>>> {
        let mut chunks = vec![Chunk::default(); self.chunks.len()];
        if self.n_slots > 0 {
            self.table.read(0, &mut chunks, stream)?;
        }
        let smaller = |(chunk, raw): (&Chunk, &u64)| {
            (*raw > 0 && chunk.payload_bytes < *raw).then_some((chunk.payload, chunk.payload_bytes as usize))
        };
        Ok(chunks.iter().zip(&self.raw_bytes).map(smaller).collect())
    }
}

fn to_device(sampling: &FastSampling, first_choice: usize) -> Sampling {
    let mut to = Sampling {
        n_runs: sampling.starts.len() as u32,
        n_candidates: sampling.candidates.len() as u32,
        first_choice: first_choice as u32,
        ..Sampling::default()
    };
    assert!(sampling.candidates.len() <= MAX_CANDIDATES, "the kernel supports fewer candidates");
    to.starts.iter_mut().zip(&sampling.starts).for_each(|(to, start)| *to = *start);
    let across = sampling.candidates.iter().map(|c| c.across.map(|n| n as u64));
    to.across.iter_mut().zip(across).for_each(|(to, across)| *to = across);
    to
}

/// A chunk to be decoded: its box, the first bytes of its payload, and the addresses of payload and values.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) candidate: FastCandidate,
    /// The tiles to decode; `None` for all.
    pub(crate) tiles: Option<Vec<u32>>,
    pub(crate) payload: DevicePtr,
    pub(crate) payload_bytes: usize,
    pub(crate) values: DevicePtr,
}

/// The error code of success; kernels write the minimum of all error codes.
const NO_ERROR: u64 = u64::MAX;

/// The code for a tile whose integers have more bits than the kernel supports; another kernel then decodes it.
const NEEDS_WIDE: u64 = 5;

/// With at least this many bits per code on average, the kernel for narrow integers (19 bits) is not tried.
const EXPECTED_WIDE_BITS: u64 = 12;

/// The outcome of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The stream is intact, but has to be decoded once more: the next launch uses another kernel.
    Again,
    /// Some chunk is damaged, or larger than the device supports.
    Refused,
}

/// A kernel that decodes.
#[derive(Debug)]
struct DecodeKernel {
    name: &'static str,
    threads: u32,
    n_resident: u32,
}

impl DecodeKernel {
    fn new(runtime: &Arc<dyn Runtime>, name: &'static str, threads: u32) -> Result<Self> {
        Ok(Self { name, threads, n_resident: runtime.resident_blocks(name, threads)? })
    }
}

/// Decodes chunks any number of times; holds all device memory for it.
#[derive(Debug)]
pub(crate) struct FastDecoder<T: Kernels> {
    runtime: Arc<dyn Runtime>,
    coding: Coding<T>,
    n_chunks: u32,
    n_slots: u32,
    slots_per_chunk: u32,
    /// Addresses of the payloads of the first chunks.
    near: [Payload; N_NEAR],
    /// Number of tiles whose bodies are prefetched together.
    n_at_once: u32,
    /// The kernel for integers of 32 bits, and the one for all others, if it differs.
    kernel: DecodeKernel,
    wide: Option<DecodeKernel>,
    /// Whether the second kernel is needed.
    is_wide: AtomicBool,
    table: Buffer<Chunk>,
    choices: Buffer<Choice>,
    errors: Buffer<u64>,
    /// The slots to decode; `None` for all.
    slots: Option<Buffer<u32>>,
}

impl<T: Kernels> FastDecoder<T> {
    pub(crate) fn new(
        runtime: &Arc<dyn Runtime>,
        (step, fills): (Option<T>, &[T]),
        encoded: &[Encoded],
        stream: Stream,
    ) -> Result<Self> {
        let mut choices: Vec<Choice> = Vec::new();
        let mut chunks = Vec::with_capacity(encoded.len());
        let mut n_slots = 0_u64;
        for chunk in encoded {
            choices.push(Choice::new(&chunk.candidate));
            chunks.push(Chunk {
                values: chunk.values,
                payload: chunk.payload,
                first_slot: n_slots as u32,
                choice: choices.len() as u32 - 1,
                payload_bytes: chunk.payload_bytes as u64,
                ..Chunk::default()
            });
            n_slots += chunk.candidate.n_tiles as u64;
        }
        let n_slots = u32::try_from(n_slots).map_err(|_| Error::device("the array has more than 2^32 tiles"))?;
        let slots = match encoded.iter().any(|chunk| chunk.tiles.is_some()) {
            true => Some(Buffer::with(runtime, &wanted_slots(encoded, &chunks), stream)?),
            false => None,
        };
        let wide = T::FAST_DECODE_WIDE.map(|name| DecodeKernel::new(runtime, name, DECODE_THREADS_WIDE)).transpose()?;
        let n_bytes: u64 = chunks.iter().map(|chunk| chunk.payload_bytes).sum();
        let n_values = u64::from(n_slots) * backend::FAST_TILE_VALUES as u64;
        let is_wide = step.is_none() || n_bytes.saturating_mul(8) >= EXPECTED_WIDE_BITS * n_values;
        Ok(Self {
            runtime: Arc::clone(runtime),
            coding: Coding::for_decoding(step, fills),
            n_chunks: chunks.len() as u32,
            n_slots,
            slots_per_chunk: regular_slots(&chunks, n_slots),
            near: array::from_fn(|i| {
                chunks.get(i).map_or(Payload::default(), |c| Payload { at: c.payload, n_bytes: c.payload_bytes })
            }),
            n_at_once: tiles_at_once(n_bytes, n_slots, runtime.cache_bytes()?),
            kernel: DecodeKernel::new(runtime, T::FAST_DECODE, DECODE_THREADS)?,
            wide,
            is_wide: AtomicBool::new(is_wide),
            table: Buffer::with(runtime, &chunks, stream)?,
            choices: Buffer::with(runtime, &choices, stream)?,
            errors: Buffer::with(runtime, &[NO_ERROR], stream)?,
            slots,
        })
    }

    /// Enqueues the decoding of all chunks.
    ///
    /// # Safety
    /// The addresses given to `new` are valid, payloads for reading and values for writing, until the work is done.
    pub(crate) unsafe fn decode(&self, stream: Stream) -> Result<()> {
        let n_blocks = self.slots.as_ref().map_or(self.n_slots, |slots| slots.len() as u32);
        if n_blocks == 0 {
            return Ok(());
        }
        let wide = self.wide.as_ref().filter(|_| self.is_wide.load(Ordering::Relaxed));
        let kernel = wide.unwrap_or(&self.kernel);
        let mut job = DecodeJob {
            coding: self.coding,
            near: self.near,
            chunks: self.table.at(),
            choices: self.choices.at(),
            errors: self.errors.at(),
            slots: self.slots.as_ref().map_or(0, Buffer::at),
            n_chunks: self.n_chunks,
            slots_per_chunk: self.slots_per_chunk,
            n_slots: self.n_slots,
            n_at_once: self.n_at_once,
            n_ahead: kernel.n_resident,
        };
        let shape = Shape { blocks: n_blocks, threads: kernel.threads };
        // SAFETY: the kernel takes one such job, and a block for each slot.
        unsafe { self.runtime.launch(kernel.name, shape, &mut [(&raw mut job).cast()], stream) }
    }

    /// Waits, and returns the outcome since the last call. Errors are rare, so launches do not clear them first.
    pub(crate) fn outcome(&self, stream: Stream) -> Result<Outcome> {
        let mut error = [0];
        self.errors.read(0, &mut error, stream)?;
        if error[0] == NO_ERROR {
            return Ok(Outcome::Done);
        }
        self.errors.write(0, &[NO_ERROR], stream)?;
        if error[0] & 0xFF == NEEDS_WIDE {
            self.is_wide.store(true, Ordering::Relaxed);
            return Ok(Outcome::Again);
        }
        Ok(Outcome::Refused)
    }
}

/// The number of tiles whose bodies take an eighth of the cache on average. Bodies of more tiles would be evicted
/// before they are needed; with fewer, reads and writes would alternate more often.
fn tiles_at_once(n_bytes: u64, n_slots: u32, cache_bytes: u64) -> u32 {
    let share = u128::from(cache_bytes / 8) * u128::from(n_slots) / u128::from(n_bytes.max(1));
    (share.clamp(1, 1 << 20) as u32).next_multiple_of(TILES_PER_RUN)
}

/// The slots of all tiles to decode.
fn wanted_slots(encoded: &[Encoded], chunks: &[Chunk]) -> Vec<u32> {
    let mut slots = Vec::new();
    for (chunk, encoded) in chunks.iter().zip(encoded) {
        match &encoded.tiles {
            Some(tiles) => slots.extend(tiles.iter().map(|tile| chunk.first_slot + tile)),
            None => slots.extend((0..encoded.candidate.n_tiles as u32).map(|tile| chunk.first_slot + tile)),
        }
    }
    slots
}

/// Index of the first value of each chunk, in the array or in the memory for chunks that are not contiguous.
pub(crate) fn chunk_offsets(chunks: &[ChunkBox]) -> (Vec<usize>, usize) {
    let mut n_gathered = 0;
    let offsets = chunks.iter().map(|chunk| {
        chunk.offset.unwrap_or_else(|| {
            let at = n_gathered;
            n_gathered += chunk.n_values();
            at
        })
    });
    (offsets.collect(), n_gathered)
}
