//! One chunk's frame (docs/format.md, section 3): marker, codec, id, size and checksum in front of the payload, enough
//! to be found and trusted without any index. A payload is handed to a codec only after its checksum held.

use super::{Bytes, checksum, varint};
use crate::codec::fast;
use crate::error::{Error, Result};
use crate::pipeline::Codec;

/// First bytes of each frame.
pub(crate) const MARKER: [u8; 4] = *b"CHNK";
/// Least and most bytes in front of a payload.
pub(crate) const MIN_HEADER_BYTES: usize = 4 + 1 + 1 + 1 + 8;
pub(crate) const MAX_HEADER_BYTES: usize = 4 + 1 + 2 * varint::MAX_BYTES + 8;

/// Everything in front of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) codec: Codec,
    pub(crate) chunk_id: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) frame_checksum: u64,
}

impl FrameHeader {
    /// The header of a frame with this payload.
    pub(crate) fn new(codec: Codec, chunk_id: u64, payload: &[u8]) -> Self {
        let payload_bytes = payload.len() as u64;
        Self { codec, chunk_id, payload_bytes, frame_checksum: frame_checksum(codec, chunk_id, payload) }
    }

    /// Bytes of this header.
    pub(crate) fn size(chunk_id: u64, payload_bytes: u64) -> usize {
        4 + 1 + varint::size(chunk_id) + varint::size(payload_bytes) + 8
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MARKER);
        out.push(self.codec as u8);
        varint::write_to(self.chunk_id, out);
        varint::write_to(self.payload_bytes, out);
        out.extend_from_slice(&self.frame_checksum.to_le_bytes());
    }

    pub(crate) fn read_from(bytes: &mut Bytes<'_>) -> Result<Self> {
        if bytes.array()? != MARKER {
            return Err(Error::corrupt("no frame marker where a chunk should start"));
        }
        let codec = match bytes.u8()? {
            0 => Codec::Raw,
            1 => Codec::Fast,
            other => return Err(Error::corrupt(format!("unknown chunk codec {other}"))),
        };
        let chunk_id = varint::read_from(bytes)?;
        let payload_bytes = varint::read_from(bytes)?;
        Ok(Self { codec, chunk_id, payload_bytes, frame_checksum: bytes.u64()? })
    }

    /// Whether the checksum holds for this payload.
    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        self.payload_bytes == payload.len() as u64
            && self.frame_checksum == frame_checksum(self.codec, self.chunk_id, payload)
    }

    /// Refuses sizes that cannot hold `n_values`, so that nobody allocates for them.
    pub(crate) fn check_plausible(&self, n_values: usize, value_bytes: usize) -> Result<()> {
        let raw_bytes = n_values as u64 * value_bytes as u64;
        let fits = match self.codec {
            Codec::Raw => self.payload_bytes == raw_bytes,
            Codec::Fast => n_values > 0 && self.payload_bytes >= fast::min_payload_bytes(n_values) as u64,
        };
        if fits {
            return Ok(());
        }
        Err(Error::corrupt(format!("{} payload bytes cannot hold {n_values} values", self.payload_bytes)))
    }
}

/// Least size of a frame that holds `n_values` values, whatever its codec.
pub(crate) fn min_frame_bytes(n_values: usize, value_bytes: usize) -> u64 {
    let raw_bytes = n_values as u64 * value_bytes as u64;
    MIN_HEADER_BYTES as u64 + raw_bytes.min(fast::min_payload_bytes(n_values) as u64)
}

/// The payload of the whole frame `bytes` that must hold chunk `chunk_id`, checked.
pub(crate) fn open(bytes: &[u8], chunk_id: u64) -> Result<(FrameHeader, &[u8])> {
    let mut rest = Bytes::new(bytes);
    let header = FrameHeader::read_from(&mut rest).map_err(|e| Error::corrupt(e.to_string()))?;
    if header.chunk_id != chunk_id {
        return Err(Error::corrupt(format!("its frame claims to be chunk {}", header.chunk_id)));
    }
    let payload = rest.rest();
    if header.payload_bytes != payload.len() as u64 {
        return Err(Error::corrupt("its frame has another size than the index says"));
    }
    if !header.matches(payload) {
        return Err(Error::corrupt("wrong checksum; `pumice recover` saves the other chunks"));
    }
    Ok((header, payload))
}

fn frame_checksum(codec: Codec, chunk_id: u64, payload: &[u8]) -> u64 {
    let mut covered = [0; 25];
    covered[0] = codec as u8;
    covered[1..9].copy_from_slice(&chunk_id.to_le_bytes());
    covered[9..17].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    covered[17..25].copy_from_slice(&checksum::payload_hash(payload).to_le_bytes());
    checksum::xxh3(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_damage() {
        let payload = [7u8; 300];
        let header = FrameHeader::new(Codec::Raw, 1000, &payload);
        let mut frame = Vec::new();
        header.write_to(&mut frame);
        assert_eq!(frame.len(), FrameHeader::size(1000, 300));
        frame.extend_from_slice(&payload);
        assert_eq!(open(&frame, 1000).unwrap(), (header, &payload[..]));
        assert!(open(&frame, 1001).is_err());
        for i in 0..frame.len() {
            let mut damaged = frame.clone();
            damaged[i] ^= 1;
            assert!(open(&damaged, 1000).is_err(), "byte {i}");
            assert!(open(&frame[..i], 1000).is_err());
        }
    }

    #[test]
    fn implausible_sizes() {
        let header = FrameHeader::new(Codec::Fast, 0, &[0; 10]);
        assert!(header.check_plausible(4096, 4).is_ok());
        assert!(header.check_plausible(4097, 4).is_err());
        assert!(header.check_plausible(0, 4).is_err());
        let header = FrameHeader::new(Codec::Raw, 0, &[0; 8]);
        assert!(header.check_plausible(2, 4).is_ok());
        assert!(header.check_plausible(2, 8).is_err());
    }
}
