"""Headerless values, and numpy's own files."""


def raw(dtype, *shape):
    """Values without a header, in C order."""

    def read(path):
        import numpy as np

        return np.fromfile(path, dtype).reshape(shape)

    return read


def npy(path):
    import numpy as np

    return np.load(path, mmap_mode="r", allow_pickle=False)


def npz(member, transposed=False):
    def read(path):
        import numpy as np

        values = np.load(path, allow_pickle=False)[member]
        return values.T if transposed else values

    return read
