//! Streams whose lists are much larger than what they hold: tiny chunks, and forged counts. Salvage and [`StreamReader`]
//! must end with an error where memory is short, never with an abort. Each attempt is a process of its own, with an
//! address space of limited size.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice::{DecodeOptions, ErrorKind, StreamReader};
use twox_hash::XxHash3_64;

/// What the confined process does: `salvage` or `stream`, threads, limit, and the file.
const TASK: &str = "PUMICE_TEST_LISTS_TASK";
const DONE: &str = "the task ended: ";

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// The header of a lossless stream of f32: of a single chunk with this shape, or of chunks.
fn header(shape: &[u64], chunk_shape: &[u64]) -> Vec<u8> {
    let is_single = chunk_shape.is_empty();
    let rank = if is_single { shape.len() } else { chunk_shape.len() } as u8;
    let mut out = b"PUM\x1a\x01\x01\0\0\x01".to_vec();
    out.extend([u8::from(is_single), 1, 0, rank]);
    shape.iter().chain(chunk_shape).for_each(|n| varint(*n, &mut out));
    out[6] = out.len() as u8 + 4;
    let sum = XxHash3_64::oneshot(&out);
    out.extend_from_slice(&sum.to_le_bytes()[..4]);
    out
}

/// A raw frame of one row whose payload is shorter than a block, without rows if it is that of a single chunk.
fn frame(id: u64, first_row: u64, payload: &[u8], is_single: bool, out: &mut Vec<u8>) {
    let payload_hash = XxHash3_64::oneshot(payload);
    let mut covered = vec![0];
    for field in [id, first_row, 1, payload.len() as u64, payload_hash] {
        covered.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(b"CHNK\0");
    varint(id, out);
    if !is_single {
        varint(first_row, out);
        varint(1, out);
    }
    varint(payload.len() as u64, out);
    out.extend_from_slice(&XxHash3_64::oneshot(&covered).to_le_bytes());
    out.extend_from_slice(payload);
}

/// An index of these segments and frames, and the footer.
fn index(segments: &[u64], frame_bytes: &[u64], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(b"INDX");
    for list in [segments, frame_bytes] {
        varint(list.len() as u64, out);
        list.iter().for_each(|n| varint(*n, out));
    }
    let sum = XxHash3_64::oneshot(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
    let index_bytes = (out.len() - start) as u64;
    out.extend_from_slice(&(start as u64).to_le_bytes());
    out.extend_from_slice(&index_bytes.to_le_bytes());
    out.extend_from_slice(b"PUMF");
}

/// Files, and how many bytes they go on as zeros.
fn forged_files() -> Vec<(&'static str, Vec<u8>, u64)> {
    const N: u64 = 100_000;
    let mut tiny = header(&[], &[1]);
    let mut sizes = Vec::new();
    for id in 0..N {
        let start = tiny.len();
        frame(id, id, &[0; 4], false, &mut tiny);
        sizes.push((tiny.len() - start) as u64);
    }
    let without_index = tiny.clone();
    let mut segmented = tiny.clone();
    index(&[N], &sizes, &mut tiny);
    index(&vec![1; N as usize], &sizes, &mut segmented);
    let cut = segmented[..segmented.len() - 20].to_vec();
    // An index of frames that are not there.
    let mut only_index = header(&[], &[1]);
    index(&[5 * N], &vec![20; 5 * N as usize], &mut only_index);
    only_index.truncate(only_index.len() - 20);
    // One of very many chunks, in a file that is mostly a hole.
    let mut hole = header(&[1 << 23], &[1, 1]);
    frame(5, 0, &[0; 4], false, &mut hole);
    let mut empty = header(&[], &[1]);
    (0..N).for_each(|id| frame(id, id, &[], false, &mut empty));
    let mut one = header(&[1], &[]);
    frame(0, 0, &[0; 4], true, &mut one);
    vec![
        ("tiny chunks", tiny, 0),
        ("tiny segments", segmented, 0),
        ("tiny chunks without an index", without_index, 0),
        ("tiny segments without a footer", cut, 0),
        ("only an index", only_index, 0),
        ("a hole", hole, 16 << 20),
        ("empty chunks", empty, 0),
        ("many streams", one.repeat(N as usize), 0),
    ]
}

/// Decodes the file of the task, and says how that ended.
fn run_task(task: &str) {
    let mut words = task.splitn(4, ' ');
    let mut next = || words.next().unwrap();
    let (what, threads, max_bytes, path) =
        (next(), next().parse().unwrap(), next().parse().unwrap(), PathBuf::from(next()));
    let options = DecodeOptions::new().threads(threads).max_bytes(max_bytes);
    let result = match what {
        "start" => Ok(()),
        "salvage" => pumice::salvage(File::open(path).unwrap(), options).and_then(|salvage| {
            assert!(salvage.lost().take(1000).count() <= 1000);
            salvage.for_each_chunk::<f32>(|_, _| Ok(()))
        }),
        _ => StreamReader::new(File::open(path).unwrap(), options)
            .and_then(|stream| stream.for_each_rows::<f32>(|_| Ok(())).map(drop)),
    };
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let n_pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    println!("{DONE}{:?} {}", result.map_err(|e| e.kind()), n_pages * 4);
}

/// Runs a task in an address space of so many KiB; returns how it ended, and the size of the process then.
fn confined(kib: u64, what: &str, threads: usize, max_bytes: u64, path: &Path) -> (String, u64) {
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "forged_lists::lists_of_forged_streams_do_not_abort", "--nocapture"])
        .env(TASK, format!("{what} {threads} {max_bytes} {}", path.display()))
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let ended = text.lines().find_map(|line| line.split_once(DONE)).map(|(_, ended)| ended.rsplit_once(' ').unwrap());
    let Some((ended, size)) = ended.filter(|_| output.status.success()) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("{what}, {threads} threads, {kib} KiB, {}: {}\n{text}\n{errors}", path.display(), output.status);
    };
    (ended.to_owned(), size.parse().unwrap())
}

#[test]
fn lists_of_forged_streams_do_not_abort() {
    const MIB: u64 = 1 << 20;
    if let Ok(task) = std::env::var(TASK) {
        return run_task(&task);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pum");
    let (_, base) = confined(1 << 22, "start", 1, 1, &path);
    let refused = format!("Err({:?})", ErrorKind::LimitExceeded);
    let (mut n_read, mut n_refused) = (0, 0);
    for (name, bytes, hole) in forged_files() {
        let mut file = File::create(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.seek(SeekFrom::Start(bytes.len() as u64)).unwrap();
        file.set_len(bytes.len() as u64 + hole).unwrap();
        for what in ["salvage", "stream"] {
            // A limit, and 64 MiB beside it.
            for (threads, max_bytes) in [(1, MIB), (2, 24 * MIB)] {
                let (ended, _) = confined(base + (max_bytes + 64 * MIB) / 1024, what, threads, max_bytes, &path);
                n_read += usize::from(ended == "Ok(())");
                n_refused += usize::from(ended == refused);
                println!("{name}, {what}, {threads} threads, {} MiB: {ended}", max_bytes / MIB);
            }
            // The system has less than the limit.
            for mib in [3, 7, 12, 20] {
                let (ended, _) = confined(base + mib * 1024, what, 1, 16 << 30, &path);
                assert_ne!(ended, format!("Err({:?})", ErrorKind::Io), "{name}, {what}, {mib} MiB");
            }
        }
    }
    assert!(n_read > 5 && n_refused > 5, "{n_read} read, {n_refused} refused");
}

#[test]
fn a_long_index_is_found_without_the_footer() {
    const N: u64 = 5_000_000;
    let mut bytes = header(&[], &[1]);
    index(&[N], &vec![20; N as usize], &mut bytes);
    bytes.truncate(bytes.len() - 1);
    let salvage = pumice::salvage(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
    assert_eq!((salvage.info().n_chunks, salvage.intact(), salvage.end_is_known()), (N, &[][..], true));
}
