"""Lattice (docs/format.md, section 7.5)."""

import numpy as np

from ..binary_coder import AdaptiveBit, NumberModel
from ..integers import low_32
from .bands import X, slabs_of

OFFSETS = ((0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 3), (0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 1, -1), (0, 0, 2, 0),
           (0, 1, 0, 0), (0, 1, 0, 1), (0, 1, 0, -1), (0, 1, 1, 0), (0, 1, -1, 0), (0, 1, 1, 1), (0, 2, 0, 0),
           (1, 0, 0, 0), (1, 0, 0, 1), (1, 0, 1, 0), (1, 1, 0, 0))
BASES = ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0))


class Lattice:
    layout = None

    def __init__(self, coder, dims):
        self.dims = dims
        self.bands, self.axis = slabs_of(dims)
        self.origin = NumberModel().signed(coder)
        self.coefficients = [0] * len(OFFSETS)
        is_used, numbers = AdaptiveBit(), NumberModel()
        for i in range(1, len(OFFSETS)):
            if is_used.decode(coder):
                is_whole = coder.decode(2**15)
                self.coefficients[i] = numbers.signed(coder) * (1024 if is_whole else 1)
                coder.c.require(abs(self.coefficients[i]) <= 8192, "coefficient is out of range")

    def split(self, array):
        cuts = np.cumsum([band.dims[self.axis] for band in self.bands])[:-1]
        return [np.ascontiguousarray(part) for part in np.split(array, cuts, self.axis)]

    def restore(self, codes, header):
        integers = np.concatenate([self.integers(code) for code in codes], self.axis)
        return header.dtype.restore_bits(integers, self.origin, header.step)

    def integers(self, codes):
        """The integers of a slab."""
        dims = codes.shape
        n = dims[X]
        out = np.zeros(dims, np.int64)
        across = [(k, offset) for k, offset in zip(self.coefficients, OFFSETS) if k and any(offset[:X])]
        k2, k3 = self.coefficients[1:3]
        for position in np.ndindex(dims[:X]):
            # Sums of coefficients and of their products with integers of other rows, where those exist.
            weight, total = np.zeros(n, np.int64), np.zeros(n, np.int64)
            for k, offset in across:
                row = tuple(i - o for i, o in zip(position, offset))
                if all(0 <= i < extent for i, extent in zip(row, dims)):
                    dx = offset[X]
                    here = slice(max(dx, 0), n + min(dx, 0))
                    weight[here] += k
                    total[here] += k * out[row][max(-dx, 0):n - max(dx, 0)]
            row = []
            for x, (code, k, s) in enumerate(zip(codes[position].tolist(), weight.tolist(), total.tolist())):
                base = row[x - 1] if x else self.first_base(out, position)
                if x >= 2:
                    k, s = k + k2, s + k2 * row[x - 2]
                if x >= 3:
                    k, s = k + k3, s + k3 * row[x - 3]
                prediction = 0 if base is None else base + ((s - k * base + 512) >> 10)
                row.append(low_32(code + prediction))
            out[position] = row
        return out

    @staticmethod
    def first_base(out, position):
        for base in BASES[1:]:
            row = tuple(i - o for i, o in zip(position, base))
            if min(row) >= 0:
                return int(out[row][0])
        return None
