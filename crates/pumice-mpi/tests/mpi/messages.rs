//! Values that travel in compressed form: they arrive within the bound, and errors are those of all ranks.

use std::path::Path;

use mpi::traits::*;
use pumice::{Config, ErrorBound, Preset};
use pumice_mpi::{Value, Wire, gather};

use crate::files::field;

/// Values of a rank: some have none, others more than a piece.
fn length_of(rank: usize, case: usize) -> usize {
    match (case, rank % 3) {
        (0, _) => 0,
        (1, 0) => 1,
        (1, _) => 70_000,
        (_, 0) => 300_001,
        (_, 1) => 0,
        (_, _) => 131_072,
    }
}

fn gathered<T: Value>(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    let configs = [
        Config::new(ErrorBound::Abs(0.01)).preset(Preset::Fast),
        Config::new(ErrorBound::Rel(1e-4)),
        Config::new(ErrorBound::Lossless),
    ];
    for case in 0..3 {
        for (special, config) in configs.iter().enumerate() {
            for wire in [Wire::Compressed, Wire::Plain, Wire::Auto] {
                let root = (case + special) % n_ranks;
                let values: Vec<T> = field(length_of(rank, case), special);
                let all: Vec<T> = (0..n_ranks).flat_map(|rank| field::<T>(length_of(rank, case), special)).collect();
                let mut out = vec![T::default(); if rank == root { all.len() } else { 0 }];
                let transfer = gather(world, root as i32, &values, &mut out, config, wire).expect("values arrive");
                assert!(wire != Wire::Plain || !transfer.is_compressed);
                for (x, y) in all.iter().zip(&out) {
                    let is_same = x.to_bits_u64() == y.to_bits_u64();
                    let error = (x.to_f64() - y.to_f64()).abs();
                    assert!(is_same || error <= transfer.abs_bound, "{x:?} arrived as {y:?} under {config:?}");
                }
            }
        }
    }
}

/// What the ranks do.
pub(crate) fn run(world: impl Communicator, _: &Path) {
    gathered::<f32>(&world);
    gathered::<f64>(&world);
    let config = Config::new(ErrorBound::Abs(0.01));
    let refused = |root: i32, n: usize, config: &Config, words: &str| {
        let error =
            gather(&world, root, &[1.0_f32; 10], &mut vec![0.0; n], config, Wire::Auto).expect_err("is refused");
        assert!(error.to_string().contains(words), "{error}");
    };
    let n = 10 * world.size() as usize;
    refused(world.size(), n, &config, "no rank");
    refused(0, n + 1, &config, "the output has");
    refused(0, n, &Config::new(ErrorBound::PwRel(0.1)), "absolute or a relative");
    refused(0, n, &config.clone().and(ErrorBound::Rel(0.1)), "one bound");
    if world.size() > 1 {
        refused(world.rank(), n, &config, "do not agree");
    }
}
