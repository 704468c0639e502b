//! A temporary directory for each test, and functions to run the program in it.

use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory to run commands in.
pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().expect("a temporary directory can be made"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a test file can be written");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn write_f32(&self, name: &str, values: &[f32]) {
        self.write(name, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    }

    pub(crate) fn read_f32(&self, name: &str) -> Vec<f32> {
        f32_values(&self.read(name))
    }

    /// The program with arguments separated by blanks, not started yet.
    pub(crate) fn command(&self, line: &str) -> assert_cmd::Command {
        let mut command = assert_cmd::cargo::cargo_bin_cmd!("pumice");
        command.current_dir(self.0.path()).args(line.split_whitespace());
        command
    }

    /// Runs a command that must succeed; returns its standard output.
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.output(line);
        assert!(output.status.success(), "pumice {line}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("reports are text")
    }

    /// Runs a command with `--json` that must succeed.
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(&format!("{line} --json"))).expect("reports are JSON")
    }

    /// Runs a command that must end with this exit code; returns its standard error.
    pub(crate) fn fails(&self, line: &str, code: i32) -> String {
        let output = self.output(line);
        assert_eq!(output.status.code(), Some(code), "pumice {line}: {}", stderr(&output));
        stderr(&output)
    }

    pub(crate) fn output(&self, line: &str) -> Output {
        self.command(line).output().expect("the program starts")
    }

    /// Names of all files, to check that no temporary files remain.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the directory is there");
        let mut names: Vec<_> =
            entries.map(|e| e.expect("listed").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn f32_values(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// A smooth field with values from about -2 to 2.
pub(crate) fn smooth(shape: &[usize]) -> Vec<f32> {
    let n: usize = shape.iter().product();
    let row = shape.last().copied().unwrap_or(1).max(1);
    (0..n).map(|i| ((i % row) as f32 * 0.1).sin() + ((i / row) as f32 * 0.037).cos()).collect()
}

/// Largest difference of two arrays.
pub(crate) fn max_error(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).abs()).fold(0.0, f64::max)
}
