"""Ranks of MPI that write one dataset together with `pumice.hdf5.write_chunks`: mpirun -n 3 python ranks_chunks.py FOLDER."""

import sys
from pathlib import Path

import h5py
import numpy as np
from mpi4py import MPI

import pumice

SHAPE, CHUNKS = (45, 33), (8, 11)
COMM = MPI.COMM_WORLD


def create(path, **options):
    """The dataset on rank 0, and None elsewhere."""
    if COMM.rank > 0:
        return None, None
    file = h5py.File(path, "w")
    return file, file.create_dataset("t", SHAPE, "<f4", chunks=CHUNKS, fillvalue=-1.0, **pumice.hdf5(rel=1e-3), **options)


def stored(path):
    with h5py.File(path) as file:
        places = [file["t"].id.get_chunk_info(i).chunk_offset for i in range(file["t"].id.get_num_chunks())]
        return {place: file["t"].id.read_direct_chunk(place) for place in places}


def refused(kind, message, *arguments, **options):
    try:
        pumice.hdf5.write_chunks(*arguments, comm=COMM, **options)
    except kind as error:
        assert message in str(error), error
        # The same on all ranks.
        assert len(set(COMM.allgather(str(error)))) == 1
    else:
        raise AssertionError(f"no error: {message}")


def main():
    folder = Path(sys.argv[1])
    row, column = np.meshgrid(np.arange(45.0), np.arange(33.0), indexing="ij")
    data = (np.sin(row / 7) + np.cos(column / 5)).astype("f4")
    data[3, 4], data[40, 20:25] = np.nan, -1.0
    # Six rows of chunks: with more ranks than 6 some have none, and the last is cut at the edge.
    first, end = (min(8 * (6 * rank // COMM.size), 45) for rank in (COMM.rank, COMM.rank + 1))
    own = data[first:end]

    file, dataset = create(folder / "together.h5")
    pumice.hdf5.write_chunks(dataset, own, (first, 0), threads=2, comm=COMM)
    if file:
        file.close()
    file, dataset = create(folder / "alone.h5")
    if file:
        dataset[...] = data
        file.close()
        assert stored(folder / "together.h5") == stored(folder / "alone.h5")

    # The last rank is wrong, and all learn it.
    file, dataset = create(folder / "refused.h5")
    is_last = COMM.rank == COMM.size - 1
    refused(pumice.InvalidArgumentError, "borders of chunks", dataset, own[:-1] if is_last else own, (first, 0))
    if COMM.size > 1:
        refused(pumice.InvalidArgumentError, "both give the chunk at (0, 0)", dataset, data[:8])
    refused(pumice.InvalidArgumentError, "threads", dataset, own, (first, 0), threads=0 if is_last else 1)
    refused(pumice.PumiceError, "rank 0", "no dataset", own, (first, 0))
    if file:
        assert dataset.id.get_num_chunks() == 0
        file.close()

    # Parallel HDF5 is for the filter: it cannot write chunks directly.
    if h5py.get_config().mpi:
        with h5py.File(folder / "mpio.h5", "w", driver="mpio", comm=COMM) as file:
            dataset = file.create_dataset("t", SHAPE, "<f4", chunks=CHUNKS, **pumice.hdf5(rel=1e-3))
            refused(pumice.UnsupportedError, "driver='mpio'", dataset, own, (first, 0))
    if COMM.rank == 0:
        print(f"{COMM.size} ranks wrote the bytes of the filter")


if __name__ == "__main__":
    main()
