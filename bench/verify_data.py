#!/usr/bin/env python3
"""Independent check of Pumice on real fields: bound, special values, ratio, and the independent decoder.

Runs the `pumice` program on every file of a data folder (INDEX.tsv lists them) with the presets `fast`, `small` and
those of papers at REL 1e-2, 1e-3, 1e-4, and 1e-6 for f64, and with `max` at 1e-3, and judges the outcome with numpy alone:

- every finite value is within the absolute bound that the program reports, without any rounding in the comparison;
- that bound is at most REL times the range of the finite values that are no fill values;
- NaN, infinities and fill values come back bit for bit;
- the independent decoder gives the same bits as the program: with `fast` for one chunk of each file at each bound, with the
  others, which take it longer, for a box cut out of each file at one bound.

Prints the ratio of each file at each bound, and the geometric means over the f32 files without fill values. The exit
status is 1 if any check fails, or a mean is below its floor.

    python -m bench.verify_data --data DIR --pumice target/release/pumice [--preset fast,small,...]
        [--mean-of FILE,FILE...] [--ratio-floor 16.3,8.2,4.9] [--ratio-floor small=20,10,6] [FILE...]
"""

import argparse
import csv
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import reference

OF_PAPERS = ("cuszp2-plain", "cuszp2-outlier", "cuszplus", "ceaz", "ceresz2")
PRESETS = ("fast", "balanced", "small", "max", *OF_PAPERS)
# Bounds for all files, and more for f64.
BOUNDS = {preset: ([1e-2, 1e-3, 1e-4], [1e-6]) for preset in PRESETS} | {"max": ([1e-3], [])}
BOUNDS |= {preset: ([1e-2, 1e-4], []) for preset in OF_PAPERS}
# Values of the box on which the independent decoder is tried.
BOX_VALUES = {preset: 16384 for preset in PRESETS} | {"max": 2048}
del BOX_VALUES["fast"]  # All of it is decoded.


class Failure(Exception):
    """A check failed."""


def require(condition, message):
    if not condition:
        raise Failure(message)


def fill_mask(values, flags):
    """Where the fill value is that the flag FILL(value,share) of the index gives with six digits."""
    match = re.search(r"FILL\(([^,]+),([\d.]+)%\)", flags)
    if not match:
        return np.zeros(values.shape, bool)
    nearby = np.unique(values[np.isclose(values, float(match[1]), rtol=1e-5, atol=0)])
    require(nearby.size == 1, f"the index names one fill value near {match[1]}, the file has {nearby.size}")
    mask = values == nearby[0]
    share = 100 * mask.mean()
    require(abs(share - float(match[2])) < 0.1, f"{share:.2f} % fill values, the index says {match[2]} %")
    return mask


def check_bound(original, restored, bound, where):
    """|original - restored| <= bound, exactly: the difference is the unevaluated sum of two numbers (two-sum)."""
    x, y = original[where].astype(np.float64), restored[where].astype(np.float64)
    require(np.isfinite(y).all(), "a finite value became NaN or infinite")
    difference = x - y
    back = difference - x
    rest = (x - (difference - back)) + (-y - back)
    sign = np.where(difference < 0, -1.0, 1.0)
    size, rest = difference * sign, rest * sign
    broken = ~((size < bound) | ((size == bound) & (rest <= 0)))
    if broken.any():
        i = np.flatnonzero(broken)[0]
        raise Failure(f"bound {bound!r} broken by {broken.sum()} values, first {x[i]!r} became {y[i]!r}")
    return size.max(initial=0.0)


def check_range(values, where, rel, bound):
    """The absolute bound is at most REL times the range, as float64 arithmetic gives it."""
    finite = values[where].astype(np.float64)
    if finite.size:
        most = rel * (finite.max() - finite.min())
        require(bound <= most, f"abs_bound {bound!r} is above {most!r}, which is {rel} of the range")


def same_bits(a, b):
    unsigned = np.dtype(f"u{a.itemsize}")
    return np.array_equal(a.view(unsigned), b.view(unsigned))


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    require(done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def verify(args, path, shape, dtype, flags, preset, rel, scratch):
    """One file at one bound: (ratio, largest error as a share of the bound)."""
    stream, output = scratch / "stream.pum", scratch / "restored.raw"
    report = compress(args, path, stream, preset, rel)
    run(args.pumice, "decompress", stream, "-o", output)
    original = np.fromfile(path, dtype).reshape(shape)
    restored = np.fromfile(output, dtype)
    require(restored.size == original.size, f"{original.size} values became {restored.size}")
    restored = restored.reshape(shape)

    fill = fill_mask(original, flags)
    finite = np.isfinite(original)
    exact = fill | ~finite
    require(same_bits(original[exact], restored[exact]), "a NaN, infinity or fill value is not bit for bit the same")
    bound = report["abs_bound"]
    check_range(original, ~exact, rel, bound)
    worst = check_bound(original, restored, bound, ~exact)
    require(report["raw_bytes"] == path.stat().st_size, "raw_bytes is not the size of the input")
    require(report["compressed_bytes"] == stream.stat().st_size, "compressed_bytes is not the size of the output")
    if preset == "fast":
        # Another chunk at each bound.
        check_decoder(stream.read_bytes(), int(-math.log10(rel)) * 7 % report["n_chunks"], restored)
    return report["raw_bytes"] / report["compressed_bytes"], worst / bound if bound else 0.0


def compress(args, path, stream, preset, rel):
    words = ("compress", path, "-o", stream, "--preset", preset, "--rel", repr(rel), "--json")
    return json.loads(run(args.pumice, *words))


def verify_box(args, path, shape, dtype, preset, rel, scratch):
    """Tests the independent decoder on a box from the middle of a file."""
    extents = list(shape)
    while math.prod(extents) > BOX_VALUES[preset]:
        longest = extents.index(max(extents))
        extents[longest] = -(-extents[longest] // 2)
    box = tuple(slice((n - e) // 2, (n - e) // 2 + e) for n, e in zip(shape, extents))
    source, stream, output = scratch / "box.npy", scratch / "box.pum", scratch / "box.raw"
    np.save(source, np.fromfile(path, dtype).reshape(shape)[box])
    compress(args, source, stream, preset, rel)
    run(args.pumice, "decompress", stream, "-o", output)
    check_decoder(stream.read_bytes(), 0, np.fromfile(output, dtype).reshape(extents))


def check_decoder(data, chunk, restored):
    """The independent decoder must give the bits that the program restored, for one chunk."""
    decoded = reference.decode_chunk(data, chunk)
    box = np.ascontiguousarray(restored[reference.chunk_box(data, chunk)])
    require(decoded.shape == box.shape and same_bits(np.ascontiguousarray(decoded), box),
            f"the independent decoder gives other bits for chunk {chunk}")


def read_index(folder, names):
    with open(folder / "INDEX.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    unknown = set(names) - {row["file"] for row in rows}
    if unknown:
        sys.exit(f"not in INDEX.tsv: {', '.join(sorted(unknown))}")
    return [row for row in rows if not names or row["file"] in names]


def check_means(preset, means, floors):
    failures = 0
    for (rel, ratios), floor in zip(means.items(), floors + [None] * len(means)):
        if not ratios:
            continue
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        verdict = "" if floor is None else f", at least {floor:g} wanted: {'yes' if mean >= floor else 'NO'}"
        print(f"{preset}: geometric mean of {len(ratios)} f32 files without fill values, "
              f"REL {rel:g}: {mean:.3f}{verdict}")
        failures += floor is not None and mean < floor
    return failures


def read_floors(options):
    """[PRESET=]R,R,R -> the floors of each preset."""
    floors = {preset: [] for preset in BOUNDS}
    for option in options:
        preset, _, ratios = option.rpartition("=")
        floors[preset or "fast"] = [float(ratio) for ratio in ratios.split(",")]
    return floors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="names from INDEX.tsv; all of them if none is given")
    parser.add_argument("--data", type=Path, default=Path("target/corpus"), help="folder with INDEX.tsv")
    parser.add_argument("--mean-of", metavar="FILE,FILE...", help="the files of the means, if not all; without all of them no means")
    parser.add_argument("--pumice", type=Path, default=Path("target/release/pumice"), help="the program")
    parser.add_argument("--preset", default=",".join(PRESETS), help="presets to run, separated by commas")
    parser.add_argument("--ratio-floor", action="append", default=[], metavar="[PRESET=]R,R,R",
                        help="least mean ratio at each bound, of `fast` if no preset is named; may be repeated")
    args = parser.parse_args()
    floors = read_floors(args.ratio_floor)
    rows = read_index(args.data, args.files)
    mean_of = args.mean_of.split(",") if args.mean_of else [row["file"] for row in rows]
    absent = set(mean_of) - {row["file"] for row in rows}
    if absent:
        print(f"no mean ratios: {', '.join(sorted(absent))} not here")
        mean_of = []
    passed = failed = below = 0
    for preset in args.preset.split(","):
        bounds, f64_bounds = BOUNDS[preset]
        means = {rel: [] for rel in bounds}
        print(f"{'preset ' + preset:<36}{'REL':>7}{'ratio':>10}{'error/bound':>13}")
        with tempfile.TemporaryDirectory() as scratch:
            for i, row in enumerate(rows):
                dtype = np.dtype({"f32": "<f4", "f64": "<f8"}[row["dtype"]])
                shape = tuple(int(n) for n in row["dims"].split("x"))
                path, rels = args.data / row["file"], bounds + (f64_bounds if row["dtype"] == "f64" else [])
                for rel in rels:
                    try:
                        ratio, share = verify(args, path, shape, dtype, row["flags"], preset, rel, Path(scratch))
                        if preset in BOX_VALUES and rel == rels[i % len(rels)]:
                            verify_box(args, path, shape, dtype, preset, rel, Path(scratch))
                    except (Failure, reference.FormatError) as failure:
                        failed += 1
                        print(f"{row['file']:<36}{rel:>7g}  FAILED: {failure}", flush=True)
                        continue
                    passed += 1
                    print(f"{row['file']:<36}{rel:>7g}{ratio:>10.3f}{share:>13.6f}", flush=True)
                    if row["dtype"] == "f32" and "FILL" not in row["flags"] and row["file"] in mean_of and rel in means:
                        means[rel].append(ratio)
        below += check_means(preset, means, floors[preset])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or below else 0


if __name__ == "__main__":
    sys.exit(main())
