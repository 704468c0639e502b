//! Robust least squares for the coefficients of linear predictors, on a sample of the chunk (docs/predictors.md).
//!
//! What matters is the length of the codes, which grows with the logarithm of the error; plain least squares would
//! serve the few largest errors. So errors are reweighted a few times by the slope of that logarithm, and the
//! candidate of least estimated length wins. Only additions, multiplications and divisions in a fixed order are used,
//! no library functions: every machine finds the same coefficients.

/// Coefficients are multiples of 1 / COEFFICIENT_ONE.
pub(crate) const COEFFICIENT_ONE: i32 = 1024;
/// Coefficients lie within ±8.
pub(crate) const MAX_COEFFICIENT: i32 = 8 * COEFFICIENT_ONE;
/// Rounds of reweighting.
const ROUNDS: usize = 3;
/// Fewer values than this for each coefficient are not worth a fit.
const VALUES_PER_COEFFICIENT: usize = 64;
/// What a fitted coefficient costs in the stream, in bits.
const COEFFICIENT_BITS: f64 = 9.0;

/// Observations of a predicted value and of what it is predicted from, all in units of the quantisation step and as
/// differences from the base, the quantity whose coefficient makes the sum of all coefficients one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// One column for each quantity but the base.
    pub(crate) columns: Vec<Vec<f64>>,
    pub(crate) target: Vec<f64>,
}

/// The coefficients of the quantities but the base, and the estimated length of the codes of the sample in bits.
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
    pub(crate) fn with_columns(n_columns: usize) -> Self {
        Self { columns: vec![Vec::new(); n_columns], target: Vec::new() }
    }

    /// Estimated length of the codes with these coefficients.
    #[inline(always)]
    pub(crate) fn bits(&self, coefficients: &[i32], errors: &mut Vec<f64>) -> f64 {
        errors.clear();
        errors.extend_from_slice(&self.target);
        for (column, k) in self.columns.iter().zip(coefficients) {
            if *k != 0 {
                let c = f64::from(*k) / f64::from(COEFFICIENT_ONE);
                for (e, z) in errors.iter_mut().zip(column) {
                    *e -= c * z;
                }
            }
        }
        // The bits of a number, read as an integer, are its logarithm but for a small error.
        let mut sum = 0_u64;
        for e in errors.iter() {
            sum += ((1.0 + 4.0 * e * e).min(1e30).to_bits() - 1_f64.to_bits()) >> 32;
        }
        sum as f64 * (0.5 / (1 << 20) as f64)
    }

    /// The best of `presets` and of coefficients fitted from them and from nothing, if those are worth their cost when
    /// the sample stands for `n_values` values. Returns also whether it is a fitted one; otherwise the place of the
    /// preset.
    #[inline(always)]
    pub(crate) fn best(&self, presets: &[Vec<i32>], n_values: usize) -> (Candidate, Option<usize>) {
        let mut work = Work::default();
        let n = self.target.len();
        let mut best: Option<(Candidate, Option<usize>)> = None;
        for (i, preset) in presets.iter().enumerate() {
            let bits = self.bits(preset, &mut work.errors);
            if best.as_ref().is_none_or(|(b, _)| bits < b.bits) {
                best = Some((Candidate { coefficients: preset.clone(), bits }, Some(i)));
            }
        }
        let mut best = best.expect("there is a preset");
        if n < 4 * self.columns.len().max(8) || n_values < VALUES_PER_COEFFICIENT * self.columns.len() {
            return best;
        }
        let scale = n_values as f64 / n as f64;
        let cost = COEFFICIENT_BITS * self.columns.len() as f64 / scale.max(1.0);
        let preset = best.clone();
        for start in [None, Some(preset.0.coefficients)] {
            // A second start is worth it only where the first led nowhere.
            if start.is_some() && best.1.is_none() {
                break;
            }
            let mut current = start;
            for _ in 0..ROUNDS {
                let coefficients = self.least_squares(current.as_deref(), &mut work);
                let bits = self.bits(&coefficients, &mut work.errors) + cost;
                if bits < best.0.bits {
                    best = (Candidate { coefficients: coefficients.clone(), bits }, None);
                }
                if current.as_ref() == Some(&coefficients) {
                    break;
                }
                current = Some(coefficients);
            }
        }
        best
    }

    /// Least squares, weighted by the errors of `current` where given.
    #[inline(always)]
    fn least_squares(&self, current: Option<&[i32]>, work: &mut Work) -> Vec<i32> {
        let (n, m) = (self.target.len(), self.columns.len());
        work.weights.clear();
        work.weights.resize(n, 1.0);
        let mut ridge = 0.02;
        if let Some(current) = current {
            self.bits(current, &mut work.errors);
            for (w, e) in work.weights.iter_mut().zip(&work.errors) {
                *w = 1.0 / (0.25 + e * e);
            }
            ridge = 0.004;
        }
        let mut matrix = vec![vec![0.0; m + 1]; m];
        work.weighted.resize(n, 0.0);
        for r in 0..m {
            for ((p, w), z) in work.weighted.iter_mut().zip(&work.weights).zip(&self.columns[r]) {
                *p = w * z;
            }
            for c in r..m {
                matrix[r][c] = dot(&work.weighted, &self.columns[c]);
                matrix[c][r] = matrix[r][c];
            }
            matrix[r][m] = dot(&work.weighted, &self.target);
        }
        // Enough of a ridge to keep noise of the order of the step from being followed.
        for (r, row) in matrix.iter_mut().enumerate() {
            row[r] = row[r] * (1.0 + 1e-6) + ridge * n as f64;
        }
        let round = |x: f64| (x * f64::from(COEFFICIENT_ONE)).round_ties_even() as i32;
        let limit = MAX_COEFFICIENT;
        solve(matrix).into_iter().map(|x| round(x).clamp(-limit, limit)).collect()
    }
}

/// Sum of products, in a fixed order that vectors can follow.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let ((a8, a_rest), (b8, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a8.iter().zip(b8) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).fold(0.0, |sum, (a, b)| sum + a * b);
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7])) + rest
}

/// Solves the symmetric positive definite system whose right side is the last column; directions without evidence are 0.
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

    #[test]
    fn finds_the_coefficients_behind_outliers() {
        let mut state = 3_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        let mut sample = Sample::with_columns(2);
        for i in 0..2000 {
            let (a, b) = (random() * 100.0, random() * 100.0);
            let outlier = if i % 10 == 0 { random() * 1e6 } else { 0.0 };
            sample.columns[0].push(a);
            sample.columns[1].push(b);
            sample.target.push(1.25 * a - 0.5 * b + outlier + random());
        }
        let (best, preset) = sample.best(&[vec![0, 0], vec![1024, 0]], 100_000);
        assert_eq!(preset, None);
        assert!((best.coefficients[0] - 1280).abs() < 12 && (best.coefficients[1] + 512).abs() < 12, "{best:?}");
    }

    #[test]
    fn keeps_the_preset_where_a_fit_does_not_pay() {
        let mut sample = Sample::with_columns(1);
        for i in 0..100 {
            sample.columns[0].push(f64::from(i));
            sample.target.push(f64::from(i) * 0.5);
        }
        assert_eq!(sample.best(&[vec![0], vec![512]], 100).1, Some(1));
        let degenerate = Sample { columns: vec![vec![0.0; 100]], target: vec![f64::INFINITY; 100] };
        assert_eq!(degenerate.best(&[vec![0]], 100).0.coefficients, [0]);
    }
}
