"""Other error-bounded compressors, as packages of PyPI have them: one class for each, and the process that it runs in.

Every peer gets the same absolute bound and works on one thread. It runs in a process of its own, so that a crash or a
run without end costs one result and not the comparison.
"""

import multiprocessing
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from bench.arrays import Field

# Seconds after which a request counts as one without end.
LIMIT = 600


class Failure(Exception):
    """A compressor gave no result."""


class Restored(NamedTuple):
    """What came back, and from how many bytes."""

    n_bytes: int
    values: np.ndarray


@dataclass(frozen=True)
class Speed:
    """MB of array per second."""

    compress: float
    decompress: float

    def best(self, other: "Speed") -> "Speed":
        return Speed(max(self.compress, other.compress), max(self.decompress, other.decompress))


class Codec(ABC):
    """One algorithm of a peer. Its package is imported when an instance is made."""

    @abstractmethod
    def compress(self, values: np.ndarray, bound: float) -> Any:
        """A stream: all that `decompress` needs, apart from shape and type."""

    @abstractmethod
    def decompress(self, stream: Any, like: np.ndarray) -> np.ndarray:
        """The values, in the shape and type of `like`."""

    def size(self, stream: Any) -> int:
        return len(stream)


class Sz3(Codec):
    def __init__(self, algorithm: str):
        import pysz

        self.sz, self.config = pysz.sz, pysz.szConfig()
        self.config.errorBoundMode = pysz.szErrorBoundMode.ABS
        self.config.cmprAlgo = getattr(pysz.szAlgorithm, algorithm)
        self.config.openmp = False

    def compress(self, values: np.ndarray, bound: float) -> np.ndarray:
        self.config.absErrorBound = bound
        return self.sz.compress(values, self.config)[0]

    def decompress(self, stream: np.ndarray, like: np.ndarray) -> np.ndarray:
        return self.sz.decompress(stream, like.dtype, like.shape)[0]


class Zfp(Codec):
    """Fixed accuracy."""

    def __init__(self) -> None:
        import zfpy

        self.zfpy = zfpy

    def compress(self, values: np.ndarray, bound: float) -> bytes:
        return self.zfpy.compress_numpy(values, tolerance=bound)

    def decompress(self, stream: bytes, like: np.ndarray) -> np.ndarray:
        return self.zfpy.decompress_numpy(stream)


class Lerc(Codec):
    """Rows and columns are the fastest axes; what is left is bands, which LERC compresses one by one."""

    def __init__(self) -> None:
        import lerc

        self.lerc = lerc

    def compress(self, values: np.ndarray, bound: float) -> bytes:
        bands = values.reshape(-1, *np.atleast_2d(values).shape[-2:])
        room = 2 * values.nbytes + 65536
        code, n_bytes, *buffer = self.lerc.encode(bands, 1, False, None, bound, room)
        if code != 0:
            raise RuntimeError(f"LERC ends with code {code}")
        return buffer[0][:n_bytes]

    def decompress(self, stream: bytes, like: np.ndarray) -> np.ndarray:
        _, values, is_valid = self.lerc.decode(stream)
        if is_valid is not None:
            values = np.where(is_valid, values, np.nan)
        return values.reshape(like.shape)


class Image(NamedTuple):
    """An HDF5 file in memory, and how many of its bytes are compressed chunks."""

    content: bytes
    n_bytes: int


class Hdf5Filter(Codec):
    """A filter of hdf5plugin, on an array that is one chunk. The bytes of HDF5 itself are not counted, its time is."""

    # An array with more axes is one chunk for each index of its slowest axes.
    n_axes: int

    def __init__(self) -> None:
        import h5py
        import hdf5plugin

        self.h5py, self.plugin = h5py, hdf5plugin

    @abstractmethod
    def filter(self, values: np.ndarray, bound: float) -> Mapping:
        """The filter with its parameters."""

    def compress(self, values: np.ndarray, bound: float) -> Image:
        chunk = (1,) * (values.ndim - self.n_axes) + values.shape[-self.n_axes :]
        with self.h5py.File.in_memory() as file:
            dataset = file.create_dataset("values", data=values, chunks=chunk, **self.filter(values, bound))
            file.flush()
            return Image(file.id.get_file_image(), dataset.id.get_storage_size())

    def decompress(self, stream: Image, like: np.ndarray) -> np.ndarray:
        with self.h5py.File.in_memory(stream.content) as file:
            return file["values"][...]

    def size(self, stream: Image) -> int:
        return stream.n_bytes


class Sperr(Hdf5Filter):
    """Two or three axes. `swap` tells the filter that the last axis is the fastest; ratios halve without it."""

    n_axes = 3

    def filter(self, values: np.ndarray, bound: float) -> Mapping:
        return self.plugin.Sperr(absolute=bound, swap=True, missing_value_mode=self.missing(values))

    def missing(self, values: np.ndarray) -> int:
        """What the filter is to keep apart: NaN, values of 1e35 and beyond, or nothing."""
        most = max(values.max(), -values.min())
        if np.isnan(most):
            return self.plugin.Sperr.MISSING_NAN
        return self.plugin.Sperr.MISSING_1E35 if most >= 1e35 else self.plugin.Sperr.NO_MISSING


class Sz2(Hdf5Filter):
    n_axes = 4

    def filter(self, values: np.ndarray, bound: float) -> Mapping:
        return self.plugin.SZ(absolute=bound)


@dataclass(frozen=True)
class Peer:
    """A compressor with the packages that it needs. Its speed is that of its first algorithm, its ratio the best."""

    name: str
    packages: tuple[str, ...]
    algorithms: tuple[Callable[[], Codec], ...]

    def versions(self) -> dict[str, str]:
        return {package: version(package) for package in self.packages}

    def is_installed(self) -> bool:
        try:
            return bool(self.versions())
        except PackageNotFoundError:
            return False


PEERS = {
    "sz3": Peer("SZ3", ("pysz",), (partial(Sz3, "INTERP_LORENZO"), partial(Sz3, "LORENZO_REG"))),
    "sz2": Peer("SZ2", ("hdf5plugin", "h5py"), (Sz2,)),
    "sperr": Peer("SPERR", ("hdf5plugin", "h5py"), (Sperr,)),
    "zfp": Peer("zfp", ("zfpy",), (Zfp,)),
    "lerc": Peer("LERC", ("pylerc",), (Lerc,)),
}


def restore(codecs: list[Codec], values: np.ndarray, bound: float) -> list[Restored]:
    """What each algorithm makes of the values."""
    streams = [codec.compress(values, bound) for codec in codecs]
    return [Restored(c.size(s), c.decompress(s, values).reshape(values.shape)) for c, s in zip(codecs, streams)]


def speed(codecs: list[Codec], values: np.ndarray, bound: float, n_runs: int) -> Speed:
    """The best of some runs of the first algorithm; a run before them warms up and is not counted."""
    codec, times = codecs[0], []
    for _ in range(n_runs + 1):
        start = time.perf_counter()
        stream = codec.compress(values, bound)
        middle = time.perf_counter()
        codec.decompress(stream, values)
        times.append((middle - start, time.perf_counter() - middle))
    compress, decompress = map(min, zip(*times[1:]))
    return Speed(values.nbytes / compress / 1e6, values.nbytes / decompress / 1e6)


def serve(connection: Connection, peer: Peer) -> None:
    """Answers requests until the first failure, after which the state of a library is anybody's guess."""
    os.dup2(2, 1)  # Libraries print errors on standard output, which is for the results.
    try:
        codecs = [make() for make in peer.algorithms]
        while True:
            task, *arguments = connection.recv()
            connection.send(task(codecs, *arguments))
    except EOFError:
        return
    except Exception as error:
        connection.send(Failure(f"{type(error).__name__}: {error}"))


class Worker:
    """A process that answers requests to one peer."""

    def __init__(self, peer: Peer):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, peer), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, request: tuple) -> Any:
        """The answer, which may be a Failure."""
        try:
            self._connection.send(request)
            return self._connection.recv() if self._connection.poll(LIMIT) else Failure(f"no end within {LIMIT} s")
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            return Failure(f"crashed: {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}")

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


class IsolatedPeer:
    """A peer in a process of its own, and in a new one after each failure."""

    def __init__(self, peer: Peer):
        self.name = peer.name
        self._peer = peer
        self._worker: Worker | None = None

    def restore(self, values: np.ndarray, bound: float) -> list[Restored]:
        return self._ask(restore, values, bound)

    def speed(self, field: Field, rel: float, n_runs: int, min_bytes: int) -> Speed:
        return self._ask(speed, field.repeated(min_bytes), field.bound(rel), n_runs)

    def _ask(self, *request: object) -> Any:
        worker = self._worker or Worker(self._peer)
        answer = worker.ask(request)
        if isinstance(answer, Failure):
            worker.stop()
            self._worker = None
            raise answer
        self._worker = worker
        return answer
