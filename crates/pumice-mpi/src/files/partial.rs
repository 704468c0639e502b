//! A file that is written under another name until it is complete: `run.pum.partial` for `run.pum`. If the job is killed,
//! the old file stays as it was, and `pumice recover` finds what was written in the partial one.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use mpi::traits::*;
use pumice::{Error, ErrorKind, Result};

use crate::agreement::agree;
use crate::collective::broadcast;
use crate::mpi_file::{Access, MpiFile};

/// The partial file as all ranks know it.
#[derive(Debug)]
pub(crate) struct PartialFile {
    target: PathBuf,
    name: PathBuf,
    /// On rank 0.
    partial: Option<Partial>,
}

/// Whether what was written is brought to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    Yes,
    /// Something later does that.
    No,
}

impl PartialFile {
    /// Makes an empty one, together.
    pub(crate) fn create(comm: &impl Communicator, target: &Path) -> Result<Self> {
        let partial = if comm.rank() == 0 { Partial::create(target).map(Some) } else { Ok(None) };
        let partial = agree(comm, partial)?;
        // All ranks open what the first has made.
        let mut name = partial.as_ref().map_or(Vec::new(), |partial| partial.name.as_os_str().as_bytes().to_vec());
        broadcast(comm, 0, &mut name);
        Ok(Self { target: target.into(), name: PathBuf::from(OsString::from_vec(name)), partial })
    }

    /// Opens it, writes, and closes it, together. What `write` returns, all ranks must agree on.
    pub(crate) fn write<C: Communicator, R>(
        &self,
        comm: &C,
        sync: Sync,
        write: impl FnOnce(&MpiFile<'_, C>) -> Result<R>,
    ) -> Result<R> {
        let written = MpiFile::open(comm, &self.name, Access::Write).and_then(|file| {
            let written = write(&file);
            let closed = file.close(sync == Sync::Yes && written.is_ok());
            written.and_then(|result| closed.map(|()| result))
        });
        written.map_err(|e| e.context(self.target.display()))
    }

    /// Makes it empty again, together.
    pub(super) fn clear(&self, comm: &impl Communicator) -> Result<()> {
        let cleared = self.partial.as_ref().map_or(Ok(()), |partial| partial.file.set_len(0));
        agree(comm, cleared.map_err(|e| Error::from(e).context(self.name.display())))
    }

    /// Gives it its name or, after an error, removes it. All ranks have the same kind of result.
    pub(crate) fn end<R>(self, comm: &impl Communicator, written: Result<R>) -> Result<R> {
        match (written, self.partial) {
            (Ok(result), partial) => agree(comm, partial.map_or(Ok(()), Partial::commit)).map(|()| result),
            (Err(error), partial) => {
                if let Some(partial) = partial {
                    partial.discard();
                }
                Err(error)
            }
        }
    }

    /// Removes it.
    pub(super) fn discard(self) {
        if let Some(partial) = self.partial {
            partial.discard();
        }
    }
}

/// On the rank that makes it and puts it in its place.
#[derive(Debug)]
struct Partial {
    name: PathBuf,
    target: PathBuf,
    /// Locked while it is written, so that two jobs do not write to one file.
    file: File,
}

impl Partial {
    /// Makes an empty one in the place of one that another job has left.
    fn create(target: &Path) -> Result<Self> {
        if target.is_dir() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{} is a folder", target.display())));
        }
        // A link is followed to the file that it stands for, which then is the one to replace.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.into());
        let mut name = target.as_os_str().to_owned();
        name.push(".partial");
        let name = PathBuf::from(name);
        let failed = |e: io::Error| Error::from(e).context(name.display());
        let file = File::options().write(true).create(true).truncate(false).open(&name).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(
                    ErrorKind::Io,
                    format!("{} is being written by another job; wait for it, or choose another name", name.display()),
                ));
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        file.set_len(0).map_err(failed)?;
        Ok(Self { name, target, file })
    }

    /// Gives it the name of the target.
    fn commit(self) -> Result<()> {
        let renamed = self.file.sync_all().and_then(|()| fs::rename(&self.name, &self.target));
        renamed.map_err(|e| {
            let (name, target) = (self.name.display(), self.target.display());
            Error::from(e).context(format_args!("{target}: the whole file is at {name}, but did not get its name"))
        })?;
        // The name must survive a crash, too.
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        Ok(())
    }

    /// Removes it after an error.
    fn discard(self) {
        let _ = fs::remove_file(&self.name);
    }
}
