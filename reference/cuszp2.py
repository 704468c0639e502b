"""Codec `cuszp2`: docs/format.md, section 10.

    decode_cuszp2(c, extents, header)    the bit patterns of a chunk, flat in C order

`c` is a cursor over the payload (container.Cursor), whose `require` raises FormatError. `Front` and `restore` are section
10.1, which other codecs of blocks share.
"""

import math

import numpy as np

from .small import BinaryDecoder, read_kinds, read_places

FILLS, EXACT_VALUES = 1, 2
BLOCK = 32


# ---- 10.1 Exceptions, origin, blocks ----

class Front:
    """Exceptions and origin, which a payload begins with."""

    def __init__(self, c, extents, header):
        self.header, t, n_values = header, header.dtype, math.prod(extents)
        c.require(n_values > 0, "codec of blocks without elements")
        c.require(header.step is not None, "codec of blocks without a step")
        self.kinds, self.places, self.exact = None, [], np.zeros(0, t.uint_type)
        flags = c.uint(1, "exceptions")
        c.require(flags < 4, f"unknown exceptions {flags:#04x}")
        if flags:
            coder = BinaryDecoder(c.part(c.varint("place_bytes"), "places"))
            if flags & FILLS:
                dims = (math.prod(extents[:-3]), *(1,) * (3 - len(extents)), *extents[-3:])
                self.kinds = read_kinds(coder, dims, len(header.fills)).reshape(-1)
                c.require(self.kinds.max() <= len(header.fills), "fill values, and the header has none")
            if flags & EXACT_VALUES:
                self.places = read_places(coder, n_values, (c.end - c.at) // t.size)
            coder.finish()
            self.exact = c.array(t.uint_type, len(self.places), "exact values")
        zigzag = c.varint("origin")
        self.origin = zigzag >> 1 ^ -(zigzag & 1)

    def restore(self, deltas, n_values):
        """The bit patterns that the differences of whole blocks stand for, exceptions included."""
        t = self.header.dtype
        integers = np.cumsum(deltas.astype("<u4"), axis=1, dtype="<u4").reshape(-1)[:n_values]
        wide = integers.view("<i4").astype("<i8").view("<u8") + np.uint64(self.origin % 2**64)
        bits = t.restore(wide.astype(t.uint_type), self.header.step).view(t.uint_type)
        if self.kinds is not None:
            for i, fill in enumerate(self.header.fills):
                bits[self.kinds == i + 1] = fill
        bits[self.places] = self.exact
        return bits


# ---- 10.2 Headers and bodies ----

def decode_cuszp2(c, extents, header):
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
