//! The layer for bounds relative to each value, |x - x'| <= e|x| (docs/format.md, 14.1): the preset's own codec
//! compresses the logarithms of the magnitudes under an absolute bound; signs, zeros and fill values are stored
//! separately. If there is an absolute bound as well, the layer also tries the values themselves under a bound that
//! suits most of them, and keeps the smaller payload.
//!
//! The bound does not depend on rounding errors: the encoder decodes its own payload, and stores each value exactly
//! that fails the check of `bounds.rs`.

use std::borrow::Cow;

use super::{Exact, Nested, within_payload, write_nested};
use crate::codec::shared::masks;
use crate::codec::{self, ChunkCodec, ChunkContext, CodecId, pipeline};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::error::{Error, Result};
use crate::exec::scratch;
use crate::io::Bytes;
use crate::num::logarithm::{MAX_CENTRE, exp2, log2};
use crate::num::simd::{self, Kernel};
use crate::num::{DType, Int, Real};
use crate::plan::{Check, Coding, Limit, Quantizer, Stable};

const IS_LOGARITHMIC: u8 = 1;
const HAS_SIGNS: u8 = 1 << 1;
const IS_NEGATIVE: u8 = 1 << 2;
const HAS_SECOND_FILL: u8 = 1 << 3;
const IS_SECOND_FILL: u8 = 1 << 4;
const HAS_PATCHES: u8 = 1 << 5;
const KNOWN_FLAGS: u8 = (1 << 6) - 1;

/// The largest factor that logarithms are coded for; larger ones are lowered to it.
const MOST_POINTWISE: f64 = (1 << 20) as f64;
/// A payload smaller than this share of the values is not compared with exact coding.
pub(crate) const GOOD_SHARE: usize = 4;

/// The kind of a fill value that the stream has no mask for.
const EXACT: u8 = u8::MAX;

/// The numbers that replace the logarithms of a zero and of a fill value.
fn markers<T: Real>() -> [T; 2] {
    let bits = match T::DTYPE {
        DType::F32 => 0x7fc0_5a00,
        DType::F64 => 0x7ff8_0000_0000_5a00,
    };
    [1, 2].map(|i| T::from_bits_u64(bits + i))
}

/// The layer. It cannot code values whose logarithms do not have enough precision in T.
pub(crate) struct Pointwise;

impl<T: Real> ChunkCodec<T> for Pointwise {
    const ID: CodecId = CodecId::Pointwise;
    type Settings<'a>
        = &'a Layer<'a, T>
    where
        T: 'a;

    fn encode(_: &[T], layer: &Layer<'_, T>, _: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        let payloads = match layer.limit.is_pointwise() {
            true => [layer.encode_logarithms(), layer.encode_values()],
            false => [Some(layer.finish(&layer.bridged(), Extras::default(), layer.coding, layer.chunk.fills)), None],
        };
        let best = payloads.into_iter().flatten().min_by_key(Vec::len);
        best.is_some_and(|mut best| {
            out.append(&mut best);
            true
        })
    }

    /// Two masks and a row of them, and positions of values that are stored exactly.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        let of_masks = if chunk.fills.len() > 1 { 3 } else { 2 };
        let no_fills = ChunkContext { fills: &[], ..*chunk };
        of_masks * chunk.n_values() + masks::decode_bytes(payload_bytes, &no_fills)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        decode(payload, chunk, out).map_err(within_payload)
    }
}

/// Range of the magnitudes of some values.
#[derive(Clone, Copy, Debug)]
struct Magnitudes {
    /// The range over finite values that are neither 0 nor fill values; `least` is above `most` if there are none.
    least: f64,
    most: f64,
    n_zeros: usize,
}

struct FindMagnitudes<'a, T> {
    values: &'a [T],
    kinds: &'a [u8],
}

impl<T: Real> Kernel for FindMagnitudes<'_, T> {
    type Output = Magnitudes;

    #[inline(always)]
    fn run(self) -> Magnitudes {
        let mut found = Magnitudes { least: f64::INFINITY, most: 0.0, n_zeros: 0 };
        for (values, kinds) in self.values.chunks(1 << 12).zip(self.kinds.chunks(1 << 12)) {
            let (mut least, mut most, mut n_zeros) = (f64::INFINITY, 0.0, 0_u32);
            for (x, kind) in values.iter().zip(kinds) {
                let size = x.to_f64().abs();
                let is_zero = (size == 0.0) & (*kind == 0);
                let counts = (size < f64::INFINITY) & (*kind == 0) & !is_zero;
                least = if counts & (size < least) { size } else { least };
                most = if counts & (size > most) { size } else { most };
                n_zeros += u32::from(is_zero);
            }
            found.least = found.least.min(least);
            found.most = found.most.max(most);
            found.n_zeros += n_zeros as usize;
        }
        found
    }
}

/// Values to be coded under a pointwise limit.
pub(crate) struct Layer<'a, T> {
    values: &'a [T],
    /// As [`masks::find_fills`], or [`EXACT`].
    kinds: Vec<u8>,
    has_exact: bool,
    magnitudes: Magnitudes,
    limit: &'a Limit,
    coding: &'a Coding<T>,
    chunk: &'a ChunkContext<'a, T>,
}

/// The parts of a payload besides the coded numbers.
#[derive(Default)]
struct Extras {
    flags: u8,
    centre: i64,
    signs: Option<Vec<u8>>,
    second_fills: Option<Vec<u8>>,
}

impl<'a, T: Real> Layer<'a, T> {
    /// Analyses the values, of which there is at least one; `coding` is for the absolute part of the limit.
    pub(crate) fn new(
        values: &'a [T],
        limit: &'a Limit,
        coding: &'a Coding<T>,
        chunk: &'a ChunkContext<'a, T>,
    ) -> Self {
        let mut kinds = masks::find_fills(values, chunk.fills).unwrap_or_else(|| vec![0; values.len()]);
        let is_exact = |value: &T| chunk.more_fills.iter().any(|fill| fill.bits() == value.bits());
        let mut has_exact = false;
        if !chunk.more_fills.is_empty() {
            for (kind, _) in kinds.iter_mut().zip(values).filter(|(_, value)| is_exact(value)) {
                *kind = EXACT;
                has_exact = true;
            }
        }
        let magnitudes = simd::run(FindMagnitudes { values, kinds: &kinds });
        Self { values, kinds, has_exact, magnitudes, limit, coding, chunk }
    }

    /// Whether no layer is needed: the absolute bound implies the relative one, and no fill value is without a mask.
    pub(crate) fn absolute_suffices(&self) -> bool {
        if self.has_exact {
            return self.coding.step.is_none() && !self.limit.is_pointwise();
        }
        let Magnitudes { least, n_zeros, .. } = self.magnitudes;
        let share = self.limit.pointwise * (1.0 - 1e-6) * least;
        !self.limit.is_pointwise() || (n_zeros == 0 && self.coding.step.is_some() && self.limit.abs <= share)
    }

    /// The payload of logarithms, unless they do not have enough precision in T.
    fn encode_logarithms(&self) -> Option<Vec<u8>> {
        let Magnitudes { least, most, .. } = self.magnitudes;
        let (centre, largest) = if least <= most {
            let (low, high) = (log2(least), log2(most));
            let centre = ((low + high) / 2.0) as i64;
            (centre.clamp(-MAX_CENTRE, MAX_CENTRE), (high - centre as f64).max(centre as f64 - low))
        } else {
            (0, 1.0)
        };
        // The absolute bound divided by the largest magnitude is a relative bound that implies the absolute one for all
        // values.
        let share = self.limit.pointwise.min(MOST_POINTWISE).min(self.limit.abs / most.max(f64::MIN_POSITIVE));
        let bound = log2_of_one_plus(share);
        // Rounding errors of the logarithm and of the restored value in T.
        let unit = f64::from_bits(u64::from(1023 - T::MANTISSA_BITS) << 52);
        let slack = largest.max(1.0) * unit + 2.0 * unit;
        let tolerance = bound - slack;
        if !(tolerance >= bound / 4.0) {
            return None;
        }
        let quantizer = Quantizer::<T>::new(tolerance, Some(largest))?;

        let mut logarithms = scratch::take(self.values.len());
        let job = ToLogarithms { values: self.values, kinds: &self.kinds, centre: centre as f64, out: &mut logarithms };
        simd::run(job);
        let mut extras = Extras { flags: IS_LOGARITHMIC, centre, ..Extras::default() };
        self.find_signs(&mut extras);
        self.find_second_fills(&mut extras);
        let coding = Coding { stable: Stable::Off, abs_bound: tolerance, step: Some(quantizer.step), ..*self.coding };
        let payload = self.finish(&logarithms, extras, &coding, &markers());
        scratch::give(logarithms);
        Some(payload)
    }

    /// The payload of the values themselves, if there is an absolute bound: under this bound if few values need a
    /// tighter one, else under one that is tight enough for all.
    fn encode_values(&self) -> Option<Vec<u8>> {
        let few = self.values.len() / 256;
        if !self.limit.abs.is_finite() || self.magnitudes.n_zeros > few || self.magnitudes.least > self.magnitudes.most
        {
            return None;
        }
        let needs_less = |x: &&T| x.to_f64().abs() * self.limit.pointwise < self.limit.abs;
        let all = self.values.iter().filter(needs_less).count() > few;
        let abs = if all { self.magnitudes.least * self.limit.pointwise } else { self.limit.abs };
        let limit = Limit { abs: abs.min(self.limit.abs), ..Limit::LOSSLESS };
        let coding = Coding::new(self.coding.preset, Stable::Off, &limit, self.magnitudes.most);
        coding.step?;
        Some(self.finish(&self.bridged(), Extras::default(), &coding, self.chunk.fills))
    }

    /// The values, with the value before each run of exact ones in their place, so that they cost little.
    fn bridged(&self) -> Cow<'a, [T]> {
        if !self.has_exact {
            return Cow::Borrowed(self.values);
        }
        let mut bridged = self.values.to_vec();
        let first = self.kinds.iter().position(|kind| *kind != EXACT);
        let mut last = first.map_or_else(T::default, |i| self.values[i]);
        for (value, kind) in bridged.iter_mut().zip(&self.kinds) {
            last = if *kind == EXACT { last } else { *value };
            *value = last;
        }
        Cow::Owned(bridged)
    }

    /// Codes numbers, decodes them again, and adds patches for all values that are wrong.
    fn finish(&self, numbers: &[T], mut extras: Extras, coding: &Coding<T>, fills: &[T]) -> Vec<u8> {
        let mut inner = Vec::new();
        let chunk = ChunkContext { step: coding.step, fills, ..*self.chunk };
        let codec = pipeline::encode_plain(numbers, coding, &chunk, &mut inner);
        let mut restored = scratch::take(numbers.len());
        codec::decode(codec, &inner, &chunk, &mut restored).expect("what was encoded decodes");
        extras.restore(self.chunk.fills, &mut restored);
        let check = self.limit.check();
        let patches = simd::run(FindFailures { values: self.values, kinds: &self.kinds, restored: &restored, check });
        scratch::give(restored);

        let mut out = Vec::with_capacity(inner.len() + 64);
        extras.flags |= if patches.is_empty() { 0 } else { HAS_PATCHES };
        out.push(extras.flags);
        if extras.flags & IS_LOGARITHMIC != 0 {
            out.extend_from_slice(&(extras.centre as i16).to_le_bytes());
        }
        if extras.flags & (HAS_SIGNS | HAS_SECOND_FILL | HAS_PATCHES) != 0 {
            let dims = masks::chunk_dims(self.chunk.extents);
            let write_masks = |coder: &mut BinaryEncoder<'_>| {
                let mut both = [&mut extras.signs, &mut extras.second_fills].into_iter().flatten();
                both.try_for_each(|mask| masks::code_kinds(coder, mask, &dims, 1, |_| false))
            };
            Exact::write_to(self.values, &patches, write_masks, &mut out);
        }
        write_nested(codec, coding.step, &inner, &mut out);
        out
    }

    fn find_signs(&self, extras: &mut Extras) {
        let mut signs: Vec<u8> = self.values.iter().map(|x| u8::from(x.bits().to_i64() < 0)).collect();
        // Where the sign is irrelevant, the previous one is repeated, which costs least.
        let mut last = self.kinds.iter().zip(&signs).find(|(kind, _)| **kind == 0).map_or(0, |(_, sign)| *sign);
        for (sign, kind) in signs.iter_mut().zip(&self.kinds) {
            last = if *kind == 0 { *sign } else { last };
            *sign = last;
        }
        match signs.iter().all(|sign| *sign == signs[0]) {
            true => extras.flags |= if signs[0] == 0 { 0 } else { IS_NEGATIVE },
            false => {
                extras.flags |= HAS_SIGNS;
                extras.signs = Some(signs);
            }
        }
    }

    fn find_second_fills(&self, extras: &mut Extras) {
        if !self.kinds.contains(&2) {
            return;
        }
        if !self.kinds.contains(&1) {
            extras.flags |= IS_SECOND_FILL;
            return;
        }
        extras.flags |= HAS_SECOND_FILL;
        extras.second_fills = Some(self.kinds.iter().map(|kind| u8::from(*kind == 2)).collect());
    }
}

/// A lower estimate of log2(1 + e).
fn log2_of_one_plus(e: f64) -> f64 {
    if e < 1.0 / 1024.0 { (e - e * e / 2.0) * std::f64::consts::LOG2_E } else { log2(1.0 + e) }
}

impl Extras {
    /// Turns numbers into values.
    fn restore<T: Real>(&self, fills: &[T], numbers: &mut [T]) {
        if self.flags & IS_LOGARITHMIC == 0 {
            return;
        }
        let fill = fills.get(usize::from(self.flags & IS_SECOND_FILL != 0)).copied().unwrap_or_default();
        let (centre, is_negative) = (self.centre, self.flags & IS_NEGATIVE != 0);
        simd::run(FromLogarithms { numbers, signs: self.signs.as_deref(), is_negative, centre, fill });
        if let (Some(mask), Some(second)) = (&self.second_fills, fills.get(1)) {
            mask.iter().zip(numbers).filter(|(is_second, _)| **is_second != 0).for_each(|(_, x)| *x = *second);
        }
    }
}

struct ToLogarithms<'a, T> {
    values: &'a [T],
    kinds: &'a [u8],
    centre: f64,
    out: &'a mut [T],
}

impl<T: Real> Kernel for ToLogarithms<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let [zero, fill] = markers::<T>();
        for ((x, kind), out) in self.values.iter().zip(self.kinds).zip(self.out) {
            let size = x.to_f64().abs();
            let logarithm = T::from_f64(log2(size) - self.centre);
            let is_finite = size < f64::INFINITY;
            // Other values are patched later.
            let logarithm = if is_finite { logarithm } else { T::default() };
            let logarithm = if size == 0.0 { zero } else { logarithm };
            *out = if *kind == 0 { logarithm } else { fill };
        }
    }
}

struct FromLogarithms<'a, T> {
    numbers: &'a mut [T],
    signs: Option<&'a [u8]>,
    is_negative: bool,
    centre: i64,
    fill: T,
}

impl<T: Real> FromLogarithms<'_, T> {
    #[inline(always)]
    fn restore<const N_TERMS: usize>(self) {
        let markers = markers::<T>().map(T::bits);
        let parameters = (markers, self.centre, self.fill);
        match self.signs {
            Some(signs) => {
                for (x, sign) in self.numbers.iter_mut().zip(signs) {
                    *x = restored::<T, N_TERMS>(*x, *sign != 0, parameters);
                }
            }
            None => {
                for x in self.numbers.iter_mut() {
                    *x = restored::<T, N_TERMS>(*x, self.is_negative, parameters);
                }
            }
        }
    }
}

#[inline(always)]
fn restored<T: Real, const N_TERMS: usize>(
    number: T,
    is_negative: bool,
    (markers, centre, fill): ([T::Int; 2], i64, T),
) -> T {
    let x = T::from_f64(exp2::<N_TERMS>(number.to_f64(), centre));
    let x = if number.bits() == markers[0] { T::default() } else { x };
    let x = if is_negative { x.fmul(T::of_i32(-1)) } else { x };
    if number.bits() == markers[1] { fill } else { x }
}

impl<T: Real> Kernel for FromLogarithms<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match T::DTYPE {
            DType::F32 => self.restore::<9>(),
            DType::F64 => self.restore::<14>(),
        }
    }
}

/// Positions of the values that must be stored exactly.
struct FindFailures<'a, T> {
    values: &'a [T],
    kinds: &'a [u8],
    restored: &'a [T],
    check: Check,
}

impl<T: Real> FindFailures<'_, T> {
    #[inline(always)]
    fn is_right(&self, i: usize) -> bool {
        let (x, y) = (self.values[i], self.restored[i]);
        // Finite values are compared with the bound, all others, and zeros under a relative one, bit for bit.
        let is_plain =
            (self.kinds[i] == 0) & (self.check.is_absolute() | (x.fabs() > T::default())) & (x.fsub(x) == T::default());
        (x.bits() == y.bits()) | (is_plain & self.check.accepts(x, y))
    }
}

impl<T: Real> Kernel for FindFailures<'_, T> {
    type Output = Vec<usize>;

    #[inline(always)]
    fn run(self) -> Vec<usize> {
        let mut found = Vec::new();
        let n = self.values.len().min(self.kinds.len()).min(self.restored.len());
        for start in (0..n).step_by(1 << 10) {
            let end = n.min(start + (1 << 10));
            let mut n_right = 0_u32;
            for i in start..end {
                n_right += u32::from(self.is_right(i));
            }
            if n_right as usize != end - start {
                found.extend((start..end).filter(|i| !self.is_right(*i)));
            }
        }
        found
    }
}

fn decode<T: Real>(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
    let &ChunkContext { extents, fills, .. } = chunk;
    let mut bytes = Bytes::new(payload);
    let mut extras = Extras { flags: bytes.u8()?, ..Extras::default() };
    let is_set = |flags: u8| extras.flags & flags != 0;
    let is_logarithmic = is_set(IS_LOGARITHMIC);
    if extras.flags & !KNOWN_FLAGS != 0 || (!is_logarithmic && is_set(!(IS_LOGARITHMIC | HAS_PATCHES))) {
        return Err(Error::corrupt("chunk has unknown flags"));
    }
    if is_set(HAS_SECOND_FILL | IS_SECOND_FILL) && fills.len() < 2 {
        return Err(Error::corrupt("chunk has fill values that the stream does not have"));
    }
    if is_logarithmic {
        let centre = i64::from(i16::from_le_bytes(bytes.array()?));
        if centre.abs() > MAX_CENTRE {
            return Err(Error::corrupt("chunk has an exponent out of range"));
        }
        extras.centre = centre;
    }
    let mut patches = Exact::default();
    if extras.flags & (HAS_SIGNS | HAS_SECOND_FILL | HAS_PATCHES) != 0 {
        let dims = masks::chunk_dims(extents);
        let read_mask = |coder: &mut BinaryDecoder<'_>, flag: u8| {
            if extras.flags & flag == 0 {
                return Ok(None);
            }
            masks::read_kinds(coder, out.len(), &dims, 1).map(Some)
        };
        let both =
            |coder: &mut BinaryDecoder<'_>| Ok((read_mask(coder, HAS_SIGNS)?, read_mask(coder, HAS_SECOND_FILL)?));
        let has_patches = extras.flags & HAS_PATCHES != 0;
        ((extras.signs, extras.second_fills), patches) =
            Exact::read_from::<T, _>(&mut bytes, out.len(), has_patches, both)?;
    }
    let markers = markers();
    let inner = ChunkContext { fills: if is_logarithmic { &markers[..] } else { fills }, ..*chunk };
    let nested = Nested::read_from(&mut bytes, CodecId::Pointwise, &inner)?;
    if bytes.len() > 0 {
        return Err(Error::corrupt("chunk has bytes after its end"));
    }
    nested.decode(&inner, out)?;
    extras.restore(fills, out);
    patches.restore(out);
    Ok(())
}
