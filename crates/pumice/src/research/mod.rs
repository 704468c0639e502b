//! Stages and decisions of the presets that follow papers, for benchmarks, fuzzing and the tables of docs/papers.md.
//!
//! Needs the feature `unstable-research`: anything here may change in any release.

mod blocks;
mod predictors;

pub use predictors::{ChunkSizes, Predictable};

pub use blocks::{ceresz2_bytes, ceresz2_counts, ceresz2_fit, ceresz2_lengths, codec_bytes};

use crate::codec::Element;
use crate::codec::papers::quant_codes::{CodesFormat, MAX_BITS, N_CODES, QuantCodes};
use crate::codec::papers::{ceaz, cuszplus};
use crate::entropy::{huffman, run_length};
use crate::error::{Error, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::io::SliceSource;
use crate::plan::{Config, ErrorBound, Plan, Quantizer, stats};

/// The quantisation codes of an array at a bound, as cuSZ+ has them: 512 plus the difference from the prediction, and 512
/// where that is out of range. `None` where the bound is lossless or too fine to quantise.
///
/// # Errors
/// As for compression with this bound.
pub fn quantisation_codes<T: Element>(values: &[T], shape: &[usize], bound: ErrorBound) -> Result<Option<Vec<u16>>> {
    let source = SliceSource::new(values, shape)?;
    let stats = stats::scan(&source, &[], &Workers::new(1)?, &|_| ())?;
    let plan = Plan::new(&Config::new(bound), shape, Some(&stats))?;
    let _floats = DefaultFloats::set();
    let quantizer = plan.step.and_then(|step| Quantizer::for_stream(step, plan.abs_bound));
    let of = |quantizer| QuantCodes::new(values, shape, &quantizer, &plan.fills).codes;
    Ok(if values.is_empty() { Some(Vec::new()) } else { quantizer.map(of) })
}

// ---- Entropy coding ----

/// Codebooks for classes of symbols, and their decoding tables.
#[derive(Debug)]
pub struct Huffman {
    codebooks: Vec<huffman::Codebook>,
    tables: huffman::DecodeTables<u16>,
    classes: Vec<u8>,
}

impl Huffman {
    /// Symbols that share a class.
    pub const GROUP: usize = huffman::GROUP_SYMBOLS;

    /// The best codes for these symbols, which are below `n_symbols`; groups have the classes given, or all the same.
    pub fn fit(symbols: &[u16], n_symbols: usize, classes: &[u8], max_bits: u32) -> Self {
        let n_classes = 1 + classes.iter().copied().max().map_or(0, usize::from);
        let mut counts = vec![vec![0_u32; n_symbols]; n_classes];
        for (i, symbol) in symbols.iter().enumerate() {
            let class = classes.get(i / Self::GROUP).map_or(0, |class| usize::from(*class));
            counts[class][usize::from(*symbol)] += 1;
        }
        let lengths: Vec<_> = counts.iter().map(|counts| huffman::Lengths::fit(counts, max_bits)).collect();
        Self::new(lengths, classes)
    }

    fn new(lengths: Vec<huffman::Lengths>, classes: &[u8]) -> Self {
        let tables = huffman::DecodeTables::new(&lengths);
        let codebooks = lengths.into_iter().map(huffman::Codebook::new).collect();
        Self { codebooks, tables, classes: classes.to_vec() }
    }

    /// Reads codebooks from untrusted bytes.
    ///
    /// # Errors
    /// If the bytes are not codebooks.
    pub fn read(bytes: &[u8], n_codebooks: usize, n_symbols: usize, classes: &[u8]) -> Result<Self> {
        let mut decoder = crate::entropy::binary::BinaryDecoder::new(bytes);
        let all = (0..n_codebooks).map(|_| huffman::Lengths::read(&mut decoder, n_symbols)).collect::<Result<_>>()?;
        decoder.finish()?;
        Ok(Self::new(all, classes))
    }

    /// The codebooks as bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = crate::entropy::binary::BinaryEncoder::new(&mut bytes);
        self.codebooks.iter().for_each(|codebook| codebook.lengths().write(&mut encoder));
        encoder.finish();
        bytes
    }

    /// The identifier of each codebook, and the length of each symbol's code in it.
    pub fn codebooks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.codebooks.iter().map(|codebook| (codebook.id(), codebook.lengths().bits()))
    }

    fn classes(&self) -> huffman::Classes<'_> {
        if self.classes.is_empty() { huffman::Classes::Same(0) } else { huffman::Classes::PerGroup(&self.classes) }
    }

    /// Appends the streams of symbols, and their sizes.
    pub fn encode(&self, symbols: &[u16], out: &mut Vec<u8>, sizes: &mut Vec<u16>) {
        huffman::encode(symbols, self.classes(), &self.codebooks, out, sizes);
    }

    /// Decodes streams.
    ///
    /// # Errors
    /// If they do not hold exactly as many symbols as `out`.
    pub fn decode(&self, bytes: &[u8], sizes: &[u16], out: &mut [u16]) -> Result<()> {
        huffman::decode(bytes, sizes, self.classes(), &self.tables, out)
    }
}

/// Appends the runs of symbols: values, and digits of lengths.
pub fn encode_runs(symbols: &[u16], values: &mut Vec<u16>, digits: &mut Vec<u8>) {
    run_length::encode(symbols, values, digits);
}

/// Decodes runs.
///
/// # Errors
/// If their lengths do not add up to that of `out`.
pub fn decode_runs(values: &[u16], digits: &[u8], out: &mut [u16]) -> Result<()> {
    run_length::decode(values, digits, out)
}

/// How many runs there are.
pub fn n_runs(symbols: &[u16]) -> usize {
    run_length::n_runs(symbols)
}

// ---- Presets of papers ----

/// The results of the pipelines of cuSZ+ and CEAZ for an array as a single chunk at a relative bound.
#[derive(Clone, Debug)]
pub struct PaperSizes {
    /// How often each quantisation code occurs.
    pub counts: [u32; N_CODES],
    /// The average length of the best Huffman code, in bits.
    pub average_bits: f64,
    /// Lower and upper bound of that, from the histogram.
    pub bit_length: (f64, f64),
    /// The workflow that the rule of cuSZ+ chooses: 0 Huffman, 1 or 2 runs.
    pub workflow: usize,
    /// Bytes of each workflow of cuSZ+: Huffman, runs, runs under Huffman codes.
    pub workflow_bytes: [usize; 3],
    /// How far the standard deviation is from that of CEAZ's offline codewords.
    pub chi: f64,
    /// The codewords that CEAZ chooses: 0 offline codewords, 1 updated by an approximate sort, 2 rebuilt.
    pub codewords: usize,
    /// Bytes with each of these.
    pub codewords_bytes: [usize; 3],
}

/// Runs both pipelines.
///
/// # Errors
/// As for compression, and if the array is empty or cannot be quantised at this bound.
pub fn paper_sizes<T: Element>(values: &[T], shape: &[usize], rel: f64) -> Result<PaperSizes> {
    let (plan, quantizer) = blocks::planned(values, shape, &Config::new(ErrorBound::Rel(rel)))?;
    if values.is_empty() {
        return Err(Error::invalid("nothing to quantise"));
    }
    let _floats = DefaultFloats::set();
    let all = QuantCodes::new(values, shape, &quantizer, &plan.fills);
    let counts = all.counts();
    let n_fills = plan.fills.len();
    Ok(PaperSizes {
        counts,
        average_bits: huffman::Lengths::fit(&counts, MAX_BITS).cost_bits(&counts) as f64 / values.len() as f64,
        bit_length: cuszplus::BitLength::of(&counts).bits(),
        workflow: cuszplus::Workflow::choose(&counts) as usize,
        workflow_bytes: payload_bytes::<_, cuszplus::Workflow>(values, &all, &counts, n_fills),
        chi: ceaz::chi(&counts),
        codewords: ceaz::Codewords::choose(ceaz::chi(&counts)) as usize,
        codewords_bytes: payload_bytes::<_, ceaz::Codewords>(values, &all, &counts, n_fills),
    })
}

/// Sizes of the payload in each format of a codec.
fn payload_bytes<T: Element, F: CodesFormat>(
    values: &[T],
    all: &QuantCodes,
    counts: &[u32; N_CODES],
    n_fills: usize,
) -> [usize; 3] {
    F::ALL.map(|format| {
        let mut out = Vec::new();
        all.write_payload(format, counts, values, n_fills, &mut out);
        out.len()
    })
}

/// Offline codewords of CEAZ for codes of these counts, as the file that the library is built with.
pub fn ceaz_codewords(counts: &[u32; N_CODES]) -> Vec<u8> {
    let mut out = Vec::new();
    ceaz::Offline::write(counts, &mut out);
    out
}
