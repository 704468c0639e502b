//! `pumice bench`: measures speed and ratio on the user's files, and memcpy of the same buffer as a reference.
//!
//! Small inputs are repeated along the slowest axis up to `--min-size`, so that they do not fit into caches; the ratio
//! is that of the unrepeated file. Buffers are reused and warm, runs of memcpy, compression and decompression
//! alternate, and the best of each counts. With a relative bound, the time includes the search for the value range.
//!
//! For targets (`--psnr`, `--l2`, `--ratio`) `targets.rs` measures how well they are met instead of the speed. For GPUs
//! `device.rs` takes a copy in device memory as the reference.

#[cfg(feature = "cuda")]
mod device;
mod targets;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;
use pumice::{Config, DecodeOptions, Element, ErrorBound, ErrorKind, Preset, metrics, with_dtype};
use serde::Serialize;

use crate::bounds;
use crate::cli::LayoutArgs;
use crate::commands::compress::{PresetArg, preset};
use crate::device::{Backend, DeviceArg, Job};
use crate::failure::{Failure, Result};
use crate::input::Input;
use crate::parse;
use crate::text::{self, Table};
use crate::ui::Ui;

/// Smaller inputs are repeated up to this size: beyond the caches of a core.
const MIN_BYTES: u64 = 64 << 20;

/// The same on a device: beyond its caches, and enough work for all of its processors.
const MIN_DEVICE_BYTES: u64 = 256 << 20;

/// Device memory that a measurement needs, in multiples of the array's size: for coding, a copy and the restored
/// values.
const MEASURING_ARRAYS: u64 = crate::device::CODING_ARRAYS + 2;

const AFTER_HELP: &str = "\
Examples:
  pumice bench t_30x192x288.f32
  pumice bench *.f32 --preset fast,small --ratio 5,10,20,50   how well ratios are met
  pumice bench *.f32 --pwrel 1e-2,1e-3 --preset fast,small --min-size 0 --runs 1
  pumice bench *.f32 --rel 1e-2,1e-3,1e-4 --threads 2 --json > bench.json
  pumice bench *.f32 --rel 1e-2,1e-3,1e-4 --device cuda --check-bytes";

/// Measure speed and ratio on your files
///
/// Speeds are in GB of array per second; memcpy of the same buffer in the same run is the reference. With --device cuda
/// arrays and streams stay in device memory, times are those of the device, and the reference is a copy there.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The arrays: raw or .npy
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Presets to measure; small if none is given, or fast on a device
    #[arg(long, value_delimiter = ',', value_parser = preset)]
    preset: Vec<PresetArg>,

    /// Relative bounds to measure; 1e-3 if no bound is given
    #[arg(long, value_name = "E,..", value_delimiter = ',', value_parser = parse::bound)]
    rel: Vec<f64>,

    /// PSNRs to aim at: measures how well they are met instead of the speed
    #[arg(long, value_name = "DB,..", value_delimiter = ',', value_parser = parse::psnr, conflicts_with_all = ["rel", "pwrel"])]
    psnr: Vec<f64>,

    /// L2 norms of the error to aim at
    #[arg(long, value_name = "NORM,..", value_delimiter = ',', value_parser = parse::bound, conflicts_with_all = ["rel", "pwrel"])]
    l2: Vec<f64>,

    /// Ratios to aim at
    #[arg(long, value_name = "R,..", value_delimiter = ',', value_parser = parse::ratio, conflicts_with_all = ["rel", "pwrel"])]
    ratio: Vec<f64>,

    /// Bounds relative to each value to measure
    #[arg(long, value_name = "E,..", value_delimiter = ',', value_parser = parse::bound)]
    pwrel: Vec<f64>,

    /// Worker threads; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Where to run; CUDA supports the presets fast and balanced, with --rel
    #[arg(long, value_enum, default_value_t)]
    device: DeviceArg,

    /// Compress and restore on the CPU as well, and compare bytes and values with the device's
    #[arg(long)]
    check_bytes: bool,

    /// Repeat smaller inputs up to this size (suffixes k, M, G); 0 keeps them as they are [default: 64M, 256M on a
    /// device]
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    min_size: Option<u64>,

    /// Number of runs; the best counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    #[command(flatten)]
    layout: LayoutArgs,
}

/// One element of the array that `--json` prints.
#[derive(Serialize)]
struct Row {
    file: String,
    device: &'static str,
    preset: &'static str,
    bound_kind: &'static str,
    rel: f64,
    threads: usize,
    ratio: f64,
    compress_gbps: f64,
    decompress_gbps: f64,
    memcpy_gbps: f64,
    compress_over_memcpy: f64,
    decompress_over_memcpy: f64,
    max_err_over_bound: f64,
    bound_kept: bool,
}

impl Args {
    fn bounds(&self) -> Vec<ErrorBound> {
        let rel = self.rel.iter().map(|e| ErrorBound::Rel(*e));
        let bounds: Vec<ErrorBound> = rel.chain(self.pwrel.iter().map(|e| ErrorBound::PwRel(*e))).collect();
        if bounds.is_empty() { vec![ErrorBound::Rel(1e-3)] } else { bounds }
    }

    fn presets(&self, default: Preset) -> Vec<Preset> {
        if self.preset.is_empty() { vec![default] } else { self.preset.iter().map(|preset| preset.0).collect() }
    }

    /// The backend to measure: a device only if it supports all presets and bounds.
    fn backend(&self) -> Result<Backend> {
        let bounds = [self.bounds(), targets::of(self)].concat();
        let presets = self.presets(Preset::Fast);
        let configs = presets.iter().flat_map(|preset| bounds.iter().map(|b| Config::new(*b).preset(*preset)));
        let sizes = self.files.iter().map(|path| fs::metadata(path).map_or(0, |file| file.len()));
        let largest = sizes.max().unwrap_or(0).max(self.min_size.unwrap_or(MIN_DEVICE_BYTES));
        let job = Job { configs: &configs.collect::<Vec<_>>(), device_bytes: largest.saturating_mul(MEASURING_ARRAYS) };
        self.device.backend(&job)
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    if args.check_bytes && args.device == DeviceArg::Cpu {
        return Err(Failure::invalid("--check-bytes compares a device with the CPU").hint("add --device cuda"));
    }
    match args.backend()? {
        #[cfg(feature = "cuda")]
        Backend::Cuda(cuda) => device::run(args, &cuda, ui),
        #[cfg(not(feature = "cuda"))]
        Backend::Cuda(cuda) => match cuda {},
        Backend::Cpu { .. } if !targets::of(args).is_empty() => targets::run(args, ui),
        backend @ Backend::Cpu { .. } => run_on_cpu(args, &backend, ui),
    }
}

fn run_on_cpu(args: &Args, backend: &Backend, ui: &Ui) -> Result<()> {
    let n_steps = args.files.len() * args.presets(Preset::Small).len() * args.bounds().len();
    let bar = ui.steps_bar(n_steps as u64, "measuring");
    let mut rows = Vec::with_capacity(n_steps);
    for path in &args.files {
        let input = Input::open(path, &args.layout)?;
        with_dtype!(input.layout.dtype, T => bench_file::<T>(&input, path, args, &bar, &mut rows))?;
    }
    bar.finish_and_clear();
    ui.report(&rows, || describe(&rows) + &backend.report().text())?;
    match rows.iter().find(|row| !row.bound_kept) {
        Some(row) => Err(broken(&row.file, row.rel)),
        None => Ok(()),
    }
}

/// The error for a restored value outside of the bound.
fn broken(file: &str, bound: f64) -> Failure {
    Failure::new(ErrorKind::BoundBroken, format!("{file} at {bound:e}: the bound is broken"))
}

/// An array to measure: the file, and repetitions of it.
struct Sample<T> {
    values: Vec<T>,
    shape: Vec<usize>,
    file_len: usize,
    file_shape: Vec<usize>,
}

impl<T: Element> Sample<T> {
    fn read(input: &Input, min_size: u64) -> Result<Self> {
        let mut values = input.read::<T>()?;
        let file_len = values.len();
        if file_len == 0 {
            return Err(Failure::invalid("an empty array cannot be measured"));
        }
        let file_shape = if input.layout.shape.is_empty() { vec![1] } else { input.layout.shape.clone() };
        let n_copies = min_size.div_ceil(input.n_bytes()).max(1) as usize;
        values.reserve_exact(file_len * (n_copies - 1));
        for _ in 1..n_copies {
            values.extend_from_within(..file_len);
        }
        let mut shape = file_shape.clone();
        shape[0] *= n_copies;
        Ok(Self { values, shape, file_len, file_shape })
    }

    /// Raw size over compressed size of the unrepeated file.
    fn file_ratio(&self, config: &Config) -> Result<f64> {
        let mut packed = Vec::new();
        Ok(pumice::compress_into(&self.values[..self.file_len], &self.file_shape, config, &mut packed)?.ratio())
    }
}

fn bench_file<T: Element>(
    input: &Input,
    path: &Path,
    args: &Args,
    bar: &ProgressBar,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let sample = Sample::<T>::read(input, args.min_size.unwrap_or(MIN_BYTES)).map_err(|f| f.at(path))?;
    let mut restored = vec![T::default(); sample.values.len()];
    for preset in args.presets(Preset::Small) {
        for bound in args.bounds() {
            rows.push(measure(&sample, path, args, preset, bound, &mut restored)?);
            bar.inc(1);
        }
    }
    Ok(())
}

fn measure<T: Element>(
    sample: &Sample<T>,
    path: &Path,
    args: &Args,
    preset: Preset,
    bound: ErrorBound,
    restored: &mut [T],
) -> Result<Row> {
    let config = Config::new(bound).preset(preset).threads(args.threads);
    let options = DecodeOptions::new().threads(args.threads);
    let ratio = sample.file_ratio(&config)?;
    let values = sample.values.as_slice();
    let mut packed = Vec::new();
    let mut best = [f64::INFINITY; 3];
    // Run 0 warms up buffers, caches and threads, and is not counted.
    for run in 0..=args.runs {
        let times = [
            timed(|| {
                restored.copy_from_slice(black_box(values));
                Ok(())
            })?,
            timed(|| pumice::compress_into(black_box(values), &sample.shape, &config, &mut packed).map(drop))?,
            timed(|| pumice::decompress_into(black_box(&packed), restored, &options))?,
        ];
        if run > 0 {
            best = std::array::from_fn(|i| best[i].min(times[i]));
        }
    }
    let info = pumice::inspect(&packed)?;
    let found = metrics::Guarantee::of(&info).compare(std::slice::from_ref(&(0..values.len())), values, restored)?;
    let (bound_kind, bound) = bounds::parts(bound);
    let gbps = best.map(|seconds| size_of_val(values) as f64 / seconds / 1e9);
    Ok(Row {
        file: path.display().to_string(),
        device: "cpu",
        preset: preset.name(),
        bound_kind,
        rel: bound.unwrap_or(0.0),
        threads: args.threads,
        ratio,
        memcpy_gbps: gbps[0],
        compress_gbps: gbps[1],
        decompress_gbps: gbps[2],
        compress_over_memcpy: gbps[1] / gbps[0],
        decompress_over_memcpy: gbps[2] / gbps[0],
        max_err_over_bound: found.max_error_over_bound,
        bound_kept: found.bound_kept(),
    })
}

/// Seconds that a step takes.
fn timed(step: impl FnOnce() -> pumice::Result<()>) -> pumice::Result<f64> {
    let start = Instant::now();
    step()?;
    Ok(start.elapsed().as_secs_f64())
}

fn describe(rows: &[Row]) -> String {
    let heading =
        ["file", "preset", "bound", "ratio", "compress", "of memcpy", "decompress", "of memcpy", "memcpy", "max error"];
    let mut table = Table::new(&heading, 2);
    for row in rows {
        let mut cells = vec![file_name(&row.file), row.preset.into(), format!("{} {:e}", row.bound_kind, row.rel)];
        cells.extend(figures(|f| f(row)));
        cells.push(text::percent(row.max_err_over_bound, 2) + if row.bound_kept { "" } else { " BROKEN" });
        table.row(cells);
    }
    let mut means = vec!["geometric mean".to_string(), String::new(), String::new()];
    means.extend(figures(|f| geometric_mean(rows.iter().map(f))));
    means.push(String::new());
    table.row(means);
    let threads = match rows.first().map_or(1, |row| row.threads) {
        0 => "one thread per core".into(),
        1 => "one thread".into(),
        n => format!("{n} threads"),
    };
    format!("{}speeds in GB/s of array, {threads}; errors in percent of the bound\n", table.render())
}

/// The last part of a path.
fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.into(), |name| name.to_string_lossy().into())
}

/// The measured columns; `pick` computes the number to show from a column.
fn figures(pick: impl Fn(fn(&Row) -> f64) -> f64) -> [String; 6] {
    [
        text::ratio(pick(|row| row.ratio)),
        format!("{:.2}", pick(|row| row.compress_gbps)),
        format!("{:.3}", pick(|row| row.compress_over_memcpy)),
        format!("{:.2}", pick(|row| row.decompress_gbps)),
        format!("{:.3}", pick(|row| row.decompress_over_memcpy)),
        format!("{:.2}", pick(|row| row.memcpy_gbps)),
    ]
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / n).exp()
}
