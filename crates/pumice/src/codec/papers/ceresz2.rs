//! The codec of the preset `ceresz2`: blocks of 32 differences under one static Huffman codebook of 2000 symbols, by the
//! rules of CereSZ-II (docs/format.md, 11; docs/papers.md says where it deviates).
//!
//! The codebook was built offline and is part of the format: `cargo research codebook` made it. A difference that has
//! no symbol is unpredictable and stored raw. The offsets of streams, masks and unpredictable values of each part of a
//! chunk are computed from their sizes before any of them is read, so that all parts are decoded in parallel.

use std::sync::LazyLock;

use super::blocks::{BLOCK, Blocks, BlocksPrefix, restore_block};
use super::mesh::Mesh;
use crate::codec::shared::masks;
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::huffman::{self, Classes, Codebook, DecodeTables, Lengths};
use crate::error::{Error, Result};
use crate::exec::scratch;
use crate::io::Bytes;
use crate::num::Real;
use crate::num::simd::{self, Kernel};
use crate::plan::Quantizer;

/// Symbols of the codebook, and the difference that the first of them stands for.
pub(crate) const N_SYMBOLS: usize = 2000;
const FIRST: i32 = -1000;
/// The symbol of an unpredictable value: that of difference 0.
const NOTHING: u16 = -FIRST as u16;
/// The longest code. Even 2000 symbols of this length take only 0.2 % of the code space.
#[cfg(any(test, feature = "unstable-research"))]
pub(crate) const MAX_CODE_BITS: u32 = 20;

/// Blocks whose flags share a 32-bit integer: 1024 values.
const CELL: usize = 32;
/// Values that are coded by one worker: whole blocks of streams, and whole cells.
const SPAN: usize = 32 * huffman::BLOCK;
const SPAN_STREAMS: usize = SPAN / huffman::BLOCK * huffman::STREAMS;
const SPAN_CELLS: usize = SPAN / (CELL * BLOCK);
const CODEBOOK_ID_BYTES: usize = 8;

/// The codebook of the format: a line of code lengths for each 50 symbols, lines of remarks before them.
const LENGTHS: &str = include_str!("../../../assets/ceresz2-codebook.txt");

static CODEBOOK: LazyLock<Codebook> = LazyLock::new(|| {
    let numbers = LENGTHS.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_ascii_whitespace);
    let bits: Vec<u8> = numbers.map(|number| number.parse().expect("the asset has numbers")).collect();
    Codebook::new(Lengths::new(bits).expect("the asset is a complete code"))
});
static TABLES: LazyLock<DecodeTables<u16>> =
    LazyLock::new(|| DecodeTables::new(std::slice::from_ref(CODEBOOK.lengths())));

/// The codebook of the format.
pub(crate) fn codebook() -> &'static Codebook {
    &CODEBOOK
}

fn n_cells(n_values: usize) -> usize {
    n_values.div_ceil(CELL * BLOCK)
}

/// The symbols of a chunk, and its unpredictable values.
pub(crate) struct Symbols {
    pub(crate) symbols: Vec<u16>,
    /// For each cell a bit for each block: whether it has unpredictable values.
    flags: Vec<u32>,
    /// For each such block a bit for each value: whether it is unpredictable.
    masks: Vec<u32>,
    /// The differences of unpredictable values.
    unpredictable: Vec<i32>,
}

impl Symbols {
    pub(crate) fn of(blocks: &Blocks) -> Self {
        let n = blocks.deltas.len();
        let flags = vec![0; n_cells(n)];
        let mut all = Self { symbols: scratch::take(n), flags, masks: Vec::new(), unpredictable: Vec::new() };
        simd::run(Symbolise { deltas: &blocks.deltas, to: &mut all });
        all
    }
}

struct Symbolise<'a> {
    deltas: &'a [i32],
    to: &'a mut Symbols,
}

impl Kernel for Symbolise<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Symbols { symbols, flags, masks, unpredictable } = self.to;
        for (i, (deltas, symbols)) in self.deltas.chunks(BLOCK).zip(symbols.chunks_mut(BLOCK)).enumerate() {
            let mut mask = 0_u32;
            for (k, (delta, symbol)) in deltas.iter().zip(symbols).enumerate() {
                let position = delta.wrapping_sub(FIRST) as u32;
                let is_symbol = position < N_SYMBOLS as u32;
                *symbol = if is_symbol { position as u16 } else { NOTHING };
                mask |= u32::from(!is_symbol) << k;
            }
            if mask == 0 {
                continue;
            }
            flags[i / CELL] |= 1 << (i % CELL);
            masks.push(mask);
            unpredictable.extend((0..BLOCK).filter(|k| mask >> k & 1 != 0).map(|k| deltas[k]));
        }
    }
}

/// The codec of the preset `ceresz2`, under any codebook.
pub(crate) struct Ceresz2;

impl<T: Real> ChunkCodec<T> for Ceresz2 {
    const ID: CodecId = CodecId::Ceresz2;
    type Settings<'a>
        = (&'a Quantizer<T>, &'a Codebook)
    where
        T: 'a;

    fn min_payload_bytes(n_values: usize) -> usize {
        BlocksPrefix::MIN_BYTES + CODEBOOK_ID_BYTES + 4 * n_cells(n_values) + 2 * huffman::n_streams(n_values)
    }

    fn encode(
        values: &[T],
        (quantizer, codebook): Self::Settings<'_>,
        chunk: &ChunkContext<'_, T>,
        out: &mut Vec<u8>,
    ) -> bool {
        let &ChunkContext { extents, fills, workers, .. } = chunk;
        let blocks = Blocks::new(values, quantizer, fills);
        blocks.write_to(values, extents, fills, out);
        let symbols = Symbols::of(&blocks);
        blocks.give_back();
        out.extend_from_slice(&codebook.id().to_le_bytes());
        for words in [&symbols.flags, &symbols.masks] {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
        symbols.unpredictable.iter().for_each(|delta| out.extend_from_slice(&delta.to_le_bytes()));

        let span = |symbols| EncodeSpan { symbols, codebook, sizes: Vec::new(), streams: Vec::new() };
        let mut spans: Vec<_> = symbols.symbols.chunks(SPAN).map(span).collect();
        let run = |_: usize, span: &mut EncodeSpan<'_>| {
            let codebooks = std::slice::from_ref(span.codebook);
            huffman::encode(span.symbols, Classes::Same(0), codebooks, &mut span.streams, &mut span.sizes);
            Ok(())
        };
        workers.for_each(&mut spans, run).expect("encoding does not fail");
        for size in spans.iter().flat_map(|span| &span.sizes) {
            out.extend_from_slice(&size.to_le_bytes());
        }
        spans.iter().for_each(|span| out.extend_from_slice(&span.streams));
        drop(spans);
        scratch::give(symbols.symbols);
        true
    }

    /// What is not coded as differences, the flags and masks of blocks, and streams.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        masks::decode_bytes(payload_bytes, chunk) + chunk.n_values() / 4
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        let &ChunkContext { extents, fills, workers, .. } = chunk;
        let step = chunk.needed_step()?;
        let mut bytes = Bytes::new(payload);
        let prefix = BlocksPrefix::read_from(&mut bytes, extents, out.len(), fills)?;
        if bytes.u64()? != codebook().id() {
            return Err(Error::corrupt("chunk has a codebook that the format does not have"));
        }
        let n_blocks = out.len().div_ceil(BLOCK);
        let flags = words(bytes.take(4 * n_cells(out.len()))?);
        if !n_blocks.is_multiple_of(CELL) && flags[n_blocks / CELL] >> (n_blocks % CELL) != 0 {
            return Err(Error::corrupt("chunk has flags of blocks that it does not have"));
        }
        let n_set: Vec<u32> = flags.iter().map(|word| word.count_ones()).collect();
        let first_masks = Mesh::for_pieces(flags.len()).offsets(&n_set);
        let masks = words(bytes.take(4 * first_masks[flags.len()])?);
        let of_cell = |cells: &[usize]| masks[cells[0]..cells[1]].iter().map(|mask| mask.count_ones()).sum();
        let n_unpredictable: Vec<u32> = first_masks.windows(2).map(of_cell).collect();
        let first_unpredictable = Mesh::for_pieces(flags.len()).offsets(&n_unpredictable);
        let unpredictable = bytes.take(4 * first_unpredictable[flags.len()])?;
        let n_streams = huffman::n_streams(out.len());
        let sizes: Vec<u16> =
            bytes.take(2 * n_streams)?.chunks_exact(2).map(|size| u16::from_le_bytes([size[0], size[1]])).collect();
        let stream_bytes: Vec<u32> = sizes.iter().map(|size| u32::from(*size)).collect();
        let first_bytes = Mesh::for_pieces(n_streams).offsets(&stream_bytes);
        let streams = bytes.rest();
        if streams.len() != first_bytes[n_streams] {
            return Err(Error::corrupt("streams are not as long as their chunk"));
        }

        let span = |(i, out): (usize, _)| {
            let cells = i * SPAN_CELLS..((i + 1) * SPAN_CELLS).min(flags.len());
            let own = i * SPAN_STREAMS..((i + 1) * SPAN_STREAMS).min(n_streams);
            DecodeSpan {
                streams: &streams[first_bytes[own.start]..first_bytes[own.end]],
                sizes: &sizes[own],
                flags: &flags[cells.clone()],
                masks: &masks[first_masks[cells.start]..first_masks[cells.end]],
                unpredictable: &unpredictable[4 * first_unpredictable[cells.start]..4 * first_unpredictable[cells.end]],
                origin: prefix.origin,
                step,
                out,
            }
        };
        let mut spans: Vec<_> = out.chunks_mut(SPAN).enumerate().map(span).collect();
        workers.for_each(&mut spans, |_, span| {
            let mut symbols = scratch::try_take(span.out.len())?;
            huffman::decode(span.streams, span.sizes, Classes::Same(0), &TABLES, &mut symbols)?;
            simd::run(Restore { symbols: &symbols, span });
            scratch::give(symbols);
            Ok(())
        })?;
        prefix.restore_exceptions(fills, out);
        Ok(())
    }
}

struct EncodeSpan<'a> {
    symbols: &'a [u16],
    codebook: &'a Codebook,
    sizes: Vec<u16>,
    streams: Vec<u8>,
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(std::array::from_fn(|i| word[i]))).collect()
}

struct DecodeSpan<'a, T> {
    streams: &'a [u8],
    sizes: &'a [u16],
    flags: &'a [u32],
    masks: &'a [u32],
    unpredictable: &'a [u8],
    origin: i64,
    step: T,
    out: &'a mut [T],
}

struct Restore<'s, 'a, T> {
    symbols: &'s [u16],
    span: &'s mut DecodeSpan<'a, T>,
}

impl<T: Real> Kernel for Restore<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let DecodeSpan { flags, masks, unpredictable, origin, step, out, .. } = self.span;
        let mut masks = masks.iter();
        let mut unpredictable = unpredictable.chunks_exact(4);
        for (i, (symbols, out)) in self.symbols.chunks(BLOCK).zip(out.chunks_mut(BLOCK)).enumerate() {
            let mut deltas = [0; BLOCK];
            for (delta, symbol) in deltas.iter_mut().zip(symbols) {
                *delta = i32::from(*symbol) + FIRST;
            }
            if flags[i / CELL] >> (i % CELL) & 1 != 0 {
                let mask = masks.next().expect("there is one for each flag");
                for (_, delta) in deltas.iter_mut().enumerate().filter(|(k, _)| mask >> k & 1 != 0) {
                    let bytes = unpredictable.next().expect("there is one for each bit");
                    *delta = i32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
                }
            }
            restore_block(&deltas, *origin, *step, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantizer() -> Quantizer<f32> {
        Quantizer::new(0.5001, None).unwrap()
    }

    fn payload(values: &[f32], fills: &[f32]) -> Vec<u8> {
        let mut out = Vec::new();
        let extents = [values.len()];
        let chunk = ChunkContext { fills, ..ChunkContext::new(&extents) };
        Ceresz2::encode(values, (&quantizer(), codebook()), &chunk, &mut out);
        assert!(out.len() >= <Ceresz2 as ChunkCodec<f32>>::min_payload_bytes(values.len()));
        out
    }

    fn back(payload: &[u8], n: usize, fills: &[f32]) -> Result<Vec<f32>> {
        let mut out = vec![7.5; n];
        let extents = [n];
        let chunk = ChunkContext { step: Some(quantizer().step), fills, ..ChunkContext::new(&extents) };
        Ceresz2::decode(payload, &chunk, &mut out)?;
        Ok(out)
    }

    #[test]
    fn all_symbols_have_codes() {
        let bits = codebook().lengths().bits();
        assert_eq!(bits.len(), N_SYMBOLS);
        assert!(bits.iter().all(|n_bits| (1..=MAX_CODE_BITS as u8).contains(n_bits)));
        // Difference 0 has the shortest code.
        assert!(bits.iter().all(|n_bits| *n_bits >= bits[usize::from(NOTHING)]));
    }

    #[test]
    fn every_difference_comes_back() {
        // Blocks that begin with each difference around the ends of the codebook, and far away from it.
        for first in [-1001, -1000, -999, -1, 0, 1, 998, 999, 1000, 1001, 123_456, -123_456] {
            let values: Vec<f32> = (0..100).map(|i| if i % 32 < 16 { first as f32 } else { 0.0 }).collect();
            let bytes = payload(&values, &[]);
            assert_eq!(back(&bytes, 100, &[]).unwrap(), values, "{first}");
            // Unpredictable are the starts of four blocks, and in three of these the difference back.
            let n_unpredictable =
                4 * usize::from(!(-1000..1000).contains(&first)) + 3 * usize::from(!(-1000..1000).contains(&-first));
            let n_masks = if n_unpredictable == 0 { 0 } else { n_unpredictable.min(4) };
            let n_beside = <Ceresz2 as ChunkCodec<f32>>::min_payload_bytes(100) + 4 * (n_masks + n_unpredictable);
            let n_streamed: usize = bytes[n_beside - 8..n_beside].iter().map(|size| usize::from(*size)).sum();
            assert_eq!(bytes.len(), n_beside + n_streamed, "{first}");
        }
    }

    #[test]
    fn bytes_are_what_the_format_says() {
        let values: Vec<f32> = (0..40).map(|i| if i < 32 { 5000.0 } else { 0.0 }).collect();
        let bytes = payload(&values, &[]);
        let id = codebook().id().to_le_bytes();
        assert_eq!(bytes[..2], [0, 0]);
        assert_eq!(bytes[2..10], id);
        // The first block has an unpredictable value, its first.
        assert_eq!(bytes[10..22], [1, 0, 0, 0, 1, 0, 0, 0, 0x88, 0x13, 0, 0]);
        // Two groups, in the second and the fourth stream.
        let n_bits = usize::from(codebook().lengths().bits()[usize::from(NOTHING)]);
        let sizes = [0, (32 * n_bits).div_ceil(8) as u8, 0, (8 * n_bits).div_ceil(8) as u8];
        let size_bytes: Vec<u8> = sizes.iter().flat_map(|size| [*size, 0]).collect();
        assert_eq!(bytes[22..30], size_bytes);
        assert_eq!(bytes.len(), 30 + sizes.iter().map(|size| usize::from(*size)).sum::<usize>());
    }

    #[test]
    fn all_lengths_and_exceptions_come_back() {
        for n in [1, 2, 31, 32, 33, 1023, 1024, 1025, 4096, 4097, SPAN + 33] {
            let value = |i: usize| match i % 97 {
                3 | 4 => -9999.0,
                11 => f32::NAN,
                12 => 1e30,
                50 => 70_000.0,
                _ => ((i / 7) as f32).rem_euclid(300.0) * 3.0,
            };
            let values: Vec<f32> = (0..n).map(value).collect();
            let restored = back(&payload(&values, &[-9999.0]), n, &[-9999.0]).unwrap();
            for (x, y) in values.iter().zip(&restored) {
                let is_exact = x.is_nan() || *x == -9999.0 || *x == 1e30;
                assert!(if is_exact { x.to_bits() == y.to_bits() } else { (x - y).abs() <= 0.5001 }, "{x} {y}");
            }
        }
    }

    #[test]
    fn another_codebook_is_told_apart() {
        let values = [3.0; 100];
        let lengths = Lengths::fit(&vec![1; N_SYMBOLS], MAX_CODE_BITS);
        let mut bytes = Vec::new();
        let other = Codebook::new(lengths);
        Ceresz2::encode(&values, (&quantizer(), &other), &ChunkContext::new(&[100]), &mut bytes);
        assert!(back(&bytes, 100, &[]).unwrap_err().to_string().contains("codebook"));
    }

    #[test]
    fn hostile_bytes_are_refused_or_decoded() {
        let values: Vec<f32> = (0..1500).map(|i| (i as f32 * 0.05).sin() * 2000.0).collect();
        let good = payload(&values, &[]);
        for n in 0..good.len() {
            assert!(back(&good[..n], 1500, &[]).is_err(), "{n}");
        }
        assert!(back(&[&good[..], &[0]].concat(), 1500, &[]).is_err());
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // Flags, the codebook and sizes have to fit.
                assert!(back(&bad, 1500, &[]).is_err() || !(2..18).contains(&at), "{at} {bit}");
            }
        }
    }
}
