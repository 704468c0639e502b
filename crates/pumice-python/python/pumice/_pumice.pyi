"""The native half of `pumice`; not for direct use."""

from collections.abc import Callable
from os import PathLike
from typing import Any, final

from numpy.typing import NDArray
from typing_extensions import Buffer

_Bytes = Buffer | NDArray[Any]

PRESETS: list[str]
__version__: str

@final
class Config:
    def __new__(
        cls,
        bounds: list[tuple[str, float]],
        preset: str,
        stable: str,
        fills: list[float],
        value_range: tuple[float, float] | None,
        chunk_shape: list[int] | None,
        threads: int,
        attributes: list[tuple[str, str]],
    ) -> Config: ...

@final
class Reader:
    @staticmethod
    def of_file(path: str | PathLike[str], threads: int, max_bytes: int) -> Reader: ...
    @staticmethod
    def of_bytes(data: _Bytes, threads: int, max_bytes: int) -> Reader: ...
    @staticmethod
    def of_callable(n_bytes: int, read: Callable[[int, int], _Bytes], threads: int, max_bytes: int) -> Reader: ...
    @property
    def info(self) -> dict[str, Any]: ...
    @property
    def chunks_decoded(self) -> int: ...
    def read(self, region: list[tuple[int, int]], out: NDArray[Any] | None = None) -> NDArray[Any]: ...
    def compare(self, original: NDArray[Any], limits: tuple[float, float] | None = None) -> dict[str, Any]: ...

@final
class CudaArray:
    """An array in the memory of a CUDA device, for `torch.from_dlpack`, `cupy.from_dlpack` and the like."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def compress(array: NDArray[Any], config: Config) -> bytes: ...
def compress_again(array: NDArray[Any], config: Config) -> bytes: ...
def remember(data: _Bytes) -> None: ...
def compress_to_file(path: str | PathLike[str], array: NDArray[Any], config: Config) -> dict[str, Any]: ...
def compress_cuda(tensor: Any, config: Config) -> bytes: ...
def decompress_cuda(data: _Bytes, ordinal: int, max_bytes: int) -> CudaArray: ...
def compare_arrays(
    original: NDArray[Any], restored: NDArray[Any], limits: tuple[float, float], fills: list[float]
) -> dict[str, Any]: ...
def analyze(
    array: NDArray[Any],
    bounds: list[tuple[str, float]],
    presets: list[str],
    fills: list[float],
    threads: int,
) -> dict[str, Any]: ...
def hdf5_compress_chunk(cd_values: list[int], values: _Bytes, count: list[int], threads: int) -> bytes: ...

__all__ = [
    "PRESETS",
    "Config",
    "CudaArray",
    "Reader",
    "__version__",
    "analyze",
    "compare_arrays",
    "compress",
    "compress_again",
    "compress_cuda",
    "compress_to_file",
    "decompress_cuda",
    "hdf5_compress_chunk",
    "remember",
]
