"""The HDF5 filter under the real programs: h5py, netCDF4, xarray, h5repack, h5dump, nccopy, ncdump."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import pumice

h5py = pytest.importorskip("h5py")

WAVES = 280 + 10 * np.sin(np.arange(90)[:, None] / 9) + np.cos(np.arange(130)[None, :] / 7)
CHUNKS = (40, 50)  # neither extent is a multiple


def tool(*arguments, ok=True):
    """Runs a program of HDF5 or NetCDF with the plugin on its path."""
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed (Debian: hdf5-tools, netcdf-bin)")
    environment = {**os.environ, "HDF5_PLUGIN_PATH": pumice.hdf5_plugin_path()}
    ended = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, env=environment)
    assert (ended.returncode == 0) == ok, f"{arguments}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout + ended.stderr


def python(code, **environment):
    """Runs Python code in a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**inherited, **environment})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def write(path, data, name="t", chunks=CHUNKS, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset(name, data=data, chunks=chunks, **options)


def read(path, name="t"):
    with h5py.File(path) as file:
        return file[name][...]


def parts(data):
    """The chunks that a dataset is cut into."""
    rows, columns = CHUNKS
    return [data[i : i + rows, j : j + columns] for i in range(0, 90, rows) for j in range(0, 130, columns)]


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", ">f8"])
@pytest.mark.parametrize("preset", ["fast", "balanced", "small", "max"])
def test_h5py_keeps_absolute_bounds(tmp_path, dtype, preset):
    data = WAVES.astype(dtype)
    data[3, 4], data[80, 120], data[5, 6] = np.nan, np.inf, -0.0
    write(tmp_path / "a.h5", data, **pumice.hdf5(abs=1e-3, preset=preset))
    restored = read(tmp_path / "a.h5")
    finite = np.isfinite(data)
    assert restored.dtype == data.dtype
    assert np.abs(restored[finite].astype("f8") - data[finite].astype("f8")).max() <= 1e-3
    assert restored[~finite].tobytes() == data[~finite].tobytes()
    assert (tmp_path / "a.h5").stat().st_size < data.nbytes / 2


def test_plain_compression_is_lossless(tmp_path):
    data = WAVES.astype("f4")
    write(tmp_path / "a.h5", data, compression=pumice.hdf5.FILTER_ID)
    assert read(tmp_path / "a.h5").tobytes() == data.tobytes()


def test_rel_refers_to_each_chunk_or_to_the_given_range(tmp_path):
    data = WAVES.astype("f4")
    data[:40, :50] = 280 + (data[:40, :50] - 280) / 100
    write(tmp_path / "own.h5", data, **pumice.hdf5(rel=1e-2))
    for original, restored in zip(parts(data), parts(read(tmp_path / "own.h5"))):
        # Also at the edges, which HDF5 pads with zeros.
        assert np.abs(restored - original).max() <= 1e-2 * np.ptp(original)
    write(tmp_path / "given.h5", data, **pumice.hdf5(rel=1e-2, value_range=(0.0, 10.0)))
    error = np.abs(read(tmp_path / "given.h5") - data)
    assert error.max() <= 0.1 and error[:40, :50].max() > 0.01


def test_every_chunk_meets_pwrel_psnr_l2_and_ratio(tmp_path):
    data = WAVES.astype("f4")
    write(tmp_path / "pwrel.h5", data, **pumice.hdf5(pwrel=1e-3))
    assert (np.abs(read(tmp_path / "pwrel.h5") - data) <= 1e-3 * np.abs(data)).all()
    write(tmp_path / "psnr.h5", data, **pumice.hdf5(psnr=60))
    write(tmp_path / "l2.h5", data, **pumice.hdf5(l2=0.5))
    for original, by_psnr, by_l2 in zip(parts(data), parts(read(tmp_path / "psnr.h5")), parts(read(tmp_path / "l2.h5"))):
        mean_square = np.square(by_psnr.astype("f8") - original).mean()
        assert 20 * np.log10(np.ptp(original)) - 10 * np.log10(mean_square) >= 60
        assert np.linalg.norm(by_l2.astype("f8") - original) <= 0.5
    write(tmp_path / "ratio.h5", data, **pumice.hdf5(ratio=10))
    with h5py.File(tmp_path / "ratio.h5") as file:
        chunks = file["t"].id
        for i in range(chunks.get_num_chunks()):
            assert chunks.get_chunk_info(i).size <= 4 * CHUNKS[0] * CHUNKS[1] / 10


def test_fill_values_are_kept_and_do_not_widen_the_range(tmp_path):
    data = WAVES.astype("f4")
    data[20:50, 30:60] = 1e20
    for options in [{"fillvalue": np.float32(1e20)}, pumice.hdf5(rel=1e-3, fill_value=1e20), {}]:
        write(tmp_path / "a.h5", data, **{**pumice.hdf5(rel=1e-3), **options})
        restored = read(tmp_path / "a.h5")
        assert (restored[20:50, 30:60] == np.float32(1e20)).all()
        valid = data < 1e10
        assert np.abs(restored[valid] - data[valid]).max() <= 1e-3 * np.ptp(data[valid])


def low_level(path, datatype, *filters):
    """Creates a dataset whose chunks go through these filters, each a number or its flags and parameters too."""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(CHUNKS)
        for filter_ in filters:
            properties.set_filter(*filter_)
        return h5py.h5d.create(file.id, b"t", datatype, h5py.h5s.create_simple(WAVES.shape), properties)


@pytest.mark.parametrize("flags", [h5py.h5z.FLAG_MANDATORY, h5py.h5z.FLAG_OPTIONAL])
@pytest.mark.parametrize(
    ("datatype", "name"),
    [(h5py.h5t.STD_I16LE, "integers"), (h5py.h5t.IEEE_F16LE, "floats of 16 bits"), (h5py.h5t.FORTRAN_S1, "strings"),
     (h5py.h5t.py_create(np.dtype(bool)), "enumerations"), (h5py.h5t.py_create(np.dtype("f4, i4")), "compound types"),
     (h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (3,)), "arrays")],
)  # fmt: skip
def test_other_types_are_refused_by_name_even_if_the_filter_is_optional(tmp_path, flags, datatype, name):
    with pytest.raises(ValueError, match=f"pumice: Pumice compresses 32-bit and 64-bit floats, not {name}"):
        low_level(tmp_path / "a.h5", datatype, (pumice.hdf5.FILTER_ID, flags, pumice.hdf5.parameters(abs=0.5)))


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", ">f8"])
def test_a_shuffle_before_the_filter_changes_nothing(tmp_path, dtype):
    """xarray asks for one where a data set comes from a deflated file. Checksums that come after are no matter."""
    data = WAVES.astype(dtype)
    write(tmp_path / "plain.h5", data, **pumice.hdf5(rel=1e-3))
    write(tmp_path / "shuffled.h5", data, shuffle=True, fletcher32=True, **pumice.hdf5(rel=1e-3))
    assert read(tmp_path / "plain.h5").tobytes() == read(tmp_path / "shuffled.h5").tobytes()
    with h5py.File(tmp_path / "shuffled.h5") as file:
        assert file["t"].filter_ids == (h5py.h5z.FILTER_SHUFFLE, pumice.hdf5.FILTER_ID, h5py.h5z.FILTER_FLETCHER32)
        assert file["t"].id.get_storage_size() < data.nbytes / 4
    # Other programs undo it too, and recode it by the cd_values of the file.
    tool("h5diff", tmp_path / "plain.h5", tmp_path / "shuffled.h5")
    tool("h5repack", "-l", "t:CHUNK=30x30", tmp_path / "shuffled.h5", tmp_path / "again.h5")
    assert np.abs(read(tmp_path / "again.h5") - data).max() <= 2e-3 * np.ptp(data)


@pytest.mark.parametrize(
    "others", [["deflate"], ["fletcher32"], ["shuffle", "deflate"], ["shuffle", "shuffle"], ["scaleoffset"], ["nbit"]]
)
def test_other_filters_before_it_are_refused_by_name(tmp_path, others):
    parameters = {"deflate": (4,), "scaleoffset": (0, 2)}
    before = [(getattr(h5py.h5z, f"FILTER_{name.upper()}"), h5py.h5z.FLAG_OPTIONAL, parameters.get(name, ())) for name in others]
    own = (pumice.hdf5.FILTER_ID, h5py.h5z.FLAG_OPTIONAL, pumice.hdf5.parameters(abs=0.5))
    with pytest.raises(ValueError, match=f"the filter '{others[-1]}' comes before Pumice"):
        low_level(tmp_path / "a.h5", h5py.h5t.IEEE_F32LE, *before, own)


def test_filters_that_would_change_its_stream_are_refused(tmp_path):
    own = (pumice.hdf5.FILTER_ID, h5py.h5z.FLAG_OPTIONAL, pumice.hdf5.parameters(abs=0.5))
    for after, name in [((h5py.h5z.FILTER_SCALEOFFSET, h5py.h5z.FLAG_OPTIONAL, (0, 2)), "scaleoffset"), (own, "pumice")]:
        with pytest.raises(ValueError, match=f"the filter '{name}.* comes after Pumice"):
            low_level(tmp_path / "a.h5", h5py.h5t.IEEE_F32LE, own, after)


def test_wrong_parameters_are_refused(tmp_path):
    with pytest.raises(ValueError, match="parameters of version 7; this plugin knows version 1"):
        write(tmp_path / "a.h5", WAVES, compression=pumice.hdf5.FILTER_ID, compression_opts=(7, 0, 0))
    with pytest.raises(ValueError, match="too few filter parameters"):
        write(tmp_path / "a.h5", WAVES, compression=pumice.hdf5.FILTER_ID, compression_opts=(0x020101,))
    for wrong in [{}, {"abs": 1, "rel": 1}, {"abs": -1}, {"ratio": 0.5}, {"psnr": 0}, {"abs": 1, "preset": "tiny"},
                  {"abs": 1, "value_range": (0, 1)}, {"rel": 1, "value_range": (1, 0)}]:
        with pytest.raises(pumice.errors.InvalidArgumentError):
            pumice.hdf5(**wrong)


def test_the_other_chunks_of_a_damaged_file_are_read_as_documented(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "hdf5.md").read_text()
    code = re.search(r"### Damaged chunks.*?```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(code[1], names)
    write(tmp_path / "a.h5", WAVES.astype("f4"), **pumice.hdf5(abs=1e-3))
    with h5py.File(tmp_path / "a.h5") as file:
        chunk = file["t"].id.get_chunk_info(4)
        whole = file["t"][...]
    damaged = bytearray((tmp_path / "a.h5").read_bytes())
    damaged[chunk.byte_offset + chunk.size // 2] ^= 0x55
    (tmp_path / "a.h5").write_bytes(damaged)
    with h5py.File(tmp_path / "a.h5") as file:
        out, lost = names["read_intact"](file["t"])
    assert lost == [(slice(40, 80, 1), slice(50, 100, 1))]
    whole[lost[0]] = np.nan
    np.testing.assert_array_equal(out, whole)


def test_damaged_chunks_raise_with_our_message(tmp_path):
    write(tmp_path / "a.h5", WAVES.astype("f4"), **pumice.hdf5(abs=1e-3))
    with h5py.File(tmp_path / "a.h5") as file:
        chunk = file["t"].id.get_chunk_info(0)
    good = (tmp_path / "a.h5").read_bytes()
    for at in range(0, chunk.size, 7):
        damaged = bytearray(good)
        damaged[chunk.byte_offset + at] ^= 0x55
        (tmp_path / "b.h5").write_bytes(damaged)
        with pytest.raises(OSError, match="pumice: "):
            read(tmp_path / "b.h5")
    assert "pumice: " in tool("h5dump", "--enable-error-stack", "-d", "/t", tmp_path / "b.h5", ok=False)


def test_the_memory_limit_is_an_error(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", WAVES.astype("f4"), **pumice.hdf5(abs=1e-3))
    monkeypatch.setenv("PUMICE_HDF5_MAX_BYTES", "4096")
    with pytest.raises(OSError, match="a chunk of 8000 bytes is above the limit"):
        read(tmp_path / "a.h5")
    monkeypatch.setenv("PUMICE_HDF5_MAX_BYTES", "8000")
    read(tmp_path / "a.h5")
    monkeypatch.setenv("PUMICE_HDF5_MAX_BYTES", "much")
    with pytest.raises(OSError, match="PUMICE_HDF5_MAX_BYTES must be a number, not much"):
        read(tmp_path / "a.h5")


def test_bytes_do_not_depend_on_threads(tmp_path, monkeypatch):
    data = np.tile(WAVES, (20, 10)).astype("f4")
    for threads in "1", "2":
        monkeypatch.setenv("PUMICE_HDF5_THREADS", threads)
        write(tmp_path / f"{threads}.h5", data, chunks=data.shape, **pumice.hdf5(rel=1e-3))
    with h5py.File(tmp_path / "1.h5") as one, h5py.File(tmp_path / "2.h5") as two:
        assert one["t"].id.read_direct_chunk((0, 0)) == two["t"].id.read_direct_chunk((0, 0))


def test_several_threads_at_once(tmp_path):
    """h5py lets one thread at a time into the library; the filter itself would allow several."""
    data = WAVES.astype("f4")

    def cycle(i):
        write(tmp_path / f"{i}.h5", data + i, **pumice.hdf5(abs=1e-3))
        return np.abs(read(tmp_path / f"{i}.h5") - (data + i)).max()

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(cycle, range(16))) <= 1e-3


USE = {
    "h5py": """
import h5py
with h5py.File(path, "a") as file:
    name = f"t{len(file)}"
    file.create_dataset(name, data=data, chunks=(40, 50), **pumice.hdf5(abs=1e-3))
    assert abs(file[name][...] - data).max() <= 1e-3
""",
    "netCDF4": """
import netCDF4
with netCDF4.Dataset(other) as file:
    assert abs(file["t"][...] - data).max() <= 1e-3
with netCDF4.Dataset(path + ".zstd.nc", "w") as file:  # its own plugins are still found
    file.createDimension("x", 100)
    file.createVariable("x", "f4", ("x",), compression="zstd")[:] = range(100)
""",
    "pumice": "import pumice\n",
}


@pytest.mark.parametrize(
    "order",
    ["pumice h5py netCDF4", "pumice netCDF4 h5py", "h5py netCDF4 pumice", "netCDF4 h5py pumice", "h5py pumice netCDF4",
     "netCDF4 pumice h5py"],
)
def test_h5py_and_netcdf4_in_one_process(tmp_path, order):
    """Each brings an HDF5 library of its own; the filter works in both, whichever is imported first."""
    pytest.importorskip("netCDF4")
    write(tmp_path / "other.nc", WAVES.astype("f4"), **pumice.hdf5(abs=1e-3))
    imports = "".join(f"import {name}\n" for name in order.split())
    use = "".join(USE[name] for name in order.split())
    python(f"""{imports}
import numpy as np
data = (280 + 10 * np.sin(np.arange(90)[:, None] / 9) + np.cos(np.arange(130)[None, :] / 7)).astype("f4")
path, other = {str(tmp_path / "a.h5")!r}, {str(tmp_path / "other.nc")!r}
{use}{use}""")


def test_what_follows_an_import_is_called_once_and_disturbs_no_other_finder(tmp_path):
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "__init__.py").write_text("value = 7\n")
    printed = python(f"""
import importlib.abc, importlib.util, inspect, sys
from pumice.hdf5._imports import after_import
sys.path.insert(0, {str(tmp_path)!r})

class AsksAll(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        return next((spec for spec in found if spec is not None), None)

after_import({{"later", "missing"}}, lambda: print("called", sys.modules["later"].value))
sys.meta_path.insert(0, AsksAll())
assert importlib.util.find_spec("missing") is None
assert importlib.util.find_spec("later").submodule_search_locations
print("found")
import later
import later as again
assert inspect.getsource(later).strip() == "value = 7"
""")
    assert printed.split("\n")[:2] == ["found", "called 7"] and printed.count("called") == 1


def test_a_plugin_path_of_the_user_is_kept(tmp_path):
    found = python("import os, pumice; print(os.environ['HDF5_PLUGIN_PATH'])", HDF5_PLUGIN_PATH="/somewhere:/else")
    assert found.strip() == f"{pumice.hdf5_plugin_path()}:/somewhere:/else"


def test_h5dump_ncdump_and_netcdf4_read_what_h5py_wrote(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        for name, n in [("y", 90), ("x", 130)]:
            file.create_dataset(name, data=np.arange(n, dtype="f8")).make_scale(name)
        file.create_dataset("t", data=WAVES.astype("f4"), chunks=CHUNKS, **pumice.hdf5(abs=1e-3))
        file["t"].dims[0].attach_scale(file["y"])
        file["t"].dims[1].attach_scale(file["x"])
    with netCDF4.Dataset(path) as file:
        assert file["t"].dimensions == ("y", "x")
        assert np.abs(file["t"][...] - WAVES.astype("f4")).max() <= 1e-3
    text = tool("h5dump", "-p", "-d", "/t", "-s", "0,0", "-c", "1,1", path)
    assert f"FILTER_ID {pumice.hdf5.FILTER_ID}" in text and "COMMENT pumice" in text
    assert abs(float(re.search(r"\(0,0\): ([0-9.]+)", text)[1]) - WAVES[0, 0]) <= 2e-3
    text = tool("ncdump", "-s", "-v", "t", path)
    assert f'_Filter = "{pumice.hdf5.FILTER_ID},' in text
    first = float(re.search(r" t =\s+([0-9.]+)", text)[1])
    assert abs(first - WAVES[0, 0]) <= 2e-3


def command(*options):
    ended = subprocess.run([sys.executable, "-W", "error", "-m", "pumice.hdf5", *map(str, options)], capture_output=True, text=True)
    return ended.returncode, ended.stdout.strip(), ended.stderr


def test_h5repack_with_the_printed_string(tmp_path):
    write(tmp_path / "plain.h5", WAVES.astype("f4"))
    code, farg, _ = command("--abs", "1e-3", "--variable", "t", "--print", "h5repack")
    assert code == 0
    tool("h5repack", "-f", farg, "-l", "t:CHUNK=30x30", tmp_path / "plain.h5", tmp_path / "small.h5")
    assert 0 < np.abs(read(tmp_path / "small.h5") - WAVES.astype("f4")).max() <= 1e-3
    # The stored cd_values still work when the chunk shape of a dataset changes.
    tool("h5repack", "-l", "t:CHUNK=25x130", tmp_path / "small.h5", tmp_path / "again.h5")
    assert np.abs(read(tmp_path / "again.h5") - WAVES.astype("f4")).max() <= 2e-3
    with h5py.File(tmp_path / "again.h5") as file:
        assert file["t"].chunks == (25, 130) and str(pumice.hdf5.FILTER_ID) in file["t"]._filters


def test_nccopy_with_the_printed_string(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "plain.nc", "w") as file:
        file.createDimension("y", 90)
        file.createDimension("x", 130)
        file.createVariable("t", "f4", ("y", "x"), fill_value=1e20)[...] = WAVES
    code, filters, _ = command("--rel", "1e-4", "--variable", "t", "--print", "nccopy")
    assert code == 0
    tool("nccopy", *filters.split(), "-c", "y/40,x/50", tmp_path / "plain.nc", tmp_path / "small.nc")
    tool("nccopy", tmp_path / "small.nc", tmp_path / "again.nc")
    for name in "small.nc", "again.nc":  # a copy changes nothing
        with netCDF4.Dataset(tmp_path / name) as file:
            assert 0 < np.abs(file["t"][...] - WAVES.astype("f4")).max() <= 1e-4 * np.ptp(WAVES)
        assert f'_Filter = "{pumice.hdf5.FILTER_ID},' in tool("ncdump", "-hs", tmp_path / name)


# The variables of `mixed_file` that may be compressed, and where they mean "no data".
FIELDS = ["deep/q", "p", "t"]
MISSING = np.s_[10:20, 30:60]


def mixed_file(path, fields=FIELDS):
    """A file as models write it: floats, packed integers, texts, coordinates, bounds, a group. Returns what must not change."""
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(path, "w") as file:
        for name, n in [("y", 90), ("x", 130), ("time", None), ("n", 2), ("letters", 4)]:
            file.createDimension(name, n)
        kept = {
            "y": (("y",), "f8", np.linspace(-90, 90, 90)),
            "y_bnds": (("y", "n"), "f8", np.linspace(-90, 90, 180).reshape(90, 2)),
            "lat": (("y", "x"), "f4", WAVES / 7),
            "packed": (("y", "x"), "i2", WAVES.astype("i2")),
            "flag": (("y", "x"), "i1", (WAVES > 280).astype("i1")),
            "label": (("letters",), "S1", np.array(list("abcd"), "S1")),
            "height": ((), "f4", np.float32(2.5)),
            "time": (("time",), "i4", np.arange(3)),
            "far": (("y", "x"), "f4", WAVES / 5),
            "deep/area": (("y", "x"), "f4", WAVES / 9),
        }
        if "n" in fields:
            kept["letters"] = (("y", "x"), "f4", WAVES / 3)  # also the name of a dimension
        file.createGroup("deep")
        for name, (dimensions, dtype, values) in kept.items():
            file.createVariable(name, dtype, dimensions)[...] = values
        file["y"].bounds = "y_bnds"
        file.coordinates = "far"
        for i, name in enumerate(fields):
            variable = file.createVariable(name, "f4", ("y", "x"), chunksizes=CHUNKS)
            variable[...] = WAVES
            variable[MISSING] = 279.5 + i
            variable.missing_value = np.float32(279.5 + i)
            variable.setncattr_string("coordinates", "lat height letters")
            variable.cell_measures = "area: /deep/area"
    return {name: np.asarray(values) for name, (_, _, values) in kept.items()}


@pytest.mark.parametrize("program", ["h5repack", "nccopy"])
def test_the_line_for_a_file_compresses_its_floats_and_leaves_the_rest_alone(tmp_path, program):
    netCDF4 = pytest.importorskip("netCDF4")
    # HDF5 has n by another name, since a dimension has this one. With filters, nccopy 4.9 fails at such files.
    fields = sorted([*FIELDS, "n"]) if program == "h5repack" else FIELDS
    kept = mixed_file(tmp_path / "in.nc", fields)
    code, line, message = command("--rel", "1e-4", "--file", tmp_path / "in.nc", "--print", program)
    assert code == 0, message
    tool(program, *(["-f", line] if program == "h5repack" else line.split()), tmp_path / "in.nc", tmp_path / "out.nc")
    with h5py.File(tmp_path / "out.nc") as file:
        compressed = []
        file.visititems(lambda name, item: compressed.append(name) if pumice.hdf5.FILTER_ID in getattr(item, "filter_ids", ()) else None)
        assert sorted(name.replace("_nc4_non_coord_", "") for name in compressed) == fields
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        for name, values in kept.items():
            assert np.asarray(file[name][...]).tobytes() == values.astype(file[name].dtype).tobytes(), name
        file.set_auto_mask(False)
        for i, name in enumerate(fields):
            expected = WAVES.astype("f4")
            expected[MISSING] = 279.5 + i
            found = file[name][...]
            assert 0 < np.abs(found - expected).max() <= 1e-4 * np.ptp(WAVES)
            assert (found[MISSING] == 279.5 + i).all()


def test_both_readers_of_variables_find_the_same(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    from pumice.hdf5 import _variables

    fields = sorted([*FIELDS, "n"])
    mixed_file(tmp_path / "in.nc", fields)
    by_h5py, by_netcdf4 = _variables._by_h5py(h5py, tmp_path / "in.nc"), _variables._by_netcdf4(netCDF4, tmp_path / "in.nc")
    found = sorted(_variables.float_variables(tmp_path / "in.nc"))
    assert [v.path for v in found] == fields
    assert [v.fills for v in found] == [[279.5 + i] for i in range(4)]
    assert found == sorted(_variables._floats(by_h5py)) == sorted(_variables._floats(by_netcdf4))
    # Named by a path, by a global attribute, and by the name of a dimension that is not its own.
    with netCDF4.Dataset(tmp_path / "paths.nc", "w") as file:
        file.createDimension("lat", 9), file.createDimension("lon", 8)
        file.coordinates = "height"
        deep = file.createGroup("deep")
        for group, name in (file, "lon"), (file, "height"), (deep, "depth"), (file, "depth"), (deep, "level"), (deep, "t"):
            group.createVariable(name, "f4", ("lat", "lon"))[...] = 1
        deep["t"].coordinates = "lon ../deep/depth /deep/level"
    by_h5py, by_netcdf4 = _variables._by_h5py(h5py, tmp_path / "paths.nc"), _variables._by_netcdf4(netCDF4, tmp_path / "paths.nc")
    by_both = [sorted(v.path for v in _variables._floats(contents)) for contents in (by_h5py, by_netcdf4)]
    assert by_both == [["deep/t", "depth"]] * 2
    # `pumice convert` goes by the same attributes.
    catalog = Path(__file__).parents[2] / "pumice-cli/src/convert/catalog.rs"
    listed = re.search(r"const NAMING: \[&str; \d+\] = \[(.*?)\];", catalog.read_text(), re.DOTALL)
    assert tuple(re.findall(r'"(\w+)"', listed[1])) == _variables.NAMING


def test_programs_of_netcdf_say_why_and_h5py_says_it_once(tmp_path):
    """The NetCDF library has HDF5 print nothing, and says "HDF error" itself. So has h5py, which raises the message."""
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("x", 5000)
        file.createVariable("i", "i4", ("x",))[...] = np.arange(5000)
        file.createVariable("f", "f4", ("x",), fletcher32=True)[...] = np.arange(5000)
    for name, why in ("i", "not integers"), ("f", "the filter 'fletcher32' comes before Pumice"):
        _, line, _ = command("--abs", "1e-3", "--variable", name, "--print", "nccopy")
        message = tool("nccopy", *line.split(), tmp_path / "in.nc", tmp_path / "out.nc", ok=False)
        assert "pumice: " in message and why in message
    code = f"""
import h5py, netCDF4, pumice
with h5py.File({str(tmp_path / "a.h5")!r}, "w") as file:
    try:
        file.create_dataset("i", data=range(100), chunks=(10,), **pumice.hdf5(abs=1))
    except ValueError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "not integers" in ended.stdout and not ended.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_names_in_attributes_may_be_of_any_encoding(tmp_path, encoding):
    netCDF4 = pytest.importorskip("netCDF4")
    from pumice.hdf5 import _variables

    attributes = {"one": np.bytes_("höhe".encode(encoding)), "several": np.array(["lat höhe".encode(encoding)]), "no": h5py.Empty("f4")}
    with h5py.File(tmp_path / "a.nc", "w", track_order=True) as file:
        for name in "höhe", *attributes:
            file.create_dataset(name, data=WAVES.astype("f4"))
        for name, value in attributes.items():
            file[name].attrs["coordinates"] = value
    for reader, package in (_variables._by_h5py, h5py), (_variables._by_netcdf4, netCDF4):
        assert sorted(v.path for v in _variables._floats(reader(package, tmp_path / "a.nc"))) == sorted(attributes)


NAMES = ["air temp", "a,b", "r(1)", "q'x", "e&f", "é", "a\\b", "c:d", "1x", "a|b"]


def test_names_with_special_characters_reach_nccopy_or_are_refused(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("x", 5000)
        for name in NAMES:
            file.createVariable(name, "f4", ("x",))[...] = np.linspace(0, 1, 5000)
    code, _, message = command("--abs", "1e-3", "--file", tmp_path / "in.nc", "--print", "nccopy")
    assert code == pumice.errors.InvalidArgumentError.code and "spaces of names: 'air temp'; name the others" in message
    code, _, message = command("--abs", "1e-3", "--file", tmp_path / "in.nc", "--print", "h5repack")
    assert code == pumice.errors.InvalidArgumentError.code and "commas and colons: 'a,b', 'c:d'; name the others" in message
    code, text, _ = command("--abs", "1e-3", "--file", tmp_path / "in.nc")
    assert code == 0 and "# not for nccopy: " in text and "# not for h5repack: " in text
    chosen = [option for name in NAMES[1:] for option in ("--variable", name)]
    _, line, _ = command("--abs", "1e-3", *chosen, "--print", "nccopy")
    tool("nccopy", *line.split(), tmp_path / "in.nc", tmp_path / "out.nc")
    with h5py.File(tmp_path / "out.nc") as file:
        assert [name for name in NAMES if file[name].filter_ids] == NAMES[1:]


def test_what_nccopy_would_not_compress_is_named(tmp_path):
    """It ignores filters for deflated variables without a word, and cannot order fletcher32 after others."""
    netCDF4 = pytest.importorskip("netCDF4")
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("x", 5000)
        for name, options in ("z", {"zlib": True}), ("f", {"fletcher32": True}), ("t", {}):
            file.createVariable(name, "f4", ("x",), **options)[...] = np.linspace(0, 1, 5000)
    code, _, message = command("--abs", "1e-3", "--file", tmp_path / "in.nc", "--print", "nccopy")
    assert code == pumice.errors.InvalidArgumentError.code and "deflated variables: 'z'; first `nccopy -F none" in message
    tool("nccopy", "-F", "none", tmp_path / "in.nc", tmp_path / "plain.nc")
    _, line, _ = command("--abs", "1e-3", "--file", tmp_path / "plain.nc", "--print", "nccopy")
    tool("nccopy", *line.split(), tmp_path / "plain.nc", tmp_path / "out.nc")
    with h5py.File(tmp_path / "out.nc") as file:
        assert [file[name].filter_ids for name in "zft"] == [(pumice.hdf5.FILTER_ID,)] * 3


def test_more_fill_values_than_the_line_has_room_for_are_refused(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for i in range(5):
            file[f"t{i}"] = WAVES
            file[f"t{i}"].attrs["missing_value"] = [float(i), np.nan]
    code, _, message = command("--abs", "1e-3", "--file", tmp_path / "in.h5", "--print", "h5repack")
    assert code == pumice.errors.InvalidArgumentError.code and "room for 4 fill values, not 5" in message
    code, line, _ = command("--abs", "1e-3", "--file", tmp_path / "in.h5", "--print", "nccopy")
    assert code == 0 and line.count("-F") == 5
    code, line, _ = command("--abs", "1e-3", "--fill", "1", "--file", tmp_path / "in.h5", "--print", "h5repack")
    assert code == 0 and line.endswith(f":UD=480,0,5,{','.join(map(str, pumice.hdf5.parameters(abs=1e-3, fill_value=1)))}")


def test_the_command_prints_everything_and_refuses_what_is_invalid(tmp_path):
    code, text, _ = command("--abs", "0.25")
    assert code == 0
    assert f"export HDF5_PLUGIN_PATH={pumice.hdf5_plugin_path()}" in text
    assert "h5repack -f VARIABLE:UD=480,0,3,131329,1070596096,0 in.h5 out.h5" in text
    assert "nccopy -F VARIABLE,480,131329,1070596096,0 in.nc out.nc" in text
    code, text, _ = command("--abs", "0.25", "--variable", "a", "--variable", "g/b", "--print", "nccopy")
    assert (code, text) == (0, "-F a,480,131329,1070596096,0 -F /g/b,480,131329,1070596096,0")
    code, _, message = command("--abs", "-1")
    assert code == pumice.errors.InvalidArgumentError.code and "abs must be a number" in message
    for program in "h5repack", "nccopy":
        code, _, message = command("--abs", "1", "--print", program)
        assert code == pumice.errors.InvalidArgumentError.code and "--file IN for all floats" in message
    write(tmp_path / "i.h5", np.arange(90 * 130).reshape(90, 130))
    code, _, message = command("--abs", "1", "--file", tmp_path / "i.h5")
    assert code == pumice.errors.InvalidArgumentError.code and "has no variable of 32-bit or 64-bit floats" in message
    (tmp_path / "no.h5").write_bytes(b"nothing")
    code, _, message = command("--abs", "1", "--file", tmp_path / "no.h5")
    assert code == 1 and "cannot read" in message and message.startswith("error:")


def test_xarray_writes_and_reads_through_h5netcdf(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    data = WAVES.astype("f4")
    data[3:5] = np.nan
    field = xarray.DataArray(data, dims=("y", "x"), coords={"y": np.arange(90.0)}, name="t", attrs={"units": "K"})
    encoding = {"t": {**pumice.hdf5(abs=1e-3), "chunksizes": CHUNKS}}
    field.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    assert str(pumice.hdf5.FILTER_ID) in h5py.File(tmp_path / "a.nc")["t"]._filters
    for engine in "h5netcdf", "netcdf4":
        with xarray.open_dataset(tmp_path / "a.nc", engine=engine) as found:
            assert found["t"].attrs["units"] == "K"
            assert np.nanmax(np.abs(found["t"].values - data)) <= 1e-3
            assert (np.isnan(found["t"].values) == np.isnan(data)).all()


def test_xarray_encoding_writes_again_what_it_has_read(tmp_path):
    """xarray calls the filter of such a file "unknown", and cannot write that."""
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    data = xarray.Dataset(
        {"t": (("y", "x"), WAVES.astype("f4")), "n": (("y", "x"), (WAVES > 280).astype("i4")), "s": ((), np.float32(7))},
        coords={"y": ("y", np.arange(90.0)), "lat": (("y", "x"), WAVES.astype("f4") / 7)},
    )
    chunks = {"chunksizes": CHUNKS, "_FillValue": np.float32(-1)}
    both = {"t": {**pumice.hdf5(abs=1e-3), **chunks}, "lat": {**pumice.hdf5(lossless=True), **chunks}}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=both)
    with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as found:
        found.load()
        with pytest.raises(ValueError, match="unknown"):
            found.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
        for part in found, found.isel(y=slice(0, 10)):
            encoding = pumice.hdf5.xarray_encoding(part, abs=1e-3)
            assert set(encoding) == {"t", "lat"}
            part.to_netcdf(tmp_path / "b.nc", engine="h5netcdf", encoding=encoding)
            with h5py.File(tmp_path / "b.nc") as file:
                assert file["t"].filter_ids == (pumice.hdf5.FILTER_ID,) and file["lat"].filter_ids == ()
                assert file["t"].fillvalue == -1 and (part is not found or file["t"].chunks == CHUNKS)
                assert np.abs(file["t"][...] - WAVES.astype("f4")[: part.sizes["y"]]).max() <= 2e-3
                assert (file["lat"][...] == part.lat.values).all() and (file["n"][...] == part.n.values).all()


def test_xarray_encoding_leaves_bounds_and_coefficients_alone_and_keeps_chunks(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    rng = np.random.default_rng(3)
    exact = {
        "lat_bnds": (("lat", "n"), np.linspace(-90, 90, 180).reshape(90, 2)),
        "a": (("lev",), rng.random(40)),
        "area": (("lat", "lon"), rng.random((90, 130))),
        "far": (("lat", "lon"), rng.random((90, 130))),
    }
    data = xarray.Dataset(
        {"t": (("time", "lat", "lon"), rng.random((3, 90, 130)).astype("f4"), {"cell_measures": "area: area"}), **exact},
        coords={
            "lat": ("lat", np.linspace(-90, 90, 90), {"bounds": "lat_bnds"}),
            "lev": ("lev", np.arange(40.0), {"formula_terms": "a: a"}),
            "time": np.arange(3),
        },
        attrs={"coordinates": "far"},
    )
    options = {"t": {"chunksizes": (10, 90, 130), **pumice.hdf5(abs=0.01)}}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", unlimited_dims=["time"], encoding=options)
    for decode_coords in False, True, "all":
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf", decode_coords=decode_coords) as found:
            found.load()
        for part, chunks in (found, (10, 90, 130)), (found.isel(lat=slice(0, 50)), (10, 50, 130)):
            encoding = pumice.hdf5.xarray_encoding(part, abs=0.5)
            assert [name for name in encoding if "compression" in encoding[name]] == ["t"]
            part.to_netcdf(tmp_path / "b.nc", engine="h5netcdf", encoding=encoding)
            with h5py.File(tmp_path / "b.nc") as file:
                assert file["t"].chunks == chunks
                assert file["t"].attrs["cell_measures"] == "area: area"
                for name in exact:
                    assert file[name][...].tobytes() == np.asarray(part[name]).tobytes(), name
    with pytest.raises(ValueError, match="one bound"):
        pumice.hdf5.xarray_encoding(xarray.Dataset())


@pytest.mark.parametrize("attribute", ["missing_value", "_FillValue"])
def test_xarray_encoding_names_the_missing_value(tmp_path, attribute):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    mask = np.random.default_rng(4).random(WAVES.shape) < 0.1
    data = xarray.Dataset({"t": (("y", "x"), np.where(mask, np.nan, WAVES).astype("f4"))})
    encoding = {"_FillValue": None, attribute: np.float32(279.5), "chunksizes": CHUNKS}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"t": encoding})
    for mask_and_scale in True, False:
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf", mask_and_scale=mask_and_scale) as found:
            found.load()
        found.to_netcdf(tmp_path / "b.nc", engine="h5netcdf", encoding=pumice.hdf5.xarray_encoding(found, abs=0.05))
        with xarray.open_dataset(tmp_path / "b.nc", engine="h5netcdf") as again:
            assert np.array_equal(np.isnan(again["t"].values), mask)
    with pytest.raises(pumice.InvalidArgumentError, match="at most 4 fill values, not 5"):
        pumice.hdf5.xarray_encoding(found, abs=0.05, fill_value=[1, 2, 3, 4])


def test_an_encoding_from_a_deflated_file_may_keep_its_shuffle(tmp_path):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    data = xarray.Dataset({"t": (("y", "x"), WAVES.astype("f4"))})
    data.to_netcdf(tmp_path / "z.nc", engine="h5netcdf", encoding={"t": {"zlib": True, "shuffle": True}})
    with xarray.open_dataset(tmp_path / "z.nc", engine="h5netcdf") as found:
        found.load()
        found.t.encoding.update(pumice.hdf5(abs=1e-3))
        found.to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "b.nc") as file:
        assert pumice.hdf5.FILTER_ID in file["t"].filter_ids
        assert np.abs(file["t"][...] - WAVES.astype("f4")).max() <= 1e-3


def test_the_plugin_needs_no_hdf5():
    plugin = next(Path(pumice.hdf5_plugin_path()).iterdir())
    if shutil.which("ldd"):
        assert "hdf5" not in subprocess.run(["ldd", plugin], capture_output=True, text=True).stdout.replace(plugin.name, "")


def test_the_stable_mode_keeps_every_bit(tmp_path):
    data = (WAVES + np.random.default_rng(1).normal(size=WAVES.shape)).astype("f4")
    for bound in [{"abs": 0.013}, {"rel": 1e-3, "value_range": (270, 300)}]:
        write(tmp_path / "a.h5", data, **pumice.hdf5(**bound, stable=True))
        once = read(tmp_path / "a.h5")
        for chunks, preset in [(CHUNKS, "small"), ((90, 17), "fast"), ((33, 130), "balanced")]:
            write(tmp_path / "b.h5", once, chunks=chunks, **pumice.hdf5(**bound, stable=True, preset=preset))
            assert read(tmp_path / "b.h5").tobytes() == once.tobytes()
    # By their own ranges, as long as the chunks are the same.
    for stable in [True, None]:
        write(tmp_path / "a.h5", data, **pumice.hdf5(rel=1e-3, stable=stable))
        once = read(tmp_path / "a.h5")
        write(tmp_path / "b.h5", once, **pumice.hdf5(rel=1e-3, stable=stable))
        assert read(tmp_path / "b.h5").tobytes() == once.tobytes()
    assert pumice.hdf5.parameters(abs=0.25, stable=True)[0] == 131329 | 1 << 26
    assert pumice.hdf5.parameters(abs=0.25, stable=False)[0] == 131329 | 2 << 26
    with pytest.raises(ValueError, match="stable mode is for abs and rel"):
        pumice.hdf5.parameters(pwrel=1e-3, stable=True)
