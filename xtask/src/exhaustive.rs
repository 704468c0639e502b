//! `cargo xtask exhaustive`: every f32 bit pattern through a preset, by the public API, judged by a check that shares
//! nothing with the library.
//!
//! `fast` has three passes at each of four bounds: in order (neighbours are close, so tiles are quantised or coded
//! exactly) as lines and as boxes, and scrambled (neighbours differ wildly, so escapes, masks and raw tiles are used).
//! Other presets take longer, so each of their passes has one bound. With a relative one every array is quantised, whatever its
//! magnitude, as long as its patterns are neighbours: a stride then leaves out arrays, not patterns of an array.
//! `--bound pwrel` has passes of its own, at bounds relative to each value.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use pumice::{Config, DecodeOptions, ErrorBound, Preset};
use pumice_testkit::check::{is_within, is_within_share};

use crate::fuzz::PROFILE;
use crate::shell::{self, Result};

const N_PATTERNS: u64 = 1 << 32;
/// Values per array.
const BATCH: u64 = 1 << 24;
/// The same under a relative bound: an eighth of an octave.
const REL_BATCH: u64 = 1 << 20;
/// The extents of a box but for the slowest.
const FACE: u64 = 256 * 256;

/// The presets to check unless one is named; `max` differs from `small` in nothing that bounds depend on.
const PRESETS: [Preset; 8] = [
    Preset::Fast,
    Preset::Balanced,
    Preset::Small,
    Preset::Cuszp2Plain,
    Preset::Cuszp2Outlier,
    Preset::Cuszplus,
    Preset::Ceaz,
    Preset::Ceresz2,
];

/// An order in which the patterns are lined up.
struct Order {
    name: &'static str,
    /// Odd, so that multiplication by it reaches every pattern once.
    factor: u64,
    is_box: bool,
}

const LINE: Order = Order { name: "in order, 1-D", factor: 1, is_box: false };
const BOX: Order = Order { name: "in order, 3-D", factor: 1, is_box: true };
const SCRAMBLED: Order = Order { name: "scrambled, 1-D", factor: 0x9e37_79b1, is_box: false };

/// All patterns once, with a bound.
struct Pass {
    preset: Preset,
    order: Order,
    bound: ErrorBound,
}

fn passes(preset: Preset) -> Vec<Pass> {
    let passes = match preset {
        Preset::Fast => {
            let bounds = [1e-3, 1e-30, 1e-42, 1e30].map(ErrorBound::Abs);
            bounds.into_iter().flat_map(|bound| [LINE, BOX, SCRAMBLED].map(|order| (order, bound))).collect()
        }
        _ => vec![
            (LINE, ErrorBound::Abs(1e-3)),
            (LINE, ErrorBound::Rel(1e-5)),
            (BOX, ErrorBound::Rel(1e-3)),
            (SCRAMBLED, ErrorBound::Abs(1e30)),
        ],
    };
    passes.into_iter().map(|(order, bound)| Pass { preset, order, bound }).collect()
}

/// Passes at bounds relative to each value.
fn pointwise_passes(preset: Preset) -> Vec<Pass> {
    let bounds = [1e-1, 1e-2, 1e-4, 1e-6].map(ErrorBound::PwRel);
    let passes = bounds.into_iter().flat_map(|bound| [LINE, SCRAMBLED].map(|order| (order, bound)));
    passes.map(|(order, bound)| Pass { preset, order, bound }).collect()
}

pub(crate) fn run(args: &[&str]) -> Result {
    let (mut stride, mut inner, mut is_pointwise) = (1, false, false);
    // What is proven is the build that people use, unless checks within it are asked for.
    let mut build: &[&str] = &["--release"];
    let mut presets = PRESETS.to_vec();
    let mut threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rest = args.iter();
    while let Some(&arg) = rest.next() {
        match arg {
            "--preset" => presets = vec![shell::parse(arg, rest.next())?],
            "--stride" => stride = shell::parse(arg, rest.next())?,
            "--threads" => threads = shell::parse(arg, rest.next())?,
            "--inner" => inner = true,
            "--checked" => build = &PROFILE,
            "--bound" if rest.next() == Some(&"pwrel") => is_pointwise = true,
            "--bound" => return Err("--bound takes pwrel".into()),
            _ => return Err(format!("unknown option '{arg}'")),
        }
    }
    if stride == 0 || threads == 0 {
        return Err("--stride and --threads start at 1".into());
    }
    let passes = if is_pointwise { pointwise_passes } else { passes };
    if inner {
        prove(presets.iter().flat_map(|preset| passes(*preset)), stride, threads)
    } else {
        shell::again(build, "exhaustive", args)
    }
}

fn prove(passes: impl Iterator<Item = Pass>, stride: u64, threads: usize) -> Result {
    let mut total = 0;
    for pass in passes {
        let start = Instant::now();
        let count = pass.prove(stride, threads)?;
        println!(
            "{:<14} {:<11} {:<15} {:>10} patterns  ratio {:>8.3}  {:6.1} s  {} violations",
            pass.preset.name(),
            format!("{:?}", pass.bound),
            pass.order.name,
            count.values,
            count.ratio(),
            start.elapsed().as_secs_f64(),
            count.violations,
        );
        total += count.violations;
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

impl Pass {
    fn is_relative(&self) -> bool {
        matches!(self.bound, ErrorBound::Rel(_))
    }

    /// Divides the batches among threads; the library uses one thread in each.
    fn prove(&self, stride: u64, threads: usize) -> Result<Count> {
        let n_values = N_PATTERNS.div_ceil(stride);
        let batch_values = if self.is_relative() { REL_BATCH } else { BATCH };
        let next = AtomicU64::new(0);
        let work = || {
            let mut batch = Batch::default();
            let mut count = Count::default();
            loop {
                let first = next.fetch_add(batch_values, Relaxed);
                if first >= n_values {
                    return Ok(count);
                }
                let n = batch_values.min(n_values - first);
                count = count.add(batch.prove(self, first, n, stride)?);
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let ended = workers.into_iter().map(|w| w.join().unwrap_or_else(|_| Err("a worker panicked".into())));
            ended.reduce(|a: Result<Count>, b| Ok(a?.add(b?))).expect("there is a worker")
        })
    }
}

/// Buffers that are reused.
#[derive(Default)]
struct Batch {
    values: Vec<f32>,
    stream: Vec<u8>,
    restored: Vec<f32>,
}

impl Batch {
    fn prove(&mut self, pass: &Pass, first: u64, n: u64, stride: u64) -> Result<Count> {
        let order = &pass.order;
        // A box needs whole faces: the patterns wrap around.
        let n = if order.is_box { n.next_multiple_of(FACE) } else { n };
        let step = if pass.is_relative() { 1 } else { stride };
        let pattern = |i: u64| ((first * stride + (i - first) * step).wrapping_mul(order.factor)) as u32;
        self.values.clear();
        self.values.extend((first..first + n).map(|i| f32::from_bits(pattern(i))));
        let shape = if order.is_box { vec![(n / FACE) as usize, 256, 256] } else { vec![n as usize] };
        let failed = |e: pumice::Error| format!("{}, pattern {:#010x} on: {e}", order.name, pattern(first));
        let config = Config::new(pass.bound).preset(pass.preset).threads(1);
        pumice::compress_into(&self.values, &shape, &config, &mut self.stream).map_err(failed)?;
        self.restored.resize(self.values.len(), 0.0);
        let options = DecodeOptions::new().threads(1);
        pumice::decompress_into(&self.stream, &mut self.restored, &options).map_err(failed)?;
        let bound = self.abs_bound(pass.bound);
        let pairs = || self.values.iter().zip(&self.restored);
        let is_broken = |(x, y): &(&f32, &f32)| match pass.bound {
            ErrorBound::PwRel(e) => !keeps_share(**x, **y, e),
            _ => !keeps(**x, **y, bound),
        };
        let violations = pairs().filter(is_broken).count() as u64;
        if violations > 0 {
            let (x, y) = pairs().find(is_broken).expect("there is one");
            println!("  {:#010x} ({x:e}) became {:#010x} ({y:e})", x.to_bits(), y.to_bits());
        }
        Ok(Count { values: n, stream_bytes: self.stream.len() as u64, violations })
    }

    /// What a bound means for these values, among which there are no fill values but NaN.
    fn abs_bound(&self, bound: ErrorBound) -> f64 {
        let finite = || self.values.iter().map(|x| f64::from(*x)).filter(|x| x.is_finite());
        match bound {
            ErrorBound::Abs(e) => e,
            ErrorBound::Rel(e) => {
                e * (finite().fold(f64::NEG_INFINITY, f64::max) - finite().fold(f64::INFINITY, f64::min)).max(0.0)
            }
            _ => 0.0,
        }
    }
}

/// Exact: two-sum in f64, and bits for what is not finite.
fn keeps(x: f32, y: f32, bound: f64) -> bool {
    let is_close = y.is_finite() && is_within(f64::from(x), f64::from(y), bound);
    if x.is_finite() { is_close } else { x.to_bits() == y.to_bits() }
}

/// Exact: integers of 128 bits, and bits for zeros and what is not finite.
fn keeps_share(x: f32, y: f32, e: f64) -> bool {
    if x.is_finite() && x != 0.0 { is_within_share(x.into(), y.into(), e) } else { x.to_bits() == y.to_bits() }
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
        assert!([LINE, BOX, SCRAMBLED].iter().all(|order| order.factor % 2 == 1));
    }

    #[test]
    fn coarse_passes_find_nothing() {
        let of = |preset| passes(preset).into_iter().chain(pointwise_passes(preset));
        for pass in PRESETS.into_iter().flat_map(of) {
            assert_eq!(pass.prove(65_537, 1).unwrap().violations, 0, "{:?}, {}", pass.bound, pass.order.name);
        }
    }
}
