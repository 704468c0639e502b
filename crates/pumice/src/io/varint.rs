//! Unsigned LEB128, the format's variable-length integer. Exactly one encoding of each value is valid, so that equal
//! content always means equal bytes.

use super::Bytes;
use crate::error::{Error, Result};

/// Most bytes one value takes.
pub(crate) const MAX_BYTES: usize = 10;

/// Bytes that `value` takes.
pub(crate) fn size(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `value`.
pub(crate) fn write_to(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads one value; refuses values above 2^64 - 1 and superfluous bytes.
pub(crate) fn read_from(bytes: &mut Bytes<'_>) -> Result<u64> {
    let mut value = 0u64;
    for i in 0..MAX_BYTES {
        let byte = bytes.u8()?;
        let bits = u64::from(byte & 0x7f);
        if i == MAX_BYTES - 1 && byte > 1 {
            break;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            if byte == 0 && i > 0 {
                return Err(Error::corrupt("a varint has a superfluous last byte"));
            }
            return Ok(value);
        }
    }
    Err(Error::corrupt("a varint is above 2^64 - 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn round_trip_and_size() {
        for value in (0..64).flat_map(|s| [(1u64 << s) - 1, 1 << s, (1 << s) + 1]).chain([u64::MAX]) {
            let mut out = Vec::new();
            write_to(value, &mut out);
            assert_eq!(out.len(), size(value), "{value}");
            let mut bytes = Bytes::new(&out);
            assert_eq!(read_from(&mut bytes).unwrap(), value);
            assert_eq!(bytes.len(), 0);
            for cut in 0..out.len() {
                assert_eq!(read_from(&mut Bytes::new(&out[..cut])).unwrap_err().kind(), ErrorKind::Truncated);
            }
        }
    }

    #[test]
    fn refuses_other_encodings() {
        let too_long = [0xff; 11];
        let above_u64 = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        for bytes in [&[0x80, 0][..], &[0xff, 0x80, 0], &above_u64, &too_long] {
            assert_eq!(read_from(&mut Bytes::new(bytes)).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
