//! Entropy coders: codes to bytes and back. They know nothing of arrays and chunks.

pub(crate) mod binary;
pub(crate) mod codebook;
pub(crate) mod histogram;
pub(crate) mod huffman;
pub(crate) mod run_length;
pub(crate) mod tokens;
pub(crate) mod training;

use std::sync::Arc;

use codebook::Codebook;
use training::Training;

/// Where the codes of a chunk of `balanced` come from.
#[derive(Clone, Debug, Default)]
pub(crate) enum Books {
    /// The chunk builds and stores its own.
    #[default]
    Own,
    /// Those of the stream.
    Shared(Codebook),
    /// Its own; what it codes is counted, to train a codebook.
    Counted(Arc<Training>),
}

impl Books {
    /// Those of a stream with this codebook.
    pub(crate) fn of_stream(codebook: Option<Codebook>) -> Self {
        codebook.map_or(Books::Own, Books::Shared)
    }

    /// What the stream stores.
    pub(crate) fn codebook(&self) -> Option<&Codebook> {
        match self {
            Books::Shared(codebook) => Some(codebook),
            Books::Own | Books::Counted(_) => None,
        }
    }
}
