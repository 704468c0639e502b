//! Fuzz targets: plain functions that take any bytes and panic on a finding. Two engines run the very same functions:
//! [`campaign`], a deterministic mutation loop for stable Rust that CI runs for a few seconds, and libFuzzer with
//! coverage guidance (`fuzz/libfuzzer`) for long campaigns. `cargo xtask fuzz` starts either.
//!
//! Checksums would reject nearly all mutated streams, so the targets build or repair them ([`stream`], written from
//! docs/format.md), to test the code behind them.

pub mod campaign;
pub mod seeds;
pub mod stream;
pub mod targets;

/// A target by name.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line and of the libFuzzer binary.
    pub name: &'static str,
    /// What it tests.
    pub about: &'static str,
    /// The target itself: panics on a finding.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 15] = [
    Target {
        name: "header",
        about: "header fields under a right checksum",
        run: targets::header,
        seeds: seeds::header,
    },
    Target {
        name: "container",
        about: "whole streams with repaired checksums: reader, pipe and salvage",
        run: targets::container,
        seeds: seeds::container,
    },
    Target {
        name: "codec",
        about: "payloads of the `fast` codec in a valid stream",
        run: targets::codec,
        seeds: seeds::codec,
    },
    Target {
        name: "small_codec",
        about: "payloads of the codec of `small` and `max` in a valid stream",
        run: targets::small_codec,
        seeds: seeds::small_codec,
    },
    Target {
        name: "balanced_codec",
        about: "payloads of the codec of `balanced` in a valid stream",
        run: targets::balanced_codec,
        seeds: seeds::balanced_codec,
    },
    Target {
        name: "shared_codec",
        about: "payloads of chunks that are coded with a codebook, in a valid stream",
        run: targets::shared_codec,
        seeds: seeds::shared_codec,
    },
    Target {
        name: "codebook",
        about: "codebooks under a right checksum: refused, or they code every array",
        run: targets::codebook,
        seeds: seeds::codebook,
    },
    Target {
        name: "cuszplus_codec",
        about: "payloads of the codec of `cuszplus` in a valid stream",
        run: targets::cuszplus_codec,
        seeds: seeds::cuszplus_codec,
    },
    Target {
        name: "ceaz_codec",
        about: "payloads of the codec of `ceaz` in a valid stream",
        run: targets::ceaz_codec,
        seeds: seeds::ceaz_codec,
    },
    Target {
        name: "huffman",
        about: "Huffman codes: symbols come back, hostile codebooks and streams do no harm",
        run: targets::huffman,
        seeds: seeds::huffman,
    },
    Target {
        name: "run_length",
        about: "run lengths: symbols come back, hostile runs do no harm",
        run: targets::run_length,
        seeds: seeds::run_length,
    },
    Target {
        name: "cuszp2_codec",
        about: "payloads of the codec of `cuszp2-plain` and `cuszp2-outlier` in a valid stream",
        run: targets::cuszp2_codec,
        seeds: seeds::cuszp2_codec,
    },
    Target {
        name: "ceresz2_codec",
        about: "payloads of the codec of `ceresz2` in a valid stream",
        run: targets::ceresz2_codec,
        seeds: seeds::ceresz2_codec,
    },
    Target {
        name: "layers",
        about: "payloads of the layers for bounds of single values and regions in a valid stream",
        run: targets::layers,
        seeds: seeds::layers,
    },
    Target {
        name: "round_trip",
        about: "any values, shapes and bounds: the bound is kept",
        run: targets::round_trip,
        seeds: seeds::round_trip,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|t| t.name == name)
}
