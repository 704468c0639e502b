"""Tests of codec `small`."""

import math
import random
import unittest
from unittest import mock

import numpy as np

from reference import payload as payload_size
from reference.binary_coder import BinaryDecoder, NumberModel
from reference.container import CODEC_SMALL, decode
from reference.cursor import Cursor, FormatError
from reference.small.bands import Band, Layout, Parts, slabs_of
from reference.small.contexts import deal_of, streams_of
from reference.view import view_of

from .binary_encoder import BinaryEncoder
from .container_encoder import F32, F64, NAN_FILLS, bits_of, single
from .small_encoder import SmallEncoder, parts_of


class Small(unittest.TestCase):
    DIMS = [(1, 1, 1, 1), (1, 1, 1, 700), (1, 1, 9, 60), (1, 1, 40, 17), (1, 9, 3, 20), (1, 5, 11, 16), (3, 4, 5, 16),
            (2, 5, 2, 30), (1, 3, 6, 18)]

    def test_predictors_and_streams(self):
        rng = random.Random(20)
        for case in range(54):
            t, dims = (F64 if case % 2 else F32), self.DIMS[case % 9]
            fills = NAN_FILLS[t][:case % 3]
            encoder = SmallEncoder(rng, t, dims, case // 9 % 3, fills, wide=case % 4 == 3)
            shape = tuple(n for n in dims if n > 1 or rng.random() < 0.5)
            with self.subTest(case=case, dims=dims):
                stream = single(t, shape, encoder.payload, codec=CODEC_SMALL, fills=fills, preset=2 + case % 2)
                self.assertEqual(bits_of(decode(stream)), encoder.bits)

    def test_wide_chunks(self):
        # Lanes of planes, of rows, of columns and of all of them; volumes, parents along each axis.
        rng = random.Random(25)
        for case, (dims, active) in enumerate((((1, 1, 64, 66), None), ((1, 1, 1, 4500), None), ((1, 1, 5, 900), None),
                                               ((8, 9, 3, 20), None), ((5, 7, 8, 16), None), ((2, 2, 2, 600), None),
                                               ((1, 1, 64, 130), 8), ((1, 1, 66, 127), 4), ((1, 8, 32, 33), 2),
                                               ((8, 4, 16, 17), 1), ((4, 8, 32, 17), 5))):
            t = F64 if case % 2 else F32
            fills = NAN_FILLS[t][:case % 3]
            encoder = SmallEncoder(rng, t, dims, int(active is not None), fills, wide=True, active=active)
            self.assertEqual(encoder.n_lanes[-1], 16)
            with self.subTest(dims=dims, active=active):
                stream = single(t, dims, encoder.payload, codec=CODEC_SMALL, fills=fills, preset=2)
                self.assertEqual(bits_of(decode(stream)), encoder.bits)

    def test_views(self):
        for extents, dims, order in (((100,), (1, 1, 1, 100), [0]), ((7, 1, 100), (1, 1, 7, 100), [0, 1]),
                                     ((500, 3, 14), (1, 3, 14, 500), [1, 2, 0]), ((9, 9), (1, 1, 9, 9), [0, 1]),
                                     ((2, 3, 4, 5, 60), (6, 4, 5, 60), [0, 1, 2, 3]), ((), (1, 1, 1, 1), [])):
            view = view_of(extents)
            self.assertEqual((view.dims, view.order), (dims, order))
        # What is moved to the end comes back.
        encoder = SmallEncoder(random.Random(21), F32, (1, 3, 14, 40), 1)
        expected = np.array(encoder.bits).reshape(3, 14, 40).transpose(2, 0, 1)
        stream = single(F32, (40, 3, 14), encoder.payload, codec=CODEC_SMALL)
        self.assertEqual(bits_of(decode(stream)), expected.reshape(-1).tolist())

    def test_bands_hold_each_point_once(self):
        for dims in self.DIMS + [(5, 8, 9, 10)]:
            for active in 15, 8, 4, 9, 0:
                layout = Layout(dims, active)
                numbers = np.arange(math.prod(dims)).reshape(dims)
                parts = Parts(layout)
                for band, part in zip(layout.bands, layout.split(numbers)):
                    self.assertEqual(part.shape, band.dims)
                    parts.put(band, part)
                self.assertTrue(np.array_equal(parts.get(-1, 0), numbers))
        bands, axis = slabs_of((1, 7, 1000, 1000))
        self.assertEqual((axis, [band.dims[1] for band in bands]), (1, [1, 1, 1, 1, 1, 2]))

    def test_pieces_of_large_bands(self):
        def pieces(*dims):
            return streams_of([Band(band, None, 0, 0) for band in dims])

        few, large, huge = (1, 1, 1, 50), (1, 1, 1, 2**19 - 1), (1, 1, 1, 2**19)
        bands = few, few, huge, few, (1, 1, 1, 2**16 - 1), large, (1, 1, 1, 2**16), few
        self.assertEqual([[piece[0] for piece in stream] for stream in pieces(*bands)],
                         [[0, 1], [2], [2], [3, 4], [5], [6], [7]])
        self.assertEqual([stream[0][1] for stream in pieces((2, 3, 300, 300))], [range(0, 3), range(3, 6)])
        self.assertEqual([stream[0][2] for stream in pieces((1, 1, 901, 600))], [range(0, 450), range(450, 901)])
        self.assertEqual([stream[0][3] for stream in pieces((1, 1, 3, 200001))],
                         [range(0, 100000), range(100000, 200001)])

    def test_lanes_of_pieces(self):
        rng = random.Random(26)
        shapes = [tuple(rng.randrange(1, limit) for limit in rng.choice(((9, 9, 9), (40, 40, 40), (200, 3, 30))))
                  for _ in range(300)]
        for extents in shapes + [(0, 1, 1), (1, 0, 5), (3, 3, 0), (1, 1, 2**12), (1, 1, 2**12 - 1)]:
            for wide in False, True:
                self.assertEqual(deal_of(extents, wide), parts_of(extents, wide))

    def test_numbers(self):
        rng, encoder, model = random.Random(22), BinaryEncoder(), {}
        numbers = [0, 1, -1, 2**62 - 1, 1 - 2**62] + [rng.randrange(-2**40, 2**40) >> rng.randrange(41)
                                                      for _ in range(500)]
        for number in numbers:
            encoder.signed(model, number)
        encoder.raw(0x1234567, 27)
        decoder, model = BinaryDecoder(Cursor(encoder.finish(), "numbers")), NumberModel()
        self.assertEqual([model.signed(decoder) for _ in numbers], numbers)
        self.assertEqual(decoder.raw(27), 0x1234567)
        decoder.finish()

    def test_refusals(self):
        encoder = SmallEncoder(random.Random(23), F32, (1, 1, 9, 20), 1)

        def check(message, payload, shape=(9, 20), **options):
            with self.assertRaisesRegex(FormatError, message):
                decode(single(F32, shape, payload, codec=CODEC_SMALL, **options))

        good = encoder.payload
        decode(single(F32, (9, 20), good, codec=CODEC_SMALL))
        check("unknown flags", bytes([good[0] | 32]) + good[1:])
        check("unknown flags", bytes([good[0] | 16 | 2]) + good[1:])
        check("", bytes([good[0] | 16]) + good[1:])
        check("without a step", good, step=0.0)
        check("without a step", good, bound=0)
        check("bytes after the end", good + b"\0")
        check("without elements", good, shape=(0, 3))
        check("too few", b"\0\0", shape=(1,))
        check("too few", good, shape=(2**40, 20))
        for n in range(3, len(good)):
            check("", good[:n])
        with mock.patch.object(payload_size, "least_payload", lambda _: len(good) + 5):
            decode(single(F32, (9, 20), good + bytes(5), codec=CODEC_SMALL))
            check("too few", good + bytes(4))
            check("bytes after the end", good + bytes(6))
            check("bytes after the end", good + bytes(4) + b"\1")

    def test_hostile_payloads(self):
        rng, refused = random.Random(24), 0
        for case in range(100):
            t = F64 if case % 2 else F32
            encoder = SmallEncoder(rng, t, (1, 1, 4, 20), case // 2 % 2, NAN_FILLS[t][:case % 3], wide=case % 5 == 0)
            payload = bytearray(encoder.payload)
            payload[0] ^= rng.choice((0, 0, 0, 2, 1, 4, 8, 16))
            for _ in range(rng.randrange(4)):
                payload[rng.randrange(len(payload))] = rng.randrange(256)
            del payload[rng.randrange(len(payload)):rng.choice((0, 0, len(payload)))]
            try:
                decode(single(t, (4, 20), bytes(payload), codec=CODEC_SMALL, fills=NAN_FILLS[t][:case % 3]))
            except FormatError:
                refused += 1
        self.assertGreater(refused, 30)
