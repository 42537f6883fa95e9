"""Numbers of every example as rows of a record, and such rows as arrays again.

Mean and largest over the examples stand where a probe of `measure` writes them (`linear.probing`);
the numbers of single examples stand beside them, under the statistic that is the headline, so that
a line over depth goes through the means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.record import Quantity, Reading, Record, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["cells", "example_rows", "power_rows", "ranked_rows", "rows_at", "summaries", "table_of"]

_WITHIN_FLOAT64 = 300.0
"""Powers of ten that are written as plain numbers."""


def example_rows(
    quantity: Quantity, values: Floats, errors: Floats | None, site: Site
) -> list[Reading]:
    """Mean and largest over the examples, as probes write them, then every example."""
    each = _examples(quantity, values, errors, site)
    return [*summaries(quantity, values, errors, site), *each]


def ranked_rows(
    quantity: Quantity, values: Floats, errors: Floats | None, site: Site
) -> list[Reading]:
    """The same of [example, rank] numbers, rank by rank; without a rank, those of the first."""
    rows: list[Reading] = []
    for rank in range(values.shape[1]):
        here = values[:, rank], None if errors is None else errors[:, rank]
        if rank == 0:
            rows += summaries(quantity, *here, site)
        rows += example_rows(quantity, *here, replace(site, rank=rank + 1))
    return rows


def summaries(
    quantity: Quantity, values: Floats, errors: Floats | None, site: Site
) -> Iterator[Reading]:
    """Mean and largest over the examples of [example] numbers, with the interval of each."""
    worst = int(values.argmax())
    for statistic, some in (("mean", slice(None)), ("max", slice(worst, worst + 1))):
        low = high = None
        with np.errstate(invalid="ignore", over="ignore"):  # numbers that are infinite
            value = float(values[some].mean())
            if errors is not None:
                low, high = (float(end[some].mean()) for end in (values - errors, values + errors))
        yield Reading(quantity.name, site, statistic, value, low, high)


def _examples(
    quantity: Quantity, values: Floats, errors: Floats | None, site: Site
) -> Iterator[Reading]:
    for i, value in enumerate(values.tolist()):
        error = math.nan if errors is None else float(errors[i])
        ends = (None, None) if errors is None else (value - error, value + error)
        yield Reading(quantity.name, replace(site, example=i + 1), "mean", value, *ends)


def power_rows(quantity: Quantity, logs: Floats, errors: Floats, site: Site) -> Iterator[Reading]:
    """The rows of numbers known by their log10, with an exponent where they are beyond float64."""
    finite = logs[np.isfinite(logs)]
    top = float(finite.max()) if len(finite) else 0.0
    groups = [(top, logs, errors, summaries)]
    for i, log in enumerate(logs.tolist()):
        one = slice(i, i + 1)
        groups.append((log if math.isfinite(log) else 0.0, logs[one], errors[one], _examples))
    for i, (level, some, spread, write) in enumerate(groups):
        scale, exponent = _power(level)
        values = scale * 10.0 ** (some - level)
        # One standard error of log10 x is that of x over x ln 10.
        ends = np.where(values > 0, values * math.log(10) * spread, 0.0)
        for row in write(quantity, values, ends, site):
            where = row.site if i == 0 else replace(site, example=i)
            yield replace(row, site=where, exponent=exponent)


def _power(log10: float) -> tuple[float, int | None]:
    """10^log10 as a number and the power of two that it is to be multiplied by."""
    if abs(log10) < _WITHIN_FLOAT64:
        return 10.0**log10, None
    binary = log10 * math.log2(10)
    exponent = math.floor(binary)
    return 2.0 ** (binary - exponent), exponent


def rows_at(record: Record, quantity: Quantity, site: Site) -> list[Reading]:
    """The readings of a quantity at a site, with all that stands there along the other axes."""
    if quantity.name not in record:
        return []
    place = {"stack": site.stack, "layer": site.layer, "point": site.point}
    return record.select(quantity.name, sublayer=site.sublayer, **place)


def cells(
    record: Record, quantity: Quantity, site: Site, axis: str = "rank"
) -> dict[tuple[int, int], float]:
    """The numbers of single examples, by example and by their place on an axis."""
    return {
        (one.site.example, getattr(one.site, axis) or 1): one.value
        for one in rows_at(record, quantity, site)
        if one.site.example is not None
    }


def table_of(
    record: Record,
    quantity: Quantity,
    site: Site,
    examples: int,
    axis: str = "rank",
    count: int = 1,
) -> Floats:
    """The numbers [example, axis]; NaN where none were written."""
    table = np.full((examples, count), np.nan)
    for (example, place), value in cells(record, quantity, site, axis).items():
        table[example - 1, place - 1] = value
    return table
