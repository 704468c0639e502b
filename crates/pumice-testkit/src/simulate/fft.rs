//! The discrete Fourier transform of cubes whose edge is a power of two.
//!
//! A transform of three axes swaps the first two, because then each thread writes a part of the result of its own:
//! a field `[x][y][z]` has the spectrum `[y][x][z]`, and the inverse transform swaps them back.

use std::ops::{Add, Mul, Sub};

use super::threads::for_each_slab;

/// Lines that are transformed together, one in each lane of a vector.
const LANES: usize = 8;

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Complex {
    pub(crate) re: f64,
    pub(crate) im: f64,
}

/// `re + i im`.
pub(crate) fn complex(re: f64, im: f64) -> Complex {
    Complex { re, im }
}

impl Complex {
    /// Times the imaginary unit.
    pub(crate) fn times_i(self) -> Self {
        complex(-self.im, self.re)
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        complex(self.re + other.re, self.im + other.im)
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        complex(self.re - other.re, self.im - other.im)
    }
}

impl Mul<f64> for Complex {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        complex(self.re * factor, self.im * factor)
    }
}

/// Which way a transform goes; the inverse one divides by the number of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Direction {
    Forward,
    Inverse,
}

/// Transforms of cubes of one size.
#[derive(Debug)]
pub(crate) struct Fft {
    n: usize,
    /// exp(-2 pi i k / n) for k below n / 2.
    roots: Vec<Complex>,
}

/// Values `[k]` of as many lines as there are lanes, real and imaginary parts apart.
type Lines = Vec<[[f64; LANES]; 2]>;

impl Fft {
    /// For cubes of edge `n`, a power of two of at least 8.
    pub(crate) fn new(n: usize) -> Self {
        assert!(n.is_power_of_two() && n >= LANES, "an edge of {n}");
        let root = |k: usize| {
            let (sin, cos) = libm::sincos(-2.0 * std::f64::consts::PI * k as f64 / n as f64);
            complex(cos, sin)
        };
        Self { n, roots: (0..n / 2).map(root).collect() }
    }

    /// The wave number of each index: 0, 1, ..., -2, -1.
    pub(crate) fn wave_numbers(&self) -> Vec<f64> {
        let n = self.n as isize;
        (0..n).map(|i| if i < n / 2 { i as f64 } else { (i - n) as f64 }).collect()
    }

    /// The transform of all three axes, the first two of which are swapped.
    pub(crate) fn transform(&self, cube: &mut Vec<Complex>, direction: Direction) {
        let n = self.n;
        assert_eq!(cube.len(), n * n * n);
        for_each_slab(cube, n * n, |_, slab| {
            let mut work = (Lines::new(), Lines::new());
            for row in (0..n).step_by(LANES) {
                self.lines(slab, |lane, k| (row + lane) * n + k, &mut work, direction);
            }
            self.columns(slab, &mut work, direction);
        });
        let mut swapped = vec![Complex::default(); cube.len()];
        let source = &*cube;
        for_each_slab(&mut swapped, n * n, |b, slab| {
            for (a, row) in slab.chunks_exact_mut(n).enumerate() {
                row.copy_from_slice(&source[(a * n + b) * n..][..n]);
            }
            self.columns(slab, &mut (Lines::new(), Lines::new()), direction);
        });
        *cube = swapped;
    }

    /// Transforms the columns of a square.
    fn columns(&self, slab: &mut [Complex], work: &mut (Lines, Lines), direction: Direction) {
        for column in (0..self.n).step_by(LANES) {
            self.lines(slab, |lane, k| k * self.n + column + lane, work, direction);
        }
    }

    /// Transforms lines; `at` gives the index of value k of a line.
    fn lines(
        &self,
        slab: &mut [Complex],
        at: impl Fn(usize, usize) -> usize,
        work: &mut (Lines, Lines),
        direction: Direction,
    ) {
        let (from, to) = (&mut work.0, &mut work.1);
        from.clear();
        from.extend((0..self.n).map(|k| {
            let values: [Complex; LANES] = std::array::from_fn(|lane| slab[at(lane, k)]);
            [values.map(|v| v.re), values.map(|v| v.im)]
        }));
        to.resize(self.n, [[0.0; LANES]; 2]);
        let mut stride = 1;
        while stride < self.n {
            self.pass(from, to, stride, direction);
            std::mem::swap(from, to);
            stride *= 2;
        }
        let scale = if direction == Direction::Inverse { 1.0 / self.n as f64 } else { 1.0 };
        for (k, [re, im]) in from.iter().enumerate() {
            for lane in 0..LANES {
                slab[at(lane, k)] = complex(re[lane], im[lane]) * scale;
            }
        }
    }

    /// One pass of Stockham's algorithm, radix 2: sums and differences of values half a line apart, the differences
    /// times a root of unity, in the order of the next pass.
    fn pass(&self, from: &Lines, to: &mut Lines, stride: usize, direction: Direction) {
        let half = self.n / 2;
        for p in 0..half / stride {
            let root = self.roots[p * stride];
            let (cos, sin) = (root.re, if direction == Direction::Forward { root.im } else { -root.im });
            for q in 0..stride {
                let ([a_re, a_im], [b_re, b_im]) = (from[p * stride + q], from[p * stride + q + half]);
                let (mut sum, mut difference) = ([[0.0; LANES]; 2], [[0.0; LANES]; 2]);
                for lane in 0..LANES {
                    sum[0][lane] = a_re[lane] + b_re[lane];
                    sum[1][lane] = a_im[lane] + b_im[lane];
                    let (re, im) = (a_re[lane] - b_re[lane], a_im[lane] - b_im[lane]);
                    difference[0][lane] = re * cos - im * sin;
                    difference[1][lane] = re * sin + im * cos;
                }
                to[2 * p * stride + q] = sum;
                to[(2 * p + 1) * stride + q] = difference;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn a_wave_becomes_one_coefficient_with_the_first_axes_swapped() {
        let (n, (kx, ky, kz)) = (16, (3, 5, 14));
        let wave = |i: usize| {
            let phase = (i / n / n * kx + i / n % n * ky + i % n * kz) as f64 * 2.0 * std::f64::consts::PI / n as f64;
            complex(libm::cos(phase), libm::sin(phase))
        };
        let mut cube: Vec<Complex> = (0..n * n * n).map(wave).collect();
        Fft::new(n).transform(&mut cube, Direction::Forward);
        for (i, value) in cube.iter().enumerate() {
            let expected = if i == (ky * n + kx) * n + kz { (n * n * n) as f64 } else { 0.0 };
            assert!((value.re - expected).abs() < 1e-9 && value.im.abs() < 1e-9, "{i}: {value:?}");
        }
        assert_eq!(Fft::new(n).wave_numbers()[kz], -2.0);
    }

    #[test]
    fn the_inverse_gives_the_values_back() {
        let mut rng = Rng::new(4);
        let values: Vec<Complex> = (0..32 * 32 * 32).map(|_| complex(rng.signed(), rng.signed())).collect();
        let (fft, mut cube) = (Fft::new(32), values.clone());
        fft.transform(&mut cube, Direction::Forward);
        fft.transform(&mut cube, Direction::Inverse);
        let worst = cube.iter().zip(&values).map(|(a, b)| (a.re - b.re).abs().max((a.im - b.im).abs()));
        assert!(worst.fold(0.0, f64::max) < 1e-14);
    }
}
