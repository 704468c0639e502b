//! Development tasks. `cargo xtask ci` is what a change must pass; the long proofs have commands of their own, and CI
//! runs a short version of each.

mod bench_entropy;
mod capi;
mod ceaz_codewords;
mod ci;
mod codebook;
mod debian;
mod exhaustive;
mod folder;
mod fuzz;
mod hdf5;
mod header;
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
      Sets up what is missing, then format, lints, PTX, tests, docs, the independent decoder, the C library, short fuzz
      and exhaustive runs

  cargo xtask bench-entropy
      Speed of the entropy coders, and of memcpy in the same run

  cargo xtask ceaz-codewords DIR [--out FILE]
      Makes the offline codewords of the preset `ceaz` from the files that DIR/INDEX.tsv lists

  cargo xtask exhaustive [--preset NAME] [--bound pwrel] [--stride N] [--threads N]
      All 2^32 f32 bit patterns (or every N-th) through a preset at several bounds (without one named: each but
      `max`); exit status 1 if any breaks its bound

  cargo xtask header [--check]
      Writes crates/pumice-capi/include/pumice.h from the Rust source; --check only compares

  cargo xtask install-c --prefix DIR
      Builds the C library and puts it under DIR with its header, Fortran module, pkg-config and CMake files

  cargo xtask test-c
      What CI does for C, C++ and Fortran: header, examples and misuse under valgrind, docs/tutorials/c.md

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
      Builds the Python wheel into target/wheels and installs it into target/python; `test` then runs its tests,
      those with PyTorch in target/python-torch
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
        Some((&"header", options)) => header::run(options),
        Some((&"install-c", options)) => capi::run_task(options),
        Some((&"test-c", [])) => capi::programs().and_then(|()| capi::tutorial()),
        Some((&"papers", options)) => papers::run(options),
        Some((&"ptx", options)) => ptx::run(options),
        Some((&"wheel", [])) => wheel::build(),
        Some((&"wheel", ["test"])) => wheel::build().and_then(|()| wheel::test()).and_then(|()| wheel::test_torch()),
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
