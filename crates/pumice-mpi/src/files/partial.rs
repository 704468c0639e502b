//! A file that is written under another name until it is complete: `run.pum.partial` for `run.pum`. If the job is killed,
//! the old file stays as it was, and `pumice recover` finds what was written in the partial one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use pumice::{Error, ErrorKind, Result};

/// The partial file, on the rank that makes it and puts it in its place.
#[derive(Debug)]
pub(crate) struct Partial {
    name: PathBuf,
    target: PathBuf,
    /// Locked while it is written, so that two jobs do not write to one file.
    file: File,
}

impl Partial {
    /// Makes an empty one in the place of one that another job has left.
    pub(crate) fn create(target: &Path) -> Result<Self> {
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

    /// Its own name.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Gives it the name of the target.
    pub(crate) fn commit(self) -> Result<()> {
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
    pub(crate) fn discard(self) {
        let _ = fs::remove_file(&self.name);
    }
}
