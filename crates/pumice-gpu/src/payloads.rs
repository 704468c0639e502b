//! Verified payloads in device memory, aligned as the kernels require.

use std::sync::Arc;

use pumice::Result;
use pumice::backend::Frames;

use crate::runtime::{Buffer, DevicePtr, Runtime, Stream};

/// Alignment of payloads that are copied.
const ALIGNMENT: usize = 16;
/// The largest number of bytes at the start of a payload that the host reads.
pub(crate) const FRONT_BYTES: usize = 8;

/// A payload in device memory.
#[derive(Debug)]
pub(crate) struct DevicePayload {
    pub(crate) at: DevicePtr,
    pub(crate) n_bytes: usize,
    /// Its first bytes.
    pub(crate) front: Vec<u8>,
}

/// Payloads of chunks, in the order of the given ids.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) payloads: Vec<DevicePayload>,
    /// Kept alive because addresses may point into it.
    pub(crate) memory: Buffer<u8>,
}

/// Allocates memory for payloads of these sizes; returns the address of each.
pub(crate) fn allocate(runtime: &Arc<dyn Runtime>, sizes: &[usize]) -> Result<(Buffer<u8>, Vec<DevicePtr>)> {
    let memory = Buffer::new(runtime, sizes.iter().map(|n| n.next_multiple_of(ALIGNMENT)).sum())?;
    let next = |at: &mut DevicePtr, n: &usize| Some(std::mem::replace(at, *at + n.next_multiple_of(ALIGNMENT) as u64));
    let starts = sizes.iter().scan(memory.at(), next).collect();
    Ok((memory, starts))
}

/// Verifies payloads of a stream on the host, and copies them to the device.
pub(crate) fn upload(
    runtime: &Arc<dyn Runtime>,
    frames: &Frames<'_>,
    ids: &[usize],
    stream: Stream,
) -> Result<Delivered> {
    let sizes = ids.iter().map(|id| Ok(frames.frame(*id)?.payload.len())).collect::<Result<Vec<usize>>>()?;
    let (memory, starts) = allocate(runtime, &sizes)?;
    let mut payloads = Vec::with_capacity(ids.len());
    for (id, at) in ids.iter().zip(starts) {
        frames.verify(*id)?;
        let payload = frames.payload(*id)?;
        memory.write((at - memory.at()) as usize, &payload, stream)?;
        payloads.push(DevicePayload {
            at,
            n_bytes: payload.len(),
            front: payload[..payload.len().min(FRONT_BYTES)].to_vec(),
        });
    }
    Ok(Delivered { payloads, memory })
}
