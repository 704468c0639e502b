//! N-dimensional Lorenzo differences of a chunk's integers, and their sums (docs/format.md, 9.1).
//!
//! Differences are taken along each axis of an [`Order`], so the decoder's reconstruction is a running sum along each of
//! them, in any sequence: the partial sums of cuSZ+. Where such an axis begins, differences are taken from where it began
//! before, as long as only axes outside of the order were passed since.

use crate::codec::shared::dims::{AXES, AxisSet, Dims, X};
use crate::error::{Error, Result};
use crate::exec::scratch;
use crate::num::simd::{self, Job};
use crate::num::{Int, Real};
use crate::plan::quantize::restore;

/// Groups of the sample that an order is chosen by, and the values of each.
const SAMPLE_GROUPS: usize = 384;
const SAMPLE_RUN: usize = 32;
/// Most axes across rows.
const ACROSS: usize = AXES - 1;

/// Along which axes differences are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    axes: AxisSet,
    /// How often along the fastest axis: 0, 1 or 2 times.
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

    /// All orders that are of use for an array of these extents.
    fn all(dims: &Dims) -> impl Iterator<Item = Self> {
        let long = (0..AXES).filter(|&a| dims[a] > 1 || a == X).fold(0, |set, a| set | 1 << a);
        let sets = (1..1 << AXES).filter(move |set| set & !long == 0);
        let once = sets.map(|axes| Self { axes, n_along: usize::from(axes >> X & 1) });
        once.chain([Self { axes: 1 << X, n_along: 2 }])
    }

    /// The order whose differences of a sample look cheapest.
    pub(crate) fn choose(integers: &[i32], dims: &Dims) -> Self {
        simd::run(Choose { integers, dims })
    }
}

struct Choose<'a> {
    integers: &'a [i32],
    dims: &'a Dims,
}

impl Job for Choose<'_> {
    type Output = Order;

    #[inline(always)]
    fn run(self) -> Order {
        let n_values = self.integers.len();
        let mut best = (u64::MAX, Order { axes: 1 << X, n_along: 1 });
        for order in Order::all(self.dims) {
            let walk = Walk::new(self.dims, order);
            let mut cost = 0;
            let mut group = [0; SAMPLE_RUN];
            // Not a power of two, so that places differ in all of their coordinates.
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

/// What a group of differences costs: about the logarithm of their mean magnitude.
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
    /// How often it begins anew before the next axis of the order goes on.
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
        // All sums of ways back along axes that have a neighbour.
        let mut back = [0; 1 << ACROSS];
        let mut n_terms = 1;
        for a in 0..self.n_across {
            if let Some(way) = position.across[a].way_back(&self.across[a]) {
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
            let along = Place { index: x + i, repeat: position.along.repeat };
            *d = term(0).wrapping_sub(along.way_back(&self.row).map_or(0, term));
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

    /// Gives integers that are not coded the value for which their difference is 0: the cheapest one.
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

    /// Differences of a block of integers from `at` on; `position` moves behind it.
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

/// Differences `ALONG` times along a row, of `N` rows taken with alternating signs.
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

/// Where along an axis.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    index: usize,
    repeat: usize,
}

impl Place {
    /// How far back the neighbour along the axis is.
    #[inline(always)]
    fn way_back(self, axis: &Axis) -> Option<usize> {
        match self {
            Place { index: 0, repeat: 0 } => None,
            Place { index: 0, .. } => Some(axis.stride * axis.extent),
            _ => Some(axis.stride),
        }
    }

    /// Moves on by one; true if all of the axis has been passed.
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

/// Where in a walk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    along: Place,
    across: [Place; ACROSS],
}

impl Position {
    fn new(walk: &Walk, at: usize) -> Self {
        let place = |axis: &Axis| Place {
            index: at / axis.stride % axis.extent,
            repeat: at / (axis.stride * axis.extent) % axis.n_repeats,
        };
        let mut position = Self { along: place(&walk.row), ..Self::default() };
        (0..walk.n_across).for_each(|a| position.across[a] = place(&walk.across[a]));
        position
    }

    /// Moves on within a row, or to the start of the next one.
    #[inline(always)]
    fn advance(&mut self, walk: &Walk, n: usize) {
        self.along.index += n - 1;
        let mut is_passed = self.along.advance(&walk.row);
        for (place, axis) in self.across.iter_mut().zip(&walk.across[..walk.n_across]) {
            if !is_passed {
                return;
            }
            is_passed = place.advance(axis);
        }
    }
}

/// Sums along an axis.
#[derive(Default)]
struct Running {
    /// Up to the last hyperplane across the axis, at each place of that.
    sums: Vec<i32>,
    /// The same where the axis began last, if it begins more than once.
    starts: Vec<i32>,
}

/// The sums that turn differences back into integers, and those into values, block after block.
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
    pub(crate) fn new(walk: &'a Walk, origin: i64, step: T) -> Self {
        let running = |a: usize| {
            let axis = &walk.across[a];
            let buffer = |is_used: bool| if is_used { scratch::take(axis.stride) } else { Vec::new() };
            Running { sums: buffer(a < walk.n_across), starts: buffer(axis.n_repeats > 1) }
        };
        let across = std::array::from_fn(running);
        Self { walk, position: Position::default(), along: [0; 2], start: 0, across, at: 0, origin, step }
    }

    /// The values of the next differences, which are overwritten.
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
        if let Place { index: 0, repeat } = self.position.along {
            // The start of a row is summed from start to start.
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
        let place = self.position.across[a];
        if place.index > 0 {
            add(sums, row);
            return;
        }
        if !starts.is_empty() {
            let starts = &mut starts[at..at + row.len()];
            if place.repeat > 0 {
                add(starts, row);
            } else {
                starts.copy_from_slice(row);
            }
        }
        sums.copy_from_slice(row);
    }

    /// Gives the buffers back.
    pub(crate) fn finish(self) {
        for running in self.across {
            scratch::give(running.sums);
            scratch::give(running.starts);
        }
    }
}

/// Adds a row to sums, and makes it them.
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
                let mut sums = Sums::new(&walk, 0, 1.0);
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
