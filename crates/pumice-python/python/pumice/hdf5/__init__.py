"""Pumice as a filter of HDF5 and NetCDF-4.

The module can be called: ``pumice.hdf5(rel=1e-3)`` gives the keyword arguments that h5py's `create_dataset` and
xarray's `encoding` take::

    file.create_dataset("t", data=t, chunks=(30, 192, 288), **pumice.hdf5(rel=1e-3))

Importing `pumice` makes the filter known to every HDF5 library of the process: those that are already loaded, and those
that h5py, netCDF4 and PyTables load later. Programs outside of Python find it through ``HDF5_PLUGIN_PATH``;
``python -m pumice.hdf5 --rel 1e-3`` prints what they need.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import struct
import sys
import types
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypedDict

from .._options import bounds_of, number, pair, several
from .._xarray import variables_of, with_fills
from ..errors import InvalidArgumentError, UnsupportedError
from . import _direct
from ._imports import after_import

__all__ = [
    "FILTER_ID",
    "FilterOptions",
    "filter_options",
    "parameters",
    "plugin_path",
    "register",
    "virtual",
    "write_chunks",
    "xarray_encoding",
]

#: The filter's number, from the range that is free for testing (`FILTER_ID` in crates/pumice-hdf5).
FILTER_ID = 480

# Numbers of docs/hdf5.md.
_VERSION = 1
_KINDS = {"lossless": 0, "abs": 1, "rel": 2, "pwrel": 3, "psnr": 4, "l2": 5, "ratio": 6}
_PRESETS = {
    "fast": 1,
    "small": 2,
    "max": 3,
    "balanced": 4,
    "cuszp2-plain": 5,
    "cuszp2-outlier": 6,
    "cuszplus": 7,
    "ceaz": 8,
    "ceresz2": 9,
}
_RANGE_GIVEN = 1 << 24
_FILL_GIVEN = 1 << 25
# The number of further fill values, and most fill values.
_MORE_FILLS_SHIFT = 28
MAX_FILLS = 4
_STABLE = {None: 0, True: 1 << 26, False: 2 << 26}

# Packages that load an HDF5 library; others, such as h5netcdf and xarray, use one of these.
_PACKAGES = {"h5py", "netCDF4", "tables"}

# The folder where HDF5, and HDF5 in netCDF4, look for plugins by default.
_DEFAULT_PATH = "/usr/local/hdf5/lib/plugin"


class FilterOptions(TypedDict):
    """Keyword arguments of h5py's `create_dataset`, and items of xarray's `encoding` with the engine h5netcdf."""

    compression: int
    compression_opts: tuple[int, ...]


def parameters(
    *,
    abs: float | None = None,
    rel: float | None = None,
    pwrel: float | None = None,
    psnr: float | None = None,
    l2: float | None = None,
    ratio: float | None = None,
    lossless: bool = False,
    preset: str | None = None,
    stable: bool | None = None,
    value_range: tuple[float, float] | None = None,
    fill_value: float | Sequence[float] | None = None,
) -> tuple[int, ...]:
    """The filter's parameters (`cd_values`) for a bound. Each chunk is compressed independently: `rel` refers to the range
    of the chunk unless `value_range` is given, and every chunk meets `psnr`, `l2` and `ratio`. `stable` says whether
    values that are compressed again under the same absolute bound keep their bits: by default, in chunks where that costs
    less than 2 % of the size. `fill_value` is one value that means "no data", or up to 4 of them, in addition to that of
    the dataset.

    >>> parameters(abs=0.25)
    (131329, 1070596096, 0)
    """
    given = {"abs": abs, "rel": rel, "pwrel": pwrel, "psnr": psnr, "l2": l2, "ratio": ratio, "lossless": lossless}
    bounds = bounds_of(given)
    if len(bounds) != 1:
        raise InvalidArgumentError(
            "the HDF5 filter takes one bound: abs=, rel=, pwrel=, psnr=, l2= or ratio=, or lossless=True"
        )
    (kind, value), name = bounds[0], "small" if preset is None else preset
    least = {"ratio": 1.0}.get(kind, 0.0)
    if not least <= value < float("inf") or (kind == "psnr" and value == 0.0):
        raise InvalidArgumentError(f"{kind} must be a number of at least {least:g}, not {value}")
    if name not in _PRESETS:
        raise InvalidArgumentError(f"unknown preset '{name}'; known: {', '.join(_PRESETS)}")
    if stable is not None and not isinstance(stable, bool):
        raise InvalidArgumentError(f"stable must be True or False, not {stable!r}")
    if stable and kind not in ("abs", "rel", "lossless"):
        raise InvalidArgumentError(f"the stable mode is for abs and rel, not for {kind}")
    flags, numbers = _STABLE[stable], [value]
    if value_range is not None:
        if kind != "rel":
            raise InvalidArgumentError("value_range is what rel refers to; it means nothing without rel=")
        flags |= _RANGE_GIVEN
        numbers += pair("value_range", value_range)
        if not -float("inf") < numbers[1] <= numbers[2] < float("inf"):
            raise InvalidArgumentError(f"value_range must be (least, greatest), both finite, not {value_range}")
    fills = [number("fill_value", fill) for fill in several(fill_value)]
    if len(fills) > MAX_FILLS:
        raise InvalidArgumentError(f"the HDF5 filter takes at most {MAX_FILLS} fill values, not {len(fills)}")
    if fills:
        flags |= _FILL_GIVEN | (len(fills) - 1) << _MORE_FILLS_SHIFT
        numbers += fills
    first = _VERSION | _KINDS[kind] << 8 | _PRESETS[name] << 16 | flags
    halves = struct.unpack(f">{2 * len(numbers)}I", struct.pack(f">{len(numbers)}d", *numbers))
    return (first, *halves)


def filter_options(**bound: Any) -> FilterOptions:
    """The keyword arguments that h5py's `create_dataset` takes for a bound, which is given as to `parameters`.

    >>> filter_options(abs=0.25)
    {'compression': 480, 'compression_opts': (131329, 1070596096, 0)}
    """
    return {"compression": FILTER_ID, "compression_opts": parameters(**bound)}


def xarray_encoding(dataset: Any, **bound: Any) -> dict[str, dict[str, Any]]:
    """The `encoding` that an xarray data set needs to be written with a bound, which is given as to `parameters`::

        dataset = xarray.open_dataset("in.nc", engine="h5netcdf")
        encoding = pumice.hdf5.xarray_encoding(dataset, rel=1e-3)
        dataset.to_netcdf("out.nc", engine="h5netcdf", encoding=encoding)

    Data variables of 32-bit and 64-bit floats keep what they have been read with (type, fill value, chunks), but for their
    filters, which are replaced by this one. Their `missing_value` counts as `fill_value`. Coordinates, what attributes such as
    `bounds` and `formula_terms` name, and other variables lose only filters that xarray reads as ``"unknown"``, which it
    cannot write.
    """
    parameters(**bound)  # so that mistakes show here
    encodings: dict[str, dict[str, Any]] = {}
    for name, variable, kept, is_field, fills in variables_of(dataset):
        kept |= {key: variable.encoding[key] for key in ("endian",) if key in variable.encoding}
        kept |= _chunks(variable, dataset.encoding.get("unlimited_dims", ()))
        if is_field:
            encodings[name] = {**kept, **filter_options(**with_fills(bound, fills))}
        elif variable.encoding.get("compression") == "unknown":
            encodings[name] = kept
    return encodings


def _chunks(variable: Any, unlimited: Collection[Any]) -> dict[str, Any]:
    """The chunks that a variable was read with, as far as they fit: it may be a part of a larger one."""
    chunks = variable.encoding.get("chunksizes")
    if chunks is None or len(chunks) != variable.ndim:
        return {}
    extents = zip(chunks, variable.shape, variable.dims)
    fitting = tuple(n if dim in unlimited else min(n, extent) for n, extent, dim in extents)
    return {} if 0 in fitting else {"chunksizes": fitting}


def write_chunks(
    dataset: Any,
    array: Any,
    start: Sequence[int] | None = None,
    *,
    threads: int | None = None,
    comm: Any = None,
    root: int = 0,
) -> None:
    """Writes an array into a dataset of h5py that has the filter, at `start`, or at its origin. The chunks are compressed by
    `threads` threads at a time, one for each core unless given, and written past HDF5's filter pipeline, which takes them
    one after the other. The bytes are those that the filter stores. The array has to consist of whole chunks, but for those at
    the edge of the dataset.

    With `comm`, a communicator of mpi4py, its ranks call this together, each with its own part of the array: all compress,
    and `root` writes. Only `root` has the file open, without ``driver="mpio"``; the others pass None as the dataset. Ranks
    without values give an array of size 0. An error on one rank is raised on all, before anything is written, unless it is
    HDF5 that cannot write::

        comm = mpi4py.MPI.COMM_WORLD
        file = h5py.File("out.h5", "w") if comm.rank == 0 else None
        dataset = file and file.create_dataset("t", shape, "f4", chunks=chunks, **pumice.hdf5(rel=1e-3))
        pumice.hdf5.write_chunks(dataset, own_part, own_start, threads=1, comm=comm)
    """
    _direct.write_chunks(FILTER_ID, dataset, array, start, threads, comm, root)


def virtual(
    group: Any, name: str, sources: Iterable[tuple[Any, Sequence[int]]], *, fill_value: float | None = None
) -> Any:
    """A virtual dataset of h5py that joins datasets of other files, such as those that several servers have written: each is
    given with the position where it starts, and may be closed afterwards. Files are found by their place beside that of
    `group`: move them together. What no source covers is read as `fill_value`, by default that of the first source, whose
    attributes are copied too::

        with h5py.File("out.h5", "w") as file, h5py.File("part0.h5") as a, h5py.File("part1.h5") as b:
            pumice.hdf5.virtual(file, "t", [(a["t"], (0, 0)), (b["t"], (50, 0))])
    """
    return _direct.virtual(group, name, sources, fill_value)


def plugin_path() -> str:
    """The folder of the plugin, for `HDF5_PLUGIN_PATH` of programs such as h5dump and ncdump."""
    folder = Path(__file__).parent / "plugin"
    if not any(folder.glob("libpumice_hdf5.*")):
        raise UnsupportedError(
            f"this installation has no HDF5 plugin ({folder} is empty): install a wheel of pumice, which brings it, or "
            "build it with `cargo build --release -p pumice-hdf5`"
        )
    return str(folder)


def register() -> list[str]:
    """Makes the filter known to all HDF5 libraries of this process, and returns the files of those that are loaded.
    Importing `pumice` already does this, and again when h5py, netCDF4 or PyTables are imported later. Call it after another
    package has loaded an HDF5 library: through `HDF5_PLUGIN_PATH` that finds the plugin too, but not where it writes to a
    dataset that it has neither created nor read.
    """
    folder = plugin_path()
    _extend_search_path(folder)
    plugin = ctypes.CDLL(str(next(Path(folder).glob("libpumice_hdf5.*"))))
    plugin.H5PLget_plugin_info.restype = ctypes.c_void_p
    filter_class = ctypes.c_void_p(plugin.H5PLget_plugin_info())
    registered = []
    for path in _loaded_libraries():
        library = ctypes.CDLL(path)
        if hasattr(library, "H5Zregister"):
            with _h5py_lock():
                if library.H5Zregister(filter_class) < 0:
                    raise UnsupportedError(f"{path} refuses to register the filter")
            registered.append(path)
    return registered


def _extend_search_path(folder: str) -> None:
    """Adds a folder to those where libraries that are not loaded yet will look, and keeps all others."""
    found = os.environ.get("HDF5_PLUGIN_PATH")
    if found is not None:
        folders = found.split(":")
    else:
        # The variable replaces the default, and keeps netCDF4 from setting it to its own plugins.
        folders = [_DEFAULT_PATH]
        netcdf4 = importlib.util.find_spec("netCDF4")
        for package in (netcdf4 and netcdf4.submodule_search_locations) or []:
            if Path(package, "plugins").is_dir():
                folders.append(str(Path(package, "plugins")))
    if folder not in folders:
        os.environ["HDF5_PLUGIN_PATH"] = ":".join([folder, *folders])


def _loaded_libraries() -> Iterator[str]:
    """Files of the HDF5 libraries that this process has loaded; only Linux lists them."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    paths = {line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if line.count("/") > 0}
    for path in sorted(paths):
        name = os.path.basename(path)
        if name.startswith("libhdf5") and not name.startswith(("libhdf5_hl", "libhdf5_serial_hl", "libhdf5_cpp")):
            yield path


def _h5py_lock() -> AbstractContextManager[Any]:
    """The lock that h5py holds during its calls, if it is there."""
    objects: Any = sys.modules.get("h5py._objects")
    return objects.phil if objects is not None else nullcontext()


class _CallableModule(types.ModuleType):
    """`pumice.hdf5(...)` is `pumice.hdf5.filter_options(...)`."""

    def __call__(self, **bound: Any) -> Mapping[str, Any]:
        return filter_options(**bound)


sys.modules[__name__].__class__ = _CallableModule


def _register_or_warn() -> None:
    try:
        register()
    except UnsupportedError:
        # Everything else in `pumice` works without the plugin; `plugin_path` says that it is missing.
        pass
    except OSError as error:
        warnings.warn(f"the HDF5 filter of pumice cannot be used: {error}", stacklevel=2)


_register_or_warn()
after_import(_PACKAGES, _register_or_warn)
