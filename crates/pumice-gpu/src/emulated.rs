//! The kernels on the host: memory is the host's, and blocks run in an order drawn from a seed.

use std::alloc::{self, Layout};
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pumice::{Error, Result};

use crate::runtime::{DevicePtr, Runtime, Shape, Stream};

unsafe extern "C" {
    fn pumice_emulator_launch(
        kernel: *const c_char,
        grid: u32,
        block: u32,
        seed: u64,
        resident: u32,
        arguments: *mut *mut c_void,
    ) -> *const c_char;
}

/// Device memory is aligned at least like this.
const ALIGNMENT: usize = 256;

/// Blocks that run at the same time.
const RESIDENT: u32 = 5;

#[derive(Debug)]
pub(crate) struct Emulated {
    seed: AtomicU64,
    sizes: Mutex<HashMap<DevicePtr, usize>>,
}

impl Emulated {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: AtomicU64::new(seed), sizes: Mutex::default() }
    }
}

// SAFETY: everything is done at once, in the caller's memory.
unsafe impl Runtime for Emulated {
    fn name(&self) -> String {
        "emulated device".into()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((1 << 34, 1 << 34))
    }

    fn resident_blocks(&self, _kernel: &'static str, _threads: u32) -> Result<u32> {
        Ok(RESIDENT)
    }

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr> {
        let layout = Layout::from_size_align(n_bytes, ALIGNMENT).map_err(|_| Error::device("too much memory"))?;
        // SAFETY: no allocation is of 0 bytes. Bytes that nobody sets show in results.
        let at = unsafe {
            let at = alloc::alloc(layout);
            if at.is_null() {
                return Err(Error::device(format!("the emulated device cannot allocate {n_bytes} bytes")));
            }
            at.write_bytes(0xA5, n_bytes);
            at as DevicePtr
        };
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).insert(at, n_bytes);
        Ok(at)
    }

    unsafe fn free(&self, at: DevicePtr) {
        let n_bytes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner).remove(&at);
        let n_bytes = n_bytes.expect("only what was allocated is freed, and once");
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(at as *mut u8, Layout::from_size_align_unchecked(n_bytes, ALIGNMENT)) }
    }

    unsafe fn copy_in(&self, to: DevicePtr, from: *const u8, n_bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(from, to as *mut u8, n_bytes) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: *mut u8, from: DevicePtr, n_bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(from as *const u8, to, n_bytes) };
        Ok(())
    }

    unsafe fn copy_within(&self, to: DevicePtr, from: DevicePtr, n_bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, n_bytes) };
        Ok(())
    }

    unsafe fn fill(&self, to: DevicePtr, byte: u8, n_bytes: usize, _: Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { (to as *mut u8).write_bytes(byte, n_bytes) };
        Ok(())
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        shape: Shape,
        arguments: &mut [*mut c_void],
        _: Stream,
    ) -> Result<()> {
        let name = CString::new(kernel).expect("names are text");
        let seed = self.seed.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract; the message is copied before the next launch.
        unsafe {
            let to = arguments.as_mut_ptr();
            let message = pumice_emulator_launch(name.as_ptr(), shape.blocks, shape.threads, seed, RESIDENT, to);
            match message.is_null() {
                true => Ok(()),
                false => Err(Error::device(format!("{kernel}: {}", CStr::from_ptr(message).to_string_lossy()))),
            }
        }
    }

    fn synchronize(&self, _: Stream) -> Result<()> {
        Ok(())
    }

    fn time(&self, _: Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed().as_secs_f64())
    }
}
