#!/usr/bin/env python3
"""Pumice beside SZ3: ratio, speed on one thread, and whether the bound is kept, in one run on the same fields.

    python3 -m venv target/bench && target/bench/bin/pip install -r bench/requirements.txt
    cargo build --release
    target/bench/bin/python -m bench.compare_sz3 --pumice target/release/pumice --preset small --rel 1e-3 data
    target/bench/bin/python -m bench.compare_sz3 --pumice target/release/pumice --preset small --small-arrays data

Fields are raw files called name_30x192x288.f32 or .f64, slowest axis first; a folder stands for all such files in it,
and its INDEX.tsv, if there is one, flags fields with fill values. Both programs get the bound REL times the value range
of the array, and numpy judges in float64 what they give back.

Whole fields: SZ3 runs in process, Pumice by `pumice bench`, two turns each on every field; the best of all runs counts.
The speed of SZ3 is that of its default algorithm, interpolation with Lorenzo; its ratio is the better of that and of
Lorenzo with regression. Both work on the field as it is, unless --min-size asks to repeat it along the slowest axis;
the ratio is always that of the field. Pumice reuses its buffers between runs, SZ3 allocates them anew.

Small arrays (--small-arrays, instead of whole fields): boxes of about 1, 4, 16, 64 and 100 KB, near-cubic, cut at
three fixed positions in each field, each compressed as an array of its own.

Means are geometric and leave out fields with fill values or NaN; those of whole fields are over f32 alone.
The exit status is 1 if Pumice breaks a bound.
"""

import argparse
import csv
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pysz import sz, szAlgorithm, szConfig, szErrorBoundMode

ALGORITHMS = {"interp_lorenzo": szAlgorithm.INTERP_LORENZO, "lorenzo_reg": szAlgorithm.LORENZO_REG}
DEFAULT_ALGORITHM = "interp_lorenzo"
CROP_KB = [1, 4, 16, 64, 100]
CROP_PLACES = [0.1, 0.5, 0.9]


@dataclass
class Field:
    """One array, and what is special about it."""

    path: Path
    values: np.ndarray
    fill: float | None

    @property
    def plain(self) -> bool:
        return self.fill is None and bool(np.isfinite(self.values).all())

    def bound(self, rel: float) -> float:
        """REL times the range of the finite values that are no fill values."""
        regular = np.isfinite(self.values)
        if self.fill is not None:
            regular &= ~np.isclose(self.values, self.fill, rtol=1e-5, atol=0)
        values = self.values[regular]
        return rel * (float(values.max()) - float(values.min())) if values.size else 0.0


def field_paths(sources: list[Path]) -> list[Path]:
    folders = {source: sorted(p for p in source.iterdir() if p.suffix in (".f32", ".f64"))
               for source in sources if source.is_dir()}
    return [path for source in sources for path in folders.get(source, [source])]


def read_field(path: Path) -> Field:
    match = re.search(r"_(\d+(?:x\d+)*)\.(f32|f64)$", path.name)
    if not match:
        sys.exit(f"{path}: not called like name_30x192x288.f32")
    values = np.fromfile(path, "<f4" if match[2] == "f32" else "<f8")
    return Field(path, values.reshape([int(n) for n in match[1].split("x")]), index_fill(path))


def index_fill(path: Path) -> float | None:
    """The fill value that the flag FILL(value,share) in the INDEX.tsv of the folder names."""
    index = path.parent / "INDEX.tsv"
    if not index.exists():
        return None
    with open(index, encoding="utf-8", newline="") as file:
        flags = {row["file"]: row["flags"] or "" for row in csv.DictReader(file, delimiter="\t")}
    match = re.search(r"FILL\(([^,)]+)", flags.get(path.name, ""))
    return float(match[1]) if match else None


def judge(original: np.ndarray, restored: np.ndarray, bound: float, packed_bytes: int) -> dict[str, float]:
    """The ratio, and the largest error of a finite value as a share of the bound; rounding cannot lift it above 1."""
    finite = np.isfinite(original)
    error = np.abs(original[finite].astype(np.float64) - restored[finite].astype(np.float64))
    worst = float(np.where(np.isnan(error), np.inf, error).max(initial=0.0))
    return {"ratio": original.nbytes / packed_bytes, "error_over_bound": worst / bound}


def sz3_config(algorithm: str, bound: float) -> szConfig:
    config = szConfig()
    config.errorBoundMode = szErrorBoundMode.ABS
    config.absErrorBound = bound
    config.cmprAlgo = ALGORITHMS[algorithm]
    config.openmp = False
    return config


def sz3_ratios(values: np.ndarray, bound: float) -> dict[str, dict[str, float]]:
    """Ratio and error of each algorithm."""
    figures = {}
    for algorithm in ALGORITHMS:
        packed, _ = sz.compress(values, sz3_config(algorithm, bound))
        restored, _ = sz.decompress(packed, values.dtype, values.shape)
        figures[algorithm] = judge(values, restored, bound, packed.size)
    return figures


def sz3_mbps(values: np.ndarray, bound: float, runs: int) -> tuple[float, float]:
    """MB/s, compressing and decompressing; a first run warms up and is not counted."""
    config = sz3_config(DEFAULT_ALGORITHM, bound)
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        packed, _ = sz.compress(values, config)
        middle = time.perf_counter()
        sz.decompress(packed, values.dtype, values.shape)
        times.append((middle - start, time.perf_counter() - middle))
    compress, decompress = map(min, zip(*times[1:]))
    return values.nbytes / compress / 1e6, values.nbytes / decompress / 1e6


def run_pumice(program: Path, *words: object) -> str:
    command = [str(program), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def pumice_ratio(args: argparse.Namespace, values: np.ndarray, limit: list[object], bound: float,
                 scratch: Path) -> dict[str, float]:
    """Ratio and error by the command line; `limit` is how the bound is given there."""
    original, stream, output = scratch / "original.raw", scratch / "stream.pum", scratch / "restored.raw"
    values.tofile(original)
    dtype = "f32" if values.itemsize == 4 else "f64"
    run_pumice(args.pumice, "compress", original, "-o", stream, "--preset", args.preset, "--threads", 1, "--quiet",
               "--dtype", dtype, "--shape", ",".join(map(str, values.shape)), *limit)
    run_pumice(args.pumice, "decompress", stream, "-o", output, "--threads", 1, "--quiet")
    restored = np.fromfile(output, values.dtype).reshape(values.shape)
    return judge(values, restored, bound, stream.stat().st_size)


def pumice_mbps(args: argparse.Namespace, path: Path, runs: int) -> tuple[float, float]:
    report = run_pumice(args.pumice, "bench", path, "--rel", repr(args.rel), "--preset", args.preset, "--threads", 1,
                        "--runs", runs, "--min-size", args.min_size * 10**6, "--json")
    row = json.loads(report)[0]
    return row["compress_gbps"] * 1e3, row["decompress_gbps"] * 1e3


def ratio_figures(bound: float, pumice: dict[str, float], sz3: dict[str, dict[str, float]]) -> dict:
    return {"abs_bound": bound, "pumice": pumice, "sz3": sz3, "pumice_ratio": pumice["ratio"],
            "sz3_ratio": max(algorithm["ratio"] for algorithm in sz3.values())}


def compare_field(args: argparse.Namespace, field: Field, scratch: Path) -> dict:
    """Ratios once, speeds in turns."""
    bound = field.bound(args.rel)
    if bound == 0:
        sys.exit(f"{field.path}: all values are the same")
    sz3 = sz3_ratios(field.values, bound)
    pumice = pumice_ratio(args, field.values, ["--rel", repr(args.rel)], bound, scratch)
    n_tiles = max(1, math.ceil(args.min_size * 10**6 / field.values.nbytes))
    tiled = np.concatenate([field.values] * n_tiles)
    speeds: dict[str, list[tuple[float, float]]] = {"sz3": [], "pumice": []}
    for runs in filter(None, [args.runs // 2, args.runs - args.runs // 2]):
        speeds["sz3"].append(sz3_mbps(tiled, bound, runs))
        speeds["pumice"].append(pumice_mbps(args, field.path, runs))
    result = {"file": field.path.name, "dtype": str(field.values.dtype), "in_means": field.plain,
              **ratio_figures(bound, pumice, sz3)}
    for who, pairs in speeds.items():
        result[f"{who}_compress_mbps"], result[f"{who}_decompress_mbps"] = map(max, zip(*pairs))
    return result


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def broken(results: list[dict]) -> tuple[int, int]:
    """On how many arrays Pumice, and either algorithm of SZ3, goes beyond the bound."""
    return (sum(row["pumice"]["error_over_bound"] > 1 for row in results),
            sum(any(algorithm["error_over_bound"] > 1 for algorithm in row["sz3"].values()) for row in results))


def compare_fields(args: argparse.Namespace, paths: list[Path], scratch: Path) -> tuple[list[dict], dict]:
    print(f"{'':<34}{'ratio':^32}{'compress MB/s':^20}{'decompress MB/s':^20}\n"
          f"{'field':<34}{'Pumice':>8}{'SZ3 int':>8}{'SZ3 reg':>8}{'P/best':>8}"
          f"{'Pumice':>8}{'SZ3':>6}{'P/SZ3':>6}{'Pumice':>8}{'SZ3':>6}{'P/SZ3':>6}")
    results = []
    for path in paths:
        row = compare_field(args, read_field(path), scratch)
        results.append(row)
        line = f"{path.name:<34}{row['pumice_ratio']:>8.2f}"
        line += "".join(f"{algorithm['ratio']:>8.2f}" for algorithm in row["sz3"].values())
        line += f"{row['pumice_ratio'] / row['sz3_ratio']:>8.3f}"
        for way in ("compress_mbps", "decompress_mbps"):
            pumice, sz3 = row[f"pumice_{way}"], row[f"sz3_{way}"]
            line += f"{pumice:>8.0f}{sz3:>6.0f}{pumice / sz3:>6.1f}"
        print(line + ("" if row["in_means"] else "  not in means"), flush=True)
    chosen = [row for row in results if row["in_means"] and row["dtype"] == "float32"]
    means: dict[str, float] = {"n_fields": len(chosen)}
    print(f"\ngeometric means over {len(chosen)} f32 fields without fill values or NaN, REL {args.rel:g}")
    for name in ("ratio", "compress_mbps", "decompress_mbps"):
        pumice, sz3 = (geometric_mean(row[f"{who}_{name}"] for row in chosen) for who in ("pumice", "sz3"))
        means |= {f"pumice_{name}": pumice, f"sz3_{name}": sz3, f"{name}_pumice_over_sz3": pumice / sz3}
        print(f"  {name:<16} Pumice {pumice:>8.2f}  SZ3 {sz3:>8.2f}  Pumice/SZ3 {pumice / sz3:.3f}")
    return results, means


def crop_shape(shape: tuple[int, ...], n_values: int) -> tuple[int, ...]:
    """A box of about `n_values` values, as near to a cube as the extents allow: short axes first, the rest shared."""
    sides = [0] * len(shape)
    rest = float(n_values)
    for rank, axis in enumerate(sorted(range(len(shape)), key=lambda axis: shape[axis])):
        sides[axis] = min(shape[axis], max(1, round(rest ** (1 / (len(shape) - rank)))))
        rest /= sides[axis]
    return tuple(sides)


def crops(values: np.ndarray) -> Iterator[tuple[int, float, np.ndarray]]:
    """(size in KB, relative position, contiguous box)."""
    for size in CROP_KB:
        sides = crop_shape(values.shape, size * 1024 // values.itemsize)
        for place in CROP_PLACES:
            starts = [round(place * (extent - side)) for extent, side in zip(values.shape, sides)]
            box = tuple(slice(start, start + side) for start, side in zip(starts, sides))
            yield size, place, np.ascontiguousarray(values[box])


def compare_crops(args: argparse.Namespace, paths: list[Path], scratch: Path) -> tuple[list[dict], dict]:
    results = []
    for path in paths:
        field = read_field(path)
        if not field.plain:
            print(f"{path.name}: skipped, has fill values or NaN")
            continue
        for size, place, crop in crops(field.values):
            bound = Field(path, crop, None).bound(args.rel)
            if bound == 0:
                continue
            sz3 = sz3_ratios(crop, bound)
            pumice = pumice_ratio(args, crop, ["--abs", repr(bound)], bound, scratch)
            results.append({"file": path.name, "kb": size, "place": place, "shape": crop.shape,
                            **ratio_figures(bound, pumice, sz3)})
    means = {}
    print(f"geometric means over crops, REL {args.rel:g} of the range of each\n"
          f"{'KB':>8}{'crops':>8}{'Pumice':>10}{'SZ3':>10}{'Pumice/SZ3':>13}{'least':>8}{'most':>8}")
    for label in [*map(str, CROP_KB), "all"]:
        chosen = [row for row in results if label in (str(row["kb"]), "all")]
        ours, theirs = (geometric_mean(row[f"{who}_ratio"] for row in chosen) for who in ("pumice", "sz3"))
        over = [row["pumice_ratio"] / row["sz3_ratio"] for row in chosen] or [math.nan]
        means[label] = {"n_crops": len(chosen), "pumice_ratio": ours, "sz3_ratio": theirs,
                        "ratio_pumice_over_sz3": ours / theirs}
        print(f"{label:>8}{len(chosen):>8}{ours:>10.3f}{theirs:>10.3f}{ours / theirs:>13.3f}"
              f"{min(over):>8.3f}{max(over):>8.3f}")
    return results, means


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="DATA", help="folders or files")
    parser.add_argument("--pumice", type=Path, default=Path("target/release/pumice"), help="the program")
    parser.add_argument("--preset", default="small", help="preset of Pumice (default: small)")
    parser.add_argument("--rel", type=float, default=1e-3, help="bound over value range (default: 1e-3)")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of which the best counts (default: 5)")
    parser.add_argument("--min-size", type=int, default=0, metavar="MB", help="repeat fields to this for speed")
    parser.add_argument("--small-arrays", action="store_true", help="compare small crops instead of whole fields")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    args = parser.parse_args()
    if not (args.runs > 0 and args.rel > 0):
        parser.error("--runs and --rel must be positive")
    compare = compare_crops if args.small_arrays else compare_fields
    with tempfile.TemporaryDirectory() as scratch:
        results, means = compare(args, field_paths(args.sources), Path(scratch))
    pumice_over, sz3_over = broken(results)
    print(f"bound broken, of {len(results)} arrays: Pumice {pumice_over}, SZ3 (either algorithm) {sz3_over}")
    if args.json:
        report = {"pysz": version("pysz"), "preset": args.preset, "rel": args.rel, "runs": args.runs,
                  "min_size_mb": args.min_size, "means": means, "arrays": results}
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if pumice_over else 0


if __name__ == "__main__":
    sys.exit(main())
