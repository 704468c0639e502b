//! The acoustic wave equation of constant density in three dimensions, as in reverse-time migration: fourth order in
//! space, second in time, a Ricker wavelet as source, sponges at all faces but the free surface at the top.
//!
//! The velocity has undulating layers, one of them slow, cut by a dipping fault, with correlated heterogeneity of
//! 1.5 %; the seed decides them.

use super::random::{between, normal};
use super::threads::for_each_slab;
use crate::Rng;

/// Metres between grid points.
const SPACING: f64 = 12.5;
/// Peak of the source's spectrum, in hertz.
const PEAK: f64 = 14.0;
/// Points of a sponge.
const SPONGE: usize = 20;
/// Points around the grid that stay zero: the reach of the stencil.
const PAD: usize = 2;
const LAYERS: usize = 12;
const WATER: f64 = 1500.0;

/// A wavefield on its way through the ground.
#[derive(Debug)]
pub struct Wavefield {
    shape: [usize; 3],
    /// Steps done.
    step: usize,
    /// Seconds of a step.
    dt: f64,
    /// (velocity * dt / spacing)^2.
    courant: Vec<f32>,
    /// What sponges leave of the pressure, by axis.
    damping: [Vec<f32>; 3],
    /// Pressure now and one step ago, padded.
    now: Vec<f32>,
    before: Vec<f32>,
}

impl Wavefield {
    /// At rest, in the ground of this seed; depth, y, x.
    ///
    /// # Panics
    /// If an extent is below 48: the sponges would meet.
    pub fn new(shape: [usize; 3], seed: u64) -> Self {
        assert!(shape.iter().all(|n| *n >= 2 * SPONGE + 8), "extents of at least 48, not {shape:?}");
        let velocity = velocity(shape, &mut Rng::new(seed));
        let dt = 0.45 * SPACING / velocity.iter().fold(0.0, |most: f64, v| most.max(*v));
        let courant = velocity.iter().map(|v| (v * v * dt * dt / SPACING / SPACING) as f32).collect();
        let padded: usize = shape.iter().map(|n| n + 2 * PAD).product();
        let damping = [sponge(shape[0], false), sponge(shape[1], true), sponge(shape[2], true)];
        Self { shape, step: 0, dt, courant, damping, now: vec![0.0; padded], before: vec![0.0; padded] }
    }

    /// Goes on until this many steps are done.
    pub fn advance_to(&mut self, step: usize) {
        while self.step < step {
            self.advance();
        }
    }

    /// The pressure, in C order.
    pub fn pressure(&self) -> Vec<f32> {
        let [nz, ny, nx] = self.shape;
        let rows = (0..nz).flat_map(|z| (0..ny).map(move |y| (z, y)));
        rows.flat_map(|(z, y)| &self.now[self.padded(z, y)..][..nx]).copied().collect()
    }

    /// Where a row starts in the padded arrays.
    fn padded(&self, z: usize, y: usize) -> usize {
        let [_, ny, nx] = self.shape;
        ((z + PAD) * (ny + 2 * PAD) + y + PAD) * (nx + 2 * PAD) + PAD
    }

    fn advance(&mut self) {
        let [nz, ny, nx] = self.shape;
        let (row, slab) = (nx + 2 * PAD, (nx + 2 * PAD) * (ny + 2 * PAD));
        let mut next = std::mem::take(&mut self.before);
        // The free surface: the first plane stays zero.
        for_each_slab(&mut next[(PAD + 1) * slab..(PAD + nz) * slab], slab, |i, plane| {
            let z = i + 1;
            for y in 0..ny {
                let damping = self.damping[0][z] * self.damping[1][y];
                let out = &mut plane[(y + PAD) * row + PAD..][..nx];
                self.advance_row(out, self.padded(z, y), (row, slab), (z * ny + y) * nx, damping);
            }
        });
        let [z, y, x] = [4, ny / 2, nx / 3];
        let courant = self.courant[(z * ny + y) * nx + x];
        next[self.padded(z, y) + x] += (1e4 * ricker(self.step as f64 * self.dt)) as f32 * courant;
        self.before = std::mem::replace(&mut self.now, next);
        self.step += 1;
    }

    /// One row: `out` holds the pressure of the step before and gets that of the next.
    fn advance_row(&self, out: &mut [f32], at: usize, (row, slab): (usize, usize), cell: usize, damping: f32) {
        let nx = out.len();
        let of = |offset: isize| &self.now[at.wrapping_add_signed(offset)..][..nx];
        let (row, slab) = (row as isize, slab as isize);
        let middle = of(0);
        let near = [of(-slab), of(slab), of(-row), of(row), of(-1), of(1)];
        let far = [of(-2 * slab), of(2 * slab), of(-2 * row), of(2 * row), of(-2), of(2)];
        let (courant, sponge) = (&self.courant[cell..][..nx], &self.damping[2][..nx]);
        let sum = |of: &[&[f32]; 6], x: usize| of[0][x] + of[1][x] + of[2][x] + of[3][x] + of[4][x] + of[5][x];
        for x in 0..nx {
            let laplacian = -7.5 * middle[x] + 4.0 / 3.0 * sum(&near, x) - 1.0 / 12.0 * sum(&far, x);
            let damping = damping * sponge[x];
            out[x] = damping * (2.0 * middle[x] - damping * out[x] + courant[x] * laplacian);
        }
    }
}

/// The source at a time.
fn ricker(time: f64) -> f64 {
    let phase = std::f64::consts::PI * PEAK * (time - 1.3 / PEAK);
    (1.0 - 2.0 * phase * phase) * libm::exp(-phase * phase)
}

/// What a sponge leaves at each point of an axis: at its end, and at its start where there is no free surface.
fn sponge(n: usize, at_start: bool) -> Vec<f32> {
    let left = |distance: usize| {
        let depth = 0.012 * SPONGE.saturating_sub(distance) as f64;
        libm::exp(-depth * depth)
    };
    (0..n).map(|i| (if at_start { left(i) } else { 1.0 } * left(n - 1 - i)) as f32).collect()
}

/// An interface between layers: its mean depth, the waves on it, and the velocity below it.
struct Interface {
    depth: f64,
    amplitudes: [f64; 2],
    lengths: [f64; 2],
    velocity: f64,
}

/// Metres a second at each point.
fn velocity(shape: [usize; 3], rng: &mut Rng) -> Vec<f64> {
    let [nz, ny, nx] = shape;
    let interfaces = interfaces(rng);
    let noise = heterogeneity(shape, rng);
    let wave = |x: usize, length: f64| 2.0 * std::f64::consts::PI * x as f64 / length;
    let mut velocity = vec![0.0; nz * ny * nx];
    for_each_slab(&mut velocity, ny * nx, |z, plane| {
        for (i, value) in plane.iter_mut().enumerate() {
            let (y, x) = (i / nx, i % nx);
            let across = (x as f64 + 0.35 * y as f64) - 0.62 * (nx as f64 + 0.35 * ny as f64);
            let throw = if across > 0.5 * (z as f64 - nz as f64 / 2.0) { 7.0 } else { 0.0 };
            *value = WATER;
            for layer in &interfaces {
                let waves = layer.amplitudes[0] * libm::sin(wave(x, layer.lengths[0]))
                    + layer.amplitudes[1] * libm::cos(wave(y, layer.lengths[1]));
                let fault = if layer.depth > 20.0 { throw } else { 0.0 };
                if z as f64 >= layer.depth + waves + 0.02 * (x as f64 - nx as f64 / 2.0) + fault {
                    *value = layer.velocity * (1.0 + 0.015 * noise[z * ny * nx + i]);
                }
            }
        }
    });
    velocity
}

fn interfaces(rng: &mut Rng) -> Vec<Interface> {
    let mut depth = 0.0;
    let interface = |i: usize| {
        depth += (9 + rng.below(8)) as f64;
        let slow = if i == 7 { 500.0 } else { 0.0 };
        let velocity = WATER + 2700.0 * (i + 1) as f64 / LAYERS as f64 + between(rng, -180.0, 180.0) - slow;
        let amplitudes = [between(rng, 1.0, 4.0), between(rng, 1.0, 4.0)];
        let lengths = [between(rng, 40.0, 110.0), between(rng, 40.0, 110.0)];
        Interface { depth, amplitudes, lengths, velocity }
    };
    (0..LAYERS).map(interface).collect()
}

/// Noise of variance 1, correlated over four points: white noise, averaged over eight points three times along each axis.
fn heterogeneity(shape: [usize; 3], rng: &mut Rng) -> Vec<f64> {
    let mut noise = normal(rng, shape.iter().product());
    for axis in 0..3 {
        let (n, stride) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
        for block in noise.chunks_exact_mut(n * stride) {
            for line in 0..stride {
                for _ in 0..3 {
                    average(block, line, stride, n);
                }
            }
        }
    }
    let variance = noise.iter().map(|v| v * v).sum::<f64>() / noise.len() as f64;
    noise.iter_mut().for_each(|v| *v /= variance.sqrt());
    noise
}

/// Replaces each value of a periodic line by the mean of eight.
fn average(block: &mut [f64], line: usize, stride: usize, n: usize) {
    let values: Vec<f64> = (0..n).map(|i| block[line + i * stride]).collect();
    for i in 0..n {
        block[line + i * stride] = (0..8).map(|j| values[(i + j) % n]).sum::<f64>() / 8.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_spreads_and_stays_finite() {
        let mut field = Wavefield::new([48, 56, 64], 3);
        let share = |values: &[f32]| values.iter().filter(|v| v.abs() > 1e-6).count() as f64 / values.len() as f64;
        field.advance_to(40);
        let early = field.pressure();
        field.advance_to(150);
        let late = field.pressure();
        assert!(share(&early) > 0.0 && share(&early) < 0.3 && share(&late) > 0.8);
        assert!(late.iter().all(|v| v.abs() < 1e4) && late[..56 * 64].iter().all(|v| *v == 0.0));
    }

    #[test]
    fn a_seed_decides_every_bit() {
        let run = |seed| {
            let mut field = Wavefield::new([48, 48, 48], seed);
            field.advance_to(60);
            field.pressure()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
