//! Arrays that are shared out among processes: each holds some boxes of the values. All of them make the same decisions,
//! each encodes some of the chunks, and together they write the bytes of [`compress`](crate::compress).
//!
//! ```text
//! Chunks        which box each chunk covers, before any value is known
//! Parts         the passes over the values of this process; Shared joins those of all
//! SharedStream  the decisions, frames of any chunks, header and index
//! ```

use std::ops::Range;

use super::{ChunkBox, FirstPass, MAX_NAMED, Passes, SecondPass, check_shareable};
use crate::codec::Element;
use crate::compress::frames::Job;
use crate::compress::{self, Summary};
use crate::container::header::Header;
use crate::container::{FrameSpan, StreamWriter};
use crate::decompress::{DecodeOptions, Reader};
use crate::error::{Error, Result};
use crate::exec::{Workers, reserve};
use crate::grid::{self, Block, Corner, Grid};
use crate::io::{ReadAt, SliceSource, Source};
use crate::plan::passes::{Blocks, SourcePasses, joined};
use crate::plan::{self, Config, Plan, Preset, lattice, stats};

/// The boxes that the chunks of a new array cover, whatever its values are.
#[derive(Clone, Debug)]
pub struct Chunks(pub(super) Grid);

impl Chunks {
    /// The chunks that [`compress`](crate::compress) cuts an array of this shape into.
    pub fn new<T: Element>(config: &Config, shape: &[usize]) -> Result<Self> {
        plan::check_shape::<T>(shape)?;
        let chunk_shape = plan::resolve_chunk_shape::<T>(config, shape, true)?;
        Ok(Self(compress::grid_with(shape, &chunk_shape)?))
    }

    /// Extents of the array, slowest axis first.
    pub fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    /// Number of chunks: at least 1, also for an array without values.
    pub fn count(&self) -> u64 {
        self.0.n_chunks()
    }

    /// The box of chunk `id`.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn get(&self, id: u64) -> ChunkBox {
        ChunkBox::new(&self.0, id as usize)
    }

    /// The ids of all chunks that share values with a box of the array, ascending.
    pub fn in_box(&self, start: &[usize], extents: &[usize]) -> Result<Vec<u64>> {
        self.0.chunks_in(&Block { start: start.to_vec(), extents: extents.to_vec() })
    }
}

/// The boxes of an array that one process holds, and its share of the passes over all values.
#[derive(Debug)]
pub struct Parts<'a, T> {
    shape: Vec<usize>,
    boxes: Vec<(Block, &'a [T])>,
    workers: Workers,
}

/// The share of a process in the first pass.
#[derive(Clone, Debug)]
pub struct FirstShare<T> {
    /// Its results. The first NaN is that of this process.
    pub pass: FirstPass<T>,
    /// Index in the array of the first NaN.
    pub nan_index: Option<u64>,
}

impl<'a, T: Element> Parts<'a, T> {
    /// Boxes of an array of this shape: for each its start, its extents and its values in C order. Passes over them take so
    /// many threads (0 = one per core).
    pub fn new(
        shape: &[usize],
        boxes: impl IntoIterator<Item = (&'a [usize], &'a [usize], &'a [T])>,
        threads: usize,
    ) -> Result<Self> {
        plan::check_shape::<T>(shape)?;
        let mut checked: Vec<(Block, &'a [T])> = Vec::new();
        for (start, extents, values) in boxes {
            let is_inside = start.len() == shape.len()
                && extents.len() == shape.len()
                && (0..shape.len()).all(|a| start[a].checked_add(extents[a]).is_some_and(|end| end <= shape[a]));
            if !is_inside {
                return Err(Error::invalid(format!(
                    "the box at {start:?} of {extents:?} is not within the array of shape {shape:?}"
                )));
            }
            let n = grid::n_values(extents);
            if values.len() != n {
                return Err(Error::invalid(format!("the box of {extents:?} has {n} values, not {}", values.len())));
            }
            checked.push((Block { start: start.to_vec(), extents: extents.to_vec() }, values));
        }
        let n_values = checked.iter().map(|(_, values)| values.len()).sum();
        Ok(Self { shape: shape.to_vec(), boxes: checked, workers: compress::workers_for(n_values, threads)? })
    }

    /// The values of each box.
    fn passes<R>(&self, each: impl Fn(&SourcePasses<'_, T>, &Block, &'a [T]) -> Result<R>) -> Result<Vec<R>> {
        let of_box = |(block, values): &(Block, &'a [T])| {
            let source = SliceSource::new(values, &block.extents)?;
            let passes = SourcePasses { blocks: Blocks::new(&source), workers: &self.workers, progress: &|_| () };
            each(&passes, block, values)
        };
        self.boxes.iter().map(of_box).collect()
    }

    /// As [`Passes::first`].
    pub fn first(&self, skip: &[T], stride: usize) -> Result<FirstShare<T>> {
        let of_boxes = self.passes(|passes, block, values| {
            let pass = passes.first(skip, usize::MAX)?;
            let nan = pass.first_nan.and_then(|_| values.iter().position(|x| x.is_nan()));
            Ok((pass, nan.map(|i| (self.index(block, i), values[i]))))
        })?;
        let mut all = FirstPass { samples: self.samples(stride)?, ..FirstPass::default() };
        let mut first_nan: Option<(u64, T)> = None;
        for (pass, nan) in of_boxes {
            all.range = joined(all.range, pass.range);
            all.counts = std::array::from_fn(|i| all.counts[i] + pass.counts[i]);
            first_nan = match (first_nan, nan) {
                (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
                (a, b) => a.or(b),
            };
        }
        all.first_nan = first_nan.map(|(_, nan)| nan);
        Ok(FirstShare { pass: all, nan_index: first_nan.map(|(index, _)| index) })
    }

    /// As [`Passes::second`].
    pub fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        let none = SecondPass { counts: [0; MAX_NAMED], range: None };
        let of_boxes = self.passes(|passes, _, _| passes.second(skip))?;
        Ok(of_boxes.into_iter().fold(none, |all, pass| SecondPass {
            counts: std::array::from_fn(|i| all.counts[i] + pass.counts[i]),
            range: joined(all.range, pass.range),
        }))
    }

    /// As [`Passes::counts`].
    pub fn counts(&self, values: &[T]) -> Result<Vec<u64>> {
        let mut sums = vec![0; values.len()];
        for counts in self.passes(|passes, _, _| passes.counts(values))? {
            sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        Ok(sums)
    }

    /// As [`Shared::all`].
    pub fn all(&self, holds: &(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool> {
        Ok(self.passes(|passes, _, _| passes.blocks.all(&self.workers, holds))?.into_iter().all(|holds| holds))
    }

    /// The index in the array of the value at `i` in a box.
    fn index(&self, block: &Block, mut i: usize) -> u64 {
        let (mut index, mut scale) = (0, 1);
        for axis in (0..self.shape.len()).rev() {
            index += (block.start[axis] + i % block.extents[axis]) as u64 * scale;
            i /= block.extents[axis];
            scale *= self.shape[axis] as u64;
        }
        index
    }

    /// The finite values whose index in the array is a multiple of the stride.
    fn samples(&self, stride: usize) -> Result<Vec<T>> {
        let mut samples = Vec::new();
        for (block, values) in self.boxes.iter().filter(|(_, values)| !values.is_empty()) {
            let last = self.index(block, values.len() - 1);
            let first = self.index(block, 0);
            let mut index = first.next_multiple_of(stride as u64);
            while index <= last {
                if let Some(i) = self.position(block, index) {
                    reserve(&mut samples, 1)?;
                    samples.push(values[i]);
                }
                index += stride as u64;
            }
        }
        samples.retain(|x| x.is_finite());
        Ok(samples)
    }

    /// Where in a box the value with this index in the array is, if it is there.
    fn position(&self, block: &Block, mut index: u64) -> Option<usize> {
        let (mut i, mut scale) = (0, 1);
        for axis in (0..self.shape.len()).rev() {
            let at = (index % self.shape[axis] as u64) as usize;
            index /= self.shape[axis] as u64;
            i += at.checked_sub(block.start[axis]).filter(|at| *at < block.extents[axis])? * scale;
            scale *= block.extents[axis];
        }
        Some(i)
    }
}

/// The values of an array, each of which one process holds. All processes call the same methods in the same order, and get
/// the same results.
pub trait Shared<T>: Passes<T> {
    /// Extents of the array, slowest axis first.
    fn shape(&self) -> &[usize];

    /// The values of a box, wherever they are.
    fn read_box(&self, start: &[usize], extents: &[usize]) -> Result<Vec<T>>;

    /// Whether something holds for any run of values.
    fn all(&self, holds: &(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool>;
}

/// The boxes of an array that were fetched from other processes.
struct Fetched<'a, T> {
    shape: &'a [usize],
    boxes: Vec<(Block, Vec<T>)>,
}

impl<T: Element> Source<T> for Fetched<'_, T> {
    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        let values = self.contiguous(start, extents);
        out.copy_from_slice(values.ok_or_else(|| Error::invalid("a box was not fetched from the other processes"))?);
        Ok(())
    }

    fn contiguous(&self, start: &[usize], extents: &[usize]) -> Option<&[T]> {
        let found = self.boxes.iter().find(|(block, _)| block.start == start && block.extents == extents);
        found.map(|(_, values)| values.as_slice())
    }
}

/// The stream of an array that is shared out among processes. All of them have one, and it is the same.
#[derive(Debug)]
pub struct SharedStream<T> {
    pub(super) plan: Plan<T>,
    pub(super) grid: Grid,
    pub(super) head: Vec<u8>,
    pub(super) stream: StreamWriter,
}

impl<T: Element> SharedStream<T> {
    /// Makes the decisions, together with the other processes. What a target asks for is
    /// [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn new(config: &Config, values: &impl Shared<T>) -> Result<Self> {
        let shape = values.shape();
        check_shareable(config)?;
        let stats = stats::decide(values, &config.fills)?;
        let mut plan = Plan::new(config, shape, Some(&stats))?;
        if plan.searches_lattice() {
            let mut fetched = Fetched { shape, boxes: Vec::new() };
            for block in lattice::sampled_boxes(&fetched) {
                let read = values.read_box(&block.start, &block.extents)?;
                fetched.boxes.push((block, read));
            }
            plan.keep_lattice(&fetched, &stats, |holds| values.all(holds))?;
        }
        let grid = compress::grid_of(&plan)?;
        let mut head = Vec::new();
        let stream = StreamWriter::start(&Header::new(&plan, grid.is_whole()), &mut head)?;
        Ok(Self { plan, grid, head, stream })
    }

    /// The bytes before the first frame.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Encodes chunks, whose boxes `source` must have, on so many threads (0 = one per core). Passes their frames to
    /// `put`, in the order of `ids`, and returns their sizes.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn encode(
        &self,
        source: &dyn Source<T>,
        ids: &[u64],
        threads: usize,
        put: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<Vec<u64>> {
        let n_values = ids.iter().map(|id| self.grid.chunk_values(*id)).sum();
        let workers = compress::workers_for(n_values, threads)?;
        let job = Job { source, grid: &self.grid, plan: &self.plan, first_id: 0, first_row: 0, progress: &|_| () };
        job.hand_over_some(&workers, ids, put)
    }

    /// The bytes after the last frame, given the sizes of all frames in the order of chunk ids, and the size of the stream.
    pub fn finish(mut self, frame_bytes: impl IntoIterator<Item = u64>) -> Result<(Vec<u8>, u64)> {
        self.stream.add_frames(frame_bytes, self.grid.rows());
        if self.stream.n_chunks() != self.grid.n_chunks() {
            let (n, all) = (self.stream.n_chunks(), self.grid.n_chunks());
            return Err(Error::invalid(format!("the stream has {n} of its {all} chunks")));
        }
        let mut tail = Vec::new();
        let n_bytes = self.stream.finish(&mut tail);
        Ok((tail, n_bytes))
    }

    /// What [`compress_into`](crate::compress_into) says of the stream, whose size is given.
    pub fn summary(&self, compressed_bytes: u64) -> Summary {
        compress::summary(&self.plan, &self.plan.shape, compressed_bytes, self.grid.n_chunks())
    }
}

/// The threads that a config asks for; 0 if it leaves that to the library.
pub fn threads_of(config: &Config) -> usize {
    config.threads
}

/// The preset that a config asks for.
pub fn preset_of(config: &Config) -> Preset {
    config.preset
}

/// The threads that options ask for; 0 if they leave that to the library.
pub fn decoding_threads_of(options: &DecodeOptions) -> usize {
    options.threads
}

/// Where in a stream the frames of a region are: for each chunk that has values of it, ascending.
pub fn frame_spans<R: ReadAt>(reader: &Reader<R>, region: &[Range<usize>]) -> Result<Vec<Range<u64>>> {
    let block = reader.region_block(region)?;
    let span = |id: u64| {
        let FrameSpan { offset, frame_bytes } = reader.layout.frames[id as usize];
        offset..offset + frame_bytes
    };
    Ok(reader.layout.grid.chunks_in(&block)?.into_iter().map(span).collect())
}

/// Copies a box from one array to another: the runs of memory that it has in both.
///
/// # Panics
/// If the box is not within both.
pub fn copy_box<T: Copy>(src: &[T], from: Corner<'_>, dst: &mut [T], to: Corner<'_>, extents: &[usize]) {
    grid::copy_block(src, from, dst, to, extents);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CodebookTrainer;
    use crate::compress;
    use crate::error::ErrorKind;
    use crate::plan::{ErrorBound, Stable};

    /// A small generator of random numbers.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % n as u64) as usize
        }
    }

    /// Cuts an array into boxes at random.
    fn cut(block: Block, n: usize, random: &mut Random) -> Vec<Block> {
        let axis = random.below(block.extents.len().max(1));
        if n <= 1 || block.extents.get(axis).is_none_or(|n| *n < 2) {
            return vec![block];
        }
        let at = 1 + random.below(block.extents[axis] - 1);
        let (mut a, mut b) = (block.clone(), block);
        a.extents[axis] = at;
        b.start[axis] += at;
        b.extents[axis] -= at;
        [cut(a, n / 2, random), cut(b, n - n / 2, random)].concat()
    }

    /// All processes in one.
    struct Together<'a, T> {
        data: &'a [T],
        shape: &'a [usize],
        processes: Vec<Parts<'a, T>>,
    }

    impl<T: Element> Passes<T> for Together<'_, T> {
        fn n_values(&self) -> usize {
            self.data.len()
        }

        fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
            let mut all = FirstPass::default();
            let mut nan_index = u64::MAX;
            for parts in &self.processes {
                let FirstShare { mut pass, nan_index: index } = parts.first(skip, stride)?;
                all.range = joined(all.range, pass.range);
                all.counts = std::array::from_fn(|i| all.counts[i] + pass.counts[i]);
                all.samples.append(&mut pass.samples);
                if let Some(index) = index.filter(|index| *index < nan_index) {
                    (nan_index, all.first_nan) = (index, pass.first_nan);
                }
            }
            Ok(all)
        }

        fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
            let mut all = SecondPass { counts: [0; MAX_NAMED], range: None };
            for parts in &self.processes {
                let pass = parts.second(skip)?;
                all.range = joined(all.range, pass.range);
                all.counts = std::array::from_fn(|i| all.counts[i] + pass.counts[i]);
            }
            Ok(all)
        }

        fn counts(&self, values: &[T]) -> Result<Vec<u64>> {
            let mut sums = vec![0; values.len()];
            for parts in &self.processes {
                sums.iter_mut().zip(parts.counts(values)?).for_each(|(sum, n)| *sum += n);
            }
            Ok(sums)
        }
    }

    impl<T: Element> Shared<T> for Together<'_, T> {
        fn shape(&self) -> &[usize] {
            self.shape
        }

        fn read_box(&self, start: &[usize], extents: &[usize]) -> Result<Vec<T>> {
            let mut values = vec![T::default(); grid::n_values(extents)];
            SliceSource::new(self.data, self.shape)?.read_box(start, extents, &mut values)?;
            Ok(values)
        }

        fn all(&self, holds: &(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool> {
            self.processes.iter().try_fold(true, |all, parts| Ok(all & parts.all(holds)?))
        }
    }

    /// The stream that processes write together, each of which encodes some chunks.
    fn written_together<T: Element>(
        data: &[T],
        shape: &[usize],
        config: &Config,
        random: &mut Random,
    ) -> Result<Vec<u8>> {
        let (n_boxes, n_processes) = (1 + random.below(12), 1 + random.below(5));
        let boxes = cut(Block::whole(shape), n_boxes, random);
        let values: Vec<Vec<T>> = boxes
            .iter()
            .map(|block| {
                let mut values = vec![T::default(); block.n_values()];
                SliceSource::new(data, shape)?.read_box(&block.start, &block.extents, &mut values)?;
                Ok(values)
            })
            .collect::<Result<_>>()?;
        let processes = (0..n_processes)
            .map(|rank| {
                let mine = boxes.iter().zip(&values).skip(rank).step_by(n_processes);
                let mine = mine.map(|(block, values)| (&block.start[..], &block.extents[..], &values[..]));
                Parts::new(shape, mine, 1)
            })
            .collect::<Result<_>>()?;
        let chunks = Chunks::new::<T>(config, shape)?;
        let stream = SharedStream::new(config, &Together { data, shape, processes })?;
        let mut frames: Vec<Vec<u8>> = vec![Vec::new(); chunks.count() as usize];
        for rank in 0..n_processes {
            let ids: Vec<u64> = (0..chunks.count()).skip(rank).step_by(n_processes).collect();
            let mut order = ids.iter();
            let sizes = stream.encode(&SliceSource::new(data, shape)?, &ids, 2, |frame| {
                frames[*order.next().unwrap() as usize] = frame.to_vec();
                Ok(())
            })?;
            assert_eq!(sizes.len(), ids.len());
        }
        let mut bytes = [stream.head(), &frames.concat()].concat();
        let (tail, n_bytes) = stream.finish(frames.iter().map(|frame| frame.len() as u64))?;
        bytes.extend_from_slice(&tail);
        assert_eq!(n_bytes, bytes.len() as u64);
        Ok(bytes)
    }

    /// A smooth field with some special values.
    fn field<T: Element>(shape: &[usize], special: usize) -> Vec<T> {
        let mut values: Vec<T> =
            (0..grid::n_values(shape)).map(|i| T::from_f64((i as f64 * 0.003).sin() * 40.0 + (i % 7) as f64)).collect();
        let n = values.len();
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

    fn agrees<T: Element>() {
        let mut random = Random(11);
        let shapes: [&[usize]; 8] =
            [&[], &[0, 5], &[1], &[60_000], &[240, 250], &[30, 41, 50], &[6, 8, 25, 50], &[20, 30, 4]];
        let stable = |bound| Config::new(bound).preset(Preset::Small).stable(Stable::On);
        for (i, shape) in shapes.iter().cycle().take(72).enumerate() {
            let data: Vec<T> = field(shape, i % 5);
            let mut chunk_shape: Vec<usize> = shape.iter().map(|n| 1 + random.below((*n).max(1))).collect();
            // Framing may cost 0.1 %.
            let mut axis = 0;
            while axis < shape.len()
                && Chunks::new::<T>(&Config::new(ErrorBound::Lossless).chunk_shape(&chunk_shape), shape).is_err()
            {
                chunk_shape[axis] = shape[axis];
                axis += 1;
            }
            let region: Vec<_> = shape.iter().map(|n| 0..n.div_ceil(2)).collect();
            let config = match i % 9 {
                0 => Config::new(ErrorBound::Rel(1e-3)),
                1 => Config::new(ErrorBound::Abs(0.02)).preset(Preset::Fast),
                2 => Config::new(ErrorBound::PwRel(1e-3)).preset(Preset::Balanced),
                3 => Config::new(ErrorBound::Lossless),
                4 => stable(ErrorBound::Rel(1e-3)),
                5 => Config::new(ErrorBound::Rel(1e-2)).and(ErrorBound::PwRel(1e-2)),
                6 => Config::new(ErrorBound::Rel(1e-3)).fills(&[40.5, -999.0]).preset(Preset::Fast),
                7 if !shape.contains(&0) => Config::new(ErrorBound::Rel(1e-2)).region(&region, ErrorBound::Abs(1e-3)),
                _ => Config::new(ErrorBound::Rel(1e-4)).preset(Preset::Max),
            };
            // A codebook of these values, which serves some of their chunks.
            let config = match i % 9 {
                2 if !shape.contains(&0) => {
                    let mut trainer = CodebookTrainer::new();
                    trainer.add(&data, shape, &config).unwrap();
                    trainer.finish().map_or(config.clone(), |codebook| config.codebook(&codebook))
                }
                _ => config,
            };
            let config = if i % 3 > 0 && !shape.contains(&0) { config.chunk_shape(&chunk_shape) } else { config };
            // Values that are on a lattice already.
            let restored = compress(&data, shape, &config).and_then(|bytes| crate::decompress::<T>(&bytes)).unwrap();
            for data in [data, restored.data] {
                let expected = compress(&data, shape, &config).unwrap();
                let found = written_together(&data, shape, &config, &mut random).unwrap();
                assert!(found == expected, "{shape:?}, case {i}: {} bytes, not {}", found.len(), expected.len());
            }
        }
    }

    #[test]
    fn processes_write_together_what_one_writes() {
        agrees::<f32>();
        agrees::<f64>();
    }

    #[test]
    fn what_cannot_be_shared_is_refused() {
        let (data, shape) = ([1.0f32, 2.0, 3.0], [3]);
        let target = Config::new(ErrorBound::Ratio(10.0));
        let refused = written_together(&data, &shape, &target, &mut Random(1));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
        let parts = |start: usize, n: usize| Parts::new(&shape, [(&[start][..], &[n][..], &data[..2])], 1).map(|_| ());
        assert!(parts(1, 2).is_ok());
        assert!(parts(2, 2).is_err());
        assert!(parts(usize::MAX, 2).is_err());
        assert!(parts(0, 3).is_err());
    }
}
