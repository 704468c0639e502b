//! Interface for backends that code chunks elsewhere than on the CPU, such as on a GPU. Needs the feature
//! `unstable-backend`: anything here may change in any release.
//!
//! A backend does the work on values and payloads. Decisions, checks and framing are made here, by the code that
//! [`compress`](crate::compress) and [`Reader`](crate::Reader) use, so that a stream has the same bytes whichever
//! backend made it:
//!
//! ```text
//! scan          range and fill values, from the backend's passes over the values
//! Blueprint     the decisions, and each chunk's box, quantiser and fill values
//! Assembler     payloads -> stream
//! Outline       the same, if payloads stay on the device
//! Frames        stream -> payloads
//! SharedStream  the stream of an array that several processes hold
//! SharedRows    the same, of an array whose rows arrive over time
//! Integers      lists of integers, for sums of quantised values
//! ```
//!
//! A chunk's payload must be that of `pipeline.rs`: by the codec of the preset, unless `fast` is smaller, or raw values
//! are not larger. A backend leaves what it cannot do to [`Blueprint::encode_on_cpu`] and [`Frames::decode_on_cpu`],
//! chunk by chunk.
//!
//! ```
//! use pumice::backend::{self, Assembler, Blueprint, Frames};
//! use pumice::{ErrorBound, Config, DecodeOptions, Preset};
//! # struct OnDevice<'a>(&'a [f32]);
//! # impl backend::Passes<f32> for OnDevice<'_> {
//! #     fn n_values(&self) -> usize {
//! #         self.0.len()
//! #     }
//! #     fn first(&self, _: &[f32], stride: usize) -> pumice::Result<backend::FirstPass<f32>> {
//! #         let samples = self.0.iter().copied().step_by(stride).collect();
//! #         Ok(backend::FirstPass { range: Some((0.0, 499.5)), samples, ..Default::default() })
//! #     }
//! #     fn second(&self, _: &[f32]) -> pumice::Result<backend::SecondPass<f32>> {
//! #         unreachable!()
//! #     }
//! # }
//! let data: Vec<f32> = (0..1000).map(|i| i as f32 / 2.0).collect();
//! let config = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast);
//! let stats = backend::scan(&OnDevice(&data), &config)?;
//! let blueprint = Blueprint::new(&config, &[10, 100], &stats)?;
//! let mut assembler = Assembler::new(&blueprint, Vec::new())?;
//! let mut payload = Vec::new();
//! let codec = blueprint.encode_on_cpu(0, &data, &mut payload)?; // this array is a single chunk
//! assembler.chunk(codec, payload.len(), |out| Ok(out.copy_from_slice(&payload)))?;
//! let bytes = assembler.finish()?;
//! assert_eq!(bytes, pumice::compress(&data, &[10, 100], &config)?);
//!
//! let frames = Frames::open(&bytes, &DecodeOptions::new())?;
//! frames.verify(0)?;
//! assert_eq!(bytes[frames.frame(0)?.payload], payload);
//! # Ok::<(), pumice::Error>(())
//! ```

mod assemble;
mod fast;
mod frames;
mod integers;
mod rows;
mod shared;
mod stored;

pub use assemble::{Assembler, Blueprint, Outline, Payload, check_supported};
pub use fast::{
    FAST_MAX_LAG, FAST_MAX_RUNS, FAST_RUN, FAST_TILE_VALUES, FastCandidate, FastSampling, fast_payload_bound,
    fast_sampling,
};
pub use frames::{Frame, Frames};
pub use integers::{Integers, SumLattice, finite_range};
pub use rows::{Continuation, SharedRows};
pub use shared::{
    Chunks, FirstShare, Parts, Shared, SharedStream, copy_box, decoding_threads_of, frame_spans, preset_of, threads_of,
};
pub use stored::check_shareable;

pub use crate::codec::CodecId;
pub use crate::exec::pages::{prefer_large_pages, zeroed};
pub use crate::grid::{Corner, for_each_run};
pub use crate::plan::Quantizer;
pub use crate::plan::stats::{FirstPass, MAX_NAMED, Passes, SecondPass, Stats};

use std::ops::Range;

use crate::codec::Element;
use crate::codec::shared::view::View;
use crate::error::{Error, Result};
use crate::grid::{self, Grid};
use crate::io::checksum;
use crate::plan::{Config, ErrorBound, Preset, Stable, stats};

/// Range and fill values of an array, as [`compress`](crate::compress) finds them.
pub fn scan<T: Element>(passes: &impl Passes<T>, config: &Config) -> Result<Stats<T>> {
    stats::decide(passes, &config.fills)
}

/// The settings of a config that a single chunk has, for adapters to formats that cut arrays into chunks themselves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChunkSettings {
    /// The bound or target.
    pub bound: ErrorBound,
    /// The pipeline.
    pub preset: Preset,
    /// Whether values keep their bits when they are compressed again; automatic unless the config says something else.
    pub stable: Stable,
    /// What a relative bound refers to, instead of the data's own range.
    pub range: Option<(f64, f64)>,
    /// The values that mean "no data".
    pub fills: Vec<f64>,
}

impl ChunkSettings {
    /// # Errors
    /// If the config asks for more than a chunk can have. Threads are no concern of its bytes.
    pub fn of(config: &Config) -> Result<Self> {
        let refused = [
            (config.bounds.len() > 1, "several bounds"),
            (!config.regions.is_empty(), "regions"),
            (!config.bin.is_empty(), "bins"),
            (config.chunk_shape.is_some(), "a chunk shape"),
            (!config.attributes.is_empty(), "attributes"),
            (config.codebook.is_some(), "a codebook"),
        ];
        if let Some((_, what)) = refused.iter().find(|(is_given, _)| *is_given) {
            return Err(Error::invalid(format!("{what} cannot be given for chunks one by one: leave them out")));
        }
        let Config { preset, stable, range, fills, .. } = config;
        let stable = stable.unwrap_or(Stable::Auto);
        Ok(Self { bound: config.bound(), preset: *preset, stable, range: *range, fills: fills.clone() })
    }
}

/// Size of the blocks in which a payload is hashed; the last one may be smaller.
pub const HASH_BLOCK: usize = checksum::BLOCK_BYTES;

/// `payload_hash` (docs/format.md, section 3) of a payload, from the XXH3 hashes of its first blocks of [`HASH_BLOCK`]
/// bytes and from `rest`, the bytes that follow them.
pub fn payload_hash(first: &[u64], rest: &[u8]) -> u64 {
    checksum::payload_hash_of(first, rest)
}

/// The axes that `balanced` works along in a chunk (docs/format.md, 7.1), slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BalancedView {
    /// Extents.
    pub dims: [usize; 4],
    /// Distances between neighbours along each axis in the chunk; 0 if there are none.
    pub strides: [usize; 4],
    /// Whether this is the order of values in the chunk.
    pub is_plain: bool,
}

/// The view that `balanced` has of a chunk of these extents.
pub fn balanced_view(extents: &[usize]) -> BalancedView {
    let view = View::new(extents);
    BalancedView { dims: view.dims, strides: view.strides, is_plain: view.is_plain() }
}

/// The box of the array that a chunk covers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChunkBox {
    /// Position of its first value, slowest axis first.
    pub start: Vec<usize>,
    /// Extents, slowest axis first.
    pub extents: Vec<usize>,
    /// Index of its first value in the array, if its values are contiguous there.
    pub offset: Option<usize>,
}

impl ChunkBox {
    /// The box of a chunk that must exist.
    fn new(grid: &Grid, id: usize) -> Self {
        assert!((id as u64) < grid.n_chunks(), "chunk {id} was asked for, but there are {}", grid.n_chunks());
        let block = grid.block(id as u64);
        let run = grid::contiguous_run(grid.shape(), &block.start, &block.extents);
        Self { start: block.start, extents: block.extents, offset: run.map(|run| run.start) }
    }

    /// Number of values.
    pub fn n_values(&self) -> usize {
        grid::n_values(&self.extents)
    }

    /// Index of its first value in the array of a region, if its values are all inside and contiguous there.
    pub fn offset_in(&self, region: &[Range<usize>]) -> Option<usize> {
        let is_inside = self
            .start
            .iter()
            .zip(&self.extents)
            .zip(region)
            .all(|((&start, &n), region)| region.start <= start && start + n <= region.end);
        let start: Vec<usize> = self.start.iter().zip(region).map(|(start, r)| start.wrapping_sub(r.start)).collect();
        let shape: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
        is_inside.then(|| grid::contiguous_run(&shape, &start, &self.extents)).flatten().map(|run| run.start)
    }
}

#[cfg(test)]
mod tests;
