"""Quantisation codes, which `cuszplus` and `ceaz` share (docs/format.md, section 12.1)."""

import math

import numpy as np

from .binary_coder import BinaryDecoder, NumberModel
from .exceptions import read_exceptions, read_positions
from .payload import check_end, check_size

N_CODES, RADIUS = 1024, 512


class QuantCodes:
    """The fields of a payload of `cuszplus` or `ceaz` before its codes."""

    def __init__(self, c, extents, header):
        self.header, self.n_values = header, check_size(c, extents)
        c.require(header.step is not None, "codec without a step")
        axes = [1, 1, 1, *extents]
        self.dims = (1, math.prod(axes[:-2]), *axes[-2:])
        self.origin = c.signed("origin")
        self.exceptions = read_exceptions(c, self.n_values, self.dims, header)
        self.coder = BinaryDecoder(c.part(c.varint("parameter_bytes"), "parameters"))
        self.positions = read_positions(self.coder, self.n_values, self.n_values // 8)
        model = NumberModel()
        self.outliers = []
        for _ in self.positions:
            value = model.signed(self.coder)
            c.require(-2**31 <= value < 2**31, "outlier is out of range")
            self.coder.check()
            self.outliers.append(value)

    def restore(self, c, codes):
        """The bit patterns of the chunk; the payload must end here."""
        self.coder.finish()
        check_end(c, self.n_values)
        sums = np.array(codes, np.int64) - RADIUS
        for position, value in zip(self.positions, self.outliers):
            sums[position] += value
        sums = sums.astype(np.int32).reshape(self.dims)
        with np.errstate(all="ignore"):
            for axis in (1, 2, 3):
                np.cumsum(sums, axis=axis, dtype=np.int32, out=sums)
        bits = self.header.dtype.restore_bits(sums.reshape(-1), self.origin, self.header.step)
        self.exceptions.restore(bits)
        return bits
