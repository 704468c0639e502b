//! `pumice completions`: a completion script for a shell.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Result;
use crate::ui::Ui;

const AFTER_HELP: &str = "\
Examples:
  pumice completions bash > ~/.local/share/bash-completion/completions/pumice
  pumice completions zsh > \"${fpath[1]}/_pumice\"
  pumice completions fish > ~/.config/fish/completions/pumice.fish";

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, _ui: &Ui) -> Result<()> {
    // The generator panics if writing fails, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pumice", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(())
}
