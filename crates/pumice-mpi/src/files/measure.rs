//! Whether it pays to compress what goes to a file: measured on parts of the values, on all ranks at once, as they will
//! encode and write later.

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::backend;
use pumice::{Config, Result};

use super::partial::{PartialFile, Sync};
use crate::agreement::agree;
use crate::collective::reduce;
use crate::local::Value;

/// Values that are encoded to measure that; the first are enough for a code that is so many times slower than the storage.
const SAMPLES: [usize; 2] = [1 << 12, 1 << 17];
const HOPELESS: f64 = 8.0;

/// Bytes that are written: a few, which take the time of any write, then this share of those that a rank has.
const FEW: usize = 1 << 12;
const SHARE: usize = 32;
const MOST: usize = 4 << 20;

/// Ranks that all have fewer bytes do not measure: to do so would take as long as to write.
const LEAST: usize = 1 << 20;

/// Whether the file is there sooner if values are compressed. `values` are some of this rank, which it encodes on so many
/// threads; `output` is empty before and after.
pub(super) fn pays<T: Value>(
    comm: &impl Communicator,
    output: &PartialFile,
    values: &[T],
    config: &Config,
    threads: usize,
) -> Result<bool> {
    let [most] = reduce(comm, [size_of_val(values) as u64], SystemOperation::max());
    if most < LEAST as u64 {
        return Ok(true);
    }
    let mut bytes = Vec::new();
    T::extend_le_bytes(&values[..(values.len() / SHARE).min(MOST / size_of::<T>())], &mut bytes);
    let few = bytes.len().min(FEW);
    let writing = output.write(comm, Sync::No, |file| {
        let offset = comm.rank() as u64 * MOST as u64;
        let mut seconds = [0.0; 2];
        for (seconds, bytes) in seconds.iter_mut().zip([&bytes[..few], &bytes[..]]) {
            comm.barrier();
            let start = mpi::time();
            agree(comm, file.write_at(offset, bytes))?;
            agree(comm, file.sync())?;
            *seconds = mpi::time() - start;
        }
        Ok((seconds[1] - seconds[0]).max(0.0) / (bytes.len() - few).max(1) as f64)
    })?;
    output.clear(comm)?;
    // The slowest rank decides. One that has written nothing has no time per byte.
    let [writing] = reduce(comm, [writing], SystemOperation::max());
    let mut compressed = 0.0;
    for n in SAMPLES {
        let (encoding, share) = agree(comm, encoding(&values[..values.len().min(n)], config, threads))?;
        let [encoding, share] = reduce(comm, [encoding, share], SystemOperation::max());
        compressed = encoding + share * writing;
        if encoding > HOPELESS * writing {
            break;
        }
    }
    Ok(compressed < writing)
}

/// Seconds to encode a byte of values, and the bytes of a stream for each byte of values.
fn encoding<T: Value>(sample: &[T], given: &Config, threads: usize) -> Result<(f64, f64)> {
    if sample.is_empty() {
        return Ok((0.0, 0.0));
    }
    // Options for the whole array do not fit a part of it. A relative bound is for the range of the part: it is tighter.
    let [first, others @ ..] = given.bounds() else { return Ok((0.0, 0.0)) };
    let config = others.iter().fold(Config::new(*first), |config, bound| config.and(*bound));
    let config = config.preset(backend::preset_of(given)).threads(1);
    let mut bytes = Vec::new();
    let mut least = f64::INFINITY;
    // The first time, memory is new.
    for _ in 0..2 {
        let start = mpi::time();
        pumice::compress_into(sample, &[sample.len()], &config, &mut bytes)?;
        least = least.min(mpi::time() - start);
    }
    let n = size_of_val(sample) as f64;
    Ok((least / n / threads as f64, bytes.len() as f64 / n))
}
