//! `pumice decompress`: restores an array, or a region of it, to a raw or `.npy` file.
//!
//! A whole array is written chunk by chunk, each at its offset; a region, or an array for standard output, is written
//! in order, one band of chunks at a time. A device holds all restored values in its memory.
//!
//! A stream from a pipe is decoded while it arrives. Where that is not possible (a region, a device, a pipe that wants a
//! `.npy` header first), the compressed bytes are kept in an unnamed temporary file meanwhile.

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use pumice::{Config, DecodeOptions, Element, ErrorBound, ErrorKind, Info, ReadAt, Reader, StreamReader, with_dtype};
use serde::Serialize;

use crate::cli::WorkerArgs;
use crate::device::{self, Backend, CODING_ARRAYS, Cuda, DeviceArg, DeviceElement, DeviceReport, Job};
use crate::failure::{Failure, Result};
use crate::input;
use crate::layout::Layout;
use crate::output::{self, ArrayFile, Output};
use crate::region;
use crate::target;
use crate::text;
use crate::ui::Ui;

const AFTER_HELP: &str = "\
Examples:
  pumice decompress t.pum -o t.f32
  pumice decompress t.pum -o t.npy --region 0:10,:,5:9
  pumice decompress t.pum -o - --region -1 | plot
  ssh host cat t.pum | pumice decompress - -o t.npy
  pumice decompress t.pum -o t.f32 --device cuda";

/// Restore an array or a part of it
///
/// The output has a .npy header if its name ends with .npy; otherwise it is raw little-endian values. A pipe is decoded
/// while it arrives. If it turns out to be damaged or cut short, a file does not appear, but values that went to another
/// pipe before cannot be taken back: look at the exit code.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The compressed file, or - for standard input
    input: PathBuf,

    /// The array, raw or .npy by its extension, or - for raw values on standard output
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Only this part: one Python slice per axis, slowest first, such as 0:10,:,5:9 or -1
    #[arg(long, value_name = "SLICES", allow_hyphen_values = true)]
    region: Option<String>,

    /// Where to run; the output does not depend on it. CUDA supports files of the presets fast and balanced
    #[arg(long, value_enum, default_value_t)]
    device: DeviceArg,

    #[command(flatten)]
    workers: WorkerArgs,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    dtype: &'static str,
    shape: Vec<usize>,
    region: Option<String>,
    compressed_bytes: u64,
    raw_bytes: u64,
    #[serde(flatten)]
    device: DeviceReport,
    seconds: f64,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let start = Instant::now();
    output::refuse_same_file(&args.input, &args.output)?;
    let has_all = args.region.is_none() && matches!(args.device, DeviceArg::Cpu);
    let wants_shape = output::is_npy(&args.output) && output::is_stream(&args.output);
    if input::is_stream(&args.input) && has_all && !wants_shape {
        let stream = input::open_stream_reader(&args.input, args.workers.threads)?;
        let restored = with_dtype!(stream.dtype(), T => write_stream::<T>(stream, args, ui));
        let info = restored.map_err(|failure| input::damage_hint(failure, &args.input))?;
        let layout = Layout { dtype: info.dtype, shape: info.shape.clone() };
        return summarise(args, &info, layout, &Backend::Cpu { reason: None }, None, start, ui);
    }
    let file = input::open_or_spool(&args.input)?;
    let reader = input::reader_of(file.try_clone()?, &args.input, args.workers.threads)?;
    let info = reader.info();
    let region = args.region.as_deref().map(|text| region::parse(text, &info.shape)).transpose()?;
    let shape: Vec<usize> = match &region {
        Some(region) => region.iter().map(ExactSizeIterator::len).collect(),
        None => info.shape.clone(),
    };
    let layout = Layout { dtype: info.dtype, shape };
    let backend = with_dtype!(info.dtype, T => backend(args, info, &layout))?;
    let written = match &backend {
        Backend::Cpu { .. } => {
            with_dtype!(info.dtype, T => write_by_cpu::<T>(&reader, args, region.as_deref(), &layout, ui))
        }
        Backend::Cuda(cuda) => {
            with_dtype!(info.dtype, T => write_by_device::<T>(&file, args, region.as_deref(), &layout, cuda))
        }
    };
    written.map_err(|failure| input::damage_hint(failure, &args.input))?;
    summarise(args, info, layout, &backend, region.as_deref(), start, ui)
}

fn summarise(
    args: &Args,
    info: &Info,
    layout: Layout,
    backend: &Backend,
    region: Option<&[Range<usize>]>,
    start: Instant,
    ui: &Ui,
) -> Result<()> {
    let report = Report {
        input: args.input.display().to_string(),
        output: args.output.display().to_string(),
        dtype: layout.dtype.name(),
        raw_bytes: layout.n_bytes().unwrap_or(0),
        shape: layout.shape,
        region: region.map(text::region),
        compressed_bytes: info.compressed_bytes,
        device: backend.report(),
        seconds: start.elapsed().as_secs_f64(),
    };
    ui.summary(&report, output::is_stdout(&args.output), || describe(&report))
}

fn backend(args: &Args, info: &Info, layout: &Layout) -> Result<Backend> {
    if args.region.is_some() && matches!(args.device, DeviceArg::Auto) {
        return Ok(Backend::cpu_because("the CPU reads only the chunks of the region"));
    }
    let raw_bytes = layout.n_bytes().unwrap_or(u64::MAX);
    let device_bytes = raw_bytes.saturating_mul(CODING_ARRAYS);
    let job = Job { configs: &[config_of(info)], device_bytes };
    args.device.backend(&job)
}

/// The configuration that gives such a stream. A target is left out: the stream has the absolute bound found for it.
fn config_of(info: &Info) -> Config {
    let config = Config::new(ErrorBound::Abs(info.abs_bound.min(f64::MAX))).preset(info.preset).bin(&info.bin);
    let config = info.bounds.iter().filter(|bound| !target::is_target(**bound)).fold(config, |c, bound| c.and(*bound));
    info.regions.iter().fold(config, |c, region| c.region(&region.ranges, region.bound))
}

/// Restores on a device. An array that exceeds its memory is an error before host memory is allocated.
fn write_by_device<T: DeviceElement>(
    file: &File,
    args: &Args,
    region: Option<&[Range<usize>]>,
    layout: &Layout,
    cuda: &Cuda,
) -> Result<()> {
    let mut out = Output::create(&args.output)?;
    let n_bytes = file.len()?;
    let n_bytes = usize::try_from(n_bytes)
        .map_err(|_| Failure::new(ErrorKind::LimitExceeded, format!("{n_bytes} bytes are too many for memory")))?;
    let mut bytes: Vec<u8> = input::zeros(n_bytes)?;
    file.read_exact_at(&mut bytes, 0)?;
    let (free, _) = cuda.memory().map_err(device::advise)?;
    let options = DecodeOptions::new().threads(args.workers.threads).max_bytes(free);
    let array = match region {
        Some(region) => cuda.decompress_region::<T>(&bytes, region, &options),
        None => cuda.decompress::<T>(&bytes, &options),
    };
    let array = array.map_err(device::advise)?;
    out.write_all(&output::header_for(&args.output, layout))?;
    out.write_values(&array.data)?;
    out.commit()
}

fn write_by_cpu<T: Element>(
    reader: &Reader<File>,
    args: &Args,
    region: Option<&[Range<usize>]>,
    layout: &Layout,
    ui: &Ui,
) -> Result<()> {
    let bar = ui.bytes_bar(layout.n_bytes().unwrap_or(0), "restoring");
    let in_order = region.is_some() || output::is_stream(&args.output);
    if !in_order {
        let mut file = ArrayFile::create(&args.output, layout)?;
        reader.for_each_chunk::<T>(0..reader.n_chunks(), |region, values| {
            file.write_box(region, values)?;
            bar.inc(size_of_val(values) as u64);
            Ok(())
        })?;
        bar.finish_and_clear();
        return Ok(file.commit()?);
    }
    let mut out = Output::create(&args.output)?;
    out.write_all(&output::header_for(&args.output, layout))?;
    let whole: Vec<Range<usize>> = reader.info().shape.iter().map(|&extent| 0..extent).collect();
    let region = region.unwrap_or(&whole);
    for block in row_blocks(reader.info(), region) {
        let values = reader.read_region::<T>(&block)?.data;
        out.write_values(&values)?;
        bar.inc(size_of_val(values.as_slice()) as u64);
    }
    bar.finish_and_clear();
    out.commit()
}

/// Restores a whole array while its stream arrives. Its number of rows may be known only at the end, for the header.
fn write_stream<T: Element>(stream: StreamReader<Box<dyn Read>>, args: &Args, ui: &Ui) -> Result<Info> {
    let shape = match (stream.shape(), stream.row_shape()) {
        (Some(shape), _) => shape.to_vec(),
        (None, row_shape) => std::iter::once(0).chain(row_shape.unwrap_or(&[]).iter().copied()).collect(),
    };
    let mut out = Output::create(&args.output)?;
    let header = output::header_for(&args.output, &Layout { dtype: T::DTYPE, shape });
    out.write_all(&header)?;
    let bar = ui.bytes_counter("restoring");
    // An error of the output is not one of the stream.
    let mut failed = Ok(());
    let restored = stream.for_each_rows::<T>(|values| {
        bar.inc(size_of_val(values) as u64);
        failed = out.write_values(values);
        if failed.is_err() { Err(pumice::Error::new(ErrorKind::Io, "the output cannot be written")) } else { Ok(()) }
    });
    failed?;
    let info = restored?;
    bar.finish_and_clear();
    let known = output::header_for(&args.output, &Layout { dtype: T::DTYPE, shape: info.shape.clone() });
    if known != header {
        out.rewrite_start(&known)?;
    }
    out.commit()?;
    Ok(info)
}

/// Cuts the region along the slowest axis at the ends of bands of chunks, so that each chunk is decoded once and memory
/// holds one band.
fn row_blocks(info: &Info, region: &[Range<usize>]) -> Vec<Vec<Range<usize>>> {
    let (Some(rows), Some(step)) = (region.first(), info.chunk_shape.first().map(|&n| n.max(1))) else {
        return vec![region.to_vec()];
    };
    let mut blocks = Vec::new();
    let mut segment_start = 0;
    for &segment_rows in &info.segments {
        let segment_end = segment_start + segment_rows;
        for start in (segment_start..segment_end).step_by(step) {
            let block = start.max(rows.start)..(start + step).min(segment_end).min(rows.end);
            if !block.is_empty() {
                let mut cut = region.to_vec();
                cut[0] = block;
                blocks.push(cut);
            }
        }
        segment_start = segment_end;
    }
    blocks
}

fn describe(report: &Report) -> String {
    format!(
        "{}: {} {}, {}; {}, {}\n{}",
        report.output,
        text::shape(&report.shape),
        report.dtype,
        text::bytes(report.raw_bytes),
        text::seconds(report.seconds),
        text::speed(report.raw_bytes, report.seconds),
        report.device.text(),
    )
}
