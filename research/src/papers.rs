//! `cargo research papers`: the tables of docs/papers.md, computed on a folder of fields and printed as Markdown.
//! Ratios are those of the codecs themselves: no other codec replaces one that does badly, and the container is not
//! counted.

mod ceaz;
mod ceresz2;
mod cuszp2;
mod cuszplus;

use std::path::Path;

use clap::ValueEnum;
use pumice::research::{PaperSizes, paper_sizes};

use crate::Result;
use crate::fields::{self, Field, with_values};

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Table {
    /// cuSZp2: outlier mode against plain mode
    Outlier,
    /// CereSZ-II: static against dynamic codebook
    Codebook,
    /// cuSZ+: run lengths against Huffman codes
    Cuszplus,
    /// CEAZ: offline codewords against those made for the data
    Ceaz,
}

/// The bounds of the papers.
const RELS: [f64; 3] = [1e-2, 1e-3, 1e-4];

pub(crate) fn run(tables: &[Table], data: &Path) -> Result {
    let fields = fields::in_folder(data)?;
    let tables = if tables.is_empty() { Table::value_variants() } else { tables };
    tables.iter().try_for_each(|table| match table {
        Table::Outlier => cuszp2::outlier_against_plain(&fields),
        Table::Codebook => ceresz2::static_against_dynamic(&fields),
        Table::Cuszplus => cuszplus::table(&fields),
        Table::Ceaz => ceaz::table(&fields),
    })
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
fn mean(ratios: &[f64]) -> f64 {
    (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp()
}

/// How much better one ratio is than another, in per cent.
fn gain(better: f64, other: f64) -> String {
    format!("{:+.1} %", 100.0 * (better / other - 1.0))
}

/// The results of the pipelines for each field, without fields that cannot be quantised.
fn sizes(fields: &[Field], rel: f64) -> Result<Vec<(&Field, PaperSizes)>> {
    let mut all = Vec::new();
    for field in fields {
        match with_values!(field, |values, shape| paper_sizes(&values, &shape, rel)) {
            Ok(sizes) => all.push((field, sizes)),
            Err(e) => eprintln!("{} is left out: {e}", field.name),
        }
    }
    Ok(all)
}
