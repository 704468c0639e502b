"""Tests of huffman.py, cuszplus.py and ceaz.py.

As in test_decode.py, payloads come from an encoder written here from docs/format.md (sections 8, 12, 13), with random
content and codes that need not be good ones.
"""

import random
import unittest

from reference import container as d
from reference import ceaz
from reference import huffman as h
from reference.small import BinaryDecoder
from .test_decode import F32, F64, NAN_FILLS, STEP, BinaryEncoder, bits_of, single, varint


def random_lengths(rng, n_symbols, used=None):
    """A complete code of random symbols: leaves of a tree that is split at random."""
    used = rng.sample(range(n_symbols), rng.randint(1, min(n_symbols, 60))) if used is None else sorted(used)
    depths = [0]
    while len(depths) < len(used):
        depth = depths.pop(rng.randrange(len(depths)))
        if depth < 20:
            depths += [depth + 1] * 2
        else:
            depths.append(depth)
    lengths = [None] * n_symbols
    for symbol, depth in zip(used, depths):
        lengths[symbol] = depth
    return lengths


def write_lengths(coder, lengths):
    n, behind, has_code, rises = len(lengths), {}, [[2**15, 0] for _ in range(4)], [{} for _ in range(3)]
    n_coded = max((i + 1 for i in range(n) if lengths[i] is not None), default=0)
    coder.number(behind, n - n_coded)
    for i in range(n_coded - 1):
        bits = [1 if j < 0 else int(lengths[j] is not None) for j in (i - 2, i - 1)]
        coder.bit(has_code[2 * bits[0] + bits[1]], int(lengths[i] is not None))
    used = [i for i in range(n) if lengths[i] is not None]
    last, o = (len(bin(n)) - 3) // 2 + 1, 0
    for i in used if len(used) > 1 else ():
        r = lengths[i] - last
        coder.signed(rises[o], r)
        last, o = lengths[i], min(abs(r), 2)


def encode_streams(symbols, codebooks, classes=None):
    """Sizes of streams, and the streams."""
    codes = []
    for lengths in codebooks:
        book, code, last = {}, 0, 0
        for n, symbol in sorted((n, s) for s, n in enumerate(lengths) if n is not None):
            code <<= n - last
            book[symbol], last = format(code, f"0{n}b") if n else "", n
            code += 1
        codes.append(book)
    sizes, out = [], b""
    for block in range(0, len(symbols), 4096):
        m = min(4096, len(symbols) - block)
        g = (m + 31) // 32
        for i in range(4):
            text = ""
            for at in range(min(32 * (g * i // 4), m), min(32 * (g * (i + 1) // 4), m)):
                text += codes[classes[(block + at) // 32] if classes else 0][symbols[block + at]]
            data = int("0" + text[::-1], 2).to_bytes((len(text) + 7) // 8, "little")
            sizes.append(len(data))
            out += data
    return sizes, out


def write_symbols(coder, symbols, lengths):
    sizes, out = encode_streams(symbols, [lengths])
    model, before = {}, 0
    for size in sizes:
        coder.signed(model, size - before)
        before = size
    return out


def encode_runs(symbols):
    values, digits, at = [], [], 0
    while at < len(symbols):
        end = at
        while end < len(symbols) and symbols[end] == symbols[at]:
            end += 1
        values.append(symbols[at])
        n = end - at - 1
        while n >= 128:
            digits.append(n % 128 + 128)
            n //= 128
        digits.append(n)
        at = end
    return values, digits


class Chunk:
    """A chunk of random codes as a payload of `cuszplus` (kinds 0 to 2) or `ceaz` (3 to 5), and the bits it stands for."""

    def __init__(self, rng, t, shape, kind, fills):
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
            places(coder, exact)
        part = coder.finish()
        front = bytes([2]) + varint(len(part)) + part + b"".join(t.pack(exact[p]) for p in sorted(exact)) if exact else b"\0"

        coder, body = BinaryEncoder(), b""
        places(coder, outliers)
        model = {}
        for place in sorted(outliers):
            coder.signed(model, outliers[place])
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
            lengths = ceaz.offline_lengths(d.Cursor) if kind == 3 else random_lengths(rng, 1024, set(codes))
            if kind != 3:
                write_lengths(coder, lengths)
            body = write_symbols(coder, codes, lengths)
        part = coder.finish()
        self.payload = bytes([kind % 3]) + varint(v) + front + varint(len(part)) + part + body
        self.payload = self.payload.ljust(max(3, n // 2**14), b"\0")
        self.codec = d.CODEC_CUSZPLUS if kind < 3 else d.CODEC_CEAZ

        # Each value is the sum of all differences before it along each axis.
        sums = {}
        self.bits = []
        for place in range(n):
            z, y, x = place // (dims[1] * dims[2]), place // dims[2] % dims[1], place % dims[2]
            a = codes[place] - 512 + outliers.get(place, 0)
            for corner in range(1, 8):
                at = (z - (corner >> 2), y - (corner >> 1 & 1), x - (corner & 1))
                a += sums.get(at, 0) * (1 if corner.bit_count() % 2 else -1)
            sums[z, y, x] = a = (a + 2**31) % 2**32 - 2**31
            q = (origin + a) % 2**t.bits
            self.bits.append(exact.get(place, t.quantised(q, t.round(STEP))))


def places(coder, at):
    count, gap, following = {}, {}, 0
    coder.number(count, len(at))
    for place in sorted(at):
        coder.number(gap, place - following)
        following = place + 1


class Huffman(unittest.TestCase):
    def test_lengths_and_streams(self):
        rng = random.Random(1)
        for case in range(30):
            n_symbols = rng.choice((1, 2, 40, 256, 1024))
            books = [random_lengths(rng, n_symbols) for _ in range(rng.choice((1, 3)))]
            coder = BinaryEncoder()
            for lengths in books:
                write_lengths(coder, lengths)
            decoder = BinaryDecoder(d.Cursor(coder.finish(), "lengths"))
            self.assertEqual([h.read_lengths(decoder, n_symbols) for _ in books], books)
            decoder.finish()
            n = rng.choice((1, 33, 300, 4096, 5000))
            classes = [rng.randrange(len(books)) for _ in range(-(-n // 32))]
            known = [[s for s, m in enumerate(lengths) if m is not None] for lengths in books]
            symbols = [rng.choice(known[classes[i // 32]]) for i in range(n)]
            sizes, streams = encode_streams(symbols, books, classes)
            self.assertEqual(h.decode_streams(d.Cursor(streams, "streams"), sizes, n, books, classes), symbols)

    def test_codes_of_the_page(self):
        lengths = [3, 1, None, 3, 2]
        c = d.Cursor(bytes([0b11011001, 0b00001001]), "streams")
        self.assertEqual(h.decode_streams(c, [0, 0, 0, 2], 7, [lengths]), [4, 1, 0, 3, 1, 1, 4])

    def test_refusals(self):
        lengths = [1, 1]
        for data, sizes in ((b"\x0f", [0, 0, 0, 1]), (b"\x07\0", [0, 0, 0, 2]), (b"", [0, 0, 0, 0])):
            with self.assertRaises(d.FormatError):
                h.decode_streams(d.Cursor(data, "streams"), sizes, 3, [lengths])
        for values, digits in (([1], [198]), ([1], []), ([1, 2], [127, 199, 0]), ([1], [199, 1, 0]), ([1], [127])):
            with self.assertRaises(d.FormatError):
                h.decode_runs(d.Cursor(b"", "runs"), values, digits, 200)
        self.assertEqual(h.decode_runs(d.Cursor(b"", "runs"), [1], [199, 1], 200), [1] * 200)


class PaperPresets(unittest.TestCase):
    def test_round_trips(self):
        rng = random.Random(2)
        for case in range(120):
            t, kind = rng.choice((F32, F64)), case % 6
            shape = rng.choice(((), (1,), (700,), (20, 31), (5, 6, 7), (2, 3, 4, 5, 2), (5000,)))
            chunk = Chunk(rng, t, shape, kind, ())
            stream = single(t, shape, chunk.payload, codec=chunk.codec, fills=NAN_FILLS[t], preset=7 + kind // 3)
            self.assertEqual(bits_of(d.decode(stream)), chunk.bits, (case, shape))

    def test_damage_is_refused_or_decoded(self):
        rng = random.Random(3)
        n_refused = 0
        for case in range(300):
            chunk = Chunk(rng, F32, (40, 9), case % 6, ())
            payload = bytearray(chunk.payload)
            if rng.random() < 0.5:
                payload[rng.randrange(min(len(payload), 60))] ^= 1 << rng.randrange(8)
            else:
                del payload[rng.randrange(len(payload)):]
            try:
                d.decode(single(F32, (40, 9), bytes(payload), codec=chunk.codec, preset=7))
            except d.FormatError:
                n_refused += 1
        self.assertGreater(n_refused, 150)

    def test_unknown_kinds(self):
        for codec in (d.CODEC_CUSZPLUS, d.CODEC_CEAZ):
            with self.assertRaises(d.FormatError):
                d.decode(single(F32, (4,), bytes([3, 0, 0, 0]), codec=codec))
