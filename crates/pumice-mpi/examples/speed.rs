//! How long collective writes, messages and sums take with and without compression: `mpirun -n 4 speed --work write`.
//!
//! Prints one JSON object. Each time is the least of several runs, between barriers, on the slowest rank; plain MPI and
//! Pumice take turns. `cargo xtask mpi bench` runs this over limited links and storage.
#![allow(unsafe_code, reason = "the plain write is by the C functions of MPI")]

use std::cell::RefCell;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use clap::Parser;
use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::{Config, ErrorBound, Preset};
use pumice_mpi::{LocalBox, SumAlgorithm, SumBound, Transfer, Wire};

#[derive(Parser)]
struct Arguments {
    /// write, gather, all-gather, broadcast, scatter, all-to-all, send, sum or sum-in-parts
    #[arg(long)]
    work: String,
    /// MiB of each rank
    #[arg(long, default_value_t = 32)]
    mib: usize,
    #[arg(long, default_value_t = 2)]
    runs: usize,
    #[arg(long, default_value_t = 1e-3)]
    rel: f64,
    #[arg(long, default_value = "fast")]
    preset: Preset,
    /// Where to write
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Raw little-endian float32 values to use, repeated as needed, instead of waves or, for files, a travelling pulse
    #[arg(long)]
    input: Option<PathBuf>,
}

/// A field of waves in three dimensions, a different one for each rank.
fn waves(n: usize, rank: usize) -> Vec<f32> {
    const EDGE: usize = 128;
    let at = |i: usize| (i % EDGE, i / EDGE % EDGE, i / EDGE / EDGE);
    (0..n)
        .map(|i| {
            let (x, y, z) = at(i);
            let (x, y, z) = (x as f32, y as f32, (z + 1000 * rank) as f32);
            (0.02 * x + 0.008 * z).sin() * (0.012 * y).cos() + 0.5 * (0.016 * y - 0.012 * z).sin()
        })
        .collect()
}

/// Extents of the planes of a field that is written.
const PLANE: [usize; 2] = [128, 128];

/// Snapshots of a pulse that travels outwards, stronger to one side, as a wave equation has them: 64 planes each, another
/// for each rank, and weaker again where there are more: no value is the greatest twice, which would look like a fill value.
fn pulses(n: usize, rank: usize) -> Vec<f32> {
    const PLANES: usize = 64;
    let radius = 20.0 + (rank % 8) as f32;
    let at = |i: usize| {
        let (x, y, z) = (i % PLANE[1], i / PLANE[1] % PLANE[0], i / PLANE[1] / PLANE[0]);
        let (x, y, z) = (x as f32 - 63.37, y as f32 - 61.71, z as f32 - 30.13);
        let along = ((x * x + y * y + z * z).sqrt() - radius) / 10.0;
        (1.0 + 0.003 * x + 0.001 * y) * (1.0 + along * along).powi(-3)
    };
    let cube: Vec<f32> = (0..PLANES * PLANE[0] * PLANE[1]).map(at).collect();
    let strength = |i: usize| 1.0 - 1e-3 * i as f32;
    (0..n).map(|i| cube[i % cube.len()] * strength(i / cube.len())).collect()
}

fn values_of(arguments: &Arguments, rank: usize) -> Vec<f32> {
    let n = arguments.mib << 18;
    let Some(path) = &arguments.input else {
        return if arguments.work == "write" { pulses(n, rank) } else { waves(n, rank) };
    };
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let read: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    read.into_iter().cycle().take(n).collect()
}

/// The seconds that the slowest rank takes.
fn time(world: &impl Communicator, work: impl FnOnce()) -> f64 {
    world.barrier();
    let start = mpi::time();
    work();
    let mine = mpi::time() - start;
    let mut slowest = 0.0_f64;
    world.all_reduce_into(&mine, &mut slowest, SystemOperation::max());
    slowest
}

/// The least times of several ways to do something, which take turns.
fn least(world: &impl Communicator, runs: usize, ways: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; ways.len()];
    for _ in 0..runs {
        for (least, way) in least.iter_mut().zip(ways.iter_mut()) {
            *least = least.min(time(world, &mut **way));
        }
    }
    least
}

/// The least times of values sent by MPI, always compressed, and as `Auto` decides, which it tells.
fn compare(
    world: &impl Communicator,
    runs: usize,
    mut plain: impl FnMut(),
    with: impl Fn(Wire) -> pumice::Result<Transfer>,
    kind: &mut String,
) -> Vec<f64> {
    let with = |wire| with(wire).expect("values arrive").is_compressed;
    let mut auto = || *kind = if with(Wire::Auto) { "compressed".into() } else { "plain".into() };
    let mut compressed = || assert!(with(Wire::Compressed) || world.size() == 1);
    least(world, runs, &mut [&mut plain, &mut compressed, &mut auto])
}

/// One file of all values, as MPI writes it, on the disk: by a collective call, or by one of each rank.
fn write_plain(world: &impl Communicator, path: &Path, values: &[f32], is_collective: bool) {
    use mpi_sys as ffi;
    let name = CString::new(path.to_str().expect("a text")).expect("without NUL");
    let mode = ffi::MPI_MODE_CREATE | ffi::MPI_MODE_WRONLY;
    let offset = world.rank() as usize * size_of_val(values);
    // SAFETY: handles are those that MPI gives, all ranks are here, and the buffer is as long as is said.
    unsafe {
        let mut file = ffi::RSMPI_FILE_NULL;
        let opened = ffi::MPI_File_open(world.as_raw(), name.as_ptr(), mode as i32, ffi::RSMPI_INFO_NULL, &mut file);
        assert_eq!(opened, 0, "{} cannot be opened", path.display());
        let (bytes, n) = (values.as_ptr().cast(), values.len() as i32);
        let status = ffi::RSMPI_STATUS_IGNORE;
        let write = if is_collective { ffi::MPI_File_write_at_all } else { ffi::MPI_File_write_at };
        let written = write(file, offset as i64, bytes, n, ffi::RSMPI_FLOAT, status);
        assert!(written == 0 && ffi::MPI_File_sync(file) == 0 && ffi::MPI_File_close(&mut file) == 0);
    }
}

fn main() {
    let universe = mpi::initialize().expect("MPI is not yet in use");
    let world = universe.world();
    let arguments = Arguments::parse();
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    let values = values_of(&arguments, rank);
    let n = values.len();
    let config = Config::new(ErrorBound::Rel(arguments.rel)).preset(arguments.preset).threads(1);
    let extents = if arguments.work == "write" { vec![n / PLANE[0] / PLANE[1], PLANE[0], PLANE[1]] } else { vec![n] };
    // The codec alone, on all ranks at once, as each has its share of the machine.
    let (mut stream, mut restored) = (Vec::new(), vec![0.0_f32; n]);
    let options = pumice::DecodeOptions::new().threads(1);
    pumice::compress_into(&values, &extents, &config, &mut stream).expect("values are compressed");
    let coding = least(
        &world,
        3,
        &mut [&mut || {
            pumice::compress_into(&values, &extents, &config, &mut stream).expect("values are compressed");
        }],
    )[0];
    let decoding = least(
        &world,
        3,
        &mut [&mut || {
            pumice::decompress_into(&stream, &mut restored, &options).expect("values are restored");
        }],
    )[0];
    let ratio = (4 * n) as f64 / stream.len() as f64;
    let runs = arguments.runs;
    let mut kind = String::new();
    let times = match arguments.work.as_str() {
        "write" => {
            let (plain, path) = (arguments.folder.join("plain"), arguments.folder.join("field.pum"));
            let [planes, rows, columns] = extents[..] else { unreachable!("boxes of files have three axes") };
            let shape = [n_ranks * planes, rows, columns];
            let mine = [LocalBox { start: &[rank * planes, 0, 0], extents: &extents, values: &values }];
            let mut auto = || {
                let done = pumice_mpi::write_with(&world, &path, &shape, &mine, &config, Wire::Auto);
                let is_plain = done.expect("the file is written").abs_bound == 0.0;
                kind = if is_plain { "plain".into() } else { "compressed".into() };
            };
            let times = least(
                &world,
                runs,
                &mut [
                    &mut || write_plain(&world, &plain, &values, true),
                    &mut || write_plain(&world, &plain, &values, false),
                    &mut || {
                        pumice_mpi::write(&world, &path, &shape, &mine, &config).expect("the file is written");
                    },
                    &mut auto,
                ],
            );
            // The quicker way of MPI is what to compare with.
            let times = vec![times[0].min(times[1]), times[2], times[3]];
            world.barrier();
            if rank == 0 {
                [plain, path].iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
            }
            times
        }
        "gather" => {
            let root = world.process_at_rank(0);
            let mut plain = vec![0.0_f32; if rank == 0 { n * n_ranks } else { 0 }];
            let mut out = plain.clone();
            let out = RefCell::new(&mut out);
            let with = |wire| pumice_mpi::gather(&world, 0, &values, &mut out.borrow_mut(), &config, wire);
            let plain = || match rank {
                0 => root.gather_into_root(&values[..], &mut plain[..]),
                _ => root.gather_into(&values[..]),
            };
            compare(&world, runs, plain, with, &mut kind)
        }
        "all-gather" => {
            let (mut plain, mut out) = (vec![0.0_f32; n * n_ranks], vec![0.0_f32; n * n_ranks]);
            let out = RefCell::new(&mut out);
            let with = |wire| pumice_mpi::all_gather(&world, &values, &mut out.borrow_mut(), &config, wire);
            let plain = || world.all_gather_into(&values[..], &mut plain[..]);
            compare(&world, runs, plain, with, &mut kind)
        }
        "broadcast" => {
            let root = world.process_at_rank(0);
            let (mut plain, mut out) = (values.clone(), values.clone());
            let out = RefCell::new(&mut out);
            let with = |wire| pumice_mpi::broadcast(&world, 0, &mut out.borrow_mut(), &config, wire);
            compare(&world, runs, || root.broadcast_into(&mut plain[..]), with, &mut kind)
        }
        "scatter" => {
            let root = world.process_at_rank(0);
            let all = if rank == 0 { values.repeat(n_ranks) } else { Vec::new() };
            let (mut plain, mut out) = (vec![0.0_f32; n], vec![0.0_f32; n]);
            let out = RefCell::new(&mut out);
            let with = |wire| pumice_mpi::scatter(&world, 0, &all, &mut out.borrow_mut(), &config, wire);
            let plain = || match rank {
                0 => root.scatter_into_root(&all[..], &mut plain[..]),
                _ => root.scatter_into(&mut plain[..]),
            };
            compare(&world, runs, plain, with, &mut kind)
        }
        "all-to-all" => {
            let part = n / n_ranks;
            let (values, counts) = (&values[..part * n_ranks], vec![part; n_ranks]);
            let (mut plain, mut out) = (values.to_vec(), values.to_vec());
            let out = RefCell::new(&mut out);
            let with =
                |wire| pumice_mpi::all_to_all(&world, values, &counts, &mut out.borrow_mut(), &counts, &config, wire);
            compare(&world, runs, || world.all_to_all_into(values, &mut plain[..]), with, &mut kind)
        }
        "send" => {
            // From rank 0 to rank 1.
            let (mut plain, mut out) = (vec![0.0_f32; n], vec![0.0_f32; n]);
            let out = RefCell::new(&mut out);
            let with = |wire| match rank {
                1 => pumice_mpi::receive(&world, 0, 0, &mut out.borrow_mut()),
                _ if rank == 0 && n_ranks > 1 => pumice_mpi::send(&world, 1, 0, &values, &config, wire),
                _ => panic!("send has two ranks"),
            };
            let plain = || {
                match rank {
                    0 => world.process_at_rank(1).send(&values[..]),
                    _ => drop(world.process_at_rank(0).receive_into(&mut plain[..])),
                };
            };
            compare(&world, runs, plain, with, &mut kind)
        }
        "sum" | "sum-in-parts" => {
            let bound = SumBound::Each(ErrorBound::Rel(arguments.rel));
            let is_all = arguments.work == "sum";
            let part = n / n_ranks;
            let (mut plain, mut out) = (vec![0.0_f32; n], vec![0.0_f32; if is_all { n } else { part }]);
            let mut with = |algorithm| {
                let vectors = [&values[..part * n_ranks]];
                let sum = if is_all {
                    pumice_mpi::all_reduce(&world, &[&values], &mut out, bound, algorithm)
                } else {
                    let mine = rank * part..(rank + 1) * part;
                    pumice_mpi::reduce_scatter(&world, &vectors, n_ranks * part, mine, &mut out, bound, algorithm)
                };
                format!("{:?}", sum.expect("values are added").algorithm).to_lowercase()
            };
            let with = RefCell::new(&mut with);
            let mut plainly = || {
                if is_all {
                    world.all_reduce_into(&values[..], &mut plain[..], SystemOperation::sum());
                } else {
                    let (all, mine) = (&values[..part * n_ranks], &mut plain[..part]);
                    world.reduce_scatter_block_into(all, mine, SystemOperation::sum());
                }
            };
            let (mut ring, mut auto) =
                (|| drop(with.borrow_mut()(SumAlgorithm::Ring)), || kind = with.borrow_mut()(SumAlgorithm::Auto));
            least(&world, runs, &mut [&mut plainly, &mut ring, &mut auto])
        }
        other => panic!("there is no work {other}"),
    };
    if rank == 0 {
        let gigabytes = (4 * n) as f64 / 1e9;
        println!(
            "{{\"work\": \"{}\", \"ranks\": {n_ranks}, \"mib\": {}, \"ratio\": {ratio:.2}, \"compress_gb_s\": {:.3}, \
             \"decompress_gb_s\": {:.3}, \"plain_s\": {:.4}, \"compressed_s\": {:.4}, \"auto_s\": {:.4}, \"auto\": \"{kind}\", \
             \"isa\": \"{}\"}}",
            arguments.work,
            arguments.mib,
            gigabytes / coding,
            gigabytes / decoding,
            times[0],
            times[1],
            times[2],
            pumice::instruction_set().expect("it is known"),
        );
    }
}
