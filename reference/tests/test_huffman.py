"""Tests of Huffman codes and runs."""

import random
import unittest

from reference.binary_coder import BinaryDecoder
from reference.cursor import Cursor, FormatError
from reference.huffman import decode_runs, decode_streams, read_lengths

from .binary_encoder import BinaryEncoder
from .huffman_encoder import encode_streams, random_lengths, write_lengths


class Huffman(unittest.TestCase):
    def test_lengths_and_streams(self):
        rng = random.Random(1)
        for case in range(30):
            n_symbols = rng.choice((1, 2, 40, 256, 1024))
            books = [random_lengths(rng, n_symbols) for _ in range(rng.choice((1, 3)))]
            coder = BinaryEncoder()
            for lengths in books:
                write_lengths(coder, lengths)
            decoder = BinaryDecoder(Cursor(coder.finish(), "lengths"))
            self.assertEqual([read_lengths(decoder, n_symbols) for _ in books], books)
            decoder.finish()
            n = rng.choice((1, 33, 300, 4096, 5000))
            classes = [rng.randrange(len(books)) for _ in range(-(-n // 32))]
            known = [[s for s, m in enumerate(lengths) if m is not None] for lengths in books]
            symbols = [rng.choice(known[classes[i // 32]]) for i in range(n)]
            sizes, streams = encode_streams(symbols, books, classes)
            self.assertEqual(decode_streams(Cursor(streams, "streams"), sizes, n, books, classes), symbols)

    def test_codes_of_the_page(self):
        lengths = [3, 1, None, 3, 2]
        c = Cursor(bytes([0b11011001, 0b00001001]), "streams")
        self.assertEqual(decode_streams(c, [0, 0, 0, 2], 7, [lengths]), [4, 1, 0, 3, 1, 1, 4])

    def test_refusals(self):
        lengths = [1, 1]
        for data, sizes in ((b"\x0f", [0, 0, 0, 1]), (b"\x07\0", [0, 0, 0, 2]), (b"", [0, 0, 0, 0])):
            with self.assertRaises(FormatError):
                decode_streams(Cursor(data, "streams"), sizes, 3, [lengths])
        for values, digits in (([1], [198]), ([1], []), ([1, 2], [127, 199, 0]), ([1], [199, 1, 0]), ([1], [127])):
            with self.assertRaises(FormatError):
                decode_runs(Cursor(b"", "runs"), values, digits, 200)
        self.assertEqual(decode_runs(Cursor(b"", "runs"), [1], [199, 1], 200), [1] * 200)
