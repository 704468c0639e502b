//! What offline codewords lose against those made for the data, and what CEAZ decides.

use super::{mean, sizes};
use crate::Result;
use crate::fields::Field;

const NAMES: [&str; 3] = ["keep", "update", "rebuild"];

pub(super) fn table(fields: &[Field]) -> Result {
    for rel in [1e-3, 1e-4] {
        println!("\nREL {rel:e}; ratios with offline codewords, with an approximate sort, with the best codewords\n");
        println!("| field | chi | offline | approximate | best | loss offline | loss approximate | decision | loss |");
        println!("|---|---|---|---|---|---|---|---|---|");
        let mut kept = [const { Vec::new() }; 3];
        for (field, sizes) in sizes(fields, rel)? {
            let raw_bytes = field.raw_bytes()? as f64;
            let ratios = sizes.codewords_bytes.map(|bytes| raw_bytes / bytes as f64);
            let shares = ratios.map(|ratio| ratio / ratios[2]);
            let loss = |share: f64| 100.0 * (1.0 - share);
            println!(
                "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} % | {:.2} % | {} | {:.1} % |",
                field.name,
                sizes.chi,
                ratios[0],
                ratios[1],
                ratios[2],
                loss(shares[0]),
                loss(shares[1]),
                NAMES[sizes.codewords],
                loss(shares[sizes.codewords]),
            );
            kept[0].push(shares[0]);
            kept[1].push(shares[1]);
            kept[2].push(shares[sizes.codewords]);
        }
        let losses = kept.map(|shares| 100.0 * (1.0 - mean(&shares)));
        println!(
            "\nLoss of ratio, geometric mean: offline {:.1} %, approximate sort {:.3} %, as decided {:.1} %.",
            losses[0], losses[1], losses[2],
        );
    }
    Ok(())
}
