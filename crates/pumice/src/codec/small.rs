//! The codec of the presets `small` and `max`: the predictor that serves the chunk best, and its codes under contexts
//! (docs/format.md, 7).

use std::borrow::Cow;

use super::bands::{AXES, AxisSet, Dims, Layout, axes_of, volume};
use super::binary::{Decoder, Encoder};
use super::simd::{self, Job};
use super::view::{Patch, View, patches};
use super::{interpolate, lattice, masks, mix, scratch, streams};
use crate::array::Real;
use crate::container::{Bytes, varint};
use crate::error::{Error, Result};
use crate::parallel::Workers;
use crate::quantize::Quantizer;

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Choose from a sample, static contexts.
    Sample,
    /// Try everything on the whole chunk, adaptive mixing.
    Everything,
}

/// An axis is rough if codes along it are longer by this many bits, in units of 1 / 64, and a quarter.
const ROUGH: u64 = 12;

/// Chunks of fewer values are coded by mixing in any case: it has no tables. And so are somewhat larger ones whose codes
/// take fewer bits, since tables would be a good part of them.
const MIXED_VALUES: usize = 5 << 10;
const MIXED_SPARSE_VALUES: usize = 1 << 14;
const MIXED_SPARSE_BITS: u64 = 1 << 13;

const IS_INTERPOLATED: u8 = 1;
const IS_MIXED: u8 = 1 << 1;
const HAS_FILLS: u8 = 1 << 2;
const HAS_EXACT: u8 = 1 << 3;
const IS_WIDE: u8 = 1 << 4;

/// A payload has at least one byte for so many values.
const VALUES_PER_BYTE: usize = 1 << 14;

/// Least payload of a chunk of `n_values` values: what a reader may rely on before it allocates.
pub(crate) fn min_payload_bytes(n_values: usize) -> usize {
    (n_values / VALUES_PER_BYTE).max(3)
}

/// How a chunk is predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Choice {
    Lattice,
    Interpolation { active: AxisSet, scale: usize },
}

/// A chunk to encode.
struct Chunk<'a, T> {
    values: &'a [T],
    masked: Option<&'a [bool]>,
    dims: Dims,
    quantizer: &'a Quantizer<T>,
    /// Step and tolerance of the interpolation, where it can keep the bound.
    interpolation: Option<(T, T)>,
}

/// What a decoder predicts with.
enum Predictor<T> {
    Lattice(lattice::Parameters),
    Interpolation(interpolate::Parameters<T>),
}

/// Codes of either predictor.
enum Coded<T> {
    Lattice(lattice::Encoded),
    Interpolated(interpolate::Encoded<T>),
}

/// Appends the payload of a chunk, which is not empty.
pub(crate) fn encode<T: Real>(
    values: &[T],
    extents: &[usize],
    quantizer: &Quantizer<T>,
    fills: &[T],
    effort: Effort,
    workers: &Workers,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    let view = View::new(extents);
    let working = if view.is_plain() { Cow::Borrowed(values) } else { Cow::Owned(view.gather(values)) };
    let mut kinds = masks::find_fills(&working, fills);
    let masked: Option<Vec<bool>> = kinds.as_ref().map(|kinds| kinds.iter().map(|kind| *kind != 0).collect());
    let chunk = Chunk {
        values: &working,
        masked: masked.as_deref(),
        dims: view.dims,
        quantizer,
        interpolation: interpolation_step(&working, masked.as_deref(), quantizer),
    };
    let (choice, n_bits) = match effort {
        Effort::Sample => chunk.choose(),
        Effort::Everything => chunk.choose_from_all(),
    };
    let coded = chunk.code(choice, workers);
    let (layout, codes) = coded.layout_and_codes();
    let exact = coded.exact_places();
    let is_sparse = values.len() < MIXED_SPARSE_VALUES && n_bits < MIXED_SPARSE_BITS;
    let is_mixed = effort == Effort::Everything || values.len() < MIXED_VALUES || is_sparse;
    let is_wide = !is_mixed && streams::pay_wide(layout, n_bits);

    let mut flags = if matches!(coded, Coded::Interpolated(_)) { IS_INTERPOLATED } else { 0 };
    for (flag, is_set) in
        [(IS_MIXED, is_mixed), (HAS_FILLS, kinds.is_some()), (HAS_EXACT, !exact.is_empty()), (IS_WIDE, is_wide)]
    {
        flags |= if is_set { flag } else { 0 };
    }
    out.push(flags);
    let mut parameters = Vec::new();
    let mut body = Vec::new();
    let mut coder = Encoder::new(&mut parameters);
    let never = "writing does not fail";
    if let Some(kinds) = &mut kinds {
        masks::code_kinds(&mut coder, kinds, &view.dims, fills.len(), |_| false).expect(never);
    }
    if !exact.is_empty() {
        masks::code_places(&mut coder, &exact, values.len(), values.len()).expect(never);
    }
    match &coded {
        Coded::Lattice(coded) => drop(lattice::Parameters::code(&mut coder, Some(&coded.parameters)).expect(never)),
        Coded::Interpolated(coded) => {
            drop(interpolate::Parameters::code(&mut coder, Some(&coded.parameters), &view.dims).expect(never));
        }
    }
    let masked = masked.map(|masked| interpolate::to_bands(layout, &masked, false));
    if is_mixed {
        mix::encode(layout, codes, masked.as_deref(), &mut body);
    } else {
        streams::encode(layout, codes, masked.as_deref(), is_wide, &mut coder, &mut body, workers);
    }
    scratch::give(coded.into_codes());
    coder.finish();
    varint::write_to(parameters.len() as u64, out);
    out.extend_from_slice(&parameters);
    for place in exact {
        T::extend_le_bytes(&working[place..=place], out);
    }
    varint::write_to(body.len() as u64, out);
    out.extend_from_slice(&body);
    // Data without any surprise would be shorter than a reader believes: it is filled up with zeros.
    out.resize(out.len().max(start + min_payload_bytes(values.len())), 0);
}

/// Decodes a chunk, which is not empty.
pub(crate) fn decode<T: Real>(
    payload: &[u8],
    extents: &[usize],
    step: Option<T>,
    fills: &[T],
    workers: &Workers,
    out: &mut [T],
) -> Result<()> {
    let step = step.ok_or_else(|| Error::corrupt("chunk needs a step, and the stream has none"))?;
    let view = View::new(extents);
    let mut bytes = Bytes::new(payload);
    let flags = bytes.u8()?;
    if flags & !(IS_INTERPOLATED | IS_MIXED | HAS_FILLS | HAS_EXACT | IS_WIDE) != 0 {
        return Err(Error::corrupt("chunk has unknown flags"));
    }
    if flags & IS_MIXED != 0 && flags & IS_WIDE != 0 {
        return Err(Error::corrupt("chunk has wide streams, and none at all"));
    }
    let n_parameters = varint::read_from(&mut bytes)?;
    let too_long = |_| Error::corrupt("parameters are longer than their chunk");
    let mut coder = Decoder::new(bytes.take(usize::try_from(n_parameters).map_err(too_long)?)?);
    let mut kinds = None;
    if flags & HAS_FILLS != 0 {
        let mut found = vec![0; out.len()];
        masks::code_kinds(&mut coder, &mut found, &view.dims, fills.len(), Decoder::is_past_end)?;
        if found.iter().any(|kind| usize::from(*kind) > fills.len()) {
            return Err(Error::corrupt("chunk has fill values, and the stream has none"));
        }
        kinds = Some(found);
    }
    let mut exact = Vec::new();
    if flags & HAS_EXACT != 0 {
        exact = masks::code_places(&mut coder, &[], out.len(), bytes.len() / size_of::<T>())?;
    }
    let (predictor, layout) = if flags & IS_INTERPOLATED != 0 {
        let (parameters, layout) = interpolate::Parameters::code(&mut coder, None, &view.dims)?;
        (Predictor::Interpolation(parameters), layout)
    } else {
        (Predictor::Lattice(lattice::Parameters::code(&mut coder, None)?), Layout::lattice(view.dims))
    };
    let layout = &layout;
    let exact_values = bytes.take(exact.len() * size_of::<T>())?;
    let n_body = usize::try_from(varint::read_from(&mut bytes)?).map_err(too_long)?;
    let body = bytes.take(n_body)?;
    if bytes.rest().iter().any(|byte| *byte != 0) || (bytes.len() > 0 && payload.len() > min_payload_bytes(out.len())) {
        return Err(Error::corrupt("chunk has bytes after its end"));
    }
    let masked = kinds.as_ref().map(|kinds| {
        let masked: Vec<bool> = kinds.iter().map(|kind| *kind != 0).collect();
        interpolate::to_bands(layout, &masked, false)
    });
    let mut codes = scratch::take(out.len());
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
        buffer.resize(out.len(), T::default());
        &mut buffer
    };
    match predictor {
        Predictor::Interpolation(parameters) => interpolate::decode(layout, &parameters, &codes, working, workers),
        Predictor::Lattice(parameters) => lattice::decode(layout, &parameters, step, &codes, working, workers),
    }
    scratch::give(codes);
    if let Some(kinds) = &kinds {
        for (x, kind) in working.iter_mut().zip(kinds).filter(|(_, kind)| **kind != 0) {
            *x = fills[usize::from(*kind) - 1];
        }
    }
    for (place, value) in exact.iter().zip(exact_values.chunks_exact(size_of::<T>())) {
        T::copy_from_le_bytes(value, &mut working[*place..=*place]);
    }
    if !buffer.is_empty() {
        view.scatter(&buffer, out);
    }
    Ok(())
}

/// A step with room for the rounding of prediction + code · step at the chunk's largest value. None if that takes most
/// of the tolerance.
fn interpolation_step<T: Real>(values: &[T], masked: Option<&[bool]>, quantizer: &Quantizer<T>) -> Option<(T, T)> {
    let infinity = T::from_f64(f64::INFINITY).to_bits_u64();
    let largest = simd::run(LargestMagnitude { values, masked });
    let max_abs = largest.to_f64();
    let unit = T::from_bits_u64(largest.to_bits_u64() + 1).to_f64() - max_abs;
    let tolerance = quantizer.tolerance.to_f64();
    let step = 2.0 * (tolerance - unit) * (1.0 - 1.0 / 4096.0);
    // Sums of a few values must stay finite.
    let is_safe = max_abs < T::from_bits_u64(infinity - 1).to_f64() / 1024.0;
    let rounded = T::from_f64(step);
    let is_normal =
        T::from_f64(8.0 / step).to_f64().is_finite() && rounded.to_f64() > 0.0 && rounded.to_f64().is_finite();
    (is_safe && step > tolerance && is_normal).then_some((rounded, quantizer.tolerance))
}

/// The largest magnitude of all finite values that are not masked.
struct LargestMagnitude<'a, T> {
    values: &'a [T],
    masked: Option<&'a [bool]>,
}

impl<T: Real> Job for LargestMagnitude<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run(self) -> T {
        // Sixteen at a time, since each waits for the one before.
        let mut largest = [T::default(); 16];
        let infinity = T::from_f64(f64::INFINITY);
        let better = |x: T, than: T| if x.fabs() > than && x.fabs() < infinity { x.fabs() } else { than };
        let (blocks, rest) = self.values.as_chunks::<16>();
        if let Some(masked) = self.masked {
            let (masked, masked_rest) = masked.as_chunks::<16>();
            let unmasked = |x: T, masked: bool| if masked { T::default() } else { x };
            for (block, masked) in blocks.iter().zip(masked) {
                for i in 0..16 {
                    largest[i] = better(unmasked(block[i], masked[i]), largest[i]);
                }
            }
            for (x, masked) in rest.iter().zip(masked_rest) {
                largest[0] = better(unmasked(*x, *masked), largest[0]);
            }
        } else {
            for block in blocks {
                for i in 0..16 {
                    largest[i] = better(block[i], largest[i]);
                }
            }
            for x in rest {
                largest[0] = better(*x, largest[0]);
            }
        }
        largest.into_iter().fold(T::default(), |all, x| better(x, all))
    }
}

impl<T: Real> Chunk<'_, T> {
    fn code(&self, choice: Choice, workers: &Workers) -> Coded<T> {
        match choice {
            Choice::Lattice => {
                let integers = lattice::quantize(self.values, self.masked, self.quantizer);
                let coefficients = lattice::fit(&integers.values, &self.dims);
                Coded::Lattice(lattice::encode(integers, self.masked, self.dims, coefficients, workers))
            }
            Choice::Interpolation { active, scale } => {
                let steps = self.interpolation.expect("only chosen where there is a step");
                Coded::Interpolated(interpolate::encode(
                    self.values,
                    self.masked,
                    self.dims,
                    active,
                    scale,
                    steps,
                    workers,
                ))
            }
        }
    }

    /// What this predictor makes of the chunk.
    fn try_out(&self, choice: Choice) -> Trial {
        let coded = self.code(choice, &Workers::Serial);
        let (layout, codes) = coded.layout_and_codes();
        let masked = self.masked.map(|masked| interpolate::to_bands(layout, masked, false));
        let exact_bits = coded.n_escapes() as u64 * (8 * size_of::<T>() as u64 + 16);
        let bits = streams::estimate(layout, codes, masked.as_deref()) + exact_bits;
        let mut trial = Trial { bits, n_values: codes.len(), by_axis: [0; AXES] };
        for band in layout.bands.iter().filter(|band| band.level == 0 && band.odd.count_ones() == 1) {
            let codes = &codes[band.offset..][..volume(&band.dims)];
            let length = |code: &i32| u64::from(u32::BITS - code.unsigned_abs().leading_zeros());
            trial.by_axis[band.odd.trailing_zeros() as usize] =
                codes.iter().map(length).sum::<u64>() * 64 / codes.len() as u64;
        }
        scratch::give(coded.into_codes());
        trial
    }

    /// The predictor that serves a sample best, and how many bits the codes will take, about.
    fn choose(&self) -> (Choice, u64) {
        let patches = patches(self.values, self.masked, &self.dims);
        let chunks: Vec<Chunk<'_, T>> = patches.iter().map(|patch| self.patch(patch)).collect();
        let try_out = |choice: Choice, best: u64| {
            let mut sum = Trial::default();
            for (i, chunk) in chunks.iter().enumerate() {
                let trial = chunk.try_out(choice);
                sum.bits += trial.bits;
                sum.n_values += trial.n_values;
                sum.by_axis.iter_mut().zip(trial.by_axis).for_each(|(sum, n)| *sum += n / chunks.len() as u64);
                // What is far behind after half of the patches will not win.
                if i >= chunks.len() / 2 && sum.bits > best {
                    break;
                }
            }
            sum
        };
        let (choice, trial) = best(self.interpolation.is_some(), &self.dims, try_out);
        (choice, trial.bits * self.values.len() as u64 / trial.n_values as u64)
    }

    fn patch<'a>(&'a self, patch: &'a Patch<T>) -> Chunk<'a, T> {
        Chunk { values: &patch.values, masked: patch.masked.as_deref(), dims: patch.dims, ..*self }
    }

    /// The predictor whose codes are shortest, and how many bits they take, about.
    fn choose_from_all(&self) -> (Choice, u64) {
        let (choice, trial) = best(self.interpolation.is_some(), &self.dims, |choice, _| self.try_out(choice));
        (choice, trial.bits)
    }
}

/// What a predictor made of a sample.
#[derive(Clone, Copy, Default)]
struct Trial {
    /// Estimated length of the codes.
    bits: u64,
    n_values: usize,
    /// Mean length, in units of 1 / 64 bit, of the codes of the finest level between neighbours along each axis.
    by_axis: [u64; AXES],
}

/// Tries what may serve best; trials may stop early once they are longer than the best so far.
fn best(can_interpolate: bool, dims: &Dims, try_out: impl Fn(Choice, u64) -> Trial) -> (Choice, Trial) {
    let all = (0..AXES).filter(|a| dims[*a] >= 4).fold(0, |set: AxisSet, a| set | 1 << a);
    if !can_interpolate || all == 0 {
        return (Choice::Lattice, try_out(Choice::Lattice, u64::MAX));
    }
    let with = |active: AxisSet, best: u64| (try_out(Choice::Interpolation { active, scale: 1 }, best), active);
    let mut best = with(all, u64::MAX);
    // Axes along which the data is not smooth are left out, one after the other.
    loop {
        let (Trial { bits, by_axis, .. }, active) = best;
        let least = axes_of(active).map(|a| by_axis[a]).min().unwrap_or(0);
        let roughest = axes_of(active).max_by_key(|a| by_axis[*a]).filter(|_| active.count_ones() > 1);
        let Some(axis) = roughest.filter(|a| by_axis[*a] > least + least / 4 + ROUGH) else { break };
        let without = with(active & !(1 << axis), bits);
        if without.0.bits >= bits {
            break;
        }
        best = without;
    }
    let (trial, active) = best;
    // Patches have few levels and many edges, which interpolation suffers from more than the whole chunk will.
    let lattice = try_out(Choice::Lattice, trial.bits);
    let handicap = if trial.n_values < volume(dims) { lattice.bits / 32 } else { 0 };
    if lattice.bits + handicap < trial.bits {
        return (Choice::Lattice, lattice);
    }
    // Finer steps on coarse levels pay where most codes are 0.
    let is_dense = trial.bits > trial.n_values as u64;
    (Choice::Interpolation { active, scale: if is_dense { 0 } else { 1 } }, trial)
}

impl<T> Coded<T> {
    fn layout_and_codes(&self) -> (&Layout, &[i32]) {
        match self {
            Coded::Lattice(coded) => (&coded.layout, &coded.codes),
            Coded::Interpolated(coded) => (&coded.layout, &coded.codes),
        }
    }

    fn into_codes(self) -> Vec<i32> {
        match self {
            Coded::Lattice(coded) => coded.codes,
            Coded::Interpolated(coded) => coded.codes,
        }
    }

    /// Places in working order of values that must be stored exactly.
    fn exact_places(&self) -> Vec<usize> {
        match self {
            Coded::Lattice(coded) => coded.escapes.clone(),
            Coded::Interpolated(coded) => {
                let mut exact: Vec<usize> = coded.escapes.iter().map(|at| coded.layout.place_of(*at)).collect();
                exact.sort_unstable();
                exact
            }
        }
    }

    fn n_escapes(&self) -> usize {
        match self {
            Coded::Lattice(coded) => coded.escapes.len(),
            Coded::Interpolated(coded) => coded.escapes.len(),
        }
    }
}
