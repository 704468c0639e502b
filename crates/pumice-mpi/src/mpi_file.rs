//! Files of MPI-IO, which the crate `mpi` does not cover. `unsafe` is allowed for its C functions.
//!
//! Errors come back as values here, since that is how MPI handles them for files, and not for communication.
#![allow(unsafe_code, reason = "calls C functions of MPI")]

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mpi::traits::*;
use mpi_sys as ffi;
use pumice::{Error, ErrorKind, Result};

use crate::agreement::agree;
use crate::local::invalid;

/// The most bytes that one call reads or writes: MPI counts them in 32 bits.
const MAX_CALL: usize = 1 << 30;

/// A file that all ranks of a communicator have open. To close it is for all of them, too.
pub(crate) struct MpiFile<'a, C> {
    comm: &'a C,
    handle: ffi::MPI_File,
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl<'a, C: Communicator> MpiFile<'a, C> {
    /// Opens a file that exists, together.
    pub(crate) fn open(comm: &'a C, path: &Path, access: Access) -> Result<Self> {
        let name = agree(comm, CString::new(path.as_os_str().as_bytes()).map_err(|_| invalid("a path has no NUL")))?;
        let mode = match access {
            Access::Read => ffi::MPI_MODE_RDONLY,
            Access::Write => ffi::MPI_MODE_WRONLY,
        };
        // SAFETY: a null handle, which a successful call replaces.
        let mut handle = unsafe { ffi::RSMPI_FILE_NULL };
        // SAFETY: the communicator is alive, the name ends with a NUL, and all ranks are here.
        let code = unsafe {
            ffi::MPI_File_open(comm.as_raw(), name.as_ptr(), mode as c_int, ffi::RSMPI_INFO_NULL, &mut handle)
        };
        // If some rank has no handle, those that have one cannot close it together: they let it go.
        agree(comm, check(code))?;
        Ok(Self { comm, handle })
    }

    /// Writes at an offset, alone. All bytes are written, or this is an error.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        for (i, part) in bytes.chunks(MAX_CALL).enumerate() {
            let offset = (offset + (i * MAX_CALL) as u64) as ffi::MPI_Offset;
            let (pointer, n) = (part.as_ptr().cast(), part.len() as c_int);
            // SAFETY: the file is open, and the buffer has as many bytes as are announced.
            transfer(part.len(), "written", |status| unsafe {
                ffi::MPI_File_write_at(self.handle, offset, pointer, n, ffi::RSMPI_UINT8_T, status)
            })?;
        }
        Ok(())
    }

    /// Reads from an offset, alone. All bytes are read, or this is an error.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        for (i, part) in bytes.chunks_mut(MAX_CALL).enumerate() {
            let offset = (offset + (i * MAX_CALL) as u64) as ffi::MPI_Offset;
            let (pointer, n) = (part.as_mut_ptr().cast(), part.len() as c_int);
            // SAFETY: as in `write_at`.
            transfer(part.len(), "read", |status| unsafe {
                ffi::MPI_File_read_at(self.handle, offset, pointer, n, ffi::RSMPI_UINT8_T, status)
            })?;
        }
        Ok(())
    }

    /// Hands what was written over to the disk, together.
    pub(crate) fn sync(&self) -> Result<()> {
        // SAFETY: the file is open, and all ranks are here.
        check(unsafe { ffi::MPI_File_sync(self.handle) })
    }

    /// Hands what was written over to the disk, if asked to, and closes the file, together.
    pub(crate) fn close(mut self, sync: bool) -> Result<()> {
        let synced = if sync { self.sync() } else { Ok(()) };
        // SAFETY: the file is open, and all ranks are here; the handle is not used any more.
        let closed = check(unsafe { ffi::MPI_File_close(&mut self.handle) });
        agree(self.comm, synced.and(closed))
    }
}

/// Calls a function of MPI that transfers `n` bytes. Open MPI says in the status alone that a disk is full.
fn transfer(n: usize, done: &str, call: impl FnOnce(*mut ffi::MPI_Status) -> c_int) -> Result<()> {
    let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
    check(call(status.as_mut_ptr()))?;
    let mut count = 0;
    // SAFETY: the call has set the status; zeros, if it has not, are valid integers.
    check(unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) })?;
    if usize::try_from(count) == Ok(n) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Io, format!("of {n} bytes, {count} were {done}: is there space, and is the file whole?")))
}

/// An error code of MPI as an error.
fn check(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0_u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut n = 0;
    // SAFETY: the buffer has the size that MPI asks for.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut n) };
    text.truncate(usize::try_from(n).unwrap_or(0));
    Err(Error::new(ErrorKind::Io, format!("MPI says: {}", String::from_utf8_lossy(&text).trim())))
}
