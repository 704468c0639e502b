//! What run-length coding gains over Huffman coding, and whether the rule of cuSZ+ chooses the better one.

use super::{mean, sizes};
use crate::Result;
use crate::fields::Field;

const NAMES: [&str; 3] = ["Huffman", "RLE", "RLE+VLE"];
/// Data sets that resemble the paper's smooth climate fields.
const CLIMATE: [&str; 9] = ["cesm", "pop_", "fice", "eur11", "echam", "cosmo", "colpex", "wrf_", "ssmis"];

pub(super) fn table(fields: &[Field]) -> Result {
    for rel in [1e-2, 1e-3] {
        println!(
            "\nREL {rel:e}; ratios of the three workflows; bits: average length of a Huffman code and its lower bound\n"
        );
        println!("| field | p1 | bits | bound | Huffman | RLE | RLE+VLE | gain | rule | best |");
        println!("|---|---|---|---|---|---|---|---|---|---|");
        let (mut gains, mut climate_gains, mut adaptive_gains) = (Vec::new(), Vec::new(), Vec::new());
        let (mut n_right, mut n) = (0, 0);
        for (field, sizes) in sizes(fields, rel)? {
            let raw_bytes = field.raw_bytes()? as f64;
            let ratios = sizes.workflow_bytes.map(|bytes| raw_bytes / bytes as f64);
            let n_codes = sizes.counts.iter().sum::<u32>();
            let p1 = f64::from(*sizes.counts.iter().max().expect("there are codes")) / f64::from(n_codes);
            let best = (0..3).min_by_key(|i| sizes.workflow_bytes[*i]).expect("there are three");
            // The rule does not decide whether runs are Huffman-coded, too: the smaller result is taken.
            let rule = match sizes.workflow {
                0 => 0,
                _ if sizes.workflow_bytes[1] < sizes.workflow_bytes[2] => 1,
                _ => 2,
            };
            let gain = ratios[1].max(ratios[2]) / ratios[0];
            println!(
                "| {} | {p1:.3} | {:.3} | {:.3} | {:.2} | {:.2} | {:.2} | {gain:.2} | {} | {} |",
                field.name,
                sizes.average_bits,
                sizes.bit_length.0,
                ratios[0],
                ratios[1],
                ratios[2],
                NAMES[rule],
                NAMES[best],
            );
            gains.push(gain);
            adaptive_gains.push(ratios[rule] / ratios[0]);
            if CLIMATE.iter().any(|name| field.name.starts_with(name)) {
                climate_gains.push(gain);
            }
            n += 1;
            n_right += usize::from(rule == best);
        }
        println!(
            "\nGain of runs over Huffman, geometric mean: climate {:.3}, all {:.3}; of the rule's choice over Huffman, all: \
             {:.3}. The rule chose the best workflow for {n_right} of {n} fields.",
            mean(&climate_gains),
            mean(&gains),
            mean(&adaptive_gains),
        );
    }
    Ok(())
}
