//! The C library as its users have it: installed under a prefix, found by pkg-config and CMake, used from C, C++ and
//! Fortran, under valgrind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{Result, cargo, command, read, root, run, target_dir};
use crate::{debian, header, shell};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a C compiler is asked to find.
const STRICT: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"];

/// Where HDF5's plugin goes, under the prefix.
const PLUGIN_FOLDER: &str = "lib/hdf5/plugin";

/// The system libraries that the static library needs.
const SYSTEM_LIBS: &str = "-lpthread -ldl -lm -lgcc_s -lc";

/// `cargo xtask install-c`.
pub(crate) fn run_task(options: &[&str]) -> Result {
    match options {
        ["--prefix", prefix] => install(&root().join(prefix)),
        ["--mpi", "--prefix", prefix] | ["--prefix", prefix, "--mpi"] => install_mpi(&root().join(prefix)),
        _ => Err("install-c needs --prefix DIR; --mpi installs the library for MPI as well".into()),
    }
}

/// Builds the library and installs everything that belongs to it under `prefix`.
fn install(prefix: &Path) -> Result {
    if !cfg!(target_os = "linux") {
        return Err("install-c knows Linux only; elsewhere use cargo-c: `cargo cinstall --package pumice-capi`".into());
    }
    // One after the other: together, libpumice would have the functions of the plugin as well.
    for package in ["pumice-capi", "pumice-hdf5"] {
        run(cargo().args(["build", "--release", "--quiet", "--package", package]))?;
    }
    let (built, source) = (target_dir().join("release"), root().join("crates/pumice-capi"));
    let (lib, include) = (prefix.join("lib"), prefix.join("include"));
    let (pkg_config, cmake) = (lib.join("pkgconfig"), prefix.join("share/pumice/cmake"));
    let plugin = prefix.join(PLUGIN_FOLDER);
    for dir in [&include, &pkg_config, &cmake, &plugin] {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    copy(&built.join("libpumice_capi.a"), &lib.join("libpumice.a"))?;
    copy(&built.join("libpumice_hdf5.so"), &plugin.join("libpumice_hdf5.so"))?;
    // Most of their size is for debuggers.
    run(command("strip").arg("--strip-debug").args([lib.join("libpumice.a"), plugin.join("libpumice_hdf5.so")]))?;
    shared_library("libpumice", &lib)?;
    for header in ["pumice.h", "pumice_hdf5_mpi.h"] {
        copy(&source.join("include").join(header), &include.join(header))?;
    }
    copy(&source.join("fortran/pumice.f90"), &include.join("pumice.f90"))?;
    for name in ["PumiceConfig.cmake", "PumiceConfigVersion.cmake"] {
        copy(&source.join("cmake").join(name), &cmake.join(name))?;
    }
    let text = format!(
        "hdf5_plugin_path=${{prefix}}/{PLUGIN_FOLDER}\n\n\
         Name: pumice\nDescription: Error-bounded compression of floating-point arrays\nVersion: {VERSION}\n\
         Libs: -L${{libdir}} -lpumice\nLibs.private: {SYSTEM_LIBS}\nCflags: -I${{includedir}}\n"
    );
    package_file(&pkg_config.join("pumice.pc"), &text)?;
    println!("for HDF5: export HDF5_PLUGIN_PATH={}", plugin.display());
    Ok(())
}

/// Installs the library for MPI as well, for the MPI library whose `mpicc` (or MPICC) is found.
pub(crate) fn install_mpi(prefix: &Path) -> Result {
    install(prefix)?;
    let (lib, include, source) = (prefix.join("lib"), prefix.join("include"), root().join("crates/pumice-capi"));
    run(cargo().args(["build", "--release", "--quiet", "--package", "pumice-capi", "--features", "mpi"]))?;
    shared_library("libpumice_mpi", &lib)?;
    copy(&source.join("include/pumice_mpi.h"), &include.join("pumice_mpi.h"))?;
    copy(&source.join("fortran/pumice_mpi.f90"), &include.join("pumice_mpi.f90"))?;
    let text = format!(
        "\nName: pumice_mpi\nDescription: Pumice with its functions for MPI\nVersion: {VERSION}\n\
         Libs: -L${{libdir}} -lpumice_mpi\nCflags: -I${{includedir}}\n"
    );
    package_file(&lib.join("pkgconfig/pumice_mpi.pc"), &text)
}

/// Installs the library that was just built under this name, with its links.
fn shared_library(name: &str, lib: &Path) -> Result {
    let file = format!("{name}.so.{VERSION}");
    copy(&target_dir().join("release/libpumice_capi.so"), &lib.join(&file))?;
    run(command("strip").arg("--strip-debug").arg(lib.join(&file)))?;
    for link in [format!("{name}.so.{}", compatible_version()), format!("{name}.so")] {
        let link = lib.join(link);
        // Replaces the link of an earlier release.
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&file, &link).map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(())
}

/// What pkg-config reads.
fn package_file(path: &Path, text: &str) -> Result {
    let text = format!("prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n{text}");
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result {
    // Running programs keep the old file mapped; overwriting it in place would change their code.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// The part of the version that stays the same as long as the interface does, as in `build.rs` of the library.
fn compatible_version() -> &'static str {
    let parts = if VERSION.starts_with("0.") { 2 } else { 1 };
    let end = VERSION.match_indices('.').nth(parts - 1).map_or(VERSION.len(), |(at, _)| at);
    &VERSION[..end]
}

/// Where CI installs the library and builds its users.
struct Site {
    prefix: PathBuf,
    build: PathBuf,
}

impl Site {
    /// Empty folders, and the programs of Debian that are needed.
    fn prepare() -> Result<Self> {
        debian::packages(&["gcc", "g++", "gfortran", "make", "cmake", "pkg-config", "valgrind", "libc6-dbg"])?;
        debian::packages(&["libhdf5-dev"])?;
        let dir = target_dir().join("capi");
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        let site = Self { prefix: dir.join("prefix"), build: dir.join("build") };
        fs::create_dir_all(&site.build).map_err(|e| format!("{}: {e}", site.build.display()))?;
        Ok(site)
    }

    /// A program that finds the library as that of a user would who has set the usual variables.
    fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        command.current_dir(&self.build);
        command.env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        command.env("CMAKE_PREFIX_PATH", &self.prefix);
        command.env("LD_LIBRARY_PATH", self.prefix.join("lib"));
        command
    }

    /// The compiler flags that pkg-config prints.
    fn flags(&self, options: &[&str]) -> Result<Vec<String>> {
        let output = shell::output(self.command("pkg-config").args(options).arg("pumice"))?;
        Ok(output.split_whitespace().map(str::to_owned).collect())
    }

    /// Runs a program under valgrind: errors and lost memory fail.
    fn valgrind(&self, program: &Path) -> Result {
        let mut valgrind = self.command("valgrind");
        valgrind.args([
            "--quiet",
            "--error-exitcode=99",
            "--leak-check=full",
            "--show-leak-kinds=definite,indirect,possible",
        ]);
        let known = root().join("crates/pumice-capi/tests/valgrind.supp");
        valgrind.arg("--errors-for-leak-kinds=definite,indirect,possible");
        valgrind.arg(format!("--suppressions={}", known.display()));
        run(valgrind.arg(program))
    }
}

/// The header is that of the source; examples, misuse and the code of README.md, built by CMake and by pkg-config, shared
/// and static, run under valgrind.
pub(crate) fn programs() -> Result {
    header::run(&["--check"])?;
    let site = Site::prepare()?;
    install(&site.prefix)?;
    let source = root().join("crates/pumice-capi");

    let soname = shell::output(site.command("objdump").arg("-p").arg(site.prefix.join("lib/libpumice.so")))?;
    let wanted = format!("libpumice.so.{}", compatible_version());
    if !soname.lines().any(|line| line.contains("SONAME") && line.ends_with(&wanted)) {
        return Err(format!("the library's soname is not {wanted}"));
    }

    run(site.command("cmake").args(["-S"]).arg(source.join("examples")).args(["-B", "examples"]))?;
    run(site.command("cmake").args(["--build", "examples"]))?;
    for name in ["one_shot", "slabs", "memory", "fortran", "steps"] {
        site.valgrind(&site.build.join("examples").join(name))?;
    }

    let misuse = source.join("tests/misuse.c");
    for (name, options) in [("misuse", &["--cflags", "--libs"][..]), ("misuse_static", &["--cflags"])] {
        let mut gcc = site.command("gcc");
        gcc.args(STRICT).arg(&misuse).args(["-g", "-o", name]).args(site.flags(options)?);
        if options.len() == 1 {
            gcc.arg(site.prefix.join("lib/libpumice.a")).args(SYSTEM_LIBS.split(' '));
        }
        run(&mut gcc)?;
        site.valgrind(&site.build.join(name))?;
    }
    readme(&site)?;
    hdf5(&site)?;
    // The same header for C++, and without any other in front.
    run(site
        .command("g++")
        .args(["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror"])
        .args(["-fsyntax-only".as_ref(), site.prefix.join("include/pumice.h").as_os_str()]))
}

/// A program that writes HDF5, with libhdf5 shared and static. HDF5's functions are then hidden from the plugin, which says
/// how to link the program instead.
fn hdf5(site: &Site) -> Result {
    let build = |name: &str, options: &[&str]| {
        let mut h5cc = site.command("h5cc");
        h5cc.args(options).args(["-o", name]).arg(root().join("crates/pumice-capi/tests/hdf5.c"));
        run(h5cc.args(site.flags(&["--cflags", "--libs"])?).arg("-lm"))
    };
    let program = |name: &str, mode: &str| -> Result<Command> {
        let mut program = site.command(site.build.join(name).to_str().ok_or("the path of the build is not UTF-8")?);
        let plugins = shell::output(site.command("pkg-config").args(["--variable=hdf5_plugin_path", "pumice"]))?;
        program.env("HDF5_PLUGIN_PATH", plugins.trim()).args([mode, "hdf5.h5"]);
        Ok(program)
    };
    build("hdf5_shared", &["-shlib"])?;
    build("hdf5_static", &[])?;
    build("hdf5_exported", &["-rdynamic", "-Wl,-u,H5Tget_fields"])?;
    for name in ["hdf5_shared", "hdf5_exported"] {
        run(&mut program(name, "write")?)?;
        run(&mut program("hdf5_static", "read")?)?;
    }
    let refused = program("hdf5_static", "write")?.output().map_err(|e| format!("hdf5_static: {e}"))?;
    let message = String::from_utf8_lossy(&refused.stderr);
    match !refused.status.success() && message.contains("pass -rdynamic -Wl,-u,H5Tget_fields to the linker") {
        true => Ok(()),
        false => Err(format!("a program with a static libhdf5 does not say how to link it:\n{message}")),
    }
}

/// The C code of README.md, between the lines of tests/readme.c.
fn readme(site: &Site) -> Result {
    let page = read(&root().join("README.md"))?;
    let block = code_blocks(&page)?.into_iter().find(|block| block.language == "c").ok_or("README.md has no C code")?;
    let code = site.build.join("readme.inc");
    fs::write(&code, block.text).map_err(|e| format!("{}: {e}", code.display()))?;
    let mut gcc = site.command("gcc");
    gcc.args(STRICT).arg(root().join("crates/pumice-capi/tests/readme.c")).args(["-I.", "-g", "-o", "readme"]);
    run(gcc.args(site.flags(&["--cflags", "--libs"])?))?;
    site.valgrind(&site.build.join("readme"))
}

/// Every code block of docs/tutorials/c.md: files are saved under the name in their first line, commands are run one after
/// the other, and what they print is compared with the `text` that follows them.
pub(crate) fn tutorial() -> Result {
    let site = Site::prepare()?;
    let page = read(&root().join("docs/tutorials/c.md"))?;
    let folder = site.prefix.join("tour");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut script = format!("set -eu\nPREFIX='{}'\n", site.prefix.display());
    let mut expected: Vec<Option<String>> = Vec::new();
    for block in code_blocks(&page)? {
        match block.language {
            "sh" => {
                script += &format!("echo '{MARK}'\n{}\n", block.text);
                expected.push(None);
            }
            "text" => *expected.last_mut().ok_or("the first code block of c.md is an output")? = Some(block.text),
            _ => {
                let first = block.text.lines().next().unwrap_or_default();
                let name = first.split_whitespace().find(|word| word.contains('.'));
                let name = name.ok_or_else(|| format!("c.md: no file name in the first line of a block: {first}"))?;
                let file = folder.join(name);
                fs::write(&file, &block.text).map_err(|e| format!("{}: {e}", file.display()))?;
            }
        }
    }
    let printed = shell::output(command("sh").args(["-c", &script]))?;
    let printed: Vec<&str> = printed.split(&format!("{MARK}\n")).skip(1).collect();
    for (i, (printed, expected)) in printed.iter().zip(&expected).enumerate() {
        if let Some(expected) = expected
            && expected.trim_end() != printed.trim_end()
        {
            return Err(format!("command {} of c.md prints\n{printed}\nbut the page says\n{expected}", i + 1));
        }
    }
    println!("{} commands of docs/tutorials/c.md did what the page says", expected.len());
    if printed.len() == expected.len() { Ok(()) } else { Err("not all commands of c.md were run".into()) }
}

/// Printed before the output of each command.
const MARK: &str = "==== next command ====";

struct CodeBlock<'a> {
    language: &'a str,
    text: String,
}

/// The fenced blocks of a page.
fn code_blocks(page: &str) -> Result<Vec<CodeBlock<'_>>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let mut text = String::new();
        loop {
            match lines.next() {
                Some("```") => break,
                Some(line) => text += &format!("{line}\n"),
                None => return Err("a code block does not end".into()),
            }
        }
        blocks.push(CodeBlock { language, text });
    }
    Ok(blocks)
}
