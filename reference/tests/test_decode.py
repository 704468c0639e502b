"""Tests of the container and of the codecs fast and small.

The streams come from a second implementation of docs/format.md below: an encoder that works value by value on Python
integers and floats, shares nothing with the decoder but its XXH3 (which has its own vectors), and returns with each
stream the bit patterns that it must decode to. It makes random use of whatever freedom the page leaves: widths that
are larger than needed, stray mask bits and residuals on padding, wide bases for small numbers. Codec `small` is encoded
with random codes and parameters, every point by its place in the whole array and not by bands; of mixing only the
refusals are tested here, since the streams in assets/golden use all of it.
"""

import hashlib
import itertools
import json
import math
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from reference import container as d
from reference import small

ROOT = Path(__file__).parent.parent.parent


# ---- Encoder ----

class T:
    """Scalar arithmetic of an element type, on integers that stand for its bit patterns."""

    def __init__(self, code, size, letter, m_t):
        self.code, self.size, self.letter, self.m_t = code, size, letter, m_t
        self.bits = 8 * size
        self.modulus = 1 << self.bits
        self.m = self.to_bits(m_t)

    def to_bits(self, value):
        return int.from_bytes(struct.pack("<" + self.letter, value), "little")

    def from_bits(self, bits):
        return struct.unpack("<" + self.letter, (bits % self.modulus).to_bytes(self.size, "little"))[0]

    def round(self, value):
        # For f32, operations in double followed by this are exact: 53 >= 2 * 24 + 2 bits.
        return self.from_bits(self.to_bits(value))

    def signed(self, n):
        n %= self.modulus
        return n - self.modulus if n >= self.modulus // 2 else n

    def quantised(self, q, step):
        return self.to_bits(self.round(self.round(self.from_bits(q + self.m) - self.m_t) * step))

    def exact(self, q):
        return (q ^ (self.modulus // 2 - 1 if self.signed(q) < 0 else 0)) % self.modulus

    def pack(self, bits):
        return (bits % self.modulus).to_bytes(self.size, "little")


F32, F64 = T(1, 4, "f", 1.5 * 2**23), T(2, 8, "d", 1.5 * 2**52)
STEP = 0.0078125 * 1.25
NAN_FILLS = {F32: (0x7FC00000, 0xFF812345), F64: (0x7FF8000000000000, 0xFFF0000000012345)}


def varint(n):
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def u64(n):
    return n.to_bytes(8, "little")


def header(t, shape, chunk_shape=None, bound=1, fills=(), attributes=(), step=STEP, **over):
    """`over` replaces single fields, to make invalid headers; the checksum is that of the result."""
    single_chunk = chunk_shape is None
    flags = single_chunk | over.get("n_fills", len(fills)) << 1 | bool(attributes) << 3
    out = bytes([t.code, over.get("flags", flags), over.get("preset", 1), bound, over.get("rank", len(shape))])
    out = over.get("dtype", out[:1]) + out[1:]
    out += b"".join(map(varint, shape if single_chunk else shape[1:]))
    out += b"".join(map(varint, chunk_shape or ()))
    if bound:
        out += struct.pack("<d", over.get("requested_bound", 0.01))
        out += struct.pack("<d", over.get("abs_bound", 0.02)) if bound in (2, 4, 5, 6) else b""
        out += struct.pack("<" + t.letter, step)
    out += b"".join(map(t.pack, fills))
    out += varint(len(attributes)) if attributes else b""
    for text in itertools.chain(*attributes):
        raw = text if isinstance(text, bytes) else text.encode()
        out += varint(len(raw)) + raw
    out += over.get("extra", b"")
    size = 8 + len(out) + 4
    versions = bytes([over.get("version", 1), over.get("min_reader_version", 1)])
    out = b"PUM\x1a" + versions + struct.pack("<H", size) + out
    return out + u64(d.xxh3(out))[:4]


def payload_hash(payload):
    hashes = [d.xxh3(payload[i:i + 4096]) for i in range(0, len(payload), 4096)]
    return hashes[0] if len(hashes) == 1 else d.xxh3(b"".join(map(u64, hashes)))


def frame(codec, chunk_id, payload, first_row=0, rows=1, single_chunk=False):
    fields = bytes([codec]) + u64(chunk_id) + u64(first_row) + u64(rows) + u64(len(payload))
    head = b"CHNK" + bytes([codec]) + varint(chunk_id)
    head += b"" if single_chunk else varint(first_row) + varint(rows)
    return head + varint(len(payload)) + u64(d.xxh3(fields + u64(payload_hash(payload)))) + payload


def only_frame(codec, shape, payload, chunk_id=0):
    return frame(codec, chunk_id, payload, 0, shape[0] if shape else 1, True)


def tail(offset, rows, frame_sizes):
    index = b"INDX" + varint(len(rows)) + b"".join(map(varint, rows))
    index += varint(len(frame_sizes)) + b"".join(map(varint, frame_sizes))
    index += u64(d.xxh3(index))
    return index + u64(offset) + u64(len(index)) + b"PUMF"


def chunked(head, rows, frames):
    body = head + b"".join(frames)
    return body + tail(len(body), rows, list(map(len, frames)))


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
    bits = {i: t.quantised(value, step) if kind == d.QUANTISED else t.exact(value) for i, value in zip(real, q)}
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
        return bytes([d.RAW, 0, 0, 0]) + b"".join(map(t.pack, bits)), bits
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
    return encode_tile(rng, t, extents, predictor, d.EXACT if kind.startswith("exact") else d.QUANTISED, q, base, fills,
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


def single(t, shape, payload, codec=d.CODEC_FAST, **options):
    return header(t, shape, **options) + only_frame(codec, shape, payload)


def bits_of(array):
    return np.ascontiguousarray(array).view(f"<u{array.itemsize}").reshape(-1).tolist()


# ---- Encoder of codec small ----

class BinaryEncoder:
    """Section 7.3; numbers go through models of the same shape as a decoder's."""

    def __init__(self):
        self.low, self.high, self.out = 0, 2**32 - 1, bytearray()

    def encode(self, bit, p_one):
        split = self.low + (self.high - self.low) * p_one // 65536
        self.low, self.high = (self.low, split) if bit else (split + 1, self.high)
        while self.low >> 24 == self.high >> 24:
            self.out.append(self.low >> 24)
            self.low, self.high = self.low % 2**24 * 256, self.high % 2**24 * 256 + 255

    def bit(self, model, bit):
        """A model is [probability, number of bits seen]."""
        self.encode(bit, max(32, min(model[0], 65504)))
        model[0] += int(2 * (65535 * bit - model[0]) / (2 * model[1] + 3))
        model[1] = min(model[1] + 1, 60)

    def raw(self, value, n):
        for i in range(n - 1, -1, -1):
            self.encode(value >> i & 1, 2**15)

    def number(self, model, value):
        """A model is a dictionary, filled as it is used."""
        digits = bin(value + 1)[3:]
        n = len(digits)
        for i in range(min(n + 1, 62)):
            self.bit(model.setdefault(i, [2**15, 0]), int(i < n))
        for i, digit in enumerate(map(int, digits)):
            if i < 2:
                self.bit(model.setdefault((n, digits[:i]), [2**15, 0]), digit)
            else:
                self.encode(digit, 2**15)

    def signed(self, model, value):
        self.number(model, abs(value))
        if value:
            self.bit(model.setdefault("sign", [2**15, 0]), int(value < 0))

    def finish(self):
        for n in range(5):
            unit = 256**(4 - n)
            cut = -(-self.low // unit) * unit
            if cut <= self.high:
                return bytes(self.out) + cut.to_bytes(5, "big")[1:1 + n]


class SmallEncoder:
    """One chunk of random codes: `payload`, and `bits` in C order of the working array `dims`."""

    def __init__(self, rng, t, dims, interpolated, fills=(), step=STEP, scale=4, wide=False, active=None):
        self.rng, self.t, self.dims, self.step, self.wide = rng, t, dims, step, wide
        self.active = rng.choice((15, 15, 8, 12, 5, 0)) if active is None else active
        self.n_lanes = []  # of each band
        self.coder = BinaryEncoder()
        self.n = math.prod(dims)
        self.kinds = [0] * self.n
        exact = sorted(rng.sample(range(self.n), rng.choice((0, 0, min(self.n, 3)))))
        flags = interpolated | bool(fills) << 2 | bool(exact) << 3 | wide << 4
        if fills:
            self.encode_masks(len(fills))
        if exact:
            count, gap = {}, {}
            self.coder.number(count, len(exact))
            for before, place in zip([-1, *exact], exact):
                self.coder.number(gap, place - before - 1)
        self.codes = [0 if kind else int(rng.choice((0, 1, 1, 3, 12)) * rng.gauss(0, scale)) for kind in self.kinds]
        self.codes = [c if rng.random() < 0.97 or not c else c * 2**rng.randrange(24) for c in self.codes]
        self.points = []  # (level, odd, index in C order) in the order of bands
        values = self.interpolate() if interpolated else self.lattice()
        body = self.encode_streams(3 if interpolated else 1)
        bits = [fills[kind - 1] if kind else t.to_bits(value) for kind, value in zip(self.kinds, values)]
        for place in exact:
            bits[place] = rng.getrandbits(t.bits)
        self.bits = bits
        parameters = self.coder.finish()
        exact_values = b"".join(t.pack(bits[place]) for place in exact)
        self.payload = bytes([flags]) + varint(len(parameters)) + parameters + exact_values + varint(len(body)) + body

    def place(self, index):
        place = []
        for extent in reversed(self.dims):
            index, i = divmod(index, extent)
            place.insert(0, i)
        return tuple(place)

    def index(self, place):
        index = 0
        for i, extent in zip(place, self.dims):
            index = index * extent + i
        return index

    def exists(self, place):
        return all(0 <= i < extent for i, extent in zip(place, self.dims))

    def encode_masks(self, n_fills):
        is_fill, is_second = {}, {}
        for index in range(self.n):
            t, z, y, x = self.place(index)
            near = [(t, z, y, x - 1), (t, z, y - 1, x), (t, z - 1, y, x), (t, z, y - 1, x - 1), (t, z, y - 1, x + 1),
                    (t, z, y, x - 2)]
            near = [self.kinds[self.index(p)] if self.exists(p) else 0 for p in near]
            same = self.rng.random() < 0.8 and index > 0
            kind = self.kinds[index - 1] if same else self.rng.choice((0, 0, 0, *range(1, n_fills + 1)))
            self.coder.bit(is_fill.setdefault(tuple(map(bool, near)), [2**15, 0]), int(kind > 0))
            if kind and n_fills > 1:
                first = next(filter(None, near), 0)
                self.coder.bit(is_second.setdefault(first, [2**15, 0]), kind - 1)
            self.kinds[index] = kind

    def lattice(self):
        origin = self.rng.choice((0, 5, -10**6))
        self.coder.signed({}, origin)
        is_used, numbers, k = [2**15, 0], {}, [0]
        for _ in range(17):
            whole = self.rng.random() < 0.3
            value = self.rng.choice((0, 0, self.rng.randrange(-3, 4) if whole else self.rng.randrange(-300, 300)))
            self.coder.bit(is_used, int(value != 0))
            if value:
                self.coder.encode(int(whole), 2**15)
                self.coder.signed(numbers, value)
            k.append(1024 * value if whole else value)
        integers = []
        for index in range(self.n):
            place = self.place(index)
            back = [tuple(i - o for i, o in zip(place, offset)) for offset in small.OFFSETS]
            near = [integers[self.index(p)] if self.exists(p) else None for p in back]
            base = next((near[i] for i in (0, 3, 7, 14) if near[i] is not None), None)
            prediction = 0
            if base is not None:
                terms = (k[i] * (near[i] - base) for i in range(1, 18) if near[i] is not None)
                prediction = base + (sum(terms) + 512) // 1024
            integers.append(F32.signed(self.codes[index] + prediction))
            self.points.append((0, 0, index))
        return [self.t.from_bits(self.t.quantised(i + origin, self.step)) for i in integers]

    def interpolate(self):
        t, rng, coder = self.t, self.rng, self.coder
        scale = rng.randrange(4)
        for value, n in ((self.active, 4), (scale, 2), (t.to_bits(self.step), t.bits)):
            coder.raw(value, n)
        strides, levels = [1] * 4, []
        while True:
            extents = [-(-extent // stride) for extent, stride in zip(self.dims, strides)]
            halved = [a for a in range(4) if self.active >> a & 1 and extents[a] >= 4]
            if not halved or math.prod(extents) <= 64:
                break
            levels.append((strides, halved))
            strides = [s * (2 if a in halved else 1) for a, s in enumerate(strides)]
        values = {}
        ratio, most = ((1.0, 1.0), (1.25, 2.0), (1.5, 3.0), (1.75, 4.0))[scale]
        divisors = list(itertools.accumulate(levels, lambda divisor, _: min(divisor * ratio, most), initial=1.0))

        def add(a, b):
            return t.round(a + b)

        def restore(place, prediction, level):
            index = self.index(place)
            step = t.round(self.step / divisors[level])
            values[place] = add(prediction, t.round(t.round(float(self.codes[index])) * step))

        before = row = 0.0
        for place in itertools.product(*(range(0, e, s) for e, s in zip(self.dims, strides))):
            prediction = row if place[3] == 0 else before
            restore(place, prediction, len(levels))
            before = values[place]
            row = before if place[3] == 0 else row
            self.points.append((len(levels), 0, self.index(place)))
        is_fitted, numbers = [2**15, 0], {}
        for level, (strides, halved) in reversed(list(enumerate(levels))):
            subsets = [s for n in range(1, 5) for s in itertools.combinations(halved, n)]
            for odd in sorted(subsets, key=lambda s: (len(s), sum(1 << a for a in s))):
                k = [0] * (3 * len(odd) + len(odd) * (len(odd) - 1) // 2)
                fitted = rng.random() < 0.6
                coder.bit(is_fitted, int(fitted))
                if fitted:
                    k[1:] = [rng.choice((0, rng.randrange(-200, 200))) for _ in k[1:]]
                    for value in k[1:]:
                        coder.signed(numbers, value)
                else:
                    kernel, along = rng.randrange(3), rng.randrange(len(odd) + 1) if len(odd) > 1 else 0
                    coder.raw(kernel, 2)
                    if len(odd) > 1:
                        coder.raw(along, 3)
                    for i in range(len(odd)):
                        if along in (0, i + 1):
                            k[3 * i:3 * i + 3] = [int(v / (1 if along else len(odd))) for v in small.KERNELS[kernel]]
                k[0] = 1024 - sum(k[1:])
                starts = [strides[a] if a in odd else 0 for a in range(4)]
                steps = [s * (2 if a in halved else 1) for a, s in enumerate(strides)]
                for place in itertools.product(*map(range, starts, self.dims, steps)):
                    self.points.append((level, sum(1 << a for a in odd), self.index(place)))
                    prediction, terms = 0.0, iter(k)
                    for a in odd:
                        for tap in range(3):
                            c = t.round(next(terms) / 2048)
                            far = 1 + 2 * tap
                            u, w = (self.on_line(values, place, a, strides[a], by) for by in (-far, far))
                            if c:
                                prediction = add(prediction, t.round(c * add(u, w)))
                    for a, b in itertools.combinations(odd, 2):
                        c = t.round(next(terms) / 4096)
                        for da in (-1, 1) if c else ():
                            u, w = (values[self.corner(place, {a: da * strides[a], b: db * strides[b]})]
                                    for db in (-1, 1))
                            prediction = add(prediction, t.round(c * add(u, w)))
                    restore(place, prediction, level)
        return [values[self.place(index)] for index in range(self.n)]

    def corner(self, place, moves):
        """The point so far away; beyond the end as far the other way."""
        return tuple(i + (move if i + move < extent else -move)
                     for i, extent, move in zip(place, self.dims, (moves.get(a, 0) for a in range(4))))

    def on_line(self, values, place, axis, stride, by):
        """The value `by` strides away along an axis, where there is one each two strides from 0 on."""
        t = self.t
        line = [values[place[:axis] + (i,) + place[axis + 1:]] for i in range(0, self.dims[axis], 2 * stride)]
        j = (place[axis] + by * stride) // (2 * stride)
        if 0 <= j < len(line):
            return line[j]
        if j == -1 and len(line) >= 3:
            return t.round(t.round(3 * t.round(line[0] - line[1])) + line[2])
        a, b, distance = (line[0], line[1], -j) if j < 0 else (line[-1], line[-2], j - len(line) + 1)
        return t.round(a + t.round(distance * t.round(a - b)))

    def encode_streams(self, n_groups):
        """Section 7.6 for bands that all share one stream, and 7.7."""
        rng, coder = self.rng, self.coder
        weights = [[rng.choice((0, rng.randrange(256), rng.randrange(30))) for _ in range(8)] for _ in range(n_groups)]
        for value in itertools.chain(*weights):
            coder.raw(value, 8)
        # Slots are taken from the decoder; that they have all tokens is checked by encoding with them.
        seed, alone = rng.random(), BinaryEncoder()
        for encoder in coder, alone:
            self.encode_model(encoder, random.Random(seed), n_groups)
        slots = small.read_model(small.BinaryDecoder(d.Cursor(alone.finish(), "model")), 60 * n_groups)
        tables = [slots[60 * group:60 * group + 60] for group in range(n_groups)]
        symbols, raws = [], []
        for (level, odd), points in itertools.groupby(self.points, lambda point: point[:2]):
            places = [self.place(index) for _, _, index in points]
            axes = [sorted({place[a] for place in places}) for a in range(4)]
            dims = [len(axis) for axis in axes]
            group = 0 if n_groups == 1 else 2 if odd == 0 else min(level, 2)
            table, w = tables[group], weights[group]
            extents = (dims[0] * dims[1], dims[2], dims[3])
            parts = parts_of(extents, self.wide)
            self.n_lanes.append(math.prod(parts))
            order = []
            for local in itertools.product(*map(range, dims)):
                at = (local[0] * dims[1] + local[1], local[2], local[3])
                part = [next(j for j in range(k) if i < e * (j + 1) // k) for i, e, k in zip(at, extents, parts)]
                lane = (part[0] * parts[1] + part[1]) * parts[2] + part[2]
                plane, row, x = (i - e * j // k for i, e, j, k in zip(at, extents, part, parts))  # within the lane

                def magnitude(place):
                    return min(abs(self.codes[self.index(place)]), 2**19 - 1)

                def back(planes, rows, columns=0):
                    """Magnitude of the code so far back in the band; 0 beyond the columns."""
                    volume, plane = divmod(at[0] - planes, dims[1])
                    there = (volume, plane, at[1] - rows, at[2] - columns)
                    return magnitude([axes[a][i] for a, i in enumerate(there)]) if 0 <= there[3] < dims[3] else 0

                place = tuple(axes[a][i] for a, i in enumerate(local))
                total, left, heirs = w[7], 0, []
                for exists, weight, whole, distance in (
                        (row >= 1, w[2], w[2] + 2 * w[3], (0, 1)),
                        (plane >= 1 and local[1] >= 1, w[4], w[4], (1, 0)),
                        (plane >= dims[1], w[5], w[5], (dims[1], 0))):
                    if exists:
                        heirs.append(back(*distance))
                        total += weight * heirs[-1]
                    else:
                        left += whole
                total += w[3] * (back(0, 1, 1) + back(0, 1, -1)) if row >= 1 else 0
                if odd == 0:
                    total += w[6] * back(0, 2) if row >= 2 else 0
                    left += w[6] if row < 2 else 0
                for a in range(4):
                    if odd >> a & 1:
                        stride = axes[a][0]
                        sides = [magnitude(self.corner(place, {a: side * stride})) for side in (-1, 1)]
                        total += w[6] * sum(sides)
                        heirs.append(sides[0])
                total += left * next(iter(heirs), 0)
                index = self.index(place)
                for distance, weight in ((1, w[0]), (2, w[1])):
                    if x >= distance:
                        token = token_of(self.codes[self.index((*place[:3], axes[3][at[2] - distance]))])[0]
                        total += weight * min(small.LEAST[token], 7 * 2**16)
                v = total + 4
                context = 58 if self.kinds[index] else 2 * v.bit_length() - 6 + (v >> v.bit_length() - 2 & 1)
                order.append(((plane, row), x, lane, table[context], *token_of(self.codes[index])))
            order.sort(key=lambda o: o[:3])
            symbols += [(lane, slots, token) for _, _, lane, slots, token, _, _ in order]
            order.sort(key=lambda o: (o[0], o[2], o[1]))
            raws += [(raw, n) for *_, raw, n in order]
        states, words, ranges = [2**16] * (16 if self.wide else 4), [], {}
        for lane, slots, token in reversed(symbols):
            if id(slots) not in ranges:
                tokens = [entry[0] for entry in slots]
                ranges[id(slots)] = {token: (tokens.index(token), tokens.count(token)) for token in set(tokens)}
            start, frequency = ranges[id(slots)][token]
            x = states[lane]
            if x >= frequency << 20:
                words.insert(0, x % 65536)
                x >>= 16
            states[lane] = x // frequency * 4096 + x % frequency + start
        all_raw = n_raw = 0
        for raw, n in raws:
            all_raw |= raw << n_raw
            n_raw += n
        n_raw = -(-n_raw // 8)
        body = varint(len(words)) + varint(n_raw) + struct.pack(f"<{len(states)}I{len(words)}H", *states, *words)
        return body + all_raw.to_bytes(n_raw, "little")

    @staticmethod
    def encode_model(coder, rng, n_groups):
        """Distributions in which every token occurs, at random levels, and one of them for each context."""
        n = rng.randrange(1, 4)
        coder.number({}, n - 1)
        last, occurs, step_log, steps = {}, [2**15, 0], {}, [{} for _ in range(6)]
        for i in range(n):
            coder.signed(last, 108 if i == 0 else 0)
            for _ in range(128):
                coder.bit(occurs, 1)
            coder.signed(step_log, -2 if i == 0 else 0)
            off = 0
            for token in range(129):
                step = rng.choice((0, 0, 1, -2, 5))
                coder.signed(steps[3 * (token in range(2, 17, 2)) + off], step)
                off = min(abs(step), 2)
        rises, numbers = [{}, {}], []
        for i in range(60 * n_groups):
            expected = 0 if i == 0 else numbers[-1] if i < 60 else numbers[-60]
            if i > 60 and i % 60:
                expected = max(0, min(n - 1, numbers[-1] + numbers[-60] - numbers[-61]))
            numbers.append(rng.randrange(n) if rng.random() < 0.2 else expected)
            coder.signed(rises[i >= 60], numbers[-1] - expected)


def parts_of(extents, wide):
    """How many parts planes, rows and columns of a piece are cut into (7.6)."""
    n_lanes = 16 if wide and math.prod(extents) >= 2**12 else 4

    def cost(parts):
        edges = [2**16 * (k - 1) // max(e, 1) for k, e in zip(parts, extents)]
        idle = [2**16 * (k * -(-e // k) - e) // max(e, 1) for k, e in zip(parts, extents)]
        return 3 * edges[0] + 4 * edges[1] + 28 * edges[2] + sum(idle) // 4

    powers = (1, 2, 4, 8, 16)
    ways = [parts for parts in itertools.product(powers, repeat=3) if math.prod(parts) == n_lanes]
    return min(ways, key=lambda parts: (cost(parts), parts))


def token_of(code):
    """Token, raw bits and their number."""
    m = abs(code)
    if m <= 8:
        return (2 * m - (code < 0), 0, 0)
    e = m.bit_length() - 1
    return 17 + 4 * (e - 3) + (m >> e - 2) % 4, 2 * (m % 2**(e - 2)) + (code < 0), e - 1


# ---- Tests ----

class Xxh3(unittest.TestCase):
    LENGTHS = [*range(301), 511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 4096, 5000, 65537, 100000]

    @staticmethod
    def data():
        out, x = bytearray(), 1
        for _ in range(100000):
            x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
            out.append(x >> 56)
        return bytes(out)

    def test_single_vectors(self):
        self.assertEqual(d.xxh3(b""), 0x2D06800538D394C2)
        self.assertEqual(d.xxh3(b"Pumice"), 0x9EDFAAD6D82F4F02)
        self.assertEqual(d.xxh3(b"Pumice" * 100), 0x6D6EB973F6FF17A5)

    def test_all_lengths(self):
        # The digest was made with an established implementation of XXH3.
        data, digest = self.data(), hashlib.sha256()
        for n in self.LENGTHS:
            digest.update(u64(d.xxh3(data[:n])))
        self.assertEqual(digest.hexdigest(), "8f99b7c638e5f3a8b245cb629b7bd54081b267c21ae31aba5e091bb1161db80a")

    def test_payload_hash(self):
        data = self.data()
        for n in (0, 1, 240, 241, 4095, 4096, 4097, 8192, 12288 + 300, 100000):
            self.assertEqual(d.payload_hash(data[:n]), payload_hash(data[:n]), n)


class RoundTrips(unittest.TestCase):
    def check(self, stream, shape, bits):
        array = d.decode(stream)
        self.assertEqual(array.shape, tuple(shape))
        self.assertEqual(bits_of(array), bits)

    def test_views_predictors_and_tiles(self):
        rng = random.Random(1)
        shape = (2, 3, 5, 37)
        views = [(1, 1, 1), (1, 1, 0), (1, 0, 0), (2, 1, 1), (4, 0, 0), (0, 0, 0), (0, 1, 1), (1, 3, 0), (0, 4, 0)]
        predictors = [0, 1, 2, 4, 3, 5, 6, 7, 9, 11, 15, 0x11, 0x21, 0xF1, 0x37]
        tiles = [(3, 0, 0), (4, 1, 1), (12, 0, 0), (5, 2, 2), (3, 9, 0), (3, 0, 9), (6, 3, 3), (4, 4, 4)]
        for case in range(160):
            t = F64 if case % 3 == 0 else F32
            lossless = case % 5 == 0
            axes, log2, predictor = views[case % 9], rng.choice(tiles), predictors[case % 15]
            fills = NAN_FILLS[t][:case % 3]
            payload, bits = encode_fast(rng, t, shape, axes, log2, predictor, fills, None if lossless else STEP)
            with self.subTest(case=case, axes=axes, log2=log2, predictor=predictor):
                self.check(single(t, shape, payload, fills=fills, bound=0 if lossless else 1), shape, bits)

    def test_large_tiles(self):
        rng = random.Random(2)
        for t, shape, log2, predictor in ((F32, (8193,), (12, 0, 0), 1), (F64, (4500,), (12, 0, 0), 9),
                                          (F32, (20, 450), (9, 3, 0), 0x23), (F64, (17, 18, 19), (4, 4, 4), 7)):
            axes = (1, len(shape) > 1, len(shape) > 2)
            payload, bits = encode_fast(rng, t, shape, axes, log2, predictor, NAN_FILLS[t])
            self.check(single(t, shape, payload, fills=NAN_FILLS[t]), shape, bits)

    def test_many_tiles_need_several_anchors(self):
        rng = random.Random(3)
        payload, bits = encode_fast(rng, F32, (70, 9), (1, 0, 0), (3, 0, 0), 1, NAN_FILLS[F32])
        self.check(single(F32, (70, 9), payload, fills=NAN_FILLS[F32]), (70, 9), bits)

    def test_every_extent_of_a_tile(self):
        # Last groups and last supergroups of every partial size.
        rng = random.Random(4)
        for n in range(1, 140):
            payload, bits = encode_fast(rng, F32, (n,), (1, 0, 0), (7, 0, 0), 1, NAN_FILLS[F32])
            self.check(single(F32, (n,), payload, fills=NAN_FILLS[F32]), (n,), bits)

    def test_rank_0_and_rank_8(self):
        rng = random.Random(5)
        payload, bits = encode_fast(rng, F64, (), (0, 0, 0), (3, 0, 0), 0)
        self.check(single(F64, (), payload), (), bits)
        shape = (1, 2, 1, 3, 2, 1, 2, 3)
        payload, bits = encode_fast(rng, F32, shape, (3, 2, 2), (3, 2, 2), 7)
        self.check(single(F32, shape, payload, attributes=[("unit", "m"), ("name", "höhe")]), shape, bits)

    def test_no_elements(self):
        for shape in (0,), (3, 0, 4), (0, 2**40):
            self.check(single(F32, shape, b"", codec=d.CODEC_RAW, bound=0), shape, [])
            with self.assertRaisesRegex(d.FormatError, "without elements"):
                d.decode(single(F32, shape, bytes([0, len(shape), 0, 0, 3, 0, 0, 0])))

    def test_quantised_beyond_the_magic_range(self):
        # Any value x is reached by q = bits(x) - M, and stands for (x - M_T) * step.
        for t in F32, F64:
            xs = [0.0, -1.0, 1e-40, 1e30, -2.5e20, t.m_t * 2, t.m_t / 3, -t.m_t, t.from_bits(1)]
            q = [t.signed(t.to_bits(x) - t.m) for x in map(t.round, xs)]
            for step in 0.1, 1e-30, t.from_bits(3):
                step = t.round(step)
                body, bits = encode_tile(random, t, (1, 1, len(q)), 1, d.QUANTISED, q, q[0], step=step)
                payload = fast_payload([1, 1, 0, 0, 3 + (len(q) > 8), 0, 0, 0], [body])
                self.check(single(t, (len(q),), payload, step=step), (len(q),), bits)

    def test_quantised_is_the_rounded_product(self):
        q = [-2**22 + 1, -12345, -1, 0, 1, 7, 99999, 2**22 - 1]
        body, _ = encode_tile(random, F32, (1, 1, 8), 0, d.QUANTISED, q, 0)
        array = d.decode(single(F32, (8,), fast_payload([0, 1, 0, 0, 3, 0, 0, 0], [body])))
        self.assertEqual(array.dtype, np.float32)
        self.assertEqual(array.tolist(), [F32.round(value * STEP) for value in q])

    def test_exact_covers_every_class_of_values(self):
        for t in F32, F64:
            values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-45, -1e-45]
            bits = [t.to_bits(v) for v in values] + [NAN_FILLS[t][0], NAN_FILLS[t][1], t.modulus - 1, 1]
            q = [t.signed(t.exact(b)) for b in bits]  # the map is its own inverse
            body, again = encode_tile(random, t, (1, 1, 12), 9, d.EXACT, q, q[3])
            self.assertEqual(again, bits)
            payload = fast_payload([9, 1, 0, 0, 4, 0, 0, 0], [body])
            self.check(single(t, (12,), payload, bound=0), (12,), bits)

    def test_fill_1_covers_fill_0_and_escapes_cover_both(self):
        fills = (F32.to_bits(-9999.0), F32.to_bits(1e20))
        body, bits = encode_tile(random.Random(0), F32, (1, 1, 100), 1, d.QUANTISED, [5] * 100, 5, fills,
                                 (list(range(90)), list(range(30, 70))), {40: 77, 80: 78, 95: 79}, no_planes=True)
        self.assertEqual([bits[i] for i in (0, 35, 40, 80, 95)], [fills[0], fills[1], 77, 78, 79])
        payload = fast_payload([1, 1, 0, 0, 7, 0, 0, 0], [body])
        self.check(single(F32, (100,), payload, fills=fills), (100,), bits)

    def test_raw_codec(self):
        bits = [random.Random(6).getrandbits(64) for _ in range(2000)]
        self.check(single(F64, (40, 50), b"".join(map(F64.pack, bits)), codec=d.CODEC_RAW, bound=2), (40, 50), bits)

    def chunked_stream(self, rng, t, rows, rest, chunk_shape):
        shape = (sum(rows), *rest)
        expected = np.zeros(shape, f"<u{t.size}")
        frames, boxes, first = [], [], 0
        for extent in rows:
            ends = (first + extent, *rest)
            starts = [range(0 if axis else first, ends[axis], chunk_shape[axis]) for axis in range(len(shape))]
            for origin in itertools.product(*starts):
                box = tuple(slice(o, min(o + c, e)) for o, c, e in zip(origin, chunk_shape, ends))
                extents = tuple(s.stop - s.start for s in box)
                codec = d.CODEC_RAW if rng.random() < 0.2 else d.CODEC_FAST
                if codec == d.CODEC_RAW:
                    bits = [rng.getrandbits(t.bits) for _ in range(math.prod(extents))]
                    payload = b"".join(map(t.pack, bits))
                else:
                    payload, bits = encode_fast(rng, t, extents, (1, bool(rest), 0), (4, 2, 0), 3, NAN_FILLS[t])
                frames.append(frame(codec, len(frames), payload, box[0].start, extents[0]))
                expected[box] = np.array(bits, expected.dtype).reshape(extents)
                boxes.append(box)
            first += extent
        head = header(t, shape, chunk_shape, bound=2, fills=NAN_FILLS[t])
        return chunked(head, rows, frames), expected, boxes

    def test_chunked_with_segments(self):
        rng = random.Random(7)
        for t, rows, rest, chunk_shape in ((F32, [7], (), (3,)), (F32, [5, 1, 9], (11, 20), (4, 6, 16)),
                                           (F64, [3, 2], (7,), (100, 100)), (F64, [130] * 2, (2,), (1, 1))):
            stream, expected, boxes = self.chunked_stream(rng, t, rows, rest, chunk_shape)
            self.check(stream, expected.shape, expected.reshape(-1).tolist())
            for chunk_id, box in enumerate(boxes):
                self.assertEqual(d.chunk_box(stream, chunk_id), box)
                self.assertEqual(bits_of(d.decode_chunk(stream, chunk_id)), expected[box].reshape(-1).tolist())
            for wrong in -1, len(boxes):
                self.assertRaises(IndexError, d.decode_chunk, stream, wrong)

    def test_one_chunk_needs_no_other_frame(self):
        stream, expected, boxes = self.chunked_stream(random.Random(8), F32, [4, 4], (5,), (4, 5))
        at = stream.index(b"CHNK") + 20
        broken = stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1:]
        self.assertRaises(d.FormatError, d.decode_chunk, broken, 0)
        self.assertEqual(bits_of(d.decode_chunk(broken, 1)), expected[boxes[1]].reshape(-1).tolist())

    def test_command_line(self):
        stream, expected, boxes = self.chunked_stream(random.Random(9), F32, [4, 4], (5,), (3, 5))
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "a.pum").write_bytes(stream)
            (folder / "cut.pum").write_bytes(stream[:-1])

            def command(*arguments):
                words = [sys.executable, "-m", "reference", *map(str, arguments)]
                return subprocess.run(words, capture_output=True, text=True, cwd=ROOT)

            self.assertEqual(command(folder / "a.pum", "-o", folder / "a.npy").returncode, 0)
            self.assertEqual(command(folder / "a.pum", "-o", folder / "a.raw").returncode, 0)
            self.assertTrue(np.array_equal(np.load(folder / "a.npy").view("<u4"), expected))
            self.assertEqual((folder / "a.raw").read_bytes(), expected.tobytes())
            self.assertEqual(command(folder / "a.pum", "--chunk", 1, "-o", folder / "c.raw").returncode, 0)
            self.assertEqual((folder / "c.raw").read_bytes(), expected[boxes[1]].tobytes())
            for name in "a.npy", "a.raw":
                self.assertEqual(command(folder / "a.pum", "--compare", folder / name).returncode, 0)
            (folder / "a.raw").write_bytes(expected.tobytes()[:-1] + b"?")
            different = command(folder / "a.pum", "--compare", folder / "a.raw")
            self.assertEqual(different.returncode, 1)
            self.assertIn("1 of 40 values; first at flat index 39", different.stdout)
            fields = json.loads(command(folder / "a.pum", "--info").stdout)
            self.assertEqual((fields["shape"], fields["chunk_shape"], fields["rows"]), ([8, 5], [3, 5], [4, 4]))
            self.assertEqual((fields["dtype"], fields["bound_kind"], fields["abs_bound"]), ("f32", "REL", 0.02))
            self.assertEqual(command(folder / "cut.pum").returncode, 2)


class Small(unittest.TestCase):
    DIMS = [(1, 1, 1, 1), (1, 1, 1, 700), (1, 1, 9, 60), (1, 1, 40, 17), (1, 9, 3, 20), (1, 5, 11, 16), (3, 4, 5, 16),
            (2, 5, 2, 30), (1, 3, 6, 18)]

    def test_predictors_and_streams(self):
        rng = random.Random(20)
        for case in range(36):
            t, dims = (F64 if case % 2 else F32), self.DIMS[case % 9]
            fills = NAN_FILLS[t][:case % 3]
            encoder = SmallEncoder(rng, t, dims, case // 9 % 2, fills, wide=case % 4 == 3)
            shape = tuple(n for n in dims if n > 1 or rng.random() < 0.5)
            with self.subTest(case=case, dims=dims):
                stream = single(t, shape, encoder.payload, codec=d.CODEC_SMALL, fills=fills, preset=2 + case % 2)
                self.assertEqual(bits_of(d.decode(stream)), encoder.bits)

    def test_wide_chunks(self):
        # Lanes of planes, of rows, of columns and of all of them; volumes, parents along each axis.
        rng = random.Random(25)
        for case, (dims, active) in enumerate((((1, 1, 64, 66), None), ((1, 1, 1, 4500), None), ((1, 1, 5, 900), None),
                                               ((8, 9, 3, 20), None), ((5, 7, 8, 16), None), ((2, 2, 2, 600), None),
                                               ((1, 1, 64, 130), 8), ((1, 1, 66, 127), 4), ((1, 8, 32, 33), 2),
                                               ((8, 4, 16, 17), 1), ((4, 8, 32, 17), 5))):
            t = F64 if case % 2 else F32
            fills = NAN_FILLS[t][:case % 3]
            encoder = SmallEncoder(rng, t, dims, int(active is not None), fills, wide=True, active=active)
            self.assertEqual(encoder.n_lanes[-1], 16)
            with self.subTest(dims=dims, active=active):
                stream = single(t, dims, encoder.payload, codec=d.CODEC_SMALL, fills=fills, preset=2)
                self.assertEqual(bits_of(d.decode(stream)), encoder.bits)

    def test_views(self):
        for extents, dims, order in (((100,), (1, 1, 1, 100), [0]), ((7, 1, 100), (1, 1, 7, 100), [0, 1]),
                                     ((500, 3, 14), (1, 3, 14, 500), [1, 2, 0]), ((9, 9), (1, 1, 9, 9), [0, 1]),
                                     ((2, 3, 4, 5, 60), (6, 4, 5, 60), [0, 1, 2, 3]), ((), (1, 1, 1, 1), [])):
            view = small.view_of(extents)
            self.assertEqual((view.dims, view.order), (dims, order))
        # What is moved to the end comes back.
        encoder = SmallEncoder(random.Random(21), F32, (1, 3, 14, 40), 1)
        expected = np.array(encoder.bits).reshape(3, 14, 40).transpose(2, 0, 1)
        stream = single(F32, (40, 3, 14), encoder.payload, codec=d.CODEC_SMALL)
        self.assertEqual(bits_of(d.decode(stream)), expected.reshape(-1).tolist())

    def test_bands_hold_each_point_once(self):
        for dims in self.DIMS + [(5, 8, 9, 10)]:
            for active in 15, 8, 4, 9, 0:
                layout = small.Layout(dims, active)
                numbers = np.arange(math.prod(dims)).reshape(dims)
                parts = small.Parts(layout)
                for band, part in zip(layout.bands, layout.split(numbers)):
                    self.assertEqual(part.shape, band.dims)
                    parts.put(band, part)
                self.assertTrue(np.array_equal(parts.get(-1, 0), numbers))
        bands, axis = small.slabs_of((1, 7, 1000, 1000))
        self.assertEqual((axis, [band.dims[1] for band in bands]), (1, [1, 1, 1, 1, 1, 2]))

    def test_pieces_of_large_bands(self):
        def pieces(*dims):
            return small.streams_of([small.Band(band, None, 0, 0) for band in dims])

        few, large, huge = (1, 1, 1, 50), (1, 1, 1, 2**19 - 1), (1, 1, 1, 2**19)
        self.assertEqual([[piece[0] for piece in stream]
                          for stream in pieces(few, few, huge, few, (1, 1, 1, 2**16 - 1), large, (1, 1, 1, 2**16), few)],
                         [[0, 1], [2], [2], [3, 4], [5], [6], [7]])
        self.assertEqual([stream[0][1] for stream in pieces((2, 3, 300, 300))], [range(0, 3), range(3, 6)])
        self.assertEqual([stream[0][2] for stream in pieces((1, 1, 901, 600))], [range(0, 450), range(450, 901)])
        self.assertEqual([stream[0][3] for stream in pieces((1, 1, 3, 200001))],
                         [range(0, 100000), range(100000, 200001)])

    def test_lanes_of_pieces(self):
        rng = random.Random(26)
        shapes = [tuple(rng.randrange(1, limit) for limit in rng.choice(((9, 9, 9), (40, 40, 40), (200, 3, 30))))
                  for _ in range(300)]
        for extents in shapes + [(0, 1, 1), (1, 0, 5), (3, 3, 0), (1, 1, 2**12), (1, 1, 2**12 - 1)]:
            for wide in False, True:
                self.assertEqual(small.deal_of(extents, wide), parts_of(extents, wide))

    def test_numbers(self):
        rng, encoder, model = random.Random(22), BinaryEncoder(), {}
        numbers = [0, 1, -1, 2**62 - 1, 1 - 2**62] + [rng.randrange(-2**40, 2**40) >> rng.randrange(41)
                                                      for _ in range(500)]
        for number in numbers:
            encoder.signed(model, number)
        encoder.raw(0x1234567, 27)
        decoder, model = small.BinaryDecoder(d.Cursor(encoder.finish(), "numbers")), small.NumberModel()
        self.assertEqual([model.signed(decoder) for _ in numbers], numbers)
        self.assertEqual(decoder.raw(27), 0x1234567)
        decoder.finish()

    def test_refusals(self):
        encoder = SmallEncoder(random.Random(23), F32, (1, 1, 9, 20), 1)

        def check(message, payload, shape=(9, 20), **options):
            with self.assertRaisesRegex(d.FormatError, message):
                d.decode(single(F32, shape, payload, codec=d.CODEC_SMALL, **options))

        good = encoder.payload
        d.decode(single(F32, (9, 20), good, codec=d.CODEC_SMALL))
        check("unknown flags", bytes([good[0] | 32]) + good[1:])
        check("unknown flags", bytes([good[0] | 16 | 2]) + good[1:])
        check("", bytes([good[0] | 16]) + good[1:])
        check("without a step", good, step=0.0)
        check("without a step", good, bound=0)
        check("bytes after the end", good + b"\0")
        check("without elements", good, shape=(0, 3))
        check("too few", b"\0\0", shape=(1,))
        check("too few", good, shape=(2**40, 20))
        for n in range(3, len(good)):
            check("", good[:n])
        with mock.patch.object(small, "least_payload", lambda _: len(good) + 5):
            d.decode(single(F32, (9, 20), good + bytes(5), codec=d.CODEC_SMALL))
            check("too few", good + bytes(4))
            check("bytes after the end", good + bytes(6))
            check("bytes after the end", good + bytes(4) + b"\1")

    def test_hostile_payloads(self):
        rng, refused = random.Random(24), 0
        for case in range(100):
            t = F64 if case % 2 else F32
            encoder = SmallEncoder(rng, t, (1, 1, 4, 20), case // 2 % 2, NAN_FILLS[t][:case % 3], wide=case % 5 == 0)
            payload = bytearray(encoder.payload)
            payload[0] ^= rng.choice((0, 0, 0, 2, 1, 4, 8, 16))
            for _ in range(rng.randrange(4)):
                payload[rng.randrange(len(payload))] = rng.randrange(256)
            del payload[rng.randrange(len(payload)):rng.choice((0, 0, len(payload)))]
            try:
                d.decode(single(t, (4, 20), bytes(payload), codec=d.CODEC_SMALL, fills=NAN_FILLS[t][:case % 3]))
            except d.FormatError:
                refused += 1
        self.assertGreater(refused, 30)


class Refusals(unittest.TestCase):
    def refuse(self, stream, message=""):
        with self.assertRaisesRegex(d.FormatError, message):
            d.decode(stream)

    def streams(self):
        rng = random.Random(10)
        payload, _ = encode_fast(rng, F32, (3, 20), (1, 1, 0), (4, 1, 0), 3, NAN_FILLS[F32])
        yield single(F32, (3, 20), payload, fills=NAN_FILLS[F32], attributes=[("a", "b")])
        yield RoundTrips().chunked_stream(rng, F64, [2, 1], (6,), (2, 4))[0]

    def test_every_changed_byte(self):
        for stream in self.streams():
            d.decode(stream)
            for i in range(len(stream)):
                for change in 1, 0x80, 0xFF:
                    with self.subTest(i=i):
                        self.refuse(stream[:i] + bytes([stream[i] ^ change]) + stream[i + 1:])

    def test_every_truncation_and_trailing_bytes(self):
        for stream in self.streams():
            for n in range(len(stream)):
                self.refuse(stream[:n])
            self.refuse(stream + b"\0")

    def test_changed_payloads_with_right_checksums(self):
        # Nothing but FormatError may come out of a hostile payload; most changes decode to other values.
        rng, refused = random.Random(11), 0
        for case in range(600):
            t = F64 if case % 2 else F32
            payload, _ = encode_fast(rng, t, (4, 30), (1, 1, 0), (5, 2, 0), 3, NAN_FILLS[t])
            i = rng.randrange(len(payload) if case % 3 else 20)
            payload = payload[:i] + bytes([rng.randrange(256)]) + payload[i + 1 + rng.randrange(2):]
            try:
                d.decode(single(t, (4, 30), payload, fills=NAN_FILLS[t]))
            except d.FormatError:
                refused += 1
        self.assertGreater(refused, 100)

    def test_changed_headers_with_right_checksums(self):
        for stream in self.streams():
            size = struct.unpack_from("<H", stream, 6)[0]
            for i in range(8, size - 4):
                for change in 1, 2, 4, 8, 16, 32, 64, 128, 255:
                    head = stream[:i] + bytes([stream[i] ^ change]) + stream[i + 1:size - 4]
                    try:
                        d.decode(head + u64(d.xxh3(head))[:4] + stream[size:])
                    except d.FormatError:
                        pass

    def test_headers(self):
        zero = fast_payload([0, 1, 0, 0, 3, 0, 0, 0], [b""])

        def check(message, shape=(5,), **over):
            self.refuse(single(F32, shape, zero, **over), message)

        kinds = {kind: name for kind, name in d.BOUND_KINDS.items() if name != "several"}
        for kind, name in kinds.items():
            found = d.read_header(single(F32, (5,), zero, bound=kind))
            self.assertEqual((found.bound_kind, found.abs_bound), (name, {0: None, 1: 0.01, 3: None}.get(kind, 0.02)))
        for good in {}, {"version": 200}, {"step": 0.0}, *({"bound": kind} for kind in kinds):
            self.assertEqual(d.decode(single(F32, (5,), zero, **good)).tolist(), [0] * 5)
        check("newer release", min_reader_version=2)
        check("min_reader_version 0", min_reader_version=0)
        check("to version 0", version=0)
        check("preset 200", preset=200)
        check("dtype", dtype=b"\3")
        check("flags", flags=17)
        check("bound_kind", bound=99)
        check("rank 9", shape=(1,) * 9)
        check("rank at least 1", shape=(), flags=0)
        check("2\\^63", shape=(2**31, 2**30))
        check("header_bytes", extra=b"\0")
        check("n_fills", n_fills=3)
        check("UTF-8", attributes=[(b"\xff", b"")])
        for value in 0.0, -1.0, math.inf, math.nan:
            check("bound .* is not finite", requested_bound=value)
            for kind in 2, 4, 5, 6:
                check("bound .* is not finite", bound=kind, abs_bound=value)
        for value in -0.0, -1.0, math.inf, -math.inf, math.nan, -math.nan:
            check("step", step=value)
        check("chunk_shape .* zero", chunk_shape=(0,))
        check("chunk_shape .* 2\\^63", chunk_shape=(2**61,))
        check("without elements", shape=(3, 0), chunk_shape=(1, 1))
        check("2\\^63", shape=(0, 2**63))
        self.refuse(single(F32, (0, 2**63 - 1), b"", codec=d.CODEC_RAW), "cannot be held")
        for varint_bytes, message in ((b"\x85\0", "superfluous"), (b"\xff" * 10, "ten bytes"),
                                      (b"\xff" * 9 + b"\2", "2\\^64")):
            good = header(F32, (5,), bound=0)[:-4]
            bad = good[:13] + varint_bytes + good[14:]
            bad = bad[:6] + struct.pack("<H", len(bad) + 4) + bad[8:]
            self.refuse(bad + u64(d.xxh3(bad))[:4] + only_frame(d.CODEC_FAST, (5,), zero), message)

    def test_frames(self):
        head, payload = header(F32, (2,), bound=0), bytes(8)
        self.assertEqual(d.decode(head + only_frame(d.CODEC_RAW, (2,), payload)).tolist(), [0, 0])
        self.refuse(head + only_frame(d.CODEC_RAW, (3,), payload), "frame_checksum")
        self.refuse(head + only_frame(d.CODEC_RAW, (2,), payload, chunk_id=1), "chunk_id 1")
        self.refuse(head + only_frame(77, (2,), payload), "codec 77")
        self.refuse(head + only_frame(d.CODEC_RAW, (2,), payload) + b"\0", "after the payload")
        self.refuse(head + only_frame(d.CODEC_RAW, (2,), payload + payload), "raw payload of 16")
        self.refuse(head + only_frame(d.CODEC_RAW, (2,), payload).replace(b"CHNK", b"CHNL"), "marker")

    def test_index(self):
        head = header(F32, (4,), (2,), bound=0)
        frames = [frame(d.CODEC_RAW, i, bytes(8), 2 * i, 2) for i in range(2)]
        self.assertEqual(d.decode(chunked(head, [4], frames)).tolist(), [0] * 4)
        self.refuse(chunked(head, [], frames), "n_segments")
        self.refuse(chunked(head, [4, 0], frames), "no rows")
        self.refuse(chunked(head, [6], frames), "imply 3")
        self.refuse(chunked(head, [2**61], frames), "2\\^63")
        huge = header(F32, (2**50,), (2**50,), bound=0)
        self.refuse(chunked(huge, [2**50], frames[:1]), "more values")
        self.refuse(chunked(head, [4], frames[::-1]), "chunk_id 1")
        self.refuse(chunked(head, [4], [frames[0], frame(77, 1, bytes(8), 2, 2)]), "codec 77")
        self.refuse(chunked(head, [4], [frames[0], frame(0, 1, bytes(9), 2, 2)]), "raw payload of 9")
        self.refuse(chunked(head, [4], [frames[0], frame(0, 1, bytes(8), 1, 2)]), "first_row 1")
        self.refuse(chunked(head, [4], [frames[0], frame(0, 1, bytes(8), 2, 1)]), "rows 1")
        body = head + b"".join(frames)
        sizes = list(map(len, frames))
        self.refuse(body + tail(len(body) - 1, [4], sizes), "index_offset")
        self.refuse(body + b"\0" + tail(len(body) + 1, [4], sizes), "frames do not end")
        self.refuse(body + tail(len(body), [4], [sizes[0] + 1, sizes[1] - 1]), "after the payload")

    def test_payload_directory(self):
        def check(message, parameters, bodies=(b"",), edit=lambda payload: payload, shape=(5,)):
            self.refuse(single(F32, shape, edit(fast_payload(parameters, bodies))), message)

        good = [1, 1, 0, 0, 3, 0, 0, 0]
        for at, value, message in ((0, 8, "second difference"), (0, 0x10, "lag"), (0, 0x19, "lag"), (1, 2, "rank"),
                                   (4, 2, "tile_x_log2"), (4, 13, "tile_x_log2"), (5, 10, "tile_y_log2"),
                                   (6, 10, "tile_z_log2"), (7, 1, "reserved")):
            check(message, good[:at] + [value] + good[at + 1:])
        check("4096", [1, 1, 0, 0, 9, 4, 0, 0])
        check("anchors", good, edit=lambda p: p[:8] + b"\1" + p[9:])
        check("padding", good, edit=lambda p: p[:-1] + b"\1")
        check("do not end", good, edit=lambda p: p + bytes(4))
        check("bodies", good, [bytes([16, 0, 0, 0])], edit=lambda p: p[:-4])
        check("anchors", good, shape=(2**40,))

    def test_tiles(self):
        def check(message, body, n=20, **options):
            payload = fast_payload([1, 1, 0, 0, 9, 0, 0, 0], [pad4(body)])
            self.refuse(single(F32, (n,), payload, **options), message)

        flat = bytes([16, 0, 0, 0])
        check("kind 3", bytes([3, 0, 0, 0]))
        check("raw with other flags", bytes([2 + 16, 0, 0, 0]))
        check("raw with other flags", bytes([2, 1, 0, 0]) + bytes(80))
        check("after the raw values", bytes([2, 0, 0, 0]) + bytes(84))
        check("without a step", flat, bound=0)
        check("without a step", flat, step=0.0)
        check("exact with", bytes([1 + 16 + 32, 0, 0, 0]), fills=[0])
        check("exact with", bytes([1 + 16 + 128, 0, 0, 0]))
        check("excludes sparse", bytes([16 + 8, 0, 0, 0]))
        check("base24", bytes([16 + 4, 1, 0, 0]) + bytes(4))
        check("mask of fill 0", bytes([16 + 32, 0, 0, 0]) + bytes(2))
        check("mask of fill 1", bytes([16 + 64, 0, 0, 0]) + bytes(2), fills=[0])
        check("mask: any: spare", bytes([16 + 32, 0, 0, 0, 2, 0]), fills=[0])
        check("subset", bytes([16 + 32, 0, 0, 0, 0, 1]) + bytes(8), fills=[0])
        escaped = bytes([16 + 128, 0, 0, 0])
        check("n_escapes 0", escaped + bytes(2))
        check("n_escapes 4097", escaped + b"\1\x10" + bytes(6 * 4097))
        check("ascending", escaped + struct.pack("<HHH", 2, 5, 5) + bytes(8))
        for index in 20, 23, 24, 65535:
            check("padding", escaped + struct.pack("<HH", 1, index) + bytes(4))
        check("super_mask: spare", bytes([8, 0, 0, 0, 2]))
        check("beyond the last", bytes([0, 0, 0, 0, 1 << 5, 8, 0]))
        check("width", bytes([0, 0, 0, 0, 31 | 1 << 5 | 1 << 6]) + bytes([1, 1, 0]) + bytes(31 * 3 + 3))
        check("bytes after", flat + bytes(4))
        check("padding is not zero", bytes([0, 0, 0, 0, 0, 0, 0, 1]))
        check("ends within planes", bytes([0, 0, 0, 0, 4]) + bytes(3))
