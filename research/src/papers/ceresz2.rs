//! CereSZ-II: what a static codebook loses against one that is fitted to the field (Table I of the paper).

use pumice::{Config, ErrorBound, Preset, research};

use super::{RELS, gain, heading, mean, row};
use crate::Result;
use crate::codebook::{self, Counts};
use crate::fields::{Field, with_values};

/// Ratios under the codebook of the format, under ones made without the field's own data set (of all bounds, and of the
/// paper's one), and under one fitted to the field, whose own bytes are not counted.
pub(super) fn static_against_dynamic(fields: &[Field]) -> Result {
    let mut counts = Counts::default();
    for field in fields {
        codebook::RELS.iter().try_for_each(|rel| counts.add(field, *rel))?;
    }
    for rel in RELS {
        heading(
            &format!("CereSZ-II: static against dynamic codebook, REL {rel:e}"),
            &["field", "dynamic", "static", "loss", "without its data set", "loss", "the same, of REL 1e-4", "loss"],
        );
        let mut all = [const { Vec::new() }; 4];
        for field in fields {
            let ratios = ratios(field, rel, &counts)?;
            all.iter_mut().zip(ratios).for_each(|(all, ratio)| all.push(ratio));
            row([field.name.clone()].into_iter().chain(cells(ratios)));
        }
        row(["**geometric mean**".to_owned()].into_iter().chain(cells(all.each_ref().map(|ratios| mean(ratios)))));
    }
    Ok(())
}

fn ratios(field: &Field, rel: f64, counts: &Counts) -> Result<[f64; 4]> {
    let config = Config::new(ErrorBound::Rel(rel)).preset(Preset::Ceresz2);
    let raw_bytes = field.raw_bytes()? as f64;
    let ratio = |lengths: &[u8]| -> Result<f64> {
        let bytes = with_values!(field, |values, shape| research::ceresz2_bytes(&values, &shape, &config, lengths));
        Ok(raw_bytes / bytes.map_err(|e| format!("{}: {e}", field.name))? as f64)
    };
    let set = Some(field.data_set());
    Ok([
        ratio(&research::ceresz2_fit(&codebook::counts_of(field, rel)?))?,
        ratio(research::ceresz2_lengths())?,
        ratio(&counts.codebook(&codebook::RELS, set))?,
        ratio(&counts.codebook(&[1e-4], set))?,
    ])
}

fn cells([dynamic, others @ ..]: [f64; 4]) -> Vec<String> {
    let mut cells = vec![format!("{dynamic:.2}")];
    others.iter().for_each(|ratio| cells.extend([format!("{ratio:.2}"), gain(*ratio, dynamic)]));
    cells
}
