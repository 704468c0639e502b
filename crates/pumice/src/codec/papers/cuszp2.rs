//! The codec of the presets `cuszp2-plain` and `cuszp2-outlier`: blocks of 32 differences in fixed-length bit planes, by
//! the rules of cuSZp2 (docs/format.md, 10; docs/papers.md says where it deviates).
//!
//! A header byte for each block gives the size of its body, so a prefix sum of sizes gives the offsets before any body
//! is read. The paper computes it on a GPU in a single pass with look-back. Here each span of blocks is summed on its
//! own, then the sums of spans, and then all spans are coded in parallel.

use std::ops::Range;

use super::blocks::{BLOCK, Blocks, BlocksPrefix, restore_block};
use crate::codec::shared::masks;
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::io::Bytes;
use crate::num::Real;
use crate::num::simd::{self, Kernel};
use crate::plan::Quantizer;

/// How the first difference of a block, which is often far larger than the others, is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// In as many bits as the others.
    Plain,
    /// In bytes of its own, if that makes the block smaller.
    Outlier,
}

/// Header of a block: bits of each difference, below the bytes of its outlier less 1, and whether it has one.
const WIDTH_BITS: u32 = 5;
const HAS_OUTLIER: u8 = 1 << 7;
/// Blocks that are coded by one worker.
const SPAN: usize = 1 << 12;
/// Size in bytes of a bit plane, and of the signs.
const PLANE_BYTES: usize = BLOCK / 8;

/// The codec of the presets `cuszp2-plain` and `cuszp2-outlier`.
pub(crate) struct Cuszp2;

impl<T: Real> ChunkCodec<T> for Cuszp2 {
    const ID: CodecId = CodecId::Cuszp2;
    type Settings<'a>
        = (&'a Quantizer<T>, Mode)
    where
        T: 'a;

    fn min_payload_bytes(n_values: usize) -> usize {
        BlocksPrefix::MIN_BYTES + n_values.div_ceil(BLOCK)
    }

    fn encode(
        values: &[T],
        (quantizer, mode): Self::Settings<'_>,
        chunk: &ChunkContext<'_, T>,
        out: &mut Vec<u8>,
    ) -> bool {
        let &ChunkContext { extents, fills, workers, .. } = chunk;
        let blocks = Blocks::new(values, quantizer, fills);
        blocks.write_to(values, extents, fills, out);
        let n_blocks = values.len().div_ceil(BLOCK);
        let mut headers = vec![0; n_blocks];
        let span = |(deltas, headers)| EncodeSpan { deltas, mode, headers, bodies: Vec::new() };
        let mut spans: Vec<_> = blocks.deltas.chunks(SPAN * BLOCK).zip(headers.chunks_mut(SPAN)).map(span).collect();
        let run = |_: usize, span: &mut EncodeSpan<'_>| {
            simd::run(span);
            Ok(())
        };
        workers.for_each(&mut spans, run).expect("encoding does not fail");
        let bodies: Vec<Vec<u8>> = spans.into_iter().map(|span| span.bodies).collect();
        out.extend_from_slice(&headers);
        bodies.iter().for_each(|bodies| out.extend_from_slice(bodies));
        blocks.give_back();
        true
    }

    /// What is not coded as differences, and the spans.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        masks::decode_bytes(payload_bytes, chunk) + chunk.n_values() / BLOCK as u64
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        let &ChunkContext { extents, wanted, fills, workers, .. } = chunk;
        let step = chunk.needed_step()?;
        let mut bytes = Bytes::new(payload);
        let prefix = BlocksPrefix::read_from(&mut bytes, extents, out.len(), fills)?;
        let headers = bytes.take(out.len().div_ceil(BLOCK))?;
        let mut bodies = bytes.rest();
        let range = blocks_of(extents, wanted, headers.len());
        let mut spans = Vec::new();
        reserve(&mut spans, headers.len().div_ceil(SPAN))?;
        for (i, (headers, out)) in headers.chunks(SPAN).zip(out.chunks_mut(SPAN * BLOCK)).enumerate() {
            let n_bytes = simd::run(SpanBytes { headers })?;
            let (own, rest) =
                bodies.split_at_checked(n_bytes).ok_or_else(|| Error::corrupt("blocks are longer than their chunk"))?;
            bodies = rest;
            let first = i * SPAN;
            let clip = |block: usize| block.clamp(first, first + headers.len()) - first;
            let range = clip(range.start)..clip(range.end);
            if !range.is_empty() {
                spans.push(DecodeSpan { headers, bodies: own, range, origin: prefix.origin, step, out });
            }
        }
        if !bodies.is_empty() {
            return Err(Error::corrupt("chunk has bytes after its end"));
        }
        let run = |_: usize, span: &mut DecodeSpan<'_, T>| {
            simd::run(span);
            Ok(())
        };
        workers.for_each(&mut spans, run)?;
        prefix.restore_exceptions(fills, out);
        Ok(())
    }
}

/// Blocks from the first to the last value of a box.
fn blocks_of(extents: &[usize], wanted: Option<&[Range<usize>]>, n_blocks: usize) -> Range<usize> {
    let Some(wanted) = wanted else { return 0..n_blocks };
    if wanted.iter().any(Range::is_empty) {
        return 0..0;
    }
    let position = |corner: &dyn Fn(&Range<usize>) -> usize| {
        wanted.iter().zip(extents).fold(0, |at, (range, extent)| at * extent + corner(range))
    };
    position(&|range| range.start) / BLOCK..position(&|range| range.end - 1) / BLOCK + 1
}

/// Bytes of the body of a block.
#[inline(always)]
fn body_bytes(header: u8) -> usize {
    let planes = PLANE_BYTES * usize::from(header & ((1 << WIDTH_BITS) - 1));
    let has_outlier = usize::from(header & HAS_OUTLIER != 0);
    let signs = if header == 0 { 0 } else { PLANE_BYTES };
    signs + has_outlier * outlier_bytes(header) + planes
}

#[inline(always)]
fn outlier_bytes(header: u8) -> usize {
    usize::from(header >> WIDTH_BITS & 3) + 1
}

/// Sums up sizes, and rejects invalid headers.
struct SpanBytes<'a> {
    headers: &'a [u8],
}

impl Kernel for SpanBytes<'_> {
    type Output = Result<usize>;

    #[inline(always)]
    fn run(self) -> Result<usize> {
        let (mut n_bytes, mut n_wrong) = (0, 0);
        for &header in self.headers {
            n_bytes += body_bytes(header) as u32;
            n_wrong += u32::from(header & HAS_OUTLIER == 0 && header >> WIDTH_BITS != 0);
        }
        if n_wrong == 0 { Ok(n_bytes as usize) } else { Err(Error::corrupt("block has an unknown header")) }
    }
}

struct EncodeSpan<'a> {
    deltas: &'a [i32],
    mode: Mode,
    headers: &'a mut [u8],
    bodies: Vec<u8>,
}

impl Kernel for &mut EncodeSpan<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (block, header) in self.deltas.chunks(BLOCK).zip(self.headers.iter_mut()) {
            let mut deltas = [0; BLOCK];
            deltas[..block.len()].copy_from_slice(block);
            *header = encode_block(&deltas, self.mode, &mut self.bodies);
        }
    }
}

/// Appends the body of a block and returns its header.
#[inline(always)]
fn encode_block(deltas: &[i32; BLOCK], mode: Mode, bodies: &mut Vec<u8>) -> u8 {
    let (mut signs, mut any, mut magnitudes) = (0_u32, 0, [0; BLOCK]);
    for i in 0..BLOCK {
        signs |= u32::from(deltas[i] < 0) << i;
        magnitudes[i] = deltas[i].unsigned_abs();
        any |= if i > 0 { magnitudes[i] } else { 0 };
    }
    let first = magnitudes[0];
    let bits = |magnitude: u32| (u32::BITS - magnitude.leading_zeros()) as u8;
    let (plain_width, width) = (bits(any | first), bits(any));
    if plain_width == 0 {
        return 0;
    }
    let n_outlier = bits(first).div_ceil(8).max(1);
    let is_outlier = mode == Mode::Outlier
        && usize::from(n_outlier) + PLANE_BYTES * usize::from(width) < PLANE_BYTES * usize::from(plain_width);
    bodies.extend_from_slice(&signs.to_le_bytes());
    let (header, width) = if is_outlier {
        bodies.extend_from_slice(&first.to_le_bytes()[..usize::from(n_outlier)]);
        magnitudes[0] = 0;
        (HAS_OUTLIER | (n_outlier - 1) << WIDTH_BITS | width, width)
    } else {
        (plain_width, plain_width)
    };
    transpose(&mut magnitudes);
    let mut planes = [0; BLOCK * PLANE_BYTES];
    for (to, plane) in planes.chunks_exact_mut(PLANE_BYTES).zip(magnitudes) {
        to.copy_from_slice(&plane.to_le_bytes());
    }
    bodies.extend_from_slice(&planes[..PLANE_BYTES * usize::from(width)]);
    header
}

struct DecodeSpan<'a, T> {
    headers: &'a [u8],
    /// The bodies, as long as the headers say.
    bodies: &'a [u8],
    /// The blocks that are wanted.
    range: Range<usize>,
    origin: i64,
    step: T,
    out: &'a mut [T],
}

impl<T: Real> Kernel for &mut DecodeSpan<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let skipped: usize = self.headers[..self.range.start].iter().map(|header| body_bytes(*header)).sum();
        let mut bodies = &self.bodies[skipped..];
        let outs = self.out.chunks_mut(BLOCK).skip(self.range.start);
        for (out, &header) in outs.zip(&self.headers[self.range.clone()]) {
            let body;
            (body, bodies) = bodies.split_at(body_bytes(header));
            restore_block(&decode_block(header, body), self.origin, self.step, out);
        }
    }
}

/// The differences of a block, whose body has the size that its header says.
#[inline(always)]
fn decode_block(header: u8, body: &[u8]) -> [i32; BLOCK] {
    let Some((signs, mut rest)) = body.split_first_chunk() else { return [0; BLOCK] };
    let signs = u32::from_le_bytes(*signs);
    let mut first = [0; 4];
    if header & HAS_OUTLIER != 0 {
        let outlier;
        (outlier, rest) = rest.split_at(outlier_bytes(header));
        first[..outlier.len()].copy_from_slice(outlier);
    }
    let mut magnitudes = [0; BLOCK];
    for (plane, from) in magnitudes.iter_mut().zip(rest.chunks_exact(PLANE_BYTES)) {
        *plane = u32::from_le_bytes(std::array::from_fn(|i| from[i]));
    }
    transpose(&mut magnitudes);
    if header & HAS_OUTLIER != 0 {
        magnitudes[0] = u32::from_le_bytes(first);
    }
    let mut deltas = [0; BLOCK];
    for i in 0..BLOCK {
        let sign = -((signs >> i & 1) as i32);
        deltas[i] = (magnitudes[i] as i32 ^ sign).wrapping_sub(sign);
    }
    deltas
}

/// Bit p of number i becomes bit i of number p: squares of 16 by 16 bits are swapped, then those of 8 by 8 in each, and
/// so on, each time in vectors of all rows.
#[inline(always)]
fn transpose(rows: &mut [u32; BLOCK]) {
    swap_squares::<16>(rows, 0x0000_ffff);
    swap_squares::<8>(rows, 0x00ff_00ff);
    swap_squares::<4>(rows, 0x0f0f_0f0f);
    swap_squares::<2>(rows, 0x3333_3333);
    swap_squares::<1>(rows, 0x5555_5555);
}

#[inline(always)]
fn swap_squares<const N: usize>(rows: &mut [u32; BLOCK], low: u32) {
    for rows in rows.chunks_exact_mut(2 * N) {
        let (upper, lower) = rows.split_at_mut(N);
        for (a, b) in upper.iter_mut().zip(lower) {
            let differ = (*a >> N ^ *b) & low;
            *a ^= differ << N;
            *b ^= differ;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(bound: f64) -> Quantizer<f32> {
        Quantizer::new(bound, None).unwrap()
    }

    fn payload(values: &[f32], fills: &[f32], mode: Mode) -> Vec<u8> {
        let mut out = Vec::new();
        let extents = [values.len()];
        let chunk = ChunkContext { fills, ..ChunkContext::new(&extents) };
        Cuszp2::encode(values, (&plan(0.5001), mode), &chunk, &mut out);
        assert!(out.len() >= <Cuszp2 as ChunkCodec<f32>>::min_payload_bytes(values.len()));
        out
    }

    fn back(payload: &[u8], n: usize, fills: &[f32]) -> Result<Vec<f32>> {
        let mut out = vec![7.5; n];
        let extents = [n];
        let chunk = ChunkContext { step: Some(plan(0.5001).step), fills, ..ChunkContext::new(&extents) };
        Cuszp2::decode(payload, &chunk, &mut out)?;
        Ok(out)
    }

    #[test]
    fn rows_become_columns() {
        let mut state = 1_u32;
        let rows: [u32; BLOCK] = std::array::from_fn(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        });
        let mut columns = rows;
        transpose(&mut columns);
        for (p, column) in columns.iter().enumerate() {
            assert!((0..BLOCK).all(|i| column >> i & 1 == rows[i] >> p & 1), "{p}");
        }
    }

    #[test]
    fn bytes_are_what_the_format_says() {
        // No exceptions, origin 0, then headers and bodies.
        let zero = payload(&[0.0; 64], &[], Mode::Plain);
        assert_eq!(zero, [0, 0, 0, 0]);
        // 5, then 1 more each time: 5 = 101b, so three planes.
        let ramp: Vec<f32> = (0..32).map(|i| 5.0 + i as f32).collect();
        let plain = payload(&ramp, &[], Mode::Plain);
        assert_eq!(plain, [0, 0, 3, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0, 1, 0, 0, 0]);
        let outlier = payload(&ramp, &[], Mode::Outlier);
        assert_eq!(outlier, [0, 0, 0x81, 0, 0, 0, 0, 5, 254, 255, 255, 255]);
        // Going down from -300: signs, and two bytes of the outlier.
        let ramp: Vec<f32> = (0..32).map(|i| -300.0 - i as f32).collect();
        assert_eq!(payload(&ramp, &[], Mode::Outlier), [0, 0, 0xa1, 255, 255, 255, 255, 44, 1, 254, 255, 255, 255]);
        // A constant block: the other differences have no bits.
        assert_eq!(payload(&[300.0; 32], &[], Mode::Outlier), [0, 0, 0xa0, 0, 0, 0, 0, 44, 1]);
    }

    #[test]
    fn outliers_are_taken_only_where_that_is_smaller() {
        let mut random = 1_u64;
        for width in 0..22 {
            for first in 0..22 {
                let mut next = |bits: u32| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let magnitude = (random >> 40 & ((1 << bits) - 1)) as i32;
                    if random >> 63 == 0 { magnitude } else { -magnitude }
                };
                let deltas: [i32; BLOCK] = std::array::from_fn(|i| next(if i == 0 { first } else { width }));
                let [plain, outlier] = [Mode::Plain, Mode::Outlier].map(|mode| {
                    let mut body = Vec::new();
                    let header = encode_block(&deltas, mode, &mut body);
                    assert_eq!(body.len(), body_bytes(header));
                    assert_eq!(decode_block(header, &body), deltas);
                    (header, body.len())
                });
                assert!(plain.0 & HAS_OUTLIER == 0 && outlier.1 <= plain.1);
                assert_eq!(outlier.0 & HAS_OUTLIER != 0, outlier.1 < plain.1);
            }
        }
        // The widest differences.
        let deltas: [i32; BLOCK] = std::array::from_fn(|i| if i % 2 == 0 { i32::MAX } else { -i32::MAX });
        let mut body = Vec::new();
        let header = encode_block(&deltas, Mode::Outlier, &mut body);
        assert_eq!((header, decode_block(header, &body)), (31, deltas));
    }

    #[test]
    fn all_lengths_and_exceptions_come_back() {
        for mode in [Mode::Plain, Mode::Outlier] {
            for n in [1, 2, 31, 32, 33, 64, 100, 4095, SPAN * BLOCK + 5] {
                let value = |i: usize| match i % 97 {
                    3 | 4 => -9999.0,
                    11 => f32::NAN,
                    12 => 1e30,
                    _ => ((i / 7) as f32).rem_euclid(300.0) * 3.0,
                };
                let values: Vec<f32> = (0..n).map(value).collect();
                let restored = back(&payload(&values, &[-9999.0], mode), n, &[-9999.0]).unwrap();
                for (x, y) in values.iter().zip(&restored) {
                    let is_exact = x.is_nan() || *x == -9999.0 || *x == 1e30;
                    assert!(if is_exact { x.to_bits() == y.to_bits() } else { (x - y).abs() <= 0.5001 }, "{x} {y}");
                }
            }
        }
    }

    #[test]
    fn a_box_needs_only_its_blocks() {
        let extents = [9, 20, 30];
        let values: Vec<f32> = (0..5400).map(|i| (i as f32 * 0.1).sin() * 50.0).collect();
        let mut bytes = Vec::new();
        Cuszp2::encode(&values, (&plan(0.5001), Mode::Outlier), &ChunkContext::new(&extents), &mut bytes);
        let whole = back(&bytes, 5400, &[]).unwrap();
        for wanted in [[0..9, 0..20, 0..30], [3..4, 2..7, 9..30], [8..9, 19..20, 29..30], [2..2, 0..20, 0..30]] {
            let mut out = vec![7.5; 5400];
            let step = Some(plan(0.5001).step);
            let chunk = ChunkContext { wanted: Some(&wanted), step, ..ChunkContext::new(&extents) };
            Cuszp2::decode(&bytes, &chunk, &mut out).unwrap();
            for (i, (x, y)) in out.iter().zip(&whole).enumerate() {
                let position = [i / 600, i / 30 % 20, i % 30];
                let is_wanted = position.iter().zip(&wanted).all(|(i, range)| range.contains(i));
                assert!(x == y || !is_wanted && *x == 7.5);
            }
            let n_written = out.iter().filter(|x| **x != 7.5).count();
            let most: usize = (wanted[0].len() * 600).max(1);
            assert!(n_written <= most + 2 * BLOCK, "{n_written}");
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_decoded() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.05).sin() * 90.0).collect();
        let good = payload(&values, &[], Mode::Outlier);
        for n in 0..good.len() {
            assert!(back(&good[..n], 1000, &[]).is_err(), "{n}");
        }
        assert!(back(&[&good[..], &[0]].concat(), 1000, &[]).is_err());
        // An outlier's size without an outlier.
        for header in [0x20, 0x41, 0x7f] {
            assert!(back(&[0, 0, header], 1, &[]).is_err());
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // The decoder notices wrong sizes of blocks, but not wrong values.
                let is_header = (2..2 + values.len().div_ceil(BLOCK)).contains(&at);
                assert!(back(&bad, 1000, &[]).is_err() || !is_header || bit >= 5, "{at} {bit}");
            }
        }
        // Integers that no encoder writes wrap around.
        let widest = [&[0, 0, 0xff][..], &[0xff; 4 + 4 + 4 * 31]].concat();
        assert_eq!(back(&widest, 32, &[]).unwrap().len(), 32);
    }
}
