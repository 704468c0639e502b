//! Huffman coding of symbols under static codebooks: lengths of codes and their bytes, and streams of codes
//! (docs/format.md, 8).
//!
//! A codebook is given by the lengths of its codes. Symbols are cut into groups of 32 that share a codebook, and into
//! blocks of 4096 whose groups go to four streams. Streams depend only on the codebooks. A CPU decodes several at once,
//! since each look-up depends on the previous one of its stream; a GPU has a thread for each.

mod decode;
mod encode;
mod lengths;
pub(crate) mod packed;
mod tables;
#[cfg(test)]
mod tests;

pub(crate) use decode::decode;
pub(crate) use encode::{Codebook, encode};
pub(crate) use lengths::Lengths;
pub(crate) use tables::DecodeTables;

/// Symbols that share a codebook.
pub(crate) const GROUP_SYMBOLS: usize = 32;
/// Symbols in a block; the last block may have fewer.
pub(crate) const BLOCK: usize = 4096;
/// Streams of a block.
pub(crate) const STREAMS: usize = 4;
/// Groups of a stream, at most.
const STREAM_GROUPS: usize = BLOCK / GROUP_SYMBOLS / STREAMS;
/// The longest code of any codebook.
pub(crate) const MAX_BITS: u32 = 24;
/// The most symbols that a codebook may have.
pub(crate) const MAX_ALPHABET: usize = 1 << 16;

/// The number of streams of `n_symbols` symbols.
pub(crate) fn n_streams(n_symbols: usize) -> usize {
    n_symbols.div_ceil(BLOCK) * STREAMS
}

/// The most memory that [`decode`] takes for so many symbols, and the sizes of their streams.
pub(crate) fn decode_bytes(n_symbols: u64) -> u64 {
    (decode::STREAM_BYTES + size_of::<u16>() as u64) * n_symbols.div_ceil(BLOCK as u64) * STREAMS as u64
}

/// The number of groups of `n_symbols` symbols.
pub(crate) fn n_groups(n_symbols: usize) -> usize {
    n_symbols.div_ceil(GROUP_SYMBOLS)
}

/// Symbols before stream `stream` of a block of `n_symbols`: groups are dealt out evenly and in order, so only the
/// last stream can have an incomplete group.
#[inline(always)]
fn stream_start(n_symbols: usize, stream: usize) -> usize {
    (n_groups(n_symbols) * stream / STREAMS * GROUP_SYMBOLS).min(n_symbols)
}

/// Symbols of one or two bytes, and the tables that suit them.
pub(crate) trait Symbol: Copy + Default + Into<usize> + std::fmt::Debug + 'static {
    /// Codes by symbol. For one-byte symbols the table has an entry for each, so no bounds check is needed.
    type Codes: ?Sized;
    /// A symbol above the length of its code, which is the low byte.
    type Entry: Copy + Default + Into<u64>;
    /// Symbols in an entry of several.
    const SEVERAL: usize;

    fn codes(codebook: &Codebook) -> &Self::Codes;
    fn code(self, codes: &Self::Codes) -> u32;
    fn entry(symbol: usize, n_bits: u32) -> Self::Entry;
    /// The low bits of a number.
    fn of_low_bits(bits: u64) -> Self;
}

impl Symbol for u8 {
    type Codes = [u32; 256];
    type Entry = u16;
    const SEVERAL: usize = 6;

    #[inline(always)]
    fn codes(codebook: &Codebook) -> &Self::Codes {
        codebook.codes.first_chunk().expect("a codebook has at least 256 entries")
    }
    #[inline(always)]
    fn code(self, codes: &Self::Codes) -> u32 {
        codes[usize::from(self)]
    }
    fn entry(symbol: usize, n_bits: u32) -> u16 {
        (symbol << 8) as u16 | n_bits as u16
    }
    #[inline(always)]
    fn of_low_bits(bits: u64) -> Self {
        bits as u8
    }
}

impl Symbol for u16 {
    type Codes = [u32];
    type Entry = u32;
    const SEVERAL: usize = 3;

    #[inline(always)]
    fn codes(codebook: &Codebook) -> &Self::Codes {
        &codebook.codes
    }
    #[inline(always)]
    fn code(self, codes: &Self::Codes) -> u32 {
        codes[usize::from(self)]
    }
    fn entry(symbol: usize, n_bits: u32) -> u32 {
        (symbol << 8) as u32 | n_bits
    }
    #[inline(always)]
    fn of_low_bits(bits: u64) -> Self {
        bits as u16
    }
}

/// Which codebook each group of symbols has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Classes<'a> {
    /// All groups have this one.
    Same(u8),
    /// One for each group.
    #[cfg_attr(
        not(any(test, feature = "unstable-research")),
        allow(dead_code, reason = "codecs sort groups by codebook; research measures codes without that")
    )]
    PerGroup(&'a [u8]),
}

impl<'a> Classes<'a> {
    /// Whether there are as many as groups, and all satisfy a condition.
    fn are_valid(&self, n_symbols: usize, is_valid: impl Fn(u8) -> bool) -> bool {
        match *self {
            Classes::Same(class) => n_symbols == 0 || is_valid(class),
            Classes::PerGroup(classes) => {
                let mut is_there = [false; 256];
                classes.iter().for_each(|&class| is_there[usize::from(class)] = true);
                classes.len() == n_groups(n_symbols)
                    && (0..=255).all(|class| !is_there[usize::from(class)] || is_valid(class))
            }
        }
    }

    /// Those of at most [`STREAM_GROUPS`] groups from that of symbol `start` on.
    #[inline(always)]
    fn from<'s>(self, same: &'s [u8; STREAM_GROUPS], start: usize) -> &'s [u8]
    where
        'a: 's,
    {
        match self {
            Classes::Same(_) => same,
            Classes::PerGroup(classes) => &classes[start / GROUP_SYMBOLS..],
        }
    }

    fn same(&self) -> [u8; STREAM_GROUPS] {
        match *self {
            Classes::Same(class) => [class; STREAM_GROUPS],
            Classes::PerGroup(_) => [0; STREAM_GROUPS],
        }
    }
}
