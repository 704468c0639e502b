//! Where a reader's bytes come from: memory, files, or whatever a caller implements [`ReadAt`] for. Reads name their
//! offset and take `&self`, so that threads share one source without a lock.

use std::fs::File;

use crate::error::{Error, Result};

/// Bytes that several threads can read at any offset.
///
/// Implemented for byte slices, `Vec<u8>`, [`File`] and references to any of them.
// An `is_empty` would have to read too, and nobody asks.
#[allow(clippy::len_without_is_empty)]
pub trait ReadAt: Sync {
    /// Number of bytes there are.
    fn len(&self) -> Result<u64>;

    /// Fills `buf` with the bytes from `offset` on; fails if there are fewer.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// The same bytes without a copy, where they are in memory already.
    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let _ = (offset, len);
        None
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let bytes = self.slice(offset, buf.len()).ok_or_else(|| Error::truncated("the stream ends too early"))?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.get(usize::try_from(offset).ok()?..)?.get(..len)
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> Result<u64> {
        ReadAt::len(self.as_slice())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.as_slice().slice(offset, len)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn len(&self) -> Result<u64> {
        (**self).len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        (**self).read_exact_at(buf, offset)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        (**self).slice(offset, len)
    }
}

impl ReadAt for File {
    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    #[cfg(unix)]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        Ok(std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)?)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        while !buf.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(self, buf, offset)? {
                0 => return Err(Error::truncated("the file ends too early")),
                n => {
                    buf = &mut buf[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }
}
