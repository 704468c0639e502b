//! Fields of a snapshot, and their values on the way to a file: captured block by block, encoded in any order.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::buffers::{Buffers, lock, no_memory};
use pumice::backend::{Chunks, Corner, FirstPass, Parts, Passes, SecondPass, Shared, SharedStream, copy_box};
use pumice::{Config, Element, Error, ErrorKind, Result, SliceSource, Source, Summary};

/// An array of a snapshot. Its chunks are the blocks that are compressed one by one.
#[derive(Debug)]
pub struct Field<'a> {
    name: String,
    values: Box<dyn Values + 'a>,
}

impl<'a> Field<'a> {
    /// An array of this shape in C order. [`Config::chunk_shape`] is the shape of blocks; [`block_shape`] gives one of a
    /// certain size.
    ///
    /// # Errors
    /// If shape and values do not fit, or chunks and shape; or if the config asks for a target, which needs a search over the
    /// whole array.
    pub fn new<T: Element>(name: impl Into<String>, values: &'a [T], shape: &[usize], config: &Config) -> Result<Self> {
        let name = name.into();
        let within = |e: Error| e.context(format!("field {name}"));
        if let Some(target) = config.bounds().iter().find(|bound| bound.kind().is_target()) {
            let message =
                format!("{target} is a target, for which the whole array is compressed several times: give a bound");
            return Err(within(Error::unsupported(message)));
        }
        let source = SliceSource::new(values, shape).map_err(within)?;
        let chunks = Chunks::new::<T>(config, shape).map_err(within)?;
        Ok(Self { name, values: Box::new(Array { source, n_values: values.len(), chunks, config: config.clone() }) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of its values.
    pub(crate) fn value_bytes(&self) -> usize {
        self.values.value_bytes()
    }

    pub(crate) fn capture(&self, buffers: &Arc<Buffers>) -> Result<Box<dyn Captured>> {
        self.values.capture(buffers)
    }
}

/// The shape of blocks of about so many bytes, for arrays of this shape: the longest axis is halved until they are small
/// enough, and the fastest one only down to runs of 256 values, unless nothing else is left.
///
/// ```
/// assert_eq!(pumice_schedule::block_shape::<f32>(&[100, 256, 256], 1 << 20), [25, 32, 256]);
/// ```
pub fn block_shape<T>(shape: &[usize], bytes: usize) -> Vec<usize> {
    /// Shorter runs of memory are slow to copy and to predict along.
    const LEAST_RUN: usize = 256;
    let mut block: Vec<usize> = shape.iter().map(|n| (*n).max(1)).collect();
    let size = |block: &[usize]| block.iter().fold(size_of::<T>(), |n, extent| n.saturating_mul(*extent));
    while size(&block) > bytes {
        let last = block.len().saturating_sub(1);
        // Of equal axes the slowest, so that runs of memory stay long.
        let longest = (0..block.len())
            .filter(|axis| block[*axis] > if *axis == last && last > 0 { LEAST_RUN } else { 1 })
            .max_by_key(|axis| (block[*axis], std::cmp::Reverse(*axis)));
        match longest.or_else(|| (0..block.len()).find(|axis| block[*axis] > 1)) {
            Some(axis) => block[axis] = block[axis].div_ceil(2),
            None => break,
        }
    }
    block
}

trait Values: std::fmt::Debug {
    fn value_bytes(&self) -> usize;
    fn capture(&self, buffers: &Arc<Buffers>) -> Result<Box<dyn Captured>>;
}

#[derive(Debug)]
struct Array<'a, T> {
    source: SliceSource<'a, T>,
    n_values: usize,
    chunks: Chunks,
    config: Config,
}

impl<T: Element> Values for Array<'_, T> {
    fn value_bytes(&self) -> usize {
        self.n_values * size_of::<T>()
    }

    fn capture(&self, buffers: &Arc<Buffers>) -> Result<Box<dyn Captured>> {
        let mut blocks = Vec::new();
        for id in 0..self.chunks.count() {
            let block = self.chunks.get(id);
            let n = block.n_values();
            let mut values: Vec<T> = buffers.take(n)?;
            match self.source.contiguous(&block.start, &block.extents) {
                Some(run) => values.extend_from_slice(run),
                None => {
                    values.resize(n, T::default());
                    self.source.read_box(&block.start, &block.extents, &mut values)?;
                }
            }
            blocks.push(Mutex::new(values));
        }
        Ok(Box::new(CapturedArray {
            chunks: self.chunks.clone(),
            config: self.config.clone(),
            blocks,
            stream: RwLock::new(None),
            buffers: buffers.clone(),
        }))
    }
}

/// The values of a field at the time of a snapshot, and the file that becomes of them. It has the bytes that
/// [`pumice::compress`] makes, in whatever order the blocks are encoded.
pub(crate) trait Captured: Send + Sync {
    fn n_blocks(&self) -> usize;

    /// Size of the values of a block.
    fn block_bytes(&self, block: usize) -> usize;

    /// Looks through all values, and returns the first bytes of the file. Must be called first.
    fn open(&self) -> Result<Vec<u8>>;

    /// Encodes a block and frees its values. Returns its bytes in the file.
    fn encode(&self, block: usize) -> Result<Vec<u8>>;

    /// The last bytes of the file, given the sizes of all encoded blocks.
    fn finish(&self, sizes: &[u64]) -> Result<(Vec<u8>, Summary)>;
}

struct CapturedArray<T> {
    chunks: Chunks,
    config: Config,
    blocks: Vec<Mutex<Vec<T>>>,
    stream: RwLock<Option<SharedStream<T>>>,
    buffers: Arc<Buffers>,
}

/// What happens if blocks are used before `open` or after `finish`.
fn not_open() -> Error {
    Error::new(ErrorKind::InvalidArgument, "the field is not open: this is an error of pumice-schedule, report it")
}

impl<T: Element> Captured for CapturedArray<T> {
    fn n_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn block_bytes(&self, block: usize) -> usize {
        self.chunks.get(block as u64).n_values() * size_of::<T>()
    }

    fn open(&self) -> Result<Vec<u8>> {
        let guards: Vec<MutexGuard<'_, Vec<T>>> = self.blocks.iter().map(lock).collect();
        let boxes: Vec<_> = (0..self.chunks.count()).map(|id| self.chunks.get(id)).collect();
        let parts =
            boxes.iter().zip(&guards).map(|(block, values)| (&block.start[..], &block.extents[..], &values[..]));
        let parts = Parts::new(self.chunks.shape(), parts, 1)?;
        let all = AllBlocks { chunks: &self.chunks, values: &guards, parts };
        let stream = SharedStream::new(&self.config, &all)?;
        let head = stream.head().to_vec();
        *self.stream.write().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        Ok(head)
    }

    fn encode(&self, block: usize) -> Result<Vec<u8>> {
        let stream = self.stream.read().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.as_ref().ok_or_else(not_open)?;
        let values = std::mem::take(&mut *lock(&self.blocks[block]));
        let source = OneBlock { chunks: &self.chunks, id: block as u64, values: &values };
        let mut frame = Vec::new();
        stream.encode(&source, &[block as u64], 1, |bytes| {
            frame.try_reserve_exact(bytes.len()).map_err(|_| no_memory(bytes.len()))?;
            frame.extend_from_slice(bytes);
            Ok(())
        })?;
        self.buffers.give(values);
        Ok(frame)
    }

    fn finish(&self, sizes: &[u64]) -> Result<(Vec<u8>, Summary)> {
        let stream = self.stream.write().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(not_open)?;
        let mut summary = stream.summary(0);
        let (tail, n_bytes) = stream.finish(sizes.iter().copied())?;
        summary.compressed_bytes = n_bytes;
        Ok((tail, summary))
    }
}

/// The blocks of an array as what decisions are made from.
struct AllBlocks<'a, 'b, T> {
    chunks: &'a Chunks,
    values: &'a [MutexGuard<'b, Vec<T>>],
    parts: Parts<'a, T>,
}

impl<T: Element> Passes<T> for AllBlocks<'_, '_, T> {
    fn n_values(&self) -> usize {
        self.values.iter().map(|values| values.len()).sum()
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        Ok(self.parts.first(skip, stride)?.pass)
    }

    fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        self.parts.second(skip)
    }

    fn counts(&self, values: &[T]) -> Result<Vec<u64>> {
        self.parts.counts(values)
    }
}

impl<T: Element> Shared<T> for AllBlocks<'_, '_, T> {
    fn shape(&self) -> &[usize] {
        self.chunks.shape()
    }

    fn read_box(&self, start: &[usize], extents: &[usize]) -> Result<Vec<T>> {
        let mut out = vec![T::default(); extents.iter().product()];
        for id in self.chunks.in_box(start, extents)? {
            let block = self.chunks.get(id);
            let axes = 0..start.len();
            let from: Vec<usize> = axes.clone().map(|a| start[a].max(block.start[a])).collect();
            let end = |a: usize| (start[a] + extents[a]).min(block.start[a] + block.extents[a]);
            let common: Vec<usize> = axes.clone().map(|a| end(a) - from[a]).collect();
            let there: Vec<usize> = axes.clone().map(|a| from[a] - block.start[a]).collect();
            let here: Vec<usize> = axes.map(|a| from[a] - start[a]).collect();
            let source = Corner { shape: &block.extents, start: &there };
            copy_box(&self.values[id as usize], source, &mut out, Corner { shape: extents, start: &here }, &common);
        }
        Ok(out)
    }

    fn all(&self, holds: &(dyn Fn(&[T]) -> bool + Sync)) -> Result<bool> {
        self.parts.all(holds)
    }
}

/// An array of which only one block is there.
struct OneBlock<'a, T> {
    chunks: &'a Chunks,
    id: u64,
    values: &'a [T],
}

impl<T: Element> Source<T> for OneBlock<'_, T> {
    fn shape(&self) -> &[usize] {
        self.chunks.shape()
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        out.copy_from_slice(self.contiguous(start, extents).ok_or_else(not_open)?);
        Ok(())
    }

    fn contiguous(&self, start: &[usize], extents: &[usize]) -> Option<&[T]> {
        let block = self.chunks.get(self.id);
        (block.start == start && block.extents == extents).then_some(self.values)
    }
}
