//! Where bytes and values come from and go to: parsing ([`Bytes`], [`varint`], [`checksum`]), sources of bytes and of
//! values that several threads read at once, and files that appear whole or not at all.

mod atomic_file;
mod bytes;
pub(crate) mod checksum;
mod read_at;
mod source;
mod temporary;
pub(crate) mod varint;

pub use atomic_file::{AtomicFile, AtomicFolder};
pub(crate) use bytes::{Bytes, check_limit, read, to_usize};
pub use read_at::ReadAt;
pub use source::{FileSource, SliceSource, Source};
pub use temporary::UnfinishedFiles;
