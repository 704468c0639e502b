//! The side of the model: copies values into messages and goes on.

use std::fmt;

use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::{Corner, copy_box};
use pumice::{Error, Result};

use super::layout::Slabs;
use super::message::{HEAD, Head, OUTCOME, PIECE, Subject, VALUES, outcome_of_bytes};
use super::options::Options;
use super::outbox::{Outbox, Votes};
use super::{Link, Totals};
use crate::agreement::copy_of;
use crate::collective::zeros;
use crate::local::{Block, LocalBox, Value, check_boxes, invalid};

/// A rank of the model. All clients make the same calls in the same order.
pub struct Client {
    link: Link,
    own: SimpleCommunicator,
    /// The clients again, for nothing but votes: what the model does together must not come between them.
    voters: SimpleCommunicator,
    options: Options,
    outbox: Outbox,
    /// Those of the last call, which the next one counts.
    votes: Option<Votes<3>>,
    /// What the servers have said, if it has arrived.
    outcome: Option<Result<Totals>>,
    /// What every call returns from now on.
    failure: Option<Error>,
    is_finished: bool,
    report: ClientReport,
}

/// What a client has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClientReport {
    /// Calls of [`Client::write`].
    pub n_calls: u64,
    /// Seconds in these calls: what the model lost.
    pub seconds: f64,
    /// Of these, seconds of waiting for room in memory, or for clients that were a call behind.
    pub waiting_seconds: f64,
    /// Bytes of values handed over.
    pub bytes: u64,
    /// The most bytes of messages at a time.
    pub most_bytes: u64,
    /// What all clients together have written, after [`Client::finish`].
    pub totals: Totals,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(link: Link, own: SimpleCommunicator, options: Options) -> Self {
        Self {
            link,
            voters: own.duplicate(),
            own,
            options,
            outbox: Outbox::default(),
            votes: None,
            outcome: None,
            failure: None,
            is_finished: false,
            report: ClientReport::default(),
        }
    }

    /// The communicator of all clients.
    pub fn comm(&self) -> &SimpleCommunicator {
        &self.own
    }

    /// Hands over boxes of a field of this shape, and returns when they are copied: before they are written. The boxes of
    /// all clients make up the field; a client may have several, or none. A file of the same field and step is replaced.
    ///
    /// # Errors
    /// What has gone wrong since the last call, here or elsewhere: a mistake in the arguments, too. All clients get the
    /// error from the same call, and from all calls that follow.
    pub fn write<T: Value + 'static>(
        &mut self,
        field: &str,
        step: u64,
        shape: &[usize],
        boxes: &[LocalBox<'_, T>],
    ) -> Result<()> {
        let start = mpi::time();
        let done = self.vote(false).map(|()| self.send_all(field, step, shape, boxes));
        self.report.n_calls += 1;
        self.report.seconds += mpi::time() - start;
        done
    }

    /// Lets MPI move messages on. Libraries that have no thread of their own do so only while they are called; a model that
    /// communicates often need not call this.
    pub fn progress(&mut self) {
        self.outbox.progress();
    }

    /// Waits until the servers have written everything.
    ///
    /// # Errors
    /// What has gone wrong on any rank: no earlier call need have said so.
    pub fn finish(mut self) -> Result<ClientReport> {
        let totals = self.end()?;
        Ok(ClientReport { totals, ..self.report })
    }

    fn end(&mut self) -> Result<Totals> {
        self.is_finished = true;
        let mut voted = self.vote(true);
        if voted.is_ok() {
            voted = self.count();
        }
        for server in &self.link.servers {
            self.outbox.send(&self.link.comm, *server, HEAD, Head::Finish.to_bytes());
        }
        self.outbox.wait();
        let outcome = self.receive_outcome();
        let totals = outcome.as_ref().copied().map_err(copy_of);
        voted.and(totals)
    }

    /// Counts the votes of the last call and casts those of this one.
    fn vote(&mut self, is_last: bool) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(copy_of(failure));
        }
        let start = mpi::time();
        let counted = self.count();
        // The end is no call of the model.
        self.report.waiting_seconds += if is_last { 0.0 } else { mpi::time() - start };
        counted?;
        let first_server = self.link.comm.process_at_rank(self.link.servers[0]);
        let has_failed = self.outcome.is_some() || first_server.immediate_probe_with_tag(OUTCOME).is_some();
        self.votes = Some(Votes::cast(&self.voters, [has_failed, is_last, !is_last]));
        Ok(())
    }

    /// Counts the votes of the last call.
    fn count(&mut self) -> Result<()> {
        let Some(votes) = self.votes.take() else { return Ok(()) };
        let [has_failed, are_last, go_on] = votes.count();
        let failure = if has_failed {
            // The servers have told all of them.
            match self.receive_outcome() {
                Ok(_) => return Ok(()),
                Err(error) => copy_of(error),
            }
        } else if are_last && go_on {
            invalid("some clients have finished while others still write; all must make the same calls")
        } else {
            return Ok(());
        };
        self.failure = Some(copy_of(&failure));
        Err(failure)
    }

    fn receive_outcome(&mut self) -> &Result<Totals> {
        let first_server = self.link.comm.process_at_rank(self.link.servers[0]);
        self.outcome.get_or_insert_with(|| outcome_of_bytes(&first_server.receive_vec_with_tag::<u8>(OUTCOME).0))
    }

    /// Sends each server what belongs to it, or why there is nothing.
    fn send_all<T: Value + 'static>(&mut self, field: &str, step: u64, shape: &[usize], boxes: &[LocalBox<'_, T>]) {
        let messages = self.messages(field, step, shape, boxes).unwrap_or_else(|error| {
            let rank = self.link.comm.rank();
            let refused = |_: &i32| (Head::Refused(copy_of(&error).context(format_args!("rank {rank}"))), Vec::new());
            self.link.servers.iter().map(refused).collect()
        });
        let bytes =
            messages.iter().map(|(_, pieces)| pieces.iter().map(|piece| size_of_val(&piece[..])).sum::<usize>());
        self.report.bytes += bytes.sum::<usize>() as u64;
        for (server, (head, pieces)) in self.link.servers.iter().zip(messages) {
            self.outbox.send(&self.link.comm, *server, HEAD, head.to_bytes());
            for piece in pieces {
                self.outbox.send(&self.link.comm, *server, VALUES, piece);
            }
        }
        self.report.most_bytes = self.report.most_bytes.max(self.outbox.most_bytes as u64);
    }

    /// For each server its message and copies of its values, for which there is room then.
    fn messages<T: Value + 'static>(
        &mut self,
        field: &str,
        step: u64,
        shape: &[usize],
        boxes: &[LocalBox<'_, T>],
    ) -> Result<Vec<(Head, Vec<Vec<T>>)>> {
        let coding = self.options.coding(field)?;
        let about = |e: Error| e.context(format_args!("the field {field}"));
        let slabs = Slabs::new::<T>(&coding, shape, self.link.servers.len()).map_err(about)?;
        let blocks: Vec<Block> = boxes.iter().map(|part| Block::new(part.start, part.extents)).collect();
        check_boxes(shape, &blocks, false).map_err(about)?;
        for (block, part) in blocks.iter().zip(boxes) {
            if block.n_values() != part.values.len() {
                let (n, values) = (block.n_values(), part.values.len());
                let message = format!("the box of {:?} has {n} values, not {values}", block.extents);
                return Err(about(invalid(message)));
            }
        }
        let bytes = boxes.iter().map(|part| size_of_val(part.values)).sum();
        let start = mpi::time();
        self.outbox.make_room(bytes, self.options.buffer_bytes);
        self.report.waiting_seconds += mpi::time() - start;
        let subject = Subject { field: field.into(), step, dtype: T::DTYPE, shape: shape.to_vec() };
        let of_server = |server: usize| {
            let (mut common, mut pieces) = (Vec::new(), Vec::new());
            if let Some(slab) = slabs.of(server) {
                for (block, part) in blocks.iter().zip(boxes) {
                    let Some(shared) = block.intersection(&slab) else { continue };
                    append(&mut pieces, block, part.values, &shared)?;
                    common.push(shared);
                }
            }
            Ok((Head::Field { subject: subject.clone(), boxes: common }, pieces))
        };
        (0..self.link.servers.len()).map(of_server).collect()
    }
}

impl Drop for Client {
    /// The servers and the other clients go on waiting for one that leaves without a word.
    fn drop(&mut self) {
        if !self.is_finished && !std::thread::panicking() {
            let _ = self.end();
        }
    }
}

/// Appends a box of values, in pieces of which all but the last are full.
fn append<T: Value>(pieces: &mut Vec<Vec<T>>, block: &Block, values: &[T], shared: &Block) -> Result<()> {
    let mut copied = zeros(shared.n_values())?;
    let (at, origin) = (shared.start_in(block), vec![0; shared.start.len()]);
    let to = Corner { shape: &shared.extents, start: &origin };
    copy_box(values, Corner { shape: &block.extents, start: &at }, &mut copied, to, &shared.extents);
    if pieces.is_empty() && copied.len() <= PIECE {
        pieces.push(copied);
        return Ok(());
    }
    let mut rest = &copied[..];
    while !rest.is_empty() {
        if pieces.last().is_none_or(|last| last.len() == PIECE) {
            pieces.push(Vec::new());
        }
        let Some(last) = pieces.last_mut() else { continue };
        let (now, later) = rest.split_at(rest.len().min(PIECE - last.len()));
        last.extend_from_slice(now);
        rest = later;
    }
    Ok(())
}
