//! The two checksums of docs/format.md: XXH3 of small parts, and `payload_hash`, a hash of block hashes that any
//! number of threads (or a GPU) can compute block by block.

use twox_hash::XxHash3_64;

/// Bytes per independently hashed block of a payload.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// XXH3 of `bytes`.
pub(crate) fn xxh3(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// `payload_hash` of section 3.
pub(crate) fn payload_hash(payload: &[u8]) -> u64 {
    payload_hash_of(&[], payload)
}

/// `payload_hash` of a payload of whose first blocks only the hashes are at hand; `rest` are the bytes behind them.
pub(crate) fn payload_hash_of(first: &[u64], rest: &[u8]) -> u64 {
    match first {
        [] if (1..=BLOCK_BYTES).contains(&rest.len()) => return xxh3(rest),
        [only] if rest.is_empty() => return *only,
        _ => {}
    }
    let mut hashes = Vec::with_capacity((first.len() + rest.len().div_ceil(BLOCK_BYTES)) * 8);
    for hash in first.iter().copied().chain(rest.chunks(BLOCK_BYTES).map(xxh3)) {
        hashes.extend_from_slice(&hash.to_le_bytes());
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
        for n in [0, 1, 4095, 4096, 4097, 8192, 10_000] {
            let (first, rest) = payload[..n].split_at(n / 4096 * 4096);
            let hashes: Vec<u64> = first.chunks(4096).map(xxh3).collect();
            assert_eq!(payload_hash_of(&hashes, rest), payload_hash(&payload[..n]), "{n} bytes");
        }
    }
}
