//! How short a payload may be: a reader must know before it allocates that no byte stands for more than so many values.

use crate::error::{Error, Result};
use crate::io::Bytes;

/// A payload has at least one byte for so many values.
const VALUES_PER_BYTE: usize = 1 << 14;

/// Least payload of a chunk of `n_values` values, in codecs that can say everything in fewer bytes.
pub(crate) fn min_payload_bytes(n_values: usize) -> usize {
    (n_values / VALUES_PER_BYTE).max(3)
}

/// Fills up the payload that begins at `start` with zeros: data without any surprise would be shorter than a reader
/// believes.
pub(crate) fn pad(out: &mut Vec<u8>, start: usize, n_values: usize) {
    out.resize(out.len().max(start + min_payload_bytes(n_values)), 0);
}

/// Refuses a payload of `payload_bytes` of which this is left, unless it was filled up.
pub(crate) fn check_end(rest: &Bytes<'_>, payload_bytes: usize, n_values: usize) -> Result<()> {
    let is_padding = payload_bytes == min_payload_bytes(n_values) && rest.rest().iter().all(|byte| *byte == 0);
    if rest.len() == 0 || is_padding { Ok(()) } else { Err(Error::corrupt("chunk has bytes after its end")) }
}
