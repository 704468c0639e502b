"""GTX, the grids of vertical datums: 40 bytes of header (four f64, rows, columns), then big-endian f32."""

import struct


def gtx(path):
    import numpy as np

    data = path.read_bytes()
    rows, columns = struct.unpack_from(">ii", data, 32)
    return np.frombuffer(data, ">f4", rows * columns, offset=40).reshape(rows, columns)
