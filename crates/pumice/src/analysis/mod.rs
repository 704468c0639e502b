//! Statistics of an array, its estimated compressed size, and advice: [`analyze`].
//!
//! Makes two passes over the data (`profile.rs`: range, moments, special values; `estimate.rs`: roughly how many bits
//! each part takes), then runs the real encoders on at most a quarter of the values. The figures never influence a
//! stream, so the platform's logarithms may be used. docs/analyze.md explains each figure.

mod advice;
mod estimate;
mod profile;
mod residuals;
mod smoothness;

pub use advice::{Advice, Hint};
pub use estimate::{DifferenceEntropy, Estimate, LevelEntropy, Residuals};
pub use profile::Profile;
pub use smoothness::{AxisMadogram, MadogramPoint};

use crate::codec::Element;
use crate::error::{Error, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::grid;
use crate::io::{SliceSource, Source};
use crate::num::DType;
use crate::plan::{Config, ErrorBound, Plan, Preset, stats};

/// Options of the analysis, all with sensible defaults.
///
/// ```
/// use pumice::{AnalysisOptions, ErrorBound, Preset};
/// let options = AnalysisOptions::new().bounds(&[ErrorBound::Abs(0.1), ErrorBound::Lossless]).presets(&[Preset::Small]);
/// ```
#[derive(Clone, Debug)]
pub struct AnalysisOptions {
    bounds: Vec<ErrorBound>,
    presets: Vec<Preset>,
    fills: Vec<f64>,
    threads: usize,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        Self {
            bounds: [1e-2, 1e-3, 1e-4].map(ErrorBound::Rel).to_vec(),
            presets: Preset::ALL.to_vec(),
            fills: Vec::new(),
            threads: 0,
        }
    }
}

impl AnalysisOptions {
    /// Relative bounds of 1e-2, 1e-3 and 1e-4, every preset.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bounds to estimate for.
    #[must_use]
    pub fn bounds(mut self, bounds: &[ErrorBound]) -> Self {
        self.bounds = bounds.to_vec();
        self
    }

    /// The presets to estimate for.
    #[must_use]
    pub fn presets(mut self, presets: &[Preset]) -> Self {
        self.presets = presets.to_vec();
        self
    }

    /// The values that mean "no data", as [`Config::fills`].
    #[must_use]
    pub fn fills(mut self, values: &[f64]) -> Self {
        self.fills = values.to_vec();
        self
    }

    /// Worker threads; 0 means one per core. The figures do not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// The results of an analysis.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Analysis {
    /// Element type.
    pub dtype: DType,
    /// Extents, slowest axis first.
    pub shape: Vec<usize>,
    /// Number of values.
    pub n_values: u64,
    /// Size of the values.
    pub raw_bytes: u64,
    /// The default chunk shape.
    pub chunk_shape: Vec<usize>,
    /// Number of such chunks.
    pub n_chunks: u64,
    /// Range, moments and special values, of all values.
    pub profile: Profile,
    /// How much values differ with their distance, for each axis of more than one point.
    pub madograms: Vec<AxisMadogram>,
    /// Residuals of predictors, for each bound that is not lossless.
    pub residuals: Vec<Residuals>,
    /// Ratios to expect, for each preset and bound.
    pub estimates: Vec<Estimate>,
    /// Number of values that the encoders were tried on.
    pub sampled_values: u64,
    /// What to choose, and why.
    pub advice: Advice,
}

/// Analyses `data`, an array of this shape in C order.
///
/// ```
/// use pumice::{AnalysisOptions, ErrorBound, Config};
/// let data: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
/// let analysis = pumice::analyze(&data, &[100, 100], &AnalysisOptions::new())?;
/// assert_eq!(analysis.profile.n_nan, 0);
/// let expected = analysis.estimates[0];
/// let config = Config::new(expected.bound).preset(expected.preset);
/// let bytes = pumice::compress(&data, &[100, 100], &config)?;
/// assert_eq!(bytes.len() as u64, expected.compressed_bytes); // exact, since small arrays are tried as a whole
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn analyze<T: Element>(data: &[T], shape: &[usize], options: &AnalysisOptions) -> Result<Analysis> {
    analyze_from(&SliceSource::new(data, shape)?, options, &|_| ())
}

/// Analyses an array that is read box by box, such as a file larger than memory. Needs memory for one chunk per thread.
///
/// `progress` is called with the share of the work that is done, from any thread.
pub fn analyze_from<T: Element>(
    source: &dyn Source<T>,
    options: &AnalysisOptions,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Analysis> {
    let _floats = DefaultFloats::set();
    let shape = source.shape();
    let raw_bytes = grid::checked_bytes(shape, size_of::<T>());
    let raw_bytes = raw_bytes.ok_or_else(|| Error::invalid(format!("shape {shape:?} is too large")))?;
    let workers = Workers::new(options.threads)?;
    let of_pass = |from: f64, done: u64| progress(from + 0.1 * done as f64 / raw_bytes.max(1) as f64);
    let stats = stats::scan(source, &options.fills, &workers, &|done| of_pass(0.0, done))?;
    let profile = profile::scan(source, &stats, &workers, &|done| of_pass(0.1, done))?;
    let plans: Vec<Plan<T>> = options
        .bounds
        .iter()
        .map(|bound| Plan::new(&Config::new(*bound).fills(&options.fills), shape, Some(&stats)))
        .collect::<Result<_>>()?;
    let default = Plan::<T>::new(&Config::new(ErrorBound::Lossless).fills(&options.fills), shape, Some(&stats))?;
    let survey = estimate::Survey { source, plans: &plans, presets: &options.presets, workers: &workers };
    let mut found = survey.run(&default, &|share| progress(0.2 + 0.8 * share))?;
    // The bounds as they were asked for: in a plan, relative ones of an empty range are lossless.
    let asked = options.bounds.iter().flat_map(|bound| options.presets.iter().map(move |_| *bound));
    found.estimates.iter_mut().zip(asked).for_each(|(estimate, bound)| estimate.bound = bound);
    let mut analysis = Analysis {
        dtype: T::DTYPE,
        shape: shape.to_vec(),
        n_values: grid::n_values(shape) as u64,
        raw_bytes,
        chunk_shape: default.chunk_shape,
        n_chunks: found.n_chunks,
        madograms: found.madograms.finish(profile.max - profile.min),
        profile,
        residuals: found.residuals,
        estimates: found.estimates,
        sampled_values: found.sampled_values,
        advice: Advice::default(),
    };
    analysis.advice = advice::of(&analysis);
    progress(1.0);
    Ok(analysis)
}

#[cfg(test)]
mod tests;
