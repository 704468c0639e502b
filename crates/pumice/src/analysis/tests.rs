use super::*;

/// Uniform in [0, 1).
fn noise(n: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| next()).collect()
}

fn analysed<T: Element>(values: &[T], shape: &[usize]) -> Analysis {
    let presets = [Preset::Fast, Preset::Small];
    analyze(values, shape, &AnalysisOptions::new().presets(&presets).threads(1)).unwrap()
}

fn codes(analysis: &Analysis) -> Vec<&'static str> {
    analysis.advice.hints.iter().map(|hint| hint.code).collect()
}

#[test]
fn constant_values() {
    let found = analysed(&[273.25_f32; 5000], &[50, 100]);
    assert!(found.profile.is_constant() && !found.profile.is_integer());
    assert_eq!((found.profile.mean, found.profile.std_dev), (273.25, 0.0));
    assert_eq!((found.profile.significant_bits, found.profile.quantum_log2), (11, Some(-2)));
    assert_eq!(found.profile.lattice_bits(), Some(0.0));
    assert_eq!(codes(&found), ["constant"]);
    assert!(found.residuals.is_empty(), "a relative bound of no range is lossless");
    assert_eq!(found.estimates[0].bound, ErrorBound::Rel(1e-2), "the bound as it was asked for");
}

#[test]
fn a_ramp_of_integers() {
    let ramp: Vec<f64> = (0..4000).map(f64::from).collect();
    let found = analysed(&ramp, &[40, 100]);
    assert!(found.profile.is_integer());
    assert_eq!((found.profile.min, found.profile.max, found.profile.mean), (0.0, 3999.0, 1999.5));
    assert!((found.profile.std_dev - (f64::from(4000 * 4000 - 1) / 12.0).sqrt()).abs() < 1e-9);
    assert_eq!((found.profile.n_zero, found.profile.n_neg_zero), (1, 0));
    assert!(codes(&found).contains(&"integers") && codes(&found).contains(&"single_precision"), "{:?}", found.advice);
    let along = &found.madograms[1];
    assert_eq!((along.axis, along.points[0].lag), (1, 1));
    assert!((along.points[2].difference - 3.0 / 3999.0).abs() < 1e-12);
    let both = found.residuals[2].lorenzo.iter().find(|l| l.axes == [0, 1]).unwrap();
    assert!(both.bits < 1.0, "{both:?}");
}

#[test]
fn white_noise() {
    let found = analysed(&noise(30_000), &[30_000]);
    assert!(codes(&found).contains(&"noise"), "{:?}", found.advice);
    assert!(found.madograms[0].points.iter().all(|p| (p.difference - 1.0 / 3.0).abs() < 0.01));
    // A step of 2 % of the range: 50 values, all equally frequent. Their differences take more bits.
    let bits = found.residuals[0].lorenzo[0].bits;
    assert!((50_f64.log2()..50_f64.log2() + 1.0).contains(&bits), "{bits}");
    assert!(found.residuals[0].roughness > 0.9);
}

#[test]
fn special_values() {
    let mut values: Vec<f32> = noise(6000).iter().map(|x| 1.0 + x).collect();
    values[..100].fill(1e20);
    values[100..130].fill(f32::NAN);
    values[200] = f32::INFINITY;
    values[201] = f32::NEG_INFINITY;
    values[300] = -0.0;
    values[301] = 0.0;
    values[302] = f32::from_bits(1);
    let profile = analysed(&values, &[6000]).profile;
    assert_eq!((profile.n_nan, profile.n_pos_inf, profile.n_neg_inf), (30, 1, 1));
    assert_eq!((profile.n_zero, profile.n_neg_zero, profile.n_subnormal), (2, 1, 1));
    assert_eq!(profile.n_counted, 6000 - 132);
    assert_eq!(profile.fills[0], (f64::from(1e20_f32), 100));
    assert!(profile.fills[1].0.is_nan() && profile.fills[1].1 == 30);
    assert_eq!((profile.min, profile.quantum_log2), (0.0, Some(-149)));
    let found = analysed(&values, &[6000]);
    for code in ["fill_value", "nan", "infinities"] {
        assert!(codes(&found).contains(&code), "{code}: {:?}", found.advice);
    }
    assert!(found.advice.hints[0].text.contains("fill value 1e20 found"), "{:?}", found.advice.hints);
}

#[test]
fn components_and_few_bits() {
    let wave = |i: usize| (i as f32 * 0.01).sin();
    let mixed: Vec<f32> = (0..6000).map(|i| [0.0, 40.0, -9.0][i % 3] + wave(i / 3)).collect();
    let found = analysed(&mixed, &[6000]);
    let hint = found.advice.hints.iter().find(|hint| hint.code == "interleaved").expect("components are seen");
    assert!(hint.text.contains("3 interleaved components"), "{}", hint.text);
    assert!(codes(&analysed(&mixed, &[2000, 3])).contains(&"component_axis"));
    let coarse: Vec<f32> = (0..6000).map(|i| (wave(i) * 512.0).round() / 512.0).collect();
    let found = analysed(&coarse, &[60, 100]);
    assert!(found.profile.significant_bits <= 10);
    assert!(codes(&found).contains(&"few_significant_bits"));
}

#[test]
fn nothing_and_next_to_nothing() {
    let found = analysed::<f32>(&[], &[0, 5]);
    assert_eq!((found.n_values, codes(&found)), (0, vec!["empty"]));
    assert!(found.profile.min.is_nan() && found.profile.std_dev.is_nan() && !found.profile.is_constant());
    let scalar = analysed(&[1.5_f64], &[]);
    assert!(scalar.profile.is_constant() && scalar.madograms.is_empty());
    let none = analyze(&[1.0_f32, 2.0], &[2], &AnalysisOptions::new().presets(&[]).bounds(&[])).unwrap();
    assert!(none.estimates.is_empty() && none.advice.ratio.is_none());
    assert!(analyze(&[1.0_f32], &[2], &AnalysisOptions::new()).is_err());
    assert!(analyze(&[1.0_f32], &[1], &AnalysisOptions::new().bounds(&[ErrorBound::Abs(-1.0)])).is_err());
}

#[test]
fn progress_reaches_the_end() {
    let last = std::sync::Mutex::new(0.0);
    let values = noise(1 << 16);
    let source = SliceSource::new(&values, &[256, 256]).unwrap();
    let options = AnalysisOptions::new().presets(&[Preset::Fast]);
    analyze_from(&source, &options, &|share| {
        assert!((0.0..=1.0).contains(&share), "{share}");
        *last.lock().unwrap() = share;
    })
    .unwrap();
    assert_eq!(*last.lock().unwrap(), 1.0);
}
