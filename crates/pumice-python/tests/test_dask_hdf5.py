"""The HDF5 filter on workers that were started by a process that has not imported `pumice`."""

import os
import subprocess
import sys

import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("distributed")

import numpy as np  # noqa: E402

import pumice  # noqa: E402

SCRIPT = """
import sys
from distributed import Client, LocalCluster

def read(path):
    import h5py
    with h5py.File(path) as file:
        return float(file["t"][...].mean())

if __name__ == "__main__":
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(1)
        if sys.argv[2] == "plugin":
            try:
                client.submit(read, sys.argv[1]).result()
            except OSError:
                print("unknown")
            import pumice.dask
            client.register_plugin(pumice.dask.HDF5Filter())
        print(client.submit(read, sys.argv[1], pure=False).result())
"""


@pytest.mark.parametrize("way", ["plugin", "preload"])
def test_workers_that_were_started_before_learn_the_filter(tmp_path, way):
    data = np.linspace(0, 1, 4000, dtype="f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t", data=data, chunks=(1000,), **pumice.hdf5(abs=1e-3))
    (tmp_path / "client.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
    if way == "preload":
        environment["DASK_DISTRIBUTED__WORKER__PRELOAD"] = "pumice"
    ended = subprocess.run(
        [sys.executable, tmp_path / "client.py", tmp_path / "a.h5", way],
        capture_output=True, text=True, env=environment, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    *before, mean = ended.stdout.split()
    assert abs(float(mean) - 0.5) <= 1e-3
    assert before == (["unknown"] if way == "plugin" else [])
