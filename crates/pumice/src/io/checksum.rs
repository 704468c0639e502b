//! The two checksums of docs/format.md: XXH3 of small parts, and `payload_hash`, a hash of block hashes that any
//! number of threads (or a GPU) can compute block by block.

use std::hash::Hasher;

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
    let mut hasher = PayloadHasher::default();
    first.iter().for_each(|hash| hasher.add_block(*hash));
    hasher.add(rest);
    hasher.finish()
}

/// Computes `payload_hash` of a payload that comes in parts.
#[derive(Default)]
pub(crate) struct PayloadHasher {
    n_blocks: u64,
    /// That of the first block, until there is another one.
    only: u64,
    of_hashes: Option<XxHash3_64>,
}

impl PayloadHasher {
    /// Adds the next part: whole blocks, unless it is the last one.
    pub(crate) fn add(&mut self, part: &[u8]) {
        part.chunks(BLOCK_BYTES).for_each(|block| self.add_block(xxh3(block)));
    }

    fn add_block(&mut self, hash: u64) {
        if self.n_blocks == 0 {
            self.only = hash;
        } else {
            let of_hashes = self.of_hashes.get_or_insert_with(|| {
                let mut of_hashes = XxHash3_64::new();
                of_hashes.write(&self.only.to_le_bytes());
                of_hashes
            });
            of_hashes.write(&hash.to_le_bytes());
        }
        self.n_blocks += 1;
    }

    pub(crate) fn finish(self) -> u64 {
        match self.of_hashes {
            Some(of_hashes) => of_hashes.finish(),
            None if self.n_blocks == 1 => self.only,
            None => xxh3(&[]),
        }
    }
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
