//! Rows that arrive over time, files that appear complete or not at all, and recovery of damaged files.

use pumice::{
    AtomicFile, AtomicFolder, Config, DecodeOptions, ErrorBound, ErrorKind, FileWriter, Preset, Reader, Writer,
};
use pumice_testkit::check;
use pumice_testkit::fields::Field;
use std::io::Write;
use std::path::Path;

const SHAPE: [usize; 2] = [250, 101];

/// Chunks of a bit more than the least size allowed.
fn config() -> Config {
    Config::new(ErrorBound::Abs(1e-3)).chunk_shape(&[80, 101])
}

/// The same for every preset.
fn configs() -> impl Iterator<Item = Config> {
    Preset::ALL.iter().map(|preset| config().preset(*preset))
}

/// Everything written in one go.
fn written(config: &Config) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &SHAPE[1..], config).unwrap();
    writer.write_rows(&values()).unwrap();
    writer.finish().unwrap().0
}

fn values() -> Vec<f32> {
    Field::Turbulence.generate(&SHAPE, 3)
}

fn append(path: &Path, rows: &[f32]) {
    let mut writer = FileWriter::append(path, 2).unwrap();
    writer.write_rows(rows).unwrap();
    writer.finish().unwrap();
}

#[test]
fn batches_of_any_size_give_the_same_bytes() {
    for config in configs() {
        let stream = |batch: usize, threads: usize| {
            let mut writer = Writer::new(Vec::new(), &SHAPE[1..], &config.clone().threads(threads)).unwrap();
            values().chunks(batch * SHAPE[1]).for_each(|rows| writer.write_rows(rows).unwrap());
            writer.finish().unwrap()
        };
        let (expected, summary) = stream(250, 1);
        check::verify(&values(), &pumice::decompress::<f32>(&expected).unwrap().data, 1e-3, &[]).unwrap();
        assert_eq!((summary.compressed_bytes, summary.n_chunks), (expected.len() as u64, 4));
        for (batch, threads) in [(1, 1), (7, 3), (80, 1), (81, 3), (249, 2)] {
            let (found, its_summary) = stream(batch, threads);
            assert!(found == expected, "{batch} rows on {threads} threads");
            // Fill values may be NaN, which is not equal to itself.
            assert_eq!(format!("{its_summary:?}"), format!("{summary:?}"));
        }
    }
}

#[test]
fn a_writer_keeps_the_bound_of_the_one_shot_call() {
    for config in configs() {
        let streamed = written(&config);
        let whole = pumice::compress(&values(), &SHAPE, &config).unwrap();
        let (a, b) = (pumice::inspect(&streamed).unwrap(), pumice::inspect(&whole).unwrap());
        assert_eq!((a.shape, a.chunk_shape, a.abs_bound), (b.shape, b.chunk_shape, b.abs_bound));
        // The step is chosen without knowledge of the values, which costs little.
        assert!(streamed.len() < whole.len() + whole.len() / 50, "{} and {} bytes", streamed.len(), whole.len());
    }
}

#[test]
fn rows_that_are_not_whole_are_refused() {
    let mut writer = Writer::<f32, _>::new(Vec::new(), &[10], &Config::new(ErrorBound::Lossless)).unwrap();
    assert_eq!(writer.write_rows(&[0.0; 15]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    writer.write_rows(&[0.0; 20]).unwrap();
    assert_eq!(pumice::decompress::<f32>(&writer.finish().unwrap().0).unwrap().shape, [2, 10]);
}

#[test]
fn appended_rows_follow_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pum");
    let values = values();
    for config in configs() {
        let mut writer = FileWriter::create(&path, &SHAPE[1..], &config).unwrap();
        writer.write_rows(&values[..90 * 101]).unwrap();
        writer.finish().unwrap();
        append(&path, &values[90 * 101..91 * 101]);
        append(&path, &values[91 * 101..]);
        let reader = Reader::open(&path, DecodeOptions::new()).unwrap();
        assert_eq!(reader.info().segments, [90, 1, 159]);
        let whole = reader.read::<f32>().unwrap();
        assert_eq!(whole.shape, SHAPE);
        check::verify(&values, &whole.data, 1e-3, &[]).unwrap();
        let region = [85..100, 3..99];
        let part = reader.read_region::<f32>(&region).unwrap();
        assert_eq!(part.data, check::cut(&whole.data, &SHAPE, &region));
    }
}

#[test]
fn a_single_chunk_can_be_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pum");
    let values = values();
    let config = Config::new(ErrorBound::Rel(1e-3)).attribute("name", "u");
    std::fs::write(&path, pumice::compress(&values[..50 * 101], &[50, 101], &config).unwrap()).unwrap();
    let bound = Reader::open(&path, DecodeOptions::new()).unwrap().info().abs_bound;
    append(&path, &values[50 * 101..]);
    let reader = Reader::open(&path, DecodeOptions::new()).unwrap();
    assert_eq!((reader.info().abs_bound, &reader.info().shape[..]), (bound, &SHAPE[..]));
    assert_eq!(reader.info().attributes, [("name".to_owned(), "u".to_owned())]);
    check::verify(&values, &reader.read::<f32>().unwrap().data, bound, &[]).unwrap();
}

#[test]
fn a_file_is_the_old_one_until_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pum");
    let old = pumice::compress(&values(), &SHAPE, &config()).unwrap();
    std::fs::write(&path, &old).unwrap();
    let mut writers = [
        FileWriter::<f32>::create(&path, &SHAPE[1..], &config()).unwrap(),
        FileWriter::<f32>::append(&path, 1).unwrap(),
    ];
    writers.iter_mut().for_each(|writer| writer.write_rows(&values()).unwrap());
    assert!(std::fs::read(&path).unwrap() == old);
    drop(writers);
    assert!(std::fs::read(&path).unwrap() == old);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "temporary files are removed");
}

#[test]
fn an_atomic_file_appears_on_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for (text, before) in [("old", None), ("new", Some("old"))] {
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
        file.commit().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(AtomicFile::create(folder.path().join("no/such/folder")).unwrap_err().kind(), ErrorKind::Io);
}

fn names_in(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn replace(path: &std::path::Path, text: &str) -> pumice::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(text.as_bytes())?;
    file.commit()
}

/// As `cp` and the redirection of a shell do.
#[cfg(unix)]
#[test]
fn links_are_followed_even_to_files_that_do_not_exist() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("data")).unwrap();
    symlink("data/a", at("link")).unwrap();
    symlink("link", at("link of a link")).unwrap();
    symlink("round", at("round")).unwrap();
    symlink("no folder/a", at("nowhere")).unwrap();
    for (name, text) in [("link", "first"), ("link", "second"), ("link of a link", "third")] {
        replace(&at(name), text).unwrap();
        assert_eq!(std::fs::read_to_string(at("data/a")).unwrap(), text);
        assert!(at(name).is_symlink());
    }
    assert_eq!(names_in(&at("data")), ["a"]);
    assert!(replace(&at("round"), "").unwrap_err().to_string().contains("links"));
    assert_eq!(replace(&at("nowhere"), "").unwrap_err().kind(), ErrorKind::Io);
    assert!(at("nowhere").is_symlink());
}

#[cfg(unix)]
#[test]
fn permissions_are_those_of_the_old_file_or_of_any_new_one() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
    std::fs::write(at("any"), b"").unwrap();
    replace(&at("new"), "new").unwrap();
    assert_eq!(mode("new"), mode("any"));
    std::fs::set_permissions(at("any"), std::fs::Permissions::from_mode(0o640)).unwrap();
    replace(&at("any"), "new").unwrap();
    assert_eq!(mode("any"), 0o640);
    // A file that nobody may write to; only the superuser may all the same.
    std::fs::set_permissions(at("any"), std::fs::Permissions::from_mode(0o440)).unwrap();
    let is_allowed = std::fs::File::options().write(true).open(at("any")).is_ok();
    assert_eq!(replace(&at("any"), "newer").is_ok(), is_allowed);
    assert_eq!(std::fs::read_to_string(at("any")).unwrap(), if is_allowed { "newer" } else { "new" });
}

/// The target may be created, or the working directory changed, while the file is written.
#[test]
fn a_target_that_appears_meanwhile_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    for by_name in [false, true] {
        let created = if by_name { AtomicFile::create_named(&path) } else { AtomicFile::create(&path) };
        let mut file = created.unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(std::fs::read(file.temporary_path()).unwrap(), b"new");
        std::fs::write(&path, b"meanwhile").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(folder.path()), ["a"]);
        std::fs::remove_file(&path).unwrap();
    }
}

/// So that nothing is left of it if the process is killed.
#[cfg(target_os = "linux")]
#[test]
fn an_unfinished_file_has_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = AtomicFile::create(folder.path().join("a")).unwrap();
    file.write_all(b"text").unwrap();
    assert!(names_in(folder.path()).is_empty(), "the file system of {} has no O_TMPFILE?", folder.path().display());
    let named = AtomicFile::create_named(folder.path().join("a")).unwrap();
    assert_eq!(names_in(folder.path()).len(), 1);
    drop((file, named));
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn a_folder_appears_on_commit_and_replaces_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for name in ["first", "second"] {
        let store = AtomicFolder::create(&path).unwrap();
        std::fs::write(store.temporary_path().join(name), name).unwrap();
        store.commit().unwrap();
        assert_eq!(names_in(&path), [name]);
        assert_eq!(names_in(folder.path()), ["store"]);
    }
    drop(AtomicFolder::create(&path).unwrap());
    assert_eq!(names_in(&path), ["second"]);
    std::fs::write(folder.path().join("file"), b"").unwrap();
    assert_eq!(AtomicFolder::create(folder.path().join("file")).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Sequential writes and writes at offsets do not affect each other's position.
#[test]
fn writing_at_an_offset_leaves_the_position() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result");
    let mut file = AtomicFile::create(&path).unwrap();
    file.write_all(b"ab").unwrap();
    file.write_all_at(b"fgh", 5).unwrap();
    file.write_all(b"c").unwrap();
    file.write_all_at(b"de", 3).unwrap();
    file.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"abcdefgh");
}

/// A process that is killed in the middle of a write leaves the old file.
#[test]
fn a_killed_writer_leaves_the_old_file() {
    const TARGET: &str = "PUMICE_TEST_KILLED_TARGET";
    if let Some(path) = std::env::var_os(TARGET) {
        let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
        loop {
            writer.write_rows(&values()).unwrap();
            println!("wrote");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pum");
    let old = pumice::compress(&values(), &SHAPE, &config()).unwrap();
    std::fs::write(&path, &old).unwrap();
    let mut child = pumice_testkit::process::this_program()
        .args(["--exact", "streaming::a_killed_writer_leaves_the_old_file", "--nocapture"])
        .env(TARGET, &path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.map(Result::unwrap).filter(|line| line.contains("wrote")).take(3).count(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(std::fs::read(&path).unwrap() == old);
}

#[test]
fn salvage_finds_all_chunks_but_the_damaged_one() {
    for mut bytes in configs().map(|config| written(&config)) {
        let whole = pumice::decompress::<f32>(&bytes).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x20;
        assert_eq!(pumice::decompress::<f32>(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
        // With the index, and without.
        for bytes in [&bytes[..], &bytes[..bytes.len() - 30]] {
            let salvage = pumice::salvage(bytes, DecodeOptions::new()).unwrap();
            assert_eq!(salvage.info().shape, SHAPE);
            assert_eq!(salvage.intact().len(), 3);
            let lost: Vec<_> = salvage.lost().collect();
            let [(_, region)] = &lost[..] else { panic!("{lost:?}") };
            let array = salvage.read(f32::NAN).unwrap();
            for (i, (x, y)) in whole.data.iter().zip(&array.data).enumerate() {
                let is_lost = region[0].contains(&(i / SHAPE[1]));
                assert!(if is_lost { y.is_nan() } else { x == y }, "value {i}");
            }
        }
    }
}

/// Wherever a file is cut off, salvage finds all that remains, and nothing else.
#[test]
fn salvage_of_every_prefix() {
    for (preset, step) in Preset::ALL.iter().map(|preset| (*preset, if *preset == Preset::Max { 41 } else { 7 })) {
        let (bytes, _) = {
            let config = Config::new(ErrorBound::Abs(1e-2)).preset(preset).chunk_shape(&[8000]);
            let mut writer = Writer::new(Vec::new(), &[], &config).unwrap();
            writer.write_rows(&Field::Smooth.generate::<f32>(&[20_000], 1)).unwrap();
            writer.finish().unwrap()
        };
        let whole = pumice::decompress::<f32>(&bytes).unwrap();
        let mut most = 0;
        for n in (0..bytes.len()).step_by(step).chain([bytes.len() - 1]) {
            let Ok(salvage) = pumice::salvage(&bytes[..n], DecodeOptions::new().threads(1)) else { continue };
            assert!(salvage.intact().len() >= most, "{preset:?}, {n} bytes");
            most = salvage.intact().len();
            salvage
                .for_each_chunk::<f32>(|region, values| {
                    assert_eq!(values, &whole.data[region[0].clone()], "{preset:?}, {n} bytes");
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(most, 3);
    }
}

/// Windows of a stream that changes: each is coded by the codewords that suit it, and decodes alone.
#[cfg(feature = "unstable-research")]
#[test]
fn ceaz_adapts_to_a_stream_as_it_goes() {
    const WINDOW: usize = 40_000;
    let mut rng = pumice_testkit::Rng::new(5);
    // As the offline codewords have it, then rougher and rougher, then as before: in steps of the quantiser.
    let widths = [10.0, 15.0, 150.0, 10.0];
    let mut values = Vec::new();
    for width in widths {
        values.extend((0..WINDOW).map(|_| (width * (rng.signed() + rng.signed() + rng.signed())) as f32));
    }
    let config = Config::new(ErrorBound::Abs(0.5)).preset(Preset::Ceaz).chunk_shape(&[WINDOW]);
    let mut writer = Writer::new(Vec::new(), &[], &config).unwrap();
    // Rows as they arrive, in pieces that have nothing to do with windows.
    values.chunks(7001).try_for_each(|rows| writer.write_rows(rows)).unwrap();
    let (bytes, summary) = writer.finish().unwrap();
    assert_eq!(summary.n_chunks, 4);
    assert_eq!(bytes, {
        let mut again = Writer::new(Vec::new(), &[], &config.clone().threads(3)).unwrap();
        again.write_rows(&values).unwrap();
        again.finish().unwrap().0
    });
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let mut n_bytes = Vec::new();
    for id in (0..4).rev() {
        let window = reader.read_chunk::<f32>(id).unwrap();
        let original = &values[id as usize * WINDOW..][..WINDOW];
        assert!(original.iter().zip(&window.data).all(|(x, y)| (x - y).abs() <= 0.5));
        let alone = pumice::research::paper_sizes(original, &[WINDOW], 0.5 / f64::from(range(original))).unwrap();
        n_bytes.push((alone.codewords, alone.codewords_bytes));
    }
    // Kept, updated, rebuilt, kept.
    let decisions: Vec<usize> = n_bytes.iter().rev().map(|(decision, _)| *decision).collect();
    assert_eq!(decisions, [0, 1, 2, 0]);
    // Where there are new ones, they pay.
    assert!(n_bytes.iter().all(|(decision, bytes)| *decision == 0 || bytes[*decision] < bytes[0]));
}

#[cfg(feature = "unstable-research")]
fn range(values: &[f32]) -> f32 {
    values.iter().copied().fold(f32::MIN, f32::max) - values.iter().copied().fold(f32::MAX, f32::min)
}
