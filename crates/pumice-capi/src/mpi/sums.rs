//! Sums over all ranks.

use std::ffi::c_void;

use pumice::{DType, Result, with_dtype};
use pumice_mpi::{SumAlgorithm, SumBound, SumSummary};

use super::{MpiComm, together};
use crate::arguments::{OutPointer, dtype, slice, slice_mut};
use crate::config;
use crate::status::{Status, guard, invalid};

/// How a sum is formed; its bits do not depend on it.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum MpiSumAlgorithm {
    /// The quickest for what link and code give, as far as a short measurement tells.
    Auto = 0,
    /// Compressed, around a ring: each rank sends and receives the least.
    Ring = 1,
    /// Compressed, by halves: the fewest messages.
    Halving = 2,
    /// Without compression, by the MPI library.
    Plain = 3,
}

/// What a sum has cost and promises.
#[repr(C)]
pub struct MpiSum {
    /// How many vectors were added.
    pub n_vectors: u64,
    /// The error of each value of the sum is at most this.
    pub abs_bound: f64,
    /// Bytes of values that this rank sent, compressed or not.
    pub sent_bytes: u64,
    /// A pumice_mpi_sum_algorithm: the one that was used.
    pub algorithm: i32,
}

const ALGORITHMS: [(MpiSumAlgorithm, SumAlgorithm); 4] = [
    (MpiSumAlgorithm::Auto, SumAlgorithm::Auto),
    (MpiSumAlgorithm::Ring, SumAlgorithm::Ring),
    (MpiSumAlgorithm::Halving, SumAlgorithm::Halving),
    (MpiSumAlgorithm::Plain, SumAlgorithm::Plain),
];

/// The algorithm of this number.
fn algorithm(number: i32) -> Result<SumAlgorithm> {
    let known = ALGORITHMS.into_iter().find(|(known, _)| *known as i32 == number);
    known
        .map(|(_, algorithm)| algorithm)
        .ok_or_else(|| invalid(format!("unknown algorithm {number}: use a PUMICE_MPI_SUM_ALGORITHM constant")))
}

/// What all sums ask for.
struct Asked<'a> {
    bound: SumBound,
    algorithm: SumAlgorithm,
    dtype: DType,
    vectors: &'a [*const c_void],
    summary: Option<OutPointer<MpiSum>>,
}

impl<'a> Asked<'a> {
    /// # Safety
    /// As for [`slice`], and `summary` is NULL or can be written to.
    unsafe fn new(
        (bound, e, is_total): (i32, f64, i32),
        (algorithm, dtype): (i32, i32),
        (n_vectors, vectors): (usize, *const *const c_void),
        summary: *mut MpiSum,
    ) -> Result<Self> {
        let bound = config::bound(bound, e)?;
        let bound = if is_total == 0 { SumBound::Each(bound) } else { SumBound::Total(bound) };
        // SAFETY: as the caller promises.
        let (vectors, summary) =
            unsafe { (slice(vectors, n_vectors, "vectors")?, OutPointer::optional(summary, "summary")?) };
        Ok(Self { bound, algorithm: self::algorithm(algorithm)?, dtype: self::dtype(dtype)?, vectors, summary })
    }

    /// # Safety
    /// Each vector is NULL or has `n_values` live values, and `sum` is NULL or `n_sum` that nobody else uses.
    unsafe fn arrays<T>(&self, n_values: usize, sum: *mut c_void, n_sum: usize) -> Result<(Vec<&'a [T]>, &'a mut [T])> {
        // SAFETY: as the caller promises.
        let vectors = self.vectors.iter().map(|vector| unsafe { slice(vector.cast::<T>(), n_values, "a vector") });
        // SAFETY: as above.
        Ok((vectors.collect::<Result<_>>()?, unsafe { slice_mut(sum.cast::<T>(), n_sum, "sum") }?))
    }

    fn end(self, done: SumSummary) -> Result<()> {
        if let Some(summary) = self.summary {
            let used = ALGORITHMS.into_iter().find(|(_, algorithm)| *algorithm == done.algorithm);
            summary.set(MpiSum {
                n_vectors: done.n_vectors,
                abs_bound: done.abs_bound,
                sent_bytes: done.sent_bytes,
                algorithm: used.map_or(0, |(number, _)| number as i32),
            });
        }
        Ok(())
    }
}

/// Adds vectors of `n_values` values and gives all ranks the sum, bit by bit the same. This rank has `n_vectors`, which
/// may be 0, with a pointer each in `vectors`. `bound` (PUMICE_BOUND_ABS or PUMICE_BOUND_REL) with the number `e` is that
/// of each vector; or, if `is_total` is not 0, that of the sum. `algorithm` is a pumice_mpi_sum_algorithm. `summary` may
/// be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_all_reduce(
    comm: *const MpiComm,
    bound: i32,
    e: f64,
    is_total: i32,
    algorithm: i32,
    dtype: i32,
    n_values: usize,
    n_vectors: usize,
    vectors: *const *const c_void,
    sum: *mut c_void,
    summary: *mut MpiSum,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, asked) = unsafe {
            together(comm, || Asked::new((bound, e, is_total), (algorithm, dtype), (n_vectors, vectors), summary))
        }?;
        let done = with_dtype!(asked.dtype, T => {
            // SAFETY: as the caller promises.
            let (vectors, sum) = pumice_mpi::agree(comm, unsafe { asked.arrays::<T>(n_values, sum, n_values) })?;
            pumice_mpi::all_reduce(comm, &vectors, sum, asked.bound, asked.algorithm)
        })?;
        asked.end(done)
    })
}

/// As pumice_mpi_all_reduce(), but this rank gets only the `n_out` values of the sum from `first` on. Ranks may ask for any
/// part; the least is sent if their parts follow one another and make up the sum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reduce_scatter(
    comm: *const MpiComm,
    bound: i32,
    e: f64,
    is_total: i32,
    algorithm: i32,
    dtype: i32,
    n_values: usize,
    n_vectors: usize,
    vectors: *const *const c_void,
    first: usize,
    n_out: usize,
    sum: *mut c_void,
    summary: *mut MpiSum,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, asked) = unsafe {
            together(comm, || Asked::new((bound, e, is_total), (algorithm, dtype), (n_vectors, vectors), summary))
        }?;
        let done = with_dtype!(asked.dtype, T => {
            // SAFETY: as the caller promises.
            let (vectors, sum) = pumice_mpi::agree(comm, unsafe { asked.arrays::<T>(n_values, sum, n_out) })?;
            let part = first..first.saturating_add(n_out);
            pumice_mpi::reduce_scatter(comm, &vectors, n_values, part, sum, asked.bound, asked.algorithm)
        })?;
        asked.end(done)
    })
}
