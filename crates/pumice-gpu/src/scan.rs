//! Computes the statistics of an array that the plan needs, on the device.

use std::sync::Arc;

use pumice::Result;
use pumice::backend::{FirstPass, MAX_NAMED, Passes, SecondPass};

use crate::kernels::{Kernels, SCAN_THREADS, ScanJob, ScanResult};
use crate::runtime::{Buffer, DevicePtr, Runtime, Shape, Stream};

/// An array in device memory, to be scanned.
pub(crate) struct Scan<'a, T> {
    pub(crate) runtime: &'a Arc<dyn Runtime>,
    pub(crate) values: DevicePtr,
    pub(crate) n_values: usize,
    pub(crate) stream: Stream,
    pub(crate) element: std::marker::PhantomData<T>,
}

impl<T: Kernels> Scan<'_, T> {
    /// One pass over all values; those with the bits of `skip` are only counted.
    fn pass(&self, skip: &[T]) -> Result<ScanResult> {
        let result = Buffer::with(self.runtime, &[ScanResult::default()], self.stream)?;
        let mut bits = [T::Bits::default(); MAX_NAMED];
        bits.iter_mut().zip(skip).for_each(|(to, value)| *to = value.to_plain_bits());
        let mut job = ScanJob::<T> {
            values: self.values,
            n_values: self.n_values as u64,
            result: result.at(),
            n_skip: skip.len() as u32,
            skip: bits,
        };
        // A few pieces of 16 bytes for each thread.
        let blocks = self.n_values.div_ceil(SCAN_THREADS as usize * 16) as u32;
        let blocks = blocks.clamp(1, self.runtime.resident_blocks(T::SCAN, SCAN_THREADS)?);
        let shape = Shape { blocks, threads: SCAN_THREADS };
        // SAFETY: the kernel takes one such job; the values are valid, and the result is allocated.
        unsafe { self.runtime.launch(T::SCAN, shape, &mut [(&raw mut job).cast()], self.stream)? };
        let mut found = [ScanResult::default()];
        result.read(0, &mut found, self.stream)?;
        Ok(found[0])
    }

    fn samples(&self, stride: usize) -> Result<Vec<T>> {
        let mut samples = vec![T::default(); self.n_values.div_ceil(stride)];
        let buffer = Buffer::<T>::new(self.runtime, samples.len())?;
        let (mut values, mut n_values, mut stride) = (self.values, self.n_values as u64, stride as u64);
        let mut to = buffer.at();
        let mut arguments =
            [(&raw mut values).cast(), (&raw mut n_values).cast(), (&raw mut stride).cast(), (&raw mut to).cast()];
        let shape = Shape { blocks: (samples.len() as u32).div_ceil(SCAN_THREADS), threads: SCAN_THREADS };
        // SAFETY: these are the kernel's arguments, and the buffer holds all samples.
        unsafe { self.runtime.launch(T::SAMPLE, shape, &mut arguments, self.stream)? };
        buffer.read(0, &mut samples, self.stream)?;
        samples.retain(|value| value.is_finite());
        Ok(samples)
    }
}

fn range_of<T: Kernels>(result: &ScanResult) -> Option<(T, T)> {
    (result.least <= result.greatest).then(|| (T::of_rank(result.least), T::of_rank(result.greatest)))
}

impl<T: Kernels> Passes<T> for Scan<'_, T> {
    fn n_values(&self) -> usize {
        self.n_values
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        if self.n_values == 0 {
            return Ok(FirstPass::default());
        }
        let found = self.pass(skip)?;
        let mut first_nan = [T::default()];
        if found.first_nan != u64::MAX {
            let from = self.values + found.first_nan * size_of::<T>() as u64;
            // SAFETY: an index of the array; the host's side outlives the wait.
            unsafe { self.runtime.copy_out((&raw mut first_nan).cast(), from, size_of::<T>(), self.stream)? };
            self.runtime.synchronize(self.stream)?;
        }
        Ok(FirstPass {
            range: range_of(&found),
            counts: found.n_skipped,
            first_nan: (found.first_nan != u64::MAX).then_some(first_nan[0]),
            samples: self.samples(stride)?,
        })
    }

    fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        let found = self.pass(skip)?;
        Ok(SecondPass { counts: found.n_skipped, range: range_of(&found) })
    }
}
