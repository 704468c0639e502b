//! The Python package: its wheel, and its tests in an environment that has nothing of this repository but the wheel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::debian;
use crate::hdf5;
use crate::python;
use crate::shell::{self, Result, command, output, root, run};

/// What the tests need beside the wheel, and maturin, which builds it.
const REQUIREMENTS: &str = "crates/pumice-python/tests/requirements.txt";
/// What the tests with PyTorch need beside the wheel: the oldest NumPy that the package takes.
const TORCH_REQUIREMENTS: &str = "crates/pumice-python/tests/requirements-torch.txt";
/// What is run with PyTorch and that NumPy.
const TORCH_TESTS: [&str; 6] = [
    "tests/test_torch.py",
    "tests/test_dlpack.py",
    "tests/test_arrays.py",
    "tests/test_file.py",
    "tests/test_tutorials.py::test_tutorial[numpy.md]",
    "tests/test_tutorials.py::test_tutorial[pytorch.md]",
];
/// Linux systems that the wheel is for, by their glibc. The linker of Zig, which is on PyPI, links for it, whatever the glibc
/// of this machine.
const GLIBC: &str = "2.17";
/// A wheel that is larger has something in it that does not belong there.
const MAX_WHEEL_BYTES: u64 = 10 << 20;

/// What an installation must be able to do.
const ROUND_TRIP: &str = "\
import numpy as np, pumice
x = np.sin(np.linspace(0, 20, 100_000, dtype='float32'))
y = pumice.decompress(pumice.compress(x, abs=1e-3))
assert np.abs(x - y).max() <= 1e-3
print('a round trip works with', pumice.__file__)";

/// The environment of the tests.
fn environment() -> PathBuf {
    shell::target_dir().join("python")
}

fn wheels() -> PathBuf {
    shell::target_dir().join("wheels")
}

/// Builds the wheel and installs it, with what the tests need from PyPI.
pub(crate) fn build() -> Result {
    python::make_environment(&environment(), REQUIREMENTS)?;
    hdf5::build_plugin(for_older_systems, &programs())?;
    let folder = wheels();
    // So that there is one wheel, the new one.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut maturin = command(environment().join("bin/maturin"));
    maturin.args(["build", "--release", "--manifest-path", "crates/pumice-python/Cargo.toml", "--out"]).arg(&folder);
    for_older_systems(&mut maturin)?;
    if cfg!(target_os = "linux") {
        maturin.args(["--compatibility", &format!("manylinux_{}", GLIBC.replace('.', "_"))]);
    }
    run(maturin.arg("--interpreter").arg(environment().join("bin/python")))?;
    let wheel = only_file(&folder)?;
    let size = fs::metadata(&wheel).map_err(|e| format!("{}: {e}", wheel.display()))?.len();
    println!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    if size > MAX_WHEEL_BYTES {
        return Err(format!("the wheel has {size} bytes, more than {MAX_WHEEL_BYTES}"));
    }
    if cfg!(target_os = "linux") {
        audit(&wheel)?;
    }
    install(&environment(), &wheel)
}

/// What cargo calls this machine; builds for it by this name have a folder of their own.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Where [`for_older_systems`] makes cargo put programs.
fn programs() -> PathBuf {
    let folder = if cfg!(target_os = "linux") { shell::target_dir().join(triple()) } else { shell::target_dir() };
    folder.join("release")
}

/// Makes a build by cargo or maturin link for Linux systems with [`GLIBC`], by the linker of Zig as maturin calls it.
fn for_older_systems(build: &mut Command) -> Result {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let find = "import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), 'zig'), end='')";
    let zig = output(command(environment().join("bin/python")).args(["-c", find])).map_err(|e| {
        format!("Zig, the package ziglang of {REQUIREMENTS}, links the wheel for systems with glibc {GLIBC}\n{e}")
    })?;
    let (script, maturin) = (environment().join("zig-linker"), environment().join("bin/maturin"));
    let target = format!("{}-linux-gnu.{GLIBC}", std::env::consts::ARCH);
    let text = format!("#!/bin/sh\nexec '{}' zig cc -- -target {target} \"$@\"\n", maturin.display());
    fs::write(&script, text).map_err(|e| format!("{}: {e}", script.display()))?;
    run(command("chmod").arg("+x").arg(&script))?;
    let name = triple().to_uppercase().replace('-', "_");
    build.args(["--target", &triple()]).env(format!("CARGO_TARGET_{name}_LINKER"), script);
    build.env("CARGO_ZIGBUILD_ZIG_PATH", zig);
    Ok(())
}

/// The wheel, with the HDF5 plugin in it, needs no library that a Linux system may lack, and its name says which systems
/// it is for.
fn audit(wheel: &Path) -> Result {
    let mut auditwheel = command(environment().join("bin/auditwheel"));
    let report = output(auditwheel.args(["show", "--json"]).arg(wheel))?;
    let report: Value = serde_json::from_str(&report).map_err(|e| format!("auditwheel: {e}"))?;
    let tag = report["overall_tag"].as_str().unwrap_or_default();
    println!("auditwheel: {tag}, symbols {}", report["versioned_symbols"]);
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let promised = format!("manylinux_{}_", GLIBC.replace('.', "_"));
    let is_older = tag.starts_with("manylinux") && glibc_of(tag) <= glibc_of(&promised);
    if !is_older || !name.contains(&promised) {
        return Err(format!(
            "auditwheel says that {name} is for '{tag}', not for systems with glibc {GLIBC} as promised"
        ));
    }
    match report["external_libs"].as_object() {
        Some(libraries) if libraries.is_empty() => Ok(()),
        _ => Err(format!("the wheel needs libraries of the system: {}", report["external_libs"])),
    }
}

/// Major and minor version of glibc in a tag such as `manylinux_2_17_x86_64`.
fn glibc_of(tag: &str) -> Vec<u32> {
    tag.split('_').skip(1).take(2).filter_map(|n| n.parse().ok()).collect()
}

/// Makes the source distribution, and installs it from nothing but its archive, as pip does where there is no wheel: with Rust,
/// and the build requirements of pyproject.toml.
pub(crate) fn source_distribution() -> Result {
    python::make_environment(&environment(), REQUIREMENTS)?;
    let folder = shell::target_dir().join("sdist");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut maturin = command(environment().join("bin/maturin"));
    run(maturin.args(["sdist", "--manifest-path", "crates/pumice-python/Cargo.toml", "--out"]).arg(&folder))?;
    let archive = only_file(&folder)?;
    let fresh = shell::target_dir().join("python-sdist");
    run(command("python3").args(["-m", "venv", "--clear"]).arg(&fresh))?;
    let mut pip = command(fresh.join("bin/python"));
    // Dependencies are built once for all versions of the archive; the archive's own crates always.
    pip.env("CARGO_TARGET_DIR", shell::target_dir().join("sdist-build"));
    run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).arg(archive))?;
    let mut python = command(fresh.join("bin/python"));
    // Not in the repository, whose folders must not be needed.
    run(python.current_dir(&fresh).args(["-c", ROUND_TRIP]))
}

fn install(environment: &Path, wheel: &Path) -> Result {
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"];
    run(command(environment.join("bin/python")).args(pip).arg(wheel))
}

/// Tests, examples in docstrings, and tutorials.
pub(crate) fn test() -> Result {
    // Tutorials use the command-line tool as well.
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--quiet", "--package", "pumice-cli"]);
    for_older_systems(&mut cargo)?;
    run(&mut cargo)?;
    pytest(&environment(), &[])?;
    pytest(&environment(), &["--doctest-modules", "--pyargs", "pumice"])
}

/// The tests that need PyTorch, which Debian has without the CUDA libraries that PyPI's brings (0.5 GB and more). It wants
/// NumPy 1: hence an environment of its own, in which tests of arrays show that the wheel works with that too.
pub(crate) fn test_torch() -> Result {
    debian::packages(&["python3-torch", "python3-venv"])?;
    let environment = shell::target_dir().join("python-torch");
    python::make_environment_over_debian(&environment, TORCH_REQUIREMENTS)?;
    install(&environment, &only_file(&wheels())?)?;
    // Without it the tests would be skipped.
    let versions = "import numpy, torch; print(f'PyTorch {torch.__version__}, NumPy {numpy.__version__}')";
    run(command(environment.join("bin/python")).args(["-c", versions]))?;
    pytest(&environment, &TORCH_TESTS)
}

/// Debian's h5py over its parallel HDF5 library, in the environment of [`test_torch`]: without mpirun, as on a laptop.
pub(crate) fn test_parallel_hdf5() -> Result {
    debian::packages(&["python3-h5py", "python3-h5py-mpi", "python3-mpi4py"])?;
    let environment = shell::target_dir().join("python-torch");
    let is_parallel = "import h5py; assert h5py.get_config().mpi; print('HDF5', h5py.version.hdf5_version, 'with MPI')";
    let mut probe = command(environment.join("bin/python"));
    run(probe.env("H5PY_ALWAYS_USE_MPI", "1").args(["-c", is_parallel]))?;
    for tests in [&["tests/test_histories.py", "-k", "hdf5"][..], &["tests/test_chunks.py"]] {
        run(pytest_command(&environment, tests).env("H5PY_ALWAYS_USE_MPI", "1"))?;
    }
    Ok(())
}

/// The command of each rank that writes HDF5 in Python, in the environment of [`test_parallel_hdf5`].
pub(crate) fn python_of_ranks() -> [PathBuf; 2] {
    let python = shell::target_dir().join("python-torch/bin/python");
    [python, root().join("crates/pumice-python/tests/ranks_chunks.py")]
}

/// The tests of `pumice.mpi`, with this library.
pub(crate) fn test_mpi(library: &Path) -> Result {
    run(pytest_command(&environment(), &["tests/test_mpi.py"]).env("PUMICE_MPI_LIBRARY", library))
}

fn pytest(environment: &Path, arguments: &[&str]) -> Result {
    run(&mut pytest_command(environment, arguments))
}

fn pytest_command(environment: &Path, arguments: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", programs().display());
    let mut pytest = command(environment.join("bin/python"));
    pytest.current_dir(root().join("crates/pumice-python")).env("PATH", path);
    pytest.args(["-m", "pytest", "--quiet"]).args(arguments);
    pytest
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    match &files[..] {
        [file] => Ok(file.clone()),
        _ => Err(format!("{} should hold one wheel, not {}", folder.display(), files.len())),
    }
}
