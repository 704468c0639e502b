//! The bytes depend on the input alone: not on the number of threads, nor on the instruction set, nor on the day.

use crate::cases;
use pumice::{Bound, Config, DecodeOptions, Reader};
use pumice_testkit::fields::Field;
use pumice_testkit::golden::{CASES, Case};
use pumice_testkit::{check, sha256_hex};
use std::process::Command;

/// For each golden case a line with the hashes of its stream and of its decoded values.
fn digest(threads: usize) -> String {
    let line = |case: &Case| {
        let (stream, decoded) = cases::round_trip(case, threads);
        format!("{} {} {}\n", case.name, sha256_hex(&stream), sha256_hex(&decoded))
    };
    CASES.iter().map(line).collect()
}

/// Fails with the names of the cases that differ.
fn assert_same(digest: &str, expected: &str) {
    let differ = digest.lines().zip(expected.lines()).filter(|(a, b)| a != b);
    let names: Vec<_> = differ.map(|(a, _)| a.split(' ').next().unwrap_or(a)).collect();
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(digest.len(), expected.len());
}

/// Runs itself once for each instruction set. One that the machine lacks is answered by the best that it has.
#[test]
fn same_bytes_for_every_instruction_set() {
    const EXPECTED: &str = "PUMICE_TEST_EXPECTED_DIGEST";
    if let Ok(expected) = std::env::var(EXPECTED) {
        assert_same(&digest(1), &expected);
        return;
    }
    let expected = digest(1);
    for isa in ["portable", "avx2", "avx512"] {
        let output = Command::new(std::env::current_exe().unwrap())
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
fn same_bytes_for_golden_cases_on_many_threads() {
    let expected = digest(1);
    for threads in [0, 3] {
        assert_same(&digest(threads), &expected);
    }
}

/// Many chunks, so that there is work for all threads, in boxes that are not one run of memory.
#[test]
fn same_bytes_for_1_to_8_threads() {
    for (field, chunk) in
        [(Field::Turbulence, [20, 30, 64]), (Field::TwoFills, [9, 64, 64]), (Field::AnyBits, [25, 20, 20])]
    {
        let values = field.generate::<f32>(&[50, 64, 64], 5);
        let config = Config::new(Bound::Rel(1e-3)).chunk_shape(&chunk);
        let expected = pumice::compress(&values, &[50, 64, 64], &config.clone().threads(1)).unwrap();
        let decoded = pumice::decompress::<f32>(&expected).unwrap();
        for threads in 1..=8 {
            let bytes = pumice::compress(&values, &[50, 64, 64], &config.clone().threads(threads)).unwrap();
            assert!(bytes == expected, "{field:?} on {threads} threads");
            let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(threads)).unwrap();
            let restored = reader.read::<f32>().unwrap();
            assert!(check::bits(&restored.data) == check::bits(&decoded.data), "{field:?} on {threads} threads");
        }
    }
}
