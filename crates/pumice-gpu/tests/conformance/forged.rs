//! Payloads with bits changed, in streams whose checksums are right, so that kernels see them.

use pumice::backend::{self, Assembler, Blueprint, FirstPass, Passes, SecondPass};
use pumice::{Config, DecodeOptions, Result};
use pumice_gpu::Device;
use pumice_testkit::Rng;

/// Forges `n_cases` payloads of an array, half of them within the first `front` bytes. The device must give the CPU's values, or
/// an error of the CPU's kind. Returns how many were refused.
pub(crate) fn throw(
    device: &Device,
    values: &[f32],
    shape: &[usize],
    config: &Config,
    n_cases: usize,
    front: usize,
) -> usize {
    let stats = backend::scan(&OnHost(values), config).unwrap();
    let blueprint = Blueprint::new(config, shape, &stats).unwrap();
    let mut payload = Vec::new();
    let codec = blueprint.encode_on_cpu(0, values, &mut payload).unwrap();
    let mut rng = Rng::new(12);
    let mut n_refused = 0;
    for case in 0..n_cases {
        let forged = forge(&payload, front, &mut rng);
        let mut assembler = Assembler::new(&blueprint, Vec::new()).unwrap();
        let put = |to: &mut [u8]| {
            to.copy_from_slice(&forged);
            Ok(())
        };
        if assembler.chunk(codec, forged.len(), put).is_err() {
            // Too short for any payload.
            continue;
        }
        let bytes = assembler.finish().unwrap();
        let found = device.decompress::<f32>(&bytes, &DecodeOptions::new());
        match (pumice::decompress::<f32>(&bytes), found) {
            (Ok(expected), Ok(found)) => {
                // NaN that the format leaves open may differ.
                let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                let wrong = expected.data.iter().zip(&found.data).position(|(a, b)| !same(a, b));
                if let Some(at) = wrong {
                    panic!(
                        "case {case} of {shape:?}: value {at} is {:e} instead of {:e}",
                        found.data[at], expected.data[at]
                    );
                }
            }
            (Err(expected), Err(found)) => {
                n_refused += 1;
                assert_eq!(expected.kind(), found.kind(), "{expected} / {found}");
            }
            (expected, found) => panic!("CPU {:?}, device {:?}", expected.map(|_| ()), found.map(|_| ())),
        }
    }
    n_refused
}

fn forge(payload: &[u8], front: usize, rng: &mut Rng) -> Vec<u8> {
    let mut forged = payload.to_vec();
    for _ in 0..1 + rng.below(3) {
        let span = if rng.below(2) == 0 { front.min(forged.len()) } else { forged.len() };
        let at = rng.below(span);
        forged[at] ^= 1 << rng.below(8);
    }
    if rng.below(4) == 0 {
        forged.truncate(8 + rng.below(forged.len() - 8));
    }
    forged
}

/// The passes over an array that a plan needs, on the host.
pub(crate) struct OnHost<'a>(pub(crate) &'a [f32]);

impl Passes<f32> for OnHost<'_> {
    fn n_values(&self) -> usize {
        self.0.len()
    }

    fn first(&self, _: Option<f32>, stride: usize) -> Result<FirstPass<f32>> {
        let finite = || self.0.iter().copied().filter(|x| x.is_finite());
        let range = Some((finite().fold(f32::MAX, f32::min), finite().fold(f32::MIN, f32::max)));
        let samples = self.0.iter().step_by(stride).copied().filter(|x| x.is_finite()).collect();
        Ok(FirstPass { range, first_nan: self.0.iter().copied().find(|x| x.is_nan()), samples })
    }

    fn second(&self, ends: [f32; 2]) -> Result<SecondPass<f32>> {
        let count = |end: f32| self.0.iter().filter(|x| x.to_bits() == end.to_bits()).count() as u64;
        let inner = || self.0.iter().copied().filter(|x| x.is_finite() && !ends.contains(x));
        let range = Some((inner().fold(f32::MAX, f32::min), inner().fold(f32::MIN, f32::max)));
        Ok(SecondPass { counts: ends.map(count), range })
    }
}
