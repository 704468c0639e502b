//! Messages on their way, and votes that are counted later. The crate `mpi` ties both to a scope, which ends before the call
//! that begins them would; here the buffers belong to what is waited for. `unsafe` is allowed for the C functions.
//!
//! Errors of communication end the job, as is the default of MPI, so codes are not looked at.
#![allow(unsafe_code, reason = "calls C functions of MPI")]

use std::any::Any;
use std::ffi::c_int;
use std::mem::MaybeUninit;

use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use mpi_sys as ffi;

/// Messages that are sent and not yet received. They keep their buffers.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    requests: Vec<ffi::MPI_Request>,
    /// Of each request.
    buffers: Vec<Message>,
    /// Of all.
    bytes: usize,
    /// The most that were kept at a time.
    pub(super) most_bytes: usize,
}

#[derive(Debug)]
struct Message {
    /// Only kept.
    _values: Box<dyn Any>,
    bytes: usize,
}

impl Outbox {
    /// Sends values, which are kept until they are received.
    pub(super) fn send<V: Equivalence + 'static>(
        &mut self,
        comm: &SimpleCommunicator,
        to: i32,
        tag: i32,
        values: Vec<V>,
    ) {
        let bytes = size_of_val(&values[..]);
        let mut request = MaybeUninit::uninit();
        let datatype = V::equivalent_datatype();
        // SAFETY: the buffer is on the heap and not touched before the request is complete: it goes to `buffers`, from where
        // `collect` takes it then, and `drop` waits for all.
        let request = unsafe {
            let (pointer, n) = (values.as_ptr().cast(), values.len() as c_int);
            ffi::MPI_Isend(pointer, n, datatype.as_raw(), to, tag, comm.as_raw(), request.as_mut_ptr());
            request.assume_init()
        };
        self.requests.push(request);
        self.buffers.push(Message { _values: Box::new(values), bytes });
        self.bytes += bytes;
        self.most_bytes = self.most_bytes.max(self.bytes);
    }

    /// Waits until so many more bytes are within the limit, or nothing else is on its way.
    pub(super) fn make_room(&mut self, bytes: usize, limit: usize) {
        self.progress();
        while !self.requests.is_empty() && self.bytes.saturating_add(bytes) > limit {
            self.complete(ffi::MPI_Waitsome);
        }
    }

    /// Lets MPI work, and forgets what has been received.
    pub(super) fn progress(&mut self) {
        self.complete(ffi::MPI_Testsome);
    }

    /// Waits until everything is received.
    pub(super) fn wait(&mut self) {
        while !self.requests.is_empty() {
            self.complete(ffi::MPI_Waitsome);
        }
    }

    /// Calls `MPI_Waitsome` or `MPI_Testsome`, and frees the buffers of requests that are complete.
    fn complete(
        &mut self,
        call: unsafe extern "C" fn(c_int, *mut ffi::MPI_Request, *mut c_int, *mut c_int, *mut ffi::MPI_Status) -> c_int,
    ) {
        if self.requests.is_empty() {
            return;
        }
        let n = self.requests.len();
        let mut n_done = 0;
        let mut done = vec![0; n];
        // SAFETY: all lists have `n` entries, and the requests are active; statuses are not asked for.
        unsafe {
            call(n as c_int, self.requests.as_mut_ptr(), &mut n_done, done.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE);
        }
        done.truncate(usize::try_from(n_done).unwrap_or(0));
        // From the last on, so that those before keep their places.
        done.sort_unstable_by(|a, b| b.cmp(a));
        for i in done {
            self.requests.swap_remove(i as usize);
            self.bytes -= self.buffers.swap_remove(i as usize).bytes;
        }
    }
}

impl Drop for Outbox {
    /// After a panic nobody may be there to receive: the buffers stay where they are.
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(std::mem::take(&mut self.buffers));
        } else {
            self.wait();
        }
    }
}

/// Votes of all ranks in one call, which are counted in another: each is 0 or 1, and all learn the greatest.
#[derive(Debug)]
pub(super) struct Votes<const N: usize> {
    request: ffi::MPI_Request,
    /// Not touched before the request is complete.
    _mine: Vec<i32>,
    all: Vec<i32>,
}

impl<const N: usize> Votes<N> {
    /// Begins a vote, which all ranks begin in the same order.
    pub(super) fn cast(comm: &SimpleCommunicator, mine: [bool; N]) -> Self {
        let mine = mine.map(i32::from).to_vec();
        let mut all = vec![0; N];
        let mut request = MaybeUninit::uninit();
        // SAFETY: both buffers have `N` numbers on the heap, where they stay until the request is complete: `count` and
        // `drop` wait for it.
        let request = unsafe {
            ffi::MPI_Iallreduce(
                mine.as_ptr().cast(),
                all.as_mut_ptr().cast(),
                N as c_int,
                i32::equivalent_datatype().as_raw(),
                ffi::RSMPI_MAX,
                comm.as_raw(),
                request.as_mut_ptr(),
            );
            request.assume_init()
        };
        Self { request, _mine: mine, all }
    }

    /// Whether any rank voted so, once all have voted.
    pub(super) fn count(mut self) -> [bool; N] {
        self.wait();
        std::array::from_fn(|i| self.all[i] != 0)
    }

    fn wait(&mut self) {
        // SAFETY: the request is active, or null, for which this returns at once.
        unsafe { ffi::MPI_Wait(&mut self.request, ffi::RSMPI_STATUS_IGNORE) };
    }
}

impl<const N: usize> Drop for Votes<N> {
    fn drop(&mut self) {
        self.wait();
    }
}
