//! A model that hands its fields over to I/O servers: `mpirun -n 6 serve_io --servers 2 --config fields.xml`.
//!
//! The other ranks run a toy model: waves in 19 fields of three dimensions, cut along latitude. Each way of writing (with
//! Pumice, without compression, with gzip at level 5; one file, or one per server) takes its turn, after the model alone.
//! Prints one JSON object: times are those of the slowest rank, `overhead` is against the model alone.

use std::path::PathBuf;

use clap::Parser;
use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::{Config, ErrorBound, Preset, Result};
use pumice_fields::{Rules, Treatment};
use pumice_mpi::LocalBox;
use pumice_mpi::server::{self, Coding, FileMode, Options, Role, Servers};
use serde_json::{Value, json};

#[derive(Parser)]
struct Arguments {
    /// Ranks that write
    #[arg(long, default_value_t = 2)]
    servers: usize,
    /// Parameters of the fields f00, f01 and so on: TOML, or XML in the manner of XIOS. Without it: fast, REL 1e-3
    #[arg(long)]
    config: Option<PathBuf>,
    #[arg(long, default_value_t = 19)]
    fields: usize,
    #[arg(long, default_value_t = 4)]
    steps: u64,
    /// Levels, latitudes and longitudes of a field
    #[arg(long, value_delimiter = ',', default_values_t = [30, 128, 256])]
    shape: Vec<usize>,
    /// Passes of the model over each field in a step: more make it slower
    #[arg(long, default_value_t = 2)]
    passes: usize,
    /// MiB of messages that a client keeps
    #[arg(long, default_value_t = 256)]
    buffer_mib: usize,
    /// Where to write; files are removed again
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// pumice, none, gzip
    #[arg(long, value_delimiter = ',', default_values_t = ["none".to_owned(), "pumice".into(), "gzip".into()])]
    compression: Vec<String>,
    /// one, multiple
    #[arg(long, value_delimiter = ',', default_values_t = ["one".to_owned(), "multiple".into()])]
    modes: Vec<String>,
}

/// The fields of one rank of the model: rows of each.
struct Model {
    shape: Vec<usize>,
    /// The first row here, and how many there are.
    rows: (usize, usize),
    fields: Vec<Vec<f32>>,
}

impl Model {
    fn new(shape: &[usize], n_fields: usize, rank: usize, n_ranks: usize) -> Self {
        let (start, end) = (rank * shape[1] / n_ranks, (rank + 1) * shape[1] / n_ranks);
        let fields = vec![vec![0.0; shape[0] * (end - start) * shape[2]]; n_fields];
        Self { shape: shape.to_vec(), rows: (start, end - start), fields }
    }

    /// One step. Each field has waves of its own.
    fn advance(&mut self, step: u64, passes: usize) {
        let width = self.shape[2];
        for (f, field) in self.fields.iter_mut().enumerate() {
            let (speed, scale) = (0.05 + 0.01 * f as f32, 10.0_f32.powi(f as i32 % 5 - 2));
            for pass in 0..passes {
                let time = step as f32 + pass as f32 / passes as f32;
                for (i, row) in field.chunks_exact_mut(width).enumerate() {
                    let (level, y) = ((i / self.rows.1) as f32, (self.rows.0 + i % self.rows.1) as f32);
                    let (lift, shift) = ((0.11 * level + 0.04 * y).sin(), speed * time + 0.3 * level);
                    for (x, value) in row.iter_mut().enumerate() {
                        let x = x as f32;
                        let fine = 0.002 * (2.3 * x + 1.7 * y + level).sin();
                        *value =
                            scale * (lift * (0.031 * x + shift).sin() + 0.4 * (0.07 * (x - y) + shift).cos() + fine);
                    }
                }
            }
        }
    }

    fn boxes(&self, field: usize) -> ([usize; 3], [usize; 3], &[f32]) {
        ([0, self.rows.0, 0], [self.shape[0], self.rows.1, self.shape[2]], &self.fields[field])
    }
}

/// Seconds and sizes of a way of writing, the greatest of all ranks.
const FIGURES: [&str; 9] = [
    "total_s",
    "model_s",
    "client_blocked_s",
    "client_waiting_s",
    "client_buffer_mib",
    "server_idle_s",
    "server_receive_s",
    "server_write_s",
    "ratio",
];

fn greatest(world: &impl Communicator, mine: [f64; FIGURES.len()]) -> [f64; FIGURES.len()] {
    let mut all = mine;
    world.all_reduce_into(&mine[..], &mut all[..], SystemOperation::max());
    all
}

/// The model with servers that write with these options.
fn with_servers(world: &impl Communicator, arguments: &Arguments, options: Options) -> Result<[f64; FIGURES.len()]> {
    world.barrier();
    let start = mpi::time();
    let mut figures = [0.0; FIGURES.len()];
    match server::start(world, Servers::Last(arguments.servers), options)? {
        Role::Server(server) => {
            let report = server.run()?;
            figures[5..8].copy_from_slice(&[report.idle_seconds, report.receive_seconds, report.write_seconds]);
        }
        Role::Client(mut client) => {
            let (rank, n_ranks) = (client.comm().rank() as usize, client.comm().size() as usize);
            let mut model = Model::new(&arguments.shape, arguments.fields, rank, n_ranks);
            for step in 0..arguments.steps {
                let before = mpi::time();
                model.advance(step, arguments.passes);
                // As a model does that exchanges its margins.
                client.comm().barrier();
                figures[1] += mpi::time() - before;
                for field in 0..arguments.fields {
                    let (start, extents, values) = model.boxes(field);
                    let mine = LocalBox { start: &start, extents: &extents, values };
                    client.write(&format!("f{field:02}"), step, &model.shape, &[mine])?;
                }
            }
            let report = client.finish()?;
            let ratio = report.totals.raw_bytes as f64 / report.totals.stored_bytes.max(1) as f64;
            figures[2..5].copy_from_slice(&[
                report.seconds,
                report.waiting_seconds,
                report.most_bytes as f64 / 1048576.0,
            ]);
            figures[8] = ratio;
        }
    }
    figures[0] = mpi::time() - start;
    Ok(greatest(world, figures))
}

/// The model without any output, on the same ranks.
fn alone(world: &impl Communicator, arguments: &Arguments) -> f64 {
    let n_clients = world.size() as usize - arguments.servers;
    let rank = world.rank() as usize;
    world.barrier();
    let start = mpi::time();
    if rank < n_clients {
        let mut model = Model::new(&arguments.shape, arguments.fields, rank, n_clients);
        for step in 0..arguments.steps {
            model.advance(step, arguments.passes);
            std::hint::black_box(&model.fields);
        }
    }
    world.barrier();
    greatest(world, [mpi::time() - start; FIGURES.len()])[0]
}

fn options_of(arguments: &Arguments, rules: Option<&Rules>, compression: &str, mode: &str) -> Result<Options> {
    let mode = match mode {
        "one" => FileMode::OneFile,
        "multiple" => FileMode::MultipleFiles,
        _ => panic!("{mode} is none of one and multiple"),
    };
    let options = Options::new(&arguments.folder).mode(mode).buffer_bytes(arguments.buffer_mib << 20);
    let coding = match (compression, rules) {
        ("pumice", Some(rules)) => return Ok(options.rules(rules.clone())),
        ("pumice", None) => {
            Coding::Compressed(Treatment { preset: Preset::Fast, ..Treatment::new(vec![ErrorBound::Rel(1e-3)]) })
        }
        ("none", _) => Coding::Raw,
        ("gzip", _) => Coding::Gzip(5),
        _ => panic!("{compression} is none of pumice, none and gzip"),
    };
    Ok((0..arguments.fields).fold(options, |options, field| options.field(format!("f{field:02}"), coding.clone())))
}

/// Files of this program in the folder, and whether those of Pumice in one file are what one process writes.
fn check_and_remove(arguments: &Arguments, rules: Option<&Rules>) -> Result<()> {
    let treatment = match rules {
        Some(rules) => rules.treatment("f00", false).cloned(),
        None => Some(Treatment { preset: Preset::Fast, ..Treatment::new(vec![ErrorBound::Rel(1e-3)]) }),
    };
    let path = arguments.folder.join("f00_000000.pum");
    if let (Some(treatment), Ok(bytes)) = (treatment, std::fs::read(path)) {
        let mut model = Model::new(&arguments.shape, 1, 0, 1);
        model.advance(0, arguments.passes);
        let config: Config = treatment.config(&model.shape)?;
        assert!(
            bytes == pumice::compress(&model.fields[0], &model.shape, &config)?,
            "f00 is not what one process writes"
        );
    }
    for field in 0..arguments.fields {
        for step in 0..arguments.steps {
            let stem = format!("f{field:02}_{step:06}");
            let names = ["pum", "raw", "raw.gz", "parts.toml"].map(|extension| format!("{stem}.{extension}"));
            let parts = (0..arguments.servers)
                .flat_map(|n| ["pum", "raw", "raw.gz"].map(|extension| format!("{stem}.part{n:04}.{extension}")));
            // Servers differ in what they have written.
            names.into_iter().chain(parts).for_each(|name| _ = std::fs::remove_file(arguments.folder.join(name)));
        }
    }
    Ok(())
}

fn run(world: &impl Communicator, arguments: &Arguments) -> Result<Value> {
    assert!(
        arguments.shape.len() == 3 && arguments.servers < world.size() as usize,
        "three extents, and fewer servers than ranks"
    );
    let rules = arguments.config.as_ref().map(|path| Rules::load(path, Treatment::new(Vec::new()))).transpose()?;
    let model_s = alone(world, arguments);
    let mut runs = Vec::new();
    for mode in &arguments.modes {
        for compression in &arguments.compression {
            let options = options_of(arguments, rules.as_ref(), compression, mode)?;
            let figures = with_servers(world, arguments, options)?;
            if world.rank() == 0 {
                check_and_remove(arguments, rules.as_ref())?;
            }
            world.barrier();
            let mut object =
                json!({ "mode": mode, "compression": compression, "overhead": figures[0] / model_s - 1.0 });
            FIGURES.iter().zip(figures).for_each(|(name, figure)| object[*name] = figure.into());
            runs.push(object);
        }
    }
    let bytes = arguments.shape.iter().product::<usize>() * 4 * arguments.fields * arguments.steps as usize;
    Ok(json!({
        "ranks": world.size(), "servers": arguments.servers, "fields": arguments.fields, "steps": arguments.steps,
        "shape": arguments.shape, "mib": bytes >> 20, "model_alone_s": model_s, "runs": runs,
    }))
}

fn main() {
    let universe = mpi::initialize().expect("MPI is not yet in use");
    let world = universe.world();
    let arguments = Arguments::parse();
    match run(&world, &arguments) {
        Ok(report) if world.rank() == 0 => println!("{report:#}"),
        Ok(_) => {}
        Err(error) => {
            eprintln!("rank {}: {error}", world.rank());
            world.abort(1);
        }
    }
}
