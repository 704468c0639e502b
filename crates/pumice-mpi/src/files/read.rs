//! Reading boxes of a file. Header and index are read by one rank and sent to the others, since many thousand ranks that
//! read the same bytes would keep a file system busy.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::{self, Continuation, SharedRows};
use pumice::{DecodeOptions, Error, Info, ReadAt, Result};

use super::threads;
use crate::agreement::{agree, check_same};
use crate::collective::{broadcast, zeros};
use crate::local::{Block, LocalBoxMut, Value, check_boxes, invalid};
use crate::mpi_file::{Access, MpiFile};

/// Offset and size of a part of a file.
type Span = (u64, usize);

/// A Pumice file that all ranks of a communicator have open.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::DecodeOptions;
/// use pumice_mpi::{LocalBoxMut, Reader};
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let reader = Reader::open(&world, "field.pum", DecodeOptions::new())?;
/// // Each rank reads one row, with all others.
/// let (row, n) = (world.rank() as usize, reader.info().shape[1]);
/// let mut values = vec![0.0f32; n];
/// reader.read_all(&mut [LocalBoxMut { start: &[row, 0], extents: &[1, n], values: &mut values }])?;
/// // This one reads alone.
/// if row == 0 {
///     reader.read(&[5..6, 0..n], &mut values)?;
/// }
/// # Ok::<(), pumice::Error>(())
/// ```
pub struct Reader {
    comm: SimpleCommunicator,
    path: PathBuf,
    bytes: Bytes,
    reader: pumice::Reader<Bytes>,
}

impl Reader {
    /// Opens a file, together with all ranks.
    pub fn open(comm: &impl Communicator, path: impl AsRef<Path>, options: DecodeOptions) -> Result<Self> {
        let path = path.as_ref();
        let comm = comm.duplicate();
        check_same(&comm, &[("name of the file", path.display().to_string())])?;
        let with_path = |e: Error| e.context(path.display());
        let threads = threads(&comm, backend::decoding_threads_of(&options));
        let options = options.threads(threads);
        // What one rank reads to open the file is what all need for that.
        let read = if comm.rank() == 0 { Recorded::open(path, &options).map_err(with_path) } else { Ok(Vec::new()) };
        let mut head = agree(&comm, read)?;
        broadcast(&comm, 0, &mut head);
        let bytes = Bytes(Arc::new(Fetched::new(path, &head)));
        let reader = agree(&comm, pumice::Reader::new(bytes.clone(), options).map_err(with_path))?;
        Ok(Self { comm, path: path.into(), bytes, reader })
    }

    /// The rows of the file, and what to copy of it, to add more.
    pub(super) fn continued<T: Value>(&self) -> Result<(SharedRows<T>, Continuation)> {
        SharedRows::continuing(&self.reader)
    }

    /// The metadata of the file.
    pub fn info(&self) -> &Info {
        self.reader.info()
    }

    /// The ranks that have the file open, with messages of their own.
    pub fn communicator(&self) -> &SimpleCommunicator {
        &self.comm
    }

    /// Reads boxes, together with all ranks, each of which gives those that it wants: any, also such that others read too.
    pub fn read_all<T: Value>(&self, boxes: &mut [LocalBoxMut<'_, T>]) -> Result<()> {
        let spans = agree(&self.comm, self.spans(boxes))?;
        let n_bytes: usize = spans.iter().map(|(_, n)| n).sum();
        let mut bytes = agree(&self.comm, zeros(n_bytes))?;
        let file = MpiFile::open(&self.comm, &self.path, Access::Read);
        let read = file.and_then(|file| {
            let mut rest = &mut bytes[..];
            let read = spans.iter().try_for_each(|(offset, n)| {
                let (part, others) = std::mem::take(&mut rest).split_at_mut(*n);
                rest = others;
                file.read_at(*offset, part)
            });
            agree(&self.comm, read).and(file.close(false))
        });
        read.map_err(|e| e.context(self.path.display()))?;
        *self.bytes.0.frames.write().unwrap_or_else(PoisonError::into_inner) = Frames::new(spans, bytes);
        let decoded = boxes.iter_mut().try_for_each(|part| {
            let ranges: Vec<Range<usize>> =
                part.start.iter().zip(part.extents).map(|(start, n)| *start..start + n).collect();
            self.reader.read_region_into(&ranges, part.values)
        });
        *self.bytes.0.frames.write().unwrap_or_else(PoisonError::into_inner) = Frames::default();
        agree(&self.comm, decoded.map_err(|e| e.context(self.path.display())))
    }

    /// Reads a region, without the other ranks, to as many values.
    pub fn read<T: Value>(&self, region: &[Range<usize>], out: &mut [T]) -> Result<()> {
        self.reader.read_region_into(region, out).map_err(|e| e.context(self.path.display()))
    }

    /// Where the frames of some boxes are: ascending, and each once.
    fn spans<T: Value>(&self, boxes: &[LocalBoxMut<'_, T>]) -> Result<Vec<Span>> {
        let blocks: Vec<Block> = boxes.iter().map(|part| Block::new(part.start, part.extents)).collect();
        check_boxes(&self.info().shape, &blocks, true)?;
        let mut spans: Vec<Range<u64>> = Vec::new();
        for (block, part) in blocks.iter().zip(boxes) {
            if part.values.len() != block.n_values() {
                let (n, given) = (block.n_values(), part.values.len());
                return Err(invalid(format!("the box of {:?} has {n} values, but the output {given}", block.extents)));
            }
            let ranges: Vec<Range<usize>> = block.start.iter().zip(&block.extents).map(|(s, n)| *s..s + n).collect();
            spans.append(&mut backend::frame_spans(&self.reader, &ranges)?);
        }
        spans.sort_unstable_by_key(|span| span.start);
        spans.dedup();
        let mut joined: Vec<Span> = Vec::new();
        for Range { start, end } in spans {
            match joined.last_mut() {
                Some((offset, n)) if *offset + *n as u64 == start => *n += (end - start) as usize,
                _ => joined.push((start, (end - start) as usize)),
            }
        }
        Ok(joined)
    }
}

/// Parts of a file that are in memory.
#[derive(Default)]
struct Frames {
    /// Ascending: the offset in the file, the size, and the offset in `bytes`.
    spans: Vec<(u64, usize, usize)>,
    bytes: Vec<u8>,
}

impl Frames {
    fn new(spans: Vec<Span>, bytes: Vec<u8>) -> Self {
        let at = |sum: &mut usize, (offset, n): Span| Some((offset, n, std::mem::replace(sum, *sum + n)));
        Self { spans: spans.into_iter().scan(0, at).collect(), bytes }
    }

    fn get(&self, offset: u64, n: usize) -> Option<&[u8]> {
        let i = self.spans.partition_point(|(start, ..)| *start <= offset).checked_sub(1)?;
        let (start, length, at) = self.spans[i];
        let skipped = usize::try_from(offset - start).ok()?;
        (skipped.checked_add(n)? <= length).then(|| &self.bytes[at + skipped..at + skipped + n])
    }
}

/// The bytes of a file: those that were fetched come from memory, others from the file itself.
struct Fetched {
    path: PathBuf,
    n_bytes: u64,
    head: Frames,
    frames: RwLock<Frames>,
    /// Opened when this rank reads alone.
    file: OnceLock<File>,
}

impl Fetched {
    /// From what [`Recorded::open`] has returned on some rank.
    fn new(path: &Path, recorded: &[u8]) -> Self {
        let number = |i: usize| u64::from_le_bytes(recorded[8 * i..8 * i + 8].try_into().expect("8 bytes"));
        let n_spans = number(1) as usize;
        let spans = (0..n_spans).map(|i| (number(2 + 2 * i), number(3 + 2 * i) as usize)).collect();
        Self {
            path: path.into(),
            n_bytes: number(0),
            head: Frames::new(spans, recorded[8 * (2 + 2 * n_spans)..].to_vec()),
            frames: RwLock::default(),
            file: OnceLock::new(),
        }
    }

    fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = File::open(&self.path)?;
        Ok(self.file.get_or_init(|| file))
    }
}

#[derive(Clone)]
struct Bytes(Arc<Fetched>);

impl ReadAt for Bytes {
    fn len(&self) -> Result<u64> {
        Ok(self.0.n_bytes)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if let Some(bytes) = self.0.head.get(offset, buf.len()) {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        if let Some(bytes) = self.0.frames.read().unwrap_or_else(PoisonError::into_inner).get(offset, buf.len()) {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        self.0.file()?.read_exact_at(buf, offset)
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.0.head.get(offset, len)
    }
}

/// A file that notes what is read of it.
struct Recorded {
    file: File,
    spans: Mutex<Vec<Range<u64>>>,
}

impl Recorded {
    /// What is read of a file to open it: its size, the number of spans, offset and size of each, and their bytes.
    fn open(path: &Path, options: &DecodeOptions) -> Result<Vec<u8>> {
        let recorded = Self { file: File::open(path)?, spans: Mutex::default() };
        pumice::Reader::new(&recorded, options.clone())?;
        let mut spans = recorded.spans.into_inner().unwrap_or_else(PoisonError::into_inner);
        spans.sort_unstable_by_key(|span| span.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for span in spans {
            match joined.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => joined.push(span),
            }
        }
        let mut out = Vec::new();
        out.extend_from_slice(&recorded.file.len()?.to_le_bytes());
        out.extend_from_slice(&(joined.len() as u64).to_le_bytes());
        for span in &joined {
            out.extend_from_slice(&span.start.to_le_bytes());
            out.extend_from_slice(&(span.end - span.start).to_le_bytes());
        }
        for span in &joined {
            let mut bytes = zeros((span.end - span.start) as usize)?;
            recorded.file.read_exact_at(&mut bytes, span.start)?;
            out.append(&mut bytes);
        }
        Ok(out)
    }
}

impl ReadAt for Recorded {
    fn len(&self) -> Result<u64> {
        ReadAt::len(&self.file)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset)?;
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(offset..offset + buf.len() as u64);
        Ok(())
    }
}
