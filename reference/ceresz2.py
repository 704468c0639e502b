"""Codec `ceresz2` (docs/format.md, section 11)."""

import functools
import math
from pathlib import Path

import numpy as np

from .cuszp2 import BLOCK, Front
from .huffman import decode_streams, n_streams

# XXH3 of the 2000 lengths, a byte each (11.2).
CODEBOOK = 0x0a8bde6948c48ec0
LENGTHS = Path(__file__).parent.parent / "crates/pumice/assets/ceresz2-codebook.txt"
FIRST = -1000


@functools.cache
def code_lengths():
    """11.2: the length of each symbol's code."""
    lines = (line for line in LENGTHS.read_text().splitlines() if not line.startswith("#"))
    return [int(word) for line in lines for word in line.split()]


def decode_ceresz2(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    front, n_values = Front(c, extents, header), math.prod(extents)
    c.require(c.uint(8, "codebook") == CODEBOOK, "codebook is not that of the format")
    n_blocks = -(-n_values // BLOCK)
    flags = int.from_bytes(c.take(4 * -(-n_blocks // 32), "flags"), "little")
    c.require(flags >> n_blocks == 0, "flags beyond the last block")
    flagged = [block for block in range(n_blocks) if flags >> block & 1]
    masks = c.array("<u4", len(flagged), "masks")
    positions = [BLOCK * block + k for block, mask in zip(flagged, masks.tolist())
                 for k in range(BLOCK) if mask >> k & 1]
    unpredictable = c.array("<i4", len(positions), "unpredictable")
    sizes = c.array("<u2", n_streams(n_values), "sizes").tolist()
    symbols = decode_streams(c, sizes, n_values, [code_lengths()])
    c.require(c.at == c.end, "bytes after the last stream")
    deltas = np.zeros(BLOCK * n_blocks, np.int64)
    deltas[:n_values] = np.array(symbols) + FIRST
    deltas[positions] = unpredictable
    return front.restore(deltas.reshape(n_blocks, BLOCK), n_values)
