//! Tests of the whole library through its public interface.
//!
//! They are one binary on purpose: the codec is generic, so each further binary would compile all of it once more.

mod analysis;
mod bounds;
mod cases;
mod codebook;
mod determinism;
mod edge_cases;
mod fills;
mod forge;
mod forged_lists;
mod golden;
mod hostile;
mod memory;
mod pipes;
mod property;
mod real_data;
mod rewrite;
mod salvage;
mod stable;
mod streaming;
mod targets;
