//! Open files by their number: `/dev/fd/3`, `/dev/stdout`. Such a path means the file that the caller has opened, at the
//! caller's position; opened by its path, it would be written from its start.
//!
//! `unsafe` is allowed for two calls that take the number of an open file.

use std::fs::File;
use std::io;
use std::path::Path;

/// The number of the open file that a path stands for, after following links: `/dev/stdout` is one.
#[cfg(unix)]
pub(crate) fn number(path: &Path) -> Option<i32> {
    /// Folders that list the open files of this process.
    const LISTS: [&str; 2] = ["/dev/fd", "/proc/self/fd"];
    /// Links are followed this far, as Linux does.
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let name = path.file_name()?;
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder.canonicalize().ok()?;
        if LISTS.iter().any(|list| Path::new(list).canonicalize().is_ok_and(|list| list == folder)) {
            return name.to_str()?.parse().ok();
        }
        path = folder.join(std::fs::read_link(folder.join(name)).ok()?);
    }
    None
}

/// Other systems have no such paths.
#[cfg(not(unix))]
pub(crate) fn number(_: &Path) -> Option<i32> {
    None
}

/// The open file of this number, as `>&3` in a shell: it shares its position with the caller.
#[cfg(unix)]
#[allow(unsafe_code)]
pub(crate) fn open(number: i32) -> io::Result<File> {
    use std::os::fd::BorrowedFd;

    use nix::libc;
    // SAFETY: only reads the flags of a number, which need not be in use.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // Files that this program has opened have the flag.
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the number is in use, and nothing here closes what was open before the program started.
    let file = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(file.try_clone_to_owned()?.into())
}

#[cfg(not(unix))]
pub(crate) fn open(_: i32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
