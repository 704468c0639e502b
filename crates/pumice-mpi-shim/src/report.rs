//! What was saved, and what was not compressed and why: said at the end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::Summary;

use crate::agreement::{broadcast, reduce};
use crate::session::{rules, say};

struct Record {
    lines: Vec<String>,
    /// Lines that were too many.
    n_more: i64,
    n_files: i64,
    raw_bytes: i64,
    compressed_bytes: i64,
    read_bytes: i64,
    gathers: Gathers,
}

/// Gathers of this rank as the root, and what it has sent.
struct Gathers {
    n_compressed: i64,
    gathered_bytes: i64,
    sent_bytes: i64,
    n_passed: [i64; REASONS.len()],
}

/// Lines about files that each rank keeps.
const MAX_LINES: usize = 100;

/// Why gathers were not compressed.
pub(crate) const REASONS: [&str; 3] = [QUICK_LINK, OTHER_TYPES, ERRORS];
pub(crate) const QUICK_LINK: &str = "the link is quicker";
pub(crate) const OTHER_TYPES: &str = "other types, or memory that is not contiguous";
pub(crate) const ERRORS: &str = "errors";

static RECORD: Mutex<Record> = Mutex::new(Record::NEW);

impl Record {
    const NEW: Self = Self {
        lines: Vec::new(),
        n_more: 0,
        n_files: 0,
        raw_bytes: 0,
        compressed_bytes: 0,
        read_bytes: 0,
        gathers: Gathers { n_compressed: 0, gathered_bytes: 0, sent_bytes: 0, n_passed: [0; REASONS.len()] },
    };

    fn line(&mut self, line: String) {
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        } else {
            self.n_more += 1;
        }
    }
}

fn record() -> MutexGuard<'static, Record> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file was compressed. Its first rank says it.
pub(crate) fn compressed(name: &str, summary: &Summary) {
    let mut record = record();
    record.n_files += 1;
    record.raw_bytes += summary.raw_bytes as i64;
    record.compressed_bytes += summary.compressed_bytes as i64;
    let (raw, ratio) = (bytes(summary.raw_bytes as i64), summary.ratio());
    record.line(format!("{name}: {raw} became {}, ratio {ratio:.1}", bytes(summary.compressed_bytes as i64)));
}

/// A file that a rule names was not compressed. Its first rank says it.
pub(crate) fn passed(name: &str, reason: &str) {
    record().line(format!("{name}: not compressed: {reason}"));
}

/// Bytes that this rank has read of compressed files.
pub(crate) fn read(n_bytes: u64) {
    record().read_bytes += n_bytes as i64;
}

/// A gather of so many bytes, of which this rank has sent some in compressed form.
pub(crate) fn gathered(is_root: bool, n_bytes: u64, sent_bytes: u64) {
    let gathers = &mut record().gathers;
    gathers.sent_bytes += sent_bytes as i64;
    if is_root {
        gathers.n_compressed += 1;
        gathers.gathered_bytes += n_bytes as i64;
    }
}

/// A gather that is large enough was not compressed. Its root says it.
pub(crate) fn not_gathered(reason: &'static str) {
    if let Some(i) = REASONS.iter().position(|known| *known == reason) {
        record().gathers.n_passed[i] += 1;
    }
}

/// The end of the run, with all ranks.
pub(crate) fn finish() {
    let Some(rules) = rules() else { return };
    let world = SimpleCommunicator::world();
    let mine = std::mem::replace(&mut *record(), Record::NEW);
    let gathers = &mine.gathers;
    let [n_files, raw, compressed, read, n_gathers, gathered, sent, n_more] = reduce(
        &world,
        [
            mine.n_files,
            mine.raw_bytes,
            mine.compressed_bytes,
            mine.read_bytes,
            gathers.n_compressed,
            gathers.gathered_bytes,
            gathers.sent_bytes,
            mine.n_more,
        ],
        SystemOperation::sum(),
    );
    let n_passed = reduce(&world, gathers.n_passed, SystemOperation::sum());
    let lines = all_lines(&world, mine.lines);
    if world.rank() != 0 {
        return;
    }
    let mut text = String::new();
    lines.iter().for_each(|line| text += &format!("{line}\n"));
    if n_more > 0 {
        text += &format!("{n_more} more files\n");
    }
    if n_files > 1 {
        text += &format!("{n_files} files: {} became {}\n", bytes(raw), bytes(compressed));
    }
    if read > 0 {
        text += &format!("read: {} of compressed files\n", bytes(read));
    }
    if n_gathers > 0 {
        let (all, sent) = (bytes(gathered), bytes(sent));
        text += &format!("gathers: {n_gathers} compressed, of {all} in all, for which {sent} were sent\n");
    }
    for (n, reason) in n_passed.iter().zip(REASONS).filter(|(n, _)| **n > 0) {
        text += &format!("gathers: {n} not compressed: {reason}\n");
    }
    if text.is_empty() {
        text += "nothing was compressed: no file or gather that the rules name\n";
    }
    match &rules.report {
        None => text.lines().for_each(say),
        Some(path) => {
            if let Err(e) = std::fs::write(path, &text) {
                say(&format!("{path}: {e}"));
                text.lines().for_each(say);
            }
        }
    }
}

/// The lines of all ranks, on rank 0.
fn all_lines(world: &SimpleCommunicator, mine: Vec<String>) -> Vec<String> {
    let mut with_lines = vec![0_u8; world.size() as usize];
    world.all_gather_into(&u8::from(!mine.is_empty()), &mut with_lines[..]);
    let mut all = Vec::new();
    for rank in (0..).zip(with_lines).filter(|(_, has)| *has == 1).map(|(rank, _)| rank) {
        let mut text = if rank == world.rank() { mine.join("\n").into_bytes() } else { Vec::new() };
        broadcast(world, rank, &mut text);
        all.extend(String::from_utf8_lossy(&text).lines().map(String::from));
    }
    all
}

fn bytes(n: i64) -> String {
    let n = n as f64;
    match n {
        _ if n < 1024.0 => format!("{n} bytes"),
        _ if n < 1024.0 * 1024.0 => format!("{:.1} KiB", n / 1024.0),
        _ if n < 1024.0 * 1024.0 * 1024.0 => format!("{:.1} MiB", n / 1024.0 / 1024.0),
        _ => format!("{:.1} GiB", n / 1024.0 / 1024.0 / 1024.0),
    }
}
