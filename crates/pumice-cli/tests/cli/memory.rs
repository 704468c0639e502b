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
