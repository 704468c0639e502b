//! Error-bounded compression of floating-point arrays: every finite value comes back within the bound that was asked
//! for, everything else (NaN, infinities, fill values) bit for bit.
//!
//! ```
//! use pumice::{ErrorBound, Config, DecodeOptions, Reader, Writer};
//! let data: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
//! let config = Config::new(ErrorBound::Abs(1e-3));
//! let bytes = pumice::compress(&data, &[100, 100], &config)?;
//! let restored = pumice::decompress::<f32>(&bytes)?;
//! assert!(data.iter().zip(&restored.data).all(|(a, b)| (a - b).abs() <= 1e-3));
//!
//! let row = Reader::new(&bytes[..], DecodeOptions::new())?.read_region::<f32>(&[7..8, 0..100])?;
//! assert_eq!(row.data, restored.data[700..800]);
//!
//! let mut writer = Writer::new(Vec::new(), &[100], &config)?; // rows as they arrive
//! data.chunks(1000).try_for_each(|rows| writer.write_rows(rows))?;
//! let (streamed, _) = writer.finish()?;
//! assert_eq!(pumice::decompress::<f32>(&streamed)?.shape, [100, 100]);
//! # Ok::<(), pumice::Error>(())
//! ```
//!
//! # Features
//!
//! - `ndarray`: `compress_array` and `decompress_array` on views of ndarray.
//! - `unstable-backend`: the module `backend`, for code that encodes and decodes chunks elsewhere than on the CPU.
//! - `unstable-research`: the module `research`, stages of the presets that follow papers, for benchmarks and fuzzing.
//!
//! Semantic versioning does not cover the unstable features: what they add may change in any release. Who enables one
//! depends on an exact version (`pumice = "=0.1.0"`).
//!
//! Start reading the code at `codec/pipeline.rs`; docs/format.md specifies the bytes.

mod analysis;
#[cfg(feature = "unstable-backend")]
pub mod backend;
mod codec;
mod compress;
mod container;
mod decompress;
mod entropy;
mod error;
#[cfg_attr(not(feature = "unstable-backend"), allow(unreachable_pub, reason = "`backend` exports some of it"))]
mod exec;
#[cfg_attr(not(feature = "unstable-backend"), allow(unreachable_pub, reason = "`backend` exports some of it"))]
mod grid;
mod io;
pub mod metrics;
mod num;
#[cfg_attr(not(feature = "unstable-backend"), allow(unreachable_pub, reason = "`backend` exports some of it"))]
mod plan;
#[cfg(feature = "unstable-research")]
pub mod research;
mod rewrite;

pub use analysis::{
    Advice, Analysis, AnalysisOptions, AxisMadogram, DifferenceEntropy, Estimate, Hint, LevelEntropy, MadogramPoint,
    Profile, Residuals, analyze, analyze_from,
};
pub use codec::Element;
pub use compress::{
    Achieved, CodebookTrainer, FileWriter, Summary, Writer, compress, compress_from, compress_into,
    max_compressed_bytes,
};
pub use decompress::{
    Array, DecodeOptions, Info, Reader, Salvage, StreamReader, decompress, decompress_into, inspect, salvage,
    salvage_stream,
};
pub use entropy::codebook::Codebook;
pub use error::{Error, ErrorKind, Result};
pub use io::{AtomicFile, AtomicFolder, FileSource, ReadAt, SliceSource, Source, UnfinishedFiles};
pub use num::simd::instruction_set;
pub use num::{DType, Real};
pub use plan::{BoundKind, Config, ErrorBound, Preset, Region, Stable, value_range};
pub use rewrite::{Recent, update};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// Compresses an `ndarray` view of any layout.
///
/// ```
/// use pumice::{ErrorBound, Config};
/// let array = ndarray::Array2::from_shape_fn((20, 30), |(i, j)| (i * j) as f32);
/// let bytes = pumice::compress_array(array.view(), &Config::new(ErrorBound::Lossless))?;
/// assert_eq!(pumice::decompress_array::<f32>(&bytes)?, array.into_dyn());
/// # Ok::<(), pumice::Error>(())
/// ```
#[cfg(feature = "ndarray")]
pub fn compress_array<T: Element, D: ndarray::Dimension>(
    view: ndarray::ArrayView<'_, T, D>,
    config: &Config,
) -> Result<Vec<u8>> {
    let array = view.as_standard_layout();
    let data = array.as_slice().ok_or_else(|| Error::invalid("the array is not in C order"))?;
    compress(data, view.shape(), config)
}

/// Decompresses to an `ndarray` array.
#[cfg(feature = "ndarray")]
pub fn decompress_array<T: Element>(bytes: &[u8]) -> Result<ndarray::ArrayD<T>> {
    let array = decompress(bytes)?;
    ndarray::ArrayD::from_shape_vec(array.shape, array.data).map_err(|e| Error::invalid(e.to_string()))
}

#[cfg(test)]
mod tests;
