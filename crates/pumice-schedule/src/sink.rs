//! Where snapshots go. [`Folder`] writes them to a file system; other sinks may write to anything that takes bytes at offsets,
//! such as files of MPI.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pumice::{AtomicFolder, Error, ErrorKind, Result};

/// A place for snapshots. The background thread calls it.
pub trait Sink: Send + Sync {
    /// Starts a snapshot of these fields, which nobody can see yet.
    fn create(&self, snapshot: &str, fields: &[String]) -> Result<Box<dyn Pending>>;
}

/// A snapshot that is being written. If it is dropped before it is committed, nothing of it remains.
pub trait Pending: Send {
    /// Writes bytes of the file of a field, by its position among the fields. Offsets of a file ascend without gaps.
    fn write_at(&mut self, field: usize, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes the whole snapshot durable, and lets it appear under its name.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// Snapshots as folders of Pumice files: `NAME/FIELD.pum`. A folder appears, or replaces another one, when it is complete.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Snapshots in this folder, which must be there.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }
}

/// Whether a file may have this name in any folder.
fn check_name(what: &str, name: &str) -> Result<()> {
    let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0']);
    if is_plain {
        return Ok(());
    }
    let message = format!("{what} named {name:?} cannot be a file: use a name without slashes and leading dots");
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

impl Sink for Folder {
    fn create(&self, snapshot: &str, fields: &[String]) -> Result<Box<dyn Pending>> {
        check_name("a snapshot", snapshot)?;
        fields.iter().try_for_each(|field| check_name("a field", field))?;
        let folder = AtomicFolder::create(self.0.join(snapshot))?;
        let files = fields.iter().map(|field| {
            let path = folder.temporary_path().join(format!("{field}.pum"));
            File::create_new(&path).map_err(|e| Error::from(e).context(path.display()))
        });
        let files = files.collect::<Result<_>>()?;
        Ok(Box::new(PendingFolder { files, folder }))
    }
}

struct PendingFolder {
    /// Closed before the folder is removed.
    files: Vec<File>,
    folder: AtomicFolder,
}

impl Pending for PendingFolder {
    fn write_at(&mut self, field: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        use std::io::{Seek, SeekFrom, Write};
        let file = &mut self.files[field];
        file.seek(SeekFrom::Start(offset))?;
        Ok(file.write_all(bytes)?)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        drop(self.files);
        self.folder.commit()
    }
}

/// A sink of limited speed, for a share of storage, or to see what slow storage would do: a write takes as long as its
/// bytes at this rate, and a time for itself. All snapshots share the rate.
#[derive(Debug)]
pub struct Limited<S> {
    sink: S,
    medium: std::sync::Arc<Medium>,
}

#[derive(Debug)]
struct Medium {
    bytes_per_second: f64,
    per_write: Duration,
    /// When all writes so far have ended.
    free: Mutex<Instant>,
}

impl Medium {
    /// Returns when a write that starts now has ended.
    fn take(&self, bytes: usize) {
        let seconds = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second) + self.per_write;
        let end = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            *free = (*free).max(Instant::now()) + seconds;
            *free
        };
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
    }
}

impl<S: Sink> Limited<S> {
    /// # Errors
    /// If the rate is not a number above 0.
    pub fn new(sink: S, bytes_per_second: f64, per_write: Duration) -> Result<Self> {
        if !(bytes_per_second > 0.0 && bytes_per_second.is_finite()) {
            let message = format!("{bytes_per_second} bytes per second are no rate: give a number above 0");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let medium = Medium { bytes_per_second, per_write, free: Mutex::new(Instant::now()) };
        Ok(Self { sink, medium: std::sync::Arc::new(medium) })
    }
}

impl<S: Sink> Sink for Limited<S> {
    fn create(&self, snapshot: &str, fields: &[String]) -> Result<Box<dyn Pending>> {
        let pending = self.sink.create(snapshot, fields)?;
        Ok(Box::new(LimitedPending { pending, medium: self.medium.clone() }))
    }
}

struct LimitedPending {
    pending: Box<dyn Pending>,
    medium: std::sync::Arc<Medium>,
}

impl Pending for LimitedPending {
    fn write_at(&mut self, field: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        self.pending.write_at(field, offset, bytes)?;
        self.medium.take(bytes.len());
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.pending.commit()
    }
}
