//! `pumice compress`: compresses a raw file, a `.npy` file or a stream.
//!
//! Files are read box by box, so memory holds a few chunks only. They are read twice, as the range and the fill values
//! of an array decide how it is coded. So a stream is stored in an unnamed temporary file first, and gives the bytes that
//! a file gives; with `--one-pass` it is compressed while it arrives. A device compresses the whole array at once, so
//! memory holds all of it.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use pumice::metrics::Guarantee;
use pumice::{
    Achieved, Config, DecodeOptions, Element, ErrorBound, ErrorKind, Preset, Reader, Stable, Summary, Writer,
    with_dtype,
};
use serde::Serialize;

use crate::bounds::{self, BoundReport};
use crate::cli::{BoundArgs, LayoutArgs, WorkerArgs};
use crate::commands::codebook;
use crate::compare;
use crate::device::{self, Backend, CODING_ARRAYS, Cuda, DeviceArg, DeviceElement, DeviceReport, Job};
use crate::failure::{Failure, Result};
use crate::input::{self, Input, Stream, is_stream};
use crate::layout::Layout;
use crate::output::{self, Output};
use crate::parse::{self, Extents, Roi};
use crate::region;
use crate::target;
use crate::text;
use crate::ui::{self, Ui};

/// The hint where verification fails.
const FAULT: &str = "this is a bug in pumice or a fault of the machine: please report it with the input";

/// Bytes read from a stream at a time; at least one row is read.
const STREAM_BLOCK: usize = 4 << 20;

const AFTER_HELP: &str = "\
Examples:
  pumice compress t_30x192x288.f32 -o t.pum --rel 1e-3
  pumice compress t.npy -o t.pum --abs 0.01 --attr units=K --verify
  pumice compress t.npy -o t.pum --psnr 60
  pumice compress t.npy -o t.pum --ratio 20
  pumice compress t.npy -o t.pum --rel 1e-3 --preset fast --device auto
  pumice compress t.npy -o t.pum --pwrel 1e-3 --abs 0.5     both hold
  pumice compress t.npy -o t.pum --abs 0.5 --bin 1,2,2 --roi :,40:80,100:200=abs:1e-3
  pumice compress t.dat -o t.pum --dtype f64 --dims 288,192,30 --rel 1e-4 --fill 1e20
  simulate | pumice compress - -o t.pum --dtype f32 --shape 1000,512,512 --abs 0.01
  simulate | pumice compress - -o t.pum --dtype f32 --shape 1000,512,512 --rel 1e-3 --range -5,40 --one-pass";

/// Compress an array
///
/// Shape and type are read from a .npy header or from a name such as t_30x192x288.f32 (slowest axis first) unless
/// given. The output gets its name only when it is complete.
///
/// Standard input and pipes are kept in a temporary file beside the output, and give the same bytes as a file does.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The array: raw little-endian values, .npy, or - for standard input
    input: PathBuf,

    /// The compressed file, or - for standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    #[command(flatten)]
    layout: LayoutArgs,

    #[command(flatten)]
    bound: BoundArgs,

    /// The value range that --rel refers to, instead of the array's own
    #[arg(long, value_name = "MIN,MAX", value_parser = parse::range, allow_hyphen_values = true)]
    #[arg(requires = "rel")]
    range: Option<(f64, f64)>,

    /// A region with an additional bound: 0:10,:,5:9=abs:1e-3 (or rel:E, pwrel:E, lossless); can be given several times
    #[arg(long, value_name = "REGION=BOUND", value_parser = parse::roi)]
    roi: Vec<Roi>,

    /// Store only the means of bins with these extents, outside of the regions of --roi
    #[arg(long, value_name = "N,N,..", value_parser = parse::extents)]
    bin: Option<Extents>,

    /// The value that means "no data" (nan allowed), kept bit for bit; can be given up to 8 times; others are detected
    #[arg(long, value_name = "V", value_parser = parse::number, allow_hyphen_values = true)]
    fill: Vec<f64>,

    /// The pipeline: fast (speed), balanced, small (ratio), max (archives); pipelines of papers: cuszp2-plain,
    /// cuszp2-outlier, cuszplus, ceaz, ceresz2
    #[arg(long, default_value_t, value_parser = preset)]
    preset: PresetArg,

    /// Values that are restored, and compressed again under the same absolute bound, keep every bit, whatever chunks
    /// and preset. Costs ratio with small and max. With --abs and --rel
    #[arg(long)]
    stable: bool,

    /// Chunk extents, slowest axis first: the unit of partial reads and of parallel work
    #[arg(long, alias = "chunks", value_name = "N,N,..", value_parser = parse::extents)]
    chunk: Option<Extents>,

    /// Huffman codes that chunks share, with the preset balanced: a file of `pumice codebook`, or a compressed file that
    /// has some. The output keeps a copy
    #[arg(long, value_name = "FILE")]
    codebook: Option<PathBuf>,

    /// Where to run; the output does not depend on it. CUDA supports the presets fast and balanced, with --abs, --rel
    /// and --lossless
    #[arg(long, value_enum, default_value_t)]
    device: DeviceArg,

    #[command(flatten)]
    workers: WorkerArgs,

    /// An attribute to store with the array; can be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::attribute)]
    attr: Vec<(String, String)>,

    /// Compress a pipe while it arrives, without a temporary file. Needs --abs, --pwrel, --lossless, or --rel with
    /// --range. The result is usually a little larger than that of a file, and more so if there are fill values that
    /// --fill does not name
    #[arg(long, conflicts_with = "verify")]
    one_pass: bool,

    /// Decompress the result and compare every value before the file gets its name
    #[arg(long)]
    verify: bool,
}

impl Args {
    /// The configuration for an array of this shape.
    fn config(&self, shape: &[usize]) -> Result<Config> {
        let mut config = self.bound.config().preset(self.preset.0).fills(&self.fill).threads(self.workers.threads);
        config = config.stable(if self.stable { Stable::On } else { Stable::Off });
        for Roi { region, bound } in &self.roi {
            config = config.region(&region::parse(region, shape)?, *bound);
        }
        if let Some(bin) = &self.bin {
            config = config.bin(&bin.0);
        }
        if let Some((min, max)) = self.range {
            config = config.range(min, max);
        }
        if let Some(chunk) = &self.chunk {
            config = config.chunk_shape(&chunk.0);
        }
        if let Some(path) = &self.codebook {
            config = config.codebook(&codebook::load(path)?);
        }
        Ok(self.attr.iter().fold(config, |config, (key, value)| config.attribute(key, value)))
    }

    /// Whether the bounds are known before the values are.
    fn is_bound_known(&self) -> bool {
        let is_known = |bound| match bound {
            ErrorBound::Abs(_) | ErrorBound::PwRel(_) | ErrorBound::Lossless => true,
            ErrorBound::Rel(_) => self.range.is_some(),
            _ => false,
        };
        let mut bounds = self.bound.bounds().into_iter().chain(self.roi.iter().map(|roi| roi.bound));
        bounds.all(is_known)
    }
}

/// A preset with the traits that help texts and parsing need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PresetArg(pub(crate) Preset);

impl std::fmt::Display for PresetArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

pub(crate) fn preset(name: &str) -> std::result::Result<PresetArg, String> {
    name.parse().map(PresetArg).map_err(|e: pumice::Error| e.to_string())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    dtype: &'static str,
    shape: Vec<usize>,
    raw_bytes: u64,
    compressed_bytes: u64,
    ratio: f64,
    bits_per_value: f64,
    bound_kind: &'static str,
    bound: Option<f64>,
    bounds: Vec<BoundReport>,
    n_regions: usize,
    bin: Option<Vec<usize>>,
    abs_bound: f64,
    #[serde(serialize_with = "ui::any_numbers")]
    fills: Vec<f64>,
    /// For targets only.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<target::Report>,
    preset: &'static str,
    n_chunks: u64,
    #[serde(flatten)]
    device: DeviceReport,
    verified: bool,
    seconds: f64,
}

/// The outcome of a compression, on the CPU or a device.
struct Outcome {
    raw_bytes: u64,
    compressed_bytes: u64,
    abs_bound: f64,
    n_chunks: u64,
    fills: Vec<f64>,
    target: Option<Achieved>,
}

impl From<Summary> for Outcome {
    fn from(summary: Summary) -> Self {
        let Summary { raw_bytes, compressed_bytes, abs_bound, n_chunks, fills, target, .. } = summary;
        Self { raw_bytes, compressed_bytes, abs_bound, n_chunks, fills, target }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let start = Instant::now();
    if args.verify && output::is_stream(&args.output) {
        return Err(Failure::invalid(
            "--verify reads the result back, which standard output, pipes and devices do not allow",
        )
        .hint("write to a file with -o FILE"));
    }
    output::refuse_same_file(&args.input, &args.output)?;
    let (layout, backend, outcome) = compress(args, ui)?;
    let report = report(args, layout, &backend, &outcome, start.elapsed().as_secs_f64());
    let bound = bounds::describe(&args.bound.bounds(), outcome.abs_bound);
    ui.summary(&report, output::is_stdout(&args.output), || describe(&report, &bound))
}

fn compress(args: &Args, ui: &Ui) -> Result<(Layout, Backend, Outcome)> {
    if !is_stream(&args.input) {
        let input = Input::open(&args.input, &args.layout)?;
        let config = args.config(&input.layout.shape)?;
        let backend = backend(args, &input.layout, &config)?;
        let outcome = with_dtype!(input.layout.dtype, T => from_file::<T>(&input, args, &config, &backend, ui))?;
        return Ok((input.layout, backend, outcome));
    }
    let mut stream = Stream::open(&args.input, &args.layout)?;
    let layout = stream.layout.clone();
    let config = args.config(&layout.shape)?;
    let backend = backend(args, &layout, &config)?;
    if args.one_pass {
        check_one_pass(args, &stream)?;
    }
    let by_rows = matches!(backend, Backend::Cpu { .. }) && layout.n_values() != Some(0) && !layout.shape.is_empty();
    let outcome = if args.one_pass && by_rows {
        with_dtype!(layout.dtype, T => from_stream::<T>(&mut stream, args, &config, ui))?
    } else {
        let input = spool(&mut stream, &args.input, &spool_directory(&args.output), ui)?;
        with_dtype!(layout.dtype, T => from_file::<T>(&input, args, &config, &backend, ui))?
    };
    Ok((layout, backend, outcome))
}

/// Refuses to compress a stream while it arrives where that is not possible.
fn check_one_pass(args: &Args, stream: &Stream) -> Result<()> {
    if !args.is_bound_known() {
        return Err(Failure::invalid("--one-pass needs bounds that do not depend on values that are still to come")
            .hint("give --abs, --pwrel, --lossless, or --rel with --range; or leave --one-pass out"));
    }
    if !stream.order.is_plain() {
        return Err(Failure::invalid("--one-pass needs little-endian values in C order")
            .hint("leave --one-pass out, and the values are brought into that order in a temporary file"));
    }
    Ok(())
}

fn backend(args: &Args, layout: &Layout, config: &Config) -> Result<Backend> {
    let job = Job {
        configs: std::slice::from_ref(config),
        device_bytes: layout.n_bytes().unwrap_or(u64::MAX).saturating_mul(CODING_ARRAYS),
    };
    args.device.backend(&job)
}

fn from_file<T: DeviceElement>(
    input: &Input,
    args: &Args,
    config: &Config,
    backend: &Backend,
    ui: &Ui,
) -> Result<Outcome> {
    let (mut out, outcome) = write::<T>(input, &args.output, config, backend, ui)?;
    // The file gets its name after verification; if that fails, dropping `out` removes it.
    if args.verify {
        verify::<T>(input, out.written()?, args, ui)?;
    }
    out.commit()?;
    Ok(outcome)
}

/// Writes the whole result; the caller commits it.
fn write<T: DeviceElement>(
    input: &Input,
    output: &Path,
    config: &Config,
    backend: &Backend,
    ui: &Ui,
) -> Result<(Output, Outcome)> {
    let mut out = Output::create(output)?;
    let outcome = match backend {
        Backend::Cpu { .. } => write_by_cpu::<T>(input, &mut out, config, ui),
        Backend::Cuda(cuda) => write_by_device::<T>(input, &mut out, config, cuda),
    }?;
    Ok((out, outcome))
}

fn write_by_cpu<T: Element>(input: &Input, out: &mut Output, config: &Config, ui: &Ui) -> Result<Outcome> {
    let source = input.source()?;
    let bar = ui.bytes_bar(input.n_bytes(), "compressing");
    let is_searched = config.bounds().iter().copied().any(target::is_target);
    let progress = |done| {
        bar.set_position(done);
        if is_searched {
            bar.set_message(target::phase(done, input.n_bytes()));
        }
    };
    let summary = pumice::compress_from::<T, _>(&source, config, out, &progress)?;
    bar.finish_and_clear();
    Ok(summary.into())
}

fn write_by_device<T: DeviceElement>(input: &Input, out: &mut Output, config: &Config, cuda: &Cuda) -> Result<Outcome> {
    let values = input.read::<T>()?;
    let bytes = cuda.compress(&values, &input.layout.shape, config).map_err(device::advise)?;
    out.write_all(&bytes)?;
    let info = pumice::inspect(&bytes)?;
    Ok(Outcome {
        raw_bytes: info.raw_bytes,
        compressed_bytes: info.compressed_bytes,
        abs_bound: info.abs_bound,
        n_chunks: info.n_chunks,
        fills: info.fills,
        target: None,
    })
}

/// Compares the restored values with the input.
fn verify<T: Element>(input: &Input, written: &Path, args: &Args, ui: &Ui) -> Result<()> {
    let options = DecodeOptions::new().threads(args.workers.threads);
    let reader = File::open(written).map_err(pumice::Error::from).and_then(|file| Reader::new(file, options));
    let reader = reader.map_err(|e| Failure::from(e).at(&args.output).hint(FAULT))?;
    let guarantee = Guarantee::of(reader.info());
    let bar = ui.bytes_bar(input.n_bytes(), "verifying");
    let findings = compare::with_reader::<T, _>(&input.source()?, &reader, &guarantee, &bar)?;
    bar.finish_and_clear();
    let target = target::Verdict::of(reader.info(), &findings.total);
    if findings.total.bound_kept() && target.as_ref().is_none_or(|target| target.is_met) {
        return Ok(());
    }
    let total = &findings.total;
    let found = format!("largest error {:e}, {} times the bound", total.max_abs_error, total.max_error_over_bound);
    let found = target.map_or(found.clone(), |target| format!("{found}, {}", target.text()));
    Err(Failure::new(ErrorKind::BoundBroken, format!("verification failed ({found}); nothing was written")).hint(FAULT))
}

fn from_stream<T: Element>(stream: &mut Stream, args: &Args, config: &Config, ui: &Ui) -> Result<Outcome> {
    let row_shape = &stream.layout.shape[1..];
    let (n_bytes, row_bytes) = stream_sizes(&stream.layout)?;
    let bar = ui.bytes_bar(n_bytes, "compressing");
    let mut writer = Writer::<T, _>::new(Output::create(&args.output)?, row_shape, config)?;
    let block_bytes = (STREAM_BLOCK / row_bytes.max(1)).max(1) * row_bytes;
    let mut bytes: Vec<u8> = input::zeros(block_bytes.min(n_bytes as usize))?;
    let mut values: Vec<T> = input::zeros(bytes.len() / size_of::<T>())?;
    // A stream has masks for these even if they turn out to be absent.
    let mut absent: Vec<T> = args.fill.iter().chain([&f64::NAN]).map(|fill| T::from_f64(*fill)).collect();
    let is_same = |a: T, b: T| a.to_f64() == b.to_f64() || (a.to_f64().is_nan() && b.to_f64().is_nan());
    let mut left = n_bytes;
    while left > 0 {
        let n = block_bytes.min(left as usize);
        stream.bytes.read_exact(&mut bytes[..n]).map_err(|e| too_short(e, n_bytes))?;
        let values = &mut values[..n / size_of::<T>()];
        T::copy_from_le_bytes(&bytes[..n], values);
        absent.retain(|fill| !values.iter().any(|value| is_same(*value, *fill)));
        writer.write_rows(values)?;
        left -= n as u64;
        bar.inc(n as u64);
    }
    expect_end(&mut stream.bytes, n_bytes)?;
    let (out, mut summary) = writer.finish()?;
    summary.fills.retain(|fill| !absent.iter().any(|absent| is_same(T::from_f64(*fill), *absent)));
    bar.finish_and_clear();
    out.commit()?;
    Ok(summary.into())
}

/// The directory to store a stream in: that of the output, or that for temporary files if the output is standard
/// output.
fn spool_directory(output: &Path) -> PathBuf {
    match output.parent() {
        _ if output::is_stream(output) => std::env::temp_dir(),
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}

/// Stores a stream in an unnamed file in `directory`, so that it can be read twice.
pub(crate) fn spool(stream: &mut Stream, name: &Path, directory: &Path, ui: &Ui) -> Result<Input> {
    let file = input::temporary_file(directory)?;
    let (n_bytes, _) = stream_sizes(&stream.layout)?;
    let bar = ui.bytes_bar(n_bytes, "reading");
    let mut writer = BufWriter::with_capacity(STREAM_BLOCK, file);
    let copied = io::copy(&mut bar.wrap_read((&mut stream.bytes).take(n_bytes)), &mut writer);
    let copied = copied.and_then(|copied| writer.flush().map(|()| copied));
    let copied = copied.map_err(input::copy_failed(name, directory))?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    bar.finish_and_clear();
    if copied < n_bytes {
        return Err(too_short(io::ErrorKind::UnexpectedEof.into(), n_bytes));
    }
    expect_end(&mut stream.bytes, n_bytes)?;
    Input::from_spool(name, file, stream, directory)
}

/// Bytes of the whole stream and of one row of it.
fn stream_sizes(layout: &Layout) -> Result<(u64, usize)> {
    let row = Layout { dtype: layout.dtype, shape: layout.shape.iter().skip(1).copied().collect() };
    match (layout.n_bytes(), row.n_bytes()) {
        (Some(all), Some(row)) => Ok((all, row as usize)),
        _ => Err(Failure::invalid(format!("an array of {} is too large", text::shape(&layout.shape)))),
    }
}

fn too_short(error: io::Error, expected: u64) -> Failure {
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return error.into();
    }
    Failure::new(ErrorKind::Truncated, format!("the input is shorter than the {expected} bytes of its shape"))
        .hint("check --shape or --dims and --dtype, or the program that writes the stream")
}

fn expect_end(stream: &mut dyn Read, expected: u64) -> Result<()> {
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(Failure::invalid(format!("the input is longer than the {expected} bytes of its shape"))
            .hint("check --shape or --dims and --dtype")),
    }
}

fn report(args: &Args, layout: Layout, backend: &Backend, outcome: &Outcome, seconds: f64) -> Report {
    let given = args.bound.bounds();
    let (bound_kind, bound) = bounds::parts(given[0]);
    let n_values = outcome.raw_bytes as f64 / layout.dtype.size() as f64;
    Report {
        input: args.input.display().to_string(),
        output: args.output.display().to_string(),
        dtype: layout.dtype.name(),
        shape: layout.shape,
        raw_bytes: outcome.raw_bytes,
        compressed_bytes: outcome.compressed_bytes,
        ratio: outcome.raw_bytes as f64 / outcome.compressed_bytes as f64,
        bits_per_value: outcome.compressed_bytes as f64 * 8.0 / n_values,
        bound_kind,
        bound,
        bounds: given.iter().map(BoundReport::from).collect(),
        n_regions: args.roi.len(),
        bin: args.bin.as_ref().map(|bin| bin.0.clone()),
        abs_bound: outcome.abs_bound,
        fills: outcome.fills.clone(),
        target: outcome.target.as_ref().map(target::Report::of),
        preset: args.preset.0.name(),
        n_chunks: outcome.n_chunks,
        device: backend.report(),
        verified: args.verify,
        seconds,
    }
}

fn describe(report: &Report, bound: &str) -> String {
    let verified = if report.verified { ", verified" } else { "" };
    let fills = match report.fills[..] {
        [] => String::new(),
        _ => format!("fill values: {}\n", text::fills(&report.fills, report.dtype)),
    };
    let target = match &report.target {
        Some(_) if report.raw_bytes == 0 => "target: met, as there are no values\n".into(),
        Some(target) => target.text(),
        None => String::new(),
    };
    format!(
        "{}: {} {}, {} -> {} ({})\nbound: {bound}{verified}; {}, {}\n{fills}{target}{}",
        report.output,
        text::shape(&report.shape),
        report.dtype,
        text::bytes(report.raw_bytes),
        text::bytes(report.compressed_bytes),
        text::ratio(report.ratio),
        text::seconds(report.seconds),
        text::speed(report.raw_bytes, report.seconds),
        report.device.text(),
    )
}
