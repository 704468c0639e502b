//! Execution: threads, their floating-point settings, and memory for buffers and results.

pub(crate) mod fpenv;
pub(crate) mod pages;
pub(crate) mod parallel;
pub(crate) mod scratch;

pub(crate) use fpenv::DefaultFloats;
pub(crate) use parallel::Workers;

use crate::error::{Error, ErrorKind, Result};

/// Reserves memory, and reports failure instead of aborting.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    vec.try_reserve_exact(additional).map_err(|_| {
        let bytes = additional.saturating_mul(size_of::<T>());
        Error::new(ErrorKind::LimitExceeded, format!("no memory for {bytes} bytes"))
    })
}
