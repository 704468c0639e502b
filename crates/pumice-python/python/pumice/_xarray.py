"""The variables of an xarray data set that a lossy codec may be used for."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ._options import several
from .hdf5._variables import fills_of, named

# Items of the encoding that xarray reads from a file and that another file takes. All others are about the place of the
# variable in its file, or other filters.
_KEPT = {
    "dtype", "_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned", "units", "calendar",
    # Where they were read with `decode_coords="all"`.
    "bounds", "grid_mapping", "climatology", "geometry", "node_coordinates", "node_count", "part_node_count",
    "interior_ring", "cell_measures", "formula_terms",
}  # fmt: skip


class Found(NamedTuple):
    """A variable of a data set."""

    name: str
    variable: Any
    kept: dict[str, Any]  # what another file takes of its encoding
    is_field: bool  # of floats, and neither a coordinate nor what attributes name as one
    fills: list[float]  # what it declares to mean "no data"


def variables_of(dataset: Any) -> Iterator[Found]:
    """All variables of a data set."""
    # xarray takes some attributes for a part of the encoding.
    both = [{**item.encoding, **item.attrs} for item in (dataset, *dataset.variables.values())]
    coordinates = {posixpath.basename(path) for attributes in both for path in named(attributes)}
    for name, variable in dataset.variables.items():
        kept = {key: value for key, value in variable.encoding.items() if key in _KEPT}
        stored = kept.get("dtype", variable.dtype)
        stored = np.dtype(stored) if isinstance(stored, str | type) else stored
        is_float = getattr(stored, "kind", "") == "f" and stored.itemsize in (4, 8)
        is_field = name in dataset.data_vars and name not in coordinates and is_float and bool(variable.shape)
        yield Found(name, variable, kept, is_field, fills_of({**variable.encoding, **variable.attrs}))


def with_fills(bound: dict[str, Any], fills: list[float]) -> dict[str, Any]:
    """Options with the fill values that a variable declares, in addition to those that are given."""
    given = several(bound.get("fill_value"))
    return {**bound, "fill_value": [*given, *(fill for fill in fills if fill not in given)] or None}
