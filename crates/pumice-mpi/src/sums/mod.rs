//! Sums of vectors over all ranks that are carried in compressed form, and are the same bits whoever adds them in which
//! order.
//!
//! Every value becomes a multiple of one step, once; what is sent and added are the integers. Sums of integers are exact,
//! so the result depends on the vectors and the bound alone: not on the number of ranks, on how the vectors are shared out
//! among them, nor on the algorithm. Its error is that of the values, added up: at most n times the bound of each.

mod carrier;
mod job;
mod plain;

use std::ops::Range;

use mpi::traits::*;
use pumice::{ErrorBound, Result};

use crate::agreement::agree;
use crate::collective::gather_all;
use crate::local::{Value, invalid};
use job::Job;

/// The bound of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SumBound {
    /// For each vector; the sum of n vectors has an error of at most n times as much.
    Each(ErrorBound),
    /// For the sum; each of n vectors gets an n-th of it.
    Total(ErrorBound),
}

/// How a sum is formed. The result does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SumAlgorithm {
    /// The quickest for what the link and the code give, as far as a short measurement tells.
    #[default]
    Auto,
    /// Compressed, around a ring: each rank sends and receives the least.
    Ring,
    /// Compressed, by halves: the fewest messages.
    Halving,
    /// The integers without compression, by the MPI library.
    Plain,
}

/// What a sum has cost and promises.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SumSummary {
    /// How many vectors were added.
    pub n_vectors: u64,
    /// The error of each value of the sum is at most this.
    pub abs_bound: f64,
    /// How it was formed.
    pub algorithm: SumAlgorithm,
    /// Bytes of values that this rank sent, compressed or not.
    pub sent_bytes: u64,
}

/// The part of the sum that each rank gets.
struct Wanted {
    /// Values of the sum.
    length: usize,
    ranges: Vec<Range<usize>>,
    /// Whether all ranks get all.
    is_all: bool,
}

/// Adds vectors of all ranks, each of which has any number of them, and gives all ranks the sum. All ranks get the same
/// bits, which do not depend on how the vectors are shared out. Values that are not finite add up as they do in IEEE
/// arithmetic; NaN has one bit pattern then.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::ErrorBound;
/// use pumice_mpi::{SumAlgorithm, SumBound};
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let gradient = vec![0.001f32; 1 << 20];
/// let mut sum = vec![0.0; 1 << 20];
/// let bound = SumBound::Total(ErrorBound::Abs(1e-4));
/// pumice_mpi::all_reduce(&world, &[&gradient], &mut sum, bound, SumAlgorithm::Auto)?;
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn all_reduce<T: Value>(
    comm: &impl Communicator,
    vectors: &[&[T]],
    sum: &mut [T],
    bound: SumBound,
    algorithm: SumAlgorithm,
) -> Result<SumSummary> {
    let job = Job::new(comm, "all_reduce", vectors, sum.len(), bound)?;
    let all = 0..sum.len();
    let wanted = Wanted { length: sum.len(), ranges: vec![all; comm.size() as usize], is_all: true };
    job.run(vectors, &wanted, sum, algorithm)
}

/// Adds vectors of all ranks as [`all_reduce`] does, and gives each rank the part of the sum that it asks for: parts may be
/// of any size, overlap, or leave values out that nobody needs. The bits are those of [`all_reduce`].
///
/// The vectors have `length` values, `sum` as many as the part. The least is sent if the parts of ranks follow one another
/// and make up the sum.
pub fn reduce_scatter<T: Value>(
    comm: &impl Communicator,
    vectors: &[&[T]],
    length: usize,
    part: Range<usize>,
    sum: &mut [T],
    bound: SumBound,
    algorithm: SumAlgorithm,
) -> Result<SumSummary> {
    let job = Job::new(comm, "reduce_scatter", vectors, length, bound)?;
    let is_valid = part.start <= part.end && part.end <= length && part.len() == sum.len();
    agree(
        &job.comm,
        if is_valid {
            Ok(())
        } else {
            let n = sum.len();
            Err(invalid(format!("{part:?} is not a part of {n} values, as the output has, of a sum of {length}")))
        },
    )?;
    let ends = gather_all(&job.comm, &[part.start as u64, part.end as u64])?;
    let ranges = ends.iter().map(|ends| ends[0] as usize..ends[1] as usize).collect();
    job.run(vectors, &Wanted { length, ranges, is_all: false }, sum, algorithm)
}
