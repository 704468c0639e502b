//! Memory of captured values that is used again: the page faults of new memory would take longer than the copy itself.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice::{Error, ErrorKind, Result};

/// The error of a request for so much memory.
pub(crate) fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::LimitExceeded, format!("there is no memory for {bytes} more bytes: take smaller snapshots"))
}

pub(crate) fn lock<T>(values: &Mutex<T>) -> MutexGuard<'_, T> {
    values.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Free>);

#[derive(Debug, Default)]
struct Free {
    /// Vectors of some type, with the size of their memory.
    buffers: Vec<(usize, Box<dyn Any + Send>)>,
    bytes: usize,
}

impl Free {
    fn remove(&mut self, at: usize) -> Box<dyn Any + Send> {
        let (bytes, buffer) = self.buffers.swap_remove(at);
        self.bytes -= bytes;
        buffer
    }

    /// Frees buffers until they are no more than so many bytes.
    fn trim(&mut self, bytes: usize) {
        while self.bytes > bytes && !self.buffers.is_empty() {
            self.remove(self.buffers.len() - 1);
        }
    }
}

impl Buffers {
    /// An empty vector with room for so many values. If no buffer has just that, some are freed for it.
    pub(crate) fn take<T: Send + 'static>(&self, n: usize) -> Result<Vec<T>> {
        let bytes = n * size_of::<T>();
        let mut free = lock(&self.0);
        let is_it = |(size, buffer): &(usize, Box<dyn Any + Send>)| *size == bytes && buffer.is::<Vec<T>>();
        if let Some(at) = free.buffers.iter().rposition(is_it)
            && let Ok(mut values) = free.remove(at).downcast::<Vec<T>>()
        {
            values.clear();
            return Ok(*values);
        }
        let rest = free.bytes.saturating_sub(bytes);
        free.trim(rest);
        drop(free);
        let mut values = Vec::new();
        values.try_reserve_exact(n).map_err(|_| no_memory(bytes))?;
        Ok(values)
    }

    /// Keeps the memory of these values.
    pub(crate) fn give<T: Send + 'static>(&self, values: Vec<T>) {
        let bytes = values.capacity() * size_of::<T>();
        if bytes > 0 {
            let mut free = lock(&self.0);
            free.bytes += bytes;
            free.buffers.push((bytes, Box::new(values)));
        }
    }

    /// Frees what is more than so many bytes.
    pub(crate) fn trim(&self, bytes: usize) {
        lock(&self.0).trim(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_bounded() {
        let buffers = Buffers::default();
        let bytes = |buffers: &Buffers| lock(&buffers.0).bytes;
        let values: Vec<f32> = vec![1.0; 100];
        let at = values.as_ptr();
        buffers.give(values);
        buffers.give(vec![1.0_f64; 50]);
        assert_eq!(bytes(&buffers), 800);
        let again: Vec<f32> = buffers.take(100).unwrap();
        assert!(again.is_empty() && again.as_ptr() == at && again.capacity() == 100);
        assert_eq!(bytes(&buffers), 400);
        buffers.give(again);
        // Another size: as much is freed.
        let other: Vec<f32> = buffers.take(60).unwrap();
        assert!(other.capacity() >= 60 && bytes(&buffers) <= 560);
        buffers.trim(0);
        assert_eq!(bytes(&buffers), 0);
    }
}
