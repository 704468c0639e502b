//! The HDF5 plugin: copies it into the Python package, installs the programs that its tests need, and tests it under MPI.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::debian;
use crate::shell::{self, Result, command, root, run};
use crate::wheel;

/// Where the Python package has the plugin.
const PLUGIN_FOLDER: &str = "crates/pumice-python/python/pumice/hdf5/plugin";

/// Installs the programs that read and write HDF5 and NetCDF, and parallel HDF5.
pub(crate) fn programs() -> Result {
    debian::packages(&["hdf5-tools", "netcdf-bin", "libhdf5-openmpi-dev", "openmpi-bin"])
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

/// Two ranks write one dataset together; and random histories by one process, through the HDF5 library that is built for MPI.
pub(crate) fn parallel() -> Result {
    wheel::test_parallel_hdf5()?;
    let folder = shell::target_dir().join("hdf5-parallel");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let program = folder.join("parallel");
    // In that folder, since the compiler leaves an object file in the current one.
    let mut compiler = command("h5pcc");
    compiler.current_dir(&folder).args(["-shlib", "-o"]).arg(&program);
    run(compiler.arg(root().join("crates/pumice-hdf5/tests/parallel.c")).arg("-lm"))?;
    let mut ranks = command("mpirun");
    ranks.env("HDF5_PLUGIN_PATH", root().join(PLUGIN_FOLDER));
    ranks.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run(ranks.args(["--oversubscribe", "-n", "2"]).arg(program).arg(folder.join("parallel.h5")))
}
