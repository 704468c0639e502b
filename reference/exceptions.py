"""Values that are not restored from integers: masks and exact positions (docs/format.md, sections 7.3 and 8.1)."""

import numpy as np

from .binary_coder import AdaptiveBit, BinaryDecoder, NumberModel
from .cursor import FormatError

FILLS, EXACT_VALUES = 1, 2


def read_kinds(coder, dims, n_fills):
    """For each value 0, or the number of its fill from 1 on."""
    if n_fills == 0:
        raise FormatError("fill values, and the header has none")
    n_planes, n_rows, n = dims[0] * dims[1], dims[2], dims[3]
    is_fill = [AdaptiveBit() for _ in range(64)]
    is_second = [AdaptiveBit() for _ in range(3)]
    nothing = [0] * (n + 3)
    planes = []  # rows padded by two zeros before and one after
    for p in range(n_planes):
        plane = []
        for r in range(n_rows):
            above = plane[r - 1] if r else nothing
            before = planes[p - 1][r] if p % dims[1] else nothing
            row = [0] * (n + 3)
            for x in range(2, n + 2):
                near = (row[x - 1], above[x], before[x], above[x - 1], above[x + 1], row[x - 2])
                context = 0
                for kind in near:
                    context = context << 1 | (kind != 0)
                kind = is_fill[context].decode(coder)
                if kind and n_fills > 1:
                    kind += is_second[next((k for k in near if k), 0)].decode(coder)
                row[x] = kind
            plane.append(row)
            coder.check()
        planes.append(plane)
    return np.array(planes, np.uint8)[:, :, 2:-1].reshape(dims)


def read_positions(coder, n_values, n_most):
    """The ascending positions of values that are stored exactly."""
    count, gap = NumberModel(), NumberModel()
    n = count.number(coder)
    coder.c.require(n <= n_most, f"{n} exact values, and room for {n_most}")
    positions, following = [], 0
    for _ in range(n):
        position = following + gap.number(coder)
        coder.c.require(position < n_values, "exact value outside of the chunk")
        positions.append(position)
        following = position + 1
    return positions


class Exceptions:
    """8.1: the fills and the exact values of a chunk whose other values are restored from integers."""

    def __init__(self, c, flags, n_values, dims, header):
        """`flags` says which of FILLS and EXACT_VALUES there are."""
        self.header, self.kinds, self.positions, self.values = header, None, [], []
        if flags == 0:
            return
        t, n_fills = header.dtype, len(header.fills)
        coder = BinaryDecoder(c.part(c.varint("place_bytes"), "places"))
        if flags & FILLS:
            self.kinds = read_kinds(coder, dims, n_fills).reshape(-1)
        if flags & EXACT_VALUES:
            self.positions = read_positions(coder, n_values, (c.end - c.at) // t.size)
        coder.finish()
        self.values = c.array(t.uint_type, len(self.positions), "exact values")

    def restore(self, bits):
        if self.kinds is not None:
            for i, fill in enumerate(self.header.fills):
                bits[self.kinds == i + 1] = fill
        bits[self.positions] = self.values


def read_exceptions(c, n_values, dims, header):
    flags = c.uint(1, "exceptions")
    c.require(flags < 4, f"unknown exceptions {flags:#04x}")
    return Exceptions(c, flags, n_values, dims, header)
