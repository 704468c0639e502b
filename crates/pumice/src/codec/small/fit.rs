//! Robust least squares for the coefficients of linear predictors, on a sample of the chunk (docs/predictors.md).
//!
//! Code length grows with the logarithm of the error, but plain least squares is driven by the few largest errors. So
//! the fit reweights errors a few times by the slope of that logarithm, and picks the candidate with the shortest
//! estimated codes. It uses only additions, multiplications and divisions in a fixed order, no library functions:
//! every machine finds the same coefficients.

use std::ops::Range;

use crate::exec::scratch;

/// Coefficients are multiples of 1 / COEFFICIENT_ONE.
pub(crate) const COEFFICIENT_ONE: i32 = 1024;
/// Coefficients lie within ±8.
pub(crate) const MAX_COEFFICIENT: i32 = 8 * COEFFICIENT_ONE;
/// Rounds of reweighting.
const ROUNDS: usize = 3;
/// A round that gains less than this share of the bits is the last.
const LEAST_GAIN: f64 = 1.0 / 512.0;
/// If a fit gains less than this share over the best preset, a second fit starts from that preset.
const GOOD_GAIN: f64 = 0.125;
/// If more than this share of values is at edges, a further fit includes them.
const MANY_EDGES: f64 = 0.25;
/// Fewer values than this for each coefficient are not worth a fit.
const VALUES_PER_COEFFICIENT: usize = 64;
/// Approximate bits of a fitted coefficient in the payload.
pub(crate) const COEFFICIENT_BITS: f64 = 9.0;

/// The most passes over a chunk in search of informative observations.
pub(crate) const MAX_PASSES: usize = 4;
/// An observation whose numbers are all below this, in steps, is uninformative: its code is 0 with any coefficients.
const INFORMATIVE: f64 = 0.125;

/// Position of the `i`-th sample among `n` values, `n_samples` per pass: one in each of `n_samples` equal parts, at a
/// different offset in each. With a constant stride, samples would cover few columns of an array whose row length
/// divides that stride.
#[inline(always)]
pub(crate) fn sample_position(i: usize, n_samples: usize, n: usize) -> usize {
    // Multiples of the golden ratio fill the unit interval evenly.
    const GOLDEN: u32 = 0x9E37_79B9;
    let fraction = (i as u32).wrapping_mul(GOLDEN).wrapping_add(GOLDEN / 2);
    let within = (n as u128 * u128::from(fraction)) >> 32;
    (n * (i % n_samples) + within as usize) / n_samples
}

/// Observations of a value to predict, the target, and of the terms that predict it: differences from the base, in
/// quantisation steps. The base is the term whose coefficient makes the sum of all coefficients one.
#[derive(Debug)]
pub(crate) struct Sample {
    /// The target, then one column for each term but the base, each with room for `capacity` observations.
    values: Vec<f64>,
    /// 1 where all terms exist, 0 at the edges of an array.
    is_inner: Vec<f64>,
    n_columns: usize,
    capacity: usize,
    /// Number of observations kept, and of all that were examined.
    len: usize,
    n_seen: usize,
}

/// The coefficients of all terms but the base, and the estimated bits of the codes of the sample.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) coefficients: Vec<i32>,
    pub(crate) bits: f64,
}

/// Work space that is reused from fit to fit.
#[derive(Default)]
struct Work {
    weights: Vec<f64>,
    weighted: Vec<f64>,
    errors: Vec<f64>,
}

impl Sample {
    /// A sample of at most `capacity` observations, with `n_columns` terms besides the base.
    pub(crate) fn new(n_columns: usize, capacity: usize) -> Self {
        Self {
            values: scratch::take((n_columns + 1) * capacity),
            is_inner: Vec::with_capacity(capacity),
            n_columns,
            capacity,
            len: 0,
            n_seen: 0,
        }
    }

    /// Space for the next observations of the target (0) or of a term (from 1 on).
    #[inline(always)]
    pub(crate) fn next(&mut self, i: usize) -> &mut [f64] {
        &mut self.values[i * self.capacity..][..self.capacity][self.len..]
    }

    /// Whether to make another pass of `n_samples` observations: few were informative, and there is room for more.
    pub(crate) fn wants_more(&self, n_samples: usize) -> bool {
        self.len < n_samples / 2 && self.len + n_samples <= self.capacity
    }

    /// Appends the next `n` observations whose target is good, or none if all are uninformative. Those in `inner` have
    /// all terms.
    #[inline(always)]
    pub(crate) fn append(&mut self, n: usize, inner: Range<usize>, is_good: impl Fn(f64) -> bool) {
        let next = self.len..self.len + n;
        self.n_seen += n;
        if self
            .values
            .chunks_exact(self.capacity)
            .all(|column| column[next.clone()].iter().all(|z| z.abs() < INFORMATIVE))
        {
            return;
        }
        let n_good = self.values[next.clone()].iter().filter(|target| is_good(**target)).count();
        let is_inner = |i: usize| if inner.contains(&i) { 1.0 } else { 0.0 };
        if n_good == n {
            self.is_inner.extend((0..n).map(is_inner));
        } else {
            let good: Vec<usize> = next.filter(|i| is_good(self.values[*i])).collect();
            for column in self.values.chunks_exact_mut(self.capacity) {
                for (to, from) in good.iter().enumerate() {
                    column[self.len + to] = column[*from];
                }
            }
            self.is_inner.extend(good.iter().map(|i| is_inner(i - self.len)));
        }
        self.len += n_good;
    }

    #[inline(always)]
    fn target(&self) -> &[f64] {
        &self.values[..self.len]
    }

    #[inline(always)]
    fn column(&self, i: usize) -> &[f64] {
        &self.values[(i + 1) * self.capacity..][..self.len]
    }

    /// Estimated bits of the codes with these coefficients. Stores the errors of the predictions in `errors`.
    #[inline(always)]
    pub(crate) fn bits(&self, coefficients: &[i32], errors: &mut Vec<f64>) -> f64 {
        errors.clear();
        errors.extend_from_slice(self.target());
        for (i, k) in coefficients.iter().enumerate().filter(|(_, k)| **k != 0) {
            let c = f64::from(*k) / f64::from(COEFFICIENT_ONE);
            for (e, z) in errors.iter_mut().zip(self.column(i)) {
                *e -= c * z;
            }
        }
        // The bit pattern of a float, read as an integer, approximates its logarithm.
        let mut sum = 0_u64;
        for e in errors.iter() {
            sum += ((1.0 + 4.0 * e * e).min(1e30).to_bits() - 1_f64.to_bits()) >> 32;
        }
        sum as f64 * (0.5 / (1 << 20) as f64)
    }

    /// The best of `presets` and of fitted coefficients, which must be worth their bits for `n_values` values. Also
    /// returns the index of the preset, or `None` for fitted coefficients.
    #[inline(always)]
    pub(crate) fn best(&self, presets: &[&[i32]], n_values: usize) -> (Candidate, Option<usize>) {
        let mut work = Work::default();
        let (n, n_columns) = (self.len, self.n_columns);
        let mut shortest = (0, f64::INFINITY);
        for (i, preset) in presets.iter().enumerate() {
            let bits = self.bits(preset, &mut work.errors);
            if bits < shortest.1 {
                shortest = (i, bits);
            }
        }
        let (preset, bits) = shortest;
        let mut best = (Candidate { coefficients: presets[preset].to_vec(), bits }, Some(preset));
        if n < 4 * n_columns.max(8) || n_values < VALUES_PER_COEFFICIENT * n_columns {
            return best;
        }
        let scale = n_values as f64 / self.n_seen as f64;
        let cost = COEFFICIENT_BITS * n_columns as f64 / scale.max(1.0);
        self.search(None, false, cost, &mut best, &mut work);
        // A second start pays only where the first gained little.
        if best.0.bits > bits * (1.0 - GOOD_GAIN) {
            self.search(Some(presets[preset].to_vec()), false, cost, &mut best, &mut work);
        }
        // Values at edges need codes, too.
        if self.is_inner.iter().sum::<f64>() < n as f64 * (1.0 - MANY_EDGES) {
            self.search(Some(best.0.coefficients.clone()), true, cost, &mut best, &mut work);
        }
        best
    }

    /// Reweighted least squares, from the errors of `start` or from an unweighted fit; updates `best` if it is better.
    #[inline(always)]
    fn search(
        &self,
        start: Option<Vec<i32>>,
        of_all: bool,
        cost: f64,
        best: &mut (Candidate, Option<usize>),
        work: &mut Work,
    ) {
        if let Some(start) = &start {
            self.bits(start, &mut work.errors);
        }
        let mut current = start;
        for _ in 0..ROUNDS {
            let coefficients = self.least_squares(current.is_some(), of_all, work);
            let bits = self.bits(&coefficients, &mut work.errors) + cost;
            let is_last = bits > best.0.bits * (1.0 - LEAST_GAIN) && current.is_some();
            if bits < best.0.bits {
                *best = (Candidate { coefficients: coefficients.clone(), bits }, None);
            }
            if is_last {
                break;
            }
            current = Some(coefficients);
        }
    }

    /// Least squares over all values or only the inner ones, optionally weighted by the errors in `work`.
    #[inline(always)]
    fn least_squares(&self, is_weighted: bool, of_all: bool, work: &mut Work) -> Vec<i32> {
        let (n, m) = (self.len, self.n_columns);
        work.weights.clear();
        if of_all {
            work.weights.resize(n, 1.0);
        } else {
            work.weights.extend_from_slice(&self.is_inner);
        }
        let mut ridge = 0.02;
        if is_weighted {
            for (w, e) in work.weights.iter_mut().zip(&work.errors) {
                *w /= 0.25 + e * e;
            }
            ridge = 0.004;
        }
        // The right-hand side is the last column.
        let columns = |c: usize| if c < m { self.column(c) } else { self.target() };
        let mut matrix = vec![vec![0.0; m + 1]; m];
        work.weighted.resize(n, 0.0);
        for r in 0..m {
            for ((p, w), z) in work.weighted.iter_mut().zip(&work.weights).zip(self.column(r)) {
                *p = w * z;
            }
            let mut c = r;
            while c + 4 <= m + 1 {
                let all = dots(&work.weighted, [columns(c), columns(c + 1), columns(c + 2), columns(c + 3)]);
                matrix[r][c..c + 4].copy_from_slice(&all);
                c += 4;
            }
            for c in c..=m {
                [matrix[r][c]] = dots(&work.weighted, [columns(c)]);
            }
            for c in r..m {
                matrix[c][r] = matrix[r][c];
            }
        }
        // The ridge keeps the fit from following noise of the order of the step.
        for (r, row) in matrix.iter_mut().enumerate() {
            row[r] = row[r] * (1.0 + 1e-6) + ridge * n as f64;
        }
        let round = |x: f64| (x * f64::from(COEFFICIENT_ONE)).round_ties_even() as i32;
        let limit = MAX_COEFFICIENT;
        solve(matrix).into_iter().map(|x| round(x).clamp(-limit, limit)).collect()
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        scratch::give(std::mem::take(&mut self.values));
    }
}

/// Dot products with several columns, each summed in a fixed order that suits vectors. Several at a time, since each
/// addition waits for the previous one.
#[inline(always)]
fn dots<const N: usize>(a: &[f64], columns: [&[f64]; N]) -> [f64; N] {
    let mut sums = [[0.0; 8]; N];
    let n = a.len();
    let columns = columns.map(|column| &column[..n]);
    let (a8, a_rest) = a.as_chunks::<8>();
    for (i, a) in a8.iter().enumerate() {
        for (sums, b) in sums.iter_mut().zip(columns) {
            let b: &[f64; 8] = b[8 * i..].first_chunk().expect("columns have the same length");
            for i in 0..8 {
                sums[i] += a[i] * b[i];
            }
        }
    }
    let mut all = [0.0; N];
    for ((all, sums), b) in all.iter_mut().zip(sums).zip(columns) {
        let rest = a_rest.iter().zip(&b[n - a_rest.len()..]).fold(0.0, |sum, (a, b)| sum + a * b);
        *all = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7])) + rest;
    }
    all
}

/// Solves the symmetric positive definite system whose right-hand side is the last column. Unknowns without a usable
/// pivot are 0.
pub(crate) fn solve(mut matrix: Vec<Vec<f64>>) -> Vec<f64> {
    let m = matrix.len();
    for i in 0..m {
        let pivot = matrix[i][i];
        if pivot.is_nan() || pivot <= 1e-200 || pivot == f64::INFINITY {
            continue;
        }
        let (above, below) = matrix.split_at_mut(i + 1);
        let row = &above[i];
        for other in below {
            let f = other[i] / pivot;
            for c in i..=m {
                other[c] -= f * row[c];
            }
        }
    }
    let mut x = vec![0.0; m];
    for i in (0..m).rev() {
        let pivot = matrix[i][i];
        let rest = (i + 1..m).fold(matrix[i][m], |sum, c| sum - matrix[i][c] * x[c]);
        let solved = rest / pivot;
        x[i] = if pivot > 1e-200 && solved.is_finite() { solved } else { 0.0 };
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(sample: &mut Sample, observation: &[f64]) {
        for (i, value) in observation.iter().enumerate() {
            sample.next(i)[0] = *value;
        }
        sample.append(1, 0..1, |_| true);
    }

    #[test]
    fn samples_cover_every_column() {
        let (n, width, n_samples) = (96 * 128 * 128, 128, 1024);
        for pass in 0..3 {
            let mut per_column = vec![0; width];
            for i in 0..n_samples {
                let at = sample_position(pass * n_samples + i, n_samples, n);
                assert!((i * n / n_samples..(i + 1) * n / n_samples).contains(&at));
                per_column[at % width] += 1;
            }
            assert!(per_column.iter().all(|n| (2..=16).contains(n)), "{per_column:?}");
        }
    }

    #[test]
    fn leaves_out_uninformative_observations() {
        let mut sample = Sample::new(1, 40);
        for i in 0..40 {
            observe(&mut sample, &if i % 10 == 0 { [1.0, 2.0] } else { [0.0, 0.1] });
        }
        assert_eq!((sample.target().len(), sample.n_seen), (4, 40));
        assert!(sample.wants_more(36) && !sample.wants_more(37) && !sample.wants_more(8));
    }

    #[test]
    fn appends_only_what_is_good() {
        let mut sample = Sample::new(1, 4);
        for (i, column) in [[1.0, f64::NAN, 3.0], [10.0, 20.0, 30.0]].iter().enumerate() {
            sample.next(i)[..3].copy_from_slice(column);
        }
        sample.append(3, 0..3, |target| target.abs() < 2.0 || target == 3.0);
        observe(&mut sample, &[4.0, 40.0]);
        assert_eq!((sample.target(), sample.column(0)), (&[1.0, 3.0, 4.0][..], &[10.0, 30.0, 40.0][..]));
    }

    #[test]
    fn finds_the_coefficients_behind_outliers() {
        let mut state = 3_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        let mut sample = Sample::new(2, 2000);
        for i in 0..2000 {
            let (a, b) = (random() * 100.0, random() * 100.0);
            let outlier = if i % 10 == 0 { random() * 1e6 } else { 0.0 };
            observe(&mut sample, &[1.25 * a - 0.5 * b + outlier + random(), a, b]);
        }
        let (best, preset) = sample.best(&[&[0, 0], &[1024, 0]], 100_000);
        assert_eq!(preset, None);
        assert!((best.coefficients[0] - 1280).abs() < 12 && (best.coefficients[1] + 512).abs() < 12, "{best:?}");
    }

    #[test]
    fn keeps_the_preset_where_a_fit_does_not_pay() {
        let mut sample = Sample::new(1, 100);
        for i in 0..100 {
            observe(&mut sample, &[f64::from(i) * 0.5, f64::from(i)]);
        }
        assert_eq!(sample.best(&[&[0], &[512]], 100).1, Some(1));
        let mut degenerate = Sample::new(1, 100);
        for _ in 0..100 {
            observe(&mut degenerate, &[f64::INFINITY, 0.0]);
        }
        assert_eq!(degenerate.best(&[&[0]], 100).0.coefficients, [0]);
    }
}
