"""Header (docs/format.md, section 2), with its several bounds (14.2)."""

import math
from dataclasses import dataclass

import numpy as np

from .codebook import Codebook, read_codebook
from .cursor import Cursor, require
from .xxh3 import u32_at, xxh3

READER_VERSION = 1
MAGIC = b"PUM\x1a"
MAX_REGIONS, MAX_BIN, MAX_BIN_VALUES = 1024, 256, 4096


@dataclass
class ElementType:
    """T and the constants of section 6.3 for it."""
    name: str
    size: int
    float_type: np.dtype
    uint_type: np.dtype
    int_type: np.dtype
    m_t: float

    @property
    def bits(self):
        return 8 * self.size

    def restore(self, q, step):
        """Section 6.3: the values of quantised integers, given as unsigned ones."""
        m_t = np.array([self.m_t], self.float_type)  # an array of type T, so that no promotion can happen
        with np.errstate(all="ignore"):
            v = ((q + m_t.view(self.uint_type)).view(self.float_type) - m_t) * step
        assert v.dtype == self.float_type
        return v

    def restore_bits(self, integers, origin, step):
        """The bit patterns of integers, of which the low bits of T's size are kept once `origin` is added."""
        with np.errstate(all="ignore"):
            q = integers.astype(np.int64) + np.int64(origin)
        return self.restore(q.astype(self.int_type).view(self.uint_type), step).view(self.uint_type)


TYPES = {1: ElementType("f32", 4, np.dtype("<f4"), np.dtype("<u4"), np.dtype("<i4"), 1.5 * 2.0**23),
         2: ElementType("f64", 8, np.dtype("<f8"), np.dtype("<u8"), np.dtype("<i8"), 1.5 * 2.0**52)}
BOUND_KINDS = {0: "lossless", 1: "ABS", 2: "REL", 3: "PWREL", 4: "PSNR", 5: "L2", 6: "RATIO", 7: "several"}
TARGETS = ("PSNR", "L2", "RATIO")
PRESETS = {1: "fast", 2: "small", 3: "max", 4: "balanced", 5: "cuszp2-plain", 6: "cuszp2-outlier", 7: "cuszplus",
           8: "ceaz", 9: "ceresz2"}


@dataclass
class Header:
    version: int
    min_reader_version: int
    header_bytes: int
    dtype: ElementType
    single_chunk: bool
    preset: int
    stable: bool  # information only
    bound_kind: str
    rank: int
    shape: tuple  # of a chunked stream only the axes from 1 on, until the index is read
    chunk_shape: tuple
    requested_bound: float | None
    abs_bound: float | None
    step: np.ndarray | None  # one value of type T above 0
    fills: np.ndarray  # bit patterns
    attributes: list
    bounds: list  # kind and number of each bound
    regions: list  # start, extents, and the kind, number and absolute bound of each
    bin: list
    codebook: Codebook | None


def check_size(extents, t, what):
    require(all(extent < 2**63 for extent in extents) and math.prod(extents) * t.size < 2**63,
            f"{what} {list(extents)}: 2^63 bytes or more")


def read_header(data):
    c = Cursor(data, "header")
    require(bytes(data[:4]) == MAGIC, "header: wrong magic, this is not a Pumice stream")
    c.take(4, "magic")
    version = c.uint(1, "version")
    min_reader_version = c.uint(1, "min_reader_version")
    require(min_reader_version <= READER_VERSION, f"header: the stream needs a reader of format version "
            f"{min_reader_version}, this one reads version {READER_VERSION}: a newer release is needed")
    header_bytes = c.uint(2, "header_bytes")
    require(12 <= header_bytes <= len(data), f"header: header_bytes {header_bytes} does not fit the stream")
    require(u32_at(data, header_bytes - 4) == xxh3(data[:header_bytes - 4]) & 0xFFFFFFFF,
            "header: wrong header_checksum")
    require(1 <= min_reader_version <= version,
            f"header: min_reader_version {min_reader_version} is not within 1 to version {version}")
    c.end = header_bytes - 4

    dtype = c.uint(1, "dtype")
    require(dtype in TYPES, f"header: unknown dtype {dtype}")
    t = TYPES[dtype]
    flags = c.uint(1, "flags")
    require(flags < 64, f"header: unknown flags {flags:#04x}")
    single_chunk, stable = bool(flags & 1), bool(flags & 16)
    n_fills = flags >> 1 & 3
    require(n_fills <= 2, f"header: n_fills {n_fills} is above 2")
    preset = c.uint(1, "preset")
    require(preset in PRESETS, f"header: unknown preset {preset}")
    bound_kind = c.uint(1, "bound_kind")
    require(bound_kind in BOUND_KINDS, f"header: unknown bound_kind {bound_kind}")
    bound_kind = BOUND_KINDS[bound_kind]
    rank = c.uint(1, "rank")
    require(rank <= 8, f"header: rank {rank} is above 8")
    require(single_chunk or rank >= 1, "header: a chunked stream has rank at least 1")
    shape = tuple(c.varint("shape") for _ in range(rank if single_chunk else rank - 1))
    check_size(shape, t, "header: shape")
    chunk_shape = () if single_chunk else tuple(c.varint("chunk_shape") for _ in range(rank))
    require(all(chunk_shape), f"header: chunk_shape {list(chunk_shape)} has a zero")
    check_size(chunk_shape, t, "header: chunk_shape")
    require(single_chunk or all(shape), "header: an array without elements must be a single-chunk stream")

    requested_bound = abs_bound = step = None
    bounds, regions, factors = [], [], []
    if bound_kind == "several":
        bounds, abs_bound, regions, factors = read_several(c, rank, shape if single_chunk else ())
    else:
        kind, requested_bound, abs_bound = read_bound(c, bound_kind)
        bounds = [(kind, requested_bound)]
    if bound_kind != "lossless":
        step = c.array(t.float_type, 1, "step")
        require(np.isfinite(step[0]) and not np.signbit(step[0]), f"header: step {step[0]} is not +0 or positive")
        step = step if step[0] > 0 else None
    fills = c.array(t.uint_type, n_fills, "fills")
    n_attributes = c.varint("n_attributes") if flags & 8 else 0
    require(n_attributes or not flags & 8, "header: attributes are announced and there are none")
    attributes = [(c.text("attribute key"), c.text("attribute value")) for _ in range(n_attributes)]
    codebook = read_codebook(c.take(c.varint("codebook_bytes"), "codebook")) if flags & 32 else None
    require(c.at == c.end, f"header: header_bytes is {header_bytes}, the fields take {c.at + 4}")
    return Header(version, min_reader_version, header_bytes, t, single_chunk, preset, stable, bound_kind, rank, shape,
                  chunk_shape, requested_bound, abs_bound, step, fills, attributes, bounds, regions, factors, codebook)


def read_requested(c, kind):
    """The number that was asked for; none for lossless."""
    if kind == "lossless":
        return None
    value = float(c.array("<f8", 1, "requested_bound")[0])
    require(math.isfinite(value) and value > 0, f"header: bound {value} is not finite and positive")
    return value


def read_bound(c, kind):
    """Kind, number, and the resulting absolute bound, if any."""
    requested_bound = abs_bound = read_requested(c, kind)
    if kind in ("REL", "PSNR", "L2", "RATIO"):
        abs_bound = read_requested(c, kind)
    return kind, requested_bound, None if kind == "PWREL" else abs_bound


def read_several(c, rank, shape):
    """Section 14.2: several bounds, regions and bins."""
    def read_kind():
        kind = c.uint(1, "kind")
        require(kind in BOUND_KINDS and kind != 7, f"header: unknown bound_kind {kind}")
        return BOUND_KINDS[kind]

    n_bounds = c.varint("n_bounds")
    require(n_bounds > 0, "header: several bounds, and there are none")
    bounds = []
    for _ in range(n_bounds):
        kind = read_kind()
        bounds.append((kind, read_requested(c, kind)))
    abs_bound = float(c.array("<f8", 1, "abs_bound")[0])
    require(abs_bound >= 0 and not np.signbit(abs_bound), f"header: abs_bound {abs_bound}")
    n_regions = c.varint("n_regions")
    require(n_regions <= MAX_REGIONS, f"header: {n_regions} regions are too many")
    regions = []
    for _ in range(n_regions):
        start, extents = ([c.varint(field) for _ in range(rank)] for field in ("start", "extents"))
        require(all(n > 0 and s + n < 2**63 - 1 for s, n in zip(start, extents)), "header: impossible region")
        require(all(s + n <= all_ for s, n, all_ in zip(start, extents, shape)), "header: region outside")
        kind = read_kind()
        require(kind not in TARGETS, "header: region with a target")
        regions.append((start, extents) + read_bound(c, kind))
    n_factors = c.varint("n_factors")
    require(n_factors in (0, rank), f"header: {n_factors} factors for {rank} axes")
    factors = [c.varint("factor") for _ in range(n_factors)]
    require(all(1 <= f <= MAX_BIN for f in factors) and math.prod(factors) <= MAX_BIN_VALUES,
            f"header: impossible bins {factors}")
    return bounds, abs_bound, regions, factors
