//! What opening a file of many chunks takes, and reading one of them: `cargo run --release --package pumice --example
//! many_chunks [CHUNKS] [FILE]`. By default it makes a file of 10 million chunks, as 100,000 ranks with 100 chunks each
//! do, of 328 GB of values that are all alike, so that the file has some 300 MB.

use std::error::Error;
use std::process::Command;
use std::time::Instant;

use pumice::{Config, DecodeOptions, ErrorBound, FileWriter, Preset, Reader};

/// Values of a chunk: 32 KiB, about as few as a chunk may have.
const CHUNK: usize = 8192;
/// Chunks that are written at a time.
const AT_ONCE: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("read") {
        return read(&arguments.next().ok_or("read which file?")?);
    }
    let n_chunks: usize = first.map_or(Ok(10_000_000), |n| n.parse())?;
    let path = arguments.next().unwrap_or_else(|| "many_chunks.pum".into());
    write(n_chunks, &path)?;
    // In a process of its own, so that the memory is that of reading.
    let done = Command::new(std::env::current_exe()?).args(["read", &path]).status()?;
    std::fs::remove_file(&path)?;
    if done.success() { Ok(()) } else { Err("reading failed".into()) }
}

fn write(n_chunks: usize, path: &str) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast).chunk_shape(&[CHUNK]);
    let mut writer = FileWriter::create(path, &[], &config)?;
    let values = vec![1.5_f32; AT_ONCE.min(n_chunks) * CHUNK];
    for first in (0..n_chunks).step_by(AT_ONCE) {
        writer.write_rows(&values[..AT_ONCE.min(n_chunks - first) * CHUNK])?;
    }
    let n_bytes = writer.finish()?.compressed_bytes;
    println!("write: {n_chunks} chunks, {n_bytes} bytes, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn read(path: &str) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let reader = Reader::open(path, DecodeOptions::new())?;
    println!("open: {:.3} s, {} MB at most", start.elapsed().as_secs_f64(), most_memory()?);
    let n_values = reader.info().shape[0];
    let start = Instant::now();
    let middle = n_values / 2;
    let one = reader.read_region::<f32>(std::slice::from_ref(&(middle..middle + 1)))?;
    println!("read one value: {:.6} s, {} MB at most", start.elapsed().as_secs_f64(), most_memory()?);
    if (one.data[0] - 1.5).abs() <= 1e-3 { Ok(()) } else { Err("the bound is broken".into()) }
}

/// The most memory that this process has had at a time.
fn most_memory() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("Linux is needed")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? / 1000)
}
