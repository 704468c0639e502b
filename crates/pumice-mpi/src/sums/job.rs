//! What the ranks know about a sum: its lattice, and with it the bound.
//!
//! Let e be the bound of each value, M the largest magnitude and p the significant bits of the type. Each value is off by at
//! most the tolerance t; that is checked, in f64, which may hide M 2^-53. The sum of n integers times the step is off by n
//! times as much, and rounds to the type by at most n (M + e) 2^-p. So t = e - (M + e) 2^(1 - p) keeps n e. Where that
//! leaves less than half of e, the bound is refused: it is below the precision of the sum. The step is 2 t, less a margin
//! that is larger than the rounding errors of an integer below 2^32, so that no value fails the check.

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::{Integers, SumLattice, finite_range};
use pumice::{ErrorBound, Preset, Result};

use super::carrier::Carrier;
use super::{SumAlgorithm, SumBound, SumSummary, Wanted};
use crate::agreement::{agree, check_same};
use crate::collective::{gather_all, reduce, zeros};
use crate::link::{LEAST_VALUES, Link, Load, SAMPLE, Speed};
use crate::local::{Value, invalid};
use crate::pieces::PIECE;

/// Share of the bound that is left for rounding errors of the check itself, and significant bits of the step.
const MARGIN: f64 = 1.0 / (1 << 20) as f64;
/// The largest integer of a value.
const MAX_INTEGER: f64 = (1_u64 << 32) as f64;
const STEP_MARGIN: f64 = 1.0 / (1 << 16) as f64;
const STEP_BITS: u32 = 24;

fn too_precise<M>(job: &Job<'_, M>) -> pumice::Error {
    invalid(format!(
        "a bound of {:e} is below the precision of sums of values up to {:e}; use MPI_Allreduce, a larger bound or f64",
        job.each, job.max_abs
    ))
}

/// What all ranks know about a sum.
pub(super) struct Job<'a, M> {
    /// Of the user, which knows its links.
    users: &'a M,
    /// For the messages of this sum alone.
    pub(super) comm: SimpleCommunicator,
    n_vectors: u64,
    max_abs: f64,
    /// The bound of each value.
    each: f64,
    pub(super) lattice: SumLattice,
    /// Whether some values are not finite, and how many of this rank.
    has_specials: bool,
    n_special_here: usize,
}

impl<'a, M: Communicator> Job<'a, M> {
    pub(super) fn new<T: Value>(
        users: &'a M,
        operation: &str,
        vectors: &[&[T]],
        length: usize,
        bound: SumBound,
    ) -> Result<Self> {
        let private = users.duplicate();
        let comm = &private;
        check_same(
            comm,
            &[
                ("operation", operation.into()),
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
        let has_specials = n_special > 0;
        let job = Self { users, comm: private, n_vectors, max_abs, each, lattice, has_specials, n_special_here };
        if tolerance >= each / 2.0 && step >= f64::MIN_POSITIVE { Ok(job) } else { Err(too_precise(&job)) }
    }

    /// Whether all values have an integer, and all sums of integers are exact in C.
    fn fits<C: Value>(&self) -> bool {
        let largest = self.max_abs / self.lattice.step + 1.0;
        largest < MAX_INTEGER && self.n_vectors as f64 * largest < Integers::<C>::limit()
    }

    /// Adds the integers of vectors to sums; returns how many values have none.
    pub(super) fn add<'v, T: Value, C: Value>(&self, vectors: impl Iterator<Item = &'v [T]>, sums: &mut [C]) -> usize {
        vectors.map(|vector| self.lattice.add(vector, sums)).sum()
    }

    /// Checks that all values had an integer but those that are not finite.
    pub(super) fn check(&self, n_without: usize) -> Result<()> {
        self.check_part(n_without, self.n_special_here)
    }

    /// Checks it for a part of the values.
    pub(super) fn check_part(&self, n_without: usize, n_special: usize) -> Result<()> {
        agree(&self.comm, if n_without == n_special { Ok(()) } else { Err(too_precise(self)) })
    }

    /// Forms the sum, of which `out` is the part that this rank wants.
    pub(super) fn run<T: Value>(
        &self,
        vectors: &[&[T]],
        wanted: &Wanted,
        out: &mut [T],
        algorithm: SumAlgorithm,
    ) -> Result<SumSummary> {
        // Integers of f32 carry sums of few vectors under common bounds; those of f64 all that are accepted.
        if size_of::<T>() == size_of::<f32>() && self.fits::<f32>() {
            self.run_in::<T, f32>(vectors, wanted, out, algorithm)
        } else {
            agree(&self.comm, if self.fits::<f64>() { Ok(()) } else { Err(too_precise(self)) })?;
            self.run_in::<T, f64>(vectors, wanted, out, algorithm)
        }
    }

    fn run_in<T: Value, C: Value>(
        &self,
        vectors: &[&[T]],
        wanted: &Wanted,
        out: &mut [T],
        algorithm: SumAlgorithm,
    ) -> Result<SumSummary> {
        let code = agree(&self.comm, Integers::new(Preset::Fast))?;
        let algorithm = match algorithm {
            _ if self.comm.size() == 1 => SumAlgorithm::Plain,
            SumAlgorithm::Auto => self.choose(vectors, wanted, &code)?,
            other => other,
        };
        let sent_bytes = match algorithm {
            SumAlgorithm::Plain | SumAlgorithm::Auto if wanted.is_all => self.sum_plainly::<T, C>(vectors, out)?,
            SumAlgorithm::Plain | SumAlgorithm::Auto => self.scatter_plainly::<T, C>(vectors, wanted, out)?,
            SumAlgorithm::Ring | SumAlgorithm::Halving => {
                let length = wanted.length;
                let buffers = zeros::<C>(length).and_then(|sums| Ok((sums, zeros(PIECE.min(length))?)));
                let (mut sums, scratch) = agree(&self.comm, buffers)?;
                self.check(self.add(vectors.iter().copied(), &mut sums))?;
                let carrier = Carrier::new(&self.comm, &code, scratch);
                if algorithm == SumAlgorithm::Ring {
                    carrier.ring(sums, wanted, |sums| self.lattice.restore(sums, out))?
                } else {
                    carrier.halves(sums, wanted, |sums| self.lattice.restore(sums, out))?
                }
            }
        };
        if self.has_specials {
            self.add_specials(vectors, wanted, out)?;
        }
        let abs_bound = self.n_vectors as f64 * self.each;
        Ok(SumSummary { n_vectors: self.n_vectors, abs_bound, algorithm, sent_bytes })
    }

    /// Chooses by what the link and the code give for a sample.
    fn choose<T: Value, C: Value>(
        &self,
        vectors: &[&[T]],
        wanted: &Wanted,
        code: &Integers<C>,
    ) -> Result<SumAlgorithm> {
        if wanted.length < LEAST_VALUES {
            return Ok(SumAlgorithm::Plain);
        }
        let link = Link::of(self.users, &self.comm)?;
        if link.is_memory() {
            return Ok(SumAlgorithm::Plain);
        }
        let speed = zeros::<C>(SAMPLE).and_then(|mut sums| {
            let start = (wanted.length - SAMPLE) / 2;
            self.add(vectors.iter().map(|vector| &vector[start..start + SAMPLE]), &mut sums);
            Speed::of(code, &sums)
        });
        let speed = agree(&self.comm, speed)?;
        // Sums of more vectors take more bits.
        let speed = Speed { share: 1.5 * speed.share, ..speed };
        // Each value passes all other ranks once, and the sum once more if all want it.
        let (length, n) = (wanted.length as f64, f64::from(self.comm.size()));
        let around = length * (n - 1.0) / n;
        let load = if wanted.is_all {
            Load { encoded: length, decoded: 2.0 * around, carried: 2.0 * around }
        } else {
            Load { encoded: around, decoded: around, carried: around }
        };
        let is_worth = link.is_worth(&self.comm, speed, load, size_of::<C>());
        Ok(if is_worth { SumAlgorithm::Ring } else { SumAlgorithm::Plain })
    }

    /// Sums in which values take part that are not finite.
    fn add_specials<T: Value>(&self, vectors: &[&[T]], wanted: &Wanted, sum: &mut [T]) -> Result<()> {
        let part = &wanted.ranges[self.comm.rank() as usize];
        // Index and kind: NaN, or the sign of an infinity.
        let mut mine = Vec::new();
        for vector in vectors {
            for (i, x) in vector.iter().enumerate().filter(|(_, x)| !x.is_finite()) {
                mine.push(4 * i as u64 + if x.is_nan() { 0 } else { 1 + u64::from(x.to_f64() > 0.0) });
            }
        }
        mine.sort_unstable();
        mine.dedup();
        let all = gather_all(&self.comm, &mine)?.concat();
        let (nan, infinities) = (T::from_f64(f64::NAN), [f64::NEG_INFINITY, f64::INFINITY].map(T::from_f64));
        for entry in all {
            let Some(x) = ((entry / 4) as usize).checked_sub(part.start).and_then(|i| sum.get_mut(i)) else { continue };
            *x = match entry % 4 {
                kind @ (1 | 2) if x.is_finite() || *x == infinities[kind as usize - 1] => infinities[kind as usize - 1],
                _ => nan,
            };
        }
        Ok(())
    }
}
