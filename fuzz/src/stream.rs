//! Builds streams, and repairs the checksums of damaged ones. Written from docs/format.md, sections 2 to 4, and not
//! from the library, whose writer makes only valid streams.

use twox_hash::XxHash3_64;

/// What [`reseal`] repairs.
#[derive(Clone, Copy, Debug)]
pub struct Repairs {
    /// `header_checksum`.
    pub header: bool,
    /// `frame_checksum` of each frame that can be walked to.
    pub frames: bool,
    /// `index_checksum`.
    pub index: bool,
    /// `index_offset` and `index_bytes`.
    pub footer: bool,
}

impl Repairs {
    /// By the low four bits.
    pub fn from_bits(bits: u8) -> Self {
        let is_set = |i: u8| bits >> i & 1 != 0;
        Self { header: is_set(0), frames: is_set(1), index: is_set(2), footer: is_set(3) }
    }
}

/// Appends an unsigned LEB128 number.
pub fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads an unsigned LEB128 number at `at` and moves on; lenient.
pub fn take_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Adds magic, versions, size and checksum to `fields`, the header from `dtype` to the last attribute.
pub fn sealed_header(fields: &[u8]) -> Vec<u8> {
    let mut out = b"PUM\x1a\x01\x01".to_vec();
    let header_bytes = fields.len() + 12;
    out.extend_from_slice(&(header_bytes.min(0xffff) as u16).to_le_bytes());
    out.extend_from_slice(fields);
    let checksum = XxHash3_64::oneshot(&out) as u32;
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// A frame's fields before its checksum.
#[derive(Clone, Copy, Debug)]
struct FrameFields {
    codec: u8,
    chunk_id: u64,
    first_row: u64,
    rows: u64,
    payload_bytes: u64,
}

/// Appends the frame of a single-chunk stream of so many rows.
pub fn push_frame(codec: u8, rows: u64, payload: &[u8], out: &mut Vec<u8>) {
    let fields = FrameFields { codec, chunk_id: 0, first_row: 0, rows, payload_bytes: payload.len() as u64 };
    push_frame_of(fields, true, payload, out);
}

fn push_frame_of(fields: FrameFields, single_chunk: bool, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"CHNK");
    out.push(fields.codec);
    push_varint(fields.chunk_id, out);
    if !single_chunk {
        push_varint(fields.first_row, out);
        push_varint(fields.rows, out);
    }
    push_varint(fields.payload_bytes, out);
    out.extend_from_slice(&frame_checksum(&fields, payload).to_le_bytes());
    out.extend_from_slice(payload);
}

fn frame_checksum(fields: &FrameFields, payload: &[u8]) -> u64 {
    let mut covered = [fields.codec; 41];
    let numbers = [fields.chunk_id, fields.first_row, fields.rows, fields.payload_bytes, payload_hash(payload)];
    for (place, number) in covered[1..].chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    XxHash3_64::oneshot(&covered)
}

/// A chunked stream of the chunks of several single-chunk streams, which agree in everything but their first extent.
pub fn joined(chunks: &[Vec<u8>], segments: &[u64], chunk_shape: &[usize]) -> Option<Vec<u8>> {
    let first = chunks.first()?;
    let header_bytes = HeaderFacts::of(first)?.header_bytes;
    let mut at = 13;
    take_varint(first, &mut at)?;
    let row_shape_at = at;
    for _ in 1..chunk_shape.len() {
        take_varint(first, &mut at)?;
    }
    let mut fields = first[8..13].to_vec();
    fields[1] &= !1; // not a single chunk
    fields.extend_from_slice(&first[row_shape_at..at]);
    chunk_shape.iter().for_each(|&n| push_varint(n as u64, &mut fields));
    fields.extend_from_slice(&first[at..header_bytes - 4]);
    let mut out = sealed_header(&fields);
    let mut index = b"INDX".to_vec();
    push_varint(segments.len() as u64, &mut index);
    segments.iter().for_each(|&rows| push_varint(rows, &mut index));
    push_varint(chunks.len() as u64, &mut index);
    let mut first_row = 0;
    for (chunk_id, chunk) in (0..).zip(chunks) {
        let (codec, payload) = first_payload(chunk)?;
        let rows = HeaderFacts::of(chunk)?.rows;
        let start = out.len();
        let fields = FrameFields { codec, chunk_id, first_row, rows, payload_bytes: payload.len() as u64 };
        push_frame_of(fields, false, payload, &mut out);
        push_varint((out.len() - start) as u64, &mut index);
        first_row += rows;
    }
    let checksum = XxHash3_64::oneshot(&index);
    index.extend_from_slice(&checksum.to_le_bytes());
    let index_offset = out.len() as u64;
    out.extend_from_slice(&index);
    out.extend_from_slice(&index_offset.to_le_bytes());
    out.extend_from_slice(&(index.len() as u64).to_le_bytes());
    out.extend_from_slice(b"PUMF");
    Some(out)
}

fn payload_hash(payload: &[u8]) -> u64 {
    let hashes: Vec<u64> = payload.chunks(4096).map(XxHash3_64::oneshot).collect();
    match hashes[..] {
        [hash] => hash,
        _ => XxHash3_64::oneshot(&hashes.iter().flat_map(|h| h.to_le_bytes()).collect::<Vec<_>>()),
    }
}

/// What frames depend on.
#[derive(Clone, Copy, Debug)]
pub struct HeaderFacts {
    /// Size of the header.
    pub header_bytes: usize,
    /// The flag.
    pub single_chunk: bool,
    /// The first extent of a single-chunk stream.
    pub rows: u64,
}

impl HeaderFacts {
    /// As far as the bytes go.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let header_bytes = usize::from(u16::from_le_bytes([*bytes.get(6)?, *bytes.get(7)?]));
        if !(17..=bytes.len()).contains(&header_bytes) {
            return None;
        }
        let rows = if bytes[12] == 0 { 1 } else { take_varint(bytes, &mut 13)? };
        Some(Self { header_bytes, single_chunk: bytes[9] & 1 != 0, rows })
    }
}

/// CodecId and payload of the first frame.
pub fn first_payload(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let facts = HeaderFacts::of(bytes)?;
    let (fields, _, payload_at) = frame_fields(bytes, facts.header_bytes, &facts)?;
    Some((fields.codec, bytes.get(payload_at..payload_at.checked_add(fields.payload_bytes as usize)?)?))
}

/// The fields of the frame at `at`, the offset of its checksum, and the offset of its payload.
fn frame_fields(bytes: &[u8], at: usize, facts: &HeaderFacts) -> Option<(FrameFields, usize, usize)> {
    if bytes.get(at..at + 4)? != b"CHNK" {
        return None;
    }
    let codec = *bytes.get(at + 4)?;
    let mut at = at + 5;
    let mut next = || take_varint(bytes, &mut at);
    let chunk_id = next()?;
    let (first_row, rows) = if facts.single_chunk { (0, facts.rows) } else { (next()?, next()?) };
    let payload_bytes = next()?;
    let fields = FrameFields { codec, chunk_id, first_row, rows, payload_bytes };
    (at + 8 <= bytes.len()).then_some((fields, at, at + 8))
}

/// Repairs checksums, as far as the structure can still be parsed.
pub fn reseal(bytes: &mut [u8], repairs: Repairs) {
    let Some(facts) = HeaderFacts::of(bytes) else { return };
    let header_bytes = facts.header_bytes;
    if repairs.header {
        let checksum = XxHash3_64::oneshot(&bytes[..header_bytes - 4]) as u32;
        bytes[header_bytes - 4..header_bytes].copy_from_slice(&checksum.to_le_bytes());
    }
    let mut at = header_bytes;
    while let Some((fields, checksum_at, payload_at)) = frame_fields(bytes, at, &facts) {
        let end = usize::try_from(fields.payload_bytes).ok().and_then(|n| payload_at.checked_add(n));
        let Some(end) = end.filter(|&end| end <= bytes.len()) else { return };
        if repairs.frames {
            let checksum = frame_checksum(&fields, &bytes[payload_at..end]);
            bytes[checksum_at..payload_at].copy_from_slice(&checksum.to_le_bytes());
        }
        at = end;
    }
    // What is left is index (a marker, two counts and a checksum at least) and footer.
    let Some(index_bytes) = bytes.len().checked_sub(at + 20) else { return };
    if facts.single_chunk || index_bytes < 14 {
        return;
    }
    let footer_at = at + index_bytes;
    if repairs.index {
        // The copy of the header, right before the checksum.
        if bytes[at..].starts_with(b"INDH") && index_bytes >= header_bytes + 14 {
            bytes.copy_within(..header_bytes, footer_at - 8 - header_bytes);
        }
        let checksum = XxHash3_64::oneshot(&bytes[at..footer_at - 8]);
        bytes[footer_at - 8..footer_at].copy_from_slice(&checksum.to_le_bytes());
    }
    if repairs.footer {
        bytes[footer_at..footer_at + 8].copy_from_slice(&(at as u64).to_le_bytes());
        bytes[footer_at + 8..footer_at + 16].copy_from_slice(&(index_bytes as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice::{Config, ErrorBound};

    #[test]
    fn reseals_what_the_library_wrote() {
        let data: Vec<f32> = (0..30_000).map(|i| (i as f32 * 0.02).sin()).collect();
        for chunk in [9000, 30_000] {
            let config = Config::new(ErrorBound::Abs(1e-3)).chunk_shape(&[chunk]);
            let stream = pumice::compress(&data, &[30_000], &config).unwrap();
            let mut resealed = stream.clone();
            reseal(&mut resealed, Repairs::from_bits(15));
            assert!(resealed == stream);
            let mut damaged = stream.clone();
            let facts = HeaderFacts::of(&stream).unwrap();
            let header_bytes = facts.header_bytes;
            let payload_at = frame_fields(&stream, header_bytes, &facts).unwrap().2;
            damaged[header_bytes - 1] ^= 1;
            damaged[payload_at - 1] ^= 1;
            assert!(pumice::decompress::<f32>(&damaged).is_err());
            reseal(&mut damaged, Repairs::from_bits(15));
            assert!(damaged == stream);
        }
    }

    #[test]
    fn joined_streams_can_be_read() {
        let data: Vec<f64> = (0..70).map(f64::from).collect();
        let config = Config::new(ErrorBound::Abs(1e-3));
        let chunks = [&data[..40], &data[40..]].map(|d| pumice::compress(d, &[d.len() / 10, 10], &config).unwrap());
        let stream = joined(&chunks, &[7], &[4, 10]).unwrap();
        let array = pumice::decompress::<f64>(&stream).unwrap();
        assert_eq!(array.shape, [7, 10]);
        assert!(data.iter().zip(&array.data).all(|(x, y)| (x - y).abs() <= 1e-3));
        let mut resealed = stream.clone();
        reseal(&mut resealed, Repairs::from_bits(15));
        assert_eq!(resealed, stream);
    }
}
