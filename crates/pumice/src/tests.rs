//! Whole streams, there and back: every way to write, every way to read, and damage of every kind.

use super::*;
use crate::exec::Workers;

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32 * 0.5 - 7.0).collect()
}

fn lossless() -> Config {
    Config::new(ErrorBound::Lossless).threads(1)
}

/// Chunks far smaller than a plan would allow, so that small arrays have odd grids.
fn plan(shape: &[usize], chunk_shape: &[usize], config: &Config) -> plan::Plan<f32> {
    let known = plan::Stats { range: Some((-7.0, 1e4)), fills: Vec::new() };
    let known = (!shape.contains(&0)).then_some(&known);
    plan::Plan { chunk_shape: chunk_shape.to_vec(), ..plan::Plan::new(config, shape, known).unwrap() }
}

fn compress_tiny(data: &[f32], shape: &[usize], chunk_shape: &[usize], config: &Config, threads: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let source = SliceSource::new(data, shape).unwrap();
    let workers = Workers::new(threads).unwrap();
    compress::append_planned(&source, &plan(shape, chunk_shape, config), &workers, &mut out).unwrap();
    out
}

/// [11, 7, 5] in chunks of [3, 4, 2], written in three sessions.
fn segmented(path: &std::path::Path) -> (Vec<u8>, Vec<f32>) {
    let data = ramp(11 * 35);
    let plan = plan(&[0, 7, 5], &[3, 4, 2], &lossless().attribute("name", "ramp"));
    let file = AtomicFile::create(path).unwrap();
    let mut writer = Writer::resume(file, plan, 2, None).unwrap();
    writer.write_rows(&data[..35]).unwrap();
    writer.write_rows(&data[35..4 * 35]).unwrap();
    writer.finish().unwrap().0.commit().unwrap();
    for rows in [4..5, 5..11] {
        let mut writer = FileWriter::append(path, 2).unwrap();
        writer.write_rows(&data[rows.start * 35..rows.end * 35]).unwrap();
        writer.finish().unwrap();
    }
    (std::fs::read(path).unwrap(), data)
}

fn region_of(data: &[f32], shape: [usize; 3], region: &[std::ops::Range<usize>]) -> Vec<f32> {
    let mut values = Vec::new();
    for z in region[0].clone() {
        for y in region[1].clone() {
            let row = (z * shape[1] + y) * shape[2];
            values.extend_from_slice(&data[row + region[2].start..row + region[2].end]);
        }
    }
    values
}

#[test]
fn whole_arrays_round_trip() {
    for shape in [&[][..], &[1], &[0], &[4, 0, 3], &[130], &[70, 65], &[5, 6, 7, 2], &[1, 1, 200], &[3, 700, 800]] {
        let data = ramp(grid::n_values(shape));
        for config in [lossless(), lossless().threads(2)] {
            let mut bytes = vec![1, 2, 3];
            let summary = compress_into(&data, shape, &config, &mut bytes).unwrap();
            let restored = decompress::<f32>(&bytes).unwrap();
            assert_eq!((restored.shape.as_slice(), &restored.data), (shape, &data));
            let mut out = vec![0f32; data.len()];
            decompress_into(&bytes, &mut out, &DecodeOptions::new().threads(1)).unwrap();
            assert_eq!(out, data);
            let info = inspect(&bytes).unwrap();
            assert_eq!(info.raw_bytes, summary.raw_bytes);
            assert_eq!((info.compressed_bytes, info.n_chunks), (bytes.len() as u64, summary.n_chunks));
            let mut streamed = Vec::new();
            let source = SliceSource::new(&data, shape).unwrap();
            assert_eq!(compress_from(&source, &config, &mut streamed, &|_| ()).unwrap(), summary);
            assert_eq!(streamed, bytes);
        }
        let tiny = compress_tiny(&data, shape, &vec![7; shape.len()], &lossless(), 2);
        assert!(decompress::<f32>(&tiny).unwrap().data == data, "{shape:?}");
    }
}

#[test]
fn threads_do_not_change_bytes() {
    let data = ramp(40 * 33 * 9);
    for (preset, chunk_shape) in Preset::ALL.iter().flat_map(|p| [(*p, [8, 33, 9]), (*p, [7, 10, 4])]) {
        let config = Config::new(ErrorBound::Abs(0.01)).preset(preset);
        let one = compress_tiny(&data, &[40, 33, 9], &chunk_shape, &config, 1);
        let mut restored = vec![0f32; data.len()];
        decompress_into(&one, &mut restored, &DecodeOptions::new().threads(1)).unwrap();
        for threads in [0, 2, 3, 4] {
            assert_eq!(compress_tiny(&data, &[40, 33, 9], &chunk_shape, &config, threads), one);
            let mut out = vec![0f32; data.len()];
            decompress_into(&one, &mut out, &DecodeOptions::new().threads(threads)).unwrap();
            assert_eq!(out, restored);
            for batch in [1, 5, 17, 40] {
                let plan = plan::Plan { shape: vec![0, 33, 9], ..plan(&[40, 33, 9], &chunk_shape, &config) };
                let mut writer = Writer::resume(Vec::new(), plan, threads, None).unwrap();
                data.chunks(batch * 33 * 9).for_each(|rows| writer.write_rows(rows).unwrap());
                assert_eq!(writer.finish().unwrap().0, one);
            }
        }
    }
}

#[test]
fn regions_equal_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, data) = segmented(&dir.path().join("a.pum"));
    for threads in [1, 3] {
        let reader = Reader::new(&bytes[..], DecodeOptions::new().threads(threads)).unwrap();
        assert_eq!(reader.info().segments, [4, 1, 6]);
        assert_eq!(reader.read::<f32>().unwrap().data, data);
        for region in
            [[0..11, 0..7, 0..5], [2..6, 3..5, 1..2], [4..5, 0..7, 0..5], [3..11, 6..7, 0..4], [2..9, 2..2, 0..5]]
        {
            let part = reader.read_region::<f32>(&region).unwrap();
            assert_eq!(part.data, region_of(&data, [11, 7, 5], &region), "{region:?}");
            assert_eq!(part.shape, region.iter().map(|r| r.len()).collect::<Vec<_>>());
        }
        let mut next = 0;
        reader
            .for_each_chunk::<f32>(0..reader.n_chunks(), |region, values| {
                assert_eq!(region, reader.chunk_region(next)?);
                assert_eq!(values, region_of(&data, [11, 7, 5], region));
                assert_eq!(values, reader.read_chunk::<f32>(next)?.data);
                next += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(next, reader.n_chunks());
        let reversed = std::ops::Range { start: 3, end: 2 };
        for bad in [vec![0..11, 0..7], vec![0..12, 0..7, 0..5], vec![0..11, reversed, 0..5]] {
            assert_eq!(reader.read_region::<f32>(&bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(reader.read::<f64>().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(reader.chunk_region(u64::MAX).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let file = Reader::open(dir.path().join("a.pum"), DecodeOptions::new()).unwrap();
    assert_eq!(file.read::<f32>().unwrap().data, data);
    // As text, for one of the fill values is NaN.
    assert_eq!(format!("{:?}", file.info()), format!("{:?}", inspect(&bytes).unwrap()));
}

#[test]
fn file_source_writes_the_same_bytes() {
    let data = ramp(40 * 33 * 90);
    let config = lossless().chunk_shape(&[20, 15, 45]).threads(2);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut raw = vec![0; 17];
    f32::extend_le_bytes(&data, &mut raw);
    std::io::Write::write_all(&mut file, &raw).unwrap();
    let source = FileSource::new(file.into_file(), 17, &[40, 33, 90], DType::F32).unwrap();
    let mut out = Vec::new();
    let most = std::sync::atomic::AtomicU64::new(0);
    let progress = |n| _ = most.fetch_max(n, std::sync::atomic::Ordering::Relaxed);
    compress_from::<f32, _>(&source, &config, &mut out, &progress).unwrap();
    assert_eq!(out, compress(&data, &[40, 33, 90], &config).unwrap());
    assert_eq!(most.into_inner(), 40 * 33 * 90 * 4);
    assert!(compress_from::<f64, _>(&source, &config, &mut out, &|_| ()).is_err());
}

#[test]
fn append_to_single_chunks_and_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pum");
    let data = ramp(300 * 4);
    std::fs::write(&path, compress(&data[..40], &[10, 4], &lossless()).unwrap()).unwrap();
    assert!(FileWriter::<f64>::append(&path, 1).is_err());
    let before = std::fs::read(&path).unwrap();
    FileWriter::<f32>::append(&path, 1).unwrap().finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
    writer.write_rows(&data[40..]).unwrap();
    assert!(writer.write_rows(&data[..3]).is_err());
    assert_eq!(writer.finish().unwrap().raw_bytes, 300 * 16);
    assert_eq!(Reader::open(&path, DecodeOptions::new()).unwrap().read::<f32>().unwrap().data, data);
    // a file without rows, appended to
    FileWriter::<f32>::create(&path, &[4], &lossless()).unwrap().finish().unwrap();
    assert_eq!(Reader::open(&path, DecodeOptions::new()).unwrap().info().shape, [0, 4]);
    let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
    writer.write_rows(&data).unwrap();
    drop(writer);
    assert_eq!(Reader::open(&path, DecodeOptions::new()).unwrap().info().shape, [0, 4]);
    let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
    writer.write_rows(&data).unwrap();
    writer.finish().unwrap();
    assert_eq!(Reader::open(&path, DecodeOptions::new()).unwrap().read::<f32>().unwrap().data, data);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn every_truncation_and_addition_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (chunked, _) = segmented(&dir.path().join("a.pum"));
    let single = compress(&ramp(20), &[4, 5], &lossless()).unwrap();
    let empty = compress(&ramp(0), &[0, 5], &lossless()).unwrap();
    for bytes in [chunked, single, empty] {
        for n in 0..bytes.len() {
            assert!(decompress::<f32>(&bytes[..n]).is_err(), "first {n} bytes");
            assert!(inspect(&bytes[..n]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decompress::<f32>(&longer).is_err());
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x41;
            assert!(decompress::<f32>(&damaged).is_err(), "byte {i}");
            let _ = salvage(&damaged[..], DecodeOptions::new().threads(1));
        }
    }
}

#[test]
fn limits_come_before_memory() {
    let bytes = compress_tiny(&ramp(1000), &[1000], &[100], &lossless(), 1);
    let small = |n| Reader::new(&bytes[..], DecodeOptions::new().threads(2).max_bytes(n)).unwrap();
    assert_eq!(small(3999).read::<f32>().unwrap_err().kind(), ErrorKind::LimitExceeded);
    let mut out = [0f32; 100];
    small(400).read_region_into(std::slice::from_ref(&(50..150)), &mut out).unwrap();
    assert_eq!(out, ramp(150)[50..]);
    small(400).for_each_chunk::<f32>(0..10, |_, _| Ok(())).unwrap();
    assert_eq!(small(399).for_each_chunk::<f32>(0..10, |_, _| Ok(())).unwrap_err().kind(), ErrorKind::LimitExceeded);
    // A header that promises far more than its frame can hold.
    let mut forged = Vec::new();
    let plan = plan(&[1 << 40], &[1 << 40], &lossless());
    container::header::Header::new(&plan, true).write_to(&mut forged).unwrap();
    let identity = container::frame::Identity { chunk_id: 0, first_row: 0, rows: 1 << 40, single_chunk: true };
    let header = forged.len();
    use codec::CodecId;
    let of_papers = [CodecId::Cuszp2, CodecId::Cuszplus, CodecId::Ceaz, CodecId::Ceresz2];
    for codec in [CodecId::Fast, CodecId::Small, CodecId::Balanced].into_iter().chain(of_papers) {
        forged.truncate(header);
        container::frame::FrameHeader::new(codec, identity, &[0; 16]).write_to(&mut forged);
        forged.extend_from_slice(&[0; 16]);
        let options = DecodeOptions::new().max_bytes(u64::MAX);
        let error = Reader::new(&forged[..], options).unwrap().read::<f32>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn streaming_needs_a_known_bound() {
    assert_eq!(
        Writer::<f32, _>::new(Vec::new(), &[3], &Config::new(ErrorBound::Rel(1e-3))).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let (bytes, summary) = Writer::<f32, _>::new(Vec::new(), &[3], &lossless()).unwrap().finish().unwrap();
    assert_eq!(summary.n_chunks, 1);
    assert_eq!(decompress::<f32>(&bytes).unwrap().shape, [0, 3]);
}

#[test]
fn a_failed_write_cannot_be_finished() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::resume(Full(100), plan(&[0, 100], &[2, 100], &lossless()), 1, None).unwrap();
    assert_eq!(writer.write_rows(&ramp(1000)).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(writer.write_rows(&ramp(100)).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(writer.finish().is_err());
}

#[test]
fn salvage_without_one_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let (mut bytes, data) = segmented(&dir.path().join("a.pum"));
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let (span, lost, n) = (reader.layout.frames[7], reader.chunk_region(7).unwrap(), reader.n_chunks());
    drop(reader);
    bytes[(span.offset + span.frame_bytes) as usize - 1] ^= 1;
    assert_eq!(decompress::<f32>(&bytes).unwrap_err().kind(), ErrorKind::Corrupt);
    let check = |bytes: &[u8]| {
        let salvage = salvage(bytes, DecodeOptions::new()).unwrap();
        assert_eq!(salvage.info().shape, [11, 7, 5]);
        assert!(salvage.lost().eq([(7, lost.clone())]));
        assert_eq!(salvage.intact().len() as u64, n - 1);
        let array = salvage.read(f32::NAN).unwrap();
        for (i, (x, y)) in data.iter().zip(&array.data).enumerate() {
            let inside = lost[0].contains(&(i / 35)) && lost[1].contains(&(i / 5 % 7)) && lost[2].contains(&(i % 5));
            assert!(if inside { y.is_nan() } else { x == y }, "value {i}");
        }
        let mut n_chunks = 0;
        salvage
            .for_each_chunk::<f32>(|_, _| {
                n_chunks += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(n_chunks, n - 1);
    };
    check(&bytes);
    // Bytes lost in the middle: the index is found by its marker, the frames by theirs.
    bytes.drain((span.offset + 20) as usize..(span.offset + 25) as usize);
    check(&bytes);
    // And without the footer.
    bytes.truncate(bytes.len() - 20);
    check(&bytes);
}

#[test]
fn salvage_without_index() {
    let data = ramp(10 * 6 * 4);
    let bytes = compress_tiny(&data, &[10, 6, 4], &[3, 6, 2], &lossless(), 1);
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let frames = reader.layout.frames.clone();
    // All frames but no index: the clipped last chunks tell the number of rows.
    let end = |id: usize| (frames[id].offset + frames[id].frame_bytes) as usize;
    let salvaged = salvage(&bytes[..end(7) + 5], DecodeOptions::new()).unwrap();
    assert_eq!(salvaged.info().shape, [10, 6, 4]);
    assert_eq!(salvaged.read(0f32).unwrap().data, data);
    // A cut within chunk 5.
    let salvaged = salvage(&bytes[..end(5) - 1], DecodeOptions::new().threads(1)).unwrap();
    assert_eq!(salvaged.info().shape, [9, 6, 4]);
    assert!(salvaged.lost().eq([(5, vec![6..9, 0..6, 2..4])]));
    let array = salvaged.read(-1f32).unwrap();
    assert_eq!(array.data[..6 * 24], data[..6 * 24]);
    assert_eq!(array.data[8 * 24 + 23], -1.0);
    // Nothing left, and a damaged header.
    assert!(salvage(&bytes[..frames[0].offset as usize + 9], DecodeOptions::new()).is_err());
    assert!(salvage(&bytes[1..end(7)], DecodeOptions::new()).is_err());
}

/// 1000 chunks without index and footer.
fn without_index() -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    let data: Vec<f32> = (0..64_000).map(|i| (i as f32 * 0.01).sin()).collect();
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast);
    let mut bytes = compress_tiny(&data, &[64_000], &[64], &config, 1);
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let spans = reader.layout.frames.iter();
    let spans: Vec<_> = spans.map(|f| f.offset as usize..(f.offset + f.frame_bytes) as usize).collect();
    bytes.truncate(spans[999].end);
    (bytes, spans)
}

#[test]
fn salvage_saves_every_intact_chunk() {
    let (bytes, spans) = without_index();
    let mut random = 1_u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % n
    };
    for n_damaged in [1, 15, 100, 500, 990] {
        let mut bytes = bytes.clone();
        let mut is_damaged = [false; 1000];
        for _ in 0..n_damaged {
            let id = below(1000);
            is_damaged[id] = true;
            let at = spans[id].start + below(spans[id].len());
            bytes[at] ^= 1 + below(255) as u8;
        }
        let salvaged = salvage(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
        let intact: Vec<u64> = (0..1000).filter(|id| !is_damaged[*id as usize]).collect();
        // Two changes of the same byte may cancel out.
        assert!(intact.iter().all(|id| salvaged.intact().contains(id)), "{n_damaged} damaged chunks");
        assert!(salvaged.intact().len() <= intact.len() + 2, "{n_damaged} damaged chunks");
    }
    // A burst, and bytes lost in the middle.
    let mut burst = bytes.clone();
    burst[spans[300].start + 7..spans[400].start - 3].fill(0x43);
    let salvaged = salvage(&burst[..], DecodeOptions::new().threads(1)).unwrap();
    assert_eq!(salvaged.intact().len(), 900);
    let mut shorter = bytes.clone();
    shorter.drain(spans[10].start + 9..spans[20].start + 5);
    let salvaged = salvage(&shorter[..], DecodeOptions::new().threads(1)).unwrap();
    assert_eq!(salvaged.intact().len(), 989);
}

#[test]
fn salvage_of_forged_markers_reads_little() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    /// Counts the bytes that are read.
    struct Counted<'a>(&'a [u8], &'a AtomicUsize);
    impl ReadAt for Counted<'_> {
        fn len(&self) -> Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
            self.1.fetch_add(out.len(), Ordering::Relaxed);
            out.copy_from_slice(&self.0[offset as usize..][..out.len()]);
            Ok(())
        }
    }
    let (bytes, spans) = without_index();
    let frame_header = &bytes[spans[0].start..][..12];
    // A header, and an index with a copy of it but a wrong checksum.
    let header = &bytes[..spans[0].start];
    let index = [b"INDH\x01\x01\x01\x20", header, &[0; 28], b"PUMF"].concat();
    for marker in [
        &b"CHNK"[..],
        b"INDX",
        b"INDX\x01\x01\x7f",
        b"INDH",
        b"PUM\x1a",
        b"PUM\x1a\x01\x01\xff\xff",
        frame_header,
        header,
        &index,
    ] {
        let mut forged = bytes.clone();
        while forged.len() < 1 << 20 {
            forged.extend_from_slice(marker);
        }
        let n_read = AtomicUsize::new(0);
        let salvaged = salvage(Counted(&forged, &n_read), DecodeOptions::new().threads(1)).unwrap();
        assert_eq!(salvaged.intact().len(), 1000);
        let n_read = n_read.into_inner();
        assert!(n_read < 40 << 20, "{n_read} bytes read");
    }
}

/// 1000 chunks, their values, and where the frames are.
fn thousand_chunks(phase: f32) -> (Vec<u8>, Vec<f32>, Vec<std::ops::Range<usize>>) {
    let data: Vec<f32> = (0..64_000).map(|i| (i as f32 * 0.01 + phase).sin()).collect();
    // So that headers differ.
    let config = Config::new(ErrorBound::Abs(1e-3 + f64::from(phase) * 1e-3)).preset(Preset::Fast);
    let bytes = compress_tiny(&data, &[64_000], &[64], &config, 1);
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let spans = reader.layout.frames.iter();
    let spans = spans.map(|f| f.offset as usize..(f.offset + f.frame_bytes) as usize).collect();
    let restored = reader.read().unwrap().data;
    (bytes, restored, spans)
}

/// Salvages a stream of [`thousand_chunks`], checks its values, and returns the ids of what is lost and whether the end
/// is known.
fn lost_of(file: &[u8], stream: usize, restored: &[f32]) -> (Vec<u64>, bool) {
    let salvaged = salvage_stream(file, stream, DecodeOptions::new().threads(1)).unwrap();
    let array = salvaged.read(f32::NAN).unwrap();
    for (i, (x, y)) in array.data.iter().zip(restored).enumerate() {
        let is_lost = salvaged.intact().binary_search(&(i as u64 / 64)).is_err();
        assert!(if is_lost { x.is_nan() } else { x == y }, "value {i}");
    }
    let is_lost = |id: &u64| salvaged.intact().binary_search(id).is_err();
    ((0..1000).filter(is_lost).collect(), salvaged.end_is_known())
}

#[test]
fn salvage_without_the_beginning() {
    let (bytes, restored, spans) = thousand_chunks(0.0);
    for n_lost in [1, spans[0].start - 1, spans[0].start, spans[0].start + 9, spans[700].start - 1, spans[999].start] {
        let n_chunks = spans.iter().filter(|span| span.start < n_lost).count() as u64;
        let mut overwritten = bytes.clone();
        overwritten[..n_lost].fill(0);
        for damaged in [&bytes[n_lost..], &overwritten] {
            assert_eq!(lost_of(damaged, 0, &restored), ((0..n_chunks).collect(), true), "{n_lost} bytes");
        }
        let error = decompress::<f32>(&overwritten).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("pumice recover"), "{error}");
    }
    // The index is damaged, but not the copy of the header in it.
    let mut damaged = bytes[spans[1].start..].to_vec();
    let index_at = damaged.len() - (bytes.len() - spans[999].end);
    damaged[index_at + 20] ^= 1;
    assert_eq!(lost_of(&damaged, 0, &restored), (vec![0], false));
    // Neither is left.
    let error = salvage(&damaged[..index_at + 50], DecodeOptions::new()).unwrap_err().to_string();
    assert!(error.contains("999 intact chunks"), "{error}");
}

#[test]
fn salvage_of_bytes_that_moved() {
    let (bytes, restored, spans) = thousand_chunks(0.0);
    // Bytes are lost in chunk 10, and as many are added in chunk 20: the index is where it was.
    let mut moved = bytes.clone();
    let lost = moved.drain(spans[10].start + 9..spans[10].start + 14).collect::<Vec<_>>();
    let at = spans[20].start + 9 - lost.len();
    moved.splice(at..at, lost);
    assert_eq!(lost_of(&moved, 0, &restored), (vec![10, 20], true));
    // Some chunks are there twice.
    let mut twice = bytes.clone();
    twice.splice(spans[8].end..spans[8].end, bytes[spans[5].start..spans[8].end].to_vec());
    assert_eq!(lost_of(&twice, 0, &restored), (vec![], true));
    twice.truncate(twice.len() - 1);
    assert_eq!(lost_of(&twice, 0, &restored), (vec![], true));
}

#[test]
fn salvage_of_concatenated_streams() {
    let [(a, a_restored, spans), (b, b_restored, _)] = [0.0, 1.5].map(thousand_chunks);
    let single = compress(&a_restored[..100], &[100], &lossless()).unwrap();
    let both = [&a[..], &b].concat();
    assert_eq!(lost_of(&both, 0, &a_restored), (vec![], true));
    assert_eq!(lost_of(&both, 1, &b_restored), (vec![], true));
    let beyond = salvage_stream(&both[..], 2, DecodeOptions::new()).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::InvalidArgument);
    for file in [both.clone(), [&a[..], &single].concat(), [&single[..], &a].concat(), [&single[..], &single].concat()]
    {
        let error = decompress::<f32>(&file).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("several streams"), "{error}");
        for i in 0..2 {
            let salvaged = salvage_stream(&file[..], i, DecodeOptions::new().threads(1)).unwrap();
            assert_eq!((salvaged.n_streams(), salvaged.lost().count()), (2, 0));
        }
    }
    // The seam is damaged: the header of the second, the index of the first, or both. Values of the one are never taken
    // for those of the other.
    let header = a.len()..a.len() + spans[0].start;
    let index = spans[999].end..a.len();
    for (damage, end_known) in [(header.clone(), true), (index.clone(), false), (index.start..header.end, false)] {
        let mut damaged = both.clone();
        damaged[damage].fill(0);
        assert_eq!(lost_of(&damaged, 0, &a_restored), (vec![], end_known));
        assert_eq!(lost_of(&damaged, 1, &b_restored), (vec![], true));
    }
    // All from within the first to within the second is lost; the chunks that are left of the second come later.
    let mut damaged = both.clone();
    damaged[spans[300].start..a.len() + spans[600].start].fill(0);
    let salvaged = salvage(&damaged[..], DecodeOptions::new().threads(1)).unwrap();
    let array = salvaged.read(f32::NAN).unwrap();
    assert_eq!(array.data[..300 * 64], a_restored[..300 * 64]);
    let (lost, _) = lost_of(&damaged, salvaged.n_streams() - 1, &b_restored);
    assert!(lost.len() >= 600 && lost[..600] == (0..600).collect::<Vec<_>>(), "{lost:?}");
}

#[test]
fn salvage_of_segments_without_index() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, data) = segmented(&dir.path().join("a.pum"));
    let reader = Reader::new(&bytes[..], DecodeOptions::new()).unwrap();
    let frames = &reader.layout.frames;
    let end = (frames[29].offset + frames[29].frame_bytes) as usize;
    let salvage_without = |ids: &[usize]| {
        let mut bytes = bytes[..end].to_vec();
        ids.iter().for_each(|&id| bytes[frames[id].offset as usize] ^= 1);
        let salvaged = salvage(&bytes[..], DecodeOptions::new().threads(1)).unwrap();
        let array = salvaged.read(f32::NAN).unwrap();
        let lost: Vec<_> = salvaged.lost().collect();
        for (i, (x, y)) in data.iter().zip(&array.data).enumerate() {
            let at = [i / 35, i / 5 % 7, i % 5];
            let is_lost = lost.iter().filter(|(_, r)| r.iter().zip(at).all(|(r, i)| r.contains(&i))).count();
            assert!(if y.is_nan() { is_lost == 1 } else { is_lost == 0 && x == y }, "value {i}");
        }
        assert!(salvaged.info().segments.is_empty());
        (array.shape, lost)
    };
    // Bands of six chunks: rows 0..3 and 3..4, then 4..5, then 5..8 and 8..11.
    let known = |id: u64| (id, reader.chunk_region(id).unwrap());
    assert_eq!(salvage_without(&[]), (vec![11, 7, 5], vec![]));
    assert_eq!(salvage_without(&[4, 8, 29]).1, [4, 8, 29].map(known));
    // One band lost as a whole: its rows are those between its neighbours, or before the first.
    let band = |n: usize| (6 * n..6 * n + 6).collect::<Vec<_>>();
    assert_eq!(salvage_without(&band(0)).1, (0..6).map(known).collect::<Vec<_>>());
    assert_eq!(salvage_without(&band(3)).1, (18..24).map(known).collect::<Vec<_>>());
    assert_eq!(salvage_without(&band(4)), (vec![8, 7, 5], vec![]));
    // Two bands that could have been cut in several ways.
    let lost = salvage_without(&[band(1), band(2), vec![21]].concat()).1;
    assert_eq!(lost, [(6, vec![3..5, 0..7, 0..5]), known(21)]);
}

#[test]
fn forged_identities_do_no_harm() {
    use container::frame::FrameHeader;
    let data = ramp(9 * 4);
    let bytes = compress_tiny(&data, &[9, 4], &[3, 2], &lossless(), 1);
    let layout = Reader::new(&bytes[..], DecodeOptions::new()).unwrap().layout;
    let values = [0, 1, 2, 3, 4, 6, 9, 1 << 40, u64::MAX - 2, u64::MAX];
    for id in 0..6 {
        let span = layout.frames[id as usize];
        let frame = &bytes[span.offset as usize..][..span.frame_bytes as usize];
        let (header, payload) = container::frame::open(frame, &layout.header, &layout.identity(id)).unwrap();
        for (i, value) in values.iter().enumerate().flat_map(|(i, &v)| [(3 * i, v), (3 * i + 1, v), (3 * i + 2, v)]) {
            let mut identity = header.identity;
            match i % 3 {
                0 => identity.chunk_id = value,
                1 => identity.first_row = value,
                _ => identity.rows = value,
            }
            if identity == header.identity {
                continue;
            }
            let mut forged = bytes[..span.offset as usize].to_vec();
            FrameHeader::new(header.codec, identity, payload).write_to(&mut forged);
            forged.extend_from_slice(payload);
            let mut index = container::index::Index::default();
            index.segments.push(9);
            index.frame_bytes = layout.frames.iter().map(|p| p.frame_bytes).collect();
            index.frame_bytes[id as usize] = forged.len() as u64 - span.offset;
            forged.extend_from_slice(&bytes[(span.offset + span.frame_bytes) as usize..layout.frames_end() as usize]);
            // Without an index, those before the forged one are saved at least.
            let salvaged = salvage(&forged[..], DecodeOptions::new().threads(1));
            assert!(id == 0 || salvaged.is_ok_and(|s| !s.intact().is_empty() && s.read(0f32).is_ok()));
            let index_offset = forged.len() as u64;
            index.write_to(&mut forged);
            let index_bytes = forged.len() as u64 - index_offset;
            container::index::Footer { index_offset, index_bytes }.write_to(&mut forged);
            let reader = Reader::new(&forged[..], DecodeOptions::new().threads(1)).unwrap();
            assert_eq!(reader.read_chunk::<f32>(id).unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(salvage(&forged[..], DecodeOptions::new().threads(1)).unwrap().lost().count(), 1);
        }
    }
}

#[test]
fn salvage_of_coded_chunks_without_index() {
    let data: Vec<f32> = (0..50 * 40 * 30).map(|i| (i as f32 * 0.01).sin()).collect();
    for preset in Preset::ALL {
        let config = Config::new(ErrorBound::Abs(1e-3)).preset(*preset);
        let bytes = compress_tiny(&data, &[50, 40, 30], &[16, 40, 30], &config, 1);
        assert!(bytes.len() < data.len() * 2);
        let salvaged = salvage(&bytes[..bytes.len() - 21], DecodeOptions::new()).unwrap();
        assert_eq!((salvaged.info().shape.as_slice(), salvaged.intact()), (&[50, 40, 30][..], &[0, 1, 2, 3][..]));
        assert_eq!(salvaged.read(0f32).unwrap().data, decompress::<f32>(&bytes).unwrap().data);
    }
}

/// Writes the checksum of `bytes[start..at]`, or its first `n` bytes, to `at`.
fn reseal(bytes: &mut [u8], start: usize, at: usize, n: usize) {
    let sum = io::checksum::xxh3(&bytes[start..at]);
    bytes[at..at + n].copy_from_slice(&sum.to_le_bytes()[..n]);
}

#[test]
fn forged_headers_and_indices_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (chunked, _) = segmented(&dir.path().join("a.pum"));
    let data: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.01).sin()).collect();
    let single = |preset| compress(&data, &[50, 100], &Config::new(ErrorBound::Abs(1e-3)).preset(preset)).unwrap();
    let options = || DecodeOptions::new().threads(1).max_bytes(1 << 24);
    let try_all = |bytes: &[u8]| {
        if let Ok(reader) = Reader::new(bytes, options()) {
            let _ = reader.read::<f32>();
            let _ = reader.for_each_chunk::<f32>(0..reader.n_chunks(), |_, _| Ok(()));
        }
        let _ = salvage(bytes, options()).map(|s| s.read(0f32).map(drop));
        let _ = salvage(&bytes[..bytes.len() - 1], options()).map(|s| s.read(0f32).map(drop));
    };
    for bytes in [&chunked, &single(Preset::Fast), &single(Preset::Small)] {
        let header_bytes = container::header::peek_header_bytes(bytes).unwrap();
        for at in 8..header_bytes - 4 {
            for value in [0, 1, 2, 3, 7, 0x7f, 0x80, 0xff, bytes[at] ^ 1] {
                let mut forged = bytes.clone();
                forged[at] = value;
                reseal(&mut forged, 0, header_bytes - 4, 4);
                try_all(&forged);
            }
        }
    }
    let end = chunked.len() - 20;
    let index_at = u64::from_le_bytes(chunked[end..end + 8].try_into().unwrap()) as usize;
    for at in index_at + 4..end - 8 {
        for value in [0, 1, 2, 15, 16, 0x7f, 0x80, 0xff] {
            let mut forged = chunked.clone();
            forged[at] = value;
            reseal(&mut forged, index_at, end - 8, 8);
            try_all(&forged);
        }
    }
}

/// Values that nothing predicts, from a multiplicative generator.
fn noise<T: Element>(n: usize) -> Vec<T> {
    let mut state = 1u64;
    let bits = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::from_bits_u64(state >> 3)
    });
    bits.take(n).collect()
}

#[test]
fn no_stream_is_larger_than_announced() {
    fn check<T: Element>(shape: &[usize], config: &Config) {
        let most = max_compressed_bytes::<T>(shape, config).unwrap();
        let data = noise::<T>(grid::n_values(shape));
        let bytes = compress(&data, shape, config).unwrap();
        assert!(bytes.len() as u64 <= most, "{shape:?}, {config:?}: {} > {most}", bytes.len());
        let raw_bytes = size_of_val(&data[..]) as u64;
        assert!(most <= raw_bytes + raw_bytes / 500 + 500, "{shape:?}, {config:?}: {most} for {raw_bytes}");
    }
    for shape in [&[][..], &[1], &[0], &[3, 0, 2], &[1000], &[40, 50, 60]] {
        for bound in [
            ErrorBound::Lossless,
            ErrorBound::Abs(1e-30),
            ErrorBound::Rel(1e-9),
            ErrorBound::PwRel(1e-9),
            ErrorBound::Psnr(300.0),
        ] {
            for preset in [Preset::Fast, Preset::Balanced, Preset::Small] {
                let config = Config::new(bound).preset(preset).threads(1);
                check::<f32>(shape, &config);
                check::<f64>(shape, &config.fills(&[1e20]));
            }
        }
    }
    let config = Config::new(ErrorBound::PwRel(1e-9)).and(ErrorBound::Abs(1e-30)).attribute("name", "noise").threads(1);
    check::<f32>(&[40, 50, 60], &config.clone().chunk_shape(&[20, 50, 60]));
    check::<f64>(&[40, 50, 60], &config.clone().region(&[3..9, 0..50, 7..8], ErrorBound::Rel(1e-9)));
    check::<f32>(&[40, 50, 60], &config.bin(&[2, 1, 1]));
}
