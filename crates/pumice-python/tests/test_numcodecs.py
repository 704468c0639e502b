"""The codec for numcodecs, by the helpers that numcodecs tests its own codecs with, and in Zarr's format 2."""

import itertools
import json

import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs.tests import common

import pumice
from pumice.numcodecs import Pumice

CODECS = [
    Pumice(lossless=True),
    Pumice(abs=1e-5),
    Pumice(abs=1e-5, preset="fast"),
    Pumice(abs=1e-5, preset="balanced", fill_value=float("nan")),
    Pumice(rel=1e-8, value_range=(0.0, 1e3)),
    Pumice(pwrel=1e-9),
    Pumice(psnr=150),
    Pumice(l2=1e-5),
]
PRECISIONS = [None, 4, 4, 4, 4, 4, 4, 4]

# As in numcodecs' own tests of zfpy and others, which take floating-point arrays alone.
ARRAYS = [
    np.linspace(1000, 1001, 1000, dtype="f4"),
    np.linspace(1000, 1001, 1000, dtype="f8"),
    np.random.default_rng(1).normal(loc=1000, scale=1, size=(100, 10)),
    np.random.default_rng(2).normal(loc=1000, scale=1, size=(10, 10, 10)),
    np.random.default_rng(3).normal(loc=1000, scale=1, size=(2, 5, 10, 10)),
    np.asfortranarray(np.random.default_rng(4).normal(loc=1000, scale=1, size=(5, 10, 20))),
    np.random.default_rng(5).normal(loc=1000, scale=1, size=(30, 20)).astype(">f4"),
    np.asfortranarray(np.random.default_rng(6).normal(loc=1000, scale=1, size=(30, 20)).astype(">f8")),
]


@pytest.mark.parametrize(("array", "codec"), list(itertools.product(ARRAYS, zip(CODECS, PRECISIONS, strict=True))))
def test_encode_decode(array, codec):
    codec, precision = codec
    # Some of the helper's buffers have no type: that is what `dtype` is for. Of those, F order is lost as well.
    with_dtype = Pumice(dtype=array.dtype, **{k: v for k, v in codec.get_config().items() if k != "id"})
    if precision is not None and array.dtype.itemsize == 4:
        precision = 3  # half a step of float32 at 1000 is 3e-5
    common.check_encode_decode(array, with_dtype, precision=precision)


@pytest.mark.parametrize("array", ARRAYS)
def test_encode_decode_array(array):
    common.check_encode_decode_array(array, CODECS[0])


OTHERS = [
    Pumice(ratio=3, dtype=">f4", chunk_shape=[2, 3], attributes={"a": "b"}),
    Pumice(rel=np.float32(0.5), chunk_shape=np.array([2, 3]), value_range=np.array([0, 1]), fill_value=np.float64("inf")),
]


@pytest.mark.parametrize("codec", [*CODECS, *OTHERS])
def test_config_and_repr(codec):
    common.check_config(codec)
    json.dumps(codec.get_config(), allow_nan=False)
    common.Pumice = Pumice  # where the helper evaluates
    common.check_repr(repr(codec))


def test_backwards_compatibility(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # writes fixtures, then reads them
        common.check_backwards_compatibility(Pumice.codec_id, ARRAYS[:6], CODECS, precision=[None] + [3] * 7)


def test_errors():
    common.check_err_encode_object_buffer(CODECS[0])
    data = CODECS[0].encode(ARRAYS[0])
    with pytest.raises(TypeError):
        CODECS[0].decode(data, out=np.empty(1000, dtype=object))
    with pytest.raises(TypeError, match="dtype"):
        CODECS[0].encode(b"12345678")
    with pytest.raises(TypeError, match="integers"):
        CODECS[0].encode(np.arange(10))
    with pytest.raises(ValueError, match="no error bound"):
        Pumice()
    with pytest.raises(ValueError, match="not a Pumice"):
        CODECS[0].decode(bytes(1000))
    with pytest.raises(TypeError, match="absolute"):
        numcodecs.get_codec({"id": "pumice", "absolute": 1})


@pytest.mark.parametrize("dtype", ["float32", None])
def test_arrays_of_bytes_are_refused_whatever_dtype_says(field, dtype):
    """`dtype` is for buffers: what a filter such as Shuffle makes of values must not be taken for values."""
    codec = Pumice(abs=1e-2, dtype=dtype)
    for array in np.zeros(8, "i1"), np.zeros(8, "u1"), np.zeros(8, "?"):
        with pytest.raises(TypeError, match=rf"arrays of {array.dtype} .*leave out filters .*such as Shuffle"):
            codec.encode(array)
    for filters in [numcodecs.Shuffle(4)], [numcodecs.PackBits()]:
        z = zarr.create_array({}, shape=field.shape, dtype="f4", zarr_format=2, filters=filters, compressors=codec)
        with pytest.raises(TypeError, match="leave out filters"):
            z[:] = field
    with pytest.raises(TypeError, match="leave out filters"):
        Pumice(abs=1e-2).encode(b"12345678")
    values = np.linspace(0, 1, 1000, dtype="f4")
    codec = Pumice(abs=1e-2, dtype="float32")
    for buffer in values.tobytes(), bytearray(values), memoryview(values.tobytes()), memoryview(values).cast("B"):
        assert np.abs(codec.decode(codec.encode(buffer)) - values).max() <= 1e-2


def test_threads_are_not_part_of_the_metadata():
    assert "threads" not in Pumice(abs=1, threads=4).get_config()
    assert Pumice(abs=1, threads=4) == Pumice(abs=1)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_zarr_format_2(field, tmp_path, order, dtype):
    x = field.astype(dtype)
    z = zarr.create_array(
        tmp_path / "x.zarr", shape=x.shape, chunks=(16, 20, 50), dtype=dtype, order=order, zarr_format=2,
        compressors=Pumice(abs=1e-3),
    )
    z[:] = x
    z[3:7, 5] = 2 * x[3:7, 5]
    x[3:7, 5] *= 2
    again = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert again.dtype == np.dtype(dtype)
    # Each value keeps the bound of its own write.
    assert np.max(np.abs(again[:].astype("f8") - x.astype("f8"))) <= 1e-3
    stored = json.loads((tmp_path / "x.zarr" / ".zarray").read_text())
    assert stored["compressor"] == {"id": "pumice", "abs": 1e-3}


def test_damaged_chunks_raise_with_our_message(field, tmp_path):
    z = zarr.create_array(
        tmp_path / "x.zarr", shape=field.shape, chunks=field.shape, dtype="f4", zarr_format=2,
        compressors=Pumice(abs=1e-3),
    )
    z[:] = field
    chunk = tmp_path / "x.zarr" / "0.0.0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(pumice.CorruptError, match="checksum"):
        z[:]


def test_the_stable_mode_is_automatic_unless_given():
    noise = np.random.default_rng(7).normal(size=(60, 70)).astype("f4")
    codec = Pumice(abs=0.01)
    once = codec.decode(codec.encode(noise))
    assert codec.decode(codec.encode(once)).tobytes() == once.tobytes()
    assert codec.encode(noise) == pumice.compress(noise, abs=0.01, stable="auto", threads=1)
    assert Pumice(abs=0.01, stable=False).get_config() == {"id": "pumice", "abs": 0.01, "stable": False}
    assert Pumice(abs=0.01, stable=False).encode(noise) == pumice.compress(noise, abs=0.01)
    assert pumice.info(Pumice(abs=0.01, stable=True).encode(noise))["stable"]
