//! Values to the ranks that encode them. A chunk belongs to the rank that holds its first value, which needs no list of
//! chunks, and gives ranks with equal boxes equal work; the others send it their pieces.

use std::collections::HashMap;

use mpi::collective::SystemOperation;
use mpi::traits::*;
use pumice::backend::{Chunks, Corner, copy_box};
use pumice::{Result, Source};

use crate::agreement::agree;
use crate::collective::{exchange, gather_all, reduce, zeros};
use crate::local::{Block, LocalBox, Value, first_overlap, invalid};

/// The chunks of this rank, and their values.
#[derive(Debug)]
pub(crate) struct Owned<'a, T> {
    shape: Vec<usize>,
    /// Ascending.
    pub(crate) ids: Vec<u64>,
    /// The boxes of this rank, in which whole chunks are.
    boxes: Vec<(Block, &'a [T])>,
    /// The values of chunks that several boxes share, by the position of their first value.
    assembled: HashMap<Vec<usize>, Vec<T>>,
}

impl<'a, T: Value> Owned<'a, T> {
    /// Finds the owner of each chunk, and exchanges the pieces of chunks that several boxes share. The boxes are known to be
    /// within the array.
    pub(crate) fn gather(comm: &impl Communicator, chunks: &Chunks, boxes: &[LocalBox<'a, T>]) -> Result<Self> {
        let boxes: Vec<(Block, &[T])> =
            boxes.iter().map(|part| (Block::new(part.start, part.extents), part.values)).collect();
        let numbers: Vec<u64> = boxes.iter().flat_map(|(block, _)| block.numbers()).collect();
        let of_ranks = gather_all(comm, &numbers)?;
        let numbers_per_box = (2 * chunks.shape().len()).max(1);
        let everywhere: Vec<(i32, Block)> = (0..)
            .zip(&of_ranks)
            .flat_map(|(rank, all)| all.chunks(numbers_per_box).map(move |n| (rank, Block::of_numbers(n))))
            .collect();
        let mut owned = Self { shape: chunks.shape().to_vec(), ids: Vec::new(), boxes, assembled: HashMap::new() };
        let pieces = agree(comm, owned.find_pieces(chunks, &everywhere, comm.rank()))?;
        let headers = exchange(comm, &pieces.headers)?;
        let values = exchange(comm, &pieces.values)?;
        let assembled = owned.assemble(chunks, &headers, &values);
        agree(comm, assembled)?;
        let [n_all] = reduce(comm, [owned.ids.len() as u64], SystemOperation::sum());
        if n_all != chunks.count() {
            let n = chunks.count();
            return Err(invalid(format!(
                "the boxes of all ranks do not make up the array: {n_all} of {n} chunks are there"
            )));
        }
        Ok(owned)
    }

    /// The same with a copy of all values of the chunks.
    pub(crate) fn captured(mut self, chunks: &Chunks) -> Result<Owned<'static, T>> {
        for id in &self.ids {
            let chunk = chunks.get(*id);
            if !self.assembled.contains_key(&chunk.start) {
                let mut values = zeros(chunk.n_values())?;
                self.read_box(&chunk.start, &chunk.extents, &mut values)?;
                self.assembled.insert(chunk.start, values);
            }
        }
        Ok(Owned { shape: self.shape, ids: self.ids, boxes: Vec::new(), assembled: self.assembled })
    }

    /// Notes which chunks belong to this rank, and collects the pieces of those that several boxes share.
    fn find_pieces(&mut self, chunks: &Chunks, everywhere: &[(i32, Block)], rank: i32) -> Result<Outgoing<T>> {
        let mut pieces = Outgoing { headers: Vec::new(), values: Vec::new() };
        if self.shape.contains(&0) && rank == 0 {
            self.ids.push(0);
        }
        for (block, values) in &self.boxes {
            for id in chunks.in_box(&block.start, &block.extents)? {
                let chunk = chunks.get(id);
                let chunk = Block::new(&chunk.start, &chunk.extents);
                let has_first = block.contains(&chunk.start, &vec![1; self.shape.len()]);
                if has_first {
                    self.ids.push(id);
                }
                if block.contains(&chunk.start, &chunk.extents) {
                    continue;
                }
                let owner = everywhere.iter().find(|(_, other)| {
                    other.n_values() > 0 && other.contains(&chunk.start, &vec![1; self.shape.len()])
                });
                let Some((owner, _)) = owner else {
                    return Err(invalid(format!("no rank has the value at {:?} of the array", chunk.start)));
                };
                let Some(piece) = block.intersection(&chunk) else { continue };
                pieces.add(*owner, id, &piece, block, values)?;
            }
        }
        self.ids.sort_unstable();
        Ok(pieces)
    }

    /// Puts chunks together from the pieces of all ranks, which must make up all of them.
    fn assemble(&mut self, chunks: &Chunks, headers: &[(i32, Vec<u64>)], values: &[(i32, Vec<T>)]) -> Result<()> {
        let rank = self.shape.len();
        let mut blocks: HashMap<u64, Vec<Block>> = HashMap::new();
        for ((_, headers), (_, values)) in headers.iter().zip(values) {
            let mut rest = &values[..];
            for header in headers.chunks_exact(1 + 2 * rank) {
                let (id, piece) = (header[0], Block::of_numbers(&header[1..]));
                let chunk = chunks.get(id);
                let (mine, others) = rest.split_at(piece.n_values());
                rest = others;
                if !self.assembled.contains_key(&chunk.start) {
                    self.assembled.insert(chunk.start.clone(), zeros(chunk.n_values())?);
                }
                let out = self.assembled.get_mut(&chunk.start).expect("it is there by now");
                let at = piece.start_in(&Block::new(&chunk.start, &chunk.extents));
                let from = Corner { shape: &piece.extents, start: &vec![0; rank] };
                copy_box(mine, from, out, Corner { shape: &chunk.extents, start: &at }, &piece.extents);
                blocks.entry(id).or_default().push(piece);
            }
        }
        for (id, pieces) in blocks {
            let chunk = chunks.get(id);
            if let Some((a, b)) = first_overlap(&pieces) {
                return Err(invalid(format!("boxes of two ranks overlap: both have values of {a:?} and of {b:?}")));
            }
            let n: usize = pieces.iter().map(Block::n_values).sum();
            if n != chunk.n_values() {
                return Err(invalid(format!(
                    "the boxes of all ranks do not make up the array: of the chunk at {:?} of {:?}, {n} values are there",
                    chunk.start, chunk.extents
                )));
            }
        }
        Ok(())
    }
}

/// Pieces for each rank: the id of the chunk and the box of each, and the values of all.
struct Outgoing<T> {
    headers: Vec<(i32, Vec<u64>)>,
    values: Vec<(i32, Vec<T>)>,
}

impl<T: Value> Outgoing<T> {
    fn add(&mut self, owner: i32, id: u64, piece: &Block, block: &Block, from: &[T]) -> Result<()> {
        let i = match self.headers.iter().position(|(rank, _)| *rank == owner) {
            Some(i) => i,
            None => {
                self.headers.push((owner, Vec::new()));
                self.values.push((owner, Vec::new()));
                self.headers.len() - 1
            }
        };
        self.headers[i].1.push(id);
        self.headers[i].1.extend(piece.numbers());
        let mut values = zeros(piece.n_values())?;
        let at = piece.start_in(block);
        let to = Corner { shape: &piece.extents, start: &vec![0; at.len()] };
        copy_box(from, Corner { shape: &block.extents, start: &at }, &mut values, to, &piece.extents);
        self.values[i].1.append(&mut values);
        Ok(())
    }
}

impl<T: Value> Source<T> for Owned<'_, T> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        if let Some(values) = self.assembled.get(start).filter(|values| values.len() == out.len()) {
            out.copy_from_slice(values);
            return Ok(());
        }
        // The only chunk of an array without values, which no box has.
        if out.is_empty() {
            return Ok(());
        }
        let whole = self.boxes.iter().find(|(block, _)| block.contains(start, extents));
        let Some((block, values)) = whole else {
            return Err(invalid(format!("the box at {start:?} of {extents:?} is not on this rank")));
        };
        let at = Block::new(start, extents).start_in(block);
        let to = Corner { shape: extents, start: &vec![0; at.len()] };
        copy_box(values, Corner { shape: &block.extents, start: &at }, out, to, extents);
        Ok(())
    }

    fn contiguous(&self, start: &[usize], extents: &[usize]) -> Option<&[T]> {
        let n: usize = extents.iter().product();
        if let Some(values) = self.assembled.get(start) {
            return (values.len() == n).then_some(values);
        }
        let (block, values) = self.boxes.iter().find(|(block, _)| block.contains(start, extents))?;
        // All axes after the first that is cut must be whole, and those before it of extent 1.
        let cut = extents.iter().position(|n| *n != 1).unwrap_or(extents.len());
        let is_run = extents.iter().zip(&block.extents).skip(cut + 1).all(|(n, all)| n == all);
        let at = Block::new(start, extents).start_in(block);
        let offset = at.iter().zip(&block.extents).fold(0, |offset, (at, n)| offset * n + at);
        is_run.then(|| &values[offset..offset + n])
    }
}
