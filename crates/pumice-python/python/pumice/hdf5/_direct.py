"""Datasets that are written past HDF5's filter pipeline, by threads and MPI ranks, and those that join the files of several writers."""

from __future__ import annotations

import importlib
import itertools
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _pumice
from ..errors import InvalidArgumentError, PumiceError, UnsupportedError

# Attributes of dimension scales, which hold references into their own file.
_REFERENCES = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties")

# Bits of the filter's parameters: of the first one, and of the first that the filter adds.
_RANGE_GIVEN = 1 << 24
_FILL_GIVEN = 1 << 25
_BIG_ENDIAN = 1 << 8
_FILL_DEFINED = 1 << 9

# The most bytes of one MPI message.
_MAX_MESSAGE = 2**31 - 1


@dataclass(frozen=True)
class _Layout:
    """What is needed to compress chunks of a dataset elsewhere."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]
    cd_values: list[int]

    @classmethod
    def of(cls, dataset: Any, filter_id: int) -> _Layout:
        if _is_shared(dataset.file):
            raise UnsupportedError(
                "HDF5 cannot write chunks directly in a file that is open with driver='mpio': open it on one rank, without "
                "a driver, and pass comm="
            )
        dcpl = dataset.id.get_create_plist()
        filters = [dcpl.get_filter(i) for i in range(dcpl.get_nfilters())]
        if dataset.chunks is None or filter_id not in [number for number, *_ in filters]:
            raise InvalidArgumentError(
                f"the dataset {dataset.name} has no Pumice filter: create it with chunks= and **pumice.hdf5(...)"
            )
        number, _, cd_values, name = filters[-1]
        if number != filter_id:
            raise UnsupportedError(
                f"the filter {name.decode(errors='replace')!r} comes after Pumice in {dataset.name}: leave it out, or write "
                "by dataset[...] = array"
            )
        return cls(dataset.shape, dataset.chunks, dataset.dtype, _both_parts(cd_values, dataset, dcpl))

    def pieces(self, start: Sequence[int], count: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The chunks of a box, as the positions where they start."""
        return itertools.product(*(range(at, at + n, step) for at, n, step in zip(start, count, self.chunks)))

    def compress(self, array: np.ndarray[Any, Any], start: Sequence[int], at: Sequence[int]) -> bytes:
        """The bytes of the chunk at a position, from an array that begins at `start`."""
        within = tuple(slice(a - s, a - s + n) for a, s, n in zip(at, start, self.chunks))
        part = np.ascontiguousarray(array[within])
        return _pumice.hdf5_compress_chunk(self.cd_values, part.view(np.uint8).reshape(-1), list(part.shape), 1)

    def check(self, array: Any, start: Sequence[int] | None) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
        """The array in the type and byte order of the dataset, and where it begins."""
        array = np.asarray(array)
        begin = (0,) * len(self.shape) if start is None else tuple(start)
        if array.ndim != len(self.shape) or len(begin) != len(self.shape):
            raise InvalidArgumentError(
                f"an array of shape {array.shape} at {begin} for a dataset of shape {self.shape}: give as many axes"
            )
        if array.size == 0:
            return array.astype(self.dtype), begin
        for at, n, extent, chunk in zip(begin, array.shape, self.shape, self.chunks):
            if at < 0 or at + n > extent:
                raise InvalidArgumentError(
                    f"an array of shape {array.shape} at {begin} does not fit into a dataset of shape {self.shape}"
                )
            if at % chunk or (n % chunk and at + n != extent):
                raise InvalidArgumentError(
                    f"an array of shape {array.shape} at {begin} does not start and end at the borders of chunks of shape "
                    f"{self.chunks}, or at the edge of the dataset"
                )
        if not np.issubdtype(array.dtype, np.floating) or array.dtype.itemsize > self.dtype.itemsize:
            raise InvalidArgumentError(
                f"values of type {array.dtype} for a dataset of {self.dtype}: convert them, which may round, by array.astype"
            )
        # Other byte orders and narrower floats are converted without a loss.
        return array.astype(self.dtype, copy=False), begin


def _both_parts(cd_values: Sequence[int], dataset: Any, dcpl: Any) -> list[int]:
    """The filter's parameters, with those that it has added for the dataset (docs/hdf5.md). h5py gives the first 16 only, and
    no more of the others than their number: the user's part, which is never longer, is taken from it."""
    h5py: Any = importlib.import_module("h5py")

    first = cd_values[0]
    n_fills = 1 + (first >> 28 & 3) if first & _FILL_GIVEN else 0
    n_user = 3 + (4 if first & _RANGE_GIVEN else 0) + 2 * n_fills
    has_fill = dcpl.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    order = dataset.dtype.byteorder
    is_big = order == ">" or (order == "=" and sys.byteorder == "big")
    kind = dataset.dtype.itemsize | (_BIG_ENDIAN if is_big else 0)
    own = [kind | (_FILL_DEFINED if has_fill else 0), len(dataset.chunks)]
    for extent in dataset.chunks:
        own += [extent & 0xFFFFFFFF, extent >> 32]
    if has_fill:
        own += struct.unpack(">2I", struct.pack(">d", dataset.fillvalue))
    return [*cd_values[:n_user], *own]


def _is_shared(file: Any) -> bool:
    """Whether a file is open with ``driver="mpio"``. `file.driver` says so too, but only if all ranks ask."""
    try:
        file.id.get_mpi_atomicity()
    except Exception:
        # h5py without MPI has no such function; with it, it fails for other drivers.
        return False
    return True


def _in_order(
    pool: ThreadPoolExecutor, compress: Callable[[tuple[int, ...]], bytes], pieces: Iterable[tuple[int, ...]], ahead: int
) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Compressed chunks in the order of the pieces, of which no more than `ahead` are in memory."""
    waiting: list[Any] = []
    for at in pieces:
        waiting.append((at, pool.submit(compress, at)))
        if len(waiting) >= ahead:
            first, result = waiting.pop(0)
            yield first, result.result()
    for at, result in waiting:
        yield at, result.result()


def write_chunks(
    filter_id: int, dataset: Any, array: Any, start: Sequence[int] | None, threads: int | None, comm: Any, root: int
) -> None:
    if comm is not None:
        _write_from_ranks(filter_id, dataset, array, start, threads, comm, root)
        return
    n_threads = _count_of(threads)
    layout = _Layout.of(dataset, filter_id)
    array, begin = layout.check(array, start)
    pieces = layout.pieces(begin, array.shape)
    with ThreadPoolExecutor(n_threads) as pool:
        for at, chunk in _in_order(pool, lambda at: layout.compress(array, begin, at), pieces, 2 * n_threads):
            dataset.id.write_direct_chunk(at, chunk)


def _count_of(threads: int | None) -> int:
    n_threads = (os.cpu_count() or 1) if threads is None else threads
    if n_threads < 1:
        raise InvalidArgumentError(f"threads must be at least 1, not {threads}")
    return n_threads


def _agree(comm: Any, error: Exception | None) -> None:
    """Raises on all ranks the error of the lowest one that has one."""
    told: tuple[type[Exception], str] | None = None
    if error is not None:
        kind = next((known for known in (PumiceError, OSError, MemoryError) if isinstance(error, known)), None)
        told = (type(error) if kind is PumiceError else kind or PumiceError, f"rank {comm.rank}: {error}")
    first = next((told for told in comm.allgather(told) if told is not None), None)
    if first is not None:
        kind, message = first
        raise kind(message) from error


def _write_from_ranks(
    filter_id: int, dataset: Any, array: Any, start: Sequence[int] | None, threads: int | None, comm: Any, root: int
) -> None:
    """All ranks compress; `root` gets the chunks in the order of the dataset, and writes them."""
    error: Exception | None = None
    layout: _Layout | None = None
    if comm.rank == root:
        try:
            layout = _Layout.of(dataset, filter_id)
        except Exception as e:
            error = e
    _agree(comm, error)
    layout = comm.bcast(layout, root)
    assert layout is not None
    chunks: list[tuple[tuple[int, ...], bytes]] = []
    try:
        array, begin = layout.check(array, start)
        pieces = list(layout.pieces(begin, array.shape))
        known = layout
        with ThreadPoolExecutor(_count_of(threads)) as pool:
            chunks = list(zip(pieces, pool.map(lambda at: known.compress(array, begin, at), pieces)))
        if any(len(chunk) > _MAX_MESSAGE for _, chunk in chunks):
            raise InvalidArgumentError("a chunk of 2 GiB and more cannot be sent: use smaller chunks")
    except Exception as e:
        error = e
    _agree(comm, error)
    lists = comm.gather([(at, len(chunk)) for at, chunk in chunks], root)
    order: list[tuple[tuple[int, ...], int, int]] = []
    if comm.rank == root:
        order = sorted((at, rank, n) for rank, mine in enumerate(lists) for at, n in mine)
        twice = [(a, b) for a, b in itertools.pairwise(order) if a[0] == b[0]]
        if twice:
            a, b = twice[0]
            error = InvalidArgumentError(f"ranks {a[1]} and {b[1]} both give the chunk at {a[0]}")
    _agree(comm, error)
    if comm.rank != root:
        for _, chunk in chunks:
            comm.Send(np.frombuffer(chunk, np.uint8), root)
    else:
        own = dict(chunks)
        for at, rank, n in order:
            received = np.empty(0 if rank == root else n, np.uint8)
            if rank != root:
                comm.Recv(received, rank)
            # After an error the others must still get rid of what they send.
            if error is None:
                try:
                    dataset.id.write_direct_chunk(at, own[at] if rank == root else received.tobytes())
                except Exception as e:
                    error = e
    _agree(comm, error)


def virtual(group: Any, name: str, sources: Iterable[tuple[Any, Sequence[int]]], fill_value: float | None) -> Any:
    h5py: Any = importlib.import_module("h5py")

    parts = [(dataset, tuple(start)) for dataset, start in sources]
    if not parts:
        raise InvalidArgumentError("a virtual dataset needs at least one source")
    first, _ = parts[0]
    for dataset, start in parts:
        if dataset.dtype != first.dtype or len(start) != len(first.shape) or dataset.ndim != first.ndim:
            raise InvalidArgumentError(
                f"{dataset.file.filename}: {dataset.ndim} axes of {dataset.dtype}, at {start}, but the first source has "
                f"{first.ndim} of {first.dtype}"
            )
        if any(at < 0 for at in start):
            raise InvalidArgumentError(f"{dataset.file.filename}: a source cannot start at {start}")
    _check_apart([(dataset.file.filename, start, dataset.shape) for dataset, start in parts])
    extents = zip(*([at + n for at, n in zip(start, dataset.shape)] for dataset, start in parts))
    layout = h5py.VirtualLayout(tuple(max(ends) for ends in extents), first.dtype)
    folder = os.path.dirname(os.path.abspath(group.file.filename))
    for dataset, start in parts:
        # HDF5 looks for them beside the file that refers to them, so that all can be moved together.
        path = os.path.relpath(os.path.abspath(dataset.file.filename), folder)
        box = tuple(slice(at, at + n) for at, n in zip(start, dataset.shape))
        layout[box] = h5py.VirtualSource(path, dataset.name, dataset.shape, dataset.dtype)
    if fill_value is None:
        fill_value = first.fillvalue
    joined = group.create_virtual_dataset(name, layout, fillvalue=fill_value)
    for key, value in first.attrs.items():
        if key not in _REFERENCES:
            joined.attrs[key] = value
    return joined


def _check_apart(boxes: list[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> None:
    """Boxes that overlap are an error: only one of them would be read. Sorted by their start along the slowest axis, each is
    compared only with those that start before it ends."""
    boxes = sorted((box for box in boxes if 0 not in box[2]), key=lambda box: box[1])
    for i, (name, start, shape) in enumerate(boxes):
        for other, other_start, other_shape in boxes[i + 1 :]:
            if start and other_start[0] >= start[0] + shape[0]:
                break
            sides = zip(start, shape, other_start, other_shape)
            if all(a < b + m and b < a + n for a, n, b, m in sides):
                raise InvalidArgumentError(f"the parts of {name} at {start} and of {other} at {other_start} overlap")
