//! `cargo xtask portable`: Pumice on machines other than this one, and its unsafe code under observers.
//!
//! The library's tests run for aarch64 and for s390x, which is big-endian, under QEMU, and for Windows under Wine; golden
//! files and encoder hashes among them show that all write the same bytes. Miri interprets the unsafe code that it
//! understands, and the address sanitizer watches the rest. docs/portability.md tells what each run covers.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::debian;
use crate::shell::{Result, cargo, command, output, run as run_command, succeeds, target_dir};

/// What was asked for beside the target.
#[derive(Clone, Copy)]
struct Options {
    /// Unit tests, golden files and encoder hashes instead of all tests.
    short: bool,
    /// Debian's compiler even where rustup has the target.
    debian: bool,
}

pub(crate) fn run(args: &[&str]) -> Result {
    let (flags, targets): (Vec<&str>, Vec<&str>) = args.iter().partition(|arg| arg.starts_with("--"));
    if let Some(flag) = flags.iter().find(|flag| !["--short", "--debian"].contains(flag)) {
        return Err(format!("{flag}: the options are --short and --debian"));
    }
    let options = Options { short: flags.contains(&"--short"), debian: flags.contains(&"--debian") };
    let [target] = targets[..] else {
        return Err("name one of aarch64, s390x, windows, miri, sanitize".into());
    };
    match target {
        "aarch64" => emulated(&AARCH64, options),
        "s390x" => emulated(&S390X, options),
        "windows" => windows(options),
        "miri" => miri(options),
        "sanitize" => sanitize(options),
        other => Err(format!("no target '{other}': name one of aarch64, s390x, windows, miri, sanitize")),
    }
}

/// A Linux machine that QEMU emulates.
struct Machine {
    target: &'static str,
    /// What GNU calls it, in names of compilers.
    gnu: &'static str,
    /// What Debian calls it.
    debian: &'static str,
    qemu: &'static str,
}

const AARCH64: Machine = Machine {
    target: "aarch64-unknown-linux-gnu",
    gnu: "aarch64-linux-gnu",
    debian: "arm64",
    qemu: "qemu-aarch64-static",
};

const S390X: Machine =
    Machine { target: "s390x-unknown-linux-gnu", gnu: "s390x-linux-gnu", debian: "s390x", qemu: "qemu-s390x-static" };

fn emulated(machine: &Machine, options: Options) -> Result {
    if !output(command("dpkg").arg("--print-foreign-architectures"))?.lines().any(|line| line == machine.debian) {
        run_command(command("dpkg").args(["--add-architecture", machine.debian]))?;
    }
    debian::packages(&[
        &format!("gcc-{}", machine.gnu),
        &format!("libc6-dev-{}-cross", machine.debian),
        // The C library that compilers for other machines come with hangs under QEMU as soon as there is a thread.
        &format!("libc6:{}", machine.debian),
        &format!("libgcc-s1:{}", machine.debian),
        "qemu-user-static",
    ])?;
    let rust = Rust::for_target(machine.target, options)?;
    let runner = format!("{} -L /", machine.qemu);
    let test = |args: &[&str]| {
        let mut test = rust.cargo("test", &format!("{}-gcc", machine.gnu), &runner);
        // Tests that start themselves again need the emulator too.
        run_command(test.env("PUMICE_TEST_RUNNER", &runner).args(["--package", "pumice"]).args(args))
    };
    library_tests(options, test)
}

/// The library's tests, each with its own arguments.
fn library_tests(options: Options, test: impl Fn(&[&str]) -> Result) -> Result {
    if options.short {
        test(&["--lib"])?;
        return test(&["--test", "suite", "golden::"]);
    }
    test(&["--lib", "--tests"])
}

/// Everything but HDF5, whose libraries are looked for as Unix does, is built and linked. Unless the run is short, library,
/// program and C library are then tested under Wine.
fn windows(options: Options) -> Result {
    debian::packages(&["gcc-mingw-w64-x86-64"])?;
    let rust = Rust::for_target("x86_64-pc-windows-gnu", options)?;
    let prefix = target_dir().join("wine");
    let in_wine = |mut command: Command| {
        command.env("WINEPREFIX", &prefix).env("WINEDEBUG", "-all");
        command
    };
    let cargo = |task: &str| in_wine(rust.cargo(task, MINGW, "wine"));
    let program = ["--package", "pumice-cli", "--no-default-features", "--features", "cuda"];
    run_command(cargo("build").args(program).args(["--package", "pumice-capi", "--package", "pumice-python"]))?;
    if options.short {
        return Ok(());
    }
    debian::packages(&["wine", "wine64"])?;
    run_command(in_wine(command("wine")).args(["wineboot", "--init"]))?;
    random_numbers(&prefix.join("drive_c/windows/system32/bcryptprimitives.dll"))?;
    library_tests(options, |args| run_command(cargo("test").args(["--package", "pumice"]).args(args)))?;
    run_command(cargo("test").args(program).args(["--package", "pumice-capi"]))
}

/// The compiler for Windows.
const MINGW: &str = "x86_64-w64-mingw32-gcc";

/// Rust's standard library takes random numbers from a library of Windows that Wine 8 does not have. This stands in for it.
fn random_numbers(path: &Path) -> Result {
    const SOURCE: &str = "#include <windows.h>\n#include <ntsecapi.h>\n\
        __declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T n) { return RtlGenRandom(bytes, n); }\n";
    if path.exists() {
        return Ok(());
    }
    let source = target_dir().join("wine/bcryptprimitives.c");
    fs::write(&source, SOURCE).map_err(|e| format!("{}: {e}", source.display()))?;
    run_command(command(MINGW).arg("-shared").arg("-o").arg(path).arg(source).arg("-ladvapi32"))
}

/// A Rust that can build for a target.
struct Rust {
    target: &'static str,
    from_debian: bool,
}

impl Rust {
    /// The Rust that runs this task, if rustup has the target's standard library; otherwise Debian's, which compiles the
    /// standard library too.
    fn for_target(target: &'static str, options: Options) -> Result<Self> {
        let from_debian = options.debian || !succeeds(command("rustup").args(["target", "add", target]));
        if from_debian {
            println!("rustup is not used or cannot fetch {target}: taking Debian's compiler");
            debian::packages(&["rustc-web", "cargo-web", "rust-web-src"])?;
        }
        Ok(Self { target, from_debian })
    }

    /// Cargo, with a linker and what runs the programs. Both are given as options: programs that cargo starts would see
    /// variables too, and some act on them.
    fn cargo(&self, task: &str, linker: &str, runner: &str) -> Command {
        let mut cargo = if self.from_debian {
            let mut cargo = command("/usr/bin/cargo");
            // The standard library can only be built with options that are not stable; Debian's Rust takes them.
            cargo.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1").env_remove("RUSTUP_TOOLCHAIN");
            cargo.env("CARGO_TARGET_DIR", target_dir().join("debian")).args([task, "-Z", "build-std"]);
            cargo
        } else {
            let mut cargo = cargo();
            cargo.arg(task);
            cargo
        };
        cargo.args(["--target", self.target]);
        cargo.arg("--config").arg(format!("target.{}.linker='{linker}'", self.target));
        cargo.arg("--config").arg(format!("target.{}.runner='{runner}'", self.target));
        cargo
    }
}

/// What of the unsafe code Miri interprets in bearable time: these unit tests, and tests/interpreted.rs.
const UNSAFE_MODULES: [&str; 5] = ["simd::", "planes::", "pages::", "quantize::tests::special", "rans::tests::beyond"];

/// Interprets small round trips with the portable kernels, and with those for AVX2 unless it is to be short.
fn miri(options: Options) -> Result {
    for component in ["miri", "rust-src"] {
        run_command(command("rustup").args(["component", "add", "--toolchain", "nightly", component])).map_err(
            |e| {
                format!(
                    "Miri needs a nightly toolchain (`rustup toolchain install nightly`) with miri and rust-src: {e}"
                )
            },
        )?;
    }
    let instruction_sets = ["", "-C target-feature=+avx2,+bmi1,+bmi2,+lzcnt,+popcnt"];
    for flags in &instruction_sets[..if options.short { 1 } else { 2 }] {
        let test = |args: &[&str]| {
            let mut test = nightly();
            // Kernels read a little beyond a slice that is known to have bytes behind it. Tree Borrows allows that, Stacked
            // Borrows does not.
            test.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-tree-borrows").env("RUSTFLAGS", flags);
            run_command(test.args(["miri", "test", "--package", "pumice"]).args(args))
        };
        test(&["--test", "interpreted"])?;
        if !options.short {
            test(&[&["--lib", "--"], &UNSAFE_MODULES[..]].concat())?;
        }
    }
    Ok(())
}

/// All kernels, those for AVX-512 too where the machine has it, under the address sanitizer.
fn sanitize(options: Options) -> Result {
    library_tests(options, |args| {
        let mut test = nightly();
        test.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", target_dir().join("sanitize"));
        // Tests ask for more memory than there is, and want to be told so.
        test.env("ASAN_OPTIONS", "allocator_may_return_null=1");
        // With a target named, build scripts are left alone.
        test.args(["test", "--target", "x86_64-unknown-linux-gnu", "--package", "pumice"]);
        run_command(test.args(args))
    })
}

/// The nightly toolchain, in whose place the cargo that started this task would otherwise stand.
fn nightly() -> Command {
    let mut cargo = command("cargo");
    cargo.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").arg("+nightly");
    cargo
}
