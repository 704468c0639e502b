//! Memory, measured by a counting allocator: hostile streams allocate none, valid ones no more than documented.
#![allow(unsafe_code)]

use crate::forge;
use pumice::{
    AnalysisOptions, Config, DecodeOptions, Element, ErrorBound, ErrorKind, Preset, Reader, SliceSource, Stable, Writer,
};
use pumice_testkit::Rng;
use pumice_testkit::fields::Field;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of each thread: tests run in parallel, and the library is told to use the caller's thread only.
struct Counting;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    /// What would have been in use with the memory that was only asked for.
    static ASKED: Cell<isize> = const { Cell::new(0) };
    /// Bytes of the latest allocation, if it may be one of memory that is only asked for.
    static LATEST: Cell<isize> = const { Cell::new(0) };
}

/// Less memory is not asked for in advance.
const LEAST_ASKED: isize = 1 << 12;

fn count(bytes: isize) {
    let before = IN_USE.get();
    // Memory that is freed before anything else happens was only asked for.
    match LATEST.replace(0) {
        latest if latest >= LEAST_ASKED && latest == -bytes => ASKED.set(ASKED.get().max(before)),
        _ => PEAK.set(PEAK.get().max(before)),
    }
    IN_USE.set(before + bytes);
}

// SAFETY: every call is passed unchanged to the system's allocator; the counters are plain cells without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        LATEST.set(if layout.align() == 1 { layout.size() as isize } else { 0 });
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory in use at a time while `f` runs, beyond what was before.
pub(crate) fn peak<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let (peak, _, result) = peak_and_asked(f);
    (peak, result)
}

/// As [`peak`], and the most that would have been in use with the memory that was only asked for.
fn peak_and_asked<R>(f: impl FnOnce() -> R) -> (usize, usize, R) {
    let before = IN_USE.get();
    LATEST.set(0);
    PEAK.set(before);
    ASKED.set(before);
    let result = f();
    LATEST.set(0);
    let peak = PEAK.get().max(IN_USE.get());
    ((peak - before) as usize, (ASKED.get() - before) as usize, result)
}

fn options() -> DecodeOptions {
    DecodeOptions::new().threads(1)
}

/// A stream of three values whose header claims `extent` instead.
fn claiming(extent: u64, config: &Config) -> Vec<u8> {
    let mut bytes = pumice::compress(&[1_f32, 2.0, 3.0], &[3], config).unwrap();
    assert_eq!(bytes[12..14], [1, 3], "rank and extent");
    let mut varint = Vec::new();
    let mut rest = extent;
    while rest >= 0x80 {
        varint.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    varint.push(rest as u8);
    bytes[6] += varint.len() as u8 - 1;
    bytes.splice(13..14, varint);
    forge::seal_header(&mut bytes);
    forge::seal_frame(&mut bytes);
    bytes
}

#[test]
fn a_giant_claim_is_refused_before_memory_is_taken() {
    for bound in [ErrorBound::Lossless, ErrorBound::Abs(0.1)] {
        let config = Config::new(bound);
        assert_eq!(pumice::decompress::<f32>(&claiming(3, &config)).unwrap().shape, [3]);
        for extent in [1 << 20, 1 << 30, 1 << 33, 1 << 40, 1 << 60, 1 << 61, 1 << 62, u64::MAX] {
            let bytes = claiming(extent, &config);
            for max_bytes in [1 << 20, 16 << 30, u64::MAX] {
                let (peak, result) = peak(|| {
                    let reader = Reader::new(&bytes[..], options().max_bytes(max_bytes))?;
                    reader.read::<f32>().map(drop)
                });
                let kind = result.unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::LimitExceeded | ErrorKind::Corrupt), "{extent}: {kind:?}");
                assert!(peak < 1 << 16, "{extent}: {peak} bytes");
            }
            let (peak, _) = peak(|| pumice::salvage(&bytes[..], options()).map(drop));
            assert!(peak < 1 << 16, "salvage, {extent}: {peak} bytes");
        }
    }
}

#[test]
fn forged_headers_and_indices_get_little_memory() {
    for (preset, n_trials) in [
        (Preset::Fast, 4000),
        (Preset::Small, 1000),
        (Preset::Max, 60),
        (Preset::Balanced, 1000),
        (Preset::Cuszplus, 1000),
        (Preset::Ceaz, 1000),
        (Preset::Cuszp2Outlier, 2000),
        (Preset::Ceresz2, 2000),
    ] {
        let values = Field::Smooth.generate::<f32>(&[170, 200], 1);
        let config = Config::new(ErrorBound::Abs(1e-2)).preset(preset).chunk_shape(&[60, 140]).threads(1);
        let stream = pumice::compress(&values, &[170, 200], &config).unwrap();
        let limit = size_of_val(&values[..]);
        let mut rng = Rng::new(9);
        for i in 0..n_trials {
            let mut forged = stream.clone();
            let (range, seal): (_, fn(&mut [u8])) = match i % 2 {
                0 => (8..forge::header_bytes(&stream) - 4, forge::seal_header),
                _ => (forge::index_range(&stream), forge::seal_index),
            };
            for _ in 0..1 + rng.below(4) {
                forged[range.start + rng.below(range.len())] = rng.bits() as u8;
            }
            seal(&mut forged);
            let (peak, _) = peak(|| {
                let reader = Reader::new(&forged[..], options().max_bytes(limit as u64))?;
                reader.read::<f32>().map(drop)
            });
            // The array itself, one chunk that is not a run of it, the workspace of the codec.
            assert!(peak < limit + to_decode(preset, limit), "{preset:?}: {peak} bytes");
        }
    }
}

/// The most memory that encoding a chunk of so many bytes may take beside the caller's array. Tables of `small` and
/// the models of `max` have a size of their own, which counts in small chunks only.
fn to_encode(preset: Preset, chunk_bytes: usize) -> usize {
    match preset {
        Preset::Fast => chunk_bytes + (1 << 18),
        Preset::Max => 11 * chunk_bytes / 2 + (5 << 17),
        _ => 5 * chunk_bytes + (3 << 17),
    }
}

/// The most memory that decoding a chunk may take, its values included.
fn to_decode(preset: Preset, chunk_bytes: usize) -> usize {
    match preset {
        Preset::Fast => chunk_bytes + (1 << 18),
        Preset::Max => 4 * chunk_bytes + (5 << 17),
        _ => 4 * chunk_bytes + (1 << 18),
    }
}

#[test]
fn the_limit_is_kept_to_the_byte() {
    let values = Field::Noise.generate::<f64>(&[20_000], 1);
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast).chunk_shape(&[5000]);
    let bytes = pumice::compress(&values, &[20_000], &config).unwrap();
    let read = |max_bytes| Reader::new(&bytes[..], options().max_bytes(max_bytes))?.read::<f64>().map(drop);
    read(160_000).unwrap();
    assert_eq!(read(159_999).unwrap_err().kind(), ErrorKind::LimitExceeded);
    // Chunk by chunk, a quarter of it is enough.
    let reader = Reader::new(&bytes[..], options().max_bytes(40_000)).unwrap();
    let (peak, result) = peak(|| reader.for_each_chunk::<f64>(0..4, |_, _| Ok(())));
    result.unwrap();
    assert!(peak < 40_000 + (1 << 18), "{peak} bytes");
}

#[test]
fn fast_takes_little_beside_the_output() {
    let shape = [64, 128, 128];
    let values = Field::Turbulence.generate::<f32>(&shape, 1);
    let config = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast).threads(1);
    let (taken, bytes) = peak(|| pumice::compress(&values, &shape, &config).unwrap());
    assert!(taken < 3 * bytes.len() + (8 << 20), "{taken} bytes for {} of output", bytes.len());
    let (taken, _) = peak(|| pumice::decompress_into(&bytes, &mut values.clone(), &options()).unwrap());
    assert!(taken < size_of_val(&values[..]) + (8 << 20), "{taken} bytes");
}

/// One chunk of the whole array, with array and stream included, and little granted beside that.
#[test]
fn small_and_max_take_seven_times_the_array() {
    let shape = [40, 64, 64];
    for field in [Field::Turbulence, Field::Walk, Field::TwoFills, Field::Noise, Field::Spikes] {
        for (preset, most) in [(Preset::Small, 7), (Preset::Max, 7)] {
            let values = field.generate::<f32>(&shape, 1);
            let array_bytes = size_of_val(&values[..]);
            let config = Config::new(ErrorBound::Rel(1e-4)).preset(preset).chunk_shape(&shape).threads(1);
            let (there, bytes) = peak(|| pumice::compress(&values, &shape, &config).unwrap());
            let (back, _) = peak(|| Reader::new(&bytes[..], options()).unwrap().read::<f32>().unwrap());
            for (what, taken) in [("compress", array_bytes + there), ("decompress", bytes.len() + back)] {
                let times = taken as f64 / array_bytes as f64;
                let most = most * array_bytes + (1 << 16);
                assert!(taken <= most, "{field:?}, {preset:?}: {times:.2} times the array to {what}");
            }
        }
    }
}

#[test]
fn chunked_arrays_take_memory_for_a_few_chunks() {
    let (shape, chunk) = ([128, 64, 128], [16, 64, 128]);
    let chunk_bytes = chunk.iter().product::<usize>() * 4;
    let values = Field::Smooth.generate::<f32>(&shape, 1);
    let source = SliceSource::new(&values, &shape).unwrap();
    for preset in Preset::ALL {
        let config = Config::new(ErrorBound::Rel(1e-3)).preset(*preset).chunk_shape(&chunk).threads(1);
        let mut bytes = Vec::with_capacity(size_of_val(&values[..]));
        let (taken, _) = peak(|| pumice::compress_from(&source, &config, &mut bytes, &|_| ()).unwrap());
        // The chunk, its payload, and what coding takes: nothing that grows with the array.
        assert!(taken < 2 * chunk_bytes + to_encode(*preset, chunk_bytes), "{preset:?}: {taken} bytes");
        let reader = Reader::new(&bytes[..], options()).unwrap();
        let (taken, result) = peak(|| reader.for_each_chunk::<f32>(0..8, |_, _| Ok(())));
        result.unwrap();
        assert!(taken < chunk_bytes + to_decode(*preset, chunk_bytes), "{preset:?}: {taken} bytes back");
    }
}

/// What a stream is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Absolute,
    Pointwise,
    Lossless,
    Regions,
    Bins,
    Stable,
    /// One fill value, and more than there are masks for.
    Fill,
    Fills,
    /// A part was written again.
    Changes,
}

const KINDS: [Kind; 9] = [
    Kind::Absolute,
    Kind::Pointwise,
    Kind::Lossless,
    Kind::Regions,
    Kind::Bins,
    Kind::Stable,
    Kind::Fill,
    Kind::Fills,
    Kind::Changes,
];

fn config_of(preset: Preset, kind: Kind, shape: &[usize]) -> Config {
    let config = Config::new(match kind {
        Kind::Pointwise => ErrorBound::PwRel(1e-2),
        Kind::Lossless => ErrorBound::Lossless,
        _ => ErrorBound::Abs(1e-2),
    });
    let config = config.preset(preset).chunk_shape(shape).threads(1);
    let half: Vec<_> = shape.iter().map(|n| 0..n.div_ceil(2)).collect();
    match kind {
        Kind::Regions => config.region(&half, ErrorBound::Abs(1e-3)),
        Kind::Bins => config.bin(&vec![2; shape.len()]),
        Kind::Stable => config.stable(pumice::Stable::On),
        _ => config,
    }
}

/// A stream of waves that has what its kind says.
fn stream_of<T: Element>(preset: Preset, kind: Kind, shape: &[usize]) -> Vec<u8> {
    let config = config_of(preset, kind, shape);
    let mut values = waves::<T>(shape.iter().product());
    let n_fills = match kind {
        Kind::Fill => 1,
        Kind::Fills => 4,
        _ => 0,
    };
    for (i, fill) in [-999.0, 1e20, -9999.0, 1e30].into_iter().enumerate().take(n_fills) {
        values[100 * i..][..50].fill(T::from_f64(fill));
    }
    let stream = pumice::compress(&values, shape, &config).unwrap();
    if kind != Kind::Changes {
        return stream;
    }
    let mut values = pumice::decompress::<T>(&stream).unwrap().data;
    values[10..200].fill(T::from_f64(0.5));
    pumice::update(&stream, &values, &config).unwrap()
}

/// The codec of a single-chunk stream that was written again in part.
const CHANGES: u8 = 10;

fn codec_of(stream: &[u8]) -> u8 {
    stream[forge::header_bytes(stream) + 4]
}

/// Values of both signs, whose payload is small.
fn waves<T: Element>(n: usize) -> Vec<T> {
    (0..n).map(|i| T::from_f64((i as f64 * 1e-4).sin() * 3.0 + 0.1)).collect()
}

/// The smallest limit under which a stream is read whole: what the error says.
fn smallest_limit<T: Element>(bytes: &[u8]) -> u64 {
    let (peak, result) = peak(|| Reader::new(bytes, options().max_bytes(1)).unwrap().read::<T>().map(drop));
    assert!(peak < 1 << 16, "{peak} bytes to refuse");
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    // The first check is that of the values alone.
    let needed = |error: &pumice::Error| error.to_string().split(' ').next().unwrap().parse().unwrap();
    match Reader::new(bytes, options().max_bytes(needed(&error))).unwrap().read::<T>() {
        Err(error) if error.kind() == ErrorKind::LimitExceeded => needed(&error),
        _ => needed(&error),
    }
}

/// Memory beside the values that does not count towards the limit, and the tables that decoders have in addition.
const FREE_BYTES: f64 = (16 << 20) as f64;
const TABLE_BYTES: f64 = (6 << 20) as f64;

/// The table of docs/memory.md: how many times the values decoding takes, these included, for f32 and f64.
fn documented(preset: Preset) -> [f64; 2] {
    let page = include_str!("../../../../docs/memory.md");
    let name = format!("`{}`", preset.name());
    let row = page.lines().find(|line| line.starts_with("| `") && line.split('|').nth(1).unwrap().contains(&name));
    let cells: Vec<&str> = row.expect("each preset has a row").split('|').collect();
    [2, 3].map(|i| cells[i].trim().parse().expect("a number"))
}

/// A stream whose header claims 64 times as many rows as the 128 that it has, and whose payload is long enough for these.
fn with_more_rows(stream: &[u8]) -> Vec<u8> {
    let mut payload = stream[forge::payload_start(stream)..].to_vec();
    payload.resize(payload.len().max(4096), 0);
    let mut forged = forge::with_payload(stream, &payload);
    assert_eq!(forged[13..15], [0x80, 1], "128 rows");
    forged[14] = 64;
    forge::seal_header(&mut forged);
    forge::seal_frame(&mut forged);
    forged
}

fn takes_what_is_documented<T: Element>(preset: Preset, kind: Kind) {
    let is_f64 = size_of::<T>() == 8;
    let small = stream_of::<T>(preset, kind, &[128, 512]);
    let more = match kind {
        Kind::Changes if codec_of(&small) == CHANGES => 1.0 + 1.0 / size_of::<T>() as f64,
        Kind::Fill if is_f64 => 0.25,
        Kind::Fill => 0.5,
        Kind::Fills if is_f64 => 0.75,
        Kind::Fills => 1.5,
        Kind::Pointwise if is_f64 => 0.5,
        Kind::Absolute | Kind::Lossless | Kind::Stable | Kind::Changes => 0.0,
        _ => 1.0,
    };
    let like = if kind == Kind::Lossless { Preset::Fast } else { preset };
    let times = documented(like)[usize::from(is_f64)] + more;
    // What is needed is known before anything is decoded, so the large stream need not be a valid one.
    let forged = with_more_rows(&small);
    let value_bytes = (8192 * 512 * size_of::<T>()) as f64;
    let limit = smallest_limit::<T>(&forged) as f64;
    let found = if limit > value_bytes { (limit + FREE_BYTES) / value_bytes } else { times };
    // The payload counts, too.
    let documented = times - 0.4..=times + 0.02;
    assert!(documented.contains(&found), "{preset:?}, {kind:?}: {found:.2} times the values, not {times}");

    let shape = [if preset == Preset::Max { 64 } else { 1024 }, 512];
    let bytes = stream_of::<T>(preset, kind, &shape);
    let (peak, result) = peak(|| Reader::new(&bytes[..], options()).unwrap().read::<T>().map(drop));
    result.unwrap();
    let most = times * (shape[0] * shape[1] * size_of::<T>()) as f64 + 3.0 * bytes.len() as f64 + TABLE_BYTES;
    assert!(peak as f64 <= most, "{preset:?}, {kind:?}: {peak} bytes, more than {most}");
}

#[test]
fn decoding_takes_what_is_documented() {
    for kind in KINDS {
        for preset in Preset::ALL {
            takes_what_is_documented::<f32>(*preset, kind);
            takes_what_is_documented::<f64>(*preset, kind);
        }
    }
}

#[test]
fn the_limit_covers_values_and_working_memory() {
    let shape = [8192, 512];
    let config = config_of(Preset::Small, Kind::Absolute, &shape);
    let bytes = pumice::compress(&waves::<f32>(8192 * 512), &shape, &config).unwrap();
    let limit = smallest_limit::<f32>(&bytes);
    assert!(limit > 40 << 20, "{limit} bytes for an array of 16 MiB");
    let read = |max_bytes| Reader::new(&bytes[..], options().max_bytes(max_bytes)).unwrap().read::<f32>().map(drop);
    assert_eq!(read(limit - 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let (peak, result) = peak(|| read(limit));
    result.unwrap();
    assert!(peak as f64 <= limit as f64 + FREE_BYTES + TABLE_BYTES, "{peak} bytes at a limit of {limit}");
}

/// Chunks whose layers the header does not tell are read under any limit that suffices for one at a time, by any number of
/// threads.
#[test]
fn more_threads_never_need_a_higher_limit() {
    let (shape, chunk) = ([2048, 1024], [256, 1024]);
    let config = Config::new(ErrorBound::Abs(1e-2)).chunk_shape(&chunk).threads(1);
    let stream = pumice::compress(&waves::<f32>(2048 * 1024), &shape, &config).unwrap();
    let mut values = pumice::decompress::<f32>(&stream).unwrap().data;
    for chunk in values.chunks_mut(256 * 1024) {
        chunk[10..200].fill(0.5);
    }
    let stream = pumice::update(&stream, &values, &config).unwrap();
    let values = pumice::decompress::<f32>(&stream).unwrap().data;
    for max_bytes in (4 << 20..=48 << 20).step_by(2 << 20) {
        let read = |threads| {
            let options = DecodeOptions::new().threads(threads).max_bytes(max_bytes);
            Reader::new(&stream[..], options).unwrap().read::<f32>().map(|array| array.data == values)
        };
        let alone = read(1);
        for threads in [2, 4, 8] {
            assert_eq!(read(threads).ok(), alone.as_ref().ok().copied(), "{max_bytes} bytes, {threads} threads");
        }
    }
}

/// An index that lists many frames takes memory for lists of them before it turns out to be wrong.
#[test]
fn the_lists_of_an_index_count() {
    let shape = [128, 64, 64];
    let config = Config::new(ErrorBound::Abs(1e-2)).chunk_shape(&[16, 64, 64]).threads(1);
    let stream = pumice::compress(&waves::<f32>(128 * 64 * 64), &shape, &config).unwrap();
    let forged = forge::with_index(&stream, 1_000_000);
    for max_bytes in [1 << 20, 8 << 20, 32 << 20] {
        let (peak, result) = peak(|| Reader::new(&forged[..], options().max_bytes(max_bytes)).map(drop));
        assert!(result.is_err());
        assert!(peak as u64 <= max_bytes + (2 << 20), "{peak} bytes at a limit of {max_bytes}");
    }
    let result = Reader::new(&forged[..], options().max_bytes(32 << 20)).map(drop);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::LimitExceeded);
}

/// How many streams to forge, if not only as many as take seconds.
#[cfg(target_os = "linux")]
const FORGED_STREAMS: &str = "PUMICE_FORGED_STREAMS";

/// Set in the process that has little memory.
#[cfg(target_os = "linux")]
const IS_CONFINED: &str = "PUMICE_CONFINED";

/// Decodes forged streams in a process that gets 64 MiB beside the limit: it must neither abort nor panic.
#[cfg(target_os = "linux")]
#[test]
fn forged_streams_do_not_abort_where_memory_is_short() {
    if std::env::var_os(IS_CONFINED).is_some() {
        return decode_forged_streams();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "memory::forged_streams_do_not_abort_where_memory_is_short", "--nocapture"])
        .env(IS_CONFINED, "1")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{text}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("forged streams decoded"), "{text}");
    println!("{}", text.lines().find(|line| line.contains("forged")).unwrap_or_default());
}

#[cfg(target_os = "linux")]
fn decode_forged_streams() {
    const LIMIT: u64 = 3 << 20;
    let n_streams = std::env::var(FORGED_STREAMS).map_or(2000, |n| n.parse().unwrap());
    let mut seeds: Vec<(bool, Vec<u8>)> = Vec::new();
    for preset in Preset::ALL {
        for kind in KINDS {
            let shape = [if *preset == Preset::Max { 1 << 7 } else { 1 << 11 }, 32];
            seeds.push((false, stream_of::<f32>(*preset, kind, &shape)));
            seeds.push((true, stream_of::<f64>(*preset, kind, &shape)));
        }
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let n_pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let most = n_pages * 4096 + LIMIT + (64 << 20);
    let limits = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: a pointer to a valid structure.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limits) }, 0);
    let mut rng = Rng::new(11);
    let (mut n_read, mut n_refused) = (0, 0);
    for i in 0..n_streams {
        let (is_f64, seed) = &seeds[rng.below(seeds.len())];
        let forged = forge_stream(seed, &mut rng);
        let result = match is_f64 {
            false => Reader::new(&forged[..], options().max_bytes(LIMIT)).and_then(|r| r.read::<f32>().map(drop)),
            true => Reader::new(&forged[..], options().max_bytes(LIMIT)).and_then(|r| r.read::<f64>().map(drop)),
        };
        match result {
            Ok(()) => n_read += 1,
            Err(error) => n_refused += usize::from(error.kind() == ErrorKind::LimitExceeded),
        }
        if i % 16 == 0 {
            let _ = pumice::salvage(&forged[..], options().max_bytes(LIMIT));
        }
    }
    println!("{n_streams} forged streams decoded: {n_read} to values, {n_refused} above the limit");
    assert!(n_streams < 1000 || (n_read > 0 && n_refused > 0), "both occur");
}

/// Changes the number of rows, the codec and some bytes of the payload, and repairs the checksums.
#[cfg(target_os = "linux")]
fn forge_stream(stream: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut payload = stream[forge::payload_start(stream)..].to_vec();
    for _ in 0..rng.below(4) {
        let at = rng.below(payload.len().min(200));
        payload[at] = rng.bits() as u8;
    }
    // A payload may stand for 2^14 values per byte.
    payload.resize(payload.len() + rng.below(2) * rng.below(4000), 0);
    let mut forged = forge::with_payload(stream, &payload);
    if rng.below(2) == 0 {
        // Another number of rows, in as many bytes.
        let last = 13 + forged[13..].iter().take_while(|byte| **byte >= 0x80).count();
        forged[last] = 1 + rng.below(127) as u8;
    }
    if rng.below(4) == 0 {
        let codec_at = forge::header_bytes(&forged) + 4;
        forged[codec_at] = rng.below(11) as u8;
    }
    forge::seal_header(&mut forged);
    forge::seal_frame(&mut forged);
    forged
}

/// Most of what is asked for whatever the size of a chunk, which large chunks must not need.
const FIXED_BYTES: usize = 2 << 20;

/// What arrays are compressed for.
const WISHES: [&str; 12] = [
    "absolute",
    "stable",
    "auto",
    "pointwise",
    "both",
    "fills",
    "regions",
    "bins",
    "lossless",
    "psnr",
    "ratio",
    "streamed",
];

/// The configuration for a wish, where the values have this range.
fn wished(wish: &str, preset: Preset, values: &[f64], shape: &[usize], rel: f64) -> Config {
    let counted = values.iter().copied().filter(|x| x.abs() < 1e15);
    let (least, most) = counted.fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
    let abs = rel * if least < most { most - least } else { 1.0 };
    let [half, all] = [2, 1].map(|by| shape.iter().map(|n| 0..n.div_ceil(by)).collect::<Vec<_>>());
    let config = Config::new(match wish {
        "pointwise" | "both" => ErrorBound::PwRel(rel),
        "lossless" => ErrorBound::Lossless,
        "psnr" => ErrorBound::Psnr(60.0),
        "ratio" => ErrorBound::Ratio(1.5),
        _ => ErrorBound::Abs(abs),
    });
    let config = config.preset(preset).chunk_shape(shape).threads(1);
    match wish {
        "stable" => config.stable(Stable::On),
        "auto" => config.stable(Stable::Auto),
        "both" => config.and(ErrorBound::Abs(abs)),
        // More than a stream has masks for.
        "fills" => config.fills(&[1, 2, 3, 5, 7, 11, 13].map(|i| values[(i * 9973) % values.len()])),
        "regions" => config.region(&half, ErrorBound::PwRel(rel)).region(&all, ErrorBound::Abs(abs / 2.0)),
        "bins" => config.bin(&[1, 1, 2][3 - shape.len()..]).region(&half, ErrorBound::PwRel(rel)),
        _ => config,
    }
}

/// Compresses in a thread of its own, which has no buffers yet, and checks that no more memory was taken than was asked
/// for at once before.
fn asks_for_what_it_takes<T: Element>(field: &[T], shape: &[usize], wish: &str, preset: Preset, rel: f64) {
    let values: Vec<f64> = field.iter().map(|x| x.to_f64()).collect();
    let config = wished(wish, preset, &values, shape, rel);
    let compress = || match wish {
        "streamed" => {
            let mut writer = Writer::new(Vec::new(), &shape[1..], &config)?;
            writer.write_rows(field)?;
            writer.finish().map(|(stream, _)| stream)
        }
        _ => pumice::compress(field, shape, &config),
    };
    let measured = std::thread::scope(|scope| scope.spawn(|| peak_and_asked(compress)).join().unwrap());
    let (taken, asked, result) = measured;
    // A ratio may be out of reach.
    let n_bytes = result.map_or(0, |stream| stream.len());
    assert!(
        taken + FIXED_BYTES <= asked,
        "{preset:?}, {wish}, {rel}, {}: {taken} bytes were taken, {:.2} times the values, but {asked} asked for; {n_bytes} \
         bytes are the stream",
        T::DTYPE,
        taken as f64 / size_of_val(field) as f64,
    );
}

/// Whatever an encoder takes was asked for before it began, since encoders cannot fail. Just above a power of two values,
/// vectors that have grown are as large as they may be.
#[test]
fn compression_asks_for_what_it_takes() {
    const SHAPES: [&[usize]; 3] = [&[33, 64, 64], &[44_000, 3], &[140_000]];
    let fields = [
        Field::Turbulence,
        Field::Noise,
        Field::Sparse,
        Field::Constant,
        Field::Spikes,
        Field::MixedMagnitudes,
        Field::Specials,
        Field::AllNan,
        Field::TwoFills,
        Field::MaskedWalk,
        Field::AnyBits,
    ];
    for (i, field) in fields.into_iter().enumerate() {
        for (j, wish) in WISHES.into_iter().enumerate() {
            // Not all combinations, which would take minutes.
            let (shape, rel) = (SHAPES[(i + j) % 3], [1e-2, 1e-4, 1e-7][(i + 2 * j) % 3]);
            let (single, double) = (field.generate::<f32>(shape, 3), field.generate::<f64>(shape, 3));
            for preset in Preset::ALL.iter().copied().filter(|preset| *preset != Preset::Max || i % 3 == j % 3) {
                asks_for_what_it_takes(&single, shape, wish, preset, rel);
                asks_for_what_it_takes(&double, shape, wish, preset, rel);
            }
        }
    }
}

#[test]
fn rewriting_asks_for_what_it_takes() {
    let shape = [33, 64, 64];
    for field in [Field::Turbulence, Field::Noise, Field::TwoFills, Field::AnyBits] {
        for preset in [Preset::Fast, Preset::Balanced, Preset::Small] {
            for wish in ["absolute", "stable", "pointwise", "both", "fills"] {
                let values = field.generate::<f32>(&shape, 3);
                let doubles: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
                let config = wished(wish, preset, &doubles, &shape, 1e-3);
                let mut stream = pumice::compress(&values, &shape, &config).unwrap();
                let mut rng = Rng::new(5);
                for share in [2, 30, 1000] {
                    let mut values = pumice::decompress::<f32>(&stream).unwrap().data;
                    for _ in 0..values.len() / share {
                        let at = rng.below(values.len());
                        values[at] = values[rng.below(values.len())] * 1.5 + 1.0;
                    }
                    let update = || peak_and_asked(|| pumice::update(&stream, &values, &config).unwrap());
                    let (taken, asked, updated) = std::thread::scope(|scope| scope.spawn(update).join().unwrap());
                    assert!(
                        taken <= asked + (1 << 16),
                        "{field:?}, {preset:?}, {wish}: {taken} bytes were taken, {asked} asked for"
                    );
                    stream = updated;
                }
            }
        }
    }
}

#[test]
fn analysis_asks_for_what_it_takes() {
    for shape in [&[33, 64, 64][..], &[40, 200, 200]] {
        for field in [Field::Turbulence, Field::AllNan, Field::MixedMagnitudes] {
            let values = field.generate::<f64>(shape, 3);
            let options = AnalysisOptions::new().threads(1).presets(&[Preset::Fast, Preset::Small]);
            let analyze = || peak_and_asked(|| pumice::analyze(&values, shape, &options).unwrap());
            let (taken, asked, _) = std::thread::scope(|scope| scope.spawn(analyze).join().unwrap());
            assert!(taken <= asked + (1 << 16), "{field:?}: {taken} bytes were taken, {asked} asked for");
        }
    }
}
