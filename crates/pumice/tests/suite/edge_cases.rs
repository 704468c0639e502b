//! The edge cases, one by one.

use pumice::{Config, Element, ErrorBound, ErrorKind, Preset};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, check};

/// A round trip with every preset, checked by the independent check; returns stream and values of `small`.
fn round_trip<T: Element + Float>(values: &[T], shape: &[usize], config: &Config) -> (Vec<u8>, Vec<T>) {
    let with = |preset: &Preset| round_trip_with(values, shape, &config.clone().preset(*preset));
    Preset::ALL.iter().filter(|preset| **preset != Preset::Small).for_each(|preset| drop(with(preset)));
    with(&Preset::Small)
}

fn round_trip_with<T: Element + Float>(values: &[T], shape: &[usize], config: &Config) -> (Vec<u8>, Vec<T>) {
    let bytes = pumice::compress(values, shape, config).unwrap();
    let restored = pumice::decompress::<T>(&bytes).unwrap();
    assert_eq!(restored.shape, shape);
    let info = pumice::inspect(&bytes).unwrap();
    match config.bound() {
        ErrorBound::Abs(e) => assert_eq!(info.abs_bound, e),
        _ => assert!(info.abs_bound >= 0.0),
    }
    check::verify(values, &restored.data, info.abs_bound, &info.fills).unwrap_or_else(|e| panic!("{config:?}: {e}"));
    assert!(bytes.len() <= check::max_stream_bytes(size_of_val(values)), "{config:?}: {} bytes", bytes.len());
    (bytes, restored.data)
}

/// A field of both types under every kind of bound.
fn every_way(field: Field, shape: &[usize]) {
    for bound in [ErrorBound::Abs(1e-3), ErrorBound::Rel(1e-3), ErrorBound::Lossless] {
        round_trip(&field.generate::<f32>(shape, 1), shape, &Config::new(bound));
        round_trip(&field.generate::<f64>(shape, 1), shape, &Config::new(bound));
    }
}

fn abs(e: f64) -> Config {
    Config::new(ErrorBound::Abs(e))
}

#[test]
fn empty_array() {
    every_way(Field::Zero, &[0]);
}

#[test]
fn extents_of_zero() {
    for shape in [&[4, 0, 3][..], &[0, 0], &[5, 0], &[0, 7], &[0, 1 << 40], &[1 << 40, 1 << 40, 0]] {
        every_way(Field::Zero, shape);
    }
}

#[test]
fn one_element() {
    for field in [Field::Constant, Field::Zero, Field::AllNan, Field::AnyBits, Field::Subnormal] {
        every_way(field, &[1]);
        every_way(field, &[1, 1, 1]);
    }
}

#[test]
fn rank_0() {
    every_way(Field::Constant, &[]);
}

#[test]
fn ranks_1_to_8() {
    let extents = [5, 1, 3, 2, 2, 3, 1, 5];
    (0..8).for_each(|first| every_way(Field::Smooth, &extents[first..]));
    every_way(Field::Turbulence, &[2, 3, 2, 2, 3, 2, 4, 9]);
}

#[test]
fn rank_9_is_refused() {
    let error = pumice::compress(&[1_f32], &[1; 9], &abs(1e-3)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn shape_that_does_not_match_is_refused() {
    for shape in [&[3][..], &[2, 3], &[0], &[]] {
        let error = pumice::compress(&[1_f32; 4], shape, &abs(1e-3)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{shape:?}");
    }
}

#[test]
fn bounds_that_make_no_sense_are_refused() {
    for e in [-1.0, f64::NAN, f64::INFINITY] {
        for bound in [ErrorBound::Abs(e), ErrorBound::Rel(e)] {
            let error = pumice::compress(&[1_f32; 4], &[4], &Config::new(bound)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bound:?}");
        }
    }
}

#[test]
fn shape_1x1xn() {
    for n in [1, 7, 8, 63, 64, 65, 4095, 4096, 4097] {
        every_way(Field::Smooth, &[1, 1, n]);
    }
}

#[test]
fn shape_7x13x5() {
    every_way(Field::Turbulence, &[7, 13, 5]);
}

#[test]
fn shape_3x3x3() {
    every_way(Field::Smooth, &[3, 3, 3]);
}

#[test]
fn constant() {
    every_way(Field::Constant, &[30, 70]);
    let (bytes, _) = round_trip(&vec![273.15_f32; 100_000], &[100_000], &abs(1e-3));
    assert!(bytes.len() < 400, "{} bytes", bytes.len());
}

#[test]
fn all_zero() {
    every_way(Field::Zero, &[30, 70]);
    let (bytes, _) = round_trip(&vec![0_f32; 100_000], &[100_000], &abs(1e-3));
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
}

#[test]
fn all_nan() {
    every_way(Field::AllNan, &[30, 70]);
}

#[test]
fn all_infinite() {
    for value in [f64::INFINITY, f64::NEG_INFINITY] {
        round_trip(&[value as f32; 500], &[500], &abs(1e-3));
        round_trip(&[value; 500], &[500], &Config::new(ErrorBound::Rel(1e-3)));
    }
}

#[test]
fn some_nan_and_infinities() {
    every_way(Field::Specials, &[20, 30, 17]);
}

#[test]
fn denormals_with_abs_1e_42() {
    let values = Field::Subnormal.generate::<f32>(&[5000], 1);
    round_trip(&values, &[5000], &abs(1e-42));
    round_trip(&Field::Subnormal.generate::<f64>(&[5000], 1), &[5000], &abs(1e-310));
}

#[test]
fn denormals_with_the_least_bounds() {
    for e in [f64::from(f32::from_bits(1)), f64::from(f32::from_bits(3)), 1e-38, 1.2e-38, f64::from_bits(1)] {
        round_trip(&Field::Subnormal.generate::<f32>(&[900], 1), &[900], &abs(e));
        round_trip(&Field::Subnormal.generate::<f64>(&[900], 1), &[900], &abs(e));
    }
}

#[test]
fn values_near_1e38() {
    let values: Vec<f32> = Field::Turbulence.generate::<f32>(&[5000], 1).iter().map(|v| v * 1e38).collect();
    for config in [abs(1e30), abs(1e38), abs(1e300), abs(1e-3), Config::new(ErrorBound::Rel(1e-3))] {
        round_trip(&values, &[5000], &config);
    }
    let ends = [f32::MAX, f32::MIN, f32::MAX, 0.0, f32::MIN, -0.0, 1e38, -3e38];
    for config in [abs(1e30), abs(1e38), abs(3.4e38), abs(1e39), Config::new(ErrorBound::Rel(0.5))] {
        round_trip(&ends, &[8], &config);
    }
}

#[test]
fn abs_0_means_lossless() {
    for field in [Field::Specials, Field::Turbulence, Field::AnyBits, Field::Subnormal] {
        let values = field.generate::<f32>(&[3000], 1);
        let (bytes, restored) = round_trip(&values, &[3000], &abs(0.0));
        assert_eq!(check::bits(&restored), check::bits(&values));
        assert_eq!(pumice::inspect(&bytes).unwrap().bound, ErrorBound::Lossless);
    }
}

#[test]
fn negative_zero_under_lossless() {
    let values: Vec<f64> = (0..500).map(|i| if i % 3 == 0 { -0.0 } else { 0.0 }).collect();
    let (_, restored) = round_trip(&values, &[500], &Config::new(ErrorBound::Lossless));
    assert_eq!(check::bits(&restored), check::bits(&values));
    let (_, restored) = round_trip(&[-0.0_f32; 64], &[64], &Config::new(ErrorBound::Lossless));
    assert_eq!(check::bits(&restored), check::bits(&[-0.0_f32; 64]));
}

#[test]
fn abs_1e_12_on_f32() {
    for field in [Field::Smooth, Field::Noise, Field::OffsetRamp] {
        let values = field.generate::<f32>(&[40, 120], 1);
        round_trip(&values, &[40, 120], &abs(1e-12));
    }
}

#[test]
fn offset_1e7_with_small_bound() {
    for e in [1e-6, 0.1, 0.5, 1.0] {
        round_trip(&Field::OffsetRamp.generate::<f32>(&[5000], 1), &[5000], &abs(e));
        round_trip(&Field::OffsetRamp.generate::<f64>(&[5000], 1), &[5000], &abs(e));
    }
}

#[test]
fn spikes_of_1e30() {
    every_way(Field::Spikes, &[60, 100]);
    // They must not spoil the rest: a few exact values among thousands of cheap ones.
    let values = Field::Spikes.generate::<f32>(&[60, 100], 1);
    let (bytes, _) = round_trip(&values, &[60, 100], &abs(1e-2));
    assert!(bytes.len() * 4 < size_of_val(&values[..]), "{} bytes", bytes.len());
}

#[test]
fn mixed_magnitudes() {
    every_way(Field::MixedMagnitudes, &[5000]);
    for e in [1e-15, 1.0, 1e15] {
        round_trip(&Field::MixedMagnitudes.generate::<f32>(&[5000], 1), &[5000], &abs(e));
    }
}

/// Codes beyond the largest magnitude that contexts tell apart.
#[test]
fn codes_beyond_2_to_the_19() {
    let shape = [20, 30, 17];
    round_trip(&Field::Smooth.generate::<f64>(&shape, 0), &shape, &Config::new(ErrorBound::Rel(1e-8)));
    round_trip(&Field::MixedMagnitudes.generate::<f32>(&[4681], 2_834_659_378_832_208_761), &[4681], &abs(170.0));
}

#[test]
fn quotients_beyond_64_bits() {
    let values = Field::MixedMagnitudes.generate::<f64>(&[2, 450, 2], 1_654_476_314_106_218_084);
    round_trip(&values, &[2, 450, 2], &abs(1e-30));
}

#[test]
fn a_bound_beyond_the_type_on_fill_values_alone() {
    let fill = f64::from(273.15_f32);
    round_trip(&[273.15_f32; 4], &[4], &abs(1e300).fills(&[fill]));
}

#[test]
fn f64_at_1e300() {
    let values: Vec<f64> = Field::Turbulence.generate::<f64>(&[5000], 1).iter().map(|v| v * 1e300).collect();
    for config in [abs(1e290), abs(1e297), abs(1e-3), Config::new(ErrorBound::Rel(1e-4))] {
        round_trip(&values, &[5000], &config);
    }
    let ends = [f64::MAX, f64::MIN, 1e300, -1e300, 0.0];
    for config in [abs(1e300), abs(f64::MAX), Config::new(ErrorBound::Rel(1e-3)), Config::new(ErrorBound::Rel(1.0))] {
        round_trip(&ends, &[5], &config);
    }
}

#[test]
fn automatic_fills_are_exact() {
    every_way(Field::Patches, &[60, 90]);
    every_way(Field::TwoFills, &[60, 90]);
    // A fill value that the quantiser could reach.
    let mut values = Field::Smooth.generate::<f32>(&[60, 90], 1);
    values.iter_mut().step_by(7).for_each(|v| *v = -9999.7);
    let (bytes, _) = round_trip(&values, &[60, 90], &Config::new(ErrorBound::Rel(1e-2)));
    assert_eq!(pumice::inspect(&bytes).unwrap().fills, [f64::from(-9999.7_f32)]);
}

#[test]
fn named_fill_within_the_range_is_exact() {
    for fill in [0.123_456_7, 0.0, -0.0] {
        let mut values = Field::Smooth.generate::<f64>(&[60, 90], 1);
        values.iter_mut().step_by(7).for_each(|v| *v = fill);
        let (_, restored) = round_trip(&values, &[60, 90], &abs(1e-2).fills(&[fill]));
        assert!(restored.iter().step_by(7).all(|v| v.to_bits() == fill.to_bits()), "{fill}");
    }
}

#[test]
fn random_bits_do_not_grow() {
    every_way(Field::AnyBits, &[9000]);
    every_way(Field::AnyBits, &[3]);
}
