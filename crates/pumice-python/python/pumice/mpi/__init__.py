"""Arrays that the ranks of an MPI program share out: one file of all ranks, and values that are compressed on their way.

Works with communicators of mpi4py and arrays of NumPy. Needs libpumice_mpi, which is made for the MPI library of the machine:
see docs/mpi.md. All functions are collective, if nothing else is said: all ranks call them, with the same arguments but for
their own boxes and values. If a rank fails, all ranks raise an exception; none waits for it.

::

    from mpi4py import MPI
    import numpy as np, pumice.mpi
    world = MPI.COMM_WORLD
    mine = np.full((10, 50), world.rank, "float32")
    n = pumice.mpi.write(world, "field.pum", (10 * world.size, 50), [((10 * world.rank, 0), mine)], rel=1e-3)
    with pumice.mpi.open(world, "field.pum") as file:
        row = file.read_all((slice(world.rank, world.rank + 1), slice(None)))
"""

from ._files import File, Writer, Writing, iwrite, open, write
from ._library import Wire
from ._messages import Sum, Transfer, allgather, allreduce, alltoall, bcast, gather, recv, reduce_scatter, scatter, send

__all__ = [
    "File",
    "Sum",
    "Transfer",
    "Wire",
    "Writer",
    "Writing",
    "allgather",
    "allreduce",
    "alltoall",
    "bcast",
    "gather",
    "iwrite",
    "open",
    "recv",
    "reduce_scatter",
    "scatter",
    "send",
    "write",
]
