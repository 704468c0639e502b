"""The readers, on files that the tests write themselves."""

import gzip
import pickle
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

from .formats.binary import npy, npz, raw
from .formats.fits import BLOCK, fits
from .formats.fortran import fast_food, pp
from .formats.gtx import gtx
from .formats.hdf5 import hdf5
from .formats.netcdf import netcdf
from .formats.nifti import nifti
from .formats.pickled import Ignored, Unpickler, pickled
from .formats.trr import trr


def record(content, order):
    length = struct.pack(order + "i", len(content))
    return length + content + length


def header(*cards):
    text = "".join(card.ljust(80) for card in (*cards, "END"))
    return text.ljust(-(-len(text) // BLOCK) * BLOCK).encode()


class Formats(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "file"
        self.values = np.arange(24, dtype="f4").reshape(2, 3, 4)

    def assert_reads(self, read, expected, content=None):
        if content is not None:
            self.path.write_bytes(content)
        np.testing.assert_array_equal(read(self.path), expected)

    def test_raw_values(self):
        self.assert_reads(raw("<f4", 2, 3, 4), self.values, self.values.tobytes())

    def test_numpy_files(self):
        with open(self.path, "wb") as file:
            np.save(file, self.values)
        self.assert_reads(npy, self.values)
        with open(self.path, "wb") as file:
            np.savez(file, data=self.values[0])
        self.assert_reads(npz("data", transposed=True), self.values[0].T)

    def test_gtx(self):
        content = struct.pack(">4d2i", 0, 0, 1, 1, 3, 4) + self.values[0].astype(">f4").tobytes()
        self.assert_reads(gtx, self.values[0], content)

    def test_fits_finds_the_extension(self):
        image = self.values[0].astype(">f4").tobytes().ljust(BLOCK, b"\0")
        axes = ("BITPIX  = -32 / f32", "NAXIS   = 2", "NAXIS1  = 4", "NAXIS2  = 3")
        other = header(*axes, "EXTNAME = 'ERR     '") + image
        wanted = header(*axes, "EXTNAME = 'SCI     ' / science") + image
        content = header("BITPIX  = 8", "NAXIS   = 0") + other + wanted
        self.assert_reads(fits("SCI"), self.values[0], content)
        with self.assertRaisesRegex(ValueError, "no extension DQ"):
            fits("DQ")(self.path)

    def test_nifti_has_x_first(self):
        content = bytearray(352)
        struct.pack_into("<i", content, 0, 348)
        struct.pack_into("<8h", content, 40, 3, 4, 3, 2, 1, 1, 1, 1)
        struct.pack_into("<h", content, 70, 16)
        struct.pack_into("<f", content, 108, 352)
        self.assert_reads(nifti, self.values.T, gzip.compress(bytes(content) + self.values.tobytes()))

    def test_trr_takes_one_quantity_of_each_frame(self):
        atoms = self.values.reshape(2, 4, 3)
        content = b""
        for positions in atoms:
            sizes = [0, 0, 36, 0, 0, 0, 0, 48, 48, 0]
            content += struct.pack(">iii", 1993, 13, 12) + b"GMX_trn_file" + struct.pack(">10i", *sizes)
            content += struct.pack(">iiiff", 4, 0, 0, 0.0, 0.0) + bytes(36)
            content += positions.astype(">f4").tobytes() + (-positions).astype(">f4").tobytes()
        self.assert_reads(trr("x", scale=10), 10 * atoms, content)
        self.assert_reads(trr("v", scale=1), -atoms)
        with self.assertRaisesRegex(ValueError, "no frame"):
            self.assert_reads(trr("x", scale=1), atoms, bytes(12))

    def test_fast_food(self):
        xyz = [record(v.astype("<f8").tobytes(), "<") for v in self.values.reshape(3, 8)]
        numbers = record(struct.pack("<5i", 420, 8, 0, 0, 0), "<"), record(bytes(36), "<"), record(bytes(4), "<")
        self.assert_reads(fast_food("y"), self.values.reshape(3, 8)[1], b"".join([*numbers, *xyz]))

    def test_pp_takes_the_fields_of_one_code(self):
        content = b""
        for stash, field in ((4, self.values[0]), (408, self.values[0]), (4, self.values[1])):
            words = [0] * 64
            words[17], words[18], words[41] = 3, 4, stash
            content += record(struct.pack(">64i", *words), ">") + record(field.astype(">f4").tobytes() + b"more", ">")
        self.assert_reads(pp(4, 2, 1), self.values[:, None], content)
        with self.assertRaisesRegex(ValueError, "another length"):
            self.assert_reads(pp(4, 2), self.values, content[:-1] + b"?")

    def test_netcdf_and_hdf5(self):
        import h5py
        import netCDF4

        with netCDF4.Dataset(self.path, "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("x", 4)
            variable = file.createVariable("packed", "f4", ("x",), fill_value=3.0)
            variable.set_auto_maskandscale(False)
            variable.scale_factor = 2.0
            variable[:] = self.values[0, 0]
        self.assert_reads(netcdf("packed"), self.values[0, 0])
        with h5py.File(self.path, "w") as file:
            file["a"], file["b"] = self.values
        self.assert_reads(hdf5("a"), self.values[0])
        self.assert_reads(hdf5("a", "b"), self.values)

    def test_pickles_make_arrays_and_nothing_else(self):
        self.assert_reads(pickled("data"), self.values, pickle.dumps({"data": self.values, "path": Path("x")}))
        with open(self.path, "rb") as file:
            self.assertIs(Unpickler(file).find_class("os", "system"), Ignored)


if __name__ == "__main__":
    unittest.main()
