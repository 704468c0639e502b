//! Chunks that are coded with the codebook of their stream (docs/format.md, 9.6), and the counts that one is trained with.
//!
//! Symbols that the codebook has no code for are rare where it suits, and cost an escape each: as wide differences in
//! alphabet 0, as literals in others. Where that or lengths that do not fit might cost too much, the chunk is coded with
//! codes of its own as well, and keeps the smaller payload.

use super::alphabet::{Alphabet, Count, Gather};
use super::classes::{Sorted, class_symbols, read_classes};
use super::groups::{self, GROUP, WIDE};
use super::{Apart, Balanced, Decoded, Head, Split};
use crate::codec::shared::padding;
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::codebook::{Book, Codebook, N_CLASSES, OWN_BOOK_GROUPS};
use crate::entropy::histogram::{COST_BITS, x_log2_x};
use crate::entropy::huffman::{self, Classes};
use crate::entropy::training::{ClassSample, Training};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, filled, scratch};
use crate::io::{Bytes, varint};
use crate::num::Real;
use crate::num::simd;
use crate::plan::Quantizer;

/// The codebook of the stream is taken without a comparison if it costs at most this share of what codes of the chunk's own
/// are estimated to.
const SHARED_PARTS: u64 = 32;
const OWN_PARTS: u64 = 33;
/// Estimated bits of a codebook that a chunk stores: its head, the first length and sizes of streams; for each symbol.
const BOOK_BITS: u64 = 16 + 12 + 64;
const SYMBOL_BITS: u64 = 3;
/// Estimated bits of the sizes of the streams of a block, where they are varints.
const STREAMS_BITS: u64 = 4 * 8;
const WIDE_BITS: u64 = 32;

/// Appends the payload of a chunk of the preset `balanced`: with the codebook of the stream, if there is one and codes of
/// the chunk's own are not smaller.
pub(crate) fn encode<T: Real>(
    values: &[T],
    quantizer: &Quantizer<T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> CodecId {
    let start = out.len();
    if let Some(codebook) = chunk.books.codebook()
        && encode_shared(values, quantizer, codebook, chunk, out)
    {
        return CodecId::Shared;
    }
    let shared_bytes = out.len() - start;
    Balanced::encode(values, quantizer, chunk, out);
    let own_bytes = out.len() - start - shared_bytes;
    if shared_bytes > 0 && shared_bytes <= own_bytes {
        out.truncate(start + shared_bytes);
        return CodecId::Shared;
    }
    out.drain(start..start + shared_bytes);
    CodecId::Balanced
}

/// Appends a chunk that is coded with this codebook. Returns whether codes of its own would hardly take less.
fn encode_shared<T: Real>(
    values: &[T],
    quantizer: &Quantizer<T>,
    codebook: &Codebook,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    out.extend_from_slice(&codebook.id().to_le_bytes());
    let mut split = Split::new(values, quantizer, chunk, out);
    let mut symbols: Vec<u8> = scratch::take(split.parts.bytes.len());
    let cost = encode_symbols(&mut split, codebook, &mut symbols, out);
    scratch::give(symbols);
    split.parts.write_tail(out);
    padding::pad(out, start, values.len());
    cost.shared * SHARED_PARTS <= cost.own * OWN_PARTS
}

/// The codec of chunks that are coded with the codebook of their stream.
pub(crate) struct Shared;

impl<T: Real> ChunkCodec<T> for Shared {
    const ID: CodecId = CodecId::Shared;
    type Settings<'a>
        = &'a Quantizer<T>
    where
        T: 'a;

    fn encode(values: &[T], quantizer: Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        let Some(codebook) = chunk.books.codebook() else { return false };
        encode_shared(values, quantizer, codebook, chunk, out);
        true
    }

    /// As chunks with codes of their own.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        <super::Balanced as ChunkCodec<T>>::decode_bytes(payload_bytes, chunk)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        let Some(codebook) = chunk.books.codebook() else {
            return Err(Error::corrupt("chunk is coded with a codebook, and the stream has none"));
        };
        let mut bytes = Bytes::new(payload);
        let id = u32::from_le_bytes(bytes.array()?);
        if id != codebook.id() {
            return Err(Error::corrupt(format!(
                "chunk is coded with the codebook {id:08x}, and the stream has {:08x}",
                codebook.id()
            )));
        }
        let head = Head::read_from(&mut bytes, chunk, payload.len())?;
        let n_groups = out.len().div_ceil(GROUP);
        let mut symbols: Vec<u8> = scratch::try_take(n_groups * GROUP)?;
        let class_symbols = &mut symbols[..head.n_class_symbols];
        read_symbols(&mut bytes, codebook.classes(), class_symbols)?;
        let mut classes = filled(0, n_groups)?;
        read_classes(class_symbols, &mut classes)?;

        let sorted = Sorted::by_book(&classes, codebook.book_of())?;
        let mut books = Vec::with_capacity(N_CLASSES);
        let mut left = &mut symbols[..];
        for (book, groups) in sorted.books() {
            let book = &codebook.of_classes()[book];
            let alphabet = Alphabet::ALL[book.alphabet()];
            let (symbols, after) = std::mem::take(&mut left).split_at_mut(groups.len() * GROUP / alphabet.width());
            left = after;
            read_symbols(&mut bytes, book, symbols)?;
            books.push((groups, alphabet));
        }
        let mut rest: Vec<u8> = scratch::try_take(head.n_rest)?;
        read_symbols(&mut bytes, codebook.literals(), &mut rest)?;
        head.restore(&Decoded { classes: &classes, books, symbols: &symbols, rest: &rest }, bytes, chunk, out)?;
        scratch::give(rest);
        scratch::give(symbols);
        Ok(())
    }
}

/// Appends head and symbols of a chunk, for which `symbols` has room.
fn encode_symbols(split: &mut Split, codebook: &Codebook, symbols: &mut [u8], out: &mut Vec<u8>) -> Cost {
    let parts = &mut split.parts;
    let class_symbols = class_symbols(&parts.classes);
    let mut cost = Cost::default();
    cost.add(codebook.classes(), &simd::run(Count(&class_symbols)), class_symbols.len(), true);
    let sorted = Sorted::by_book(&parts.classes, codebook.book_of()).expect(MEMORY_WAS_CHECKED);
    let mut rest = Vec::new();
    let mut coded: Vec<(&Book, &[u8])> = Vec::with_capacity(N_CLASSES);
    let mut left = symbols;
    let mut has_wide = false;
    for (book, groups) in sorted.books() {
        let book = &codebook.of_classes()[book];
        let alphabet = Alphabet::ALL[book.alphabet()];
        let (symbols, after) = std::mem::take(&mut left).split_at_mut(groups.len() * GROUP / alphabet.width());
        left = after;
        let bytes = parts.bytes.as_chunks::<GROUP>().0;
        let gather =
            Gather { bytes, groups, alphabet, coded: Some(book.coded()), symbols: &mut *symbols, rest: &mut rest };
        let counts = simd::run(gather);
        has_wide |= alphabet == Alphabet::Singles && counts[usize::from(WIDE)] > 0;
        cost.add(book, &counts, symbols.len(), groups.len() >= OWN_BOOK_GROUPS);
        coded.push((book, symbols));
    }
    if !rest.is_empty() {
        cost.add(codebook.literals(), &simd::run(Count(&rest)), rest.len(), true);
    }
    if has_wide {
        let wide = widened(parts, codebook);
        cost.shared += WIDE_BITS * (wide.len() - parts.wide.len()) as u64;
        parts.wide = wide;
    }
    split.write_head(class_symbols.len(), rest.len(), out);
    write_symbols(codebook.classes(), &class_symbols, out);
    coded.into_iter().for_each(|(book, symbols)| write_symbols(book, symbols, out));
    write_symbols(codebook.literals(), &rest, out);
    cost
}

/// Bits with the codebook, and an estimate of those with codes of the chunk's own.
#[derive(Default)]
struct Cost {
    shared: u64,
    own: u64,
}

impl Cost {
    /// Adds symbols of these counts. Those that would have no book of their own cost the same either way; of others the
    /// entropy counts, as they may have another alphabet, whose codes come closer to it.
    fn add(&mut self, book: &Book, counts: &[u32; 256], n_symbols: usize, has_own_book: bool) {
        let shared = book.bits(counts) + n_symbols.div_ceil(huffman::BLOCK) as u64 * STREAMS_BITS;
        let n_used: u64 = counts.iter().map(|n| u64::from(*n > 0)).sum();
        let entropy = x_log2_x(n_symbols as u32).saturating_sub(counts.iter().map(|n| x_log2_x(*n)).sum());
        self.shared += shared;
        self.own += if has_own_book { (entropy >> COST_BITS) + BOOK_BITS + SYMBOL_BITS * n_used } else { shared };
    }
}

/// All wide differences of a chunk: those that were wide before, and those whose byte has no code.
fn widened(parts: &Apart, codebook: &Codebook) -> Vec<i32> {
    let mut wide = Vec::with_capacity(parts.wide.len());
    let mut known = parts.wide.iter();
    let mut low = &parts.low[..];
    for (bytes, &class) in
        parts.bytes.as_chunks::<GROUP>().0.iter().zip(&parts.classes).filter(|(_, class)| **class != 0)
    {
        let book = &codebook.of_classes()[usize::from(codebook.book_of()[usize::from(class)])];
        let is_wide = |byte: &u8| {
            *byte == WIDE || (book.alphabet() == Alphabet::Singles as usize && book.coded()[usize::from(*byte)] == WIDE)
        };
        let (low_bits, after) = low.split_at(groups::low_bytes(class));
        low = after;
        if !bytes.iter().any(is_wide) {
            continue;
        }
        let mut padded = [0; 4 * GROUP + 8];
        padded[..low_bits.len()].copy_from_slice(low_bits);
        let mut group = [0; GROUP];
        groups::join(class, bytes, &padded, &mut group);
        for (d, byte) in group.into_iter().zip(bytes).filter(|(_, byte)| is_wide(byte)) {
            wide.extend(if *byte == WIDE { known.next().copied() } else { Some(d) });
        }
    }
    wide
}

/// Appends the sizes of the streams of symbols, and these.
fn write_symbols(book: &Book, symbols: &[u8], out: &mut Vec<u8>) {
    let (mut streams, mut sizes) = (scratch::take::<u8>(0), Vec::new());
    streams.clear();
    huffman::encode(symbols, Classes::Same(0), std::slice::from_ref(book.codes()), &mut streams, &mut sizes);
    sizes.iter().for_each(|size| varint::write_to(u64::from(*size), out));
    out.extend_from_slice(&streams);
    scratch::give(streams);
}

/// Reads what [`write_symbols`] wrote.
fn read_symbols(bytes: &mut Bytes<'_>, book: &Book, symbols: &mut [u8]) -> Result<()> {
    if symbols.is_empty() {
        return Ok(());
    }
    let too_long = || Error::corrupt("chunk has a stream of an impossible size");
    // Each of them takes a byte at least.
    let n_streams = huffman::n_streams(symbols.len());
    if n_streams > bytes.len() {
        return Err(too_long());
    }
    let mut sizes = Vec::with_capacity(n_streams);
    for _ in 0..n_streams {
        sizes.push(u16::try_from(varint::read_from(bytes)?).map_err(|_| too_long())?);
    }
    let n_bytes = sizes.iter().map(|size| usize::from(*size)).sum();
    huffman::decode(bytes.take(n_bytes)?, &sizes, Classes::Same(0), book.tables(), symbols)
}

/// Counts what a chunk codes.
pub(super) fn count(parts: &Apart, class_symbols: &[u8], training: &Training) {
    let own_book: [u8; N_CLASSES] = std::array::from_fn(|class| class as u8);
    let sorted = Sorted::by_book(&parts.classes, &own_book).expect(MEMORY_WAS_CHECKED);
    let mut symbols: Vec<u8> = scratch::take(parts.bytes.len());
    let mut samples = Vec::new();
    let mut rest = Vec::new();
    for (class, groups) in sorted.books() {
        let mut sample = ClassSample {
            class: class as u8,
            n_groups: groups.len(),
            symbols: [[0; 256]; Alphabet::ALL.len()],
            literals: [[0; 256]; Alphabet::ALL.len()],
        };
        for alphabet in Alphabet::ALL {
            rest.clear();
            let bytes = parts.bytes.as_chunks::<GROUP>().0;
            let symbols = &mut symbols[..groups.len() * GROUP / alphabet.width()];
            let gather = Gather { bytes, groups, alphabet, coded: None, symbols, rest: &mut rest };
            sample.symbols[alphabet as usize] = simd::run(gather);
            sample.literals[alphabet as usize] = simd::run(Count(&rest));
        }
        samples.push(sample);
    }
    scratch::give(symbols);
    training.add_chunk(&simd::run(Count(class_symbols)), &samples);
}
