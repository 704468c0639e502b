//! Rules as XML, in the manner of XIOS.
//!
//! ```text
//! elements.rs   the text as a list of fields, each with what it and the elements around it say
//! settings.rs   the attributes about compression: names, values, inheritance, and the treatment that results
//! ```
//!
//! Here fields get what they inherit from those they refer to (`field_ref`) and from their files, and become entries.
//! The order is that of XIOS: the field itself, the groups around it, the field it refers to, the file.

mod elements;
mod settings;

use std::collections::HashMap;

use glob::Pattern;
use pumice::Result;

use self::elements::Field;
use self::settings::Settings;
use crate::rules::{Entry, WILDCARDS};
use crate::{Treatment, invalid};

/// References from field to field, one after the other; more would be a circle.
const MAX_REFERENCES: usize = 64;

/// A position in the text.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(&'a str);

impl Text<'_> {
    /// An error at a byte of the text, with its line and column.
    fn error(self, at: usize, message: impl std::fmt::Display) -> pumice::Error {
        let before = &self.0.as_bytes()[..at.min(self.0.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let of_line = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        // Bytes that continue a character do not count.
        let column = 1 + of_line.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        invalid(format!("line {line}, column {column}: {message}"))
    }
}

/// The entries of a text, and notes for the user.
pub(crate) fn parse(text: &str) -> Result<(Vec<Entry>, Vec<String>)> {
    let text = Text(text);
    let fields = elements::read(text)?;
    let mut by_id: HashMap<&str, &Field> = HashMap::new();
    for field in &fields {
        if let Some((id, _)) = &field.id {
            // Fields of files may have the ids of those they refer to.
            by_id.entry(id.as_str()).or_insert(field);
        }
    }
    let mut of_names: HashMap<String, (usize, Treatment)> = HashMap::new();
    // `None` where fields that differ have one alias, which then stands for neither.
    let mut of_aliases: HashMap<String, Option<Treatment>> = HashMap::new();
    let (mut entries, mut notes) = (Vec::new(), Vec::new());
    for field in fields.iter().filter(|field| field.file.is_some()) {
        let resolved = resolve(text, field, &by_id)?;
        let Some((name, aliases)) = resolved.names.split_first() else {
            return Err(text.error(field.at, "the field has no name: give field_ref, name or id"));
        };
        let Some((treatment, note)) = resolved.settings.treatment(text, field.at)? else { continue };
        notes.extend(note.filter(|note| !notes.contains(note)));
        for alias in aliases {
            let known = of_aliases.entry((*alias).into()).or_insert_with(|| Some(treatment.clone()));
            if known.as_ref() != Some(&treatment) {
                *known = None;
            }
        }
        match of_names.get(*name) {
            Some((_, other)) if *other == treatment => continue,
            Some((at, _)) => {
                let first = text.error(*at, "").to_string();
                let message =
                    format!("the field {name} has other parameters at {}", first.trim_end_matches([':', ' ']));
                return Err(text.error(field.at, message + "; give both the same, or names of their own"));
            }
            None => _ = of_names.insert((*name).into(), (field.at, treatment.clone())),
        }
        let pattern = |name: &&str| Pattern::new(name).map_err(|e| text.error(field.at, e));
        let aliases = aliases.iter().map(pattern).collect::<Result<_>>()?;
        entries.push(Entry { patterns: vec![pattern(name)?], aliases, treatment, is_optional: true });
    }
    if !fields.iter().any(|field| field.file.is_some()) {
        return Err(text.error(0, "there is no <field> in a <file>: what is to be written is listed there"));
    }
    for entry in &mut entries {
        entry.aliases.retain(|alias| of_aliases.get(alias.as_str()).is_some_and(Option::is_some));
    }
    Ok((entries, notes))
}

/// What a field of a file inherits.
struct Resolved<'a> {
    settings: Settings,
    /// The name in the output, then others.
    names: Vec<&'a str>,
}

fn resolve<'a>(text: Text<'_>, field: &'a Field, by_id: &HashMap<&str, &'a Field>) -> Result<Resolved<'a>> {
    let mut settings = field.settings.clone();
    let mut output_name = field.name.as_ref();
    let mut others = Vec::new();
    let mut current = field;
    for n in 0.. {
        let Some((reference, at)) = &current.field_ref else { break };
        others.push(reference.as_str());
        if n == MAX_REFERENCES {
            return Err(
                text.error(*at, format!("{MAX_REFERENCES} fields refer to one another in a row, or in a circle"))
            );
        }
        // Other files may have the definition, and a field may have the id that it refers to.
        let Some(referred) = by_id.get(reference.as_str()).filter(|other| !std::ptr::eq(**other, current)) else {
            break;
        };
        settings = settings.or(&referred.settings);
        output_name = output_name.or(referred.name.as_ref());
        current = referred;
    }
    others.truncate(1);
    others.extend(field.id.as_ref().map(|(id, _)| id.as_str()));
    let mut names: Vec<&str> = output_name.map(|(name, _)| name.as_str()).into_iter().collect();
    for other in others {
        if !names.contains(&other) {
            names.push(other);
        }
    }
    if let Some(name) = names.iter().find(|name| name.contains(WILDCARDS)) {
        return Err(text.error(field.at, format!("'{name}' is no name of a field: only TOML has wildcards")));
    }
    if let Some(file) = &field.file {
        settings = settings.or(file);
    }
    Ok(Resolved { settings, names })
}

#[cfg(test)]
mod tests;
