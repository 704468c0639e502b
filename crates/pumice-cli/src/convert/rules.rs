//! `fields.toml`: which bound, preset and chunks each variable gets. The last entry with a matching pattern decides.

use std::path::Path;

use glob::Pattern;
use pumice::{ErrorBound, Preset, Stable};
use pumice_hdf5::MAX_FILLS;
use serde::Deserialize;

use crate::failure::{Failure, Result, io_context};
use crate::target::is_target;
use crate::text;

/// What to do with a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Treatment {
    /// All of them hold. None: copy the variable unchanged.
    pub(crate) bounds: Vec<ErrorBound>,
    pub(crate) preset: Preset,
    pub(crate) stable: Stable,
    /// `None`: the chunks of the input, unless they are very small.
    pub(crate) chunks: Option<Chunks>,
    pub(crate) fills: Vec<f64>,
    pub(crate) range: Option<(f64, f64)>,
}

impl Treatment {
    /// These bounds, and defaults for the rest.
    pub(crate) fn new(bounds: Vec<ErrorBound>) -> Self {
        Self { bounds, preset: Preset::default(), stable: Stable::Auto, chunks: None, fills: Vec::new(), range: None }
    }
}

/// How a variable is divided into chunks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Chunks {
    Word(ChunkWord),
    Extents(Vec<usize>),
}

impl std::fmt::Display for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Chunks::Word(ChunkWord::Keep) => f.write_str("keep"),
            Chunks::Word(ChunkWord::Auto) => f.write_str("auto"),
            Chunks::Extents(extents) => f.write_str(&text::join(extents, ",")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChunkWord {
    /// As in the input, where it has chunks.
    Keep,
    /// About a million values.
    Auto,
}

/// All entries, and what applies where none matches.
#[derive(Debug)]
pub(crate) struct Rules {
    entries: Vec<Entry>,
    /// Without bounds: large variables are compressed losslessly.
    pub(crate) others: Treatment,
}

#[derive(Debug)]
struct Entry {
    patterns: Vec<Pattern>,
    treatment: Treatment,
}

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

impl Rules {
    /// The entries of a file, and the treatment of variables that none matches: that of the command line.
    pub(crate) fn load(path: Option<&Path>, others: Treatment) -> Result<Self> {
        check_together(&others.bounds)?;
        let entries = match path {
            None => Vec::new(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(io_context("read", path))?;
                Entry::parse(&text).map_err(|failure| failure.at(path))?
            }
        };
        Ok(Self { entries, others })
    }

    /// The treatment of a variable, by its path without the first slash; `None` if no entry matches. Patterns with
    /// wildcards do not match coordinate variables.
    pub(crate) fn treatment(&self, path: &str, is_coordinate: bool) -> Option<&Treatment> {
        let takes = |entry: &&Entry| {
            entry.patterns.iter().any(|pattern| matches(pattern, path) && !(is_coordinate && is_wild(pattern)))
        };
        self.entries.iter().rev().find(takes).map(|entry| &entry.treatment)
    }

    /// Names without wildcards that have bounds, and these.
    pub(crate) fn exact_names(&self) -> impl Iterator<Item = (&Pattern, &[ErrorBound])> {
        let entries = self.entries.iter().map(|entry| (&entry.patterns, entry.treatment.bounds.as_slice()));
        let entries = entries.filter(|(_, bounds)| !bounds.is_empty());
        let names = entries.flat_map(|(patterns, bounds)| patterns.iter().map(move |pattern| (pattern, bounds)));
        names.filter(|(pattern, _)| !is_wild(pattern))
    }
}

/// Whether a pattern matches a path. A pattern without a slash is compared with the last part of the path.
pub(crate) fn matches(pattern: &Pattern, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    pattern.matches(path) || (!pattern.as_str().contains('/') && pattern.matches(name))
}

/// Fails if these bounds cannot hold together.
fn check_together(bounds: &[ErrorBound]) -> Result<()> {
    let is_kept_by_each_value = |bound: &ErrorBound| *bound != ErrorBound::Lossless && !is_target(*bound);
    if bounds.len() > 1 && !bounds.iter().all(is_kept_by_each_value) {
        return Err(Failure::invalid("only abs, rel and pwrel can be given together; all of them hold"));
    }
    Ok(())
}

fn is_wild(pattern: &Pattern) -> bool {
    pattern.as_str().contains(['*', '?', '['])
}

impl Entry {
    fn parse(text: &str) -> Result<Vec<Self>> {
        let file: File = toml::from_str(text).map_err(|e| Failure::invalid(e.to_string().trim_end().to_string()))?;
        file.field.into_iter().map(Self::new).collect()
    }

    fn new(field: Field) -> Result<Self> {
        let names = match field.name {
            Names::One(name) => vec![name],
            Names::Several(names) => names,
        };
        let shown = names.join(", ");
        let wrong = |message: String| Failure::invalid(format!("field {shown}: {message}"));
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
        check_together(&bounds).map_err(|e| e.within(&format!("field {shown}")))?;
        if let Some(bound) = bounds.iter().find(|bound| !bound.is_valid()) {
            return Err(wrong(format!("{bound} is not valid")));
        }
        let stable = match field.stable {
            Some(true) => Stable::On,
            Some(false) => Stable::Off,
            None => Stable::Auto,
        };
        let has_lattice =
            bounds.iter().all(|bound| matches!(bound, ErrorBound::Abs(_) | ErrorBound::Rel(_) | ErrorBound::Lossless));
        if stable == Stable::On && !has_lattice {
            return Err(wrong("stable = true needs abs or rel".into()));
        }
        let range = field.range.map(|[lo, hi]| (lo, hi));
        if range.is_some_and(|(lo, hi)| !(lo <= hi && lo.is_finite() && hi.is_finite())) {
            return Err(wrong("range must be [least, greatest]".into()));
        }
        if range.is_some() && !bounds.iter().any(|bound| matches!(bound, ErrorBound::Rel(_))) {
            return Err(wrong("range applies to rel only".into()));
        }
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
        Ok(Self { patterns, treatment: Treatment { bounds, preset, stable, chunks: field.chunks, fills, range } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_last_match_decides() {
        let rules = Rules { entries: Entry::parse(TEXT).unwrap(), others: Treatment::new(Vec::new()) };
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
        let names: Vec<_> = rules.exact_names().map(|(name, bounds)| (name.as_str(), bounds)).collect();
        assert_eq!(names, [("ocean/SST", &[ErrorBound::Abs(1.0)][..])]);
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        let entries = Entry::parse(include_str!("../../../../docs/examples/fields.toml")).unwrap();
        let rules = Rules { entries, others: Treatment::new(Vec::new()) };
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
            let message = Entry::parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
