//! Residuals of predictors, for analysis: Lorenzo differences of a chunk's integers over any set of axes, the codes of
//! the interpolation level by level, and the bits that they take. Nothing here is part of the format.

use crate::codec::Element;
use crate::codec::shared::dims::{AXES, volume};
use crate::codec::shared::view::View;
use crate::codec::shared::{integers, masks};
use crate::codec::small::interpolate;
use crate::codec::small::portfolio::interpolation_step;
use crate::exec::{Workers, scratch};
use crate::plan::Quantizer;

/// A chunk as integers, and how many of its values have none.
pub(crate) struct Quantised {
    pub(crate) values: Vec<i32>,
    pub(crate) n_exact: usize,
    /// Number of positions where fill values begin or end.
    pub(crate) n_outlines: usize,
}

/// Quantises a chunk; fill values and others without an integer repeat the previous integer.
pub(crate) fn quantize<T: Element>(values: &[T], quantizer: &Quantizer<T>, fills: &[T]) -> Quantised {
    let kinds = masks::find_fills(values, fills).unwrap_or_default();
    let n_fills = kinds.iter().filter(|kind| **kind != 0).count();
    let n_outlines = kinds.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let (found, _) = integers::quantize_with_fills(values, quantizer, fills);
    Quantised { n_exact: found.holes.len() - n_fills, n_outlines, values: found.values }
}

/// A set of differences: the axes along which they are taken, once or twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Differences {
    pub(crate) order: u32,
    /// Axes of the chunk, ascending.
    pub(crate) axes: Vec<usize>,
}

impl Differences {
    /// Every set of up to three axes of more than one point, and second differences along each of them. Only the last
    /// [`AXES`] such axes count.
    pub(crate) fn candidates(extents: &[usize]) -> Vec<Self> {
        let mut axes: Vec<usize> = (0..extents.len()).rev().filter(|a| extents[*a] > 1).take(AXES).collect();
        axes.reverse();
        let mut sets: Vec<Self> = (1..1_usize << axes.len())
            .filter(|set| set.count_ones() <= 3)
            .map(|set| (0..axes.len()).filter(|i| set >> i & 1 != 0).map(|i| axes[i]).collect())
            .map(|axes| Self { order: 1, axes })
            .collect();
        sets.sort_by_key(|set| set.axes.len());
        sets.extend(axes.iter().filter(|a| extents[**a] > 2).map(|a| Self { order: 2, axes: vec![*a] }));
        sets
    }

    /// The differences of `values`; those before the first along an axis count as 0.
    pub(crate) fn of(&self, values: &[i32], extents: &[usize]) -> Vec<i32> {
        let mut residuals = values.to_vec();
        for &axis in &self.axes {
            let stride: usize = extents[axis + 1..].iter().product();
            for _ in 0..self.order {
                for line in residuals.chunks_mut(stride * extents[axis]) {
                    for i in (stride..line.len()).rev() {
                        line[i] = line[i].wrapping_sub(line[i - stride]);
                    }
                }
            }
        }
        residuals
    }
}

/// Codes of larger magnitude are counted together, and cost their additional bits.
const MAX_COUNTED: u32 = 1 << 12;

/// How often each code occurs.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    n: u64,
    excess_bits: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; 2 * MAX_COUNTED as usize + 1], n: 0, excess_bits: 0.0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, codes: &[i32]) {
        let most = MAX_COUNTED as i32;
        for &code in codes {
            self.counts[(code.clamp(-most, most) + most) as usize] += 1;
            if code.unsigned_abs() > MAX_COUNTED {
                self.excess_bits += (f64::from(code.unsigned_abs()) / f64::from(MAX_COUNTED)).log2() + 1.0;
            }
        }
        self.n += codes.len() as u64;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
        self.n += other.n;
        self.excess_bits += other.excess_bits;
    }

    pub(crate) fn n(&self) -> u64 {
        self.n
    }

    /// Bits per code that an ideal static code takes; 0 for no codes.
    pub(crate) fn entropy(&self) -> f64 {
        let n = self.n.max(1) as f64;
        let bits = |count: &u64| *count as f64 * (n / *count as f64).log2();
        (self.counts.iter().filter(|count| **count > 0).map(bits).sum::<f64>() + self.excess_bits) / n
    }

    /// Share of the most frequent code.
    pub(crate) fn most_likely(&self) -> f64 {
        *self.counts.iter().max().expect("there are counts") as f64 / self.n.max(1) as f64
    }
}

/// Length of a run of values that is assumed to have one magnitude.
const RUN: usize = 16;

/// Estimated bits of residuals if their magnitude is known from the context: the entropy of a two-sided geometric
/// distribution with the mean magnitude of each run.
pub(crate) fn local_bits(residuals: &[i32]) -> f64 {
    let bits = |run: &[i32]| {
        let sum: u64 = run.iter().map(|r| u64::from(r.unsigned_abs())).sum();
        if sum == 0 {
            return 0.0;
        }
        let mean = sum as f64 / run.len() as f64;
        let decay = mean / ((1.0 + mean * mean).sqrt() + 1.0);
        run.len() as f64 * (((1.0 + decay) / (1.0 - decay)).log2() - mean * decay.log2())
    };
    residuals.chunks(RUN).map(bits).sum()
}

/// Adds the codes of an interpolation along all axes to the histograms of their levels, finest first, anchors last;
/// `false` where interpolation cannot keep the bound, or the chunk is too small for it.
pub(crate) fn count_interpolated<T: Element>(
    values: &[T],
    extents: &[usize],
    quantizer: &Quantizer<T>,
    fills: &[T],
    levels: &mut Vec<Histogram>,
) -> bool {
    let view = View::new(extents);
    let working = view.gather(values);
    let masked: Option<Vec<bool>> =
        masks::find_fills(&working, fills).map(|kinds| kinds.iter().map(|kind| *kind != 0).collect());
    let active = (0..AXES).filter(|a| view.dims[*a] >= 4).fold(0, |set, a| set | 1 << a);
    let Some(steps) = interpolation_step(&working, masked.as_deref(), quantizer).filter(|_| active != 0) else {
        return false;
    };
    let encoder = interpolate::Encoder::new(&working, masked.as_deref(), view.dims, active, 0, Some(steps));
    let coded = encoder.finish(&Workers::Serial);
    for band in &coded.layout.bands {
        if levels.len() <= band.level {
            levels.resize_with(band.level + 1, Histogram::default);
        }
        levels[band.level].add(&coded.codes[band.offset..][..volume(&band.dims)]);
    }
    scratch::give(coded.codes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_a_plane_vanish() {
        let extents = [6, 7];
        let plane: Vec<i32> = (0..42).map(|i| 3 * (i / 7) + 5 * (i % 7)).collect();
        let both = Differences { order: 1, axes: vec![0, 1] }.of(&plane, &extents);
        assert!(both.iter().enumerate().all(|(i, r)| *r == 0 || i < 7 || i % 7 == 0));
        let second = Differences { order: 2, axes: vec![1] }.of(&plane, &extents);
        assert!(second.iter().enumerate().all(|(i, r)| *r == 0 || i % 7 < 2));
        assert_eq!(Differences::candidates(&extents).len(), 3 + 2);
        assert_eq!(Differences::candidates(&[1, 1]), []);
        assert_eq!(Differences::candidates(&[2; 8]).len(), 14);
    }

    #[test]
    fn entropies_of_known_codes() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.entropy(), 0.0);
        histogram.add(&[7; 100]);
        assert_eq!((histogram.entropy(), histogram.most_likely()), (0.0, 1.0));
        histogram.add(&[-7; 100]);
        assert_eq!((histogram.entropy(), histogram.most_likely()), (1.0, 0.5));
        histogram.add(&[1 << 20, i32::MIN]);
        assert!(histogram.entropy() > 1.0);
        assert_eq!(local_bits(&[0; 1000]), 0.0);
        // Magnitudes 1: half a bit more than the sign.
        let bits = local_bits(&[1, -1].repeat(500)) / 1000.0;
        assert!((1.8..2.8).contains(&bits), "{bits}");
    }
}
