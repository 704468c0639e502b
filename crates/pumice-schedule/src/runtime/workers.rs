//! The threads that compress and write. Each waits until a task may start, and runs it without the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice::Result;

use super::Inner;
use super::state::{Work, panicked};
use crate::sink::Pending;

/// Runs a task whose panic is an error.
fn guarded<R>(what: &str, task: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(task)).unwrap_or_else(|_| Err(panicked(what)))
}

/// Plans, looks through fields and compresses blocks.
pub(super) fn compress(inner: &Inner) {
    let mut state = inner.lock();
    while !state.is_closed() {
        if let Some(problem) = state.problem(inner.now()) {
            drop(state);
            let plan = problem.solve(inner.options.backfill);
            state = inner.lock();
            state.follow(plan);
            inner.changed.notify_all();
            continue;
        }
        let Some((task, values)) = state.next_task(inner.now()) else {
            state = inner.wait(state);
            continue;
        };
        drop(state);
        let start = inner.now();
        let result = guarded("compression", || match task.block {
            None => values.open(),
            Some(block) => values.encode(block),
        });
        let end = inner.now();
        state = inner.lock();
        let sizes = state.end_task(task, result, start, end);
        inner.trim(state.used());
        if let Some(sizes) = sizes {
            drop(state);
            let result = guarded("compression", || values.finish(&sizes));
            state = inner.lock();
            state.end_field(task, result);
        }
        inner.changed.notify_all();
    }
}

/// Writes what is compressed.
pub(super) fn write(inner: &Inner) {
    let mut state = inner.lock();
    while !state.is_closed() {
        let Some((work, pending)) = state.next_work(inner.now()) else {
            state = inner.wait(state);
            continue;
        };
        match work {
            Work::Write { snapshot, field, pieces, offset, bytes } => {
                let names = pending.is_none().then(|| state.names(snapshot));
                drop(state);
                let start = inner.now();
                let bytes = bytes.concat();
                let result = guarded("the sink", || {
                    let mut pending = match (pending, names) {
                        (Some(pending), _) => pending,
                        (None, names) => {
                            let (name, fields) = names.unwrap_or_default();
                            inner.sink.create(&name, &fields)?
                        }
                    };
                    pending.write_at(field, offset, &bytes)?;
                    Ok(pending)
                });
                let end = inner.now();
                state = inner.lock();
                state.end_write((snapshot, field, pieces, bytes.len()), result, start, end);
            }
            Work::Commit { snapshot } => {
                drop(state);
                let start = inner.now();
                let result = guarded("the sink", || pending.map_or(Ok(()), Pending::commit));
                let end = inner.now();
                state = inner.lock();
                state.end_commit(snapshot, result, start, end);
            }
        }
        inner.changed.notify_all();
    }
}
