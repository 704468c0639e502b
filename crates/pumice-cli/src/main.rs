//! The program `pumice`: parses the arguments, runs one command, and turns its result into an exit code.
//!
//! Each command has its own file under `commands/`. They share `input.rs` and `layout.rs`, which open and describe
//! input files, `output.rs`, which writes results, `signals.rs`, which removes temporary files, `memory.rs`,
//! which keeps threads from taking address space that is limited, `device.rs`, which
//! chooses CPU or GPU, `compare.rs`, which checks bounds, `convert/`, which compresses the variables of HDF5 and NetCDF
//! files, and `ui.rs`, which prints reports and progress. Exit codes are those of `pumice::ErrorKind`.

mod bounds;
mod cli;
mod commands;
mod compare;
#[cfg(feature = "hdf5")]
mod convert;
mod descriptor;
mod device;
mod failure;
mod foreign;
mod input;
mod layout;
mod memory;
mod npy;
mod output;
mod parse;
mod region;
mod signals;
mod target;
mod text;
mod ui;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::Result;
use crate::ui::Ui;

fn main() -> ExitCode {
    memory::respect_limit();
    signals::clean_up();
    let cli = Cli::parse();
    let ui = Ui::new(cli.json, cli.quiet);
    match run(&cli.command, &ui) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command, ui: &Ui) -> Result<()> {
    // A mistyped PUMICE_ISA must be an error: a benchmark would otherwise measure the wrong instruction set.
    pumice::instruction_set()?;
    match command {
        Command::Compress(args) => commands::compress::run(args, ui),
        Command::Decompress(args) => commands::decompress::run(args, ui),
        #[cfg(feature = "hdf5")]
        Command::Convert(args) => commands::convert::run(args, ui),
        Command::Info(args) => commands::info::run(args, ui),
        Command::Check(args) => commands::check::run(args, ui),
        Command::Recover(args) => commands::recover::run(args, ui),
        Command::Demo(args) => commands::demo::run(args, ui),
        Command::Analyze(args) => commands::analyze::run(args, ui),
        Command::Bench(args) => commands::bench::run(args, ui),
        Command::Codebook(args) => commands::codebook::run(args, ui),
        Command::Completions(args) => commands::completions::run(args, ui),
        Command::Man(args) => commands::man::run(args, ui),
    }
}
