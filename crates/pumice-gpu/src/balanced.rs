//! Codec `balanced`: the tables that its kernels need, and their launches.
//!
//! Encoding and decoding are fixed sequences of launches over all chunks; the host reads no results in between. At the
//! end, the kernels report the chunks that the host has to code (`needs_host`): those with exceptions, and damaged
//! ones.

use std::ffi::c_void;
use std::sync::Arc;

use pumice::backend::{self, BalancedView, Blueprint};
use pumice::{Error, Result};

use crate::kernels::{BoxJob, Coding, Kernels, SCAN_THREADS};
use crate::runtime::{Buffer, DevicePtr, Plain, Runtime, Shape, Stream};

/// Constants of the kernels; as in `kernels/balanced*.cu*`.
const GROUP: usize = 32;
const MAX_GROUPS: usize = 1 << 22;
const TILE: usize = 4096;
const BLOCK: usize = 4096;
const STREAMS: usize = 4;
const N_BOOKS: usize = 66;
const MAX_SYMBOLS: usize = 256;
const COUNT_SLOTS: usize = 8;
const UNIT_BLOCKS: usize = 16;
const CLASS_BLOCKS: usize = 8;
const RESERVE: usize = 32768;
const SAMPLE_BLOCKS: usize = 48;
const N_ORDERS: usize = 16;
const STRIP: usize = 128;
const SPLIT_ROWS: usize = 4;
const STACK_ROWS: usize = 32;
const RUN_STACKS: usize = 8;
const ESCAPES_PER_GROUP: usize = GROUP / 2;
const PACKED_BYTES: usize = 512;
const TILE_BYTES: usize = 76 * 4;
const STATE_WORDS: usize = 2048 / 4;
/// Thread blocks for each chunk, in kernels that divide a chunk evenly.
const SPLIT_BLOCKS: u32 = 64;
const SUM_BLOCKS: u32 = 64;
const PATCH_BLOCKS: u32 = 64;
const EDGE_BLOCKS: u32 = 64;
/// Threads that open a chunk, and that decode a unit.
const OPEN_THREADS: u32 = 1024;
const UNIT_THREADS: u32 = (UNIT_BLOCKS * STREAMS) as u32;
/// The number of a launch has 30 bits. It is part of the states in memory, so those of earlier launches need no
/// clearing.
const MAX_LAUNCHES: u32 = (1 << 30) - 1;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    values: DevicePtr,
    payload: DevicePtr,
    payload_bytes: u64,
    first_group: u64,
    dims: [u32; 4],
    n_values: u32,
    n_groups: u32,
    first_tile: u32,
    n_tiles: u32,
    first_slot: u32,
    n_slots: u32,
    first_column: u64,
    first_edge: u64,
}

impl Chunk {
    /// Whether no group crosses the end of a row and vector loads are aligned.
    fn has_whole_rows(&self) -> bool {
        (self.dims[3] as usize).is_multiple_of(GROUP) && self.values.is_multiple_of(16)
    }
}

// SAFETY: numbers; 32 + 16 + 24 + 16 bytes without padding.
unsafe impl Plain for Chunk {}

/// What the kernels compute for a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct State {
    origin: i64,
    needs_host: u32,
    payload_start: u32,
    payload_bytes: u32,
    rest: [u32; STATE_WORDS - 5],
}

impl Default for State {
    fn default() -> Self {
        Self { origin: 0, needs_host: 1, payload_start: 0, payload_bytes: 0, rest: [0; STATE_WORDS - 5] }
    }
}

// SAFETY: numbers; 2048 bytes without padding.
unsafe impl Plain for State {}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct EncodeWork {
    chunks: DevicePtr,
    states: DevicePtr,
    tile_chunks: DevicePtr,
    unit_chunks: DevicePtr,
    sample_costs: DevicePtr,
    classes: DevicePtr,
    bytes: DevicePtr,
    low: DevicePtr,
    plane_bytes: u64,
    tiles: DevicePtr,
    sorted: DevicePtr,
    class_symbols: DevicePtr,
    rest: DevicePtr,
    counts: DevicePtr,
    codes: DevicePtr,
    packed: DevicePtr,
    heads: DevicePtr,
    rest_states: DevicePtr,
    stream_states: DevicePtr,
    tickets: DevicePtr,
    differences: DevicePtr,
    n_chunks: u32,
    launch: u32,
    split_blocks: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct EncodeJob<T: Kernels> {
    work: EncodeWork,
    coding: Coding<T>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct DecodeWork {
    chunks: DevicePtr,
    states: DevicePtr,
    tile_chunks: DevicePtr,
    classes: DevicePtr,
    bytes: DevicePtr,
    tiles: DevicePtr,
    sorted: DevicePtr,
    class_symbols: DevicePtr,
    rest: DevicePtr,
    lengths: DevicePtr,
    stream_at: DevicePtr,
    sizes: DevicePtr,
    escapes_of: DevicePtr,
    apart_at: DevicePtr,
    escapes: DevicePtr,
    group_low: DevicePtr,
    group_wide: DevicePtr,
    heads: DevicePtr,
    n_chunks: u32,
    class_units: u32,
    units: u32,
    patch_blocks: u32,
    edge_blocks: u32,
    reserved: u32,
    columns: DevicePtr,
    edges: DevicePtr,
    edge_sums: DevicePtr,
    differences: DevicePtr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct DecodeJob<T: Kernels> {
    work: DecodeWork,
    coding: Coding<T>,
    axis: u32,
}

/// The name of a kernel for T.
fn of_type<T>(f32: &'static str, f64: &'static str) -> &'static str {
    if size_of::<T>() == 4 { f32 } else { f64 }
}

/// The working axes of a chunk of these extents, if there are kernels for it.
fn view_on_device(extents: &[usize]) -> Option<BalancedView> {
    let n_values: usize = extents.iter().product();
    let fits = n_values > 0 && n_values.div_ceil(GROUP) <= MAX_GROUPS;
    fits.then(|| backend::balanced_view(extents))
}

/// Copies of chunks whose working order differs from their order in memory.
#[derive(Debug)]
struct Gathered {
    /// The number of the chunk, and the copy of its values from memory to working order.
    jobs: Vec<(usize, BoxJob)>,
    n_values: usize,
}

impl Gathered {
    fn new() -> Self {
        Self { jobs: Vec::new(), n_values: 0 }
    }

    /// Reserves memory for a chunk, if it needs a copy.
    fn push(&mut self, number: usize, view: &BalancedView, value_bytes: usize) {
        if view.is_plain {
            return;
        }
        let n_values: usize = view.dims.iter().product();
        let mut job = BoxJob {
            to: (self.n_values * value_bytes) as u64,
            n_values: n_values as u64,
            rank: 4,
            value_bytes: value_bytes as u32,
            ..BoxJob::default()
        };
        let mut stride = 1;
        for axis in (0..4).rev() {
            (job.extents[axis], job.from_strides[axis]) = (view.dims[axis] as u64, view.strides[axis] as u64);
            job.to_strides[axis] = stride;
            stride *= job.extents[axis];
        }
        self.jobs.push((number, job));
        // Kernels read vectors of four values.
        self.n_values += n_values.next_multiple_of(4);
    }

    /// Sets the addresses of the copies, which start at `at`.
    fn set_address(&mut self, at: DevicePtr) {
        self.jobs.iter_mut().for_each(|(_, job)| job.to += at);
    }

    /// Replaces the addresses of chunks by those of their copies.
    fn redirect(&mut self, chunks: &mut [Chunk]) {
        for (number, job) in &mut self.jobs {
            job.from = chunks[*number].values;
            chunks[*number].values = job.to;
        }
    }

    /// # Safety
    /// The addresses of all chunks are valid.
    unsafe fn copy(&self, to: &Launcher<'_>, is_scatter: bool) -> Result<()> {
        for (_, job) in &self.jobs {
            let mut job = if is_scatter { job.reversed() } else { *job };
            let blocks = job.n_values.div_ceil(u64::from(SCAN_THREADS) * 4).min(1 << 16) as u32;
            // SAFETY: the kernel takes one such job; the rest is the caller's contract.
            unsafe { to.run("copy_box", blocks, SCAN_THREADS, &mut job)? };
        }
        Ok(())
    }
}

/// Offsets of chunks in the tables that all of them share.
#[derive(Debug, Default)]
struct Tables {
    chunks: Vec<Chunk>,
    tile_chunks: Vec<u32>,
    unit_chunks: Vec<u32>,
    n_groups: usize,
    n_slots: usize,
    n_columns: usize,
    n_edges: usize,
    /// The maxima over all chunks.
    max_slots: usize,
    max_class_units: usize,
    split_blocks: usize,
    patch_blocks: usize,
    /// Whether groups cross the ends of rows in some chunk; differences are then stored.
    has_cut_rows: bool,
}

impl Tables {
    /// Adds a chunk of these working axes.
    fn push(&mut self, dims: [usize; 4], chunk: Chunk) -> Result<()> {
        let number = self.chunks.len() as u32;
        let n_values: usize = dims.iter().product();
        let n_groups = n_values.div_ceil(GROUP);
        let n_tiles = n_groups.div_ceil(TILE);
        // Symbols of classes and of codebooks, and literals, which are most frequent with symbols of two bytes.
        let n_slots = n_groups.div_ceil(BLOCK) + (n_values + n_values / 2).div_ceil(BLOCK) + N_BOOKS;
        let n_slots = n_slots.next_multiple_of(COUNT_SLOTS);
        let [batch, nz, ny, nx] = dims;
        let n_strips = nx.div_ceil(STRIP);
        let is_plain = batch == 1;
        self.has_cut_rows |= is_plain && !nx.is_multiple_of(GROUP);
        self.chunks.push(Chunk {
            first_group: self.n_groups as u64,
            dims: dims.map(|n| n as u32),
            n_values: n_values as u32,
            n_groups: n_groups as u32,
            first_tile: self.tile_chunks.len() as u32,
            n_tiles: n_tiles as u32,
            first_slot: self.n_slots as u32,
            n_slots: n_slots as u32,
            first_column: self.n_columns as u64,
            first_edge: self.n_edges as u64,
            ..chunk
        });
        self.tile_chunks.extend((0..n_tiles).map(|_| number));
        self.unit_chunks.extend((0..n_slots / COUNT_SLOTS).map(|_| number));
        self.n_groups += n_groups.next_multiple_of(GROUP);
        self.n_slots += n_slots;
        self.max_slots = self.max_slots.max(n_slots);
        self.max_class_units = self.max_class_units.max(n_groups.div_ceil(BLOCK).div_ceil(CLASS_BLOCKS));
        // A chunk of one axis is folded to rows of `STRIP` values.
        let (ny, nx, n_strips) = if nz * ny == 1 { (nx.div_ceil(STRIP), STRIP, 1) } else { (ny, nx, n_strips) };
        let n_stacks = ny.div_ceil(STACK_ROWS);
        if is_plain {
            self.n_columns += nz * n_stacks * nx.next_multiple_of(4);
            self.n_edges += nz * n_strips * ny;
            self.split_blocks = self.split_blocks.max((ny.div_ceil(SPLIT_ROWS) * n_strips).div_ceil(4));
            let n_runs = if nz == 1 { n_stacks.div_ceil(RUN_STACKS) } else { n_stacks };
            self.patch_blocks = self.patch_blocks.max(n_runs * n_strips);
        }
        let fits = |n: usize| u32::try_from(n).is_ok();
        if fits(self.n_slots * STREAMS) && fits(self.chunks.len() * 128) && fits(self.tile_chunks.len()) {
            Ok(())
        } else {
            Err(Error::device("the array has more chunks than fit into a launch"))
        }
    }
}

/// Launches kernels that take one job each.
struct Launcher<'a> {
    runtime: &'a dyn Runtime,
    stream: Stream,
}

impl Launcher<'_> {
    /// # Safety
    /// The kernel takes such a job, whose addresses are valid for this many blocks.
    unsafe fn run<J>(&self, kernel: &'static str, blocks: u32, threads: u32, job: &mut J) -> Result<()> {
        let job: *mut J = job;
        // SAFETY: the caller's contract.
        unsafe { self.runtime.launch(kernel, Shape { blocks, threads }, &mut [job.cast::<c_void>()], self.stream) }
    }
}

/// Encodes the chunks of an array any number of times; holds all device memory for it.
#[derive(Debug)]
pub(crate) struct BalancedEncoder<T: Kernels> {
    runtime: Arc<dyn Runtime>,
    coding: Coding<T>,
    tables: Tables,
    /// The id of each chunk on the device, and the number of all chunks.
    ids: Vec<usize>,
    n_chunks: usize,
    gathered: Gathered,
    table: Buffer<Chunk>,
    states: Buffer<State>,
    /// Kept alive because the kernels use them.
    memory: Memory,
    slot_states: Buffer<u64>,
    work: EncodeWork,
    values: Option<Vec<DevicePtr>>,
}

/// Device memory that kernels share, by address only.
#[derive(Debug)]
struct Memory {
    runtime: Arc<dyn Runtime>,
    bytes: Vec<Buffer<u8>>,
    tables: Vec<Buffer<u32>>,
}

impl Memory {
    fn new(runtime: &Arc<dyn Runtime>) -> Self {
        Self { runtime: Arc::clone(runtime), bytes: Vec::new(), tables: Vec::new() }
    }

    /// Allocates `n_bytes` and padding, since kernels read whole vectors.
    fn allocate(&mut self, n_bytes: usize) -> Result<DevicePtr> {
        let buffer = Buffer::new(&self.runtime, n_bytes + 64)?;
        let at = buffer.at();
        self.bytes.push(buffer);
        Ok(at)
    }

    /// Memory for the differences of all values, if some chunk needs it; otherwise address 0.
    fn allocate_differences(&mut self, tables: &Tables) -> Result<DevicePtr> {
        if tables.has_cut_rows { self.allocate(tables.n_groups * GROUP * 4) } else { Ok(0) }
    }

    fn table(&mut self, values: &[u32], stream: Stream) -> Result<DevicePtr> {
        let buffer = Buffer::with(&self.runtime, values, stream)?;
        let at = buffer.at();
        self.tables.push(buffer);
        Ok(at)
    }

    fn n_bytes(&self) -> u64 {
        self.bytes.iter().map(|buffer| buffer.len() as u64).sum()
    }
}

impl<T: Kernels> BalancedEncoder<T> {
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, blueprint: &Blueprint<T>, stream: Stream) -> Result<Self> {
        let mut tables = Tables::default();
        let mut ids = Vec::new();
        let mut gathered = Gathered::new();
        let mut n_payload = 0;
        if blueprint.quantizer().is_some() {
            for id in 0..blueprint.n_chunks() {
                let extents = blueprint.chunk(id).extents;
                let Some(view) = view_on_device(&extents) else { continue };
                let n_values: usize = extents.iter().product();
                // Payloads above half the size of the values are left to the host, which compares them with `fast`.
                let capacity = RESERVE + (n_values * size_of::<T>() / 2).next_multiple_of(16) + 16;
                let chunk = Chunk { payload: n_payload as u64, payload_bytes: capacity as u64, ..Chunk::default() };
                n_payload += capacity;
                gathered.push(ids.len(), &view, size_of::<T>());
                tables.push(view.dims, chunk)?;
                ids.push(id);
            }
        }
        let mut memory = Memory::new(runtime);
        let payloads = memory.allocate(n_payload)?;
        gathered.set_address(memory.allocate(gathered.n_values * size_of::<T>())?);
        tables.chunks.iter_mut().for_each(|chunk| chunk.payload += payloads);
        let (n_chunks, n_groups, n_slots) = (ids.len(), tables.n_groups, tables.n_slots);
        let n_symbols = n_chunks * N_BOOKS * MAX_SYMBOLS;
        let plane_bytes = n_groups * GROUP;
        // Integers of f32 have 23 bits and a sign, so there are at most 23 planes of low bits.
        let n_planes = if size_of::<T>() == 4 { 3 } else { 4 };
        let slot_states = Buffer::with(runtime, &vec![0; n_slots + n_slots / COUNT_SLOTS], stream)?;
        let table = Buffer::new(runtime, n_chunks)?;
        let states = Buffer::with(runtime, &vec![State::default(); n_chunks], stream)?;
        let work = EncodeWork {
            chunks: table.at(),
            states: states.at(),
            tile_chunks: memory.table(&tables.tile_chunks, stream)?,
            unit_chunks: memory.table(&tables.unit_chunks, stream)?,
            sample_costs: memory.allocate(n_chunks * SAMPLE_BLOCKS * N_ORDERS * 4)?,
            classes: memory.allocate(n_groups)?,
            bytes: memory.allocate(plane_bytes)?,
            low: memory.allocate(n_planes * plane_bytes)?,
            plane_bytes: plane_bytes as u64,
            tiles: memory.allocate(tables.tile_chunks.len() * TILE_BYTES)?,
            sorted: memory.allocate(n_groups * 4)?,
            class_symbols: memory.allocate(n_groups)?,
            rest: memory.allocate(plane_bytes)?,
            counts: memory.allocate(n_symbols * 4)?,
            codes: memory.allocate(n_symbols * 4)?,
            packed: memory.allocate(n_chunks * N_BOOKS * PACKED_BYTES)?,
            heads: memory.allocate(n_chunks * N_BOOKS * 4)?,
            rest_states: slot_states.at() + 8 * n_slots as u64,
            stream_states: slot_states.at(),
            tickets: memory.allocate(8)?,
            differences: memory.allocate_differences(&tables)?,
            n_chunks: n_chunks as u32,
            launch: 0,
            split_blocks: tables.split_blocks as u32,
            reserved: 0,
        };
        Ok(Self {
            runtime: Arc::clone(runtime),
            coding: Coding::new(blueprint.quantizer(), blueprint.fills()),
            n_chunks: blueprint.n_chunks(),
            tables,
            ids,
            gathered,
            table,
            states,
            memory,
            slot_states,
            work,
            values: None,
        })
    }

    /// Size of the device memory it holds, in bytes.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.memory.n_bytes() + 8 * self.slot_states.len() as u64
    }

    /// Enqueues the encoding of all chunks, whose values are at these addresses, by id.
    ///
    /// # Safety
    /// Each address is valid for the values of its chunk, in C order, until the work is done.
    pub(crate) unsafe fn encode(&mut self, values: &[DevicePtr], stream: Stream) -> Result<()> {
        if self.ids.is_empty() {
            return Ok(());
        }
        if self.values.as_deref() != Some(values) {
            self.tables.chunks.iter_mut().zip(&self.ids).for_each(|(chunk, id)| chunk.values = values[*id]);
            self.gathered.redirect(&mut self.tables.chunks);
            self.table.write(0, &self.tables.chunks, stream)?;
            self.values = Some(values.to_vec());
        }
        if self.work.launch == MAX_LAUNCHES {
            // SAFETY: all of the buffer.
            unsafe { self.runtime.fill(self.slot_states.at(), 0, 8 * self.slot_states.len(), stream)? };
            self.work.launch = 0;
        }
        self.work.launch += 1;
        let mut job = EncodeJob { work: self.work, coding: self.coding };
        let mut work = self.work;
        let n_chunks = self.ids.len() as u32;
        let (n_tiles, n_units) = (self.tables.tile_chunks.len() as u32, self.tables.unit_chunks.len() as u32);
        let n_slots = self.tables.n_slots as u32;
        let (samples, sums) = (n_chunks * SAMPLE_BLOCKS as u32, n_chunks * self.work.split_blocks);
        let to = Launcher { runtime: &*self.runtime, stream };
        // SAFETY: the kernels take such jobs; their tables and buffers were allocated for these chunks.
        unsafe {
            self.gathered.copy(&to, false)?;
            to.run(of_type::<T>("balanced_sample_f32", "balanced_sample_f64"), samples, 256, &mut job)?;
            to.run(of_type::<T>("balanced_order_f32", "balanced_order_f64"), n_chunks, 256, &mut job)?;
            let blocks = n_chunks * SPLIT_BLOCKS;
            to.run(of_type::<T>("balanced_split_f32", "balanced_split_f64"), blocks, 256, &mut job)?;
            if sums > 0 {
                to.run(of_type::<T>("balanced_split_plain_f32", "balanced_split_plain_f64"), sums, 128, &mut job)?;
            }
            if self.tables.has_cut_rows {
                to.run(of_type::<T>("balanced_split_cut_f32", "balanced_split_cut_f64"), sums, 128, &mut job)?;
                to.run(of_type::<T>("balanced_groups_f32", "balanced_groups_f64"), blocks, 256, &mut job)?;
            }
            to.run("balanced_tally", n_tiles, 256, &mut work)?;
            to.run("balanced_books", n_chunks, 128, &mut work)?;
            to.run("balanced_place", n_tiles, 256, &mut work)?;
            to.run("balanced_alphabets", n_chunks * (N_BOOKS as u32 - 2), 128, &mut work)?;
            to.run("balanced_layout", n_chunks, 32, &mut work)?;
            to.run("balanced_count", n_units, 128, &mut work)?;
            to.run("balanced_codebooks", n_chunks * N_BOOKS as u32, 256, &mut work)?;
            to.run("balanced_write", n_slots, 128, &mut work)?;
            to.run(of_type::<T>("balanced_finish_f32", "balanced_finish_f64"), n_tiles, 256, &mut job)
        }
    }

    /// Waits, and returns address and size of each payload; `None` if the host has to encode the chunk.
    pub(crate) fn payloads(&self, stream: Stream) -> Result<Vec<Option<(DevicePtr, usize)>>> {
        let mut all = vec![None; self.n_chunks];
        let mut states = vec![State::default(); self.ids.len()];
        self.states.read(0, &mut states, stream)?;
        for ((state, chunk), id) in states.iter().zip(&self.tables.chunks).zip(&self.ids) {
            let half = chunk.n_values as usize * size_of::<T>() / 2;
            if state.needs_host == 0 && (state.payload_bytes as usize) < half {
                all[*id] = Some((chunk.payload + u64::from(state.payload_start), state.payload_bytes as usize));
            }
        }
        Ok(all)
    }
}

/// A chunk to be decoded, and the addresses of its payload and values.
#[derive(Debug)]
pub(crate) struct Encoded<'a> {
    pub(crate) extents: &'a [usize],
    pub(crate) payload: DevicePtr,
    pub(crate) payload_bytes: usize,
    pub(crate) values: DevicePtr,
    /// The byte `order` of the payload, if only the origin precedes it.
    pub(crate) order: Option<u8>,
}

/// The bit of the byte `order` for second differences.
const REPEATED: u8 = 1 << 4;

/// The byte `order` of a payload that begins with these bytes, if only the origin precedes it.
pub(crate) fn order_of(front: &[u8]) -> Option<u8> {
    let [0, rest @ ..] = front else { return None };
    let end_of_origin = rest.iter().position(|byte| *byte < 0x80)?;
    rest.get(end_of_origin + 1).copied()
}

/// Decodes chunks any number of times; holds all device memory for it.
#[derive(Debug)]
pub(crate) struct BalancedDecoder<T: Kernels> {
    runtime: Arc<dyn Runtime>,
    coding: Coding<T>,
    tables: Tables,
    /// The index of each chunk on the device among those given, and the number of these.
    numbers: Vec<usize>,
    n_given: usize,
    gathered: Gathered,
    /// Whether some chunk may need sums across its rows that are not those of patches.
    has_across: bool,
    /// Whether some chunk may need any sums but those of patches.
    has_general: bool,
    states: Buffer<State>,
    /// Kept alive because the kernels use them.
    _table: Buffer<Chunk>,
    _memory: Memory,
    work: DecodeWork,
}

impl<T: Kernels> BalancedDecoder<T> {
    pub(crate) fn new(
        runtime: &Arc<dyn Runtime>,
        (step, fills): (Option<T>, &[T]),
        encoded: &[Encoded<'_>],
        stream: Stream,
    ) -> Result<Self> {
        let mut tables = Tables::default();
        let mut numbers = Vec::new();
        let mut gathered = Gathered::new();
        let mut has_repeated_differences = false;
        for (number, chunk) in encoded.iter().enumerate() {
            let Some(view) = view_on_device(chunk.extents).filter(|_| step.is_some()) else { continue };
            has_repeated_differences |= chunk.order.is_none_or(|order| order >= REPEATED);
            gathered.push(numbers.len(), &view, size_of::<T>());
            let Encoded { values, payload, payload_bytes, .. } = *chunk;
            tables
                .push(view.dims, Chunk { values, payload, payload_bytes: payload_bytes as u64, ..Chunk::default() })?;
            numbers.push(number);
        }
        let mut memory = Memory::new(runtime);
        gathered.set_address(memory.allocate(gathered.n_values * size_of::<T>())?);
        gathered.redirect(&mut tables.chunks);
        let (n_chunks, n_groups, n_slots) = (numbers.len(), tables.n_groups, tables.n_slots);
        let table = Buffer::with(runtime, &tables.chunks, stream)?;
        let states = Buffer::with(runtime, &vec![State::default(); n_chunks], stream)?;
        let work = DecodeWork {
            chunks: table.at(),
            states: states.at(),
            tile_chunks: memory.table(&tables.tile_chunks, stream)?,
            classes: memory.allocate(n_groups)?,
            bytes: memory.allocate(n_groups * GROUP)?,
            tiles: memory.allocate(tables.tile_chunks.len() * TILE_BYTES)?,
            sorted: memory.allocate(n_groups * 4)?,
            class_symbols: memory.allocate(n_groups)?,
            rest: memory.allocate(n_groups * GROUP)?,
            lengths: memory.allocate(n_chunks * N_BOOKS * MAX_SYMBOLS)?,
            stream_at: memory.allocate(n_slots * STREAMS * 4)?,
            sizes: memory.allocate(n_slots * STREAMS * 2)?,
            escapes_of: memory.allocate(n_slots * STREAMS * 4)?,
            apart_at: memory.allocate(n_slots * STREAMS * 4)?,
            escapes: memory.allocate(n_groups * ESCAPES_PER_GROUP * 2)?,
            group_low: memory.allocate(n_groups * 4)?,
            group_wide: memory.allocate(n_groups * 4)?,
            heads: memory.allocate(n_chunks * N_BOOKS * 4)?,
            n_chunks: n_chunks as u32,
            class_units: tables.max_class_units as u32,
            units: (tables.max_slots.div_ceil(UNIT_BLOCKS) + N_BOOKS) as u32,
            patch_blocks: tables.patch_blocks as u32,
            edge_blocks: EDGE_BLOCKS,
            reserved: 0,
            columns: memory.allocate(tables.n_columns * 4)?,
            edges: memory.allocate(tables.n_edges * 4)?,
            edge_sums: memory.allocate(tables.n_edges * 4)?,
            differences: memory.allocate_differences(&tables)?,
        };
        let has_across =
            tables.chunks.iter().any(|chunk| chunk.dims[0] > 1 || !(chunk.has_whole_rows() || tables.has_cut_rows));
        Ok(Self {
            runtime: Arc::clone(runtime),
            coding: Coding::for_decoding(step, fills),
            has_across,
            has_general: has_across || has_repeated_differences,
            tables,
            numbers,
            n_given: encoded.len(),
            gathered,
            states,
            _table: table,
            _memory: memory,
            work,
        })
    }

    /// Enqueues the decoding of all chunks.
    ///
    /// # Safety
    /// The addresses given to `new` are valid, payloads for reading and values for writing, until the work is done.
    pub(crate) unsafe fn decode(&self, stream: Stream) -> Result<()> {
        if self.numbers.is_empty() {
            return Ok(());
        }
        let mut work = self.work;
        let mut job = DecodeJob { work, coding: self.coding, axis: 0 };
        let (n_chunks, n_tiles) = (self.work.n_chunks, self.tables.tile_chunks.len() as u32);
        let (patches, edges, sums) = (n_chunks * work.patch_blocks, n_chunks * EDGE_BLOCKS, n_chunks * SUM_BLOCKS);
        let to = Launcher { runtime: &*self.runtime, stream };
        // SAFETY: the kernels take such jobs; their tables and buffers were allocated for these chunks.
        unsafe {
            to.run("balanced_open", n_chunks, OPEN_THREADS, &mut work)?;
            to.run("balanced_classes", n_chunks * self.work.class_units, UNIT_THREADS, &mut work)?;
            to.run("balanced_runs", n_tiles, 256, &mut work)?;
            to.run("balanced_spread", n_tiles, 256, &mut work)?;
            to.run("balanced_decode_tally", n_tiles, 256, &mut work)?;
            to.run("balanced_decode_books", n_chunks, 128, &mut work)?;
            to.run("balanced_decode_place", n_tiles, 256, &mut work)?;
            to.run("balanced_streams", n_chunks * self.work.units, UNIT_THREADS, &mut work)?;
            to.run("balanced_apart", n_chunks, 256, &mut work)?;
            to.run("balanced_patch", n_chunks * PATCH_BLOCKS, 256, &mut work)?;
            to.run("balanced_ends", n_chunks, 32, &mut work)?;
            to.run("balanced_offsets", n_tiles, 256, &mut work)?;
            let has_cut_rows = self.tables.has_cut_rows;
            if has_cut_rows {
                to.run("balanced_part", sums, 256, &mut work)?;
            }
            if patches > 0 {
                to.run("balanced_edges", patches, 128, &mut work)?;
                if has_cut_rows {
                    to.run("balanced_edges_cut", patches, 128, &mut work)?;
                }
                to.run("balanced_columns", edges, 256, &mut work)?;
                to.run("balanced_strips", edges, 256, &mut work)?;
                to.run("balanced_lines", edges, 256, &mut work)?;
                to.run(of_type::<T>("balanced_sum_f32", "balanced_sum_f64"), patches, 128, &mut job)?;
                if has_cut_rows {
                    let kernel = of_type::<T>("balanced_sum_cut_f32", "balanced_sum_cut_f64");
                    to.run(kernel, patches, 128, &mut job)?;
                }
            }
            if self.has_general {
                to.run(of_type::<T>("balanced_join_f32", "balanced_join_f64"), sums, 256, &mut job)?;
                to.run(of_type::<T>("balanced_starts_f32", "balanced_starts_f64"), sums, 256, &mut job)?;
                to.run(of_type::<T>("balanced_rows_f32", "balanced_rows_f64"), sums, 256, &mut job)?;
                for axis in 0..if self.has_across { 3 } else { 0 } {
                    job.axis = axis;
                    to.run(of_type::<T>("balanced_across_f32", "balanced_across_f64"), sums, 256, &mut job)?;
                }
                to.run(of_type::<T>("balanced_restore_f32", "balanced_restore_f64"), sums, 256, &mut job)?;
            }
            self.gathered.copy(&to, true)
        }
    }

    /// Waits, and returns for each chunk whether the host has to decode it.
    pub(crate) fn left_to_host(&self, stream: Stream) -> Result<Vec<bool>> {
        let mut all = vec![true; self.n_given];
        let mut states = vec![State::default(); self.numbers.len()];
        self.states.read(0, &mut states, stream)?;
        for (state, number) in states.iter().zip(&self.numbers) {
            all[*number] = state.needs_host != 0;
        }
        Ok(all)
    }
}
