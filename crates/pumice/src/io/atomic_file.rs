//! Files that appear whole or not at all: [`AtomicFile`] writes beside its target and takes the target's name on commit.
//! A crash never leaves half a file under the name.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, ErrorKind, Result};

/// A file that replaces its target only when committed; dropped before, it leaves the target as it was.
///
/// ```
/// use std::io::Write;
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("result");
/// let mut file = pumice::AtomicFile::create(&path)?;
/// file.write_all(b"all or nothing")?;
/// assert!(!path.exists());
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"all or nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    temporary: NamedTempFile,
    /// The same file with a position of its own: there, writing at an offset moves the position.
    #[cfg(windows)]
    positioned: File,
    path: PathBuf,
}

impl AtomicFile {
    /// Opens a temporary file in the target's directory, where it can be renamed in one step.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        // Replaces what a link points to, as writing to it would.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let place = |e: io::Error| Error::from(e).context(path.display());
        if !directory(&path).is_dir() {
            let message =
                format!("{}: there is no folder {}; make it first", path.display(), directory(&path).display());
            return Err(Error::new(ErrorKind::Io, message));
        }
        // Renaming over a device or a pipe would delete it.
        if path.metadata().is_ok_and(|m| !m.is_file()) {
            return Err(Error::invalid(format!(
                "{} is not a regular file, so it cannot be replaced; write to it as a stream",
                path.display()
            )));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".pumice-").suffix(".tmp");
        // The mode any new file gets; `tempfile` would keep it private.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let temporary = builder.tempfile_in(directory(&path)).map_err(place)?;
        #[cfg(windows)]
        let positioned = temporary.reopen().map_err(place)?;
        if let Ok(target) = path.metadata() {
            temporary.as_file().set_permissions(target.permissions()).map_err(place)?;
        }
        Ok(Self {
            temporary,
            #[cfg(windows)]
            positioned,
            path,
        })
    }

    /// Makes everything written durable, then gives it the target's name.
    pub fn commit(self) -> Result<()> {
        let place = |e: io::Error| Error::from(e).context(self.path.display());
        self.temporary.as_file().sync_all().map_err(place)?;
        self.temporary.persist(&self.path).map_err(|e| place(e.error))?;
        // The new name itself is in the directory.
        #[cfg(unix)]
        File::open(directory(&self.path)).and_then(|d| d.sync_all()).map_err(place)?;
        Ok(())
    }

    /// Where the bytes are until they are committed, for those who read them back or have them written by name.
    pub fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }

    /// Writes at an offset without moving the file's position, so that threads can share the file.
    #[cfg(unix)]
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self.temporary.as_file(), bytes, offset)
    }

    /// Writes at an offset without moving the file's position, so that threads can share the file.
    #[cfg(windows)]
    pub fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match std::os::windows::fs::FileExt::seek_write(&self.positioned, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.as_file_mut().flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.temporary.as_file_mut().seek(position)
    }
}
