//! Files to which rows are added over time, such as time steps.
//!
//! Rows are encoded when there are enough for whole chunks; what is left waits on the rank that gave it. So the file has the
//! bytes that one process writes, whatever rows are handed over together.

use std::ops::Range;
use std::path::{Path, PathBuf};

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::{self, SharedRows};
use pumice::{Config, DecodeOptions, Error, ErrorKind, Result, Summary};

use super::frames::Frames;
use super::partial::{PartialFile, Sync};
use super::read::Reader;
use super::threads;
use super::write::check_filled;
use crate::agreement::{agree, check_same};
use crate::collective::{reduce, zeros};
use crate::exchange::Owned;
use crate::local::{LocalBox, Value, invalid};
use crate::mpi_file::{Access, MpiFile};
use crate::passes::Everywhere;

/// Bytes of an old file that a rank copies at once.
const COPIED: usize = 16 << 20;

/// A Pumice file to which all ranks together add rows along axis 0, such as time steps: a new one, or one that is there.
/// It has the bytes that [`pumice::FileWriter`] makes of the same rows.
///
/// Nothing is readable under the name before [`finish`](Self::finish). A writer that is dropped before, or whose job is
/// killed, leaves the partial file, from which `pumice recover` saves the rows that were written; an old file stays as it was.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::{LocalBox, Writer};
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// // Each rank has 100 rows of a plane.
/// let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
/// let config = Config::new(ErrorBound::Abs(1e-3));
/// let mut writer = Writer::create(&world, "run.pum", &[100 * n_ranks, 500], &config)?;
/// for step in 0..10 {
///     let values = vec![step as f32; 100 * 500];
///     let mine = LocalBox { start: &[0, 100 * rank, 0], extents: &[1, 100, 500], values: &values };
///     writer.write_rows(1, &[mine])?;
/// }
/// writer.finish()?; // 10 x (100 n) x 500
/// # Ok::<(), pumice::Error>(())
/// ```
pub struct Writer<T> {
    comm: SimpleCommunicator,
    path: PathBuf,
    threads: usize,
    rows: SharedRows<T>,
    output: PartialFile,
    /// Where the next frame goes.
    end: u64,
    /// Boxes of rows that wait for their chunk to be full, which are so many.
    pending: Vec<Rows<Vec<T>>>,
    n_pending: usize,
    /// What to say if no rows are appended; the file then stays unchanged.
    unchanged: Option<Summary>,
    /// A write failed half-way, so that the file cannot be completed.
    is_broken: bool,
}

/// A box of rows.
struct Rows<V> {
    start: Vec<usize>,
    extents: Vec<usize>,
    values: V,
}

impl<T: Value> Writer<T> {
    /// A new file of an array whose trailing extents, `shape[1..]`, are `row_shape`, or one in the place of an old file.
    ///
    /// The bound must be known before the values are: an absolute one, one relative to each value, none, or one relative
    /// to a range that is given ([`Config::range`]).
    pub fn create(
        comm: &impl Communicator,
        path: impl AsRef<Path>,
        row_shape: &[usize],
        config: &Config,
    ) -> Result<Self> {
        let path = path.as_ref();
        let comm = comm.duplicate();
        check_same(
            &comm,
            &[
                ("type of values", T::DTYPE.to_string()),
                ("shape of a row", format!("{row_shape:?}")),
                ("bound or other options", format!("{:?}", config.clone().threads(0))),
                ("name of the file", path.display().to_string()),
            ],
        )?;
        let rows = agree(&comm, SharedRows::new(row_shape, config))?;
        let threads = threads(&comm, backend::threads_of(config));
        let output = PartialFile::create(&comm, path)?;
        Ok(Self::new(comm, path, threads, rows, output))
    }

    /// Adds rows to a file that exists, with its bound, fill values and chunk shape, on so many threads for each rank
    /// (0 = its share of the cores). The file is copied first, by all ranks: until [`finish`](Self::finish) it stays as it
    /// is. To add many steps with one writer costs one copy.
    pub fn append(comm: &impl Communicator, path: impl AsRef<Path>, threads: usize) -> Result<Self> {
        let path = path.as_ref();
        let comm = comm.duplicate();
        check_same(&comm, &[("type of values", T::DTYPE.to_string())])?;
        let old = Reader::open(&comm, path, DecodeOptions::new().threads(threads))?;
        let continued = old.continued::<T>().map_err(|e| e.context(path.display()));
        let (rows, start) = agree(&comm, continued)?;
        let threads = super::threads(&comm, threads);
        let output = PartialFile::create(&comm, path)?;
        let n_bytes = start.copied.end - start.copied.start;
        let copied = copy(&comm, path, &output, &start);
        if let Err(error) = copied {
            output.discard();
            return Err(error);
        }
        let mut writer = Self::new(comm, path, threads, rows, output);
        writer.end = start.head.len() as u64 + n_bytes;
        writer.unchanged = Some(start.unchanged);
        Ok(writer)
    }

    fn new(comm: SimpleCommunicator, path: &Path, threads: usize, rows: SharedRows<T>, output: PartialFile) -> Self {
        let (pending, n_pending) = (Vec::new(), 0);
        Self {
            comm,
            path: path.into(),
            threads,
            rows,
            output,
            end: 0,
            pending,
            n_pending,
            unchanged: None,
            is_broken: false,
        }
    }

    /// Trailing extents of the array.
    pub fn row_shape(&self) -> &[usize] {
        self.rows.row_shape()
    }

    /// The ranks that write the file, with messages of their own.
    pub fn communicator(&self) -> &SimpleCommunicator {
        &self.comm
    }

    /// Adds so many rows, together with all other ranks, whose boxes make them up. The boxes start at row 0, the first of
    /// these rows; a rank may have several, or none. What does not fill a chunk is copied, and written with rows that come
    /// later: to hold one step at a time, give chunks of one row ([`Config::chunk_shape`]).
    pub fn write_rows(&mut self, n_rows: usize, boxes: &[LocalBox<'_, T>]) -> Result<()> {
        self.check_usable()?;
        check_same(&self.comm, &[("number of rows", n_rows.to_string())])?;
        let shape = [&[n_rows], self.rows.row_shape()].concat();
        agree(&self.comm, check_filled(&shape, boxes))?;
        let n_before = self.n_pending;
        let total = n_before.checked_add(n_rows).ok_or_else(|| invalid("there are too many rows"))?;
        let whole = total - total % self.rows.chunk_rows();
        let new = boxes.iter().map(|part| {
            let mut new = Rows { start: part.start.to_vec(), extents: part.extents.to_vec(), values: part.values };
            new.start[0] += n_before;
            new
        });
        let new: Vec<Rows<&[T]>> = new.collect();
        if whole > 0 {
            let waiting = std::mem::take(&mut self.pending);
            let all: Vec<LocalBox<'_, T>> =
                waiting.iter().map(Rows::as_box).chain(new.iter().map(Rows::as_box)).collect();
            self.encode_rows(whole, &all)?;
        }
        // What waited was less than a chunk: none of it is left.
        let left = new.iter().filter_map(|part| Rows::of(&part.as_box(), whole..total)).map(|rows| rows.copied());
        let left = left.collect::<Result<Vec<_>>>();
        self.is_broken = true; // until all is copied
        self.pending.append(&mut agree(&self.comm, left)?);
        self.n_pending = total - whole;
        self.is_broken = false;
        Ok(())
    }

    /// Writes the rows that wait, index and footer, and puts the file in its place. All ranks get the same summary, or the
    /// same error, after which the partial file stays.
    pub fn finish(mut self) -> Result<Summary> {
        self.check_usable()?;
        if let Some(unchanged) = &self.unchanged
            && self.n_pending == 0
        {
            let unchanged = unchanged.clone();
            self.output.discard();
            return Ok(unchanged);
        }
        if self.n_pending > 0 {
            let pending = std::mem::take(&mut self.pending);
            let boxes: Vec<LocalBox<'_, T>> = pending.iter().map(Rows::as_box).collect();
            self.encode_rows(self.n_pending, &boxes)?;
        }
        let Self { comm, rows, output, end, .. } = self;
        let is_first = comm.rank() == 0;
        let mut summary = rows.summary(0);
        let ended = if is_first { rows.finish() } else { Ok((Vec::new(), 0)) };
        let (tail, n_bytes) = agree(&comm, ended)?;
        // The others have nothing to write, and 0 bytes.
        output.write(&comm, Sync::Yes, |file| agree(&comm, file.write_at(end, &tail)))?;
        // After an error, the partial file stays: it has the rows.
        output.end(&comm, Ok(()))?;
        [summary.compressed_bytes] = reduce(&comm, [n_bytes], SystemOperation::max());
        Ok(summary)
    }

    /// Encodes and writes rows that start a chunk; only the last ones may end within one. Boxes may have more rows.
    fn encode_rows(&mut self, n_rows: usize, boxes: &[LocalBox<'_, T>]) -> Result<()> {
        self.is_broken = true; // until all is written
        self.unchanged = None;
        let (comm, is_first) = (&self.comm, self.comm.rank() == 0);
        let rows: Vec<Rows<&[T]>> = boxes.iter().filter_map(|part| Rows::of(part, 0..n_rows)).collect();
        let boxes: Vec<LocalBox<'_, T>> = rows.iter().map(Rows::as_box).collect();
        let mut head = Vec::new();
        if !self.rows.is_started() {
            let n_first = n_rows.min(self.rows.chunk_rows());
            let first: Vec<Rows<&[T]>> = boxes.iter().filter_map(|part| Rows::of(part, 0..n_first)).collect();
            let first: Vec<LocalBox<'_, T>> = first.iter().map(Rows::as_box).collect();
            let shape = [&[n_first], self.rows.row_shape()].concat();
            let first = agree(comm, Everywhere::new(comm, &shape, &first, self.threads))?;
            head = agree(comm, self.rows.start(&first))?;
            self.end = head.len() as u64;
        }
        let chunks = agree(comm, self.rows.chunks(n_rows))?;
        let owned = Owned::gather(comm, &chunks, &boxes)?;
        let frames =
            Frames::collect(owned.ids.clone(), |ids, put| self.rows.encode(&chunks, &owned, ids, self.threads, put));
        let frames = agree(comm, frames)?;
        let offsets = frames.offsets(comm, chunks.count(), self.end)?;
        let run = frames.to_writers(comm, &offsets, self.end)?;
        self.output.write(comm, Sync::No, |file| {
            agree(comm, if is_first { file.write_at(0, &head) } else { Ok(()) })?;
            agree(comm, run.iter().try_for_each(|(offset, bytes)| file.write_at(*offset, bytes)))
        })?;
        self.end = offsets.end;
        self.rows.add(&chunks, offsets.all_sizes);
        self.is_broken = false;
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        if self.is_broken {
            let path = self.path.display();
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{path}: an earlier write failed, and the file cannot be completed; `pumice recover` saves its rows"
                ),
            ));
        }
        Ok(())
    }
}

impl<'a, T: Value> Rows<&'a [T]> {
    /// What a box has of some rows, with starts that count from the first of them; `None` if it has nothing.
    fn of(part: &LocalBox<'a, T>, rows: Range<usize>) -> Option<Self> {
        let first = part.start[0].max(rows.start);
        let n = (part.start[0] + part.extents[0]).min(rows.end).checked_sub(first).filter(|n| *n > 0)?;
        let row_values = part.values.len() / part.extents[0];
        let values = &part.values[(first - part.start[0]) * row_values..][..n * row_values];
        let (mut start, mut extents) = (part.start.to_vec(), part.extents.to_vec());
        start[0] = first - rows.start;
        extents[0] = n;
        Some(Self { start, extents, values })
    }

    fn copied(self) -> Result<Rows<Vec<T>>> {
        let mut values = zeros(self.values.len())?;
        values.copy_from_slice(self.values);
        Ok(Rows { start: self.start, extents: self.extents, values })
    }
}

impl<V> Rows<V> {
    fn as_box<T>(&self) -> LocalBox<'_, T>
    where
        V: AsRef<[T]>,
    {
        LocalBox { start: &self.start, extents: &self.extents, values: self.values.as_ref() }
    }
}

/// Copies what stays of an old file, each rank a part of it.
fn copy(comm: &SimpleCommunicator, old: &Path, output: &PartialFile, start: &backend::Continuation) -> Result<()> {
    let n_bytes = start.copied.end - start.copied.start;
    let per_rank = n_bytes.div_ceil(comm.size() as u64);
    let first = (per_rank * comm.rank() as u64).min(n_bytes);
    let mine = first..(first + per_rank).min(n_bytes);
    let head_bytes = start.head.len() as u64;
    let from = MpiFile::open(comm, old, Access::Read).map_err(|e| e.context(old.display()))?;
    let copied = output.write(comm, Sync::No, |to| {
        agree(comm, if comm.rank() == 0 { to.write_at(0, &start.head) } else { Ok(()) })?;
        let copied = zeros::<u8>(COPIED.min((mine.end - mine.start) as usize)).and_then(|mut buffer| {
            let mut at = mine.start;
            while at < mine.end {
                let part = (mine.end - at).min(buffer.len() as u64);
                let bytes = &mut buffer[..part as usize];
                from.read_at(start.copied.start + at, bytes)?;
                to.write_at(head_bytes + at, bytes)?;
                at += part;
            }
            Ok(())
        });
        agree(comm, copied)
    });
    let closed = from.close(false);
    copied.and(closed)
}
