"""Ranks share out a field, write it to one file together, read it back, gather it and add up a vector.

Run by: mpirun -n 4 python mpi_field.py
"""

import os

import numpy as np
from mpi4py import MPI

import pumice.mpi

world = MPI.COMM_WORLD
shape, bound = (36, 40), 1e-3
y, x = np.indices(shape)
field = (280 + 10 * np.sin(0.1 * x) * np.cos(0.08 * y)).astype("float32")

# Each rank has some rows.
rows = slice(world.rank * shape[0] // world.size, (world.rank + 1) * shape[0] // world.size)
n_bytes = pumice.mpi.write(world, "field.pum", shape, [((rows.start, 0), field[rows])], abs=bound, attributes={"units": "K"})
if world.rank == 0:
    print(f"{world.size} ranks: {field.nbytes} bytes of values became {n_bytes}")
    # Any program reads the file, with MPI or without.
    assert pumice.info("field.pum")["attributes"] == {"units": "K"}

# Each reads some columns, with all others, and then one row alone.
columns = slice(world.rank * shape[1] // world.size, (world.rank + 1) * shape[1] // world.size)
with pumice.mpi.open(world, "field.pum") as file:
    mine = file.read_all((slice(None), columns))
    assert np.abs(mine.astype("float64") - field[:, columns]).max(initial=0) <= bound
    row = file.read((slice(7, 8), slice(None)))
    assert np.abs(row.astype("float64") - field[7]).max() <= bound

# The values of all ranks on one, compressed on their way.
gathered = pumice.mpi.gather(world, field[rows], wire="compressed", abs=bound)
if gathered.values is not None:
    assert np.abs(gathered.values.reshape(shape).astype("float64") - field).max() <= bound

# A sum that has the same bits on all ranks, with an error of at most the bound.
total = pumice.mpi.allreduce(world, (world.rank + 1) * np.linspace(0, 1, 1000), abs=bound, total=True)
exact = world.size * (world.size + 1) / 2 * np.linspace(0, 1, 1000)
assert np.abs(total.values - exact).max() <= bound + 1e-12

world.Barrier()
if world.rank == 0:
    os.remove("field.pum")
