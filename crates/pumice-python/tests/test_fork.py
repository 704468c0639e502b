"""Forked processes, which have none of their parent's threads: they must neither hang nor write other bytes."""

import multiprocessing
import os
import signal
import sys
import threading

import numpy as np
import pytest

import pumice

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

THREADS = [0, 2, 3]


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    """Large enough that the library uses threads."""
    return np.sin(np.arange(600_000, dtype="float32") * 1e-3).reshape(60, 100, 100)


def round_trip(arguments: tuple[np.ndarray, int]) -> bytes:
    values, threads = arguments
    data = pumice.compress(values, abs=1e-3, preset="fast", threads=threads)
    assert np.abs(pumice.decompress(data, threads=threads) - values).max() <= 1e-3
    return data


def in_fork(work) -> int:
    """The exit status of a forked process that does some work, at most a minute of it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("threads", THREADS)
def test_a_child_compresses_after_its_parent_did(values, threads):
    data = round_trip((values, threads))

    def work():
        assert round_trip((values, threads)) == data
        assert in_fork(lambda: round_trip((values, threads))) == 0

    assert in_fork(work) == 0
    assert round_trip((values, threads)) == data


def test_a_pool_of_processes(values):
    data = round_trip((values, 0))
    with multiprocessing.get_context("fork").Pool(3) as pool:
        results = pool.map_async(round_trip, [(values, THREADS[i % 3]) for i in range(9)])
        assert results.get(timeout=120) == [data] * 9


def test_files_opened_before_the_fork(values, tmp_path):
    path = tmp_path / "values.pum"
    pumice.save(path, values, abs=1e-3)
    file = pumice.open(path)
    whole = file[...]

    def work():
        assert np.array_equal(file[...], whole)

    assert in_fork(work) == 0


def test_threads_that_are_busy_at_the_fork(values):
    data = round_trip((values, 0))
    is_over = threading.Event()

    def compress():
        while not is_over.is_set():
            pumice.compress(values, abs=1e-3, preset="fast")

    busy = [threading.Thread(target=compress) for _ in range(2)]
    for thread in busy:
        thread.start()
    try:
        for _ in range(10):
            assert in_fork(lambda: round_trip((values, 0)) == data or os._exit(2)) == 0
    finally:
        is_over.set()
        for thread in busy:
            thread.join()
