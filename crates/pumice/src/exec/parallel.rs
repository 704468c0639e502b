//! Parallel loops over chunks whose results come in order.
//!
//! Invariant: results do not depend on the number of threads. Each thread has its own floating-point settings, so work
//! always runs with IEEE defaults.

use std::error::Error as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::prelude::*;

use super::fpenv::DefaultFloats;
use crate::error::{Error, Result};

/// More threads than this only cost time to start.
const MAX_THREADS: usize = 256;

/// One thread finishes up to this many values before others have started.
pub(crate) const SERIAL_VALUES: usize = 1 << 16;

/// The threads that do the work. A single one is the caller's own, without a pool.
///
/// A forked process has none of its parent's threads. Workers from before the fork then do their work on the caller's
/// thread; new ones get threads of their own.
#[derive(Debug)]
pub(crate) enum Workers {
    Serial,
    /// Rayon's own pool, or the one the caller runs in.
    Global(Process),
    Pool(Pool),
}

/// A process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether the threads of Rayon's own pool are in this process, and not in one that it was forked from.
    fn has_global_threads(self) -> bool {
        static OWNER: AtomicU32 = AtomicU32::new(0);
        match OWNER.compare_exchange(0, self.0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(owner) => owner == self.0,
        }
    }
}

/// Whether Rayon's own pool is there, which this starts: a pool that could not be started panics if it is asked for its
/// size.
fn has_global_pool() -> bool {
    static IS_THERE: OnceLock<bool> = OnceLock::new();
    *IS_THERE.get_or_init(|| match rayon::ThreadPoolBuilder::new().build_global() {
        Ok(()) => true,
        // The program may have started it, which is an error without a cause.
        Err(error) => error.source().is_none(),
    })
}

/// A pool of threads, and the process that has them.
#[derive(Debug)]
pub(crate) struct Pool {
    /// `None` only while it is dropped.
    threads: Option<rayon::ThreadPool>,
    process: Process,
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != Process::current() {
            // Locks of the pool may be held by threads that this process does not have.
            std::mem::forget(self.threads.take());
        }
    }
}

/// What does the work in this process.
enum Threads<'a> {
    Own,
    Global,
    Pool(&'a rayon::ThreadPool),
}

impl Workers {
    /// `threads` workers; 0 means one per core. Where the system has no memory for threads, the caller's does the work.
    pub(crate) fn new(threads: usize) -> Result<Self> {
        if threads == 1 {
            return Ok(Workers::Serial);
        }
        let process = Process::current();
        // A forked process does not even ask Rayon's own pool for its size: a thread that is not there any more may have
        // been starting the pool, and the question would wait for it.
        if rayon::current_thread_index().is_some() || (process.has_global_threads() && has_global_pool()) {
            let n_global = rayon::current_num_threads();
            let wanted = if threads == 0 { n_global } else { threads };
            if wanted == 1 {
                return Ok(Workers::Serial);
            }
            if wanted == n_global {
                return Ok(Workers::Global(process));
            }
        }
        // For 0, Rayon takes one thread per core.
        match rayon::ThreadPoolBuilder::new().num_threads(threads.min(MAX_THREADS)).build() {
            Ok(threads) => Ok(Workers::Pool(Pool { threads: Some(threads), process })),
            Err(_) => Ok(Workers::Serial),
        }
    }

    fn threads(&self) -> Threads<'_> {
        match self {
            Workers::Global(process) if *process == Process::current() => Threads::Global,
            Workers::Pool(Pool { threads: Some(pool), process }) if *process == Process::current() => {
                Threads::Pool(pool)
            }
            _ => Threads::Own,
        }
    }

    pub(crate) fn count(&self) -> usize {
        match self.threads() {
            Threads::Own => 1,
            Threads::Global => rayon::current_num_threads(),
            Threads::Pool(pool) => pool.current_num_threads(),
        }
    }

    /// The workers for each of `n` items. A single item may use all of them. Otherwise each item has one worker, and
    /// must not wait for others: they may be waiting for it in [`ordered`].
    pub(crate) fn for_items(&self, n: u64) -> &Workers {
        if n == 1 { self } else { &Workers::Serial }
    }

    /// Runs `work` on each slot and returns the first error in order of slots.
    pub(crate) fn for_each<S: Send>(
        &self,
        slots: &mut [S],
        work: impl Fn(usize, &mut S) -> Result<()> + Sync + Send,
    ) -> Result<()> {
        let work = |i: usize, slot: &mut S| {
            let _floats = DefaultFloats::set();
            work(i, slot)
        };
        match self.threads() {
            Threads::Own => slots.iter_mut().enumerate().try_for_each(|(i, slot)| work(i, slot)),
            Threads::Global => parallel_for_each(slots, work),
            Threads::Pool(pool) => pool.install(|| parallel_for_each(slots, work)),
        }
    }

    /// Runs `task` on up to `n` workers at the same time, and waits for all of them.
    fn run(&self, n: usize, task: impl Fn() + Sync) {
        match self.threads() {
            Threads::Own => task(),
            Threads::Global => rayon::in_place_scope(|scope| (0..n).for_each(|_| scope.spawn(|_| task()))),
            Threads::Pool(pool) => pool.in_place_scope(|scope| (0..n).for_each(|_| scope.spawn(|_| task()))),
        }
    }
}

fn parallel_for_each<S: Send>(slots: &mut [S], work: impl Fn(usize, &mut S) -> Result<()> + Sync + Send) -> Result<()> {
    // One slot per task: chunks are large and differ in cost.
    let results: Vec<Result<()>> =
        slots.par_iter_mut().enumerate().with_max_len(1).map(|(i, slot)| work(i, slot)).collect();
    results.into_iter().collect()
}

/// The state by which workers hand over the results of their items in order.
struct Turnstile<F> {
    /// The item whose turn it is.
    turn: usize,
    take: F,
    /// The first error in order of items, which ended the work early.
    error: Option<Error>,
}

/// Runs `work` for 0..n on the workers, each with a slot of its own, and hands each slot to `take` in order, on whichever
/// worker it is. At most `max_slots` are in use. Stops at the first error, in order of items.
///
/// A worker waits only for items that others are working on, and work itself waits for nothing, so this cannot
/// deadlock, not even inside the caller's own pool.
pub(crate) fn ordered<S: Default + Send>(
    workers: &Workers,
    n: usize,
    max_slots: usize,
    work: impl Fn(usize, &mut S) -> Result<()> + Sync,
    mut take: impl FnMut(usize, &mut S) -> Result<()> + Send,
) -> Result<()> {
    let work = |i: usize, slot: &mut S| {
        let _floats = DefaultFloats::set();
        work(i, slot)
    };
    let n_slots = workers.count().min(max_slots).min(n);
    if n_slots <= 1 {
        let mut slot = S::default();
        return (0..n).try_for_each(|i| {
            work(i, &mut slot)?;
            take(i, &mut slot)
        });
    }
    let next = AtomicUsize::new(0);
    let turnstile = Mutex::new(Turnstile { turn: 0, take, error: None });
    let moved_on = Condvar::new();
    workers.run(n_slots, || {
        let mut slot = S::default();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return;
            }
            // A panic must not leave the others waiting for their turn forever.
            let worked = catch_unwind(AssertUnwindSafe(|| work(i, &mut slot)));
            let mut gate = lock(&turnstile);
            while gate.turn != i && gate.error.is_none() {
                gate = moved_on.wait(gate).unwrap_or_else(PoisonError::into_inner);
            }
            if gate.error.is_some() {
                return;
            }
            let taken = match worked {
                Ok(result) => result.and_then(|()| (gate.take)(i, &mut slot)),
                Err(panic) => {
                    gate.error = Some(Error::invalid("a worker panicked"));
                    moved_on.notify_all();
                    drop(gate);
                    resume_unwind(panic);
                }
            };
            gate.turn = i + 1;
            gate.error = taken.err();
            moved_on.notify_all();
        }
    });
    match turnstile.into_inner().unwrap_or_else(PoisonError::into_inner).error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_keeps_order_and_reports_the_first_error() {
        for threads in 1..4 {
            let workers = Workers::new(threads).unwrap();
            let mut taken = Vec::new();
            ordered(
                &workers,
                23,
                4,
                |i, slot: &mut usize| {
                    *slot = i * i;
                    Ok(())
                },
                |i, slot| {
                    taken.push((i, *slot));
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(taken, (0..23).map(|i| (i, i * i)).collect::<Vec<_>>());
            let fail = |i: usize, _: &mut usize| if i >= 5 { Err(Error::invalid(i.to_string())) } else { Ok(()) };
            let error = ordered(&workers, 23, 4, fail, |_, _| Ok(())).unwrap_err();
            assert_eq!(error.to_string(), "5");
        }
    }

    #[test]
    fn a_panic_of_one_worker_does_not_hold_up_the_others() {
        let workers = Workers::new(3).unwrap();
        let work = |i: usize, _: &mut ()| if i == 2 { panic!("on purpose") } else { Ok(()) };
        let result = catch_unwind(AssertUnwindSafe(|| ordered(&workers, 50, 3, work, |_, _| Ok(()))));
        assert!(result.is_err());
    }
}
