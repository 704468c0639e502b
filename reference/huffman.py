"""Huffman codes and runs (docs/format.md, sections 8.2 to 8.4).

    read_lengths(coder, n_symbols)          the length of each symbol's code, None where it has none
    read_symbols(coder, c, lengths, n)      symbols of one code: sizes of their streams, then the streams
    decode_runs(c, values, digits, n)       run lengths

`c` is a cursor over the payload, `coder` a binary decoder.
"""

from .binary_coder import AdaptiveBit, NumberModel

MAX_BITS = 24
GROUP, BLOCK, STREAMS = 32, 4096, 4


# ---- 8.2 Lengths of codes ----

def check_complete(lengths, require):
    used = [n for n in lengths if n is not None]
    require(not used or sum(2**(MAX_BITS - n) for n in used) == 2**MAX_BITS, "not the lengths of a complete code")


def read_lengths(coder, n_symbols):
    require = coder.c.require
    n_coded = n_symbols - NumberModel().number(coder)
    require(n_coded >= 0, "codebook has more symbols than there are")
    has_code, used, history = [AdaptiveBit() for _ in range(4)], [], 3
    for symbol in range(n_coded):
        is_used = symbol + 1 == n_coded or has_code[history].decode(coder)
        history = history << 1 & 3 | int(is_used)
        if is_used:
            used.append(symbol)
    lengths = [None] * n_symbols
    if len(used) == 1:
        lengths[used[0]] = 0
    elif used:
        rises, last, off = [NumberModel() for _ in range(3)], (n_symbols.bit_length() - 1) // 2 + 1, 0
        for symbol in used:
            rise = rises[off].signed(coder)
            last += rise
            require(1 <= last <= MAX_BITS, "code has an impossible length")
            off = min(abs(rise), 2)
            lengths[symbol] = last
    check_complete(lengths, require)
    return lengths


# ---- 8.3 Streams ----

def codes_of(lengths):
    """(length, code) -> symbol; the first bit of a code is its most significant."""
    table, code, last = {}, 0, 0
    for n, symbol in sorted((n, symbol) for symbol, n in enumerate(lengths) if n is not None):
        code <<= n - last
        table[n, code] = symbol
        code, last = code + 1, n
    return table


def n_streams(n_symbols):
    return -(-n_symbols // BLOCK) * STREAMS


def stream_extents(n_symbols):
    """How many symbols each stream has."""
    extents = []
    for start in range(0, n_symbols, BLOCK):
        n = min(BLOCK, n_symbols - start)
        cuts = [min(-(-n // GROUP) * i // STREAMS * GROUP, n) for i in range(STREAMS + 1)]
        extents += [b - a for a, b in zip(cuts, cuts[1:])]
    return extents


def decode_streams(c, sizes, n_symbols, codebooks, classes=None):
    """Symbols from streams of these sizes; `classes` has the codebook of each group, all have the first without it."""
    tables = [codes_of(lengths) for lengths in codebooks]
    symbols = []
    for size, n in zip(sizes, stream_extents(n_symbols), strict=True):
        data = bytes(c.take(size, "stream of codes"))
        bits, at = int.from_bytes(data, "little"), 0
        for _ in range(n):
            table = tables[classes[len(symbols) // GROUP] if classes is not None else 0]
            c.require(table, "codebook without codes")
            length, code = 0, 0
            while (length, code) not in table:
                c.require(at < 8 * size, "stream of codes ends too early")
                code = code << 1 | bits >> at & 1
                length, at = length + 1, at + 1
            symbols.append(table[length, code])
        c.require(-(-at // 8) == size and bits >> at == 0, "stream of codes has the wrong length")
    return symbols


def read_sizes(coder, n):
    model, sizes, size = NumberModel(), [], 0
    for _ in range(n):
        size += model.signed(coder)
        coder.c.require(0 <= size < 2**16, "stream of codes has an impossible size")
        sizes.append(size)
    return sizes


def read_symbols(coder, c, lengths, n_symbols):
    return decode_streams(c, read_sizes(coder, n_streams(n_symbols)), n_symbols, [lengths])


# ---- 8.4 Run lengths ----

def decode_runs(c, values, digits, n_symbols):
    symbols, digits = [], iter(digits)
    for value in values:
        length, unit = 1, 1
        while True:
            digit = next(digits, None)
            c.require(digit is not None, "runs have the wrong lengths")
            c.require(digit != 0 or unit == 1, "length of a run has a superfluous digit")
            length += digit % 128 * unit
            unit *= 128
            c.require(length <= n_symbols - len(symbols), "runs have the wrong lengths")
            if digit < 128:
                break
        symbols += [value] * length
    c.require(len(symbols) == n_symbols and next(digits, None) is None, "runs have the wrong lengths")
    return symbols
