"""Encoder of codec `fast`, written from docs/format.md, section 6.

It returns with each payload the bit patterns that it must decode to, and makes random use of whatever freedom the page
leaves: widths that are larger than needed, stray mask bits and residuals on padding, wide bases for small numbers.
"""

import itertools
import math
import struct

from reference.fast import EXACT, QUANTISED, RAW

from .container_encoder import F32, STEP, u64


def differences(t, q, extents, predictor):
    """Residuals of q, a list [ez][ey][ex] in C order: the inverse of section 6.3."""
    ez, ey, ex = extents
    passes = [((0, 0, 1), 1)] if predictor & 8 else []
    passes += [((0, 0, 1), (predictor >> 4) + 1)] if predictor & 1 else []
    passes += [((0, 1, 0), 1)] if predictor & 2 else []
    passes += [((1, 0, 0), 1)] if predictor & 4 else []
    for (dz, dy, dx), lag in passes:
        old = dict(zip(itertools.product(range(ez), range(ey), range(ex)), q))
        q = [value - old.get((z - dz, y - dy, x - dx * lag), 0) for (z, y, x), value in old.items()]
    return [t.signed(value) for value in q]


def bit_bytes(bits):
    bits = list(bits)
    return bytes(sum(bit << i for i, bit in enumerate(bits[at:at + 8])) for at in range(0, len(bits), 8))


def encode_mask(rng, masked, real, n_super):
    """`masked` and `real` are sets of linear indices."""
    any_, mixed, words = [], [], b""
    for s in range(n_super):
        here = {i for i in range(64 * s, 64 * s + 64) if i in real}
        hit = here & masked
        some = bool(hit)
        part = some and (hit != here or rng.random() < 0.2)
        any_.append(some)
        mixed.append(part)
        if part:
            stray = rng.getrandbits(64)
            words += u64(sum(1 << i for i in range(64) if 64 * s + i in hit or
                             (64 * s + i not in here and stray >> i & 1)))
    return bit_bytes(any_) + bit_bytes(mixed) + words


def encode_planes(rng, t, residuals, n_groups, n_super, sparse):
    codes = [(r << 1 ^ r >> (t.bits - 1)) % t.modulus for r in residuals]
    groups = [codes[8 * g:8 * g + 8] for g in range(n_groups)]
    supers = [groups[8 * s:8 * s + 8] for s in range(n_super)]
    present = [not sparse or any(map(any, s)) or rng.random() < 0.1 for s in supers]
    headers, delta_planes, planes = b"", b"", b""
    for s in itertools.compress(supers, present):
        slack = rng.random() < 0.3
        widths = [min(t.bits, max(g).bit_length() + (slack and rng.randrange(3))) for g in s]
        least = min(31, min(widths))
        least = rng.randint(0, least) if slack else least
        deltas = [width - least for width in widths]
        n_delta = min(7, max(deltas).bit_length() + (slack and rng.randrange(3)))
        headers += bytes([least | n_delta << 5])
        delta_planes += bytes(sum((delta >> j & 1) << g for g, delta in enumerate(deltas)) for j in range(n_delta))
        for group, width in zip(s, widths):
            planes += bytes(sum((code >> k & 1) << i for i, code in enumerate(group)) for k in range(width))
    return (bit_bytes(present) if sparse else b"") + headers + delta_planes + planes


def pad4(body):
    return body + bytes(-len(body) % 4)


def encode_tile(rng, t, extents, predictor, kind, q, base, fills=(), masks=((), ()), escapes=None, step=STEP,
                sparse=False, no_planes=False, wide_base=False):
    """Body of a quantised or exact tile and the bits it stands for. Indices of masks and escapes are linear ones."""
    ez, ey, ex = extents
    row = 8 * -(-ex // 8)
    n_groups = ez * ey * row // 8
    n_super = -(-n_groups // 8)
    real = [i for i in range(8 * n_groups) if i % row < ex]
    residuals = dict(zip(real, differences(t, [value - base for value in q], extents, predictor)))
    if not no_planes and rng.random() < 0.2:
        for i in set(range(8 * n_groups)) - residuals.keys():
            residuals[i] = rng.randrange(-t.modulus // 2, t.modulus // 2) >> rng.randrange(t.bits)
    wide_base = wide_base or not -2**23 <= base < 2**23
    flags = kind | wide_base << 2 | sparse << 3 | no_planes << 4 | bool(escapes) << 7
    flags |= bool(masks[0]) << 5 | bool(masks[1]) << 6
    body = bytes([flags]) + (bytes(3) + t.pack(base) if wide_base else (base % 2**24).to_bytes(3, "little"))
    bits = {i: t.quantised(value, step) if kind == QUANTISED else t.exact(value) for i, value in zip(real, q)}
    for fill, masked in enumerate(masks):
        if masked:
            body += encode_mask(rng, set(masked), set(real), n_super)
            bits.update((i, fills[fill]) for i in masked)
    if escapes:
        body += struct.pack("<H", len(escapes)) + b"".join(struct.pack("<H", i) for i in sorted(escapes))
        body += b"".join(t.pack(escapes[i]) for i in sorted(escapes))
        bits.update(escapes)
    if no_planes:
        assert not any(residuals.values())
    else:
        body += encode_planes(rng, t, [residuals.get(i, 0) for i in range(8 * n_groups)], n_groups, n_super, sparse)
    return pad4(body), [bits[i] for i in real]


KINDS_LOSSY = ("zero", "quantised", "quantised", "quantised", "flat", "exact", "exact flat", "raw")
KINDS_LOSSLESS = ("zero", "exact", "exact", "exact flat", "raw")


def random_tile(rng, t, extents, predictor, fills, step):
    kind = rng.choice(KINDS_LOSSY if step else KINDS_LOSSLESS)
    n = math.prod(extents)
    if kind == "zero":
        return b"", [0] * n
    if kind == "raw":
        bits = [rng.getrandbits(t.bits) for _ in range(n)]
        return bytes([RAW, 0, 0, 0]) + b"".join(map(t.pack, bits)), bits
    limit = t.bits - 1 if kind.startswith("exact") else (22 if t is F32 else 51)
    centre = rng.randrange(-2**limit, 2**limit) >> rng.randrange(limit)
    q = [centre] * n
    if not kind.endswith("flat"):
        for run in range(0, n, 64):  # runs of equal values make supergroups without planes
            width = rng.choice((0, 0, 3, 8, limit, rng.randrange(limit)))
            for i in range(run, min(run + 64, n)):
                value = centre + (rng.randrange(-2**width, 2**width) if width else 0)
                q[i] = max(-2**limit + 1, min(2**limit - 1, value))
    base = centre if kind.endswith("flat") or rng.random() < 0.7 else 0
    row = 8 * -(-extents[2] // 8)
    real = [i for i in range(extents[0] * extents[1] * row) if i % row < extents[2]]
    masks, escapes = [(), ()], None
    if not kind.startswith("exact"):
        for fill in range(len(fills)):
            if rng.random() < 0.4:
                first = rng.randrange(len(real))
                masks[fill] = real[first:first + rng.choice((1, 40, 200, 4096))]
        if rng.random() < 0.4:
            chosen = rng.sample(real, rng.choice((1, min(len(real), 20), len(real))))
            escapes = {i: rng.getrandbits(t.bits) for i in chosen}
    no_planes = q == [base] * n and rng.random() < 0.7
    return encode_tile(rng, t, extents, predictor, EXACT if kind.startswith("exact") else QUANTISED, q, base, fills,
                       masks, escapes, step, sparse=not no_planes and rng.random() < 0.6, no_planes=no_planes,
                       wide_base=rng.random() < 0.2)


def fast_payload(parameters, bodies):
    words = [len(body) // 4 for body in bodies]
    starts = [0] + list(itertools.accumulate(words))
    out = bytes(parameters) + b"".join(struct.pack("<I", s) for s in starts[:-1][::32])
    return pad4(out + b"".join(struct.pack("<H", w) for w in words)) + b"".join(bodies)


def encode_fast(rng, t, extents, axes, tile_log2, predictor, fills=(), step=STEP, tile=random_tile):
    """Payload of a chunk and its bits. axes = (x_axes, y_axes, z_axes), tile_log2 = (x, y, z)."""
    rest = list(extents)
    sizes = []
    for count in axes:
        sizes.append(math.prod(rest[len(rest) - count:]))
        del rest[len(rest) - count:]
    (nx, ny, nz), nb = sizes, math.prod(rest)
    tx, ty, tz = (1 << log2 for log2 in tile_log2)
    bodies, out = [], {}
    for b in range(nb):
        for z, y, x in itertools.product(range(0, nz, tz), range(0, ny, ty), range(0, nx, tx)):
            clipped = min(tz, nz - z), min(ty, ny - y), min(tx, nx - x)
            body, bits = tile(rng, t, clipped, predictor, fills, step)
            bodies.append(body)
            for (i, j, k), value in zip(itertools.product(*map(range, clipped)), bits):
                out[((b * nz + z + i) * ny + y + j) * nx + x + k] = value
    payload = fast_payload([predictor, *axes, *tile_log2, 0], bodies)
    return payload, [out[i] for i in range(len(out))]
