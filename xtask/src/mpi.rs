//! MPI: the libraries that `crates/pumice-mpi` is built with, and its tests.

use crate::debian;
use crate::shell::{Result, cargo, run, target_dir};

/// Installs what the feature `mpi` of the workspace needs: Open MPI, and libclang, which reads its header.
pub(crate) fn library() -> Result {
    debian::packages(&["libopenmpi-dev", "openmpi-bin", "libclang-dev"])
}

/// `cargo xtask mpi test [--mpich] [TEST...]`
pub(crate) fn run_task(options: &[&str]) -> Result {
    match options {
        ["test", "--mpich", tests @ ..] => {
            debian::packages(&["libmpich-dev", "mpich", "libclang-dev"])?;
            // Debian has both libraries side by side.
            let mut cargo = cargo();
            cargo.env("MPICC", "mpicc.mpich").env("MPIRUN", "mpirun.mpich");
            test(cargo.env("CARGO_TARGET_DIR", target_dir().join("mpich")), tests)
        }
        ["test", tests @ ..] => library().and_then(|()| test(&mut cargo(), tests)),
        _ => Err("usage: cargo xtask mpi test [--mpich] [TEST...]".into()),
    }
}

fn test(cargo: &mut std::process::Command, tests: &[&str]) -> Result {
    run(cargo.args(["test", "--package", "pumice-mpi", "--features", "mpi", "--"]).args(tests))
}
