//! Rows of an array that arrive over time and are shared out among processes: together they write the bytes that
//! [`Writer`](crate::Writer) writes, or that [`FileWriter::append`](crate::FileWriter::append) makes of a file.

use std::ops::Range;

use super::{Chunks, Passes};
use crate::codec::Element;
use crate::compress::file::{Continued, unchanged};
use crate::compress::frames::Job;
use crate::compress::{self, Summary};
use crate::container::StreamWriter;
use crate::container::header::Header;
use crate::decompress::Reader;
use crate::error::{Error, Result};
use crate::exec::Workers;
use crate::grid::{self, Grid};
use crate::io::{ReadAt, SliceSource, Source};
use crate::plan::{Config, Plan};

/// A stream to which processes add rows along the slowest axis. All of them have one, and it is the same, but for the
/// sizes of frames, which only one of them needs to know.
#[derive(Debug)]
pub struct SharedRows<T> {
    plan: Plan<T>,
    /// `None` until there are rows.
    stream: Option<StreamWriter>,
    /// Counts of what is there, on all processes.
    n_chunks: u64,
    n_rows: usize,
}

/// What a process does to continue a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Continuation {
    /// The bytes that the new file starts with.
    pub head: Vec<u8>,
    /// The bytes of the old file that follow.
    pub copied: Range<u64>,
    /// What to say of the file if no rows are added, so that it stays as it is.
    pub unchanged: Summary,
}

impl<T: Element> SharedRows<T> {
    /// An array whose trailing extents, `shape[1..]`, are `row_shape`. The bound must be one that
    /// [`Writer`](crate::Writer) takes.
    pub fn new(row_shape: &[usize], config: &Config) -> Result<Self> {
        let shape: Vec<usize> = std::iter::once(0).chain(row_shape.iter().copied()).collect();
        let rows = Self { plan: Plan::new(config, &shape, None)?, stream: None, n_chunks: 0, n_rows: 0 };
        rows.check_rows()
    }

    /// The array of a file, with its bound, fill values and chunk shape.
    pub fn continuing<R: ReadAt>(reader: &Reader<R>) -> Result<(Self, Continuation)> {
        let Continued { header, head, copied, stream } = Continued::new::<T, R>(reader)?;
        let (n_chunks, n_rows) = (stream.n_chunks(), stream.rows());
        let rows = Self { plan: header.plan(), stream: Some(stream), n_chunks, n_rows };
        Ok((rows.check_rows()?, Continuation { head, copied, unchanged: unchanged(reader.info()) }))
    }

    fn check_rows(self) -> Result<Self> {
        let row_shape = self.row_shape();
        match grid::checked_bytes(row_shape, size_of::<T>()) {
            None => Err(Error::invalid(format!("rows of shape {row_shape:?} are too large"))),
            Some(0) => Err(Error::invalid(format!("rows of shape {row_shape:?} have no values"))),
            Some(_) => Ok(self),
        }
    }

    /// Extents of a row.
    pub fn row_shape(&self) -> &[usize] {
        &self.plan.shape[1..]
    }

    /// Rows of a chunk. They are encoded together: all rows but the last ones are added in multiples of this.
    pub fn chunk_rows(&self) -> usize {
        self.plan.chunk_shape[0]
    }

    /// Whether the header is written, as it is after the first rows, and in a file that is continued.
    pub fn is_started(&self) -> bool {
        self.stream.is_some()
    }

    /// The header, given passes over the first rows: those of one chunk, or fewer if there are no more.
    pub fn start(&mut self, first_rows: &impl Passes<T>) -> Result<Vec<u8>> {
        if !self.plan.limit().is_lossless() {
            self.plan.choose_masks(first_rows)?;
        }
        let mut head = Vec::new();
        self.stream = Some(StreamWriter::start(&Header::new(&self.plan, false), &mut head)?);
        Ok(head)
    }

    /// The chunks of so many rows, as an array of their own.
    pub fn chunks(&self, n_rows: usize) -> Result<Chunks> {
        let mut shape = self.plan.shape.clone();
        shape[0] = n_rows;
        Ok(Chunks(Grid::new(&shape, &self.plan.chunk_shape, &shape[..1])?))
    }

    /// Encodes some of these chunks, the values of which `source` has, as [`SharedStream::encode`](super::SharedStream::encode)
    /// does. The stream must be started.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn encode(
        &self,
        chunks: &Chunks,
        source: &dyn Source<T>,
        ids: &[u64],
        threads: usize,
        put: impl FnMut(&[u8]) -> Result<()> + Send,
    ) -> Result<Vec<u64>> {
        let n_values = ids.iter().map(|id| chunks.0.chunk_values(*id)).sum();
        let workers = compress::workers_for(n_values, threads)?;
        let (first_id, first_row) = (self.n_chunks, self.n_rows);
        let job = Job { source, grid: &chunks.0, plan: &self.plan, first_id, first_row, progress: &|_| () };
        job.hand_over_some(&workers, ids, put)
    }

    /// Counts these chunks, which were written. The process that calls [`Self::finish`] gives the sizes of all frames, in
    /// the order of ids; others need not.
    pub fn add(&mut self, chunks: &Chunks, frame_bytes: impl IntoIterator<Item = u64>) {
        let n_rows = chunks.shape()[0];
        if let Some(stream) = &mut self.stream {
            stream.add_frames(frame_bytes, n_rows);
        }
        self.n_chunks += chunks.count();
        self.n_rows += n_rows;
    }

    /// What [`Writer::finish`](crate::Writer::finish) says of the stream, whose size is given.
    pub fn summary(&self, compressed_bytes: u64) -> Summary {
        let mut shape = self.plan.shape.clone();
        shape[0] = self.n_rows;
        compress::summary(&self.plan, &shape, compressed_bytes, self.n_chunks.max(1))
    }

    /// The bytes after the last frame, or those of a whole stream if there are no rows, and the size of the stream.
    pub fn finish(self) -> Result<(Vec<u8>, u64)> {
        let mut tail = Vec::new();
        let Some(stream) = self.stream.filter(|stream| stream.n_chunks() > 0) else {
            // An array without elements is always a single chunk.
            let source = SliceSource::new(&[], &self.plan.shape)?;
            let summary = compress::append_planned(&source, &self.plan, &Workers::Serial, &mut tail)?;
            return Ok((tail, summary.compressed_bytes));
        };
        if stream.n_chunks() != self.n_chunks {
            let (n, all) = (stream.n_chunks(), self.n_chunks);
            return Err(Error::invalid(format!("sizes of {n} of {all} frames were given")));
        }
        let n_bytes = stream.finish(&mut tail);
        Ok((tail, n_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Parts;
    use crate::compress::{FileWriter, Writer};
    use crate::decompress::DecodeOptions;
    use crate::plan::{ErrorBound, Preset};

    const ROW: [usize; 2] = [130, 70];

    fn rows(n: usize) -> Vec<f32> {
        let value = |i: usize| if i % 53 == 5 { -999.0 } else { (i as f32 * 0.01).sin() };
        (0..n * ROW[0] * ROW[1]).map(value).collect()
    }

    /// Passes over the values of one process, which are all.
    struct Alone<'a>(&'a [f32], Parts<'a, f32>);

    impl Passes<f32> for Alone<'_> {
        fn n_values(&self) -> usize {
            self.0.len()
        }

        fn first(&self, skip: &[f32], stride: usize) -> Result<crate::backend::FirstPass<f32>> {
            Ok(self.1.first(skip, stride)?.pass)
        }

        fn second(&self, skip: &[f32]) -> Result<crate::backend::SecondPass<f32>> {
            self.1.second(skip)
        }

        fn counts(&self, values: &[f32]) -> Result<Vec<u64>> {
            self.1.counts(values)
        }
    }

    /// Adds rows, the chunks of which two processes encode.
    fn add(shared: &mut SharedRows<f32>, values: &[f32], bytes: &mut Vec<u8>) {
        let n_rows = values.len() / (ROW[0] * ROW[1]);
        if n_rows == 0 {
            return;
        }
        if !shared.is_started() {
            let shape = [n_rows.min(shared.chunk_rows()), ROW[0], ROW[1]];
            let first = &values[..shape.iter().product()];
            let parts = Parts::new(&shape, [(&[0, 0, 0][..], &shape[..], first)], 1).unwrap();
            bytes.extend(shared.start(&Alone(first, parts)).unwrap());
        }
        let chunks = shared.chunks(n_rows).unwrap();
        let source = SliceSource::new(values, chunks.shape()).unwrap();
        let middle = chunks.count() / 2;
        let mut sizes = Vec::new();
        for ids in [0..middle, middle..chunks.count()] {
            let ids: Vec<u64> = ids.collect();
            let encoded = shared.encode(&chunks, &source, &ids, 1, |frame| {
                bytes.extend_from_slice(frame);
                Ok(())
            });
            sizes.extend(encoded.unwrap());
        }
        shared.add(&chunks, sizes);
    }

    #[test]
    fn rows_are_those_of_one_process() {
        let (n, n_first) = (ROW[0] * ROW[1], 23);
        let values = rows(40);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.pum");
        for config in [
            Config::new(ErrorBound::Abs(1e-3)).chunk_shape(&[4, 130, 70]),
            Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Small),
            Config::new(ErrorBound::Lossless).chunk_shape(&[8, 130, 70]).fills(&[-999.0]),
            Config::new(ErrorBound::Rel(1e-3)).range(-1.0, 1.0).chunk_shape(&[30, 130, 70]),
        ] {
            let mut writer = Writer::<f32, _>::new(Vec::new(), &ROW, &config).unwrap();
            writer.write_rows(&values[..n_first * n]).unwrap();
            let (expected, summary) = writer.finish().unwrap();
            let mut shared = SharedRows::new(&ROW, &config).unwrap();
            let mut bytes = Vec::new();
            let whole = n_first / shared.chunk_rows() * shared.chunk_rows();
            add(&mut shared, &values[..whole * n], &mut bytes);
            add(&mut shared, &values[whole * n..n_first * n], &mut bytes);
            let found = shared.summary(summary.compressed_bytes);
            let (tail, n_bytes) = shared.finish().unwrap();
            bytes.extend(tail);
            assert_eq!((bytes == expected, n_bytes), (true, expected.len() as u64));
            // As texts, since a fill value may be NaN.
            assert_eq!(format!("{found:?}"), format!("{summary:?}"));

            for old in [expected, crate::compress(&values[..5 * n], &[5, ROW[0], ROW[1]], &config).unwrap()] {
                std::fs::write(&path, &old).unwrap();
                let mut writer = FileWriter::<f32>::append(&path, 1).unwrap();
                writer.write_rows(&values[n_first * n..]).unwrap();
                let summary = writer.finish().unwrap();
                let (mut shared, start) =
                    SharedRows::continuing(&Reader::new(&old[..], DecodeOptions::new()).unwrap()).unwrap();
                let mut bytes = start.head;
                bytes.extend_from_slice(&old[start.copied.start as usize..start.copied.end as usize]);
                add(&mut shared, &values[n_first * n..], &mut bytes);
                let found = shared.summary(summary.compressed_bytes);
                let (tail, n_bytes) = shared.finish().unwrap();
                bytes.extend(tail);
                assert_eq!((bytes == std::fs::read(&path).unwrap(), n_bytes), (true, bytes.len() as u64));
                assert_eq!(format!("{found:?}"), format!("{summary:?}"));
            }
        }
    }

    #[test]
    fn what_cannot_be_streamed_is_refused() {
        let relative = SharedRows::<f32>::new(&ROW, &Config::new(ErrorBound::Rel(1e-3)));
        let target = SharedRows::<f32>::new(&ROW, &Config::new(ErrorBound::Ratio(10.0)));
        let empty = SharedRows::<f32>::new(&[3, 0], &Config::new(ErrorBound::Lossless));
        assert!(relative.is_err() && target.is_err() && empty.is_err());
        // No sizes were given.
        let lost = SharedRows::<f32>::new(&ROW, &Config::new(ErrorBound::Lossless)).map(|mut shared| {
            let chunks = shared.chunks(3).unwrap();
            let values = rows(3);
            add(&mut shared, &values, &mut Vec::new());
            shared.add(&chunks, []);
            shared.finish().is_err()
        });
        assert!(lost.unwrap());
    }
}
