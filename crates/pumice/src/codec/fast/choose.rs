//! Chooses, from a sample of the chunk, along which axes to take differences, and the view that serves them best.
//!
//! The cost of a candidate is the sum of group widths over sampled runs of 64 values, which is what planes will take.
//! Only integers are compared, so every backend chooses alike.

use super::geometry::{Predictor, View, X, XX, Y, Z};
use crate::num::{Int, Value};

/// Values in a sampled run.
pub(crate) const RUN: usize = 64;
/// Values before a run that differences along x may reach.
pub(crate) const MAX_LAG: usize = 16;
/// Runs sampled from a chunk, at most.
pub(crate) const MAX_RUNS: usize = 40;

/// A predictor and the view it works in.
pub(crate) type Choice = (Predictor, View);

/// Integers of a run and of the values before it.
pub(crate) type Run<I> = [I; MAX_LAG + RUN];

/// One way to predict, and how to code it if it wins.
pub(crate) struct Candidate {
    /// Distances in the chunk of the rows or planes that are subtracted first; 0 for none.
    pub(crate) across: [usize; 2],
    pub(crate) choice: Choice,
    cost: u64,
}

/// What is compared in a chunk of these extents, and where.
pub(crate) struct Sampling {
    /// In order of preference among equals; those that subtract the same rows stand together.
    pub(crate) candidates: Vec<Candidate>,
    /// Values before any run that some candidate needs.
    reach: usize,
    /// Values by which starts of runs may differ.
    span: usize,
    n_runs: usize,
}

impl Sampling {
    pub(crate) fn new(extents: &[usize]) -> Self {
        let n_values: usize = extents.iter().product();
        let candidates = candidates(extents);
        let reach = MAX_LAG + candidates.iter().map(|c| c.across[0] + c.across[1]).max().unwrap_or(0);
        if n_values < reach + RUN {
            // Too little to sample: differences along the fastest axis are never far off.
            let choice = (Predictor::new(X), View::new(extents, extents.len(), 0, 0));
            return Self { candidates: vec![Candidate { across: [0; 2], choice, cost: 0 }], reach, span: 0, n_runs: 0 };
        }
        Self { candidates, reach, span: n_values - reach - RUN, n_runs: MAX_RUNS.min(1 + n_values / RUN / 4) }
    }

    /// Index in the chunk of the first value of each run; none where there is just one candidate.
    pub(crate) fn starts(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { reach, span, n_runs, .. } = *self;
        // Spread evenly, and off the regular grid that round extents would make.
        (0..n_runs).map(move |run| reach + (span as u128 * (2 * run as u128 + 1) / (2 * n_runs as u128)) as usize)
    }
}

/// Gives the quantised (or exact) integers of consecutive values of the chunk, from `first` on. A trait and not a
/// closure, since closures are not always inlined into the functions that have an instruction set.
pub(crate) trait Sample<T: Value> {
    fn run(&self, first: usize) -> Run<T::Int>;
}

#[inline(always)]
pub(crate) fn choose<T: Value>(extents: &[usize], sample: &impl Sample<T>) -> Choice {
    let mut sampling = Sampling::new(extents);
    for start in sampling.starts() {
        let first = start - MAX_LAG;
        let here = sample.run(first);
        let mut across = [0; 2];
        let mut differences = here;
        for candidate in &mut sampling.candidates {
            if candidate.across != across {
                across = candidate.across;
                differences = here;
                subtract::<T>(&mut differences, &sample.run(first - across[0]));
                if across[1] != 0 {
                    let mut behind = sample.run(first - across[1]);
                    subtract::<T>(&mut behind, &sample.run(first - across[0] - across[1]));
                    subtract::<T>(&mut differences, &behind);
                }
            }
            candidate.cost += cost::<T>(&differences, candidate.choice.0);
        }
    }
    let best = sampling.candidates.into_iter().min_by_key(|c| price(c.choice.0.lag, c.cost));
    best.expect("there are candidates").choice
}

/// What a candidate of this lag and cost is judged by. A lag is coded by the slower path, so it must be worth it.
pub(crate) fn price(lag: usize, cost: u64) -> u64 {
    if lag > 1 { cost + cost / 16 } else { cost }
}

/// In order of preference among equals: the simpler first.
fn candidates(extents: &[usize]) -> Vec<Candidate> {
    let rank = extents.len();
    let line = View::new(extents, rank, 0, 0);
    let mut all = Vec::with_capacity(16);
    let mut add = |across: [usize; 2], predictor: Predictor, view: View| {
        all.push(Candidate { across, choice: (predictor, view), cost: 0 });
    };
    add([0; 2], Predictor::new(X), line);
    add([0; 2], Predictor::new(0), line);
    add([0; 2], Predictor::new(X | XX), line);
    // Axes with something to predict from, fastest first, with the number of trailing axes they come after.
    let mut axes = Vec::with_capacity(rank);
    let mut stride = 1;
    for (n_after, extent) in extents.iter().rev().enumerate() {
        if *extent > 1 {
            axes.push((n_after, stride));
        }
        stride *= extent;
    }
    if axes.len() <= 1 {
        // Interleaved components are common in one-dimensional files.
        add([0; 2], Predictor { axes: X, lag: 2 }, line);
        add([0; 2], Predictor { axes: X, lag: 3 }, line);
    }
    for &(n_after, stride) in axes.iter().skip(1) {
        if stride <= MAX_LAG {
            // Rows so short (the components of a vector, say) that tiles of rows would be mostly padding.
            add([0; 2], Predictor { axes: X, lag: stride }, line);
        } else {
            let plane = View::new(extents, n_after, rank - n_after, 0);
            add([stride, 0], Predictor::new(Y), plane);
            add([stride, 0], Predictor::new(X | Y), plane);
        }
    }
    if let [_, (y_after, y_stride), (z_after, z_stride), ..] = axes[..]
        && y_stride > MAX_LAG
    {
        // Leading axes beyond the third are a batch.
        let z_end = axes.get(3).map_or(rank, |(n_after, _)| *n_after);
        let volume = View::new(extents, y_after, z_after - y_after, z_end - z_after);
        add([y_stride, z_stride], Predictor::new(Y | Z), volume);
        add([y_stride, z_stride], Predictor::new(X | Y | Z), volume);
    }
    all
}

#[inline(always)]
fn subtract<T: Value>(from: &mut Run<T::Int>, other: &Run<T::Int>) {
    for (a, b) in from.iter_mut().zip(other) {
        *a = a.sub(*b);
    }
}

/// Sum of the group widths of a run after differences along x.
#[inline(always)]
fn cost<T: Value>(run: &Run<T::Int>, predictor: Predictor) -> u64 {
    let mut codes = [T::Int::default(); RUN];
    let before = |distance: usize| &run[MAX_LAG - distance..][..RUN];
    codes.copy_from_slice(before(0));
    if predictor.axes & X != 0 {
        for (code, q) in codes.iter_mut().zip(before(predictor.lag)) {
            *code = code.sub(*q);
        }
    }
    if predictor.axes & XX != 0 {
        for ((code, q1), q2) in codes.iter_mut().zip(before(1)).zip(before(2)) {
            *code = code.sub(q1.sub(*q2));
        }
    }
    let width = |group: &[T::Int; 8]| {
        let all = group.iter().fold(0, |all, r| all | r.zigzag().to_u64());
        u64::from(64 - all.leading_zeros())
    };
    codes.as_chunks().0.iter().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<F: Fn(usize) -> i32> Sample<f32> for F {
        fn run(&self, first: usize) -> Run<i32> {
            std::array::from_fn(|i| self(first + i))
        }
    }

    fn chosen(extents: &[usize], f: impl Fn(&[usize]) -> i32) -> Predictor {
        let strides: Vec<usize> = (0..extents.len()).map(|a| extents[a + 1..].iter().product()).collect();
        let integer = |i: usize| {
            let at: Vec<usize> = (0..extents.len()).map(|a| i / strides[a] % extents[a]).collect();
            f(&at)
        };
        choose::<f32>(extents, &integer).0
    }

    fn noise(i: usize) -> i32 {
        ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as i32
    }

    #[test]
    fn picks_the_axes_that_predict() {
        assert_eq!(chosen(&[100_000], |at| 1000 * (at[0] as i32 % 1000)), Predictor::new(X | XX));
        assert_eq!(chosen(&[100_000], |at| noise(at[0]) - (1 << 13)), Predictor::new(0));
        assert_eq!(chosen(&[200, 300], |at| noise(at[1])), Predictor::new(Y));
        assert_eq!(chosen(&[200, 300], |at| noise(at[1]) + noise(at[0])), Predictor::new(X | Y));
        assert_eq!(chosen(&[5000, 3], |at| 10_000 * at[1] as i32 + noise(at[0]) / 64), Predictor { axes: X, lag: 3 });
        let sum = |at: &[usize]| noise(at[0] * 500 + at[1]) + noise(at[1] * 500 + at[2]) + noise(at[0] * 500 + at[2]);
        assert_eq!(chosen(&[40, 50, 60], sum), Predictor::new(X | Y | Z));
    }
}
