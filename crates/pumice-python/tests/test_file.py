"""save and open: files that are read in part."""

import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given, settings

import pumice

SHAPE, CHUNKS = (48, 30, 96), (16, 10, 32)
VALUES = np.arange(np.prod(SHAPE), dtype="float64").reshape(SHAPE)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "x.pum"
    pumice.save(path, VALUES, lossless=True, chunk_shape=CHUNKS)
    return path


def test_save_reports_what_it_did(field, tmp_path):
    report = pumice.save(tmp_path / "x.pum", field, psnr=70)
    assert report["raw_bytes"] == field.nbytes
    assert report["compressed_bytes"] == os.path.getsize(tmp_path / "x.pum")
    assert report["target"]["value"] >= 70
    assert pumice.check(field, tmp_path / "x.pum")["psnr"] >= 70
    assert (tmp_path / "x.pum").read_bytes() == pumice.compress(field, psnr=70)


def test_a_slice_decodes_only_the_chunks_that_it_touches(path):
    f = pumice.open(path)
    assert np.array_equal(f[0:4, :, 7], VALUES[0:4, :, 7])
    assert f.chunks_decoded == 3  # of 27
    assert f[47, 29, 95] == VALUES[47, 29, 95]
    assert f.chunks_decoded == 4
    assert np.array_equal(f[::32, 0, 0], VALUES[::32, 0, 0])
    assert f.chunks_decoded == 6  # the chunks in between are skipped
    assert f[3:3].shape == (0, 30, 96)
    assert f.chunks_decoded == 6


@settings(max_examples=300, deadline=None)
@given(key=npst.basic_indices(SHAPE, allow_newaxis=True))
def test_any_basic_index_is_that_of_numpy(path, key):
    found = pumice.open(path)[key]
    assert (np.shape(found), type(found)) == (VALUES[key].shape, type(VALUES[key]))
    assert np.array_equal(found, VALUES[key])


@pytest.mark.parametrize("key", [(0, 0, 0, 0), 48, -49, (..., ...), [0, 1], 1.5, True, VALUES > 0])
def test_other_indices_are_refused(path, key):
    with pytest.raises(IndexError) as raised:
        pumice.open(path)[key]
    assert len(str(raised.value)) < 200


def test_an_array_without_axes(tmp_path):
    pumice.save(tmp_path / "x.pum", np.float32(3), lossless=True)
    f = pumice.open(tmp_path / "x.pum")
    assert (f[()], type(f[()]), f[...].shape, f[None].shape) == (3, np.float32, (), (1,))
    with pytest.raises(TypeError, match="length"):
        len(f)


def test_a_file_looks_like_an_array(path):
    f = pumice.open(path)
    assert (f.shape, f.dtype, f.ndim, f.size, f.nbytes, f.chunks) == (SHAPE, np.float64, 3, 138240, 1105920, CHUNKS)
    assert len(f) == 48
    assert np.array_equal(np.asarray(f), VALUES)
    assert np.asarray(f, "float32").dtype == np.float32
    assert np.array_equal(np.stack(list(f)), VALUES)
    assert "x.pum" in repr(f) and "(48, 30, 96)" in repr(f)
    assert np.array_equal(pickle.loads(pickle.dumps(f))[2], VALUES[2])


def test_a_file_is_found_from_other_folders(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    f = pumice.open(path.name)
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(pickle.dumps(f)).shape == SHAPE
    assert pumice.info(f) == f.info
    assert pumice.check(VALUES, f)["bound_kept"]


def test_reading_a_closed_file_is_an_error(path):
    with pumice.open(path) as f:
        f[0]
    assert f.chunks_decoded == 9
    with pytest.raises(ValueError, match="closed"):
        f[0]


def test_several_threads_read_one_file(path):
    f = pumice.open(path, threads=2)
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda i: f[i % 48], range(48)))
    assert all(np.array_equal(row, VALUES[i % 48]) for i, row in enumerate(rows))


def test_missing_damaged_and_foreign_files(path, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pumice.open(tmp_path / "nowhere.pum")
    with pytest.raises(FileNotFoundError, match="folder"):
        pumice.save(tmp_path / "none" / "x.pum", VALUES, abs=1)
    for call in (pumice.open, lambda path: pumice.save(path, VALUES, abs=1)):
        with pytest.raises(TypeError, match="a path is text"):
            call(path.read_bytes())
    (tmp_path / "text").write_text("hello " * 100)
    with pytest.raises(pumice.CorruptError, match="text"):
        pumice.open(tmp_path / "text")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(pumice.CorruptError, match="chunk"):
        pumice.open(tmp_path / "damaged")[...]


def test_the_limit_holds_for_each_read(path):
    f = pumice.open(path, max_bytes=100_000)
    assert f[0].shape == (30, 96)
    with pytest.raises(MemoryError, match="read a part"):
        f[...]
