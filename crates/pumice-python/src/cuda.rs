//! Arrays in the memory of CUDA devices, passed by [DLPack](https://dmlc.github.io/dlpack/latest/python_spec.html): values stay on
//! the device, and only the compressed bytes pass through the host.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use pumice::backend::Frames;
use pumice::{DType, DecodeOptions, Error, ErrorKind, with_dtype};
use pumice_gpu::{Device, DeviceArray, DeviceElement, DeviceSlice, Encoder, Stream};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};

use crate::config::{Config, to_bytes};
use crate::error::{self, OrRaise};
use crate::reader::{self, Bytes};
use crate::report;

/// `kDLCUDA`.
const CUDA: i32 = 2;
/// `kDLFloat`.
const FLOAT: u8 = 2;
/// DLPack's number for CUDA's legacy default stream, in which all work here runs.
const DEFAULT_STREAM: i32 = 1;
const OFFERED: &CStr = c"dltensor";
const TAKEN: &CStr = c"used_dltensor";

/// `DLTensor` of dlpack.h, with the fields of its device and element type inlined.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor` of dlpack.h.
#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    manager_context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// A tensor that another library lends.
struct Lent(NonNull<ManagedTensor>);

// SAFETY: DLPack lets any thread use and release a tensor that was taken out of its capsule.
unsafe impl Send for Lent {}
// SAFETY: nothing here writes to it.
unsafe impl Sync for Lent {}

impl Lent {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let arguments = PyDict::new(object.py());
        arguments.set_item("stream", DEFAULT_STREAM)?;
        let capsule = object.call_method("__dlpack__", (), Some(&arguments))?.cast_into::<PyCapsule>()?;
        let pointer = capsule.pointer_checked(Some(OFFERED))?;
        // SAFETY: a capsule; with this name the tensor is ours to release.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), TAKEN.as_ptr()) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self(pointer.cast()))
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: the capsule's name says what it is, and it stays alive until it is released.
        unsafe { &self.0.as_ref().tensor }
    }

    fn shape(&self) -> Vec<usize> {
        self.extents(self.tensor().shape).iter().map(|extent| usize::try_from(*extent).unwrap_or(0)).collect()
    }

    fn extents(&self, at: *mut i64) -> &[i64] {
        match usize::try_from(self.tensor().ndim) {
            // SAFETY: DLPack promises that many.
            Ok(n) if n > 0 && !at.is_null() => unsafe { std::slice::from_raw_parts(at, n) },
            _ => &[],
        }
    }

    /// The element type, if it is one of ours.
    fn dtype(&self) -> Option<DType> {
        match self.tensor() {
            Tensor { type_code: FLOAT, type_bits: 32, type_lanes: 1, .. } => Some(DType::F32),
            Tensor { type_code: FLOAT, type_bits: 64, type_lanes: 1, .. } => Some(DType::F64),
            _ => None,
        }
    }

    /// Whether the values are in C order without gaps.
    fn is_contiguous(&self) -> bool {
        let shape = self.extents(self.tensor().shape);
        let strides = self.extents(self.tensor().strides);
        if strides.is_empty() || shape.contains(&0) {
            return true;
        }
        let mut expected = 1;
        shape.iter().zip(strides).rev().all(|(extent, stride)| {
            let fits = *extent == 1 || *stride == expected;
            expected *= extent;
            fits
        })
    }

    fn at(&self) -> u64 {
        self.tensor().data as u64 + self.tensor().byte_offset
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: taken once, released once.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// The device of this number. It is opened once, since that compiles the kernels.
fn device(ordinal: usize) -> pumice::Result<Device> {
    static DEVICES: Mutex<Option<HashMap<usize, Device>>> = Mutex::new(None);
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&ordinal) {
        return Ok(device.clone());
    }
    let device = Device::cuda(ordinal)?;
    devices.insert(ordinal, device.clone());
    Ok(device)
}

/// Compresses a tensor in the memory of a CUDA device.
#[pyfunction]
pub(crate) fn compress_cuda<'py>(tensor: &Bound<'py, PyAny>, config: &Config) -> PyResult<Bound<'py, PyBytes>> {
    let py = tensor.py();
    let lent = Lent::of(tensor)?;
    let Some(dtype) = lent.dtype() else {
        let message =
            "only float32 and float64 tensors can be compressed; convert it first, by tensor.float() in PyTorch, \
                       by .astype('float32') in CuPy and JAX"
                .into();
        return Err(error::new(py, "DtypeError", message));
    };
    if !lent.is_contiguous() {
        let message = "a tensor on a CUDA device must be contiguous; pass tensor.contiguous()".into();
        return Err(error::new(py, "InvalidArgumentError", message));
    }
    let bytes = py.detach(|| {
        let device = device(usize::try_from(lent.tensor().device_id).unwrap_or(usize::MAX))?;
        with_dtype!(dtype, T => encode::<T>(&device, &lent, &config.0))
    });
    to_bytes(py, &bytes.or_raise(py)?)
}

fn encode<T: DeviceElement>(device: &Device, lent: &Lent, config: &pumice::Config) -> pumice::Result<Vec<u8>> {
    let (shape, stream) = (lent.shape(), Stream::DEFAULT);
    if !lent.at().is_multiple_of(size_of::<T>() as u64) {
        return Err(Error::new(ErrorKind::InvalidArgument, "the tensor is not aligned; pass a copy of it"));
    }
    // SAFETY: memory of the tensor, which is lent until `finish` has waited for all work; its owner has ordered earlier
    // work on it before this stream.
    let values = unsafe { DeviceSlice::<T>::from_raw(lent.at(), shape.iter().product()) };
    let blueprint = device.blueprint(values, &shape, config, stream)?;
    let mut encoder = Encoder::new(device, &blueprint)?;
    encoder.encode(values, stream)?;
    encoder.finish(values, stream)
}

/// Device memory of either type.
enum Memory {
    F32(DeviceArray<f32>),
    F64(DeviceArray<f64>),
}

/// An array in the memory of a CUDA device, for `torch.from_dlpack`, `cupy.from_dlpack` and the like.
#[pyclass(frozen, module = "pumice")]
pub(crate) struct CudaArray {
    memory: Arc<Memory>,
    shape: Vec<usize>,
    ordinal: i32,
}

impl CudaArray {
    fn dtype(&self) -> DType {
        match *self.memory {
            Memory::F32(_) => DType::F32,
            Memory::F64(_) => DType::F64,
        }
    }
}

#[pymethods]
impl CudaArray {
    /// Extents, slowest axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.shape)
    }

    /// NumPy's name of the element type.
    #[getter(dtype)]
    fn dtype_name(&self) -> &'static str {
        report::dtype_name(self.dtype())
    }

    /// Kind and number of the device, as DLPack has them.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CUDA, self.ordinal)
    }

    /// The memory as a DLPack capsule. All work on it is complete: no stream has to wait.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version);
        if dl_device.is_some_and(|device| device != (CUDA, self.ordinal)) || copy == Some(true) {
            return Err(PyBufferError::new_err("the array can be exported only on its own device and without a copy"));
        }
        let (data, type_bits) = match &*self.memory {
            Memory::F32(array) => (array.as_slice().at(), 32),
            Memory::F64(array) => (array.as_slice().at(), 64),
        };
        let mut shape: Box<[i64]> = self.shape.iter().map(|extent| *extent as i64).collect();
        let tensor = Tensor {
            data: data as *mut c_void,
            device_type: CUDA,
            device_id: self.ordinal,
            ndim: self.shape.len() as i32,
            type_code: FLOAT,
            type_bits,
            type_lanes: 1,
            shape: shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let held = Box::new(Held { _memory: Arc::clone(&self.memory), _shape: shape });
        let manager_context = Box::into_raw(held).cast();
        let managed = Box::into_raw(Box::new(ManagedTensor { tensor, manager_context, deleter: Some(release) }));
        // SAFETY: the name is static; the destructor releases the tensor unless somebody took it.
        unsafe {
            let capsule = ffi::PyCapsule_New(managed.cast(), OFFERED.as_ptr(), Some(drop_capsule));
            if capsule.is_null() {
                release(managed);
            }
            Bound::from_owned_ptr_or_err(py, capsule)
        }
    }

    fn __repr__(&self) -> String {
        format!("<pumice.CudaArray of shape {:?} and type {} on cuda:{}>", self.shape, self.dtype(), self.ordinal)
    }
}

/// What an exported tensor keeps alive.
struct Held {
    _memory: Arc<Memory>,
    _shape: Box<[i64]>,
}

/// Releases a tensor made by [`CudaArray`], from any thread.
unsafe extern "C" fn release(managed: *mut ManagedTensor) {
    // SAFETY: both were boxed by `__dlpack__`, and DLPack calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.manager_context.cast::<Held>()));
    }
}

/// Destroys a capsule, and releases the tensor in it unless somebody took it.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that `__dlpack__` made.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OFFERED.as_ptr()) != 0 {
            release(ffi::PyCapsule_GetPointer(capsule, OFFERED.as_ptr()).cast());
        }
    }
}

/// Decompresses a stream to the memory of a CUDA device.
#[pyfunction]
pub(crate) fn decompress_cuda(data: &Bound<'_, PyAny>, ordinal: u16, max_bytes: u64) -> PyResult<CudaArray> {
    let py = data.py();
    let bytes = Bytes::of(data)?;
    let decoded = py.detach(|| {
        let device = device(ordinal.into())?;
        let frames = Frames::open(bytes.as_slice(), &DecodeOptions::new().max_bytes(max_bytes))?;
        let (dtype, shape) = (frames.info().dtype, frames.info().shape.clone());
        reader::check_limit(dtype, &shape, max_bytes)?;
        let memory = match dtype {
            DType::F64 => Memory::F64(decode(&device, &frames, &shape)?),
            _ => Memory::F32(decode(&device, &frames, &shape)?),
        };
        Ok((memory, shape))
    });
    let (memory, shape) = decoded.or_raise(py)?;
    Ok(CudaArray { memory: Arc::new(memory), shape, ordinal: ordinal.into() })
}

fn decode<T: DeviceElement>(device: &Device, frames: &Frames<'_>, shape: &[usize]) -> pumice::Result<DeviceArray<T>> {
    let mut array = device.allocate::<T>(shape.iter().product())?;
    device.decode(frames, array.as_mut_slice(), Stream::DEFAULT)?;
    Ok(array)
}
