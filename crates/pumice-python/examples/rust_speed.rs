//! The Rust side of benches/overhead.py: for each line of its input, compresses a file of f32 values or decompresses
//! the result, and prints the seconds that it took.

use std::io::{BufRead, Write};
use std::time::Instant;

use pumice::{Config, ErrorBound, Preset, Real};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, shape, preset, rel, threads] = &arguments[..] else {
        return Err("usage: rust_speed FILE SHAPE PRESET REL THREADS".into());
    };
    let shape: Vec<usize> = shape.split('x').map(str::parse).collect::<Result<_, _>>()?;
    let preset: Preset = preset.parse()?;
    let threads: usize = threads.parse()?;
    let config = Config::new(ErrorBound::Rel(rel.parse()?)).preset(preset).threads(threads);
    let bytes = std::fs::read(path)?;
    let mut values = vec![0f32; bytes.len() / 4];
    f32::copy_from_le_bytes(&bytes, &mut values);
    let mut compressed = pumice::compress(&values, &shape, &config)?;
    let options = pumice::DecodeOptions::new().threads(threads);
    for line in std::io::stdin().lock().lines() {
        let start = Instant::now();
        match line?.as_str() {
            "compress" => compressed = pumice::compress(&values, &shape, &config)?,
            _ => drop(pumice::Reader::new(&compressed[..], options.clone())?.read::<f32>()?),
        }
        println!("{}", start.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}
