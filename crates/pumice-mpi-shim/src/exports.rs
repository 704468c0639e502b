//! The functions of MPI that this library has under their own names. Each asks our side first, and hands on to the MPI
//! library what is not for us.
//!
//! Those that begin with `PMPI_` are here as well: the Fortran interfaces of MPI libraries call these. What the MPI library
//! calls itself while it is in one of them, and what we call, goes straight through: [`Nested`].
//!
//! `unsafe` is allowed for this interface of C.
#![allow(unsafe_code, non_snake_case, clippy::too_many_arguments, reason = "the names, pointers and arguments of MPI")]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use ffi::{MPI_Comm, MPI_Count, MPI_Datatype, MPI_File, MPI_Info, MPI_Offset, MPI_Request, MPI_Status};
use mpi_sys as ffi;

use crate::files::{self, Answer, Direction, Memory, Place, Transfer};
use crate::gather::{self, Received, Sent};
use crate::{report, session};

/// What our side says of a call: its code, or `None` if it is not for us.
type Ours = Option<c_int>;

/// A function of the MPI library. Its name ends with a NUL.
struct Original {
    name: &'static str,
    address: OnceLock<Option<usize>>,
}

impl Original {
    const fn new(name: &'static str) -> Self {
        Self { name, address: OnceLock::new() }
    }

    fn address(&self) -> Option<usize> {
        *self.address.get_or_init(|| {
            let name = CStr::from_bytes_with_nul(self.name.as_bytes()).ok()?;
            // SAFETY: the name ends with a NUL.
            let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            (!address.is_null()).then_some(address as usize)
        })
    }
}

thread_local!(static IS_INSIDE: Cell<bool> = const { Cell::new(false) });

/// While it lives, what this thread calls goes straight to the MPI library.
struct Nested;

impl Nested {
    /// `None` if this thread is already within a call.
    fn enter() -> Option<Self> {
        // Not `then_some`: what that drops would say that the thread is outside.
        (!IS_INSIDE.replace(true)).then(|| Self)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

fn answer(ours: impl FnOnce() -> Ours, original: impl Fn() -> c_int) -> c_int {
    let Some(_nested) = Nested::enter() else { return original() };
    match catch_unwind(AssertUnwindSafe(ours)) {
        Ok(Some(code)) => code,
        Ok(None) => original(),
        Err(_) => {
            session::say("there is a fault in this library (see above); the call of MPI that met it returns an error");
            ffi::MPI_ERR_OTHER as c_int
        }
    }
}

macro_rules! export {
    ($($name:ident, $profiling:ident($($argument:ident: $type:ty),*) => $ours:expr;)*) => {$(
        /// # Safety
        ///
        /// As the function of MPI has it.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static ORIGINAL: Original = Original::new(concat!(stringify!($profiling), "\0"));
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            let original = || match ORIGINAL.address() {
                None => ffi::MPI_ERR_OTHER as c_int,
                Some(address) => {
                    // SAFETY: the function of this name has these arguments.
                    let function = unsafe { std::mem::transmute::<usize, Function>(address) };
                    // SAFETY: they are the program's.
                    unsafe { function($($argument),*) }
                }
            };
            answer(|| $ours, original)
        }

        /// # Safety
        ///
        /// As the function of MPI has it.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $profiling($($argument: $type),*) -> c_int {
            // SAFETY: the same arguments.
            unsafe { $name($($argument),*) }
        }
    )*};
}

/// Reads and writes of the program, by the form of their arguments.
macro_rules! export_transfers {
    ($($name:ident, $profiling:ident, $count:ty, $direction:ident, $place:ident, $together:literal, $answer:ident;)*) => {$(
        export_transfers!(@$place $answer $name, $profiling, $count, $direction, $together);
    )*};
    (@At Later $name:ident, $profiling:ident, $count:ty, $direction:ident, $together:literal) => {
        export! { $name, $profiling(fh: MPI_File, offset: MPI_Offset, buffer: *mut c_void, count: $count, datatype: MPI_Datatype) =>
            transfer(fh, Direction::$direction, Place::At(offset), $together, (buffer, count as i64, datatype), Answer::Later);
        }
    };
    (@$place:ident Later $name:ident, $profiling:ident, $count:ty, $direction:ident, $together:literal) => {
        export! { $name, $profiling(fh: MPI_File, buffer: *mut c_void, count: $count, datatype: MPI_Datatype) =>
            transfer(fh, Direction::$direction, Place::$place, $together, (buffer, count as i64, datatype), Answer::Later);
        }
    };
    (@At $answer:ident $name:ident, $profiling:ident, $count:ty, $direction:ident, $together:literal) => {
        export! { $name, $profiling(
            fh: MPI_File, offset: MPI_Offset, buffer: *mut c_void, count: $count, datatype: MPI_Datatype,
            done: *mut export_transfers!(# $answer)
        ) => transfer(fh, Direction::$direction, Place::At(offset), $together, (buffer, count as i64, datatype), Answer::$answer(done)); }
    };
    (@$place:ident $answer:ident $name:ident, $profiling:ident, $count:ty, $direction:ident, $together:literal) => {
        export! { $name, $profiling(
            fh: MPI_File, buffer: *mut c_void, count: $count, datatype: MPI_Datatype,
            done: *mut export_transfers!(# $answer)
        ) => transfer(fh, Direction::$direction, Place::$place, $together, (buffer, count as i64, datatype), Answer::$answer(done)); }
    };
    (# Status) => { MPI_Status };
    (# Request) => { MPI_Request };
}

fn transfer(
    fh: MPI_File,
    direction: Direction,
    place: Place,
    is_collective: bool,
    (buffer, count, datatype): (*mut c_void, i64, MPI_Datatype),
    answer: Answer,
) -> Ours {
    let memory = Memory { buffer, count, datatype };
    files::transfer(Transfer { fh, direction, place, is_collective, memory, answer })
}

export_transfers! {
    MPI_File_read, PMPI_File_read, c_int, Read, Pointer, false, Status;
    MPI_File_read_at, PMPI_File_read_at, c_int, Read, At, false, Status;
    MPI_File_read_all, PMPI_File_read_all, c_int, Read, Pointer, true, Status;
    MPI_File_read_at_all, PMPI_File_read_at_all, c_int, Read, At, true, Status;
    MPI_File_read_shared, PMPI_File_read_shared, c_int, Read, Shared, false, Status;
    MPI_File_iread, PMPI_File_iread, c_int, Read, Pointer, false, Request;
    MPI_File_iread_at, PMPI_File_iread_at, c_int, Read, At, false, Request;
    MPI_File_iread_all, PMPI_File_iread_all, c_int, Read, Pointer, true, Request;
    MPI_File_iread_at_all, PMPI_File_iread_at_all, c_int, Read, At, true, Request;
    MPI_File_iread_shared, PMPI_File_iread_shared, c_int, Read, Shared, false, Request;
    MPI_File_read_ordered, PMPI_File_read_ordered, c_int, Read, Shared, true, Status;
    MPI_File_read_all_begin, PMPI_File_read_all_begin, c_int, Read, Pointer, true, Later;
    MPI_File_read_at_all_begin, PMPI_File_read_at_all_begin, c_int, Read, At, true, Later;
    MPI_File_read_ordered_begin, PMPI_File_read_ordered_begin, c_int, Read, Shared, true, Later;
    MPI_File_write, PMPI_File_write, c_int, Write, Pointer, false, Status;
    MPI_File_write_at, PMPI_File_write_at, c_int, Write, At, false, Status;
    MPI_File_write_all, PMPI_File_write_all, c_int, Write, Pointer, true, Status;
    MPI_File_write_at_all, PMPI_File_write_at_all, c_int, Write, At, true, Status;
    MPI_File_write_shared, PMPI_File_write_shared, c_int, Write, Shared, false, Status;
    MPI_File_iwrite, PMPI_File_iwrite, c_int, Write, Pointer, false, Request;
    MPI_File_iwrite_at, PMPI_File_iwrite_at, c_int, Write, At, false, Request;
    MPI_File_iwrite_all, PMPI_File_iwrite_all, c_int, Write, Pointer, true, Request;
    MPI_File_iwrite_at_all, PMPI_File_iwrite_at_all, c_int, Write, At, true, Request;
    MPI_File_iwrite_shared, PMPI_File_iwrite_shared, c_int, Write, Shared, false, Request;
    MPI_File_write_ordered, PMPI_File_write_ordered, c_int, Write, Shared, true, Status;
    MPI_File_write_all_begin, PMPI_File_write_all_begin, c_int, Write, Pointer, true, Later;
    MPI_File_write_at_all_begin, PMPI_File_write_at_all_begin, c_int, Write, At, true, Later;
    MPI_File_write_ordered_begin, PMPI_File_write_ordered_begin, c_int, Write, Shared, true, Later;
    MPI_File_read_c, PMPI_File_read_c, MPI_Count, Read, Pointer, false, Status;
    MPI_File_read_at_c, PMPI_File_read_at_c, MPI_Count, Read, At, false, Status;
    MPI_File_read_all_c, PMPI_File_read_all_c, MPI_Count, Read, Pointer, true, Status;
    MPI_File_read_at_all_c, PMPI_File_read_at_all_c, MPI_Count, Read, At, true, Status;
    MPI_File_read_shared_c, PMPI_File_read_shared_c, MPI_Count, Read, Shared, false, Status;
    MPI_File_iread_c, PMPI_File_iread_c, MPI_Count, Read, Pointer, false, Request;
    MPI_File_iread_at_c, PMPI_File_iread_at_c, MPI_Count, Read, At, false, Request;
    MPI_File_iread_all_c, PMPI_File_iread_all_c, MPI_Count, Read, Pointer, true, Request;
    MPI_File_iread_at_all_c, PMPI_File_iread_at_all_c, MPI_Count, Read, At, true, Request;
    MPI_File_iread_shared_c, PMPI_File_iread_shared_c, MPI_Count, Read, Shared, false, Request;
    MPI_File_read_ordered_c, PMPI_File_read_ordered_c, MPI_Count, Read, Shared, true, Status;
    MPI_File_read_all_begin_c, PMPI_File_read_all_begin_c, MPI_Count, Read, Pointer, true, Later;
    MPI_File_read_at_all_begin_c, PMPI_File_read_at_all_begin_c, MPI_Count, Read, At, true, Later;
    MPI_File_read_ordered_begin_c, PMPI_File_read_ordered_begin_c, MPI_Count, Read, Shared, true, Later;
    MPI_File_write_c, PMPI_File_write_c, MPI_Count, Write, Pointer, false, Status;
    MPI_File_write_at_c, PMPI_File_write_at_c, MPI_Count, Write, At, false, Status;
    MPI_File_write_all_c, PMPI_File_write_all_c, MPI_Count, Write, Pointer, true, Status;
    MPI_File_write_at_all_c, PMPI_File_write_at_all_c, MPI_Count, Write, At, true, Status;
    MPI_File_write_shared_c, PMPI_File_write_shared_c, MPI_Count, Write, Shared, false, Status;
    MPI_File_iwrite_c, PMPI_File_iwrite_c, MPI_Count, Write, Pointer, false, Request;
    MPI_File_iwrite_at_c, PMPI_File_iwrite_at_c, MPI_Count, Write, At, false, Request;
    MPI_File_iwrite_all_c, PMPI_File_iwrite_all_c, MPI_Count, Write, Pointer, true, Request;
    MPI_File_iwrite_at_all_c, PMPI_File_iwrite_at_all_c, MPI_Count, Write, At, true, Request;
    MPI_File_iwrite_shared_c, PMPI_File_iwrite_shared_c, MPI_Count, Write, Shared, false, Request;
    MPI_File_write_ordered_c, PMPI_File_write_ordered_c, MPI_Count, Write, Shared, true, Status;
    MPI_File_write_all_begin_c, PMPI_File_write_all_begin_c, MPI_Count, Write, Pointer, true, Later;
    MPI_File_write_at_all_begin_c, PMPI_File_write_at_all_begin_c, MPI_Count, Write, At, true, Later;
    MPI_File_write_ordered_begin_c, PMPI_File_write_ordered_begin_c, MPI_Count, Write, Shared, true, Later;
}

export! {
    MPI_Init, PMPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) => {
        // SAFETY: the arguments of the program.
        started(unsafe { ffi::PMPI_Init(argc, argv) })
    };
    MPI_Init_thread, PMPI_Init_thread(
        argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int
    ) => {
        // SAFETY: the arguments of the program.
        started(unsafe { ffi::PMPI_Init_thread(argc, argv, required, provided) })
    };
    MPI_Finalize, PMPI_Finalize() => {
        files::close_all();
        report::finish();
        None
    };

    MPI_File_open, PMPI_File_open(comm: MPI_Comm, name: *const c_char, amode: c_int, info: MPI_Info, fh: *mut MPI_File) =>
        files::open(comm, name, amode, info, fh);
    MPI_File_close, PMPI_File_close(fh: *mut MPI_File) => files::close(fh);
    MPI_File_set_view, PMPI_File_set_view(
        fh: MPI_File, displacement: MPI_Offset, etype: MPI_Datatype, filetype: MPI_Datatype, datarep: *const c_char, info: MPI_Info
    ) => files::set_view(fh, displacement, etype, filetype, datarep, info);
    MPI_File_seek, PMPI_File_seek(fh: MPI_File, offset: MPI_Offset, whence: c_int) => files::seek(fh, offset, whence);
    MPI_File_seek_shared, PMPI_File_seek_shared(fh: MPI_File, offset: MPI_Offset, whence: c_int) => files::seek_shared(fh);
    MPI_File_get_size, PMPI_File_get_size(fh: MPI_File, size: *mut MPI_Offset) => files::get_size(fh, size);
    MPI_File_set_size, PMPI_File_set_size(fh: MPI_File, size: MPI_Offset) => files::set_size(fh, size, true);
    MPI_File_preallocate, PMPI_File_preallocate(fh: MPI_File, size: MPI_Offset) => files::set_size(fh, size, false);
    MPI_File_sync, PMPI_File_sync(fh: MPI_File) => files::sync(fh);
    MPI_File_read_all_end, PMPI_File_read_all_end(fh: MPI_File, buffer: *mut c_void, status: *mut MPI_Status) => files::end(fh, status);
    MPI_File_read_at_all_end, PMPI_File_read_at_all_end(fh: MPI_File, buffer: *mut c_void, status: *mut MPI_Status) => files::end(fh, status);
    MPI_File_write_all_end, PMPI_File_write_all_end(fh: MPI_File, buffer: *const c_void, status: *mut MPI_Status) => files::end(fh, status);
    MPI_File_write_at_all_end, PMPI_File_write_at_all_end(fh: MPI_File, buffer: *const c_void, status: *mut MPI_Status) => files::end(fh, status);
}

macro_rules! export_gathers {
    ($($gather:ident, $gather_p:ident, $gatherv:ident, $gatherv_p:ident, $count:ty, $displacement:ty;)*) => {$( export! {
        $gather, $gather_p(
            buffer: *const c_void, count: $count, datatype: MPI_Datatype,
            out: *mut c_void, n_each: $count, out_type: MPI_Datatype, root: c_int, comm: MPI_Comm
        ) => {
            let sent = Sent { buffer, count: count as i64, datatype };
            gather::gather(sent, Received { buffer: out, datatype: out_type, counts: |_| (n_each as i64, None) }, false, root, comm)
        };
        $gatherv, $gatherv_p(
            buffer: *const c_void, count: $count, datatype: MPI_Datatype, out: *mut c_void,
            counts: *const $count, displacements: *const $displacement, out_type: MPI_Datatype, root: c_int, comm: MPI_Comm
        ) => {
            let sent = Sent { buffer, count: count as i64, datatype };
            // SAFETY: the root, which alone asks, has a count and a displacement for each rank.
            let of_rank = |rank: usize| unsafe { (*counts.add(rank) as i64, Some(*displacements.add(rank) as i64)) };
            gather::gather(sent, Received { buffer: out, datatype: out_type, counts: of_rank }, true, root, comm)
        };
    } )*};
}

export_gathers! {
    MPI_Gather, PMPI_Gather, MPI_Gatherv, PMPI_Gatherv, c_int, c_int;
    MPI_Gather_c, PMPI_Gather_c, MPI_Gatherv_c, PMPI_Gatherv_c, MPI_Count, ffi::MPI_Aint;
}

/// MPI has started, if this is the code of success.
fn started(code: c_int) -> Ours {
    if code == ffi::MPI_SUCCESS as c_int {
        session::start();
    }
    Some(code)
}
