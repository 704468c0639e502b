//! Opening files: rank 0 decides what becomes of one, and all follow.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ffi::{MPI_Comm, MPI_File, MPI_Info};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use mpi_sys as ffi;

use super::input::Input;
use super::old::Old;
use super::output::Output;
use super::{Content, Failure, Ours, Result, SUCCESS, insert, is_output, not_opened};
use crate::agreement::{broadcast, first_of, lent};
use crate::config::{FileRule, Rules};
use crate::report;
use crate::session::rules;

/// What becomes of a file.
enum Decision {
    /// It is not for us.
    Pass,
    Refuse(Failure),
    Input {
        rule: usize,
    },
    Output {
        rule: usize,
        old: Option<Old>,
        path: PathBuf,
    },
}

pub(crate) fn open(comm: MPI_Comm, name: *const c_char, amode: c_int, info: MPI_Info, fh: *mut MPI_File) -> Ours {
    let rules = rules().filter(|rules| !rules.files.is_empty())?;
    let comm = lent(comm)?;
    // SAFETY: MPI wants a text that ends with a NUL.
    let name = unsafe { CStr::from_ptr(name) };
    let shown = name.to_string_lossy().into_owned();
    let decided = if comm.rank() == 0 { decide(rules, &shown, amode, comm.size()) } else { Decision::Pass };
    let opened = match shared(&comm, decided) {
        Decision::Pass => return None,
        Decision::Refuse(failure) => Err((comm.rank() == 0, failure)),
        Decision::Input { rule } => input(&comm, name, &rules.files[rule], amode, info, fh),
        Decision::Output { rule, old, path } => output(&comm, &path, &rules.files[rule], old, amode, info, fh),
    };
    Some(match opened {
        Ok((code, content)) => {
            if let Some(content) = content {
                // SAFETY: MPI has put a handle there.
                insert(unsafe { *fh }, shown, content);
            }
            code
        }
        // One rank says it.
        Err((is_said, failure)) => not_opened(&shown, &failure, is_said),
    })
}

fn has(amode: c_int, flag: u32) -> bool {
    amode & flag as c_int != 0
}

/// On rank 0.
fn decide(rules: &Rules, name: &str, amode: c_int, n_ranks: c_int) -> Decision {
    let Some(rule) = rules.of_file(name) else { return Decision::Pass };
    let pass = |reason: &str| {
        report::passed(name, reason);
        Decision::Pass
    };
    if name.split('/').next().is_some_and(|first| first.contains(':')) {
        return pass("its name says which file system it is for");
    }
    let path = Path::new(name);
    if is_output(name) {
        let message = "this program writes it already, by another handle, and it is compressed when that is closed";
        return Decision::Refuse(Failure::new(ffi::MPI_ERR_FILE_IN_USE, message));
    }
    let is_file = std::fs::metadata(path).ok().map(|metadata| metadata.is_file());
    let old = match is_file {
        Some(false) => return pass("it is not a file"),
        Some(true) => Old::look(path),
        None => Ok(None),
    };
    if has(amode, ffi::MPI_MODE_RDONLY) {
        return match old {
            Ok(Some(Old { is_pumice: true, .. })) => Decision::Input { rule },
            Ok(_) => Decision::Pass,
            // The MPI library has the right error for a file that cannot be read.
            Err(_) if std::fs::File::open(path).is_err() => Decision::Pass,
            Err(failure) => Decision::Refuse(failure),
        };
    }
    let is_wanted = if is_file.is_some() { !has(amode, ffi::MPI_MODE_EXCL) } else { has(amode, ffi::MPI_MODE_CREATE) };
    if !is_wanted {
        // The MPI library has the right error for that.
        return Decision::Pass;
    }
    let modes = [
        (ffi::MPI_MODE_SEQUENTIAL, "it is opened as a stream (MPI_MODE_SEQUENTIAL)"),
        (ffi::MPI_MODE_DELETE_ON_CLOSE, "it is deleted when it is closed"),
    ];
    if let Some((_, reason)) = modes.iter().find(|(mode, _)| has(amode, *mode)) {
        return pass(reason);
    }
    if n_ranks < SimpleCommunicator::world().size() && !rules.files[rule].groups {
        return pass("not all ranks open it together; `groups = true` says that no others write to it");
    }
    let old = match old {
        Ok(old) => old,
        Err(failure) => return Decision::Refuse(failure),
    };
    if goes_on(amode) && old.as_ref().is_some_and(|old| !old.is_pumice) {
        return pass("it was there before, and the program opens it to read or to append; delete it first");
    }
    // What a link leads to.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    Decision::Output { rule, old, path }
}

/// Whether what is in the file already is needed from the start.
fn goes_on(amode: c_int) -> bool {
    has(amode, ffi::MPI_MODE_RDWR) || has(amode, ffi::MPI_MODE_APPEND)
}

/// The decision of rank 0, for all.
fn shared(comm: &SimpleCommunicator, decision: Decision) -> Decision {
    let (mut numbers, mut text) = match &decision {
        Decision::Pass => ([0; 5], Vec::new()),
        Decision::Refuse(failure) => ([1, u64::from(failure.class), 0, 0, 0], failure.message.clone().into_bytes()),
        Decision::Input { rule } => ([2, *rule as u64, 0, 0, 0], Vec::new()),
        Decision::Output { rule, old, path } => {
            let (n_bytes, is_pumice) = old.as_ref().map_or((0, false), |old| (old.n_bytes, old.is_pumice));
            let numbers = [3, *rule as u64, u64::from(old.is_some()), n_bytes, u64::from(is_pumice)];
            (numbers, path.as_os_str().as_bytes().to_vec())
        }
    };
    comm.process_at_rank(0).broadcast_into(&mut numbers[..]);
    if numbers[0] == 0 {
        return Decision::Pass;
    }
    broadcast(comm, 0, &mut text);
    let [kind, rule, has_old, n_bytes, is_pumice] = numbers;
    match kind {
        1 => Decision::Refuse(Failure::new(rule as u32, String::from_utf8_lossy(&text))),
        2 => Decision::Input { rule: rule as usize },
        _ => {
            let path = PathBuf::from(OsStr::from_bytes(&text));
            let old = (has_old == 1).then(|| Old { path: path.clone(), is_pumice: is_pumice == 1, n_bytes });
            Decision::Output { rule: rule as usize, old, path }
        }
    }
}

/// The code of MPI, and the file if that is success. With an error, whether this rank is to say it.
type Opened = std::result::Result<(c_int, Option<Content>), (bool, Failure)>;

fn input(
    comm: &SimpleCommunicator,
    name: &CStr,
    rule: &FileRule,
    amode: c_int,
    info: MPI_Info,
    fh: *mut MPI_File,
) -> Opened {
    let refuse = |failure| (comm.rank() == 0, failure);
    let input = Input::open(comm, Path::new(OsStr::from_bytes(name.to_bytes())), rule).map_err(refuse)?;
    // SAFETY: the arguments of the program.
    let code = unsafe { ffi::PMPI_File_open(comm.as_raw(), name.as_ptr(), amode, info, fh) };
    Ok((code, (code == SUCCESS).then(|| Content::Input(Box::new(input)))))
}

fn output(
    comm: &SimpleCommunicator,
    path: &Path,
    rule: &'static FileRule,
    old: Option<Old>,
    amode: c_int,
    info: MPI_Info,
    fh: *mut MPI_File,
) -> Opened {
    let refuse = |failure| (comm.rank() == 0, failure);
    let mut output = Output::new(comm.duplicate(), path, rule, old, has(amode, ffi::MPI_MODE_RDWR));
    let prepared = if comm.rank() == 0 { output.prepare() } else { Ok(()) };
    agree(comm, prepared).map_err(refuse)?;
    if goes_on(amode) {
        agree(comm, output.bring_old()).map_err(refuse)?;
    }
    let scratch = agree(
        comm,
        CString::new(output.scratch().as_os_str().as_bytes()).map_err(|_| Failure::unsupported("its name has a NUL")),
    )
    .map_err(refuse)?;
    let amode = amode & !(ffi::MPI_MODE_EXCL as c_int) | ffi::MPI_MODE_CREATE as c_int;
    // SAFETY: the arguments of the program, but for the name.
    let code = unsafe { ffi::PMPI_File_open(comm.as_raw(), scratch.as_ptr(), amode, info, fh) };
    Ok((code, (code == SUCCESS).then(|| Content::Output(Box::new(output)))))
}

/// The result of this rank if all have succeeded; otherwise the error of one that has not.
pub(super) fn agree<T>(comm: &SimpleCommunicator, mine: Result<T>) -> Result<T> {
    let class = mine.as_ref().err().map_or(ffi::MPI_ERR_IO, |failure| failure.class);
    match (first_of(comm, mine.as_ref().err().map(|failure| failure.message.clone())), mine) {
        (None, mine) => mine,
        (Some(message), _) => Err(Failure::new(class, message)),
    }
}
