//! Values of all ranks, on one or on all.

use mpi::traits::*;
use pumice::{Config, Result};

use super::job::Job;
use super::plain::{self, split};
use super::{Transfer, Wire};
use crate::agreement::agree;
use crate::link::Load;
use crate::local::{Value, invalid};
use crate::pieces;

/// Collects the values of all ranks on one, in the order of ranks; each may have any number of them. On that rank, `out`
/// is as long as all of them, elsewhere it is not looked at. Those of the rank itself stay as they are.
///
/// A relative bound refers to the range of all values.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::Wire;
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let values = vec![world.rank() as f32; 1 << 20];
/// let mut all = vec![0.0; if world.rank() == 0 { values.len() * world.size() as usize } else { 0 }];
/// pumice_mpi::gather(&world, 0, &values, &mut all, &Config::new(ErrorBound::Rel(1e-3)), Wire::Auto)?;
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn gather<T: Value>(
    comm: &impl Communicator,
    root: i32,
    values: &[T],
    out: &mut [T],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    let mut job = Job::new::<T>(comm, "gather", Some(root), None, config, wire)?;
    let counts = job.counts(values.len());
    let is_root = comm.rank() == root;
    agree(&job.comm, if is_root { check_total(&counts, out.len()) } else { Ok(()) })?;
    let others = (counts.iter().sum::<usize>() - counts[root as usize]) as f64;
    let mine = values.len() as f64;
    job.decide(
        values,
        if is_root {
            Load { encoded: 0.0, decoded: others, carried: others }
        } else {
            Load { encoded: mine, decoded: 0.0, carried: mine }
        },
    )?;
    let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
    if is_root {
        for (rank, part) in (0..).zip(split(&counts, out)) {
            if rank == root {
                part.copy_from_slice(values);
            } else {
                incoming.push((rank, part));
            }
        }
    } else {
        outgoing.push((root, values));
    }
    let done = job.exchange(&outgoing, incoming);
    job.finish(done)
}

/// Collects the values of all ranks on all, in the order of ranks; each may have any number of them, and `out` is as long as
/// all of them. **All ranks get the same bits**, also those whose values they are: programs that keep copies of one state
/// on all ranks stay in step. A rank that wants its exact values still has them in `values`.
///
/// A relative bound refers to the range of all values.
pub fn all_gather<T: Value>(
    comm: &impl Communicator,
    values: &[T],
    out: &mut [T],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    let mut job = Job::new::<T>(comm, "all_gather", None, None, config, wire)?;
    let counts = job.counts(values.len());
    agree(&job.comm, check_total(&counts, out.len()))?;
    let (mine, all) = (values.len() as f64, out.len() as f64);
    job.decide(values, Load { encoded: mine, decoded: all, carried: all - mine })?;
    let rank = comm.rank() as usize;
    split(&counts, out)[rank].copy_from_slice(values);
    if !job.is_compressed {
        job.sent_bytes += plain::around(&job.comm, &counts, out);
        return job.finish(Ok(()));
    }
    let done = pieces::around(&job.comm, &job.code, split(&counts, out), &mut job.sent_bytes);
    job.finish(done)
}

fn check_total(counts: &[usize], n: usize) -> Result<()> {
    let total: usize = counts.iter().sum();
    if total == n {
        Ok(())
    } else {
        Err(invalid(format!("all ranks together have {total} values, but the output has {n}")))
    }
}

impl<M: Communicator> Job<'_, M> {
    /// Sends lists to some ranks, and receives lists from others, which are in the order of ranks.
    pub(super) fn exchange<T: Value>(
        &mut self,
        outgoing: &[(i32, &[T])],
        incoming: Vec<(i32, &mut [T])>,
    ) -> Result<()> {
        if self.is_compressed {
            return pieces::exchange(&self.comm, &self.code, outgoing, incoming, &mut self.sent_bytes);
        }
        self.sent_bytes += plain::exchange(&self.comm, outgoing, incoming);
        Ok(())
    }
}
