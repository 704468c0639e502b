//! How the program learns that a transfer is done, and how many bytes it had.

use std::ffi::{c_int, c_void};

use mpi_sys as ffi;

use super::{Failure, Result, SUCCESS};

/// What the program has given for that.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Status(*mut ffi::MPI_Status),
    Request(*mut ffi::MPI_Request),
    /// It asks for the end later.
    Later,
}

impl Answer {
    /// Answers that so many bytes were transferred. What is asked for later is put into `begun`.
    pub(super) fn give(self, n_bytes: u64, begun: &mut u64) -> Result<()> {
        let code = match self {
            Answer::Later => {
                *begun = n_bytes;
                SUCCESS
            }
            // SAFETY: a status of the program, unless it is to be ignored.
            Answer::Status(status) => unsafe {
                if status == ffi::RSMPI_STATUS_IGNORE { SUCCESS } else { set(status, n_bytes) }
            },
            // SAFETY: a request of the program.
            Answer::Request(request) => unsafe { complete(request, n_bytes) },
        };
        if code == SUCCESS { Ok(()) } else { Err(Failure::new(code as u32, "MPI takes no result")) }
    }
}

/// # Safety
///
/// The status can be written.
unsafe fn set(status: *mut ffi::MPI_Status, n_bytes: u64) -> c_int {
    // SAFETY: as the caller promises. Bytes are counted, whatever type the program asks for later.
    unsafe {
        ffi::PMPI_Status_set_cancelled(status, 0);
        ffi::PMPI_Status_set_elements_x(status, ffi::RSMPI_UINT8_T, n_bytes as ffi::MPI_Count)
    }
}

/// A request that is already complete.
///
/// # Safety
///
/// The request can be written.
unsafe fn complete(request: *mut ffi::MPI_Request, n_bytes: u64) -> c_int {
    let state = Box::into_raw(Box::new(n_bytes)).cast::<c_void>();
    // SAFETY: the state lives until `free` is called.
    let code = unsafe { ffi::PMPI_Grequest_start(Some(query), Some(free), Some(cancel), state, request) };
    if code != SUCCESS {
        // SAFETY: the library has not taken it.
        drop(unsafe { Box::from_raw(state.cast::<u64>()) });
        return code;
    }
    // SAFETY: the request was just made.
    unsafe { ffi::PMPI_Grequest_complete(*request) }
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut ffi::MPI_Status) -> c_int {
    // SAFETY: the state of `complete`, and a status of the library.
    unsafe { set(status, *state.cast::<u64>()) }
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the state of `complete`, which nothing uses from now on.
    drop(unsafe { Box::from_raw(state.cast::<u64>()) });
    SUCCESS
}

unsafe extern "C" fn cancel(_state: *mut c_void, _is_complete: c_int) -> c_int {
    SUCCESS
}
