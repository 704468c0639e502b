//! Values from one rank to another. What the receiver must know comes with the message: a header says how many values of
//! which type follow, and whether they are compressed.
//!
//! | sender's decision | messages |
//! |---|---|
//! | plain | header, values |
//! | compressed | header, pieces |
//! | to be measured | header, some values that are measured, each time with an empty message, header of the rest, the rest |
//! | not to send | header with the reason |

use std::rc::Rc;

use mpi::point_to_point::{Destination as _, Source as _};
use mpi::traits::*;
use pumice::{Config, Error, ErrorKind, Result};

use super::job::{ValueCode, ends_of, needs_range, resolve, settings_of};
use super::{Transfer, Wire};
use crate::collective::MAX_MESSAGE;
use crate::link::{Link, Speed, TIMES, is_quicker, sample};
use crate::local::{Value, invalid};
use crate::pieces::{Code, Outbox, PIECE, n_pieces};

/// Sends values to another rank, which [`receive`]s them with the same tag, of 0 to 32767. Only these two ranks take part.
///
/// As MPI's own sends of large messages, this may wait until the other rank receives. Two ranks that send to each other
/// must not both send first; [`all_to_all`](super::all_to_all) exchanges values of many ranks.
///
/// [`Wire::Auto`] sends the first 98,304 values as they are, and measures how long that takes, unless the ranks are known to
/// share memory. Messages below 262,144 values are not compressed.
///
/// A relative bound refers to the range of these values. An error that keeps the values from being sent is also an error of
/// the rank that receives, which does not wait for ever.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::Wire;
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let mut values = vec![world.rank() as f32; 1 << 20];
/// match world.rank() {
///     0 => pumice_mpi::send(&world, 1, 7, &values, &Config::new(ErrorBound::Rel(1e-3)), Wire::Auto)?,
///     _ => pumice_mpi::receive(&world, 0, 7, &mut values)?,
/// };
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn send<T: Value>(
    comm: &impl Communicator,
    to: i32,
    tag: i32,
    values: &[T],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    check(comm, to, tag)?;
    let settings = settings_of(config).inspect_err(|error| {
        let header = Header { way: Way::Refused, n_values: 0, abs_bound: 0.0, text: error.to_string() };
        comm.process_at_rank(to).send_with_tag(&header.bytes()[..], tag);
    })?;
    let sender = Sender { comm, to, tag };
    let bound =
        |values: &[T]| resolve(&settings, if needs_range(&settings) { ends_of(values) } else { [f64::INFINITY; 2] });
    let is_short = values.len() < 2 * PIECE;
    match wire {
        Wire::Compressed => {
            let (code, abs_bound) = bound(values);
            sender.header(&Header::of::<T>(Way::Compressed, values.len(), abs_bound), false);
            sender.compressed(values, &code, abs_bound)
        }
        Wire::Auto if !is_short && !Link::known(comm).is_some_and(Link::is_memory) => {
            // The receiver is ready when it has taken the header: what follows shows how quick the link is.
            sender.header(&Header::of::<T>(Way::Measured, values.len(), 0.0), true);
            let (first, rest) = values.split_at(TIMES * PROBE);
            let time = |values: &[T]| {
                let start = mpi::time();
                comm.process_at_rank(to).send_with_tag(values, tag);
                // Values may still be in buffers of this machine. This is taken after them.
                comm.process_at_rank(to).synchronous_send_with_tag::<[u8]>(&[], tag);
                mpi::time() - start
            };
            let plain = first.chunks(PROBE).map(time).fold(f64::INFINITY, f64::min);
            // The range of the sample will do for a measurement; it is not larger than that of all values.
            let sample = sample(rest);
            let speed = Speed::of(&bound(sample).0, sample);
            let is_compressed = speed.is_ok_and(|Speed { encoding, decoding, share }| {
                is_quicker((encoding + decoding) * PROBE as f64 + share * plain, plain)
            });
            if !is_compressed {
                sender.header(&Header::of::<T>(Way::Plain, rest.len(), 0.0), false);
                sender.plain(rest);
                return Ok(Transfer { abs_bound: 0.0, is_compressed, sent_bytes: size_of_val(values) as u64 });
            }
            let (code, abs_bound) = bound(values);
            sender.header(&Header::of::<T>(Way::Compressed, rest.len(), abs_bound), false);
            let sent = sender.compressed(rest, &code, abs_bound)?;
            Ok(Transfer { sent_bytes: sent.sent_bytes + size_of_val(first) as u64, ..sent })
        }
        _ => {
            sender.header(&Header::of::<T>(Way::Plain, values.len(), 0.0), false);
            sender.plain(values);
            Ok(Transfer { abs_bound: 0.0, is_compressed: false, sent_bytes: size_of_val(values) as u64 })
        }
    }
}

/// Receives what another rank [`send`]s with this tag: as many values, of the same type, as `out` has. A message of another
/// number or type is an error, and is gone then.
pub fn receive<T: Value>(comm: &impl Communicator, from: i32, tag: i32, out: &mut [T]) -> Result<Transfer> {
    check(comm, from, tag)?;
    let receiver = Receiver { comm, from, tag };
    let header = receiver.header()?;
    if header.text != T::DTYPE.to_string() || header.n_values != out.len() as u64 {
        let (n, kind) = (header.n_values, &header.text);
        receiver.skip(&header)?;
        return Err(invalid(format!(
            "rank {from} sent {n} values of {kind} with tag {tag}, but the output has {} of {}",
            out.len(),
            T::DTYPE
        )));
    }
    if header.way != Way::Measured {
        return receiver.values(&header, out);
    }
    let (first, rest) = out.split_at_mut(out.len().min(TIMES * PROBE));
    for part in first.chunks_mut(PROBE) {
        comm.process_at_rank(from).receive_into_with_tag(part, tag);
        receiver.bytes();
    }
    receiver.values(&receiver.header()?, rest)
}

/// Values of a message that shows how quick the link is, and how many such messages there are.
const PROBE: usize = 1 << 15;

/// The tags that all MPI libraries have.
const MAX_TAG: i32 = 32767;

fn check(comm: &impl Communicator, other: i32, tag: i32) -> Result<()> {
    let n = comm.size();
    if !(0..n).contains(&other) {
        return Err(invalid(format!("there is no rank {other} among {n}")));
    }
    if other == comm.rank() {
        return Err(invalid(format!("rank {other} cannot send to itself; copy the values")));
    }
    if !(0..=MAX_TAG).contains(&tag) {
        return Err(invalid(format!("{tag} is not a tag; use 0 to {MAX_TAG}")));
    }
    Ok(())
}

/// How values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Compressed,
    Measured,
    Refused,
}

const WAYS: [Way; 4] = [Way::Plain, Way::Compressed, Way::Measured, Way::Refused];

/// What a message begins with.
#[derive(Clone, Debug, PartialEq)]
struct Header {
    way: Way,
    n_values: u64,
    abs_bound: f64,
    /// The type of values, or why there are none.
    text: String,
}

const MAGIC: [u8; 8] = *b"PUM>MPI1";

impl Header {
    fn of<T: Value>(way: Way, n_values: usize, abs_bound: f64) -> Self {
        Self { way, n_values: n_values as u64, abs_bound, text: T::DTYPE.to_string() }
    }

    /// Magic number, way, number of values, bound, text.
    fn bytes(&self) -> Vec<u8> {
        let way = [self.way as u8];
        let fields = [&MAGIC[..], &way, &self.n_values.to_le_bytes(), &self.abs_bound.to_le_bytes()];
        [&fields.concat(), self.text.as_bytes()].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (magic, bytes) = bytes.split_first_chunk()?;
        let (way, bytes) = bytes.split_first()?;
        let (n_values, bytes) = bytes.split_first_chunk()?;
        let (abs_bound, text) = bytes.split_first_chunk()?;
        let way = *WAYS.get(usize::from(*way)).filter(|_| *magic == MAGIC)?;
        Some(Self {
            way,
            n_values: u64::from_le_bytes(*n_values),
            abs_bound: f64::from_le_bytes(*abs_bound),
            text: String::from_utf8_lossy(text).into_owned(),
        })
    }
}

struct Sender<'a, M> {
    comm: &'a M,
    to: i32,
    tag: i32,
}

impl<M: Communicator> Sender<'_, M> {
    fn header(&self, header: &Header, waits: bool) {
        let (to, bytes) = (self.comm.process_at_rank(self.to), header.bytes());
        if waits {
            to.synchronous_send_with_tag(&bytes[..], self.tag);
        } else {
            to.send_with_tag(&bytes[..], self.tag);
        }
    }

    fn plain<T: Value>(&self, values: &[T]) {
        for part in values.chunks(MAX_MESSAGE) {
            self.comm.process_at_rank(self.to).send_with_tag(part, self.tag);
        }
    }

    fn compressed<T: Value>(&self, values: &[T], code: &ValueCode, abs_bound: f64) -> Result<Transfer> {
        let mut outbox = Outbox::new(self.comm, self.tag);
        let mut done = Ok(());
        for values in values.chunks(PIECE) {
            outbox.send(self.to, Rc::new(code.piece(values, &mut done)));
        }
        let sent_bytes = outbox.finish();
        done.map(|()| Transfer { abs_bound, is_compressed: true, sent_bytes })
    }
}

struct Receiver<'a, M> {
    comm: &'a M,
    from: i32,
    tag: i32,
}

impl<M: Communicator> Receiver<'_, M> {
    fn header(&self) -> Result<Header> {
        let (from, tag) = (self.from, self.tag);
        let header = Header::parse(&self.bytes()).ok_or_else(|| {
            let message = format!("the message of rank {from} with tag {tag} is not one of pumice_mpi::send");
            Error::new(ErrorKind::Corrupt, message)
        })?;
        if header.way == Way::Refused {
            return Err(invalid(format!("rank {from} could not send its values: {}", header.text)));
        }
        Ok(header)
    }

    fn bytes(&self) -> Vec<u8> {
        self.comm.process_at_rank(self.from).receive_vec_with_tag(self.tag).0
    }

    /// What follows a header.
    fn values<T: Value>(&self, header: &Header, out: &mut [T]) -> Result<Transfer> {
        let is_compressed = header.way == Way::Compressed;
        let abs_bound = if is_compressed { header.abs_bound } else { 0.0 };
        let transfer = Transfer { abs_bound, is_compressed, sent_bytes: 0 };
        if !is_compressed {
            for part in out.chunks_mut(MAX_MESSAGE) {
                self.comm.process_at_rank(self.from).receive_into_with_tag(part, self.tag);
            }
            return Ok(transfer);
        }
        let code = ValueCode::default();
        let mut done = Ok(());
        for values in out.chunks_mut(PIECE) {
            let piece = self.bytes();
            if piece.is_empty() && done.is_ok() {
                let message = format!("rank {} could not compress its values; its own error says why", self.from);
                done = Err(Error::new(ErrorKind::LimitExceeded, message));
            }
            code.take(&piece, values, &mut done);
        }
        done.map(|()| transfer)
    }

    /// Receives what follows a header, and forgets it.
    fn skip(&self, header: &Header) -> Result<()> {
        let n = header.n_values as usize;
        let n_messages = match header.way {
            Way::Compressed => n_pieces(n),
            Way::Plain => n.div_ceil(MAX_MESSAGE),
            Way::Measured => {
                (0..2 * TIMES).for_each(|_| drop(self.bytes()));
                return self.skip(&self.header()?);
            }
            Way::Refused => 0,
        };
        (0..n_messages).for_each(|_| drop(self.bytes()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        for way in WAYS {
            let header = Header { way, n_values: 1 << 40, abs_bound: 0.25, text: "float32".into() };
            let bytes = header.bytes();
            assert_eq!(Header::parse(&bytes), Some(header));
            assert_eq!(Header::parse(&bytes[1..]), None);
            (0..25).for_each(|n| assert_eq!(Header::parse(&bytes[..n]), None));
        }
        assert_eq!(Header::parse(b"PUM>MPI1\x04--------========"), None);
    }
}
