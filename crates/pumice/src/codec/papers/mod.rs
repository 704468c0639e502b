//! The pipelines of four papers, bound-checked (docs/papers.md): [`cuszp2`] and [`ceresz2`] on blocks of 32 differences,
//! [`cuszplus`] and [`ceaz`] on 1024 quantisation codes.

pub(crate) mod blocks;
pub(crate) mod ceaz;
pub(crate) mod ceresz2;
pub(crate) mod cuszp2;
pub(crate) mod cuszplus;
mod mesh;
pub(crate) mod quant_codes;
