//! `pumice check`: compares an original with a compressed or restored array, exactly and in bounded memory. What comes
//! from a pipe is kept in an unnamed temporary file meanwhile.

use std::fs::File;
use std::path::{Path, PathBuf};

use pumice::metrics::{Findings, Guarantee};
use pumice::{DType, Element, ErrorKind, with_dtype};
use serde::Serialize;

use crate::cli::{LayoutArgs, WorkerArgs, is_stdio};
#[cfg(feature = "hdf5")]
use crate::commands::records;
use crate::compare;
#[cfg(feature = "hdf5")]
use crate::convert::converted;
use crate::failure::{Failure, Result};
use crate::input::{self, Input};
use crate::layout::Layout;
use crate::parse;
use crate::target::Verdict;
use crate::text;
use crate::ui::{self, Ui};

const AFTER_HELP: &str = "\
Examples:
  pumice check t_30x192x288.f32 t.pum                  against the bound stored in t.pum
  pumice check t.npy restored.npy --abs 0.01           two plain arrays
  pumice check t_30x192x288.f32 other.f32 --rel 1e-3   the output of any other compressor
  pumice check out.nc                                  are the records of `pumice convert` still true?
  pumice check in.nc out.zarr                          the same, and the errors that they name
  ssh host cat t.pum | pumice check t.npy -            from a pipe, kept in a temporary file meanwhile

For a file that stores only means of bins (compress --bin), the check compares means, and in regions with bounds of
their own the values.

The exit code is 1 if the bound is broken, or if a record speaks of other values.";

/// Compare an original with its compressed or restored form
///
/// Finds the largest error and its position, and reports whether the bound is kept. The arithmetic is exact: it finds a
/// value that exceeds the bound by one part in 10^16. NaN, infinities and fill values must be the same bit for bit.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The original array: raw or .npy, or - for standard input; the input of `pumice convert`, or its result alone
    original: PathBuf,

    /// The array to compare with: a compressed file, a raw or .npy array, - for standard input, or a result of `pumice
    /// convert`
    other: Option<PathBuf>,

    /// Check against this bound instead of the stored one
    #[arg(long, value_name = "E", value_parser = parse::bound)]
    abs: Option<f64>,

    /// Check against E times the value range of the original
    #[arg(long, value_name = "E", value_parser = parse::bound)]
    rel: Option<f64>,

    /// Check against E times the magnitude of each value
    #[arg(long, value_name = "E", value_parser = parse::bound)]
    pwrel: Option<f64>,

    /// The value that means "no data" in plain arrays; compressed files store theirs
    #[arg(long, value_name = "V", value_parser = parse::number, allow_hyphen_values = true)]
    fill: Option<f64>,

    #[command(flatten)]
    layout: LayoutArgs,

    #[command(flatten)]
    workers: WorkerArgs,
}

/// What `--json` prints. Numbers that JSON lacks, such as the PSNR of equal arrays, are null.
#[derive(Serialize)]
struct Report {
    original: String,
    other: String,
    dtype: &'static str,
    shape: Vec<usize>,
    max_abs_error: f64,
    /// The largest error relative to the bound of its own value.
    max_error_over_bound: f64,
    bound: Option<f64>,
    /// Whether the bound holds for the means of bins, outside of regions.
    bound_is_for_means: bool,
    bound_kept: Option<bool>,
    /// For files that were compressed to meet a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Verdict>,
    worst_index: Option<Vec<usize>>,
    #[serde(serialize_with = "any_number_or_null")]
    worst_original: Option<f64>,
    #[serde(serialize_with = "any_number_or_null")]
    worst_restored: Option<f64>,
    psnr: f64,
    rmse: f64,
    nrmse: f64,
    l2_norm: f64,
    min: f64,
    max: f64,
    ratio: f64,
    n_values: u64,
    n_over: u64,
    n_mismatched_special: u64,
}

fn any_number_or_null<S: serde::Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    match value {
        Some(value) => ui::any_number(value, serializer),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    #[cfg(feature = "hdf5")]
    if let Some((converted, original)) = converted(args)? {
        return records::check(converted, original, ui);
    }
    let Some(path) = args.other.as_deref() else {
        return Err(Failure::invalid("give the original and what to compare it with")
            .hint("one name is enough for a result of `pumice convert`"));
    };
    if is_stdio(&args.original) && is_stdio(path) {
        return Err(Failure::invalid("standard input cannot be both the original and the other array"));
    }
    let (mut original, mut other) = (input::open_or_spool(&args.original)?, input::open_or_spool(path)?);
    if input::is_pumice(&mut original, &args.original)? {
        return Err(Failure::invalid(format!("{} is compressed: the original comes first", args.original.display())));
    }
    let (layout, findings, bound, ratio, target) = match input::is_pumice(&mut other, path)? {
        true => against_compressed(args, original, (other, path), ui)?,
        false => against_plain(args, original, (other, path), ui)?,
    };
    let report = Report { target, ..report(args, path, layout, &findings, bound, ratio) };
    ui.report(&report, || describe(&report))?;
    if report.bound_kept == Some(false) {
        let n_bad = report.n_over + report.n_mismatched_special;
        return Err(Failure::new(
            ErrorKind::BoundBroken,
            format!("the bound is broken: {n_bad} of {} values", report.n_values),
        ));
    }
    match &report.target {
        Some(target) if !target.is_met => {
            Err(Failure::new(ErrorKind::BoundBroken, format!("the target is missed: {}", target.text())))
        }
        _ => Ok(()),
    }
}

/// The result of `pumice convert` among the arguments, and its original if there is one.
#[cfg(feature = "hdf5")]
fn converted(args: &Args) -> Result<Option<(&Path, Option<&Path>)>> {
    let (converted, original) = match &args.other {
        Some(other) => (other.as_path(), Some(args.original.as_path())),
        None => (args.original.as_path(), None),
    };
    if !converted::has_variables(converted)? {
        return Ok(None);
    }
    let LayoutArgs { shape, dims, dtype } = &args.layout;
    let has_bound = [args.abs, args.rel, args.pwrel, args.fill].iter().any(Option::is_some);
    if has_bound || shape.is_some() || dims.is_some() || dtype.is_some() {
        return Err(
            Failure::invalid("bounds, fill values and shapes are those of the file").hint("leave the options out")
        );
    }
    Ok(Some((converted, original)))
}

/// The layout of both, the findings, the bound (if there is one), the ratio of sizes, and whether a target is met.
type Outcome = (Layout, Findings, Option<CheckedBound>, f64, Option<Verdict>);

/// The bound that is checked.
#[derive(Clone, Copy)]
struct CheckedBound {
    /// Infinite if there is no absolute one.
    abs: f64,
    /// Whether it holds for means of bins, outside of regions.
    is_for_means: bool,
}

fn against_compressed(args: &Args, original: File, (other, path): (File, &Path), ui: &Ui) -> Result<Outcome> {
    let reader = input::reader_of(other, path, args.workers.threads)?;
    let info = reader.info();
    let layout = Layout { dtype: info.dtype, shape: info.shape.clone() };
    let original = Input::of_file_as(original, &args.original, &layout)?;
    let mut bound = CheckedBound { abs: info.abs_bound, is_for_means: !info.bin.is_empty() };
    let mut guarantee = Guarantee::of(info);
    let asked = asked_bound(args, &original, &info.fills, ui)?;
    if let Some(abs) = asked {
        guarantee = Guarantee::new(abs, args.pwrel.unwrap_or(f64::INFINITY), &info.fills);
        bound = CheckedBound { abs, is_for_means: false };
    }
    let bar = ui.bytes_bar(original.n_bytes(), "comparing");
    let findings =
        with_dtype!(layout.dtype, T => compare::with_reader::<T, _>(&original.source()?, &reader, &guarantee, &bar))
            .map_err(|failure| input::damage_hint(failure, path))?;
    bar.finish_and_clear();
    let ratio = info.raw_bytes as f64 / info.compressed_bytes as f64;
    // A bound on the command line replaces the stored bound and target.
    let target = if asked.is_none() { Verdict::of(info, &findings.total) } else { None };
    Ok((layout, findings, Some(bound), ratio, target))
}

fn against_plain(args: &Args, original: File, (other, path): (File, &Path), ui: &Ui) -> Result<Outcome> {
    let original = Input::of_file(original, &args.original, &args.layout)?;
    let layout = original.layout.clone();
    let other = Input::of_file_as(other, path, &layout)?;
    let fills: Vec<f64> = args.fill.into_iter().collect();
    let bound = asked_bound(args, &original, &fills, ui)?;
    let pointwise = args.pwrel.unwrap_or(f64::INFINITY);
    let guarantee = Guarantee::new(bound.unwrap_or(f64::INFINITY), pointwise, &fills);
    let bar = ui.bytes_bar(original.n_bytes(), "comparing");
    let findings = with_dtype!(layout.dtype, T => compare_plain::<T>(&original, &other, &guarantee, &bar))?;
    bar.finish_and_clear();
    Ok((layout, findings, bound.map(|abs| CheckedBound { abs, is_for_means: false }), 1.0, None))
}

fn compare_plain<T: Element>(
    a: &Input,
    b: &Input,
    guarantee: &Guarantee,
    bar: &indicatif::ProgressBar,
) -> Result<Findings> {
    let shape = &a.layout.shape;
    let list = [shape.iter().fold(1, |n: usize, extent| n.saturating_mul(*extent))];
    compare::with_file::<T, _>(&a.source_as(&list)?, &b.source_as(&list)?, shape, guarantee, bar)
}

/// The absolute bound of the arguments; infinite if they only have one relative to each value. For REL this takes a
/// pass over the original to find its value range.
fn asked_bound(args: &Args, original: &Input, fills: &[f64], ui: &Ui) -> Result<Option<f64>> {
    let Some(rel) = args.rel else { return Ok(args.abs.or(args.pwrel.map(|_| f64::INFINITY))) };
    let guarantee = Guarantee::new(f64::INFINITY, f64::INFINITY, fills);
    let bar = ui.bytes_bar(original.n_bytes(), "value range");
    let itself = with_dtype!(original.layout.dtype, T => compare_plain::<T>(original, original, &guarantee, &bar))?;
    bar.finish_and_clear();
    let (min, max) = (itself.total.min, itself.total.max);
    // max - min may overflow although the products do not.
    let bound = if (max - min).is_finite() { rel * (max - min) } else { rel * max - rel * min };
    let bound = if max > min { bound } else { 0.0 };
    Ok(Some(bound.min(args.abs.unwrap_or(f64::INFINITY))))
}

fn report(
    args: &Args,
    other: &Path,
    layout: Layout,
    findings: &Findings,
    bound: Option<CheckedBound>,
    ratio: f64,
) -> Report {
    let total = &findings.total;
    let has_worst = findings.worst.is_some();
    Report {
        original: args.original.display().to_string(),
        other: other.display().to_string(),
        dtype: layout.dtype.name(),
        shape: layout.shape,
        max_abs_error: total.max_abs_error,
        max_error_over_bound: total.max_error_over_bound,
        bound: bound.map(|bound| bound.abs),
        bound_is_for_means: bound.is_some_and(|bound| bound.is_for_means),
        bound_kept: bound.map(|_| total.bound_kept()),
        target: None,
        worst_index: findings.worst.clone(),
        worst_original: has_worst.then_some(total.worst_original),
        worst_restored: has_worst.then_some(total.worst_restored),
        psnr: total.psnr,
        rmse: total.rmse,
        nrmse: total.nrmse,
        l2_norm: total.l2_norm,
        min: total.min,
        max: total.max,
        ratio,
        n_values: total.n_values,
        n_over: total.n_over,
        n_mismatched_special: total.n_mismatched_special,
    }
}

fn describe(report: &Report) -> String {
    let verdict = match report.bound_kept {
        Some(true) if report.bound_is_for_means => "yes, for the means of bins, and for the values in regions",
        Some(true) => "yes",
        Some(false) => "NO",
        None => "no bound given (--abs, --rel or --pwrel)",
    };
    let mut facts = vec![
        ("array", format!("{} {}", text::shape(&report.shape), report.dtype)),
        ("bound kept", verdict.into()),
        ("largest error", error_text(report)),
    ];
    if let Some(target) = &report.target {
        facts.insert(2, ("target met", format!("{}: {}", if target.is_met { "yes" } else { "NO" }, target.text())));
    }
    if let (Some(index), Some(original), Some(restored)) =
        (&report.worst_index, report.worst_original, report.worst_restored)
        && report.max_abs_error > 0.0
    {
        facts.push(("at", worst_text(index, original, restored, report.dtype)));
    }
    facts.extend([
        ("over the bound", format!("{} of {} values", report.n_over, report.n_values)),
        ("changed NaN/Inf/fill", report.n_mismatched_special.to_string()),
        ("value range", format!("{} to {}", text::number(report.min, 6), text::number(report.max, 6))),
        (
            "PSNR",
            if report.psnr == f64::INFINITY { "inf".into() } else { format!("{} dB", text::number(report.psnr, 5)) },
        ),
        ("NRMSE", text::number(report.nrmse, 4)),
        ("L2 norm", text::number(report.l2_norm, 4)),
        ("ratio", text::ratio(report.ratio)),
    ]);
    text::facts(&facts)
}

fn error_text(report: &Report) -> String {
    let error = text::number(report.max_abs_error, 6);
    match report.bound {
        Some(bound) if bound > 0.0 => {
            let share = text::percent(report.max_error_over_bound, 2);
            let bound = if bound.is_finite() { format!(" {}", text::number(bound, 6)) } else { String::new() };
            format!("{error} ({share} of the bound{bound})")
        }
        Some(_) => format!("{error} (bound 0)"),
        None => error,
    }
}

fn worst_text(index: &[usize], original: f64, restored: f64, dtype: &str) -> String {
    let text = |x: f64| if dtype == DType::F32.name() { (x as f32).to_string() } else { x.to_string() };
    format!("[{}]: {} became {}", text::join(index, ", "), text(original), text(restored))
}
