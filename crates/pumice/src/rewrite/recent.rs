//! Streams that were read lately, found by the values that they restore.
//!
//! A filter or codec is given the values of a chunk, but not where they come from. To find out, [`Recent`] looks for
//! streams of the same type and shape that restore the same values at a few fixed positions. Those that were read last
//! are compared at many more positions, as little may be left of them: a program that appends reads what it writes to.
//! [`update`](crate::update) then compares all values bit by bit. So a wrong guess costs time, never a value.
//!
//! Programs that only read pay for a copy of each stream: its values are looked at when an array of that type and shape
//! is written for the first time after it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::codec::Element;
use crate::compress::compress;
use crate::decompress::{Info, Reader, inspect};
use crate::error::{ErrorKind, Result};
use crate::exec;
use crate::io::checksum;
use crate::num::{DType, Int};
use crate::plan::{BoundKind, Config, ErrorBound, Preset, Stable};

/// Positions by which an array is found among all others.
const MAX_KEYS: usize = 128;
/// Memory for a key: itself, and its entry in the table.
const KEY_BYTES: usize = 40;
/// Most values of an array that are hashed to compare it with the latest ones.
const MAX_HASHES: usize = 1 << 16;
/// Equal hashes count from one in so many on: fewer are chance.
const CHANCE: usize = 1 << 14;
/// How many arrays of the same type and shape are the latest: those of so many hashes together, within these limits,
/// among so many of all types and shapes.
const LATEST_HASHES: usize = 1 << 20;
const LATEST: std::ops::RangeInclusive<usize> = 4..=64;
const LATEST_OF_ALL: usize = 1 << 10;
/// The most streams that an array is taken to come from, as when files are put together.
const MAX_FOUND: usize = 16;
/// Attempts of a forked process to take a lock, which a thread of its parent may have had: then nobody releases it.
const ATTEMPTS: usize = 10_000;

/// Remembers streams that were decompressed, so that values that are compressed again without a change keep their bits
/// (see [`update`](crate::update)). Filters and codecs of file formats use it: there, programs that copy a file or write a
/// part of a chunk pass on what they have read.
///
/// It keeps the streams, not the values, up to a limit, and forgets the oldest. What was forgotten, or was read by another
/// process, is compressed as any other array. So are values of a large array of which little is left, values at another
/// position, and an array for whose search there is no memory. Threads may share it.
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
    kept: Lock<Option<Kept>>,
    /// Held while new streams are looked at, so that one thread does it for all.
    is_indexing: Lock<()>,
}

/// A lock that a forked process does not wait for in vain.
#[derive(Debug)]
struct Lock<T> {
    value: Mutex<T>,
    /// The process that had the lock last.
    process: AtomicU32,
}

impl<T> Lock<T> {
    const fn new(value: T) -> Self {
        Self { value: Mutex::new(value), process: AtomicU32::new(0) }
    }

    /// `None` if it seems that nobody will release the lock.
    fn take(&self) -> Option<MutexGuard<'_, T>> {
        let process = std::process::id();
        for _ in 0..ATTEMPTS {
            let is_ours = self.process.load(Ordering::Acquire) == process;
            let taken = match is_ours {
                true => self.value.lock().map_err(TryLockError::Poisoned),
                false => self.value.try_lock(),
            };
            let guard = match taken {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(e)) => PoisonError::into_inner(e),
                Err(TryLockError::WouldBlock) => {
                    std::thread::yield_now();
                    continue;
                }
            };
            self.process.store(process, Ordering::Release);
            return Some(guard);
        }
        None
    }
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
    /// The entry of a stream, by a hash of its bytes.
    by_stream: HashMap<u64, u64>,
    /// Entries without keys, by a hash of their kind.
    without_keys: HashMap<u64, BTreeSet<u64>>,
    /// Entries with hashes, the first to get them first.
    with_hashes: VecDeque<u64>,
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
    /// Whether the values are on the lattice of the stable mode, or have to be.
    is_stable: bool,
}

impl Kind {
    fn of<T: Element>(shape: &[usize], config: &Config) -> Self {
        let is_absolute = config.bounds.iter().any(|bound| bound.kind() != BoundKind::PwRel);
        let is_stable = config.stable == Some(Stable::On);
        Self { dtype: T::DTYPE, shape: shape.to_vec(), preset: config.preset, is_absolute, is_stable }
    }

    /// Whether values of this kind may come from a stream of another one.
    fn is_served_by(&self, other: &Self) -> bool {
        (other.is_stable || !self.is_stable) && Self { is_stable: other.is_stable, ..self.clone() } == *other
    }

    /// The same for all kinds that differ in their lattice only.
    fn hash(&self) -> u64 {
        let of_type = [self.dtype.size() as u64, self.preset as u64, u64::from(self.is_absolute)];
        of_type.into_iter().chain(self.shape.iter().map(|n| *n as u64)).fold(0, |hash, n| mix(hash ^ n))
    }
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    stream: Arc<[u8]>,
    /// None until an array of this type and shape is written.
    keys: Vec<u64>,
    /// Only of the latest entries, and only if they were needed.
    hashes: Option<Arc<[u32]>>,
}

impl Entry {
    /// Memory that it takes, roughly. Hashes, which only a few entries have, do not count.
    fn n_bytes(&self) -> usize {
        size_of::<Self>() + self.stream.len() + self.keys.len() * KEY_BYTES
    }
}

/// What a stream restores, an array like `values`; `None` if there is no memory for it.
fn restored<T: Element>(stream: &[u8], values: &[T]) -> Option<Vec<T>> {
    let reader = Reader::new(stream, super::to_read(values, 1)).ok()?;
    reader.read::<T>().ok().map(|array| array.data)
}

/// Positions in an array, one in each of `n` parts of the same size, and anywhere in it, so that no column of a row is left
/// out. There are at least n values.
fn positions(n_values: usize, n: usize) -> impl Iterator<Item = usize> {
    (0..n).map(move |i| {
        let part = (i as u128 * n_values as u128 / n as u128) as usize;
        let next = ((i + 1) as u128 * n_values as u128 / n as u128) as usize;
        part + mix(i as u64) as usize % (next - part)
    })
}

/// Whether a value differs from the one before it: constant parts, such as fill values, do not tell arrays apart.
fn tells<T: Element>(values: &[T], at: usize) -> bool {
    at > 0 && values[at - 1].bits() != values[at].bits()
}

fn bits<T: Element>(value: T) -> u64 {
    value.bits().to_i64() as u64
}

/// Kind, position and value as one number each, and whether the value tells arrays apart.
fn keys<T: Element>(values: &[T], kind: &Kind) -> Vec<(u64, bool)> {
    let of_kind = kind.hash();
    let n = values.len().min(MAX_KEYS);
    let key = |(i, at): (usize, usize)| (mix(mix(of_kind ^ i as u64) ^ bits(values[at])), tells(values, at));
    positions(values.len(), n).enumerate().map(key).collect()
}

/// Set in the hash of a value that tells arrays apart.
const TELLS: u32 = 1;

fn hashes<T: Element>(values: &[T]) -> Vec<u32> {
    let hash = |at: usize| (mix(bits(values[at])) >> 32) as u32 & !TELLS | u32::from(tells(values, at));
    positions(values.len(), values.len().min(MAX_HASHES)).map(hash).collect()
}

/// How many values a stream explains: of those that tell arrays apart, and of all.
type Votes = (usize, usize);

/// The fewest arrays that explain most hashes of one, the best first, each with what those before it do not explain.
fn cover(own: &[u32], mut others: Vec<(u64, Arc<[u32]>)>) -> Vec<(Votes, u64)> {
    let mut is_open = vec![true; own.len()];
    let mut found = Vec::new();
    while found.len() < MAX_FOUND {
        let votes = |other: &[u32], is_open: &[bool]| -> Votes {
            let count = |(telling, all): Votes, ((a, b), open): ((&u32, &u32), &bool)| {
                let is_same = usize::from((a ^ b) & !TELLS == 0 && *open);
                (telling + (is_same & (a & TELLS) as usize), all + is_same)
            };
            own.iter().zip(other).zip(is_open).fold((0, 0), count)
        };
        let each = others.iter().enumerate().map(|(i, (number, other))| (votes(other, &is_open), *number, i));
        let Some((votes, number, i)) = each.max() else { break };
        // A few equal hashes are chance. Constant values may come from many arrays: the latest of them is enough.
        if votes.1 <= own.len() / CHANCE || (votes.0 == 0 && !found.is_empty()) {
            break;
        }
        let (_, other) = others.swap_remove(i);
        is_open.iter_mut().zip(own.iter().zip(&*other)).for_each(|(open, (a, b))| *open &= (a ^ b) & !TELLS != 0);
        found.push((votes, number));
    }
    found
}

/// A bijection that spreads bits (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Recent {
    /// Keeps streams of up to `max_bytes` together, with the 5 KiB that it takes to find each of them; 0 keeps none.
    pub const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, kept: Lock::new(None), is_indexing: Lock::new(()) }
    }

    /// Remembers a stream, which was decompressed without an error.
    pub fn remember(&self, stream: &[u8]) {
        let Ok(Info { dtype, shape, preset, stable, abs_bound, raw_bytes, .. }) = inspect(stream) else { return };
        if raw_bytes == 0 || stream.len() > self.max_bytes || exec::check_memory(stream.len() as u64).is_err() {
            return;
        }
        let kind = Kind { dtype, shape, preset, is_absolute: abs_bound.is_finite(), is_stable: stable };
        let entry = Entry { kind, stream: stream.into(), keys: Vec::new(), hashes: None };
        if let Some(mut kept) = self.kept.take() {
            kept.get_or_insert_default().add(entry, self.max_bytes);
        }
    }

    /// As [`compress`](crate::compress), but values that a stream has restored which is still remembered keep their bits.
    pub fn compress<T: Element>(&self, values: &[T], shape: &[usize], config: &Config) -> Result<Vec<u8>> {
        let is_kept = !config.bounds.contains(&ErrorBound::Lossless) && !values.is_empty();
        let found = if is_kept { self.find(values, &Kind::of::<T>(shape, config)) } else { None };
        if let Some(Found { streams, first }) = found
            && let Some((before, others)) = streams.split_first()
        {
            match super::update_among(before, first, others, values, config) {
                Err(error) if error.kind() == ErrorKind::LimitExceeded => {}
                updated => return updated,
            }
        }
        compress(values, shape, config)
    }

    /// The streams that some of the values seem to come from, the likeliest first.
    fn find<T: Element>(&self, values: &[T], kind: &Kind) -> Option<Found<T>> {
        if self.kept.take()?.is_none() {
            return None;
        }
        self.index(values, kind)?;
        let keys = keys(values, kind);
        let mut found = self.kept.take()?.as_ref()?.with_keys(kind, &keys);
        if let Some((_, number)) = found.iter().find(|(votes, _)| votes.1 == keys.len()) {
            // In most cases nothing was changed.
            let stream = self.kept.take()?.as_ref()?.entries.get(number).map(|entry| Arc::clone(&entry.stream))?;
            let is_same = |known: &Vec<T>| known.iter().zip(values).all(|(a, b)| a.bits() == b.bits());
            if let Some(known) = restored(&stream, values).filter(is_same) {
                return Some(Found { streams: vec![stream], first: Some(known) });
            }
        }
        let latest = self.latest(values, kind)?;
        found.retain(|(_, number)| latest.iter().all(|(_, other)| number != other));
        // Keys are fewer than hashes.
        let scale = values.len().min(MAX_HASHES) / keys.len();
        found.iter_mut().for_each(|((telling, all), _)| (*telling, *all) = (*telling * scale, *all * scale));
        found.extend(latest);
        // Of equal ones the latest first.
        found.sort_unstable_by_key(|found| std::cmp::Reverse(*found));
        let kept = self.kept.take()?;
        let entries = &kept.as_ref()?.entries;
        let streams = found.iter().filter_map(|(_, number)| entries.get(number));
        let streams = streams.take(MAX_FOUND).map(|entry| Arc::clone(&entry.stream)).collect();
        Some(Found { streams, first: None })
    }

    /// Gives keys to entries of a kind that have none.
    fn index<T: Element>(&self, values: &[T], kind: &Kind) -> Option<()> {
        let _held = self.is_indexing.take()?;
        let new = self.kept.take()?.as_mut()?.without_keys.remove(&kind.hash()).unwrap_or_default();
        for number in new {
            // The lock is not held while streams are decompressed.
            let stream = self.kept.take()?.as_ref()?.entries.get(&number).map(|entry| Arc::clone(&entry.stream));
            let keys = stream.and_then(|stream| restored(&stream, values)).map(|known| keys(&known, kind));
            self.kept.take()?.as_mut()?.set_keys(number, keys, self.max_bytes);
        }
        Some(())
    }

    /// The latest entries that have some of the values.
    fn latest<T: Element>(&self, values: &[T], kind: &Kind) -> Option<Vec<(Votes, u64)>> {
        let own = hashes(values);
        let n = (LATEST_HASHES / own.len()).clamp(*LATEST.start(), *LATEST.end());
        let latest = self.kept.take()?.as_ref()?.latest(kind, n);
        let mut others = Vec::new();
        for Latest { number, stream, hashes: known } in latest {
            let other = match known {
                Some(known) => known,
                None => {
                    let Some(known) = restored(&stream, values) else { continue };
                    let made: Arc<[u32]> = hashes(&known).into();
                    self.kept.take()?.as_mut()?.set_hashes(number, Arc::clone(&made));
                    made
                }
            };
            others.push((number, other));
        }
        Some(cover(&own, others))
    }
}

/// The streams that some values seem to come from, and what the first of them restores, if that is known.
struct Found<T> {
    streams: Vec<Arc<[u8]>>,
    first: Option<Vec<T>>,
}

/// An entry that was added lately.
struct Latest {
    number: u64,
    stream: Arc<[u8]>,
    hashes: Option<Arc<[u32]>>,
}

impl Kept {
    fn add(&mut self, mut entry: Entry, max_bytes: usize) {
        let of_stream = checksum::xxh3(&entry.stream);
        // A stream that is read again is the latest from then on.
        if let Some(number) = self.by_stream.get(&of_stream).copied()
            && self.entries.get(&number).is_some_and(|known| known.stream == entry.stream)
            && let Some(known) = self.remove(number)
        {
            entry = known;
        }
        let number = self.next;
        self.next += 1;
        self.by_stream.insert(of_stream, number);
        if entry.hashes.is_some() {
            self.with_hashes.push_back(number);
        }
        if entry.keys.is_empty() {
            self.without_keys.entry(entry.kind.hash()).or_default().insert(number);
        }
        self.insert(number, entry, max_bytes);
    }

    fn insert(&mut self, number: u64, entry: Entry, max_bytes: usize) {
        self.n_bytes += entry.n_bytes();
        self.by_key.extend(entry.keys.iter().map(|key| (*key, number)));
        self.entries.insert(number, entry);
        while self.n_bytes > max_bytes
            && let Some(oldest) = self.entries.keys().next().copied()
        {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.n_bytes -= entry.n_bytes();
        for key in &entry.keys {
            if self.by_key.get(key) == Some(&number) {
                self.by_key.remove(key);
            }
        }
        let of_stream = checksum::xxh3(&entry.stream);
        if self.by_stream.get(&of_stream) == Some(&number) {
            self.by_stream.remove(&of_stream);
        }
        if entry.keys.is_empty()
            && let Some(numbers) = self.without_keys.get_mut(&entry.kind.hash())
        {
            numbers.remove(&number);
        }
        Some(entry)
    }

    /// `None` for a stream that cannot be read: it is forgotten.
    fn set_keys(&mut self, number: u64, keys: Option<Vec<(u64, bool)>>, max_bytes: usize) {
        let (Some(entry), Some(keys)) = (self.remove(number), keys) else { return };
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        self.insert(number, Entry { keys, ..entry }, max_bytes);
    }

    fn set_hashes(&mut self, number: u64, hashes: Arc<[u32]>) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.hashes = Some(hashes);
            self.with_hashes.push_back(number);
        }
        while self.with_hashes.len() > *LATEST.end()
            && let Some(first) = self.with_hashes.pop_front()
        {
            self.entries.entry(first).and_modify(|entry| entry.hashes = None);
        }
    }

    /// Entries that have some of these keys, with how many: of those that tell arrays apart, and in all.
    fn with_keys(&self, kind: &Kind, keys: &[(u64, bool)]) -> Vec<(Votes, u64)> {
        let mut votes: HashMap<u64, Votes> = HashMap::new();
        for (key, tells) in keys {
            if let Some(number) = self.by_key.get(key) {
                let (telling, all) = votes.entry(*number).or_default();
                (*telling, *all) = (*telling + usize::from(*tells), *all + 1);
            }
        }
        let is_like = |number: &u64| self.entries.get(number).is_some_and(|entry| kind.is_served_by(&entry.kind));
        votes.into_iter().filter(|(number, _)| is_like(number)).map(|(number, votes)| (votes, number)).collect()
    }

    fn latest(&self, kind: &Kind, n: usize) -> Vec<Latest> {
        let latest =
            self.entries.iter().rev().take(LATEST_OF_ALL).filter(|(_, entry)| kind.is_served_by(&entry.kind)).take(n);
        let parts = |(number, entry): (&u64, &Entry)| Latest {
            number: *number,
            stream: Arc::clone(&entry.stream),
            hashes: entry.hashes.clone(),
        };
        latest.map(parts).collect()
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

    fn find(recent: &Recent, values: &[f32], shape: &[usize]) -> Vec<Arc<[u8]>> {
        recent.find(values, &Kind::of::<f32>(shape, &config())).unwrap().streams
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
        assert!(find(&recent, &all[0].1, &[50, 40]).is_empty());
        assert!(find(&recent, &[12345.0; 2000], &[40, 50]).is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let recent = Recent::new(64 << 10);
        let all: Vec<_> = (0..40).map(written).collect();
        for (stream, values) in &all {
            recent.remember(stream);
            assert!(!find(&recent, values, &[40, 50]).is_empty());
            let kept = recent.kept.take().unwrap();
            let kept = kept.as_ref().unwrap();
            assert!(kept.n_bytes <= 64 << 10);
            assert_eq!(kept.n_bytes, kept.entries.values().map(Entry::n_bytes).sum::<usize>());
        }
        let found = |i: usize| find(&recent, &all[i].1, &[40, 50]).first().is_some_and(|first| **first == all[i].0);
        assert!(!found(0) && found(39));
        let kept = recent.kept.take().unwrap();
        let kept = kept.as_ref().unwrap();
        assert!(kept.by_key.values().all(|number| kept.entries.contains_key(number)));
    }

    #[test]
    fn reading_again_does_not_fill_the_memory() {
        let recent = Recent::new(1 << 20);
        let (stream, _) = written(1);
        (0..100).for_each(|_| recent.remember(&stream));
        assert_eq!(recent.kept.take().unwrap().as_ref().unwrap().entries.len(), 1);
    }

    #[test]
    fn a_lock_of_the_parent_process_does_not_hang() {
        let recent = Recent::new(1 << 20);
        recent.remember(&written(1).0);
        let _held = recent.kept.take().unwrap();
        // As it is after a fork.
        recent.kept.process.store(0, Ordering::Release);
        assert_eq!(recent.compress(&field(2), &[40, 50], &config()).unwrap(), written(2).0);
    }

    /// Threads wait for each other, and none compresses anew what is remembered.
    #[test]
    fn every_thread_finds_its_streams() {
        let recent = Recent::new(1 << 24);
        let all: Vec<_> = (0..200).map(written).collect();
        all.iter().for_each(|(stream, _)| recent.remember(stream));
        std::thread::scope(|scope| {
            for first in 0..16 {
                let (recent, all) = (&recent, &all);
                scope.spawn(move || {
                    for (stream, values) in all.iter().skip(first).step_by(16) {
                        assert!(recent.compress(values, &[40, 50], &config()).unwrap() == *stream);
                    }
                });
            }
        });
    }

    /// What it takes to find a stream is little beside it, however large the array.
    #[test]
    fn the_limit_is_for_streams() {
        let n = 1 << 17;
        let waves = |seed: u64| (0..n).map(|i| (i as f32 * 1e-4 + seed as f32).sin()).collect::<Vec<f32>>();
        let streams: Vec<_> = (0..40).map(|i| crate::compress(&waves(i), &[n], &config()).unwrap()).collect();
        let recent = Recent::new(streams.iter().map(Vec::len).sum::<usize>() + 40 * (6 << 10));
        let values: Vec<_> = streams.iter().map(|stream| decompress::<f32>(stream).unwrap().data).collect();
        streams.iter().for_each(|stream| recent.remember(stream));
        for (stream, values) in streams.iter().zip(&values) {
            assert!(recent.compress(values, &[n], &config()).unwrap() == *stream);
        }
    }

    #[test]
    fn values_of_many_streams_are_found() {
        let recent = Recent::new(1 << 22);
        let all: Vec<_> = (0..12).map(written).collect();
        all.iter().for_each(|(stream, _)| recent.remember(stream));
        // A strip of each.
        let values: Vec<f32> = (0..2000).map(|i| all[i * 12 / 2000].1[i]).collect();
        let again = recent.compress(&values, &[40, 50], &config()).unwrap();
        assert!(decompress::<f32>(&again).unwrap().data == values);
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
