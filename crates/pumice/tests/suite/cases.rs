//! The cases of the golden files, compressed and decompressed by the library.

use pumice::metrics::Guarantee;
use pumice::{CodebookTrainer, Config, DecodeOptions, Element, ErrorBound, FileWriter, Reader, Stable};
use pumice_testkit::golden::{self, CASES, Case};
use pumice_testkit::{DType, Float, check};
use std::ops::Range;
use std::sync::LazyLock;

/// A case, its stream and its decoded values.
pub(crate) struct Done {
    pub(crate) case: &'static Case,
    pub(crate) stream: Vec<u8>,
    pub(crate) decoded: Vec<u8>,
}

/// All cases, on one thread.
pub(crate) static ALL: LazyLock<Vec<Done>> = LazyLock::new(|| {
    let done = |case| {
        let (stream, decoded) = round_trip(case, 1);
        Done { case, stream, decoded }
    };
    CASES.iter().map(done).collect()
});

/// The case of this name.
pub(crate) fn named(name: &str) -> &'static Done {
    ALL.iter().find(|done| done.case.name == name).unwrap_or_else(|| panic!("no case {name}"))
}

/// Stream and decoded values of a case. The bound is checked on the way.
pub(crate) fn round_trip(case: &Case, threads: usize) -> (Vec<u8>, Vec<u8>) {
    match case.dtype {
        DType::F32 => round_trip_as::<f32>(case, threads),
        DType::F64 => round_trip_as::<f64>(case, threads),
    }
}

fn round_trip_as<T: Element + Float>(case: &Case, threads: usize) -> (Vec<u8>, Vec<u8>) {
    let mut values = case.field.generate::<T>(case.shape, case.seed);
    let mut config = config(case).threads(threads);
    if let Some(field) = case.trained {
        let other = field.generate::<T>(case.shape, case.seed + 100);
        let mut trainer = CodebookTrainer::new();
        trainer.add(&other, case.shape, &config).unwrap();
        config = config.codebook(&trainer.finish().unwrap());
    }
    let mut stream = match case.sessions {
        [] => pumice::compress(&values, case.shape, &config).unwrap(),
        sessions => in_sessions(&values, case.shape, sessions, &config, threads),
    };
    for (seed, ranges) in (case.seed + 1..).zip(case.rewrites) {
        let inside: Vec<Range<usize>> = ranges.iter().map(|(start, end)| *start..*end).collect();
        let others = check::cut(&case.field.generate::<T>(case.shape, seed), case.shape, &inside);
        let mut again = pumice::decompress::<T>(&stream).unwrap().data;
        check::paste(&others, &mut again, case.shape, &inside);
        check::paste(&others, &mut values, case.shape, &inside);
        stream = pumice::update(&stream, &again, &config).unwrap();
    }
    let reader = Reader::new(&stream[..], DecodeOptions::new().threads(threads)).unwrap();
    let restored = reader.read::<T>().unwrap();
    assert_eq!(restored.shape, case.shape, "{}", case.name);
    let info = reader.info();
    if case.bin.is_empty() && info.abs_bound.is_finite() {
        check::verify(&values, &restored.data, info.abs_bound, &info.fills)
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
    let guarantee = Guarantee::of(info);
    for id in 0..reader.n_chunks() {
        let chunk = reader.chunk_region(id).unwrap();
        let [a, b] = [&values, &restored.data].map(|data| check::cut(data, case.shape, &chunk));
        assert!(guarantee.compare(&chunk, &a, &b).unwrap().bound_kept(), "{}", case.name);
    }
    (stream, check::bits(&restored.data))
}

fn config(case: &Case) -> Config {
    let bound = |bound| match bound {
        golden::Bound::Abs(e) => ErrorBound::Abs(e),
        golden::Bound::Rel(e) => ErrorBound::Rel(e),
        golden::Bound::PwRel(e) => ErrorBound::PwRel(e),
        golden::Bound::Lossless => ErrorBound::Lossless,
        golden::Bound::Psnr(db) => ErrorBound::Psnr(db),
        golden::Bound::L2(norm) => ErrorBound::L2(norm),
        golden::Bound::Ratio(ratio) => ErrorBound::Ratio(ratio),
    };
    let mut config = Config::new(bound(case.bound)).bin(case.bin);
    config = case.also.iter().fold(config, |config, also| config.and(bound(*also)));
    for (ranges, inside) in case.regions {
        let ranges: Vec<_> = ranges.iter().map(|(start, end)| *start..*end).collect();
        config = config.region(&ranges, bound(*inside));
    }
    config = config.preset(case.preset.parse().expect("the preset exists"));
    config = config.stable(if case.stable { Stable::On } else { Stable::Off });
    if let Some(fill) = case.fill {
        config = config.fills(&[fill]);
    }
    if let Some((min, max)) = case.range {
        config = config.range(min, max);
    }
    if !case.chunk.is_empty() {
        config = config.chunk_shape(case.chunk);
    }
    case.attributes.iter().fold(config, |config, (key, value)| config.attribute(*key, *value))
}

/// The file that writing sessions of these rows leave.
fn in_sessions<T: Element>(
    values: &[T],
    shape: &[usize],
    sessions: &[usize],
    config: &Config,
    threads: usize,
) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.pum");
    let row: usize = shape[1..].iter().product();
    let mut rest = values;
    for (i, rows) in sessions.iter().enumerate() {
        let mut writer = match i {
            0 => FileWriter::create(&path, &shape[1..], config).unwrap(),
            _ => FileWriter::append(&path, threads).unwrap(),
        };
        let (session, after) = rest.split_at(rows * row);
        writer.write_rows(session).unwrap();
        writer.finish().unwrap();
        rest = after;
    }
    assert!(rest.is_empty());
    std::fs::read(&path).unwrap()
}
