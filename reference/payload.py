"""What payloads of several codecs share: their least size (docs/format.md, section 3) and the padding to it.
"""

import math


def least_payload(n_values):
    """The fewest bytes that a payload has."""
    return max(3, n_values // 2**14)


def check_size(c, extents):
    """Refuses a payload of no values, or of fewer bytes than its values need; the number of values."""
    n_values = math.prod(extents)
    c.require(n_values > 0, "codec without elements")
    c.require(c.end >= least_payload(n_values), f"{c.end} bytes are too few for {n_values} values")
    return n_values


def check_end(c, n_values):
    """Refuses bytes after the end, except for the zeros that pad a payload to its least size."""
    rest = c.take(c.end - c.at, "padding")
    c.require(not any(rest) and (len(rest) == 0 or c.end == least_payload(n_values)), "bytes after the end")
