//! Rules as TOML: a list of `[[field]]`.

use glob::Pattern;
use pumice::{ErrorBound, Preset, Result, Stable};
use serde::Deserialize;

use crate::rules::Entry;
use crate::{Chunks, MAX_FILLS, Treatment, invalid};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    field: Vec<Field>,
}

/// One fill value or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Fills {
    One(f64),
    Several(Vec<f64>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    name: Names,
    abs: Option<f64>,
    rel: Option<f64>,
    pwrel: Option<f64>,
    psnr: Option<f64>,
    l2: Option<f64>,
    ratio: Option<f64>,
    #[serde(default)]
    lossless: bool,
    #[serde(default)]
    keep: bool,
    preset: Option<String>,
    stable: Option<bool>,
    chunks: Option<Chunks>,
    fill: Option<Fills>,
    range: Option<[f64; 2]>,
}

/// The entries of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>> {
    let file: File = ::toml::from_str(text).map_err(|e| invalid(e.to_string().trim_end().to_string()))?;
    file.field.into_iter().map(entry).collect()
}

fn entry(field: Field) -> Result<Entry> {
    let names = match field.name {
        Names::One(name) => vec![name],
        Names::Several(names) => names,
    };
    let shown = names.join(", ");
    let wrong = |message: String| invalid(format!("field {shown}: {message}"));
    let bounds = [
        field.abs.map(ErrorBound::Abs),
        field.rel.map(ErrorBound::Rel),
        field.pwrel.map(ErrorBound::PwRel),
        field.psnr.map(ErrorBound::Psnr),
        field.l2.map(ErrorBound::L2),
        field.ratio.map(ErrorBound::Ratio),
        field.lossless.then_some(ErrorBound::Lossless),
    ];
    let bounds: Vec<ErrorBound> = bounds.into_iter().flatten().collect();
    if bounds.is_empty() != field.keep {
        return Err(wrong(
            "give bounds (abs, rel, pwrel), or one of psnr, l2, ratio, lossless = true, keep = true".into(),
        ));
    }
    let stable = match field.stable {
        Some(true) => Stable::On,
        Some(false) => Stable::Off,
        None => Stable::Auto,
    };
    let has_lattice =
        bounds.iter().all(|bound| matches!(bound, ErrorBound::Abs(_) | ErrorBound::Rel(_) | ErrorBound::Lossless));
    let range = field.range.map(|[lo, hi]| (lo, hi));
    let patterns = names.iter().map(|name| Pattern::new(name.trim_start_matches('/')));
    let patterns = patterns.collect::<std::result::Result<_, _>>().map_err(|e| wrong(e.to_string()))?;
    let preset = field
        .preset
        .map_or(Ok(Preset::default()), |name| name.parse())
        .map_err(|e: pumice::Error| wrong(e.to_string()))?;
    let fills = match field.fill {
        None => Vec::new(),
        Some(Fills::One(fill)) => vec![fill],
        Some(Fills::Several(fills)) if fills.len() > MAX_FILLS => {
            return Err(wrong(format!("{} fill values are too many: give at most {MAX_FILLS}", fills.len())));
        }
        Some(Fills::Several(fills)) => fills,
    };
    let treatment = Treatment { bounds, preset, stable, chunks: field.chunks, fills, range };
    treatment.check().map_err(|e| wrong(e.to_string()))?;
    if stable == Stable::On && !has_lattice {
        return Err(wrong("stable = true needs abs or rel".into()));
    }
    if range.is_some_and(|(lo, hi)| !(lo <= hi && lo.is_finite() && hi.is_finite())) {
        return Err(wrong("range must be [least, greatest]".into()));
    }
    if range.is_some() && !treatment.bounds.iter().any(|bound| matches!(bound, ErrorBound::Rel(_))) {
        return Err(wrong("range applies to rel only".into()));
    }
    Ok(Entry { patterns, aliases: Vec::new(), treatment, is_optional: false })
}

#[cfg(test)]
mod tests {
    use pumice::{ErrorBound, Stable};

    use crate::{Chunks, Rules, Treatment};

    const TEXT: &str = r#"
        [[field]]
        name = "*"
        rel = 1e-3

        [[field]]
        name = ["T*", "ocean/SST"]
        abs = 1
        preset = "max"
        stable = true
        chunks = [1, 192, 288]

        [[field]]
        name = "TREFHT"
        keep = true
    "#;

    fn rules(text: &str) -> pumice::Result<Rules> {
        Rules::parse(text, Treatment::new(Vec::new()))
    }

    #[test]
    fn the_last_match_decides() {
        let rules = rules(TEXT).unwrap();
        let bound = |path| rules.treatment(path, false).unwrap().bounds.first().copied();
        assert_eq!(bound("PS"), Some(ErrorBound::Rel(1e-3)));
        assert_eq!(bound("T850"), Some(ErrorBound::Abs(1.0)));
        assert_eq!(bound("atmosphere/T850"), Some(ErrorBound::Abs(1.0)));
        assert_eq!(bound("ocean/SST"), Some(ErrorBound::Abs(1.0)));
        assert_eq!(bound("SST"), Some(ErrorBound::Rel(1e-3)));
        assert_eq!(bound("TREFHT"), None);
        assert_eq!(rules.treatment("T1", false).unwrap().chunks, Some(Chunks::Extents(vec![1, 192, 288])));
        let stable = |path| rules.treatment(path, false).unwrap().stable;
        assert_eq!((stable("T1"), stable("PS")), (Stable::On, Stable::Auto));
        assert_eq!(rules.treatment("time", true), None);
        assert!(rules.treatment("TREFHT", true).is_some());
        let names: Vec<_> = rules.exact_names().map(|exact| (exact.name(), exact.bounds, exact.is_optional)).collect();
        assert_eq!(names, [("ocean/SST", &[ErrorBound::Abs(1.0)][..], false)]);
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        let rules = rules(include_str!("../../../docs/examples/fields.toml")).unwrap();
        assert_eq!(rules.treatment("ocean/SST", false).unwrap().bounds, [ErrorBound::Abs(0.01)]);
        assert_eq!(rules.treatment("latent_flux", false).unwrap().bounds, [ErrorBound::Lossless]);
        assert_eq!(rules.treatment("U10", false).unwrap().bounds, [ErrorBound::Abs(0.5), ErrorBound::Rel(1e-3)]);
    }

    #[test]
    fn messages_name_the_mistake() {
        for (text, expected) in [
            ("[[field]]\nname = 'a'", "give bounds (abs, rel"),
            ("[[field]]\nname = 'a'\nabs = 1\nkeep = true", "give bounds (abs, rel"),
            ("[[field]]\nname = 'a'\nabs = 1\npsnr = 60", "field a: only abs, rel and pwrel can be given together"),
            ("[[field]]\nname = 'a'\nabs = 1\nlossless = true", "only abs, rel and pwrel"),
            ("[[field]]\nname = 'a'\nabs = -1", "an absolute bound of -1 is not valid"),
            ("[[field]]\nname = 'a'\nratio = 0.5", "a ratio of 0.5 is not valid"),
            ("[[field]]\nname = 'a'\nabs = 1\nrange = [0, 1]", "range applies to rel only"),
            ("[[field]]\nname = 'a'\nrel = 1\nrange = [1, 0]", "least, greatest"),
            ("[[field]]\nname = 'a'\nabs = 1\npreset = 'tiny'", "unknown preset 'tiny'"),
            ("[[field]]\nname = 'a'\npsnr = 60\nstable = true", "stable = true needs abs or rel"),
            ("[[field]]\nname = 'a'\nabsolute = 1", "unknown field `absolute`"),
            ("[[field]]\nname = 'a['\nabs = 1", "field a["),
        ] {
            let message = rules(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
