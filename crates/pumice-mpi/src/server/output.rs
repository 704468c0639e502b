//! A field of all servers to one file, or to one of each.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::scan;
use pumice::{AtomicFile, ErrorBound, Result};
use pumice_fields::{Part, Parts, Treatment};

use super::message::Subject;
use super::options::{Coding, FileMode, Options};
use crate::agreement::agree;
use crate::collective::{broadcast, gather_all, reduce, sum_before};
use crate::files::{self, PartialFile, Sync};
use crate::local::{Block, LocalBox, Value, invalid};
use crate::passes::Everywhere;

/// What a server has of a field.
#[derive(Debug)]
pub(super) struct Slab<'a, T> {
    pub(super) block: Block,
    pub(super) values: &'a [T],
}

/// Where a field goes.
pub(super) struct Output<'a> {
    pub(super) comm: &'a SimpleCommunicator,
    pub(super) options: &'a Options,
    pub(super) subject: &'a Subject,
    /// Along which servers have their slabs.
    pub(super) axis: usize,
}

impl Output<'_> {
    /// Writes a field, together with all servers. Returns the bytes of all files.
    pub(super) fn write<T: Value>(&self, coding: &Coding, slab: Option<Slab<'_, T>>) -> Result<u64> {
        let bytes = match (coding, self.options.mode) {
            (Coding::Compressed(treatment), FileMode::OneFile) => return self.compress_together(treatment, slab),
            (Coding::Compressed(treatment), FileMode::MultipleFiles) => return self.compress_parts(treatment, slab),
            (Coding::Raw, _) => Ok(slab.map(|slab| le_bytes(slab.values))),
            (Coding::Gzip(level), _) => slab.map(|slab| gzip(&le_bytes(slab.values), *level)).transpose(),
        };
        let bytes = agree(self.comm, bytes)?;
        let total = self.total(bytes.as_ref().map_or(0, Vec::len));
        match self.options.mode {
            FileMode::OneFile => self.write_together(&self.path(coding.extension()), &bytes.unwrap_or_default())?,
            FileMode::MultipleFiles => {
                let path = self.path(&format!("part{:04}.{}", self.comm.rank(), coding.extension()));
                agree(self.comm, bytes.map_or(Ok(()), |bytes| write_alone(&path, &bytes)))?;
            }
        }
        Ok(total)
    }

    fn compress_together<T: Value>(&self, treatment: &Treatment, slab: Option<Slab<'_, T>>) -> Result<u64> {
        let shape = &self.subject.shape;
        let boxes = boxes_of(&slab);
        let config = treatment.config(shape)?.threads(self.options.threads);
        Ok(files::write(self.comm, self.path("pum"), shape, &boxes, &config)?.compressed_bytes)
    }

    fn compress_parts<T: Value>(&self, treatment: &Treatment, slab: Option<Slab<'_, T>>) -> Result<u64> {
        let shape = &self.subject.shape;
        let threads = files::threads(self.comm, self.options.threads);
        let treatment = self.for_parts(treatment, &boxes_of(&slab), threads)?;
        // From here on the old parts are not those of an index any more.
        let index = self.path("parts.toml");
        let is_first = self.comm.rank() == 0;
        let removed = if is_first { remove(&index) } else { Ok(()) };
        agree(self.comm, removed)?;
        let mut note = Vec::new();
        if is_first {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
            note = format!("{now:x}-{:x}", std::process::id()).into_bytes();
        }
        broadcast(self.comm, 0, &mut note);
        let note = String::from_utf8_lossy(&note).into_owned();
        let path = self.path(&format!("part{:04}.pum", self.comm.rank()));
        let written = slab.as_ref().map_or(Ok(0), |slab| {
            let config = treatment.config(&slab.block.extents)?.threads(threads).attribute(Parts::NOTE, &note);
            let bytes = pumice::compress(slab.values, &slab.block.extents, &config)?;
            write_alone(&path, &bytes).map(|()| bytes.len())
        });
        let n_bytes = agree(self.comm, written)?;
        let extent = |slab: &Slab<'_, T>| slab.block.extents.get(self.axis).copied().unwrap_or(1) as u64;
        // The extent of each part, and one more: 0 is none.
        let extents = gather_all(self.comm, &[slab.as_ref().map_or(0, |slab| 1 + extent(slab))])?;
        let parts = extents.concat().into_iter().enumerate().filter(|(_, n)| *n > 0).map(|(server, n)| {
            let file = self.path(&format!("part{server:04}.pum"));
            Part { file: file.file_name().unwrap_or_default().to_string_lossy().into_owned(), extent: n as usize - 1 }
        });
        let saved = if is_first { Parts::save(&index, &note, shape, self.axis, parts.collect()) } else { Ok(()) };
        agree(self.comm, saved)?;
        Ok(self.total(n_bytes))
    }

    /// The treatment of a part: a relative bound is for the range of the whole field, and so are fill values.
    fn for_parts<T: Value>(
        &self,
        treatment: &Treatment,
        boxes: &[LocalBox<'_, T>],
        threads: usize,
    ) -> Result<Treatment> {
        let mut treatment = treatment.clone();
        if treatment.bounds == [ErrorBound::Lossless] {
            return Ok(treatment);
        }
        let shape = &self.subject.shape;
        let everywhere = agree(self.comm, Everywhere::new(self.comm, shape, boxes, threads))?;
        let stats = scan(&everywhere, &treatment.config(shape)?)?;
        let is_relative = treatment.bounds.iter().any(|bound| matches!(bound, ErrorBound::Rel(_)));
        if let (true, None, Some((lo, hi))) = (is_relative, treatment.range, stats.range) {
            treatment.range = Some((lo.to_f64(), hi.to_f64()));
        }
        let fills = stats.fills.iter().filter(|fill| !fill.is_nan()).map(|fill| fill.to_f64());
        treatment.fills = fills.collect();
        Ok(treatment)
    }

    /// Writes the bytes of all servers one after the other to one file.
    fn write_together(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let offset = sum_before(self.comm, bytes.len() as u64);
        let output = PartialFile::create(self.comm, path)?;
        let written = output.write(self.comm, Sync::Yes, |file| agree(self.comm, file.write_at(offset, bytes)));
        output.end(self.comm, written)
    }

    fn path(&self, extension: &str) -> PathBuf {
        let mut path = self.options.stem(&self.subject.field, self.subject.step).into_os_string();
        path.push(".");
        path.push(extension);
        path.into()
    }

    fn total(&self, bytes: usize) -> u64 {
        let [total] = reduce(self.comm, [bytes as u64], SystemOperation::sum());
        total
    }
}

fn boxes_of<'a, T>(slab: &'a Option<Slab<'a, T>>) -> Vec<LocalBox<'a, T>> {
    let of_slab = |slab: &'a Slab<'a, T>| LocalBox {
        start: &slab.block.start,
        extents: &slab.block.extents,
        values: slab.values,
    };
    slab.iter().map(of_slab).collect()
}

fn le_bytes<T: Value>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    T::extend_le_bytes(values, &mut bytes);
    bytes
}

/// A member of a gzip file; members may follow one another.
fn gzip(bytes: &[u8], level: u32) -> Result<Vec<u8>> {
    if level > 9 {
        return Err(invalid(format!("gzip has the levels 0 to 9, and not {level}")));
    }
    let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
    member.write_all(bytes)?;
    Ok(member.finish()?)
}

fn write_alone(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(|e| pumice::Error::from(e).context(path.display()))?;
    file.commit()
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(pumice::Error::from(e).context(path.display())),
        _ => Ok(()),
    }
}
