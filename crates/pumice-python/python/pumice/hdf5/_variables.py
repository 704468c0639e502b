"""The variables of a file that a lossy filter may be used for, by the rules of ``pumice convert``."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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

# What NetCDF-4 puts before the name of a variable that has the name of a dimension, but is no coordinate.
_NOT_A_COORDINATE = "_nc4_non_coord_"


class _Variable(NamedTuple):
    path: str  # without the first slash
    dtype: Any
    shape: tuple[int, ...]
    is_scale: bool
    attributes: dict[str, Any]


def float_variables(file: str) -> list[str]:
    """Paths of all variables of 32-bit or 64-bit floats that hold values, and are no coordinates. Reads HDF5 and NetCDF, by
    h5py or netCDF4.
    """
    return _floats(_read(file))


def _floats(variables: list[_Variable]) -> list[str]:
    texts = [v.attributes[name] for v in variables for name in NAMING if isinstance(v.attributes.get(name), str)]
    coordinates = {word for text in texts for word in text.split()}
    return [
        v.path
        for v in variables
        if getattr(v.dtype, "kind", "") == "f"
        and v.dtype.itemsize in (4, 8)
        and v.shape
        and 0 not in v.shape
        and not v.is_scale
        and v.path.rpartition("/")[2] not in coordinates
    ]


def _read(file: str) -> list[_Variable]:
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


def _by_h5py(h5py: Any, file: str) -> list[_Variable]:
    variables: list[_Variable] = []

    def visit(path: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        group, slash, name = path.rpartition("/")
        # Other attributes may have types that h5py cannot read.
        found = {key: item.attrs[key] for key in NAMING if key in item.attrs}
        attributes = {key: value.decode() if isinstance(value, bytes) else value for key, value in found.items()}
        is_scale = h5py.h5ds.is_scale(item.id)
        path = group + slash + name.removeprefix(_NOT_A_COORDINATE)
        variables.append(_Variable(path, item.dtype, item.shape or (), is_scale, attributes))

    with h5py.File(file) as opened:
        opened.visititems(visit)
    return variables


def _by_netcdf4(netcdf4: Any, file: str) -> list[_Variable]:
    def of(group: Any, path: str) -> Iterator[_Variable]:
        for name, v in group.variables.items():
            attributes = {key: v.getncattr(key) for key in v.ncattrs() if key in NAMING}
            yield _Variable(path + name, v.dtype, v.shape, v.dimensions == (name,), attributes)
        for name, child in group.groups.items():
            yield from of(child, f"{path}{name}/")

    with netcdf4.Dataset(file) as opened:
        return list(of(opened, ""))
