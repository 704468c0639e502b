//! `cargo xtask mpi shim`: programs under `libpumice_mpi_shim.so`, and without it. Most of them were written by others: PETSc,
//! LAMMPS, HDF5, the tests of mpi4py.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pumice::{DecodeOptions, Reader};

use crate::debian;
use crate::mpi;
use crate::python;
use crate::shell::{self, Result, cargo, command, output, read, root, run, target_dir};

/// Programs, rules and arguments are those of this folder.
const PROGRAMS: &str = "crates/pumice-mpi-shim/tests/programs";

const N_RANKS: usize = 3;

/// Where Debian has PETSc for Python, which its packages of several builds keep apart.
const PETSC: &str = "/usr/lib/petscdir/petsc3.18/x86_64-linux-gnu-real";

/// The release of mpi4py that Debian has, whose tests PyPI has.
const MPI4PY: &str = "3.1.4";

/// Installs and builds what is needed, and runs all.
pub(crate) fn test() -> Result {
    mpi::library()?;
    let programs = ["gfortran", "lammps", "python3-h5py-mpi", "python3-mpi4py", "python3-petsc4py-real3.18"];
    debian::packages(&programs)?;
    // As tests are built, so that it is not built twice.
    run(cargo().args(["build", "--profile", "test", "--package", "pumice-mpi-shim", "--features", "mpi"]))?;
    let bench = Bench::new()?;
    bench.files()?;
    bench.gathers()?;
    bench.python()?;
    bench.petsc()?;
    bench.lammps()?;
    bench.mpi4py()?;
    bench.overhead()
}

/// Where programs run: `plain` without the shim, `packed` with it.
struct Bench {
    folder: PathBuf,
}

impl Bench {
    fn new() -> Result<Self> {
        let folder = target_dir().join("mpi-shim");
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(at(&folder))?;
        }
        for side in ["plain", "packed"] {
            fs::create_dir_all(folder.join(side)).map_err(at(&folder))?;
        }
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Compiles a program of ours.
    fn compile(&self, compiler: &str, source: &str, libraries: &[&str]) -> Result<PathBuf> {
        let program = self.path(source.split('.').next().unwrap_or(source));
        let source = root().join(PROGRAMS).join(source);
        let mut compile = command(compiler);
        run(compile.current_dir(&self.folder).args(["-O2", "-Wall", "-o"]).arg(&program).arg(source).args(libraries))?;
        Ok(program)
    }

    fn mpirun(&self) -> Command {
        let mut ranks = mpi::mpirun(N_RANKS);
        ranks.current_dir(&self.folder);
        ranks
    }

    /// Runs a program without the shim.
    fn plain(&self, program: impl Fn(&mut Command)) -> Result<String> {
        let mut ranks = self.mpirun();
        program(&mut ranks);
        output(&mut ranks)
    }

    /// Runs a program under the shim, and returns what that has said, after what the program has printed.
    fn packed(&self, rules: &str, program: impl Fn(&mut Command)) -> Result<String> {
        let (rules_file, report) = (self.path("rules.toml"), self.path("report.txt"));
        // Keys of the document come before its tables.
        let rules = format!("report = {:?}\n{rules}", report.display().to_string());
        fs::write(&rules_file, rules).map_err(at(&rules_file))?;
        let _ = fs::remove_file(&report);
        let mut ranks = self.mpirun();
        let set = |name: &str, path: &Path| format!("{name}={}", path.display());
        ranks.args(["-x", &set("LD_PRELOAD", &target_dir().join("debug/libpumice_mpi_shim.so"))]);
        ranks.args(["-x", &set("PUMICE_MPI_SHIM", &rules_file)]);
        program(&mut ranks);
        let printed = output(&mut ranks)?;
        let report = read(&report)?;
        // Scratch files are gone.
        for entry in fs::read_dir(self.path("packed")).map_err(at(&self.folder))? {
            let path = entry.map_err(at(&self.folder))?.path();
            if path.extension().is_some_and(|extension| ["shim", "partial"].iter().any(|name| extension == *name)) {
                return Err(format!("{} is left over", path.display()));
            }
        }
        report.lines().take(MAX_LINES).for_each(|line| println!("  {line}"));
        Ok(printed + &report)
    }

    /// Files that must have the same bytes with and without the shim.
    fn same(&self, name: &str) -> Result {
        let side = |side: &str| {
            let path = self.folder.join(side).join(name);
            fs::read(&path).map_err(at(&path))
        };
        if side("plain")? == side("packed")? { Ok(()) } else { Err(format!("{name} has other bytes under the shim")) }
    }

    /// The values that a compressed file and its plain sibling have differ by the bound at most, and somewhere.
    fn within(&self, name: &str, header: usize, bound: f64, value: fn(&[u8]) -> f64, value_bytes: usize) -> Result {
        let path = self.folder.join("plain").join(name);
        let plain = fs::read(&path).map_err(at(&path))?;
        let expected: Vec<f64> = plain[header..].chunks_exact(value_bytes).map(value).collect();
        let path = self.folder.join("packed").join(name);
        let failed = |e: pumice::Error| format!("{}: {e}", path.display());
        let reader = Reader::open(&path, DecodeOptions::new()).map_err(failed)?;
        let values: Vec<f64> = if value_bytes == 4 {
            reader.read::<f32>().map_err(failed)?.data.into_iter().map(f64::from).collect()
        } else {
            reader.read::<f64>().map_err(failed)?.data
        };
        let error = expected.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if values.len() != expected.len() || !(error > 0.0 && error <= bound) {
            let (n, all) = (values.len(), expected.len());
            return Err(format!("{name}: {n} values for {all}, which differ by {error} with a bound of {bound}"));
        }
        println!("  {name}: read by a single process; the largest error is {error:.2e}, the bound {bound:e}");
        Ok(())
    }

    /// Our programs in C and Fortran, which write arrays in all ways that MPI has.
    fn files(&self) -> Result {
        let rules = "[[file]]\nname = \"*.dat\"\ndtype = \"f64\"\nabs = 1e-3\n\
                     [[file]]\nname = \"header.dat\"\ndtype = \"f64\"\nabs = 1e-3\nheader = 24\nshape = [0, 60]\n";
        let files = self.compile("mpicc", "files.c", &["-lm"])?;
        let field = self.compile("mpifort", "field.f90", &[])?;
        for program in [files, field] {
            self.plain(|ranks| {
                ranks.arg(&program).args(["plain", "0"]);
            })?;
            let said = self.packed(rules, |ranks| {
                ranks.arg(&program).args(["packed", "1e-3"]);
            })?;
            expect(&said, "became")?;
        }
        for name in ["holes", "integers", "shared", "read"] {
            self.same(&format!("plain_{name}.dat"))?;
        }
        self.same("other.bin")?;
        for name in ["at_all", "pointer", "header", "nonblocking", "split", "fortran"] {
            self.within(&format!("{name}.dat"), if name == "header" { 24 } else { 0 }, 1e-3, f64_of, 8)?;
        }
        Ok(())
    }

    fn gathers(&self) -> Result {
        let gather = self.compile("mpicc", "gather.c", &["-lm"])?;
        let rules = "[gather]\nabs = 1e-3\nleast_bytes = 65536\n";
        self.plain(|ranks| {
            ranks.arg(&gather).args(["0", "100000"]);
        })?;
        self.packed(rules, |ranks| {
            ranks.arg(&gather).args(["1e-3", "100000"]);
        })?;
        let always = format!("{rules}always = true\n");
        let said = self.packed(&always, |ranks| {
            ranks.arg(&gather).args(["1e-3", "100000"]);
        })?;
        expect(&said, "gathers: 6 compressed")
    }

    /// mpi4py and h5py.
    fn python(&self) -> Result {
        let rules = "[[file]]\nname = [\"*.f32\", \"*.h5\"]\ndtype = \"f32\"\nabs = 1e-3\n\
                     [gather]\nabs = 1e-3\nleast_bytes = 1024\nalways = true\n";
        let script = root().join(PROGRAMS).join("arrays.py");
        self.plain(|ranks| {
            ranks.arg(DEBIAN_PYTHON).arg(&script).args(["plain", "0"]);
        })?;
        let said = self.packed(rules, |ranks| {
            ranks.arg(DEBIAN_PYTHON).arg(&script).args(["packed", "1e-3"]);
        })?;
        expect(&said, "gathers: 1 compressed")?;
        for name in ["slabs.f32", "turns.f32"] {
            self.within(name, 0, 1e-3, f32_of, 4)?;
        }
        self.same("field.h5")
    }

    /// PETSc's binary format: a header, and doubles with the greatest byte first.
    fn petsc(&self) -> Result {
        let rules = "[[file]]\nname = \"*.petsc\"\ndtype = \">f64\"\nabs = 1e-4\nheader = 8\n";
        let script = root().join(PROGRAMS).join("vectors.py");
        let program = |folder: &'static str, bound: &'static str| {
            let script = script.clone();
            move |ranks: &mut Command| {
                ranks.env("PETSC_DIR", PETSC).env("PYTHONPATH", format!("{PETSC}/lib/python3/dist-packages"));
                ranks.arg(DEBIAN_PYTHON).arg(&script).args([folder, bound]);
            }
        };
        self.plain(program("plain", "0"))?;
        let said = self.packed(rules, program("packed", "1e-4"))?;
        expect(&said, "compressed files")?;
        self.within("vector.petsc", 8, 1e-4, |bytes| f64::from_be_bytes(bytes.try_into().expect("8 bytes")), 8)
    }

    /// LAMMPS puts numbers of 32 bits between its doubles: the file must be as it is without the shim.
    fn lammps(&self) -> Result {
        let rules = "[[file]]\nname = \"atoms.*.bin\"\ndtype = \"f64\"\nabs = 1e-3\nheader = 100\n";
        let input = root().join(PROGRAMS).join("melt.in");
        let program = |folder: &'static str| {
            let input = input.clone();
            move |ranks: &mut Command| {
                ranks
                    .args(["lmp", "-log", "none", "-screen", "none", "-in"])
                    .arg(&input)
                    .args(["-var", "folder", folder]);
            }
        };
        self.plain(program("plain"))?;
        let said = self.packed(rules, program("packed"))?;
        expect(&said, "not whole values")?;
        ["atoms.0.mpiio.bin", "atoms.20.mpiio.bin"].iter().try_for_each(|name| self.same(name))
    }

    /// The tests of mpi4py for files and collectives, with all handles and gathers taken over, without loss.
    fn mpi4py(&self) -> Result {
        python::environment()?;
        let mut download = command(python::python());
        download.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest"]);
        run(download.arg(&self.folder).arg(format!("mpi4py=={MPI4PY}")))?;
        run(command("tar").current_dir(&self.folder).args(["-xzf", &format!("mpi4py-{MPI4PY}.tar.gz")]))?;
        // Files that are deleted when they are closed are not taken over.
        let test = self.path(&format!("mpi4py-{MPI4PY}/test/test_io.py"));
        let text = read(&test)?;
        let changed = text.replace("        amode |= MPI.MODE_DELETE_ON_CLOSE\n", "");
        if changed == text {
            return Err("the tests of mpi4py open files in another way than expected".into());
        }
        fs::write(&test, changed).map_err(at(&test))?;
        let rules = "[[file]]\nname = \"*\"\ndtype = \"f64\"\nlossless = true\ngroups = true\n\
                     [gather]\nleast_bytes = 1\nlossless = true\nalways = true\n";
        let said = self.packed(rules, |ranks| {
            ranks.arg(DEBIAN_PYTHON).arg(format!("mpi4py-{MPI4PY}/test/runtests.py")).arg("--no-builddir");
            for test in ["test_io", "test_file", "test_cco_buf", "test_cco_vec"] {
                ranks.args(["--include", test]);
            }
        })?;
        expect(&said, "gathers: ")
    }

    /// What calls cost that are handed on.
    fn overhead(&self) -> Result {
        let overhead = self.compile("mpicc", "overhead.c", &["-ldl"])?;
        let rules = "[[file]]\nname = \"*.dat\"\ndtype = \"f64\"\nabs = 1e-3\n[gather]\nrel = 1e-4\n";
        let said = self.packed(rules, |ranks| {
            ranks.arg(&overhead).arg("packed");
        })?;
        said.lines().filter(|line| line.contains("ratio")).for_each(|line| println!("  {line}"));
        Ok(())
    }
}

/// Lines of a report that are printed.
const MAX_LINES: usize = 14;

/// The Python that Debian's packages are for.
const DEBIAN_PYTHON: &str = "/usr/bin/python3";

fn f64_of(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

fn f32_of(bytes: &[u8]) -> f64 {
    f32::from_le_bytes(bytes.try_into().expect("4 bytes")).into()
}

fn expect(said: &str, part: &str) -> shell::Result {
    if said.contains(part) { Ok(()) } else { Err(format!("the shim does not say '{part}', but:\n{said}")) }
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}
