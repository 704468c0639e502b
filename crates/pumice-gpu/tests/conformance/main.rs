//! What the device writes is what the CPU writes, byte for byte, and what it restores is what the CPU restores.
//!
//! Runs on the emulator, or with `PUMICE_DEVICE=cuda` on the first CUDA device, where arrays are larger.

mod balanced;
mod fast;
mod forged;
mod regions;
mod resident;

use std::fmt::Debug;

use pumice::{Bound, Config, DecodeOptions};
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
    if bits(&back.data) != bits(&restored.data) {
        let at =
            back.data.iter().zip(&restored.data).position(|(a, b)| Float::to_bits_u64(*a) != Float::to_bits_u64(*b));
        let at = at.expect("some value differs");
        panic!("{what}: value {at} is {:?} instead of {:?}", back.data[at], restored.data[at]);
    }
}

/// Every kind of field in these shapes under these bounds.
fn all_fields<T: Element + Float + Debug>(shapes: &[&[usize]], bounds: &[Bound], config: fn(Bound) -> Config) {
    for (seed, field) in (0..).zip(Field::ALL) {
        let device = device(seed);
        for (i, &shape) in shapes.iter().enumerate() {
            let values: Vec<T> = field.generate(shape, seed);
            for (j, bound) in bounds.iter().enumerate() {
                // The emulator is slow: each field meets each bound and each shape, but not in all combinations.
                if on_cuda() || (i + j + seed as usize).is_multiple_of(bounds.len()) {
                    check(&device, &values, shape, &config(*bound), &format!("{field:?} {shape:?} {bound:?}"));
                }
            }
        }
    }
}

#[test]
fn no_driver_is_said_clearly() {
    if on_cuda() {
        return;
    }
    let error = Device::cuda(0).unwrap_err();
    assert_eq!(error.kind(), pumice::ErrorKind::Device);
    assert!(error.to_string().contains("driver") || error.to_string().contains("CUDA"), "{error}");
}
