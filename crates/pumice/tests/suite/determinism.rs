//! The bytes depend on the input alone: not on the number of threads, the instruction set or the time.

use crate::cases;
use pumice::{Config, DecodeOptions, ErrorBound, Preset, Reader};
use pumice_testkit::fields::Field;
use pumice_testkit::golden::{CASES, Case};
use pumice_testkit::{check, process, sha256_hex};

/// Arrays whose chunks are divided among threads: bands of several streams, slabs of a lattice, spans of blocks.
const LARGE: [(Preset, Field, &[usize]); 10] = [
    (Preset::Small, Field::Turbulence, &[300, 300, 10]),
    (Preset::Small, Field::FillAndNan, &[10, 300, 300]),
    (Preset::Small, Field::Smooth, &[600_000]),
    (Preset::Small, Field::Walk, &[600_000]),
    (Preset::Small, Field::Sparse, &[3, 1000, 800]),
    (Preset::Max, Field::Spikes, &[100, 100, 10]),
    (Preset::Cuszp2Outlier, Field::Turbulence, &[300, 300, 10]),
    (Preset::Cuszp2Plain, Field::Walk, &[600_000]),
    (Preset::Ceresz2, Field::FillAndNan, &[10, 300, 300]),
    (Preset::Ceresz2, Field::Walk, &[600_000]),
];

/// For each golden case and each large array a line with the hashes of its stream and of its decoded values.
fn digest(threads: usize) -> String {
    let line = |name: &str, (stream, decoded): (Vec<u8>, Vec<u8>)| {
        format!("{name} {} {}\n", sha256_hex(&stream), sha256_hex(&decoded))
    };
    let of_case = |case: &Case| line(case.name, cases::round_trip(case, threads));
    let of_large = |(preset, field, shape): &(Preset, Field, &[usize])| {
        let name = format!("{}-{field:?}-{shape:?}", preset.name()).replace(' ', "");
        line(&name, one_chunk(*preset, *field, shape, threads))
    };
    CASES.iter().map(of_case).chain(LARGE.iter().map(of_large)).collect()
}

/// Stream and decoded values of an array as a single chunk.
fn one_chunk(preset: Preset, field: Field, shape: &[usize], threads: usize) -> (Vec<u8>, Vec<u8>) {
    let values = field.generate::<f32>(shape, 5);
    let config = Config::new(ErrorBound::Rel(1e-3)).preset(preset).chunk_shape(shape).threads(threads);
    let bytes = pumice::compress(&values, shape, &config).unwrap();
    let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(threads)).unwrap();
    assert_eq!(reader.n_chunks(), 1);
    let restored = reader.read::<f32>().unwrap();
    check::verify(&values, &restored.data, reader.info().abs_bound, &reader.info().fills).unwrap();
    let decoded = check::bits(&restored.data);
    (bytes, decoded)
}

/// Fails with the names of the cases that differ.
fn assert_same(digest: &str, expected: &str) {
    let differ = digest.lines().zip(expected.lines()).filter(|(a, b)| a != b);
    let names: Vec<_> = differ.map(|(a, _)| a.split(' ').next().unwrap_or(a)).collect();
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(digest.len(), expected.len());
}

/// Runs itself once for each instruction set. For a set that the machine lacks, the library uses the best one it has.
#[test]
fn same_bytes_for_every_instruction_set() {
    const EXPECTED: &str = "PUMICE_TEST_EXPECTED_DIGEST";
    if let Some(path) = std::env::var_os(EXPECTED) {
        assert_same(&digest(1), &std::fs::read_to_string(path).unwrap());
        return;
    }
    // In a file: Windows limits the size of an environment variable.
    let folder = tempfile::tempdir().unwrap();
    let expected = folder.path().join("digest");
    std::fs::write(&expected, digest(1)).unwrap();
    for isa in ["portable", "avx2", "avx512"] {
        let output = process::this_program()
            .args(["--exact", "determinism::same_bytes_for_every_instruction_set"])
            .env("PUMICE_ISA", isa)
            .env(EXPECTED, &expected)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{isa}: {text}");
    }
}

#[test]
fn same_bytes_for_any_number_of_threads() {
    let expected = digest(1);
    for threads in [0, 2, 3] {
        assert_same(&digest(threads), &expected);
    }
}

/// Many chunks, so that there is work for all threads, in boxes that are not one run of memory.
#[test]
fn same_bytes_for_many_chunks_on_1_to_8_threads() {
    for (field, chunk) in
        [(Field::Turbulence, [20, 30, 64]), (Field::TwoFills, [9, 64, 64]), (Field::AnyBits, [25, 20, 20])]
    {
        let values = field.generate::<f32>(&[50, 64, 64], 5);
        for preset in Preset::ALL {
            let config = Config::new(ErrorBound::Rel(1e-3)).preset(*preset).chunk_shape(&chunk);
            let expected = pumice::compress(&values, &[50, 64, 64], &config.clone().threads(1)).unwrap();
            let decoded = pumice::decompress::<f32>(&expected).unwrap();
            let numbers = if *preset == Preset::Max { vec![3] } else { (2..=8).collect() };
            for threads in numbers {
                let bytes = pumice::compress(&values, &[50, 64, 64], &config.clone().threads(threads)).unwrap();
                assert!(bytes == expected, "{field:?}, {preset:?} on {threads} threads");
                let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(threads)).unwrap();
                let restored = reader.read::<f32>().unwrap();
                assert!(check::bits(&restored.data) == check::bits(&decoded.data), "{field:?} on {threads} threads");
            }
        }
    }
}
