//! Chooses, from a sample of the chunk, the axes along which to take differences, and the tile grid.
//!
//! The cost of a candidate is the sum of group widths over sampled runs of 64 values, which estimates the size of the
//! bit planes. Only integers are compared, so every backend makes the same choice.

use super::geometry::{Predictor, TileGrid, X, XX, Y, Z};
use crate::num::{Int, Value};

/// Values in a sampled run.
pub(crate) const RUN: usize = 64;
/// Values before a run that differences along x may reach.
pub(crate) const MAX_LAG: usize = 16;
/// Runs sampled from a chunk, at most.
pub(crate) const MAX_RUNS: usize = 40;

/// A predictor and the tiles it works in.
pub(crate) type Choice = (Predictor, TileGrid);

/// Integers of a run and of the values before it.
pub(crate) type Run<I> = [I; MAX_LAG + RUN];

/// A predictor that is compared with others.
pub(crate) struct Candidate {
    /// Distances in the chunk to the row and the plane that are subtracted first; 0 for none.
    pub(crate) across: [usize; 2],
    pub(crate) choice: Choice,
    cost: u64,
}

/// The candidates for a chunk of some extents, and where to sample.
pub(crate) struct Sampling {
    /// At equal cost the first one wins. Those that subtract the same rows are next to each other.
    pub(crate) candidates: Vec<Candidate>,
    /// How many values before a run the candidates need.
    reach: usize,
    /// Distance of the first possible start of a run from the last.
    span: usize,
    n_runs: usize,
}

impl Sampling {
    pub(crate) fn new(extents: &[usize]) -> Self {
        let n_values: usize = extents.iter().product();
        let candidates = candidates(extents);
        let reach = MAX_LAG + candidates.iter().map(|c| c.across[0] + c.across[1]).max().unwrap_or(0);
        if n_values < reach + RUN {
            // Too few values to sample: differences along the fastest axis are a safe choice.
            let choice = (Predictor::new(X), TileGrid::new(extents, extents.len(), 0, 0));
            return Self { candidates: vec![Candidate { across: [0; 2], choice, cost: 0 }], reach, span: 0, n_runs: 0 };
        }
        Self { candidates, reach, span: n_values - reach - RUN, n_runs: MAX_RUNS.min(1 + n_values / RUN / 4) }
    }

    /// Index in the chunk of the first value of each run; none where there is just one candidate.
    pub(crate) fn starts(&self) -> impl Iterator<Item = usize> + use<> {
        let Self { reach, span, n_runs, .. } = *self;
        // Evenly spread; the division keeps starts from falling on the same column in each row.
        (0..n_runs).map(move |run| reach + (span as u128 * (2 * run as u128 + 1) / (2 * n_runs as u128)) as usize)
    }
}

/// Gives the quantised (or exact) integers of consecutive values of the chunk, from `first` on. This is a trait and not
/// a closure, because closures are not always inlined into functions compiled for an instruction set.
pub(crate) trait RunSource<T: Value> {
    fn run(&self, first: usize) -> Run<T::Int>;
}

#[inline(always)]
pub(crate) fn choose<T: Value>(extents: &[usize], sample: &impl RunSource<T>) -> Choice {
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

/// The cost by which candidates are compared. Lags above 1 take a slower path, so they must gain at least 1/16.
pub(crate) fn price(lag: usize, cost: u64) -> u64 {
    if lag > 1 { cost + cost / 16 } else { cost }
}

/// The simpler ones come first, since the first wins at equal cost.
fn candidates(extents: &[usize]) -> Vec<Candidate> {
    let rank = extents.len();
    let line = TileGrid::new(extents, rank, 0, 0);
    let mut all = Vec::with_capacity(16);
    let mut add = |across: [usize; 2], predictor: Predictor, grid: TileGrid| {
        all.push(Candidate { across, choice: (predictor, grid), cost: 0 });
    };
    add([0; 2], Predictor::new(X), line);
    add([0; 2], Predictor::new(0), line);
    add([0; 2], Predictor::new(X | XX), line);
    // Axes of more than one value, fastest first, each with the number of axes that follow it, and its stride.
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
            // Rows this short (such as the components of a vector) would make tiles of mostly padding.
            add([0; 2], Predictor { axes: X, lag: stride }, line);
        } else {
            let plane = TileGrid::new(extents, n_after, rank - n_after, 0);
            add([stride, 0], Predictor::new(Y), plane);
            add([stride, 0], Predictor::new(X | Y), plane);
        }
    }
    if let [_, (y_after, y_stride), (z_after, z_stride), ..] = axes[..]
        && y_stride > MAX_LAG
    {
        // Leading axes beyond the third are a batch.
        let z_end = axes.get(3).map_or(rank, |(n_after, _)| *n_after);
        let volume = TileGrid::new(extents, y_after, z_after - y_after, z_end - z_after);
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

    impl<F: Fn(usize) -> i32> RunSource<f32> for F {
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
