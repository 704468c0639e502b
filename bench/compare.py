"""Pumice beside other error-bounded compressors: ratio, speed on one thread, and whether the bound is kept, in one run.

    cargo xtask corpus && cargo build --release
    python3 -m venv target/bench && target/bench/bin/pip install -r bench/requirements.txt
    target/bench/bin/python -m bench.compare --preset fast,balanced,small,max --min-size 64 target/corpus
    target/bench/bin/python -m bench.compare --small-arrays --rel 1e-3 target/corpus

Fields are raw files called name_30x192x288.f32 or .f64, slowest axis first; a folder stands for all such files in it,
and its INDEX.tsv, if there is one, flags fields with fill values. Every compressor gets the same absolute bound, REL
times the value range of the array, and numpy judges in float64 what it gives back.

Peers are SZ3 (package pysz), SZ2 and SPERR (hdf5plugin), zfp with fixed accuracy (zfpy), and LERC (pylerc). The ratio
of SZ3 is the better of interpolation with Lorenzo and of Lorenzo with regression; its speed is that of the first, its
default. Each peer runs in a process of its own. A peer that crashes, does not end or cannot take an array, as SPERR
with one axis, has failed on it. SPERR takes an array of four axes as several of three.

Whole fields: ratios at each REL, speeds at one. All compressors take two turns on every field, and the best of all runs
counts. They work on the field as it is, unless --min-size asks to repeat it along the slowest axis for speed; the ratio
is always that of the field. `pumice bench` times Pumice, which reuses its buffers between runs; the others allocate
theirs anew.

Small arrays (--small-arrays, instead of whole fields): boxes of about 1, 4, 16, 64 and 100 KB, near-cubic, cut at
three fixed positions in each field, each compressed as an array of its own.

Means are geometric and leave out fields with fill values or NaN; those of whole fields are over f32 alone. If a
compressor fails on some of these, a second table has the means over those on which all succeed. Progress goes to
standard error, tables to standard output. The exit status is 1 if Pumice breaks a bound, loses a NaN or fails.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import numpy as np

from bench import figures
from bench.arrays import CROP_KB, Field, crops, field_paths, read_field
from bench.figures import Result, Results, Run, rel_text
from bench.peers import PEERS, Failure, IsolatedPeer, Restored, Speed

DEFAULT_PRESET = "small"


class Compressor(Protocol):
    """A preset of Pumice or a peer. Both functions may raise Failure."""

    name: str

    def restore(self, values: np.ndarray, bound: float) -> list[Restored]:
        """What comes back, from each algorithm that there is to choose from."""

    def speed(self, field: Field, rel: float, n_runs: int, min_bytes: int) -> Speed:
        """The best of some runs on the field, repeated to a size."""


class Pumice:
    """A preset, by the command line."""

    def __init__(self, program: Path, preset: str, scratch: Path):
        self.name = preset
        self._program, self._scratch = program, scratch

    def restore(self, values: np.ndarray, bound: float) -> list[Restored]:
        original, stream, output = (self._scratch / name for name in ("original.raw", "stream.pum", "restored.raw"))
        values.tofile(original)
        self._run("compress", original, "-o", stream, "--preset", self.name, "--abs", repr(bound), "--threads", 1,
                  "--quiet", "--dtype", f"f{8 * values.itemsize}", "--shape", ",".join(map(str, values.shape)))
        self._run("decompress", stream, "-o", output, "--threads", 1, "--quiet")
        return [Restored(stream.stat().st_size, np.fromfile(output, values.dtype).reshape(values.shape))]

    def speed(self, field: Field, rel: float, n_runs: int, min_bytes: int) -> Speed:
        report = self._run("bench", field.path, "--rel", repr(rel), "--preset", self.name, "--threads", 1,
                           "--runs", n_runs, "--min-size", min_bytes, "--json")
        row = json.loads(report)[0]
        return Speed(row["compress_gbps"] * 1e3, row["decompress_gbps"] * 1e3)

    def _run(self, *words: object) -> str:
        command = [str(self._program), *map(str, words)]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except OSError as error:
            raise Failure(str(error)) from error
        except subprocess.CalledProcessError as error:
            raise Failure(f"{shlex.join(command)}: {error.stderr.strip()}") from error


def progress(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def run_once(compressor: Compressor, values: np.ndarray, bound: float, rel: float) -> Run:
    try:
        run = figures.judge(values, compressor.restore(values, bound), bound, rel)
    except Failure as failure:
        run = Run(rel, failure=str(failure))
    figure = run.failure or f"{run.ratio:.2f}"
    note = "" if run.verdict == "kept" else f"{run.verdict}: "
    progress(f"  REL {rel_text(rel)}  {compressor.name:<10}{note}{figure}")
    return run


def add_speeds(args: argparse.Namespace, compressors: list[Compressor], field: Field, results: list[Result]) -> None:
    """The best speed of two turns, for every result that is complete."""
    for n_runs in filter(None, [args.runs // 2, args.runs - args.runs // 2]):
        for compressor, result in zip(compressors, results):
            if not result.is_complete:
                continue
            try:
                speed = compressor.speed(field, args.speed_rel, n_runs, args.min_size * 10**6)
                result.speed = speed.best(result.speed or speed)
                progress(f"  MB/s      {compressor.name:<10}{speed.compress:.0f} / {speed.decompress:.0f}")
            except Failure as failure:
                result.speed_failure = str(failure)
                progress(f"  MB/s      {compressor.name:<10}failed: {failure}")


def compare_field(args: argparse.Namespace, compressors: list[Compressor], field: Field) -> Iterator[Result]:
    in_means = field.is_plain and field.values.dtype == np.float32
    results = [Result(compressor.name, field.path.name, in_means) for compressor in compressors]
    for rel in args.rel:
        for compressor, result in zip(compressors, results):
            result.runs.append(run_once(compressor, field.values, field.bound(rel), rel))
    add_speeds(args, compressors, field, results)
    yield from results


def compare_crops(args: argparse.Namespace, compressors: list[Compressor], field: Field) -> Iterator[Result]:
    if not field.is_plain:
        progress("  skipped: it has fill values or NaN")
        return
    for kb, place, values in crops(field.values):
        crop = Field(field.path, values)
        if crop.bound(1.0) == 0:
            continue
        name = f"{field.path.name}, {kb} KB at {place:g}"
        progress(f" {name}")
        for compressor in compressors:
            runs = [run_once(compressor, values, crop.bound(rel), rel) for rel in args.rel]
            yield Result(compressor.name, name, True, kb, runs)


def compare(args: argparse.Namespace, compressors: list[Compressor]) -> Results:
    results: Results = {compressor.name: [] for compressor in compressors}
    paths = field_paths(args.sources)
    for i, path in enumerate(paths):
        progress(f"[{i + 1}/{len(paths)}] {path.name}")
        field = read_field(path)
        if field.bound(1.0) == 0:
            progress("  skipped: all values are the same")
            continue
        compare_one = compare_crops if args.small_arrays else compare_field
        for result in compare_one(args, compressors, field):
            results[result.compressor].append(result)
    return results


def print_means(args: argparse.Namespace, results: Results, which: str) -> None:
    if args.small_arrays:
        for rel in args.rel:
            print(f"Mean ratios at REL {rel_text(rel)} over crops {which}\n")
            print(figures.crop_table(results, CROP_KB, rel), end="\n\n")
    else:
        print(f"Means over f32 fields without fill values or NaN {which}; MB/s at REL {rel_text(args.speed_rel)}\n")
        print(figures.field_table(results, args.rel), end="\n\n")


def print_tables(args: argparse.Namespace, results: Results) -> None:
    common = figures.on_common_arrays(results)
    print_means(args, results, "on which each compressor succeeds")
    if any(len(figures.in_means(mine)) > len(common[name]) for name, mine in results.items()):
        print_means(args, common, "on which all compressors succeed")
    print("Runs on all arrays, also those outside of the means\n")
    print(figures.verdict_table(results))


def versions(args: argparse.Namespace) -> dict[str, str]:
    return {package: number for key in args.peers for package, number in PEERS[key].versions().items()}


def write_json(args: argparse.Namespace, results: Results) -> None:
    report = {
        "packages": versions(args), "rel": args.rel, "speed_rel": args.speed_rel, "runs": args.runs,
        "min_size_mb": args.min_size,
        "compressors": {name: figures.summary(mine, args.rel) for name, mine in results.items()},
        "arrays": [asdict(result) for mine in results.values() for result in mine],
    }
    args.json.write_text(json.dumps(figures.without_nan(report), indent=1) + "\n", encoding="utf-8")


def write_toml(args: argparse.Namespace, results: Results) -> None:
    packages = ", ".join(f"{name} {number}" for name, number in versions(args).items())
    ratios = f"Ratios at REL {', '.join(map(rel_text, args.rel))}"
    speeds = f"speeds at {rel_text(args.speed_rel)}, of fields repeated to {args.min_size} MB"
    head = "\n".join([
        "[measurement.compare]",
        f"command = {json.dumps(f'python -m bench.compare {shlex.join(sys.argv[1:])}')}",
        'machine = ""  # say which',
        f'isa = "Pumice: chosen at run time; the wheels of PyPI as they come: {packages}"',
        f'note = "{ratios}; {speeds}."',
    ])
    flags = {name: ["pumice"] for name in args.preset} | {DEFAULT_PRESET: ["pumice", "default"]}
    entries = [figures.toml_entry(name, mine, args.rel, flags.get(name, [])) for name, mine in results.items()]
    args.toml.write_text("\n\n".join([head, *entries]) + "\n", encoding="utf-8")


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def bounds(text: str) -> list[float]:
    values = [float(word) for word in words(text)]
    if not values or min(values) <= 0:
        raise ValueError
    return values


def peer_keys(text: str) -> list[str]:
    """The names of peers, all of which must be known and installed."""
    for key in words(text):
        if key not in PEERS:
            raise argparse.ArgumentTypeError(f"no peer '{key}'; there are {', '.join(PEERS)}")
        if not PEERS[key].is_installed():
            raise argparse.ArgumentTypeError(f"{key} needs the packages {', '.join(PEERS[key].packages)}")
    return words(text)


def arguments() -> argparse.Namespace:
    installed = ",".join(key for key, peer in PEERS.items() if peer.is_installed())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="DATA", help="folders or files")
    parser.add_argument("--pumice", type=Path, default=Path("target/release/pumice"), help="the program")
    parser.add_argument("--preset", type=words, default=DEFAULT_PRESET, metavar="PRESET,..",
                        help=f"presets of Pumice (default: {DEFAULT_PRESET})")
    parser.add_argument("--peers", type=peer_keys, default=installed, metavar="PEER,..",
                        help=f"of {', '.join(PEERS)} (default: all that are installed: {installed})")
    parser.add_argument("--rel", type=bounds, default="1e-2,1e-3,1e-4", metavar="REL,..",
                        help="bounds over the value range (default: 1e-2,1e-3,1e-4)")
    parser.add_argument("--speed-rel", type=float, default=1e-3, metavar="REL", help="bound for speeds (default: 1e-3)")
    parser.add_argument("--runs", type=int, default=5, metavar="N",
                        help="runs of which the best counts (default: 5); 0 leaves out speeds")
    parser.add_argument("--min-size", type=int, default=0, metavar="MB", help="repeat fields to this for speed")
    parser.add_argument("--small-arrays", action="store_true", help="compare small crops instead of whole fields")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--toml", type=Path, metavar="FILE", help="write means there, for docs/data/ratio-speed.toml")
    args = parser.parse_args()
    if args.runs < 0 or args.speed_rel <= 0:
        parser.error("--runs must not be negative, and --speed-rel must be positive")
    if args.toml and (args.small_arrays or args.runs == 0):
        parser.error("--toml is for whole fields with speeds")
    return args


def check(presets: list[Pumice]) -> None:
    """Ends the program if there is no such preset, or no Pumice."""
    try:
        for preset in presets:
            preset.restore(np.arange(64, dtype=np.float32), 0.1)
    except Failure as failure:
        sys.exit(str(failure))


def main() -> int:
    args = arguments()
    for peer in PEERS.values():
        if not peer.is_installed():
            progress(f"{peer.name} is left out: it needs the packages {', '.join(peer.packages)}")
    with tempfile.TemporaryDirectory() as scratch:
        presets = [Pumice(args.pumice, preset, Path(scratch)) for preset in args.preset]
        check(presets)
        results = compare(args, [*presets, *(IsolatedPeer(PEERS[key]) for key in args.peers)])
    print_tables(args, results)
    if args.json:
        write_json(args, results)
    if args.toml:
        write_toml(args, results)
    is_kept = all(run.verdict == "kept" for preset in args.preset for result in results[preset] for run in result.runs)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
