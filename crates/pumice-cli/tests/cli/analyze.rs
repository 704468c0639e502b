//! `pumice analyze`: its report in text and JSON, from files and streams.

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, smooth};

/// Names of an object's members, in alphabetical order.
fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_json_report_keeps_its_names() {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[12, 40, 50]);
    values[..50].fill(1e20);
    values[60] = f32::NAN;
    sandbox.write_f32("x_12x40x50.f32", &values);
    let report =
        sandbox.json("analyze x_12x40x50.f32 --rel 1e-2,1e-3 --abs 0.5 --lossless --presets fast,small --check");
    assert_eq!(
        names(&report),
        [
            "advice",
            "chunk_shape",
            "dtype",
            "estimates",
            "file",
            "n_chunks",
            "n_values",
            "raw_bytes",
            "residuals",
            "sampled_values",
            "shape",
            "smoothness",
            "values"
        ]
    );
    assert_eq!((&report["dtype"], &report["shape"]), (&json!("f32"), &json!([12, 40, 50])));
    assert_eq!((&report["n_values"], &report["n_chunks"]), (&json!(24_000), &json!(1)));
    let found = &report["values"];
    assert_eq!(
        names(found),
        [
            "fills",
            "is_constant",
            "is_integer",
            "lattice_bits",
            "max",
            "mean",
            "min",
            "n_counted",
            "n_integer",
            "n_nan",
            "n_neg_inf",
            "n_neg_zero",
            "n_pos_inf",
            "n_subnormal",
            "n_zero",
            "quantum_log2",
            "significant_bits",
            "std_dev"
        ]
    );
    assert_eq!((&found["n_nan"], &found["n_counted"]), (&json!(1), &json!(23_949)));
    let fills = found["fills"].as_array().unwrap();
    assert_eq!((&fills[0]["count"], &fills[1]), (&json!(50), &json!({"value": "nan", "count": 1})));
    assert!((fills[0]["value"].as_f64().unwrap() / f64::from(1e20_f32) - 1.0).abs() < 1e-15);
    let axes = report["smoothness"].as_array().unwrap();
    assert_eq!(axes.len(), 3);
    assert_eq!(names(&axes[0]), ["axis", "lags", "madogram"]);
    let residuals = report["residuals"].as_array().unwrap();
    assert_eq!(residuals.len(), 3, "one for each bound but lossless");
    assert_eq!(
        names(&residuals[0]),
        ["abs_bound", "bound", "bound_kind", "interpolation", "lorenzo", "most_likely", "roughness", "smoothness"]
    );
    assert_eq!(names(&residuals[0]["lorenzo"][0]), ["axes", "entropy_bits", "order"]);
    assert_eq!(names(&residuals[0]["interpolation"][0]), ["entropy_bits", "share", "stride"]);
    let estimates = report["estimates"].as_array().unwrap();
    assert_eq!(estimates.len(), 4 * 2);
    for estimate in estimates {
        assert_eq!(
            names(estimate),
            [
                "abs_bound",
                "actual_ratio",
                "bits_per_value",
                "bound",
                "bound_kind",
                "compressed_bytes",
                "error",
                "exact",
                "preset",
                "ratio"
            ]
        );
        assert_eq!((&estimate["exact"], &estimate["error"]), (&json!(true), &json!(0.0)), "{estimate}");
    }
    let advice = &report["advice"];
    assert_eq!(names(advice), ["chunking", "hints", "ratio", "ratio_reason", "speed", "speed_reason"]);
    assert_eq!((&advice["speed"], &advice["ratio"]), (&json!("fast"), &json!("small")));
    assert_eq!(advice["hints"][0]["code"], "fill_value");
}

#[test]
fn the_text_report_lists_the_main_figures() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_300.f32", &(0..300).map(|i| (i % 10) as f32).collect::<Vec<_>>());
    let text = sandbox.run("analyze x_300.f32 --presets fast --rel 1e-2");
    for line in [
        "array             300 f32, 1.20 kB",
        "range             0 to 9",
        "mean              4.5, standard deviation 2.87228",
        "zeros             30 (10 %)",
        "significant bits  4, all integers",
        "ratio to expect, from all values",
        "for speed  fast: nothing else is smaller",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    assert!(text.contains("values carry only 4 of 24 significant bits: lossless is nearly free"), "{text}");
    assert!(!text.contains("(is "), "{text}");
    assert!(sandbox.run("analyze x_300.f32 --presets fast --check").contains("(is "));
}

#[test]
fn streams_and_empty_arrays() {
    let sandbox = Sandbox::new();
    let values = smooth(&[20, 30]);
    sandbox.write_f32("x_20x30.f32", &values);
    let expected = sandbox.json("analyze x_20x30.f32 --presets fast");
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut command = sandbox.command("analyze - --dtype f32 --shape 20,30 --presets fast --json");
    let output = command.write_stdin(bytes).output().unwrap();
    let mut found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["file"] = expected["file"].clone();
    assert_eq!(found, expected);
    sandbox.write("empty_0x5.f32", &[]);
    let report = sandbox.json("analyze empty_0x5.f32");
    assert_eq!((&report["n_values"], &report["values"]["min"]), (&json!(0), &Value::Null));
    assert_eq!(report["advice"]["hints"][0]["code"], "empty");
    assert!(sandbox.run("analyze empty_0x5.f32").contains("there are no values"));
    sandbox.fails("analyze x_20x30.f32 --presets nonsense", 2);
    sandbox.fails("analyze x_20x30.f32 --rel -1", 2);
}
