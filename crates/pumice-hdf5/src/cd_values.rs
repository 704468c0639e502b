//! `cd_values`, the unsigned 32-bit integers that HDF5 stores as a filter's parameters (table: docs/hdf5.md).
//!
//! The user gives the first part: bound, preset, stable mode, range, fill values. `set_local` appends the second part,
//! which describes the dataset. h5repack and nccopy pass both parts of one dataset to another; `set_local` then replaces
//! the second.

use pumice::backend::ChunkSettings;
use pumice::{BoundKind, Config, DType, Error, ErrorBound, ErrorKind, Preset, Result, Stable};

/// The version of the layout that this module writes and reads; it refuses others.
const VERSION: u32 = 1;

const RANGE_GIVEN: u32 = 1 << 24;
const FILL_GIVEN: u32 = 1 << 25;
/// The number of further fill values, two bits, from here on.
const MORE_FILLS_SHIFT: u32 = 28;
const MORE_FILLS: u32 = 3 << MORE_FILLS_SHIFT;
/// Most fill values that the user can name.
pub const MAX_FILLS: usize = 4;
/// Two bits for the stable mode.
const STABLE_SHIFT: u32 = 26;
const STABLE_BITS: u32 = 3 << STABLE_SHIFT;
/// The dataset's part follows that of the user.
const HAS_CHUNK_TYPE: u32 = 1 << 31;
const KNOWN_FLAGS: u32 = RANGE_GIVEN | FILL_GIVEN | STABLE_BITS | MORE_FILLS | HAS_CHUNK_TYPE;

const BIG_ENDIAN: u32 = 1 << 8;
const FILL_DEFINED: u32 = 1 << 9;
const SHUFFLED: u32 = 1 << 10;

/// The largest rank of an HDF5 dataset.
const MAX_RANK: usize = 32;

/// Numbers of presets; 0 stands for the default.
const PRESETS: [(u32, Preset); 9] = [
    (1, Preset::Fast),
    (2, Preset::Small),
    (3, Preset::Max),
    (4, Preset::Balanced),
    (5, Preset::Cuszp2Plain),
    (6, Preset::Cuszp2Outlier),
    (7, Preset::Cuszplus),
    (8, Preset::Ceaz),
    (9, Preset::Ceresz2),
];

/// Numbers of the stable mode; 0 is the default.
const STABLES: [(u32, Stable); 3] = [(0, Stable::Auto), (1, Stable::On), (2, Stable::Off)];

/// What the user asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterOptions {
    /// The bound or target of each chunk.
    pub bound: ErrorBound,
    /// The pipeline.
    pub preset: Preset,
    /// Whether values keep their bits when they are compressed again: by default, where that costs little.
    pub stable: Stable,
    /// The range that a relative bound refers to, instead of each chunk's own.
    pub range: Option<(f64, f64)>,
    /// Values that mean "no data", in addition to the dataset's fill value: at most [`MAX_FILLS`].
    pub fills: Vec<f64>,
}

impl FilterOptions {
    /// A bound, and defaults for the rest.
    pub fn new(bound: ErrorBound) -> Self {
        Self { bound, preset: Preset::default(), stable: Stable::Auto, range: None, fills: Vec::new() }
    }

    /// Those of a config.
    ///
    /// # Errors
    /// If the bound is not valid, or the config has settings that the filter has not.
    pub fn of(config: &Config) -> Result<Self> {
        let ChunkSettings { bound, preset, stable, range, fills, .. } = ChunkSettings::of(config)?;
        if fills.len() > MAX_FILLS {
            return Err(invalid(format!("the HDF5 filter takes up to {MAX_FILLS} fill values, not {}", fills.len())));
        }
        check(bound)?;
        match range {
            Some(_) if bound.kind() != BoundKind::Rel => {
                Err(invalid("a range is what a relative bound refers to: leave it out".into()))
            }
            Some((lo, hi)) if !(lo.is_finite() && hi.is_finite() && lo <= hi) => {
                Err(invalid(format!("{lo} to {hi} is not a range of finite values")))
            }
            _ => Ok(Self { bound, preset, stable, range, fills }),
        }
    }
}

/// The byte order of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// Type and shape of the chunks of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkType {
    /// Element type.
    pub dtype: DType,
    /// Byte order.
    pub order: ByteOrder,
    /// Extents, slowest axis first.
    pub extents: Vec<usize>,
    /// The dataset's fill value, where its creator has set one.
    pub fill: Option<f64>,
    /// HDF5's shuffle filter comes before this one: it sorts the bytes of a chunk by their place in a value.
    pub shuffled: bool,
}

impl ChunkType {
    /// Size of a chunk in bytes; `None` if it overflows.
    pub fn n_bytes(&self) -> Option<usize> {
        let size = self.extents.iter().try_fold(self.dtype.size(), |n, extent| n.checked_mul(*extent))?;
        (size <= isize::MAX as usize).then_some(size)
    }
}

/// The decoded `cd_values` of a filter.
#[derive(Clone, Debug, PartialEq)]
pub struct CdValues {
    /// The user's part.
    pub options: FilterOptions,
    /// The dataset's part, which `set_local` adds.
    pub chunk_type: Option<ChunkType>,
}

impl CdValues {
    /// Parses `cd_values`, with or without the dataset's part. An empty list means lossless compression.
    pub fn parse(cd_values: &[u32]) -> Result<Self> {
        let Some(&first) = cd_values.first() else {
            return Ok(Self { options: FilterOptions::new(ErrorBound::Lossless), chunk_type: None });
        };
        let [version, kind, preset, _] = first.to_le_bytes().map(u32::from);
        if version != VERSION {
            return Err(unsupported(format!(
                "filter parameters of version {version}; this plugin knows version {VERSION}"
            )));
        }
        if first >> 24 << 24 & !KNOWN_FLAGS != 0 {
            return Err(unsupported(format!(
                "unknown flags in the filter parameter {first:#010x}: use a newer plugin"
            )));
        }
        let mut rest = Rest(&cd_values[1..]);
        let bound = bound_from(kind, rest.number()?)?;
        let range = (first & RANGE_GIVEN != 0).then(|| rest.pair()).transpose()?;
        let n_more = (first & MORE_FILLS) >> MORE_FILLS_SHIFT;
        if n_more > 0 && first & FILL_GIVEN == 0 {
            return Err(invalid("filter parameters with further fill values and without a first one".into()));
        }
        let n_fills = if first & FILL_GIVEN == 0 { 0 } else { 1 + n_more };
        let fills = (0..n_fills).map(|_| rest.number()).collect::<Result<Vec<f64>>>()?;
        let preset =
            match preset {
                0 => Preset::default(),
                n => PRESETS.iter().find(|(number, _)| *number == n).map(|(_, preset)| *preset).ok_or_else(|| {
                    unsupported(format!("filter parameters with unknown preset {n}: use a newer plugin"))
                })?,
            };
        let number = (first & STABLE_BITS) >> STABLE_SHIFT;
        let stable = STABLES.iter().find(|(known, _)| *known == number).map(|(_, stable)| *stable);
        let stable = stable
            .ok_or_else(|| unsupported("filter parameters with an unknown stable mode: use a newer plugin".into()))?;
        let chunk_type = (first & HAS_CHUNK_TYPE != 0).then(|| rest.chunk_type()).transpose()?;
        if !rest.0.is_empty() {
            return Err(invalid(format!("there are {} filter parameters too many", rest.0.len())));
        }
        Ok(Self { options: FilterOptions { bound, preset, stable, range, fills }, chunk_type })
    }

    /// The integers to store.
    ///
    /// # Panics
    /// If there are more than [`MAX_FILLS`] fill values.
    pub fn to_vec(&self) -> Vec<u32> {
        let FilterOptions { bound, preset, stable, range, fills } = &self.options;
        assert!(fills.len() <= MAX_FILLS, "at most {MAX_FILLS} fill values");
        let (kind, value) = (u32::from(bound.kind().code()), bound.value().unwrap_or(0.0));
        // The default is written by its number, so that a later default does not change what a file says of itself.
        let preset = PRESETS.iter().find(|(_, known)| known == preset).map_or(0, |(number, _)| *number);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(range.is_some(), RANGE_GIVEN)
            | flag(!fills.is_empty(), FILL_GIVEN)
            | (fills.len().saturating_sub(1) as u32) << MORE_FILLS_SHIFT
            | flag(self.chunk_type.is_some(), HAS_CHUNK_TYPE);
        let stable = STABLES.iter().find(|(_, known)| known == stable).map_or(0, |(number, _)| *number);
        let mut cd_values = vec![VERSION | kind << 8 | preset << 16 | stable << STABLE_SHIFT | flags];
        let numbers =
            std::iter::once(value).chain(range.iter().flat_map(|(lo, hi)| [*lo, *hi])).chain(fills.iter().copied());
        cd_values.extend(numbers.flat_map(halves));
        if let Some(chunk) = &self.chunk_type {
            let order = flag(chunk.order == ByteOrder::Big, BIG_ENDIAN);
            let flags = order | flag(chunk.fill.is_some(), FILL_DEFINED) | flag(chunk.shuffled, SHUFFLED);
            cd_values.push(chunk.dtype.size() as u32 | flags);
            cd_values.push(chunk.extents.len() as u32);
            cd_values.extend(chunk.extents.iter().flat_map(|&extent| [extent as u32, (extent as u64 >> 32) as u32]));
            cd_values.extend(chunk.fill.into_iter().flat_map(halves));
        }
        cd_values
    }
}

/// The two halves of a binary64 number, high half first.
fn halves(number: f64) -> [u32; 2] {
    [(number.to_bits() >> 32) as u32, number.to_bits() as u32]
}

fn bound_from(kind: u32, value: f64) -> Result<ErrorBound> {
    let known = u8::try_from(kind).ok().and_then(BoundKind::from_code);
    let bound = known
        .map(|kind| ErrorBound::from_kind(kind, value))
        .ok_or_else(|| unsupported(format!("filter parameters with unknown bound {kind}: use a newer plugin")))?;
    check(bound).map(|()| bound)
}

fn check(bound: ErrorBound) -> Result<()> {
    if bound.is_valid() && bound.value().is_none_or(f64::is_finite) {
        Ok(())
    } else {
        Err(invalid(format!("the filter parameters ask for {bound}, which is not a valid bound")))
    }
}

/// The integers that are still to be read.
struct Rest<'a>(&'a [u32]);

impl Rest<'_> {
    fn integer(&mut self) -> Result<u32> {
        let (&integer, rest) = self.0.split_first().ok_or_else(|| {
            invalid("too few filter parameters; `python -m pumice.hdf5` prints those for a bound".into())
        })?;
        self.0 = rest;
        Ok(integer)
    }

    fn number(&mut self) -> Result<f64> {
        let (high, low) = (self.integer()?, self.integer()?);
        Ok(f64::from_bits(u64::from(high) << 32 | u64::from(low)))
    }

    fn pair(&mut self) -> Result<(f64, f64)> {
        Ok((self.number()?, self.number()?))
    }

    fn chunk_type(&mut self) -> Result<ChunkType> {
        let kind = self.integer()?;
        let dtype = match kind & !(BIG_ENDIAN | FILL_DEFINED | SHUFFLED) {
            4 => DType::F32,
            8 => DType::F64,
            _ => return Err(unsupported(format!("filter parameters with unknown element type {kind:#x}"))),
        };
        let order = if kind & BIG_ENDIAN == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let rank = self.integer()? as usize;
        if rank == 0 || rank > MAX_RANK {
            return Err(invalid(format!("filter parameters with {rank} axes")));
        }
        let extent = |(low, high): (u32, u32)| usize::try_from(u64::from(high) << 32 | u64::from(low)).ok();
        let extents: Option<Vec<usize>> = (0..rank)
            .map(|_| Ok((self.integer()?, self.integer()?)))
            .map(|pair| pair.map(extent))
            .collect::<Result<_>>()?;
        let fill = (kind & FILL_DEFINED != 0).then(|| self.number()).transpose()?;
        let chunk = extents.map(|extents| ChunkType { dtype, order, extents, fill, shuffled: kind & SHUFFLED != 0 });
        chunk
            .filter(|chunk| chunk.n_bytes().is_some())
            .ok_or_else(|| invalid("filter parameters with a chunk that is too large".into()))
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> CdValues {
        let chunk_type = ChunkType {
            dtype: DType::F64,
            order: ByteOrder::Big,
            extents: vec![3, 1 << 33, 5],
            fill: Some(-9999.0),
            shuffled: true,
        };
        let options = FilterOptions {
            bound: ErrorBound::Rel(1e-3),
            preset: Preset::Max,
            stable: Stable::Auto,
            range: Some((-1.5, 4.0)),
            fills: vec![1e20],
        };
        CdValues { options, chunk_type: Some(chunk_type) }
    }

    #[test]
    fn cd_values_survive_a_round_trip() {
        for bound in BoundKind::ALL.iter().map(|&kind| ErrorBound::from_kind(kind, 2.5)) {
            for &preset in Preset::ALL {
                let four = [0.0, -999.0, 1e20, 9999.0];
                for (range, n_fills, stable) in [
                    (None, 0, Stable::Auto),
                    (Some((1.0, 2.0)), 0, Stable::On),
                    (None, 1, Stable::Off),
                    (Some((1.0, 2.0)), 2, Stable::On),
                    (None, 4, Stable::Auto),
                ] {
                    let cd_values = CdValues {
                        options: FilterOptions { bound, preset, stable, range, fills: four[..n_fills].to_vec() },
                        chunk_type: full().chunk_type,
                    };
                    assert_eq!(CdValues::parse(&cd_values.to_vec()).unwrap(), cd_values);
                    let cd_values = CdValues { chunk_type: None, ..cd_values };
                    assert_eq!(CdValues::parse(&cd_values.to_vec()).unwrap(), cd_values);
                }
            }
        }
        assert_eq!(CdValues::parse(&[]).unwrap().options, FilterOptions::new(ErrorBound::Lossless));
    }

    /// Existing files contain these values, so they must never change.
    #[test]
    fn cd_values_match_the_specification() {
        let options = FilterOptions::new(ErrorBound::Abs(0.25));
        assert_eq!(CdValues { options, chunk_type: None }.to_vec(), [0x0002_0101, 0x3fd0_0000, 0]);
        let options = FilterOptions { fills: vec![1e20, -9999.0, 0.0], ..FilterOptions::new(ErrorBound::Abs(0.25)) };
        let fills = [0x4415_af1d, 0x78b5_8c40, 0xc0c3_8780, 0, 0, 0];
        let expected = [&[0x2202_0101, 0x3fd0_0000, 0][..], &fills].concat();
        assert_eq!(CdValues { options, chunk_type: None }.to_vec(), expected);
        for (stable, first) in [(Stable::On, 0x0402_0101), (Stable::Off, 0x0802_0101)] {
            let options = FilterOptions { stable, ..FilterOptions::new(ErrorBound::Abs(0.25)) };
            assert_eq!(CdValues { options, chunk_type: None }.to_vec(), [first, 0x3fd0_0000, 0]);
        }
        let expected: [u32; 19] = [
            0x8303_0201,
            0x3f50_624d,
            0xd2f1_a9fc,
            0xbff8_0000,
            0,
            0x4010_0000,
            0,
            0x4415_af1d,
            0x78b5_8c40,
            0x0708,
            3,
            3,
            0,
            0,
            2,
            5,
            0,
            0xc0c3_8780,
            0,
        ];
        assert_eq!(full().to_vec(), expected);
    }

    #[test]
    fn invalid_cd_values_are_refused() {
        let good = full().to_vec();
        for n in 1..good.len() {
            assert!(CdValues::parse(&good[..n]).is_err(), "{n} cd_values");
        }
        let with = |at: usize, value: u32| {
            let mut cd_values = good.clone();
            cd_values[at] = value;
            CdValues::parse(&cd_values).unwrap_err().kind()
        };
        assert_eq!(with(0, good[0] + 1), ErrorKind::Unsupported);
        assert_eq!(with(0, good[0] | 3 << 26), ErrorKind::Unsupported);
        assert_eq!(with(0, good[0] | 1 << 30), ErrorKind::Unsupported);
        // One fill value more than there is: the integers after it are taken for others.
        assert_eq!(with(0, good[0] | 1 << 28), ErrorKind::Unsupported);
        assert_eq!(with(0, good[0] & !(1 << 25) | 1 << 29), ErrorKind::InvalidArgument);
        assert_eq!(with(0, good[0] & !0xff00 | 7 << 8), ErrorKind::Unsupported);
        assert_eq!(with(0, good[0] | 0xff_0000), ErrorKind::Unsupported);
        assert_eq!(with(1, 0xbf50_624d), ErrorKind::InvalidArgument);
        assert_eq!(with(9, 0x0702), ErrorKind::Unsupported);
        assert_eq!(with(10, 33), ErrorKind::InvalidArgument);
        assert_eq!(with(12, u32::MAX), ErrorKind::InvalidArgument);
        assert_eq!(CdValues::parse(&[good.as_slice(), &[0]].concat()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
