//! `pumice info`: shows header and index of a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pumice::{Codebook, Info, StreamReader};
use serde::Serialize;

use crate::bounds::{self, BoundReport, RegionReport};
use crate::commands::codebook;
#[cfg(feature = "hdf5")]
use crate::commands::records;
#[cfg(feature = "hdf5")]
use crate::convert::converted;
#[cfg(feature = "hdf5")]
use crate::failure::Failure;
use crate::failure::Result;
use crate::input;
use crate::text;
use crate::ui::{self, Ui};

/// Show the properties of a compressed file
///
/// Shape, type, bound, chunks, ratio and attributes, without decoding any value. A pipe is read to its end, and the
/// checksums of its chunks are verified. For a result of `pumice convert`: what the record of each variable says.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The compressed file, or - for standard input; or an HDF5 or NetCDF file or a Zarr store of `pumice convert`
    file: PathBuf,

    /// Read the values of a result of `pumice convert`, and report whether each record speaks of them
    #[cfg(feature = "hdf5")]
    #[arg(long)]
    verify: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    file: String,
    version: u8,
    dtype: &'static str,
    shape: Vec<usize>,
    chunk_shape: Vec<usize>,
    n_chunks: u64,
    segments: Vec<usize>,
    preset: &'static str,
    stable: bool,
    bound_kind: &'static str,
    bound: Option<f64>,
    bounds: Vec<BoundReport>,
    regions: Vec<RegionReport>,
    bin: Vec<usize>,
    abs_bound: f64,
    #[serde(serialize_with = "ui::any_numbers")]
    fills: Vec<f64>,
    attributes: BTreeMap<String, String>,
    codebook: Option<CodebookReport>,
    raw_bytes: u64,
    compressed_bytes: u64,
    ratio: f64,
    bits_per_value: f64,
}

/// The codes that chunks share.
#[derive(Serialize)]
struct CodebookReport {
    id: String,
    n_books: usize,
    bytes: usize,
}

impl From<&Codebook> for CodebookReport {
    fn from(codebook: &Codebook) -> Self {
        Self { id: codebook::id(codebook), n_books: codebook.n_books(), bytes: codebook.as_bytes().len() }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    #[cfg(feature = "hdf5")]
    if converted::has_variables(&args.file)? {
        return records::info(&args.file, args.verify, ui);
    } else if args.verify {
        return Err(Failure::invalid("--verify is for results of `pumice convert`")
            .hint("`pumice check ORIGINAL FILE` compares a compressed file with its original"));
    }
    let info = if input::is_stream(&args.file) {
        let stream = input::open_stream_reader(&args.file, 1)?;
        StreamReader::skip(stream).map_err(|e| input::damage_hint(e.into(), &args.file))?
    } else {
        input::open_reader(&args.file, 1)?.info().clone()
    };
    ui.report(&report(args, &info), || describe(args, &info))
}

fn report(args: &Args, info: &Info) -> Report {
    let (bound_kind, bound) = bounds::parts(info.bound);
    Report {
        file: args.file.display().to_string(),
        version: info.version,
        dtype: info.dtype.name(),
        shape: info.shape.clone(),
        chunk_shape: info.chunk_shape.clone(),
        n_chunks: info.n_chunks,
        segments: info.segments.clone(),
        preset: info.preset.name(),
        stable: info.stable,
        bound_kind,
        bound,
        bounds: info.bounds.iter().map(BoundReport::from).collect(),
        regions: info.regions.iter().map(RegionReport::from).collect(),
        bin: info.bin.clone(),
        abs_bound: info.abs_bound,
        fills: info.fills.clone(),
        attributes: info.attributes.iter().cloned().collect(),
        codebook: info.codebook.as_ref().map(CodebookReport::from),
        raw_bytes: info.raw_bytes,
        compressed_bytes: info.compressed_bytes,
        ratio: ratio(info),
        bits_per_value: bits_per_value(info),
    }
}

fn ratio(info: &Info) -> f64 {
    info.raw_bytes as f64 / info.compressed_bytes as f64
}

fn bits_per_value(info: &Info) -> f64 {
    info.compressed_bytes as f64 * 8.0 / (info.raw_bytes as f64 / info.dtype.size() as f64)
}

fn describe(args: &Args, info: &Info) -> String {
    let mut size = text::ratio(ratio(info));
    if info.raw_bytes > 0 {
        size += &format!(", {} bits per value", text::number(bits_per_value(info), 3));
    }
    let mut facts = vec![
        ("file", args.file.display().to_string()),
        ("array", format!("{} {}", text::shape(&info.shape), info.dtype)),
        ("bound", bounds::describe(&info.bounds, info.abs_bound)),
        ("preset", info.preset.name().into()),
        ("size", format!("{} -> {}", text::bytes(info.raw_bytes), text::bytes(info.compressed_bytes))),
        ("ratio", size),
        ("chunks", format!("{} of {}", info.n_chunks, text::shape(&info.chunk_shape))),
        ("format", format!("version {}", info.version)),
    ];
    if info.stable {
        facts.push(("stable", "compressing it again under this bound changes no value".into()));
    }
    if let Some(codebook) = &info.codebook {
        facts.push(("codebook", codebook::describe(codebook)));
    }
    facts.extend(bounds::facts(info));
    if info.segments.len() > 1 {
        facts.push(("appended", format!("rows {}", text::join(&info.segments, " + "))));
    }
    if !info.fills.is_empty() {
        facts.push(("fill values", text::fills(&info.fills, info.dtype.name())));
    }
    facts.extend(info.attributes.iter().map(|(key, value)| (key.as_str(), value.clone())));
    text::facts(&facts)
}
