"""Encoder of headers, frames and index, written from docs/format.md, sections 2 to 4.

It works value by value on Python integers and floats, and shares nothing with the decoder but its XXH3, which has its
own vectors.
"""

import itertools
import struct

import numpy as np

from reference.container import CODEC_FAST
from reference.xxh3 import xxh3


class T:
    """Scalar arithmetic of an element type, on integers that stand for its bit patterns."""

    def __init__(self, code, size, letter, m_t):
        self.code, self.size, self.letter, self.m_t = code, size, letter, m_t
        self.bits = 8 * size
        self.modulus = 1 << self.bits
        self.m = self.to_bits(m_t)

    def to_bits(self, value):
        return int.from_bytes(struct.pack("<" + self.letter, value), "little")

    def from_bits(self, bits):
        return struct.unpack("<" + self.letter, (bits % self.modulus).to_bytes(self.size, "little"))[0]

    def round(self, value):
        # For f32, operations in double followed by this are exact: 53 >= 2 * 24 + 2 bits.
        return self.from_bits(self.to_bits(value))

    def signed(self, n):
        n %= self.modulus
        return n - self.modulus if n >= self.modulus // 2 else n

    def quantised(self, q, step):
        return self.to_bits(self.round(self.round(self.from_bits(q + self.m) - self.m_t) * step))

    def exact(self, q):
        return (q ^ (self.modulus // 2 - 1 if self.signed(q) < 0 else 0)) % self.modulus

    def pack(self, bits):
        return (bits % self.modulus).to_bytes(self.size, "little")


F32, F64 = T(1, 4, "f", 1.5 * 2**23), T(2, 8, "d", 1.5 * 2**52)
STEP = 0.0078125 * 1.25
NAN_FILLS = {F32: (0x7FC00000, 0xFF812345), F64: (0x7FF8000000000000, 0xFFF0000000012345)}


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def u64(n):
    return n.to_bytes(8, "little")


def header(t, shape, chunk_shape=None, bound=1, fills=(), attributes=(), step=STEP, **over):
    """`over` replaces single fields, to make invalid headers; the checksum is that of the result."""
    single_chunk = chunk_shape is None
    flags = single_chunk | over.get("n_fills", len(fills)) << 1 | bool(attributes) << 3
    out = bytes([t.code, over.get("flags", flags), over.get("preset", 1), bound, over.get("rank", len(shape))])
    out = over.get("dtype", out[:1]) + out[1:]
    out += b"".join(map(varint, shape if single_chunk else shape[1:]))
    out += b"".join(map(varint, chunk_shape or ()))
    if bound:
        out += struct.pack("<d", over.get("requested_bound", 0.01))
        out += struct.pack("<d", over.get("abs_bound", 0.02)) if bound in (2, 4, 5, 6) else b""
        out += struct.pack("<" + t.letter, step)
    out += b"".join(map(t.pack, fills))
    out += varint(len(attributes)) if attributes else b""
    for text in itertools.chain(*attributes):
        raw = text if isinstance(text, bytes) else text.encode()
        out += varint(len(raw)) + raw
    out += over.get("extra", b"")
    size = 8 + len(out) + 4
    versions = bytes([over.get("version", 1), over.get("min_reader_version", 1)])
    out = b"PUM\x1a" + versions + struct.pack("<H", size) + out
    return out + u64(xxh3(out))[:4]


def payload_hash(payload):
    hashes = [xxh3(payload[i:i + 4096]) for i in range(0, len(payload), 4096)]
    return hashes[0] if len(hashes) == 1 else xxh3(b"".join(map(u64, hashes)))


def frame(codec, chunk_id, payload, first_row=0, rows=1, single_chunk=False):
    fields = bytes([codec]) + u64(chunk_id) + u64(first_row) + u64(rows) + u64(len(payload))
    head = b"CHNK" + bytes([codec]) + varint(chunk_id)
    head += b"" if single_chunk else varint(first_row) + varint(rows)
    return head + varint(len(payload)) + u64(xxh3(fields + u64(payload_hash(payload)))) + payload


def only_frame(codec, shape, payload, chunk_id=0):
    return frame(codec, chunk_id, payload, 0, shape[0] if shape else 1, True)


def tail(offset, rows, frame_sizes, header_copy=b""):
    index = (b"INDH" if header_copy else b"INDX") + varint(len(rows)) + b"".join(map(varint, rows))
    index += varint(len(frame_sizes)) + b"".join(map(varint, frame_sizes)) + header_copy
    index += u64(xxh3(index))
    return index + u64(offset) + u64(len(index)) + b"PUMF"


def chunked(head, rows, frames):
    body = head + b"".join(frames)
    return body + tail(len(body), rows, list(map(len, frames)))


def single(t, shape, payload, codec=CODEC_FAST, **options):
    return header(t, shape, **options) + only_frame(codec, shape, payload)


def bits_of(array):
    return np.ascontiguousarray(array).view(f"<u{array.itemsize}").reshape(-1).tolist()
