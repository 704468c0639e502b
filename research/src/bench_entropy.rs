//! `cargo research bench-entropy`: speed of the entropy coders on one thread, beside that of memcpy in the same run, since only
//! their ratio means much on another machine. Bytes are those of the symbols, two each.

use std::hint::black_box;
use std::time::Instant;

use pumice::research::{self, Huffman};
use pumice_testkit::Rng;

use crate::Result;

const N_SYMBOLS: usize = 1 << 22;
const ALPHABET: usize = 1024;
const N_RUNS: usize = 9;

pub(crate) fn run() -> Result {
    let mut rng = Rng::new(1);
    // Codes around the middle, distributed roughly as quantisation codes at REL 1e-3.
    let mut code = |width: f64| {
        let sum: f64 = (0..4).map(|_| rng.unit() - 0.5).sum();
        (512.0 + width * sum * sum * sum * 8.0).clamp(0.0, 1023.0) as u16
    };
    let symbols: Vec<u16> = (0..N_SYMBOLS).map(|_| code(4.0)).collect();
    let classes: Vec<u8> = (0..N_SYMBOLS.div_ceil(Huffman::GROUP)).map(|group| (group * 7 % 16) as u8).collect();
    let classed: Vec<u16> =
        (0..N_SYMBOLS).map(|i| code(0.2 * 1.5_f64.powi(i32::from(classes[i / Huffman::GROUP])))).collect();
    let mut last = 512;
    let runs: Vec<u16> = (0..N_SYMBOLS)
        .map(|_| {
            let next = code(0.5);
            if next % 8 == 1 {
                last = next;
            }
            last
        })
        .collect();

    let mut copy = vec![0; N_SYMBOLS];
    let memcpy = gigabytes_per_second(|| black_box(&mut copy).copy_from_slice(black_box(&symbols)));
    println!("| what | GB/s | of memcpy | bits per symbol |\n|---|---|---|---|");
    println!("| memcpy | {memcpy:.2} | 1 | 16 |");
    let report = |what: &str, speed: f64, n_bits: usize| {
        println!("| {what} | {speed:.2} | {:.3} | {:.3} |", speed / memcpy, n_bits as f64 / N_SYMBOLS as f64);
    };
    for (what, symbols, classes) in
        [("1 codebook of 1024", &symbols, &[][..]), ("16 codebooks of 1024", &classed, &classes)]
    {
        let huffman = Huffman::fit(symbols, ALPHABET, classes, 12);
        let (mut bytes, mut sizes) = (Vec::new(), Vec::new());
        let speed = gigabytes_per_second(|| {
            bytes.clear();
            sizes.clear();
            huffman.encode(black_box(symbols), &mut bytes, &mut sizes);
        });
        report(&format!("Huffman encode, {what}"), speed, 8 * bytes.len());
        let speed =
            gigabytes_per_second(|| huffman.decode(&bytes, &sizes, black_box(&mut copy)).expect("they are right"));
        report(&format!("Huffman decode, {what}"), speed, 8 * bytes.len());
        if copy != *symbols {
            return Err("the decoded symbols differ from the original".into());
        }
    }
    let (mut values, mut digits) = (Vec::new(), Vec::new());
    let speed = gigabytes_per_second(|| {
        values.clear();
        digits.clear();
        research::encode_runs(black_box(&runs), &mut values, &mut digits);
    });
    let n_bits = 16 * values.len() + 8 * digits.len();
    report("run lengths encode", speed, n_bits);
    let speed =
        gigabytes_per_second(|| research::decode_runs(&values, &digits, black_box(&mut copy)).expect("they are right"));
    report("run lengths decode", speed, n_bits);
    if copy == runs { Ok(()) } else { Err("the decoded runs differ from the original".into()) }
}

/// The best of several runs.
fn gigabytes_per_second(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..N_RUNS {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    (2 * N_SYMBOLS) as f64 / best / 1e9
}
