"""What probes of linear maps share: kinds of maps, options, and statistics over the examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from leadline.errors import ProbeError
from leadline.instruments.passes.probe import Result, Single
from leadline.numerics.linear.linear_maps import LinearMap
from leadline.record import Quantity, Site

__all__ = ["Tell", "over_examples", "ranked", "too_many", "whole_number"]

Tensor = torch.Tensor
Tell = Callable[[str, int], None]
"""Called with the step that begins, one of those that `steps` named, and the products so far."""


def over_examples(
    quantity: Quantity, values: Tensor, errors: Tensor | None, site: Site
) -> Iterator[Result]:
    """Mean and largest over the examples of [example] numbers, with the interval of each."""
    lower, upper = (None, None) if errors is None else (values - errors, values + errors)
    worst = int(values.argmax())
    for statistic, pick in (
        ("mean", lambda table: table.mean()),
        ("max", lambda table: table[worst]),
    ):
        low, high = (None if end is None else pick(end) for end in (lower, upper))
        yield Single(quantity, pick(values), statistic, site, low, high)


def ranked(
    quantity: Quantity, values: Tensor, errors: Tensor | None, site: Site
) -> Iterator[Result]:
    """The same of [example, rank] numbers, rank by rank; without a rank, those of the first."""
    for rank in range(values.shape[1]):
        those = None if errors is None else errors[:, rank]
        if rank == 0:
            yield from over_examples(quantity, values[:, 0], those, site)
        yield from over_examples(quantity, values[:, rank], those, replace(site, rank=rank + 1))


def whole_number(probe: str, option: str, value: object, least: int) -> int:
    """An option that is a whole number, or a ProbeError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ProbeError(
            f"The option {option} of the probe {probe!r} is {value!r}; give a whole number from "
            f"{least} on."
        )
    return value


def too_many(count: int, what: str, linear_map: LinearMap) -> str | None:
    """Why there are not so many directions or values, if there are not."""
    tokens, width = linear_map.shape[1:]
    if count <= tokens * width:
        return None
    return (
        f"{count} {what} were asked for; {tokens} x {width} (tokens x width) has {tokens * width}"
    )
