"""Chunks that are written past HDF5's filters, and virtual datasets over the files of several writers."""

import shutil

import numpy as np
import pytest

import pumice

h5py = pytest.importorskip("h5py")

SHAPE, CHUNKS = (45, 33, 20), (16, 11, 20)
Z, Y, X = np.meshgrid(*(np.arange(n, dtype="f8") for n in SHAPE), indexing="ij")
FIELD = 10 * np.sin(Z / 9) + np.cos(Y / 5) * np.sin(X / 3) + 0.003 * ((7 * Z + 5 * Y + 3 * X) % 11)


def field(dtype, fill):
    """With NaN, infinities and fill values."""
    data = FIELD.astype(dtype)
    data[3, 4, 5:8], data[40, 30, 2], data[41, 31, 3] = np.nan, np.inf, -np.inf
    if fill is not None:
        data[20:25, :11] = fill
    return data


def stored(dataset):
    """The bytes of each chunk, with its filter mask."""
    infos = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
    return {tuple(info.chunk_offset): dataset.id.read_direct_chunk(info.chunk_offset) for info in infos}


def create(file, name, dtype="<f4", fill=None, **options):
    options = {"chunks": CHUNKS, "fillvalue": fill, **pumice.hdf5(rel=1e-3), **options}
    return file.create_dataset(name, SHAPE, dtype, **options)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("fill", [None, -9999.0, float("nan")])
@pytest.mark.parametrize("shuffle", [False, True])
def test_chunks_have_the_bytes_of_the_filter(tmp_path, dtype, fill, shuffle):
    # Nothing is read here through the filter, which would remember the values and keep their bits.
    data = field(dtype, fill)
    with h5py.File(tmp_path / "t.h5", "w") as file:
        through = create(file, "through", dtype, fill, shuffle=shuffle)
        through[...] = data
        file.flush()
        for threads in (1, 3):
            direct = create(file, f"direct{threads}", dtype, fill, shuffle=shuffle)
            pumice.hdf5.write_chunks(direct, data, threads=threads)
            assert stored(direct) == stored(through)
            assert len(stored(direct)) == 9


def test_parameters_that_h5py_cuts_off(tmp_path):
    """h5py gives the first 16 of a filter's parameters; these have up to 27."""
    data = 1.03 * FIELD.reshape(9, 5, 33, 20)
    for n, options in enumerate(
        [
            {"rel": 1e-3, "value_range": (-12.0, 12.0), "fill_value": [1.0, 2.0, 3.0, 4.0]},
            {"rel": 1e-3, "value_range": (-12.0, 12.0)},
            {"abs": 1e-3, "fill_value": [1.0, 2.0]},
            {"lossless": True},
        ]
    ):
        with h5py.File(tmp_path / f"{n}.h5", "w") as file:
            kept = {"chunks": (2, 3, 20, 20), "fillvalue": -5.5, **pumice.hdf5(**options)}
            through = file.create_dataset("through", data.shape, "f8", **kept)
            direct = file.create_dataset("direct", data.shape, "f8", **kept)
            through[...] = data * (1 + n / 100)
            pumice.hdf5.write_chunks(direct, data * (1 + n / 100))
            assert stored(direct) == stored(through)


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
@pytest.mark.parametrize("fill", [None, -9999.0])
def test_the_bound_holds(tmp_path, dtype, fill):
    data = field(dtype, fill)
    with h5py.File(tmp_path / "t.h5", "w") as file:
        pumice.hdf5.write_chunks(create(file, "t", dtype, fill), data)
    with h5py.File(tmp_path / "t.h5") as file:
        restored = file["t"][...]
    exact = ~np.isfinite(data) | (data == fill)
    np.testing.assert_array_equal(restored[exact], data[exact])
    values = data[~exact].astype("f8")
    assert np.abs(restored[~exact] - values).max() <= 1e-3 * (values.max() - values.min())


def test_boxes_and_datasets_that_grow(tmp_path):
    data = FIELD.astype("f4")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        whole, pieces = create(file, "whole"), create(file, "pieces")
        pumice.hdf5.write_chunks(whole, data)
        # Other byte orders and strides are converted.
        pumice.hdf5.write_chunks(pieces, data[32:, 11:].astype(">f4"), (32, 11, 0))
        pumice.hdf5.write_chunks(pieces, np.asfortranarray(data[:32, :22]))
        pumice.hdf5.write_chunks(pieces, data[:32, 22:], (0, 22, 0))
        pumice.hdf5.write_chunks(pieces, data[32:, :11], (32, 0, 0))
        pumice.hdf5.write_chunks(pieces, data[:0])
        assert stored(pieces) == stored(whole)
        steps = file.create_dataset("steps", (0, 20), "f4", maxshape=(None, 20), chunks=(1, 20), **pumice.hdf5(abs=1e-3))
        for step in range(3):
            steps.resize(step + 1, 0)
            pumice.hdf5.write_chunks(steps, data[0, step : step + 1], (step, 0))
        assert np.abs(steps[...] - data[0, :3]).max() <= 1e-3


def test_what_cannot_be_written_directly_is_refused(tmp_path):
    data = FIELD.astype("f4")
    with h5py.File(tmp_path / "t.h5", "w") as file:
        dataset = create(file, "t")
        for array, start, message in [
            (data[1:], (1, 0, 0), "borders of chunks"),
            (data[:17], None, "borders of chunks"),
            (data, (16, 0, 0), "does not fit"),
            (data[:16], (-16, 0, 0), "does not fit"),
            (data[0], None, "as many axes"),
            (data, (0, 0), "as many axes"),
            (data.astype("f8"), None, "may round"),
            (data.astype("i2"), None, "float64|may round"),
        ]:
            with pytest.raises(pumice.InvalidArgumentError, match=message):
                pumice.hdf5.write_chunks(dataset, array, start)
        with pytest.raises(pumice.InvalidArgumentError, match="threads"):
            pumice.hdf5.write_chunks(dataset, data, threads=0)
        assert stored(dataset) == {}
        for name, options in [("contiguous", {}), ("plain", {"chunks": CHUNKS}), ("gzip", {"compression": "gzip"})]:
            other = file.create_dataset(name, SHAPE, "f4", **options)
            with pytest.raises(pumice.InvalidArgumentError, match="no Pumice filter"):
                pumice.hdf5.write_chunks(other, data)
        dcpl = dataset.id.get_create_plist()
        dcpl.set_deflate(1)
        h5py.h5d.create(file.id, b"after", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(SHAPE), dcpl)
        with pytest.raises(pumice.UnsupportedError, match="deflate"):
            pumice.hdf5.write_chunks(file["after"], data)
        unreachable = file.create_dataset("r", SHAPE, "f4", chunks=CHUNKS, **pumice.hdf5(ratio=1e6))
        with pytest.raises(pumice.PumiceError):
            pumice.hdf5.write_chunks(unreachable, np.random.default_rng(1).normal(size=SHAPE).astype("f4"))


def write_parts(folder):
    """A file for each of three writers, whose parts are not equally large."""
    data = field("<f4", -9999.0)
    for i, (first, end) in enumerate([(0, 16), (16, 32), (32, 45)]):
        with h5py.File(folder / f"part{i}.h5", "w") as file:
            # Only what can grow may be smaller than a chunk.
            options = {"maxshape": (None, *SHAPE[1:]), "chunks": CHUNKS, "fillvalue": -9999.0, **pumice.hdf5(rel=1e-3)}
            part = file.create_dataset("t", (end - first, *SHAPE[1:]), "f4", **options)
            part.attrs["units"] = "K"
            pumice.hdf5.write_chunks(part, data[first:end])
    return data


def join(folder, parts=(0, 1, 2), starts=(0, 16, 32), **options):
    files = [h5py.File(folder / f"part{i}.h5") for i in parts]
    try:
        with h5py.File(folder / "joint.h5", "w") as joint:
            sources = [(file["t"], (start, 0, 0)) for file, start in zip(files, starts)]
            pumice.hdf5.virtual(joint, "t", sources, **options)
    finally:
        for file in files:
            file.close()


def test_a_virtual_dataset_reads_as_one(tmp_path):
    written = tmp_path / "written"
    written.mkdir()
    data = write_parts(written)
    with h5py.File(tmp_path / "whole.h5", "w") as file:
        pumice.hdf5.write_chunks(create(file, "t", fill=-9999.0), data)
    join(written)
    moved = shutil.move(written, tmp_path / "moved")
    with h5py.File(moved / "joint.h5") as joint, h5py.File(tmp_path / "whole.h5") as whole:
        assert joint["t"].is_virtual
        assert joint["t"].attrs["units"] == "K"
        np.testing.assert_array_equal(joint["t"][...], whole["t"][...])
        np.testing.assert_array_equal(joint["t"][14:40, 3, 5:9], whole["t"][14:40, 3, 5:9])
    with h5py.File(moved / "joint.h5") as joint:
        expected = joint["t"][...]
    netcdf4 = pytest.importorskip("netCDF4")
    with netcdf4.Dataset(moved / "joint.h5") as joint:
        joint.set_auto_mask(False)
        np.testing.assert_array_equal(joint["t"][...], expected)


def test_gaps_and_overlaps_of_a_virtual_dataset(tmp_path):
    write_parts(tmp_path)
    join(tmp_path, parts=(0, 2), starts=(0, 32))
    with h5py.File(tmp_path / "joint.h5") as joint:
        assert (joint["t"][16:32] == -9999.0).all()
    join(tmp_path, parts=(0, 2), starts=(0, 32), fill_value=5.0)
    with h5py.File(tmp_path / "joint.h5") as joint:
        assert (joint["t"][16:32] == 5.0).all()
    with pytest.raises(pumice.InvalidArgumentError, match="overlap"):
        join(tmp_path, starts=(0, 15, 32))
    with pytest.raises(pumice.InvalidArgumentError, match="cannot start"):
        join(tmp_path, starts=(-1, 16, 32))
    with pytest.raises(pumice.InvalidArgumentError, match="at least one"):
        join(tmp_path, parts=())
