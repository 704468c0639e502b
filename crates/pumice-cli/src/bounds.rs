//! Bounds as text and as JSON: those of the whole array, those of its regions, and bins.

use pumice::{ErrorBound, Info, Region};
use serde::Serialize;

use crate::target;
use crate::text;

/// A bound as `--json` prints it.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub(crate) struct BoundReport {
    kind: &'static str,
    value: Option<f64>,
}

impl From<&ErrorBound> for BoundReport {
    fn from(bound: &ErrorBound) -> Self {
        let (kind, value) = parts(*bound);
        Self { kind, value }
    }
}

impl std::fmt::Display for BoundReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.value {
            Some(value) => write!(f, "{} {}", self.kind, text::number(value, 6)),
            None => f.write_str(self.kind),
        }
    }
}

/// A region as `--json` prints it.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub(crate) struct RegionReport {
    /// Start and end along each axis.
    region: Vec<[usize; 2]>,
    #[serde(flatten)]
    bound: BoundReport,
}

impl From<&Region> for RegionReport {
    fn from(region: &Region) -> Self {
        let ranges = region.ranges.iter().map(|range| [range.start, range.end]).collect();
        Self { region: ranges, bound: (&region.bound).into() }
    }
}

/// The kind of a bound and the number the user gave.
pub(crate) fn parts(bound: ErrorBound) -> (&'static str, Option<f64>) {
    (bound.kind().name(), bound.value())
}

/// Bounds as text; `abs_bound` is the absolute bound that follows from them for this array.
pub(crate) fn describe(bounds: &[ErrorBound], abs_bound: f64) -> String {
    let words = bounds.iter().map(|bound| match *bound {
        ErrorBound::Rel(e) if bounds.len() == 1 => {
            format!("{} of the value range = {}", text::number(e, 6), text::number(abs_bound, 6))
        }
        ErrorBound::Rel(e) => format!("{} of the value range", text::number(e, 6)),
        ErrorBound::PwRel(e) => format!("{} of each value", text::number(e, 6)),
        ErrorBound::Abs(e) => format!("{} absolute", text::number(e, 6)),
        ErrorBound::Psnr(_) | ErrorBound::L2(_) | ErrorBound::Ratio(_) => {
            let (kind, asked) = parts(*bound);
            let asked = target::asked_text(kind, asked.unwrap_or(0.0));
            match bounds.len() {
                1 if abs_bound == 0.0 => format!("lossless, for {asked}"),
                1 => format!("{} absolute, for {asked}", text::number(abs_bound, 6)),
                _ => asked,
            }
        }
        _ => "lossless".into(),
    });
    let words: Vec<String> = words.collect();
    let sum = if words.len() > 1 && abs_bound.is_finite() {
        format!(" (absolute: {})", text::number(abs_bound, 6))
    } else {
        String::new()
    };
    words.join(" and ") + &sum
}

/// Lines about regions and bins, if there are any.
pub(crate) fn facts(info: &Info) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !info.bin.is_empty() {
        let what = if info.regions.is_empty() { "everywhere" } else { "outside of the regions" };
        facts.push(("bins", format!("means of {} values, {what}; the bound holds for them", text::shape(&info.bin))));
    }
    for region in &info.regions {
        let ranges: Vec<String> = region.ranges.iter().map(|r| format!("{}:{}", r.start, r.end)).collect();
        let (kind, value) = parts(region.bound);
        let value = value.map_or(String::new(), |value| format!(" {}", text::number(value, 6)));
        facts.push(("region", format!("{}: {kind}{value}", ranges.join(","))));
    }
    facts
}
