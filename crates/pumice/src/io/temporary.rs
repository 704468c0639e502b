//! Temporary files and folders that have a name, `.pumice-….tmp`, beside their target: folders, files that a library
//! writes by name, and all files where the file system has no unnamed ones.
//!
//! A process that is killed leaves them behind. The name says which process that was, so that a later one removes them
//! ([`sweep`]). A program that handles signals removes its own ([`UnfinishedFiles`]).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::{Builder, NamedTempFile, TempDir};

use crate::io::checksum;

const PREFIX: &str = ".pumice-";
const SUFFIX: &str = ".tmp";

/// In a temporary folder: what is written, and a folder with what it replaces, under the name to which that belongs.
pub(super) const NEW: &str = "new";
pub(super) const OLD: &str = "old";

/// How often a name is cleared that another thread uses again.
const MAX_CLEARINGS: usize = 1000;

/// The names that exist now; kept only if the program asked for it, so that no lock is held when another process is
/// forked.
static NAMES: OnceLock<Mutex<Vec<PathBuf>>> = OnceLock::new();

/// The temporary names of this process, for a program that removes them when a signal ends it. A library has no say in
/// what a signal does, so nothing here handles signals.
///
/// Files without a name need no removal: on Linux, the names exist for folders, for files that another library
/// writes, and on file systems without unnamed files.
#[derive(Clone, Copy, Debug)]
pub struct UnfinishedFiles(());

impl UnfinishedFiles {
    /// Starts to keep a list. Files that were created before are not on it.
    pub fn track() -> Self {
        NAMES.get_or_init(Mutex::default);
        Self(())
    }

    /// Removes all of them. From then on, threads that create or commit a file wait forever: call this from a thread of
    /// its own, right before the process ends. A commit that has begun is finished first.
    pub fn discard_all(self) {
        let Some(names) = NAMES.get() else { return };
        let names = lock(names);
        names.iter().for_each(|path| occupy(path));
        names.iter().for_each(|path| remove(path));
        std::mem::forget(names);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the list of names, if one is kept, together with what they stand for.
fn with_names<R>(change: impl FnOnce(&mut Vec<PathBuf>) -> R) -> R {
    match NAMES.get() {
        Some(names) => change(&mut lock(names)),
        None => change(&mut Vec::new()),
    }
}

/// Removes a file or folder. Nobody is left to be told if that fails.
fn remove(path: &Path) {
    if put_back(path) {
        let _ = if is_folder(path) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
}

fn is_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_dir())
}

/// Puts back what was to be replaced, if it was moved away and the new folder did not get its name. False if that fails,
/// or the name is in use, or another user made the temporary folder: it must stay then, as it holds the only copy.
fn put_back(temporary: &Path) -> bool {
    if !is_folder(&temporary.join(NEW)) {
        return true;
    }
    let mut moved = match fs::read_dir(temporary.join(OLD)) {
        Ok(moved) => moved,
        Err(e) => return e.kind() == io::ErrorKind::NotFound,
    };
    let folder = temporary.parent().unwrap_or(Path::new(""));
    is_ours(temporary)
        && moved.all(|old| {
            old.is_ok_and(|old| {
                let name = folder.join(old.file_name());
                name.symlink_metadata().is_err() && fs::rename(old.path(), name).is_ok()
            })
        })
}

/// Whether a path belongs to this user: in the folder of another one, links may lead anywhere.
#[cfg(target_os = "linux")]
fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    path.symlink_metadata().is_ok_and(|m| m.uid() == rustix::process::geteuid().as_raw())
}

/// Elsewhere, only folders of this process are looked at.
#[cfg(not(target_os = "linux"))]
fn is_ours(_: &Path) -> bool {
    true
}

/// Removes a file or folder and gives its name to the other of both, so that threads that still write fail. They would
/// make it again otherwise. It is moved away for that, as removing a folder may fail as long as they add to it.
fn occupy(path: &Path) {
    let was_folder = is_folder(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!("{}_{SUFFIX}", name.strip_suffix(SUFFIX).unwrap_or(&name)));
    let mut is_occupied = false;
    for _ in 0..MAX_CLEARINGS {
        if !is_occupied {
            if fs::rename(path, &aside).is_err() {
                remove(path);
            }
            let new = if was_folder { File::create_new(path).map(drop) } else { fs::create_dir(path) };
            is_occupied = !new.is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists);
        }
        // A thread may be about to add to it.
        remove(&aside);
        if is_occupied && aside.symlink_metadata().is_err() {
            return;
        }
    }
}

/// An entry of the list of names, which is deleted with it.
#[derive(Debug)]
pub(super) struct Listed(PathBuf);

impl Drop for Listed {
    fn drop(&mut self) {
        with_names(|names| names.retain(|name| *name != self.0));
    }
}

/// Creates a named temporary file, with the permissions of any new file. `is_ours` says that no library opens it by
/// its name: then it is locked, by which another process sees that it is in use.
pub(super) fn file(folder: &Path, is_ours: bool) -> io::Result<(NamedTempFile, Listed)> {
    let prefix = prefix();
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = with_names(|names| {
        let file = builder.tempfile_in(folder)?;
        names.push(file.path().into());
        io::Result::Ok(file)
    })?;
    // A lock keeps the file where its process was forked and the first one has ended. Some file systems have no locks.
    if cfg!(target_os = "linux") && is_ours {
        let _ = file.as_file().try_lock();
    }
    let listed = Listed(file.path().into());
    Ok((file, listed))
}

/// Creates a temporary folder.
pub(super) fn folder(parent: &Path) -> io::Result<(TempDir, Listed)> {
    let prefix = prefix();
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX);
    let folder = with_names(|names| {
        let folder = builder.tempdir_in(parent)?;
        names.push(folder.path().into());
        io::Result::Ok(folder)
    })?;
    let listed = Listed(folder.path().into());
    Ok((folder, listed))
}

/// Calls `replace` while [`UnfinishedFiles::discard_all`] waits.
pub(super) fn uninterrupted<R>(replace: impl FnOnce() -> R) -> R {
    with_names(|_| replace())
}

/// Puts an unnamed file in the place of `target`, in `folder`: under a temporary name first, as a file cannot be linked
/// over another one.
#[cfg(target_os = "linux")]
pub(super) fn link_over(folder: &Path, target: &Path, link: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let prefix = prefix();
    uninterrupted(|| {
        let mut builder = Builder::new();
        // Tries other names while they exist.
        let temporary = builder.prefix(&prefix).suffix(SUFFIX).make_in(folder, |name| link(name))?;
        temporary.into_temp_path().persist(target).map_err(|e| e.error)
    })
}

/// How names of this process begin.
fn prefix() -> String {
    Owner::current().map_or(PREFIX.into(), Owner::prefix)
}

/// Removes what processes of this machine left behind in a folder when they were killed. Each process looks into a
/// folder once.
///
/// A name from another machine, from before the machine was started, or from another container says nothing about the
/// processes here, so such a file stays. So does one that is locked. A folder that was to be replaced gets its name back.
pub(super) fn sweep(folder: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if !lock(&SWEPT).insert(folder.into()) {
        return;
    }
    let Some(current) = Owner::current() else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(Owner::of_name);
        if owner.is_some_and(|owner| owner.system == current.system && owner.has_ended()) && !is_locked(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Whether a regular file is locked, or may be.
fn is_locked(path: &Path) -> bool {
    if !path.symlink_metadata().is_ok_and(|m| m.is_file()) {
        return false;
    }
    let file = File::options().write(true).open(path);
    file.map_or(true, |file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// The process that a temporary name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    /// A hash of what tells the numbers of processes apart: this start of this machine, this container.
    system: u64,
    pid: u32,
    /// When the process started, as numbers of processes are used again.
    start: u64,
}

impl Owner {
    /// This process; `None` where the system does not say enough.
    fn current() -> Option<Self> {
        let pid = std::process::id();
        // In a container that sees the /proc of another one, numbers there have another meaning.
        (fs::read_link("/proc/self").ok()?.to_str()? == pid.to_string()).then_some(())?;
        let mut system = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        for namespace in ["pid", "time"] {
            let namespace = fs::read_link(format!("/proc/self/ns/{namespace}"));
            system += &namespace.map_or("none".into(), |link| link.to_string_lossy().into_owned());
        }
        Some(Self { system: checksum::xxh3(system.as_bytes()), pid, start: start_of(pid)? })
    }

    fn prefix(self) -> String {
        format!("{PREFIX}{:016x}-{}-{}-", self.system, self.pid, self.start)
    }

    fn of_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.split('-');
        let system = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().filter(|random| !random.is_empty())?;
        parts.next().is_none().then_some(Self { system, pid, start })
    }

    /// Whether the process, of this system, is no more.
    #[cfg(target_os = "linux")]
    fn has_ended(self) -> bool {
        use rustix::{io::Errno, process};
        // Asks by a signal, as /proc may hide the processes of other users.
        match i32::try_from(self.pid).ok().and_then(process::Pid::from_raw).map(process::test_kill_process) {
            Some(Err(Errno::SRCH)) => true,
            Some(_) => start_of(self.pid).is_some_and(|start| start != self.start),
            None => false,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn has_ended(self) -> bool {
        false
    }
}

/// When a process started, in clock ticks since the machine did: the 22nd field of its `stat`, whose second one is a
/// name in parentheses.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn name_of(owner: Owner) -> String {
        format!("{}random{SUFFIX}", owner.prefix())
    }

    /// A process of this system that has ended.
    fn ended() -> Owner {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        Owner { pid: child.id(), ..Owner::current().unwrap() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn files_of_ended_processes_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let current = Owner::current().unwrap();
        let kept = [
            name_of(current),
            // Another machine, or another start of this one.
            name_of(Owner { system: current.system ^ 1, ..ended() }),
            format!("{PREFIX}random{SUFFIX}"),
            format!("{}random", ended().prefix()),
            format!("{}{SUFFIX}", ended().prefix()),
            "result.pum".into(),
        ];
        // A number that is in use again.
        let stale = [name_of(ended()), name_of(Owner { start: current.start + 1, ..current })];
        for name in kept.iter().chain(&stale) {
            fs::write(folder.path().join(name), b"values").unwrap();
        }
        // A folder, and a file that a process holds which the first one forked.
        let stale_folder = folder.path().join(format!("{}folder{SUFFIX}", ended().prefix()));
        fs::create_dir_all(stale_folder.join("store/a")).unwrap();
        let locked_name = format!("{}locked{SUFFIX}", ended().prefix());
        let locked = File::create(folder.path().join(&locked_name)).unwrap();
        locked.try_lock().unwrap();
        sweep(folder.path());
        let mut expected: Vec<String> = kept.into_iter().chain([locked_name]).collect();
        expected.sort();
        assert_eq!(names(folder.path()), expected);
    }

    /// What a process leaves that was killed while it replaced `store`, before or after the new folder got its name.
    fn replacement(folder: &Path, has_new: bool) -> PathBuf {
        let temporary = folder.join(name_of(ended()));
        fs::create_dir_all(temporary.join(OLD).join("store/a")).unwrap();
        if has_new {
            fs::create_dir_all(temporary.join(NEW).join("b")).unwrap();
        }
        temporary
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn a_folder_whose_replacement_was_interrupted_gets_its_name_back() {
        let folder = tempfile::tempdir().unwrap();
        replacement(folder.path(), true);
        sweep(folder.path());
        assert_eq!(names(folder.path()), ["store"]);
        assert_eq!(names(&folder.path().join("store")), ["a"]);
        // After the commit, it does not come back even if someone has removed its successor.
        let folder = tempfile::tempdir().unwrap();
        replacement(folder.path(), false);
        sweep(folder.path());
        assert_eq!(names(folder.path()), [""; 0]);
        // Another user made the folder.
        let folder = tempfile::tempdir().unwrap();
        let temporary = replacement(folder.path(), true);
        if std::os::unix::fs::chown(&temporary, Some(65534), None).is_ok() {
            sweep(folder.path());
            assert!(temporary.join(OLD).join("store").exists());
        }
        // Another folder has the name by now.
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        let temporary = replacement(folder.path(), true);
        sweep(folder.path());
        assert_eq!(names(&temporary.join(OLD).join("store")), ["a"]);
        assert_eq!(names(&folder.path().join("store")), [""; 0]);
    }

    #[test]
    fn a_name_that_threads_still_use_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name_of(Owner::current().unwrap()));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for i in 0.. {
                        let inner = path.join(format!("{NEW}/{}", i % 50));
                        let _ = fs::create_dir_all(&inner).and_then(|()| fs::write(inner.join("chunk"), b"values"));
                        if is_over.load(Relaxed) {
                            break;
                        }
                    }
                });
            }
            while !path.join(NEW).join("40").is_dir() {
                std::thread::yield_now();
            }
            occupy(&path);
            let is_occupied = path.is_file();
            is_over.store(true, Relaxed);
            assert!(is_occupied);
        });
        remove(&path);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn names_say_whose_they_are() {
        let owner = Owner { system: 0xabc, pid: 17, start: 12345 };
        assert_eq!(name_of(owner), ".pumice-0000000000000abc-17-12345-random.tmp");
        assert_eq!(Owner::of_name(&name_of(owner)), Some(owner));
        assert_eq!(Owner::of_name(".pumice-0000000000000abc-17-12345-random-more.tmp"), None);
    }
}
