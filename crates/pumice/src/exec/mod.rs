//! Execution: threads, their floating-point settings, and memory for buffers and results.
//!
//! Memory whose size depends on the input comes from [`reserve`], [`filled`] or [`scratch::try_take`], which report
//! failure instead of aborting. What remains is small: [`check_memory`] asks for all of it before work begins.

pub(crate) mod fpenv;
pub(crate) mod pages;
pub(crate) mod parallel;
pub(crate) mod scratch;

pub(crate) use fpenv::DefaultFloats;
pub(crate) use parallel::Workers;

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// What an encoder says that gets no memory: [`check_memory`] found it a moment ago.
pub(crate) const MEMORY_WAS_CHECKED: &str = "the memory was checked before";

/// How often memory is asked for, with pauses. Under a limit of the address space, glibc takes 64 MiB for a moment
/// when a thread without an arena asks it for any memory.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(1);

/// Reserves memory, and reports failure instead of aborting.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    let bytes = additional.saturating_mul(size_of::<T>());
    let mut attempt = 1;
    while vec.try_reserve_exact(additional).is_err() {
        if attempt == ATTEMPTS || isize::try_from(bytes).is_err() {
            return Err(no_memory(bytes as u64));
        }
        attempt += 1;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// `n` copies of a value.
pub(crate) fn filled<T: Clone>(value: T, n: usize) -> Result<Vec<T>> {
    let mut all = Vec::new();
    reserve(&mut all, n)?;
    all.resize(n, value);
    Ok(all)
}

/// Checks that the system has so much memory to give, without keeping it.
pub(crate) fn check_memory(bytes: u64) -> Result<()> {
    let n = usize::try_from(bytes).map_err(|_| no_memory(bytes))?;
    reserve(&mut Vec::<u8>::new(), n)
}

/// The most of `n` tasks that the workers may do at a time, at least one: there is memory for all of these, each of which
/// takes so many bytes. An error if there is not enough for one.
pub(crate) fn at_once(workers: &Workers, n: u64, bytes: u64) -> Result<usize> {
    let mut at_once = n.clamp(1, workers.count() as u64);
    // What a worker keeps for its next task.
    let kept = if n > 1 { bytes.min(scratch::MAX_KEPT_BYTES as u64) } else { 0 };
    while let Err(error) = check_memory(at_once.saturating_mul(bytes + kept)) {
        if at_once == 1 {
            return Err(error);
        }
        at_once /= 2;
    }
    Ok(at_once as usize)
}

/// The error where the system has no memory.
pub(crate) fn no_memory(bytes: u64) -> Error {
    let message = format!(
        "the system has no memory for {bytes} bytes; use fewer threads or smaller chunks, or read a smaller region"
    );
    Error::new(ErrorKind::LimitExceeded, message)
}
