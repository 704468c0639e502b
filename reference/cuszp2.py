"""Codec `cuszp2` (docs/format.md, section 10). `Front` is section 10.1, which `ceresz2` shares."""

import math

import numpy as np

from .exceptions import read_exceptions

BLOCK = 32


# ---- 10.1 Exceptions, origin, blocks ----

class Front:
    """Exceptions and origin, which a payload begins with."""

    def __init__(self, c, extents, header):
        self.header, n_values = header, math.prod(extents)
        c.require(n_values > 0, "codec of blocks without elements")
        c.require(header.step is not None, "codec of blocks without a step")
        dims = (math.prod(extents[:-3]), *(1,) * (3 - len(extents)), *extents[-3:])
        self.exceptions = read_exceptions(c, n_values, dims, header)
        self.origin = c.signed("origin")

    def restore(self, deltas, n_values):
        """The bit patterns that the differences of whole blocks stand for, exceptions included."""
        integers = np.cumsum(deltas.astype("<u4"), axis=1, dtype="<u4").reshape(-1)[:n_values]
        bits = self.header.dtype.restore_bits(integers.view("<i4"), self.origin, self.header.step)
        self.exceptions.restore(bits)
        return bits


# ---- 10.2 Headers and bodies ----

def decode_cuszp2(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    front, n_values = Front(c, extents, header), math.prod(extents)
    headers = c.take(-(-n_values // BLOCK), "headers")
    deltas = np.zeros((len(headers), BLOCK), np.int64)
    for i, block in enumerate(headers):
        width, has_outlier = block & 31, block >> 7
        c.require(has_outlier or block < 32, f"block {i}: unknown header {block:#04x}")
        if block == 0:
            continue
        signs = c.uint(4, "signs")
        outlier = c.uint(1 + (block >> 5 & 3), "outlier") if has_outlier else None
        planes = [c.uint(4, "plane") for _ in range(width)]
        for k in range(BLOCK):
            magnitude = sum((plane >> k & 1) << p for p, plane in enumerate(planes))
            if k == 0 and has_outlier:
                magnitude = outlier
            deltas[i, k] = -magnitude if signs >> k & 1 else magnitude
    c.require(c.at == c.end, "bytes after the last block")
    return front.restore(deltas, n_values)
