//! `cargo research ceaz-codewords`: offline codewords of the preset `ceaz`, as the paper makes them. Each array gets the bound
//! at which its codes take the same number of bits, by eb' = 2^(B - Btarget) eb; the codewords are those for the mean of
//! the distributions.

use std::path::Path;

use pumice::{Element, ErrorBound, research};

use crate::Result;
use crate::fields::{self, with_values};

const N_CODES: usize = 1024;
/// Bits per code for which bounds are chosen: a ratio of 10 for f32.
const TARGET_BITS: f64 = 3.2;
/// The bound to start with, and how often it is corrected.
const FIRST_REL: f64 = 1e-4;
const N_CORRECTIONS: usize = 4;
/// What the counts of an array are scaled to.
const SCALE: f64 = (1 << 20) as f64;

pub(crate) fn run(data: &Path, out: &Path) -> Result {
    let codewords = codewords(data)?;
    println!("{} bytes to {}", codewords.len(), out.display());
    std::fs::write(out, codewords).map_err(|e| format!("{}: {e}", out.display()))
}

fn codewords(data: &Path) -> Result<Vec<u8>> {
    let mut sums = [0.0; N_CODES];
    for field in fields::in_folder(data)? {
        let Some((rel, shares)) = with_values!(field, |values, shape| at_target(&values, &shape)) else {
            println!("{}: left out, cannot be quantised", field.name);
            continue;
        };
        println!("{}: REL {rel:.2e}, {:.2} bits", field.name, entropy(&shares));
        sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += SCALE * share);
    }
    Ok(research::ceaz_codewords(&sums.map(|sum| sum as u32)))
}

/// The bound at which the codes of an array take roughly [`TARGET_BITS`], and the share of each code at this bound.
fn at_target<T: Element>(values: &[T], shape: &[usize]) -> Option<(f64, [f64; N_CODES])> {
    let shares = |rel: f64| {
        let codes = research::quantisation_codes(values, shape, ErrorBound::Rel(rel)).ok()??;
        let mut shares = [0.0; N_CODES];
        codes.iter().for_each(|code| shares[usize::from(*code)] += 1.0 / codes.len() as f64);
        Some(shares)
    };
    let mut rel = FIRST_REL;
    for _ in 0..N_CORRECTIONS {
        rel = (rel * (entropy(&shares(rel)?) - TARGET_BITS).exp2()).clamp(1e-7, 0.1);
    }
    Some((rel, shares(rel)?))
}

fn entropy(shares: &[f64]) -> f64 {
    shares.iter().filter(|share| **share > 0.0).map(|share| -share * share.log2()).sum()
}
