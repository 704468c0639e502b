//! Regions: the device restores the same values as the CPU, from the tiles that overlap the region.

use std::fmt::Debug;
use std::ops::Range;

use pumice::backend::{self, Assembler, Blueprint, Frames};
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, Preset, Reader};
use pumice_gpu::{Device, DeviceElement};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, Rng};

use crate::device;
use crate::forged::OnHost;

fn check<T: DeviceElement + Float + Debug>(device: &Device, bytes: &[u8], region: &[Range<usize>]) {
    let options = DecodeOptions::new();
    let expected = Reader::new(bytes, options.clone()).and_then(|reader| reader.read_region::<T>(region));
    let expected = expected.expect("the CPU can read it");
    let read = device.decompress_region::<T>(bytes, region, &options).unwrap_or_else(|e| panic!("{region:?}: {e}"));
    assert_eq!(read.shape, expected.shape);
    let bits = |values: &[T]| pumice_testkit::check::bits(values);
    assert_eq!(bits(&read.data), bits(&expected.data), "{region:?}");
}

/// Boxes of an array, some of which are empty.
fn boxes(shape: &[usize], seed: u64) -> impl Iterator<Item = Vec<Range<usize>>> {
    let mut rng = Rng::new(seed);
    (0..8).map(move |_| {
        let mut range = |n: &usize| {
            let (a, b) = (rng.below(n + 1), rng.below(n + 1));
            a.min(b)..a.max(b)
        };
        shape.iter().map(&mut range).collect()
    })
}

fn all_regions<T: DeviceElement + Float + Debug>(preset: Preset, field: Field) {
    let device = device(7);
    for (shape, chunk) in
        [(&[30_000][..], &[9000][..]), (&[20, 33, 70], &[9, 33, 70]), (&[3, 20, 33, 40], &[2, 9, 20, 40])]
    {
        let values: Vec<T> = field.generate(shape, 5);
        let config = Config::new(ErrorBound::Rel(1e-3)).preset(preset).chunk_shape(chunk);
        let bytes = pumice::compress(&values, shape, &config).unwrap();
        for region in boxes(shape, shape.len() as u64) {
            check::<T>(&device, &bytes, &region);
        }
        let whole: Vec<_> = shape.iter().map(|n| 0..*n).collect();
        check::<T>(&device, &bytes, &whole);
        let points: Vec<_> = shape.iter().map(|n| n - 1..*n).collect();
        check::<T>(&device, &bytes, &points);
    }
}

#[test]
fn of_fast() {
    all_regions::<f32>(Preset::Fast, Field::Smooth);
    all_regions::<f64>(Preset::Fast, Field::Smooth);
}

#[test]
fn of_fast_with_special_values() {
    all_regions::<f32>(Preset::Fast, Field::FillAndNan);
}

#[test]
fn of_balanced_and_of_chunks_left_to_the_host() {
    all_regions::<f32>(Preset::Balanced, Field::Smooth);
    all_regions::<f32>(Preset::Small, Field::Smooth);
}

#[test]
fn only_tiles_of_the_region_are_decoded() {
    let shape = [64, 64, 64];
    let values: Vec<f32> = Field::Smooth.generate(&shape, 3);
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast);
    let bytes = pumice::compress(&values, &shape, &config).unwrap();
    let frames = Frames::open(&bytes, &DecodeOptions::new()).unwrap();
    let mut payload = frames.payload(0).unwrap().to_vec();
    let codec = frames.frame(0).unwrap().codec;
    // Damages the last body: kind 3 does not exist. The directory gives its size.
    let n_tiles = 64 * 64 * 64 / 4096;
    let last_size = 8 + 4 * (n_tiles / 32) + 2 * (n_tiles - 1);
    let n_words = usize::from(u16::from_le_bytes([payload[last_size], payload[last_size + 1]]));
    let last_body = payload.len() - 4 * n_words;
    payload[last_body] |= 3;
    let stats = backend::scan(&OnHost(&values), &config).unwrap();
    let blueprint = Blueprint::new(&config, &shape, &stats).unwrap();
    let mut assembler = Assembler::new(&blueprint, Vec::new()).unwrap();
    let fill = |to: &mut [u8]| {
        to.copy_from_slice(&payload);
        Ok(())
    };
    assembler.chunk(codec, payload.len(), fill).unwrap();
    let damaged = assembler.finish().unwrap();

    let device = device(1);
    let error = device.decompress::<f32>(&damaged, &DecodeOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    check::<f32>(&device, &damaged, &[0..20, 3..50, 0..64]);
    let last = [60..64, 60..64, 60..64];
    assert!(device.decompress_region::<f32>(&damaged, &last, &DecodeOptions::new()).is_err());
}

#[test]
fn regions_outside_and_limits_are_errors() {
    let shape = [40, 50];
    let values: Vec<f32> = Field::Smooth.generate(&shape, 3);
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast);
    let bytes = pumice::compress(&values, &shape, &config).unwrap();
    let device = device(2);
    let read = |region: &[Range<usize>], options: &DecodeOptions| {
        device.decompress_region::<f32>(&bytes, region, options).map_err(|e| e.kind())
    };
    let options = DecodeOptions::new();
    assert_eq!(read(&[0..41, 0..50], &options).unwrap_err(), ErrorKind::InvalidArgument);
    assert_eq!(read(&[0..40, 0..50, 0..1], &options).unwrap_err(), ErrorKind::InvalidArgument);
    assert_eq!(read(&[3..3, 0..50], &options).unwrap().data, [0.0; 0]);
    assert_eq!(read(&[0..1, 0..1], &options.max_bytes(100)).unwrap_err(), ErrorKind::LimitExceeded);
}
