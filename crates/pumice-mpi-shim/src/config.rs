//! The configuration: a TOML file that the environment names.

use glob::{MatchOptions, Pattern};
use pumice::{Config, DType, ErrorBound, Preset};
use pumice_mpi::Wire;
use serde::Deserialize;

/// The variable that names the configuration.
pub(crate) const VARIABLE: &str = "PUMICE_MPI_SHIM";

/// Bytes that a rank holds for a file, and the fewest bytes of a gather that are worth it, unless the rule says otherwise.
const MEMORY_MIB: u64 = 4096;
const LEAST_BYTES: u64 = 1 << 20;

/// Headers become attributes, for which there is little room.
const MAX_HEADER: usize = 16 << 10;

/// What is compressed, and how.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) report: Option<String>,
    pub(crate) files: Vec<FileRule>,
    pub(crate) gather: Option<GatherRule>,
}

/// Files of these names hold one array.
#[derive(Debug)]
pub(crate) struct FileRule {
    patterns: Vec<Pattern>,
    pub(crate) dtype: DType,
    /// Whether the program has the bytes of a value in the other order than this machine.
    pub(crate) is_swapped: bool,
    /// The first axis may be 0: as long as the file is. `None`: one axis.
    pub(crate) shape: Option<Vec<usize>>,
    /// Bytes in front of the array, which are kept as they are.
    pub(crate) header: usize,
    pub(crate) config: Config,
    /// The most bytes of a file that a rank holds.
    pub(crate) memory: u64,
    /// Whether communicators that are only a part of all ranks have files of their own.
    pub(crate) groups: bool,
}

/// Which gathers are compressed.
#[derive(Debug)]
pub(crate) struct GatherRule {
    pub(crate) f32: bool,
    pub(crate) f64: bool,
    pub(crate) least_bytes: u64,
    pub(crate) gatherv: bool,
    /// Whether links are measured.
    pub(crate) wire: Wire,
    pub(crate) config: Config,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    report: Option<String>,
    #[serde(default)]
    file: Vec<FileText>,
    gather: Option<GatherText>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: Names,
    dtype: String,
    shape: Option<Vec<usize>>,
    #[serde(default)]
    header: usize,
    abs: Option<f64>,
    rel: Option<f64>,
    pwrel: Option<f64>,
    #[serde(default)]
    lossless: bool,
    preset: Option<String>,
    memory_mib: Option<u64>,
    #[serde(default)]
    groups: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatherText {
    dtype: Option<Vec<String>>,
    least_bytes: Option<u64>,
    gatherv: Option<bool>,
    #[serde(default)]
    always: bool,
    abs: Option<f64>,
    rel: Option<f64>,
    #[serde(default)]
    lossless: bool,
    preset: Option<String>,
}

impl Rules {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text: Text = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_string())?;
        Ok(Self {
            report: text.report,
            files: text.file.into_iter().map(FileRule::new).collect::<Result<_, _>>()?,
            gather: text.gather.map(GatherRule::new).transpose()?,
        })
    }

    /// The rule of a file, by its number: the last whose pattern matches. A pattern without a slash is compared with the
    /// last part of the path.
    pub(crate) fn of_file(&self, path: &str) -> Option<usize> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
        let matches = |pattern: &Pattern| {
            let compared = if pattern.as_str().contains('/') { path } else { name };
            pattern.matches_with(compared, options)
        };
        self.files.iter().rposition(|rule| rule.patterns.iter().any(matches))
    }
}

impl FileRule {
    fn new(text: FileText) -> Result<Self, String> {
        let names = match text.name {
            Names::One(name) => vec![name],
            Names::Several(names) => names,
        };
        let shown = names.join(", ");
        let wrong = |message: String| format!("file {shown}: {message}");
        let patterns = names.iter().map(|name| Pattern::new(name).map_err(|e| wrong(e.to_string())));
        let patterns = patterns.collect::<Result<Vec<_>, _>>()?;
        // As numpy writes it.
        let (name, is_big) = match text.dtype.split_at_checked(1) {
            Some((">", name)) => (name, true),
            Some(("<", name)) => (name, false),
            _ => (text.dtype.as_str(), cfg!(target_endian = "big")),
        };
        let dtype = dtype(name).map_err(wrong)?;
        if let Some(shape) = &text.shape
            && (shape.is_empty() || shape[1..].contains(&0))
        {
            return Err(wrong(format!("the shape {shape:?} has no values; only the first axis may be 0")));
        }
        if text.header > MAX_HEADER {
            return Err(wrong(format!("a header of {} bytes is longer than {MAX_HEADER}", text.header)));
        }
        let bounds = [
            text.abs.map(ErrorBound::Abs),
            text.rel.map(ErrorBound::Rel),
            text.pwrel.map(ErrorBound::PwRel),
            text.lossless.then_some(ErrorBound::Lossless),
        ];
        let bounds: Vec<ErrorBound> = bounds.into_iter().flatten().collect();
        Ok(Self {
            patterns,
            dtype,
            is_swapped: is_big != cfg!(target_endian = "big"),
            shape: text.shape,
            header: text.header,
            config: config(&bounds, text.preset.as_deref()).map_err(wrong)?,
            memory: text.memory_mib.unwrap_or(MEMORY_MIB).saturating_mul(1 << 20),
            groups: text.groups,
        })
    }
}

impl GatherRule {
    fn new(text: GatherText) -> Result<Self, String> {
        let wrong = |message: String| format!("gather: {message}");
        let types = match text.dtype {
            Some(names) => names.iter().map(|name| dtype(name)).collect::<Result<_, _>>().map_err(wrong)?,
            None => vec![DType::F32, DType::F64],
        };
        let bounds = [
            text.abs.map(ErrorBound::Abs),
            text.rel.map(ErrorBound::Rel),
            text.lossless.then_some(ErrorBound::Lossless),
        ];
        let bounds: Vec<ErrorBound> = bounds.into_iter().flatten().collect();
        if bounds.len() > 1 {
            return Err(wrong("a gather has one bound: abs, rel, or lossless = true".into()));
        }
        Ok(Self {
            f32: types.contains(&DType::F32),
            f64: types.contains(&DType::F64),
            least_bytes: text.least_bytes.unwrap_or(LEAST_BYTES),
            gatherv: text.gatherv.unwrap_or(true),
            wire: if text.always { Wire::Compressed } else { Wire::Auto },
            config: config(&bounds, text.preset.as_deref()).map_err(wrong)?,
        })
    }
}

fn dtype(name: &str) -> Result<DType, String> {
    match name {
        "f32" => Ok(DType::F32),
        "f64" => Ok(DType::F64),
        _ => Err(format!("the type '{name}' is not known; it is f32 or f64, for files also with < or > in front")),
    }
}

fn config(bounds: &[ErrorBound], preset: Option<&str>) -> Result<Config, String> {
    let Some((first, others)) = bounds.split_first() else {
        return Err("there is no bound; give abs, rel, pwrel or lossless = true".into());
    };
    if !others.is_empty() && bounds.contains(&ErrorBound::Lossless) {
        return Err("lossless = true leaves nothing for other bounds".into());
    }
    if let Some(bound) = bounds.iter().find(|bound| !bound.is_valid()) {
        return Err(format!("{bound} is not valid"));
    }
    let config = others.iter().fold(Config::new(*first), |config, bound| config.and(*bound));
    let preset = preset.map_or(Ok(Preset::default()), str::parse).map_err(|e: pumice::Error| e.to_string())?;
    Ok(config.preset(preset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let rules = Rules::parse(
            "[[file]]\nname = \"*.dat\"\ndtype = \"f32\"\nrel = 1e-3\n\
             [[file]]\nname = [\"run/*.dat\", \"last.dat\"]\ndtype = \"f64\"\nabs = 0.5\nshape = [0, 4]\nheader = 8\n",
        )
        .unwrap();
        assert_eq!(rules.of_file("/a/b/x.dat"), Some(0));
        assert_eq!(rules.of_file("run/x.dat"), Some(1));
        assert_eq!(rules.of_file("other/run/x.dat"), Some(0));
        assert_eq!(rules.of_file("other/last.dat"), Some(1));
        assert_eq!(rules.of_file("x.dat.old"), None);
        let rule = &rules.files[1];
        assert_eq!((rule.dtype, rule.shape.as_deref(), rule.header), (DType::F64, Some(&[0, 4][..]), 8));
        assert_eq!(rule.config.bound(), ErrorBound::Abs(0.5));
        for (name, is_big) in [("<f64", false), (">f64", true)] {
            let rules = Rules::parse(&format!("[[file]]\nname = \"x\"\ndtype = \"{name}\"\nabs = 0.5")).unwrap();
            let rule = &rules.files[0];
            assert_eq!((rule.dtype, rule.is_swapped), (DType::F64, is_big != cfg!(target_endian = "big")));
        }
    }

    #[test]
    fn errors_say_where() {
        let errors = [
            ("[[file]]\nname = \"a\"\ndtype = \"i32\"\nabs = 1.0", "file a: the type 'i32'"),
            ("[[file]]\nname = \"a\"\ndtype = \"f32\"", "file a: there is no bound"),
            ("[[file]]\nname = \"a\"\ndtype = \"f32\"\nabs = -1.0", "is not valid"),
            ("[[file]]\nname = \"a\"\ndtype = \"f32\"\nabs = 1.0\nlossless = true", "leaves nothing"),
            ("[[file]]\nname = \"a\"\ndtype = \"f32\"\nabs = 1.0\nshape = [4, 0]", "has no values"),
            ("[[file]]\nname = \"a\"\ndtype = \"f32\"\nabs = 1.0\nheader = 100000", "longer than"),
            ("[[file]]\nname = \"***\"\ndtype = \"f32\"\nabs = 1.0", "file ***"),
            ("[gather]\nabs = 1.0\nrel = 0.5", "one bound"),
            ("[gather]\nabs = 1.0\nboth = 0.5", "unknown field"),
        ];
        for (text, message) in errors {
            let error = Rules::parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
