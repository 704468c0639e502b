//! Values that travel in compressed form, piece by piece, or as they are where that is quicker.

mod collect;
mod direct;
mod distribute;
mod job;
mod plain;

pub use collect::{all_gather, gather};
pub use direct::{receive, send};
pub use distribute::{all_to_all, broadcast, scatter};

/// Whether values are compressed on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// Where that is clearly quicker. Ranks that share a node's memory send values as they are; other links are measured when
    /// a communicator is used first, and the code on 16,384 of the values. Messages below 65,536 values are not compressed.
    #[default]
    Auto,
    /// Always.
    Compressed,
    /// Never.
    Plain,
}

/// What a transfer has cost and promises.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transfer {
    /// The error of each value is at most this; 0 if all arrive as they are.
    pub abs_bound: f64,
    /// Whether values were compressed.
    pub is_compressed: bool,
    /// Bytes of values that this rank sent to others, compressed or not.
    pub sent_bytes: u64,
}
