//! `cargo research codebook`: builds the static codebook of `ceresz2` from a folder of fields, nearly as in the paper:
//! takes the distribution of differences in each data set, over all its fields, and then the mean of all distributions,
//! so that each data set has the same weight. The paper has one bound, REL 1e-4; `--rel` names several, which have the
//! same weight.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pumice::{Config, ErrorBound, Preset, research};

use crate::Result;
use crate::fields::{self, Field, with_values};

/// The bounds of the codebook of the format.
pub(crate) const RELS: [f64; 3] = [1e-2, 1e-3, 1e-4];
/// What the mean distribution is scaled to. Symbols that occur nowhere count 1, so that all have codes.
const TOTAL: f64 = (1_u32 << 28) as f64;
/// Lengths in a line of the asset.
const PER_LINE: usize = 50;

pub(crate) fn run(data: &Path, out: &Path, rels: &[f64]) -> Result {
    let mut counts = Counts::default();
    for field in &fields::in_folder(data)? {
        rels.iter().try_for_each(|rel| counts.add(field, *rel))?;
    }
    let lengths = counts.codebook(rels, None);
    let sets = counts.data_sets();
    let mut text = format!(
        "# Lengths of the codes of `ceresz2` for the differences -1000 to 999, {PER_LINE} in a line (docs/format.md, 11.2).\n\
         # Part of the format: never to be changed. Made by `cargo research codebook --out FILE DIR` from the mean of the\n\
         # distributions of {} data sets at REL {rels:?}:\n",
        sets.len()
    );
    sets.chunks(12).for_each(|sets| text += &format!("# {}\n", sets.join(" ")));
    for line in lengths.chunks(PER_LINE) {
        text += &line.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
        text.push('\n');
    }
    fs::write(out, text).map_err(|e| format!("{}: {e}", out.display()))?;
    println!("{}: {} codes from {} data sets", out.display(), lengths.len(), sets.len());
    Ok(())
}

/// Counts of symbols by data set and bound.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<(String, u64), Vec<u64>>);

impl Counts {
    /// Adds those of a field at a bound to its data set.
    pub(crate) fn add(&mut self, field: &Field, rel: f64) -> Result {
        let of_field = counts_of(field, rel)?;
        let key = (field.data_set().to_owned(), rel.to_bits());
        let of_set = self.0.entry(key).or_insert_with(|| vec![0; of_field.len()]);
        of_set.iter_mut().zip(&of_field).for_each(|(sum, count)| *sum += u64::from(*count));
        Ok(())
    }

    /// The code lengths for the mean of the distributions at these bounds, without one data set.
    pub(crate) fn codebook(&self, rels: &[f64], without: Option<&str>) -> Vec<u8> {
        let is_counted = |(set, rel): &(String, u64)| {
            rels.iter().any(|r| r.to_bits() == *rel) && without.is_none_or(|without| set != without)
        };
        let mut sum = Vec::new();
        let mut n_distributions = 0.0;
        for (_, counts) in self.0.iter().filter(|(key, _)| is_counted(key)) {
            let all: u64 = counts.iter().sum();
            sum.resize(counts.len(), 0.0);
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += *count as f64 / all as f64);
            n_distributions += 1.0;
        }
        let scaled: Vec<u32> = sum.iter().map(|share| ((share / n_distributions * TOTAL) as u32).max(1)).collect();
        research::ceresz2_fit(&scaled)
    }

    fn data_sets(&self) -> Vec<&str> {
        let mut sets: Vec<&str> = self.0.keys().map(|(set, _)| set.as_str()).collect();
        sets.dedup();
        sets
    }
}

/// How often `ceresz2` codes each symbol in a field.
pub(crate) fn counts_of(field: &Field, rel: f64) -> Result<Vec<u32>> {
    let config = Config::new(ErrorBound::Rel(rel)).preset(Preset::Ceresz2);
    with_values!(field, |values, shape| research::ceresz2_counts(&values, &shape, &config))
        .map_err(|e| format!("{}: {e}", field.name))
}
