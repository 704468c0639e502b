//! Targets: PSNR and L2 norm are never missed, ratios are reached or refused, and all of them are met closely where
//! sizes and errors follow the bound without jumps.

use pumice::{
    Achieved, Config, DType, DecodeOptions, Element, ErrorBound, ErrorKind, FileSource, FileWriter, Preset, Reader,
    Real, Summary, Writer, metrics,
};
use pumice_testkit::fields::Field;
use pumice_testkit::{Float, check, data};

/// How well a target is met, measured on the restored values. The bound of the stream is checked as well.
struct Met {
    achieved: Achieved,
    /// On the good side of the target by this many dB, or by this share of the ratio.
    off: f64,
    abs_bound: f64,
}

fn compress<T: Element>(values: &[T], shape: &[usize], config: &Config) -> pumice::Result<(Vec<u8>, Summary)> {
    let mut bytes = Vec::new();
    let summary = pumice::compress_into(values, shape, config, &mut bytes)?;
    Ok((bytes, summary))
}

/// Compresses, decompresses and checks that the target is met; `None` if a ratio was refused.
fn meet<T: Element + Float>(values: &[T], shape: &[usize], config: &Config) -> Option<Met> {
    let (bytes, summary) = match compress(values, shape, config) {
        Err(e) if e.kind() == ErrorKind::InvalidArgument && matches!(config.bound(), ErrorBound::Ratio(_)) => {
            assert!(e.to_string().contains("cannot be reached"), "{e}");
            return None;
        }
        result => result.unwrap(),
    };
    let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
    let restored = reader.read::<T>().unwrap().data;
    let info = reader.info();
    check::verify(values, &restored, info.abs_bound, &info.fills).unwrap();
    assert!(info.bound == config.bound() || (info.bound == ErrorBound::Lossless && info.abs_bound == 0.0));
    let achieved = summary.target.unwrap();
    assert_eq!((achieved.asked, summary.abs_bound), (config.bound(), info.abs_bound));
    assert_eq!(summary.compressed_bytes, bytes.len() as u64);
    // By plain sums, in an order of their own, of values scaled so that squares do not overflow.
    let found = metrics::compare(values, &restored, info.abs_bound, &info.fills);
    let range = found.max * 0.5 - found.min * 0.5;
    let scale = if range > 0.0 { 0.5 / range } else { 1.0 };
    let is_counted = |x: f64| x.is_finite() && !info.fills.contains(&x);
    let pairs = values.iter().zip(&restored).map(|(x, y)| (Real::to_f64(*x), Real::to_f64(*y)));
    let counted = pairs.filter(|(x, _)| is_counted(*x));
    let (n, sum) = counted.fold((0.0, 0.0), |(n, sum), (x, y)| (n + 1.0, sum + ((x - y) * scale).powi(2)));
    let (off, reported) = match config.bound() {
        ErrorBound::Psnr(db) => {
            let psnr = -10.0 * (sum / n).log10();
            (if sum == 0.0 { f64::INFINITY } else { psnr - db }, achieved.value - db)
        }
        ErrorBound::L2(norm) => (20.0 * (norm / (sum.sqrt() / scale)).log10(), 20.0 * (norm / achieved.value).log10()),
        ErrorBound::Ratio(ratio) => (summary.ratio() / ratio - 1.0, achieved.value / ratio - 1.0),
        _ => unreachable!(),
    };
    let what = format!("{config:?}: off by {off}, reported {reported}");
    assert!(off >= 0.0 || info.abs_bound == 0.0, "{what}");
    // Squares of errors far below the target vanish in the search, which then reports none.
    let is_same = (off - reported).abs() < 1e-4 || off == reported || (off > 1000.0 && reported == f64::INFINITY);
    assert!(is_same || sum == 0.0 || info.abs_bound == 0.0, "{what}");
    Some(Met { achieved, off, abs_bound: info.abs_bound })
}

/// Every kind of array, most of which no target fits: never missed all the same.
fn never_missed<T: Element + Float>(preset: Preset, shapes: &[&[usize]]) {
    for field in Field::ALL {
        for (seed, &shape) in shapes.iter().enumerate() {
            let values = field.generate::<T>(shape, seed as u64);
            for bound in [
                ErrorBound::Psnr(25.0),
                ErrorBound::Psnr(61.5),
                ErrorBound::Psnr(120.0),
                ErrorBound::L2(1e-2),
                ErrorBound::L2(30.0),
                ErrorBound::Ratio(3.0),
            ] {
                println!("{field:?} {shape:?} {bound:?}");
                meet(&values, shape, &Config::new(bound).preset(preset).threads(1));
            }
        }
    }
}

#[test]
fn no_field_misses_a_target_under_fast() {
    never_missed::<f32>(Preset::Fast, &[&[5000], &[43, 70], &[9, 21, 30]]);
    never_missed::<f64>(Preset::Fast, &[&[60, 70]]);
}

#[test]
fn no_field_misses_a_target_under_small() {
    never_missed::<f32>(Preset::Small, &[&[70, 75]]);
    never_missed::<f64>(Preset::Small, &[&[9, 21, 30]]);
}

#[test]
fn max_meets_targets() {
    for field in [Field::Turbulence, Field::FillAndNan] {
        let values = field.generate::<f32>(&[40, 60], 3);
        for bound in [ErrorBound::Psnr(50.0), ErrorBound::L2(1.0), ErrorBound::Ratio(5.0)] {
            let met = meet(&values, &[40, 60], &Config::new(bound).preset(Preset::Max).threads(1));
            assert!(met.is_some(), "{field:?}, {bound:?}");
        }
    }
}

/// Fields of more than 1 MB whose errors and sizes follow the bound.
#[test]
fn large_continuous_fields_come_close() {
    let shape = [60, 70, 75];
    let n = 60.0 * 70.0 * 75.0_f64;
    for preset in [Preset::Fast, Preset::Small] {
        for field in [Field::Smooth, Field::Turbulence, Field::Noise, Field::Patches, Field::Specials] {
            let values = field.generate::<f32>(&shape, 7);
            let bounds = [
                ErrorBound::Psnr(40.0),
                ErrorBound::Psnr(66.6),
                ErrorBound::L2(1e-3 * n.sqrt()),
                // Near the precision of f32 the ratio of `small` jumps from 3 to 4, where interpolation begins.
                ErrorBound::Ratio(if preset == Preset::Fast { 3.5 } else { 5.5 }),
                ErrorBound::Ratio(8.0),
            ];
            for bound in bounds {
                let Some(met) = meet(&values, &shape, &Config::new(bound).preset(preset)) else {
                    // White noise with NaN in between need not become that small.
                    assert!(
                        matches!((field, bound), (Field::Specials | Field::Noise, ErrorBound::Ratio(_))),
                        "{field:?}, {bound:?}"
                    );
                    continue;
                };
                let most = if matches!(bound, ErrorBound::Ratio(_)) { 0.03 } else { 0.5 };
                println!("{preset:?} {field:?} {bound:?}: off by {:.4} in {} passes", met.off, met.achieved.n_passes);
                assert!(met.off <= most + 1e-3, "{preset:?} {field:?} {bound:?}: off by {}", met.off);
                assert!(met.achieved.is_close);
            }
        }
    }
}

#[test]
fn real_fields_come_close() {
    let Some(files) = data::files() else { return };
    for file in
        files.iter().filter(|file| ["cesm_TS30", "sim_turb", "pop_SSH"].iter().any(|n| file.name.starts_with(n)))
    {
        let values = file.read::<f32>();
        for bound in [ErrorBound::Psnr(60.0), ErrorBound::Ratio(10.0)] {
            let met = meet(&values, &file.shape, &Config::new(bound).preset(Preset::Fast)).unwrap();
            let most = if matches!(bound, ErrorBound::Ratio(_)) { 0.03 } else { 0.5 };
            println!("{} {bound:?}: off by {:.4} in {} passes", file.name, met.off, met.achieved.n_passes);
            assert!(met.off <= most + 1e-3, "{} {bound:?}: off by {}", file.name, met.off);
        }
    }
}

#[test]
fn arrays_that_need_no_loss_are_lossless() {
    let config = |bound| Config::new(bound);
    for values in [vec![5.25f32; 9000], vec![f32::NAN; 9000], vec![]] {
        for bound in [ErrorBound::Psnr(60.0), ErrorBound::L2(3.0), ErrorBound::Ratio(4.0)] {
            let met = meet(&values, &[values.len()], &config(bound)).unwrap();
            assert_eq!(met.abs_bound, 0.0);
            assert!(!met.achieved.is_close);
        }
    }
    // A few equal values: the header alone is larger.
    assert!(meet(&[1.0f32; 3], &[3], &config(ErrorBound::Ratio(10.0))).is_none());
    assert!(meet(&[1.0f64, 2.0, 4.0], &[3], &config(ErrorBound::Psnr(40.0))).is_some());
    assert!(meet(&[1.0f64], &[], &config(ErrorBound::Psnr(40.0))).is_some());
    // Small integers are small without loss.
    let steps: Vec<f32> = (0..200_000).map(|i| (i / 5000) as f32).collect();
    assert_eq!(meet(&steps, &[200_000], &config(ErrorBound::Ratio(2.0))).unwrap().abs_bound, 0.0);
    assert_eq!(meet(&steps, &[200_000], &config(ErrorBound::L2(0.0))).unwrap().abs_bound, 0.0);
}

/// Squares of such values overflow, or vanish.
#[test]
fn extreme_magnitudes() {
    for scale in [1e308, 1e-300, 1e-310] {
        let values: Vec<f64> = Field::Turbulence.generate::<f64>(&[6000], 2).iter().map(|v| v * scale / 8.0).collect();
        for bound in [ErrorBound::Psnr(50.0), ErrorBound::L2(0.01 * scale), ErrorBound::Ratio(2.0)] {
            meet(&values, &[6000], &Config::new(bound).preset(Preset::Fast));
        }
    }
    let ends = [f64::MAX, -f64::MAX, 1.0, f64::MAX / 3.0].repeat(1000);
    assert!(meet(&ends, &[4000], &Config::new(ErrorBound::Psnr(30.0))).is_some());
}

#[test]
fn named_fills_do_not_count() {
    let mut values = Field::Smooth.generate::<f32>(&[90, 100], 4);
    values.iter_mut().step_by(7).for_each(|v| *v = -50.0);
    let config = Config::new(ErrorBound::Psnr(55.0)).fills(&[-50.0]);
    let met = meet(&values, &[90, 100], &config).unwrap();
    assert!(met.off < 0.5 && met.achieved.is_close);
}

#[test]
fn same_bytes_for_threads_and_sources() {
    let shape = [40, 80, 90];
    for (preset, field) in [(Preset::Fast, Field::Turbulence), (Preset::Small, Field::Patches)] {
        let values = field.generate::<f32>(&shape, 9);
        let mut raw = Vec::new();
        f32::extend_le_bytes(&values, &mut raw);
        let source = FileSource::new(raw, 0, &shape, DType::F32).unwrap();
        for bound in [ErrorBound::Psnr(52.0), ErrorBound::L2(2.0), ErrorBound::Ratio(4.0)] {
            for chunk in [[40, 80, 90], [10, 50, 90]] {
                let config = Config::new(bound).preset(preset).chunk_shape(&chunk);
                let (expected, summary) = compress(&values, &shape, &config.clone().threads(1)).unwrap();
                for threads in [2, 3, 8] {
                    let (bytes, same) = compress(&values, &shape, &config.clone().threads(threads)).unwrap();
                    assert!(bytes == expected && same == summary, "{preset:?}, {bound:?}, {threads} threads");
                }
                let mut streamed = Vec::new();
                let done = std::sync::atomic::AtomicU64::new(0);
                let progress = |n| {
                    done.fetch_max(n, std::sync::atomic::Ordering::Relaxed);
                };
                let same =
                    pumice::compress_from::<f32, _>(&source, &config.threads(2), &mut streamed, &progress).unwrap();
                assert!(streamed == expected && same == summary, "{preset:?}, {bound:?} from a file");
                assert_eq!(done.into_inner(), summary.raw_bytes);
            }
        }
    }
}

#[test]
fn wrong_targets_are_refused() {
    let refused = |bound, says: &str| {
        let error = compress(&[1.0f32, 2.0], &[2], &Config::new(bound)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(says), "{bound:?}: {error}");
    };
    for value in [-1.0, f64::NAN, f64::INFINITY] {
        refused(ErrorBound::Psnr(value), "PSNR must be");
        refused(ErrorBound::L2(value), "L2 norm must be");
        refused(ErrorBound::Ratio(value), "ratio must be");
    }
    refused(ErrorBound::Psnr(0.0), "PSNR must be");
    refused(ErrorBound::Ratio(0.99), "ratio must be");
}

#[test]
fn rows_that_arrive_cannot_have_a_target() {
    for bound in [ErrorBound::Psnr(60.0), ErrorBound::L2(1.0), ErrorBound::Ratio(10.0)] {
        let config = Config::new(bound).range(0.0, 1.0);
        let error = Writer::<f32, _>::new(Vec::new(), &[4], &config).unwrap_err();
        assert!(error.to_string().contains("the whole array"), "{error}");
    }
}

/// Rows that are added keep the bound that the target came to; the file no longer claims the target.
#[test]
fn appended_rows_keep_the_bound_that_was_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("target.pum");
    let values = Field::Smooth.generate::<f32>(&[200, 100], 1);
    for chunk in [[200, 100], [90, 100]] {
        let config = Config::new(ErrorBound::Psnr(50.0)).chunk_shape(&chunk);
        let bytes = pumice::compress(&values, &[200, 100], &config).unwrap();
        let abs_bound = pumice::inspect(&bytes).unwrap().abs_bound;
        std::fs::write(&path, &bytes).unwrap();
        FileWriter::<f32>::append(&path, 1).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "nothing was added");
        let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
        writer.write_rows(&values[..1000]).unwrap();
        writer.finish().unwrap();
        let reader = Reader::open(&path, DecodeOptions::new()).unwrap();
        assert_eq!((reader.info().bound, reader.info().abs_bound), (ErrorBound::Abs(abs_bound), abs_bound));
        let all = [&values[..], &values[..1000]].concat();
        check::verify(&all, &reader.read::<f32>().unwrap().data, abs_bound, &[]).unwrap();
    }
}
