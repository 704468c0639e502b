//! Errors as Python's exceptions: the classes are those of `pumice.errors`; errors of input and output are `OSError`.

use pumice::ErrorKind;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The exception for an error of the library.
pub(crate) fn exception(py: Python<'_>, error: &pumice::Error) -> PyErr {
    let message = error.to_string();
    let class = match error.kind() {
        ErrorKind::Io => return os_error(error, message),
        ErrorKind::InvalidArgument => "InvalidArgumentError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Truncated => "TruncatedError",
        ErrorKind::LimitExceeded => "LimitExceededError",
        ErrorKind::Device => "DeviceError",
        _ => "PumiceError",
    };
    new(py, class, message)
}

/// An exception of this class of `pumice.errors`.
pub(crate) fn new(py: Python<'_>, class: &str, message: String) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("pumice.errors")?.unbind()));
    let class = module.and_then(|module| Ok(module.bind(py).getattr(class)?.cast_into::<PyType>()?));
    match class {
        Ok(class) => PyErr::from_type(class, message),
        Err(error) => error,
    }
}

/// `OSError` with the number from the system, so that Python raises `FileNotFoundError` and the like; by kind if there
/// is no number.
fn os_error(error: &pumice::Error, message: String) -> PyErr {
    match error.io_error().map(|source| (source.raw_os_error(), source.kind())) {
        Some((Some(number), _)) => PyOSError::new_err((number, message)),
        Some((None, kind)) => std::io::Error::new(kind, message).into(),
        None => PyOSError::new_err(message),
    }
}

/// Results of the library as results of Python.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for pumice::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
