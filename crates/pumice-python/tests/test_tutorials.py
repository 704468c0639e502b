"""Every code block of every tutorial in docs/tutorials is run."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "docs" / "tutorials"
# Its blocks are C, which crates/pumice-capi compiles and runs.
OWN_RUNNER = {"c.md"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_tutorial(path, tmp_path):
    if path.name in OWN_RUNNER:
        pytest.skip("has a runner of its own")
    for name in re.findall(r"^<!-- requires: (\w+) -->$", path.read_text(), re.MULTILINE):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"the Python package {name} is not installed here")
    # In a process of its own: tutorials start clusters and load libraries.
    runner = Path(__file__).with_name("run_tutorial.py")
    ended = subprocess.run([sys.executable, runner, path], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(re.search(r"(\d+) blocks", ended.stdout)[1]) > 0


def test_the_tutorials_are_there():
    assert {"hdf5.md", "numpy.md", "pytorch.md", "xarray-netcdf.md", "zarr-dask.md"} <= {path.name for path in FOLDER.glob("*.md")}
