"""Codec `ceresz2`: docs/format.md, section 11.

    decode_ceresz2(c, extents, header)    the bit patterns of a chunk, flat in C order

`c` is a cursor over the payload (container.Cursor), whose `require` raises FormatError.
"""

import functools
import math
from pathlib import Path

import numpy as np

from .cuszp2 import BLOCK, Front

# XXH3 of the 2000 lengths, a byte each (11.2).
CODEBOOK = 0x0a8bde6948c48ec0
LENGTHS = Path(__file__).parent.parent / "crates/pumice/assets/ceresz2-codebook.txt"
FIRST = -1000


@functools.cache
def codebook():
    """11.2: the symbol of each code, by length and number."""
    lines = (line for line in LENGTHS.read_text().splitlines() if not line.startswith("#"))
    lengths = [int(word) for line in lines for word in line.split()]
    symbols, code = {}, 0
    for n in range(1, max(lengths) + 1):
        code <<= 1
        for symbol in (i for i, length in enumerate(lengths) if length == n):
            symbols[n, code] = symbol
            code += 1
    return symbols


def read_stream(c, n_symbols):
    """11.3: the symbols of one stream, which `c` holds."""
    data = c.take(c.end - c.at, "stream")
    bits, n_bits, symbols = int.from_bytes(data, "little"), 8 * len(data), []
    at = 0
    for _ in range(n_symbols):
        n, code = 0, 0
        while (n, code) not in codebook():
            c.require(at < n_bits, "ends within a code")
            code = code << 1 | bits >> at & 1
            n, at = n + 1, at + 1
        symbols.append(codebook()[n, code])
    c.require(n_bits - at < 8 and bits >> at == 0, "bits after the last code")
    return symbols


def stream_lengths(n_values):
    """11.3: how many symbols each stream has."""
    lengths = []
    for start in range(0, n_values, 4096):
        n = min(4096, n_values - start)
        ends = [min(-(-n // 32) * i // 4 * 32, n) for i in range(5)]
        lengths += [end - begin for begin, end in zip(ends, ends[1:])]
    return lengths


def decode_ceresz2(c, extents, header):
    front, n_values = Front(c, extents, header), math.prod(extents)
    c.require(c.uint(8, "codebook") == CODEBOOK, "codebook is not that of the format")
    n_blocks = -(-n_values // BLOCK)
    flags = int.from_bytes(c.take(4 * -(-n_blocks // 32), "flags"), "little")
    c.require(flags >> n_blocks == 0, "flags beyond the last block")
    flagged = [block for block in range(n_blocks) if flags >> block & 1]
    masks = c.array("<u4", len(flagged), "masks")
    places = [BLOCK * block + k for block, mask in zip(flagged, masks.tolist()) for k in range(BLOCK) if mask >> k & 1]
    unpredictable = c.array("<i4", len(places), "unpredictable")
    lengths = stream_lengths(n_values)
    sizes = c.array("<u2", len(lengths), "sizes")
    symbols = []
    for length, size in zip(lengths, sizes.tolist()):
        symbols += read_stream(c.part(size, "stream"), length)
    c.require(c.at == c.end, "bytes after the last stream")
    deltas = np.zeros(BLOCK * n_blocks, np.int64)
    deltas[:n_values] = np.array(symbols) + FIRST
    deltas[places] = unpredictable
    return front.restore(deltas.reshape(n_blocks, BLOCK), n_values)
