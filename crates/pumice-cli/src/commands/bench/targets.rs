//! Measures how well targets are met, from the restored values and the sizes of the streams.

use std::path::Path;

use pumice::{Config, Element, ErrorBound, ErrorKind, Preset, metrics, with_dtype};
use serde::Serialize;

use super::{Args, file_name};
use crate::bounds::parts;
use crate::failure::{Failure, Result};
use crate::input::Input;
use crate::text::{self, Table};
use crate::ui::{self, Ui};

/// One element of the array that `--json` prints.
#[derive(Serialize)]
struct Row {
    file: String,
    preset: &'static str,
    kind: &'static str,
    asked: f64,
    /// Absent if the target cannot be reached; `remark` says why.
    outcome: Option<Outcome>,
    remark: String,
}

#[derive(Serialize)]
struct Outcome {
    #[serde(serialize_with = "ui::any_number")]
    achieved: f64,
    /// The margin by which the target is exceeded: in dB, or in percent for ratios.
    #[serde(serialize_with = "ui::any_number")]
    off: f64,
    ratio: f64,
    abs_bound: f64,
    passes: u32,
    is_close: bool,
    is_met: bool,
}

/// All targets among the arguments.
pub(super) fn of(args: &Args) -> Vec<ErrorBound> {
    let of = |values: &[f64], kind: fn(f64) -> ErrorBound| values.iter().map(|&v| kind(v)).collect::<Vec<_>>();
    [of(&args.psnr, ErrorBound::Psnr), of(&args.l2, ErrorBound::L2), of(&args.ratio, ErrorBound::Ratio)].concat()
}

pub(super) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let (targets, presets) = (of(args), args.presets(Preset::Small));
    let bar = ui.steps_bar((args.files.len() * presets.len() * targets.len()) as u64, "searching");
    let mut rows = Vec::new();
    for path in &args.files {
        let input = Input::open(path, &args.layout)?;
        for &preset in &presets {
            for &target in &targets {
                rows.push(with_dtype!(input.layout.dtype, T => measure::<T>(&input, path, args, preset, target))?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    ui.report(&rows, || describe(&rows))?;
    match rows.iter().find(|row| row.outcome.as_ref().is_some_and(|outcome| !outcome.is_met)) {
        Some(row) => {
            let message = format!("{}: {} {} is missed", row.file, row.kind, row.asked);
            Err(Failure::new(ErrorKind::BoundBroken, message))
        }
        None => Ok(()),
    }
}

fn measure<T: Element>(input: &Input, path: &Path, args: &Args, preset: Preset, target: ErrorBound) -> Result<Row> {
    let values = input.read::<T>()?;
    let config = Config::new(target).preset(preset).threads(args.threads);
    let (kind, asked) = parts(target);
    let asked = asked.unwrap_or(0.0);
    let row =
        |outcome, remark| Row { file: path.display().to_string(), preset: preset.name(), kind, asked, outcome, remark };
    let mut packed = Vec::new();
    let summary = match pumice::compress_into(&values, &input.layout.shape, &config, &mut packed) {
        Err(e) if e.kind() == ErrorKind::InvalidArgument => return Ok(row(None, e.to_string())),
        summary => summary?,
    };
    let info = pumice::inspect(&packed)?;
    let restored = pumice::decompress::<T>(&packed)?;
    let found = metrics::compare(&values, &restored.data, info.abs_bound, &info.fills);
    let (achieved, off, is_met) = match target {
        ErrorBound::Psnr(db) => (found.psnr, found.psnr - db, found.psnr >= db),
        ErrorBound::L2(norm) => (found.l2_norm, 20.0 * (norm / found.l2_norm).log10(), found.l2_norm <= norm),
        _ => (summary.ratio(), 100.0 * (summary.ratio() / asked - 1.0), summary.ratio() >= asked),
    };
    let outcome = Outcome {
        achieved,
        off,
        ratio: summary.ratio(),
        abs_bound: summary.abs_bound,
        passes: summary.target.map_or(0, |target| target.n_passes),
        is_close: summary.target.is_some_and(|target| target.is_close),
        is_met: is_met && found.bound_kept(),
    };
    let remark = match (summary.abs_bound > 0.0, outcome.is_close) {
        (false, _) => "lossless",
        (true, true) => "",
        (true, false) => "nothing closer found",
    };
    Ok(row(Some(outcome), remark.into()))
}

fn describe(rows: &[Row]) -> String {
    let heading = ["file", "preset", "target", "asked", "achieved", "off", "ratio", "bound", "passes", ""];
    let mut table = Table::new(&heading, 3);
    for row in rows {
        let unit = if row.kind == "ratio" { "%" } else { "dB" };
        let mut cells = vec![file_name(&row.file), row.preset.into(), row.kind.into(), text::number(row.asked, 5)];
        match &row.outcome {
            Some(outcome) => cells.extend([
                text::number(outcome.achieved, 5),
                format!("{:+.2} {unit}", outcome.off),
                text::ratio(outcome.ratio),
                text::number(outcome.abs_bound, 4),
                outcome.passes.to_string(),
                row.remark.clone(),
            ]),
            None => {
                cells.extend(["-"; 5].map(String::from));
                cells.push("cannot be reached".into());
            }
        }
        table.row(cells);
    }
    table.render()
}
