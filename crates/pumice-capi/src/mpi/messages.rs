//! Values that are compressed on their way between ranks.

use std::ffi::c_void;

use pumice::{Result, with_dtype};

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

/// The wire of this number.
fn wire(number: i32) -> Result<pumice_mpi::Wire> {
    match number {
        n if n == MpiWire::Auto as i32 => Ok(pumice_mpi::Wire::Auto),
        n if n == MpiWire::Compressed as i32 => Ok(pumice_mpi::Wire::Compressed),
        n if n == MpiWire::Plain as i32 => Ok(pumice_mpi::Wire::Plain),
        n => Err(invalid(format!("unknown wire {n}: use a PUMICE_MPI_WIRE constant"))),
    }
}

/// Collects the `n_values` values of each rank, which may differ, on rank `root`, in the order of ranks. There, `out` has
/// room for all of them, `n_out`; elsewhere both may be 0. `config` has an absolute or a relative bound, or none
/// (lossless); a relative one is for the range of all values. `wire` is a pumice_mpi_wire. `transfer` may be NULL.
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
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, (config, wire, dtype, transfer)) = unsafe {
            together(comm, || {
                let transfer = OutPointer::optional(transfer, "transfer")?;
                Ok((&shared(config, "config")?.0, self::wire(wire)?, self::dtype(dtype)?, transfer))
            })
        }?;
        let done = with_dtype!(dtype, T => {
            // SAFETY: as the caller promises.
            let (values, out) = pumice_mpi::agree(comm, unsafe {
                slice(values.cast::<T>(), n_values, "values")
                    .and_then(|values| Ok((values, slice_mut(out.cast::<T>(), n_out, "out")?)))
            })?;
            pumice_mpi::gather(comm, root, values, out, config, wire)
        })?;
        if let Some(transfer) = transfer {
            transfer.set(done.into());
        }
        Ok(())
    })
}
