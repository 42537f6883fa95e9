"""From the numbers of tokens, examples and heads to those of the record: means, medians, largest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from leadline.instruments.passes.probe import Each, PerHead
from leadline.numerics.devices import widest_float
from leadline.numerics.tokens import real_rows
from leadline.record import Reading, Site

__all__ = [
    "Interval",
    "head_readings",
    "joined_heads",
    "means_of",
    "real_tokens",
    "token_columns",
]

Tensor = torch.Tensor
Interval = tuple[Tensor, Tensor | None, Tensor | None]
"""A value, and the lower and upper end around it."""


def real_tokens(
    table: Tensor, mask: Tensor | None, rows: Sequence[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """[site, example, token] -> the real tokens of every site, and those after the first.

    `rows` are those of `numerics.tokens.real_rows`, for a caller that has them.
    """
    if mask is None:
        return table.flatten(1), table[:, :, 1:].flatten(1)
    rows = real_rows(mask) if rows is None else rows
    return (
        torch.cat([table[:, e, keep] for e, keep in enumerate(rows)], 1),
        torch.cat([table[:, e, keep[1:]] for e, keep in enumerate(rows)], 1),
    )


def token_columns(every: Tensor, rest: Tensor) -> dict[str, Tensor]:
    """Mean and median of every row, with all tokens and without the first where there are others."""
    wide = widest_float(every.device)
    columns = {"mean": every.mean(1, dtype=wide), "median": _median(every)}
    if rest.shape[1]:
        columns["mean_without_first"] = rest.mean(1, dtype=wide)
        columns["median_without_first"] = _median(rest)
    return columns


def means_of(result: Each) -> Iterator[tuple[str, Interval]]:
    """The mean over the examples with all tokens, and without the first, where there are any."""
    for statistic, part in (("mean", "all"), ("mean_without_first", "rest")):
        ends = [
            None if table is None else getattr(table, part)
            for table in (result.values, result.lower, result.upper)
        ]
        if ends[0] is not None and ends[0].numel():
            value, lower, upper = (None if end is None else end.mean() for end in ends)
            assert value is not None
            yield statistic, (value, lower, upper)


def head_readings(result: PerHead, site: Site) -> list[Reading]:
    """Per head mean and largest over the examples, then the same over all heads."""
    if result.values.numel() == 0:
        return []
    heads = result.values.shape[1]
    places = [*(replace(site, head=head) for head in range(1, heads + 1)), site]
    certified = result.lower is not None and result.upper is not None
    ways = {"mean": torch.mean, "max": torch.amax} | ({"min": torch.amin} if certified else {})
    readings: list[Reading] = []
    for statistic, reduce in ways.items():
        values, lower, upper = (
            _by_head(table, reduce, heads) for table in (result.values, result.lower, result.upper)
        )
        for at, place in enumerate(places):
            value = values[at]
            assert value is not None
            readings.append(
                Reading(result.quantity.name, place, statistic, value, lower[at], upper[at])
            )
    return readings


def joined_heads(results: Sequence[PerHead]) -> PerHead:
    """The heads of several calls of attention in one sublayer side by side, as one row.

    Examples that one of them lacks are left out.
    """
    if len(results) == 1:
        return results[0]
    fewest = min(len(one.values) for one in results)

    def side_by_side(tables: list[Tensor | None]) -> Tensor | None:
        known = [table[:fewest] for table in tables if table is not None]
        return torch.cat(known, 1) if len(known) == len(tables) else None

    values = side_by_side([one.values for one in results])
    assert values is not None
    return PerHead(
        results[0].quantity,
        values,
        side_by_side([one.lower for one in results]),
        side_by_side([one.upper for one in results]),
    )


def _by_head(table: Tensor | None, reduce: Any, heads: int) -> list[float | None]:
    """One number per head, then one for all of them."""
    if table is None:
        return [None] * (heads + 1)
    each = reduce(table.to(widest_float(table.device)), 0)
    return torch.cat([each, reduce(each, 0).reshape(1)]).tolist()


def _median(table: Tensor) -> Tensor:
    """Row by row; the mean of the two middle values for an even count. NaN in, NaN out."""
    count = table.shape[1]
    wide = widest_float(table.device)
    low = table.kthvalue((count + 1) // 2, dim=1).values.to(wide)
    high = table.kthvalue(count // 2 + 1, dim=1).values.to(wide) if count % 2 == 0 else low
    return torch.where(table.isnan().any(1), float("nan"), (low + high) / 2)
