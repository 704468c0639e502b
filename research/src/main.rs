//! Experiments: the tables of docs/papers.md, the speed of the entropy coders, and the tools that made the codebooks of
//! the format. `cargo research` builds it with optimisations.

mod bench_entropy;
mod ceaz_codewords;
mod codebook;
mod fields;
mod papers;
mod predictors;
mod shared_codebooks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// The result of a command; an error is a message for the user.
type Result<T = ()> = std::result::Result<T, String>;

/// Experiments with Pumice's codecs
#[derive(Parser)]
#[command(bin_name = "cargo research")]
enum Command {
    /// Speed of the entropy coders, and of memcpy in the same run
    BenchEntropy,
    /// Makes the offline codewords of the preset `ceaz` from the fields of a folder
    CeazCodewords {
        /// Folder of fields: raw values in files such as name_30x192x288.f32
        data: PathBuf,
        /// File to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Makes the static codebook of the preset `ceresz2` from the fields of a folder
    Codebook {
        /// Folder of fields: raw values in files such as name_30x192x288.f32
        data: PathBuf,
        /// File to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Bounds relative to the value range, which have the same weight
        #[arg(long, value_delimiter = ',', value_name = "BOUND", default_values_t = codebook::RELS)]
        rel: Vec<f64>,
    },
    /// Compares the predictors that `small` chooses with the best ones; fails if one costs more than 5 % of the size
    Predictors {
        /// Folder of fields: raw values in files such as name_30x192x288.f32
        data: PathBuf,
        /// Bounds relative to the value range
        #[arg(long, value_delimiter = ',', value_name = "BOUND", default_values_t = predictors::RELS)]
        rel: Vec<f64>,
    },
    /// Compares chunks of 64 KiB with and without a shared codebook, in size and in time of encoding
    SharedCodebooks {
        /// Folder of fields: raw values in files such as name_30x192x288.f32; the first axis is taken for time
        data: PathBuf,
        /// Beginnings of the names of the fields
        #[arg(required = true)]
        names: Vec<String>,
        /// Bounds relative to the value range
        #[arg(long, value_delimiter = ',', value_name = "BOUND", default_values_t = [1e-2, 1e-3, 1e-4])]
        rel: Vec<f64>,
    },
    /// Prints tables of docs/papers.md for the fields of a folder
    Papers {
        /// Which tables; all of them unless some are named
        #[arg(value_enum)]
        tables: Vec<papers::Table>,
        /// Folder of fields: raw values in files such as name_30x192x288.f32
        /// [default: the corpus]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let ended = match Command::parse() {
        Command::BenchEntropy => bench_entropy::run(),
        Command::CeazCodewords { data, out } => ceaz_codewords::run(&data, &out),
        Command::Codebook { data, out, rel } => codebook::run(&data, &out, &rel),
        Command::Predictors { data, rel } => predictors::run(&data, &rel),
        Command::SharedCodebooks { data, names, rel } => shared_codebooks::run(&data, &names, &rel),
        Command::Papers { tables, data } => data
            .or_else(pumice_testkit::data::folder)
            .ok_or_else(|| "name a folder of fields by --data, or run `cargo xtask corpus`".to_owned())
            .and_then(|data| papers::run(&tables, &data)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
