//! Files and folders that appear whole or not at all: [`AtomicFile`] and [`AtomicFolder`] take their target's name on
//! commit. A crash never leaves half a file under the name.
//!
//! On Linux a file has no name before, where the file system allows that, so that nothing is left of it when the
//! process ends. Elsewhere it has a temporary name beside its target.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

use super::temporary::{self, Listed, NEW, OLD};
use crate::error::{Error, ErrorKind, Result};

/// Set to `1` to give files a temporary name at once, as where the file system has no unnamed files.
const NAMED: &str = "PUMICE_NAMED_TEMPORARY";

/// Links are followed this far, as Linux does.
const MAX_LINKS: usize = 40;

/// A file that replaces its target only when committed; dropped before, it leaves the target as it was.
///
/// What a symbolic link points to is replaced, or created, and not the link. A new file has the permissions of any new
/// file; one that replaces another has those of the old one, and its owner and group where the system allows that.
/// A file that may not be written to is not replaced.
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
    temporary: Temporary,
    /// The same file with a position of its own: there, writing at an offset moves the position.
    #[cfg(windows)]
    positioned: File,
    target: Target,
}

/// A file before it has its target's name.
#[derive(Debug)]
enum Temporary {
    /// Without a name, and the path by which this process can open it.
    #[cfg(target_os = "linux")]
    Unnamed(File, PathBuf),
    Named(NamedTempFile, Listed),
}

impl Temporary {
    fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(file, _) => file,
            Self::Named(file, _) => file.as_file(),
        }
    }

    /// An unnamed file; `None` if the file system has none.
    #[cfg(target_os = "linux")]
    fn unnamed(folder: &Path) -> Option<Self> {
        use std::os::fd::AsRawFd;

        use rustix::fs::{CWD, Mode, OFlags, openat};
        if std::env::var_os(NAMED).is_some_and(|value| value == "1") {
            return None;
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, folder, flags, Mode::from_raw_mode(0o666)).ok()?);
        // The file gets its name by this path.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        path.metadata().is_ok().then_some(Self::Unnamed(file, path))
    }

    #[cfg(not(target_os = "linux"))]
    fn unnamed(_: &Path) -> Option<Self> {
        None
    }
}

impl AtomicFile {
    /// Opens a temporary file in the target's directory, where it can get its name in one step.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), false)
    }

    /// As [`Self::create`], for a library that creates or opens the file by its [`Self::temporary_path`].
    pub fn create_named(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(path.as_ref(), true)
    }

    fn open(path: &Path, by_name: bool) -> Result<Self> {
        let target = Target::new(path)?;
        let old = match target.path.metadata() {
            // Renaming over a device or a pipe would delete it.
            Ok(old) if !old.is_file() => {
                return Err(Error::invalid(format!(
                    "{} is not a regular file, so it cannot be replaced; write to it as a stream",
                    path.display()
                )));
            }
            Ok(old) => Some(old),
            Err(_) => None,
        };
        if old.is_some() {
            File::options().write(true).open(&target.path).map_err(|e| target.at(e))?;
        }
        let unnamed = if by_name { None } else { Temporary::unnamed(&target.folder) };
        let temporary = match unnamed {
            Some(temporary) => temporary,
            None => {
                let (file, listed) = temporary::file(&target.folder, !by_name).map_err(|e| target.at(e))?;
                Temporary::Named(file, listed)
            }
        };
        if let Some(old) = old {
            keep_owner(temporary.file(), &old);
            temporary.file().set_permissions(old.permissions()).map_err(|e| target.at(e))?;
        }
        #[cfg(windows)]
        let positioned = {
            let Temporary::Named(file, _) = &temporary;
            file.reopen().map_err(|e| target.at(e))?
        };
        Ok(Self {
            temporary,
            #[cfg(windows)]
            positioned,
            target,
        })
    }

    /// Makes everything written durable, then gives it the target's name.
    pub fn commit(self) -> Result<()> {
        let Self { temporary, target, .. } = self;
        let replace = || {
            temporary.file().sync_all()?;
            match temporary {
                #[cfg(target_os = "linux")]
                Temporary::Unnamed(_file, path) => put(&path, &target)?,
                Temporary::Named(file, _listed) => {
                    temporary::uninterrupted(|| file.persist(&target.path)).map_err(|e| e.error)?;
                }
            }
            target.sync_folder()
        };
        replace().map_err(|e| target.at(e))
    }

    /// Where this process can read the bytes back until they are committed. Other processes can only if the file was
    /// made by [`Self::create_named`].
    pub fn temporary_path(&self) -> &Path {
        match &self.temporary {
            #[cfg(target_os = "linux")]
            Temporary::Unnamed(_, path) => path,
            Temporary::Named(file, _) => file.path(),
        }
    }

    /// Writes at an offset without moving the file's position, so that threads can share the file.
    #[cfg(unix)]
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self.temporary.file(), bytes, offset)
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

/// Names an unnamed file: at once if the name is free, else by a rename, as a link cannot replace a file.
#[cfg(target_os = "linux")]
fn put(unnamed: &Path, target: &Target) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let link = |name: &Path| io::Result::Ok(linkat(CWD, unnamed, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
    match link(&target.path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => temporary::link_over(&target.folder, &target.path, link),
        linked => linked,
    }
}

/// Gives a file the owner and the group of the one that it is to replace, or at least the group, where that is allowed.
fn keep_owner(file: &File, old: &fs::Metadata) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        if file.metadata().is_ok_and(|new| (new.uid(), new.gid()) == (old.uid(), old.gid())) {
            return;
        }
        if fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
            let _ = fchown(file, None, Some(old.gid()));
        }
    }
    #[cfg(not(unix))]
    let _ = (file, old);
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.temporary.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.file().flush()
    }
}

impl Seek for AtomicFile {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.temporary.file().seek(position)
    }
}

/// A folder that appears, or replaces another one, only when committed; dropped before, it is removed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let path = dir.path().join("store");
/// let folder = pumice::AtomicFolder::create(&path)?;
/// std::fs::write(folder.temporary_path().join("a"), b"all or nothing")?;
/// assert!(!path.exists());
/// folder.commit()?;
/// assert_eq!(std::fs::read(path.join("a"))?, b"all or nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AtomicFolder {
    /// Holds the folder, and at last the one that it replaces.
    outer: TempDir,
    _listed: Listed,
    folder: PathBuf,
    target: Target,
}

impl AtomicFolder {
    /// Makes an empty folder beside the target.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let target = Target::new(path.as_ref())?;
        if target.path.metadata().is_ok_and(|m| !m.is_dir()) {
            return Err(Error::invalid(format!(
                "{} is not a folder, so no folder replaces it; remove it first",
                target.given.display()
            )));
        }
        let (outer, listed) = temporary::folder(&target.folder).map_err(|e| target.at(e))?;
        let folder = outer.path().join(NEW);
        fs::create_dir(&folder).map_err(|e| target.at(e))?;
        Ok(Self { outer, _listed: listed, folder, target })
    }

    /// Where the folder is until it is committed.
    pub fn temporary_path(&self) -> &Path {
        &self.folder
    }

    /// Makes its files durable, gives the folder its target's name, and removes the folder that had it.
    ///
    /// Where the system cannot exchange names (macOS, NFS), the old folder is moved out of the way first. If the process
    /// is killed between these two steps, the next one on this machine that writes to the parent puts it back.
    pub fn commit(mut self) -> Result<()> {
        let mut replace = || {
            sync_file_system(&self.folder)?;
            temporary::uninterrupted(|| self.replace())?;
            self.target.sync_folder()
        };
        replace().map_err(|e| self.target.at(e))
    }

    fn replace(&mut self) -> io::Result<()> {
        let path = &self.target.path;
        if !path.exists() {
            return fs::rename(&self.folder, path);
        }
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            if renameat_with(CWD, &self.folder, CWD, path, RenameFlags::EXCHANGE).is_ok() {
                return Ok(());
            }
        }
        self.replace_in_two_steps()
    }

    fn replace_in_two_steps(&mut self) -> io::Result<()> {
        let path = &self.target.path;
        let old = self.outer.path().join(OLD);
        fs::create_dir(&old)?;
        let old = old.join(path.file_name().unwrap_or_default());
        fs::rename(path, &old)?;
        fs::rename(&self.folder, path).inspect_err(|_| {
            if fs::rename(&old, path).is_err() {
                // Now the only copy is there.
                self.outer.disable_cleanup(true);
            }
        })
    }
}

/// Writes to disk what the system still keeps of a file system.
fn sync_file_system(folder: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(File::open(folder)?)?;
    #[cfg(not(target_os = "linux"))]
    let _ = folder;
    Ok(())
}

/// What a commit creates or replaces.
#[derive(Debug)]
struct Target {
    /// For messages.
    given: PathBuf,
    /// Absolute, so that the program may change its working directory, and not a link.
    path: PathBuf,
    folder: PathBuf,
}

impl Target {
    /// Follows links, and removes what killed processes left beside the target.
    fn new(given: &Path) -> Result<Self> {
        let within = |e: io::Error| Error::from(e).context(given.display());
        let path = followed(given.to_owned()).map_err(within)?;
        let Some(name) = path.file_name() else {
            return Err(Error::invalid(format!("{} does not name a file", given.display())));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder = parent.canonicalize().ok().filter(|folder| folder.is_dir()).ok_or_else(|| {
            let message = format!("{}: there is no folder {}; make it first", given.display(), parent.display());
            Error::new(ErrorKind::Io, message)
        })?;
        temporary::sweep(&folder);
        Ok(Self { given: given.to_owned(), path: folder.join(name), folder })
    }

    fn at(&self, error: io::Error) -> Error {
        Error::from(error).context(self.given.display())
    }

    /// Makes names in the folder durable.
    fn sync_folder(&self) -> io::Result<()> {
        #[cfg(unix)]
        File::open(&self.folder)?.sync_all()?;
        Ok(())
    }
}

/// The path at the end of a chain of links, which need not exist.
fn followed(mut path: PathBuf) -> io::Result<PathBuf> {
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(link) => {
                // The system may forbid to follow a link of another user, even to nothing (`fs.protected_symlinks`).
                if let Err(e) = fs::metadata(&path)
                    && e.kind() == io::ErrorKind::PermissionDenied
                {
                    return Err(e);
                }
                path = path.parent().unwrap_or(Path::new("")).join(link);
            }
            // Not a link, or nothing; what else is wrong shows later.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_replaced_where_names_cannot_be_exchanged() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("store");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("old"), b"values").unwrap();
        let mut folder = AtomicFolder::create(&path).unwrap();
        fs::write(folder.temporary_path().join("new"), b"values").unwrap();
        folder.replace_in_two_steps().unwrap();
        drop(folder);
        assert!(path.join("new").is_file() && !path.join("old").exists());
        // The new folder is gone: the old one stays.
        let mut folder = AtomicFolder::create(&path).unwrap();
        fs::remove_dir(folder.temporary_path()).unwrap();
        folder.replace_in_two_steps().unwrap_err();
        drop(folder);
        assert!(path.join("new").is_file());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
    }
}
