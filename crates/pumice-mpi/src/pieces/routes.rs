//! The routes that pieces take: straight from rank to rank, around a ring, or down from one rank to all.

use std::rc::Rc;
use std::slice::ChunksMut;

use mpi::traits::*;
use pumice::Result;

use super::{Code, Flow, PIECE, n_pieces};

/// Sends lists to some ranks, by turns piece by piece, and receives lists from others, which are in the order of ranks.
pub(crate) fn exchange<V, K: Code<V>>(
    comm: &impl Communicator,
    code: &K,
    outgoing: &[(i32, &[V])],
    incoming: Vec<(i32, &mut [V])>,
    sent_bytes: &mut u64,
) -> Result<()> {
    let flow = Flow {
        source: None,
        n_incoming: incoming.iter().map(|(_, values)| n_pieces(values.len())).sum(),
        n_forwards: 0,
    };
    let most = outgoing.iter().map(|(_, values)| n_pieces(values.len())).max().unwrap_or(0);
    let turns = (0..most).flat_map(|i| outgoing.iter().map(move |(to, values)| (*to, *values, i)));
    let pieces = turns.filter_map(|(to, values, i)| values.chunks(PIECE).nth(i).map(|values| (to, values)));
    let (mut coded, mut decoded) = (Ok(()), Ok(()));
    let pieces = pieces.map(|(to, values)| (to, Rc::new(code.piece(values, &mut coded))));
    let mut targets: Vec<(i32, ChunksMut<'_, V>)> =
        incoming.into_iter().map(|(from, values)| (from, values.chunks_mut(PIECE))).collect();
    *sent_bytes += flow.run(
        comm,
        pieces,
        |_| &[],
        |from, piece| {
            // Messages of one rank come in the order in which they were sent.
            let target = targets.binary_search_by_key(&from, |(from, _)| *from).ok();
            if let Some(values) = target.and_then(|i| targets[i].1.next()) {
                code.take(&piece, values, &mut decoded);
            }
        },
    );
    coded.and(decoded)
}

/// Gives all ranks the parts of all, in the order of ranks. Each has its own in its place. Afterwards the parts have the same
/// bits on all ranks: each rank decodes its own part, too.
pub(crate) fn around<V, K: Code<V>>(
    comm: &impl Communicator,
    code: &K,
    mut parts: Vec<&mut [V]>,
    sent_bytes: &mut u64,
) -> Result<()> {
    let (n, rank) = (comm.size() as usize, comm.rank() as usize);
    if n == 1 {
        return Ok(());
    }
    let mine = std::mem::take(&mut parts[rank]);
    let next = ((rank + 1) % n) as i32;
    let flow = Flow {
        source: Some(((rank + n - 1) % n) as i32),
        n_incoming: parts.iter().map(|part| n_pieces(part.len())).sum(),
        n_forwards: 1,
    };
    let (mut coded, mut decoded) = (Ok(()), Ok(()));
    let mut restored = Ok(());
    let pieces = mine.chunks_mut(PIECE).map(|values| {
        let mut piece = code.piece(values, &mut coded);
        if !K::IS_EXACT {
            code.take(&piece, values, &mut restored);
        }
        piece.extend_from_slice(&(rank as u32).to_le_bytes());
        (next, Rc::new(piece))
    });
    let mut targets: Vec<ChunksMut<'_, V>> = parts.into_iter().map(|part| part.chunks_mut(PIECE)).collect();
    let to_next = [next];
    let forward = |piece: &[u8]| if owner_of(piece).1 == next { &[][..] } else { &to_next[..] };
    *sent_bytes += flow.run(comm, pieces, forward, |_, piece| {
        let (bytes, owner) = owner_of(&piece);
        if let Some(values) = targets.get_mut(owner as usize).and_then(Iterator::next) {
            code.take(bytes, values, &mut decoded);
        }
    });
    coded.and(restored).and(decoded)
}

/// The code of a piece that travels around the ring, and the rank that it is from.
fn owner_of(piece: &[u8]) -> (&[u8], i32) {
    match piece.split_last_chunk() {
        Some((code, owner)) => (code, u32::from_le_bytes(*owner) as i32),
        None => (&[], -1),
    }
}

/// Gives all ranks the values of one, which decodes them, too: afterwards all have the same bits.
pub(crate) fn down<V, K: Code<V>>(
    comm: &impl Communicator,
    code: &K,
    root: i32,
    values: &mut [V],
    sent_bytes: &mut u64,
) -> Result<()> {
    let (parent, children) = place(comm, root, n_pieces(values.len()));
    let flow = Flow {
        source: parent,
        n_incoming: if parent.is_some() { n_pieces(values.len()) } else { 0 },
        n_forwards: children.len(),
    };
    let (mut coded, mut decoded) = (Ok(()), Ok(()));
    let (own, mut targets) =
        if parent.is_none() { (values, [].chunks_mut(PIECE)) } else { (&mut [][..], values.chunks_mut(PIECE)) };
    let mut restored = Ok(());
    let pieces = own.chunks_mut(PIECE).flat_map(|values| {
        let piece = Rc::new(code.piece(values, &mut coded));
        if !K::IS_EXACT {
            code.take(&piece, values, &mut restored);
        }
        children.iter().map(move |child| (*child, piece.clone()))
    });
    *sent_bytes += flow.run(
        comm,
        pieces,
        |_| &children,
        |_, piece| {
            if let Some(values) = targets.next() {
                code.take(&piece, values, &mut decoded);
            }
        },
    );
    coded.and(restored).and(decoded)
}

/// The rank that this one gets values of the root from, and those that it passes them on to: one after the other in a chain,
/// which sends each piece once, or a binary tree, whose ranks send each piece twice but are nearer to the root.
fn place(comm: &impl Communicator, root: i32, n_pieces: usize) -> (Option<i32>, Vec<i32>) {
    let (n, root) = (comm.size() as usize, root as usize);
    // Counted from the root.
    let number = (comm.rank() as usize + n - root) % n;
    let rank_of = |number: usize| ((number + root) % n) as i32;
    // How many pieces a rank sends one after the other, until the last rank has the last piece.
    let by_chain = n_pieces + n;
    let by_tree = 2 * (n_pieces + n.ilog2() as usize);
    let degree = if by_chain <= by_tree { 1 } else { 2 };
    let children = (degree * number + 1..=degree * number + degree).filter(|child| *child < n).map(rank_of).collect();
    ((number > 0).then(|| rank_of((number - 1) / degree)), children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_name_their_owner() {
        assert_eq!(owner_of(&[7, 8, 3, 1, 0, 0]), (&[7, 8][..], 259));
        assert_eq!(owner_of(&[3, 1, 0, 0]), (&[][..], 259));
        assert_eq!(owner_of(&[1, 0, 0]), (&[][..], -1));
    }
}
