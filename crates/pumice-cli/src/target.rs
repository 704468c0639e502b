//! Reports on targets (PSNR, L2 norm, ratio): the target, the achieved figure, and whether a file meets the target.

use pumice::metrics::Comparison;
use pumice::{Achieved, ErrorBound, Info};
use serde::Serialize;

use crate::bounds::parts;
use crate::text;
use crate::ui;

pub(crate) fn is_target(bound: ErrorBound) -> bool {
    bound.kind().is_target()
}

/// The phase of a compression towards a target at this progress; `pumice::compress_from` documents the shares.
pub(crate) fn phase(done: u64, total: u64) -> &'static str {
    match 4 * u128::from(done) / u128::from(total.max(1)) {
        0 => "value range",
        1 | 2 => "searching",
        _ => "compressing",
    }
}

/// A target as text.
pub(crate) fn asked_text(kind: &str, asked: f64) -> String {
    let asked = text::number(asked, 6);
    match kind {
        "psnr" => format!("a PSNR of {asked} dB"),
        "l2" => format!("an L2 norm of {asked}"),
        _ => format!("a ratio of {asked}"),
    }
}

/// A figure in the unit of its target.
fn figure(kind: &str, value: f64) -> String {
    match kind {
        "psnr" if value.is_finite() => format!("PSNR {value:.2} dB"),
        "psnr" => "PSNR inf".into(),
        "l2" => format!("L2 norm {}", text::number(value, 5)),
        _ => format!("ratio {}", text::number(value, 5)),
    }
}

/// The figure that a compression achieved.
#[derive(Serialize)]
pub(crate) struct Report {
    kind: &'static str,
    asked: f64,
    #[serde(serialize_with = "ui::any_number")]
    achieved: f64,
    is_close: bool,
    passes: u32,
}

impl Report {
    pub(crate) fn of(achieved: &Achieved) -> Self {
        let (kind, asked) = parts(achieved.asked);
        Self {
            kind,
            asked: asked.unwrap_or(0.0),
            achieved: achieved.value,
            is_close: achieved.is_close,
            passes: achieved.n_passes,
        }
    }

    pub(crate) fn text(&self) -> String {
        let figure = figure(self.kind, self.achieved);
        let passes = match self.passes {
            0 => return format!("target: {figure}, as all values are stored without loss\n"),
            1 => "1 pass".into(),
            n => format!("{n} passes"),
        };
        let note = if self.is_close { "" } else { "; nothing closer to it was found" };
        format!("target: {figure}, found in {passes}{note}\n")
    }
}

/// Whether a file meets the target that it was compressed for.
#[derive(Serialize)]
pub(crate) struct Verdict {
    kind: &'static str,
    asked: f64,
    #[serde(serialize_with = "ui::any_number")]
    achieved: f64,
    pub(crate) is_met: bool,
}

impl Verdict {
    /// `None` if there was no target; `total` compares the whole array with its original.
    pub(crate) fn of(info: &Info, total: &Comparison) -> Option<Self> {
        let ratio = info.raw_bytes as f64 / info.compressed_bytes as f64;
        let (achieved, is_met) = match info.bound {
            ErrorBound::Psnr(db) => (total.psnr, total.psnr >= db),
            ErrorBound::L2(norm) => (total.l2_norm, total.l2_norm <= norm),
            ErrorBound::Ratio(asked) => (ratio, ratio >= asked),
            _ => return None,
        };
        let (kind, asked) = parts(info.bound);
        Some(Self { kind, asked: asked?, achieved, is_met })
    }

    pub(crate) fn text(&self) -> String {
        format!("{}, asked for {}", figure(self.kind, self.achieved), asked_text(self.kind, self.asked))
    }
}
