//! The command line as a whole, and the argument groups that several commands share. Help text, completions and man
//! pages all come from these definitions.

use std::path::Path;

use clap::{Args, Parser, Subcommand, ValueEnum};
use pumice::{Config, DType, ErrorBound};

use crate::commands;
use crate::parse::{self, Extents};

const AFTER_HELP: &str = "\
Examples:
  pumice demo                                            see it work, no data needed
  pumice analyze t_30x192x288.f32                        statistics, ratios to expect
  pumice compress t_30x192x288.f32 -o t.pum --rel 1e-3   bound: 0.1 % of the value range
  pumice compress t.npy -o t.pum --abs 0.01 --verify     bound: 0.01, checked after writing
  pumice decompress t.pum -o t.npy                       the whole array
  pumice decompress t.pum -o t.npy --region 0:10,:,5:9   a part of it
  pumice convert in.nc out.nc --config fields.toml       NetCDF and HDF5, bounds by variable
  pumice check t_30x192x288.f32 t.pum                    largest error, PSNR, ratio

Exit codes: 0 success, 1 bound broken, 2 wrong arguments, 3 unsupported, 4 corrupt, 5 truncated,
6 input/output, 7 memory limit, 8 no device or device error.";

/// Error-bounded compression of floating-point arrays
///
/// Compresses arrays of f32 or f64 so that no value changes by more than the bound you give. NaN, infinities and
/// fill values come back bit for bit.
#[derive(Parser)]
#[command(name = "pumice", version, after_help = AFTER_HELP, max_term_width = 100, subcommand_required = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Report as JSON on standard output
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// Print no progress bars and no summaries
    #[arg(short, long, global = true, help_heading = "Output")]
    pub(crate) quiet: bool,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    Compress(commands::compress::Args),
    Decompress(commands::decompress::Args),
    #[cfg(feature = "hdf5")]
    Convert(commands::convert::Args),
    Info(commands::info::Args),
    Check(commands::check::Args),
    Recover(commands::recover::Args),
    Demo(commands::demo::Args),
    Analyze(commands::analyze::Args),
    Bench(commands::bench::Args),
    Codebook(commands::codebook::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

/// Type and shape of a raw file whose name or header does not give them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LayoutArgs {
    /// Extents, slowest axis first, as NumPy's `shape`: 30,192,288
    #[arg(long, value_name = "N,N,..", value_parser = parse::extents, conflicts_with = "dims", help_heading = "Input")]
    pub(crate) shape: Option<Extents>,

    /// Extents, fastest axis first, as SZ and zfp take them: 288,192,30
    #[arg(long, value_name = "N,N,..", value_parser = parse::extents, help_heading = "Input")]
    pub(crate) dims: Option<Extents>,

    /// Element type; otherwise taken from the extension (.f32, .f64) or the .npy header
    #[arg(long, value_enum, help_heading = "Input")]
    pub(crate) dtype: Option<DTypeArg>,
}

/// The number of threads.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WorkerArgs {
    /// Worker threads; 0 means one per core. The output does not depend on their number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
}

/// An element type by name.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DTypeArg {
    /// 32-bit floating point
    #[value(aliases = ["float", "float32", "f4"])]
    F32,
    /// 64-bit floating point
    #[value(aliases = ["double", "float64", "f8"])]
    F64,
}

impl From<DTypeArg> for DType {
    fn from(name: DTypeArg) -> Self {
        match name {
            DTypeArg::F32 => DType::F32,
            DTypeArg::F64 => DType::F64,
        }
    }
}

/// The error bounds and targets: at least one, and all that are given hold.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
pub(crate) struct BoundArgs {
    /// No value changes by more than E
    #[arg(long, value_name = "E", value_parser = parse::bound, allow_hyphen_values = true)]
    #[arg(help_heading = "Error bound (all that are given hold)")]
    abs: Option<f64>,

    /// No value changes by more than E times the value range (max - min, without fill values)
    #[arg(long, value_name = "E", value_parser = parse::bound, allow_hyphen_values = true)]
    #[arg(help_heading = "Error bound (all that are given hold)")]
    rel: Option<f64>,

    /// No value changes by more than E times its own magnitude; zeros stay zeros
    #[arg(long, value_name = "E", value_parser = parse::bound, allow_hyphen_values = true)]
    #[arg(help_heading = "Error bound (all that are given hold)")]
    pwrel: Option<f64>,

    /// No bit changes
    #[arg(long, help_heading = "Error bound (all that are given hold)")]
    lossless: bool,

    /// The largest bound found whose PSNR is at least DB decibels, and less than 0.5 dB above where possible
    #[arg(long, value_name = "DB", value_parser = parse::psnr, allow_hyphen_values = true)]
    #[arg(help_heading = "Error bound (all that are given hold)")]
    psnr: Option<f64>,

    /// The largest bound found whose errors have an L2 norm of at most NORM
    #[arg(long, value_name = "NORM", value_parser = parse::bound, allow_hyphen_values = true)]
    #[arg(help_heading = "Error bound (all that are given hold)")]
    l2: Option<f64>,

    /// The smallest bound found that makes the file R times smaller, and less than 3 % more where possible
    #[arg(long, value_name = "R", value_parser = parse::ratio, allow_hyphen_values = true)]
    #[arg(help_heading = "Error bound (all that are given hold)")]
    ratio: Option<f64>,
}

impl BoundArgs {
    /// All bounds that were given; at least one.
    pub(crate) fn bounds(&self) -> Vec<ErrorBound> {
        let given = [
            self.abs.map(ErrorBound::Abs),
            self.rel.map(ErrorBound::Rel),
            self.pwrel.map(ErrorBound::PwRel),
            self.psnr.map(ErrorBound::Psnr),
            self.l2.map(ErrorBound::L2),
            self.ratio.map(ErrorBound::Ratio),
        ];
        let lossless = self.lossless.then_some(ErrorBound::Lossless);
        given.into_iter().chain([lossless]).flatten().collect()
    }

    /// A configuration with these bounds.
    pub(crate) fn config(&self) -> Config {
        let mut bounds = self.bounds().into_iter();
        let config = Config::new(bounds.next().unwrap_or(ErrorBound::Lossless));
        bounds.fold(config, Config::and)
    }
}

/// Whether a path means standard input or output.
pub(crate) fn is_stdio(path: &Path) -> bool {
    path.as_os_str() == "-"
}
