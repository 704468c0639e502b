"""Contexts of streams (docs/format.md, section 7.6)."""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from .bands import X, axes_of, shifted

MAX_MAGNITUDE = 2**19 - 1
MASKED_SUM = 2**31
MASKED_CONTEXT = 58
N_CONTEXTS = 60


def context_of(total):
    v = total + 4
    e = v.bit_length() - 1
    return 2 * e + (v >> e - 1) - 6


def streams_of(bands):
    """Lists of pieces, a piece being a band's number and its ranges of planes, rows and columns."""
    streams, was_large = [], True
    for b, band in enumerate(bands):
        extents = (band.dims[0] * band.dims[1], band.dims[2], band.dims[X])
        is_large = band.n_values >= 2**16
        if not is_large:
            if was_large:
                streams.append([])
            streams[-1].append((b, *map(range, extents)))
        n_pieces = max(band.n_values // 2**18, 1) if is_large else 0
        cut = next((a for a in range(2) if extents[a] >= 2 * n_pieces), 2)
        for i in range(n_pieces):
            ranges = [range(extent) for extent in extents]
            ranges[cut] = range(extents[cut] * i // n_pieces, extents[cut] * (i + 1) // n_pieces)
            streams.append([(b, *ranges)])
        was_large = is_large
    return streams


@dataclass
class Run:
    """A run of codes of one lane in one step, and the first plane, row and column that it may look at."""
    plane: int
    row: int
    columns: range
    first_plane: int
    first_row: int
    first_column: int
    end_column: int


def deal_of(extents, is_wide):
    """Into how many parts planes, rows and columns are divided."""
    n_lanes = 16 if is_wide and math.prod(extents) >= 2**12 else 4

    def cost(deal):
        edges = [2**16 * (parts - 1) // max(extent, 1) for parts, extent in zip(deal, extents)]
        idle = [2**16 * (-extent % parts) // max(extent, 1) for parts, extent in zip(deal, extents)]
        return 3 * edges[0] + 4 * edges[1] + 28 * edges[2] + sum(idle) // 4

    powers = [2**i for i in range(n_lanes.bit_length())]
    return min(((p, r, n_lanes // (p * r)) for p in powers for r in powers if p * r <= n_lanes), key=cost)


def parts_of(whole, n):
    return [whole[len(whole) * i // n:len(whole) * (i + 1) // n] for i in range(n)]


def steps_of(planes, rows, columns, is_wide):
    """For each step the runs of all lanes; None for a lane that has nothing left."""
    deal = deal_of(tuple(map(len, (planes, rows, columns))), is_wide)
    lanes = list(product(*(parts_of(whole, n) for whole, n in zip((planes, rows, columns), deal))))
    for i in range(-(-len(planes) // deal[0])):
        for j in range(-(-len(rows) // deal[1])):
            yield [Run(p[i], r[j], c, p.start, r.start, columns.start, columns.stop)
                   if i < len(p) and j < len(r) else None for p, r, c in lanes]


class Surroundings:
    """Magnitudes around the codes of a band."""

    def __init__(self, band, parts, weights, masked):
        self.weights, self.per_volume = weights, band.dims[1]
        extents = (-1, *band.dims[2:])
        self.own = np.zeros(band.dims, np.int64).reshape(extents)
        self.masked = None if masked is None else masked.reshape(extents)
        self.parents = None
        if band.odd:
            sums = np.zeros(band.dims, np.int64)
            for a in reversed(axes_of(band.odd)):
                parent = parts.get(band.level, band.odd & ~(1 << a))
                first = shifted(parent, a, 0, band.dims[a])
                sums += first + shifted(parent, a, 1, band.dims[a])
            self.parents, self.first_parent = sums.reshape(extents), first.reshape(extents)

    def sums(self, run):
        """Weighted sums for a run, without the codes of the run itself."""
        w, own, p, r = self.weights, self.own, run.plane, run.row
        here = slice(run.columns.start, run.columns.stop)
        sums = np.full(len(run.columns), w[7], np.int64)
        has_row, has_plane = r > run.first_row, p > run.first_plane and p % self.per_volume != 0
        has_volume = p >= run.first_plane + self.per_volume
        # Weights, those of what does not exist added to the first that does.
        row, plane, volume, parent = w[2], w[4], w[5], 0
        left = (0 if has_row else w[2] + 2 * w[3]) + (0 if has_plane else w[4]) + (0 if has_volume else w[5])
        if self.parents is None and r <= run.first_row + 1:
            left += w[6]
        if has_row:
            row += left
        elif has_plane:
            plane += left
        elif has_volume:
            volume += left
        else:
            parent = left
        if has_row:
            # A row padded by one value at both ends, 0 where it does not exist.
            above = np.zeros(len(run.columns) + 2, np.int64)
            first, end = max(here.start - 1, run.first_column), min(here.stop + 1, run.end_column)
            above[first - here.start + 1:end - here.start + 1] = own[p, r - 1, first:end]
            sums += row * above[1:-1] + w[3] * (above[:-2] + above[2:])
        if has_plane:
            sums += plane * own[p - 1, r, here]
        if has_volume:
            sums += volume * own[p - self.per_volume, r, here]
        if self.parents is not None:
            sums += w[6] * self.parents[p, r, here] + parent * self.first_parent[p, r, here]
        elif r > run.first_row + 1:
            sums += w[6] * own[p, r - 2, here]
        if self.masked is not None:
            sums[self.masked[p, r, here]] = MASKED_SUM
        return sums.tolist()
