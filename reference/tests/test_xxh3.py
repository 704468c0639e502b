"""Tests of XXH3."""

import hashlib
import unittest

from reference import container
from reference.xxh3 import xxh3

from .container_encoder import payload_hash, u64


class Xxh3(unittest.TestCase):
    LENGTHS = [*range(301), 511, 512, 513, 1023, 1024, 1025, 1087, 1088, 1089, 2048, 2049, 4096, 5000, 65537, 100000]

    @staticmethod
    def data():
        out, x = bytearray(), 1
        for _ in range(100000):
            x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
            out.append(x >> 56)
        return bytes(out)

    def test_single_vectors(self):
        self.assertEqual(xxh3(b""), 0x2D06800538D394C2)
        self.assertEqual(xxh3(b"Pumice"), 0x9EDFAAD6D82F4F02)
        self.assertEqual(xxh3(b"Pumice" * 100), 0x6D6EB973F6FF17A5)

    def test_all_lengths(self):
        # The digest was made with an established implementation of XXH3.
        data, digest = self.data(), hashlib.sha256()
        for n in self.LENGTHS:
            digest.update(u64(xxh3(data[:n])))
        self.assertEqual(digest.hexdigest(), "8f99b7c638e5f3a8b245cb629b7bd54081b267c21ae31aba5e091bb1161db80a")

    def test_payload_hash(self):
        data = self.data()
        for n in (0, 1, 240, 241, 4095, 4096, 4097, 8192, 12288 + 300, 100000):
            self.assertEqual(container.payload_hash(data[:n]), payload_hash(data[:n]), n)
