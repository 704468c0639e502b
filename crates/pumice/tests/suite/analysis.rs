//! Analysis: it never fails, does not depend on threads, and its estimates are near what compression gives.

use proptest::prelude::*;
use proptest::sample::select;
use pumice::{Analysis, AnalysisOptions, Config, Element, ErrorBound, Preset};
use pumice_testkit::data::{self, DataFile};
use pumice_testkit::fields::Field;
use pumice_testkit::{DType, Float};

const SAMPLED: [Preset; 3] = [Preset::Fast, Preset::Balanced, Preset::Small];

/// An array of many cells, more even than real ones.
fn large() -> (Vec<f32>, [usize; 3]) {
    let shape = [64, 128, 160];
    (Field::Turbulence.generate(&shape, 7), shape)
}

fn actual_bytes<T: Element>(values: &[T], shape: &[usize], bound: ErrorBound, preset: Preset) -> u64 {
    pumice::compress(values, shape, &Config::new(bound).preset(preset)).unwrap().len() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Ranks 0 to 8, extents of 0 and 1, every kind of value: estimates of small arrays are exact.
    #[test]
    fn odd_arrays(
        field in select(Field::ALL.to_vec()),
        shape in prop::collection::vec(prop_oneof![1 => Just(0_usize), 20 => 1_usize..6], 0..=8),
        seed: u64,
        bound in select(vec![ErrorBound::Rel(1e-3), ErrorBound::Abs(1e-2), ErrorBound::Abs(0.0), ErrorBound::Lossless]),
    ) {
        prop_assume!(shape.iter().product::<usize>() < 20_000);
        let n: usize = shape.iter().product();
        let values: Vec<f64> = if n == 0 { Vec::new() } else { field.generate(&shape, seed) };
        let options = AnalysisOptions::new().bounds(&[bound]).presets(&SAMPLED).threads(1);
        let found = pumice::analyze(&values, &shape, &options).unwrap();
        for estimate in &found.estimates {
            prop_assert!(estimate.is_exact);
            prop_assert_eq!(estimate.compressed_bytes, actual_bytes(&values, &shape, bound, estimate.preset));
        }
    }
}

/// Everything as text: NaN equals itself.
fn told(found: &Analysis) -> String {
    format!("{found:?}")
}

#[test]
fn figures_do_not_depend_on_threads() {
    let (values, shape) = large();
    let analysed = |threads| {
        let options = AnalysisOptions::new().presets(&SAMPLED).threads(threads);
        told(&pumice::analyze(&values, &shape, &options).unwrap())
    };
    let one = analysed(1);
    assert_eq!(one, analysed(2));
    assert_eq!(one, analysed(5));
}

#[test]
fn a_sample_tells_the_size_of_even_data() {
    let (values, shape) = large();
    let found = pumice::analyze(&values, &shape, &AnalysisOptions::new().presets(&SAMPLED)).unwrap();
    assert!(found.sampled_values <= found.n_values / 4 + found.n_values / 16, "{}", found.sampled_values);
    for estimate in &found.estimates {
        let actual = actual_bytes(&values, &shape, estimate.bound, estimate.preset);
        let error = actual as f64 / estimate.compressed_bytes as f64 - 1.0;
        assert!(!estimate.is_exact && error.abs() < 0.2, "{estimate:?}: {actual} bytes");
    }
}

/// How many estimates were made and how many are within 10 %; of all, and of those from samples.
#[derive(Default)]
struct Score {
    n: usize,
    n_near: usize,
    n_sampled: usize,
    n_sampled_near: usize,
}

fn score<T: Element + Float>(file: &DataFile, presets: &[Preset], scores: &mut [Score]) {
    let values = file.read::<T>();
    let found = pumice::analyze(&values, &file.shape, &AnalysisOptions::new().presets(presets)).unwrap();
    let mut line = format!("| {} | {:.0} % |", file.name, 100.0 * found.sampled_values as f64 / found.n_values as f64);
    for (i, estimate) in found.estimates.iter().enumerate() {
        let actual = size_of_val(values.as_slice()) as f64
            / actual_bytes(&values, &file.shape, estimate.bound, estimate.preset) as f64;
        let error = estimate.ratio / actual - 1.0;
        let is_near = error.abs() <= 0.1;
        let score = &mut scores[i % presets.len()];
        score.n += 1;
        score.n_near += usize::from(is_near);
        if estimate.is_exact {
            assert_eq!(error, 0.0, "{}: {estimate:?}", file.name);
        } else {
            score.n_sampled += 1;
            score.n_sampled_near += usize::from(is_near);
        }
        line += &format!(" {:.2} / {actual:.2} ({:+.0} %) |", estimate.ratio, 100.0 * error);
    }
    println!("{line}");
}

/// Prints the table of docs/analyze.md.
fn estimates_are_near(presets: &[Preset], least_near: f64) {
    let Some(files) = data::files() else { return };
    let mut scores: Vec<Score> = presets.iter().map(|_| Score::default()).collect();
    for file in &files {
        match file.dtype {
            DType::F32 => score::<f32>(file, presets, &mut scores),
            _ => score::<f64>(file, presets, &mut scores),
        }
    }
    for (preset, score) in presets.iter().zip(&scores) {
        let Score { n, n_near, n_sampled, n_sampled_near } = score;
        println!("{}: {n_near} of {n} within 10 %; from samples {n_sampled_near} of {n_sampled}", preset.name());
        assert!(*n_near as f64 >= least_near * *n as f64, "{}: {n_near} of {n}", preset.name());
    }
}

#[test]
fn estimates_of_real_fields_are_near() {
    estimates_are_near(&SAMPLED, 0.75);
}

#[test]
#[ignore = "slow; `max` codes 20 MB/s"]
fn estimates_of_real_fields_are_near_for_max() {
    estimates_are_near(&[Preset::Max], 0.75);
}
