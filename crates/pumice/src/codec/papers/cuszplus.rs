//! The codec of the preset `cuszplus`: quantisation codes as in cuSZ+, under a Huffman code, or as runs if these are
//! probably smaller (docs/format.md, 12).
//!
//! The rule is the paper's: runs are coded if a Huffman code would probably take at most 1.09 bits per code, since it
//! cannot take less than 1. This average is not computed; the histogram gives a lower bound of it.

use super::quant_codes::{self, CodesFormat, MAX_BITS, N_CODES, QuantCodes, read_symbols, write_symbols};
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder, NumberModel};
use crate::entropy::histogram::{COST_BITS, x_log2_x};
use crate::entropy::huffman::Lengths;
use crate::entropy::run_length;
use crate::error::{Error, Result};
use crate::exec::filled;
use crate::io::Bytes;
use crate::num::Real;
use crate::plan::Quantizer;

/// How codes become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Workflow {
    Huffman = 0,
    /// Raw runs.
    Runs = 1,
    /// Runs under Huffman codes: RLE+VLE.
    CodedRuns = 2,
}

impl Workflow {
    /// The workflow that the rule selects for this histogram.
    pub(crate) fn choose(counts: &[u32]) -> Self {
        if BitLength::of(counts).is_within(MOST_HUNDREDTHS) { Self::CodedRuns } else { Self::Huffman }
    }
}

/// Runs are coded up to this average length of a Huffman code, in hundredths of a bit.
const MOST_HUNDREDTHS: u64 = 109;

/// Bounds of the average length of a Huffman code, from the histogram alone: its entropy, plus the least and the most
/// redundancy of any such code, given the probability p1 of the most likely symbol. Both are integers, for all symbols
/// together in units of 2^-16 bits, so that every machine makes the same choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitLength {
    n: u64,
    lower: u64,
    #[cfg(any(test, feature = "unstable-research"))]
    upper: u64,
}

impl BitLength {
    pub(crate) fn of(counts: &[u32]) -> Self {
        let n: u32 = counts.iter().sum();
        let most = counts.iter().copied().max().unwrap_or(0);
        let entropy = x_log2_x(n).saturating_sub(counts.iter().map(|&count| x_log2_x(count)).sum());
        // 1 - H(p1, 1 - p1), which holds for p1 above 0.4.
        let of_two = x_log2_x(n).saturating_sub(x_log2_x(most) + x_log2_x(n - most));
        let n = u64::from(n);
        let is_likely = 5 * u64::from(most) > 2 * n;
        let least_above = if is_likely { (n << COST_BITS).saturating_sub(of_two) } else { 0 };
        Self {
            n,
            lower: entropy + least_above,
            // p1 + 0.086.
            #[cfg(any(test, feature = "unstable-research"))]
            upper: entropy + (u64::from(most) << COST_BITS) + (n << COST_BITS) * 86 / 1000,
        }
    }

    fn is_within(self, hundredths: u64) -> bool {
        100 * self.lower <= hundredths * (self.n << COST_BITS)
    }

    /// The bounds in bits for each symbol.
    #[cfg(any(test, feature = "unstable-research"))]
    pub(crate) fn bits(self) -> (f64, f64) {
        let scale = (self.n.max(1) << COST_BITS) as f64;
        (self.lower as f64 / scale, self.upper as f64 / scale)
    }
}

/// The codec of the preset `cuszplus`. It cannot code values with too many outliers.
pub(crate) struct Cuszplus;

impl<T: Real> ChunkCodec<T> for Cuszplus {
    const ID: CodecId = CodecId::Cuszplus;
    type Settings<'a>
        = &'a Quantizer<T>
    where
        T: 'a;

    fn encode(values: &[T], quantizer: Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        quant_codes::encode::<T, Workflow>(values, quantizer, chunk, out)
    }

    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        quant_codes::decode_bytes(payload_bytes, chunk)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        quant_codes::decode::<T, Workflow>(payload, chunk, out)
    }
}

impl CodesFormat for Workflow {
    const ALL: [Self; 3] = [Self::Huffman, Self::Runs, Self::CodedRuns];
    const UNKNOWN: &'static str = "chunk has an unknown workflow";

    fn to_byte(self) -> u8 {
        self as u8
    }

    fn select(all: &QuantCodes, counts: &[u32; N_CODES]) -> Self {
        if Self::choose(counts) == Self::Huffman {
            return Self::Huffman;
        }
        let n_bytes = |workflow: Self| {
            let (parameters, body) = all.coded(workflow, counts);
            parameters.len() + body.len()
        };
        // The second stage is optional in the paper. It is omitted if it gains nothing.
        if n_bytes(Self::CodedRuns) <= n_bytes(Self::Runs) { Self::CodedRuns } else { Self::Runs }
    }

    fn write(self, codes: &[u16], counts: &[u32; N_CODES], coder: &mut BinaryEncoder<'_>, body: &mut Vec<u8>) {
        if self == Self::Huffman {
            let lengths = Lengths::fit(counts, MAX_BITS);
            lengths.write(coder);
            write_symbols(coder, codes, &lengths, body);
            return;
        }
        let (mut values, mut digits) = (Vec::new(), Vec::new());
        run_length::encode(codes, &mut values, &mut digits);
        let mut number = NumberModel::default();
        number.code(coder, values.len() as u64);
        number.code(coder, digits.len() as u64);
        if self == Self::Runs {
            values.iter().for_each(|value| body.extend_from_slice(&value.to_le_bytes()));
            body.extend_from_slice(&digits);
            return;
        }
        let mut value_counts = [0; N_CODES];
        values.iter().for_each(|value| value_counts[usize::from(*value)] += 1);
        let mut digit_counts = [0; 256];
        digits.iter().for_each(|digit| digit_counts[usize::from(*digit)] += 1);
        let of_values = Lengths::fit(&value_counts, MAX_BITS);
        let of_digits = Lengths::fit(&digit_counts, MAX_BITS);
        of_values.write(coder);
        of_digits.write(coder);
        write_symbols(coder, &values, &of_values, body);
        write_symbols(coder, &digits, &of_digits, body);
    }

    fn read(self, coder: &mut BinaryDecoder<'_>, body: &mut Bytes<'_>, codes: &mut [u16]) -> Result<()> {
        if self == Self::Huffman {
            let lengths = Lengths::read(coder, N_CODES)?;
            return read_symbols(coder, &lengths, body, codes);
        }
        let mut number = NumberModel::default();
        // Runs are not empty, and each digit stands for at least one value.
        let mut count = || match number.code(coder, 0) {
            n if n <= codes.len() as u64 => Ok(n as usize),
            _ => Err(Error::corrupt("chunk has more runs than values")),
        };
        let (n_runs, n_digits) = (count()?, count()?);
        let (mut digits, mut values) = (filled(0, n_digits)?, filled(0, n_runs)?);
        if self == Self::Runs {
            let from = body.take(2 * n_runs)?.chunks_exact(2);
            values.iter_mut().zip(from).for_each(|(value, from)| *value = u16::from_le_bytes([from[0], from[1]]));
            if values.iter().any(|value| usize::from(*value) >= N_CODES) {
                return Err(Error::corrupt("run has a code that does not exist"));
            }
            digits.copy_from_slice(body.take(n_digits)?);
        } else {
            let of_values = Lengths::read(coder, N_CODES)?;
            let of_digits = Lengths::read(coder, 256)?;
            read_symbols(coder, &of_values, body, &mut values)?;
            read_symbols(coder, &of_digits, body, &mut digits)?;
        }
        run_length::decode(&values, &digits, codes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tokens::tests::Random;

    #[test]
    fn the_bounds_hold() {
        let mut random = Random(9);
        for case in 0..300 {
            let n_symbols = 2 + random.next() as usize % 40;
            let mut counts: Vec<u32> = (0..n_symbols).map(|_| 1 + random.next() % 1000).collect();
            counts[0] = 1 + (random.next() % 1000) * [1, 10, 100, 1000][case % 4];
            let cost = Lengths::fit(&counts, 24).cost_bits(&counts) as f64;
            let n = f64::from(counts.iter().sum::<u32>());
            let (lower, upper) = BitLength::of(&counts).bits();
            // The logarithms are good to about 2^-13.
            assert!(lower <= cost / n + 1e-3 && cost / n <= upper + 1e-3, "{lower} {} {upper}", cost / n);
        }
    }

    #[test]
    fn the_rule_is_that_of_the_paper() {
        let choice = |most: u32, others: &[u32]| {
            let mut counts = [0; N_CODES];
            counts[512] = most;
            counts[513..513 + others.len()].copy_from_slice(others);
            Workflow::choose(&counts)
        };
        assert_eq!(choice(1000, &[]), Workflow::CodedRuns);
        // Two symbols take one bit each whatever their counts; three take 1 + the share of the rarer two.
        assert_eq!(choice(500, &[500]), Workflow::CodedRuns);
        assert_eq!(choice(925, &[40, 35]), Workflow::CodedRuns);
        assert_eq!(choice(880, &[60, 60]), Workflow::Huffman);
        assert_eq!(choice(300, &[300, 300]), Workflow::Huffman);
    }

    /// Every workflow decodes, whichever the rule would choose.
    #[test]
    fn every_workflow_comes_back() {
        let quantizer = Quantizer::<f32>::new(0.5, Some(1e5)).unwrap();
        let mut random = Random(5);
        for shape in [&[5000][..], &[70, 71], &[9, 10, 11], &[2, 3, 40, 21]] {
            for rarity in [2, 30, 1000] {
                let mut values: Vec<f32> = vec![0.0; shape.iter().product()];
                let mut level = 0.0;
                for (i, x) in values.iter_mut().enumerate() {
                    if random.next().is_multiple_of(rarity) {
                        level = (random.next() % 100) as f32;
                    }
                    *x = match i {
                        _ if i % 97 == 11 => f32::NAN,
                        _ if i % 101 == 50 => 4000.0,
                        _ => level,
                    };
                }
                values[7] = f32::INFINITY;
                let fills = [f32::NAN];
                let all = QuantCodes::new(&values, shape, &quantizer, &fills);
                let counts = all.counts();
                assert!(all.is_codable());
                for workflow in Workflow::ALL {
                    let chunk = ChunkContext { step: Some(quantizer.step), fills: &fills, ..ChunkContext::new(shape) };
                    let mut payload = Vec::new();
                    all.write_payload(workflow, &counts, &values, 1, &mut payload);
                    let mut back = vec![0.0; values.len()];
                    Cuszplus::decode(&payload, &chunk, &mut back).unwrap();
                    let is_fine = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || (x - y).abs() <= 0.5;
                    assert!(values.iter().zip(&back).all(is_fine), "{workflow:?}");
                    for n in 0..payload.len().min(300) {
                        Cuszplus::decode(&payload[..n], &chunk, &mut back).unwrap_err();
                    }
                    payload.push(0);
                    Cuszplus::decode(&payload, &chunk, &mut back).unwrap_err();
                }
            }
        }
    }
}
