//! Gives the shared library its soname, as cargo-c does: a program then asks for the releases that it can work with.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let part = |name: &str| var(format!("CARGO_PKG_VERSION_{name}")).unwrap_or_default();
        let (major, minor) = (part("MAJOR"), part("MINOR"));
        // Before 1.0 each minor release may break.
        let compatible = if major == "0" { format!("0.{minor}") } else { major };
        // With the feature `mpi` it is another library.
        let name = if var("CARGO_FEATURE_MPI").is_ok() { "libpumice_mpi" } else { "libpumice" };
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}.so.{compatible}");
    }
}
