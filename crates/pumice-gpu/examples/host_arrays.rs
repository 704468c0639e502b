//! Measures the steps of compressing an array in host memory (copies, kernels, assembly of the stream), and the same
//! for arrays and streams in device memory.
//!
//! `cargo run --release -p pumice-gpu --example host_arrays [MiB]`

use std::time::Instant;

use pumice::{Config, DecodeOptions, ErrorBound, Preset, Result};
use pumice_gpu::{Device, Encoder, Stream};

fn main() -> Result<()> {
    let n_mib = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(512);
    let n_values = n_mib << 18;
    let values: Vec<f32> = (0..n_values).map(|i| (i as f32 * 1e-3).sin() + (i as f32 * 7e-7).cos()).collect();
    let device = Device::cuda(0)?;
    let stream = Stream::DEFAULT;
    let n_bytes = (4 * n_values) as f64;
    let report = |what: &str, start: Instant| {
        let seconds = start.elapsed().as_secs_f64();
        println!("{what:<34}{:>9.2} ms {:>8.1} GB/s", 1e3 * seconds, n_bytes / 1e9 / seconds);
    };
    println!("{}, {n_mib} MiB of f32", device.name());
    // The first run allocates what later runs reuse.
    for run in 0..2 {
        println!("{}", if run == 0 { "first time" } else { "again" });
        let start = Instant::now();
        let on_device = device.upload(&values)?;
        report("  to the device", start);
        let start = Instant::now();
        on_device.to_vec(stream)?;
        report("  back, to new memory", start);
        let config = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast);
        let blueprint = device.blueprint(on_device.as_slice(), &[n_values], &config, stream)?;
        let mut encoder = Encoder::new(&device, &blueprint)?;
        let start = Instant::now();
        encoder.encode(on_device.as_slice(), stream)?;
        device.synchronize(stream)?;
        report("  encode", start);
        let start = Instant::now();
        let bytes = encoder.finish(on_device.as_slice(), stream)?;
        report("  stream", start);
        println!("  ratio {:.2}", n_bytes / bytes.len() as f64);
        let start = Instant::now();
        device.compress(&values, &[n_values], &config)?;
        report("  compress: host to host", start);
        let start = Instant::now();
        device.decompress::<f32>(&bytes, &DecodeOptions::new())?;
        report("  decompress: host to host", start);
        let mut on_device = on_device;
        let mut out = device.allocate::<u8>(pumice::max_compressed_bytes::<f32>(&[n_values], &config)? as usize)?;
        let start = Instant::now();
        encoder.encode(on_device.as_slice(), stream)?;
        let n_bytes = encoder.finish_on_device(on_device.as_slice(), out.as_mut_slice(), stream)?;
        report("  compress: all on the device", start);
        let start = Instant::now();
        let stored = out.as_slice().slice(0..n_bytes);
        let frames = device.open_on_device(stored, &DecodeOptions::new(), stream)?;
        device.decode(&frames, on_device.as_mut_slice(), stream)?;
        report("  decompress: all on the device", start);
    }
    Ok(())
}
