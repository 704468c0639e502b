//! Little memory: an error with exit code 7 and what to do, not an abort.

use std::fs::File;
use std::process::{Command, Output};

use crate::sandbox::{Sandbox, stderr};

/// Runs the program with this many KiB of address space.
fn confined(sandbox: &Sandbox, kib: u32, line: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_pumice")]);
    command.args(line.split_whitespace()).current_dir(sandbox.path("")).output().expect("the program starts")
}

#[test]
fn too_little_memory_is_exit_code_7() {
    let sandbox = Sandbox::new();
    // 256 MiB that take no space on the disk.
    let file = File::create(sandbox.path("x_67108864.f32")).unwrap();
    file.set_len(256 << 20).unwrap();
    let chunk = "--abs 1e-3 --preset fast --chunk 67108864 --threads 1";
    sandbox.run(&format!("compress x_67108864.f32 -o x.pum {chunk}"));
    for line in [&format!("compress x_67108864.f32 -o y.pum {chunk}"), "decompress x.pum -o y.f32 --threads 1"] {
        let output = confined(&sandbox, 120_000, line);
        assert_eq!(output.status.code(), Some(7), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains("memory"), "{line}: {}", stderr(&output));
    }
    assert_eq!(sandbox.files(), ["x.pum", "x_67108864.f32"]);
    assert!(confined(&sandbox, 120_000, "info x.pum").status.success());
}

/// Commands on 2 MiB of values, with ever more memory than the program, its threads and small tables take: they
/// either succeed or say that memory is short.
#[test]
fn any_shortage_of_memory_is_an_error() {
    let sandbox = Sandbox::new();
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let values: Vec<f32> = (0..1 << 19).map(|i| (i as f32 * 1e-3).sin() + 0.01 * noise()).collect();
    sandbox.write_f32("x_8x256x256.f32", &values);
    sandbox.write_f32("y_8x256x256.f32", &values.iter().map(|x| if *x > 0.9 { 1e20 } else { *x }).collect::<Vec<_>>());
    sandbox.run("compress x_8x256x256.f32 -o x.pum --abs 1e-2");
    sandbox.run("compress x_8x256x256.f32 -o boxes.pum --abs 1e-2 --roi 0:4=abs:1e-3");
    // The least with which the program starts at all.
    let starts = |mib: &u32| confined(&sandbox, mib << 10, "info x.pum").status.success();
    let least = (10..400).step_by(2).find(starts).expect("there is enough");
    for line in [
        "compress x_8x256x256.f32 -o y.pum --abs 1e-2 --preset fast",
        "compress x_8x256x256.f32 -o y.pum --abs 1e-2 --preset fast --stable --threads 1",
        "compress x_8x256x256.f32 -o y.pum --abs 1e-2 --preset balanced --chunk 2,256,256",
        "compress x_8x256x256.f32 -o y.pum --abs 1e-2 --preset small",
        "compress y_8x256x256.f32 -o y.pum --rel 1e-4 --preset small --stable",
        "compress x_8x256x256.f32 -o y.pum --pwrel 1e-2 --preset small --threads 1",
        "compress x_8x256x256.f32 -o y.pum --psnr 60 --preset balanced",
        "compress x_8x256x256.f32 -o y.pum --lossless",
        "analyze x_8x256x256.f32 --abs 1e-2",
        "check x_8x256x256.f32 x.pum",
        "check x_8x256x256.f32 boxes.pum",
    ] {
        for more in [16, 20, 24, 30, 36, 42, 48, 56, 64, 90, 130] {
            let output = confined(&sandbox, (least + more) << 10, line);
            let is_expected = matches!(output.status.code(), Some(0 | 7));
            assert!(is_expected, "{line}, {more} MiB: {}\n{}", output.status, stderr(&output));
        }
    }
}
