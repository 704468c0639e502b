//! Forged payloads: bits are changed and checksums are valid, so that kernels decode them.

use pumice::backend::{self, Assembler, Blueprint, FirstPass, MAX_NAMED, Passes, SecondPass};
use pumice::{Config, DecodeOptions, Result};
use pumice_gpu::{Device, DeviceElement};
use pumice_testkit::{Float, Rng};

/// Forges `n_cases` payloads of an array, half of them within the first `front` bytes. The device must give the CPU's
/// values, or an error of the CPU's kind. Returns how many were refused.
pub(crate) fn throw<T: DeviceElement + Float>(
    device: &Device,
    values: &[T],
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
            // Shorter than any payload.
            continue;
        }
        let bytes = assembler.finish().unwrap();
        let found = device.decompress::<T>(&bytes, &DecodeOptions::new());
        match (pumice::decompress::<T>(&bytes), found) {
            (Ok(expected), Ok(found)) => {
                // The bits of a NaN may differ where the format does not specify them.
                let is_nan = |x: T| Float::to_f64(x).is_nan();
                let same = |a: T, b: T| bits(a) == bits(b) || (is_nan(a) && is_nan(b));
                let wrong = expected.data.iter().zip(&found.data).position(|(a, b)| !same(*a, *b));
                if let Some(at) = wrong {
                    panic!(
                        "case {case} of {shape:?}: value {at} is {:?} instead of {:?}",
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

/// Computes the statistics that a plan needs, on the host.
pub(crate) struct OnHost<'a, T>(pub(crate) &'a [T]);

fn bits(value: impl Float) -> u64 {
    value.to_bits_u64()
}

/// Minimum and maximum.
fn range<T: Float>(values: impl Iterator<Item = T>) -> (T, T) {
    let ends = values.map(T::to_f64).fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
    (T::from_f64(ends.0), T::from_f64(ends.1))
}

impl<T: DeviceElement + Float> Passes<T> for OnHost<'_, T> {
    fn n_values(&self) -> usize {
        self.0.len()
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        assert!(skip.is_empty(), "no fill value is named");
        let is_finite = |x: &T| Float::to_f64(*x).is_finite();
        let samples = self.0.iter().step_by(stride).copied().filter(is_finite).collect();
        let first_nan = self.0.iter().copied().find(|x| Float::to_f64(*x).is_nan());
        let range = Some(range(self.0.iter().copied().filter(is_finite)));
        Ok(FirstPass { range, first_nan, samples, ..FirstPass::default() })
    }

    fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        let mut counts = [0; MAX_NAMED];
        for (count, skip) in counts.iter_mut().zip(skip) {
            *count = self.0.iter().filter(|x| bits(**x) == bits(*skip)).count() as u64;
        }
        let inner = self.0.iter().copied().filter(|x| Float::to_f64(*x).is_finite() && !skip.contains(x));
        Ok(SecondPass { counts, range: Some(range(inner)) })
    }
}
