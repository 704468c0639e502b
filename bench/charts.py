"""Draws ratio against speed from docs/data/ratio-speed.toml, and writes the same figures as README's table.

    python -m bench.charts            writes docs/images/ratio-speed-{light,dark}.svg, docs/images/presets.svg
                                      and the table of README.md
    python -m bench.charts --check    fails if a committed file is not what this program writes

The SVG is assembled from strings with fixed rounding, so the same figures give the same bytes everywhere. Python 3.11,
standard library only.
"""

import argparse
import math
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs/data/ratio-speed.toml"
README = ROOT / "README.md"
TABLE_BEGIN = "<!-- begin table: python -m bench.charts -->\n"
TABLE_END = "<!-- end table -->"
APART = "apart"  # the measurement of other compressors on other arrays and another machine

WIDTH, HEIGHT = 800, 372
TOP, BOTTOM = 62, 318
PANELS = {"compress": (50, 398), "decompress": (444, 792)}
SPEEDS = (10.0, 20_000.0)  # MB/s, ends of the x axis
RATIOS = (2.0, 24.0)  # ends of the y axis
FONT = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
CHARACTER_WIDTH = 0.66  # of the font size: more than the mean of these fonts, so that labels have enough room


class Theme(NamedTuple):
    """Colours on GitHub's page background. Blue and grey differ in lightness too, for colour-blind readers and print."""

    background: str
    text: str
    faint: str
    grid: str
    pumice: str
    peer: str


THEMES = {
    "light": Theme("#ffffff", "#1f2328", "#59636e", "#d1d9e0", "#0550ae", "#818b98"),
    "dark": Theme("#0d1117", "#f0f6fc", "#9198a1", "#30363d", "#58a6ff", "#8b949e"),
}


class Box(NamedTuple):
    """A rectangle in the picture."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        apart_x = self.right <= other.left or other.right <= self.left
        apart_y = self.bottom <= other.top or other.bottom <= self.top
        return not (apart_x or apart_y)

    def contains(self, other: "Box") -> bool:
        within_x = self.left <= other.left and other.right <= self.right
        return within_x and self.top <= other.top and other.bottom <= self.bottom


class Label(NamedTuple):
    """Where a label goes: its anchor ("start", "middle" or "end") and the position of that."""

    anchor: str
    x: float
    y: float

    def box(self, width: float, size: float) -> Box:
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return Box(left - 1, self.y - 0.85 * size, left + width + 1, self.y + 0.25 * size)


def place_label(name: str, size: float, x: float, y: float, taken: list[Box], frame: Box) -> Label:
    """A position for the label of the point (x, y) that overlaps no box in `taken`; adds the label's box to them."""
    above, level, below = y - 10, y + 0.36 * size, y + 10 + 0.75 * size
    for label in [
        Label("start", x + 9, level),
        Label("end", x - 9, level),
        Label("middle", x, above),
        Label("middle", x, below),
        Label("start", x + 8, above + 2),
        Label("end", x - 8, above + 2),
        Label("start", x + 8, below - 2),
        Label("end", x - 8, below - 2),
    ]:
        box = label.box(CHARACTER_WIDTH * size * len(name), size)
        if frame.contains(box) and not any(box.overlaps(other) for other in taken):
            taken.append(box)
            return label
    sys.exit(f"charts.py: no room for the label '{name}': give the picture more space")


def on_axis(value: float, ends: tuple[float, float], start: float, stop: float) -> float:
    """Where `value` lies on a logarithmic axis from pixel `start` to pixel `stop`."""
    return start + math.log(value / ends[0]) / math.log(ends[1] / ends[0]) * (stop - start)


def text(content: str, x: float, y: float, fill: str, size: int = 12, anchor: str = "start", weight: int = 400) -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{content}</text>'


def square(x: float, y: float, fill: str) -> str:
    return f'<path d="M{x - 4.5:.1f} {y - 4.5:.1f}h9v9h-9z" fill="{fill}"/>'


def hollow_square(x: float, y: float, stroke: str) -> str:
    return f'<path d="M{x - 4:.1f} {y - 4:.1f}h8v8h-8z" fill="none" stroke="{stroke}" stroke-width="1.5"/>'


def circle(x: float, y: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{fill}"/>'


def panel(title: str, key: str, compressors: list[dict], theme: Theme) -> list[str]:
    """One diagram, of speed in direction `key`."""
    left, right = PANELS[key]
    lines = [text(title, left, TOP - 12, theme.text, size=14, weight=600)]
    for ratio in (2, 3, 5, 10, 20):
        y = on_axis(ratio, RATIOS, BOTTOM, TOP)
        lines.append(f'<path d="M{left} {y:.1f}H{right}" stroke="{theme.grid}"/>')
        lines.append(text(str(ratio), left - 6, y + 4, theme.faint, anchor="end"))
    for speed, name, anchor in [
        (10, "10 MB/s", "start"),
        (100, "100 MB/s", "middle"),
        (1000, "1 GB/s", "middle"),
        (10_000, "10 GB/s", "middle"),
    ]:
        x = on_axis(speed, SPEEDS, left, right)
        lines.append(f'<path d="M{x:.1f} {TOP}V{BOTTOM}" stroke="{theme.grid}"/>')
        lines.append(text(name, x, BOTTOM + 17, theme.faint, anchor=anchor))

    points = [
        (c, on_axis(c[key], SPEEDS, left, right), on_axis(c["ratio"][1], RATIOS, BOTTOM, TOP)) for c in compressors
    ]
    ours = [(x, y) for c, x, y in points if c.get("pumice")]
    curve = " ".join(f"{x:.1f},{y:.1f}" for x, y in ours)
    lines.append(f'<polyline points="{curve}" fill="none" stroke="{theme.pumice}" stroke-width="2.5"/>')

    # Labels keep clear of markers, of the line (as a chain of small boxes) and of each other.
    taken = [Box(x - 6, y - 6, x + 6, y + 6) for _, x, y in points]
    for (x0, y0), (x1, y1) in pairwise(ours):
        n = int(max(abs(x1 - x0), abs(y1 - y0)) // 4) + 1
        for i in range(n + 1):
            x, y = x0 + (x1 - x0) * i / n, y0 + (y1 - y0) * i / n
            taken.append(Box(x - 3, y - 3, x + 3, y + 3))
    frame = Box(left + 4, TOP, right, BOTTOM)
    for c, x, y in points:
        is_ours = c.get("pumice", False)
        peer = hollow_square if c["measurement"] == APART else square
        lines.append(circle(x, y, theme.pumice) if is_ours else peer(x, y, theme.peer))
        size, weight, fill = (13, 600, theme.pumice) if is_ours else (12, 400, theme.faint)
        label = place_label(c["name"], size, x, y, taken, frame)
        lines.append(text(c["name"], label.x, label.y, fill, size=size, anchor=label.anchor, weight=weight))
    return lines


def chart(compressors: list[dict], theme: Theme, setting: dict[str, str]) -> str:
    """Ratio against speed, both ways."""
    title = "Compression ratio at REL 1e-3 against speed of one thread. Higher is smaller, further right is faster."
    y = HEIGHT - 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
        f'     font-family="{FONT}" role="img">',
        "<title>Compression ratio against speed of Pumice's presets and of other error-bounded compressors</title>",
        "<!-- Written by bench/charts.py from docs/data/ratio-speed.toml. -->",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{theme.background}"/>',
        text(title, 8, 20, theme.faint, size=13),
        *panel("Compress", "compress", compressors, theme),
        *panel("Decompress", "decompress", compressors, theme),
        circle(14, y - 4, theme.pumice),
        text(f"Pumice, {setting['isa']}", 26, y, theme.text),
        square(152.5, y - 4, theme.peer),
        text("others, same run", 164, y, theme.text),
        hollow_square(276.5, y - 4, theme.peer),
        text("others, measured apart", 288, y, theme.text),
        text(f"means over {setting['arrays']}, one core of {setting['core']}", WIDTH - 8, y, theme.faint, anchor="end"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


QUESTIONS = [
    ("fast", "Must it keep up with", "memory, a GPU or", "a parallel file system?"),
    ("balanced", "Is about 1 GB/s", "of each core", "what you need?"),
    ("max", "Is it for an archive,", "where 20 MB/s of a", "core will do?"),
]
# One file for light and dark pages: it brings its background, so it can be read even where page and system disagree.
PRESETS_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 270" width="820" height="270" role="img">
<title>Which preset to take: fast, balanced, max, or the default, small</title>
<!-- Written by bench/charts.py from docs/data/ratio-speed.toml. -->
<style>
  text { font-family: -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; font-size: 13px }
  text { fill: #1f2328 }
  .page { fill: #ffffff } .box { fill: #f6f8fa; stroke: #818b98 } .key { fill: #ddf4ff; stroke: #0550ae }
  .line { fill: none; stroke: #59636e; stroke-width: 1.5 } .head { fill: #59636e }
  .name { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #59636e } .mid { text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .page { fill: #0d1117 } .box { fill: #151b23; stroke: #6e7681 }
    .key { fill: #0c2d6b; stroke: #58a6ff } .line { stroke: #9198a1 } .head, .small { fill: #9198a1 }
  }
</style>
<defs>
  <marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
    <path class="head" d="M0 0L8 4L0 8z"/>
  </marker>
</defs>
<rect class="page" width="820" height="270"/>"""
PRESETS_NOTE = (
    "Ratio and speed (compress / decompress) at REL 1e-3: geometric means over {arrays}, one thread of {core} with {isa}."
)


def presets(compressors: list[dict], setting: dict[str, str]) -> str:
    """Which preset to take, as three questions."""
    by_name = {c["name"]: c for c in compressors if c.get("pumice")}
    lines = [PRESETS_HEAD]
    for i, (_, *question) in enumerate(QUESTIONS):
        left = 10 + 205 * i
        middle = left + 85
        lines.append(f'<rect class="box" x="{left}" y="10" width="170" height="76" rx="6"/>')
        for j, line in enumerate(question):
            lines.append(f'<text class="mid" x="{middle}" y="{36 + 18 * j}">{line}</text>')
        to_next = f"H{left + 204}" if i + 1 < len(QUESTIONS) else f"H{left + 290}V133"
        lines += [
            f'<path class="line" marker-end="url(#a)" d="M{middle} 86V133"/>',
            f'<text class="small" x="{middle + 7}" y="112">yes</text>',
            f'<path class="line" marker-end="url(#a)" d="M{left + 170} 48{to_next}"/>',
            f'<text class="small" x="{left + 178}" y="42">no</text>',
        ]
    for i, name in enumerate([*(name for name, *_ in QUESTIONS), "small"]):
        c, left = by_name[name], 10 + 205 * i
        middle = left + 85
        title = name + (" (default)" if c.get("default") else "")
        lines += [
            f'<rect class="key" x="{left}" y="134" width="170" height="92" rx="6"/>',
            f'<text class="name mid" x="{middle}" y="160">{title}</text>',
            f'<text class="mid" x="{middle}" y="184">{c["ratio"][1]:.1f} times smaller</text>',
            f'<text class="mid" x="{middle}" y="206">{c["compress"]} / {c["decompress"]} MB/s</text>',
        ]
    lines += [f'<text class="small" x="10" y="252">{PRESETS_NOTE.format(**setting)}</text>', "</svg>"]
    return "\n".join(lines) + "\n"


def table(compressors: list[dict]) -> str:
    """The figures as Markdown."""
    rows = [
        "| | ratio at REL 1e-2 / 1e-3 / 1e-4 | compress, MB/s | decompress, MB/s | bound kept |",
        "|---|---|--:|--:|---|",
    ]
    for c in compressors:
        name = f"**Pumice `{c['name']}`**" if c.get("pumice") else c["name"]
        note = " (default)" if c.get("default") else " ¹" if c["measurement"] == APART else ""
        ratios = " / ".join(f"{ratio:.1f}" for ratio in c["ratio"])
        rows.append(f"| {name}{note} | {ratios} | {c['compress']} | {c['decompress']} | {c['bound']} |")
    return "\n".join(rows) + "\n"


def with_table(page: str, rows: str) -> str:
    """The README with `rows` between its two markers."""
    before, begin, rest = page.partition(TABLE_BEGIN)
    _, end, after = rest.partition(TABLE_END)
    if not (begin and end):
        sys.exit(f"charts.py: README.md lacks the lines {TABLE_BEGIN.strip()} and {TABLE_END}")
    return before + begin + "\n" + rows + "\n" + end + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a committed file differs")
    arguments = parser.parse_args()

    data = tomllib.loads(DATA.read_text())
    for compressor in data["compressor"]:
        if compressor["measurement"] not in data["measurement"]:
            sys.exit(f"charts.py: {DATA.name}: {compressor['name']} names an unknown measurement")
    compressors, setting = data["compressor"], data["setting"]
    images = ROOT / "docs/images"
    wanted = {images / f"ratio-speed-{name}.svg": chart(compressors, theme, setting) for name, theme in THEMES.items()}
    wanted[images / "presets.svg"] = presets(compressors, setting)
    wanted[README] = with_table(README.read_text(), table(compressors))

    stale = [path for path, content in wanted.items() if not path.exists() or path.read_text() != content]
    if arguments.check:
        if stale:
            names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
            sys.exit(f"charts.py: out of date: {names}. Run `python -m bench.charts` and commit what it writes.")
        print(f"{len(wanted)} files are up to date")
        return
    for path in stale:
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
