//! `pumice recover`: restores the intact chunks of a damaged file and lists the lost ones.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pumice::{DecodeOptions, Element, ErrorKind, Salvage, with_dtype};
use serde::{Serialize, Serializer};

use crate::cli::WorkerArgs;
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::input;
use crate::layout::Layout;
use crate::output::{self, ArrayFile};
use crate::parse;
use crate::text;
use crate::ui::{self, Ui};

/// Longer lists of lost chunks are cut in the text report; JSON has them all.
const MAX_LISTED: usize = 20;
/// Values that are written at a time in place of lost ones.
const SLICE_VALUES: usize = 1 << 18;

/// Save the intact chunks of a damaged file
///
/// Writes the array with the values of lost chunks set to --missing, and lists these chunks. A checksum of each chunk
/// ensures that the other values are correct. If the beginning of the file is lost, the copy of the header at its end
/// takes its place. The exit code is 4 if no chunk is intact.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The damaged file, or - for standard input
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
struct Report<'a> {
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
    /// How many of the intact chunks may be those of another stream.
    n_uncertain: u64,
    lost_values: u64,
    lost_percent: f64,
    /// False if more may be lost after the last chunk that was found.
    end_known: bool,
    #[serde(serialize_with = "ui::any_number")]
    missing: f64,
    #[serde(serialize_with = "all_uncertain")]
    uncertain: &'a Salvage<File>,
    #[serde(serialize_with = "all_lost")]
    lost: &'a Salvage<File>,
}

/// One lost chunk.
#[derive(Serialize)]
struct Lost {
    chunk: u64,
    region: String,
    values: u64,
}

/// A forged file can lose more chunks than a list has room for.
fn lost(salvage: &Salvage<File>) -> impl Iterator<Item = Lost> {
    salvage.lost().map(|(chunk, region)| Lost { chunk, region: text::region(&region), values: volume(&region) as u64 })
}

fn all_lost<S: Serializer>(salvage: &Salvage<File>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(lost(salvage))
}

fn all_uncertain<S: Serializer>(salvage: &Salvage<File>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_seq(salvage.uncertain())
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    output::refuse_same_file(&args.input, &args.output)?;
    let file = open(&args.input)?;
    let options = DecodeOptions::new().threads(args.workers.threads);
    let salvage = pumice::salvage_stream(file, args.stream as usize - 1, options).map_err(|e| {
        let is_damage = matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Truncated);
        let failure = Failure::from(e).at(&args.input);
        match is_damage {
            true => {
                failure.hint("recovery needs the header of the stream or its copy in the index; nothing was written")
            }
            false => failure,
        }
    })?;
    if salvage.intact().is_empty() && salvage.lost().next().is_some() {
        let n = salvage.lost().count();
        let message = format!("{}: none of the {n} chunks is intact; nothing was written", args.input.display());
        return Err(Failure::new(ErrorKind::Corrupt, message));
    }
    let info = salvage.info();
    let layout = Layout { dtype: info.dtype, shape: info.shape.clone() };
    with_dtype!(info.dtype, T => write::<T>(&salvage, args, &layout, ui))?;
    let report = report(args, &salvage);
    ui.report(&report, || describe(&report))
}

/// Opens the damaged file; refuses what holds streams within another format.
fn open(path: &Path) -> Result<File> {
    if path.is_dir() {
        return Err(foreign::refuse_to_recover_folder(path));
    }
    let mut file = input::open_or_spool(path)?;
    match input::is_hdf5(&mut file, path)? {
        true => Err(foreign::refuse_to_recover_hdf5(path)),
        false => Ok(file),
    }
}

fn write<T: Element>(salvage: &Salvage<File>, args: &Args, layout: &Layout, ui: &Ui) -> Result<()> {
    let mut file = ArrayFile::create(&args.output, layout)?;
    let bar = ui.bytes_bar(layout.n_bytes().unwrap_or(0), "recovering");
    let values: Vec<T> = std::iter::repeat_n(T::from_f64(args.missing), SLICE_VALUES).collect();
    for (_, mut region) in salvage.lost() {
        for_each_slice(&mut region, 0, &mut |slice| {
            let values = &values[..volume(slice)];
            file.write_box(slice, values)?;
            bar.inc(size_of_val(values) as u64);
            Ok(())
        })?;
    }
    salvage.for_each_chunk::<T>(|region, values| {
        file.write_box(region, values)?;
        bar.inc(size_of_val(values) as u64);
        Ok(())
    })?;
    bar.finish_and_clear();
    Ok(file.commit()?)
}

/// Cuts a region along its axes, from `axis` on, into slices of limited size: without an index a lost region can be most
/// of the array.
fn for_each_slice(
    region: &mut [Range<usize>],
    axis: usize,
    f: &mut impl FnMut(&[Range<usize>]) -> pumice::Result<()>,
) -> pumice::Result<()> {
    if volume(region) <= SLICE_VALUES {
        return f(region);
    }
    let whole = region[axis].clone();
    let n = (SLICE_VALUES / volume(&region[axis + 1..])).max(1);
    for start in whole.clone().step_by(n) {
        region[axis] = start..whole.end.min(start.saturating_add(n));
        for_each_slice(region, axis + 1, f)?;
    }
    region[axis] = whole;
    Ok(())
}

/// Number of values; saturates, since an extent of 0 may follow huge ones.
fn volume(region: &[Range<usize>]) -> usize {
    region.iter().fold(1, |n: usize, range| n.saturating_mul(range.len()))
}

fn report<'a>(args: &Args, salvage: &'a Salvage<File>) -> Report<'a> {
    let info = salvage.info();
    let n_intact = salvage.intact().len() as u64;
    let lost_values: u64 = salvage.lost().map(|(_, region)| volume(&region) as u64).sum();
    let n_values = (info.raw_bytes / info.dtype.size() as u64).max(1);
    Report {
        input: args.input.display().to_string(),
        output: args.output.display().to_string(),
        stream: args.stream,
        n_streams: salvage.n_streams(),
        dtype: info.dtype.name(),
        shape: info.shape.clone(),
        n_chunks: info.n_chunks,
        n_intact,
        n_lost: info.n_chunks - n_intact,
        n_uncertain: salvage.uncertain().len() as u64,
        lost_values,
        lost_percent: lost_values as f64 * 100.0 / n_values as f64,
        end_known: salvage.end_is_known(),
        missing: args.missing,
        uncertain: salvage,
        lost: salvage,
    }
}

fn describe(report: &Report<'_>) -> String {
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
    if let [first, .., last] | [first @ last] = report.uncertain.uncertain() {
        out += &format!(
            "{} of these chunks (from {first} to {last}) are not where they would be if bytes had only been overwritten: \
             bytes were lost or added, or files of the same kind were concatenated, and these chunks may be those of \
             another one (--json lists them)\n",
            report.n_uncertain
        );
    }
    if report.lost.lost().next().is_none() {
        return if report.end_known { out + "nothing was lost\n" } else { out };
    }
    let percent = text::number(report.lost_percent, 3);
    out += &format!("lost: {} values ({percent} %), now {}:\n", report.lost_values, report.missing);
    for lost in lost(report.lost).take(MAX_LISTED) {
        out += &format!("  chunk {} = [{}]\n", lost.chunk, lost.region);
    }
    let n_more = lost(report.lost).count().saturating_sub(MAX_LISTED);
    if n_more > 0 {
        out += &format!("  and {n_more} more (--json lists all)\n");
    }
    out
}
