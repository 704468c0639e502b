//! The codecs: how the values of one chunk become the payload of a frame, and back.
//!
//! `fast.rs` is the chunk, `tile.rs` one tile of it, `lorenzo.rs` and `planes.rs` its two stages, `simd/` the vector
//! operations these are written in. Bytes and formulas are specified in docs/format.md, section 6.

mod choose;
pub(crate) mod fast;
mod geometry;
mod holes;
mod lorenzo;
mod planes;
pub(crate) mod simd;
mod tile;
pub(crate) mod value;

pub(crate) use tile::MAX_FILLS;
