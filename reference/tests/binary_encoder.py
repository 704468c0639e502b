"""Encoder of the binary coder, of masks and of exact positions (docs/format.md, section 7.3)."""

import math


class BinaryEncoder:
    """Numbers go through models of the same shape as a decoder's."""

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


def encode_kinds(coder, kinds, dims, n_fills):
    """Masks: for each value, in C order of four axes, 0 or the number of its fill from 1 on."""
    is_fill, is_second = {}, {}
    for i, kind in enumerate(kinds):
        t, z, y, x = (i // math.prod(dims[a + 1:]) % dims[a] for a in range(4))

        def at(dz, dy, dx):
            position = (t, z + dz, y + dy, x + dx)
            if not all(0 <= p < n for p, n in zip(position, dims)):
                return 0
            return kinds[((position[0] * dims[1] + position[1]) * dims[2] + position[2]) * dims[3] + position[3]]

        near = [at(0, 0, -1), at(0, -1, 0), at(-1, 0, 0), at(0, -1, -1), at(0, -1, 1), at(0, 0, -2)]
        coder.bit(is_fill.setdefault(tuple(map(bool, near)), [2**15, 0]), int(kind > 0))
        if kind and n_fills > 1:
            coder.bit(is_second.setdefault(next(filter(None, near), 0), [2**15, 0]), kind - 1)


def encode_positions(coder, positions):
    """Encodes ascending positions."""
    count, gap = {}, {}
    coder.number(count, len(positions))
    for before, position in zip([-1, *positions], positions):
        coder.number(gap, position - before - 1)
