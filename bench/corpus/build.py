"""Making arrays: reading them from the unpacked packages, checking them, writing them with their index."""

import hashlib
import os
from pathlib import Path

COLUMNS = ("file", "dtype", "dims", "MB", "min", "max", "n_nan", "flags", "origin", "licence", "shows", "sha256")


class CorpusError(Exception):
    """The corpus cannot be made as the table says."""


def extract(array, folder):
    """The bytes of an array from the unpacked files of its package."""
    import numpy as np

    values = array.read(Path(folder) / array.path)[array.crop]
    if values.shape != array.shape or f"f{8 * values.dtype.itemsize}" != array.dtype or values.dtype.kind != "f":
        raise CorpusError(f"{array.file}: {array.path} holds {values.dtype.name} of {values.shape}")
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()


def check(array, data):
    """Fails unless the bytes are those that the table was made with."""
    found = hashlib.sha256(data).hexdigest()
    if found != array.sha256:
        raise CorpusError(f"{array.file} (from {array.origin}): sha256 is {found}, the table says {array.sha256}")


def write(path, data):
    """Writes a file as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def is_made(array, output):
    """Whether the output folder has the array, with the right bytes."""
    path = output / array.file
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == array.sha256


def index_row(array, data):
    """What INDEX.tsv says of an array."""
    import numpy as np

    values = np.frombuffer(data, {"f32": "<f4", "f64": "<f8"}[array.dtype])
    n_nan = int(np.isnan(values).sum())
    flags = ["NaN"] if n_nan else []
    if array.fill is not None:
        share = np.isclose(values, array.fill, rtol=1e-5, atol=0).mean()
        flags.append(f"FILL({array.fill:g},{100 * share:.1f}%)")
    numbers = f"{len(data) / 1e6:.3f}", f"{np.nanmin(values):g}", f"{np.nanmax(values):g}", n_nan
    texts = ",".join(flags), array.origin, array.licence, array.shows, array.sha256
    return (array.file, array.dtype, array.dims, *numbers, *texts)


def write_index(arrays, output):
    """INDEX.tsv of the arrays that the folder has."""
    rows = [index_row(array, (output / array.file).read_bytes()) for array in arrays if is_made(array, output)]
    lines = ["\t".join(map(str, row)) for row in (COLUMNS, *rows)]
    write(output / "INDEX.tsv", ("\n".join(lines) + "\n").encode())
    return len(rows)
