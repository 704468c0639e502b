//! `cargo xtask exhaustive`: every f32 bit pattern through `fast` at four bounds, by the public API, judged by a check
//! that shares nothing with the library.
//!
//! Three passes cover each pattern: in order (neighbours are close, so tiles are quantised or coded exactly) as lines
//! and as boxes, and scrambled (neighbours differ wildly, so escapes, masks and raw tiles are used).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use pumice::{Bound, Config, DecodeOptions};
use pumice_fuzz::targets::is_within;

use crate::shell::{self, Result};

const BOUNDS: [f64; 4] = [1e-3, 1e-30, 1e-42, 1e30];
const N_PATTERNS: u64 = 1 << 32;
/// Values per array.
const BATCH: u64 = 1 << 24;
/// The extents of a box but for the slowest.
const FACE: u64 = 256 * 256;

/// An order in which the patterns are lined up.
struct Pass {
    name: &'static str,
    /// Odd, so that multiplication by it reaches every pattern once.
    factor: u64,
    is_box: bool,
}

const PASSES: [Pass; 3] = [
    Pass { name: "in order, 1-D", factor: 1, is_box: false },
    Pass { name: "in order, 3-D", factor: 1, is_box: true },
    Pass { name: "scrambled, 1-D", factor: 0x9e37_79b1, is_box: false },
];

pub(crate) fn run(args: &[&str]) -> Result {
    let (mut stride, mut inner) = (1, false);
    let mut threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        match arg {
            "--stride" => stride = shell::parse(arg, rest.next())?,
            "--threads" => threads = shell::parse(arg, rest.next())?,
            "--inner" => inner = true,
            _ => return Err(format!("unknown option '{arg}'")),
        }
    }
    if stride == 0 || threads == 0 {
        return Err("--stride and --threads start at 1".into());
    }
    // What is proven is the build that people use.
    if inner { prove(stride, threads) } else { shell::again(&["--release"], "exhaustive", args) }
}

fn prove(stride: u64, threads: usize) -> Result {
    let mut total = 0;
    for bound in BOUNDS {
        let mut of_bound = 0;
        for pass in &PASSES {
            let start = Instant::now();
            let count = prove_pass(pass, bound, stride, threads)?;
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "ABS {bound:e}  {:<15} {:>10} patterns  ratio {:>8.3}  {seconds:6.1} s  {} violations",
                pass.name,
                count.values,
                count.ratio(),
                count.violations,
            );
            of_bound += count.violations;
        }
        println!("ABS {bound:e}: {of_bound} violations");
        total += of_bound;
    }
    println!("exhaustive: {total} violations in all");
    if total == 0 { Ok(()) } else { Err("a bound was broken".into()) }
}

#[derive(Default)]
struct Count {
    values: u64,
    stream_bytes: u64,
    violations: u64,
}

impl Count {
    fn add(mut self, other: Count) -> Count {
        self.values += other.values;
        self.stream_bytes += other.stream_bytes;
        self.violations += other.violations;
        self
    }

    fn ratio(&self) -> f64 {
        self.values as f64 * 4.0 / self.stream_bytes as f64
    }
}

/// Shares the batches out among threads; the library itself runs on one in each.
fn prove_pass(pass: &Pass, bound: f64, stride: u64, threads: usize) -> Result<Count> {
    let n_values = N_PATTERNS.div_ceil(stride);
    let next = AtomicU64::new(0);
    let work = || {
        let mut batch = Batch::default();
        let mut count = Count::default();
        loop {
            let first = next.fetch_add(BATCH, Relaxed);
            if first >= n_values {
                return Ok(count);
            }
            let n = BATCH.min(n_values - first);
            count = count.add(batch.prove(pass, bound, first, n, stride)?);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a worker panicked".into())));
        ended.reduce(|a: Result<Count>, b| Ok(a?.add(b?))).expect("there is a worker")
    })
}

/// Buffers that are used again.
#[derive(Default)]
struct Batch {
    values: Vec<f32>,
    stream: Vec<u8>,
    restored: Vec<f32>,
}

impl Batch {
    fn prove(&mut self, pass: &Pass, bound: f64, first: u64, n: u64, stride: u64) -> Result<Count> {
        // A box needs whole faces: the patterns go round.
        let n = if pass.is_box { n.next_multiple_of(FACE) } else { n };
        let pattern = |i: u64| (i.wrapping_mul(stride).wrapping_mul(pass.factor)) as u32;
        self.values.clear();
        self.values.extend((first..first + n).map(|i| f32::from_bits(pattern(i))));
        let shape = if pass.is_box { vec![(n / FACE) as usize, 256, 256] } else { vec![n as usize] };
        let failed = |e: pumice::Error| format!("{}, pattern {:#010x} on: {e}", pass.name, pattern(first));
        let config = Config::new(Bound::Abs(bound)).threads(1);
        pumice::compress_into(&self.values, &shape, &config, &mut self.stream).map_err(failed)?;
        self.restored.resize(self.values.len(), 0.0);
        let options = DecodeOptions::new().threads(1);
        pumice::decompress_into(&self.stream, &mut self.restored, &options).map_err(failed)?;
        let pairs = || self.values.iter().zip(&self.restored);
        let violations = pairs().filter(|&(&x, &y)| !keeps(x, y, bound)).count() as u64;
        if violations > 0 {
            let (x, y) = pairs().find(|&(&x, &y)| !keeps(x, y, bound)).expect("there is one");
            println!("  {:#010x} ({x:e}) became {:#010x} ({y:e})", x.to_bits(), y.to_bits());
        }
        Ok(Count { values: n, stream_bytes: self.stream.len() as u64, violations })
    }
}

/// Exact: two-sum in f64, and bits for what is not finite.
fn keeps(x: f32, y: f32, bound: f64) -> bool {
    let is_close = y.is_finite() && is_within(f64::from(x), f64::from(y), bound);
    if x.is_finite() { is_close } else { x.to_bits() == y.to_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_strict() {
        assert!(keeps(1.0, 1.5, 0.5) && !keeps(1.0, 1.5f32.next_up(), 0.5));
        assert!(keeps(f32::NAN, f32::NAN, 1.0) && !keeps(f32::NAN, -f32::NAN, 1.0));
        assert!(!keeps(1.0, f32::NAN, 1e30) && !keeps(f32::INFINITY, f32::MAX, 1e300));
        assert!(keeps(0.0, -0.0, 1e-42));
    }

    #[test]
    fn every_pattern_is_met_once() {
        // A pass is a bijection: its factor is odd.
        assert!(PASSES.iter().all(|pass| pass.factor % 2 == 1));
    }

    #[test]
    fn a_coarse_pass_finds_nothing() {
        for bound in BOUNDS {
            for pass in &PASSES {
                assert_eq!(prove_pass(pass, bound, 65_537, 1).unwrap().violations, 0, "{}", pass.name);
            }
        }
    }
}
