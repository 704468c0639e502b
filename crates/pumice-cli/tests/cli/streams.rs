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
    for bound in ["--abs 1e-3 --one-pass", "--rel 1e-3 --range -2,2 --one-pass", "--rel 1e-3", "--abs 1e-3 --verify"] {
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

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_100.f32", &smooth(&[100]));
    for (line, code) in [("info nope", 6), ("compress x_100.f32 -o - --abs 1", 0)] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec '{}' {line} 2> /dev/full", env!("CARGO_BIN_EXE_pumice"))]);
        let status = command.current_dir(sandbox.path("")).stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{line}");
    }
}

#[test]
fn a_file_named_as_standard_input_is_another_one() {
    let sandbox = Sandbox::new();
    sandbox.write("-", b"a file");
    let values = smooth(&[100]);
    let stream = piped(&sandbox, "compress - -o - --shape 100 --dtype f32 --abs 1e-3 -q", bytes_of(&values));
    let restored = piped(&sandbox, "decompress - -o - -q", stream);
    assert!(max_error(&values, &f32_values(&restored)) <= 1e-3);
}

/// What is missing from the data is not called a fill value of it.
#[test]
fn one_pass_names_the_fill_values_that_occur() {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[100, 50]);
    let line = "compress - -o x.pum --shape 100,50 --dtype f32 --abs 1e-3 --one-pass --fill 1e20 --json";
    let fills = |values: &[f32]| -> serde_json::Value {
        let report: serde_json::Value = serde_json::from_slice(&piped(&sandbox, line, bytes_of(values))).unwrap();
        report["fills"].clone()
    };
    assert_eq!(fills(&values), serde_json::json!([]));
    values[4000] = f32::NAN;
    assert_eq!(fills(&values), serde_json::json!(["nan"]));
    values[10] = 1e20;
    assert_eq!(fills(&values).as_array().unwrap().len(), 2);
}

/// Any limit: an error, or enough memory. The values of the only chunk are not copied as a whole.
#[cfg(target_os = "linux")]
#[test]
fn little_memory_never_aborts_decompression() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_4000000.f32", &smooth(&[4_000_000]));
    sandbox.run("compress x_4000000.f32 -o x.pum --abs 1e-3 --preset fast --chunk 4000000");
    for output in ["y.f32", "- --region 1:-1"] {
        for mib in (40..100).step_by(3) {
            let script = format!("ulimit -v {}; exec \"$0\" decompress x.pum -o {output} --threads 1", mib << 10);
            let mut command = Command::new("sh");
            command.args(["-c", &script, env!("CARGO_BIN_EXE_pumice")]).current_dir(sandbox.path(""));
            let output = command.output().unwrap();
            assert!([Some(0), Some(7)].contains(&output.status.code()), "{mib} MiB: {}", stderr(&output));
        }
    }
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
    let reader = std::thread::spawn(move || std::fs::read(pipe).unwrap());
    sandbox.run("decompress x.pum -o pipe");
    sandbox.run("decompress x.pum -o y.f32");
    assert_eq!(reader.join().unwrap(), sandbox.read("y.f32"));
    assert!(sandbox.fails("compress x_20x30.f32 -o pipe --abs 1e-3 --verify", 2).contains("pipes"));
}

/// Chunks that do not span the rows, and a single chunk.
fn compressed(sandbox: &Sandbox) -> [&'static str; 2] {
    sandbox.write_f32("x_90x80x70.f32", &smooth(&[90, 80, 70]));
    sandbox.run("compress x_90x80x70.f32 -o chunks.pum --abs 1e-3 --chunk 32,40,40");
    sandbox.run("compress x_90x80x70.f32 -o single.pum --abs 1e-3");
    ["chunks", "single"]
}

/// Runs a command with this standard input, which must succeed.
fn piped(sandbox: &Sandbox, line: &str, input: Vec<u8>) -> Vec<u8> {
    let output = sandbox.command(line).write_stdin(input).output().unwrap();
    assert!(output.status.success(), "pumice {line}: {}", stderr(&output));
    output.stdout
}

#[test]
fn a_pipe_is_decompressed_as_a_file_is() {
    let sandbox = Sandbox::new();
    for name in compressed(&sandbox) {
        let stream = || sandbox.read(&format!("{name}.pum"));
        sandbox.run(&format!("decompress {name}.pum -o y.f32"));
        sandbox.run(&format!("decompress {name}.pum -o y.npy"));
        let expected = sandbox.read("y.f32");
        for threads in [1, 3] {
            assert!(piped(&sandbox, &format!("decompress - -o - --threads {threads}"), stream()) == expected);
        }
        piped(&sandbox, "decompress - -o z.f32", stream());
        assert!(sandbox.read("z.f32") == expected);
        // The number of rows comes last, but is in the header.
        piped(&sandbox, "decompress - -o z.npy", stream());
        assert!(sandbox.read("z.npy") == sandbox.read("y.npy"));
        sandbox.run(&format!("decompress {name}.pum -o y.f32 --region 3:50,:,-1"));
        let region = piped(&sandbox, "decompress - -o - --region 3:50,:,-1", stream());
        assert!(region == sandbox.read("y.f32"));
    }
}

#[test]
fn a_pipe_is_described_and_checked_as_a_file_is() {
    let sandbox = Sandbox::new();
    for name in compressed(&sandbox) {
        let stream = sandbox.read(&format!("{name}.pum"));
        let report = |line: &str, input: Vec<u8>| -> serde_json::Value {
            let mut report: serde_json::Value = serde_json::from_slice(&piped(&sandbox, line, input)).unwrap();
            for name in ["file", "original", "other"] {
                report.as_object_mut().unwrap().remove(name);
            }
            report
        };
        let expected = report(&format!("info {name}.pum --json"), Vec::new());
        assert_eq!(report("info - --json", stream.clone()), expected);
        let expected = report(&format!("check x_90x80x70.f32 {name}.pum --json"), Vec::new());
        assert_eq!(report("check x_90x80x70.f32 - --json", stream), expected);
        let line = format!("check - {name}.pum --json");
        assert_eq!(report(&line, sandbox.read("x_90x80x70.f32")), expected);
    }
    assert!(sandbox.fails("check - -", 2).contains("both"));
}

#[test]
fn a_pipe_that_is_cut_short_is_an_error_and_leaves_no_file() {
    let sandbox = Sandbox::new();
    for name in compressed(&sandbox) {
        let stream = sandbox.read(&format!("{name}.pum"));
        for n in [0, 20, stream.len() / 2, stream.len() - 1] {
            for line in ["decompress - -o y.f32", "decompress - -o -", "info -", "check x_90x80x70.f32 -"] {
                let output = sandbox.command(line).write_stdin(&stream[..n]).output().unwrap();
                let code = output.status.code().unwrap();
                assert!(
                    code == 5 || (n == 0 && line.starts_with("check")) || n + 1 == stream.len(),
                    "{line} {n}: {code}"
                );
                assert_ne!(code, 0, "{line} {n}");
            }
        }
        let mut damaged = stream.clone();
        damaged[stream.len() / 2] ^= 1;
        let output = sandbox.command("decompress - -o y.f32").write_stdin(damaged).output().unwrap();
        assert_eq!(output.status.code(), Some(4));
        assert!(stderr(&output).contains("pumice recover"), "{}", stderr(&output));
    }
    assert_eq!(sandbox.files(), ["chunks.pum", "single.pum", "x_90x80x70.f32"]);
}

/// A stream is kept in a temporary file first, as the values decide how they are coded.
#[test]
fn a_pipe_is_compressed_to_the_same_bytes_as_a_file() {
    let sandbox = Sandbox::new();
    let mut values = smooth(&[70, 60, 50]);
    values.iter_mut().step_by(7).for_each(|value| *value = 1e20);
    sandbox.write_f32("x_70x60x50.f32", &values);
    for bound in ["--abs 1e-3", "--rel 1e-3", "--lossless", "--pwrel 1e-2", "--rel 1e-3 --range -2,2", "--psnr 60"] {
        sandbox.run(&format!("compress x_70x60x50.f32 -o file.pum --preset fast {bound}"));
        let line = format!("compress - -o - --shape 70,60,50 --dtype f32 --preset fast {bound} --quiet");
        assert!(piped(&sandbox, &line, bytes_of(&values)) == sandbox.read("file.pum"), "{bound}");
    }
    let message = sandbox.fails("compress - -o x.pum --shape 3 --dtype f32 --rel 1 --one-pass", 2);
    assert!(message.contains("--one-pass"), "{message}");
}

#[cfg(unix)]
#[test]
fn devices_and_open_files_are_written_to() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_20x30.f32", &smooth(&[20, 30]));
    sandbox.run("compress x_20x30.f32 -o x.pum --abs 1e-3");
    sandbox.run("decompress x.pum -o y.f32");
    sandbox.run("decompress x.pum -o /dev/null");
    let program = env!("CARGO_BIN_EXE_pumice");
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-c", &script.replace("pumice", program)]).current_dir(sandbox.path(""));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", stderr(&output));
    };
    // A file that the shell opened is written to where the shell has got to.
    let expected = [b"head", &sandbox.read("y.f32")[..]].concat();
    std::os::unix::fs::symlink("/dev/stdout", sandbox.path("link")).unwrap();
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link", "-"] {
        // The summary does not go into the data.
        shell(&format!("(printf head; pumice decompress x.pum -o {name}) > z 2> summary"));
        assert!(sandbox.read("z") == expected, "{name}");
        assert!(!sandbox.read("summary").is_empty(), "{name}");
    }
    shell("exec 3> z; printf head >&3; pumice decompress x.pum -o /dev/fd/3");
    assert!(sandbox.read("z") == expected);
    shell("printf head > z; pumice decompress x.pum -o /proc/self/fd/3 3>> z");
    assert!(sandbox.read("z") == expected);
    // What the program opens itself is not meant.
    assert!(sandbox.fails("decompress x.pum -o /dev/fd/99", 6).contains("/dev/fd/99"));
    shell("pumice decompress x.pum -o >(cat > z) --quiet && sleep 0.2");
    shell("pumice decompress <(cat x.pum) -o z.f32 && cmp z.f32 y.f32");
    shell("pumice check x_20x30.f32 <(cat x.pum)");
    shell("pumice check x_20x30.f32 <(cat y.f32) --abs 1e-3");
    shell("pumice info <(cat x.pum)");
    shell("pumice compress <(cat x_20x30.f32) -o z.pum --dtype f32 --shape 20,30 --abs 1e-3 && cmp z.pum x.pum");
}
