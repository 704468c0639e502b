//! Tests that start themselves again in a new process.

use std::process::Command;

/// The test program that is running, to be started again. `PUMICE_TEST_RUNNER` names what it needs to run, such as an
/// emulator and its options.
pub fn this_program() -> Command {
    let program = std::env::current_exe().expect("the system knows which program runs");
    let runner = std::env::var("PUMICE_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else {
        return Command::new(program);
    };
    let mut command = Command::new(emulator);
    command.args(words).arg(program);
    command
}
