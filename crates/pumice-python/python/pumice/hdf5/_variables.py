"""The variables of a file that a lossy filter may be used for, by the rules of ``pumice convert``."""

from __future__ import annotations

import importlib
import importlib.util
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import PumiceError, UnsupportedError

# Attributes that name coordinates, bounds and the like: those of CF, and of UGRID for meshes. As `NAMING` in
# crates/pumice-cli/src/convert/catalog.rs.
NAMING = (
    "coordinates",
    "bounds",
    "climatology",
    "formula_terms",
    "cell_measures",
    "node_coordinates",
    "edge_coordinates",
    "face_coordinates",
)
# Attributes with values that mean "no data".
_MISSING = ("missing_value", "_FillValue")

# What NetCDF-4 puts before the name of a variable that has the name of a dimension, but is no coordinate.
_NOT_A_COORDINATE = "_nc4_non_coord_"

# Filters by their names in netCDF4 and their numbers in HDF5.
_DEFLATE = ("zlib", 1)
_FLETCHER32 = ("fletcher32", 3)


class Variable(NamedTuple):
    """A variable of a file. Paths have no slash at their start."""

    path: str
    stored_path: str  # that of HDF5, with the prefix of NetCDF-4
    dtype: Any
    shape: tuple[int, ...]
    is_scale: bool
    fills: list[float]
    is_deflated: bool
    has_checksums: bool


class _Contents(NamedTuple):
    variables: list[Variable]
    # What attributes name: the group from which it is named, and a path, or a name that stands for variables of any group.
    references: list[tuple[str, str]]


def float_variables(file: str) -> list[Variable]:
    """All variables of 32-bit or 64-bit floats that hold values, and are no coordinates. Reads HDF5 and NetCDF, by h5py or
    netCDF4.
    """
    return _floats(_read(file))


def named(attributes: Mapping[str, Any]) -> list[str]:
    """The names and paths in the attributes that name coordinates and the like."""
    return [word for key in NAMING for text in _texts(attributes.get(key)) for word in text.split()]


def fills_of(attributes: Mapping[str, Any]) -> list[float]:
    """The numbers other than NaN that attributes declare to mean "no data"."""
    found: dict[float, None] = {}
    for key in _MISSING:
        values = np.asarray(attributes.get(key, []))
        if values.dtype.kind in "fiu":
            found |= {float(value): None for value in values.ravel() if not np.isnan(value)}
    return list(found)


def _texts(value: Any) -> list[str]:
    """The texts in an attribute, which may be one or several, decoded or not."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")  # h5py decodes so what is not UTF-8
    if not isinstance(value, bytes):
        return []
    try:
        return [value.decode()]
    except UnicodeDecodeError:
        return [value.decode("latin-1")]


def _floats(contents: _Contents) -> list[Variable]:
    names = {name for _, name in contents.references if "/" not in name}
    paths = {posixpath.normpath(posixpath.join("/", *reference)).lstrip("/") for reference in contents.references}
    return [
        v
        for v in contents.variables
        if getattr(v.dtype, "kind", "") == "f"
        and v.dtype.itemsize in (4, 8)
        and v.shape
        and 0 not in v.shape
        and not v.is_scale
        and v.path not in paths
        and posixpath.basename(v.path) not in names
    ]


def _read(file: str) -> _Contents:
    if not Path(file).is_file():
        raise UnsupportedError(f"{file} is not a file")
    readers = {"h5py": _by_h5py, "netCDF4": _by_netcdf4}
    found = [name for name in readers if importlib.util.find_spec(name)]
    if not found:
        raise UnsupportedError("h5py or netCDF4 is needed to read the names of variables: install one, or use --variable")
    failures = []
    for name in found:
        try:
            return readers[name](importlib.import_module(name), file)
        except OSError as error:
            failures.append(f"{name}: {error}")
    raise PumiceError(f"cannot read {file} ({'; '.join(failures)})")


def _by_h5py(h5py: Any, file: str) -> _Contents:
    variables: list[Variable] = []
    references: list[tuple[str, str]] = []

    def visit(stored_path: str, item: Any) -> None:
        # Other attributes may have types that h5py cannot read.
        attributes = {key: item.attrs[key] for key in (*NAMING, *_MISSING) if key in item.attrs}
        is_variable = isinstance(item, h5py.Dataset)
        group, name = posixpath.split(stored_path) if is_variable else (stored_path, "")
        references.extend((group, word) for word in named(attributes))
        if is_variable:
            path = posixpath.join(group, name.removeprefix(_NOT_A_COORDINATE))
            properties = item.id.get_create_plist()
            filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
            variables.append(
                Variable(
                    path,
                    stored_path,
                    item.dtype,
                    item.shape or (),
                    h5py.h5ds.is_scale(item.id),
                    fills_of(attributes),
                    _DEFLATE[1] in filters,
                    _FLETCHER32[1] in filters,
                )
            )

    with h5py.File(file) as opened:
        visit("", opened)
        opened.visititems(visit)
    return _Contents(variables, references)


def _by_netcdf4(netcdf4: Any, file: str) -> _Contents:
    def attributes_of(item: Any) -> dict[str, Any]:
        found = {key: item.getncattr(key) for key in item.ncattrs() if key in (*NAMING, *_MISSING)}
        # netCDF4 replaces what is not UTF-8.
        damaged = [key for key, value in found.items() if isinstance(value, str) and "\ufffd" in value]
        return found | {key: item.getncattr(key, encoding="latin-1") for key in damaged}

    def groups(group: Any) -> Iterator[Any]:
        yield group
        for child in group.groups.values():
            yield from groups(child)

    variables: list[Variable] = []
    references: list[tuple[str, str]] = []
    with netcdf4.Dataset(file) as opened:
        for group in groups(opened):
            folder = group.path.strip("/")
            references.extend((folder, word) for word in named(attributes_of(group)))
            for name, v in group.variables.items():
                attributes, filters = attributes_of(v), v.filters() or {}
                references.extend((folder, word) for word in named(attributes))
                is_dimension = name in group.dimensions
                is_scale = is_dimension and v.dimensions[:1] == (name,)
                variables.append(
                    Variable(
                        posixpath.join(folder, name),
                        posixpath.join(folder, _NOT_A_COORDINATE * (is_dimension and not is_scale) + name),
                        v.dtype,
                        v.shape,
                        is_scale,
                        fills_of(attributes),
                        bool(filters.get(_DEFLATE[0])),
                        bool(filters.get(_FLETCHER32[0])),
                    )
                )
    return _Contents(variables, references)
