"""Random sequences of writes, copies, appends and changes of the chunk shape through every layer, against a model of what
was written: each value stays within the bound of its own write, and a step changes no value but those that it writes.

`PUMICE_HISTORIES=10000` runs that many; without it there are a few of each kind.
"""

import os

import numpy as np
import pytest

import pumice

HISTORIES = int(os.environ.get("PUMICE_HISTORIES", "75"))
FILL = np.float32(-999.0)
LAYERS = ["hdf5", "netcdf", "zarr2", "zarr3", "numcodecs"]


def waves(rng, shape):
    """A smooth field with noise of a few bounds."""
    axes = np.meshgrid(*(np.linspace(0, 3, n) for n in shape), indexing="ij")
    phase = rng.integers(1 << 30)
    smooth = sum(np.sin((k + 1) * axis + phase) for k, axis in enumerate(axes))
    return (10 * smooth + 0.1 * rng.normal(size=shape)).astype("f4")


def some_values(rng, shape):
    values = waves(rng, shape)
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


def some_box(rng, shape):
    edges = [sorted(rng.integers(0, n + 1, 2)) for n in shape]
    return tuple(slice(a, max(b, a + 1)) if a < n else slice(n - 1, n) for (a, b), n in zip(edges, shape))


def some_chunks(rng, shape):
    return tuple(min(int(m), n) for m, n in zip(rng.integers(2, 12, len(shape)), shape))


class Model:
    """What was written, how far from it each value may be, and what was read last."""

    def __init__(self, seen, limit):
        # Stores fill what nobody has written with zeros, which are compressed as everything else.
        self.values = np.zeros(seen.shape, "f4")
        self.limits = np.full(seen.shape, limit)
        self.seen = seen

    def write(self, box, values, limit):
        self.values[box] = values
        self.limits[box] = limit

    def append(self, rows, limit):
        self.values = np.concatenate([self.values, rows])
        self.limits = np.concatenate([self.limits, np.full(rows.shape, limit)])

    def check(self, found, is_written, is_rechunked, what):
        """After a step that has written the marked values, or may have moved them."""
        assert found.shape == self.values.shape, what
        before = self.seen[tuple(slice(n) for n in found.shape)]
        kept = ~is_written[tuple(slice(n) for n in before.shape)]
        # What was taken for a fill value is exact, and may not be taken for one in another chunk. Zarr does not store chunks
        # of nothing but zeros, so these are compressed when another value of the chunk is written. Both happens once.
        is_exact = before == self.values[tuple(slice(n) for n in before.shape)]
        kept &= ~(is_exact & (is_rechunked | (before == 0)))
        assert found[: before.shape[0]][kept].tobytes() == before[kept].tobytes(), f"{what}: a value was moved"
        special = ~np.isfinite(self.values) | (self.values == FILL)
        assert found[special].tobytes() == self.values[special].tobytes(), what
        errors = np.abs(found.astype("f8") - self.values.astype("f8"), where=~special, out=np.zeros(found.shape))
        assert (errors <= self.limits).all(), f"{what}: {(errors - self.limits).max()} above the bound"
        self.seen = found


class Hdf5:
    """A dataset of an HDF5 file, which is opened anew for each step."""

    def __init__(self, folder, shape, chunks, options):
        self.h5py = pytest.importorskip("h5py")
        self.path, self.options = folder / "a.h5", pumice.hdf5(**options)
        self.create(np.zeros(shape, "f4"), chunks)

    def create(self, data, chunks):
        self.chunks = chunks
        with self.h5py.File(self.path, "w", track_order=True) as file:
            names = [f"axis{k}" for k in range(data.ndim)]
            for k, (name, n) in enumerate(zip(names, data.shape)):
                scale = file.create_dataset(name, (n,), "f8", maxshape=(None if k == 0 else n,), chunks=True)
                scale.make_scale(name)
            maxshape = (None, *data.shape[1:])
            t = file.create_dataset("t", data=data, chunks=chunks, maxshape=maxshape, fillvalue=FILL, **self.options)
            for axis, name in enumerate(names):
                t.dims[axis].attach_scale(file[name])

    def write(self, box, values):
        with self.h5py.File(self.path, "a") as file:
            file["t"][box] = values

    def append(self, rows):
        with self.h5py.File(self.path, "a") as file:
            file["t"].resize(file["t"].shape[0] + rows.shape[0], axis=0)
            file["t"][-rows.shape[0] :] = rows

    def read(self):
        with self.h5py.File(self.path) as file:
            return file["t"][...]

    def copy(self, chunks):
        self.create(self.read(), chunks)


class NetCdf(Hdf5):
    """The same file, read and written by the NetCDF library, which appends to files that know the order of their variables."""

    def __init__(self, folder, shape, chunks, options):
        self.netcdf = pytest.importorskip("netCDF4")
        super().__init__(folder, shape, chunks, options)

    def open(self, mode):
        file = self.netcdf.Dataset(self.path, mode)
        file.set_auto_maskandscale(False)
        return file

    def write(self, box, values):
        with self.open("a") as file:
            file["t"][box] = values

    def append(self, rows):
        with self.open("a") as file:
            n = file["t"].shape[0]
            file["t"][n : n + rows.shape[0]] = rows

    def read(self):
        with self.open("r") as file:
            return np.asarray(file["t"][...])


class Zarr:
    """An array of a Zarr store."""

    def __init__(self, zarr_format, shape, chunks, options):
        self.zarr = pytest.importorskip("zarr")
        self.format, self.options = zarr_format, options
        self.array = self.create(shape, chunks)

    def create(self, shape, chunks):
        from pumice.zarr import PumiceCodec

        self.chunks = chunks
        if self.format == 2:
            from pumice.numcodecs import Pumice

            codec = {"compressors": [Pumice(**self.options)], "filters": None}
        else:
            codec = {"compressors": None, "serializer": PumiceCodec(**self.options)}
        return self.zarr.create_array({}, shape=shape, chunks=chunks, dtype="f4", zarr_format=self.format, **codec)

    def write(self, box, values):
        self.array[box] = values

    def append(self, rows):
        self.array.append(rows, axis=0)

    def read(self):
        return self.array[...]

    def copy(self, chunks):
        data = self.read()
        self.array = self.create(data.shape, chunks)
        self.array[...] = data


class Numcodecs:
    """One chunk, whose shape does not change."""

    def __init__(self, shape, options):
        pytest.importorskip("numcodecs")
        from pumice.numcodecs import Pumice

        self.codec, self.chunks = Pumice(**options), shape
        self.stored = self.codec.encode(np.zeros(shape, "f4"))

    def write(self, box, values):
        data = self.read()
        data[box] = values
        self.stored = self.codec.encode(data)

    def read(self):
        return self.codec.decode(self.stored).copy()

    def copy(self, _chunks):
        self.stored = self.codec.encode(self.read())


@pytest.mark.parametrize("layer", LAYERS)
def test_random_histories(tmp_path, layer):
    for seed in range(HISTORIES // len(LAYERS)):
        rng = np.random.default_rng([seed, LAYERS.index(layer)])
        shape = tuple(int(n) for n in rng.integers(1, 20, rng.integers(1, 4)))
        chunks = some_chunks(rng, shape)
        bound = float(10.0 ** -rng.integers(0, 4))
        preset = str(rng.choice(["small", "small", "max", "fast", "balanced"]))
        is_stable = bool(rng.integers(2))
        options = {"abs": bound, "fill_value": float(FILL), "preset": preset, **({"stable": True} if is_stable else {})}
        store = {
            "hdf5": lambda: Hdf5(tmp_path, shape, chunks, options),
            "netcdf": lambda: NetCdf(tmp_path, shape, chunks, options),
            "zarr2": lambda: Zarr(2, shape, chunks, options),
            "zarr3": lambda: Zarr(3, shape, chunks, options),
            "numcodecs": lambda: Numcodecs(shape, options),
        }[layer]()
        model, steps = Model(store.read(), bound), []
        for _ in range(rng.integers(2, 9)):
            shape = model.values.shape
            step = str(rng.choice(["write", "write", "write", "copy", "append", "rechunk"]))
            step = "copy" if layer == "numcodecs" and step != "write" else step
            steps.append(step)
            is_written = np.zeros(shape, bool)
            if step == "write":
                box = some_box(rng, shape)
                values = some_values(rng, model.values[box].shape)
                store.write(box, values)
                model.write(box, values, bound)
                is_written[box] = True
            elif step == "append":
                rows = some_values(rng, (int(rng.integers(1, 5)), *shape[1:]))
                store.append(rows)
                model.append(rows, bound)
            else:
                store.copy(some_chunks(rng, shape) if step == "rechunk" else store.chunks)
            if step == "rechunk" and not is_stable:
                # Chunks of another shape are compressed anew.
                model.limits += bound
                is_written[...] = True
            model.check(store.read(), is_written, step == "rechunk", f"{layer}, seed {seed}, {options}, {steps}")
