//! What a collective write costs beside compression, for up to 100,000 ranks: a model of its messages, with the work that
//! each rank does by itself measured here. `cargo run --release --package pumice-mpi --example scaling` needs no MPI.
//!
//! The messages of `write` were counted by an interposed library; every rank sends as many, whatever their number. A message
//! of b bytes takes LATENCY + b / BANDWIDTH. Collectives take the algorithms that MPI libraries choose for these sizes:
//! allreduce and scan by doubling; alltoall of 8 bytes each by Bruck; allgather by doubling; gather by a tree.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use pumice::backend::{Chunks, FirstPass, MAX_NAMED, Passes, SecondPass, Shared, SharedStream};
use pumice::{Config, ErrorBound, Preset};

/// Seconds, and bytes per second: a network of today, and slow by its standards.
const LATENCY: f64 = 3e-6;
const BANDWIDTH: f64 = 5e9;

/// Chunks of each rank: 100 of 1 MiB of values.
const CHUNKS: u64 = 100;
/// Bytes that a rank says about its box, in three dimensions.
const BOX_BYTES: f64 = 48.0;

/// Calls of one write: allreduce, broadcast, alltoall, and allgather of counts and lists.
const ALLREDUCES: f64 = 38.0;
const BROADCASTS: f64 = 2.0;
const ALLTOALLS: f64 = 6.0;
/// Duplicating and splitting the communicator: each like a few reductions and a gather of 8 bytes from all.
const NEW_COMMUNICATORS: f64 = 2.0;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{CHUNKS} chunks per rank; seconds\n");
    println!(
        "   ranks      chunks  reductions  alltoall     boxes   offsets  index: gather    make    bytes     total"
    );
    for n_ranks in [10_u64, 100, 1000, 10_000, 100_000] {
        let (n, chunks) = (n_ranks as f64, n_ranks * CHUNKS);
        let steps = n.log2().ceil();
        let reductions = (ALLREDUCES + BROADCASTS) * steps * LATENCY
            + NEW_COMMUNICATORS * (4.0 * steps * LATENCY + 8.0 * n / BANDWIDTH);
        // Bruck: in each step, half of the entries go to one rank.
        let alltoall = ALLTOALLS * steps * (LATENCY + 8.0 * n / 2.0 / BANDWIDTH);
        let boxes = 2.0 * steps * LATENCY + (BOX_BYTES + 8.0) * n / BANDWIDTH + look_at_boxes(n_ranks);
        // To the ranks in charge of these ids and back, and the scan.
        let offsets = 3.0 * steps * LATENCY + 2.0 * (LATENCY + 16.0 * CHUNKS as f64 / BANDWIDTH);
        let gather = steps * LATENCY + 8.0 * chunks as f64 / BANDWIDTH;
        let (make, bytes) = make_index(chunks)?;
        let total = reductions + alltoall + boxes + offsets + gather + make;
        println!(
            "{n_ranks:>8}{chunks:>12}{reductions:>12.5}{alltoall:>10.5}{boxes:>10.5}{offsets:>10.5}{gather:>15.5}{make:>8.4}\
             {bytes:>9}{total:>10.4}"
        );
    }
    Ok(())
}

/// Seconds to look through the boxes of all ranks once, as a rank does for each chunk that its boxes cut.
fn look_at_boxes(n_ranks: u64) -> f64 {
    let boxes: Vec<(Vec<usize>, Vec<usize>)> =
        (0..n_ranks as usize).map(|rank| (vec![rank, 0, 0], vec![1, 100, 100])).collect();
    let wanted = [n_ranks as usize - 1, 99, 99];
    let start = Instant::now();
    let found = boxes.iter().position(|(start, extents)| {
        (0..3).all(|axis| start[axis] <= wanted[axis] && wanted[axis] < start[axis] + extents[axis])
    });
    black_box(found);
    start.elapsed().as_secs_f64()
}

/// Seconds to make the index of so many chunks on one rank, and its size.
fn make_index(n_chunks: u64) -> Result<(f64, usize), Box<dyn Error>> {
    const CHUNK: usize = 1 << 18;
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast).chunk_shape(&[CHUNK]);
    let shape = [n_chunks as usize * CHUNK];
    assert_eq!(Chunks::new::<f32>(&config, &shape)?.count(), n_chunks);
    let stream = SharedStream::<f32>::new(&config, &Zeros(shape))?;
    // A twentieth of the values, more or less.
    let sizes: Vec<u64> = (0..n_chunks).map(|i| (4 * CHUNK as u64 / 20) + i % 1000).collect();
    let start = Instant::now();
    let (tail, _) = stream.finish(sizes)?;
    Ok((start.elapsed().as_secs_f64(), tail.len()))
}

/// An array of zeros that nobody has to hold.
struct Zeros([usize; 1]);

impl Passes<f32> for Zeros {
    fn n_values(&self) -> usize {
        self.0[0]
    }

    fn first(&self, _: &[f32], _: usize) -> pumice::Result<FirstPass<f32>> {
        Ok(FirstPass { range: Some((0.0, 0.0)), ..FirstPass::default() })
    }

    fn second(&self, _: &[f32]) -> pumice::Result<SecondPass<f32>> {
        Ok(SecondPass { counts: [0; MAX_NAMED], range: None })
    }
}

impl Shared<f32> for Zeros {
    fn shape(&self) -> &[usize] {
        &self.0
    }

    fn read_box(&self, _: &[usize], extents: &[usize]) -> pumice::Result<Vec<f32>> {
        Ok(vec![0.0; extents.iter().product()])
    }

    fn all(&self, holds: &(dyn Fn(&[f32]) -> bool + Sync)) -> pumice::Result<bool> {
        Ok(holds(&[0.0]))
    }
}
