//! Fill values come back bit for bit and do not count for the range, whoever finds them.

use pumice::{Config, Element, ErrorBound, Preset, Writer};

const PRESETS: [Preset; 4] = [Preset::Fast, Preset::Balanced, Preset::Small, Preset::Max];
const FILLS: [f64; 8] = [-999.0, -9999.0, -32_768.0, 1e20, 9.969_209_968_386_869e36, -1e34, 9999.0, 99_999.0];
const SHAPE: [usize; 3] = [10, 20, 30];

/// Waves with noise around 285.
fn waves<T: Element>() -> Vec<T> {
    let noise = |i: u32| f64::from(i.wrapping_mul(0x9E37_79B9) >> 8) / f64::from(1 << 24);
    (0..6000).map(|i| T::from_f64(285.0 + 15.0 * (f64::from(i) * 0.01).sin() + noise(i))).collect()
}

/// Checks that fill values came back, and others within a bound.
fn check<T: Element>(values: &[T], restored: &[T], fills: &[f64], bound: f64, context: &str) {
    let fills: Vec<u64> = fills.iter().map(|fill| T::from_f64(*fill).to_bits_u64()).collect();
    for (x, y) in values.iter().zip(restored) {
        if fills.contains(&x.to_bits_u64()) {
            assert_eq!(x.to_bits_u64(), y.to_bits_u64(), "{context}: {x:?} became {y:?}");
        } else {
            assert!((x.to_f64() - y.to_f64()).abs() <= bound, "{context}: {x:?} became {y:?}");
        }
    }
}

fn unnamed_masks_come_back<T: Element>() {
    let plain = waves::<T>();
    for fill in FILLS {
        // One value, a few, 1 %, 40 %, and all.
        for n in [1, 3, 60, 2400, 6000] {
            let mut values = plain.clone();
            (0..n).for_each(|i| values[i * 7 % 6000] = T::from_f64(fill));
            for preset in PRESETS {
                for bound in [ErrorBound::Rel(1e-3), ErrorBound::Abs(0.05), ErrorBound::Abs(30.0)] {
                    let config = Config::new(bound).preset(preset).threads(1);
                    let bytes = pumice::compress(&values, &SHAPE, &config).unwrap();
                    let limit = if let ErrorBound::Abs(abs) = bound { abs } else { 0.032 };
                    let restored = pumice::decompress::<T>(&bytes).unwrap().data;
                    check(&values, &restored, &[fill], limit, &format!("{n} of {fill}, {bound}, {preset:?}"));
                    assert_eq!(pumice::inspect(&bytes).unwrap().fills, [T::from_f64(fill).to_f64()]);
                }
            }
        }
    }
}

#[test]
fn unnamed_masks_come_back_f32() {
    unnamed_masks_come_back::<f32>();
}

#[test]
fn unnamed_masks_come_back_f64() {
    unnamed_masks_come_back::<f64>();
}

/// More than there are masks, near the other values.
const NAMED: [f64; 5] = [250.0, 260.0, 310.0, 320.0, 262.5];

fn with_named<T: Element>() -> Vec<T> {
    let mut values = waves::<T>();
    for (i, fill) in NAMED.iter().enumerate() {
        values[1000 * i..1000 * i + 100 + 20 * i].fill(T::from_f64(*fill));
    }
    values[5500] = T::from_f64(f64::NAN);
    values
}

#[test]
fn several_named_values_come_back() {
    fn of<T: Element>() {
        let values = with_named::<T>();
        let with_nan = [&NAMED[..], &[f64::NAN]].concat();
        let with_absent = [&NAMED[..], &[17.0, -5.0]].concat();
        for preset in Preset::ALL {
            for bound in [ErrorBound::Rel(1e-2), ErrorBound::Abs(3.0), ErrorBound::PwRel(1e-2), ErrorBound::Abs(1e-12)]
            {
                let config = Config::new(bound).preset(*preset).threads(1).fills(&with_absent);
                let bytes = pumice::compress(&values, &SHAPE, &config).unwrap();
                let restored = pumice::decompress::<T>(&bytes).unwrap().data;
                let limit = if matches!(bound, ErrorBound::Rel(_)) { 0.32 } else { 3.1 };
                check(&values, &restored, &with_nan, limit, &format!("{bound}, {preset:?}"));
                assert_eq!(pumice::inspect(&bytes).unwrap().fills, [262.5, 320.0]);
            }
        }
    }
    of::<f32>();
    of::<f64>();
}

#[test]
fn several_named_values_come_back_from_regions_and_bins() {
    let values = with_named::<f32>();
    let config = Config::new(ErrorBound::Abs(2.0)).fills(&NAMED).threads(1);
    let config = config.region(&[0..3, 0..20, 5..25], ErrorBound::Abs(0.01));
    let config = config.region(&[5..6, 0..20, 0..30], ErrorBound::PwRel(1e-3));
    let restore = |config: &Config| {
        let bytes = pumice::compress(&values, &SHAPE, config).unwrap();
        pumice::decompress::<f32>(&bytes).unwrap().data
    };
    check(&values[..5500], &restore(&config)[..5500], &NAMED, 2.0, "regions");
    let restored = restore(&config.bin(&[1, 2, 2]));
    for fill in NAMED {
        let bits = |all: &[f32]| all.iter().map(|x| f64::from(*x) == fill).collect::<Vec<_>>();
        assert_eq!(bits(&restored), bits(&values), "{fill}");
    }
}

#[test]
fn fill_values_do_not_depend_on_threads_or_chunks() {
    let mut values: Vec<f32> = waves::<f32>().iter().cycle().take(600_000).copied().collect();
    values[1000..3000].fill(-999.0);
    values[400_000..500_000].fill(9999.0);
    values[590_000] = 1e20;
    let compress = |threads| {
        let config = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast).chunk_shape(&[10, 6000]).threads(threads);
        pumice::compress(&values, &[100, 6000], &config).unwrap()
    };
    let bytes = compress(1);
    assert!(bytes == compress(4));
    assert_eq!(pumice::inspect(&bytes).unwrap().fills, [9999.0, -999.0]);
    let restored = pumice::decompress::<f32>(&bytes).unwrap().data;
    check(&values, &restored, &[-999.0, 9999.0, 1e20], 0.04, "three");
}

#[test]
fn a_writer_keeps_what_it_finds() {
    let mut values: Vec<f32> = waves::<f32>().iter().cycle().take(30_000).copied().collect();
    // The first chunk has two; later ones have others.
    values[2000..2500].fill(-999.0);
    values[5500..5600].fill(275.5);
    values[13_000..13_400].fill(1e20);
    values[14_000..14_400].fill(9999.0);
    values[25_000] = -32_768.0;
    values[26_000..26_100].fill(275.5);
    for preset in PRESETS {
        for bound in [ErrorBound::Abs(0.3), ErrorBound::Rel(1e-2), ErrorBound::PwRel(1e-3)] {
            let config = Config::new(bound).range(270.0, 301.0).preset(preset).fills(&[275.5]).chunk_shape(&[100, 100]);
            let write = |threads, rows_at_once: usize| {
                let config = config.clone().threads(threads);
                let mut writer = Writer::<f32, _>::new(Vec::new(), &[100], &config).unwrap();
                values.chunks(100 * rows_at_once).for_each(|rows| writer.write_rows(rows).unwrap());
                writer.finish().unwrap()
            };
            let (bytes, summary) = write(1, 7);
            assert!(bytes == write(3, 60).0);
            assert_eq!(summary.fills, [275.5, -999.0]);
            let fills = [-999.0, 1e20, 9999.0, -32_768.0, 275.5];
            let restored = pumice::decompress::<f32>(&bytes).unwrap().data;
            check(&values, &restored, &fills, 0.32, &format!("{bound}, {preset:?}"));
        }
    }
}
