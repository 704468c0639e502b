//! A cosmological N-body run: particles displaced by the Zel'dovich approximation at redshift 49, then moved by a
//! particle-mesh code (kick, drift, kick) to redshift 0. The particles are stored like those of HACC, the grids of density
//! and velocity are like those of Nyx.

use super::fft::{Complex, Direction, Fft, complex};
use super::random::normal;
use super::threads::for_each_slab;
use crate::Rng;

/// Edge of the box, in Mpc/h.
const BOX: f64 = 64.0;
/// Matter, the rest being the cosmological constant; Hubble's constant; slope and amplitude of the initial spectrum.
const MATTER: f64 = 0.31;
const HUBBLE: f64 = 0.68;
const TILT: f64 = 0.965;
const SIGMA_8: f64 = 0.82;
/// The scale factor at the start.
const A_START: f64 = 1.0 / 50.0;
const N_STEPS: usize = 28;
/// Edge of a cell of HACC's chaining mesh, in Mpc/h.
const LEAF: f64 = 2.0;
/// Samples along each axis between particles, for the grids.
const REFINEMENT: usize = 4;
/// Parts that are deposited apart and then added, so that the sums do not depend on the number of threads.
const PARTS: usize = 4;

/// The end of a run: particles on a lattice at the start, so that neighbours in memory were neighbours in space.
#[derive(Debug)]
pub struct Universe {
    mesh: Mesh,
    /// Mpc/h, not wrapped into the box.
    positions: Vec<[f64; 3]>,
    /// a^2 dx/dt in units of H0 Mpc/h.
    momenta: Vec<[f64; 3]>,
}

/// Density and mass-weighted velocity on a grid.
#[derive(Debug)]
pub struct Grids {
    /// In units of the mean, with a kernel of (1, 2, 1) / 4 along each axis that stands for the pressure of the gas.
    pub density: Vec<f32>,
    /// km/s, along the first axis.
    pub velocity_x: Vec<f32>,
}

/// Particles in the order of HACC's files: by rank of a 2 x 2 x 2 decomposition, then by cell of the chaining mesh.
#[derive(Debug)]
pub struct Particles {
    /// Mpc/h.
    pub x: Vec<f32>,
    /// km/s.
    pub vx: Vec<f32>,
}

impl Universe {
    /// As many particles along an edge as cells of the mesh, a power of two.
    pub fn run(edge: usize, seed: u64) -> Self {
        let mesh = Mesh { n: edge, fft: Fft::new(edge) };
        let displacement = mesh.displacement(&mut Rng::new(seed));
        let growth = growth(A_START) / growth(1.0);
        let rate = libm::pow(MATTER / cube(A_START) / square(expansion(A_START)), 0.55);
        let momentum = square(A_START) * expansion(A_START) * rate * growth;
        let place = |(i, d): (usize, &[f64; 3])| {
            let q = mesh.lattice(i);
            std::array::from_fn(|c| q[c] + growth * d[c])
        };
        let positions = displacement.iter().enumerate().map(place).collect();
        let momenta = displacement.iter().map(|d| d.map(|d| momentum * d)).collect();
        let mut universe = Self { mesh, positions, momenta };
        universe.evolve();
        universe
    }

    /// Leapfrog steps of equal ratios of the scale factor.
    fn evolve(&mut self) {
        let at = |half_step: usize| libm::exp(libm::log(A_START) * (1.0 - half_step as f64 / (2 * N_STEPS) as f64));
        let mut forces = self.mesh.forces(&self.positions);
        for step in 0..N_STEPS {
            let [start, middle, end] = [0, 1, 2].map(|half| at(2 * step + half));
            self.kick(&forces, integral(|a| 1.0 / (a * a * expansion(a)), start, middle));
            let drift = integral(|a| 1.0 / (cube(a) * expansion(a)), start, end);
            for (x, p) in self.positions.iter_mut().zip(&self.momenta) {
                *x = std::array::from_fn(|c| x[c] + drift * p[c]);
            }
            forces = self.mesh.forces(&self.positions);
            self.kick(&forces, integral(|a| 1.0 / (a * a * expansion(a)), middle, end));
        }
    }

    fn kick(&mut self, forces: &[[f64; 3]], factor: f64) {
        for (p, force) in self.momenta.iter_mut().zip(forces) {
            *p = std::array::from_fn(|c| p[c] + factor * force[c]);
        }
    }

    /// The particles as HACC stores them.
    pub fn particles(&self) -> Particles {
        let wrapped: Vec<[f64; 3]> = self.positions.iter().map(|x| x.map(wrap)).collect();
        let key = |i: &usize| {
            let rank = wrapped[*i].map(|x| usize::from(x >= BOX / 2.0));
            let leaf = wrapped[*i].map(|x| (x % (BOX / 2.0) / LEAF) as usize);
            (rank, leaf)
        };
        let mut order: Vec<usize> = (0..wrapped.len()).collect();
        order.sort_by_cached_key(key);
        let x = order.iter().map(|i| wrapped[*i][0] as f32).collect();
        Particles { x, vx: order.iter().map(|i| (100.0 * self.momenta[*i][0]) as f32).collect() }
    }

    /// The grids of Nyx. The particles are the corners of a sheet that is sampled between them, so that no cell of a void
    /// is empty.
    pub fn grids(&self) -> Grids {
        let n = self.mesh.n;
        let mut parts: Vec<[Vec<f64>; 2]> = (0..PARTS).map(|_| [(); 2].map(|()| vec![0.0; n * n * n])).collect();
        for_each_slab(&mut parts, 1, |part, sums| {
            let [mass, momentum] = &mut sums[0];
            for i in n * n * (n * part / PARTS)..n * n * (n * (part + 1) / PARTS) {
                self.sheet(i, |position, velocity| {
                    for (cell, weight) in self.mesh.cloud(position) {
                        mass[cell] += weight;
                        momentum[cell] += weight * velocity;
                    }
                });
            }
        });
        let total = |which: usize| -> Vec<f64> {
            (0..n * n * n).map(|i| parts.iter().map(|part| part[which][i]).sum()).collect()
        };
        let (mut mass, momentum) = (total(0), total(1));
        let velocity_x = mass.iter().zip(momentum).map(|(m, p)| (p / m.max(1e-30)) as f32).collect();
        (0..3).for_each(|axis| smooth(&mut mass, n, axis));
        let per_cell = (REFINEMENT * REFINEMENT * REFINEMENT) as f64;
        Grids { density: mass.iter().map(|m| (m / per_cell) as f32).collect(), velocity_x }
    }

    /// The samples of the sheet around a particle: position, and velocity along the first axis.
    fn sheet(&self, i: usize, mut visit: impl FnMut([f64; 3], f64)) {
        let (n, q) = (self.mesh.n, self.mesh.lattice(i));
        let [a, b, c] = self.mesh.indices(i);
        // Displacement and velocity of the 27 particles around.
        let near = |index: usize, offset: usize| (index + n + offset - 1) % n;
        let corners: [[f64; 4]; 27] = std::array::from_fn(|s| {
            let j = (near(a, s / 9) * n + near(b, s / 3 % 3)) * n + near(c, s % 3);
            let (from, x) = (self.mesh.lattice(j), self.positions[j]);
            [x[0] - from[0], x[1] - from[1], x[2] - from[2], 100.0 * self.momenta[j][0]]
        });
        for sample in 0..REFINEMENT * REFINEMENT * REFINEMENT {
            let steps = [sample / REFINEMENT / REFINEMENT, sample / REFINEMENT % REFINEMENT, sample % REFINEMENT];
            let offsets = steps.map(|s| (s as f64 + 0.5) / REFINEMENT as f64 - 0.5);
            let mut value = [0.0; 4];
            for corner in 0..8 {
                let (mut index, mut weight) = (0, 1.0);
                for axis in 0..3 {
                    let is_next = corner >> axis & 1 == 1;
                    let next = if offsets[axis] > 0.0 { 2 } else { 0 };
                    index = 3 * index + if is_next { next } else { 1 };
                    weight *= if is_next { offsets[axis].abs() } else { 1.0 - offsets[axis].abs() };
                }
                value = std::array::from_fn(|v| value[v] + weight * corners[index][v]);
            }
            let position = std::array::from_fn(|axis| q[axis] + offsets[axis] * BOX / n as f64 + value[axis]);
            visit(position, value[3]);
        }
    }
}

/// A periodic mesh over the box.
#[derive(Debug)]
struct Mesh {
    n: usize,
    fft: Fft,
}

impl Mesh {
    fn indices(&self, i: usize) -> [usize; 3] {
        [i / self.n / self.n, i / self.n % self.n, i % self.n]
    }

    /// The middle of a cell.
    fn lattice(&self, i: usize) -> [f64; 3] {
        self.indices(i).map(|index| (index as f64 + 0.5) * BOX / self.n as f64)
    }

    /// The wave vector at an index of a spectrum, in h/Mpc.
    fn wave_vectors(&self) -> impl Fn(usize) -> [f64; 3] + Sync {
        let (n, k) = (self.n, self.fft.wave_numbers());
        move |i| [k[i / n % n], k[i / n / n], k[i % n]].map(|k| k * 2.0 * std::f64::consts::PI / BOX)
    }

    /// The field whose spectrum is `factor * i k / k^2` times the given one: the acceleration towards a density.
    fn attraction(&self, spectrum: &[Complex], factor: f64) -> Vec<[f64; 3]> {
        let k = self.wave_vectors();
        let component = |i: usize, axis: usize| {
            let k = k(i);
            let k2 = k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
            if k2 == 0.0 { Complex::default() } else { spectrum[i].times_i() * (factor * k[axis] / k2) }
        };
        let inverse = |value: &dyn Fn(usize) -> Complex| {
            let mut cube: Vec<Complex> = (0..spectrum.len()).map(value).collect();
            self.fft.transform(&mut cube, Direction::Inverse);
            cube
        };
        // Two real fields from the first transform.
        let (pair, last) = (inverse(&|i| component(i, 0) + component(i, 1).times_i()), inverse(&|i| component(i, 2)));
        pair.iter().zip(&last).map(|(a, b)| [a.re, a.im, b.re]).collect()
    }

    /// Zel'dovich's displacement of each particle at redshift 0, by a spectrum of cold dark matter.
    fn displacement(&self, rng: &mut Rng) -> Vec<[f64; 3]> {
        let n_values = self.n * self.n * self.n;
        let mut field: Vec<Complex> = normal(rng, n_values).into_iter().map(|v| complex(v, 0.0)).collect();
        self.fft.transform(&mut field, Direction::Forward);
        let (k, amplitude) = (self.wave_vectors(), SIGMA_8 * SIGMA_8 / variance_in_spheres());
        for_each_slab(&mut field, self.n * self.n, |slab, values| {
            for (i, value) in values.iter_mut().enumerate() {
                let k = k(slab * self.n * self.n + i);
                let k = (k[0] * k[0] + k[1] * k[1] + k[2] * k[2]).sqrt();
                *value = *value * (amplitude * power(k) * n_values as f64 / cube(BOX)).sqrt();
            }
        });
        self.attraction(&field, 1.0)
    }

    /// The eight cells around a position, and their shares of it.
    fn cloud(&self, position: [f64; 3]) -> [(usize, f64); 8] {
        let scaled = position.map(|x| wrap(x) * self.n as f64 / BOX);
        let low = scaled.map(|x| (x as usize).min(self.n - 1));
        let high = low.map(|i| (i + 1) % self.n);
        let share: [f64; 3] = std::array::from_fn(|c| scaled[c] - low[c] as f64);
        std::array::from_fn(|corner| {
            let (mut cell, mut weight) = (0, 1.0);
            for axis in 0..3 {
                let is_high = corner >> axis & 1 == 1;
                cell = cell * self.n + if is_high { high[axis] } else { low[axis] };
                weight *= if is_high { share[axis] } else { 1.0 - share[axis] };
            }
            (cell, weight)
        })
    }

    /// The force on each particle: a dp/dt.
    fn forces(&self, positions: &[[f64; 3]]) -> Vec<[f64; 3]> {
        let mut density = vec![complex(-1.0, 0.0); self.n * self.n * self.n];
        for position in positions {
            for (cell, weight) in self.cloud(*position) {
                density[cell].re += weight;
            }
        }
        self.fft.transform(&mut density, Direction::Forward);
        let field = self.attraction(&density, 1.5 * MATTER);
        let mut forces = vec![[0.0; 3]; positions.len()];
        for_each_slab(&mut forces, self.n, |slab, forces| {
            for (force, position) in forces.iter_mut().zip(&positions[slab * self.n..]) {
                for (cell, weight) in self.cloud(*position) {
                    *force = std::array::from_fn(|c| force[c] + weight * field[cell][c]);
                }
            }
        });
        forces
    }
}

/// Into the box.
fn wrap(x: f64) -> f64 {
    let wrapped = x.rem_euclid(BOX);
    if wrapped < BOX { wrapped } else { 0.0 }
}

fn square(x: f64) -> f64 {
    x * x
}

fn cube(x: f64) -> f64 {
    x * x * x
}

/// Hubble's rate at a scale factor, in units of today's.
fn expansion(a: f64) -> f64 {
    (MATTER / cube(a) + 1.0 - MATTER).sqrt()
}

/// The growth of structure, after Carroll, Press and Turner.
fn growth(a: f64) -> f64 {
    let matter = MATTER / cube(a) / square(expansion(a));
    let rest = (1.0 - MATTER) / square(expansion(a));
    a * 2.5 * matter / (libm::pow(matter, 4.0 / 7.0) - rest + (1.0 + matter / 2.0) * (1.0 + rest / 70.0))
}

/// The initial power spectrum, but for its amplitude: the transfer function of Bardeen, Bond, Kaiser and Szalay.
fn power(k: f64) -> f64 {
    if k == 0.0 {
        return 0.0;
    }
    let q = k / (MATTER * HUBBLE);
    let series = 1.0 + 3.89 * q + square(16.1 * q) + cube(5.46 * q) + square(square(6.71 * q));
    let transfer = libm::log(1.0 + 2.34 * q) / (2.34 * q) / series.sqrt().sqrt();
    libm::pow(k, TILT) * transfer * transfer
}

/// The variance in spheres of 8 Mpc/h that this spectrum gives, for `SIGMA_8`.
fn variance_in_spheres() -> f64 {
    let by_log_k = |log_k: f64| {
        let k = libm::exp(log_k);
        let window = 3.0 * (libm::sin(8.0 * k) - 8.0 * k * libm::cos(8.0 * k)) / cube(8.0 * k);
        power(k) * window * window * cube(k) / (2.0 * square(std::f64::consts::PI))
    };
    integral(by_log_k, -9.2, 4.6)
}

/// By the trapezoid rule.
fn integral(f: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    const N: usize = 2000;
    let at = |i: usize| f(from + (to - from) * i as f64 / N as f64);
    ((1..N).map(at).sum::<f64>() + (at(0) + at(N)) / 2.0) * (to - from) / N as f64
}

/// (1, 2, 1) / 4 along an axis of a periodic cube.
fn smooth(values: &mut [f64], n: usize, axis: usize) {
    let stride = [n * n, n, 1][axis];
    let before = values.to_vec();
    for (i, value) in values.iter_mut().enumerate() {
        let (index, line) = (i / stride % n, i - i / stride % n * stride);
        let at = |index: usize| before[line + index % n * stride];
        *value = 0.25 * (at(index + n - 1) + at(index + 1)) + 0.5 * at(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mass_is_kept_and_structure_grows() {
        let universe = Universe::run(16, 5);
        let Grids { density, velocity_x } = universe.grids();
        let mean = density.iter().map(|d| f64::from(*d)).sum::<f64>() / density.len() as f64;
        assert!((mean - 1.0).abs() < 1e-5, "{mean}");
        let most = density.iter().fold(0.0_f32, |most, d| most.max(*d));
        assert!(most > 3.0 && density.iter().all(|d| *d > 0.0), "{most}");
        assert!(velocity_x.iter().all(|v| v.abs() < 3000.0));
        let Particles { x, vx } = universe.particles();
        assert!(x.iter().all(|x| (0.0..=64.0).contains(x)) && vx.len() == 16 * 16 * 16);
    }

    /// A sheet that has the particles of an empty slab pulls from both sides.
    #[test]
    fn particles_fall_towards_mass() {
        let mesh = Mesh { n: 16, fft: Fft::new(16) };
        let mut positions: Vec<[f64; 3]> = (0..16 * 16 * 16).map(|i| mesh.lattice(i)).collect();
        positions.iter_mut().filter(|x| x[0] < 8.0).for_each(|x| x[0] = 32.0);
        let forces = mesh.forces(&positions);
        let (left, right) = (5 * 256, 10 * 256);
        assert_eq!((positions[left][0], positions[right][0]), (22.0, 42.0));
        assert!(forces[left][0] > 0.0 && forces[right][0] < 0.0, "{:?} {:?}", forces[left], forces[right]);
        assert!(forces[left][1].abs() < 1e-9);
    }
}
