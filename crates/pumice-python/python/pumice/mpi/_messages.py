"""Values that are compressed on their way between ranks, and sums over all ranks."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from .._arrays import Tensor, on_host
from .._options import Options, number
from ..errors import DtypeError, InvalidArgumentError
from . import _library
from ._library import (
    DTYPES,
    KINDS,
    WIRES,
    Config,
    Handle,
    Wire,
    agreement,
    check,
    communicator,
    library,
    one_of,
    pointers,
    sizes,
    together,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack  # that of typing came with Python 3.11

Algorithm = Literal["auto", "ring", "halving", "plain"]

_ALGORITHMS = {"auto": 0, "ring": 1, "halving": 2, "plain": 3}


class Transfer(NamedTuple):
    """What values have cost on their way, and promise."""

    values: Any
    """The values that this rank has now; where it has none, nothing."""
    abs_bound: float
    """The error of each value is at most this; 0 if all arrived as they are."""
    is_compressed: bool
    """Whether values were compressed."""
    sent_bytes: int
    """Bytes of values that this rank sent to others."""


def gather(
    comm: MPI.Intracomm, values: Tensor, *, root: int = 0, wire: Wire = "auto", **options: Unpack[Options]
) -> Transfer:
    """Collects the values of all ranks, each of which may have any number of them, on rank `root`, one after the other. Its own
    stay exact.

    `options` give an absolute bound, a relative or point-wise relative one, or none (`lossless=True`), and a preset, by default
    `fast`. A relative bound is for the range of all values. By default values are sent as they are where that is quicker, as
    far as a short measurement tells; `wire` says otherwise.
    """
    handle, asked = _asked(comm, wire, options, lambda: (on_host(values), operator.index(root)))
    array, root = asked.arguments
    # The others are told as well if the type differs.
    n_of_all = comm.allgather(array.size)
    out = np.empty(sum(n_of_all) if comm.rank == root else 0, array.dtype)
    done = asked.call("pumice_mpi_gather", (handle.pointer, root), array.dtype, (*_flat(array), *_flat(out)))
    return done._replace(values=out if comm.rank == root else None)


def allgather(comm: MPI.Intracomm, values: Tensor, *, wire: Wire = "auto", **options: Unpack[Options]) -> Transfer:
    """As :func:`gather`, but all ranks get all values: the same bits everywhere, also where they came from."""
    handle, asked = _asked(comm, wire, options, lambda: on_host(values))
    array = asked.arguments
    out = np.empty(sum(comm.allgather(array.size)), array.dtype)
    done = asked.call("pumice_mpi_all_gather", (handle.pointer,), array.dtype, (*_flat(array), *_flat(out)))
    return done._replace(values=out)


def bcast(
    comm: MPI.Intracomm, values: NDArray[Any], *, root: int = 0, wire: Wire = "auto", **options: Unpack[Options]
) -> Transfer:
    """Gives all ranks the values of rank `root`, in place, in arrays of one shape and type. All ranks get the same bits, and so
    does `root`, whose values are replaced by what the others get. For the other arguments see :func:`gather`.
    """
    handle, asked = _asked(comm, wire, options, lambda: (_target(values), operator.index(root)))
    out, root = asked.arguments
    return asked.call("pumice_mpi_broadcast", (handle.pointer, root), out.dtype, _flat(out))._replace(values=out)


def scatter(
    comm: MPI.Intracomm,
    values: Tensor | None,
    out: NDArray[Any],
    *,
    root: int = 0,
    wire: Wire = "auto",
    **options: Unpack[Options],
) -> Transfer:
    """Deals out the values of rank `root`, in the order of ranks: to each as many as its `out` has. Elsewhere `values` may be
    None. What `root` itself gets stays exact. For the other arguments see :func:`gather`.
    """

    def prepare() -> tuple[Any, ...]:
        target = _target(out)
        return target, np.empty(0, target.dtype) if values is None else on_host(values), operator.index(root)

    handle, asked = _asked(comm, wire, options, prepare)
    target, array, root = asked.arguments
    done = asked.call("pumice_mpi_scatter", (handle.pointer, root), target.dtype, (*_flat(array), *_flat(target)))
    return done._replace(values=target)


def alltoall(
    comm: MPI.Intracomm, parts: Sequence[Tensor], *, wire: Wire = "auto", **options: Unpack[Options]
) -> Transfer:
    """Each rank sends an array to each: `parts` has one for each rank, of any size. Returns a list of what each rank has sent
    here, without their shapes. What a rank sends to itself stays exact. For the other arguments see :func:`gather`.
    """

    def prepare() -> NDArray[Any]:
        arrays = [on_host(part).ravel() for part in parts]
        if len(arrays) != comm.size or len({array.dtype for array in arrays}) != 1:
            raise InvalidArgumentError(f"{comm.size} arrays of one type are needed, one for each rank")
        counts.extend(array.size for array in arrays)
        return np.concatenate(arrays)

    counts: list[int] = []
    handle, asked = _asked(comm, wire, options, prepare)
    array = asked.arguments
    out_counts = comm.alltoall(counts)
    out = np.empty(sum(out_counts), array.dtype)
    lists = (array.ctypes.data, sizes(counts), out.ctypes.data, sizes(out_counts))
    done = asked.call("pumice_mpi_all_to_all", (handle.pointer,), array.dtype, lists)
    return done._replace(values=np.split(out, np.cumsum(out_counts)[:-1]))


def send(
    comm: MPI.Intracomm, values: Tensor, dest: int, *, tag: int = 0, wire: Wire = "auto", **options: Unpack[Options]
) -> Transfer:
    """Sends values to rank `dest`, which calls :func:`recv`. Only these two ranks take part, and two that send to each other must
    not both send first. For the other arguments see :func:`gather`; a relative bound is for the range of these values. The
    first call with a communicator, whatever the function, is one of all its ranks.
    """
    handle = communicator(comm)
    array = on_host(values)
    with Config({"preset": "fast", **options}) as config:
        asked = _Asked(config, one_of("wire", wire, WIRES), None)
        ends = (handle.pointer, operator.index(dest), operator.index(tag))
        return asked.call("pumice_mpi_send", ends, array.dtype, _flat(array))._replace(values=None)


def recv(comm: MPI.Intracomm, out: NDArray[Any], source: int, *, tag: int = 0) -> Transfer:
    """Receives what rank `source` sends by :func:`send` with this tag: as many values, of the same type, as `out` has."""
    handle = communicator(comm)
    target, done = _target(out), _library.Transfer()
    ends = (handle.pointer, operator.index(source), operator.index(tag))
    check(library().pumice_mpi_receive(*ends, DTYPES[target.dtype], *_flat(target), ctypes.byref(done)))
    return Transfer(target, done.abs_bound, bool(done.is_compressed), done.sent_bytes)


class Sum(NamedTuple):
    """What :func:`allreduce` and :func:`reduce_scatter` return."""

    values: NDArray[Any]
    """The sum, or the part of it that was asked for."""
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
    handle, mine, asked = _summed(comm, arrays, abs, rel, total, algorithm)
    out = np.empty_like(mine[0])
    lists = (out.size, len(mine), pointers(mine), out.ctypes.data)
    return _sum(out, "pumice_mpi_all_reduce", handle, asked, lists)


def reduce_scatter(
    comm: MPI.Intracomm,
    arrays: Tensor | Sequence[Tensor],
    part: slice,
    *,
    abs: float | None = None,
    rel: float | None = None,
    total: bool = False,
    algorithm: Algorithm = "auto",
) -> Sum:
    """As :func:`allreduce`, but this rank gets only a part of the sum, of which the arrays are taken as flat. Ranks may ask for
    any parts; the least is sent if they follow one another and make up the sum.
    """
    handle, mine, asked = _summed(comm, arrays, abs, rel, total, algorithm)
    first, end, _ = part.indices(mine[0].size)
    out = np.empty(max(end - first, 0), mine[0].dtype)
    lists = (mine[0].size, len(mine), pointers(mine), first, out.size, out.ctypes.data)
    return _sum(out, "pumice_mpi_reduce_scatter", handle, asked, lists)


def _summed(
    comm: MPI.Intracomm, arrays: Any, abs: float | None, rel: float | None, total: bool, algorithm: str
) -> tuple[Handle, list[NDArray[Any]], tuple[Any, ...]]:
    handle = communicator(comm)

    def prepare() -> tuple[Any, ...]:
        given_arrays: Sequence[Any] = arrays if isinstance(arrays, list | tuple) else [arrays]
        mine = [on_host(array) for array in given_arrays]
        if not mine or any((array.shape, array.dtype) != (mine[0].shape, mine[0].dtype) for array in mine):
            raise InvalidArgumentError("a rank adds one array, or several of one shape and type")
        given = [(kind, number(kind, e)) for kind, e in (("abs", abs), ("rel", rel)) if e is not None]
        if len(given) != 1:
            raise InvalidArgumentError("a sum needs one bound: pass abs= or rel=")
        (kind, e) = given[0]
        return mine, (KINDS[kind], e, int(total), one_of("algorithm", algorithm, _ALGORITHMS))

    mine, asked = together(agreement(handle), prepare)
    return handle, mine, asked


def _sum(out: NDArray[Any], function: str, handle: Handle, asked: tuple[Any, ...], lists: tuple[Any, ...]) -> Sum:
    done = _library.Sum()
    check(getattr(library(), function)(handle.pointer, *asked, DTYPES[out.dtype], *lists, ctypes.byref(done)))
    used = next(name for name, number in _ALGORITHMS.items() if number == done.algorithm)
    return Sum(out, done.n_vectors, done.abs_bound, used, done.sent_bytes)


class _Asked(NamedTuple):
    """How values are to be sent, with what the ranks have prepared."""

    config: Config
    wire: int
    arguments: Any

    def call(self, function: str, first: tuple[Any, ...], dtype: np.dtype[Any], lists: tuple[Any, ...]) -> Transfer:
        done = _library.Transfer()
        with self.config as config:
            asked = (config.pointer, self.wire, DTYPES[dtype])
            check(getattr(library(), function)(*first, *asked, *lists, ctypes.byref(done)))
        return Transfer(None, done.abs_bound, bool(done.is_compressed), done.sent_bytes)


def _asked(comm: MPI.Intracomm, wire: str, options: Options, prepare: Any) -> tuple[Handle, _Asked]:
    handle = communicator(comm)
    asked = together(
        agreement(handle),
        lambda: _Asked(
            # Last, since it is to be freed.
            arguments=prepare(),
            wire=one_of("wire", wire, WIRES),
            config=Config({"preset": "fast", **options}),
        ),
    )
    return handle, asked


def _target(out: Any) -> NDArray[Any]:
    """An array that values are written to."""
    if not isinstance(out, np.ndarray) or out.dtype not in DTYPES:
        raise DtypeError(f"values are written to an array of float32 or float64, not to {getattr(out, 'dtype', out)}")
    if not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned and out.dtype.isnative):
        raise InvalidArgumentError("values are written to arrays in C order that are writeable, aligned and of native byte order")
    return out


def _flat(array: NDArray[Any]) -> tuple[int, int]:
    return array.size, array.ctypes.data
