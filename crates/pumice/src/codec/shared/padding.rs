//! The shortest payload of a chunk. A reader relies on it before it allocates: no byte stands for more than a fixed
//! number of values.

use crate::error::{Error, Result};
use crate::io::Bytes;

/// A payload has at least one byte per this many values.
const VALUES_PER_BYTE: usize = 1 << 14;

/// Size of the shortest payload of a chunk of `n_values` values. Shorter ones are padded.
pub(crate) fn min_payload_bytes(n_values: usize) -> usize {
    (n_values / VALUES_PER_BYTE).max(3)
}

/// Pads the payload that begins at `start` with zeros to the shortest size that a reader accepts.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize, n_values: usize) {
    out.resize(out.len().max(start + min_payload_bytes(n_values)), 0);
}

/// Checks that `rest`, the end of a payload of `payload_bytes`, is empty or padding.
pub(crate) fn check_end(rest: &Bytes<'_>, payload_bytes: usize, n_values: usize) -> Result<()> {
    let is_padding = payload_bytes == min_payload_bytes(n_values) && rest.rest().iter().all(|byte| *byte == 0);
    if rest.len() == 0 || is_padding { Ok(()) } else { Err(Error::corrupt("chunk has bytes after its end")) }
}
