//! Memory for results, in large pages where the system has them.
//!
//! The first touch of new memory costs a fault for each page, and the system clears the page: with pages of 4 KiB that
//! takes longer than decoding does. So this module asks the system for large pages.
#![allow(unsafe_code)]

use super::reserve;
use crate::error::Result;

/// Below this, large pages would waste memory and save nothing.
#[cfg(all(target_os = "linux", not(miri)))]
const WORTHWHILE: usize = 4 << 20;

/// A multiple of every common page size.
#[cfg(all(target_os = "linux", not(miri)))]
const ALIGNMENT: usize = 64 << 10;

/// Zeroed memory for results, without a pass over it, and in large pages where the system has them.
pub fn zeroed<T: Copy + Default>(n: usize) -> Result<Vec<T>> {
    // `vec!` gets zeroed pages from the system, but aborts if there is no memory; so this reserves it first.
    reserve(&mut Vec::<T>::new(), n)?;
    let mut values = vec![T::default(); n];
    prefer_large_pages(&mut values);
    Ok(values)
}

/// Asks for large pages for memory that is not yet in use, if it is large enough.
pub fn prefer_large_pages<T>(values: &mut [T]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size_of_val(values) >= WORTHWHILE {
        let range = values.as_mut_ptr_range();
        let (start, end) = (range.start.addr().next_multiple_of(ALIGNMENT), range.end.addr() / ALIGNMENT * ALIGNMENT);
        let start = range.start.with_addr(start);
        // SAFETY: whole pages within the slice, which are borrowed; the advice changes none of their values. Where it is
        // not taken, all works as before.
        unsafe { libc::madvise(start.cast(), end - start.addr(), libc::MADV_HUGEPAGE) };
    }
    // Miri has no such call.
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = values;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_is_zeroed() {
        let sizes = [0, 1, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 12_345, 9 << 20];
        // Miri would take hours.
        for n in sizes.into_iter().take(if cfg!(miri) { 3 } else { 7 }) {
            let values = zeroed::<f32>(n).unwrap();
            assert!(values.len() == n && values.iter().all(|x| x.to_bits() == 0), "{n} values");
        }
    }

    #[test]
    fn what_the_system_cannot_give_is_an_error() {
        assert!(zeroed::<f64>(usize::MAX / 16).is_err());
        assert!(zeroed::<f64>(usize::MAX).is_err());
    }
}
