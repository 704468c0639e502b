//! Entropy coders: codes to bytes and back.

pub(crate) mod binary;
pub(crate) mod histogram;
pub(crate) mod huffman;
pub(crate) mod run_length;
pub(crate) mod tokens;
