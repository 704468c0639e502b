"""TRR, the trajectories of GROMACS: frames of positions, velocities and forces in XDR (big-endian)."""

import struct

MAGIC = 1993
# The sizes in bytes that a frame starts with, in this order.
SIZES = ("ir", "e", "box", "vir", "pres", "top", "sym", "x", "v", "f")


def trr(quantity, scale):
    """`x`, `v` or `f` of all frames that have it, times `scale`, as f32 gives the product: frame, atom, component."""

    def read(path):
        import numpy as np

        data, offset, frames = path.read_bytes(), 0, []
        while offset < len(data):
            magic, _, n_letters = struct.unpack_from(">iii", data, offset)
            if magic != MAGIC:
                raise ValueError(f"{path}: no frame of TRR at byte {offset}")
            offset += 12 + -(-n_letters // 4) * 4
            sizes = dict(zip(SIZES, struct.unpack_from(">10i", data, offset)))
            (n_atoms,) = struct.unpack_from(">i", data, offset + 40)
            width = sizes["box"] // 9
            # After the sizes: number of atoms, step, an unused number, then time and lambda as reals.
            offset += 40 + 12 + 2 * width
            for name in SIZES:
                if name == quantity and sizes[name]:
                    frame = np.frombuffer(data, f">f{width}", 3 * n_atoms, offset)
                    frames.append(frame.reshape(n_atoms, 3))
                offset += sizes[name]
        return np.stack(frames).astype(f"f{width}") * np.dtype(f"f{width}").type(scale)

    return read
