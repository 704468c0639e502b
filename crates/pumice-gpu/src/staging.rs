//! Copies of large arrays between host and device through pinned memory: the device copies one piece while host threads
//! copy the next.

use rayon::prelude::*;

use pumice::Result;

use crate::runtime::{DevicePtr, Runtime, Stream};

/// Bytes of a piece.
pub(crate) const PIECE: usize = 8 << 20;
/// Bytes that one of the host's threads copies at a time.
const SHARE: usize = 256 << 10;
/// Smaller copies are not staged.
const LARGE: usize = 4 * PIECE;

/// Two pieces of pinned memory, each with an event that marks when the device is done with it. The runtime keeps them
/// for the next copy. After a failed copy they are not reused, since the device may still access them.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) pieces: [*mut u8; 2],
    pub(crate) marks: [*mut std::ffi::c_void; 2],
}

// SAFETY: the owner is the only user of the memory and events.
unsafe impl Send for Pinned {}

/// Copies to the device, and waits.
///
/// # Safety
/// Both sides are valid for `n_bytes`.
pub(crate) unsafe fn upload(
    runtime: &dyn Runtime,
    to: DevicePtr,
    from: *const u8,
    n_bytes: usize,
    stream: Stream,
) -> Result<()> {
    if n_bytes < LARGE {
        // SAFETY: the caller's contract; the host's side outlives the wait.
        unsafe { runtime.copy_in(to, from, n_bytes, stream)? };
        return runtime.synchronize(stream);
    }
    // SAFETY: the caller's contract.
    let from = unsafe { std::slice::from_raw_parts(from, n_bytes) };
    let pinned = runtime.take_pinned()?;
    for (i, part) in from.chunks(PIECE).enumerate() {
        let (piece, mark) = (pinned.pieces[i % 2], pinned.marks[i % 2]);
        if i >= 2 {
            runtime.wait(mark)?;
        }
        // SAFETY: a piece has at least that many bytes, and the device is done with it.
        let staged = unsafe { std::slice::from_raw_parts_mut(piece, part.len()) };
        copy(staged, part);
        // SAFETY: the caller's contract; the piece is not used until its mark is reached.
        unsafe { runtime.copy_in(to + (i * PIECE) as u64, piece, part.len(), stream)? };
        runtime.mark(mark, stream)?;
    }
    runtime.synchronize(stream)?;
    runtime.give_pinned(pinned);
    Ok(())
}

/// Copies from the device, and waits.
///
/// # Safety
/// Both sides are valid for `n_bytes`.
pub(crate) unsafe fn download(
    runtime: &dyn Runtime,
    to: *mut u8,
    from: DevicePtr,
    n_bytes: usize,
    stream: Stream,
) -> Result<()> {
    if n_bytes < LARGE {
        // SAFETY: the caller's contract; the host's side outlives the wait.
        unsafe { runtime.copy_out(to, from, n_bytes, stream)? };
        return runtime.synchronize(stream);
    }
    // SAFETY: the caller's contract.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n_bytes) };
    let pinned = runtime.take_pinned()?;
    let n_pieces = n_bytes.div_ceil(PIECE);
    let fetch = |i: usize| {
        let n = PIECE.min(n_bytes - i * PIECE);
        // SAFETY: the caller's contract; the previous contents of the piece have been copied.
        unsafe { runtime.copy_out(pinned.pieces[i % 2], from + (i * PIECE) as u64, n, stream)? };
        runtime.mark(pinned.marks[i % 2], stream)
    };
    fetch(0)?;
    for (i, part) in to.chunks_mut(PIECE).enumerate() {
        if i + 1 < n_pieces {
            fetch(i + 1)?;
        }
        runtime.wait(pinned.marks[i % 2])?;
        // SAFETY: a piece has at least that many bytes, which the device has written.
        copy(part, unsafe { std::slice::from_raw_parts(pinned.pieces[i % 2], part.len()) });
    }
    runtime.give_pinned(pinned);
    Ok(())
}

fn copy(to: &mut [u8], from: &[u8]) {
    to.par_chunks_mut(SHARE).zip(from.par_chunks(SHARE)).for_each(|(to, from)| to.copy_from_slice(from));
}

#[cfg(all(test, feature = "emulator"))]
mod tests {
    use crate::{Device, Stream};

    #[test]
    fn large_arrays_come_back() {
        let device = Device::emulated(1);
        for n in [super::LARGE / 4, super::LARGE / 4 + 1, super::LARGE / 4 + 3 * super::PIECE / 4 - 5] {
            let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert!(device.upload(&values).unwrap().to_vec(Stream::DEFAULT).unwrap() == values, "{n} values");
        }
    }
}
