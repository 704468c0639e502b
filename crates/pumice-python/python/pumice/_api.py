"""The functions of the package."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from . import _pumice
from ._arrays import Tensor, check_exportable, is_on_cuda, on_host
from ._file import File, path_of
from ._options import (
    PRESETS,
    Options,
    Preset,
    bounds_of,
    config_of,
    count,
    fills_of,
    number,
    Stable,
    preset_name,
    several,
    threads_of,
)
from ._pumice import CudaArray, Reader
from .errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Unpack  # that of typing came with Python 3.11

    from ._arrays import BytesLike

# Default limit of the memory that decoding may take.
MAX_BYTES = 16 << 30


def compress(
    array: Tensor,
    *,
    abs: float | None = None,
    rel: float | None = None,
    pwrel: float | None = None,
    psnr: float | None = None,
    l2: float | None = None,
    ratio: float | None = None,
    lossless: bool = False,
    preset: Preset | None = None,
    stable: Stable | None = None,
    fill_value: float | Sequence[float] | None = None,
    value_range: tuple[float, float] | None = None,
    chunk_shape: Sequence[int] | None = None,
    threads: int = 0,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Compresses an array of float32 or float64 values, so that every value comes back within the bound.

    At least one bound is needed; if there are several, all hold. NaN, infinities and fill values come back bit for bit.

    Args:
        array: A NumPy array, or a tensor of PyTorch, CuPy or others by DLPack. Arrays in C order are read where they
            are, others are copied first. Nobody may write to it meanwhile. A tensor on a CUDA device is compressed there.
        abs: Largest error of a value.
        rel: Largest error of a value, as a share of the range of all values.
        pwrel: Largest error of a value, as a share of that value.
        psnr: Peak signal to noise ratio to reach, in dB.
        l2: L2 norm of all errors to stay below.
        ratio: Ratio of sizes to reach. An array without values meets any.
        lossless: Every bit comes back.
        preset: `'fast'`, `'balanced'`, `'small'` (the default) or `'max'`, from fastest to smallest, or one of
            `pumice.PRESETS`. On CUDA devices there are `'fast'` and `'balanced'` (the default there).
        stable: `True`: values that are restored, and compressed again under the same absolute bound, keep every bit, whatever
            chunks and preset; for `abs` and `rel`. `'auto'`: the same for chunks where it costs less than 2 % of the size,
            which is the default of the codecs for Zarr, numcodecs and HDF5. Not on CUDA devices.
        fill_value: The value that stands for "no data", beside NaN, or up to 8 of them. Others are detected.
        value_range: Least and greatest value that `rel` refers to, instead of those of the array.
        chunk_shape: Extents of the chunks, which can be read separately.
        threads: Threads to use; 0 for one per core. The bytes do not depend on it.
        attributes: Notes that are stored with the array.

    Raises:
        InvalidArgumentError: A :class:`ValueError`: the options are invalid.
        DtypeError: A :class:`TypeError`: the array holds something other than float32 or float64.

    >>> import numpy as np, pumice
    >>> x = np.sin(np.linspace(0, 20, 100_000, dtype="float32"))
    >>> data = pumice.compress(x, abs=1e-3)
    >>> len(data) < x.nbytes / 20
    True
    >>> bool(np.max(np.abs(pumice.decompress(data) - x)) <= 1e-3)
    True
    """
    options: Options = {
        "abs": abs,
        "rel": rel,
        "pwrel": pwrel,
        "psnr": psnr,
        "l2": l2,
        "ratio": ratio,
        "lossless": lossless,
        "preset": preset,
        "stable": stable,
        "fill_value": fill_value,
        "value_range": value_range,
        "chunk_shape": chunk_shape,
        "threads": threads,
        "attributes": attributes,
    }
    if is_on_cuda(array):
        check_exportable(array)
        return _pumice.compress_cuda(array, config_of(options, "balanced"))
    return _pumice.compress(on_host(array), config_of(options))


def save(path: str | os.PathLike[str], array: Tensor, **options: Unpack[Options]) -> dict[str, Any]:
    """Compresses an array to a file; the options are those of :func:`compress`.

    The file appears complete or not at all. Returns sizes, the absolute bound that holds, and how well a target
    (`psnr`, `l2`, `ratio`) was met.

    >>> import numpy as np, pumice, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.pum")
    >>> report = pumice.save(path, np.linspace(0, 1, 10_000).reshape(100, 100), rel=1e-4)
    >>> report["ratio"] > 20, report["abs_bound"]
    (True, 0.0001)
    >>> pumice.open(path)[3, 5:7].shape
    (2,)
    """
    if is_on_cuda(array):
        raise UnsupportedError("tensors on a CUDA device are compressed to bytes: write those of pumice.compress to the file")
    path = path_of(path)
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}; make it first", path)
    return _pumice.compress_to_file(path, on_host(array), config_of(options))


@overload
def decompress(
    data: BytesLike,
    *,
    out: NDArray[Any] | None = None,
    threads: int = 0,
    max_bytes: int = MAX_BYTES,
    device: None | Literal["cpu"] = None,
) -> NDArray[Any]: ...
@overload
def decompress(
    data: BytesLike, *, out: None = None, threads: int = 0, max_bytes: int = MAX_BYTES, device: str
) -> CudaArray | NDArray[Any]: ...
def decompress(
    data: BytesLike,
    *,
    out: NDArray[Any] | None = None,
    threads: int = 0,
    max_bytes: int = MAX_BYTES,
    device: str | None = None,
) -> NDArray[Any] | CudaArray:
    """Decompresses the result of :func:`compress` to an array in C order and native byte order.

    Args:
        data: The bytes, or any other buffer that holds them: a memoryview, a NumPy array, a memory map. Nobody may write
            to it meanwhile.
        out: Where to write the values, instead of to a new array: a C-contiguous array of the same shape and type.
        threads: Threads to use; 0 for one per core.
        max_bytes: Most memory to allocate for values and to decode them, of which the first 16 MiB beside the values are
            free. A hostile stream can be small and yet claim to hold a huge array.
        device: `'cuda'` or `'cuda:1'` for an array in the memory of that device, which `torch.from_dlpack` and
            `cupy.from_dlpack` import without a copy.

    Raises:
        CorruptError: A :class:`ValueError`: the bytes are damaged.
        LimitExceededError: A :class:`MemoryError`: decoding takes more than `max_bytes`, or more than the system has.

    >>> import numpy as np, pumice
    >>> pumice.decompress(pumice.compress(np.float32([1, 2, 4]), lossless=True))
    array([1., 2., 4.], dtype=float32)
    """
    if isinstance(data, str | os.PathLike | File):
        raise TypeError(f"compressed bytes are needed, not {data!r}; a file is read by pumice.open(path)[...]")
    # As text, so that device objects of other libraries are accepted as well.
    if device is not None and str(device) != "cpu":
        if out is not None:
            raise InvalidArgumentError("out= cannot be combined with a CUDA device")
        return _pumice.decompress_cuda(_bytes(data), _ordinal(str(device)), count("max_bytes", max_bytes))
    reader = Reader.of_bytes(_bytes(data), threads_of(threads), count("max_bytes", max_bytes))
    shape = reader.info["shape"]
    if out is not None:
        _check_out(out, reader.info)
    return reader.read([(0, extent) for extent in shape], out)


def open(path: str | os.PathLike[str], *, threads: int = 0, max_bytes: int = MAX_BYTES) -> File:
    """Opens a compressed file, to be read by NumPy's slices. Only the chunks that a slice touches are decoded.

    `threads` and `max_bytes` are those of :func:`decompress`, for each read.

    >>> import numpy as np, pumice, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.pum")
    >>> x = np.arange(40_000, dtype="float64").reshape(100, 20, 20)
    >>> _ = pumice.save(path, x, lossless=True, chunk_shape=(10, 20, 20))
    >>> f = pumice.open(path)
    >>> f.shape, f.dtype, f.chunks
    ((100, 20, 20), dtype('float64'), (10, 20, 20))
    >>> np.array_equal(f[0:4, :, 7], x[0:4, :, 7]), f.chunks_decoded
    (True, 1)
    """
    return File(path, threads=threads, max_bytes=max_bytes)


def info(source: str | os.PathLike[str] | BytesLike | File) -> dict[str, Any]:
    """The metadata of a compressed file, or of compressed bytes. No values are decoded.

    >>> import numpy as np, pumice
    >>> found = pumice.info(pumice.compress(np.zeros((4, 5), "float32"), abs=0.5, preset="fast"))
    >>> found["shape"], found["dtype"], found["bounds"], found["preset"]
    ([4, 5], 'float32', {'abs': 0.5}, 'fast')
    """
    return _reader(source).info


def check(
    original: Tensor,
    other: Tensor | str | os.PathLike[str] | bytes | File,
    *,
    abs: float | None = None,
    rel: float | None = None,
    pwrel: float | None = None,
    fill_value: float | Sequence[float] | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Compares an array with its compressed or restored form. Exact: an error above the bound by one ulp is found.

    Args:
        original: The array.
        other: Its compressed form (bytes, a path or a :class:`File`), or an array that any compressor has restored.
        abs, rel, pwrel: The bounds to check. Without them, compressed forms are checked against their own, and arrays against
            none.
        fill_value: The value or values that stand for "no data" in `original`; compressed forms have their own.
        threads: Threads to use for decoding; 0 for one per core.

    Returns:
        `bound_kept` (None without a bound), `max_abs_error`, `worst_index`, `psnr`, `rmse`, `nrmse`, `l2_norm`, the range, and how
        many values are over the bound (`n_over`) or are special ones that changed (`n_mismatched_special`).

    >>> import numpy as np, pumice
    >>> x = np.linspace(0, 1, 1000).reshape(10, 100)
    >>> found = pumice.check(x, pumice.compress(x, abs=1e-3))
    >>> found["bound_kept"], found["n_over"], found["max_abs_error"] <= 1e-3
    (True, 0, True)
    >>> pumice.check(x, x + 0.1, abs=0.05)["n_over"]
    1000
    """
    values = on_host(original)
    fills = fills_of(fill_value)
    bounds = dict(bounds_of({"abs": abs, "rel": rel, "pwrel": pwrel}))
    for kind, bound in bounds.items():
        if not bound >= 0:
            raise InvalidArgumentError(f"{kind} must be a non-negative number, not {bound}")
    limit = bounds.get("abs", np.inf)
    if "rel" in bounds:
        limit = min(limit, bounds["rel"] * _range(values, fills))
    limits = (limit, bounds.get("pwrel", np.inf))
    if isinstance(other, str | os.PathLike | bytes | bytearray | memoryview | File):
        return _reader(other, threads).compare(values, limits if bounds else None)
    found = _pumice.compare_arrays(values, on_host(other), limits, fills)
    return found if bounds else {**found, "bound_kept": None, "max_error_over_bound": None}


def analyze(
    array: Tensor,
    *,
    abs: float | Sequence[float] | None = None,
    rel: float | Sequence[float] | None = None,
    lossless: bool = False,
    presets: Preset | Sequence[Preset] | None = None,
    fill_value: float | Sequence[float] | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Analyses an array: its properties, the ratios to expect, and which preset to choose.

    Args:
        array: The array.
        abs, rel, lossless: Bounds to estimate for, one or several of a kind; without any, `rel` of 1e-2, 1e-3 and 1e-4.
        presets: Presets to estimate for, one or several; all of them if not given.
        fill_value: The value that stands for "no data", or up to 8 of them; others are detected.
        threads: Threads to use; 0 for one per core. The figures do not depend on it.

    >>> import numpy as np, pumice
    >>> x = np.sin(np.linspace(0, 20, 10_000, dtype="float32"))
    >>> found = pumice.analyze(x, rel=1e-3, presets=["fast", "small"])
    >>> [(e["preset"], e["ratio"] > 5) for e in found["estimates"]]
    [('fast', True), ('small', True)]
    >>> found["values"]["is_constant"], found["advice"]["ratio"]
    (False, 'small')
    """
    bounds = [(kind, number(kind, e)) for kind, given in (("rel", rel), ("abs", abs)) for e in several(given)]
    bounds += bounds_of({"lossless": lossless})
    bounds = bounds or [("rel", e) for e in (1e-2, 1e-3, 1e-4)]
    names = [preset_name(preset) for preset in (PRESETS if presets is None else several(presets))]
    return _pumice.analyze(on_host(array), bounds, names, fills_of(fill_value), threads_of(threads))


def _reader(source: str | os.PathLike[str] | BytesLike | File, threads: int = 0) -> Reader:
    if isinstance(source, File):
        source = source.path
    if isinstance(source, str | os.PathLike):
        return Reader.of_file(source, threads_of(threads), MAX_BYTES)
    return Reader.of_bytes(_bytes(source), threads_of(threads), MAX_BYTES)


def _bytes(data: BytesLike) -> BytesLike:
    """The bytes, also those in a NumPy scalar, which is how h5py returns them from attributes."""
    return data.tobytes() if isinstance(data, np.void) else data


def _range(values: NDArray[Any], fills: list[float]) -> float:
    """The range of the values, which a relative bound refers to."""
    itself = _pumice.compare_arrays(values, values, (np.inf, np.inf), fills)
    return itself["max"] - itself["min"] if itself["max"] > itself["min"] else 0.0


def _check_out(out: NDArray[Any], found: dict[str, Any]) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out= must be a NumPy array, not {type(out).__name__}")
    wanted = (tuple(found["shape"]), np.dtype(found["dtype"]))
    if (out.shape, out.dtype) != wanted:
        raise InvalidArgumentError(
            f"out= has shape {out.shape} and type {out.dtype}, but the stream {wanted[0]} and {wanted[1]}"
        )
    if not (out.flags.c_contiguous and out.flags.aligned and out.flags.writeable):
        raise InvalidArgumentError("out= must be C-contiguous, aligned and writeable")


def _ordinal(device: str) -> int:
    name, _, number = device.partition(":")
    if name != "cuda" or not (number.isdecimal() or number == "" and ":" not in device):
        raise InvalidArgumentError(f"unknown device '{device}'; known: cpu, cuda, cuda:0, cuda:1, …")
    return int(number or 0)
