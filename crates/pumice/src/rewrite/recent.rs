//! Streams that were read lately, found by the values that they restore.
//!
//! A filter or codec is given the values of a chunk, but not where they come from. To find out, [`Recent`] compares them
//! with what the streams of the same type and shape restore, by hashes of single values: of the latest such streams, and
//! of those that have some of a few hashes in common. [`update`] then compares all values bit by bit. So a wrong guess
//! costs time, never a value.
//!
//! Programs that only read pay for a copy of each stream: hashes are made when an array of that type and shape is
//! written for the first time after it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::codec::Element;
use crate::compress::compress;
use crate::decompress::{DecodeOptions, Info, Reader, inspect};
use crate::error::Result;
use crate::num::{DType, Int};
use crate::plan::{BoundKind, Config, ErrorBound, Preset};

/// Most hashes of an array. A larger one has a hash for one in so many of its values.
const MAX_HASHES: usize = 1 << 16;
/// Equal hashes count from one in so many on: fewer are chance.
const CHANCE: usize = 1 << 14;
/// Hashes by which an array is found among all others.
const KEYS: usize = 32;
/// All hashes of the latest arrays of the same type and shape are compared: those of so many values together, within
/// these limits.
const LATEST_VALUES: usize = 1 << 18;
const LATEST: std::ops::RangeInclusive<usize> = 4..=64;
/// So many of the latest streams, and of those that have most in common with an array, are taken to be what its values
/// come from: constant values may come from many.
const FOUND: usize = 2;
/// Tries to get the lock before the work is done without it. A process that was forked while another thread had the lock
/// never gets it.
const TRIES: usize = 10_000;

/// Remembers streams that were decompressed, so that values that are compressed again without a change keep their bits
/// (see [`update`](crate::update)). Filters and codecs of file formats use it: there, programs that copy a file or write a
/// part of a chunk pass on what they have read.
///
/// It keeps the streams, not the values, up to a limit, and forgets the oldest. What was forgotten, or was read by another
/// process, is compressed as any other array; so are values of a large array if fewer than one in 16384 are unchanged.
/// Threads may share it.
///
/// ```
/// use pumice::{Config, ErrorBound, Recent};
/// let (recent, config) = (Recent::new(1 << 20), Config::new(ErrorBound::Rel(1e-3)));
/// let field: Vec<f32> = (0..4096).map(|i| (i as f32 * 0.01).sin()).collect();
/// let stream = recent.compress(&field, &[64, 64], &config)?;
/// let restored = pumice::decompress::<f32>(&stream)?.data;
/// recent.remember(&stream);
/// assert_eq!(recent.compress(&restored, &[64, 64], &config)?, stream);
/// # Ok::<(), pumice::Error>(())
/// ```
#[derive(Debug)]
pub struct Recent {
    max_bytes: usize,
    kept: Mutex<Option<Kept>>,
}

/// What is remembered.
#[derive(Debug, Default)]
struct Kept {
    /// By their numbers, the oldest first.
    entries: BTreeMap<u64, Entry>,
    /// The number of the next entry.
    next: u64,
    /// The latest entry that has a key.
    by_key: HashMap<u64, u64>,
    n_bytes: usize,
}

/// Values come from streams of the same kind only: others are compressed anew.
#[derive(Clone, Debug, PartialEq)]
struct Kind {
    dtype: DType,
    shape: Vec<usize>,
    preset: Preset,
    /// Whether there is an absolute bound.
    is_absolute: bool,
}

impl Kind {
    fn of<T: Element>(shape: &[usize], config: &Config) -> Self {
        let is_absolute = config.bounds.iter().any(|bound| bound.kind() != BoundKind::PwRel);
        Self { dtype: T::DTYPE, shape: shape.to_vec(), preset: config.preset, is_absolute }
    }
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    stream: Arc<[u8]>,
    /// `None` until an array of this type and shape is written.
    hashes: Option<Hashes>,
}

impl Entry {
    /// Memory that it takes, roughly.
    fn n_bytes(&self) -> usize {
        let hashes =
            self.hashes.as_ref().map_or(0, |hashes| size_of_val(&hashes.all[..]) + KEYS * 4 * size_of::<u64>());
        size_of::<Self>() + self.stream.len() + hashes
    }
}

/// Hashes of values at fixed positions.
#[derive(Debug)]
struct Hashes {
    all: Vec<u32>,
    /// Some of them, for all arrays of this type and shape.
    keys: Vec<u64>,
}

/// The low bit of a hash says that the value is no fill value of its stream and differs from the one before it. Such values
/// tell arrays apart better.
const TELLS: u32 = 1;

impl Hashes {
    /// The hashes of an array that has values.
    fn new<T: Element>(values: &[T], shape: &[usize], fills: &[u64]) -> Self {
        let stride = values.len().div_ceil(MAX_HASHES);
        let hash = |i: usize| {
            // Anywhere in its part, so that no column of a row is left out.
            let at = (i * stride + mix(i as u64) as usize % stride).min(values.len() - 1);
            let bits = values[at].bits().to_i64() as u64;
            let is_fill = fills.contains(&values[at].to_bits_u64());
            let tells = !is_fill && at > 0 && values[at - 1].bits() != values[at].bits();
            ((bits ^ bits >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 & !TELLS | u32::from(tells)
        };
        let all: Vec<u32> = (0..values.len() / stride).map(hash).collect();
        let of_shape = shape.iter().fold(T::DTYPE.size() as u64, |hash, n| mix(hash ^ *n as u64));
        let key = |i: usize| mix(of_shape ^ mix(i as u64) ^ u64::from(all[i] & !TELLS));
        let part = all.len().div_ceil(KEYS);
        let telling = |i: &usize| (*i..all.len().min(i + part)).find(|i| all[*i] & TELLS != 0).unwrap_or(*i);
        let keys = (0..all.len()).step_by(part).map(|i| key(telling(&i))).collect();
        Self { all, keys }
    }

    /// Whether all are equal, and how many: of those of `self` that tell arrays apart, and in all.
    fn common(&self, other: &Self) -> (bool, usize, usize) {
        let count = |(telling, all): (usize, usize), (a, b): (&u32, &u32)| {
            let is_same = usize::from((a ^ b) & !TELLS == 0);
            (telling + (is_same & (a & TELLS) as usize), all + is_same)
        };
        match self.all.iter().zip(&other.all).fold((0, 0), count) {
            (_, all) if all == self.all.len() => (true, all, all),
            (telling, all) => (false, telling, all),
        }
    }
}

/// A bijection that spreads bits (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Recent {
    /// Keeps streams of up to `max_bytes` together, with what is needed to find them; 0 keeps none.
    pub const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, kept: Mutex::new(None) }
    }

    /// Remembers a stream, which was decompressed without an error.
    pub fn remember(&self, stream: &[u8]) {
        let Ok(Info { dtype, shape, preset, abs_bound, raw_bytes, .. }) = inspect(stream) else { return };
        if raw_bytes == 0 || stream.len() > self.max_bytes {
            return;
        }
        let kind = Kind { dtype, shape, preset, is_absolute: abs_bound.is_finite() };
        let entry = Entry { kind, stream: stream.into(), hashes: None };
        if let Some(mut kept) = self.lock() {
            kept.get_or_insert_default().add(entry, self.max_bytes);
        }
    }

    /// As [`compress`](crate::compress), but values that a stream has restored which is still remembered keep their bits.
    pub fn compress<T: Element>(&self, values: &[T], shape: &[usize], config: &Config) -> Result<Vec<u8>> {
        let found = match config.bounds.contains(&ErrorBound::Lossless) {
            true => Vec::new(),
            false => self.find(values, &Kind::of::<T>(shape, config)).unwrap_or_default(),
        };
        match found.split_first() {
            Some((before, others)) => super::update_among(before, others, values, config),
            None => compress(values, shape, config),
        }
    }

    /// The streams that some of the values seem to come from, the likeliest first.
    fn find<T: Element>(&self, values: &[T], kind: &Kind) -> Option<Vec<Arc<[u8]>>> {
        // Hashes are made while no lock is held.
        let new: Vec<(u64, Arc<[u8]>)> = self.lock()?.as_ref()?.without_hashes(kind);
        for (number, stream) in new {
            let hashes = Reader::new(&stream[..], DecodeOptions::new().threads(1)).and_then(|reader| {
                let fills: Vec<u64> = reader.info().fills.iter().map(|fill| T::from_f64(*fill).to_bits_u64()).collect();
                Ok(Hashes::new(&reader.read::<T>()?.data, &kind.shape, &fills))
            });
            self.lock()?.as_mut()?.set_hashes(number, hashes.ok(), self.max_bytes);
        }
        let is_any = self.lock()?.as_ref()?.entries.values().any(|entry| entry.kind == *kind);
        if values.is_empty() || !is_any {
            return None;
        }
        let hashes = Hashes::new(values, &kind.shape, &[]);
        Some(self.lock()?.as_ref()?.find(kind, &hashes))
    }

    /// The lock is held for short times only; see [`TRIES`].
    fn lock(&self) -> Option<MutexGuard<'_, Option<Kept>>> {
        for _ in 0..TRIES {
            match self.kept.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(e)) => return Some(PoisonError::into_inner(e)),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }
}

impl Kept {
    fn add(&mut self, mut entry: Entry, max_bytes: usize) {
        // A stream that is read again is the latest from then on.
        let mut latest = self.entries.iter().rev().take(*LATEST.end());
        if let Some(number) = latest.find(|(_, known)| known.stream == entry.stream).map(|(number, _)| *number) {
            entry.hashes = self.remove(number).and_then(|known| known.hashes);
        }
        let number = self.next;
        self.next += 1;
        self.n_bytes += entry.n_bytes();
        self.by_key.extend(entry.hashes.iter().flat_map(|hashes| &hashes.keys).map(|key| (*key, number)));
        self.entries.insert(number, entry);
        self.forget(max_bytes);
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.n_bytes -= entry.n_bytes();
        for key in entry.hashes.iter().flat_map(|hashes| &hashes.keys) {
            if self.by_key.get(key) == Some(&number) {
                self.by_key.remove(key);
            }
        }
        Some(entry)
    }

    /// Forgets the oldest until all others are within the limit.
    fn forget(&mut self, max_bytes: usize) {
        while self.n_bytes > max_bytes
            && let Some(oldest) = self.entries.keys().next().copied()
        {
            self.remove(oldest);
        }
    }

    fn without_hashes(&self, kind: &Kind) -> Vec<(u64, Arc<[u8]>)> {
        let is_new = |(_, entry): &(&u64, &Entry)| entry.kind == *kind && entry.hashes.is_none();
        let new = self.entries.iter().filter(is_new);
        new.map(|(number, entry)| (*number, Arc::clone(&entry.stream))).collect()
    }

    /// `None` for a stream that cannot be read after all: it is forgotten.
    fn set_hashes(&mut self, number: u64, hashes: Option<Hashes>, max_bytes: usize) {
        let Some(entry) = self.remove(number) else { return };
        let Some(hashes) = entry.hashes.or(hashes) else { return };
        self.by_key.extend(hashes.keys.iter().map(|key| (*key, number)));
        let entry = Entry { hashes: Some(hashes), ..entry };
        self.n_bytes += entry.n_bytes();
        self.entries.insert(number, entry);
        self.forget(max_bytes);
    }

    fn find(&self, kind: &Kind, hashes: &Hashes) -> Vec<Arc<[u8]>> {
        let n_latest = (LATEST_VALUES / hashes.all.len()).clamp(*LATEST.start(), *LATEST.end());
        let is_like = |(_, entry): &(&u64, &Entry)| entry.kind == *kind;
        let latest = self.entries.iter().rev().filter(is_like).take(n_latest).map(|(number, _)| *number);
        let mut numbers: Vec<u64> = hashes.keys.iter().filter_map(|key| self.by_key.get(key).copied()).collect();
        numbers.extend(latest);
        numbers.sort_unstable();
        numbers.dedup();
        let score = |number: u64| {
            let entry = self.entries.get(&number).filter(|entry| entry.kind == *kind)?;
            let common = entry.hashes.as_ref()?.common(hashes);
            (common.2 > hashes.all.len() / CHANCE).then(|| (common, number, Arc::clone(&entry.stream)))
        };
        let mut found: Vec<_> = numbers.into_iter().filter_map(score).collect();
        // Of equal ones the latest first.
        found.sort_by_key(|(common, number, _)| std::cmp::Reverse((*common, *number)));
        let newer = |number: u64| found.iter().filter(|(_, other, _)| *other > number).count();
        let is_taken = |(i, (_, number, _)): &(usize, &(_, u64, _))| *i < FOUND || newer(*number) < FOUND;
        found.iter().enumerate().filter(is_taken).map(|(_, (_, _, stream))| Arc::clone(stream)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompress;

    fn field(seed: u64) -> Vec<f32> {
        (0..2000).map(|i| ((i as f32 + seed as f32 * 77.0) * 0.013).sin() * 9.0).collect()
    }

    fn config() -> Config {
        Config::new(ErrorBound::Abs(0.01)).threads(1)
    }

    fn find(recent: &Recent, values: &[f32], shape: &[usize]) -> Option<Vec<Arc<[u8]>>> {
        recent.find(values, &Kind::of::<f32>(shape, &config()))
    }

    /// A stream and what it restores.
    fn written(seed: u64) -> (Vec<u8>, Vec<f32>) {
        let stream = crate::compress(&field(seed), &[40, 50], &config()).unwrap();
        let values = decompress::<f32>(&stream).unwrap().data;
        (stream, values)
    }

    #[test]
    fn the_right_stream_is_found_among_many() {
        let recent = Recent::new(1 << 22);
        let all: Vec<_> = (0..150).map(written).collect();
        all.iter().for_each(|(stream, _)| recent.remember(stream));
        for (stream, values) in &all {
            assert_eq!(recent.compress(values, &[40, 50], &config()).unwrap(), *stream);
        }
        // Other shapes and values are none of them.
        assert_eq!(find(&recent, &all[0].1, &[50, 40]), None);
        assert_eq!(find(&recent, &[12345.0; 2000], &[40, 50]), Some(Vec::new()));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let recent = Recent::new(64 << 10);
        let all: Vec<_> = (0..40).map(written).collect();
        for (stream, values) in &all {
            recent.remember(stream);
            assert!(find(&recent, values, &[40, 50]).is_some());
            let kept = recent.lock().unwrap();
            let kept = kept.as_ref().unwrap();
            assert!(kept.n_bytes <= 64 << 10);
            assert_eq!(kept.n_bytes, kept.entries.values().map(Entry::n_bytes).sum::<usize>());
        }
        let found =
            |i: usize| find(&recent, &all[i].1, &[40, 50]).unwrap().first().is_some_and(|first| **first == all[i].0);
        assert!(!found(0) && found(39));
        let kept = recent.lock().unwrap();
        let kept = kept.as_ref().unwrap();
        assert!(kept.by_key.values().all(|number| kept.entries.contains_key(number)));
    }

    #[test]
    fn reading_again_does_not_fill_the_memory() {
        let recent = Recent::new(1 << 20);
        let (stream, _) = written(1);
        (0..100).for_each(|_| recent.remember(&stream));
        assert_eq!(recent.lock().unwrap().as_ref().unwrap().entries.len(), 1);
    }

    #[test]
    fn a_lock_that_is_never_released_does_not_hang() {
        let recent = Recent::new(1 << 20);
        recent.remember(&written(1).0);
        let _held = recent.lock().unwrap();
        assert_eq!(recent.compress(&field(2), &[40, 50], &config()).unwrap(), written(2).0);
    }

    #[test]
    fn a_single_value_that_was_kept_is_enough() {
        for preset in [crate::Preset::Small, crate::Preset::Max, crate::Preset::Fast] {
            let config = config().preset(preset);
            let recent = Recent::new(1 << 20);
            let stream = crate::compress(&field(1), &[40, 50], &config).unwrap();
            let restored = decompress::<f32>(&stream).unwrap().data;
            recent.remember(&stream);
            for at in [0, 777, 1999] {
                let mut values = field(5);
                values[at] = restored[at];
                let again = decompress::<f32>(&recent.compress(&values, &[40, 50], &config).unwrap()).unwrap().data;
                assert_eq!(again[at].to_bits(), restored[at].to_bits(), "{preset:?} at {at}");
                assert!(again.iter().zip(&values).all(|(a, b)| (a - b).abs() <= 0.01));
            }
        }
    }
}
