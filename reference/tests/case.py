"""What tests of whole streams ask."""

import unittest

from reference.container import decode
from reference.cursor import FormatError

from .container_encoder import bits_of


class StreamCase(unittest.TestCase):
    def check(self, stream, shape, bits):
        array = decode(stream)
        self.assertEqual(array.shape, tuple(shape))
        self.assertEqual(bits_of(array), bits)

    def refuse(self, stream, message=""):
        with self.assertRaisesRegex(FormatError, message):
            decode(stream)
