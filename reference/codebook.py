"""Lengths of codes as bits (docs/format.md, 9.2), and the codebook of a stream (9.6)."""

from dataclasses import dataclass

from .cursor import Cursor, require
from .huffman import check_complete
from .xxh3 import u64_at, xxh3

N_CLASSES, CLASS_SYMBOLS, MAX_BITS = 65, 132, 12
# Symbols of each alphabet, and which of them is the escape.
ALPHABET_SYMBOLS = [256, 50, 82, 130, 65]
ESCAPES = [0] + [n - 1 for n in ALPHABET_SYMBOLS[1:]]


# ---- 9.2 Lengths of codes ----

class Bits:
    """The first `n` bits of some bytes, the least significant first; the others are 0."""

    def __init__(self, c, data, n):
        self.require, self.bits, self.left = c.require, int.from_bytes(bytes(data), "little"), n
        self.require(self.bits >> n == 0, "bits behind the lengths of codes")

    def take(self, n):
        self.require(n <= self.left, "lengths of codes end too early")
        taken = self.bits & (1 << n) - 1
        self.bits >>= n
        self.left -= n
        return taken

    def ones(self, most):
        n = 0
        while self.take(1):
            n += 1
            self.require(n <= most, "lengths of codes are damaged")
        return n

    def run(self):
        n = self.ones(8)
        return (1 << n) + self.take(n)

    def rise(self):
        size = self.ones(MAX_BITS)
        return -size if size and self.take(1) else size


def unpack_lengths(bits, n_symbols):
    lengths, first = [None] * n_symbols, bits.take(8)
    last, at = bits.take(4), first
    bits.require(first < n_symbols, "lengths of too many symbols")
    lengths[first] = last
    while bits.left:
        run = bits.run()
        bits.require(at + run <= n_symbols, "lengths of too many symbols")
        for symbol in range(at, at + run):
            if symbol != first:
                last += bits.rise()
                bits.require(1 <= last <= MAX_BITS, "code has an impossible length")
                lengths[symbol] = last
        at += run
        if bits.left:
            at += bits.run()
            bits.require(bits.left, "lengths of codes end in symbols without any")
    check_complete(lengths, bits.require)
    return lengths


# ---- 9.6 Codebook ----

@dataclass
class Codebook:
    id: int
    classes: list  # lengths
    books: list  # alphabet and lengths of each
    book_of: list  # which book each class has
    literals: list  # lengths


def read_codebook(data):
    c = Cursor(data, "codebook")
    require(bytes(c.take(4, "magic")) == b"PUMB", "codebook: wrong magic")
    version = c.uint(1, "version")
    require(version == 1, f"codebook: version {version} is unknown")
    require(len(data) >= 21, "codebook: too short")
    checksum = u64_at(data, len(data) - 8)
    require(checksum == xxh3(data[:-8]), "codebook: wrong checksum")
    c.end = len(data) - 8
    own = c.uint(8, "own")
    require(own != 0, "codebook: no class has a book")
    heads = c.array("<u2", own.bit_count() + 2, "heads").tolist()
    parts = []
    for i, head in enumerate(heads):
        alphabet, n = head >> 13, head & 8191
        is_of_class = 0 < i < len(heads) - 1
        c.require(alphabet < len(ALPHABET_SYMBOLS) if is_of_class else alphabet == 0, f"wrong alphabet {alphabet}")
        n_symbols = CLASS_SYMBOLS if i == 0 else ALPHABET_SYMBOLS[alphabet]
        lengths = unpack_lengths(Bits(c, c.take(-(-n // 8), "lengths of codes"), n), n_symbols)
        if is_of_class:
            c.require(lengths[ESCAPES[alphabet]] is not None, "book without an escape")
        else:
            c.require(None not in lengths, "classes or literals without a code")
        parts.append((alphabet, lengths))
    c.require(c.at == c.end, "bytes after the end")
    book_of, n_books = [0] * N_CLASSES, 0
    for k in range(1, N_CLASSES):
        if own >> (k - 1) & 1:
            book_of[k], n_books = n_books, n_books + 1
        elif k > 2:
            book_of[k] = book_of[k - 2]
    return Codebook(checksum & 0xFFFFFFFF, parts[0][1], parts[1:-1], book_of, parts[-1][1])
