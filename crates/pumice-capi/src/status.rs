//! How calls end: the status, the message that goes with it, and the guard around every entry point.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice::{Error, ErrorKind, Result};

use crate::arguments::text;

/// Version of this header; pumice_version() has that of the library.
pub const VERSION_MAJOR: u32 = 0;
/// See PUMICE_VERSION_MAJOR.
pub const VERSION_MINOR: u32 = 1;
/// See PUMICE_VERSION_MAJOR.
pub const VERSION_PATCH: u32 = 0;

/// How a call ended. The numbers are also the exit codes of the command `pumice`, and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// Some value differs by more than the bound (only pumice_reader_check() says so).
    BoundBroken = 1,
    /// The call asked for something impossible or contradictory.
    InvalidArgument = 2,
    /// The stream or the request is valid, but needs a newer release or a feature that this build lacks.
    Unsupported = 3,
    /// The bytes are not a Pumice stream, or were damaged.
    Corrupt = 4,
    /// The stream ends too early.
    Truncated = 5,
    /// Reading or writing failed.
    Io = 6,
    /// The call needs more memory than the limit, or than the capacity of the output.
    LimitExceeded = 7,
    /// An accelerator is missing or failed.
    Device = 8,
    /// An error in Pumice itself: please report it. Handles of the call may only be freed.
    Internal = 101,
}

impl From<ErrorKind> for Status {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BoundBroken => Status::BoundBroken,
            ErrorKind::InvalidArgument => Status::InvalidArgument,
            ErrorKind::Unsupported => Status::Unsupported,
            ErrorKind::Corrupt => Status::Corrupt,
            ErrorKind::Truncated => Status::Truncated,
            ErrorKind::Io => Status::Io,
            ErrorKind::LimitExceeded => Status::LimitExceeded,
            ErrorKind::Device => Status::Device,
            // A kind that this table does not have yet.
            _ => Status::Internal,
        }
    }
}

impl Status {
    /// The error that a failed call of this thread has ended with, the last one; nothing for success.
    #[cfg(feature = "mpi")]
    pub(crate) fn last_error(number: i32) -> Result<()> {
        if number == Status::Ok as i32 {
            return Ok(());
        }
        let kind = u8::try_from(number).ok().and_then(ErrorKind::from_code);
        // An internal error has no kind.
        let kind = kind.unwrap_or(ErrorKind::Unsupported);
        Err(Error::new(kind, LAST_ERROR.with(|message| message.borrow().to_string_lossy().into_owned())))
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn pumice_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no NUL"),
    };
    VERSION.as_ptr()
}

/// What went wrong in the last call of this thread that failed, and what to do about it; "" if none did. Valid until
/// the thread's next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn pumice_last_error() -> *const c_char {
    // A thread that is ending has no message any more.
    LAST_ERROR.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// For bindings to other languages, which check arguments that C does not have: `message` becomes that of
/// pumice_last_error(). Returns PUMICE_STATUS_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_refuse(message: *const c_char) -> Status {
    // SAFETY: as the caller promises.
    guard(|| Err(invalid(unsafe { text(message, "message") }?)))
}

/// An error that the caller can fix.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// A C string; drops NUL characters, which it cannot contain.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// Runs the body of an entry point: errors and panics become a status and a message.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Status {
    let (status, message) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(error)) => (Status::from(error.kind()), error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown cause");
            (Status::Internal, format!("an error in Pumice itself, please report it: {text}"))
        }
    };
    // A thread that is ending cannot ask for the message any more.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = c_text(&message));
    status
}

/// Runs the body of an entry point that returns a value; `fallback` if it fails.
pub(crate) fn guard_or<R>(fallback: R, body: impl FnOnce() -> Result<R>) -> R {
    let mut result = fallback;
    guard(|| {
        result = body()?;
        Ok(())
    });
    result
}
