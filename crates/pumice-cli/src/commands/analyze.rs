//! `pumice analyze`: statistics of an array, estimated ratios, and advice on presets and chunks.
//!
//! Files are read box by box; streams are first stored in an unnamed temporary file. docs/analyze.md explains the
//! figures.

use std::path::PathBuf;

use pumice::{Analysis, AnalysisOptions, Config, Element, ErrorBound, Preset, Profile, with_dtype};
use serde::Serialize;

use crate::bounds::parts;
use crate::cli::{LayoutArgs, WorkerArgs};
use crate::commands::compress::{PresetArg, preset, spool};
use crate::failure::Result;
use crate::input::{Input, Stream, is_stream};
use crate::parse;
use crate::text::{self, Table};
use crate::ui::{self, Ui};

/// Steps of the progress bar.
const BAR_STEPS: u64 = 1000;

/// The characters of a sparkline, by height.
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const AFTER_HELP: &str = "\
Examples:
  pumice analyze t_30x192x288.f32
  pumice analyze t.npy --rel 1e-3 --abs 0.01,0.1 --presets fast,small
  pumice analyze t.npy --check                     with actual ratios beside the estimates";

/// Show statistics of an array and the ratios to expect
///
/// Range, special values, smoothness, entropy of prediction residuals, and the ratio to expect for each preset and
/// bound. Estimates for large arrays use a sample of at most a quarter of the values.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The array: raw little-endian values, .npy, or - for standard input
    file: PathBuf,

    /// Bounds relative to the value range; 1e-2,1e-3,1e-4 if no bound is given
    #[arg(long, value_name = "E,..", value_delimiter = ',', value_parser = parse::bound)]
    #[arg(help_heading = "Error bounds")]
    rel: Vec<f64>,

    /// Absolute bounds
    #[arg(long, value_name = "E,..", value_delimiter = ',', value_parser = parse::bound)]
    #[arg(help_heading = "Error bounds")]
    abs: Vec<f64>,

    /// No bit changes
    #[arg(long, help_heading = "Error bounds")]
    lossless: bool,

    /// Presets to estimate; all if not given
    #[arg(long, value_delimiter = ',', value_parser = preset)]
    presets: Vec<PresetArg>,

    /// The value that means "no data" (nan allowed); can be given twice; detected if not given
    #[arg(long, value_name = "V", value_parser = parse::number, allow_hyphen_values = true)]
    fill: Vec<f64>,

    /// Compress as well, and show the ratios beside the estimates
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    workers: WorkerArgs,

    #[command(flatten)]
    layout: LayoutArgs,
}

impl Args {
    fn bounds(&self) -> Vec<ErrorBound> {
        let rel = self.rel.iter().map(|e| ErrorBound::Rel(*e));
        let abs = self.abs.iter().map(|e| ErrorBound::Abs(*e));
        let bounds: Vec<ErrorBound> = rel.chain(abs).chain(self.lossless.then_some(ErrorBound::Lossless)).collect();
        if bounds.is_empty() { [1e-2, 1e-3, 1e-4].map(ErrorBound::Rel).to_vec() } else { bounds }
    }

    fn options(&self) -> AnalysisOptions {
        let presets: Vec<Preset> = self.presets.iter().map(|p| p.0).collect();
        let presets = if presets.is_empty() { Preset::ALL } else { &presets };
        AnalysisOptions::new().bounds(&self.bounds()).presets(presets).fills(&self.fill).threads(self.workers.threads)
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    file: String,
    dtype: &'static str,
    shape: Vec<usize>,
    n_values: u64,
    raw_bytes: u64,
    chunk_shape: Vec<usize>,
    n_chunks: u64,
    sampled_values: u64,
    values: ValuesReport,
    smoothness: Vec<AxisReport>,
    residuals: Vec<ResidualsReport>,
    estimates: Vec<EstimateReport>,
    advice: AdviceReport,
}

/// Statistics of the values; numbers that JSON lacks, such as the range of an empty array, are null.
#[derive(Serialize)]
struct ValuesReport {
    min: f64,
    max: f64,
    mean: f64,
    std_dev: f64,
    n_counted: u64,
    n_nan: u64,
    n_pos_inf: u64,
    n_neg_inf: u64,
    n_zero: u64,
    n_neg_zero: u64,
    n_subnormal: u64,
    n_integer: u64,
    fills: Vec<FillReport>,
    is_constant: bool,
    is_integer: bool,
    significant_bits: u32,
    quantum_log2: Option<i32>,
    lattice_bits: Option<f64>,
}

#[derive(Serialize)]
struct FillReport {
    #[serde(serialize_with = "ui::any_number")]
    value: f64,
    count: u64,
}

#[derive(Serialize)]
struct AxisReport {
    axis: usize,
    lags: Vec<usize>,
    madogram: Vec<f64>,
}

#[derive(Serialize)]
struct ResidualsReport {
    bound_kind: &'static str,
    bound: Option<f64>,
    abs_bound: f64,
    lorenzo: Vec<LorenzoReport>,
    interpolation: Vec<LevelReport>,
    most_likely: f64,
    roughness: f64,
    smoothness: f64,
}

#[derive(Serialize)]
struct LorenzoReport {
    order: u32,
    axes: Vec<usize>,
    entropy_bits: f64,
}

#[derive(Serialize)]
struct LevelReport {
    stride: usize,
    share: f64,
    entropy_bits: f64,
}

#[derive(Serialize)]
struct EstimateReport {
    preset: &'static str,
    bound_kind: &'static str,
    bound: Option<f64>,
    abs_bound: f64,
    ratio: f64,
    bits_per_value: f64,
    compressed_bytes: u64,
    exact: bool,
    /// With `--check`: the ratio of a compression, and the relative error of the estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
}

#[derive(Serialize)]
struct AdviceReport {
    speed: Option<&'static str>,
    speed_reason: String,
    ratio: Option<&'static str>,
    ratio_reason: String,
    chunking: String,
    hints: Vec<HintReport>,
}

#[derive(Serialize)]
struct HintReport {
    code: &'static str,
    text: String,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let input = if is_stream(&args.file) {
        let mut stream = Stream::open(&args.file, &args.layout)?;
        spool(&mut stream, &args.file, &std::env::temp_dir(), ui)?
    } else {
        Input::open(&args.file, &args.layout)?
    };
    let (analysis, actual) = with_dtype!(input.layout.dtype, T => analyze::<T>(&input, args, ui))?;
    let report = report(args, &analysis, &actual);
    ui.report(&report, || describe(&report, &analysis))
}

/// The analysis, and with `--check` the ratio of a compression for each estimate.
fn analyze<T: Element>(input: &Input, args: &Args, ui: &Ui) -> Result<(Analysis, Vec<f64>)> {
    let source = input.source()?;
    let bar = ui.steps_bar(BAR_STEPS, "analysing");
    let show = |share: f64| bar.set_position((share * BAR_STEPS as f64) as u64);
    let analysis = pumice::analyze_from::<T>(&source, &args.options(), &show)?;
    bar.finish_and_clear();
    let mut actual = Vec::new();
    if args.check {
        let bar = ui.steps_bar(analysis.estimates.len() as u64, "compressing");
        for estimate in &analysis.estimates {
            let config =
                Config::new(estimate.bound).preset(estimate.preset).fills(&args.fill).threads(args.workers.threads);
            actual.push(pumice::compress_from::<T, _>(&source, &config, &mut std::io::sink(), &|_| ())?.ratio());
            bar.inc(1);
        }
        bar.finish_and_clear();
    }
    Ok((analysis, actual))
}

fn report(args: &Args, analysis: &Analysis, actual: &[f64]) -> Report {
    let advice = &analysis.advice;
    Report {
        file: args.file.display().to_string(),
        dtype: analysis.dtype.name(),
        shape: analysis.shape.clone(),
        n_values: analysis.n_values,
        raw_bytes: analysis.raw_bytes,
        chunk_shape: analysis.chunk_shape.clone(),
        n_chunks: analysis.n_chunks,
        sampled_values: analysis.sampled_values,
        values: values_report(&analysis.profile),
        smoothness: analysis
            .madograms
            .iter()
            .map(|m| AxisReport {
                axis: m.axis,
                lags: m.points.iter().map(|p| p.lag).collect(),
                madogram: m.points.iter().map(|p| p.difference).collect(),
            })
            .collect(),
        residuals: analysis.residuals.iter().map(residuals_report).collect(),
        estimates: analysis
            .estimates
            .iter()
            .enumerate()
            .map(|(i, estimate)| estimate_report(estimate, actual.get(i).copied()))
            .collect(),
        advice: AdviceReport {
            speed: advice.speed.map(Preset::name),
            speed_reason: advice.speed_reason.clone(),
            ratio: advice.ratio.map(Preset::name),
            ratio_reason: advice.ratio_reason.clone(),
            chunking: advice.chunking.clone(),
            hints: advice.hints.iter().map(|h| HintReport { code: h.code, text: h.text.clone() }).collect(),
        },
    }
}

fn values_report(profile: &Profile) -> ValuesReport {
    ValuesReport {
        min: profile.min,
        max: profile.max,
        mean: profile.mean,
        std_dev: profile.std_dev,
        n_counted: profile.n_counted,
        n_nan: profile.n_nan,
        n_pos_inf: profile.n_pos_inf,
        n_neg_inf: profile.n_neg_inf,
        n_zero: profile.n_zero,
        n_neg_zero: profile.n_neg_zero,
        n_subnormal: profile.n_subnormal,
        n_integer: profile.n_integer,
        fills: profile.fills.iter().map(|&(value, count)| FillReport { value, count }).collect(),
        is_constant: profile.is_constant(),
        is_integer: profile.is_integer(),
        significant_bits: profile.significant_bits,
        quantum_log2: profile.quantum_log2,
        lattice_bits: profile.lattice_bits(),
    }
}

fn residuals_report(found: &pumice::Residuals) -> ResidualsReport {
    let (bound_kind, bound) = parts(found.bound);
    let lorenzo =
        |d: &pumice::DifferenceEntropy| LorenzoReport { order: d.order, axes: d.axes.clone(), entropy_bits: d.bits };
    let level = |l: &pumice::LevelEntropy| LevelReport { stride: l.stride, share: l.share, entropy_bits: l.bits };
    ResidualsReport {
        bound_kind,
        bound,
        abs_bound: found.abs_bound,
        lorenzo: found.lorenzo.iter().map(lorenzo).collect(),
        interpolation: found.interpolation.iter().map(level).collect(),
        most_likely: found.most_likely,
        roughness: found.roughness,
        smoothness: 1.0 - found.roughness,
    }
}

fn estimate_report(estimate: &pumice::Estimate, actual: Option<f64>) -> EstimateReport {
    let (bound_kind, bound) = parts(estimate.bound);
    EstimateReport {
        preset: estimate.preset.name(),
        bound_kind,
        bound,
        abs_bound: estimate.abs_bound,
        ratio: estimate.ratio,
        bits_per_value: estimate.bits_per_value,
        compressed_bytes: estimate.compressed_bytes,
        exact: estimate.is_exact,
        actual_ratio: actual,
        error: actual.map(|actual| estimate.ratio / actual - 1.0),
    }
}

fn describe(report: &Report, analysis: &Analysis) -> String {
    let mut out = text::facts(&value_facts(report, &analysis.profile));
    if !report.smoothness.is_empty() {
        out += &format!("\nmean difference of values by distance, in percent of the range\n{}", madogram_table(report));
    }
    if report.residuals.iter().any(|r| !r.lorenzo.is_empty()) {
        out += &format!("\nbits per value that predictors leave, by entropy\n{}", residual_table(report));
    }
    let sampled = match report.estimates.iter().all(|e| e.exact) {
        true => "all values".into(),
        false => {
            let share = 100.0 * report.sampled_values as f64 / report.n_values as f64;
            format!("a sample of {} % of the values", text::number(share, 3))
        }
    };
    out += &format!("\nratio to expect, from {sampled}\n{}", estimate_table(report));
    out += "\n";
    out + &text::facts(&advice_facts(&report.advice))
}

fn value_facts(report: &Report, profile: &Profile) -> Vec<(&'static str, String)> {
    let values = &report.values;
    let size = format!("{} {}, {}", text::shape(&report.shape), report.dtype, text::bytes(report.raw_bytes));
    let mut facts = vec![("array", size)];
    if values.n_counted > 0 {
        facts.push(("range", format!("{} to {}", text::number(values.min, 6), text::number(values.max, 6))));
        let spread =
            format!("{}, standard deviation {}", text::number(values.mean, 6), text::number(values.std_dev, 6));
        facts.push(("mean", spread));
    }
    let count = |n: u64| format!("{n} ({} %)", text::number(100.0 * n as f64 / report.n_values.max(1) as f64, 3));
    for (name, n) in [
        ("NaN", values.n_nan),
        ("+infinity", values.n_pos_inf),
        ("-infinity", values.n_neg_inf),
        ("zeros", values.n_zero),
        ("negative zeros", values.n_neg_zero),
        ("subnormal", values.n_subnormal),
    ] {
        if n > 0 {
            facts.push((name, count(n)));
        }
    }
    for fill in &values.fills {
        facts.push(("fill value", format!("{}: {}", text::number(fill.value, 7), count(fill.count))));
    }
    if values.n_counted > 0 {
        let kind = match (profile.is_constant(), profile.is_integer()) {
            (true, _) => ", constant",
            (false, true) => ", all integers",
            _ => "",
        };
        facts.push(("significant bits", format!("{}{kind}", values.significant_bits)));
    }
    facts
}

fn madogram_table(report: &Report) -> String {
    let lags = &report.smoothness.iter().max_by_key(|axis| axis.lags.len()).expect("there are axes").lags;
    let names: Vec<String> = lags.iter().map(usize::to_string).collect();
    let heading: Vec<&str> = ["axis", ""].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heading, 2);
    for axis in &report.smoothness {
        let most = axis.madogram.iter().copied().fold(0.0, f64::max);
        let spark = |d: &f64| SPARKS[(d / most * 7.0).clamp(0.0, 7.0) as usize];
        let mut cells = vec![axis.axis.to_string(), axis.madogram.iter().map(spark).collect()];
        cells.extend(lags.iter().enumerate().map(|(i, _)| match axis.madogram.get(i) {
            Some(difference) => text::number(100.0 * difference, 3),
            None => String::new(),
        }));
        table.row(cells);
    }
    table.render()
}

fn bound_name(kind: &str, bound: Option<f64>) -> String {
    match bound {
        Some(e) => format!("{kind} {e:e}"),
        None => kind.into(),
    }
}

fn residual_table(report: &Report) -> String {
    let names: Vec<String> = report.residuals.iter().map(|r| bound_name(r.bound_kind, r.bound)).collect();
    let heading: Vec<&str> = std::iter::once("predictor").chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heading, 1);
    let bits = |bits: f64| format!("{bits:.3}");
    for (i, lorenzo) in report.residuals[0].lorenzo.iter().enumerate() {
        let order = if lorenzo.order == 1 { "Lorenzo" } else { "second differences" };
        let mut cells = vec![format!("{order}, axes {}", text::join(&lorenzo.axes, ","))];
        cells.extend(report.residuals.iter().map(|r| bits(r.lorenzo[i].entropy_bits)));
        table.row(cells);
    }
    let levels = report.residuals.iter().map(|r| r.interpolation.len()).max().unwrap_or(0);
    for level in 0..levels {
        let share = report.residuals.iter().find_map(|r| r.interpolation.get(level)).map_or(0.0, |l| l.share);
        let name = if level + 1 == levels { "anchors" } else { "interpolation" };
        let mut cells = vec![format!("{name}, stride {}, {} %", 1_u64 << level, text::number(100.0 * share, 2))];
        cells.extend(
            report.residuals.iter().map(|r| r.interpolation.get(level).map_or("-".into(), |l| bits(l.entropy_bits))),
        );
        table.row(cells);
    }
    let mut row = |name: &str, of: fn(&ResidualsReport) -> f64| {
        let shares = report.residuals.iter().map(|r| text::percent(of(r), 1));
        table.row(std::iter::once(name.to_string()).chain(shares).collect());
    };
    row("most frequent code", |r| r.most_likely);
    row("pairs of equal codes", |r| r.smoothness);
    table.render()
}

fn estimate_table(report: &Report) -> String {
    let same = |a: &EstimateReport, b: &EstimateReport| (a.bound_kind, a.bound) == (b.bound_kind, b.bound);
    let by_bound: Vec<&[EstimateReport]> = report.estimates.chunk_by(same).collect();
    let names: Vec<String> = by_bound.iter().map(|e| bound_name(e[0].bound_kind, e[0].bound)).collect();
    let heading: Vec<&str> = std::iter::once("preset").chain(names.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heading, 1);
    for (i, first) in by_bound.first().copied().unwrap_or_default().iter().enumerate() {
        let cell = |estimates: &&[EstimateReport]| {
            let estimate = &estimates[i];
            let ratio = text::ratio(estimate.ratio);
            match (estimate.actual_ratio, estimate.error) {
                (Some(actual), Some(error)) => format!("{ratio} (is {}, {:+.1} %)", text::ratio(actual), 100.0 * error),
                _ => ratio,
            }
        };
        table.row(std::iter::once(first.preset.to_string()).chain(by_bound.iter().map(cell)).collect());
    }
    table.render()
}

fn advice_facts(advice: &AdviceReport) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(preset) = advice.speed {
        facts.push(("for speed", format!("{preset}: {}", advice.speed_reason)));
    }
    if let Some(preset) = advice.ratio {
        facts.push(("for ratio", format!("{preset}: {}", advice.ratio_reason)));
    }
    facts.push(("chunks", advice.chunking.clone()));
    facts.extend(advice.hints.iter().map(|hint| ("note", hint.text.clone())));
    facts
}
