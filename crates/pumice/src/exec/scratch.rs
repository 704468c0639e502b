//! Buffers that a thread keeps from one chunk to the next: new memory costs a page fault per 4 KiB, which would be a
//! considerable part of the time of a chunk.

use std::cell::RefCell;

/// The most that a thread keeps of each type: bytes and buffers.
const MAX_KEPT_BYTES: usize = 32 << 20;
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

/// A buffer of `n` values of arbitrary content.
pub(crate) fn take<V: Scratch>(n: usize) -> Vec<V> {
    let mut buffer = V::with_kept(|kept| {
        let fits = (0..kept.len()).filter(|i| kept[*i].capacity() >= n).min_by_key(|i| kept[*i].capacity());
        fits.map(|i| kept.swap_remove(i))
    })
    .unwrap_or_default();
    if buffer.capacity() == 0 {
        return vec![V::default(); n];
    }
    buffer.resize(n, V::default());
    buffer
}

/// Returns a buffer to the pool.
pub(crate) fn give<V: Scratch>(buffer: Vec<V>) {
    let bytes = |buffer: &Vec<V>| buffer.capacity() * size_of::<V>();
    if bytes(&buffer) < MIN_KEPT_BYTES {
        return;
    }
    V::with_kept(|kept| {
        if kept.len() == MAX_KEPT {
            // Drops the smallest, which costs least to replace.
            let smallest = (0..MAX_KEPT).min_by_key(|i| bytes(&kept[*i])).expect("there are some");
            kept.swap_remove(smallest);
        }
        if kept.iter().map(bytes).sum::<usize>() + bytes(&buffer) <= MAX_KEPT_BYTES {
            kept.push(buffer);
        }
    });
}

/// Frees all kept buffers of a type, before work that needs much memory of its own.
pub(crate) fn clear<V: Scratch>() {
    V::with_kept(Vec::clear);
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
        assert_eq!((n_kept(), take::<i32>(300).len()), (0, 300));
    }
}
