//! What ranks must know of each other before they do something together.

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

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
    root.broadcast_into(&mut bytes[..]);
}

/// Joins numbers of all ranks, position by position.
pub(crate) fn reduce<const N: usize>(comm: &SimpleCommunicator, mine: [i64; N], with: SystemOperation) -> [i64; N] {
    let mut all = [0; N];
    comm.all_reduce_into(&mine[..], &mut all[..], with);
    all
}
