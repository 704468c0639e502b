"""PETSc writes a vector in its binary format by MPI-IO, and reads it again. Usage: vectors.py FOLDER BOUND"""

import sys

import numpy as np
from petsc4py import PETSc

folder, bound = sys.argv[1], float(sys.argv[2])
n = 20000
vector = PETSc.Vec().createMPI(n)
first, end = vector.getOwnershipRange()
expected = np.sin(np.arange(first, end) * 1e-3)
vector.setArray(expected)


def viewer(mode):
    viewer = PETSc.Viewer().create()
    viewer.setType(PETSc.Viewer.Type.BINARY)
    viewer.setFileMode(mode)
    PETSc.Options()["viewer_binary_mpiio"] = True
    viewer.setFromOptions()
    viewer.setFileName(f"{folder}/vector.petsc")
    return viewer


output = viewer("w")
vector.view(output)
output.destroy()
read = PETSc.Vec().createMPI(n)
source = viewer("r")
read.load(source)
source.destroy()
error = np.abs(read.getArray() - expected).max()
assert error <= bound, error
assert PETSc.COMM_WORLD.getSize() == 1 or read.getLocalSize() < n
