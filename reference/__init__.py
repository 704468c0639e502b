"""Independent decoder of the Pumice format, version 1.

This package is the executable companion of docs/format.md: it is written from that page alone. The section numbers in
its comments are those of the page, and names are the page's field names. It favours being checkable over being fast.
It needs Python 3.11 and numpy.

    decode(data)             the whole array
    decode_chunk(data, n)    the values of chunk n, reading no other frame
    chunk_box(data, n)       the box of chunk n: a tuple of slices, so decode(data)[chunk_box(data, n)] is chunk n
    info(data)               header and index, as values that JSON can hold

Every violation of the format raises FormatError. On the command line, from the repository root:

    python -m reference IN.pum -o OUT.npy
"""

from .container import chunk_box, decode, decode_chunk, info
from .cursor import FormatError

__all__ = ["FormatError", "chunk_box", "decode", "decode_chunk", "info"]
