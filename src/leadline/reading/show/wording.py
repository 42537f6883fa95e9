"""Numbers and names as people read them: the same words in every part of the report."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leadline.record.rows.quantity import Over

__all__ = [
    "axes_in_words",
    "count",
    "layer_ranges",
    "number",
    "statistic_in_words",
    "times",
    "with_indices",
]

_AXES: dict[Over, str] = {
    "layer": "depth",
    "hops": "the length of paths",
    "step": "the steps of the run",
}

_STATISTICS = {
    "value": "value",
    "mean": "mean",
    "median": "median",
    "mean_without_first": "mean without first token",
    "median_without_first": "median without first token",
}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPT = re.compile(r"_(?:\{([^{}]{1,12})\}|([A-Za-z0-9]{1,2}(?![A-Za-z0-9_])))")
_SUPERSCRIPT = re.compile(r"\^(?:\{([^{}]{1,12})\}|([-−]?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z0-9_])))")


def with_indices(escaped: str) -> str:
    """Lower indices and raise exponents: x_l, x_{l-1}, l^0.5, e^{-t}.

    The text must have been escaped before; HTML and Plotly both read the result.
    """
    lowered = _SUBSCRIPT.sub(lambda match: f"<sub>{match[1] or match[2]}</sub>", escaped)
    return _SUPERSCRIPT.sub(lambda match: f"<sup>{match[1] or match[2]}</sup>", lowered)


def axes_in_words(axes: Iterable[Over]) -> str:
    """Say what charts are drawn over: `depth`, `the length of paths`, or several of them."""
    return " and ".join(_AXES[axis] for axis in dict.fromkeys(axes)) or _AXES["layer"]


def statistic_in_words(statistic: str) -> str:
    """Say how tokens were summed up."""
    return _STATISTICS.get(statistic, statistic.replace("_", " "))


def number(value: float, *, digits: int = 3) -> str:
    """Write a number with `digits` significant digits: 41.3, 0.0012, 1.25×10⁻⁷, NaN, ∞.

    Below a thousandth and from a hundred thousand on it is written with a power of ten.
    """
    if math.isnan(value):
        return "NaN"
    sign = "−" if value < 0 else ""
    if math.isinf(value):
        return f"{sign}∞"
    if value == 0:
        return "0"
    mantissa, _, power = f"{abs(value):.{digits - 1}e}".partition("e")
    exponent = int(power)
    if -3 <= exponent < 5:
        rounded = float(f"{mantissa}e{power}")
        return f"{sign}{rounded:.{max(0, digits - 1 - exponent)}f}"
    return f"{sign}{mantissa}×10{str(exponent).translate(_RAISED)}"


def layer_ranges(layers: Sequence[int], noun: str = "layer") -> str:
    """Write layers shortly: `layer 3`, `layers 3 to 7, 9`."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return f"{noun}{'s' if len(layers) > 1 else ''} {', '.join(words)}"


def count(value: float) -> str:
    """Write how many: 950, 12.4 thousand, 135 million, 7.24 billion."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{number(value / size)} {word}"
    return f"{value:,.0f}"


def times(ratio: float) -> str:
    """Write a ratio as a factor: 1.04 times, 12 times, 310 times."""
    return f"{number(ratio, digits=3 if ratio < 10 else 2)} times"
