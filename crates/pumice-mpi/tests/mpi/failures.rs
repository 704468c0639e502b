//! Jobs that are killed, and disks that refuse: the old file stays, no half of a file has its name, and all ranks get the
//! same error.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mpi::traits::*;
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind};
use pumice_mpi::LocalBox;

use crate::files::{Random, field};
use crate::{job, program, with_environment};

/// Rows that a rank writes, and their length.
const ROWS: usize = 256;
const LENGTH: usize = 1024;

/// How many jobs are killed.
const KILLS: usize = 12;

/// Writes one array after the other under the same name, each of one value and noise.
fn write_again(world: &impl Communicator, path: &Path, n_times: usize) -> pumice::Result<()> {
    let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
    let config = Config::new(ErrorBound::Abs(1e-6)).chunk_shape(&[64, LENGTH]);
    for time in 0..n_times {
        let values: Vec<f32> = field::<f32>(ROWS * LENGTH, 9).iter().map(|x| x + 100.0 * time as f32).collect();
        let mine = LocalBox { start: &[ROWS * rank, 0], extents: &[ROWS, LENGTH], values: &values };
        pumice_mpi::write(world, path, &[ROWS * n_ranks, LENGTH], &[mine], &config)?;
    }
    Ok(())
}

/// Tells who this rank is, so that it can be killed.
fn announce(world: &impl Communicator, folder: &Path) {
    fs::write(folder.join(format!("{}.pid", world.rank())), std::process::id().to_string()).expect("there is room");
    world.barrier();
}

/// What a rank of a job does that is to fail.
pub(crate) fn rank_of(test: &str, world: &impl Communicator, folder: &Path) {
    let path = folder.join("field.pum");
    match test {
        "killed" => {
            announce(world, folder);
            write_again(world, &path, 1000).expect("all is well until the end");
        }
        "killed_append" => {
            let mut writer = pumice_mpi::Writer::<f32>::append(world, &path, 1).expect("rows can be added");
            announce(world, folder);
            let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
            let n = ROWS / n_ranks;
            for _ in 0..10_000 {
                let values = &field::<f32>(ROWS * LENGTH, 9)[rank * n * LENGTH..][..n * LENGTH];
                let mine = LocalBox { start: &[rank * n, 0], extents: &[n, LENGTH], values };
                writer.write_rows(n * n_ranks, &[mine]).expect("all is well until the end");
            }
        }
        "refused" => {
            let error = write_again(world, &path, 1).expect_err("the disk refuses");
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            fs::write(folder.join(format!("{}.error", world.rank())), error.to_string()).expect("there is room");
        }
        "write_much" => crate::server::write_much(world, folder),
        _ => panic!("no test has the name {test}"),
    }
}

/// Whether a file is whole, and of one array.
fn check_whole(path: &Path, n_ranks: usize) {
    let restored = pumice::decompress::<f32>(&fs::read(path).expect("the file is there")).expect("it is whole");
    assert_eq!(restored.shape, [ROWS * n_ranks, LENGTH]);
    check_rows(0, &restored.data);
}

/// Whether rows are those of one array, the number of which their first value tells.
fn check_rows(first_row: usize, values: &[f32]) {
    let written = field::<f32>(ROWS * LENGTH, 9);
    let expected = |i: usize| written[(first_row % ROWS * LENGTH + i) % written.len()];
    let time = ((values[0] - expected(0)) / 100.0).round() * 100.0;
    for (i, x) in values.iter().enumerate() {
        let error = f64::from(*x) - f64::from(expected(i) + time);
        assert!(error.abs() <= 1e-6, "value {i} from row {first_row} on is off by {error}");
    }
}

/// A rank that is killed at any time ends the job; the file is an old one or a new one.
pub(crate) fn killed_ranks(folder: &Path) {
    const RANKS: usize = 3;
    let path = folder.join("field.pum");
    let partial = folder.join("field.pum.partial");
    let mut random = Random(5);
    let mut n_salvaged = 0_u32;
    for kill in 0..KILLS {
        for rank in 0..RANKS {
            let _ = fs::remove_file(folder.join(format!("{rank}.pid")));
        }
        let mut running =
            job(RANKS, "killed", folder).stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("mpirun starts");
        let pid_of = |rank: usize| {
            let text = fs::read_to_string(folder.join(format!("{rank}.pid"))).ok()?;
            text.parse::<u32>().ok()
        };
        wait_until("the ranks start", || (0..RANKS).all(|rank| pid_of(rank).is_some()));
        if kill == 0 {
            wait_until("the first file is there", || path.exists());
        }
        if kill % 2 == 0 {
            std::thread::sleep(Duration::from_millis(random.below(300) as u64));
        } else {
            // While a file is being written.
            let start = Instant::now();
            let is_begun = || fs::metadata(&partial).is_ok_and(|file| file.len() > 0);
            while !is_begun() {
                assert!(start.elapsed() < Duration::from_secs(300), "no file is begun");
            }
        }
        let victim = pid_of(random.below(RANKS)).expect("it has started").to_string();
        assert!(Command::new("kill").args(["-KILL", &victim]).status().expect("there is kill").success());
        let mut status = None;
        wait_until("the job ends", || {
            status = running.try_wait().expect("the job is ours");
            status.is_some()
        });
        assert!(!status.expect("it has ended").success());
        check_whole(&path, RANKS);
        // The chunks that are there can be saved.
        let bytes = fs::read(&partial).unwrap_or_default();
        if let Ok(saved) = pumice::salvage(&bytes[..], DecodeOptions::new()) {
            let checked = saved.for_each_chunk::<f32>(|region, values| {
                check_rows(region[0].start, values);
                n_salvaged += 1;
                Ok(())
            });
            checked.expect("intact chunks are decoded");
        }
    }
    println!("{KILLS} jobs were killed; of what they left, {n_salvaged} chunks were saved");
    assert!(n_salvaged > 0, "no job was killed while it wrote");
    // The next job removes what the last one left.
    let status = job(1, "files", folder).stdout(Stdio::null()).status().expect("mpirun starts");
    assert!(status.success() && !partial.exists());
}

/// A rank that is killed while rows are appended: the old file stays, and what was written of the new one can be saved.
pub(crate) fn killed_appends(folder: &Path) {
    const RANKS: usize = 2;
    let path = folder.join("field.pum");
    let partial = folder.join("field.pum.partial");
    let values = field::<f32>(ROWS * LENGTH, 9);
    let config = Config::new(ErrorBound::Abs(1e-6)).chunk_shape(&[64, LENGTH]);
    let old = pumice::compress(&values, &[ROWS, LENGTH], &config).expect("the options are valid");
    fs::write(&path, &old).expect("there is room");
    for victim in 0..RANKS {
        for rank in 0..RANKS {
            let _ = fs::remove_file(folder.join(format!("{rank}.pid")));
        }
        let mut job = job(RANKS, "killed_append", folder);
        let mut running = job.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("mpirun starts");
        let pid_of = |rank: usize| {
            let text = fs::read_to_string(folder.join(format!("{rank}.pid"))).ok()?;
            text.parse::<u32>().ok()
        };
        wait_until("the ranks start", || (0..RANKS).all(|rank| pid_of(rank).is_some()));
        wait_until("rows are added", || fs::metadata(&partial).is_ok_and(|file| file.len() > 3 * old.len() as u64));
        let victim = pid_of(victim).expect("it has started").to_string();
        assert!(Command::new("kill").args(["-KILL", &victim]).status().expect("there is kill").success());
        wait_until("the job ends", || running.try_wait().expect("the job is ours").is_some());
        assert!(fs::read(&path).expect("the file is there") == old);
        let bytes = fs::read(&partial).expect("it is there");
        let saved = pumice::salvage(&bytes[..], DecodeOptions::new()).expect("it has a header");
        let mut last_row = 0;
        let checked = saved.for_each_chunk::<f32>(|region, restored| {
            check_rows(region[0].start, restored);
            last_row = last_row.max(region[0].end);
            Ok(())
        });
        checked.expect("intact chunks are decoded");
        assert!(last_row >= 2 * ROWS, "only the old rows were saved");
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(300), "{what}: not within five minutes");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All ranks of a job that could not write have the same error, and nothing is left.
fn check_refused(folder: &Path, n_ranks: usize, target: &Path, words: &[&str]) {
    let errors: Vec<String> = (0..n_ranks)
        .map(|rank| fs::read_to_string(folder.join(format!("{rank}.error"))).expect("each rank had an error"))
        .collect();
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
    assert!(words.iter().any(|word| errors[0].contains(word)), "{}", errors[0]);
    assert!(!target.exists() && !target.with_extension("pum.partial").exists());
    (0..n_ranks).for_each(|rank| fs::remove_file(folder.join(format!("{rank}.error"))).expect("it is there"));
}

/// One rank, or all of them, may not write files as large as this one.
pub(crate) fn failed_writes(folder: &Path) {
    const RANKS: usize = 3;
    for limited in [0, 1, RANKS] {
        // In units of 512 bytes. The shell ignores the signal, so that a write beyond the limit is an error.
        let confined = format!("trap '' XFSZ; ulimit -f 100; exec {}", program().display());
        let mut job = Command::new(crate::mpirun());
        for rank in 0..RANKS {
            job.args(if rank == 0 { &["-n", "1"][..] } else { &[":", "-n", "1"] });
            if rank == limited || limited == RANKS {
                job.args(["sh", "-c", &confined]);
            } else {
                job.arg(program());
            }
        }
        with_environment(&mut job, "refused", folder);
        // Shared memory of Open MPI is a file, too.
        job.env("OMPI_MCA_btl", "self,tcp");
        let output = job.output().expect("mpirun starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        check_refused(folder, RANKS, &folder.join("field.pum"), &["rank"]);
    }
}

/// A file system that has no room for the file.
pub(crate) fn full_disk(folder: &Path) {
    const RANKS: usize = 2;
    let small = folder.join("small");
    fs::create_dir(&small).expect("there is room");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: only root can mount a small file system");
        return;
    }
    let refused = std::panic::catch_unwind(|| {
        let output = job(RANKS, "refused", &small).output().expect("mpirun starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        check_refused(&small, RANKS, &small.join("field.pum"), &["space"]);
    });
    assert!(Command::new("umount").arg(&small).status().expect("there is umount").success());
    if let Err(panic) = refused {
        std::panic::resume_unwind(panic);
    }
}
