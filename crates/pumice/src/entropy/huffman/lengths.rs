//! Lengths of codes: the optimal ones for given counts, and their bytes (docs/format.md, 8.2).

use super::{MAX_ALPHABET, MAX_BITS};
use crate::entropy::binary::{AdaptiveBit, BitCoder, NumberModel};
use crate::error::{Error, Result};

/// The length of each symbol's code: a complete prefix code, or that of a single symbol, which takes no bits, or of
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(super) bits: Vec<u8>,
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

    /// Checks given lengths; [`Lengths::NO_CODE`] where a symbol has no code.
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
    #[cfg(any(test, feature = "unstable-research"))]
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
    pub(super) fn is_empty(&self) -> bool {
        self.bits.iter().all(|&n_bits| n_bits == Self::NO_CODE)
    }

    /// Writes these lengths.
    pub(crate) fn write(&self, coder: &mut impl BitCoder) {
        let written = self.code(coder, self.bits.len());
        debug_assert!(written.is_ok_and(|written| written == *self));
    }

    /// Reads the lengths of so many symbols.
    pub(crate) fn read(coder: &mut impl BitCoder, n_symbols: usize) -> Result<Self> {
        Self::default().code(coder, n_symbols)
    }

    /// Codes lengths, which a decoder ignores, and returns them.
    fn code(&self, coder: &mut impl BitCoder, n_symbols: usize) -> Result<Self> {
        const NO_CODE: u8 = Lengths::NO_CODE;
        let given = |symbol: usize| self.bits.get(symbol).copied().unwrap_or(NO_CODE);
        // Symbols without a code behind the last one that has one.
        let n_behind = (0..n_symbols).rev().take_while(|&symbol| given(symbol) == NO_CODE).count();
        let n_behind = NumberModel::default().code(coder, n_behind as u64);
        let n_coded = usize::try_from(n_behind).ok().and_then(|n_behind| n_symbols.checked_sub(n_behind));
        let n_coded = n_coded.ok_or_else(|| Error::corrupt("codebook has more symbols than there are"))?;

        let mut bits = vec![NO_CODE; n_symbols];
        // Context: whether the previous two symbols have codes.
        let mut has_codes: [AdaptiveBit; 4] = Default::default();
        let mut history = 3;
        for symbol in 0..n_coded {
            // That the last of them has a code is known.
            let has_code = symbol + 1 == n_coded || coder.bit(&mut has_codes[history], given(symbol) != NO_CODE);
            history = history << 1 & 3 | usize::from(has_code);
            bits[symbol] = if has_code { 0 } else { NO_CODE };
        }
        if bits.iter().filter(|n_bits| **n_bits == 0).count() < 2 {
            return Self::new(bits);
        }

        // Context: by how much the last length increased.
        let mut rises: [NumberModel; 3] = Default::default();
        let mut last = n_symbols.ilog2() as i64 / 2 + 1;
        let mut off = 0;
        for symbol in 0..n_coded {
            if bits[symbol] == NO_CODE {
                continue;
            }
            let rise = rises[off].code_signed(coder, i64::from(given(symbol)) - last);
            last = last.saturating_add(rise);
            if !(1..=i64::from(MAX_BITS)).contains(&last) {
                return Err(Error::corrupt("code has an impossible length"));
            }
            off = rise.unsigned_abs().min(2) as usize;
            bits[symbol] = last as u8;
        }
        Self::new(bits)
    }

    /// How many codes there are of each length.
    pub(super) fn count(&self) -> [u32; MAX_BITS as usize + 1] {
        let mut counts = [0; MAX_BITS as usize + 1];
        self.bits
            .iter()
            .filter(|n_bits| **n_bits != Self::NO_CODE)
            .for_each(|n_bits| counts[usize::from(*n_bits)] += 1);
        counts
    }

    /// The canonical code: shorter codes first, those of a length in the order of symbols, each the one before plus 1.
    /// This is the first code of each length, its most significant bit being the first one in the stream.
    pub(super) fn first_codes(&self) -> [u32; MAX_BITS as usize + 1] {
        let counts = self.count();
        let mut first = [0; MAX_BITS as usize + 1];
        for n_bits in 1..first.len() {
            first[n_bits] = (first[n_bits - 1] + counts[n_bits - 1]) << 1;
        }
        // A code of no bits leaves no others.
        if counts[0] == 0 { first } else { [0; MAX_BITS as usize + 1] }
    }

    pub(super) fn longest(&self) -> u32 {
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
