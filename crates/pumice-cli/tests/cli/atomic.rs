//! A file appears under its name only when it is complete, whatever happens to the program that writes it.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, smooth};

#[test]
fn killed_while_writing_leaves_the_old_file_or_the_new_one() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_500x100x40.f32", &smooth(&[500, 100, 40]));
    let line = ["compress", "x_500x100x40.f32", "-o", "x.pum", "--rel", "1e-4", "--chunk", "4,100,40"];
    let start = Instant::now();
    sandbox.run(&line.join(" "));
    let duration = start.elapsed();
    let new = sandbox.read("x.pum");
    let old = b"the old file".to_vec();
    let n_trials = 30;
    for trial in 0..n_trials {
        sandbox.write("x.pum", &old);
        let mut child = Command::new(env!("CARGO_BIN_EXE_pumice"))
            .args(line)
            .current_dir(sandbox.path(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        sleep(duration.mul_f64(1.3 * f64::from(trial) / f64::from(n_trials)) + Duration::from_micros(500));
        child.kill().unwrap();
        child.wait().unwrap();
        let now = sandbox.read("x.pum");
        assert!(now == old || now == new, "trial {trial}: {} bytes", now.len());
    }
}

#[test]
fn a_failed_command_leaves_the_old_file() {
    let sandbox = Sandbox::new();
    sandbox.write("x.pum", b"the old file");
    let output = sandbox
        .command("compress - -o x.pum --shape 1000,1000 --dtype f32 --abs 1")
        .write_stdin(vec![0u8; 3_000_000])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(sandbox.read("x.pum"), b"the old file");
    assert_eq!(sandbox.files(), ["x.pum"]);
}

#[test]
fn an_output_that_cannot_be_written_is_an_input_output_error() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_10.f32", &smooth(&[10]));
    assert!(sandbox.fails("compress x_10.f32 -o no/such/place.pum --abs 1", 6).contains("no/such/place.pum"));
    assert!(sandbox.fails("compress . -o x.pum --abs 1", 6).contains("directory"));
}

#[test]
fn verified_output_replaces_the_old_file_and_leaves_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_1000.f32", &smooth(&[1000]));
    sandbox.write("x.pum", b"the old file");
    sandbox.run("compress x_1000.f32 -o x.pum --abs 1e-3 --verify");
    assert_eq!(sandbox.files(), ["x.pum", "x_1000.f32"]);
    let verified = sandbox.read("x.pum");
    sandbox.run("compress x_1000.f32 -o y.pum --abs 1e-3");
    assert!(verified == sandbox.read("y.pum"));
}
