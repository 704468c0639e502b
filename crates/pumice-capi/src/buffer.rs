//! Memory that the library allocates for results: handed out without a copy, freed by the library.

use std::any::Any;
use std::ffi::c_void;
use std::ptr;

use crate::arguments::{free, shared};
use crate::status::guard_or;

/// Memory that the library allocated for a result.
pub struct Buffer {
    data: *mut c_void,
    n_bytes: usize,
    /// The vector that `data` points into; its type matters only to its allocation.
    _memory: Box<dyn Any + Send>,
}

impl Buffer {
    /// A handle for this memory.
    pub(crate) fn new<T: Send + 'static>(mut memory: Vec<T>) -> *mut Self {
        let (data, n_bytes) = (memory.as_mut_ptr().cast(), size_of_val(memory.as_slice()));
        Box::into_raw(Box::new(Self { data, n_bytes, _memory: Box::new(memory) }))
    }
}

/// Where the memory starts: the bytes of a stream, or values of the type that was asked for. It may be written to. NULL
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_buffer_data(buffer: *const Buffer) -> *mut c_void {
    // SAFETY: as the caller promises.
    guard_or(ptr::null_mut(), || Ok(unsafe { shared(buffer, "buffer") }?.data))
}

/// Size of the memory in bytes. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_buffer_size(buffer: *const Buffer) -> usize {
    // SAFETY: as the caller promises.
    guard_or(0, || Ok(unsafe { shared(buffer, "buffer") }?.n_bytes))
}

/// Frees a buffer and its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_buffer_free(buffer: *mut Buffer) {
    // SAFETY: as the caller promises.
    unsafe { free(buffer) }
}
