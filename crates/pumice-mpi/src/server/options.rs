//! Where and how fields are written, and which parameters each has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pumice::{Error, Result};
use pumice_fields::{Rules, Treatment};

use crate::local::invalid;

/// Who writes a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileMode {
    /// All servers together: `t_000003.pum`, with the bytes that one process would write.
    #[default]
    OneFile,
    /// Each server its part, `t_000003.part0000.pum`, and an index, `t_000003.parts.toml`, by which
    /// [`pumice_fields::Parts`] reads them as one.
    MultipleFiles,
}

/// What becomes of the values of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Coding {
    /// They are compressed by Pumice. A relative bound is for the range of the whole field.
    Compressed(Treatment),
    /// They are stored as they are, in C order and little-endian: `t_000003.raw`.
    Raw,
    /// As `Raw`, by gzip at this level: `t_000003.raw.gz`. To compare with.
    Gzip(u32),
}

impl From<&Treatment> for Coding {
    /// Without bounds, values are not compressed.
    fn from(treatment: &Treatment) -> Self {
        if treatment.bounds.is_empty() { Coding::Raw } else { Coding::Compressed(treatment.clone()) }
    }
}

impl Coding {
    pub(super) fn extension(&self) -> &'static str {
        match self {
            Coding::Compressed(_) => "pum",
            Coding::Raw => "raw",
            Coding::Gzip(_) => "raw.gz",
        }
    }
}

/// Options of an I/O server, the same on all ranks.
#[derive(Clone, Debug)]
pub struct Options {
    folder: PathBuf,
    pub(super) mode: FileMode,
    rules: Option<Rules>,
    fields: BTreeMap<String, Coding>,
    pub(super) buffer_bytes: usize,
    pub(super) threads: usize,
}

/// The longest name of a field.
const MAX_NAME: usize = 200;

impl Options {
    /// Files go to this folder, which must be there. Fields have no parameters yet.
    pub fn new(folder: impl AsRef<Path>) -> Self {
        Self {
            folder: folder.as_ref().into(),
            mode: FileMode::default(),
            rules: None,
            fields: BTreeMap::new(),
            buffer_bytes: 256 << 20,
            threads: 0,
        }
    }

    /// One file of all servers, or one of each.
    #[must_use]
    pub fn mode(mut self, mode: FileMode) -> Self {
        self.mode = mode;
        self
    }

    /// Parameters by name, and those of the fields that no entry names, if these have bounds. Other fields are refused.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = Some(rules);
        self
    }

    /// The parameters of one field, whatever the rules say.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, coding: Coding) -> Self {
        self.fields.insert(name.into(), coding);
        self
    }

    /// The most bytes of messages that a client keeps while they are on their way, 256 MiB unless said otherwise. What one
    /// call hands over may be more, and is then on its way alone.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Threads of each server; 0 for its share of the cores of its node, among the servers there. The bytes do not depend on it.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// What becomes of a field.
    pub(super) fn coding(&self, name: &str) -> Result<Coding> {
        if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(invalid(format!(
                "'{name}' cannot be the name of a field: it becomes that of a file, so it has no slash, does not begin \
                 with a dot, and has at most {MAX_NAME} bytes"
            )));
        }
        let by_rules = || {
            let rules = self.rules.as_ref()?;
            let others = Some(&rules.others).filter(|others| !others.bounds.is_empty());
            rules.treatment(name, false).or(others).map(Coding::from)
        };
        let coding = self.fields.get(name).cloned().or_else(by_rules);
        let coding = coding.ok_or_else(|| {
            invalid(format!(
                "nothing says how to write the field {name}: name it in the configuration, or by Options::field"
            ))
        })?;
        match &coding {
            Coding::Compressed(treatment) if treatment.bounds.iter().any(|bound| bound.kind().is_target()) => {
                Err(Error::unsupported(format!(
                    "the field {name} has a target, which one process would have to search for: give a bound, such as rel"
                )))
            }
            _ => Ok(coding),
        }
    }

    /// The path of a field at a step, without its extension.
    pub(super) fn stem(&self, field: &str, step: u64) -> PathBuf {
        self.folder.join(format!("{field}_{step:06}"))
    }
}
