//! Memory, measured by a counting allocator: hostile streams allocate none, valid ones no more than documented.
#![allow(unsafe_code)]

use crate::forge;
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, Preset, Reader, SliceSource};
use pumice_testkit::Rng;
use pumice_testkit::fields::Field;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of each thread: tests run in parallel, and the library is told to use the caller's thread only.
struct Counting;

thread_local! {
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let in_use = IN_USE.get() + bytes;
    IN_USE.set(in_use);
    PEAK.set(PEAK.get().max(in_use));
}

// SAFETY: every call is passed unchanged to the system's allocator; the counters are plain cells without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
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
fn peak<R>(f: impl FnOnce() -> R) -> (usize, R) {
    let before = IN_USE.get();
    PEAK.set(before);
    let result = f();
    ((PEAK.get() - before) as usize, result)
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
