//! Compression and analysis: the options as Python gives them, and arrays as slices of their own memory.

use std::path::PathBuf;
use std::sync::Mutex;

use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pumice::{AtomicFile, DType, ErrorBound, Preset, Recent, SliceSource, Stable};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{self, OrRaise};
use crate::reader::Bytes;
use crate::report;

/// Options of a compression; `pumice._options` makes it from keyword arguments.
#[pyclass(frozen, module = "pumice._pumice")]
pub(crate) struct Config(pub(crate) pumice::Config);

#[pymethods]
impl Config {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one for each option")]
    #[pyo3(signature = (bounds, preset, stable, fills, value_range, chunk_shape, threads, attributes))]
    fn new(
        py: Python<'_>,
        bounds: Vec<(String, f64)>,
        preset: &str,
        stable: &str,
        fills: Vec<f64>,
        value_range: Option<(f64, f64)>,
        chunk_shape: Option<Vec<usize>>,
        threads: usize,
        attributes: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let mut bounds = parse_bounds(py, &bounds)?.into_iter();
        let first =
            bounds.next().ok_or_else(|| error::new(py, "InvalidArgumentError", "no error bound is given".into()))?;
        let preset: Preset = preset.parse().or_raise(py)?;
        let stable: Stable = stable.parse().or_raise(py)?;
        let config = pumice::Config::new(first).preset(preset).stable(stable).threads(threads).fills(&fills);
        let config = bounds.fold(config, pumice::Config::and);
        let config = match value_range {
            Some((min, max)) => config.range(min, max),
            None => config,
        };
        let config = match chunk_shape {
            Some(shape) => config.chunk_shape(&shape),
            None => config,
        };
        Ok(Self(attributes.into_iter().fold(config, |config, (key, value)| config.attribute(key, value))))
    }
}

fn parse_bounds(py: Python<'_>, bounds: &[(String, f64)]) -> PyResult<Vec<ErrorBound>> {
    let parse = |(kind, value): &(String, f64)| Ok(ErrorBound::from_kind(kind.parse().or_raise(py)?, *value));
    bounds.iter().map(parse).collect()
}

/// An array of either type, which the caller has made C-contiguous.
#[derive(FromPyObject)]
pub(crate) enum Values<'py> {
    #[pyo3(transparent)]
    F32(PyReadonlyArrayDyn<'py, f32>),
    #[pyo3(transparent)]
    F64(PyReadonlyArrayDyn<'py, f64>),
}

impl Values<'_> {
    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::F32(array) => array.shape(),
            Self::F64(array) => array.shape(),
        }
    }

    pub(crate) fn dtype(&self) -> &'static str {
        report::dtype_name(match self {
            Self::F32(_) => DType::F32,
            Self::F64(_) => DType::F64,
        })
    }
}

/// Calls generic code with the values of an array as a slice and its shape.
macro_rules! with_values {
    ($values:expr, ($data:ident, $shape:ident) => $body:expr) => {
        match $values {
            $crate::config::Values::F32(array) => {
                let ($data, $shape) = (array.as_slice()?, numpy::PyUntypedArrayMethods::shape(&**array));
                $body
            }
            $crate::config::Values::F64(array) => {
                let ($data, $shape) = (array.as_slice()?, numpy::PyUntypedArrayMethods::shape(&**array));
                $body
            }
        }
    };
}
pub(crate) use with_values;

/// Memory for the next stream. A `bytes` object is always a copy, and memory that is new to the process costs more than
/// a copy: so only the copy goes to new memory, and the stream itself to memory that was used before.
static SPARE: Mutex<Vec<u8>> = Mutex::new(Vec::new());
const MAX_SPARE_BYTES: usize = 32 << 20;

/// What codecs of array stores have read lately: values that are read and written again keep their bits.
static RECENT: Recent = Recent::new(256 << 20);

/// Remembers a stream that was decompressed.
#[pyfunction]
pub(crate) fn remember(data: &Bound<'_, PyAny>) -> PyResult<()> {
    let bytes = Bytes::of(data)?;
    data.py().detach(|| RECENT.remember(bytes.as_slice()));
    Ok(())
}

/// Compresses an array; values that a stream has restored which is remembered keep their bits.
#[pyfunction]
pub(crate) fn compress_again<'py>(
    py: Python<'py>,
    array: Values<'py>,
    config: &Config,
) -> PyResult<Bound<'py, PyBytes>> {
    let stream = with_values!(&array, (data, shape) => py.detach(|| RECENT.compress(data, shape, &config.0)));
    to_bytes(py, &stream.or_raise(py)?)
}

/// A copy as a `bytes` object; this raises MemoryError where there is no memory.
pub(crate) fn to_bytes<'py>(py: Python<'py>, stream: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, stream.len(), |bytes| {
        bytes.copy_from_slice(stream);
        Ok(())
    })
}

/// Compresses an array.
#[pyfunction]
pub(crate) fn compress<'py>(py: Python<'py>, array: Values<'py>, config: &Config) -> PyResult<Bound<'py, PyBytes>> {
    let mut stream = SPARE.try_lock().map(|mut spare| std::mem::take(&mut *spare)).unwrap_or_default();
    let written = with_values!(&array, (data, shape) => {
        py.detach(|| pumice::compress_into(data, shape, &config.0, &mut stream))
    });
    written.or_raise(py)?;
    let bytes = to_bytes(py, &stream)?;
    if stream.capacity() <= MAX_SPARE_BYTES
        && let Ok(mut spare) = SPARE.try_lock()
    {
        *spare = stream;
    }
    Ok(bytes)
}

/// Compresses an array to a file, which appears complete or not at all, and returns a summary.
#[pyfunction]
pub(crate) fn compress_to_file<'py>(
    py: Python<'py>,
    path: PathBuf,
    array: Values<'py>,
    config: &Config,
) -> PyResult<Bound<'py, PyDict>> {
    let write = |data: &dyn Fn(&mut AtomicFile) -> pumice::Result<pumice::Summary>| {
        let mut file = AtomicFile::create(&path)?;
        let summary = data(&mut file)?;
        file.commit()?;
        Ok(summary)
    };
    let summary = with_values!(&array, (data, shape) => py.detach(|| {
        let source = SliceSource::new(data, shape)?;
        write(&|file| pumice::compress_from(&source, &config.0, file, &|_| ()))
    }));
    report::summary(py, &summary.or_raise(py)?)
}

/// The properties of an array and the ratios to expect.
#[pyfunction]
pub(crate) fn analyze<'py>(
    py: Python<'py>,
    array: Values<'py>,
    bounds: Vec<(String, f64)>,
    presets: Vec<String>,
    fills: Vec<f64>,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let presets: Vec<Preset> = presets.iter().map(|name| name.parse()).collect::<pumice::Result<_>>().or_raise(py)?;
    let options = pumice::AnalysisOptions::new()
        .bounds(&parse_bounds(py, &bounds)?)
        .presets(&presets)
        .fills(&fills)
        .threads(threads);
    let found = with_values!(&array, (data, shape) => py.detach(|| pumice::analyze(data, shape, &options)));
    report::analysis(py, &found.or_raise(py)?)
}
