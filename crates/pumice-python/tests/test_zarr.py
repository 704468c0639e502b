"""The codec for Zarr's format 3, with Zarr's own test buffers, stores and strategies."""

import json
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from zarr.core.buffer import BufferPrototype
from zarr.storage import LocalStore
from zarr.testing.buffer import NDBufferUsingTestNDArrayLike, StoreExpectingTestBuffer, TestBuffer
from zarr.testing.strategies import basic_indices, chunk_shapes, numpy_arrays, orthogonal_indices

import pumice
from pumice.zarr import PumiceCodec


def create(store, array, chunks, codec, **options):
    z = zarr.create_array(
        store, shape=array.shape, chunks=chunks, dtype=array.dtype, serializer=codec, compressors=None, **options
    )
    z[...] = array
    return z


@pytest.mark.parametrize(
    "options",
    [
        {"abs": 1e-3},
        {"rel": 1e-4, "value_range": (-1.5, 1.5)},
        {"pwrel": 1e-2},
        {"psnr": 70.0},
        {"l2": 0.1},
        {"ratio": 8.0},
        {"abs": 1e-3, "preset": "fast", "fill_value": float("nan")},
        {"lossless": True, "chunk_shape": (8, 20, 50)},
    ],
)
def test_every_bound_reaches_zarr_and_its_metadata(field, tmp_path, options):
    create(tmp_path / "x", field, (20, 60, 50), PumiceCodec(**options))
    metadata = json.loads((tmp_path / "x" / "zarr.json").read_text())
    (stored,) = metadata["codecs"]
    assert stored["name"] == "pumice"
    again = zarr.open_array(tmp_path / "x", mode="r")
    found = again[...]
    (codec,) = again.metadata.codecs
    assert codec == PumiceCodec(**options)
    for rows in (slice(0, 20), slice(20, 40)):  # the chunks
        x, y = field[rows], found[rows]
        if options.get("lossless"):
            assert np.array_equal(x, y)
        elif "psnr" in options:
            assert pumice.check(x, y)["psnr"] >= 70
        elif "l2" in options:
            assert pumice.check(x, y)["l2_norm"] <= 0.1
        elif "ratio" in options:
            assert (tmp_path / "x" / "c" / str(rows.start // 20) / "0" / "0").stat().st_size <= x.nbytes / 8
        else:
            bound = {"pwrel": 1e-2} if "pwrel" in options else {"abs": options.get("abs", 3e-4)}
            assert pumice.check(x, y, **bound)["bound_kept"]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["<f4", ">f4", "<f8", ">f8"]))
def test_arrays_and_indices_of_zarrs_own_strategies(data, dtype):
    shapes = st.lists(st.integers(1, 8), max_size=4).map(tuple)
    array = data.draw(numpy_arrays(shapes=shapes, dtype=np.dtype(dtype)))
    chunks = data.draw(chunk_shapes(shape=array.shape))
    z = create({}, array, chunks, PumiceCodec(lossless=True))
    np.testing.assert_array_equal(z[...], array)
    key = data.draw(basic_indices(shape=array.shape))
    np.testing.assert_array_equal(z[key], array[key])
    if array.ndim:
        zarr_key, numpy_key = data.draw(orthogonal_indices(shape=array.shape))
        np.testing.assert_array_equal(z.oindex[zarr_key], array[numpy_key])
        new = data.draw(numpy_arrays(shapes=st.just(array[key].shape), dtype=np.dtype(dtype)))
        z[key] = new
        array[key] = new
        np.testing.assert_array_equal(z[...], array)
        mask = data.draw(st.lists(st.booleans(), min_size=array.size, max_size=array.size))
        mask = np.array(mask).reshape(array.shape)
        np.testing.assert_array_equal(z.vindex[mask], array[mask])


def test_custom_buffers(field):
    """As Zarr's own test of other memory than NumPy's."""
    store = StoreExpectingTestBuffer()
    prototype = BufferPrototype(buffer=TestBuffer, nd_buffer=NDBufferUsingTestNDArrayLike)
    z = zarr.create_array(
        store, shape=field.shape, chunks=(20, 30, 50), dtype="f4", serializer=PumiceCodec(abs=1e-3), compressors=None
    )
    z.set_basic_selection(slice(None), field, prototype=prototype)
    found = z.get_basic_selection(slice(5, 25), prototype=prototype)
    assert np.max(np.abs(found - field[5:25])) <= 1e-3


class CountingStore(LocalStore):
    """Counts what is read of chunks."""

    n_bytes = 0

    async def get(self, key, prototype=None, byte_range=None):
        found = await super().get(key, prototype, byte_range)
        if found is not None and "json" not in key:
            self.n_bytes += len(found)
        return found


@pytest.fixture
def noise():
    """Values that hardly shrink, so that chunks are large."""
    return np.random.default_rng(3).normal(size=(16, 256, 256))


def test_a_part_of_a_chunk_reads_and_decodes_only_what_it_touches(noise, tmp_path):
    codec = PumiceCodec(lossless=True, preset="fast", chunk_shape=(2, 256, 256))
    create(tmp_path / "x", noise, noise.shape, codec)
    size = (tmp_path / "x" / "c" / "0" / "0" / "0").stat().st_size
    store = CountingStore(tmp_path / "x", read_only=True)
    z = zarr.open_array(store, mode="r")
    assert np.array_equal(z[13, 3], noise[13, 3])
    assert size / 8 < store.n_bytes < size / 6  # one of eight parts, and their index
    store.n_bytes = 0
    assert np.array_equal(z[...], noise)
    assert store.n_bytes == size


def test_parts_of_more_chunks_than_there_are_threads(tmp_path):
    """Reading waits for the store, which needs threads of its own."""
    x = np.random.default_rng(4).normal(size=(48, 1 << 18))
    codec = PumiceCodec(lossless=True, preset="fast", chunk_shape=(1, 1 << 16))
    z = create(tmp_path / "x", x, (1, 1 << 18), codec)
    assert np.array_equal(z[:, 7], x[:, 7])
    assert np.array_equal(z.oindex[[0, 47], [3, 99_999]], x[np.ix_([0, 47], [3, 99_999])])
    (tmp_path / "x" / "c" / "5" / "0").unlink()
    z = zarr.open_array(tmp_path / "x", mode="r")
    assert np.array_equal(z[4:7, 3], [x[4, 3], 0, x[6, 3]])
    (tmp_path / "x" / "c" / "5" / "0").write_bytes(b"something else" * 100_000)
    with pytest.raises(ValueError, match="not a Pumice"):
        z[4:7, 3]


def test_with_other_codecs(field, tmp_path):
    """After a transposition, before a checksum, and within shards."""
    z = zarr.create_array(
        tmp_path / "x", shape=field.shape, chunks=(10, 30, 50), shards=(20, 60, 50), dtype="f4",
        filters=[zarr.codecs.TransposeCodec(order=(2, 1, 0))], serializer=PumiceCodec(abs=1e-3),
        compressors=[zarr.codecs.Crc32cCodec()],
    )
    z[...] = field
    again = zarr.open_array(tmp_path / "x", mode="r")
    assert np.max(np.abs(again[...] - field)) <= 1e-3
    assert np.max(np.abs(again[3:5, 31, ::7] - field[3:5, 31, ::7])) <= 1e-3


def test_empty_chunks_are_fill_values(tmp_path):
    z = zarr.create_array(
        tmp_path / "x", shape=(40, 50), chunks=(20, 50), dtype="f8", fill_value=-1.0,
        serializer=PumiceCodec(abs=1e-3), compressors=None,
    )
    z[20:] = 3.0
    assert np.all(z[:20] == -1.0)
    assert np.all(np.abs(z[20:] - 3) <= 1e-3)
    assert not (tmp_path / "x" / "c" / "0" / "0").exists()


def test_wrong_types_and_options_are_refused_early():
    with pytest.raises(TypeError, match="float32 and float64, not int64"):
        zarr.create_array({}, shape=(4,), dtype="i8", serializer=PumiceCodec(abs=1), compressors=None)
    with pytest.raises(ValueError, match="no error bound"):
        PumiceCodec()
    with pytest.raises(TypeError, match="absolute"):
        PumiceCodec(absolute=1)
    with pytest.raises(ValueError, match="attributes"):
        PumiceCodec(abs=1, attributes={"units": "K"})


def test_codecs_can_be_compared_hashed_and_sent_elsewhere():
    codec = PumiceCodec(abs=1, chunk_shape=[2, 3], threads=3)
    assert codec == PumiceCodec.from_dict(codec.to_dict()) == pickle.loads(pickle.dumps(codec))
    assert len({codec, PumiceCodec(abs=1, chunk_shape=(2, 3)), PumiceCodec(abs=2)}) == 2


def test_damaged_chunks_raise_with_our_message(field, tmp_path):
    create(tmp_path / "x", field, field.shape, PumiceCodec(abs=1e-3))
    chunk = tmp_path / "x" / "c" / "0" / "0" / "0"
    good = chunk.read_bytes()
    z = zarr.open_array(tmp_path / "x", mode="r")
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    for data, error, message in [
        (damaged, pumice.CorruptError, "checksum"),
        (good[: len(good) // 2], pumice.TruncatedError, "."),
        (b"something else" * 10, ValueError, "not a Pumice"),
        (pumice.compress(field[1:], abs=1e-3), pumice.CorruptError, "metadata"),
    ]:
        chunk.write_bytes(data)
        with pytest.raises(error, match=message):
            z[...]
        with pytest.raises(error, match=message):
            z[0, 0, 0]
    chunk.write_bytes(good)
    assert z[0, 0, 0] == pytest.approx(field[0, 0, 0], abs=1e-3)
    # As docs/hdf5.md says: without the object, what it held is the fill value.
    chunk.unlink()
    assert z[0, 0, 0] == z.fill_value
