//! The kernels as PTX, and the types of their arguments, which have the layout of the types of the same name in
//! `kernels/*.cu`.

use pumice::Element;
use pumice::backend::{FastCandidate, MAX_NAMED, Quantizer};

use crate::runtime::{DevicePtr, Plain};

/// A file of kernels.
pub(crate) struct Source {
    pub(crate) ptx: &'static str,
}

/// All kernels, compiled by `cargo xtask ptx`, which writes the hash of the sources into each file.
pub(crate) const SOURCES: [Source; 9] = [
    Source { ptx: include_str!("../ptx/balanced_split.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/balanced_encode.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/balanced_decode.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/balanced_sums.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/fast_choose.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/fast_encode.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/fast_decode.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/hash.compute_80.ptx") },
    Source { ptx: include_str!("../ptx/scan.compute_80.ptx") },
];

/// Types in device memory: elements of arrays, and bytes of streams.
#[allow(private_bounds, reason = "sealed")]
pub trait Item: Plain {}

impl Item for u8 {}
impl Item for f32 {}
impl Item for f64 {}

/// An element type that there are kernels for.
#[allow(private_bounds, reason = "sealed")]
pub trait DeviceElement: Element + Kernels + Item {}

impl DeviceElement for f32 {}
impl DeviceElement for f64 {}

/// Threads that decode a tile of `fast`, by the bits of its integers.
pub(crate) const DECODE_THREADS: u32 = 128;
pub(crate) const DECODE_THREADS_WIDE: u32 = 256;

/// The names of the kernels of a type, and how they are launched.
pub(crate) trait Kernels: Element + Plain {
    type Bits: Plain;
    const FAST_CHOOSE: &'static str;
    const FAST_ENCODE: &'static str;
    /// Decodes tiles whose integers have 32 bits.
    const FAST_DECODE: &'static str;
    /// Decodes tiles with integers of any size; `None` if `FAST_DECODE` does.
    const FAST_DECODE_WIDE: Option<&'static str>;
    const SCAN: &'static str;
    const SAMPLE: &'static str;
    /// Threads that encode a tile of `fast`.
    const ENCODE_THREADS: u32;
    fn to_plain_bits(self) -> Self::Bits;
    /// The inverse of the order-preserving map from values to integers in `scan.cu`.
    fn of_rank(rank: u64) -> Self;
}

impl Kernels for f32 {
    type Bits = u32;
    const FAST_CHOOSE: &'static str = "fast_choose_f32";
    const FAST_ENCODE: &'static str = "fast_encode_f32";
    const FAST_DECODE: &'static str = "fast_decode_f32";
    const FAST_DECODE_WIDE: Option<&'static str> = None;
    const SCAN: &'static str = "scan_f32";
    const SAMPLE: &'static str = "sample_f32";
    const ENCODE_THREADS: u32 = 256;

    fn to_plain_bits(self) -> u32 {
        self.to_bits()
    }

    fn of_rank(rank: u64) -> Self {
        let rank = rank as u32;
        f32::from_bits(if rank >> 31 == 0 { !rank } else { rank ^ 1 << 31 })
    }
}

impl Kernels for f64 {
    type Bits = u64;
    const FAST_CHOOSE: &'static str = "fast_choose_f64";
    const FAST_ENCODE: &'static str = "fast_encode_f64";
    const FAST_DECODE: &'static str = "fast_decode_f64";
    const FAST_DECODE_WIDE: Option<&'static str> = Some("fast_decode_wide_f64");
    const SCAN: &'static str = "scan_f64";
    const SAMPLE: &'static str = "sample_f64";
    const ENCODE_THREADS: u32 = 256;

    fn to_plain_bits(self) -> u64 {
        self.to_bits()
    }

    fn of_rank(rank: u64) -> Self {
        f64::from_bits(if rank >> 63 == 0 { !rank } else { rank ^ 1 << 63 })
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coding<T: Kernels> {
    step: T,
    inv_step: T,
    tolerance: T,
    is_lossless: u32,
    n_fills: u32,
    fills: [T::Bits; 2],
}

impl<T: Kernels> Coding<T> {
    /// For encoding.
    pub(crate) fn new(quantizer: Option<Quantizer<T>>, fills: &[T]) -> Self {
        let Some(quantizer) = quantizer else { return Self::for_decoding(None, fills) };
        let Quantizer { step, inv_step, tolerance, .. } = quantizer;
        Self { inv_step, tolerance, ..Self::for_decoding(Some(step), fills) }
    }

    pub(crate) fn for_decoding(step: Option<T>, fills: &[T]) -> Self {
        let mut bits = [T::Bits::default(); 2];
        bits.iter_mut().zip(fills).for_each(|(to, fill)| *to = fill.to_plain_bits());
        Self {
            step: step.unwrap_or_default(),
            is_lossless: u32::from(step.is_none()),
            n_fills: fills.len() as u32,
            fills: bits,
            ..Self::default()
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choice {
    nz: u64,
    ny: u64,
    nx: u64,
    tiles: [u32; 3],
    pub(crate) n_tiles: u32,
    axes: u8,
    lag: u8,
    log2: [u8; 3],
    merged: [u8; 3],
}

// SAFETY: numbers; 24 + 16 + 8 bytes without padding.
unsafe impl Plain for Choice {}

impl Choice {
    pub(crate) fn new(candidate: &FastCandidate) -> Self {
        let [x_axes, y_axes, z_axes, x_log2, y_log2, z_log2] = candidate.view;
        let (nz, ny, nx) = (candidate.nz, candidate.ny, candidate.nx);
        let along = |n: usize, log2: u8| n.div_ceil(1 << log2) as u32;
        Self {
            nz: nz as u64,
            ny: ny as u64,
            nx: nx as u64,
            tiles: [along(nz, z_log2), along(ny, y_log2), along(nx, x_log2)],
            n_tiles: candidate.n_tiles as u32,
            axes: candidate.axes,
            lag: candidate.lag as u8,
            log2: [x_log2, y_log2, z_log2],
            merged: [x_axes, y_axes, z_axes],
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) values: DevicePtr,
    pub(crate) payload: DevicePtr,
    pub(crate) first_slot: u32,
    pub(crate) sampling: u32,
    pub(crate) choice: u32,
    pub(crate) first_run: u32,
    pub(crate) payload_bytes: u64,
}

// SAFETY: numbers; 16 + 16 + 8 bytes without padding.
unsafe impl Plain for Chunk {}

/// The largest number of sampled runs of a chunk, and of candidates.
const MAX_RUNS: usize = pumice::backend::FAST_MAX_RUNS;
pub(crate) const MAX_CANDIDATES: usize = 32;
/// Threads that choose the predictor of a chunk.
pub(crate) const CHOOSE_THREADS: u32 = 32 * 32;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) starts: [u64; MAX_RUNS],
    pub(crate) across: [[u64; 2]; MAX_CANDIDATES],
    pub(crate) n_runs: u32,
    pub(crate) n_candidates: u32,
    pub(crate) first_choice: u32,
    pub(crate) reserved: u32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            starts: [0; MAX_RUNS],
            across: [[0; 2]; MAX_CANDIDATES],
            n_runs: 0,
            n_candidates: 0,
            first_choice: 0,
            reserved: 0,
        }
    }
}

// SAFETY: numbers; u64s and four u32s without padding.
unsafe impl Plain for Sampling {}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChooseJob<T: Kernels> {
    pub(crate) coding: Coding<T>,
    pub(crate) chunks: DevicePtr,
    pub(crate) choices: DevicePtr,
    pub(crate) samplings: DevicePtr,
    pub(crate) sums: DevicePtr,
    pub(crate) tickets: DevicePtr,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodeJob<T: Kernels> {
    pub(crate) coding: Coding<T>,
    pub(crate) chunks: DevicePtr,
    pub(crate) choices: DevicePtr,
    pub(crate) sizes: DevicePtr,
    pub(crate) sums: DevicePtr,
    pub(crate) run_offsets: DevicePtr,
    pub(crate) tickets: DevicePtr,
    pub(crate) n_chunks: u32,
    pub(crate) n_slots: u32,
    pub(crate) slots_per_chunk: u32,
    pub(crate) launch: u32,
}

/// The largest number of payloads whose addresses are passed as launch parameters.
pub(crate) const N_NEAR: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Payload {
    pub(crate) at: DevicePtr,
    pub(crate) n_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeJob<T: Kernels> {
    pub(crate) coding: Coding<T>,
    pub(crate) near: [Payload; N_NEAR],
    pub(crate) chunks: DevicePtr,
    pub(crate) choices: DevicePtr,
    pub(crate) errors: DevicePtr,
    pub(crate) slots: DevicePtr,
    pub(crate) n_chunks: u32,
    pub(crate) slots_per_chunk: u32,
    pub(crate) n_slots: u32,
    pub(crate) n_at_once: u32,
    pub(crate) n_ahead: u32,
}

/// Threads of a block of the kernels in `scan.cu`.
pub(crate) const SCAN_THREADS: u32 = 256;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanResult {
    pub(crate) least: u64,
    pub(crate) greatest: u64,
    pub(crate) first_nan: u64,
    pub(crate) n_skipped: [u64; MAX_NAMED],
}

impl Default for ScanResult {
    fn default() -> Self {
        Self { least: u64::MAX, greatest: 0, first_nan: u64::MAX, n_skipped: [0; MAX_NAMED] }
    }
}

// SAFETY: numbers, all of one size.
unsafe impl Plain for ScanResult {}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanJob<T: Kernels> {
    pub(crate) values: DevicePtr,
    pub(crate) n_values: u64,
    pub(crate) result: DevicePtr,
    pub(crate) n_skip: u32,
    pub(crate) skip: [T::Bits; MAX_NAMED],
}

/// The largest rank of an array.
pub(crate) const MAX_RANK: usize = 8;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BoxJob {
    pub(crate) from: DevicePtr,
    pub(crate) to: DevicePtr,
    pub(crate) n_values: u64,
    pub(crate) extents: [u64; MAX_RANK],
    pub(crate) from_strides: [u64; MAX_RANK],
    pub(crate) to_strides: [u64; MAX_RANK],
    pub(crate) rank: u32,
    pub(crate) value_bytes: u32,
}

impl BoxJob {
    /// The inverse.
    pub(crate) fn reversed(self) -> Self {
        let (from_strides, to_strides) = (self.to_strides, self.from_strides);
        Self { from: self.to, to: self.from, from_strides, to_strides, ..self }
    }
}
