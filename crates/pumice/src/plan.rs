//! Config + statistics -> [`Plan`]: every decision that shapes the stream, made in one place, all validation included.
//! The same plan gives the same bytes whatever the thread count, instruction set or backend.

use crate::array::Real;
use crate::chunk;
use crate::codec::{MAX_FILLS, ceaz};
use crate::config::{Bound, Config, Fill, Preset};
use crate::error::{Error, Result};
use crate::fpenv::DefaultFloats;
use crate::quantize::Quantizer;
use crate::stats::Stats;
use crate::target;

/// Most axes an array may have.
pub(crate) const MAX_RANK: usize = 8;

/// Values in a chunk where the user does not say: enough to amortise its sample and framing and to predict along the
/// slowest axis, few enough to share out among cores.
const CHUNK_VALUES: usize = 1 << 20;

/// A chunk may grow to this many values where that keeps it one run of memory, which saves a copy.
const CONTIGUOUS_VALUES: usize = 1 << 22;

/// An array up to this size is one chunk.
const SINGLE_CHUNK_VALUES: usize = 2 * CHUNK_VALUES;

/// Largest chunk in bytes: tile offsets count words of 4 bytes in 32 bits.
const MAX_CHUNK_BYTES: u64 = 1 << 33;

/// What a chunk costs beside its payload: frame and index entry, rounded up.
const FRAMING_BYTES: u64 = 32;

/// What was decided for one array.
#[derive(Clone, Debug)]
pub(crate) struct Plan<T> {
    /// Extents, slowest first. A streaming writer counts axis 0 as it goes and keeps 0 here.
    pub(crate) shape: Vec<usize>,
    pub(crate) chunk_shape: Vec<usize>,
    pub(crate) preset: Preset,
    /// What was asked for; `Abs(0)` and a relative bound of an empty range have become `Lossless`.
    pub(crate) bound: Bound,
    /// The absolute bound that holds; 0 if lossless.
    pub(crate) abs_bound: f64,
    /// Quantisation step; `None` if every value is stored exactly.
    pub(crate) step: Option<T>,
    /// Fill values that tile masks stand for, by bit pattern; at most two.
    pub(crate) fills: Vec<T>,
    pub(crate) attributes: Vec<(String, String)>,
}

impl<T: Real> Plan<T> {
    /// Decides; `stats` is absent where the data is not yet known (a streaming writer).
    pub(crate) fn new(config: &Config, shape: &[usize], stats: Option<&Stats<T>>) -> Result<Self> {
        let _floats = DefaultFloats::set();
        check_shape::<T>(shape)?;
        let range = stats.and_then(|s| s.range).map(|(lo, hi)| (lo.to_f64(), hi.to_f64()));
        let (bound, abs_bound) = resolve_bound(config, range, stats.is_some())?;
        let max_abs = range.map(|(lo, hi)| lo.abs().max(hi.abs()));
        let step = match bound {
            Bound::Lossless => None,
            _ => Quantizer::<T>::new(abs_bound, max_abs).map(|q| q.step),
        };
        let fills = match stats {
            Some(stats) => stats.fills.clone(),
            None => assumed_fills(config.fill),
        };
        debug_assert!(fills.len() <= MAX_FILLS);
        Ok(Self {
            shape: shape.to_vec(),
            chunk_shape: resolve_chunk_shape::<T>(config, shape, stats.is_some())?,
            preset: config.preset,
            bound,
            abs_bound,
            step,
            fills,
            attributes: config.attributes.clone(),
        })
    }
}

fn check_shape<T: Real>(shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::invalid(format!(
            "arrays have at most {MAX_RANK} axes, this one has {}; merge some of them",
            shape.len()
        )));
    }
    match chunk::checked_bytes(shape, T::DTYPE.size()) {
        Some(_) => Ok(()),
        None => Err(Error::invalid(format!("shape {shape:?} is too large"))),
    }
}

/// The bound as it will be kept, and its absolute value.
fn resolve_bound(config: &Config, data_range: Option<(f64, f64)>, data_known: bool) -> Result<(Bound, f64)> {
    let check = |value: f64, name: &str| {
        if value.is_finite() && value >= 0.0 {
            Ok(())
        } else {
            Err(Error::invalid(format!("the {name} bound must be a number that is not negative, not {value}")))
        }
    };
    match config.bound {
        Bound::Lossless => Ok((Bound::Lossless, 0.0)),
        Bound::Abs(abs) => {
            check(abs, "absolute")?;
            Ok(if abs == 0.0 { (Bound::Lossless, 0.0) } else { (config.bound, abs) })
        }
        Bound::Rel(rel) => {
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
            Ok(if abs == 0.0 { (Bound::Lossless, 0.0) } else { (config.bound, abs.min(f64::MAX)) })
        }
        // Arrays that are there as a whole get their bound from target.rs.
        Bound::Psnr(_) | Bound::L2(_) | Bound::Ratio(_) => {
            target::check(config.bound)?;
            Err(Error::invalid(
                "a PSNR, an L2 norm or a ratio can only be aimed at when the whole array is there: compress it from \
                 memory or from a file, or write rows with an absolute bound",
            ))
        }
    }
}

/// Without statistics: what the user named, and the NaN that most programs write.
fn assumed_fills<T: Real>(fill: Fill) -> Vec<T> {
    let nan = T::from_f64(f64::NAN);
    match fill {
        Fill::Value(value) if !value.is_nan() => vec![T::from_f64(value), nan],
        _ => vec![nan],
    }
}

fn resolve_chunk_shape<T: Real>(config: &Config, shape: &[usize], shape_known: bool) -> Result<Vec<usize>> {
    let Some(asked) = &config.chunk_shape else {
        let most_values = match config.preset {
            Preset::Ceaz => Some(ceaz::WINDOW_BYTES / size_of::<T>()),
            _ => None,
        };
        return Ok(default_chunk_shape(shape, shape_known, most_values));
    };
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
    fn refuses_what_makes_no_sense() {
        let plan = |config: Config, shape: &[usize]| Plan::<f32>::new(&config, shape, None).map(|p| p.abs_bound);
        assert!(plan(Config::new(Bound::Abs(-1.0)), &[5]).is_err());
        assert!(plan(Config::new(Bound::Abs(f64::NAN)), &[5]).is_err());
        assert!(plan(Config::new(Bound::Rel(1e-3)), &[5]).is_err());
        assert!(plan(Config::new(Bound::Rel(1e-3)).range(2.0, 1.0), &[5]).is_err());
        assert_eq!(plan(Config::new(Bound::Rel(0.5)).range(1.0, 3.0), &[5]).unwrap(), 1.0);
        assert_eq!(plan(Config::new(Bound::Abs(0.0)), &[5]).unwrap(), 0.0);
        assert!(plan(Config::new(Bound::Abs(1.0)), &[1; 9]).is_err());
        assert!(plan(Config::new(Bound::Abs(1.0)), &[1 << 40, 1 << 40]).is_err());
        assert!(plan(Config::new(Bound::Abs(1.0)).chunk_shape(&[4, 4]), &[100, 100]).is_err());
        assert!(plan(Config::new(Bound::Abs(1.0)).chunk_shape(&[0]), &[100]).is_err());
    }
}
