"""A pickled dictionary with one array. Nothing but numpy's arrays is made: all other classes become `Ignored`."""

import pickle


class Ignored:
    def __init__(self, *_):
        pass


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        import numpy as np

        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in ("_reconstruct", "scalar"):
            return getattr(np._core.multiarray, name)
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        return Ignored


def pickled(key):
    def read(path):
        with open(path, "rb") as file:
            return Unpickler(file).load()[key]

    return read
