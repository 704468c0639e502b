//! The codecs: how the values of one chunk become the payload of a frame, and back.
//!
//! `fast.rs` is the chunk, `tile.rs` one tile of it, `lorenzo.rs` and `planes.rs` its two stages, `simd/` the vector
//! operations these are written in; `balanced.rs` is a chunk of the preset `balanced`, `small.rs` one of `small` and
//! `max`; `cuszp2.rs`, `cuszplus.rs`, `ceaz.rs` and `ceresz2.rs` are those of the presets of these papers; `pointwise.rs`
//! and `regions.rs` are layers around any of them, for bounds that differ from value to value. Bytes and formulas are
//! specified in docs/format.md, sections 6 to 14.

mod alphabet;
pub(crate) mod balanced;
mod bands;
pub(crate) mod binary;
pub(crate) mod bins;
pub(crate) mod blocks;
pub(crate) mod ceaz;
pub(crate) mod ceresz2;
pub(crate) mod choose;
mod context;
pub(crate) mod cuszp2;
pub(crate) mod cuszplus;
mod differences;
pub(crate) mod fast;
mod fit;
pub(crate) mod geometry;
mod groups;
mod histogram;
mod holes;
pub(crate) mod huffman;
mod integers;
mod interpolate;
mod lattice;
mod logarithm;
mod lorenzo;
mod masks;
mod mesh;
mod mix;
mod neighbourhood;
pub(crate) mod padding;
mod planes;
pub(crate) mod pointwise;
mod portfolio;
pub(crate) mod quant_codes;
mod rans;
pub(crate) mod regions;
pub(crate) mod residuals;
pub(crate) mod run_length;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod small;
mod streams;
mod tile;
mod tokens;
pub(crate) mod value;
pub(crate) mod view;

pub(crate) use tile::MAX_FILLS;
