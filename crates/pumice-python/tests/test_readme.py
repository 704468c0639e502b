"""Runs the code of the README files unchanged, with the names and files that it assumes."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from run_tutorial import BLOCK, run_shell

import pumice

ROOT = Path(__file__).parents[3]
BLOCKS = [block.groups() for block in BLOCK.finditer((ROOT / "README.md").read_text())]
SHAPE = (30, 192, 288)


@pytest.fixture
def t(tmp_path, monkeypatch):
    """The array of the README, which is also a file in the current folder."""
    monkeypatch.chdir(tmp_path)
    z, y, x = np.meshgrid(*(np.linspace(0, 3, n, dtype="float32") for n in SHAPE), indexing="ij")
    t = 280 + 20 * np.sin(2 * x + y) * np.cos(y - z)
    t.tofile("t_30x192x288.f32")
    pumice.save("t.pum", t, rel=1e-3)
    return t


def test_every_block_is_run_somewhere():
    # The first installs Pumice. Rust is a doctest of crates/pumice, C is compiled by `cargo xtask test-c`.
    assert [kind for kind, _ in BLOCKS] == ["sh", "sh", "rust", "python", "python", "sh", "c"]


@pytest.mark.skipif(shutil.which("pumice") is None, reason="the command-line tool is not on the path")
def test_the_command_line(t):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("netCDF4")
    xarray.Dataset({"t": (("z", "y", "x"), t)}).to_netcdf("in.nc", engine="netcdf4")
    Path("fields.toml").write_text('[[field]]\nname = "t"\nabs = 0.01\n')
    run_shell(BLOCKS[1][1] + BLOCKS[5][1])
    assert np.load("part.npy").shape == (10, 192, 4)
    assert os.path.getsize("out.nc") < os.path.getsize("in.nc") / 4


def test_python(t):
    code = BLOCKS[3][1]
    names = {"pumice": pumice, "t": t}
    exec(code, names)
    call, shown = re.search(r"^(pumice\.check.*?) +# (.*)…$", code, re.MULTILINE).groups()
    assert str(eval(call, names)).startswith(shown)
    call = re.search(r"^pumice\.open.*$", code, re.MULTILINE)[0]
    assert eval(call, names).shape == (4, 192)


def test_hdf5_netcdf_and_zarr(tmp_path, monkeypatch):
    h5py, xarray = pytest.importorskip("h5py"), pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    zarr = pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    t = np.random.default_rng(0).normal(size=(8, 180, 360)).cumsum(axis=2)
    data = xarray.Dataset({"t": (("z", "y", "x"), t)})
    with h5py.File("t.h5", "w") as file:
        exec(BLOCKS[4][1], {"pumice": pumice, "zarr": zarr, "file": file, "data": data, "t": t})
        assert pumice.check(t, file["t"][...], rel=1e-3)["bound_kept"]
    with xarray.open_dataset("t.nc", engine="h5netcdf") as found:
        assert pumice.check(t, found["t"].to_numpy(), abs=0.01)["bound_kept"]
    assert pumice.check(t, zarr.open_array("t.zarr")[...], rel=1e-3)["bound_kept"]


def test_the_page_of_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "README.md").read_text()
    [(kind, code)] = [block.groups() for block in BLOCK.finditer(page)]
    names = {}
    exec(code, names)
    assert kind == "python"
    assert names["row"].shape == (500,)
