"""Encoder of Huffman codes and runs, written from docs/format.md, section 8. Codes need not be good ones."""


def random_lengths(rng, n_symbols, used=None):
    """A complete code of random symbols: leaves of a tree that is split at random."""
    used = rng.sample(range(n_symbols), rng.randint(1, min(n_symbols, 60))) if used is None else sorted(used)
    depths = [0]
    while len(depths) < len(used):
        depth = depths.pop(rng.randrange(len(depths)))
        if depth < 20:
            depths += [depth + 1] * 2
        else:
            depths.append(depth)
    lengths = [None] * n_symbols
    for symbol, depth in zip(used, depths):
        lengths[symbol] = depth
    return lengths


def write_lengths(coder, lengths):
    n, behind, has_code, rises = len(lengths), {}, [[2**15, 0] for _ in range(4)], [{} for _ in range(3)]
    n_coded = max((i + 1 for i in range(n) if lengths[i] is not None), default=0)
    coder.number(behind, n - n_coded)
    for i in range(n_coded - 1):
        bits = [1 if j < 0 else int(lengths[j] is not None) for j in (i - 2, i - 1)]
        coder.bit(has_code[2 * bits[0] + bits[1]], int(lengths[i] is not None))
    used = [i for i in range(n) if lengths[i] is not None]
    last, o = (len(bin(n)) - 3) // 2 + 1, 0
    for i in used if len(used) > 1 else ():
        r = lengths[i] - last
        coder.signed(rises[o], r)
        last, o = lengths[i], min(abs(r), 2)


def encode_streams(symbols, codebooks, classes=None):
    """Sizes of streams, and the streams."""
    codes = []
    for lengths in codebooks:
        book, code, last = {}, 0, 0
        for n, symbol in sorted((n, s) for s, n in enumerate(lengths) if n is not None):
            code <<= n - last
            book[symbol], last = format(code, f"0{n}b") if n else "", n
            code += 1
        codes.append(book)
    sizes, out = [], b""
    for block in range(0, len(symbols), 4096):
        m = min(4096, len(symbols) - block)
        g = (m + 31) // 32
        for i in range(4):
            text = ""
            for at in range(min(32 * (g * i // 4), m), min(32 * (g * (i + 1) // 4), m)):
                text += codes[classes[(block + at) // 32] if classes else 0][symbols[block + at]]
            data = int("0" + text[::-1], 2).to_bytes((len(text) + 7) // 8, "little")
            sizes.append(len(data))
            out += data
    return sizes, out


def write_symbols(coder, symbols, lengths):
    sizes, out = encode_streams(symbols, [lengths])
    model, before = {}, 0
    for size in sizes:
        coder.signed(model, size - before)
        before = size
    return out


def encode_runs(symbols):
    values, digits, at = [], [], 0
    while at < len(symbols):
        end = at
        while end < len(symbols) and symbols[end] == symbols[at]:
            end += 1
        values.append(symbols[at])
        n = end - at - 1
        while n >= 128:
            digits.append(n % 128 + 128)
            n //= 128
        digits.append(n)
        at = end
    return values, digits
