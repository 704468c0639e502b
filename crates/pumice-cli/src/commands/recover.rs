//! `pumice recover`: restores the intact chunks of a damaged file and lists the lost ones.

use std::ops::Range;
use std::path::PathBuf;

use pumice::{DecodeOptions, Element, ErrorKind, Info, ReadAt, Salvage, with_dtype};
use serde::Serialize;

use crate::cli::WorkerArgs;
use crate::failure::{Failure, Result};
use crate::input;
use crate::layout::Layout;
use crate::output::{self, ArrayFile};
use crate::parse;
use crate::text;
use crate::ui::{self, Ui};

/// Longer lists of lost chunks are cut in the text report; JSON has them all.
const MAX_LISTED: usize = 20;

/// Save the intact chunks of a damaged file
///
/// Writes the array with the values of lost chunks set to --missing, and lists these chunks. A checksum of each chunk
/// ensures that the other values are correct. If the beginning of the file is lost, the copy of the header at its end
/// takes its place. The exit code is 4 if no chunk is intact.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The damaged file
    input: PathBuf,

    /// The array, raw or .npy by its extension
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// The value to write for lost ones
    #[arg(long, value_name = "V", default_value = "nan", value_parser = parse::number, allow_hyphen_values = true)]
    missing: f64,

    /// Which stream to save, from 1 on, of a file that was concatenated from several
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    stream: u32,

    #[command(flatten)]
    workers: WorkerArgs,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    /// Which stream of the file was saved, from 1 on, and how many there are.
    stream: u32,
    n_streams: usize,
    dtype: &'static str,
    shape: Vec<usize>,
    n_chunks: u64,
    n_intact: u64,
    n_lost: u64,
    lost_values: u64,
    lost_percent: f64,
    /// False if more may be lost after the last chunk that was found.
    end_known: bool,
    #[serde(serialize_with = "ui::any_number")]
    missing: f64,
    lost: Vec<Lost>,
}

/// One lost chunk.
#[derive(Serialize)]
struct Lost {
    chunk: u64,
    region: String,
    values: u64,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    output::refuse_same_file(&args.input, &args.output)?;
    let file = input::open_file(&args.input)?;
    let options = DecodeOptions::new().threads(args.workers.threads);
    let salvage = pumice::salvage_stream(file, args.stream as usize - 1, options).map_err(|e| {
        let is_stream = e.kind() != ErrorKind::InvalidArgument;
        let failure = Failure::from(e).at(&args.input);
        match is_stream {
            true => {
                failure.hint("recovery needs the header of the stream or its copy in the index; nothing was written")
            }
            false => failure,
        }
    })?;
    let info = salvage.info();
    let lost = salvage.lost();
    if salvage.intact().is_empty() && !lost.is_empty() {
        let message =
            format!("{}: none of the {} chunks is intact; nothing was written", args.input.display(), lost.len());
        return Err(Failure::new(ErrorKind::Corrupt, message));
    }
    let layout = Layout { dtype: info.dtype, shape: info.shape.clone() };
    with_dtype!(info.dtype, T => write::<T, _>(&salvage, args, &layout, ui))?;
    let mut report = report(args, info, salvage.intact().len() as u64, &lost);
    report.end_known = salvage.end_is_known();
    report.n_streams = salvage.n_streams();
    ui.report(&report, || describe(&report))
}

fn write<T: Element, R: ReadAt>(salvage: &Salvage<R>, args: &Args, layout: &Layout, ui: &Ui) -> Result<()> {
    let mut file = ArrayFile::create(&args.output, layout)?;
    let bar = ui.bytes_bar(layout.n_bytes().unwrap_or(0), "recovering");
    let missing = T::from_f64(args.missing);
    for (_, region) in salvage.lost() {
        for slice in slices(&region) {
            let values = vec![missing; volume(&slice)];
            file.write_box(&slice, &values)?;
            bar.inc(size_of_val(values.as_slice()) as u64);
        }
    }
    salvage.for_each_chunk::<T>(|region, values| {
        file.write_box(region, values)?;
        bar.inc(size_of_val(values) as u64);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(file.commit()?)
}

/// Cuts a region along its first axis, to bound memory: without an index a lost region can be most of the array.
fn slices(region: &[Range<usize>]) -> Vec<Vec<Range<usize>>> {
    const SLICE_VALUES: usize = 1 << 22;
    let Some((rows, rest)) = region.split_first() else { return vec![region.to_vec()] };
    let rows_per_slice = (SLICE_VALUES / volume(rest).max(1)).max(1);
    let slice = |at: usize| {
        let mut slice = region.to_vec();
        slice[0] = at..rows.end.min(at + rows_per_slice);
        slice
    };
    rows.clone().step_by(rows_per_slice).map(slice).collect()
}

/// Number of values; saturates, since an extent of 0 may follow huge ones.
fn volume(region: &[Range<usize>]) -> usize {
    region.iter().fold(1, |n: usize, range| n.saturating_mul(range.len()))
}

fn report(args: &Args, info: &Info, n_intact: u64, lost: &[(u64, Vec<Range<usize>>)]) -> Report {
    let lost_values: u64 = lost.iter().map(|(_, region)| volume(region) as u64).sum();
    let n_values = (info.raw_bytes / info.dtype.size() as u64).max(1);
    let list = lost.iter().map(|(chunk, region)| Lost {
        chunk: *chunk,
        region: text::region(region),
        values: volume(region) as u64,
    });
    Report {
        input: args.input.display().to_string(),
        output: args.output.display().to_string(),
        stream: args.stream,
        n_streams: 1,
        dtype: info.dtype.name(),
        shape: info.shape.clone(),
        n_chunks: info.n_chunks,
        n_intact,
        n_lost: info.n_chunks - n_intact,
        lost_values,
        lost_percent: lost_values as f64 * 100.0 / n_values as f64,
        end_known: true,
        missing: args.missing,
        lost: list.collect(),
    }
}

fn describe(report: &Report) -> String {
    let mut out = format!(
        "{}: {} {}, {} of {} chunks intact\n",
        report.output,
        text::shape(&report.shape),
        report.dtype,
        report.n_intact,
        report.n_chunks,
    );
    if report.n_streams > 1 {
        let (n, i) = (report.n_streams, report.stream);
        out += &format!("this is stream {i} of {n} in the file; --stream saves another\n");
    }
    if !report.end_known {
        let rows = report.shape.first().unwrap_or(&0);
        out += &format!("the end of the file is missing: whatever came after row {rows} is lost\n");
    }
    if report.lost.is_empty() {
        return if report.end_known { out + "nothing was lost\n" } else { out };
    }
    let percent = text::number(report.lost_percent, 3);
    out += &format!("lost: {} values ({percent} %), now {}:\n", report.lost_values, report.missing);
    for lost in report.lost.iter().take(MAX_LISTED) {
        out += &format!("  chunk {} = [{}]\n", lost.chunk, lost.region);
    }
    if report.lost.len() > MAX_LISTED {
        out += &format!("  and {} more (--json lists all)\n", report.lost.len() - MAX_LISTED);
    }
    out
}
