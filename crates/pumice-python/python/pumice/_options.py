"""How to compress: the keyword arguments that all functions and codecs share."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from reprlib import repr as brief
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from ._pumice import Config
from .errors import InvalidArgumentError

Preset = Literal[
    "fast", "balanced", "small", "max", "cuszp2-plain", "cuszp2-outlier", "cuszplus", "ceaz", "ceresz2"
]
PRESETS: tuple[str, ...] = get_args(Preset)
# Most values that can be named as fill values.
MAX_FILLS = 8
Stable = bool | Literal["auto"]

# Kinds of bounds with a number, by their names in all interfaces.
KINDS = ("abs", "rel", "pwrel", "psnr", "l2", "ratio")
# JSON has no numbers for these.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


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
    stable: Stable | None
    fill_value: float | Sequence[float] | None
    value_range: tuple[float, float] | None
    chunk_shape: Sequence[int] | None
    threads: int
    attributes: Mapping[str, str] | None


def number(name: str, value: Any) -> float:
    """Converts an option to a number. Refuses text and truth values, which `float` would take."""
    try:
        if not isinstance(value, str | bytes | bool | np.bool_):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name} must be a number, not {brief(value)}")


def pair(name: str, value: Any) -> tuple[float, float]:
    """Converts an option to two numbers."""
    if not isinstance(value, Sequence | np.ndarray) or isinstance(value, str) or len(value) != 2:
        raise InvalidArgumentError(f"{name} must be two numbers, the least and the greatest, not {brief(value)}")
    return number(name, value[0]), number(name, value[1])


def count(name: str, value: Any, zero: str = "none") -> int:
    """Converts an option to a count; `zero` says what 0 means."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {brief(value)}") from None
    if not 0 <= n < 1 << 64:
        raise InvalidArgumentError(f"{name} must be 0 ({zero}) or more, and below 2**64, not {n}")
    return n


def threads_of(value: Any) -> int:
    """Converts the option `threads`."""
    return count("threads", value, "one per core")


def bounds_of(options: Mapping[str, Any]) -> list[tuple[str, float]]:
    """All bounds that are given, as pairs of kind and number."""
    bounds = [(kind, number(kind, options[kind])) for kind in KINDS if options.get(kind) is not None]
    if options.get("lossless"):
        bounds.append(("lossless", 0.0))
    return bounds


def to_json(options: Options) -> dict[str, Any]:
    """The given options as JSON, without the number of threads, on which the bytes do not depend."""
    found: dict[str, Any] = {}
    for key, value in options.items():
        if value is None or (value is False and key != "stable") or key == "threads":
            continue
        if key in KINDS:
            value = number(key, value)
        elif key == "fill_value":
            fills = [_json_number(fill) for fill in fills_of(value)]
            value = fills[0] if len(fills) == 1 else fills
        elif key == "value_range":
            value = list(pair(key, value))
        elif key == "chunk_shape":
            value = _chunk_shape(value)
        elif isinstance(value, Mapping):
            value = dict(value)
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
    preset = options.get("preset")
    value_range, chunk_shape = options.get("value_range"), options.get("chunk_shape")
    return Config(
        bounds,
        default_preset if preset is None else preset_name(preset),
        _stable_name(options.get("stable")),
        fills_of(options.get("fill_value")),
        None if value_range is None else pair("value_range", value_range),
        None if chunk_shape is None else _chunk_shape(chunk_shape),
        threads_of(options.get("threads", 0)),
        _attributes(options.get("attributes")),
    )


def preset_name(preset: Any) -> str:
    """The name of a preset, which may still be unknown."""
    if not isinstance(preset, str):
        raise TypeError(f"a preset is one of {', '.join(PRESETS)}, not {brief(preset)}")
    return preset


def _stable_name(stable: Any) -> str:
    names = {None: "off", False: "off", True: "on", "auto": "auto"}
    if not isinstance(stable, bool | str | None) or stable not in names:
        raise InvalidArgumentError(f"stable must be True, False or 'auto', not {brief(stable)}")
    return names[stable]


def with_automatic_stability(options: Options) -> Options:
    """The options of codecs of files, where values are likely to be compressed again."""
    found = options.copy()
    if found.get("stable") is None:
        found["stable"] = "auto"
    return found


def several(given: Any) -> list[Any]:
    """The values of an option that takes one or several."""
    if given is None:
        return []
    return list(given) if np.iterable(given) and not isinstance(given, str | bytes) else [given]


def _fill(value: Any) -> float:
    return _NOT_FINITE[value] if isinstance(value, str) and value in _NOT_FINITE else number("fill_value", value)


def fills_of(value: Any) -> list[float]:
    """The given fill values, one or several; those that JSON cannot express, by name."""
    return [_fill(fill) for fill in several(value)]


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else next(name for name, it in _NOT_FINITE.items() if repr(it) == repr(value))


def _chunk_shape(shape: Any) -> list[int]:
    try:
        extents = [operator.index(extent) for extent in shape]
    except TypeError:
        raise TypeError(f"chunk_shape must have one integer for each axis, not {brief(shape)}") from None
    if any(extent < 1 for extent in extents):
        raise InvalidArgumentError(f"chunk_shape must be positive along each axis, not {tuple(extents)}")
    return extents


def _attributes(attributes: Any) -> list[tuple[str, str]]:
    pairs = [] if attributes is None else list(attributes.items()) if isinstance(attributes, Mapping) else [attributes]
    for item in pairs:
        if not (isinstance(item, tuple) and all(isinstance(text, str) for text in item)):
            raise TypeError(f"attributes must be a mapping of text to text; {brief(item)} is not")
    return pairs
