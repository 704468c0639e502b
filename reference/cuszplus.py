"""Codec of the preset `cuszplus`: docs/format.md, section 12."""

from .binary_coder import NumberModel
from .huffman import decode_runs, read_lengths, read_symbols
from .quant_codes import N_CODES, QuantCodes

HUFFMAN, RUNS, CODED_RUNS = range(3)


def decode_cuszplus(c, extents, header):
    """The bit patterns of a chunk, flat in C order."""
    workflow = c.uint(1, "workflow")
    c.require(workflow in (HUFFMAN, RUNS, CODED_RUNS), f"unknown workflow {workflow}")
    front = QuantCodes(c, extents, header)
    coder, n_values = front.coder, front.n_values
    if workflow == HUFFMAN:
        codes = read_symbols(coder, c, read_lengths(coder, N_CODES), n_values)
        return front.restore(c, codes)
    model = NumberModel()
    n_runs, n_digits = model.number(coder), model.number(coder)
    c.require(max(n_runs, n_digits) <= n_values, "more runs than values")
    if workflow == RUNS:
        values = c.array("<u2", n_runs, "values of runs").tolist()
        c.require(all(value < N_CODES for value in values), "run has a code that does not exist")
        digits = list(c.take(n_digits, "lengths of runs"))
    else:
        of_values, of_digits = read_lengths(coder, N_CODES), read_lengths(coder, 256)
        values = read_symbols(coder, c, of_values, n_runs)
        digits = read_symbols(coder, c, of_digits, n_digits)
    return front.restore(c, decode_runs(c, values, digits, n_values))
