"""Codec `small` (docs/format.md, section 7).

The aim is to be checkable, not fast. What is entropy-coded is decoded value by value on Python integers; whole bands
are predicted at once by numpy, one IEEE operation after the other in the order that the page gives.
"""

import numpy as np

from ..binary_coder import BinaryDecoder
from ..exceptions import read_kinds, read_positions
from ..payload import check_end, check_size
from ..view import view_of
from .interpolation import Interpolation
from .lattice import Lattice
from .mixing import read_mixed
from .streams import read_streams

INTERPOLATED, MIXED, FILLS, EXACT_VALUES, WIDE, OF_INTEGERS = 1, 2, 4, 8, 16, 32


def decode_small(c, extents, header):
    """The bit patterns of a chunk, flat in C order; `c` is a cursor over the payload."""
    t, n_values, n_fills = header.dtype, check_size(c, extents), len(header.fills)
    c.require(header.step is not None, "codec without a step")
    view = view_of(extents)
    flags = c.uint(1, "flags")
    c.require(flags < 64 and (flags & MIXED == 0 or flags & WIDE == 0)
              and (flags & INTERPOLATED == 0 or flags & OF_INTEGERS == 0), f"unknown flags {flags:#04x}")
    coder = BinaryDecoder(c.part(c.varint("parameter_bytes"), "parameters"))

    kinds = None
    if flags & FILLS:
        kinds = read_kinds(coder, view.dims, n_fills)
    positions = read_positions(coder, n_values, (c.end - c.at) // t.size) if flags & EXACT_VALUES else []
    if flags & (INTERPOLATED | OF_INTEGERS):
        predictor = Interpolation(coder, view.dims, t, flags & OF_INTEGERS != 0)
    else:
        predictor = Lattice(coder, view.dims)
    exact = c.array(t.uint_type, len(positions), "exact values")
    body = c.part(c.varint("body_bytes"), "body")
    check_end(c, n_values)

    masked = [None] * len(predictor.bands) if kinds is None else predictor.split(kinds != 0)
    if flags & MIXED:
        codes = read_mixed(body, predictor, masked)
    else:
        codes = read_streams(coder, body, predictor, masked, flags & WIDE != 0)
    coder.finish()

    with np.errstate(all="ignore"):
        working = predictor.restore(codes, header)
    bits = np.ascontiguousarray(working).view(t.uint_type).reshape(-1)
    if kinds is not None:
        for i, fill in enumerate(header.fills):
            bits[kinds.reshape(-1) == i + 1] = fill
    bits[positions] = exact
    return view.to_chunk(bits)
