"""Container: header, index, frames and payloads (docs/format.md, sections 1 to 6), and the whole array."""

import bisect
import itertools
import math
import struct
from dataclasses import dataclass

import numpy as np

from .balanced import decode_balanced
from .layers import (CODEC_POINTWISE, CODEC_REGIONS, MAX_BIN, MAX_BIN_VALUES, MAX_BOXES, decode_pointwise,
                           decode_regions)
from .ceaz import decode_ceaz
from .ceresz2 import decode_ceresz2
from .cuszp2 import decode_cuszp2
from .cuszplus import decode_cuszplus
from .small import decode_small

READER_VERSION = 1
MAGIC, FRAME_MARKER, INDEX_MARKER, FOOTER_MAGIC = b"PUM\x1a", b"CHNK", b"INDX", b"PUMF"
CODEC_RAW, CODEC_FAST, CODEC_SMALL, CODEC_BALANCED = 0, 1, 2, 3
CODEC_CUSZP2, CODEC_CUSZPLUS, CODEC_CEAZ, CODEC_CERESZ2 = 4, 5, 6, 7
QUANTISED, EXACT, RAW = 0, 1, 2


class FormatError(ValueError):
    """The bytes are not a valid Pumice stream."""


def require(condition, message):
    if not condition:
        raise FormatError(message)


# ---- XXH3, 64 bits, seed 0, default secret ----

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
M64 = 2**64 - 1


def u64_at(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def u32_at(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * MX1 & M64
    return h ^ (h >> 32)


def xxh64_avalanche(h):
    h = (h ^ (h >> 33)) * P64_2 & M64
    h = (h ^ (h >> 29)) * P64_3 & M64
    return h ^ (h >> 32)


def mix16(data, at, secret_at):
    return fold(u64_at(data, at) ^ u64_at(SECRET, secret_at), u64_at(data, at + 8) ^ u64_at(SECRET, secret_at + 8))


def xxh3(data):
    """XXH3 of a bytes-like object, as an int."""
    n = len(data)
    if n > 240:
        return xxh3_long(np.frombuffer(data, np.uint8).reshape(1, n))[0]
    if n > 128:
        acc = n * P64_1 + sum(mix16(data, 16 * i, 16 * i) for i in range(8))
        end = sum(mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16)) + mix16(data, n - 16, 136 - 17)
        return avalanche((avalanche(acc & M64) + end) & M64)
    if n > 16:
        acc = n * P64_1
        for i in range((n - 1) // 32 + 1):
            acc += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(acc & M64)
    if n > 8:
        low = u64_at(data, 0) ^ u64_at(SECRET, 24) ^ u64_at(SECRET, 32)
        high = u64_at(data, n - 8) ^ u64_at(SECRET, 40) ^ u64_at(SECRET, 48)
        return avalanche((n + int.from_bytes(low.to_bytes(8, "little"), "big") + high + fold(low, high)) & M64)
    if n > 3:
        h = (u32_at(data, n - 4) + (u32_at(data, 0) << 32)) ^ u64_at(SECRET, 8) ^ u64_at(SECRET, 16)
        h ^= ((h << 49 | h >> 15) ^ (h << 24 | h >> 40)) & M64
        h = h * MX2 & M64
        h = (h ^ ((h >> 35) + n)) * MX2 & M64
        return h ^ (h >> 28)
    if n > 0:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return xxh64_avalanche(combined ^ u32_at(SECRET, 0) ^ u32_at(SECRET, 4))
    return xxh64_avalanche(u64_at(SECRET, 56) ^ u64_at(SECRET, 64))


def secret_lanes(at):
    return np.frombuffer(SECRET, "<u8", 8, at)


STRIPE_SECRETS = np.stack([secret_lanes(8 * i) for i in range(16)])


def xxh3_long(rows):
    """XXH3 of each row of a C-contiguous uint8 array [n][length], length > 240, as a list of ints."""
    n, length = rows.shape
    acc = np.tile(np.array([P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1], np.uint64), (n, 1))

    def accumulate(begin, end, secrets):
        lanes = rows[:, begin:end].view("<u8").reshape(n, -1, 8)
        keyed = lanes ^ secrets
        terms = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
        terms += lanes[:, :, [1, 0, 3, 2, 5, 4, 7, 6]]
        acc[:] += terms.sum(axis=1, dtype=np.uint64)

    blocks = (length - 1) // 1024
    for block in range(blocks):
        accumulate(1024 * block, 1024 * (block + 1), STRIPE_SECRETS)
        acc ^= acc >> np.uint64(47)
        acc ^= secret_lanes(128)
        acc *= np.uint64(P32_1)
    stripes = (length - 1 - 1024 * blocks) // 64
    accumulate(1024 * blocks, 1024 * blocks + 64 * stripes, STRIPE_SECRETS[:stripes])
    accumulate(length - 64, length, secret_lanes(121))
    keyed = (acc ^ secret_lanes(11)).tolist()
    return [avalanche((length * P64_1 + sum(fold(k[i], k[i + 1]) for i in (0, 2, 4, 6))) & M64) for k in keyed]


def payload_hash(payload):
    """Section 3: hash of the hashes of blocks of 4096 bytes, or the hash of the only block."""
    full = len(payload) // 4096
    rows = np.frombuffer(payload, np.uint8, 4096 * full).reshape(full, 4096)
    hashes = []
    for begin in range(0, full, 1024):  # in batches, so that the temporaries stay small
        hashes += xxh3_long(rows[begin:begin + 1024])
    if len(payload) % 4096:
        hashes.append(xxh3(payload[4096 * full:]))
    return hashes[0] if len(hashes) == 1 else xxh3(struct.pack(f"<{len(hashes)}Q", *hashes))


# ---- Reading fields ----

class Cursor:
    """Reads packed little-endian fields from data[at:end]; `what` names the part of the stream in messages."""

    def __init__(self, data, what, at=0, end=None):
        self.data, self.what, self.at = data, what, at
        self.end = len(data) if end is None else end

    def require(self, condition, message):
        require(condition, f"{self.what}: {message}")

    def part(self, size, field):
        """A cursor over the next bytes."""
        return Cursor(self.take(size, field), f"{self.what}, {field}")

    def take(self, size, field):
        require(size <= self.end - self.at, f"{self.what}: ends within {field}")
        self.at += size
        return self.data[self.at - size:self.at]

    def uint(self, size, field):
        return int.from_bytes(self.take(size, field), "little")

    def array(self, dtype, count, field):
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count, field), dtype)

    def varint(self, field):
        value = 0
        for i in range(10):
            byte = self.uint(1, field)
            value |= (byte & 127) << 7 * i
            if byte < 128:
                require(byte or i == 0, f"{self.what}: {field}: varint has a superfluous zero byte")
                require(value <= M64, f"{self.what}: {field}: varint above 2^64 - 1")
                return value
        raise FormatError(f"{self.what}: {field}: varint longer than ten bytes")

    def text(self, field):
        try:
            return str(self.take(self.varint(field), field), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.what}: {field} is not UTF-8") from error


# ---- Section 2: header ----

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


TYPES = {1: ElementType("f32", 4, np.dtype("<f4"), np.dtype("<u4"), np.dtype("<i4"), 1.5 * 2.0**23),
         2: ElementType("f64", 8, np.dtype("<f8"), np.dtype("<u8"), np.dtype("<i8"), 1.5 * 2.0**52)}
BOUND_KINDS = {0: "lossless", 1: "ABS", 2: "REL", 3: "PWREL", 4: "PSNR", 5: "L2", 6: "RATIO", 7: "several"}
TARGETS = ("PSNR", "L2", "RATIO")
# What decodes the payloads of other codecs than raw, fast and layers.
CODECS = {CODEC_SMALL: decode_small, CODEC_BALANCED: decode_balanced, CODEC_CUSZP2: decode_cuszp2,
          CODEC_CUSZPLUS: decode_cuszplus, CODEC_CEAZ: decode_ceaz, CODEC_CERESZ2: decode_ceresz2}
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
    require(flags < 16, f"header: unknown flags {flags:#04x}")
    single_chunk = bool(flags & 1)
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
    require(c.at == c.end, f"header: header_bytes is {header_bytes}, the fields take {c.at + 4}")
    return Header(version, min_reader_version, header_bytes, t, single_chunk, preset, bound_kind, rank, shape,
                  chunk_shape, requested_bound, abs_bound, step, fills, attributes, bounds, regions, factors)


def read_requested(c, kind):
    """The number that was asked for; none for lossless."""
    if kind == "lossless":
        return None
    value = float(c.array("<f8", 1, "requested_bound")[0])
    require(math.isfinite(value) and value > 0, f"header: bound {value} is not finite and positive")
    return value


def read_bound(c, kind):
    """Kind, number, and the absolute bound that they come to, if any."""
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
    require(n_regions <= MAX_BOXES, f"header: {n_regions} regions are too many")
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


# ---- Sections 3 and 4: index, chunk grid, frames ----

class Stream:
    """Header and index of a stream: which chunks there are, and where."""

    def __init__(self, data):
        self.data = memoryview(data).cast("B")
        self.header = h = read_header(self.data)
        self.rows = list(h.shape[:1])  # extent of each segment along axis 0
        self.frame_offsets = [h.header_bytes, len(self.data)]
        if not h.single_chunk:
            self.read_index()
        self.n_chunks = len(self.frame_offsets) - 1

    def read_index(self):
        h, footer_at = self.header, len(self.data) - 20
        require(footer_at >= h.header_bytes, "footer: missing, the stream is cut short")
        index_offset, index_bytes, magic = struct.unpack("<QQ4s", self.data[footer_at:])
        require(magic == FOOTER_MAGIC, "footer: wrong magic, the stream is cut short or was not finished")
        require(h.header_bytes <= index_offset and index_offset + index_bytes == footer_at and index_bytes >= 12,
                f"footer: index_offset {index_offset} and index_bytes {index_bytes} do not fit the stream")
        c = Cursor(self.data, "index", index_offset, footer_at - 8)
        require(c.take(4, "marker") == INDEX_MARKER, "index: wrong marker")
        require(u64_at(self.data, footer_at - 8) == xxh3(self.data[index_offset:footer_at - 8]),
                "index: wrong index_checksum")
        n_segments = c.varint("n_segments")
        require(n_segments >= 1, "index: n_segments is 0")
        self.rows = [c.varint("rows") for _ in range(n_segments)]
        require(all(self.rows), "index: a segment has no rows")
        h.shape = (sum(self.rows),) + h.shape
        check_size(h.shape, h.dtype, "index: shape")
        n_chunks = c.varint("n_chunks")
        self.first_chunks = list(itertools.accumulate(
            (math.prod(self.grid(s)) for s in range(n_segments)), initial=0))
        implied = self.first_chunks[-1]
        require(n_chunks == implied, f"index: n_chunks is {n_chunks}, segments and chunk_shape imply {implied}")
        self.frame_offsets = list(itertools.accumulate(
            (c.varint("frame_bytes") for _ in range(n_chunks)), initial=h.header_bytes))
        require(c.at == c.end, "index: bytes are left after the last frame_bytes")
        require(self.frame_offsets[-1] == index_offset, "index: the frames do not end where the index starts")

    def grid(self, segment):
        """Number of chunks along each axis of a segment."""
        extents = (self.rows[segment],) + self.header.shape[1:]
        return tuple(-(-extent // chunk) for extent, chunk in zip(extents, self.header.chunk_shape))

    def chunk_box(self, chunk_id):
        h = self.header
        if not 0 <= chunk_id < self.n_chunks:
            raise IndexError(f"chunk {chunk_id} of a stream of {self.n_chunks}")
        if h.single_chunk:
            return tuple(slice(0, extent) for extent in h.shape)
        segment = bisect.bisect_right(self.first_chunks, chunk_id) - 1
        chunk_id -= self.first_chunks[segment]
        first_row = sum(self.rows[:segment])
        place = []
        for chunks in reversed(self.grid(segment)):
            chunk_id, position = divmod(chunk_id, chunks)
            place.insert(0, position)
        firsts = (first_row,) + (0,) * (h.rank - 1)
        lasts = (first_row + self.rows[segment],) + h.shape[1:]
        return tuple(slice(first + p * chunk, min(first + (p + 1) * chunk, last))
                     for p, chunk, first, last in zip(place, h.chunk_shape, firsts, lasts))

    def decode_chunk(self, chunk_id):
        box = self.chunk_box(chunk_id)
        t, extents = self.header.dtype, tuple(s.stop - s.start for s in box)
        codec, payload = self.read_frame(chunk_id, box)
        what = f"chunk {chunk_id}"
        bits = decode_payload(codec, payload, extents, self.header, what)
        try:
            return bits.view(t.float_type).reshape(extents)
        except (ValueError, OverflowError) as error:  # no elements, but an extent that numpy cannot hold
            raise FormatError(f"shape {list(extents)} cannot be held by numpy") from error

    def read_frame(self, chunk_id, box):
        what = f"frame {chunk_id}"
        # What the frame must say; a single-chunk stream does not store it, and an array without axes has one row.
        implied = (box[0].start, box[0].stop - box[0].start) if box else (0, 1)
        c = Cursor(self.data, what, *self.frame_offsets[chunk_id:chunk_id + 2])
        require(c.take(4, "marker") == FRAME_MARKER, f"{what}: wrong marker")
        codec = c.uint(1, "codec")
        stored_id = c.varint("chunk_id")
        first_row, rows = implied if self.header.single_chunk else (c.varint("first_row"), c.varint("rows"))
        payload_bytes = c.varint("payload_bytes")
        frame_checksum = c.uint(8, "frame_checksum")
        payload = c.take(payload_bytes, "payload")
        require(c.at == c.end, f"{what}: {c.end - c.at} bytes after the payload")
        fields = struct.pack("<BQQQQQ", codec, stored_id, first_row, rows, payload_bytes, payload_hash(payload))
        require(frame_checksum == xxh3(fields), f"{what}: wrong frame_checksum")
        require(stored_id == chunk_id, f"{what}: has chunk_id {stored_id}")
        require((first_row, rows) == implied, f"{what}: first_row {first_row} and rows {rows} differ from the index")
        return codec, payload


def decode_payload(codec, payload, extents, header, what):
    """The bit patterns of a chunk, or of a part of one, flat in C order."""
    if codec == CODEC_RAW:
        size = math.prod(extents) * header.dtype.size
        require(len(payload) == size, f"{what}: raw payload of {len(payload)} bytes, {size} expected")
        return np.frombuffer(payload, header.dtype.uint_type).copy()
    if codec == CODEC_FAST:
        require(0 not in extents, f"{what}: codec fast without elements")
        return decode_fast(payload, extents, header, what)
    if codec in CODECS:
        return CODECS[codec](Cursor(payload, what), extents, header)
    layers = {CODEC_POINTWISE: decode_pointwise, CODEC_REGIONS: decode_regions}
    require(codec in layers, f"{what}: unknown codec {codec}")
    return layers[codec](Cursor(payload, what), extents, header, decode_payload)


# ---- Section 6: codec fast ----

def decode_fast(payload, extents, header, what):
    """The bit patterns of a chunk, flat in C order."""
    c = Cursor(payload, what)
    predictor, x_axes, y_axes, z_axes, *tile_log2, reserved = c.take(8, "parameter block")
    require(not predictor & 8 or predictor & 1, f"{what}: predictor: second difference without difference along x")
    require(predictor >> 4 == 0 or predictor & 9 == 1, f"{what}: predictor: lag needs bit 0 and excludes bit 3")
    require(x_axes + y_axes + z_axes <= len(extents), f"{what}: x_axes, y_axes and z_axes exceed the rank")
    for name, value, low, high in zip("xyz", tile_log2, (3, 0, 0), (12, 9, 9)):
        require(low <= value <= high, f"{what}: tile_{name}_log2 {value} is not within {low} to {high}")
    require(sum(tile_log2) <= 12, f"{what}: tiles of more than 4096 values")
    require(reserved == 0, f"{what}: reserved byte is not 0")

    cuts = np.cumsum([0, x_axes, y_axes, z_axes, len(extents) - x_axes - y_axes - z_axes]).tolist()
    nx, ny, nz, nb = (math.prod(extents[::-1][i:j]) for i, j in zip(cuts, cuts[1:]))
    tx, ty, tz = (1 << log2 for log2 in tile_log2)
    grid = (nb, -(-nz // tz), -(-ny // ty), -(-nx // tx))
    n_tiles = math.prod(grid)
    anchors = c.array("<u4", -(-n_tiles // 32), "anchors")
    tile_words = c.array("<u2", n_tiles, "tile_words")
    require(not any(c.take(2 * (n_tiles % 2), "padding")), f"{what}: padding after tile_words is not zero")
    ends = np.cumsum(tile_words, dtype=np.int64)
    starts = ends - tile_words
    require(np.array_equal(anchors, starts[::32]), f"{what}: anchors differ from the sums of tile_words")
    bodies = c.take(4 * int(tile_words.sum(dtype=np.int64)), "bodies")
    require(c.at == c.end, f"{what}: the bodies do not end where the payload ends")

    out = np.zeros(nb * nz * ny * nx, header.dtype.uint_type)
    boxes = out.reshape(nb, nz, ny, nx)
    for tile, (b, z, y, x) in enumerate(itertools.product(*map(range, grid))):
        box = boxes[b, z * tz:(z + 1) * tz, y * ty:(y + 1) * ty, x * tx:(x + 1) * tx]
        if tile_words[tile] == 0:
            continue
        body = bodies[4 * int(starts[tile]):4 * int(ends[tile])]
        box[:] = decode_tile(body, box.shape, predictor, header, f"{what}, tile {tile}")
    return out


def unpack(data):
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)


def read_super_bits(c, n_super, field):
    bits = unpack(c.take(-(-n_super // 8), field))
    require(not bits[n_super:].any(), f"{c.what}: {field}: spare bits are not 0")
    return bits[:n_super]


def read_mask(c, n_super):
    """Section 6.2, Mask: a bool for each index of n_super supergroups."""
    any_, mixed = read_super_bits(c, n_super, "mask: any"), read_super_bits(c, n_super, "mask: mixed")
    require(not (mixed & ~any_).any(), f"{c.what}: mask: mixed is not a subset of any")
    mask = np.repeat(any_, 64).reshape(n_super, 64)
    mask[mixed] = unpack(c.take(8 * int(mixed.sum()), "mask")).reshape(-1, 64)
    return mask.reshape(-1)


def read_residuals(c, t, n_groups, n_super, sparse):
    """Section 6.2, Widths and Planes: the residuals, as unsigned integers, of n_groups groups."""
    has_planes = read_super_bits(c, n_super, "super_mask") if sparse else np.ones(n_super, bool)
    n_coded = int(has_planes.sum())
    super_header = c.array("u1", n_coded, "super_header")
    n_delta = super_header >> 5
    # delta_planes as [supergroup][j][group], absent planes being zero
    delta_planes = np.zeros((n_coded, 7), np.uint8)
    delta_planes[np.arange(7) < n_delta[:, None]] = c.array("u1", int(n_delta.sum()), "delta_planes")
    delta_bits = np.unpackbits(delta_planes[:, :, None], axis=2, bitorder="little").astype(np.int64)
    deltas = np.zeros((n_super, 8), np.int64)
    deltas[has_planes] = (delta_bits << np.arange(7)[:, None]).sum(axis=1)
    require(not deltas.reshape(-1)[n_groups:].any(), f"{c.what}: delta bits of a group beyond the last")
    least = np.zeros((n_super, 1), np.int64)
    least[has_planes, 0] = super_header & 31
    width = (least + deltas).reshape(-1)[:n_groups]
    require((width <= t.bits).all(), f"{c.what}: width is above {t.bits}")
    # planes as [group][k], absent planes being zero; then the bit matrix of each group is transposed
    planes = np.zeros((n_groups, t.bits), np.uint8)
    planes[np.arange(t.bits) < width[:, None]] = c.array("u1", int(width.sum()), "planes")
    bits = np.unpackbits(planes[:, :, None], axis=2, bitorder="little")
    code = np.packbits(bits.transpose(0, 2, 1), bitorder="little").view(t.uint_type)
    one = t.uint_type.type(1)
    return (code >> one) ^ np.negative(code & one)


def decode_tile(body, extents, predictor, header, what):
    """The bit patterns of a tile that has a body, as [ez][ey][ex]."""
    t = header.dtype
    ez, ey, ex = extents
    row = 8 * -(-ex // 8)
    n_groups = ez * ey * row // 8
    n_super = -(-n_groups // 8)
    c = Cursor(body, what)
    tile_flags = c.uint(1, "tile_flags")
    base = base24 = int.from_bytes(c.take(3, "base24"), "little", signed=True)
    kind = tile_flags & 3
    wide_base, sparse, no_planes, *masks, escapes = (bool(tile_flags >> bit & 1) for bit in range(2, 8))
    require(kind <= RAW, f"{what}: kind 3 is invalid")
    if kind == RAW:
        require(tile_flags == RAW and base24 == 0, f"{what}: kind raw with other flags or a base")
        values = c.array(t.uint_type, ez * ey * ex, "raw values")
        require(c.at == c.end, f"{what}: bytes after the raw values")
        return values.reshape(extents)
    require(kind != QUANTISED or header.step is not None, f"{what}: kind quantised without a step")
    require(kind != EXACT or not (any(masks) or escapes), f"{what}: kind exact with masks or escapes")
    require(not (no_planes and sparse), f"{what}: no_planes excludes sparse")
    if wide_base:
        require(base24 == 0, f"{what}: base24 is not 0 beside wide_base")
        base = c.uint(t.size, "base")

    replacements = []  # pairs of linear indices and bit patterns, in the order in which they apply
    for fill, present in enumerate(masks):
        if present:
            require(fill < len(header.fills), f"{what}: mask of fill {fill}, which the header does not have")
            replacements.append((read_mask(c, n_super)[:8 * n_groups], header.fills[fill]))
    if escapes:
        n_escapes = c.uint(2, "n_escapes")
        require(1 <= n_escapes <= 4096, f"{what}: n_escapes {n_escapes} is not within 1 to 4096")
        indices = c.array("<u2", n_escapes, "indices of escapes").astype(np.int64)
        require((np.diff(indices) > 0).all(), f"{what}: indices of escapes are not ascending")
        require(indices[-1] < 8 * n_groups and (indices % row < ex).all(), f"{what}: an escape is padding")
        replacements.append((indices, c.array(t.uint_type, n_escapes, "escapes")))

    a = np.zeros(8 * n_groups, t.uint_type) if no_planes else read_residuals(c, t, n_groups, n_super, sparse)
    a = a.reshape(ez, ey, row)
    require(c.end - c.at <= 3, f"{what}: {c.end - c.at} bytes after the planes")
    require(not any(c.take(c.end - c.at, "padding")), f"{what}: padding is not zero")

    # Section 6.3. Padding is summed too, but no sum of it reaches another index. Unsigned and signed sums have the same
    # bits, and numpy wraps both.
    along_x, along_y, along_z, second = (predictor >> bit & 1 for bit in range(4))
    lag = (predictor >> 4) + 1
    for axis, times, stride in (2, second + along_x, lag), (1, along_y, 1), (0, along_z, 1):
        for first in range(stride):
            lane = np.moveaxis(a, axis, 0)[first::stride]
            for _ in range(times):
                np.cumsum(lane, axis=0, dtype=t.uint_type, out=lane)
    q = a + t.uint_type.type(base % 2**t.bits)
    if kind == QUANTISED:
        bits = t.restore(q, header.step).view(t.uint_type)
    else:
        sign = q.view(t.int_type) >> t.int_type.type(t.bits - 1)
        bits = q ^ (sign & t.int_type.type(2**(t.bits - 1) - 1)).view(t.uint_type)
    for where, values in replacements:
        bits.reshape(-1)[where] = values
    return bits[:, :, :ex]


# ---- Interface ----

def decode(data):
    """The array of a whole stream."""
    stream = Stream(data)
    if stream.header.single_chunk:
        return stream.decode_chunk(0)
    # No byte stands for more than 2^14 values, so a hostile shape is refused before memory is asked for.
    require(math.prod(stream.header.shape) <= 2**14 * len(stream.data), "index: more values than the frames can hold")
    out = np.empty(stream.header.shape, stream.header.dtype.float_type)
    # Bits, not floats, are copied: a float copy may change signalling NaNs on some machines.
    bits = out.view(stream.header.dtype.uint_type)
    for chunk_id in range(stream.n_chunks):
        bits[stream.chunk_box(chunk_id)] = stream.decode_chunk(chunk_id).view(bits.dtype)
    return out


def decode_chunk(data, chunk_id):
    """The values of one chunk, with the extents of its box."""
    return Stream(data).decode_chunk(chunk_id)


def chunk_box(data, chunk_id):
    """The place of one chunk in the array: a slice for each axis."""
    return Stream(data).chunk_box(chunk_id)


def info(data):
    """Header and index as values that JSON can hold; bit patterns of fills in hexadecimal."""
    stream = Stream(data)
    fields = dict(vars(stream.header))
    fields["dtype"] = stream.header.dtype.name
    fields["step"] = None if stream.header.step is None else float(stream.header.step[0])
    fields["fills"] = [f"{fill:#0{2 + 2 * stream.header.dtype.size}x}" for fill in stream.header.fills.tolist()]
    fields["attributes"] = dict(stream.header.attributes)
    return fields | {"rows": stream.rows, "n_chunks": stream.n_chunks, "frame_offsets": stream.frame_offsets}
