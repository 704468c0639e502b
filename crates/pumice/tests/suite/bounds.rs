//! Bounds that are not one number for the whole array: relative to each value, several at once, boxes with bounds of
//! their own, means of bins.

use crate::forge;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use pumice::metrics::Guarantee;
use pumice::{Config, DecodeOptions, Element, ErrorBound, FileWriter, Preset, Reader, Real, Writer};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, check};
use std::ops::Range;

fn presets() -> impl Strategy<Value = Preset> {
    prop_oneof![
        4 => Just(Preset::Fast),
        4 => Just(Preset::Balanced),
        6 => Just(Preset::Small),
        1 => Just(Preset::Max),
        2 => select(vec![Preset::Cuszp2Outlier, Preset::Cuszplus, Preset::Ceaz, Preset::Ceresz2]),
    ]
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(1_usize..9000, 1),
        prop::collection::vec(1_usize..90, 2),
        prop::collection::vec(1_usize..21, 3),
        prop::collection::vec(1_usize..6, 5),
        (300_usize..2000, 1_usize..9).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn shares() -> impl Strategy<Value = f64> {
    select(vec![0.9, 0.3, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 3e-6, 1e-6, 1e-7, 1e-9, 1e-12, 1e-15, 1e-18, 1e-300])
}

/// A box by two positions of each axis.
fn region(shape: &[usize], picks: &[(Index, Index)]) -> Vec<Range<usize>> {
    let range = |(&n, (a, b)): (&usize, &(Index, Index))| {
        let (a, b) = (a.index(n), b.index(n));
        a.min(b)..a.max(b) + 1
    };
    shape.iter().zip(picks).map(range).collect()
}

fn picks() -> impl Strategy<Value = Vec<(Index, Index)>> {
    prop::collection::vec(any::<(Index, Index)>(), 40)
}

/// Restored values and what the stream says, after everything but the bound was checked.
fn restored<T: Element + Float>(
    values: &[T],
    shape: &[usize],
    config: &Config,
    picks: &[(Index, Index)],
) -> (Vec<T>, pumice::Info) {
    let bytes = pumice::compress(values, shape, &config.clone().threads(1)).unwrap();
    assert!(bytes == pumice::compress(values, shape, &config.clone().threads(3)).unwrap(), "threads change the bytes");
    let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
    // Each region takes some bytes in the header.
    let most = check::max_stream_bytes(size_of_val(values)) + 60 * reader.info().regions.len();
    assert!(bytes.len() <= most, "{} bytes", bytes.len());
    let all = reader.read::<T>().unwrap();
    assert_eq!(all.shape, shape);
    let region = region(shape, picks);
    let part = reader.read_region::<T>(&region).unwrap();
    assert_eq!(check::bits(&part.data), check::bits(&check::cut(&all.data, shape, &region)), "{region:?}");
    let guarantee = Guarantee::of(reader.info());
    for id in 0..reader.n_chunks() {
        let chunk = reader.chunk_region(id).unwrap();
        let found = guarantee
            .compare(&chunk, &check::cut(values, shape, &chunk), &check::cut(&all.data, shape, &chunk))
            .unwrap();
        assert!(found.bound_kept(), "{config:?}: {found:?}");
    }
    (all.data, reader.info().clone())
}

/// What must hold for each place, by what was asked for.
fn verify_boxes<T: Element + Float>(
    values: &[T],
    restored: &[T],
    shape: &[usize],
    boxes: &[(Vec<Range<usize>>, ErrorBound)],
    fills: &[f64],
) {
    for (region, bound) in boxes {
        let (a, b) = (check::cut(values, shape, region), check::cut(restored, shape, region));
        let verified = match *bound {
            ErrorBound::PwRel(e) => check::verify_share(&a, &b, e, f64::INFINITY, fills),
            ErrorBound::Abs(e) => check::verify(&a, &b, e, fills),
            _ => check::verify(&a, &b, 0.0, fills),
        };
        verified.unwrap_or_else(|e| panic!("{region:?} {bound:?}: {e}"));
    }
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn box_bounds() -> impl Strategy<Value = ErrorBound> {
    prop_oneof![
        (-8_i32..1).prop_map(|e| ErrorBound::Abs(10_f64.powi(e))),
        (-6_i32..0).prop_map(|e| ErrorBound::PwRel(10_f64.powi(e))),
        Just(ErrorBound::Lossless),
    ]
}

fn pointwise_holds<T: Element + Float>(
    values: &[T],
    shape: &[usize],
    (preset, e, abs): (Preset, f64, Option<f64>),
    fill: Option<Index>,
    picks: &[(Index, Index)],
) {
    let mut config = Config::new(ErrorBound::PwRel(e)).preset(preset);
    config = abs.map_or(config.clone(), |abs| config.and(ErrorBound::Abs(abs)));
    if let Some(at) = fill {
        config = config.fills(&[Real::to_f64(values[at.index(values.len())])]);
    }
    let (restored, info) = restored(values, shape, &config, picks);
    check::verify_share(values, &restored, e, abs.unwrap_or(f64::INFINITY), &info.fills).unwrap();
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn pointwise_f32(
        field in select(Field::ALL.to_vec()), shape in shapes(), seed: u64, preset in presets(), e in shares(),
        abs in prop::option::of((-9_i32..3).prop_map(|e| 10_f64.powi(e))), fill in prop::option::of(any::<Index>()),
        picks in picks(),
    ) {
        pointwise_holds(&field.generate::<f32>(&shape, seed), &shape, (preset, e, abs), fill, &picks);
    }

    #[test]
    fn pointwise_f64(
        field in select(Field::ALL.to_vec()), shape in shapes(), seed: u64, preset in presets(), e in shares(),
        abs in prop::option::of((-12_i32..3).prop_map(|e| 10_f64.powi(e))), fill in prop::option::of(any::<Index>()),
        picks in picks(),
    ) {
        pointwise_holds(&field.generate::<f64>(&shape, seed), &shape, (preset, e, abs), fill, &picks);
    }

    /// Neighbouring bit patterns around any value.
    #[test]
    fn pointwise_values_close_to_each_other(start: u64, length in 1_usize..300, preset in presets(), e in shares(), picks in picks()) {
        let values: Vec<f32> = (0..length as u32).map(|i| f32::from_bits((start as u32).wrapping_add(i))).collect();
        pointwise_holds(&values, &[length], (preset, e, None), None, &picks);
        let values: Vec<f64> = (0..length as u64).map(|i| f64::from_bits(start.wrapping_add(i))).collect();
        pointwise_holds(&values, &[length], (preset, e, None), None, &picks);
    }

    #[test]
    fn boxes_f32(
        field in select(Field::ALL.to_vec()), shape in shapes(), seed: u64, preset in presets(), picks in picks(),
        background in box_bounds(), bounds in prop::collection::vec(box_bounds(), 1..4),
    ) {
        boxes_hold::<f32>(field, &shape, seed, preset, background, &bounds, &picks);
    }

    #[test]
    fn boxes_f64(
        field in select(Field::ALL.to_vec()), shape in shapes(), seed: u64, preset in presets(), picks in picks(),
        background in box_bounds(), bounds in prop::collection::vec(box_bounds(), 1..4),
    ) {
        boxes_hold::<f64>(field, &shape, seed, preset, background, &bounds, &picks);
    }

    #[test]
    fn bins_f32(
        field in select(Field::ALL.to_vec()), shape in shapes(), seed: u64, preset in presets(), picks in picks(),
        background in box_bounds(), bounds in prop::collection::vec(box_bounds(), 0..3),
        factors in prop::collection::vec(1_usize..5, 5),
    ) {
        bins_hold::<f32>(field, &shape, seed, (preset, background, &bounds, &factors), &picks);
    }

    #[test]
    fn bins_f64(
        field in select(Field::ALL.to_vec()), shape in shapes(), seed: u64, preset in presets(), picks in picks(),
        background in box_bounds(), bounds in prop::collection::vec(box_bounds(), 0..3),
        factors in prop::collection::vec(1_usize..5, 5),
    ) {
        bins_hold::<f64>(field, &shape, seed, (preset, background, &bounds, &factors), &picks);
    }
}

fn boxes_hold<T: Element + Float>(
    field: Field,
    shape: &[usize],
    seed: u64,
    preset: Preset,
    background: ErrorBound,
    bounds: &[ErrorBound],
    picks: &[(Index, Index)],
) {
    let values = field.generate::<T>(shape, seed);
    let whole: Vec<Range<usize>> = shape.iter().map(|n| 0..*n).collect();
    let mut boxes = vec![(whole, background)];
    let mut config = Config::new(background).preset(preset);
    for (i, bound) in bounds.iter().enumerate() {
        let ranges = region(shape, &picks[5 * i + 5..]);
        config = config.region(&ranges, *bound);
        boxes.push((ranges, *bound));
    }
    let (restored, info) = restored(&values, shape, &config, picks);
    assert_eq!(info.regions.len(), bounds.len());
    verify_boxes(&values, &restored, shape, &boxes, &info.fills);
}

fn bins_hold<T: Element + Float>(
    field: Field,
    shape: &[usize],
    seed: u64,
    (preset, background, bounds, factors): (Preset, ErrorBound, &[ErrorBound], &[usize]),
    picks: &[(Index, Index)],
) {
    let values = field.generate::<T>(shape, seed);
    let mut factors = factors[..shape.len()].to_vec();
    factors[0] += usize::from(factors.iter().all(|factor| *factor == 1));
    let factors = &factors[..];
    let mut config = Config::new(background).preset(preset).bin(factors);
    let mut boxes = Vec::new();
    for (i, bound) in bounds.iter().enumerate() {
        let ranges = region(shape, &picks[5 * i + 5..]);
        config = config.region(&ranges, *bound);
        boxes.push((ranges, *bound));
    }
    let (restored, info) = restored(&values, shape, &config, picks);
    assert_eq!(info.bin, factors);
    verify_boxes(&values, &restored, shape, &boxes, &info.fills);
    // Values outside of the boxes: those of one bin are equal, but for special ones, which are as they were.
    let fills: Vec<u64> = info.fills.iter().map(|fill| Real::to_bits_u64(<T as Real>::from_f64(*fill))).collect();
    let mut of_bin = std::collections::HashMap::new();
    let mut place = vec![0; shape.len()];
    for (x, y) in values.iter().zip(&restored) {
        let is_boxed = boxes.iter().any(|(ranges, _)| ranges.iter().zip(&place).all(|(range, i)| range.contains(i)));
        let bits = Real::to_bits_u64(*x);
        if !Real::is_finite(*x) || fills.contains(&bits) {
            assert_eq!(Real::to_bits_u64(*y), bits);
        } else if !is_boxed {
            let bin: Vec<usize> = place.iter().zip(factors).map(|(i, factor)| i / factor).collect();
            assert_eq!(*of_bin.entry(bin).or_insert(Real::to_bits_u64(*y)), Real::to_bits_u64(*y));
        }
        for axis in (0..shape.len()).rev() {
            place[axis] += 1;
            if place[axis] < shape[axis] {
                break;
            }
            place[axis] = 0;
        }
    }
}

/// Every 65536th pattern of f32 and its neighbours: all exponents, signs, zeros, NaN and infinities.
#[test]
fn all_kinds_of_f32_pointwise() {
    for offset in [0_u32, 1, 0x8001, 0xffff] {
        let values: Vec<f32> = (0..1 << 16).map(|i: u32| f32::from_bits(i << 16 | offset)).collect();
        for preset in [Preset::Fast, Preset::Small] {
            for e in [0.5, 1e-1, 1e-2, 1e-3, 1e-4, 1e-6] {
                let config = Config::new(ErrorBound::PwRel(e)).preset(preset).threads(1);
                let bytes = pumice::compress(&values, &[256, 256], &config).unwrap();
                let info = pumice::inspect(&bytes).unwrap();
                let restored = pumice::decompress::<f32>(&bytes).unwrap().data;
                check::verify_share(&values, &restored, e, f64::INFINITY, &info.fills).unwrap();
                for (x, y) in values.iter().zip(&restored).filter(|(x, _)| **x == 0.0) {
                    assert_eq!(x.to_bits(), y.to_bits(), "zeros keep their sign");
                }
            }
        }
    }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.003).sin() * (i as f32 * 0.0007).exp2().min(1e6)).collect()
}

#[test]
fn pointwise_streams_are_small() {
    let values: Vec<f32> = wave(200_000).iter().map(|x| x.abs() + 1e-3).collect();
    for (preset, least) in [(Preset::Fast, 3.0), (Preset::Small, 6.0)] {
        let config = Config::new(ErrorBound::PwRel(1e-3)).preset(preset);
        let mut out = Vec::new();
        let summary = pumice::compress_into(&values, &[values.len()], &config, &mut out).unwrap();
        assert!(summary.ratio() > least, "{preset:?} {}", summary.ratio());
    }
}

#[test]
fn bounds_that_contradict_or_make_no_sense() {
    let refuse = |config: Config| pumice::compress(&[1.0_f32; 12], &[3, 4], &config).unwrap_err();
    for config in [
        Config::new(ErrorBound::PwRel(-1.0)),
        Config::new(ErrorBound::PwRel(f64::NAN)),
        Config::new(ErrorBound::Abs(1.0)).and(ErrorBound::Abs(-1.0)),
        Config::new(ErrorBound::Abs(1.0)).region(&[0..3, 0..4, 0..1], ErrorBound::Lossless),
        Config::new(ErrorBound::Abs(1.0)).region(&[0..3, 2..5], ErrorBound::Lossless),
        Config::new(ErrorBound::Abs(1.0)).region(&[0..0, 2..3], ErrorBound::Lossless),
        Config::new(ErrorBound::Abs(1.0)).bin(&[2]),
        Config::new(ErrorBound::Abs(1.0)).bin(&[2, 0]),
        Config::new(ErrorBound::Abs(1.0)).bin(&[200, 200]),
    ] {
        assert_eq!(refuse(config).kind(), pumice::ErrorKind::InvalidArgument);
    }
    let many = (0..2000)
        .fold(Config::new(ErrorBound::Abs(1.0)), |config, _| config.region(&[0..1, 0..1], ErrorBound::Lossless));
    assert_eq!(refuse(many).kind(), pumice::ErrorKind::InvalidArgument);
}

#[test]
fn several_bounds_come_to_the_tightest() {
    let values = wave(5000);
    let info = |config: &Config| pumice::inspect(&pumice::compress(&values, &[50, 100], config).unwrap()).unwrap();
    let both = info(&Config::new(ErrorBound::Abs(1e-3)).and(ErrorBound::Rel(1e-9)));
    assert_eq!(both.bounds, [ErrorBound::Abs(1e-3), ErrorBound::Rel(1e-9)]);
    assert!(both.abs_bound < 1e-3 && both.abs_bound > 0.0);
    let lossless = info(&Config::new(ErrorBound::PwRel(1e-3)).and(ErrorBound::Lossless));
    assert_eq!((lossless.bound, lossless.bounds.len(), lossless.abs_bound), (ErrorBound::Lossless, 1, 0.0));
    assert_eq!(info(&Config::new(ErrorBound::PwRel(1e-3))).abs_bound, f64::INFINITY);
    assert_eq!(info(&Config::new(ErrorBound::PwRel(0.0))).bound, ErrorBound::Lossless);
}

/// Boxes are given in coordinates of the whole array, whatever is written when.
/// Each of them is stored in full, but never more than all values.
#[test]
fn many_boxes_on_top_of_each_other() {
    let n = 4096;
    let values = Field::AnyBits.generate::<f32>(&[n], 1);
    for bin in [&[][..], &[2]] {
        let boxes = (0..200).map(|i| i..n - 200 + i);
        let config = boxes.fold(Config::new(ErrorBound::Abs(1.0)).bin(bin), |config, range| {
            config.region(std::slice::from_ref(&range), ErrorBound::Lossless)
        });
        let bytes = pumice::compress(&values, &[n], &config).unwrap();
        assert!(bytes.len() <= check::max_stream_bytes(4 * n) + 60 * 200, "{} bytes", bytes.len());
        let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
        let restored = reader.read::<f32>().unwrap().data;
        let found = Guarantee::of(reader.info()).compare(std::slice::from_ref(&(0..n)), &values, &restored).unwrap();
        assert!(found.bound_kept(), "{found:?}");
    }
}

#[test]
fn boxes_of_rows_that_arrive_over_time() {
    let values = wave(300 * 400);
    let ranges = [100..270, 30..200];
    let config = Config::new(ErrorBound::Abs(0.1))
        .region(&ranges, ErrorBound::Lossless)
        .region(&[200..500, 0..50], ErrorBound::Abs(1e-3));
    let config = config.chunk_shape(&[64, 400]);
    let mut writer = Writer::<f32, _>::new(Vec::new(), &[400], &config.clone().threads(2)).unwrap();
    values.chunks(400 * 7).try_for_each(|rows| writer.write_rows(rows)).unwrap();
    let (bytes, _) = writer.finish().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.pum");
    let mut writer = FileWriter::<f32>::create(&path, &[400], &config).unwrap();
    writer.write_rows(&values[..400 * 120]).unwrap();
    writer.finish().unwrap();
    let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
    writer.write_rows(&values[400 * 120..]).unwrap();
    writer.finish().unwrap();
    for bytes in [bytes, std::fs::read(&path).unwrap()] {
        let restored = pumice::decompress::<f32>(&bytes).unwrap().data;
        let whole = (vec![0..300, 0..400], ErrorBound::Abs(0.1));
        let boxes = [whole, (ranges.to_vec(), ErrorBound::Lossless), (vec![200..300, 0..50], ErrorBound::Abs(1e-3))];
        verify_boxes(&values, &restored, &[300, 400], &boxes, &[]);
    }
}

#[test]
fn what_is_left_of_a_damaged_stream_with_boxes() {
    let values = wave(300 * 400);
    let config = Config::new(ErrorBound::Abs(0.1))
        .chunk_shape(&[64, 400])
        .region(&[100..270, 30..200], ErrorBound::Lossless)
        .bin(&[2, 4]);
    let whole = pumice::compress(&values, &[300, 400], &config).unwrap();
    let expected = pumice::decompress::<f32>(&whole).unwrap().data;
    let cut = &whole[..whole.len() - 40];
    let salvage = pumice::salvage(cut, DecodeOptions::new()).unwrap();
    let found = salvage.read(f32::NAN).unwrap();
    assert!(salvage.intact().len() >= 3);
    assert_eq!(check::bits(&found.data[..64 * 400]), check::bits(&expected[..64 * 400]));
}

/// Damage that checksums cannot see: every byte of small payloads is changed, and the checksums made to fit.
#[test]
fn forged_layers_are_refused_or_decoded() {
    let mut values = wave(1200);
    values[100..120].fill(f32::NAN);
    (values[7], values[9]) = (f32::INFINITY, 0.0);
    let stream = |config: Config| pumice::compress(&values, &[12, 100], &config.threads(1)).unwrap();
    // A row and then scattered values of it are written again.
    let changed = [&|i: usize| i / 100 == 3, &|i: usize| i % 41 == 5] as [&dyn Fn(usize) -> bool; 2];
    let config = Config::new(ErrorBound::Abs(0.1)).threads(1);
    let changed = changed.iter().fold(stream(config.clone()), |stream, is_new| {
        let mut again = pumice::decompress::<f32>(&stream).unwrap().data;
        (0..1200).filter(|i| is_new(*i)).for_each(|i| again[i] += 0.7);
        pumice::update(&stream, &again, &config).unwrap()
    });
    for bytes in [
        stream(Config::new(ErrorBound::PwRel(1e-3)).preset(Preset::Fast)),
        stream(Config::new(ErrorBound::PwRel(1e-2)).and(ErrorBound::Abs(1e-3))),
        stream(Config::new(ErrorBound::Abs(0.1)).region(&[3..9, 20..50], ErrorBound::PwRel(1e-3))),
        stream(Config::new(ErrorBound::Abs(0.1)).bin(&[3, 2]).region(&[3..9, 20..50], ErrorBound::Lossless)),
        changed,
    ] {
        let (header_end, start) = (forge::header_bytes(&bytes) - 4, forge::payload_start(&bytes));
        for at in (8..header_end).chain(start..bytes.len()) {
            for flip in [1, 0x80, 0xff] {
                let mut forged = bytes.clone();
                forged[at] ^= flip;
                if at < header_end {
                    forge::seal_header(&mut forged)
                } else {
                    forge::seal_frame(&mut forged)
                }
                let options = DecodeOptions::new().threads(1).max_bytes(1 << 24);
                drop(Reader::new(&forged[..], options).and_then(|reader| reader.read::<f32>()));
            }
        }
        for n in 0..bytes.len() - start {
            let forged = forge::with_payload(&bytes, &bytes[start..start + n]);
            assert!(pumice::decompress::<f32>(&forged).is_err(), "{n} bytes of the payload");
        }
    }
}
