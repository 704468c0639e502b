//! Checksums of bytes in device memory: the device hashes whole blocks, and the host combines these hashes with the
//! bytes after the last whole block.

use std::sync::{Arc, Mutex, PoisonError};

use pumice::Result;
use pumice::backend::{self, HASH_BLOCK};

use crate::runtime::{Buffer, DevicePtr, Plain, Runtime, Shape, Stream};

const KERNEL: &str = "hash_blocks";
/// Threads of a thread block, and the number of them that hash one unit.
const THREADS: u32 = 256;
const LANES: u32 = 8;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    from: DevicePtr,
    n_bytes: u64,
    first_unit: u64,
    rest_at: u64,
}

// SAFETY: numbers, all of one size.
unsafe impl Plain for Span {}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct HashJob {
    spans: DevicePtr,
    hashes: DevicePtr,
    rests: DevicePtr,
    n_spans: u64,
    n_units: u64,
}

/// Hashes spans of device memory; holds the working space.
#[derive(Debug)]
pub(crate) struct Hasher {
    runtime: Arc<dyn Runtime>,
    spans: Buffer<Span>,
    hashes: Buffer<u64>,
    rests: Buffer<u8>,
    resident: u32,
    /// Held while the space is in use.
    busy: Mutex<()>,
}

/// The hashes and remaining bytes of each span.
#[derive(Debug)]
pub(crate) struct Hashed {
    spans: Vec<Span>,
    hashes: Vec<u64>,
    rests: Vec<u8>,
}

impl Hasher {
    /// Allocates working space for at most this many spans with at most this many bytes in total.
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, n_spans: usize, n_bytes: usize) -> Result<Self> {
        let n_rests = (n_spans * HASH_BLOCK).min(n_bytes + n_spans * size_of::<u64>());
        Ok(Self {
            runtime: Arc::clone(runtime),
            spans: Buffer::new(runtime, n_spans)?,
            hashes: Buffer::new(runtime, n_bytes / HASH_BLOCK + n_spans)?,
            rests: Buffer::new(runtime, n_rests)?,
            resident: runtime.resident_blocks(KERNEL, THREADS)?,
            busy: Mutex::new(()),
        })
    }

    /// Size of the device memory it holds, in bytes.
    pub(crate) fn device_bytes(&self) -> u64 {
        (size_of::<Span>() * self.spans.len() + 8 * self.hashes.len() + self.rests.len()) as u64
    }

    /// Hashes spans of device memory, given by address and size. Waits.
    ///
    /// # Safety
    /// The addresses are valid for these sizes.
    pub(crate) unsafe fn hash(&self, at: &[(DevicePtr, usize)], stream: Stream) -> Result<Hashed> {
        let (mut n_units, mut n_rests) = (0, 0);
        let mut spans = Vec::with_capacity(at.len());
        for (from, n_bytes) in at {
            let (first_unit, rest_at) = (n_units as u64, n_rests as u64);
            spans.push(Span { from: *from, n_bytes: *n_bytes as u64, first_unit, rest_at });
            n_units += n_bytes.div_ceil(HASH_BLOCK);
            n_rests += (n_bytes % HASH_BLOCK).next_multiple_of(size_of::<u64>());
        }
        assert!(n_units <= self.hashes.len() && n_rests <= self.rests.len(), "the working space is too small");
        let (mut hashes, mut rests) = (vec![0; n_units], vec![0; n_rests]);
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if n_units > 0 {
            self.spans.write(0, &spans, stream)?;
            let mut job = HashJob {
                spans: self.spans.at(),
                hashes: self.hashes.at(),
                rests: self.rests.at(),
                n_spans: spans.len() as u64,
                n_units: n_units as u64,
            };
            let blocks = (n_units as u64 * u64::from(LANES)).div_ceil(u64::from(THREADS));
            let shape = Shape { blocks: blocks.min(u64::from(self.resident)) as u32, threads: THREADS };
            // SAFETY: the kernel takes one such job; the working space holds all units, and the caller guarantees the
            // spans.
            unsafe { self.runtime.launch(KERNEL, shape, &mut [(&raw mut job).cast()], stream)? };
            self.hashes.read(0, &mut hashes, stream)?;
            self.rests.read(0, &mut rests, stream)?;
        }
        Ok(Hashed { spans, hashes, rests })
    }
}

impl Hashed {
    /// The bytes of a span after its last whole block.
    pub(crate) fn rest(&self, number: usize) -> &[u8] {
        let span = &self.spans[number];
        &self.rests[span.rest_at as usize..][..span.n_bytes as usize % HASH_BLOCK]
    }

    /// `payload_hash` of a span.
    pub(crate) fn payload_hash(&self, number: usize) -> u64 {
        let span = &self.spans[number];
        let blocks = &self.hashes[span.first_unit as usize..][..span.n_bytes as usize / HASH_BLOCK];
        backend::payload_hash(blocks, self.rest(number))
    }
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use super::*;
    use crate::emulated::Emulated;

    #[test]
    fn hashes_are_those_of_the_host() {
        let runtime: Arc<dyn Runtime> = Arc::new(Emulated::new(1));
        let bytes: Vec<u8> = (0..70_000_u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
        // Spans at any offset, up to the last byte.
        let sizes = [0, 1, 7, 8, 9, 4095, 4096, 0, 4097, 8192, 12_300, 240, 17, 16, 4111, 4104, 9000];
        let starts = sizes.iter().scan(3, |at, n| Some(std::mem::replace(at, *at + n + 1)));
        let mut ranges: Vec<(usize, usize)> = starts.zip(sizes).collect();
        ranges.extend((0..8).map(|i| (bytes.len() - 4096 - i, 4096 + i)));
        let memory = Buffer::with(&runtime, &bytes, Stream::DEFAULT).unwrap();
        let hasher = Hasher::new(&runtime, ranges.len(), ranges.iter().map(|(_, n)| n).sum()).unwrap();
        let spans: Vec<(DevicePtr, usize)> = ranges.iter().map(|(at, n)| (memory.at() + *at as u64, *n)).collect();
        // SAFETY: all spans lie within the buffer.
        let hashed = unsafe { hasher.hash(&spans, Stream::DEFAULT).unwrap() };
        for (number, (at, n)) in ranges.iter().enumerate() {
            let span = &bytes[*at..at + n];
            assert_eq!(hashed.payload_hash(number), backend::payload_hash(&[], span), "{n} bytes from {at} on");
            assert_eq!(hashed.rest(number), &span[n / HASH_BLOCK * HASH_BLOCK..]);
        }
    }
}
