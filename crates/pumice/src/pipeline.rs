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
//! ```
//!
//! A payload is never larger than the values it holds. Encoders cannot fail after the plan is made; decoders treat
//! every byte as hostile.

use std::ops::Range;

use crate::array::Real;
use crate::codec::{balanced, ceaz, ceresz2, cuszp2, cuszplus, fast, small};
use crate::config::Preset;
use crate::error::{Error, Result};
use crate::fpenv::DefaultFloats;
use crate::parallel::Workers;
use crate::plan::Plan;
use crate::quantize::Quantizer;

/// How a frame's payload is coded (docs/format.md, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Codec {
    Raw = 0,
    Fast = 1,
    Small = 2,
    Balanced = 3,
    Cuszplus = 5,
    Ceaz = 6,
    Cuszp2 = 4,
    Ceresz2 = 7,
}

/// What decoding needs besides the payload; comes from the header.
#[derive(Clone, Debug)]
pub(crate) struct DecodeParams<T> {
    pub(crate) step: Option<T>,
    pub(crate) fills: Vec<T>,
}

/// Appends the payload of one chunk (C order, `extents` slowest first) to `out`. `workers` are those that have nothing
/// else to do.
pub(crate) fn encode_chunk<T: Real>(
    values: &[T],
    extents: &[usize],
    plan: &Plan<T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> Codec {
    let _floats = DefaultFloats::set();
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
        fast::encode(values, extents, quantizer, &plan.fills, out);
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
    plan: &Plan<T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> Option<Codec> {
    let fills = &plan.fills;
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
        Preset::Cuszplus => {
            cuszplus::encode(values, extents, quantizer, fills, out);
            Some(Codec::Cuszplus)
        }
        Preset::Ceaz => {
            ceaz::encode(values, extents, quantizer, fills, out);
            Some(Codec::Ceaz)
        }
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

/// Decodes one chunk into `out`, whose length is the product of `extents`. Where a box is `wanted`, only that is sure to
/// be written, which is less work. Treats every byte as hostile. `out` may be partly written on error.
pub(crate) fn decode_chunk<T: Real>(
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
        Codec::Raw if payload.len() == size_of_val(out) => {
            T::copy_from_le_bytes(payload, out);
            Ok(())
        }
        Codec::Raw => Err(Error::corrupt("raw chunk has the wrong size")),
    }
}
