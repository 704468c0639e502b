//! Lists of values that travel as coded pieces: one piece is coded while others are on their way, and receivers decode
//! those that have come. A piece is coded once and decoded once by each rank that needs it, however many ranks pass it on.
//!
//! Sending is bounded: a rank has [`outbox::SLOTS`] pieces on their way at most, own ones and those it passes on, and a
//! piece is on its way until its receiver takes it. What a rank receives goes straight to its place.
//!
//! A piece that its owner could not code arrives without bytes. Nobody stops for it; the owner has the error, which the
//! ranks agree on in the end.

mod flow;
mod outbox;
mod routes;

use pumice::backend::Integers;
use pumice::{Element, Result};

pub(crate) use flow::{Flow, Piece};
pub(crate) use outbox::Outbox;
pub(crate) use routes::{around, down, exchange};

/// Values of a piece.
pub(crate) const PIECE: usize = 1 << 17;

/// How many pieces a list has.
pub(crate) fn n_pieces(n_values: usize) -> usize {
    n_values.div_ceil(PIECE)
}

/// A code for pieces.
pub(crate) trait Code<V> {
    /// Whether decoded values have the bits of those that were coded.
    const IS_EXACT: bool;

    /// Replaces bytes by the code of values.
    fn encode(&self, values: &[V], bytes: &mut Vec<u8>) -> Result<()>;

    fn decode(&self, bytes: &[u8], values: &mut [V]) -> Result<()>;

    /// The code of a piece; no bytes, and the error, if there is none.
    fn piece(&self, values: &[V], done: &mut Result<()>) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = self.encode(values, &mut bytes) {
            bytes.clear();
            note(done, Err(error));
        }
        bytes
    }

    /// Decodes a piece, unless its owner could not code it.
    fn take(&self, piece: &[u8], values: &mut [V], done: &mut Result<()>) {
        if !piece.is_empty() {
            note(done, self.decode(piece, values));
        }
    }
}

/// Keeps the first error.
fn note(done: &mut Result<()>, next: Result<()>) {
    if done.is_ok() {
        *done = next;
    }
}

impl<C: Element> Code<C> for Integers<C> {
    const IS_EXACT: bool = true;

    fn encode(&self, values: &[C], bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        Integers::encode(self, values, bytes);
        Ok(())
    }

    fn decode(&self, bytes: &[u8], values: &mut [C]) -> Result<()> {
        Integers::decode(self, bytes, values)
    }
}
