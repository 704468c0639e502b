//! rANS: tokens under static distributions, coded by 4 or 16 states (docs/format.md, 7.7).
//!
//! Each lane has a state. Lanes take turns, and their 16-bit words form one sequence. A lane that has nothing to code
//! in a turn codes a token of probability 1, which does not change its state. With AVX-512, sixteen states are one
//! vector.

#![allow(unsafe_code)]

use super::context::{CONTEXTS, MASKED_CONTEXT, MAX_LEADING};
use crate::entropy::histogram::{Distribution, Model, SCALE, SCALE_BITS};
use crate::entropy::tokens::{self, ALPHABET};
use crate::error::{Error, Result};
use crate::exec::{reserve, scratch};
use crate::num::simd;
#[cfg(target_arch = "x86_64")]
use crate::num::simd::Isa;

/// States lie in 2^16..2^32; a decoder reads a word when one falls below.
pub(crate) const LEAST_STATE: u32 = 1 << 16;

/// The number of a context's distribution. The number after the last gives token 0 probability 1.
fn distribution_of(model: &Model, context: usize) -> u8 {
    if context % CONTEXTS >= MASKED_CONTEXT { model.distributions().len() as u8 } else { model.map()[context] }
}

// ---- Encoding ----

/// A token in the high byte and its context, numbered through all groups, in the low byte.
pub(crate) type Symbol = u16;

/// The symbol of a lane that has nothing to code.
pub(crate) const IDLE: Symbol = MASKED_CONTEXT as Symbol;

/// Frequency (low half) and start (high half) of every symbol.
#[derive(Debug)]
pub(crate) struct EncodeTable {
    entries: Vec<u32>,
}

impl EncodeTable {
    pub(crate) fn new(model: &Model) -> Self {
        let certain = Distribution::certain(0);
        let n_tokens = |d: &Distribution| d.frequencies().iter().rposition(|f| *f != 0).map_or(0, |last| last + 1);
        let n_tokens = model.distributions().iter().map(n_tokens).max().unwrap_or(0).max(1);
        let mut entries = vec![SCALE; n_tokens << 8];
        for context in 0..model.map().len() {
            let number = usize::from(distribution_of(model, context));
            let mut start = 0;
            let frequencies = model.distributions().get(number).unwrap_or(&certain).frequencies();
            for (token, &frequency) in frequencies.iter().enumerate().filter(|(_, f)| **f != 0) {
                entries[token << 8 | context] = u32::from(frequency) | start << 16;
                start += u32::from(frequency);
            }
        }
        Self { entries }
    }
}

/// Collects words in reverse order.
#[derive(Debug)]
pub(crate) struct WordWriter {
    words: Vec<u16>,
    first: usize,
}

impl WordWriter {
    /// Has room for the words of `n_symbols` symbols.
    pub(crate) fn new(n_symbols: usize) -> Self {
        // One more word, so that `put_if` can store unconditionally.
        Self { words: scratch::take(n_symbols + 1), first: n_symbols + 1 }
    }

    #[inline(always)]
    fn put_if(&mut self, is_wanted: bool, word: u16) {
        self.words[self.first - 1] = word;
        self.first -= usize::from(is_wanted);
    }

    /// Appends the words, little-endian, as a decoder reads them.
    pub(crate) fn finish(self, out: &mut Vec<u8>) {
        out.extend(self.words[self.first..].iter().flat_map(|word| word.to_le_bytes()));
        scratch::give(self.words);
    }
}

/// Encodes the symbols of N lanes, `symbols.len() / N` each, which are stored lane after lane. The symbol that is
/// decoded last is encoded first, so the last step of a stream must come first, too.
#[inline(always)]
pub(crate) fn encode<const N: usize>(
    states: &mut [u32],
    symbols: &[Symbol],
    table: &EncodeTable,
    words: &mut WordWriter,
) {
    let states: &mut [u32; N] = states.first_chunk_mut().expect("there is a state for each lane");
    #[cfg(target_arch = "x86_64")]
    if N == avx512::LANES && Isa::detect() == Isa::Avx512 {
        let states = states.first_chunk_mut().expect("there are 16 lanes");
        // SAFETY: the machine has the instructions.
        unsafe { avx512::encode(states, symbols, table, words) };
        return;
    }
    encode_each(states, symbols, table, words);
}

/// [`encode`], one symbol after the other.
#[inline(always)]
fn encode_each<const N: usize>(states: &mut [u32; N], symbols: &[Symbol], table: &EncodeTable, words: &mut WordWriter) {
    let n = symbols.len() / N;
    for turn in (0..n).rev() {
        for (lane, state) in states.iter_mut().enumerate().rev() {
            encode_step(state, table.entries[usize::from(symbols[lane * n + turn])], words);
        }
    }
}

/// Encodes a token, whose frequency must be above 0.
#[inline(always)]
fn encode_step(state: &mut u32, entry: u32, words: &mut WordWriter) {
    let (frequency, start) = (entry & 0xffff, entry >> 16);
    let mut x = *state;
    // That is x >= frequency * 2^20, computed without overflow: the product may be 2^32.
    let is_full = x >> (32 - SCALE_BITS) >= frequency;
    words.put_if(is_full, x as u16);
    x >>= if is_full { 16 } else { 0 };
    *state = x + start + x / frequency * (SCALE - frequency);
}

// ---- Decoding ----

/// Tables of all distributions, and of one that gives token 0 probability 1. Each has 4096 entries: the token in bits
/// 0..8, its frequency less 1 in bits 8..20, and the slot less the token's start in bits 20..32.
#[derive(Debug)]
pub(crate) struct DecodeTable {
    entries: Vec<u32>,
}

impl DecodeTable {
    pub(crate) fn new(model: &Model) -> Self {
        let mut entries = Vec::with_capacity((model.distributions().len() + 1) << SCALE_BITS);
        for distribution in model.distributions().iter().chain([&Distribution::certain(0)]) {
            for (token, &frequency) in (0_u32..).zip(distribution.frequencies()).filter(|(_, f)| **f != 0) {
                let frequency = u32::from(frequency);
                let first = token | (frequency - 1) << 8;
                entries.extend((0..frequency).map(|i| first | i << (8 + SCALE_BITS)));
            }
        }
        assert_eq!(entries.len(), (model.distributions().len() + 1) << SCALE_BITS, "frequencies sum to one");
        Self { entries }
    }
}

/// Entries of [`Contexts::numbers`]: a power of two.
const N_NUMBERS: usize = 64;

/// Tables that decode the tokens of one group of contexts.
pub(crate) struct Contexts<'a> {
    entries: &'a [u32],
    /// The distribution of each context; context c is at index c + 2. All of these distributions exist.
    numbers: [u8; N_NUMBERS],
    /// The contribution of a code to the sums of the next code and of the one after that: per unit of magnitude, and
    /// for each token.
    #[cfg(target_arch = "x86_64")]
    weights: [u32; 2],
    token_weights: [[u32; 2]; 256],
}

impl<'a> Contexts<'a> {
    pub(crate) fn new(table: &'a DecodeTable, model: &Model, group: usize, weights: [u32; 2]) -> Self {
        let number = |index: usize| {
            let context = (index + N_NUMBERS - 2) % N_NUMBERS;
            distribution_of(model, group * CONTEXTS + context.min(CONTEXTS - 1))
        };
        Self {
            entries: &table.entries,
            numbers: std::array::from_fn(number),
            #[cfg(target_arch = "x86_64")]
            weights,
            token_weights: std::array::from_fn(|token| weights.map(|w| w * LEADING_MAGNITUDES[token])),
        }
    }
}

/// The leading magnitude of each token's codes.
static LEADING_MAGNITUDES: [u32; 256] = {
    let mut all = [0; 256];
    let mut token = 0;
    while token < ALPHABET {
        let magnitude = tokens::code_of_token(token).unsigned_abs();
        all[token] = if magnitude < MAX_LEADING { magnitude } else { MAX_LEADING };
        token += 1;
    }
    all
};

/// Reads words; beyond the end there are zeros.
#[derive(Clone, Debug)]
pub(crate) struct WordReader {
    /// The words, followed by zeros.
    bytes: Vec<u8>,
    at: usize,
}

impl WordReader {
    /// The most bytes that one turn reads.
    const SLACK: usize = 32;

    pub(crate) fn new(bytes: &[u8]) -> Result<Self> {
        let mut all = Vec::new();
        reserve(&mut all, bytes.len() + Self::SLACK)?;
        all.extend_from_slice(bytes);
        all.resize(bytes.len() + Self::SLACK, 0);
        Ok(Self { bytes: all, at: 0 })
    }

    /// The next words.
    #[inline(always)]
    fn next(&self) -> &[u8; Self::SLACK] {
        let end = self.bytes.len() - Self::SLACK;
        self.bytes[self.at.min(end)..].first_chunk().expect("zeros follow the words")
    }

    /// Checks that all words were read, and no more.
    pub(crate) fn finish(self) -> Result<()> {
        let is_end = self.at + Self::SLACK == self.bytes.len();
        if is_end { Ok(()) } else { Err(Error::corrupt("tokens have the wrong length")) }
    }
}

/// Decodes tokens of N lanes, `sums.len() / N` each, which are stored lane after lane. Each token replaces the sum of
/// its context, in which the codes before it in its lane are still missing. Lanes that have nothing to decode have the
/// sums of masked codes.
#[inline(always)]
pub(crate) fn decode<const N: usize>(
    states: &mut [u32],
    sums: &mut [u32],
    contexts: &Contexts<'_>,
    words: &mut WordReader,
) {
    let states: &mut [u32; N] = states.first_chunk_mut().expect("there is a state for each lane");
    #[cfg(target_arch = "x86_64")]
    if N == avx512::LANES && Isa::detect() == Isa::Avx512 {
        let states = states.first_chunk_mut().expect("there are 16 lanes");
        // SAFETY: the machine has the instructions.
        unsafe { avx512::decode(states, sums, contexts, words) };
        return;
    }
    decode_each(states, sums, contexts, words);
}

/// [`decode`], one token after the other.
#[inline(always)]
fn decode_each<const N: usize>(
    states: &mut [u32; N],
    sums: &mut [u32],
    contexts: &Contexts<'_>,
    words: &mut WordReader,
) {
    let n = sums.len() / N;
    let mut lanes = [Lane::default(); N];
    for (lane, state) in lanes.iter_mut().zip(&*states) {
        lane.state = *state;
    }
    for turn in 0..n {
        for first in (0..N).step_by(4) {
            // Words for four lanes at once.
            let mut ahead = u64::from_le_bytes(*words.next().first_chunk().expect("there are more"));
            let mut n_read = 0;
            for i in first..first + 4 {
                let at = i * n + turn;
                // SAFETY: i < N, turn < n, and N n is at most the length.
                let sum = unsafe { sums.get_unchecked_mut(at) };
                *sum = lanes[i].decode(*sum, contexts);
                let state = simd::scalar(lanes[i].state);
                let is_low = state < LEAST_STATE;
                lanes[i].state = if is_low { state << 16 | (ahead & 0xffff) as u32 } else { state };
                ahead >>= if is_low { 16 } else { 0 };
                n_read += usize::from(is_low);
            }
            words.at += 2 * n_read;
        }
    }
    for (lane, state) in lanes.iter().zip(states) {
        *state = lane.state;
    }
}

/// A state, and the contributions of previous codes to the sums of the next code and of the one after it.
#[derive(Clone, Copy, Default)]
struct Lane {
    state: u32,
    next: u32,
    after: u32,
}

impl Lane {
    /// Decodes a token. If the state falls below [`LEAST_STATE`], the caller must append a word.
    #[inline(always)]
    fn decode(&mut self, sum: u32, contexts: &Contexts<'_>) -> u32 {
        let sum = sum + self.next;
        // `context_of(sum)` + 2.
        let zeros = sum.leading_zeros();
        let index = (58 + (sum << (zeros & 31) >> 30)).wrapping_sub(2 * zeros) as usize % N_NUMBERS;
        let slot = usize::from(contexts.numbers[index]) << SCALE_BITS | (self.state & (SCALE - 1)) as usize;
        debug_assert!(slot < contexts.entries.len());
        // SAFETY: numbers are those of distributions that the table has, of 2^SCALE_BITS entries each.
        let entry = unsafe { *contexts.entries.get_unchecked(slot) };
        let frequency = (entry >> 8 & (SCALE - 1)) + 1;
        self.state = frequency * (self.state >> SCALE_BITS) + (entry >> (8 + SCALE_BITS));
        let token = entry & 0xff;
        let [first, second] = contexts.token_weights[token as usize];
        self.next = self.after + first;
        self.after = second;
        token
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::entropy::tokens::N_DIRECT;

    pub(super) const LANES: usize = 16;

    /// Element i of vector j becomes element j of vector i.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transpose(rows: &mut [__m512i; LANES]) {
        // Pairs of rows first, then pairs of pairs, both within blocks of four; then the blocks.
        for i in (0..LANES).step_by(2) {
            let (a, b) = (rows[i], rows[i + 1]);
            (rows[i], rows[i + 1]) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        }
        for i in (0..LANES).step_by(4) {
            let [a, b, c, d] = [rows[i], rows[i + 1], rows[i + 2], rows[i + 3]];
            rows[i] = _mm512_unpacklo_epi64(a, c);
            rows[i + 1] = _mm512_unpackhi_epi64(a, c);
            rows[i + 2] = _mm512_unpacklo_epi64(b, d);
            rows[i + 3] = _mm512_unpackhi_epi64(b, d);
        }
        for i in 0..4 {
            let [a, b, c, d] = [rows[i], rows[i + 4], rows[i + 8], rows[i + 12]];
            let (ab_even, ab_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
            let (cd_even, cd_odd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
            rows[i] = _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even);
            rows[i + 4] = _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd);
            rows[i + 8] = _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even);
            rows[i + 12] = _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd);
        }
    }

    /// A mask of the first `n` lanes.
    fn first(n: usize) -> __mmask16 {
        ((1_u32 << n) - 1) as __mmask16
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,popcnt")]
    pub(super) fn decode(states: &mut [u32; LANES], sums: &mut [u32], contexts: &Contexts<'_>, words: &mut WordReader) {
        let n = sums.len() / LANES;
        let splat = |x: u32| _mm512_set1_epi32(x as i32);
        // SAFETY: both are 64 bytes.
        let (mut state, numbers) = unsafe {
            (_mm512_loadu_si512(states.as_ptr().cast()), _mm512_loadu_si512(contexts.numbers.as_ptr().cast()))
        };
        let weights = contexts.weights.map(splat);
        let (mut next, mut after) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        let mut rows = [_mm512_setzero_si512(); LANES];
        for turn in (0..n).step_by(LANES) {
            let n_turns = LANES.min(n - turn);
            for (lane, row) in rows.iter_mut().enumerate() {
                // SAFETY: only the lanes of the mask are read, which lie within `sums`.
                *row = unsafe { _mm512_maskz_loadu_epi32(first(n_turns), sums.as_ptr().add(lane * n + turn).cast()) };
            }
            transpose(&mut rows);
            for row in &mut rows[..n_turns] {
                let sum = _mm512_add_epi32(*row, next);
                // The exponent and the leading mantissa bit of the float are those of the integer.
                let float = _mm512_cvt_roundepu32_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(sum);
                let index = _mm512_srli_epi32::<22>(_mm512_castps_si512(float));
                // Looks up low bytes only, by the six low bits of each index.
                let number = _mm512_maskz_permutexvar_epi8(0x1111_1111_1111_1111, index, numbers);
                // The start of the distribution's table, and the low bits of the state.
                let slot = _mm512_ternarylogic_epi32::<0xf8>(
                    _mm512_slli_epi32::<{ SCALE_BITS }>(number),
                    state,
                    splat(SCALE - 1),
                );
                // SAFETY: numbers are those of distributions that the table has, of 2^SCALE_BITS entries each.
                let entry = unsafe { _mm512_i32gather_epi32::<4>(slot, contexts.entries.as_ptr().cast()) };
                let frequency = _mm512_and_si512(_mm512_srli_epi32::<8>(entry), splat(SCALE - 1));
                let frequency = _mm512_add_epi32(frequency, splat(1));
                let high = _mm512_mullo_epi32(frequency, _mm512_srli_epi32::<{ SCALE_BITS }>(state));
                state = _mm512_add_epi32(high, _mm512_srli_epi32::<{ 8 + SCALE_BITS }>(entry));

                let is_low = _mm512_cmplt_epu32_mask(state, splat(LEAST_STATE));
                // SAFETY: `next` returns 32 bytes.
                let ahead = unsafe { _mm256_loadu_si256(words.next().as_ptr().cast()) };
                let ahead = _mm512_maskz_expand_epi32(is_low, _mm512_cvtepu16_epi32(ahead));
                state = _mm512_mask_or_epi32(state, is_low, _mm512_slli_epi32::<16>(state), ahead);
                words.at += 2 * is_low.count_ones() as usize;

                let token = _mm512_and_si512(entry, splat(0xff));
                *row = token;
                let magnitude = leading_magnitudes(token);
                next = _mm512_add_epi32(after, _mm512_mullo_epi32(weights[0], magnitude));
                after = _mm512_mullo_epi32(weights[1], magnitude);
            }
            transpose(&mut rows);
            for (lane, row) in rows.iter().enumerate() {
                // SAFETY: only the lanes of the mask are written.
                unsafe {
                    _mm512_mask_storeu_epi32(sums.as_mut_ptr().add(lane * n + turn).cast(), first(n_turns), *row);
                }
            }
        }
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(states.as_mut_ptr().cast(), state) };
    }

    /// [`LEADING_MAGNITUDES`] of tokens.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn leading_magnitudes(token: __m512i) -> __m512i {
        let splat = |x: u32| _mm512_set1_epi32(x as i32);
        let direct = _mm512_srli_epi32::<1>(_mm512_add_epi32(token, splat(1)));
        let is_direct = _mm512_cmplt_epu32_mask(token, splat(N_DIRECT as u32));
        let above = _mm512_sub_epi32(token, splat(N_DIRECT as u32));
        let leading = _mm512_ternarylogic_epi32::<0xf8>(splat(4), above, splat(3));
        let octave = _mm512_add_epi32(_mm512_srli_epi32::<2>(above), splat(1));
        let magnitude = _mm512_min_epu32(_mm512_sllv_epi32(leading, octave), splat(MAX_LEADING));
        _mm512_mask_mov_epi32(magnitude, is_direct, direct)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,popcnt")]
    pub(super) fn encode(states: &mut [u32; LANES], symbols: &[Symbol], table: &EncodeTable, words: &mut WordWriter) {
        let n = symbols.len() / LANES;
        assert!(words.first > LANES * n, "there is room for all words");
        let last = u32::try_from(table.entries.len() - 1).expect("there are few tokens");
        let splat = |x: u32| _mm512_set1_epi32(x as i32);
        // SAFETY: 64 bytes.
        let mut state = unsafe { _mm512_loadu_si512(states.as_ptr().cast()) };
        let mut rows = [_mm512_setzero_si512(); LANES];
        for turn in (0..n).step_by(LANES).rev() {
            let n_turns = LANES.min(n - turn);
            for (lane, row) in rows.iter_mut().enumerate() {
                // SAFETY: only the lanes of the mask are read, which lie within `symbols`.
                let symbols =
                    unsafe { _mm256_maskz_loadu_epi16(first(n_turns), symbols.as_ptr().add(lane * n + turn).cast()) };
                *row = _mm512_cvtepu16_epi32(symbols);
            }
            transpose(&mut rows);
            for &symbols in rows[..n_turns].iter().rev() {
                // A token beyond the alphabet would be a bug elsewhere, but must not read beyond the table.
                let symbols = _mm512_min_epu32(symbols, splat(last));
                // SAFETY: the table has an entry for each of these.
                let entry = unsafe { _mm512_i32gather_epi32::<4>(symbols, table.entries.as_ptr().cast()) };
                let frequency = _mm512_and_si512(entry, splat(0xffff));
                let is_full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32::<{ 32 - SCALE_BITS }>(state), frequency);
                let n_words = is_full.count_ones() as usize;
                words.first -= n_words;
                let full = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(is_full, state));
                // SAFETY: there is room for a word of each symbol, and `first` counts those left.
                unsafe {
                    let to = words.words.as_mut_ptr().add(words.first);
                    _mm256_mask_storeu_epi16(to.cast(), first(n_words), full);
                }
                state = _mm512_mask_srli_epi32::<16>(state, is_full, state);
                let quotient = divide(state, frequency);
                let rest = _mm512_mullo_epi32(quotient, _mm512_sub_epi32(splat(SCALE), frequency));
                state = _mm512_add_epi32(_mm512_add_epi32(state, _mm512_srli_epi32::<16>(entry)), rest);
            }
        }
        // SAFETY: 64 bytes.
        unsafe { _mm512_storeu_si512(states.as_mut_ptr().cast(), state) };
    }

    /// a / b, rounded down: doubles are exact enough to separate any quotient of 32-bit integers from the next integer.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn divide(a: __m512i, b: __m512i) -> __m512i {
        let half =
            |a: __m256i, b: __m256i| _mm512_cvttpd_epu32(_mm512_div_pd(_mm512_cvtepu32_pd(a), _mm512_cvtepu32_pd(b)));
        let low = half(_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
        let high = half(_mm512_extracti64x4_epi64::<1>(a), _mm512_extracti64x4_epi64::<1>(b));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::small::context::{BIAS, MASKED, context_of, leading_magnitude};
    use crate::codec::small::pieces::{NARROW, WIDE};
    use crate::entropy::histogram::Counts;
    use crate::entropy::tokens::tests::Random;

    #[test]
    fn decoders_know_the_leading_magnitude_of_every_code() {
        let around = |power: u32| [-2, -1, 0, 1, 2].map(|d| (1_i32 << power) + d);
        for code in (-5000..5000).chain((3..31).flat_map(around)).chain([i32::MAX, -i32::MAX]) {
            let token = usize::from(tokens::token_of(code));
            assert_eq!(leading_magnitude(code), LEADING_MAGNITUDES[token], "{code}");
        }
    }

    /// An implementation; all must give the same result.
    #[derive(Clone, Copy, Debug)]
    enum Path {
        /// The one that users get.
        Chosen,
        Each,
        /// AVX-512, regardless of `PUMICE_ISA`.
        #[cfg(target_arch = "x86_64")]
        Vector,
    }

    impl Path {
        fn all<const N: usize>() -> Vec<Self> {
            #[allow(unused_mut)]
            let mut all = vec![Path::Each, Path::Chosen];
            #[cfg(target_arch = "x86_64")]
            if N == avx512::LANES && Isa::available().contains(&Isa::Avx512) {
                all.push(Path::Vector);
            }
            all
        }

        fn encode<const N: usize>(self, states: &mut [u32; N], symbols: &[Symbol], table: &EncodeTable) -> Vec<u16> {
            let mut words = WordWriter::new(symbols.len());
            match self {
                Path::Chosen => encode::<N>(states, symbols, table, &mut words),
                Path::Each => encode_each(states, symbols, table, &mut words),
                // SAFETY: the machine has the instructions.
                #[cfg(target_arch = "x86_64")]
                Path::Vector => unsafe {
                    avx512::encode(states.first_chunk_mut().unwrap(), symbols, table, &mut words);
                },
            }
            let mut bytes = Vec::new();
            words.finish(&mut bytes);
            bytes.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word)).collect()
        }

        fn decode<const N: usize>(
            self,
            states: &mut [u32; N],
            sums: &mut [u32],
            contexts: &Contexts<'_>,
            words: &mut WordReader,
        ) {
            match self {
                Path::Chosen => decode::<N>(states, sums, contexts, words),
                Path::Each => decode_each(states, sums, contexts, words),
                // SAFETY: the machine has the instructions.
                #[cfg(target_arch = "x86_64")]
                Path::Vector => unsafe { avx512::decode(states.first_chunk_mut().unwrap(), sums, contexts, words) },
            }
        }
    }

    fn reader(words: &[u16]) -> WordReader {
        WordReader::new(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()).unwrap()
    }

    /// A model with contexts of small and large codes, of a single token, and of none.
    fn model(n_groups: usize) -> Model {
        let mut random = Random(1);
        let mut counts: Vec<Counts> = vec![[0; ALPHABET]; n_groups * CONTEXTS];
        for (i, counts) in counts.iter_mut().enumerate() {
            match i % CONTEXTS {
                20 => counts[77] = 50_000,
                40 => {}
                context => {
                    let mean = 0.02 * 1.4_f64.powi(context as i32);
                    (0..3000).for_each(|_| counts[usize::from(tokens::token_of(random.code(mean)))] += 1);
                }
            }
        }
        Model::fit(&counts, CONTEXTS)
    }

    /// The sums and symbols of a step of N lanes, and its ideal length in bits.
    struct Step {
        sums: Vec<u32>,
        symbols: Vec<Symbol>,
        n_bits: f64,
    }

    impl Step {
        /// Tokens drawn from the distributions of the model; each lane has a random number of them, up to `n`.
        fn random<const N: usize>(
            model: &Model,
            group: usize,
            weights: [u32; 2],
            n: usize,
            masks: bool,
            random: &mut Random,
        ) -> Self {
            let mut step = Self { sums: Vec::new(), symbols: Vec::new(), n_bits: 0.0 };
            for _ in 0..N {
                let len = if random.next().is_multiple_of(3) { random.next() as usize % (n + 1) } else { n };
                let (mut next, mut after) = (0, 0);
                for _ in 0..len {
                    // Sums of all sizes, so that every context occurs.
                    let sum = BIAS + (random.next() >> (3 + random.next() % 29));
                    let is_masked = masks && random.next().is_multiple_of(4);
                    let context = if is_masked { MASKED_CONTEXT } else { context_of(sum + next) as usize };
                    let number = usize::from(distribution_of(model, group * CONTEXTS + context));
                    let mut token = 0;
                    if let Some(distribution) = model.distributions().get(number) {
                        let mut slot = random.next() % SCALE;
                        let frequency = |token: usize| u32::from(distribution.frequencies()[token]);
                        while slot >= frequency(token) {
                            slot -= frequency(token);
                            token += 1;
                        }
                        step.n_bits += f64::from(SCALE_BITS) - f64::from(frequency(token)).log2();
                    }
                    step.sums.push(if is_masked { MASKED } else { sum });
                    step.symbols.push((token << 8 | (group * CONTEXTS + context)) as Symbol);
                    next = after + weights[0] * LEADING_MAGNITUDES[token];
                    after = weights[1] * LEADING_MAGNITUDES[token];
                }
                step.sums.extend(std::iter::repeat_n(MASKED, n - len));
                step.symbols.extend(std::iter::repeat_n(IDLE, n - len));
            }
            step
        }

        fn tokens(&self) -> Vec<u32> {
            self.symbols.iter().map(|symbol| u32::from(symbol >> 8)).collect()
        }
    }

    /// Encodes and decodes steps by every implementation; returns words, states, and the ideal length in bits.
    fn check_steps<const N: usize>(
        model: &Model,
        group: usize,
        weights: [u32; 2],
        steps: &[Step],
    ) -> (Vec<u16>, [u32; N], f64) {
        let table = EncodeTable::new(model);
        let encoded = Path::all::<N>().into_iter().map(|path| {
            let mut states = [LEAST_STATE; N];
            // Steps are encoded last to first, and words of a step come before those of later steps.
            let words: Vec<Vec<u16>> =
                steps.iter().rev().map(|step| path.encode(&mut states, &step.symbols, &table)).collect();
            (words.into_iter().rev().flatten().collect::<Vec<u16>>(), states)
        });
        let encoded: Vec<_> = encoded.collect();
        assert!(encoded.iter().all(|other| *other == encoded[0]), "{N} lanes");
        let (words, first_states) = encoded[0].clone();

        let table = DecodeTable::new(model);
        let contexts = Contexts::new(&table, model, group, weights);
        for path in Path::all::<N>() {
            let (mut states, mut reader) = (first_states, reader(&words));
            for step in steps {
                let mut sums = step.sums.clone();
                path.decode(&mut states, &mut sums, &contexts, &mut reader);
                assert_eq!(sums, step.tokens(), "{path:?}, {N} lanes");
            }
            assert_eq!(states, [LEAST_STATE; N]);
            reader.finish().unwrap();
        }
        let n_bits: f64 = steps.iter().map(|step| step.n_bits).sum();
        (words, first_states, n_bits)
    }

    fn check_lanes<const N: usize>() {
        let model = model(3);
        let mut random = Random(2);
        for n in (0..40).chain([63, 64, 65, 1000]) {
            for (group, weights) in [[0, 0], [255, 255], [19, 6]].into_iter().enumerate() {
                let mut step = |_| Step::random::<N>(&model, group, weights, n, n % 2 == 0, &mut random);
                let steps: Vec<Step> = (0..3).map(&mut step).collect();
                check_steps::<N>(&model, group, weights, &steps);
            }
        }
        // Words and states together have the ideal length.
        let steps: Vec<Step> =
            (0..20).map(|_| Step::random::<N>(&model, 1, [19, 6], 3000, true, &mut random)).collect();
        let (words, states, ideal) = check_steps::<N>(&model, 1, [19, 6], &steps);
        let n_bits = 16.0 * words.len() as f64 + states.map(|x| f64::from(x).log2() - 16.0).iter().sum::<f64>();
        assert!(ideal > 1e5 && (n_bits - ideal).abs() < 1e-4 * ideal, "{n_bits} {ideal}");
    }

    #[test]
    fn tokens_of_all_lanes_come_back() {
        check_lanes::<NARROW>();
        check_lanes::<WIDE>();
    }

    fn check_certain<const N: usize>() {
        let mut counts = [0; ALPHABET];
        counts[77] = 1000;
        let model = Model::fit(&[counts; CONTEXTS], CONTEXTS);
        for (sum, symbol) in [(BIAS, 77 << 8), (MASKED, IDLE)] {
            let step = Step { sums: vec![sum; 50 * N], symbols: vec![symbol; 50 * N], n_bits: 0.0 };
            let (words, states, _) = check_steps::<N>(&model, 0, [0, 0], &[step]);
            assert!(words.is_empty() && states == [LEAST_STATE; N]);
        }
    }

    #[test]
    fn certain_tokens_take_nothing() {
        check_certain::<NARROW>();
        check_certain::<WIDE>();
    }

    fn check_exact<const N: usize>() {
        let mut random = Random(8);
        let mut table = EncodeTable { entries: vec![SCALE; ALPHABET << 8] };
        let starts: Vec<u32> = (1..=SCALE).map(|frequency| random.next() % (SCALE + 1 - frequency)).collect();
        for (i, start) in starts.iter().enumerate() {
            table.entries[i] = (i as u32 + 1) | start << 16;
        }
        for (i, start) in starts.iter().enumerate() {
            let frequency = i as u64 + 1;
            // The first state that is full, if there is one.
            let full = frequency << 20;
            let mut states = vec![u64::from(LEAST_STATE), u64::from(u32::MAX), 1 << 31, (1 << 31) - 1, (1 << 32) - 2];
            states.extend([full - 1, full, full + 1, full - frequency, full / 2, full / 2 - 1]);
            states.retain(|x| (u64::from(LEAST_STATE)..1 << 32).contains(x));
            while !states.len().is_multiple_of(N) || states.len() < 2 * N {
                states.push(u64::from(random.next().max(LEAST_STATE)));
            }
            for states in states.as_chunks::<N>().0 {
                let mut wanted = (Vec::new(), *states);
                for state in &mut wanted.1 {
                    if *state >= full {
                        wanted.0.push(*state as u16);
                        *state >>= 16;
                    }
                    *state = ((*state / frequency) << SCALE_BITS) + *state % frequency + u64::from(*start);
                }
                for path in Path::all::<N>() {
                    let mut after = states.map(|x| x as u32);
                    let words = path.encode(&mut after, &[i as Symbol; N], &table);
                    assert_eq!((words, after.map(u64::from)), wanted, "{path:?}, frequency {frequency}, {states:?}");
                }
            }
        }
    }

    #[test]
    fn encoding_is_exact_for_every_frequency() {
        check_exact::<NARROW>();
        check_exact::<WIDE>();
    }

    fn check_hostile<const N: usize>() {
        let model = model(1);
        let table = DecodeTable::new(&model);
        let contexts = Contexts::new(&table, &model, 0, [255, 255]);
        let mut random = Random(9);
        for n in [1, 7, 16, 100] {
            let step = Step::random::<N>(&model, 0, [255, 255], n, true, &mut random);
            let (words, states, _) = check_steps::<N>(&model, 0, [255, 255], std::slice::from_ref(&step));
            for kept in [0, words.len() / 2, words.len().saturating_sub(1)] {
                let mut with_zeros = words[..kept].to_vec();
                with_zeros.resize(kept + N * n, 0);
                for states in [states, [0; N], [u32::MAX; N], std::array::from_fn(|_| random.next())] {
                    let decoded = Path::all::<N>().into_iter().flat_map(|path| {
                        [&words[..kept], &with_zeros].map(|words| {
                            let (mut states, mut sums, mut reader) = (states, step.sums.clone(), reader(words));
                            path.decode(&mut states, &mut sums, &contexts, &mut reader);
                            (states, sums, reader.at)
                        })
                    });
                    let decoded: Vec<_> = decoded.collect();
                    assert!(decoded.iter().all(|other| *other == decoded[0]), "{N} lanes, {kept} words, {states:?}");
                }
            }
        }
        // One word more or less than was written.
        let step = Step::random::<N>(&model, 0, [255, 255], 100, false, &mut random);
        let (words, states, _) = check_steps::<N>(&model, 0, [255, 255], std::slice::from_ref(&step));
        for path in Path::all::<N>() {
            for n in [words.len() - 1, words.len() + 1] {
                let mut changed = words.clone();
                changed.resize(n, 0);
                let (mut states, mut sums, mut reader) = (states, step.sums.clone(), reader(&changed));
                path.decode(&mut states, &mut sums, &contexts, &mut reader);
                reader.finish().unwrap_err();
            }
        }
    }

    #[test]
    fn beyond_the_end_there_are_zeros() {
        check_hostile::<NARROW>();
        check_hostile::<WIDE>();
    }
}
