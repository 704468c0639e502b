//! Development tasks. `cargo xtask ci` is what a change must pass; the long proofs have commands of their own, and CI
//! runs a short version of each.

mod bench_entropy;
mod ceaz_codewords;
mod ci;
mod codebook;
mod exhaustive;
mod folder;
mod fuzz;
mod hdf5;
mod nvrtc;
mod papers;
mod ptx;
mod python;
mod shell;
mod wheel;

use std::process::ExitCode;

const USAGE: &str = "\
Development tasks of Pumice

  cargo xtask ci
      Sets up what is missing, then format, lints, PTX, tests, docs, the independent decoder, short fuzz and exhaustive
      runs

  cargo xtask bench-entropy
      Speed of the entropy coders, and of memcpy in the same run

  cargo xtask ceaz-codewords DIR [--out FILE]
      Makes the offline codewords of the preset `ceaz` from the files that DIR/INDEX.tsv lists

  cargo xtask exhaustive [--preset NAME] [--bound pwrel] [--stride N] [--threads N]
      All 2^32 f32 bit patterns (or every N-th) through a preset at several bounds (without one named: each but
      `max`); exit status 1 if any breaks its bound

  cargo xtask papers [TABLE...] [DIR]
      The tables of docs/papers.md for the fields (.f32, .f64) of a folder, ../shared/data unless one is named. Tables:
      outlier, codebook, cuszplus, ceaz

  cargo xtask ptx [--check]
      Compiles crates/pumice-gpu/kernels to crates/pumice-gpu/ptx with NVRTC; --check only compares

  cargo xtask codebook --out FILE [--rel BOUND,BOUND...] DIR
      The static codebook of `ceresz2` from the fields of a folder

  cargo xtask fuzz TARGET [--runs N | --seconds S] [--seed N]     mutation loop, stable Rust
  cargo xtask fuzz TARGET [--runs N | --seconds S] --libfuzzer    with coverage guidance: nightly Rust and cargo-fuzz
  cargo xtask fuzz TARGET --input FILE                            one input again, such as a finding
      --asan adds the address sanitizer, many times slower. Targets: header, container, codec, small_codec,
      balanced_codec, cuszp2_codec, cuszplus_codec, ceaz_codec, ceresz2_codec, layers, huffman,
      run_length, round_trip, or `all` one after the other

  cargo xtask wheel [test]
      Builds the Python wheel into target/wheels and installs it into target/python; `test` then runs its tests
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args.split_first() {
        Some((&"bench-entropy", options)) => bench_entropy::run(options),
        Some((&"ceaz-codewords", options)) => ceaz_codewords::run(options),
        Some((&"ci", [])) => ci::run_all(),
        Some((&"codebook", options)) => codebook::run(options),
        Some((&"exhaustive", options)) => exhaustive::run(options),
        Some((&"fuzz", options)) => fuzz::run(options),
        Some((&"papers", options)) => papers::run(options),
        Some((&"ptx", options)) => ptx::run(options),
        Some((&"wheel", [])) => wheel::build(),
        Some((&"wheel", ["test"])) => wheel::build().and_then(|()| wheel::test()),
        Some((&("help" | "--help" | "-h"), _)) => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("no such task\n\n{USAGE}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
