//! The stable mode: values that are restored and compressed again under the same absolute bound keep their bits,
//! whatever the chunk shape, the preset, the instruction set and the part that is written.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use pumice::{Config, DecodeOptions, Element, ErrorBound, ErrorKind, FileWriter, Preset, Reader, Stable};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, check};

const SHAPE: [usize; 3] = [24, 40, 30];
/// None of them has chunks of fewer than 32,000 bytes of f32.
const CHUNKS: [[usize; 3]; 4] = [[24, 40, 30], [12, 40, 30], [24, 20, 30], [9, 40, 23]];

fn stable(bound: ErrorBound) -> Config {
    Config::new(bound).stable(Stable::On).threads(1)
}

fn round_trip<T: Element>(values: &[T], shape: &[usize], config: &Config) -> Vec<T> {
    pumice::decompress::<T>(&pumice::compress(values, shape, config).unwrap()).unwrap().data
}

/// Writes an array, and then copies of copies by other presets and in other chunks.
fn copy<T: Element + Float>(values: &[T], bound: ErrorBound, n_copies: usize) {
    let bytes = pumice::compress(values, &SHAPE, &stable(bound)).unwrap();
    let info = pumice::inspect(&bytes).unwrap();
    assert_eq!(info.stable, info.abs_bound > 0.0);
    let once = pumice::decompress::<T>(&bytes).unwrap().data;
    check::verify(values, &once, info.abs_bound, &info.fills).unwrap();
    let expected = check::bits(&once);
    let mut last = once;
    for i in 0..n_copies {
        let preset = Preset::ALL[(i + 1) % Preset::ALL.len()];
        let config = stable(bound).preset(preset).chunk_shape(&CHUNKS[i % CHUNKS.len()]).fills(&info.fills);
        last = round_trip(&last, &SHAPE, &config);
        assert!(check::bits(&last) == expected, "copy {i} by {preset:?} changes bits");
    }
}

#[test]
fn copies_by_any_preset_and_in_any_chunks_keep_every_bit() {
    for field in Field::ALL {
        // At 1e-6 many f32 values are so large that the lattice does not have them.
        for (abs, n_copies) in [(1e-6, 2), (0.013, 10), (7.0, 2)] {
            copy(&field.generate::<f32>(&SHAPE, 3), ErrorBound::Abs(abs), n_copies);
        }
        copy(&field.generate::<f64>(&SHAPE, 3), ErrorBound::Abs(2e-3), 3);
    }
}

/// The range of restored values differs from that of the original ones, and the lattice must not.
#[test]
fn copies_under_a_relative_bound_keep_every_bit() {
    for field in Field::ALL {
        for rel in [0.1, 1e-2, 1e-3, 1e-5] {
            copy(&field.generate::<f32>(&SHAPE, 7), ErrorBound::Rel(rel), 2);
            copy(&field.generate::<f64>(&SHAPE, 7), ErrorBound::Rel(rel), 1);
        }
    }
    // Without the lattice of the copy, this range leads to another step.
    let values: Vec<f32> =
        (0..28_800).map(|i| 300.0 + 0.7 * (i as f32 * 0.013).sin() + 0.01 * (i % 7) as f32).collect();
    let moved = (1..200).filter(|i| {
        let scaled: Vec<f32> = values.iter().map(|x| x * (1.0 + *i as f32 / 1000.0)).collect();
        let config = stable(ErrorBound::Rel(2e-3)).preset(Preset::Fast);
        let bytes = pumice::compress(&scaled, &SHAPE, &config).unwrap();
        let once = pumice::decompress::<f32>(&bytes).unwrap().data;
        let twice = pumice::compress(&once, &SHAPE, &config).unwrap();
        assert_eq!(once, pumice::decompress::<f32>(&twice).unwrap().data, "scaled by {i}");
        pumice::inspect(&bytes).unwrap().abs_bound != pumice::inspect(&twice).unwrap().abs_bound
    });
    assert!(moved.count() > 100, "the bounds of most copies differ");
}

#[test]
fn rewritten_parts_and_appended_rows_leave_the_others_as_they_are() {
    let bound = ErrorBound::Abs(3e-3);
    let (rows, row) = (SHAPE[0], SHAPE[1] * SHAPE[2]);
    let first = Field::Turbulence.generate::<f32>(&SHAPE, 1);
    let mut now = round_trip(&first, &SHAPE, &stable(bound));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.pum");
    for i in 0..10_u64 {
        // A box gets new values, and everything is written again.
        let fresh = Field::MaskedWalk.generate::<f32>(&SHAPE, i);
        let at = i as usize * row / 2..(i as usize * row / 2 + 777);
        let mut next = now.clone();
        next[at.clone()].copy_from_slice(&fresh[at.clone()]);
        let config = stable(bound).chunk_shape(&CHUNKS[i as usize % 4]).fills(&[1e20]);
        let written = round_trip(&next, &SHAPE, &config);
        check::verify(&fresh[at.clone()], &written[at.clone()], 3e-3, &[1e20, f64::NAN]).unwrap();
        let is_other = |k: &usize| !at.contains(k);
        assert!((0..now.len()).filter(is_other).all(|k| now[k].to_bits() == written[k].to_bits()), "write {i}");
        now = written;
        // Rows of the copy become a file, in two sessions.
        let config = stable(bound).preset(Preset::ALL[i as usize % 4]);
        let mut writer = FileWriter::<f32>::create(&path, &SHAPE[1..], &config).unwrap();
        writer.write_rows(&now[..9 * row]).unwrap();
        writer.finish().unwrap();
        let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
        writer.write_rows(&now[9 * row..rows * row]).unwrap();
        writer.finish().unwrap();
        let reader = Reader::open(&path, DecodeOptions::new()).unwrap();
        assert!(reader.info().stable);
        assert!(check::bits(&reader.read::<f32>().unwrap().data) == check::bits(&now), "append {i}");
    }
}

/// Where integers reach the limit of their type, what is nearest to a prediction need not be an integer.
#[test]
fn integers_near_the_limit_of_their_type_come_back() {
    let config = stable(ErrorBound::Abs(3.744_299_366_339_205e-8)).fills(&[1e20, 1e36]);
    let values = Field::Patches.generate::<f32>(&[4000], 16_357_991_459_210_037_753);
    let once = round_trip(&values, &[4000], &config.clone().preset(Preset::Fast));
    let part = &once[48..512];
    assert!(check::bits(&round_trip(part, &[16, 29], &config)) == check::bits(part));
}

#[test]
fn regions_have_lattices_of_their_own() {
    let config = stable(ErrorBound::Abs(0.2))
        .region(&[3..20, 5..30, 0..30], ErrorBound::Abs(1e-3))
        .region(&[10..24, 20..40, 7..8], ErrorBound::Lossless);
    let values = Field::Noise.generate::<f32>(&SHAPE, 2);
    let once = round_trip(&values, &SHAPE, &config);
    let twice = round_trip(&once, &SHAPE, &config.clone().chunk_shape(&CHUNKS[3]).preset(Preset::Balanced));
    assert!(check::bits(&once) == check::bits(&twice));
    // So many boxes that the chunk is stored as it is.
    let boxes =
        (0..40).fold(config, |config, i| config.region(&[i / 4..24, 0..40 - i / 3, 0..30], ErrorBound::Abs(0.1)));
    let once = round_trip(&values, &SHAPE, &boxes);
    assert!(check::bits(&once) == check::bits(&round_trip(&once, &SHAPE, &boxes.preset(Preset::Fast))));
}

#[test]
fn bounds_without_a_lattice_are_refused() {
    let values = Field::Smooth.generate::<f32>(&SHAPE, 1);
    let compress = |config: &Config| pumice::compress(&values, &SHAPE, config);
    for bound in [ErrorBound::PwRel(1e-3), ErrorBound::Psnr(60.0), ErrorBound::L2(1.0), ErrorBound::Ratio(5.0)] {
        for config in [stable(bound), stable(bound).and(ErrorBound::Abs(0.1))] {
            let error = compress(&config).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{bound:?}");
            assert!(error.to_string().contains("stable"), "{error}");
            let automatic = config.stable(Stable::Auto);
            if bound.kind() != pumice::BoundKind::Ratio {
                assert!(!pumice::inspect(&compress(&automatic).unwrap()).unwrap().stable);
            }
        }
    }
    let config = stable(ErrorBound::Abs(0.1));
    assert!(compress(&config.clone().bin(&[2, 2, 2])).is_err());
    assert!(compress(&config.clone().region(&[0..1, 0..1, 0..1], ErrorBound::PwRel(0.1))).is_err());
    let relative = config.region(&[0..1, 0..1, 0..1], ErrorBound::Rel(1e-3));
    assert!(compress(&relative).is_err() && compress(&relative.range(-2.0, 2.0)).is_ok());
    assert!(!pumice::inspect(&compress(&stable(ErrorBound::Lossless)).unwrap()).unwrap().stable);
}

#[test]
fn the_automatic_choice_costs_little_and_stays() {
    let size = |values: &[f32], stable| {
        let config = Config::new(ErrorBound::Rel(1e-3)).stable(stable).threads(1);
        pumice::compress(values, &SHAPE, &config).unwrap().len() as f64
    };
    let mut n_kept = 0;
    for field in [Field::Turbulence, Field::Noise, Field::Smooth, Field::Walk, Field::FillAndNan, Field::Sparse] {
        let values = field.generate::<f32>(&SHAPE, 5);
        let [off, automatic] = [Stable::Off, Stable::Auto].map(|mode| size(&values, mode));
        assert!(automatic < 1.05 * off, "{field:?}: {automatic} bytes, {off} without");
        // Once the values are on the lattice they stay there.
        let on = round_trip(&values, &SHAPE, &stable(ErrorBound::Rel(1e-3)));
        let config = Config::new(ErrorBound::Rel(1e-3)).stable(Stable::Auto).threads(1);
        assert!(check::bits(&round_trip(&on, &SHAPE, &config)) == check::bits(&on), "{field:?}");
        let first = round_trip(&values, &SHAPE, &config);
        n_kept += usize::from(check::bits(&round_trip(&first, &SHAPE, &config)) == check::bits(&first));
        for preset in [Preset::Fast, Preset::Balanced] {
            let of = |mode| pumice::compress(&values, &SHAPE, &config.clone().preset(preset).stable(mode)).unwrap();
            assert!(of(Stable::Auto) == of(Stable::On));
        }
    }
    assert!(n_kept >= 2, "noise and steps have no better predictor than the lattice");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any part of the restored values, written on its own by any preset, keeps its bits.
    #[test]
    fn parts_keep_their_bits(
        field in select(Field::ALL.to_vec()),
        presets in (select(Preset::ALL.to_vec()), select(Preset::ALL.to_vec())),
        (mantissa, exponent) in (1.0_f64..10.0, -9_i32..6),
        (a, b) in any::<(Index, Index)>(),
        width in 1_usize..70,
        seed: u64,
    ) {
        let bound = ErrorBound::Abs(mantissa * 10_f64.powi(exponent));
        // Values that look like fill values in one part may not in another, so they are named.
        let config = stable(bound).fills(&[1e20, 1e36]);
        let values = field.generate::<f32>(&[4000], seed);
        let once = round_trip(&values, &[4000], &config.clone().preset(presets.0));
        let (a, b) = (a.index(4000), b.index(4000));
        let part = &once[a.min(b)..a.max(b) + 1];
        let part = &part[..part.len() / width * width];
        let again = round_trip(part, &[part.len() / width, width], &config.preset(presets.1));
        prop_assert!(check::bits(&again) == check::bits(part));
    }
}

/// Fill values that there are no masks for are stored by another layer.
#[test]
fn zeros_have_one_sign_beside_many_fill_values() {
    let shape = [60, 60];
    let mut field = Field::Turbulence.generate::<f32>(&shape, 1);
    field.iter_mut().step_by(7).for_each(|x| *x = -0.0);
    for (i, fill) in [-9999.0, 1e20, 77.0, -33.0].into_iter().enumerate() {
        field[i * 800..][..100].fill(fill);
    }
    for preset in [Preset::Small, Preset::Fast, Preset::Balanced] {
        let config = stable(ErrorBound::Abs(0.01)).preset(preset).fills(&[77.0, -33.0]);
        let first = round_trip(&field, &shape, &config);
        assert!(first.iter().all(|x| x.to_bits() != (-0.0_f32).to_bits()));
        assert_eq!(round_trip(&first, &shape, &config), first);
    }
}
