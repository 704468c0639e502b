//! What one rank holds of a distributed array: boxes of any shape, none, or several.

use mpi::traits::Equivalence;
use pumice::{Element, Error, ErrorKind, Result};

/// An element type that MPI can send: `f32` or `f64`.
pub trait Value: Element + Equivalence {}

impl<T: Element + Equivalence> Value for T {}

/// A box of a distributed array, with its values in C order.
#[derive(Clone, Copy, Debug)]
pub struct LocalBox<'a, T> {
    /// Position of its first value in the array, slowest axis first.
    pub start: &'a [usize],
    /// Extents.
    pub extents: &'a [usize],
    /// As many values as the extents say.
    pub values: &'a [T],
}

/// A box of a distributed array that is to be read, and where to.
#[derive(Debug)]
pub struct LocalBoxMut<'a, T> {
    /// Position of its first value in the array, slowest axis first.
    pub start: &'a [usize],
    /// Extents.
    pub extents: &'a [usize],
    /// As many values as the extents say.
    pub values: &'a mut [T],
}

/// A box without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: Vec<usize>,
    pub(crate) extents: Vec<usize>,
}

impl Block {
    pub(crate) fn new(start: &[usize], extents: &[usize]) -> Self {
        Self { start: start.to_vec(), extents: extents.to_vec() }
    }

    pub(crate) fn n_values(&self) -> usize {
        self.extents.iter().product()
    }

    /// Whether a value, or a whole box, is inside.
    pub(crate) fn contains(&self, start: &[usize], extents: &[usize]) -> bool {
        (0..self.start.len())
            .all(|a| self.start[a] <= start[a] && start[a] + extents[a] <= self.start[a] + self.extents[a])
    }

    /// The values that both have; `None` if there are none.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let mut common = self.clone();
        for a in 0..self.start.len() {
            let end = (self.start[a] + self.extents[a]).min(other.start[a] + other.extents[a]);
            common.start[a] = self.start[a].max(other.start[a]);
            common.extents[a] = end.checked_sub(common.start[a]).filter(|n| *n > 0)?;
        }
        Some(common)
    }

    /// Where it starts in the array of `outer`, which contains it.
    pub(crate) fn start_in(&self, outer: &Self) -> Vec<usize> {
        self.start.iter().zip(&outer.start).map(|(a, b)| a - b).collect()
    }

    /// As numbers that can be sent.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.start.iter().chain(&self.extents).map(|n| *n as u64)
    }

    /// A box from its numbers.
    pub(crate) fn of_numbers(numbers: &[u64]) -> Self {
        let (start, extents) = numbers.split_at(numbers.len() / 2);
        Self {
            start: start.iter().map(|n| *n as usize).collect(),
            extents: extents.iter().map(|n| *n as usize).collect(),
        }
    }
}

/// Refuses boxes of one rank that overlap or are not within the array. Values are not counted here.
pub(crate) fn check_boxes(shape: &[usize], boxes: &[Block], may_overlap: bool) -> Result<()> {
    for block in boxes {
        let is_inside = block.start.len() == shape.len()
            && block.extents.len() == shape.len()
            && (0..shape.len())
                .all(|a| block.start[a].checked_add(block.extents[a]).is_some_and(|end| end <= shape[a]));
        if !is_inside {
            return Err(invalid(format!(
                "the box at {:?} of {:?} is not within the array of shape {shape:?}",
                block.start, block.extents
            )));
        }
    }
    match first_overlap(boxes) {
        Some((a, b)) if !may_overlap => Err(invalid(format!(
            "the boxes at {:?} of {:?} and at {:?} of {:?} overlap; each value must belong to one box",
            a.start, a.extents, b.start, b.extents
        ))),
        _ => Ok(()),
    }
}

/// Two boxes that have a value in common.
pub(crate) fn first_overlap(boxes: &[Block]) -> Option<(&Block, &Block)> {
    let mut order: Vec<&Block> = boxes.iter().filter(|block| !block.extents.contains(&0)).collect();
    // A box only overlaps those that start before it ends.
    order.sort_by_key(|block| block.start.first().copied());
    for (i, a) in order.iter().enumerate() {
        let ends = a.start.first().map(|start| start + a.extents[0]);
        let near = order[i + 1..].iter().take_while(|b| b.start.first().copied() < ends || ends.is_none());
        if let Some(b) = near.into_iter().find(|b| a.intersection(b).is_some()) {
            return Some((a, b));
        }
    }
    None
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersections_and_overlaps() {
        let a = Block::new(&[0, 4], &[3, 4]);
        let b = Block::new(&[2, 0], &[5, 5]);
        assert_eq!(a.intersection(&b), Some(Block::new(&[2, 4], &[1, 1])));
        assert_eq!(a.intersection(&Block::new(&[3, 4], &[1, 1])), None);
        assert!(b.contains(&[6, 4], &[1, 1]) && !b.contains(&[6, 4], &[1, 2]));
        assert_eq!(Block::of_numbers(&b.numbers().collect::<Vec<_>>()), b);
        let shape = [10, 10];
        assert!(check_boxes(&shape, &[a.clone(), b.clone()], true).is_ok());
        assert!(check_boxes(&shape, &[a.clone(), b], false).is_err());
        assert!(check_boxes(&shape, &[a.clone(), Block::new(&[2, 4], &[0, 4])], false).is_ok());
        assert!(check_boxes(&shape, &[a.clone(), Block::new(&[3, 4], &[7, 6])], false).is_ok());
        assert!(check_boxes(&shape, &[Block::new(&[3, 4], &[7, 7])], true).is_err());
        assert!(check_boxes(&shape, &[Block::new(&[usize::MAX, 4], &[7, 6])], true).is_err());
        // Arrays without axes have one value.
        assert!(check_boxes(&[], &[Block::new(&[], &[]), Block::new(&[], &[])], false).is_err());
        assert!(check_boxes(&[], &[Block::new(&[], &[])], false).is_ok());
    }
}
