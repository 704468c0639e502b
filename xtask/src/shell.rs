//! Running programs: every failure names the command, so that it can be repeated by hand.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The result of a task; the error is a message for people.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository")
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program, to be run in the repository.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs a command, and fails with its text unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result {
    let text = text_of(command);
    println!("$ {text}");
    let status = command.status().map_err(|e| format!("`{text}` cannot be started: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{text}` failed ({status})")) }
}

/// The output of a command; if it fails, the error has the command and its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let text = text_of(command);
    let output = command.output().map_err(|e| format!("`{text}` cannot be started: {e}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    Err(format!("`{text}` failed ({})\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Whether a command succeeds; what it prints is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The value of an option, parsed.
pub(crate) fn parse<T: std::str::FromStr>(option: &str, value: Option<&&str>) -> Result<T> {
    let value = value.ok_or_else(|| format!("{option} needs a value"))?;
    value.replace('_', "").parse().map_err(|_| format!("{option}: '{value}' is not a number of the right kind"))
}

/// This task again, built with the given options of cargo.
pub(crate) fn again(build: &[&str], task: &str, options: &[&str]) -> Result {
    let mut cargo = cargo();
    cargo.args(["run", "--quiet", "--package", "xtask"]).args(build).args(["--", task, "--inner"]).args(options);
    run(&mut cargo)
}

fn text_of(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(k, v)| Some(format!("{}='{}'", k.display(), v?.display())));
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.display().to_string());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}
