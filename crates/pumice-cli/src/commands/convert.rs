//! `pumice convert`: compresses the variables of HDF5 and NetCDF files, each with its own bound.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;
use pumice::{AtomicFile, AtomicFolder, ErrorKind, Preset};
use pumice_fields::{ChunkWord, Chunks, Rules, Treatment};
use serde::Serialize;

use crate::bounds::{BoundReport, parts};
use crate::cli::{BoundArgs, WorkerArgs};
use crate::commands::compress::{PresetArg, preset};
use crate::convert::catalog::{Catalog, Kind, raw_bytes};
use crate::convert::record::{self, Record};
use crate::convert::source::Input;
use crate::convert::variable::{self, Outcome};
use crate::convert::{to_hdf5, to_zarr};
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::input;
use crate::output;
use crate::parse;
use crate::text::{self, Table};
use crate::ui::{self, Ui};

/// Variables of so many values are tried with larger chunks although this is no dry run, which costs little there.
const MANY_VALUES: usize = 1 << 24;
/// The gain in ratio that is worth a note.
const WORTHWHILE_GAIN: f64 = 0.05;

const AFTER_HELP: &str = "\
Examples:
  pumice convert in.nc out.nc --config fields.toml --dry-run    estimated sizes
  pumice convert in.nc out.nc --config fields.toml
  pumice convert in.nc out.zarr --config fields.toml
  pumice convert in.nc out.nc --config fields.xml               an XML file of XIOS
  pumice convert in.nc out.nc --rel 1e-3                        every field that is not a coordinate
  pumice convert in.h5 out.h5                                   without loss

fields.toml; the last entry whose name matches decides:
  [[field]]
  name = \"*\"                  # wildcards do not match coordinates
  rel = 1e-3                  # and abs, pwrel; or psnr, l2, ratio, lossless = true, keep = true

  [[field]]
  name = [\"T\", \"ocean/SST\"]
  abs = 0.01
  preset = \"max\"
  chunks = [1, 192, 288]      # or \"keep\", \"auto\"

fields.xml, as XIOS reads it; fields inherit what their file says:
  <file compression_type=\"lossy\" error_bound_mode=\"rel\" error_bound=\"1e-3\">
    <field field_ref=\"t\" error_bound_mode=\"abs\" error_bound=\"0.01\" />
    <field field_ref=\"cc\" compression_type=\"lossless\" compression_level=\"4\" />
  </file>

Reading the result needs the HDF5 plugin, or `import pumice` in Python (docs/hdf5.md).";

/// Compress the variables of an HDF5 or NetCDF file, each with its own bound
///
/// Float variables that no entry of the configuration matches get the bounds of the command line, or else are compressed
/// without loss; everything else is copied unchanged. Attributes, dimensions and coordinates are kept. Attributes of each
/// compressed variable record its bound, the largest error found and a checksum of its values; `pumice check` says whether
/// they are still true. Needs an HDF5 library, which is loaded when the command runs.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP, mut_group("BoundArgs", |bounds| bounds.required(false)))]
pub(crate) struct Args {
    /// The file: HDF5 or NetCDF, including classic NetCDF; not a pipe
    input: PathBuf,

    /// The result: a Zarr store of format 3 if its name ends with .zarr, otherwise HDF5 (.nc, .h5). An existing file or
    /// store is replaced
    output: PathBuf,

    /// Bounds, presets and chunks by name of the variable: TOML, or XML in the manner of XIOS
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    bounds: Option<BoundArgs>,

    /// Speed or size, for variables that the configuration does not name
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<PresetArg>,

    /// Chunks of these variables: extents, keep (as in the input) or auto (about a million values)
    #[arg(long, alias = "chunk", value_name = "N,N,..", value_parser = chunks)]
    chunks: Option<Chunks>,

    /// Only show what would be done, with estimated sizes
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    workers: WorkerArgs,
}

/// `keep`, `auto` or extents.
fn chunks(text: &str) -> std::result::Result<Chunks, String> {
    match text {
        "keep" => Ok(Chunks::Word(ChunkWord::Keep)),
        "auto" => Ok(Chunks::Word(ChunkWord::Auto)),
        _ => parse::extents(text).map(|extents| Chunks::Extents(extents.0)),
    }
}

/// Number of threads and progress bar of a writer.
pub(crate) struct Work<'a> {
    pub(crate) threads: usize,
    /// For the records and the history.
    pub(crate) date: &'a str,
    /// The line of this conversion in the history.
    pub(crate) history: String,
    bar: &'a ProgressBar,
    done: Cell<u64>,
}

impl Work<'_> {
    pub(crate) fn progress(&self, bytes: u64) {
        self.done.set(self.done.get() + bytes);
        self.bar.set_position(self.done.get());
    }
}

/// A variable as `--json` prints it.
#[derive(Serialize)]
struct VariableReport {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    chunk_shape: Vec<usize>,
    bounds: Vec<BoundReport>,
    preset: &'static str,
    raw_bytes: u64,
    /// An estimate in a dry run.
    compressed_bytes: u64,
    ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_abs_error: Option<f64>,
    /// What was taken for a fill value in some chunk.
    #[serde(serialize_with = "ui::any_numbers")]
    fills: Vec<f64>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    input: String,
    output: String,
    dry_run: bool,
    variables: Vec<VariableReport>,
    /// Datasets that are copied unchanged.
    n_kept: usize,
    kept_bytes: u64,
    left_out: Vec<String>,
    /// What the user should know of single variables.
    notes: Vec<String>,
    input_bytes: u64,
    /// In a dry run an estimate, without the overhead of the file format.
    output_bytes: u64,
    seconds: f64,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let start = Instant::now();
    let rules = match &args.config {
        Some(path) => Rules::load(path, args.others())?,
        None => Rules::new(args.others())?,
    };
    let date = record::date()?;
    for path in [&args.input].into_iter().chain(&args.config) {
        output::refuse_same_file(path, &args.output)?;
        refuse_inside(path, &args.output)?;
    }
    refuse_streams(args)?;
    let mut input = Input::open(&args.input)?;
    let mut catalog = Catalog::of(&input, &rules).map_err(|e| e.at(&args.input))?;
    if args.is_zarr() {
        input.extend(&catalog)?;
    }
    // More threads than cores take memory for their chunks, and gain nothing.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = match args.workers.threads {
        0 => cores,
        n => n.min(cores),
    };
    resolve(args, &input, &mut catalog, threads, ui)?;
    let (outcomes, written) = if args.dry_run {
        (estimates(&input, &catalog, threads, ui)?, None)
    } else {
        let (outcomes, written) = write(args, &input, &mut catalog, &date, threads, ui)?;
        (outcomes, Some(written))
    };
    add_notes(args, &input, &mut catalog, &outcomes, threads)?;
    let mut report = report(args, &input, catalog, &outcomes)?;
    // The last thing that can fail: with an error there is no output.
    if let Some(written) = written {
        written.commit()?;
        report.output_bytes = file_bytes(&args.output).unwrap_or(report.output_bytes);
    }
    report.seconds = start.elapsed().as_secs_f64();
    ui.summary(&report, false, || describe(&report))
}

/// A result that gets its name when it is committed.
enum Written {
    File(AtomicFile),
    Store(AtomicFolder),
}

impl Written {
    fn commit(self) -> pumice::Result<()> {
        match self {
            Written::File(file) => file.commit(),
            Written::Store(store) => store.commit(),
        }
    }
}

/// A store is replaced with everything that is in it.
fn refuse_inside(input: &Path, output: &Path) -> Result<()> {
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(inner), Ok(outer)) if inner.starts_with(&outer) => {
            let message = format!("{} is inside of {}, which would be replaced", input.display(), output.display());
            Err(Failure::invalid(message))
        }
        _ => Ok(()),
    }
}

/// HDF5 reads and writes at any offset.
fn refuse_streams(args: &Args) -> Result<()> {
    let refused = |path: &Path, hint: &str| {
        let message = format!("{} is no file: this command reads and writes at any offset", path.display());
        Err(Failure::invalid(message).hint(hint))
    };
    if input::is_stream(&args.input) {
        return refused(&args.input, "save the input to a file first");
    }
    if output::is_stream(&args.output) {
        return refused(&args.output, "name a file or a Zarr store; --dry-run only estimates sizes");
    }
    Ok(())
}

impl Args {
    fn is_zarr(&self) -> bool {
        self.output.extension().is_some_and(|e| e.eq_ignore_ascii_case("zarr"))
    }

    /// What is done, as a line of the history: without folders and the number of threads, on which the result does not
    /// depend.
    fn history(&self, date: &str) -> String {
        let name = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut words = vec!["convert".into(), name(&self.input), name(&self.output)];
        if let Some(config) = &self.config {
            words.extend(["--config".into(), name(config)]);
        }
        for bound in self.bounds.iter().flat_map(BoundArgs::bounds) {
            let (kind, value) = parts(bound);
            words.push(format!("--{kind}"));
            words.extend(value.map(text::exact));
        }
        words.extend(self.preset.into_iter().flat_map(|preset| ["--preset".into(), preset.to_string()]));
        words.extend(self.chunks.iter().flat_map(|chunks| ["--chunks".into(), chunks.to_string()]));
        format!("{date}: pumice {} (version {})", words.join(" "), env!("CARGO_PKG_VERSION"))
    }

    /// The treatment of variables that no entry of the configuration matches.
    fn others(&self) -> Treatment {
        let bounds = self.bounds.as_ref().map_or_else(Vec::new, BoundArgs::bounds);
        let preset = self.preset.map_or_else(Preset::default, |preset| preset.0);
        Treatment { preset, chunks: self.chunks.clone(), ..Treatment::new(bounds) }
    }
}

/// Finds the bounds of stored values, for which relative bounds need the ranges of whole variables. Whatever makes reading
/// or writing impossible is found here, before anything is written.
fn resolve(args: &Args, input: &Input, catalog: &mut Catalog, threads: usize, ui: &Ui) -> Result<()> {
    let bar = ui.steps_bar(catalog.items.len() as u64, "ranges");
    for item in &mut catalog.items {
        let (path, shown) = (item.path(), item.shown());
        let is_read = matches!(item.kind, Kind::Compressed(_)) || args.is_zarr() && matches!(item.kind, Kind::Kept);
        if is_read {
            input.root.dataset(&path)?.require_filters().map_err(|e| Failure::from(e).within(&shown))?;
        }
        if let Kind::Compressed(plan) = &mut item.kind {
            variable::resolve(&input.variable(&path)?, plan, threads).map_err(|e| e.within(&shown))?;
            if plan.pointwise.is_some() && !args.is_zarr() {
                let message = "pwrel beside abs or rel: a dataset of HDF5 can have only one of them";
                return Err(Failure::new(ErrorKind::Unsupported, message)
                    .hint("Zarr can have both: name the output .zarr")
                    .within(&shown));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Adds what the user should know of the compressed variables: records that are no longer true, and chunks that cost much.
fn add_notes(args: &Args, input: &Input, catalog: &mut Catalog, outcomes: &[Outcome], threads: usize) -> Result<()> {
    let mut outcomes = outcomes.iter();
    for item in &catalog.items {
        let Kind::Compressed(plan) = &item.kind else { continue };
        let variable = input.variable(&item.path())?;
        let earlier = Record::of(&variable.dataset)?;
        if let (Some(outcome), Some(earlier)) = (outcomes.next(), earlier)
            && !args.dry_run
        {
            let (name, bound) = (item.shown(), earlier.bound.as_str());
            match earlier.speaks_of(outcome.input_checksum, plan.packing) {
                Some(true) => {}
                Some(false) => catalog.notes.push(format!(
                    "{name}: rewritten since an earlier conversion ({bound}), whose record speaks of other values"
                )),
                None => catalog.notes.push(format!(
                    "{name}: the record of an earlier conversion ({bound}) has no checksum, so its values may have changed"
                )),
            }
        }
        let n_values = variable.shape().iter().fold(1, |n: usize, extent| n.saturating_mul(*extent));
        if args.dry_run || n_values >= MANY_VALUES {
            let gain =
                variable::gain_of_larger_chunks(&variable, plan, threads).map_err(|e| e.within(&item.shown()))?;
            if let Some(gain) = gain.filter(|gain| *gain >= WORTHWHILE_GAIN) {
                let chunk = text::shape(&plan.chunk_type.extents);
                let gain = (gain * 100.0).floor();
                let advice = format!("chunks of {chunk} cost ratio: \"auto\" would better it by about {gain} %");
                catalog.notes.push(format!("{}: {advice}", item.shown()));
            }
        }
    }
    Ok(())
}

/// The bytes that the progress bar counts.
fn total_bytes(input: &Input, catalog: &Catalog) -> Result<u64> {
    let mut total = 0;
    for item in &catalog.items {
        total += match &item.kind {
            Kind::Kept => input.variable(&item.path())?.stored_bytes()?,
            Kind::Compressed(plan) => raw_bytes(&input.root.dataset(&item.path())?, plan.chunk_type.dtype),
            _ => 0,
        };
    }
    Ok(total)
}

fn estimates(input: &Input, catalog: &Catalog, threads: usize, ui: &Ui) -> Result<Vec<Outcome>> {
    let bar = ui.bytes_bar(total_bytes(input, catalog)?, "estimating");
    let mut outcomes = Vec::new();
    for item in &catalog.items {
        if let Kind::Compressed(plan) = &item.kind {
            let variable = input.variable(&item.path())?;
            let stored_bytes = variable::estimate(&variable, plan, threads).map_err(|e| e.within(&item.shown()))?;
            outcomes.push(Outcome { stored_bytes, ..Outcome::default() });
            bar.inc(raw_bytes(&variable.dataset, plan.chunk_type.dtype));
        }
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// Writes under a temporary name.
fn write(
    args: &Args,
    input: &Input,
    catalog: &mut Catalog,
    date: &str,
    threads: usize,
    ui: &Ui,
) -> Result<(Vec<Outcome>, Written)> {
    let bar = ui.bytes_bar(total_bytes(input, catalog)?, "converting");
    let work = Work { threads, date, history: args.history(date), bar: &bar, done: Cell::new(0) };
    let path = &args.output;
    let written = if args.is_zarr() {
        check_replaceable(path)?;
        let store = AtomicFolder::create(path).map_err(|e| e.context("cannot write"))?;
        let outcomes = to_zarr::write(input, catalog, store.temporary_path(), &work)?;
        (outcomes, Written::Store(store))
    } else {
        // libhdf5 writes to a path.
        let file = AtomicFile::create_named(path).map_err(|e| e.context("cannot write"))?;
        let outcomes = to_hdf5::write(input, catalog, file.temporary_path(), &work)?;
        (outcomes, Written::File(file))
    };
    bar.finish_and_clear();
    Ok(written)
}

/// Refuses to replace a folder that is not a Zarr store: it may hold anything.
fn check_replaceable(path: &Path) -> Result<()> {
    let is_empty = || path.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    if !path.is_dir() || foreign::is_zarr(path) || is_empty() {
        return Ok(());
    }
    let message = format!("{} exists already and is not a Zarr store", path.display());
    Err(Failure::invalid(message).hint("remove it first, or write to another name"))
}

fn report(args: &Args, input: &Input, catalog: Catalog, outcomes: &[Outcome]) -> Result<Report> {
    let (mut variables, mut n_kept, mut kept_bytes) = (Vec::new(), 0, 0);
    for item in &catalog.items {
        match &item.kind {
            Kind::Kept => {
                n_kept += 1;
                kept_bytes += input.variable(&item.path())?.stored_bytes()?;
            }
            Kind::Compressed(plan) => {
                let variable = input.variable(&item.path())?;
                let outcome = &outcomes[variables.len()];
                let raw_bytes = raw_bytes(&variable.dataset, plan.chunk_type.dtype);
                variables.push(VariableReport {
                    name: item.shown(),
                    dtype: plan.chunk_type.dtype.name(),
                    shape: variable.shape().to_vec(),
                    chunk_shape: plan.chunk_type.extents.clone(),
                    bounds: plan.bounds.iter().map(BoundReport::from).collect(),
                    preset: plan.options.preset.name(),
                    raw_bytes,
                    compressed_bytes: outcome.stored_bytes,
                    ratio: raw_bytes as f64 / outcome.stored_bytes.max(1) as f64,
                    max_abs_error: (!args.dry_run).then_some(outcome.max_abs_error),
                    fills: outcome.fills.clone(),
                });
            }
            _ => {}
        }
    }
    let expected = kept_bytes + variables.iter().map(|variable| variable.compressed_bytes).sum::<u64>();
    Ok(Report {
        input: args.input.display().to_string(),
        output: args.output.display().to_string(),
        dry_run: args.dry_run,
        variables,
        n_kept,
        kept_bytes,
        left_out: catalog.left_out,
        notes: catalog.notes,
        input_bytes: file_bytes(&args.input).unwrap_or(0),
        output_bytes: expected,
        seconds: 0.0,
    })
}

fn file_bytes(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len())
}

fn describe(report: &Report) -> String {
    let sizes = if report.dry_run { ["expected", "ratio"] } else { ["stored", "ratio"] };
    let mut table =
        Table::new(&["variable", "bound", "preset", "shape", "raw", sizes[0], sizes[1], "largest error", "no data"], 4);
    for variable in &report.variables {
        table.row(vec![
            variable.name.clone(),
            text::join(&variable.bounds, ", "),
            variable.preset.into(),
            text::shape(&variable.shape),
            text::bytes(variable.raw_bytes),
            text::bytes(variable.compressed_bytes),
            text::ratio(variable.ratio),
            variable.max_abs_error.map_or("-".into(), |error| text::number(error, 4)),
            if variable.fills.is_empty() { "-".into() } else { text::fills(&variable.fills, variable.dtype) },
        ]);
    }
    let notes: String = report.notes.iter().map(|note| format!("note: {note}\n")).collect();
    let left_out: String = report.left_out.iter().map(|what| format!("left out: {what}\n")).collect();
    format!(
        "{}{notes}{left_out}{} copied unchanged, {}\n{}: {} -> {}{}, {}\n",
        table.render(),
        if report.n_kept == 1 { "1 dataset".into() } else { format!("{} datasets", report.n_kept) },
        text::bytes(report.kept_bytes),
        report.output,
        text::bytes(report.input_bytes),
        if report.dry_run { "about " } else { "" },
        text::bytes(report.output_bytes),
        text::seconds(report.seconds),
    )
}
