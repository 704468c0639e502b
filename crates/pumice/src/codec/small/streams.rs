//! Codes to bytes and back: interleaved rANS under the contexts of `context.rs` (docs/format.md, 7.7).

use std::sync::{Mutex, PoisonError};

use super::bands::{Band, BandLayout, GROUPS};
use super::context::{
    BIAS, CONTEXTS, CoarseCodes, DEFAULT_WEIGHTS, MASKED, MASKED_CONTEXT, Surroundings, WeightSample, Weights,
    code_weights, context_of, leading_magnitude,
};
use super::pieces::{CodeStream, Frame, NARROW, Piece, Run, STREAM_VALUES, WIDE, streams};
use super::rans::{self, Contexts, DecodeTable, EncodeTable, IDLE, LEAST_STATE, Symbol, WordReader, WordWriter};
use crate::codec::shared::dims::{Dims, X, volume};
use crate::entropy::binary::BitCoder;
use crate::entropy::histogram::{self, Model};
use crate::entropy::tokens::{self, ALPHABET, RawReader, RawWriter};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, Workers, filled, scratch};
use crate::io::{Bytes, varint};
use crate::num::simd::{self, Kernel};

/// The most codes sampled for the weights of a group, and the largest sampling interval.
const MAX_SAMPLE: usize = 1024;
const SAMPLE_SHARE: usize = 64;

/// Wide streams may be longer by one bit in this many.
const WIDE_SHARE: u64 = 128;

/// Entries of a table of counts: all tokens of all contexts of a group.
const TABLE: usize = CONTEXTS * ALPHABET;
/// Streams of at least this many symbols are counted in several tables.
const MANY_SYMBOLS: usize = 1 << 17;

/// Counts of tokens in each context of a group, context after context.
type GroupCounts = Vec<u32>;

fn n_groups(layout: &BandLayout) -> usize {
    layout.bands.iter().map(|band| band.group + 1).max().unwrap_or(1)
}

/// For each level, the codes of its coarse grid.
fn coarse_codes(layout: &BandLayout, codes: &[i32]) -> Vec<Vec<i32>> {
    let mut coarse = CoarseCodes::new(layout);
    let mut all = vec![Vec::new(); layout.levels.len()];
    for level in (0..layout.levels.len()).rev() {
        coarse.advance(level, codes).expect(MEMORY_WAS_CHECKED);
        all[level] = scratch::take(coarse.codes.len());
        all[level].copy_from_slice(&coarse.codes);
    }
    all
}

fn surroundings<'a>(
    layout: &BandLayout,
    band: &Band,
    codes: &'a [i32],
    coarse: &'a [Vec<i32>],
    masked: Option<&'a [bool]>,
) -> Surroundings<'a> {
    let coarse = coarse.get(band.level).map_or(&[][..], Vec::as_slice);
    Surroundings::new(layout, band, &codes[..band.offset], coarse, masked)
}

fn fit_weights(layout: &BandLayout, codes: &[i32], coarse: &[Vec<i32>], masked: Option<&[bool]>) -> [Weights; GROUPS] {
    let mut samples: [WeightSample; GROUPS] = Default::default();
    let mut sizes = [0; GROUPS];
    for band in &layout.bands {
        sizes[band.group] += volume(&band.dims);
    }
    for band in &layout.bands {
        let n = volume(&band.dims);
        let wanted = (sizes[band.group] / SAMPLE_SHARE).clamp(256, MAX_SAMPLE);
        let around = surroundings(layout, band, codes, coarse, masked);
        samples[band.group].take(&around, &codes[band.offset..][..n], wanted * n / sizes[band.group]);
    }
    samples.map(|sample| sample.fit())
}

/// For each group, the estimated bits of its codes, without tables, and the number of these codes.
pub(crate) type Estimate = [(u64, usize); GROUPS];

/// Estimates the bits of all codes, or of those of some pieces.
pub(crate) fn estimate(
    layout: &BandLayout,
    codes: &[i32],
    masked: Option<&[bool]>,
    pieces: Option<Vec<Piece>>,
) -> Estimate {
    let coarse = coarse_codes(layout, codes);
    let weights = [DEFAULT_WEIGHTS; GROUPS];
    let mut all = Estimate::default();
    let streams = match pieces {
        Some(pieces) => vec![CodeStream { pieces, wave: 0 }],
        None => streams(layout, false),
    };
    for stream in streams {
        let count = CountStream { stream: &stream, layout, codes, coarse: &coarse, masked, weights: &weights };
        let symbols = simd::run(count);
        for (counts, (bits, _)) in symbols.counts.iter().zip(&mut all) {
            *bits += histogram::cost_bits(counts.as_chunks().0);
            // Entropies of samples are too small, by half a nat for each symbol but one (Miller and Madow, 1955).
            let n_free = |counts: &[u32; ALPHABET]| counts.iter().filter(|n| **n > 0).count().saturating_sub(1);
            let n_free: usize = counts.as_chunks().0.iter().map(n_free).sum();
            *bits += (n_free * 23 / 32) as u64;
        }
        for piece in &stream.pieces {
            all[layout.bands[piece.band].group].1 += piece.n_codes();
        }
        scratch::give(symbols.symbols);
    }
    coarse.into_iter().for_each(scratch::give);
    all
}

/// Appends the sizes of streams and the codes to `out`, and writes weights and distributions to `coder`. Wide streams
/// are faster and longer.
pub(crate) fn encode(
    layout: &BandLayout,
    codes: &[i32],
    masked: Option<&[bool]>,
    is_wide: bool,
    coder: &mut impl BitCoder,
    out: &mut Vec<u8>,
    workers: &Workers,
) {
    let coarse = coarse_codes(layout, codes);
    let n_groups = n_groups(layout);
    let mut weights = fit_weights(layout, codes, &coarse, masked);
    code_weights(coder, &mut weights, n_groups);

    struct Task<'a> {
        stream: &'a CodeStream,
        symbols: Symbols,
        bytes: Vec<u8>,
    }
    let streams = streams(layout, is_wide);
    let mut tasks: Vec<Task<'_>> =
        streams.iter().map(|stream| Task { stream, symbols: Symbols::default(), bytes: Vec::new() }).collect();
    // The sums do not depend on the order in which streams are counted.
    let counts = Mutex::new(vec![[0; ALPHABET]; n_groups * CONTEXTS]);
    let count = |_: usize, task: &mut Task<'_>| {
        let stream = task.stream;
        let job = CountStream { stream, layout, codes, coarse: &coarse, masked, weights: &weights };
        task.symbols = simd::run(job);
        let mut sums = counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, of_group) in std::mem::take(&mut task.symbols.counts).iter().enumerate() {
            for (sum, counts) in sums.iter_mut().skip(group * CONTEXTS).zip(of_group.as_chunks::<ALPHABET>().0) {
                sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            }
        }
        Ok(())
    };
    workers.for_each(&mut tasks, count).expect("counting does not fail");
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let model = Model::fit(&counts, CONTEXTS);
    model.write(coder, CONTEXTS);
    let table = EncodeTable::new(&model);
    let n_states = n_states(is_wide);
    let code = |_: usize, task: &mut Task<'_>| {
        let Task { stream, symbols, bytes } = task;
        simd::run(EncodeStream { stream, symbols, n_states, table: &table, out: bytes });
        Ok(())
    };
    workers.for_each(&mut tasks, code).expect("encoding does not fail");
    for task in &tasks {
        varint::write_to((task.bytes.len() - 4 * n_states) as u64 / 2, out);
        varint::write_to(task.symbols.raw.len() as u64, out);
    }
    for task in tasks {
        out.extend_from_slice(&task.bytes);
        out.extend_from_slice(&task.symbols.raw);
        scratch::give(task.symbols.symbols);
    }
    coarse.into_iter().for_each(scratch::give);
}

/// Whether codes of about `n_bits` bits are worth the additional states of wide streams.
pub(crate) fn pay_wide(layout: &BandLayout, n_bits: u64) -> bool {
    let n_states = 32 * streams(layout, true).len() * (WIDE - NARROW);
    n_bits >= WIDE_SHARE * n_states as u64
}

/// Number of states of a stream.
fn n_states(is_wide: bool) -> usize {
    if is_wide { WIDE } else { NARROW }
}

/// Contexts and tokens of a stream.
#[derive(Default)]
struct Symbols {
    /// The symbols of each step, lane after lane, each lane padded to the longest; and some slack.
    symbols: Vec<Symbol>,
    raw: Vec<u8>,
    counts: [GroupCounts; GROUPS],
}

/// Counts tokens by context.
struct CountStream<'a> {
    stream: &'a CodeStream,
    layout: &'a BandLayout,
    codes: &'a [i32],
    coarse: &'a [Vec<i32>],
    masked: Option<&'a [bool]>,
    weights: &'a [Weights; GROUPS],
}

impl Kernel for CountStream<'_> {
    type Output = Symbols;

    #[inline(always)]
    fn run(self) -> Symbols {
        let n_symbols: usize = self.stream.pieces.iter().map(n_symbols).sum();
        // Several tables are used in turn, since increments of the same counter depend on each other. Short streams use
        // one table, since clearing and adding several would take longer.
        let n_tables = if n_symbols < MANY_SYMBOLS { 1 } else { BLOCK / 4 };
        let tables: [usize; BLOCK] = std::array::from_fn(|i| i % n_tables * TABLE);
        let mut all = Symbols { symbols: scratch::take(n_symbols + BLOCK), ..Symbols::default() };
        let mut raw = RawWriter::new(&mut all.raw);
        let (mut sums, mut padded) = (Vec::new(), Vec::new());
        let mut symbols = &mut all.symbols[..];
        for piece in &self.stream.pieces {
            let band = &self.layout.bands[piece.band];
            let around = surroundings(self.layout, band, self.codes, self.coarse, self.masked);
            let codes = &self.codes[band.offset..][..volume(&band.dims)];
            let frame = Frame::band(&band.dims);
            let weights = &self.weights[band.group];
            let counts = &mut all.counts[band.group];
            counts.resize(n_tables * TABLE, 0);
            let lanes = piece.lanes();
            let [n_planes, n_rows] = piece.steps();
            for i in 0..n_planes {
                for j in 0..n_rows {
                    for lane in &lanes {
                        let run = lane.run([i, j], &band.dims);
                        if run.len > 0 {
                            let start = frame.start(&run);
                            sums.resize(run.len.next_multiple_of(BLOCK), BIAS);
                            around.sums(&run, &frame, codes, weights, &mut sums[..run.len]);
                            let row = Row::new(codes, start, run.len, &mut padded);
                            // Blocks may extend beyond the run; the next run overwrites the excess.
                            let largest = row.symbols(&sums, weights, band.group * CONTEXTS, symbols, counts, &tables);
                            if largest > MAX_DIRECT_TOKEN {
                                raw.put_all(&codes[start..start + run.len], &symbols[..run.len]);
                            }
                        }
                        symbols[run.len..piece.n_turns()].fill(IDLE);
                        symbols = &mut symbols[piece.n_turns()..];
                    }
                }
            }
        }
        raw.finish();
        for counts in &mut all.counts {
            if let Some((sums, others)) = counts.split_at_mut_checked(TABLE) {
                for other in others.chunks_exact(TABLE) {
                    sums.iter_mut().zip(other).for_each(|(sum, n)| *sum += n);
                }
                // Masked codes have probability 1.
                counts.truncate(MASKED_CONTEXT * ALPHABET);
            }
        }
        all
    }
}

/// Number of symbols of a piece, padding included.
fn n_symbols(piece: &Piece) -> usize {
    piece.n_lanes() * piece.n_turns() * piece.steps().iter().product::<usize>()
}

/// Codes are processed in blocks of this size.
const BLOCK: usize = 16;

/// The codes of a run, with two before it, and padded after it to a whole block.
struct Row<'a> {
    codes: &'a [i32],
    n: usize,
}

impl<'a> Row<'a> {
    /// The `n` codes from `start` on; copied to `padded` if there are not enough codes around them.
    #[inline(always)]
    fn new(codes: &'a [i32], start: usize, n: usize, padded: &'a mut Vec<i32>) -> Self {
        let n_behind = n.next_multiple_of(BLOCK);
        if let Some(codes) = start.checked_sub(2).and_then(|first| codes.get(first..start + n_behind)) {
            return Self { codes, n };
        }
        padded.clear();
        padded.resize(2 + n_behind, 0);
        padded[2..2 + n].copy_from_slice(&codes[start..start + n]);
        Self { codes: padded, n }
    }

    /// Writes and counts the symbols in blocks; returns the largest token, padding included.
    #[inline(always)]
    fn symbols(
        &self,
        sums: &[u32],
        weights: &Weights,
        first: usize,
        out: &mut [Symbol],
        counts: &mut [u32],
        tables: &[usize; BLOCK],
    ) -> u32 {
        let (w0, w1) = (u32::from(weights[0]), u32::from(weights[1]));
        let mut largest = [0; BLOCK];
        for at in (0..self.n).step_by(BLOCK) {
            let [before, last, codes] = [0, 1, 2].map(|by| block(self.codes, at + by));
            let sums = block(sums, at);
            let mut own = [0; BLOCK];
            for i in 0..BLOCK {
                own[i] = w0 * leading_magnitude(last[i]) + w1 * leading_magnitude(before[i]);
            }
            if at == 0 {
                // The codes before the run do not count.
                own[0] = 0;
                own[1] = w0 * leading_magnitude(codes[0]);
            }
            let out: &mut [Symbol; BLOCK] = out[at..].first_chunk_mut().expect("there is slack");
            let mut positions = [0_u16; BLOCK];
            for i in 0..BLOCK {
                let context = context_of(sums[i] + own[i]);
                let token = u32::from(tokens::token_of(codes[i]));
                largest[i] = token.max(largest[i]);
                out[i] = ((context + first as u32) | (token << 8)) as Symbol;
                positions[i] = (context * ALPHABET as u32 + token) as u16;
            }
            for (position, table) in positions.iter().zip(tables).take(self.n - at) {
                counts[table + usize::from(*position)] += 1;
            }
        }
        largest.into_iter().max().unwrap_or(0)
    }
}

#[inline(always)]
fn block<V>(row: &[V], at: usize) -> &[V; BLOCK] {
    row[at..].first_chunk().expect("rows are padded")
}

/// Tokens above this one have raw bits.
const MAX_DIRECT_TOKEN: u32 = 16;

/// Encodes the symbols of a stream.
struct EncodeStream<'a> {
    stream: &'a CodeStream,
    symbols: &'a Symbols,
    n_states: usize,
    table: &'a EncodeTable,
    out: &'a mut Vec<u8>,
}

impl Kernel for EncodeStream<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut rest = self.symbols.symbols.split_last_chunk::<BLOCK>().expect("there is slack").0;
        let mut words = WordWriter::new(rest.len());
        let mut states = [LEAST_STATE; WIDE];
        for piece in self.stream.pieces.iter().rev() {
            let n_steps: usize = piece.steps().iter().product();
            for _ in 0..n_steps {
                let symbols;
                (rest, symbols) = rest.split_at(rest.len() - piece.n_lanes() * piece.n_turns());
                if piece.n_lanes() == WIDE {
                    rans::encode::<WIDE>(&mut states, symbols, self.table, &mut words);
                } else {
                    rans::encode::<NARROW>(&mut states, symbols, self.table, &mut words);
                }
            }
        }
        for state in &states[..self.n_states] {
            self.out.extend_from_slice(&state.to_le_bytes());
        }
        words.finish(self.out);
    }
}

/// The most memory that [`decode`] takes for the codes of a chunk of these extents: codes of pieces that are not contiguous,
/// those of coarse grids, which have half of the codes or less, the words of all streams, and for each worker the tokens
/// of a step, which are those of a row for each lane.
pub(crate) fn decode_bytes(dims: &Dims, payload_bytes: u64, workers: &Workers) -> u64 {
    let n_values = volume(dims) as u64;
    let of_step = 4 * (WIDE as u64 * dims[X].min(STREAM_VALUES) as u64).min(2 * n_values);
    (4 + 3) * n_values + payload_bytes + of_step * workers.count() as u64
}

/// The inverse of [`encode`]: reads weights and distributions from `coder`, sizes and codes from `bytes`.
pub(crate) fn decode(
    layout: &BandLayout,
    bytes: &[u8],
    masked: Option<&[bool]>,
    is_wide: bool,
    coder: &mut impl BitCoder,
    codes: &mut [i32],
    workers: &Workers,
) -> Result<()> {
    let n_groups = n_groups(layout);
    let mut weights = [DEFAULT_WEIGHTS; GROUPS];
    code_weights(coder, &mut weights, n_groups);
    let model = Model::read(coder, n_groups * CONTEXTS, CONTEXTS)?;
    let table = DecodeTable::new(&model);
    let group = |(i, weights): (usize, &Weights)| Group {
        weights: *weights,
        contexts: Contexts::new(&table, &model, i, [weights[0], weights[1]].map(u32::from)),
    };
    let groups: Vec<Group<'_>> = weights.iter().take(n_groups).enumerate().map(group).collect();

    let streams = streams(layout, is_wide);
    let n_states = n_states(is_wide);
    let mut bytes = Bytes::new(bytes);
    let mut sizes = Vec::with_capacity(streams.len());
    for _ in &streams {
        let (n_words, n_raw) = (varint::read_from(&mut bytes)?, varint::read_from(&mut bytes)?);
        sizes.push((n_words, n_raw));
    }
    let mut readers = Vec::with_capacity(streams.len());
    for (n_words, n_raw) in sizes {
        readers.push(Some(StreamReader::new(&mut bytes, n_states, n_words, n_raw)?));
    }
    if bytes.len() > 0 {
        return Err(Error::corrupt("codes have bytes after their end"));
    }

    let mut coarse = CoarseCodes::new(layout);
    let mut first = 0;
    while first < streams.len() {
        let wave = streams[first].wave;
        let end = first + streams[first..].iter().take_while(|stream| stream.wave == wave).count();
        if let [stream] = &streams[first..end]
            && stream.pieces.len() > 1
        {
            // Small bands that share a stream depend on earlier ones, so they are decoded in order.
            let mut reader = readers[first].take().expect("each stream is read once");
            for piece in &stream.pieces {
                let band = &layout.bands[piece.band];
                coarse.advance(band.level, codes)?;
                let (before, current) = codes.split_at_mut(band.offset);
                let around = Surroundings::new(layout, band, before, &coarse.codes, masked);
                let (group, out) = (&groups[band.group], &mut current[..volume(&band.dims)]);
                simd::run(DecodePiece { piece, band, around: &around, group, reader: &mut reader, out })?;
            }
            reader.finish()?;
        } else {
            struct Task<'a, 'b> {
                piece: &'a Piece,
                reader: Option<StreamReader<'a>>,
                /// The piece's codes in the result, if they are contiguous there; otherwise `local` holds them.
                direct: Option<&'b mut [i32]>,
                local: Vec<i32>,
            }
            let first_band = &layout.bands[streams[first].pieces[0].band];
            coarse.advance(first_band.level, codes)?;
            let (known, mut current) = codes.split_at_mut(first_band.offset);
            let mut at = first_band.offset;
            let mut tasks = Vec::with_capacity(end - first);
            for (stream, reader) in streams[first..end].iter().zip(&mut readers[first..end]) {
                let piece = &stream.pieces[0];
                let band = &layout.bands[piece.band];
                let (direct, local);
                if let Some(start) = piece.start_if_contiguous(&band.dims) {
                    // Pieces that are not contiguous may lie between.
                    let (_, rest) = current.split_at_mut(band.offset + start - at);
                    let (out, rest) = rest.split_at_mut(piece.n_codes());
                    at = band.offset + start + out.len();
                    current = rest;
                    (direct, local) = (Some(out), Vec::new());
                } else {
                    (direct, local) = (None, scratch::try_take(piece.n_codes())?);
                }
                tasks.push(Task { piece, reader: reader.take(), direct, local });
            }
            let run = |_: usize, task: &mut Task<'_, '_>| {
                let piece = task.piece;
                let band = &layout.bands[piece.band];
                let around = Surroundings::new(layout, band, known, &coarse.codes, masked);
                let mut reader = task.reader.take().expect("each stream is read once");
                let (group, out) = (&groups[band.group], task.direct.as_deref_mut().unwrap_or(&mut task.local));
                simd::run(DecodePiece { piece, band, around: &around, group, reader: &mut reader, out })?;
                reader.finish()
            };
            workers.for_each(&mut tasks, run)?;
            let stored: Vec<(&Piece, Vec<i32>)> =
                tasks.into_iter().filter(|task| task.direct.is_none()).map(|task| (task.piece, task.local)).collect();
            for (piece, local) in stored {
                let band = &layout.bands[piece.band];
                piece.store(&local, &band.dims, &mut codes[band.offset..][..volume(&band.dims)]);
                scratch::give(local);
            }
        }
        first = end;
    }
    Ok(())
}

/// Parameters of all codes of a group.
struct Group<'a> {
    weights: Weights,
    contexts: Contexts<'a>,
}

/// The state of decoding a stream.
struct StreamReader<'a> {
    states: [u32; WIDE],
    words: WordReader,
    raw: RawReader<'a>,
}

impl<'a> StreamReader<'a> {
    fn new(bytes: &mut Bytes<'a>, n_states: usize, n_words: u64, n_raw: u64) -> Result<Self> {
        let too_long = || Error::corrupt("stream is longer than its chunk");
        let mut states = [LEAST_STATE; WIDE];
        for state in &mut states[..n_states] {
            *state = u32::from_le_bytes(bytes.array()?);
        }
        let n_words = usize::try_from(n_words).ok().and_then(|n| n.checked_mul(2)).ok_or_else(too_long)?;
        let words = WordReader::new(bytes.take(n_words)?)?;
        let raw = RawReader::new(bytes.take(usize::try_from(n_raw).map_err(|_| too_long())?)?);
        Ok(Self { states, words, raw })
    }

    /// Checks that all bytes were read and that the states are the encoder's initial ones.
    fn finish(self) -> Result<()> {
        if self.states != [LEAST_STATE; WIDE] {
            return Err(Error::corrupt("stream of codes ends with wrong states"));
        }
        self.words.finish()?;
        self.raw.finish()
    }
}

/// Decodes the codes of one piece into `out`, dense.
struct DecodePiece<'a, 'b> {
    piece: &'a Piece,
    band: &'a Band,
    around: &'a Surroundings<'a>,
    group: &'a Group<'a>,
    reader: &'a mut StreamReader<'b>,
    out: &'a mut [i32],
}

impl Kernel for DecodePiece<'_, '_> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        let DecodePiece { piece, band, around, group, reader, out } = self;
        let frame = Frame::piece(piece, &band.dims);
        let lanes = piece.lanes();
        let n = piece.n_turns();
        if n == 0 {
            // There may be more pieces than columns.
            return Ok(());
        }
        let mut runs = vec![Run::default(); lanes.len()];
        // Sums, which tokens replace.
        let mut all = filled(0, n * lanes.len())?;
        let [n_planes, n_rows] = piece.steps();
        for i in 0..n_planes {
            for j in 0..n_rows {
                for ((run, lane), sums) in runs.iter_mut().zip(&lanes).zip(all.chunks_exact_mut(n)) {
                    *run = lane.run([i, j], &band.dims);
                    around.sums(run, &frame, out, &group.weights, &mut sums[..run.len]);
                    sums[run.len..].fill(MASKED);
                }
                if runs.len() == WIDE {
                    rans::decode::<WIDE>(&mut reader.states, &mut all, &group.contexts, &mut reader.words);
                } else {
                    rans::decode::<NARROW>(&mut reader.states, &mut all, &group.contexts, &mut reader.words);
                }
                for (run, tokens) in runs.iter().zip(all.chunks_exact(n)).filter(|(run, _)| run.len > 0) {
                    let row = &mut out[frame.start(run)..][..run.len];
                    if codes_of(&tokens[..run.len], row) > MAX_DIRECT_TOKEN {
                        reader.raw.get_all(&tokens[..run.len], row);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Converts direct tokens to codes; returns the largest token.
#[inline(always)]
fn codes_of(tokens: &[u32], codes: &mut [i32]) -> u32 {
    if tokens.len() >= BLOCK { codes_of_blocks::<BLOCK>(tokens, codes) } else { codes_of_blocks::<1>(tokens, codes) }
}

#[inline(always)]
fn codes_of_blocks<const N: usize>(tokens: &[u32], codes: &mut [i32]) -> u32 {
    let n = tokens.len();
    let mut largest = [0; N];
    let mut at = 0;
    loop {
        let tokens: &[u32; N] = tokens[at..].first_chunk().expect("there is a block");
        let codes: &mut [i32; N] = codes[at..].first_chunk_mut().expect("as many codes as tokens");
        for i in 0..N {
            codes[i] = (tokens[i] >> 1) as i32 ^ -((tokens[i] & 1) as i32);
            largest[i] = tokens[i].max(largest[i]);
        }
        if at + N == n {
            return largest.into_iter().max().unwrap_or(0);
        }
        // The last block may overlap the previous one; both compute the same.
        at = (at + N).min(n - N);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
    use crate::entropy::tokens::tests::Random;

    /// Parameters and body of codes.
    type Encoded = [Vec<u8>; 2];

    fn encoded(
        layout: &BandLayout,
        codes: &[i32],
        masked: Option<&[bool]>,
        is_wide: bool,
        workers: &Workers,
    ) -> Encoded {
        let (mut parameters, mut body) = (Vec::new(), Vec::new());
        let mut coder = BinaryEncoder::new(&mut parameters);
        encode(layout, codes, masked, is_wide, &mut coder, &mut body, workers);
        coder.finish();
        [parameters, body]
    }

    fn decoded(
        layout: &BandLayout,
        [parameters, body]: &Encoded,
        masked: Option<&[bool]>,
        is_wide: bool,
        workers: &Workers,
    ) -> Result<Vec<i32>> {
        let mut coder = BinaryDecoder::new(parameters);
        // The initial content must not matter.
        let mut codes = vec![-77; layout.n_values];
        decode(layout, body, masked, is_wide, &mut coder, &mut codes, workers)?;
        coder.finish()?;
        Ok(codes)
    }

    /// Codes whose size changes slowly, some of them very large; masked ones are 0.
    fn some_codes(n: usize, masked: Option<&[bool]>, random: &mut Random) -> Vec<i32> {
        let code = |i: usize| match random.next() % 500 {
            _ if masked.is_some_and(|m| m[i]) => 0,
            0 => (random.next() as i32 >> (random.next() % 32)).max(-i32::MAX),
            _ => random.code(0.1 * f64::from(1 << (i >> 9 & 7))),
        };
        (0..n).map(code).collect()
    }

    #[test]
    fn codes_come_back() {
        let workers = Workers::new(3).unwrap();
        let mut random = Random(1);
        let small = [[1, 1, 1, 1], [1, 1, 1, 3], [1, 1, 1, 9000], [1, 1, 70, 80], [1, 9, 30, 40], [3, 4, 20, 25]];
        let thin = [[1, 1, 3000, 2], [1, 1500, 2, 3], [40, 40, 1, 3], [1, 17, 16, 16], [1, 1, 15, 300]];
        // Bands that are cut along planes, rows and columns, or have a stream each.
        let large = [[2, 3, 300, 300], [1, 3, 421, 420], [1, 1, 3, 200_001], [1, 1, 530, 521], [1, 40, 130, 120]];
        for dims in small.into_iter().chain(thin).chain(large) {
            for layout in
                [BandLayout::lattice(dims), BandLayout::interpolation(dims, 0b1110), BandLayout::interpolation(dims, 8)]
            {
                for (is_wide, has_masks) in [(false, false), (true, false), (false, true), (true, true)] {
                    let n = layout.n_values;
                    let mut is_masked = |i: usize| random.next() as usize % 8 < (i >> 10 & 7);
                    let masked: Option<Vec<bool>> = has_masks.then(|| (0..n).map(&mut is_masked).collect());
                    let masked = masked.as_deref();
                    let codes = some_codes(n, masked, &mut random);
                    let bytes = encoded(&layout, &codes, masked, is_wide, &Workers::Serial);
                    assert!(bytes == encoded(&layout, &codes, masked, is_wide, &workers));
                    for workers in [&Workers::Serial, &workers] {
                        let all = decoded(&layout, &bytes, masked, is_wide, workers).unwrap();
                        assert!(all == codes, "{dims:?}, wide: {is_wide}, masks: {has_masks}");
                    }
                }
            }
        }
    }

    #[test]
    fn wide_streams_have_more_states_and_cost_little() {
        let layout = BandLayout::lattice([1, 1, 200, 200]);
        let codes = some_codes(layout.n_values, None, &mut Random(2));
        let [narrow, wide] =
            [false, true].map(|is_wide| encoded(&layout, &codes, None, is_wide, &Workers::Serial)[1].len());
        assert!(wide > narrow && wide < narrow + narrow / 100 + 4 * (WIDE - NARROW), "{narrow} {wide}");
        // Narrow pieces of wide streams use four of the sixteen states.
        let layout = BandLayout::lattice([1, 1, 1, 4095]);
        let zeros = vec![0; layout.n_values];
        let body = |is_wide: bool| encoded(&layout, &zeros, None, is_wide, &Workers::Serial)[1].clone();
        let states = |n: usize| LEAST_STATE.to_le_bytes().repeat(n);
        assert_eq!(body(false), [&[0, 0], &states(NARROW)[..]].concat());
        assert_eq!(body(true), [&[0, 0], &states(WIDE)[..]].concat());

        let n_streams = streams(&layout, true).len() as u64;
        let least = WIDE_SHARE * 32 * n_streams * (WIDE - NARROW) as u64;
        assert!(pay_wide(&layout, least) && !pay_wide(&layout, least - 1));
    }

    #[test]
    fn wrong_lengths_and_states_are_refused() {
        let layout = BandLayout::interpolation([1, 1, 70, 80], 0b1100);
        let codes = some_codes(layout.n_values, None, &mut Random(3));
        for is_wide in [false, true] {
            let [parameters, body] = encoded(&layout, &codes, None, is_wide, &Workers::Serial);
            let decoded =
                |body: &[u8]| decoded(&layout, &[parameters.clone(), body.to_vec()], None, is_wide, &Workers::Serial);
            assert!(decoded(&body).unwrap() == codes);
            for n in (0..body.len()).step_by(7).chain([body.len() - 1]) {
                decoded(&body[..n]).unwrap_err();
            }
            decoded(&[&body[..], &[0]].concat()).unwrap_err();
            // States follow two varints of two bytes. A wrong state gives an error or other codes.
            assert!(body[0] >= 128 && body[1] < 128 && body[2] >= 128 && body[3] < 128);
            for i in 0..n_states(is_wide) {
                let mut changed = body.clone();
                changed[4 + 4 * i] ^= 1;
                assert!(decoded(&changed).map_or(true, |all| all != codes));
            }
        }
    }

    #[test]
    fn damage_never_panics() {
        let layout = BandLayout::interpolation([1, 3, 40, 60], 0b1110);
        let mut random = Random(4);
        let codes = some_codes(layout.n_values, None, &mut random);
        for is_wide in [false, true] {
            let intact = encoded(&layout, &codes, None, is_wide, &Workers::Serial);
            for _ in 0..500 {
                let mut damaged = intact.clone();
                for _ in 0..1 + random.next() % 3 {
                    let bytes = &mut damaged[random.next() as usize % 2];
                    let at = random.next() as usize % bytes.len();
                    bytes[at] = random.next() as u8;
                }
                // As narrow and as wide streams.
                for is_wide in [false, true] {
                    let _ = decoded(&layout, &damaged, None, is_wide, &Workers::Serial);
                }
            }
        }
    }
}
