//! Decodes streams of codes (docs/format.md, 8.3). Several streams are decoded at once, since each look-up depends on
//! the previous one of its stream.

#![allow(unsafe_code)]

use super::tables::{DecodeTables, IS_LONG, LongCodes, MAX_TABLE_BITS};
use super::{BLOCK, Classes, GROUP_SYMBOLS, MAX_BITS, STREAM_GROUPS, STREAMS, Symbol, n_streams, stream_start};
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::num::simd::{self, Kernel};

/// As [`simd::scalar`].
#[inline(always)]
fn scalar(value: u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = value;
        // SAFETY: there is no instruction.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    value
}

/// The next bits of a stream, and the byte that they come from.
///
/// A 1 is stored above the bits. The number of zeros above it is the number of bits taken since the refill.
#[derive(Clone, Copy)]
struct Next {
    bits: u64,
    at: usize,
}

impl Next {
    const END: u64 = 1 << 63;

    /// Has at least this many bits after a refill.
    const LEAST: u32 = 56;

    /// The start of a stream; a refill must follow.
    const START: Self = Self { bits: Self::END, at: 0 };

    /// Loads bits from the first unused one on, with zeros beyond the end.
    #[inline(always)]
    fn refill(&mut self, bytes: &[u8]) {
        let n_used = self.bits.leading_zeros();
        self.at += (n_used / 8) as usize;
        let rest = bytes.get(self.at..).unwrap_or_default();
        let next = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        self.bits = (u64::from_le_bytes(next) | Self::END) >> (n_used & 7);
    }

    /// The bits that were taken since the start.
    fn n_taken(&self) -> usize {
        8 * self.at + self.bits.leading_zeros() as usize
    }
}

/// As [`Next`], for loops that have checked how far they can go.
#[derive(Clone, Copy)]
struct NextUnchecked {
    bits: u64,
    from: *const u8,
}

impl NextUnchecked {
    fn new(bytes: &[u8], next: Next) -> Self {
        Self { bits: next.bits, from: bytes[next.at..].as_ptr() }
    }

    /// The byte that the bits come from; `bytes` are those that it was made with.
    fn at(self, bytes: &[u8]) -> usize {
        self.from.addr() - bytes.as_ptr().addr()
    }

    fn checked(self, bytes: &[u8]) -> Next {
        Next { bits: self.bits, at: self.at(bytes) }
    }

    /// # Safety
    /// There are at least 16 bytes where the bits come from.
    #[inline(always)]
    unsafe fn refill(&mut self) {
        let n_used = scalar(self.bits).leading_zeros();
        // SAFETY: less than 64 bits were used, so there are eight bytes behind the first that was not.
        let next = unsafe {
            self.from = self.from.add((n_used / 8) as usize);
            self.from.cast::<[u8; 8]>().read_unaligned()
        };
        self.bits = scalar((u64::from_le_bytes(next) | Next::END) >> (n_used & 7));
    }
}

/// Decodes as many symbols as `out` has, from streams of these sizes in bytes. Every byte may be hostile; `out` may be
/// partly written on error.
pub(crate) fn decode<T: Symbol>(
    bytes: &[u8],
    sizes: &[u16],
    classes: Classes<'_>,
    tables: &DecodeTables<T>,
    out: &mut [T],
) -> Result<()> {
    if sizes.len() != n_streams(out.len()) || sizes.iter().map(|&n| usize::from(n)).sum::<usize>() != bytes.len() {
        return Err(Error::corrupt("streams of codes have the wrong length"));
    }
    if !classes.are_valid(out.len(), |class| tables.is_empty.get(usize::from(class)) == Some(&false)) {
        return Err(Error::corrupt("group has a codebook that does not exist"));
    }
    simd::run(Decode { bytes, sizes, classes, tables, out })
}

pub(super) struct Decode<'a, T: Symbol> {
    pub(super) bytes: &'a [u8],
    pub(super) sizes: &'a [u16],
    pub(super) classes: Classes<'a>,
    pub(super) tables: &'a DecodeTables<T>,
    pub(super) out: &'a mut [T],
}

impl<T: Symbol> Kernel for Decode<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        let Self { bytes, sizes, classes, tables, out } = self;
        let same = classes.same();
        // The last streams are copied, so that the decoder may read beyond their end.
        let n_direct = sizes.len().saturating_sub(2 * STREAMS);
        let n_direct_bytes = sizes[..n_direct].iter().map(|&n| usize::from(n)).sum::<usize>();
        let mut last_bytes = bytes[n_direct_bytes..].to_vec();
        last_bytes.resize(last_bytes.len() + SLACK, 0);

        let mut streams = Vec::new();
        reserve(&mut streams, sizes.len())?;
        let (mut at, mut symbol) = (0, 0);
        for (i, &size) in sizes.iter().enumerate() {
            let block = i / STREAMS * BLOCK;
            let n_block = BLOCK.min(out.len() - block);
            let n_symbols = stream_start(n_block, i % STREAMS + 1) - stream_start(n_block, i % STREAMS);
            streams.push(BitStream {
                bytes: if i < n_direct { &bytes[at..] } else { &last_bytes[at - n_direct_bytes..] },
                n_bytes: usize::from(size),
                classes: classes.from(&same, symbol),
                n_symbols,
                next: Next::START,
                n_done: 0,
            });
            at += usize::from(size);
            symbol += n_symbols;
        }
        if tables.several.is_empty() {
            decode_grouped(&mut streams, tables, out)
        } else {
            decode_ungrouped(&streams, tables, out)
        }
    }
}

/// How many bytes beyond a stream may be read: those of a group, those not used before it, and those of the last
/// refill.
const SLACK: usize = GROUP_SYMBOLS * MAX_BITS as usize / 8 + 8 + 8;

/// A stream that is being decoded.
#[derive(Clone, Copy)]
struct BitStream<'a> {
    /// Its bytes, and all that follow in memory.
    bytes: &'a [u8],
    n_bytes: usize,
    classes: &'a [u8],
    n_symbols: usize,
    next: Next,
    /// How many symbols are decoded.
    n_done: usize,
}

impl BitStream<'_> {
    /// Decodes the remaining symbols, and checks that the stream ends in its last byte, padded with zeros.
    #[inline(always)]
    fn finish<T: Symbol>(&self, tables: &DecodeTables<T>, out: &mut [T]) -> Result<()> {
        let bytes = &self.bytes[..self.n_bytes];
        let (mut next, mut n_done) = (self.next, self.n_done);
        while !tables.several.is_empty() && n_done + T::SEVERAL <= out.len() {
            next.refill(bytes);
            let entry = tables.several[next.bits as usize % (1 << MAX_TABLE_BITS)];
            if entry as u32 & IS_LONG != 0 {
                break;
            }
            for (i, symbol) in out[n_done..n_done + T::SEVERAL].iter_mut().enumerate() {
                *symbol = T::of_low_bits(entry >> (16 + 8 * i * size_of::<T>()));
            }
            n_done += (entry >> 8 & 0xff) as usize;
            next.bits >>= entry & 63;
        }
        for (i, symbol) in out.iter_mut().enumerate().skip(n_done) {
            let class = self.classes[i / GROUP_SYMBOLS];
            next.refill(bytes);
            let entry: u64 = tables.entries[tables.index(class, next.bits)].into();
            if entry as u32 & IS_LONG != 0 {
                let n_bits;
                (*symbol, n_bits) = tables.long[usize::from(class)].find(next.bits);
                next.bits >>= n_bits;
            } else {
                *symbol = T::of_low_bits(entry >> 8);
                next.bits >>= entry & 63;
            }
        }
        let n_bits = next.n_taken();
        let is_padded = n_bits.is_multiple_of(8) || bytes.last().is_some_and(|last| last >> (n_bits % 8) == 0);
        if n_bits.div_ceil(8) == self.n_bytes && is_padded {
            Ok(())
        } else {
            Err(Error::corrupt("stream of codes has the wrong length"))
        }
    }
}

/// The state of a stream in memory.
pub(super) const STREAM_BYTES: u64 = size_of::<BitStream<'_>>() as u64;

/// Symbols of a stream, at most.
const STREAM: usize = STREAM_GROUPS * GROUP_SYMBOLS;

/// Decodes streams whose groups have codebooks of their own: eight streams at once, or four, since long codes leave fewer
/// registers.
#[inline(always)]
fn decode_grouped<T: Symbol>(streams: &mut [BitStream<'_>], tables: &DecodeTables<T>, out: &mut [T]) -> Result<()> {
    let (blocks, last) = out.as_chunks_mut::<BLOCK>();
    let (pairs, blocks) = if tables.long.is_empty() { blocks.as_chunks_mut::<2>() } else { (&mut [][..], blocks) };
    let mut left = streams.as_chunks_mut::<STREAMS>().0;
    let mut cut = |n: usize| left.split_off_mut(..n).expect("there are four streams for each block").as_flattened_mut();
    for pair in pairs {
        let symbols = pair.as_flattened_mut().as_chunks_mut().0.first_chunk_mut().expect("eight streams");
        decode_streams::<T, 8, false>(cut(2).first_chunk_mut().expect("eight streams"), tables, symbols)?;
    }
    let decode_block = |streams: &mut [BitStream<'_>], symbols: &mut [[T; STREAM]; STREAMS]| {
        let streams = streams.first_chunk_mut().expect("four streams");
        if tables.long.is_empty() {
            decode_streams::<T, STREAMS, false>(streams, tables, symbols)
        } else {
            decode_streams::<T, STREAMS, true>(streams, tables, symbols)
        }
    };
    for block in blocks {
        decode_block(cut(1), block.as_chunks_mut().0.first_chunk_mut().expect("four streams"))?;
    }
    if !last.is_empty() {
        // Decodes to a buffer in which streams have a fixed distance: this is faster despite the copy.
        let streams = cut(1);
        let mut symbols = [[T::default(); STREAM]; STREAMS];
        decode_block(streams, &mut symbols)?;
        let all = streams.iter().zip(&symbols).flat_map(|(stream, symbols)| &symbols[..stream.n_symbols]);
        last.iter_mut().zip(all).for_each(|(to, symbol)| *to = *symbol);
    }
    Ok(())
}

#[inline(always)]
fn decode_streams<T: Symbol, const N: usize, const HAS_LONG: bool>(
    streams: &mut [BitStream<'_>; N],
    tables: &DecodeTables<T>,
    out: &mut [[T; STREAM]; N],
) -> Result<()> {
    decode_groups::<T, N, HAS_LONG>(streams, tables, out);
    streams.iter().zip(out).try_for_each(|(stream, out)| stream.finish(tables, &mut out[..stream.n_symbols]))
}

/// Decodes whole groups of all streams, as long as there are bytes.
///
/// A stream may be read beyond its end, as long as the memory is valid. Such streams are detected afterwards.
#[inline(always)]
fn decode_groups<T: Symbol, const N: usize, const HAS_LONG: bool>(
    streams: &mut [BitStream<'_>; N],
    tables: &DecodeTables<T>,
    out: &mut [[T; STREAM]; N],
) {
    /// Codes between refills.
    const AT_ONCE: usize = 4;
    const _: () = assert!(AT_ONCE as u32 * MAX_TABLE_BITS <= Next::LEAST);

    let n_groups = streams.iter().map(|stream| stream.n_symbols / GROUP_SYMBOLS).min().unwrap_or(0).min(STREAM_GROUPS);
    let mut next: [NextUnchecked; N] = std::array::from_fn(|i| NextUnchecked::new(streams[i].bytes, streams[i].next));
    let mask = tables.mask();
    let mut group = 0;
    while group < n_groups && (0..N).all(|i| next[i].at(streams[i].bytes) + SLACK <= streams[i].bytes.len()) {
        let entries: [*const T::Entry; N] = std::array::from_fn(|i| {
            let class = usize::from(streams[i].classes[group]);
            tables.entries[class << tables.table_bits..(class + 1) << tables.table_bits].as_ptr()
        });
        for turn in 0..GROUP_SYMBOLS / AT_ONCE {
            for i in 0..N {
                // SAFETY: all bytes that a group can need are there.
                unsafe { next[i].refill() };
            }
            for k in 0..AT_ONCE {
                for i in 0..N {
                    // SAFETY: the table of a class has an entry for each number of `table_bits` bits.
                    let entry: u64 = unsafe { *entries[i].add((next[i].bits & mask) as usize) }.into();
                    let mut symbol = T::of_low_bits(entry >> 8);
                    if HAS_LONG && entry as u32 & IS_LONG != 0 {
                        let long = &tables.long[usize::from(streams[i].classes[group])];
                        // SAFETY: as above.
                        (symbol, next[i]) = unsafe { decode_long(long, next[i]) };
                    } else {
                        next[i].bits >>= entry & 63;
                    }
                    // SAFETY: there are no more groups than that.
                    unsafe { *out[i].get_unchecked_mut(group * GROUP_SYMBOLS + turn * AT_ONCE + k) = symbol };
                }
            }
        }
        group += 1;
    }
    for (stream, next) in streams.iter_mut().zip(next) {
        (stream.next, stream.n_done) = (next.checked(stream.bytes), group * GROUP_SYMBOLS);
    }
}

/// Decodes a long code. Refills the bits afterwards.
///
/// # Safety
/// As for [`NextUnchecked::refill`], and for four bytes more.
#[cold]
#[inline(never)]
unsafe fn decode_long<T: Symbol>(long: &LongCodes<T>, mut next: NextUnchecked) -> (T, NextUnchecked) {
    // SAFETY: given by the caller.
    unsafe { next.refill() };
    let (symbol, n_bits) = long.find(next.bits);
    next.bits >>= n_bits;
    // SAFETY: as above.
    unsafe { next.refill() };
    (symbol, next)
}

/// Decodes streams that share one codebook, by look-ups of several symbols. Several streams are decoded at once: when
/// one of them ends, the next one replaces it.
#[inline(always)]
fn decode_ungrouped<T: Symbol>(streams: &[BitStream<'_>], tables: &DecodeTables<T>, mut out: &mut [T]) -> Result<()> {
    const N: usize = 4;
    let mut left = streams.iter();
    let mut next_stream = || {
        let stream = *left.next()?;
        let symbols = out.split_off_mut(..stream.n_symbols).expect("there is room for all symbols");
        Some((stream, symbols))
    };
    // There are four streams at least, or none.
    let [Some(a), Some(b), Some(c), Some(d)] = std::array::from_fn::<_, N, _>(|_| next_stream()) else { return Ok(()) };
    let mut active = [a, b, c, d];
    loop {
        let ended = decode_several(tables, &mut active);
        let (stream, symbols) = &mut active[ended];
        stream.finish(tables, symbols)?;
        let Some(next) = next_stream() else {
            for (_, last) in active.iter_mut().enumerate().filter(|(i, _)| *i != ended) {
                decode_several(tables, std::array::from_mut(last));
                last.0.finish(tables, last.1)?;
            }
            return Ok(());
        };
        active[ended] = next;
    }
}

/// Decodes by lookups of several symbols until one of the streams has too few left for that, which it returns.
#[inline(always)]
fn decode_several<T: Symbol, const N: usize>(
    tables: &DecodeTables<T>,
    active: &mut [(BitStream<'_>, &mut [T]); N],
) -> usize {
    /// Lookups between refills.
    const AT_ONCE: usize = 5;
    const _: () = assert!(AT_ONCE as u32 * MAX_TABLE_BITS <= Next::LEAST);
    /// Bytes that a turn can take.
    const STEP: usize = (MAX_BITS as usize + AT_ONCE * MAX_TABLE_BITS as usize).div_ceil(8) + 1;

    let entries: &[u64; 1 << MAX_TABLE_BITS] = tables.several.first_chunk().expect("the table is there");
    let n_symbols: [usize; N] = std::array::from_fn(|i| active[i].1.len());
    let start: [*mut T; N] = std::array::from_fn(|i| active[i].1.as_mut_ptr());
    let mut next: [NextUnchecked; N] = std::array::from_fn(|i| NextUnchecked::new(active[i].0.bytes, active[i].0.next));
    // SAFETY: no more are done than there are.
    let mut to: [*mut T; N] = std::array::from_fn(|i| unsafe { start[i].add(active[i].0.n_done) });
    loop {
        // As many turns as are certain not to exceed input and output. Symbols are stored eight bytes at a time.
        let (mut ended, mut n_turns) = (0, usize::MAX);
        for i in 0..N {
            let stream = &mut active[i].0;
            // SAFETY: one comes from the other.
            stream.n_done = unsafe { to[i].offset_from_unsigned(start[i]) };
            stream.next = next[i].checked(stream.bytes);
            let n_bytes = stream.bytes.len().saturating_sub(stream.next.at + 16);
            let n_left = (n_symbols[i] - stream.n_done).saturating_sub(8 / size_of::<T>());
            let n = (n_bytes / STEP).min(n_left / (AT_ONCE * T::SEVERAL + 1));
            (ended, n_turns) = if n < n_turns { (i, n) } else { (ended, n_turns) };
        }
        if n_turns == 0 {
            return ended;
        }
        for _ in 0..n_turns {
            for i in 0..N {
                // SAFETY: there are bytes for all turns.
                unsafe { next[i].refill() };
            }
            // Look-ups stop at a long code, whose entry has no symbols and no bits.
            for i in 0..N {
                if entries[next[i].bits as usize % entries.len()] as u32 & IS_LONG != 0 {
                    let (symbol, n_bits) = tables.long[0].find(next[i].bits);
                    next[i].bits >>= n_bits;
                    // SAFETY: there are bytes and room for one more symbol in each turn.
                    unsafe {
                        next[i].refill();
                        to[i].write(symbol);
                        to[i] = to[i].add(1);
                    }
                }
            }
            for _ in 0..AT_ONCE {
                for i in 0..N {
                    let entry = entries[next[i].bits as usize % entries.len()];
                    // SAFETY: there is room for the symbols of all turns and for one more store.
                    unsafe {
                        to[i].cast::<u64>().write_unaligned((entry >> 16).to_le());
                        to[i] = to[i].add((entry >> 8 & 0xff) as usize);
                    }
                    next[i].bits >>= entry & 63;
                }
            }
        }
    }
}
