"""Tests of layers.py.

Streams of assets/golden hold every feature of the layers, and their bits are checked against the manifest by
`cargo xtask ci`. Here are the arithmetic of powers of two, and what must be refused.
"""

import math
import unittest
from pathlib import Path

import numpy as np

from reference import layers
from reference.container import Stream, decode_payload
from reference.cursor import FormatError

GOLDEN = Path(__file__).parent.parent.parent / "assets/golden/v1"


class Powers(unittest.TestCase):
    def test_accuracy(self):
        y = np.linspace(-300, 300, 10001)
        for n_terms, error in (9, 1e-9), (14, 1e-14):
            for centre in (-500, 0, 333):
                found = layers.exp2(y, float(centre), n_terms)
                exact = np.array([math.exp2(v) for v in y]) * 2.0**centre
                self.assertLess(np.max(np.abs(found / exact - 1)), error)

    def test_edges(self):
        with np.errstate(all="ignore"):
            found = layers.exp2(np.array([np.nan, np.inf, -1e300, 5000.0, -1074.0, 1100.0, -1200.0]), 0.0, 14)
        self.assertEqual(found.tolist(), [1, 1, 1, 1, 2.0**-1074, math.inf, 0])


class Masks(unittest.TestCase):
    def test_axes(self):
        self.assertEqual(layers.mask_dims(()), (1, 1, 1, 1))
        self.assertEqual(layers.mask_dims((7,)), (1, 1, 1, 7))
        self.assertEqual(layers.mask_dims((2, 3, 4, 5)), (1, 6, 4, 5))


class Refusals(unittest.TestCase):
    def payload(self, name):
        stream = Stream((GOLDEN / f"{name}.pum").read_bytes())
        box = stream.chunk_box(0)
        codec, payload = stream.read_frame(0, box)
        return codec, bytearray(payload), tuple(s.stop - s.start for s in box), stream.header

    def refuse(self, name, at, value, message):
        codec, payload, extents, header = self.payload(name)
        payload[at] = value
        with self.assertRaisesRegex(FormatError, message):
            decode_payload(codec, bytes(payload), extents, header, "chunk")

    def test_changes(self):
        self.refuse("changes_small_f32", 0, 0x02, "unknown flags")
        self.refuse("changes_small_f32", 1, 0x01, "fills")
        self.refuse("changes_small_f32", 2, 10, "codec 10 where only those below 10")

    def test_pointwise(self):
        self.refuse("pwrel_smooth_f32", 0, 0x41, "unknown flags")
        self.refuse("pwrel_smooth_f32", 0, 0x02, "unknown flags")
        self.refuse("pwrel_smooth_f32", 0, 0x11, "a fill")
        self.refuse("pwrel_smooth_f32", 2, 0x70, "centre")

    def test_regions(self):
        self.refuse("regions_f32", 0, 0x11, "unknown flags")
        self.refuse("regions_f32", 0, 0x05, "unknown flags")
        self.refuse("regions_f32", 1, 9, "codec 9")
        self.refuse("bins_f32", 1, 0, "impossible bins")

    def test_ends(self):
        for name in "pwrel_smooth_f32", "regions_f32", "bins_f32":
            codec, payload, extents, header = self.payload(name)
            for cut in bytes(payload[:-1]), bytes(payload) + b"\1":
                with self.assertRaises(FormatError):
                    decode_payload(codec, cut, extents, header, "chunk")
