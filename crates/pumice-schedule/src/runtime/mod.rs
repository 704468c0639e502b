//! The scheduler that an application uses.
//!
//! ```text
//! mod.rs       what the application calls
//! snapshot.rs  a snapshot on its way
//! state.rs     all snapshots, memory, which task is next
//! plan.rs      jobs from snapshots, intervals from the last iteration, and the order of tasks
//! workers.rs   the threads that compress and write
//! ```

mod plan;
mod snapshot;
mod state;
mod workers;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use pumice::{Error, ErrorKind, Result, Summary};

use crate::buffers::Buffers;
use crate::field::Field;
use crate::phases::Thread;
use crate::predict::Model;
use crate::sink::Sink;
use crate::trace::{Activity, Lane, Trace};
use state::State;

/// Where compression runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// On one thread that works only while the compute thread is idle, and so has its core for itself.
    IdleTimes,
    /// On so many threads that work at any time: for applications that leave cores free.
    Threads(usize),
}

/// What [`Scheduler::snapshot`] does if the memory for snapshots is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits until earlier snapshots have freed enough.
    Block,
    /// It returns an error of kind [`LimitExceeded`](ErrorKind::LimitExceeded).
    Refuse,
}

/// Options of a [`Scheduler`].
#[derive(Clone, Debug)]
pub struct Options {
    place: Place,
    memory: usize,
    when_full: WhenFull,
    write_bytes: usize,
    backfill: bool,
    margin: f64,
    model: Model,
    trace: bool,
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            place: Place::IdleTimes,
            memory: 1 << 30,
            when_full: WhenFull::Block,
            write_bytes: 1 << 20,
            backfill: true,
            margin: 0.1,
            model: Model::default(),
            trace: false,
        }
    }

    /// Where compression runs; in idle times if not given.
    #[must_use]
    pub fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// Most bytes of captured values, of compressed blocks that wait to be written, and of memory that is kept for the next
    /// values, 1 GiB if not given. Beside them
    /// there is what the codec takes for one block per thread, and one write.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// What to do if that is used up; to wait if not given.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Compressed blocks are collected until they are so many bytes, or their file is complete, and written at once; 1 MiB if
    /// not given.
    #[must_use]
    pub fn write_bytes(mut self, bytes: usize) -> Self {
        self.write_bytes = bytes;
        self
    }

    /// Whether tasks may go into gaps between tasks that are scheduled already. They do if not given.
    #[must_use]
    pub fn backfill(mut self, backfill: bool) -> Self {
        self.backfill = backfill;
        self
    }

    /// A task starts in an idle interval if it is expected to end before the interval does, even if it takes longer by this
    /// share; 0.1 if not given.
    #[must_use]
    pub fn margin(mut self, margin: f64) -> Self {
        self.margin = margin;
        self
    }

    /// What tasks are expected to take before any was measured.
    #[must_use]
    pub fn model(mut self, model: Model) -> Self {
        self.model = model;
        self
    }

    /// Whether to keep a [`Trace`], which grows with every task. Not if not given.
    #[must_use]
    pub fn trace(mut self, trace: bool) -> Self {
        self.trace = trace;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// What became of a snapshot.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Its name.
    pub name: String,
    /// The name and the sizes of each field.
    pub fields: Vec<(String, Summary)>,
    /// Time that it took to copy the values, while the application waited.
    pub capture_seconds: f64,
    /// Time of compression, with the look through the values.
    pub compression_seconds: f64,
    /// Time of writes, with the last one that gives the snapshot its name.
    pub write_seconds: f64,
    /// Writes to the sink.
    pub n_writes: u64,
}

/// What threads share.
struct Inner {
    options: Options,
    sink: Box<dyn Sink>,
    start: Instant,
    state: Mutex<State>,
    buffers: Arc<Buffers>,
    changed: Condvar,
}

impl Inner {
    /// Seconds since the start.
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something holds; all tasks may run meanwhile.
    fn wait_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        holds: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        if holds(&state) {
            return state;
        }
        let start = self.now();
        state.start_waiting(start);
        self.changed.notify_all();
        while !holds(&state) {
            state = self.wait(state);
        }
        let now = self.now();
        state.end_waiting(now);
        state.record(Lane::Compute, Activity::Wait, start, now);
        state
    }

    /// Frees memory that is kept for later snapshots, as far as it is more than the limit allows.
    fn trim(&self, used: usize) {
        self.buffers.trim(self.options.memory.saturating_sub(used));
    }

    /// Changes how many guards say that a thread is not as it is by default.
    fn mark(&self, thread: Thread, begins: bool) {
        let mut state = self.lock();
        // With the lock, so that marks of several threads are in the order of their times.
        let now = self.now();
        state.mark(thread, begins, now);
        drop(state);
        self.changed.notify_all();
    }
}

/// Compresses and writes snapshots of an application in its idle times.
///
/// The application marks the start of each iteration, and when its compute thread is idle; until it says so it is busy.
/// Its background thread, if it has one, is idle until it says that it is busy. The intervals of the next iteration
/// are expected to be those of the last. A task that is not expected to end before its interval does is not started. Before
/// the first iteration has ended nothing is expected, and any task may start in an idle interval.
///
/// Dropped, it first waits for all snapshots. [`Scheduler::finish`] says whether they succeeded.
pub struct Scheduler {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Starts the threads that compress and write.
    ///
    /// # Errors
    /// If options make no sense, or the system has no threads.
    pub fn new(sink: impl Sink + 'static, options: Options) -> Result<Self> {
        let n_threads = match options.place {
            Place::IdleTimes => 1,
            Place::Threads(n) => n,
        };
        if n_threads == 0 {
            return Err(invalid("compression on 0 threads never ends: give at least 1"));
        }
        if !(options.margin >= 0.0 && options.margin.is_finite()) {
            return Err(invalid(format!("a margin of {} is none: give 0 or more", options.margin)));
        }
        let state = Mutex::new(State::new(&options));
        let (start, changed, buffers) = (Instant::now(), Condvar::new(), Arc::new(Buffers::default()));
        let inner = Arc::new(Inner { options, sink: Box::new(sink), start, state, buffers, changed });
        let mut scheduler = Self { inner, threads: Vec::new() };
        for _ in 0..n_threads {
            scheduler.spawn("pumice-compress", workers::compress)?;
        }
        scheduler.spawn("pumice-write", workers::write)?;
        Ok(scheduler)
    }

    fn spawn(&mut self, name: &str, work: fn(&Inner)) -> Result<()> {
        let inner = self.inner.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&inner))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Says that an iteration ends, and the next one starts.
    pub fn begin_iteration(&self) {
        let mut state = self.inner.lock();
        let now = self.inner.now();
        state.begin_iteration(now);
        drop(state);
        self.inner.changed.notify_all();
    }

    /// Says that the compute thread is idle while `wait` runs, such as a wait for a GPU.
    pub fn idle<R>(&self, wait: impl FnOnce() -> R) -> R {
        let _idle = self.begin_idle();
        wait()
    }

    /// Says that the compute thread is idle until the guard is dropped.
    pub fn begin_idle(&self) -> Idle<'_> {
        self.inner.mark(Thread::Compute, true);
        Idle { inner: &self.inner }
    }

    /// Says when the background thread is busy; may be sent there.
    pub fn background(&self) -> Background {
        Background { inner: self.inner.clone() }
    }

    /// Copies the values of fields, and returns while they are still to be compressed and written. The snapshot appears in the
    /// sink when it is complete.
    ///
    /// # Errors
    /// If two fields have one name, if the values alone are larger than [`Options::memory`], or if that is used up and
    /// [`WhenFull::Refuse`] was asked for. All other errors arrive at [`Handle::wait`].
    pub fn snapshot(&self, name: &str, fields: &[Field<'_>]) -> Result<Handle> {
        let within = |e: Error| e.context(format!("snapshot {name}"));
        if let Some(field) = (1..fields.len()).find(|i| fields[..*i].iter().any(|f| f.name() == fields[*i].name())) {
            let message = format!("two fields are named {}: each needs a name of its own", fields[field].name());
            return Err(within(invalid(message)));
        }
        if fields.is_empty() {
            return Err(within(invalid("there are no fields: give at least one")));
        }
        let bytes = fields.iter().fold(0_usize, |sum, field| sum.saturating_add(field.value_bytes()));
        let limit = self.inner.options.memory;
        if bytes > limit {
            let message =
                format!("{bytes} bytes of values are more than the memory for snapshots, {limit}: allow more");
            return Err(within(Error::new(ErrorKind::LimitExceeded, message)));
        }
        let mut state = self.inner.lock();
        if self.inner.options.when_full == WhenFull::Refuse && state.used() + bytes > limit {
            let message = format!(
                "{bytes} bytes do not fit beside the {} of earlier snapshots into the {limit} that are allowed: wait for an \
                 earlier one, or allow more",
                state.used()
            );
            return Err(within(Error::new(ErrorKind::LimitExceeded, message)));
        }
        // Blocks that do not get smaller are larger by a header, so that nothing but they may be left above the limit.
        state = self.inner.wait_until(state, |state| state.used() + bytes <= limit || state.is_done());
        let start = self.inner.now();
        state.start_capture(bytes, start);
        drop(state);
        let captured: Result<Vec<_>> = fields
            .iter()
            .map(|field| {
                Ok((field.name().to_owned(), field.capture(&self.inner.buffers).map_err(|e| e.context(field.name()))?))
            })
            .collect();
        let mut state = self.inner.lock();
        let now = self.inner.now();
        let id = state.end_capture(name, bytes, captured, start, now);
        drop(state);
        self.inner.changed.notify_all();
        Ok(Handle { inner: self.inner.clone(), id: id.map_err(within)?, is_waited_for: false })
    }

    /// Bytes of values and compressed blocks that wait.
    pub fn held_bytes(&self) -> usize {
        self.inner.lock().used()
    }

    /// Returns what was traced so far, and forgets it.
    pub fn take_trace(&self) -> Trace {
        self.inner.lock().take_trace()
    }

    /// Waits for all snapshots. Returns the first error of those whose handle was dropped.
    pub fn finish(self) -> Result<()> {
        let mut state = self.inner.wait_until(self.inner.lock(), State::is_done);
        let error = state.take_error();
        drop(state);
        error.map_or(Ok(()), Err)
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let mut state = self.inner.wait_until(self.inner.lock(), State::is_done);
        state.close();
        drop(state);
        self.inner.changed.notify_all();
        for thread in self.threads.drain(..) {
            // It catches panics of tasks, and has nothing to return.
            let _ = thread.join();
        }
    }
}

/// The compute thread is idle while this lives.
#[derive(Debug)]
#[must_use = "the compute thread is idle until this is dropped"]
pub struct Idle<'a> {
    inner: &'a Inner,
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.inner.mark(Thread::Compute, false);
    }
}

/// Marks of the application's background thread, such as one that communicates. Writes keep out of the way of what it
/// does.
#[derive(Clone, Debug)]
pub struct Background {
    inner: Arc<Inner>,
}

impl Background {
    /// Says that the background thread is busy while `work` runs.
    pub fn busy<R>(&self, work: impl FnOnce() -> R) -> R {
        let _busy = self.begin_busy();
        work()
    }

    /// Says that the background thread is busy until the guard is dropped.
    pub fn begin_busy(&self) -> Busy {
        self.inner.mark(Thread::Background, true);
        Busy { inner: self.inner.clone() }
    }
}

/// The background thread is busy while this lives.
#[derive(Debug)]
#[must_use = "the background thread is busy until this is dropped"]
pub struct Busy {
    inner: Arc<Inner>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.inner.mark(Thread::Background, false);
    }
}

/// A snapshot on its way. Dropped, it goes on; if it fails, [`Scheduler::finish`] says so.
#[derive(Debug)]
#[must_use = "errors arrive at `wait`"]
pub struct Handle {
    inner: Arc<Inner>,
    id: u64,
    is_waited_for: bool,
}

impl Handle {
    /// Whether it has ended, well or not.
    pub fn is_done(&self) -> bool {
        self.inner.lock().is_ended(self.id)
    }

    /// Waits until the snapshot is complete. Tasks do not wait for idle intervals meanwhile: the compute thread waits itself.
    pub fn wait(mut self) -> Result<Report> {
        self.is_waited_for = true;
        let mut state = self.inner.wait_until(self.inner.lock(), |state| state.is_ended(self.id));
        state.take_result(self.id).unwrap_or_else(|| Err(invalid("the snapshot has no result")))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_waited_for {
            self.inner.lock().leave(self.id);
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("options", &self.options).finish_non_exhaustive()
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}
