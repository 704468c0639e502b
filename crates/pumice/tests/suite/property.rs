//! Properties that hold for every input: element types, ranks, bounds, odd extents and special values at random.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use pumice::{Config, DecodeOptions, Element, ErrorBound, Preset, Reader, Stable};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, check};
use std::ops::Range;

/// Ranks 1 to 6, extents that are seldom round, at most a few thousand values.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(1_usize..9000, 1),
        // Enough for `small` to have tables.
        prop::collection::vec(64_usize..90, 2),
        prop::collection::vec(1_usize..90, 2),
        prop::collection::vec(1_usize..21, 3),
        prop::collection::vec(1_usize..10, 4),
        prop::collection::vec(1_usize..6, 5),
        prop::collection::vec(1_usize..5, 6),
        // Thin in all but one axis.
        (1_usize..5, 1_usize..4, 1_usize..1500).prop_map(|(a, b, c)| vec![a, c, b]),
        (300_usize..2000, 1_usize..9).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn bounds() -> impl Strategy<Value = ErrorBound> {
    prop_oneof![
        (-14_i32..4).prop_map(|e| ErrorBound::Abs(1.7 * 10_f64.powi(e))),
        select(vec![1e-45, 1e-42, 1e-30, 1e20, 1e37, 1e300, 5e-324]).prop_map(ErrorBound::Abs),
        (-13_i32..1).prop_map(|e| ErrorBound::Rel(10_f64.powi(e))),
        Just(ErrorBound::Lossless),
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    let of_papers =
        [Preset::Cuszp2Plain, Preset::Cuszp2Outlier, Preset::Cuszplus, Preset::Ceaz, Preset::Ceresz2].to_vec();
    let presets = prop_oneof![
        4 => Just(Preset::Fast),
        5 => Just(Preset::Balanced),
        6 => Just(Preset::Small),
        1 => Just(Preset::Max),
        6 => select(of_papers),
    ];
    let stables = prop_oneof![2 => Just(Stable::Off), 1 => Just(Stable::On), 1 => Just(Stable::Auto)];
    (presets, bounds(), stables).prop_map(|(preset, bound, stable)| Config::new(bound).preset(preset).stable(stable))
}

fn fields() -> impl Strategy<Value = Field> {
    select(Field::ALL.to_vec())
}

/// Two positions of each axis, in either order, become a range.
fn region(shape: &[usize], picks: &[(Index, Index)]) -> Vec<Range<usize>> {
    let range = |(&n, (a, b)): (&usize, &(Index, Index))| {
        let (a, b) = (a.index(n + 1), b.index(n + 1));
        a.min(b)..a.max(b)
    };
    shape.iter().zip(picks).map(range).collect()
}

fn picks() -> impl Strategy<Value = Vec<(Index, Index)>> {
    prop::collection::vec(any::<(Index, Index)>(), 8)
}

/// Everything that is promised of one array.
fn holds<T: Element + Float>(values: &[T], shape: &[usize], config: &Config, picks: &[(Index, Index)]) {
    let bytes = pumice::compress(values, shape, &config.clone().threads(1)).unwrap();
    assert_eq!(bytes, pumice::compress(values, shape, &config.clone().threads(1)).unwrap(), "compressed twice");
    assert!(bytes.len() <= check::max_stream_bytes(size_of_val(values)), "{} bytes", bytes.len());

    let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
    let restored = reader.read::<T>().unwrap();
    assert_eq!(restored.shape, shape);
    let info = reader.info();
    check::verify(values, &restored.data, info.abs_bound, &info.fills).unwrap();
    match config.bound() {
        ErrorBound::Abs(e) => assert_eq!(info.abs_bound, e),
        ErrorBound::Rel(e) => assert_rel_bound(values, info.abs_bound, e),
        _ => assert_eq!(info.abs_bound, 0.0),
    }

    let region = region(shape, picks);
    let part = reader.read_region::<T>(&region).unwrap();
    assert_eq!(check::bits(&part.data), check::bits(&check::cut(&restored.data, shape, &region)), "{region:?}");
}

/// The bound that holds is never looser than asked for: fill values can only narrow the range.
fn assert_rel_bound<T: Float>(values: &[T], abs_bound: f64, rel: f64) {
    let finite = || values.iter().map(|v| v.to_f64()).filter(|v| v.is_finite());
    let (min, max) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let range = max - min;
    let widest = match range.is_finite() {
        true => rel * range,
        false if min <= max => rel * max - rel * min,
        false => 0.0,
    };
    assert!(abs_bound <= widest * (1.0 + 1e-12) || abs_bound == f64::MAX, "{abs_bound:e} > {widest:e}");
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn f32_arrays(field in fields(), shape in shapes(), seed: u64, config in configs(), picks in picks()) {
        holds(&field.generate::<f32>(&shape, seed), &shape, &config, &picks);
    }

    #[test]
    fn f64_arrays(field in fields(), shape in shapes(), seed: u64, config in configs(), picks in picks()) {
        holds(&field.generate::<f64>(&shape, seed), &shape, &config, &picks);
    }

    #[test]
    fn named_fills(field in fields(), shape in shapes(), seed: u64, config in configs(), at: Index, picks in picks()) {
        let values = field.generate::<f32>(&shape, seed);
        let fill = values[at.index(values.len())];
        let config = config.fills(&[f64::from(fill)]);
        holds(&values, &shape, &config, &picks);
    }

    /// Neighbouring bit patterns around any value, where rounding goes wrong if it can.
    #[test]
    fn values_close_to_each_other(start: u32, length in 1_usize..300, config in configs(), picks in picks()) {
        let values: Vec<f32> = (0..length as u32).map(|i| f32::from_bits(start.wrapping_add(i))).collect();
        holds(&values, &[length], &config, &picks);
    }
}

proptest! {
    #![proptest_config(cases(150))]

    /// Arrays of many chunks: regions that cross them, and any number of threads.
    #[test]
    fn chunked_arrays(
        field in fields(),
        (a, b, c) in (20_usize..60, 30_usize..60, 17_usize..40),
        (cut_a, cut_b) in (1_usize..4, 1_usize..3),
        seed: u64,
        config in configs(),
        picks in picks(),
        threads in 2_usize..=8,
    ) {
        let (shape, chunk) = ([a, b, c], [a.div_ceil(cut_a), b.div_ceil(cut_b), c]);
        let values = field.generate::<f64>(&shape, seed);
        // Smaller chunks than this are refused.
        prop_assume!(chunk.iter().product::<usize>() * 8 >= 32_000);
        let config = config.chunk_shape(&chunk);
        holds(&values, &shape, &config, &picks);
        let one = pumice::compress(&values, &shape, &config.clone().threads(1)).unwrap();
        let many = pumice::compress(&values, &shape, &config.threads(threads)).unwrap();
        prop_assert!(one == many);
        let region = region(&shape, &picks[3..]);
        let read = |threads| {
            let reader = Reader::new(&one[..], DecodeOptions::new().threads(threads)).unwrap();
            check::bits(&reader.read_region::<f64>(&region).unwrap().data)
        };
        prop_assert!(read(1) == read(threads));
    }
}
