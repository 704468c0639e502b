//! Blocks of 32 quantised values, each predicted by the previous one, and the first of each block by 0: the first two
//! stages of cuSZp2 and CereSZ-II (docs/format.md, 10.1). Blocks do not depend on each other.

use crate::codec::shared::dims::Dims;
use crate::codec::shared::integers::{self, Exceptions};
use crate::error::Result;
use crate::exec::scratch;
use crate::io::{Bytes, varint};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::{Quantizer, quantize};

/// Values in a block; the last block of a chunk may have fewer.
pub(crate) const BLOCK: usize = 32;

/// If all integers lie within this of 0, no origin is subtracted, as in the papers.
const MAX_ORIGIN: u64 = 1 << 29;

/// A chunk as differences.
pub(crate) struct Blocks {
    origin: i64,
    /// Each integer minus the previous one of its block. Magnitudes are below 2^31.
    pub(crate) deltas: Vec<i32>,
    exceptions: Exceptions,
}

impl Blocks {
    /// Quantises a chunk and takes differences.
    pub(crate) fn new<T: Real>(values: &[T], quantizer: &Quantizer<T>, fills: &[T]) -> Self {
        let (integers, exceptions) = integers::quantize_with_fills(values, quantizer, fills);
        let (mut deltas, mut origin) = (integers.values, integers.origin);
        let mut added = 0;
        if origin.unsigned_abs() <= MAX_ORIGIN {
            (added, origin) = (origin as i32, 0);
        }
        simd::run(Predict { integers: &mut deltas, added });
        Self { origin, deltas, exceptions }
    }

    /// Appends the start of a payload: exceptions and origin.
    pub(crate) fn write_to<T: Real>(&self, values: &[T], extents: &[usize], fills: &[T], out: &mut Vec<u8>) {
        self.exceptions.write_to(values, &axes(extents), fills.len(), out);
        varint::write_to(self.origin.zigzag() as u64, out);
    }

    /// Keeps the buffer for the next chunk.
    pub(crate) fn give_back(self) {
        scratch::give(self.deltas);
    }
}

/// The start of a payload, as it is read.
pub(crate) struct BlocksPrefix<'a> {
    pub(crate) origin: i64,
    exceptions: Exceptions,
    exact_values: &'a [u8],
}

impl<'a> BlocksPrefix<'a> {
    /// Its smallest size in bytes.
    pub(crate) const MIN_BYTES: usize = 2;

    pub(crate) fn read_from<T: Real>(
        bytes: &mut Bytes<'a>,
        extents: &[usize],
        n_values: usize,
        fills: &[T],
    ) -> Result<Self> {
        let (exceptions, exact_values) = Exceptions::read_from::<T>(bytes, n_values, &axes(extents), fills.len())?;
        Ok(Self { origin: (varint::read_from(bytes)? as i64).unzigzag(), exceptions, exact_values })
    }

    /// Writes the exceptions to their positions.
    pub(crate) fn restore_exceptions<T: Real>(&self, fills: &[T], out: &mut [T]) {
        self.exceptions.restore(self.exact_values, fills, out);
    }
}

/// A chunk as four axes in its own order: the last three, and all others merged.
fn axes(extents: &[usize]) -> Dims {
    let (slow, fast) = extents.split_at(extents.len().saturating_sub(3));
    let mut dims = [1; 4];
    dims[0] = slow.iter().product();
    dims[4 - fast.len()..].copy_from_slice(fast);
    dims
}

struct Predict<'a> {
    integers: &'a mut [i32],
    added: i32,
}

impl Kernel for Predict<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for block in self.integers.chunks_mut(BLOCK) {
            let mut integers = [0; BLOCK];
            integers[..block.len()].copy_from_slice(block);
            block[0] = integers[0].wrapping_add(self.added);
            // The origin cancels out in a difference.
            for (delta, i) in block.iter_mut().zip(0..BLOCK).skip(1) {
                *delta = integers[i].wrapping_sub(integers[i - 1]);
            }
        }
    }
}

/// The values of one block; sums wrap at 32 bits.
#[inline(always)]
pub(crate) fn restore_block<T: Real>(deltas: &[i32; BLOCK], origin: i64, step: T, out: &mut [T]) {
    let mut integers = [0; BLOCK];
    let mut sum = 0_i32;
    for (integer, delta) in integers.iter_mut().zip(deltas) {
        sum = sum.wrapping_add(*delta);
        *integer = sum;
    }
    let origin = T::Int::from_i64(origin);
    for (x, integer) in out.iter_mut().zip(integers) {
        *x = quantize::restore(origin.add(T::Int::from_i64(i64::from(integer))), step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deltas_of<T: Real>(values: &[T], bound: f64) -> (Vec<i32>, i64) {
        let quantizer = Quantizer::<T>::new(bound, None).unwrap();
        let blocks = Blocks::new(values, &quantizer, &[]);
        (blocks.deltas, blocks.origin)
    }

    #[test]
    fn each_block_begins_at_0() {
        let values: Vec<f32> = (0..70).map(|i| 1000.0 + i as f32).collect();
        let (deltas, origin) = deltas_of(&values, 0.5001);
        assert_eq!(origin, 0);
        for (i, delta) in deltas.iter().enumerate() {
            assert_eq!(*delta, if i % BLOCK == 0 { 1000 + i as i32 } else { 1 }, "{i}");
        }
    }

    #[test]
    fn integers_beyond_32_bits_have_an_origin() {
        let values: Vec<f64> = (0..40).map(|i| 1e12 - f64::from(i)).collect();
        let (deltas, origin) = deltas_of(&values, 0.5001);
        assert!(origin > 1 << 39 && deltas[0] == 0 && deltas[1..32].iter().all(|d| *d == -1), "{origin} {deltas:?}");
        let quantizer = Quantizer::<f64>::new(0.5001, None).unwrap();
        let mut block = [0; BLOCK];
        block.copy_from_slice(&deltas[..BLOCK]);
        let mut restored = [0.0; BLOCK];
        restore_block(&block, origin, quantizer.step, &mut restored);
        assert!(values.iter().zip(restored).all(|(x, y)| (x - y).abs() <= 0.5001));
    }

    #[test]
    fn axes_keep_the_order_of_the_chunk() {
        assert_eq!(axes(&[]), [1, 1, 1, 1]);
        assert_eq!(axes(&[7]), [1, 1, 1, 7]);
        assert_eq!(axes(&[2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(axes(&[2, 3, 4, 5, 6]), [6, 4, 5, 6]);
    }
}
