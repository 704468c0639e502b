//! Huffman coding of symbols under static codebooks: lengths of codes and their bytes, and streams of codes
//! (docs/format.md, 8).
//!
//! A codebook is known by the lengths of its codes. Symbols are cut into groups of 32 that share a codebook, and into
//! blocks of 4096 whose groups go to four streams. Streams depend on nothing but the codebooks: several are decoded at
//! once, since each lookup has to wait for the one before it in its stream, and a GPU has a thread for each.

#![allow(unsafe_code)]

use super::binary::{AdaptiveBit, BitCoder, NumberModel};
use super::simd::{self, Job};
use crate::container::checksum::xxh3;
use crate::error::{Error, Result};

/// Symbols that share a codebook.
pub(crate) const GROUP: usize = 32;
/// Symbols in a block; the last block may have fewer.
pub(crate) const BLOCK: usize = 4096;
/// Streams of a block.
pub(crate) const STREAMS: usize = 4;
/// Groups of a stream, at most.
const STREAM_GROUPS: usize = BLOCK / GROUP / STREAMS;
/// The longest code of any codebook.
pub(crate) const MAX_BITS: u32 = 24;
/// The most symbols that a codebook may have.
pub(crate) const MAX_ALPHABET: usize = 1 << 16;

/// How many streams so many symbols have.
pub(crate) fn n_streams(n_symbols: usize) -> usize {
    n_symbols.div_ceil(BLOCK) * STREAMS
}

/// How many groups so many symbols have.
pub(crate) fn n_groups(n_symbols: usize) -> usize {
    n_symbols.div_ceil(GROUP)
}

/// Symbols before stream `stream` of a block of `n_symbols`: groups are dealt out evenly and in order, so only the
/// last stream can have an incomplete group.
#[inline(always)]
fn stream_start(n_symbols: usize, stream: usize) -> usize {
    (n_groups(n_symbols) * stream / STREAMS * GROUP).min(n_symbols)
}

// ---- Lengths of codes ----

/// The length of each symbol's code: a complete prefix code, or that of a single symbol, which takes no bits, or of
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    bits: Vec<u8>,
}

impl Lengths {
    /// Stands for the length of a symbol that has no code.
    pub(crate) const NO_CODE: u8 = 0xff;

    /// The lengths that code symbols of these counts in the fewest bits, none above `max_bits` (or above what so many
    /// symbols need). Symbols of count 0 have no code.
    pub(crate) fn fit(counts: &[u32], max_bits: u32) -> Self {
        assert!(counts.len() <= MAX_ALPHABET && max_bits <= MAX_BITS, "codebooks are not that large");
        let mut bits = vec![Self::NO_CODE; counts.len()];
        let used = (0_u64..).zip(counts).filter(|(_, count)| **count != 0);
        // Rare symbols first, equally frequent ones in order.
        let mut order: Vec<u64> = used.map(|(symbol, count)| u64::from(*count) << 16 | symbol).collect();
        order.sort_unstable();
        let depths = package_merge(&order.iter().map(|key| key >> 16).collect::<Vec<u64>>(), max_bits);
        for (key, depth) in order.iter().zip(depths) {
            bits[(key & 0xffff) as usize] = depth;
        }
        Self { bits }
    }

    /// Lengths made elsewhere, [`Lengths::NO_CODE`] where there is none.
    pub(crate) fn new(bits: Vec<u8>) -> Result<Self> {
        let mut n_used = 0_usize;
        let mut sum = 0_u64;
        for &n_bits in bits.iter().filter(|n_bits| **n_bits != Self::NO_CODE) {
            if u32::from(n_bits) > MAX_BITS {
                return Err(Error::corrupt("code is too long"));
            }
            n_used += 1;
            sum += 1 << (MAX_BITS - u32::from(n_bits));
        }
        // A code of no bits is the only one.
        if bits.len() <= MAX_ALPHABET && (sum == 1 << MAX_BITS || n_used == 0) {
            Ok(Self { bits })
        } else {
            Err(Error::corrupt("lengths are not those of a complete code"))
        }
    }

    /// The length of each symbol's code, [`Lengths::NO_CODE`] where there is none.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// The bits of symbols of these counts; `u64::MAX` if one of them has no code.
    pub(crate) fn cost_bits(&self, counts: &[u32]) -> u64 {
        if counts.iter().skip(self.bits.len()).any(|&count| count != 0) {
            return u64::MAX;
        }
        let mut cost = 0;
        let mut is_coded = true;
        for (&count, &n_bits) in counts.iter().zip(&self.bits) {
            is_coded &= count == 0 || n_bits != Self::NO_CODE;
            cost += u64::from(count) * u64::from(n_bits);
        }
        if is_coded { cost } else { u64::MAX }
    }

    /// Whether no symbol has a code.
    fn is_empty(&self) -> bool {
        self.bits.iter().all(|&n_bits| n_bits == Self::NO_CODE)
    }

    /// Writes these lengths by themselves.
    pub(crate) fn write(&self, coder: &mut impl BitCoder) {
        LengthsCoder::default().write(coder, self, None);
    }

    /// Reads the lengths of so many symbols that were written by themselves.
    pub(crate) fn read(coder: &mut impl BitCoder, n_symbols: usize) -> Result<Self> {
        LengthsCoder::default().read(coder, n_symbols, None)
    }

    /// How many codes there are of each length.
    fn count(&self) -> [u32; MAX_BITS as usize + 1] {
        let mut counts = [0; MAX_BITS as usize + 1];
        self.bits
            .iter()
            .filter(|n_bits| **n_bits != Self::NO_CODE)
            .for_each(|n_bits| counts[usize::from(*n_bits)] += 1);
        counts
    }

    /// The canonical code: shorter codes first, those of a length in the order of symbols, each the one before plus 1.
    /// This is the first code of each length, its most significant bit being the first one in the stream.
    fn first_codes(&self) -> [u32; MAX_BITS as usize + 1] {
        let counts = self.count();
        let mut first = [0; MAX_BITS as usize + 1];
        for n_bits in 1..first.len() {
            first[n_bits] = (first[n_bits - 1] + counts[n_bits - 1]) << 1;
        }
        // A code of no bits leaves no others.
        if counts[0] == 0 { first } else { [0; MAX_BITS as usize + 1] }
    }

    fn longest(&self) -> u32 {
        self.bits.iter().filter(|n_bits| **n_bits != Self::NO_CODE).max().map_or(0, |n_bits| u32::from(*n_bits))
    }
}

/// The depths of leaves of these rising weights in the tree of least cost that is no deeper than asked, or than is
/// possible.
///
/// A leaf at depth d is bought once at each of d levels. At the deepest level there are the leaves; at each level above
/// there are the leaves and pairs of what is below, and the cheapest 2 n - 2 items of the top level are what is bought
/// (Larmore and Hirschberg 1990).
fn package_merge(weights: &[u64], max_bits: u32) -> Vec<u8> {
    let n = weights.len();
    if n < 2 {
        return vec![0; n];
    }
    let n_levels = max_bits.max(usize::BITS - (n - 1).leading_zeros()) as usize;
    let mut leaves = Vec::with_capacity(n + 1);
    leaves.extend_from_slice(weights);
    leaves.push(u64::MAX);
    // Which items of each level are leaves.
    let mut is_leaf = vec![1_u8; n_levels * 2 * n];
    let mut below = leaves.clone();
    let mut items = Vec::with_capacity(2 * n + 1);
    for is_leaf in is_leaf.chunks_exact_mut(2 * n).skip(1) {
        let n_pairs = (below.len() - 1) / 2;
        items.clear();
        let (mut leaf, mut pair) = (0, 0);
        let pair_weight = |pair: usize| if pair < n_pairs { below[2 * pair] + below[2 * pair + 1] } else { u64::MAX };
        let mut next_pair = pair_weight(0);
        for is_leaf in &mut is_leaf[..n + n_pairs] {
            let next_leaf = leaves[leaf];
            let takes_leaf = next_leaf <= next_pair;
            *is_leaf = u8::from(takes_leaf);
            items.push(next_leaf.min(next_pair));
            leaf += usize::from(takes_leaf);
            pair += usize::from(!takes_leaf);
            next_pair = pair_weight(pair);
        }
        items.push(u64::MAX);
        std::mem::swap(&mut items, &mut below);
    }
    let mut depths = vec![0; n];
    let mut n_bought = 2 * n - 2;
    for is_leaf in is_leaf.chunks_exact(2 * n).rev() {
        let n_leaves = is_leaf[..n_bought].iter().map(|&leaf| usize::from(leaf)).sum::<usize>();
        depths[..n_leaves].iter_mut().for_each(|depth| *depth += 1);
        n_bought = 2 * (n_bought - n_leaves);
    }
    depths
}

/// What is learnt from the lengths of one codebook to those of the next.
#[derive(Default)]
pub(crate) struct LengthsCoder {
    /// How many symbols without a code are behind the last one that has one.
    n_behind: NumberModel,
    /// By whether the two symbols before have codes, and what is known of this one in the codebook before.
    has_code: [AdaptiveBit; 12],
    /// By whether there is a codebook before, and by how far the one before was off.
    rises: [NumberModel; 6],
}

impl LengthsCoder {
    /// Writes lengths, `before` being those of the codebook before, if there is one.
    pub(crate) fn write(&mut self, coder: &mut impl BitCoder, lengths: &Lengths, before: Option<&Lengths>) {
        let written = self.code(coder, lengths, lengths.bits.len(), before);
        debug_assert!(written.is_ok_and(|written| written == *lengths));
    }

    /// Reads the lengths of so many symbols.
    pub(crate) fn read(
        &mut self,
        coder: &mut impl BitCoder,
        n_symbols: usize,
        before: Option<&Lengths>,
    ) -> Result<Lengths> {
        self.code(coder, &Lengths::default(), n_symbols, before)
    }

    /// Codes lengths, which a decoder ignores, and returns them.
    fn code(
        &mut self,
        coder: &mut impl BitCoder,
        given: &Lengths,
        n_symbols: usize,
        before: Option<&Lengths>,
    ) -> Result<Lengths> {
        const NO_CODE: u8 = Lengths::NO_CODE;
        let given = |symbol: usize| given.bits.get(symbol).copied().unwrap_or(NO_CODE);
        let before = |symbol: usize| before.map(|before| before.bits.get(symbol).copied().unwrap_or(NO_CODE));
        let n_behind = (0..n_symbols).rev().take_while(|&symbol| given(symbol) == NO_CODE).count();
        let n_behind = self.n_behind.code(coder, n_behind as u64);
        let n_coded = usize::try_from(n_behind).ok().and_then(|n_behind| n_symbols.checked_sub(n_behind));
        let n_coded = n_coded.ok_or_else(|| Error::corrupt("codebook has more symbols than there are"))?;

        let mut bits = vec![NO_CODE; n_symbols];
        let mut history = 3;
        for symbol in 0..n_coded {
            let known = before(symbol).map_or(0, |n_bits| 1 + usize::from(n_bits != NO_CODE));
            // That the last of them has a code is known.
            let has_code =
                symbol + 1 == n_coded || coder.bit(&mut self.has_code[4 * known + history], given(symbol) != NO_CODE);
            history = history << 1 & 3 | usize::from(has_code);
            bits[symbol] = if has_code { 0 } else { NO_CODE };
        }
        if bits.iter().filter(|n_bits| **n_bits == 0).count() < 2 {
            return Lengths::new(bits);
        }

        // Of the last symbol that has a code: its length, and that in the codebook before.
        let (mut last, mut last_before) = (n_symbols.ilog2() as i32 / 2 + 1, None);
        let mut off = 0;
        for symbol in 0..n_coded {
            if bits[symbol] == NO_CODE {
                continue;
            }
            let above = before(symbol).filter(|n_bits| *n_bits != NO_CODE).map(i32::from);
            let predicted = match (above, last_before) {
                // The median of both neighbours and of the plane through all three.
                (Some(above), Some(corner)) => {
                    let plane: i32 = last + above - corner;
                    plane.clamp(last.min(above), last.max(above))
                }
                (Some(above), None) => above,
                _ => last,
            };
            let rises = &mut self.rises[3 * usize::from(above.is_some()) + off];
            let rise = rises.code_signed(coder, i64::from(given(symbol)) - i64::from(predicted));
            let n_bits = i64::from(predicted).saturating_add(rise);
            if !(1..=i64::from(MAX_BITS)).contains(&n_bits) {
                return Err(Error::corrupt("code has an impossible length"));
            }
            off = rise.unsigned_abs().min(2) as usize;
            bits[symbol] = n_bits as u8;
            (last, last_before) = (n_bits as i32, above);
        }
        Lengths::new(bits)
    }
}

// ---- Symbols ----

/// Symbols of one or two bytes, and the tables that suit them.
pub(crate) trait Symbol: Copy + Default + Into<usize> + std::fmt::Debug + 'static {
    /// Codes by symbol, so long that each symbol has its place, or that a check is needed.
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
        codebook.codes.first_chunk().expect("a codebook has at least 256 places")
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
            Classes::PerGroup(classes) => &classes[start / GROUP..],
        }
    }

    fn same(&self) -> [u8; STREAM_GROUPS] {
        match *self {
            Classes::Same(class) => [class; STREAM_GROUPS],
            Classes::PerGroup(_) => [0; STREAM_GROUPS],
        }
    }
}

// ---- Encoding ----

/// The code of each symbol.
#[derive(Clone, Debug)]
pub(crate) struct Codebook {
    /// The code, its first bit being the least significant one, above its length, which is the low byte. Lengths of
    /// codes can so be added without being taken out: what is above is ignored.
    codes: Vec<u32>,
    lengths: Lengths,
    longest: u32,
    id: u64,
}

impl Codebook {
    pub(crate) fn new(lengths: Lengths) -> Self {
        let mut next = lengths.first_codes();
        let mut codes = vec![0; lengths.bits.len().max(256)];
        for (code, &n_bits) in codes.iter_mut().zip(&lengths.bits) {
            if (1..=MAX_BITS as u8).contains(&n_bits) {
                let reversed = next[usize::from(n_bits)].reverse_bits() >> (32 - u32::from(n_bits));
                *code = reversed << 8 | u32::from(n_bits);
                next[usize::from(n_bits)] += 1;
            }
        }
        Self { codes, longest: lengths.longest(), id: xxh3(&lengths.bits), lengths }
    }

    pub(crate) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Tells codebooks apart: XXH3 of the length of each symbol's code, a byte each, 255 where there is none.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// Bytes of a stream, at most: a power of two.
const MAX_STREAM_BYTES: usize = 4096;
const _: () = assert!(STREAM_GROUPS * GROUP * MAX_BITS as usize / 8 <= MAX_STREAM_BYTES);

/// Appends the streams of symbols to `out`, and their lengths in bytes to `sizes`. Every symbol must have a code in the
/// codebook of its group.
pub(crate) fn encode<T: Symbol>(
    symbols: &[T],
    classes: Classes<'_>,
    codebooks: &[Codebook],
    out: &mut Vec<u8>,
    sizes: &mut Vec<u16>,
) {
    assert!(
        classes.are_valid(symbols.len(), |class| usize::from(class) < codebooks.len()),
        "each group has a codebook"
    );
    let has_code = |(i, symbol): (usize, &T)| {
        let class = match classes {
            Classes::Same(class) => class,
            Classes::PerGroup(classes) => classes[i / GROUP],
        };
        codebooks[usize::from(class)].lengths.bits.get((*symbol).into()).is_some_and(|n| *n != Lengths::NO_CODE)
    };
    debug_assert!(symbols.iter().enumerate().all(has_code), "each symbol has a code");
    simd::run(Encode { symbols, classes, codebooks, out, sizes });
}

struct Encode<'a, T> {
    symbols: &'a [T],
    classes: Classes<'a>,
    codebooks: &'a [Codebook],
    out: &'a mut Vec<u8>,
    sizes: &'a mut Vec<u16>,
}

impl<T: Symbol> Job for Encode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut stream = StreamWriter::new();
        let same = self.classes.same();
        // Four codes and what is left of those before fit into 64 bits, or at least two.
        let are_short = self.codebooks.iter().all(|codebook| codebook.longest <= 14);
        for (block, symbols) in self.symbols.chunks(BLOCK).enumerate() {
            for i in 0..STREAMS {
                let (start, end) = (stream_start(symbols.len(), i), stream_start(symbols.len(), i + 1));
                let classes = self.classes.from(&same, block * BLOCK + start);
                if are_short {
                    stream.put_all::<T, 4>(&symbols[start..end], classes, self.codebooks);
                } else {
                    stream.put_all::<T, 2>(&symbols[start..end], classes, self.codebooks);
                }
                let bytes = stream.finish();
                self.sizes.push(bytes.len() as u16);
                self.out.extend_from_slice(bytes);
            }
        }
    }
}

/// The bytes of a stream, and those that a store touches behind it.
struct StreamWriter {
    bytes: [u8; MAX_STREAM_BYTES + 8],
    n_bytes: usize,
    /// Bits that are not yet complete bytes, and their number.
    bits: u64,
    n_bits: u32,
}

impl StreamWriter {
    fn new() -> Self {
        Self { bytes: [0; MAX_STREAM_BYTES + 8], n_bytes: 0, bits: 0, n_bits: 0 }
    }

    /// Appends the codes of symbols; `AT_ONCE` of them have at most 56 bits.
    #[inline(always)]
    fn put_all<T: Symbol, const AT_ONCE: usize>(&mut self, symbols: &[T], classes: &[u8], codebooks: &[Codebook]) {
        for (symbols, &class) in symbols.chunks(GROUP).zip(classes) {
            let codes = T::codes(&codebooks[usize::from(class)]);
            match symbols.first_chunk::<GROUP>() {
                Some(symbols) => {
                    for i in 0..GROUP / AT_ONCE {
                        self.put(std::array::from_fn::<u32, AT_ONCE, _>(|k| symbols[i * AT_ONCE + k].code(codes)));
                    }
                }
                None => symbols.iter().for_each(|symbol| self.put([symbol.code(codes)])),
            }
        }
    }

    /// Appends codes, of which each is a number above its length.
    #[inline(always)]
    fn put<const N: usize>(&mut self, codes: [u32; N]) {
        // These are put together before they are put behind what is there, so that only little has to wait for that.
        // Lengths are the low bytes of sums; shifts take no more than six bits of them.
        let (mut bits, mut n) = (0, 0_u32);
        for code in codes {
            bits |= u64::from(code >> 8) << (n & 63);
            n = n.wrapping_add(code);
        }
        let bits = self.bits | bits << self.n_bits;
        let n = n.wrapping_add(self.n_bits) & 0xff;
        let to: &mut [u8; 8] = self.bytes[self.n_bytes % MAX_STREAM_BYTES..].first_chunk_mut().expect("8 more");
        *to = bits.to_le_bytes();
        self.bits = bits >> (n & 56);
        self.n_bits = n & 7;
        self.n_bytes += (n / 8) as usize;
    }

    /// All bytes, the last filled up with zeros. The next stream begins.
    #[inline(always)]
    fn finish(&mut self) -> &[u8] {
        let n_bytes = self.n_bytes + usize::from(self.n_bits != 0);
        (self.bits, self.n_bits, self.n_bytes) = (0, 0, 0);
        &self.bytes[..n_bytes]
    }
}

// ---- Decoding ----

/// A lookup takes at most this many bits into account.
const MAX_TABLE_BITS: u32 = 11;
/// Part of an entry's length that stands for codes of more bits than a lookup has.
const IS_LONG: u32 = 0x80;

/// Lengths that are too long for a lookup, and a few more, so that it is a whole vector.
const N_LONG: usize = 16;
const _: () = assert!(MAX_BITS - MAX_TABLE_BITS <= N_LONG as u32);

/// Tables of a set of codebooks.
#[derive(Debug)]
pub(crate) struct DecodeTables<T: Symbol> {
    /// A lookup takes this many bits into account: no more than the longest code has, since tables that do not fit into
    /// the nearest cache are slow.
    table_bits: u32,
    /// For each codebook and each next few bits the first symbol in them.
    entries: Vec<T::Entry>,
    /// For each next [`MAX_TABLE_BITS`] all symbols in them, as far as they fit: in bits 0..8 their lengths together, in
    /// bits 8..16 their number, and then they themselves. Only where there is one codebook, since groups could end amidst
    /// an entry, and few long codes.
    several: Vec<u64>,
    /// Of each codebook. Empty if no code is long.
    long: Vec<LongCodes<T>>,
    is_empty: Vec<bool>,
}

/// What decodes codes that are too long for the table. They are rare, so a search through the lengths will do.
#[derive(Debug)]
struct LongCodes<T> {
    /// For each length above that of a lookup, the least 32 bits that are of a longer code; but the longest codes may
    /// have all bits set.
    limits: [u32; N_LONG],
    n_limits: usize,
    /// What to add to a code to have its place among `symbols`.
    offsets: [u32; N_LONG],
    /// Symbols of long codes, in the order of these.
    symbols: Vec<T>,
}

impl<T: Symbol> DecodeTables<T> {
    /// There may be at most 256 codebooks, of symbols that are a `T`.
    pub(crate) fn new(codebooks: &[Lengths]) -> Self {
        let is_of_type = |lengths: &Lengths| lengths.bits.len() <= 1 << (8 * size_of::<T>());
        assert!(codebooks.iter().all(is_of_type), "symbols are of another type");
        let longest = codebooks.iter().map(Lengths::longest).max().unwrap_or(0);
        let table_bits = longest.min(MAX_TABLE_BITS);
        let mut all = Self {
            table_bits,
            entries: vec![T::entry(0, IS_LONG); codebooks.len() << table_bits],
            several: Vec::new(),
            long: if longest > table_bits { codebooks.iter().map(LongCodes::new).collect() } else { Vec::new() },
            is_empty: codebooks.iter().map(Lengths::is_empty).collect(),
        };
        for (lengths, entries) in codebooks.iter().zip(all.entries.chunks_exact_mut(1 << table_bits)) {
            fill_table::<T>(lengths, entries);
        }
        // Lookups of several symbols have to stop at long codes.
        let n_long = all.entries.iter().filter(|&&entry| entry.into() as u32 & IS_LONG != 0).count();
        let are_few = n_long <= all.entries.len() / 64;
        // And they are stored as they lie in a register.
        if codebooks.len() == 1 && !all.is_empty[0] && are_few && cfg!(target_endian = "little") {
            all.several = (0..1 << MAX_TABLE_BITS).map(|bits| all.several_in(bits)).collect();
        }
        all
    }

    /// The entry of several symbols for these next bits.
    fn several_in(&self, mut bits: u64) -> u64 {
        let (mut n_bits, mut n_symbols, mut symbols) = (0, 0, 0);
        while n_symbols < T::SEVERAL as u64 {
            let entry: u64 = self.entries[self.index(0, bits)].into();
            let length = entry & 0xff;
            if n_bits + length > u64::from(MAX_TABLE_BITS) {
                break;
            }
            symbols |= entry >> 8 << (n_symbols * u64::from(8 * size_of::<T>() as u32));
            n_symbols += 1;
            n_bits += length;
            bits >>= length;
        }
        if n_symbols == 0 { u64::from(IS_LONG) } else { symbols << 16 | n_symbols << 8 | n_bits }
    }

    /// Place of the entry for these next bits.
    #[inline(always)]
    fn index(&self, class: u8, bits: u64) -> usize {
        usize::from(class) << self.table_bits | (bits & self.mask()) as usize
    }

    #[inline(always)]
    fn mask(&self) -> u64 {
        (1 << self.table_bits) - 1
    }
}

/// Fills the table of a codebook.
fn fill_table<T: Symbol>(lengths: &Lengths, entries: &mut [T::Entry]) {
    let mut next = lengths.first_codes();
    for (symbol, &n_bits) in lengths.bits.iter().enumerate() {
        if u32::from(n_bits) <= MAX_TABLE_BITS {
            let code = &mut next[usize::from(n_bits)];
            let first = code.reverse_bits().checked_shr(32 - u32::from(n_bits)).unwrap_or(0) as usize;
            let entry = T::entry(symbol, u32::from(n_bits));
            entries[first..].iter_mut().step_by(1 << n_bits).for_each(|e| *e = entry);
            *code += 1;
        }
    }
}

impl<T: Symbol> LongCodes<T> {
    fn new(lengths: &Lengths) -> Self {
        let (counts, first) = (lengths.count(), lengths.first_codes());
        let mut order: Vec<u64> = Vec::new();
        let mut n_before = [0_u32; MAX_BITS as usize + 2];
        for (symbol, &n_bits) in (0..).zip(&lengths.bits) {
            if (MAX_TABLE_BITS + 1..=MAX_BITS).contains(&u32::from(n_bits)) {
                order.push(u64::from(n_bits) << 16 | symbol);
                n_before[usize::from(n_bits) + 1] += 1;
            }
        }
        order.sort_unstable();
        let symbols = order.into_iter().map(T::of_low_bits).collect();
        let n_limits = lengths.longest().saturating_sub(MAX_TABLE_BITS + 1) as usize;
        let mut long = Self { limits: [u32::MAX; N_LONG], n_limits, offsets: [0; N_LONG], symbols };
        for (i, n_bits) in (MAX_TABLE_BITS as usize + 1..=MAX_BITS as usize).enumerate() {
            n_before[n_bits + 1] += n_before[n_bits];
            let limit = u64::from(first[n_bits] + counts[n_bits]) << (32 - n_bits);
            long.limits[i] = u32::try_from(limit).unwrap_or(u32::MAX);
            long.offsets[i] = n_before[n_bits].wrapping_sub(first[n_bits]);
        }
        long
    }

    /// The symbol of the next bits, whose code is a long one, and the length of this.
    #[inline(always)]
    fn find(&self, bits: u64) -> (T, u32) {
        let bits = (bits as u32).reverse_bits();
        let i = self.limits.iter().map(|&limit| u32::from(bits >= limit)).sum::<u32>() as usize;
        let i = i.min(self.n_limits);
        let n_bits = MAX_TABLE_BITS + 1 + i as u32;
        (self.symbols[self.offsets[i].wrapping_add(bits >> (32 - n_bits)) as usize], n_bits)
    }
}

/// As [`simd::scalar`].
#[inline(always)]
fn scalar(value: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut value = value;
        // SAFETY: there is no instruction.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
        value
    }
    #[cfg(not(target_arch = "x86_64"))]
    value
}

/// The next bits of a stream, and the byte that they come from.
///
/// Above the bits is a 1, so that the number of zeros above it is that of bits which were taken since.
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

    /// Takes bits from memory again, from the first that was not used, with zeros behind the end.
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

struct Decode<'a, T: Symbol> {
    bytes: &'a [u8],
    sizes: &'a [u16],
    classes: Classes<'a>,
    tables: &'a DecodeTables<T>,
    out: &'a mut [T],
}

impl<T: Symbol> Job for Decode<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(self) -> Result<()> {
        let Self { bytes, sizes, classes, tables, out } = self;
        let same = classes.same();
        // The last streams are moved to where there are bytes behind them that may be read.
        let n_direct = sizes.len().saturating_sub(2 * STREAMS);
        let n_direct_bytes = sizes[..n_direct].iter().map(|&n| usize::from(n)).sum::<usize>();
        let mut last_bytes = bytes[n_direct_bytes..].to_vec();
        last_bytes.resize(last_bytes.len() + SLACK, 0);

        let mut streams = Vec::with_capacity(sizes.len());
        let (mut at, mut symbol) = (0, 0);
        for (i, &size) in sizes.iter().enumerate() {
            let block = i / STREAMS * BLOCK;
            let n_block = BLOCK.min(out.len() - block);
            let n_symbols = stream_start(n_block, i % STREAMS + 1) - stream_start(n_block, i % STREAMS);
            streams.push(Stream {
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

/// Bytes behind a stream that may be read: those of a group, those that were not used before it, and those of the last
/// refill.
const SLACK: usize = GROUP * MAX_BITS as usize / 8 + 8 + 8;

/// A stream that is being decoded.
#[derive(Clone, Copy)]
struct Stream<'a> {
    /// Its bytes and all that are behind it in memory.
    bytes: &'a [u8],
    n_bytes: usize,
    classes: &'a [u8],
    n_symbols: usize,
    next: Next,
    /// How many symbols are decoded.
    n_done: usize,
}

impl Stream<'_> {
    /// Decodes what is left, and checks that the stream was used up, to the last byte, whose rest is 0.
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
            let class = self.classes[i / GROUP];
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

/// Symbols of a stream, at most.
const STREAM: usize = STREAM_GROUPS * GROUP;

/// Decodes streams whose groups have codebooks of their own: eight streams at once, or four, since long codes leave fewer
/// registers.
#[inline(always)]
fn decode_grouped<T: Symbol>(streams: &mut [Stream<'_>], tables: &DecodeTables<T>, out: &mut [T]) -> Result<()> {
    let (blocks, last) = out.as_chunks_mut::<BLOCK>();
    let (pairs, blocks) = if tables.long.is_empty() { blocks.as_chunks_mut::<2>() } else { (&mut [][..], blocks) };
    let mut left = streams.as_chunks_mut::<STREAMS>().0;
    let mut cut = |n: usize| left.split_off_mut(..n).expect("there are four streams for each block").as_flattened_mut();
    for pair in pairs {
        let symbols = pair.as_flattened_mut().as_chunks_mut().0.first_chunk_mut().expect("eight streams");
        decode_streams::<T, 8, false>(cut(2).first_chunk_mut().expect("eight streams"), tables, symbols)?;
    }
    let decode_block = |streams: &mut [Stream<'_>], symbols: &mut [[T; STREAM]; STREAMS]| {
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
        // Streams have a fixed distance here, which is worth a copy.
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
    streams: &mut [Stream<'_>; N],
    tables: &DecodeTables<T>,
    out: &mut [[T; STREAM]; N],
) -> Result<()> {
    decode_groups::<T, N, HAS_LONG>(streams, tables, out);
    streams.iter().zip(out).try_for_each(|(stream, out)| stream.finish(tables, &mut out[..stream.n_symbols]))
}

/// Decodes whole groups of all streams, as long as there are bytes.
///
/// Streams are not kept from reading what is behind their end, as long as that is memory: those that do are found
/// afterwards.
#[inline(always)]
fn decode_groups<T: Symbol, const N: usize, const HAS_LONG: bool>(
    streams: &mut [Stream<'_>; N],
    tables: &DecodeTables<T>,
    out: &mut [[T; STREAM]; N],
) {
    /// Codes between refills.
    const AT_ONCE: usize = 4;
    const _: () = assert!(AT_ONCE as u32 * MAX_TABLE_BITS <= Next::LEAST);

    let n_groups = streams.iter().map(|stream| stream.n_symbols / GROUP).min().unwrap_or(0).min(STREAM_GROUPS);
    let mut next: [NextUnchecked; N] = std::array::from_fn(|i| NextUnchecked::new(streams[i].bytes, streams[i].next));
    let mask = tables.mask();
    let mut group = 0;
    while group < n_groups && (0..N).all(|i| next[i].at(streams[i].bytes) + SLACK <= streams[i].bytes.len()) {
        let entries: [*const T::Entry; N] = std::array::from_fn(|i| {
            let class = usize::from(streams[i].classes[group]);
            tables.entries[class << tables.table_bits..(class + 1) << tables.table_bits].as_ptr()
        });
        for turn in 0..GROUP / AT_ONCE {
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
                    unsafe { *out[i].get_unchecked_mut(group * GROUP + turn * AT_ONCE + k) = symbol };
                }
            }
        }
        group += 1;
    }
    for (stream, next) in streams.iter_mut().zip(next) {
        (stream.next, stream.n_done) = (next.checked(stream.bytes), group * GROUP);
    }
}

/// Decodes a long code. There are so many bits afterwards as after a refill.
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

/// Decodes streams that all have the same codebook, by lookups of several symbols, and several streams at once: when one
/// of them ends, the next one takes its place.
#[inline(always)]
fn decode_ungrouped<T: Symbol>(streams: &[Stream<'_>], tables: &DecodeTables<T>, mut out: &mut [T]) -> Result<()> {
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
    active: &mut [(Stream<'_>, &mut [T]); N],
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
        // As many turns as are sure to find bytes and room. Symbols go to memory eight bytes at a time.
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
            // Lookups stop at a long code: it looks like no symbols of no bits.
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

#[cfg(test)]
mod tests {
    use super::super::binary::{Decoder, Encoder};
    use super::super::tokens::tests::Random;
    use super::*;

    const NO_CODE: u8 = Lengths::NO_CODE;

    // ---- Lengths ----

    fn kraft_sum(lengths: &Lengths) -> u64 {
        lengths.bits.iter().filter(|n| **n != NO_CODE).map(|&n| 1 << (MAX_BITS - u32::from(n))).sum()
    }

    /// The least cost of any complete code, by trying all of them.
    fn least_cost(counts: &[u64], max_bits: u32) -> u64 {
        fn search(counts: &[u64], max_bits: u32, room: u64) -> Option<u64> {
            let Some((&count, rest)) = counts.split_first() else { return (room == 0).then_some(0) };
            let costs = (1..=max_bits).filter_map(|n_bits| {
                let room = room.checked_sub(1 << (max_bits - n_bits))?;
                Some(search(rest, max_bits, room)? + count * u64::from(n_bits))
            });
            costs.min()
        }
        search(counts, max_bits, 1 << max_bits).expect("the limit is possible")
    }

    /// The cost of a Huffman code without limits.
    fn huffman_cost(counts: &[u32]) -> u64 {
        let used = counts.iter().filter(|count| **count != 0);
        let mut heap: std::collections::BinaryHeap<_> =
            used.map(|&count| std::cmp::Reverse(u64::from(count))).collect();
        let mut cost = 0;
        while heap.len() > 1 {
            let sum = heap.pop().unwrap().0 + heap.pop().unwrap().0;
            cost += sum;
            heap.push(std::cmp::Reverse(sum));
        }
        cost
    }

    #[test]
    fn small_codes_are_the_best_of_all() {
        let mut random = Random(1);
        for i in 0..400 {
            let n = 2 + i % 5;
            let counts: Vec<u32> = (0..n).map(|_| 1 + (random.next() >> (random.next() % 32)) % 5000).collect();
            for max_bits in 3..=6 {
                let lengths = Lengths::fit(&counts, max_bits);
                let wide: Vec<u64> = counts.iter().map(|&count| u64::from(count)).collect();
                assert_eq!(lengths.cost_bits(&counts), least_cost(&wide, max_bits), "{counts:?} {max_bits}");
                assert!(lengths.longest() <= max_bits);
            }
        }
    }

    #[test]
    fn codes_are_complete_and_as_good_as_without_a_limit_that_does_not_bind() {
        let mut random = Random(2);
        for n in [2, 3, 10, 40, 256, 1000, 2001, 65536] {
            for shift in [1, 8, 24, 32] {
                let counts: Vec<u32> =
                    (0..n).map(|_| (u64::from(random.next()) >> (random.next() % shift)) as u32 >> 8).collect();
                let n_used = counts.iter().filter(|count| **count != 0).count();
                let mut last_cost = u64::MAX;
                for max_bits in [11, 12, 16, 20, 24] {
                    let lengths = Lengths::fit(&counts, max_bits);
                    assert!(lengths.longest() <= max_bits.max(usize::BITS - n_used.saturating_sub(1).leading_zeros()));
                    assert_eq!(Lengths::new(lengths.bits.clone()).unwrap(), lengths);
                    if n_used > 1 {
                        assert_eq!(kraft_sum(&lengths), 1 << MAX_BITS);
                    }
                    let cost = lengths.cost_bits(&counts);
                    assert!(cost <= last_cost);
                    last_cost = cost;
                    if lengths.longest() < max_bits {
                        assert_eq!(cost, huffman_cost(&counts), "{n} {shift} {max_bits}");
                    }
                }
            }
        }
    }

    #[test]
    fn limits_bind() {
        let mut fibonacci = vec![1_u32, 1];
        (2..40).for_each(|i| fibonacci.push(fibonacci[i - 1] + fibonacci[i - 2]));
        let mut last_cost = huffman_cost(&fibonacci);
        for max_bits in (6..=24).rev() {
            let lengths = Lengths::fit(&fibonacci, max_bits);
            assert_eq!(lengths.longest(), max_bits);
            assert_eq!(kraft_sum(&lengths), 1 << MAX_BITS);
            let cost = lengths.cost_bits(&fibonacci);
            assert!(cost > last_cost);
            last_cost = cost;
        }
        // A limit that is too low for so many symbols is the one they need.
        assert_eq!(Lengths::fit(&[1; 40], 3).longest(), 6);
    }

    #[test]
    fn codes_of_few_symbols() {
        assert_eq!(Lengths::fit(&[], 11).bits, []);
        assert_eq!(Lengths::fit(&[0, 0], 11).bits, [NO_CODE; 2]);
        assert_eq!(Lengths::fit(&[0, 9, 0], 11).bits, [NO_CODE, 0, NO_CODE]);
        assert_eq!(Lengths::fit(&[3, 0, 5], 11).bits, [1, NO_CODE, 1]);
        assert_eq!(Lengths::fit(&[0, 9, 0], 11).cost_bits(&[0, 100, 0]), 0);
        assert_eq!(Lengths::fit(&[0, 9, 0], 11).cost_bits(&[1, 100, 0]), u64::MAX);
        assert_eq!(Lengths::fit(&[9], 11).cost_bits(&[1, 1]), u64::MAX);
        for wrong in [&[0, 0][..], &[0, 1], &[1], &[1, 1, 1], &[1, 2], &[25; 2], &[0x80; 128]] {
            Lengths::new(wrong.to_vec()).unwrap_err();
        }
    }

    fn write(all: &[Lengths]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes);
        let mut coder = LengthsCoder::default();
        for (i, lengths) in all.iter().enumerate() {
            coder.write(&mut encoder, lengths, all[..i].last());
        }
        encoder.finish();
        bytes
    }

    fn read(bytes: &[u8], alphabets: &[usize]) -> Result<Vec<Lengths>> {
        let mut decoder = Decoder::new(bytes);
        let mut coder = LengthsCoder::default();
        let mut all = Vec::new();
        for &n_symbols in alphabets {
            let lengths = coder.read(&mut decoder, n_symbols, all.last())?;
            all.push(lengths);
        }
        decoder.finish()?;
        Ok(all)
    }

    /// Counts of symbols around the middle of an alphabet.
    fn peaked(n_symbols: usize, mean: f64, n: usize, seed: u64) -> Vec<u32> {
        let mut random = Random(seed);
        let mut counts = vec![0; n_symbols];
        for _ in 0..n {
            let symbol = n_symbols as i64 / 2 + i64::from(random.code(mean));
            counts[symbol.clamp(0, n_symbols as i64 - 1) as usize] += 1;
        }
        counts
    }

    #[test]
    fn lengths_come_back() {
        let mut random = Random(3);
        let mut all =
            vec![Lengths::default(), Lengths::fit(&[0; 9], 9), Lengths::fit(&[0, 4], 9), Lengths::fit(&[1; 5], 9)];
        for n in [1, 2, 3, 40, 256, 2001, 65536] {
            for shift in [1, 20, 40] {
                let counts = (0..n).map(|_| (u64::from(random.next()) >> (random.next() % shift)) as u32);
                all.push(Lengths::fit(&counts.collect::<Vec<u32>>(), 8 + random.next() % 17));
            }
            let mut counts = vec![0; n];
            counts[n - 1] = 1;
            all.push(Lengths::fit(&counts, 11));
        }
        let alphabets: Vec<usize> = all.iter().map(|lengths| lengths.bits.len()).collect();
        assert_eq!(read(&write(&all), &alphabets).unwrap(), all);
        for lengths in &all {
            let mut bytes = Vec::new();
            let mut encoder = Encoder::new(&mut bytes);
            lengths.write(&mut encoder);
            encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(Lengths::read(&mut decoder, lengths.bits.len()).unwrap(), *lengths);
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn lengths_are_small() {
        let tokens = |mean: f64, n: usize, seed: u64| {
            let mut random = Random(seed);
            let mut counts = vec![0_u32; 256];
            (0..n).for_each(|_| counts[usize::from(crate::codec::tokens::token_of(random.code(mean)))] += 1);
            Lengths::fit(&counts, 11)
        };
        let n_used = |lengths: &Lengths| lengths.bits.iter().filter(|n| **n != NO_CODE).count();
        let wide = tokens(100.0, 10_000, 1);
        assert!(n_used(&wide) >= 38 && write(std::slice::from_ref(&wide)).len() <= 18);
        let classes: Vec<Lengths> = (0..16).map(|i| tokens(0.3 * 1.4_f64.powi(i), 60_000, 2)).collect();
        assert!(write(&classes).len() <= 130, "{}", write(&classes).len());
        let peak = Lengths::fit(&peaked(2001, 70.0, 300_000, 3), 16);
        assert!(
            n_used(&peak) >= 1000 && write(std::slice::from_ref(&peak)).len() <= 260,
            "{}",
            write(std::slice::from_ref(&peak)).len()
        );
        assert!(write(&[Lengths::fit(&peaked(1024, 2.0, 100_000, 3), 16)]).len() <= 20);
    }

    #[test]
    fn hostile_lengths_are_refused_or_valid() {
        let good = write(&[Lengths::fit(&peaked(256, 5.0, 9999, 1), 11), Lengths::fit(&peaked(256, 8.0, 9999, 1), 11)]);
        let mut random = Random(4);
        let mut n_refused = 0;
        for i in 0..6000 {
            let mut bytes = good.clone();
            match i % 3 {
                0 => bytes = (0..random.next() % 80).map(|_| random.next() as u8).collect(),
                1 => bytes.truncate(random.next() as usize % good.len()),
                _ => bytes[random.next() as usize % good.len()] ^= 1 << (random.next() % 8),
            }
            let n_symbols = [256, 1, 2001, 65536][if i % 3 == 0 { random.next() as usize % 4 } else { 0 }];
            match read(&bytes, &[n_symbols; 2]) {
                Ok(all) => assert!(all.iter().all(|lengths| Lengths::new(lengths.bits.clone()).is_ok())),
                Err(_) => n_refused += 1,
            }
        }
        assert!(n_refused > 5000, "{n_refused}");
    }

    // ---- Streams ----

    struct Streams {
        bytes: Vec<u8>,
        sizes: Vec<u16>,
    }

    /// Encodes, and checks that the portable form of the encoder does the same.
    fn encode_both<T: Symbol>(symbols: &[T], classes: Classes<'_>, lengths: &[Lengths]) -> Streams {
        let codebooks: Vec<Codebook> = lengths.iter().cloned().map(Codebook::new).collect();
        let mut native = Streams { bytes: vec![1], sizes: vec![2] };
        encode(symbols, classes, &codebooks, &mut native.bytes, &mut native.sizes);
        let mut portable = Streams { bytes: vec![1], sizes: vec![2] };
        let (out, sizes) = (&mut portable.bytes, &mut portable.sizes);
        Encode { symbols, classes, codebooks: &codebooks, out, sizes }.run();
        assert!(native.bytes == portable.bytes && native.sizes == portable.sizes);
        // It appends.
        assert!(native.bytes.remove(0) == 1 && native.sizes.remove(0) == 2);
        native
    }

    /// Decodes, and checks that the portable form of the decoder does the same.
    fn decode_both<T: Symbol + PartialEq>(
        streams: &Streams,
        classes: Classes<'_>,
        tables: &DecodeTables<T>,
        n: usize,
    ) -> Result<Vec<T>> {
        let Streams { bytes, sizes } = streams;
        let mut native = vec![T::default(); n];
        let result = decode(bytes, sizes, classes, tables, &mut native);
        let is_consistent =
            sizes.len() == n_streams(n) && sizes.iter().map(|&n| usize::from(n)).sum::<usize>() == bytes.len();
        if is_consistent {
            let mut portable = vec![T::default(); n];
            let portable_result = Decode { bytes, sizes, classes, tables, out: &mut portable }.run();
            assert_eq!(result.is_ok(), portable_result.is_ok());
            assert!(native == portable);
        }
        result.map(|()| native)
    }

    fn check<T: Symbol + PartialEq>(symbols: &[T], classes: Classes<'_>, lengths: &[Lengths]) -> Streams {
        let streams = encode_both(symbols, classes, lengths);
        let tables = DecodeTables::<T>::new(lengths);
        assert!(decode_both(&streams, classes, &tables, symbols.len()).unwrap() == symbols);
        streams
    }

    const SIZES: [usize; 19] =
        [0, 1, 31, 32, 33, 63, 64, 127, 128, 129, 1000, 4064, 4095, 4096, 4097, 8191, 8192, 12_345, 100_000];

    #[test]
    fn symbols_of_one_codebook_come_back() {
        let mut random = Random(5);
        for n_symbols in [1, 2, 3, 256, 2001, 65536] {
            // Uniform, skewed, and one only.
            for kind in 0..3 {
                for max_bits in [11, 12, 14, 15, 24] {
                    let n = SIZES[random.next() as usize % SIZES.len()];
                    let mut symbol = |_| match kind {
                        0 => random.next() as usize % n_symbols,
                        1 => (random.code(1.0 + n_symbols as f64 / 50.0).unsigned_abs() as usize).min(n_symbols - 1),
                        _ => n_symbols / 2,
                    };
                    let symbols: Vec<usize> = (0..n).map(&mut symbol).collect();
                    let mut counts = vec![0_u32; n_symbols];
                    symbols.iter().for_each(|&symbol| counts[symbol] += 1);
                    let lengths = [Lengths::fit(&counts, max_bits)];
                    if n == 0 {
                        continue;
                    }
                    let wide: Vec<u16> = symbols.iter().map(|&symbol| symbol as u16).collect();
                    let streams = check(&wide, Classes::Same(0), &lengths);
                    let n_bits: usize = streams.sizes.iter().map(|&size| 8 * usize::from(size)).sum();
                    let cost = lengths[0].cost_bits(&counts) as usize;
                    assert!((cost..=cost + 7 * streams.sizes.len()).contains(&n_bits));
                    if n_symbols <= 256 {
                        let narrow: Vec<u8> = symbols.iter().map(|&symbol| symbol as u8).collect();
                        let same = check(&narrow, Classes::Same(0), &lengths);
                        assert!(same.bytes == streams.bytes && same.sizes == streams.sizes);
                        check(&narrow, Classes::PerGroup(&vec![0; n_groups(n)]), &lengths);
                    }
                }
            }
        }
    }

    /// Symbols of 16 classes that get wider, and the codebooks of these.
    fn classed(n: usize, n_symbols: usize, max_bits: u32, seed: u64) -> (Vec<u16>, Vec<u8>, Vec<Lengths>) {
        let mut random = Random(seed);
        let classes: Vec<u8> = (0..n_groups(n)).map(|_| (random.next() % 16) as u8).collect();
        let mut counts = vec![vec![0_u32; n_symbols]; 16];
        let symbols = (0..n).map(|i| {
            let class = usize::from(classes[i / GROUP]);
            let symbol = (random.code(0.1 * 1.6_f64.powi(class as i32)).unsigned_abs() as usize).min(n_symbols - 1);
            counts[class][symbol] += 1;
            symbol as u16
        });
        let symbols = symbols.collect();
        (symbols, classes, counts.iter().map(|counts| Lengths::fit(counts, max_bits)).collect())
    }

    #[test]
    fn symbols_of_many_codebooks_come_back() {
        for n in SIZES {
            for max_bits in [9, 11, 12, 24] {
                let (symbols, classes, lengths) = classed(n, 256, max_bits, n as u64);
                let streams = check(&symbols, Classes::PerGroup(&classes), &lengths);
                assert_eq!(streams.sizes.len(), n.div_ceil(BLOCK) * 4);
                let narrow: Vec<u8> = symbols.iter().map(|&symbol| symbol as u8).collect();
                assert!(check(&narrow, Classes::PerGroup(&classes), &lengths).bytes == streams.bytes);
            }
        }
        let (symbols, classes, lengths) = classed(50_000, 2001, 13, 1);
        check(&symbols, Classes::PerGroup(&classes), &lengths);
    }

    #[test]
    fn streams_are_what_the_format_says() {
        // Codes 0, 10, 110, 111, the first bit being the lowest.
        let lengths = [Lengths::new(vec![3, 1, NO_CODE, 3, 2]).unwrap()];
        assert_eq!(Codebook::new(lengths[0].clone()).id(), xxh3(&[3, 1, 255, 3, 2]));
        let streams = check(&[4_u8, 1, 0, 3, 1, 1, 4], Classes::Same(0), &lengths);
        assert_eq!(streams.sizes, [0, 0, 0, 2]);
        assert_eq!(streams.bytes, [0b1101_1001, 0b0000_1001]);
        // Nine groups: 2, 2, 2 and 3 of them.
        let streams = check(&[1_u8; 8 * 32 + 1], Classes::Same(0), &lengths);
        assert_eq!(streams.sizes, [8, 8, 8, 9]);
        let streams = check(&[1_u8; 4096 + 32], Classes::Same(0), &lengths);
        assert_eq!(streams.sizes, [128, 128, 128, 128, 0, 0, 0, 4]);
    }

    #[test]
    fn a_symbol_alone_takes_no_bits() {
        let lengths = [Lengths::fit(&[0, 0, 7], 11), Lengths::fit(&[1, 1], 11)];
        let streams = check(&[2_u8; 5000], Classes::Same(0), &lengths[..1]);
        assert!(streams.bytes.is_empty() && streams.sizes == [0; 8]);
        let mut classes = [0; 157];
        classes[100] = 1;
        let mut symbols = [2_u8; 5000];
        symbols[3200..3232].fill(1);
        assert_eq!(check(&symbols, Classes::PerGroup(&classes), &lengths).bytes, [0xff; 4]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (symbols, classes, mut lengths) = classed(10_000, 256, 11, 3);
        let streams = encode_both(&symbols, Classes::PerGroup(&classes), &lengths);
        let tables = DecodeTables::<u16>::new(&lengths);
        let refuse = |bytes: &[u8], sizes: &[u16], classes: Classes<'_>, tables: &DecodeTables<u16>, n: usize| {
            let error = decode(bytes, sizes, classes, tables, &mut vec![0; n]).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Corrupt);
        };
        let (bytes, sizes) = (&streams.bytes[..], &streams.sizes[..]);
        refuse(bytes, &sizes[1..], Classes::PerGroup(&classes), &tables, 10_000);
        refuse(&bytes[1..], sizes, Classes::PerGroup(&classes), &tables, 10_000);
        refuse(bytes, sizes, Classes::PerGroup(&classes[1..]), &tables, 10_000);
        refuse(bytes, sizes, Classes::PerGroup(&classes), &tables, 9_000);
        refuse(bytes, sizes, Classes::Same(16), &tables, 10_000);
        refuse(bytes, sizes, Classes::PerGroup(&classes), &DecodeTables::new(&lengths[..15]), 10_000);
        lengths[7] = Lengths::fit(&[0; 256], 11);
        refuse(bytes, sizes, Classes::PerGroup(&classes), &DecodeTables::new(&lengths), 10_000);
        refuse(&[], &[0; 4], Classes::Same(0), &DecodeTables::new(&[]), 1);
        decode::<u8>(&[], &[], Classes::Same(0), &DecodeTables::new(&[]), &mut []).unwrap();
        decode::<u8>(&[], &[], Classes::PerGroup(&[]), &DecodeTables::new(&[]), &mut []).unwrap();

        // A byte more or less in one stream, and padding that is not 0.
        for i in 0..sizes.len() {
            let end: usize = sizes[..=i].iter().map(|&size| usize::from(size)).sum();
            let (mut longer, mut sizes) = (bytes.to_vec(), sizes.to_vec());
            longer.insert(end, 0);
            sizes[i] += 1;
            refuse(&longer, &sizes, Classes::PerGroup(&classes), &tables, 10_000);
            longer.drain(end - 1..=end);
            sizes[i] -= 2;
            refuse(&longer, &sizes, Classes::PerGroup(&classes), &tables, 10_000);
        }
        let one = [Lengths::fit(&[1, 1], 11)];
        for (byte, is_right) in [(0b111, true), (0b1111, false), (0b1000_0111, false)] {
            let result = decode::<u8>(&[byte], &[0, 0, 0, 1], Classes::Same(0), &DecodeTables::new(&one), &mut [0; 3]);
            assert_eq!(result.is_ok(), is_right);
        }
    }

    #[test]
    fn hostile_streams_are_refused_or_decoded() {
        let mut random = Random(6);
        let mut n_refused = 0;
        for i in 0..1500 {
            let n = SIZES[1..18][random.next() as usize % 17];
            let (symbols, classes, lengths) = classed(n, [256, 3, 2001][i % 3], [9, 11, 15, 24][i / 3 % 4], i as u64);
            let (classes, lengths) = match i % 5 {
                // One codebook that knows all symbols; some have many long codes.
                0 | 1 => {
                    let mut counts = vec![i as u32 % 2; if i % 3 == 2 { 2001 } else { 256 }];
                    symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 20);
                    (Classes::Same(0), vec![Lengths::fit(&counts, [11, 14, 20][i / 5 % 3])])
                }
                _ => (Classes::PerGroup(&classes), lengths),
            };
            let mut streams = encode_both(&symbols, classes, &lengths);
            match random.next() % 4 {
                0 => streams.bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
                1 => streams.bytes.iter_mut().for_each(|byte| *byte = 0xff),
                2 if !streams.bytes.is_empty() => {
                    let at = random.next() as usize % streams.bytes.len();
                    streams.bytes[at] ^= 1 << (random.next() % 8);
                }
                _ => {
                    // Bytes go from one stream to another.
                    let (from, to) = (random.next() as usize, random.next() as usize);
                    let (from, to) = (from % streams.sizes.len(), to % streams.sizes.len());
                    let n_moved = (random.next() % 100).min(u32::from(streams.sizes[from])) as u16;
                    streams.sizes[from] -= n_moved;
                    streams.sizes[to] += n_moved;
                }
            }
            let decoded = decode_both(&streams, classes, &DecodeTables::<u16>::new(&lengths), n);
            if lengths[0].bits.len() <= 256 {
                let narrow = decode_both(&streams, classes, &DecodeTables::<u8>::new(&lengths), n);
                assert!(
                    narrow.ok().map(|all| all.into_iter().map(u16::from).collect()) == decoded.as_ref().ok().cloned()
                );
            }
            match decoded {
                Ok(symbols) => {
                    // What is accepted is what an encoder makes of it.
                    let again = encode_both(&symbols, classes, &lengths);
                    assert!(again.bytes == streams.bytes && again.sizes == streams.sizes);
                }
                Err(_) => n_refused += 1,
            }
        }
        assert!(n_refused > 800, "{n_refused}");
    }
}
