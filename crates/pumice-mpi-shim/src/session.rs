//! The rules of a run: all ranks have those that rank 0 has read.

use std::sync::OnceLock;

use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::agreement::broadcast;
use crate::config::{Rules, VARIABLE};

static RULES: OnceLock<Option<Rules>> = OnceLock::new();

/// The rules, once MPI has started and there are any.
pub(crate) fn rules() -> Option<&'static Rules> {
    RULES.get()?.as_ref()
}

/// Reads the rules, with all ranks, after MPI has started.
pub(crate) fn start() {
    RULES.get_or_init(|| {
        let world = SimpleCommunicator::world();
        let mut text = String::new();
        if world.rank() == 0
            && let Some(path) = std::env::var_os(VARIABLE)
        {
            match std::fs::read_to_string(&path) {
                Ok(read) => text = read,
                Err(e) => say(&format!("{}: {e}; nothing is compressed", path.display())),
            }
        }
        let mut bytes = text.into_bytes();
        broadcast(&world, 0, &mut bytes);
        if bytes.is_empty() {
            return None;
        }
        // All ranks come to the same result.
        let rules = Rules::parse(&String::from_utf8_lossy(&bytes));
        if let (Err(message), 0) = (&rules, world.rank()) {
            say(&format!("{VARIABLE}: {message}; nothing is compressed"));
        }
        rules.ok()
    });
}

/// A line for people.
pub(crate) fn say(message: &str) {
    eprintln!("pumice-mpi-shim: {message}");
}
