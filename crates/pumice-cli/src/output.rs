//! Writes results to standard output, or to a file that appears under its name only when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pumice::{AtomicFile, Element};

use crate::cli::is_stdio;
use crate::descriptor;
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::npy;

/// Large enough to make the cost of system calls negligible.
const BUFFER_BYTES: usize = 1 << 18;

/// An output that is written from start to end.
pub(crate) struct Output {
    sink: Sink,
    path: PathBuf,
    pieces: Pieces,
}

enum Sink {
    Stdout(BufWriter<Stdout>),
    /// A pipe, a device, or what the caller has opened: written directly, as there is no file to replace.
    Stream(BufWriter<File>),
    File(BufWriter<AtomicFile>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::Stream(out) => out.write(bytes),
            Self::File(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::Stream(out) => out.flush(),
            Self::File(out) => out.flush(),
        }
    }
}

impl Output {
    /// `-` is standard output, which must not be a terminal.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let sink = if is_stdout(path) {
            if io::stdout().is_terminal() {
                return Err(Failure::invalid("binary data would go to the terminal")
                    .hint("name a file with -o, or pipe into one"));
            }
            Sink::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()))
        } else if is_stream(path) {
            let file = match descriptor::number(path) {
                Some(number) => descriptor::open(number),
                None => File::options().write(true).open(path),
            };
            Sink::Stream(BufWriter::with_capacity(BUFFER_BYTES, file.map_err(|e| at(path, &e))?))
        } else {
            Sink::File(BufWriter::with_capacity(BUFFER_BYTES, create_file(path)?))
        };
        Ok(Self { sink, path: path.into(), pieces: Pieces::new() })
    }

    /// Writes values as a raw file has them.
    pub(crate) fn write_values<T: Element>(&mut self, values: &[T]) -> io::Result<()> {
        let written = self.pieces.for_each(values, |bytes| self.sink.write_all(bytes));
        written.map_err(|e| at(&self.path, &e))
    }

    /// Flushes the buffer; returns the path under which the file can be read before it is committed.
    pub(crate) fn written(&mut self) -> Result<&Path> {
        self.flush()?;
        match &self.sink {
            Sink::File(out) => Ok(out.get_ref().temporary_path()),
            Sink::Stdout(_) | Sink::Stream(_) => {
                Err(Failure::invalid(format!("{} cannot be read back", self.path.display())))
            }
        }
    }

    /// Writes the first bytes of a file again, such as a header that was not known at first.
    pub(crate) fn rewrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        self.flush()?;
        match &self.sink {
            Sink::File(out) => Ok(out.get_ref().write_all_at(bytes, 0).map_err(|e| at(&self.path, &e))?),
            Sink::Stdout(_) | Sink::Stream(_) => {
                Err(Failure::invalid(format!("the start of {} cannot be written again", self.path.display())))
            }
        }
    }

    /// Flushes the buffer and moves a file to its final name.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.flush()?;
        match self.sink {
            Sink::Stdout(_) | Sink::Stream(_) => Ok(()),
            Sink::File(out) => Ok(out.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes).map_err(|e| at(&self.path, &e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush().map_err(|e| at(&self.path, &e))
    }
}

/// Whether a path must be written in order: standard output, a pipe, a device, or an open file by its number, which the
/// shell wants to be written and not to be replaced.
pub(crate) fn is_stream(path: &Path) -> bool {
    let is_special = || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
    is_stdio(path) || descriptor::number(path).is_some() || is_special()
}

/// Whether a path is standard output, by any of its names.
pub(crate) fn is_stdout(path: &Path) -> bool {
    is_stdio(path) || descriptor::number(path) == Some(1)
}

/// Prefixes an error with its file. The kind stays, so that a closed pipe is still recognised.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

/// A file that replaces an existing one only when it is committed.
pub(crate) fn create_file(path: &Path) -> Result<AtomicFile> {
    Ok(AtomicFile::create(path).map_err(|e| e.context("cannot write"))?)
}

/// Fails if input and output are the same file.
pub(crate) fn refuse_same_file(input: &Path, output: &Path) -> Result<()> {
    if is_stdio(input) || is_stdio(output) {
        return Ok(());
    }
    match (input.canonicalize(), output.canonicalize()) {
        (Ok(a), Ok(b)) if a == b => Err(Failure::invalid(format!("{} is both input and output", input.display()))),
        _ => Ok(()),
    }
}

/// Whether an array is written with a `.npy` header.
pub(crate) fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"))
}

/// The bytes before the values: a header for `.npy`, nothing for raw files.
pub(crate) fn header_for(path: &Path, layout: &Layout) -> Vec<u8> {
    if is_npy(path) { npy::header_bytes(layout) } else { Vec::new() }
}

/// An array in a file, written box by box in any order.
pub(crate) struct ArrayFile {
    path: PathBuf,
    file: AtomicFile,
    data_offset: u64,
    shape: Vec<usize>,
    pieces: Pieces,
}

impl ArrayFile {
    /// Raw, or `.npy` by the extension.
    pub(crate) fn create(path: &Path, layout: &Layout) -> Result<Self> {
        if is_stream(path) {
            return Err(Failure::invalid(format!("{} cannot be written out of order", path.display()))
                .hint("name a file with -o"));
        }
        let header = header_for(path, layout);
        let file = create_file(path)?;
        file.write_all_at(&header, 0).map_err(|e| at(path, &e))?;
        Ok(Self {
            path: path.into(),
            file,
            data_offset: header.len() as u64,
            shape: layout.shape.clone(),
            pieces: Pieces::new(),
        })
    }

    /// Writes the values of one box.
    pub(crate) fn write_box<T: Element>(&mut self, region: &[Range<usize>], values: &[T]) -> pumice::Result<()> {
        let write = |bytes: &mut [u8], offset| self.file.write_all_at(bytes, self.data_offset + offset);
        Ok(self.pieces.for_each_of_box(&self.shape, region, values, write).map_err(|e| at(&self.path, &e))?)
    }

    /// Moves the file to its final name.
    pub(crate) fn commit(self) -> pumice::Result<()> {
        self.file.commit()
    }
}

/// Turns values into little-endian bytes, a piece at a time. It needs no further memory, of which there may be little
/// once the values are there.
pub(crate) struct Pieces(Vec<u8>);

impl Pieces {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(BUFFER_BYTES))
    }

    /// Calls `write` with the bytes of each piece.
    fn for_each<T: Element, E>(
        &mut self,
        values: &[T],
        mut write: impl FnMut(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        values.chunks(BUFFER_BYTES / size_of::<T>()).try_for_each(|piece| {
            self.0.clear();
            T::extend_le_bytes(piece, &mut self.0);
            write(&mut self.0)
        })
    }

    /// Calls `write` with the bytes of each piece of a box, and their offset in an array of this shape.
    pub(crate) fn for_each_of_box<T: Element, E>(
        &mut self,
        shape: &[usize],
        region: &[Range<usize>],
        values: &[T],
        mut write: impl FnMut(&mut [u8], u64) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if values.is_empty() {
            return Ok(());
        }
        for (run, start) in values.chunks_exact(run_length(shape, region)).zip(run_starts(shape, region)) {
            let mut offset = start * size_of::<T>() as u64;
            self.for_each(run, |bytes| {
                write(bytes, offset)?;
                offset += bytes.len() as u64;
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// How many values of a box are contiguous in the array: full trailing axes, and a part of the axis before them.
///
/// This and `run_starts` are for files, whose offsets may exceed `usize`; for arrays in memory there is
/// `pumice::backend::for_each_run`.
pub(crate) fn run_length(shape: &[usize], region: &[Range<usize>]) -> usize {
    region[outer_rank(shape, region)..].iter().fold(1, |n: usize, range| n.saturating_mul(range.len()))
}

/// The number of leading axes along which the box is not contiguous.
fn outer_rank(shape: &[usize], region: &[Range<usize>]) -> usize {
    let n_full = shape.iter().zip(region).rev().take_while(|(extent, range)| range.len() == **extent).count();
    shape.len().saturating_sub(n_full + 1)
}

/// The offset in the array of each contiguous run of the box, in order.
pub(crate) fn run_starts(shape: &[usize], region: &[Range<usize>]) -> impl Iterator<Item = u64> {
    let outer = outer_rank(shape, region);
    let mut strides = vec![1u64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as u64;
    }
    let base: u64 = region.iter().zip(&strides).map(|(range, stride)| range.start as u64 * stride).sum();
    let walked: Vec<(usize, u64)> = region[..outer].iter().map(ExactSizeIterator::len).zip(strides).collect();
    let n_runs = walked.iter().fold(1, |n: usize, (extent, _)| n.saturating_mul(*extent));
    (0..n_runs).map(move |mut run| {
        walked.iter().rev().fold(base, |at, (extent, stride)| {
            let index = (run % extent) as u64;
            run /= extent;
            at + index * stride
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(shape: &[usize], region: &[Range<usize>]) -> (usize, Vec<u64>) {
        (run_length(shape, region), run_starts(shape, region).collect())
    }

    #[test]
    fn full_trailing_axes_join_into_one_run() {
        assert_eq!(runs(&[4, 3, 5], &[0..4, 0..3, 0..5]), (60, vec![0]));
        assert_eq!(runs(&[4, 3, 5], &[1..3, 0..3, 0..5]), (30, vec![15]));
        assert_eq!(runs(&[4, 3, 5], &[1..3, 1..2, 0..5]), (5, vec![20, 35]));
        assert_eq!(runs(&[4, 3, 5], &[0..2, 1..3, 2..4]), (2, vec![7, 12, 22, 27]));
        assert_eq!(runs(&[7], std::slice::from_ref(&(2..5))), (3, vec![2]));
        assert_eq!(runs(&[], &[]), (1, vec![0]));
    }
}
