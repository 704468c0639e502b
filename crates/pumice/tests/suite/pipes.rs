//! `StreamReader`: streams that can be read only once give the same values as files, and every kind of damage that a
//! file shows.

use std::io::{self, Read};

use pumice::{Config, DType, DecodeOptions, Element, ErrorBound, ErrorKind, FileWriter, Info, Reader, StreamReader};
use pumice_testkit::check;
use pumice_testkit::fields::Field;
use pumice_testkit::golden::Folder;

use crate::memory;

/// Bytes that come in small parts, as from a pipe.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(self.0.len()).min(1000);
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

fn open(bytes: &[u8], options: DecodeOptions) -> pumice::Result<StreamReader<Trickle<'_>>> {
    StreamReader::new(Trickle(bytes), options)
}

fn read<T: Element>(bytes: &[u8], threads: usize) -> pumice::Result<(Vec<T>, Info)> {
    let mut values = Vec::new();
    let info = open(bytes, DecodeOptions::new().threads(threads))?.for_each_rows::<T>(|rows| {
        values.extend_from_slice(rows);
        Ok(())
    })?;
    Ok((values, info))
}

/// Rows of chunks that do not span them, in three sessions whose last chunks are cut.
fn segmented() -> (Vec<u8>, Vec<f32>) {
    let values = Field::Turbulence.generate(&[200, 90, 40], 5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pum");
    let config = Config::new(ErrorBound::Lossless).chunk_shape(&[32, 40, 40]).attribute("units", "K");
    let mut writer = FileWriter::<f32>::create(&path, &[90, 40], &config).unwrap();
    writer.write_rows(&values[..3600 * 70]).unwrap();
    writer.finish().unwrap();
    for rows in [70..71, 71..200] {
        let mut writer = FileWriter::<f32>::append(&path, 2).unwrap();
        writer.write_rows(&values[3600 * rows.start..3600 * rows.end]).unwrap();
        writer.finish().unwrap();
    }
    (std::fs::read(&path).unwrap(), values)
}

#[test]
fn golden_files_give_the_same_values_and_metadata() {
    for file in Folder::v1().load() {
        let expected = pumice::inspect(&file.bytes).unwrap();
        let info = match expected.dtype {
            DType::F32 => {
                let (values, info) = read::<f32>(&file.bytes, 2).unwrap();
                let decoded = pumice::decompress::<f32>(&file.bytes).unwrap().data;
                assert!(check::bits(&values) == check::bits(&decoded), "{}", file.name);
                info
            }
            _ => {
                let (values, info) = read::<f64>(&file.bytes, 2).unwrap();
                let decoded = pumice::decompress::<f64>(&file.bytes).unwrap().data;
                assert!(check::bits(&values) == check::bits(&decoded), "{}", file.name);
                info
            }
        };
        // As text, since a fill value may be NaN.
        assert_eq!(format!("{info:?}"), format!("{expected:?}"), "{}", file.name);
        let skipped = open(&file.bytes, DecodeOptions::new()).unwrap().skip().unwrap();
        assert_eq!(format!("{skipped:?}"), format!("{expected:?}"), "{}", file.name);
    }
}

#[test]
fn chunks_and_rows_come_in_order_on_any_number_of_threads() {
    let (bytes, values) = segmented();
    for threads in [1, 2, 3] {
        let (restored, info) = read::<f32>(&bytes, threads).unwrap();
        assert!(restored == values);
        assert_eq!(info.segments, [70, 1, 129]);
        let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
        let mut id = 0;
        let stream = open(&bytes, DecodeOptions::new().threads(threads)).unwrap();
        assert_eq!((stream.shape(), stream.row_shape()), (None, Some(&[90, 40][..])));
        let chunks = stream.for_each_chunk::<f32>(|region, chunk| {
            assert_eq!(region, reader.chunk_region(id)?);
            assert!(chunk == reader.read_chunk::<f32>(id)?.data);
            id += 1;
            Ok(())
        });
        assert_eq!(chunks.unwrap().n_chunks, id);
    }
    assert_eq!(read::<f64>(&bytes, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// What was passed on before the error is right all the same.
#[test]
fn streams_that_end_early_are_truncated() {
    let (bytes, values) = segmented();
    let mut cuts: Vec<usize> = (0..bytes.len()).step_by(bytes.len() / 40).collect();
    cuts.extend((bytes.len() - 120..bytes.len()).step_by(7));
    for cut in cuts {
        let mut n = 0;
        let result = open(&bytes[..cut], DecodeOptions::new().threads(2)).and_then(|stream| {
            stream.for_each_rows::<f32>(|rows| {
                assert!(rows == &values[n..n + rows.len()]);
                n += rows.len();
                Ok(())
            })
        });
        let kind = result.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Truncated | ErrorKind::Corrupt), "{cut}: {kind:?}");
        assert!(cut > bytes.len() - 150 || kind == ErrorKind::Truncated, "{cut}: {kind:?}");
        assert!(open(&bytes[..cut], DecodeOptions::new()).and_then(StreamReader::skip).is_err(), "{cut}");
    }
    let single = pumice::compress(&values, &[200, 90, 40], &Config::new(ErrorBound::Lossless)).unwrap();
    assert_eq!(read::<f32>(&single, 2).unwrap().0, values);
    assert_eq!(read::<f32>(&single[..single.len() - 1], 2).unwrap_err().kind(), ErrorKind::Truncated);
}

#[test]
fn damage_and_bytes_after_the_end_are_found() {
    let (bytes, values) = segmented();
    for at in (0..bytes.len()).step_by(bytes.len() / 60).chain(bytes.len() - 100..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        // Of the header, bytes 6 to 8 hold its size.
        if let Ok((restored, _)) = read::<f32>(&damaged, 2) {
            panic!("byte {at}: no error, values {}", if restored == values { "right" } else { "wrong" });
        }
    }
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(read::<f32>(&longer, 2).unwrap_err().kind(), ErrorKind::Corrupt);
    let single = pumice::compress(&values[..100], &[100], &Config::new(ErrorBound::Lossless)).unwrap();
    assert_eq!(read::<f32>(&[&single[..], b"x"].concat(), 1).unwrap_err().kind(), ErrorKind::Corrupt);
    // Frames in another order: each is intact.
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let header_bytes = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    assert!(reader.n_chunks() > 2);
    let second = bytes[header_bytes + 4..].windows(4).position(|w| w == b"CHNK").unwrap() + header_bytes + 4;
    let without_first = [&bytes[..header_bytes], &bytes[second..]].concat();
    let error = read::<f32>(&without_first, 1).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("does not follow"), "{error}");
}

#[test]
fn memory_stays_within_the_limit() {
    let (bytes, _) = segmented();
    let chunk_bytes = 32 * 40 * 40 * 4;
    let read = |max_bytes| {
        let options = DecodeOptions::new().threads(3).max_bytes(max_bytes);
        open(&bytes, options).unwrap().for_each_chunk::<f32>(|_, _| Ok(()))
    };
    assert_eq!(read(chunk_bytes - 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
    // One chunk and its frame at a time.
    assert!(read(2 * chunk_bytes + 1000).is_ok());
    // A frame that claims to be large; memory must not be taken before bytes arrive.
    let values = vec![1f32; 100];
    let small = pumice::compress(&values, &[100], &Config::new(ErrorBound::Lossless)).unwrap();
    let at = usize::from(u16::from_le_bytes([small[6], small[7]])) + 6;
    let mut forged = small[..at].to_vec();
    forged.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    forged.extend([0; 8]);
    let error =
        StreamReader::new((&forged[..]).chain(io::repeat(0)), DecodeOptions::new()).unwrap().skip().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::LimitExceeded | ErrorKind::Corrupt), "{error}");
}

/// A lossless stream whose rows are cut into chunks of these columns, and their values.
fn columns(rows: usize, n_columns: usize, chunk_columns: usize) -> Vec<u8> {
    let mut rng = pumice_testkit::Rng::new(1);
    let values: Vec<f32> = (0..rows * n_columns).map(|_| f32::from_bits(rng.bits() as u32)).collect();
    let config = Config::new(ErrorBound::Lossless).chunk_shape(&[rows, chunk_columns]).threads(1);
    pumice::compress(&values, &[rows, n_columns], &config).unwrap()
}

/// Buffers that a large chunk left behind count while small ones are decoded, and so does the band of rows.
#[test]
fn buffers_that_are_kept_count_towards_the_limit() {
    const MIB: usize = 1 << 20;
    // Chunks of 12 MiB and of 3 MiB, in turn; their frames are as large.
    let bytes = columns(512, 6144 + 1536, 6144);
    let twice = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pum");
        std::fs::write(&path, &bytes).unwrap();
        let values = pumice::decompress::<f32>(&bytes).unwrap().data;
        let mut writer = FileWriter::append(&path, 1).unwrap();
        writer.write_rows(&values).unwrap();
        writer.write_rows(&values).unwrap();
        writer.finish().unwrap();
        std::fs::read(&path).unwrap()
    };
    let options = |mib: usize| DecodeOptions::new().threads(1).max_bytes((mib * MIB) as u64);
    // 24 MiB for a large one with its frame, 6 for a small one; 16 do not count.
    let (peak, result) = memory::peak(|| open(&twice, options(15)).unwrap().for_each_chunk::<f32>(|_, _| Ok(())));
    result.unwrap();
    assert!(peak < 32 * MIB, "{peak} bytes");
    // The band takes 15 MiB.
    let read = |mib| memory::peak(|| open(&twice, options(mib)).unwrap().for_each_rows::<f32>(|_| Ok(())));
    let (peak, result) = read(24);
    result.unwrap();
    assert!(peak < 41 * MIB, "{peak} bytes");
    let (peak, result) = read(20);
    assert_eq!(result.unwrap_err().kind(), ErrorKind::LimitExceeded);
    assert!(peak < 37 * MIB, "{peak} bytes");
}

/// Sizes are added up before anything bounds them.
#[test]
fn claims_of_any_size_are_refused() {
    for config in [Config::new(ErrorBound::Lossless), Config::new(ErrorBound::Abs(0.1))] {
        let stream = pumice::compress(&[1f32; 100], &[100], &config).unwrap();
        for payload_bytes in [1 << 20, 1 << 40, 1 << 62, u64::MAX - 100, u64::MAX - 20, u64::MAX] {
            let mut forged = stream[..usize::from(u16::from_le_bytes([stream[6], stream[7]])) + 6].to_vec();
            let mut rest = payload_bytes;
            while rest >= 0x80 {
                forged.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            forged.push(rest as u8);
            forged.extend([0; 100]);
            for max_bytes in [1 << 20, 16 << 30] {
                let stream = open(&forged, DecodeOptions::new().threads(1).max_bytes(max_bytes)).unwrap();
                let kind = stream.for_each_chunk::<f32>(|_, _| Ok(())).unwrap_err().kind();
                assert!(
                    matches!(kind, ErrorKind::LimitExceeded | ErrorKind::Corrupt | ErrorKind::Truncated),
                    "{payload_bytes}: {kind:?}"
                );
            }
        }
    }
}
