"""View of a chunk as an array of four axes (docs/format.md, section 7.1)."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class View:
    merged: list  # extents of the chunk after axes of one point are dropped and leading ones merged
    order: list  # of these axes, as working axes
    dims: tuple  # working extents

    def to_chunk(self, working):
        """A working array in the order of the chunk, flat."""
        working = working.reshape([self.merged[a] for a in self.order])
        return np.ascontiguousarray(working.transpose(np.argsort(self.order))).reshape(-1)


def view_of(extents):
    merged = [extent for extent in extents if extent > 1]
    if len(merged) > 4:
        merged = [math.prod(merged[:-3]), *merged[-3:]]
    order = list(range(len(merged)))
    if merged and merged[-1] < 16:
        longest = max(order, key=lambda a: (merged[a], a))  # of equal ones the fastest
        order.append(order.pop(longest))
    return View(merged, order, (1,) * (4 - len(merged)) + tuple(merged[a] for a in order))
