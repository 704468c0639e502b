//! Sums that are carried in compressed form: the same bits however vectors are shared out, and errors within the bound.

use std::fs;
use std::ops::Range;
use std::path::Path;

use mpi::traits::*;
use pumice::{Element, ErrorBound};
use pumice_mpi::{SumAlgorithm, SumBound, Value, all_reduce, reduce_scatter};

use crate::files::Random;

const VECTORS: usize = 28;
const ALGORITHMS: [SumAlgorithm; 4] =
    [SumAlgorithm::Ring, SumAlgorithm::Halving, SumAlgorithm::Plain, SumAlgorithm::Auto];

/// A smooth vector with noise, which its number determines.
fn vector<T: Element>(number: usize, n: usize, noise: f64) -> Vec<T> {
    let mut random = Random(number as u64 + 1);
    (0..n)
        .map(|i| {
            let noise = noise * (random.below(1 << 20) as f64 / f64::from(1 << 20) - 0.5);
            T::from_f64(((i + 100 * number) as f64 * 1e-3).sin() * 3.0 + noise)
        })
        .collect()
}

/// The exact difference between sums of many values and a value, rounded once: two numbers hold more than 100 bits.
fn error_of<T: Element>(vectors: &[Vec<T>], i: usize, sum: T) -> f64 {
    let (mut high, mut low) = (-sum.to_f64(), 0.0);
    for vector in vectors {
        let x = vector[i].to_f64();
        let total = high + x;
        let part = total - high;
        low += (high - (total - part)) + (x - part);
        high = total;
    }
    (high + low).abs()
}

/// All of the first vectors on the first ranks: some may have none.
fn vectors_here<'v, T>(world: &impl Communicator, vectors: &'v [Vec<T>]) -> Vec<&'v [T]> {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    let per_rank = vectors.len().div_ceil(n_ranks);
    vectors.iter().skip(rank * per_rank).take(per_rank).map(Vec::as_slice).collect()
}

/// Parts of the sum that ranks ask for: one after the other, evenly or not; any, which overlap or leave values out.
fn parts(rank: usize, n_ranks: usize, n: usize) -> [Range<usize>; 4] {
    let cut = |i: usize| i * n / n_ranks;
    // The last ranks have nothing, or all.
    let uneven = |i: usize| (2 * i * n / n_ranks).min(n);
    let any = (rank * 7919) % (n + 1);
    [cut(rank)..cut(rank + 1), uneven(rank)..uneven(rank + 1), any..n.min(any + n / 2), n - cut(rank)..n]
}

/// Parts have the bits of the whole sum.
fn check_parts<T: Value>(
    world: &impl Communicator,
    vectors: &[Vec<T>],
    bound: SumBound,
    algorithm: SumAlgorithm,
    all_bits: &[u64],
) {
    let n = all_bits.len();
    for part in parts(world.rank() as usize, world.size() as usize, n) {
        let mut sum = vec![T::from_f64(7.0); part.len()];
        let mine = vectors_here(world, vectors);
        let summary =
            reduce_scatter(world, &mine, n, part.clone(), &mut sum, bound, algorithm).expect("sums are formed");
        assert_eq!(summary.n_vectors, vectors.len() as u64);
        let bits: Vec<u64> = sum.iter().map(|x| x.to_bits_u64()).collect();
        assert!(bits == all_bits[part.clone()], "{algorithm:?}, {part:?} of {n} values");
    }
}

fn sum_of<T: Value>(
    world: &impl Communicator,
    vectors: &[Vec<T>],
    bound: SumBound,
    algorithm: SumAlgorithm,
) -> pumice::Result<(Vec<T>, f64)> {
    let mine = vectors_here(world, vectors);
    let mut sum = vec![T::from_f64(7.0); vectors[0].len()];
    let summary = all_reduce(world, &mine, &mut sum, bound, algorithm)?;
    assert_eq!(summary.n_vectors, vectors.len() as u64);
    Ok((sum, summary.abs_bound))
}

/// The bits of all sums, to be compared between jobs of other numbers of ranks.
fn check<T: Value>(world: &impl Communicator, all_bits: &mut Vec<u64>) {
    let bounds = [
        SumBound::Each(ErrorBound::Abs(1e-3)),
        SumBound::Each(ErrorBound::Rel(1e-4)),
        SumBound::Total(ErrorBound::Abs(0.02)),
        SumBound::Total(ErrorBound::Rel(1e-3)),
    ];
    for (n, bound) in [0, 1, 5, 1000, 70_001, 400_000].into_iter().zip(bounds.into_iter().cycle()) {
        let mut vectors: Vec<Vec<T>> = (0..VECTORS).map(|number| vector(number, n, 0.01)).collect();
        if n == 1000 {
            let put = |i: usize, value: f64, vector: &mut Vec<T>| vector[i] = T::from_f64(value);
            put(5, f64::NAN, &mut vectors[3]);
            put(6, f64::INFINITY, &mut vectors[4]);
            put(7, f64::INFINITY, &mut vectors[5]);
            put(7, f64::NEG_INFINITY, &mut vectors[20]);
            put(8, f64::NEG_INFINITY, &mut vectors[27]);
        }
        let mut first: Option<Vec<u64>> = None;
        for algorithm in ALGORITHMS {
            let (sum, abs_bound) = sum_of(world, &vectors, bound, algorithm).expect("the bound is not too small");
            for (i, x) in sum.iter().enumerate().filter(|(_, x)| x.is_finite()) {
                let error = error_of(&vectors, i, *x);
                assert!(error <= abs_bound, "{algorithm:?}, {n} values: value {i} is off by {error}, not {abs_bound}");
            }
            if n == 1000 {
                let specials: Vec<f64> = sum[5..9].iter().map(|x| x.to_f64()).collect();
                assert!(specials[0].is_nan() && specials[2].is_nan());
                assert_eq!([specials[1], specials[3]], [f64::INFINITY, f64::NEG_INFINITY]);
            }
            let bits: Vec<u64> = sum.iter().map(|x| x.to_bits_u64()).collect();
            assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{algorithm:?}, {n} values");
            check_parts(world, &vectors, bound, algorithm, &bits);
        }
        all_bits.extend(first.unwrap_or_default());
    }
}

/// What the ranks do.
pub(crate) fn run(world: impl Communicator, folder: &Path) {
    let mut bits = Vec::new();
    check::<f32>(&world, &mut bits);
    check::<f64>(&world, &mut bits);
    // Jobs of other numbers of ranks have the same.
    let name = folder.join("sums");
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    if world.rank() == 0 {
        match fs::read(&name) {
            Ok(before) => assert!(before == bytes, "{} ranks give other bits", world.size()),
            Err(_) => fs::write(&name, bytes).expect("there is room"),
        }
    }
    let refused = |bound: SumBound, words: &str| {
        let vectors: Vec<Vec<f32>> = (0..4).map(|number| vector(number, 100, 0.0)).collect();
        let error = sum_of(&world, &vectors, bound, SumAlgorithm::Ring).expect_err("the bound is refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(SumBound::Each(ErrorBound::Abs(1e-9)), "precision");
    refused(SumBound::Each(ErrorBound::Abs(0.0)), "above 0");
    // The finest that doubles have, and one that is finer.
    let vectors: Vec<Vec<f64>> = (0..4).map(|number| vector(number, 1000, 1.0)).collect();
    let sum = |bound: f64, algorithm: SumAlgorithm| {
        sum_of(&world, &vectors, SumBound::Each(ErrorBound::Abs(bound)), algorithm)
    };
    for algorithm in ALGORITHMS {
        let (sum, abs_bound) = sum(1e-9, algorithm).expect("the bound is not too small");
        assert!((0..1000).all(|i| error_of(&vectors, i, sum[i]) <= abs_bound));
    }
    assert!(sum(1e-10, SumAlgorithm::Ring).is_err());
    refused(SumBound::Total(ErrorBound::PwRel(1e-3)), "absolute or a relative");
    let other = if world.rank() == 0 { 1e-3 } else { 1e-2 };
    if world.size() > 1 {
        refused(SumBound::Each(ErrorBound::Abs(other)), "bound");
    }
    let refused = |part: Range<usize>, n_out: usize, length: usize, words: &str| {
        let (vector, mut sum, bound) = (vec![1.0_f32; 100], vec![0.0; n_out], SumBound::Each(ErrorBound::Abs(0.1)));
        let done = reduce_scatter(&world, &[&vector], length, part, &mut sum, bound, SumAlgorithm::Auto);
        let error = done.expect_err("the part is refused").to_string();
        assert!(error.contains(words), "{error}");
    };
    let last = world.rank() == world.size() - 1;
    refused(0..10 + usize::from(last), 10, 100, "not a part of 10 values");
    refused(if last { 95..105 } else { 0..10 }, 10, 100, "not a part");
    refused(0..10, 10, 101, "a vector has 100 values");
    if world.size() > 1 {
        refused(0..10, 10, 100 + usize::from(last), "length of the sum");
        let (vector, bound) = (vec![1.0_f32; 100], SumBound::Each(ErrorBound::Abs(0.1)));
        let mut sum = vec![0.0; 100];
        let mixed = if last {
            reduce_scatter(&world, &[&vector], 100, 0..100, &mut sum, bound, SumAlgorithm::Ring)
        } else {
            all_reduce(&world, &[&vector], &mut sum, bound, SumAlgorithm::Ring)
        };
        assert!(mixed.expect_err("is refused").to_string().contains("do not agree on the operation"));
    }
}
