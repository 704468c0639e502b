//! Codes -> bytes, and back: interleaved rANS under the contexts of `context.rs` (docs/format.md, 7.7).

#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use super::bands::{Band, GROUPS, Layout, volume};
use super::binary::BitCoder;
use super::context::{
    CONTEXTS, CoarseCodes, DEFAULT_WEIGHTS, Frame, LANES, MASKED_CONTEXT, MAX_LEADING, Padded, Piece, Stream,
    Surroundings, WeightSample, Weights, code_weights, streams,
};
use super::rans::{
    self, ALPHABET, Counts, DecodeTable, EncodeTable, LEAST_STATE, Model, RawReader, RawWriter, WordReader, WordWriter,
};
use super::scratch;
use super::simd::{self, Job};
use crate::container::{Bytes, varint};
use crate::error::{Error, Result};
use crate::parallel::Workers;

/// Codes sampled for the weights of a group, at most; and one of so many at least.
const MAX_SAMPLE: usize = 1024;
const SAMPLE_SHARE: usize = 64;

/// Tokens counted in each context of a group.
type GroupCounts = Vec<Counts>;

fn n_groups(layout: &Layout) -> usize {
    layout.bands.iter().map(|band| band.group + 1).max().unwrap_or(1)
}

/// The merged codes of all levels coarser than each.
fn coarse_codes(layout: &Layout, codes: &[i32]) -> Vec<Vec<i32>> {
    let mut coarse = CoarseCodes::new(layout);
    let mut all = vec![Vec::new(); layout.levels.len()];
    for level in (0..layout.levels.len()).rev() {
        coarse.advance(level, codes);
        all[level].clone_from(&coarse.codes);
    }
    all
}

fn surroundings<'a>(
    layout: &Layout,
    band: &Band,
    codes: &'a [i32],
    coarse: &'a [Vec<i32>],
    masked: Option<&'a [bool]>,
) -> Surroundings<'a> {
    let coarse = coarse.get(band.level).map_or(&[][..], Vec::as_slice);
    Surroundings::new(layout, band, &codes[..band.offset], coarse, masked)
}

fn fit_weights(layout: &Layout, codes: &[i32], coarse: &[Vec<i32>], masked: Option<&[bool]>) -> [Weights; GROUPS] {
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

/// The estimated length of the codes in bits, without tables.
pub(crate) fn estimate(layout: &Layout, codes: &[i32], masked: Option<&[bool]>) -> u64 {
    let coarse = coarse_codes(layout, codes);
    let weights = [DEFAULT_WEIGHTS; GROUPS];
    let mut bits = 0;
    for stream in streams(layout) {
        let count = CountStream { stream: &stream, layout, codes, coarse: &coarse, masked, weights: &weights };
        let symbols = simd::run(count);
        bits += symbols.counts.iter().map(|counts| rans::cost_bits(counts)).sum::<u64>();
        scratch::give(symbols.symbols);
    }
    bits
}

/// Appends the codes to `out`, after writing what describes them to `coder`.
pub(crate) fn encode(
    layout: &Layout,
    codes: &[i32],
    masked: Option<&[bool]>,
    coder: &mut impl BitCoder,
    out: &mut Vec<u8>,
    workers: &Workers,
) {
    let coarse = coarse_codes(layout, codes);
    let n_groups = n_groups(layout);
    let mut weights = fit_weights(layout, codes, &coarse, masked);
    code_weights(coder, &mut weights, n_groups);

    struct Task<'a> {
        stream: &'a Stream,
        symbols: Symbols,
        bytes: Vec<u8>,
    }
    let streams = streams(layout);
    let mut tasks: Vec<Task<'_>> =
        streams.iter().map(|stream| Task { stream, symbols: Symbols::default(), bytes: Vec::new() }).collect();
    // Sums do not depend on the order of streams.
    let counts = Mutex::new(vec![[0; ALPHABET]; n_groups * CONTEXTS]);
    let count = |_: usize, task: &mut Task<'_>| {
        let stream = task.stream;
        let job = CountStream { stream, layout, codes, coarse: &coarse, masked, weights: &weights };
        task.symbols = simd::run(job);
        let mut sums = counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (group, of_group) in std::mem::take(&mut task.symbols.counts).iter().enumerate() {
            for (sum, counts) in sums.iter_mut().skip(group * CONTEXTS).zip(of_group) {
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
    let number = |context: usize| distribution_of(&model, context);
    let numbers: Vec<u8> = (0..n_groups * CONTEXTS).map(number).collect();
    let code = |_: usize, task: &mut Task<'_>| {
        simd::run(EncodeStream { symbols: &task.symbols, numbers: &numbers, table: &table, out: &mut task.bytes });
        Ok(())
    };
    workers.for_each(&mut tasks, code).expect("encoding does not fail");
    for task in &tasks {
        varint::write_to((task.bytes.len() - 4 * LANES) as u64 / 2, out);
        varint::write_to(task.symbols.raw.len() as u64, out);
    }
    for task in tasks {
        out.extend_from_slice(&task.bytes);
        out.extend_from_slice(&task.symbols.raw);
        scratch::give(task.symbols.symbols);
    }
}

/// The distribution of a context; that behind the last one is certain of token 0.
fn distribution_of(model: &Model, context: usize) -> u8 {
    if context % CONTEXTS >= MASKED_CONTEXT { model.distributions().len() as u8 } else { model.map()[context] }
}

/// Contexts and tokens of a stream in the order of decoding.
#[derive(Default)]
struct Symbols {
    /// Context, counted through all groups, in the low byte, token in the high one.
    symbols: Vec<u16>,
    raw: Vec<u8>,
    counts: [GroupCounts; GROUPS],
}

/// Counts tokens by context.
struct CountStream<'a> {
    stream: &'a Stream,
    layout: &'a Layout,
    codes: &'a [i32],
    coarse: &'a [Vec<i32>],
    masked: Option<&'a [bool]>,
    weights: &'a [Weights; GROUPS],
}

impl Job for CountStream<'_> {
    type Output = Symbols;

    #[inline(always)]
    fn run(self) -> Symbols {
        let n_codes = self.stream.pieces.iter().map(Piece::n_codes).sum();
        let mut all = Symbols { symbols: scratch::take(n_codes), ..Symbols::default() };
        let mut raw = RawWriter::new(&mut all.raw);
        let mut at = 0;
        let (mut sums, mut padded) = (Vec::new(), Padded::default());
        let mut symbols: [Vec<u16>; LANES] = Default::default();
        for piece in &self.stream.pieces {
            let band = &self.layout.bands[piece.band];
            let around = surroundings(self.layout, band, self.codes, self.coarse, self.masked);
            let codes = &self.codes[band.offset..][..volume(&band.dims)];
            let frame = Frame::band(&band.dims);
            let weights = &self.weights[band.group];
            // Two tables, taken in turn: equal symbols follow each other, and a count waits for the one before.
            let counts = &mut all.counts[band.group];
            counts.resize(2 * CONTEXTS, [0; ALPHABET]);
            let (even_counts, odd_counts) = counts.split_at_mut(CONTEXTS);
            let first_context = (band.group * CONTEXTS) as u16;
            for runs in &piece.steps(&band.dims) {
                for (run, symbols) in runs.iter().zip(&mut symbols) {
                    around.contexts(run, &frame, codes, weights, &mut padded, &mut sums);
                    let row = &codes[frame.start(run)..][..run.len];
                    symbols.clear();
                    symbols.resize(run.len, 0);
                    let mut largest = 0;
                    for ((symbol, context), code) in symbols.iter_mut().zip(&sums).zip(row) {
                        let token = u16::from(rans::token_of(*code));
                        largest = largest.max(token);
                        *symbol = (*context as u16 + first_context) | token << 8;
                    }
                    if largest > MAX_DIRECT_TOKEN {
                        for (symbol, code) in symbols.iter().zip(row) {
                            let token = (symbol >> 8) as u8;
                            if u16::from(token) > MAX_DIRECT_TOKEN {
                                raw.put(rans::raw_of(*code, token), rans::n_raw(token));
                            }
                        }
                    }
                    let (pairs, last) = symbols.as_chunks::<2>();
                    let context = |symbol: u16| usize::from((symbol & 0xff) - first_context);
                    for [a, b] in pairs {
                        even_counts[context(*a)][usize::from(a >> 8)] += 1;
                        odd_counts[context(*b)][usize::from(b >> 8)] += 1;
                    }
                    for a in last {
                        even_counts[context(*a)][usize::from(a >> 8)] += 1;
                    }
                }
                at += interleave(&symbols, &mut all.symbols[at..]);
            }
        }
        raw.finish();
        for counts in &mut all.counts {
            let half = counts.len() / 2;
            let (even_counts, odd_counts) = counts.split_at_mut(half);
            for (sum, odd) in even_counts.iter_mut().zip(odd_counts) {
                sum.iter_mut().zip(odd).for_each(|(sum, n)| *sum += *n);
            }
            // Masked codes are certain.
            counts.truncate(MASKED_CONTEXT.min(half));
        }
        all
    }
}

/// Tokens above this one have raw bits.
const MAX_DIRECT_TOKEN: u16 = 16;

/// Takes one symbol from each lane in turn, skipping lanes that have none left.
#[inline(always)]
fn interleave(lanes: &[Vec<u16>; LANES], out: &mut [u16]) -> usize {
    let shortest = lanes.iter().map(Vec::len).min().unwrap_or(0);
    let (turns, _) = out[..LANES * shortest].as_chunks_mut::<LANES>();
    let [a, b, c, d] = lanes;
    for ((((turn, a), b), c), d) in turns.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *turn = [*a, *b, *c, *d];
    }
    let mut n = LANES * shortest;
    for i in shortest..lanes.iter().map(Vec::len).max().unwrap_or(0) {
        for lane in lanes.iter().filter(|lane| i < lane.len()) {
            out[n] = lane[i];
            n += 1;
        }
    }
    n
}

/// Encodes the symbols of a stream.
struct EncodeStream<'a> {
    symbols: &'a Symbols,
    /// Distribution of each context.
    numbers: &'a [u8],
    table: &'a EncodeTable,
    out: &'a mut Vec<u8>,
}

impl Job for EncodeStream<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let symbols = &self.symbols.symbols;
        let mut words = WordWriter::new(symbols.len());
        let mut states = [LEAST_STATE; LANES];
        let step = |state: &mut u32, symbol: u16, words: &mut WordWriter| {
            let number = self.numbers[usize::from(symbol & 0xff)];
            let entry = &self.table.distribution(number)[usize::from(symbol >> 8)];
            rans::encode_step(state, entry, words);
        };
        // States simply take turns over the whole stream.
        let (turns, rest) = symbols.as_chunks::<LANES>();
        for (lane, symbol) in rest.iter().enumerate().rev() {
            step(&mut states[lane], *symbol, &mut words);
        }
        for turn in turns.iter().rev() {
            for lane in (0..LANES).rev() {
                step(&mut states[lane], turn[lane], &mut words);
            }
        }
        for state in states {
            self.out.extend_from_slice(&state.to_le_bytes());
        }
        words.finish(self.out);
    }
}

/// Decodes codes that [`encode`] wrote: `bytes` are all that it appended, `coder` gives back what it wrote there.
pub(crate) fn decode(
    layout: &Layout,
    bytes: &[u8],
    masked: Option<&[bool]>,
    coder: &mut impl BitCoder,
    codes: &mut [i32],
    workers: &Workers,
) -> Result<()> {
    let n_groups = n_groups(layout);
    let mut weights = [DEFAULT_WEIGHTS; GROUPS];
    code_weights(coder, &mut weights, n_groups);
    let model = Model::read(coder, n_groups * CONTEXTS, CONTEXTS)?;
    let table = DecodeTable::new(&model);
    let base = |context: usize| DecodeTable::base(distribution_of(&model, context)) as u32;
    let group = |(i, weights): (usize, &Weights)| Group {
        weights: *weights,
        token_weights: token_weights(weights),
        bases: std::array::from_fn(|place| {
            // 29 leading zeros, and leading bits of 2, are the first context.
            let context = (60 + place % 2).saturating_sub(place - place % 2);
            base(i * CONTEXTS + context.min(CONTEXTS - 1))
        }),
    };
    let groups = weights.iter().take(n_groups).enumerate().map(group).collect();
    let shared = Shared { groups, entries: table.entries() };

    let streams = streams(layout);
    let mut bytes = Bytes::new(bytes);
    let mut sizes = Vec::with_capacity(streams.len());
    for _ in &streams {
        let (n_words, n_raw) = (varint::read_from(&mut bytes)?, varint::read_from(&mut bytes)?);
        sizes.push((n_words, n_raw));
    }
    let mut readers = Vec::with_capacity(streams.len());
    for (n_words, n_raw) in sizes {
        readers.push(Some(StreamReader::new(&mut bytes, n_words, n_raw)?));
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
            // Each of several small bands needs those before it.
            let mut reader = readers[first].take().expect("each stream is read once");
            let mut local = Vec::new();
            for piece in &stream.pieces {
                let band = &layout.bands[piece.band];
                coarse.advance(band.level, codes);
                let (before, current) = codes.split_at_mut(band.offset);
                let around = Surroundings::new(layout, band, before, &coarse.codes, masked);
                simd::run(DecodePiece {
                    piece,
                    band,
                    around: &around,
                    shared: &shared,
                    reader: &mut reader,
                    local: &mut local,
                });
                piece.store(&local, &band.dims, &mut current[..volume(&band.dims)]);
            }
            reader.finish()?;
        } else {
            struct Task<'a> {
                piece: &'a Piece,
                reader: Option<StreamReader<'a>>,
                local: Vec<i32>,
            }
            let mut tasks: Vec<Task<'_>> = streams[first..end]
                .iter()
                .zip(&mut readers[first..end])
                .map(|(stream, reader)| {
                    let piece = &stream.pieces[0];
                    Task { piece, reader: reader.take(), local: scratch::take(piece.n_codes()) }
                })
                .collect();
            coarse.advance(layout.bands[tasks[0].piece.band].level, codes);
            let known = &*codes;
            let run = |_: usize, task: &mut Task<'_>| {
                let band = &layout.bands[task.piece.band];
                let around = Surroundings::new(layout, band, &known[..band.offset], &coarse.codes, masked);
                let mut reader = task.reader.take().expect("each stream is read once");
                let (piece, local) = (task.piece, &mut task.local);
                simd::run(DecodePiece { piece, band, around: &around, shared: &shared, reader: &mut reader, local });
                reader.finish()
            };
            workers.for_each(&mut tasks, run)?;
            for task in tasks {
                let band = &layout.bands[task.piece.band];
                task.piece.store(&task.local, &band.dims, &mut codes[band.offset..][..volume(&band.dims)]);
                scratch::give(task.local);
            }
        }
        first = end;
    }
    Ok(())
}

/// What all streams of a chunk share.
struct Shared<'a> {
    groups: Vec<Group>,
    entries: &'a [u32],
}

/// What all codes of a group share.
struct Group {
    weights: Weights,
    token_weights: TokenWeights,
    /// Place of the table of each context, by twice the leading zeros of the sum and its two leading bits.
    bases: [u32; BASES],
}

/// The state of decoding a stream.
struct StreamReader<'a> {
    /// The next symbol is that of the first state.
    states: [u32; LANES],
    words: WordReader<'a>,
    raw: RawReader<'a>,
}

impl<'a> StreamReader<'a> {
    fn new(bytes: &mut Bytes<'a>, n_words: u64, n_raw: u64) -> Result<Self> {
        let too_long = || Error::corrupt("stream is longer than its chunk");
        let mut states = [0; LANES];
        for state in &mut states {
            *state = u32::from_le_bytes(bytes.array()?);
        }
        let n_words = usize::try_from(n_words).ok().and_then(|n| n.checked_mul(2)).ok_or_else(too_long)?;
        let words = WordReader::new(bytes.take(n_words)?);
        let raw = RawReader::new(bytes.take(usize::try_from(n_raw).map_err(|_| too_long())?)?);
        Ok(Self { states, words, raw })
    }

    /// Checks that everything was used and that the states are back where the encoder began.
    fn finish(self) -> Result<()> {
        if self.states != [LEAST_STATE; LANES] {
            return Err(Error::corrupt("codes do not end where they should"));
        }
        self.words.finish()?;
        self.raw.finish()
    }
}

/// Decodes the codes of one piece into `local`.
struct DecodePiece<'a, 'b> {
    piece: &'a Piece,
    band: &'a Band,
    around: &'a Surroundings<'a>,
    shared: &'a Shared<'a>,
    reader: &'a mut StreamReader<'b>,
    local: &'a mut Vec<i32>,
}

impl Job for DecodePiece<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DecodePiece { piece, band, around, shared, reader, local } = self;
        local.resize(piece.n_codes(), 0);
        let frame = Frame::piece(piece, &band.dims);
        let weights = &shared.groups[band.group].weights;
        let group = &shared.groups[band.group];
        let tables = Tables { bases: &group.bases, entries: shared.entries, weights: &group.token_weights };
        let mut sums: [Vec<u32>; LANES] = Default::default();
        let mut tokens: [Vec<u8>; LANES] = Default::default();
        let (mut turns, mut decoded, mut padded) = (Vec::new(), Vec::new(), Padded::default());
        for runs in &piece.steps(&band.dims) {
            for (run, sums) in runs.iter().zip(&mut sums) {
                around.sums(run, &frame, local, weights, &mut padded, sums);
            }
            let shortest = sums.iter().map(Vec::len).min().unwrap_or(0);
            for (tokens, run) in tokens.iter_mut().zip(runs) {
                tokens.resize(run.len, 0);
            }
            turns.resize(shortest, [0; LANES]);
            decoded.resize(shortest, [0; LANES]);
            let [a, b, c, d] = &sums;
            for ((((turn, a), b), c), d) in turns.iter_mut().zip(a).zip(b).zip(c).zip(d) {
                *turn = [*a, *b, *c, *d];
            }
            let mut lanes = Lanes::default();
            lanes.decode_turns(&turns, &mut decoded, &tables, reader);
            let [a, b, c, d] = &mut tokens;
            for ((((turn, a), b), c), d) in decoded.iter().zip(a).zip(b).zip(c).zip(d) {
                [*a, *b, *c, *d] = *turn;
            }
            for x in shortest..runs.iter().map(|run| run.len).max().unwrap_or(0) {
                for (lane, _) in runs.iter().enumerate().filter(|(_, run)| x < run.len) {
                    let mut state = reader.states[0];
                    tokens[lane][x] = lanes.decode(lane, &mut state, sums[lane][x], &tables);
                    reader.words.refill(&mut state);
                    reader.states[0] = state;
                    reader.states.rotate_left(1);
                }
            }
            for (tokens, run) in tokens.iter().zip(runs).filter(|(_, run)| run.len > 0) {
                let row = &mut local[frame.start(run)..][..run.len];
                let mut largest = 0;
                for (code, token) in row.iter_mut().zip(tokens) {
                    let direct = i32::from(*token);
                    *code = direct >> 1 ^ -(direct & 1);
                    largest = largest.max(*token);
                }
                if u16::from(largest) > MAX_DIRECT_TOKEN {
                    for (code, token) in row.iter_mut().zip(tokens) {
                        if u16::from(*token) > MAX_DIRECT_TOKEN {
                            *code = rans::code_of(*token, reader.raw.get(rans::n_raw(*token)));
                        }
                    }
                }
            }
        }
    }
}

/// What each token adds to the sums of the next code and of the one after that, by group.
type TokenWeights = [[u32; 2]; 256];

fn token_weights(weights: &Weights) -> TokenWeights {
    std::array::from_fn(|token| [0, 1].map(|i| u32::from(weights[i]) * LEADING_MAGNITUDES[token]))
}

/// What the codes before add to the sum of each lane's next code, and to that of the one after it.
#[derive(Default)]
struct Lanes {
    next: [u32; LANES],
    after: [u32; LANES],
}

impl Lanes {
    /// Decodes one token of each lane in turn.
    #[inline(always)]
    fn decode_turns(
        &mut self,
        sums: &[[u32; LANES]],
        tokens: &mut [[u8; LANES]],
        tables: &Tables<'_>,
        reader: &mut StreamReader<'_>,
    ) {
        let mut lanes = Lanes { next: self.next, after: self.after };
        let mut states = reader.states;
        let mut words = reader.words.clone();
        for (sums, tokens) in sums.iter().zip(tokens) {
            // Words for all lanes at once; near the end, one by one.
            let Some(mut ahead) = words.next_four() else {
                for lane in 0..LANES {
                    tokens[lane] = lanes.decode(lane, &mut states[lane], sums[lane], tables);
                    words.refill(&mut states[lane]);
                }
                continue;
            };
            let mut n_read = 0;
            for lane in 0..LANES {
                tokens[lane] = lanes.decode(lane, &mut states[lane], sums[lane], tables);
                let state = simd::scalar(states[lane]);
                let is_low = state < LEAST_STATE;
                states[lane] = if is_low { state << 16 | (ahead & 0xffff) as u32 } else { state };
                ahead >>= if is_low { 16 } else { 0 };
                n_read += usize::from(is_low);
            }
            words.skip(n_read);
        }
        *self = lanes;
        reader.states = states;
        reader.words = words;
    }

    #[inline(always)]
    fn decode(&mut self, lane: usize, state: &mut u32, sum: u32, tables: &Tables<'_>) -> u8 {
        // As `context_of`, but for what the order of `bases` takes care of.
        let sum = sum + self.next[lane];
        let zeros = sum.leading_zeros();
        let place = (2 * zeros + (sum << (zeros & 31) >> 30)) as usize % BASES;
        // SAFETY: bases are made by `DecodeTable::base` of the numbers of distributions that the table has.
        let token = unsafe { rans::decode_step(state, tables.entries, tables.bases[place] as usize) };
        let [first, second] = tables.weights[usize::from(token)];
        self.next[lane] = self.after[lane] + first;
        self.after[lane] = second;
        token
    }
}

/// Places of [`Group::bases`]: a power of two.
const BASES: usize = 128;

/// What decodes the codes of one group.
struct Tables<'a> {
    bases: &'a [u32; BASES],
    entries: &'a [u32],
    weights: &'a TokenWeights,
}

/// Magnitude of each token's least code.
static LEADING_MAGNITUDES: [u32; 256] = {
    let mut all = [0; 256];
    let mut token = 0;
    while token < ALPHABET {
        let magnitude = rans::code_of_token(token).unsigned_abs();
        all[token] = if magnitude < MAX_LEADING { magnitude } else { MAX_LEADING };
        token += 1;
    }
    all
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::context::leading_magnitude;

    #[test]
    fn decoders_know_the_leading_magnitude_of_every_code() {
        let around = |power: u32| [-2, -1, 0, 1, 2].map(|d| (1_i32 << power) + d);
        for code in (-5000..5000).chain((3..31).flat_map(around)).chain([i32::MAX, -i32::MAX]) {
            let token = usize::from(rans::token_of(code));
            assert_eq!(leading_magnitude(code), LEADING_MAGNITUDES[token], "{code}");
        }
    }
}
