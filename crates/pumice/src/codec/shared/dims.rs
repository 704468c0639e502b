//! Extents of a chunk as an array of four axes, and sets of axes.

/// Number of axes that predictors work on. Arrays of other ranks are reshaped.
pub(crate) const AXES: usize = 4;
/// The fastest axis.
pub(crate) const X: usize = AXES - 1;
/// Extents, slowest first.
pub(crate) type Dims = [usize; AXES];
/// A set of axes: bit a stands for axis a.
pub(crate) type AxisSet = u8;

/// Number of values.
pub(crate) fn volume(dims: &Dims) -> usize {
    dims.iter().product()
}

/// The axes of a set, slowest first.
pub(crate) fn axes_of(set: AxisSet) -> impl Iterator<Item = usize> + Clone {
    (0..AXES).filter(move |a| set >> a & 1 != 0)
}
