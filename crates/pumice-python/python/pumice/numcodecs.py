"""The codec for numcodecs, and so for Zarr's format 2 and everything else that uses numcodecs.

>>> import numcodecs, numpy as np
>>> codec = numcodecs.get_codec({"id": "pumice", "abs": 1e-3})
>>> x = np.linspace(0, 1, 1000).reshape(10, 100)
>>> y = codec.decode(codec.encode(x))
>>> y.shape, bool(np.max(np.abs(x - y)) <= 1e-3)
((10, 100), True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numcodecs.abc import Codec  # type: ignore[import-untyped]
from numcodecs.compat import ensure_ndarray_like, ndarray_copy  # type: ignore[import-untyped]
from numpy.typing import DTypeLike, NDArray

from . import _pumice
from ._api import compress, decompress, info
from ._arrays import is_on_cuda, on_host
from ._options import Options, config_of, to_json, with_automatic_stability
from .errors import DtypeError

if TYPE_CHECKING:
    from typing_extensions import Unpack  # that of typing came with Python 3.11

# The memory layout of the original array. numcodecs restores it, and Zarr relies on that.
_ORDER = "numpy.order"
_BYTE_ORDER = "numpy.byteorder"


class Pumice(Codec):  # type: ignore[misc]
    """Error-bounded compression of float32 and float64 arrays.

    Values that this process has decoded and encodes again without a change, as in a write to a part of a chunk, keep their
    bits.

    Args:
        dtype: The type of values in `bytes` and other buffers that have none. Arrays always have one, also those of bytes,
            which are refused.
        **options: Those of :func:`pumice.compress`; `threads` is 1 unless given. `rel`, `psnr`, `l2` and `ratio` refer to
            the array of one call: in Zarr, a chunk. Give `value_range` for one range for all of them. `stable` is `'auto'`
            unless given, except for arrays on CUDA devices, which have no stable mode.

    >>> Pumice(rel=1e-3, value_range=(200.0, 320.0))
    Pumice(rel=0.001, value_range=[200.0, 320.0])
    """

    codec_id: ClassVar[str] = "pumice"

    def __init__(self, *, dtype: DTypeLike | None = None, **options: Unpack[Options]) -> None:
        options.setdefault("threads", 1)
        config_of(options)  # so that mistakes show here
        self._dtype = None if dtype is None else np.dtype(dtype)
        self._options = options

    def encode(self, buf: Any) -> bytes:
        """Compresses an array, or a buffer of bytes that are values of type `dtype`."""
        if is_on_cuda(buf):
            return compress(buf, **self._options)
        array: NDArray[Any] = np.asarray(ensure_ndarray_like(buf))
        if array.dtype.itemsize == 1:
            advice = "leave out filters that make bytes of values, such as Shuffle: filters=None"
            if hasattr(buf, "dtype"):
                raise DtypeError(f"arrays of {array.dtype} are not supported, only float32 and float64; {advice}")
            if self._dtype is None:
                raise DtypeError(
                    f"the type of values in a plain buffer must be given: Pumice(…, dtype='float32'); in Zarr, {advice}"
                )
            array = array.reshape(-1, order="A").view(self._dtype)
        attributes = dict(self._options.get("attributes") or {})
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            attributes[_ORDER] = "F"
            array = array.T
        if not array.dtype.isnative:
            attributes[_BYTE_ORDER] = array.dtype.byteorder
        options = with_automatic_stability(self._options)
        options["attributes"] = attributes
        return _pumice.compress_again(on_host(array), config_of(options))

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decompresses to a new array, or to the memory of `out`."""
        data = ensure_ndarray_like(buf)
        attributes = info(data)["attributes"]
        threads = self._options.get("threads", 1)
        order, byte_order = attributes.get(_ORDER, "C"), attributes.get(_BYTE_ORDER)
        found = decompress(data, threads=threads)
        _pumice.remember(data)
        if byte_order is not None:
            found = found.astype(found.dtype.newbyteorder(byte_order))
        if order == "F":
            found = found.T
        if out is None:
            return found
        target = ensure_ndarray_like(out)
        if target.dtype == object:
            raise DtypeError("values cannot be written to an array of Python objects")
        return ndarray_copy(found, target)

    def get_config(self) -> dict[str, Any]:
        """The codec as JSON."""
        dtype = {} if self._dtype is None else {"dtype": self._dtype.str}
        return {"id": self.codec_id, **dtype, **to_json(self._options)}

    def __repr__(self) -> str:
        given = {key: value for key, value in self.get_config().items() if key != "id"}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
