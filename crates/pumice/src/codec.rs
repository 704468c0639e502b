//! The codecs: how the values of one chunk become the payload of a frame, and back.
//!
//! `fast.rs` is the chunk, `tile.rs` one tile of it, `lorenzo.rs` and `planes.rs` its two stages, `simd/` the vector
//! operations these are written in; `small.rs` is a chunk of the presets `small` and `max`. Bytes and formulas are
//! specified in docs/format.md, sections 6 and 7.

mod alphabet;
pub(crate) mod balanced;
mod bands;
mod binary;
mod choose;
mod context;
mod differences;
pub(crate) mod fast;
mod fit;
mod geometry;
mod groups;
mod histogram;
mod holes;
#[allow(dead_code)]
mod huffman;
mod integers;
mod interpolate;
mod lattice;
mod lorenzo;
mod masks;
mod mix;
mod neighbourhood;
mod planes;
mod portfolio;
mod rans;
#[allow(dead_code)]
mod run_length;
pub(crate) mod scratch;
pub(crate) mod simd;
pub(crate) mod small;
mod streams;
mod tile;
mod tokens;
pub(crate) mod value;
mod view;

pub(crate) use tile::MAX_FILLS;
