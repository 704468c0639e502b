//! Complete streams in device memory. Payloads stay there; the host makes what stands between them, and of their bytes sees
//! little but hashes.

use pumice::backend::{self, Codec, Payload};
use pumice::{Error, ErrorKind, Result};

use super::{DeviceSlice, DeviceSliceMut, Encoder, Made, check_len};
use crate::kernels::Element;
use crate::runtime::Stream;

impl<T: Element> Encoder<'_, T> {
    /// Waits, and writes what was encoded to device memory as a complete stream, of which it returns the size.
    /// [`pumice::max_compressed_bytes`] says how much room is enough; where there is less than needed, the error tells how
    /// much that is. Else as [`Encoder::finish`].
    ///
    /// ```no_run
    /// use pumice::{Bound, Config, Preset};
    /// use pumice_gpu::{Device, Encoder, Stream};
    /// let (device, stream) = (Device::cuda(0)?, Stream::DEFAULT);
    /// let (shape, config) = ([1024, 1024], Config::new(Bound::Abs(1e-3)).preset(Preset::Fast));
    /// let values = device.upload(&vec![0.5f32; 1024 * 1024])?;
    /// let blueprint = device.blueprint(values.as_slice(), &shape, &config, stream)?;
    /// let mut encoder = Encoder::new(&device, &blueprint)?;
    /// let mut out = device.allocate::<u8>(pumice::max_compressed_bytes::<f32>(&shape, &config)? as usize)?;
    /// encoder.encode(values.as_slice(), stream)?;
    /// let n_bytes = encoder.finish_on_device(values.as_slice(), out.as_mut_slice(), stream)?;
    /// # Ok::<(), pumice::Error>(())
    /// ```
    pub fn finish_on_device(
        &self,
        values: DeviceSlice<'_, T>,
        out: DeviceSliceMut<'_, u8>,
        stream: Stream,
    ) -> Result<usize> {
        check_len(values.len, self.blueprint.shape())?;
        let made = self.made(values.at, stream)?.collect::<Result<Vec<(Codec, Made)>>>()?;
        let spans = made.iter().map(|(_, made)| match made {
            Made::OnDevice(at, n_bytes) => (*at, *n_bytes),
            Made::OnHost(_) => (0, 0),
        });
        // SAFETY: payloads are there, and so are values of a slice.
        let hashed = unsafe { self.hasher.hash(&spans.collect::<Vec<_>>(), stream)? };
        let known = made.iter().enumerate().map(|(id, (codec, made))| {
            let hash = match made {
                Made::OnDevice(..) => hashed.payload_hash(id),
                Made::OnHost(bytes) => backend::payload_hash(&[], bytes),
            };
            Payload { codec: *codec, n_bytes: made.n_bytes(), hash }
        });
        let outline = self.blueprint.outline(&known.collect::<Vec<_>>())?;
        if out.len < outline.n_bytes {
            let message = format!("the stream has {} bytes, but there is room for {}", outline.n_bytes, out.len);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        // SAFETY: the outline is within the room; what is on the host outlives the wait, what is on the device is there.
        unsafe {
            let put =
                |at: usize, bytes: &[u8]| self.runtime.copy_in(out.at + at as u64, bytes.as_ptr(), bytes.len(), stream);
            for (place, (_, made)) in outline.payloads.iter().zip(&made) {
                match made {
                    Made::OnHost(bytes) => put(place.start, bytes)?,
                    Made::OnDevice(_, 0) => {}
                    Made::OnDevice(from, n_bytes) => {
                        self.runtime.copy_within(out.at + place.start as u64, *from, *n_bytes, stream)?;
                    }
                }
            }
            outline.others.iter().filter(|(_, bytes)| !bytes.is_empty()).try_for_each(|(at, bytes)| put(*at, bytes))?;
        }
        self.runtime.synchronize(stream)?;
        Ok(outline.n_bytes)
    }
}
