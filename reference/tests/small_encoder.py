"""Encoder of codec `small`, written from docs/format.md, section 7.

Codes and parameters are random, and every point is predicted by its position in the whole array and not by bands.
Mixing has no encoder here: the streams in assets/golden use all of it.
"""

import itertools
import math
import random
import struct

from reference.binary_coder import BinaryDecoder
from reference.cursor import Cursor
from reference.small.interpolation import KERNELS
from reference.small.lattice import OFFSETS
from reference.small.streams import LEAST, read_model

from .binary_encoder import BinaryEncoder, encode_kinds, encode_positions
from .container_encoder import F32, STEP, varint


class SmallEncoder:
    """One chunk of random codes: `payload`, and `bits` in C order of the working array `dims`.

    `interpolated` is 0 for the lattice, 1 for interpolation, 2 for that of integers.
    """

    def __init__(self, rng, t, dims, interpolated, fills=(), step=STEP, scale=4, wide=False, active=None):
        self.rng, self.t, self.dims, self.step, self.wide = rng, t, dims, step, wide
        self.active = rng.choice((15, 15, 8, 12, 5, 0)) if active is None else active
        self.n_lanes = []  # of each band
        self.coder = BinaryEncoder()
        self.n = math.prod(dims)
        self.kinds = [0] * self.n
        exact = sorted(rng.sample(range(self.n), rng.choice((0, 0, min(self.n, 3)))))
        self.of_integers = interpolated == 2
        flags = (interpolated == 1) | bool(fills) << 2 | bool(exact) << 3 | wide << 4 | self.of_integers << 5
        if fills:
            for i in range(self.n):
                same = rng.random() < 0.8 and i > 0
                self.kinds[i] = self.kinds[i - 1] if same else rng.choice((0, 0, 0, *range(1, len(fills) + 1)))
            encode_kinds(self.coder, self.kinds, dims, len(fills))
        if exact:
            encode_positions(self.coder, exact)
        self.codes = [0 if kind else int(rng.choice((0, 1, 1, 3, 12)) * rng.gauss(0, scale)) for kind in self.kinds]
        self.codes = [c if rng.random() < 0.97 or not c else c * 2**rng.randrange(24) for c in self.codes]
        self.points = []  # (level, odd, index in C order) in the order of bands
        values = self.interpolate() if interpolated else self.lattice()
        body = self.encode_streams(3 if interpolated else 1)
        bits = [fills[kind - 1] if kind else t.to_bits(value) for kind, value in zip(self.kinds, values)]
        for position in exact:
            bits[position] = rng.getrandbits(t.bits)
        self.bits = bits
        parameters = self.coder.finish()
        exact_values = b"".join(t.pack(bits[position]) for position in exact)
        self.payload = bytes([flags]) + varint(len(parameters)) + parameters + exact_values + varint(len(body)) + body

    def position(self, index):
        position = []
        for extent in reversed(self.dims):
            index, i = divmod(index, extent)
            position.insert(0, i)
        return tuple(position)

    def index(self, position):
        index = 0
        for i, extent in zip(position, self.dims):
            index = index * extent + i
        return index

    def exists(self, position):
        return all(0 <= i < extent for i, extent in zip(position, self.dims))

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
            position = self.position(index)
            back = [tuple(i - o for i, o in zip(position, offset)) for offset in OFFSETS]
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
        scale = 0 if self.of_integers else rng.randrange(4)
        coder.raw(self.active, 4)
        if not self.of_integers:
            coder.raw(scale, 2)
            coder.raw(t.to_bits(self.step), t.bits)
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

        def restore(position, prediction, level):
            index = self.index(position)
            if self.of_integers:
                nearest = add(add(prediction, t.m_t), -t.m_t)
                code = self.codes[index]
                values[position] = add(nearest, t.round(float(-code if prediction < nearest else code)))
                return
            step = t.round(self.step / divisors[level])
            values[position] = add(prediction, t.round(t.round(float(self.codes[index])) * step))

        before = row = 0.0
        for position in itertools.product(*(range(0, e, s) for e, s in zip(self.dims, strides))):
            prediction = row if position[3] == 0 else before
            restore(position, prediction, len(levels))
            before = values[position]
            row = before if position[3] == 0 else row
            self.points.append((len(levels), 0, self.index(position)))
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
                            k[3 * i:3 * i + 3] = [int(v / (1 if along else len(odd))) for v in KERNELS[kernel]]
                k[0] = 1024 - sum(k[1:])
                starts = [strides[a] if a in odd else 0 for a in range(4)]
                steps = [s * (2 if a in halved else 1) for a, s in enumerate(strides)]
                for position in itertools.product(*map(range, starts, self.dims, steps)):
                    self.points.append((level, sum(1 << a for a in odd), self.index(position)))
                    prediction, terms = 0.0, iter(k)
                    for a in odd:
                        for tap in range(3):
                            c = t.round(next(terms) / 2048)
                            far = 1 + 2 * tap
                            u, w = (self.on_line(values, position, a, strides[a], by) for by in (-far, far))
                            if c:
                                prediction = add(prediction, t.round(c * add(u, w)))
                    for a, b in itertools.combinations(odd, 2):
                        c = t.round(next(terms) / 4096)
                        for da in (-1, 1) if c else ():
                            u, w = (values[self.corner(position, {a: da * strides[a], b: db * strides[b]})]
                                    for db in (-1, 1))
                            prediction = add(prediction, t.round(c * add(u, w)))
                    restore(position, prediction, level)
        restored = [values[self.position(index)] for index in range(self.n)]
        return [t.round(value * self.step) for value in restored] if self.of_integers else restored

    def corner(self, position, moves):
        """The point so far away; beyond the end as far the other way."""
        return tuple(i + (move if i + move < extent else -move)
                     for i, extent, move in zip(position, self.dims, (moves.get(a, 0) for a in range(4))))

    def on_line(self, values, position, axis, stride, by):
        """The value `by` strides away along an axis, where there is one each two strides from 0 on."""
        t = self.t
        line = [values[position[:axis] + (i,) + position[axis + 1:]] for i in range(0, self.dims[axis], 2 * stride)]
        j = (position[axis] + by * stride) // (2 * stride)
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
        slots = read_model(BinaryDecoder(Cursor(alone.finish(), "model")), 60 * n_groups)
        tables = [slots[60 * group:60 * group + 60] for group in range(n_groups)]
        symbols, raws = [], []
        for (level, odd), points in itertools.groupby(self.points, lambda point: point[:2]):
            positions = [self.position(index) for _, _, index in points]
            axes = [sorted({position[a] for position in positions}) for a in range(4)]
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

                def magnitude(position):
                    return min(abs(self.codes[self.index(position)]), 2**19 - 1)

                def back(planes, rows, columns=0):
                    """Magnitude of the code so far back in the band; 0 beyond the columns."""
                    volume, plane = divmod(at[0] - planes, dims[1])
                    there = (volume, plane, at[1] - rows, at[2] - columns)
                    return magnitude([axes[a][i] for a, i in enumerate(there)]) if 0 <= there[3] < dims[3] else 0

                position = tuple(axes[a][i] for a, i in enumerate(local))
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
                        sides = [magnitude(self.corner(position, {a: side * stride})) for side in (-1, 1)]
                        total += w[6] * sum(sides)
                        heirs.append(sides[0])
                total += left * next(iter(heirs), 0)
                index = self.index(position)
                for distance, weight in ((1, w[0]), (2, w[1])):
                    if x >= distance:
                        token = token_of(self.codes[self.index((*position[:3], axes[3][at[2] - distance]))])[0]
                        total += weight * min(LEAST[token], 7 * 2**16)
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
