//! Simulations that stand in for fields of which no file can be had by the name of a package: a seismic wavefield,
//! turbulence, and the density, velocity and particles of a cosmological run.
//!
//! Each is a plain solution of the stated equations. The same seed is meant to give the same bits everywhere: arithmetic is
//! that of IEEE 754 in an order that does not depend on the number of threads, sines and exponentials are those of the
//! `libm` crate, which computes them in software, and random numbers are integers first.

pub mod acoustic;
pub mod cosmology;
mod fft;
mod random;
mod threads;
pub mod turbulence;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sha256_hex;

    fn hash(values: &[f32]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        sha256_hex(&bytes)[..16].to_owned()
    }

    /// The arrays of docs/data.md depend on it: no machine, compiler or number of threads gives other bits.
    #[test]
    fn bits_never_change() {
        let mut wavefield = acoustic::Wavefield::new([48, 50, 52], 1);
        wavefield.advance_to(60);
        let universe = cosmology::Universe::run(16, 1);
        let (grids, particles) = (universe.grids(), universe.particles());
        let hashes = [
            wavefield.pressure(),
            turbulence::velocity(16, 5, 1),
            grids.density,
            grids.velocity_x,
            particles.x,
            particles.vx,
        ]
        .map(|values| hash(&values));
        let expected = [
            "d9784400a9668295",
            "b5ab93cfb92bc330",
            "fedefdc24bb99797",
            "f92c13f4078ccd55",
            "0fecf06ba07f7cc4",
            "e15fb4fb883778dc",
        ];
        assert_eq!(hashes, expected);
    }
}
