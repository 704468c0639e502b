//! The arrays of docs/data.md, where they are: bounds, special values, and ratios that may not get worse.

use pumice::{Config, DecodeOptions, Element, ErrorBound, Preset};
use pumice_testkit::data::{self, DataFile};
use pumice_testkit::{DType, Float, check};

/// Checks one file at one bound and returns the ratio.
fn ratio<T: Element + Float>(file: &DataFile, values: &[T], rel: f64, preset: Preset) -> f64 {
    let bytes = pumice::compress(values, &file.shape, &Config::new(ErrorBound::Rel(rel)).preset(preset)).unwrap();
    let mut restored = vec![T::default(); values.len()];
    pumice::decompress_into(&bytes, &mut restored, &DecodeOptions::new()).unwrap();
    let info = pumice::inspect(&bytes).unwrap();
    check::verify(values, &restored, info.abs_bound, &info.fills).unwrap_or_else(|e| panic!("{}: {e}", file.name));
    assert_eq!(info.abs_bound, rel * range(values, &info.fills), "{}", file.name);
    size_of_val(values) as f64 / bytes.len() as f64
}

fn range<T: Float>(values: &[T], fills: &[f64]) -> f64 {
    let counted = || values.iter().map(|v| v.to_f64()).filter(|v| v.is_finite() && !fills.contains(v));
    counted().fold(f64::NEG_INFINITY, f64::max) - counted().fold(f64::INFINITY, f64::min)
}

/// Bounds, and the least geometric mean of the ratios of the fields that `data::RATED` lists.
fn f32_fields_reach(preset: Preset, bounds: [(f64, f64); 3]) {
    let Some(files) = data::files() else { return };
    let files: Vec<_> = files.into_iter().filter(|file| file.dtype == DType::F32).collect();
    let mut log_sums = [0.0; 3];
    let mut n_files = 0_u32;
    for file in &files {
        let values = file.read::<f32>();
        let ratios = bounds.map(|(rel, _)| ratio(file, &values, rel, preset));
        println!("{:40} {:8.2} {:8.2} {:8.2}", file.name, ratios[0], ratios[1], ratios[2]);
        if data::RATED.contains(&file.name.as_str()) {
            log_sums.iter_mut().zip(ratios).for_each(|(sum, ratio)| *sum += ratio.ln());
            n_files += 1;
        }
    }
    if n_files as usize != data::RATED.len() {
        println!("no least ratio: only {n_files} of the {} fields for it are here", data::RATED.len());
        return;
    }
    for ((rel, least), log_sum) in bounds.into_iter().zip(log_sums) {
        let mean = (log_sum / f64::from(n_files)).exp();
        println!("{preset:?}, REL {rel:e}: geometric mean {mean:.3}, at least {least}");
        assert!(mean >= least, "{preset:?}, REL {rel:e}: {mean}");
    }
}

#[test]
fn f32_fields_keep_the_bound_and_reach_the_ratio_of_fast() {
    f32_fields_reach(Preset::Fast, [(1e-2, 17.3), (1e-3, 8.3), (1e-4, 5.0)]);
}

#[test]
fn f32_fields_keep_the_bound_and_reach_the_ratio_of_balanced() {
    f32_fields_reach(Preset::Balanced, [(1e-2, 24.2), (1e-3, 9.85), (1e-4, 5.38)]);
}

#[test]
fn f32_fields_keep_the_bound_and_reach_the_ratio_of_small() {
    f32_fields_reach(Preset::Small, [(1e-2, 39.6), (1e-3, 12.7), (1e-4, 6.23)]);
}

#[test]
fn f32_fields_keep_the_bound_and_reach_the_ratios_of_papers() {
    f32_fields_reach(Preset::Cuszp2Plain, [(1e-2, 6.95), (1e-3, 4.23), (1e-4, 3.18)]);
    f32_fields_reach(Preset::Cuszp2Outlier, [(1e-2, 10.4), (1e-3, 5.88), (1e-4, 3.79)]);
    f32_fields_reach(Preset::Ceresz2, [(1e-2, 13.85), (1e-3, 6.6), (1e-4, 3.63)]);
}

#[test]
fn f64_fields_keep_the_bound() {
    let Some(files) = data::files() else { return };
    for file in files.iter().filter(|file| file.dtype == DType::F64) {
        let values = file.read::<f64>();
        for preset in Preset::ALL.iter().copied().filter(|preset| *preset != Preset::Max) {
            let ratios = [1e-2, 1e-3, 1e-4, 1e-6].map(|rel| ratio(file, &values, rel, preset));
            println!("{:40} {ratios:.2?}", file.name);
            assert!(ratios.iter().all(|ratio| *ratio > 1.0), "{}", file.name);
        }
    }
}

/// The presets of papers keep their bounds on every field.
#[test]
fn presets_of_papers_keep_their_bounds() {
    let Some(files) = data::files() else { return };
    for file in &files {
        for preset in [Preset::Cuszplus, Preset::Ceaz] {
            let ratios = [1e-2, 1e-3, 1e-4].map(|rel| match file.dtype {
                DType::F32 => ratio(file, &file.read::<f32>(), rel, preset),
                DType::F64 => ratio(file, &file.read::<f64>(), rel, preset),
            });
            println!("{:9} {:40} {:8.2} {:8.2} {:8.2}", preset.name(), file.name, ratios[0], ratios[1], ratios[2]);
        }
    }
}
