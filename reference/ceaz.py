"""Codec of the preset `ceaz`: docs/format.md, section 13."""

from functools import cache
from pathlib import Path

from .binary_coder import BinaryDecoder
from .cursor import Cursor
from .huffman import read_lengths, read_symbols
from .quant_codes import N_CODES, QuantCodes

CODEWORDS = Path(__file__).parent.parent / "crates/pumice/assets/ceaz-codewords.bin"
OFFLINE, UPDATED, REBUILT = range(3)


@cache
def offline_lengths():
    """13.2: the codewords that are part of the format; the first four bytes do not matter to a decoder."""
    coder = BinaryDecoder(Cursor(CODEWORDS.read_bytes()[4:], "offline codewords"))
    lengths = read_lengths(coder, N_CODES)
    coder.finish()
    return lengths


def decode_ceaz(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    codewords = c.uint(1, "codewords")
    c.require(codewords in (OFFLINE, UPDATED, REBUILT), f"unknown codewords {codewords}")
    front = QuantCodes(c, extents, header)
    lengths = offline_lengths() if codewords == OFFLINE else read_lengths(front.coder, N_CODES)
    return front.restore(c, read_symbols(front.coder, c, lengths, front.n_values))
