"""Arrays that the ranks of an MPI program share out: one file of all ranks, and values that are compressed on their way.

Works with communicators of mpi4py and arrays of NumPy. Needs libpumice_mpi, which is made for the MPI library of the machine:
see docs/mpi.md. All functions are collective, if nothing else is said: all ranks call them, with the same arguments but for
their own boxes and values. If a rank fails, all ranks raise an exception; none waits for it.

::

    from mpi4py import MPI
    import numpy as np, pumice.mpi
    world = MPI.COMM_WORLD
    mine = np.full((10, 50), world.rank, "float32")
    n = pumice.mpi.write(world, "field.pum", (10 * world.size, 50), [((10 * world.rank, 0), mine)], rel=1e-3)
    with pumice.mpi.open(world, "field.pum") as file:
        row = file.read_all((slice(world.rank, world.rank + 1), slice(None)))
"""

from __future__ import annotations

import ctypes
import operator
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from .._arrays import Tensor, on_host
from .._options import Options, count, number, threads_of
from ..errors import DtypeError, InvalidArgumentError
from . import _library
from ._library import DTYPES, KINDS, Config, Handle, check, communicator, library, path_bytes, pointers, sizes, together

if TYPE_CHECKING:
    from typing_extensions import Unpack  # that of typing came with Python 3.11

__all__ = ["File", "Gathered", "Sum", "Wire", "allreduce", "gather", "open", "write"]

# Where it starts, and its values.
Box = tuple[Sequence[int], Tensor]
Region = tuple[slice, ...]
Wire = Literal["auto", "compressed", "plain"]
Algorithm = Literal["auto", "ring", "halving", "plain"]

_WIRES = {"auto": 0, "compressed": 1, "plain": 2}
_ALGORITHMS = {"auto": 0, "ring": 1, "halving": 2, "plain": 3}
_DEFAULT_MAX_BYTES = 16 << 30


def write(
    comm: MPI.Intracomm,
    path: str | os.PathLike[str],
    shape: Sequence[int],
    boxes: Sequence[Box],
    *,
    dtype: Any = None,
    **options: Unpack[Options],
) -> int:
    """Writes an array of this shape to one file; returns its size in bytes.

    `boxes` are those of this rank, none or several: where each starts, and its values. All boxes of all ranks make up the
    array. A rank without values says by `dtype` what type they have elsewhere. `options` are those of
    :func:`pumice.compress`. The file has the bytes that :func:`pumice.save` writes, whatever the number of ranks, and appears
    under its name when it is complete.
    """
    handle = communicator(comm)

    def prepare() -> tuple[Any, ...]:
        starts, arrays = [], []
        for start, values in boxes:
            array = on_host(values)
            if len(start) != len(shape) or array.ndim != len(shape):
                raise InvalidArgumentError(
                    f"the box at {tuple(start)} of {array.shape} must have as many axes as the array of shape {tuple(shape)}"
                )
            starts += [count("start", at) for at in start]
            arrays.append(array)
        kinds = {array.dtype for array in arrays} | (set() if dtype is None else {np.dtype(dtype)})
        if not kinds:
            raise InvalidArgumentError("a rank without boxes must say by dtype= which type the values have elsewhere")
        if len(kinds) > 1 or not kinds <= DTYPES.keys():
            raise DtypeError(f"all boxes must have float32 values, or all float64, not {', '.join(map(str, kinds))}")
        # Checked last, since it must be freed.
        extents = [count("shape", extent) for extent in shape]
        return path_bytes(path), DTYPES[kinds.pop()], extents, starts, arrays, Config(options)

    name, kind, extents, starts, arrays, config = together(_agreement(handle), prepare)
    n_bytes = ctypes.c_uint64()
    with config:
        counts = [extent for array in arrays for extent in array.shape]
        check(
            library().pumice_mpi_write(
                *(handle.pointer, name, config.pointer, kind, len(extents), sizes(extents)),
                *(len(arrays), sizes(starts), sizes(counts), pointers(arrays), ctypes.byref(n_bytes)),
            )
        )
    return n_bytes.value


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

        name, options = together(_agreement(handle), prepare)
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


class Gathered(NamedTuple):
    """What :func:`gather` returns."""

    values: NDArray[Any] | None
    """The values of all ranks, one after the other; on other ranks than `root` nothing."""
    abs_bound: float
    """The error of each value is at most this; 0 if all arrived as they are."""
    is_compressed: bool
    """Whether values were compressed."""
    sent_bytes: int
    """Bytes of values that this rank sent to others."""


def gather(
    comm: MPI.Intracomm, values: Tensor, *, root: int = 0, wire: Wire = "auto", **options: Unpack[Options]
) -> Gathered:
    """Collects the values of all ranks, each of which may have any number of them, on rank `root`.

    `options` give an absolute bound, a relative one for the range of all values, or none (`lossless=True`), and a preset. By
    default values are sent as they are where that is quicker, as far as a short measurement tells; `wire` says otherwise.
    """
    handle = communicator(comm)

    def prepare() -> tuple[Any, ...]:
        return on_host(values), operator.index(root), _one_of("wire", wire, _WIRES), Config({"preset": "fast", **options})

    array, root, way, config = together(_agreement(handle), prepare)
    with config:
        # The others are told as well if their ranks differ in what they gather.
        sizes_of_all = comm.allgather(array.size)
        out = np.empty(sum(sizes_of_all) if comm.rank == root else 0, array.dtype)
        done = _library.Transfer()
        check(
            library().pumice_mpi_gather(
                *(handle.pointer, root, config.pointer, way, DTYPES[array.dtype]),
                *(array.size, array.ctypes.data, out.size, out.ctypes.data, ctypes.byref(done)),
            )
        )
    return Gathered(out if comm.rank == root else None, done.abs_bound, bool(done.is_compressed), done.sent_bytes)


class Sum(NamedTuple):
    """What :func:`allreduce` returns."""

    values: NDArray[Any]
    """The sum."""
    n_vectors: int
    """How many arrays were added."""
    abs_bound: float
    """The error of each value is at most this."""
    algorithm: str
    """How the sum was formed."""
    sent_bytes: int
    """Bytes of values that this rank sent to others."""


def allreduce(
    comm: MPI.Intracomm,
    arrays: Tensor | Sequence[Tensor],
    *,
    abs: float | None = None,
    rel: float | None = None,
    total: bool = False,
    algorithm: Algorithm = "auto",
) -> Sum:
    """Adds arrays of one shape, of which each rank has one, or a list of one or more.

    All ranks get the same bits, whatever their number and the algorithm, and however the arrays are shared out. The bound is
    for each array, or, with `total`, for the sum.
    """
    handle = communicator(comm)

    def prepare() -> tuple[Any, ...]:
        given_arrays: Sequence[Any] = arrays if isinstance(arrays, list | tuple) else [arrays]
        mine = [on_host(array) for array in given_arrays]
        if not mine or any((array.shape, array.dtype) != (mine[0].shape, mine[0].dtype) for array in mine):
            raise InvalidArgumentError("a rank adds one array, or several of one shape and type")
        given = [(kind, number(kind, e)) for kind, e in (("abs", abs), ("rel", rel)) if e is not None]
        if len(given) != 1:
            raise InvalidArgumentError("a sum needs one bound: pass abs= or rel=")
        return mine, *given[0], _one_of("algorithm", algorithm, _ALGORITHMS)

    mine, kind, e, chosen = together(_agreement(handle), prepare)
    out = np.empty_like(mine[0])
    done = _library.Sum()
    check(
        library().pumice_mpi_all_reduce(
            *(handle.pointer, KINDS[kind], e, int(total), chosen, DTYPES[out.dtype]),
            *(out.size, len(mine), pointers(mine), out.ctypes.data, ctypes.byref(done)),
        )
    )
    used = next(name for name, number in _ALGORITHMS.items() if number == done.algorithm)
    return Sum(out, done.n_vectors, done.abs_bound, used, done.sent_bytes)


def _agreement(handle: Handle) -> Any:
    return lambda status: library().pumice_mpi_agree(handle.pointer, status)


def _one_of(name: str, value: str, known: dict[str, int]) -> int:
    if value not in known:
        raise InvalidArgumentError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return known[value]
