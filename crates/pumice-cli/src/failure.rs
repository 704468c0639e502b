//! The error type of commands: an error of the library, plus hints on what to do.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use pumice::{Error, ErrorKind};

use crate::ui;

/// `std::result::Result` with a [`Failure`].
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The exit code of a program that a closed pipe ends (128 + SIGPIPE).
const CLOSED_PIPE: u8 = 141;

/// An error and its hints.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Error,
    hints: Vec<String>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::new(kind, message).into()
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Adds a hint.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Prefixes the message with the file it concerns.
    #[must_use]
    pub(crate) fn at(self, path: &Path) -> Self {
        Self { error: self.error.context(path.display()), ..self }
    }

    /// Prefixes the message with the variable it concerns.
    #[cfg(feature = "hdf5")]
    #[must_use]
    pub(crate) fn within(self, name: &str) -> Self {
        Self { error: self.error.context(name), ..self }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// The message, without hints.
    #[cfg(feature = "hdf5")]
    pub(crate) fn message(&self) -> String {
        self.error.to_string()
    }

    /// Prints the failure to standard error and returns the exit code. A closed pipe prints nothing.
    pub(crate) fn report(self) -> ExitCode {
        if self.is_closed_pipe() {
            return ExitCode::from(CLOSED_PIPE);
        }
        ui::note(&format!("error: {}\n", self.error));
        for hint in &self.hints {
            ui::note(&format!("hint: {hint}\n"));
        }
        ExitCode::from(self.kind().code())
    }

    fn is_closed_pipe(&self) -> bool {
        self.error.io_error().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    }
}

#[cfg(all(test, feature = "hdf5"))]
impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, hints: Vec::new() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Error::from(error).into()
    }
}

/// Prefixes an input/output error with the action that failed and its file.
pub(crate) fn io_context(action: impl Display, path: &Path) -> impl Fn(io::Error) -> Failure {
    move |e| Failure::new(ErrorKind::Io, format!("cannot {action} {}: {e}", path.display()))
}
