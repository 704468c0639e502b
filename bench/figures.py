"""What a comparison of compressors comes to: whether bounds were kept, geometric means, tables, JSON and TOML."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bench.peers import Restored, Speed

VERDICTS = ("kept", "over", "lost NaN", "failed")


@dataclass(frozen=True)
class Run:
    """What a compressor made of one array at one bound."""

    rel: float
    ratio: float = math.nan
    # The largest error of a finite value.
    error_over_bound: float = math.nan
    # How many NaN and infinities came back as something else.
    n_lost: int = 0
    failure: str = ""

    @property
    def verdict(self) -> str:
        if self.failure:
            return "failed"
        if self.error_over_bound > 1:
            return "over"
        return "lost NaN" if self.n_lost else "kept"


@dataclass
class Result:
    """All runs of one compressor on one array."""

    compressor: str
    array: str
    in_means: bool
    kb: int | None = None
    runs: list[Run] = field(default_factory=list)
    speed: Speed | None = None
    speed_failure: str = ""

    @property
    def is_complete(self) -> bool:
        return not (self.speed_failure or any(run.failure for run in self.runs))


# Results by the name of the compressor.
Results = dict[str, list[Result]]


def judge(original: np.ndarray, restored: list[Restored], bound: float, rel: float) -> Run:
    """The best ratio and the worst error of all algorithms. Rounding lifts no error beyond a bound that is kept."""
    is_finite = np.isfinite(original)
    ratio = max(original.nbytes / algorithm.n_bytes for algorithm in restored)
    error = max(worst_error(original[is_finite], algorithm.values[is_finite]) for algorithm in restored)
    n_lost = max(count_lost(original[~is_finite], algorithm.values[~is_finite]) for algorithm in restored)
    return Run(rel, ratio, error / bound, n_lost)


def worst_error(original: np.ndarray, restored: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(original.astype(np.float64) - restored.astype(np.float64))
    return float(np.where(np.isnan(error), np.inf, error).max(initial=0.0))


def count_lost(original: np.ndarray, restored: np.ndarray) -> int:
    is_same = (original == restored) | (np.isnan(original) & np.isnan(restored))
    return int(np.count_nonzero(~is_same))


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def in_means(results: list[Result], kb: int | None = None) -> list[Result]:
    """Those that count, of one size if it is given."""
    return [r for r in results if r.in_means and r.is_complete and kb in (None, r.kb)]


def mean_ratio(results: list[Result], rel: float) -> float:
    return geometric_mean(run.ratio for result in results for run in result.runs if run.rel == rel)


def mean_speed(results: list[Result]) -> Speed:
    """NaN if speeds were not measured."""
    speeds = [result.speed for result in results if result.speed]
    return Speed(geometric_mean(s.compress for s in speeds), geometric_mean(s.decompress for s in speeds))


def verdicts(results: list[Result]) -> Counter[str]:
    return Counter(run.verdict for result in results for run in result.runs)


def on_common_arrays(results: Results) -> Results:
    """Only the arrays of the means on which every compressor succeeded."""
    common = set.intersection(*({r.array for r in in_means(mine)} for mine in results.values()))
    return {name: [r for r in mine if r.array in common] for name, mine in results.items()}


def rel_text(rel: float) -> str:
    """As people write bounds: 1e-3."""
    return np.format_float_scientific(rel, trim="-", exp_digits=1)


def figure(value: float, n_digits: int) -> str:
    return "-" if math.isnan(value) else f"{value:.{n_digits}f}"


def aligned(rows: list[list[str]]) -> str:
    """A table with the first column to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ["  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:]))]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def field_table(results: Results, rels: list[float]) -> str:
    """Means of ratio and speed over whole fields."""
    rows = [["", "fields", *(f"ratio {rel_text(rel)}" for rel in rels), "compress", "decompress"]]
    for name, mine in results.items():
        counted = in_means(mine)
        ratios = [figure(mean_ratio(counted, rel), 2) for rel in rels]
        speed = mean_speed(counted)
        rows.append([name, str(len(counted)), *ratios, figure(speed.compress, 0), figure(speed.decompress, 0)])
    return aligned(rows)


def crop_table(results: Results, sizes: Iterable[int], rel: float) -> str:
    """Means of the ratio over crops, by size."""
    columns = {**{f"{kb} KB": kb for kb in sizes}, "all": None}
    rows = [["", "crops", *columns]]
    for name, mine in results.items():
        ratios = [figure(mean_ratio(in_means(mine, kb), rel), 3) for kb in columns.values()]
        rows.append([name, str(len(in_means(mine))), *ratios])
    return aligned(rows)


def verdict_table(results: Results) -> str:
    """How many runs kept the bound, on all arrays and at all bounds."""
    rows = [["", "runs", *VERDICTS]]
    for name, mine in results.items():
        counts = verdicts(mine)
        rows.append([name, str(counts.total()), *(str(counts[verdict]) for verdict in VERDICTS)])
    return aligned(rows)


def summary(results: list[Result], rels: list[float]) -> dict[str, Any]:
    """The figures of one compressor, for JSON."""
    counted = in_means(results)
    return {
        "n_arrays": len(counted),
        "ratio": {rel_text(rel): mean_ratio(counted, rel) for rel in rels},
        "speed": asdict(mean_speed(counted)),
        "runs": dict(verdicts(results)),
    }


def without_nan(value: Any) -> Any:
    """The same with None for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def toml_entry(name: str, results: list[Result], rels: list[float], flags: list[str]) -> str:
    """The figures of one compressor, as docs/data/ratio-speed.toml has them; each flag is true."""
    counted, counts, speed = in_means(results), verdicts(results), mean_speed(in_means(results))
    missed = [f"{counts[verdict]} {verdict}" for verdict in VERDICTS[1:] if counts[verdict]]
    return "\n".join([
        "[[compressor]]",
        f'name = "{name}"',
        *(f"{flag} = true" for flag in flags),
        f"fields = {len(counted)}",
        f"ratio = [{', '.join(f'{mean_ratio(counted, rel):.2f}' for rel in rels)}]",
        f"compress = {speed.compress:.0f}",
        f"decompress = {speed.decompress:.0f}",
        f'bound = "{", ".join(missed) or "all"}"',
        'measurement = "compare"',
    ])
