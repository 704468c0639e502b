//! The passes over the values of all ranks that decide about a stream: each rank looks at its own, and a reduction joins
//! the results. No rank sees the values of another but a few samples.

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::Result;
use pumice::backend::{Corner, FirstPass, Parts, Passes, SecondPass, Shared, copy_box};

use crate::agreement::agree;
use crate::collective::{gather_all, reduce, reduce_list, zeros};
use crate::local::{Block, LocalBox, Value};

/// An index that no value has. MPICH compares unsigned integers as signed ones.
const NONE: u64 = i64::MAX as u64;

/// The values of an array that all ranks of a communicator hold together.
pub(crate) struct Everywhere<'a, T, C> {
    comm: &'a C,
    shape: &'a [usize],
    boxes: &'a [LocalBox<'a, T>],
    parts: Parts<'a, T>,
}

impl<'a, T: Value, C: Communicator> Everywhere<'a, T, C> {
    pub(crate) fn new(comm: &'a C, shape: &'a [usize], boxes: &'a [LocalBox<'a, T>], threads: usize) -> Result<Self> {
        let parts = Parts::new(shape, boxes.iter().map(|part| (part.start, part.extents, part.values)), threads)?;
        Ok(Self { comm, shape, boxes, parts })
    }

    /// The range of all ranks.
    fn range(&self, range: Option<(T, T)>) -> Option<(T, T)> {
        // Negative, so that one reduction finds both ends. Every f32 is an f64.
        let ends = range.map_or([f64::INFINITY; 2], |(lo, hi)| [lo.to_f64(), -hi.to_f64()]);
        let [lo, hi] = reduce(self.comm, ends, SystemOperation::min());
        lo.is_finite().then(|| (T::from_f64(lo), T::from_f64(-hi)))
    }
}

impl<T: Value, C: Communicator> Passes<T> for Everywhere<'_, T, C> {
    fn n_values(&self) -> usize {
        self.shape.iter().product()
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        let share = agree(self.comm, self.parts.first(skip, stride))?;
        let range = self.range(share.pass.range);
        let counts = reduce(self.comm, share.pass.counts, SystemOperation::sum());
        let index = share.nan_index.unwrap_or(NONE);
        let [first] = reduce(self.comm, [index], SystemOperation::min());
        let has_it = share.nan_index == Some(first);
        let bits = share.pass.first_nan.filter(|_| has_it).map_or(0, T::to_bits_u64);
        // All others have zeros.
        let [bits] = reduce(self.comm, [bits], SystemOperation::bitwise_or());
        let first_nan = (first < NONE).then(|| T::from_bits_u64(bits));
        let samples = agree(self.comm, gather_all(self.comm, &share.pass.samples))?.concat();
        Ok(FirstPass { range, counts, first_nan, samples })
    }

    fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        let SecondPass { counts, range } = agree(self.comm, self.parts.second(skip))?;
        Ok(SecondPass { counts: reduce(self.comm, counts, SystemOperation::sum()), range: self.range(range) })
    }

    fn counts(&self, values: &[T]) -> Result<Vec<u64>> {
        let counts = agree(self.comm, self.parts.counts(values))?;
        Ok(reduce_list(self.comm, &counts, SystemOperation::sum()))
    }
}

impl<T: Value, C: Communicator> Shared<T> for Everywhere<'_, T, C> {
    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn read_box(&self, start: &[usize], extents: &[usize]) -> Result<Vec<T>> {
        // One rank has the bits of each value, the others have zeros.
        let wanted = Block::new(start, extents);
        let mut mine = agree(self.comm, zeros::<T>(wanted.n_values()))?;
        for part in self.boxes {
            let block = Block::new(part.start, part.extents);
            let Some(common) = block.intersection(&wanted) else { continue };
            let (from, to) = (common.start_in(&block), common.start_in(&wanted));
            let from = Corner { shape: part.extents, start: &from };
            copy_box(part.values, from, &mut mine, Corner { shape: extents, start: &to }, &common.extents);
        }
        let bits: Vec<u64> = mine.iter().map(|x| x.to_bits_u64()).collect();
        let all = reduce_list(self.comm, &bits, SystemOperation::bitwise_or());
        Ok(all.into_iter().map(T::from_bits_u64).collect())
    }

    fn all(&self, holds: &(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool> {
        let holds = agree(self.comm, self.parts.all(holds))?;
        let [all] = reduce(self.comm, [u8::from(holds)], SystemOperation::min());
        Ok(all == 1)
    }
}
