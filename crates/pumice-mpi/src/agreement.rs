//! Errors that all ranks agree on. An error of one rank becomes that of all before anything is done together, so that no
//! rank waits for one that has given up.

use mpi::Count;
use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::{Error, ErrorKind, Result};

use crate::collective::{broadcast, reduce, reduce_list};

/// The result of this rank, if all ranks have succeeded; otherwise the error of the lowest rank that has not.
///
/// Everything here does so by itself. Programs that prepare something on their own before they call it together use it, too,
/// so that a rank whose preparation fails does not leave the others waiting.
pub fn agree<R>(comm: &impl Communicator, local: Result<R>) -> Result<R> {
    let none = comm.size();
    let [first] = reduce(comm, [if local.is_err() { comm.rank() } else { none }], SystemOperation::min());
    if first == none {
        return local;
    }
    let mut bytes = Vec::new();
    if let Err(error) = &local
        && comm.rank() == first
    {
        bytes = error_bytes(error);
        bytes.truncate(Count::MAX as usize);
    }
    broadcast(comm, first, &mut bytes);
    let error = error_of_bytes(&bytes);
    Err(if comm.size() == 1 { error } else { error.context(format_args!("rank {first}")) })
}

/// An error as bytes that can be sent: the kind as one byte, then the message.
pub(crate) fn error_bytes(error: &Error) -> Vec<u8> {
    std::iter::once(error.kind().code()).chain(error.to_string().into_bytes()).collect()
}

/// The error of such bytes.
pub(crate) fn error_of_bytes(bytes: &[u8]) -> Error {
    let kind = bytes.first().and_then(|code| ErrorKind::from_code(*code)).unwrap_or(ErrorKind::InvalidArgument);
    Error::new(kind, String::from_utf8_lossy(bytes.get(1..).unwrap_or_default()))
}

/// Errors cannot be cloned, as their causes in the system cannot.
pub(crate) fn copy_of(error: &Error) -> Error {
    error_of_bytes(&error_bytes(error))
}

/// Refuses what the ranks do not agree on: for each name, all of them must have the same text.
pub(crate) fn check_same(comm: &impl Communicator, arguments: &[(&str, String)]) -> Result<()> {
    // The extremes of a hash over all ranks are equal only if all hashes are.
    let hashes: Vec<u64> = arguments.iter().map(|(_, text)| hash(text)).collect();
    let least = reduce_list(comm, &hashes, SystemOperation::min());
    let greatest = reduce_list(comm, &hashes, SystemOperation::max());
    let Some(i) = (0..hashes.len()).find(|&i| least[i] != greatest[i]) else { return Ok(()) };
    // All ranks get here together: the lowest says what it has, and the first that differs what that is.
    let (name, mine) = &arguments[i];
    let mut of_lowest = mine.clone().into_bytes();
    broadcast(comm, 0, &mut of_lowest);
    let of_lowest = String::from_utf8_lossy(&of_lowest).into_owned();
    agree(
        comm,
        if *mine == of_lowest {
            Ok(())
        } else {
            Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the ranks do not agree on the {name}: here it is {mine}, on rank 0 {of_lowest}"),
            ))
        },
    )
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
