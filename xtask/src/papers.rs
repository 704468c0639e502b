//! `cargo xtask papers`: the tables of docs/papers.md, computed from real fields. One function for each table.

mod ceaz;
mod cuszplus;

use std::path::{Path, PathBuf};

use pumice::research::{PaperSizes, paper_sizes};
use pumice_testkit::DType;
use pumice_testkit::data::{self, DataFile};

use crate::shell::{self, Result};

/// A table by name.
type Table = (&'static str, fn(&Path) -> Result);

const TABLES: [Table; 2] = [("cuszplus", cuszplus::table), ("ceaz", ceaz::table)];

pub(crate) fn run(args: &[&str]) -> Result {
    let (args, inner) = match args.split_first() {
        Some((&"--inner", rest)) => (rest, true),
        _ => (args, false),
    };
    if !inner {
        return shell::again(&["--release"], "papers", args);
    }
    let dir = args.first().map_or_else(|| shell::root().join("../shared/data"), PathBuf::from);
    TABLES.iter().try_for_each(|(name, table)| {
        println!("\n<!-- {name} -->");
        table(&dir)
    })
}

/// The files of a folder, with what the pipelines make of each; those that cannot be quantised are left out.
pub(crate) fn sizes(dir: &Path, rel: f64) -> Result<Vec<(DataFile, PaperSizes)>> {
    let files = data::files_in(dir).ok_or_else(|| format!("{} has no INDEX.tsv", dir.display()))?;
    let sizes_of = |file: DataFile| {
        let sizes = match file.dtype {
            DType::F32 => paper_sizes(&file.read::<f32>(), &file.shape, rel),
            DType::F64 => paper_sizes(&file.read::<f64>(), &file.shape, rel),
        };
        sizes.ok().map(|sizes| (file, sizes))
    };
    Ok(files.into_iter().filter_map(sizes_of).collect())
}

/// Bytes of a file.
pub(crate) fn raw_bytes(file: &DataFile) -> usize {
    file.shape.iter().product::<usize>() * if file.dtype == DType::F32 { 4 } else { 8 }
}

/// The geometric mean.
pub(crate) fn mean(all: &[f64]) -> f64 {
    (all.iter().map(|x| x.ln()).sum::<f64>() / all.len() as f64).exp()
}
