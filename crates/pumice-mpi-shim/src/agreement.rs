//! What ranks must know of each other before they do something together. `unsafe` is allowed to take the program's
//! communicators for that.
#![allow(unsafe_code, reason = "handles of the program")]

use std::mem::ManuallyDrop;

use mpi::collective::SystemOperation;
use mpi::raw::FromRaw;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use mpi_sys as ffi;

/// A communicator of the program, which stays its own; `None` if it is not one of ranks among each other.
pub(crate) fn lent(comm: ffi::MPI_Comm) -> Option<ManuallyDrop<SimpleCommunicator>> {
    // SAFETY: constants of the library.
    let [null, world, own] = unsafe { [ffi::RSMPI_COMM_NULL, ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF] };
    let lent = match comm {
        _ if comm == null => return None,
        _ if comm == world => SimpleCommunicator::world(),
        _ if comm == own => SimpleCommunicator::self_comm(),
        _ => {
            let mut is_inter = 0;
            // SAFETY: a communicator of the program, and an integer.
            let code = unsafe { ffi::PMPI_Comm_test_inter(comm, &mut is_inter) };
            if code != ffi::MPI_SUCCESS as i32 || is_inter != 0 {
                return None;
            }
            // SAFETY: none of the communicators above.
            unsafe { SimpleCommunicator::from_raw(comm) }
        }
    };
    Some(ManuallyDrop::new(lent))
}

/// The text of the lowest rank that has one, for all.
pub(crate) fn first_of(comm: &SimpleCommunicator, mine: Option<String>) -> Option<String> {
    let none = comm.size();
    let mut first = none;
    comm.all_reduce_into(&if mine.is_some() { comm.rank() } else { none }, &mut first, SystemOperation::min());
    if first == none {
        return None;
    }
    let mut bytes = mine.unwrap_or_default().into_bytes();
    broadcast(comm, first, &mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(if comm.size() == 1 { text } else { format!("rank {first}: {text}") })
}

/// Sends bytes of one rank to all.
pub(crate) fn broadcast(comm: &SimpleCommunicator, root: i32, bytes: &mut Vec<u8>) {
    let root = comm.process_at_rank(root);
    let mut n = bytes.len() as u64;
    root.broadcast_into(&mut n);
    bytes.resize(n as usize, 0);
    // Open MPI takes the address that Rust gives an empty list of bytes for `MPI_IN_PLACE`.
    if n > 0 {
        root.broadcast_into(&mut bytes[..]);
    }
}

/// Joins numbers of all ranks, position by position.
pub(crate) fn reduce<const N: usize>(comm: &SimpleCommunicator, mine: [i64; N], with: SystemOperation) -> [i64; N] {
    let mut all = [0; N];
    comm.all_reduce_into(&mine[..], &mut all[..], with);
    all
}
