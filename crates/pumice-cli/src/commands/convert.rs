//! `pumice convert`: compresses the variables of HDF5 and NetCDF files, each with its own bound.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;
use pumice::ErrorBound;
use pumice_hdf5::files::{Dataset, Value};
use serde::Serialize;

use crate::bounds::{BoundReport, parts};
use crate::cli::WorkerArgs;
use crate::convert::catalog::{Catalog, Kind, Plan, raw_bytes};
use crate::convert::rules::Rules;
use crate::convert::source::Input;
use crate::convert::variable::{self, Outcome};
use crate::convert::{to_hdf5, to_zarr};
use crate::failure::{Failure, Result, io_context};
use crate::output;
use crate::text::{self, Table};
use crate::ui::Ui;

const AFTER_HELP: &str = "\
Examples:
  pumice convert in.nc out.nc --config fields.toml --dry-run    estimated sizes
  pumice convert in.nc out.nc --config fields.toml
  pumice convert in.nc out.zarr --config fields.toml
  pumice convert in.h5 out.h5                                   without loss

fields.toml; the last entry whose name matches decides:
  [[field]]
  name = \"*\"                  # wildcards do not match coordinates
  rel = 1e-3                  # or abs, pwrel, psnr, l2, ratio, lossless = true, keep = true

  [[field]]
  name = [\"T\", \"ocean/SST\"]
  abs = 0.01
  preset = \"max\"
  chunks = [1, 192, 288]      # or \"keep\", \"auto\"

Reading the result needs the HDF5 plugin, or `import pumice` in Python (docs/hdf5.md).";

/// Compress the variables of an HDF5 or NetCDF file, each with its own bound
///
/// Float variables that no entry of the configuration matches are compressed without loss; everything else is copied
/// unchanged. Attributes, dimensions and coordinates are kept; each compressed variable gets attributes with its bound,
/// preset, version and the largest error found. Needs an HDF5 library, which is loaded when the command runs.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The file: HDF5 or NetCDF, including classic NetCDF
    input: PathBuf,

    /// The result: a Zarr store of format 3 if its name ends with .zarr, otherwise HDF5 (.nc, .h5)
    output: PathBuf,

    /// Bounds, presets and chunks by name of the variable
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Only show what would be done, with estimated sizes
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    workers: WorkerArgs,
}

/// Number of threads and progress bar of a writer.
pub(crate) struct Work<'a> {
    pub(crate) threads: usize,
    bar: &'a ProgressBar,
    done: Cell<u64>,
}

impl Work<'_> {
    pub(crate) fn progress(&self, bytes: u64) {
        self.done.set(self.done.get() + bytes);
        self.bar.set_position(self.done.get());
    }
}

/// The attributes that record how a variable was compressed.
pub(crate) struct Record {
    bound: String,
    preset: &'static str,
    pub(crate) max_abs_error: f64,
}

impl Record {
    pub(crate) const MAX_ERROR: &'static str = "pumice_max_abs_error";
    const BOUND: &'static str = "pumice_bound";

    /// The record of the variable made from this dataset. If the dataset was already lossy, errors add up; `None` if
    /// there are no new errors, so that its record still holds.
    pub(crate) fn new(plan: &Plan, outcome: &Outcome, dataset: &Dataset) -> Result<Option<Self>> {
        let bound = match parts(plan.bound) {
            (kind, Some(value)) => format!("{kind} {value:e}"),
            (kind, None) => kind.into(),
        };
        let bound = match (plan.bound, plan.options.range) {
            (ErrorBound::Rel(_), Some((lo, hi))) => format!("{bound} of the range {lo:e} to {hi:e}"),
            _ => bound,
        };
        let lossless = parts(ErrorBound::Lossless).0;
        let earlier = match dataset.value(Self::BOUND)? {
            Some(Value::Texts(texts)) => texts.into_iter().next().filter(|bound| bound != lossless),
            _ => None,
        };
        let (bound, earlier_error) = match earlier {
            Some(_) if plan.bound == ErrorBound::Lossless => return Ok(None),
            Some(earlier) => (format!("{earlier}, then {bound}"), earlier_error(dataset)?),
            None => (bound, 0.0),
        };
        let max_abs_error = earlier_error + outcome.max_abs_error;
        Ok(Some(Self { bound, preset: plan.options.preset.name(), max_abs_error }))
    }

    /// The attributes that are strings.
    pub(crate) fn texts(&self) -> [(&'static str, String); 3] {
        [
            (Self::BOUND, self.bound.clone()),
            ("pumice_preset", self.preset.into()),
            ("pumice_version", env!("CARGO_PKG_VERSION").into()),
        ]
    }
}

/// The largest error of an earlier compression; NaN if it is unknown.
fn earlier_error(dataset: &Dataset) -> Result<f64> {
    Ok(match dataset.value(Record::MAX_ERROR)? {
        Some(Value::Floats(errors)) => errors.first().copied().unwrap_or(f64::NAN),
        _ => f64::NAN,
    })
}

/// A variable as `--json` prints it.
#[derive(Serialize)]
struct VariableReport {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    chunk_shape: Vec<usize>,
    #[serde(flatten)]
    bound: BoundReport,
    preset: &'static str,
    raw_bytes: u64,
    /// An estimate in a dry run.
    compressed_bytes: u64,
    ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_abs_error: Option<f64>,
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
    input_bytes: u64,
    /// In a dry run an estimate, without the overhead of the file format.
    output_bytes: u64,
    seconds: f64,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let start = Instant::now();
    let rules = args.config.as_deref().map_or(Ok(Rules::default()), Rules::load)?;
    output::refuse_same_file(&args.input, &args.output)?;
    let input = Input::open(&args.input)?;
    let mut catalog = Catalog::of(&input, &rules).map_err(|e| e.at(&args.input))?;
    let threads = match args.workers.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        n => n,
    };
    find_ranges(&input, &mut catalog, threads, ui)?;
    let outcomes = if args.dry_run {
        estimates(&input, &catalog, threads, ui)?
    } else {
        write(args, &input, &mut catalog, threads, ui)?
    };
    let report = report(args, &input, catalog, &outcomes, start.elapsed().as_secs_f64())?;
    ui.summary(&report, false, || describe(&report))
}

/// Finds the value ranges of whole variables, which relative bounds need before anything is written.
fn find_ranges(input: &Input, catalog: &mut Catalog, threads: usize, ui: &Ui) -> Result<()> {
    let bar = ui.steps_bar(catalog.items.len() as u64, "ranges");
    for item in &mut catalog.items {
        let (path, shown) = (item.path(), item.shown());
        if let Kind::Compressed(plan) = &mut item.kind {
            variable::find_range(&input.variable(&path)?, plan, threads).map_err(|e| e.within(&shown))?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
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
            outcomes.push(Outcome { stored_bytes, max_abs_error: 0.0 });
            bar.inc(raw_bytes(&variable.dataset, plan.chunk_type.dtype));
        }
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// Writes under a temporary name, and renames when all is written.
fn write(args: &Args, input: &Input, catalog: &mut Catalog, threads: usize, ui: &Ui) -> Result<Vec<Outcome>> {
    let bar = ui.bytes_bar(total_bytes(input, catalog)?, "converting");
    let work = Work { threads, bar: &bar, done: Cell::new(0) };
    let path = &args.output;
    let outcomes = if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("zarr")) {
        if path.exists() {
            return Err(Failure::invalid(format!("{} exists already", path.display())).hint("remove it first"));
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".pumice-").suffix(".tmp");
        let temporary = builder.tempdir_in(folder).map_err(io_context("create a folder in", folder))?;
        // A folder within the temporary one has the default permissions.
        let store = temporary.path().join("store");
        fs::create_dir(&store).map_err(io_context("create", &store))?;
        let outcomes = to_zarr::write(input, catalog, &store, &work)?;
        fs::rename(&store, path).map_err(io_context("write", path))?;
        outcomes
    } else {
        let file = output::create_file(path)?;
        let outcomes = to_hdf5::write(input, catalog, file.temporary_path(), &work)?;
        file.commit()?;
        outcomes
    };
    bar.finish_and_clear();
    Ok(outcomes)
}

fn report(args: &Args, input: &Input, catalog: Catalog, outcomes: &[Outcome], seconds: f64) -> Result<Report> {
    let (mut variables, mut n_kept, mut kept_bytes) = (Vec::new(), 0, 0);
    for item in &catalog.items {
        match &item.kind {
            Kind::Kept => {
                n_kept += 1;
                kept_bytes += input.variable(&item.path())?.stored_bytes()?;
            }
            Kind::Compressed(plan) => {
                let dataset = input.root.dataset(&item.path())?;
                let outcome = outcomes[variables.len()];
                let raw_bytes = raw_bytes(&dataset, plan.chunk_type.dtype);
                variables.push(VariableReport {
                    name: item.shown(),
                    dtype: plan.chunk_type.dtype.name(),
                    shape: dataset.shape().to_vec(),
                    chunk_shape: plan.chunk_type.extents.clone(),
                    bound: (&plan.bound).into(),
                    preset: plan.options.preset.name(),
                    raw_bytes,
                    compressed_bytes: outcome.stored_bytes,
                    ratio: raw_bytes as f64 / outcome.stored_bytes.max(1) as f64,
                    max_abs_error: (!args.dry_run).then_some(outcome.max_abs_error),
                });
            }
            _ => {}
        }
    }
    let expected = kept_bytes + variables.iter().map(|variable| variable.compressed_bytes).sum::<u64>();
    let size = |path: &Path| fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
    Ok(Report {
        input: args.input.display().to_string(),
        output: args.output.display().to_string(),
        dry_run: args.dry_run,
        variables,
        n_kept,
        kept_bytes,
        left_out: catalog.left_out,
        input_bytes: size(&args.input).unwrap_or(0),
        output_bytes: size(&args.output).filter(|_| !args.dry_run).unwrap_or(expected),
        seconds,
    })
}

fn describe(report: &Report) -> String {
    let sizes = if report.dry_run { ["expected", "ratio"] } else { ["stored", "ratio"] };
    let mut table =
        Table::new(&["variable", "bound", "preset", "shape", "raw", sizes[0], sizes[1], "largest error"], 4);
    for variable in &report.variables {
        table.row(vec![
            variable.name.clone(),
            variable.bound.to_string(),
            variable.preset.into(),
            text::shape(&variable.shape),
            text::bytes(variable.raw_bytes),
            text::bytes(variable.compressed_bytes),
            text::ratio(variable.ratio),
            variable.max_abs_error.map_or("-".into(), |error| text::number(error, 4)),
        ]);
    }
    let left_out: String = report.left_out.iter().map(|what| format!("left out: {what}\n")).collect();
    format!(
        "{}{left_out}{} copied unchanged, {}\n{}: {} -> {}{}, {}\n",
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
