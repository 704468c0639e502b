//! Plans: jobs from the snapshots on their way, busy intervals from the last iteration, and the order of tasks.
//!
//! A plan is made without the lock that the application takes to mark its phases.

use std::collections::HashMap;

use super::Place;
use super::snapshot::{FieldState, Snapshot, Task};
use super::state::State;
use crate::phases::Iteration;
use crate::schedule::{Busy, Job, Schedule, Span, order, place};
use crate::trace::{Activity, Event, Lane};

/// The look through a field, or a block of it.
struct Item {
    task: Task,
    /// Whether it is to be compressed yet.
    is_new: bool,
}

/// What is to be planned.
pub(super) struct Problem {
    version: u64,
    now: f64,
    /// Jobs of each snapshot, in the order in which they came.
    snapshots: Vec<(Vec<Item>, Vec<Job>)>,
    busy: Busy,
}

/// The order of tasks.
pub(super) struct Plan {
    pub(super) version: u64,
    pub(super) tasks: Vec<Task>,
    /// When each block of a field of a snapshot is written.
    pub(super) writes: HashMap<(u64, usize), Vec<f64>>,
    /// What is expected to happen.
    pub(super) events: Vec<Event>,
}

/// The busy intervals from now on, in seconds from now: iterations like the last one, until the next snapshot is due. Then
/// the application waits.
fn intervals(last: &Iteration, elapsed: f64, due: f64) -> Busy {
    /// More say no more about the order.
    const MOST: f64 = 100.0;
    if last.seconds <= 0.0 {
        return Busy::default();
    }
    let n_iterations = ((elapsed + due) / last.seconds).ceil().min(MOST) as usize;
    let repeat = |spans: &[Span]| {
        let starts = (0..n_iterations).map(|i| i as f64 * last.seconds - elapsed);
        let all = starts.flat_map(|start| spans.iter().map(move |span| span.later(start)));
        all.filter(|span| span.end > 0.0 && span.start.max(0.0) < due)
            .map(|span| Span { start: span.start.max(0.0), end: span.end.min(due) })
            .collect()
    };
    Busy { compute: repeat(&last.busy.compute), background: repeat(&last.busy.background) }
}

impl Problem {
    pub(super) fn new(state: &State, at: Place, write_bytes: usize, now: f64) -> Self {
        let mut busy = state.phases.last().map_or_else(Busy::default, |last| {
            let elapsed = state.phases.elapsed(now);
            intervals(last, elapsed, state.due(last.seconds, elapsed))
        });
        let n_threads = match at {
            Place::IdleTimes => 1,
            Place::Threads(n) => {
                busy.compute.clear();
                n
            }
        };
        let jobs = JobsOf { state, write_bytes, speed: n_threads as f64 };
        let snapshots = state.snapshots.iter().map(|(id, snapshot)| jobs.snapshot(*id, snapshot)).collect();
        Self { version: state.version, now, snapshots, busy }
    }

    /// Schedules the snapshots one after the other: those that came first go first, and the others fill gaps.
    pub(super) fn solve(self, backfill: bool) -> Plan {
        let mut jobs: Vec<Job> = Vec::new();
        let mut items: Vec<Item> = Vec::new();
        let mut all = Vec::new();
        for (of_snapshot, its_jobs) in self.snapshots {
            let chains = jobs.iter().map(|job| job.chain + 1).max().unwrap_or(0);
            all.extend(order(&its_jobs).into_iter().map(|i| jobs.len() + i));
            jobs.extend(its_jobs.into_iter().map(|job| Job { chain: chains + job.chain, ..job }));
            items.extend(of_snapshot);
        }
        let Schedule { compressions, writes } = place(&jobs, &all, &self.busy, backfill);
        let mut tasks: Vec<usize> = (0..items.len()).filter(|i| items[*i].is_new).collect();
        // Those that start together take no time.
        tasks.sort_by(|a, b| compressions[*a].start.total_cmp(&compressions[*b].start));
        let mut of_fields: HashMap<(u64, usize), Vec<f64>> = HashMap::new();
        for (item, span) in items.iter().zip(&writes) {
            let Task { snapshot, field, block } = item.task;
            let times = of_fields.entry((snapshot, field)).or_default();
            if let Some(block) = block {
                times.resize(times.len().max(block + 1), 0.0);
                times[block] = span.start;
            }
        }
        let events = self.busy.events().chain(tasks_of(&items, &compressions, &writes));
        let events = events.map(|event| Event { span: event.span.later(self.now), ..event }).collect();
        Plan {
            version: self.version,
            events,
            tasks: tasks.into_iter().map(|i| items[i].task).collect(),
            writes: of_fields,
        }
    }
}

impl Busy {
    fn events(&self) -> impl Iterator<Item = Event> {
        let of = |lane: Lane, spans: &[Span]| {
            let spans = spans.to_vec();
            spans.into_iter().map(move |span| Event { lane, activity: Activity::Busy, span })
        };
        of(Lane::Compute, &self.compute).chain(of(Lane::Background, &self.background))
    }
}

/// The tasks of a schedule that take time.
fn tasks_of(items: &[Item], compressions: &[Span], writes: &[Span]) -> impl Iterator<Item = Event> {
    let of = |i: usize| {
        let Task { snapshot, field, block } = items[i].task;
        let first = match block {
            None => Activity::Scan { snapshot, field },
            Some(block) => Activity::Compress { snapshot, field, block },
        };
        let blocks = block.map_or(0..0, |block| block..block + 1);
        let compression = Event { lane: Lane::Compute, activity: first, span: compressions[i] };
        let write = Activity::Write { snapshot, field, blocks };
        [compression, Event { lane: Lane::Background, activity: write, span: writes[i] }]
    };
    (0..items.len()).flat_map(of).filter(|event| event.span.seconds() > 0.0)
}

/// How jobs are made from snapshots.
struct JobsOf<'a> {
    state: &'a State,
    write_bytes: usize,
    speed: f64,
}

impl JobsOf<'_> {
    fn snapshot(&self, id: u64, snapshot: &Snapshot) -> (Vec<Item>, Vec<Job>) {
        let (mut items, mut jobs) = (Vec::new(), Vec::new());
        for (i, field) in snapshot.fields.iter().enumerate() {
            let task = |block| Task { snapshot: id, field: i, block };
            // The chain starts with the look through the values, also if it is over.
            let mut add = |task: Task, io: f64| {
                let is_new = !field.started[task.slot()];
                let compression = if is_new { self.state.expected(task) / self.speed } else { 0.0 };
                items.push(Item { task, is_new });
                jobs.push(Job { chain: i, compression, io });
            };
            add(task(None), 0.0);
            for block in field.next_block()..field.values.n_blocks() {
                add(task(Some(block)), self.write(field, block));
            }
        }
        (items, jobs)
    }

    /// Seconds of the write of a block: its share of one that is as large as writes are.
    fn write(&self, field: &FieldState, block: usize) -> f64 {
        let predictor = &self.state.predictor;
        let bytes = field.encoded(block).map_or_else(
            || predictor.compressed_bytes(&field.name, block, field.values.block_bytes(block)),
            |bytes| bytes as f64,
        );
        let usual = (self.write_bytes as f64).max(bytes).max(1.0);
        predictor.write(usual) * bytes / usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_repeat_until_the_next_snapshot() {
        let span = |start: f64, end: f64| Span { start, end };
        let busy = Busy { compute: vec![span(0.0, 2.0), span(6.0, 7.0)], background: vec![span(9.0, 10.0)] };
        let last = Iteration { seconds: 10.0, busy };
        let found = intervals(&last, 1.0, 16.0);
        assert_eq!(found.compute, [span(0.0, 1.0), span(5.0, 6.0), span(9.0, 11.0), span(15.0, 16.0)]);
        assert_eq!(found.background, [span(8.0, 9.0)]);
        assert_eq!(intervals(&last, 1.0, 0.0), Busy::default());
    }
}
