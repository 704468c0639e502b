//! Sums of integers that travel in compressed form: added on their way from rank to rank, until each part of the sum is on
//! one rank, and then handed out.

use std::ops::Range;
use std::rc::Rc;

use mpi::traits::*;
use pumice::Result;
use pumice::backend::Integers;

use super::Wanted;
use crate::agreement::agree;
use crate::collective::zeros;
use crate::local::Value;
use crate::pieces::{self, Code as _, Flow, PIECE, Piece, n_pieces};

/// Carries sums.
pub(super) struct Carrier<'a, C, M> {
    comm: &'a M,
    code: &'a Integers<C>,
    /// For a piece that is decoded.
    scratch: Vec<C>,
    sent_bytes: u64,
}

/// The ranks that take part in halving: a power of two. Of the first ranks beyond it, every other one gives what it has to
/// the next one.
#[derive(Clone, Copy, Debug)]
struct Paired {
    n: usize,
    n_extra: usize,
}

impl Paired {
    fn of(n_ranks: usize) -> Self {
        let n = 1 << n_ranks.ilog2();
        Self { n, n_extra: n_ranks - n }
    }

    fn number_of(self, rank: usize) -> Option<usize> {
        if rank >= 2 * self.n_extra { Some(rank - self.n_extra) } else { (rank % 2 == 1).then_some(rank / 2) }
    }

    fn rank_of(self, number: usize) -> i32 {
        (if number < self.n_extra { 2 * number + 1 } else { number + self.n_extra }) as i32
    }
}

/// So many parts of a sum: those that are wanted, if they are as many and make up the sum one after the other.
fn parts_of(wanted: &Wanted, n: usize) -> Vec<Range<usize>> {
    let ranges = &wanted.ranges;
    let ends = ranges.iter().map(|part| part.end);
    let follow = ranges.iter().map(|part| part.start).eq([0].into_iter().chain(ends.take(ranges.len() - 1)));
    if n == ranges.len() && follow && ranges[n - 1].end == wanted.length {
        ranges.clone()
    } else {
        (0..n).map(|i| i * wanted.length / n..(i + 1) * wanted.length / n).collect()
    }
}

fn n_pieces_of(parts: &[Range<usize>]) -> usize {
    parts.iter().map(|part| n_pieces(part.len())).sum()
}

/// The pieces of parts that make up a list one after the other.
fn pieces_of<'s, C>(parts: &'s [Range<usize>], sums: &'s mut [C]) -> impl Iterator<Item = &'s mut [C]> {
    let start = parts.first().map_or(0, |part| part.start);
    let mut rest = &mut sums[start..];
    parts.iter().flat_map(move |part| rest.split_off_mut(..part.len()).expect("all parts are there").chunks_mut(PIECE))
}

impl<'a, C: Value, M: Communicator> Carrier<'a, C, M> {
    pub(super) fn new(comm: &'a M, code: &'a Integers<C>, scratch: Vec<C>) -> Self {
        Self { comm, code, scratch, sent_bytes: 0 }
    }

    /// Around a ring: each part of the sums passes all ranks, which add theirs, and ends on one. `restore` gets the sums that
    /// this rank wants. Returns how many bytes this rank sent.
    pub(super) fn ring(mut self, mut sums: Vec<C>, wanted: &Wanted, restore: impl FnOnce(&[C])) -> Result<u64> {
        let (n, rank) = (self.comm.size() as usize, self.comm.rank() as usize);
        let (next, previous) = (((rank + 1) % n) as i32, ((rank + n - 1) % n) as i32);
        let parts = parts_of(wanted, n);
        let mut done = Ok(());
        for step in 1..n {
            let (out, into) = (&parts[(rank + n - step) % n], &parts[(rank + 2 * n - step - 1) % n]);
            done = done.and(self.send_and_add(&mut sums, Some((next, out)), Some((previous, into))));
        }
        agree(self.comm, done)?;
        if wanted.is_all {
            let mut rest = &mut sums[..];
            let parts = parts.iter().map(|part| rest.split_off_mut(..part.len()).expect("all parts are there"));
            let done = pieces::around(self.comm, self.code, parts.collect(), &mut self.sent_bytes);
            agree(self.comm, done)?;
            restore(&sums);
        } else {
            self.hand_out(&sums, &parts, wanted, restore)?;
        }
        Ok(self.sent_bytes)
    }

    /// By halves: ranks in pairs send each other a half of what they have left, then double what they have.
    pub(super) fn halves(mut self, mut sums: Vec<C>, wanted: &Wanted, restore: impl FnOnce(&[C])) -> Result<u64> {
        let n_ranks = self.comm.size() as usize;
        let paired = Paired::of(n_ranks);
        let parts = parts_of(wanted, paired.n);
        let done = self.add_halves(&mut sums, paired, &parts);
        agree(self.comm, done)?;
        if wanted.is_all {
            let done = self.join_halves(&mut sums, paired, &parts);
            agree(self.comm, done)?;
            restore(&sums);
        } else {
            let held = |rank| paired.number_of(rank).map_or(0..0, |number| parts[number].clone());
            self.hand_out(&sums, &(0..n_ranks).map(held).collect::<Vec<_>>(), wanted, restore)?;
        }
        Ok(self.sent_bytes)
    }

    /// Afterwards each rank that has a number has the sum of the part of that number.
    fn add_halves(&mut self, sums: &mut [C], paired: Paired, parts: &[Range<usize>]) -> Result<()> {
        let rank = self.comm.rank() as usize;
        let all = 0..sums.len();
        let number = paired.number_of(rank);
        let mut done = match number {
            None => self.send_and_add(sums, Some((rank as i32 + 1, &all)), None),
            Some(_) if rank < 2 * paired.n_extra => self.send_and_add(sums, None, Some((rank as i32 - 1, &all))),
            Some(_) => Ok(()),
        };
        let mut mask = paired.n / 2;
        while let Some(number) = number.filter(|_| mask > 0) {
            // The parts of both, of which this rank keeps one half.
            let first = number & !(2 * mask - 1);
            let range = |first: usize| parts[first].start..parts[first + mask - 1].end;
            let (low, high) = (range(first), range(first + mask));
            let (kept, given) = if number & mask == 0 { (low, high) } else { (high, low) };
            let partner = paired.rank_of(number ^ mask);
            done = done.and(self.send_and_add(sums, Some((partner, &given)), Some((partner, &kept))));
            mask /= 2;
        }
        done
    }

    /// Afterwards all ranks have all parts. Pieces are passed on as they came.
    fn join_halves(&mut self, sums: &mut [C], paired: Paired, parts: &[Range<usize>]) -> Result<()> {
        let rank = self.comm.rank() as usize;
        let Some(number) = paired.number_of(rank) else {
            return self.pass_on(&[], None, Some((rank as i32 + 1, parts)), sums).1;
        };
        let mut done = Ok(());
        let mut held: Vec<Piece> = sums[parts[number].clone()]
            .chunks(PIECE)
            .map(|values| Rc::new(self.code.piece(values, &mut done)))
            .collect();
        let mut mask = 1;
        while mask < paired.n {
            let first = (number ^ mask) & !(mask - 1);
            let partner = paired.rank_of(number ^ mask);
            let (received, decoded) =
                self.pass_on(&held, Some(partner), Some((partner, &parts[first..first + mask])), sums);
            done = done.and(decoded);
            held = if number & mask == 0 { [held, received].concat() } else { [received, held].concat() };
            mask *= 2;
        }
        if rank < 2 * paired.n_extra {
            done = done.and(self.pass_on(&held, Some(rank as i32 - 1), None, sums).1);
        }
        done
    }

    /// Sends a part of the sums to one rank, and adds what another sends to another part.
    fn send_and_add(
        &mut self,
        sums: &mut [C],
        out: Option<(i32, &Range<usize>)>,
        into: Option<(i32, &Range<usize>)>,
    ) -> Result<()> {
        let (to, out) = out.map_or((0, 0..0), |(to, part)| (to, part.clone()));
        let (from, into) = into.map_or((0, 0..0), |(from, part)| (from, part.clone()));
        // Parts do not overlap; an empty one may lie within the other.
        let (out, into): (&[C], &mut [C]) = if out.start < into.start || into.is_empty() {
            let (low, high) = sums.split_at_mut(if into.is_empty() { sums.len() } else { into.start });
            (&low[out], &mut high[..into.len()])
        } else {
            let (low, high) = sums.split_at_mut(if out.is_empty() { into.end } else { out.start });
            (&high[..out.len()], &mut low[into])
        };
        let flow = Flow { source: Some(from), n_incoming: n_pieces(into.len()), n_forwards: 0 };
        let (mut coded, mut decoded) = (Ok(()), Ok(()));
        let outgoing = out.chunks(PIECE).map(|values| (to, Rc::new(self.code.piece(values, &mut coded))));
        let mut targets = into.chunks_mut(PIECE);
        self.sent_bytes += flow.run(
            self.comm,
            outgoing,
            |_| &[],
            |_, piece| {
                let Some(target) = targets.next() else { return };
                let terms = &mut self.scratch[..target.len()];
                self.code.take(&piece, terms, &mut decoded);
                let add = |(sum, x): (&mut C, &mut C)| *sum = C::from_f64(sum.to_f64() + x.to_f64());
                target.iter_mut().zip(terms).for_each(add);
            },
        );
        coded.and(decoded)
    }

    /// Sends coded pieces to one rank, and decodes those of parts that another sends, which are returned.
    fn pass_on(
        &mut self,
        held: &[Piece],
        to: Option<i32>,
        from: Option<(i32, &[Range<usize>])>,
        sums: &mut [C],
    ) -> (Vec<Piece>, Result<()>) {
        let (source, parts) = from.map_or((None, &[][..]), |(from, parts)| (Some(from), parts));
        let flow = Flow { source, n_incoming: n_pieces_of(parts), n_forwards: 0 };
        let outgoing = held.iter().filter_map(|piece| Some((to?, piece.clone())));
        let (mut received, mut done) = (Vec::new(), Ok(()));
        let mut targets = pieces_of(parts, sums);
        self.sent_bytes += flow.run(
            self.comm,
            outgoing,
            |_| &[],
            |_, piece| {
                if let Some(target) = targets.next() {
                    self.code.take(&piece, target, &mut done);
                }
                received.push(piece);
            },
        );
        (received, done)
    }

    /// Gives each rank what it wants of the parts that ranks hold, which follow one another.
    fn hand_out(
        &mut self,
        sums: &[C],
        held: &[Range<usize>],
        wanted: &Wanted,
        restore: impl FnOnce(&[C]),
    ) -> Result<()> {
        let rank = self.comm.rank() as usize;
        let mine = wanted.ranges[rank].clone();
        if held == wanted.ranges {
            restore(&sums[mine]);
            return Ok(());
        }
        let mut part = agree(self.comm, zeros::<C>(mine.len()))?;
        let common = |a: &Range<usize>, b: &Range<usize>| {
            let start = a.start.max(b.start);
            start..a.end.min(b.end).max(start)
        };
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        let mut rest = &mut part[..];
        for (other, (held_there, wanted_there)) in held.iter().zip(&wanted.ranges).enumerate() {
            let range = common(held_there, &mine);
            let target = rest.split_off_mut(..range.len()).expect("all parts are there");
            if other == rank {
                target.copy_from_slice(&sums[range]);
            } else {
                incoming.push((other as i32, target));
                outgoing.push((other as i32, &sums[common(&held[rank], wanted_there)]));
            }
        }
        // Each rank begins with the next one, so that not all send to the same.
        outgoing.rotate_left(rank);
        let done = pieces::exchange(self.comm, self.code, &outgoing, incoming, &mut self.sent_bytes);
        agree(self.comm, done)?;
        restore(&part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_that_are_wanted_if_they_make_up_the_sum() {
        let wanted = |ranges: &[Range<usize>]| Wanted { length: 10, ranges: ranges.to_vec(), is_all: false };
        for whole in [[0..3, 3..3, 3..10], [0..0, 0..10, 10..10]] {
            assert_eq!(parts_of(&wanted(&whole), 3), whole);
            assert_eq!(parts_of(&wanted(&whole), 2), [0..5, 5..10]);
        }
        for other in [[0..3, 4..4, 3..10], [0..3, 3..4, 4..9], [3..10, 0..3, 3..3], [0..5, 4..6, 6..10]] {
            assert_eq!(parts_of(&wanted(&other), 3), [0..3, 3..6, 6..10]);
        }
    }

    #[test]
    fn all_numbers_have_a_rank() {
        for n_ranks in 1..20 {
            let paired = Paired::of(n_ranks);
            let numbers: Vec<usize> = (0..n_ranks).filter_map(|rank| paired.number_of(rank)).collect();
            assert_eq!(numbers, (0..paired.n).collect::<Vec<_>>());
            assert!((0..paired.n).all(|number| paired.number_of(paired.rank_of(number) as usize) == Some(number)));
        }
    }
}
