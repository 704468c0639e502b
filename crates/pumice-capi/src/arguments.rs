//! Turns the arguments of C into values that Rust can trust. Every possible check is made here, once.
//!
//! What cannot be checked is the caller's part of the contract, stated in each `# Safety`: a pointer that is neither NULL
//! nor misaligned points to as much memory as the call says, and handles are alive.

use std::ffi::{CStr, OsStr, c_char};
use std::ops::Range;
use std::path::Path;

use pumice::{DType, Result};

use crate::config::Dtype;
use crate::status::{guard, invalid};

/// The element type of this number.
pub(crate) fn dtype(number: i32) -> Result<DType> {
    match number {
        n if n == Dtype::F32 as i32 => Ok(DType::F32),
        n if n == Dtype::F64 as i32 => Ok(DType::F64),
        n => Err(invalid(format!("unknown element type {n}: use PUMICE_DTYPE_F32 or PUMICE_DTYPE_F64"))),
    }
}

/// The number of an element type.
pub(crate) fn dtype_number(dtype: DType) -> Result<i32> {
    match dtype {
        DType::F32 => Ok(Dtype::F32 as i32),
        DType::F64 => Ok(Dtype::F64 as i32),
        other => Err(pumice::Error::unsupported(format!("values of type {other} have no number yet"))),
    }
}

/// A handle, or another single object to read.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` that nobody writes to.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    check_aligned(pointer, what)?;
    // SAFETY: not NULL, aligned, and alive as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(what))
}

/// A handle, or another single object to write, that already holds a `T`.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` that nobody else uses.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T> {
    check_aligned(pointer, what)?;
    // SAFETY: not NULL, aligned, alive and not shared as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| is_null(what))
}

/// A pointer to which a result is written; its target may be uninitialised.
pub(crate) struct OutPointer<T>(*mut T);

impl<T> OutPointer<T> {
    /// Refuses pointers that cannot be written to, before any work is done.
    ///
    /// # Safety
    /// `pointer` is NULL or can be written to for as long as this lives.
    pub(crate) unsafe fn new(pointer: *mut T, what: &str) -> Result<Self> {
        check_aligned(pointer, what)?;
        if pointer.is_null() { Err(is_null(what)) } else { Ok(Self(pointer)) }
    }

    /// As `new`, for a result that the caller may not want.
    ///
    /// # Safety
    /// As for `new`.
    pub(crate) unsafe fn optional(pointer: *mut T, what: &str) -> Result<Option<Self>> {
        // SAFETY: as the caller promises.
        if pointer.is_null() { Ok(None) } else { unsafe { Self::new(pointer, what) }.map(Some) }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: `new` has checked the pointer, and its caller has promised the rest.
        unsafe { self.0.write(value) }
    }
}

/// An array to read; may be NULL if it has no elements.
///
/// # Safety
/// `pointer` is NULL or points to `n` live `T` that nobody writes to.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, n: usize, what: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    check_array(pointer, n, what)?;
    // SAFETY: not NULL, aligned, of a possible size, and alive as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pointer, n) })
}

/// An array to write; may be NULL if it has no elements.
///
/// # Safety
/// `pointer` is NULL or points to `n` elements that nobody else uses. `T` is a number, of which any bits are a value, so
/// that they need not have been written before.
pub(crate) unsafe fn slice_mut<'a, T>(pointer: *mut T, n: usize, what: &str) -> Result<&'a mut [T]> {
    if n == 0 {
        return Ok(&mut []);
    }
    check_array(pointer, n, what)?;
    // SAFETY: as in `slice`; memory from C has some bits, and `T` takes any.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, n) })
}

/// Text; in UTF-8.
///
/// # Safety
/// `pointer` is NULL or points to live text that ends with a NUL.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(is_null(what));
    }
    // SAFETY: not NULL, and ends as the caller promises.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| invalid(format!("{what} is not UTF-8")))
}

/// The name of a file; on Unix in any encoding.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path> {
    if pointer.is_null() {
        return Err(is_null("path"));
    }
    #[cfg(unix)]
    {
        // SAFETY: not NULL, and ends as the caller promises.
        let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
        Ok(Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes)))
    }
    #[cfg(not(unix))]
    // SAFETY: as the caller promises.
    Ok(Path::new(OsStr::new(unsafe { text(pointer, "path") }?)))
}

/// A box of an array, as one range per axis.
///
/// # Safety
/// As for [`slice`], for both arrays.
pub(crate) unsafe fn ranges(rank: usize, start: *const usize, count: *const usize) -> Result<Vec<Range<usize>>> {
    // SAFETY: as the caller promises.
    let (start, count) = unsafe { (extents(rank, start, "start")?, extents(rank, count, "count")?) };
    let range = |(&start, &count): (&usize, &usize)| {
        let end = start.checked_add(count);
        end.map(|end| start..end).ok_or_else(|| invalid(format!("{count} positions from {start} on are too many")))
    };
    start.iter().zip(count).map(range).collect()
}

/// One number per axis.
///
/// # Safety
/// As for [`slice`].
pub(crate) unsafe fn extents<'a>(rank: usize, pointer: *const usize, what: &str) -> Result<&'a [usize]> {
    // A larger rank is wrong, most likely because it was never set.
    if rank > MAX_RANK {
        return Err(invalid(format!("arrays have up to {MAX_RANK} axes, not {rank}")));
    }
    // SAFETY: as the caller promises.
    unsafe { slice(pointer, rank, what) }
}

/// The largest rank of an array (docs/format.md).
const MAX_RANK: usize = 8;

fn check_array<T>(pointer: *const T, n: usize, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(is_null(what));
    }
    if n.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(invalid(format!("{what} cannot have {n} elements: that is more than memory can hold")));
    }
    check_aligned(pointer, what)
}

fn check_aligned<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_aligned() {
        return Ok(());
    }
    Err(invalid(format!("{what} must start at a multiple of {} bytes", align_of::<T>())))
}

fn is_null(what: &str) -> pumice::Error {
    invalid(format!("{what} is NULL"))
}

/// Frees the object of a handle; NULL is allowed.
///
/// # Safety
/// `handle` is NULL, or from [`Box::into_raw`] and not freed yet.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    guard(|| {
        if !handle.is_null() {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}
