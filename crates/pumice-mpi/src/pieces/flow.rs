//! The loop that all routes of pieces have in common: send own pieces, take those that come, pass them on.
//!
//! **Why no rank waits for ever.** A piece that is to be passed on is taken only if its copies have room. On a route without
//! cycles, the last ranks always take pieces, and so make room for those before. Around a ring, an own piece is sent only
//! if that leaves room for one more, so that not all places of all ranks are ever taken: somewhere a piece moves on, until
//! it is where it ends.

use std::rc::Rc;

use mpi::point_to_point::Source as _;
use mpi::traits::*;

use super::outbox::Outbox;

/// The bytes of a piece, which several messages may share.
pub(crate) type Piece = Rc<Vec<u8>>;

/// What pieces this rank takes and passes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// The rank that pieces come from; any, if there is none.
    pub(crate) source: Option<i32>,
    /// How many come.
    pub(crate) n_incoming: usize,
    /// How many ranks a piece is passed on to at most.
    pub(crate) n_forwards: usize,
}

impl Flow {
    /// Sends pieces, which may be coded as they are asked for, and takes those that come, until that is done. `forward` says
    /// which ranks a piece is passed on to. Returns how many bytes were sent.
    pub(crate) fn run<'f>(
        self,
        comm: &impl Communicator,
        outgoing: impl IntoIterator<Item = (i32, Piece)>,
        forward: impl Fn(&[u8]) -> &'f [i32],
        mut take: impl FnMut(i32, Piece),
    ) -> u64 {
        let mut outbox = Outbox::new(comm, 0);
        let mut outgoing = outgoing.into_iter();
        let (mut has_more, mut n_left) = (true, self.n_incoming);
        while has_more || n_left > 0 {
            let mut is_idle = true;
            outbox.sweep();
            if has_more && outbox.n_free() > self.n_forwards {
                is_idle = false;
                match outgoing.next() {
                    Some((to, piece)) => outbox.send(to, piece),
                    None => has_more = false,
                }
            }
            if n_left > 0 && outbox.n_free() >= self.n_forwards {
                // With nothing else to do, MPI may wait as it likes.
                let may_wait = !has_more && outbox.is_empty();
                if let Some((piece, source)) = self.receive(comm, may_wait) {
                    is_idle = false;
                    n_left -= 1;
                    forward(&piece).iter().for_each(|to| outbox.send(*to, piece.clone()));
                    take(source, piece);
                }
            }
            if is_idle && n_left == 0 {
                outbox.wait();
            } else if is_idle {
                std::thread::yield_now();
            }
        }
        outbox.finish()
    }

    fn receive(self, comm: &impl Communicator, may_wait: bool) -> Option<(Piece, i32)> {
        let message = match (self.source, may_wait) {
            (Some(rank), true) => Some(comm.process_at_rank(rank).matched_probe()),
            (None, true) => Some(comm.any_process().matched_probe()),
            (Some(rank), false) => comm.process_at_rank(rank).immediate_matched_probe(),
            (None, false) => comm.any_process().immediate_matched_probe(),
        };
        let (bytes, status) = message?.matched_receive_vec::<u8>();
        Some((Rc::new(bytes), status.source_rank()))
    }
}
