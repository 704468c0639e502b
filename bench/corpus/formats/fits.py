"""FITS: the image of one extension. Only what uncompressed images need: headers are cards of 80 characters in blocks
of 2880 bytes, values are big-endian, and the first axis that is named varies fastest."""

BLOCK = 2880
TYPES = {8: ">u1", 16: ">i2", 32: ">i4", -32: ">f4", -64: ">f8"}


def fits(extension):
    def read(path):
        import numpy as np

        data, offset = path.read_bytes(), 0
        while offset < len(data):
            header, offset = read_header(data, offset)
            shape = [int(header[f"NAXIS{i}"]) for i in range(int(header["NAXIS"]), 0, -1)]
            dtype = np.dtype(TYPES[int(header["BITPIX"])])
            n_values = int(np.prod(shape)) if shape else 0
            if header.get("EXTNAME", "").strip("' ") == extension:
                return np.frombuffer(data, dtype, n_values, offset).reshape(shape)
            n_bytes = dtype.itemsize * (n_values + int(header.get("PCOUNT", 0)))
            offset += -(-n_bytes // BLOCK) * BLOCK
        raise ValueError(f"{path}: no extension {extension}")

    return read


def read_header(data, offset):
    """The cards `NAME = value / comment` at an offset, and the offset of what follows."""
    cards = {}
    for i in range(offset, len(data), 80):
        card = data[i : i + 80].decode("ascii")
        if card.rstrip() == "END":
            return cards, offset + -(-(i + 80 - offset) // BLOCK) * BLOCK
        if card[8:10] == "= ":
            cards[card[:8].strip()] = card[10:].split("/")[0].strip()
    raise ValueError("a FITS header without END")
