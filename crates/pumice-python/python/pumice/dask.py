"""The HDF5 filter on the workers of a Dask cluster.

A worker that was started by a process that had imported `pumice` has the filter. One that was started otherwise, such as
by ``dask worker``, does not know it until `pumice` is imported there, which this plugin does on all workers of a
cluster, and on those that join it later::

    client.register_plugin(pumice.dask.HDF5Filter())

Without any code, ``dask worker --preload pumice`` does the same, or ``DASK_DISTRIBUTED__WORKER__PRELOAD=pumice`` in the
environment of the workers. Codecs of Zarr and numcodecs need neither: they are found by entry points.
"""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from . import hdf5

__all__ = ["HDF5Filter"]


class HDF5Filter(WorkerPlugin):
    """Makes the filter known to the HDF5 libraries of each worker."""

    name = "pumice-hdf5-filter"
    idempotent = True

    def setup(self, worker: Any) -> None:
        hdf5.register()
