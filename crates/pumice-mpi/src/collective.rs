//! Collective communication of the crate `mpi`, with what that leaves to the caller: that both sides have one type of
//! values, and messages of any size.

use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::point_to_point::Source as _;
use mpi::request;
use mpi::traits::*;
use pumice::{Error, ErrorKind, Result};

use crate::agreement::agree;
use crate::local::invalid;

/// A type that can be sent.
pub(crate) trait Sent: Equivalence + Copy + Default {}

impl<V: Equivalence + Copy + Default> Sent for V {}

/// Joins the values of all ranks, position by position; all get the result.
pub(crate) fn reduce<V: Sent, const N: usize>(comm: &impl Communicator, mine: [V; N], with: SystemOperation) -> [V; N] {
    let mut all = [V::default(); N];
    comm.all_reduce_into(&mine[..], &mut all[..], with);
    all
}

/// As [`reduce`], for lists that are equally long on all ranks.
pub(crate) fn reduce_list<V: Sent>(comm: &impl Communicator, mine: &[V], with: SystemOperation) -> Vec<V> {
    let mut all = vec![V::default(); mine.len()];
    comm.all_reduce_into(mine, &mut all[..], with);
    all
}

/// The sum over all ranks before this one.
pub(crate) fn sum_before(comm: &impl Communicator, mine: u64) -> u64 {
    let mut before = 0_u64;
    comm.exclusive_scan_into(&mine, &mut before, SystemOperation::sum());
    // The scan gives rank 0 nothing.
    if comm.rank() == 0 { 0 } else { before }
}

/// Sends the bytes of one rank to all.
pub(crate) fn broadcast(comm: &impl Communicator, root: i32, bytes: &mut Vec<u8>) {
    let root = comm.process_at_rank(root);
    let mut n = bytes.len() as u64;
    root.broadcast_into(&mut n);
    bytes.resize(n as usize, 0);
    for part in bytes.chunks_mut(MAX_MESSAGE) {
        root.broadcast_into(part);
    }
}

/// The most values of a message: MPI counts them in 32 bits.
pub(crate) const MAX_MESSAGE: usize = 1 << 28;

/// The lists that all ranks have, in the order of ranks.
pub(crate) fn gather_all<V: Equivalence + Copy + Default>(comm: &impl Communicator, mine: &[V]) -> Result<Vec<Vec<V>>> {
    let mut counts = vec![0_u64; comm.size() as usize];
    comm.all_gather_into(&(mine.len() as u64), &mut counts[..]);
    let total: u64 = counts.iter().sum();
    if i32::try_from(total).is_err() {
        return Err(invalid(format!("{total} entries are more than MPI gathers at once; use larger boxes")));
    }
    let counts: Vec<i32> = counts.into_iter().map(|n| n as i32).collect();
    let starts: Vec<i32> = counts
        .iter()
        .scan(0, |sum, n| {
            *sum += n;
            Some(*sum - n)
        })
        .collect();
    let mut all = vec![V::default(); total as usize];
    comm.all_gather_varcount_into(mine, &mut PartitionMut::new(&mut all[..], &counts[..], &starts[..]));
    Ok(counts.iter().zip(starts).map(|(n, start)| all[start as usize..(start + n) as usize].to_vec()).collect())
}

/// Sends a list to each of some ranks, and returns what others have sent here, in the order of ranks.
pub(crate) fn exchange<V: Sent>(comm: &impl Communicator, outgoing: &[(i32, Vec<V>)]) -> Result<Vec<(i32, Vec<V>)>> {
    let mut sizes = vec![0_u64; comm.size() as usize];
    outgoing.iter().for_each(|(rank, values)| sizes[*rank as usize] += values.len() as u64);
    let mut sizes_here = vec![0_u64; comm.size() as usize];
    comm.all_to_all_into(&sizes[..], &mut sizes_here[..]);
    let sent = |(rank, n): (usize, &u64)| (*n > 0).then(|| Ok((rank as i32, zeros(*n as usize)?)));
    let incoming: Result<Vec<(i32, Vec<V>)>> = sizes_here.iter().enumerate().filter_map(sent).collect();
    let mut incoming = agree(comm, incoming)?;
    let n_messages = |lists: &[(i32, Vec<V>)]| lists.iter().map(|(_, v)| v.len().div_ceil(MAX_MESSAGE)).sum::<usize>();
    let n = n_messages(&incoming) + n_messages(outgoing);
    request::multiple_scope(n, |scope, requests| {
        for (rank, values) in &mut incoming {
            let source = comm.process_at_rank(*rank);
            for part in values.chunks_mut(MAX_MESSAGE) {
                requests.add(source.immediate_receive_into(scope, part));
            }
        }
        for (rank, values) in outgoing {
            let target = comm.process_at_rank(*rank);
            for part in values.chunks(MAX_MESSAGE) {
                requests.add(target.immediate_send(scope, part));
            }
        }
        requests.wait_all(&mut Vec::new());
    });
    Ok(incoming)
}

/// Memory for so many values.
pub(crate) fn zeros<V: Clone + Default>(n: usize) -> Result<Vec<V>> {
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|_| no_memory(n.saturating_mul(size_of::<V>())))?;
    values.resize(n, V::default());
    Ok(values)
}

pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::new(
        ErrorKind::LimitExceeded,
        format!("this rank has no memory for {bytes} bytes; use more nodes or smaller boxes"),
    )
}

/// The lists of all ranks, one after the other, on rank 0.
pub(crate) fn gather_to_first(comm: &impl Communicator, mine: &[u64], n_all: u64) -> Result<Vec<u64>> {
    let root = comm.process_at_rank(0);
    let is_first = comm.rank() == 0;
    let mut all = agree(comm, zeros(if is_first { n_all as usize } else { 0 }))?;
    let n = mine.len() as i32;
    if is_first {
        let mut counts = vec![0_i32; comm.size() as usize];
        root.gather_into_root(&n, &mut counts[..]);
        let start = |sum: &mut i32, n: &i32| Some(std::mem::replace(sum, *sum + n));
        let starts: Vec<i32> = counts.iter().scan(0, start).collect();
        root.gather_varcount_into_root(mine, &mut PartitionMut::new(&mut all[..], &counts[..], &starts[..]));
    } else {
        root.gather_into(&n);
        root.gather_varcount_into(mine);
    }
    Ok(all)
}
