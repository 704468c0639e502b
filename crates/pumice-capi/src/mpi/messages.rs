//! Values that are compressed on their way between ranks.

use std::ffi::c_void;

use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;
use pumice::{DType, Result, with_dtype};

use super::{MpiComm, together};
use crate::arguments::{OutPointer, dtype, shared, slice, slice_mut};
use crate::config::Config;
use crate::status::{Status, guard, invalid};

/// Whether values are compressed on their way.
#[repr(i32)]
pub enum MpiWire {
    /// Where that is quicker, as far as a short measurement of link and code tells; otherwise values arrive as they are.
    Auto = 0,
    /// Always.
    Compressed = 1,
    /// Never.
    Plain = 2,
}

/// What a transfer has cost and promises.
#[repr(C)]
pub struct MpiTransfer {
    /// The error of each value is at most this; 0 if all arrive as they are.
    pub abs_bound: f64,
    /// Bytes of values that this rank sent to others, compressed or not.
    pub sent_bytes: u64,
    /// 1 if values were compressed, otherwise 0.
    pub is_compressed: i32,
}

impl From<pumice_mpi::Transfer> for MpiTransfer {
    fn from(transfer: pumice_mpi::Transfer) -> Self {
        Self {
            abs_bound: transfer.abs_bound,
            sent_bytes: transfer.sent_bytes,
            is_compressed: transfer.is_compressed.into(),
        }
    }
}

/// What all transfers ask for.
struct Asked<'a> {
    config: &'a pumice::Config,
    wire: pumice_mpi::Wire,
    dtype: DType,
    transfer: Option<OutPointer<MpiTransfer>>,
}

impl<'a> Asked<'a> {
    /// # Safety
    /// As for [`shared`], and `transfer` is NULL or can be written to.
    unsafe fn new(config: *const Config, wire: i32, dtype: i32, transfer: *mut MpiTransfer) -> Result<Self> {
        // SAFETY: as the caller promises.
        let (config, transfer) = unsafe { (&shared(config, "config")?.0, OutPointer::optional(transfer, "transfer")?) };
        Ok(Self { config, wire: self::wire(wire)?, dtype: self::dtype(dtype)?, transfer })
    }

    fn end(self, done: pumice_mpi::Transfer) -> Result<()> {
        if let Some(transfer) = self.transfer {
            transfer.set(done.into());
        }
        Ok(())
    }
}

/// What is asked for, and an input and an output of values, which all ranks have found valid.
///
/// # Safety
/// As the entry points promise.
macro_rules! collective {
    ($comm:ident, $asked:expr, $values:expr, $out:expr, |$c:ident, $a:ident, $v:ident, $o:ident| $call:expr) => {
        guard(|| {
            // SAFETY: as the caller promises.
            let ($c, $a): (&SimpleCommunicator, Asked<'_>) = unsafe { together($comm, || $asked) }?;
            let done = with_dtype!($a.dtype, T => {
                let (values, n_values) = $values;
                let (out, n_out) = $out;
                // SAFETY: as the caller promises.
                let arrays = unsafe {
                    slice(values.cast::<T>(), n_values, "values")
                        .and_then(|values| Ok((values, slice_mut(out.cast::<T>(), n_out, "out")?)))
                };
                let ($v, $o) = pumice_mpi::agree($c, arrays)?;
                $call
            })?;
            $a.end(done)
        })
    };
}

/// The wire of this number.
pub(super) fn wire(number: i32) -> Result<pumice_mpi::Wire> {
    match number {
        n if n == MpiWire::Auto as i32 => Ok(pumice_mpi::Wire::Auto),
        n if n == MpiWire::Compressed as i32 => Ok(pumice_mpi::Wire::Compressed),
        n if n == MpiWire::Plain as i32 => Ok(pumice_mpi::Wire::Plain),
        n => Err(invalid(format!("unknown wire {n}: use a PUMICE_MPI_WIRE constant"))),
    }
}

/// Collects the `n_values` values of each rank, which may differ, on rank `root`, in the order of ranks. There, `out` has
/// room for all of them, `n_out`; elsewhere both may be 0. `config` has an absolute or a relative bound, a point-wise relative
/// one, or none (lossless); a relative one is for the range of all values. `wire` is a pumice_mpi_wire. `transfer` may be
/// NULL. The values of `root` itself stay exact.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_gather(
    comm: *const MpiComm,
    root: i32,
    config: *const Config,
    wire: i32,
    dtype: i32,
    n_values: usize,
    values: *const c_void,
    n_out: usize,
    out: *mut c_void,
    transfer: *mut MpiTransfer,
) -> Status {
    collective!(
        comm,
        Asked::new(config, wire, dtype, transfer),
        (values, n_values),
        (out, n_out),
        |comm, asked, values, out| pumice_mpi::gather(comm, root, values, out, asked.config, asked.wire)
    )
}

/// As pumice_mpi_gather(), but all ranks get all values: the same bits, also those whose values they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_all_gather(
    comm: *const MpiComm,
    config: *const Config,
    wire: i32,
    dtype: i32,
    n_values: usize,
    values: *const c_void,
    n_out: usize,
    out: *mut c_void,
    transfer: *mut MpiTransfer,
) -> Status {
    collective!(
        comm,
        Asked::new(config, wire, dtype, transfer),
        (values, n_values),
        (out, n_out),
        |comm, asked, values, out| pumice_mpi::all_gather(comm, values, out, asked.config, asked.wire)
    )
}

/// Gives all ranks the values of rank `root`, in place: all ranks get the same bits, and so does `root`, whose values are
/// replaced by what the others get. For the other arguments see pumice_mpi_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_broadcast(
    comm: *const MpiComm,
    root: i32,
    config: *const Config,
    wire: i32,
    dtype: i32,
    n_values: usize,
    values: *mut c_void,
    transfer: *mut MpiTransfer,
) -> Status {
    collective!(
        comm,
        Asked::new(config, wire, dtype, transfer),
        (std::ptr::null::<c_void>(), 0),
        (values, n_values),
        |comm, asked, _none, values| pumice_mpi::broadcast(comm, root, values, asked.config, asked.wire)
    )
}

/// Deals out the `n_values` values of rank `root`, in the order of ranks: each gets `n_out`, which may differ. Elsewhere,
/// `values` may be NULL and `n_values` 0. What `root` itself gets stays exact. For the other arguments see
/// pumice_mpi_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_scatter(
    comm: *const MpiComm,
    root: i32,
    config: *const Config,
    wire: i32,
    dtype: i32,
    n_values: usize,
    values: *const c_void,
    n_out: usize,
    out: *mut c_void,
    transfer: *mut MpiTransfer,
) -> Status {
    collective!(
        comm,
        Asked::new(config, wire, dtype, transfer),
        (values, n_values),
        (out, n_out),
        |comm, asked, values, out| pumice_mpi::scatter(comm, root, values, out, asked.config, asked.wire)
    )
}

/// Each rank sends values to each. `values` are those for rank 0, then those for rank 1 and so on, as many as `counts` say,
/// which has a number for each rank; `out` gets those of rank 0, then those of rank 1 and so on, as many as `out_counts` say.
/// What a rank sends to itself stays exact. For the other arguments see pumice_mpi_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_all_to_all(
    comm: *const MpiComm,
    config: *const Config,
    wire: i32,
    dtype: i32,
    values: *const c_void,
    counts: *const usize,
    out: *mut c_void,
    out_counts: *const usize,
    transfer: *mut MpiTransfer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let n_ranks = unsafe { shared(comm, "comm") }?.0.size() as usize;
        // SAFETY: as above.
        let (comm, (asked, counts, out_counts)) = unsafe {
            together(comm, || {
                let counts = (slice(counts, n_ranks, "counts")?, slice(out_counts, n_ranks, "out_counts")?);
                Ok((Asked::new(config, wire, dtype, transfer)?, counts.0, counts.1))
            })
        }?;
        let total = |counts: &[usize]| counts.iter().fold(0_usize, |sum, n| sum.saturating_add(*n));
        let done = with_dtype!(asked.dtype, T => {
            // SAFETY: as the caller promises.
            let arrays = unsafe {
                slice(values.cast::<T>(), total(counts), "values")
                    .and_then(|values| Ok((values, slice_mut(out.cast::<T>(), total(out_counts), "out")?)))
            };
            let (values, out) = pumice_mpi::agree(comm, arrays)?;
            pumice_mpi::all_to_all(comm, values, counts, out, out_counts, asked.config, asked.wire)
        })?;
        asked.end(done)
    })
}

/// Sends values to rank `to`, which calls pumice_mpi_receive() with the same tag, from 0 to 32767. Only these two ranks take
/// part, and two that send to each other must not both send first. A NULL or unknown argument is an error of this rank, of
/// which the other is not told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_send(
    comm: *const MpiComm,
    to: i32,
    tag: i32,
    config: *const Config,
    wire: i32,
    dtype: i32,
    n_values: usize,
    values: *const c_void,
    transfer: *mut MpiTransfer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, asked) = unsafe { (&shared(comm, "comm")?.0, Asked::new(config, wire, dtype, transfer)?) };
        let done = with_dtype!(asked.dtype, T => {
            // SAFETY: as the caller promises.
            let values = unsafe { slice(values.cast::<T>(), n_values, "values") }?;
            pumice_mpi::send(comm, to, tag, values, asked.config, asked.wire)
        })?;
        asked.end(done)
    })
}

/// Receives what rank `from` sends with this tag: as many values, of the same type. A message of another number or type is an
/// error, and is gone then. `transfer` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_receive(
    comm: *const MpiComm,
    from: i32,
    tag: i32,
    dtype: i32,
    n_out: usize,
    out: *mut c_void,
    transfer: *mut MpiTransfer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, transfer) = unsafe { (&shared(comm, "comm")?.0, OutPointer::optional(transfer, "transfer")?) };
        let done = with_dtype!(self::dtype(dtype)?, T => {
            // SAFETY: as the caller promises.
            let out = unsafe { slice_mut(out.cast::<T>(), n_out, "out") }?;
            pumice_mpi::receive(comm, from, tag, out)
        })?;
        if let Some(transfer) = transfer {
            transfer.set(done.into());
        }
        Ok(())
    })
}
