"""Draws docs/images/parallel-hdf5.svg: writing in the modes of an I/O server, from docs/data/parallel-hdf5.toml.

    python -m bench.hdf5_chart            writes the picture
    python -m bench.hdf5_chart --check    fails if the committed picture is not what this program writes
"""

import argparse
import sys
import tomllib

from bench.charts import ROOT

DATA = ROOT / "docs/data/parallel-hdf5.toml"
IMAGE = ROOT / "docs/images/parallel-hdf5.svg"

WIDTH, HEIGHT = 820, 332
TOP, BOTTOM = 76, 250
PANELS = {"time": (56, 410), "size": (476, 812)}
MODES = [("multi", "several files"), ("one", "one file")]

HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">
<title>Time and size of 3D fields written by MPI ranks into one HDF5 file or several</title>
<!-- Written by bench/hdf5_chart.py from docs/data/parallel-hdf5.toml. -->
<style>
  text {{ font-family: -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; font-size: 12px; fill: #1f2328 }}
  .page {{ fill: #ffffff }} .grid {{ stroke: #d1d9e0; fill: none }} .small, .axis {{ fill: #59636e }}
  .head {{ font-size: 14px; font-weight: 600 }} .mid {{ text-anchor: middle }} .end {{ text-anchor: end }}
  .multi {{ fill: #818b98 }} .one {{ fill: #0550ae }} .paper {{ stroke: #bc4c00; stroke-width: 2.5; fill: none }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #f0f6fc }} .page {{ fill: #0d1117 }} .grid {{ stroke: #30363d }} .small, .axis {{ fill: #9198a1 }}
    .multi {{ fill: #8b949e }} .one {{ fill: #58a6ff }} .paper {{ stroke: #ffa657 }}
  }}
</style>
<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>"""


def panel(title: str, key: str, bars: list[dict], most: float, ticks: list[float], unit: str) -> list[str]:
    """A group of two bars for each way; the survey's figure is a line across a bar."""
    left, right = PANELS[key]
    lines = [f'<text class="head" x="{left}" y="{TOP - 26}">{title}</text>']

    def height(value: float) -> float:
        return BOTTOM - value / most * (BOTTOM - TOP)

    for tick in ticks:
        lines.append(f'<path class="grid" d="M{left} {height(tick):.1f}H{right}"/>')
        lines.append(f'<text class="axis end" x="{left - 6}" y="{height(tick) + 4:.1f}">{tick:g}{unit}</text>')
    names = list(dict.fromkeys(bar["name"] for bar in bars))
    group = (right - left) / len(names)
    width = 0.36 * group
    for bar in bars:
        middle = left + (names.index(bar["name"]) + 0.5) * group
        side = [mode for mode, _ in MODES].index(bar["mode"])
        x, value = middle + (side - 1) * width + (2 * side - 1), bar[key]
        y = height(min(value, most))
        lines.append(f'<rect class="{bar["mode"]}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOTTOM - y:.1f}"/>')
        if f"survey_{key}" in bar:
            survey = height(bar[f"survey_{key}"])
            lines.append(f'<path class="paper" d="M{x - 3:.1f} {survey:.1f}h{width + 6:.1f}"/>')
            # The number is above a line that would cross it.
            y = survey if y - 18 < survey < y else y
        lines.append(f'<text class="mid" x="{x + width / 2:.1f}" y="{y - 5:.1f}">{value:.3g}</text>')
    for i, name in enumerate(names):
        lines.append(f'<text class="mid" x="{left + (i + 0.5) * group:.1f}" y="{BOTTOM + 17}">{name}</text>')
    lines.append(f'<path class="grid" d="M{left} {BOTTOM}H{right}"/>')
    return lines


def chart(data: dict) -> str:
    """Both panels and a legend."""
    bars, y = data["bar"], HEIGHT - 40
    for bar in bars:
        bar["size"] = 100 / bar["ratio"]
        if "survey_ratio" in bar:
            bar["survey_size"] = 100 / bar["survey_ratio"]
    lines = [HEAD, f'<text class="small" x="8" y="20">{data["setting"]["title"]}</text>']
    lines += panel("Time, several files without compression = 1", "time", bars, **data["axis"]["time"], unit="")
    lines += panel("Size, values = 100 %", "size", bars, **data["axis"]["size"], unit=" %")
    for i, (mode, name) in enumerate(MODES):
        lines.append(f'<rect class="{mode}" x="{8 + 120 * i}" y="{y - 10}" width="12" height="12"/>')
        lines.append(f'<text x="{26 + 120 * i}" y="{y}">{name}</text>')
    lines.append(f'<path class="paper" d="M228 {y - 4}h22"/>')
    lines.append(f'<text x="256" y="{y}">{data["setting"]["survey"]}</text>')
    lines += [f'<text class="small" x="8" y="{HEIGHT - 14}">{data["setting"]["note"]}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the committed picture differs")
    arguments = parser.parse_args()
    wanted = chart(tomllib.loads(DATA.read_text()))
    if arguments.check:
        if not IMAGE.exists() or IMAGE.read_text() != wanted:
            sys.exit(f"hdf5_chart.py: {IMAGE.name} is out of date: run `python -m bench.hdf5_chart` and commit it")
        print(f"{IMAGE.name} is up to date")
        return
    IMAGE.write_text(wanted)
    print(f"wrote {IMAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
