//! Conformance tests: the device must write the same bytes and restore the same values as the CPU.
//!
//! Runs on the emulator, or with `PUMICE_DEVICE=cuda` on the first CUDA device, where arrays are larger.

mod balanced;
mod fast;
mod forged;
mod regions;
mod resident;

use std::fmt::Debug;

use pumice::backend::{CodecId, Frames};
use pumice::{Config, DecodeOptions, ErrorBound};
use pumice_gpu::{Device, DeviceElement, Encoder, Stream};
use pumice_testkit::Float;
use pumice_testkit::fields::Field;

/// Whether the suite runs on a real device.
fn on_cuda() -> bool {
    std::env::var("PUMICE_DEVICE").is_ok_and(|name| name == "cuda")
}

fn device(seed: u64) -> Device {
    if on_cuda() { Device::cuda(0).expect("there is a CUDA device") } else { Device::emulated(seed) }
}

fn expect_bytes(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{what}: {} bytes instead of {}, the first other one at {at:?}", found.len(), expected.len());
    }
}

/// Compresses and decompresses on the device, and compares with the CPU. Returns the number of chunks that the host
/// decoded.
fn check<T: DeviceElement + Float + Debug>(
    device: &Device,
    values: &[T],
    shape: &[usize],
    config: &Config,
    what: &str,
) -> usize {
    let expected = pumice::compress(values, shape, config).expect("the CPU can compress it");
    let bytes = device.compress(values, shape, config).unwrap_or_else(|e| panic!("{what}: {e}"));
    expect_bytes(&bytes, &expected, what);
    let frames = Frames::open(&expected, &DecodeOptions::new()).expect("the CPU can open it");
    let mut on_device = device.allocate::<T>(values.len()).expect("there is memory");
    let n_on_host = device.decode(&frames, on_device.as_mut_slice(), Stream::DEFAULT);
    let n_on_host = n_on_host.unwrap_or_else(|e| panic!("{what}: {e}"));
    // If the device wrongly reported damage, the host would decode the chunk, and the values would be equal.
    let is_fast = |id: &usize| frames.frame(*id).expect("the stream is whole").codec == CodecId::Fast;
    let n_fast = (0..frames.n_chunks()).filter(is_fast).count();
    assert!(n_on_host <= frames.n_chunks() - n_fast, "{what}: the device decodes too few chunks");
    let back = on_device.to_vec(Stream::DEFAULT).expect("it can be copied");
    let restored = pumice::decompress::<T>(&expected).expect("the CPU can decompress it").data;
    let bits = |values: &[T]| pumice_testkit::check::bits(values);
    if bits(&back) != bits(&restored) {
        let at = back.iter().zip(&restored).position(|(a, b)| Float::to_bits_u64(*a) != Float::to_bits_u64(*b));
        let at = at.expect("some value differs");
        panic!("{what}: value {at} is {:?} instead of {:?}", back[at], restored[at]);
    }
    n_on_host
}

/// The same, and checks that no chunk is left to the host, in encoding and in decoding.
fn check_all_on_device<T: DeviceElement + Float + Debug>(
    device: &Device,
    values: &[T],
    shape: &[usize],
    config: &Config,
    what: &str,
) {
    assert_eq!(check(device, values, shape, config, what), 0, "{what}: chunks are decoded on the host");
    let on_device = device.upload(values).expect("there is memory");
    let blueprint = device.blueprint(on_device.as_slice(), shape, config, Stream::DEFAULT).expect("it can be coded");
    let mut encoder = Encoder::new(device, &blueprint).expect("there is memory");
    encoder.encode(on_device.as_slice(), Stream::DEFAULT).expect("it can be coded");
    let n_left = encoder.n_left_to_host(Stream::DEFAULT).expect("it can be coded");
    assert_eq!(n_left, 0, "{what}: chunks are encoded on the host");
}

/// Every kind of field in these shapes under these bounds.
fn all_fields<T: DeviceElement + Float + Debug>(
    shapes: &[&[usize]],
    bounds: &[ErrorBound],
    config: fn(ErrorBound) -> Config,
) {
    for (seed, field) in (0..).zip(Field::ALL) {
        let device = device(seed);
        for (i, &shape) in shapes.iter().enumerate() {
            let values: Vec<T> = field.generate(shape, seed);
            for (j, bound) in bounds.iter().enumerate() {
                // The emulator is slow: each field is tested with each bound and each shape, but not in all
                // combinations.
                if on_cuda() || (i + j + seed as usize).is_multiple_of(bounds.len()) {
                    check(&device, &values, shape, &config(*bound), &format!("{field:?} {shape:?} {bound:?}"));
                }
            }
        }
    }
}

#[test]
fn a_missing_driver_is_reported() {
    if on_cuda() {
        return;
    }
    let error = Device::cuda(0).unwrap_err();
    assert_eq!(error.kind(), pumice::ErrorKind::Device);
    assert!(error.to_string().contains("driver") || error.to_string().contains("CUDA"), "{error}");
}
