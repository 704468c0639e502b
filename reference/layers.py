"""Section 14 of docs/format.md: the layers for bounds relative to each value, for regions and bins, and for changes.

Callers pass `decode_payload` of container.py, for nested payloads.
"""

import dataclasses
import math

import numpy as np

from .binary_coder import BinaryDecoder
from .exceptions import Exceptions, read_kinds, read_positions
from .header import MAX_BIN, MAX_BIN_VALUES
from .payload import check_end, check_size

CODEC_POINTWISE, CODEC_REGIONS, CODEC_CHANGES, CODEC_SHARED = 8, 9, 10, 11
MAX_BOXES, MAX_CENTRE = 1024, 1100

# ---- 14.1 Codec pointwise ----

LOGARITHMIC, SIGNS, NEGATIVE, SECOND_FILLS, ALL_SECOND, PATCHES = (1 << i for i in range(6))
MARKERS = {4: (0x7FC05A01, 0x7FC05A02), 8: (0x7FF8000000005A01, 0x7FF8000000005A02)}
N_TERMS = {4: 9, 8: 14}
MAGIC = 1.5 * 2.0**52


def mask_dims(extents):
    """Axes that masks are coded along: all but the last two are one."""
    padded = (1, 1) + tuple(extents)
    return (1, math.prod(extents[:-2]), padded[-2], padded[-1])


def exp2(y, centre, n_terms):
    """2^(y + centre) by the operations of the page, each one rounding of binary64."""
    y = np.where((y >= -1200.0 - centre) & (y <= 1100.0 - centre), y, 0.0)
    rounded = y + MAGIC
    t = (y - (rounded - MAGIC)) * math.log(2)
    power = np.full(y.shape, 1 / math.factorial(n_terms - 1))
    for k in reversed(range(n_terms - 1)):
        power = power * t + 1 / math.factorial(k)
    exponent = rounded.view("<i8") - np.array([MAGIC]).view("<i8") + int(centre) + 2048
    half = exponent >> 1
    return power * np.ldexp(1.0, half - 1024) * np.ldexp(1.0, exponent - half - 1024)


def read_nested(c, extents, header, below):
    codec = c.uint(1, "codec")
    c.require(codec < below or codec == CODEC_SHARED, f"codec {codec} where only those below {below} are allowed")
    step = c.array(header.dtype.float_type, 1, "step")
    step = step if np.isfinite(step[0]) and step[0] > 0 else None
    payload = c.take(c.varint("payload_bytes"), "payload")
    return codec, payload, extents, dataclasses.replace(header, step=step)


def decode_pointwise(c, extents, header, decode_payload):
    t, n_values = header.dtype, check_size(c, extents)
    flags = c.uint(1, "flags")
    c.require(flags < 64 and (flags & LOGARITHMIC or not flags & ~PATCHES), f"unknown flags {flags:#04x}")
    c.require(not flags & (SECOND_FILLS | ALL_SECOND) or len(header.fills) == 2, "a fill that the header has not")
    centre = int(c.array("<i2", 1, "centre")[0]) if flags & LOGARITHMIC else 0
    c.require(abs(centre) <= MAX_CENTRE, f"centre {centre} is out of range")
    signs = second = None
    positions, exact = [], []
    if flags & (SIGNS | SECOND_FILLS | PATCHES):
        coder = BinaryDecoder(c.part(c.varint("mask_bytes"), "masks"))
        signs = read_kinds(coder, mask_dims(extents), 1).reshape(-1) if flags & SIGNS else None
        second = read_kinds(coder, mask_dims(extents), 1).reshape(-1) if flags & SECOND_FILLS else None
        positions = read_positions(coder, n_values, (c.end - c.at) // t.size) if flags & PATCHES else []
        coder.finish()
        exact = c.array(t.uint_type, len(positions), "exact values")
    markers = np.array(MARKERS[t.size], t.uint_type)
    inner = dataclasses.replace(header, fills=markers if flags & LOGARITHMIC else header.fills)
    nested = read_nested(c, extents, inner, CODEC_POINTWISE)
    c.require(c.at == c.end, "bytes after the end")
    bits = decode_payload(*nested, c.what)
    if flags & LOGARITHMIC:
        negative = signs != 0 if signs is not None else np.full(n_values, flags & NEGATIVE != 0)
        with np.errstate(all="ignore"):
            numbers = bits.view(t.float_type).astype("<f8")
            x = exp2(numbers, float(centre), N_TERMS[t.size]).astype(t.float_type)
        x[bits == markers[0]] = 0
        fill = bits == markers[1]
        bits = np.where(negative, -x, x).view(t.uint_type)
        fills = list(header.fills) + [0, 0]
        bits[fill] = fills[1 if flags & ALL_SECOND else 0]
        if second is not None:
            bits[second != 0] = header.fills[1]
    bits[positions] = exact
    return bits


# ---- 14.3 Codec regions, and 14.4 bins ----

BACKGROUND, BINNED, FILLS, EXACT_VALUES = (1 << i for i in range(4))


def decode_regions(c, extents, header, decode_payload):
    t, n_values = header.dtype, check_size(c, extents)
    flags = c.uint(1, "flags")
    c.require(flags < 16 and (flags & BINNED or not flags & (FILLS | EXACT_VALUES))
              and (flags & BACKGROUND or not flags & BINNED), f"unknown flags {flags:#04x}")
    if flags & BINNED:
        bits = decode_means(c, flags, extents, header, decode_payload)
    elif flags & BACKGROUND:
        bits = decode_payload(*read_nested(c, extents, header, CODEC_REGIONS), c.what)
    else:
        bits = np.zeros(n_values, t.uint_type)
    bits = bits.reshape(extents)
    n_boxes = c.varint("n_boxes")
    c.require(n_boxes <= MAX_BOXES, f"{n_boxes} boxes are too many")
    for _ in range(n_boxes):
        box, inside = read_box(c, extents)
        values = decode_payload(*read_nested(c, inside, header, CODEC_REGIONS), c.what)
        bits[box] = values.reshape(inside)
    check_end(c, n_values)
    return bits.reshape(-1)


def read_box(c, extents):
    """A box of the chunk as slices, and its extents."""
    start = [c.varint("start") for _ in extents]
    inside = tuple(c.varint("extent") for _ in extents)
    c.require(all(n > 0 and s + n <= all_ for s, n, all_ in zip(start, inside, extents)), "a box outside")
    return tuple(slice(s, s + n) for s, n in zip(start, inside)), inside


def decode_means(c, flags, extents, header, decode_payload):
    factors = [c.varint("factor") for _ in extents]
    c.require(factors and all(1 <= f <= MAX_BIN for f in factors) and math.prod(factors) <= MAX_BIN_VALUES,
              f"impossible bins {factors}")
    # These are the flags of 8.1, two bits further up.
    exceptions = Exceptions(c, flags // FILLS, math.prod(extents), mask_dims(extents), header)
    n_bins = tuple(-(-n // f) for n, f in zip(extents, factors))
    bits = decode_payload(*read_nested(c, n_bins, header, CODEC_REGIONS), c.what).reshape(n_bins)
    for axis, (n, factor) in enumerate(zip(extents, factors)):
        bits = np.repeat(bits, factor, axis).take(range(n), axis)
    bits = np.ascontiguousarray(bits).reshape(-1)
    exceptions.restore(bits)
    return bits


# ---- 14.6 Codec changes ----


def decode_changes(c, extents, header, decode_payload):
    t, n_values = header.dtype, check_size(c, extents)
    flags = c.uint(1, "flags")
    c.require(flags <= BACKGROUND, f"unknown flags {flags:#04x}")

    def decode_part(inside, mask=None):
        n_fills = c.uint(1, "n_fills")
        c.require(n_fills <= len(header.fills), f"{n_fills} fills, but the header has {len(header.fills)}")
        with_fills = dataclasses.replace(header, fills=header.fills[:n_fills])
        nested = read_nested(c, inside, with_fills, CODEC_CHANGES)
        is_new = np.ones(inside, bool)
        if mask is not None:
            coder = BinaryDecoder(mask)
            is_new = read_kinds(coder, mask_dims(inside), 1).reshape(inside) != 0
            coder.finish()
        return decode_payload(*nested, c.what).reshape(inside), is_new

    bits = decode_part(extents)[0] if flags else np.zeros(extents, t.uint_type)
    n_parts = c.varint("n_parts")
    c.require(n_parts <= MAX_BOXES, f"{n_parts} parts are too many")
    for _ in range(n_parts):
        box, inside = read_box(c, extents)
        mask_bytes = c.varint("mask_bytes")
        values, is_new = decode_part(inside, c.part(mask_bytes, "mask") if mask_bytes else None)
        bits[box] = np.where(is_new, values, bits[box])
    check_end(c, n_values)
    return bits.reshape(-1)
