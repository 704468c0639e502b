"""Tests of codec `fast`."""

import math
import random
import struct

import numpy as np

from reference.container import decode
from reference.cursor import FormatError
from reference.fast import EXACT, QUANTISED

from .case import StreamCase
from .container_encoder import F32, F64, NAN_FILLS, STEP, single
from .fast_encoder import encode_fast, encode_tile, fast_payload, pad4


class RoundTrips(StreamCase):
    def test_views_predictors_and_tiles(self):
        rng = random.Random(1)
        shape = (2, 3, 5, 37)
        views = [(1, 1, 1), (1, 1, 0), (1, 0, 0), (2, 1, 1), (4, 0, 0), (0, 0, 0), (0, 1, 1), (1, 3, 0), (0, 4, 0)]
        predictors = [0, 1, 2, 4, 3, 5, 6, 7, 9, 11, 15, 0x11, 0x21, 0xF1, 0x37]
        tiles = [(3, 0, 0), (4, 1, 1), (12, 0, 0), (5, 2, 2), (3, 9, 0), (3, 0, 9), (6, 3, 3), (4, 4, 4)]
        for case in range(160):
            t = F64 if case % 3 == 0 else F32
            lossless = case % 5 == 0
            axes, log2, predictor = views[case % 9], rng.choice(tiles), predictors[case % 15]
            fills = NAN_FILLS[t][:case % 3]
            payload, bits = encode_fast(rng, t, shape, axes, log2, predictor, fills, None if lossless else STEP)
            with self.subTest(case=case, axes=axes, log2=log2, predictor=predictor):
                self.check(single(t, shape, payload, fills=fills, bound=0 if lossless else 1), shape, bits)

    def test_large_tiles(self):
        rng = random.Random(2)
        for t, shape, log2, predictor in ((F32, (8193,), (12, 0, 0), 1), (F64, (4500,), (12, 0, 0), 9),
                                          (F32, (20, 450), (9, 3, 0), 0x23), (F64, (17, 18, 19), (4, 4, 4), 7)):
            axes = (1, len(shape) > 1, len(shape) > 2)
            payload, bits = encode_fast(rng, t, shape, axes, log2, predictor, NAN_FILLS[t])
            self.check(single(t, shape, payload, fills=NAN_FILLS[t]), shape, bits)

    def test_many_tiles_need_several_anchors(self):
        rng = random.Random(3)
        payload, bits = encode_fast(rng, F32, (70, 9), (1, 0, 0), (3, 0, 0), 1, NAN_FILLS[F32])
        self.check(single(F32, (70, 9), payload, fills=NAN_FILLS[F32]), (70, 9), bits)

    def test_every_extent_of_a_tile(self):
        # Last groups and last supergroups of every partial size.
        rng = random.Random(4)
        for n in range(1, 140):
            payload, bits = encode_fast(rng, F32, (n,), (1, 0, 0), (7, 0, 0), 1, NAN_FILLS[F32])
            self.check(single(F32, (n,), payload, fills=NAN_FILLS[F32]), (n,), bits)

    def test_rank_0_and_rank_8(self):
        rng = random.Random(5)
        payload, bits = encode_fast(rng, F64, (), (0, 0, 0), (3, 0, 0), 0)
        self.check(single(F64, (), payload), (), bits)
        shape = (1, 2, 1, 3, 2, 1, 2, 3)
        payload, bits = encode_fast(rng, F32, shape, (3, 2, 2), (3, 2, 2), 7)
        self.check(single(F32, shape, payload, attributes=[("unit", "m"), ("name", "höhe")]), shape, bits)

    def test_quantised_beyond_the_magic_range(self):
        # Any value x is reached by q = bits(x) - M, and stands for (x - M_T) * step.
        for t in F32, F64:
            xs = [0.0, -1.0, 1e-40, 1e30, -2.5e20, t.m_t * 2, t.m_t / 3, -t.m_t, t.from_bits(1)]
            q = [t.signed(t.to_bits(x) - t.m) for x in map(t.round, xs)]
            for step in 0.1, 1e-30, t.from_bits(3):
                step = t.round(step)
                body, bits = encode_tile(random, t, (1, 1, len(q)), 1, QUANTISED, q, q[0], step=step)
                payload = fast_payload([1, 1, 0, 0, 3 + (len(q) > 8), 0, 0, 0], [body])
                self.check(single(t, (len(q),), payload, step=step), (len(q),), bits)

    def test_quantised_is_the_rounded_product(self):
        q = [-2**22 + 1, -12345, -1, 0, 1, 7, 99999, 2**22 - 1]
        body, _ = encode_tile(random, F32, (1, 1, 8), 0, QUANTISED, q, 0)
        array = decode(single(F32, (8,), fast_payload([0, 1, 0, 0, 3, 0, 0, 0], [body])))
        self.assertEqual(array.dtype, np.float32)
        self.assertEqual(array.tolist(), [F32.round(value * STEP) for value in q])

    def test_exact_covers_every_class_of_values(self):
        for t in F32, F64:
            values = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 1e-45, -1e-45]
            bits = [t.to_bits(v) for v in values] + [NAN_FILLS[t][0], NAN_FILLS[t][1], t.modulus - 1, 1]
            q = [t.signed(t.exact(b)) for b in bits]  # the map is its own inverse
            body, again = encode_tile(random, t, (1, 1, 12), 9, EXACT, q, q[3])
            self.assertEqual(again, bits)
            payload = fast_payload([9, 1, 0, 0, 4, 0, 0, 0], [body])
            self.check(single(t, (12,), payload, bound=0), (12,), bits)

    def test_fill_1_covers_fill_0_and_escapes_cover_both(self):
        fills = (F32.to_bits(-9999.0), F32.to_bits(1e20))
        body, bits = encode_tile(random.Random(0), F32, (1, 1, 100), 1, QUANTISED, [5] * 100, 5, fills,
                                 (list(range(90)), list(range(30, 70))), {40: 77, 80: 78, 95: 79}, no_planes=True)
        self.assertEqual([bits[i] for i in (0, 35, 40, 80, 95)], [fills[0], fills[1], 77, 78, 79])
        payload = fast_payload([1, 1, 0, 0, 7, 0, 0, 0], [body])
        self.check(single(F32, (100,), payload, fills=fills), (100,), bits)


class Refusals(StreamCase):
    def test_changed_payloads_with_right_checksums(self):
        # Nothing but FormatError may come out of a hostile payload; most changes decode to other values.
        rng, refused = random.Random(11), 0
        for case in range(600):
            t = F64 if case % 2 else F32
            payload, _ = encode_fast(rng, t, (4, 30), (1, 1, 0), (5, 2, 0), 3, NAN_FILLS[t])
            i = rng.randrange(len(payload) if case % 3 else 20)
            payload = payload[:i] + bytes([rng.randrange(256)]) + payload[i + 1 + rng.randrange(2):]
            try:
                decode(single(t, (4, 30), payload, fills=NAN_FILLS[t]))
            except FormatError:
                refused += 1
        self.assertGreater(refused, 100)

    def test_payload_directory(self):
        def check(message, parameters, bodies=(b"",), edit=lambda payload: payload, shape=(5,)):
            self.refuse(single(F32, shape, edit(fast_payload(parameters, bodies))), message)

        good = [1, 1, 0, 0, 3, 0, 0, 0]
        for at, value, message in ((0, 8, "second difference"), (0, 0x10, "lag"), (0, 0x19, "lag"), (1, 2, "rank"),
                                   (4, 2, "tile_x_log2"), (4, 13, "tile_x_log2"), (5, 10, "tile_y_log2"),
                                   (6, 10, "tile_z_log2"), (7, 1, "reserved")):
            check(message, good[:at] + [value] + good[at + 1:])
        check("4096", [1, 1, 0, 0, 9, 4, 0, 0])
        check("anchors", good, edit=lambda p: p[:8] + b"\1" + p[9:])
        check("padding", good, edit=lambda p: p[:-1] + b"\1")
        check("do not end", good, edit=lambda p: p + bytes(4))
        check("bodies", good, [bytes([16, 0, 0, 0])], edit=lambda p: p[:-4])
        check("anchors", good, shape=(2**40,))

    def test_tiles(self):
        def check(message, body, n=20, **options):
            payload = fast_payload([1, 1, 0, 0, 9, 0, 0, 0], [pad4(body)])
            self.refuse(single(F32, (n,), payload, **options), message)

        flat = bytes([16, 0, 0, 0])
        check("kind 3", bytes([3, 0, 0, 0]))
        check("raw with other flags", bytes([2 + 16, 0, 0, 0]))
        check("raw with other flags", bytes([2, 1, 0, 0]) + bytes(80))
        check("after the raw values", bytes([2, 0, 0, 0]) + bytes(84))
        check("without a step", flat, bound=0)
        check("without a step", flat, step=0.0)
        check("exact with", bytes([1 + 16 + 32, 0, 0, 0]), fills=[0])
        check("exact with", bytes([1 + 16 + 128, 0, 0, 0]))
        check("excludes sparse", bytes([16 + 8, 0, 0, 0]))
        check("base24", bytes([16 + 4, 1, 0, 0]) + bytes(4))
        check("mask of fill 0", bytes([16 + 32, 0, 0, 0]) + bytes(2))
        check("mask of fill 1", bytes([16 + 64, 0, 0, 0]) + bytes(2), fills=[0])
        check("mask: any: spare", bytes([16 + 32, 0, 0, 0, 2, 0]), fills=[0])
        check("subset", bytes([16 + 32, 0, 0, 0, 0, 1]) + bytes(8), fills=[0])
        escaped = bytes([16 + 128, 0, 0, 0])
        check("n_escapes 0", escaped + bytes(2))
        check("n_escapes 4097", escaped + b"\1\x10" + bytes(6 * 4097))
        check("ascending", escaped + struct.pack("<HHH", 2, 5, 5) + bytes(8))
        for index in 20, 23, 24, 65535:
            check("padding", escaped + struct.pack("<HH", 1, index) + bytes(4))
        check("super_mask: spare", bytes([8, 0, 0, 0, 2]))
        check("beyond the last", bytes([0, 0, 0, 0, 1 << 5, 8, 0]))
        check("width", bytes([0, 0, 0, 0, 31 | 1 << 5 | 1 << 6]) + bytes([1, 1, 0]) + bytes(31 * 3 + 3))
        check("bytes after", flat + bytes(4))
        check("padding is not zero", bytes([0, 0, 0, 0, 0, 0, 0, 1]))
        check("ends within planes", bytes([0, 0, 0, 0, 4]) + bytes(3))
