//! Prints reports to standard output (text, or JSON with `--json`) and progress to standard error.

use std::io::{self, BufWriter, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Serialize, Serializer};

use crate::failure::Result;

/// How to report to the user.
pub(crate) struct Ui {
    json: bool,
    quiet: bool,
}

impl Ui {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Shows the result of a command; `--quiet` does not hide it.
    pub(crate) fn report(&self, report: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        let mut out = BufWriter::new(io::stdout().lock());
        match self.json {
            true => {
                serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
            false => out.write_all(text().as_bytes())?,
        }
        Ok(out.flush()?)
    }

    /// Shows a summary of a command that writes output; on standard error if the data goes to standard output.
    pub(crate) fn summary(
        &self,
        report: &impl Serialize,
        stdout_taken: bool,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.quiet && !self.json {
            return Ok(());
        }
        if stdout_taken {
            note(&if self.json { to_json(report) } else { text() });
            return Ok(());
        }
        self.report(report, text)
    }

    /// A progress bar that counts bytes; hidden if standard error is not a terminal.
    pub(crate) fn bytes_bar(&self, total: u64, what: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template(
            "{msg:12} [{bar:36}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
        );
        self.bar(total, what, style.expect("the template is valid").progress_chars("=> "))
    }

    /// A count of bytes whose total is not known.
    pub(crate) fn bytes_counter(&self, what: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg:12} {decimal_bytes} {decimal_bytes_per_sec}");
        self.bar(0, what, style.expect("the template is valid"))
    }

    /// A progress bar that counts steps.
    pub(crate) fn steps_bar(&self, total: u64, what: &'static str) -> ProgressBar {
        let style = ProgressStyle::with_template("{msg:12} [{bar:36}] {pos}/{len}");
        self.bar(total, what, style.expect("the template is valid").progress_chars("=> "))
    }

    fn bar(&self, total: u64, what: &'static str, style: ProgressStyle) -> ProgressBar {
        let visible = !self.json && !self.quiet && io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        ProgressBar::with_draw_target(Some(total), target).with_style(style).with_message(what)
    }
}

/// Writes to standard error. Nobody is left to be told if that fails.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn to_json(report: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("reports have string keys only");
    text.push('\n');
    text
}

/// Serialises a number; those that JSON lacks become the text `"nan"`, `"inf"` or `"-inf"`.
pub(crate) fn any_number<S: Serializer>(value: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else {
        serializer.serialize_str(&value.to_string().to_lowercase())
    }
}

/// [`any_number`] for lists.
pub(crate) fn any_numbers<S: Serializer>(values: &[f64], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    struct AnyNumber(f64);
    impl Serialize for AnyNumber {
        fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            any_number(&self.0, serializer)
        }
    }
    serializer.collect_seq(values.iter().map(|v| AnyNumber(*v)))
}
