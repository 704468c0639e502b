//! [`Lists`]: what lists take that grow while a stream is read. A forged stream can make them much larger than itself, so
//! they count towards the caller's limit, and getting no memory for them is an error.

use super::{FREE_BYTES, LITTLE_MEMORY};
use crate::error::Result;
use crate::exec::{self, reserve};
use crate::io::check_limit;

/// The memory of lists, and the most that it may be.
#[derive(Debug)]
pub(super) struct Lists {
    bytes: u64,
    max_bytes: u64,
}

impl Lists {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { bytes: 0, max_bytes }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether so much memory may be taken; an error if it is above the limit, or if the system has not so much.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        check_limit(self.bytes.saturating_add(bytes).saturating_sub(FREE_BYTES), self.max_bytes)?;
        if bytes > LITTLE_MEMORY { exec::check_memory(bytes) } else { Ok(()) }
    }

    /// Counts memory that is about to be taken.
    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        self.check(bytes)?;
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Memory that was counted is free again.
    pub(super) fn give(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Appends to a list that grows by half of its length.
    pub(super) fn push<V>(&mut self, list: &mut Vec<V>, item: V) -> Result<()> {
        if list.len() == list.capacity() {
            let more = list.len() / 2 + 1;
            self.take((more * size_of::<V>()) as u64)?;
            reserve(list, more)?;
        }
        list.push(item);
        Ok(())
    }
}

/// Memory of a list.
pub(super) fn list_bytes<V>(list: &Vec<V>) -> u64 {
    (list.capacity() * size_of::<V>()) as u64
}
