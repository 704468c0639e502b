//! Damaged and forged streams: an error or the right array, never a panic, never a wrong array that looks right.
//!
//! Random damage is caught by checksums, so it hardly reaches the decoder. Forged streams have their checksums put right
//! again: their values cannot be judged, but decoding them must end, stay within its limits and never panic.

use crate::cases::{self, Done};
use crate::forge;
use pumice::{Config, DType, DecodeOptions, ErrorBound, ErrorKind, Reader, StreamReader};
use pumice_testkit::{Rng, check};

/// Decodes with the type that the header names.
fn decode(stream: &[u8]) -> pumice::Result<Vec<u8>> {
    let reader = Reader::new(stream, DecodeOptions::new().threads(1).max_bytes(1 << 24))?;
    match reader.info().dtype {
        DType::F32 => reader.read::<f32>().map(|array| check::bits(&array.data)),
        _ => reader.read::<f64>().map(|array| check::bits(&array.data)),
    }
}

/// Streams of a few hundred to some thousand bytes, of every layout.
const SMALL: &[&str] = &[
    "one_value_f32",
    "rank_0_f64",
    "empty_f32",
    "attributes_f32",
    "all_nan_f32",
    "raw_chunk_f32",
    "sparse_f64",
    "sessions_default_chunks_f32",
    "balanced_one_value_f64",
    "balanced_tiny_f32",
    "balanced_smooth_1d_f32",
    "shared_smooth_1d_f32",
    "shared_tiny_f64",
    "small_one_value_f64",
    "small_3x3x3_f32",
    "small_tiny_3d_f32",
    "small_smooth_1d_f32",
    "small_sessions_f32",
    "max_smooth_1d_f32",
    "cuszplus_tiny_f32",
    "cuszplus_runs_f64",
    "ceaz_offline_3d_f64",
    "cuszp2_outlier_one_value_f32",
    "cuszp2_outlier_two_fills_f32",
    "ceresz2_one_value_f64",
    "ceresz2_specials_f32",
];

/// How often damage that gets as far as the decoder is tried: about as long for each case, as `small` and above all
/// mixing take longer.
fn n_trials(done: &Done, of_fast: usize) -> usize {
    let n_bytes = done.decoded.len().max(1);
    match done.case.preset {
        "balanced" => (of_fast * 10_000 / n_bytes).clamp(of_fast / 20, of_fast),
        "small" | "cuszplus" | "ceaz" => (of_fast * 2000 / n_bytes).clamp(of_fast / 100, of_fast),
        "max" => (of_fast * 500 / n_bytes).clamp(of_fast / 200, of_fast),
        _ => of_fast,
    }
}

#[test]
fn every_truncation_is_an_error() {
    for name in SMALL {
        let stream = &cases::named(name).stream;
        for n in 0..stream.len() {
            let kind = decode(&stream[..n]).map(drop).expect_err(name).kind();
            assert!(matches!(kind, ErrorKind::Truncated | ErrorKind::Corrupt), "{name}, {n} bytes: {kind:?}");
            assert!(pumice::inspect(&stream[..n]).is_err() || n >= forge::header_bytes(stream));
        }
    }
}

#[test]
fn bytes_behind_the_end_are_an_error() {
    for name in SMALL {
        let mut stream = cases::named(name).stream.clone();
        for n in [1, 3, 19, 20, 100] {
            stream.resize(stream.len() + n, 0);
            assert!(decode(&stream).is_err(), "{name}, {n} bytes more");
        }
    }
}

#[test]
fn flipped_bits_give_an_error_or_the_right_array() {
    let mut rng = Rng::new(1);
    for done in cases::ALL.iter() {
        for _ in 0..1000 {
            let mut damaged = done.stream.clone();
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(done.stream.len());
                damaged[at] ^= 1 << rng.below(8);
            }
            if let Ok(decoded) = decode(&damaged) {
                assert!(decoded == done.decoded && damaged == done.stream, "{}", done.case.name);
            }
        }
    }
}

#[test]
fn damage_of_many_bytes_gives_an_error() {
    let mut rng = Rng::new(2);
    for done in cases::ALL.iter() {
        for _ in 0..40 {
            let mut damaged = done.stream.clone();
            let start = rng.below(damaged.len());
            let end = damaged.len().min(start + 1 + rng.below(200));
            match rng.below(3) {
                0 => damaged[start..end].fill(0),
                1 => damaged[start..end].fill_with(|| rng.bits() as u8),
                _ => drop(damaged.drain(start..end)),
            }
            assert!(damaged == done.stream || decode(&damaged).is_err(), "{}", done.case.name);
        }
    }
}

/// The checksums of `forge` are those of the library: sealing an intact stream changes nothing.
#[test]
fn seals_are_right() {
    for done in cases::ALL.iter() {
        let mut sealed = done.stream.clone();
        forge::seal_header(&mut sealed);
        match is_single_chunk(done) {
            true => sealed = forge::with_payload(&sealed, &done.stream[forge::payload_start(&done.stream)..]),
            false => forge::seal_index(&mut sealed),
        }
        assert!(sealed == done.stream, "{}", done.case.name);
    }
}

fn is_single_chunk(done: &Done) -> bool {
    done.stream[9] & 1 != 0
}

/// Cases of a single chunk that has a payload, with that.
fn payloads() -> impl Iterator<Item = (&'static Done, &'static [u8])> {
    let all = cases::ALL.iter().filter(|done| is_single_chunk(done));
    all.map(|done| (done, &done.stream[forge::payload_start(&done.stream)..]))
        .filter(|(_, payload)| !payload.is_empty())
}

/// Some bytes of `bytes[range]` changed: set, flipped, copied from elsewhere.
fn forged(bytes: &[u8], range: std::ops::Range<usize>, rng: &mut Rng) -> Vec<u8> {
    let mut forged = bytes.to_vec();
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

/// Decodes a stream with this payload; if that succeeds, the result must have the right size.
fn try_payload(done: &Done, payload: &[u8]) {
    if let Ok(decoded) = decode(&forge::with_payload(&done.stream, payload)) {
        assert_eq!(decoded.len(), done.decoded.len(), "{}", done.case.name);
    }
}

#[test]
fn forged_payloads_never_panic() {
    let mut rng = Rng::new(3);
    for (done, payload) in payloads() {
        // Half of the damage goes to the directory and the first tiles, which decide what the rest means.
        let front = 0..payload.len().min(80);
        for i in 0..n_trials(done, 3000) {
            let range = if i % 2 == 0 { front.clone() } else { 0..payload.len() };
            try_payload(done, &forged(payload, range, &mut rng));
        }
    }
}

#[test]
fn every_flipped_bit_of_a_small_payload_does_no_harm() {
    for (done, payload) in payloads().filter(|(done, _)| SMALL.contains(&done.case.name)) {
        for bit in 0..8 * payload.len().min(n_trials(done, 1000)) {
            let mut forged = payload.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            try_payload(done, &forged);
        }
    }
}

#[test]
fn every_truncated_payload_is_an_error() {
    let names =
        ["two_fills_f32", "small_spikes_f32", "small_two_fills_f64", "small_wide_masked_walk_f32", "max_smooth_4d_f32"];
    for (done, payload) in
        payloads().filter(|(done, _)| SMALL.contains(&done.case.name) || names.contains(&done.case.name))
    {
        for n in 0..payload.len() {
            let forged = forge::with_payload(&done.stream, &payload[..n]);
            assert!(decode(&forged).is_err(), "{}, {n} bytes", done.case.name);
        }
    }
}

/// Counts and lengths that no chunk can hold, in front of bits that are all 0 or all 1: the longest and the shortest
/// numbers of the arithmetic coder.
#[test]
fn absurd_counts_are_refused() {
    let lengths: [&[u8]; 5] = [&[0], &[1], &[40], &[0xff, 0xff, 0xff, 0x7f], &[0xff; 9]];
    for name in ["small_smooth_1d_f32", "small_walk_f64", "small_tiny_3d_f32", "small_one_value_f64", "max_walk_f64"] {
        let done = cases::named(name);
        for flags in 0..32 {
            for byte in [0x00, 0x55, 0xaa, 0xff] {
                for length in lengths {
                    for second in lengths {
                        let payload = [&[flags], length, &[byte; 40], second, &[byte; 300]].concat();
                        try_payload(done, &payload);
                    }
                }
            }
        }
    }
}

#[test]
fn forged_headers_never_panic() {
    let mut rng = Rng::new(5);
    for done in cases::ALL.iter() {
        for _ in 0..n_trials(done, 1000) {
            let mut forged = forged(&done.stream, 8..forge::header_bytes(&done.stream) - 4, &mut rng);
            forge::seal_header(&mut forged);
            let _ = decode(&forged);
        }
    }
}

#[test]
fn forged_indices_never_panic() {
    let mut rng = Rng::new(6);
    for done in cases::ALL.iter().filter(|done| !is_single_chunk(done)) {
        let stream = &done.stream;
        for _ in 0..n_trials(done, 2000) {
            let mut forged = forged(stream, forge::index_range(stream), &mut rng);
            forge::seal_index(&mut forged);
            if let Ok(decoded) = decode(&forged) {
                assert!(decoded == done.decoded, "{}", done.case.name);
            }
            let footer = stream.len() - 20..stream.len();
            let forged = self::forged(stream, footer, &mut rng);
            assert!(forged == *stream || decode(&forged).is_err(), "{}", done.case.name);
        }
    }
}

#[test]
fn salvage_of_damaged_streams_never_panics() {
    let mut rng = Rng::new(7);
    for done in cases::ALL.iter() {
        for i in 0..30 {
            // Not the header's size, which says where its checksum is.
            let mut damaged = forged(&done.stream, 8..done.stream.len(), &mut rng);
            if i % 2 == 0 {
                forge::seal_header(&mut damaged);
            }
            damaged.truncate(done.stream.len() - rng.below(done.stream.len()) / 4);
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

/// A stream of three values whose header claims an array without values, of extents whose product is beyond 2^64.
#[test]
fn extents_beside_a_zero_may_be_of_any_size() {
    for preset in pumice::Preset::ALL {
        let config = Config::new(ErrorBound::Abs(0.1)).preset(*preset);
        let mut bytes = pumice::compress(&[0_f32; 0], &[0, 1, 1], &config).unwrap();
        assert_eq!(bytes[12..16], [3, 0, 1, 1], "rank and extents");
        let huge = [&[0xff; 8][..], &[0x7f]].concat();
        bytes[6] += 2 * (huge.len() as u8 - 1);
        bytes.splice(14..16, [&huge[..], &huge[..]].concat());
        forge::seal_header(&mut bytes);
        let _ = pumice::decompress::<f32>(&bytes);
        let _ = pumice::salvage(&bytes[..], DecodeOptions::new());
        let _ =
            StreamReader::new(&bytes[..], DecodeOptions::new()).and_then(|r| r.for_each_chunk::<f32>(|_, _| Ok(())));
    }
}
