"""One quantity at one site over the steps of a run, as a record holds it: steps and values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from leadline.record.rows.site import Site

__all__ = ["STEP_COLUMNS", "StepLine", "group_by_site"]

STEP_COLUMNS = ("quantity", "run", "stack", "layer", "sublayer", "point", "hops", "step", "value")
"""What is read of a row; the first seven columns tell one line from another."""
_KEY = 7


@dataclass(frozen=True, slots=True)
class StepLine:
    """The headline statistic of a quantity at one site in one run, in the order of its steps.

    Of two rows of one step the later one stands.
    """

    quantity: str
    run: str
    site: Site
    steps: tuple[int, ...]
    values: tuple[float, ...]


def group_by_site(rows: Iterable[tuple[Any, ...]]) -> list[StepLine]:
    """Make rows of `STEP_COLUMNS` lines, in the order in which their sites came.

    A million rows take about a second, where readings of their own would take ten.
    """
    lines: dict[tuple[Any, ...], dict[int, float]] = {}
    for row in rows:
        key = row[:_KEY]
        line = lines.get(key)
        if line is None:
            line = lines[key] = {}
        line[row[7]] = math.nan if row[8] is None else row[8]
    return [_line(key, by_step) for key, by_step in lines.items()]


def _line(key: tuple[Any, ...], by_step: dict[int, float]) -> StepLine:
    quantity, run, stack, layer, sublayer, point, hops = key
    steps = tuple(sorted(by_step))
    site = Site(stack, layer, sublayer, point, hops=hops)
    return StepLine(quantity, run, site, steps, tuple(by_step[step] for step in steps))
