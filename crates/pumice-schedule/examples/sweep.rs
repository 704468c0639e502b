//! Ratio and speed by block size: `cargo run --release -p pumice-schedule --example sweep`.
//!
//! Small blocks fit into short idle intervals, but compress less. Prints a table for each field and preset.

use std::time::Instant;

use clap::Parser;
use pumice::{Config, DecodeOptions, ErrorBound, Preset};
use pumice_schedule::block_shape;

#[derive(Parser)]
struct Arguments {
    /// Extents of the fields
    #[arg(long, value_delimiter = ',', default_values_t = [256, 256, 256])]
    shape: Vec<usize>,
    /// Raw little-endian float32 values of that shape, instead of made-up fields
    #[arg(long)]
    input: Option<std::path::PathBuf>,
    #[arg(long, default_value_t = 1e-3)]
    rel: f64,
    #[arg(long, value_delimiter = ',', default_values_t = ["fast".to_owned(), "balanced".to_owned(), "small".to_owned()])]
    presets: Vec<String>,
    /// Runs of which the quickest counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// Waves of many lengths in three dimensions.
fn waves(shape: &[usize], n_waves: usize) -> Vec<f32> {
    let n: usize = shape.iter().product();
    let mut values = vec![0.0_f32; n];
    for wave in 0..n_waves {
        let angle = wave as f32 * 2.4;
        let k = 0.01 * 1.5_f32.powi(wave as i32);
        for (i, value) in values.iter_mut().enumerate() {
            let (mut rest, mut phase) = (i, angle);
            for (axis, extent) in shape.iter().enumerate().rev() {
                phase += k * (angle + axis as f32).sin() * (rest % extent) as f32;
                rest /= extent;
            }
            *value += phase.sin() / 1.5_f32.powi(wave as i32);
        }
    }
    values
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let fields = match &arguments.input {
        Some(path) => {
            let bytes = std::fs::read(path)?;
            let values = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            vec![(path.display().to_string(), values)]
        }
        None => vec![
            ("smooth waves".to_owned(), waves(&arguments.shape, 4)),
            ("waves of 12 lengths".to_owned(), waves(&arguments.shape, 12)),
        ],
    };
    for (name, values) in &fields {
        for preset in &arguments.presets {
            let preset: Preset = preset.parse()?;
            println!("{name}, {:?}, {} at REL {}, one thread", arguments.shape, preset.name(), arguments.rel);
            println!("{:>10}{:>10}{:>10}{:>14}{:>16}", "block", "blocks", "ratio", "compress", "ms per block");
            for log in 16..=24 {
                let block = block_shape::<f32>(&arguments.shape, 1 << log);
                let config = Config::new(ErrorBound::Rel(arguments.rel)).preset(preset).threads(1).chunk_shape(&block);
                let (mut out, mut least) = (Vec::new(), f64::INFINITY);
                for _ in 0..arguments.runs {
                    let start = Instant::now();
                    pumice::compress_into(values, &arguments.shape, &config, &mut out)?;
                    least = least.min(start.elapsed().as_secs_f64());
                }
                let reader = pumice::Reader::new(&out[..], DecodeOptions::new())?;
                let (bytes, n) = (size_of_val(&values[..]) as f64, reader.n_chunks() as f64);
                let size =
                    if log < 20 { format!("{} KiB", 1 << (log - 10)) } else { format!("{} MiB", 1 << (log - 20)) };
                println!(
                    "{size:>10}{n:>10}{:>10.2}{:>9.0} MB/s{:>16.2}",
                    bytes / out.len() as f64,
                    bytes / least / 1e6,
                    1e3 * least / n
                );
            }
        }
    }
    Ok(())
}
