//! Layers around any codec, for bounds that are not one number for the whole chunk: bounds relative to each value
//! ([`pointwise`]), and bounds of single boxes ([`regions`]), around which values may be replaced by means of bins
//! ([`bins`]).

pub(crate) mod bins;
pub(crate) mod pointwise;
pub(crate) mod regions;

use super::{ChunkContext, CodecId, check_plausible, decode};
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
    /// lower numbers than `below` are allowed, so that nesting ends.
    fn read_from(bytes: &mut Bytes<'a>, below: CodecId, chunk: &ChunkContext<'_, T>) -> Result<Self> {
        let codec = CodecId::from_byte(bytes.u8()?)?;
        if codec as u8 >= below as u8 {
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

/// Reports the early end of a payload as corruption: its frame has the right size, so nothing was cut off.
fn within_payload(error: Error) -> Error {
    if error.kind() == ErrorKind::Truncated { Error::corrupt(error.to_string()) } else { error }
}
