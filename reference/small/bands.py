"""Bands (docs/format.md, section 7.2)."""

import math
from dataclasses import dataclass

import numpy as np

from ..integers import clamp

X = 3  # the fastest of the four working axes


@dataclass
class Band:
    dims: tuple
    level: int | None  # None: anchors and slabs
    odd: int  # set of axes: bit a stands for axis a
    group: int

    @property
    def n_values(self):
        return math.prod(self.dims)


def axes_of(axis_set):
    return [a for a in range(4) if axis_set >> a & 1]


def class_dims(grid, active, odd):
    """Extents of the points whose indices are odd along `odd` and even along the other active axes."""
    return tuple(n if not active >> a & 1 else n // 2 if odd >> a & 1 else -(-n // 2) for a, n in enumerate(grid))


def slabs_of(dims):
    """The bands of the lattice, and the axis along which it is cut."""
    axis = next((a for a in range(3) if dims[a] > 1), X)
    n_slabs = clamp(math.prod(dims) // 2**20, 1, dims[axis])
    cuts = [dims[axis] * i // n_slabs for i in range(n_slabs + 1)]
    bands = [Band(dims[:axis] + (b - a,) + dims[axis + 1:], None, 0, 0) for a, b in zip(cuts, cuts[1:])]
    return bands, axis


class Layout:
    """Levels and bands of the interpolation."""

    def __init__(self, dims, active):
        self.levels = []  # (grid, active), finest first
        grid = dims
        while True:
            halved = sum(1 << a for a in axes_of(active) if grid[a] >= 4)
            if not halved or math.prod(grid) <= 64:
                break
            self.levels.append((grid, halved))
            grid = class_dims(grid, halved, 0)
        self.bands = [Band(grid, None, 0, 2)]
        for level, (grid, active) in reversed(list(enumerate(self.levels))):
            for odd in self.classes(level):
                self.bands.append(Band(class_dims(grid, active, odd), level, odd, min(level, 2)))

    def classes(self, level):
        """Sets of odd axes in the order of their bands."""
        subsets = [odd for odd in range(1, 16) if not odd & ~self.levels[level][1]]
        return sorted(subsets, key=lambda odd: (odd.bit_count(), odd))

    def positions(self, level, odd):
        """The positions of the points of a class on the level's grid."""
        active = self.levels[level][1]
        return tuple(slice(odd >> a & 1, None, 2) if active >> a & 1 else slice(None) for a in range(4))

    def split(self, array):
        """The values of each band of an array over all points."""
        parts = {}
        for level in range(len(self.levels)):
            for odd in self.classes(level):
                parts[level, odd] = array[self.positions(level, odd)]
            array = array[self.positions(level, 0)]
        parts[None, 0] = array
        return [np.ascontiguousarray(parts[band.level, band.odd]) for band in self.bands]


class Parts:
    """Arrays of the bands so far, and the grids that they merge into."""

    def __init__(self, layout):
        self.layout = layout
        self.arrays = {}

    def put(self, band, array):
        self.arrays[band.level, band.odd] = array

    def get(self, level, odd):
        """The array of a class; with no odd axis the coarse grid of the level (of level -1: all points)."""
        if (level, odd) not in self.arrays:
            assert odd == 0, "parents come before their children"
            self.arrays[level, odd] = self.merged(level + 1)
        return self.arrays[level, odd]

    def merged(self, level):
        """The whole grid of a level."""
        if level == len(self.layout.levels):
            return self.arrays[None, 0]
        coarse = self.get(level, 0)
        grid = np.empty(self.layout.levels[level][0] + coarse.shape[4:], coarse.dtype)
        for odd in [0, *self.layout.classes(level)]:
            grid[self.layout.positions(level, odd)] = self.get(level, odd)
        return grid


def shifted(array, axis, by, n):
    """array[by], array[by + 1], ... along an axis, n of them; beyond the ends, the first or last."""
    return array.take(np.clip(np.arange(by, by + n), 0, array.shape[axis] - 1), axis)
