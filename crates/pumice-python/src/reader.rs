//! Reads streams in files and in Python's memory, whole or in part.

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyUntypedArray};
use pumice::metrics::Guarantee;
use pumice::{DType, DecodeOptions, Element, Error, ErrorKind, ReadAt, with_dtype};
use pyo3::exceptions::PyEOFError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMemoryView};

use crate::compare;
use crate::config::{Values, with_values};
use crate::error::OrRaise;
use crate::report;

/// Bytes of a Python object, whose buffer is held while they are read.
///
/// An array of NumPy holds it: what C offers for that is in the stable ABI from Python 3.11 on only.
pub(crate) struct Bytes {
    bytes: &'static [u8],
    _owner: Py<PyArray1<u8>>,
}

impl Bytes {
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        static FROM_BUFFER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = object.py();
        let view = PyMemoryView::from(object)?;
        if !view.getattr("c_contiguous")?.is_truthy()? {
            let message = "the compressed bytes are not contiguous in memory; pass bytes(…) of them";
            return Err(crate::error::new(py, "InvalidArgumentError", message.into()));
        }
        let array = FROM_BUFFER.import(py, "numpy", "frombuffer")?.call1((view, "uint8"))?;
        let array = array.cast_into::<PyArray1<u8>>()?;
        let bytes: &'static [u8] = match array.len()? {
            0 => &[],
            // SAFETY: the array is contiguous. Its buffer may not be freed or moved as long as the array exists, which is
            // as long as `bytes`, of which no copy leaves `self`. The documentation of `decompress` forbids other threads
            // to write to it meanwhile.
            n => unsafe { std::slice::from_raw_parts(array.data(), n) },
        };
        Ok(Self { bytes, _owner: array.unbind() })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes
    }
}

/// Where a stream is.
enum Source {
    File(File),
    Memory(Bytes),
    /// Somewhere that Python can read from: a callable that gets offset and length and returns bytes.
    Elsewhere {
        n_bytes: u64,
        read: Py<PyAny>,
    },
}

impl ReadAt for Source {
    fn len(&self) -> pumice::Result<u64> {
        match self {
            Source::File(file) => file.len(),
            Source::Memory(bytes) => ReadAt::len(bytes.as_slice()),
            Source::Elsewhere { n_bytes, .. } => Ok(*n_bytes),
        }
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> pumice::Result<()> {
        match self {
            Source::File(file) => ReadAt::read_exact_at(file, buf, offset),
            Source::Memory(bytes) => bytes.as_slice().read_exact_at(buf, offset),
            Source::Elsewhere { read, .. } => Python::attach(|py| read_elsewhere(read.bind(py), buf, offset))
                .map_err(|e| Error::new(ErrorKind::Io, format!("reading a part of the stream failed: {e}"))),
        }
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        match self {
            Source::File(_) | Source::Elsewhere { .. } => None,
            Source::Memory(bytes) => bytes.as_slice().slice(offset, len),
        }
    }
}

fn read_elsewhere(read: &Bound<'_, PyAny>, buf: &mut [u8], offset: u64) -> PyResult<()> {
    let found = Bytes::of(&read.call1((offset, buf.len()))?)?;
    let found = found.as_slice();
    if found.len() != buf.len() {
        let message =
            format!("{} bytes at offset {offset} were requested, but {} were returned", buf.len(), found.len());
        return Err(PyEOFError::new_err(message));
    }
    buf.copy_from_slice(found);
    Ok(())
}

/// An open stream.
#[pyclass(frozen, module = "pumice._pumice")]
pub(crate) struct Reader {
    reader: pumice::Reader<Source>,
    max_bytes: u64,
}

impl Reader {
    fn new(py: Python<'_>, source: Source, path: Option<PathBuf>, threads: usize, max_bytes: u64) -> PyResult<Self> {
        let options = DecodeOptions::new().threads(threads).max_bytes(max_bytes);
        let reader = py.detach(|| pumice::Reader::new(source, options));
        let reader = reader.map_err(|e| match path {
            Some(path) => e.context(path.display()),
            None => e,
        });
        Ok(Self { reader: reader.or_raise(py)?, max_bytes })
    }

    /// A new array of the type of the stream, and what it leaves of the limit; refused before allocation if it exceeds the
    /// limit.
    fn allocate<'py>(&self, py: Python<'py>, shape: &[usize]) -> PyResult<(Bound<'py, PyUntypedArray>, u64)> {
        let dtype = self.reader.info().dtype;
        let left = check_limit(dtype, shape, self.max_bytes).or_raise(py)?;
        // NumPy raises MemoryError if the system has too little. Its zeroed memory costs nothing until it is used.
        let zeros = py.import("numpy")?.call_method1("zeros", (shape.to_vec(), report::dtype_name(dtype)))?;
        Ok((zeros.cast_into::<PyUntypedArray>()?, left))
    }
}

#[pymethods]
impl Reader {
    /// Opens a file.
    #[staticmethod]
    fn of_file(py: Python<'_>, path: PathBuf, threads: usize, max_bytes: u64) -> PyResult<Self> {
        let file = File::open(&path).map_err(|e| Error::from(e).context(path.display())).or_raise(py)?;
        Self::new(py, Source::File(file), Some(path), threads, max_bytes)
    }

    /// Opens a stream in memory.
    #[staticmethod]
    fn of_bytes(data: &Bound<'_, PyAny>, threads: usize, max_bytes: u64) -> PyResult<Self> {
        Self::new(data.py(), Source::Memory(Bytes::of(data)?), None, threads, max_bytes)
    }

    /// Opens a stream of this many bytes; `read(offset, length)` returns parts of it and may be called in any thread.
    #[staticmethod]
    fn of_callable(n_bytes: u64, read: Bound<'_, PyAny>, threads: usize, max_bytes: u64) -> PyResult<Self> {
        let py = read.py();
        Self::new(py, Source::Elsewhere { n_bytes, read: read.unbind() }, None, threads, max_bytes)
    }

    /// The header and index of the stream as a dictionary.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        report::info(py, self.reader.info())
    }

    /// How many times a chunk was decoded.
    #[getter]
    fn chunks_decoded(&self) -> u64 {
        self.reader.chunks_decoded()
    }

    /// Decodes a region, given as start and end for each axis, to a new array or to `out`: a C-contiguous array of its
    /// shape and of the stream's type.
    #[pyo3(signature = (region, out=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        region: Vec<(usize, usize)>,
        out: Option<Bound<'py, PyUntypedArray>>,
    ) -> PyResult<Bound<'py, PyUntypedArray>> {
        let region: Vec<Range<usize>> = region.into_iter().map(|(start, end)| start..end).collect();
        let shape: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
        // An array of the caller does not count towards the limit.
        let (out, left) = match out {
            Some(out) => (out, self.max_bytes),
            None => {
                self.reader.check_region(&region).or_raise(py)?;
                self.allocate(py, &shape)?
            }
        };
        with_dtype!(self.reader.info().dtype, T => {
            let mut array = out.cast::<PyArrayDyn<T>>()?.try_readwrite()?;
            let values = array.as_slice_mut()?;
            py.detach(|| self.reader.read_region_within::<T>(&region, values, left))
        })
        .or_raise(py)?;
        Ok(out)
    }

    /// Compares the original with the values of the stream, by default under the stream's own bounds; `limits` are an
    /// absolute bound and a bound relative to each value.
    #[pyo3(signature = (original, limits=None))]
    fn compare<'py>(
        &self,
        py: Python<'py>,
        original: Values<'py>,
        limits: Option<(f64, f64)>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let info = self.reader.info();
        let guarantee = match limits {
            Some((abs, pwrel)) => Guarantee::new(abs, pwrel, &info.fills),
            None => Guarantee::of(info),
        };
        let found = with_values!(&original, (data, shape) => {
            py.detach(|| compare::with_reader(data, shape, &self.reader, &guarantee))
        });
        report::comparison(py, &found.or_raise(py)?)
    }
}

/// Checks that an array fits into the limit, and returns what it leaves of it.
pub(crate) fn check_limit(dtype: DType, shape: &[usize], max_bytes: u64) -> pumice::Result<u64> {
    let n_bytes = shape.iter().try_fold(dtype.size() as u64, |n, extent| n.checked_mul(*extent as u64));
    if let Some(left) = n_bytes.and_then(|n_bytes| max_bytes.checked_sub(n_bytes)) {
        return Ok(left);
    }
    let message = format!(
        "an array of shape {shape:?} and type {dtype} takes more than the limit of {max_bytes} bytes; raise max_bytes, \
         or read a part of it"
    );
    Err(Error::new(ErrorKind::LimitExceeded, message))
}

/// Checks that the stream has the type and shape of the array to compare with.
pub(crate) fn check_like<T: Element, R: ReadAt>(shape: &[usize], reader: &pumice::Reader<R>) -> pumice::Result<()> {
    let info = reader.info();
    if (T::DTYPE, shape) == (info.dtype, &info.shape[..]) {
        return Ok(());
    }
    let message = format!(
        "the original is an array of shape {shape:?} and type {}, the compressed one of shape {:?} and type {}",
        T::DTYPE,
        info.shape,
        info.dtype
    );
    Err(Error::new(ErrorKind::InvalidArgument, message))
}
