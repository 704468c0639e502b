"""What all ranks do in test_mpi.py; run by mpirun. Its argument is a folder that all ranks reach."""

import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import pumice.mpi

world = MPI.COMM_WORLD
folder = Path(sys.argv[1])
shape = (37, 43, 64)


def field(dtype: str) -> np.ndarray:
    values = np.random.default_rng(1).normal(size=shape).cumsum(axis=1).astype(dtype)
    values[3, 4, :] = np.nan
    return values


def parts(extent: int, n: int) -> list[slice]:
    return [slice(i * extent // n, (i + 1) * extent // n) for i in range(n)]


def files() -> None:
    for dtype in ("float32", "float64"):
        whole = field(dtype)
        options = {"rel": 1e-3, "chunk_shape": (20, 15, 64), "fill_value": -1.0, "attributes": {"units": "m"}}
        path = folder / f"{dtype}.pum"
        # Two boxes each, the second not contiguous in memory; the last rank has none, if it is not the only one.
        n = max(world.size - 1, 1)
        boxes = []
        if world.rank < n:
            left, right = parts(shape[1], 2 * n)[2 * world.rank : 2 * world.rank + 2]
            boxes = [((0, part.start, 0), whole[:, part]) for part in (left, right)]
        n_bytes = pumice.mpi.write(world, path, shape, boxes, dtype=dtype, **options)
        alone = pumice.compress(whole, **options)
        assert path.read_bytes() == alone and n_bytes == len(alone)
        with pumice.mpi.open(world, path, threads=1) as file:
            assert file.shape == shape and file.dtype == dtype
            restored = pumice.decompress(alone)
            mine = parts(shape[0], world.size)[world.rank]
            first, second = file.read_all((mine, slice(None), slice(None)), (slice(0, 2), slice(-3, None), slice(4, 4)))
            np.testing.assert_array_equal(first, restored[mine])
            assert second.shape == (2, 3, 0)
            # Some ranks want nothing.
            one = file.read_all(*[(slice(None),) * 3] * (world.rank == 0))
            assert one is None if world.rank else np.array_equal(one, restored, equal_nan=True)
            np.testing.assert_array_equal(file.read((slice(1, 2), slice(None), slice(2, 5))), restored[1:2, :, 2:5])
        with pytest.raises(ValueError, match="closed"):
            file.read((slice(None),) * 3)


def steps() -> None:
    whole = field("float32")
    rows = parts(shape[1], world.size)[world.rank]
    options = {"abs": 1e-3, "chunk_shape": (20, 15, 64)}
    path = folder / "steps.pum"
    with pumice.mpi.Writer(world, path, shape[1:], "float32", **options) as writer:
        for step in range(20):
            writer.write_rows(1, [((0, rows.start, 0), whole[step : step + 1, rows])])
    with pumice.mpi.Writer.append(world, path, "float32", threads=1) as writer:
        # All of it on one rank.
        writer.write_rows(shape[0] - 20, [((0, 0, 0), whole[20:])] if world.rank == 0 else [])
        with pytest.raises(pumice.InvalidArgumentError, match="axes"):
            writer.write_rows(1, [((0, 0), whole[0])])
    with pumice.mpi.open(world, path) as file:
        restored = file.read_all((slice(None),) * 3)
    assert restored.shape == shape and np.nanmax(np.abs(restored - whole)) <= 1.01e-3
    assert np.array_equal(np.isnan(restored), np.isnan(whole))
    later = folder / "later.pum"
    mine = whole[:, rows].copy()
    writing = pumice.mpi.iwrite(world, later, shape, [((0, rows.start, 0), mine)], **options)
    mine[:] = 0
    n_bytes = writing.wait()
    assert writing.is_done() and later.read_bytes() == pumice.compress(whole, **options) and n_bytes > 0
    with pytest.raises(ValueError, match="waited"):
        writing.wait()
    plain = folder / "plain.pum"
    pumice.mpi.write(world, plain, shape, [((0, rows.start, 0), whole[:, rows])], wire="plain", **options)
    assert np.array_equal(pumice.decompress(plain.read_bytes()), whole, equal_nan=True)


def messages() -> None:
    whole = field("float32").ravel()
    mine = parts(whole.size, world.size)[world.rank]
    for wire in ("auto", "compressed", "plain"):
        done = pumice.mpi.gather(world, whole[mine], root=world.size - 1, wire=wire, rel=1e-3)
        assert done.is_compressed == (wire == "compressed" and world.size > 1)
        if world.rank == world.size - 1:
            assert np.nanmax(np.abs(done.values.astype("float64") - whole)) <= max(done.abs_bound, 0)
            assert np.array_equal(np.isnan(done.values), np.isnan(whole))
        else:
            assert done.values is None
    everywhere = pumice.mpi.allgather(world, whole[mine], wire="compressed", abs=1e-3).values
    assert len(set(world.allgather(everywhere.tobytes()))) == 1
    assert np.nanmax(np.abs(everywhere.astype("float64") - whole)) <= 1e-3
    state = whole.copy() if world.rank == 0 else np.empty_like(whole)
    pumice.mpi.bcast(world, state, wire="compressed", abs=1e-3)
    assert len(set(world.allgather(state.tobytes()))) == 1 and np.nanmax(np.abs(state - whole)) <= 1.01e-3
    dealt = np.empty_like(whole[mine])
    pumice.mpi.scatter(world, whole if world.rank == 0 else None, dealt, wire="compressed", abs=1e-3)
    assert np.nanmax(np.abs(dealt - whole[mine]), initial=0) <= 1.01e-3
    sent = [whole[: 10 * (world.rank + to)] for to in range(world.size)]
    received = pumice.mpi.alltoall(world, sent, wire="compressed", abs=1e-3).values
    assert [len(part) for part in received] == [10 * (world.rank + of) for of in range(world.size)]
    assert all(np.nanmax(np.abs(part - whole[: len(part)]), initial=0) <= 1.01e-3 for part in received)
    if world.size > 1 and world.rank == 0:
        pumice.mpi.send(world, whole, 1, tag=3, wire="compressed", abs=1e-3)
    elif world.rank == 1:
        target = np.empty_like(whole)
        assert pumice.mpi.recv(world, target, 0, tag=3).is_compressed
        assert np.nanmax(np.abs(target - whole)) <= 1.01e-3
    sums = []
    for algorithm in ("auto", "ring", "halving", "plain"):
        done = pumice.mpi.allreduce(world, [whole] * (world.rank + 1), abs=1e-3, algorithm=algorithm)
        n = world.size * (world.size + 1) // 2
        assert done.n_vectors == n and done.abs_bound <= n * 1e-3
        assert np.nanmax(np.abs(done.values.astype("float64") - n * whole.astype("float64"))) <= done.abs_bound
        sums.append(done.values.tobytes())
    assert len(set(sums)) == 1
    part = pumice.mpi.reduce_scatter(world, [whole] * (world.rank + 1), mine, abs=1e-3, algorithm="ring")
    assert part.values.tobytes() == np.frombuffer(sums[0], "float32")[mine].tobytes()


def failures() -> None:
    values = np.zeros((2, 3), "float32")
    is_last = world.rank == world.size - 1

    def refuse(kind: type[Exception], match: str, call) -> None:
        with pytest.raises(kind, match=match):
            call()

    path = folder / "failed.pum"
    start = (2 * world.rank, 0)
    extent = (2 * world.size, 3)
    # What one rank does wrong, all are told: some by their own exception, the others by that of the library.
    wrong = values.astype("int32") if is_last else values
    refuse((pumice.PumiceError), "int32", lambda: pumice.mpi.write(world, path, extent, [(start, wrong)], abs=1.0))
    box = ((0,), values) if is_last else (start, values)
    refuse(pumice.InvalidArgumentError, "axes", lambda: pumice.mpi.write(world, path, extent, [box], abs=1.0))
    bound = 2.0 if is_last and world.size > 1 else -1.0
    refuse(pumice.InvalidArgumentError, "bound", lambda: pumice.mpi.write(world, path, extent, [(start, values)], abs=bound))
    refuse(pumice.InvalidArgumentError, "dtype=", lambda: pumice.mpi.write(world, path, extent, [], abs=1.0))
    refuse(TypeError, "unknown option", lambda: pumice.mpi.write(world, path, extent, [(start, values)], absolute=1.0))
    refuse(OSError, "nowhere", lambda: pumice.mpi.open(world, folder / "nowhere.pum"))
    nowhere = folder / "nowhere" / "x.pum"
    refuse(OSError, "nowhere", lambda: pumice.mpi.write(world, nowhere, extent, [(start, values)], abs=1.0))
    refuse(pumice.InvalidArgumentError, "wire", lambda: pumice.mpi.gather(world, values, wire="tin", abs=1.0))
    refuse(pumice.InvalidArgumentError, "one bound", lambda: pumice.mpi.allreduce(world, values))
    refuse(TypeError, "communicator", lambda: pumice.mpi.open(None, path))
    refuse(pumice.InvalidArgumentError, "COMM_NULL", lambda: pumice.mpi.open(MPI.COMM_NULL, path))
    assert not path.exists()
    # A communicator that is freed takes ours with it, and another may get its number.
    for _ in range(3):
        half = world.Split(world.rank % 2)
        done = pumice.mpi.allreduce(half, values + 1, abs=1e-3)
        assert done.n_vectors == half.size
        half.Free()


files()
steps()
messages()
failures()
world.Barrier()
if world.rank == 0:
    print(f"{world.size} ranks: passed", flush=True)
