//! The side of the servers: one event after the other.

use std::fmt;

use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::{Corner, copy_box};
use pumice::{DType, Result};

use super::layout::Slabs;
use super::message::{HEAD, Head, OUTCOME, PIECE, Subject, VALUES, outcome_bytes};
use super::options::Options;
use super::outbox::Outbox;
use super::output::{Output, Slab};
use super::{Link, Totals};
use crate::agreement::{agree, copy_of};
use crate::collective::zeros;
use crate::local::{Block, Value, first_overlap, invalid};

/// A rank that writes.
pub struct Server {
    link: Link,
    own: SimpleCommunicator,
    options: Options,
    outbox: Outbox,
    has_finished: Vec<bool>,
    report: ServerReport,
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Seconds without anything to do: until the first client said what comes next.
    pub idle_seconds: f64,
    /// Seconds of receiving values and putting them together, the wait for slower clients included.
    pub receive_seconds: f64,
    /// Seconds of compressing and writing, the wait for slower servers included.
    pub write_seconds: f64,
    /// What all servers together have written.
    pub totals: Totals,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Server {
    pub(super) fn new(link: Link, own: SimpleCommunicator, options: Options) -> Self {
        let has_finished = vec![false; link.clients.len()];
        Self { link, own, options, outbox: Outbox::default(), has_finished, report: ServerReport::default() }
    }

    /// The communicator of all servers.
    pub fn comm(&self) -> &SimpleCommunicator {
        &self.own
    }

    /// Writes what the clients hand over, until all of them have finished.
    ///
    /// # Errors
    /// The first one, which the clients get, too. What was written before stays.
    pub fn run(mut self) -> Result<ServerReport> {
        let outcome = self.serve();
        // The first server speaks for all. Clients that hear of an error stop to hand over, and finish.
        if self.own.rank() == 0 {
            for client in &self.link.clients {
                self.outbox.send(&self.link.comm, *client, OUTCOME, outcome_bytes(&outcome));
            }
        }
        self.drain();
        self.outbox.wait();
        let totals = outcome?;
        Ok(ServerReport { totals, ..self.report })
    }

    fn serve(&mut self) -> Result<Totals> {
        let mut totals = Totals::default();
        loop {
            let start = mpi::time();
            let heads = self.receive_heads();
            // The same on all servers, as clients say the same to all.
            let subject = match self.common_subject(&heads) {
                Ok(Some(subject)) => subject,
                Ok(None) => return Ok(totals),
                Err(error) => {
                    self.discard_all(&heads);
                    return Err(error);
                }
            };
            let stored_bytes = match subject.dtype {
                DType::F32 => self.field::<f32>(&subject, &heads, start),
                _ => self.field::<f64>(&subject, &heads, start),
            };
            totals.n_fields += 1;
            totals.raw_bytes += (subject.shape.iter().product::<usize>() * subject.dtype.size()) as u64;
            totals.stored_bytes += stored_bytes.map_err(|e| e.context("I/O servers"))?;
        }
    }

    /// What each client says in this event.
    fn receive_heads(&mut self) -> Vec<Head> {
        let mut heads = Vec::new();
        for (i, client) in self.link.clients.iter().enumerate() {
            let start = mpi::time();
            let (bytes, _) = self.link.comm.process_at_rank(*client).receive_vec_with_tag::<u8>(HEAD);
            if i == 0 {
                self.report.idle_seconds += mpi::time() - start;
            }
            let head = Head::of_bytes(&bytes).unwrap_or_else(Head::Refused);
            self.has_finished[i] = matches!(head, Head::Finish);
            heads.push(head);
        }
        heads
    }

    /// What all clients hand over; `None` if all have finished.
    fn common_subject(&self, heads: &[Head]) -> Result<Option<Subject>> {
        let mut first: Option<(&Subject, i32)> = None;
        let mut finished = None;
        for (head, client) in heads.iter().zip(&self.link.clients) {
            match (head, first) {
                (Head::Refused(error), _) => return Err(copy_of(error)),
                (Head::Finish, _) => finished = Some(client),
                (Head::Field { subject, .. }, None) => first = Some((subject, *client)),
                (Head::Field { subject, .. }, Some((other, _))) if subject == other => {}
                (Head::Field { subject, .. }, Some((other, rank))) => {
                    return Err(invalid(format!(
                        "the clients do not hand over the same: rank {client} {subject}, rank {rank} {other}"
                    )));
                }
            }
        }
        match (first, finished) {
            (None, _) => Ok(None),
            (Some((subject, _)), None) => Ok(Some(subject.clone())),
            (Some((subject, rank)), Some(client)) => {
                Err(invalid(format!("rank {client} has finished, and rank {rank} hands over {subject}")))
            }
        }
    }

    /// Receives a field and writes it. Returns the bytes of all files.
    fn field<T: Value>(&mut self, subject: &Subject, heads: &[Head], start: f64) -> Result<u64> {
        let coding = self.options.coding(&subject.field);
        let laid_out = coding.and_then(|coding| {
            let slabs = Slabs::new::<T>(&coding, &subject.shape, self.link.servers.len())?;
            Ok((coding, slabs))
        });
        let (coding, slabs) = match laid_out {
            Ok(both) => both,
            Err(error) => {
                self.discard_all(heads);
                return Err(error);
            }
        };
        let mine = slabs.of(self.own.rank() as usize);
        let idle = self.report.idle_seconds;
        let received = self.receive_slab::<T>(mine.as_ref(), heads);
        let values = agree(&self.own, received.map_err(|e| e.context(format_args!("the field {subject}"))))?;
        let received_at = mpi::time();
        // Idle time before this event is counted on its own.
        self.report.receive_seconds += received_at - start - (self.report.idle_seconds - idle);
        let slab = mine.map(|block| Slab { block, values: &values });
        let output = Output { comm: &self.own, options: &self.options, subject, axis: slabs.axis };
        let written = output.write(&coding, slab);
        self.report.write_seconds += mpi::time() - received_at;
        written
    }

    /// The values of this server's part, which the boxes of all clients must make up.
    fn receive_slab<T: Value>(&self, mine: Option<&Block>, heads: &[Head]) -> Result<Vec<T>> {
        let of_clients = || heads.iter().zip(self.link.clients.iter().copied());
        let prepare = || {
            let all = of_clients().flat_map(|(head, _)| boxes_of(head));
            check_cover(mine, all)?;
            zeros(mine.map_or(0, Block::n_values))
        };
        let mut values = prepare();
        for (head, client) in of_clients() {
            let Ok(slab) = &mut values else {
                self.discard(client, head);
                continue;
            };
            let mut received = Vec::new();
            let reserved = received.try_reserve_exact(head.n_values());
            if reserved.is_err() {
                self.discard(client, head);
                values = Err(crate::collective::no_memory(head.n_values() * size_of::<T>()));
                continue;
            }
            received.resize(head.n_values(), T::default());
            let process = self.link.comm.process_at_rank(client);
            for piece in received.chunks_mut(PIECE) {
                process.receive_into_with_tag(piece, VALUES);
            }
            let mut rest = &received[..];
            for block in boxes_of(head) {
                let (part, others) = rest.split_at(block.n_values());
                rest = others;
                let Some(slab_block) = mine else { continue };
                let (at, origin) = (block.start_in(slab_block), vec![0; block.start.len()]);
                let to = Corner { shape: &slab_block.extents, start: &at };
                copy_box(part, Corner { shape: &block.extents, start: &origin }, slab, to, &block.extents);
            }
        }
        values
    }

    fn discard_all(&self, heads: &[Head]) {
        heads.iter().zip(&self.link.clients).for_each(|(head, client)| self.discard(*client, head));
    }

    /// Receives values that are not wanted, so that the client does not wait.
    fn discard(&self, client: i32, head: &Head) {
        let n_messages = head.n_values().div_ceil(PIECE);
        for _ in 0..n_messages {
            let process = self.link.comm.process_at_rank(client);
            match head {
                Head::Field { subject, .. } if subject.dtype == DType::F32 => {
                    drop(process.receive_vec_with_tag::<f32>(VALUES));
                }
                _ => drop(process.receive_vec_with_tag::<f64>(VALUES)),
            }
        }
    }

    /// Receives what clients still send, until all have finished.
    fn drain(&mut self) {
        while self.has_finished.contains(&false) {
            let (bytes, status) = self.link.comm.any_process().receive_vec_with_tag::<u8>(HEAD);
            let client = status.source_rank();
            match Head::of_bytes(&bytes) {
                Ok(Head::Finish) => {
                    if let Some(i) = self.link.clients.iter().position(|rank| *rank == client) {
                        self.has_finished[i] = true;
                    }
                }
                Ok(head) => self.discard(client, &head),
                // It was said already that a message cannot be read.
                Err(_) => {}
            }
        }
    }
}

fn boxes_of(head: &Head) -> &[Block] {
    match head {
        Head::Field { boxes, .. } => boxes,
        _ => &[],
    }
}

/// Fails unless the boxes make up the slab. Each is within it, as the client has cut it so.
fn check_cover<'a>(slab: Option<&Block>, boxes: impl Iterator<Item = &'a Block>) -> Result<()> {
    let boxes: Vec<Block> = boxes.cloned().collect();
    let n: usize = boxes.iter().map(Block::n_values).sum();
    let wanted = slab.map_or(0, Block::n_values);
    if let Some((a, b)) = first_overlap(&boxes) {
        return Err(invalid(format!("boxes of two clients overlap: both have values of {a:?} and of {b:?}")));
    }
    if n == wanted {
        return Ok(());
    }
    Err(invalid(format!(
        "the boxes of all clients do not make up the field: {n} of {wanted} values are there, of {slab:?}"
    )))
}
