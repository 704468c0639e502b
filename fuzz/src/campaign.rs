//! The stable engine: seeds, stacked random mutations, and a generator with a fixed start, so that execution number n
//! of a target is the same input on every machine. It has no coverage guidance: it relies on seeds that are close to the
//! interesting inputs.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use pumice_testkit::Rng;

use crate::Target;

/// Inputs do not grow beyond this.
const MAX_BYTES: usize = 4096;
/// An execution that takes longer is a finding.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Numbers at which parsers tend to fail.
const NUMBERS: [u64; 14] = [0, 1, 7, 8, 63, 64, 127, 128, 255, 4096, 0xffff, 0x7fff_ffff, i64::MAX as u64, u64::MAX];

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After this many executions.
    Runs(u64),
    /// After this time.
    Time(Duration),
}

/// What a campaign did.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Executions done, all without a finding.
    pub runs: u64,
    /// How long they took.
    pub elapsed: Duration,
    /// The slowest of them.
    pub slowest: Duration,
}

/// An input on which a target panicked or hung.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The message of the panic.
    pub message: String,
    /// The input.
    pub input: Vec<u8>,
    /// Number of the execution.
    pub run: u64,
}

/// Runs `target` on mutated `seeds` until `limit`, calling `progress` every few seconds.
pub fn run(
    target: Target,
    seeds: &[Vec<u8>],
    start: u64,
    limit: Limit,
    mut progress: impl FnMut(u64, Duration),
) -> Result<Outcome, Finding> {
    let mut random = Rng::new(start);
    let mut input = Vec::new();
    let (began, mut reported, mut slowest) = (Instant::now(), Duration::ZERO, Duration::ZERO);
    let mut runs = 0;
    loop {
        let elapsed = began.elapsed();
        let is_over = match limit {
            Limit::Runs(n) => runs >= n,
            Limit::Time(time) => elapsed >= time,
        };
        if is_over {
            return Ok(Outcome { runs, elapsed, slowest });
        }
        if elapsed - reported >= Duration::from_secs(10) {
            reported = elapsed;
            progress(runs, elapsed);
        }
        // The seeds themselves come first.
        match seeds.get(runs as usize) {
            Some(seed) => seed.clone_into(&mut input),
            None => mutate(&mut random, seeds, &mut input),
        }
        let before = Instant::now();
        let ended = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        let took = before.elapsed();
        slowest = slowest.max(took);
        let message = match ended {
            Ok(()) if took <= MAX_TIME => None,
            Ok(()) => Some(format!("took {took:?}")),
            Err(panicked) => Some(text_of(&*panicked)),
        };
        if let Some(message) = message {
            return Err(Finding { message, input, run: runs });
        }
        runs += 1;
    }
}

fn text_of(panicked: &(dyn Any + Send)) -> String {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panicked.downcast_ref::<&str>().copied()).unwrap_or("panicked").into()
}

/// A seed with one to eight changes.
fn mutate(random: &mut Rng, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    input.clear();
    if !seeds.is_empty() {
        input.extend_from_slice(&seeds[random.below(seeds.len())]);
    }
    for _ in 0..1 << random.below(4) {
        change(random, seeds, input);
    }
    input.truncate(MAX_BYTES);
}

fn change(random: &mut Rng, seeds: &[Vec<u8>], input: &mut Vec<u8>) {
    if input.is_empty() {
        input.push(random.bits() as u8);
        return;
    }
    // Half of all changes aim at the first bytes, where the parameters are.
    let span = if random.below(2) == 0 { input.len() } else { input.len().min(48) };
    let at = random.below(span);
    match random.below(9) {
        0 | 1 => input[at] ^= 1 << random.below(8),
        2 => input[at] = random.bits() as u8,
        3 => input[at] = input[at].wrapping_add(random.below(17) as u8).wrapping_sub(8),
        4 => {
            let bytes = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
            let n = (1 << random.below(4)).min(input.len() - at);
            input[at..at + n].copy_from_slice(&bytes[..n]);
        }
        5 => {
            let n = (1 + random.below(8)).min(input.len() - at);
            input.drain(at..at + n);
        }
        6 => {
            let n = 1 + random.below(8);
            let byte = random.bits() as u8;
            input.splice(at..at, std::iter::repeat_n(byte, n));
        }
        7 => {
            let other = &seeds[random.below(seeds.len())];
            if !other.is_empty() {
                let from = random.below(other.len());
                let n = (1 + random.below(32)).min(other.len() - from).min(input.len() - at);
                input[at..at + n].copy_from_slice(&other[from..from + n]);
            }
        }
        _ => {
            let from = random.below(input.len());
            let n = (1 + random.below(16)).min(input.len() - at.max(from));
            input.copy_within(from..from + n, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_survives_its_seeds_and_a_few_mutations() {
        for target in crate::TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty());
            let runs = seeds.len() as u64 + 200;
            let outcome = run(target, &seeds, 1, Limit::Runs(runs), |_, _| ());
            let outcome = outcome.unwrap_or_else(|e| panic!("{}: {e:?}", target.name));
            assert_eq!(outcome.runs, runs, "{}", target.name);
        }
    }

    #[test]
    fn findings_are_reported_and_repeat() {
        let picky = |data: &[u8]| assert!(data.len() < 3 || data[2] != 7, "seven");
        let target = Target { name: "picky", about: "", run: picky, seeds: Vec::new };
        let seeds = [vec![0; 4]];
        let find = || run(target, &seeds, 5, Limit::Runs(1_000_000), |_, _| ()).unwrap_err();
        let (first, second) = (find(), find());
        assert_eq!((first.run, &first.input, &*first.message), (second.run, &second.input, "seven"));
    }
}
