"""How well targets are met on real fields: the tables of docs/targets.md.

    cargo build --release && python -m bench.target_table --data target/corpus --pumice target/release/pumice

Takes every f32 file of more than 1 MB that INDEX.tsv lists, presets fast and small. PSNRs and ratios are the same for all
files; the L2 norm is that of errors whose root mean square is 1/1000 of the value range. Everything is measured by
`pumice bench --psnr/--l2/--ratio`, which compares what comes back with the original.
"""

import argparse
import json
import subprocess
import sys
from array import array
from pathlib import Path

PSNRS = (40, 60, 80)
RATIOS = (5, 10, 20, 50)
PRESETS = ("fast", "small")


def norm(path, flags):
    """sqrt(n) / 1000 times the range of the values that are no fill values."""
    values = array("f", path.read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    fill = float(flags.split("(")[1].split(",")[0]) if flags.startswith("FILL(") else None
    counted = [v for v in values if v == v and (fill is None or abs(v - fill) > 1e-3 * abs(fill))]
    return (max(counted) - min(counted)) / 1000 * len(values) ** 0.5


def bench(args, path, *targets):
    words = [args.pumice, "bench", str(path), "--preset", ",".join(PRESETS), "--threads", "0", "--json", *targets]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def cell(row):
    """How far off, passes in brackets; a star where nothing closer was found."""
    if row["outcome"] is None:
        return "not reached"
    out = row["outcome"]
    if out["abs_bound"] == 0:
        return f"lossless, {out['ratio']:.1f}x"
    digits = 1 if row["kind"] == "ratio" else 2
    return f"+{out['off']:.{digits}f} ({out['passes']}){'' if out['is_close'] else '*'}"


def table(rows, columns):
    print("| field | preset | " + " | ".join(name for name, _, _ in columns) + " |")
    print("|---|---|" + "--:|" * len(columns))
    for name in dict.fromkeys(Path(row["file"]).stem for row in rows):
        for preset in PRESETS:
            mine = {(r["kind"], r["asked"]): r for r in rows if Path(r["file"]).stem == name and r["preset"] == preset}
            l2 = next((r for (kind, _), r in mine.items() if kind == "l2"), None)
            cells = [cell(l2 if kind == "l2" else mine[kind, asked]) for _, kind, asked in columns]
            print(f"| {name} | {preset} | " + " | ".join(cells) + " |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with INDEX.tsv")
    parser.add_argument("--pumice", required=True, help="the program")
    args = parser.parse_args()
    rows = []
    for line in (args.data / "INDEX.tsv").read_text().splitlines()[1:]:
        name, dtype, _, _, _, _, _, flags = line.split("\t")[:8]
        path = args.data / name
        if dtype != "f32" or path.stat().st_size <= 1_000_000:
            continue
        rows += bench(args, path, "--psnr", ",".join(map(str, PSNRS)), "--l2", repr(norm(path, flags)),
                      "--ratio", ",".join(map(str, RATIOS)))
    table(rows, [(f"PSNR {db}", "psnr", db) for db in PSNRS] + [("L2", "l2", None)])
    table(rows, [(f"ratio {r}", "ratio", r) for r in RATIOS])
    for kind, unit in ("psnr", "dB"), ("l2", "dB"), ("ratio", "%"):
        mine = [r for r in rows if r["kind"] == kind]
        lossy = [r["outcome"] for r in mine if r["outcome"] and r["outcome"]["abs_bound"] > 0]
        offs = sorted(out["off"] for out in lossy)
        passes = [out["passes"] for out in lossy]
        print(f"{kind}: {len(mine)} cases, {sum(not r['outcome'] for r in mine)} out of reach, "
              f"{len(mine) - len(lossy) - sum(not r['outcome'] for r in mine)} lossless; of the other {len(lossy)}: "
              f"{sum(out['is_close'] for out in lossy)} close, median {offs[len(offs) // 2]:.2f} {unit}, "
              f"largest {offs[-1]:.2f} {unit}, least {offs[0]:.3f} {unit}, "
              f"{sum(passes) / len(passes):.1f} passes on average, most {max(passes)}")


if __name__ == "__main__":
    main()
