//! When the threads of the application are busy: recorded in each iteration, and expected to be the same in the next.
//!
//! The clock stands still while the application waits for snapshots, as that is no part of its iterations.

use crate::schedule::{Busy, Span};

/// What an iteration was like; times since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Iteration {
    pub(crate) seconds: f64,
    pub(crate) busy: Busy,
}

/// A thread of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    Compute,
    Background,
}

/// The marks of one thread.
#[derive(Debug)]
struct Lane {
    /// Busy intervals of this iteration that have ended.
    ended: Vec<Span>,
    /// When the current busy interval started.
    since: Option<f64>,
    /// Busy intervals that have started in this iteration.
    n_started: usize,
}

impl Lane {
    fn new(is_busy: bool) -> Self {
        Self { ended: Vec::new(), since: is_busy.then_some(0.0), n_started: usize::from(is_busy) }
    }

    fn set(&mut self, is_busy: bool, now: f64) {
        match (self.since, is_busy) {
            (Some(start), false) => {
                self.since = None;
                if now > start {
                    self.ended.push(Span { start, end: now });
                } else {
                    self.n_started -= 1;
                }
            }
            (None, true) => {
                self.since = Some(now);
                self.n_started += 1;
            }
            _ => {}
        }
    }

    /// Ends the iteration: what goes on goes on in the next.
    fn next(&mut self, now: f64) -> Vec<Span> {
        let is_busy = self.since.is_some();
        self.set(false, now);
        std::mem::replace(self, Self::new(is_busy)).ended
    }
}

/// The marks of the application.
#[derive(Debug)]
pub(crate) struct Phases {
    /// Of the clock that stands still while it is paused.
    started: f64,
    paused_since: Option<f64>,
    paused: f64,
    compute: Lane,
    background: Lane,
    last: Option<Iteration>,
    n_iterations: u64,
}

impl Phases {
    /// The compute thread is busy until it says otherwise, the background thread is idle.
    pub(crate) fn new() -> Self {
        Self {
            started: 0.0,
            paused_since: None,
            paused: 0.0,
            compute: Lane::new(true),
            background: Lane::new(false),
            last: None,
            n_iterations: 0,
        }
    }

    /// Seconds since the start of the iteration.
    pub(crate) fn elapsed(&self, now: f64) -> f64 {
        self.paused_since.unwrap_or(now) - self.paused - self.started
    }

    fn lane(&self, thread: Thread) -> &Lane {
        match thread {
            Thread::Compute => &self.compute,
            Thread::Background => &self.background,
        }
    }

    pub(crate) fn is_busy(&self, thread: Thread) -> bool {
        self.lane(thread).since.is_some()
    }

    pub(crate) fn set(&mut self, thread: Thread, is_busy: bool, now: f64) {
        let now = self.elapsed(now);
        match thread {
            Thread::Compute => self.compute.set(is_busy, now),
            Thread::Background => self.background.set(is_busy, now),
        }
    }

    pub(crate) fn pause(&mut self, now: f64) {
        self.paused_since.get_or_insert(now);
    }

    pub(crate) fn resume(&mut self, now: f64) {
        if let Some(since) = self.paused_since.take() {
            self.paused += now - since;
        }
    }

    /// Starts the next iteration. What came before the first is not one.
    pub(crate) fn begin_iteration(&mut self, now: f64) {
        let seconds = self.elapsed(now);
        let busy = Busy { compute: self.compute.next(seconds), background: self.background.next(seconds) };
        if self.n_iterations > 0 {
            self.last = Some(Iteration { seconds, busy });
        }
        self.started += seconds;
        self.n_iterations += 1;
    }

    pub(crate) fn n_iterations(&self) -> u64 {
        self.n_iterations
    }

    /// The iteration before this one, which the next are expected to be like.
    pub(crate) fn last(&self) -> Option<&Iteration> {
        self.last.as_ref()
    }

    /// How long a thread that is idle is expected to stay so; infinite if nothing is known.
    ///
    /// The start of the interval after this one is as in the iteration before, but later by what this iteration is late.
    pub(crate) fn idle_for(&self, thread: Thread, now: f64) -> f64 {
        let Some(last) = &self.last else { return f64::INFINITY };
        let lane = self.lane(thread);
        let spans = match thread {
            Thread::Compute => &last.busy.compute,
            Thread::Background => &last.busy.background,
        };
        let before = lane.n_started.checked_sub(1).and_then(|i| Some((spans.get(i)?.end, lane.ended.last()?.end)));
        let late = before.map_or(0.0, |(expected, found)| found - expected);
        let next = match (spans.get(lane.n_started), spans.first()) {
            (Some(next), _) => next.start,
            // In the next iteration.
            (None, Some(first)) => last.seconds + first.start,
            (None, None) => return f64::INFINITY,
        };
        (next + late - self.elapsed(now)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: f64, end: f64) -> Span {
        Span { start, end }
    }

    #[test]
    fn an_iteration_is_expected_to_be_like_the_last() {
        let mut phases = Phases::new();
        phases.set(Thread::Compute, false, 5.0);
        assert_eq!(phases.idle_for(Thread::Compute, 5.0), f64::INFINITY);
        phases.set(Thread::Compute, true, 9.0);
        // 0..2 busy, 2..6 idle, 6..7 busy, 7..10 idle.
        phases.begin_iteration(10.0);
        assert!(phases.last().is_none());
        [(false, 12.0), (true, 16.0), (false, 17.0)].into_iter().for_each(|(b, t)| phases.set(Thread::Compute, b, t));
        [(true, 13.0), (false, 14.0)].into_iter().for_each(|(b, t)| phases.set(Thread::Background, b, t));
        phases.set(Thread::Compute, true, 20.0);
        phases.begin_iteration(20.0);
        let last = phases.last().unwrap();
        assert_eq!(last.seconds, 10.0);
        assert_eq!(last.busy, Busy { compute: vec![span(0.0, 2.0), span(6.0, 7.0)], background: vec![span(3.0, 4.0)] });
        // One second late.
        phases.set(Thread::Compute, false, 23.0);
        assert_eq!(phases.idle_for(Thread::Compute, 24.0), 3.0);
        assert_eq!(phases.idle_for(Thread::Background, 21.0), 2.0);
        assert_eq!(phases.idle_for(Thread::Background, 24.0), 0.0);
        phases.set(Thread::Background, true, 24.0);
        phases.set(Thread::Background, false, 25.0);
        // The next is in the next iteration, a second late as well.
        assert_eq!(phases.idle_for(Thread::Background, 25.0), 9.0);
    }

    #[test]
    fn waiting_is_no_part_of_an_iteration() {
        let mut phases = Phases::new();
        phases.begin_iteration(0.0);
        phases.set(Thread::Compute, false, 1.0);
        phases.pause(2.0);
        phases.resume(50.0);
        phases.set(Thread::Compute, true, 51.0);
        phases.begin_iteration(52.0);
        let last = phases.last().unwrap();
        assert_eq!((last.seconds, last.busy.compute.clone()), (4.0, vec![span(0.0, 1.0), span(3.0, 4.0)]));
    }
}
