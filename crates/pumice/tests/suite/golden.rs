//! Golden files decode to the recorded bits, hostile ones fail as recorded, and the encoder writes the bytes it wrote
//! before. `UPDATE_GOLDEN=1 cargo test -p pumice --test suite golden` writes files that are absent, and the
//! encoder's hashes.

use crate::{cases, forge};
use pumice::{DType, ErrorKind};
use pumice_testkit::golden::{self, CASES, Folder};
use pumice_testkit::{check, sha256_hex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Writes absent files and the encoder's hashes, once, if `UPDATE_GOLDEN` is set.
static UPDATED: LazyLock<()> = LazyLock::new(|| {
    if golden::is_update() {
        for done in cases::ALL.iter() {
            Folder::v1().add(done.case.name, &done.stream, golden::entry(done.case, &done.decoded));
        }
        golden::write_encoder_hashes(&hashes());
    }
});

fn hashes() -> BTreeMap<String, String> {
    cases::ALL.iter().map(|done| (done.case.name.to_owned(), sha256_hex(&done.stream))).collect()
}

#[test]
fn golden_files_decode_to_the_recorded_bits() {
    LazyLock::force(&UPDATED);
    let files = Folder::v1().load();
    assert!(files.len() >= CASES.len());
    for file in files {
        let info = pumice::inspect(&file.bytes).unwrap();
        let decoded = match info.dtype {
            DType::F32 => check::bits(&pumice::decompress::<f32>(&file.bytes).unwrap().data),
            _ => check::bits(&pumice::decompress::<f64>(&file.bytes).unwrap().data),
        };
        assert_eq!(sha256_hex(&decoded), file.entry["sha256"], "{}", file.name);
        assert_eq!(format!("{:?}", info.shape), file.entry["shape"], "{}", file.name);
        assert_eq!(info.dtype.name(), file.entry["dtype"], "{}", file.name);
    }
}

#[test]
fn the_encoder_writes_the_same_bytes_as_before() {
    LazyLock::force(&UPDATED);
    let now = hashes();
    let before = golden::encoder_hashes();
    let changed: Vec<&String> = now.keys().filter(|name| now.get(*name) != before.get(*name)).collect();
    assert!(
        changed.is_empty(),
        "changed: {changed:?}; if that is meant, run with UPDATE_GOLDEN=1 and say so in CHANGELOG"
    );
    assert_eq!(now.len(), before.len());
}

#[test]
fn cases_cover_every_feature_of_the_codecs() {
    let seen: BTreeSet<String> = cases::ALL.iter().flat_map(|done| features(done.case.shape, &done.stream)).collect();
    let of_fast = [
        "quantised",
        "exact",
        "raw tile",
        "empty tile",
        "wide base",
        "sparse",
        "no planes",
        "mask 0",
        "mask 1",
        "escapes",
        "x",
        "y",
        "z",
        "second difference",
        "lag",
        "no difference",
        "raw chunk",
        "chunked",
        "partial supergroup",
    ];
    let mut all: Vec<String> = of_fast.map(String::from).to_vec();
    for what in ["", ", fills", ", exact values", ", fills, exact values"] {
        for predictor in ["lattice", "interpolated", "interpolated integers"] {
            all.extend(["rANS", "mixed"].map(|coder| format!("{predictor}, {coder}{what}")));
        }
    }
    for predictor in ["lattice", "interpolated", "interpolated integers"] {
        all.extend(["", ", fills"].map(|what| format!("{predictor}, rANS{what}, wide")));
    }
    let layers = ["layer 8, logarithms", "layer 8, signs", "layer 8, exact values", "layer 9, boxes", "layer 9, bins"];
    all.push("layer 10, background".into());
    all.push("codebook".into());
    all.extend(layers.map(String::from));
    let missing: Vec<_> = all.iter().filter(|feature| !seen.contains(*feature)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The features that a stream uses.
fn features(shape: &[usize], stream: &[u8]) -> Vec<String> {
    const SINGLE_CHUNK: u8 = 1;
    if stream[9] & SINGLE_CHUNK == 0 {
        return vec!["chunked".into()];
    }
    let payload = &stream[forge::payload_start(stream)..];
    match stream[forge::header_bytes(stream) + 4] {
        0 => vec!["raw chunk".into()],
        1 => features_of_fast(shape, payload).into_iter().map(String::from).collect(),
        2 => vec![features_of_small(payload)],
        layer @ 8..=10 => features_of_layer(layer, payload[0]),
        11 => vec!["codebook".into()],
        _ => Vec::new(),
    }
}

/// By docs/format.md, section 14.
fn features_of_layer(layer: u8, flags: u8) -> Vec<String> {
    let names = match layer {
        8 => ["logarithms", "signs", "negative", "second fills", "only second fills", "exact values"].as_slice(),
        10 => &["background"],
        _ => &["boxes", "bins", "fills", "exact values"],
    };
    let is_set = |(bit, _): &(usize, &&str)| flags >> bit & 1 != 0;
    names.iter().enumerate().filter(is_set).map(|(_, name)| format!("layer {layer}, {name}")).collect()
}

/// By docs/format.md, section 7.
fn features_of_small(payload: &[u8]) -> String {
    let predictor = match payload[0] & 0x21 {
        0 => "lattice",
        1 => "interpolated",
        _ => "interpolated integers",
    };
    let names = [[", rANS", ", mixed"], ["", ", fills"], ["", ", exact values"], ["", ", wide"]];
    let names = names.iter().enumerate().map(|(i, names)| names[usize::from(payload[0] >> (i + 1) & 1)]);
    std::iter::once(predictor).chain(names).collect()
}

/// By docs/format.md, section 6.
fn features_of_fast(shape: &[usize], payload: &[u8]) -> Vec<&'static str> {
    let predictor = payload[0];
    let bits = ["x", "y", "z", "second difference"];
    let mut features: Vec<&str> = (0..4).filter(|bit| predictor >> bit & 1 != 0).map(|bit| bits[bit]).collect();
    features.extend((predictor >> 4 != 0).then_some("lag"));
    features.extend((predictor == 0).then_some("no difference"));
    // Tiles per box, axis by axis: x takes the trailing axes, then y, then z; the rest are a batch.
    let mut rest = shape;
    let mut n_tiles = 1;
    for axis in 0..3 {
        let (before, merged) = rest.split_at(rest.len() - usize::from(payload[1 + axis]));
        let extent: usize = merged.iter().product();
        n_tiles *= extent.div_ceil(1 << payload[4 + axis]);
        rest = before;
        let is_partial = axis == 0 && payload[2] == 0 && !extent.is_multiple_of(64);
        features.extend(is_partial.then_some("partial supergroup"));
    }
    n_tiles *= rest.iter().product::<usize>();
    let words_at = 8 + 4 * n_tiles.div_ceil(32);
    let mut body_at = (words_at + 2 * n_tiles).next_multiple_of(4);
    for words in payload[words_at..words_at + 2 * n_tiles].as_chunks().0 {
        let body_bytes = 4 * usize::from(u16::from_le_bytes(*words));
        match payload[body_at..body_at + body_bytes].first() {
            None => features.push("empty tile"),
            Some(flags) => {
                features.push(["quantised", "exact", "raw tile", "invalid"][usize::from(flags & 3)]);
                let bits = ["wide base", "sparse", "no planes", "mask 0", "mask 1", "escapes"];
                features.extend((0..6).filter(|bit| flags >> (2 + bit) & 1 != 0).map(|bit| bits[bit]));
            }
        }
        body_at += body_bytes;
    }
    assert_eq!(body_at, payload.len());
    features
}

/// Hostile streams: name, bytes and the error that they must give.
fn hostile() -> Vec<(&'static str, Vec<u8>, ErrorKind)> {
    use ErrorKind::{Corrupt, LimitExceeded, Truncated, Unsupported};
    let stream = |name: &str| cases::named(name).stream.clone();
    let (single, chunked) = (stream("attributes_f32"), stream("chunked_3d_f32"));
    let header = forge::header_bytes(&single);
    let in_header = |at: usize, value: u8| {
        let mut bytes = single.clone();
        bytes[at] = value;
        forge::seal_header(&mut bytes);
        forge::seal_frame(&mut bytes);
        bytes
    };
    let in_payload = |name: &str, at: usize, value: u8| {
        let mut bytes = stream(name);
        let start = forge::payload_start(&bytes);
        bytes[start + at] = value;
        forge::seal_frame(&mut bytes);
        bytes
    };
    let damaged = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 0x10;
        bytes
    };
    let huge = {
        // The last extent, 900 in two bytes, becomes 2^41 in six.
        let mut bytes = single.clone();
        assert_eq!(bytes[13..17], [1, 1, 0x84, 7]);
        bytes.splice(15..17, [0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
        bytes[6] += 4;
        forge::seal_header(&mut bytes);
        bytes
    };
    let unknown_codec = {
        let mut bytes = single.clone();
        bytes[header + 4] = 9;
        forge::seal_frame(&mut bytes);
        bytes
    };
    let small_in_lossless = {
        let mut bytes = forge::with_payload(&stream("small_lossless_f32"), &[2, 0, 0]);
        let codec_at = forge::header_bytes(&bytes) + 4;
        bytes[codec_at] = 2;
        forge::seal_frame(&mut bytes);
        bytes
    };
    let in_index = |at: usize, value: u8| {
        let mut bytes = chunked.clone();
        let start = forge::index_range(&bytes).start;
        bytes[start + at] = value;
        forge::seal_index(&mut bytes);
        bytes
    };
    let other_copy = {
        // The preset, in the copy of the header at the end of the index.
        let mut bytes = chunked.clone();
        let (header, index) = (forge::header_bytes(&bytes), forge::index_range(&bytes));
        assert_eq!(bytes[index.end - header..index.end], chunked[..header]);
        bytes[index.end - header + 10] ^= 3;
        forge::seal_index(&mut bytes);
        bytes
    };
    // A single chunk that is coded with the codebook of its stream.
    let is_shared = |done: &&cases::Done| {
        let is_single = done.case.chunk.is_empty() && done.case.sessions.is_empty();
        is_single && done.case.trained.is_some() && done.stream[forge::header_bytes(&done.stream) + 4] == 11
    };
    let shared_case = cases::ALL.iter().find(is_shared).expect("a case has such a chunk");
    let shared = &shared_case.stream;
    let book_at = shared.windows(4).position(|bytes| bytes == b"PUMB").expect("the stream has a codebook");
    let in_codebook = |at: usize| {
        let mut bytes = damaged(shared, book_at + at);
        forge::seal_header(&mut bytes);
        bytes
    };
    let without_codebook = {
        let mut bytes = shared.clone();
        let header = forge::header_bytes(&bytes);
        bytes[9] &= !32;
        // Its size comes before it.
        let start = book_at - if header - 4 - book_at < 128 { 1 } else { 2 };
        bytes.drain(start..header - 4);
        bytes[6..8].copy_from_slice(&(start as u16 + 4).to_le_bytes());
        forge::seal_header(&mut bytes);
        bytes
    };
    // Bodies of the one tile of a small stream start after 8 bytes of parameters, an anchor, a size and padding.
    const BODY: usize = 16;
    vec![
        ("no_bytes", Vec::new(), Truncated),
        ("cut_in_magic", single[..3].to_vec(), Truncated),
        ("cut_in_header", single[..header - 1].to_vec(), Truncated),
        ("cut_in_frame_header", single[..header + 7].to_vec(), Truncated),
        ("cut_in_payload", single[..single.len() - 1].to_vec(), Truncated),
        ("cut_before_index", chunked[..forge::index_range(&chunked).start].to_vec(), Truncated),
        ("cut_in_footer", chunked[..chunked.len() - 1].to_vec(), Truncated),
        ("wrong_magic", damaged(&single, 0), Corrupt),
        ("wrong_header_checksum", damaged(&single, header - 1), Corrupt),
        ("wrong_frame_checksum", damaged(&single, single.len() - 1), Corrupt),
        ("wrong_index_checksum", damaged(&chunked, chunked.len() - 21), Corrupt),
        ("bytes_after_frame", [&single[..], &[0]].concat(), Corrupt),
        ("newer_reader_needed", in_header(5, 2), Unsupported),
        ("unknown_dtype", in_header(8, 3), Corrupt),
        ("unknown_flag", in_header(9, 0x81), Corrupt),
        ("unknown_preset", in_header(10, 0), Unsupported),
        ("unknown_bound_kind", in_header(11, 7), Corrupt),
        ("rank_9", in_header(12, 9), Corrupt),
        ("wrong_shape", in_header(13, 2), Corrupt),
        ("huge_shape", huge, LimitExceeded),
        ("unknown_codec", unknown_codec, Corrupt),
        ("no_segments", in_index(4, 0), Corrupt),
        ("wrong_number_of_chunks", in_index(6, 1), Corrupt),
        ("wrong_header_copy", other_copy, Corrupt),
        ("unknown_predictor", in_payload("attributes_f32", 0, 0x18), Corrupt),
        ("too_many_axes", in_payload("attributes_f32", 1, 9), Corrupt),
        ("tile_too_large", in_payload("attributes_f32", 4, 13), Corrupt),
        ("reserved_byte", in_payload("attributes_f32", 7, 1), Corrupt),
        ("wrong_anchor", in_payload("attributes_f32", 8, 1), Corrupt),
        ("wrong_tile_size", in_payload("attributes_f32", 12, 1), Corrupt),
        ("directory_padding", in_payload("attributes_f32", 14, 1), Corrupt),
        ("tile_kind_3", in_payload("attributes_f32", BODY, 3), Corrupt),
        ("mask_without_fill", in_payload("attributes_f32", BODY, 0x20), Corrupt),
        ("quantised_in_lossless", in_payload("constant_lossless_f64", BODY, 0x10), Corrupt),
        ("small_unknown_flag", in_payload("small_smooth_1d_f32", 0, 0x21), Corrupt),
        ("small_wide_and_mixed", in_payload("small_tiny_f64", 0, 0x12), Corrupt),
        ("small_fills_without_fill", in_payload("small_tiny_f64", 0, 0x0e), Corrupt),
        ("small_in_lossless", small_in_lossless, Corrupt),
        ("codebook_wrong_magic", in_codebook(0), Corrupt),
        ("codebook_newer", in_codebook(4), Unsupported),
        ("codebook_damaged", in_codebook(60), Corrupt),
        ("codebook_missing", without_codebook, Corrupt),
        (
            "codebook_of_another_stream",
            in_payload(shared_case.case.name, 0, !shared[forge::payload_start(shared)]),
            Corrupt,
        ),
    ]
}

#[test]
fn hostile_files_fail_as_recorded() {
    LazyLock::force(&UPDATED);
    if golden::is_update() {
        for (name, bytes, kind) in hostile() {
            Folder::errors().add(name, &bytes, [("kind", format!("{kind:?}"))]);
        }
    }
    let files = Folder::errors().load();
    assert!(files.len() >= hostile().len());
    for file in files {
        let error = pumice::decompress::<f32>(&file.bytes).map(drop).expect_err(&file.name);
        // A stream of f64 fails before its type is compared.
        let error = match error.kind() {
            ErrorKind::InvalidArgument => pumice::decompress::<f64>(&file.bytes).map(drop).expect_err(&file.name),
            _ => error,
        };
        assert_eq!(format!("{:?}", error.kind()), file.entry["kind"], "{}: {error}", file.name);
    }
}
