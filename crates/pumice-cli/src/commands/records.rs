//! The part of `pumice info` and `pumice check` for files and stores of `pumice convert`: lists the records of their
//! variables, and compares these with the values.

use std::path::Path;

use pumice::ErrorKind;
use serde::Serialize;

use crate::convert::converted::{Converted, Found, Recorded};
use crate::convert::record::Record;
use crate::convert::source::Input;
use crate::failure::{Failure, Result};
use crate::text::{self, Table};
use crate::ui::Ui;

/// A variable as `--json` prints it.
#[derive(Serialize)]
struct VariableReport {
    name: String,
    bound: String,
    preset: String,
    version: String,
    date: String,
    /// Null if it is not known.
    max_abs_error: f64,
    #[serde(flatten)]
    values: Option<ValuesReport>,
}

/// What a look at the values found.
#[derive(Default, Serialize)]
struct ValuesReport {
    /// Whether they are those that the record speaks of; null if that is not known.
    is_as_recorded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_checked: Option<String>,
    /// Compared with the original.
    #[serde(skip_serializing_if = "Option::is_none")]
    found_max_abs_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n_mismatched_special: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_packed_alike: Option<bool>,
    /// Why they could not be read.
    #[serde(skip)]
    unreadable: Option<Failure>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    file: String,
    variables: Vec<VariableReport>,
}

/// Lists the records, and checks them if asked.
pub(crate) fn info(path: &Path, verify: bool, ui: &Ui) -> Result<()> {
    let converted = Converted::open(path)?;
    let report = report(path, &converted, verify.then_some(None), ui)?;
    ui.report(&report, || describe(&report))?;
    judge(report)
}

/// Checks the records; with the original, the errors as well.
pub(crate) fn check(path: &Path, original: Option<&Path>, ui: &Ui) -> Result<()> {
    let converted = Converted::open(path)?;
    if converted.recorded().is_empty() {
        return Err(Failure::invalid(format!("{}: no variable has a record of `pumice convert`", path.display())));
    }
    let original = original.map(|original| converted.original(original)).transpose()?;
    let report = report(path, &converted, Some(original.as_ref()), ui)?;
    ui.report(&report, || describe(&report))?;
    judge(report)
}

/// `original`: `None` only lists the records, `Some` reads the values.
fn report(path: &Path, converted: &Converted, original: Option<Option<&Input>>, ui: &Ui) -> Result<Report> {
    let n_bytes = |recorded| if original.is_some() { converted.n_bytes(recorded) } else { 0 };
    let bar = ui.bytes_bar(converted.recorded().iter().map(n_bytes).fold(0, u64::saturating_add), "reading");
    let mut variables = Vec::new();
    for recorded in converted.recorded() {
        let values = original.map(|original| values(converted, recorded, original, &|n| bar.inc(n)));
        let Record { bound, preset, version, date, max_abs_error, .. } = recorded.record.clone();
        let name = recorded.name.clone();
        variables.push(VariableReport { name, bound, preset, version, date, max_abs_error, values });
    }
    bar.finish_and_clear();
    Ok(Report { file: path.display().to_string(), variables })
}

fn values(
    converted: &Converted,
    recorded: &Recorded,
    original: Option<&Input>,
    progress: &dyn Fn(u64),
) -> ValuesReport {
    match converted.verify(recorded, original, progress) {
        Ok(Found { is_as_recorded, compared }) => ValuesReport {
            is_as_recorded,
            not_checked: is_as_recorded.is_none().then(|| "the record has no checksum".into()),
            found_max_abs_error: compared.as_ref().map(|compared| compared.max_abs_error),
            n_mismatched_special: compared.as_ref().map(|compared| compared.n_mismatched_special),
            is_packed_alike: compared.as_ref().map(|compared| compared.is_packed_alike),
            unreadable: None,
        },
        Err(failure) => ValuesReport {
            not_checked: Some(failure.message()),
            unreadable: Some(failure.within(&recorded.name)),
            ..ValuesReport::default()
        },
    }
}

impl VariableReport {
    /// Whether the original shows that the record is wrong.
    fn differs_from_original(&self) -> bool {
        self.values.as_ref().is_some_and(|values| {
            values.found_max_abs_error.is_some_and(|found| found > self.max_abs_error)
                || values.n_mismatched_special.is_some_and(|n| n > 0)
                || values.is_packed_alike == Some(false)
        })
    }

    fn is_rewritten(&self) -> bool {
        self.values.as_ref().is_some_and(|values| values.is_as_recorded == Some(false))
    }

    fn verdict(&self) -> String {
        match &self.values {
            None => String::new(),
            Some(_) if self.is_rewritten() => "rewritten since: the record speaks of others".into(),
            Some(ValuesReport { is_as_recorded: Some(true), .. }) if self.differs_from_original() => {
                "match the record, but not the original".into()
            }
            Some(_) if self.differs_from_original() => "do not match the original".into(),
            Some(ValuesReport { not_checked: Some(why), .. }) => format!("not checked: {why}"),
            Some(_) => "match the record".into(),
        }
    }
}

/// Fails if a record is not true, or values could not be read.
fn judge(report: Report) -> Result<()> {
    let names = |is: &dyn Fn(&VariableReport) -> bool| -> Option<String> {
        let names: Vec<&str> =
            report.variables.iter().filter(|variable| is(variable)).map(|variable| variable.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(names) = names(&VariableReport::is_rewritten) {
        let message = format!("rewritten since their conversion, so that their records speak of other values: {names}");
        return Err(Failure::new(ErrorKind::BoundBroken, message));
    }
    if let Some(names) = names(&VariableReport::differs_from_original) {
        let message = format!(
            "larger errors than recorded, changed NaN, infinite or fill values, or another scale_factor or add_offset: \
             {names}"
        );
        return Err(Failure::new(ErrorKind::BoundBroken, message).hint("is this the original that was converted?"));
    }
    let mut unreadable = report.variables.into_iter().filter_map(|variable| variable.values?.unreadable);
    let Some(first) = unreadable.next() else { return Ok(()) };
    match unreadable.count() {
        0 => Err(first),
        n => Err(first.hint(format!("{n} more could not be read"))),
    }
}

fn describe(report: &Report) -> String {
    if report.variables.is_empty() {
        return format!("{}: no variable has a record of `pumice convert`\n", report.file);
    }
    let has_values = report.variables.iter().any(|variable| variable.values.is_some());
    let found = |variable: &VariableReport| variable.values.as_ref().and_then(|values| values.found_max_abs_error);
    let is_compared = report.variables.iter().any(|variable| found(variable).is_some());
    let mut heading = vec!["variable", "bound", "preset", "date", "largest error"];
    heading.extend(is_compared.then_some("found"));
    heading.extend(has_values.then_some("values"));
    let mut table = Table::new(&heading, heading.len());
    for variable in &report.variables {
        let error = |error: f64| if error.is_nan() { "unknown".into() } else { text::number(error, 4) };
        let mut cells = vec![
            variable.name.clone(),
            variable.bound.clone(),
            variable.preset.clone(),
            variable.date.clone(),
            error(variable.max_abs_error),
        ];
        cells.extend(is_compared.then(|| found(variable).map_or("-".into(), error)));
        cells.extend(has_values.then(|| variable.verdict()));
        table.row(cells);
    }
    table.render()
}
