//! Buffers of the program: bytes from and to the memory that a datatype lays out. `unsafe` is allowed for its pointers.
#![allow(unsafe_code, reason = "copies from and to memory of the program")]

use std::ffi::c_void;

use pumice::{Error, ErrorKind, Result};
use pumice_mpi::Value;

use crate::datatype::Layout;

/// Appends the bytes of `count` items.
///
/// # Safety
///
/// All bytes that the layout names for these items can be read.
pub(crate) unsafe fn collect(buffer: *const c_void, layout: &Layout, count: usize, out: &mut Vec<u8>) {
    let mut append = |offset: isize, len: usize| {
        let start = buffer.cast::<u8>().wrapping_offset(offset);
        // SAFETY: the caller promises that these bytes can be read; bytes have no alignment.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
    };
    if layout.is_dense() {
        return append(0, layout.size * count);
    }
    for i in 0..count as isize {
        layout.segments.iter().for_each(|segment| append(i * layout.extent + segment.offset, segment.len));
    }
}

/// Puts bytes into the memory of items, until there are no more.
///
/// # Safety
///
/// All bytes that the layout names for as many items as there are bytes can be written.
pub(crate) unsafe fn spread(mut bytes: &[u8], buffer: *mut c_void, layout: &Layout) {
    let mut place = |offset: isize, len: usize| {
        let (part, rest) = bytes.split_at(len.min(bytes.len()));
        bytes = rest;
        let start = buffer.cast::<u8>().wrapping_offset(offset);
        // SAFETY: the caller promises that these bytes can be written, and they are not part of ours.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start, part.len()) };
        !bytes.is_empty()
    };
    if layout.is_dense() {
        place(0, usize::MAX);
        return;
    }
    let mut offsets = (0..).flat_map(|i| layout.segments.iter().map(move |s| (i * layout.extent + s.offset, s.len)));
    while offsets.next().is_some_and(|(offset, len)| place(offset, len)) {}
}

/// Zeros, or an error where there is no memory for them.
pub(crate) fn zeros<T: Copy + Default>(n: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    let message = || format!("there is no memory for {n} values; lower memory_mib, or use more ranks");
    out.try_reserve_exact(n).map_err(|_| Error::new(ErrorKind::LimitExceeded, message()))?;
    out.resize(n, T::default());
    Ok(out)
}

/// The bytes of values, as this machine has them.
pub(crate) fn bytes_of<T: Value>(values: &[T]) -> &[u8] {
    // SAFETY: `Value` is `f32` or `f64`, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of values, to be written.
pub(crate) fn bytes_of_mut<T: Value>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; all bits are values.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Reverses the bytes of each value.
pub(crate) fn swap(bytes: &mut [u8], value_bytes: usize) {
    bytes.chunks_exact_mut(value_bytes).for_each(<[u8]>::reverse);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{Kind, Segment};

    #[test]
    fn bytes_go_where_the_layout_says() {
        let segments = vec![Segment { offset: 2, len: 1 }, Segment { offset: 0, len: 2 }];
        let gaps = Layout { kind: Kind::Bytes, size: 3, extent: 4, segments };
        let dense = Layout { kind: Kind::Bytes, size: 2, extent: 2, segments: vec![Segment { offset: 0, len: 2 }] };
        let memory: Vec<u8> = (0..12).collect();
        for (layout, expected) in [(&gaps, vec![2, 0, 1, 6, 4, 5]), (&dense, vec![0, 1, 2, 3])] {
            let mut bytes = Vec::new();
            // SAFETY: three items of four bytes.
            unsafe { collect(memory.as_ptr().cast(), layout, 2, &mut bytes) };
            assert_eq!(bytes, expected);
            let mut back = vec![99_u8; 12];
            // SAFETY: as above.
            unsafe { spread(&bytes, back.as_mut_ptr().cast(), layout) };
            let mut again = Vec::new();
            // SAFETY: as above.
            unsafe { collect(back.as_ptr().cast(), layout, 2, &mut again) };
            assert_eq!(again, expected);
            assert_eq!(back.iter().filter(|byte| **byte == 99).count(), 12 - expected.len());
        }
        // Fewer bytes than an item has, as at the end of a file.
        let mut back = vec![99_u8; 12];
        // SAFETY: as above.
        unsafe { spread(&[1, 2, 3, 4], back.as_mut_ptr().cast(), &gaps) };
        assert_eq!(back, [2, 3, 1, 99, 99, 99, 4, 99, 99, 99, 99, 99]);
    }
}
