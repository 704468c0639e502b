//! Chunks that are not one run of memory, copied to one and back.

use std::sync::Arc;

use pumice::Result;
use pumice::backend::ChunkBox;

use crate::kernels::{BoxJob, SCAN_THREADS};
use crate::runtime::{DevicePtr, Runtime, Shape, Stream};

/// Which way values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToRun,
    ToArray,
}

/// Copies the values of a box of an array of this shape to or from a run of memory.
///
/// # Safety
/// `array` and `run` are valid for values of that many bytes.
pub(crate) unsafe fn copy(
    runtime: &Arc<dyn Runtime>,
    (array, shape): (DevicePtr, &[usize]),
    chunk: &ChunkBox,
    run: DevicePtr,
    value_bytes: usize,
    way: Way,
    stream: Stream,
) -> Result<()> {
    let mut job = BoxJob {
        array,
        run,
        n_values: chunk.n_values() as u64,
        rank: shape.len() as u32,
        value_bytes: value_bytes as u32,
        is_scatter: u32::from(way == Way::ToArray),
        ..BoxJob::default()
    };
    let mut stride = 1;
    for axis in (0..shape.len()).rev() {
        job.extents[axis] = chunk.extents[axis] as u64;
        job.strides[axis] = stride;
        job.first += chunk.start[axis] as u64 * stride;
        stride *= shape[axis] as u64;
    }
    if job.n_values == 0 {
        return Ok(());
    }
    let blocks = job.n_values.div_ceil(u64::from(SCAN_THREADS) * 4).min(1 << 16) as u32;
    let shape = Shape { blocks, threads: SCAN_THREADS };
    // SAFETY: the kernel takes one such job; the rest is the caller's contract.
    unsafe { runtime.launch("copy_box", shape, &mut [(&raw mut job).cast()], stream) }
}
