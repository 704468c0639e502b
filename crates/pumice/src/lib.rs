//! Error-bounded compression of floating-point arrays: every finite value comes back within the bound that was asked
//! for, everything else (NaN, infinities, fill values) bit for bit.
//!
//! ```
//! use pumice::{Bound, Config, DecodeOptions, Reader, Writer};
//! let data: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
//! let config = Config::new(Bound::Abs(1e-3));
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
//! Start reading the code at `pipeline.rs`; docs/format.md specifies the bytes.

mod analysis;
mod array;
pub mod backend;
mod bounds;
mod chunk;
mod codec;
mod config;
mod container;
mod curve;
mod error;
mod fpenv;
pub mod metrics;
mod pages;
mod parallel;
mod pipeline;
mod plan;
mod quantize;
mod read_at;
mod reader;
#[doc(hidden)]
pub mod research;
mod salvage;
mod source;
mod stats;
mod target;
mod writer;

pub use analysis::{
    Advice, Analysis, AnalysisOptions, AxisMadogram, DifferenceEntropy, Estimate, Hint, LevelEntropy, MadogramPoint,
    Profile, Residuals, analyze, analyze_from,
};
pub use array::{Array, DType, Real};
pub use bounds::Region;
pub use config::{Bound, Config, Fill, Preset};
pub use error::{Error, ErrorKind, Result};
pub use read_at::ReadAt;
pub use reader::{DecodeOptions, Info, Reader, decompress, decompress_into, inspect};
pub use salvage::{Salvage, salvage};
pub use source::{FileSource, SliceSource, Source};
pub use stats::value_range;
pub use target::Achieved;
pub use writer::{
    AtomicFile, FileWriter, Summary, Writer, compress, compress_from, compress_into, create, max_compressed_bytes,
};

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compresses an `ndarray` view of any layout.
///
/// ```
/// use pumice::{Bound, Config};
/// let array = ndarray::Array2::from_shape_fn((20, 30), |(i, j)| (i * j) as f32);
/// let bytes = pumice::compress_array(array.view(), &Config::new(Bound::Lossless))?;
/// assert_eq!(pumice::decompress_array::<f32>(&bytes)?, array.into_dyn());
/// # Ok::<(), pumice::Error>(())
/// ```
#[cfg(feature = "ndarray")]
pub fn compress_array<T: Real, D: ndarray::Dimension>(
    view: ndarray::ArrayView<'_, T, D>,
    config: &Config,
) -> Result<Vec<u8>> {
    let array = view.as_standard_layout();
    let data = array.as_slice().ok_or_else(|| Error::invalid("the array is not in C order"))?;
    compress(data, view.shape(), config)
}

/// Decompresses to an `ndarray` array.
#[cfg(feature = "ndarray")]
pub fn decompress_array<T: Real>(bytes: &[u8]) -> Result<ndarray::ArrayD<T>> {
    let array = decompress(bytes)?;
    ndarray::ArrayD::from_shape_vec(array.shape, array.data).map_err(|e| Error::invalid(e.to_string()))
}

#[cfg(test)]
mod tests;
