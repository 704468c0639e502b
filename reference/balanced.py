"""Codec of the preset `balanced`: docs/format.md, section 9."""

import itertools
import math

import numpy as np

from .exceptions import read_exceptions
from .huffman import check_complete, decode_streams, n_streams
from .payload import check_end, check_size
from .view import view_of

GROUP, N_CLASSES, CLASS_SYMBOLS, OWN_BOOK = 32, 65, 132, 64
MAX_CODEBOOKS, MAX_BITS = 66, 12


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


def decode_balanced(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    n_values = check_size(c, extents)
    c.require(header.step is not None, "codec without a step")
    view = view_of(extents)
    exceptions = read_exceptions(c, n_values, view.dims, header)
    origin = c.signed("origin")
    order = c.uint(1, "order")
    c.require(order & 15 and (order < 16 or order == 0b11000), f"unknown order {order}")
    n_groups = -(-n_values // GROUP)
    n_symbols = c.varint("n_class_symbols")
    c.require(n_symbols <= n_groups, "more symbols of classes than groups")
    n_apart = c.varint("n_apart")
    c.require(n_apart <= n_values + GROUP, "more bytes apart than values")
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

    classes = read_classes(c, bytes_of(CLASS_SYMBOLS, n_symbols), n_groups)
    coded = []
    for groups in books_of(classes):
        alphabet, bits = next_codebook()
        c.require(alphabet < len(ALPHABETS), f"unknown alphabet {alphabet}")
        known = ALPHABETS[alphabet]
        lengths = unpack_lengths(bits, len(known) + (alphabet > 0))
        coded.append((groups, known, symbols_of(lengths, len(groups) * GROUP // len(known[0]))))
    apart = bytes_of(256, n_apart) if n_apart else []
    c.require(next(packed, None) is None and not sizes, "too many codebooks or streams")

    group_bytes, at = np.full((n_groups, GROUP), 128, np.int64), 0
    for groups, known, symbols in coded:
        book, width = [], len(known[0])
        for symbol in symbols:
            if symbol < len(known):
                book += known[symbol]
                continue
            c.require(at + width <= n_apart, "too few bytes apart")
            book += apart[at:at + width]
            at += width
        group_bytes[groups] = np.array(book, np.int64).reshape(-1, GROUP)
    c.require(at == n_apart, "too many bytes apart")

    differences = np.zeros((n_groups, GROUP), np.int64)
    for i in np.flatnonzero(classes):
        k = max(0, (int(classes[i]) - 1) // 2 - 7)
        differences[i] = ((group_bytes[i] - 128) << k) | low_bits(c, k)
    is_wide = (group_bytes == 0) & (classes != 0)[:, None]
    # Groups are filled up with zeros, but a hostile one may have anything there.
    differences[is_wide] = c.array("<i4", int(is_wide.sum()), "wide differences")
    check_end(c, n_values)

    sums = differences.reshape(-1)[:n_values].astype(np.int32)
    with np.errstate(all="ignore"):
        sum_up(sums, order, view.dims)
    bits = header.dtype.restore_bits(sums, origin, header.step)
    exceptions.restore(bits)
    return view.to_chunk(bits)
