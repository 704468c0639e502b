"""Binary coder, adaptive bits and models of numbers (docs/format.md, section 7.3)."""

from .integers import clamp, quotient


class BinaryDecoder:
    def __init__(self, c):
        self.c, self.low, self.high, self.n_missing = c, 0, 2**32 - 1, 0
        self.data, self.at = bytes(c.take(c.end - c.at, "arithmetic-coded part")), 0
        self.window = 0
        for _ in range(4):
            self.next_byte()

    def next_byte(self):
        byte = 0
        if self.at < len(self.data):
            byte = self.data[self.at]
            self.at += 1
        else:
            self.n_missing += 1
        self.window = (self.window << 8 | byte) & 0xFFFFFFFF

    def decode(self, p_one):
        """A bit that is 1 with probability p_one / 2^16."""
        split = self.low + ((self.high - self.low) * p_one >> 16)
        bit = self.window <= split
        if bit:
            self.high = split
        else:
            self.low = split + 1
        while (self.low ^ self.high) >> 24 == 0:
            self.low = self.low << 8 & 0xFFFFFFFF
            self.high = self.high << 8 & 0xFFFFFFFF | 0xFF
            self.next_byte()
        return int(bit)

    def raw(self, n):
        value = 0
        for _ in range(n):
            value = value << 1 | self.decode(2**15)
        return value

    def check(self):
        self.c.require(self.n_missing <= 4, "arithmetic-coded part ends too early")

    def finish(self):
        self.check()
        self.c.require(self.at == len(self.data), "arithmetic-coded part has bytes left over")


class AdaptiveBit:
    def __init__(self):
        self.p, self.n = 2**15, 0

    def decode(self, coder):
        bit = coder.decode(clamp(self.p, 32, 2**16 - 32))
        self.p += quotient(2 * ((2**16 - 1 if bit else 0) - self.p), 2 * self.n + 3)
        self.n = min(self.n + 1, 60)
        return bit


class NumberModel:
    def __init__(self):
        self.length = [AdaptiveBit() for _ in range(62)]
        self.leading = {}  # the first and the second bit below the leading one, by length
        self.sign = AdaptiveBit()

    def number(self, coder):
        n = 0
        while n < 62 and self.length[n].decode(coder):
            n += 1
        value, node = 1, 0
        for i in range(n):
            if i < 2:
                bit = self.leading.setdefault((n, node), AdaptiveBit()).decode(coder)
                node = 1 + bit
            else:
                bit = coder.decode(2**15)
            value = value << 1 | bit
        return value - 1

    def signed(self, coder):
        magnitude = self.number(coder)
        return -magnitude if magnitude and self.sign.decode(coder) else magnitude
