"""Container: chunks, frames and index (docs/format.md, sections 3 and 4), and the whole array."""

import bisect
import itertools
import math
import struct

import numpy as np

from .balanced import decode_balanced, decode_shared
from .ceaz import decode_ceaz
from .ceresz2 import decode_ceresz2
from .cursor import Cursor, FormatError, require
from .cuszp2 import decode_cuszp2
from .cuszplus import decode_cuszplus
from .fast import decode_fast
from .header import check_size, read_header
from .layers import (
    CODEC_CHANGES,
    CODEC_POINTWISE,
    CODEC_REGIONS,
    CODEC_SHARED,
    decode_changes,
    decode_pointwise,
    decode_regions,
)
from .small import decode_small
from .xxh3 import u64_at, xxh3, xxh3_long

FRAME_MARKER, FOOTER_MAGIC = b"CHNK", b"PUMF"
INDEX_MARKERS = INDEX_WITHOUT_HEADER, INDEX_WITH_HEADER = b"INDX", b"INDH"
CODEC_RAW, CODEC_FAST, CODEC_SMALL, CODEC_BALANCED = 0, 1, 2, 3
CODEC_CUSZP2, CODEC_CUSZPLUS, CODEC_CEAZ, CODEC_CERESZ2 = 4, 5, 6, 7
# What decodes the payloads of other codecs than raw, fast and layers.
CODECS = {CODEC_SMALL: decode_small, CODEC_BALANCED: decode_balanced, CODEC_CUSZP2: decode_cuszp2,
          CODEC_CUSZPLUS: decode_cuszplus, CODEC_CEAZ: decode_ceaz, CODEC_CERESZ2: decode_ceresz2,
          CODEC_SHARED: decode_shared}


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
        marker = c.take(4, "marker")
        require(marker in INDEX_MARKERS, "index: wrong marker")
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
        if marker == INDEX_WITH_HEADER:
            copy = c.take(h.header_bytes, "header_copy")
            require(copy == self.data[:h.header_bytes], "index: header_copy is not the header")
        require(c.at == c.end, "index: bytes are left after its last field")
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
        positions = []
        for chunks in reversed(self.grid(segment)):
            chunk_id, position = divmod(chunk_id, chunks)
            positions.insert(0, position)
        firsts = (first_row,) + (0,) * (h.rank - 1)
        lasts = (first_row + self.rows[segment],) + h.shape[1:]
        return tuple(slice(first + p * chunk, min(first + (p + 1) * chunk, last))
                     for p, chunk, first, last in zip(positions, h.chunk_shape, firsts, lasts))

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
    layers = {CODEC_POINTWISE: decode_pointwise, CODEC_REGIONS: decode_regions, CODEC_CHANGES: decode_changes}
    require(codec in layers, f"{what}: unknown codec {codec}")
    return layers[codec](Cursor(payload, what), extents, header, decode_payload)


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
    """The position of one chunk in the array: a slice for each axis."""
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
