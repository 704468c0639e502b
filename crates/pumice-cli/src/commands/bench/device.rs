//! Measures speed on a device, and a copy of the same array within its memory as a reference.
//!
//! Arrays, streams and working space are in device memory and allocated beforehand; events on the device measure time.
//! Times exclude transfers from and to the host, and checksums, which the host adds and verifies. The value range has
//! its own column, since an absolute bound does not need it; its time includes the host's work between kernels. If the
//! device leaves chunks to the host, the host's time is included.
//!
//! Runs of copies and of coding alternate. The first runs are not counted; of the others, the best counts.

use std::path::Path;

use indicatif::ProgressBar;
use pumice::backend::Frames;
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, Preset, metrics, with_dtype};
use pumice_gpu::{Decoder, Device, DeviceArray, DeviceElement, Encoder, Stream};
use serde::Serialize;

use super::{Args, MIN_DEVICE_BYTES, Sample, broken, file_name, geometric_mean};
use crate::bounds;
use crate::device;
use crate::failure::{Failure, Result};
use crate::input::Input;
use crate::text::{self, Table};
use crate::ui::Ui;

/// Runs that are not counted: clock rates rise, and tables are copied to the device.
const WARM_UPS: u32 = 2;

/// All work is in one CUDA stream.
const STREAM: Stream = Stream::DEFAULT;

/// One element of the array that `--json` prints.
#[derive(Serialize)]
struct Row {
    file: String,
    device: &'static str,
    device_name: String,
    preset: &'static str,
    bound_kind: &'static str,
    rel: f64,
    ratio: f64,
    compress_gbps: f64,
    decompress_gbps: f64,
    copy_gbps: f64,
    compress_over_copy: f64,
    decompress_over_copy: f64,
    range_gbps: f64,
    max_err_over_bound: f64,
    bound_kept: bool,
    /// With `--check-bytes`: whether stream and restored values equal those of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    equals_cpu: Option<bool>,
}

pub(super) fn run(args: &Args, device: &Device, ui: &Ui) -> Result<()> {
    let (presets, bounds) = (args.presets(Preset::Fast), args.bounds());
    let bar = ui.steps_bar((args.files.len() * presets.len() * bounds.len()) as u64, "measuring");
    let mut rows = Vec::new();
    for path in &args.files {
        let input = Input::open(path, &args.layout)?;
        with_dtype!(input.layout.dtype, T => bench_file::<T>(&input, path, args, device, &bar, &mut rows))?;
    }
    bar.finish_and_clear();
    ui.report(&rows, || describe(&rows))?;
    if let Some(row) = rows.iter().find(|row| !row.bound_kept) {
        return Err(broken(&row.file, row.rel));
    }
    match rows.iter().find(|row| row.equals_cpu == Some(false)) {
        Some(row) => {
            let message = format!("{} at {:e}: the results of device and CPU differ", row.file, row.rel);
            Err(Failure::new(ErrorKind::Device, message)
                .hint("this is a bug in pumice: please report it with the input"))
        }
        None => Ok(()),
    }
}

/// An array on the host and on the device, and room for a copy of it there.
struct Arrays<'a, T: DeviceElement> {
    device: &'a Device,
    sample: Sample<T>,
    original: DeviceArray<T>,
    copy: DeviceArray<T>,
}

fn bench_file<T: DeviceElement>(
    input: &Input,
    path: &Path,
    args: &Args,
    device: &Device,
    bar: &ProgressBar,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let sample = Sample::<T>::read(input, args.min_size.unwrap_or(MIN_DEVICE_BYTES)).map_err(|f| f.at(path))?;
    let original = device.upload(&sample.values).map_err(device::advise)?;
    let copy = device.allocate(sample.values.len()).map_err(device::advise)?;
    let mut arrays = Arrays { device, sample, original, copy };
    for preset in args.presets(Preset::Fast) {
        for bound in args.bounds() {
            rows.push(arrays.measure(path, args, preset, bound).map_err(device::advise)?);
            bar.inc(1);
        }
    }
    Ok(())
}

impl<T: DeviceElement> Arrays<'_, T> {
    fn measure(&mut self, path: &Path, args: &Args, preset: Preset, bound: ErrorBound) -> pumice::Result<Row> {
        let Self { device, sample, original, copy } = self;
        let config = Config::new(bound).preset(preset).threads(args.threads);
        let options = DecodeOptions::new().threads(args.threads).max_bytes(u64::MAX);
        let (values, original_values) = (sample.values.as_slice(), original.as_slice());
        let scan = || device.blueprint(original_values, &sample.shape, &config, STREAM);
        let blueprint = scan()?;
        let mut encoder = Encoder::new(device, &blueprint)?;
        encoder.encode(original_values, STREAM)?;
        let bytes = encoder.finish(original_values, STREAM)?;
        let frames = Frames::open(&bytes, &options)?;
        // Cleared, since a value that is never written could otherwise look restored.
        let mut restored = device.upload(&vec![T::default(); values.len()])?;
        let decoder = Decoder::new(device, &frames, restored.as_mut_slice(), STREAM)?;
        decoder.decode(STREAM)?;
        let all_decoded_on_device = decoder.finish(STREAM)? == 0;
        let mut decode = || {
            decoder.decode(STREAM)?;
            if all_decoded_on_device { Ok(()) } else { decoder.finish(STREAM).map(drop) }
        };
        let all_encoded_on_device = encoder.n_left_to_host(STREAM)? == 0;
        let mut encode = || {
            encoder.encode(original_values, STREAM)?;
            if all_encoded_on_device { Ok(()) } else { encoder.finish(original_values, STREAM).map(drop) }
        };
        let mut copy = || device.copy(original, copy, STREAM);
        let mut range = || scan().map(drop);
        let seconds = best(device, args.runs, [&mut copy, &mut range, &mut encode, &mut decode])?;
        decoder.finish(STREAM)?;
        drop(decoder);
        let last = encoder.finish(original_values, STREAM)?;
        let restored = restored.to_vec(STREAM)?;
        let promise = metrics::Guarantee::of(frames.info());
        let found = promise.compare(std::slice::from_ref(&(0..values.len())), values, &restored)?;
        let equals_cpu = match args.check_bytes {
            true => Some(bytes == last && equals_cpu(sample, &config, &options, &bytes, &restored)?),
            false => None,
        };
        let [copy_gbps, range_gbps, compress_gbps, decompress_gbps] =
            seconds.map(|seconds| size_of_val(values) as f64 / seconds / 1e9);
        let (bound_kind, bound) = bounds::parts(bound);
        Ok(Row {
            file: path.display().to_string(),
            device: "cuda",
            device_name: device.name(),
            preset: preset.name(),
            bound_kind,
            rel: bound.unwrap_or(0.0),
            ratio: file_ratio(device, sample, &config, &bytes)?,
            compress_gbps,
            decompress_gbps,
            copy_gbps,
            compress_over_copy: compress_gbps / copy_gbps,
            decompress_over_copy: decompress_gbps / copy_gbps,
            range_gbps,
            max_err_over_bound: found.max_error_over_bound,
            bound_kept: found.bound_kept(),
            equals_cpu,
        })
    }
}

/// The shortest time of each step in seconds; runs of the steps alternate.
fn best(
    device: &Device,
    runs: u32,
    mut works: [&mut dyn FnMut() -> pumice::Result<()>; 4],
) -> pumice::Result<[f64; 4]> {
    let mut best = [f64::INFINITY; 4];
    for run in 0..WARM_UPS + runs {
        for (best, work) in best.iter_mut().zip(&mut works) {
            let seconds = device.time(STREAM, work)?;
            if run >= WARM_UPS {
                *best = best.min(seconds);
            }
        }
    }
    Ok(best)
}

/// Raw size over compressed size of the unrepeated file; `bytes` is the stream of the repeated one.
fn file_ratio<T: DeviceElement>(
    device: &Device,
    sample: &Sample<T>,
    config: &Config,
    bytes: &[u8],
) -> pumice::Result<f64> {
    let file = &sample.values[..sample.file_len];
    let n_bytes = if file.len() == sample.values.len() {
        bytes.len()
    } else {
        device.compress(file, &sample.file_shape, config)?.len()
    };
    Ok(size_of_val(file) as f64 / n_bytes as f64)
}

/// Whether the CPU writes these bytes and restores these values, bit for bit.
fn equals_cpu<T: DeviceElement>(
    sample: &Sample<T>,
    config: &Config,
    options: &DecodeOptions,
    bytes: &[u8],
    restored: &[T],
) -> pumice::Result<bool> {
    let mut expected = Vec::new();
    pumice::compress_into(&sample.values, &sample.shape, config, &mut expected)?;
    let mut values = vec![T::default(); restored.len()];
    pumice::decompress_into(&expected, &mut values, options)?;
    let same_bits = values.iter().zip(restored).all(|(a, b)| a.to_bits_u64() == b.to_bits_u64());
    Ok(bytes == expected && same_bits)
}

fn describe(rows: &[Row]) -> String {
    let mut heading = vec![
        "file",
        "preset",
        "bound",
        "ratio",
        "compress",
        "of copy",
        "decompress",
        "of copy",
        "copy",
        "value range",
        "max error",
    ];
    let is_checked = rows.iter().any(|row| row.equals_cpu.is_some());
    heading.extend(is_checked.then_some("as the CPU"));
    let mut table = Table::new(&heading, 2);
    for row in rows {
        let mut cells = vec![file_name(&row.file), row.preset.into(), format!("{} {:e}", row.bound_kind, row.rel)];
        cells.extend(figures(|f| f(row)));
        cells.push(text::percent(row.max_err_over_bound, 2) + if row.bound_kept { "" } else { " BROKEN" });
        cells.extend(row.equals_cpu.map(|equal| if equal { "yes" } else { "NO" }.to_string()));
        table.row(cells);
    }
    let mut means = vec!["geometric mean".to_string(), String::new(), String::new()];
    means.extend(figures(|f| geometric_mean(rows.iter().map(f))));
    means.resize(heading.len(), String::new());
    table.row(means);
    let name = rows.first().map_or("", |row| row.device_name.as_str());
    format!("{}speeds in GB/s of array, {name}; errors in percent of the bound\n", table.render())
}

/// The measured columns; `pick` computes the number to show from a column.
fn figures(pick: impl Fn(fn(&Row) -> f64) -> f64) -> [String; 7] {
    [
        text::ratio(pick(|row| row.ratio)),
        format!("{:.1}", pick(|row| row.compress_gbps)),
        format!("{:.3}", pick(|row| row.compress_over_copy)),
        format!("{:.1}", pick(|row| row.decompress_gbps)),
        format!("{:.3}", pick(|row| row.decompress_over_copy)),
        format!("{:.1}", pick(|row| row.copy_gbps)),
        format!("{:.1}", pick(|row| row.range_gbps)),
    ]
}
