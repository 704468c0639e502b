//! Runs of values in a file as boxes of the array that the file holds.

use std::collections::HashMap;

/// Consecutive values of an array, or bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Run {
    pub(crate) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// Ascending runs, those that touch or overlap joined.
pub(crate) fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.retain(|run| run.len > 0);
    runs.sort_unstable_by_key(|run| run.start);
    let mut out: Vec<Run> = Vec::new();
    for run in runs {
        match out.last_mut() {
            Some(last) if run.start <= last.end() => last.len = last.len.max(run.end() - last.start),
            _ => out.push(run),
        }
    }
    out
}

/// A box of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: Vec<usize>,
    pub(crate) extents: Vec<usize>,
}

impl Block {
    pub(crate) fn n_values(&self) -> usize {
        self.extents.iter().product()
    }

    /// Its rows along the last axis, in C order, as runs of an array of this shape.
    pub(crate) fn rows(&self, shape: &[usize]) -> impl Iterator<Item = Run> {
        let last = shape.len() - 1;
        let len = self.extents[last] as u64;
        let n_rows: usize = self.extents[..last].iter().product();
        (0..n_rows).map(move |row| {
            let (mut rest, mut stride, mut start) = (row, shape[last], self.start[last]);
            for axis in (0..last).rev() {
                start += (self.start[axis] + rest % self.extents[axis]) * stride;
                rest /= self.extents[axis];
                stride *= shape[axis];
            }
            Run { start: start as u64, len }
        })
    }
}

/// The boxes that these runs make up, as few as a simple rule finds: pieces of rows become boxes with their neighbours along
/// each axis, from the fastest to the slowest. Runs are ascending and do not touch, and the array has values.
pub(crate) fn blocks(shape: &[usize], runs: &[Run]) -> Vec<Block> {
    let mut pieces = Vec::new();
    for run in runs {
        split(shape, &mut Vec::new(), run.start as usize, run.end() as usize, &mut pieces);
    }
    for axis in (0..shape.len() - 1).rev() {
        pieces = joined_along(axis, pieces);
    }
    pieces
}

/// Cuts the values `from..to` of the part of an array at this position of the slowest axes.
fn split(shape: &[usize], position: &mut Vec<usize>, from: usize, to: usize, out: &mut Vec<Block>) {
    if from >= to {
        return;
    }
    let axis = position.len();
    let inner: usize = shape[axis + 1..].iter().product();
    let mut part = |position: &mut Vec<usize>, index: usize, from: usize, to: usize| {
        position.push(index);
        split(shape, position, from, to, out);
        position.pop();
    };
    let (first, last) = (from / inner, to / inner);
    if inner > 1 && first == last {
        return part(position, first, from % inner, to % inner);
    }
    let whole = from.div_ceil(inner)..last;
    if inner > 1 {
        if !from.is_multiple_of(inner) {
            part(position, first, from % inner, inner);
        }
        if !to.is_multiple_of(inner) {
            part(position, last, 0, to % inner);
        }
    }
    if whole.is_empty() {
        return;
    }
    let (mut start, mut extents) = (position.clone(), vec![1; axis]);
    start.push(whole.start);
    extents.push(whole.len());
    start.resize(shape.len(), 0);
    extents.extend_from_slice(&shape[axis + 1..]);
    out.push(Block { start, extents });
}

/// Joins boxes that follow each other along an axis and are the same along the others.
fn joined_along(axis: usize, mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.sort_by_cached_key(|block| block.start[axis]);
    let mut out: Vec<Block> = Vec::new();
    let mut ends: HashMap<Vec<usize>, usize> = HashMap::new();
    for block in blocks {
        // Where it is along the other axes, and where along this one its predecessor ends.
        let others = (0..block.start.len()).filter(|a| *a != axis);
        let mut key: Vec<usize> = others.flat_map(|a| [block.start[a], block.extents[a]]).collect();
        key.push(block.start[axis]);
        let i = match ends.remove(&key) {
            Some(i) => {
                out[i].extents[axis] += block.extents[axis];
                i
            }
            None => {
                out.push(block);
                out.len() - 1
            }
        };
        *key.last_mut().expect("the end is there") = out[i].start[axis] + out[i].extents[axis];
        ends.insert(key, i);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u64) -> Run {
        Run { start, len }
    }

    #[test]
    fn boxes_cover_their_runs_once() {
        let shapes: [&[usize]; 6] = [&[60], &[6, 10], &[3, 4, 5], &[1, 60], &[60, 1], &[2, 3, 1, 10]];
        for shape in shapes {
            for (i, step) in [(0, 7), (1, 13), (3, 5), (0, 60), (17, 2)] {
                let runs: Vec<Run> =
                    (0..).map(|k| run(i + k * step, step / 2 + 1)).take_while(|r| r.end() <= 60).collect();
                let runs = joined(runs);
                let mut seen = [0; 60];
                for block in blocks(shape, &runs) {
                    for row in block.rows(shape) {
                        (row.start..row.end()).for_each(|v| seen[v as usize] += 1);
                    }
                }
                for v in 0..60 {
                    let expected = i32::from(runs.iter().any(|r| r.start <= v && v < r.end()));
                    assert_eq!(seen[v as usize], expected, "{shape:?}, {runs:?}, value {v}");
                }
            }
        }
    }

    #[test]
    fn rows_of_a_box_become_one_box() {
        let shape = [8, 9, 10];
        let block = Block { start: vec![2, 3, 4], extents: vec![3, 4, 5] };
        assert_eq!(blocks(&shape, &block.rows(&shape).collect::<Vec<_>>()), vec![block.clone()]);
        // Two boxes side by side, whose rows alternate.
        let other = Block { start: vec![2, 3, 0], extents: vec![3, 4, 2] };
        let rows = joined(block.rows(&shape).chain(other.rows(&shape)).collect());
        assert_eq!(blocks(&shape, &rows).len(), 2);
        // A run that starts and ends within rows.
        assert_eq!(blocks(&[10, 10], &[run(5, 30)]).len(), 3);
        assert_eq!(blocks(&[10, 10], &[run(10, 30)]).len(), 1);
    }

    #[test]
    fn runs_that_touch_are_joined() {
        assert_eq!(joined(vec![run(5, 5), run(0, 5), run(12, 0), run(20, 4), run(21, 1)]), [run(0, 10), run(20, 4)]);
    }
}
