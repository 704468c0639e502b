//! Buffers that a thread keeps from one chunk to the next: fresh memory costs a page fault for every 4 KiB, which is a
//! fair share of the time of a chunk.

use std::cell::RefCell;

/// What a thread keeps, at most, in bytes for each type.
const MAX_KEPT_BYTES: usize = 32 << 20;

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

impl_scratch!(f32 f64 i32 u16);

/// A buffer of `n` values, whatever they are.
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

/// Gives a buffer back.
pub(crate) fn give<V: Scratch>(buffer: Vec<V>) {
    V::with_kept(|kept| {
        let kept_bytes: usize = kept.iter().map(|buffer| buffer.capacity() * size_of::<V>()).sum();
        if kept_bytes + buffer.capacity() * size_of::<V>() <= MAX_KEPT_BYTES {
            kept.push(buffer);
        }
    });
}

/// Gives all kept buffers of a type back to the system: for work that takes much memory of its own, and its time.
pub(crate) fn clear<V: Scratch>() {
    V::with_kept(Vec::clear);
}
