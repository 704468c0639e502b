//! Buffers that a thread keeps from one chunk to the next: new memory costs a page fault per 4 KiB, which would be a
//! considerable part of the time of a chunk.

use std::cell::{Cell, RefCell};

use super::filled;
use crate::error::Result;

/// The most that a thread keeps: bytes of all types, and buffers of each.
pub(crate) const MAX_KEPT_BYTES: usize = 40 << 20;
const MAX_KEPT: usize = 24;
/// Smaller buffers are not worth a search.
const MIN_KEPT_BYTES: usize = 1 << 10;

/// A type whose buffers are kept.
pub trait Scratch: Copy + Default + 'static {
    fn with_kept<R>(f: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> R;
}

macro_rules! impl_scratch {
    ($($T:ty)*) => {
        $(impl Scratch for $T {
            fn with_kept<R>(f: impl FnOnce(&mut Vec<Vec<Self>>) -> R) -> R {
                thread_local! {
                    static KEPT: RefCell<Vec<Vec<$T>>> = const { RefCell::new(Vec::new()) };
                }
                KEPT.with_borrow_mut(f)
            }
        })*
    };
}

impl_scratch!(f32 f64 i32 u8 u16);

thread_local! {
    /// Bytes of all buffers that the thread keeps.
    static KEPT_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn bytes_of<V>(buffer: &Vec<V>) -> usize {
    buffer.capacity() * size_of::<V>()
}

/// A buffer of `n` values of arbitrary content. Aborts if there is no memory; decoders use [`try_take`].
pub(crate) fn take<V: Scratch>(n: usize) -> Vec<V> {
    kept(n).unwrap_or_else(|| vec![V::default(); n])
}

/// As [`take`], but if there is no memory, this is an error.
pub(crate) fn try_take<V: Scratch>(n: usize) -> Result<Vec<V>> {
    kept(n).map_or_else(|| filled(V::default(), n), Ok)
}

/// The smallest kept buffer that is large enough.
fn kept<V: Scratch>(n: usize) -> Option<Vec<V>> {
    let mut buffer = V::with_kept(|kept| {
        let fits = (0..kept.len()).filter(|i| kept[*i].capacity() >= n);
        fits.min_by_key(|i| kept[*i].capacity()).map(|i| kept.swap_remove(i))
    })?;
    KEPT_BYTES.set(KEPT_BYTES.get() - bytes_of(&buffer));
    buffer.resize(n, V::default());
    Some(buffer)
}

/// Returns a buffer to the pool.
pub(crate) fn give<V: Scratch>(buffer: Vec<V>) {
    if bytes_of(&buffer) < MIN_KEPT_BYTES {
        return;
    }
    V::with_kept(|kept| {
        let mut n_bytes = KEPT_BYTES.get();
        if kept.len() == MAX_KEPT {
            // Drops the smallest, which costs least to replace.
            let smallest = (0..MAX_KEPT).min_by_key(|i| kept[*i].capacity()).expect("there are some");
            n_bytes -= bytes_of(&kept.swap_remove(smallest));
        }
        if n_bytes + bytes_of(&buffer) <= MAX_KEPT_BYTES {
            n_bytes += bytes_of(&buffer);
            kept.push(buffer);
        }
        KEPT_BYTES.set(n_bytes);
    });
}

/// Frees all kept buffers of a type, before work that needs much memory of its own.
pub(crate) fn clear<V: Scratch>() {
    V::with_kept(|kept| {
        KEPT_BYTES.set(KEPT_BYTES.get() - kept.iter().map(bytes_of).sum::<usize>());
        kept.clear();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_kept() -> usize {
        i32::with_kept(|kept| kept.len())
    }

    #[test]
    fn what_is_kept_has_limits() {
        clear::<i32>();
        give(Vec::<i32>::new());
        give(vec![0_i32; 10]);
        assert_eq!(n_kept(), 0);
        (0..1000).for_each(|i| give(vec![0_i32; 1000 + i]));
        assert_eq!(n_kept(), MAX_KEPT);
        assert!(take::<i32>(1900).capacity() >= 1900);
        assert_eq!(n_kept(), MAX_KEPT - 1, "a kept one was taken");
        give(vec![0_i32; MAX_KEPT_BYTES]);
        assert!(n_kept() < MAX_KEPT, "too large to keep");
        clear::<i32>();
        // The limit is for all types together.
        give(vec![0_u8; MAX_KEPT_BYTES - 5000]);
        give(vec![0_i32; 1000]);
        give(vec![0_i32; 1000]);
        assert_eq!((n_kept(), KEPT_BYTES.get()), (1, MAX_KEPT_BYTES - 1000));
        clear::<u8>();
        clear::<i32>();
        assert_eq!(KEPT_BYTES.get(), 0);
        assert!(try_take::<f64>(usize::MAX / 32).is_err());
        assert_eq!((n_kept(), take::<i32>(300).len()), (0, 300));
    }
}
