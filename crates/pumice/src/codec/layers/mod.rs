//! Layers around any codec, for bounds that are not one number for the whole chunk: bounds relative to each value
//! ([`pointwise`]), and bounds of single boxes ([`regions`]), around which values may be replaced by means of bins
//! ([`bins`]); and for chunks of which a part was written again ([`changes`]).

pub(crate) mod bins;
pub(crate) mod changes;
pub(crate) mod pointwise;
pub(crate) mod regions;

use super::shared::masks;
use super::{ChunkContext, CodecId, check_plausible, decode};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::error::{Error, ErrorKind, Result};
use crate::grid::n_values;
use crate::io::{Bytes, varint};
use crate::num::Real;

/// Appends a payload that is part of another one.
fn write_nested<T: Real>(codec: CodecId, step: Option<T>, payload: &[u8], out: &mut Vec<u8>) {
    out.push(codec as u8);
    T::extend_le_bytes(&[step.unwrap_or_default()], out);
    varint::write_to(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

/// A payload within a payload.
struct Nested<'a, T> {
    codec: CodecId,
    step: Option<T>,
    payload: &'a [u8],
}

impl<'a, T: Real> Nested<'a, T> {
    /// Reads a nested payload from `bytes` and checks that it is long enough for the values of `chunk`. Only codecs of
    /// lower numbers than `below`, and those that nest nothing, are allowed, so that nesting ends.
    fn read_from(bytes: &mut Bytes<'a>, below: CodecId, chunk: &ChunkContext<'_, T>) -> Result<Self> {
        let codec = CodecId::from_byte(bytes.u8()?)?;
        if codec as u8 >= below as u8 && codec != CodecId::Shared {
            return Err(Error::corrupt("chunk has a layer where none is allowed"));
        }
        let mut step = [T::default()];
        T::copy_from_le_bytes(bytes.take(size_of::<T>())?, &mut step);
        let step = (step[0].is_finite() && step[0] > T::default()).then_some(step[0]);
        let n_bytes = varint::read_from(bytes)?;
        let payload = bytes.take(n_bytes.try_into().map_err(|_| Error::corrupt("part is longer than its chunk"))?)?;
        check_plausible::<T>(codec, n_bytes, n_values(chunk.extents))?;
        Ok(Self { codec, step, payload })
    }

    /// Decodes the nested payload with its own step.
    fn decode(&self, chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        decode(self.codec, self.payload, &ChunkContext { step: self.step, ..*chunk }, out)
    }
}

/// Values of a chunk that are stored exactly, behind the masks that a layer has.
#[derive(Default)]
struct Exact<'a> {
    positions: Vec<usize>,
    values: &'a [u8],
}

impl<'a> Exact<'a> {
    /// Appends the masks that `write_masks` codes, and the values at these positions, ascending.
    fn write_to<T: Real>(
        values: &[T],
        positions: &[usize],
        write_masks: impl FnOnce(&mut BinaryEncoder<'_>) -> Result<()>,
        out: &mut Vec<u8>,
    ) {
        let mut position_bytes = Vec::new();
        let mut coder = BinaryEncoder::new(&mut position_bytes);
        let never = "writing does not fail";
        write_masks(&mut coder).expect(never);
        if !positions.is_empty() {
            masks::code_positions(&mut coder, positions, values.len(), values.len()).expect(never);
        }
        coder.finish();
        varint::write_to(position_bytes.len() as u64, out);
        out.extend_from_slice(&position_bytes);
        positions.iter().for_each(|position| T::extend_le_bytes(&values[*position..=*position], out));
    }

    /// Reads masks by `read_masks`, and the values of `n_values` that are stored exactly if there are any.
    fn read_from<T: Real, M>(
        bytes: &mut Bytes<'a>,
        n_values: usize,
        is_there: bool,
        read_masks: impl FnOnce(&mut BinaryDecoder<'_>) -> Result<M>,
    ) -> Result<(M, Self)> {
        let n_position_bytes = varint::read_from(bytes)?;
        let n_position_bytes =
            n_position_bytes.try_into().map_err(|_| Error::corrupt("masks are longer than their chunk"))?;
        let mut coder = BinaryDecoder::new(bytes.take(n_position_bytes)?);
        let masks = read_masks(&mut coder)?;
        let positions = match is_there {
            true => masks::code_positions(&mut coder, &[], n_values, bytes.len() / size_of::<T>())?,
            false => Vec::new(),
        };
        coder.finish()?;
        let values = bytes.take(positions.len() * size_of::<T>())?;
        Ok((masks, Self { positions, values }))
    }

    /// Writes the values to their positions.
    fn restore<T: Real>(&self, out: &mut [T]) {
        for (position, value) in self.positions.iter().zip(self.values.chunks_exact(size_of::<T>())) {
            T::copy_from_le_bytes(value, &mut out[*position..=*position]);
        }
    }
}

/// Reports the early end of a payload as corruption: its frame has the right size, so nothing was cut off.
fn within_payload(error: Error) -> Error {
    if error.kind() == ErrorKind::Truncated { Error::corrupt(error.to_string()) } else { error }
}
