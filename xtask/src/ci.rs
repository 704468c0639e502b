//! `cargo xtask ci`: everything a change must pass, from a fresh machine with Rust and Python. Each step is printed with
//! its time; the first failure ends the run with the command that failed. Nothing is skipped silently.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use pumice_testkit::{data, golden, sha256_hex};

use crate::capi;
use crate::hdf5;
use crate::mpi;
use crate::python::{self, python};
use crate::shell::{self, Result, cargo, command, run, succeeds};
use crate::wheel;

/// A step: what it is called and does.
type Step = (&'static str, fn() -> Result);

const STEPS: [Step; 29] = [
    ("Rust components", rust_components),
    ("Python environment", python::environment),
    ("MPI library", mpi::library),
    ("format", format),
    ("architecture", crate::architecture::check),
    ("pages and charts", pages),
    ("lints", lints),
    ("ptx", ptx),
    ("tests", tests),
    ("documentation", documentation),
    ("packages and licences", packages),
    ("aarch64, short", || crate::portable::run(&["aarch64", "--short"])),
    ("Windows, short", || crate::portable::run(&["windows", "--short"])),
    ("independent decoder: its own tests", decoder_tests),
    ("independent decoder: golden files", decoder_goldens),
    ("fuzz, short", fuzz),
    ("exhaustive, short", exhaustive),
    ("demo", demo),
    ("C library: examples and misuse", capi::programs),
    ("C library: tutorial", capi::tutorial),
    ("HDF5 programs", hdf5::programs),
    ("Python wheel", wheel::build),
    ("Python tests", wheel::test),
    ("Python tests with PyTorch", wheel::test_torch),
    ("MPI programs in C, Fortran and Python", mpi::programs),
    ("HDF5 with MPI", hdf5::parallel),
    ("MPI programs under the shim", crate::shim::test),
    ("corpus", corpus),
    ("real data", real_data),
];

/// Executions of each fuzz target; a campaign takes a thousand times as many.
const FUZZ_RUNS: &str = "10000";
/// Every so-many-th bit pattern.
const EXHAUSTIVE_STRIDE: &str = "1021";
/// Least mean ratios of `fast` on `data::RATED` at REL 1e-2, 1e-3, 1e-4.
const FAST_RATIOS: &str = "17.3,8.3,5.0";

/// Runs all steps, or those from the first one whose name starts with the text after `--from`, as after a failure.
pub(crate) fn run_all(options: &[&str]) -> Result {
    let first = match options {
        [] => 0,
        ["--from", name] => STEPS.iter().position(|(step, _)| step.starts_with(name)).ok_or_else(|| {
            let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
            format!("no step starts with '{name}'; the steps are: {}", names.join("; "))
        })?,
        _ => return Err("the only option is --from STEP".into()),
    };
    let start = Instant::now();
    let mut times = Vec::new();
    for (i, (name, step)) in STEPS.iter().enumerate().skip(first) {
        println!("\n==> [{}/{}] {name}", i + 1, STEPS.len());
        let before = Instant::now();
        step().map_err(|e| format!("step '{name}': {e}"))?;
        let seconds = before.elapsed().as_secs_f64();
        println!("<== {name}: {seconds:.1} s");
        times.push((name, seconds));
    }
    println!("\n{:<40}{:>8}", "step", "seconds");
    times.iter().for_each(|(name, seconds)| println!("{name:<40}{seconds:>8.1}"));
    println!("{:<40}{:>8.1}\n{} steps passed", "all", start.elapsed().as_secs_f64(), times.len());
    Ok(())
}

fn rust_components() -> Result {
    for (component, probe) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if succeeds(cargo().args([probe, "--version"])) {
            println!("{component}: there");
            continue;
        }
        run(command("rustup").args(["component", "add", component]))
            .map_err(|e| format!("{component} is missing and cannot be installed: {e}"))?;
    }
    Ok(())
}

fn format() -> Result {
    run(cargo().args(["fmt", "--all", "--check"]))
}

fn lints() -> Result {
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"]))?;
    let without_cuda = ["clippy", "--package", "pumice-cli", "--all-targets", "--no-default-features"];
    run(cargo().args(without_cuda).args(["--", "-D", "warnings"]))?;
    // Code that only an unstable module uses must not be dead without the feature of that module.
    for features in ["", "unstable-backend", "unstable-research"] {
        let library = ["clippy", "--package", "pumice", "--features", features];
        run(cargo().args(library).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// The committed PTX is what the kernels give.
fn ptx() -> Result {
    crate::ptx::run(&["--check"])
}

fn tests() -> Result {
    run(cargo().args(["test", "--workspace", "--all-features"]))
}

fn documentation() -> Result {
    let mut doc = cargo();
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run(doc.args(["doc", "--workspace", "--no-deps", "--all-features"]))
}

/// Charts are those of the committed figures, and no link between pages leads nowhere.
fn pages() -> Result {
    for charts in ["bench.charts", "bench.hdf5_chart"] {
        run(command(python()).args(["-m", charts, "--check"]))?;
    }
    run(command(python()).args(["-m", "bench.check_links"]))
}

/// Licences of all dependencies, and the content of every crate's package.
fn packages() -> Result {
    crate::deny::run_task(&["--quick"])?;
    crate::package::run_task(&["--no-verify"])
}

fn decoder_tests() -> Result {
    run(command(python()).args(["-m", "unittest", "discover", "-s", "reference", "-t", "."]))
}

/// Each golden file, decoded by reference/, has the hash that the manifest gives.
fn decoder_goldens() -> Result {
    let goldens = golden::Folder::v1().load();
    if goldens.is_empty() {
        return Err("there are no golden files".into());
    }
    let scratch = Scratch::new("goldens")?;
    // Starting an interpreter takes longer than most of them.
    let n_threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let decode =
            |part: usize| goldens.iter().skip(part).step_by(n_threads).try_for_each(|g| decode_golden(g, &scratch.0));
        let workers: Vec<_> = (0..n_threads).map(|part| scope.spawn(move || decode(part))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no golden file makes a worker panic"))
    })?;
    println!("{} golden files decode to the bits of the manifest", goldens.len());
    Ok(())
}

fn decode_golden(golden: &golden::Golden, scratch: &Path) -> Result {
    let failed = |e: &dyn std::fmt::Display| format!("golden file {}: {e}", golden.name);
    let (stream, values) = (scratch.join(&golden.name), scratch.join(format!("{}.raw", golden.name)));
    fs::write(&stream, &golden.bytes).map_err(|e| failed(&e))?;
    let mut decode = command(python());
    decode.args(["-m", "reference"]).arg(&stream).arg("-o").arg(&values);
    let output = decode.output().map_err(|e| failed(&e))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    let decoded = fs::read(&values).map_err(|e| failed(&e))?;
    if golden.entry.get("sha256") != Some(&sha256_hex(&decoded)) {
        return Err(failed(&"the independent decoder gives other bits than the manifest says"));
    }
    Ok(())
}

fn fuzz() -> Result {
    crate::fuzz::run(&["all", "--runs", FUZZ_RUNS])
}

fn exhaustive() -> Result {
    // With the build that the fuzz targets had.
    crate::exhaustive::run(&["--checked", "--stride", EXHAUSTIVE_STRIDE])?;
    crate::exhaustive::run(&["--checked", "--bound", "pwrel", "--stride", EXHAUSTIVE_STRIDE])
}

fn demo() -> Result {
    let scratch = Scratch::new("demo")?;
    run(cargo().args(["run", "--release", "--quiet", "--", "demo", "--output"]).arg(&scratch.0))
}

/// docs/data.md shows the table of arrays, and those that have been made are right; the readers of other formats.
fn corpus() -> Result {
    crate::corpus::test()?;
    crate::corpus::run_task(&["--check"])
}

/// The acceptance figures on real fields, which do not belong to the repository.
fn real_data() -> Result {
    let Some(folder) = data::folder() else { return Ok(()) };
    run(cargo().args(["build", "--release", "--quiet", "--package", "pumice-cli"]))?;
    let pumice = shell::target_dir().join("release/pumice");
    let mut verify = command(python());
    verify.args(["-m", "bench.verify_data"]).arg("--data").arg(folder).arg("--pumice").arg(pumice);
    run(verify.args(["--mean-of", &data::RATED.join(","), "--ratio-floor", FAST_RATIOS]))
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pumice-ci-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the temporary folder does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
