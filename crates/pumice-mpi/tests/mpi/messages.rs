//! Values that travel in compressed form: they arrive within the bound, with the same bits where that is promised, and errors
//! are those of all ranks.

use std::path::Path;

use mpi::traits::*;
use pumice::{Config, ErrorBound, Preset, Stable};
use pumice_mpi::{Transfer, Value, Wire, all_gather, all_to_all, broadcast, gather, receive, scatter, send};

use crate::files::field;

const WIRES: [Wire; 3] = [Wire::Compressed, Wire::Plain, Wire::Auto];

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

/// Values of a rank, other ones for each.
fn values_of<T: Value>(rank: usize, n: usize, special: usize) -> Vec<T> {
    let mut values = field(n + rank, special);
    values.split_off(rank)
}

fn configs() -> [Config; 4] {
    [
        Config::new(ErrorBound::Abs(0.01)).preset(Preset::Fast),
        Config::new(ErrorBound::Rel(1e-4)),
        Config::new(ErrorBound::Lossless),
        Config::new(ErrorBound::PwRel(1e-3)),
    ]
}

fn bits<T: Value>(values: &[T]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits_u64()).collect()
}

/// The bound that is asked for, of values among which are all that take part.
fn bound_of<T: Value>(config: &Config, all: &[T]) -> f64 {
    let finite = || all.iter().map(|x| x.to_f64()).filter(|x| x.is_finite());
    match config.bound() {
        ErrorBound::Abs(abs) => abs,
        ErrorBound::Rel(rel) if finite().next().is_some() => {
            let (lo, hi) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
            rel * (hi - lo)
        }
        ErrorBound::PwRel(rel) => rel * finite().map(f64::abs).fold(0.0, f64::max),
        _ => 0.0,
    }
}

/// Checks what has arrived against what was sent, and the promise against what was asked for.
fn check<T: Value>(sent: &[T], arrived: &[T], transfer: Transfer, config: &Config, wire: Wire, all: &[T]) {
    assert_eq!(sent.len(), arrived.len());
    let asked = bound_of(config, all);
    assert!(transfer.abs_bound <= asked, "{} is promised, not {asked}", transfer.abs_bound);
    assert!(transfer.is_compressed || transfer.abs_bound == 0.0);
    assert!(wire != Wire::Plain || !transfer.is_compressed);
    for (x, y) in sent.iter().zip(arrived) {
        let is_same = x.to_bits_u64() == y.to_bits_u64();
        let (exact, error) = (x.to_f64(), (x.to_f64() - y.to_f64()).abs());
        let bound = match config.bound() {
            ErrorBound::PwRel(rel) => transfer.abs_bound.min(rel * exact.abs()),
            _ => transfer.abs_bound,
        };
        assert!(is_same || error <= bound, "{x:?} arrived as {y:?} under {config:?}, {wire:?}");
    }
}

/// Checks that all ranks have the same bits.
fn check_same_bits<T: Value>(world: &impl Communicator, values: &[T]) {
    let mut of_first = bits(values);
    let root = world.process_at_rank(0);
    root.broadcast_into(&mut of_first[..]);
    assert!(of_first == bits(values), "rank {} has other bits", world.rank());
}

/// Runs a test for all sizes, bounds and ways; a root among the ranks comes with them.
fn each_case(n_ranks: usize, test: impl Fn(usize, usize, &Config, Wire, usize)) {
    for case in 0..3 {
        for (special, config) in configs().iter().enumerate() {
            for wire in WIRES {
                test(case, special, config, wire, (case + special) % n_ranks);
            }
        }
    }
}

fn collected<T: Value>(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    each_case(n_ranks, |case, special, config, wire, root| {
        let parts: Vec<Vec<T>> = (0..n_ranks).map(|rank| values_of(rank, length_of(rank, case), special)).collect();
        let all = parts.concat();
        let (values, is_root) = (&parts[rank], rank == root);
        let start: usize = parts[..rank].iter().map(Vec::len).sum();
        let own = start..start + values.len();
        let mut out = vec![T::default(); if is_root { all.len() } else { 0 }];
        let transfer = gather(world, root as i32, values, &mut out, config, wire).expect("values arrive");
        if is_root {
            check(&all, &out, transfer, config, wire, &all);
            assert!(bits(&out[own.clone()]) == bits(values), "own values stay as they are");
        }
        let mut out = vec![T::default(); all.len()];
        let transfer = all_gather(world, values, &mut out, config, wire).expect("values arrive");
        check(&all, &out, transfer, config, wire, &all);
        check_same_bits(world, &out);
    });
}

fn distributed<T: Value>(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    each_case(n_ranks, |case, special, config, wire, root| {
        let counts: Vec<usize> = (0..n_ranks).map(|rank| length_of(rank, case)).collect();
        let all: Vec<T> = values_of(root, counts.iter().sum(), special);
        let start: usize = counts[..rank].iter().sum();
        let mine = &all[start..start + counts[rank]];
        let given = if rank == root { &all[..] } else { &[] };
        let mut out = vec![T::default(); counts[rank]];
        let transfer = scatter(world, root as i32, given, &mut out, config, wire).expect("values arrive");
        check(mine, &out, transfer, config, wire, &all);
        assert!(rank != root || bits(&out) == bits(mine), "own values stay as they are");
        // A piece is sent down a tree, several in a chain.
        let sent = &all[..all.len().min(if special == 0 { 600_000 } else { 100_000 })];
        let mut values = if rank == root { sent.to_vec() } else { vec![T::default(); sent.len()] };
        let transfer = broadcast(world, root as i32, &mut values, config, wire).expect("values arrive");
        check(sent, &values, transfer, config, wire, sent);
        check_same_bits(world, &values);
    });
}

/// How many values one rank sends another.
fn length_between(from: usize, to: usize, case: usize) -> usize {
    match (case, (2 * from + to) % 4) {
        (0, _) | (_, 2) => 0,
        (1, i) => 10_000 * i + 1,
        (_, i) => 70_000 * i,
    }
}

fn exchanged<T: Value>(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    each_case(n_ranks, |case, special, config, wire, _| {
        let values_between =
            |from: usize, to: usize| -> Vec<T> { values_of(3 * from + to, length_between(from, to, case), special) };
        let lists = |of: &dyn Fn(usize) -> Vec<T>| -> (Vec<T>, Vec<usize>) {
            let lists: Vec<Vec<T>> = (0..n_ranks).map(of).collect();
            (lists.concat(), lists.iter().map(Vec::len).collect())
        };
        let (values, counts) = lists(&|to| values_between(rank, to));
        let (expected, out_counts) = lists(&|from| values_between(from, rank));
        let all: Vec<T> =
            (0..n_ranks).flat_map(|from| (0..n_ranks).flat_map(move |to| values_between(from, to))).collect();
        let mut out = vec![T::default(); expected.len()];
        let transfer = all_to_all(world, &values, &counts, &mut out, &out_counts, config, wire).expect("values arrive");
        check(&expected, &out, transfer, config, wire, &all);
        let own = out_counts[..rank].iter().sum::<usize>();
        let own = own..own + out_counts[rank];
        assert!(bits(&out[own.clone()]) == bits(&expected[own]), "own values stay as they are");
    });
}

/// Each rank sends to the next one, even ranks first.
fn sent<T: Value>(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    if n_ranks == 1 {
        return;
    }
    let (next, previous) = ((rank + 1) % n_ranks, (rank + n_ranks - 1) % n_ranks);
    each_case(n_ranks, |case, special, config, wire, tag| {
        // Not more than a piece, and so many that a link is measured.
        let length = |rank: usize| length_of(rank, case) + if case == 2 { 140_000 } else { 0 };
        let values: Vec<T> = values_of(rank, length(rank), special);
        let expected: Vec<T> = values_of(previous, length(previous), special);
        let mut out = vec![T::default(); expected.len()];
        for turn in 0..2 {
            if rank % 2 == turn {
                let transfer = send(world, next as i32, tag as i32, &values, config, wire).expect("values are sent");
                assert!(transfer.is_compressed || transfer.sent_bytes == size_of_val(&values[..]) as u64);
            } else {
                let transfer = receive(world, previous as i32, tag as i32, &mut out).expect("values arrive");
                check(&expected, &out, transfer, config, wire, &expected);
            }
        }
    });
}

/// Messages that do not fit, or are none: the receiver has an error, and the next message arrives.
fn sent_wrongly(world: &impl Communicator) {
    if world.size() == 1 {
        let error = send(world, 0, 0, &[1.0_f32], &Config::new(ErrorBound::Lossless), Wire::Auto);
        assert!(error.expect_err("is refused").to_string().contains("cannot send to itself"));
        return;
    }
    let (n, values) = (400_000, field::<f32>(400_000, 9));
    let config = Config::new(ErrorBound::Abs(0.01));
    let words_of = |result: pumice::Result<Transfer>| result.expect_err("is refused").to_string();
    match world.rank() {
        0 => {
            for wire in WIRES {
                send(world, 1, 5, &values, &config, wire).expect("values are sent");
                send(world, 1, 5, &values, &config, wire).expect("values are sent");
                send(world, 1, 5, &values, &config, wire).expect("values are sent");
            }
            let error = words_of(send(world, 1, 5, &values, &Config::new(ErrorBound::Psnr(60.0)), Wire::Auto));
            assert!(error.contains("messages have"), "{error}");
            world.process_at_rank(1).send_with_tag(&values[..10], 5);
            assert!(words_of(send(world, 1, -1, &values, &config, Wire::Auto)).contains("not a tag"));
            assert!(words_of(send(world, world.size(), 0, &values, &config, Wire::Auto)).contains("no rank"));
            // A piece that could not be coded has no bytes.
            let header = [&b"PUM>MPI1\x01"[..], &10_u64.to_le_bytes(), &0.5_f64.to_le_bytes(), b"f32"].concat();
            world.process_at_rank(1).send_with_tag(&header[..], 6);
            world.process_at_rank(1).send_with_tag::<[u8]>(&[], 6);
        }
        1 => {
            for _ in WIRES {
                let error = words_of(receive(world, 0, 5, &mut vec![0.0_f32; n - 1]));
                assert!(error.contains("400000 values") && error.contains("has 399999"), "{error}");
                let error = words_of(receive(world, 0, 5, &mut vec![0.0_f64; n]));
                assert!(error.contains("400000 of f64"), "{error}");
                let mut out = vec![0.0_f32; n];
                receive(world, 0, 5, &mut out).expect("the next message is whole");
                assert!(out.iter().zip(&values).all(|(x, y)| (x - y).abs() <= 0.01));
            }
            let error = words_of(receive(world, 0, 5, &mut vec![0.0_f32; n]));
            assert!(error.contains("rank 0 could not send") && error.contains("messages have"), "{error}");
            let error = words_of(receive(world, 0, 5, &mut [0.0_f32; 10]));
            assert!(error.contains("not one of pumice_mpi::send"), "{error}");
            let error = words_of(receive(world, 0, 6, &mut [0.0_f32; 10]));
            assert!(error.contains("could not compress"), "{error}");
        }
        _ => {}
    }
}

/// All ranks have the same error, with these words, and go on.
fn refused(world: &impl Communicator, result: pumice::Result<Transfer>, words: &str) {
    let error = result.expect_err("is refused").to_string();
    assert!(error.contains(words), "{error}");
    let mut of_first = error.clone().into_bytes();
    let mut n = of_first.len() as u64;
    world.process_at_rank(0).broadcast_into(&mut n);
    of_first.resize(n as usize, 0);
    world.process_at_rank(0).broadcast_into(&mut of_first[..]);
    assert_eq!(error.as_bytes(), of_first);
}

fn mismatches(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank(), world.size());
    let n = 10 * n_ranks as usize;
    let (config, values) = (Config::new(ErrorBound::Abs(0.01)), [1.0_f32; 10]);
    let gathered = |root: i32, n: usize, config: &Config, wire: Wire| {
        gather(world, root, &values, &mut vec![0.0; n], config, wire)
    };
    refused(world, gathered(n_ranks, n, &config, Wire::Auto), "no rank");
    refused(world, gathered(0, n + 1, &config, Wire::Auto), "the output has");
    refused(world, gathered(0, n, &Config::new(ErrorBound::Psnr(60.0)), Wire::Auto), "point-wise relative");
    refused(world, gathered(0, n, &config.clone().and(ErrorBound::Rel(0.1)), Wire::Auto), "one bound");
    refused(world, gathered(0, n, &config.clone().fills(&[1.0]), Wire::Auto), "no fill values");
    refused(world, gathered(0, n, &config.clone().chunk_shape(&[5]), Wire::Auto), "chunk shape");
    refused(world, gathered(0, n, &config.clone().range(1.0, 0.0), Wire::Auto), "MIN <= MAX");
    refused(world, all_gather(world, &values, &mut vec![0.0; n + 1], &config, Wire::Auto), "the output has");
    let n_given = n - usize::from(rank == 0);
    refused(world, scatter(world, 0, &vec![1.0_f32; n_given], &mut [0.0; 10], &config, Wire::Auto), "the outputs");
    let counts = vec![10; n_ranks as usize];
    let (input, mut out) = (vec![1.0_f32; n], vec![0.0; n]);
    let mut exchanged = |counts: &[usize], out_counts: &[usize], n_out: usize| {
        all_to_all(world, &input, counts, &mut out[..n_out], out_counts, &config, Wire::Auto)
    };
    refused(world, exchanged(&counts[1..], &counts, n), "counts of the input");
    refused(world, exchanged(&counts, &counts, n - 1), "counts of the output add up");
    let (mut less, last) = (counts.clone(), n_ranks as usize - 1);
    less[last] -= 1;
    refused(world, exchanged(&counts, &less, n - 1), "sends 10 values here, but the output has 9");
    if n_ranks == 1 {
        return;
    }
    refused(world, gathered(rank, n, &config, Wire::Auto), "do not agree on the rank");
    refused(world, gathered(0, n, &config, if rank == 0 { Wire::Plain } else { Wire::Auto }), "way of sending");
    let bound = ErrorBound::Abs(if rank == 1 { 0.1 } else { 0.2 });
    refused(world, gathered(0, n, &Config::new(bound), Wire::Auto), "bound or other options");
    let mut values = vec![0.0_f32; 10 + usize::from(rank == 1)];
    refused(world, broadcast(world, 0, &mut values, &config, Wire::Auto), "number of values");
    let mixed = if rank == 1 {
        broadcast(world, 0, &mut [0.0_f64; 10], &config, Wire::Auto)
    } else {
        broadcast(world, 0, &mut [0.0_f32; 10], &config, Wire::Auto)
    };
    refused(world, mixed, "type of values");
    let mixed = match rank {
        1 => gather(world, 0, &[1.0_f32; 10], &mut [], &config, Wire::Auto),
        _ => scatter(world, 0, &vec![1.0_f32; n], &mut [0.0; 10], &config, Wire::Auto),
    };
    refused(world, mixed, "do not agree on the operation");
    // One rank has a range that is given, which the others do not.
    let config =
        if rank == 1 { Config::new(ErrorBound::Rel(0.1)).range(0.0, 1.0) } else { Config::new(ErrorBound::Rel(0.1)) };
    refused(world, gathered(0, n, &config, Wire::Compressed), "bound or other options");
}

/// Values that some ranks cannot code, as their options exclude each other: nobody waits for them.
fn uncodable(world: &impl Communicator) {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    if n_ranks == 1 {
        return;
    }
    let config = Config::new(ErrorBound::PwRel(1e-3)).stable(Stable::On);
    // Only rank 1 has values, several pieces of them.
    let values: Vec<f32> = field(if rank == 1 { 300_000 } else { 0 }, 9);
    let (mut all, wire) = (vec![1.0; 300_000], Wire::Compressed);
    let words = "rank 1: the stable mode is not possible";
    let out = &mut all[..if rank == 0 { 300_000 } else { 0 }];
    refused(world, gather(world, 0, &values, out, &config, wire), words);
    refused(world, all_gather(world, &values, &mut all, &config, wire), words);
    refused(world, broadcast(world, 1, &mut all, &config, wire), words);
    let out = &mut vec![0.0; if rank == 0 { 300_000 } else { 0 }];
    refused(world, scatter(world, 1, &values, out, &config, wire), words);
    let (mut counts, mut out_counts) = (vec![0; n_ranks], vec![0; n_ranks]);
    if rank == 1 {
        counts[0] = 300_000;
    } else if rank == 0 {
        out_counts[1] = 300_000;
    }
    refused(world, all_to_all(world, &values, &counts, out, &out_counts, &config, wire), words);
    let (result, words) = match rank {
        0 => (receive(world, 1, 0, &mut all), "rank 1 could not compress"),
        1 => (send(world, 0, 0, &values, &config, wire), "the stable mode is not possible"),
        _ => return,
    };
    let error = result.expect_err("is refused").to_string();
    assert!(error.contains(words), "{error}");
}

/// A range that is given counts instead of that of the values.
fn ranges(world: &impl Communicator) {
    let config = Config::new(ErrorBound::Rel(1e-3)).range(0.0, 10.0);
    let mut values = field::<f64>(1000, 9);
    let transfer = broadcast(world, 0, &mut values, &config, Wire::Compressed).expect("values arrive");
    assert_eq!(transfer.abs_bound, if world.size() == 1 { 0.0 } else { 0.01 });
}

/// What the ranks do.
pub(crate) fn run(world: impl Communicator, _: &Path) {
    collected::<f32>(&world);
    collected::<f64>(&world);
    distributed::<f32>(&world);
    distributed::<f64>(&world);
    exchanged::<f32>(&world);
    exchanged::<f64>(&world);
    sent::<f32>(&world);
    sent::<f64>(&world);
    sent_wrongly(&world);
    mismatches(&world);
    uncodable(&world);
    ranges(&world);
}
