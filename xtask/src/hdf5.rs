//! The HDF5 plugin: copies it into the Python package, installs the programs that its tests need, and tests it under MPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian;
use crate::shell::{self, Result, command, root, run};
use crate::wheel;

/// Where the Python package has the plugin.
const PLUGIN_FOLDER: &str = "crates/pumice-python/python/pumice/hdf5/plugin";

/// Installs the programs that read and write HDF5 and NetCDF, and parallel HDF5 and NetCDF.
pub(crate) fn programs() -> Result {
    debian::packages(&[
        "hdf5-tools",
        "netcdf-bin",
        "libhdf5-openmpi-dev",
        "libnetcdf-mpi-dev",
        "openmpi-bin",
        "pkg-config",
    ])
}

/// Builds the plugin, as `configure` says, which makes cargo put it into `built`, and puts it into the Python package.
pub(crate) fn build_plugin(configure: impl Fn(&mut Command) -> Result, built: &Path) -> Result {
    // Together with the command-line tool, which has the same filter, so that nothing is built twice.
    let packages = ["--package", "pumice-hdf5", "--package", "pumice-cli"];
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--quiet"]).args(packages);
    configure(&mut cargo)?;
    run(&mut cargo)?;
    let (name, folder) = (format!("libpumice_hdf5{}", std::env::consts::DLL_SUFFIX), root().join(PLUGIN_FOLDER));
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut strip = command("strip");
    // Only what is needed to link it is left.
    if cfg!(target_os = "macos") {
        strip.arg("-x");
    }
    run(strip.arg("-o").arg(folder.join(&name)).arg(built.join(name)))
}

/// Ranks write one dataset together, through the filter and past it; and random histories by one process, through the HDF5
/// library that is built for MPI.
pub(crate) fn parallel() -> Result {
    wheel::test_parallel_hdf5()?;
    let folder = empty_folder("hdf5-parallel")?;
    let tests = root().join("crates/pumice-hdf5/tests");
    let parallel = compile(&folder, "parallel", &tests.join("parallel.c"), &[])?;
    run(ranks(2).arg(parallel).arg(folder.join("parallel.h5")))?;

    let library = shell::output(command("pkg-config").args(["--variable=libdir", "netcdf-mpi"]))?;
    let include = format!("-I{}/netcdf/mpi/include", library.trim());
    let netcdf = compile(&folder, "netcdf", &tests.join("parallel_netcdf.c"), &[&include, "-lnetcdf_mpi"])?;
    for n in [2, 4] {
        run(ranks(n).arg(&netcdf).arg(folder.join("parallel.nc")))?;
    }

    let direct = compile_with_library(&folder, &root().join("crates/pumice-capi/tests/hdf5_ranks.c"))?;
    for n in [1, 2, 3, 4] {
        run(ranks(n).arg(&direct).arg(&folder))?;
        run(ranks(n).env("H5PY_ALWAYS_USE_MPI", "1").args(wheel::python_of_ranks()).arg(&folder))?;
    }
    Ok(())
}

/// Programs that many ranks run, with the plugin of the Python package.
pub(crate) fn ranks(n: usize) -> Command {
    let mut ranks = command("mpirun");
    ranks.env("HDF5_PLUGIN_PATH", root().join(PLUGIN_FOLDER)).env("OMPI_MCA_mpi_yield_when_idle", "1");
    ranks.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    ranks.args(["--oversubscribe", "-n", &n.to_string()]);
    ranks
}

pub(crate) fn empty_folder(name: &str) -> Result<PathBuf> {
    let folder = shell::target_dir().join(name);
    let made = if folder.exists() { fs::remove_dir_all(&folder) } else { Ok(()) };
    made.and_then(|()| fs::create_dir_all(&folder)).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Compiles a program for MPI and HDF5, in a folder, where the compiler leaves an object file too.
fn compile(folder: &Path, name: &str, source: &Path, options: &[&str]) -> Result<PathBuf> {
    let program = folder.join(name);
    let mut compiler = command("h5pcc");
    compiler.current_dir(folder).args(["-shlib", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
    run(compiler.args(options).arg("-lm"))?;
    Ok(program)
}

/// The same for one that needs the C library as well, which is linked statically.
pub(crate) fn compile_with_library(folder: &Path, source: &Path) -> Result<PathBuf> {
    run(shell::cargo().args(["build", "--release", "--quiet", "--package", "pumice-capi"]))?;
    let include = format!("-I{}", root().join("crates/pumice-capi/include").display());
    let library = shell::target_dir().join("release/libpumice_capi.a").display().to_string();
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    compile(folder, &name, source, &[&include, &library, "-lpthread", "-ldl", "-lgcc_s"])
}
