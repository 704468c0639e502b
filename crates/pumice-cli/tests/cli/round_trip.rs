//! Compress and decompress: values, headers, regions, options and reports.

use crate::sandbox::{Sandbox, max_error, smooth, stderr};

const SHAPE: [usize; 3] = [40, 30, 40];

fn with_field() -> (Sandbox, Vec<f32>) {
    let sandbox = Sandbox::new();
    let values = smooth(&SHAPE);
    sandbox.write_f32("x_40x30x40.f32", &values);
    (sandbox, values)
}

/// A `.npy` file as NumPy writes it.
pub(crate) fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    text += &" ".repeat(128 - 10 - 1 - text.len());
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn raw_files_keep_the_bound_and_are_reported() {
    let (sandbox, values) = with_field();
    let report = sandbox.json("compress x_40x30x40.f32 -o x.pum --rel 1e-3");
    assert_eq!(report["raw_bytes"], 192_000);
    assert_eq!(report["compressed_bytes"], sandbox.read("x.pum").len());
    assert_eq!(report["preset"], "small");
    assert_eq!(report["shape"], serde_json::json!(SHAPE));
    assert!(report["ratio"].as_f64().unwrap() > 1.5, "{report}");
    assert!(report["seconds"].as_f64().unwrap() >= 0.0);
    let bound = report["abs_bound"].as_f64().unwrap();
    sandbox.run("decompress x.pum -o y.f32");
    let restored = sandbox.read_f32("y.f32");
    assert!(max_error(&values, &restored) <= bound);
    assert!(bound > 0.0 && bound < 5e-3);
    assert_eq!(sandbox.files(), ["x.pum", "x_40x30x40.f32", "y.f32"]);
}

#[test]
fn npy_files_come_back_as_numpy_writes_them() {
    let sandbox = Sandbox::new();
    let values: Vec<f64> = (0..600).map(|i| (f64::from(i) * 0.01).sin() * 1e5).collect();
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let original = npy("<f8", "False", "(20, 30)", &data);
    sandbox.write("x.npy", &original);
    sandbox.run("compress x.npy -o x.pum --abs 0.5");
    sandbox.run("decompress x.pum -o y.npy");
    let restored = sandbox.read("y.npy");
    assert_eq!(restored[..128], original[..128]);
    for (a, b) in values.iter().zip(restored[128..].as_chunks().0) {
        assert!((a - f64::from_le_bytes(*b)).abs() <= 0.5);
    }
}

#[test]
fn lossless_keeps_every_bit() {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[1000]);
    values[3] = -0.0;
    values[4] = f32::from_bits(0x7FC0_1234);
    values[5] = f32::NEG_INFINITY;
    values[6] = f32::from_bits(1);
    sandbox.write_f32("x_1000.f32", &values);
    sandbox.run("compress x_1000.f32 -o x.pum --lossless --verify");
    sandbox.run("decompress x.pum -o y.f32");
    assert_eq!(sandbox.read("x_1000.f32"), sandbox.read("y.f32"));
    sandbox.run("check x_1000.f32 x.pum");
}

#[test]
fn regions_are_slices_of_the_whole() {
    let (sandbox, _) = with_field();
    sandbox.run("compress x_40x30x40.f32 -o x.pum --rel 1e-3 --chunk 17,20,32");
    sandbox.run("decompress x.pum -o y.f32");
    let whole = sandbox.read_f32("y.f32");
    let report = sandbox.json("decompress x.pum -o part.f32 --region 3:38,-5:,7");
    assert_eq!(report["shape"], serde_json::json!([35, 5, 1]));
    let expected: Vec<f32> =
        (3..38).flat_map(|z| (25..30).map(move |y| (z, y))).map(|(z, y)| whole[(z * 30 + y) * 40 + 7]).collect();
    assert_eq!(sandbox.read_f32("part.f32"), expected);
    sandbox.run("decompress x.pum -o part.npy --region 0:2");
    let part = sandbox.read("part.npy");
    assert!(String::from_utf8_lossy(&part[..128]).contains("(2, 30, 40)"));
    assert_eq!(crate::sandbox::f32_values(&part[128..]), whole[..2400]);
    assert!(sandbox.fails("decompress x.pum -o part.f32 --region 0:41", 2).contains("past the end"));
}

#[test]
fn chunks_and_standard_output_give_the_same_values() {
    let (sandbox, _) = with_field();
    sandbox.run("compress x_40x30x40.f32 -o x.pum --abs 1e-3 --chunk 16,20,32");
    sandbox.run("decompress x.pum -o y.f32 --threads 2");
    let piped = sandbox.output("decompress x.pum -o -");
    assert!(piped.status.success());
    assert_eq!(piped.stdout, sandbox.read("y.f32"));
}

#[test]
fn options_are_stored_and_shown() {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[80, 200]);
    values[100..200].fill(-9999.0);
    sandbox.write_f32("x_80x200.f32", &values);
    let options = "--range -5,5 --fill -9999 --attr units=K --attr name=T=2m --chunk 40,200";
    sandbox.run(&format!("compress x_80x200.f32 -o x.pum --rel 1e-3 {options}"));
    let info = sandbox.json("info x.pum");
    assert_eq!(info["dtype"], "f32");
    assert_eq!(info["shape"], serde_json::json!([80, 200]));
    assert_eq!(info["chunk_shape"], serde_json::json!([40, 200]));
    assert_eq!(info["n_chunks"], 2);
    assert_eq!(info["bound_kind"], "rel");
    assert_eq!(info["bound"], 1e-3);
    assert_eq!(info["abs_bound"], 0.01);
    assert_eq!(info["attributes"], serde_json::json!({"units": "K", "name": "T=2m"}));
    assert!(info["fills"].as_array().unwrap().contains(&serde_json::json!(-9999.0)), "{info}");
    assert!(info["bits_per_value"].as_f64().unwrap() > 0.0);
    let text = sandbox.run("info x.pum");
    assert!(text.contains("80 x 200 f32") && text.contains("units") && text.contains("-9999"), "{text}");
    sandbox.run("decompress x.pum -o y.f32");
    assert_eq!(sandbox.read_f32("y.f32")[100..200], values[100..200]);
}

#[test]
fn the_bytes_do_not_depend_on_threads() {
    let (sandbox, _) = with_field();
    sandbox.run("compress x_40x30x40.f32 -o one.pum --rel 1e-3 --threads 1 --chunk 10,30,40");
    sandbox.run("compress x_40x30x40.f32 -o many.pum --rel 1e-3 --threads 4 --chunks 10,30,40");
    assert_eq!(sandbox.read("one.pum"), sandbox.read("many.pum"));
}

#[test]
fn verification_is_reported() {
    let (sandbox, _) = with_field();
    assert_eq!(sandbox.json("compress x_40x30x40.f32 -o x.pum --rel 1e-3 --verify")["verified"], true);
    assert!(sandbox.run("compress x_40x30x40.f32 -o x.pum --rel 1e-3 --verify").contains("verified"));
}

#[test]
fn quiet_prints_nothing() {
    let (sandbox, _) = with_field();
    let output = sandbox.output("compress x_40x30x40.f32 -o x.pum --rel 1e-3 --quiet");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn arrays_of_no_values_and_of_one_round_trip() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("none_0x5.f32", &[]);
    sandbox.write_f32("one_1x1.f32", &[42.5]);
    sandbox.write("scalar.npy", &npy("<f4", "False", "()", &1.5f32.to_le_bytes()));
    for name in ["none_0x5.f32", "one_1x1.f32", "scalar.npy"] {
        sandbox.run(&format!("compress {name} -o x.pum --abs 0.1 --verify"));
        sandbox.run("info x.pum");
        sandbox.run(&format!("decompress x.pum -o back_{name}"));
        sandbox.run(&format!("check {name} x.pum"));
        assert_eq!(sandbox.read(name).len(), sandbox.read(&format!("back_{name}")).len());
    }
    assert!((sandbox.read_f32("back_one_1x1.f32")[0] - 42.5).abs() <= 0.1);
}

#[test]
fn the_output_must_not_be_the_input() {
    let (sandbox, _) = with_field();
    assert!(
        sandbox.fails("compress x_40x30x40.f32 -o ./x_40x30x40.f32 --rel 1e-3", 2).contains("both input and output")
    );
    assert_eq!(sandbox.read("x_40x30x40.f32").len(), 192_000);
}

#[test]
fn copies_in_the_stable_mode_keep_every_bit() {
    let (sandbox, _) = with_field();
    sandbox.run("compress x_40x30x40.f32 -o x.pum --abs 0.013 --stable");
    assert_eq!(sandbox.json("info x.pum")["stable"], true);
    assert!(sandbox.run("info x.pum").contains("changes no value"));
    sandbox.run("decompress x.pum -o y_40x30x40.f32");
    for (i, preset) in ["fast", "balanced", "max"].into_iter().enumerate() {
        sandbox.run(&format!(
            "compress y_40x30x40.f32 -o y.pum --abs 0.013 --stable --preset {preset} --chunk {},30,40",
            9 + i
        ));
        sandbox.run("decompress y.pum -o z.f32");
        assert_eq!(sandbox.read("z.f32"), sandbox.read("y_40x30x40.f32"), "{preset}");
    }
    let refused = sandbox.fails("compress x_40x30x40.f32 -o y.pum --pwrel 1e-3 --stable", 2);
    assert!(refused.contains("stable mode"), "{refused}");
    assert_eq!(sandbox.json("compress x_40x30x40.f32 -o x.pum --abs 0.013").get("stable"), None);
    assert_eq!(sandbox.json("info x.pum")["stable"], false);
}

#[test]
fn codebooks_are_trained_and_used() {
    let (sandbox, values) = with_field();
    let noise: Vec<f32> = values.iter().enumerate().map(|(i, x)| x + (i * i % 17) as f32 * 1e-3).collect();
    sandbox.write_f32("y_40x30x40.f32", &noise);
    let report = sandbox.json("codebook y_40x30x40.f32 -o run.pumb --abs 1e-4 --chunk 20,30,40");
    assert_eq!(report["bytes"], sandbox.read("run.pumb").len());
    sandbox.run("compress y_40x30x40.f32 -o y.pum --abs 1e-4 --chunk 20,30,40 --preset balanced --codebook run.pumb");
    sandbox.run(
        "compress y_40x30x40.f32 -o z.pum --abs 1e-4 --chunk 20,30,40 --preset balanced --codebook y.pum --verify",
    );
    assert_eq!(sandbox.read("y.pum"), sandbox.read("z.pum"));
    let info = sandbox.json("info y.pum");
    assert_eq!(info["codebook"]["id"], report["id"]);
    assert!(sandbox.run("info y.pum").contains(report["id"].as_str().unwrap()));
    sandbox.run("decompress y.pum -o back.f32");
    assert!(max_error(&noise, &sandbox.read_f32("back.f32")) <= 1e-4);
    // Compressed files have their bounds.
    sandbox.run("codebook y.pum z.pum -o again.pumb");
    for (line, message) in [
        ("compress y_40x30x40.f32 -o w.pum --abs 1 --codebook run.pumb", "balanced"),
        ("compress y_40x30x40.f32 -o w.pum --abs 1 --preset balanced --codebook y_40x30x40.f32", "pumice codebook"),
        ("codebook y_40x30x40.f32 -o w.pumb", "--abs"),
    ] {
        let failed = sandbox.command(line).output().unwrap();
        assert!(!failed.status.success() && stderr(&failed).contains(message), "{line}: {}", stderr(&failed));
    }
}
