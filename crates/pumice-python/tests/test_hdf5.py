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


def test_other_types_pass_through_where_the_filter_is_optional_and_are_refused_where_not(tmp_path):
    numbers = np.arange(90 * 130, dtype="i4").reshape(90, 130)
    write(tmp_path / "i.h5", numbers, **pumice.hdf5(abs=0.5))  # h5py makes filters optional
    assert (read(tmp_path / "i.h5") == numbers).all()
    with h5py.File(tmp_path / "m.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(CHUNKS)
        properties.set_filter(pumice.hdf5.FILTER_ID, h5py.h5z.FLAG_MANDATORY, pumice.hdf5.parameters(abs=0.5))
        space = h5py.h5s.create_simple(numbers.shape)
        with pytest.raises(ValueError, match="pumice: Pumice compresses 32-bit and 64-bit floats, not integers"):
            h5py.h5d.create(file.id, b"i", h5py.h5t.NATIVE_INT32, space, properties)


def test_wrong_parameters_are_refused(tmp_path):
    with pytest.raises(ValueError, match="parameters of version 7; this plugin knows version 1"):
        write(tmp_path / "a.h5", WAVES, compression=pumice.hdf5.FILTER_ID, compression_opts=(7, 0, 0))
    with pytest.raises(ValueError, match="too few filter parameters"):
        write(tmp_path / "a.h5", WAVES, compression=pumice.hdf5.FILTER_ID, compression_opts=(0x020101,))
    for wrong in [{}, {"abs": 1, "rel": 1}, {"abs": -1}, {"ratio": 0.5}, {"psnr": 0}, {"abs": 1, "preset": "tiny"},
                  {"abs": 1, "value_range": (0, 1)}, {"rel": 1, "value_range": (1, 0)}]:
        with pytest.raises(pumice.errors.InvalidArgumentError):
            pumice.hdf5(**wrong)


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
    ended = subprocess.run([sys.executable, "-W", "error", "-m", "pumice.hdf5", *options], capture_output=True, text=True)
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
    tool("nccopy", "-F", filters, "-c", "y/40,x/50", tmp_path / "plain.nc", tmp_path / "small.nc")
    tool("nccopy", tmp_path / "small.nc", tmp_path / "again.nc")
    bound = 1e-4 * np.ptp(WAVES)
    for name, limit in ("small.nc", bound), ("again.nc", 2 * bound):  # lossy twice
        with netCDF4.Dataset(tmp_path / name) as file:
            assert 0 < np.abs(file["t"][...] - WAVES.astype("f4")).max() <= limit
        assert f'_Filter = "{pumice.hdf5.FILTER_ID},' in tool("ncdump", "-hs", tmp_path / name)


def test_the_command_prints_everything_and_refuses_invalid_bounds():
    code, text, _ = command("--abs", "0.25")
    assert code == 0
    assert f"export HDF5_PLUGIN_PATH={pumice.hdf5_plugin_path()}" in text
    assert "h5repack -f 'UD=480,0,3,131329,1070596096,0' in.h5 out.h5" in text
    assert "nccopy -F '*,480,131329,1070596096,0' in.nc out.nc" in text
    code, _, message = command("--abs", "-1")
    assert code == pumice.errors.InvalidArgumentError.code and "abs must be a number" in message


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


def test_the_plugin_needs_no_hdf5():
    plugin = next(Path(pumice.hdf5_plugin_path()).iterdir())
    if shutil.which("ldd"):
        assert "hdf5" not in subprocess.run(["ldd", plugin], capture_output=True, text=True).stdout.replace(plugin.name, "")
