"""Tests of the codecs `cuszplus` and `ceaz`, by an encoder written from docs/format.md, sections 12 and 13."""

import random
import unittest

from reference import ceaz
from reference.container import CODEC_CEAZ, CODEC_CUSZPLUS, decode
from reference.cursor import FormatError

from .binary_encoder import BinaryEncoder, encode_positions
from .container_encoder import F32, F64, NAN_FILLS, STEP, bits_of, single, varint
from .huffman_encoder import encode_runs, random_lengths, write_lengths, write_symbols


class Chunk:
    """A chunk of random codes as a payload of `cuszplus` (kinds 0 to 2) or `ceaz` (3 to 5), and its bits."""

    def __init__(self, rng, t, shape, kind):
        n = 1
        for extent in shape:
            n *= extent
        dims = ([1, 1, 1] + list(shape))[-3:]
        dims[0] = n // (dims[1] * dims[2])
        rarity = rng.choice((0.02, 0.5, 1))
        codes, code = [], 512
        for _ in range(n):
            if rng.random() < rarity:
                code = min(max(int(rng.gauss(512, rng.choice((1, 20, 300)))), 0), 1023)
            codes.append(code)
        outliers = {rng.randrange(n): rng.randrange(-2**31, 2**31) for _ in range(min(rng.choice((0, 3)), n // 8))}
        exact = {rng.randrange(n): rng.getrandbits(t.bits) for _ in range(rng.choice((0, 2)))}
        origin = rng.choice((0, 5, -77, 10**6, -10**9))
        v = 2 * origin if origin >= 0 else -2 * origin - 1

        coder = BinaryEncoder()
        if exact:
            encode_positions(coder, sorted(exact))
        part = coder.finish()
        values = b"".join(t.pack(exact[p]) for p in sorted(exact))
        front = bytes([2]) + varint(len(part)) + part + values if exact else b"\0"

        coder, body = BinaryEncoder(), b""
        encode_positions(coder, sorted(outliers))
        model = {}
        for position in sorted(outliers):
            coder.signed(model, outliers[position])
        if kind in (1, 2):
            values, digits = encode_runs(codes)
            model = {}
            coder.number(model, len(values))
            coder.number(model, len(digits))
            if kind == 1:
                body = b"".join(value.to_bytes(2, "little") for value in values) + bytes(digits)
            else:
                books = random_lengths(rng, 1024, set(values)), random_lengths(rng, 256, set(digits))
                for lengths in books:
                    write_lengths(coder, lengths)
                body = b"".join(write_symbols(coder, s, book) for s, book in zip((values, digits), books))
        else:
            lengths = ceaz.offline_lengths() if kind == 3 else random_lengths(rng, 1024, set(codes))
            if kind != 3:
                write_lengths(coder, lengths)
            body = write_symbols(coder, codes, lengths)
        part = coder.finish()
        self.payload = bytes([kind % 3]) + varint(v) + front + varint(len(part)) + part + body
        self.payload = self.payload.ljust(max(3, n // 2**14), b"\0")
        self.codec = CODEC_CUSZPLUS if kind < 3 else CODEC_CEAZ

        # Each value is the sum of all differences before it along each axis.
        sums = {}
        self.bits = []
        for position in range(n):
            z, y, x = position // (dims[1] * dims[2]), position // dims[2] % dims[1], position % dims[2]
            a = codes[position] - 512 + outliers.get(position, 0)
            for corner in range(1, 8):
                at = (z - (corner >> 2), y - (corner >> 1 & 1), x - (corner & 1))
                a += sums.get(at, 0) * (1 if corner.bit_count() % 2 else -1)
            sums[z, y, x] = a = (a + 2**31) % 2**32 - 2**31
            q = (origin + a) % 2**t.bits
            self.bits.append(exact.get(position, t.quantised(q, t.round(STEP))))


class PaperPresets(unittest.TestCase):
    def test_round_trips(self):
        rng = random.Random(2)
        for case in range(120):
            t, kind = rng.choice((F32, F64)), case % 6
            shape = rng.choice(((), (1,), (700,), (20, 31), (5, 6, 7), (2, 3, 4, 5, 2), (5000,)))
            chunk = Chunk(rng, t, shape, kind)
            stream = single(t, shape, chunk.payload, codec=chunk.codec, fills=NAN_FILLS[t], preset=7 + kind // 3)
            self.assertEqual(bits_of(decode(stream)), chunk.bits, (case, shape))

    def test_damage_is_refused_or_decoded(self):
        rng = random.Random(3)
        n_refused = 0
        for case in range(300):
            chunk = Chunk(rng, F32, (40, 9), case % 6)
            payload = bytearray(chunk.payload)
            if rng.random() < 0.5:
                payload[rng.randrange(min(len(payload), 60))] ^= 1 << rng.randrange(8)
            else:
                del payload[rng.randrange(len(payload)):]
            try:
                decode(single(F32, (40, 9), bytes(payload), codec=chunk.codec, preset=7))
            except FormatError:
                n_refused += 1
        self.assertGreater(n_refused, 150)

    def test_unknown_kinds(self):
        for codec in (CODEC_CUSZPLUS, CODEC_CEAZ):
            with self.assertRaises(FormatError):
                decode(single(F32, (4,), bytes([3, 0, 0, 0]), codec=codec))
