"""Compressed arrays that are read in part."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from itertools import product
from reprlib import repr as brief
from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._options import count, threads_of
from ._pumice import Reader
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self  # that of typing came with Python 3.11

Index = SupportsIndex | slice | EllipsisType | None
# Start and end of a run of positions to read along an axis, and the positions wanted among them.
_Span = tuple[int, int, range]


class File:
    """A compressed array in a file, read by NumPy's slices: only the chunks that a slice touches are decoded.

    Made by :func:`pumice.open`. Looks enough like an array for `numpy.asarray`, `dask.array.from_array` and xarray. Can be
    used by several threads at once, and sent to other processes, which open the file again.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 0, max_bytes: int) -> None:
        self._options = {"threads": threads_of(threads), "max_bytes": count("max_bytes", max_bytes)}
        self._reader: Reader | None = Reader.of_file(path_of(path), **self._options)
        # Absolute, so that processes in other folders find it.
        self.path = os.path.abspath(path)
        """Where the file is."""
        self._info = self._reader.info
        self._decoded_before_close = 0

    @property
    def info(self) -> dict[str, Any]:
        """The metadata of the file; see :func:`pumice.info`."""
        return dict(self._info)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, slowest axis first."""
        return tuple(self._info["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type: float32 or float64."""
        return np.dtype(str(self._info["dtype"]))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self._info["shape"])

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self._info["shape"], dtype=object))

    @property
    def nbytes(self) -> int:
        """Size of the values."""
        return int(self._info["raw_bytes"])

    @property
    def chunks(self) -> tuple[int, ...]:
        """Extents of the chunks: the unit of decoding."""
        return tuple(self._info["chunk_shape"])

    @property
    def attributes(self) -> dict[str, str]:
        """Notes that are stored with the array."""
        return dict(self._info["attributes"])

    @property
    def chunks_decoded(self) -> int:
        """How many times a chunk was decoded since the file was opened: the cost of reading."""
        return self._decoded_before_close if self._reader is None else self._reader.chunks_decoded

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Any:
        spans, view = _spans(key, self.shape, self.chunks)
        shape = tuple(sum(len(wanted) for _, _, wanted in axis) for axis in spans)
        if all(len(axis) == 1 for axis in spans):
            found = self._read([axis[0] for axis in spans])
        else:
            found = np.zeros(shape, self.dtype)
            for part in product(*(list(_with_offsets(axis)) for axis in spans)):
                to = tuple(slice(at, at + len(span[2])) for at, span in part)
                found[to] = self._read([span for _, span in part])
        return found[view]

    def _read(self, spans: list[_Span]) -> NDArray[Any]:
        """Decodes one box, and selects the wanted positions of it."""
        if self._reader is None:
            raise InvalidArgumentError(f"{self.path} was closed; open it again")
        box = self._reader.read([(start, end) for start, end, _ in spans])
        if all(wanted.step == 1 for _, _, wanted in spans):
            return box
        steps = tuple(slice(None, None, wanted.step) for _, _, wanted in spans)
        return np.ascontiguousarray(box[steps])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the values of a compressed file can only be copied out of it")
        return np.asarray(self[...], dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def close(self) -> None:
        """Closes the file. Arrays that were read stay valid."""
        self._decoded_before_close = self.chunks_decoded
        self._reader = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.path, self._options))

    def __repr__(self) -> str:
        return f"<pumice.File {self.path!r} of shape {self.shape} and type {self.dtype}, ratio {self._info['ratio']:.3g}>"


def path_of(path: str | os.PathLike[str]) -> str:
    """A path as text."""
    if isinstance(path, bytes | bytearray | memoryview):
        raise TypeError("a path is text or an os.PathLike, not bytes; compressed bytes are read by pumice.decompress")
    return os.fspath(path)


def _reopen(path: str, options: dict[str, int]) -> File:
    return File(path, **options)


def _with_offsets(axis: list[_Span]) -> Iterator[tuple[int, _Span]]:
    """Spans, each with its offset in the result."""
    at = 0
    for span in axis:
        yield at, span
        at += len(span[2])


def _spans(
    key: Index | tuple[Index, ...], shape: tuple[int, ...], chunks: tuple[int, ...]
) -> tuple[list[list[_Span]], tuple[Any, ...]]:
    """The spans that a key selects along each axis, and the index that drops and adds axes in the result."""
    keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    n_ellipses = sum(part is Ellipsis for part in keys)
    if n_ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    n_given = sum(part is not Ellipsis and part is not None for part in keys)
    if n_given > len(shape):
        raise IndexError(f"too many indices: the array has {len(shape)} axes, but {n_given} were indexed")
    rest = (slice(None),) * (len(shape) - n_given)
    at = next((i for i, part in enumerate(keys) if part is Ellipsis), len(keys))
    keys = keys[:at] + rest + keys[at + 1 :]
    spans: list[list[_Span]] = []
    view: list[Any] = []
    for part in keys:
        if part is None:
            view.append(None)
            continue
        axis = len(spans)
        extent = shape[axis]
        if isinstance(part, slice):
            spans.append(_split(range(*part.indices(extent)), chunks[axis]))
            view.append(slice(None))
            continue
        i = _position(part)
        if not -extent <= i < extent:
            raise IndexError(f"index {i} is out of bounds for axis {axis} of extent {extent}")
        i %= extent
        spans.append([(i, i + 1, range(i, i + 1))])
        view.append(0)
    # As in NumPy, an array without axes stays one where there is an ellipsis, and becomes a number where there is none.
    return spans, (*view, ...) if n_ellipses else tuple(view)


def _position(part: Any) -> int:
    try:
        if not isinstance(part, bool):
            return operator.index(part)
    except TypeError:
        pass
    raise IndexError(
        f"only integers, slices, '...' and None are indices of a file, not {brief(part)}; read a part, and index that"
    )


def _split(wanted: range, chunk: int) -> list[_Span]:
    """Splits the positions if their step skips whole chunks, so that these are not decoded."""
    if len(wanted) == 0:
        return [(0, 0, range(0))]
    if abs(wanted.step) <= chunk:
        return [_span(wanted)]
    return [_span(wanted[i : i + 1]) for i in range(len(wanted))]


def _span(wanted: range) -> _Span:
    first, last = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1])
    # A box that is read backwards starts at its last position, so its ends are those of the positions: [::-step] finds
    # them.
    return first, last + 1, wanted
