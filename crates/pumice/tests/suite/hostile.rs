//! Damaged and forged streams: an error or the right array, never a panic, never a wrong array that looks right.
//!
//! Random damage is caught by checksums, so it hardly reaches the decoder. Forged streams have their checksums put right
//! again: their values cannot be judged, but decoding them must end, stay within its limits and never panic.

use crate::{cases, forge};
use pumice::{DType, DecodeOptions, ErrorKind, Reader};
use pumice_testkit::golden::{CASES, Case};
use pumice_testkit::{Rng, check};

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("the case")
}

/// Decodes as whatever the stream says it holds.
fn decode(stream: &[u8]) -> pumice::Result<Vec<u8>> {
    let reader = Reader::new(stream, DecodeOptions::new().threads(1).max_bytes(1 << 24))?;
    match reader.info().dtype {
        DType::F32 => reader.read::<f32>().map(|array| check::bits(&array.data)),
        _ => reader.read::<f64>().map(|array| check::bits(&array.data)),
    }
}

/// Streams of a few hundred to some thousand bytes, of every layout.
const SMALL: [&str; 8] = [
    "one_value_f32",
    "rank_0_f64",
    "empty_f32",
    "attributes_f32",
    "all_nan_f32",
    "raw_chunk_f32",
    "sparse_f64",
    "sessions_default_chunks_f32",
];

#[test]
fn every_truncation_is_an_error() {
    for name in SMALL {
        let (stream, _) = cases::round_trip(case(name), 1);
        for n in 0..stream.len() {
            let kind = decode(&stream[..n]).map(drop).expect_err(name).kind();
            assert!(matches!(kind, ErrorKind::Truncated | ErrorKind::Corrupt), "{name}, {n} bytes: {kind:?}");
            assert!(pumice::inspect(&stream[..n]).is_err() || n >= forge::header_bytes(&stream));
        }
    }
}

#[test]
fn bytes_behind_the_end_are_an_error() {
    for name in SMALL {
        let (mut stream, _) = cases::round_trip(case(name), 1);
        for n in [1, 3, 19, 20, 100] {
            stream.resize(stream.len() + n, 0);
            assert!(decode(&stream).is_err(), "{name}, {n} bytes more");
        }
    }
}

#[test]
fn flipped_bits_give_an_error_or_the_right_array() {
    let mut rng = Rng::new(1);
    for case in CASES {
        let (stream, right) = cases::round_trip(case, 1);
        for _ in 0..1000 {
            let mut damaged = stream.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(stream.len());
                damaged[at] ^= 1 << rng.below(8);
            }
            if let Ok(decoded) = decode(&damaged) {
                assert!(decoded == right && damaged == stream, "{}", case.name);
            }
        }
    }
}

#[test]
fn damage_of_many_bytes_gives_an_error() {
    let mut rng = Rng::new(2);
    for case in CASES {
        let (stream, _) = cases::round_trip(case, 1);
        for _ in 0..40 {
            let mut damaged = stream.clone();
            let start = rng.below(stream.len());
            let end = stream.len().min(start + 1 + rng.below(200));
            match rng.below(3) {
                0 => damaged[start..end].fill(0),
                1 => damaged[start..end].fill_with(|| rng.bits() as u8),
                _ => drop(damaged.drain(start..end)),
            }
            assert!(damaged == stream || decode(&damaged).is_err(), "{}", case.name);
        }
    }
}

/// The checksums of `forge` are those of the library: sealing an intact stream changes nothing.
#[test]
fn seals_are_right() {
    for case in CASES {
        let (stream, _) = cases::round_trip(case, 1);
        let mut sealed = stream.clone();
        forge::seal_header(&mut sealed);
        match is_single_chunk(&stream) {
            true => forge::seal_frame(&mut sealed),
            false => forge::seal_index(&mut sealed),
        }
        assert!(sealed == stream, "{}", case.name);
    }
}

fn is_single_chunk(stream: &[u8]) -> bool {
    stream[9] & 1 != 0
}

/// Some bytes of `stream[range]` changed: set, flipped, copied from elsewhere.
fn forged(stream: &[u8], range: std::ops::Range<usize>, rng: &mut Rng) -> Vec<u8> {
    let mut forged = stream.to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = range.start + rng.below(range.len());
        forged[at] = match rng.below(4) {
            0 => forged[at] ^ 1 << rng.below(8),
            1 => [0, 1, 2, 0x3f, 0x7f, 0x80, 0xff][rng.below(7)],
            2 => forged[range.start + rng.below(range.len())],
            _ => rng.bits() as u8,
        };
    }
    forged
}

#[test]
fn forged_payloads_never_panic() {
    let mut rng = Rng::new(3);
    for case in CASES {
        let (stream, right) = cases::round_trip(case, 1);
        if !is_single_chunk(&stream) || forge::payload_start(&stream) == stream.len() {
            continue;
        }
        let payload = forge::payload_start(&stream)..stream.len();
        // Half of the damage goes to the directory and the first tiles, which decide what the rest means.
        let front = payload.start..payload.end.min(payload.start + 80);
        for i in 0..3000 {
            let mut forged = forged(&stream, if i % 2 == 0 { front.clone() } else { payload.clone() }, &mut rng);
            forge::seal_frame(&mut forged);
            if let Ok(decoded) = decode(&forged) {
                assert_eq!(decoded.len(), right.len(), "{}", case.name);
            }
        }
    }
}

#[test]
fn forged_payloads_of_another_size_never_panic() {
    let mut rng = Rng::new(4);
    for name in ["one_value_f32", "attributes_f32", "sparse_f64", "spikes_f32", "two_fills_f32"] {
        let (stream, _) = cases::round_trip(case(name), 1);
        let start = forge::payload_start(&stream);
        let size_at = forge::header_bytes(&stream) + 6;
        for _ in 0..1000 {
            // The size of the size stays, so that the rest of the frame stays in place.
            let least = if start - 8 - size_at == 1 { 1 } else { 128 };
            let most = (stream.len() - start).min((1 << (7 * (start - 8 - size_at))) - 1);
            let n = least + rng.below(most + 1 - least);
            let mut forged = stream[..start + n].to_vec();
            let mut rest = n;
            for byte in &mut forged[size_at..start - 8] {
                *byte = (rest & 0x7f) as u8 | (*byte & 0x80);
                rest >>= 7;
            }
            forge::seal_frame(&mut forged);
            assert!(n + start == stream.len() || decode(&forged).is_err(), "{name}, {n} bytes");
        }
    }
}

#[test]
fn forged_headers_never_panic() {
    let mut rng = Rng::new(5);
    for case in CASES {
        let (stream, _) = cases::round_trip(case, 1);
        for _ in 0..1000 {
            let mut forged = forged(&stream, 8..forge::header_bytes(&stream) - 4, &mut rng);
            forge::seal_header(&mut forged);
            let _ = decode(&forged);
        }
    }
}

#[test]
fn forged_indices_never_panic() {
    let mut rng = Rng::new(6);
    for case in CASES {
        let (stream, right) = cases::round_trip(case, 1);
        if is_single_chunk(&stream) {
            continue;
        }
        for _ in 0..2000 {
            let mut forged = forged(&stream, forge::index_range(&stream), &mut rng);
            forge::seal_index(&mut forged);
            if let Ok(decoded) = decode(&forged) {
                assert!(decoded == right, "{}", case.name);
            }
            let footer = stream.len() - 20..stream.len();
            let forged = self::forged(&stream, footer, &mut rng);
            assert!(forged == stream || decode(&forged).is_err(), "{}", case.name);
        }
    }
}

#[test]
fn salvage_of_damaged_streams_never_panics() {
    let mut rng = Rng::new(7);
    for case in CASES {
        let (stream, _) = cases::round_trip(case, 1);
        for i in 0..30 {
            // Not the header's size, which says where its checksum is.
            let mut damaged = forged(&stream, 8..stream.len(), &mut rng);
            if i % 2 == 0 {
                forge::seal_header(&mut damaged);
            }
            damaged.truncate(stream.len() - rng.below(stream.len()) / 4);
            let _ = pumice::salvage(&damaged[..], DecodeOptions::new().threads(1).max_bytes(1 << 24));
        }
    }
}

#[test]
fn random_bytes_are_an_error() {
    let mut rng = Rng::new(8);
    for n in 0..2000 {
        let mut bytes: Vec<u8> = (0..n % 300).map(|_| rng.bits() as u8).collect();
        assert!(decode(&bytes).is_err());
        // The same behind the first bytes of a real stream.
        bytes.splice(0..0, *b"PUM\x1a\x01\x01");
        assert!(decode(&bytes).is_err());
    }
}
