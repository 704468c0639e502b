//! The demo's fields: small, synthetic, the same in every run. Each represents a kind of data: smooth and multi-scale,
//! mostly empty, masked, and unordered.

use std::f64::consts::TAU;

/// The generators, in the order of the table.
pub(crate) const ALL: [fn() -> Field; 4] = [turbulence, wavefield, climate, particles];

/// An array and how to show it.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
    /// The value that means "no data".
    pub(crate) fill: Option<f32>,
}

/// The fill value on land in the climate field, as in many real ones.
const LAND: f32 = 1e20;

/// SplitMix64: small, and good enough for pictures.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [low, high).
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Normal with mean 0 and deviation 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (TAU * self.unit()).cos()
    }

    /// Uniform on the unit sphere.
    fn direction(&mut self) -> [f64; 3] {
        let z = self.between(-1.0, 1.0);
        let (sin, cos) = (TAU * self.unit()).sin_cos();
        let r = (1.0 - z * z).sqrt();
        [r * cos, r * sin, z]
    }
}

/// A plane wave `amplitude * cos(k . x + phase)`.
struct Mode {
    k: [f64; 3],
    phase: f64,
    amplitude: f64,
}

/// Waves with wave numbers spread evenly in the logarithm, and the energy of each octave falling as `k^-slope`.
fn modes(random: &mut Random, n: usize, k_min: f64, k_max: f64, slope: f64) -> Vec<Mode> {
    let one = |_| {
        let k = k_min * (k_max / k_min).powf(random.unit());
        let amplitude = (k / k_min).powf(-slope / 2.0) * (2.0 / n as f64).sqrt();
        Mode { k: random.direction().map(|d| d * k), phase: TAU * random.unit(), amplitude }
    };
    (0..n).map(one).collect()
}

fn wave_sum(modes: &[Mode], x: [f64; 3]) -> f64 {
    modes.iter().map(|m| m.amplitude * (m.k[0] * x[0] + m.k[1] * x[1] + m.k[2] * x[2] + m.phase).cos()).sum()
}

/// One velocity component of a turbulence-like field: E(k) ~ k^-5/3, that is k^-2/3 per octave.
fn turbulence() -> Field {
    let shape = [64, 128, 128];
    let mut random = Random(1);
    let mut values = vec![0.0f32; shape.iter().product()];
    for mode in modes(&mut random, 256, TAU, 24.0 * TAU, 2.0 / 3.0) {
        add_wave(&mut values, shape, &mode);
    }
    Field { name: "turbulence", shape: shape.to_vec(), values, fill: None }
}

/// Adds one wave to a grid of spacing 1/128. A wave is a product of one factor per axis, so no cosine is needed inside.
fn add_wave(values: &mut [f32], shape: [usize; 3], mode: &Mode) {
    let factor = |axis: usize, i: usize| (mode.k[axis] * i as f64 / 128.0).sin_cos();
    let fastest: Vec<(f32, f32)> = (0..shape[2]).map(|i| factor(2, i)).map(|(s, c)| (s as f32, c as f32)).collect();
    for (row, line) in values.chunks_exact_mut(shape[2]).enumerate() {
        let (z, y) = (row / shape[1], row % shape[1]);
        let angle = (mode.k[0] * z as f64 + mode.k[1] * y as f64) / 128.0 + mode.phase;
        let (sin, cos) = ((mode.amplitude * angle.sin()) as f32, (mode.amplitude * angle.cos()) as f32);
        for (value, (s, c)) in line.iter_mut().zip(&fastest) {
            *value += cos * c - sin * s;
        }
    }
}

/// Sound from a few sources that have fired at different times: expanding shells in a volume that is still silent.
fn wavefield() -> Field {
    const SHELL: f64 = 2.8;
    let shape = [64, 128, 128];
    let sources = [([32.0, 44.0, 40.0], 34.0), ([30.0, 88.0, 92.0], 22.0), ([34.0, 30.0, 104.0], 11.0)];
    let pressure = |x: [f64; 3]| -> f64 {
        let shells = sources.iter().map(|(centre, radius)| {
            let r = distance(x, *centre);
            let u = (r - radius) / SHELL;
            // A Ricker wavelet, cut where f32 would round it away.
            if u.abs() > 3.6 { 0.0 } else { 30.0 / r.max(14.0) * (1.0 - 2.0 * u * u) * (-u * u).exp() }
        });
        shells.sum()
    };
    let values = (0..shape.iter().product())
        .map(|i: usize| pressure([(i / (128 * 128)) as f64, (i / 128 % 128) as f64, (i % 128) as f64]) as f32)
        .collect();
    Field { name: "wavefield", shape: shape.to_vec(), values, fill: None }
}

fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// A field like sea surface temperature: warm at the equator, eddies, and continents without data.
fn climate() -> Field {
    let (n_lat, n_lon) = (240, 480);
    let mut random = Random(11);
    let height = modes(&mut random, 64, 2.5, 30.0, 1.3);
    let eddies = modes(&mut random, 64, 4.0, 60.0, 1.0);
    let mut values = Vec::with_capacity(n_lat * n_lon);
    for row in 0..n_lat {
        let lat = (90.0 - (row as f64 + 0.5) * 180.0 / n_lat as f64).to_radians();
        for column in 0..n_lon {
            let (sin, cos) = (TAU * column as f64 / n_lon as f64).sin_cos();
            let point = [lat.cos() * cos, lat.cos() * sin, lat.sin()];
            let is_land = wave_sum(&height, point) > 0.35;
            let temperature = -1.8 + 30.0 * lat.cos().powi(2) + 2.5 * wave_sum(&eddies, point);
            values.push(if is_land { LAND } else { temperature.max(-1.8) as f32 });
        }
    }
    Field { name: "climate", shape: vec![n_lat, n_lon], values, fill: Some(LAND) }
}

/// Positions of particles along one axis of a box of 256: clusters one after the other, and a thin background.
fn particles() -> Field {
    const N: usize = 1 << 20;
    let mut random = Random(3);
    let mut values = Vec::with_capacity(N);
    while values.len() < N {
        let centre = random.between(0.0, 256.0);
        let size = 0.6 * (random.unit() + 0.02).powf(-0.7);
        let n_members = (60.0 * size * random.between(1.0, 3.0)) as usize;
        for _ in 0..n_members.min(N - values.len()) {
            let strays = random.unit() < 0.05;
            let x = if strays { random.between(0.0, 256.0) } else { centre + size * random.normal() };
            values.push(x.rem_euclid(256.0) as f32);
        }
    }
    Field { name: "particles", shape: vec![N], values, fill: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fill_their_shapes_with_finite_values() {
        for make in ALL {
            let field = make();
            assert_eq!(field.values.len(), field.shape.iter().product::<usize>(), "{}", field.name);
            assert!(field.values.iter().all(|v| v.is_finite()), "{}", field.name);
        }
    }

    #[test]
    fn the_wavefield_is_mostly_silent_and_the_climate_partly_land() {
        let silent = wavefield().values.iter().filter(|v| **v == 0.0).count();
        assert!(silent > (1 << 20) / 2);
        let climate = climate();
        let land = climate.values.iter().filter(|v| **v == LAND).count() as f64 / climate.values.len() as f64;
        assert!((0.15..0.6).contains(&land), "{land}");
    }
}
