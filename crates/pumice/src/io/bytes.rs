//! Parsing of bytes that may be anything: running out of them is an error, and nothing is allocated before its size has
//! been compared with what is there.

use super::ReadAt;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::reserve;

/// Bytes yet to be parsed. Running out of them is [`ErrorKind::Truncated`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, rest) =
            self.rest.split_at_checked(n).ok_or_else(|| Error::truncated("the stream ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(N)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// `len` bytes at `offset`, which must lie within the source: borrowed from memory, or read into `buffer`.
pub(crate) fn read<'a, R: ReadAt + ?Sized>(
    source: &'a R,
    offset: u64,
    len: u64,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let len = to_usize(len)?;
    if let Some(slice) = source.slice(offset, len) {
        return Ok(slice);
    }
    if buffer.len() < len {
        // Grows only, so that a buffer in use over and over is not filled with zeros each time.
        let more = len - buffer.len();
        reserve(buffer, more)?;
        buffer.resize(len, 0);
    }
    source.read_exact_at(&mut buffer[..len], offset)?;
    Ok(&buffer[..len])
}

/// Refuses to take more memory than the caller allows.
pub(crate) fn check_limit(bytes: u64, max_bytes: u64) -> Result<()> {
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::LimitExceeded,
        format!("{bytes} bytes are needed but only {max_bytes} allowed; raise `max_bytes` or read a smaller region"),
    ))
}

/// A size or extent as `usize`.
pub(crate) fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::new(ErrorKind::LimitExceeded, format!("{n} is too large for this machine")))
}
