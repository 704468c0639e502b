//! Values of one rank to all, and of all ranks to all.

use mpi::traits::*;
use pumice::{Config, Result};

use super::job::Job;
use super::plain::{self, split, starts};
use super::{Transfer, Wire};
use crate::agreement::agree;
use crate::link::Load;
use crate::local::{Value, invalid};
use crate::pieces;

/// Gives all ranks the values of one. All have as many; what they hold is replaced, but on the rank that sends. **All ranks
/// get the same bits, and so does the rank that sends**: its values are replaced by what the others get. Keep a copy where
/// the exact ones are still needed.
///
/// A piece is compressed once, and the ranks pass it on as it is, in a chain or a tree.
///
/// A relative bound refers to the range of the values.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::Wire;
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let mut values = vec![world.rank() as f32; 1 << 20];
/// pumice_mpi::broadcast(&world, 0, &mut values, &Config::new(ErrorBound::Abs(1e-3)), Wire::Auto)?;
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn broadcast<T: Value>(
    comm: &impl Communicator,
    root: i32,
    values: &mut [T],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    let mut job = Job::new::<T>(comm, "broadcast", Some(root), Some(values.len()), config, wire)?;
    let is_root = comm.rank() == root;
    let n = values.len() as f64;
    let given = if is_root { &*values } else { &[] };
    job.decide(given, Load { encoded: if is_root { n } else { 0.0 }, decoded: n, carried: n })?;
    if !job.is_compressed {
        job.sent_bytes += plain::down(&job.comm, root, values);
        return job.finish(Ok(()));
    }
    let done = pieces::down(&job.comm, &job.code, root, values, &mut job.sent_bytes);
    job.finish(done)
}

/// Deals out the values of one rank, in the order of ranks: each gets as many as its `out` has, which may be any number. On
/// the rank that sends, `values` are as many as all of them, elsewhere they are not looked at. What that rank itself gets
/// stays as it is.
///
/// A relative bound refers to the range of all values.
pub fn scatter<T: Value>(
    comm: &impl Communicator,
    root: i32,
    values: &[T],
    out: &mut [T],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    let mut job = Job::new::<T>(comm, "scatter", Some(root), None, config, wire)?;
    let counts = job.counts(out.len());
    let total: usize = counts.iter().sum();
    let is_root = comm.rank() == root;
    agree(
        &job.comm,
        if is_root && values.len() != total {
            Err(invalid(format!(
                "there are {} values, but the outputs of all ranks together have {total}",
                values.len()
            )))
        } else {
            Ok(())
        },
    )?;
    let others = (total - counts[root as usize]) as f64;
    let mine = out.len() as f64;
    job.decide(
        if is_root { values } else { &[] },
        if is_root {
            Load { encoded: others, decoded: 0.0, carried: others }
        } else {
            Load { encoded: 0.0, decoded: mine, carried: mine }
        },
    )?;
    let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
    if is_root {
        for (rank, (start, n)) in (0..).zip(starts(&counts).zip(&counts)) {
            let part = &values[start..start + n];
            if rank == root {
                out.copy_from_slice(part);
            } else {
                outgoing.push((rank, part));
            }
        }
    } else {
        incoming.push((root, out));
    }
    let done = job.exchange(&outgoing, incoming);
    job.finish(done)
}

/// Each rank sends values to each. `values` are those for rank 0, then those for rank 1 and so on, as many as `counts` say;
/// `out` receives those of rank 0, then those of rank 1 and so on, as many as `out_counts` say, which are the numbers that
/// the others send. What a rank sends to itself stays as it is.
///
/// A relative bound refers to the range of all values of all ranks.
pub fn all_to_all<T: Value>(
    comm: &impl Communicator,
    values: &[T],
    counts: &[usize],
    out: &mut [T],
    out_counts: &[usize],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    let mut job = Job::new::<T>(comm, "all_to_all", None, None, config, wire)?;
    let (n_ranks, rank) = (comm.size() as usize, comm.rank() as usize);
    let check = |what: &str, counts: &[usize], n: usize| {
        if counts.len() != n_ranks {
            return Err(invalid(format!("there are {} counts of {what}, but {n_ranks} ranks", counts.len())));
        }
        let total = counts.iter().fold(0_usize, |sum, n| sum.saturating_add(*n));
        if total == n {
            Ok(())
        } else {
            Err(invalid(format!("the counts of {what} add up to {total}, but it has {n}")))
        }
    };
    agree(&job.comm, check("the input", counts, values.len()).and(check("the output", out_counts, out.len())))?;
    let sent: Vec<u64> = counts.iter().map(|n| *n as u64).collect();
    let mut sent_here = vec![0_u64; n_ranks];
    job.comm.all_to_all_into(&sent[..], &mut sent_here[..]);
    let wrong = sent_here.iter().zip(out_counts).position(|(sent, expected)| *sent != *expected as u64);
    agree(
        &job.comm,
        wrong.map_or(Ok(()), |from| {
            let (sent, expected) = (sent_here[from], out_counts[from]);
            Err(invalid(format!("rank {from} sends {sent} values here, but the output has {expected} of it")))
        }),
    )?;
    let (out_n, in_n) = ((values.len() - counts[rank]) as f64, (out.len() - counts[rank]) as f64);
    job.decide(values, Load { encoded: out_n, decoded: in_n, carried: out_n.max(in_n) })?;
    let mut outgoing: Vec<(i32, &[T])> =
        (0..).zip(starts(counts).zip(counts).map(|(start, n)| &values[start..start + n])).collect();
    // Each rank begins with the next one, so that not all send to the same.
    outgoing.rotate_left(rank);
    let mine = outgoing.remove(0).1;
    let mut incoming: Vec<(i32, &mut [T])> = (0..).zip(split(out_counts, out)).collect();
    incoming.remove(rank).1.copy_from_slice(mine);
    let done = job.exchange(&outgoing, incoming);
    job.finish(done)
}
