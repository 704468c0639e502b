//! What is done with a field.

use std::fmt;

use pumice::{Config, ErrorBound, Preset, Result, Stable};
use serde::Deserialize;

use crate::invalid;

/// Most fill values of a field: as many as the HDF5 filter takes.
pub const MAX_FILLS: usize = 4;

/// What to do with a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Treatment {
    /// All of them hold. None: the field is kept as it is, not compressed.
    pub bounds: Vec<ErrorBound>,
    /// Speed or size.
    pub preset: Preset,
    /// Whether restored values keep their bits when they are compressed again.
    pub stable: Stable,
    /// `None`: as the program that asks thinks best.
    pub chunks: Option<Chunks>,
    /// Values that mean "no data"; if there are none, they are detected.
    pub fills: Vec<f64>,
    /// What a relative bound refers to, instead of the range of the values.
    pub range: Option<(f64, f64)>,
}

impl Treatment {
    /// These bounds, and defaults for the rest.
    pub fn new(bounds: Vec<ErrorBound>) -> Self {
        Self { bounds, preset: Preset::default(), stable: Stable::Auto, chunks: None, fills: Vec::new(), range: None }
    }

    /// The options that compress a whole array of this shape in this way.
    ///
    /// # Errors
    /// If there are no bounds, or chunks are for another number of axes.
    pub fn config(&self, shape: &[usize]) -> Result<Config> {
        let Some((first, others)) = self.bounds.split_first() else {
            return Err(invalid("a field without bounds is not compressed"));
        };
        let config = Config::new(*first).preset(self.preset).fills(&self.fills);
        let mut config = others.iter().fold(config, |config, bound| config.and(*bound));
        // Automatic is for chunks of file formats, which are compressed again and again.
        if self.stable != Stable::Auto {
            config = config.stable(self.stable);
        }
        if let Some((min, max)) = self.range {
            config = config.range(min, max);
        }
        if let Some(Chunks::Extents(extents)) = &self.chunks {
            if extents.len() != shape.len() || extents.contains(&0) {
                return Err(invalid(format!("chunks of {extents:?} do not fit the shape {shape:?}")));
            }
            let extents: Vec<usize> = extents.iter().zip(shape).map(|(n, extent)| *n.min(extent).max(&1)).collect();
            config = config.chunk_shape(&extents);
        }
        Ok(config)
    }

    /// Fails if these bounds cannot hold together, or one is not valid.
    pub(crate) fn check(&self) -> Result<()> {
        check_together(&self.bounds)?;
        match self.bounds.iter().find(|bound| !bound.is_valid()) {
            Some(bound) => Err(invalid(format!("{bound} is not valid"))),
            None => Ok(()),
        }
    }
}

/// Fails if these bounds cannot hold together.
fn check_together(bounds: &[ErrorBound]) -> Result<()> {
    let is_kept_by_each_value = |bound: &ErrorBound| *bound != ErrorBound::Lossless && !bound.kind().is_target();
    if bounds.len() > 1 && !bounds.iter().all(is_kept_by_each_value) {
        return Err(invalid("only abs, rel and pwrel can be given together; all of them hold"));
    }
    Ok(())
}

/// How a field is divided into chunks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Chunks {
    /// By a rule.
    Word(ChunkWord),
    /// Of these extents.
    Extents(Vec<usize>),
}

impl fmt::Display for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chunks::Word(ChunkWord::Keep) => f.write_str("keep"),
            Chunks::Word(ChunkWord::Auto) => f.write_str("auto"),
            Chunks::Extents(extents) => {
                let words: Vec<String> = extents.iter().map(ToString::to_string).collect();
                f.write_str(&words.join(","))
            }
        }
    }
}

/// Rules for chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChunkWord {
    /// As in the input, where it has chunks.
    Keep,
    /// About a million values.
    Auto,
}
