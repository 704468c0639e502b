//! Writes results to standard output, or to a file that appears under its name only when it is complete.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use pumice::{AtomicFile, Element};

use crate::cli::is_stdio;
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::npy;

/// Large enough to make the cost of system calls negligible.
const BUFFER_BYTES: usize = 1 << 20;

/// An output that is written from start to end.
pub(crate) struct Output {
    sink: Sink,
    path: PathBuf,
}

enum Sink {
    Stdout(BufWriter<Stdout>),
    /// A pipe or a device: written directly, as there is no file to replace.
    Stream(BufWriter<File>),
    File(BufWriter<AtomicFile>),
}

impl Output {
    /// `-` is standard output, which must not be a terminal.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let sink = if is_special(path) {
            let file = File::options().write(true).open(path).map_err(|e| at(path, &e))?;
            Sink::Stream(BufWriter::with_capacity(BUFFER_BYTES, file))
        } else if !is_stdio(path) {
            Sink::File(BufWriter::with_capacity(BUFFER_BYTES, create_file(path)?))
        } else if io::stdout().is_terminal() {
            return Err(
                Failure::invalid("binary data would go to the terminal").hint("name a file with -o, or pipe into one")
            );
        } else {
            Sink::Stdout(BufWriter::with_capacity(BUFFER_BYTES, io::stdout()))
        };
        Ok(Self { sink, path: path.into() })
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
        let written = match &mut self.sink {
            Sink::Stdout(out) => out.write(bytes),
            Sink::Stream(out) => out.write(bytes),
            Sink::File(out) => out.write(bytes),
        };
        written.map_err(|e| at(&self.path, &e))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.sink {
            Sink::Stdout(out) => out.flush(),
            Sink::Stream(out) => out.flush(),
            Sink::File(out) => out.flush(),
        };
        flushed.map_err(|e| at(&self.path, &e))
    }
}

/// Whether a path must be written in order: standard output, a pipe, a device, or an open file by its number, which the
/// shell wants to be written and not to be replaced.
pub(crate) fn is_stream(path: &Path) -> bool {
    is_stdio(path) || is_special(path)
}

fn is_special(path: &Path) -> bool {
    let is_number = ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder));
    is_number || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
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
    bytes: Vec<u8>,
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
            bytes: Vec::new(),
        })
    }

    /// Writes the values of one box.
    pub(crate) fn write_box<T: Element>(&mut self, region: &[Range<usize>], values: &[T]) -> pumice::Result<()> {
        self.bytes.clear();
        T::extend_le_bytes(values, &mut self.bytes);
        let size = T::DTYPE.size();
        let run_bytes = run_length(&self.shape, region) * size;
        if self.bytes.is_empty() {
            return Ok(());
        }
        for (run, start) in self.bytes.chunks_exact(run_bytes).zip(run_starts(&self.shape, region)) {
            self.file.write_all_at(run, self.data_offset + start * size as u64).map_err(|e| at(&self.path, &e))?;
        }
        Ok(())
    }

    /// Moves the file to its final name.
    pub(crate) fn commit(self) -> pumice::Result<()> {
        self.file.commit()
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
