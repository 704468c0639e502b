//! Boxes of arrays in device memory, copied from one to another.

use std::sync::Arc;

use pumice::Result;

use crate::kernels::{BoxJob, MAX_RANK, SCAN_THREADS};
use crate::runtime::{DevicePtr, Runtime, Shape, Stream};

/// One side of a copy: an array in C order and the corner of the box in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Corner<'a> {
    pub(crate) array: DevicePtr,
    pub(crate) shape: &'a [usize],
    pub(crate) start: &'a [usize],
}

impl Corner<'_> {
    /// The address of the box's first value, and the distances of neighbours along each axis.
    fn resolve(&self, value_bytes: usize) -> (DevicePtr, [u64; MAX_RANK]) {
        let (mut strides, mut stride, mut first) = ([0; MAX_RANK], 1, 0);
        for axis in (0..self.shape.len()).rev() {
            strides[axis] = stride;
            first += self.start[axis] as u64 * stride;
            stride *= self.shape[axis] as u64;
        }
        (self.array + first * value_bytes as u64, strides)
    }
}

/// Enqueues the copy of a box of these extents.
///
/// # Safety
/// Both arrays are valid for values of that many bytes, and the box lies within them.
pub(crate) unsafe fn copy(
    runtime: &Arc<dyn Runtime>,
    from: Corner<'_>,
    to: Corner<'_>,
    extents: &[usize],
    value_bytes: usize,
    stream: Stream,
) -> Result<()> {
    let n_values = extents.iter().product::<usize>() as u64;
    if n_values == 0 {
        return Ok(());
    }
    let ((from, from_strides), (to, to_strides)) = (from.resolve(value_bytes), to.resolve(value_bytes));
    let mut job = BoxJob {
        from,
        to,
        n_values,
        from_strides,
        to_strides,
        rank: extents.len() as u32,
        value_bytes: value_bytes as u32,
        ..BoxJob::default()
    };
    job.extents.iter_mut().zip(extents).for_each(|(to, n)| *to = *n as u64);
    let blocks = n_values.div_ceil(u64::from(SCAN_THREADS) * 4).min(1 << 16) as u32;
    let shape = Shape { blocks, threads: SCAN_THREADS };
    // SAFETY: the kernel takes one such job; the rest is the caller's contract.
    unsafe { runtime.launch("copy_box", shape, &mut [(&raw mut job).cast()], stream) }
}
