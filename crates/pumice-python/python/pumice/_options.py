"""How to compress: the keyword arguments that all functions and codecs share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

from ._pumice import Config
from .errors import InvalidArgumentError

Preset = Literal[
    "fast", "balanced", "small", "max", "cuszp2-plain", "cuszp2-outlier", "cuszplus", "ceaz", "ceresz2"
]
PRESETS: tuple[str, ...] = get_args(Preset)

# Kinds of bounds that have a number, by the names that they have everywhere.
KINDS = ("abs", "rel", "pwrel", "psnr", "l2", "ratio")


class Options(TypedDict, total=False):
    """Keyword arguments of :func:`pumice.compress`, which explains them."""

    abs: float | None
    rel: float | None
    pwrel: float | None
    psnr: float | None
    l2: float | None
    ratio: float | None
    lossless: bool
    preset: Preset | None
    fill_value: float | None
    value_range: tuple[float, float] | None
    chunk_shape: Sequence[int] | None
    threads: int
    attributes: Mapping[str, str] | None


def bounds_of(options: Mapping[str, Any]) -> list[tuple[str, float]]:
    """All bounds that are given, as pairs of kind and number."""
    bounds = [(kind, float(options[kind])) for kind in KINDS if options.get(kind) is not None]
    if options.get("lossless"):
        bounds.append(("lossless", 0.0))
    return bounds


def to_json(options: Options) -> dict[str, Any]:
    """The options that are given, as JSON can hold them, without the number of threads, which changes no bytes."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        if value is None or value is False or key == "threads":
            continue
        if isinstance(value, float) and not math.isfinite(value):
            value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = list(value)
        found[key] = value
    return found


def config_of(options: Options, default_preset: str = "small") -> Config:
    """The options, checked as far as they can be without an array."""
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; known: {', '.join(Options.__annotations__)}")
    bounds = bounds_of(options)
    if not bounds:
        raise InvalidArgumentError(
            "no error bound is given: pass abs=, rel=, pwrel=, psnr=, l2= or ratio=, or lossless=True"
        )
    threads = options.get("threads", 0)
    if threads < 0:
        raise InvalidArgumentError(f"threads must be 0 (one for each core) or more, not {threads}")
    chunk_shape = options.get("chunk_shape")
    if chunk_shape is not None and any(extent < 1 for extent in chunk_shape):
        raise InvalidArgumentError(f"chunk_shape must be positive along each axis, not {tuple(chunk_shape)}")
    fill_value = options.get("fill_value")
    value_range = options.get("value_range")
    return Config(
        bounds,
        options.get("preset") or default_preset,
        None if fill_value is None else float(fill_value),
        None if value_range is None else (float(value_range[0]), float(value_range[1])),
        None if chunk_shape is None else [int(extent) for extent in chunk_shape],
        threads,
        list((options.get("attributes") or {}).items()),
    )
