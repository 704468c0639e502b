//! Sums of vectors over all ranks that are carried in compressed form, and are the same bits whoever adds them in which
//! order.
//!
//! Every value becomes a multiple of one step, once; what is sent and added are the integers. Sums of integers are exact,
//! so the result depends on the vectors and the bound alone: not on the number of ranks, on how the vectors are shared out
//! among them, nor on the algorithm. Its error is that of the values, added up: at most n times the bound of each.
//!
//! **The bound.** Let e be the bound of each value, M the largest magnitude and p the significant bits of the type. Each
//! value is off by at most the tolerance t; that is checked, in f64, which may hide M 2^-53. The sum of n integers times the
//! step is off by n times as much, and rounds to the type by at most n (M + e) 2^-p. So t = e - (M + e) 2^(1 - p) keeps n e.
//! Where that leaves less than half of e, the bound is refused: it is below the precision of the sum. The step is 2 t, less
//! a margin that is larger than the rounding errors of an integer below 2^32, so that no value fails the check.

use std::ops::Range;

use mpi::collective::SystemOperation;
use mpi::point_to_point::Source as _;
use mpi::request;
use mpi::traits::*;
use pumice::backend::{Integers, SumLattice, finite_range};
use pumice::{ErrorBound, Preset, Result};

use crate::agreement::{agree, check_same};
use crate::collective::{gather_all, reduce, zeros};
use crate::local::{Value, invalid};

/// The bound of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SumBound {
    /// For each vector; the sum of n vectors has an error of at most n times as much.
    Each(ErrorBound),
    /// For the sum; each of n vectors gets an n-th of it.
    Total(ErrorBound),
}

/// How a sum is formed. The result does not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SumAlgorithm {
    /// The quickest for what the link and the code give, as far as a short measurement tells.
    #[default]
    Auto,
    /// Compressed, around a ring: each rank sends and receives the least.
    Ring,
    /// Compressed, by halves: the fewest messages.
    Halving,
    /// The integers without compression, by the MPI library.
    Plain,
}

/// What a sum has cost and promises.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SumSummary {
    /// How many vectors were added.
    pub n_vectors: u64,
    /// The error of each value of the sum is at most this.
    pub abs_bound: f64,
    /// How it was formed.
    pub algorithm: SumAlgorithm,
    /// Bytes of values that this rank sent, compressed or not.
    pub sent_bytes: u64,
}

/// Values that are coded together, so that one piece is on its way while the next is coded.
const PIECE: usize = 1 << 17;

/// Adds vectors of all ranks, each of which has any number of them, and gives all ranks the sum. All ranks get the same
/// bits, which do not depend on how the vectors are shared out. Values that are not finite add up as they do in IEEE
/// arithmetic; NaN has one bit pattern then.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::ErrorBound;
/// use pumice_mpi::{SumAlgorithm, SumBound};
///
/// let universe = mpi::initialize().expect("MPI is not yet in use");
/// let world = universe.world();
/// let gradient = vec![0.001f32; 1 << 20];
/// let mut sum = vec![0.0; 1 << 20];
/// let bound = SumBound::Total(ErrorBound::Abs(1e-4));
/// pumice_mpi::all_reduce(&world, &[&gradient], &mut sum, bound, SumAlgorithm::Auto)?;
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn all_reduce<T: Value>(
    comm: &impl Communicator,
    vectors: &[&[T]],
    sum: &mut [T],
    bound: SumBound,
    algorithm: SumAlgorithm,
) -> Result<SumSummary> {
    let comm = &comm.duplicate();
    let job = Job::new(comm, vectors, sum.len(), bound)?;
    // Integers of f32 carry sums of few vectors under common bounds; those of f64 all that are accepted.
    if size_of::<T>() == size_of::<f32>() && job.fits::<f32>() {
        job.run::<T, f32>(comm, vectors, sum, algorithm)
    } else {
        agree(comm, if job.fits::<f64>() { Ok(()) } else { Err(too_precise(&job)) })?;
        job.run::<T, f64>(comm, vectors, sum, algorithm)
    }
}

fn too_precise(job: &Job) -> pumice::Error {
    invalid(format!(
        "a bound of {:e} is below the precision of sums of values up to {:e}; use MPI_Allreduce, a larger bound or f64",
        job.each, job.max_abs
    ))
}

/// What all ranks know about a sum.
struct Job {
    n_vectors: u64,
    max_abs: f64,
    /// The bound of each value.
    each: f64,
    lattice: SumLattice,
    /// Whether some values are not finite, and how many of this rank.
    has_specials: bool,
    n_special_here: usize,
}

impl Job {
    fn new<T: Value>(comm: &impl Communicator, vectors: &[&[T]], length: usize, bound: SumBound) -> Result<Self> {
        check_same(
            comm,
            &[
                ("type of values", T::DTYPE.to_string()),
                ("length of the sum", length.to_string()),
                ("bound", format!("{bound:?}")),
            ],
        )?;
        let wrong = vectors.iter().find(|vector| vector.len() != length);
        agree(
            comm,
            wrong.map_or(Ok(()), |vector| {
                Err(invalid(format!("a vector has {} values, but the sum {length}", vector.len())))
            }),
        )?;
        let (mut lo, mut hi, mut n_special_here) = (f64::INFINITY, f64::NEG_INFINITY, 0);
        for vector in vectors {
            let (range, n) = finite_range(vector);
            (lo, hi) = range.map_or((lo, hi), |(a, b)| (lo.min(a), hi.max(b)));
            n_special_here += n;
        }
        let [n_vectors, n_special] =
            reduce(comm, [vectors.len() as u64, n_special_here as u64], SystemOperation::sum());
        let [lo, minus_hi] = reduce(comm, [lo, -hi], SystemOperation::min());
        let hi = -minus_hi;
        let (range, max_abs) = if lo <= hi { (hi - lo, lo.abs().max(hi.abs())) } else { (0.0, 0.0) };
        let (SumBound::Each(asked) | SumBound::Total(asked)) = bound;
        let abs = match asked {
            ErrorBound::Abs(abs) if abs.is_finite() && abs > 0.0 => abs,
            // All values are equal.
            ErrorBound::Rel(rel) if rel.is_finite() && rel > 0.0 => {
                rel * if range > 0.0 { range } else { max_abs.max(1.0) }
            }
            _ => return Err(invalid(format!("sums need an absolute or a relative bound above 0, not {asked}"))),
        };
        let each = if let SumBound::Total(_) = bound { abs / n_vectors.max(1) as f64 } else { abs };
        let precision = if size_of::<T>() == size_of::<f32>() { f32::EPSILON.into() } else { f64::EPSILON };
        let tolerance = (each - (max_abs + each) * precision) * (1.0 - MARGIN);
        // With few significant bits, multiples are exact in f64.
        let step = 2.0 * tolerance * (1.0 - STEP_MARGIN);
        let step = f64::from_bits(step.to_bits() & (u64::MAX << (f64::MANTISSA_DIGITS - STEP_BITS)));
        let lattice = SumLattice { step, tolerance };
        let job = Self { n_vectors, max_abs, each, lattice, has_specials: n_special > 0, n_special_here };
        if tolerance >= each / 2.0 && step >= f64::MIN_POSITIVE { Ok(job) } else { Err(too_precise(&job)) }
    }

    /// Whether all values have an integer, and all sums of integers are exact in C.
    fn fits<C: Value>(&self) -> bool {
        let largest = self.max_abs / self.lattice.step + 1.0;
        largest < MAX_INTEGER && self.n_vectors as f64 * largest < Integers::<C>::limit()
    }

    /// Adds the integers of vectors to sums; returns how many values have none.
    fn add<'v, T: Value, C: Value>(&self, vectors: impl Iterator<Item = &'v [T]>, sums: &mut [C]) -> usize {
        vectors.map(|vector| self.lattice.add(vector, sums)).sum()
    }

    /// Checks that all values had an integer but those that are not finite.
    fn check(&self, comm: &impl Communicator, n_without: usize) -> Result<()> {
        agree(comm, if n_without == self.n_special_here { Ok(()) } else { Err(too_precise(self)) })
    }

    fn run<T: Value, C: Value>(
        &self,
        comm: &impl Communicator,
        vectors: &[&[T]],
        sum: &mut [T],
        algorithm: SumAlgorithm,
    ) -> Result<SumSummary> {
        let code = agree(comm, Integers::new(Preset::Fast))?;
        let algorithm = match algorithm {
            _ if comm.size() == 1 => SumAlgorithm::Plain,
            SumAlgorithm::Auto => self.choose(comm, vectors, sum.len(), &code)?,
            other => other,
        };
        let sent_bytes = match algorithm {
            SumAlgorithm::Plain | SumAlgorithm::Auto => self.sum_plainly::<T, C>(comm, vectors, sum)?,
            SumAlgorithm::Ring | SumAlgorithm::Halving => {
                let buffers = zeros::<C>(sum.len()).and_then(|sums| Ok((sums, zeros(PIECE.min(sum.len()))?)));
                let (mut sums, scratch) = agree(comm, buffers)?;
                let n_without = self.add(vectors.iter().copied(), &mut sums);
                self.check(comm, n_without)?;
                let mut carrier = Carrier { comm, code: &code, length: sums.len(), scratch, sent_bytes: 0 };
                if algorithm == SumAlgorithm::Ring {
                    carrier.ring(&mut sums)?
                } else {
                    carrier.halves(&mut sums)?
                }
                self.lattice.restore(&sums, sum);
                carrier.sent_bytes
            }
        };
        if self.has_specials {
            self.add_specials(comm, vectors, sum)?;
        }
        let abs_bound = self.n_vectors as f64 * self.each;
        Ok(SumSummary { n_vectors: self.n_vectors, abs_bound, algorithm, sent_bytes })
    }

    /// The integers are added by MPI: in pieces that stay in the cache between the steps.
    fn sum_plainly<T: Value, C: Value>(
        &self,
        comm: &impl Communicator,
        vectors: &[&[T]],
        sum: &mut [T],
    ) -> Result<u64> {
        let buffers = zeros::<C>(PIECE.min(sum.len())).map(|mine| (mine.clone(), mine));
        let (mut mine, mut all) = agree(comm, buffers)?;
        let mut n_without = 0;
        for (i, out) in sum.chunks_mut(PIECE).enumerate() {
            let (mine, all) = (&mut mine[..out.len()], &mut all[..out.len()]);
            mine.fill(C::default());
            let range = i * PIECE..i * PIECE + out.len();
            n_without += self.add(vectors.iter().map(|vector| &vector[range.clone()]), mine);
            if comm.size() == 1 {
                all.copy_from_slice(mine);
            } else {
                comm.all_reduce_into(&*mine, all, SystemOperation::sum());
            }
            self.lattice.restore(all, out);
        }
        self.check(comm, n_without)?;
        Ok((sum.len() * size_of::<C>()) as u64)
    }

    /// Chooses by what the link and the code give for a sample.
    fn choose<T: Value, C: Value>(
        &self,
        comm: &impl Communicator,
        vectors: &[&[T]],
        length: usize,
        code: &Integers<C>,
    ) -> Result<SumAlgorithm> {
        if length < LEAST_VALUES {
            return Ok(SumAlgorithm::Plain);
        }
        let buffers = zeros::<C>(SAMPLE).map(|sums| (sums.clone(), sums));
        let (mut sample, mut received) = agree(comm, buffers)?;
        self.add(vectors.iter().map(|vector| &vector[..SAMPLE]), &mut sample);
        let mut bytes = Vec::new();
        let start = mpi::time();
        code.encode(&sample, &mut bytes);
        let coded = code.decode(&bytes, &mut received);
        let coding = mpi::time() - start;
        agree(comm, coded)?;
        // As many bytes as the sample has, to the next rank and from the one before.
        let (next, previous) = neighbours(comm);
        comm.barrier();
        let start = mpi::time();
        request::scope(|scope| {
            let sent = comm.process_at_rank(next).immediate_send(scope, &sample[..]);
            comm.process_at_rank(previous).receive_into(&mut received[..]);
            sent.wait();
        });
        let sending = mpi::time() - start;
        // The slowest rank decides for all; sums of more vectors take more bits.
        let share = bytes.len() as f64 / size_of_val(&sample[..]) as f64;
        let [coding, sending, share] = reduce(comm, [coding, sending, share], SystemOperation::max());
        let pays = coding + 1.5 * share * sending < sending;
        Ok(if pays { SumAlgorithm::Ring } else { SumAlgorithm::Plain })
    }

    /// Sums in which values take part that are not finite.
    fn add_specials<T: Value>(&self, comm: &impl Communicator, vectors: &[&[T]], sum: &mut [T]) -> Result<()> {
        // Index and kind: NaN, or the sign of an infinity.
        let mut mine = Vec::new();
        for vector in vectors {
            for (i, x) in vector.iter().enumerate().filter(|(_, x)| !x.is_finite()) {
                mine.push(4 * i as u64 + if x.is_nan() { 0 } else { 1 + u64::from(x.to_f64() > 0.0) });
            }
        }
        mine.sort_unstable();
        mine.dedup();
        let all = gather_all(comm, &mine)?.concat();
        let (nan, infinities) = (T::from_f64(f64::NAN), [f64::NEG_INFINITY, f64::INFINITY].map(T::from_f64));
        for entry in all {
            let x = &mut sum[(entry / 4) as usize];
            *x = match entry % 4 {
                kind @ (1 | 2) if x.is_finite() || *x == infinities[kind as usize - 1] => infinities[kind as usize - 1],
                _ => nan,
            };
        }
        Ok(())
    }
}

/// Share of the bound that is left for rounding errors of the check itself, and significant bits of the step.
const MARGIN: f64 = 1.0 / (1 << 20) as f64;
/// The largest integer of a value.
const MAX_INTEGER: f64 = (1_u64 << 32) as f64;
const STEP_MARGIN: f64 = 1.0 / (1 << 16) as f64;
const STEP_BITS: u32 = 24;

/// Values of the sample, and the fewest values that are worth a measurement.
const SAMPLE: usize = 1 << 14;
const LEAST_VALUES: usize = 1 << 16;

/// The ranks after and before this one.
fn neighbours(comm: &impl Communicator) -> (i32, i32) {
    let (rank, n) = (comm.rank(), comm.size());
    ((rank + 1) % n, (rank + n - 1) % n)
}

/// Sums that are carried in compressed form by the ranks of a communicator.
struct Carrier<'a, C, M> {
    comm: &'a M,
    code: &'a Integers<C>,
    length: usize,
    /// For a piece that is decoded.
    scratch: Vec<C>,
    sent_bytes: u64,
}

/// Part `i` of `n` of so many values.
fn part(i: usize, n: usize, length: usize) -> Range<usize> {
    i * length / n..(i + 1) * length / n
}

impl<C: Value, M: Communicator> Carrier<'_, C, M> {
    /// Around a ring: each part of the sums passes all ranks, which add theirs, and then once more, which gives it to all.
    fn ring(&mut self, sums: &mut [C]) -> Result<()> {
        let (n, rank) = (self.comm.size() as usize, self.comm.rank() as usize);
        let (next, previous) = neighbours(self.comm);
        let length = self.length;
        let part = |i: usize| part(i % n, n, length);
        let mut done = Ok(());
        for step in 0..n - 1 {
            let (out, into) = (part(rank + n - step), part(rank + 2 * n - step - 1));
            done = done.and(self.send_and_add(sums, Some((next, out)), Some((previous, into))));
        }
        agree(self.comm, done)?;
        // This rank has the sum of one part. What it receives it passes on as it is.
        let mut pieces = self.encode(&sums[part(rank + 1)]);
        let mut done = Ok(());
        for step in 0..n - 1 {
            let into = part(rank + n - step);
            let received = self.pass_on(Some((next, &pieces)), Some((previous, n_pieces(into.len()))));
            done = done.and(self.decode(&received, &mut sums[into]));
            pieces = received;
        }
        agree(self.comm, done)
    }

    /// By halves: ranks in pairs send each other a half of what they have left, then double what they have.
    fn halves(&mut self, sums: &mut [C]) -> Result<()> {
        let (n, rank) = (self.comm.size() as usize, self.comm.rank() as usize);
        let n_paired = 1 << n.ilog2();
        // The first ranks beyond a power of two give theirs to a neighbour, and get the sum from it.
        let n_extra = n - n_paired;
        let length = self.length;
        let all = 0..length;
        let number = if rank >= 2 * n_extra {
            Some(rank - n_extra)
        } else if rank % 2 == 1 {
            Some(rank / 2)
        } else {
            None
        };
        let rank_of = |number: usize| (if number < n_extra { 2 * number + 1 } else { number + n_extra }) as i32;
        let parts = |from: usize, to: usize| part(from, n_paired, length).start..part(to - 1, n_paired, length).end;
        let mut done = match number {
            None => self.send_and_add(sums, Some((rank as i32 + 1, all)), None),
            Some(_) if rank < 2 * n_extra => self.send_and_add(sums, None, Some((rank as i32 - 1, all))),
            Some(_) => Ok(()),
        };
        let mut mask = n_paired / 2;
        while let Some(number) = number.filter(|_| mask > 0) {
            // The parts of both, of which this rank keeps one half.
            let first = number & !(2 * mask - 1);
            let (low, high) = (parts(first, first + mask), parts(first + mask, first + 2 * mask));
            let (kept, given) = if number & mask == 0 { (low, high) } else { (high, low) };
            let partner = rank_of(number ^ mask);
            done = done.and(self.send_and_add(sums, Some((partner, given)), Some((partner, kept))));
            mask /= 2;
        }
        agree(self.comm, done)?;
        let mut done = Ok(());
        let Some(number) = number else {
            let n: usize = (0..n_paired).map(|i| n_pieces(part(i, n_paired, self.length).len())).sum();
            let received = self.pass_on(None, Some((rank as i32 + 1, n)));
            done = done.and(self.decode_parts(&received, 0..n_paired, n_paired, sums));
            return agree(self.comm, done);
        };
        let mut held = self.encode(&sums[part(number, n_paired, self.length)]);
        let mut mask = 1;
        while mask < n_paired {
            let first = (number ^ mask) & !(mask - 1);
            let n: usize = (first..first + mask).map(|i| n_pieces(part(i, n_paired, self.length).len())).sum();
            let partner = rank_of(number ^ mask);
            let received = self.pass_on(Some((partner, &held)), Some((partner, n)));
            done = done.and(self.decode_parts(&received, first..first + mask, n_paired, sums));
            held = if number & mask == 0 { [held, received].concat() } else { [received, held].concat() };
            mask *= 2;
        }
        if rank < 2 * n_extra {
            self.pass_on(Some((rank as i32 - 1, &held)), None);
        }
        agree(self.comm, done)
    }

    /// Sends a part of the sums to one rank, and adds what another sends to another part: piece by piece, so that one is on
    /// its way while the next is coded.
    fn send_and_add(
        &mut self,
        sums: &mut [C],
        out: Option<(i32, Range<usize>)>,
        into: Option<(i32, Range<usize>)>,
    ) -> Result<()> {
        let (to, out) = out.unwrap_or((0, 0..0));
        let (from, into) = into.unwrap_or((0, 0..0));
        // Parts do not overlap; an empty one may lie within the other.
        let (out, into): (&[C], &mut [C]) = if out.start < into.start || into.is_empty() {
            let (low, high) = sums.split_at_mut(if into.is_empty() { sums.len() } else { into.start });
            (&low[out], &mut high[..into.len()])
        } else {
            let (low, high) = sums.split_at_mut(if out.is_empty() { into.end } else { out.start });
            (&high[..out.len()], &mut low[into])
        };
        let mut buffers = vec![Vec::new(); n_pieces(out.len())];
        let scratch = &mut self.scratch;
        let mut incoming = into.chunks_mut(PIECE);
        let mut done = Ok(());
        let (code, comm) = (self.code, self.comm);
        let mut receive = || {
            let Some(target) = incoming.next() else { return };
            let (bytes, _) = comm.process_at_rank(from).receive_vec::<u8>();
            let decoded = &mut scratch[..target.len()];
            match code.decode(&bytes, decoded) {
                Ok(()) => {
                    let sum = |(sum, x): (&mut C, &mut C)| *sum = C::from_f64(sum.to_f64() + x.to_f64());
                    target.iter_mut().zip(decoded).for_each(sum);
                }
                Err(error) => done = Err(error),
            }
        };
        let n_out = buffers.len();
        request::multiple_scope(n_out, |scope, requests| {
            for (i, (buffer, piece)) in buffers.iter_mut().zip(out.chunks(PIECE)).enumerate() {
                code.encode(piece, buffer);
                self.sent_bytes += buffer.len() as u64;
                requests.add(comm.process_at_rank(to).immediate_send(scope, &buffer[..]));
                if i > 0 {
                    receive();
                }
            }
            (0..n_pieces(self.length)).for_each(|_| receive());
            requests.wait_all(&mut Vec::new());
        });
        done
    }

    /// Sends coded pieces to one rank, and returns those that another sends, whose number is known.
    fn pass_on(&mut self, out: Option<(i32, &[Vec<u8>])>, into: Option<(i32, usize)>) -> Vec<Vec<u8>> {
        let (to, out) = out.unwrap_or((0, &[]));
        let (from, n) = into.unwrap_or((0, 0));
        self.sent_bytes += out.iter().map(|piece| piece.len() as u64).sum::<u64>();
        request::multiple_scope(out.len(), |scope, requests| {
            for piece in out {
                requests.add(self.comm.process_at_rank(to).immediate_send(scope, &piece[..]));
            }
            let received = (0..n).map(|_| self.comm.process_at_rank(from).receive_vec().0).collect();
            requests.wait_all(&mut Vec::new());
            received
        })
    }

    fn encode(&self, sums: &[C]) -> Vec<Vec<u8>> {
        let coded = |piece: &[C]| {
            let mut bytes = Vec::new();
            self.code.encode(piece, &mut bytes);
            bytes
        };
        sums.chunks(PIECE).map(coded).collect()
    }

    fn decode(&self, pieces: &[Vec<u8>], sums: &mut [C]) -> Result<()> {
        pieces.iter().zip(sums.chunks_mut(PIECE)).try_for_each(|(bytes, sums)| self.code.decode(bytes, sums))
    }

    /// Decodes the pieces of some of `n` parts.
    fn decode_parts(&self, mut pieces: &[Vec<u8>], parts: Range<usize>, n: usize, sums: &mut [C]) -> Result<()> {
        for i in parts {
            let range = part(i, n, self.length);
            let (mine, others) = pieces.split_at(n_pieces(range.len()));
            self.decode(mine, &mut sums[range])?;
            pieces = others;
        }
        Ok(())
    }
}

fn n_pieces(n_values: usize) -> usize {
    n_values.div_ceil(PIECE)
}
