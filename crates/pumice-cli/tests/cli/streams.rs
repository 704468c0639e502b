//! Standard input and output.

use std::io::Read;
use std::process::{Command, Stdio};

use crate::round_trip::npy;
use crate::sandbox::{Sandbox, f32_values, max_error, smooth, stderr};

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn streams_are_compressed_as_they_arrive() {
    let sandbox = Sandbox::new();
    let values = smooth(&[50, 20, 30]);
    for bound in ["--abs 1e-3", "--rel 1e-3 --range -2,2", "--rel 1e-3", "--abs 1e-3 --verify"] {
        let line = format!("compress - -o x.pum --shape 50,20,30 --dtype f32 {bound}");
        let output = sandbox.command(&line).write_stdin(bytes_of(&values)).output().unwrap();
        assert!(output.status.success(), "{bound}: {}", stderr(&output));
        sandbox.run("decompress x.pum -o y.f32");
        assert!(max_error(&values, &sandbox.read_f32("y.f32")) <= 4.1e-3, "{bound}");
        assert_eq!(sandbox.files(), ["x.pum", "y.f32"]);
    }
}

#[test]
fn a_whole_pipeline_works() {
    let sandbox = Sandbox::new();
    let values = smooth(&[50, 60]);
    sandbox.write_f32("x_50x60.f32", &values);
    let packed = sandbox.output("compress x_50x60.f32 -o - --abs 1e-3 --json");
    assert!(packed.status.success());
    // The report goes to standard error.
    assert!(stderr(&packed).contains("\"ratio\""));
    sandbox.write("x.pum", &packed.stdout);
    let restored = sandbox.output("decompress x.pum -o - --quiet");
    assert!(max_error(&values, &f32_values(&restored.stdout)) <= 1e-3);
}

#[test]
fn npy_on_standard_input_needs_no_shape() {
    let sandbox = Sandbox::new();
    let values = smooth(&[5, 8]);
    let line = "compress - -o x.pum --abs 1e-3";
    let output = sandbox.command(line).write_stdin(npy("<f4", "False", "(5, 8)", &bytes_of(&values))).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(sandbox.json("info x.pum")["shape"], serde_json::json!([5, 8]));
}

#[test]
fn streams_of_the_wrong_length_leave_no_output() {
    let sandbox = Sandbox::new();
    for (n_bytes, code) in [(4 * 99, 5), (4 * 101, 2), (0, 5)] {
        for bound in ["--abs 1e-3", "--rel 1e-3"] {
            let line = format!("compress - -o x.pum --shape 10,10 --dtype f32 {bound}");
            let output = sandbox.command(&line).write_stdin(vec![0u8; n_bytes]).output().unwrap();
            assert_eq!(output.status.code(), Some(code), "{n_bytes} {bound}: {}", stderr(&output));
        }
    }
    assert!(sandbox.files().is_empty());
}

#[test]
fn a_raw_stream_needs_type_and_shape() {
    let sandbox = Sandbox::new();
    assert!(sandbox.fails("compress - -o x.pum --abs 1", 2).contains("--dtype"));
    assert!(sandbox.fails("compress - -o - --shape 3 --dtype f32 --abs 1 --verify", 2).contains("--verify"));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_1000x1000.f32", &smooth(&[1000, 1000]));
    sandbox.run("compress x_1000x1000.f32 -o x.pum --abs 1e-3");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["decompress", "x.pum", "-o", "-"])
        .current_dir(sandbox.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_ne!(output.status.code(), Some(101), "no panic");
}

/// Renaming over a pipe or a device would delete it.
#[cfg(unix)]
#[test]
fn a_named_pipe_is_written_to_and_stays_one() {
    use std::os::unix::fs::FileTypeExt;
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_20x30.f32", &smooth(&[20, 30]));
    sandbox.run("compress x_20x30.f32 -o x.pum --abs 1e-3");
    let pipe = sandbox.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    sandbox.run("compress x_20x30.f32 -o pipe --abs 1e-3");
    assert_eq!(reader.join().unwrap(), sandbox.read("x.pum"));
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    sandbox.fails("decompress x.pum -o pipe", 2);
    assert!(sandbox.fails("compress x_20x30.f32 -o pipe --abs 1e-3 --verify", 2).contains("pipes"));
}
