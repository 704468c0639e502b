"""`pumice convert` with real files, read by the real programs."""

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import numpy as np
import pytest

import pumice

netCDF4 = pytest.importorskip("netCDF4")
h5py = pytest.importorskip("h5py")
xarray = pytest.importorskip("xarray")

if shutil.which("pumice") is None:
    pytest.skip("the command-line tool is not on the path", allow_module_level=True)

TIMES, ROWS, COLUMNS = 20, 48, 72
FIELDS = """
[[field]]
name = "*"
rel = 1e-3

[[field]]
name = ["T", "ocean/SST"]
abs = 0.01
preset = "balanced"
chunks = [7, 48, 50]

[[field]]
name = "Q"
pwrel = 1e-2

[[field]]
name = "PS"
psnr = 80

[[field]]
name = "Z"
ratio = 20
"""


def values():
    """The fields of the test file."""
    k, y, x = np.ogrid[0:TIMES, 0:ROWS, 0:COLUMNS]
    y, x = np.sin(y / 8), np.cos(x / 72 * 2 * np.pi)
    noise = np.random.default_rng(1).standard_normal((TIMES, ROWS, COLUMNS))
    t = (280 + 20 * y * x + 5 * np.sin(k / 5 + 3 * x) + 0.01 * noise).astype("f4")
    t[:, :10, :10] = 1e20
    return {
        "T": t,
        "PS": 1e5 + 1e3 * y * x + k + noise,
        "Q": (np.abs(y * x) * 10.0 ** (-k / 4)).astype("f4"),
        "U": (y * x * k + noise / 100).astype("f4"),
        "Z": (y + x + k / 10 + noise / 1000).astype("f4"),
        "SST": (290 + 10 * y * x + noise / 10).astype("f4"),
    }


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    (folder / "fields.toml").write_text(FIELDS)
    data = values()
    with netCDF4.Dataset(folder / "in.nc", "w") as file:
        file.title, file.numbers = "a test", np.array([1.5, 2.5])
        for name, n in ("time", None), ("lat", ROWS), ("lon", COLUMNS), ("nv", 2):
            file.createDimension(name, n)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.bounds = "days since 2000-01-01", "time_bnds"
        lat = file.createVariable("lat", "f8", ("lat",))
        lat.units = "degrees_north"
        area = file.createVariable("area", "f4", ("lat", "lon"))
        mask = file.createVariable("mask", "i2", ("lat", "lon"), compression="zlib", fill_value=-1)
        bounds = file.createVariable("time_bnds", "f8", ("time", "nv"))
        names = file.createVariable("station", str, ("lat",))
        for name, options in {
            "T": {"fill_value": np.float32(1e20)}, "PS": {"compression": "zlib"}, "Q": {}, "U": {"endian": "big"}, "Z": {},
        }.items():
            variable = file.createVariable(name, data[name].dtype.newbyteorder("=" if name != "U" else ">"),
                                           ("time", "lat", "lon"), **options)
            variable.units, variable.coordinates = "1", "area"
            variable[:] = data[name]
        file.createGroup("ocean").createVariable("SST", "f4", ("time", "lat", "lon"))[:] = data["SST"]
        time[:], bounds[:], lat[:] = range(TIMES), np.arange(2 * TIMES).reshape(TIMES, 2), np.linspace(-90, 90, ROWS)
        area[:], mask[:] = 1 + np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS), np.eye(ROWS, COLUMNS)
        names[:] = np.array([f"row {i}" for i in range(ROWS)], object)
    return folder


def convert(*arguments, code=0, folder=None, **environment):
    environment = {**os.environ, **environment}
    ended = subprocess.run(
        ["pumice", "convert", *map(str, arguments)], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def pumice_command(*arguments, code=0, folder=None):
    command = ["pumice", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ})
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def version():
    return subprocess.run(["pumice", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


def tool(*arguments):
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed (Debian: hdf5-tools, netcdf-bin)")
    environment = {**os.environ, "HDF5_PLUGIN_PATH": pumice.hdf5_plugin_path()}
    ended = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def converted(source):
    report = convert("in.nc", "out.nc", "--config", "fields.toml", "--json", folder=source)
    return source / "out.nc", json.loads(report)


def check(found, original, name):
    """Checks that each field meets its bound or target."""
    error = np.abs(found.astype("f8") - original)
    if name in ("T", "SST"):
        assert error.max() <= 0.01
    elif name == "Q":
        assert (error <= 1e-2 * np.abs(original)).all()
    elif name == "U":
        assert error.max() <= 1e-3 * np.ptp(original.astype("f8"))
    elif name == "PS":
        assert 20 * np.log10(np.ptp(original)) - 10 * np.log10(np.square(error).mean()) >= 80


def test_every_variable_keeps_its_bound(source, converted):
    path, report = converted
    variables = {variable["name"]: variable for variable in report["variables"]}
    assert set(variables) == {"T", "PS", "Q", "U", "Z", "ocean/SST"}
    assert variables["Z"]["ratio"] >= 20 and variables["T"]["chunk_shape"] == [7, 48, 50]
    with netCDF4.Dataset(path) as file:
        file.set_auto_mask(False)
        for name, original in values().items():
            variable = file["ocean/SST" if name == "SST" else name]
            check(variable[:], original, name)
            largest = np.abs(variable[:].astype("f8") - original).max()
            assert variable.pumice_max_abs_error == largest > 0
            assert variable.pumice_version and variable.pumice_preset in ("small", "balanced")
        assert (file["T"][:, :10, :10] == np.float32(1e20)).all()
        assert file["T"].pumice_bound == "abs 0.01"
        assert file["U"].pumice_bound.startswith("rel 0.001 of the range ")
        assert file["U"].endian() == "big"
        assert "pumice_bound" not in file["area"].ncattrs()
    assert path.stat().st_size < (source / "in.nc").stat().st_size / 4


def test_the_header_is_the_same_but_for_the_records(source, converted):
    def header(path):
        lines = tool("ncdump", "-h", path).splitlines()[1:]
        return [line for line in lines if ":pumice_" not in line and ":history" not in line]

    assert header(converted[0]) == header(source / "in.nc")
    both = (tool("ncdump", "-v", "time,lat,area,mask,time_bnds,station", path) for path in (source / "in.nc", converted[0]))
    first, second = (text[text.index("data:") : text.index("group: ocean")] for text in both)
    assert first == second
    assert f'_Filter = "{pumice.hdf5.FILTER_ID},' in tool("ncdump", "-hs", converted[0])
    assert "COMMENT pumice" in tool("h5dump", "-H", "-p", "-d", "/ocean/SST", converted[0])


def test_xarray_reads_the_result_with_both_engines(converted):
    for engine in "h5netcdf", "netcdf4":
        with xarray.open_dataset(converted[0], engine=engine) as dataset:
            assert dataset["T"].dims == ("time", "lat", "lon")
            assert dataset["time"].dtype.kind == "M" and "area" in dataset["T"].coords
            assert np.isnan(dataset["T"].values[:, :10, :10]).all()


def test_appending_goes_on_with_the_filter(source, converted, tmp_path):
    shutil.copy(converted[0], tmp_path / "more.nc")
    with h5py.File(tmp_path / "more.nc", "a") as file:
        file["U"].resize(TIMES + 1, axis=0)
        file["U"][TIMES] = 0.5
        assert abs(file["U"][TIMES] - 0.5).max() <= 1e-3 * np.ptp(values()["U"])


def test_zarr(source, tmp_path):
    pytest.importorskip("zarr")
    report = json.loads(convert("in.nc", tmp_path / "out.zarr", "--config", "fields.toml", "--json", folder=source))
    assert report["left_out"] == []
    with xarray.open_zarr(tmp_path / "out.zarr") as dataset, xarray.open_dataset(source / "in.nc") as original:
        assert dataset.attrs["title"] == "a test" and dataset.attrs["numbers"] == [1.5, 2.5]
        assert dataset["T"].dims == ("time", "lat", "lon") and dataset["T"].attrs["pumice_bound"] == "abs 0.01"
        for name in "time", "lat", "area", "mask", "time_bnds":
            xarray.testing.assert_equal(dataset[name].drop_vars(dataset[name].coords), original[name].drop_vars(original[name].coords))
        assert list(dataset["station"].values) == list(original["station"].values) == [f"row {i}" for i in range(ROWS)]
        assert np.isnan(dataset["T"].values[:, :10, :10]).all()
        for name in "PS", "Q", "U":
            check(dataset[name].values, values()[name], name)
    with xarray.open_zarr(tmp_path / "out.zarr", group="ocean") as dataset:
        check(dataset["SST"].values, values()["SST"], "SST")
    metadata = json.loads((tmp_path / "out.zarr/Q/zarr.json").read_text())
    assert metadata["codecs"] == [{"name": "pumice", "configuration": {"pwrel": 0.01, "preset": "small"}}]
    # As a file, a store is replaced; another folder is not.
    (tmp_path / "out.zarr/old").mkdir()
    convert("in.nc", tmp_path / "out.zarr", "--config", "fields.toml", folder=source)
    assert (tmp_path / "out.zarr/Q/zarr.json").exists()
    assert not (tmp_path / "out.zarr/old").exists()
    (tmp_path / "other.zarr").mkdir()
    (tmp_path / "other.zarr/notes.txt").write_text("not a store")
    message = convert("in.nc", tmp_path / "other.zarr", code=2, folder=source)
    assert "is not a Zarr store" in message
    assert (tmp_path / "other.zarr/notes.txt").exists()
    assert not list(tmp_path.glob(".pumice-*"))


CLASSIC = "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"


@pytest.fixture(scope="module", params=CLASSIC)
def classic(request, tmp_path_factory):
    """A file of the classic format with everything that it can contain."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "fields.toml").write_text("[[field]]\nname = '*'\nabs = 0.01\n\n[[field]]\nname = 'PS'\nlossless = true\n")
    data = values()
    with netCDF4.Dataset(folder / "in.nc", "w", format=request.param) as file:
        file.title, file.numbers, file.number, file.empty = "Grüße", np.array([1.5, 2.5]), np.int16(7), ""
        for name, n in ("lat", ROWS), ("lon", COLUMNS), ("time", None), ("nv", 2), ("length", 5), ("code", 2):
            file.createDimension(name, n)
        time = file.createVariable("time", "f8", ("time",))
        time.units, time.bounds, time.calendar = "days since 2000-01-01", "time_bnds", "standard"
        lat, bounds = file.createVariable("lat", "f8", ("lat",)), file.createVariable("time_bnds", "f8", ("time", "nv"))
        lat.units = "degrees_north"
        for name, options in {"T": {"fill_value": np.float32(1e20)}, "PS": {}, "U": {}}.items():
            variable = file.createVariable(name, data[name].dtype, ("time", "lat", "lon"), **options)
            variable.units = "1"
            variable[:] = data[name]
        # Along no unlimited dimension.
        file.createVariable("SST", "f4", ("lat", "lon"))[:] = data["SST"][0]
        packed = file.createVariable("packed", "i2", ("time", "lat"), fill_value=-1)
        packed.scale_factor, packed.add_offset = 0.5, 10.0
        packed.set_auto_maskandscale(False)
        packed[:] = np.arange(TIMES * ROWS).reshape(TIMES, ROWS) - 1
        file.createVariable("flags", "i1", ("time",))[:] = np.arange(TIMES)
        file.createVariable("names", "S1", ("time", "length"))[:] = np.array([list(f"{i:5}") for i in range(TIMES)], "S1")
        # Named after dimensions: one with an axis more, one with another axis.
        file.createVariable("code", "S1", ("code", "length"))[:] = np.array([list("first"), list("other")], "S1")
        file.createVariable("nv", "i4", ("lat",))[:] = np.arange(ROWS)
        file.createVariable("scalar", "i4", ())[...] = 42
        if request.param == "NETCDF3_64BIT_DATA":
            for kind in "u1", "u2", "u4", "i8", "u8":
                variable = file.createVariable(kind, kind, ("time", "lon"))
                variable[:] = np.arange(TIMES * COLUMNS).reshape(TIMES, COLUMNS).astype(kind) + np.iinfo(kind).max // 3
        time[:], bounds[:], lat[:] = range(TIMES), np.arange(2 * TIMES).reshape(TIMES, 2), np.linspace(-90, 90, ROWS)
    return folder


def dimensions(file):
    return [(dimension.name, len(dimension), dimension.isunlimited()) for dimension in file.dimensions.values()]


def check_attributes(before, after):
    names = [name for name in after.ncattrs() if not name.startswith("pumice_") and name != "history"]
    assert names == before.ncattrs()
    for old, new in ((before.getncattr(name), after.getncattr(name)) for name in names):
        assert np.array_equal(old, new) and type(old) is type(new)


@pytest.mark.parametrize("output", ["out.nc", "out.h5"])
def test_classic_files_become_netcdf4(classic, output):
    report = json.loads(convert("in.nc", output, "--config", "fields.toml", "--json", folder=classic))
    assert {variable["name"] for variable in report["variables"]} == {"T", "PS", "U", "SST"} and not report["left_out"]
    with netCDF4.Dataset(classic / "in.nc") as old, netCDF4.Dataset(classic / output) as new:
        assert new.data_model == "NETCDF4" and dimensions(new) == dimensions(old)
        assert list(new.variables) == list(old.variables)
        old.set_auto_maskandscale(False), new.set_auto_maskandscale(False)
        check_attributes(old, new)
        for name, before in old.variables.items():
            after = new[name]
            check_attributes(before, after)
            assert after.dimensions == before.dimensions and after.dtype == before.dtype
            if name in ("T", "U", "SST"):
                largest = np.abs(after[:].astype("f8") - before[:]).max()
                assert 0 < largest == after.pumice_max_abs_error <= 0.01
            else:
                assert np.array_equal(after[...], before[...]), name


def test_programs_read_the_result_of_a_classic_file(classic):
    convert("in.nc", "read.nc", "--config", "fields.toml", folder=classic)

    def lines(name):
        text = tool("ncdump", "-v", "time,lat,names,code,packed,nv,scalar", classic / name)
        return [line for line in text.splitlines()[1:] if ":pumice_" not in line and ":history" not in line]

    assert lines("read.nc") == lines("in.nc")
    assert "netCDF-4" in tool("ncdump", "-k", classic / "read.nc")
    with h5py.File(classic / "read.nc") as file:
        assert file["T"].maxshape == (None, ROWS, COLUMNS) and file["T"].dims[0][0].name == "/time"
        assert file["time"].is_scale and file["lon"].is_scale
    with xarray.open_dataset(classic / "read.nc", engine="h5netcdf") as found, xarray.open_dataset(classic / "in.nc") as original:
        assert found["T"].dims == ("time", "lat", "lon") and found.attrs["title"] == "Grüße"
        xarray.testing.assert_equal(found["packed"], original["packed"])


def test_a_result_of_a_classic_file_can_be_appended_to(classic, tmp_path):
    convert("in.nc", tmp_path / "out.nc", folder=classic)
    with netCDF4.Dataset(tmp_path / "out.nc", "a") as file:
        file["time"][TIMES], file["T"][TIMES] = TIMES, 280
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert len(file.dimensions["time"]) == TIMES + 1 and (file["T"][TIMES] == 280).all() and file["U"][TIMES].mask.all()


def test_classic_files_become_zarr(classic, tmp_path):
    pytest.importorskip("zarr")
    report = json.loads(convert("in.nc", tmp_path / "out.zarr", "--config", "fields.toml", "--json", folder=classic))
    assert report["left_out"] == []
    with xarray.open_zarr(tmp_path / "out.zarr") as found, xarray.open_dataset(classic / "in.nc") as original:
        assert found.attrs.pop("history").endswith("convert in.nc out.zarr --config fields.toml (version " + version() + ")")
        assert found.attrs == {"title": "Grüße", "numbers": [1.5, 2.5], "number": 7, "empty": ""}
        assert set(found.variables) == set(original.variables)
        for name in found.variables:
            assert found[name].dims == original[name].dims
            before, after = original[name].values, found[name].values
            if name in ("T", "U", "SST"):
                assert np.nanmax(np.abs(after.astype("f8") - before)) <= 0.01
                assert (np.isnan(before) == np.isnan(after)).all()
            elif before.dtype.kind == "S":
                assert after.tolist() == before.astype(str).tolist()
            else:
                np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("name", ["dry.nc", "dry.zarr"])
def test_a_dry_run_writes_nothing_and_estimates_sizes(source, converted, name):
    before = sorted(source.iterdir())
    report = json.loads(convert("in.nc", name, "--config", "fields.toml", "--dry-run", "--json", folder=source))
    assert sorted(source.iterdir()) == before and report["dry_run"]
    for expected, found in zip(report["variables"], converted[1]["variables"], strict=True):
        assert expected["name"] == found["name"] and "max_abs_error" not in expected
        assert 0.5 < expected["compressed_bytes"] / found["compressed_bytes"] < 2, expected["name"]
    assert 0.5 < report["output_bytes"] / converted[0].stat().st_size < 2
    assert "about" in convert("in.nc", name, "--config", "fields.toml", "--dry-run", folder=source)


def on_a_terminal(*arguments, folder):
    """What a command shows on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    command = ["pumice", "convert", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, cwd=folder, env={**os.environ, "TERM": "xterm"}) as program:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:  # The other side is closed.
            pass
        os.close(ours)
    assert program.returncode == 0, shown
    return shown.decode()


def test_a_terminal_gets_a_progress_bar(source, tmp_path):
    shown = on_a_terminal("in.nc", tmp_path / "out.nc", "--config", "fields.toml", folder=source)
    assert "ranges" in shown and "converting" in shown and "MB" in shown
    assert "estimating" in on_a_terminal("in.nc", tmp_path / "x.nc", "--config", "fields.toml", "--dry-run", folder=source)
    assert on_a_terminal("in.nc", tmp_path / "quiet.nc", "--quiet", folder=source) == ""


def test_killed_while_writing_leaves_the_old_file_or_the_new_one(source, converted, tmp_path):
    arguments = ["in.nc", tmp_path / "out.nc", "--config", "fields.toml", "--quiet"]
    start = time.monotonic()
    convert(*arguments, folder=source)
    duration, complete = time.monotonic() - start, (tmp_path / "out.nc").stat().st_size
    for name in "out.nc", "out.zarr":
        for trial in range(8):
            shutil.rmtree(tmp_path)
            tmp_path.mkdir()
            if name == "out.nc":
                (tmp_path / name).write_text("old")
            program = subprocess.Popen(["pumice", "convert", "in.nc", tmp_path / name, *arguments[2:]], cwd=source)
            time.sleep(duration * 1.3 * trial / 8)
            program.kill()
            program.wait()
            if name == "out.nc":
                assert (tmp_path / name).stat().st_size in (3, complete)
            else:
                assert not (tmp_path / name).exists() or (tmp_path / name / "zarr.json").exists()
        # The next process removes what is left.
        convert("in.nc", tmp_path / name, *arguments[2:], folder=source)
        assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_signals_while_writing_leave_the_old_result_or_the_new_one(source, tmp_path, name):
    arguments = ["in.nc", tmp_path / name, "--config", "fields.toml", "--quiet"]
    convert(*arguments, folder=source)
    start = time.monotonic()
    convert(*arguments, folder=source)
    duration = time.monotonic() - start
    for trial in range(10):
        program = subprocess.Popen(["pumice", "convert", *map(str, arguments)], cwd=source)
        time.sleep(duration * (0.3 + 0.07 * trial))
        program.send_signal((signal.SIGTERM, signal.SIGHUP)[trial % 2])
        assert program.wait() in (0, -signal.SIGTERM, -signal.SIGHUP)
        assert [path.name for path in tmp_path.iterdir()] == [name]
    pumice_command("info", tmp_path / name)


def test_an_existing_output_is_replaced(source, tmp_path):
    (tmp_path / "out.nc").write_text("old")
    convert("in.nc", tmp_path / "out.nc", folder=source)
    assert netCDF4.Dataset(tmp_path / "out.nc")["T"].pumice_bound == "lossless"
    (tmp_path / "folder.nc").mkdir()
    assert "folder.nc" in convert("in.nc", tmp_path / "folder.nc", code=2, folder=source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.nc", "out.nc"]


def test_a_configuration_of_xios(source, tmp_path):
    (tmp_path / "fields.xml").write_text(
        """<file id="x" compression_type="lossy" error_bound_mode="abs" error_bound="0.01">
             <field field_ref="T" error_bound_mode="rel" error_bound="0.001" operation="average" />
             <field field_ref="U" error_bound="0.0001" compression_level="1" />
             <field field_ref="Q" compression_type="gzip" compression_level="4" />
             <field field_ref="Z" compression_type="none" />
             <field field_ref="elsewhere" />
           </file>"""
    )
    report = json.loads(convert("in.nc", tmp_path / "out.nc", "--config", tmp_path / "fields.xml", "--json", folder=source))
    found = {variable["name"]: variable for variable in report["variables"]}
    assert found["T"]["bounds"] == [{"kind": "rel", "value": 0.001}] and found["T"]["preset"] == "small"
    assert found["U"]["bounds"] == [{"kind": "abs", "value": 0.0001}] and found["U"]["preset"] == "fast"
    assert found["Q"]["bounds"][0]["kind"] == "lossless" and found["Q"]["preset"] == "balanced"
    assert "Z" not in found
    assert "there is no float variable elsewhere" in report["notes"]
    assert any(note.startswith("compression_type gzip: ") for note in report["notes"])
    with netCDF4.Dataset(source / "in.nc") as before, netCDF4.Dataset(tmp_path / "out.nc") as after:
        assert np.abs(before["U"][:] - after["U"][:]).max() <= 0.0001
        assert np.array_equal(before["Q"][:], after["Q"][:]) and np.array_equal(before["Z"][:], after["Z"][:])


def test_without_a_configuration_nothing_changes(source, tmp_path):
    text = convert("in.nc", tmp_path / "out.h5", folder=source)
    assert "lossless" in text
    with netCDF4.Dataset(tmp_path / "out.h5") as file:
        file.set_auto_mask(False)
        for name, original in values().items():
            assert np.array_equal(file["ocean/SST" if name == "SST" else name][:], original)


def check_bytes(folder, results):
    for threads in "1", "3":
        (results / threads).mkdir()
        output = results / threads / "out.h5"
        convert("in.nc", output, "--threads", threads, "--config", "fields.toml", folder=folder, SOURCE_DATE_EPOCH="0")
        time.sleep(1)
    assert (results / "1/out.h5").read_bytes() == (results / "3/out.h5").read_bytes()


def test_the_bytes_depend_neither_on_threads_nor_on_time(source, tmp_path):
    check_bytes(source, tmp_path)


def test_the_bytes_of_a_classic_file_depend_on_neither(classic, tmp_path):
    check_bytes(classic, tmp_path)


def test_plain_hdf5_with_links_and_references(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["a/b/x"] = np.linspace(0, 1, 40_000).reshape(200, 200)
        file["soft"] = h5py.SoftLink("/a/b/x")
        file["kinds"] = np.array([(1, 2.5)], dtype=[("n", "i4"), ("v", "f8")])
        file["type"] = np.dtype("f4")
        file.attrs["favourite"] = file["a/b/x"].ref
        file.attrs["texts"] = ["one", "two"]
        file.attrs.create("empty", h5py.Empty("f4"))
    convert("in.h5", "out.h5", folder=tmp_path)
    with h5py.File(tmp_path / "out.h5") as file:
        assert (file["soft"][:] == np.linspace(0, 1, 40_000).reshape(200, 200)).all()
        assert str(pumice.hdf5.FILTER_ID) in file["a/b/x"]._filters
        assert file[file.attrs["favourite"]].name == "/a/b/x"
        assert list(file.attrs["texts"]) == ["one", "two"] and file["kinds"][0]["v"] == 2.5


def test_two_fill_values_both_come_back(tmp_path):
    bounds = {"abs": 0.01, "rel": 1e-3, "pwrel": 1e-2, "psnr": 60, "l2": 1, "ratio": 5}
    (tmp_path / "fields.toml").write_text("".join(f"[[field]]\nname = '{name}'\n{name} = {value}\n" for name, value in bounds.items()))
    data = np.sin(np.arange(90_000) / 500).reshape(300, 300).astype("f4") + 2
    data[:50, :50], data[100:150, :50] = 1e20, -999
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("y", 300), file.createDimension("x", 300)
        for name in bounds:
            variable = file.createVariable(name, "f4", ("y", "x"), fill_value=1e20)
            variable.missing_value = np.float32(-999)
            variable[:] = data
    convert("in.nc", "out.nc", "--config", "fields.toml", folder=tmp_path)
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        for name in bounds:
            assert (file[name][:].mask == np.isin(data, [np.float32(1e20), -999])).all(), name
            assert np.abs(file[name][:] - data).max() < 0.05, name


def test_groups_that_contain_themselves_and_second_names(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["x"] = np.linspace(0, 1, 40_000).reshape(200, 200)
        file["group/self"], file["again"] = file["/"], file["x"]
    convert("in.h5", "out.h5", folder=tmp_path)
    with h5py.File(tmp_path / "out.h5") as file:
        assert (file["group/self/again"][:] == file["x"][:]).all() and file["again"] == file["x"]


def test_a_second_conversion_keeps_the_record_of_the_first(source, converted, tmp_path):
    with netCDF4.Dataset(converted[0]) as file:
        first, first_error = file["T"].__dict__, file["T"].pumice_max_abs_error
    convert(converted[0], tmp_path / "lossless.nc")
    (tmp_path / "more.toml").write_text("[[field]]\nname = 'T'\nabs = 0.1\n")
    convert(converted[0], tmp_path / "more.nc", "--config", tmp_path / "more.toml")
    with netCDF4.Dataset(tmp_path / "lossless.nc") as file:
        assert str(file["T"].__dict__) == str(first)
    with netCDF4.Dataset(tmp_path / "more.nc") as file:
        file.set_auto_mask(False)
        assert file["T"].pumice_bound == "abs 0.01, then abs 0.1"
        assert np.abs(file["T"][:].astype("f8") - values()["T"]).max() <= file["T"].pumice_max_abs_error <= first_error + 0.1


def test_very_small_chunks_are_joined_unless_they_are_to_be_kept(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("x", data=np.linspace(0, 1, 40_000), chunks=(10,))
    (tmp_path / "keep.toml").write_text("[[field]]\nname = 'x'\nabs = 1e-3\nchunks = 'keep'\n")
    for arguments, expected in ([], [40_000]), (["--config", "keep.toml"], [10]):
        report = json.loads(convert("in.h5", "out.h5", "--json", *arguments, folder=tmp_path))
        assert report["variables"][0]["chunk_shape"] == expected


def test_what_zarr_cannot_have_is_listed(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["pairs"] = np.array([(1, 2.5)], dtype=[("n", "i4"), ("v", "f8")])
        file["x"], file["link"] = np.zeros(3), h5py.SoftLink("/x")
        file["x"].attrs["huge"], file["x"].attrs["yes"] = np.uint64(2**64 - 1), np.True_
    report = json.loads(convert("in.h5", "out.zarr", "--json", folder=tmp_path))
    assert [line.split(":")[0] for line in report["left_out"]] == ["link", "pairs", "attribute huge of x", "attribute yes of x"]
    assert report["n_kept"] == 1
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_group("..")
    assert "not a valid name in Zarr" in convert("in.h5", "up.zarr", code=3, folder=tmp_path)
    assert not (tmp_path / "up.zarr").exists()


def test_mistakes_are_explained_and_leave_nothing(source, tmp_path):
    (tmp_path / "typo.toml").write_text("[[field]]\nname = 'temprature'\nabs = 1\n")
    message = convert("in.nc", tmp_path / "x.nc", "--config", tmp_path / "typo.toml", code=2, folder=source)
    assert "no float variable temprature" in message and "ocean/SST" in message
    (tmp_path / "typo.toml").write_text("[[field]]\nname = 'mask'\nabs = 1\n")
    message = convert("in.nc", tmp_path / "x.nc", "--config", tmp_path / "typo.toml", code=2, folder=source)
    assert "mask is not a float variable" in message and "ocean/SST" in message
    (tmp_path / "typo.toml").write_text("[[field]]\nname = 'T'\nabbs = 1\n")
    message = convert("in.nc", tmp_path / "x.nc", "--config", tmp_path / "typo.toml", code=2, folder=source)
    assert "typo.toml" in message and "line 3" in message and "unknown field `abbs`" in message
    (tmp_path / "ratio.toml").write_text("[[field]]\nname = 'U'\nratio = 1e9\n")
    assert "U: " in convert("in.nc", tmp_path / "x.nc", "--config", tmp_path / "ratio.toml", code=2, folder=source)
    (tmp_path / "classic.nc").write_bytes(b"CDF\x01" + bytes(10))
    assert "the header ends too early" in convert(tmp_path / "classic.nc", tmp_path / "x.nc", code=5)
    (tmp_path / "text.nc").write_text("hello")
    message = convert(tmp_path / "text.nc", tmp_path / "x.nc", code=6)
    assert "text.nc" in message and "signature" in message and "`pumice compress" in message
    assert "both input and output" in convert("in.nc", "in.nc", code=2, folder=source)
    assert "no.nc" in convert("no.nc", tmp_path / "x.nc", code=6, folder=source)
    message = convert("in.nc", tmp_path / "x.nc", code=3, folder=source, PUMICE_LIBHDF5="/nowhere.so")
    assert "PUMICE_LIBHDF5=/nowhere.so cannot be loaded" in message
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".nc", ".nc", ".toml", ".toml"]


def test_bounds_of_the_command_line_are_for_what_no_entry_names(source, tmp_path):
    report = json.loads(convert("in.nc", tmp_path / "out.nc", "--abs", "0.02", "--preset", "fast", "--chunks", "auto", "--json", folder=source))
    variables = {variable["name"]: variable for variable in report["variables"]}
    assert set(variables) == {"T", "PS", "Q", "U", "Z", "ocean/SST"}
    assert all(variable["bounds"] == [{"kind": "abs", "value": 0.02}] for variable in variables.values())
    assert all(variable["preset"] == "fast" and variable["max_abs_error"] <= 0.02 for variable in variables.values())
    (tmp_path / "q.toml").write_text("[[field]]\nname = 'Q'\npwrel = 0.01\n")
    report = json.loads(convert("in.nc", tmp_path / "out.nc", "--rel", "1e-3", "--config", tmp_path / "q.toml", "--json", folder=source))
    kinds = {variable["name"]: variable["bounds"][0]["kind"] for variable in report["variables"]}
    assert kinds.pop("Q") == "pwrel" and set(kinds.values()) == {"rel"}
    message = convert("in.nc", tmp_path / "x.nc", "--abs", "1", "--psnr", "60", code=2, folder=source)
    assert "only abs, rel and pwrel can be given together" in message
    assert "expected something like" in convert("in.nc", tmp_path / "x.nc", "--chunks", "large", code=2, folder=source)


def test_several_bounds_hold_together(source, tmp_path):
    (tmp_path / "fields.toml").write_text("[[field]]\nname = ['T', 'U']\nabs = 0.02\nrel = 1e-3\n")
    report = json.loads(convert("in.nc", tmp_path / "out.nc", "--config", tmp_path / "fields.toml", "--json", folder=source))
    errors = {variable["name"]: variable["max_abs_error"] for variable in report["variables"]}
    t, u = values()["T"].astype("f8"), values()["U"].astype("f8")
    assert 0 < errors["T"] <= 0.02 < 1e-3 * np.ptp(t[t < 1e19]) and 0 < errors["U"] <= min(0.02, 1e-3 * np.ptp(u))
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert file["U"].pumice_bound.startswith("abs 0.02 and rel 0.001 of the range ")
    (tmp_path / "fields.toml").write_text("[[field]]\nname = 'Q'\nabs = 0.001\npwrel = 0.01\n")
    message = convert("in.nc", tmp_path / "x.nc", "--config", tmp_path / "fields.toml", code=3, folder=source)
    assert "Q: pwrel beside abs or rel" in message and ".zarr" in message
    convert("in.nc", tmp_path / "out.zarr", "--config", tmp_path / "fields.toml", folder=source)
    with xarray.open_zarr(tmp_path / "out.zarr") as dataset:
        q, error = values()["Q"].astype("f8"), np.abs(dataset["Q"].values.astype("f8") - values()["Q"])
        assert (error <= 0.01 * q).all() and error.max() <= 0.001 and dataset["Q"].attrs["pumice_bound"] == "abs 0.001 and pwrel 0.01"


def test_bounds_of_packed_variables_are_in_unpacked_units(tmp_path):
    data = np.random.default_rng(5).standard_normal((200, 300)).cumsum(1).astype("f4")
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("y", 200), file.createDimension("x", 300)
        for name, kind in ("floats", "f4"), ("shorts", "i2"), ("plain", "f4"):
            variable = file.createVariable(name, kind, ("y", "x"))
            variable.set_auto_maskandscale(False)
            if name != "plain":
                variable.scale_factor, variable.add_offset = 0.03, 250.0
            variable[:] = data.astype(kind)
    report = json.loads(convert("in.nc", "out.nc", "--abs", "0.01", "--json", folder=tmp_path))
    assert [note.split(":")[0] for note in report["notes"]] == ["shorts"] and "packed as integers" in report["notes"][0]
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        file.set_auto_maskandscale(False)
        error = np.abs(file["floats"][:].astype("f8") - data).max()
        assert 0.2 < error <= 0.01 / 0.03 and abs(file["floats"].pumice_max_abs_error - 0.03 * error) < 1e-9
        assert file["floats"].pumice_bound == "abs 0.01, of unpacked values"
        assert np.abs(file["plain"][:].astype("f8") - data).max() <= 0.01 and (file["shorts"][:] == data.astype("i2")).all()
    message = convert("in.nc", "x.nc", "--pwrel", "0.01", code=2, folder=tmp_path)
    assert "floats: pwrel cannot be given" in message and "add_offset" in message
    (tmp_path / "fields.toml").write_text("[[field]]\nname = 'shorts'\nabs = 0.01\n")
    assert "shorts is not a float variable" in convert("in.nc", "x.nc", "--config", "fields.toml", code=2, folder=tmp_path)


def test_variables_that_end_before_their_unlimited_dimension(tmp_path):
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("time", None), file.createDimension("x", 50), file.createDimension("member", None)
        time = file.createVariable("time", "f8", ("time",))
        whole = file.createVariable("whole", "f4", ("time", "x"))
        short = file.createVariable("short", "f4", ("time", "x"), fill_value=-999, chunksizes=(3, 50))
        unset = file.createVariable("unset", "f8", ("time", "x"))
        both = file.createVariable("both", "f4", ("member", "time"), fill_value=1e20, chunksizes=(2, 4))
        counts = file.createVariable("counts", "i4", ("time",), fill_value=-1)
        names = file.createVariable("names", str, ("time",))
        time[:10], whole[:30], short[:7], unset[:4] = range(10), np.ones((30, 50)), np.full((7, 50), 2.5), np.zeros((4, 50))
        both[:3, :5], counts[:6], names[:2] = np.ones((3, 5)), range(6), np.array(["a", "b"], object)
    convert("in.nc", "out.zarr", "--abs", "1e-3", folder=tmp_path)
    # The NetCDF library reads a second unlimited dimension wrongly; h5netcdf does not.
    expected = xarray.open_dataset(tmp_path / "in.nc", engine="h5netcdf", drop_variables="names")
    with xarray.open_zarr(tmp_path / "out.zarr") as found, expected:
        assert dict(found.sizes) == dict(expected.sizes) == {"time": 30, "x": 50, "member": 3}
        for name in "whole", "short", "both", "counts":
            np.testing.assert_allclose(found[name].values, expected[name].values, atol=1e-3)
        assert np.isnan(found["short"].values[7:]).all() and np.isnan(found["counts"].values[6:]).all()
        assert (found["unset"].values[4:] == expected["unset"].values[4:]).all()
        assert list(found["names"].values) == ["a", "b"] + [""] * 28
    assert json.loads(pumice_command("check", "in.nc", "out.zarr", "--json", folder=tmp_path))["variables"]


def test_filters_of_other_projects_are_found_or_named(tmp_path):
    hdf5plugin = pytest.importorskip("hdf5plugin")
    # In a process of its own, in which no other libhdf5 is loaded, and no other plugins are found.
    write = """
import h5py, hdf5plugin, numpy as np
data = np.sin(np.arange(40_000) / 500).reshape(200, 200).astype("f4")
with h5py.File("in.h5", "w") as file:
    for name in "Bitshuffle", "Blosc", "Blosc2", "BZip2", "LZ4", "Zstd":
        file.create_dataset(name, data=data, chunks=(50, 200), **getattr(hdf5plugin, name)())
with h5py.File("lzf.h5", "w") as file:
    file.create_dataset("x", data=data, compression="lzf")
"""
    environment = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    subprocess.run([sys.executable, "-c", write], cwd=tmp_path, check=True, env=environment)
    data = np.sin(np.arange(40_000) / 500).reshape(200, 200).astype("f4")
    # The `python3` on the path is the one that has the package.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    for output in "out.h5", "out.zarr":
        convert("in.h5", output, "--abs", "1e-3", folder=tmp_path, PATH=path)
    with h5py.File(tmp_path / "out.h5") as file:
        assert len(file) == 6
        for name in file:
            assert 0 < np.abs(file[name][:].astype("f8") - data).max() <= 1e-3
    # Without the package: a path with no Python, and then with the plugins named by the variable.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pumice").symlink_to(shutil.which("pumice"))
    message = convert("in.h5", "x.h5", "--abs", "1e-3", code=3, folder=tmp_path, PATH=str(tmp_path / "bin"), HDF5_PLUGIN_PATH="")
    assert "BZip2: its chunks are compressed by the filter 307 (bzip2), for which there is no plugin" in message
    assert "hdf5plugin" in message and "HDF5_PLUGIN_PATH" in message
    folder = os.path.join(os.path.dirname(hdf5plugin.__file__), "plugins")
    convert("in.h5", "x.h5", "--abs", "1e-3", folder=tmp_path, PATH=str(tmp_path / "bin"), HDF5_PLUGIN_PATH=folder)
    assert "x: its chunks are compressed by the filter 32000 (lzf), which only h5py has" in convert("lzf.h5", "x.h5", code=3, folder=tmp_path)


def test_larger_chunks_are_advised_where_they_pay(tmp_path):
    data = np.sin(np.arange(600_000) / 5000).reshape(600, 1000).astype("f4")
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("small", data=data, chunks=(5, 1000))
        file.create_dataset("large", data=data, chunks=(300, 1000))
    report = json.loads(convert("in.h5", "x.h5", "--rel", "1e-3", "--dry-run", "--json", folder=tmp_path))
    assert len(report["notes"]) == 1 and report["notes"][0].startswith('small: chunks of 5 x 1000 cost ratio: "auto"')
    advised = json.loads(convert("in.h5", "y.h5", "--rel", "1e-3", "--chunks", "auto", "--json", folder=tmp_path))
    kept = json.loads(convert("in.h5", "y.h5", "--rel", "1e-3", "--json", folder=tmp_path))
    assert advised["variables"][1]["ratio"] > 1.05 * kept["variables"][1]["ratio"]


def waves(*shape):
    """Smooth float32 values, different for each call of one process."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).cumsum(-1).astype("f4")


def test_coordinates_are_known_by_any_name(tmp_path):
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("lat", 100), file.createDimension("lon", 200)
        # Named after a dimension that is not its first, by a global attribute, and by a path; `depth` of the root is not.
        file.coordinates = "height"
        for group, name in (file, "lon"), (file, "height"), (file.createGroup("g"), "depth"), (file, "depth"), (file, "T"):
            group.createVariable(name, "f4", ("lat", "lon"))[:] = waves(100, 200)
        file["T"].coordinates = "lon /g/depth"
    (tmp_path / "fields.toml").write_text("[[field]]\nname = '*'\nabs = 0.1\n")
    for arguments in ("--abs", "0.1"), ("--config", "fields.toml"):
        report = json.loads(convert("in.nc", "out.nc", *arguments, "--json", folder=tmp_path))
        assert sorted(variable["name"] for variable in report["variables"]) == ["T", "depth"]


def test_chunks_of_the_command_line_are_for_one_rank(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["plane"], file["line"], file["cube"] = waves(200, 200), waves(40000), waves(20, 10, 200)
    report = json.loads(convert("in.h5", "out.h5", "--abs", "0.01", "--chunks", "50,200", "--json", folder=tmp_path))
    chunks = {variable["name"]: variable["chunk_shape"] for variable in report["variables"]}
    assert chunks == {"plane": [50, 200], "line": [40000], "cube": [20, 10, 200]}
    assert report["notes"] == ["chunks of 50 x 200 are for variables of 2 axes, not for cube, line"]
    # Results depend on chunks: the history has them.
    with h5py.File(tmp_path / "in.h5", "a") as file:
        file.attrs["history"] = "made"
    convert("in.h5", "out.h5", "--chunks", "50,200", folder=tmp_path)
    with h5py.File(tmp_path / "out.h5") as file:
        assert b"convert in.h5 out.h5 --chunks 50,200 (version" in bytes(file.attrs["history"])
        assert file["plane"].chunks == (50, 200)
    message = convert("in.h5", "x.h5", "--chunks", "1,2,3,4", code=2, folder=tmp_path)
    assert "chunks of 1 x 2 x 3 x 4 are for variables of 4 axes, which none has" in message


def test_names_with_the_prefix_of_netcdf_are_safe_in_zarr(tmp_path):
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file["_nc4_non_coord_g/x"] = waves(200, 200)
        file["_nc4_non_coord_y"] = waves(200, 200)
    convert("group.h5", "group.zarr", folder=tmp_path)
    assert (tmp_path / "group.zarr/_nc4_non_coord_g/x/zarr.json").exists() and (tmp_path / "group.zarr/y/zarr.json").exists()
    (tmp_path / "folder").mkdir()
    for name in "_nc4_non_coord_..", "_nc4_non_coord_.", "_nc4_non_coord_", "_nc4_non_coord_zarr.json":
        with h5py.File(tmp_path / "in.h5", "w") as file:
            file[name] = np.arange(5.0)
        assert "not a valid name in Zarr" in convert("in.h5", "folder/x.zarr", code=3, folder=tmp_path)
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["d"], file["_nc4_non_coord_d"] = np.arange(3.0), np.arange(5.0)
    assert "d would be the name of two members" in convert("in.h5", "folder/x.zarr", code=3, folder=tmp_path)
    assert not list((tmp_path / "folder").iterdir())


def damage_chunk(path, name, at=0):
    """Changes a byte in the middle of a chunk."""
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(at)
    with open(path, "r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 255]))


def test_errors_of_hdf5_name_their_cause(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["a"], file["b"] = waves(200, 200), waves(300, 200)
    convert("in.h5", "c.h5", "--abs", "1e-3", folder=tmp_path)
    damage_chunk(tmp_path / "c.h5", "a")
    for output in "d.h5", "d.zarr":
        message = convert("c.h5", output, code=4, folder=tmp_path)
        # The chunk is a stream of its own: there are no others to save.
        assert "a: " in message and "wrong checksum" in message and "recover" not in message
    # A limit on the size of files: as a full disk, but for the reason.
    command = ["sh", "-c", "ulimit -f 100; exec pumice convert in.h5 d.h5"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 6 and "File too large" in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.h5", "in.h5"]


def test_damage_that_other_filters_find_is_damage(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file.create_dataset("x", data=waves(200, 200), chunks=(200, 200), fletcher32=True)
    damage_chunk(tmp_path / "in.h5", "x")
    message = convert("in.h5", "out.h5", "--abs", "1", code=4, folder=tmp_path)
    # The cause depends on the version of HDF5.
    assert "Fletcher32" in message or "filter returned failure during read" in message


def test_inputs_below_the_output_are_kept(source, tmp_path):
    convert(source / "in.nc", tmp_path / "s.zarr")
    for name in "in.nc", "fields.toml":
        shutil.copy(source / name, tmp_path / "s.zarr" / name)
    for arguments in ("s.zarr/in.nc", "s.zarr"), (source / "in.nc", "s.zarr", "--config", "s.zarr/fields.toml"):
        assert "is inside of s.zarr, which would be replaced" in convert(*arguments, code=2, folder=tmp_path)
    assert (tmp_path / "s.zarr/in.nc").exists()


def test_what_is_no_file_is_refused(source, tmp_path):
    assert "- is no file" in convert(source / "in.nc", "-", code=2, folder=tmp_path)
    assert "/dev/null is no file" in convert(source / "in.nc", "/dev/null", code=2, folder=tmp_path)
    assert "- is no file" in convert("-", "out.nc", code=2, folder=tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is no file" in convert("pipe", "out.nc", code=2, folder=tmp_path)
    convert(source / "in.nc", tmp_path / "s.zarr")
    assert "can be an output only" in convert("s.zarr", "out.nc", code=3, folder=tmp_path)
    np.save(tmp_path / "x.npy", np.zeros(3))
    pumice.save(tmp_path / "x.pum", np.zeros(100, "f4"), abs=1)
    (tmp_path / "empty").write_bytes(b"")
    for name, expected in ("x.npy", "`pumice compress"), ("x.pum", "`pumice decompress"), ("empty", "empty is empty"):
        assert expected in convert(name, "out.nc", code=3, folder=tmp_path)
    assert not (tmp_path / "out.nc").exists() and not (tmp_path / "-").exists()


def test_deep_groups_are_refused(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w", libver="latest") as file:
        group = file
        for _ in range(5000):
            group = group.create_group("g")
    assert "nested deeper than 256" in convert("in.h5", "out.h5", code=3, folder=tmp_path)
    ended = subprocess.run(["pumice", "info", "in.h5"], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 3 and "nested deeper than 256" in ended.stderr


def test_too_many_threads_are_not_started(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["x"] = waves(3000, 1024)
    # 4 GiB of addresses, which thousands of stacks would exceed.
    command = ["sh", "-c", "ulimit -v 4194304; exec pumice convert in.h5 out.h5 --abs 1e-3 --chunks 1,1024 --threads 3000"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
