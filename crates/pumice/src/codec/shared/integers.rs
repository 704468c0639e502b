//! Dual quantisation: turns a chunk into integers before any prediction, and lists the values that have none
//! (docs/format.md, 8.1). This is the first stage of `balanced`, of the presets of the papers
//! and of the lattice of `small`.

use std::ops::Range;

use super::dims::Dims;
use super::masks;
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::error::{Error, Result};
use crate::exec::scratch;
use crate::io::{Bytes, varint};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::Quantizer;

/// The values of a chunk that are not coded as integers.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// For each value 0, or 1 + the index of its fill value; `None` if there are no fill values.
    kinds: Option<Vec<u8>>,
    /// Positions of values stored exactly: ascending, none of them a fill value.
    exact: Vec<usize>,
}

/// Integers lie within this of the origin; other values are stored exactly.
const MAX_INTEGER: u64 = 1 << 29;

/// A chunk as integers.
pub(crate) struct Integers {
    /// The integer that was subtracted from all of them.
    pub(crate) origin: i64,
    /// The integers, within 2^29 of 0. A hole repeats the integer before it; the decoder ignores it.
    pub(crate) values: Vec<i32>,
    /// Positions of values that are masked or cannot be quantised: ascending.
    pub(crate) holes: Vec<usize>,
}

/// Quantises a chunk. The restored value of each integer is checked against the bound; a value that fails is a hole.
pub(crate) fn quantize<T: Real>(values: &[T], masked: Option<&[bool]>, quantizer: &Quantizer<T>) -> Integers {
    let all = 0..values.len();
    quantize_parts(values, masked, quantizer, std::slice::from_ref(&all))
}

/// Quantises parts of a chunk, in ascending order; other integers are arbitrary.
pub(crate) fn quantize_parts<T: Real>(
    values: &[T],
    masked: Option<&[bool]>,
    quantizer: &Quantizer<T>,
    parts: &[Range<usize>],
) -> Integers {
    simd::run(Quantize { values, masked, quantizer, parts })
}

/// Quantises a chunk that may have fill values, and tells what is not coded as integers.
pub(crate) fn quantize_with_fills<T: Real>(
    values: &[T],
    quantizer: &Quantizer<T>,
    fills: &[T],
) -> (Integers, Exceptions) {
    let kinds = masks::find_fills(values, fills);
    let masked = masks::masked(kinds.as_deref());
    let integers = quantize(values, masked.as_deref(), quantizer);
    let is_exact = |position: &usize| masked.as_ref().is_none_or(|masked| !masked[*position]);
    let exact = integers.holes.iter().copied().filter(is_exact).collect();
    (integers, Exceptions { kinds, exact })
}

struct Quantize<'a, T> {
    values: &'a [T],
    masked: Option<&'a [bool]>,
    quantizer: &'a Quantizer<T>,
    /// The values to quantise, in ascending order; other integers are arbitrary.
    parts: &'a [Range<usize>],
}

impl<T: Real> Kernel for Quantize<'_, T> {
    type Output = Integers;

    #[inline(always)]
    fn run(self) -> Integers {
        const RUN: usize = 64;
        let quantizer = self.quantizer;
        let exact = |i: usize| match self.masked {
            Some(masked) if masked[i] => None,
            _ => quantizer.quantize(self.values[i]).map(Int::to_i64),
        };
        let origin = (0..self.values.len()).find_map(exact).unwrap_or(0);
        let mut all = Integers { origin, values: scratch::take(self.values.len()), holes: Vec::new() };
        for part in self.parts {
            let first_hole = all.holes.len();
            let (out, xs) = (&mut all.values[part.clone()], &self.values[part.clone()]);
            for (run, (out, xs)) in out.chunks_mut(RUN).zip(xs.chunks(RUN)).enumerate() {
                let mut n_over = 0_u32;
                for (q, x) in out.iter_mut().zip(xs) {
                    let t = x.fmul(quantizer.inv_step);
                    let s = t.fadd(T::MAGIC);
                    let within = x.fsub(s.fsub(T::MAGIC).fmul(quantizer.step)).fabs() <= quantizer.tolerance;
                    let small = t.fabs() < T::MAX_QUANTUM;
                    let from_origin = s.bits().sub(T::MAGIC.bits()).to_i64().wrapping_sub(origin);
                    let near = from_origin.unsigned_abs() < MAX_INTEGER;
                    n_over += u32::from(!within) | u32::from(!small) | u32::from(!near);
                    *q = from_origin as i32;
                }
                let at = part.start + run * RUN;
                if n_over == 0 && self.masked.is_none_or(|m| !m[at..at + out.len()].contains(&true)) {
                    continue;
                }
                for (i, q) in out.iter_mut().enumerate() {
                    let from_origin =
                        exact(at + i).map(|q| q.wrapping_sub(origin)).filter(|q| q.unsigned_abs() < MAX_INTEGER);
                    if from_origin.is_none() {
                        all.holes.push(at + i);
                    }
                    *q = from_origin.unwrap_or(0) as i32;
                }
            }
            for &hole in &all.holes[first_hole..] {
                all.values[hole] = if hole > part.start { all.values[hole - 1] } else { 0 };
            }
        }
        all
    }
}

const HAS_FILLS: u8 = 1;
const HAS_EXACT: u8 = 1 << 1;

impl Exceptions {
    /// Appends the section of a payload that holds the exceptions; `dims` are the extents of the values.
    pub(crate) fn write_to<T: Real>(&self, values: &[T], dims: &Dims, n_fills: usize, out: &mut Vec<u8>) {
        let has_exact = !self.exact.is_empty();
        out.push(if self.kinds.is_some() { HAS_FILLS } else { 0 } | if has_exact { HAS_EXACT } else { 0 });
        if self.kinds.is_none() && !has_exact {
            return;
        }
        let mut position_bytes = Vec::new();
        let mut coder = BinaryEncoder::new(&mut position_bytes);
        let never = "writing does not fail";
        if let Some(kinds) = &self.kinds {
            masks::code_kinds(&mut coder, &mut kinds.clone(), dims, n_fills, |_| false).expect(never);
        }
        if has_exact {
            masks::code_positions(&mut coder, &self.exact, values.len(), values.len()).expect(never);
        }
        coder.finish();
        varint::write_to(position_bytes.len() as u64, out);
        out.extend_from_slice(&position_bytes);
        for &position in &self.exact {
            T::extend_le_bytes(&values[position..=position], out);
        }
    }

    /// Reads such a section of a chunk of `n_values` values, and returns the bytes of the exact values that follow it.
    pub(crate) fn read_from<'a, T: Real>(
        bytes: &mut Bytes<'a>,
        n_values: usize,
        dims: &Dims,
        n_fills: usize,
    ) -> Result<(Self, &'a [u8])> {
        let flags = bytes.u8()?;
        if flags & !(HAS_FILLS | HAS_EXACT) != 0 {
            return Err(Error::corrupt("chunk has unknown exceptions"));
        }
        let mut found = Self::default();
        if flags == 0 {
            return Ok((found, &[]));
        }
        let n_position_bytes = usize::try_from(varint::read_from(bytes)?)
            .map_err(|_| Error::corrupt("exceptions are longer than their chunk"))?;
        let mut coder = BinaryDecoder::new(bytes.take(n_position_bytes)?);
        if flags & HAS_FILLS != 0 {
            found.kinds = Some(masks::read_kinds(&mut coder, n_values, dims, n_fills)?);
        }
        if flags & HAS_EXACT != 0 {
            found.exact = masks::code_positions(&mut coder, &[], n_values, bytes.len() / size_of::<T>())?;
        }
        coder.finish()?;
        let exact_values = bytes.take(found.exact.len() * size_of::<T>())?;
        Ok((found, exact_values))
    }

    /// Writes the exceptions to their positions, after all other values are restored.
    pub(crate) fn restore<T: Real>(&self, exact_values: &[u8], fills: &[T], out: &mut [T]) {
        if let Some(kinds) = &self.kinds {
            for (x, kind) in out.iter_mut().zip(kinds).filter(|(_, kind)| **kind != 0) {
                *x = fills[usize::from(*kind) - 1];
            }
        }
        for (position, value) in self.exact.iter().zip(exact_values.chunks_exact(size_of::<T>())) {
            T::copy_from_le_bytes(value, &mut out[*position..=*position]);
        }
    }
}
