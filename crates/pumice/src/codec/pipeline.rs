//! One chunk, there and back: the file to read first.
//!
//! ```text
//! preset fast (fast/):
//! values ─▶ choose      which differences predict best, from a sample                (choose.rs)
//!        ─▶ quantize    integers whose restored value is checked against the bound   (plan/quantize.rs)
//!        ─▶ lorenzo     differences over a tile, zigzag                              (lorenzo.rs)
//!        ─▶ planes      hierarchical fixed-length bit planes                         (planes.rs)
//!        ─▶ tile        + fill masks, escapes; raw where that is smaller             (tile.rs)
//!        ─▶ directory   of tiles + tiles = payload of a frame                        (mod.rs)
//!
//! preset balanced (balanced/):
//! values ─▶ integers    dual quantisation, and the values that have no integer       (shared/integers.rs)
//!        ─▶ differences N-D Lorenzo over the whole chunk                             (differences.rs)
//!        ─▶ groups      32 differences, by magnitude: class, low bits, bytes         (groups.rs)
//!        ─▶ alphabet    one to 32 bytes as a symbol, by class                        (alphabet.rs)
//!        ─▶ huffman     a code for each class                                        (entropy/huffman/)
//!           or shared   the codes of a codebook that the stream has                  (balanced/shared.rs)
//!
//! presets small and max (small/):
//! values ─▶ view        four axes, the fastest a long one                            (shared/view.rs)
//!        ─▶ portfolio   which predictor serves                                       (portfolio.rs)
//!        ─▶ interpolate codes of a multi-level interpolation, checked, with feedback (interpolate.rs)
//!           or lattice  quantised integers, predicted by integers before them        (lattice.rs)
//!        ─▶ streams     rANS under contexts of neighbouring codes                    (context.rs, streams.rs, rans.rs)
//!           or mix      adaptive mixing: for max, and for tiny chunks                (mix.rs)
//!
//! presets of papers (papers/):
//! values ─▶ integers    quantised before any prediction, checked                     (shared/integers.rs)
//! cuszplus and ceaz:
//!        ─▶ codes       N-D Lorenzo differences, 1024 codes and outliers             (quant_codes.rs)
//!        ─▶ huffman     codes, or their runs, under static codewords                 (entropy/huffman/, entropy/run_length.rs)
//! cuszp2-plain, cuszp2-outlier and ceresz2:
//!        ─▶ blocks      differences, 32 values at a time                             (blocks.rs)
//!        ─▶ planes of one width per block, or a static Huffman codebook
//!
//! stable mode, before all of these:
//! values ─▶ lattice     multiples of a step that the bound alone sets                (plan/lattice.rs)
//!
//! layers around these, for bounds that are not one number for the whole array (layers/):
//!        regions        boxes with bounds of their own; means of bins around them    (regions.rs, bins.rs)
//!        ─▶ pointwise   logarithms, for bounds relative to each value                (pointwise.rs)
//! ```
//!
//! A payload is never larger than the values it holds. Encoders cannot fail after the plan is made; decoders treat
//! every byte as hostile.

use super::balanced;
use super::fast::Fast;
use super::layers::pointwise::{self, Pointwise};
use super::layers::regions::{self, Regions};
use super::papers::ceaz::Ceaz;
use super::papers::ceresz2::{self, Ceresz2};
use super::papers::cuszp2::{self, Cuszp2};
use super::papers::cuszplus::Cuszplus;
use super::raw::Raw;
use super::small::{self, Effort, OnLattice, Small};
use super::{ChunkCodec, ChunkContext, CodecId};
use crate::exec::{DefaultFloats, Workers, scratch};
use crate::grid::Block;
use crate::num::Real;
use crate::plan::{Coding, Limit, Plan, Preset, Quantizer, Stable, lattice, stats};

/// A payload below this share of the values' size is not compared with that of `fast`, which serves noise at bounds near
/// the precision of the type better.
const GOOD_SHARE: usize = 2;

/// The most memory that encoders take for samples and tables, which do not grow with the chunk.
const TABLE_BYTES: u64 = 3 << 20;

/// Appends the payload of one chunk (C order), which is this box of the array.
pub(crate) fn encode<T: Real>(
    values: &[T],
    block: &Block,
    plan: &Plan<T>,
    workers: &Workers,
    out: &mut Vec<u8>,
) -> CodecId {
    let _floats = DefaultFloats::set();
    let more_fills = more_fills(values, plan);
    let chunk = ChunkContext {
        extents: &block.extents,
        wanted: None,
        step: plan.step,
        fills: &plan.fills,
        more_fills: &more_fills,
        books: &plan.books,
        workers,
        max_bytes: u64::MAX,
    };
    if !regions::apply(block, plan) {
        return encode_limited(values, &plan.limit(), &plan.coding(), &chunk, out);
    }
    let start = out.len();
    if Regions::encode(values, (block, plan), &chunk, out) {
        return CodecId::Regions;
    }
    // Boxes that overlap are stored in full each. Where there are bins or a lattice, what is restored are not the
    // values.
    let mut restored = Vec::new();
    let is_other = !plan.bin.is_empty() || plan.stable != Stable::Off;
    if is_other {
        restored.resize(values.len(), T::default());
        Regions::decode(&out[start..], &chunk, &mut restored).expect("what was encoded can be decoded");
    }
    out.truncate(start);
    Raw::encode(if is_other { &restored } else { values }, (), &chunk, out);
    CodecId::Raw
}

/// The most memory that encoding a chunk of so many values takes beside them, its payload included. Most of it is for
/// positions of values that are stored exactly, in the worst case all of them.
pub(crate) fn encode_bytes<T: Real>(plan: &Plan<T>, n_values: usize) -> u64 {
    let size = size_of::<T>() as u64;
    let limits = || [plan.limit()].into_iter().chain(plan.boxes.iter().map(|given| given.limit));
    let is_lossy = limits().any(|limit| !limit.is_lossless());
    // The payload of the codec and that of `fast`, of which the smaller is kept.
    let mut of_value = 5 * size / 2;
    if is_lossy {
        of_value += match plan.preset {
            Preset::Fast => 0,
            Preset::Small | Preset::Max => 2 * size + 60,
            _ => size + 36,
        };
        // The payload with the codebook of the stream, beside that with codes of the chunk's own.
        of_value += if plan.books.codebook().is_some() { 3 * size / 2 } else { 0 };
        // Values on the lattice, in C order and in that of the codec.
        of_value += if plan.stable == Stable::Off { 0 } else { 2 * size };
        // Logarithms, restored values, a second payload, signs and positions.
        let has_more_fills = plan.is_streamed || !plan.more_fills.is_empty();
        let is_pointwise = limits().any(|limit| limit.is_pointwise());
        of_value += if is_pointwise || has_more_fills { 3 * size + 20 } else { 0 };
    }
    // Values around boxes, those of a box, and payloads; sums and means.
    of_value += if plan.boxes.is_empty() { 0 } else { 4 * size };
    of_value += if plan.bin.is_empty() { 0 } else { 2 * size + 32 };
    TABLE_BYTES + of_value * n_values as u64
}

/// The fill values of a chunk that the stream has no masks for.
fn more_fills<T: Real>(values: &[T], plan: &Plan<T>) -> Vec<T> {
    let mut found = plan.more_fills.clone();
    if plan.is_streamed && !plan.limit().is_lossless() {
        found.extend(stats::conventional_fills(values));
    }
    found.retain(|fill| {
        let bits = fill.bits();
        plan.fills.iter().all(|masked| masked.bits() != bits) && values.iter().any(|value| value.bits() == bits)
    });
    found
}

/// Appends the payload of values whose limit is the same for all of them; `coding` is for its absolute part.
pub(crate) fn encode_limited<T: Real>(
    values: &[T],
    limit: &Limit,
    coding: &Coding<T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> CodecId {
    if limit.is_lossless() {
        return encode_plain(values, &Coding { step: None, ..*coding }, chunk, out);
    }
    if (limit.is_pointwise() || !chunk.more_fills.is_empty()) && !values.is_empty() {
        let layer = pointwise::Layer::new(values, limit, coding, chunk);
        if !layer.absolute_suffices() {
            let start = out.len();
            let own = Pointwise::encode(values, &layer, chunk, out).then_some(CodecId::Pointwise);
            return keep_smallest(own, start, pointwise::GOOD_SHARE, values, None, chunk, out);
        }
    }
    encode_plain(values, coding, chunk, out)
}

/// Appends the payload of values under an absolute bound, or without loss.
pub(crate) fn encode_plain<T: Real>(
    values: &[T],
    coding: &Coding<T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> CodecId {
    let start = out.len();
    let Some(lattice) = coding.lattice().filter(|_| coding.stable != Stable::Off && !values.is_empty()) else {
        let quantizer = coding.quantizer();
        let own = match &quantizer {
            Some(quantizer) if !values.is_empty() => {
                encode_quantised(values, coding.preset, quantizer, OnLattice::No, chunk, out)
            }
            _ => None,
        };
        return keep_smallest(own, start, GOOD_SHARE, values, quantizer, chunk, out);
    };
    // What is on the lattice is coded without further loss.
    let mut snapped = scratch::take(values.len());
    lattice::snap(values, chunk.fills, &lattice, &mut snapped);
    let exact = lattice.exact();
    let own = match coding.quantizer() {
        Some(quantizer) if coding.stable == Stable::Auto => {
            encode_quantised(values, coding.preset, &quantizer, OnLattice::IfCheap(&snapped, &exact), chunk, out)
        }
        _ => encode_quantised(&snapped, coding.preset, &exact, OnLattice::Yes, chunk, out),
    };
    let codec = keep_smallest(own, start, GOOD_SHARE, &snapped, Some(exact), chunk, out);
    scratch::give(snapped);
    codec
}

/// Keeps the payload from `start` on, which `own` made, or puts that of `fast` or the values themselves in its stead where
/// these are smaller.
fn keep_smallest<T: Real>(
    own: Option<CodecId>,
    start: usize,
    good_share: usize,
    values: &[T],
    quantizer: Option<Quantizer<T>>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> CodecId {
    let own_bytes = out.len() - start;
    if let Some(codec) = own
        && own_bytes < size_of_val(values) / good_share
    {
        return codec;
    }
    if !values.is_empty() {
        Fast::encode(values, quantizer, chunk, out);
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
        return CodecId::Fast;
    }
    out.truncate(start);
    Raw::encode(values, (), chunk, out);
    CodecId::Raw
}

/// Appends a payload by the codec of the preset; `None`, and nothing, if that is `fast` or cannot code the values. Only
/// `small` and `max` need to know what is on a lattice: others quantise first in any case.
pub(crate) fn encode_quantised<T: Real>(
    values: &[T],
    preset: Preset,
    quantizer: &Quantizer<T>,
    on_lattice: OnLattice<'_, T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> Option<CodecId> {
    let start = out.len();
    let is_coded = match preset {
        Preset::Fast => return None,
        Preset::Small | Preset::Max => {
            let effort = if preset == Preset::Small { Effort::Sample } else { Effort::Everything };
            Small::encode(values, small::Settings { quantizer, effort, on_lattice }, chunk, out)
        }
        Preset::Balanced => return Some(balanced::encode(values, quantizer, chunk, out)),
        Preset::Cuszplus => Cuszplus::encode(values, quantizer, chunk, out),
        Preset::Ceaz => Ceaz::encode(values, quantizer, chunk, out),
        Preset::Cuszp2Plain => Cuszp2::encode(values, (quantizer, cuszp2::Mode::Plain), chunk, out),
        Preset::Cuszp2Outlier => Cuszp2::encode(values, (quantizer, cuszp2::Mode::Outlier), chunk, out),
        Preset::Ceresz2 => Ceresz2::encode(values, (quantizer, ceresz2::codebook()), chunk, out),
    };
    if !is_coded {
        out.truncate(start);
    }
    is_coded.then_some(preset.codec())
}
