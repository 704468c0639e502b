"""The exceptions of Pumice, which are also those that Python programs expect.

All are a :class:`PumiceError`. Reading and writing files raises :class:`OSError`, as `open` does.
"""

__all__ = [
    "CorruptError",
    "DeviceError",
    "DtypeError",
    "InvalidArgumentError",
    "LimitExceededError",
    "PumiceError",
    "TruncatedError",
    "UnsupportedError",
]


class PumiceError(Exception):
    """Any error of Pumice. `code` is the exit code that the command-line tool has for it."""

    code: int = 1


class InvalidArgumentError(PumiceError, ValueError):
    """Something impossible or contradictory was asked for."""

    code = 2


class DtypeError(PumiceError, TypeError):
    """The array does not hold float32 or float64 values."""

    code = 2


class UnsupportedError(PumiceError, NotImplementedError):
    """The stream needs a newer release, or the request another backend."""

    code = 3


class CorruptError(PumiceError, ValueError):
    """The bytes are not a Pumice stream, or were damaged."""

    code = 4


class TruncatedError(CorruptError):
    """The stream ends too early."""

    code = 5


class LimitExceededError(PumiceError, MemoryError):
    """Decoding would take more memory than `max_bytes` allows, or than the system has; compressing, than it has."""

    code = 7


class DeviceError(PumiceError, RuntimeError):
    """An accelerator is missing or failed."""

    code = 8
