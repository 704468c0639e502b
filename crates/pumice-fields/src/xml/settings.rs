//! The attributes about compression.
//!
//! | attribute | values |
//! |---|---|
//! | `compression_type` | `lossy`, `lossless`, `none`; a preset; names of other compressors, which stand for presets |
//! | `error_bound_mode` | `abs`, `rel`, `pw_rel`, `psnr`, `l2`, `ratio`, in the spelling of SZ, too |
//! | `error_bound` | the number |
//! | `compression_level` | 0 to 9: 0 is `none`, 1 to 3 `fast`, 4 to 6 `balanced`, 7 and 8 `small`, 9 `max` |
//! | `default_value` | the value that means "no data" |
//! | `chunks` | extents, `keep` or `auto` |

use pumice::{BoundKind, ErrorBound, Preset, Result};

use super::Text;
use crate::{ChunkWord, Chunks, Treatment};

/// A value and where it is.
type At<V> = Option<(V, usize)>;

/// What an element says, and what it inherits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Settings {
    compression: At<Compression>,
    mode: At<BoundKind>,
    bound: At<f64>,
    level: At<u8>,
    fill: At<f64>,
    chunks: At<Chunks>,
}

#[derive(Clone, Debug, PartialEq)]
struct Compression {
    kind: Kind,
    /// Decides over the level.
    preset: Option<Preset>,
    /// Where another compressor was named.
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lossy,
    Lossless,
    None,
}

impl Settings {
    /// Whether an attribute is, or looks as if it were meant to be, about compression.
    pub(super) fn concerns(key: &str) -> bool {
        let key = key.to_ascii_lowercase();
        ["compres", "error", "bound"].iter().any(|part| key.contains(part))
            || matches!(key.as_str(), "default_value" | "chunks")
    }

    /// Takes the value of an attribute.
    pub(super) fn set(&mut self, key: &str, value: &str, at: usize) -> std::result::Result<(), String> {
        let value = value.trim();
        let number = || value.parse::<f64>().map_err(|_| format!("{key} must be a number, not '{value}'"));
        match key {
            "compression_type" => once(&mut self.compression, compression(value)?, key, at),
            "error_bound_mode" => once(&mut self.mode, mode(value)?, key, at),
            "error_bound" => once(&mut self.bound, number()?, key, at),
            "compression_level" => {
                let level = value.parse().ok().filter(|level| *level <= 9);
                let level = level.ok_or_else(|| format!("{key} must be a whole number from 0 to 9, not '{value}'"))?;
                once(&mut self.level, level, key, at)
            }
            "default_value" => once(&mut self.fill, number()?, key, at),
            "chunks" => once(&mut self.chunks, chunks(value)?, key, at),
            _ => Err(format!(
                "{key} is unknown; known: compression_type, error_bound_mode, error_bound, compression_level"
            )),
        }
    }

    /// What this says, and what `outer` says where this says nothing.
    pub(super) fn or(self, outer: &Self) -> Self {
        Self {
            compression: self.compression.or_else(|| outer.compression.clone()),
            mode: self.mode.or(outer.mode),
            bound: self.bound.or(outer.bound),
            level: self.level.or(outer.level),
            fill: self.fill.or(outer.fill),
            chunks: self.chunks.or_else(|| outer.chunks.clone()),
        }
    }

    /// The treatment of a field that begins at `at`, and a note for the user. `None` if nothing is said about compression.
    pub(super) fn treatment(self, text: Text<'_>, at: usize) -> Result<Option<(Treatment, Option<String>)>> {
        let level = self.level.map(|(level, _)| level);
        let kind = match &self.compression {
            Some((compression, _)) => compression.kind,
            // As XIOS does where there is a level only.
            None if self.bound.is_some() => Kind::Lossy,
            None if level == Some(0) => Kind::None,
            None if level.is_some() => Kind::Lossless,
            None => {
                return match self.mode {
                    Some((_, at)) => Err(text.error(at, "error_bound_mode needs an error_bound")),
                    None => Ok(None),
                };
            }
        };
        let (note, named) = match self.compression {
            Some((compression, _)) => (compression.note, compression.preset),
            None => (None, None),
        };
        let bounds = match kind {
            Kind::None => Vec::new(),
            Kind::Lossless if level == Some(0) => Vec::new(),
            Kind::Lossless => vec![ErrorBound::Lossless],
            Kind::Lossy => {
                let Some((bound, bound_at)) = self.bound else {
                    return Err(text.error(at, "lossy compression needs an error_bound, here or around"));
                };
                if let Some((0, at)) = self.level {
                    let message = "level 0 is no compression, which has no error bound: give compression_type=\"none\"";
                    return Err(text.error(at, message));
                }
                let mode = self.mode.map_or(BoundKind::Abs, |(mode, _)| mode);
                let bound = ErrorBound::from_kind(mode, bound);
                if !bound.is_valid() {
                    return Err(text.error(bound_at, format!("{bound} is not valid")));
                }
                vec![bound]
            }
        };
        let of_level = |level| match level {
            0..=3 => Preset::Fast,
            4..=6 => Preset::Balanced,
            7..=8 => Preset::Small,
            _ => Preset::Max,
        };
        let preset = named.or(level.map(of_level)).unwrap_or_default();
        let fills = self.fill.into_iter().map(|(fill, _)| fill).collect();
        let chunks = self.chunks.map(|(chunks, _)| chunks);
        Ok(Some((Treatment { preset, fills, chunks, ..Treatment::new(bounds) }, note)))
    }
}

fn once<V>(slot: &mut At<V>, value: V, key: &str, at: usize) -> std::result::Result<(), String> {
    match slot {
        Some(_) => Err(format!("{key} is given twice")),
        None => {
            *slot = Some((value, at));
            Ok(())
        }
    }
}

fn compression(value: &str) -> std::result::Result<Compression, String> {
    let word = value.to_ascii_lowercase();
    let plain = |kind| Ok(Compression { kind, preset: None, note: None });
    let instead = |kind, preset, what: &str| {
        let note = Some(format!("compression_type {value}: {what}"));
        Ok(Compression { kind, preset, note })
    };
    match word.as_str() {
        "lossy" => plain(Kind::Lossy),
        "lossless" => plain(Kind::Lossless),
        "none" => plain(Kind::None),
        "sz" | "sz2" | "sz3" => {
            instead(Kind::Lossy, Some(Preset::Small), "written as Pumice streams of the preset small")
        }
        "szx" => instead(Kind::Lossy, Some(Preset::Fast), "written as Pumice streams of the preset fast"),
        "gzip" | "zlib" | "deflate" => instead(Kind::Lossless, None, "written as Pumice streams without loss"),
        _ => match word.parse::<Preset>() {
            Ok(preset) => Ok(Compression { kind: Kind::Lossy, preset: Some(preset), note: None }),
            Err(_) => {
                let presets: Vec<&str> = Preset::ALL.iter().map(|preset| preset.name()).collect();
                let presets = presets.join(", ");
                Err(format!(
                    "compression_type '{value}' is unknown; known: lossy, lossless, none, {presets}, and SZ, SZ3, SZx, gzip"
                ))
            }
        },
    }
}

fn mode(value: &str) -> std::result::Result<BoundKind, String> {
    let word: String = value.to_ascii_lowercase().chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    match word.as_str() {
        "abs" | "absolute" => Ok(BoundKind::Abs),
        "rel" | "relative" | "vrrel" | "range" => Ok(BoundKind::Rel),
        "pwrel" | "pointwise" => Ok(BoundKind::PwRel),
        "psnr" => Ok(BoundKind::Psnr),
        "l2" | "norm" | "l2norm" => Ok(BoundKind::L2),
        "ratio" => Ok(BoundKind::Ratio),
        "absandrel" | "absorrel" => Err(format!(
            "error_bound_mode '{value}' has two bounds, and error_bound is one number: give both as abs and rel in TOML"
        )),
        _ => Err(format!("error_bound_mode '{value}' is unknown; known: abs, rel, pw_rel, psnr, l2, ratio")),
    }
}

fn chunks(value: &str) -> std::result::Result<Chunks, String> {
    match value {
        "keep" => Ok(Chunks::Word(ChunkWord::Keep)),
        "auto" => Ok(Chunks::Word(ChunkWord::Auto)),
        _ => {
            let extents: std::result::Result<Vec<usize>, _> = value.split(',').map(|n| n.trim().parse()).collect();
            let extents = extents.ok().filter(|extents| !extents.contains(&0));
            extents
                .map(Chunks::Extents)
                .ok_or_else(|| format!("chunks must be extents (\"1,192,288\"), keep or auto, not '{value}'"))
        }
    }
}
