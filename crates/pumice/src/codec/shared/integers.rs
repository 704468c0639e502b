//! Dual quantisation: turns a chunk into integers before any prediction, and lists the values that have none
//! (docs/format.md, 8.1). This is the first stage of `balanced` and of the presets of the papers.

use super::dims::Dims;
use super::masks;
use crate::codec::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::codec::small::lattice;
use crate::error::{Error, Result};
use crate::io::{Bytes, varint};
use crate::num::Real;
use crate::plan::Quantizer;

/// The values of a chunk that are not coded as integers.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// For each value 0, or 1 + the index of its fill value; `None` if there are no fill values.
    kinds: Option<Vec<u8>>,
    /// Positions of values stored exactly: ascending, none of them a fill value.
    exact: Vec<usize>,
}

/// A chunk as integers.
pub(crate) struct Integers {
    /// The integer that was subtracted from all of them.
    pub(crate) origin: i64,
    /// The integers, within 2^29 of 0. An exception repeats the integer before it; the decoder ignores it.
    pub(crate) values: Vec<i32>,
    /// Positions of exceptions: ascending.
    #[allow(dead_code, reason = "what fills them is up to the predictor")]
    pub(crate) holes: Vec<usize>,
    pub(crate) exceptions: Exceptions,
}

/// Quantises a chunk. The restored value of each integer is checked against the bound; a value that fails is stored
/// exactly.
pub(crate) fn quantize<T: Real>(values: &[T], quantizer: &Quantizer<T>, fills: &[T]) -> Integers {
    let kinds = masks::find_fills(values, fills);
    let masked: Option<Vec<bool>> = kinds.as_ref().map(|kinds| kinds.iter().map(|kind| *kind != 0).collect());
    let found = lattice::quantize(values, masked.as_deref(), quantizer);
    let is_exact = |position: &usize| kinds.as_ref().is_none_or(|kinds| kinds[*position] == 0);
    let exact = found.holes.iter().copied().filter(is_exact).collect();
    Integers { origin: found.origin, values: found.values, holes: found.holes, exceptions: Exceptions { kinds, exact } }
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
            let mut kinds = vec![0; n_values];
            masks::code_kinds(&mut coder, &mut kinds, dims, n_fills, BinaryDecoder::is_past_end)?;
            if kinds.iter().any(|kind| usize::from(*kind) > n_fills) {
                return Err(Error::corrupt("chunk has fill values, but the stream has none"));
            }
            found.kinds = Some(kinds);
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
