//! The codec of the presets `small` and `max`: picks the predictor with the shortest estimated codes, and codes its
//! residuals under contexts (docs/format.md, 7).

pub(crate) mod bands;
pub(crate) mod context;
mod fit;
pub(crate) mod interpolate;
pub(crate) mod lattice;
mod mix;
mod neighbourhood;
pub(crate) mod pieces;
pub(crate) mod portfolio;
mod rans;
mod streams;

use std::borrow::Cow;

use super::shared::view::View;
use super::shared::{masks, padding};
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, Workers, filled, scratch};
use crate::io::{Bytes, varint};
use crate::num::Real;
use crate::plan::{Quantizer, lattice as plan_lattice};
use bands::BandLayout;
use portfolio::{Begun, Choice, Chunk, Coded, Found};

/// How the encoder chooses the predictor, and how it codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Chooses the predictor on a sample; codes under static contexts.
    Sample,
    /// Tries all predictors on the whole chunk; codes by adaptive mixing.
    Everything,
    /// Uses this predictor; codes under static contexts.
    #[cfg(feature = "unstable-research")]
    Given(Choice),
}

/// How to encode a chunk.
pub(crate) struct Settings<'a, T> {
    pub(crate) quantizer: &'a Quantizer<T>,
    pub(crate) effort: Effort,
    pub(crate) on_lattice: OnLattice<'a, T>,
}

/// Whether a chunk is coded by values on the lattice of the stable mode, and a quantiser that accepts only these.
#[derive(Clone, Copy)]
pub(crate) enum OnLattice<'a, T> {
    No,
    Yes,
    /// By these in place of those given, where that costs little.
    IfCheap(&'a [T], &'a Quantizer<T>),
}

/// Chunks of fewer than `MIXED_VALUES` values are coded by mixing, which stores no tables. So are chunks of fewer than
/// `MIXED_SPARSE_VALUES` whose codes take fewer than `MIXED_SPARSE_BITS`: tables would be a large part of the payload.
const MIXED_VALUES: usize = 5 << 10;
const MIXED_SPARSE_VALUES: usize = 1 << 14;
const MIXED_SPARSE_BITS: u64 = 1 << 13;

/// Chunks of at most `SHORT_VALUES` values are coded with several predictors if their codes take few bits, or few bits
/// in all and per value: a sample has few codes other than 0, and parameters are a large part of the payload.
const SHORT_VALUES: usize = 1 << 18;
const SHORT_BITS: u64 = 1 << 13;
const SHORT_SPARSE_BITS: u64 = 1 << 16;
const SPARSE_VALUES_PER_BIT: u64 = 4;

/// The stable mode is chosen where the size that it takes is below this many times that of the best predictor.
const STABLE_SHARE: f64 = 1.02;

const IS_INTERPOLATED: u8 = 1;
const IS_MIXED: u8 = 1 << 1;
const HAS_FILLS: u8 = 1 << 2;
const HAS_EXACT: u8 = 1 << 3;
const IS_WIDE: u8 = 1 << 4;
const IS_OF_INTEGERS: u8 = 1 << 5;

/// The predictor of a chunk, with its parameters.
enum Predictor<T> {
    Lattice(lattice::Parameters),
    Interpolation(interpolate::Parameters<T>),
}

/// Whether the values of a payload are on the lattice of its stream's step, but for exact ones.
pub(crate) fn is_on_lattice(payload: &[u8]) -> bool {
    payload.first().is_some_and(|flags| flags & IS_INTERPOLATED == 0)
}

/// The codec of the presets `small` and `max`.
pub(crate) struct Small;

impl<T: Real> ChunkCodec<T> for Small {
    const ID: CodecId = CodecId::Small;
    type Settings<'a>
        = Settings<'a, T>
    where
        T: 'a;

    fn encode(
        values: &[T],
        Settings { quantizer, effort, on_lattice }: Self::Settings<'_>,
        chunk: &ChunkContext<'_, T>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        let view = View::new(chunk.extents);
        let in_view = |values| if view.is_plain() { Cow::Borrowed(values) } else { Cow::Owned(view.gather(values)) };
        let working = in_view(values);
        let kinds = masks::find_fills(&working, chunk.fills);
        let masked = masks::masked(kinds.as_deref());
        let chunk_of = |values, quantizer| Chunk::new(values, masked.as_deref(), view.dims, quantizer);
        let snapped = match on_lattice {
            OnLattice::IfCheap(snapped, exact) => Some((in_view(snapped), exact)),
            _ => None,
        };
        let mut job = Job {
            chunk: Chunk { on_lattice: matches!(on_lattice, OnLattice::Yes), ..chunk_of(&working, quantizer) },
            on_lattice: snapped.as_ref().map(|(snapped, exact)| Chunk { on_lattice: true, ..chunk_of(snapped, exact) }),
            kinds,
            n_fills: chunk.fills.len(),
            effort,
            workers: chunk.workers,
        };
        job.encode(out);
        padding::pad(out, start, values.len());
        true
    }

    /// Codes, and then either what their coder or what the predictor needs.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        let (n, value) = (chunk.n_values(), size_of::<T>() as u64);
        let view = View::new(chunk.extents);
        let of_view = if view.is_plain() { 0 } else { value * n };
        let of_coder = streams::decode_bytes(&view.dims, payload_bytes, chunk.workers).max(mix::decode_bytes(n));
        let of_predictor = interpolate::decode_bytes::<T>(n).max(lattice::decode_bytes(&view.dims, chunk.workers));
        4 * n + of_coder.max(of_view + of_predictor) + masks::decode_bytes(payload_bytes, chunk)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        let &ChunkContext { extents, fills, workers, .. } = chunk;
        let step = chunk.needed_step()?;
        let view = View::new(extents);
        let mut bytes = Bytes::new(payload);
        let flags = bytes.u8()?;
        if flags & !(IS_INTERPOLATED | IS_MIXED | HAS_FILLS | HAS_EXACT | IS_WIDE | IS_OF_INTEGERS) != 0 {
            return Err(Error::corrupt("chunk has unknown flags"));
        }
        if flags & IS_INTERPOLATED != 0 && flags & IS_OF_INTEGERS != 0 {
            return Err(Error::corrupt("chunk has the flags of two interpolations"));
        }
        if flags & IS_MIXED != 0 && flags & IS_WIDE != 0 {
            return Err(Error::corrupt("chunk has the flags of both wide streams and mixing"));
        }
        let n_parameters = varint::read_from(&mut bytes)?;
        let too_long = |_| Error::corrupt("parameters are longer than their chunk");
        let mut coder = BinaryDecoder::new(bytes.take(usize::try_from(n_parameters).map_err(too_long)?)?);
        let mut kinds = None;
        if flags & HAS_FILLS != 0 {
            kinds = Some(masks::read_kinds(&mut coder, out.len(), &view.dims, fills.len())?);
        }
        let mut exact = Vec::new();
        if flags & HAS_EXACT != 0 {
            exact = masks::code_positions(&mut coder, &[], out.len(), bytes.len() / size_of::<T>())?;
        }
        let (predictor, layout) = if flags & (IS_INTERPOLATED | IS_OF_INTEGERS) != 0 {
            let of_integers = flags & IS_OF_INTEGERS != 0;
            let (parameters, layout) = interpolate::Parameters::code(&mut coder, None, of_integers, &view.dims)?;
            (Predictor::Interpolation(parameters), layout)
        } else {
            (Predictor::Lattice(lattice::Parameters::code(&mut coder, None)?), BandLayout::lattice(view.dims))
        };
        let layout = &layout;
        let exact_values = bytes.take(exact.len() * size_of::<T>())?;
        let n_body = usize::try_from(varint::read_from(&mut bytes)?).map_err(too_long)?;
        let body = bytes.take(n_body)?;
        padding::check_end(&bytes, payload.len(), out.len())?;
        let masked = kinds.as_deref().map(|kinds| masked_bands(layout, kinds)).transpose()?;
        let mut codes = scratch::try_take(out.len())?;
        if flags & IS_MIXED != 0 {
            mix::decode(layout, body, masked.as_deref(), &mut codes)?;
        } else {
            let is_wide = flags & IS_WIDE != 0;
            streams::decode(layout, body, masked.as_deref(), is_wide, &mut coder, &mut codes, workers)?;
        }
        coder.finish()?;

        let mut buffer = Vec::new();
        let working: &mut [T] = if view.is_plain() {
            &mut *out
        } else {
            buffer = filled(T::default(), out.len())?;
            &mut buffer
        };
        match predictor {
            Predictor::Interpolation(parameters) => {
                interpolate::decode(layout, &parameters, &codes, working, workers)?;
                if parameters.on_lattice {
                    plan_lattice::restore(step, working);
                }
            }
            Predictor::Lattice(parameters) => lattice::decode(layout, &parameters, step, &codes, working, workers)?,
        }
        scratch::give(codes);
        if let Some(kinds) = &kinds {
            for (x, kind) in working.iter_mut().zip(kinds).filter(|(_, kind)| **kind != 0) {
                *x = fills[usize::from(*kind) - 1];
            }
        }
        for (position, value) in exact.iter().zip(exact_values.chunks_exact(size_of::<T>())) {
            T::copy_from_le_bytes(value, &mut working[*position..=*position]);
        }
        if !buffer.is_empty() {
            view.scatter(&buffer, out);
        }
        Ok(())
    }
}

/// Which values are fill values, in the order of codes.
fn masked_bands(layout: &BandLayout, kinds: &[u8]) -> Result<Vec<bool>> {
    let mut masked = filled(false, kinds.len())?;
    masked.iter_mut().zip(kinds).for_each(|(masked, kind)| *masked = *kind != 0);
    interpolate::to_bands(layout, &masked, false)
}

/// A chunk to encode, and the settings of the encoder.
struct Job<'a, T> {
    chunk: Chunk<'a, T>,
    /// The chunk with values on a lattice, which is coded instead where that costs little.
    on_lattice: Option<Chunk<'a, T>>,
    /// For each value 0, or 1 + the index of its fill value; `None` if there are no fill values.
    kinds: Option<Vec<u8>>,
    n_fills: usize,
    effort: Effort,
    workers: &'a Workers,
}

impl<T: Real> Job<'_, T> {
    /// Chooses the predictor, which it returns, and appends the payload without padding.
    fn encode(&mut self, out: &mut Vec<u8>) -> Choice {
        let Some(on_lattice) = self.on_lattice.take() else {
            let found = self.choose();
            return self.code(found, out);
        };
        // Values that are on the lattice already stay there.
        if on_lattice.values.iter().zip(self.chunk.values).all(|(y, x)| y.bits() == x.bits()) {
            self.chunk = on_lattice;
            return self.encode(out);
        }
        let (free, found) = (self.chunk, self.choose());
        self.chunk = on_lattice;
        let stable = self.choose();
        let is_cheap = |stable: usize, free: usize| (stable as f64) < STABLE_SHARE * free as f64;
        if self.is_short(stable.n_bits) {
            let (mut payload, mut other) = (Vec::new(), Vec::new());
            let choice = self.code(stable, &mut payload);
            self.chunk = free;
            let other_choice = self.code(found, &mut other);
            let is_cheap = is_cheap(payload.len(), other.len());
            out.extend_from_slice(if is_cheap { &payload } else { &other });
            return if is_cheap { choice } else { other_choice };
        }
        if is_cheap(stable.n_bits as usize, found.n_bits as usize) {
            return self.code(stable, out);
        }
        self.chunk = free;
        self.code(found, out)
    }

    fn choose(&self) -> Found<T> {
        match self.effort {
            Effort::Sample => self.chunk.choose(self.workers),
            Effort::Everything => self.chunk.choose_from_all(),
            #[cfg(feature = "unstable-research")]
            Effort::Given(choice) => Found { choice, n_bits: self.chunk.estimate(choice), begun: None },
        }
    }

    /// Whether a chunk whose codes take about this many bits is coded with several predictors.
    fn is_short(&self, n_bits: u64) -> bool {
        let n_values = self.chunk.values.len();
        let is_sparse = n_bits < SHORT_SPARSE_BITS && n_bits * SPARSE_VALUES_PER_BIT < n_values as u64;
        self.effort == Effort::Sample && n_values <= SHORT_VALUES && (n_bits < SHORT_BITS || is_sparse)
    }

    /// Appends the payload without padding, by the predictor found or a better one, which it returns.
    fn code(&mut self, Found { choice, n_bits, begun }: Found<T>, out: &mut Vec<u8>) -> Choice {
        if !self.is_short(n_bits) {
            self.write(choice, n_bits, begun, out);
            return choice;
        }
        let mut shortest = (choice, Vec::new());
        self.write(choice, n_bits, begun, &mut shortest.1);
        for other in self.chunk.alternatives(choice) {
            let mut payload = Vec::new();
            self.write(other, n_bits, None, &mut payload);
            if payload.len() < shortest.1.len() {
                shortest = (other, payload);
            }
        }
        out.extend_from_slice(&shortest.1);
        shortest.0
    }

    /// Codes the chunk with a predictor whose codes take about `n_bits` bits, and appends the payload.
    fn write(&mut self, choice: Choice, n_bits: u64, begun: Option<Begun<T>>, out: &mut Vec<u8>) {
        let Self { chunk, kinds, n_fills, effort, workers, .. } = self;
        let (values, dims) = (chunk.values, &chunk.dims);
        let coded = chunk.go_on(choice, begun, workers);
        let (layout, codes) = coded.layout_and_codes();
        let exact = coded.exact_positions();
        let is_sparse = values.len() < MIXED_SPARSE_VALUES && n_bits < MIXED_SPARSE_BITS;
        let is_mixed = *effort == Effort::Everything || values.len() < MIXED_VALUES || is_sparse;
        let is_wide = !is_mixed && streams::pay_wide(layout, n_bits);

        let mut flags = match &coded {
            Coded::Lattice(_) => 0,
            Coded::Interpolated(coded) if coded.parameters.on_lattice => IS_OF_INTEGERS,
            Coded::Interpolated(_) => IS_INTERPOLATED,
        };
        for (flag, is_set) in
            [(IS_MIXED, is_mixed), (HAS_FILLS, kinds.is_some()), (HAS_EXACT, !exact.is_empty()), (IS_WIDE, is_wide)]
        {
            flags |= if is_set { flag } else { 0 };
        }
        out.push(flags);
        let mut parameters = Vec::new();
        let mut body = Vec::new();
        let mut coder = BinaryEncoder::new(&mut parameters);
        let never = "writing does not fail";
        if let Some(kinds) = kinds {
            masks::code_kinds(&mut coder, kinds, dims, *n_fills, |_| false).expect(never);
        }
        if !exact.is_empty() {
            masks::code_positions(&mut coder, &exact, values.len(), values.len()).expect(never);
        }
        match &coded {
            Coded::Lattice(coded) => drop(lattice::Parameters::code(&mut coder, Some(&coded.parameters)).expect(never)),
            Coded::Interpolated(coded) => {
                let parameters = &coded.parameters;
                drop(
                    interpolate::Parameters::code(&mut coder, Some(parameters), parameters.on_lattice, dims)
                        .expect(never),
                );
            }
        }
        let masked = chunk.masked.map(|masked| interpolate::to_bands(layout, masked, false));
        let masked = masked.transpose().expect(MEMORY_WAS_CHECKED);
        if is_mixed {
            if values.len() >= MIXED_SPARSE_VALUES {
                scratch::clear::<T>();
                scratch::clear::<i32>();
                scratch::clear::<u16>();
            }
            mix::encode(layout, codes, masked.as_deref(), &mut body);
        } else {
            streams::encode(layout, codes, masked.as_deref(), is_wide, &mut coder, &mut body, workers);
        }
        scratch::give(coded.into_codes());
        coder.finish();
        varint::write_to(parameters.len() as u64, out);
        out.extend_from_slice(&parameters);
        for position in exact {
            T::extend_le_bytes(&values[position..=position], out);
        }
        varint::write_to(body.len() as u64, out);
        out.extend_from_slice(&body);
    }
}

/// All predictors that can code a chunk, which must not be empty, and the one that `small` chooses.
#[cfg(feature = "unstable-research")]
pub(crate) fn candidates<T: Real>(
    values: &[T],
    quantizer: &Quantizer<T>,
    chunk: &ChunkContext<'_, T>,
) -> (Vec<Choice>, Choice) {
    let view = View::new(chunk.extents);
    let working = view.gather(values);
    let kinds = masks::find_fills(&working, chunk.fills);
    let masked = masks::masked(kinds.as_deref());
    let n_fills = chunk.fills.len();
    let chunk = Chunk::new(&working, masked.as_deref(), view.dims, quantizer);
    let candidates = chunk.candidates();
    let workers = &Workers::Serial;
    let mut job = Job { chunk, on_lattice: None, kinds, n_fills, effort: Effort::Sample, workers };
    (candidates, job.encode(&mut Vec::new()))
}
