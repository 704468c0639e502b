"""Unformatted Fortran files: records between two copies of their length in bytes."""

import struct

# Positions in the header of a PP field, counted from 0: rows, columns, packing, STASH code.
LBROW, LBNPT, LBPACK, STASH = 17, 18, 20, 41


def fast_food(coordinate):
    """A coordinate from a catalogue in Corrfunc's format: a record of five integers, the second of which is the number
    of points, one of nine reals, the redshift, then x, y and z."""

    def read(path):
        import numpy as np

        contents = list(records(path.read_bytes(), "<"))
        n_points = struct.unpack_from("<5i", contents[0])[1]
        values = contents[3 + "xyz".index(coordinate)]
        return np.frombuffer(values, f"<f{len(values) // n_points}")

    return read


def pp(stash, *outer):
    """The fields of one STASH code from a PP file of the Met Office, in the order of the file, shaped by `outer` axes:
    each is a record of header (45 integers and 19 reals) and one of values, which extra data may follow."""

    def read(path):
        import numpy as np

        contents, fields = records(path.read_bytes(), ">"), []
        for header, values in zip(contents, contents):
            words = struct.unpack_from(">45i", header)
            if words[STASH] != stash:
                continue
            if words[LBPACK] % 10:
                raise ValueError(f"{path}: a packed field")
            shape = words[LBROW], words[LBNPT]
            fields.append(np.frombuffer(values, ">f4", shape[0] * shape[1]).reshape(shape))
        return np.stack(fields).reshape(*outer, *fields[0].shape)

    return read


def records(data, order):
    """The contents of each record; `order` is the byte order of the lengths."""
    offset = 0
    while offset < len(data):
        (n_bytes,) = struct.unpack_from(order + "i", data, offset)
        end = offset + 4 + n_bytes
        if n_bytes < 0 or data[end : end + 4] != data[offset : offset + 4]:
            raise ValueError(f"the Fortran record at byte {offset} ends with another length than it starts with")
        yield data[offset + 4 : end]
        offset = end + 4
