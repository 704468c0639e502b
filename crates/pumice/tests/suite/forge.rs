//! Streams with damage that their checksums do not show: written from docs/format.md, not with the library's own code.

use twox_hash::XxHash3_64;

const FOOTER_BYTES: usize = 20;
const BLOCK_BYTES: usize = 4096;

/// Where the header ends.
pub(crate) fn header_bytes(stream: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([stream[6], stream[7]]))
}

/// Makes the header's checksum right again.
pub(crate) fn seal_header(stream: &mut [u8]) {
    let at = header_bytes(stream) - 4;
    let sum = XxHash3_64::oneshot(&stream[..at]);
    stream[at..at + 4].copy_from_slice(&sum.to_le_bytes()[..4]);
}

/// Where the payload of a single-chunk stream starts.
pub(crate) fn payload_start(stream: &[u8]) -> usize {
    let frame = header_bytes(stream);
    assert_eq!((&stream[frame..frame + 4], stream[frame + 5]), (&b"CHNK"[..], 0), "a single-chunk stream");
    let size_bytes = 1 + stream[frame + 6..].iter().take_while(|byte| **byte >= 0x80).count();
    frame + 6 + size_bytes + 8
}

/// A single-chunk stream with another payload, its checksum right.
pub(crate) fn with_payload(stream: &[u8], payload: &[u8]) -> Vec<u8> {
    let size_at = header_bytes(stream) + 6;
    let mut forged = stream[..size_at].to_vec();
    let mut rest = payload.len();
    while rest >= 0x80 {
        forged.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    forged.push(rest as u8);
    forged.extend_from_slice(&[0; 8]);
    forged.extend_from_slice(payload);
    seal_frame(&mut forged);
    forged
}

/// Makes the frame's checksum of a single-chunk stream right again.
pub(crate) fn seal_frame(stream: &mut [u8]) {
    let start = payload_start(stream);
    let payload = &stream[start..];
    let mut covered = vec![stream[header_bytes(stream) + 4]];
    let (chunk_id, first_row) = (0, 0);
    for field in [chunk_id, first_row, rows(stream), payload.len() as u64, payload_hash(payload)] {
        covered.extend_from_slice(&field.to_le_bytes());
    }
    let sum = XxHash3_64::oneshot(&covered);
    stream[start - 8..start].copy_from_slice(&sum.to_le_bytes());
}

/// The slowest extent of a single-chunk stream; 1 without axes.
fn rows(stream: &[u8]) -> u64 {
    const RANK: usize = 12;
    if stream[RANK] == 0 {
        return 1;
    }
    let n_bytes = 1 + stream[RANK + 1..].iter().take_while(|byte| **byte >= 0x80).count();
    let bytes = &stream[RANK + 1..][..n_bytes];
    bytes.iter().rev().fold(0, |rows, byte| rows << 7 | u64::from(byte & 0x7f))
}

fn payload_hash(payload: &[u8]) -> u64 {
    if (1..=BLOCK_BYTES).contains(&payload.len()) {
        return XxHash3_64::oneshot(payload);
    }
    let hashes: Vec<u8> =
        payload.chunks(BLOCK_BYTES).flat_map(|block| XxHash3_64::oneshot(block).to_le_bytes()).collect();
    XxHash3_64::oneshot(&hashes)
}

/// Start and end of the index of a chunked stream, its checksum not counted.
pub(crate) fn index_range(stream: &[u8]) -> std::ops::Range<usize> {
    let footer = stream.len() - FOOTER_BYTES;
    let offset = u64::from_le_bytes(stream[footer..footer + 8].try_into().unwrap());
    offset as usize..footer - 8
}

/// Makes the index's checksum right again.
pub(crate) fn seal_index(stream: &mut [u8]) {
    let index = index_range(stream);
    let sum = XxHash3_64::oneshot(&stream[index.clone()]);
    stream[index.end..index.end + 8].copy_from_slice(&sum.to_le_bytes());
}

/// A chunked stream whose index claims so many segments of one row, and as many frames.
pub(crate) fn with_index(stream: &[u8], n: usize) -> Vec<u8> {
    let index = index_range(stream);
    let mut forged = stream[..index.start].to_vec();
    let count = |forged: &mut Vec<u8>| {
        let mut rest = n;
        while rest >= 0x80 {
            forged.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        forged.push(rest as u8);
    };
    forged.extend_from_slice(b"INDX");
    count(&mut forged);
    forged.resize(forged.len() + n, 1);
    count(&mut forged);
    forged.resize(forged.len() + n, 30);
    let index_bytes = forged.len() - index.start + 8;
    forged.extend_from_slice(&[0; 8]);
    forged.extend_from_slice(&(index.start as u64).to_le_bytes());
    forged.extend_from_slice(&(index_bytes as u64).to_le_bytes());
    forged.extend_from_slice(b"PUMF");
    seal_index(&mut forged);
    forged
}
