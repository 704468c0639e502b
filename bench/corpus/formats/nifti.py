"""NIfTI-1, compressed with gzip: the volume without its scaling, axes in the order x, y, z."""

import gzip
import struct

TYPES = {4: "i2", 8: "i4", 16: "f4", 64: "f8"}


def nifti(path):
    import numpy as np

    data = gzip.decompress(path.read_bytes())
    order = "<" if struct.unpack_from("<i", data)[0] == 348 else ">"
    n_dims, *dims = struct.unpack_from(order + "8h", data, 40)
    (datatype,) = struct.unpack_from(order + "h", data, 70)
    (offset,) = struct.unpack_from(order + "f", data, 108)
    shape = dims[:n_dims]
    return np.frombuffer(data, order + TYPES[datatype], int(np.prod(shape)), int(offset)).reshape(shape, order="F")
