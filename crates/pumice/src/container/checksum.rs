//! The two checksums of docs/format.md: XXH3 of small parts, and `payload_hash`, a hash of block hashes that any
//! number of threads (or a GPU) can compute block by block.

use twox_hash::XxHash3_64;

/// Bytes per independently hashed block of a payload.
const BLOCK_BYTES: usize = 4096;

/// XXH3 of `bytes`.
pub(crate) fn xxh3(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// `payload_hash` of section 3.
pub(crate) fn payload_hash(payload: &[u8]) -> u64 {
    if (1..=BLOCK_BYTES).contains(&payload.len()) {
        return xxh3(payload);
    }
    let mut hashes = Vec::with_capacity(payload.len().div_ceil(BLOCK_BYTES) * 8);
    for block in payload.chunks(BLOCK_BYTES) {
        hashes.extend_from_slice(&xxh3(block).to_le_bytes());
    }
    xxh3(&hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The empty input's XXH3 is published with the algorithm.
        assert_eq!(xxh3(&[]), 0x2d06_8005_38d3_94c2);
        assert_eq!(payload_hash(&[]), xxh3(&[]));
    }

    #[test]
    fn block_structure() {
        let payload: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 3) as u8).collect();
        assert_eq!(payload_hash(&payload[..4096]), xxh3(&payload[..4096]));
        let parts: Vec<u8> = payload.chunks(4096).flat_map(|b| xxh3(b).to_le_bytes()).collect();
        assert_eq!(payload_hash(&payload), xxh3(&parts));
        assert_ne!(payload_hash(&payload[..4097]), xxh3(&payload[..4097]));
    }
}
