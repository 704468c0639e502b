//! A snapshot on its way, and its fields: what is encoded, and what is written.

use std::sync::Arc;

use pumice::{Error, Summary};

use super::Report;
use crate::field::Captured;
use crate::sink::Pending;

/// A task of the compute thread: the look through a field, or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Task {
    pub(super) snapshot: u64,
    pub(super) field: usize,
    pub(super) block: Option<usize>,
}

impl Task {
    /// Its place in [`FieldState::started`].
    pub(super) fn slot(self) -> usize {
        self.block.map_or(0, |block| block + 1)
    }
}

/// A field on its way to a file.
pub(super) struct FieldState {
    pub(super) name: String,
    pub(super) values: Arc<dyn Captured>,
    /// Whether the look through the values, and then each block, was started.
    pub(super) started: Vec<bool>,
    pub(super) is_open: bool,
    /// Head, blocks, tail: those that are encoded and not written yet.
    pub(super) pieces: Vec<Option<Vec<u8>>>,
    /// Sizes of encoded blocks.
    pub(super) sizes: Vec<u64>,
    pub(super) n_encoded: usize,
    /// The next piece to write, and where.
    pub(super) next: usize,
    pub(super) offset: u64,
    pub(super) summary: Option<Summary>,
}

impl FieldState {
    pub(super) fn new(name: String, values: Box<dyn Captured>) -> Self {
        let n = values.n_blocks();
        Self {
            name,
            values: values.into(),
            started: vec![false; n + 1],
            is_open: false,
            pieces: vec![None; n + 2],
            sizes: vec![0; n],
            n_encoded: 0,
            next: 0,
            offset: 0,
            summary: None,
        }
    }

    /// Size of all its values.
    pub(super) fn value_bytes(&self) -> usize {
        (0..self.sizes.len()).map(|block| self.values.block_bytes(block)).sum()
    }

    /// The size of a block, if it is encoded.
    pub(super) fn encoded(&self, block: usize) -> Option<u64> {
        Some(self.sizes[block]).filter(|size| *size > 0)
    }

    /// The block that is to be written next; the end of the file counts as one more.
    pub(super) fn next_block(&self) -> usize {
        self.next.saturating_sub(1)
    }

    pub(super) fn is_written(&self) -> bool {
        self.next == self.pieces.len()
    }

    /// Sizes of the pieces that could be written now.
    pub(super) fn ready(&self) -> impl Iterator<Item = usize> {
        self.pieces[self.next..].iter().map_while(|piece| piece.as_ref().map(Vec::len))
    }
}

/// A snapshot on its way.
pub(super) struct Snapshot {
    pub(super) fields: Vec<FieldState>,
    pub(super) pending: Option<Box<dyn Pending>>,
    /// Bytes that it holds.
    pub(super) used: usize,
    pub(super) n_running: usize,
    pub(super) is_writing: bool,
    pub(super) error: Option<Error>,
    pub(super) report: Report,
}
