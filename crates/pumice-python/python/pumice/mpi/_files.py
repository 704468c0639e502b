"""Files that all ranks write and read together."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from .._arrays import Tensor, on_host
from .._options import Options, count, threads_of
from ..errors import DtypeError, InvalidArgumentError
from ._library import (
    DTYPES,
    WIRES,
    Config,
    Handle,
    Wire,
    agreement,
    check,
    communicator,
    library,
    one_of,
    path_bytes,
    pointers,
    sizes,
    together,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack  # that of typing came with Python 3.11

# Where it starts, and its values.
Box = tuple[Sequence[int], Tensor]
Region = tuple[slice, ...]

_DEFAULT_MAX_BYTES = 16 << 30


def write(
    comm: MPI.Intracomm,
    path: str | os.PathLike[str],
    shape: Sequence[int],
    boxes: Sequence[Box],
    *,
    dtype: Any = None,
    wire: Wire = "compressed",
    **options: Unpack[Options],
) -> int:
    """Writes an array of this shape to one file; returns its size in bytes.

    `boxes` are those of this rank, none or several: where each starts, and its values. All boxes of all ranks make up the
    array. A rank without values says by `dtype` what type they have elsewhere. `options` are those of
    :func:`pumice.compress`. The file has the bytes that :func:`pumice.save` writes, whatever the number of ranks, and appears
    under its name when it is complete. With `wire="auto"`, values go to the file as they are where a short measurement says
    that this is quicker; it then is a Pumice file without loss.
    """
    handle = communicator(comm)
    new = _new_file(handle, path, shape, boxes, dtype, wire, options)
    n_bytes = ctypes.c_uint64()
    with new.config as config:
        array = (new.dtype, len(new.shape), sizes(new.shape), *new.boxes.arguments())
        check(
            library().pumice_mpi_write(handle.pointer, new.path, config.pointer, new.wire, *array, ctypes.byref(n_bytes))
        )
    return n_bytes.value


def iwrite(
    comm: MPI.Intracomm,
    path: str | os.PathLike[str],
    shape: Sequence[int],
    boxes: Sequence[Box],
    *,
    dtype: Any = None,
    **options: Unpack[Options],
) -> Writing:
    """As :func:`write`, while the program goes on: when this returns, the values may change. Each rank needs memory for a copy of
    them until :meth:`Writing.wait`.
    """
    handle = communicator(comm)
    new = _new_file(handle, path, shape, boxes, dtype, "compressed", options)
    pointer = ctypes.c_void_p()
    with new.config as config:
        array = (new.dtype, len(new.shape), sizes(new.shape), *new.boxes.arguments())
        check(library().pumice_mpi_iwrite(handle.pointer, new.path, config.pointer, *array, ctypes.byref(pointer)))
    return Writing(pointer)


class Writing:
    """A file that is being written. Made by :func:`iwrite`."""

    def __init__(self, pointer: ctypes.c_void_p) -> None:
        self._pointer: ctypes.c_void_p | None = pointer

    def is_done(self) -> bool:
        """Whether :meth:`wait` has nothing to wait for but other ranks; not collective."""
        return self._pointer is None or bool(library().pumice_mpi_writing_is_done(self._pointer))

    def wait(self) -> int:
        """Waits until the file is in its place, together with all ranks, in the same order for all files; returns its size."""
        if self._pointer is None:
            raise ValueError("this file was already waited for")
        pointer, self._pointer, n_bytes = self._pointer, None, ctypes.c_uint64()
        check(library().pumice_mpi_writing_wait(pointer, ctypes.byref(n_bytes)))
        return n_bytes.value


class Writer:
    """A file to which all ranks together add rows along axis 0, such as time steps. `row_shape` is the shape of a row. The bound
    must not depend on the values: an absolute one, or a relative one with `value_range`.

    As a context it finishes the file at the end; after an exception the partial file stays.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        path: str | os.PathLike[str],
        row_shape: Sequence[int],
        dtype: Any,
        **options: Unpack[Options],
    ) -> None:
        handle = communicator(comm)

        def prepare() -> tuple[Any, ...]:
            extents = [count("row_shape", extent) for extent in row_shape]
            return path_bytes(path), _kind(dtype), extents, Config(options)

        name, kind, extents, config = together(agreement(handle), prepare)
        pointer = ctypes.c_void_p()
        with config:
            row = (DTYPES[kind], len(extents), sizes(extents), ctypes.byref(pointer))
            check(library().pumice_mpi_writer_create(handle.pointer, name, config.pointer, *row))
        self._start(handle, kind, pointer)

    @classmethod
    def append(
        cls, comm: MPI.Intracomm, path: str | os.PathLike[str], dtype: Any, *, threads: int = 0
    ) -> Writer:
        """Adds rows to a file that exists, with its bound and chunks. It stays as it is until the writer is finished."""
        handle = communicator(comm)
        arguments = together(agreement(handle), lambda: (path_bytes(path), _kind(dtype), threads_of(threads)))
        name, kind, n_threads = arguments
        pointer = ctypes.c_void_p()
        check(library().pumice_mpi_writer_append(handle.pointer, name, DTYPES[kind], n_threads, ctypes.byref(pointer)))
        writer = cls.__new__(cls)
        writer._start(handle, kind, pointer)
        return writer

    def _start(self, handle: Handle, kind: np.dtype[Any], pointer: ctypes.c_void_p) -> None:
        self._comm, self._dtype = handle, kind
        self._writer = Handle(pointer.value, "pumice_mpi_writer_free")

    def write_rows(self, n_rows: int, boxes: Sequence[Box]) -> None:
        """Adds so many rows, of which this rank has some boxes; the first of these rows has position 0."""
        pointer = self._open()

        def prepare() -> tuple[int, _Boxes]:
            given = _Boxes(boxes, None)
            given.dtype(self._dtype)
            return count("n_rows", n_rows), given

        n, given = together(agreement(self._comm), prepare)
        check(library().pumice_mpi_writer_write(pointer, n, given.n_axes or 0, *given.arguments()))

    def finish(self) -> int:
        """Puts the file in its place, together with all ranks; returns its size in bytes."""
        pointer, n_bytes = self._open(), ctypes.c_uint64()
        self._writer.pointer = None
        check(library().pumice_mpi_writer_finish(pointer, ctypes.byref(n_bytes)))
        return n_bytes.value

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self._writer.free()

    def _open(self) -> int:
        if self._writer.pointer is None:
            raise ValueError("the file is finished")
        return self._writer.pointer


class _Boxes:
    """The boxes of this rank, checked; `n_axes` is that of the array, if it is known."""

    def __init__(self, boxes: Sequence[Box], n_axes: int | None) -> None:
        self.n_axes = n_axes
        self.starts: list[int] = []
        self.arrays: list[NDArray[Any]] = []
        for start, values in boxes:
            array = on_host(values)
            self.n_axes = array.ndim if self.n_axes is None else self.n_axes
            if len(start) != self.n_axes or array.ndim != self.n_axes:
                raise InvalidArgumentError(
                    f"the box at {tuple(start)} of {array.shape} must have as many axes as the array, {self.n_axes}"
                )
            self.starts += [count("start", at) for at in start]
            self.arrays.append(array)

    def dtype(self, given: Any) -> np.dtype[Any]:
        kinds = {array.dtype for array in self.arrays} | (set() if given is None else {np.dtype(given)})
        if not kinds:
            raise InvalidArgumentError("a rank without boxes must say by dtype= which type the values have elsewhere")
        if len(kinds) > 1:
            raise DtypeError(f"all boxes must have values of one type, not {', '.join(map(str, kinds))}")
        return _kind(kinds.pop())

    def arguments(self) -> tuple[Any, ...]:
        counts = [extent for array in self.arrays for extent in array.shape]
        return len(self.arrays), sizes(self.starts), sizes(counts), pointers(self.arrays)


class _NewFile(NamedTuple):
    path: bytes
    shape: list[int]
    boxes: _Boxes
    dtype: int
    wire: int
    config: Config


def _new_file(
    handle: Handle,
    path: str | os.PathLike[str],
    shape: Sequence[int],
    boxes: Sequence[Box],
    dtype: Any,
    wire: str,
    options: Options,
) -> _NewFile:
    def prepare() -> _NewFile:
        given = _Boxes(boxes, len(shape))
        extents = [count("shape", extent) for extent in shape]
        kind, way = DTYPES[given.dtype(dtype)], one_of("wire", wire, WIRES)
        # The config comes last, since it is to be freed.
        return _NewFile(path_bytes(path), extents, given, kind, way, Config(options))

    new = together(agreement(handle), prepare)
    assert isinstance(new, _NewFile)
    return new


def _kind(dtype: Any) -> np.dtype[Any]:
    kind: np.dtype[Any] = np.dtype(dtype)
    if kind not in DTYPES:
        raise DtypeError(f"values must be float32 or float64, not {kind}")
    return kind


def open(
    comm: MPI.Intracomm, path: str | os.PathLike[str], *, threads: int = 0, max_bytes: int = _DEFAULT_MAX_BYTES
) -> File:
    """Opens a file for all ranks. `threads` decode on each rank; 0 is its share of the cores of its node. No call takes more
    memory than `max_bytes` for values.
    """
    return File(comm, path, threads=threads, max_bytes=max_bytes)


class File:
    """A Pumice file that all ranks of a communicator have open. Made by :func:`open`."""

    def __init__(self, comm: MPI.Intracomm, path: str | os.PathLike[str], *, threads: int, max_bytes: int) -> None:
        handle = communicator(comm)

        def prepare() -> tuple[bytes, Handle]:
            options = Handle(library().pumice_decode_options_new(), "pumice_decode_options_free")
            check(library().pumice_decode_options_set_threads(options.pointer, threads_of(threads)))
            check(library().pumice_decode_options_set_max_bytes(options.pointer, count("max_bytes", max_bytes)))
            return path_bytes(path), options

        name, options = together(agreement(handle), prepare)
        pointer = ctypes.c_void_p()
        status = library().pumice_mpi_reader_open(handle.pointer, name, options.pointer, ctypes.byref(pointer))
        options.free()
        check(status)
        self._reader = Handle(pointer.value, "pumice_mpi_reader_free")
        numbers: dict[int, np.dtype[Any]] = {number: dtype for dtype, number in DTYPES.items()}
        self.dtype: np.dtype[Any] = numbers[library().pumice_mpi_reader_dtype(pointer)]
        """Element type: float32 or float64."""
        n_axes = library().pumice_mpi_reader_rank(pointer)
        extents = library().pumice_mpi_reader_shape(pointer)
        self.shape: tuple[int, ...] = tuple(extents[axis] for axis in range(n_axes))
        """Extents, slowest axis first."""

    def read_all(self, *regions: Region) -> Any:
        """Reads regions of the array, one slice for each axis, together with all ranks, each of which gives those that it wants:
        any, also such that others read too. Returns an array for each: with one region the array itself, with none nothing.
        """
        reader = self._open()

        def agree(status: int) -> int:
            return int(library().pumice_mpi_reader_agree(reader, status))

        boxes = together(agree, lambda: [self._box(region) for region in regions])
        arrays = [values for _, _, values in boxes]
        starts, counts = ([at for box in boxes for at in box[i]] for i in (0, 1))
        check(
            library().pumice_mpi_reader_read_all(
                *(reader, DTYPES[self.dtype], len(boxes), sizes(starts), sizes(counts), pointers(arrays))
            )
        )
        return arrays[0] if len(arrays) == 1 else arrays or None

    def read(self, region: Region) -> NDArray[Any]:
        """Reads a region, without the other ranks."""
        start, extents, values = self._box(region)
        address = ctypes.c_void_p(values.ctypes.data)
        check(library().pumice_mpi_reader_read(self._open(), DTYPES[self.dtype], sizes(start), sizes(extents), address))
        return values

    def close(self) -> None:
        """Closes the file, together with all ranks."""
        self._reader.free()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> int:
        if self._reader.pointer is None:
            raise ValueError("the file is closed")
        return self._reader.pointer

    def _box(self, region: Region) -> tuple[list[int], list[int], NDArray[Any]]:
        if not isinstance(region, tuple) or len(region) != len(self.shape):
            raise InvalidArgumentError(f"a region of an array of shape {self.shape} has one slice for each axis")
        start, extents = [], []
        for axis, extent in zip(region, self.shape, strict=True):
            if not isinstance(axis, slice):
                raise TypeError(f"a region has slices, such as 3:4, not {axis!r}")
            first, end, step = axis.indices(extent)
            if step != 1:
                raise InvalidArgumentError(f"slices of a region have a step of 1, not {step}")
            start.append(first)
            extents.append(max(end - first, 0))
        return start, extents, np.empty(extents, self.dtype)
