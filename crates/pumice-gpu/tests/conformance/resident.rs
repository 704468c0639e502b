//! Complete streams in device memory.

use std::fmt::Debug;

use pumice::backend::{CodecId, Frames};
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, Preset};
use pumice_gpu::{Decoder, Device, DeviceArray, DeviceElement, DeviceSlice, Encoder, Stream};
use pumice_testkit::Float;
use pumice_testkit::fields::Field;

use super::{device, expect_bytes, on_cuda};

const STREAM: Stream = Stream::DEFAULT;

/// A stream in device memory that starts `shift` bytes after an aligned address and ends at the end of its buffer.
struct Shifted {
    memory: DeviceArray<u8>,
    shift: usize,
    len: usize,
}

impl Shifted {
    fn new(device: &Device, bytes: &[u8], shift: usize) -> Self {
        let mut shifted = vec![0xEE; shift];
        shifted.extend_from_slice(bytes);
        Self { memory: device.upload(&shifted).unwrap(), shift, len: bytes.len() }
    }

    fn bytes(&self) -> DeviceSlice<'_, u8> {
        self.memory.as_slice().slice(self.shift..self.shift + self.len)
    }
}

/// Decodes a stream in device memory to `n_values` values.
fn decoded<T: DeviceElement>(device: &Device, bytes: &[u8], shift: usize, n_values: usize) -> pumice::Result<Vec<T>> {
    let stored = Shifted::new(device, bytes, shift);
    let mut restored = device.allocate::<T>(n_values)?;
    let frames = device.open_on_device(stored.bytes(), &DecodeOptions::new(), STREAM)?;
    device.decode(&frames, restored.as_mut_slice(), STREAM)?;
    restored.to_vec(STREAM)
}

/// Writes a stream in device memory and reads it there, and compares with the CPU.
fn check<T: DeviceElement + Float + Debug>(
    device: &Device,
    values: &[T],
    shape: &[usize],
    config: &Config,
    what: &str,
) {
    let expected = pumice::compress(values, shape, config).expect("the CPU can compress it");
    let array = device.upload(values).unwrap();
    let blueprint = device.blueprint(array.as_slice(), shape, config, STREAM).unwrap();
    let mut encoder = Encoder::new(device, &blueprint).unwrap();
    let most = pumice::max_compressed_bytes::<T>(shape, config).unwrap() as usize;
    // With more memory than needed, and with just enough.
    for room in [most, expected.len()] {
        encoder.encode(array.as_slice(), STREAM).unwrap();
        let mut out = device.allocate::<u8>(room).unwrap();
        let n = encoder.finish_on_device(array.as_slice(), out.as_mut_slice(), STREAM).unwrap();
        expect_bytes(&out.to_vec(STREAM).unwrap()[..n], &expected, what);
    }
    let mut small = device.allocate::<u8>(expected.len() - 1).unwrap();
    let error = encoder.finish_on_device(array.as_slice(), small.as_mut_slice(), STREAM).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}");
    assert!(error.to_string().contains(&expected.len().to_string()), "{what}: {error}");

    let restored = pumice::decompress::<T>(&expected).expect("the CPU can decompress it").data;
    for shift in 0..4 {
        let found = decoded::<T>(device, &expected, shift, values.len()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let bits = |values: &[T]| pumice_testkit::check::bits(values);
        assert!(bits(&found) == bits(&restored), "{what}, from byte {shift} on");
    }
}

fn all_shapes<T: DeviceElement + Float + Debug>(preset: Preset) {
    let scale = if on_cuda() { 16 } else { 1 };
    let shapes: [(Vec<usize>, Option<Vec<usize>>); 6] = [
        (vec![], None),
        (vec![3, 0, 5], None),
        (vec![777], None),
        (vec![scale * 9, 40, 33], None),
        // Contiguous chunks, and others.
        (vec![scale * 30_000], Some(vec![8192])),
        (vec![16, 40, scale * 80], Some(vec![16, 20, 40])),
    ];
    for (seed, (shape, chunk_shape)) in (0..).zip(shapes) {
        for field in [Field::Turbulence, Field::FillAndNan, Field::AnyBits] {
            let values: Vec<T> = field.generate(&shape, seed);
            let config = Config::new(ErrorBound::Rel(1e-3)).preset(preset);
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

/// Smooth chunks, and two chunks of noise that are stored raw.
fn with_raw_chunks(n: usize) -> (Vec<f32>, Config) {
    let mut values: Vec<f32> = Field::Smooth.generate(&[n], 2);
    let noise: Vec<f32> = Field::AnyBits.generate(&[n], 3);
    values[n / 4..3 * n / 4].copy_from_slice(&noise[n / 4..3 * n / 4]);
    (values, Config::new(ErrorBound::Abs(1e-6)).preset(Preset::Fast).chunk_shape(&[n / 4]))
}

#[test]
fn chunks_stored_raw() {
    let (values, config) = with_raw_chunks(40_000);
    let bytes = pumice::compress(&values, &[40_000], &config).unwrap();
    let frames = Frames::open(&bytes, &DecodeOptions::new()).unwrap();
    let n_raw = (0..4).filter(|id| frames.frame(*id).unwrap().codec == CodecId::Raw).count();
    assert_eq!(n_raw, 2);
    check(&device(1), &values, &[40_000], &config, "raw chunks");
    let noise: Vec<f64> = Field::AnyBits.generate(&[5000], 4);
    check(&device(2), &noise, &[5000], &Config::new(ErrorBound::Lossless).preset(Preset::Fast), "one raw chunk");
}

#[test]
fn streams_of_other_codecs() {
    let shape = [32, 20, 30];
    let values: Vec<f32> = Field::Turbulence.generate(&shape, 8);
    for preset in [Preset::Small, Preset::Ceresz2] {
        let config = Config::new(ErrorBound::Rel(1e-3)).preset(preset).chunk_shape(&[15, 20, 30]);
        let bytes = pumice::compress(&values, &shape, &config).unwrap();
        let found = decoded::<f32>(&device(0), &bytes, 0, values.len()).unwrap();
        assert_eq!(found, pumice::decompress::<f32>(&bytes).unwrap().data);
    }
}

#[test]
fn a_decoder_can_be_reused() {
    let device = device(3);
    let (values, config) = with_raw_chunks(33_000);
    let bytes = pumice::compress(&values, &[33_000], &config).unwrap();
    let stored = Shifted::new(&device, &bytes, 1);
    let frames = device.open_on_device(stored.bytes(), &DecodeOptions::new(), STREAM).unwrap();
    assert_eq!(frames.frames().info().shape, [33_000]);
    let mut restored = device.allocate::<f32>(33_000).unwrap();
    let decoder = Decoder::new(&device, &frames, restored.as_mut_slice(), STREAM).unwrap();
    for _ in 0..2 {
        decoder.decode(STREAM).unwrap();
        decoder.finish(STREAM).unwrap();
    }
    drop(decoder);
    let bits = |values: &[f32]| pumice_testkit::check::bits(values);
    assert!(bits(&restored.to_vec(STREAM).unwrap()) == bits(&pumice::decompress::<f32>(&bytes).unwrap().data));
}

#[test]
fn regions() {
    let device = device(4);
    let (values, config) = with_raw_chunks(40_000);
    let bytes = pumice::compress(&values, &[40_000], &config).unwrap();
    let stored = Shifted::new(&device, &bytes, 2);
    let frames = device.open_on_device(stored.bytes(), &DecodeOptions::new(), STREAM).unwrap();
    let whole = pumice::decompress::<f32>(&bytes).unwrap().data;
    let bits = |values: &[f32]| pumice_testkit::check::bits(values);
    for region in [3000..4000, 9000..21_000, 15_000..15_001, 25_000..39_000, 7..7] {
        let mut restored = device.allocate::<f32>(region.len()).unwrap();
        device.decode_region(&frames, std::slice::from_ref(&region), restored.as_mut_slice(), STREAM).unwrap();
        assert!(bits(&restored.to_vec(STREAM).unwrap()) == bits(&whole[region.clone()]), "{region:?}");
    }
}

/// A damaged stream gives the same error on the device as on the host.
#[test]
fn damage_gives_the_errors_of_the_host() {
    let device = device(1);
    let (mixed, fast) = with_raw_chunks(33_000);
    let field: Vec<f32> = Field::Turbulence.generate(&[12_000], 5);
    let balanced = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Balanced);
    let cases = [
        (&mixed, fast),
        (&field, balanced.clone().chunk_shape(&[8000])),
        (&field, balanced),
        (&field, Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast)),
    ];
    for (values, config) in cases {
        let bytes = pumice::compress(values, &[values.len()], &config).unwrap();
        let same = |damaged: &[u8], what: String| {
            let expected = device.decompress::<f32>(damaged, &DecodeOptions::new()).unwrap_err();
            let found = decoded::<f32>(&device, damaged, 3, values.len()).unwrap_err();
            assert_eq!((found.kind(), found.to_string()), (expected.kind(), expected.to_string()), "{what}");
        };
        // Every byte of the header and of the first frame's head, and of index and footer; some of the others.
        let n = bytes.len();
        for i in (0..90).chain((90..n - 60).step_by(n / 40)).chain(n - 60..n) {
            let mut damaged = bytes.clone();
            damaged[i] ^= 1 << (i % 8);
            same(&damaged, format!("byte {i} of {n}"));
        }
        for kept in [0, 3, 20, 60, 100, n / 2, n - 21, n - 1] {
            same(&bytes[..kept], format!("{kept} of {n} bytes"));
        }
    }
}

#[test]
fn mismatched_sizes_are_errors() {
    let device = device(1);
    let values: Vec<f32> = Field::Smooth.generate(&[3000], 2);
    let bytes = pumice::compress(&values, &[3000], &Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast)).unwrap();
    let stored = Shifted::new(&device, &bytes, 0);
    let limited = device.open_on_device(stored.bytes(), &DecodeOptions::new().max_bytes(11_999), STREAM);
    assert_eq!(limited.unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert_eq!(decoded::<f32>(&device, &bytes, 0, 2999).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(decoded::<f64>(&device, &bytes, 0, 3000).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
