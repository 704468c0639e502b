//! cuSZp2: what outlier mode gains over plain mode.

use pumice::{Config, ErrorBound, Preset, research};

use super::{RELS, gain, heading, mean, row};
use crate::Result;
use crate::fields::{Field, with_values};

/// Ratios of both modes for each field and bound.
pub(super) fn outlier_against_plain(fields: &[Field]) -> Result {
    heading(
        "cuSZp2: outlier mode against plain mode",
        &["field", "plain 1e-2", "outlier", "gain", "plain 1e-3", "outlier", "gain", "plain 1e-4", "outlier", "gain"],
    );
    let mut all = vec![[Vec::new(), Vec::new()]; RELS.len()];
    for field in fields {
        let raw_bytes = field.raw_bytes()? as f64;
        let mut cells = vec![field.name.clone()];
        for (rel, means) in RELS.into_iter().zip(&mut all) {
            let ratio = |preset| -> Result<f64> {
                let config = Config::new(ErrorBound::Rel(rel)).preset(preset);
                let bytes = with_values!(field, |values, shape| research::codec_bytes(&values, &shape, &config));
                Ok(raw_bytes / bytes.map_err(|e| format!("{}: {e}", field.name))? as f64)
            };
            let (plain, outlier) = (ratio(Preset::Cuszp2Plain)?, ratio(Preset::Cuszp2Outlier)?);
            means[0].push(plain);
            means[1].push(outlier);
            cells.extend([format!("{plain:.2}"), format!("{outlier:.2}"), gain(outlier, plain)]);
        }
        row(cells);
    }
    let mut cells = vec!["**geometric mean**".to_owned()];
    for [plain, outlier] in all.iter().map(|ratios| [mean(&ratios[0]), mean(&ratios[1])]) {
        cells.extend([format!("{plain:.2}"), format!("{outlier:.2}"), gain(outlier, plain)]);
    }
    row(cells);
    Ok(())
}
