//! Pumice files that all ranks write and read together.

mod background;
mod frames;
mod measure;
mod partial;
mod read;
mod rows;
mod write;

pub use background::{Writing, iwrite};
pub(crate) use partial::{PartialFile, Sync};
pub use read::Reader;
pub use rows::Writer;
pub use write::{write, write_with};

use mpi::traits::*;

/// Threads for each rank: its share of the cores of its node, unless the caller says how many.
pub(crate) fn threads(comm: &impl Communicator, asked: usize) -> usize {
    if asked != 0 {
        return asked;
    }
    let on_node = comm.split_shared(comm.rank()).size().max(1) as usize;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores / on_node).max(1)
}
