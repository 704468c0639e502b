//! Config + statistics -> [`Plan`]: every decision that shapes the stream, made in one place, all validation included.
//! The same plan gives the same bytes whatever the thread count, instruction set or backend.

mod bounds;
mod config;
pub(crate) mod lattice;
pub(crate) mod passes;
pub(crate) mod quantize;
pub(crate) mod stats;

use std::ops::Range;

pub use bounds::Region;
pub(crate) use bounds::{BoxLimit, Check, Limit, is_within_share};
pub(crate) use config::check_target;
pub use config::{BoundKind, Config, ErrorBound, Preset, Stable};
pub use quantize::Quantizer;
pub(crate) use stats::Stats;
pub use stats::value_range;

use crate::entropy::Books;
use crate::error::{Error, Result};
use crate::exec::DefaultFloats;
use crate::grid::{self, Block};
use crate::num::Real;

/// Most fill values that a stream has masks for.
pub(crate) const MAX_FILLS: usize = 2;

/// The update window of CEAZ, which is a chunk of that preset.
pub(crate) const CEAZ_WINDOW_BYTES: usize = 32 << 20;

/// Most axes an array may have.
pub(crate) const MAX_RANK: usize = 8;

/// Values in a chunk unless the user sets its shape: enough to amortise its sample and framing and to predict along the
/// slowest axis, few enough to share out among cores.
const CHUNK_VALUES: usize = 1 << 20;

/// A chunk may grow to this many values if that keeps it contiguous in memory, which saves a copy.
const CONTIGUOUS_VALUES: usize = 1 << 22;

/// An array up to this size is one chunk.
const SINGLE_CHUNK_VALUES: usize = 2 * CHUNK_VALUES;

/// Largest chunk in bytes: tile offsets count words of 4 bytes in 32 bits.
const MAX_CHUNK_BYTES: u64 = 1 << 33;

/// Most boxes with bounds of their own.
pub(crate) const MAX_BOXES: usize = 1024;

/// Most values of a bin along one axis, and in total.
pub(crate) const MAX_BIN: usize = 256;
pub(crate) const MAX_BIN_VALUES: usize = 4096;

/// Overhead of a chunk: frame header and index entry, rounded up.
const FRAMING_BYTES: u64 = 32;

/// The same, rounded down.
const LEAST_FRAMING_BYTES: u64 = 24;

/// Overhead that all chunks together may have, in addition to 0.1 %.
const FRAMING_ALLOWED: u64 = 128;

/// The decisions for one array.
#[derive(Clone, Debug)]
pub(crate) struct Plan<T> {
    /// Extents, slowest first. A streaming writer counts axis 0 as it goes and keeps 0 here.
    pub(crate) shape: Vec<usize>,
    pub(crate) chunk_shape: Vec<usize>,
    pub(crate) preset: Preset,
    /// Whether values are put on a lattice that the bound alone sets; `Auto` only for `small` and `max`.
    pub(crate) stable: Stable,
    /// What was asked for; `Abs(0)` and a relative bound of an empty range have become `Lossless`.
    pub(crate) bound: ErrorBound,
    /// Further bounds that were asked for and hold as well.
    pub(crate) also: Vec<ErrorBound>,
    /// Boxes with bounds of their own.
    pub(crate) boxes: Vec<BoxLimit>,
    /// Extents of the bins whose means are kept outside of the boxes; none if all values are.
    pub(crate) bin: Vec<usize>,
    /// The absolute bound that holds; 0 if lossless, infinite if none was asked for.
    pub(crate) abs_bound: f64,
    /// Quantisation step; `None` if every value is stored exactly.
    pub(crate) step: Option<T>,
    /// Fill values that masks stand for, by bit pattern; at most two.
    pub(crate) fills: Vec<T>,
    /// Further fill values, which are stored exactly.
    pub(crate) more_fills: Vec<T>,
    /// Whether the values are not known beforehand, so that each chunk is searched for conventional fill values.
    pub(crate) is_streamed: bool,
    /// Where the codes of `balanced` come from.
    pub(crate) books: Books,
    pub(crate) attributes: Vec<(String, String)>,
}

impl<T: Real> Plan<T> {
    /// Makes the decisions; `stats` is `None` if the data is not yet known (a streaming writer).
    pub(crate) fn new(config: &Config, shape: &[usize], stats: Option<&Stats<T>>) -> Result<Self> {
        let _floats = DefaultFloats::set();
        check_shape::<T>(shape)?;
        let range = stats.and_then(|s| s.range).map(|(lo, hi)| (lo.to_f64(), hi.to_f64()));
        let resolve = |bound| resolve_bound(bound, config, range, stats.is_some());
        let (bounds, abs_bound) = resolve_all(&config.bounds, resolve)?;
        let max_abs = range.map(|(lo, hi)| lo.abs().max(hi.abs()));
        let stable = resolve_stable(config, &bounds)?;
        let step = match (abs_bound.is_finite() && abs_bound > 0.0, stable) {
            (true, Stable::Off) => Quantizer::<T>::new(abs_bound, max_abs).map(|q| q.step),
            (true, _) => Quantizer::<T>::lattice_step(abs_bound),
            (false, _) => None,
        };
        let boxes = config.regions.iter().map(|region| resolve_region(region, shape, stats.is_some(), resolve));
        let boxes = boxes.collect::<Result<Vec<_>>>()?;
        if config.codebook.is_some() && config.preset != Preset::Balanced {
            return Err(Error::invalid(format!(
                "a codebook is for the preset balanced, not {}: choose balanced, or leave the codebook out",
                config.preset.name()
            )));
        }
        if boxes.len() > MAX_BOXES {
            return Err(Error::invalid(format!("{} regions are too many; give at most {MAX_BOXES}", boxes.len())));
        }
        let mut fills = match stats {
            Some(stats) => stats.fills.clone(),
            None => assumed_fills(stats::given_fills(&config.fills)?),
        };
        let more_fills = fills.split_off(fills.len().min(MAX_FILLS));
        Ok(Self {
            shape: shape.to_vec(),
            chunk_shape: resolve_chunk_shape::<T>(config, shape, stats.is_some())?,
            preset: config.preset,
            stable,
            bound: bounds[0],
            also: bounds[1..].to_vec(),
            boxes,
            bin: config.bin.clone(),
            abs_bound,
            step,
            fills,
            more_fills,
            is_streamed: stats.is_none(),
            books: Books::of_stream(config.codebook.clone()),
            attributes: config.attributes.clone(),
        })
    }

    /// Chooses the fill values that get masks in a stream that starts with these rows: of the values that were given,
    /// those that occur there come first; then follow others that are found there.
    pub(crate) fn choose_masks(&mut self, rows: &impl stats::Passes<T>) -> Result<()> {
        let given: Vec<T> = self.all_fills().into_iter().filter(|fill| !fill.is_nan()).collect();
        let as_numbers: Vec<f64> = given.iter().map(|fill| fill.to_f64()).collect();
        let found = stats::decide(rows, &as_numbers)?.fills;
        let is_in = |fill: &T, among: &[T]| among.iter().any(|other| other.bits() == fill.bits());
        let (mut fills, others): (Vec<T>, Vec<T>) = found.iter().partition(|fill| is_in(fill, &given));
        fills.extend(given.iter().filter(|fill| !is_in(fill, &found)));
        fills.extend(others);
        self.fills = assumed_fills(fills);
        self.more_fills = self.fills.split_off(self.fills.len().min(MAX_FILLS));
        Ok(())
    }

    /// All fill values, with masks and without.
    pub(crate) fn all_fills(&self) -> Vec<T> {
        [self.fills.as_slice(), &self.more_fills].concat()
    }

    /// The limit for all values outside of boxes.
    pub(crate) fn limit(&self) -> Limit {
        limit_of(self.abs_bound, self.bound, &self.also)
    }

    /// How values outside of boxes are coded, as far as their bound is absolute.
    pub(crate) fn coding(&self) -> Coding<T> {
        Coding { preset: self.preset, stable: self.stable, abs_bound: self.abs_bound, step: self.step }
    }
}

/// How values are coded under an absolute bound, or exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coding<T> {
    pub(crate) preset: Preset,
    pub(crate) stable: Stable,
    pub(crate) abs_bound: f64,
    /// Quantisation step; `None` if every value is stored exactly.
    pub(crate) step: Option<T>,
}

impl<T: Real> Coding<T> {
    /// For values of at most this magnitude under this limit, as far as that is absolute.
    pub(crate) fn new(preset: Preset, stable: Stable, limit: &Limit, max_abs: f64) -> Self {
        let usable = limit.abs.is_finite() && !limit.is_lossless();
        let step = match stable {
            _ if !usable => None,
            Stable::Off => Quantizer::<T>::new(limit.abs, Some(max_abs)).map(|q| q.step),
            _ => Quantizer::<T>::lattice_step(limit.abs),
        };
        Self { preset, stable, abs_bound: if usable { limit.abs } else { 0.0 }, step }
    }

    /// The quantiser; `None` if every value is stored exactly.
    pub(crate) fn quantizer(&self) -> Option<Quantizer<T>> {
        Quantizer::for_stream(self.step?, self.abs_bound)
    }

    /// The quantiser of the lattice of the stable mode.
    pub(crate) fn lattice(&self) -> Option<Quantizer<T>> {
        Quantizer::on_lattice(self.step?, self.abs_bound)
    }
}

/// The limit that these bounds set; `abs_bound` is the smallest of the absolute ones.
pub(crate) fn limit_of(abs_bound: f64, bound: ErrorBound, also: &[ErrorBound]) -> Limit {
    let absolute = Limit { abs: abs_bound, pointwise: f64::INFINITY };
    also.iter().chain([&bound]).fold(absolute, |limit, bound| limit.meet(Limit::new(*bound, f64::INFINITY)))
}

/// All bounds that hold at once, and the smallest of the absolute ones: infinite if none of them is absolute.
fn resolve_all(
    bounds: &[ErrorBound],
    resolve: impl Fn(ErrorBound) -> Result<(ErrorBound, f64)>,
) -> Result<(Vec<ErrorBound>, f64)> {
    check_combination(bounds)?;
    let resolved = bounds.iter().map(|bound| resolve(*bound)).collect::<Result<Vec<_>>>()?;
    if resolved.iter().any(|(bound, _)| *bound == ErrorBound::Lossless) {
        return Ok((vec![ErrorBound::Lossless], 0.0));
    }
    let abs_bound = resolved.iter().fold(f64::INFINITY, |least, (_, abs)| least.min(*abs));
    Ok((resolved.into_iter().map(|(bound, _)| bound).collect(), abs_bound))
}

/// Refuses bounds that cannot hold at once.
pub(crate) fn check_combination(bounds: &[ErrorBound]) -> Result<()> {
    let targets: Vec<&ErrorBound> = bounds.iter().filter(|bound| bound.kind().is_target()).collect();
    let is_pointwise = bounds.iter().any(|bound| matches!(bound, ErrorBound::PwRel(_)));
    if targets.len() > 1 {
        return Err(Error::invalid(format!("{} and {} are two targets; give one of them", targets[0], targets[1])));
    }
    if let Some(target) = targets.first()
        && is_pointwise
    {
        return Err(Error::invalid(format!(
            "{target} is a target for the whole array and cannot be combined with a bound for each value; combine it with \
             an absolute or a relative bound"
        )));
    }
    Ok(())
}

/// Whether values are put on a lattice; an error if that is asked for, and these bounds do not set one.
fn resolve_stable(config: &Config, bounds: &[ErrorBound]) -> Result<Stable> {
    let stable = config.stable.unwrap_or_default();
    if stable == Stable::Off || bounds[0] == ErrorBound::Lossless {
        return Ok(Stable::Off);
    }
    let has_lattice =
        |bound: &ErrorBound| matches!(bound, ErrorBound::Abs(_) | ErrorBound::Rel(_) | ErrorBound::Lossless);
    // The range of the whole array, and with it the bound of such a region, changes a little when values are restored.
    let is_fixed = |region: &Region| config.range.is_some() || !matches!(region.bound, ErrorBound::Rel(_));
    let all = || bounds.iter().chain(config.regions.iter().map(|region| &region.bound));
    let refused = if let Some(bound) = all().find(|bound| !has_lattice(bound)) {
        Some(format!("{bound}; give an absolute or a relative bound"))
    } else if !config.bin.is_empty() {
        Some("bins, which store means; leave them out".into())
    } else if !config.regions.iter().all(is_fixed) {
        Some("a region whose bound is relative to the range of the data; give an absolute one, or the range".into())
    } else {
        None
    };
    match (stable, refused) {
        (Stable::On, Some(reason)) => Err(Error::invalid(format!("the stable mode is not possible with {reason}"))),
        (_, Some(_)) => Ok(Stable::Off),
        // Without feedback there is next to no cost.
        (Stable::Auto, None) if !matches!(config.preset, Preset::Small | Preset::Max) => Ok(Stable::On),
        (stable, None) => Ok(stable),
    }
}

fn resolve_region(
    region: &Region,
    shape: &[usize],
    shape_known: bool,
    resolve: impl Fn(ErrorBound) -> Result<(ErrorBound, f64)>,
) -> Result<BoxLimit> {
    let Region { ranges, bound } = region;
    let fits = |(axis, (range, extent)): (usize, (&Range<usize>, &usize))| {
        range.start < range.end && (range.end <= *extent || (axis == 0 && !shape_known && range.end < usize::MAX >> 1))
    };
    if ranges.len() != shape.len() || !ranges.iter().zip(shape).enumerate().all(fits) {
        return Err(Error::invalid(format!("the region {ranges:?} is not a box within the array of shape {shape:?}")));
    }
    if bound.kind().is_target() {
        return Err(Error::invalid(format!(
            "a region cannot have {bound} as a target; give it a bound for each value"
        )));
    }
    let (bound, abs) = resolve(*bound)?;
    let block = Block {
        start: ranges.iter().map(|range| range.start).collect(),
        extents: ranges.iter().map(ExactSizeIterator::len).collect(),
    };
    Ok(BoxLimit { block, bound, limit: Limit::new(bound, abs) })
}

pub(crate) fn check_shape<T: Real>(shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::invalid(format!(
            "arrays have at most {MAX_RANK} axes, this one has {}; merge some of them",
            shape.len()
        )));
    }
    match grid::checked_bytes(shape, T::DTYPE.size()) {
        Some(_) => Ok(()),
        None => Err(Error::invalid(format!("shape {shape:?} is too large"))),
    }
}

/// The bound to store, and its absolute value.
fn resolve_bound(
    bound: ErrorBound,
    config: &Config,
    data_range: Option<(f64, f64)>,
    data_known: bool,
) -> Result<(ErrorBound, f64)> {
    let check = |value: f64, name: &str| {
        if value.is_finite() && value >= 0.0 {
            Ok(())
        } else {
            Err(Error::invalid(format!("the {name} bound must be a non-negative number, not {value}")))
        }
    };
    match bound {
        ErrorBound::Lossless => Ok((ErrorBound::Lossless, 0.0)),
        ErrorBound::Abs(abs) => {
            check(abs, "absolute")?;
            Ok(if abs == 0.0 { (ErrorBound::Lossless, 0.0) } else { (bound, abs) })
        }
        ErrorBound::PwRel(e) => {
            check(e, "pointwise relative")?;
            Ok(if e == 0.0 { (ErrorBound::Lossless, 0.0) } else { (bound, f64::INFINITY) })
        }
        ErrorBound::Rel(rel) => {
            check(rel, "relative")?;
            let (lo, hi) = match (config.range, data_range) {
                (Some((lo, hi)), _) if lo.is_finite() && hi.is_finite() && lo <= hi => (lo, hi),
                (Some((lo, hi)), _) => {
                    return Err(Error::invalid(format!("the range must be MIN <= MAX, both finite, not {lo}, {hi}")));
                }
                (None, Some(range)) => range,
                (None, None) if data_known => (0.0, 0.0),
                (None, None) => {
                    return Err(Error::invalid(
                        "a relative bound needs the value range before the data is seen: give the range, or use an absolute bound",
                    ));
                }
            };
            // hi - lo may overflow where the products do not. Both are rounded, but errors stay a share of 2^-21 below
            // the result (see quantize.rs), and so below the exact one.
            let abs = if (hi - lo).is_finite() { rel * (hi - lo) } else { rel * hi - rel * lo };
            Ok(if abs == 0.0 { (ErrorBound::Lossless, 0.0) } else { (bound, abs.min(f64::MAX)) })
        }
        // Arrays that are available as a whole get their bound from target.rs.
        ErrorBound::Psnr(_) | ErrorBound::L2(_) | ErrorBound::Ratio(_) => {
            check_target(bound)?;
            Err(Error::invalid(
                "a PSNR, an L2 norm or a ratio is a target for the whole array: compress the array from memory or from \
                 a file, or write rows with an absolute bound",
            ))
        }
    }
}

/// Without statistics: the values that are known, and the NaN that most programs write.
fn assumed_fills<T: Real>(mut known: Vec<T>) -> Vec<T> {
    if known.len() < MAX_FILLS && !known.iter().any(|fill| fill.is_nan()) {
        known.push(T::from_f64(f64::NAN));
    }
    known
}

pub(crate) fn resolve_chunk_shape<T: Real>(config: &Config, shape: &[usize], shape_known: bool) -> Result<Vec<usize>> {
    let bin = &config.bin;
    let n_values = bin.iter().fold(1, |n: usize, factor| n.saturating_mul(*factor));
    let is_wrong = bin.len() != shape.len() || bin.iter().any(|n| !(1..=MAX_BIN).contains(n));
    if !bin.is_empty() && (is_wrong || !(2..=MAX_BIN_VALUES).contains(&n_values)) {
        return Err(Error::invalid(format!(
            "bins of {bin:?} need one factor of 1 to {MAX_BIN} for each axis of {shape:?}, and 2 to {MAX_BIN_VALUES} values"
        )));
    }
    let Some(asked) = &config.chunk_shape else {
        let most_values = match config.preset {
            Preset::Ceaz => Some(CEAZ_WINDOW_BYTES / size_of::<T>()),
            _ => None,
        };
        let mut chunk = default_chunk_shape(shape, shape_known, most_values);
        for (axis, (n, factor)) in chunk.iter_mut().zip(bin).enumerate() {
            let is_whole = *n >= shape[axis] && (axis > 0 || shape_known);
            *n = if is_whole { *n } else { n.next_multiple_of(*factor) };
        }
        return Ok(chunk);
    };
    let cuts_bins = |(axis, (n, factor)): (usize, (&usize, &usize))| {
        !n.is_multiple_of(*factor) && (*n < shape[axis] || (axis == 0 && !shape_known))
    };
    if asked.len() == shape.len() && asked.iter().zip(bin).enumerate().any(cuts_bins) {
        return Err(Error::invalid(format!("the chunk shape {asked:?} must be a multiple of the bins {bin:?}")));
    }
    if asked.len() != shape.len() || asked.contains(&0) {
        return Err(Error::invalid(format!(
            "the chunk shape {asked:?} needs one extent of at least 1 for each axis of {shape:?}"
        )));
    }
    // Chunks larger than the array are clipped; the slowest extent may yet grow where it is not known.
    let clip =
        |(axis, (c, n)): (usize, (&usize, &usize))| if axis == 0 && !shape_known { *c } else { *c.min(n).max(&1) };
    let chunk: Vec<usize> = asked.iter().zip(shape).enumerate().map(clip).collect();
    let chunk_bytes = chunk.iter().fold(T::DTYPE.size() as u64, |n, c| n.saturating_mul(*c as u64));
    if chunk_bytes > MAX_CHUNK_BYTES {
        return Err(Error::invalid(format!("chunks of {chunk:?} are larger than 8 GiB; choose smaller ones")));
    }
    if shape_known && let Some(array_bytes) = grid::checked_bytes(shape, T::DTYPE.size()) {
        // Chunks at the ends may be slivers.
        let counts = chunk.iter().zip(shape).map(|(c, n)| n.div_ceil(*c) as u64);
        let framing = counts.fold(LEAST_FRAMING_BYTES, u64::saturating_mul);
        if framing > array_bytes / 1000 + FRAMING_ALLOWED {
            return Err(Error::invalid(format!(
                "chunks of {chunk:?} cut {shape:?} into so many pieces that their framing would cost more than 0.1 %"
            )));
        }
    }
    let is_whole = shape_known && chunk.iter().zip(shape).all(|(c, n)| c >= n);
    if !is_whole && chunk_bytes < 1000 * FRAMING_BYTES {
        return Err(Error::invalid(format!(
            "chunks of {chunk:?} hold {chunk_bytes} bytes; below {} their framing would cost more than 0.1 %",
            1000 * FRAMING_BYTES
        )));
    }
    Ok(chunk)
}

/// Extents that chunks are multiples of: those of tiles, and sixteen rows or planes, since differences along the slowest
/// axis start anew in each chunk.
pub(crate) fn tile_extent(rank: usize, axis: usize) -> usize {
    match (rank - 1 - axis, rank) {
        (0, 1) => 4096,
        (0, _) => 32,
        (1 | 2, _) => 16,
        _ => 1,
    }
}

/// Whole rows, then whole planes, up to [`CHUNK_VALUES`] or what the preset has instead, in multiples of the tiles'
/// extents.
fn default_chunk_shape(shape: &[usize], shape_known: bool, most_values: Option<usize>) -> Vec<usize> {
    let chunk_values = most_values.unwrap_or(CHUNK_VALUES);
    let contiguous_values = most_values.unwrap_or(CONTIGUOUS_VALUES);
    let total = shape.iter().fold(1_usize, |n, e| n.saturating_mul(*e));
    if shape_known && total <= most_values.unwrap_or(SINGLE_CHUNK_VALUES) {
        return shape.iter().map(|n| (*n).max(1)).collect();
    }
    let rank = shape.len();
    let extent = |axis: usize| if axis == 0 && !shape_known { usize::MAX } else { shape[axis].max(1) };
    // A chunk that cuts tiles would only make clipped ones.
    let unit = |axis: usize| tile_extent(rank, axis);
    let mut chunk: Vec<usize> = (0..rank).map(|axis| unit(axis).min(extent(axis))).collect();
    for axis in (0..rank).rev() {
        let others = chunk.iter().product::<usize>() / chunk[axis];
        let keeps_whole_rows = axis > 0 && extent(axis).saturating_mul(others) <= contiguous_values;
        let target = if keeps_whole_rows { contiguous_values } else { chunk_values };
        let room = (target / others).max(chunk[axis]);
        chunk[axis] = if extent(axis) <= room {
            extent(axis)
        } else if extent(axis) == usize::MAX {
            (room / unit(axis)).max(1) * unit(axis)
        } else {
            // Pieces of equal size, rather than full ones and a sliver.
            let n_pieces = extent(axis).div_ceil(room);
            extent(axis).div_ceil(n_pieces).next_multiple_of(unit(axis)).min(extent(axis))
        };
    }
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_chunks() {
        assert_eq!(default_chunk_shape(&[96, 128, 128], true, None), [96, 128, 128]);
        assert_eq!(default_chunk_shape(&[960, 128, 128], true, None), [64, 128, 128]);
        assert_eq!(default_chunk_shape(&[2000, 2000, 2000], true, None), [16, 32, 2000]);
        assert_eq!(default_chunk_shape(&[512, 512, 512], true, None), [16, 512, 512]);
        assert_eq!(default_chunk_shape(&[7210, 1440], true, None), [736, 1440]);
        assert_eq!(default_chunk_shape(&[1 << 24], true, None), [1 << 20]);
        assert_eq!(default_chunk_shape(&[0, 128, 128], false, None), [64, 128, 128]);
        assert_eq!(default_chunk_shape(&[0], false, None), [1 << 20]);
        assert_eq!(default_chunk_shape(&[3, 0, 5], true, None), [3, 1, 5]);
        // Windows of 2^23 values.
        assert_eq!(default_chunk_shape(&[1 << 23], true, Some(1 << 23)), [1 << 23]);
        assert_eq!(default_chunk_shape(&[0, 128, 128], false, Some(1 << 23)), [512, 128, 128]);
        assert_eq!(default_chunk_shape(&[512, 512, 512], true, Some(1 << 23)), [32, 512, 512]);
    }

    #[test]
    fn invalid_options_are_refused() {
        let plan = |config: Config, shape: &[usize]| Plan::<f32>::new(&config, shape, None).map(|p| p.abs_bound);
        assert!(plan(Config::new(ErrorBound::Abs(-1.0)), &[5]).is_err());
        assert!(plan(Config::new(ErrorBound::Abs(f64::NAN)), &[5]).is_err());
        assert!(plan(Config::new(ErrorBound::Rel(1e-3)), &[5]).is_err());
        assert!(plan(Config::new(ErrorBound::Rel(1e-3)).range(2.0, 1.0), &[5]).is_err());
        assert_eq!(plan(Config::new(ErrorBound::Rel(0.5)).range(1.0, 3.0), &[5]).unwrap(), 1.0);
        assert_eq!(plan(Config::new(ErrorBound::Abs(0.0)), &[5]).unwrap(), 0.0);
        assert!(plan(Config::new(ErrorBound::Abs(1.0)), &[1; 9]).is_err());
        assert!(plan(Config::new(ErrorBound::Abs(1.0)), &[1 << 40, 1 << 40]).is_err());
        assert!(plan(Config::new(ErrorBound::Abs(1.0)).chunk_shape(&[4, 4]), &[100, 100]).is_err());
        assert!(plan(Config::new(ErrorBound::Abs(1.0)).chunk_shape(&[0]), &[100]).is_err());
        let values: Vec<f32> = (0..5_u32.pow(8)).map(|i| i as f32).collect();
        for (shape, chunk) in [(vec![5; 8], vec![4; 8]), (vec![9; 5], vec![8; 5]), (vec![21; 3], vec![20; 3])] {
            let n = shape.iter().product();
            let config = Config::new(ErrorBound::Abs(1.0)).chunk_shape(&chunk);
            assert!(crate::compress(&values[..n], &shape, &config).is_err(), "{shape:?}");
        }
    }
}
