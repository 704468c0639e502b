"""Copies, appends and writes of parts, through every layer: each value stays within the bound of its own write, and values
that were not changed keep their bits.

`PUMICE_HISTORIES=10000` runs that many random histories; without it there are a few of each kind.
"""

import os
import shutil
import subprocess

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
HISTORIES = int(os.environ.get("PUMICE_HISTORIES", "60"))


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
    # The NetCDF library appends to files that know the order of their variables.
    with h5py.File(tmp_path / "a.nc", "w", track_order=True) as file:
        for name, n, most in (("time", 0, None), ("y", 40, 40), ("x", 50, 50)):
            scale = file.create_dataset(name, (n,), "f8", maxshape=(most,), chunks=True)
            scale.make_scale(name)
        t = file.create_dataset(
            "t", (0, 40, 50), "f4", maxshape=(None, 40, 50), chunks=(10, 40, 50), **pumice.hdf5(abs=BOUND)
        )
        for axis, name in enumerate(("time", "y", "x")):
            t.dims[axis].attach_scale(file[name])
    for step in range(STEPS):
        with netCDF4.Dataset(tmp_path / "a.nc", "a") as file:
            file["t"][step] = data[step]
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        check_steps(np.asarray(file["t"][...]), data)


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


# ---- Random histories, against a model of what was written ----


class Model:
    """What was written, and how far from it each value may be."""

    def __init__(self, shape, limit):
        # Stores fill what nobody has written with zeros, which are compressed as everything else.
        self.values = np.zeros(shape, "f4")
        self.limits = np.full(shape, limit)

    def write(self, box, values, limit):
        self.values[box] = values
        self.limits[box] = limit

    def check(self, found, what):
        special = ~np.isfinite(self.values) | (self.values == FILL)
        assert same(found[special], self.values[special]), what
        errors = np.abs(found.astype("f8") - self.values.astype("f8"), where=~special, out=np.zeros(found.shape))
        assert (errors <= self.limits).all(), f"{what}: {(errors - self.limits).max()} above the bound"


FILL = np.float32(-999.0)


def some_box(rng, shape):
    edges = [sorted(rng.integers(0, n + 1, 2)) for n in shape]
    return tuple(slice(a, max(b, a + 1)) if a < n else slice(n - 1, n) for (a, b), n in zip(edges, shape))


def some_values(rng, shape):
    values = waves(shape, int(rng.integers(1 << 30)))
    kind = rng.integers(6)
    if kind == 0:
        values[rng.random(shape) < 0.3] = FILL
    elif kind == 1:
        values[rng.random(shape) < 0.1] = np.nan
    elif kind == 2:
        values = np.round(values)
    elif kind == 3:
        values[...] = values.flat[0]
    return values


class Hdf5:
    """A dataset of an HDF5 file, which is opened anew for each step."""

    def __init__(self, folder, shape, chunks, options):
        self.path, self.chunks, self.options = folder / "a.h5", chunks, pumice.hdf5(**options)
        with h5py.File(self.path, "w") as file:
            self.create(file, np.zeros(shape, "f4"), chunks)

    def create(self, file, data, chunks):
        maxshape = (None, *data.shape[1:])
        file.create_dataset("t", data=data, chunks=chunks, maxshape=maxshape, fillvalue=FILL, **self.options)

    def write(self, box, values):
        with h5py.File(self.path, "a") as file:
            file["t"][box] = values

    def append(self, rows):
        with h5py.File(self.path, "a") as file:
            file["t"].resize(file["t"].shape[0] + rows.shape[0], axis=0)
            file["t"][-rows.shape[0] :] = rows

    def read(self):
        with h5py.File(self.path) as file:
            return file["t"][...]

    def copy(self):
        data = self.read()
        with h5py.File(self.path, "w") as file:
            self.create(file, data, self.chunks)


class Zarr:
    """An array of a Zarr store."""

    def __init__(self, zarr_format, shape, chunks, options):
        self.format, self.chunks, self.options = zarr_format, chunks, options
        self.array = self.create(shape)

    def create(self, shape):
        return create_zarr(shape, self.chunks, self.format, **self.options)

    def write(self, box, values):
        self.array[box] = values

    def append(self, rows):
        self.array.append(rows, axis=0)

    def read(self):
        return self.array[...]

    def copy(self):
        data = self.read()
        self.array = self.create(data.shape)
        self.array[...] = data


class Numcodecs:
    """One chunk."""

    def __init__(self, shape, options):
        self.codec = Pumice(**options)
        self.stored = self.codec.encode(np.zeros(shape, "f4"))

    def write(self, box, values):
        data = self.read()
        data[box] = values
        self.stored = self.codec.encode(data)

    def append(self, rows):
        self.stored = self.codec.encode(np.concatenate([self.read(), rows]))

    def read(self):
        return self.codec.decode(self.stored).copy()

    def copy(self):
        self.stored = self.codec.encode(self.read())


@pytest.mark.parametrize("layer", ["hdf5", "zarr2", "zarr3", "numcodecs"])
def test_random_histories(tmp_path, layer):
    for seed in range(HISTORIES // 4):
        rng = np.random.default_rng([seed, len(layer), ord(layer[-1])])
        shape = tuple(int(n) for n in rng.integers(1, 20, rng.integers(1, 4)))
        chunks = tuple(min(int(m), n) for m, n in zip(rng.integers(2, 12, len(shape)), shape))
        bound = float(10.0 ** -rng.integers(0, 4))
        options = {"abs": bound, "fill_value": float(FILL), "preset": str(rng.choice(["small", "small", "max", "fast"]))}
        store = {
            "hdf5": lambda: Hdf5(tmp_path, shape, chunks, options),
            "zarr2": lambda: Zarr(2, shape, chunks, options),
            "zarr3": lambda: Zarr(3, shape, chunks, options),
            "numcodecs": lambda: Numcodecs(shape, options),
        }[layer]()
        model, steps = Model(shape, bound), []
        for _ in range(rng.integers(2, 9)):
            shape = model.values.shape
            step = str(rng.choice(["write", "write", "write", "copy", "append"]))
            if step == "append" and layer == "numcodecs":
                step = "copy"  # a chunk has one shape
            steps.append(step)
            if step == "write":
                box = some_box(rng, shape)
                values = some_values(rng, model.values[box].shape)
                store.write(box, values)
                model.write(box, values, bound)
            elif step == "copy":
                store.copy()
            else:
                rows = some_values(rng, (int(rng.integers(1, 5)), *shape[1:]))
                store.append(rows)
                grown = Model((shape[0] + rows.shape[0], *shape[1:]), bound)
                grown.write(slice(0, shape[0]), model.values, model.limits)
                grown.write(slice(shape[0], None), rows, bound)
                model = grown
            model.check(store.read(), f"{layer}, seed {seed}, {options}, {steps}")
