//! The codecs: how the values of one chunk become the payload of a frame, and back.
//!
//! Read [`pipeline`] first: it lists the stages of each preset in order. Each codec has a folder or file that implements
//! [`ChunkCodec`], and an entry in the one table of this module. docs/format.md, sections 6 to 14, specifies bytes and
//! formulas.

pub(crate) mod balanced;
pub(crate) mod fast;
pub(crate) mod layers;
pub(crate) mod papers;
pub(crate) mod pipeline;
mod raw;
pub(crate) mod shared;
pub(crate) mod small;

use std::ops::Range;

use crate::entropy::Books;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::grid::{Block, n_values};
use crate::num::Real;
use crate::plan::{Plan, Preset};

/// How a frame's payload is coded (docs/format.md, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum CodecId {
    /// The values themselves, little-endian.
    Raw = 0,
    /// That of the preset `fast`, and what others fall back to.
    Fast = 1,
    /// That of the presets `small` and `max`.
    Small = 2,
    /// That of the preset `balanced`.
    Balanced = 3,
    /// That of the presets `cuszp2-plain` and `cuszp2-outlier`.
    Cuszp2 = 4,
    /// That of the preset `cuszplus`.
    Cuszplus = 5,
    /// That of the preset `ceaz`.
    Ceaz = 6,
    /// That of the preset `ceresz2`.
    Ceresz2 = 7,
    /// A layer for bounds relative to each value.
    Pointwise = 8,
    /// A layer for boxes with bounds of their own, and bins.
    Regions = 9,
    /// A layer for chunks of which a part was written again.
    Changes = 10,
    /// As [`CodecId::Balanced`], with the codebook of the stream.
    Shared = 11,
}

/// Every codec, by its number.
struct Table<T>(std::marker::PhantomData<T>);

impl<T: Real> Table<T> {
    const ENTRIES: [Entry<T>; 12] = [
        Entry::of::<raw::Raw>(),
        Entry::of::<fast::Fast>(),
        Entry::of::<small::Small>(),
        Entry::of::<balanced::Balanced>(),
        Entry::of::<papers::cuszp2::Cuszp2>(),
        Entry::of::<papers::cuszplus::Cuszplus>(),
        Entry::of::<papers::ceaz::Ceaz>(),
        Entry::of::<papers::ceresz2::Ceresz2>(),
        Entry::of::<layers::pointwise::Pointwise>(),
        Entry::of::<layers::regions::Regions>(),
        Entry::of::<layers::changes::Changes>(),
        Entry::of::<balanced::Shared>(),
    ];
}

/// What the table knows of a codec.
struct Entry<T> {
    id: CodecId,
    min_payload_bytes: fn(usize) -> usize,
    decode_bytes: DecodeBytes<T>,
    decode: Decode<T>,
}

/// [`ChunkCodec::decode_bytes`] of a codec.
type DecodeBytes<T> = fn(u64, &ChunkContext<'_, T>) -> u64;

/// [`ChunkCodec::decode`] of a codec.
type Decode<T> = fn(&[u8], &ChunkContext<'_, T>, &mut [T]) -> Result<()>;

impl<T: Real> Entry<T> {
    const fn of<C: ChunkCodec<T>>() -> Self {
        Self { id: C::ID, min_payload_bytes: C::min_payload_bytes, decode_bytes: C::decode_bytes, decode: C::decode }
    }
}

impl CodecId {
    /// The codec of this number.
    pub(crate) fn from_byte(byte: u8) -> Result<Self> {
        let entry = Table::<f32>::ENTRIES.get(usize::from(byte));
        entry.map(|entry| entry.id).ok_or_else(|| Error::corrupt(format!("unknown chunk codec {byte}")))
    }
}

/// A way to code the values of one chunk. Its unit of work is the chunk: inside, everything is generic and inlined.
pub(crate) trait ChunkCodec<T: Real> {
    /// Its number in the format.
    const ID: CodecId;

    /// What the encoder is told besides the chunk: the quantiser, and choices of the preset.
    type Settings<'a>
    where
        T: 'a;

    /// Least payload of so many values, of which there are some: a reader relies on it before it allocates. The default
    /// is what most codecs pad to.
    fn min_payload_bytes(n_values: usize) -> usize {
        shared::padding::min_payload_bytes(n_values)
    }

    /// Appends the payload of `values`, of which there are some. Returns false, and what it appended counts for nothing,
    /// where this codec cannot code them.
    fn encode(values: &[T], settings: Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool;

    /// The most memory that decoding takes beside the payload and `out`, up to a few MiB that do not depend on them.
    /// That of payloads within the payload is not included: they state their own.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64;

    /// Decodes a payload into `out`, as many values as the extents imply. Treats every byte as hostile; `out` may be
    /// partly written on error. Memory that depends on these is reserved with an error, not an abort, if there is none.
    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()>;
}

/// What a codec is told of a chunk besides its values or its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkContext<'a, T> {
    pub(crate) extents: &'a [usize],
    /// The box that a decoder must write, which may be less work than all of the chunk; `None` for all.
    pub(crate) wanted: Option<&'a [Range<usize>]>,
    /// Quantisation step; `None` if every value is stored exactly.
    pub(crate) step: Option<T>,
    /// Values that are kept by their bits, under masks.
    pub(crate) fills: &'a [T],
    /// Values that an encoder keeps by their bits as well, as exact values.
    pub(crate) more_fills: &'a [T],
    /// Where the codes of `balanced` come from.
    pub(crate) books: &'a Books,
    /// Workers that have nothing else to do.
    pub(crate) workers: &'a Workers,
    /// The most memory that decoding may take; see [`ChunkCodec::decode_bytes`].
    pub(crate) max_bytes: u64,
}

impl<'a, T: Real> ChunkContext<'a, T> {
    /// A whole chunk of these extents without a step or fill values, for one thread.
    #[cfg(any(test, feature = "unstable-research"))]
    pub(crate) fn new(extents: &'a [usize]) -> Self {
        Self {
            extents,
            wanted: None,
            step: None,
            fills: &[],
            more_fills: &[],
            books: &Books::Own,
            workers: &Workers::Serial,
            max_bytes: u64::MAX,
        }
    }

    /// Number of values.
    pub(crate) fn n_values(&self) -> u64 {
        n_values(self.extents) as u64
    }

    /// The step, of a chunk that cannot be decoded without one.
    pub(crate) fn needed_step(&self) -> Result<T> {
        self.step.ok_or_else(|| Error::corrupt("chunk needs a step, and the stream has none"))
    }
}

/// What a stream says to all of its chunks.
#[derive(Clone, Debug)]
pub(crate) struct StreamParams<T> {
    pub(crate) step: Option<T>,
    pub(crate) fills: Vec<T>,
    pub(crate) books: Books,
    pub(crate) preset: Preset,
    /// Whether there are bounds relative to each value, and boxes or bins.
    pub(crate) is_pointwise: bool,
    pub(crate) has_regions: bool,
}

impl<T: Real> StreamParams<T> {
    /// What the codec of a chunk is told.
    pub(crate) fn chunk<'a>(
        &'a self,
        extents: &'a [usize],
        wanted: Option<&'a [Range<usize>]>,
        workers: &'a Workers,
        max_bytes: u64,
    ) -> ChunkContext<'a, T> {
        let Self { step, ref fills, ref books, .. } = *self;
        ChunkContext { extents, wanted, step, fills, more_fills: &[], books, workers, max_bytes }
    }

    /// The most memory that decoding a chunk takes, with the codecs that the encoder chooses from and these layers; see
    /// [`ChunkCodec::decode_bytes`].
    pub(crate) fn decode_bytes(&self, payload_bytes: u64, extents: &[usize], layers: Layers, workers: &Workers) -> u64 {
        let chunk = self.chunk(extents, None, workers, u64::MAX);
        let of = |codec: CodecId, chunk: &ChunkContext<'_, T>| decode_bytes(codec, payload_bytes, chunk);
        let markers = [T::default(); 2];
        let is_pointwise = self.is_pointwise || layers.pointwise;
        // The layer of logarithms has fill values of its own.
        let within = ChunkContext { fills: if is_pointwise { &markers } else { &self.fills }, ..chunk };
        // Without a step, values are stored exactly; layers have steps of their own.
        let is_exact = self.step.is_none() && !is_pointwise && !self.has_regions;
        let codec = if is_exact { CodecId::Fast } else { self.preset.codec() };
        let used = [
            (CodecId::Pointwise, is_pointwise),
            (CodecId::Regions, self.has_regions),
            (CodecId::Changes, layers.changes),
        ];
        let of_layers = used.into_iter().filter(|(_, is_used)| *is_used).map(|(codec, _)| of(codec, &chunk));
        of_layers.fold(of(codec, &within).max(of(CodecId::Fast, &within)), u64::saturating_add)
    }
}

/// Layers that a chunk may have though its stream does not imply them: many fill values and parts that were written again
/// bring them in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    pointwise: bool,
    changes: bool,
}

impl Layers {
    /// None, and all.
    pub(crate) const NONE: Self = Self { pointwise: false, changes: false };
    pub(crate) const ALL: Self = Self { pointwise: true, changes: true };

    /// Those that a chunk of this codec has for certain.
    pub(crate) fn least(codec: CodecId) -> Self {
        Self { pointwise: codec == CodecId::Pointwise, changes: codec == CodecId::Changes }
    }

    /// Those that it can have.
    pub(crate) fn most(codec: CodecId) -> Self {
        let has_nested = matches!(codec, CodecId::Pointwise | CodecId::Regions | CodecId::Changes);
        Self { pointwise: has_nested, changes: codec == CodecId::Changes }
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self { pointwise: self.pointwise | other.pointwise, changes: self.changes | other.changes }
    }
}

/// Sizes from here on, which only hostile streams claim, are more than any memory.
const ENDLESS: u64 = 1 << 56;

/// [`ChunkCodec::decode_bytes`] of a codec.
fn decode_bytes<T: Real>(id: CodecId, payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
    match chunk.n_values() {
        // Other extents may be of any size.
        0 => return 0,
        n if n >= ENDLESS || payload_bytes >= ENDLESS => return u64::MAX,
        _ => {}
    }
    (Table::<T>::ENTRIES[id as usize].decode_bytes)(payload_bytes, chunk)
}

/// Decodes the payload of a chunk; see [`ChunkCodec::decode`].
pub(crate) fn decode<T: Real>(id: CodecId, payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
    let _floats = DefaultFloats::set();
    let entry = &Table::<T>::ENTRIES[id as usize];
    let needed = decode_bytes(id, payload.len() as u64, chunk);
    let Some(max_bytes) = chunk.max_bytes.checked_sub(needed) else {
        let message = format!(
            "decoding takes {needed} bytes beside the values, but only {} are left; raise `max_bytes` or read a smaller \
             region",
            chunk.max_bytes
        );
        return Err(Error::new(ErrorKind::LimitExceeded, message));
    };
    (entry.decode)(payload, &ChunkContext { max_bytes, ..*chunk }, out)
}

impl Preset {
    /// The codec that a preset asks for. The encoder may choose [`CodecId::Fast`] or [`CodecId::Raw`] instead.
    pub(crate) fn codec(self) -> CodecId {
        match self {
            Preset::Fast => CodecId::Fast,
            Preset::Small | Preset::Max => CodecId::Small,
            Preset::Balanced => CodecId::Balanced,
            Preset::Cuszplus => CodecId::Cuszplus,
            Preset::Ceaz => CodecId::Ceaz,
            Preset::Cuszp2Plain | Preset::Cuszp2Outlier => CodecId::Cuszp2,
            Preset::Ceresz2 => CodecId::Ceresz2,
        }
    }
}

/// Refuses payload sizes that cannot hold `n_values` of T, so that nobody allocates for them.
pub(crate) fn check_plausible<T: Real>(id: CodecId, payload_bytes: u64, n_values: usize) -> Result<()> {
    let fits = match id {
        CodecId::Raw => payload_bytes == n_values as u64 * size_of::<T>() as u64,
        _ => n_values > 0 && payload_bytes >= (Table::<T>::ENTRIES[id as usize].min_payload_bytes)(n_values) as u64,
    };
    if fits {
        return Ok(());
    }
    Err(Error::corrupt(format!("{payload_bytes} payload bytes cannot hold {n_values} values")))
}

/// An element type of arrays: `f32` or `f64`.
///
/// Generic code is compiled anew in every crate that uses it; as methods of each type, the codecs are compiled once, with
/// this crate.
#[allow(private_interfaces, reason = "nobody else can name them")]
pub trait Element: Real {
    /// Appends the payload of one chunk (C order), which is this box of the array.
    #[doc(hidden)]
    fn encode_chunk(values: &[Self], block: &Block, plan: &Plan<Self>, workers: &Workers, out: &mut Vec<u8>)
    -> CodecId;

    /// Decodes the payload of one chunk; see [`ChunkCodec::decode`].
    #[doc(hidden)]
    fn decode_chunk(id: CodecId, payload: &[u8], chunk: &ChunkContext<'_, Self>, out: &mut [Self]) -> Result<()>;
}

macro_rules! elements {
    ($($T:ty),*) => {$(
        #[allow(private_interfaces, reason = "nobody else can name them")]
        impl Element for $T {
            fn encode_chunk(
                values: &[Self],
                block: &Block,
                plan: &Plan<Self>,
                workers: &Workers,
                out: &mut Vec<u8>,
            ) -> CodecId {
                pipeline::encode(values, block, plan, workers, out)
            }

            fn decode_chunk(
                id: CodecId,
                payload: &[u8],
                chunk: &ChunkContext<'_, Self>,
                out: &mut [Self],
            ) -> Result<()> {
                decode(id, payload, chunk, out)
            }
        }
    )*};
}

elements!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_stand_in_the_table_by_their_numbers() {
        for (number, entry) in Table::<f64>::ENTRIES.iter().enumerate() {
            assert_eq!(entry.id as usize, number);
            assert_eq!(CodecId::from_byte(number as u8).unwrap(), entry.id);
        }
        assert!(CodecId::from_byte(Table::<f64>::ENTRIES.len() as u8).is_err());
    }
}
