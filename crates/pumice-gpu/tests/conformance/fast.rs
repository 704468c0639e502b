//! Tests of codec `fast`.

use pumice::backend::{Assembler, CodecId, Frames};
use pumice::{Config, DecodeOptions, ErrorBound, Preset};
use pumice_gpu::{Decoder, DeviceElement, Stream};
use pumice_testkit::Float;
use pumice_testkit::fields::Field;

use super::forged::throw;
use super::{all_fields, check, device, on_cuda};

fn fast(bound: ErrorBound) -> Config {
    Config::new(bound).preset(Preset::Fast)
}

fn bounds() -> [ErrorBound; 4] {
    [ErrorBound::Rel(1e-2), ErrorBound::Rel(1e-4), ErrorBound::Abs(1e-7), ErrorBound::Lossless]
}

/// Shapes with full tiles of all kinds, and clipped ones.
fn shapes() -> &'static [&'static [usize]] {
    if on_cuda() {
        &[&[300_000], &[701, 433], &[512, 512], &[33, 100, 130], &[64, 64, 64], &[3, 5, 40, 170], &[9, 31, 3]]
    } else {
        &[&[8192 + 700], &[70, 131], &[17, 33, 65], &[3, 9, 20, 41], &[130, 64], &[16, 32, 36]]
    }
}

#[test]
fn all_fields_f32() {
    all_fields::<f32>(shapes(), &bounds(), fast);
}

#[test]
fn all_fields_f64() {
    all_fields::<f64>(shapes(), &bounds(), fast);
}

#[test]
fn all_sizes() {
    for n in [0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 4095, 4096, 4097, 8191, 8192, 8193] {
        let values: Vec<f32> = Field::Turbulence.generate(&[n], 3);
        check(&device(n as u64), &values, &[n], &fast(ErrorBound::Abs(1e-3)), &format!("{n} values"));
        let values: Vec<f64> = Field::Walk.generate(&[n], 4);
        check(&device(n as u64), &values, &[n], &fast(ErrorBound::Rel(1e-3)), &format!("{n} values"));
    }
    check(&device(0), &[3.5_f32], &[], &fast(ErrorBound::Abs(1e-3)), "a scalar");
    check::<f32>(&device(0), &[], &[3, 0, 5], &fast(ErrorBound::Abs(1e-3)), "an empty array");
}

#[test]
fn clipped_tiles() {
    for (seed, shape) in (0..).zip([
        vec![1, 1, 1],
        vec![8, 16, 32],
        vec![9, 17, 33],
        vec![7, 15, 31],
        vec![2, 300, 5],
        vec![40, 3, 40],
        vec![5, 4, 3, 2, 70],
        vec![130, 33],
        vec![3, 700],
        vec![500, 3],
        vec![129, 32],
        vec![16, 256],
        vec![64, 2, 32],
    ]) {
        for field in [Field::Smooth, Field::FillAndNan] {
            let values: Vec<f32> = field.generate(&shape, seed);
            check(&device(seed), &values, &shape, &fast(ErrorBound::Rel(1e-3)), &format!("{field:?} {shape:?}"));
        }
        let values: Vec<f64> = Field::Turbulence.generate(&shape, seed);
        check(&device(seed), &values, &shape, &fast(ErrorBound::Rel(1e-5)), &format!("{shape:?} f64"));
    }
}

#[test]
fn every_predictor_is_chosen_and_equal() {
    // A plane that falls along both axes, rows that repeat, columns that repeat, steps in runs of three.
    let device = device(5);
    let noise = |i: usize| ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50) as f32;
    type Rule<'a> = &'a dyn Fn(usize) -> f32;
    let cases: [(&[usize], Rule<'_>); 18] = [
        (&[20_000], &|i| 1000.0 * (i % 1000) as f32),
        (&[20_000], &|i| noise(i) - 8192.0),
        (&[80, 300], &|i| noise(i % 300)),
        (&[80, 300], &|i| noise(i % 300) + noise(i / 300)),
        (&[5000, 3], &|i| 10_000.0 * (i % 3) as f32 + noise(i / 3) / 64.0),
        (&[12_000], &|i| 10_000.0 * (i % 2) as f32 + noise(i / 2) / 64.0),
        (&[16, 40, 60], &|i| noise(i / 60) + noise(i % 60 + i / 2400 * 60) + noise(i % 2400)),
        // Planes that repeat, so that tiles have few and long rows.
        (&[16, 64, 64], &|i| noise(i % 4096)),
        (&[32, 64, 64], &|i| noise(i % 4096) + noise(i / 4096)),
        (&[64, 32, 32], &|i| noise(i % 1024) + noise(i / 1024)),
        (&[8, 64, 64], &|i| noise(i % 4096)),
        // The same with rows that are not aligned to 16 bytes.
        (&[80, 301], &|i| noise(i % 301) + noise(i / 301)),
        (&[17, 41, 61], &|i| noise(i / 61) + noise(i % 61 + i / 2501 * 61) + noise(i % 2501)),
        (&[16, 63, 65], &|i| noise(i % 4095)),
        (&[33, 63, 67], &|i| noise(i % 4221) + noise(i / 4221)),
        (&[65, 33, 31], &|i| noise(i % 1023) + noise(i / 1023)),
        (&[64, 301], &|i| noise(i % 301) + noise(i / 301)),
        (&[32, 301], &|i| noise(i % 301) + noise(i / 301)),
    ];
    for (shape, rule) in cases {
        let values: Vec<f32> = (0..shape.iter().product()).map(rule).collect();
        check(&device, &values, shape, &fast(ErrorBound::Abs(0.5)), &format!("{shape:?}"));
        // Integers of f64 with at most 32 bits, and with more.
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        for bound in [0.5, 1e-3, 1e-7] {
            check(&device, &values, shape, &fast(ErrorBound::Abs(bound)), &format!("{shape:?}, f64, {bound}"));
        }
    }
}

#[test]
fn integers_at_the_end_of_their_range() {
    // For f64 up to 2^51, with sums of 32 bits if the base is not too close to that.
    let device = device(6);
    for base in [2_251_799_813_685_000_f64, 2_249_652_330_200_064.0, -2_249_652_330_200_064.0, -2_251_799_813_685_000.0]
    {
        for shape in [&[20_000][..], &[70, 300], &[17, 33, 64]] {
            let values: Vec<f64> = (0..shape.iter().product()).map(|i: usize| base + (i * i % 97) as f64).collect();
            check(&device, &values, shape, &fast(ErrorBound::Abs(0.5)), &format!("{base}, {shape:?}"));
        }
    }
}

/// Few tiles whose integers have more than 32 bits among many others.
#[test]
fn some_integers_of_more_bits() {
    let device = device(7);
    let shape = [24, 40, 70];
    let smooth: Vec<f64> = Field::Smooth.generate(&shape, 3);
    let noise: Vec<f64> = Field::Noise.generate(&shape, 4);
    let config = fast(ErrorBound::Abs(1e-6)).chunk_shape(&[8, 40, 70]);
    for from in [0, 40_000, 66_000] {
        let mut values = smooth.clone();
        for (value, noise) in values[from..].iter_mut().zip(&noise).take(1000) {
            *value += 1e3 * noise;
        }
        check(&device, &values, &shape, &config, &format!("noise from {from} on"));
        // A decoder that has switched to the other kernel decodes again.
        let bytes = pumice::compress(&values, &shape, &config).unwrap();
        let frames = Frames::open(&bytes, &DecodeOptions::new()).unwrap();
        let mut restored = device.allocate::<f64>(values.len()).unwrap();
        let decoder = Decoder::new(&device, &frames, restored.as_mut_slice(), Stream::DEFAULT).unwrap();
        for _ in 0..2 {
            decoder.decode(Stream::DEFAULT).unwrap();
            assert_eq!(decoder.finish(Stream::DEFAULT).unwrap(), 0);
        }
        drop(decoder);
        assert_eq!(restored.to_vec(Stream::DEFAULT).unwrap(), pumice::decompress::<f64>(&bytes).unwrap().data);
    }
}

#[test]
fn chunks_of_any_shape() {
    for (shape, chunk) in [
        (vec![40, 50, 60], vec![40, 50, 60]),
        (vec![40, 50, 60], vec![20, 40, 60]),
        (vec![40, 50, 60], vec![16, 32, 40]),
        (vec![200, 210], vec![100, 100]),
        (vec![70_000], vec![16_384]),
        (vec![30_000], vec![9_001]),
    ] {
        for field in [Field::Turbulence, Field::TwoFills, Field::AnyBits] {
            let values: Vec<f32> = field.generate(&shape, 11);
            let config = fast(ErrorBound::Rel(1e-3)).chunk_shape(&chunk);
            check(&device(2), &values, &shape, &config, &format!("{field:?} {shape:?} in {chunk:?}"));
        }
    }
}

#[test]
fn ranges_and_fill_values_found_on_the_device_are_the_same() {
    let device = device(9);
    let mut values: Vec<f32> = Field::Smooth.generate(&[5000], 1);
    for special in [1e36, -9999.0, f32::NAN, f32::INFINITY, -0.0, 0.0] {
        values[100..200].fill(special);
        for bound in [ErrorBound::Rel(1e-3), ErrorBound::Rel(1e-5)] {
            check(&device, &values, &[5000], &fast(bound), &format!("{special} {bound:?}"));
            let config = fast(bound).fills(&[f64::from(special)]);
            check(&device, &values, &[5000], &config, &format!("{special} named, {bound:?}"));
        }
    }
    let zeros = [0.0_f32, -0.0, -0.0, 0.0];
    check(&device, &zeros, &[4], &fast(ErrorBound::Rel(1e-3)), "zeros of both signs");
}

#[test]
fn unsupported_configurations_are_errors() {
    let device = device(0);
    let values = [1.0_f32; 100];
    for config in [
        Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Small),
        fast(ErrorBound::PwRel(1e-3)),
        fast(ErrorBound::Psnr(60.0)),
        fast(ErrorBound::Abs(1e-3)).bin(&[4]),
    ] {
        let error = device.compress(&values, &[100], &config).unwrap_err();
        assert_eq!(error.kind(), pumice::ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("CPU"), "{error}");
    }
    assert!(device.compress(&values, &[99], &fast(ErrorBound::Abs(1e-3))).is_err());
}

#[test]
fn streams_of_other_codecs_are_decoded() {
    let device = device(0);
    let shape = [30, 40, 50];
    let values: Vec<f32> = Field::Turbulence.generate(&shape, 8);
    for preset in [Preset::Small, Preset::Balanced, Preset::Ceresz2] {
        let bytes = pumice::compress(&values, &shape, &Config::new(ErrorBound::Rel(1e-3)).preset(preset)).unwrap();
        let back = device.decompress::<f32>(&bytes, &DecodeOptions::new()).unwrap();
        assert_eq!(back.data, pumice::decompress::<f32>(&bytes).unwrap().data);
    }
    assert!(
        device
            .decompress::<f64>(
                &pumice::compress(&values, &shape, &fast(ErrorBound::Abs(0.1))).unwrap(),
                &DecodeOptions::new()
            )
            .is_err()
    );
}

fn hostile_payloads<T: DeviceElement + Float>(bound: ErrorBound) {
    let shape = [10, 17, 33];
    let values: Vec<T> = Field::FillAndNan.generate(&shape, 6);
    // Most bits of a payload are those of values; a change of these gives a valid stream.
    let n_cases = if on_cuda() { 2000 } else { 80 };
    let n_refused = throw(&device(1), &values, &shape, &fast(bound), n_cases, 64);
    assert!(n_refused > n_cases / 10, "{bound:?}: {n_refused} of {n_cases} were refused");
}

#[test]
fn hostile_payloads_give_the_cpus_values_or_its_error() {
    hostile_payloads::<f32>(ErrorBound::Rel(1e-3));
    // Integers of 32 bits, and of 64.
    hostile_payloads::<f64>(ErrorBound::Rel(1e-3));
    hostile_payloads::<f64>(ErrorBound::Rel(1e-9));
}

/// Kernels rely on a complete directory.
#[test]
fn payloads_shorter_than_their_directory_are_refused() {
    let device = device(2);
    let n = 100_000;
    let config = fast(ErrorBound::Abs(1e-3));
    let values = device.upload(&vec![1.0_f32; n]).unwrap();
    let blueprint = device.blueprint(values.as_slice(), &[n], &config, Stream::DEFAULT).unwrap();
    let mut assembler = Assembler::new(&blueprint, Vec::new()).unwrap();
    let put = |payload: &mut [u8]| {
        // Tiles of 8 values, more than the payload has bytes.
        payload[..8].copy_from_slice(&[1, 1, 0, 0, 3, 0, 0, 0]);
        Ok(())
    };
    assembler.chunk(CodecId::Fast, 200, put).unwrap();
    let bytes = assembler.finish().unwrap();
    let error = device.decompress::<f32>(&bytes, &DecodeOptions::new()).unwrap_err();
    assert_eq!(error.kind(), pumice::decompress::<f32>(&bytes).unwrap_err().kind(), "{error}");
    assert!(error.to_string().contains("directory"), "{error}");
}

/// More than 2^32 bytes; only on a device with enough memory.
#[test]
fn more_than_four_gibibytes() {
    if !on_cuda() {
        eprintln!("skipped: needs a device (PUMICE_DEVICE=cuda)");
        return;
    }
    let shape = [1100, 1024, 1024];
    let plane: Vec<f32> = Field::Turbulence.generate(&[1024, 1024], 2);
    let values: Vec<f32> = (0..shape[0]).flat_map(|z| plane.iter().map(move |x| x * (1.0 + z as f32 * 1e-4))).collect();
    for config in [fast(ErrorBound::Rel(1e-3)), fast(ErrorBound::Rel(1e-3)).chunk_shape(&[300, 1024, 1024])] {
        check(&device(0), &values, &shape, &config, "4.3 GB");
    }
}
