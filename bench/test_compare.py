"""The parts of bench.compare that need neither Pumice nor a peer; needs numpy."""

import math
import os
import tempfile
import time
import tomllib
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

from bench import arrays, figures, peers
from bench.arrays import Field
from bench.figures import Result, Run
from bench.peers import Codec, Failure, IsolatedPeer, Peer, Restored, Speed

VALUES = np.linspace(0, 1, 24, dtype=np.float32).reshape(2, 3, 4)


class Plain(Codec):
    """Keeps values as they are."""

    def compress(self, values, bound):
        return values.tobytes()

    def decompress(self, stream, like):
        return np.frombuffer(stream, like.dtype)


class Half(Plain):
    """Keeps half of the digits."""

    def compress(self, values, bound):
        return values.astype(np.float16).tobytes()

    def decompress(self, stream, like):
        return np.frombuffer(stream, np.float16).astype(like.dtype)


class Raises(Plain):
    def compress(self, values, bound):
        raise ValueError("no such rank")


class CrashesOnNan(Plain):
    def compress(self, values, bound):
        if np.isnan(values).any():
            os.abort()
        return super().compress(values, bound)


class Hangs(Plain):
    def compress(self, values, bound):
        time.sleep(3600)


def isolated(*algorithms):
    return IsolatedPeer(Peer("peer", (), algorithms))


class Fields(unittest.TestCase):
    def test_a_folder_stands_for_its_arrays_and_its_index_names_fill_values(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            filled = np.where(VALUES > 0.9, np.float32(1e20), VALUES)
            VALUES.tofile(folder / "a_2x3x4.f32")
            filled.tofile(folder / "b_2x3x4.f32")
            (folder / "INDEX.tsv").write_text("file\tflags\na_2x3x4.f32\t\nb_2x3x4.f32\tFILL(1e+20,12.5%)\n")
            plain, with_fill = map(arrays.read_field, arrays.field_paths([folder]))
        self.assertTrue(plain.is_plain)
        self.assertEqual(plain.bound(1e-3), 1e-3)
        self.assertFalse(with_fill.is_plain)
        self.assertEqual(with_fill.bound(1.0), float(VALUES[VALUES <= 0.9].max()))

    def test_nan_and_infinities_do_not_count_for_the_range(self):
        field = Field(Path("x"), np.array([np.nan, 2.0, np.inf, 5.0]))
        self.assertFalse(field.is_plain)
        self.assertEqual(field.bound(0.5), 1.5)

    def test_repetition_is_along_the_slowest_axis(self):
        field = Field(Path("x"), VALUES)
        self.assertEqual(field.repeated(0).shape, (2, 3, 4))
        self.assertEqual(field.repeated(VALUES.nbytes + 1).shape, (4, 3, 4))

    def test_crops_are_near_cubes_of_the_size_that_is_asked_for(self):
        self.assertEqual(arrays.crop_shape((100, 100, 100), 1000), (10, 10, 10))
        self.assertEqual(arrays.crop_shape((4, 100, 100), 1600), (4, 20, 20))
        found = list(arrays.crops(np.zeros((64, 64, 64), np.float32)))
        self.assertEqual(len(found), len(arrays.CROP_KB) * len(arrays.CROP_PLACES))
        for kb, _, crop in found:
            self.assertLess(abs(crop.nbytes / 1024 / kb - 1), 0.25)


class Judgement(unittest.TestCase):
    def verdict(self, original, restored, bound=0.5):
        original, restored = np.array(original), np.array(restored)
        return figures.judge(original, [Restored(4, restored)], bound, 1e-3).verdict

    def test_verdicts(self):
        self.assertEqual(self.verdict([1.0, 2.0], [1.5, 2.0]), "kept")
        self.assertEqual(self.verdict([1.0, 2.0], [1.5, np.nextafter(2.5, 3)]), "over")
        self.assertEqual(self.verdict([1.0, 2.0], [1.0, np.nan]), "over")
        self.assertEqual(self.verdict([1.0, np.nan], [1.0, np.nan]), "kept")
        self.assertEqual(self.verdict([1.0, np.nan], [1.0, 0.0]), "lost NaN")
        self.assertEqual(self.verdict([1.0, np.inf], [1.0, -np.inf]), "lost NaN")
        self.assertEqual(Run(1e-3, failure="crashed").verdict, "failed")

    def test_the_best_ratio_and_the_worst_error_count(self):
        exact, rough = Restored(8, np.array([1.0, 2.0])), Restored(2, np.array([1.0, 2.25]))
        run = figures.judge(np.array([1.0, 2.0]), [exact, rough], 0.125, 1e-2)
        self.assertEqual((run.ratio, run.error_over_bound), (8.0, 2.0))


class Means(unittest.TestCase):
    def setUp(self):
        speed = Speed(100.0, 300.0)
        self.results = {
            "small": [
                Result("small", "a", True, runs=[Run(1e-2, 2.0, 1.0), Run(1e-3, 4.0, 1.0)], speed=speed),
                Result("small", "b", True, runs=[Run(1e-2, 8.0, 1.0), Run(1e-3, 9.0, 1.0)], speed=speed),
                Result("small", "filled", False, runs=[Run(1e-2, 99.0, 1.0), Run(1e-3, 99.0, 1.0)], speed=speed),
            ],
            "peer": [
                Result("peer", "a", True, runs=[Run(1e-2, 3.0, 1.5), Run(1e-3, 3.0, 1.0)], speed=speed),
                Result("peer", "b", True, runs=[Run(1e-2, failure="crashed"), Run(1e-3, 9.0, 1.0)]),
                Result("peer", "filled", False, runs=[Run(1e-2, 9.0, 0.5, n_lost=1), Run(1e-3, 9.0, math.inf)]),
            ],
        }

    def test_means_leave_out_arrays_on_which_a_compressor_fails(self):
        table = figures.field_table(self.results, [1e-2, 1e-3]).splitlines()
        self.assertEqual(table[0].split(), "fields ratio 1e-2 ratio 1e-3 compress decompress".split())
        self.assertEqual(table[1].split(), "small 2 4.00 6.00 100 300".split())
        self.assertEqual(table[2].split(), "peer 1 3.00 3.00 100 300".split())

    def test_the_common_arrays_are_the_same_for_all(self):
        for results in figures.on_common_arrays(self.results).values():
            self.assertEqual([result.array for result in results], ["a"])

    def test_bounds_are_counted_on_all_arrays(self):
        table = figures.verdict_table(self.results).splitlines()
        self.assertEqual(table[1].split(), "small 6 6 0 0 0".split())
        self.assertEqual(table[2].split(), "peer 6 2 2 1 1".split())

    def test_crops_have_a_mean_for_each_size(self):
        runs = {1: 2.0, 4: 8.0}
        mine = [Result("small", f"{kb} KB", True, kb, [Run(1e-3, ratio, 1.0)]) for kb, ratio in runs.items()]
        table = figures.crop_table({"small": mine}, [1, 4, 16], 1e-3).splitlines()
        self.assertEqual(table[1].split(), "small 2 2.000 8.000 - 4.000".split())

    def test_toml_has_the_keys_of_the_data_file(self):
        flags = {"small": ["pumice", "default"], "peer": []}
        entries = [figures.toml_entry(name, mine, [1e-2, 1e-3], flags[name]) for name, mine in self.results.items()]
        small, peer = tomllib.loads("\n".join(entries))["compressor"]
        data = tomllib.loads((Path(__file__).parents[1] / "docs/data/ratio-speed.toml").read_text())
        self.assertLessEqual(set().union(*data["compressor"]), set(small))
        self.assertEqual((small["ratio"], small["compress"], small["bound"]), ([4.0, 6.0], 100, "all"))
        self.assertEqual(peer["bound"], "2 over, 1 lost NaN, 1 failed")

    def test_json_has_no_nan(self):
        values = {"a": [math.nan, 1.0, math.inf], "b": "x"}
        self.assertEqual(figures.without_nan(values), {"a": [None, 1.0, None], "b": "x"})


class Isolation(unittest.TestCase):
    def test_every_algorithm_answers_and_the_first_is_timed(self):
        peer = isolated(Plain, Half)
        plain, half = peer.restore(VALUES, 0.1)
        self.assertEqual((plain.n_bytes, half.n_bytes), (VALUES.nbytes, VALUES.nbytes // 2))
        np.testing.assert_array_equal(plain.values, VALUES)
        speed = peer.speed(Field(Path("x"), VALUES), 1e-3, 2, 0)
        self.assertGreater(min(speed.compress, speed.decompress), 0)

    def test_an_exception_is_a_failure(self):
        with self.assertRaisesRegex(Failure, "ValueError: no such rank"):
            isolated(Raises).restore(VALUES, 0.1)

    def test_a_crash_is_a_failure_and_the_next_array_is_not(self):
        peer = isolated(CrashesOnNan)
        with self.assertRaisesRegex(Failure, "crashed: SIGABRT"):
            peer.restore(np.array([np.nan]), 0.1)
        self.assertEqual(len(peer.restore(VALUES, 0.1)), 1)

    def test_a_run_without_end_is_a_failure(self):
        with mock.patch.object(peers, "LIMIT", 2), self.assertRaisesRegex(Failure, "no end within 2 s"):
            isolated(Hangs).restore(VALUES, 0.1)

    def test_a_peer_without_its_package_is_not_installed(self):
        self.assertFalse(Peer("none", ("no-such-package-of-pypi",), (Plain,)).is_installed())


if __name__ == "__main__":
    unittest.main()
