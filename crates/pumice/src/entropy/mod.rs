//! Entropy coders: codes to bytes and back. They know nothing of arrays and chunks.

pub(crate) mod binary;
pub(crate) mod histogram;
pub(crate) mod huffman;
pub(crate) mod run_length;
pub(crate) mod tokens;
