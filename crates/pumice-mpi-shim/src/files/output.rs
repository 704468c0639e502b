//! Files that are written. What a rank writes is kept in memory until the file is closed; then all ranks together write one
//! Pumice file.
//!
//! The handle of the program is that of a scratch file beside it, which has the program's view and its file pointer. A
//! rank that cannot go on so, as its memory ends or the program reads what it wrote, gives up: what it has kept goes to the
//! scratch file, and so does all that follows. If any rank gives up, or what all have kept is not an array, the scratch file
//! gets the name in the end.

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use mpi_sys as ffi;
use pumice::{DType, Summary};
use pumice_mpi::{LocalBox, Value};

use super::kept::Kept;
use super::old::{HEADER, Old};
use super::opening::agree;
use super::{Direction, Failure, Place, Result, SUCCESS, Transfer};
use crate::agreement::{first_of, reduce};
use crate::boxes::{Run, blocks, joined};
use crate::config::FileRule;
use crate::datatype::Layout;
use crate::memory::{bytes_of_mut, collect, swap, zeros};
use crate::report;
use crate::view::View;

pub(super) struct Output {
    comm: SimpleCommunicator,
    path: PathBuf,
    scratch: PathBuf,
    rule: &'static FileRule,
    /// What was there before and still counts: as far as the program has not cut it off or it is in the scratch file.
    old: Option<Old>,
    /// Whether the program may read what it writes.
    is_readable: bool,
    kept: Kept,
    /// What this rank has put into the scratch file.
    written: Vec<Run>,
    /// Why it goes there.
    given_up: Option<String>,
    /// The size that the program has set, or that ranks knew when they were together last.
    least_bytes: u64,
}

impl Output {
    pub(super) fn new(
        comm: SimpleCommunicator,
        path: &Path,
        rule: &'static FileRule,
        old: Option<Old>,
        is_readable: bool,
    ) -> Self {
        let mut scratch = path.as_os_str().to_owned();
        scratch.push(".shim");
        let scratch = scratch.into();
        let (kept, written) = (Kept::default(), Vec::new());
        Self { comm, path: path.into(), scratch, rule, old, is_readable, kept, written, given_up: None, least_bytes: 0 }
    }

    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Removes what a killed job has left. On rank 0.
    pub(super) fn prepare(&self) -> Result<()> {
        match std::fs::remove_file(&self.scratch) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::new(ffi::MPI_ERR_IO, format!("{}: {e}", self.scratch.display())))
            }
            _ => Ok(()),
        }
    }

    /// Puts what was there before into the scratch file, since the program goes on from there.
    pub(super) fn bring_old(&mut self) -> Result<()> {
        let Some(old) = self.old.take() else { return Ok(()) };
        self.given_up = Some("it was there before, and the program opens it to read or to append".into());
        if self.comm.rank() == 0 {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&self.scratch)?;
            old.copy(&[Run { start: 0, len: old.n_bytes }], &file)?;
        }
        Ok(())
    }

    /// Reads or writes; returns the number of bytes.
    pub(super) fn transfer(&mut self, view: &View, transfer: &Transfer) -> Result<u64> {
        if transfer.direction == Direction::Read {
            if self.is_readable {
                self.give_up("the program reads it while it writes it")?;
            }
            return directly(transfer);
        }
        if self.given_up.is_none() {
            match self.keep(view, transfer)? {
                Ok(n) => return Ok(n),
                Err(obstacle) => self.give_up(&obstacle)?,
            }
        }
        if self.old.is_some() {
            // What is not written comes from the old file.
            let runs = runs(view, transfer)?.map(|(runs, _)| runs);
            self.written.extend(runs.map_err(Failure::unsupported)?);
        }
        directly(transfer)
    }

    /// Keeps what is written. The inner error says why that cannot be.
    fn keep(&mut self, view: &View, transfer: &Transfer) -> Result<std::result::Result<u64, String>> {
        let memory = transfer.memory;
        let (runs, layout) = match runs(view, transfer)? {
            Ok(found) => found,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let n_bytes: u64 = runs.iter().map(|run| run.len).sum();
        if n_bytes == 0 {
            return Ok(Ok(0));
        }
        let header = self.rule.header as u64;
        if !layout.kind.suits(self.rule.dtype) && runs.iter().any(|run| run.end() > header) {
            return Ok(Err(format!("the program writes values that are not {}", self.rule.dtype)));
        }
        if self.kept.n_bytes() + n_bytes > self.rule.memory {
            let mib = self.rule.memory >> 20;
            return Ok(Err(format!("it would have to keep more than {mib} MiB; raise memory_mib")));
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(n_bytes as usize).is_err() {
            return Ok(Err(format!("there is no memory for {n_bytes} bytes")));
        }
        // SAFETY: MPI wants a buffer that has these items.
        unsafe { collect(memory.buffer, &layout, memory.count as usize, &mut bytes) };
        self.kept.add(&runs, bytes);
        if transfer.place == Place::Pointer {
            let units = (n_bytes / view.etype()) as ffi::MPI_Offset;
            // SAFETY: a handle of the program.
            check(unsafe { ffi::PMPI_File_seek(transfer.fh, units, ffi::MPI_SEEK_CUR as c_int) })?;
        }
        Ok(Ok(n_bytes))
    }

    /// Puts what is kept into the scratch file; what follows goes there, too.
    fn give_up(&mut self, reason: &str) -> Result<()> {
        if self.given_up.is_some() {
            return Ok(());
        }
        self.put_kept()?;
        self.given_up = Some(reason.into());
        Ok(())
    }

    fn put_kept(&mut self) -> Result<()> {
        let file = OpenOptions::new().write(true).open(&self.scratch)?;
        for (run, bytes) in self.kept.pieces() {
            file.write_all_at(bytes, run.start)?;
        }
        self.written.extend(self.kept.runs());
        self.kept = Kept::default();
        Ok(())
    }

    /// Gives up before something is written whose place is not known.
    pub(super) fn give_up_unknown(&mut self, reason: &str) -> Result<()> {
        if self.old.is_some() {
            return Err(Failure::unsupported(format!("{reason}, and the file was there before; delete it first")));
        }
        self.give_up(reason)
    }

    /// All ranks are here: what any has written, others may read from now on.
    pub(super) fn synced(&mut self) -> Result<()> {
        if self.is_readable {
            return self.give_up("the program may read it after MPI_File_sync; let it open the file for writing only");
        }
        let [end] = reduce(&self.comm, [self.end() as i64], SystemOperation::max());
        self.least_bytes = self.least_bytes.max(end as u64);
        Ok(())
    }

    /// The size of the file, as far as this rank can know it.
    pub(super) fn size(&self, fh: ffi::MPI_File) -> u64 {
        let mut in_scratch = 0;
        // SAFETY: a handle of the program, and an offset.
        unsafe { ffi::PMPI_File_get_size(fh, &mut in_scratch) };
        let old = self.old.as_ref().map_or(0, |old| old.n_bytes);
        self.end().max(in_scratch.max(0) as u64).max(self.least_bytes).max(old)
    }

    pub(super) fn set_size(&mut self, n_bytes: u64, is_exact: bool) {
        if !is_exact {
            self.least_bytes = self.least_bytes.max(n_bytes);
            return;
        }
        self.least_bytes = n_bytes;
        self.kept.truncate(n_bytes);
        self.written.retain_mut(|run| {
            run.len = run.len.min(n_bytes.saturating_sub(run.start));
            run.len > 0
        });
        if let Some(old) = &mut self.old {
            old.n_bytes = old.n_bytes.min(n_bytes);
        }
        self.old.take_if(|old| old.n_bytes == 0);
    }

    /// The end of what this rank has kept.
    fn end(&self) -> u64 {
        self.kept.pieces().map(|(run, _)| run.end()).max().unwrap_or(0)
    }

    /// Makes the file, together. The scratch file is still open.
    pub(super) fn close(&mut self, name: &str, fh: ffi::MPI_File) -> Result<()> {
        self.kept.settle();
        let compressed = match first_of(&self.comm, self.given_up.clone()) {
            Some(reason) => Err(reason),
            None => self.array().and_then(|array| match self.rule.dtype {
                DType::F64 => self.compress::<f64>(&array),
                _ => self.compress::<f32>(&array),
            }),
        };
        let is_first = self.comm.rank() == 0;
        match compressed {
            Ok(summary) if is_first => report::compressed(name, &summary),
            Ok(_) => {}
            Err(reason) => {
                self.store_plainly(fh)?;
                if is_first {
                    report::passed(name, &reason);
                }
            }
        }
        Ok(())
    }

    /// Removes the scratch file, if it did not become the file.
    pub(super) fn clear(&self) {
        if self.comm.rank() == 0 {
            let _ = std::fs::remove_file(&self.scratch);
        }
    }

    /// What all ranks have kept, as an array; or why it is none, for all the same.
    fn array(&self) -> std::result::Result<Array, String> {
        let (header, value_bytes) = (self.rule.header as u64, self.rule.dtype.size() as u64);
        let runs = joined(self.kept.runs());
        let [end] = reduce(&self.comm, [self.end() as i64], SystemOperation::max());
        let beyond_header = |run: &Run| run.end().saturating_sub(run.start.max(header)) as i64;
        let [n_bytes] = reduce(&self.comm, [runs.iter().map(beyond_header).sum()], SystemOperation::sum());
        let size = (end as u64).max(self.least_bytes);
        if size <= header {
            return Err("there are no values".into());
        }
        let (n_bytes, expected) = (n_bytes as u64, size - header);
        if n_bytes != expected {
            let what = if n_bytes < expected { "some bytes are not written" } else { "ranks write the same bytes" };
            return Err(format!("{what}: {n_bytes} of {expected}"));
        }
        if self.old.as_ref().is_some_and(|old| old.n_bytes > size) {
            return Err("the file that was there before is longer; delete it first".into());
        }
        // Values that are cut by the end of what a rank has written.
        let mut values = Vec::new();
        let mut obstacle = None;
        for run in runs.iter().filter(|run| run.end() > header) {
            let start = run.start.max(header) - header;
            let len = run.end() - header - start;
            if start % value_bytes != 0 || len % value_bytes != 0 {
                obstacle = Some(format!("{len} bytes at {} are not whole values", start + header));
            }
            values.push(Run { start: start / value_bytes, len: len / value_bytes });
        }
        if let Some(obstacle) = first_of(&self.comm, obstacle) {
            return Err(obstacle);
        }
        let shape = shape_of(self.rule.shape.as_deref(), (size - header) / value_bytes)?;
        Ok(Array { header: self.header(&runs)?, shape, values })
    }

    /// The bytes in front of the array, which some ranks have.
    fn header(&self, runs: &[Run]) -> std::result::Result<Vec<u8>, String> {
        let n = self.rule.header;
        // 0: not here.
        let mut mine = vec![0_u16; n];
        for run in runs.iter().filter(|run| run.start < n as u64) {
            let mut bytes = vec![0; (run.end().min(n as u64) - run.start) as usize];
            self.kept.copy(run.start, &mut bytes);
            for (i, byte) in bytes.into_iter().enumerate() {
                mine[run.start as usize + i] = u16::from(byte) + 1;
            }
        }
        let mut all = vec![0_u16; n];
        if n > 0 {
            self.comm.all_reduce_into(&mine[..], &mut all[..], SystemOperation::max());
        }
        if self.old.is_some() && all.contains(&0) {
            return Err("parts of the header are from before".into());
        }
        // What nobody writes is zero.
        Ok(all.into_iter().map(|byte| byte.saturating_sub(1) as u8).collect())
    }

    fn compress<T: Value>(&self, array: &Array) -> std::result::Result<Summary, String> {
        let gathered = agree(&self.comm, self.values::<T>(array)).map_err(|failure| failure.message)?;
        let boxes: Vec<LocalBox<'_, T>> = gathered
            .iter()
            .map(|(block, values)| LocalBox { start: &block.start, extents: &block.extents, values })
            .collect();
        let mut config = self.rule.config.clone();
        if !array.header.is_empty() {
            let digits: String = array.header.iter().map(|byte| format!("{byte:02x}")).collect();
            config = config.attribute(HEADER, digits);
        }
        pumice_mpi::write(&self.comm, &self.path, &array.shape, &boxes, &config).map_err(|e| e.to_string())
    }

    /// The boxes that this rank has kept, with their values.
    fn values<T: Value>(&self, array: &Array) -> Result<Vec<(crate::boxes::Block, Vec<T>)>> {
        let value_bytes = size_of::<T>() as u64;
        let with_values = |block: crate::boxes::Block| {
            let mut values = zeros::<T>(block.n_values())?;
            let mut rest = bytes_of_mut(&mut values);
            for row in block.rows(&array.shape) {
                let (part, others) = rest.split_at_mut((row.len * value_bytes) as usize);
                rest = others;
                self.kept.copy(self.rule.header as u64 + row.start * value_bytes, part);
            }
            if self.rule.is_swapped {
                swap(bytes_of_mut(&mut values), size_of::<T>());
            }
            Ok((block, values))
        };
        blocks(&array.shape, &array.values).into_iter().map(with_values).collect()
    }

    /// The scratch file, with the bytes of all ranks, becomes the file.
    fn store_plainly(&mut self, fh: ffi::MPI_File) -> Result<()> {
        let put = self.put_kept();
        agree(&self.comm, put)?;
        if let Some(old) = self.old.take() {
            let all = self.all_written();
            let copied = all.and_then(|written| match written {
                None => Ok(()),
                Some(written) => old.copy(&holes(&written, old.n_bytes), &self.open_scratch()?),
            });
            agree(&self.comm, copied)?;
        }
        // SAFETY: a handle of the program; all ranks are here.
        agree(&self.comm, check(unsafe { ffi::PMPI_File_sync(fh) }))?;
        let is_first = self.comm.rank() == 0;
        agree(&self.comm, if is_first { self.rename() } else { Ok(()) })
    }

    /// What all ranks have written, on rank 0.
    fn all_written(&self) -> Result<Option<Vec<Run>>> {
        let mine: Vec<u64> = joined(self.written.clone()).iter().flat_map(|run| [run.start, run.len]).collect();
        let mut text = Vec::new();
        // One rank after the other: this is a rare case.
        let mut all = Vec::new();
        for rank in 0..self.comm.size() {
            text.clear();
            if rank == self.comm.rank() {
                text.extend(mine.iter().flat_map(|number| number.to_le_bytes()));
            }
            crate::agreement::broadcast(&self.comm, rank, &mut text);
            if self.comm.rank() == 0 {
                let numbers: Vec<u64> =
                    text.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect();
                all.extend(numbers.chunks_exact(2).map(|pair| Run { start: pair[0], len: pair[1] }));
            }
        }
        Ok((self.comm.rank() == 0).then_some(all))
    }

    fn open_scratch(&self) -> Result<File> {
        Ok(OpenOptions::new().write(true).open(&self.scratch)?)
    }

    fn rename(&self) -> Result<()> {
        let file = self.open_scratch()?;
        if file.metadata()?.len() < self.least_bytes {
            file.set_len(self.least_bytes)?;
        }
        if let Ok(before) = std::fs::metadata(&self.path) {
            file.set_permissions(before.permissions())?;
        }
        file.sync_all()?;
        Ok(std::fs::rename(&self.scratch, &self.path)?)
    }
}

/// What all ranks have kept.
struct Array {
    header: Vec<u8>,
    shape: Vec<usize>,
    /// Those of this rank.
    values: Vec<Run>,
}

/// The shape of so many values by the rule.
fn shape_of(asked: Option<&[usize]>, n_values: u64) -> std::result::Result<Vec<usize>, String> {
    let Some(asked) = asked else { return Ok(vec![n_values as usize]) };
    let mut shape = asked.to_vec();
    let inner = shape[1..].iter().try_fold(1_u64, |product, n| product.checked_mul(*n as u64));
    if shape[0] == 0
        && let Some(inner) = inner
    {
        shape[0] = (n_values / inner) as usize;
    }
    if inner.and_then(|inner| inner.checked_mul(shape[0] as u64)) != Some(n_values) {
        return Err(format!("{n_values} values are not of the shape {asked:?}"));
    }
    Ok(shape)
}

/// What is not written of the first bytes of a file.
fn holes(written: &[Run], n_bytes: u64) -> Vec<Run> {
    let mut out = Vec::new();
    let mut next = 0;
    for run in joined(written.to_vec()).into_iter().chain([Run { start: n_bytes, len: 0 }]) {
        let end = run.start.min(n_bytes);
        if end > next {
            out.push(Run { start: next, len: end - next });
        }
        next = next.max(run.end());
    }
    out
}

/// The bytes of a file that a transfer is for, and the layout of the memory; or why they are not known.
pub(super) type Found = std::result::Result<(Vec<Run>, Layout), String>;

pub(super) fn runs(view: &View, transfer: &Transfer) -> Result<Found> {
    let memory = transfer.memory;
    let Some(layout) = Layout::of(memory.datatype) else {
        return Ok(Err("the program writes from a type that is not known here".into()));
    };
    let count = u64::try_from(memory.count).map_err(|_| Failure::new(ffi::MPI_ERR_COUNT, "a count is negative"))?;
    let n_bytes = count.saturating_mul(layout.size as u64);
    let position = match transfer.place {
        Place::At(offset) => offset,
        _ => {
            let mut position = 0;
            // SAFETY: a handle of the program, and an offset.
            check(unsafe { ffi::PMPI_File_get_position(transfer.fh, &mut position) })?;
            position
        }
    };
    let position = u64::try_from(position).map_err(|_| Failure::new(ffi::MPI_ERR_ARG, "an offset is negative"))?;
    Ok(match view.runs(position, n_bytes) {
        Some(runs) if n_bytes % view.etype() == 0 => Ok((runs, layout)),
        Some(_) => Err("the program writes parts of the elementary type of its view".into()),
        None => Err("the program writes beyond what the view has".into()),
    })
}

/// Lets the MPI library do it. Not together: other ranks may have nothing to give up.
fn directly(transfer: &Transfer) -> Result<u64> {
    let memory = transfer.memory;
    let count = c_int::try_from(memory.count)
        .map_err(|_| Failure::unsupported("more than 2^31 items in a call are only for files that are compressed"))?;
    let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
    let (fh, buffer, datatype, done) = (transfer.fh, memory.buffer, memory.datatype, status.as_mut_ptr());
    // SAFETY: the arguments of the program.
    check(unsafe {
        match (transfer.direction, transfer.place) {
            (Direction::Read, Place::At(offset)) => ffi::PMPI_File_read_at(fh, offset, buffer, count, datatype, done),
            (Direction::Read, _) => ffi::PMPI_File_read(fh, buffer, count, datatype, done),
            (Direction::Write, Place::At(offset)) => ffi::PMPI_File_write_at(fh, offset, buffer, count, datatype, done),
            (Direction::Write, _) => ffi::PMPI_File_write(fh, buffer, count, datatype, done),
        }
    })?;
    let mut n_bytes = 0;
    // SAFETY: the call has set the status.
    check(unsafe { ffi::PMPI_Get_elements_x(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut n_bytes) })?;
    Ok(u64::try_from(n_bytes).unwrap_or(0))
}

pub(super) fn check(code: c_int) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { Err(Failure::new(code as u32, "the MPI library reports an error")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_follow_the_size() {
        assert_eq!(shape_of(None, 12), Ok(vec![12]));
        assert_eq!(shape_of(Some(&[0, 4]), 12), Ok(vec![3, 4]));
        assert_eq!(shape_of(Some(&[3, 4]), 12), Ok(vec![3, 4]));
        assert!(shape_of(Some(&[0, 5]), 12).is_err() && shape_of(Some(&[2, 4]), 12).is_err());
        assert!(shape_of(Some(&[0, usize::MAX, usize::MAX]), 12).is_err());
    }

    #[test]
    fn holes_are_what_is_not_written() {
        let run = |start, len| Run { start, len };
        assert_eq!(holes(&[run(5, 5), run(20, 50)], 40), [run(0, 5), run(10, 10)]);
        assert_eq!(holes(&[], 40), [run(0, 40)]);
        assert_eq!(holes(&[run(0, 50)], 40), []);
        assert_eq!(holes(&[run(0, 10), run(50, 10)], 40), [run(10, 30)]);
    }
}
