//! Files that all ranks write and read together, compared with those of one process.

use std::fs;
use std::path::{Path, PathBuf};

use mpi::traits::*;
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, FileWriter, Preset, Result, Stable};
use pumice_mpi::{LocalBox, LocalBoxMut, Reader, Value, Wire, Writing};

/// A small generator of random numbers; all ranks draw the same.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

/// Start and extents.
pub(crate) type Block = (Vec<usize>, Vec<usize>);

/// Cuts an array into `n` boxes at random.
pub(crate) fn cut(block: Block, n: usize, random: &mut Random) -> Vec<Block> {
    let axis = random.below(block.1.len().max(1));
    if n <= 1 || block.1.get(axis).is_none_or(|n| *n < 2) {
        return vec![block];
    }
    let at = 1 + random.below(block.1[axis] - 1);
    let (mut a, mut b) = (block.clone(), block);
    a.1[axis] = at;
    b.0[axis] += at;
    b.1[axis] -= at;
    [cut(a, n / 2, random), cut(b, n - n / 2, random)].concat()
}

/// The index in an array of each value of a box.
pub(crate) fn indices(shape: &[usize], (start, extents): &Block) -> Vec<usize> {
    (0..extents.iter().product())
        .map(|mut i| {
            let (mut index, mut scale) = (0, 1);
            for axis in (0..shape.len()).rev() {
                index += (start[axis] + i % extents[axis]) * scale;
                i /= extents[axis];
                scale *= shape[axis];
            }
            index
        })
        .collect()
}

pub(crate) fn field<T: Value>(n: usize, special: usize) -> Vec<T> {
    let mut values: Vec<T> = (0..n).map(|i| T::from_f64((i as f64 * 0.003).sin() * 40.0 + (i % 7) as f64)).collect();
    let mut put = |every: usize, value: f64| (3..n).step_by(every).for_each(|i| values[i] = T::from_f64(value));
    match special {
        0 => put(41, f64::NAN),
        1 => put(17, -999.0),
        2 => put(23, 1e20),
        3 => [(29, f64::INFINITY), (31, f64::NAN), (37, -9999.0)].into_iter().for_each(|(n, v)| put(n, v)),
        _ => {}
    }
    values
}

/// How to write a file.
#[derive(Clone, Copy)]
enum Way {
    Now,
    Later,
    With(Wire),
}

struct Test<C> {
    world: C,
    folder: PathBuf,
}

impl<C: Communicator> Test<C> {
    fn write<T: Value>(
        &self,
        path: &Path,
        data: &[T],
        shape: &[usize],
        boxes: &[Block],
        config: &Config,
        way: Way,
    ) -> Result<pumice::Summary> {
        match way {
            Way::Now => {
                self.with_boxes(data, shape, boxes, |mine| pumice_mpi::write(&self.world, path, shape, mine, config))
            }
            Way::With(wire) => self.with_boxes(data, shape, boxes, |mine| {
                pumice_mpi::write_with(&self.world, path, shape, mine, config, wire)
            }),
            // The values are gone while the file is written.
            Way::Later => self
                .with_boxes(data, shape, boxes, |mine| pumice_mpi::iwrite(&self.world, path, shape, mine, config))?
                .wait(),
        }
    }

    /// Calls a function with the boxes of this rank: those in turn.
    fn with_boxes<T: Value, R>(
        &self,
        data: &[T],
        shape: &[usize],
        boxes: &[Block],
        done: impl FnOnce(&[LocalBox<'_, T>]) -> R,
    ) -> R {
        let (rank, n_ranks) = (self.world.rank() as usize, self.world.size() as usize);
        let mine: Vec<&Block> = boxes.iter().skip(rank).step_by(n_ranks).collect();
        let values: Vec<Vec<T>> =
            mine.iter().map(|block| indices(shape, block).into_iter().map(|i| data[i]).collect()).collect();
        let mine: Vec<LocalBox<'_, T>> =
            mine.iter().zip(&values).map(|((start, extents), values)| LocalBox { start, extents, values }).collect();
        done(&mine)
    }

    /// Files of random boxes of random arrays have the bytes of `pumice::compress`, and can be read in other boxes.
    fn files_are_those_of_one_process<T: Value>(&self, n_cases: usize, seed: u64) {
        let mut random = Random(seed);
        let shapes: [&[usize]; 9] =
            [&[], &[0, 5], &[1], &[60_000], &[240, 250], &[30, 41, 50], &[6, 8, 25, 50], &[20, 30, 4], &[37, 53, 31]];
        for i in 0..n_cases {
            let shape = shapes[i % shapes.len()];
            let n: usize = shape.iter().product();
            let data: Vec<T> = field(n, i % 5);
            let region: Vec<_> = shape.iter().map(|n| 0..n.div_ceil(2)).collect();
            let config = match random.below(9) {
                0 => Config::new(ErrorBound::Rel(1e-3)),
                1 => Config::new(ErrorBound::Abs(0.02)).preset(Preset::Fast),
                2 => Config::new(ErrorBound::PwRel(1e-3)).preset(Preset::Balanced),
                3 => Config::new(ErrorBound::Lossless),
                4 => Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Small).stable(Stable::On),
                5 => Config::new(ErrorBound::Rel(1e-2)).and(ErrorBound::PwRel(1e-2)),
                6 => Config::new(ErrorBound::Rel(1e-3)).fills(&[40.5, -999.0]).preset(Preset::Fast),
                7 if !shape.contains(&0) => {
                    Config::new(ErrorBound::Rel(1e-2)).region(&region, ErrorBound::Abs(1e-3)).attribute("unit", "K")
                }
                _ => Config::new(ErrorBound::Rel(1e-4)).preset(Preset::Max),
            };
            let cut_shape: Vec<usize> = shape.iter().map(|n| n.div_ceil(1 + random.below(3)).max(1)).collect();
            let cut_config = config.clone().chunk_shape(&cut_shape);
            let config = if pumice::compress(&data, shape, &cut_config).is_ok() { cut_config } else { config };
            let expected = pumice::compress(&data, shape, &config).expect("the options are valid");
            let n_boxes = 1 + random.below(14);
            let boxes = cut((vec![0; shape.len()], shape.to_vec()), n_boxes, &mut random);
            let path = self.folder.join("field.pum");
            let way = if i % 3 == 0 { Way::Later } else { Way::Now };
            let summary = self.write(&path, &data, shape, &boxes, &config, way).expect("the file is written");
            let written = fs::read(&path).expect("the file is there");
            assert!(written == expected, "{shape:?}, case {i}: {} bytes, not {}", written.len(), expected.len());
            assert_eq!(summary.compressed_bytes, expected.len() as u64);
            assert_eq!(summary.n_chunks, pumice::inspect(&expected).unwrap().n_chunks);
            let restored = pumice::decompress::<T>(&expected).expect("the stream is whole").data;
            self.boxes_are_read(&path, shape, &restored, &mut random);
            let is_plain = self.values_stay(&path, &data, shape, &boxes, &config, Way::With(Wire::Plain));
            assert!(is_plain, "{shape:?}, case {i}");
        }
    }

    /// Writes a file in which values may be as they are, bit for bit; if not, it is that of one process. Says which it is.
    fn values_stay<T: Value>(
        &self,
        path: &Path,
        data: &[T],
        shape: &[usize],
        boxes: &[Block],
        config: &Config,
        way: Way,
    ) -> bool {
        let summary = self.write(path, data, shape, boxes, config, way).expect("the file is written");
        let written = fs::read(path).expect("the file is there");
        assert_eq!(summary.compressed_bytes, written.len() as u64);
        let restored = pumice::decompress::<T>(&written).expect("the file is whole");
        assert_eq!(restored.shape, shape);
        let n_bytes = size_of_val(data) as u64;
        let is_exact = restored.data.iter().map(|x| x.to_bits_u64()).eq(data.iter().map(|x| x.to_bits_u64()));
        if is_exact && summary.compressed_bytes >= n_bytes {
            assert!(summary.compressed_bytes < n_bytes + n_bytes / 100 + 1000 && summary.abs_bound == 0.0);
            return true;
        }
        assert!(written == pumice::compress(data, shape, config).expect("the options are valid"));
        false
    }

    /// What pays is measured: in a file system of memory, a slow preset does not. Both kinds of files are valid.
    fn automatic_files_are_valid(&self) {
        let n_ranks = self.world.size() as usize;
        let shape = [8 * n_ranks, 256, 300];
        let data = field::<f32>(shape.iter().product(), 9);
        let boxes: Vec<Block> = (0..n_ranks).map(|rank| (vec![8 * rank, 0, 0], vec![8, 256, 300])).collect();
        let memory = tempfile::tempdir_in("/dev/shm");
        let folder = memory.as_ref().map_or(&*self.folder, |memory| memory.path());
        // All ranks use the folder of the first.
        let mut path = folder.join("auto.pum").to_str().expect("a text").as_bytes().to_vec();
        path.resize(1000, b' ');
        self.world.process_at_rank(0).broadcast_into(&mut path[..]);
        let path = PathBuf::from(std::str::from_utf8(&path).expect("a text").trim_end());
        for preset in [Preset::Fast, Preset::Max] {
            let config = Config::new(ErrorBound::Rel(1e-3)).preset(preset);
            let is_plain = self.values_stay(&path, &data, &shape, &boxes, &config, Way::With(Wire::Auto));
            assert!(is_plain || preset == Preset::Fast || memory.is_err(), "{preset:?} is slower than memory");
            self.world.barrier();
        }
    }

    /// Rows that are added step by step, any number of them at once, to new and to old files.
    fn rows_are_those_of_one_process<T: Value>(&self, n_cases: usize, seed: u64) {
        let mut random = Random(seed);
        let path = self.folder.join("rows.pum");
        let expected_path = self.folder.join(format!("expected-{}.pum", self.world.rank()));
        let row_shapes: [&[usize]; 4] = [&[], &[700], &[31, 40], &[5, 20, 30]];
        for i in 0..n_cases {
            let row_shape = row_shapes[i % row_shapes.len()];
            let n_row: usize = row_shape.iter().product();
            let n_rows = if row_shape.is_empty() { 40_000 } else { 1 + random.below(60) };
            let data: Vec<T> = field(n_rows * n_row, i % 5);
            let config = match random.below(5) {
                0 => Config::new(ErrorBound::Abs(0.02)).preset(Preset::Fast),
                1 => Config::new(ErrorBound::Lossless),
                2 => Config::new(ErrorBound::PwRel(1e-3)).fills(&[-999.0]),
                3 => Config::new(ErrorBound::Rel(1e-3)).range(-50.0, 50.0).preset(Preset::Small),
                _ => Config::new(ErrorBound::Abs(1e-3)).attribute("unit", "K"),
            };
            let chunk_shape = [&[1 + random.below(n_rows)], row_shape].concat();
            let cut_config = config.clone().chunk_shape(&chunk_shape);
            let can_be_cut = FileWriter::<T>::create(&expected_path, row_shape, &cut_config).is_ok();
            let config = if can_be_cut { cut_config } else { config };
            // Sessions, each of which continues the file of the one before, of several steps each.
            let mut from = 0;
            for session in 0..1 + random.below(3) {
                if session == 0 && i % 3 == 0 {
                    // One that was not made row by row.
                    from = 1 + random.below(n_rows);
                    let shape = [&[from], row_shape].concat();
                    let old = pumice::compress(&data[..from * n_row], &shape, &config).expect("the options are valid");
                    fs::write(&expected_path, &old).expect("there is room");
                    self.replace(&path, &old);
                }
                let is_new = session == 0 && from == 0;
                let mut expected = if is_new {
                    FileWriter::<T>::create(&expected_path, row_shape, &config)
                } else {
                    FileWriter::<T>::append(&expected_path, 1)
                }
                .expect("rows can be written");
                let mut writer = if is_new {
                    pumice_mpi::Writer::<T>::create(&self.world, &path, row_shape, &config)
                } else {
                    pumice_mpi::Writer::<T>::append(&self.world, &path, 0)
                }
                .expect("rows can be written");
                for _ in 0..random.below(5) {
                    let n = random.below(n_rows - from + 1);
                    let values = &data[from * n_row..(from + n) * n_row];
                    expected.write_rows(values).expect("rows are written");
                    let shape = [&[n], row_shape].concat();
                    let n_boxes = 1 + random.below(9);
                    let boxes = cut((vec![0; shape.len()], shape.clone()), n_boxes, &mut random);
                    self.with_boxes(values, &shape, &boxes, |mine| writer.write_rows(n, mine))
                        .expect("rows are written");
                    from += n;
                }
                let expected = expected.finish().expect("the file is written");
                let summary = writer.finish().expect("the file is written");
                let (written, one) = (fs::read(&path).unwrap(), fs::read(&expected_path).unwrap());
                assert!(written == one, "{row_shape:?}, case {i}, session {session}");
                // As texts, since a fill value may be NaN.
                assert_eq!(format!("{summary:?}"), format!("{expected:?}"), "{row_shape:?}, case {i}");
                self.world.barrier();
            }
        }
        fs::remove_file(&expected_path).expect("it is there");
    }

    /// Puts a file there, for all ranks.
    fn replace(&self, path: &Path, bytes: &[u8]) {
        self.world.barrier();
        if self.world.rank() == 0 {
            fs::write(path, bytes).expect("there is room");
        }
        self.world.barrier();
    }

    /// Several files at once, whose ranks go on meanwhile; errors come when they are waited for.
    fn several_files_are_written_at_once(&self) {
        let n_ranks = self.world.size() as usize;
        let shape = [64 * n_ranks, 500];
        let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Small);
        let fields: Vec<Vec<f32>> = (0..4).map(|i| field(shape[0] * shape[1], i)).collect();
        let boxes: Vec<Block> = (0..n_ranks).map(|rank| (vec![64 * rank, 0], vec![64, 500])).collect();
        let path = |i: usize| self.folder.join(format!("several-{i}.pum"));
        let writing: Vec<Writing> = fields
            .iter()
            .enumerate()
            .map(|(i, field)| {
                self.with_boxes(field, &shape, &boxes, |mine| {
                    pumice_mpi::iwrite(&self.world, path(i), &shape, mine, &config)
                })
                .expect("it is begun")
            })
            .collect();
        for (i, (writing, field)) in writing.into_iter().zip(&fields).enumerate() {
            while i == 0 && !writing.is_done() {
                std::thread::yield_now();
            }
            let summary = writing.wait().expect("the file is written");
            let expected = pumice::compress(field, &shape, &config).expect("the options are valid");
            assert!(fs::read(path(i)).expect("the file is there") == expected);
            assert_eq!(summary.compressed_bytes, expected.len() as u64);
        }
        // One that nobody waits for.
        let forgotten = self.with_boxes(&fields[0], &shape, &boxes, |mine| {
            pumice_mpi::iwrite(&self.world, self.folder.join("forgotten.pum"), &shape, mine, &config)
        });
        drop(forgotten.expect("it is begun"));
        self.world.barrier();
        if self.world.rank() == 0 {
            let _ = fs::remove_file(self.folder.join("forgotten.pum.partial"));
        }
        self.world.barrier();
    }

    /// Boxes that may overlap, and none on some ranks; then a region that each rank reads alone.
    fn boxes_are_read<T: Value>(&self, path: &Path, shape: &[usize], restored: &[T], random: &mut Random) {
        let reader = Reader::open(&self.world, path, DecodeOptions::new()).expect("the file is open");
        assert_eq!(reader.info().shape, shape);
        let draw = |random: &mut Random| -> Block {
            let (start, extents): Block = shape
                .iter()
                .map(|n| {
                    let start = random.below(n + 1);
                    (start, random.below(n - start + 1))
                })
                .unzip();
            (start, extents)
        };
        let of_ranks: Vec<Vec<Block>> =
            (0..self.world.size()).map(|_| (0..random.below(3)).map(|_| draw(random)).collect()).collect();
        let mine = &of_ranks[self.world.rank() as usize];
        let mut values: Vec<Vec<T>> =
            mine.iter().map(|(_, extents)| vec![T::default(); extents.iter().product()]).collect();
        let mut boxes: Vec<LocalBoxMut<'_, T>> = mine
            .iter()
            .zip(&mut values)
            .map(|((start, extents), values)| LocalBoxMut { start, extents, values })
            .collect();
        reader.read_all(&mut boxes).expect("boxes are read");
        let is_equal = |block: &Block, values: &[T]| {
            let expected = indices(shape, block).into_iter().map(|i| restored[i].to_bits_u64());
            expected.eq(values.iter().map(|x| x.to_bits_u64()))
        };
        assert!(mine.iter().zip(&values).all(|(block, values)| is_equal(block, values)));
        let (start, extents) = draw(random);
        let mut alone = vec![T::default(); extents.iter().product()];
        let ranges: Vec<_> = start.iter().zip(&extents).map(|(s, n)| *s..s + n).collect();
        reader.read(&ranges, &mut alone).expect("a region is read");
        assert!(is_equal(&(start, extents), &alone));
    }

    /// The file that a link stands for is replaced, and the link stays.
    fn links_are_followed(&self) {
        let (real, link) = (self.folder.join("elsewhere/real.pum"), self.folder.join("link.pum"));
        if self.world.rank() == 0 {
            fs::create_dir_all(real.parent().expect("it has a folder")).expect("there is room");
            fs::write(&real, b"old").expect("there is room");
            // Another job may have left one.
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&real, &link).expect("there is room");
        }
        let data = field::<f32>(500, 9);
        let (shape, config) = ([500], Config::new(ErrorBound::Lossless));
        self.write(&link, &data, &shape, &[(vec![0], vec![500])], &config, Way::Now).expect("the file is written");
        assert!(link.is_symlink());
        assert!(fs::read(&real).expect("it is there") == pumice::compress(&data, &shape, &config).expect("is valid"));
    }

    /// Errors of writers of rows: what can be refused early leaves the writer usable.
    fn errors_of_rows(&self, path: &Path, refused: impl Fn(&str, ErrorKind, &str, Result<()>)) {
        type Writer = pumice_mpi::Writer<f32>;
        let (rank, n_ranks) = (self.world.rank() as usize, self.world.size() as usize);
        let invalid = ErrorKind::InvalidArgument;
        let relative = Writer::create(&self.world, path, &[20], &Config::new(ErrorBound::Rel(1e-3)));
        refused("an unknown range", invalid, "range", relative.map(|_| ()));
        let double = pumice_mpi::Writer::<f64>::append(&self.world, path, 0);
        refused("another type", invalid, "f32", double.map(|_| ()));
        let missing = Writer::append(&self.world, self.folder.join("nowhere/field.pum"), 0);
        refused("no file", ErrorKind::Io, "nowhere", missing.map(|_| ()));
        let mut writer = Writer::append(&self.world, path, 0).expect("rows can be added");
        let values = vec![0.0_f32; 20];
        let mine = [LocalBox { start: &[rank, 0], extents: &[1, 20], values: &values }];
        if n_ranks > 1 {
            let error = writer.write_rows(n_ranks + usize::from(rank == 0), &mine).expect_err("other numbers");
            assert!(error.to_string().contains("number of rows"), "{error}");
        }
        let error = writer.write_rows(n_ranks - 1, &mine).expect_err("rows outside");
        assert!(error.kind() == invalid && error.to_string().contains("not within"), "{error}");
        writer.write_rows(n_ranks, &mine).expect("rows are added");
        // Dropped before it is finished, it leaves the partial file.
        drop(writer);
        self.world.barrier();
        if rank == 0 {
            fs::remove_file(path.with_extension("pum.partial")).expect("it is there");
        }
        self.world.barrier();
        // Nothing is added: the file stays as it is.
        let summary = Writer::append(&self.world, path, 0).and_then(Writer::finish).expect("nothing is to do");
        assert_eq!(summary.compressed_bytes, fs::metadata(path).expect("the file is there").len());
    }

    /// Every rank gets the same error, and what was there before stays.
    fn errors_are_those_of_all(&self) {
        let (rank, n_ranks) = (self.world.rank() as usize, self.world.size() as usize);
        let shape = [10 * n_ranks, 20];
        let path = self.folder.join("kept.pum");
        let config = Config::new(ErrorBound::Abs(1e-3));
        let values = field::<f32>(200, 9);
        let rows = |start: usize, n: usize| (vec![start, 0], vec![n, 20]);
        let write = |path: &Path, shape: &[usize], block: Block, values: &[f32], config: &Config| {
            let mine = LocalBox { start: &block.0, extents: &block.1, values };
            pumice_mpi::write(&self.world, path, shape, &[mine], config).map(|_| ())
        };
        write(&path, &shape, rows(10 * rank, 10), &values, &config).expect("the file is written");
        let kept = fs::read(&path).expect("the file is there");
        let refused = |what: &str, kind: ErrorKind, message: &str, result: Result<()>| {
            let error = result.expect_err(what);
            assert!(error.kind() == kind && error.to_string().contains(message), "{what}: {error}");
            // The texts of all ranks are the same.
            let text = error.to_string().into_bytes();
            let mut of_first = text.clone();
            of_first.resize(1000, 0);
            self.world.process_at_rank(0).broadcast_into(&mut of_first[..]);
            assert_eq!(of_first[..text.len()], text, "{what}");
            assert!(fs::read(&path).expect("the file is there") == kept, "{what}");
            self.world.barrier();
            let names: Vec<_> = fs::read_dir(&self.folder).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert!(names.iter().all(|name| !name.to_string_lossy().ends_with(".partial")), "{what}: {names:?}");
            self.world.barrier();
        };
        let invalid = ErrorKind::InvalidArgument;
        let mine = || rows(10 * rank, 10);
        let last = n_ranks - 1;
        if n_ranks > 1 {
            let other = if rank == last { Config::new(ErrorBound::Abs(1e-2)) } else { config.clone() };
            refused("other bounds", invalid, "bound", write(&path, &shape, mine(), &values, &other));
            let other = if rank == last { [10 * n_ranks, 21] } else { shape };
            refused("other shapes", invalid, "shape", write(&path, &other, mine(), &values, &config));
            let other = if rank == last { path.with_extension("other") } else { path.clone() };
            refused("other names", invalid, "name", write(&other, &shape, mine(), &values, &config));
            let start = if rank == last { 0 } else { 10 * rank };
            refused("overlapping boxes", invalid, "boxes", write(&path, &shape, rows(start, 10), &values, &config));
        }
        let (n, few) = if rank == last { (9, &values[..180]) } else { (10, &values[..]) };
        refused("missing rows", invalid, "array", write(&path, &shape, rows(10 * rank, n), few, &config));
        let far = if rank == last { 10 * rank + 1 } else { 10 * rank };
        refused("rows outside", invalid, "not within", write(&path, &shape, rows(far, 10), &values, &config));
        let few = if rank == last { &values[..199] } else { &values[..] };
        refused("too few values", invalid, "200 values", write(&path, &shape, mine(), few, &config));
        let target = Config::new(ErrorBound::Ratio(10.0));
        refused("a target", ErrorKind::Unsupported, "target", write(&path, &shape, mine(), &values, &target));
        let all = LocalBox { start: &mine().0, extents: &mine().1, values: &values };
        let target_with = |wire| pumice_mpi::write_with(&self.world, &path, &shape, &[all], &target, wire).map(|_| ());
        refused("a target", ErrorKind::Unsupported, "target", target_with(Wire::Plain));
        let nowhere = self.folder.join("nowhere/field.pum");
        let later = |path: &Path, values: &[f32]| {
            let mine = LocalBox { values, ..all };
            pumice_mpi::iwrite(&self.world, path, &shape, &[mine], &config)
                .and_then(|writing| writing.wait().map(|_| ()))
        };
        refused("too few values later", invalid, "200 values", later(&path, few));
        refused("no folder later", ErrorKind::Io, "nowhere", later(&nowhere, &values));
        self.errors_of_rows(&path, refused);
        refused("no folder", ErrorKind::Io, "nowhere", write(&nowhere, &shape, mine(), &values, &config));
        let folder = &self.folder;
        refused("a folder", invalid, "folder", write(folder, &shape, mine(), &values, &config));
        let missing = Reader::open(&self.world, &nowhere, DecodeOptions::new()).map(|_| ());
        refused("a missing file", ErrorKind::Io, "nowhere", missing);
        let reader = Reader::open(&self.world, &path, DecodeOptions::new()).expect("the file is open");
        let mut out = vec![0.0_f64; 20];
        let wrong = reader.read_all(&mut [LocalBoxMut { start: &[0, 0], extents: &[1, 20], values: &mut out }]);
        refused("another type", invalid, "f32", wrong);
        let mut out = vec![0.0_f32; 20];
        let start = [if rank == last { 10 * n_ranks } else { 0 }, 0];
        let wrong = reader.read_all(&mut [LocalBoxMut { start: &start, extents: &[1, 20], values: &mut out }]);
        refused("a box outside", invalid, "not within", wrong);
    }
}

/// What the ranks do.
pub(crate) fn run(world: impl Communicator, folder: &Path) {
    let test = Test { world, folder: folder.into() };
    test.files_are_those_of_one_process::<f32>(36, 1);
    test.files_are_those_of_one_process::<f64>(18, 2);
    test.rows_are_those_of_one_process::<f32>(12, 3);
    test.rows_are_those_of_one_process::<f64>(8, 4);
    test.several_files_are_written_at_once();
    test.automatic_files_are_valid();
    test.links_are_followed();
    test.errors_are_those_of_all();
}

/// The same where MPI lets threads call it: files are written while the ranks go on.
pub(crate) fn by_threads(world: impl Communicator, folder: &Path) {
    let test = Test { world, folder: folder.into() };
    test.files_are_those_of_one_process::<f32>(18, 5);
    test.several_files_are_written_at_once();
    test.errors_are_those_of_all();
}
