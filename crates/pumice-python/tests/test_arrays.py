"""compress and decompress: what goes in, what comes out, what is refused."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pumice
from pumice._arrays import on_host


def max_error(a, b):
    return float(np.max(np.abs(np.asarray(a, "float64") - np.asarray(b, "float64"))))


@pytest.mark.parametrize("preset", pumice.PRESETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_preset_keeps_the_bound(field, preset, dtype):
    x = field.astype(dtype)
    data = pumice.compress(x, abs=1e-3, preset=preset)
    y = pumice.decompress(data)
    assert isinstance(data, bytes)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert max_error(x, y) <= 1e-3
    assert len(data) < x.nbytes / 2


def test_presets_are_those_of_the_library():
    from pumice._pumice import PRESETS

    assert sorted(PRESETS) == sorted(pumice.PRESETS)


def test_every_bound_is_kept(field):
    value_range = float(field.max() - field.min())
    assert max_error(field, pumice.decompress(pumice.compress(field, rel=1e-3))) <= 1e-3 * value_range
    y = pumice.decompress(pumice.compress(field, pwrel=1e-2)).astype("float64")
    assert np.all(np.abs(y - field) <= 1e-2 * np.abs(field.astype("float64")))
    assert pumice.check(field, pumice.compress(field, psnr=60))["psnr"] >= 60
    assert pumice.check(field, pumice.compress(field, l2=1.0))["l2_norm"] <= 1.0
    assert field.nbytes / len(pumice.compress(field, ratio=12)) >= 12
    assert np.array_equal(pumice.decompress(pumice.compress(field, lossless=True)), field)
    both = pumice.compress(field, pwrel=0.5, abs=1e-3)
    assert max_error(field, pumice.decompress(both)) <= 1e-3
    assert pumice.info(both)["bounds"] == {"abs": 1e-3, "pwrel": 0.5}


def test_a_given_range_is_what_rel_refers_to(field):
    data = pumice.compress(field, rel=1e-3, value_range=(-500, 500))
    assert pumice.info(data)["abs_bound"] == 1.0


def test_special_values_come_back_bit_for_bit():
    x = np.linspace(-1, 1, 5000)
    x[::50], x[1::50], x[2::50], x[3::50], x[4] = np.nan, np.inf, -np.inf, -9999.0, -0.0
    y = pumice.decompress(pumice.compress(x, rel=1e-3, fill_value=-9999.0))
    special = ~np.isfinite(x) | (x == -9999.0)
    assert np.array_equal(x[special].view("u8"), y[special].view("u8"))
    assert max_error(x[~special], y[~special]) <= 2e-3


def test_two_fill_values():
    x = np.linspace(-1, 1, 5000)
    x[::50], x[1::50], x[2::50] = np.nan, -9999.0, 7.5
    data = pumice.compress(x, rel=1e-3, fill_value=[-9999.0, 7.5])
    info, y = pumice.info(data), pumice.decompress(data)
    assert info["fills"] == [-9999.0, 7.5] and info["abs_bound"] <= 2e-3
    special = np.isnan(x) | np.isin(x, [-9999.0, 7.5])
    assert np.array_equal(x[special].view("u8"), y[special].view("u8"))
    assert pumice.check(x, y, rel=1e-3, fill_value=(-9999.0, 7.5))["bound_kept"]
    with pytest.raises(pumice.InvalidArgumentError, match="at most 8"):
        pumice.compress(x, rel=1e-3, fill_value=range(9))


@pytest.mark.parametrize("preset", ["fast", "balanced", "small", "max"])
def test_several_fill_values(preset):
    x = np.linspace(-1, 1, 50_000).reshape(200, 250)
    fills = [-1.5, 1.5, 2.5, 3.5, -9999.0]
    for i, fill in enumerate(fills):
        x[10 * i : 10 * i + 2 + i] = fill
    for bound in ({"rel": 1e-3}, {"abs": 0.3}, {"pwrel": 1e-2}):
        y = pumice.decompress(pumice.compress(x, fill_value=[*fills, 17.0], preset=preset, **bound))
        special = np.isin(x, fills)
        assert (x[special] == y[special]).all()
        assert pumice.check(x, y, fill_value=fills, **bound)["bound_kept"]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (5, 1, 4), (2, 3, 4, 5)])
def test_any_shape(shape):
    x = np.arange(np.prod(shape, dtype=int), dtype="float64").reshape(shape)
    y = pumice.decompress(pumice.compress(x, lossless=True))
    assert y.shape == shape
    assert np.array_equal(x, y)


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda x: x[:, ::2, ::-1],
        lambda x: x.transpose(2, 0, 1),
        lambda x: x.astype(">f4"),
        lambda x: x.astype(">f8"),
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: x.tolist(),
    ],
    ids=["fortran", "strided", "transposed", ">f4", ">f8", "broadcast", "lists"],
)
def test_any_layout_and_byte_order(field, change):
    x = change(field)
    y = pumice.decompress(pumice.compress(x, lossless=True))
    assert y.dtype.isnative
    assert np.array_equal(np.asarray(x), y)


def test_unaligned_arrays(field):
    x = np.frombuffer(b"?" + field.tobytes(), dtype="u1")[1:].view("float32")
    assert not x.flags.aligned
    assert np.array_equal(pumice.decompress(pumice.compress(x, lossless=True)), field.ravel())


def test_arrays_that_need_no_change_are_not_copied(field):
    field.flags.writeable = False
    assert np.shares_memory(on_host(field), field)
    assert np.shares_memory(on_host(field[3:7]), field)
    assert not np.shares_memory(on_host(field[::2]), field)


def test_masked_arrays():
    x = np.ma.masked_array(np.arange(100.0), mask=False)
    assert np.array_equal(pumice.decompress(pumice.compress(x, lossless=True)), np.arange(100.0))
    x[3:7] = np.ma.masked
    with pytest.raises(ValueError, match="filled"):
        pumice.compress(x, abs=0.5)
    y = pumice.decompress(pumice.compress(x.filled(-1e30), abs=0.5, fill_value=-1e30))
    assert np.array_equal(y == -1e30, x.mask)


@pytest.mark.parametrize("target", ["psnr", "l2", "ratio"])
def test_an_array_without_values_meets_every_target(target):
    data = pumice.compress(np.zeros((0, 5), "float32"), **{target: 10})
    assert pumice.info(data)["bounds"] == {"lossless": None} and pumice.decompress(data).shape == (0, 5)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1.0, None]), "Python objects"),
        (np.arange(5), "integers.*astype"),
        (np.zeros(5, bool), "astype"),
        (np.zeros(5, "float16"), r"astype\('float32'\)"),
        (np.zeros(5, "longdouble"), r"astype\('float64'\)"),
        (np.zeros(5, "complex64"), r"\.real and \.imag"),
        (np.zeros(5, "datetime64[s]"), "only float32 and float64"),
        (np.array(["a"]), "only float32 and float64"),
        ("x.npy", "the array that is in it"),
        (np.zeros(3, [("x", "f4")]), "fields one by one"),
        (np.array([1.0, 2.0], object), r"astype\('float64'\)"),
    ],
)
def test_other_types_are_refused_with_advice(array, message):
    with pytest.raises(TypeError, match=message) as raised:
        pumice.compress(array, abs=1)
    assert isinstance(raised.value, pumice.PumiceError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no error bound"),
        ({"abs": -1}, "bound"),
        ({"abs": float("nan")}, "bound"),
        ({"psnr": -3}, "PSNR"),
        ({"ratio": 0.5}, "ratio"),
        ({"abs": 1, "preset": "tiny"}, "unknown preset 'tiny'"),
        ({"abs": 1, "chunk_shape": (2, 2)}, "chunk"),
        ({"abs": 1, "chunk_shape": (0, 2, 2)}, "chunk_shape"),
        ({"abs": 1, "preset": ""}, "unknown preset ''"),
        ({"abs": 1, "threads": -1}, "threads"),
        ({"abs": 1, "threads": 2**64}, "threads"),
        ({"rel": 1, "value_range": (3, 2)}, "range"),
        ({"rel": 1, "value_range": (3,)}, "value_range must be two numbers"),
        ({"rel": 1, "value_range": (1, 2, 3)}, "value_range must be two numbers"),
        ({"rel": 1, "value_range": 3}, "value_range must be two numbers"),
    ],
)
def test_invalid_options(field, options, message):
    with pytest.raises(ValueError, match=message) as raised:
        pumice.compress(field, **options)
    assert isinstance(raised.value, pumice.InvalidArgumentError)
    assert raised.value.code == 2


@pytest.mark.parametrize(
    "options",
    [
        {"abs": "1e-3"},
        {"rel": True},
        {"pwrel": [1e-3]},
        {"psnr": 60j},
        {"fill_value": "none"},
        {"preset": 3},
        {"chunk_shape": 5},
        {"chunk_shape": (1.5, 60, 50)},
        {"chunk_shape": "abc"},
        {"threads": None},
        {"threads": 1.5},
        {"attributes": {"level": 1}},
        {"attributes": [("a", 1)]},
        {"attributes": "units"},
    ],
    ids=str,
)
def test_options_of_the_wrong_type_are_named(field, options):
    [name] = options
    with pytest.raises(TypeError, match=name):
        pumice.compress(field, **{"l2": 1.0, **options})


def test_numbers_of_numpy_are_options(field):
    options = {"chunk_shape": np.array([20, 60, 50]), "threads": np.int64(2), "value_range": np.array([0, 1])}
    data = pumice.compress(field, rel=np.float32(0.5), **options)
    assert data == pumice.compress(field, rel=0.5, chunk_shape=(20, 60, 50), value_range=(0.0, 1.0))


@pytest.mark.parametrize("options", [{"threads": -1}, {"threads": 1 << 64}, {"max_bytes": -1}])
def test_invalid_options_for_reading(field, options, tmp_path):
    data = pumice.compress(field, abs=1e-3)
    (tmp_path / "x.pum").write_bytes(data)
    with pytest.raises(pumice.InvalidArgumentError, match=next(iter(options))):
        pumice.decompress(data, **options)
    with pytest.raises(pumice.InvalidArgumentError, match=next(iter(options))):
        pumice.open(tmp_path / "x.pum", **options)


def test_unknown_options_are_named(field, tmp_path):
    with pytest.raises(TypeError, match="absolute"):
        pumice.save(tmp_path / "x", field, absolute=1)


def test_bytes_do_not_depend_on_threads(field):
    assert len({pumice.compress(field, rel=1e-4, chunk_shape=(7, 60, 50), threads=n) for n in (0, 1, 2, 3)}) == 1


def test_any_buffer_can_be_decompressed(field):
    data = pumice.compress(field, abs=1e-3)
    expected = pumice.decompress(data)
    for buffer in (bytearray(data), memoryview(data), np.frombuffer(data, "i1"), np.frombuffer(data, "u1")):
        assert np.array_equal(pumice.decompress(buffer), expected)
    with pytest.raises(ValueError, match="contiguous"):
        pumice.decompress(memoryview(data)[::2])
    assert np.array_equal(pumice.decompress(np.void(data)), expected)
    for path in ("x.pum", Path("x.pum")):
        with pytest.raises(TypeError, match="pumice.open"):
            pumice.decompress(path)
    with pytest.raises(TypeError, match="bytes-like"):
        pumice.decompress(None)


def test_decompress_to_an_array_of_the_caller(field):
    data = pumice.compress(field, abs=1e-3)
    out = np.empty_like(field)
    assert pumice.decompress(data, out=out) is out
    assert np.array_equal(out, pumice.decompress(data))
    read_only = np.empty_like(field)
    read_only.flags.writeable = False
    for wrong in (out[1:], out.astype("float64"), np.asfortranarray(out), read_only):
        with pytest.raises(ValueError, match="out="):
            pumice.decompress(data, out=wrong)
    with pytest.raises(TypeError, match="out="):
        pumice.decompress(data, out=bytearray(field.nbytes))


def test_damaged_bytes_raise_and_nothing_crashes(field):
    data = pumice.compress(field, rel=1e-3, chunk_shape=(10, 60, 50))
    with pytest.raises(pumice.CorruptError, match="not a Pumice") as raised:
        pumice.decompress(b"not compressed at all, just some text that is long enough to look at")
    assert isinstance(raised.value, ValueError)
    for n in (0, 1, 10, len(data) // 2, len(data) - 1):
        with pytest.raises((pumice.CorruptError, pumice.UnsupportedError)):
            pumice.decompress(data[:n])
    changed = bytearray(data)
    changed[len(data) // 2] ^= 0x55
    with pytest.raises(pumice.CorruptError, match="chunk"):
        pumice.decompress(changed)
    rng = np.random.default_rng(1)
    for _ in range(300):
        hostile = bytearray(data)
        for at in rng.integers(0, len(data), size=rng.integers(1, 6)):
            hostile[at] = rng.integers(256)
        try:
            pumice.decompress(hostile, max_bytes=1 << 24)
        except (pumice.PumiceError, MemoryError):
            pass


def test_the_memory_limit_is_an_error(field):
    data = pumice.compress(field, abs=1e-3)
    with pytest.raises(MemoryError, match="max_bytes") as raised:
        pumice.decompress(data, max_bytes=field.nbytes - 1)
    assert isinstance(raised.value, pumice.LimitExceededError)
    assert pumice.decompress(data, max_bytes=field.nbytes).shape == field.shape


def test_running_out_of_memory_is_an_error():
    """The interpreter survives even a limit of the system itself."""
    program = """
import resource, numpy as np, pumice
data = pumice.compress(np.zeros(1 << 28, "float32"), abs=1)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    pumice.decompress(data, threads=1)
except MemoryError as e:
    print("MemoryError")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "MemoryError\n"


def test_other_threads_run_meanwhile():
    x = np.random.default_rng(0).normal(size=2_000_000).cumsum()
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    data = pumice.compress(x, rel=1e-6, threads=1)
    pumice.decompress(data, threads=1)
    end = time.perf_counter()
    done.set()
    ticker.join()
    within = [start, *(t for t in ticks if start < t < end), end]
    # With the interpreter's lock held there would be no tick between start and end.
    assert max(np.diff(within)) < (end - start) / 2


def test_attributes_are_stored_with_the_array(field):
    data = pumice.compress(field, abs=1e-3, attributes={"units": "K", "name": "t"})
    assert pumice.info(data)["attributes"] == {"units": "K", "name": "t"}


def test_check_of_arrays(field):
    found = pumice.check(field, field)
    assert (found["bound_kept"], found["psnr"]) == (None, np.inf)
    worse = field.copy()
    worse[3, 4, 5] += 1
    found = pumice.check(field, worse, rel=1e-3)
    assert (found["bound_kept"], found["n_over"], found["worst_index"]) == (False, 1, [3, 4, 5])
    assert pumice.check(field, worse, abs=1.001)["bound_kept"]
    assert pumice.check(np.float32([1, np.nan]), np.float32([1, 0]), abs=1)["n_mismatched_special"] == 1
    with pytest.raises(ValueError, match=r"\[40, 60, 50\] and type float32 with shape \[39, 60, 50\]"):
        pumice.check(field, field[1:])
    for bound in (-1, float("nan")):
        with pytest.raises(ValueError, match="rel must be"):
            pumice.check(field, field, rel=bound)
    with pytest.raises(ValueError, match="threads"):
        pumice.check(field, pumice.compress(field, abs=1), threads=-1)


def test_check_of_compressed_forms(field, tmp_path):
    data = pumice.compress(field, rel=1e-3)
    path = tmp_path / "x.pum"
    path.write_bytes(data)
    found = [pumice.check(field, other) for other in (data, path, str(path), pumice.open(path))]
    assert found[0]["bound_kept"]
    assert all(other == found[0] for other in found)
    assert not pumice.check(field, data, abs=1e-5)["bound_kept"]
    with pytest.raises(ValueError, match="original"):
        pumice.check(field.astype("float64"), data)


def test_analysis_agrees_with_compression(field):
    found = pumice.analyze(field, abs=[1e-2, 1e-3], lossless=True, presets=["fast", "small"])
    assert len(found["estimates"]) == 6
    for estimate in found["estimates"]:
        bound = {"lossless": True} if estimate["bound"] is None else {estimate["bound_kind"]: estimate["bound"]}
        actual = field.nbytes / len(pumice.compress(field, preset=estimate["preset"], **bound))
        assert estimate["ratio"] == pytest.approx(actual, rel=0.1)
    assert found["values"]["min"] == field.min()


def test_options_of_an_analysis(field):
    one = pumice.analyze(field, rel=1e-3, presets="fast")["estimates"]
    assert one == pumice.analyze(field, rel=np.array([1e-3]), abs=None, presets=["fast"])["estimates"]
    assert len(pumice.analyze(field, rel=None, presets=("fast",))["estimates"]) == 3
    with pytest.raises(TypeError, match="rel must be a number"):
        pumice.analyze(field, rel="1e-3")
    with pytest.raises(ValueError, match="unknown preset 'tiny'"):
        pumice.analyze(field, presets="tiny")
    with pytest.raises(ValueError, match="threads"):
        pumice.analyze(field, threads=-1)


def test_the_stable_mode_keeps_every_bit(field):
    data = pumice.compress(field, rel=1e-3, stable=True)
    assert pumice.info(data)["stable"] and not pumice.info(pumice.compress(field, rel=1e-3))["stable"]
    once = pumice.decompress(data)
    bound = pumice.info(data)["abs_bound"]
    for preset in pumice.PRESETS:
        again = pumice.compress(once, abs=bound, stable=True, preset=preset)
        assert pumice.decompress(again).tobytes() == once.tobytes()
    # The range of the copy differs.
    assert pumice.decompress(pumice.compress(once, rel=1e-3, stable=True)).tobytes() == once.tobytes()
    with pytest.raises(pumice.InvalidArgumentError, match="stable mode"):
        pumice.compress(field, pwrel=1e-3, stable=True)
    pumice.compress(field, pwrel=1e-3, stable="auto")
    with pytest.raises(pumice.InvalidArgumentError, match="stable must be True, False or 'auto'"):
        pumice.compress(field, abs=1, stable="on")
