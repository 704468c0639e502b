"""Integer arithmetic of docs/format.md."""


def clamp(value, low, high):
    return low if value < low else high if value > high else value


def quotient(a, b):
    """a / b, rounded towards zero."""
    return a // b if a >= 0 else -(-a // b)


def low_32(value):
    """The low 32 bits as a signed integer."""
    return (value + 2**31) % 2**32 - 2**31
