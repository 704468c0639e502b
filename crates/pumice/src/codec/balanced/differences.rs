//! N-dimensional Lorenzo differences of a chunk's integers, and their sums (docs/format.md, 9.1).
//!
//! Differences are taken along each axis of an [`Order`], so the decoder's reconstruction is a running sum along each
//! of them, in any sequence: the partial sums of cuSZ+. The first value along such an axis is predicted by the previous
//! first value along it, if only axes outside of the order advanced in between.

use crate::codec::shared::dims::{AXES, AxisSet, Dims, X};
use crate::error::{Error, Result};
use crate::exec::scratch;
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::quantize::restore;

/// Size of the sample by which an order is chosen: groups, and values per group.
const SAMPLE_GROUPS: usize = 384;
const SAMPLE_RUN: usize = 32;
/// The most axes across rows.
const ACROSS: usize = AXES - 1;

/// Along which axes differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    axes: AxisSet,
    /// How often differences are taken along the fastest axis: 0, 1 or 2 times.
    n_along: usize,
}

impl Order {
    pub(crate) fn to_bits(self) -> u8 {
        self.axes | u8::from(self.n_along == 2) << AXES
    }

    pub(crate) fn from_bits(bits: u8) -> Result<Self> {
        let axes: AxisSet = bits & ((1 << AXES) - 1);
        let (is_along, is_second) = (axes >> X & 1 != 0, bits >> AXES != 0);
        if axes == 0 || bits >> AXES > 1 || (is_second && axes != 1 << X) {
            return Err(Error::corrupt("chunk has differences along unknown axes"));
        }
        Ok(Self { axes, n_along: usize::from(is_along) + usize::from(is_second) })
    }

    /// All orders that make sense for an array of these extents.
    fn all(dims: &Dims) -> impl Iterator<Item = Self> {
        let long = (0..AXES).filter(|&a| dims[a] > 1 || a == X).fold(0, |set, a| set | 1 << a);
        let sets = (1..1 << AXES).filter(move |set| set & !long == 0);
        let once = sets.map(|axes| Self { axes, n_along: usize::from(axes >> X & 1) });
        once.chain([Self { axes: 1 << X, n_along: 2 }])
    }

    /// The order with the lowest estimated cost on a sample.
    pub(crate) fn choose(integers: &[i32], dims: &Dims) -> Self {
        simd::run(Choose { integers, dims })
    }
}

struct Choose<'a> {
    integers: &'a [i32],
    dims: &'a Dims,
}

impl Kernel for Choose<'_> {
    type Output = Order;

    #[inline(always)]
    fn run(self) -> Order {
        let n_values = self.integers.len();
        let mut best = (u64::MAX, Order { axes: 1 << X, n_along: 1 });
        for order in Order::all(self.dims) {
            let walk = Walk::new(self.dims, order);
            let mut cost = 0;
            let mut group = [0; SAMPLE_RUN];
            // Not a power of two, so that sampled positions differ along all axes.
            let n_groups = (n_values / (2 * SAMPLE_RUN)).min(SAMPLE_GROUPS);
            for i in 0..n_groups {
                let at = i * (n_values - SAMPLE_RUN) / n_groups;
                let mut position = Position::new(&walk, at);
                let mut n_done = 0;
                while n_done < SAMPLE_RUN {
                    let n = (walk.row.extent - position.along.index).min(SAMPLE_RUN - n_done);
                    walk.differences(self.integers, at + n_done, &position, &mut group[n_done..n_done + n]);
                    position.advance(&walk, n);
                    n_done += n;
                }
                cost += group_cost(&group);
            }
            if cost < best.0 {
                best = (cost, order);
            }
        }
        best.1
    }
}

/// Estimated cost of a group of differences: about the logarithm of their mean magnitude.
#[inline(always)]
fn group_cost(group: &[i32; SAMPLE_RUN]) -> u64 {
    let sum: u64 = group.iter().map(|d| u64::from(d.unsigned_abs())).sum();
    // Linear between powers of two, and near 0.
    let scaled = sum + 8;
    let exponent = scaled.ilog2();
    let fraction = (scaled << 4 >> exponent) & 15;
    (u64::from(exponent) << 4 | fraction) - 48
}

/// An axis along which differences are taken.
#[derive(Clone, Copy, Debug, Default)]
struct Axis {
    extent: usize,
    stride: usize,
    /// How often it is traversed before the next axis of the order advances.
    n_repeats: usize,
}

/// A chunk along the axes of an order: rows, and the axes across them.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    row: Axis,
    n_along: usize,
    /// Axes across rows, fastest first; differences are taken along all of them.
    across: [Axis; ACROSS],
    n_across: usize,
}

impl Walk {
    pub(crate) fn new(dims: &Dims, order: Order) -> Self {
        let row = Axis { extent: dims[X], stride: 1, n_repeats: 1 };
        let mut walk = Self { row, n_along: order.n_along, across: [Axis::default(); ACROSS], n_across: 0 };
        let mut stride = dims[X];
        for a in (0..X).rev() {
            if order.axes >> a & 1 != 0 {
                walk.across[walk.n_across] = Axis { extent: dims[a], stride, n_repeats: 1 };
                walk.n_across += 1;
            } else if walk.n_across > 0 {
                walk.across[walk.n_across - 1].n_repeats *= dims[a];
            } else if order.n_along > 0 {
                walk.row.n_repeats *= dims[a];
            } else {
                walk.row.extent *= dims[a];
            }
            stride *= dims[a];
        }
        walk
    }

    /// Differences of the integers from `at` on, which lie within one row; `position` is that of the first.
    #[inline(always)]
    fn differences(&self, integers: &[i32], at: usize, position: &Position, out: &mut [i32]) {
        // Distances to all corners of the Lorenzo stencil: sums of the distances back along axes that have a neighbour.
        let mut back = [0; 1 << ACROSS];
        let mut n_terms = 1;
        for a in 0..self.n_across {
            if let Some(way) = position.across[a].distance_back(&self.across[a]) {
                for i in 0..n_terms {
                    back[n_terms + i] = back[i] + way;
                }
                n_terms *= 2;
            }
        }
        let x = position.along.index;
        let n_first = self.n_along.saturating_sub(x).min(out.len());
        for (i, d) in out[..n_first].iter_mut().enumerate() {
            let term = |way: usize| {
                let signed = |j: usize| integers[at + i - way - back[j]].wrapping_mul(sign(j));
                (0..n_terms).fold(0_i32, |sum, j| sum.wrapping_add(signed(j)))
            };
            let along = AxisPosition { index: x + i, repeat: position.along.repeat };
            *d = term(0).wrapping_sub(along.distance_back(&self.row).map_or(0, term));
        }
        let (at, out) = (at + n_first, &mut out[n_first..]);
        match (n_terms, self.n_along) {
            (1, 0) => differences::<1, 0>(integers, at, &back, out),
            (2, 0) => differences::<2, 0>(integers, at, &back, out),
            (4, 0) => differences::<4, 0>(integers, at, &back, out),
            (8, 0) => differences::<8, 0>(integers, at, &back, out),
            (1, 1) => differences::<1, 1>(integers, at, &back, out),
            (2, 1) => differences::<2, 1>(integers, at, &back, out),
            (4, 1) => differences::<4, 1>(integers, at, &back, out),
            (8, 1) => differences::<8, 1>(integers, at, &back, out),
            _ => differences::<1, 2>(integers, at, &back, out),
        }
    }

    /// Sets each hole to the integer whose difference is 0, which is the cheapest.
    pub(crate) fn fill_holes(&self, integers: &mut [i32], holes: &[usize]) {
        let mut position = Position::default();
        let mut at = 0;
        for &hole in holes {
            if hole != at {
                position = Position::new(self, hole);
            }
            let mut difference = [0];
            integers[hole] = 0;
            self.differences(integers, hole, &position, &mut difference);
            integers[hole] = difference[0].wrapping_neg();
            position.advance(self, 1);
            at = hole + 1;
        }
    }

    /// Differences of a block of integers from `at` on; advances `position` beyond it.
    #[inline(always)]
    pub(crate) fn block(&self, integers: &[i32], at: usize, position: &mut Position, out: &mut [i32]) {
        let mut n_done = 0;
        while n_done < out.len() {
            let n = (self.row.extent - position.along.index).min(out.len() - n_done);
            self.differences(integers, at + n_done, position, &mut out[n_done..n_done + n]);
            position.advance(self, n);
            n_done += n;
        }
    }
}

#[inline(always)]
fn sign(term: usize) -> i32 {
    if term.count_ones().is_multiple_of(2) { 1 } else { -1 }
}

/// Adds `N` rows with alternating signs, then takes differences `ALONG` times along the result.
#[inline(always)]
fn differences<const N: usize, const ALONG: usize>(
    integers: &[i32],
    at: usize,
    back: &[usize; 1 << ACROSS],
    out: &mut [i32],
) {
    if out.is_empty() {
        return;
    }
    let n = out.len();
    let rows: [&[i32]; N] = std::array::from_fn(|j| &integers[at - ALONG - back[j]..][..n + ALONG]);
    for i in 0..n {
        let term =
            |x: usize| (0..N).fold(0_i32, |sum, j| sum.wrapping_add(rows[j][i + ALONG - x].wrapping_mul(sign(j))));
        out[i] = match ALONG {
            0 => term(0),
            1 => term(0).wrapping_sub(term(1)),
            _ => term(0).wrapping_sub(term(1)).wrapping_sub(term(1).wrapping_sub(term(2))),
        };
    }
}

/// Position along an axis: index, and how often the axis has been traversed.
#[derive(Clone, Copy, Debug, Default)]
struct AxisPosition {
    index: usize,
    repeat: usize,
}

impl AxisPosition {
    /// Distance back to the neighbour along the axis.
    #[inline(always)]
    fn distance_back(self, axis: &Axis) -> Option<usize> {
        match self {
            AxisPosition { index: 0, repeat: 0 } => None,
            AxisPosition { index: 0, .. } => Some(axis.stride * axis.extent),
            _ => Some(axis.stride),
        }
    }

    /// Moves on by one; true if the last traversal of the axis is complete.
    #[inline(always)]
    fn advance(&mut self, axis: &Axis) -> bool {
        self.index += 1;
        if self.index < axis.extent {
            return false;
        }
        self.index = 0;
        self.repeat += 1;
        if self.repeat < axis.n_repeats {
            return false;
        }
        self.repeat = 0;
        true
    }
}

/// Position in a walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    along: AxisPosition,
    across: [AxisPosition; ACROSS],
}

impl Position {
    fn new(walk: &Walk, at: usize) -> Self {
        let on_axis = |axis: &Axis| AxisPosition {
            index: at / axis.stride % axis.extent,
            repeat: at / (axis.stride * axis.extent) % axis.n_repeats,
        };
        let mut position = Self { along: on_axis(&walk.row), ..Self::default() };
        (0..walk.n_across).for_each(|a| position.across[a] = on_axis(&walk.across[a]));
        position
    }

    /// Moves on within a row, or to the start of the next one.
    #[inline(always)]
    fn advance(&mut self, walk: &Walk, n: usize) {
        self.along.index += n - 1;
        let mut is_passed = self.along.advance(&walk.row);
        for (on_axis, axis) in self.across.iter_mut().zip(&walk.across[..walk.n_across]) {
            if !is_passed {
                return;
            }
            is_passed = on_axis.advance(axis);
        }
    }
}

/// Sums along an axis.
#[derive(Default)]
struct Running {
    /// The sums up to the last hyperplane across the axis, one for each of its points.
    sums: Vec<i32>,
    /// The sums where the axis last began, if it is traversed more than once.
    starts: Vec<i32>,
}

/// Turns differences back into integers by sums, and integers into values, block by block.
pub(crate) struct Sums<'a, T> {
    walk: &'a Walk,
    position: Position,
    /// Sums along the row, first and second, and the sum at the start of the last row.
    along: [i32; 2],
    start: i32,
    across: [Running; ACROSS],
    at: usize,
    origin: i64,
    step: T,
}

impl<'a, T: Real> Sums<'a, T> {
    pub(crate) fn new(walk: &'a Walk, origin: i64, step: T) -> Result<Self> {
        let mut across: [Running; ACROSS] = Default::default();
        for (a, (running, axis)) in across.iter_mut().zip(&walk.across).enumerate() {
            if a < walk.n_across {
                running.sums = scratch::try_take(axis.stride)?;
            }
            if axis.n_repeats > 1 {
                running.starts = scratch::try_take(axis.stride)?;
            }
        }
        Ok(Self { walk, position: Position::default(), along: [0; 2], start: 0, across, at: 0, origin, step })
    }

    /// The most memory that sums over a chunk of these extents take, in any order of axes.
    pub(crate) fn most_bytes(dims: &Dims) -> u64 {
        let stride = |a: usize| if dims[a] > 1 { dims[a + 1..].iter().product::<usize>() as u64 } else { 0 };
        (0..X).map(stride).sum::<u64>() * 2 * size_of::<i32>() as u64
    }

    /// Restores the values of the next differences, which it overwrites.
    #[inline(always)]
    pub(crate) fn block(&mut self, differences: &mut [i32], out: &mut [T]) {
        let walk = self.walk;
        let mut n_done = 0;
        while n_done < differences.len() {
            let n = (walk.row.extent - self.position.along.index).min(differences.len() - n_done);
            let row = &mut differences[n_done..n_done + n];
            self.sum_along(row);
            for a in 0..walk.n_across {
                self.sum_across(a, row);
            }
            for (x, q) in out[n_done..n_done + n].iter_mut().zip(row.iter()) {
                *x = restore(T::Int::from_i64(i64::from(*q).wrapping_add(self.origin)), self.step);
            }
            self.position.advance(walk, n);
            self.at += n;
            n_done += n;
        }
    }

    /// Sums along a row, or a part of one.
    #[inline(always)]
    fn sum_along(&mut self, row: &mut [i32]) {
        if self.walk.n_along == 0 {
            return;
        }
        let mut row = row;
        let [mut first, mut second] = self.along;
        if let AxisPosition { index: 0, repeat } = self.position.along {
            // The first value of a row continues the sum of the previous first values.
            let (d, rest) = row.split_first_mut().expect("rows have values");
            self.start = if repeat == 0 { *d } else { self.start.wrapping_add(*d) };
            *d = self.start;
            (first, second, row) = (if self.walk.n_along == 1 { self.start } else { 0 }, self.start, rest);
        }
        if self.walk.n_along == 1 {
            for d in row {
                first = first.wrapping_add(*d);
                *d = first;
            }
        } else {
            for d in row {
                first = first.wrapping_add(*d);
                second = second.wrapping_add(first);
                *d = second;
            }
        }
        self.along = [first, second];
    }

    /// Sums along an axis across rows.
    #[inline(always)]
    fn sum_across(&mut self, a: usize, row: &mut [i32]) {
        let at = self.at % self.walk.across[a].stride;
        let Running { sums, starts } = &mut self.across[a];
        let sums = &mut sums[at..at + row.len()];
        let on_axis = self.position.across[a];
        if on_axis.index > 0 {
            add(sums, row);
            return;
        }
        if !starts.is_empty() {
            let starts = &mut starts[at..at + row.len()];
            if on_axis.repeat > 0 {
                add(starts, row);
            } else {
                starts.copy_from_slice(row);
            }
        }
        sums.copy_from_slice(row);
    }

    /// Returns the buffers to the pool.
    pub(crate) fn finish(self) {
        for running in self.across {
            scratch::give(running.sums);
            scratch::give(running.starts);
        }
    }
}

/// Adds a row to the sums, and copies these to the row.
#[inline(always)]
fn add(sums: &mut [i32], row: &mut [i32]) {
    for (sum, d) in sums.iter_mut().zip(row) {
        *sum = sum.wrapping_add(*d);
        *d = *sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers(n: usize) -> Vec<i32> {
        let mut state = 7_u32;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as i32 % 1000 - 500
        };
        (0..n).map(next).collect()
    }

    /// Differences of all integers, block by block.
    fn take(walk: &Walk, integers: &[i32], block: usize) -> Vec<i32> {
        let mut out = vec![0; integers.len()];
        let mut position = Position::default();
        for (i, out) in out.chunks_mut(block).enumerate() {
            walk.block(integers, i * block, &mut position, out);
        }
        out
    }

    #[test]
    fn sums_undo_differences_of_every_order() {
        for dims in
            [[1, 1, 1, 100], [1, 1, 7, 30], [1, 5, 6, 7], [3, 4, 5, 6], [2, 1, 9, 1], [1, 1, 1, 1], [4, 3, 1, 8]]
        {
            let integers = integers(dims.iter().product());
            for order in Order::all(&dims) {
                assert_eq!(Order::from_bits(order.to_bits()).unwrap(), order);
                let walk = Walk::new(&dims, order);
                let mut differences = take(&walk, &integers, 32);
                assert_eq!(differences, take(&walk, &integers, 1000), "{dims:?} {order:?}");
                let mut restored = vec![0.0_f32; integers.len()];
                let mut sums = Sums::new(&walk, 0, 1.0).unwrap();
                for (d, x) in differences.chunks_mut(23).zip(restored.chunks_mut(23)) {
                    sums.block(d, x);
                }
                sums.finish();
                assert!(restored.iter().zip(&integers).all(|(x, q)| *x == *q as f32), "{dims:?} {order:?}");
            }
        }
    }

    #[test]
    fn holes_have_no_difference() {
        let dims = [2, 3, 5, 20];
        let holes: Vec<usize> = (0..600).filter(|i| i % 7 < 3 || (100..160).contains(i)).collect();
        for order in Order::all(&dims) {
            let walk = Walk::new(&dims, order);
            let mut integers = integers(600);
            walk.fill_holes(&mut integers, &holes);
            let differences = take(&walk, &integers, 100);
            assert!(holes.iter().all(|hole| differences[*hole] == 0), "{order:?}");
        }
    }

    #[test]
    fn a_plane_is_taken_apart_along_its_axes() {
        let dims = [1, 1, 60, 70];
        let plane: Vec<i32> = (0..60 * 70).map(|i| 31 * (i / 70) + 17 * (i % 70)).collect();
        let order = Order::choose(&plane, &dims);
        assert_eq!(order, Order { axes: 0b1100, n_along: 1 });
        assert!(Order::from_bits(0).is_err() && Order::from_bits(0b1_0100).is_err());
    }
}
