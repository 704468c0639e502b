//! Symbols that stand for several bytes (docs/format.md, 9.4). A Huffman code takes at least one bit per symbol, which
//! is more than a single small difference needs.

use super::groups::{GROUP, ZERO};
use crate::entropy::codebook::ALPHABET_SYMBOLS;
use crate::entropy::histogram::{COST_BITS, x_log2_x};
use crate::num::simd::Kernel;

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Alphabet {
    /// A byte.
    Singles = 0,
    /// Two bytes within 3 of zero.
    Pairs = 1,
    /// Four bytes within 1 of zero.
    Fours = 2,
    /// Eight bytes: zeros, and at most two bytes within 1 of zero.
    Eights = 3,
    /// A whole group: zeros, and one byte within 1 of zero.
    Ones = 4,
}

/// Escape symbols: the bytes are literals, stored in a codebook of their own.
const PAIRS_ESCAPE: u8 = 49;
const FOURS_ESCAPE: u8 = 81;
const EIGHTS_ESCAPE: u8 = 129;
const ONES_ESCAPE: u8 = 64;
const _: () = {
    let sizes = ALPHABET_SYMBOLS;
    assert!(sizes[1] == PAIRS_ESCAPE as usize + 1 && sizes[2] == FOURS_ESCAPE as usize + 1);
    assert!(sizes[3] == EIGHTS_ESCAPE as usize + 1 && sizes[4] == ONES_ESCAPE as usize + 1);
};
/// Number of groups in the sample by which an alphabet is chosen.
const SAMPLE_GROUPS: usize = 128;
/// Estimated cost of a literal in bits.
const REST_BITS: u64 = 7;

impl Alphabet {
    pub(crate) const ALL: [Self; 5] = [Self::Singles, Self::Pairs, Self::Fours, Self::Eights, Self::Ones];

    /// How many bytes a symbol stands for.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Ones => GROUP,
            _ => 1 << self as u8,
        }
    }

    /// Number of symbols.
    pub(crate) fn size(self) -> usize {
        ALPHABET_SYMBOLS[self as usize]
    }

    /// The escape symbol.
    pub(crate) fn escape(self) -> Option<u8> {
        match self {
            Self::Singles => None,
            Self::Pairs => Some(PAIRS_ESCAPE),
            Self::Fours => Some(FOURS_ESCAPE),
            Self::Eights => Some(EIGHTS_ESCAPE),
            Self::Ones => Some(ONES_ESCAPE),
        }
    }

    /// Symbols of a group.
    #[inline(always)]
    fn symbols(self, bytes: &[u8; GROUP], out: &mut [u8; GROUP]) {
        match self {
            Self::Singles => *out = *bytes,
            Self::Pairs => {
                for (symbol, two) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                    *symbol = pair(*two);
                }
            }
            Self::Fours => {
                for (symbol, four) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *symbol = four_at_once(*four);
                }
            }
            Self::Eights => {
                for (symbol, eight) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *symbol = eight_at_once(*eight);
                }
            }
            Self::Ones => out[0] = one_of_all(bytes),
        }
    }
}

/// 7 a + b, where a and b are two bytes minus (ZERO - 3).
#[inline(always)]
fn pair(bytes: [u8; 2]) -> u8 {
    let [a, b] = bytes.map(|byte| byte.wrapping_sub(ZERO - 3));
    let symbol = a.wrapping_mul(7).wrapping_add(b);
    if (a > 6) | (b > 6) { PAIRS_ESCAPE } else { symbol }
}

/// 27 a + 9 b + 3 c + d, where a to d are four bytes minus (ZERO - 1).
#[inline(always)]
fn four_at_once(bytes: [u8; 4]) -> u8 {
    let x = u32::from_le_bytes(bytes.map(|byte| byte.wrapping_sub(ZERO - 1)));
    let symbol = (x.wrapping_mul(27 << 24 | 9 << 16 | 3 << 8 | 1) >> 24) as u8;
    // Bytes above 2 have one of these bits set, or get one.
    let is_over = (x | (x & 0x7f7f_7f7f).wrapping_add(0x7d7d_7d7d)) & 0x8080_8080 != 0;
    if is_over { FOURS_ESCAPE } else { symbol }
}

/// Which of eight bytes are not zero, and which of them are above it; `None` if one is more than 1 away.
#[inline(always)]
fn signs(bytes: [u8; 8]) -> Option<(u8, u8)> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let x = u64::from_le_bytes(bytes.map(|byte| byte.wrapping_sub(ZERO - 1)));
    if (x | (x & (0x7f * LOW)).wrapping_add(0x7d * LOW)) & (0x80 * LOW) != 0 {
        return None;
    }
    // -1, 0 and 1 are 0, 1 and 2 here. The multiplication gathers the low bits of all bytes in the highest byte.
    let collect = |bits: u64| ((bits & LOW).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    Some((collect(!x), collect(x >> 1)))
}

/// First symbol of each set of at most two of eight bytes.
static EIGHTS_BASES: [u8; 256] = {
    let mut all = [EIGHTS_ESCAPE; 256];
    all[0] = 0;
    let mut next = 1;
    let mut high = 0;
    while high < 8 {
        all[1 << high] = next;
        next += 2;
        high += 1;
    }
    high = 0;
    while high < 8 {
        let mut low = 0;
        while low < high {
            all[1 << high | 1 << low] = next;
            next += 4;
            low += 1;
        }
        high += 1;
    }
    assert!(next == EIGHTS_ESCAPE);
    all
};

/// The symbol of a set of bytes that are not zero, and of their signs; the sign of the first one is the low bit.
#[inline(always)]
fn eight_at_once(bytes: [u8; 8]) -> u8 {
    let Some((set, above)) = signs(bytes) else { return EIGHTS_ESCAPE };
    let base = EIGHTS_BASES[usize::from(set)];
    if base == EIGHTS_ESCAPE {
        return EIGHTS_ESCAPE;
    }
    let first = set & set.wrapping_neg();
    base + u8::from(above & first != 0) + 2 * u8::from(above & !first != 0)
}

/// Twice the position of the only byte that is not zero, plus 1 if that byte is positive.
#[inline(always)]
fn one_of_all(bytes: &[u8; GROUP]) -> u8 {
    let mut positions = bytes.iter().enumerate().filter(|(_, byte)| **byte != ZERO);
    match (positions.next(), positions.next()) {
        (Some((position, &byte)), None) if byte.abs_diff(ZERO) == 1 => 2 * position as u8 + u8::from(byte > ZERO),
        _ => ONES_ESCAPE,
    }
}

/// Counts byte symbols in four tables, so that equal consecutive symbols do not depend on each other.
#[inline(always)]
fn count(symbols: &[u8], counts: &mut [[u32; 256]; 4]) {
    let (fours, rest) = symbols.as_chunks::<4>();
    for four in fours {
        for (counts, symbol) in counts.iter_mut().zip(four) {
            counts[usize::from(*symbol)] += 1;
        }
    }
    rest.iter().for_each(|symbol| counts[0][usize::from(*symbol)] += 1);
}

#[inline(always)]
fn total(counts: &[[u32; 256]; 4]) -> [u32; 256] {
    std::array::from_fn(|symbol| counts.iter().map(|counts| counts[symbol]).sum())
}

/// Estimated bits of the Huffman codes of these symbols: the entropy, but at least one bit for the most frequent one.
fn cost(counts: &[u32; 256]) -> u64 {
    let n: u32 = counts.iter().sum();
    let most = counts.iter().copied().max().unwrap_or(0);
    let sum: u64 = counts.iter().map(|&count| x_log2_x(count)).sum();
    let bits = if most > n / 2 {
        let n_others = n - most;
        (u64::from(n) << COST_BITS) + x_log2_x(n_others) - (sum - x_log2_x(most))
    } else {
        x_log2_x(n) - sum
    };
    bits >> COST_BITS
}

/// Chooses the alphabet of a codebook from a sample of its groups.
pub(crate) struct Choose<'a> {
    pub(crate) bytes: &'a [[u8; GROUP]],
    pub(crate) groups: &'a [u32],
}

impl Kernel for Choose<'_> {
    type Output = Alphabet;

    #[inline(always)]
    fn run(self) -> Alphabet {
        let mut best = (u64::MAX, Alphabet::Singles);
        let n_sample = self.groups.len().min(SAMPLE_GROUPS);
        for alphabet in Alphabet::ALL {
            let mut counts = [[0; 256]; 4];
            let mut symbols = [0; GROUP];
            for i in 0..n_sample {
                let group = self.groups[i * self.groups.len() / n_sample];
                alphabet.symbols(&self.bytes[group as usize], &mut symbols);
                count(&symbols[..GROUP / alphabet.width()], &mut counts);
            }
            let counts = total(&counts);
            let n_rest = alphabet.escape().map_or(0, |escape| counts[usize::from(escape)]) as usize * alphabet.width();
            let bits = cost(&counts) + REST_BITS * n_rest as u64;
            if bits < best.0 {
                best = (bits, alphabet);
            }
        }
        best.1
    }
}

/// Turns the bytes of a codebook's groups into symbols, and counts them. Literals go to `rest`.
pub(crate) struct Gather<'a> {
    pub(crate) bytes: &'a [[u8; GROUP]],
    pub(crate) groups: &'a [u32],
    pub(crate) alphabet: Alphabet,
    /// What is coded in the place of each symbol; `None` if all are coded as they are.
    pub(crate) coded: Option<&'a [u8; 256]>,
    pub(crate) symbols: &'a mut [u8],
    pub(crate) rest: &'a mut Vec<u8>,
}

impl Kernel for Gather<'_> {
    type Output = [u32; 256];

    #[inline(always)]
    fn run(self) -> [u32; 256] {
        match self.alphabet {
            Alphabet::Singles => gather::<{ GROUP }>(self),
            Alphabet::Pairs => gather::<{ GROUP / 2 }>(self),
            Alphabet::Fours => gather::<{ GROUP / 4 }>(self),
            Alphabet::Eights => gather::<{ GROUP / 8 }>(self),
            Alphabet::Ones => gather::<1>(self),
        }
    }
}

/// With `N` symbols in each group.
#[inline(always)]
fn gather<const N: usize>(job: Gather<'_>) -> [u32; 256] {
    let mut counts = [[0; 256]; 4];
    let mut symbols = [0; GROUP];
    for (out, &group) in job.symbols.as_chunks_mut::<N>().0.iter_mut().zip(job.groups) {
        let bytes = &job.bytes[group as usize];
        job.alphabet.symbols(bytes, &mut symbols);
        if let Some(coded) = job.coded {
            symbols[..N].iter_mut().for_each(|symbol| *symbol = coded[usize::from(*symbol)]);
        }
        *out = *symbols.first_chunk().expect("a group has more bytes than symbols");
        count(out, &mut counts);
        let Some(escape) = job.alphabet.escape() else { continue };
        let n_escapes: u8 = out.iter().map(|symbol| u8::from(*symbol == escape)).sum();
        if n_escapes > 0 {
            for (bytes, _) in bytes.chunks(GROUP / N).zip(out).filter(|(_, symbol)| **symbol == escape) {
                job.rest.extend_from_slice(bytes);
            }
        }
    }
    total(&counts)
}

/// Counts of symbols.
pub(crate) struct Count<'a>(pub(crate) &'a [u8]);

impl Kernel for Count<'_> {
    type Output = [u32; 256];

    #[inline(always)]
    fn run(self) -> [u32; 256] {
        let mut counts = [[0; 256]; 4];
        count(self.0, &mut counts);
        total(&counts)
    }
}

/// The bytes of each symbol of pairs and fours; zeros for escapes.
static PAIRS: [[u8; 2]; 256] = {
    let mut all = [[ZERO; 2]; 256];
    let mut symbol = 0;
    while symbol < PAIRS_ESCAPE as usize {
        all[symbol] = [ZERO - 3 + (symbol / 7) as u8, ZERO - 3 + (symbol % 7) as u8];
        symbol += 1;
    }
    all
};
static FOURS: [[u8; 4]; 256] = {
    let mut all = [[ZERO; 4]; 256];
    let mut symbol = 0;
    while symbol < FOURS_ESCAPE as usize {
        let low = ZERO - 1;
        let digits = [symbol / 27, symbol / 9 % 3, symbol / 3 % 3, symbol % 3];
        all[symbol] = [low + digits[0] as u8, low + digits[1] as u8, low + digits[2] as u8, low + digits[3] as u8];
        symbol += 1;
    }
    all
};

static EIGHTS: [[u8; 8]; 256] = {
    let mut all = [[ZERO; 8]; 256];
    let mut set = 1;
    while set < 256_usize {
        let base = EIGHTS_BASES[set] as usize;
        let mut signs = 0;
        while base != EIGHTS_ESCAPE as usize && signs < 1 << set.count_ones() {
            let (mut position, mut n) = (0, 0);
            while position < 8 {
                if set >> position & 1 != 0 {
                    all[base + signs][position] = ZERO - 1 + 2 * (signs >> n & 1) as u8;
                    n += 1;
                }
                position += 1;
            }
            signs += 1;
        }
        set += 1;
    }
    all
};
static ONES: [[u8; GROUP]; 256] = {
    let mut all = [[ZERO; GROUP]; 256];
    let mut symbol = 0;
    while symbol < ONES_ESCAPE as usize {
        all[symbol][symbol / 2] = ZERO - 1 + 2 * (symbol % 2) as u8;
        symbol += 1;
    }
    all
};

/// Turns symbols back into the bytes of a codebook's groups. Returns false if `rest` has too few literals.
pub(crate) struct Scatter<'a, 'r> {
    pub(crate) symbols: &'a [u8],
    pub(crate) groups: &'a [u32],
    pub(crate) alphabet: Alphabet,
    pub(crate) rest: &'a mut &'r [u8],
    pub(crate) bytes: &'a mut [[u8; GROUP]],
}

impl Kernel for Scatter<'_, '_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        match self.alphabet {
            Alphabet::Singles => {
                for (symbols, &group) in self.symbols.as_chunks::<GROUP>().0.iter().zip(self.groups) {
                    self.bytes[group as usize] = *symbols;
                }
                true
            }
            Alphabet::Pairs => scatter::<{ GROUP / 2 }, 2>(self, &PAIRS),
            Alphabet::Fours => scatter::<{ GROUP / 4 }, 4>(self, &FOURS),
            Alphabet::Eights => scatter::<{ GROUP / 8 }, 8>(self, &EIGHTS),
            Alphabet::Ones => scatter::<1, GROUP>(self, &ONES),
        }
    }
}

#[inline(always)]
fn scatter<const N: usize, const WIDTH: usize>(job: Scatter<'_, '_>, expansion: &[[u8; WIDTH]; 256]) -> bool {
    let escape = job.alphabet.escape().unwrap_or(u8::MAX);
    for (symbols, &group) in job.symbols.as_chunks::<N>().0.iter().zip(job.groups) {
        let bytes = job.bytes[group as usize].as_chunks_mut::<WIDTH>().0;
        for (bytes, symbol) in bytes.iter_mut().zip(symbols) {
            *bytes = expansion[usize::from(*symbol)];
        }
        let n_escapes: u8 = symbols.iter().map(|symbol| u8::from(*symbol == escape)).sum();
        if n_escapes > 0 {
            for (bytes, _) in bytes.iter_mut().zip(symbols).filter(|(_, symbol)| **symbol == escape) {
                let Some((next, rest)) = job.rest.split_first_chunk() else { return false };
                (*bytes, *job.rest) = (*next, rest);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of `n_large` bytes that are far from zero among smaller ones.
    fn groups(reach: u8, n_nonzero: usize, n: usize) -> Vec<[u8; GROUP]> {
        let mut state = 3_u32;
        let mut next = |n: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 10) as usize % n
        };
        let mut all = vec![[ZERO; GROUP]; n];
        for group in &mut all {
            for _ in 0..n_nonzero {
                let far = 1 + next(usize::from(reach)) as u8;
                group[next(GROUP)] = if next(2) == 0 { ZERO - far } else { ZERO + far };
            }
        }
        all
    }

    #[test]
    fn every_alphabet_says_everything() {
        for reach in [1, 2, 3, 20, 127] {
            for n_nonzero in [0, 1, 2, 5, 40] {
                let bytes = groups(reach, n_nonzero, 50);
                let positions: Vec<u32> = (0..50).rev().collect();
                for alphabet in Alphabet::ALL {
                    let mut symbols = vec![0; 50 * GROUP / alphabet.width()];
                    let mut rest = Vec::new();
                    let job = Gather {
                        bytes: &bytes,
                        groups: &positions,
                        alphabet,
                        coded: None,
                        symbols: &mut symbols,
                        rest: &mut rest,
                    };
                    let counts = job.run();
                    assert_eq!(counts.iter().sum::<u32>() as usize, symbols.len());
                    assert!(symbols.iter().all(|symbol| usize::from(*symbol) < alphabet.size()));
                    let (mut left, mut back) = (&rest[..], vec![[7; GROUP]; 50]);
                    let job =
                        Scatter { symbols: &symbols, groups: &positions, alphabet, rest: &mut left, bytes: &mut back };
                    assert!(job.run() && left.is_empty());
                    assert_eq!(back, bytes, "{alphabet:?} {reach} {n_nonzero}");
                    if !rest.is_empty() {
                        let mut left = &rest[1..];
                        let bytes = &mut back[..];
                        assert!(
                            !Scatter { symbols: &symbols, groups: &positions, alphabet, rest: &mut left, bytes }.run()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn sparse_groups_have_long_symbols() {
        let cases = [
            (1, 1, Alphabet::Ones),
            (1, 2, Alphabet::Eights),
            (1, 12, Alphabet::Fours),
            (3, 80, Alphabet::Pairs),
            (60, 80, Alphabet::Singles),
        ];
        for (reach, n_nonzero, best) in cases {
            let bytes = groups(reach, n_nonzero, 200);
            let positions: Vec<u32> = (0..200).collect();
            assert_eq!(Choose { bytes: &bytes, groups: &positions }.run(), best, "{reach} {n_nonzero}");
        }
    }
}
