//! The options of a caller. [`Config`] holds nothing else; `plan/mod.rs` makes decisions from them and from the data's
//! statistics, and `container/header.rs` stores these.

use std::ops::Range;

use super::bounds::Region;
use crate::entropy::codebook::Codebook;
use crate::error::{Error, Result};

/// The error bound.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ErrorBound {
    /// `|x - x'| <= e` for every finite value. Zero means [`ErrorBound::Lossless`].
    Abs(f64),
    /// `|x - x'| <= e * (max - min)` over the finite values that are not fill values, or over
    /// [`Config::range`] where given.
    Rel(f64),
    /// `|x - x'| <= e * |x|` for every finite value. Zeros stay zeros.
    PwRel(f64),
    /// Every bit is kept.
    Lossless,
    /// A peak signal to noise ratio of this many dB, `20 log10(max - min) - 10 log10(MSE)` over the finite values that
    /// are not fill values: never less, and less than 0.5 dB more if some bound achieves that. As for all targets, a
    /// search that compresses the array several times finds an absolute bound. This needs the whole array, so a
    /// streaming writer cannot have targets.
    Psnr(f64),
    /// An L2 norm of the error, `sqrt(sum (x - x')^2)` over all values: never more, and as close as `Psnr`. Zero means
    /// [`ErrorBound::Lossless`].
    L2(f64),
    /// A ratio of the size of the values to that of the stream: never less, and less than 3 % more if some bound
    /// achieves that. If lossless compression reaches the ratio, the array is stored lossless; a ratio that no bound
    /// reaches is an error. An array without values has no bytes that could be fewer: it meets every target, and is stored
    /// lossless.
    Ratio(f64),
}

impl ErrorBound {
    /// The kind, without its number.
    pub const fn kind(self) -> BoundKind {
        match self {
            ErrorBound::Lossless => BoundKind::Lossless,
            ErrorBound::Abs(_) => BoundKind::Abs,
            ErrorBound::Rel(_) => BoundKind::Rel,
            ErrorBound::PwRel(_) => BoundKind::PwRel,
            ErrorBound::Psnr(_) => BoundKind::Psnr,
            ErrorBound::L2(_) => BoundKind::L2,
            ErrorBound::Ratio(_) => BoundKind::Ratio,
        }
    }

    /// The number that goes with the kind; `None` for [`ErrorBound::Lossless`], which has none.
    pub const fn value(self) -> Option<f64> {
        match self {
            ErrorBound::Lossless => None,
            ErrorBound::Abs(e)
            | ErrorBound::Rel(e)
            | ErrorBound::PwRel(e)
            | ErrorBound::Psnr(e)
            | ErrorBound::L2(e)
            | ErrorBound::Ratio(e) => Some(e),
        }
    }

    /// The bound of this kind and number. [`BoundKind::Lossless`] ignores the number.
    ///
    /// ```
    /// use pumice::{BoundKind, ErrorBound};
    /// let kind: BoundKind = "rel".parse()?;
    /// let bound = ErrorBound::from_kind(kind, 1e-3);
    /// assert_eq!(bound, ErrorBound::Rel(1e-3));
    /// assert_eq!((bound.kind().name(), bound.value()), ("rel", Some(1e-3)));
    /// # Ok::<(), pumice::Error>(())
    /// ```
    pub const fn from_kind(kind: BoundKind, value: f64) -> Self {
        match kind {
            BoundKind::Lossless => ErrorBound::Lossless,
            BoundKind::Abs => ErrorBound::Abs(value),
            BoundKind::Rel => ErrorBound::Rel(value),
            BoundKind::PwRel => ErrorBound::PwRel(value),
            BoundKind::Psnr => ErrorBound::Psnr(value),
            BoundKind::L2 => ErrorBound::L2(value),
            BoundKind::Ratio => ErrorBound::Ratio(value),
        }
    }

    /// Whether the number is valid for the kind: finite, and above 0 for a PSNR, at least 1 for a ratio, not negative
    /// for the rest. Compression refuses other bounds.
    pub fn is_valid(self) -> bool {
        let Some(value) = self.value() else { return true };
        let is_large_enough = match self.kind() {
            BoundKind::Psnr => value > 0.0,
            BoundKind::Ratio => value >= 1.0,
            _ => value >= 0.0,
        };
        value.is_finite() && is_large_enough
    }
}

/// The kind of an [`ErrorBound`], for programs that take or show kind and number separately. The numbers are those of
/// `bound_kind` in the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum BoundKind {
    /// [`ErrorBound::Lossless`].
    Lossless = 0,
    /// [`ErrorBound::Abs`].
    Abs = 1,
    /// [`ErrorBound::Rel`].
    Rel = 2,
    /// [`ErrorBound::PwRel`].
    PwRel = 3,
    /// [`ErrorBound::Psnr`].
    Psnr = 4,
    /// [`ErrorBound::L2`].
    L2 = 5,
    /// [`ErrorBound::Ratio`].
    Ratio = 6,
}

impl BoundKind {
    /// Every kind, by its number.
    pub const ALL: &'static [BoundKind] = &[
        BoundKind::Lossless,
        BoundKind::Abs,
        BoundKind::Rel,
        BoundKind::PwRel,
        BoundKind::Psnr,
        BoundKind::L2,
        BoundKind::Ratio,
    ];

    /// The number in the file format.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind of this number; `None` if there is none in this release.
    pub fn from_code(code: u8) -> Option<Self> {
        BoundKind::ALL.get(usize::from(code)).copied()
    }

    /// The name used on the command line, in Python and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            BoundKind::Lossless => "lossless",
            BoundKind::Abs => "abs",
            BoundKind::Rel => "rel",
            BoundKind::PwRel => "pwrel",
            BoundKind::Psnr => "psnr",
            BoundKind::L2 => "l2",
            BoundKind::Ratio => "ratio",
        }
    }

    /// Whether it is a target, for which a search over the whole array finds an absolute bound.
    pub const fn is_target(self) -> bool {
        matches!(self, BoundKind::Psnr | BoundKind::L2 | BoundKind::Ratio)
    }
}

impl std::fmt::Display for BoundKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for BoundKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        BoundKind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<_> = BoundKind::ALL.iter().map(|kind| kind.name()).collect();
            Error::invalid(format!("unknown kind of bound '{name}'; known: {}", known.join(", ")))
        })
    }
}

impl std::fmt::Display for ErrorBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ErrorBound::Abs(e) => write!(f, "an absolute bound of {e}"),
            ErrorBound::Rel(e) => write!(f, "a bound of {e} times the range"),
            ErrorBound::PwRel(e) => write!(f, "a bound of {e} times each value"),
            ErrorBound::Psnr(db) => write!(f, "a PSNR of {db} dB"),
            ErrorBound::L2(norm) => write!(f, "an L2 norm of {norm}"),
            ErrorBound::Ratio(ratio) => write!(f, "a ratio of {ratio}"),
            ErrorBound::Lossless => write!(f, "no loss"),
        }
    }
}

/// The pipeline, from fastest to smallest, and then those of papers (docs/papers.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Preset {
    /// Quantise, Lorenzo differences over tiles, fixed-length bit planes: about half of memcpy speed.
    Fast,
    /// Quantise, Lorenzo differences over the chunk, Huffman codes chosen by local magnitude: several times the speed of
    /// `small` at ratios near those of other compressors' best.
    Balanced,
    /// Fitted interpolation or prediction on the lattice, whichever suits the chunk better, and context-modelled rANS:
    /// ratios above all other compressors at the speed of the good ones.
    #[default]
    Small,
    /// As `small`, but tries everything and codes with adaptive mixing of many contexts: for archives.
    Max,
    /// The pipeline of cuSZ+: N-D Lorenzo, and Huffman or run-length coding by the paper's rule.
    Cuszplus,
    /// The pipeline of CEAZ: Lorenzo and offline codewords, or new ones where the data's distribution differs. Chunks
    /// are the paper's update windows of 32 MiB, so that [`Writer`](crate::Writer) adapts to a stream over time.
    Ceaz,
    /// As cuSZp2 in plain mode: differences within blocks of 32, in bit planes of one width per block.
    Cuszp2Plain,
    /// As cuSZp2 in outlier mode: the first difference of a block is stored separately where that is smaller.
    Cuszp2Outlier,
    /// As CereSZ-II: differences within blocks of 32, coded with one static Huffman codebook.
    Ceresz2,
}

impl Preset {
    /// Every preset, in the order of their documentation.
    pub const ALL: &'static [Preset] = &[
        Preset::Fast,
        Preset::Balanced,
        Preset::Small,
        Preset::Max,
        Preset::Cuszp2Plain,
        Preset::Cuszp2Outlier,
        Preset::Cuszplus,
        Preset::Ceaz,
        Preset::Ceresz2,
    ];

    /// The name used on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Preset::Fast => "fast",
            Preset::Balanced => "balanced",
            Preset::Small => "small",
            Preset::Max => "max",
            Preset::Cuszplus => "cuszplus",
            Preset::Ceaz => "ceaz",
            Preset::Cuszp2Plain => "cuszp2-plain",
            Preset::Cuszp2Outlier => "cuszp2-outlier",
            Preset::Ceresz2 => "ceresz2",
        }
    }
}

impl std::str::FromStr for Preset {
    type Err = crate::Error;

    fn from_str(name: &str) -> crate::Result<Self> {
        Preset::ALL.iter().copied().find(|p| p.name() == name).ok_or_else(|| {
            let known: Vec<_> = Preset::ALL.iter().map(|p| p.name()).collect();
            crate::Error::invalid(format!("unknown preset '{name}'; known: {}", known.join(", ")))
        })
    }
}

/// Whether compressing restored values again changes any of them; see [`Config::stable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Stable {
    /// The best ratio. Values may move by up to the bound whenever they are compressed again.
    #[default]
    Off,
    /// Restored values lie on a lattice that depends on the absolute bound alone, or are exact.
    On,
    /// As [`Stable::On`] for each chunk where an estimate says that it costs less than 2 % of the size: the choice of
    /// file layers, such as the HDF5 filter. With bounds that have no stable mode it is [`Stable::Off`].
    Auto,
}

impl Stable {
    /// Every choice.
    pub const ALL: &'static [Stable] = &[Stable::Off, Stable::On, Stable::Auto];

    /// The name used on the command line, in Python and in the rules of `convert`.
    pub const fn name(self) -> &'static str {
        match self {
            Stable::Off => "off",
            Stable::On => "on",
            Stable::Auto => "auto",
        }
    }
}

impl std::str::FromStr for Stable {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Stable::ALL
            .iter()
            .copied()
            .find(|stable| stable.name() == name)
            .ok_or_else(|| Error::invalid(format!("unknown stable mode '{name}'; known: off, on, auto")))
    }
}

/// Options of a compression; all but the bound have sensible defaults.
///
/// ```
/// use pumice::{ErrorBound, Config};
/// let config = Config::new(ErrorBound::Rel(1e-3)).threads(2);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// All of them hold; at least one.
    pub(crate) bounds: Vec<ErrorBound>,
    pub(crate) regions: Vec<Region>,
    pub(crate) bin: Vec<usize>,
    pub(crate) preset: Preset,
    /// `None`: off for arrays, automatic for chunks of file formats.
    pub(crate) stable: Option<Stable>,
    /// Empty: they are detected.
    pub(crate) fills: Vec<f64>,
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) chunk_shape: Option<Vec<usize>>,
    pub(crate) threads: usize,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) codebook: Option<Codebook>,
}

impl Config {
    /// The default configuration with this bound.
    pub fn new(bound: ErrorBound) -> Self {
        Self {
            bounds: vec![bound],
            regions: Vec::new(),
            bin: Vec::new(),
            preset: Preset::default(),
            stable: None,
            fills: Vec::new(),
            range: None,
            chunk_shape: None,
            threads: 0,
            attributes: Vec::new(),
            codebook: None,
        }
    }

    /// Asks for one more bound, so that all of them hold.
    ///
    /// ```
    /// use pumice::{ErrorBound, Config};
    /// // A hundredth of each value, and never more than 0.5.
    /// let config = Config::new(ErrorBound::PwRel(1e-2)).and(ErrorBound::Abs(0.5));
    /// let bytes = pumice::compress(&[1.0f32, 0.0, 900.0], &[3], &config)?;
    /// let restored = pumice::decompress::<f32>(&bytes)?.data;
    /// assert!((restored[0] - 1.0).abs() <= 0.01 && restored[1] == 0.0 && (restored[2] - 900.0).abs() <= 0.5);
    /// # Ok::<(), pumice::Error>(())
    /// ```
    #[must_use]
    pub fn and(mut self, bound: ErrorBound) -> Self {
        self.bounds.push(bound);
        self
    }

    /// Asks for one more bound in a box of the array, given as one range of positions per axis. Where boxes overlap the
    /// bounds of all of them hold.
    ///
    /// ```
    /// use pumice::{ErrorBound, Config};
    /// let data: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
    /// let config = Config::new(ErrorBound::Abs(0.1)).region(&[20..30, 40..60], ErrorBound::Lossless);
    /// let restored = pumice::decompress::<f32>(&pumice::compress(&data, &[100, 100], &config)?)?.data;
    /// assert_eq!(restored[2540..2560], data[2540..2560]);
    /// # Ok::<(), pumice::Error>(())
    /// ```
    #[must_use]
    pub fn region(mut self, ranges: &[Range<usize>], bound: ErrorBound) -> Self {
        self.regions.push(Region { ranges: ranges.to_vec(), bound });
        self
    }

    /// Keeps only the means of bins of this many values along each axis, outside of the boxes of [`Config::region`];
    /// they are restored as blocks of equal values. The bounds then hold for the means, and in each box its own bound
    /// for the values. NaN, infinities and fill values are kept as they are, and left out of the means.
    ///
    /// ```
    /// use pumice::{ErrorBound, Config};
    /// let data: Vec<f32> = (0..10_000).map(|i| (i % 100) as f32).collect();
    /// let config = Config::new(ErrorBound::Abs(1e-3)).bin(&[2, 2]).region(&[0..10, 0..10], ErrorBound::Lossless);
    /// let restored = pumice::decompress::<f32>(&pumice::compress(&data, &[100, 100], &config)?)?.data;
    /// assert_eq!(restored[..10], data[..10]);
    /// assert!((restored[50] - 50.5).abs() <= 1e-3 && restored[50] == restored[151]);
    /// # Ok::<(), pumice::Error>(())
    /// ```
    #[must_use]
    pub fn bin(mut self, factors: &[usize]) -> Self {
        self.bin = factors.to_vec();
        self
    }

    /// The pipeline.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }

    /// Whether values that are restored, and compressed again under the same absolute bound, keep every bit, whatever
    /// the chunk shape and the preset. The default is [`Stable::Off`], which has the best ratio.
    ///
    /// ```
    /// use pumice::{Config, ErrorBound, Preset, Stable};
    /// let data: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
    /// let config = Config::new(ErrorBound::Abs(1e-2)).stable(Stable::On);
    /// let once = pumice::decompress::<f32>(&pumice::compress(&data, &[100, 100], &config)?)?.data;
    /// let config = config.preset(Preset::Fast).chunk_shape(&[90, 100]);
    /// let twice = pumice::decompress::<f32>(&pumice::compress(&once, &[100, 100], &config)?)?.data;
    /// assert_eq!(once, twice);
    /// # Ok::<(), pumice::Error>(())
    /// ```
    ///
    /// It is for [`ErrorBound::Abs`] and [`ErrorBound::Rel`]; other bounds are an error with [`Stable::On`], and so are
    /// bins. A relative bound sets the lattice by the range. Where the values lie on the lattice that an earlier,
    /// slightly different range has set, that lattice is kept.
    #[must_use]
    pub fn stable(mut self, stable: Stable) -> Self {
        self.stable = Some(stable);
        self
    }

    /// The values that mean "no data", at most 8. They are kept bit for bit and left out of the range of
    /// [`ErrorBound::Rel`], as NaN is whether it is given here or not. Values that do not occur cost nothing. The two most
    /// frequent ones are stored as masks, others as exact values.
    ///
    /// Others are detected: conventional values (-999, -9999, 1e20, …), and repeated extreme values apart from the rest.
    ///
    /// ```
    /// use pumice::{Config, ErrorBound};
    /// let data = [3.0f32, -9999.0, 5.0, 0.0, 4.0, f32::NAN];
    /// let bytes = pumice::compress(&data, &[6], &Config::new(ErrorBound::Rel(1e-2)).fills(&[-9999.0, 0.0]))?;
    /// let restored = pumice::decompress::<f32>(&bytes)?.data;
    /// assert_eq!((restored[1], restored[3]), (-9999.0, 0.0));
    /// assert!((restored[0] - 3.0).abs() <= 0.02 && restored[5].is_nan());
    /// # Ok::<(), pumice::Error>(())
    /// ```
    #[must_use]
    pub fn fills(mut self, values: &[f64]) -> Self {
        self.fills = values.to_vec();
        self
    }

    /// The value range that [`ErrorBound::Rel`] refers to, instead of the data's own: so that the parts of a larger
    /// array share one bound, and so that a stream can be written before all values are known.
    #[must_use]
    pub fn range(mut self, min: f64, max: f64) -> Self {
        self.range = Some((min, max));
        self
    }

    /// The chunk shape, slowest axis first: the unit of partial reads and of parallel work.
    #[must_use]
    pub fn chunk_shape(mut self, shape: &[usize]) -> Self {
        self.chunk_shape = Some(shape.to_vec());
        self
    }

    /// The codes that the chunks of the preset [`Preset::Balanced`] share, instead of building their own. It pays for small
    /// chunks: their tables take time and space. A chunk that the codebook does not suit still gets its own. The stream
    /// keeps a copy, so that nothing else is needed to read it.
    ///
    /// ```
    /// use pumice::{CodebookTrainer, Config, ErrorBound, Preset};
    /// let step = |t: usize| (0..40_000).map(|i| ((i + 9 * t) as f32 * 0.01).sin()).collect::<Vec<_>>();
    /// let config = Config::new(ErrorBound::Abs(1e-4)).preset(Preset::Balanced).chunk_shape(&[16_000]);
    /// let mut trainer = CodebookTrainer::new();
    /// trainer.add(&step(0), &[40_000], &config)?;
    /// let config = config.codebook(&trainer.finish()?);
    /// let bytes = pumice::compress(&step(1), &[40_000], &config)?;
    /// assert!(pumice::decompress::<f32>(&bytes)?.data.iter().zip(step(1)).all(|(a, b)| (a - b).abs() <= 1e-4));
    /// # Ok::<(), pumice::Error>(())
    /// ```
    #[must_use]
    pub fn codebook(mut self, codebook: &Codebook) -> Self {
        self.codebook = Some(codebook.clone());
        self
    }

    /// Worker threads; 0 means one per core. The bytes do not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Adds a note that is stored with the array, such as a name or units.
    #[must_use]
    pub fn attribute(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.attributes.push((key.into(), value.into()));
        self
    }

    /// The error bound asked for; the first of them, if there are several.
    pub fn bound(&self) -> ErrorBound {
        self.bounds[0]
    }

    /// All error bounds and targets asked for.
    pub fn bounds(&self) -> &[ErrorBound] {
        &self.bounds
    }
}

/// Whether `bound` is a target; an error if its number is invalid.
pub(crate) fn check_target(bound: ErrorBound) -> Result<bool> {
    let (value, what) = match bound {
        ErrorBound::Psnr(db) => (db, "PSNR must be a number of dB above 0"),
        ErrorBound::L2(norm) => (norm, "L2 norm must be a non-negative number"),
        ErrorBound::Ratio(ratio) => (ratio, "ratio must be a number of at least 1"),
        _ => return Ok(false),
    };
    if bound.is_valid() { Ok(true) } else { Err(Error::invalid(format!("the {what}, not {value}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_bounds_agree() {
        for (code, &kind) in BoundKind::ALL.iter().enumerate() {
            assert_eq!(usize::from(kind.code()), code);
            assert_eq!(BoundKind::from_code(kind.code()), Some(kind));
            assert_eq!(kind.name().parse::<BoundKind>().unwrap(), kind);
            let bound = ErrorBound::from_kind(kind, 2.5);
            assert_eq!((bound.kind(), bound.value()), (kind, (kind != BoundKind::Lossless).then_some(2.5)));
            assert!(bound.is_valid());
            assert_eq!(ErrorBound::from_kind(kind, f64::NAN).is_valid(), kind == BoundKind::Lossless);
        }
        assert_eq!(BoundKind::from_code(7), None);
        assert!("other".parse::<BoundKind>().unwrap_err().to_string().contains("pwrel"));
    }
}
