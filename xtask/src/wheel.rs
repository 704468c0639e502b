//! The Python package: its wheel, and its tests in an environment that has nothing of this repository but the wheel.

use std::fs;
use std::path::PathBuf;

use crate::hdf5;
use crate::python;
use crate::shell::{self, Result, command, root, run};

/// What the tests need beside the wheel, and maturin, which builds it.
const REQUIREMENTS: &str = "crates/pumice-python/tests/requirements.txt";
/// A wheel that is larger has something in it that does not belong there.
const MAX_WHEEL_BYTES: u64 = 10 << 20;

/// The environment of the tests.
fn environment() -> PathBuf {
    shell::target_dir().join("python")
}

fn python_of_tests() -> PathBuf {
    environment().join("bin/python")
}

/// Builds the wheel and installs it, with what the tests need from PyPI.
pub(crate) fn build() -> Result {
    python::make_environment(&environment(), REQUIREMENTS)?;
    hdf5::build_plugin()?;
    let folder = shell::target_dir().join("wheels");
    // So that there is one wheel, the new one.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut maturin = command(environment().join("bin/maturin"));
    maturin.args(["build", "--release", "--manifest-path", "crates/pumice-python/Cargo.toml", "--out"]).arg(&folder);
    run(maturin.arg("--interpreter").arg(python_of_tests()))?;
    let wheel = only_file(&folder)?;
    let size = fs::metadata(&wheel).map_err(|e| format!("{}: {e}", wheel.display()))?.len();
    println!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    if size > MAX_WHEEL_BYTES {
        return Err(format!("the wheel has {size} bytes, more than {MAX_WHEEL_BYTES}"));
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"];
    run(command(python_of_tests()).args(pip).arg(wheel))
}

/// Tests, examples in docstrings, and tutorials.
pub(crate) fn test() -> Result {
    // Tutorials use the command-line tool as well.
    run(shell::cargo().args(["build", "--release", "--quiet", "--package", "pumice-cli"]))?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", shell::target_dir().join("release").display());
    let pytest = |arguments: &[&str]| {
        let mut pytest = command(python_of_tests());
        pytest.current_dir(root().join("crates/pumice-python")).env("PATH", &path);
        run(pytest.args(["-m", "pytest", "--quiet"]).args(arguments))
    };
    pytest(&[])?;
    pytest(&["--doctest-modules", "--pyargs", "pumice"])
}

fn only_file(folder: &PathBuf) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    match &files[..] {
        [file] => Ok(file.clone()),
        _ => Err(format!("{} should hold one wheel, not {}", folder.display(), files.len())),
    }
}
