//! A file appears under its name only when it is complete, whatever happens to the program that writes it.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, smooth, stderr};

/// How temporary files are made: without a name where the file system allows that, or as elsewhere.
const NAMED: &str = "PUMICE_NAMED_TEMPORARY";

/// Processes to kill, and to send signals to; more in the long run that docs/test-runs.md lists.
fn n_trials(variable: &str, short: u32) -> u32 {
    std::env::var(variable).map_or(short, |n| n.parse().expect("a number"))
}

fn start(sandbox: &Sandbox, line: &[&str], named: &str) -> Child {
    let program = env!("CARGO_BIN_EXE_pumice");
    let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { program });
    if cfg!(target_os = "linux") {
        // Tests that run in the background of a script inherit that INT is ignored.
        command.args(["--default-signal", program]);
    }
    command.args(line).current_dir(sandbox.path("")).env(NAMED, named);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn leftovers(sandbox: &Sandbox) -> Vec<String> {
    sandbox.files().into_iter().filter(|name| name.starts_with(".pumice-")).collect()
}

/// Kills the program at any time, over an existing file and without one, then lets it run once.
#[test]
fn killed_while_writing_leaves_the_old_file_or_the_new_one_and_nothing_to_clean_up() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_500x100x40.f32", &smooth(&[500, 100, 40]));
    let old = b"the old file".to_vec();
    let lines = [
        &["compress", "x_500x100x40.f32", "-o", "x.pum", "--rel", "1e-3", "--preset", "fast", "--chunk", "40,100,40"][..],
        &["compress", "x_500x100x40.f32", "-o", "x.pum", "--rel", "1e-3", "--preset", "fast", "--verify"],
    ];
    for (line, named) in lines.into_iter().flat_map(|line| [(line, "0"), (line, "1")]) {
        let begun = Instant::now();
        assert!(start(&sandbox, line, named).wait().unwrap().success());
        let duration = begun.elapsed();
        let new = sandbox.read("x.pum");
        let n_trials = n_trials("PUMICE_TEST_KILLS", 24) / 4;
        for trial in 0..n_trials {
            let has_old = trial.is_multiple_of(2);
            let _ = std::fs::remove_file(sandbox.path("x.pum"));
            if has_old {
                sandbox.write("x.pum", &old);
            }
            let before = leftovers(&sandbox);
            let mut child = start(&sandbox, line, named);
            sleep(duration.mul_f64(1.2 * f64::from(trial) / f64::from(n_trials)) + Duration::from_micros(500));
            child.kill().unwrap();
            child.wait().unwrap();
            match std::fs::read(sandbox.path("x.pum")) {
                Ok(now) => assert!((has_old && now == old) || now == new, "trial {trial}: {} bytes", now.len()),
                Err(_) => assert!(!has_old, "trial {trial}: the old file is gone"),
            }
            // Over an existing file, a name is needed for two system calls; otherwise never.
            if cfg!(target_os = "linux") && named == "0" && !has_old {
                assert!(leftovers(&sandbox).iter().all(|name| before.contains(name)), "trial {trial}");
            }
        }
        assert!(start(&sandbox, line, named).wait().unwrap().success());
        if cfg!(target_os = "linux") {
            assert_eq!(leftovers(&sandbox), [""; 0]);
        }
        assert_eq!(sandbox.read("x.pum"), new);
    }
}

/// Until the program, which waits for more input, has opened its output.
#[cfg(unix)]
fn wait_for_output(sandbox: &Sandbox, child: &mut Child, named: &str) {
    let begun = Instant::now();
    while leftovers(sandbox).is_empty() && begun.elapsed() < Duration::from_secs(20) {
        if named == "0" && begun.elapsed() > Duration::from_millis(30) {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "the program waits for input");
        sleep(Duration::from_millis(1));
    }
}

#[cfg(unix)]
#[test]
fn signals_end_the_program_as_they_should_and_leave_nothing() {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    let sandbox = Sandbox::new();
    let rows = smooth(&[100, 50]);
    let bytes: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
    let line =
        ["compress", "-", "-o", "x.pum", "--dtype", "f32", "--shape", "1000,100,50", "--abs", "1e-3", "--one-pass"];
    let signals = [("HUP", 1), ("INT", 2), ("TERM", 15), ("USR1", 10), ("XCPU", 24)];
    let signals = if cfg!(target_os = "linux") { &signals[..] } else { &signals[..3] };
    for trial in 0..n_trials("PUMICE_TEST_SIGNALS", 10) {
        let (name, number) = signals[trial as usize % signals.len()];
        let named = ["1", "0"][trial as usize / signals.len() % 2];
        let mut child = start(&sandbox, &line, named);
        let mut stdin = child.stdin.take().unwrap();
        // More than a pipe holds, so that the program has read some.
        stdin.write_all(&bytes.repeat(8)).unwrap();
        wait_for_output(&sandbox, &mut child, named);
        assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{name}");
        assert!(sandbox.files().is_empty(), "{name}: {:?}", sandbox.files());
    }
}

/// As in a container: signals that the program does not handle cannot end it there.
#[cfg(target_os = "linux")]
#[test]
fn signals_end_the_first_process_of_a_container() {
    use std::io::Write;
    let sandbox = Sandbox::new();
    let unshare = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !Command::new("unshare").args(unshare).arg("true").stderr(Stdio::null()).status().is_ok_and(|s| s.success()) {
        eprintln!("skipped: namespaces are not available here");
        return;
    }
    let line = "compress - -o x.pum --dtype f32 --shape 1000,100,50 --abs 1e-3 --one-pass";
    let mut command = Command::new("unshare");
    command.args(unshare).args(["env", "--default-signal", env!("CARGO_BIN_EXE_pumice")]).args(line.split(' '));
    command.current_dir(sandbox.path("")).env(NAMED, "1").stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&[0; 160_000]).unwrap();
    wait_for_output(&sandbox, &mut child, "1");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let first = std::fs::read_to_string(children).unwrap();
    assert!(Command::new("kill").args(["-s", "TERM", first.trim()]).status().unwrap().success());
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("the program goes on");
        }
        sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(sandbox.files().is_empty(), "{:?}", sandbox.files());
}

/// As after `nohup`, and for `INT` in the background of a script.
#[cfg(unix)]
#[test]
fn signals_that_the_parent_ignores_stay_ignored() {
    use std::io::Write;
    let sandbox = Sandbox::new();
    let line = "compress - -o x.pum --dtype f32 --shape 60000 --abs 1e-3 --one-pass";
    let script = format!("trap '' HUP INT; exec '{}' {line}", env!("CARGO_BIN_EXE_pumice"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(sandbox.path("")).env(NAMED, "1").stdout(Stdio::null());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&[0; 100_000]).unwrap();
    wait_for_output(&sandbox, &mut child, "1");
    for name in ["HUP", "INT"] {
        assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
    }
    sleep(Duration::from_millis(50));
    stdin.write_all(&[0; 140_000]).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
    assert_eq!(sandbox.files(), ["x.pum"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_may_not_grow_is_an_input_output_error() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_100000.f32", &smooth(&[100_000]));
    for named in ["0", "1"] {
        let script =
            format!("ulimit -f 8; exec '{}' compress x_100000.f32 -o x.pum --lossless", env!("CARGO_BIN_EXE_pumice"));
        let mut command = Command::new("sh");
        let output = command.args(["-c", &script]).current_dir(sandbox.path("")).env(NAMED, named).output().unwrap();
        assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
        assert!(stderr(&output).contains("x.pum") && stderr(&output).contains("too large"), "{}", stderr(&output));
        assert_eq!(sandbox.files(), ["x_100000.f32"]);
    }
}

/// A stream that is kept in a temporary file: the message says where that is.
#[cfg(target_os = "linux")]
#[test]
fn a_copy_of_a_stream_that_may_not_grow_is_named() {
    let sandbox = Sandbox::new();
    let script = "ulimit -f 8; exec \"$0\" compress - -o x.pum --abs 1 --shape 100000 --dtype f32 < /dev/zero";
    let mut command = Command::new("sh");
    let output = command.args(["-c", script, env!("CARGO_BIN_EXE_pumice")]).current_dir(sandbox.path("")).output();
    let message = stderr(&output.unwrap());
    assert!(message.contains("copy standard input to a temporary file in ."), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_input_output_error() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_100000.f32", &smooth(&[100_000]));
    let message = sandbox.fails("compress x_100000.f32 -o /dev/full --lossless", 6);
    assert!(message.contains("/dev/full"), "{message}");
}

/// As `cp` and the redirection of a shell do.
#[cfg(unix)]
#[test]
fn a_link_is_followed_even_if_it_dangles() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_1000.f32", &smooth(&[1000]));
    std::fs::create_dir(sandbox.path("data")).unwrap();
    std::os::unix::fs::symlink("data/x.pum", sandbox.path("link.pum")).unwrap();
    for bound in ["1e-2", "1e-3"] {
        sandbox.run(&format!("compress x_1000.f32 -o link.pum --abs {bound}"));
        assert!(sandbox.path("link.pum").is_symlink());
        assert_eq!(sandbox.json("info data/x.pum")["abs_bound"].as_f64(), bound.parse().ok());
    }
    assert!(sandbox.fails("compress x_1000.f32 -o data --abs 1", 2).contains("not a regular file"));
}

/// Where others may put links, the system does not follow those of other users: `fs.protected_symlinks`.
#[cfg(target_os = "linux")]
#[test]
fn links_that_the_system_does_not_follow_are_an_error() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_1000.f32", &smooth(&[1000]));
    std::fs::create_dir(sandbox.path("shared")).unwrap();
    std::fs::set_permissions(sandbox.path("shared"), PermissionsExt::from_mode(0o1777)).unwrap();
    sandbox.write("victim", b"the old file");
    for target in ["victim", "absent"] {
        let link = sandbox.path("shared/link.pum");
        symlink(sandbox.path(target), &link).unwrap();
        if lchown(&link, Some(65534), None).is_err() || std::fs::read(&link).is_ok() {
            eprintln!("skipped: not the superuser, or fs.protected_symlinks is off");
            return;
        }
        assert!(sandbox.fails("compress x_1000.f32 -o shared/link.pum --abs 1", 6).contains("denied"));
        std::fs::remove_file(link).unwrap();
    }
    assert_eq!(sandbox.read("victim"), b"the old file");
    assert_eq!(sandbox.files(), ["shared", "victim", "x_1000.f32"]);
}

#[test]
fn a_failed_command_leaves_the_old_file() {
    let sandbox = Sandbox::new();
    sandbox.write("x.pum", b"the old file");
    let output = sandbox
        .command("compress - -o x.pum --shape 1000,1000 --dtype f32 --abs 1")
        .write_stdin(vec![0u8; 3_000_000])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(sandbox.read("x.pum"), b"the old file");
    assert_eq!(sandbox.files(), ["x.pum"]);
}

#[test]
fn an_output_that_cannot_be_written_is_an_input_output_error() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_10.f32", &smooth(&[10]));
    assert!(sandbox.fails("compress x_10.f32 -o no/such/place.pum --abs 1", 6).contains("no/such/place.pum"));
    assert!(sandbox.fails("compress . -o x.pum --abs 1", 6).contains("directory"));
}

#[test]
fn verified_output_replaces_the_old_file_and_leaves_nothing_else() {
    let sandbox = Sandbox::new();
    sandbox.write_f32("x_1000.f32", &smooth(&[1000]));
    sandbox.write("x.pum", b"the old file");
    sandbox.run("compress x_1000.f32 -o x.pum --abs 1e-3 --verify");
    assert_eq!(sandbox.files(), ["x.pum", "x_1000.f32"]);
    let verified = sandbox.read("x.pum");
    sandbox.run("compress x_1000.f32 -o y.pum --abs 1e-3");
    assert!(verified == sandbox.read("y.pum"));
}
