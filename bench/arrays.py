"""Arrays in raw files called name_30x192x288.f32 or .f64, slowest axis first, and boxes cut out of them."""

import csv
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CROP_KB = (1, 4, 16, 64, 100)
CROP_PLACES = (0.1, 0.5, 0.9)


@dataclass
class Field:
    """One array, and what is special about it."""

    path: Path
    values: np.ndarray
    fill: float | None = None

    @property
    def is_plain(self) -> bool:
        return self.fill is None and bool(np.isfinite(self.values).all())

    def bound(self, rel: float) -> float:
        """REL times the range of the finite values that are no fill values."""
        is_regular = np.isfinite(self.values)
        if self.fill is not None:
            is_regular &= ~np.isclose(self.values, self.fill, rtol=1e-5, atol=0)
        values = self.values[is_regular]
        return rel * (float(values.max()) - float(values.min())) if values.size else 0.0

    def repeated(self, min_bytes: int) -> np.ndarray:
        """The values, repeated along the slowest axis to at least so many bytes."""
        return np.concatenate([self.values] * max(1, math.ceil(min_bytes / self.values.nbytes)))


def field_paths(sources: list[Path]) -> list[Path]:
    """The files; a folder stands for all arrays in it."""
    folders = {s: sorted(p for p in s.iterdir() if p.suffix in (".f32", ".f64")) for s in sources if s.is_dir()}
    return [path for source in sources for path in folders.get(source, [source])]


def read_field(path: Path) -> Field:
    match = re.search(r"_(\d+(?:x\d+)*)\.(f32|f64)$", path.name)
    if not match:
        sys.exit(f"{path}: not called like name_30x192x288.f32")
    values = np.fromfile(path, "<f4" if match[2] == "f32" else "<f8")
    return Field(path, values.reshape([int(n) for n in match[1].split("x")]), index_fill(path))


def index_fill(path: Path) -> float | None:
    """The fill value that the flag FILL(value,share) in the INDEX.tsv of the folder names."""
    index = path.parent / "INDEX.tsv"
    if not index.exists():
        return None
    with open(index, encoding="utf-8", newline="") as file:
        flags = {row["file"]: row["flags"] or "" for row in csv.DictReader(file, delimiter="\t")}
    match = re.search(r"FILL\(([^,)]+)", flags.get(path.name, ""))
    return float(match[1]) if match else None


def crop_shape(shape: tuple[int, ...], n_values: int) -> tuple[int, ...]:
    """A box of about `n_values` values, as near to a cube as the extents allow: short axes first, the rest shared."""
    sides = [0] * len(shape)
    rest = float(n_values)
    for rank, axis in enumerate(sorted(range(len(shape)), key=lambda axis: shape[axis])):
        sides[axis] = min(shape[axis], max(1, round(rest ** (1 / (len(shape) - rank)))))
        rest /= sides[axis]
    return tuple(sides)


def crops(values: np.ndarray) -> Iterator[tuple[int, float, np.ndarray]]:
    """(size in KB, relative position, contiguous box)."""
    for size in CROP_KB:
        sides = crop_shape(values.shape, size * 1024 // values.itemsize)
        for place in CROP_PLACES:
            starts = [round(place * (extent - side)) for extent, side in zip(values.shape, sides)]
            box = tuple(slice(start, start + side) for start, side in zip(starts, sides))
            yield size, place, np.ascontiguousarray(values[box])
