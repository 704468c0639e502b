//! Decaying turbulence: the incompressible Navier-Stokes equations in a periodic cube of edge 2 pi, pseudo-spectral with
//! the wave numbers up to two thirds of the largest, viscosity by an integrating factor, Runge-Kutta of fourth order.

use super::fft::{Complex, Direction, Fft, complex};
use super::random::normal;
use super::threads::for_each_slab;
use crate::Rng;

const VISCOSITY: f64 = 1.0 / 130.0;
const DT: f64 = 0.0125;
/// The wave number that the energy starts around.
const K_START: f64 = 4.0;

/// Three components of a vector at one wave number.
type Vector = [Complex; 3];

/// The velocity along the first axis after some steps, in C order, f64 rounded to f32. The edge is a power of two.
pub fn velocity(edge: usize, n_steps: usize, seed: u64) -> Vec<f32> {
    let box_ = Spectral::new(edge);
    let mut flow = box_.start(&mut Rng::new(seed));
    for _ in 0..n_steps {
        flow = box_.advance(&flow);
    }
    box_.inverse(|i| flow[i][0]).iter().map(|v| v.re as f32).collect()
}

/// The cube of wave numbers, in the order of the transform: y, x, z.
struct Spectral {
    n: usize,
    fft: Fft,
    wave_numbers: Vec<f64>,
    /// What viscosity leaves after half a step, by the square of the wave number.
    half_decay: Vec<f64>,
}

impl Spectral {
    fn new(n: usize) -> Self {
        let fft = Fft::new(n);
        let decay = |k2: usize| libm::exp(-VISCOSITY * k2 as f64 * DT / 2.0);
        let half_decay = (0..=3 * n * n / 4).map(decay).collect();
        Self { n, wave_numbers: fft.wave_numbers(), fft, half_decay }
    }

    /// The wave vector at an index.
    fn k(&self, i: usize) -> [f64; 3] {
        [self.wave_numbers[i / self.n % self.n], self.wave_numbers[i / self.n / self.n], self.wave_numbers[i % self.n]]
    }

    /// The index of the opposite wave vector.
    fn opposite(&self, i: usize) -> usize {
        let [y, x, z] = [i / self.n / self.n, i / self.n % self.n, i % self.n].map(|k| (self.n - k) % self.n);
        (y * self.n + x) * self.n + z
    }

    /// A cube in parallel.
    fn cube<T: Send + Clone + Default>(&self, value: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let area = self.n * self.n;
        let mut cube = vec![T::default(); area * self.n];
        for_each_slab(&mut cube, area, |slab, values| {
            values.iter_mut().enumerate().for_each(|(i, v)| *v = value(slab * area + i));
        });
        cube
    }

    fn inverse(&self, value: impl Fn(usize) -> Complex + Sync) -> Vec<Complex> {
        let mut cube = self.cube(value);
        self.fft.transform(&mut cube, Direction::Inverse);
        cube
    }

    /// The spectra of three real fields, without divergence and without the wave numbers beyond two thirds of the largest. The first
    /// two share a transform: one is its real part, the other its imaginary part.
    fn solenoidal(
        &self,
        first_two: impl Fn(usize) -> Complex + Sync,
        last: impl Fn(usize) -> f64 + Sync,
    ) -> Vec<Vector> {
        let (mut pair, mut single) = (self.cube(first_two), self.cube(|i| complex(last(i), 0.0)));
        self.fft.transform(&mut pair, Direction::Forward);
        self.fft.transform(&mut single, Direction::Forward);
        self.cube(|i| {
            let (k, there, back) = (self.k(i), pair[i], pair[self.opposite(i)]);
            if 9.0 * (k[0] * k[0] + k[1] * k[1] + k[2] * k[2]) >= (self.n * self.n) as f64 {
                return Vector::default();
            }
            let first = complex(there.re + back.re, there.im - back.im) * 0.5;
            let second = complex(there.im + back.im, back.re - there.re) * 0.5;
            project([first, second, single[i]], k)
        })
    }

    /// Random phases with the energy spectrum k^4 exp(-2 (k / K_START)^2), and a root mean square of 1 a component.
    fn start(&self, rng: &mut Rng) -> Vec<Vector> {
        let n_values = self.n * self.n * self.n;
        let [x, y, z] = std::array::from_fn(|_| normal(rng, n_values));
        let mut flow = self.solenoidal(|i| complex(x[i], y[i]), |i| z[i]);
        for_each_slab(&mut flow, self.n * self.n, |slab, vectors| {
            for (i, vector) in vectors.iter_mut().enumerate() {
                let k2: f64 = self.k(slab * self.n * self.n + i).map(|k| k * k).iter().sum();
                let amplitude = k2.sqrt() * libm::exp(-k2 / K_START / K_START);
                *vector = vector.map(|v| v * amplitude);
            }
        });
        let square = |v: &Vector| v.iter().map(|c| c.re * c.re + c.im * c.im).sum::<f64>();
        let energy = flow.iter().map(square).sum::<f64>() / (n_values as f64 * n_values as f64) / 3.0;
        flow.iter_mut().for_each(|vector| *vector = vector.map(|v| v * (1.0 / energy.sqrt())));
        flow
    }

    /// One step of Runge and Kutta; `e` is what half a step leaves of a wave.
    fn advance(&self, flow: &[Vector]) -> Vec<Vector> {
        let decay = |i: usize| self.half_decay[self.k(i).map(|k| k * k).iter().sum::<f64>() as usize];
        let each = |at: &(dyn Fn(usize, usize, f64) -> Complex + Sync)| {
            self.cube(|i| -> Vector { std::array::from_fn(|c| at(i, c, decay(i))) })
        };
        let k1 = self.slope(flow);
        let k2 = self.slope(&each(&|i, c, e| (flow[i][c] + k1[i][c] * (DT / 2.0)) * e));
        let k3 = self.slope(&each(&|i, c, e| flow[i][c] * e + k2[i][c] * (DT / 2.0)));
        let k4 = self.slope(&each(&|i, c, e| (flow[i][c] * e + k3[i][c] * DT) * e));
        each(&|i, c, e| {
            let slopes = k1[i][c] * (e * e) + (k2[i][c] + k3[i][c]) * (2.0 * e) + k4[i][c];
            flow[i][c] * (e * e) + slopes * (DT / 6.0)
        })
    }

    /// The nonlinear term, velocity times vorticity, without its gradient part.
    fn slope(&self, flow: &[Vector]) -> Vec<Vector> {
        let curl = |i: usize| cross(self.k(i), flow[i]).map(Complex::times_i);
        // Two real fields from each transform.
        let a = self.inverse(|i| flow[i][0] + flow[i][1].times_i());
        let b = self.inverse(|i| flow[i][2] + curl(i)[0].times_i());
        let c = self.inverse(|i| curl(i)[1] + curl(i)[2].times_i());
        let product = |i: usize| {
            let (u, w) = ([a[i].re, a[i].im, b[i].re], [b[i].im, c[i].re, c[i].im]);
            [u[1] * w[2] - u[2] * w[1], u[2] * w[0] - u[0] * w[2], u[0] * w[1] - u[1] * w[0]]
        };
        let first_two = |i: usize| complex(product(i)[0], product(i)[1]);
        self.solenoidal(first_two, |i| product(i)[2])
    }
}

/// The part of a vector across its wave vector.
fn project(vector: Vector, k: [f64; 3]) -> Vector {
    let k2 = k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
    if k2 == 0.0 {
        return Vector::default();
    }
    let along = (vector[0] * k[0] + vector[1] * k[1] + vector[2] * k[2]) * (1.0 / k2);
    std::array::from_fn(|c| vector[c] - along * k[c])
}

fn cross(k: [f64; 3], v: Vector) -> Vector {
    [v[2] * k[1] - v[1] * k[2], v[0] * k[2] - v[2] * k[0], v[1] * k[0] - v[0] * k[1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn energy(flow: &[Vector]) -> f64 {
        flow.iter().flatten().map(|c| c.re * c.re + c.im * c.im).sum()
    }

    #[test]
    fn energy_decays_and_divergence_stays_zero() {
        let box_ = Spectral::new(16);
        let start = box_.start(&mut Rng::new(2));
        let end = (0..10).fold(start.clone(), |flow, _| box_.advance(&flow));
        assert!(energy(&end) < energy(&start) && energy(&end) > 0.3 * energy(&start));
        let divergence = |(i, v): (usize, &Vector)| {
            let k = box_.k(i);
            let sum = v[0] * k[0] + v[1] * k[1] + v[2] * k[2];
            sum.re.abs().max(sum.im.abs())
        };
        assert!(end.iter().enumerate().map(divergence).fold(0.0, f64::max) < 1e-9 * energy(&end).sqrt());
    }

    /// Without viscosity the nonlinear term does no work: its product with the velocity sums to zero.
    #[test]
    fn the_nonlinear_term_keeps_energy() {
        let box_ = Spectral::new(16);
        let flow = box_.start(&mut Rng::new(5));
        let slope = box_.slope(&flow);
        let work: f64 = flow.iter().flatten().zip(slope.iter().flatten()).map(|(u, n)| u.re * n.re + u.im * n.im).sum();
        let scale = (energy(&flow) * energy(&slope)).sqrt();
        assert!(work.abs() < 1e-9 * scale, "{work} of {scale}");
    }
}
