"""Mixing (docs/format.md, section 7.8)."""

from itertools import product
from operator import mul

import numpy as np

from ..binary_coder import BinaryDecoder
from ..integers import clamp, low_32, quotient
from .bands import X, Parts, axes_of, shifted

W, WW, N, NW, NE, NN, B, BX, BY, T, P0, P1, P2, S, RECENT, CONSTANT = range(16)
FIRST_SIZE_WEIGHTS = [1750, 0, 1750, 0, 0, 0, 750, 0, 0, 0, 625, 625, 625, 200, 1250, 0]
PRIOR = (
    (3, 4, 83, 112, 154, 153, 153, 157, 154, 128, 128, 126, 124, 113, 68, 78),
    (3, 2, 68, 179, 188, 189, 153, 157, 154, 128, 128, 126, 124, 113, 60, 105),
    (4, 2, 90, 150, 188, 177, 153, 157, 154, 128, 128, 126, 124, 113, 68, 91),
    (9, 2, 77, 110, 173, 176, 153, 157, 154, 128, 128, 126, 124, 113, 65, 83),
    (19, 3, 46, 122, 174, 117, 153, 157, 154, 128, 128, 126, 124, 113, 46, 86),
    (38, 4, 20, 76, 156, 129, 153, 157, 154, 128, 128, 126, 124, 113, 32, 72),
    (81, 16, 11, 37, 103, 115, 153, 157, 154, 128, 128, 126, 124, 113, 28, 51),
    (140, 67, 29, 22, 49, 70, 153, 157, 154, 128, 128, 126, 124, 113, 54, 41),
    (196, 153, 81, 37, 30, 42, 153, 157, 154, 128, 128, 126, 124, 113, 88, 57),
    (171, 149, 75, 34, 32, 49, 153, 157, 154, 128, 128, 126, 124, 113, 83, 57),
    (205, 187, 126, 59, 36, 38, 156, 157, 154, 128, 128, 126, 124, 121, 108, 73),
    (182, 170, 99, 46, 34, 49, 133, 157, 154, 128, 128, 126, 124, 121, 98, 66),
    (206, 199, 140, 69, 37, 40, 136, 159, 154, 128, 128, 126, 126, 124, 113, 76),
    (182, 170, 101, 46, 30, 29, 124, 136, 154, 128, 128, 126, 125, 121, 100, 62),
    (204, 197, 139, 69, 33, 28, 127, 136, 153, 128, 128, 126, 127, 125, 112, 74),
)
RATE = [2**15 // (2 * n + 3) for n in range(256)]


def squash_table():
    """By log-odds -2047 to 2047; negative ones index from the end."""
    table, power = [0] * 4095, 2**32
    for o in range(2048):
        table[o] = power * 2**16 // (power + 2**32)
        if o:
            table[-o] = 2**16 - table[o]
        power = power * 1005876575 // 10**9
    return table


def stretch_table():
    table, o = [], -2047
    for i in range(4096):
        while o < 2047 and SQUASH[o] < 16 * i + 8:
            o += 1
        table.append(o)
    return table


SQUASH = squash_table()
STRETCH = stretch_table()


def log_size(magnitude):
    """L: log2(1 + magnitude) in sixteenths."""
    v = magnitude + 1
    n = v.bit_length() - 1
    return 16 * n + (v << 4 >> n & 15)


def sign(value):
    return (value > 0) - (value < 0)


def sat16(value):
    return clamp(value, -32768, 32767)


def learn(counter, bit):
    p, n = counter >> 10, counter & 1023
    p += ((2**22 - 1 if bit else 0) - p >> 6) * RATE[n] >> 8
    return p << 10 | min(n + 1, 255)


def grade(size, length):
    if length == 0:
        return min(log_size(size) >> 2, 35)
    return 36 + 16 * min(length - 1, 2) + clamp(size - 256 * length + 128 >> 5, 0, 15)


def prior_row(g):
    return PRIOR[g // 4 if g < 36 else 9 + 2 * ((g - 36) // 16) + ((g - 36) % 16 >= 12)]


class Mixer:
    """Decisions under eight contexts."""

    def __init__(self, coder):
        self.coder = coder
        self.counters = [{} for _ in range(8)]
        self.second = {}
        self.by_node = [[2048] * 8 for _ in range(16)]
        self.by_grade = {}
        self.contexts, self.grade = (0,) * 8, 0

    def bit(self, node):
        prior = prior_row(self.grade)[node] << 24 | 2
        keys = [16 * context + node for context in self.contexts]
        counters = [table.get(key, prior) for table, key in zip(self.counters, keys)]
        odds = [STRETCH[counter >> 20] for counter in counters]
        mixtures = []
        for weights in self.by_node[node], self.by_grade.setdefault((self.grade, node >= 11), [2048] * 8):
            mixtures.append((weights, clamp(sum(map(mul, weights, odds)) >> 14, -2047, 2047)))
        p_one = clamp(SQUASH[mixtures[0][1] + mixtures[1][1] >> 1], 16, 2**16 - 16)
        bit = self.coder.decode(p_one)
        for weights, mixed in mixtures:
            error = (2**16 - 1 if bit else 0) - SQUASH[mixed] >> 1
            weights[:] = [sat16(w + (o * error + 2**15 >> 16)) for w, o in zip(weights, odds)]
        for table, key, counter in zip(self.counters, keys, counters):
            table[key] = learn(counter, bit)
        return bit

    def signed(self, length):
        """A number whose magnitude is expected to have so many bits."""
        n = length
        if self.bit(0):
            n += 1
            while n < 32 and self.bit(min(n - length, 5)):
                n += 1
        else:
            while n > 0 and not self.bit(5 + min(length + 1 - n, 3)):
                n -= 1
        if n == 0:
            return 0
        negative = self.bit(9 + (n > length + 1))
        kind = clamp(n + 1 - length, 0, 4)
        value = 1
        if n > 1:
            first = self.bit(11 + kind)
            value = 2 + first
        if n > 2:
            key = self.grade, 2 * kind + first
            counter = self.second.get(key, 2**31)
            bit = self.coder.decode(clamp(counter >> 16, 32, 2**16 - 32))
            self.second[key] = learn(counter, bit)
            value = 2 * value + bit
        if n > 3:
            value = value << n - 3 | self.coder.raw(n - 3)
        return -value if negative else value


class Expectation:
    """The two linear predictors of one set of odd axes."""

    def __init__(self):
        self.mean_weights, self.size_weights, self.saving = [0] * 16, list(FIRST_SIZE_WEIGHTS), 0

    def expect(self, codes, sizes):
        self.mean = sum(map(mul, self.mean_weights, codes)) >> 5
        self.size = clamp(sum(map(mul, self.size_weights, sizes)) >> 9, 0, 7680)
        self.whole = self.mean + 128 >> 8 if self.saving > 4096 else 0
        self.length = max(self.size - 128, 0) >> 8

    def learn(self, codes, sizes, code, size):
        rounded = self.mean + 128 >> 8
        if rounded:
            saved = log_size(abs(code)) - log_size(abs(low_32(code - rounded)))
            self.saving += (saved << 10) - self.saving >> 7
        gain = quotient(16 * size - self.size << 11, sum(map(mul, sizes, sizes)) // 2 + 300)
        self.follow(self.size_weights, sizes, gain, 9)
        error = clamp(256 * code - self.mean, -2**20, 2**20)
        gain = quotient(error << 10, sum(map(mul, codes, codes)) // 2 + 32)
        self.follow(self.mean_weights, codes, gain, 10)

    @staticmethod
    def follow(weights, inputs, gain, shift):
        gain, half = clamp(gain, -32767, 32767), 1 << shift - 1
        weights[:] = [sat16(w + clamp(v * gain + half >> shift, -32767, 32767)) for w, v in zip(weights, inputs)]


def contexts_of(odd, codes, sizes, e, g):
    length, scale = e.length, min(e.length, 3)
    half = (1 << length) >> 1
    q = [clamp(code + half >> length, -2, 2) + 2 for code in codes]
    left = e.mean - 256 * e.whole >> length

    def mean(n, shift):
        return clamp(left + (n << shift) // 2 >> shift, 0, n - 1)

    def s(position):
        return sign(codes[position]) + 1

    around = 2 * (2 * sizes[W] + 2 * sizes[N] + sizes[NW] + sizes[NE] + sizes[WW] + sizes[NN])
    return (odd,
            ((q[W] * 5 + q[N]) * 5 + q[B]) * 4 + scale,
            ((q[P0] * 5 + q[P1]) * 5 + q[P2]) * 4 + scale,
            mean(64, 3) * 14 + g // 6,
            ((mean(7, 6) * 5 + q[W]) * 5 + q[N]) * 4 + scale,
            (mean(16, 4) * 3 + sign(e.mean) + 1) * 21 + g // 4,
            grade(around, length) * 5 + mean(5, 5),
            (((s(W) * 3 + s(N)) * 3 + s(B)) * 3 + s(P0)) * 11 + g // 8)


def neighbours(band, own, position, parts, earlier):
    """Inputs of the values of a row but for those in the row itself: [n][16][code, size].

    Arrays hold a code and a size for each point: their last axis is no axis of the grid.
    """
    n, (t, z, y) = band.dims[X], position
    near = np.zeros((n, 16, 2), np.int64)

    def add(where, array, row, dx=0):
        row = tuple(clamp(i, 0, extent - 1) for i, extent in zip(row, array.shape))
        near[:, where] += shifted(array[row], 0, dx, n)

    if y > 0:
        for where, dx in (N, 0), (NW, -1), (NE, 1):
            add(where, own, (t, z, y - 1), dx)
    if y > 1:
        add(NN, own, (t, z, y - 2))
    if z > 0:
        add(B, own, (t, z - 1, y))
        for d in -1, 1:
            add(BX, own, (t, z - 1, y), d)
            add(BY, own, (t, z - 1, y + d))
    if t > 0:
        add(T, own, (t - 1, z, y))
    for k, a in enumerate(axes_of(band.odd)):
        parent = parts.get(band.level, band.odd & ~(1 << a))
        for d in 0, 1:
            add(P0 + min(k, 2), parent, *moved(position, {a: d}))
    siblings = [odd for odd in earlier if (odd ^ band.odd).bit_count() == 2]
    if siblings:
        a, b = axes_of(siblings[-1] ^ band.odd)
        # Between i and i + 1 along an axis where this band is odd, otherwise between i - 1 and i.
        for da, db in product(*((0, 1) if band.odd >> axis & 1 else (-1, 0) for axis in (a, b))):
            add(S, parts.get(band.level, siblings[-1]), *moved(position, {a: da, b: db}))
    return near


def moved(position, steps):
    """A row moved by steps along axes, and the step along X."""
    return [i + steps.get(a, 0) for a, i in enumerate(position)], steps.get(X, 0)


def read_mixed(c, predictor, masked):
    """The codes of each band."""
    coder = BinaryDecoder(c)
    mixer, expectations, recent = Mixer(coder), [Expectation() for _ in range(16)], 0
    parts, earlier, level = Parts(predictor.layout), [], None
    all_codes = []
    for band, mask in zip(predictor.bands, masked):
        if band.level != level:
            earlier, level = [], band.level
        out = np.zeros(band.dims, np.int32)
        own = np.zeros((*band.dims, 2), np.int64)
        e = expectations[band.odd]
        for position in np.ndindex(band.dims[:X]):
            rows = neighbours(band, own, position, parts, earlier).transpose(0, 2, 1).tolist()
            in_row = (W, WW) if band.odd else (W, WW, P0, P1)
            before = [(0, 0)] * 4  # of this row, the last first
            for x, (codes, sizes) in enumerate(rows):
                code = 0
                if mask is None or not mask[position][x]:
                    for where, (c_before, s_before) in zip(in_row, before):
                        codes[where], sizes[where] = c_before, s_before
                    sizes[RECENT], sizes[CONSTANT] = recent >> 4, 16
                    e.expect(codes, sizes)
                    mixer.grade = grade(e.size, e.length)
                    mixer.contexts = contexts_of(band.odd, codes, sizes, e, mixer.grade)
                    rest = mixer.signed(e.length)
                    code = low_32(rest + e.whole)
                    size = log_size(abs(rest))
                    recent += (size << 4) - recent >> 3
                    e.learn(codes, sizes, code, size)
                out[position][x] = code
                before = [(clamp(code, -2047, 2047), log_size(abs(code))), *before[:3]]
                own[position][x] = before[0]
            coder.check()
        parts.put(band, own)
        earlier.append(band.odd)
        all_codes.append(out)
    coder.finish()
    return all_codes
