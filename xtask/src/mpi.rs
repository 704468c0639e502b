//! MPI: the libraries that `crates/pumice-mpi` is built with, its tests, and its speed over limited links.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

mod storage;

use crate::shell::{Result, cargo, command, output, root, run, target_dir};
use crate::{capi, debian, wheel};
use storage::Storage;

/// Installs what the feature `mpi` of the workspace needs: Open MPI, and libclang, which reads its header.
pub(crate) fn library() -> Result {
    debian::packages(&["libopenmpi-dev", "openmpi-bin", "libclang-dev"])
}

/// `cargo xtask mpi test [--mpich] [TEST...]` and `cargo xtask mpi bench [--quick] [--json]`
pub(crate) fn run_task(options: &[&str]) -> Result {
    match options {
        ["test", "--mpich", tests @ ..] => {
            debian::packages(&["libmpich-dev", "mpich", "libclang-dev"])?;
            // Debian has both libraries side by side.
            let mut cargo = cargo();
            cargo.env("MPICC", "mpicc.mpich").env("MPIRUN", "mpirun.mpich");
            test(cargo.env("CARGO_TARGET_DIR", target_dir().join("mpich")), tests)
        }
        ["test"] => {
            library()?;
            test(&mut cargo(), &[])?;
            wheel::build()?;
            programs()
        }
        ["test", tests @ ..] => library().and_then(|()| test(&mut cargo(), tests)),
        ["shim"] => crate::shim::test(),
        ["bench", options @ ..] if options.iter().all(|option| ["--quick", "--json"].contains(option)) => {
            bench(options.contains(&"--quick"), options.contains(&"--json"))
        }
        ["hdf5", options @ ..] if options.iter().all(|option| ["--quick", "--json"].contains(option)) => {
            crate::hdf5_modes::run_task(options.contains(&"--quick"), options.contains(&"--json"))
        }
        _ => Err("usage: cargo xtask mpi test [--mpich] [TEST...] | cargo xtask mpi shim | \
                  cargo xtask mpi bench|hdf5 [--quick] [--json]"
            .into()),
    }
}

fn test(cargo: &mut Command, tests: &[&str]) -> Result {
    run(cargo.args(["test", "--package", "pumice-mpi", "--features", "mpi", "--"]).args(tests))
}

/// The examples for C, Fortran and Python, and the tests of `pumice.mpi`, with the library for MPI as its users install it.
/// Needs the wheel to be installed.
pub(crate) fn programs() -> Result {
    library()?;
    debian::packages(&["gfortran", "pkg-config"])?;
    let folder = target_dir().join("mpi");
    let prefix = folder.join("prefix");
    capi::install_mpi(&prefix)?;
    let (lib, source) = (prefix.join("lib"), root().join("crates/pumice-capi"));
    let mut pkg_config = command("pkg-config");
    let flags =
        output(pkg_config.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).args(["--cflags", "--libs", "pumice_mpi"]))?;
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let mut compiler = command("mpicc");
    compiler.current_dir(&folder).args(["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-o", "mpi_heat"]);
    run(compiler.arg(source.join("examples/mpi_heat.c")).args(&flags).arg("-lm"))?;
    let mut compiler = command("mpifort");
    compiler.current_dir(&folder).args(["-Wall", "-Werror", "-o", "mpi_field"]);
    for file in ["fortran/pumice.f90", "fortran/pumice_mpi.f90", "examples/mpi_field.f90"] {
        compiler.arg(source.join(file));
    }
    run(compiler.args(&flags))?;
    for n_ranks in [1, 2, 3, 4, 7] {
        for program in ["mpi_heat", "mpi_field"] {
            let mut ranks = mpirun(n_ranks);
            run(ranks.current_dir(&folder).env("LD_LIBRARY_PATH", &lib).arg(folder.join(program)))?;
        }
    }
    wheel::test_mpi(&lib.join("libpumice_mpi.so"))
}

/// Bytes per second of a link, and its name in the report.
const NETWORK: [(u64, &str); 2] = [(25_000_000, "200Mbit"), (125_000_000, "1Gbit")];

/// Bytes per second of each host's link to storage, and its name in the report.
const STORAGE: [(u64, &str); 2] = [(50_000_000, "50MBs"), (200_000_000, "200MBs")];

/// The link between hosts that write to storage.
const BETWEEN_WRITERS: u64 = 125_000_000;

/// Writes, gathers and sums with and without compression, by ranks on hosts that are network namespaces of this machine.
fn bench(is_quick: bool, is_json: bool) -> Result {
    library()?;
    debian::packages(&storage::PACKAGES)?;
    run(cargo()
        .args(["build", "--release", "--quiet", "--package", "pumice-mpi", "--features", "mpi"])
        .args(["--example", "speed"]))?;
    let rank_counts: &[usize] = if is_quick { &[4] } else { &[2, 4] };
    let rates = if is_quick { 1 } else { 2 };
    let mib = if is_quick { "16" } else { "64" };
    let mut jobs = Vec::new();
    let mut summary = serde_json::Map::new();
    let mut report = |name: String, rate: u64, text: &str, jobs: &mut Vec<Value>| -> Result {
        let mut job: Value = serde_json::from_str(text.trim()).map_err(|e| format!("{text}: {e}"))?;
        let number = |field: &str| job[field].as_f64().unwrap_or(f64::NAN);
        let speedup = number("plain_s") / number("compressed_s");
        // What is received is decoded, too.
        let decoding = if job["work"] == "write" { 0.0 } else { 1.0 / number("decompress_gb_s") };
        let codec = 1.0 / (1.0 / number("compress_gb_s") + decoding);
        let model = 1.0 / (rate as f64 / 1e9 / codec + 1.0 / number("ratio"));
        let auto = number("plain_s") / number("auto_s");
        job["speedup"] = json!(speedup);
        job["auto_speedup"] = json!(auto);
        job["link_gb_s"] = json!(rate as f64 / 1e9);
        if rate > 0 {
            job["model"] = json!(model);
        }
        // Without a limit, what matters is that nothing becomes slower.
        summary.insert(name, json!(if rate > 0 { speedup } else { auto }));
        jobs.push(job);
        Ok(())
    };
    for n_ranks in rank_counts {
        for (rate, name) in &NETWORK[..rates] {
            let hosts = Hosts::new(*n_ranks, *rate)?;
            for work in ["gather", "sum"] {
                let text = hosts.run(*n_ranks, work, mib)?;
                let work = if work == "sum" { "allreduce" } else { work };
                report(format!("{work}_speedup_{name}_{n_ranks}_ranks"), *rate, &text, &mut jobs)?;
            }
        }
    }
    // The fixed costs of a file count for less, the larger it is.
    let written_mib = "128";
    for n_ranks in rank_counts {
        for (rate, name) in &STORAGE {
            let hosts = Hosts::with_storage(*n_ranks, BETWEEN_WRITERS, *rate)?;
            let text = hosts.run(*n_ranks, "write", written_mib)?;
            report(format!("write_speedup_{name}_{n_ranks}_ranks"), *rate, &text, &mut jobs)?;
        }
    }
    let mut ranks = mpirun(2);
    ranks.arg(program()).args(["--work", "write", "--mib", written_mib, "--runs", "5", "--folder", "/dev/shm"]);
    report("write_page_cache_2_ranks".into(), 0, &output(&mut ranks)?, &mut jobs)?;
    // Shared memory and page cache: compression does not pay, and `auto` must find that.
    for work in ["gather", "sum"] {
        let mut ranks = mpirun(2);
        ranks.arg(program()).args(["--work", work, "--mib", mib, "--runs", "5"]);
        report(format!("{work}_shared_memory_2_ranks"), 0, &output(&mut ranks)?, &mut jobs)?;
    }
    // The figures that acceptance asks for, under short names: on most ranks, at the lower rates.
    let most = rank_counts.last().expect("there is one");
    for (short, long) in [
        ("write_speedup", format!("write_speedup_50MBs_{most}_ranks")),
        ("write_speedup_200MBs", format!("write_speedup_200MBs_{most}_ranks")),
        ("gather_speedup", format!("gather_speedup_200Mbit_{most}_ranks")),
        ("allreduce_speedup", format!("allreduce_speedup_200Mbit_{most}_ranks")),
    ] {
        let value = summary.get(&long).cloned().unwrap_or(Value::Null);
        summary.insert(short.into(), value);
    }
    if is_json {
        summary.insert("jobs".into(), Value::Array(jobs));
        println!("{:#}", Value::Object(summary));
        return Ok(());
    }
    println!("work     ranks  link GB/s   ratio  codec GB/s    plain s  speed-up   model   auto");
    for job in &jobs {
        let number = |field: &str| job[field].as_f64().unwrap_or(f64::NAN);
        println!(
            "{:<8}{:>6}{:>11.3}{:>8.1}{:>12.2}{:>11.3}{:>10.2}{:>8.2}{:>7.2} {}",
            job["work"].as_str().unwrap_or(""),
            number("ranks"),
            number("link_gb_s"),
            number("ratio"),
            number("compress_gb_s"),
            number("plain_s"),
            number("speedup"),
            number("model"),
            number("auto_speedup"),
            job["auto"].as_str().unwrap_or(""),
        );
    }
    Ok(())
}

fn program() -> PathBuf {
    target_dir().join("release/examples/speed")
}

pub(crate) fn mpirun(n_ranks: usize) -> Command {
    let mut mpirun = command("mpirun");
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    mpirun.env("OMPI_MCA_mpi_yield_when_idle", "1").args(["--oversubscribe", "-n", &n_ranks.to_string()]);
    mpirun
}

/// Runs a line of a shell, as root.
fn sh(line: &str) -> Result<String> {
    output(command("sh").args(["-ec", line])).map_err(|e| format!("{e}\nThis needs root and network namespaces"))
}

/// Hosts: network namespaces on one bridge, whose links take so many bytes per second each way.
struct Hosts {
    n: usize,
    storage: Option<Storage>,
}

const ATTEMPTS: usize = 4;

const BRIDGE: &str = "pumice-br";

impl Hosts {
    fn new(n: usize, rate: u64) -> Result<Self> {
        let hosts = Self { n, storage: None };
        hosts.remove();
        let limit = format!("tbf rate {}bit burst 64kb latency 50ms", 8 * rate);
        let mut lines = format!("ip link add {BRIDGE} type bridge; ip link set {BRIDGE} up\n");
        for i in 0..n {
            let address = i + 1;
            lines += &format!(
                "ip netns add pumice{i}
                 ip link add pumice-v{i} type veth peer name eth0 netns pumice{i}
                 ip link set pumice-v{i} master {BRIDGE} up
                 ip -n pumice{i} address add 10.77.0.{address}/24 dev eth0
                 ip -n pumice{i} link set eth0 up
                 ip -n pumice{i} link set lo up
                 tc qdisc add dev pumice-v{i} root {limit}
                 ip netns exec pumice{i} tc qdisc add dev eth0 root {limit}\n"
            );
        }
        sh(&lines)?;
        Ok(hosts)
    }

    /// Hosts that also have links to storage, which take so many bytes per second.
    fn with_storage(n: usize, rate: u64, storage_rate: u64) -> Result<Self> {
        let mut hosts = Self::new(n, rate)?;
        hosts.storage = Some(Storage::new(n, storage_rate)?);
        Ok(hosts)
    }

    /// The words in front of a command that is to run on a host.
    fn enter(&self, host: usize) -> Vec<String> {
        match &self.storage {
            Some(storage) => storage.enter(host),
            None => ["ip", "netns", "exec", &format!("pumice{host}")].map(Into::into).into(),
        }
    }

    fn run(&self, n_ranks: usize, work: &str, mib: &str) -> Result<String> {
        let agent = self.agent()?;
        let hosts: Vec<String> = (1..=self.n).map(|i| format!("10.77.0.{i}:1")).collect();
        let words = self.enter(0);
        let mut ranks = command(&words[0]);
        ranks.args(&words[1..]).args(["mpirun", "-n", &n_ranks.to_string()]);
        ranks.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        ranks.args(["--mca", "plm_rsh_agent"]).arg(&agent).args(["--host", &hosts.join(",")]);
        ranks.args(["--mca", "btl", "tcp,self", "--mca", "mpi_yield_when_idle", "1"]);
        for layer in ["btl_tcp_if_include", "oob_tcp_if_include"] {
            ranks.args(["--mca", layer, "10.77.0.0/24"]);
        }
        ranks.arg(program()).args(["--work", work, "--mib", mib]);
        if let Some(storage) = &self.storage {
            ranks.arg("--folder").arg(storage.mounted());
        }
        // Open MPI sometimes does not get as far as to start the ranks: it loses the connection to a host, or crashes.
        (0..ATTEMPTS - 1).find_map(|_| output(&mut ranks).ok()).map_or_else(|| output(&mut ranks), Ok)
    }

    /// What stands for ssh: runs a command on a host.
    fn agent(&self) -> Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let path = target_dir().join("mpi-agent");
        let host = |i: usize| format!("10.77.0.{}) exec {} sh -c \"$*\";;\n", i + 1, self.enter(i).join(" "));
        let hosts: String = (0..self.n).map(host).collect();
        let script = format!("#!/bin/sh\nhost=$1; shift\ncase $host in\n{hosts}esac\n");
        let written =
            fs::write(&path, script).and_then(|()| fs::set_permissions(&path, PermissionsExt::from_mode(0o755)));
        written.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }

    fn remove(&self) {
        let _ = sh(&format!(
            "set +e; for i in $(seq 0 {}); do ip netns del pumice$i; ip link del pumice-v$i; done; ip link del {BRIDGE}; true",
            self.n - 1
        ));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Programs on the hosts end before the hosts do.
        self.storage = None;
        self.remove();
    }
}
