//! The emulator as a runtime: kernels run on the host, in host memory, with blocks in a random order drawn from a seed.

use std::alloc::{self, Layout};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pumice::{Error, Result};

use crate::runtime::{DevicePtr, Runtime, Shape, Stream};
use crate::staging::{PIECE, Pinned};

unsafe extern "C" {
    fn pumice_emulator_launch(
        kernel: *const c_char,
        grid: u32,
        block: u32,
        seed: u64,
        resident: u32,
        arguments: *mut *mut c_void,
        buffers: *const Allocated,
        n_buffers: usize,
    ) -> *const c_char;
}

/// Start and end of a buffer of device memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Allocated {
    start: DevicePtr,
    end: DevicePtr,
}

/// The least alignment of device memory.
const ALIGNMENT: usize = 256;
/// Bytes on either side of a buffer that kernels must not access; as in `emulator.h`.
const GUARD: usize = 256;

/// Layout of a buffer and its guards.
fn layout(n_bytes: usize) -> Result<Layout> {
    let guarded = n_bytes.checked_add(2 * GUARD).and_then(|n| Layout::from_size_align(n, ALIGNMENT).ok());
    guarded.ok_or_else(|| Error::device("the allocation is too large"))
}

/// Blocks that run at the same time.
const RESIDENT: u32 = 5;
/// Small, so that prefetches never cover everything.
const CACHE_BYTES: u64 = 1 << 16;

#[derive(Debug)]
pub(crate) struct Emulated {
    seed: AtomicU64,
    /// Sizes of buffers, by their starts.
    sizes: Mutex<BTreeMap<DevicePtr, usize>>,
}

impl Emulated {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: AtomicU64::new(seed), sizes: Mutex::default() }
    }
}

// SAFETY: copies and launches are synchronous, and access only the memory of their arguments.
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

    fn cache_bytes(&self) -> Result<u64> {
        Ok(CACHE_BYTES)
    }

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr> {
        let layout = layout(n_bytes)?;
        // SAFETY: no allocation has 0 bytes. The fill pattern makes reads of uninitialised memory visible in results.
        let at = unsafe {
            let at = alloc::alloc(layout);
            if at.is_null() {
                return Err(Error::device(format!("the emulated device cannot allocate {n_bytes} bytes")));
            }
            at.write_bytes(0xA5, layout.size());
            at.add(GUARD) as DevicePtr
        };
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).insert(at, n_bytes);
        Ok(at)
    }

    unsafe fn free(&self, at: DevicePtr) {
        let n_bytes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner).remove(&at);
        let n_bytes = n_bytes.expect("an allocation is freed once");
        let layout = layout(n_bytes).expect("it was allocated");
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc((at as *mut u8).sub(GUARD), layout) }
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
        let allocated =
            |(start, n_bytes): (&DevicePtr, &usize)| Allocated { start: *start, end: *start + *n_bytes as u64 };
        let buffers: Vec<Allocated> =
            self.sizes.lock().unwrap_or_else(PoisonError::into_inner).iter().map(allocated).collect();
        // SAFETY: the caller's contract; the message is copied before the next launch.
        unsafe {
            let to = arguments.as_mut_ptr();
            let (blocks, threads, n_buffers) = (shape.blocks, shape.threads, buffers.len());
            let buffers = buffers.as_ptr();
            let message =
                pumice_emulator_launch(name.as_ptr(), blocks, threads, seed, RESIDENT, to, buffers, n_buffers);
            match message.is_null() {
                true => Ok(()),
                false => Err(Error::device(format!("{kernel}: {}", CStr::from_ptr(message).to_string_lossy()))),
            }
        }
    }

    fn take_pinned(&self) -> Result<Pinned> {
        let piece = || self.allocate(PIECE).map(|at| at as *mut u8);
        Ok(Pinned { pieces: [piece()?, piece()?], marks: [std::ptr::null_mut(); 2] })
    }

    fn give_pinned(&self, pinned: Pinned) {
        // SAFETY: allocated by `take_pinned`.
        pinned.pieces.iter().for_each(|piece| unsafe { self.free(*piece as DevicePtr) });
    }

    fn mark(&self, _: *mut c_void, _: Stream) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _: *mut c_void) -> Result<()> {
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pumice_testkit::Rng;

    use super::*;
    use crate::runtime::Buffer;

    const STREAM: Stream = Stream::DEFAULT;

    fn emulated(seed: u64) -> Arc<dyn Runtime> {
        Arc::new(Emulated::new(seed))
    }

    fn launch(
        runtime: &Arc<dyn Runtime>,
        kernel: &'static str,
        shape: (u32, u32),
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let (blocks, threads) = shape;
        // SAFETY: the callers give the arguments of their kernels.
        unsafe { runtime.launch(kernel, Shape { blocks, threads }, arguments, STREAM) }
    }

    fn numbers(n: usize, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        (0..n).map(|_| rng.bits() as u32 >> 8).collect()
    }

    #[test]
    fn reduces_with_shuffles_and_barriers() {
        for seed in 0..10 {
            let runtime = emulated(seed);
            let values = numbers(1 + 517 * seed as usize, seed);
            let from = Buffer::with(&runtime, &values, STREAM).unwrap();
            let total = Buffer::with(&runtime, &[0_u64], STREAM).unwrap();
            let (mut at, mut n, mut to) = (from.at(), values.len() as u32, total.at());
            let mut arguments = [(&raw mut at).cast(), (&raw mut n).cast(), (&raw mut to).cast()];
            launch(&runtime, "self_test_reduce", (3, 32 * (1 + seed as u32)), &mut arguments).unwrap();
            let mut sum = [0];
            total.read(0, &mut sum, STREAM).unwrap();
            assert_eq!(sum[0], values.iter().map(|v| u64::from(*v)).sum::<u64>());
        }
    }

    #[test]
    fn look_back_works_in_any_order_of_blocks() {
        for seed in 0..10 {
            let runtime = emulated(seed);
            let values = numbers(128 * 20 + 7, seed);
            let blocks = values.len().div_ceil(128);
            let from = Buffer::with(&runtime, &values, STREAM).unwrap();
            let sums = Buffer::<u64>::new(&runtime, values.len()).unwrap();
            let published = Buffer::with(&runtime, &vec![0_u64; blocks], STREAM).unwrap();
            let ticket = Buffer::with(&runtime, &[0_u32], STREAM).unwrap();
            let (mut at, mut to, mut n) = (from.at(), sums.at(), values.len() as u32);
            let (mut words, mut tickets) = (published.at(), ticket.at());
            let mut arguments: [*mut c_void; 5] = [
                (&raw mut at).cast(),
                (&raw mut to).cast(),
                (&raw mut n).cast(),
                (&raw mut words).cast(),
                (&raw mut tickets).cast(),
            ];
            launch(&runtime, "self_test_scan", (blocks as u32, 128), &mut arguments).unwrap();
            let mut found = vec![0; values.len()];
            sums.read(0, &mut found, STREAM).unwrap();
            let mut sum = 0;
            assert!(values.iter().zip(&found).all(|(value, found)| {
                sum += u64::from(*value);
                sum == *found
            }));
        }
    }

    #[test]
    fn transposes_through_shared_memory() {
        let runtime = emulated(3);
        let (mut shape, values) = ([45_u32, 70], (0..45 * 70).map(f64::from).collect::<Vec<f64>>());
        let from = Buffer::with(&runtime, &values, STREAM).unwrap();
        let transposed = Buffer::<f64>::new(&runtime, values.len()).unwrap();
        let (mut at, mut to) = (from.at(), transposed.at());
        let mut arguments = [(&raw mut shape).cast(), (&raw mut at).cast(), (&raw mut to).cast()];
        launch(&runtime, "self_test_transpose", (2 * 3, 256), &mut arguments).unwrap();
        let mut found = vec![0.0; values.len()];
        transposed.read(0, &mut found, STREAM).unwrap();
        assert!((0..45).all(|row| (0..70).all(|column| found[column * 45 + row] == values[row * 70 + column])));
    }

    #[test]
    fn halves_of_a_warp_can_diverge() {
        let runtime = emulated(4);
        let values = numbers(128, 9);
        let from = Buffer::with(&runtime, &values, STREAM).unwrap();
        let (odd, sums) = (Buffer::<u32>::new(&runtime, 128).unwrap(), Buffer::<u32>::new(&runtime, 128).unwrap());
        let (mut at, mut to_odd, mut to_sums) = (from.at(), odd.at(), sums.at());
        let mut arguments = [(&raw mut at).cast(), (&raw mut to_odd).cast(), (&raw mut to_sums).cast()];
        launch(&runtime, "self_test_ballot", (2, 64), &mut arguments).unwrap();
        let (mut found_odd, mut found_sums) = ([0; 128], [0; 128]);
        odd.read(0, &mut found_odd, STREAM).unwrap();
        sums.read(0, &mut found_sums, STREAM).unwrap();
        for i in 0..128 {
            let warp = &values[i / 32 * 32..][..32];
            let bits = warp.iter().enumerate().fold(0_u32, |bits, (lane, v)| bits | (v & 1) << lane);
            let sum = warp.iter().skip(i % 2).step_by(2).fold(0_u32, |sum, v| sum.wrapping_add(*v));
            assert_eq!((found_odd[i], found_sums[i]), (bits, sum));
        }
    }

    #[test]
    fn misuse_is_an_error() {
        for mut kind in 0..16_u32 {
            let runtime = emulated(u64::from(kind));
            let zero = Buffer::with(&runtime, &[0_u64], STREAM).unwrap();
            let mut at = zero.at();
            let mut arguments = [(&raw mut kind).cast(), (&raw mut at).cast()];
            let result = launch(&runtime, "self_test_misuse", (1, 64), &mut arguments);
            if kind == 15 {
                result.unwrap();
                continue;
            }
            let error = result.expect_err(&format!("misuse {kind}")).to_string();
            assert!(error.starts_with("self_test_misuse: "), "{error}");
            assert_eq!(error.contains("with no barrier between"), (5..9).contains(&kind), "{error}");
            assert_eq!(error.contains("of a buffer of"), (12..15).contains(&kind), "{error}");
        }
        assert!(launch(&emulated(0), "no_such_kernel", (1, 32), &mut []).is_err());
    }
}
