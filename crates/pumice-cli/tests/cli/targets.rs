//! `--psnr`, `--l2` and `--ratio`, from compression to the check of the result.

use crate::sandbox::{Sandbox, smooth, stderr};

const LAYOUT: &str = "x_30x60x70.f32";

/// A field with some roughness, so that ratios are not extreme.
fn with_file() -> (Sandbox, Vec<f32>) {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[30, 60, 70]);
    let mut state = 1u32;
    for value in &mut values {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *value += (state >> 8) as f32 / 2f32.powi(24) * 0.2;
    }
    sandbox.write_f32(LAYOUT, &values);
    (sandbox, values)
}

#[test]
fn targets_are_met_reported_and_checked() {
    let (sandbox, _) = with_file();
    for (kind, asked) in [("psnr", 50.0), ("l2", 2.0), ("ratio", 6.0)] {
        for preset in ["fast", "small"] {
            let report =
                sandbox.json(&format!("compress {LAYOUT} -o x.pum --{kind} {asked} --preset {preset} --verify"));
            assert_eq!((&report["bound_kind"], &report["bound"]), (&kind.into(), &asked.into()));
            let target = &report["target"];
            assert_eq!(
                (&target["kind"], &target["asked"], &target["is_close"]),
                (&kind.into(), &asked.into(), &true.into())
            );
            assert!(target["passes"].as_u64().unwrap() > 0);
            let info = sandbox.json("info x.pum");
            assert_eq!((&info["bound_kind"], &info["bound"]), (&kind.into(), &asked.into()));
            assert_eq!(info["abs_bound"], report["abs_bound"]);
            let checked = sandbox.json(&format!("check {LAYOUT} x.pum"));
            assert_eq!((&checked["bound_kept"], &checked["target"]["is_met"]), (&true.into(), &true.into()));
            let achieved = checked["target"]["achieved"].as_f64().unwrap();
            assert!((achieved / target["achieved"].as_f64().unwrap() - 1.0).abs() < 1e-5, "{kind}: {achieved}");
        }
    }
    let text = sandbox.run(&format!("compress {LAYOUT} -o x.pum --psnr 50"));
    assert!(text.contains("for a PSNR of 50 dB") && text.contains("target: PSNR 50."), "{text}");
    assert!(sandbox.run("info x.pum").contains("for a PSNR of 50 dB"));
    assert!(sandbox.run(&format!("check {LAYOUT} x.pum")).contains("target met"));
}

#[test]
fn a_missed_target_is_found() {
    let (sandbox, mut values) = with_file();
    sandbox.run(&format!("compress {LAYOUT} -o x.pum --psnr 50"));
    let abs_bound = sandbox.json("info x.pum")["abs_bound"].as_f64().unwrap();
    let restored = {
        sandbox.run("decompress x.pum -o y.f32");
        sandbox.read_f32("y.f32")
    };
    // All errors are as large as the bound allows, which is more than the PSNR does.
    values.iter_mut().zip(&restored).for_each(|(x, y)| *x = y + 0.99 * abs_bound as f32);
    sandbox.write_f32(LAYOUT, &values);
    let message = sandbox.fails(&format!("check {LAYOUT} x.pum"), 1);
    assert!(message.contains("the target is missed"), "{message}");
}

#[test]
fn unreachable_ratios_are_reported() {
    let (sandbox, _) = with_file();
    let message = sandbox.fails(&format!("compress {LAYOUT} -o x.pum --ratio 1e7"), 2);
    assert!(message.contains("cannot be reached"), "{message}");
    assert_eq!(sandbox.files(), [LAYOUT]);
    sandbox.write_f32("c_9000.f32", &[2.5; 9000]);
    let text = sandbox.run("compress c_9000.f32 -o c.pum --ratio 10");
    assert!(text.contains("lossless") && text.contains("nothing closer"), "{text}");
}

/// There is nothing to search for, and nothing to say about it.
#[test]
fn arrays_without_values_or_of_one_value_meet_any_target() {
    let sandbox = Sandbox::new();
    sandbox.write("empty.f32", b"");
    let text = sandbox.run("compress empty.f32 -o x.pum --shape 0,5 --ratio 5");
    assert!(text.contains("target: met") && text.contains("(-)") && !text.contains("nothing closer"), "{text}");
    let info = sandbox.run("info x.pum");
    assert!(!info.contains("0.00x") && !info.contains("inf"), "{info}");
    sandbox.write_f32("c_9000.f32", &[2.5; 9000]);
    let text = sandbox.run("compress c_9000.f32 -o x.pum --psnr 60");
    assert!(text.contains("without loss") && !text.contains("pass"), "{text}");
}

#[test]
fn streams_are_stored_until_the_bound_is_found() {
    let (sandbox, values) = with_file();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let line = "compress - -o x.pum --shape 30,60,70 --dtype f32 --psnr 50";
    let output = sandbox.command(line).write_stdin(bytes).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    sandbox.run(&format!("compress {LAYOUT} -o y.pum --psnr 50"));
    assert_eq!(sandbox.read("x.pum"), sandbox.read("y.pum"));
}

#[test]
fn wrong_targets_exit_with_2() {
    let (sandbox, _) = with_file();
    for wrong in [
        "--psnr 0",
        "--psnr -3",
        "--psnr nan",
        "--l2 -1",
        "--ratio 0.5",
        "--ratio nan",
        "--psnr 50 --ratio 3",
        "--psnr 50 --range 0,1",
    ] {
        sandbox.fails(&format!("compress {LAYOUT} -o x.pum {wrong}"), 2);
    }
}

#[test]
fn bench_shows_how_well_targets_are_met() {
    let (sandbox, _) = with_file();
    let report = sandbox.json(&format!("bench {LAYOUT} --preset fast --psnr 40,60 --l2 3 --ratio 4,1e7"));
    let rows = report.as_array().unwrap();
    assert_eq!(rows.len(), 5);
    assert!(rows[..4].iter().all(|row| row["outcome"]["is_met"] == true), "{rows:?}");
    assert!(rows[4]["outcome"].is_null() && rows[4]["remark"].as_str().unwrap().contains("cannot be reached"));
    assert!(sandbox.run(&format!("bench {LAYOUT} --ratio 5")).contains("achieved"));
}
