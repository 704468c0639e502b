//! `cargo xtask simulate`: fields of our own simulators as files of raw little-endian f32, named like
//! `sim_acoustic_pressure_96x128x128.f32`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pumice_testkit::simulate::acoustic::Wavefield;
use pumice_testkit::simulate::cosmology::{Grids, Particles, Universe};
use pumice_testkit::simulate::turbulence;

use crate::shell::{Result, parse};

/// What is asked for; each simulator uses the options that it knows.
struct Options {
    simulator: String,
    seed: u64,
    step: usize,
    shape: Vec<usize>,
    output: PathBuf,
}

pub(crate) fn run(args: &[&str]) -> Result {
    let options = Options::parse(args)?;
    let start = Instant::now();
    match (options.simulator.as_str(), options.shape.as_slice()) {
        ("acoustic", &[z, y, x]) if [z, y, x].iter().all(|n| *n >= 48) => acoustic(&options, [z, y, x]),
        ("acoustic", _) => Err("acoustic: three extents of at least 48".into()),
        ("turbulence" | "cosmology", &[edge]) if !edge.is_power_of_two() || edge < 8 => {
            Err(format!("an edge of {edge}; it must be a power of two, at least 8"))
        }
        ("turbulence", &[edge]) => {
            let u = turbulence::velocity(edge, options.step, options.seed);
            write(&options.output, "sim_turbulence_u", &[edge; 3], &u)
        }
        ("cosmology", &[edge]) => cosmology(&options, edge),
        ("turbulence" | "cosmology", _) => Err("--shape takes the edge of the cube".into()),
        (other, _) => Err(format!("no simulator '{other}'; there are acoustic, turbulence, cosmology")),
    }?;
    println!("{}: {:.0} s", options.simulator, start.elapsed().as_secs_f64());
    Ok(())
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self> {
        let (simulator, mut rest) = args.split_first().ok_or("name a simulator: acoustic, turbulence, cosmology")?;
        let mut options =
            Self { simulator: (*simulator).into(), seed: 1, step: 0, shape: Vec::new(), output: PathBuf::new() };
        (options.step, options.shape) = match *simulator {
            "acoustic" => (400, vec![96, 128, 128]),
            _ => (40, vec![128]),
        };
        while let [name, tail @ ..] = rest {
            match *name {
                "--seed" => options.seed = parse(name, tail.first())?,
                "--step" => options.step = parse(name, tail.first())?,
                "--shape" => {
                    let extents = tail.first().ok_or("--shape needs a value")?.split('x');
                    options.shape = extents.map(|n| parse(name, Some(&n))).collect::<Result<_>>()?;
                }
                "--output" => options.output = tail.first().ok_or("--output needs a folder")?.into(),
                other => return Err(format!("unknown option '{other}'")),
            }
            rest = tail.get(1..).unwrap_or_default();
        }
        Ok(options)
    }
}

fn acoustic(options: &Options, shape: [usize; 3]) -> Result {
    let mut field = Wavefield::new(shape, options.seed);
    field.advance_to(options.step);
    write(&options.output, "sim_acoustic_pressure", &shape, &field.pressure())
}

fn cosmology(options: &Options, edge: usize) -> Result {
    let universe = Universe::run(edge, options.seed);
    let (Grids { density, velocity_x }, Particles { x, vx }) = (universe.grids(), universe.particles());
    write(&options.output, "sim_cosmology_density", &[edge; 3], &density)?;
    write(&options.output, "sim_cosmology_velocity_x", &[edge; 3], &velocity_x)?;
    write(&options.output, "sim_cosmology_particle_x", &[x.len()], &x)?;
    write(&options.output, "sim_cosmology_particle_vx", &[vx.len()], &vx)
}

fn write(folder: &Path, name: &str, shape: &[usize], values: &[f32]) -> Result {
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    let path = folder.join(format!("{name}_{}.f32", extents.join("x")));
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, bytes))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_by_simulator() {
        let options = Options::parse(&["acoustic", "--seed", "7", "--shape", "48x50x52"]).unwrap();
        assert_eq!((options.seed, options.step, options.shape), (7, 400, vec![48, 50, 52]));
        assert_eq!(Options::parse(&["cosmology"]).unwrap().shape, [128]);
        assert!(Options::parse(&["acoustic", "--sede", "7"]).is_err_and(|e| e.contains("--sede")));
        assert!(Options::parse(&["acoustic", "--seed"]).is_err());
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        assert!(run(&["acoustic", "--shape", "8x8x8"]).is_err_and(|e| e.contains("48")));
        assert!(run(&["turbulence", "--shape", "100"]).is_err_and(|e| e.contains("power of two")));
        assert!(run(&["weather"]).is_err_and(|e| e.contains("weather")));
    }
}
