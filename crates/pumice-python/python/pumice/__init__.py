"""Error-bounded compression of floating-point arrays.

Every finite value comes back within the bound that was asked for; NaN, infinities and fill values come back bit for bit.

>>> import numpy as np, pumice
>>> x = np.random.default_rng(0).normal(size=(64, 64)).astype("float32").cumsum(axis=0)
>>> data = pumice.compress(x, rel=1e-3)
>>> y = pumice.decompress(data)
>>> pumice.check(x, y, rel=1e-3)["bound_kept"]
True
"""

from . import hdf5
from ._api import analyze, check, compress, decompress, info, open, save
from ._file import File
from ._options import PRESETS, Options, Preset
from ._pumice import CudaArray, __version__
from .errors import (
    CorruptError,
    DeviceError,
    DtypeError,
    InvalidArgumentError,
    LimitExceededError,
    PumiceError,
    TruncatedError,
    UnsupportedError,
)
from .hdf5 import plugin_path as hdf5_plugin_path

__all__ = [
    "PRESETS",
    "CorruptError",
    "CudaArray",
    "DeviceError",
    "DtypeError",
    "File",
    "InvalidArgumentError",
    "LimitExceededError",
    "Options",
    "Preset",
    "PumiceError",
    "TruncatedError",
    "UnsupportedError",
    "__version__",
    "analyze",
    "check",
    "compress",
    "decompress",
    "hdf5",
    "hdf5_plugin_path",
    "info",
    "open",
    "save",
]
