//! One chunk, there and back: the file to read first.
//!
//! ```text
//! preset fast:
//! values ─▶ choose     which differences predict best, from a sample            (codec/choose.rs)
//!        ─▶ quantize   integers whose restored value is checked against the bound (quantize.rs)
//!        ─▶ lorenzo    differences over a tile, zigzag                            (codec/lorenzo.rs)
//!        ─▶ planes     hierarchical fixed-length bit planes                       (codec/planes.rs)
//!        ─▶ tile       + fill masks, escapes; raw where that is smaller           (codec/tile.rs)
//!        ─▶ fast       + directory of tiles = payload of a frame                  (codec/fast.rs)
//!
//! presets small and max (codec/small.rs):
//! values ─▶ view        four axes, the fastest a long one                           (codec/view.rs)
//!        ─▶ choose      which predictor serves, from patches of the chunk            (codec/portfolio.rs)
//!        ─▶ interpolate codes of a multi-level interpolation, checked, with feedback (codec/interpolate.rs)
//!           or lattice  quantised integers, predicted by integers before them       (codec/lattice.rs)
//!        ─▶ streams     rANS under contexts of neighbouring codes                   (codec/context.rs, streams.rs, rans.rs)
//!           or mix      adaptive mixing: for max, and for tiny chunks               (codec/mix.rs)
//!
//! presets cuszplus and ceaz (codec/cuszplus.rs, codec/ceaz.rs):
//! values ─▶ integers    dual quantisation, and the values that have no integer     (codec/integers.rs)
//!        ─▶ codes       N-D Lorenzo differences, 1024 codes and outliers            (codec/quant_codes.rs)
//!        ─▶ huffman     codes, or their runs, under static codewords                (codec/huffman.rs, run_length.rs)
//! presets cuszp2-plain, cuszp2-outlier (codec/cuszp2.rs) and ceresz2 (codec/ceresz2.rs), as in their papers:
//! values ─▶ integers    quantised before any prediction, checked                     (codec/integers.rs)
//!        ─▶ blocks      differences, 32 values at a time                             (codec/blocks.rs)
//!        ─▶ planes of one width per block, or a static Huffman codebook              (codec/huffman.rs)
//!
//! layers around these, for bounds that are not one number for the whole array:
//!        regions      boxes with bounds of their own; means of bins around them             (codec/regions.rs, bins.rs)
//!        ─▶ pointwise logarithms, for bounds relative to each value                          (codec/pointwise.rs)
//! ```
//!
//! A payload is never larger than the values it holds. Encoders cannot fail after the plan is made; decoders treat
//! every byte as hostile.

use std::ops::Range;

use crate::array::Real;
use crate::bounds::Limit;
use crate::chunk::{Block, n_values};
use crate::codec::{balanced, ceaz, ceresz2, cuszp2, cuszplus, fast, pointwise, regions, small};
use crate::config::Preset;
use crate::container::{Bytes, frame, varint};
use crate::error::{Error, ErrorKind, Result};
use crate::fpenv::DefaultFloats;
use crate::parallel::Workers;
use crate::plan::Plan;
use crate::quantize::Quantizer;

/// How a frame's payload is coded (docs/format.md, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Codec {
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
}

impl Codec {
    /// The codec of this number.
    pub(crate) fn from_byte(byte: u8) -> Result<Self> {
        Ok(match byte {
            0 => Codec::Raw,
            1 => Codec::Fast,
            2 => Codec::Small,
            3 => Codec::Balanced,
            4 => Codec::Cuszp2,
            5 => Codec::Cuszplus,
            6 => Codec::Ceaz,
            7 => Codec::Ceresz2,
            8 => Codec::Pointwise,
            9 => Codec::Regions,
            other => return Err(Error::corrupt(format!("unknown chunk codec {other}"))),
        })
    }
}

/// How values are coded under an absolute bound, or exactly, whatever they are part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Coding<'a, T> {
    pub(crate) preset: Preset,
    pub(crate) abs_bound: f64,
    /// Quantisation step; `None` if every value is stored exactly.
    pub(crate) step: Option<T>,
    pub(crate) fills: &'a [T],
}

impl<'a, T: Real> Coding<'a, T> {
    /// For values of at most this magnitude under this limit, as far as that is absolute.
    pub(crate) fn new(preset: Preset, limit: &Limit, max_abs: f64, fills: &'a [T]) -> Self {
        let usable = limit.abs.is_finite() && !limit.is_lossless();
        let quantizer = if usable { Quantizer::<T>::new(limit.abs, Some(max_abs)) } else { None };
        let abs_bound = if usable { limit.abs } else { 0.0 };
        Self { preset, abs_bound, step: quantizer.map(|q| q.step), fills }
    }
}

/// What decoding needs besides the payload; comes from the header.
#[derive(Clone, Debug)]
pub(crate) struct DecodeParams<T> {
    pub(crate) step: Option<T>,
    pub(crate) fills: Vec<T>,
}

/// Chunks of a type of values. Generic code is compiled anew in every crate that uses it; as methods of both types, the
/// codecs are compiled once, with this crate.
#[allow(private_interfaces, reason = "nobody else can name it")]
pub trait Chunks: Sized {
    /// Appends the payload of one chunk (C order), which is this box of the array, to `out`. `workers` are those that have
    /// nothing else to do.
    fn encode_chunk(values: &[Self], block: &Block, plan: &Plan<Self>, workers: &Workers, out: &mut Vec<u8>) -> Codec;

    /// Decodes one chunk into `out`, whose length is the product of `extents`. Where a box is `wanted`, only that is sure to
    /// be written, which is less work. Treats every byte as hostile. `out` may be partly written on error.
    fn decode_chunk(
        codec: Codec,
        payload: &[u8],
        extents: &[usize],
        wanted: Option<&[Range<usize>]>,
        params: &DecodeParams<Self>,
        workers: &Workers,
        out: &mut [Self],
    ) -> Result<()>;
}

macro_rules! chunks_of {
    ($($T:ty),*) => {$(
        #[allow(private_interfaces, reason = "nobody else can name it")]
        impl Chunks for $T {
            fn encode_chunk(
                values: &[Self],
                block: &Block,
                plan: &Plan<Self>,
                workers: &Workers,
                out: &mut Vec<u8>,
            ) -> Codec {
                encode(values, block, plan, workers, out)
            }

            fn decode_chunk(
                codec: Codec,
                payload: &[u8],
                extents: &[usize],
                wanted: Option<&[Range<usize>]>,
                params: &DecodeParams<Self>,
                workers: &Workers,
                out: &mut [Self],
            ) -> Result<()> {
                decode(codec, payload, extents, wanted, params, workers, out)
            }
        }
    )*};
}

chunks_of!(f32, f64);

/// See [`Chunks::encode_chunk`].
fn encode<T: Real>(values: &[T], block: &Block, plan: &Plan<T>, workers: &Workers, out: &mut Vec<u8>) -> Codec {
    let _floats = DefaultFloats::set();
    if regions::apply(block, plan) {
        let start = out.len();
        regions::encode(values, block, plan, workers, out);
        if out.len() - start <= size_of_val(values) {
            return Codec::Regions;
        }
        // Boxes that overlap are stored in full each. Where there are bins, what is restored are not the values.
        let restored = (!plan.bin.is_empty()).then(|| {
            let params = DecodeParams { step: plan.step, fills: plan.fills.clone() };
            let mut restored = vec![T::default(); values.len()];
            let payload = &out[start..];
            T::decode_chunk(Codec::Regions, payload, &block.extents, None, &params, workers, &mut restored)
                .expect("what was encoded can be decoded");
            restored
        });
        out.truncate(start);
        T::extend_le_bytes(restored.as_deref().unwrap_or(values), out);
        return Codec::Raw;
    }
    encode_limited(values, &block.extents, &plan.limit(), &plan.coding(), workers, out)
}

/// Appends the payload of values whose limit is the same for all of them; `coding` is for its absolute part.
pub(crate) fn encode_limited<T: Real>(
    values: &[T],
    extents: &[usize],
    limit: &Limit,
    coding: &Coding<'_, T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> Codec {
    if limit.is_pointwise() && !values.is_empty() {
        return pointwise::encode(values, extents, limit, coding, workers, out);
    }
    if limit.is_lossless() {
        return encode_plain(values, extents, &Coding { step: None, ..*coding }, workers, out);
    }
    encode_plain(values, extents, coding, workers, out)
}

/// Appends the payload of values under an absolute bound.
pub(crate) fn encode_plain<T: Real>(
    values: &[T],
    extents: &[usize],
    plan: &Coding<'_, T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> Codec {
    let start = out.len();
    let quantizer = plan.step.and_then(|step| Quantizer::for_stream(step, plan.abs_bound));
    let own = match &quantizer {
        Some(quantizer) if !values.is_empty() => encode_quantised(values, extents, quantizer, plan, workers, out),
        _ => None,
    };
    let own_bytes = out.len() - start;
    // Noise at bounds near the precision of the type is better left to `fast`.
    if let Some(codec) = own
        && own_bytes < size_of_val(values) / 2
    {
        return codec;
    }
    if !values.is_empty() {
        fast::encode(values, extents, quantizer, plan.fills, out);
    }
    let fast_bytes = out.len() - start - own_bytes;
    if let Some(codec) = own
        && own_bytes <= fast_bytes
        && own_bytes < size_of_val(values)
    {
        out.truncate(start + own_bytes);
        return codec;
    }
    out.drain(start..start + own_bytes);
    if fast_bytes < size_of_val(values) {
        return Codec::Fast;
    }
    out.truncate(start);
    T::extend_le_bytes(values, out);
    Codec::Raw
}

/// Appends a payload by the codec of the preset, unless that is `fast`.
pub(crate) fn encode_quantised<T: Real>(
    values: &[T],
    extents: &[usize],
    quantizer: &Quantizer<T>,
    plan: &Coding<'_, T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> Option<Codec> {
    let fills = plan.fills;
    match plan.preset {
        Preset::Fast => None,
        Preset::Small | Preset::Max => {
            let is_max = plan.preset == Preset::Max;
            let effort = if is_max { small::Effort::Everything } else { small::Effort::Sample };
            small::encode(values, extents, quantizer, fills, effort, workers, out);
            Some(Codec::Small)
        }
        Preset::Balanced => {
            balanced::encode(values, extents, quantizer, fills, out);
            Some(Codec::Balanced)
        }
        Preset::Cuszplus => cuszplus::encode(values, extents, quantizer, fills, out).then_some(Codec::Cuszplus),
        Preset::Ceaz => ceaz::encode(values, extents, quantizer, fills, out).then_some(Codec::Ceaz),
        Preset::Cuszp2Plain | Preset::Cuszp2Outlier => {
            let is_plain = plan.preset == Preset::Cuszp2Plain;
            let mode = if is_plain { cuszp2::Mode::Plain } else { cuszp2::Mode::Outlier };
            cuszp2::encode(values, extents, quantizer, fills, mode, workers, out);
            Some(Codec::Cuszp2)
        }
        Preset::Ceresz2 => {
            ceresz2::encode(values, extents, quantizer, fills, ceresz2::codebook(), workers, out);
            Some(Codec::Ceresz2)
        }
    }
}

/// See [`Chunks::decode_chunk`].
fn decode<T: Real>(
    codec: Codec,
    payload: &[u8],
    extents: &[usize],
    wanted: Option<&[Range<usize>]>,
    params: &DecodeParams<T>,
    workers: &Workers,
    out: &mut [T],
) -> Result<()> {
    let _floats = DefaultFloats::set();
    match codec {
        Codec::Fast => fast::decode(payload, extents, wanted, params.step, &params.fills, out),
        Codec::Small => small::decode(payload, extents, params.step, &params.fills, workers, out),
        Codec::Balanced => balanced::decode(payload, extents, params.step, &params.fills, out),
        Codec::Cuszplus => cuszplus::decode(payload, extents, params.step, &params.fills, out),
        Codec::Ceaz => ceaz::decode(payload, extents, params.step, &params.fills, out),
        Codec::Cuszp2 => cuszp2::decode(payload, extents, wanted, params.step, &params.fills, workers, out),
        Codec::Ceresz2 => ceresz2::decode(payload, extents, params.step, &params.fills, workers, out),
        Codec::Pointwise => {
            pointwise::decode(payload, extents, wanted, &params.fills, workers, out).map_err(within_payload)
        }
        Codec::Regions => {
            regions::decode(payload, extents, wanted, &params.fills, workers, out).map_err(within_payload)
        }
        Codec::Raw if payload.len() == size_of_val(out) => {
            T::copy_from_le_bytes(payload, out);
            Ok(())
        }
        Codec::Raw => Err(Error::corrupt("raw chunk has the wrong size")),
    }
}

/// A payload has the size that its frame says, so that nothing was cut off: what ends early contradicts itself.
fn within_payload(error: Error) -> Error {
    if error.kind() == ErrorKind::Truncated { Error::corrupt(error.to_string()) } else { error }
}

/// Appends a payload that is part of another one.
pub(crate) fn write_nested<T: Real>(codec: Codec, step: Option<T>, payload: &[u8], out: &mut Vec<u8>) {
    out.push(codec as u8);
    T::extend_le_bytes(&[step.unwrap_or_default()], out);
    varint::write_to(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// What is known of a payload within a payload.
#[derive(Clone, Copy)]
pub(crate) struct Nested<'a, T> {
    /// Only codecs of lower numbers are allowed, so that layers cannot be nested without end.
    pub(crate) below: Codec,
    pub(crate) extents: &'a [usize],
    pub(crate) wanted: Option<&'a [Range<usize>]>,
    pub(crate) fills: &'a [T],
    pub(crate) workers: &'a Workers,
}

impl<T: Real> Nested<'_, T> {
    /// The payload at the front of `bytes`, checked to be able to hold the values.
    pub(crate) fn read_from<'b>(&self, bytes: &mut Bytes<'b>) -> Result<(Codec, Option<T>, &'b [u8])> {
        let codec = Codec::from_byte(bytes.u8()?)?;
        if codec as u8 >= self.below as u8 {
            return Err(Error::corrupt("chunk has a layer where none is allowed"));
        }
        let mut step = [T::default()];
        T::copy_from_le_bytes(bytes.take(size_of::<T>())?, &mut step);
        let step = (step[0].is_finite() && step[0] > T::default()).then_some(step[0]);
        let n_bytes = varint::read_from(bytes)?;
        let payload = bytes.take(n_bytes.try_into().map_err(|_| Error::corrupt("part is longer than its chunk"))?)?;
        frame::check_plausible(codec, n_bytes, n_values(self.extents), size_of::<T>())?;
        Ok((codec, step, payload))
    }

    /// Decodes a payload that was read.
    pub(crate) fn decode(&self, (codec, step, payload): (Codec, Option<T>, &[u8]), out: &mut [T]) -> Result<()> {
        let params = DecodeParams { step, fills: self.fills.to_vec() };
        T::decode_chunk(codec, payload, self.extents, self.wanted, &params, self.workers, out)
    }
}
