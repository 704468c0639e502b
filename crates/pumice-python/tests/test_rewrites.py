"""Copies, appends and writes of parts, through every layer: each value stays within the bound of its own write, and values
that were not changed keep their bits. Random sequences of such steps: test_histories.py.
"""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pumice
from pumice.numcodecs import Pumice

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")
xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")

from pumice.zarr import PumiceCodec  # noqa: E402  (zarr may be missing)

BOUND = 0.05


def waves(shape, seed=0):
    """A smooth field with noise of a few bounds."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij")
    smooth = sum(np.sin((k + 1) * axis + seed) for k, axis in enumerate(axes))
    return (10 * smooth + 0.1 * rng.normal(size=shape)).astype("f4")


def tool(*arguments):
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed (Debian: hdf5-tools, netcdf-bin)")
    environment = {**os.environ, "HDF5_PLUGIN_PATH": pumice.hdf5_plugin_path()}
    subprocess.run([str(argument) for argument in arguments], check=True, env=environment, timeout=120)


def same(a, b):
    return a.tobytes() == b.tobytes()


# ---- Ten copies ----


@pytest.mark.parametrize("bound", [{"abs": BOUND}, {"rel": 1e-3}])
@pytest.mark.parametrize("preset", ["small", "max", "fast"])
def test_ten_copies_by_h5py(tmp_path, bound, preset):
    data = waves((24, 40, 50))
    options = {"chunks": (8, 40, 25), **pumice.hdf5(**bound, preset=preset)}
    with h5py.File(tmp_path / "0.h5", "w") as file:
        first = file.create_dataset("t", data=data, **options).id.get_storage_size()
    with h5py.File(tmp_path / "0.h5") as file:
        restored = file["t"][...]
    for i in range(10):
        with h5py.File(tmp_path / f"{i}.h5") as source, h5py.File(tmp_path / f"{i + 1}.h5", "w") as file:
            copied = file.create_dataset("t", data=source["t"][...], **options)
            assert copied.id.get_storage_size() <= 1.01 * first
        with h5py.File(tmp_path / f"{i + 1}.h5") as file:
            assert same(file["t"][...], restored)


def test_ten_copies_by_nccopy_and_h5repack(tmp_path):
    data = waves((24, 40, 50))
    with h5py.File(tmp_path / "0.nc", "w") as file:
        for name, n in zip("zyx", data.shape):
            file[name] = np.arange(float(n))
            file[name].make_scale(name)
        t = file.create_dataset("t", data=data, chunks=(8, 40, 25), **pumice.hdf5(abs=BOUND))
        for axis, name in enumerate("zyx"):
            t.dims[axis].attach_scale(file[name])
    with h5py.File(tmp_path / "0.nc") as file:
        restored = file["t"][...]
    for i in range(10):
        tool("nccopy", tmp_path / f"{i}.nc", tmp_path / f"{i + 1}.nc")
    tool("h5repack", tmp_path / "10.nc", tmp_path / "11.nc")
    # h5repack copies chunks as they are, unless it has to apply a filter.
    filters = pumice.hdf5.parameters(abs=BOUND)
    for i in range(11, 15):
        chosen = f"t:UD={pumice.hdf5.FILTER_ID},0,{len(filters)},{','.join(map(str, filters))}"
        tool("h5repack", "-f", chosen, tmp_path / f"{i}.nc", tmp_path / f"{i + 1}.nc")
    with h5py.File(tmp_path / "15.nc") as file:
        assert same(file["t"][...], restored)
        assert np.abs(data - restored).max() <= BOUND


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_ten_copies_by_zarr(zarr_format):
    data = waves((24, 40, 50))
    source = create_zarr(data.shape, (8, 40, 25), zarr_format, abs=BOUND)
    source[...] = data
    restored = source[...]
    for _ in range(10):
        copy = create_zarr(data.shape, (8, 40, 25), zarr_format, abs=BOUND)
        copy[...] = source[...]
        source = copy
    assert same(source[...], restored)


def create_zarr(shape, chunks, zarr_format, **options):
    if zarr_format == 2:
        codec = {"compressors": [Pumice(**options)], "filters": None}
    else:
        codec = {"compressors": None, "serializer": PumiceCodec(**options)}
    return zarr.create_array({}, shape=shape, chunks=chunks, dtype="f4", zarr_format=zarr_format, **codec)


# ---- Appends, step by step, each into chunks of several steps ----

STEPS = 30


def check_steps(found, data):
    assert found.shape == data.shape
    assert np.abs(found.astype("f8") - data.astype("f8")).max() <= BOUND


def test_appends_by_h5py(tmp_path):
    data = waves((STEPS, 40, 50))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(
            "t", (0, 40, 50), "f4", maxshape=(None, 40, 50), chunks=(10, 40, 50), **pumice.hdf5(abs=BOUND)
        )
    for step in range(STEPS):
        with h5py.File(tmp_path / "a.h5", "a") as file:
            file["t"].resize(step + 1, axis=0)
            file["t"][step] = data[step]
            seen = file["t"][...]
        with h5py.File(tmp_path / "a.h5") as file:
            assert same(file["t"][:step], seen[:step])
    with h5py.File(tmp_path / "a.h5") as file:
        check_steps(file["t"][...], data)
        # Apart from each other, steps of one chunk cost a little more than together.
        assert file["t"].id.get_storage_size() < 1.6 * len(pumice.compress(data, abs=BOUND, chunk_shape=(10, 40, 50)))


def test_appends_by_netcdf4(tmp_path):
    data = waves((STEPS, 40, 50))
    create_netcdf(tmp_path / "a.nc", data.shape)
    for step in range(STEPS):
        with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
            file["t"][step] = data[step]
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        check_steps(np.asarray(file["t"][...]), data)


def create_netcdf(path, shape):
    """A file of NetCDF-4 without time steps, to which the NetCDF library can append."""
    # It appends to files that know the order of their variables.
    with h5py.File(path, "w", track_order=True) as file:
        for name, n, most in (("time", 0, None), ("y", shape[1], shape[1]), ("x", shape[2], shape[2])):
            scale = file.create_dataset(name, (n,), "f8", maxshape=(most,), chunks=True)
            scale.make_scale(name)
        sizes = {"maxshape": (None, *shape[1:]), "chunks": (10, *shape[1:])}
        t = file.create_dataset("t", (0, *shape[1:]), "f4", **sizes, **pumice.hdf5(abs=BOUND))
        for axis, name in enumerate(("time", "y", "x")):
            t.dims[axis].attach_scale(file[name])


APPEND = {
    "h5py": """
with h5py.File(path, "a") as file:
    file["t"].resize(step + 1, axis=0)
    file["t"][step] = data
""",
    "h5netcdf": """
with h5netcdf.File(path, "a") as file:
    file.resize_dimension("time", step + 1)
    file["t"][step] = data
""",
    "netCDF4": """
with netCDF4.Dataset(path, "a") as file:
    file["t"][step] = data
""",
}


# With `HDF5_PLUGIN_PATH` alone, the NetCDF library loads the plugins of a file that it opens.
ORDERS = [(package, order) for package in APPEND for order in ("pumice, {}", "{}, pumice")] + [("netCDF4", "{}")]


@pytest.mark.parametrize(("package", "order"), ORDERS)
def test_appends_by_one_process_for_each_step(tmp_path, package, order):
    """HDF5 does not look for a plugin when it writes to a dataset that was there before, and h5py would store the chunk as it is:
    the filter must be registered, whether it is imported before or after the library is loaded.
    """
    pytest.importorskip(package)
    n_steps, path = 4, tmp_path / "a.nc"
    data = waves((n_steps, 60, 70))
    np.save(tmp_path / "data.npy", data)
    create_netcdf(path, data.shape)
    environment = {**os.environ, "HDF5_PLUGIN_PATH": pumice.hdf5_plugin_path()}
    for step in range(n_steps):
        code = f"""
import {order.format(package)}
import numpy as np
path, step = {str(path)!r}, {step}
data = np.load({str(tmp_path / "data.npy")!r})[step]
{APPEND[package]}"""
        subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
    with h5py.File(path) as file:
        assert file["t"].id.get_chunk_info(0).filter_mask == 0
        # Another process does not know what this one has compressed: docs/guarantees.md, "Writing again".
        assert np.abs(file["t"][-1] - data[-1]).max() <= BOUND
        assert np.abs(file["t"][...] - data).max() <= n_steps * BOUND


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_appends_by_zarr(zarr_format):
    data = waves((STEPS, 40, 50))
    z = create_zarr((0, 40, 50), (10, 40, 50), zarr_format, abs=BOUND)
    for step in range(STEPS):
        z.append(data[step : step + 1], axis=0)
    check_steps(z[...], data)


def test_appends_by_xarray(tmp_path):
    data = waves((STEPS, 40, 50))
    for step in range(STEPS):
        ds = xarray.Dataset({"t": (("time", "y", "x"), data[step : step + 1])}, coords={"time": [step]})
        if step == 0:
            encoding = {"t": {"chunks": (10, 40, 50), "compressors": None, "serializer": PumiceCodec(abs=BOUND)}}
            ds.to_zarr(tmp_path / "a.zarr", encoding=encoding, zarr_format=3, consolidated=False)
        else:
            ds.to_zarr(
                tmp_path / "a.zarr", append_dim="time", consolidated=False, safe_chunks=False, align_chunks=False
            )
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as ds:
        check_steps(ds["t"].values, data)


def test_appends_by_numcodecs():
    data, codec = waves((STEPS, 40, 50)), Pumice(abs=BOUND)
    stored = codec.encode(np.zeros_like(data))
    for step in range(STEPS):
        chunk = codec.decode(stored).copy()
        chunk[step] = data[step]
        stored = codec.encode(chunk)
    check_steps(codec.decode(stored), data)
