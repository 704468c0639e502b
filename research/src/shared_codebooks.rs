//! `cargo research shared-codebooks`: what chunks of 64 KiB lose by codes of their own, and what a codebook gives back, in
//! size and in time. On fields of a folder, whose first axis is taken for time, and on an acoustic wave.

use std::path::Path;
use std::time::Instant;

use pumice::{Codebook, CodebookTrainer, Config, Element, ErrorBound, Preset};
use pumice_testkit::Float;
use pumice_testkit::simulate::acoustic::Wavefield;

use crate::Result;
use crate::fields::{self, with_values};

/// Values of a chunk: 64 KiB of f32.
const CHUNK_VALUES: usize = 1 << 14;
/// How often a time is taken; the least counts.
const REPETITIONS: usize = 5;
/// Extents of the wave, and the steps of its solver between two arrays.
const WAVE: [usize; 3] = [96, 128, 128];
const WAVE_STEPS: usize = 12;
const N_WAVES: usize = 6;

pub(crate) fn run(data: &Path, names: &[String], rels: &[f64]) -> Result {
    println!(
        "| array | REL | large chunks | own | shared, first | shared, all | first / own | codebook | time: large | shared |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    let mut rows = Vec::new();
    for field in fields::in_folder(data)?.iter().filter(|field| names.iter().any(|name| field.name.starts_with(name))) {
        for rel in rels {
            match with_values!(field, |values, extents| of_field(&values, &extents, *rel)) {
                Ok(row) => rows.extend(row.inspect(|row| row.print(&field.name, *rel))),
                // Such as where the first step is constant.
                Err(e) => eprintln!("skipped {} at {rel:e}: {e}", field.name),
            }
        }
    }
    let waves = waves();
    for rel in rels {
        let row = of_steps(&waves, &WAVE, *rel)?;
        row.print("acoustic wave, 5 steps after the first", *rel);
        rows.push(row);
    }
    if rows.is_empty() {
        return Err("no field has one of these names".into());
    }
    let mean = |of: fn(&Row) -> f64| (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len() as f64).exp();
    let worst = rows.iter().map(Row::share).fold(f64::INFINITY, f64::min);
    println!(
        "\nratio with the first codebook / with own codes: {:.3} (geometric mean), {worst:.3} at least; encoding with the \
         codebook takes {:.2} of the time",
        mean(Row::share),
        mean(|row| row.shared_seconds / row.own_seconds)
    );
    Ok(())
}

/// Ratios, without codebooks, whose bytes are counted apart; and seconds of encoding on one thread.
struct Row {
    large: f64,
    own: f64,
    of_first: f64,
    of_all: f64,
    codebook_bytes: usize,
    large_seconds: f64,
    own_seconds: f64,
    shared_seconds: f64,
}

impl Row {
    /// What the codebook of the first array makes of the ratio.
    fn share(&self) -> f64 {
        self.of_first / self.own
    }

    fn print(&self, name: &str, rel: f64) {
        println!(
            "| {name} | {rel:e} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | {} | {:.2} | {:.2} |",
            self.large,
            self.own,
            self.of_first,
            self.of_all,
            self.share(),
            self.codebook_bytes,
            self.large_seconds / self.own_seconds,
            self.shared_seconds / self.own_seconds,
        );
    }
}

/// The steps of a field along its first axis, if there are several.
fn of_field<T: Element + Float>(values: &[T], extents: &[usize], rel: f64) -> Result<Option<Row>> {
    let step = extents[1..].iter().product::<usize>();
    if extents.len() < 3 || extents[0] < 2 || step < CHUNK_VALUES {
        return Ok(None);
    }
    let steps: Vec<Vec<T>> = values.chunks(step).map(<[T]>::to_vec).collect();
    of_steps(&steps, &extents[1..], rel).map(Some)
}

/// The steps after the first, with codes of their own and with codebooks of the first and of all steps.
fn of_steps<T: Element + Float>(steps: &[Vec<T>], shape: &[usize], rel: f64) -> Result<Row> {
    let failed = |e: pumice::Error| e.to_string();
    let (low, high) = steps
        .iter()
        .flatten()
        .map(|x| Float::to_f64(*x))
        .filter(|x| x.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let large = Config::new(ErrorBound::Rel(rel)).preset(Preset::Balanced).range(low, high).threads(1);
    let own = large.clone().chunk_shape(&chunk_shape(shape));
    let trained = |steps: &[Vec<T>]| -> Result<Codebook> {
        let mut trainer = CodebookTrainer::new();
        steps.iter().try_for_each(|step| trainer.add(step, shape, &own)).map_err(failed)?;
        trainer.finish().map_err(failed)
    };
    let (first, all) = (trained(&steps[..1])?, trained(steps)?);
    let configs = [large, own.clone(), own.clone().codebook(&first), own.codebook(&all)];
    let mut bytes = [0; 4];
    let mut seconds = [f64::INFINITY; 4];
    let mut out = Vec::new();
    for repetition in 0..REPETITIONS {
        // Taken in turn, so that all of them meet the same load of the machine.
        for (i, config) in configs.iter().enumerate() {
            let mut n_bytes = 0;
            let start = Instant::now();
            for step in &steps[1..] {
                pumice::compress_into(step, shape, config, &mut out).map_err(failed)?;
                n_bytes += out.len();
            }
            seconds[i] = seconds[i].min(start.elapsed().as_secs_f64());
            bytes[i] = n_bytes;
            if repetition > 0 {
                continue;
            }
            // The last one, to be sure that what is measured can be read.
            let restored = pumice::decompress::<T>(&out).map_err(failed)?.data;
            let bound = rel * (high - low);
            pumice_testkit::check::verify(&steps[steps.len() - 1], &restored, bound, &[])?;
        }
    }
    let n_later = steps.len() - 1;
    // Each stream has its codebook twice.
    bytes[2] -= 2 * n_later * first.as_bytes().len();
    bytes[3] -= 2 * n_later * all.as_bytes().len();
    let [large, own, of_first, of_all] = bytes.map(|n| (n_later * size_of_val(&steps[0][..])) as f64 / n as f64);
    Ok(Row {
        large,
        own,
        of_first,
        of_all,
        codebook_bytes: first.as_bytes().len(),
        large_seconds: seconds[0],
        own_seconds: seconds[1],
        shared_seconds: seconds[2],
    })
}

/// A box of about [`CHUNK_VALUES`] values with edges as equal as the array allows, so that few chunks are clipped.
fn chunk_shape(shape: &[usize]) -> Vec<usize> {
    let mut chunk = vec![1; shape.len()];
    let mut left = CHUNK_VALUES as f64;
    // The shortest axes first: what they do not take is left to the others.
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.sort_by_key(|axis| shape[*axis]);
    for (i, axis) in axes.iter().enumerate() {
        let edge = left.powf(1.0 / (shape.len() - i) as f64);
        let n_pieces = (shape[*axis] as f64 / edge).round().max(1.0);
        chunk[*axis] = (shape[*axis] as f64 / n_pieces).ceil() as usize;
        left = (left / chunk[*axis] as f64).max(1.0);
    }
    chunk
}

/// Arrays of a wave at regular times.
fn waves() -> Vec<Vec<f32>> {
    let mut wave = Wavefield::new(WAVE, 1);
    let at = |i: usize| {
        wave.advance_to(100 + WAVE_STEPS * i);
        wave.pressure()
    };
    (0..N_WAVES).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_about_64_kib() {
        for shape in [&[96, 128, 128][..], &[192, 288], &[384, 320], &[10, 83, 83], &[15, 48, 48], &[100_000]] {
            let n: usize = chunk_shape(shape).iter().product();
            assert!((CHUNK_VALUES / 2..=2 * CHUNK_VALUES).contains(&n), "{shape:?}: {n}");
        }
    }
}
