//! What all threads share: the snapshots on their way, what memory they hold, and which task is next.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pumice::{Error, ErrorKind, Result, Summary};

use super::plan::{Plan, Problem};
use super::snapshot::{FieldState, Snapshot, Task};
use super::{Options, Place, Report};
use crate::field::Captured;
use crate::phases::{Phases, Thread};
use crate::predict::Predictor;
use crate::sink::Pending;
use crate::trace::{Activity, Event, Lane, Trace};

/// Something that the background thread is to do.
pub(super) enum Work {
    /// Write so many pieces of a field that follow each other.
    Write { snapshot: u64, field: usize, pieces: std::ops::Range<usize>, offset: u64, bytes: Vec<Vec<u8>> },
    /// Give the snapshot its name.
    Commit { snapshot: u64 },
}

pub(super) struct State {
    place: Place,
    write_bytes: usize,
    margin: f64,
    pub(super) predictor: Predictor,
    pub(super) phases: Phases,
    /// Guards that say that the threads are not as by default.
    marks: [usize; 2],
    busy_since: [Option<f64>; 2],
    pub(super) snapshots: BTreeMap<u64, Snapshot>,
    ended: HashMap<u64, Result<Report>>,
    /// Snapshots whose handle is gone.
    left: Vec<u64>,
    error: Option<Error>,
    next_id: u64,
    used: usize,
    n_waiting: usize,
    is_closed: bool,
    /// Tasks in the order of the plan, without those that have started.
    tasks: Vec<Task>,
    /// When the plan writes each block.
    writes: HashMap<(u64, usize), Vec<f64>>,
    /// Changes with everything that a plan depends on.
    pub(super) version: u64,
    planned: u64,
    /// The newest snapshot whose plan was traced.
    traced: u64,
    /// The iterations in which the last two snapshots came, and how long the last one had lasted.
    came: [u64; 2],
    came_after: f64,
    trace: Option<Trace>,
}

impl State {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            place: options.place,
            write_bytes: options.write_bytes,
            margin: options.margin,
            predictor: Predictor::new(options.model),
            phases: Phases::new(),
            marks: [0; 2],
            busy_since: [Some(0.0), None],
            snapshots: BTreeMap::new(),
            ended: HashMap::new(),
            left: Vec::new(),
            error: None,
            next_id: 1,
            used: 0,
            n_waiting: 0,
            is_closed: false,
            tasks: Vec::new(),
            writes: HashMap::new(),
            version: 0,
            planned: 0,
            traced: 0,
            came: [0; 2],
            came_after: 0.0,
            trace: options.trace.then(Trace::default),
        }
    }

    pub(super) fn record(&mut self, lane: Lane, activity: Activity, start: f64, end: f64) {
        if let Some(trace) = &mut self.trace {
            trace.found.push(Event { lane, activity, span: crate::schedule::Span { start, end } });
        }
    }

    pub(super) fn take_trace(&mut self) -> Trace {
        self.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn is_done(&self) -> bool {
        self.snapshots.is_empty()
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn mark(&mut self, thread: Thread, begins: bool, now: f64) {
        let (i, lane) = match thread {
            Thread::Compute => (0, Lane::Compute),
            Thread::Background => (1, Lane::Background),
        };
        self.marks[i] = if begins { self.marks[i] + 1 } else { self.marks[i] - 1 };
        let is_busy = (self.marks[i] > 0) == (thread == Thread::Background);
        self.phases.set(thread, is_busy, now);
        match (self.busy_since[i], is_busy) {
            (Some(start), false) => {
                self.record(lane, Activity::Busy, start, now);
                self.busy_since[i] = None;
            }
            (None, true) => self.busy_since[i] = Some(now),
            _ => {}
        }
    }

    pub(super) fn begin_iteration(&mut self, now: f64) {
        self.phases.begin_iteration(now);
        self.version += 1;
    }

    pub(super) fn start_waiting(&mut self, now: f64) {
        if self.n_waiting == 0 {
            self.phases.pause(now);
        }
        self.n_waiting += 1;
    }

    pub(super) fn end_waiting(&mut self, now: f64) {
        self.n_waiting -= 1;
        if self.n_waiting == 0 {
            self.phases.resume(now);
        }
    }

    pub(super) fn start_capture(&mut self, bytes: usize, now: f64) {
        self.used += bytes;
        // Does not open the gates, but is no part of an iteration either.
        if self.n_waiting == 0 {
            self.phases.pause(now);
        }
    }

    /// Adds a snapshot, unless its values could not be copied.
    pub(super) fn end_capture(
        &mut self,
        name: &str,
        bytes: usize,
        fields: Result<Vec<(String, Box<dyn Captured>)>>,
        start: f64,
        now: f64,
    ) -> Result<u64> {
        if self.n_waiting == 0 {
            self.phases.resume(now);
        }
        let fields = fields.inspect_err(|_| self.used -= bytes)?;
        let snapshot = self.next_id;
        self.record(Lane::Compute, Activity::Capture { snapshot }, start, now);
        let report = Report {
            name: name.to_owned(),
            fields: Vec::new(),
            capture_seconds: now - start,
            compression_seconds: 0.0,
            write_seconds: 0.0,
            n_writes: 0,
        };
        let fields = fields.into_iter().map(|(name, values)| FieldState::new(name, values)).collect();
        let state =
            Snapshot { fields, pending: None, used: bytes, n_running: 0, is_writing: false, error: None, report };
        self.snapshots.insert(snapshot, state);
        self.next_id += 1;
        self.came = [self.came[1], self.phases.n_iterations()];
        self.came_after = self.phases.elapsed(now);
        self.version += 1;
        Ok(snapshot)
    }

    /// Seconds until the next snapshot is due, if iterations take so many and snapshots come as regularly as the last two.
    pub(super) fn due(&self, iteration: f64, elapsed: f64) -> f64 {
        let [before, last] = self.came;
        let interval = if before == 0 { 1 } else { (last - before).max(1) };
        let n_left = (last + interval).saturating_sub(self.phases.n_iterations());
        (n_left as f64 * iteration + self.came_after - elapsed).max(0.0)
    }

    /// What there is to plan, if the plan is out of date.
    pub(super) fn problem(&self, now: f64) -> Option<Problem> {
        let is_wanted = self.planned != self.version && !self.snapshots.is_empty();
        is_wanted.then(|| Problem::new(self, self.place, self.write_bytes, now))
    }

    /// Follows a plan, if nothing has changed since.
    pub(super) fn follow(&mut self, plan: Plan) {
        if plan.version != self.version {
            return;
        }
        self.planned = plan.version;
        self.tasks = plan.tasks;
        self.writes = plan.writes;
        let newest = self.snapshots.keys().next_back().copied().unwrap_or(0);
        if let Some(trace) = self.trace.as_mut().filter(|_| newest > self.traced) {
            trace.expected.push((newest, plan.events));
            self.traced = newest;
        }
    }

    /// Whether tasks may start without regard to the application.
    fn is_urgent(&self) -> bool {
        self.n_waiting > 0 || self.is_closed
    }

    /// How long a task of this thread may take now; `None` if none may start.
    fn allowed(&self, thread: Thread, now: f64) -> Option<f64> {
        let is_free = thread == Thread::Compute && matches!(self.place, Place::Threads(_));
        if is_free || self.is_urgent() {
            return Some(f64::INFINITY);
        }
        (!self.phases.is_busy(thread)).then(|| self.phases.idle_for(thread, now) / (1.0 + self.margin))
    }

    /// Seconds that a task of the compute thread should take.
    pub(super) fn expected(&self, task: Task) -> f64 {
        let field = &self.snapshots[&task.snapshot].fields[task.field];
        match task.block {
            None => self.predictor.scan(&field.name, field.value_bytes()),
            Some(block) => self.predictor.compression(&field.name, block, field.values.block_bytes(block)),
        }
    }

    /// Starts the first task of the plan that may run and fits the time that there is.
    pub(super) fn next_task(&mut self, now: f64) -> Option<(Task, Arc<dyn Captured>)> {
        let allowed = self.allowed(Thread::Compute, now)?;
        let fits = |task: &Task| {
            let Some(snapshot) = self.snapshots.get(&task.snapshot).filter(|snapshot| snapshot.error.is_none()) else {
                return false;
            };
            let field = &snapshot.fields[task.field];
            // It may have been started while the plan was made.
            let can_start = !field.started[task.slot()] && (task.block.is_none() || field.is_open);
            can_start && self.expected(*task) <= allowed
        };
        let at = self.tasks.iter().position(fits)?;
        let task = self.tasks.remove(at);
        let snapshot = self.snapshots.get_mut(&task.snapshot)?;
        snapshot.n_running += 1;
        snapshot.fields[task.field].started[task.slot()] = true;
        Some((task, snapshot.fields[task.field].values.clone()))
    }

    /// Keeps the bytes of a task that has ended. Returns the sizes of all blocks if they are complete now.
    pub(super) fn end_task(&mut self, task: Task, result: Result<Vec<u8>>, start: f64, now: f64) -> Option<Vec<u64>> {
        let Task { snapshot: id, field, block } = task;
        let activity = match block {
            None => Activity::Scan { snapshot: id, field },
            Some(block) => Activity::Compress { snapshot: id, field, block },
        };
        self.record(Lane::Compute, activity, start, now);
        let snapshot = self.snapshots.get_mut(&id)?;
        snapshot.n_running -= 1;
        snapshot.report.compression_seconds += now - start;
        let state = &mut snapshot.fields[field];
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(error) => {
                let error = error.context(format!("field {}", state.name));
                self.fail(id, error);
                return None;
            }
        };
        let (n, mut freed) = (bytes.len(), 0);
        match block {
            None => {
                state.is_open = true;
                self.predictor.saw_scan(&state.name, state.value_bytes(), now - start);
                state.pieces[0] = Some(bytes);
            }
            Some(block) => {
                freed = state.values.block_bytes(block);
                self.predictor.saw_compression(&state.name, block, freed, n, now - start);
                state.sizes[block] = n as u64;
                state.n_encoded += 1;
                state.pieces[block + 1] = Some(bytes);
            }
        }
        snapshot.used = snapshot.used + n - freed;
        self.used = self.used + n - freed;
        let is_complete = block.is_some() && state.n_encoded == state.sizes.len();
        // The task goes on until the end of the file is made.
        snapshot.n_running += usize::from(is_complete);
        let sizes = is_complete.then(|| state.sizes.clone());
        self.settle(id);
        sizes
    }

    /// Keeps the end of a file.
    pub(super) fn end_field(&mut self, task: Task, result: Result<(Vec<u8>, Summary)>) {
        let Some(snapshot) = self.snapshots.get_mut(&task.snapshot) else { return };
        snapshot.n_running -= 1;
        let state = &mut snapshot.fields[task.field];
        match result {
            Ok((tail, summary)) => {
                snapshot.used += tail.len();
                self.used += tail.len();
                state.summary = Some(summary);
                if let Some(piece) = state.pieces.last_mut() {
                    *piece = Some(tail);
                }
                self.settle(task.snapshot);
            }
            Err(error) => {
                let error = error.context(format!("field {}", state.name));
                self.fail(task.snapshot, error);
            }
        }
    }

    /// Starts the next write: of the field that the plan writes first, if it has enough bytes or is complete, as many of
    /// its pieces as fit the time that there is.
    pub(super) fn next_work(&mut self, now: f64) -> Option<(Work, Option<Box<dyn Pending>>)> {
        let allowed = self.allowed(Thread::Background, now)?;
        let mut first: Option<(f64, u64, usize, usize)> = None;
        for (id, snapshot) in self.snapshots.iter().filter(|(_, s)| s.error.is_none() && !s.is_writing) {
            if snapshot.fields.iter().all(FieldState::is_written) {
                if self.predictor.commit() <= allowed {
                    let id = *id;
                    let snapshot = self.snapshots.get_mut(&id)?;
                    snapshot.is_writing = true;
                    return Some((Work::Commit { snapshot: id }, snapshot.pending.take()));
                }
                continue;
            }
            for (i, field) in snapshot.fields.iter().enumerate() {
                let (mut bytes, mut n) = (0, 0);
                for size in field.ready() {
                    let more = bytes + size;
                    if bytes >= self.write_bytes || self.predictor.write(more as f64) > allowed {
                        break;
                    }
                    (bytes, n) = (more, n + 1);
                }
                let is_last = field.next + n == field.pieces.len();
                let is_enough = bytes >= self.write_bytes || is_last || field.summary.is_some();
                if n == 0 || !is_enough {
                    continue;
                }
                let planned = self.writes.get(&(*id, i)).and_then(|writes| writes.get(field.next_block()));
                let planned = planned.copied().unwrap_or(f64::INFINITY);
                if first.is_none_or(|(time, ..)| planned < time) {
                    first = Some((planned, *id, i, n));
                }
            }
        }
        let (_, id, i, n) = first?;
        let snapshot = self.snapshots.get_mut(&id)?;
        snapshot.is_writing = true;
        let field = &mut snapshot.fields[i];
        let pieces = field.next..field.next + n;
        let bytes = field.pieces[pieces.clone()].iter_mut().filter_map(Option::take).collect();
        let write = Work::Write { snapshot: id, field: i, pieces, offset: field.offset, bytes };
        Some((write, snapshot.pending.take()))
    }

    /// The name of a snapshot and those of its fields.
    pub(super) fn names(&self, id: u64) -> (String, Vec<String>) {
        let snapshot = &self.snapshots[&id];
        (snapshot.report.name.clone(), snapshot.fields.iter().map(|field| field.name.clone()).collect())
    }

    /// Takes note of a write that has ended.
    pub(super) fn end_write(
        &mut self,
        (id, field, pieces, n_bytes): (u64, usize, std::ops::Range<usize>, usize),
        result: Result<Box<dyn Pending>>,
        start: f64,
        now: f64,
    ) {
        let Some(snapshot) = self.snapshots.get_mut(&id) else { return };
        snapshot.is_writing = false;
        snapshot.report.write_seconds += now - start;
        snapshot.report.n_writes += 1;
        snapshot.used -= n_bytes;
        self.used -= n_bytes;
        let n_blocks = snapshot.fields[field].sizes.len();
        let blocks = pieces.start.saturating_sub(1).min(n_blocks)..(pieces.end - 1).min(n_blocks);
        match result {
            Ok(pending) => {
                snapshot.pending = Some(pending);
                let state = &mut snapshot.fields[field];
                state.next = pieces.end;
                state.offset += n_bytes as u64;
                self.predictor.saw_write(n_bytes, now - start);
                self.settle(id);
            }
            Err(error) => self.fail(id, error),
        }
        self.record(Lane::Background, Activity::Write { snapshot: id, field, blocks }, start, now);
    }

    /// Takes note of a snapshot that has got its name, or not.
    pub(super) fn end_commit(&mut self, id: u64, result: Result<()>, start: f64, now: f64) {
        self.record(Lane::Background, Activity::Commit { snapshot: id }, start, now);
        let Some(snapshot) = self.snapshots.get_mut(&id) else { return };
        snapshot.is_writing = false;
        snapshot.report.write_seconds += now - start;
        match result {
            Ok(()) => {
                self.predictor.saw_commit(now - start);
                let Some(snapshot) = self.snapshots.remove(&id) else { return };
                self.used -= snapshot.used;
                let summaries = snapshot.fields.into_iter().map(|f| Some((f.name, f.summary?)));
                let fields = summaries.collect::<Option<_>>().unwrap_or_default();
                self.end(id, Ok(Report { fields, ..snapshot.report }));
            }
            Err(error) => self.fail(id, error),
        }
    }

    /// Gives a snapshot up.
    fn fail(&mut self, id: u64, error: Error) {
        if let Some(snapshot) = self.snapshots.get_mut(&id) {
            let error = error.context(format!("snapshot {}", snapshot.report.name));
            snapshot.error.get_or_insert(error);
        }
        self.settle(id);
    }

    /// Ends a snapshot that has failed, once none of its tasks runs.
    fn settle(&mut self, id: u64) {
        let Some(snapshot) = self.snapshots.get_mut(&id) else { return };
        if snapshot.n_running > 0 || snapshot.is_writing {
            return;
        }
        let Some(error) = snapshot.error.take() else { return };
        // What was written is removed here.
        if let Some(snapshot) = self.snapshots.remove(&id) {
            self.used -= snapshot.used;
        }
        self.tasks.retain(|task| task.snapshot != id);
        self.end(id, Err(error));
    }

    fn end(&mut self, id: u64, result: Result<Report>) {
        self.version += 1;
        match self.left.iter().position(|left| *left == id) {
            Some(at) => {
                self.left.swap_remove(at);
                self.keep_error(result);
            }
            None => {
                self.ended.insert(id, result);
            }
        }
    }

    fn keep_error(&mut self, result: Result<Report>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    pub(super) fn is_ended(&self, id: u64) -> bool {
        self.ended.contains_key(&id)
    }

    pub(super) fn take_result(&mut self, id: u64) -> Option<Result<Report>> {
        self.ended.remove(&id)
    }

    /// Nobody will ask for the result.
    pub(super) fn leave(&mut self, id: u64) {
        match self.take_result(id) {
            Some(result) => self.keep_error(result),
            None => self.left.push(id),
        }
    }

    /// The first error that nobody was told.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }
}

/// The error of a task that panicked.
pub(super) fn panicked(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what} panicked: this is an error of Pumice or of the sink, report it"))
}
