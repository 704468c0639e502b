//! Schedules against brute force and against what no schedule may do.

use proptest::prelude::*;
use pumice_schedule::schedule::{Busy, Job, Schedule, Span, order, place};

/// Whole seconds, so that sums are exact.
fn jobs(n: std::ops::Range<usize>, n_chains: usize) -> impl Strategy<Value = Vec<Job>> {
    let job = (0..n_chains, 0..12_u32, 0..12_u32);
    let job = job.prop_map(|(chain, a, b)| Job { chain, compression: f64::from(a), io: f64::from(b) });
    prop::collection::vec(job, n)
}

fn unrelated(mut jobs: Vec<Job>) -> Vec<Job> {
    jobs.iter_mut().enumerate().for_each(|(i, job)| job.chain = i);
    jobs
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let span = (0..60_u32, 0..9_u32).prop_map(|(start, n)| Span { start: f64::from(start), end: f64::from(start + n) });
    prop::collection::vec(span, 0..7)
}

fn busy() -> impl Strategy<Value = Busy> {
    (spans(), spans()).prop_map(|(compute, background)| Busy { compute, background })
}

/// The least end of all orders that keep the chains. Without intervals some schedule that has one order on both machines
/// is optimal (Conway, Maxwell and Miller).
fn least_end(jobs: &[Job], compute: f64, background: f64, done: &mut Vec<bool>) -> f64 {
    let mut least = f64::INFINITY;
    for i in 0..jobs.len() {
        let follows = |before: usize| jobs[before].chain == jobs[i].chain && !done[before];
        if done[i] || (0..i).any(follows) {
            continue;
        }
        done[i] = true;
        let compressed = compute + jobs[i].compression;
        least = least.min(least_end(jobs, compressed, background.max(compressed) + jobs[i].io, done));
        done[i] = false;
    }
    if least.is_finite() { least } else { background }
}

fn overlap(a: &Span, b: &Span) -> bool {
    a.seconds() > 0.0 && b.seconds() > 0.0 && a.start < b.end && b.start < a.end
}

/// What must hold for every schedule.
fn check(jobs: &[Job], busy: &Busy, schedule: &Schedule) -> Result<(), TestCaseError> {
    let Schedule { compressions, writes } = schedule;
    for (tasks, busy) in [(compressions, &busy.compute), (writes, &busy.background)] {
        for (i, task) in tasks.iter().enumerate() {
            prop_assert!(!busy.iter().any(|span| overlap(task, span)), "{task:?} is in a busy interval");
            prop_assert!(!tasks[..i].iter().any(|other| overlap(task, other)), "{task:?} overlaps another");
        }
    }
    for (i, job) in jobs.iter().enumerate() {
        prop_assert_eq!(compressions[i].seconds(), job.compression);
        prop_assert_eq!(writes[i].seconds(), job.io);
        prop_assert!(compressions[i].end <= writes[i].start);
        let chain: Vec<usize> = (0..i).filter(|other| jobs[*other].chain == job.chain).collect();
        prop_assert!(chain.iter().all(|other| writes[*other].end <= writes[i].start));
        prop_assert!(chain.first().is_none_or(|first| compressions[*first].end <= compressions[i].start));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn is_optimal_without_intervals(jobs in jobs(0..9, 8), chained in any::<bool>()) {
        let jobs = if chained { jobs } else { unrelated(jobs) };
        let best = least_end(&jobs, 0.0, 0.0, &mut vec![false; jobs.len()]);
        let none = Busy::default();
        for backfill in [false, true] {
            let schedule = place(&jobs, &order(&jobs), &none, backfill);
            check(&jobs, &none, &schedule)?;
            prop_assert_eq!(schedule.end(), best);
        }
    }

    #[test]
    fn unrelated_jobs_are_in_johnsons_order(jobs in jobs(0..40, 1)) {
        let jobs = unrelated(jobs);
        let mut expected: Vec<usize> = (0..jobs.len()).filter(|i| jobs[*i].compression <= jobs[*i].io).collect();
        expected.sort_by_key(|i| jobs[*i].compression as u64);
        let mut second: Vec<usize> = (0..jobs.len()).filter(|i| jobs[*i].compression > jobs[*i].io).collect();
        second.sort_by_key(|i| std::cmp::Reverse(jobs[*i].io as u64));
        expected.extend(second);
        prop_assert_eq!(order(&jobs), expected);
    }

    #[test]
    fn tasks_keep_clear_of_intervals_and_of_each_other(jobs in jobs(0..40, 5), busy in busy()) {
        for backfill in [false, true] {
            check(&jobs, &busy, &place(&jobs, &order(&jobs), &busy, backfill))?;
        }
    }

    #[test]
    fn backfilling_delays_no_task(jobs in jobs(0..40, 6), busy in busy()) {
        let order = order(&jobs);
        let (without, with) = (place(&jobs, &order, &busy, false), place(&jobs, &order, &busy, true));
        for i in 0..jobs.len() {
            prop_assert!(with.compressions[i].end <= without.compressions[i].end);
            prop_assert!(with.writes[i].end <= without.writes[i].end);
        }
        // Nothing that was scheduled before a job moves for it.
        let half = &order[..order.len() / 2];
        let (mut first, mut renamed) = (Vec::new(), Vec::new());
        for i in 0..jobs.len() {
            if let Some(at) = half.iter().position(|job| *job == i) {
                first.push(jobs[i]);
                renamed.push((at, i));
            }
        }
        let mut half_order: Vec<(usize, usize)> = renamed.iter().enumerate().map(|(new, (at, _))| (*at, new)).collect();
        half_order.sort_unstable();
        let half_order: Vec<usize> = half_order.into_iter().map(|(_, new)| new).collect();
        let earlier = place(&first, &half_order, &busy, true);
        for (new, (_, i)) in renamed.iter().enumerate() {
            prop_assert_eq!(earlier.compressions[new], with.compressions[*i]);
            prop_assert_eq!(earlier.writes[new], with.writes[*i]);
        }
    }

    #[test]
    fn a_schedule_that_comes_as_expected_is_kept(jobs in jobs(0..30, 6), busy in busy()) {
        let schedule = place(&jobs, &order(&jobs), &busy, true);
        let replayed = schedule.replay(&jobs, &busy);
        check(&jobs, &busy, &replayed)?;
        prop_assert!(replayed.end() <= schedule.end());
    }

    #[test]
    fn a_schedule_can_be_replayed_with_other_times(
        jobs in jobs(30..31, 6), others in jobs(30..31, 6), expected in busy(), found in busy()
    ) {
        let schedule = place(&jobs, &order(&jobs), &expected, true);
        let actual: Vec<Job> =
            jobs.iter().zip(others).map(|(job, other)| Job { chain: job.chain, ..other }).collect();
        check(&actual, &found, &schedule.replay(&actual, &found))?;
    }
}
