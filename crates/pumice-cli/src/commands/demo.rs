//! `pumice demo`: makes a few fields, compresses each at three bounds, checks every value, and shows the results as a
//! table and as pictures. It needs no input.

mod colour;
mod fields;
mod font;
mod picture;

use std::path::{Path, PathBuf};
use std::time::Instant;

use pumice::metrics::{self, Comparison};
use pumice::{Config, ErrorBound, ErrorKind, Info};
use serde::Serialize;

use self::fields::Field;
use crate::failure::{Failure, Result, io_context};
use crate::text::{self, Table};
use crate::ui::Ui;

/// Bounds relative to the value range; the pictures show the first, whose errors are largest.
const BOUNDS: [f64; 3] = [1e-2, 1e-3, 1e-4];

/// Compress synthetic fields and draw pictures of the results
///
/// Takes a few seconds and needs no input. Pictures and fields are written to the output directory.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory for pictures and fields
    #[arg(short, long, value_name = "DIR", default_value = "pumice-demo")]
    output: PathBuf,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    rows: Vec<Row>,
    files: Vec<String>,
    seconds: f64,
}

/// One field at one bound.
#[derive(Serialize)]
struct Row {
    field: &'static str,
    shape: Vec<usize>,
    raw_bytes: u64,
    rel: f64,
    abs_bound: f64,
    compressed_bytes: u64,
    ratio: f64,
    max_err_over_bound: f64,
    bound_kept: bool,
}

/// A field after compression and decompression.
struct RoundTrip {
    restored: Vec<f32>,
    info: Info,
    found: Comparison,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> Result<()> {
    let start = Instant::now();
    std::fs::create_dir_all(&args.output).map_err(io_context("create", &args.output))?;
    let bar = ui.steps_bar(fields::ALL.len() as u64, "demo");
    let mut report = Report { rows: Vec::new(), files: Vec::new(), seconds: 0.0 };
    for make in fields::ALL {
        let field = make();
        report.files.push(write_raw(&field, &args.output)?);
        show_field(&field, &args.output, &mut report)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.seconds = start.elapsed().as_secs_f64();
    ui.report(&report, || describe(&report))?;
    if report.rows.iter().all(|row| row.bound_kept) {
        return Ok(());
    }
    Err(Failure::new(ErrorKind::BoundBroken, "a bound was broken").hint("this is a bug in pumice: please report it"))
}

/// Compresses a field at every bound and draws it for the loosest one.
fn show_field(field: &Field, directory: &Path, report: &mut Report) -> Result<()> {
    for rel in BOUNDS {
        let trip = round_trip(field, rel)?;
        if rel == BOUNDS[0] {
            let path = directory.join(format!("{}.png", field.name));
            picture::draw(field, &trip.restored, &trip.info).save(&path)?;
            report.files.push(path.display().to_string());
        }
        report.rows.push(Row {
            field: field.name,
            shape: field.shape.clone(),
            raw_bytes: trip.info.raw_bytes,
            rel,
            abs_bound: trip.info.abs_bound,
            compressed_bytes: trip.info.compressed_bytes,
            ratio: trip.info.raw_bytes as f64 / trip.info.compressed_bytes as f64,
            max_err_over_bound: trip.found.max_abs_error / trip.info.abs_bound,
            bound_kept: trip.found.bound_kept(),
        });
    }
    Ok(())
}

fn round_trip(field: &Field, rel: f64) -> Result<RoundTrip> {
    let packed = pumice::compress(&field.values, &field.shape, &Config::new(ErrorBound::Rel(rel)))?;
    let restored = pumice::decompress::<f32>(&packed)?.data;
    let info = pumice::inspect(&packed)?;
    // The fill value is the generator's, so that the check does not depend on its detection.
    let fills: Vec<f64> = field.fill.map(f64::from).into_iter().collect();
    let found = metrics::compare(&field.values, &restored, info.abs_bound, &fills);
    Ok(RoundTrip { restored, info, found })
}

/// Writes a field to a raw file, for the commands that the demo suggests.
fn write_raw(field: &Field, directory: &Path) -> Result<String> {
    let path = directory.join(format!("{}_{}.f32", field.name, text::join(&field.shape, "x")));
    let bytes: Vec<u8> = field.values.iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(&path, bytes).map_err(io_context("write", &path))?;
    Ok(path.display().to_string())
}

fn describe(report: &Report) -> String {
    let heading = ["field", "array", "size", "bound", "compressed", "ratio", "largest error", "bound kept"];
    let mut table = Table::new(&heading, 2);
    for row in &report.rows {
        let first = row.rel == BOUNDS[0];
        let once = |text: String| if first { text } else { String::new() };
        table.row(vec![
            once(row.field.into()),
            once(format!("{} f32", text::shape(&row.shape))),
            once(text::bytes(row.raw_bytes)),
            format!("{} %", text::number(row.rel * 100.0, 3)),
            text::bytes(row.compressed_bytes),
            text::ratio(row.ratio),
            format!("{} of bound", text::percent(row.max_err_over_bound, 1)),
            if row.bound_kept { "yes".into() } else { "NO".into() },
        ]);
    }
    format!(
        "Every value of a compressed array stays within the bound, here a share of the value range.\n\n{}\n{}",
        table.render(),
        next_steps(report),
    )
}

/// Commands to try next, with the program name as typed this time.
fn next_steps(report: &Report) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "pumice".into());
    let sample = &report.files[0];
    let packed = Path::new(sample).with_extension("pum");
    let packed = packed.display();
    let pictures: String = report.files.iter().filter(|f| f.ends_with(".png")).map(|f| format!("  {f}\n")).collect();
    format!(
        "This took {}. Pictures (original, restored at 1 %, error):\n{pictures}\n\
         Try next:\n  \
         {program} compress {sample} -o {packed} --rel 1e-3\n  \
         {program} check {sample} {packed}\n  \
         {program} bench {sample}\n  \
         {program} --help\n",
        text::seconds(report.seconds),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_a_field_once_and_commands_to_try_follow() {
        let row = |rel| Row {
            field: "turbulence",
            shape: vec![64, 128],
            raw_bytes: 32_768,
            rel,
            abs_bound: rel,
            compressed_bytes: 1024,
            ratio: 32.0,
            max_err_over_bound: 0.9999,
            bound_kept: true,
        };
        let files = vec!["d/turbulence_64x128.f32".into(), "d/turbulence.png".into()];
        let text = describe(&Report { rows: BOUNDS.map(row).into(), files, seconds: 1.0 });
        assert_eq!(text.matches("turbulence  64 x 128 f32").count(), 1, "{text}");
        assert_eq!(text.matches("99.9 % of bound").count(), 3, "{text}");
        assert!(text.contains("check d/turbulence_64x128.f32 d/turbulence_64x128.pum"), "{text}");
    }
}
