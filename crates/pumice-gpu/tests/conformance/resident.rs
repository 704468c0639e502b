//! Complete streams in device memory.

use std::fmt::Debug;

use pumice::backend::{Codec, Frames};
use pumice::{Bound, Config, DecodeOptions, ErrorKind, Fill, Preset};
use pumice_gpu::{Device, Element, Encoder, Stream};
use pumice_testkit::Float;
use pumice_testkit::fields::Field;

use super::{device, on_cuda};

const STREAM: Stream = Stream::DEFAULT;

/// Writes a stream in device memory, and compares with the CPU.
fn check<T: Element + Float + Debug>(device: &Device, values: &[T], shape: &[usize], config: &Config, what: &str) {
    let expected = pumice::compress(values, shape, config).expect("the CPU can compress it");
    let array = device.upload(values).unwrap();
    let blueprint = device.blueprint(array.as_slice(), shape, config, STREAM).unwrap();
    let mut encoder = Encoder::new(device, &blueprint).unwrap();
    let most = pumice::max_compressed_bytes::<T>(shape, config).unwrap() as usize;
    // With room to spare, and without.
    for room in [most, expected.len()] {
        encoder.encode(array.as_slice(), STREAM).unwrap();
        let mut out = device.allocate::<u8>(room).unwrap();
        let n = encoder.finish_on_device(array.as_slice(), out.as_mut_slice(), STREAM).unwrap();
        let bytes = &out.to_vec(STREAM).unwrap()[..n];
        if bytes != expected {
            let at = bytes.iter().zip(&expected).position(|(a, b)| a != b);
            panic!("{what}: {n} bytes instead of {}, the first other one at {at:?}", expected.len());
        }
    }
    let mut small = device.allocate::<u8>(expected.len() - 1).unwrap();
    let error = encoder.finish_on_device(array.as_slice(), small.as_mut_slice(), STREAM).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}");
    assert!(error.to_string().contains(&expected.len().to_string()), "{what}: {error}");
}

fn all_shapes<T: Element + Float + Debug>(preset: Preset) {
    let scale = if on_cuda() { 16 } else { 1 };
    let shapes: [(Vec<usize>, Option<Vec<usize>>); 6] = [
        (vec![], None),
        (vec![3, 0, 5], None),
        (vec![777], None),
        (vec![scale * 9, 40, 33], None),
        // Chunks that are one run of the array, and chunks that are not.
        (vec![scale * 30_000], Some(vec![8192])),
        (vec![16, 40, scale * 80], Some(vec![16, 20, 40])),
    ];
    for (seed, (shape, chunk_shape)) in (0..).zip(shapes) {
        for field in [Field::Turbulence, Field::FillAndNan, Field::AnyBits] {
            let values: Vec<T> = field.generate(&shape, seed);
            let config = Config::new(Bound::Rel(1e-3)).preset(preset).fill(Fill::Auto);
            let config = chunk_shape.iter().fold(config, |config, chunk_shape| config.chunk_shape(chunk_shape));
            check(&device(seed), &values, &shape, &config, &format!("{preset:?} {field:?} {shape:?} {chunk_shape:?}"));
        }
    }
}

#[test]
fn fast_f32() {
    all_shapes::<f32>(Preset::Fast);
}

#[test]
fn fast_f64() {
    all_shapes::<f64>(Preset::Fast);
}

#[test]
fn balanced_f32() {
    all_shapes::<f32>(Preset::Balanced);
}

#[test]
fn balanced_f64() {
    all_shapes::<f64>(Preset::Balanced);
}

/// Smooth chunks, and two of noise that are stored as they are.
fn with_raw_chunks(n: usize) -> (Vec<f32>, Config) {
    let mut values: Vec<f32> = Field::Smooth.generate(&[n], 2);
    let noise: Vec<f32> = Field::AnyBits.generate(&[n], 3);
    values[n / 4..3 * n / 4].copy_from_slice(&noise[n / 4..3 * n / 4]);
    (values, Config::new(Bound::Abs(1e-6)).preset(Preset::Fast).chunk_shape(&[n / 4]))
}

#[test]
fn chunks_stored_raw() {
    let (values, config) = with_raw_chunks(40_000);
    let bytes = pumice::compress(&values, &[40_000], &config).unwrap();
    let frames = Frames::open(&bytes, &DecodeOptions::new()).unwrap();
    let n_raw = (0..4).filter(|id| frames.frame(*id).unwrap().codec == Codec::Raw).count();
    assert_eq!(n_raw, 2);
    check(&device(1), &values, &[40_000], &config, "raw chunks");
    let noise: Vec<f64> = Field::AnyBits.generate(&[5000], 4);
    check(&device(2), &noise, &[5000], &Config::new(Bound::Lossless).preset(Preset::Fast), "one raw chunk");
}
