//! Test support for Pumice: deterministic fields, an independent bound checker, golden files, real data.
//!
//! Nothing here depends on Pumice itself: what checks the codec must not share its code, and a circular development
//! dependency would compile the codec's types twice.

pub mod check;
pub mod data;
pub mod fields;
mod float;
pub mod golden;
pub mod process;
mod rng;
pub mod simulate;

pub use float::{DType, Float};
pub use golden::sha256_hex;
pub use rng::Rng;
