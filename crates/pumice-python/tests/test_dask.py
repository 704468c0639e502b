"""Dask arrays, compressed chunk by chunk by the workers of a cluster, and xarray on top of them."""

import os

import dask.array
import numpy as np
import pytest
import xarray
import zarr
from distributed import Client, LocalCluster

import pumice
from pumice.numcodecs import Pumice
from pumice.zarr import PumiceCodec


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client


def test_a_store_written_by_xarray_and_two_workers_is_read_by_zarr(client, field, tmp_path):
    data = dask.array.from_array(field, chunks=(10, 60, 50))
    set_ = xarray.Dataset(
        {"t": (("z", "y", "x"), data, {"units": "K"}), "p": (("z", "y", "x"), 100 * data)},
        coords={"z": np.arange(40.0)},
    )
    encoding = {
        "t": {"serializer": PumiceCodec(abs=1e-3), "compressors": None},
        "p": {"serializer": PumiceCodec(pwrel=1e-2), "compressors": None},
    }
    set_.to_zarr(tmp_path / "set.zarr", encoding=encoding, zarr_format=3, consolidated=False)
    group = zarr.open_group(tmp_path / "set.zarr", mode="r")
    assert group["t"].chunks == (10, 60, 50)
    assert pumice.check(field, group["t"][...], abs=1e-3)["bound_kept"]
    assert pumice.check(100 * field, group["p"][...], pwrel=1e-2)["bound_kept"]
    assert np.array_equal(group["z"][...], np.arange(40.0))
    again = xarray.open_zarr(tmp_path / "set.zarr", consolidated=False)
    assert again.t.attrs["units"] == "K"
    assert float(np.abs(again.t.mean() - field.mean())) <= 1e-3


def test_format_2_by_two_workers(client, field, tmp_path):
    data = dask.array.from_array(field, chunks=(10, 60, 50))
    set_ = xarray.Dataset({"t": (("z", "y", "x"), data)})
    encoding = {"t": {"compressors": [Pumice(abs=1e-3)]}}
    set_.to_zarr(tmp_path / "set.zarr", encoding=encoding, zarr_format=2, consolidated=False)
    assert pumice.check(field, zarr.open_array(tmp_path / "set.zarr" / "t")[...], abs=1e-3)["bound_kept"]


def test_workers_read_parts_of_one_file(client, field, tmp_path):
    pumice.save(tmp_path / "x.pum", field, abs=1e-3, chunk_shape=(10, 60, 50))
    lazy = dask.array.from_array(pumice.open(tmp_path / "x.pum"), chunks=(10, 60, 50))
    assert np.array_equal(lazy.max(axis=0).compute(), pumice.open(tmp_path / "x.pum")[...].max(axis=0))


def test_chunks_are_compressed_on_the_workers(client, field):
    data = dask.array.from_array(field, chunks=(10, 60, 50))

    def one(block):
        out = np.empty((1, 1, 1), dtype=object)
        out[0, 0, 0] = (os.getpid(), pumice.compress(block, abs=1e-3))
        return out

    found = data.map_blocks(one, dtype=object, chunks=(1, 1, 1)).compute().ravel()
    assert os.getpid() not in {pid for pid, _ in found}
    parts = np.concatenate([pumice.decompress(data) for _, data in found])
    assert pumice.check(field, parts, abs=1e-3)["bound_kept"]
