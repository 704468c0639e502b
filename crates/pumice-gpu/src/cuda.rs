//! CUDA through its driver, which is loaded on first use: neither building nor installing needs CUDA.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::{result, sys};
use pumice::{Error, Result};

use crate::kernels::SOURCES;
use crate::runtime::{DevicePtr, Runtime, Shape, Stream};
use crate::staging::{PIECE, Pinned};

/// A device with its primary context, in which the kernels are loaded.
#[derive(Debug)]
pub(crate) struct Cuda {
    ordinal: i32,
    context: sys::CUcontext,
    modules: Vec<sys::CUmodule>,
    functions: Mutex<HashMap<&'static str, Function>>,
    pinned: Mutex<Vec<Pinned>>,
}

#[derive(Clone, Copy, Debug)]
struct Function(sys::CUfunction);

// SAFETY: contexts, modules and functions are handles that CUDA allows any thread to use.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}
// SAFETY: as above.
unsafe impl Send for Function {}

fn failed(what: &str) -> impl FnOnce(result::DriverError) -> Error + '_ {
    move |error| {
        let text = error.error_string().map_or_else(|_| format!("{error:?}"), |s| s.to_string_lossy().into_owned());
        Error::device(format!("the CUDA device cannot {what}: {text}"))
    }
}

impl Cuda {
    pub(crate) fn new(ordinal: usize) -> Result<Self> {
        // SAFETY: looks for the driver's library and loads it.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::device(
                "there is no CUDA driver on this machine (libcuda.so was not found): install NVIDIA's driver, or use the CPU",
            ));
        }
        result::init().map_err(failed("be used"))?;
        let count = result::device::get_count().map_err(failed("be counted"))?;
        let ordinal = i32::try_from(ordinal).ok().filter(|ordinal| *ordinal < count);
        let Some(ordinal) = ordinal else {
            return Err(Error::device(format!(
                "there are {count} CUDA devices, counted from 0; use one of them, or the CPU"
            )));
        };
        let device = result::device::get(ordinal).map_err(failed("be opened"))?;
        // SAFETY: the device was just opened.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(failed("be opened"))?;
        let mut cuda =
            Self { ordinal, context, modules: Vec::new(), functions: Mutex::default(), pinned: Mutex::default() };
        cuda.enter()?;
        for source in SOURCES {
            let text = CString::new(source.ptx).expect("PTX is text");
            // SAFETY: the text ends with 0 and outlives the call.
            let module =
                unsafe { result::module::load_data(text.as_ptr().cast()) }.map_err(failed("load the kernels"))?;
            cuda.modules.push(module);
        }
        Ok(cuda)
    }

    /// Makes the context current for this thread.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained as long as this lives.
        unsafe { result::ctx::set_current(self.context) }.map_err(failed("be used from this thread"))
    }

    fn function(&self, kernel: &'static str) -> Result<sys::CUfunction> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(kernel) {
            return Ok(function.0);
        }
        let entry = format!(".entry {kernel}(");
        let module = SOURCES.iter().zip(&self.modules).find(|(source, _)| source.ptx.contains(&entry));
        let (_, module) =
            module.ok_or_else(|| Error::device(format!("there is no kernel {kernel} in this program")))?;
        let name = CString::new(kernel).expect("names are text");
        // SAFETY: the module is loaded.
        let function =
            unsafe { result::module::get_function(*module, name) }.map_err(failed(&format!("find {kernel}")))?;
        functions.insert(kernel, Function(function));
        Ok(function)
    }

    fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32> {
        let device = result::device::get(self.ordinal).map_err(failed("be opened"))?;
        // SAFETY: the device is open.
        unsafe { result::device::get_attribute(device, attribute) }.map_err(failed("report its attributes"))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.enter().is_err() {
            return;
        }
        for pinned in self.pinned.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // SAFETY: allocated by `take_pinned`, and returned.
            unsafe {
                for (piece, mark) in pinned.pieces.iter().zip(pinned.marks) {
                    let _ = result::free_host(piece.cast());
                    let _ = result::event::destroy(mark.cast());
                }
            }
        }
        for module in &self.modules {
            // SAFETY: loaded by `new`; buffers and launches hold the runtime, so none remain.
            let _ = unsafe { result::module::unload(*module) };
        }
        if let Ok(device) = result::device::get(self.ordinal) {
            // SAFETY: retained by `new`.
            let _ = unsafe { result::primary_ctx::release(device) };
        }
    }
}

fn raw(stream: Stream) -> sys::CUstream {
    stream.0.cast()
}

// SAFETY: CUDA accesses only the memory of copies and launches, in the order of streams.
unsafe impl Runtime for Cuda {
    fn name(&self) -> String {
        let name = result::device::get(self.ordinal).and_then(result::device::get_name);
        name.unwrap_or_else(|_| "CUDA device".into())
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.enter()?;
        let (free, total) = result::mem_get_info().map_err(failed("report its free memory"))?;
        Ok((free as u64, total as u64))
    }

    fn resident_blocks(&self, kernel: &'static str, threads: u32) -> Result<u32> {
        self.enter()?;
        let function = self.function(kernel)?;
        // SAFETY: the function is loaded.
        let blocks = unsafe { result::occupancy::max_active_block_per_multiprocessor(function, threads as i32, 0) }
            .map_err(failed("report the occupancy of a kernel"))?;
        let multiprocessors = self.attribute(sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok((blocks * multiprocessors).max(1) as u32)
    }

    fn cache_bytes(&self) -> Result<u64> {
        Ok(self.attribute(sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.max(0) as u64)
    }

    fn allocate(&self, n_bytes: usize) -> Result<DevicePtr> {
        self.enter()?;
        // SAFETY: the memory is returned uninitialised, as the trait allows.
        unsafe { result::malloc_sync(n_bytes) }.map_err(failed(&format!("allocate {n_bytes} bytes of its memory")))
    }

    unsafe fn free(&self, at: DevicePtr) {
        if self.enter().is_ok() {
            // SAFETY: the caller's contract.
            let _ = unsafe { result::free_sync(at) };
        }
    }

    unsafe fn copy_in(&self, to: DevicePtr, from: *const u8, n_bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's contract.
        unsafe {
            let from = std::slice::from_raw_parts(from, n_bytes);
            result::memcpy_htod_async(to, from, raw(stream)).map_err(failed("copy to its memory"))
        }
    }

    unsafe fn copy_out(&self, to: *mut u8, from: DevicePtr, n_bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's contract.
        unsafe {
            let to = std::slice::from_raw_parts_mut(to, n_bytes);
            result::memcpy_dtoh_async(to, from, raw(stream)).map_err(failed("copy from its memory"))
        }
    }

    unsafe fn copy_within(&self, to: DevicePtr, from: DevicePtr, n_bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's contract.
        unsafe { result::memcpy_dtod_async(to, from, n_bytes, raw(stream)) }.map_err(failed("copy within its memory"))
    }

    unsafe fn fill(&self, to: DevicePtr, byte: u8, n_bytes: usize, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's contract.
        unsafe { result::memset_d8_async(to, byte, n_bytes, raw(stream)) }.map_err(failed("set its memory"))
    }

    unsafe fn launch(
        &self,
        kernel: &'static str,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        self.enter()?;
        let function = self.function(kernel)?;
        let (grid, block) = ((shape.blocks, 1, 1), (shape.threads, 1, 1));
        // SAFETY: the caller's contract.
        unsafe { result::launch_kernel(function, grid, block, 0, raw(stream), arguments) }
            .map_err(failed(&format!("run {kernel}")))
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: streams are valid by the contract of `Stream`.
        unsafe { result::stream::synchronize(raw(stream)) }.map_err(failed("finish its work"))
    }

    fn take_pinned(&self) -> Result<Pinned> {
        if let Some(pinned) = self.pinned.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(pinned);
        }
        self.enter()?;
        // SAFETY: the memory is returned uninitialised, as the trait allows.
        let piece = || unsafe { result::malloc_host(PIECE, 0) }.map_err(failed("allocate pinned memory on the host"));
        let new =
            || result::event::create(sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING).map_err(failed("be waited for"));
        Ok(Pinned { pieces: [piece()?.cast(), piece()?.cast()], marks: [new()?.cast(), new()?.cast()] })
    }

    fn give_pinned(&self, pinned: Pinned) {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).push(pinned);
    }

    fn mark(&self, mark: *mut c_void, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: marks are events of `take_pinned`.
        unsafe { result::event::record(mark.cast(), raw(stream)) }.map_err(failed("be waited for"))
    }

    fn wait(&self, mark: *mut c_void) -> Result<()> {
        self.enter()?;
        // SAFETY: as in `mark`.
        unsafe { result::event::synchronize(mark.cast()) }.map_err(failed("finish its work"))
    }

    fn time(&self, stream: Stream, work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        self.enter()?;
        let new = || result::event::create(sys::CUevent_flags_enum::CU_EVENT_DEFAULT).map_err(failed("measure time"));
        let (start, end) = (new()?, new()?);
        // SAFETY: both events were just created, and are destroyed once, also after errors.
        unsafe {
            let measured = (|| {
                result::event::record(start, raw(stream)).map_err(failed("measure time"))?;
                work()?;
                result::event::record(end, raw(stream)).map_err(failed("measure time"))?;
                result::event::synchronize(end).map_err(failed("finish its work"))?;
                result::event::elapsed(start, end).map_err(failed("measure time"))
            })();
            let _ = result::event::destroy(start);
            let _ = result::event::destroy(end);
            Ok(f64::from(measured?) / 1e3)
        }
    }
}
