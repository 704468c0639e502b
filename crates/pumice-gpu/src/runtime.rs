//! The interface to a CUDA device or the emulator. It is small, so that everything above it can be tested without a
//! device.

use std::ffi::c_void;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use pumice::Result;

use crate::staging::{self, Pinned};

/// A queue of work on a device: its work runs in order, asynchronously to the host.
///
/// It wraps a `CUstream`; the default one is CUDA's default stream of the primary context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub(crate) *mut c_void);

// SAFETY: a stream is a handle, which CUDA allows any thread to use.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// The default stream.
    pub const DEFAULT: Self = Self(std::ptr::null_mut());

    /// A stream that the caller owns.
    ///
    /// # Safety
    /// `stream` is a `CUstream` of the primary context of the device it is used with, and stays valid.
    #[must_use]
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        Self(stream)
    }
}

/// An address in device memory.
pub type DevicePtr = u64;

/// The shape of a launch: blocks, and threads in each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
}

/// A device, or the emulator. Copies and launches are enqueued in their stream.
///
/// # Safety
/// An implementation accesses only the memory of copies and launches, in the order of streams.
pub(crate) unsafe trait Runtime: Debug + Send + Sync {
    fn name(&self) -> String;
    /// Bytes of device memory: free, and total.
    fn memory(&self) -> Result<(u64, u64)>;
    /// Blocks of a kernel that run at the same time.
    fn resident_blocks(&self, kernel: &'static str, threads: u32) -> Result<u32>;
    /// Bytes of the L2 cache, which the whole device shares.
    fn cache_bytes(&self) -> Result<u64>;
    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr>;
    /// # Safety
    /// `at` came from `allocate`, is freed only once, and is not used afterwards.
    unsafe fn free(&self, at: DevicePtr);
    /// # Safety
    /// Both sides are valid for `n_bytes`, the host's until the stream is synchronised.
    unsafe fn copy_in(&self, to: DevicePtr, from: *const u8, n_bytes: usize, stream: Stream) -> Result<()>;
    /// # Safety
    /// As [`Runtime::copy_in`].
    unsafe fn copy_out(&self, to: *mut u8, from: DevicePtr, n_bytes: usize, stream: Stream) -> Result<()>;
    /// # Safety
    /// Both sides are valid for `n_bytes`.
    unsafe fn copy_within(&self, to: DevicePtr, from: DevicePtr, n_bytes: usize, stream: Stream) -> Result<()>;
    /// # Safety
    /// `to` is valid for `n_bytes`.
    unsafe fn fill(&self, to: DevicePtr, byte: u8, n_bytes: usize, stream: Stream) -> Result<()>;
    /// # Safety
    /// The arguments are those of the kernel, and their addresses are valid for its accesses.
    unsafe fn launch(
        &self,
        kernel: &'static str,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()>;
    /// Waits until all work enqueued in the stream is done.
    fn synchronize(&self, stream: Stream) -> Result<()>;
    /// Pinned host memory, for asynchronous copies; the caller returns it by `give_pinned`.
    fn take_pinned(&self) -> Result<Pinned>;
    fn give_pinned(&self, pinned: Pinned);
    /// Records the mark of pinned memory after all work now in the stream.
    fn mark(&self, mark: *mut c_void, stream: Stream) -> Result<()>;
    /// Waits until the work before a mark is done.
    fn wait(&self, mark: *mut c_void) -> Result<()>;
    /// Seconds that `work`, which enqueues in this stream, takes on the device.
    fn time(&self, stream: Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<f64>;
}

/// Device memory for values of plain data, freed when dropped. Streams that use it must be synchronised before (CUDA's
/// own `cuMemFree` waits for the device).
#[derive(Debug)]
pub(crate) struct Buffer<V> {
    runtime: Arc<dyn Runtime>,
    at: DevicePtr,
    len: usize,
    values: PhantomData<V>,
}

/// Plain data that is copied between host and device.
///
/// # Safety
/// Any bytes are a valid value, and it has no uninitialised bytes.
pub(crate) unsafe trait Plain: Copy + Debug + Default {}

// SAFETY: numbers.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}

impl<V: Plain> Buffer<V> {
    /// Memory for `len` values, not initialised.
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, len: usize) -> Result<Self> {
        let n_bytes = len.checked_mul(size_of::<V>()).ok_or_else(|| pumice::Error::device("the array is too large"))?;
        // An empty buffer has an address too.
        let at = runtime.allocate(n_bytes.max(16))?;
        Ok(Self { runtime: Arc::clone(runtime), at, len, values: PhantomData })
    }

    /// Memory that holds a copy of `values`.
    pub(crate) fn with(runtime: &Arc<dyn Runtime>, values: &[V], stream: Stream) -> Result<Self> {
        let buffer = Self::new(runtime, values.len())?;
        buffer.write(0, values, stream)?;
        Ok(buffer)
    }

    pub(crate) fn at(&self) -> DevicePtr {
        self.at
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies to the values from `first` on, and waits.
    pub(crate) fn write(&self, first: usize, values: &[V], stream: Stream) -> Result<()> {
        assert!(first + values.len() <= self.len);
        let to = self.at + (first * size_of::<V>()) as u64;
        // SAFETY: the range was just checked; the host's side outlives the wait.
        unsafe { staging::upload(&*self.runtime, to, values.as_ptr().cast(), size_of_val(values), stream) }
    }

    /// Copies from the values from `first` on, and waits.
    pub(crate) fn read(&self, first: usize, values: &mut [V], stream: Stream) -> Result<()> {
        assert!(first + values.len() <= self.len);
        let from = self.at + (first * size_of::<V>()) as u64;
        // SAFETY: as in `write`.
        unsafe { staging::download(&*self.runtime, values.as_mut_ptr().cast(), from, size_of_val(values), stream) }
    }
}

impl<V> Drop for Buffer<V> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and owned by this buffer alone.
        unsafe { self.runtime.free(self.at) }
    }
}
