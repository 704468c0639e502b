//! Values that travel in compressed form, piece by piece: one piece is coded while others are on their way and the receiver
//! decodes those before.

use mpi::collective::SystemOperation;
use mpi::point_to_point::Source as _;
use mpi::request;
use mpi::traits::*;
use pumice::backend::finite_range;
use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, Result};

use crate::agreement::{agree, check_same};
use crate::collective::{MAX_MESSAGE, gather_all, reduce, zeros};
use crate::local::{Value, invalid};

/// Whether values are compressed on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// Where that is quicker, as far as a short measurement of link and code tells. Otherwise values arrive as they are.
    #[default]
    Auto,
    /// Always.
    Compressed,
    /// Never.
    Plain,
}

/// What a transfer has cost and promises.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Transfer {
    /// The error of each value is at most this; 0 if all arrive as they are.
    pub abs_bound: f64,
    /// Whether values were compressed.
    pub is_compressed: bool,
    /// Bytes of values that this rank sent to others, compressed or not.
    pub sent_bytes: u64,
}

/// Values of a piece.
const PIECE: usize = 1 << 17;

/// Values that are sent to measure a link, and the fewest that are worth it.
const SAMPLE: usize = 1 << 14;
const LEAST_VALUES: usize = 1 << 16;

/// Collects the values of all ranks on one, in the order of ranks; each may have any number of them. On that rank, `out`
/// is as long as all of them, elsewhere it is not looked at. Those of the rank itself stay as they are.
///
/// A relative bound refers to the range of all values.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::Wire;
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let values = vec![world.rank() as f32; 1 << 20];
/// let mut all = vec![0.0; if world.rank() == 0 { values.len() * world.size() as usize } else { 0 }];
/// pumice_mpi::gather(&world, 0, &values, &mut all, &Config::new(ErrorBound::Rel(1e-3)), Wire::Auto)?;
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn gather<T: Value>(
    comm: &impl Communicator,
    root: i32,
    values: &[T],
    out: &mut [T],
    config: &Config,
    wire: Wire,
) -> Result<Transfer> {
    let comm = &comm.duplicate();
    let mut job = Job::new::<T>(comm, root, config, wire)?;
    let counts: Vec<usize> =
        gather_all(comm, &[values.len() as u64])?.concat().into_iter().map(|n| n as usize).collect();
    let is_root = comm.rank() == root;
    let total: usize = counts.iter().sum();
    agree(
        comm,
        if is_root && out.len() != total {
            Err(invalid(format!("all ranks together have {total} values, but the output has {}", out.len())))
        } else {
            Ok(())
        },
    )?;
    let largest = counts.iter().copied().max().unwrap_or(0);
    job.decide(comm, wire, &values[..values.len().min(SAMPLE)], largest, |sample, others| {
        if !is_root {
            comm.process_at_rank(root).send(sample);
            return;
        }
        for (rank, n) in counts.iter().enumerate().filter(|(rank, _)| *rank as i32 != root) {
            comm.process_at_rank(rank as i32).receive_into(&mut others[..(*n).min(SAMPLE)]);
        }
    })?;
    job.resolve(comm, values)?;
    let mut done = Ok(());
    if is_root {
        let mut rest = out;
        let mut parts = Vec::new();
        for (rank, n) in counts.iter().enumerate() {
            let (part, others) = rest.split_at_mut(*n);
            rest = others;
            if rank as i32 == root {
                part.copy_from_slice(values);
            } else {
                parts.push((rank as i32, part));
            }
        }
        done = job.receive(comm, &mut parts);
    } else {
        job.send(comm, &[(root, values)]);
    }
    agree(comm, done)?;
    Ok(job.transfer())
}

/// What the ranks know about a transfer.
struct Job {
    /// With an absolute bound.
    config: Config,
    abs_bound: f64,
    is_compressed: bool,
    sent_bytes: u64,
}

impl Job {
    /// Checks that all ranks ask for the same, and finds the absolute bound.
    fn new<T: Value>(comm: &impl Communicator, root: i32, config: &Config, wire: Wire) -> Result<Self> {
        check_same(
            comm,
            &[
                ("type of values", T::DTYPE.to_string()),
                ("rank that collects or sends", root.to_string()),
                ("bound or other options", format!("{:?}", config.clone().threads(0))),
                ("way of sending", format!("{wire:?}")),
            ],
        )?;
        if !(0..comm.size()).contains(&root) {
            return Err(invalid(format!("there is no rank {root} among {}", comm.size())));
        }
        let [bound] = *config.bounds() else {
            return Err(invalid("a message has one bound; give the tightest"));
        };
        let is_valid = match bound {
            ErrorBound::Abs(e) | ErrorBound::Rel(e) => e.is_finite() && e >= 0.0,
            ErrorBound::Lossless => true,
            _ => false,
        };
        if !is_valid {
            return Err(invalid(format!("messages have an absolute or a relative bound, not {bound}")));
        }
        let config = Config::new(bound).preset(pumice::backend::preset_of(config)).threads(1);
        Ok(Self { config, abs_bound: 0.0, is_compressed: false, sent_bytes: 0 })
    }

    /// Makes the bound absolute: a relative one is for the range of all values.
    fn resolve<T: Value>(&mut self, comm: &impl Communicator, values: &[T]) -> Result<()> {
        if !self.is_compressed {
            return Ok(());
        }
        self.abs_bound = match self.config.bound() {
            ErrorBound::Abs(abs) => abs,
            ErrorBound::Rel(rel) => {
                let (lo, hi) = finite_range(values).0.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
                let [lo, minus_hi] = reduce(comm, [lo, -hi], SystemOperation::min());
                if lo <= -minus_hi { rel * (-minus_hi - lo) } else { 0.0 }
            }
            _ => 0.0,
        };
        let is_lossy = self.abs_bound > 0.0 && self.abs_bound.is_finite();
        let bound = if is_lossy { ErrorBound::Abs(self.abs_bound) } else { ErrorBound::Lossless };
        self.config = Config::new(bound).preset(pumice::backend::preset_of(&self.config)).threads(1);
        self.abs_bound = if is_lossy { self.abs_bound } else { 0.0 };
        Ok(())
    }

    /// Whether to compress. `exchange` sends a sample as the values will be sent, and receives to as many values.
    fn decide<T: Value>(
        &mut self,
        comm: &impl Communicator,
        wire: Wire,
        sample: &[T],
        largest: usize,
        exchange: impl FnOnce(&[T], &mut [T]),
    ) -> Result<()> {
        let is_alone = comm.size() == 1;
        self.is_compressed = wire == Wire::Compressed && !is_alone;
        if wire != Wire::Auto || is_alone || largest < LEAST_VALUES {
            return Ok(());
        }
        let mut received = agree(comm, zeros::<T>(SAMPLE))?;
        let mut bytes = Vec::new();
        let start = mpi::time();
        let coded = self.code(sample, &mut bytes).and_then(|()| decode(&bytes, &mut received[..sample.len()]));
        let coding = mpi::time() - start;
        agree(comm, coded)?;
        comm.barrier();
        let start = mpi::time();
        exchange(sample, &mut received);
        let sending = mpi::time() - start;
        let share = if sample.is_empty() { 0.0 } else { bytes.len() as f64 / size_of_val(sample) as f64 };
        // The slowest rank decides; one that receives from all decodes for all.
        let [coding, sending, share] = reduce(comm, [coding, sending, share], SystemOperation::max());
        let n = f64::from(comm.size() - 1).max(1.0);
        self.is_compressed = n * coding + share * sending < sending;
        Ok(())
    }

    fn code<T: Value>(&self, values: &[T], bytes: &mut Vec<u8>) -> Result<()> {
        pumice::compress_into(values, &[values.len()], &self.config, bytes).map(|_| ())
    }

    /// Sends values to some ranks, by turns piece by piece.
    fn send<T: Value>(&mut self, comm: &impl Communicator, parts: &[(i32, &[T])]) {
        if !self.is_compressed {
            let n = parts.iter().map(|(_, values)| values.len().div_ceil(MAX_MESSAGE)).sum();
            request::multiple_scope(n, |scope, requests| {
                for (rank, values) in parts {
                    self.sent_bytes += size_of_val(*values) as u64;
                    for piece in values.chunks(MAX_MESSAGE) {
                        requests.add(comm.process_at_rank(*rank).immediate_send(scope, piece));
                    }
                }
                requests.wait_all(&mut Vec::new());
            });
            return;
        }
        let most = parts.iter().map(|(_, values)| values.len().div_ceil(PIECE)).max().unwrap_or(0);
        let turns = (0..most).flat_map(|i| parts.iter().map(move |(rank, values)| (*rank, *values, i)));
        let pieces: Vec<(i32, &[T])> =
            turns.filter_map(|(rank, values, i)| values.chunks(PIECE).nth(i).map(|piece| (rank, piece))).collect();
        let mut buffers = vec![Vec::new(); pieces.len()];
        request::multiple_scope(pieces.len(), |scope, requests| {
            for (buffer, (rank, piece)) in buffers.iter_mut().zip(&pieces) {
                // An empty message says that a piece could not be coded.
                if self.code(piece, buffer).is_err() {
                    buffer.clear();
                }
                self.sent_bytes += buffer.len() as u64;
                requests.add(comm.process_at_rank(*rank).immediate_send(scope, &buffer[..]));
            }
            requests.wait_all(&mut Vec::new());
        });
    }

    /// Receives values from some ranks, as they come.
    fn receive<T: Value>(&self, comm: &impl Communicator, parts: &mut [(i32, &mut [T])]) -> Result<()> {
        if !self.is_compressed {
            let n = parts.iter().map(|(_, values)| values.len().div_ceil(MAX_MESSAGE)).sum();
            request::multiple_scope(n, |scope, requests| {
                for (rank, values) in parts {
                    for piece in values.chunks_mut(MAX_MESSAGE) {
                        requests.add(comm.process_at_rank(*rank).immediate_receive_into(scope, piece));
                    }
                }
                requests.wait_all(&mut Vec::new());
            });
            return Ok(());
        }
        let mut n_pieces: usize = parts.iter().map(|(_, values)| values.len().div_ceil(PIECE)).sum();
        let mut next = vec![0; parts.len()];
        let mut done = Ok(());
        while n_pieces > 0 {
            let (bytes, status) = comm.any_process().receive_vec::<u8>();
            let sender = parts.iter().position(|(rank, _)| *rank == status.source_rank());
            let piece = sender.and_then(|i| {
                next[i] += 1;
                parts[i].1.chunks_mut(PIECE).nth(next[i] - 1)
            });
            if let Some(piece) = piece {
                done = done.and(decode(&bytes, piece));
            }
            n_pieces -= 1;
        }
        done
    }

    fn transfer(&self) -> Transfer {
        let abs_bound = if self.is_compressed { self.abs_bound } else { 0.0 };
        Transfer { abs_bound, is_compressed: self.is_compressed, sent_bytes: self.sent_bytes }
    }
}

fn decode<T: Value>(bytes: &[u8], out: &mut [T]) -> Result<()> {
    if bytes.is_empty() {
        return Err(pumice::Error::new(ErrorKind::LimitExceeded, "a rank has no memory to code its values"));
    }
    pumice::decompress_into(bytes, out, &DecodeOptions::new().threads(1))
}
