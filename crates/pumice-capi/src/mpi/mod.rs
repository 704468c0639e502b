//! Arrays that the ranks of an MPI program share out: `include/pumice_mpi.h`.
//!
//! A communicator becomes a handle once, from the handle of C or of Fortran; all other functions are the same for C,
//! Fortran and Python. What a rank finds wrong in its arguments all ranks are told before anything is done together.

pub mod files;
pub mod messages;
pub mod sums;

use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::Result;

use crate::arguments::shared;
use crate::status::{Status, guard, guard_or, invalid};

/// A communicator of MPI that Pumice uses: a duplicate, so that its messages and those of the program stay apart.
pub struct MpiComm(SimpleCommunicator);

/// Takes a duplicate of a communicator, together with all its ranks. NULL if that is not possible: MPI is not initialised,
/// or the communicator is MPI_COMM_NULL or between two groups.
#[unsafe(no_mangle)]
pub extern "C" fn pumice_mpi_comm_new(comm: ffi::MPI_Comm) -> *mut MpiComm {
    guard_or(std::ptr::null_mut(), || duplicate(|| comm))
}

/// As pumice_mpi_comm_new(), for a communicator of Fortran.
#[unsafe(no_mangle)]
pub extern "C" fn pumice_mpi_comm_new_f(comm: ffi::RSMPI_Fint) -> *mut MpiComm {
    // SAFETY: MPI is in use; a number that stands for no communicator is the caller's fault, and MPI's to say.
    guard_or(std::ptr::null_mut(), || duplicate(|| unsafe { ffi::RSMPI_Comm_f2c(comm) }))
}

fn duplicate(comm: impl FnOnce() -> ffi::MPI_Comm) -> Result<*mut MpiComm> {
    if !mpi::is_initialized() || mpi::is_finalized() {
        return Err(invalid("MPI is not in use: call MPI_Init first, and Pumice before MPI_Finalize"));
    }
    let comm = comm();
    // SAFETY: the constant of the MPI library.
    if comm == unsafe { ffi::RSMPI_COMM_NULL } {
        return Err(invalid("the communicator is MPI_COMM_NULL"));
    }
    let mut is_between = 0;
    // SAFETY: a communicator, as the caller promises.
    unsafe { ffi::MPI_Comm_test_inter(comm, &raw mut is_between) };
    if is_between != 0 {
        return Err(invalid("the communicator is between two groups; merge them first (MPI_Intercomm_merge)"));
    }
    let mut copy = comm;
    // SAFETY: as above; `copy` is ours from here on.
    let copy = unsafe {
        ffi::MPI_Comm_dup(comm, &raw mut copy);
        SimpleCommunicator::from_raw(copy)
    };
    Ok(Box::into_raw(Box::new(MpiComm(copy))))
}

/// Frees the duplicate, together with all ranks; the communicator that it was made of stays. After MPI_Finalize it does
/// nothing but to free memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_comm_free(comm: *mut MpiComm) {
    guard(|| {
        if !comm.is_null() {
            // SAFETY: as the caller promises.
            end(unsafe { Box::from_raw(comm) });
        }
        Ok(())
    });
}

/// Tells all ranks whether one of them has failed in something of its own: `status` is that of this rank, with the message
/// of pumice_last_error(). All get that of the lowest rank that has failed; PUMICE_STATUS_OK if none has. So a rank that
/// cannot go on does not leave the others waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_agree(comm: *const MpiComm, status: i32) -> Status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { together(comm, || Status::last_error(status)) }.map(drop))
}

/// Drops what holds a communicator, which MPI frees only while it is in use.
fn end<T>(holder: T) {
    if mpi::is_finalized() {
        std::mem::forget(holder);
    }
}

/// The communicator of a handle, and what all ranks make of their arguments: if one of them refuses its own, all do.
///
/// # Safety
/// `comm` is NULL or alive.
unsafe fn together<'a, R>(
    comm: *const MpiComm,
    arguments: impl FnOnce() -> Result<R>,
) -> Result<(&'a SimpleCommunicator, R)> {
    // SAFETY: as the caller promises.
    let comm = &unsafe { shared(comm, "comm") }?.0;
    Ok((comm, pumice_mpi::agree(comm, arguments())?))
}
