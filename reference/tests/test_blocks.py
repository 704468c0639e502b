"""Tests of the codecs `cuszp2` and `ceresz2`, by an encoder that makes random use of whatever freedom docs/format.md
leaves: planes and outliers that are not needed, flags of blocks in which all is predictable.
"""

import math
import random
import struct
import unittest

from reference import ceresz2
from reference.container import CODEC_CERESZ2, CODEC_CUSZP2, decode
from reference.cursor import FormatError
from reference.xxh3 import xxh3

from .binary_encoder import BinaryEncoder, encode_kinds, encode_positions
from .container_encoder import F32, F64, NAN_FILLS, STEP, bits_of, single, varint
from .huffman_encoder import encode_streams


class Chunk:
    """Random differences of a chunk, the start of its payload, and the bit patterns that it stands for."""

    def __init__(self, rng, t, shape, fills=(), n_exact=0, scale=30):
        self.rng, self.n = rng, math.prod(shape)
        self.origin = rng.choice((0, 0, 17, -10**6))
        self.deltas = [self.delta(i, scale) for i in range(self.n)]
        bits, total = [], 0
        for i, delta in enumerate(self.deltas):
            total = delta if i % 32 == 0 else total + delta
            total = (total + 2**31) % 2**32 - 2**31
            bits.append(t.quantised(self.origin + total, STEP))
        kinds = [rng.choice((0, 0, *range(len(fills) + 1))) for _ in range(self.n)]
        exact = sorted(rng.sample([i for i in range(self.n) if not kinds[i]], n_exact))
        self.front = bytes([bool(fills) | bool(exact) << 1])
        if fills or exact:
            positions = self.positions(shape, kinds if fills else None, len(fills), exact)
            self.front += varint(len(positions)) + positions
        for i, kind in enumerate(kinds):
            bits[i] = fills[kind - 1] if kind else bits[i]
        for i in exact:
            bits[i] = rng.getrandbits(t.bits)
            self.front += t.pack(bits[i])
        self.front += varint(2 * self.origin if self.origin >= 0 else -2 * self.origin - 1)
        self.bits = bits

    def delta(self, i, scale):
        if i % 32 == 0 and self.rng.random() < 0.5:
            scale = 10**self.rng.randrange(6)
        return int(self.rng.choice((0, 1, 1, 1)) * self.rng.gauss(0, scale))

    def positions(self, shape, kinds, n_fills, exact):
        coder = BinaryEncoder()
        if kinds:
            dims = (math.prod(shape[:-3]), *(1,) * (3 - len(shape)), *shape[-3:])
            encode_kinds(coder, kinds, dims, n_fills)
        if exact:
            encode_positions(coder, exact)
        return coder.finish()

    def blocks(self):
        padded = self.deltas + [0] * (-self.n % 32)
        return [padded[i:i + 32] for i in range(0, len(padded), 32)]


def u32(n):
    return n.to_bytes(4, "little")


def cuszp2(chunk):
    headers, bodies = b"", b""
    for block in chunk.blocks():
        has_outlier = chunk.rng.random() < 0.5
        rest = block[1:] if has_outlier else block
        width = max(map(abs, rest)).bit_length()
        width += chunk.rng.choice((0, 0, 0, 2)) if any(block) else 0
        n_outlier = max(1, -(-abs(block[0]).bit_length() // 8))
        if has_outlier:
            headers += bytes([128 + 32 * (n_outlier - 1) + width])
        else:
            headers += bytes([width])
            if width == 0:
                continue
        bodies += u32(sum(1 << k for k in range(32) if block[k] < 0))
        bodies += abs(block[0]).to_bytes(n_outlier, "little") if has_outlier else b""
        block = [0] + rest if has_outlier else block
        for p in range(width):
            bodies += u32(sum((abs(delta) >> p & 1) << k for k, delta in enumerate(block)))
    return chunk.front + headers + bodies


def ceresz2_payload(chunk, codebook=None):
    flags, masks, raw, symbols = 0, b"", b"", []
    for i, block in enumerate(chunk.blocks()):
        # Values may be unpredictable without need.
        is_raw = [not -1000 <= delta < 1000 or chunk.rng.random() < 0.02 for delta in block]
        if any(is_raw) or chunk.rng.random() < 0.1:
            flags |= 1 << i
            masks += u32(sum(1 << k for k in range(32) if is_raw[k]))
            raw += b"".join(struct.pack("<i", delta) for k, delta in enumerate(block) if is_raw[k])
        symbols += [chunk.rng.randrange(2000) if r else delta + 1000 for r, delta in zip(is_raw, block)]
    sizes, streams = encode_streams(symbols[:chunk.n], [ceresz2.code_lengths()])
    sizes = b"".join(struct.pack("<H", size) for size in sizes)
    id_bytes = (ceresz2.CODEBOOK if codebook is None else codebook).to_bytes(8, "little")
    words = -(-len(chunk.blocks()) // 32)
    return chunk.front + id_bytes + flags.to_bytes(4 * words, "little") + masks + raw + sizes + streams


ENCODERS = {CODEC_CUSZP2: cuszp2, CODEC_CERESZ2: ceresz2_payload}


class Blocks(unittest.TestCase):
    def test_round_trips(self):
        rng = random.Random(1)
        shapes = [(1,), (31,), (32,), (33,), (5, 7), (3, 4, 9), (2, 2, 3, 4, 5), (1030,), (4200,), ()]
        for codec, encode in ENCODERS.items():
            for case, shape in enumerate(shapes * 2):
                t = F64 if case % 2 else F32
                fills = NAN_FILLS[t][:case % 3] if math.prod(shape) > 9 else ()
                n_exact = 2 if case % 4 == 1 and math.prod(shape) > 9 else 0
                chunk = Chunk(rng, t, shape, fills, n_exact, rng.choice((0.3, 5, 400)))
                with self.subTest(codec=codec, shape=shape):
                    decoded = decode(single(t, shape, encode(chunk), codec=codec, fills=fills))
                    self.assertEqual(decoded.shape, shape)
                    self.assertEqual(bits_of(decoded), chunk.bits)

    def test_refusals(self):
        rng = random.Random(2)

        def refuse(codec, shape, payload, message, **options):
            with self.assertRaisesRegex(FormatError, message):
                decode(single(F32, shape, payload, codec=codec, **options))

        for codec, encode in ENCODERS.items():
            payload = encode(Chunk(rng, F32, (100,)))
            for n in range(len(payload)):
                refuse(codec, (100,), payload[:n], "")
            refuse(codec, (100,), payload + b"\0", "after the last")
            refuse(codec, (100,), b"\4" + payload[1:], "exceptions")
            refuse(codec, (100,), payload, "step", step=0.0)
            refuse(codec, (0,), payload, "without elements")
        refuse(CODEC_CUSZP2, (1,), bytes([0, 0, 0x20]), "header")
        chunk = Chunk(rng, F32, (100,))
        refuse(CODEC_CERESZ2, (100,), ceresz2_payload(chunk, codebook=1), "codebook")
        payload = bytearray(ceresz2_payload(chunk))
        payload[len(chunk.front) + 8] |= 0x10
        refuse(CODEC_CERESZ2, (100,), bytes(payload), "beyond")

    def test_changed_payloads(self):
        # Nothing but FormatError may come out of a hostile payload; most changes decode to other values.
        rng, refused = random.Random(3), 0
        for case in range(300):
            codec = rng.choice(list(ENCODERS))
            payload = bytearray(ENCODERS[codec](Chunk(rng, F32, (4, 30), NAN_FILLS[F32][:case % 3], case % 2)))
            payload[rng.randrange(len(payload))] = rng.randrange(256)
            try:
                decode(single(F32, (4, 30), bytes(payload), codec=codec, fills=NAN_FILLS[F32][:case % 3]))
            except FormatError:
                refused += 1
        self.assertGreater(refused, 30)

    def test_the_codebook_is_that_of_the_format(self):
        lengths = ceresz2.code_lengths()
        self.assertEqual(len(lengths), 2000)
        self.assertEqual(sum(2.0**-n for n in lengths), 1)
        self.assertEqual(xxh3(bytes(lengths)), ceresz2.CODEBOOK)
