//! Tables that decode by look-ups of one symbol or of several.

use super::{Lengths, MAX_BITS, Symbol};

/// A lookup takes at most this many bits into account.
pub(super) const MAX_TABLE_BITS: u32 = 11;
/// Part of an entry's length that stands for codes of more bits than a lookup has.
pub(super) const IS_LONG: u32 = 0x80;

/// Lengths that are too long for a lookup, and a few more, so that it is a whole vector.
const N_LONG: usize = 16;
const _: () = assert!(MAX_BITS - MAX_TABLE_BITS <= N_LONG as u32);

/// Tables of a set of codebooks.
#[derive(Debug)]
pub(crate) struct DecodeTables<T: Symbol> {
    /// A lookup takes this many bits into account: no more than the longest code has, since tables that do not fit into
    /// the L1 cache are slow.
    pub(super) table_bits: u32,
    /// For each codebook and each value of the next bits, the first symbol.
    pub(super) entries: Vec<T::Entry>,
    /// For each value of the next [`MAX_TABLE_BITS`] bits, all whole symbols in them that fit: bits 0..8 are their
    /// total length, bits 8..16 their number, and the symbols follow. Used only with a single codebook, since otherwise
    /// a group could end within an entry, and only if few codes are long.
    pub(super) several: Vec<u64>,
    /// The long codes of each codebook. Empty if no code is long.
    pub(super) long: Vec<LongCodes<T>>,
    pub(super) is_empty: Vec<bool>,
}

/// Decodes codes that are too long for the table. They are rare, so a linear search through the lengths is enough.
#[derive(Debug)]
pub(super) struct LongCodes<T> {
    /// For each length above that of a lookup, the least 32 bits that are of a longer code; but the longest codes may
    /// have all bits set.
    limits: [u32; N_LONG],
    n_limits: usize,
    /// What to add to a code to get its index in `symbols`.
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
        // Symbols are stored in the order of a register's bytes.
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

    /// Index of the entry for these next bits.
    #[inline(always)]
    pub(super) fn index(&self, class: u8, bits: u64) -> usize {
        usize::from(class) << self.table_bits | (bits & self.mask()) as usize
    }

    #[inline(always)]
    pub(super) fn mask(&self) -> u64 {
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
    pub(super) fn find(&self, bits: u64) -> (T, u32) {
        let bits = (bits as u32).reverse_bits();
        let i = self.limits.iter().map(|&limit| u32::from(bits >= limit)).sum::<u32>() as usize;
        let i = i.min(self.n_limits);
        let n_bits = MAX_TABLE_BITS + 1 + i as u32;
        (self.symbols[self.offsets[i].wrapping_add(bits >> (32 - n_bits)) as usize], n_bits)
    }
}
