//! The block codecs: sizes for the tables, and the codebook of `ceresz2`, built by `cargo research codebook`.

use crate::codec::papers::blocks::Blocks;
use crate::codec::papers::ceresz2::Ceresz2;
use crate::codec::papers::ceresz2::{self, MAX_CODE_BITS, N_SYMBOLS, Symbols};
use crate::codec::small::OnLattice;
use crate::codec::{ChunkCodec, ChunkContext};
use crate::codec::{Element, pipeline};
use crate::entropy::huffman::{Codebook, Lengths};
use crate::error::{Error, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::io::SliceSource;
use crate::plan::{Config, Plan, Quantizer, stats};

/// The plan for an array, and its quantiser.
pub(super) fn planned<T: Element>(data: &[T], shape: &[usize], config: &Config) -> Result<(Plan<T>, Quantizer<T>)> {
    let stats = stats::scan(&SliceSource::new(data, shape)?, &config.fills, &Workers::Serial, &|_| ())?;
    let plan = Plan::new(config, shape, Some(&stats))?;
    let quantizer = plan.step.and_then(|step| Quantizer::for_stream(step, plan.abs_bound));
    let quantizer = quantizer.ok_or_else(|| Error::invalid("the bound leaves nothing to quantise"))?;
    Ok((plan, quantizer))
}

/// Payload size of an array as a single chunk with the preset's own codec: no other codec replaces it where that would
/// be smaller.
pub fn codec_bytes<T: Element>(data: &[T], shape: &[usize], config: &Config) -> Result<usize> {
    let (plan, quantizer) = planned(data, shape, config)?;
    let _floats = DefaultFloats::set();
    let mut out = Vec::new();
    let chunk = ChunkContext { fills: &plan.fills, ..ChunkContext::new(shape) };
    match pipeline::encode_quantised(data, plan.preset, &quantizer, OnLattice::No, &chunk, &mut out) {
        Some(_) => Ok(out.len()),
        None => Err(Error::invalid("the preset has no codec of its own")),
    }
}

/// How often `ceresz2` codes each of its symbols in an array.
pub fn ceresz2_counts<T: Element>(data: &[T], shape: &[usize], config: &Config) -> Result<Vec<u32>> {
    let (plan, quantizer) = planned(data, shape, config)?;
    let _floats = DefaultFloats::set();
    let mut counts = vec![0; N_SYMBOLS];
    let symbols = Symbols::of(&Blocks::new(data, &quantizer, &plan.fills)).symbols;
    symbols.iter().for_each(|symbol| counts[usize::from(*symbol)] += 1);
    Ok(counts)
}

/// The code lengths that take the fewest bits for symbols with these counts; 255 where the count is 0.
pub fn ceresz2_fit(counts: &[u32]) -> Vec<u8> {
    Lengths::fit(counts, MAX_CODE_BITS).bits().to_vec()
}

/// Payload size of an array as a single chunk of `ceresz2` with a codebook of these lengths, which is not counted.
pub fn ceresz2_bytes<T: Element>(data: &[T], shape: &[usize], config: &Config, lengths: &[u8]) -> Result<usize> {
    let (plan, quantizer) = planned(data, shape, config)?;
    let _floats = DefaultFloats::set();
    let codebook = Codebook::new(Lengths::new(lengths.to_vec())?);
    let mut out = Vec::new();
    let chunk = ChunkContext { fills: &plan.fills, ..ChunkContext::new(shape) };
    Ceresz2::encode(data, (&quantizer, &codebook), &chunk, &mut out);
    Ok(out.len())
}

/// The lengths of the codebook of the format.
pub fn ceresz2_lengths() -> &'static [u8] {
    ceresz2::codebook().lengths().bits()
}
