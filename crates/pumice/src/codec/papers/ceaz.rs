//! The codec of the preset `ceaz`: quantisation codes under offline codewords, made beforehand from many arrays, or
//! under the chunk's own codewords if its distribution differs (docs/format.md, 13).
//!
//! As in CEAZ, the difference of the standard deviations of both distributions decides. A chunk is an update window of
//! the paper, but decodes independently: the alternative to new codewords are always the offline ones, never those of
//! the previous window. So the bytes do not depend on the order of the windows.

use std::sync::OnceLock;

use super::quant_codes::{self, CodesFormat, MAX_BITS, N_CODES, QuantCodes, RADIUS, read_symbols, write_symbols};
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
use crate::entropy::huffman::Lengths;
use crate::error::Result;
use crate::io::Bytes;
use crate::num::Real;
use crate::plan::Quantizer;

/// Limits of the difference of standard deviations: up to tau 0 codewords are kept, up to tau 1 new ones are made by
/// the cheaper method.
const KEEP: f64 = 5.18;
const UPDATE: f64 = 9.69;

/// Where the codewords of a chunk come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Codewords {
    /// The offline codewords.
    Offline = 0,
    /// Made from symbols in an approximate order.
    Updated = 1,
    /// Made by the optimal method.
    Rebuilt = 2,
}

impl Codewords {
    /// Decides by chi, the difference of the standard deviations.
    pub(crate) fn choose(chi: f64) -> Self {
        match chi {
            chi if chi <= KEEP => Self::Offline,
            chi if chi <= UPDATE => Self::Updated,
            _ => Self::Rebuilt,
        }
    }

    /// The codewords for codes of these counts.
    pub(crate) fn lengths(self, counts: &[u32; N_CODES]) -> Lengths {
        match self {
            Self::Offline => Offline::get().lengths.clone(),
            Self::Updated => lengths_in_order(&approximately_sorted(counts), counts),
            Self::Rebuilt => Lengths::fit(counts, MAX_BITS),
        }
    }
}

/// The standard deviation of a code. Each operation is correctly rounded and the order is fixed, so all machines get
/// the same result.
pub(crate) fn deviation(counts: &[u32; N_CODES]) -> f64 {
    let sum =
        |f: fn(u128) -> u128| -> u128 { (0..).zip(counts).map(|(code, &count)| f(code) * u128::from(count)).sum() };
    let (n, first, second) = (sum(|_| 1), sum(|code| code), sum(|code| code * code));
    if n == 0 {
        return 0.0;
    }
    ((n * second - first * first) as f64).sqrt() / n as f64
}

/// How far the distribution of these counts is from that of the offline codewords.
pub(crate) fn chi(counts: &[u32; N_CODES]) -> f64 {
    (Offline::get().deviation - deviation(counts)).abs()
}

// ---- Offline codewords ----

/// Offline codewords: every code has one.
pub(crate) struct Offline {
    pub(crate) deviation: f64,
    pub(crate) lengths: Lengths,
}

/// The standard deviation is stored in units of this.
const DEVIATION_UNIT: f64 = 1.0 / 65536.0;

impl Offline {
    pub(crate) fn get() -> &'static Self {
        static OFFLINE: OnceLock<Offline> = OnceLock::new();
        let bytes = include_bytes!("../../../assets/ceaz-codewords.bin");
        OFFLINE.get_or_init(|| Self::read(bytes).expect("the codewords are part of the program"))
    }

    /// Codewords for codes of these counts, each taken to occur at least once, as bytes.
    #[cfg(any(test, feature = "unstable-research"))]
    pub(crate) fn write(counts: &[u32; N_CODES], out: &mut Vec<u8>) {
        out.extend_from_slice(&((deviation(counts) / DEVIATION_UNIT) as u32).to_le_bytes());
        let mut coder = BinaryEncoder::new(out);
        Lengths::fit(&counts.map(|count| count.max(1)), MAX_BITS).write(&mut coder);
        coder.finish();
    }

    fn read(bytes: &[u8]) -> Result<Self> {
        let mut bytes = Bytes::new(bytes);
        let deviation = f64::from(u32::from_le_bytes(bytes.array()?)) * DEVIATION_UNIT;
        let mut coder = BinaryDecoder::new(bytes.rest());
        let lengths = Lengths::read(&mut coder, N_CODES)?;
        coder.finish()?;
        Ok(Self { deviation, lengths })
    }
}

// ---- Codewords from an approximate order ----

/// Codes that occur, rare ones first, assuming that the distribution is symmetric and falls off from the middle: only
/// pairs of codes at the same distance are compared (the paper's algorithm 1).
fn approximately_sorted(counts: &[u32; N_CODES]) -> Vec<u16> {
    let used: Vec<u16> = (0..N_CODES as u16).filter(|code| counts[usize::from(*code)] != 0).collect();
    let Some(last) = used.len().checked_sub(1) else { return used };
    let middle = used.partition_point(|code| i32::from(*code) < RADIUS).min(last);
    let (below, above) = (&used[..middle], &used[middle + 1..]);
    let mut sorted = vec![used[middle]];
    for (&low, &high) in below.iter().rev().zip(above) {
        let is_higher = counts[usize::from(low)] <= counts[usize::from(high)];
        sorted.extend(if is_higher { [high, low] } else { [low, high] });
    }
    let n_pairs = below.len().min(above.len());
    sorted.extend(below[..middle - n_pairs].iter().rev());
    sorted.extend(&above[n_pairs..]);
    sorted.reverse();
    sorted
}

/// Huffman's tree by two queues, assuming that symbols are sorted by count, then limited to the longest code allowed.
fn lengths_in_order(order: &[u16], counts: &[u32; N_CODES]) -> Lengths {
    let mut bits = vec![Lengths::NO_CODE; N_CODES];
    if order.len() < 2 {
        order.iter().for_each(|code| bits[usize::from(*code)] = 0);
        return Lengths::new(bits).expect("a code of a single symbol is complete");
    }
    // Nodes are first the leaves, then the pairs, each in order: two queues in one array.
    let n = order.len();
    let mut weights: Vec<u64> = order.iter().map(|code| u64::from(counts[usize::from(*code)])).collect();
    let mut parents = vec![0; 2 * n - 1];
    let (mut leaf, mut pair) = (0, n);
    for node in n..2 * n - 1 {
        let mut weight = 0;
        for _ in 0..2 {
            let takes_leaf = leaf < n && (pair == node || weights[leaf] <= weights[pair]);
            let taken = if takes_leaf { &mut leaf } else { &mut pair };
            parents[*taken] = node;
            weight += weights[*taken];
            *taken += 1;
        }
        weights.push(weight);
    }
    let mut depths = vec![0_usize; 2 * n - 1];
    (0..2 * n - 2).rev().for_each(|node| depths[node] = depths[parents[node]] + 1);
    let mut n_codes = vec![0; n.max(MAX_BITS as usize + 1)];
    depths[..n].iter().for_each(|depth| n_codes[*depth] += 1);
    // Moves two leaves that are too deep: one replaces their parent, the other becomes the sibling of a leaf further
    // up.
    for depth in (MAX_BITS as usize + 1..n_codes.len()).rev() {
        while n_codes[depth] > 0 {
            let above = (1..depth - 1).rev().find(|&above| n_codes[above] > 0).expect("1024 leaves have room");
            n_codes[depth] -= 2;
            n_codes[depth - 1] += 1;
            n_codes[above] -= 1;
            n_codes[above + 1] += 2;
        }
    }
    let mut by_depth: Vec<usize> = (0..n).collect();
    by_depth.sort_by_key(|&i| (depths[i], std::cmp::Reverse(i)));
    let lengths = (0_u8..).zip(&n_codes).flat_map(|(length, n)| std::iter::repeat_n(length, *n));
    by_depth.into_iter().zip(lengths).for_each(|(i, length)| bits[usize::from(order[i])] = length);
    Lengths::new(bits).expect("a tree is a complete code")
}

// ---- Chunks ----

/// The codec of the preset `ceaz`. It cannot code values with too many outliers.
pub(crate) struct Ceaz;

impl<T: Real> ChunkCodec<T> for Ceaz {
    const ID: CodecId = CodecId::Ceaz;
    type Settings<'a>
        = &'a Quantizer<T>
    where
        T: 'a;

    fn encode(values: &[T], quantizer: Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        quant_codes::encode::<T, Codewords>(values, quantizer, chunk, out)
    }

    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        quant_codes::decode_bytes(payload_bytes, chunk)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        quant_codes::decode::<T, Codewords>(payload, chunk, out)
    }
}

impl CodesFormat for Codewords {
    const ALL: [Self; 3] = [Self::Offline, Self::Updated, Self::Rebuilt];
    const UNKNOWN: &'static str = "chunk has unknown codewords";

    fn to_byte(self) -> u8 {
        self as u8
    }

    fn select(_: &QuantCodes, counts: &[u32; N_CODES]) -> Self {
        Self::choose(chi(counts))
    }

    fn write(self, codes: &[u16], counts: &[u32; N_CODES], coder: &mut BinaryEncoder<'_>, body: &mut Vec<u8>) {
        let lengths = self.lengths(counts);
        if self != Self::Offline {
            lengths.write(coder);
        }
        write_symbols(coder, codes, &lengths, body);
    }

    fn read(self, coder: &mut BinaryDecoder<'_>, body: &mut Bytes<'_>, codes: &mut [u16]) -> Result<()> {
        let own = match self {
            Self::Offline => None,
            _ => Some(Lengths::read(coder, N_CODES)?),
        };
        read_symbols(coder, own.as_ref().unwrap_or_else(|| &Offline::get().lengths), body, codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tokens::tests::Random;

    fn peaked(mean: f64, n: usize, seed: u64) -> [u32; N_CODES] {
        let mut random = Random(seed);
        let mut counts = [0; N_CODES];
        (0..n).for_each(|_| counts[(RADIUS + random.code(mean)).clamp(0, 1023) as usize] += 1);
        counts
    }

    #[test]
    fn offline_codewords_are_there_for_all_codes() {
        let offline = Offline::get();
        assert!(offline.lengths.bits().iter().all(|n| *n != Lengths::NO_CODE));
        assert!(offline.deviation > 0.0);
        let mut bytes = Vec::new();
        let counts = peaked(20.0, 100_000, 1);
        Offline::write(&counts, &mut bytes);
        let back = Offline::read(&bytes).unwrap();
        assert!((back.deviation - deviation(&counts)).abs() <= DEVIATION_UNIT);
        assert_eq!(back.lengths, Lengths::fit(&counts.map(|count| count.max(1)), MAX_BITS));
    }

    #[test]
    fn deviations() {
        let mut counts = [0; N_CODES];
        assert_eq!(deviation(&counts), 0.0);
        (counts[500], counts[520]) = (7, 7);
        assert_eq!(deviation(&counts), 10.0);
        (counts[0], counts[1023]) = (u32::MAX / 2, u32::MAX / 2);
        assert!((deviation(&counts) - 511.5).abs() < 1e-3);
    }

    #[test]
    fn thresholds() {
        let choices = [0.0, 5.18, 5.19, 9.69, 9.7, 500.0].map(Codewords::choose);
        assert_eq!(choices[..2], [Codewords::Offline; 2]);
        assert_eq!(choices[2..4], [Codewords::Updated; 2]);
        assert_eq!(choices[4..], [Codewords::Rebuilt; 2]);
    }

    #[test]
    fn the_approximate_order_is_that_of_the_paper() {
        let mut counts = [0; N_CODES];
        for (code, count) in [(510, 3), (511, 20), (512, 9), (513, 10), (514, 4), (515, 5), (600, 1)] {
            counts[code] = count;
        }
        assert_eq!(approximately_sorted(&counts), [600, 515, 510, 514, 513, 511, 512]);
        // Codes on one side only, and none.
        let mut counts = [0; N_CODES];
        (counts[3], counts[9]) = (5, 6);
        assert_eq!(approximately_sorted(&counts), [3, 9]);
        assert!(approximately_sorted(&[0; N_CODES]).is_empty());
    }

    #[test]
    fn an_approximate_order_costs_little() {
        for (mean, n) in [(0.5, 10_000), (3.0, 100_000), (30.0, 300_000)] {
            let counts = peaked(mean, n, 3);
            let approximate = Codewords::Updated.lengths(&counts).cost_bits(&counts);
            let best = Codewords::Rebuilt.lengths(&counts).cost_bits(&counts);
            assert!(best <= approximate && approximate * 100 <= best * 102, "{mean}: {approximate} {best}");
        }
    }

    #[test]
    fn any_order_gives_a_complete_code() {
        let mut random = Random(7);
        for case in 0..300 {
            let mut counts = [0; N_CODES];
            for _ in 0..random.next() % 300 {
                counts[random.next() as usize % N_CODES] = random.next() >> (random.next() % 32);
            }
            // Fibonacci numbers make deep trees.
            let (mut a, mut b) = (1, 1);
            for code in 400..400 + case % 45 {
                counts[code] = a;
                (a, b) = (b, a.wrapping_add(b));
            }
            let lengths = Codewords::Updated.lengths(&counts);
            assert!(lengths.bits().iter().zip(&counts).all(|(n, count)| (*n == Lengths::NO_CODE) == (*count == 0)));
            assert!(lengths.bits().iter().all(|n| *n == Lengths::NO_CODE || u32::from(*n) <= MAX_BITS));
        }
    }

    #[test]
    fn all_codewords_come_back() {
        let quantizer = Quantizer::<f64>::new(0.5, Some(1e5)).unwrap();
        let mut random = Random(5);
        for shape in [&[5000][..], &[70, 71], &[9, 10, 11]] {
            for mean in [0.2, 5.0, 60.0] {
                let n: usize = shape.iter().product();
                let mut values: Vec<f64> = (0..n).map(|_| f64::from(random.code(mean))).collect();
                values[3] = f64::NAN;
                values[4] = 1e300;
                let all = QuantCodes::new(&values, shape, &quantizer, &[f64::NAN]);
                let counts = all.counts();
                assert!(all.is_codable());
                for codewords in Codewords::ALL {
                    let fills = &[f64::NAN];
                    let chunk = ChunkContext { step: Some(quantizer.step), fills, ..ChunkContext::new(shape) };
                    let mut payload = Vec::new();
                    all.write_payload(codewords, &counts, &values, 1, &mut payload);
                    let mut back = vec![0.0; n];
                    Ceaz::decode(&payload, &chunk, &mut back).unwrap();
                    let is_fine = |(x, y): (&f64, &f64)| x.to_bits() == y.to_bits() || (x - y).abs() <= 0.5;
                    assert!(values.iter().zip(&back).all(is_fine), "{codewords:?}");
                    for n in (0..payload.len()).step_by(7) {
                        Ceaz::decode(&payload[..n], &chunk, &mut back).unwrap_err();
                    }
                }
            }
        }
    }
}
