//! Means of bins, the small boxes that a chunk is cut into, and restoring all values of a bin as its mean
//! (docs/format.md, 14.4).

use crate::num::Real;

/// Number of bins along each axis.
pub(crate) fn extents_of(extents: &[usize], bin: &[usize]) -> Vec<usize> {
    extents.iter().zip(bin).map(|(n, factor)| n.div_ceil(*factor)).collect()
}

/// Calls `f` with the offset of each row of a chunk, and with the offset of the row of bins that it belongs to.
fn for_each_row(extents: &[usize], bin: &[usize], mut f: impl FnMut(usize, usize)) {
    let bins = extents_of(extents, bin);
    let last = extents.len() - 1;
    let n_rows: usize = extents[..last].iter().product();
    for row in 0..n_rows {
        let (mut rest, mut position, mut stride) = (row, 0, bins[last]);
        for axis in (0..last).rev() {
            position += rest % extents[axis] / bin[axis] * stride;
            rest /= extents[axis];
            stride *= bins[axis];
        }
        f(row * extents[last], position);
    }
}

/// The mean of the valid values of each bin, in type T; `None` where a bin has none.
///
/// The mean is the sum in binary64, in C order, divided by the number of values. If the sum overflows, it is the sum of
/// the quotients.
pub(crate) fn means<T: Real>(values: &[T], is_valid: &[bool], extents: &[usize], bin: &[usize]) -> Vec<Option<T>> {
    let n_bins = extents_of(extents, bin).iter().product();
    let (width, factor) = (extents[extents.len() - 1], bin[bin.len() - 1]);
    let (mut sums, mut counts) = (vec![0.0; n_bins], vec![0_u32; n_bins]);
    for_each_row(extents, bin, |at, to| {
        for x in (0..width).filter(|x| is_valid[at + x]) {
            sums[to + x / factor] += values[at + x].to_f64();
            counts[to + x / factor] += 1;
        }
    });
    let mut means: Vec<f64> = sums.iter().zip(&counts).map(|(sum, n)| sum / f64::from(*n)).collect();
    if sums.iter().any(|sum| !sum.is_finite()) {
        let is_beyond: Vec<bool> = sums.iter().map(|sum| !sum.is_finite()).collect();
        is_beyond.iter().zip(&mut means).filter(|(is_beyond, _)| **is_beyond).for_each(|(_, mean)| *mean = 0.0);
        for_each_row(extents, bin, |at, to| {
            for x in (0..width).filter(|x| is_valid[at + x] && is_beyond[to + x / factor]) {
                means[to + x / factor] += values[at + x].to_f64() / f64::from(counts[to + x / factor]);
            }
        });
        // Rounding must not move the mean outside of the range of the values.
        means.iter_mut().for_each(|mean| *mean = mean.clamp(-f64::MAX, f64::MAX));
    }
    means.iter().zip(&counts).map(|(mean, n)| (*n > 0).then(|| T::from_f64(*mean))).collect()
}

/// Whether all values of a bin are marked.
pub(crate) fn all_marked(marks: &[bool], extents: &[usize], bin: &[usize]) -> Vec<bool> {
    let mut all = vec![true; extents_of(extents, bin).iter().product()];
    let (width, factor) = (extents[extents.len() - 1], bin[bin.len() - 1]);
    for_each_row(extents, bin, |at, to| {
        for x in (0..width).filter(|x| !marks[at + x]) {
            all[to + x / factor] = false;
        }
    });
    all
}

/// Sets each value to that of its bin.
pub(crate) fn spread<T: Copy>(means: &[T], extents: &[usize], bin: &[usize], out: &mut [T]) {
    let (width, factor) = (extents[extents.len() - 1], bin[bin.len() - 1]);
    for_each_row(extents, bin, |at, from| {
        for (block, mean) in out[at..at + width].chunks_mut(factor).zip(&means[from..]) {
            block.fill(*mean);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_odd_extents() {
        let values: Vec<f32> = (0..15).map(|i| i as f32).collect();
        let mut is_valid = vec![true; 15];
        (is_valid[0], is_valid[14]) = (false, false);
        let found = means(&values, &is_valid, &[3, 5], &[2, 2]);
        let expected = [Some(4.0), Some(5.0), Some(6.5), Some(10.5), Some(12.5), None];
        assert_eq!(found, expected);
        let mut back = vec![0.0; 15];
        spread(&found.map_none(), &[3, 5], &[2, 2], &mut back);
        assert_eq!(back, [4.0, 4.0, 5.0, 5.0, 6.5, 4.0, 4.0, 5.0, 5.0, 6.5, 10.5, 10.5, 12.5, 12.5, 0.0]);
        assert_eq!(all_marked(&is_valid, &[3, 5], &[2, 2]), [false, true, true, true, true, false]);
    }

    trait MapNone {
        fn map_none(self) -> Vec<f32>;
    }

    impl MapNone for Vec<Option<f32>> {
        fn map_none(self) -> Vec<f32> {
            self.into_iter().map(Option::unwrap_or_default).collect()
        }
    }

    #[test]
    fn sums_may_be_beyond_the_range() {
        let found = means(&[f64::MAX, f64::MAX, -1.0, 1.0], &[true; 4], &[4], &[2]);
        assert_eq!(found, [Some(f64::MAX), Some(0.0)]);
        for n in [3, 9, 11, 49, 100] {
            let found = means(&vec![f64::MIN; 2 * n], &vec![true; 2 * n], &[2 * n], &[n]);
            assert!(found.iter().all(|mean| mean.is_some_and(f64::is_finite)), "{n}");
        }
    }
}
