//! `--device`, mostly on machines without a device; where there is one, its bytes must equal the CPU's.

use crate::sandbox::{Sandbox, smooth};

const COMPRESS: &str = "compress x_40x50x60.f32 --rel 1e-3 --preset fast --chunk 16,32,32";

/// The exit code of `--device cuda` without a device, or in a build without CUDA.
const NO_DEVICE: i32 = if cfg!(feature = "cuda") { 8 } else { 3 };

/// A sandbox with an array and its stream, and whether there is a device.
fn prepared() -> (Sandbox, bool) {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_40x50x60.f32", &smooth(&[40, 50, 60]));
    assert_eq!(sandbox.json(&format!("{COMPRESS} -o cpu.pum"))["device"], "cpu");
    let report = sandbox.json(&format!("{COMPRESS} -o auto.pum --device auto"));
    (sandbox, report["device"] == "cuda")
}

#[test]
fn without_a_device_cuda_is_an_error() {
    let (sandbox, has_device) = prepared();
    if has_device {
        return;
    }
    let files = sandbox.files();
    for line in [
        &format!("{COMPRESS} -o x.pum --device cuda"),
        "decompress cpu.pum -o x.npy --device cuda",
        "bench x_40x50x60.f32 --device cuda",
    ] {
        let message = sandbox.fails(line, NO_DEVICE);
        assert!(
            message.contains("CUDA") && message.contains("hint: ") && message.contains("--device cpu"),
            "{message}"
        );
    }
    assert_eq!(sandbox.files(), files);
}

#[test]
fn without_a_device_auto_uses_the_cpu() {
    let (sandbox, has_device) = prepared();
    if has_device {
        return;
    }
    for line in [&format!("{COMPRESS} -o x.pum --device auto"), "decompress cpu.pum -o x.npy --device auto"] {
        let report = sandbox.json(line);
        assert_eq!(report["device"], "cpu", "{report}");
        assert!(report["device_reason"].as_str().unwrap().contains("CUDA"), "{report}");
        let text = sandbox.run(line);
        assert!(text.contains("device: cpu, since"), "{text}");
    }
    let rows = sandbox.json("bench x_40x50x60.f32 --device auto --min-size 0 --runs 1");
    assert_eq!((&rows[0]["device"], &rows[0]["preset"]), (&"cpu".into(), &"small".into()));
}

#[test]
fn bytes_do_not_depend_on_the_device() {
    let (sandbox, has_device) = prepared();
    assert!(sandbox.read("auto.pum") == sandbox.read("cpu.pum"));
    sandbox.run("decompress cpu.pum -o cpu.npy --device cpu");
    sandbox.run("decompress cpu.pum -o auto.npy --device auto");
    assert!(sandbox.read("auto.npy") == sandbox.read("cpu.npy"));
    if !has_device {
        return;
    }
    let report = sandbox.json(&format!("{COMPRESS} -o cuda.pum --device cuda --verify"));
    assert_eq!((&report["device"], &report["verified"]), (&"cuda".into(), &true.into()));
    assert!(sandbox.read("cuda.pum") == sandbox.read("cpu.pum"));
    let rows = sandbox.json("bench x_40x50x60.f32 --device cuda --rel 1e-2,1e-3 --min-size 1M --runs 1 --check-bytes");
    for row in rows.as_array().unwrap() {
        assert_eq!(
            (&row["device"], &row["bound_kept"], &row["equals_cpu"]),
            (&"cuda".into(), &true.into(), &true.into())
        );
        for field in ["ratio", "compress_over_copy", "decompress_over_copy", "copy_gbps", "range_gbps"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{field}: {row}");
        }
    }
    sandbox.fails("compress x_40x50x60.f32 -o no.pum --rel 1e-3 --preset small --device cuda", 3);
    sandbox.fails("compress x_40x50x60.f32 -o no.pum --pwrel 1e-3 --preset fast --device cuda", 3);
}

#[test]
fn regions_are_the_same_from_any_device() {
    let (sandbox, has_device) = prepared();
    let line = "decompress cpu.pum -o x.npy --region 0:3,5:40";
    let report = sandbox.json(&format!("{line} --device auto"));
    assert_eq!(report["device"], "cpu");
    assert!(report["device_reason"].as_str().unwrap().contains("region"), "{report}");
    if !has_device {
        sandbox.fails(&format!("{line} --device cuda"), NO_DEVICE);
        return;
    }
    let expected = sandbox.read("x.npy");
    assert_eq!(sandbox.json(&format!("{line} --device cuda"))["device"], "cuda");
    assert!(sandbox.read("x.npy") == expected);
}

#[test]
fn check_bytes_needs_a_device() {
    let (sandbox, _) = prepared();
    sandbox.fails("bench x_40x50x60.f32 --check-bytes", 2);
}
