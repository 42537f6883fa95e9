"""The shape of a line over depth in words: its law, or how it rises, falls, dips or peaks."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.record.words.course import FLAT
from leadline.record.words.numbers import format_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leadline.record.rows.profile import Profile
    from leadline.record.rows.quantity import AxisScale

__all__ = ["axis_text", "change_over_depth", "growth_json", "shape_text"]

CLEAR = 0.25
"""A dip or a peak stands out from both ends by at least this share of the range."""


def axis_text(profiles: Iterable[Profile]) -> str:
    """Say what the places of lines count: `layer`, `hops`, or `layer or hops`."""
    return " or ".join(sorted({profile.over for profile in profiles}, reverse=True)) or "layer"


def shape_text(
    profile: Profile, *, scale: AxisScale, brief: bool = False, logarithm: bool = False
) -> str:
    """Say the law of a line, or where there is none how it rises, falls, dips or peaks.

    Of values that are logarithms no factor is said; a single value has no shape.
    """
    if len(profile) == 1:
        return ""
    growth = profile.growth
    if logarithm and (growth.law != "linear" or growth.jump is not None):
        return _change_of_logarithms(profile)
    if growth.law != "none":
        return growth.brief if brief else growth.text
    words = _words_without_law(profile, scale)
    lost = growth.text.partition("; ")[2]  # how many layers are not finite
    return words if brief else "; ".join(word for word in (words, lost) if word)


def growth_json(profile: Profile, *, scale: AxisScale, logarithm: bool = False) -> dict[str, Any]:
    """Return the law of a line for strict JSON; where there is none, its text says the shape."""
    growth = profile.growth.to_json()
    if growth["law"] == "none":
        growth["text"] = shape_text(profile, scale=scale, logarithm=logarithm)
    return growth


def change_over_depth(profile: Profile, *, scale: AxisScale) -> float:
    """Say how much a line changes, so that lines can be put in order.

    On a log scale it is the logarithm of the largest over the smallest value, else the range over
    the largest size: both are about 1 for a line that changes as much as it is large. What is
    small beside 1 on a linear scale, such as a cosine near zero, counts by its range alone. A value
    that is not finite, or a zero among others on a log scale, is more than any change.
    """
    values = np.asarray(profile.values, dtype=np.float64)
    if not bool(np.all(np.isfinite(values))):
        return math.inf
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0:
        return 0.0
    if scale == "log" and bool(np.all(values >= 0)):
        smallest = float(values.min())
        return math.inf if smallest == 0 else math.log(largest) - math.log(smallest)
    return float(np.ptp(values / largest)) * min(largest, 1.0)


def _words_without_law(profile: Profile, scale: AxisScale) -> str:
    finite = np.isfinite(profile.values)
    values, layers = profile.values[finite], np.asarray(profile.layers)[finite]
    if len(values) < 2:
        return ""
    largest = float(np.max(np.abs(values)))
    spread = float(np.ptp(values / largest)) if largest else 0.0
    if spread <= FLAT:
        return f"flat within {max(1, math.ceil(100 * spread))} %"
    positive = scale == "log" and bool(np.all(values > 0))
    height = np.log(values) if positive else values / largest
    low, high = int(np.argmin(height)), int(np.argmax(height))
    range_ = float(np.ptp(height))
    ends = sorted((float(height[0]), float(height[-1])))
    turns: dict[int, str] = {}
    if ends[0] - height[low] >= CLEAR * range_:
        turns[int(layers[low])] = "dips"
    if height[high] - ends[1] >= CLEAR * range_:
        turns[int(layers[high])] = "peaks"
    if turns:
        return ", ".join(f"{turns[layer]} at {profile.place(layer)}" for layer in sorted(turns))
    verb = "rises" if height[-1] > height[0] else "falls"
    first, last = float(values[0]), float(values[-1])
    if min(first, last) <= 0:  # below zero a factor says the opposite of what the line does
        return f"{verb} by {format_number(abs(last - first), digits=3)}"
    power = math.log10(last) - math.log10(first)
    if abs(power) > sys.float_info.max_10_exp:
        return f"{verb} ×10^{power:.0f}"
    return f"{verb} ×{format_number(last / first, digits=3)}"


def _change_of_logarithms(profile: Profile) -> str:
    """Say by how much logarithms rise or fall from the first finite one to the last."""
    finite = profile.values[np.isfinite(profile.values)]
    if len(finite) < 2:
        return ""
    change = float(finite[-1] - finite[0])
    verb = "rises" if change > 0 else "falls"
    return f"{verb} by {format_number(abs(change), digits=3)}" if change else "ends where it began"
