"""The codec for Zarr's format 3. It turns arrays into bytes, so it is the `serializer` of an array.

>>> import numpy as np, zarr
>>> from pumice.zarr import PumiceCodec
>>> x = np.linspace(0, 1, 10_000, dtype="float32").reshape(100, 100)
>>> z = zarr.create_array({}, shape=x.shape, chunks=(50, 100), dtype=x.dtype,
...                       serializer=PumiceCodec(abs=1e-3), compressors=None)
>>> z[:] = x
>>> bool(np.max(np.abs(z[:] - x)) <= 1e-3)
True
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from zarr.abc.codec import ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin
from zarr.abc.store import RangeByteRequest, Store
from zarr.core.buffer import Buffer, NDBuffer
from zarr.storage import StorePath

from ._api import compress
from ._arrays import is_on_cuda, on_host
from ._options import MAX_FILLS, Options, config_of, fills_of, to_json, with_automatic_stability
from ._pumice import Reader, compress_again, remember
from ._xarray import variables_of, with_fills
from .errors import CorruptError, DtypeError, InvalidArgumentError
from .numcodecs import Pumice

if TYPE_CHECKING:
    from zarr.abc.store import ByteGetter
    from zarr.core.array_spec import ArraySpec

# Smaller chunks are read as a whole: one request costs less than one for each part.
_LARGE = 1 << 20


@dataclass(frozen=True, init=False)
class PumiceCodec(ArrayBytesCodec, ArrayBytesCodecPartialDecodeMixin):
    """Error-bounded compression of the chunks of a float32 or float64 array.

    The options are those of :func:`pumice.compress`, without `attributes`; `threads` is 1 unless given, since Zarr codes
    several chunks at a time, and `stable` is `'auto'`. `rel`, `psnr`, `l2` and `ratio` refer to each chunk of the Zarr
    array; give `value_range` for one range for all of them. The array's fill value counts as `fill_value`, unless it is 0:
    that is Zarr's default, and says nothing about the data. The codec does not see attributes: name a `missing_value`, and
    a `_FillValue` that xarray writes, as `fill_value`, or use :func:`xarray_encoding`. Values that this process has read and
    writes again without a change, as in a write to a part of a chunk, keep their bits. `chunk_shape` cuts chunks into
    smaller ones: reading a part of a large chunk reads and decodes only those that it touches.
    """

    is_fixed_size = False

    # As pairs, which can be compared and hashed.
    _options: tuple[tuple[str, Any], ...]
    _threads: int = field(compare=False)

    def __init__(self, **options: Unpack[Options]) -> None:
        if options.get("attributes"):
            raise InvalidArgumentError("attributes belong to the Zarr array, not to its codec")
        threads = options.setdefault("threads", 1)
        config_of(options)  # so that mistakes show here
        pairs = sorted(to_json(options).items())
        frozen = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in pairs)
        object.__setattr__(self, "_options", frozen)
        object.__setattr__(self, "_threads", threads)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The codec of array metadata."""
        return cls(**data.get("configuration", {}))

    def to_dict(self) -> dict[str, Any]:
        """The codec as array metadata."""
        configuration = {key: list(value) if isinstance(value, tuple) else value for key, value in self._options}
        return {"name": "pumice", "configuration": configuration}

    def validate(self, *, shape: tuple[int, ...], dtype: Any, chunk_grid: Any) -> None:
        """Refuses arrays of other types before anything is written."""
        native = dtype.to_native_dtype()
        if native.kind != "f" or native.itemsize not in (4, 8):
            raise DtypeError(f"the codec 'pumice' is for arrays of float32 and float64, not {native}")

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Sizes are not known in advance."""
        raise NotImplementedError

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        options: Any = {**dict(self._options), "threads": self._threads}
        options["fill_value"] = _fills(options.get("fill_value"), chunk_spec.fill_value)
        array = chunk_array.as_ndarray_like()
        if is_on_cuda(array):
            data = compress(array, **options)
        else:
            data = compress_again(on_host(array), config_of(with_automatic_stability(options)))
        return chunk_spec.prototype.buffer.from_bytes(data)

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode(chunk_bytes, (), chunk_spec)

    def _decode(self, chunk_bytes: Buffer, selection: tuple[Any, ...], chunk_spec: ArraySpec) -> NDBuffer:
        data = chunk_bytes.as_numpy_array()
        values = self._decode_part(Reader.of_bytes(data, self._threads, _limit(chunk_spec)), selection, chunk_spec)
        remember(data)
        return values

    def _decode_part(self, reader: Reader, selection: tuple[Any, ...], chunk_spec: ArraySpec) -> NDBuffer:
        dtype = chunk_spec.dtype.to_native_dtype()
        _check_like(reader.info, chunk_spec.shape, dtype)
        region, within = _box(selection, chunk_spec.shape)
        values = reader.read(region)[within].astype(dtype, copy=False)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(values)

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer | None:
        return await asyncio.to_thread(self._encode_sync, chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)

    async def _decode_partial_single(
        self, byte_getter: ByteGetter, selection: Any, chunk_spec: ArraySpec
    ) -> NDBuffer | None:
        selection = selection if isinstance(selection, tuple) else (selection,)
        region, _ = _box(selection, chunk_spec.shape)
        is_part = "chunk_shape" in dict(self._options) and region != [(0, extent) for extent in chunk_spec.shape]
        if is_part and isinstance(byte_getter, StorePath) and _knows_sizes(byte_getter.store):
            try:
                n_bytes = await byte_getter.store.getsize(byte_getter.path)
            except FileNotFoundError:
                return None
            if n_bytes >= _LARGE:
                return await self._decode_from_store(byte_getter, n_bytes, selection, chunk_spec)
        chunk_bytes = await byte_getter.get(prototype=chunk_spec.prototype)
        if chunk_bytes is None:
            return None
        return await asyncio.to_thread(self._decode, chunk_bytes, selection, chunk_spec)

    async def _decode_from_store(
        self, path: StorePath, n_bytes: int, selection: tuple[Any, ...], chunk_spec: ArraySpec
    ) -> NDBuffer:
        """Reads from the store only what the selection needs."""
        loop = asyncio.get_running_loop()

        def read(offset: int, length: int) -> Any:
            request = RangeByteRequest(offset, offset + length)
            got = path.get(prototype=chunk_spec.prototype, byte_range=request)
            found = asyncio.run_coroutine_threadsafe(got, loop).result()
            return b"" if found is None else found.as_numpy_array()

        def decode() -> NDBuffer:
            reader = Reader.of_callable(n_bytes, read, self._threads, _limit(chunk_spec))
            return self._decode_part(reader, selection, chunk_spec)

        return await loop.run_in_executor(_readers(), decode)


def xarray_encoding(dataset: Any, *, zarr_format: int = 3, **options: Unpack[Options]) -> dict[str, dict[str, Any]]:
    """The `encoding` that an xarray data set needs to be written with a bound; the options are those of the codec::

        dataset.to_zarr("out.zarr", encoding=pumice.zarr.xarray_encoding(dataset, rel=1e-3))

    Data variables of 32-bit and 64-bit floats keep what they have been read with (type, fill value, chunks), and get the
    codec; their `missing_value` and `_FillValue` count as `fill_value`. Coordinates, and what attributes such as `bounds` and
    `formula_terms` name, are left as they are.
    """
    encodings: dict[str, dict[str, Any]] = {}
    for name, variable, kept, is_field, fills in variables_of(dataset):
        if is_field:
            own: Any = with_fills(dict(options), fills)
            codec = (
                {"compressors": Pumice(**own)}
                if zarr_format == 2
                else {"serializer": PumiceCodec(**own), "compressors": None}
            )
            chunks = {key: variable.encoding[key] for key in ("chunks", "shards") if key in variable.encoding}
            encodings[name] = {**kept, **chunks, **codec}
    return encodings


def _knows_sizes(store: Store) -> bool:
    """Whether a store knows sizes without reading everything."""
    return type(store).getsize is not Store.getsize


@cache
def _readers() -> ThreadPoolExecutor:
    """Threads that wait for stores. Stores read in the threads of the event loop, which must not all be waiting."""
    return ThreadPoolExecutor(max_workers=16, thread_name_prefix="pumice")


def _limit(chunk_spec: ArraySpec) -> int:
    """The most memory for a chunk and to decode it: a few times its values, and what its index may take."""
    return 16 * math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize + (64 << 20)


def _fills(given: Any, of_array: Any) -> list[float]:
    """The fill values that are given, and that of the array; not 0, which is Zarr's default."""
    fills = fills_of(given)
    known = 0.0 if of_array is None else float(of_array)
    if known and np.isfinite(known) and known not in fills:
        if len(fills) == MAX_FILLS:
            raise InvalidArgumentError(
                f"the codec has {MAX_FILLS} fill values, and the array another one, {known:g}: leave one out"
            )
        fills.append(known)
    return fills


def _check_like(found: dict[str, Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if (tuple(found["shape"]), np.dtype(found["dtype"])) != (tuple(shape), dtype.newbyteorder("=")):
        raise CorruptError(
            f"a chunk of shape {tuple(shape)} and type {dtype} is stored with shape {tuple(found['shape'])} and type "
            f"{found['dtype']}; were chunks and metadata written by different programs?"
        )


def _box(selection: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[list[tuple[int, int]], tuple[Any, ...]]:
    """The least box that holds a selection of a chunk, and the selection within the box."""
    region: list[tuple[int, int]] = []
    within: list[Any] = []
    for axis, extent in enumerate(shape):
        part = selection[axis] if axis < len(selection) else slice(None)
        if isinstance(part, slice):
            start, end, step = part.indices(extent)
            region.append((start, max(start, end)))
            within.append(slice(None, None, step))
            continue
        positions = np.asarray(part)
        if positions.dtype == bool:
            positions = np.flatnonzero(positions)
        start, end = (int(positions.min()), int(positions.max()) + 1) if positions.size else (0, 0)
        region.append((start, end))
        within.append(positions - start)
    return region, tuple(within)
