//! Quantisation codes: dual quantisation and N-D Lorenzo differences as in cuSZ and its successors, with 1024 codes and
//! a few outliers (docs/format.md, 12.1). This is the first stage of `cuszplus` and `ceaz`.
//!
//! A difference out of range is an outlier; its code is that of a difference of 0, so the decoder adds outliers to the
//! differences and then needs no case distinction. Values are restored by partial sums along each axis.

use crate::codec::ChunkContext;
use crate::codec::shared::dims::{AXES, Dims, X};
use crate::codec::shared::integers::{self, Exceptions};
use crate::codec::shared::{masks, padding};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder, BitCoder, NumberModel};
use crate::entropy::huffman::{self, Classes, Codebook, DecodeTables, Lengths, Symbol};
use crate::error::{Error, Result};
use crate::exec::{filled, reserve, scratch};
use crate::io::{Bytes, varint};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::quantize::{Quantizer, restore};

/// Number of codes.
pub(crate) const N_CODES: usize = 2 * RADIUS as usize;
/// The code of a difference of 0.
pub(crate) const RADIUS: i32 = 512;
/// The longest Huffman code of a quantisation code.
pub(crate) const MAX_BITS: u32 = 16;

/// How codes become bytes. The first byte of a payload names it.
pub(crate) trait CodesFormat: Copy {
    /// All formats of a codec.
    const ALL: [Self; 3];
    /// What to say of a byte that names none of them.
    const UNKNOWN: &'static str;

    /// The byte that names it.
    fn to_byte(self) -> u8;

    /// The format that the encoder selects for these codes, which occur so often.
    fn select(all: &QuantCodes, counts: &[u32; N_CODES]) -> Self;

    /// Writes the codes: parameters after the outliers to `coder`, everything else to `body`.
    fn write(self, codes: &[u16], counts: &[u32; N_CODES], coder: &mut BinaryEncoder<'_>, body: &mut Vec<u8>);

    /// Reads as many codes as there are in `codes`.
    fn read(self, coder: &mut BinaryDecoder<'_>, body: &mut Bytes<'_>, codes: &mut [u16]) -> Result<()>;
}

/// Appends the payload of a chunk in the format that F selects. Returns false if there are too many outliers.
pub(crate) fn encode<T: Real, F: CodesFormat>(
    values: &[T],
    quantizer: &Quantizer<T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> bool {
    let &ChunkContext { extents, fills, .. } = chunk;
    let all = QuantCodes::new(values, extents, quantizer, fills);
    let is_codable = all.is_codable();
    if is_codable {
        let counts = all.counts();
        all.write_payload(F::select(&all, &counts), &counts, values, fills.len(), out);
    }
    scratch::give(all.codes);
    is_codable
}

/// The most memory that [`decode`] takes: codes, and then either their runs or sums; the sizes and states of streams;
/// and outliers.
pub(crate) fn decode_bytes<T: Real>(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
    let n = chunk.n_values();
    let of_outliers = most_outliers(n as usize) as u64 * (size_of::<usize>() + size_of::<i32>()) as u64;
    6 * n + huffman::decode_bytes(n) + of_outliers + masks::decode_bytes(payload_bytes, chunk)
}

/// Decodes a payload of [`encode`].
pub(crate) fn decode<T: Real, F: CodesFormat>(
    payload: &[u8],
    chunk: &ChunkContext<'_, T>,
    out: &mut [T],
) -> Result<()> {
    let &ChunkContext { extents, fills, .. } = chunk;
    let step = chunk.needed_step()?;
    let mut bytes = Bytes::new(payload);
    let format = bytes.u8()?;
    let format = F::ALL.into_iter().find(|known| known.to_byte() == format);
    let format = format.ok_or_else(|| Error::corrupt(F::UNKNOWN))?;
    let mut prefix = CodesPrefix::read_from::<T>(&mut bytes, extents, fills.len())?;
    let mut codes = scratch::try_take(out.len())?;
    format.read(&mut prefix.coder, &mut bytes, &mut codes)?;
    prefix.check_end(&bytes, payload.len(), out.len())?;
    prefix.restore(&codes, step, fills, out)?;
    scratch::give(codes);
    Ok(())
}

/// A chunk as codes.
pub(crate) struct QuantCodes {
    dims: Dims,
    origin: i64,
    exceptions: Exceptions,
    pub(crate) codes: Vec<u16>,
    /// Positions of outliers, ascending, and their differences.
    outliers: Vec<usize>,
    outlier_values: Vec<i32>,
}

/// The axes that differences are taken along: the last three, with all axes before them merged into the first of these,
/// as in cuSZ.
fn natural_dims(extents: &[usize]) -> Dims {
    let mut dims = [1; AXES];
    for (i, n) in extents.iter().rev().enumerate() {
        dims[X - i.min(2)] *= n;
    }
    dims
}

impl QuantCodes {
    /// The codes of a chunk, which is not empty.
    pub(crate) fn new<T: Real>(values: &[T], extents: &[usize], quantizer: &Quantizer<T>, fills: &[T]) -> Self {
        let dims = natural_dims(extents);
        let (mut integers, exceptions) = integers::quantize_with_fills(values, quantizer, fills);
        simd::run(Differences { values: &mut integers.values, dims });
        let mut codes = scratch::take(values.len());
        let mut outliers = Vec::new();
        simd::run(Codes { differences: &integers.values, codes: &mut codes, outliers: &mut outliers });
        let outlier_values = outliers.iter().map(|&position| integers.values[position]).collect();
        scratch::give(integers.values);
        Self { dims, origin: integers.origin, exceptions, codes, outliers, outlier_values }
    }

    /// Whether there are few enough outliers for the format.
    pub(crate) fn is_codable(&self) -> bool {
        self.outliers.len() <= most_outliers(self.codes.len())
    }

    /// How often each code occurs.
    pub(crate) fn counts(&self) -> [u32; N_CODES] {
        let mut counts = [0; N_CODES];
        self.codes.iter().for_each(|&code| counts[usize::from(code) % N_CODES] += 1);
        counts
    }

    /// Appends a payload in this format: the bytes before the parameters, the parameters, and the body.
    pub(crate) fn write_payload<T: Real>(
        &self,
        format: impl CodesFormat,
        counts: &[u32; N_CODES],
        values: &[T],
        n_fills: usize,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let (parameters, body) = self.coded(format, counts);
        out.push(format.to_byte());
        varint::write_to(self.origin.zigzag() as u64, out);
        self.exceptions.write_to(values, &self.dims, n_fills, out);
        varint::write_to(parameters.len() as u64, out);
        out.extend_from_slice(&parameters);
        out.extend_from_slice(&body);
        padding::pad(out, start, values.len());
    }

    /// The parameters and the body of a payload in this format.
    pub(crate) fn coded(&self, format: impl CodesFormat, counts: &[u32; N_CODES]) -> (Vec<u8>, Vec<u8>) {
        let (mut parameters, mut body) = (Vec::new(), Vec::new());
        let mut coder = BinaryEncoder::new(&mut parameters);
        self.write_outliers(&mut coder);
        format.write(&self.codes, counts, &mut coder, &mut body);
        coder.finish();
        (parameters, body)
    }

    fn write_outliers(&self, coder: &mut impl BitCoder) {
        let n = self.codes.len();
        masks::code_positions(coder, &self.outliers, n, n).expect("writing does not fail");
        let mut model = NumberModel::default();
        self.outlier_values.iter().for_each(|&value| {
            model.code_signed(coder, i64::from(value));
        });
    }
}

/// A chunk with more outliers is left to other codecs: their positions would take more memory than its values.
fn most_outliers(n_values: usize) -> usize {
    n_values / 8
}

/// The part of a payload before the codes, decoded.
struct CodesPrefix<'a> {
    dims: Dims,
    origin: i64,
    exceptions: Exceptions,
    exact_values: &'a [u8],
    /// The decoder of the parameters, which begin with the outliers.
    coder: BinaryDecoder<'a>,
    outliers: Vec<usize>,
    outlier_values: Vec<i32>,
}

impl<'a> CodesPrefix<'a> {
    /// Reads everything up to the outliers; the rest of `bytes` is the body.
    fn read_from<T: Real>(bytes: &mut Bytes<'a>, extents: &[usize], n_fills: usize) -> Result<Self> {
        let dims = natural_dims(extents);
        let n_values = dims.iter().product();
        let origin = (varint::read_from(bytes)? as i64).unzigzag();
        let (exceptions, exact_values) = Exceptions::read_from::<T>(bytes, n_values, &dims, n_fills)?;
        let n_parameters = usize::try_from(varint::read_from(bytes)?)
            .map_err(|_| Error::corrupt("parameters are longer than their chunk"))?;
        let mut coder = BinaryDecoder::new(bytes.take(n_parameters)?);
        let outliers = masks::code_positions(&mut coder, &[], n_values, most_outliers(n_values))?;
        let mut model = NumberModel::default();
        let mut outlier_values = Vec::new();
        reserve(&mut outlier_values, outliers.len())?;
        for _ in &outliers {
            let value = model.code_signed(&mut coder, 0);
            outlier_values.push(i32::try_from(value).map_err(|_| Error::corrupt("outlier is out of range"))?);
            if coder.is_past_end() {
                return Err(Error::corrupt("outliers are damaged"));
            }
        }
        Ok(Self { dims, origin, exceptions, exact_values, coder, outliers, outlier_values })
    }

    /// Checks the end of a payload: all parameters were read, and the rest is padding.
    fn check_end(&mut self, rest: &Bytes<'_>, payload_bytes: usize, n_values: usize) -> Result<()> {
        std::mem::replace(&mut self.coder, BinaryDecoder::new(&[])).finish()?;
        padding::check_end(rest, payload_bytes, n_values)
    }

    /// Restores the values from their codes.
    fn restore<T: Real>(&self, codes: &[u16], step: T, fills: &[T], out: &mut [T]) -> Result<()> {
        let mut sums = scratch::try_take::<i32>(codes.len())?;
        sums.iter_mut().zip(codes).for_each(|(sum, code)| *sum = i32::from(*code) - RADIUS);
        for (position, value) in self.outliers.iter().zip(&self.outlier_values) {
            sums[*position] = sums[*position].wrapping_add(*value);
        }
        simd::run(PartialSums { values: &mut sums, dims: self.dims });
        simd::run(Restore { integers: &sums, origin: self.origin, step, out });
        scratch::give(sums);
        self.exceptions.restore(self.exact_values, fills, out);
        Ok(())
    }
}

// ---- Symbols under one codebook, in a payload ----

/// Writes the codebook of symbols to the parameters and appends their streams to `body`.
pub(crate) fn write_symbols<T: Symbol>(
    coder: &mut impl BitCoder,
    symbols: &[T],
    lengths: &Lengths,
    body: &mut Vec<u8>,
) {
    let mut sizes = Vec::new();
    huffman::encode(symbols, Classes::Same(0), &[Codebook::new(lengths.clone())], body, &mut sizes);
    code_sizes(coder, &mut sizes).expect("writing does not fail");
}

/// Reads as many symbols as `out` has, with the sizes of their streams from the parameters and the streams from `body`.
pub(crate) fn read_symbols<T: Symbol>(
    coder: &mut BinaryDecoder<'_>,
    lengths: &Lengths,
    body: &mut Bytes<'_>,
    out: &mut [T],
) -> Result<()> {
    let mut sizes = filled(0, huffman::n_streams(out.len()))?;
    code_sizes(coder, &mut sizes)?;
    let bytes = body.take(sizes.iter().map(|&size| usize::from(size)).sum())?;
    huffman::decode(bytes, &sizes, Classes::Same(0), &DecodeTables::new(std::slice::from_ref(lengths)), out)
}

/// Writes or reads the sizes of streams, each as the difference from the previous one.
fn code_sizes<C: BitCoder>(coder: &mut C, sizes: &mut [u16]) -> Result<()> {
    let mut model = NumberModel::default();
    let mut before = 0;
    for size in sizes {
        let now = before + model.code_signed(coder, i64::from(*size) - before);
        *size = u16::try_from(now).map_err(|_| Error::corrupt("stream of codes has an impossible size"))?;
        before = now;
    }
    Ok(())
}

// ---- Kernels ----

/// Lorenzo differences over all three axes, in place. Sums of eight integers may pass 2^31: all arithmetic wraps.
struct Differences<'a> {
    values: &'a mut [i32],
    dims: Dims,
}

impl Kernel for Differences<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (width, plane) = (self.dims[X], self.dims[X] * self.dims[2]);
        let volume = plane * self.dims[1];
        for (stride, within) in [(plane, volume), (width, plane)] {
            for part in self.values.chunks_exact_mut(within) {
                for at in (stride..within).step_by(stride).rev() {
                    let (before, now) = part[at - stride..at + stride].split_at_mut(stride);
                    now.iter_mut().zip(before).for_each(|(now, before)| *now = now.wrapping_sub(*before));
                }
            }
        }
        for row in self.values.chunks_exact_mut(width) {
            let mut left = 0;
            for value in row {
                (*value, left) = (value.wrapping_sub(left), *value);
            }
        }
    }
}

/// The inverse of [`Differences`].
struct PartialSums<'a> {
    values: &'a mut [i32],
    dims: Dims,
}

impl Kernel for PartialSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (width, plane) = (self.dims[X], self.dims[X] * self.dims[2]);
        let volume = plane * self.dims[1];
        for row in self.values.chunks_exact_mut(width) {
            let mut sum = 0_i32;
            for value in row {
                sum = sum.wrapping_add(*value);
                *value = sum;
            }
        }
        for (stride, within) in [(width, plane), (plane, volume)] {
            for part in self.values.chunks_exact_mut(within) {
                for at in (stride..within).step_by(stride) {
                    let (before, now) = part[at - stride..at + stride].split_at_mut(stride);
                    now.iter_mut().zip(before).for_each(|(now, before)| *now = now.wrapping_add(*before));
                }
            }
        }
    }
}

/// Codes of differences.
struct Codes<'a> {
    differences: &'a [i32],
    codes: &'a mut [u16],
    outliers: &'a mut Vec<usize>,
}

impl Kernel for Codes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        const RUN: usize = 64;
        for (i, (codes, differences)) in self.codes.chunks_mut(RUN).zip(self.differences.chunks(RUN)).enumerate() {
            let mut n_outliers = 0_u32;
            for (code, difference) in codes.iter_mut().zip(differences) {
                let shifted = difference.wrapping_add(RADIUS) as u32;
                let is_outlier = shifted >= N_CODES as u32;
                n_outliers += u32::from(is_outlier);
                *code = if is_outlier { RADIUS as u16 } else { shifted as u16 };
            }
            if n_outliers > 0 {
                let is_outlier = |k: &usize| differences[*k].wrapping_add(RADIUS) as u32 >= N_CODES as u32;
                self.outliers.extend((0..differences.len()).filter(is_outlier).map(|k| RUN * i + k));
            }
        }
    }
}

/// Values of integers.
struct Restore<'a, T> {
    integers: &'a [i32],
    origin: i64,
    step: T,
    out: &'a mut [T],
}

impl<T: Real> Kernel for Restore<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (x, q) in self.out.iter_mut().zip(self.integers) {
            *x = restore(T::Int::from_i64(self.origin.wrapping_add(i64::from(*q))), self.step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::tokens::tests::Random;

    #[test]
    fn axes_before_the_last_three_are_part_of_the_first_of_these() {
        assert_eq!(natural_dims(&[]), [1, 1, 1, 1]);
        assert_eq!(natural_dims(&[7]), [1, 1, 1, 7]);
        assert_eq!(natural_dims(&[5, 7]), [1, 1, 5, 7]);
        assert_eq!(natural_dims(&[2, 3, 4, 5, 7]), [1, 24, 5, 7]);
    }

    #[test]
    fn partial_sums_undo_differences() {
        let mut random = Random(3);
        for dims in [[1, 1, 1, 9], [1, 1, 5, 7], [1, 4, 3, 5], [1, 4, 1, 5], [1, 6, 2, 1], [1, 1, 1, 1]] {
            let all: Vec<i32> = (0..dims.iter().product()).map(|_| random.next() as i32).collect();
            let mut values = all.clone();
            Differences { values: &mut values, dims }.run();
            let mut native = all.clone();
            simd::run(Differences { values: &mut native, dims });
            assert_eq!(values, native);
            // As in the paper: each value minus its neighbours, with alternating signs.
            let [_, nz, ny, nx] = dims;
            let at = |z: usize, y: usize, x: usize| all[(z * ny + y) * nx + x];
            for (z, y, x) in (0..nz).flat_map(|z| (0..ny).flat_map(move |y| (0..nx).map(move |x| (z, y, x)))) {
                let mut sum = 0_i32;
                for corner in 0..8_usize {
                    let back = [corner & 1, corner >> 1 & 1, corner >> 2];
                    if x >= back[0] && y >= back[1] && z >= back[2] {
                        let value = at(z - back[2], y - back[1], x - back[0]);
                        sum = if corner.count_ones() % 2 == 0 {
                            sum.wrapping_add(value)
                        } else {
                            sum.wrapping_sub(value)
                        };
                    }
                }
                assert_eq!(values[(z * ny + y) * nx + x], sum);
            }
            simd::run(PartialSums { values: &mut native, dims });
            assert_eq!(native, all);
        }
    }

    #[test]
    fn differences_out_of_range_are_outliers() {
        let mut codes = vec![0; 200];
        let mut outliers = Vec::new();
        let mut differences = vec![3; 200];
        differences[..5].copy_from_slice(&[-512, 511, 512, -513, i32::MIN]);
        differences[199] = i32::MAX;
        Codes { differences: &differences, codes: &mut codes, outliers: &mut outliers }.run();
        assert_eq!(codes[..6], [0, 1023, 512, 512, 512, 515]);
        assert_eq!(outliers, [2, 3, 4, 199]);
    }
}
