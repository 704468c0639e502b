//! Files of the program that hold arrays: what is behind their handles. `unsafe` is allowed for what the program passes.
#![allow(unsafe_code, reason = "pointers and handles of the program")]

mod completion;
mod input;
mod kept;
mod old;
mod opening;
mod output;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ffi::{MPI_Datatype, MPI_File, MPI_Info, MPI_Offset, MPI_Status};
use mpi_sys as ffi;

pub(crate) use completion::Answer;
pub(crate) use opening::open;

use crate::datatype::Layout;
use crate::session::say;
use crate::view::View;
use input::Input;
use output::Output;

/// What our side says of a call: its code, or `None` if the MPI library is to do it.
type Ours = Option<c_int>;

const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;

/// An error of MPI: its class, and what to say.
#[derive(Debug)]
pub(crate) struct Failure {
    class: u32,
    message: String,
}

impl Failure {
    fn new(class: u32, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ffi::MPI_ERR_UNSUPPORTED_OPERATION, message)
    }
}

impl From<pumice::Error> for Failure {
    fn from(error: pumice::Error) -> Self {
        Self::new(ffi::MPI_ERR_IO, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(ffi::MPI_ERR_IO, error.to_string())
    }
}

type Result<T> = std::result::Result<T, Failure>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Where in the view a transfer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the pointer of the rank, which moves on.
    Pointer,
    At(MPI_Offset),
    /// At the pointer that all ranks share.
    Shared,
}

/// A buffer of the program.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) buffer: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
}

/// A read or a write of the program.
pub(crate) struct Transfer {
    pub(crate) fh: MPI_File,
    pub(crate) direction: Direction,
    pub(crate) place: Place,
    pub(crate) is_collective: bool,
    pub(crate) memory: Memory,
    pub(crate) answer: Answer,
}

/// A file that is ours.
struct Open {
    /// In the order in which files were opened, which ranks that open files together have in common.
    number: usize,
    name: String,
    view: View,
    /// Bytes of a transfer that has begun and whose end the program has not yet asked for.
    begun: u64,
    content: Content,
}

enum Content {
    Output(Box<Output>),
    Input(Box<Input>),
}

// SAFETY: what MPI gives as handles may be used from any thread; that no two threads call MPI together where it does not
// allow that is up to the program.
unsafe impl Send for Open {}

type Files = HashMap<usize, Arc<Mutex<Open>>>;

static FILES: Mutex<Option<Files>> = Mutex::new(None);
static N_FILES: AtomicUsize = AtomicUsize::new(0);

fn files() -> MutexGuard<'static, Option<Files>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(fh: MPI_File) -> Option<Arc<Mutex<Open>>> {
    // Most programs have none: this is all that their other files cost.
    if N_FILES.load(Ordering::Relaxed) == 0 {
        return None;
    }
    files().as_ref()?.get(&(fh as usize)).cloned()
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn insert(fh: MPI_File, name: String, content: Content) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let open = Open { number, name, view: View::default(), begun: 0, content };
    files().get_or_insert_default().insert(fh as usize, Arc::new(Mutex::new(open)));
    N_FILES.fetch_add(1, Ordering::Relaxed);
}

/// Whether an output of this name is open here.
fn is_output(name: &str) -> bool {
    let all: Vec<_> = files().iter().flat_map(|files| files.values().cloned()).collect();
    all.iter().any(|open| {
        let open = lock(open);
        matches!(open.content, Content::Output(_)) && open.name == name
    })
}

/// Says an error, and lets the error handler of the file know.
fn failed(fh: MPI_File, name: &str, failure: &Failure) -> c_int {
    say(&format!("{name}: {}", failure.message));
    // SAFETY: a handle of the program.
    unsafe { ffi::PMPI_File_call_errhandler(fh, failure.class as c_int) };
    failure.class as c_int
}

/// The same for a file that is not open. Open MPI calls no error handler for these: only the fatal one is known here.
fn not_opened(name: &str, failure: &Failure, is_said: bool) -> c_int {
    if is_said {
        say(&format!("{name}: {}", failure.message));
    }
    // SAFETY: constants of the library, and an error handler.
    unsafe {
        let mut handler = ffi::RSMPI_ERRORS_RETURN;
        ffi::PMPI_File_get_errhandler(ffi::RSMPI_FILE_NULL, &mut handler);
        if handler == ffi::RSMPI_ERRORS_ARE_FATAL {
            ffi::PMPI_Abort(ffi::RSMPI_COMM_WORLD, failure.class as c_int);
        }
    }
    failure.class as c_int
}

pub(crate) fn close(fh: *mut MPI_File) -> Ours {
    // SAFETY: MPI wants a handle here.
    let handle = unsafe { *fh };
    find(handle)?;
    let open = files().as_mut()?.remove(&(handle as usize))?;
    N_FILES.fetch_sub(1, Ordering::Relaxed);
    let mut open = lock(&open);
    let Open { name, content, .. } = &mut *open;
    let closed = match content {
        Content::Input(_) => Ok(()),
        Content::Output(output) => output.close(name, handle),
    };
    // The handle closes in any case: the program has no more use for it.
    if let Err(failure) = &closed {
        failed(handle, name, failure);
    }
    // SAFETY: all ranks are here, as for every close.
    let code = unsafe { ffi::PMPI_File_close(fh) };
    if let Content::Output(output) = content {
        output.clear();
    }
    Some(closed.map_or_else(|failure| failure.class as c_int, |()| code))
}

/// Before MPI ends: programs should have closed their files, but what they have written must not be lost.
pub(crate) fn close_all() {
    let mut all: Vec<_> = files().take().into_iter().flatten().collect();
    all.sort_by_key(|(_, open)| lock(open).number);
    for (fh, open) in all {
        let mut open = lock(&open);
        let Open { name, content, .. } = &mut *open;
        let Content::Output(output) = content else { continue };
        if let Err(failure) = output.close(name, fh as MPI_File) {
            say(&format!("{name}: {}", failure.message));
        }
        output.clear();
    }
}

pub(crate) fn transfer(transfer: Transfer) -> Ours {
    let open = find(transfer.fh)?;
    let mut open = lock(&open);
    let Open { name, view, begun, content, .. } = &mut *open;
    let done = match content {
        // The file of the MPI library has what this rank has written, and goes on with the shared pointer.
        Content::Output(output) if transfer.place == Place::Shared => match output.give_up_unknown(SHARED_POINTER) {
            Ok(()) => return None,
            Err(failure) => Err(failure),
        },
        Content::Output(output) => output.transfer(view, &transfer),
        Content::Input(input) => input.transfer(view, &transfer),
    };
    Some(match done.and_then(|n| transfer.answer.give(n, begun)) {
        Ok(()) => SUCCESS,
        Err(failure) => failed(transfer.fh, name, &failure),
    })
}

const SHARED_POINTER: &str = "the program uses the shared file pointer";

/// The end of a transfer that was begun.
pub(crate) fn end(fh: MPI_File, status: *mut MPI_Status) -> Ours {
    let open = find(fh)?;
    let mut open = lock(&open);
    let done = Answer::Status(status).give(open.begun, &mut 0);
    open.begun = 0;
    Some(done.map_or_else(|failure| failed(fh, &open.name, &failure), |()| SUCCESS))
}

pub(crate) fn set_view(
    fh: MPI_File,
    displacement: MPI_Offset,
    etype: MPI_Datatype,
    filetype: MPI_Datatype,
    datarep: *const c_char,
    info: MPI_Info,
) -> Ours {
    let open = find(fh)?;
    let mut open = lock(&open);
    // SAFETY: the arguments of the program.
    let code = unsafe { ffi::PMPI_File_set_view(fh, displacement, etype, filetype, datarep, info) };
    if code != SUCCESS {
        return Some(code);
    }
    // SAFETY: MPI has taken the text, so it ends with a NUL.
    let is_native = unsafe { CStr::from_ptr(datarep) }.to_bytes().eq_ignore_ascii_case(b"native");
    let etype = Layout::of(etype);
    let view = Layout::of(filetype)
        .zip(etype)
        .and_then(|(filetype, etype)| View::new(displacement, etype.size, &filetype).filter(|_| is_native));
    let Open { name, view: current, content, .. } = &mut *open;
    let done = match (view, content) {
        (Some(view), _) => {
            *current = view;
            Ok(())
        }
        (None, Content::Output(output)) => {
            output.give_up_unknown("the file view has a type or a representation that is not known here")
        }
        (None, Content::Input(_)) => Err(Failure::unsupported(
            "the file view has a type or a representation that is not known here; decompress the file first",
        )),
    };
    Some(done.map_or_else(|failure| failed(fh, name, &failure), |()| SUCCESS))
}

pub(crate) fn seek(fh: MPI_File, offset: MPI_Offset, whence: c_int) -> Ours {
    let open = find(fh)?;
    let open = lock(&open);
    if whence != ffi::MPI_SEEK_END as c_int {
        // Positions are those of the MPI library's handle.
        return None;
    }
    let size = match &open.content {
        Content::Output(output) => output.size(fh),
        Content::Input(input) => input.size(),
    };
    let from_start = open.view.end_position(size) as MPI_Offset + offset;
    // SAFETY: a handle of the program.
    Some(unsafe { ffi::PMPI_File_seek(fh, from_start, ffi::MPI_SEEK_SET as c_int) })
}

pub(crate) fn seek_shared(fh: MPI_File) -> Ours {
    let open = find(fh)?;
    let mut open = lock(&open);
    let Open { name, content, .. } = &mut *open;
    let done = match content {
        Content::Output(output) => output.give_up_unknown(SHARED_POINTER),
        Content::Input(_) => Err(Failure::unsupported(input::NO_SHARED_POINTER)),
    };
    done.err().map(|failure| failed(fh, name, &failure))
}

pub(crate) fn get_size(fh: MPI_File, size: *mut MPI_Offset) -> Ours {
    let open = find(fh)?;
    let bytes = match &lock(&open).content {
        Content::Output(output) => output.size(fh),
        Content::Input(input) => input.size(),
    };
    // SAFETY: MPI wants the address of an offset here.
    unsafe { *size = bytes as MPI_Offset };
    Some(SUCCESS)
}

/// `is_exact`: a longer file is cut.
pub(crate) fn set_size(fh: MPI_File, size: MPI_Offset, is_exact: bool) -> Ours {
    let open = find(fh)?;
    if let Content::Output(output) = &mut lock(&open).content {
        output.set_size(u64::try_from(size).ok()?, is_exact);
    }
    // The file of the MPI library has the same size, for ranks that have given up.
    None
}

pub(crate) fn sync(fh: MPI_File) -> Ours {
    let open = find(fh)?;
    let mut open = lock(&open);
    let Open { name, content, .. } = &mut *open;
    let Content::Output(output) = content else { return None };
    output.synced().err().map(|failure| failed(fh, name, &failure))
}
