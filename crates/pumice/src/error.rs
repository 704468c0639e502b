//! One error type for the whole library: a kind that a program can act on, and a message for a person.
//!
//! Each kind has a pinned integer, reused as exit code by the command-line tool and by every binding.

use std::fmt;

/// What went wrong, in terms of who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something impossible or contradictory.
    InvalidArgument,
    /// The stream, or the wish, is valid but needs a newer release, a feature that is not here, or another backend.
    Unsupported,
    /// The bytes are not a valid Pumice stream, or were damaged.
    Corrupt,
    /// The stream ends too early.
    Truncated,
    /// Reading or writing failed.
    Io,
    /// The work would need more memory than the caller's limit, or than the system has.
    LimitExceeded,
    /// Some value differs by more than the bound (only verification reports this).
    BoundBroken,
    /// An accelerator is not there or failed.
    Device,
}

impl ErrorKind {
    /// The pinned number of this kind: exit code of the tool, error code of the bindings.
    pub const fn code(self) -> u8 {
        match self {
            ErrorKind::BoundBroken => 1,
            ErrorKind::InvalidArgument => 2,
            ErrorKind::Unsupported => 3,
            ErrorKind::Corrupt => 4,
            ErrorKind::Truncated => 5,
            ErrorKind::Io => 6,
            ErrorKind::LimitExceeded => 7,
            ErrorKind::Device => 8,
        }
    }

    /// The kind of this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(ErrorKind::BoundBroken),
            2 => Some(ErrorKind::InvalidArgument),
            3 => Some(ErrorKind::Unsupported),
            4 => Some(ErrorKind::Corrupt),
            5 => Some(ErrorKind::Truncated),
            6 => Some(ErrorKind::Io),
            7 => Some(ErrorKind::LimitExceeded),
            8 => Some(ErrorKind::Device),
            _ => None,
        }
    }
}

/// The error of every fallible function of this crate.
///
/// Its message is complete: it ends with that of the system where input or output failed. So [`source`] is `None`, and
/// programs that print a chain of causes print none twice; [`Error::io_error`] gives the cause itself.
///
/// [`source`]: std::error::Error::source
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    io_error: Option<std::io::Error>,
}

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the given kind; the message says what is wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), io_error: None }
    }

    /// An error of kind [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// An error of kind [`ErrorKind::Device`].
    pub fn device(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Device, message)
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the system said, where input or output failed.
    pub fn io_error(&self) -> Option<&std::io::Error> {
        self.io_error.as_ref()
    }

    /// The same error with the place it happened put in front of the message.
    #[must_use]
    pub fn context(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn truncated(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Truncated, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.io_error {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::UnexpectedEof => ErrorKind::Truncated,
            _ => ErrorKind::Io,
        };
        Self { kind, message: "input/output failed".into(), io_error: Some(source) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As programs print an error and all its causes.
    fn chain(error: &dyn std::error::Error) -> String {
        let causes = std::iter::successors(Some(error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    #[test]
    fn numbers_of_kinds_lead_back_to_them() {
        let kinds: Vec<ErrorKind> = (0..=255).filter_map(ErrorKind::from_code).collect();
        assert_eq!(kinds.iter().map(|kind| kind.code()).collect::<Vec<_>>(), (1..=8).collect::<Vec<u8>>());
    }

    #[test]
    fn a_chain_names_each_cause_once() {
        let error = Error::from(std::io::Error::other("the disk is full")).context("out.pum");
        assert_eq!(error.to_string(), "out.pum: input/output failed: the disk is full");
        assert_eq!(chain(&error), error.to_string());
        assert_eq!(error.io_error().unwrap().to_string(), "the disk is full");
        assert!(Error::corrupt("no").io_error().is_none());
    }
}
