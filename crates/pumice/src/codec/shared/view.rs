//! Reshapes a chunk of any rank to four axes. If rows are short, the longest axis becomes the fastest (docs/format.md,
//! 7.1).

use super::dims::{AXES, Dims, X};
use crate::num::Real;

/// If rows are shorter than this, another axis becomes the fastest.
const MIN_ROW: usize = 16;

/// The working axes of a chunk: extents and strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) dims: Dims,
    /// Distance in the chunk of neighbours along each working axis.
    pub(crate) strides: Dims,
}

impl View {
    /// Drops axes of extent 1 and merges leading axes beyond four. If rows are short, the longest axis becomes the
    /// fastest.
    pub(crate) fn new(extents: &[usize]) -> Self {
        let mut axes: Vec<(usize, usize)> = Vec::with_capacity(extents.len());
        let mut stride = 1;
        for extent in extents.iter().rev().filter(|extent| **extent > 1) {
            match axes.get_mut(AXES - 1) {
                Some(slowest) => slowest.0 *= extent,
                None => axes.push((*extent, stride)),
            }
            stride *= extent;
        }
        axes.reverse();
        if let Some((extent, _)) = axes.last()
            && *extent < MIN_ROW
        {
            let longest = (0..axes.len()).max_by_key(|i| axes[*i].0).expect("there are axes");
            let axis = axes.remove(longest);
            axes.push(axis);
        }
        let mut view = Self { dims: [1; AXES], strides: [0; AXES] };
        let first = AXES - axes.len();
        for (i, (extent, stride)) in axes.into_iter().enumerate() {
            (view.dims[first + i], view.strides[first + i]) = (extent, stride);
        }
        view
    }

    /// Whether the working order is the order of the chunk.
    pub(crate) fn is_plain(&self) -> bool {
        let mut stride = 1;
        (0..AXES).rev().all(|a| {
            let fits = self.dims[a] == 1 || self.strides[a] == stride;
            stride *= self.dims[a];
            fits
        })
    }

    /// Values of a chunk in working order.
    pub(crate) fn gather<V: Copy>(&self, values: &[V]) -> Vec<V> {
        let mut all = Vec::with_capacity(values.len());
        self.for_rows(|start| all.extend((0..self.dims[X]).map(|x| values[start + x * self.strides[X]])));
        all
    }

    /// Writes values in working order to their positions in the chunk.
    pub(crate) fn scatter<V: Copy>(&self, working: &[V], values: &mut [V]) {
        let mut rows = working.chunks_exact(self.dims[X]);
        self.for_rows(|start| {
            for (x, v) in rows.next().expect("a row for each").iter().enumerate() {
                values[start + x * self.strides[X]] = *v;
            }
        });
    }

    fn for_rows(&self, mut f: impl FnMut(usize)) {
        for i0 in 0..self.dims[0] {
            for i1 in 0..self.dims[1] {
                for i2 in 0..self.dims[2] {
                    f(i0 * self.strides[0] + i1 * self.strides[1] + i2 * self.strides[2]);
                }
            }
        }
    }
}

/// A box of an array, and the values in it.
pub(crate) struct Patch<T> {
    pub(crate) dims: Dims,
    pub(crate) values: Vec<T>,
    pub(crate) masked: Option<Vec<bool>>,
}

/// Limits of the number of values of a patch.
const PATCH_VALUES: std::ops::Range<usize> = 1 << 11..1 << 13;
/// A patch has this share of all values, within these limits.
const PATCH_SHARE: usize = 48;
const N_PATCHES: usize = 4;

/// Boxes spread over an array; the whole array if it is small.
pub(crate) fn patches<T: Real>(values: &[T], masked: Option<&[bool]>, dims: &Dims) -> Vec<Patch<T>> {
    let mut extents = *dims;
    let most = (values.len() / PATCH_SHARE).clamp(PATCH_VALUES.start, PATCH_VALUES.end);
    while extents.iter().product::<usize>() > most {
        // The fastest axis is halved last, since all stages work along rows.
        let cost = |a: usize| if a == X { extents[a] / 4 } else { extents[a] };
        let longest = (0..AXES).max_by_key(|a| cost(*a)).expect("there are axes");
        extents[longest] = extents[longest].div_ceil(2);
    }
    let n_values: usize = extents.iter().product();
    let n_patches = if n_values == values.len() { 1 } else { N_PATCHES };
    // A Kronecker sequence (multiples of irrational numbers such as the golden ratio) spreads any number of boxes
    // evenly.
    const SPREAD: [u64; AXES] = [40503, 29711, 49471, 22871];
    let position = |i: usize, a: usize| {
        let fraction = (SPREAD[a] * (2 * i as u64 + 1) / 2) & 0xffff;
        (((dims[a] - extents[a]) as u64 * fraction) >> 16) as usize
    };
    let mut all = Vec::with_capacity(n_patches);
    for i in 0..n_patches {
        let start: Dims = std::array::from_fn(|a| position(i, a));
        let mut patch = Patch {
            dims: extents,
            values: Vec::with_capacity(n_values),
            masked: masked.map(|_| Vec::with_capacity(n_values)),
        };
        for i0 in start[0]..start[0] + extents[0] {
            for i1 in start[1]..start[1] + extents[1] {
                for i2 in start[2]..start[2] + extents[2] {
                    let at = ((i0 * dims[1] + i1) * dims[2] + i2) * dims[X] + start[X];
                    patch.values.extend_from_slice(&values[at..at + extents[X]]);
                    if let (Some(all), Some(masked)) = (&mut patch.masked, masked) {
                        all.extend_from_slice(&masked[at..at + extents[X]]);
                    }
                }
            }
        }
        all.push(patch);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_put_the_long_axis_last_and_come_back() {
        assert_eq!(View::new(&[100]).dims, [1, 1, 1, 100]);
        assert_eq!(View::new(&[7, 1, 100]).dims, [1, 1, 7, 100]);
        assert_eq!(View::new(&[500, 3, 14]).dims, [1, 3, 14, 500]);
        assert_eq!(View::new(&[2, 3, 4, 5, 60]).dims, [6, 4, 5, 60]);
        assert_eq!(View::new(&[10, 10, 10]).dims, [1, 10, 10, 10]);
        assert!(View::new(&[10, 10, 10]).is_plain() && View::new(&[1]).is_plain() && View::new(&[]).is_plain());
        for extents in [&[500, 3, 14][..], &[40, 9], &[2, 3, 4, 5, 6], &[5], &[1, 1], &[30, 2, 2, 2, 3]] {
            let n = extents.iter().product::<usize>() as u32;
            let values: Vec<u32> = (0..n).collect();
            let view = View::new(extents);
            let mut back = vec![0; values.len()];
            view.scatter(&view.gather(&values), &mut back);
            assert_eq!(back, values);
            assert_eq!(view.is_plain(), view.gather(&values) == values);
        }
    }
}
