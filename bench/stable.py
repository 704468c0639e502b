#!/usr/bin/env python3
"""What the stable mode costs, and that copies keep every bit: the table of docs/benchmarks.md.

Compresses every f32 and f64 file of a data folder (INDEX.tsv lists them) with and without `--stable`, and prints for each
preset and bound the geometric mean of the ratio of sizes, the worst file, and the share of files that lose more than 2 %.
The restored values of each are written again by another preset in the stable mode; the exit status is 1 if a bit changes.

    python -m bench.stable --data DIR --pumice target/release/pumice [--preset fast,small,...] [--rel 1e-2,...] [FILE...]
"""

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*command):
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{ended.stderr}")
    return ended.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pumice", type=Path, required=True)
    parser.add_argument("--preset", default="fast,balanced,small,max")
    parser.add_argument("--rel", default="1e-2,1e-3,1e-4")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    with open(args.data / "INDEX.tsv", newline="") as index:
        rows = list(csv.DictReader(index, delimiter="\t"))
    files = args.files or [row["file"] for row in rows if row["dtype"] in ("f32", "f64")]
    shapes = {row["file"]: row["dims"].replace("x", ",") for row in rows}
    is_same = True
    print("| preset | REL | ratio in the stable mode over that without it | worst | files that lose more than 2 % |")
    print("|---|---|---:|---|---:|")
    for preset in args.preset.split(","):
        for rel in args.rel.split(","):
            kept = {}
            for file in files:
                with tempfile.TemporaryDirectory() as folder:
                    path, stable, copy = (Path(folder) / name for name in ("free.pum", "stable.pum", "copy.pum"))
                    compress = [args.pumice, "compress", "--json", args.data / file]
                    free = json.loads(run(*compress, "-o", path, "--rel", rel, "--preset", preset))
                    found = json.loads(run(*compress, "-o", stable, "--rel", rel, "--preset", preset, "--stable"))
                    kept[file] = free["compressed_bytes"] / found["compressed_bytes"]
                    if found["abs_bound"] == 0:
                        continue
                    first, second = Path(folder) / f"first.{found['dtype']}", Path(folder) / "second"
                    run(args.pumice, "decompress", stable, "-o", first)
                    layout = ["--dtype", found["dtype"], "--shape", shapes[file]]
                    other = "balanced" if preset == "fast" else "fast"
                    again = ["--abs", repr(found["abs_bound"]), "--preset", other, "--stable"]
                    run(args.pumice, "compress", first, "-o", copy, *layout, *again)
                    run(args.pumice, "decompress", copy, "-o", second)
                    if first.read_bytes() != second.read_bytes():
                        print(f"{file}, {preset} at {rel}: a copy differs", file=sys.stderr)
                        is_same = False
            mean = math.exp(sum(map(math.log, kept.values())) / len(kept))
            worst = min(kept, key=kept.get)
            n_lose = sum(share < 1 / 1.02 for share in kept.values())
            print(f"| `{preset}` | {rel} | {mean:.3f} | {kept[worst]:.3f}, {worst} | {n_lose} of {len(kept)} |", flush=True)
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
