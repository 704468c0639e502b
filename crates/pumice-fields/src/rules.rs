//! Entries by the names of fields, and which of them decides about a field.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use glob::Pattern;
use pumice::{Error, ErrorBound, ErrorKind, Result};

use crate::{Treatment, invalid, toml, xml};

/// Larger configurations are refused.
const MAX_BYTES: u64 = 16 << 20;

/// What makes a name a pattern.
pub(crate) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// All entries, and what applies where none matches.
#[derive(Clone, Debug)]
pub struct Rules {
    entries: Vec<Entry>,
    /// What applies to fields that no entry matches.
    pub others: Treatment,
    /// What the user should know: names that stand for something else here.
    pub notes: Vec<String>,
}

/// The treatment of some fields.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) patterns: Vec<Pattern>,
    /// Names that count where no pattern of any entry matches.
    pub(crate) aliases: Vec<Pattern>,
    pub(crate) treatment: Treatment,
    /// Whether it is no mistake if there is no such field.
    pub(crate) is_optional: bool,
}

/// A name without wildcards.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExactName<'a> {
    /// The name first, then others of the same field.
    names: (&'a Pattern, &'a [Pattern]),
    /// The bounds of the field; never empty.
    pub bounds: &'a [ErrorBound],
    /// Whether it is no mistake if there is no such field: XIOS describes those of many files in one configuration.
    pub is_optional: bool,
}

impl<'a> ExactName<'a> {
    /// The name as it is written.
    pub fn name(&self) -> &'a str {
        self.names.0.as_str()
    }

    /// Whether it names the field of this path.
    pub fn matches(&self, path: &str) -> bool {
        std::iter::once(self.names.0).chain(self.names.1).any(|name| matches(name, path))
    }
}

impl Rules {
    /// No entries: everything gets this treatment.
    ///
    /// # Errors
    /// If its bounds are not valid, or cannot hold together.
    pub fn new(others: Treatment) -> Result<Self> {
        others.check()?;
        Ok(Self { entries: Vec::new(), others, notes: Vec::new() })
    }

    /// The entries of a file, TOML or XML, and the treatment of fields that none matches.
    ///
    /// # Errors
    /// Say what is wrong, and in which line and column of which file.
    pub fn load(path: &Path, others: Treatment) -> Result<Self> {
        let at = |e: Error| e.context(path.display());
        let read = || -> Result<String> {
            let mut bytes = Vec::new();
            File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_BYTES {
                return Err(Error::new(
                    ErrorKind::LimitExceeded,
                    format!("configurations have at most {} MiB", MAX_BYTES >> 20),
                ));
            }
            String::from_utf8(bytes).map_err(|e| {
                invalid(format!("byte {} is not UTF-8; save the file in that encoding", e.utf8_error().valid_up_to()))
            })
        };
        let text = read().map_err(at)?;
        Self::parse(&text, others).map_err(at)
    }

    /// The entries of a text. It is XML if it starts with `<`, otherwise TOML.
    ///
    /// # Errors
    /// Say what is wrong, and in which line and column.
    pub fn parse(text: &str, others: Treatment) -> Result<Self> {
        let mut rules = Self::new(others)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        (rules.entries, rules.notes) =
            if text.trim_start().starts_with('<') { xml::parse(text)? } else { (toml::parse(text)?, Vec::new()) };
        Ok(rules)
    }

    /// The treatment of a field, by its path without the first slash; `None` if no entry matches. Of several entries that
    /// match the last one decides. Patterns with wildcards do not match coordinate variables.
    pub fn treatment(&self, path: &str, is_coordinate: bool) -> Option<&Treatment> {
        let takes = |pattern: &Pattern| matches(pattern, path) && !(is_coordinate && is_wild(pattern));
        let by_name = self.entries.iter().rev().find(|entry| entry.patterns.iter().any(takes));
        let found = by_name.or_else(|| self.entries.iter().rev().find(|entry| entry.aliases.iter().any(takes)));
        found.map(|entry| &entry.treatment)
    }

    /// Names without wildcards that have bounds.
    pub fn exact_names(&self) -> impl Iterator<Item = ExactName<'_>> {
        let entries = self.entries.iter().filter(|entry| !entry.treatment.bounds.is_empty());
        let names = entries.flat_map(|entry| entry.patterns.iter().map(move |pattern| (pattern, entry)));
        names.filter(|(pattern, _)| !is_wild(pattern)).map(|(pattern, entry)| ExactName {
            names: (pattern, &entry.aliases),
            bounds: &entry.treatment.bounds,
            is_optional: entry.is_optional,
        })
    }
}

/// Whether a pattern matches a path. A pattern without a slash is compared with the last part of the path.
pub fn matches(pattern: &Pattern, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    pattern.matches(path) || (!pattern.as_str().contains('/') && pattern.matches(name))
}

fn is_wild(pattern: &Pattern) -> bool {
    pattern.as_str().contains(WILDCARDS)
}
