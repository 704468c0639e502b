//! `fields.toml`: which bound, preset and chunks each variable gets. The last entry with a matching pattern decides.

use std::path::Path;

use glob::Pattern;
use pumice::{ErrorBound, Preset};
use serde::Deserialize;

use crate::failure::{Failure, Result, io_context};

/// What to do with a variable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Treatment {
    /// `None`: copy the variable unchanged.
    pub(crate) bound: Option<ErrorBound>,
    pub(crate) preset: Preset,
    /// `None`: the chunks of the input, unless they are very small.
    pub(crate) chunks: Option<Chunks>,
    pub(crate) fill: Option<f64>,
    pub(crate) range: Option<(f64, f64)>,
}

impl Treatment {
    pub(crate) fn new(bound: Option<ErrorBound>) -> Self {
        Self { bound, preset: Preset::default(), chunks: None, fill: None, range: None }
    }
}

/// How a variable is divided into chunks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Chunks {
    Word(ChunkWord),
    Extents(Vec<usize>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChunkWord {
    /// As in the input, where it has chunks.
    Keep,
    /// About a million values.
    Auto,
}

/// All entries.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    entries: Vec<Entry>,
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
    chunks: Option<Chunks>,
    fill: Option<f64>,
    range: Option<[f64; 2]>,
}

impl Rules {
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(io_context("read", path))?;
        Self::parse(&text).map_err(|failure| failure.at(path))
    }

    fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|e| Failure::invalid(e.to_string().trim_end().to_string()))?;
        Ok(Self { entries: file.field.into_iter().map(Entry::new).collect::<Result<_>>()? })
    }

    /// The treatment of a variable, by its path without the first slash; `None` if no entry matches. Patterns with
    /// wildcards do not match coordinate variables.
    pub(crate) fn treatment(&self, path: &str, is_coordinate: bool) -> Option<&Treatment> {
        let takes = |entry: &&Entry| {
            entry.patterns.iter().any(|pattern| matches(pattern, path) && !(is_coordinate && is_wild(pattern)))
        };
        self.entries.iter().rev().find(takes).map(|entry| &entry.treatment)
    }

    /// Names without wildcards, and their bounds.
    pub(crate) fn exact_names(&self) -> impl Iterator<Item = (&Pattern, ErrorBound)> {
        let entries = self.entries.iter().filter_map(|entry| Some((&entry.patterns, entry.treatment.bound?)));
        let names = entries.flat_map(|(patterns, bound)| patterns.iter().map(move |pattern| (pattern, bound)));
        names.filter(|(pattern, _)| !is_wild(pattern))
    }
}

/// Whether a pattern matches a path. A pattern without a slash is compared with the last part of the path.
pub(crate) fn matches(pattern: &Pattern, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    pattern.matches(path) || (!pattern.as_str().contains('/') && pattern.matches(name))
}

fn is_wild(pattern: &Pattern) -> bool {
    pattern.as_str().contains(['*', '?', '['])
}

impl Entry {
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
        let bound = match (bounds.as_slice(), field.keep) {
            ([bound], false) => Some(*bound),
            ([], true) => None,
            _ => {
                let message = "give one of abs, rel, pwrel, psnr, l2, ratio, lossless = true and keep = true";
                return Err(wrong(message.into()));
            }
        };
        if let Some(bound) = bound
            && !bound.is_valid()
        {
            return Err(wrong(format!("{bound} is not valid")));
        }
        let range = field.range.map(|[lo, hi]| (lo, hi));
        if range.is_some_and(|(lo, hi)| !(lo <= hi && lo.is_finite() && hi.is_finite())) {
            return Err(wrong("range must be [least, greatest]".into()));
        }
        if range.is_some() && !matches!(bound, Some(ErrorBound::Rel(_))) {
            return Err(wrong("range applies to rel only".into()));
        }
        let patterns = names.iter().map(|name| Pattern::new(name.trim_start_matches('/')));
        let patterns = patterns.collect::<std::result::Result<_, _>>().map_err(|e| wrong(e.to_string()))?;
        let preset = field
            .preset
            .map_or(Ok(Preset::default()), |name| name.parse())
            .map_err(|e: pumice::Error| wrong(e.to_string()))?;
        Ok(Self { patterns, treatment: Treatment { bound, preset, chunks: field.chunks, fill: field.fill, range } })
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
        chunks = [1, 192, 288]

        [[field]]
        name = "TREFHT"
        keep = true
    "#;

    #[test]
    fn the_last_match_decides() {
        let rules = Rules::parse(TEXT).unwrap();
        let bound = |path| rules.treatment(path, false).unwrap().bound;
        assert_eq!(bound("PS"), Some(ErrorBound::Rel(1e-3)));
        assert_eq!(bound("T850"), Some(ErrorBound::Abs(1.0)));
        assert_eq!(bound("atmosphere/T850"), Some(ErrorBound::Abs(1.0)));
        assert_eq!(bound("ocean/SST"), Some(ErrorBound::Abs(1.0)));
        assert_eq!(bound("SST"), Some(ErrorBound::Rel(1e-3)));
        assert_eq!(bound("TREFHT"), None);
        assert_eq!(rules.treatment("T1", false).unwrap().chunks, Some(Chunks::Extents(vec![1, 192, 288])));
        assert_eq!(rules.treatment("time", true), None);
        assert!(rules.treatment("TREFHT", true).is_some());
        let names: Vec<_> = rules.exact_names().map(|(name, bound)| (name.as_str(), bound)).collect();
        assert_eq!(names, [("ocean/SST", ErrorBound::Abs(1.0))]);
    }

    #[test]
    fn the_example_of_the_documentation_is_valid() {
        let rules = Rules::parse(include_str!("../../../../docs/examples/fields.toml")).unwrap();
        assert_eq!(rules.treatment("ocean/SST", false).unwrap().bound, Some(ErrorBound::Abs(0.01)));
        assert_eq!(rules.treatment("latent_flux", false).unwrap().bound, Some(ErrorBound::Lossless));
    }

    #[test]
    fn messages_name_the_mistake() {
        for (text, expected) in [
            ("[[field]]\nname = 'a'", "give one of abs, rel"),
            ("[[field]]\nname = 'a'\nabs = 1\nrel = 1", "give one of abs, rel"),
            ("[[field]]\nname = 'a'\nabs = -1", "an absolute bound of -1 is not valid"),
            ("[[field]]\nname = 'a'\nratio = 0.5", "a ratio of 0.5 is not valid"),
            ("[[field]]\nname = 'a'\nabs = 1\nrange = [0, 1]", "range applies to rel only"),
            ("[[field]]\nname = 'a'\nrel = 1\nrange = [1, 0]", "least, greatest"),
            ("[[field]]\nname = 'a'\nabs = 1\npreset = 'tiny'", "unknown preset 'tiny'"),
            ("[[field]]\nname = 'a'\nabsolute = 1", "unknown field `absolute`"),
            ("[[field]]\nname = 'a['\nabs = 1", "field a["),
        ] {
            let message = Rules::parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
