//! `pumice man`: writes manual pages, generated from the definitions of the command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use serde::Serialize;

use crate::cli::Cli;
use crate::failure::{Result, io_context};
use crate::ui::Ui;

const AFTER_HELP: &str = "\
Examples:
  pumice man | man -l -
  pumice man /usr/local/share/man/man1";

/// Write the manual pages
///
/// Without a directory, prints the main page; with one, writes a page for each command there.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The directory for pumice.1, pumice-compress.1, ...
    directory: Option<PathBuf>,
}

/// What `--json` prints when pages were written to a directory.
#[derive(Serialize)]
struct Report {
    written: Vec<String>,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page)?;
        io::stdout().lock().write_all(&page)?;
        return Ok(());
    };
    let written = write_pages(directory)?;
    let report = Report { written: written.iter().map(|path| path.display().to_string()).collect() };
    ui.summary(&report, false, || report.written.iter().map(|path| format!("{path}\n")).collect())
}

fn write_pages(directory: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory).map_err(io_context("create", directory))?;
    let command = Cli::command().disable_help_subcommand(true);
    let commands = command.get_subcommands().map(|sub| format!("pumice-{}.1", sub.get_name()));
    let pages = std::iter::once("pumice.1".to_string()).chain(commands).map(|name| directory.join(name)).collect();
    clap_mangen::generate_to(command, directory).map_err(io_context("write to", directory))?;
    Ok(pages)
}
