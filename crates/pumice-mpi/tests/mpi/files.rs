//! Files that all ranks write and read together, compared with those of one process.

use std::fs;
use std::path::{Path, PathBuf};

use mpi::traits::*;
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, Preset, Result, Stable};
use pumice_mpi::{LocalBox, LocalBoxMut, Reader, Value};

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
    ) -> Result<pumice::Summary> {
        let (rank, n_ranks) = (self.world.rank() as usize, self.world.size() as usize);
        let mine: Vec<&Block> = boxes.iter().skip(rank).step_by(n_ranks).collect();
        let values: Vec<Vec<T>> =
            mine.iter().map(|block| indices(shape, block).into_iter().map(|i| data[i]).collect()).collect();
        let mine: Vec<LocalBox<'_, T>> =
            mine.iter().zip(&values).map(|((start, extents), values)| LocalBox { start, extents, values }).collect();
        pumice_mpi::write(&self.world, path, shape, &mine, config)
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
            let summary = self.write(&path, &data, shape, &boxes, &config).expect("the file is written");
            let written = fs::read(&path).expect("the file is there");
            assert!(written == expected, "{shape:?}, case {i}: {} bytes, not {}", written.len(), expected.len());
            assert_eq!(summary.compressed_bytes, expected.len() as u64);
            assert_eq!(summary.n_chunks, pumice::inspect(&expected).unwrap().n_chunks);
            let restored = pumice::decompress::<T>(&expected).expect("the stream is whole").data;
            self.boxes_are_read(&path, shape, &restored, &mut random);
        }
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
        self.write(&link, &data, &shape, &[(vec![0], vec![500])], &config).expect("the file is written");
        assert!(link.is_symlink());
        assert!(fs::read(&real).expect("it is there") == pumice::compress(&data, &shape, &config).expect("is valid"));
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
        let nowhere = self.folder.join("nowhere/field.pum");
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
    test.links_are_followed();
    test.errors_are_those_of_all();
}
