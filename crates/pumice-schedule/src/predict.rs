//! Predictions: what the tasks of a block will take, from what they took before.
//!
//! A block of a field is expected to be like the same block of the snapshot before; one that was never seen like the
//! mean of its field, or of all fields; and before anything was seen, like a [`Model`]. Writes are a time for each and
//! a time for each byte, fitted to the last ones.

use std::collections::HashMap;

/// What is expected before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Speed of looking through values before they are compressed.
    pub scanned_bytes_per_second: f64,
    /// Speed of compression, in bytes of values.
    pub compressed_bytes_per_second: f64,
    /// How many times smaller blocks get.
    pub ratio: f64,
    /// Speed of storage.
    pub written_bytes_per_second: f64,
    /// What each write costs beside its bytes.
    pub seconds_per_write: f64,
}

impl Default for Model {
    /// One core with the preset `small`, and a share of a parallel file system.
    fn default() -> Self {
        Self {
            scanned_bytes_per_second: 1e9,
            compressed_bytes_per_second: 5e7,
            ratio: 5.0,
            written_bytes_per_second: 2e8,
            seconds_per_write: 1e-3,
        }
    }
}

/// Share of a new measurement in what is known: half, so that noise of one snapshot does not count for long.
const NEW: f64 = 0.5;
/// What an older write still counts for when the next one is known.
const KEPT: f64 = 0.95;

/// What a block was like.
#[derive(Clone, Copy, Debug)]
struct Seen {
    seconds_per_byte: f64,
    size: f64,
}

impl Seen {
    fn mix(&mut self, new: Seen, share: f64) {
        self.seconds_per_byte += share * (new.seconds_per_byte - self.seconds_per_byte);
        self.size += share * (new.size - self.size);
    }
}

#[derive(Clone, Debug, Default)]
struct FieldHistory {
    blocks: HashMap<usize, Seen>,
    mean: Option<Seen>,
    scan_seconds_per_byte: Option<f64>,
}

/// Adds a block to a mean over about the last 16.
fn add(mean: &mut Option<Seen>, seen: Seen) {
    match mean {
        Some(mean) => mean.mix(seen, 1.0 / 16.0),
        None => *mean = Some(seen),
    }
}

/// Sums over writes, of which older ones count less.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    n: f64,
    bytes: f64,
    seconds: f64,
    bytes_squared: f64,
    bytes_seconds: f64,
}

/// Predicts what tasks take.
#[derive(Clone, Debug)]
pub struct Predictor {
    model: Model,
    fields: HashMap<String, FieldHistory>,
    all: Option<Seen>,
    writes: Writes,
    commit_seconds: Option<f64>,
}

impl Predictor {
    /// One that has seen nothing yet.
    pub fn new(model: Model) -> Self {
        Self { model, fields: HashMap::new(), all: None, writes: Writes::default(), commit_seconds: None }
    }

    fn block(&self, field: &str, block: usize) -> Seen {
        let of_field = self.fields.get(field).and_then(|field| field.blocks.get(&block).copied().or(field.mean));
        of_field.or(self.all).unwrap_or(Seen {
            seconds_per_byte: 1.0 / self.model.compressed_bytes_per_second,
            size: 1.0 / self.model.ratio,
        })
    }

    /// Seconds that it takes to compress a block with so many bytes of values.
    pub fn compression(&self, field: &str, block: usize, value_bytes: usize) -> f64 {
        self.block(field, block).seconds_per_byte * value_bytes as f64
    }

    /// The size of a block that has so many bytes of values, once it is compressed.
    pub fn compressed_bytes(&self, field: &str, block: usize, value_bytes: usize) -> f64 {
        self.block(field, block).size * value_bytes as f64
    }

    /// Seconds that it takes to look through so many bytes of values before their blocks are compressed.
    pub fn scan(&self, field: &str, value_bytes: usize) -> f64 {
        let known = self.fields.get(field).and_then(|field| field.scan_seconds_per_byte);
        known.unwrap_or(1.0 / self.model.scanned_bytes_per_second) * value_bytes as f64
    }

    /// Seconds that one write of so many bytes takes.
    pub fn write(&self, bytes: f64) -> f64 {
        let (per_write, per_byte) = self.write_costs();
        per_write + per_byte * bytes
    }

    /// Seconds of a write, and of each of its bytes.
    fn write_costs(&self) -> (f64, f64) {
        let Model { seconds_per_write, written_bytes_per_second, .. } = self.model;
        let Writes { n, bytes, seconds, bytes_squared, bytes_seconds } = self.writes;
        if n == 0.0 {
            return (seconds_per_write, 1.0 / written_bytes_per_second);
        }
        let spread = n * bytes_squared - bytes * bytes;
        // Writes of one size say nothing about what a byte costs.
        if spread > 1e-3 * bytes * bytes {
            let per_byte = (n * bytes_seconds - bytes * seconds) / spread;
            let per_write = (seconds - per_byte * bytes) / n;
            if per_byte > 0.0 && per_write >= 0.0 {
                return (per_write, per_byte);
            }
        }
        (0.0, if bytes > 0.0 { seconds / bytes } else { 0.0 })
    }

    /// Seconds that it takes to give a snapshot its name.
    pub fn commit(&self) -> f64 {
        self.commit_seconds.unwrap_or(self.model.seconds_per_write)
    }

    /// Learns from a compressed block.
    pub fn saw_compression(&mut self, field: &str, block: usize, value_bytes: usize, bytes: usize, seconds: f64) {
        let n = value_bytes.max(1) as f64;
        let seen = Seen { seconds_per_byte: seconds / n, size: bytes as f64 / n };
        let history = self.fields.entry(field.to_owned()).or_default();
        history.blocks.entry(block).and_modify(|known| known.mix(seen, NEW)).or_insert(seen);
        add(&mut history.mean, seen);
        add(&mut self.all, seen);
    }

    /// Learns from values that were looked through.
    pub fn saw_scan(&mut self, field: &str, value_bytes: usize, seconds: f64) {
        let seen = seconds / value_bytes.max(1) as f64;
        let known = &mut self.fields.entry(field.to_owned()).or_default().scan_seconds_per_byte;
        *known = Some(known.map_or(seen, |known| known + NEW * (seen - known)));
    }

    /// Learns from a write.
    pub fn saw_write(&mut self, bytes: usize, seconds: f64) {
        let (b, writes) = (bytes as f64, &mut self.writes);
        writes.n = KEPT * writes.n + 1.0;
        writes.bytes = KEPT * writes.bytes + b;
        writes.seconds = KEPT * writes.seconds + seconds;
        writes.bytes_squared = KEPT * writes.bytes_squared + b * b;
        writes.bytes_seconds = KEPT * writes.bytes_seconds + b * seconds;
    }

    /// Learns from a snapshot that got its name.
    pub fn saw_commit(&mut self, seconds: f64) {
        self.commit_seconds = Some(self.commit_seconds.map_or(seconds, |known| known + NEW * (seconds - known)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_expected_to_be_like_the_nearest_that_was_seen() {
        let model = Model { compressed_bytes_per_second: 100.0, ratio: 4.0, ..Model::default() };
        let mut predictor = Predictor::new(model);
        assert_eq!(predictor.compression("a", 0, 200), 2.0);
        assert_eq!(predictor.compressed_bytes("a", 0, 200), 50.0);
        predictor.saw_compression("a", 0, 100, 10, 0.5);
        assert_eq!(predictor.compression("a", 0, 200), 1.0);
        assert_eq!(predictor.compressed_bytes("a", 7, 200), 20.0); // another block
        assert_eq!(predictor.compressed_bytes("b", 3, 200), 20.0); // another field
        predictor.saw_compression("a", 0, 100, 20, 0.5);
        assert!((predictor.compressed_bytes("a", 0, 100) - 15.0).abs() < 1e-9);
        predictor.saw_scan("a", 100, 1.0);
        assert_eq!(predictor.scan("a", 300), 3.0);
    }

    #[test]
    fn writes_are_fitted_by_a_line() {
        let mut predictor = Predictor::new(Model::default());
        (1..20_usize).for_each(|n| predictor.saw_write(1000 * n, 0.01 + 0.002 * n as f64));
        assert!((predictor.write(5000.0) - 0.02).abs() < 1e-9);
        // Of one size: what they cost in all.
        let mut predictor = Predictor::new(Model::default());
        (0..9).for_each(|_| predictor.saw_write(1000, 0.1));
        assert!((predictor.write(2000.0) - 0.2).abs() < 1e-9);
        predictor.saw_commit(2.0);
        assert_eq!(predictor.commit(), 2.0);
    }
}
