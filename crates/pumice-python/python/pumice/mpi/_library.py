"""The C library libpumice_mpi, which is built for the MPI library of the machine and so is not in the wheel."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from .. import errors
from .._options import Options, bounds_of, config_of, fills_of, pair, threads_of
from .._pumice import __version__

# Whether values are compressed on their way.
Wire = Literal["auto", "compressed", "plain"]

ENVIRONMENT = "PUMICE_MPI_LIBRARY"
# The numbers of pumice.h.
KINDS = {"lossless": 0, "abs": 1, "rel": 2, "pwrel": 3, "psnr": 4, "l2": 5, "ratio": 6}
DTYPES: dict[np.dtype[Any], int] = {np.dtype("float32"): 1, np.dtype("float64"): 2}
WIRES = {"auto": 0, "compressed": 1, "plain": 2}
STABLE = {None: 0, False: 0, True: 1, "auto": 2}
_OK, _INVALID_ARGUMENT, _IO, _INTERNAL = 0, 2, 6, 101


class Transfer(ctypes.Structure):
    _fields_ = (("abs_bound", c_double), ("sent_bytes", c_uint64), ("is_compressed", c_int32))


class Sum(ctypes.Structure):
    _fields_ = (("n_vectors", c_uint64), ("abs_bound", c_double), ("sent_bytes", c_uint64), ("algorithm", c_int32))


_SIZES, _POINTERS = POINTER(c_size_t), POINTER(c_void_p)
# Config, wire and type; bound, its number, whether it is that of the sum, algorithm and type.
_ASKED, _SUMMED = (c_void_p, c_int32, c_int32), (c_int32, c_double, c_int32, c_int32, c_int32)
_TRANSFER = POINTER(Transfer)
_BOXES = (c_size_t, _SIZES, _SIZES, _POINTERS)
# Results and arguments.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "pumice_version": (c_char_p, ()),
    "pumice_last_error": (c_char_p, ()),
    "pumice_refuse": (c_int32, (c_char_p,)),
    "pumice_config_new": (c_void_p, (c_int32, c_double)),
    "pumice_config_free": (None, (c_void_p,)),
    "pumice_config_add_bound": (c_int32, (c_void_p, c_int32, c_double)),
    "pumice_config_set_preset": (c_int32, (c_void_p, c_char_p)),
    "pumice_config_set_stable": (c_int32, (c_void_p, c_int32)),
    "pumice_config_set_threads": (c_int32, (c_void_p, c_size_t)),
    "pumice_config_set_fills": (c_int32, (c_void_p, c_size_t, POINTER(c_double))),
    "pumice_config_set_range": (c_int32, (c_void_p, c_double, c_double)),
    "pumice_config_set_chunk_shape": (c_int32, (c_void_p, c_size_t, _SIZES)),
    "pumice_config_add_attribute": (c_int32, (c_void_p, c_char_p, c_char_p)),
    "pumice_decode_options_new": (c_void_p, ()),
    "pumice_decode_options_free": (None, (c_void_p,)),
    "pumice_decode_options_set_threads": (c_int32, (c_void_p, c_size_t)),
    "pumice_decode_options_set_max_bytes": (c_int32, (c_void_p, c_uint64)),
    "pumice_mpi_comm_new_f": (c_void_p, (c_int,)),
    "pumice_mpi_comm_free": (None, (c_void_p,)),
    "pumice_mpi_agree": (c_int32, (c_void_p, c_int32)),
    "pumice_mpi_write": (
        c_int32,
        (c_void_p, c_char_p, c_void_p, c_int32, c_int32, c_size_t, _SIZES, *_BOXES, POINTER(c_uint64)),
    ),
    "pumice_mpi_iwrite": (
        c_int32,
        (c_void_p, c_char_p, c_void_p, c_int32, c_size_t, _SIZES, *_BOXES, _POINTERS),
    ),
    "pumice_mpi_writing_is_done": (c_int32, (c_void_p,)),
    "pumice_mpi_writing_wait": (c_int32, (c_void_p, POINTER(c_uint64))),
    "pumice_mpi_writer_create": (c_int32, (c_void_p, c_char_p, c_void_p, c_int32, c_size_t, _SIZES, _POINTERS)),
    "pumice_mpi_writer_append": (c_int32, (c_void_p, c_char_p, c_int32, c_size_t, _POINTERS)),
    "pumice_mpi_writer_write": (c_int32, (c_void_p, c_size_t, c_size_t, *_BOXES)),
    "pumice_mpi_writer_finish": (c_int32, (c_void_p, POINTER(c_uint64))),
    "pumice_mpi_writer_free": (None, (c_void_p,)),
    "pumice_mpi_reader_open": (c_int32, (c_void_p, c_char_p, c_void_p, _POINTERS)),
    "pumice_mpi_reader_free": (None, (c_void_p,)),
    "pumice_mpi_reader_dtype": (c_int32, (c_void_p,)),
    "pumice_mpi_reader_rank": (c_size_t, (c_void_p,)),
    "pumice_mpi_reader_shape": (_SIZES, (c_void_p,)),
    "pumice_mpi_reader_agree": (c_int32, (c_void_p, c_int32)),
    "pumice_mpi_reader_read_all": (c_int32, (c_void_p, c_int32, c_size_t, _SIZES, _SIZES, _POINTERS)),
    "pumice_mpi_reader_read": (c_int32, (c_void_p, c_int32, _SIZES, _SIZES, c_void_p)),
    "pumice_mpi_gather": (c_int32, (c_void_p, c_int32, *_ASKED, c_size_t, c_void_p, c_size_t, c_void_p, _TRANSFER)),
    "pumice_mpi_all_gather": (c_int32, (c_void_p, *_ASKED, c_size_t, c_void_p, c_size_t, c_void_p, _TRANSFER)),
    "pumice_mpi_broadcast": (c_int32, (c_void_p, c_int32, *_ASKED, c_size_t, c_void_p, _TRANSFER)),
    "pumice_mpi_scatter": (c_int32, (c_void_p, c_int32, *_ASKED, c_size_t, c_void_p, c_size_t, c_void_p, _TRANSFER)),
    "pumice_mpi_all_to_all": (c_int32, (c_void_p, *_ASKED, c_void_p, _SIZES, c_void_p, _SIZES, _TRANSFER)),
    "pumice_mpi_send": (c_int32, (c_void_p, c_int32, c_int32, *_ASKED, c_size_t, c_void_p, _TRANSFER)),
    "pumice_mpi_receive": (c_int32, (c_void_p, c_int32, c_int32, c_int32, c_size_t, c_void_p, _TRANSFER)),
    "pumice_mpi_all_reduce": (c_int32, (c_void_p, *_SUMMED, c_size_t, c_size_t, _POINTERS, c_void_p, POINTER(Sum))),
    "pumice_mpi_reduce_scatter": (
        c_int32,
        (c_void_p, *_SUMMED, c_size_t, c_size_t, _POINTERS, c_size_t, c_size_t, c_void_p, POINTER(Sum)),
    ),
}


@cache
def library() -> ctypes.CDLL:
    """The library, for the MPI library that mpi4py uses."""
    compatible = ".".join(__version__.split(".")[:2])
    name = os.environ.get(ENVIRONMENT) or f"libpumice_mpi.so.{compatible}"
    try:
        found = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(
            f"pumice.mpi needs the library libpumice_mpi, made for the MPI library of this machine: install it by `cargo"
            f" xtask install-c --mpi --prefix DIR`, and add DIR/lib to LD_LIBRARY_PATH, or name the file in"
            f" {ENVIRONMENT} ({error})"
        ) from error
    for function, (result, arguments) in _FUNCTIONS.items():
        try:
            entry = getattr(found, function)
        except AttributeError:
            raise ImportError(f"{name} has no function {function}: it belongs to another release of Pumice") from None
        entry.restype, entry.argtypes = result, arguments
    version = found.pumice_version().decode()
    if version != __version__:
        raise ImportError(f"{name} belongs to Pumice {version}, and this package is {__version__}: install them together")
    # Looked up in the libraries that it needs, as its own calls are.
    text, length = ctypes.create_string_buffer(MPI.MAX_LIBRARY_VERSION_STRING), c_int()
    found.MPI_Get_library_version(text, ctypes.byref(length))
    theirs = MPI.Get_library_version().rstrip("\0")
    if text.value.decode().rstrip("\0") != theirs:
        raise ImportError(f"{name} is made for another MPI library than mpi4py, which uses {theirs.splitlines()[0]}")
    return found


_KINDS_OF_ERRORS: dict[int, type[Exception]] = {
    kind.code: kind
    for kind in (
        errors.InvalidArgumentError,
        errors.UnsupportedError,
        errors.CorruptError,
        errors.TruncatedError,
        errors.LimitExceededError,
        errors.DeviceError,
    )
} | {_IO: OSError}


def check(status: int) -> None:
    """Raises the error of a call that has failed."""
    if status != _OK:
        raise _KINDS_OF_ERRORS.get(status, errors.PumiceError)(library().pumice_last_error().decode(errors="replace"))


def together(agree: Callable[[int], int], prepare: Callable[[], Any]) -> Any:
    """What `prepare` makes of the arguments of this rank, if it succeeds on all ranks; otherwise its own exception, or the error
    of another rank. So no rank waits for one that has raised an exception.
    """
    failure = None
    result = None
    try:
        result = prepare()
    except Exception as error:
        failure = error
        library().pumice_refuse(f"{type(error).__name__}: {error}".encode())
    status = agree(_OK if failure is None else _INVALID_ARGUMENT)
    if failure is not None:
        raise failure
    check(status)
    return result


class Handle:
    """Something of the library that is freed by a function."""

    def __init__(self, pointer: int | None, free: str) -> None:
        if not pointer:
            raise errors.InvalidArgumentError(library().pumice_last_error().decode(errors="replace"))
        self.pointer: int | None = pointer
        self._free = free

    def free(self) -> None:
        if self.pointer is not None:
            getattr(library(), self._free)(self.pointer)
            self.pointer = None


def _forget(comm: MPI.Comm, _key: int, handle: Handle) -> None:
    # Those of the predefined communicators end with MPI itself.
    if comm not in (MPI.COMM_WORLD, MPI.COMM_SELF):
        handle.free()


@cache
def _key() -> int:
    return MPI.Comm.Create_keyval(delete_fn=_forget)


def communicator(comm: MPI.Comm) -> Handle:
    """The library's duplicate of a communicator, made once; collective the first time."""
    if comm == MPI.COMM_NULL:
        raise errors.InvalidArgumentError("the communicator is MPI.COMM_NULL: this rank is in none")
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"a communicator of mpi4py is needed, such as MPI.COMM_WORLD, not {comm!r}")
    handle = comm.Get_attr(_key())
    if handle is None:
        handle = Handle(library().pumice_mpi_comm_new_f(comm.py2f()), "pumice_mpi_comm_free")
        comm.Set_attr(_key(), handle)
    assert isinstance(handle, Handle)
    return handle


class Config(Handle):
    """The options of a call; to be used in a `with` statement."""

    def __init__(self, options: Options) -> None:
        # Checks them all, in the words of the package.
        config_of(options)
        (first, *others) = bounds_of(options)
        super().__init__(library().pumice_config_new(KINDS[first[0]], first[1]), "pumice_config_free")
        try:
            self._set(options, others)
        except BaseException:
            self.free()
            raise

    def _set(self, options: Options, others: list[tuple[str, float]]) -> None:
        c, config = library(), self.pointer
        for kind, e in others:
            check(c.pumice_config_add_bound(config, KINDS[kind], e))
        check(c.pumice_config_set_preset(config, str(options.get("preset") or "small").encode()))
        check(c.pumice_config_set_stable(config, STABLE[options.get("stable")]))
        check(c.pumice_config_set_threads(config, threads_of(options.get("threads", 0))))
        fills = fills_of(options.get("fill_value"))
        if fills:
            check(c.pumice_config_set_fills(config, len(fills), (c_double * len(fills))(*fills)))
        value_range = options.get("value_range")
        if value_range is not None:
            check(c.pumice_config_set_range(config, *pair("value_range", value_range)))
        chunk_shape = options.get("chunk_shape")
        if chunk_shape is not None:
            check(c.pumice_config_set_chunk_shape(config, len(chunk_shape), sizes(chunk_shape)))
        attributes: Mapping[str, str] = options.get("attributes") or {}
        for key, value in attributes.items():
            check(c.pumice_config_add_attribute(config, key.encode(), value.encode()))

    def __enter__(self) -> Config:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def agreement(handle: Handle) -> Callable[[int], int]:
    """How the ranks of a communicator tell each other of a failure."""
    return lambda status: int(library().pumice_mpi_agree(handle.pointer, status))


def one_of(name: str, value: str, known: dict[str, int]) -> int:
    """The number of an option that is given by name."""
    if value not in known:
        raise errors.InvalidArgumentError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return known[value]


def sizes(numbers: Any) -> ctypes.Array[c_size_t]:
    """An array of C."""
    listed = [int(n) for n in numbers]
    return (c_size_t * len(listed))(*listed)


def pointers(arrays: list[np.ndarray[Any, Any]]) -> ctypes.Array[c_void_p]:
    """The addresses of the values."""
    return (c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(Path(path))


