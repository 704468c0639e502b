//! Tests under MPI. Started by cargo, this program starts itself again with `mpirun`, on several numbers of ranks; then it
//! is a rank of one test.
//!
//! `MPIRUN` is the command to start ranks with (`mpirun`), `PUMICE_RANKS` the numbers of ranks (`1,2,3,4,7`); words on the
//! command line choose tests by parts of their names.

mod failures;
mod files;
mod messages;
mod server;
mod sums;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use mpi::Threading;
use mpi::traits::*;

/// In the environment of a rank: the test, and its folder.
const TEST: &str = "PUMICE_MPI_TEST";
const FOLDER: &str = "PUMICE_MPI_FOLDER";

/// What a rank does, and what starts jobs and looks at what they leave.
type RankTest = fn(mpi::topology::SimpleCommunicator, &Path);
type JobTest = fn(&Path);

/// The tests of a job that ends well.
const TESTS: [(&str, RankTest); 5] = [
    ("files", files::run),
    ("files_by_threads", files::by_threads),
    ("messages", messages::run),
    ("server", server::run),
    ("sums", sums::run),
];

/// Tests of jobs that do not.
const FAILURES: [(&str, JobTest); 5] = [
    ("killed_ranks", failures::killed_ranks),
    ("killed_appends", failures::killed_appends),
    ("failed_writes", failures::failed_writes),
    ("full_disk", failures::full_disk),
    ("server_on_a_full_disk", server::full_disk),
];

fn main() -> ExitCode {
    if let Ok(test) = std::env::var(TEST) {
        rank_of(&test);
        return ExitCode::SUCCESS;
    }
    if let Err(error) = Command::new(mpirun()).arg("--version").output() {
        println!("skipped: `{}` cannot be started ({error}); install an MPI library", mpirun());
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word.as_str()));
    let ranks = std::env::var("PUMICE_RANKS").unwrap_or_else(|_| "1,2,3,4,7".into());
    let ranks: Vec<usize> = ranks.split(',').map(|n| n.trim().parse().expect("PUMICE_RANKS is a list")).collect();
    let mut failed = Vec::new();
    let mut report = |name: String, start: Instant, is_passed: bool| {
        println!(
            "test {name} ... {} ({:.1} s)",
            if is_passed { "ok" } else { "FAILED" },
            start.elapsed().as_secs_f64()
        );
        if !is_passed {
            failed.push(name);
        }
    };
    for (name, _) in TESTS.iter().filter(|(name, _)| is_chosen(name)) {
        // What one job leaves there, others may compare with.
        let folder = tempfile::tempdir().expect("there is room");
        for n in &ranks {
            let start = Instant::now();
            let status = job(*n, name, folder.path()).status().expect("mpirun was just there");
            report(format!("{name} on {n} ranks"), start, status.success());
        }
    }
    for (name, test) in FAILURES.iter().filter(|(name, _)| is_chosen(name)) {
        let folder = tempfile::tempdir().expect("there is room");
        let start = Instant::now();
        let is_passed = std::panic::catch_unwind(|| test(folder.path())).is_ok();
        report((*name).into(), start, is_passed);
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn mpirun() -> String {
    std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".into())
}

/// A job of this program.
fn job(n_ranks: usize, test: &str, folder: &Path) -> Command {
    let mut job = Command::new(mpirun());
    job.args(["-n", &n_ranks.to_string()]).arg(program());
    with_environment(&mut job, test, folder);
    job
}

fn program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program has a path")
}

fn with_environment(job: &mut Command, test: &str, folder: &Path) {
    job.env(TEST, test).env(FOLDER, folder);
    // Open MPI, which has no other way to say so that MPICH would accept: more ranks than cores, which then should not
    // wait busily, and tests in a container.
    job.env("OMPI_MCA_rmaps_base_oversubscribe", "1").env("OMPI_MCA_mpi_yield_when_idle", "1");
    job.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
}

/// What a rank does.
fn rank_of(test: &str) {
    // A rank that panics ends the job. It would otherwise wait for the others in the end, and they for it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::exit(101);
    }));
    let level = if test.ends_with("_by_threads") { Threading::Multiple } else { Threading::Single };
    let (universe, provided) = mpi::initialize_with_threading(level).expect("MPI is not yet in use");
    assert!(provided >= level, "this MPI library is not for several threads");
    let folder = std::env::var_os(FOLDER).expect("the folder is in the environment");
    let world = universe.world();
    match TESTS.iter().find(|(name, _)| *name == test) {
        Some((_, run)) => run(world.duplicate(), Path::new(&folder)),
        None => failures::rank_of(test, &world, Path::new(&folder)),
    }
    world.barrier();
}
