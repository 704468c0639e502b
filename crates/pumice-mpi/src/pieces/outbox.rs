//! Pieces on their way to other ranks, with their memory. The requests of the crate `mpi` borrow buffers for as long as a
//! scope lasts, so that none could be freed before all are sent.
#![allow(unsafe_code, reason = "calls C functions of MPI")]

use std::rc::Rc;

use mpi::traits::*;
use mpi_sys as ffi;

/// How many pieces are on their way at most.
pub(super) const SLOTS: usize = 8;

/// Pieces that were sent and have not been received yet.
pub(crate) struct Outbox<'a, M> {
    comm: &'a M,
    tag: i32,
    requests: Vec<ffi::MPI_Request>,
    /// One for each request.
    pieces: Vec<Rc<Vec<u8>>>,
    pub(crate) sent_bytes: u64,
}

impl<'a, M: Communicator> Outbox<'a, M> {
    pub(crate) fn new(comm: &'a M, tag: i32) -> Self {
        Self { comm, tag, requests: Vec::new(), pieces: Vec::new(), sent_bytes: 0 }
    }

    /// How many pieces may be sent now.
    pub(super) fn n_free(&self) -> usize {
        SLOTS.saturating_sub(self.requests.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Sends a piece, when there is room. It leaves the box when it is received: MPI would otherwise keep copies of small
    /// pieces without a limit.
    pub(crate) fn send(&mut self, to: i32, piece: Rc<Vec<u8>>) {
        while self.n_free() == 0 {
            self.wait();
        }
        let mut request = null();
        let n = i32::try_from(piece.len()).expect("a piece has less than 2^31 bytes");
        self.sent_bytes += piece.len() as u64;
        // SAFETY: the bytes stay where they are until the request is complete: this box has a share in them, which it
        // gives up in `keep_incomplete` only, or never.
        unsafe {
            let (bytes, kind) = (piece.as_ptr().cast(), u8::equivalent_datatype().as_raw());
            ffi::MPI_Issend(bytes, n, kind, to, self.tag, self.comm.as_raw(), &mut request);
        }
        self.requests.push(request);
        self.pieces.push(piece);
    }

    /// Forgets what was received.
    pub(super) fn sweep(&mut self) {
        self.complete(ffi::MPI_Testsome);
    }

    /// Waits until a piece is received.
    pub(super) fn wait(&mut self) {
        self.complete(ffi::MPI_Waitsome);
    }

    /// Waits until all pieces are received, and says how many bytes they had.
    pub(crate) fn finish(mut self) -> u64 {
        while !self.is_empty() {
            self.wait();
        }
        self.sent_bytes
    }

    fn complete(&mut self, some: CompleteSome) {
        if self.is_empty() {
            return;
        }
        let n = self.requests.len() as i32;
        let (mut n_done, mut done) = (0, [0; SLOTS]);
        // SAFETY: all requests are active ones of this box, which has no more of them than there is room for indices.
        unsafe {
            let statuses = statuses_ignore();
            some(n, self.requests.as_mut_ptr(), &mut n_done, done.as_mut_ptr(), statuses);
        }
        self.keep_incomplete();
    }

    /// MPI replaces requests that are complete by null.
    fn keep_incomplete(&mut self) {
        let is_complete: Vec<bool> = self.requests.iter().map(|request| *request == null()).collect();
        let mut i = is_complete.iter();
        self.requests.retain(|request| *request != null());
        self.pieces.retain(|_| i.next() == Some(&false));
    }
}

type CompleteSome = unsafe extern "C" fn(i32, *mut ffi::MPI_Request, *mut i32, *mut i32, *mut ffi::MPI_Status) -> i32;

fn null() -> ffi::MPI_Request {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

fn statuses_ignore() -> *mut ffi::MPI_Status {
    // SAFETY: a constant of the library.
    unsafe { ffi::RSMPI_STATUSES_IGNORE }
}

impl<M> Drop for Outbox<'_, M> {
    /// After a panic, MPI may still read the pieces.
    fn drop(&mut self) {
        self.pieces.drain(..).for_each(std::mem::forget);
    }
}
