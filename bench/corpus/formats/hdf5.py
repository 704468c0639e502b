"""HDF5: one dataset, or several of the same shape stacked along a new first axis."""


def hdf5(*datasets):
    def read(path):
        import h5py
        import numpy as np

        with h5py.File(path) as file:
            arrays = [file[name][...] for name in datasets]
        return arrays[0] if len(arrays) == 1 else np.stack(arrays)

    return read
