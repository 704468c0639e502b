//! `cargo xtask papers`: the tables of docs/papers.md, computed on a folder of fields and printed as Markdown. Ratios are
//! those of the codecs themselves: no other codec steps in where one is poor, and the container is not counted.

mod ceaz;
mod ceresz2;
mod cuszp2;
mod cuszplus;

use std::path::{Path, PathBuf};

use pumice::research::{PaperSizes, paper_sizes};
use pumice_testkit::DType;
use pumice_testkit::data::{self, DataFile};

use crate::folder;
use crate::shell::{self, Result, root};

/// A table: its name on the command line and what prints it.
type Table = (&'static str, fn(&Path) -> Result);

const TABLES: [Table; 4] = [
    ("outlier", |dir| cuszp2::outlier_against_plain(&folder::fields(dir)?)),
    ("codebook", |dir| ceresz2::static_against_dynamic(&folder::fields(dir)?)),
    ("cuszplus", cuszplus::table),
    ("ceaz", ceaz::table),
];

/// The bounds of the papers.
const RELS: [f64; 3] = [1e-2, 1e-3, 1e-4];

pub(crate) fn run(args: &[&str]) -> Result {
    let (mut data, mut inner) = (root().join("../shared/data"), false);
    let mut tables = Vec::new();
    for &arg in args {
        match TABLES.iter().find(|(name, _)| *name == arg) {
            Some(table) => tables.push(table),
            None if arg == "--inner" => inner = true,
            None if arg.starts_with('-') => return Err(format!("unknown option '{arg}'")),
            None => data = PathBuf::from(arg),
        }
    }
    if !inner {
        return shell::again(&["--release"], "papers", args);
    }
    let tables = if tables.is_empty() { TABLES.iter().collect() } else { tables };
    tables.iter().try_for_each(|(_, table)| table(&data))
}

/// Prints a row of a table.
fn row<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) {
    let cells: Vec<String> = cells.into_iter().map(|cell| cell.as_ref().to_owned()).collect();
    println!("| {} |", cells.join(" | "));
}

/// Prints the heading of a table whose first column is text, and all others numbers.
fn heading(title: &str, columns: &[&str]) {
    println!("\n### {title}\n");
    row(columns);
    row(columns.iter().enumerate().map(|(i, _)| if i == 0 { "---" } else { "---:" }));
}

/// The geometric mean.
pub(crate) fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// How much better one ratio is than another, in per cent.
fn gain(better: f64, other: f64) -> String {
    format!("{:+.1} %", 100.0 * (better / other - 1.0))
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
