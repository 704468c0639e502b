"""Tests of codebooks of a stream: written from docs/format.md, 9.2 and 9.6, and read back."""

import random
import struct
import unittest

from reference.codebook import ALPHABET_SYMBOLS, ESCAPES, read_codebook
from reference.cursor import FormatError
from reference.xxh3 import xxh3


def limited_lengths(rng, n_symbols, used):
    """A complete code of these symbols, none of its lengths above 12."""
    depths = [0]
    while len(depths) < len(used):
        i = rng.randrange(len(depths)) if max(depths) < 12 else depths.index(min(depths))
        depth = depths.pop(i)
        depths += [depth + 1] * 2
    lengths = [None] * n_symbols
    for symbol, depth in zip(sorted(used), depths):
        lengths[symbol] = depth
    return lengths


def pack(lengths):
    """Number of bits, and bytes."""
    bits = []

    def put(n, count):
        bits.extend(n >> i & 1 for i in range(count))

    def put_run(run):
        k = run.bit_length() - 1
        put((1 << k) - 1, k + 1)
        put(run - (1 << k), k)

    used = [symbol for symbol, n in enumerate(lengths) if n is not None]
    put(used[0], 8)
    put(lengths[used[0]], 4)
    at, last = used[0], lengths[used[0]]
    while last and at <= used[-1]:
        end = at
        while end < len(lengths) and (lengths[end] is None) == (lengths[at] is None):
            end += 1
        put_run(end - at)
        for symbol in range(at, end) if lengths[at] is not None else ():
            if symbol != used[0]:
                rise = lengths[symbol] - last
                put((1 << abs(rise)) - 1, abs(rise) + 1)
                put(int(rise < 0), int(rise != 0))
                last = lengths[symbol]
        at = end
    number = sum(bit << i for i, bit in enumerate(bits))
    return len(bits), number.to_bytes(-(-len(bits) // 8), "little")


def write_codebook(classes, books, own, literals, version=1):
    parts = [(0, *pack(classes))] + [(alphabet, *pack(lengths)) for alphabet, lengths in books] + [(0, *pack(literals))]
    heads = b"".join(struct.pack("<H", n | alphabet << 13) for alphabet, n, _ in parts)
    out = b"PUMB" + bytes([version]) + struct.pack("<Q", own) + heads + b"".join(data for _, _, data in parts)
    return out + struct.pack("<Q", xxh3(out))


class Codebooks(unittest.TestCase):
    def setUp(self):
        rng = random.Random(3)
        self.classes = limited_lengths(rng, 132, range(132))
        self.literals = limited_lengths(rng, 256, range(256))
        self.books = []
        for alphabet, n in enumerate(ALPHABET_SYMBOLS):
            used = set(rng.sample(range(n), rng.randint(1, n // 2))) | {ESCAPES[alphabet]}
            self.books.append((alphabet, limited_lengths(rng, n, used)))
        self.own = 1 << 3 | 1 << 4 | 1 << 9 | 1 << 20 | 1 << 63

    def test_codebooks_come_back(self):
        data = write_codebook(self.classes, self.books, self.own, self.literals)
        book = read_codebook(memoryview(data))
        self.assertEqual((book.classes, book.books, book.literals), (self.classes, self.books, self.literals))
        self.assertEqual(book.id, xxh3(data[:-8]) & 0xFFFFFFFF)
        # Classes 4, 5, 10, 21 and 64 have books; others that of the class two below, or the first.
        self.assertEqual([book.book_of[k] for k in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 19, 21, 23, 62, 63, 64)],
                         [0, 0, 0, 0, 1, 0, 1, 0, 2, 2, 1, 3, 3, 2, 3, 4])

    def test_refusals(self):
        def refuses(message, **over):
            fields = {"classes": self.classes, "books": self.books, "own": self.own, "literals": self.literals}
            with self.assertRaisesRegex(FormatError, message):
                read_codebook(memoryview(write_codebook(**{**fields, **over})))

        rng = random.Random(4)
        data = write_codebook(self.classes, self.books, self.own, self.literals)
        for n in range(len(data)):
            self.assertRaises(FormatError, read_codebook, memoryview(data[:n]))
        refuses("version", version=2)
        refuses("no class", own=0, books=[])
        refuses("without a code", classes=limited_lengths(rng, 132, range(131)))
        refuses("without a code", literals=limited_lengths(rng, 256, range(1, 256)))
        refuses("escape", books=[(1, limited_lengths(rng, 50, range(40)))] + self.books[1:])
        refuses("", own=self.own | 1)
