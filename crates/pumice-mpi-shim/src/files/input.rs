//! Pumice files that the program reads as if they held the bytes of the array.

use std::ops::Range;
use std::path::Path;

use mpi::topology::SimpleCommunicator;
use mpi_sys as ffi;
use pumice::{DType, DecodeOptions};
use pumice_mpi::{LocalBoxMut, Reader, Value};

use super::old::header;
use super::{Direction, Failure, Place, Result, Transfer};
use crate::boxes::{Block, Run, blocks, joined};
use crate::config::FileRule;
use crate::datatype::Layout;
use crate::memory::{bytes_of, spread, swap, zeros};
use crate::report;
use crate::view::View;

pub(super) const NO_SHARED_POINTER: &str =
    "compressed files are not read by the shared file pointer; decompress the file first";

pub(super) struct Input {
    reader: Reader,
    /// Bytes in front of the array.
    header: Vec<u8>,
    dtype: DType,
    is_swapped: bool,
    size: u64,
    /// The chunk that was read last, for programs that read row by row.
    chunk: Option<(Block, Vec<u8>)>,
}

/// Where a transfer reads, and how much of it there is.
struct Wanted {
    layout: Layout,
    runs: Vec<Run>,
    n_bytes: u64,
}

impl Input {
    pub(super) fn open(comm: &SimpleCommunicator, path: &Path, rule: &FileRule) -> Result<Self> {
        let reader = Reader::open(comm, path, DecodeOptions::new())?;
        let info = reader.info();
        if info.dtype != rule.dtype || !matches!(info.dtype, DType::F32 | DType::F64) {
            let message = format!("it has values of the type {}, but the rule says {}", info.dtype, rule.dtype);
            return Err(Failure::unsupported(message));
        }
        if info.shape.is_empty() {
            return Err(Failure::unsupported("it has no axes"));
        }
        let header = header(info)?;
        let (dtype, size) = (info.dtype, header.len() as u64 + info.raw_bytes);
        Ok(Self { reader, header, dtype, is_swapped: rule.is_swapped, size, chunk: None })
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Reads; returns the number of bytes.
    pub(super) fn transfer(&mut self, view: &View, transfer: &Transfer) -> Result<u64> {
        let wanted = self.wanted(view, transfer);
        // A rank that fails still takes part in what all do together.
        let runs = wanted.as_ref().map_or(&[][..], |wanted| &wanted.runs);
        let bytes = match self.dtype {
            DType::F64 => self.read::<f64>(runs, transfer.is_collective),
            _ => self.read::<f32>(runs, transfer.is_collective),
        };
        let (wanted, bytes) = (wanted?, bytes?);
        // SAFETY: MPI wants a buffer that has the items which are read.
        unsafe { spread(&bytes, transfer.memory.buffer, &wanted.layout) };
        if transfer.place == Place::Pointer {
            let units = (wanted.n_bytes / view.etype()) as ffi::MPI_Offset;
            // SAFETY: a handle of the program.
            let code = unsafe { ffi::PMPI_File_seek(transfer.fh, units, ffi::MPI_SEEK_CUR as i32) };
            super::output::check(code)?;
        }
        report::read(wanted.n_bytes);
        Ok(wanted.n_bytes)
    }

    fn wanted(&self, view: &View, transfer: &Transfer) -> Result<Wanted> {
        if transfer.direction == Direction::Write {
            return Err(Failure::new(ffi::MPI_ERR_READ_ONLY, "it is open for reading only"));
        }
        if transfer.place == Place::Shared {
            return Err(Failure::unsupported(NO_SHARED_POINTER));
        }
        let (mut runs, layout) = super::output::runs(view, transfer)?.map_err(Failure::unsupported)?;
        // The file ends where it ends.
        for run in &mut runs {
            run.len = run.len.min(self.size.saturating_sub(run.start));
        }
        runs.retain(|run| run.len > 0);
        let n_bytes = runs.iter().map(|run| run.len).sum();
        Ok(Wanted { layout, runs, n_bytes })
    }

    /// The bytes of these runs of the file, one after the other.
    fn read<T: Value>(&mut self, runs: &[Run], is_collective: bool) -> Result<Vec<u8>> {
        let (header, value_bytes) = (self.header.len() as u64, size_of::<T>() as u64);
        let shape = self.reader.info().shape.clone();
        let of_values = runs.iter().filter(|run| run.end() > header).map(|run| {
            let start = (run.start.max(header) - header) / value_bytes;
            Run { start, len: (run.end() - header).div_ceil(value_bytes) - start }
        });
        let value_runs = joined(of_values.collect());
        // Values of all runs, one after the other, and how many come before each run.
        let before: Vec<u64> = value_runs
            .iter()
            .scan(0, |sum, run| {
                *sum += run.len;
                Some(*sum - run.len)
            })
            .collect();
        let flat = zeros::<u8>(value_runs.iter().map(|run| run.len * value_bytes).sum::<u64>() as usize);
        let place = |value: u64| {
            let i = value_runs.partition_point(|run| run.start <= value) - 1;
            ((before[i] + value - value_runs[i].start) * value_bytes) as usize
        };
        let is_wanted = !value_runs.is_empty() && flat.is_ok();
        let wanted = if is_wanted { blocks(&shape, &value_runs) } else { Vec::new() };
        let decoded = self.decode::<T>(wanted, is_collective);
        let mut flat = flat?;
        for (block, bytes) in decoded? {
            for (row, values) in
                block.rows(&shape).zip(bytes.chunks_exact(block.extents[shape.len() - 1] * size_of::<T>()))
            {
                let at = place(row.start);
                flat[at..at + values.len()].copy_from_slice(values);
            }
        }
        if self.is_swapped {
            swap(&mut flat, size_of::<T>());
        }
        let mut out = Vec::new();
        for run in runs {
            let in_header = run.start.min(header)..run.end().min(header);
            out.extend_from_slice(&self.header[in_header.start as usize..in_header.end as usize]);
            if run.end() > header {
                let start = run.start.max(header) - header;
                let at = place(start / value_bytes) + (start % value_bytes) as usize;
                out.extend_from_slice(&flat[at..at + (run.end() - header - start) as usize]);
            }
        }
        Ok(out)
    }

    /// The bytes of some boxes.
    fn decode<T: Value>(&mut self, wanted: Vec<Block>, is_collective: bool) -> Result<Vec<(Block, Vec<u8>)>> {
        if !is_collective && let Some(chunk) = self.chunk_of(&wanted) {
            let bytes = self.of_chunk::<T>(chunk, &wanted)?;
            return Ok(wanted.into_iter().zip(bytes).collect());
        }
        let mut values: Vec<Vec<T>> =
            wanted.iter().map(|block| zeros(block.n_values())).collect::<pumice::Result<_>>()?;
        if is_collective {
            let pairs = wanted.iter().zip(&mut values);
            let mut boxes: Vec<LocalBoxMut<'_, T>> = pairs
                .map(|(block, values)| LocalBoxMut { start: &block.start, extents: &block.extents, values })
                .collect();
            self.reader.read_all(&mut boxes)?;
        } else {
            for (block, values) in wanted.iter().zip(&mut values) {
                self.reader.read(&ranges(block), values)?;
            }
        }
        Ok(wanted.into_iter().zip(values).map(|(block, values)| (block, bytes_of(&values).to_vec())).collect())
    }

    /// The chunk that all these boxes are within.
    fn chunk_of(&self, wanted: &[Block]) -> Option<Block> {
        let info = self.reader.info();
        let first = wanted.first()?;
        let start: Vec<usize> =
            first.start.iter().zip(&info.chunk_shape).map(|(at, n)| at - at % (*n).max(1)).collect();
        let axes = start.iter().zip(&info.chunk_shape).zip(&info.shape);
        let extents: Vec<usize> = axes.map(|((at, chunk), n)| (*chunk).min(n - at)).collect();
        let chunk = Block { start, extents };
        let is_inside = |block: &Block| {
            (0..chunk.start.len()).all(|a| {
                chunk.start[a] <= block.start[a]
                    && block.start[a] + block.extents[a] <= chunk.start[a] + chunk.extents[a]
            })
        };
        wanted.iter().all(is_inside).then_some(chunk)
    }

    /// The bytes of boxes within a chunk, which is decoded unless it was the last.
    fn of_chunk<T: Value>(&mut self, chunk: Block, wanted: &[Block]) -> Result<Vec<Vec<u8>>> {
        if self.chunk.as_ref().is_none_or(|(last, _)| *last != chunk) {
            let mut values = zeros::<T>(chunk.n_values())?;
            self.reader.read(&ranges(&chunk), &mut values)?;
            self.chunk = Some((chunk.clone(), bytes_of(&values).to_vec()));
        }
        let bytes = self.chunk.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        let part = |block: &Block| {
            let start = block.start.iter().zip(&chunk.start).map(|(a, b)| a - b).collect();
            let inside = Block { start, extents: block.extents.clone() };
            let rows = inside.rows(&chunk.extents);
            rows.flat_map(|row| &bytes[row.start as usize * size_of::<T>()..row.end() as usize * size_of::<T>()])
                .copied()
                .collect()
        };
        Ok(wanted.iter().map(part).collect())
    }
}

fn ranges(block: &Block) -> Vec<Range<usize>> {
    block.start.iter().zip(&block.extents).map(|(start, n)| *start..start + n).collect()
}
