//! Schedules of compression and writing: a flow shop of two machines that are not always available.
//!
//! A job is a block of a field: its compression runs on the compute thread, its write on the background thread after that.
//! The busy intervals of both threads cannot be moved, and a task that has started runs to its end. Without busy intervals
//! Johnson's order is optimal; with them the problem is NP-hard, and the same order is followed as well as it goes.
//!
//! A file holds its blocks in order, so a write needs the sizes of all blocks before it. The jobs of a file are therefore a
//! [`chain`](Job::chain). Chains are ordered by the theorem of Kurisu and Sidney: neighbours that Johnson's rule would
//! swap become one composite job. Where each job is a chain of its own, this is Johnson's order.
//!
//! ```
//! use pumice_schedule::schedule::{Busy, Job, Span, order, place};
//! let jobs = [Job { chain: 0, compression: 3.0, io: 1.0 }, Job { chain: 1, compression: 1.0, io: 2.0 }];
//! let order = order(&jobs);
//! assert_eq!(order, [1, 0]);
//! let busy = Busy { compute: vec![Span { start: 2.0, end: 4.0 }], background: vec![] };
//! let schedule = place(&jobs, &order, &busy, true);
//! assert_eq!(schedule.end(), 8.0); // the second compression does not fit before the busy interval
//! assert_eq!(schedule.overhead(7.0), 1.0);
//! ```

/// An interval of time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Where it starts.
    pub start: f64,
    /// Where it ends; not before the start.
    pub end: f64,
}

impl Span {
    /// Its length.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }

    /// The same interval later by so many seconds.
    #[must_use]
    pub fn later(self, seconds: f64) -> Self {
        Self { start: self.start + seconds, end: self.end + seconds }
    }
}

/// A block: the seconds that its compression and its write take, neither negative nor NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Jobs of one chain are written in the order in which they are given, and none of them starts before the first
    /// one is compressed.
    pub chain: usize,
    /// Time on the compute thread.
    pub compression: f64,
    /// Time on the background thread.
    pub io: f64,
}

/// When the threads do work of the application. The intervals of each are in any order, and may overlap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Busy {
    /// Intervals of the compute thread.
    pub compute: Vec<Span>,
    /// Intervals of the background thread.
    pub background: Vec<Span>,
}

/// When the tasks of each job run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// The compression of each job.
    pub compressions: Vec<Span>,
    /// The write of each job.
    pub writes: Vec<Span>,
}

impl Schedule {
    /// When the last task ends; 0 if there is none.
    pub fn end(&self) -> f64 {
        self.compressions.iter().chain(&self.writes).fold(0.0, |end, span| span.end.max(end))
    }

    /// How long it goes on after the end of the iteration.
    pub fn overhead(&self, iteration_end: f64) -> f64 {
        (self.end() - iteration_end).max(0.0)
    }

    /// What becomes of the schedule if tasks take other times and intervals are elsewhere than expected: each machine
    /// keeps the order of its tasks, and each task starts as soon as it can.
    ///
    /// # Panics
    /// If there are not as many jobs.
    #[must_use]
    pub fn replay(&self, jobs: &[Job], busy: &Busy) -> Schedule {
        assert_eq!(jobs.len(), self.writes.len(), "the schedule is of other jobs");
        let by_start = |spans: &[Span]| {
            let mut order: Vec<usize> = (0..jobs.len()).collect();
            // Tasks that take no time may start where others do.
            order.sort_by(|a, b| {
                let key = |i: &usize| (spans[*i].start, spans[*i].end);
                let ((a_start, a_end), (b_start, b_end)) = (key(a), key(b));
                a_start.total_cmp(&b_start).then(a_end.total_cmp(&b_end))
            });
            order
        };
        let chains = Chains::new(jobs);
        let none = Span { start: 0.0, end: 0.0 };
        let mut replayed = Schedule { compressions: vec![none; jobs.len()], writes: vec![none; jobs.len()] };
        let mut compute = Machine::new(&busy.compute, false);
        for i in by_start(&self.compressions) {
            let ready = chains.opened(i, &replayed.compressions);
            replayed.compressions[i] = compute.place(ready, jobs[i].compression);
        }
        let mut background = Machine::new(&busy.background, false);
        for i in by_start(&self.writes) {
            let ready = chains.writable(i, &replayed);
            replayed.writes[i] = background.place(ready, jobs[i].io);
        }
        replayed
    }
}

/// Where each job is in its chain.
struct Chains {
    first: Vec<usize>,
    previous: Vec<Option<usize>>,
}

impl Chains {
    fn new(jobs: &[Job]) -> Self {
        let mut ends: std::collections::HashMap<usize, (usize, usize)> = std::collections::HashMap::new();
        let (mut first, mut previous) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
        for (i, job) in jobs.iter().enumerate() {
            let end = ends.entry(job.chain).or_insert((i, i));
            first.push(end.0);
            previous.push((end.0 != i).then_some(end.1));
            end.1 = i;
        }
        Self { first, previous }
    }

    /// From when on a job can be compressed.
    fn opened(&self, i: usize, compressions: &[Span]) -> f64 {
        if self.first[i] == i { 0.0 } else { compressions[self.first[i]].end }
    }

    /// From when on a job can be written: it and all before it are compressed, and those are written.
    fn writable(&self, i: usize, schedule: &Schedule) -> f64 {
        // The write before this one waited for all compressions before it.
        let before = self.previous[i].map_or(0.0, |previous| schedule.writes[previous].end);
        schedule.compressions[i].end.max(before)
    }
}

/// A run of jobs of one chain that stays together, with the times of the single job that it is like.
#[derive(Clone, Debug)]
struct Composite {
    compression: f64,
    io: f64,
    jobs: Vec<usize>,
}

impl Composite {
    /// Johnson's rule: jobs whose compression is not longer than their write come first, ascending by compression; the
    /// others descending by write.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let is_second = |job: &Self| job.compression > job.io;
        is_second(self).cmp(&is_second(other)).then_with(|| {
            if is_second(self) { other.io.total_cmp(&self.io) } else { self.compression.total_cmp(&other.compression) }
        })
    }

    /// This one, and then the next.
    fn join(mut self, next: Self) -> Self {
        // The background thread waits for what the first write does not cover, and has left what the second compression
        // does not.
        let compression = self.compression + (next.compression - self.io).max(0.0);
        let io = next.io + (self.io - next.compression).max(0.0);
        self.jobs.extend(next.jobs);
        Self { compression, io, jobs: self.jobs }
    }
}

/// The order in which jobs are scheduled: Johnson's, within what the chains allow. Equal jobs keep the order in which they
/// are given.
pub fn order(jobs: &[Job]) -> Vec<usize> {
    let mut chains: std::collections::BTreeMap<usize, Vec<Composite>> = std::collections::BTreeMap::new();
    for (i, job) in jobs.iter().enumerate() {
        let chain = chains.entry(job.chain).or_default();
        let mut last = Composite { compression: job.compression, io: job.io, jobs: vec![i] };
        while let Some(before) = chain.pop_if(|before| last.compare(before).is_lt()) {
            last = before.join(last);
        }
        chain.push(last);
    }
    let mut composites: Vec<Composite> = chains.into_values().flatten().collect();
    composites.sort_by(|a, b| a.compare(b).then(a.jobs[0].cmp(&b.jobs[0])));
    composites.into_iter().flat_map(|composite| composite.jobs).collect()
}

/// A thread, and when it has something to do.
struct Machine {
    /// Disjoint, ascending, with gaps between them.
    taken: Vec<Span>,
    /// The end of the last task.
    end: f64,
    backfills: bool,
}

impl Machine {
    fn new(busy: &[Span], backfills: bool) -> Self {
        let mut taken: Vec<Span> = busy.iter().copied().filter(|span| span.end > span.start).collect();
        taken.sort_by(|a, b| a.start.total_cmp(&b.start));
        taken.dedup_by(|next, span| {
            let touches = next.start <= span.end;
            if touches {
                span.end = span.end.max(next.end);
            }
            touches
        });
        Self { taken, end: 0.0, backfills }
    }

    /// Puts a task where it can start first.
    fn place(&mut self, ready: f64, seconds: f64) -> Span {
        let mut start = if self.backfills { ready } else { ready.max(self.end) };
        let mut at = self.taken.partition_point(|span| span.end <= start);
        while let Some(span) = self.taken.get(at).filter(|span| start + seconds > span.start) {
            start = span.end;
            at += 1;
        }
        let task = Span { start, end: start + seconds };
        self.end = self.end.max(task.end);
        if seconds > 0.0 {
            let joins_next = self.taken.get(at).is_some_and(|next| next.start <= task.end);
            let joins_last = at > 0 && self.taken[at - 1].end >= task.start;
            match (joins_last, joins_next) {
                (true, true) => {
                    self.taken[at - 1].end = self.taken[at].end;
                    self.taken.remove(at);
                }
                (true, false) => self.taken[at - 1].end = task.end,
                (false, true) => self.taken[at].start = task.start,
                (false, false) => self.taken.insert(at, task),
            }
        }
        task
    }
}

/// Schedules jobs one after the other in this order. Each task starts as soon as it can: after all tasks of its machine
/// that are scheduled already, or, with `backfill`, in any gap that is long enough. No task that is scheduled moves again.
///
/// With backfilling no task ever ends later than without: by induction, the thread is free for each task no later.
///
/// # Panics
/// If `order` is not an order of all jobs that keeps the jobs of each chain in order.
pub fn place(jobs: &[Job], order: &[usize], busy: &Busy, backfill: bool) -> Schedule {
    assert_eq!(jobs.len(), order.len(), "the order is not of these jobs");
    let chains = Chains::new(jobs);
    let none = Span { start: 0.0, end: f64::NAN };
    let mut schedule = Schedule { compressions: vec![none; jobs.len()], writes: vec![none; jobs.len()] };
    let mut compute = Machine::new(&busy.compute, backfill);
    let mut background = Machine::new(&busy.background, backfill);
    for &i in order {
        let is_new = schedule.writes[i].end.is_nan();
        assert!(is_new && chains.previous[i].is_none_or(|previous| !schedule.writes[previous].end.is_nan()));
        schedule.compressions[i] = compute.place(chains.opened(i, &schedule.compressions), jobs[i].compression);
        schedule.writes[i] = background.place(chains.writable(i, &schedule), jobs[i].io);
    }
    schedule
}
