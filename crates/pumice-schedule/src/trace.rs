//! What a scheduler has done, and what it had planned: for pictures and for breakdowns of time.

use std::ops::Range;

use crate::schedule::Span;

/// A thread of the application, with what runs in its idle times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The thread that computes, and compression.
    Compute,
    /// The thread that communicates, and writes.
    Background,
}

/// What a thread did. Snapshots are numbered as they come, fields and blocks by their position.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Work of the application.
    Busy,
    /// The application waited for a snapshot to end, or for memory.
    Wait,
    /// The values of a snapshot were copied.
    Capture {
        /// The snapshot.
        snapshot: u64,
    },
    /// The values of a field were looked through.
    Scan {
        /// The snapshot.
        snapshot: u64,
        /// The field.
        field: usize,
    },
    /// A block was compressed.
    Compress {
        /// The snapshot.
        snapshot: u64,
        /// The field.
        field: usize,
        /// The block.
        block: usize,
    },
    /// Blocks that follow each other were written at once.
    Write {
        /// The snapshot.
        snapshot: u64,
        /// The field.
        field: usize,
        /// The blocks; none if only the end of the file was written.
        blocks: Range<usize>,
    },
    /// A snapshot got its name.
    Commit {
        /// The snapshot.
        snapshot: u64,
    },
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Where it ran.
    pub lane: Lane,
    /// What it was.
    pub activity: Activity,
    /// When, in seconds since the scheduler was made.
    pub span: Span,
}

/// All events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// What happened, in the order of ends.
    pub found: Vec<Event>,
    /// Snapshots, and what the first plan after each expected from then on.
    pub expected: Vec<(u64, Vec<Event>)>,
}
