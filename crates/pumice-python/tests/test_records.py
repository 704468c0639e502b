"""The records of `pumice convert`: what they say, and what `pumice info` and `pumice check` find when data were rewritten."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

import pumice

netCDF4 = pytest.importorskip("netCDF4")
h5py = pytest.importorskip("h5py")
xarray = pytest.importorskip("xarray")

if shutil.which("pumice") is None:
    pytest.skip("the command-line tool is not on the path", allow_module_level=True)

SHAPE = 20, 48, 72


def run(*arguments, code=0, folder=None, **environment):
    command, environment = ["pumice", *map(str, arguments)], {**os.environ, **environment}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout if code == 0 else ended.stderr


def checked(*arguments, code=0, folder):
    """The variables that `pumice check` or `info` reports, by name."""
    ended = subprocess.run(["pumice", *map(str, arguments), "--json"], capture_output=True, text=True, cwd=folder)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return {variable["name"]: variable for variable in json.loads(ended.stdout)["variables"]}


def splitmix64(state):
    z = state + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def checksum(values):
    """The checksum of docs/hdf5.md."""
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).ravel()
    bits = values.view(f"<u{values.itemsize}").astype("u8")
    total = splitmix64(splitmix64(np.arange(bits.size, dtype="u8")) ^ bits).sum(dtype="u8")
    return f"splitmix64-sum:{int(total):016x}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    k, y, x = np.ogrid[0 : SHAPE[0], 0 : SHAPE[1], 0 : SHAPE[2]]
    noise = np.random.default_rng(2).standard_normal(SHAPE)
    with netCDF4.Dataset(folder / "in.nc", "w") as file:
        file.history = "yesterday: made"
        for name, n in zip(("time", "lat", "lon"), (None, *SHAPE[1:]), strict=True):
            file.createDimension(name, n)
        for name, kind in ("T", "f4"), ("U", ">f4"), ("P", "f8"):
            variable = file.createVariable(name, kind, ("time", "lat", "lon"), chunksizes=(3, 48, 72), fill_value=1e20)
            variable[:] = np.sin(k / 5 + y / 8) * np.cos(x / 9) + noise / 50
        file["T"][0, :5] = np.ma.masked
        file["T"][1, 0, 0] = np.nan
    (folder / "fields.toml").write_text("[[field]]\nname = '*'\nabs = 0.01\n[[field]]\nname = 'P'\nlossless = true\n")
    run("convert", "in.nc", "out.nc", "--config", "fields.toml", folder=folder, SOURCE_DATE_EPOCH="1000000000")
    run("convert", "in.nc", "out.zarr", "--config", "fields.toml", folder=folder)
    return folder


def test_records_say_what_was_done(folder):
    with netCDF4.Dataset(folder / "out.nc") as file:
        file.set_auto_mask(False)
        assert file["T"].pumice_bound == "abs 0.01" and file["P"].pumice_bound == "lossless"
        assert file["T"].pumice_date == "2001-09-09T01:46:40Z"
        lines = file.history.splitlines()
        assert lines[0].startswith("2001-09-09T01:46:40Z: pumice convert in.nc out.nc --config fields.toml (version ")
        assert lines[1:] == ["yesterday: made"]
        for name in "T", "U", "P":
            assert file[name].pumice_data_checksum == checksum(file[name][:]), name
    with xarray.open_zarr(folder / "out.zarr", mask_and_scale=False) as dataset:
        assert dataset.attrs["history"].endswith("\nyesterday: made")
        for name in "T", "U", "P":
            assert dataset[name].attrs["pumice_data_checksum"] == checksum(dataset[name].values), name
    assert "SOURCE_DATE_EPOCH=soon" in run("convert", "in.nc", "x.nc", code=2, folder=folder, SOURCE_DATE_EPOCH="soon")


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_info_lists_and_check_verifies(folder, name):
    assert all("is_as_recorded" not in variable for variable in checked("info", name, folder=folder).values())
    for arguments in ("info", name, "--verify"), ("check", name), ("check", "in.nc", name):
        variables = checked(*arguments, folder=folder)
        assert list(variables) == (["T", "U", "P"] if name == "out.nc" else ["P", "T", "U"])
        assert all(variable["is_as_recorded"] for variable in variables.values())
    assert variables["T"]["found_max_abs_error"] == variables["T"]["max_abs_error"] > 0 == variables["P"]["found_max_abs_error"]
    text = run("check", "in.nc", name, folder=folder)
    assert "match the record" in text and "found" in text and "abs 0.01" in text
    assert "bounds, fill values and shapes are those of the file" in run("check", "in.nc", name, "--abs", "1", code=2, folder=folder)


def test_lossless_rechunking_keeps_a_record_true(folder, tmp_path):
    with h5py.File(folder / "out.nc") as old, h5py.File(tmp_path / "other.h5", "w") as new:
        for name in "T", "U":
            data = new.create_dataset(name, data=old[name][:], chunks=(1, 7, 72), compression="gzip")
            data.attrs.update({key: value for key, value in old[name].attrs.items() if key.startswith("pumice_")})
    assert all(variable["is_as_recorded"] for variable in checked("check", "other.h5", folder=tmp_path).values())


def rewrite(path, change):
    if path.suffix == ".nc":
        with h5py.File(path, "a") as file:
            change(file["T"])
    else:
        import zarr

        change(zarr.open(path)["T"])


def one_value(array):
    array[2, 10, 10] = array[2, 10, 10] + 0.5


def swap(array):
    array[3:6] = array[3:6][::-1]


def append(array):
    array.resize((SHAPE[0] + 1, *SHAPE[1:]))


@pytest.mark.parametrize("change", [one_value, swap, append])
@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_rewritten_values_are_noticed(folder, tmp_path, name, change):
    pytest.importorskip("zarr")
    copy = tmp_path / name
    shutil.copytree(folder / name, copy) if copy.suffix == ".zarr" else shutil.copy(folder / name, copy)
    rewrite(copy, change)
    variables = checked("check", copy, code=1, folder=tmp_path)
    assert [name for name, variable in variables.items() if not variable["is_as_recorded"]] == ["T"]
    assert "rewritten since" in run("info", copy, "--verify", code=1, folder=tmp_path)
    assert "rewritten" not in run("info", copy, folder=tmp_path)


def test_a_file_that_cannot_be_opened_is_named_once(folder, tmp_path):
    (tmp_path / "short.nc").write_bytes((folder / "out.nc").read_bytes()[:10_000])
    for arguments in ("info", "short.nc"), ("check", "short.nc"), ("check", "short.nc", folder / "out.nc"):
        message = run(*arguments, code=6, folder=tmp_path)
        assert message.count("short.nc") == 1 and "truncated file" in message


def test_a_larger_error_than_recorded_is_noticed(folder, tmp_path):
    shutil.copy(folder / "out.nc", tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc", "a") as file:
        file["T"].pumice_max_abs_error = 1e-4
    assert "larger errors than recorded" in run("check", folder / "in.nc", "out.nc", code=1, folder=tmp_path)
    assert checked("check", "out.nc", folder=tmp_path)["T"]["is_as_recorded"]
    assert "another type or shape" in run("check", "in.nc", "out.nc", code=2, folder=other_shape(tmp_path))
    assert "no variable has a record" in run("check", folder / "in.nc", code=2)
    assert "no variable has a record" in run("info", folder / "in.nc")


def other_shape(folder):
    with netCDF4.Dataset(folder / "in.nc", "w") as file:
        file.createDimension("x", 5)
        for name in "T", "U", "P":
            file.createVariable(name, "f4", ("x",))[:] = 0
    return folder


def test_a_second_conversion_does_not_add_to_a_record_that_is_not_true(folder, tmp_path):
    shutil.copy(folder / "out.nc", tmp_path / "out.nc")
    with h5py.File(tmp_path / "out.nc", "a") as file:
        one_value(file["T"])
    report = json.loads(run("convert", "out.nc", "more.nc", "--abs", "0.1", "--json", folder=tmp_path))
    assert len(report["notes"]) == 1 and report["notes"][0].startswith("T: rewritten since an earlier conversion (abs 0.01)")
    with netCDF4.Dataset(tmp_path / "more.nc") as file:
        assert file["T"].pumice_bound == "abs 0.01, then unknown changes, then abs 0.1"
        assert np.isnan(file["T"].pumice_max_abs_error)
        assert file["U"].pumice_bound == "abs 0.01, then abs 0.1" and 0.01 < file["U"].pumice_max_abs_error <= 0.11
        assert file["P"].pumice_bound == "abs 0.1"
    variables = checked("check", "more.nc", folder=tmp_path)
    assert all(variable["is_as_recorded"] for variable in variables.values()) and variables["T"]["max_abs_error"] is None
    # A lossless conversion keeps a true record, and says of the others what is known.
    run("convert", "out.nc", "same.nc", folder=tmp_path)
    with netCDF4.Dataset(tmp_path / "same.nc") as file:
        assert file["T"].pumice_bound == "abs 0.01, then unknown changes, then lossless"
        assert file["U"].pumice_bound == "abs 0.01" and file["U"].pumice_date == "2001-09-09T01:46:40Z"
    assert checked("check", "same.nc", folder=tmp_path)["T"]["is_as_recorded"]


@pytest.mark.parametrize("checksum", [None, "xxh3:0123456789abcdef"])
def test_a_missing_checksum_proves_nothing(folder, tmp_path, checksum):
    shutil.copy(folder / "out.nc", tmp_path / "out.nc")
    with netCDF4.Dataset(tmp_path / "out.nc", "a") as file:
        del file["T"].pumice_data_checksum
        if checksum:
            file["T"].pumice_data_checksum = checksum
    variables = checked("check", "out.nc", folder=tmp_path)
    assert variables["T"]["is_as_recorded"] is None and variables["U"]["is_as_recorded"]
    assert "not checked: the record has no checksum" in run("info", "out.nc", "--verify", folder=tmp_path)
    # The errors can be compared all the same.
    assert 0 < checked("check", folder / "in.nc", "out.nc", folder=tmp_path)["T"]["found_max_abs_error"] <= 0.01
    # Another conversion does not add to errors of values that may be others.
    report = json.loads(run("convert", "out.nc", "more.nc", "--abs", "0.1", "--json", folder=tmp_path))
    assert len(report["notes"]) == 1 and "T: the record of an earlier conversion (abs 0.01) has no checksum" in report["notes"][0]
    assert np.isnan(netCDF4.Dataset(tmp_path / "more.nc")["T"].pumice_max_abs_error)


def test_the_record_of_a_short_variable_holds_in_zarr(tmp_path):
    values = np.random.default_rng(3).standard_normal((60, 500)).cumsum(-1).astype("f4")
    with netCDF4.Dataset(tmp_path / "short.nc", "w") as file:
        file.createDimension("member", 2), file.createDimension("time", None), file.createDimension("x", 500)
        for name in "whole", "short", "kept":
            variable = file.createVariable(name, "f4", ("member", "time", "x"), chunksizes=(1, 10, 500), fill_value=1e20)
            variable[:, : 60 if name == "whole" else 40] = values[None, : 60 if name == "whole" else 40]
    run("convert", "short.nc", "one.nc", "--abs", "0.01", folder=tmp_path)
    (tmp_path / "fields.toml").write_text("[[field]]\nname = 'kept'\nkeep = true\n")
    for bounds, bound in (("--abs", "0.02"), "abs 0.01, then abs 0.02"), ((), "abs 0.01"):
        report = json.loads(run("convert", "one.nc", "two.zarr", *bounds, "--config", "fields.toml", "--json", folder=tmp_path))
        assert report["notes"] == []
        variables = checked("check", "two.zarr", folder=tmp_path)
        assert {name: variable["bound"] for name, variable in variables.items()} == {"whole": bound, "short": bound, "kept": "abs 0.01"}
        assert all(variable["is_as_recorded"] for variable in variables.values())


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_fill_values_that_a_rule_replaces_are_ordinary(tmp_path, name):
    values = np.round(np.random.default_rng(4).standard_normal((200, 300)).cumsum(-1)).astype("f4") + np.float32(0.4)
    values[::3, ::5] = 5
    with netCDF4.Dataset(tmp_path / "in.nc", "w") as file:
        file.createDimension("y", 200), file.createDimension("x", 300)
        variable = file.createVariable("v", "f4", ("y", "x"))
        variable.missing_value = np.float32(5)
        variable.set_auto_mask(False)
        variable[:] = values
    (tmp_path / "fields.toml").write_text("[[field]]\nname = 'v'\nabs = 0.3\nfill = -999\n")
    run("convert", "in.nc", name, "--config", "fields.toml", folder=tmp_path)
    found = checked("check", "in.nc", name, folder=tmp_path)["v"]
    assert found["n_mismatched_special"] == 0 and found["found_max_abs_error"] == found["max_abs_error"] > 0
    if name == "out.nc":
        # What both conversions keep: no value. The next one starts from values without loss, and has the declared one.
        run("convert", "out.nc", "two.nc", "--abs", "0.1", folder=tmp_path)
        assert checked("check", "in.nc", "two.nc", folder=tmp_path)["v"]["n_mismatched_special"] == 0
        with h5py.File(tmp_path / "out.nc", "a") as file:
            del file["v"].attrs["pumice_fill_values"]
        assert "changed NaN, infinite or fill values" in run("check", "in.nc", name, code=1, folder=tmp_path)


def packed(folder):
    with netCDF4.Dataset(folder / "in.nc", "w") as file:
        file.createDimension("y", 200), file.createDimension("x", 300)
        variable = file.createVariable("v", "f4", ("y", "x"))
        variable.set_auto_maskandscale(False)
        variable.scale_factor, variable.add_offset = 0.1, 3.0
        variable[:] = np.random.default_rng(6).standard_normal((200, 300)).cumsum(-1)


@pytest.mark.parametrize("name", ["out.nc", "out.zarr"])
def test_records_cover_the_packing(tmp_path, name):
    pytest.importorskip("zarr")
    packed(tmp_path)
    run("convert", "in.nc", name, "--abs", "0.01", folder=tmp_path)
    found = checked("check", "in.nc", name, folder=tmp_path)["v"]
    assert found["is_as_recorded"] and found["is_packed_alike"]

    def repack(array):
        array.attrs["scale_factor"] = 10.0

    copy = tmp_path / f"copy-{name}"
    shutil.copytree(tmp_path / name, copy) if copy.suffix == ".zarr" else shutil.copy(tmp_path / name, copy)
    if name == "out.nc":
        with h5py.File(copy, "a") as file:
            repack(file["v"])
    else:
        import zarr

        repack(zarr.open(copy)["v"])
    assert checked("check", copy, code=1, folder=tmp_path)["v"]["is_as_recorded"] is False
    # An original that is packed in another way.
    with h5py.File(tmp_path / "in.nc", "a") as file:
        repack(file["v"])
    found = checked("check", "in.nc", name, code=1, folder=tmp_path)["v"]
    assert found["is_as_recorded"] and found["is_packed_alike"] is False
    if name == "out.nc":
        report = json.loads(run("convert", copy, "more.nc", "--abs", "0.1", "--json", folder=tmp_path))
        assert report["notes"][0].startswith("v: rewritten since")
        # The record of values that are no longer packed does not speak of packed ones.
        with h5py.File(copy, "a") as file:
            del file["v"].attrs["scale_factor"], file["v"].attrs["add_offset"]
        run("convert", copy, "plain.nc", "--abs", "0.1", folder=tmp_path)
        with h5py.File(tmp_path / "plain.nc") as file:
            assert "pumice_packing" not in file["v"].attrs
        assert checked("check", "plain.nc", folder=tmp_path)["v"]["is_as_recorded"]


def test_lossless_records_of_packed_values_start_anew(tmp_path):
    packed(tmp_path)
    run("convert", "in.nc", "same.nc", folder=tmp_path)
    run("convert", "same.nc", "out.nc", "--abs", "0.01", folder=tmp_path)
    with netCDF4.Dataset(tmp_path / "same.nc") as same, netCDF4.Dataset(tmp_path / "out.nc") as out:
        assert same["v"].pumice_bound == "lossless" and out["v"].pumice_bound == "abs 0.01, of unpacked values"
        assert 0 < out["v"].pumice_max_abs_error <= 0.01


def test_what_cannot_be_read_does_not_hide_the_rest(folder, tmp_path):
    for name in "out.nc", "out.zarr":
        copy = tmp_path / name
        shutil.copytree(folder / name, copy) if copy.suffix == ".zarr" else shutil.copy(folder / name, copy)
        if name == "out.nc":
            with h5py.File(copy) as file:
                chunk = file["T"].id.get_chunk_info(0)
            path, place = copy, chunk.byte_offset + chunk.size // 2
        else:
            path = copy / "T/c/0/0/0"
            place = path.stat().st_size // 2
        data = bytearray(path.read_bytes())
        data[place] ^= 255
        path.write_bytes(data)
        for command in ("check", name), ("info", name, "--verify"), ("check", folder / "in.nc", name):
            variables = checked(*command, code=4, folder=tmp_path)
            assert "wrong checksum" in variables["T"]["not_checked"] and "recover" not in variables["T"]["not_checked"]
            assert variables["T"]["is_as_recorded"] is None and variables["U"]["is_as_recorded"] and variables["P"]["is_as_recorded"]
        assert "T: " in run("check", name, code=4, folder=tmp_path)


def store(folder, shape, chunk, codecs=("bytes",)):
    """A store of one array with a record, without chunks."""
    codecs = [{"name": name} if isinstance(name, str) else name[0] for name in codecs]
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0.0,
        "codecs": codecs,
        "attributes": {"pumice_bound": "abs 1", "pumice_data_checksum": "splitmix64-sum:0123456789abcdef"},
    }
    (folder / "x").mkdir(parents=True)
    (folder / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group"}))
    (folder / "x/zarr.json").write_text(json.dumps(document))
    return folder


def limited(limit, *arguments, folder):
    """Exit code and errors of a command that ends within a minute, under a limit of the shell."""
    command = ["sh", "-c", f'{limit}; exec pumice "$@"', "sh", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
    return ended.returncode, ended.stderr


def test_hostile_stores_end_with_an_error(tmp_path):
    store(tmp_path / "large.zarr", [1 << 32], [1 << 32])
    code, message = limited("ulimit -v 4194304", "check", "large.zarr", folder=tmp_path)
    assert code == 7 and "the system has no memory" in message
    store(tmp_path / "many.zarr", [10**12], [1])
    code, message = limited("true", "check", "many.zarr", folder=tmp_path)
    assert code == 7 and "so many chunks are missing" in message
    (store(tmp_path / "pipe.zarr", [4], [4]) / "x/c").mkdir()
    os.mkfifo(tmp_path / "pipe.zarr/x/c/0")
    code, message = limited("true", "check", "pipe.zarr", folder=tmp_path)
    assert code == 4 and "is not a file" in message
    (store(tmp_path / "long.zarr", [4], [4]) / "x/c").mkdir()
    for name in "x/c/0", "zarr.json":
        os.truncate(os.open(tmp_path / "long.zarr" / name, os.O_CREAT | os.O_WRONLY), 1 << 40)
        code, message = limited("true", "check", "long.zarr", folder=tmp_path)
        assert code == 4 and "more than it can need" in message
    store(tmp_path / "codecs.zarr", [4], [4], ("bytes", ["x"]))
    code, message = limited("true", "check", "codecs.zarr", folder=tmp_path)
    assert code == 3 and "codecs (bytes, x)" in message


def test_codecs_that_are_not_read_are_named(folder, tmp_path):
    zarr = pytest.importorskip("zarr")
    shutil.copytree(folder / "out.zarr", tmp_path / "out.zarr")
    with xarray.open_zarr(folder / "out.zarr", mask_and_scale=False) as dataset:
        values, attributes = dataset["T"].values, dict(dataset["T"].attrs)
    for compressors, code in ((zarr.codecs.GzipCodec(),), 0), ((zarr.codecs.ZstdCodec(),), 3), (None, 0):
        array = zarr.create_array(tmp_path / "out.zarr/T", data=values, chunks=(7, 10, 72), compressors=compressors, overwrite=True)
        array.attrs.update(attributes)
        variables = checked("check", "out.zarr", code=code, folder=tmp_path)
        assert variables["T"]["is_as_recorded"] is (None if code else True)
    chunk = tmp_path / "out.zarr/U/c/0/0/0"
    chunk.write_bytes(chunk.read_bytes()[:-100])
    assert "U: " in run("check", "out.zarr", code=5, folder=tmp_path)
    (tmp_path / "out.zarr/U/zarr.json").write_text("{")
    assert "zarr.json" in run("info", "out.zarr", code=4, folder=tmp_path)
    assert "--verify is for results of" in run("info", compressed(tmp_path), "--verify", code=2)


def compressed(folder):
    pumice.save(folder / "x.pum", np.zeros(100, "f4"), abs=1)
    return folder / "x.pum"
