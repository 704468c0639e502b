//! Values that travel as they are.

use mpi::datatype::PartitionMut;
use mpi::point_to_point::{Destination as _, Source as _};
use mpi::request;
use mpi::traits::*;

use crate::collective::MAX_MESSAGE;
use crate::local::Value;

/// Below this, MPI's own way has fewer messages; above, it goes around a ring, too, but counts in 32 bits.
const MOST_FOR_MPI: usize = 1 << 20;

/// Sends lists to some ranks and receives lists from others. Returns how many bytes were sent.
pub(super) fn exchange<T: Value>(
    comm: &impl Communicator,
    outgoing: &[(i32, &[T])],
    mut incoming: Vec<(i32, &mut [T])>,
) -> u64 {
    let n_out: usize = outgoing.iter().map(|(_, values)| values.len().div_ceil(MAX_MESSAGE)).sum();
    let n_in: usize = incoming.iter().map(|(_, values)| values.len().div_ceil(MAX_MESSAGE)).sum();
    request::multiple_scope(n_out + n_in, |scope, requests| {
        for (from, values) in &mut incoming {
            for part in values.chunks_mut(MAX_MESSAGE) {
                requests.add(comm.process_at_rank(*from).immediate_receive_into(scope, part));
            }
        }
        for (to, values) in outgoing {
            for part in values.chunks(MAX_MESSAGE) {
                requests.add(comm.process_at_rank(*to).immediate_send(scope, part));
            }
        }
        requests.wait_all(&mut Vec::new());
    });
    outgoing.iter().map(|(_, values)| size_of_val(*values) as u64).sum()
}

/// Gives all ranks the parts of all, which have so many values and lie one after the other; each rank has its own in place.
pub(super) fn around<T: Value>(comm: &impl Communicator, counts: &[usize], all: &mut [T]) -> u64 {
    let (n, rank) = (comm.size() as usize, comm.rank() as usize);
    if all.len() <= MOST_FOR_MPI {
        let starts: Vec<usize> = starts(counts).collect();
        let mine = all[starts[rank]..starts[rank] + counts[rank]].to_vec();
        let [counts, starts] = [counts, &starts].map(|list| list.iter().map(|n| *n as i32).collect::<Vec<i32>>());
        comm.all_gather_varcount_into(&mine[..], &mut PartitionMut::new(all, &counts[..], &starts[..]));
        return size_of_val(&mine[..]) as u64;
    }
    let mut parts = split(counts, all);
    let (next, previous) = (((rank + 1) % n) as i32, ((rank + n - 1) % n) as i32);
    let step = |step: usize| {
        let (out, into) = ((rank + n - step) % n, (rank + n - step - 1) % n);
        let [out, into] = parts.get_disjoint_mut([out, into]).expect("parts of two ranks");
        exchange(comm, &[(next, &**out)], vec![(previous, &mut **into)])
    };
    (0..n - 1).map(step).sum()
}

/// Gives all ranks the values of one.
pub(super) fn down<T: Value>(comm: &impl Communicator, root: i32, values: &mut [T]) -> u64 {
    for part in values.chunks_mut(MAX_MESSAGE) {
        comm.process_at_rank(root).broadcast_into(part);
    }
    if comm.rank() == root { size_of_val(values) as u64 } else { 0 }
}

/// Where the parts of ranks start.
pub(super) fn starts(counts: &[usize]) -> impl Iterator<Item = usize> {
    counts.iter().scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n)))
}

/// The parts of ranks, which lie one after the other.
pub(super) fn split<'v, T>(counts: &[usize], mut all: &'v mut [T]) -> Vec<&'v mut [T]> {
    counts.iter().map(|n| all.split_off_mut(..*n).expect("all parts are there")).collect()
}
