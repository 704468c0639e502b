"""Codecs of the preset `balanced`, without a codebook of the stream and with it: docs/format.md, section 9."""

import itertools
import math

import numpy as np

from .codebook import ALPHABET_SYMBOLS, CLASS_SYMBOLS, N_CLASSES, Bits, unpack_lengths
from .exceptions import read_exceptions
from .huffman import decode_streams, n_streams
from .payload import check_end, check_size
from .view import view_of

GROUP, OWN_BOOK, MAX_CODEBOOKS = 32, 64, 66


# ---- 9.1 Differences ----

def sum_up(sums, order, dims):
    """Undoes the differences, in place: a running sum along each run of axes."""
    axes = [a for a in range(4) if order >> a & 1]
    sums = sums.reshape(dims)
    for i, a in enumerate(axes):
        # The axes outside of the order that are slower than this one and faster than the next of the order.
        first = axes[i - 1] + 1 if i else 0
        n_repeats, extent = math.prod(dims[first:a]), dims[a]
        run = sums.reshape(math.prod(dims[:first]), n_repeats, extent, math.prod(dims[a + 1:]))
        if order >> 4 & 1:
            np.cumsum(run[:, :, 1:], axis=2, dtype=np.int32, out=run[:, :, 1:])
        np.cumsum(run[:, :, 0], axis=1, dtype=np.int32, out=run[:, :, 0])
        np.cumsum(run, axis=2, dtype=np.int32, out=run)


# ---- 9.3 Classes ----

def read_classes(c, symbols, n_groups):
    classes, last = [], 1
    for is_run, part in itertools.groupby(symbols, lambda symbol: symbol < 2):
        if is_run:
            length = sum((1 + digit) << i for i, digit in enumerate(part))
            c.require(length <= n_groups - len(classes), "run of empty groups is too long")
            classes += [0] * length
            continue
        for symbol in part:
            last += (symbol - 2) // 2 if symbol % 2 == 0 else -((symbol - 1) // 2)
            c.require(1 <= last < N_CLASSES, "unknown class")
            classes.append(last)
    c.require(len(classes) == n_groups, "classes do not match the groups")
    return np.array(classes, np.int64)


# ---- 9.4 Books and alphabets ----

def nonzero(positions):
    group = [128] * 8
    for position, sign in positions:
        group[position] = 127 + 2 * sign
    return group


EIGHTS = ([nonzero([])] + [nonzero([(i, p)]) for i in range(8) for p in range(2)]
          + [nonzero([(i, p), (j, r)]) for j in range(8) for i in range(j) for r in range(2) for p in range(2)])
# What each symbol stands for, but for the last of all alphabets but the first.
ALPHABETS = [
    [[byte] for byte in range(256)],
    [[125 + a, 125 + b] for a in range(7) for b in range(7)],
    [[127 + digit for digit in digits] for digits in itertools.product(range(3), repeat=4)],
    EIGHTS,
    [[128] * i + [127 + 2 * p] + [128] * (31 - i) for i in range(32) for p in range(2)],
]


def books_of(classes):
    """The groups of each book that has any, in order."""
    counts, book = np.bincount(classes, minlength=N_CLASSES), list(range(N_CLASSES))
    for k in range(3, N_CLASSES):
        if counts[k] < OWN_BOOK:
            book[k] = book[k - 2]
    of_group = np.array(book)[classes]
    return [np.flatnonzero(of_group == b) for b in range(1, N_CLASSES) if (of_group == b).any()]


# ---- 9.5 Low bits ----

def low_bits(c, k):
    """The low bits of a group as integers."""
    low = np.zeros(GROUP, np.int64)
    for i in range(k // 8):
        low |= c.array("u1", GROUP, "low bits").astype(np.int64) << 8 * i
    r = k % 8
    if r:
        for i in range(0, GROUP, 8):
            bits = int.from_bytes(bytes(c.take(r, "low bits")), "little")
            low[i:i + 8] |= [(bits >> r * j & (1 << r) - 1) << k // 8 * 8 for j in range(8)]
    return low


class Head:
    """What a payload has before its symbols, from `origin` on."""

    def __init__(self, c, extents, header):
        self.header, self.n_values, self.view = header, math.prod(extents), view_of(extents)
        self.exceptions = read_exceptions(c, self.n_values, self.view.dims, header)
        self.origin = c.signed("origin")
        self.order = c.uint(1, "order")
        c.require(self.order & 15 and (self.order < 16 or self.order == 0b11000), f"unknown order {self.order}")
        self.n_groups = -(-self.n_values // GROUP)
        self.n_symbols = c.varint("n_class_symbols")
        c.require(self.n_symbols <= self.n_groups, "more symbols of classes than groups")
        self.n_apart = c.varint("n_apart")
        c.require(self.n_apart <= self.n_values + GROUP, "more bytes apart than values")

    def restore(self, c, classes, coded, apart):
        """The bit patterns of the chunk; `coded` has the groups, the alphabet and the symbols of each book."""
        group_bytes, at = np.full((self.n_groups, GROUP), 128, np.int64), 0
        for groups, known, symbols in coded:
            book, width = [], len(known[0])
            for symbol in symbols:
                if symbol < len(known):
                    book += known[symbol]
                    continue
                c.require(at + width <= self.n_apart, "too few bytes apart")
                book += apart[at:at + width]
                at += width
            group_bytes[groups] = np.array(book, np.int64).reshape(-1, GROUP)
        c.require(at == self.n_apart, "too many bytes apart")

        differences = np.zeros((self.n_groups, GROUP), np.int64)
        for i in np.flatnonzero(classes):
            k = max(0, (int(classes[i]) - 1) // 2 - 7)
            differences[i] = ((group_bytes[i] - 128) << k) | low_bits(c, k)
        is_wide = (group_bytes == 0) & (classes != 0)[:, None]
        # Groups are filled up with zeros, but a hostile one may have anything there.
        differences[is_wide] = c.array("<i4", int(is_wide.sum()), "wide differences")
        check_end(c, self.n_values)

        sums = differences.reshape(-1)[:self.n_values].astype(np.int32)
        with np.errstate(all="ignore"):
            sum_up(sums, self.order, self.view.dims)
        bits = self.header.dtype.restore_bits(sums, self.origin, self.header.step)
        self.exceptions.restore(bits)
        return self.view.to_chunk(bits)


def decode_balanced(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    check_size(c, extents)
    c.require(header.step is not None, "codec without a step")
    head = Head(c, extents, header)
    n_blocks = c.varint("n_blocks")
    n_codebooks = c.uint(1, "n_codebooks")
    c.require(n_codebooks <= MAX_CODEBOOKS, "too many codebooks")
    heads = c.array("<u2", n_codebooks, "codebooks").tolist()
    packed = ((head >> 13, head & 8191) for head in heads)
    packed = iter([(alphabet, Bits(c, c.take(-(-n // 8), "lengths of codes"), n)) for alphabet, n in packed])
    sizes = c.array("<u2", 4 * n_blocks, "sizes of streams").tolist()

    def next_codebook():
        found = next(packed, None)
        c.require(found is not None, "too few codebooks")
        return found

    def symbols_of(lengths, n):
        c.require(len(sizes) >= n_streams(n), "too few streams")
        own, sizes[:] = sizes[:n_streams(n)], sizes[n_streams(n):]
        return decode_streams(c, own, n, [lengths])

    def bytes_of(n_alphabet, n):
        alphabet, bits = next_codebook()
        c.require(alphabet == 0, "symbols of the wrong alphabet")
        return symbols_of(unpack_lengths(bits, n_alphabet), n)

    classes = read_classes(c, bytes_of(CLASS_SYMBOLS, head.n_symbols), head.n_groups)
    coded = []
    for groups in books_of(classes):
        alphabet, bits = next_codebook()
        c.require(alphabet < len(ALPHABETS), f"unknown alphabet {alphabet}")
        known = ALPHABETS[alphabet]
        lengths = unpack_lengths(bits, ALPHABET_SYMBOLS[alphabet])
        coded.append((groups, known, symbols_of(lengths, len(groups) * GROUP // len(known[0]))))
    apart = bytes_of(256, head.n_apart) if head.n_apart else []
    c.require(next(packed, None) is None and not sizes, "too many codebooks or streams")
    return head.restore(c, classes, coded, apart)


# ---- 9.6 Codebook of the stream ----

def decode_shared(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    check_size(c, extents)
    c.require(header.step is not None, "codec without a step")
    codebook, stored = header.codebook, c.uint(4, "codebook")
    c.require(codebook is not None, "chunk with a codebook in a stream without one")
    c.require(stored == codebook.id, "chunk with another codebook than that of the stream")
    head = Head(c, extents, header)

    def symbols_of(lengths, n):
        sizes = [c.varint("size of a stream") for _ in range(n_streams(n))]
        c.require(all(size < 2**16 for size in sizes), "stream of an impossible size")
        return decode_streams(c, sizes, n, [lengths])

    classes = read_classes(c, symbols_of(codebook.classes, head.n_symbols), head.n_groups)
    book_of_group, coded = np.array(codebook.book_of)[classes], []
    for b, (alphabet, lengths) in enumerate(codebook.books):
        groups, known = np.flatnonzero((book_of_group == b) & (classes > 0)), ALPHABETS[alphabet]
        if len(groups):
            coded.append((groups, known, symbols_of(lengths, len(groups) * GROUP // len(known[0]))))
    return head.restore(c, classes, coded, symbols_of(codebook.literals, head.n_apart))
