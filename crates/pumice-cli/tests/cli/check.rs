//! `pumice check`: its findings and exit codes.

use crate::sandbox::{Sandbox, smooth};

fn with_files() -> (Sandbox, Vec<f32>) {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[12, 40, 50]);
    values[7] = f32::NAN;
    values[8] = f32::INFINITY;
    sandbox.write_f32("x_12x40x50.f32", &values);
    sandbox.run("compress x_12x40x50.f32 -o x.pum --abs 1e-3 --chunk 4,40,50");
    sandbox.run("decompress x.pum -o y.f32");
    (sandbox, values)
}

#[test]
fn a_kept_bound_is_confirmed() {
    let (sandbox, _) = with_files();
    let report = sandbox.json("check x_12x40x50.f32 x.pum");
    assert_eq!(report["bound_kept"], true);
    assert_eq!(report["bound"], 1e-3);
    assert_eq!(report["n_over"], 0);
    assert_eq!(report["n_mismatched_special"], 0);
    assert_eq!(report["worst_index"].as_array().unwrap().len(), 3);
    assert!(report["max_abs_error"].as_f64().unwrap() <= 1e-3);
    assert!(report["psnr"].as_f64().unwrap() > 50.0);
    assert!(report["nrmse"].as_f64().unwrap() < 1e-3);
    assert!(report["ratio"].as_f64().unwrap() > 1.0);
    assert!(sandbox.run("check x_12x40x50.f32 x.pum").contains("bound kept"));
}

#[test]
fn a_broken_value_is_found_and_named() {
    let (sandbox, _) = with_files();
    let mut restored = sandbox.read_f32("y.f32");
    restored[12_345] += 0.5;
    sandbox.write_f32("broken.f32", &restored);
    let output = sandbox.output("check x_12x40x50.f32 broken.f32 --abs 1e-3 --json");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bound_kept"], false);
    assert_eq!(report["n_over"], 1);
    assert_eq!(report["worst_index"], serde_json::json!([6, 6, 45]));
    sandbox.run("check x_12x40x50.f32 broken.f32 --abs 0.6");
    assert!(sandbox.fails("check x_12x40x50.f32 broken.f32 --rel 1e-3", 1).contains("1 of 24000"));
}

#[test]
fn a_changed_original_breaks_the_stored_bound() {
    let (sandbox, mut values) = with_files();
    values[23_999] += 1.0;
    sandbox.write_f32("x_12x40x50.f32", &values);
    let output = sandbox.output("check x_12x40x50.f32 x.pum --json");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["worst_index"], serde_json::json!([11, 39, 49]));
    // A looser bound can be given.
    sandbox.run("check x_12x40x50.f32 x.pum --abs 2");
}

#[test]
fn special_values_must_not_change() {
    let (sandbox, mut values) = with_files();
    values[7] = f32::from_bits(0x7FC0_0001);
    sandbox.write_f32("x_12x40x50.f32", &values);
    sandbox.fails("check x_12x40x50.f32 x.pum", 1);
}

#[test]
fn a_zero_that_lost_its_sign_is_no_longer_lossless() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_3.f32", &[1.0, -0.0, 2.0]);
    sandbox.run("compress x_3.f32 -o x.pum --lossless");
    sandbox.write_f32("x_3.f32", &[1.0, 0.0, 2.0]);
    sandbox.fails("check x_3.f32 x.pum", 1);
}

#[test]
fn equal_arrays_have_no_finite_psnr() {
    let (sandbox, _) = with_files();
    let report = sandbox.json("check x_12x40x50.f32 x_12x40x50.f32");
    assert_eq!(report["psnr"], serde_json::Value::Null);
    assert_eq!(report["bound"], serde_json::Value::Null);
    assert_eq!(report["bound_kept"], serde_json::Value::Null);
    assert_eq!(report["max_abs_error"], 0.0);
    let text = sandbox.run("check x_12x40x50.f32 x_12x40x50.f32");
    assert!(text.contains("inf"), "{text}");
}

#[test]
fn arrays_of_different_sizes_are_refused() {
    let (sandbox, values) = with_files();
    sandbox.write_f32("short.f32", &values[1..]);
    assert!(sandbox.fails("check short.f32 x.pum", 2).contains("96000 bytes"));
    sandbox.fails("check x_12x40x50.f32 short.f32", 2);
    sandbox.fails("check missing.f32 x.pum", 6);
    assert!(sandbox.fails("check x.pum y.f32", 2).contains("original comes first"));
}
