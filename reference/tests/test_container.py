"""Tests of header, frames, index and the command line."""

import itertools
import json
import math
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from reference.container import CODEC_FAST, CODEC_RAW, chunk_box, decode, decode_chunk
from reference.cursor import FormatError
from reference.header import BOUND_KINDS, read_header
from reference.xxh3 import xxh3

from .case import StreamCase
from .container_encoder import (F32, F64, NAN_FILLS, bits_of, chunked, frame, header, only_frame, single, tail, u64)
from .fast_encoder import encode_fast, fast_payload

ROOT = Path(__file__).parent.parent.parent


def chunked_stream(rng, t, rows, rest, chunk_shape):
    shape = (sum(rows), *rest)
    expected = np.zeros(shape, f"<u{t.size}")
    frames, boxes, first = [], [], 0
    for extent in rows:
        ends = (first + extent, *rest)
        starts = [range(0 if axis else first, ends[axis], chunk_shape[axis]) for axis in range(len(shape))]
        for origin in itertools.product(*starts):
            box = tuple(slice(o, min(o + c, e)) for o, c, e in zip(origin, chunk_shape, ends))
            extents = tuple(s.stop - s.start for s in box)
            codec = CODEC_RAW if rng.random() < 0.2 else CODEC_FAST
            if codec == CODEC_RAW:
                bits = [rng.getrandbits(t.bits) for _ in range(math.prod(extents))]
                payload = b"".join(map(t.pack, bits))
            else:
                payload, bits = encode_fast(rng, t, extents, (1, bool(rest), 0), (4, 2, 0), 3, NAN_FILLS[t])
            frames.append(frame(codec, len(frames), payload, box[0].start, extents[0]))
            expected[box] = np.array(bits, expected.dtype).reshape(extents)
            boxes.append(box)
        first += extent
    head = header(t, shape, chunk_shape, bound=2, fills=NAN_FILLS[t])
    return chunked(head, rows, frames), expected, boxes


class Arrays(StreamCase):
    def test_raw_codec(self):
        bits = [random.Random(6).getrandbits(64) for _ in range(2000)]
        self.check(single(F64, (40, 50), b"".join(map(F64.pack, bits)), codec=CODEC_RAW, bound=2), (40, 50), bits)

    def test_no_elements(self):
        for shape in (0,), (3, 0, 4), (0, 2**40):
            self.check(single(F32, shape, b"", codec=CODEC_RAW, bound=0), shape, [])
            with self.assertRaisesRegex(FormatError, "without elements"):
                decode(single(F32, shape, bytes([0, len(shape), 0, 0, 3, 0, 0, 0])))

    def test_chunked_with_segments(self):
        rng = random.Random(7)
        for t, rows, rest, chunk_shape in ((F32, [7], (), (3,)), (F32, [5, 1, 9], (11, 20), (4, 6, 16)),
                                           (F64, [3, 2], (7,), (100, 100)), (F64, [130] * 2, (2,), (1, 1))):
            stream, expected, boxes = chunked_stream(rng, t, rows, rest, chunk_shape)
            self.check(stream, expected.shape, expected.reshape(-1).tolist())
            for chunk_id, box in enumerate(boxes):
                self.assertEqual(chunk_box(stream, chunk_id), box)
                self.assertEqual(bits_of(decode_chunk(stream, chunk_id)), expected[box].reshape(-1).tolist())
            for wrong in -1, len(boxes):
                self.assertRaises(IndexError, decode_chunk, stream, wrong)

    def test_one_chunk_needs_no_other_frame(self):
        stream, expected, boxes = chunked_stream(random.Random(8), F32, [4, 4], (5,), (4, 5))
        at = stream.index(b"CHNK") + 20
        broken = stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1:]
        self.assertRaises(FormatError, decode_chunk, broken, 0)
        self.assertEqual(bits_of(decode_chunk(broken, 1)), expected[boxes[1]].reshape(-1).tolist())

    def test_command_line(self):
        stream, expected, boxes = chunked_stream(random.Random(9), F32, [4, 4], (5,), (3, 5))
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "a.pum").write_bytes(stream)
            (folder / "cut.pum").write_bytes(stream[:-1])

            def command(*arguments):
                words = [sys.executable, "-m", "reference", *map(str, arguments)]
                return subprocess.run(words, capture_output=True, text=True, cwd=ROOT)

            self.assertEqual(command(folder / "a.pum", "-o", folder / "a.npy").returncode, 0)
            self.assertEqual(command(folder / "a.pum", "-o", folder / "a.raw").returncode, 0)
            self.assertTrue(np.array_equal(np.load(folder / "a.npy").view("<u4"), expected))
            self.assertEqual((folder / "a.raw").read_bytes(), expected.tobytes())
            self.assertEqual(command(folder / "a.pum", "--chunk", 1, "-o", folder / "c.raw").returncode, 0)
            self.assertEqual((folder / "c.raw").read_bytes(), expected[boxes[1]].tobytes())
            for name in "a.npy", "a.raw":
                self.assertEqual(command(folder / "a.pum", "--compare", folder / name).returncode, 0)
            (folder / "a.raw").write_bytes(expected.tobytes()[:-1] + b"?")
            different = command(folder / "a.pum", "--compare", folder / "a.raw")
            self.assertEqual(different.returncode, 1)
            self.assertIn("1 of 40 values; first at flat index 39", different.stdout)
            fields = json.loads(command(folder / "a.pum", "--info").stdout)
            self.assertEqual((fields["shape"], fields["chunk_shape"], fields["rows"]), ([8, 5], [3, 5], [4, 4]))
            self.assertEqual((fields["dtype"], fields["bound_kind"], fields["abs_bound"]), ("f32", "REL", 0.02))
            self.assertEqual(command(folder / "cut.pum").returncode, 2)


class Refusals(StreamCase):
    def streams(self):
        rng = random.Random(10)
        payload, _ = encode_fast(rng, F32, (3, 20), (1, 1, 0), (4, 1, 0), 3, NAN_FILLS[F32])
        yield single(F32, (3, 20), payload, fills=NAN_FILLS[F32], attributes=[("a", "b")])
        yield chunked_stream(rng, F64, [2, 1], (6,), (2, 4))[0]

    def test_every_changed_byte(self):
        for stream in self.streams():
            decode(stream)
            for i in range(len(stream)):
                for change in 1, 0x80, 0xFF:
                    with self.subTest(i=i):
                        self.refuse(stream[:i] + bytes([stream[i] ^ change]) + stream[i + 1:])

    def test_every_truncation_and_trailing_bytes(self):
        for stream in self.streams():
            for n in range(len(stream)):
                self.refuse(stream[:n])
            self.refuse(stream + b"\0")

    def test_changed_headers_with_right_checksums(self):
        for stream in self.streams():
            size = struct.unpack_from("<H", stream, 6)[0]
            for i in range(8, size - 4):
                for change in 1, 2, 4, 8, 16, 32, 64, 128, 255:
                    head = stream[:i] + bytes([stream[i] ^ change]) + stream[i + 1:size - 4]
                    try:
                        decode(head + u64(xxh3(head))[:4] + stream[size:])
                    except FormatError:
                        pass

    def test_headers(self):
        zero = fast_payload([0, 1, 0, 0, 3, 0, 0, 0], [b""])

        def check(message, shape=(5,), **over):
            self.refuse(single(F32, shape, zero, **over), message)

        kinds = {kind: name for kind, name in BOUND_KINDS.items() if name != "several"}
        for kind, name in kinds.items():
            found = read_header(single(F32, (5,), zero, bound=kind))
            self.assertEqual((found.bound_kind, found.abs_bound), (name, {0: None, 1: 0.01, 3: None}.get(kind, 0.02)))
        for good in {}, {"version": 200}, {"step": 0.0}, *({"bound": kind} for kind in kinds):
            self.assertEqual(decode(single(F32, (5,), zero, **good)).tolist(), [0] * 5)
        check("newer release", min_reader_version=2)
        check("min_reader_version 0", min_reader_version=0)
        check("to version 0", version=0)
        check("preset 200", preset=200)
        check("dtype", dtype=b"\3")
        check("flags", flags=65)
        check("bound_kind", bound=99)
        check("rank 9", shape=(1,) * 9)
        check("rank at least 1", shape=(), flags=0)
        check("2\\^63", shape=(2**31, 2**30))
        check("header_bytes", extra=b"\0")
        check("n_fills", n_fills=3)
        check("UTF-8", attributes=[(b"\xff", b"")])
        for value in 0.0, -1.0, math.inf, math.nan:
            check("bound .* is not finite", requested_bound=value)
            for kind in 2, 4, 5, 6:
                check("bound .* is not finite", bound=kind, abs_bound=value)
        for value in -0.0, -1.0, math.inf, -math.inf, math.nan, -math.nan:
            check("step", step=value)
        check("chunk_shape .* zero", chunk_shape=(0,))
        check("chunk_shape .* 2\\^63", chunk_shape=(2**61,))
        check("without elements", shape=(3, 0), chunk_shape=(1, 1))
        check("2\\^63", shape=(0, 2**63))
        self.refuse(single(F32, (0, 2**63 - 1), b"", codec=CODEC_RAW), "cannot be held")
        for varint_bytes, message in ((b"\x85\0", "superfluous"), (b"\xff" * 10, "ten bytes"),
                                      (b"\xff" * 9 + b"\2", "2\\^64")):
            good = header(F32, (5,), bound=0)[:-4]
            bad = good[:13] + varint_bytes + good[14:]
            bad = bad[:6] + struct.pack("<H", len(bad) + 4) + bad[8:]
            self.refuse(bad + u64(xxh3(bad))[:4] + only_frame(CODEC_FAST, (5,), zero), message)

    def test_frames(self):
        head, payload = header(F32, (2,), bound=0), bytes(8)
        self.assertEqual(decode(head + only_frame(CODEC_RAW, (2,), payload)).tolist(), [0, 0])
        self.refuse(head + only_frame(CODEC_RAW, (3,), payload), "frame_checksum")
        self.refuse(head + only_frame(CODEC_RAW, (2,), payload, chunk_id=1), "chunk_id 1")
        self.refuse(head + only_frame(77, (2,), payload), "codec 77")
        self.refuse(head + only_frame(CODEC_RAW, (2,), payload) + b"\0", "after the payload")
        self.refuse(head + only_frame(CODEC_RAW, (2,), payload + payload), "raw payload of 16")
        self.refuse(head + only_frame(CODEC_RAW, (2,), payload).replace(b"CHNK", b"CHNL"), "marker")

    def test_index(self):
        head = header(F32, (4,), (2,), bound=0)
        frames = [frame(CODEC_RAW, i, bytes(8), 2 * i, 2) for i in range(2)]
        self.assertEqual(decode(chunked(head, [4], frames)).tolist(), [0] * 4)
        self.refuse(chunked(head, [], frames), "n_segments")
        self.refuse(chunked(head, [4, 0], frames), "no rows")
        self.refuse(chunked(head, [6], frames), "imply 3")
        self.refuse(chunked(head, [2**61], frames), "2\\^63")
        huge = header(F32, (2**50,), (2**50,), bound=0)
        self.refuse(chunked(huge, [2**50], frames[:1]), "more values")
        self.refuse(chunked(head, [4], frames[::-1]), "chunk_id 1")
        self.refuse(chunked(head, [4], [frames[0], frame(77, 1, bytes(8), 2, 2)]), "codec 77")
        self.refuse(chunked(head, [4], [frames[0], frame(0, 1, bytes(9), 2, 2)]), "raw payload of 9")
        self.refuse(chunked(head, [4], [frames[0], frame(0, 1, bytes(8), 1, 2)]), "first_row 1")
        self.refuse(chunked(head, [4], [frames[0], frame(0, 1, bytes(8), 2, 1)]), "rows 1")
        body = head + b"".join(frames)
        sizes = list(map(len, frames))
        self.assertEqual(decode(body + tail(len(body), [4], sizes, head)).tolist(), [0] * 4)
        other = header(F32, (4,), (2,), bound=0, preset=2)
        self.refuse(body + tail(len(body), [4], sizes, other), "header_copy")
        self.refuse(body + tail(len(body), [4], sizes, head[:-1]), "header_copy")
        self.refuse(body + tail(len(body), [4], sizes, head + b"\0"), "bytes are left")
        self.refuse(body + tail(len(body) - 1, [4], sizes), "index_offset")
        self.refuse(body + b"\0" + tail(len(body) + 1, [4], sizes), "frames do not end")
        self.refuse(body + tail(len(body), [4], [sizes[0] + 1, sizes[1] - 1]), "after the payload")
