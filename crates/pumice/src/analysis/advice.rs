//! Advice from the figures: which preset to choose, and what is remarkable about the data.

use super::{Analysis, AxisMadogram, Estimate};
use crate::num::DType;
use crate::plan::Preset;

/// What to choose, and why.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// The preset for speed, if it is among those that were analysed.
    pub speed: Option<Preset>,
    /// The reason, as text.
    pub speed_reason: String,
    /// The preset for small files: the smallest, unless a quicker one is nearly as good.
    pub ratio: Option<Preset>,
    /// The reason, as text.
    pub ratio_reason: String,
    /// Advice on chunks, as text.
    pub chunking: String,
    /// Remarkable properties of the data.
    pub hints: Vec<Hint>,
}

/// A remarkable property of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hint {
    /// A name that does not change between releases.
    pub code: &'static str,
    /// What it means, as text.
    pub text: String,
}

/// The slower preset is recommended only if its ratio is higher by this factor.
const WORTH: f64 = 1.05;
/// Values along an axis are correlated if neighbours differ by less than this share of the difference between other
/// values.
const TOGETHER: f64 = 0.5;
/// Data is noise if neighbours differ by this share of the difference between distant values.
const NOISE: f64 = 0.8;
/// If the range is more than this many standard deviations, there are outliers.
const OUTLYING: f64 = 200.0;
/// Axes up to this many points may be components of one quantity.
const MAX_COMPONENTS: usize = 16;

pub(super) fn of(analysis: &Analysis) -> Advice {
    let (ratio, ratio_reason) = for_ratio(&analysis.estimates);
    let (speed, speed_reason) = for_speed(&analysis.estimates);
    Advice { speed, speed_reason, ratio, ratio_reason, chunking: chunking(analysis), hints: hints(analysis) }
}

/// Geometric mean of the ratios of a preset over all bounds.
fn mean_ratio(estimates: &[Estimate], preset: Preset) -> f64 {
    let logs: Vec<f64> = estimates.iter().filter(|e| e.preset == preset).map(|e| e.ratio.ln()).collect();
    (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

fn presets(estimates: &[Estimate]) -> Vec<Preset> {
    let mut presets: Vec<Preset> = Vec::new();
    for estimate in estimates {
        if !presets.contains(&estimate.preset) {
            presets.push(estimate.preset);
        }
    }
    presets
}

fn for_ratio(estimates: &[Estimate]) -> (Option<Preset>, String) {
    let presets = presets(estimates);
    let mean = |preset: &Preset| mean_ratio(estimates, *preset);
    let Some(best) = presets.iter().copied().max_by(|a, b| mean(a).total_cmp(&mean(b))) else {
        return (None, "no presets were analysed".into());
    };
    let quicker = Preset::default();
    if best == Preset::Max && presets.contains(&quicker) && mean(&best) < WORTH * mean(&quicker) {
        let percent = 100.0 * (mean(&best) / mean(&quicker) - 1.0);
        let names = (best.name(), quicker.name());
        return (Some(quicker), format!("{} would be only {percent:.1} % smaller than {}", names.0, names.1));
    }
    let reason = match presets.iter().copied().filter(|p| *p != best).max_by(|a, b| mean(a).total_cmp(&mean(b))) {
        Some(next) => format!("{:.2} times the ratio of {}", mean(&best) / mean(&next), next.name()),
        None => "the only preset that was analysed".into(),
    };
    (Some(best), reason)
}

fn for_speed(estimates: &[Estimate]) -> (Option<Preset>, String) {
    let presets = presets(estimates);
    if !presets.contains(&Preset::Fast) {
        return (None, "fast was not analysed".into());
    }
    let mean = |preset: Preset| mean_ratio(estimates, preset);
    let best = presets.iter().copied().max_by(|a, b| mean(*a).total_cmp(&mean(*b))).expect("fast is there");
    let share = 100.0 * mean(Preset::Fast) / mean(best);
    let reason = if best == Preset::Fast {
        "nothing else is smaller".into()
    } else if matches!(best, Preset::Small | Preset::Max) {
        format!("over ten times as fast as {}, at {share:.0} % of its ratio", best.name())
    } else {
        format!("{share:.0} % of the ratio of {}", best.name())
    };
    (Some(Preset::Fast), reason)
}

fn chunking(analysis: &Analysis) -> String {
    let shape: Vec<String> = analysis.chunk_shape.iter().map(usize::to_string).collect();
    match analysis.n_chunks {
        1 => "one chunk: reading a part decodes all of it; give --chunk to read parts or to use several threads".into(),
        n => format!(
            "{n} chunks of {} are suitable; with smaller ones, small parts are read faster, at some cost in ratio",
            shape.join(" x ")
        ),
    }
}

fn hints(analysis: &Analysis) -> Vec<Hint> {
    let mut hints = Vec::new();
    let mut say = |code: &'static str, text: String| hints.push(Hint { code, text });
    let profile = &analysis.profile;
    if analysis.n_values == 0 {
        say("empty", "there are no values".into());
        return hints;
    }
    let percent = |n: u64| 100.0 * n as f64 / analysis.n_values as f64;
    for &(fill, n) in profile.fills.iter().filter(|(fill, n)| !fill.is_nan() && *n > 0) {
        let fill = if analysis.dtype == DType::F32 { format!("{:?}", fill as f32) } else { format!("{fill:?}") };
        say(
            "fill_value",
            format!("fill value {fill} found, {:.2} % of all: kept exactly, and not part of the range", percent(n)),
        );
    }
    if profile.n_nan > 0 {
        say("nan", format!("{:.2} % are NaN: kept bit for bit", percent(profile.n_nan)));
    }
    let n_infinite = profile.n_pos_inf + profile.n_neg_inf;
    if n_infinite > 0 {
        say("infinities", format!("{n_infinite} infinities: each is stored exactly"));
    }
    if profile.n_counted == 0 {
        return hints;
    }
    if profile.is_constant() {
        say("constant", "all values are the same: any bound, lossless too, costs next to nothing".into());
        return hints;
    }
    significance(analysis, &mut say);
    if profile.n_subnormal > profile.n_counted / 100 {
        say("subnormals", format!("{:.1} % are subnormal: is the unit right?", percent(profile.n_subnormal)));
    }
    if profile.max - profile.min > OUTLYING * profile.std_dev {
        let times = (profile.max - profile.min) / profile.std_dev;
        say(
            "outliers",
            format!(
                "a few values stretch the range to {times:.0} standard deviations: a bound relative to it is loose for the others, consider --abs"
            ),
        );
    }
    smoothness(&analysis.madograms, &analysis.shape, &mut say);
    for residuals in analysis.residuals.iter().take(1).filter(|r| r.roughness < 0.05) {
        let bound = residuals.abs_bound;
        let same = 100.0 * (1.0 - residuals.roughness);
        say(
            "runs",
            format!(
                "at a bound of {bound:.3e}, {same:.1} % of codes are equal at any distance: run-length coding pays"
            ),
        );
    }
    hints
}

fn significance(analysis: &Analysis, say: &mut dyn FnMut(&'static str, String)) {
    let profile = &analysis.profile;
    let all_bits = if analysis.dtype == DType::F32 { 24 } else { 53 };
    let bits = profile.significant_bits;
    if profile.is_integer() {
        say("integers", "all values are integers: an absolute bound of 0.499 keeps them exact after rounding".into());
    }
    if bits <= all_bits * 2 / 3 {
        let free = if bits <= all_bits / 2 { ": lossless is nearly free" } else { "" };
        say("few_significant_bits", format!("values carry only {bits} of {all_bits} significant bits{free}"));
    }
    let largest = profile.min.abs().max(profile.max.abs());
    if analysis.dtype == DType::F64 && bits <= 24 && largest <= f64::from(f32::MAX) && profile.n_subnormal == 0 {
        say("single_precision", "values are those of single precision: f32 would hold them".into());
    }
    let unit = largest * 2_f64.powi(1 - all_bits as i32);
    if let Some(residuals) = analysis.residuals.iter().find(|r| r.abs_bound < unit) {
        let bound = residuals.abs_bound;
        say(
            "tight_bound",
            format!("a bound of {bound:.3e} is below the precision of the largest values: nearly lossless"),
        );
    }
}

fn smoothness(madograms: &[AxisMadogram], shape: &[usize], say: &mut dyn FnMut(&'static str, String)) {
    let at = |madogram: &AxisMadogram, lag: usize| madogram.points.iter().find(|p| p.lag == lag).map(|p| p.difference);
    let nearest: Vec<(usize, f64)> = madograms.iter().filter_map(|m| Some((m.axis, at(m, 1)?))).collect();
    let least = nearest.iter().map(|(_, difference)| *difference).fold(f64::INFINITY, f64::min);
    for &(axis, difference) in &nearest {
        if shape[axis] <= MAX_COMPONENTS && nearest.len() > 1 && least < TOGETHER * TOGETHER * difference {
            say(
                "component_axis",
                format!(
                    "axis {axis} of {} points looks like components: its neighbours differ {:.0} times as much as others",
                    shape[axis],
                    difference / least
                ),
            );
        }
    }
    for madogram in madograms {
        let Some(next) = at(madogram, 1) else { continue };
        let period = (2..=6).find(|lag| at(madogram, *lag).is_some_and(|difference| difference < TOGETHER * next));
        if let Some(period) = period {
            say(
                "interleaved",
                format!(
                    "axis {} looks like {period} interleaved components: reshape it to .. x {period}",
                    madogram.axis
                ),
            );
        }
    }
    let is_noise = |m: &AxisMadogram| {
        let far = m.points.iter().map(|p| p.difference).fold(0.0, f64::max);
        m.points.len() > 2 && at(m, 1).is_some_and(|difference| difference > NOISE * far)
    };
    if madograms.iter().any(|m| m.points.len() > 2) && madograms.iter().filter(|m| m.points.len() > 2).all(is_noise) {
        say("noise", "neighbours differ as much as distant values: no smoothness to predict from in this order".into());
    }
}
