//! Stages that several codecs have in common.

pub(crate) mod dims;
pub(crate) mod integers;
pub(crate) mod masks;
pub(crate) mod padding;
pub(crate) mod view;
