"""mpi4py writes and reads arrays by MPI-IO and gathers them; h5py writes a file by parallel HDF5. Usage: arrays.py FOLDER BOUND"""

import sys

import numpy as np
from mpi4py import MPI

import h5py

folder, bound = sys.argv[1], float(sys.argv[2])
world = MPI.COMM_WORLD
rank, n_ranks = world.rank, world.size


def field(first, n):
    """So many rows of the array."""
    y, x = np.mgrid[first : first + n, 0:80]
    return np.sin(y * 0.05) * np.cos(x * 0.03).astype("f4")


n_rows = 30 + rank
first = world.exscan(n_rows) or 0
all_rows = world.allreduce(n_rows)
mine = np.ascontiguousarray(field(first, n_rows), dtype="f4")

# Slabs, as in the tutorial of mpi4py.
name = f"{folder}/slabs.f32"
file = MPI.File.Open(world, name, MPI.MODE_WRONLY | MPI.MODE_CREATE)
file.Write_at_all(first * 80 * 4, mine)
file.Close()
file = MPI.File.Open(world, name, MPI.MODE_RDONLY)
assert file.Get_size() == all_rows * 80 * 4
read = np.empty((all_rows, 80), "f4")
status = MPI.Status()
file.Iread_at(0, read).Wait(status)
assert status.Get_count(MPI.FLOAT) == read.size
assert np.abs(read - field(0, all_rows).astype("f4")).max() <= bound
file.Close()

# Columns by turns, as in the tutorial: each rank every n-th.
name = f"{folder}/turns.f32"
file = MPI.File.Open(world, name, MPI.MODE_WRONLY | MPI.MODE_CREATE)
turns = MPI.FLOAT.Create_vector(100, 1, n_ranks).Commit()
file.Set_view(4 * rank, MPI.FLOAT, turns)
file.Write_all(np.arange(100, dtype="f4") * n_ranks + rank)
file.Close()
turns.Free()
file = MPI.File.Open(world, name, MPI.MODE_RDONLY)
read = np.empty(100 * n_ranks, "f4")
file.Read_all(read)
assert np.abs(read - np.arange(100 * n_ranks)).max() <= bound
file.Close()

# As many rows as each rank has.
counts = world.gather(mine.size)
gathered = np.empty((all_rows, 80), "f4") if rank == 0 else None
world.Gatherv(mine, [gathered, counts] if rank == 0 else None)
if rank == 0:
    assert np.abs(gathered - field(0, all_rows).astype("f4")).max() <= bound

# HDF5 writes what is not an array: it is left as it is.
with h5py.File(f"{folder}/field.h5", "w", driver="mpio", comm=world) as file:
    dataset = file.create_dataset("field", (all_rows, 80), "f4")
    dataset[first : first + n_rows] = mine
with h5py.File(f"{folder}/field.h5", "r", driver="mpio", comm=world) as file:
    assert (file["field"][first : first + n_rows] == mine).all()
