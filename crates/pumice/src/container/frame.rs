//! One chunk's frame (docs/format.md, section 3): marker, codec, identity, size and checksum in front of the payload,
//! enough to find and verify the chunk, and to know its position in the array, without an index. A payload is passed to
//! a codec only after its checksum was verified.

use super::header::Header;
use crate::codec::shared::padding;
use crate::codec::{self, CodecId};
use crate::error::{Error, Result};
use crate::grid::Block;
use crate::io::{Bytes, checksum, varint};
use crate::num::DType;
use crate::with_dtype;

/// First bytes of each frame.
pub(crate) const MARKER: [u8; 4] = *b"CHNK";
/// Minimum number of bytes in front of a payload, in a single-chunk and in a chunked stream.
const MIN_SINGLE_HEADER_BYTES: usize = 4 + 1 + 1 + 1 + 8;
pub(crate) const MIN_HEADER_BYTES: usize = MIN_SINGLE_HEADER_BYTES + 2;
/// Maximum number of bytes in front of a payload.
pub(crate) const MAX_HEADER_BYTES: usize = 4 + 1 + 4 * varint::MAX_BYTES + 8;

/// Which chunk a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) chunk_id: u64,
    /// Start and extent along axis 0 of the whole array; 0 and 1 for an array without axes.
    pub(crate) first_row: u64,
    pub(crate) rows: u64,
    /// Whether the stream is a single chunk: then `first_row` and `rows` are not stored, but still checksummed.
    pub(crate) single_chunk: bool,
}

impl Identity {
    /// The identity of the chunk that covers this box of the array.
    pub(crate) fn of_block(chunk_id: u64, block: &Block, single_chunk: bool) -> Self {
        let first_row = block.start.first().map_or(0, |&n| n as u64);
        let rows = block.extents.first().map_or(1, |&n| n as u64);
        Self { chunk_id, first_row, rows, single_chunk }
    }

    /// Bytes in front of a payload of this size.
    pub(crate) fn header_bytes(&self, payload_bytes: u64) -> usize {
        let stored_rows = if self.single_chunk { 0 } else { varint::size(self.first_row) + varint::size(self.rows) };
        4 + 1 + varint::size(self.chunk_id) + stored_rows + varint::size(payload_bytes) + 8
    }
}

/// Everything in front of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) codec: CodecId,
    pub(crate) identity: Identity,
    pub(crate) payload_bytes: u64,
    pub(crate) frame_checksum: u64,
}

impl FrameHeader {
    /// The header of a frame with this payload.
    pub(crate) fn new(codec: CodecId, identity: Identity, payload: &[u8]) -> Self {
        Self::of_hash(codec, identity, payload.len() as u64, checksum::payload_hash(payload))
    }

    /// The header of a frame with a payload of this size and `payload_hash`.
    pub(crate) fn of_hash(codec: CodecId, identity: Identity, payload_bytes: u64, payload_hash: u64) -> Self {
        let frame_checksum = frame_checksum(codec, &identity, payload_bytes, payload_hash);
        Self { codec, identity, payload_bytes, frame_checksum }
    }

    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MARKER);
        out.push(self.codec as u8);
        varint::write_to(self.identity.chunk_id, out);
        if !self.identity.single_chunk {
            varint::write_to(self.identity.first_row, out);
            varint::write_to(self.identity.rows, out);
        }
        varint::write_to(self.payload_bytes, out);
        out.extend_from_slice(&self.frame_checksum.to_le_bytes());
    }

    /// Reads the header of a frame in a stream with this header.
    pub(crate) fn read_from(bytes: &mut Bytes<'_>, header: &Header) -> Result<Self> {
        let only_rows = header.shape.first().map_or(1, |&n| n as u64);
        Self::read_with(bytes, header.single_chunk.then_some(only_rows))
    }

    /// Reads the header of a frame in a chunked stream or, if `only_rows` is given, in a single-chunk stream of so many
    /// rows.
    pub(crate) fn read_with(bytes: &mut Bytes<'_>, only_rows: Option<u64>) -> Result<Self> {
        if bytes.array()? != MARKER {
            return Err(Error::corrupt("no frame marker where a chunk should start"));
        }
        let codec = CodecId::from_byte(bytes.u8()?)?;
        let chunk_id = varint::read_from(bytes)?;
        let (first_row, rows) = match only_rows {
            Some(rows) => (0, rows),
            None => (varint::read_from(bytes)?, varint::read_from(bytes)?),
        };
        let identity = Identity { chunk_id, first_row, rows, single_chunk: only_rows.is_some() };
        let payload_bytes = varint::read_from(bytes)?;
        Ok(Self { codec, identity, payload_bytes, frame_checksum: bytes.u64()? })
    }

    /// Whether the checksum holds for this payload.
    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        self.payload_bytes == payload.len() as u64 && self.check_hash(checksum::payload_hash(payload)).is_ok()
    }

    /// Refuses a payload whose `payload_hash` does not match the checksum.
    pub(crate) fn check_hash(&self, payload_hash: u64) -> Result<()> {
        if self.frame_checksum == frame_checksum(self.codec, &self.identity, self.payload_bytes, payload_hash) {
            return Ok(());
        }
        Err(Error::corrupt("wrong checksum"))
    }

    /// Refuses payload sizes that cannot hold `n_values`, before memory is allocated for the values.
    pub(crate) fn check_plausible(&self, n_values: usize, dtype: DType) -> Result<()> {
        with_dtype!(dtype, T => codec::check_plausible::<T>(self.codec, self.payload_bytes, n_values))
    }
}

/// Minimum size of a frame that holds `n_values` values, for any codec and stream.
pub(crate) fn min_frame_bytes(n_values: usize, value_bytes: usize) -> u64 {
    let raw_bytes = n_values as u64 * value_bytes as u64;
    MIN_SINGLE_HEADER_BYTES as u64 + raw_bytes.min(padding::min_payload_bytes(n_values) as u64)
}

/// Header and payload of the complete frame `bytes`, which must hold the chunk `wanted`; checks everything.
pub(crate) fn open<'a>(bytes: &'a [u8], header: &Header, wanted: &Identity) -> Result<(FrameHeader, &'a [u8])> {
    let frame_header = locate(bytes, bytes.len() as u64, header, wanted)?;
    let payload = &bytes[bytes.len() - frame_header.payload_bytes as usize..];
    frame_header.check_hash(checksum::payload_hash(payload))?;
    Ok((frame_header, payload))
}

/// As [`open`], but without the checksum: needs only the first [`MAX_HEADER_BYTES`] of the frame. The payload ends
/// where the frame ends.
pub(crate) fn locate(head: &[u8], frame_bytes: u64, header: &Header, wanted: &Identity) -> Result<FrameHeader> {
    let mut rest = Bytes::new(head);
    let frame_header = FrameHeader::read_from(&mut rest, header).map_err(|e| Error::corrupt(e.to_string()))?;
    let identity = &frame_header.identity;
    if identity.chunk_id != wanted.chunk_id {
        return Err(Error::corrupt(format!("its frame claims to be chunk {}", identity.chunk_id)));
    }
    if identity != wanted {
        let (first, rows) = (identity.first_row, identity.rows);
        return Err(Error::corrupt(format!("its frame claims {rows} rows from row {first}, unlike the index")));
    }
    let header_bytes = (head.len() - rest.len()) as u64;
    if frame_header.payload_bytes != frame_bytes - header_bytes {
        return Err(Error::corrupt("the size of its frame differs from that in the index"));
    }
    Ok(frame_header)
}

fn frame_checksum(codec: CodecId, identity: &Identity, payload_bytes: u64, payload_hash: u64) -> u64 {
    let mut covered = [0; 41];
    covered[0] = codec as u8;
    let Identity { chunk_id, first_row, rows, .. } = *identity;
    let fields = [chunk_id, first_row, rows, payload_bytes, payload_hash];
    for (to, field) in covered[1..].chunks_exact_mut(8).zip(fields) {
        to.copy_from_slice(&field.to_le_bytes());
    }
    checksum::xxh3(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::header::tests::{chunked_header, single_header};

    #[test]
    fn round_trip_and_damage() {
        let payload = [7u8; 300];
        let chunked = Identity { chunk_id: 1000, first_row: 200, rows: 4, single_chunk: false };
        let single = Identity { chunk_id: 0, first_row: 0, rows: 0, single_chunk: true };
        for (stream_header, identity) in [(chunked_header(), chunked), (single_header(), single)] {
            let header = FrameHeader::new(CodecId::Raw, identity, &payload);
            let mut frame = Vec::new();
            header.write_to(&mut frame);
            assert_eq!(frame.len(), identity.header_bytes(300));
            frame.extend_from_slice(&payload);
            assert_eq!(open(&frame, &stream_header, &identity).unwrap(), (header, &payload[..]));
            for other in [
                Identity { chunk_id: 1001, ..identity },
                Identity { first_row: 204, ..identity },
                Identity { rows: 3, ..identity },
            ] {
                assert!(open(&frame, &stream_header, &other).is_err());
            }
            for i in 0..frame.len() {
                let mut damaged = frame.clone();
                damaged[i] ^= 1;
                assert!(open(&damaged, &stream_header, &identity).is_err(), "byte {i}");
                assert!(open(&frame[..i], &stream_header, &identity).is_err());
            }
        }
    }

    #[test]
    fn a_single_chunk_keeps_its_checksum_when_rows_are_appended() {
        let single = Identity { chunk_id: 0, first_row: 0, rows: 9, single_chunk: true };
        let chunked = Identity { single_chunk: false, ..single };
        let [a, b] = [single, chunked].map(|id| FrameHeader::new(CodecId::Fast, id, &[1; 50]).frame_checksum);
        assert_eq!(a, b);
    }

    #[test]
    fn implausible_sizes() {
        let identity = Identity { chunk_id: 0, first_row: 0, rows: 1, single_chunk: true };
        let header = FrameHeader::new(CodecId::Fast, identity, &[0; 10]);
        assert!(header.check_plausible(4096, DType::F32).is_ok());
        assert!(header.check_plausible(4097, DType::F32).is_err());
        assert!(header.check_plausible(0, DType::F32).is_err());
        let header = FrameHeader::new(CodecId::Raw, identity, &[0; 8]);
        assert!(header.check_plausible(2, DType::F32).is_ok());
        assert!(header.check_plausible(2, DType::F64).is_err());
    }
}
