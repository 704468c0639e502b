//! `pumice codebook`: trains the codes that the chunks of later files share, from arrays and compressed files.

use std::io::Write;
use std::path::{Path, PathBuf};

use pumice::{Codebook, CodebookTrainer, Config, ErrorBound, Preset, with_dtype};
use serde::Serialize;

use crate::cli::{LayoutArgs, WorkerArgs};
use crate::failure::{Failure, Result};
use crate::input::{self, Input};
use crate::output::{self, Output};
use crate::parse::{self, Extents};
use crate::text;
use crate::ui::Ui;

const AFTER_HELP: &str = "\
Examples:
  pumice codebook step0_96x128x128.f32 -o run.pumb --rel 1e-3 --chunk 4,64,64
  pumice codebook step0.pum step1.pum -o run.pumb
  pumice compress step2.npy -o step2.pum --rel 1e-3 --chunk 4,64,64 --preset balanced --codebook run.pumb";

/// Train a codebook, for small chunks of preset balanced
///
/// Chunks of 64 KiB or so lose ratio and time by building Huffman codes of their own. With `compress --codebook` they share
/// those that this command makes from like arrays, such as the first time step of a simulation. Each compressed file keeps a
/// copy, so it can be read without anything else.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Arrays (raw little-endian values, .npy), which need a bound; or compressed files, which have one
    #[arg(required = true)]
    inputs: Vec<PathBuf>,

    /// The file for the codebook
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,

    /// Bound relative to the value range that the arrays will be compressed with
    #[arg(long, value_name = "E", value_parser = parse::bound, conflicts_with_all = ["abs", "pwrel"])]
    #[arg(help_heading = "Error bound of arrays")]
    rel: Option<f64>,

    /// Absolute bound, likewise
    #[arg(long, value_name = "E", value_parser = parse::bound, conflicts_with = "pwrel")]
    #[arg(help_heading = "Error bound of arrays")]
    abs: Option<f64>,

    /// Bound relative to each value, likewise
    #[arg(long, value_name = "E", value_parser = parse::bound, help_heading = "Error bound of arrays")]
    pwrel: Option<f64>,

    /// Chunk extents that the arrays will be compressed with, slowest axis first
    #[arg(long, alias = "chunks", value_name = "N,N,..", value_parser = parse::extents)]
    chunk: Option<Extents>,

    #[command(flatten)]
    workers: WorkerArgs,

    #[command(flatten)]
    layout: LayoutArgs,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    output: String,
    id: String,
    n_books: usize,
    bytes: usize,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let mut trainer = CodebookTrainer::new();
    for path in &args.inputs {
        output::refuse_same_file(path, &args.output)?;
        if input::is_pumice(&mut input::open_file(path)?, path)? {
            trainer.add_stream(&input::open_reader(path, args.workers.threads)?)?;
        } else {
            add_array(&mut trainer, path, args)?;
        }
    }
    let codebook = trainer.finish()?;
    let mut out = Output::create(&args.output)?;
    out.write_all(codebook.as_bytes())?;
    out.commit()?;
    let report = Report {
        output: args.output.display().to_string(),
        id: id(&codebook),
        n_books: codebook.n_books(),
        bytes: codebook.as_bytes().len(),
    };
    ui.summary(&report, output::is_stdout(&args.output), || {
        format!("{}: codebook {}\n", report.output, describe(&codebook))
    })
}

fn add_array(trainer: &mut CodebookTrainer, path: &Path, args: &Args) -> Result<()> {
    let bound = args.rel.map(ErrorBound::Rel).or(args.abs.map(ErrorBound::Abs)).or(args.pwrel.map(ErrorBound::PwRel));
    let bound = bound.ok_or_else(|| {
        Failure::invalid(format!("{} is an array, which needs a bound", path.display()))
            .hint("give the --rel, --abs or --pwrel that it will be compressed with")
    })?;
    let mut config = Config::new(bound).preset(Preset::Balanced).threads(args.workers.threads);
    if let Some(chunk) = &args.chunk {
        config = config.chunk_shape(&chunk.0);
    }
    let input = Input::open(path, &args.layout)?;
    let source = input.source()?;
    with_dtype!(input.layout.dtype, T => trainer.add_from::<T>(&source, &config))?;
    Ok(())
}

/// The codebook of a file that `pumice codebook` wrote, or of a compressed file that has one.
pub(crate) fn load(path: &Path) -> Result<Codebook> {
    if input::is_pumice(&mut input::open_file(path)?, path)? {
        let codebook = input::open_reader(path, 1)?.info().codebook.clone();
        return codebook.ok_or_else(|| {
            Failure::invalid(format!("{} has no codebook", path.display())).hint("`pumice codebook` makes one from it")
        });
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::from(pumice::Error::from(e)).at(path))?;
    Codebook::from_bytes(&bytes).map_err(|e| {
        Failure::from(e).at(path).hint("`pumice codebook` makes codebooks from arrays and compressed files")
    })
}

/// One line about a codebook.
pub(crate) fn describe(codebook: &Codebook) -> String {
    let size = text::bytes(codebook.as_bytes().len() as u64);
    format!("{}, {} books, {size}", id(codebook), codebook.n_books())
}

/// Its identity, as reports have it.
pub(crate) fn id(codebook: &Codebook) -> String {
    format!("{:08x}", codebook.id())
}
