//! Codec `balanced`: what the device writes is what the CPU writes, byte for byte, and what it restores is what the CPU
//! restores. Runs on the emulator, or with `PUMICE_DEVICE=cuda` on the first CUDA device, where arrays are larger.

use std::fmt::Debug;

use pumice::backend::{self, FirstPass, Passes, SecondPass};
use pumice::{Bound, Config, DecodeOptions, Fill, Preset};
use pumice_gpu::{Device, Element};
use pumice_testkit::Float;
use pumice_testkit::fields::Field;

/// Whether the suite runs on a real device.
fn on_cuda() -> bool {
    std::env::var("PUMICE_DEVICE").is_ok_and(|name| name == "cuda")
}

fn device(seed: u64) -> Device {
    if on_cuda() { Device::cuda(0).expect("there is a CUDA device") } else { Device::emulated(seed) }
}

fn balanced(bound: Bound) -> Config {
    Config::new(bound).preset(Preset::Balanced)
}

/// Compresses and decompresses on the device, and compares with the CPU.
fn check<T: Element + Float + Debug>(device: &Device, values: &[T], shape: &[usize], config: &Config, what: &str) {
    let expected = pumice::compress(values, shape, config).expect("the CPU can compress it");
    let bytes = device.compress(values, shape, config).unwrap_or_else(|e| panic!("{what}: {e}"));
    if bytes != expected {
        let at = bytes.iter().zip(&expected).position(|(a, b)| a != b);
        panic!("{what}: {} bytes instead of {}, the first other one at {at:?}", bytes.len(), expected.len());
    }
    let back = device.decompress::<T>(&expected, &DecodeOptions::new()).unwrap_or_else(|e| panic!("{what}: {e}"));
    let restored = pumice::decompress::<T>(&expected).expect("the CPU can decompress it");
    assert_eq!(back.shape, restored.shape);
    let bits = |values: &[T]| pumice_testkit::check::bits(values);
    assert!(bits(&back.data) == bits(&restored.data), "{what}: values differ");
}

fn all_fields<T: Element + Float + Debug>() {
    let shapes: &[&[usize]] = if on_cuda() {
        &[&[300_000], &[701, 433], &[33, 100, 128], &[64, 64, 64], &[3, 5, 40, 170], &[9, 31, 3], &[20, 256, 512]]
    } else {
        &[&[9000], &[70, 131], &[17, 33, 64], &[3, 9, 20, 41], &[40, 9, 3], &[9, 20, 160]]
    };
    for (seed, field) in (0..).zip(Field::ALL) {
        let device = device(seed);
        for (i, &shape) in shapes.iter().enumerate() {
            let values: Vec<T> = field.generate(shape, seed);
            for (j, bound) in [Bound::Rel(1e-2), Bound::Rel(1e-4), Bound::Abs(1e-3)].into_iter().enumerate() {
                // The emulator is slow: each field meets each bound and each shape, but not in all combinations.
                if on_cuda() || (i + j + seed as usize).is_multiple_of(3) {
                    check(&device, &values, shape, &balanced(bound), &format!("{field:?} {shape:?} {bound:?}"));
                }
            }
        }
    }
}

#[test]
fn all_fields_f32() {
    all_fields::<f32>();
}

#[test]
fn all_fields_f64() {
    all_fields::<f64>();
}

#[test]
fn all_sizes() {
    for n in [0, 1, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 2048, 4095, 4096, 4097, 8193] {
        let values: Vec<f32> = Field::Turbulence.generate(&[n], 3);
        check(&device(n as u64), &values, &[n], &balanced(Bound::Abs(1e-3)), &format!("{n} values"));
        let values: Vec<f64> = Field::Walk.generate(&[n], 4);
        check(&device(n as u64), &values, &[n], &balanced(Bound::Rel(1e-3)), &format!("{n} values"));
    }
    check(&device(0), &[3.5_f32], &[], &balanced(Bound::Abs(1e-3)), "a scalar");
    check::<f32>(&device(0), &[], &[3, 0, 5], &balanced(Bound::Abs(1e-3)), "an empty array");
    let values: Vec<f32> = Field::Walk.generate(&[3000], 4);
    check(&device(0), &values, &[3000], &balanced(Bound::Lossless), "lossless");
}

#[test]
fn many_chunks_in_one_launch() {
    let shape = [40, 48, 96];
    for (seed, chunk_shape) in (0..).zip([[40, 48, 96], [16, 48, 96], [7, 48, 96], [16, 20, 64], [40, 10, 32]]) {
        let values: Vec<f32> = Field::Turbulence.generate(&shape, seed);
        let config = balanced(Bound::Rel(1e-3)).chunk_shape(&chunk_shape);
        check(&device(seed), &values, &shape, &config, &format!("chunks of {chunk_shape:?}"));
        // Some chunks have fill values, others have none.
        let mut values = values;
        values[10_000..30_000].fill(1e20);
        check(&device(seed), &values, &shape, &config.fill(Fill::Auto), &format!("chunks of {chunk_shape:?}, masked"));
    }
}

/// Sums along every set of axes, with edges inside patches and outside of them.
#[test]
fn all_orders_of_differences() {
    for (seed, shape) in (0..).zip([vec![5, 19, 160], vec![3, 8, 128], vec![6, 9, 288], vec![37, 416], vec![40_064]]) {
        let n: usize = shape.iter().product();
        let (nx, ny) = (shape[shape.len() - 1], if shape.len() > 1 { shape[shape.len() - 2] } else { 1 });
        for axes in 1..8_usize {
            // Rough along all axes that are not in the set, and steep along those that are.
            let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 20) as f32 / 4096.0;
            let value = |i: usize| {
                let (x, y, z) = (i % nx, i / nx % ny, i / nx / ny);
                let steep = [(x, 4), (y, 2), (z, 1)].map(|(place, bit)| {
                    if axes & bit != 0 { (place * place) as f32 } else { 1000.0 * noise(place * 7 + bit) }
                });
                steep.iter().sum::<f32>() + noise(i)
            };
            let values: Vec<f32> = (0..n).map(value).collect();
            check(&device(seed), &values, &shape, &balanced(Bound::Abs(0.1)), &format!("{shape:?}, axes {axes}"));
        }
    }
}

/// The passes over an array that a plan needs, on the host.
struct OnHost<'a>(&'a [f32]);

impl Passes<f32> for OnHost<'_> {
    fn n_values(&self) -> usize {
        self.0.len()
    }

    fn first(&self, _: Option<f32>, stride: usize) -> pumice::Result<FirstPass<f32>> {
        let mut pass = FirstPass::default();
        let least = self.0.iter().copied().fold(f32::INFINITY, f32::min);
        pass.range = Some((least, self.0.iter().copied().fold(f32::NEG_INFINITY, f32::max)));
        pass.samples = self.0.iter().step_by(stride).copied().collect();
        Ok(pass)
    }

    fn second(&self, _: [f32; 2]) -> pumice::Result<SecondPass<f32>> {
        unreachable!("the data have no outliers")
    }
}

/// Payloads that are damaged, in streams whose checksums are right, so that kernels see them.
#[test]
fn hostile_payloads_give_the_cpus_values_or_its_error() {
    let device = device(1);
    // In patches and in any order; few symbols and many, and low bits.
    let cases = [(vec![6, 20, 64], 1e-3), (vec![6, 20, 64], 1e-5), (vec![4000], 1e-2), (vec![3, 4, 11, 37], 1e-3)];
    let mut rng = pumice_testkit::Rng::new(12);
    let n_cases = if on_cuda() { 2000 } else { 60 };
    for (shape, bound) in cases {
        let values: Vec<f32> = Field::Turbulence.generate(&shape, 6);
        let config = balanced(Bound::Rel(bound)).fill(Fill::Value(f64::NAN));
        let stats = backend::scan(&OnHost(&values), &config).unwrap();
        let blueprint = backend::Blueprint::new(&config, &shape, &stats).unwrap();
        let mut payload = Vec::new();
        let codec = blueprint.encode_on_cpu(0, &values, &mut payload).unwrap();
        assert_eq!(codec, backend::Codec::Balanced);
        let mut n_refused = 0;
        for _ in 0..n_cases {
            let mut forged = payload.clone();
            for _ in 0..1 + rng.below(3) {
                // Half of them where the parameters are.
                let span = if rng.below(2) == 0 { 200.min(forged.len()) } else { forged.len() };
                let at = rng.below(span);
                forged[at] ^= 1 << rng.below(8);
            }
            if rng.below(4) == 0 {
                forged.truncate(8 + rng.below(forged.len() - 8));
            }
            let mut assembler = backend::Assembler::new(&blueprint, Vec::new()).unwrap();
            let put = |to: &mut [u8]| {
                to.copy_from_slice(&forged);
                Ok(())
            };
            assembler.chunk(codec, forged.len(), put).unwrap();
            let bytes = assembler.finish().unwrap();
            let found = device.decompress::<f32>(&bytes, &DecodeOptions::new());
            match (pumice::decompress::<f32>(&bytes), found) {
                (Ok(expected), Ok(found)) => {
                    // NaN that the format leaves open may differ.
                    let same = |a: &f32, b: &f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
                    assert!(expected.data.iter().zip(&found.data).all(|(a, b)| same(a, b)));
                }
                (Err(expected), Err(found)) => {
                    n_refused += 1;
                    assert_eq!(expected.kind(), found.kind(), "{expected} / {found}");
                }
                (expected, found) => panic!("CPU {:?}, device {:?}", expected.map(|_| ()), found.map(|_| ())),
            }
        }
        assert!(n_refused > n_cases / 2, "{n_refused} of {n_cases} were refused");
    }
}

/// Whatever a damaged stream gives on the CPU, it gives on the device.
#[test]
fn damage_is_found_or_makes_no_difference() {
    let shape = [9, 40, 64];
    let values: Vec<f32> = Field::Turbulence.generate(&shape, 5);
    let config = balanced(Bound::Rel(1e-3)).chunk_shape(&[5, 40, 64]);
    let bytes = pumice::compress(&values, &shape, &config).expect("it can be compressed");
    let device = device(1);
    for i in 0..40 {
        let mut damaged = bytes.clone();
        let at = bytes.len() * (2 * i + 1) / 80;
        damaged[at] ^= 1 << (i % 8);
        let on_device = device.decompress::<f32>(&damaged, &DecodeOptions::new());
        match pumice::decompress::<f32>(&damaged) {
            Ok(array) => assert_eq!(on_device.expect("the CPU takes it").data, array.data),
            Err(error) => assert_eq!(on_device.expect_err("the CPU refuses it").kind(), error.kind()),
        }
    }
}
