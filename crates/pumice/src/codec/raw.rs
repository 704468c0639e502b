//! The values themselves, little-endian: what no codec makes smaller.

use super::{ChunkCodec, ChunkContext, CodecId};
use crate::error::{Error, Result};
use crate::num::Real;

pub(crate) struct Raw;

impl<T: Real> ChunkCodec<T> for Raw {
    const ID: CodecId = CodecId::Raw;
    type Settings<'a> = ();

    fn min_payload_bytes(n_values: usize) -> usize {
        n_values * size_of::<T>()
    }

    fn decode_bytes(_: u64, _: &ChunkContext<'_, T>) -> u64 {
        0
    }

    fn encode(values: &[T], (): (), _: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        T::extend_le_bytes(values, out);
        true
    }

    fn decode(payload: &[u8], _: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        if payload.len() != size_of_val(out) {
            return Err(Error::corrupt("raw chunk has the wrong size"));
        }
        T::copy_from_le_bytes(payload, out);
        Ok(())
    }
}
