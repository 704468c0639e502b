"""Reading packed little-endian fields, and what a violation of the format raises."""

import numpy as np


class FormatError(ValueError):
    """The bytes are not a valid Pumice stream."""


def require(condition, message):
    if not condition:
        raise FormatError(message)


class Cursor:
    """Reads packed little-endian fields from data[at:end]; `what` names the part of the stream in messages."""

    def __init__(self, data, what, at=0, end=None):
        self.data, self.what, self.at = data, what, at
        self.end = len(data) if end is None else end

    def require(self, condition, message):
        require(condition, f"{self.what}: {message}")

    def part(self, size, field):
        """A cursor over the next bytes."""
        return Cursor(self.take(size, field), f"{self.what}, {field}")

    def take(self, size, field):
        require(size <= self.end - self.at, f"{self.what}: ends within {field}")
        self.at += size
        return self.data[self.at - size:self.at]

    def uint(self, size, field):
        return int.from_bytes(self.take(size, field), "little")

    def array(self, dtype, count, field):
        return np.frombuffer(self.take(np.dtype(dtype).itemsize * count, field), dtype)

    def varint(self, field):
        value = 0
        for i in range(10):
            byte = self.uint(1, field)
            value |= (byte & 127) << 7 * i
            if byte < 128:
                require(byte or i == 0, f"{self.what}: {field}: varint has a superfluous zero byte")
                require(value < 2**64, f"{self.what}: {field}: varint above 2^64 - 1")
                return value
        raise FormatError(f"{self.what}: {field}: varint longer than ten bytes")

    def signed(self, field):
        """A varint: 2 n for n from 0 on, -2 n - 1 for n below 0."""
        zigzag = self.varint(field)
        return zigzag >> 1 ^ -(zigzag & 1)

    def text(self, field):
        try:
            return str(self.take(self.varint(field), field), "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.what}: {field} is not UTF-8") from error
